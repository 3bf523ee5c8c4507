"""The lexicon: every word of a folder, the tokenizer's first; and stores of words, alike by any number of processes."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base import files
from ordsmed.base.errors import DataError, RunError
from ordsmed.base.run import Run
from ordsmed.data import encode
from ordsmed.data.encode import read_store
from ordsmed.data.lexicon import Lexicon, LexiconWriter
from ordsmed.data.store import Store, StoreWriter
from ordsmed.data.words import WholeWords
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers.words import WordList

KNOWN = ["<S>", "</S>", "<UNK>", "the", "blåbær"]
FILES = ("train.bin", "train.idx", "train.counts.npy", "validation.bin", "validation.idx", "lexicon.bin", "lexicon.idx")


def corpus(folder: Path, **splits: list[list[str]]) -> Path:
    """A corpus folder of documents, each a list of sentences."""
    for split, documents in splits.items():
        (folder / split).mkdir(parents=True)
        lines = [json.dumps({"text": "".join(d), "ends": np.cumsum([len(s) for s in d]).tolist()}) for d in documents]
        (folder / split / "00000.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    Run(folder).set(verb="corpus", state="done", fingerprint="c0")
    return folder


def encoded(place: Path, out: str = "store", **more: object) -> encode.Encoded:
    found = {"corpus": str(place / "texts"), "tokenizer": str(place / "words"), "out": str(place / out), **more}
    (place / f"{out}.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in found.items()))
    return read_store(str(place / f"{out}.toml"))


def made_up(documents: int) -> list[list[str]]:
    """Sentences in which rare words come again and again."""
    draw = np.random.default_rng(5)
    word = lambda: f"w{int(draw.zipf(1.3)) % 3000}"  # noqa: E731
    return [[" ".join(word() for _ in range(draw.integers(1, 12))) + ". " for _ in range(5)] for _ in range(documents)]


def spelled(store: Store) -> list[list[str]]:
    """The words of every sequence."""
    lexicon = store.lexicon
    assert lexicon is not None
    return [[lexicon.word(n).decode() for n in ids] for ids in np.split(store.tokens, store.starts[1:-1])]


def test_written_and_read(tmp_path: Path) -> None:
    with LexiconWriter(tmp_path, KNOWN, 2) as writer:
        assert writer.number(np.asarray([3, 6, 5, 4, 6]), ["ran", "é" * 30]).tolist() == [3, 6, 5, 4, 6]
        assert writer.number(np.asarray([5, 6]), ["up", "ran"]).tolist() == [7, 5]
        assert not list(tmp_path.iterdir())
    lexicon = Lexicon.open(tmp_path)
    assert (len(lexicon), lexicon.known, lexicon.unknown, lexicon.long) == (8, 5, 2, 1)
    assert [lexicon.word(n).decode() for n in range(8)] == [*KNOWN, "ran", "é" * 30, "up"]
    assert (lexicon.characters.dtype, lexicon.starts.dtype) == (np.uint8, np.int64)
    assert lexicon.starts[-1] == len(lexicon.characters)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lexicon.bin", "lexicon.idx"]


def test_what_is_broken_off_leaves_none(tmp_path: Path) -> None:
    with LexiconWriter(tmp_path, KNOWN, 2):
        pass
    with pytest.raises(KeyError), LexiconWriter(tmp_path, KNOWN, 2):
        raise KeyError
    assert not list(tmp_path.iterdir()), "nor one that stood there before"
    with pytest.raises(RunError, match="cannot write"), LexiconWriter(tmp_path / "none", KNOWN, 2):
        pass


def test_what_stands_in_the_files(tmp_path: Path) -> None:
    with LexiconWriter(tmp_path, [*KNOWN, "é" * 24, "x" * 49], 2) as writer:
        writer.number(np.asarray([7]), ["y" * 50])
    words = [word.encode() for word in (*KNOWN, "é" * 24, "x" * 49, "y" * 50)]
    assert (tmp_path / "lexicon.bin").read_bytes() == b"".join(words)
    starts = [sum(map(len, words[:n])) for n in range(len(words) + 1)]
    assert (tmp_path / "lexicon.idx").read_bytes() == b"ORDLEXI1" + struct.pack("<QQ9q", 7, 2, *starts)
    assert Lexicon.open(tmp_path).long == 2, "letters from the 49th byte on are not seen"


@pytest.mark.parametrize(
    ("at", "number"),
    [(0, 8), (0, 2), (1, 7), (1, 9), (2, 1), (4, 999), (-1, 99), (-1, 0)],
    ids=["more known", "fewer known", "sign behind", "sign far", "first", "falling", "longer", "shorter"],
)
def test_an_index_that_cannot_be_is_refused(tmp_path: Path, at: int, number: int) -> None:
    with LexiconWriter(tmp_path, [*KNOWN, "newts", "forty-two"], 2):
        pass
    numbers = list(struct.unpack("<10q", (tmp_path / "lexicon.idx").read_bytes()[8:]))
    numbers[at] = number
    (tmp_path / "lexicon.idx").write_bytes(b"ORDLEXI1" + struct.pack("<10q", *numbers))
    with pytest.raises(
        DataError, match=r"lexicon\.bin: \d+ bytes; wanted -?\d+ bytes, according to lexicon\.idx, of 7 words"
    ):
        Lexicon.open(tmp_path)


def test_what_is_no_index_is_told_as_that(tmp_path: Path) -> None:
    with LexiconWriter(tmp_path, KNOWN, 2):
        pass
    path = tmp_path / "lexicon.idx"
    whole = path.read_bytes()
    for wrong in (b"ORDLEXI2" + whole[8:], whole[:-3], whole[:23], whole[:24], whole[:31], b""):
        path.write_bytes(wrong)
        with pytest.raises(
            DataError, match=r"lexicon\.idx: is not a complete index; wanted b'ORDLEXI1' and 64-bit numbers"
        ):
            Lexicon.open(tmp_path)


def test_strangers_are_kept_and_taken_over(tmp_path: Path) -> None:
    def number(writer: LexiconWriter, *strangers: str) -> list[int]:
        return writer.number(np.arange(5, 5 + len(strangers)), strangers).tolist()

    writer = LexiconWriter(tmp_path, KNOWN, 2)
    assert writer.keep() == 0
    number(writer, "å", "run")
    assert writer.keep() == 2
    number(writer, "run", "lost")
    assert writer.keep() == 3
    path = tmp_path / "lexicon.kept"
    assert path.read_text(encoding="utf-8") == "å\nrun\nlost\n"
    again = LexiconWriter(tmp_path, KNOWN, 2)
    assert not again.restore(4)
    path.write_bytes(path.read_bytes() + b"hal")
    assert not again.restore(4), "half a line is none"
    assert again.restore(2)
    assert number(again, "new", "run", "å") == [7, 6, 5]
    assert again.keep() == 3
    assert path.read_text(encoding="utf-8") == "å\nrun\nnew\n", "what stood behind is written over"
    assert LexiconWriter(tmp_path / "other", KNOWN, 2).restore(0)


def test_what_is_kept_and_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is synced before it gets its name, and the folder behind both; where that fails nothing is left."""
    done: list[str] = []
    replace, sync = Path.replace, files.sync
    monkeypatch.setattr(Path, "replace", lambda old, new: done.append(f"named {new.name}") or replace(old, new))
    monkeypatch.setattr(files, "sync", lambda path: done.append(f"synced {path.name}") or sync(path))
    with LexiconWriter(tmp_path, KNOWN, 2):
        pass
    names = ("lexicon.bin", "lexicon.idx")
    steps = [step for name in names for step in (f"synced {name}.part", f"named {name}")]
    assert done == [*steps, f"synced {tmp_path.name}"]
    monkeypatch.setattr(os, "fsync", lambda file: done.append("kept"))
    LexiconWriter(tmp_path, KNOWN, 2).keep()
    assert done[-1] == "kept"

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(RunError, match="No space left"), LexiconWriter(tmp_path, KNOWN, 2):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["lexicon.kept"]


