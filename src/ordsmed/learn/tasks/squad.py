"""Extractive question answering (SQuAD 1.1 and 2.0), with a choice of two heads.

    question, context -> windows of [CLS] question [SEP] context [SEP] -> scores of starts and ends -> the best span

The first token means "no answer": it is the target in windows without the answer, and in 2.0 for questions without one.
learn/question_answering/ reads files, splits texts into windows and decodes answers.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features
from ordsmed.data.pieces import TextReader
from ordsmed.data.question_windows import Limits
from ordsmed.data.windows import Ints
from ordsmed.learn.joint import NEVER, JointHead
from ordsmed.learn.question_answering import inputs, outputs
from ordsmed.learn.question_answering import records as files
from ordsmed.learn.question_answering.records import QuestionRecords
from ordsmed.learn.score import answers as decode
from ordsmed.learn.score.answers import Answered, Decoding
from ordsmed.learn.task import INITIALIZER_STD, Arrays, Files, Task, TaskSettings, by_example
from ordsmed.learn.upper_layers import width
from ordsmed.learn.usage import Usage, in_python, loaded
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.heads import fresh
from ordsmed.nn.model import ModelSettings
from ordsmed.text.labelled.questions import VERSIONS, Question
from ordsmed.text.read import Errors
from ordsmed.text.tokenizer import Tokenizer

SYNTHETIC_QUESTION = 12  # words
SPECIAL = 3  # tokens around a question and its context
QUESTION, CONTEXT = "What falls?", "It is wet, for rain falls."  # example of the model card


@dataclass(frozen=True, kw_only=True)
class Squad(Files, Choice):
    """Answers that are parts of a text (SQuAD)."""

    record: ClassVar[str] = "f1"
    UNREAD: ClassVar[tuple[str, ...]] = (
        *Files.UNREAD,
        "head",
        "beam",
        "answerable_weight",
        "n_best",
        "longest_answer",
        "search",
        "threshold",
        "whole_words",
    )
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("whole_words", "overlap")
    LATER: ClassVar[tuple[str, ...]] = (
        "train",
        "dev",
        "errors",
        "version",
        "length",
        "stride",
        "overlap",
        "longest_question",
        "lowercase",
        "beam",
        "n_best",
        "longest_answer",
        "search",
        "threshold",
        "whole_words",
    )
    METHOD: ClassVar[str] = "answer"
    VERBS: ClassVar[tuple[str, ...]] = ("answer",)
    EXAMPLE: ClassVar[tuple[str, ...]] = ("Where is it?", "It is here.")
    MADE_UP: ClassVar[str] = "questions.json"
    errors: Errors = "strict"
    """bytes that are not UTF-8: strict: an error; otherwise replaced and counted"""
    version: Literal["1.1", "2.0"] = "1.1"
    """version of SQuAD: all questions have an answer (1.1), or some have none (2.0); elsewhere
    version_2_with_negative"""
    length: int = 384
    """tokens of an example: special tokens, question and a window of the context; elsewhere max_seq_length"""
    stride: int = 128
    """tokens from the start of a window of a long context to the next; elsewhere doc_stride"""
    overlap: bool = False
    """`stride` is the number of tokens that two windows share, as in transformers"""
    longest_question: int = 64
    """maximum tokens of a question; longer ones are truncated; elsewhere max_query_length"""
    lowercase: bool = False
    """lowercase texts before the tokenizer; answers keep the case of the text"""
    head: Literal["independent", "joint"] = "independent"
    """independent: score starts and ends separately; joint: score ends given a start, with beam search"""
    form: Literal["nvidia", "google"] = "nvidia"
    """joint: layers as in NVIDIA's ELECTRA, or as in Google's"""
    beam: int = 5
    """joint: number of starts, and of ends for each start"""
    answerable_weight: float = 0.5
    """joint, 2.0: weight of the loss of recognizing questions without an answer"""
    impossible_windows: bool | None = None
    """joint, 2.0: label windows without the answer as having none; left out: true for NVIDIA's form"""
    n_best: int = 20
    """answers kept for each question, in nbest_predictions.json; elsewhere n_best_size"""
    longest_answer: int = 30
    """longest answer, in tokens; elsewhere max_answer_length"""
    search: Literal["all", "tops"] = "all"
    """independent: search all pairs of a start and an end, or pairs of the n_best starts and ends (reference
    scripts)"""
    threshold: float | Literal["dev"] = 0.0
    """2.0: null odds above which a question gets no answer; "dev": the threshold with the best F1 on the dev files"""
    whole_words: bool = False
    """extend answers that begin or end inside a word to the complete word, in any script"""

    def __post_init__(self) -> None:
        or_more(self, length=2, stride=1, longest_question=1, beam=1, n_best=1, longest_answer=1)
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
        questions = []
        for number, size in enumerate(np.maximum(sizes, 5).tolist()):
            question = min(SYNTHETIC_QUESTION, (size - SPECIAL) // 2)
            context = words(size - SPECIAL - question)
            answers = [{"text": context.split()[0], "answer_start": 0}]
            questions.append({"id": str(number), "question": words(question), "context": context, "answers": answers})
        return json.dumps({"data": questions})

    @property
    def refuse(self) -> bool:
        return self.version == "2.0"

    def records(self, paths: Sequence[str], *, learning: bool = False) -> QuestionRecords:
        records = files.read(paths, self.errors, refuse=self.refuse, learning=learning)
        of_dev = not learning and self.refuse and self.threshold == "dev" and tuple(paths) == self.paths("dev")
        if of_dev and records.known and all(question.answers for question in records.questions):
            problem = '"dev", but no question of the dev files is unanswerable'
            raise RecipeError("task.threshold", problem, "a number such as 0.0, or dev files with such questions")
        return records

    def card_examples(self, records: QuestionRecords) -> dict[str, str]:
        shortest = min(records.questions, key=lambda question: len(question.context), default=None)
        return {QUESTION: shortest.question, CONTEXT: shortest.context} if shortest else {}

    def about(self, questions: Sequence[Question]) -> QuestionRecords:
        return QuestionRecords.of(questions)

    def complete(self, records: QuestionRecords) -> Self:
        if self.refuse and self.threshold == "dev" and not self.paths("dev"):
            raise RecipeError("task.threshold", '"dev", but no dev files', "task.dev, or a number such as 0.0")
        return self

    def features(self, records: QuestionRecords, reader: TextReader) -> Features:
        limits = Limits(self.length, self.stride, self.longest_question, self.overlap)
        impossible = self.form == "nvidia" if self.impossible_windows is None else self.impossible_windows
        return inputs.features(records, reader, limits, lowercase=self.lowercase, impossible_windows=impossible)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Independent | Joint:
        if self.length > model.longest():
            problem = f"{self.length}, more than the model's {model.longest()} positions"
            raise RecipeError("task.length", problem, "", f"use task.length={model.longest()}")
        if self.refuse and model.capabilities.causal:
            problem = '"2.0" with a causal network, whose first token, which means "no answer", sees no text'
            raise RecipeError("task.version", problem, '"1.1", or a bidirectional network')
        return (Joint if self.head == "joint" else Independent)(self, model, tokenizer.vocabulary)

    def predictions(self, records: QuestionRecords, features: Features, answers: Arrays) -> list[Answered]:
        """Return the answers; a threshold "dev" is fitted to these records, which in training are the dev files."""
        return self.fitted(records, features, answers)._decoded(records, features, answers)

    def score(self, records: QuestionRecords, predictions: Sequence[Answered]) -> dict[str, float]:
        return outputs.score(self.version, records, predictions)

    def fitted(self, records: QuestionRecords, features: Features, answers: Arrays) -> Self:
        if not self.refuse or self.threshold != "dev":
            return self
        if not records.known:
            problem = '"dev", but the right answers are not known'
            raise RecipeError("task.threshold", problem, "a number such as 0.0")
        best = outputs.best_threshold(records, self._decoded(records, features, answers))
        return dataclasses.replace(self, threshold=best)

    def _decoded(self, records: QuestionRecords, features: Features, answers: Arrays) -> list[Answered]:
        threshold = 0.0 if self.threshold == "dev" else self.threshold
        decoding = Decoding(self.n_best, self.longest_answer, self.search, self.refuse, threshold, self.whole_words)
        return outputs.decoded(records, features, answers, decoding, joint=self.head == "joint")

    def guesses(self, train: QuestionRecords, records: QuestionRecords) -> list[Answered]:
        """Return the baseline that no question has an answer."""
        return [outputs.only_text(question.id, "") for question in records.questions]

    def write(self, folder: Path, records: QuestionRecords, predictions: Sequence[Answered]) -> list[Path]:
        return decode.write(folder, predictions)

    def read(self, path: Path, records: QuestionRecords) -> list[Answered]:
        return outputs.read(path, refuse=self.refuse)

    def details(
        self, records: QuestionRecords, predictions: Sequence[Answered]
    ) -> list[tuple[str, list[str], list[list[Any]]]]:
        return outputs.details(records, predictions)


class Independent(Task):
    """A head with two scores per token, as the start and as the end of the answer."""

    span: nn.Module
    by_token = ("start", "end")

    def __init__(self, settings: Squad, model: ModelSettings, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        self.weights = {"span": 1.0}
        self.add_head("span", 2)

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {"span": _with_answer(batch).sum(dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        logits = by_example(self.span(self.states(batch)).float(), batch)
        start, end = logits.masked_fill(~_allowed(batch)[..., None], NEVER).unbind(-1)
        return {"start": start, "end": end}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"span": _span_loss(scores["start"], scores["end"], batch.labels)} if batch.labels is not None else {}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return scores

    def usage(self, name: str, tokenizer: Tokenizer, learned: Squad) -> Usage:
        """Return code for a context of one window; current transformers has no pipeline for this task."""
        texts = "question.lower(), context.lower()" if learned.lowercase else "question, context"
        threshold = 0.0 if learned.threshold == "dev" else learned.threshold
        none = f"scores[0, 0] - best.max() > {threshold}"
        answer = "context[offsets[start][0] : offsets[end][1]]"
        answer = f'"no answer" if {none} else {answer}' if learned.refuse else answer
        code = f"""import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

{loaded("AutoModelForQuestionAnswering", name, ".eval()")}\
question, context = "{QUESTION}", "{CONTEXT}"

inputs = tokenizer({texts}, truncation="only_second", max_length={learned.length},
                  return_offsets_mapping=True, return_tensors="pt")
offsets, inside = inputs.pop("offset_mapping")[0].tolist(), torch.tensor([n == 1 for n in inputs.sequence_ids()])
with torch.no_grad():
    output = model(**inputs)
scores = output.start_logits[0][:, None] + output.end_logits[0]
allowed = (inside[:, None] & inside).triu().tril({learned.longest_answer - 1})
best = scores.masked_fill(~allowed, float("-inf"))
start, end = divmod(int(best.argmax()), len(inside))
print({answer})
"""
        none = ", or reports that there is no answer" if learned.refuse else ""
        return Usage("question-answering", f"answers a question by a part of a text{none}", in_python(name, code))


class Joint(Task):
    """A head that scores starts, then ends given a start, and whether there is an answer."""

    def __init__(self, settings: Squad, model: ModelSettings, vocabulary: int) -> None:
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
        return dict.fromkeys(self.weights, _with_answer(batch).sum(dtype=torch.float64))

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        states, allowed = by_example(self.states(batch), batch), _allowed(batch)
        return {"states": states, "allowed": allowed, "start": self.joint.starts(states, allowed)}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        if batch.labels is None:
            return {}
        states, start, answerable = scores["states"], scores["start"], _with_answer(batch)
        right = batch.labels[:, 0].clamp(min=0)
        losses = {"span": _span_loss(start, self.joint.ends(states, scores["allowed"], right), batch.labels)}
        if self.refuse:
            none = self.joint.unanswerable(states, start, right)
            wrong = F.binary_cross_entropy_with_logits(none, batch.labels[:, 2].float(), reduction="none")
            losses["answerable"] = (wrong * answerable).sum()
        return losses

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        states, start = scores["states"], scores["start"]
        none = self.joint.unanswerable(states, start) if self.refuse else start.new_zeros(len(start))
        return {**self.joint.beams(states, scores["allowed"], start, self.beam), "unanswerable": none}


def _with_answer(batch: Batch) -> Tensor:
    """Return which examples have a known label, [E]."""
    if batch.labels is None:
        return torch.zeros_like(batch.numbers, dtype=torch.bool)
    return batch.labels[:, 0] >= 0


def _allowed(batch: Batch) -> Tensor:
    """Return which tokens may be chosen, [E, L]: tokens of the context, and the first token."""
    allowed = by_example(batch.weights, batch) > 0
    allowed[:, 0] = True
    return allowed


def _span_loss(start: Tensor, end: Tensor, labels: Tensor) -> Tensor:
    """Return half of the summed cross-entropies of starts and ends."""
    both = torch.cat([start, end]), torch.cat([labels[:, 0], labels[:, 1]])
    return F.cross_entropy(*both, ignore_index=-1, reduction="sum") / 2
