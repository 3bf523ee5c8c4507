"""Presplit: every document comes back as it was, odd white space and all; a corpus becomes the same store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.makers import synthetic_text
from ordsmed.base import run
from ordsmed.base.errors import DataError, OrdsmedError, RunError
from ordsmed.corpus import presplit as deed
from ordsmed.corpus.corpora import jsonl
from ordsmed.corpus.folder import PartWriter, documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.corpus.presplit import presplit
from ordsmed.data.encode import Encoding
from ordsmed.text.document import Document
from ordsmed.text.sentences import TAKEN, record, rules
from ordsmed.text.sentences import presplit as restored

TEXTS = st.lists(
    st.sampled_from(["word", " ", "  ", "\n", "\n\n", ".", "。", "”", "\t", "\u00a0", "\u2028", "東", "é"])
).map("".join)
KEYS = st.sampled_from([*sorted(TAKEN), "url", "within", "untold"])
METAS = st.dictionaries(KEYS, st.one_of(st.integers(), st.text(max_size=3), st.dictionaries(KEYS, st.integers())))


@st.composite
def any_document(draw: st.DrawFn) -> Document:
    text, meta = draw(TEXTS), draw(METAS)
    last = len(text.rstrip())
    if not last or draw(st.booleans()):
        return Document(text, draw(st.sampled_from([[], [last]])) if last else [], "x", meta)
    return Document(text, sorted({*draw(st.sets(st.integers(1, last))), last}), "x", meta)


@given(any_document())
@example(Document("一。 二。三.四", [2, 5, 8], "x", {"text": "own", "meta": {"id": 1}, "between": {"\n": 3}}))
def test_any_document_comes_back(document: Document) -> None:
    read = json.loads(json.dumps(record(document)))
    text, name = read.pop("text"), read.pop("id")
    lines = text.split("\n")
    text, ends = restored(text, read)
    assert Document(text, ends, name, read) == document
    assert len(lines) == max(len(document.ends), 1)


def test_what_is_written() -> None:
    text = "One. Two.\n三。四。\nFive"
    document = Document(text, rules(text), "a:1", {"url": "u", "id": 7})
    assert record(document) == {
        "text": "One.\nTwo.\n三。\n四。\nFive",
        "id": "a:1",
        "url": "u",
        "meta": {"id": 7},
        "between": {"\n": [2, 4]},
    }
    plain = Document("One. Two. 三。四。", [4, 9, 12, 14])
    assert record(plain) == {"text": "One.\nTwo.\n三。\n四。", "id": ""}


def test_a_foreign_line_is_joined_by_spaces_but_not_behind_chinese_stops() -> None:
    meta: dict[str, Any] = {"between": "a word", "meta": {"lang": "zh"}}
    text, ends = restored(" One. \n\nTwo.\n一。\n「二！」\n三", meta)
    assert (text, ends) == ("One. Two. 一。「二！」三", [4, 9, 12, 16, 17])
    assert meta == {"between": "a word", "meta": {"lang": "zh"}}
    assert restored(" \n ", {}) == ("", [])


def test_a_key_that_cannot_be_ours_is_refused() -> None:
    with pytest.raises(DataError, match=r"presplit text: `between` holds {'a': 3}"):
        restored("One.", {"between": {"a": 3}})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus with paragraphs, Chinese, and metadata."""
    texts = [t.replace(". ", ".\n", 1) + " 你好。「再见！」三" for t in synthetic_text(40).strip().split("\n\n")]
    found = [Document(text, rules(text), f"a:{n}", {"id": n, "url": "u"}) for n, text in enumerate(texts)]
    return write(tmp_path / "corpus", {"train": found[:32], "validation": found[32:]})


def write(folder: Path, splits: dict[str, list[Document]]) -> Path:
    """A finished corpus folder."""
    for split, found in splits.items():
        with PartWriter(folder / split, 2000) as writer:
            for document in found:
                writer.write(msgspec.json.encode(document) + b"\n", 1, 1, 1)
    run.Run(folder).set(verb="corpus", state="done", fingerprint=folder.name)
    return folder


