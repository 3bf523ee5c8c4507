"""Questions answered by a part of a text, or by nothing: SQuAD 1.1 and 2.0, with two heads.

    question, context -> windows of [CLS] question [SEP] context [SEP] -> scores of starts and ends -> the best span

The first token stands for "no answer": for windows that do not hold it, and in 2.0 for questions that have none.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many, say
from ordsmed.data.batch import Batch
from ordsmed.data.features import NOT_ASKED, Features, Text, framed
from ordsmed.data.pieces import TextPieces, TextReader
from ordsmed.data.question_windows import Limits, QuestionWindows, answer_tokens, windows
from ordsmed.data.windows import Ints, run
from ordsmed.learn.joint import NEVER, JointHead
from ordsmed.learn.score import answers as decode
from ordsmed.learn.score import squad as official
from ordsmed.learn.score.answers import Answered, Candidates, Decoding, Passage
from ordsmed.learn.task import INITIALIZER_STD, Arrays, Files, Task, TaskSettings, by_example
from ordsmed.learn.upper_layers import width
from ordsmed.learn.usage import Usage, in_python, loaded
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.heads import fresh
from ordsmed.text.labelled.questions import VERSIONS, Answer, Question, placed, read, shortened
from ordsmed.text.read import Errors
from ordsmed.text.tokenizer import Tokenizer

BLOCK = 256  # windows decoded at a time, for memory
SYNTHETIC_QUESTION = 12  # words
SIGNS = 3  # around a question and its context
NO_ANSWER, LOST = -1, -2  # in place of an answer's tokens: there is none; there is one, but no token holds it
BEAMS = ("start_log_probs", "start_index", "end_log_probs", "end_index", "unanswerable")


@dataclass(frozen=True)
class QuestionRecords:
    """Questions, and the different contexts that they are about."""

    questions: list[Question]
    contexts: list[str]
    about: Ints  # [Q]  the number of each question's context
    learning: bool = False

    def __len__(self) -> int:
        return len(self.questions)

    @staticmethod
    def of(questions: Sequence[Question], *, learning: bool = False) -> QuestionRecords:
        """Each context once."""
        numbers: dict[str, int] = {}
        about = [numbers.setdefault(each.context, len(numbers)) for each in questions]
        return QuestionRecords(list(questions), list(numbers), np.asarray(about, np.int64), learning)

    @property
    def known(self) -> bool:
        """Are the right answers told?"""
        return any(each.answers or each.impossible for each in self.questions)


@dataclass(frozen=True, kw_only=True)
class Squad(Files, Choice):
    """Answers that are parts of a text (SQuAD)."""

    record: ClassVar[str] = "f1"
    UNREAD: ClassVar[tuple[str, ...]] = (
        *Files.UNREAD, "head", "beam", "answerable_weight", "n_best", "longest_answer", "search", "threshold",
        "whole_words",
    )  # fmt: skip
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("whole_words", "overlap")
    LATER: ClassVar[tuple[str, ...]] = (
        "train", "dev", "errors", "version", "length", "stride", "overlap", "longest_question", "lowercase", "beam",
        "n_best", "longest_answer", "search", "threshold", "whole_words",
    )  # fmt: skip
    METHOD: ClassVar[str] = "answer"
    VERBS: ClassVar[tuple[str, ...]] = ("answer",)
    MADE_UP: ClassVar[str] = "questions.json"
    errors: Errors = "strict"
    """bytes that are no UTF-8: refused, or replaced and counted"""
    version: Literal["1.1", "2.0"] = "1.1"
    """of SQuAD: every question has an answer (1.1), or some have none (2.0); elsewhere version_2_with_negative"""
    length: int = 384
    """tokens of an example: signs, question and a window of the context; elsewhere max_seq_length"""
    stride: int = 128
    """how many tokens behind the one before each window of a long context begins; elsewhere doc_stride"""
    overlap: bool = False
    """stride is how many tokens a window shares with the one before, as transformers counts"""
    longest_question: int = 64
    """tokens of a question; what is longer is cut; elsewhere max_query_length"""
    lowercase: bool = False
    """texts are read in lower case, whatever the tokenizer keeps; answers are given as they stand"""
    head: Literal["independent", "joint"] = "independent"
    """starts and ends are scored apart, or ends given a start (joint: found by beams)"""
    form: Literal["nvidia", "google"] = "nvidia"
    """joint: its layers as in NVIDIA's ELECTRA, or as in Google's"""
    beam: int = 5
    """joint: starts that are tried, and ends of each"""
    answerable_weight: float = 0.5
    """joint, 2.0: of the loss of telling questions without an answer"""
    impossible_windows: bool | None = None
    """joint, 2.0: a window that lacks the answer counts as one without; left out: yes by NVIDIA's form"""
    n_best: int = 20
    """answers kept a question, for nbest_predictions.json; elsewhere n_best_size"""
    longest_answer: int = 30
    """tokens of an answer; elsewhere max_answer_length"""
    search: Literal["all", "tops"] = "all"
    """independent: all pairs of a start and an end, or of the n_best starts and ends alone (as the references do)"""
    threshold: float | Literal["dev"] = 0.0
    """2.0: null odds above which there is no answer; "dev": where F1 is best on the dev files"""
    whole_words: bool = False
    """answers cut no word: one that begins or ends inside a word is widened to hold it, in any script"""

    def __post_init__(self) -> None:
        least = {"length": 2, "stride": 1, "longest_question": 1, "beam": 1, "n_best": 1, "longest_answer": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted {value} or more")
        for name, most in (("beam", 1000), ("n_best", 10_000)):
            if getattr(self, name) > most:
                raise ValueError(f"{name}: found {getattr(self, name):,}; wanted at most {most:,}")
        if not 0 <= self.answerable_weight < math.inf:
            raise ValueError(f"answerable_weight: found {self.answerable_weight}; wanted 0 or more")
        if self.threshold != "dev" and not math.isfinite(self.threshold):
            raise ValueError(f'threshold: found {self.threshold}; wanted a finite number, or "dev"')

    @property
    def role(self) -> str:
        return "joint" if self.head == "joint" else "span"

    @classmethod
    def named(cls, name: str) -> dict[str, Any] | None:
        return {"version": VERSIONS[name]} if name in VERSIONS else None

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        return {} if role == "span" else None

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        """SQuAD's form; the answer is a context's first word."""
        questions = []
        for number, size in enumerate(np.maximum(sizes, 5).tolist()):
            asked = min(SYNTHETIC_QUESTION, (size - SIGNS) // 2)
            context = words(size - SIGNS - asked)
            answers = [{"text": context.split()[0], "answer_start": 0}]
            questions.append({"id": str(number), "question": words(asked), "context": context, "answers": answers})
        return json.dumps({"data": questions})

    @property
    def refuse(self) -> bool:
        """May a question have no answer?"""
        return self.version == "2.0"

    def records(self, paths: Sequence[str], *, learning: bool = False) -> QuestionRecords:
        questions, _ = read(paths, repair=learning, errors=self.errors)
        if learning and not self.refuse:
            questions, every = [each for each in questions if each.answers], questions
            if less := len(every) - len(questions):
                say(f'squad: {many(less, "question")} without an answer left out: version = "2.0" learns from such')
            if not questions:
                raise DataError(", ".join(paths), "no question has an answer", "", 'set version = "2.0"')
        return QuestionRecords.of(questions, learning=learning)

    def about(self, questions: Sequence[Question]) -> QuestionRecords:
        """Questions that stand in no file."""
        return QuestionRecords.of(questions)

    def settled(self, records: QuestionRecords) -> Self:
        if self.refuse and self.threshold == "dev" and not self.paths("dev"):
            raise RecipeError("task.threshold", '"dev", but no dev files', "task.dev, or a number such as 0.0")
        return self

    def features(self, records: QuestionRecords, reader: TextReader) -> Features:
        contexts, questions = self._pieces(records, reader)
        sizes = np.diff(contexts.starts)[records.about]
        signs = reader.frame.joint(two=True)
        limits = Limits(self.length, self.stride, self.longest_question, self.overlap)
        cut = windows(np.diff(questions.starts), sizes, limits, signs)
        first, last = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if records.known:
            first, last = _right_tokens(records, contexts)
            if records.learning:
                cut = _learnable(cut, last >= NO_ANSWER)
        self._tell(cut)
        asked, context = questions.starts[cut.question], contexts.starts[records.about][cut.question]
        starts, ids, types, (_, begins) = framed(
            reader.frame,
            Text(questions.ids, asked, asked + cut.kept[cut.question]),
            Text(contexts.ids, context + cut.first, context + cut.last + 1),
        )
        letters, words = reader.listed() or (None, None)
        columns = {name: value for name, value in vars(cut).items() if isinstance(value, np.ndarray)}
        return Features(
            starts, ids.astype(np.int32), types if reader.frame.types else None,
            marks=_marks(starts, begins, cut),
            labels=self._labels(cut, begins, first, last) if records.known else None, characters=letters, words=words,
            more={**columns, "begins": begins, "contexts_begin": contexts.starts, "about": records.about,
                  "left": contexts.left, "right": contexts.right},
        )  # fmt: skip

    def build(self, model: Any, tokenizer: Tokenizer) -> Independent | Joint:
        if self.length > model.longest():
            problem = f"{self.length}, more than the model's {model.longest()} positions"
            raise RecipeError("task.length", problem, "", f"use task.length={model.longest()}")
        if self.refuse and model.capabilities.causal:
            problem = '"2.0" with a causal network, whose first token, which stands for "no answer", sees no text'
            raise RecipeError("task.version", problem, '"1.1", or a network that reads both ways')
        return (Joint if self.head == "joint" else Independent)(self, model, tokenizer.vocabulary)

    def predictions(self, records: QuestionRecords, features: Features, answers: Arrays) -> list[Answered]:
        """While it learns, a threshold "dev" is the best for these records, which then are the dev files'."""
        return self.fitted(records, features, answers)._answered(records, features, answers)

    def score(self, records: QuestionRecords, predictions: Sequence[Answered]) -> dict[str, float]:
        if not records.known:
            return {}
        odds = {one.id: one.null_odds for one in predictions if one.null_odds is not None}
        return official.scored(self.version, records.questions, _texts(predictions), odds or None)

    def fitted(self, records: QuestionRecords, features: Features, answers: Arrays) -> Self:
        if not self.refuse or self.threshold != "dev":
            return self
        if not records.known:
            raise RecipeError(
                "task.threshold", '"dev", but no right answers tell which is best', "a number such as 0.0"
            )
        answered = self._answered(records, features, answers)
        texts = {one.id: next((span.text for span in one.n_best if span.text), "") for one in answered}
        odds = {one.id: one.null_odds or 0.0 for one in answered}
        return dataclasses.replace(self, threshold=official.fitted_threshold(records.questions, texts, odds))

    def guesses(self, train: QuestionRecords, records: QuestionRecords) -> list[Answered]:
        """That no question has an answer."""
        return [_given(each.id, "") for each in records.questions]

    def write(self, folder: Path, records: QuestionRecords, predictions: Sequence[Answered]) -> list[Path]:
        return decode.write(folder, predictions)

    def read(self, path: Path, records: QuestionRecords) -> list[Answered]:
        """Of 2.0 with the null odds of a null_odds.json beside it."""
        predictions, beside = official.read_predictions(path), path.with_name("null_odds.json")
        odds = official.read_null_odds(beside) if self.refuse and beside.is_file() else {}
        if odds and predictions.keys() <= odds.keys():
            say(f"{beside}: tells the best_ scores")
        elif odds:
            say(f"{beside}: not used, for it is about other questions than {path.name}")
            odds = {}
        return [_given(name, text, odds.get(name)) for name, text in predictions.items()]

    def details(
        self, records: QuestionRecords, predictions: Sequence[Answered]
    ) -> list[tuple[str, list[str], list[list[Any]]]]:
        if not records.known:
            return []
        tables = official.details(records.questions, _texts(predictions))
        return [
            (
                f"by {title}",
                [title, "questions", "exact match", "F1"],
                [[kind, int(row["total"]), row["exact"], row["f1"]] for kind, row in rows.items()],
            )
            for title, rows in tables.items()
        ]

    def _pieces(self, records: QuestionRecords, reader: TextReader) -> tuple[TextPieces, TextPieces]:
        """Contexts and questions. Without signs a token must stand first that is not the context's."""
        contexts, questions = records.contexts, [each.question or "?" for each in records.questions]
        if self.lowercase and not reader.tokenizer.lowercase:
            contexts, questions = (list(map(lowered, texts)) for texts in (contexts, questions))
        return reader.pieces(contexts), reader.pieces(questions)

    def _labels(self, cut: QuestionWindows, begins: Ints, first: Ints, last: Ints) -> Ints:
        """Start, end and whether there is no answer, [W, 3]; -1 where what is right cannot be told."""
        start, end = cut.answers(first, last)
        here, none, lost = start >= 0, (first == NO_ANSWER)[cut.question], (first == LOST)[cut.question]
        counts = self.form == "nvidia" if self.impossible_windows is None else self.impossible_windows
        labels = np.stack([start + begins, end + begins, np.zeros_like(start)], 1)
        labels[~here] = (0, 0, int(counts))
        labels[none] = (0, 0, 1)
        labels[lost] = -1
        return labels

    def _tell(self, cut: QuestionWindows) -> None:
        noted = {
            f"questions longer than {self.longest_question} tokens, cut": cut.cut,
            "questions cut further, to leave room for a token of the context": cut.squeezed,
            f"questions whose windows are too short to share {self.stride} tokens, share half": cut.narrow,
        }
        if lines := [f"{count:,} {what}" for what, count in noted.items() if count]:
            say("squad: " + "; ".join(lines))

    def _answered(self, records: QuestionRecords, features: Features, answers: Arrays) -> list[Answered]:
        more = features.more
        cut = QuestionWindows(**{f.name: more.get(f.name, 0) for f in fields(QuestionWindows)})  # type: ignore[arg-type]
        threshold = 0.0 if self.threshold == "dev" else self.threshold
        decoding = Decoding(self.n_best, self.longest_answer, self.search, self.refuse, threshold, self.whole_words)
        blocks = [np.arange(at, min(at + BLOCK, len(cut))) for at in range(0, len(cut), BLOCK)]
        candidates = decode.joined([self._candidates(cut, features, answers, block, decoding) for block in blocks])
        shift = cut.first - more["begins"]
        joint = self.head == "joint"
        return decode.pool(_passages(records, more), cut.question, shift, candidates, decoding, joint=joint)

    def _candidates(
        self, cut: QuestionWindows, features: Features, answers: Arrays, block: Ints, decoding: Decoding
    ) -> Candidates:
        longest = int(features.sizes[block].max())
        may_end, may_start = cut.positions(block, features.more["begins"][block], longest)
        if self.head == "joint":
            beams = {name: answers[name][block] for name in BEAMS}
            return decode.beams(**beams, may_start=may_start, may_end=may_end, decoding=decoding)
        allowed = may_end | (np.arange(longest) == 0)
        start, end = (np.where(allowed, answers[name][block, :longest], -np.inf) for name in ("start", "end"))
        return decode.independent(start, end, may_start, may_end, decoding)


class Independent(Task):
    """Two scores a token: does the answer start there, does it end there?"""

    span: nn.Module
    by_token = ("start", "end")

    def __init__(self, settings: Squad, model: Any, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        self.weights = {"span": 1.0}
        self.add_head("span", 2)

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {"span": _asked(batch).sum(dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        logits = by_example(self.span(self.states(batch)).float(), batch)
        start, end = logits.masked_fill(~_allowed(batch)[..., None], NEVER).unbind(-1)
        return {"start": start, "end": end}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"span": _span_loss(scores["start"], scores["end"], batch.labels)} if batch.labels is not None else {}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return scores

    def usage(self, name: str, tokenizer: Tokenizer, learned: Squad) -> Usage:
        """Without a pipeline, which transformers has no more: the best part of a context that is not too long."""
        texts = "question.lower(), context.lower()" if learned.lowercase else "question, context"
        threshold = 0.0 if learned.threshold == "dev" else learned.threshold
        none = f"scores[0, 0] - best.max() > {threshold}"
        answer = "context[places[start][0] : places[end][1]]"
        answer = f'"no answer" if {none} else {answer}' if learned.refuse else answer
        code = f"""import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

{loaded("AutoModelForQuestionAnswering", name, ".eval()")}\
question, context = "What falls?", "It is wet, for rain falls."

asked = tokenizer({texts}, truncation="only_second", max_length={learned.length},
                  return_offsets_mapping=True, return_tensors="pt")
places, inside = asked.pop("offset_mapping")[0].tolist(), torch.tensor([n == 1 for n in asked.sequence_ids()])
with torch.no_grad():
    said = model(**asked)
scores = said.start_logits[0][:, None] + said.end_logits[0]
allowed = (inside[:, None] & inside).triu().tril({learned.longest_answer - 1})
best = scores.masked_fill(~allowed, float("-inf"))
start, end = divmod(int(best.argmax()), len(inside))
print({answer})
"""
        none = ", or says that it holds no answer" if learned.refuse else ""
        return Usage("question-answering", f"answers a question by a part of a text{none}", in_python(name, code))


class Joint(Task):
    """Starts, then ends given a start, and whether there is an answer."""

    def __init__(self, settings: Squad, model: Any, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        self.beam, self.refuse = settings.beam, settings.refuse
        self.weights = {"span": 1.0} | ({"answerable": settings.answerable_weight} if self.refuse else {})
        self.joint = JointHead(self.top.width if self.top else width(model), settings.form, refuse=self.refuse)
        self.joint.apply(lambda module: fresh(module, INITIALIZER_STD))
        number_layers(self)

    def update_settings(self, settings: TaskSettings) -> None:
        assert isinstance(settings, Squad)
        self.beam = settings.beam

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return dict.fromkeys(self.weights, _asked(batch).sum(dtype=torch.float64))

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        states, allowed = by_example(self.states(batch), batch), _allowed(batch)
        return {"states": states, "allowed": allowed, "start": self.joint.starts(states, allowed)}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        if batch.labels is None:
            return {}
        states, start, asked = scores["states"], scores["start"], _asked(batch)
        right = batch.labels[:, 0].clamp(min=0)
        end = self.joint.ends(states, scores["allowed"], right)
        losses = {"span": _span_loss(start, end, batch.labels)}
        if self.refuse:
            none = self.joint.unanswerable(states, start, right)
            wrong = F.binary_cross_entropy_with_logits(none, batch.labels[:, 2].float(), reduction="none")
            losses["answerable"] = (wrong * asked).sum()
        return losses

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        states, start = scores["states"], scores["start"]
        none = self.joint.unanswerable(states, start) if self.refuse else start.new_zeros(len(start))
        return {**self.joint.beams(states, scores["allowed"], start, self.beam), "unanswerable": none}


def lowered(text: str) -> str:
    """In lower case, every character in its place: only İ has a longer one."""
    return text.replace("İ", "I").lower()


def _right_tokens(records: QuestionRecords, contexts: TextPieces) -> tuple[Ints, Ints]:
    """The first and the last token of each question's answer, [Q] tokens of its context."""
    tokens = np.full((2, len(records)), NO_ANSWER, np.int64)
    lost, inexact = [], []
    for number, (question, about) in enumerate(zip(records.questions, records.about.tolist(), strict=True)):
        if not question.answers:
            continue
        here = contexts.of(about)
        first, last, exact = _tokens(question, contexts.left[here], contexts.right[here])
        tokens[:, number] = (first, last) if first >= 0 else LOST
        if first < 0:
            lost.append(question.id)
        elif not exact:
            inexact.append(question.id)
    noted = {" held by no token": lost, " beginning or ending inside a token": inexact}
    if lines := [f"{many(len(names), 'answer')}{what} ({shortened(names)})" for what, names in noted.items() if names]:
        say("squad: " + "; ".join(lines))
    return tokens[0], tokens[1]


def _tokens(question: Question, left: Ints, right: Ints) -> tuple[int, int, bool]:
    """Of the first answer that stands in the context."""
    standing = (placed(answer, question.context)[0] for answer in question.answers)
    answer = next((each for each in standing if each), Answer("", 0))
    return answer_tokens(question.context, left, right, answer.start, answer.start + len(answer.text))


def _learnable(cut: QuestionWindows, kept: NDArray[np.bool_]) -> QuestionWindows:
    """The windows of these questions alone."""
    keep = kept[cut.question]
    if not keep.any():
        raise DataError("task.train", "no token holds an answer", "", "look whether tokenizer and data belong together")
    return dataclasses.replace(cut, question=cut.question[keep], first=cut.first[keep], last=cut.last[keep])


def _marks(starts: Ints, begins: Ints, cut: QuestionWindows) -> NDArray[np.int32]:
    """0 at the context's tokens."""
    marks = np.full(int(starts[-1]), NOT_ASKED, np.int32)
    sizes = cut.last - cut.first + 1
    marks[np.repeat(starts[:-1] + begins, sizes) + run(sizes)] = 0
    return marks


def _passages(records: QuestionRecords, more: Arrays) -> list[Passage]:
    starts = more["contexts_begin"].tolist()
    return [
        Passage(each.id, each.context, *(more[side][starts[about] : starts[about + 1]] for side in ("left", "right")))
        for each, about in zip(records.questions, more["about"].tolist(), strict=True)
    ]


def _texts(predictions: Sequence[Answered]) -> dict[str, str]:
    return {one.id: one.text for one in predictions}


def _given(name: str, text: str, null_odds: float | None = None) -> Answered:
    """What someone said of a question, nothing more being known of it."""
    return Answered(name, text, (-1, -1), math.nan, null_odds, [])


def _asked(batch: Batch) -> Tensor:
    """Of which examples it is known what is right, [E]."""
    if batch.labels is None:
        return torch.zeros_like(batch.numbers, dtype=torch.bool)
    return batch.labels[:, 0] >= 0


def _allowed(batch: Batch) -> Tensor:
    """Tokens that may be chosen, [E, L]: the context's, and the first."""
    allowed = by_example(batch.weights, batch) > 0
    allowed[:, 0] = True
    return allowed


def _span_loss(start: Tensor, end: Tensor, labels: Tensor) -> Tensor:
    """Half of the cross-entropies of starts and of ends, summed."""
    both = torch.cat([start, end]), torch.cat([labels[:, 0], labels[:, 1]])
    return F.cross_entropy(*both, ignore_index=-1, reduction="sum") / 2
