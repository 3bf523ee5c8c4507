"""Unknown tokens: how they are counted, reported and refused, and tokenizers without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ordsmed.base.errors import DataError
from ordsmed.data.pieces import TextReader
from ordsmed.data.unknown import UnknownTokens, check_share, is_limited
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, words

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "newt", "##s"]


@pytest.fixture
def pieces(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return Tokenizer.load(tmp_path / "vocab.txt")


def test_signs_around_texts_are_no_tokens_of_them(pieces: Tokenizer) -> None:
    unknown = UnknownTokens()
    for ids in ([2, 5, 1, 3], [6, 7, 0, 0]):
        unknown.count(np.asarray(ids), pieces)
    assert (unknown.tokens, unknown.unknown, unknown.share) == (4, 1, 0.25)
    assert UnknownTokens().share == 0


def test_a_little_is_told_and_much_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def said(unknown: int, most: float = 0.1) -> str:
        UnknownTokens(1_000, unknown).check("texts", most)
        return " ".join(capsys.readouterr().err.split())

    assert said(10) == ""
    assert said(11).startswith("texts: 1.1% of its tokens are unknown to the tokenizer; a tokenizer that was trained")
    assert said(100).startswith("texts: 10.0% of its tokens")
    assert said(300, most=0.3).startswith("texts: 30.0%")
    wanted = r"texts: 28\.1% of its tokens .*; wanted at most 10%; use a tokenizer .*; `max_unknown=0\.29` allows it"
    with pytest.raises(DataError, match=wanted):
        said(281)
    with pytest.raises(DataError, match=r"`--max-unknown 1` allows it"):
        UnknownTokens(10, 10).check("texts", 0.1, "--max-unknown ")


def test_the_most_frequent_are_shown(pieces: Tokenizer) -> None:
    reader = TextReader(pieces, types=True)
    reader.pieces(["the newts ran", "", "å newt", "the å å"])
    assert (reader.unknown.unknown, reader.unknown.tokens) == (4, 9)
    assert reader.unknown.texts == {"å": 3, "ran": 1}
    reader.pieces(["ran the"])
    assert (reader.unknown.unknown, reader.unknown.texts["ran"]) == (5, 2)
    with pytest.raises(DataError, match=r"45\.5% of its tokens are unknown to the tokenizer \(å, ran\)"):
        reader.unknown.check("dev.tsv", 0.1)


def test_bytes_leave_nothing_unknown_and_of_whole_words_strangers_are_expected() -> None:
    for tokenizer in (bytebpe.ByteBpe(size=257).train(["a"]), words.WordList(least=1).train(["a b"])):
        assert not is_limited(tokenizer)
        reader = TextReader(tokenizer, types=False)
        reader.pieces(["å newt"])
        assert reader.unknown == UnknownTokens()


def test_a_share_is_one() -> None:
    for right in (0, 0.5, 1):
        check_share("max_unknown", right)
    for wrong in (-0.1, 10, float("nan")):
        with pytest.raises(
            ValueError, match=f"max_unknown: found {wrong:g}; wanted a share of all tokens, from 0 to 1"
        ):
            check_share("max_unknown", wrong)
