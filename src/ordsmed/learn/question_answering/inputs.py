"""Features of questions: windows of their contexts, with the tokens of the right answers.

question, context -> windows of [CLS] question [SEP] context [SEP], each with labels: start, end, no answer (0 or 1)
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say
from ordsmed.data.features import NOT_ASKED, Features, Text, framed
from ordsmed.data.pieces import TextPieces, TextReader
from ordsmed.data.question_windows import Limits, QuestionWindows, answer_tokens, windows
from ordsmed.data.windows import Ints, run
from ordsmed.learn.question_answering.records import QuestionRecords
from ordsmed.text.labelled.questions import Answer, placed, shortened

NO_ANSWER, LOST = -1, -2  # in place of an answer's token: the question has no answer, or no token covers it


def features(
    records: QuestionRecords, reader: TextReader, limits: Limits, *, lowercase: bool, impossible_windows: bool
) -> Features:
    """Return the windows of all questions.

    With `impossible_windows`, a window that does not contain the answer is labeled as having no answer.
    """
    contexts, questions = _pieces(records, reader, lowercase)
    sizes = np.diff(contexts.starts)[records.about]
    cut = windows(np.diff(questions.starts), sizes, limits, reader.frame.joint(two=True))
    first, last = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if records.known:
        first, last = _right_tokens(records, contexts)
        if records.learning:
            keep = (last >= NO_ANSWER)[cut.question]
            if not keep.any():
                remedy = "check that tokenizer and data have the same language and script"
                raise DataError("task.train", "no token covers an answer", "", remedy)
            cut = dataclasses.replace(cut, question=cut.question[keep], first=cut.first[keep], last=cut.last[keep])
    _report_truncation(cut, limits)
    question, context = questions.starts[cut.question], contexts.starts[records.about][cut.question]
    starts, ids, types, (_, begins) = framed(
        reader.frame,
        Text(questions.ids, question, question + cut.kept[cut.question]),
        Text(contexts.ids, context + cut.first, context + cut.last + 1),
    )
    characters, words = reader.listed() or (None, None)
    columns = {name: value for name, value in vars(cut).items() if isinstance(value, np.ndarray)}
    columns |= {"begins": begins, "contexts_begin": contexts.starts, "about": records.about}
    columns |= {"left": contexts.left, "right": contexts.right}
    return Features(
        starts,
        ids.astype(np.int32),
        types if reader.frame.types else None,
        marks=_marks(starts, begins, cut),
        labels=_labels(cut, begins, first, last, impossible_windows) if records.known else None,
        characters=characters,
        words=words,
        more=columns,
    )


def _report_truncation(cut: QuestionWindows, limits: Limits) -> None:
    notes = {
        f"questions truncated to {limits.longest_question} tokens": cut.cut,
        "questions truncated further, to leave room for the context": cut.squeezed,
        f"questions whose windows are too short to share {limits.stride} tokens share half": cut.narrow,
    }
    _report([f"{count:,} {text}" for text, count in notes.items() if count])


def lowered(text: str) -> str:
    """Return a text in lower case, with every character at its old position.

    İ is replaced by i, because it is the only character whose lower case in Python has two code points.
    """
    return text.replace("İ", "I").lower()


def _pieces(records: QuestionRecords, reader: TextReader, lowercase: bool) -> tuple[TextPieces, TextPieces]:
    """Return the tokens of contexts and questions.

    An empty question becomes "?": without special tokens, a token outside the context must come first.
    """
    contexts, questions = records.contexts, [question.question or "?" for question in records.questions]
    if lowercase and not reader.tokenizer.lowercase:
        contexts, questions = (list(map(lowered, texts)) for texts in (contexts, questions))
    return reader.pieces(contexts), reader.pieces(questions)


def _labels(cut: QuestionWindows, begins: Ints, first: Ints, last: Ints, impossible_windows: bool) -> Ints:
    """Return start, end, and whether there is no answer, [W, 3]; -1 if no token covers the answer."""
    start, end = cut.answers(first, last)
    inside, none, lost = start >= 0, (first == NO_ANSWER)[cut.question], (first == LOST)[cut.question]
    labels = np.stack([start + begins, end + begins, np.zeros_like(start)], 1)
    labels[~inside] = (0, 0, int(impossible_windows))
    labels[none] = (0, 0, 1)
    labels[lost] = -1
    return labels


def _report(lines: Sequence[str]) -> None:
    if lines:
        say("squad: " + "; ".join(lines))


def _right_tokens(records: QuestionRecords, contexts: TextPieces) -> tuple[Ints, Ints]:
    """Return the first and the last token of each question's answer, [Q], counted in its context."""
    tokens = np.full((2, len(records)), NO_ANSWER, np.int64)
    lost, inexact = [], []
    for number, (question, about) in enumerate(zip(records.questions, records.about.tolist(), strict=True)):
        if not question.answers:
            continue
        here = contexts.of(about)
        # use the first answer that occurs in the context
        present = (placed(answer, question.context)[0] for answer in question.answers)
        answer = next((answer for answer in present if answer), Answer("", 0))
        first, last, exact = answer_tokens(
            question.context, contexts.left[here], contexts.right[here], answer.start, answer.start + len(answer.text)
        )
        tokens[:, number] = (first, last) if first >= 0 else LOST
        if first < 0:
            lost.append(question.id)
        elif not exact:
            inexact.append(question.id)
    notes = {" covered by no token": lost, " beginning or ending inside a token": inexact}
    _report([f"{many(len(names), 'answer')}{text} ({shortened(names)})" for text, names in notes.items() if names])
    return tokens[0], tokens[1]


def _marks(starts: Ints, begins: Ints, cut: QuestionWindows) -> NDArray[np.int32]:
    marks = np.full(int(starts[-1]), NOT_ASKED, np.int32)
    sizes = cut.last - cut.first + 1
    marks[np.repeat(starts[:-1] + begins, sizes) + run(sizes)] = 0
    return marks
