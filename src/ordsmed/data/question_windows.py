"""Windows of a context that may be too long for one row: where they lie, where the answer is, which one sees most.

    row        [CLS] question [SEP] window of the context [SEP]
    context    t0 t1 t2 ................................. tn
    windows    [first ............ last]
                     [first ............ last]               each begins `stride` behind the one before
                           [first ............... last]      the last one ends with the context

First and last tokens are both inside. All is arithmetic on lengths, for many questions at once: Q of them, W windows.
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
    """How questions and their contexts are cut."""

    length: int = 384
    """tokens of a row: special tokens, question and window"""
    stride: int = 128
    """how many tokens behind the one before each window begins; less where windows are shorter than that"""
    longest_question: int = 64
    """tokens of a question; what is longer is cut"""
    overlap: bool = False
    """the stride is how many tokens a window shares with the one before; half of it where it holds no more than that"""

    def __post_init__(self) -> None:
        at_least(self, length=1, stride=1, longest_question=1)


@dataclass(frozen=True)
class QuestionWindows:
    """The windows of Q questions, in their order; a context without tokens has one, whose last token is -1."""

    kept: Ints  # [Q]  tokens of each question that stay
    contexts: Ints  # [Q]  tokens of its context
    rooms: Ints  # [Q]  how many of them a window takes
    steps: Ints  # [Q]  how far its windows are apart
    question: Ints  # [W]  whose window it is
    first: Ints  # [W]  its first token of the context
    last: Ints  # [W]  and its last
    cut: int  # questions longer than allowed
    squeezed: int  # questions cut further, for a window of one token
    narrow: int = 0  # questions whose windows are too short for the overlap

    def __len__(self) -> int:
        return len(self.question)

    def answers(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Where each window holds its question's answer, [Q] tokens of the context -> [W] tokens of the window.

        -1 and -1 where it does not lie wholly inside, or there is none (-1).
        """
        start, end = start[self.question], end[self.question]
        inside = (start >= self.first) & (end <= self.last)
        return np.where(inside, start - self.first, -1), np.where(inside, end - self.first, -1)

    def positions(self, windows: Ints, begins: Ints, width: int) -> tuple[Flags, Flags]:
        """Which positions of rows so wide hold the context, and which of those a token that has most context there.

        `begins` is the position of each window's first token. Both [len(windows), width].
        """
        positions, first = np.arange(width), self.first[windows, None]
        tokens = first + positions - begins[:, None]
        inside = (tokens >= first) & (tokens <= self.last[windows, None])
        question = self.question[windows, None]
        return inside, inside & (self._best(tokens, question) == first // self.steps[question])

    def _best(self, tokens: Ints, question: Ints) -> Ints:
        """Which of its question's windows has the largest min(left, right) + 0.01 * length; the first of equals.

        All windows but the last are of one length, so the best of them is the one whose middle is nearest.
        """
        room, step, context = self.rooms[question], self.steps[question], self.contexts[question]
        last = _further(context, room, step)
        nearest = -((room - 1 + step - 2 * tokens) // (2 * step))
        nearest = np.clip(nearest, 0, np.maximum(last - 1, 0))
        begin, final = nearest * step, last * step
        whole = np.minimum(tokens - begin, begin + room - 1 - tokens) + 0.01 * room
        short = np.minimum(tokens - final, context - 1 - tokens) + 0.01 * (context - final)
        in_last = (tokens >= final) & ((tokens >= begin + room) | (short > whole))
        return np.where(in_last, last, nearest)


def windows(questions: Ints, contexts: Ints, limits: Limits, specials: int) -> QuestionWindows:
    """The windows for questions and contexts of so many tokens, [Q] each, in rows with so many special tokens."""
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
    counts = 1 + _further(contexts, rooms, steps)
    question = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(question)) - (np.cumsum(counts) - counts)[question]
    first = number * steps[question]
    last = np.minimum(first + rooms[question], contexts[question]) - 1
    cut, squeezed = int((questions > wanted).sum()), int((wanted > kept).sum())
    return QuestionWindows(kept, contexts, rooms, steps, question, first, last, cut, squeezed, int(narrow.sum()))


def answer_tokens(context: str, left: Ints, right: Ints, start: int, end: int) -> tuple[int, int, bool]:
    """The first and the last token of the characters `start` to `end`, and whether they spell just those.

    White space around the answer is not looked at: a tokenizer gives it to a neighbor, or to none. -1 and -1 where no
    token holds any of the rest.
    """
    text = context[start:end]
    start, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    touching = np.flatnonzero((right > start) & (left < end) & (right > left))
    if start >= end or not len(touching):
        return -1, -1, False
    first, last = int(touching[0]), int(touching[-1])
    return first, last, context[left[first] : right[last]].strip() == text.strip()


def _further(contexts: Ints, rooms: Ints, steps: Ints) -> Ints:
    """How many windows follow the first."""
    return -((rooms - contexts) // steps).clip(max=0)