def encoded(folder: Path, corpus: Path, kind: str) -> bytes:
    tokenizer = folder / f"{kind}.toml"
    tokenizer.write_text(
        f'out = "{folder}/tokenizer-{kind}"\ncorpus = "{folder}/corpus"\n[tokenizer]\nkind = "{kind}"\nsize = 300\n'
    )
    recipe = folder / f"encode-{kind}-{corpus.name}.toml"
    recipe.write_text(f'out = "{folder}/{recipe.stem}"\ncorpus = "{corpus}"\ntokenizer = "{tokenizer}"\n')
    store = run.obtain(Encoding, str(recipe))
    return (store / "train.bin").read_bytes() + (store / "train.idx").read_bytes()


def test_a_presplit_corpus_gives_the_same_documents_and_the_same_store(corpus: Path, tmp_path: Path) -> None:
    told = presplit(str(corpus), str(tmp_path / "lines"))
    assert told[:2] == [
        f"{tmp_path}/lines/train.jsonl: 32 documents",
        f"{tmp_path}/lines/validation.jsonl: 8 documents",
    ]
    read = list(jsonl.Jsonl(str(tmp_path / "lines" / "train.jsonl"), id_key="id").documents())
    for document in read:
        document.text, document.ends = restored(document.text, document.meta)
    assert read == [d for p in parts(corpus, "train") for d in documents(p)]
    again = write(tmp_path / "again", {"train": read})
    for kind in ("wordpiece", "bytebpe"):
        assert encoded(tmp_path, corpus, kind) == encoded(tmp_path, again, kind)


def test_the_corpus_deed_reads_it(corpus: Path, tmp_path: Path) -> None:
    presplit(str(corpus), str(tmp_path / "lines"))
    recipe = tmp_path / "again.toml"
    recipe.write_text(
        f'out = "{tmp_path}/again"\nsentences = "presplit"\nvalidation = 0\n'
        f'[source]\nkind = "jsonl"\npath = "{tmp_path}/lines/train.jsonl"\nid_key = "id"\n'
    )
    again = run.obtain(Corpus, str(recipe))
    read = [[d for p in parts(folder, "train") for d in documents(p)] for folder in (corpus, again)]
    assert read[0] == read[1]


def test_what_stands_is_replaced_only_if_asked_and_ours(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    presplit(str(corpus), str(out))
    first = (out / "train.jsonl").read_bytes()
    with pytest.raises(OrdsmedError, match="add --anew"):
        presplit(str(corpus), str(out))
    presplit(str(corpus), str(out), anew=True)
    assert (out / "train.jsonl").read_bytes() == first
    (out / "mine.txt").write_text("dear")
    with pytest.raises(OrdsmedError, match=r"contains mine.txt"):
        presplit(str(corpus), str(out), anew=True)
    assert sorted(p.name for p in out.iterdir()) == ["mine.txt", "train.jsonl", "validation.jsonl"]


def test_where_it_cannot_be_written_nothing_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (corpus, tmp_path):
        with pytest.raises(OrdsmedError, match="is or contains the corpus"):
            presplit(str(corpus), str(wrong), anew=True)
    with pytest.raises(OrdsmedError, match=r"absent: no such folder"):
        presplit(str(tmp_path / "absent"), str(tmp_path / "out"))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(deed.files, "sync", full)
    with pytest.raises(RunError, match="cannot write: No space left on device"):
        presplit(str(corpus), str(tmp_path / "out"))
    assert not list(tmp_path.glob("*out*"))


def test_what_is_told_and_pushed_to_the_disk(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    made = {"train": [Document("One.", [4])], "test": [Document("Two.", [4]), Document("Three.", [6])]}
    folder = write(tmp_path / "corpus", made)
    before = len(synced)
    assert presplit(str(folder), str(tmp_path / "out")) == [
        f"{tmp_path}/out/train.jsonl: 1 document",
        f"{tmp_path}/out/test.jsonl: 2 documents",
        "no documents in the corpus's validation",
        "to read it: source.kind=jsonl source.id_key=id sentences=presplit",
    ]
    pushed = [Path(path).name for what, path in synced[before:] if what == "sync"]
    assert {"train.jsonl", "test.jsonl"} <= set(pushed)
    assert len((tmp_path / "out" / "test.jsonl").read_text().splitlines()) == 2
    made = {split: [Document("One.", [4])] for split in ("train", "validation", "test")}
    told = presplit(str(write(tmp_path / "whole", made)), str(tmp_path / "other"))
    assert len(told) == 4