@pytest.mark.parametrize("name", ["lexicon.bin", "lexicon.idx"])
@pytest.mark.parametrize("keep", [-8, -3, 30, 5, 0, None])
def test_damaged_files_are_refused(tmp_path: Path, name: str, keep: int | None) -> None:
    with LexiconWriter(tmp_path, [*KNOWN, "newts", "forty-two"], 2):
        pass
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if keep is not None:
        (tmp_path / name).write_bytes(whole[:keep])
    with pytest.raises(DataError, match="copy or encode it again"):
        Lexicon.open(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with texts, and a tokenizer that knows few of their words."""
    train = [["The newts, <S> ran. ", "blåbær ran"], ["the e\u0301te\u0301 the " + "x" * 50]]
    corpus(tmp_path / "texts", train=train, validation=[["the ran up <UNK>"]])
    WordList(least=2, split="spaces").train(["the blåbær the blåbær the"]).save(tmp_path / "words")
    return tmp_path


def test_words_beyond_the_vocabulary_have_numbers_of_their_own(place: Path) -> None:
    found = encoded(place)
    assert spelled(found.train) == [
        ["The", "newts,", "<S>", "ran."],
        ["blåbær", "ran"],
        ["the", "e\u0301te\u0301", "the", "x" * 50],
    ]
    assert found.train.tokens.tolist() == [5, 6, 7, 8, 4, 9, 3, 10, 3, 11]
    assert found.validation is not None
    assert found.validation.tokens.tolist() == [3, 9, 12, 13], "a word that reads <UNK> is none"
    assert found.train.tokens.dtype == np.int32
    assert found.train.counts.tolist() == [0, 0, 7, 2, 1]
    assert (found.facts["words"], found.facts["long"], found.facts["kind"]) == (14, 1, "wordlevel")
    assert found.facts["train"]["unknown"] == 0.7
    (found.folder / "train.counts.npy").unlink()
    for again in (Store.open(found.folder / "train", vocabulary=5), Store.open(found.folder / "train")):
        assert again.counts.tolist() == found.train.counts.tolist()
    assert found.tokenizer.counts == [0, 0, 0, 3, 2]


def test_a_lexicon_of_other_words_is_noticed(place: Path) -> None:
    found = encoded(place)
    (found.folder / "train.counts.npy").unlink()
    with LexiconWriter(found.folder, KNOWN, 2):
        pass
    with pytest.raises(DataError, match="holds the id 11; wanted ids below 5"):
        _ = Store.open(found.folder / "train").counts


def test_stores_of_pieces_have_no_lexicon(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "train", 9) as writer:
        writer.add([[1, 2]])
    assert Store.open(tmp_path / "train").lexicon is None


def test_blocks_and_tables_begun_anew_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = made_up(60)
    corpus(tmp_path / "texts", train=documents, validation=made_up(3))
    WordList(least=20).train("".join(d) for d in documents).save(tmp_path / "words")
    whole = encoded(tmp_path, "whole", processes=1)
    monkeypatch.setattr(encode, "BLOCK", 900)
    monkeypatch.setattr("ordsmed.data.words.FULL", 50)
    small = encoded(tmp_path, "small", processes=1)
    for name in FILES:
        assert (small.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    assert all(small.facts[name] == whole.facts[name] for name in ("words", "long", "train", "validation"))


@pytest.mark.long
def test_processes_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = made_up(80)
    corpus(tmp_path / "texts", train=documents, validation=made_up(4))
    WordList(least=20).train("".join(d) for d in documents).save(tmp_path / "words")
    monkeypatch.setattr(encode, "BLOCK", 900)
    one, two = (encoded(tmp_path, f"of-{processes}", processes=processes) for processes in (1, 2))
    for name in FILES:
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
    assert one.train.lexicon is not None
    assert len(one.train.lexicon) > one.tokenizer.vocabulary + 100
    tokenizer = one.tokenizer
    assert spelled(one.train) == [tokenizer.words(sentence) for d in documents for sentence in d]
    strangers = [w for s in spelled(one.train) for w in s if tokenizer.pipeline.token_to_id(w) is None]
    order = [one.train.lexicon.word(n).decode() for n in range(tokenizer.vocabulary, len(one.train.lexicon))]
    assert order[: len(set(strangers))] == list(Counter(strangers)), "in the order of their first appearance"


@pytest.mark.long
@pytest.mark.parametrize("how", [{}, {"split": "spaces"}, {"lowercase": True}])
def test_through_the_lexicon_words_are_what_they_were(how: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.data.words.FULL", 30)  # the table is cleared now and then
    known = WordList(least=1, **how).train(["the newts ran. a é don't İ Ωσς <S>"])  # type: ignore[arg-type]
    table, writer = WholeWords(known), LexiconWriter(Path("."), [known.piece(n) for n in range(known.vocabulary)], 2)
    white = (" ", "\n", "\t", "\x1c", "\x85", "\u00a0", "\u2028", "\u200b", "\u3000")
    odd = ("\u0301", "\u200d", "\ufe0f", "\u0600", "\U0001f469", "न्", "ﷺ", "\u202e", "\U000e0041", "\0", "<S>", "<UNK>")
    text = st.lists(st.one_of(st.sampled_from([*white, *odd, *"aéİΣς你.,'-_"]), st.text(max_size=4)), max_size=14)

    @given(st.lists(text.map("".join), min_size=1, max_size=5))
    def check(texts: list[str]) -> None:
        ids, lengths = table.encode(texts)
        ids = writer.number(*table.strangers(ids))
        names = [*writer.known, *writer.strangers]
        assert [[names[n] for n in some] for some in np.split(ids, np.cumsum(lengths)[:-1])] == [
            known.words(t) for t in texts
        ]
        folded = np.where(ids < known.vocabulary, ids, 2)
        assert folded.tolist() == [n for some in known.encode_batch(texts) for n in some]
        assert not set(ids.tolist()) & known.special, "no word of a text is a sign"

    check()


def test_real_text_and_its_vocabulary(shared_data: Path, tmp_path: Path) -> None:
    lines = (shared_data / "elmo/train/data.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    corpus(tmp_path / "texts", train=[lines])
    (tmp_path / "words").mkdir()
    Tokenizer.load(shared_data / "elmo/train/vocab.txt").save(tmp_path / "words")
    found = encoded(tmp_path)
    assert spelled(found.train) == [line.split() for line in lines]
    assert found.train.counts.sum() == sum(len(line.split()) for line in lines)
