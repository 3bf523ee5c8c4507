"""Decoding of answers from scores: the best spans of each window, the best texts of each question, and their files.

    scores [W, T] -- independent --+ +--> Candidates [W, N] -- pool --> Answered, one per question -- write --> three
                                   files beams [W, K, K] ----- beams ---+

W windows of T positions, of which the first is the special token for "no answer"; K starts of a beam, K ends for each.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ordsmed.base.checks import or_more
from ordsmed.base.errors import RunError
from ordsmed.base.files import write_text
from ordsmed.text.edges import whole

Ints = NDArray[np.int64]
Floats = NDArray[Any]  # of any precision: sums are computed in float64
Flags = NDArray[np.bool_]

SPARE = 4  # candidates of a window for each entry of the n-best list, because spans with equal texts are merged
CERTAIN = 1e30  # null odds if there is no candidate: above any threshold, and valid JSON
BLOCK = 256  # windows at a time, to limit memory


@dataclass(frozen=True)
class Decoding:
    n_best: int = 20
    """different texts in the list of a question"""
    longest: int = 30
    """maximum tokens of an answer"""
    search: Literal["all", "tops"] = "all"
    """search all pairs of a start and an end, or pairs of the n_best starts and ends (reference scripts)"""
    refuse: bool = False
    """whether a question may have no answer (SQuAD 2.0)"""
    threshold: float = 0.0
    """null odds above which there is no answer"""
    whole_words: bool = False
    """extend answers that begin or end inside a word to the complete word"""

    def __post_init__(self) -> None:
        or_more(self, n_best=1, longest=1)
        if self.search not in ("all", "tops"):
            raise ValueError(f'search: found {self.search!r}; wanted "all" or "tops"')
        if not np.isfinite(self.threshold):
            raise ValueError(f"threshold: found {self.threshold}; wanted a finite number")


@dataclass(frozen=True)
class Candidates:
    """Spans of W windows, N each, the best first; the start of an unused slot has the score -inf."""

    start: Ints  # [W, N]  positions in the row
    end: Ints  # [W, N]
    start_score: Floats  # [W, N]
    end_score: Floats  # [W, N]
    null_start: Floats  # [W]  scores of no answer; the logit and 0 for a joint head
    null_end: Floats  # [W]


@dataclass(frozen=True)
class Passage:
    id: str
    context: str
    left: Ints  # first character of each token
    right: Ints  # end of its last character


@dataclass(frozen=True)
class AnswerSpan:
    """A possible answer; no answer is the text "" from -1 to -1."""

    text: str
    start: int  # in characters of the context
    end: int
    probability: float  # among those in the list
    score: float
    start_score: float
    end_score: float


@dataclass(frozen=True)
class Answered:
    id: str
    text: str
    span: tuple[int, int]
    probability: float
    null_odds: float | None  # None if every question has an answer
    n_best: list[AnswerSpan]


def independent(
    start_scores: Floats, end_scores: Floats, may_start: Flags, may_end: Flags, decoding: Decoding
) -> Candidates:
    """Return candidates of a head that scores starts and ends independently, all [W, T].

    The search `tops` selects the best positions before it drops those that are not allowed, unless scores are masked.
    """
    _check_finite(start_scores, end_scores)
    pairs = _all_pairs if decoding.search == "all" else _top_pairs
    pairs_of_scores = _blockwise(pairs, decoding, start_scores, end_scores, may_start, may_end)
    return Candidates(*pairs_of_scores, _null_score(start_scores[:, 0]), _null_score(end_scores[:, 0]))


def beams(
    start_log_probs: Floats,
    start_index: Ints,
    end_log_probs: Floats,
    end_index: Ints,
    may_start: Flags,
    may_end: Flags,
    decoding: Decoding,
    unanswerable: Floats | None = None,
) -> Candidates:
    """Return candidates of a joint head's beams: starts [W, K], for each of them ends [W, K, K].

    `unanswerable` [W] is the logit of "no answer"; it may be left out only if every question has an answer.
    """
    assert unanswerable is not None or not decoding.refuse
    none = np.zeros(len(start_index))
    null = none if unanswerable is None else unanswerable
    _check_finite(start_log_probs, end_log_probs, null)
    scored = (start_log_probs, start_index, end_log_probs, end_index)
    return Candidates(*_blockwise(_beam_pairs, decoding, *scored, may_start, may_end), _null_score(null), none)


def joined(parts: Sequence[Candidates]) -> Candidates:
    return Candidates(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Candidates)))


def pool(
    passages: Sequence[Passage],
    question: Ints,
    shift: Ints,
    candidates: Candidates,
    decoding: Decoding,
    *,
    joint: bool = False,
) -> list[Answered]:
    """Return the answer to each passage's question from the candidates of its windows, which may be in any order.

    `question` [W] is the number of each window's passage (-1: none). Adding `shift` [W] to a position of the row gives
    the token of the context.
    """
    order = np.argsort(question, kind="stable")
    bounds = np.searchsorted(question[order], np.arange(len(passages) + 1))
    return [
        _answered(passage, order[begin:end], shift, candidates, decoding, joint)
        for passage, begin, end in zip(passages, bounds[:-1], bounds[1:], strict=True)
    ]


def write(folder: Path, answered: Sequence[Answered]) -> list[Path]:
    """Write predictions.json, nbest_predictions.json and, if questions may have no answer, null_odds.json."""
    files: dict[str, dict[str, Any]] = {
        "predictions": {answer.id: answer.text for answer in answered},
        "nbest_predictions": {answer.id: [_entry(span) for span in answer.n_best] for answer in answered},
        "null_odds": {answer.id: answer.null_odds for answer in answered if answer.null_odds is not None},
    }
    wanted = {folder / f"{name}.json": content for name, content in files.items() if content or name != "null_odds"}
    for path, content in wanted.items():
        write_text(path, json.dumps(content, indent=4) + "\n")
    return list(wanted)


Pairs = tuple[Ints, Ints, Floats, Floats]  # starts, ends and the scores of both, [B, N]
_Span = tuple[str, int, int, float, float]  # text, start and end in characters, scores of start and end


def _all_pairs(start: Floats, end: Floats, may_start: Flags, may_end: Flags, decoding: Decoding) -> Pairs:
    """Return the best of all pairs of a start and an end.

    Pairs are compared only for the starts with the best single pair, because other starts have none of the best.
    """
    start, end = _masked(start, may_start), _masked(end, may_end)
    longest, count = min(decoding.longest, end.shape[1]), SPARE * decoding.n_best
    band = sliding_window_view(_padded(end, end.shape[1] + longest - 1, -np.inf), longest, axis=1)
    starts = np.sort(_top(start + band.max(2), count))
    ends = starts[:, :, None] + np.arange(longest)
    return _best(_at(start, starts), starts, np.take_along_axis(band, starts[:, :, None], 1), ends, count)


def _top_pairs(start: Floats, end: Floats, may_start: Flags, may_end: Flags, decoding: Decoding) -> Pairs:
    starts, ends = _top(start, decoding.n_best), _top(end, decoding.n_best)
    wide = (*starts.shape, ends.shape[1])
    end_scores, ends = (np.broadcast_to(of_ends[:, None], wide) for of_ends in (_at(end, ends), ends))
    return _beam_pairs(_at(start, starts), starts, end_scores, ends, may_start, may_end, decoding)


def _beam_pairs(
    start_scores: Floats,
    starts: Ints,
    end_scores: Floats,
    ends: Ints,
    may_start: Flags,
    may_end: Flags,
    decoding: Decoding,
) -> Pairs:
    distance = ends - starts[:, :, None]
    flat = ends.reshape(len(ends), ends.shape[1] * ends.shape[2])
    fits = _at(may_end, flat).reshape(ends.shape) & (distance >= 0) & (distance < decoding.longest)
    start_scores = _masked(start_scores, _at(may_start, starts))
    return _best(start_scores, starts, _masked(end_scores, fits), ends, SPARE * decoding.n_best)


def _best(start_scores: Floats, starts: Ints, end_scores: Floats, ends: Ints, count: int) -> Pairs:
    """Return the `count` best pairs, padded with unused slots."""
    rows, _, beam = ends.shape
    scores = (start_scores[:, :, None] + end_scores).reshape(rows, -1)
    top = _top(scores, count)
    of_start, used = top // beam, np.isfinite(_at(scores, top))
    columns = (
        _at(starts, of_start),
        _at(ends.reshape(rows, -1), top),
        np.where(used, _at(start_scores, of_start), -np.inf),
        np.where(used, _at(end_scores.reshape(rows, -1), top), 0.0),
    )
    filled = [_padded(of, count, empty) for of, empty in zip(columns, (0, 0, -np.inf, 0.0), strict=True)]
    return filled[0], filled[1], filled[2], filled[3]


def _padded(values: NDArray[Any], width: int, empty: float) -> NDArray[Any]:
    """Append columns; np.pad is ten times slower for a few of them."""
    wide = np.full((len(values), width), empty, values.dtype)
    wide[:, : values.shape[1]] = values
    return wide


def _top(scores: Floats, count: int) -> Ints:
    """Return the positions of the highest scores of each row, the best first; ties go to the first position."""
    rows, width = scores.shape
    count = min(count, width)
    lowest = np.partition(scores, width - count, axis=1)[:, width - count, None]
    above, ties = scores > lowest, scores == lowest
    ties &= np.cumsum(ties, 1) <= count - above.sum(1, keepdims=True)
    positions = np.nonzero(above | ties)[1].reshape(rows, count)
    return _at(positions, np.argsort(-_at(scores, positions), 1, kind="stable"))


def _at(values: NDArray[Any], positions: Ints) -> NDArray[Any]:
    return np.take_along_axis(values, positions, 1)


def _masked(scores: Floats, may: Flags) -> Floats:
    return np.where(may, scores.astype(float), -np.inf)


def _null_score(scores: Floats) -> Floats:
    """Clip scores to numbers that JSON supports, because a head may mask the special token with -inf."""
    clipped: np.ndarray = np.clip(scores.astype(float), -CERTAIN, CERTAIN)
    return clipped


def _blockwise(pairs: Callable[..., Pairs], decoding: Decoding, *arrays: NDArray[Any]) -> Pairs:
    begins = range(0, max(len(arrays[0]), 1), BLOCK)
    parts = [pairs(*(array[at : at + BLOCK] for array in arrays), decoding=decoding) for at in begins]
    starts, ends, start_scores, end_scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    return starts, ends, start_scores, end_scores


def _check_finite(*scores: Floats) -> None:
    for values in scores:
        bad = ~(values < np.inf)
        if bad.any():
            count = int(bad.reshape(len(bad), -1).any(1).sum())
            problem = f"not a number, or infinite, in {count:,} of {len(bad):,} windows"
            remedy = "the network is damaged or its precision is too low: use another checkpoint, or fp32"
            raise RunError("scores", problem, "finite numbers", remedy)


def _answered(
    passage: Passage, rows: Ints, shift: Ints, candidates: Candidates, decoding: Decoding, joint: bool
) -> Answered:
    spans = _spans(passage, rows, shift, candidates, decoding)
    null: _Span = ("", -1, -1, 0.0, 0.0)
    listed, odds = spans or [null], None
    if decoding.refuse:
        null, odds = _null(spans, rows, candidates, joint)
        listed = sorted([*spans, null], key=_score, reverse=True)
        if not joint and listed[-1] is not null:
            listed = listed[: decoding.n_best]
    chosen = null if not spans or (odds is not None and odds > decoding.threshold) else spans[0]
    scores = np.array([_score(span) for span in listed])
    weights = np.exp(scores - scores.max())
    shares = (weights / weights.sum()).tolist()
    n_best = [
        AnswerSpan(text, start, end, share, start_score + end_score, start_score, end_score)
        for (text, start, end, start_score, end_score), share in zip(listed, shares, strict=True)
    ]
    best = n_best[listed.index(chosen)]
    return Answered(passage.id, best.text, (best.start, best.end), best.probability, odds, n_best)


def _spans(passage: Passage, rows: Ints, shift: Ints, candidates: Candidates, decoding: Decoding) -> list[_Span]:
    """Return the best spans with different texts, from all windows of a question."""
    score = candidates.start_score[rows] + candidates.end_score[rows]
    order = np.argsort(-score, axis=None, kind="stable")[: np.isfinite(score).sum()]
    first, last = (
        (positions[rows] + shift[rows, None]).ravel()[order] for positions in (candidates.start, candidates.end)
    )
    solid = passage.right > passage.left  # the offsets of a token without characters mean nothing
    columns = (
        passage.left[first],
        passage.right[last],
        candidates.start_score[rows].ravel()[order],
        candidates.end_score[rows].ravel()[order],
    )
    keep = solid[first] & solid[last]
    by_text: dict[str, _Span] = {}
    for left, right, start_score, end_score in zip(*(column[keep].tolist() for column in columns), strict=True):
        raw = passage.context[left:right]
        start = left + len(raw) - len(raw.lstrip())
        end = start + len(raw.strip())
        if decoding.whole_words and start < end:
            start, end = whole(passage.context, start, end)
        text = passage.context[start:end]
        if text and text not in by_text:
            by_text[text] = (text, start, end, start_score, end_score)
            if len(by_text) == decoding.n_best:
                break
    return list(by_text.values())


def _null(spans: list[_Span], rows: Ints, candidates: Candidates, joint: bool) -> tuple[_Span, float]:
    """Return "no answer" as an entry of the list, and its odds.

    A joint head's logit z is not comparable with its log-probabilities. With the score z + log sum exp(spans), the
    probability of "no answer" in the list is that of the head, sigmoid(z).
    """
    start, end = 0.0, 0.0
    if len(rows):
        lowest = rows[np.argmin(candidates.null_start[rows] + candidates.null_end[rows])]
        start, end = float(candidates.null_start[lowest]), float(candidates.null_end[lowest])
    odds = start + end
    if not spans:
        odds = CERTAIN
    elif joint:
        start += float(np.logaddexp.reduce([_score(span) for span in spans]))
    else:
        odds -= _score(spans[0])
    return ("", -1, -1, start, end), odds


def _score(span: _Span) -> float:
    return span[3] + span[4]


def _entry(span: AnswerSpan) -> dict[str, Any]:
    """Return an entry with the keys of Google's and NVIDIA's code, which call log-probabilities logits too."""
    return {
        "text": span.text,
        "probability": span.probability,
        "start_logit": span.start_score,
        "end_logit": span.end_score,
    }
