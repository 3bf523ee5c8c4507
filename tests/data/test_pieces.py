"""Pieces and their signs: which characters each piece covers, and what a tokenizer puts around one text, or two."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.data import pieces as module
from ordsmed.data.pieces import TextFrame, TextReader
from ordsmed.text.tokenizer import Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "new", "##ts", "swim", "a"]
CLS, SEP, NEW, TS, SWIM = 2, 3, 5, 6, 7


def tokenizer(folder: Path, *words: str) -> Tokenizer:
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return Tokenizer.load(folder / "vocab.txt")


def test_pieces_and_the_characters_they_cover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tokenizer(tmp_path, *WORDS)
    for at_once in (1, 2, 1000):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
        found = TextReader(own, types=True).pieces(["newts swim", "", "swim newts"])
        assert found.starts.tolist() == [0, 3, 3, 6]
        assert found.ids.tolist() == [NEW, TS, SWIM, SWIM, NEW, TS]
        assert found.left.tolist() == [0, 3, 6, 0, 5, 8]
        assert found.right.tolist() == [3, 5, 10, 4, 8, 10]
        assert [found.of(text) for text in range(3)] == [slice(0, 3), slice(3, 3), slice(3, 6)]
    nothing = TextReader(own, types=True).pieces([])
    assert (nothing.starts.tolist(), len(nothing.ids), nothing.ids.dtype) == ([0], 0, np.int64)
    assert CLS not in TextReader(own, types=True).pieces(["[CLS] a"]).ids


def test_signs_around_one_text_and_between_two(tmp_path: Path) -> None:
    frame = TextFrame.of(tokenizer(tmp_path, *WORDS), types=True)
    assert (frame.before, frame.after, frame.between, frame.types) == ((CLS,), (SEP,), (SEP,), True)
    assert (frame.joint(two=False), frame.joint(two=True)) == (2, 3)
    roberta = TextFrame((0,), (2,), (2, 2), types=False)
    assert (roberta.joint(two=False), roberta.joint(two=True)) == (2, 4)
    assert TextReader(tokenizer(tmp_path, *WORDS), types=False).frame.types is False


def test_a_tokenizer_that_makes_nothing_is_refused() -> None:
    """Signs and no text."""
    made = SimpleNamespace(ids=[2, 3], sequence_ids=[None, None])
    own: Any = SimpleNamespace(whole_words=False, pipeline=SimpleNamespace(encode=lambda *texts: made))
    with pytest.raises(RecipeError, match="tokenizer: encodes the letter a as no token"):
        TextFrame.of(own, types=False)


def test_whole_words_are_listed_once_by_their_letters(tmp_path: Path) -> None:
    reader = TextReader(tokenizer(tmp_path, "<S>", "</S>", "<UNK>", "newts", "swim"), types=True)
    found = reader.pieces(["newts swim ø", "swim newts"])
    assert found.ids.tolist() == [2, 3, 4, 3, 2]
    assert found.left.tolist() == [0, 6, 11, 0, 5]
    listed = reader.listed()
    assert listed is not None
    letters, starts = listed
    assert letters.tobytes() == "newtsswimø".encode()
    assert starts.tolist() == [0, 0, 0, 5, 9, 11]
    frame = reader.frame
    assert (frame.before, frame.after, frame.between, frame.types) == ((0,), (1,), (1,), False)
    assert TextReader(tokenizer(tmp_path, *WORDS), types=True).listed() is None
