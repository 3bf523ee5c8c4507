"""BM25: the scores of Lucene and of `bm25s`, its words in any script, kept in files; ranks fused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ordsmed.text import bm25
from ordsmed.text.bm25 import Bm25, blended, fused, top, words_of

PASSAGES = ["Newts swim in the pond.", "The heron eats newts, newts and NEWTS!", "", "A pond in the park", "the " * 3]


def test_scores_by_the_formula() -> None:
    """Two of five passages have `newts`: ln(1 + 3.5 / 2.5), thrice in the second, of 7 words of 4 a passage."""
    scores = Bm25.of(PASSAGES).scores("newts")
    worth, lengths = math.log(1 + 3.5 / 2.5), (5, 7)
    norms = [1.2 * (0.25 + 0.75 * length / 4) for length in lengths]
    assert scores.tolist()[:2] == pytest.approx([worth / (1 + norms[0]), worth * 3 / (3 + norms[1])])
    assert scores.tolist()[2:] == [0, 0, 0]
    assert Bm25.of(PASSAGES).scores("newts newts") == pytest.approx(2 * scores)


@pytest.mark.parametrize("k1", [1.2, 1.5])
def test_scores_are_those_of_bm25s(k1: float, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = pytest.importorskip("bm25s")
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in random.zipf(1.5, 40) if n < 500) for _ in range(200)]
    theirs = peer.BM25(method="lucene", k1=k1, b=0.6)
    theirs.index([words_of(text) for text in texts], show_progress=False)
    monkeypatch.setattr(bm25, "BLOCK", 500)  # so that there are several
    ranked = Bm25.of(texts, k1, 0.6)
    for question in ("w1 w2 w3", "w7 w7 w450", "w11 unseen"):
        wanted = theirs.get_scores([word for word in words_of(question) if word != "unseen"])
        np.testing.assert_allclose(ranked.scores(question), wanted, rtol=1e-5)


def test_searches() -> None:
    ranked = Bm25.of(PASSAGES)
    assert ranked.search("newts", 5)[0].tolist() == [1, 0]
    assert ranked.search("the pond", 1)[0].tolist() == [0]
    assert ranked.search("unseen", 5)[0].tolist() == []
    assert Bm25.of([]).search("newts", 5)[0].tolist() == []


def test_words_of_any_script() -> None:
    assert words_of("Don't STOP_me: 3.5 Äpfel") == ["don", "t", "stop", "me", "3", "5", "äpfel"]
    assert words_of("हिन्दी में") == ["हिन्दी", "में"]
    assert words_of("日本語 text") == ["日", "本", "語", "text"]
    assert words_of("ชีวิต") == ["ชี", "วิ", "ต"]


@pytest.mark.parametrize("texts", [PASSAGES, [""]])
def test_is_kept_in_a_folder(texts: list[str], tmp_path: Path) -> None:
    Bm25.of(texts).save(tmp_path / "bm25")
    kept = Bm25.load(tmp_path / "bm25")
    assert kept.scores("newts in the pond").tolist() == Bm25.of(texts).scores("newts in the pond").tolist()


def test_the_highest_the_first_of_equal_ones() -> None:
    scores = np.array([1.0, 3, 2, 3, 2, 0])
    assert [top(scores, n).tolist() for n in (0, 1, 3, 9)] == [[], [1], [1, 3, 2], [1, 3, 2, 4, 0, 5]]


def test_fused_by_reciprocal_ranks() -> None:
    numbers, scores = fused([[4, 7, 9], [7, 5]])
    assert numbers.tolist() == [7, 4, 5, 9]
    assert scores.tolist() == pytest.approx([1 / 61 + 1 / 62, 1 / 61, 1 / 62, 1 / 63])
    assert fused([[1, 2], [2, 1]])[0].tolist() == [1, 2]
    assert fused([[3], []], k=0)[1].tolist() == [1]


def test_blended_by_weighted_scores() -> None:
    """A cosine from the last one (or the hundredth) to the first, BM25's as its share of the first."""
    dense, words = (np.array([4, 7, 9]), np.array([0.9, 0.8, 0.5])), (np.array([7, 5]), np.array([8.0, 2.0], "f4"))
    numbers, scores = blended(dense, words, 0.4)
    assert numbers.tolist() == [7, 4, 5, 9]
    assert scores.tolist() == pytest.approx([0.4 * 0.75 + 0.6, 0.4, 0.6 * 0.25, 0])
    assert blended(dense, words, 0)[0].tolist() == [7, 5, 4, 9]
    assert blended(dense, words, 1)[0].tolist() == [4, 7, 9, 5]
    none = np.zeros(0, int), np.zeros(0, "f4")
    assert blended(dense, none, 0.5)[0].tolist() == [4, 7, 9]
    assert blended(none, none, 0.5)[0].tolist() == []
    assert blended(([3], np.array([0.5])), none, 0.5)[1].tolist() == [0]
    many = np.arange(150), np.linspace(1, 0.1, 150)
    shares = blended(many, none, 1)[1]
    assert (shares[98] > 0, shares[99:].max()) == (True, 0)
