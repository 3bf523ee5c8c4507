"""A corpus folder's files are what was written: damage and loss are named by every verb, before a document is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.makers import invented_text
from ordsmed.base.errors import DataError
from ordsmed.base.run import Run, obtain
from ordsmed.corpus.folder import SPLITS, check, documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.corpus.presplit import presplit
from ordsmed.corpus.shards import shards
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import Training
from ordsmed.show.stats import stats

RECIPE = 'out = "{0}/c"\nshard = 2000\nvalidation = 0.2\n[source]\nkind = "text"\npath = "{0}/a.txt"\n'
TOKENIZER = '{0}[tokenizer]\nkind = "wordpiece"\nsize = 200\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of several parts."""
    (tmp_path / "a.txt").write_text(invented_text(60))
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
    "tokenizer": lambda place: obtain(Training, recipe(place, "t", TOKENIZER.format(f'corpus = "{place}/c"\n'))),
    "encode": lambda place: obtain(
        Encoding, recipe(place, "e", f'corpus = "{place}/c"\ntokenizer = "{place}/known"\n')
    ),
    "corpus": lambda place: obtain(Corpus, recipe(place, "d", f'[source]\nkind = "corpus"\nname = "{place}/c"\n')),
    "against": lambda place: obtain(
        Corpus, recipe(place, "d", f'against = ["{place}/c"]\n[source]\nkind = "text"\npath = "{place}/a.txt"\n')
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_turned_bit_and_a_lost_part_are_named(folder: Path, tmp_path: Path, verb: str) -> None:
    known = recipe(tmp_path, "known", TOKENIZER.format(f'corpus = "{folder}"\n'))
    obtain(Training, known)
    path = parts(folder, "train")[1]
    whole = path.read_bytes()
    damage(path)
    assert list(map(len, whole.splitlines())) == list(map(len, path.read_bytes().splitlines()))
    with pytest.raises(DataError, match=r"train/00001.jsonl: is damaged: checksum \w{8}; wanted \w{8}, of when it was"):
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
