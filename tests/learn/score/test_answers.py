"""Answers from scores: held against all pairs of places tried one by one, and against lists made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.base.errors import RunError
from ordsmed.data.question_windows import Limits, windows
from ordsmed.learn.score import answers
from ordsmed.learn.score.answers import (
    CERTAIN,
    SPARE,
    Answered,
    Candidates,
    Decoding,
    Passage,
    beams,
    independent,
    joined,
    pool,
    write,
)


def passage(context: str, name: str = "q") -> Passage:
    """A context whose tokens are its words."""
    words = context.split(" ")
    right = np.cumsum([len(word) + 1 for word in words]) - 1
    return Passage(name, context, right - [len(word) for word in words], right)


def listed(found: Candidates, row: int = 0) -> list[tuple[float, int, int]]:
    columns = (found.start_score[row] + found.end_score[row], found.start[row], found.end[row])
    every = zip(*(column.tolist() for column in columns), strict=True)
    return [one for one in every if one[0] > -np.inf]


def by_hand(start: Any, end: Any, may_start: Any, may_end: Any, longest: int) -> list[tuple[float, int, int]]:
    """All pairs, the best first, of equal ones the first start, then the first end. `end` may depend on the start."""
    end = np.broadcast_to(end, (len(start), len(start)))
    pairs = [
        (float(start[s]) + float(end[s, e]), s, e)
        for s in np.flatnonzero(may_start).tolist()
        for e in np.flatnonzero(may_end).tolist()
        if s <= e < s + longest
    ]
    return sorted(pairs, key=lambda pair: -pair[0])


@pytest.mark.parametrize("values", [3, 1000], ids=["many ties", "few ties"])
@pytest.mark.parametrize("longest", [1, 4, 50])
def test_all_pairs(values: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BLOCK", 7)
    chance = np.random.default_rng(longest)
    start, end = chance.integers(0, values, (2, 40, 12)).astype(np.float32)
    may_start, may_end = chance.random((2, 40, 12)) < 0.7
    decoding = Decoding(n_best=3, longest=longest)
    found = independent(start, end, may_start, may_end, decoding)
    for row in range(40):
        wanted = by_hand(start[row], end[row], may_start[row], may_end[row], longest)
        assert listed(found, row) == wanted[: 3 * SPARE]


@pytest.mark.parametrize("values", [3, 1000], ids=["many ties", "few ties"])
def test_pairs_of_the_best_starts_and_ends(values: int) -> None:
    chance = np.random.default_rng(5)
    start, end = chance.integers(0, values, (2, 40, 12)).astype(np.float32)
    may_start, may_end = chance.random((2, 40, 12)) < 0.7
    found = independent(start, end, may_start, may_end, Decoding(n_best=3, longest=5, search="tops"))
    for row in range(40):
        starts, ends = (sorted(range(12), key=lambda place: -s[place])[:3] for s in (start[row], end[row]))
        pairs = [
            (float(start[row, s] + end[row, e]), s, e)
            for s in starts
            for e in ends
            if may_start[row, s] and may_end[row, e] and s <= e < s + 5
        ]
        assert listed(found, row) == sorted(pairs, key=lambda pair: -pair[0])


@pytest.mark.parametrize("longest", [3, 12])
def test_a_beam_as_wide_as_the_window_tries_all_pairs(longest: int) -> None:
    chance = np.random.default_rng(7)
    start, end = chance.standard_normal((30, 12)), chance.standard_normal((30, 12, 12))
    may_start, may_end = chance.random((2, 30, 12)) < 0.7
    starts = np.argsort(-start)
    of_start = np.take_along_axis(end, starts[:, :, None], 1)  # what the head says of ends, given each start
    ends = np.argsort(-of_start)
    scored = (np.take_along_axis(start, starts, 1), starts, np.take_along_axis(of_start, ends, 2), ends)
    found = beams(*scored, may_start, may_end, Decoding(n_best=30, longest=longest))
    for row in range(30):
        assert listed(found, row) == by_hand(start[row], end[row], may_start[row], may_end[row], longest)


def test_a_narrow_beam_has_only_its_own_pairs() -> None:
    every = np.ones((1, 9), bool)
    ends = np.array([[[6, 2], [2, 8]]])
    found = beams(
        np.array([[-1.0, -2.0]]),
        np.array([[4, 1]]),
        np.array([[[-0.5, -0.1], [-0.2, -3.0]]]),
        ends,
        every,
        every,
        Decoding(),
    )
    assert listed(found) == [(-1.5, 4, 6), (-2.2, 1, 2), (-5.0, 1, 8)]  # 4 to 2 ends before it begins


def decoded(context: str, best: dict[tuple[int, int], float], null: float = 0.0, **settings: Any) -> Answered:
    """The answer where just these spans of words have scores, split evenly; the first place of the row is a sign."""
    (found,) = pool([passage(context)], np.array([0]), np.array([-1]), made(best, null), Decoding(**settings))
    return found


def made(best: dict[tuple[int, int], float], null: float = 0.0) -> Candidates:
    spans = sorted(best, key=lambda span: -best[span])
    places = np.array(spans).reshape(1, len(spans), 2) + 1
    half = np.array([[best[span] / 2 for span in spans]])
    return Candidates(places[..., 0], places[..., 1], half, half, np.array([null]), np.array([0.0]))


TEXT = "the cat saw the dog"


def test_texts_are_listed_once_where_they_score_best() -> None:
    found = decoded(TEXT, {(3, 3): 4.0, (0, 0): 3.0, (4, 4): 2.0, (0, 1): 1.0}, n_best=3)
    assert [(one.text, one.start, one.end, one.score) for one in found.n_best] == [
        ("the", 12, 15, 4.0),
        ("dog", 16, 19, 2.0),
        ("the cat", 0, 7, 1.0),
    ]
    weights = [math.exp(score) for score in (4, 2, 1)]
    assert [one.probability for one in found.n_best] == pytest.approx([w / sum(weights) for w in weights])
    assert (found.text, found.span, found.null_odds) == ("the", (12, 15), None)
    assert found.probability == found.n_best[0].probability


@pytest.mark.parametrize(
    ("null", "threshold", "text", "order"),
    [
        (2.5, 0.0, "cat", ["cat", "", "saw"]),
        (4.5, 0.0, "", ["", "cat", "saw"]),
        (4.5, 0.5, "cat", ["", "cat", "saw"]),  # just as much is not above
        (-9.0, 0.0, "cat", ["cat", "saw", "dog", ""]),  # it is listed even where it is none of the best
        (-9.0, -14.0, "", ["cat", "saw", "dog", ""]),
    ],
)
def test_no_answer_is_one_more_answer(null: float, threshold: float, text: str, order: list[str]) -> None:
    best = {(1, 1): 4.0, (2, 2): 2.0, (4, 4): 1.0}
    found = decoded(TEXT, best, null, n_best=3, refuse=True, threshold=threshold)
    assert ([one.text for one in found.n_best], found.text) == (order, text)
    assert found.null_odds == null - 4.0
    assert found.probability == found.n_best[order.index(text)].probability
    assert sum(one.probability for one in found.n_best) == pytest.approx(1)


def test_a_joint_head_tells_itself_how_likely_no_answer_is() -> None:
    passages, rows, shift = [passage(TEXT)], np.array([0, 0, -1]), np.array([-1, -1, -1])
    spans = [{(1, 1): -1.0, (2, 2): -3.0}, {(1, 1): -1.5, (4, 4): -2.0}, {(0, 0): 0.0, (0, 1): 0.0}]
    candidates = joined([made(best, null) for best, null in zip(spans, (3.0, -0.5, -9.0), strict=True)])
    (found,) = pool(passages, rows, shift, candidates, Decoding(refuse=True, n_best=3), joint=True)
    null = next(one for one in found.n_best if not one.text)
    assert (found.text, found.null_odds) == ("cat", -0.5)
    assert null.probability == pytest.approx(1 / (1 + math.exp(0.5)))
    weights = {"cat": math.exp(-1), "saw": math.exp(-3), "dog": math.exp(-2)}
    shares = {name: weight / sum(weights.values()) * (1 - null.probability) for name, weight in weights.items()}
    assert {one.text: one.probability for one in found.n_best if one.text} == pytest.approx(shares)
    (refused,) = pool(passages, rows, shift, candidates, Decoding(refuse=True, threshold=-0.6), joint=True)
    assert (refused.text, refused.span) == ("", (-1, -1))


@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize("joint", [False, True])
def test_nothing_to_answer_with(refuse: bool, joint: bool, tmp_path: Path) -> None:
    none = np.zeros((1, 6), bool)
    decoding = Decoding(refuse=refuse, threshold=100.0)
    scores = np.zeros((1, 6), np.float32)
    beam = (scores[:, :2], np.array([[1, 2]]), np.zeros((1, 2, 2)), np.ones((1, 2, 2), int))
    candidates = (
        beams(*beam, none, none, decoding, scores[:, 0]) if joint else independent(scores, scores, none, none, decoding)
    )
    empty = Passage("empty", "", np.array([], int), np.array([], int))
    asked = [empty, passage("unseen", "unseen")]  # of the second no window came
    found = pool(asked, np.array([0]), np.array([-1]), candidates, decoding, joint=joint)
    for one in found:
        assert (one.text, one.span, one.probability) == ("", (-1, -1), 1.0)
        assert one.null_odds == (CERTAIN if refuse else None)
        assert [entry.text for entry in one.n_best] == [""]
    write(tmp_path, found)
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"empty": "", "unseen": ""}


def test_pooling_from_overlapping_windows_is_a_search_of_the_whole_context() -> None:
    """Scores that follow from the token alone: windows, in any order, find what one long row would."""
    chance = np.random.default_rng(11)
    contexts = np.array([3, 60, 31, 0, 12])
    words = [[f"w{chance.integers(8)}" for _ in range(count)] for count in contexts.tolist()]
    passages = [passage(" ".join(one), str(number)) for number, one in enumerate(words)]
    passages[3] = Passage("3", " ", np.array([], int), np.array([], int))
    of_start, of_end = ([chance.standard_normal(count) for count in contexts.tolist()] for _ in range(2))
    cut = windows(np.full(5, 2), contexts, Limits(length=25, stride=7), 3)
    rows = chance.permutation(len(cut))
    begins = np.full(len(rows), 4)
    inside, most = cut.positions(rows, begins, 25)
    shift = cut.first[rows] - begins
    start, end = np.full((2, len(rows), 25), 50.0)  # what stands outside scores high and may not be
    for row, question in enumerate(cut.question[rows].tolist()):
        tokens = np.flatnonzero(inside[row]) + shift[row]
        start[row, inside[row]], end[row, inside[row]] = of_start[question][tokens], of_end[question][tokens]
    decoding = Decoding(n_best=6, longest=4)
    parts = [independent(*(a[i : i + 3] for a in (start, end, most, inside)), decoding) for i in range(0, len(rows), 3)]
    found = pool(passages, cut.question[rows], shift, joined(parts), decoding)
    for question, one in enumerate(found):
        every = np.ones(contexts[question], bool)
        best: dict[str, float] = {}
        for score, a, b in by_hand(of_start[question], of_end[question], every, every, 4):
            best.setdefault(" ".join(words[question][a : b + 1]), score)
        wanted = list(best.items())[:6] or [("", 0.0)]
        assert [(entry.text, entry.score) for entry in one.n_best] == wanted
        assert all(passages[question].context[e.start : e.end] == e.text for e in one.n_best if e.text)


def test_an_answer_is_stripped_and_found_again_in_the_context() -> None:
    context = "\u202b מה \u00a0שלום 👩‍🚀\n!"
    left = np.array([0, 1, 5, 5, 11, 11, 0, 14])  # a sign, two words, nothing, the emoji twice, nothing, the end
    right = np.array([1, 5, 11, 5, 14, 14, 0, 16])
    asked = Passage("q", context, left, right)
    spans = {(2, 2): 9.0, (4, 6): 8.0, (6, 7): 7.5, (1, 4): 7.0, (5, 7): 6.0, (0, 3): 5.5, (1, 1): 5.0}
    (found,) = pool([asked], np.array([0]), np.array([-1]), made(spans), Decoding())
    assert [(one.text, one.start, one.end) for one in found.n_best] == [
        ("שלום", 6, 10),
        ("מה \u00a0שלום 👩‍🚀", 2, 14),
        ("👩‍🚀\n!", 11, 16),
        ("מה", 2, 4),
    ]
    assert all(context[one.start : one.end] == one.text for one in found.n_best)


def test_whole_words_on_request() -> None:
    """Pieces of one word are one answer then, the best of them; the same text is listed once."""
    context = "It rained in Brønnøysund, 3.5 mm."
    pieces = ["It", "rain", "ed", "in", "Brønn", "øysund", ",", "3", ".5", "mm"]
    left, at = [], 0
    for piece in pieces:
        at = context.index(piece, at)
        left.append(at)
        at += len(piece)
    places = np.array(left), np.array(left) + [len(piece) for piece in pieces]
    asked = Passage("q", context, *places)
    spans = {(4, 4): 9.0, (5, 5): 8.0, (1, 1): 7.0, (2, 3): 6.0, (7, 7): 5.0, (9, 9): 4.0}
    texts = {}
    for whole in (False, True):
        (found,) = pool([asked], np.array([0]), np.array([-1]), made(spans), Decoding(whole_words=whole))
        texts[whole] = [one.text for one in found.n_best]
        assert all(context[one.start : one.end] == one.text for one in found.n_best)
    assert texts[False] == ["Brønn", "øysund", "rain", "ed in", "3", "mm"]
    assert texts[True] == ["Brønnøysund", "rained", "rained in", "3.5", "mm"]


def test_answers_at_the_edges_of_a_window() -> None:
    start, end = np.zeros((2, 1, 6))
    start[0, 1], end[0, 5] = 5, 5
    every = np.ones((1, 6), bool)
    every[0, 0] = False
    found = independent(start, end, every, every, Decoding(longest=5))
    assert listed(found)[0] == (10.0, 1, 5)
    assert listed(independent(start, end, every, every, Decoding(longest=4)))[:2] == [(5.0, 1, 1), (5.0, 1, 2)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(bad: float) -> None:
    scores, every = np.zeros((3, 4), np.float32), np.ones((3, 4), bool)
    spoiled = scores.copy()
    spoiled[1, 2:] = bad
    with pytest.raises(RunError, match="scores: not a number, or infinite, in 1 of 3 windows"):
        independent(scores, spoiled, every, every, Decoding())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_best": 0}, "n_best: found 0"),
        ({"longest": 0}, "longest"),
        ({"search": "x"}, "search"),
        ({"threshold": math.nan}, "threshold"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Decoding(**settings)


def test_the_files(tmp_path: Path) -> None:
    """Of both heads: Google's and NVIDIA's codes call what a joint head gives logits as well."""
    one = replace(decoded("the Åre cat", {(1, 1): 4.0, (2, 2): 2.0}, 1.0, refuse=True), id="b")
    one = replace(one, n_best=[replace(one.n_best[0], end_score=3.0), *one.n_best[1:]])
    two = replace(decoded(TEXT, {(4, 4): 2.0}, 8.0, refuse=True), id="a")
    write(tmp_path, [one, two])
    text = (tmp_path / "predictions.json").read_text(encoding="utf-8")
    assert text == '{\n    "b": "\\u00c5re",\n    "a": ""\n}\n'
    best = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert list(best) == ["b", "a"]
    assert list(best["b"][0]) == ["text", "probability", "start_logit", "end_logit"]
    assert best["b"][0] == pytest.approx(
        {"text": "Åre", "probability": one.probability, "start_logit": 2.0, "end_logit": 3.0}
    )
    assert json.loads((tmp_path / "null_odds.json").read_text()) == {"b": -3.0, "a": 6.0}


def test_without_refusals_there_are_no_null_odds(tmp_path: Path) -> None:
    write(tmp_path, [decoded(TEXT, {(1, 1): 4.0})])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nbest_predictions.json", "predictions.json"]
