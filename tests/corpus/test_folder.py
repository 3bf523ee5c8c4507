"""A corpus folder's files are what was written: damage and loss are named by every verb, before a document is used."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kit.makers import synthetic_text
from ordsmed.base.errors import DataError
from ordsmed.base.run import Run, obtain
from ordsmed.corpus import folder as module
from ordsmed.corpus import write
from ordsmed.corpus.folder import SPLITS, PartWriter, check, documents, origin, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.corpus.presplit import presplit
from ordsmed.corpus.shards import shards
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.tell.show.stats import stats

RECIPE = 'out = "{0}/c"\nshard = 2000\nvalidation = 0.2\n[source]\nkind = "text"\npath = "{0}/a.txt"\n'
TOKENIZER = '{0}[tokenizer]\nkind = "wordpiece"\nsize = 200\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of several parts."""
    (tmp_path / "a.txt").write_text(synthetic_text(60))
    (tmp_path / "c.toml").write_text(RECIPE.format(tmp_path))
    return obtain(Corpus, str(tmp_path / "c.toml"))


def damage(path: Path) -> None:
    """One bit turned in a letter of a text: the line is JSON still."""
    data = bytearray(path.read_bytes())
    data[data.index(b"Y SISTER" if b"Y SISTER" in data else b"sister")] ^= 0x02
    path.write_bytes(data)


