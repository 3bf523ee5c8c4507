"""Windows of contexts: held against the plain rules written out one window and one token at a time."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from ordsmed.base.errors import RecipeError
from ordsmed.data.question_windows import Limits, QuestionWindows, answer_tokens, windows


def made(question: int, context: int, signs: int = 3, **limits: int) -> QuestionWindows:
    return windows(np.array([question]), np.array([context]), Limits(**limits), signs)


def spans(found: QuestionWindows) -> list[tuple[int, int]]:
    return list(zip(found.first.tolist(), found.last.tolist(), strict=True))


def by_hand(context: int, room: int, stride: int) -> list[tuple[int, int]]:
    found, first = [], 0
    while True:
        last = min(first + room, context) - 1
        found.append((first, last))
        if last == context - 1:
            return found
        first += min(stride, room)


def best_by_hand(token: int, spans: list[tuple[int, int]]) -> int:
    scores = [min(token - a, b - token) + 0.01 * (b - a + 1) if a <= token <= b else -1.0 for a, b in spans]
    return scores.index(max(scores))


@pytest.mark.parametrize("stride", [1, 3, 5, 8, 9, 40])
def test_windows_of_many_questions_are_those_made_one_by_one(stride: int) -> None:
    questions, contexts = np.repeat([0, 2, 4], 40), np.tile(np.arange(40), 3)
    found = windows(questions, contexts, Limits(length=13, stride=stride), 3)
    plain = [by_hand(c, 10 - q, stride) for q, c in zip(questions.tolist(), contexts.tolist(), strict=True)]
    assert spans(found) == [span for one in plain for span in one]
    assert found.question.tolist() == [q for q, one in enumerate(plain) for _ in one]


@pytest.mark.parametrize(("length", "stride"), [(13, 3), (13, 4), (13, 10), (14, 1), (384, 128)])
def test_each_token_has_most_context_in_the_window_the_rule_names(length: int, stride: int) -> None:
    contexts = np.array([0, 1, 9, 10, 11, 12, 14, 17, 25, 400, 511, 700, 1000])
    found = windows(np.full(len(contexts), 2), contexts, Limits(length=length, stride=stride), 4)
    begins = np.arange(len(found)) % 3 + 2  # rows need not hold their questions alike
    inside, most = found.positions(np.arange(len(found)), begins, length)
    for question, context in enumerate(contexts.tolist()):
        mine = np.flatnonzero(found.question == question)
        plain = by_hand(context, length - 6, stride)
        best = [best_by_hand(token, plain) for token in range(context)]
        for number, (row, (first, last)) in enumerate(zip(mine.tolist(), plain, strict=True)):
            held = list(range(first, last + 1))[: length - int(begins[row])]
            assert np.flatnonzero(inside[row]).tolist() == [t - first + begins[row] for t in held]
            assert np.flatnonzero(most[row]).tolist() == [t - first + begins[row] for t in held if best[t] == number]


def theirs(question: int, context: int, length: int, stride: int) -> list[tuple[int, int]]:
    """Windows as the tokenizers of transformers' run_qa.py cut a pair of so many tokens, with three signs."""
    tokenizer = Tokenizer(WordLevel({"?": 0, "q": 1, **{f"t{n}": n + 2 for n in range(context)}}, "?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()  # type: ignore[assignment]
    signs = [("a", 0), ("b", 0)]
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="a $A b", pair="a $A b $B b", special_tokens=signs
    )
    tokenizer.enable_truncation(length, stride=stride, strategy="only_second")
    row = tokenizer.encode(" ".join("q" * question), " ".join(f"t{n}" for n in range(context)))
    own = [
        [id - 2 for id, part in zip(one.ids, one.sequence_ids, strict=True) if part == 1]
        for one in (row, *row.overflowing)
    ]
    return [(tokens[0], tokens[-1]) for tokens in own]


@pytest.mark.parametrize(("length", "stride"), [(20, 1), (20, 5), (20, 11), (13, 3), (40, 20)])
def test_windows_that_overlap_are_those_of_their_tokenizers(length: int, stride: int) -> None:
    for question in (1, 4):
        for context in (1, 8, 12, 13, 16, 17, 31, 60):
            own = made(question, context, length=length, stride=stride, overlap=True)
            assert spans(own) == theirs(question, context, length, stride), (question, context)
            assert own.narrow == 0


def test_windows_that_are_too_short_for_their_overlap_share_half() -> None:
    limits = Limits(length=12, stride=4, longest_question=12, overlap=True)
    own = windows(np.array([4, 5, 5, 6]), np.array([7, 7, 4, 7]), limits, 3)
    assert [spans(own)[at] for at in np.flatnonzero(own.question == 0)] == [(0, 4), (1, 5), (2, 6)]
    assert [spans(own)[at] for at in np.flatnonzero(own.question == 1)] == [(0, 3), (2, 5), (4, 6)]
    assert [spans(own)[at] for at in np.flatnonzero(own.question == 3)] == [(0, 2), (2, 4), (4, 6)]
    assert own.narrow == 2
    assert made(9, 7, length=12, stride=4).narrow == 0


def test_an_answer_is_in_the_windows_that_hold_it_whole() -> None:
    found = windows(np.array([1, 1, 1]), np.array([10, 10, 3]), Limits(length=10, stride=2), 3)
    assert spans(found) == [(0, 5), (2, 7), (4, 9)] * 2 + [(0, 2)]
    start, end = found.answers(np.array([5, 0, -1]), np.array([7, 9, -1]))
    assert start.tolist() == [-1, 3, 1, -1, -1, -1, -1]
    assert end.tolist() == [-1, 5, 3, -1, -1, -1, -1]


def test_long_questions_are_cut_and_counted() -> None:
    limits = Limits(length=12, stride=4, longest_question=9)
    found = windows(np.array([3, 8, 9, 10]), np.array([20, 2, 2, 0]), limits, 3)
    assert found.kept.tolist() == [3, 8, 8, 8]
    assert (found.cut, found.squeezed) == (1, 2)
    assert spans(found)[-5:] == [(0, 0), (1, 1), (0, 0), (1, 1), (0, -1)]


def test_an_empty_context_has_one_window_of_nothing() -> None:
    found = made(5, 0)
    inside, most = found.positions(np.array([0]), np.array([7]), 20)
    assert spans(found) == [(0, -1)]
    assert not inside.any()
    assert not most.any()


def test_a_context_of_a_hundred_thousand_tokens() -> None:
    found = made(20, 100_000)
    begins = np.full(len(found), 22)
    _, most = found.positions(np.arange(len(found)), begins, 384)
    rows, places = np.nonzero(most)
    tokens = found.first[rows] + places - begins[rows]
    assert found.last[-1] == 99_999
    assert np.array_equal(np.sort(tokens), np.arange(100_000))


def test_limits_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="stride: found 0; wanted at least 1"):
        Limits(stride=0)
    with pytest.raises(RecipeError, match="length: 4, of which 4 are special tokens; wanted 5 or more"):
        made(1, 1, signs=4, length=4)


