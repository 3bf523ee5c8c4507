"""Windows over contexts that may be too long for one row: their positions, the answer in them, and the best window.

    row        [CLS] question [SEP] window of the context [SEP]
    context    t0 t1 t2 ................................. tn
    windows    [first ............ last]
                     [first ............ last]               each begins `stride` tokens after the previous one
                           [first ............... last]      the last one ends with the context

First and last are inclusive. Everything is computed from lengths, for Q questions with W windows together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.checks import at_least
from ordsmed.base.errors import RecipeError

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Limits:
    length: int = 384
    """length of a row in tokens: special tokens, question and window"""
    stride: int = 128
    """tokens between the starts of two windows, at most the length of a window"""
    longest_question: int = 64
    """most tokens of a question; a longer one is truncated"""
    overlap: bool = False
    """`stride` is the number of tokens that two windows share; if windows are not longer than that, they share half"""

    def __post_init__(self) -> None:
        at_least(self, length=1, stride=1, longest_question=1)


@dataclass(frozen=True)
class QuestionWindows:
    """The windows of Q questions, in order; an empty context has one window, whose last token is -1."""

    kept: Ints  # [Q]  tokens of each question after truncation
    contexts: Ints  # [Q]  tokens of each context
    rooms: Ints  # [Q]  context tokens of a full window
    steps: Ints  # [Q]  distance between windows
    question: Ints  # [W]  question of each window
    first: Ints  # [W]  first context token
    last: Ints  # [W]  last context token
    cut: int  # number of truncated questions
    squeezed: int  # questions truncated further, to leave one token for the window
    narrow: int = 0  # questions whose windows are shorter than the overlap

    def __len__(self) -> int:
        return len(self.question)

    def answers(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return the answer's tokens in each window [W], given its tokens in the context [Q].

        -1 and -1 if the answer is not completely inside the window, or if there is no answer (-1).
        """
        start, end = start[self.question], end[self.question]
        inside = (start >= self.first) & (end <= self.last)
        return np.where(inside, start - self.first, -1), np.where(inside, end - self.first, -1)

    def positions(self, windows: Ints, begins: Ints, width: int) -> tuple[Flags, Flags]:
        """Return which positions hold the context, and which of them have the most context in this window.

        Both are [len(windows), width]. `begins` is the position of each window's first token.
        """
        positions, first = np.arange(width), self.first[windows, None]
        tokens = first + positions - begins[:, None]
        inside = (tokens >= first) & (tokens <= self.last[windows, None])
        question = self.question[windows, None]
        return inside, inside & (self._best(tokens, question) == first // self.steps[question])

    def _best(self, tokens: Ints, question: Ints) -> Ints:
        """Return the window of the question with the largest min(left, right) + 0.01 * length; the first of equals.

        All windows except the last have the same length, so the best of them is the one with the nearest center.
        """
        room, step, context = self.rooms[question], self.steps[question], self.contexts[question]
        last = _extra_windows(context, room, step)
        nearest = -((room - 1 + step - 2 * tokens) // (2 * step))
        nearest = np.clip(nearest, 0, np.maximum(last - 1, 0))
        begin, final = nearest * step, last * step
        whole = np.minimum(tokens - begin, begin + room - 1 - tokens) + 0.01 * room
        short = np.minimum(tokens - final, context - 1 - tokens) + 0.01 * (context - final)
        in_last = (tokens >= final) & ((tokens >= begin + room) | (short > whole))
        return np.where(in_last, last, nearest)


def windows(questions: Ints, contexts: Ints, limits: Limits, specials: int) -> QuestionWindows:
    """Return the windows for questions and contexts with these numbers of tokens [Q]; `specials`: special tokens."""
    if limits.length <= specials:
        problem = f"{limits.length}, of which {specials} are special tokens"
        raise RecipeError("length", problem, f"{specials + 1} or more")
    wanted = np.minimum(questions, limits.longest_question)
    kept = np.minimum(wanted, limits.length - specials - 1)
    rooms = limits.length - specials - kept
    narrow = (rooms <= limits.stride) & (contexts > rooms) & limits.overlap
    steps = np.minimum(rooms, limits.stride)
    if limits.overlap:
        steps = np.where(rooms > limits.stride, rooms - limits.stride, (rooms + 1) // 2)
    counts = 1 + _extra_windows(contexts, rooms, steps)
    question = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(question)) - (np.cumsum(counts) - counts)[question]
    first = number * steps[question]
    last = np.minimum(first + rooms[question], contexts[question]) - 1
    cut, squeezed = int((questions > wanted).sum()), int((wanted > kept).sum())
    return QuestionWindows(kept, contexts, rooms, steps, question, first, last, cut, squeezed, int(narrow.sum()))


def answer_tokens(context: str, left: Ints, right: Ints, start: int, end: int) -> tuple[int, int, bool]:
    """Return the first and last token of the characters `start` to `end`, and whether they match exactly.

    White space around the answer is ignored, because tokenizers attach it to a neighbor or drop it. Return -1 and -1 if
    no token covers any other character.
    """
    text = context[start:end]
    start, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    touching = np.flatnonzero((right > start) & (left < end) & (right > left))
    if start >= end or not len(touching):
        return -1, -1, False
    first, last = int(touching[0]), int(touching[-1])
    return first, last, context[left[first] : right[last]].strip() == text.strip()


def _extra_windows(contexts: Ints, rooms: Ints, steps: Ints) -> Ints:
    return -((rooms - contexts) // steps).clip(max=0)
