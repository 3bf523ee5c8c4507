"""The table of words: the ids of the pipeline itself, whatever is in the table, and only pipelines that can be cut."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest

from ordsmed.data import words as module
from ordsmed.data.words import WholeWords, Words, splitter_of
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, wordpiece
from ordsmed.text.tokenizers import words as whole_words

TEXTS = [
    "The newts ran, and the newts won: 42 of them!",
    "",
    " two  blanks ",
    "\n",
    " ",
    "\nline\n\n ends \n",
    "a\tb  c",
    "don't we'll",
    "\n one",
    "x" * 120,
    "é 你好 \x85 a",
    "[MASK] <|endoftext|> <S>",
    "ran the",
    "tab\there",
    "  \n",
]


@functools.cache
def pipelines() -> dict[str, Tokenizer]:
    return {
        "pieces": wordpiece.WordPiece(size=200).train(TEXTS * 3),
        "bytes": bytebpe.ByteBpe(size=300).train(TEXTS * 3),
        "words": whole_words.WordList(least=2, split="spaces").train(TEXTS * 3),
    }


@pytest.mark.parametrize("kind", ["pieces", "bytes", "words"])
@pytest.mark.parametrize("limits", [pytest.param({}, marks=pytest.mark.long), {"FULL": 2}, {"LONG": 12}])
def test_ids_are_those_of_the_pipeline(kind: str, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    tokenizer = pipelines()[kind]
    table = Words(tokenizer, np.dtype("<u2"))
    assert table.cut is not None
    draw = np.random.default_rng(1)
    many = [" ".join(f"w{n}" for n in draw.integers(0, 100_000, 60)) for _ in range(1000)] if not limits else []
    for texts in (TEXTS, TEXTS[::-1], many, [], ["the newts"], [""], TEXTS[:3]):
        ids, lengths = table.encode(texts)
        wanted = tokenizer.encode_batch(texts)
        assert lengths.tolist() == [len(found) for found in wanted]
        assert ids.tolist() == [n for found in wanted for n in found.tolist()]
        assert ids.dtype == np.uint16
    if limits:
        assert len(table.table) < 30, "what was in the table is let go"
    else:
        assert len(table.table) > 40_000, "what was seen is kept"


def test_few_long_words_fill_the_table_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 1000)
    tokenizer = whole_words.WordList(least=2, split="spaces").train(["the the"])
    table = Words(tokenizer, np.dtype("<u2"))
    for n in range(30):
        table.encode([f"{n:0100d}"])
        assert table.characters <= 1100
    assert len(table.table) == 30 % 11


def test_words_beyond_the_vocabulary_are_listed_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = whole_words.WordList(least=2, split="spaces").train(["the the newts newts"])
    table = WholeWords(tokenizer)
    for _ in range(2):
        ids, names = table.strangers(table.encode(["b the a b", "<S> c newts a"])[0])
        assert names == ["b", "a", "<S>", "c"]
        assert ids.tolist() == [5, 4, 6, 5, 7, 8, 3, 6]
    ids, names = table.strangers(table.encode(["c d", "a"])[0])
    assert (ids.tolist(), names) == ([5, 6, 7], ["c", "d", "a"])
    monkeypatch.setattr(module, "FULL", 3)
    ids, names = table.strangers(table.encode(["the new a"])[0])
    assert (ids.tolist(), names) == ([4, 5, 6], ["new", "a"])
    ids, names = Words(tokenizer, np.dtype("<i4")).strangers(np.asarray([2, 3]))
    assert (ids.tolist(), names) == ([2, 3], [])


def test_texts_are_cut_before_their_words() -> None:
    before = splitter_of(bytebpe.ByteBpe(size=258).train(["ab"]))
    assert before is not None
    assert before("The newts ran") == ["The", " newts", " ran"]
    assert before("\nThe newts") == ["\nThe", " newts"]
    assert before(" The  newts") == [" The", " ", " newts"]
    assert before("a\n b \n") == ["a", "\n", " b", " \n"]
    assert before("a\tb c") == ["a\tb c"], "a tab joins what stands on both its sides"
    assert before(" \u00a0 b c") == [" \u00a0 b c"]
    at = splitter_of(wordpiece.WordPiece(size=60).train(["ab"]))
    assert at is not None
    assert at("a  b\nc\td") == ["a", "", "b", "c\td"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("pieces", {"normalizer": {"type": "Lowercase"}}),
        ("pieces", {"normalizer": None}),
        ("pieces", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("pieces", {"pre_tokenizer": None}),
        ("bytes", {"normalizer": {"type": "NFC"}}),
        ("bytes", {"pre_tokenizer": {"add_prefix_space": True}}),
        ("bytes", {"pre_tokenizer": {"use_regex": False}}),
        ("bytes", {"model": {"dropout": 0.1}}),
        ("words", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("bytes", {"added_tokens": {"special": False}}),
    ],
)
def test_only_pipelines_that_see_words_apart_are_cut(kind: str, change: dict[str, Any]) -> None:
    from tokenizers import Tokenizer as Pipeline

    tokenizer = pipelines()[kind]
    assert splitter_of(tokenizer) is not None
    about = json.loads(tokenizer.pipeline.to_str())
    for part, new in change.items():
        if part == "added_tokens":
            about[part][0] |= new
        else:
            about[part] = new if new is None or "type" in new else about[part] | new
    assert splitter_of(Tokenizer(Pipeline.from_str(json.dumps(about)))) is None