# Characters    0123456789
CONTEXT = "  Oslo, 1905"
LEFT, RIGHT = np.array([2, 4, 6, 6, 8, 0]), np.array([4, 6, 7, 6, 12, 0])  # Os lo , (nothing) 1905 (nothing)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ((2, 6), (0, 1, True)),
        ((0, 7), (0, 2, True)),  # white space at its edges is no part of it
        ((6, 8), (2, 2, True)),
        ((8, 12), (4, 4, True)),
        ((3, 6), (0, 1, False)),  # begins inside a token
        ((2, 10), (0, 4, False)),
        ((7, 8), (-1, -1, False)),  # white space alone
        ((5, 5), (-1, -1, False)),
        ((12, 20), (-1, -1, False)),
    ],
)
def test_an_answer_in_tokens(answer: tuple[int, int], wanted: tuple[int, int, bool]) -> None:
    assert answer_tokens(CONTEXT, LEFT, RIGHT, *answer) == wanted


def test_white_space_that_belongs_to_a_token_draws_in_no_neighbour() -> None:
    context, left, right = "a bc d", np.array([0, 1, 4]), np.array([1, 4, 6])  # as byte-level tokens: "a", " bc", " d"
    assert answer_tokens(context, left, right, 2, 5) == (1, 1, True)
    assert answer_tokens(context, left, right, 0, 2) == (0, 0, True)


def test_characters_are_code_points_and_may_be_of_many_tokens() -> None:
    context = "שלום 👩‍🚀 x"  # an emoji of three code points
    left, right = np.array([0, 5, 5, 6, 7, 9]), np.array([4, 6, 6, 7, 8, 10])
    assert answer_tokens(context, left, right, 5, 8) == (1, 4, True)
    assert answer_tokens(context, left, right, 0, 4) == (0, 0, True)
    assert answer_tokens(context, np.array([], int), np.array([], int), 0, 4) == (-1, -1, False)
