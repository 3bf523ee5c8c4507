"""Records of questions about texts; each different text is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say
from ordsmed.data.windows import Ints
from ordsmed.text.labelled import questions as files
from ordsmed.text.labelled.questions import Question
from ordsmed.text.read import Errors


@dataclass(frozen=True)
class QuestionRecords:
    questions: list[Question]
    contexts: list[str]
    about: Ints  # [Q]  the number of each question's context
    learning: bool = False

    def __len__(self) -> int:
        return len(self.questions)

    @staticmethod
    def of(questions: Sequence[Question], *, learning: bool = False) -> QuestionRecords:
        numbers: dict[str, int] = {}
        about = [numbers.setdefault(question.context, len(numbers)) for question in questions]
        return QuestionRecords(list(questions), list(numbers), np.asarray(about, np.int64), learning)

    @property
    def known(self) -> bool:
        return any(question.answers or question.impossible for question in self.questions)


def read(paths: Sequence[str], errors: Errors, *, refuse: bool, learning: bool) -> QuestionRecords:
    """Read the questions of files; for training, drop those without an answer unless the task may `refuse`."""
    questions, _ = files.read(paths, repair=learning, errors=errors)
    if learning and not refuse:
        answered = [question for question in questions if question.answers]
        if less := len(questions) - len(answered):
            say(f'squad: {many(less, "question")} without an answer skipped; version = "2.0" learns from them')
        if not answered:
            raise DataError(", ".join(paths), "no question has an answer", "", 'set version = "2.0"')
        questions = answered
    return QuestionRecords.of(questions, learning=learning)