def recipe(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / f"{name}.toml"
    path.write_text(f'out = "{tmp_path}/{name}"\n' + text)
    return str(path)


VERBS: dict[str, Callable[[Path], object]] = {
    "stats": lambda place: stats(f"{place}/c"),
    "shards": lambda place: shards([f"{place}/c"], f"{place}/shards", train=2, test=0),
    "presplit": lambda place: presplit(f"{place}/c", f"{place}/presplit"),
    "tokenizer": lambda place: obtain(
        TokenizerTraining, recipe(place, "t", TOKENIZER.format(f'corpus = "{place}/c"\n'))
    ),
    "encode": lambda place: obtain(
        Encoding, recipe(place, "e", f'corpus = "{place}/c"\ntokenizer = "{place}/known"\n')
    ),
    "corpus": lambda place: obtain(Corpus, recipe(place, "d", f'[source]\nkind = "corpus"\nname = "{place}/c"\n')),
    "against": lambda place: obtain(
        Corpus, recipe(place, "d", f'against = ["{place}/c"]\n[source]\nkind = "text"\npath = "{place}/a.txt"\n')
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_turned_bit_and_a_lost_part_are_named(folder: Path, tmp_path: Path, verb: str) -> None:
    known = recipe(tmp_path, "known", TOKENIZER.format(f'corpus = "{folder}"\n'))
    obtain(TokenizerTraining, known)
    path = parts(folder, "train")[1]
    whole = path.read_bytes()
    damage(path)
    assert list(map(len, whole.splitlines())) == list(map(len, path.read_bytes().splitlines()))
    with pytest.raises(
        DataError, match=r"train/00001.jsonl: is damaged: checksum \w{8}; wanted \w{8}, the recorded one"
    ):
        VERBS[verb](tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"train/00001.jsonl: no such file"):
        VERBS[verb](tmp_path)
    path.write_bytes(whole)
    if verb != "against":  # which leaves nothing
        VERBS[verb](tmp_path)


def test_a_corpus_of_before_has_no_checksums_and_opens(folder: Path) -> None:
    run = Run(folder)
    for split in SPLITS:
        assert run.status[split].pop("checksums").keys() == run.status[split]["parts"].keys()
        run.set(**{split: {k: v for k, v in run.status[split].items() if k != "checksums"}})
    damage(parts(folder, "train")[1])
    assert sum(1 for path in parts(folder, "train") for _ in documents(path)) == run.status["train"]["documents"]
    run.set(train=None)
    check(parts(folder, "train")[0])


def test_no_document_of_a_damaged_part_is_given(folder: Path) -> None:
    path = parts(folder, "train")[1]
    damage(path)
    with pytest.raises(DataError, match="is damaged"):
        next(documents(path))


def written(place: Path, lines: list[bytes], **how: bool) -> PartWriter:
    with PartWriter(place / "train", 20, **how) as writer:
        for line in lines:
            writer.write(line, 2, 3, 5, 7)
    return writer


def test_parts_are_begun_where_they_would_be_too_long(tmp_path: Path) -> None:
    lines = [b"0123456789\n", b"01234567\n", b"a\n", b"x" * 30 + b"\n", b"b\n"]
    made = written(tmp_path, lines)
    parts_made = {path.name: path.read_bytes() for path in (tmp_path / "train").iterdir()}
    assert parts_made == {
        "00000.jsonl": lines[0] + lines[1],
        "00001.jsonl": lines[2],
        "00002.jsonl": lines[3],
        "00003.jsonl": lines[4],
    }
    assert made.parts == {"00000.jsonl": 2, "00001.jsonl": 1, "00002.jsonl": 1, "00003.jsonl": 1}
    assert made.checksums == {name: f"{zlib.crc32(data):08x}" for name, data in parts_made.items()}
    count = made.count
    assert (count.documents, count.sentences, count.words, count.characters, count.bytes) == (5, 10, 15, 25, 35)
    assert written(tmp_path / "none", []).parts == {}
    assert not (tmp_path / "none").exists()


def test_parts_that_stand_are_counted_and_left_as_they_are(tmp_path: Path) -> None:
    lines = [b"0123456789\n", b"01234567\n", b"abcdefghijk\n", b"0123456789\n", b"z\n"]
    whole = written(tmp_path, lines)
    (tmp_path / "train/00001.jsonl").unlink()
    before = (tmp_path / "train/00000.jsonl").stat().st_mtime_ns
    again = written(tmp_path, lines, again=True)
    assert (again.parts, again.checksums, again.count) == (whole.parts, whole.checksums, whole.count)
    assert (tmp_path / "train/00000.jsonl").stat().st_mtime_ns == before
    assert (tmp_path / "train/00001.jsonl").read_bytes() == lines[2]
    with PartWriter(tmp_path / "train", 20, again=True) as told:
        wants = []
        for line in [*lines, b"a new one\n"]:
            wants.append(told.wants(len(line)))
            told.write(line, 0, 0, 0) if wants[-1] else told.add(len(line), 0, 0, 0, 0)
    assert wants == [False, False, False, False, False, True]
    (tmp_path / "train/00000.jsonl").write_bytes(b"short\n")
    with pytest.raises(
        DataError, match=r"00000\.jsonl: 6 bytes; wanted 20; remove this file, and run the command again"
    ):
        written(tmp_path, lines, again=True)
    assert written(tmp_path, lines).parts == whole.parts, "a new writing writes all anew"
    assert (tmp_path / "train/00000.jsonl").read_bytes() == lines[0] + lines[1]


def test_what_is_half_written_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(module, "sync", lambda path: synced.append(f"{path.name}: {path.stat().st_size}"))
    with pytest.raises(TypeError):
        written(tmp_path, [b"0123456789\n", b"0123456789\n", None])  # type: ignore[list-item]
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["00000.jsonl", "00001.jsonl.part"]
    assert synced == ["00000.jsonl.part: 11"]


def test_where_a_document_of_a_number_stands(tmp_path: Path) -> None:
    with PartWriter(tmp_path / "train", 64) as writer:
        for n in range(5):
            writer.write(b'{"text":"t%d"%b}\n' % (n, b',"id":"a:%d"' % n if n != 3 else b""), 1, 1, 1)
    names = [path.name for path in parts(tmp_path, "train")]
    assert names == ["00000.jsonl", "00001.jsonl"]
    places = [origin(tmp_path, "train", n).removeprefix(f"{tmp_path}/train/") for n in range(5)]
    assert places == [
        "00000.jsonl:1, id a:0",
        "00000.jsonl:2, id a:1",
        "00001.jsonl:1, id a:2",
        "00001.jsonl:2",
        "00001.jsonl:3, id a:4",
    ]
    with pytest.raises(DataError, match="has no train document of that number"):
        origin(tmp_path, "train", 5)


def test_parts_are_in_order_and_all_there(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("99999.jsonl", "100000.jsonl", "00002.jsonl", "x.jsonl", "00003.jsonl.part"):
        (tmp_path / "train" / name).write_text("")
    assert [path.name for path in parts(tmp_path, "train")] == ["00002.jsonl", "99999.jsonl", "100000.jsonl"]
    assert parts(tmp_path, "test") == []
    Run(tmp_path).set(train={"parts": {"00007.jsonl": 1, "00005.jsonl": 1}})
    with pytest.raises(
        DataError, match=r"train/00005\.jsonl: no such file; wanted a part of a corpus; make the corpus"
    ):
        parts(tmp_path, "train")


def test_a_line_that_is_no_document_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train/00000.jsonl"
    path.parent.mkdir()
    for wrong, said in (
        (b'{"id":3}\n', r":2: Expected `str`"),
        (b'{"text', ":2: the last line is cut off"),
        (b"[1]\n", ":2: "),
    ):
        path.write_bytes(b'{"text":"a"}\n' + wrong)
        with pytest.raises(
            DataError, match=rf"00000\.jsonl{said}.*; wanted one document per line; make the corpus again"
        ):
            list(documents(path))
    path.unlink()
    with pytest.raises(DataError, match="no such file; wanted a part of a corpus"):
        list(documents(path))


def test_part_files_are_cut_as_one_writer_cuts_them(tmp_path: Path) -> None:
    """Whatever the sizes, and however the documents come: a part is full where the next document has no room."""
    draw = random.Random(0)
    for lengths in ([5, 5, 3], [12, 1, 9, 1], [draw.randint(1, 9) for _ in range(200)]):
        lines = [b"x" * (length - 1) + b"\n" for length in lengths]
        with PartWriter(tmp_path / "one", 10) as one:
            for line in lines:
                one.write(line, 1, 1, 1)
        rows = np.zeros(len(lines), write.ROW)
        rows["written"], rows["at"] = lengths, np.cumsum([0, *lengths])[:-1]
        blocks = [(some, np.full(len(some), 2)) for some in np.array_split(rows, 3)]
        writers = {name: PartWriter(tmp_path / name, 10) for name in SPLITS}
        tasks = list(write._tasks(blocks, writers, ["stem"], False, ""))
        assert {(split, number): len(part) for split, _, number, _, part, *_ in tasks} == {
            ("train", int(name[:5])): count for name, count in one.parts.items()
        }
