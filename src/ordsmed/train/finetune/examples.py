"""Examples: the data of a fine-tuning, read from a task's files, cached on disk as features, and validated."""

from __future__ import annotations

import functools
import time
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files, run, settings
from ordsmed.base.errors import DataError, RecipeError, nearest
from ordsmed.base.keys import value_key
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import on_rank0
from ordsmed.base.say import detail
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.data.unknown import MOST
from ordsmed.learn.inference import predict_all
from ordsmed.learn.task import Renewing, Task, TaskSettings, packing, reader
from ordsmed.nn.model import ModelSettings
from ordsmed.text import read
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.job import Job
from ordsmed.train.mesh.precision import autocast

UNCOMPARED = ("total", "thresh", "_error")  # endings of names of scores for which more is not better
CHOSEN = "chosen"  # folder in a run with the examples chosen by its model, by step
FORMAT = 2  # version of the features on disk


@dataclass(frozen=True)
class TaskSplit:
    """One split of a task: the records of its files, and the network's features for them."""

    records: Sized
    features: Features


@dataclass
class TaskData:
    task: TaskSettings  # settings, completed by the data
    tokenizer: Tokenizer
    packing: Packing
    seed: int
    train: TaskSplit
    dev: TaskSplit | None
    batch: int = 1  # examples per step
    chosen: Features | None = None  # the examples chosen by the model, if it chooses

    @staticmethod
    def of(
        task: TaskSettings,
        network: ModelSettings,
        tokenizer: Tokenizer,
        seed: int,
        cache: str,
        max_unknown: float = MOST,
    ) -> TaskData:
        """Read the files of a task; if the recipe names no labels, they are those of the training data."""
        task, learning, judging = records_of(task)
        make = functools.partial(_split, task, network, tokenizer, cache, max_unknown=max_unknown)
        train = make("train", learning)
        dev = None if judging is None else make("dev", judging)
        if not len(train.features):
            raise DataError(", ".join(task.paths("train")), "no training example", "one or more")
        return TaskData(task, tokenizer, packing(tokenizer, network), seed, train, dev)

    def rows(self, index: int, before: int = 0) -> ExampleRows:
        features = self.train.features if self.chosen is None else self.chosen
        return self.task.rows(features, self.packing, self.batch, self.seed, index + before)

    def renew(self, job: Job, folder: Path, index: int, inner: int) -> int:
        """Let the model choose its training examples. The choice is saved for a resumed run."""
        task, recipe, steps = self.task, job.recipe, job.phases[index].steps
        assert isinstance(recipe, Finetuning)
        if not isinstance(task, Renewing) or (every := task.renewal(recipe.epoch)) is None:
            return steps
        begin = inner - inner % every if every else 0
        path = folder / CHOSEN / f"{begin:08d}.npy"
        if inner == begin:
            self._choose(task, job, path, begin)
        chosen = files.mapped(path, "what the run learns from", "restore it, or start again with --anew")
        self.chosen = task.with_chosen(self.train.features, chosen)
        return min(begin + every, steps) if every else steps

    def _choose(self, task: Renewing[Any], job: Job, path: Path, step: int) -> None:
        objective = job.objective
        assert isinstance(objective, Task)
        within = functools.partial(autocast, job.recipe.layout, job.ranks.device)
        options = {"within": within, "done": lambda _: job.state.tell("choosing examples")}
        answers, _ = predict_all(objective, self.train.features, self.packing, job.ranks, **options)  # type: ignore[arg-type]

        def keep() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.writing(path) as file:
                np.save(file, task.chosen(self.train.records, answers, self.seed, step))

        on_rank0(job.ranks, keep)

    def row_length(self, index: int) -> int:
        return max(1, round(self.rows(index).tokens))

    def validate(self, job: Job, index: int) -> dict[str, float]:
        if self.dev is None:
            return {}
        dev, task, objective, recipe = self.dev, self.task, job.objective, job.recipe
        assert isinstance(objective, Task)
        assert isinstance(recipe, Finetuning)
        within = functools.partial(autocast, job.recipe.layout, job.ranks.device)
        answers, means = predict_all(
            objective,
            dev.features,
            self.packing,
            job.ranks,
            within=within,
            done=lambda _: job.state.tell("judging"),  # a rank with many examples is not hanging
        )
        means |= task.losses(dev.features, answers)
        loss = sum(weight * means[term] for term, weight in objective.weights.items() if term in means)

        def scored() -> dict[str, float]:
            scores: dict[str, float] = task.score(dev.records, task.predictions(dev.records, dev.features, answers))
            self._check(scores, recipe.score)
            return scores

        return {"validation": loss, **on_rank0(job.ranks, scored)}

    def validation_seconds(self, job: Job) -> float:
        began = time.perf_counter()
        self.validate(job, 0)
        return time.perf_counter() - began if self.dev is not None else 0.0

    def check(self, score: str) -> None:
        """Raise an error if the dev files have no answers, or if the task has no `score` of which more is better.

        The names of the scores are found by scoring the predictions of the task's baseline. If the task has no
        baseline, only missing answers are found.
        """
        if self.dev is None:
            return
        guessed = self.task.guesses(self.train.records, self.dev.records)
        if guessed is not None:
            self._check(self.task.score(self.dev.records, guessed), score)
        elif self.dev.features.labels is None:
            self._check({}, score)

    def _check(self, scores: dict[str, float], score: str) -> None:
        if not scores:
            raise DataError(
                ", ".join(self.task.paths("dev")),
                "have no answers",
                "files for validation",
                "leave task.dev out, and run `ordsmed predict` on these files afterwards",
            )
        better = [name for name in scores if not name.endswith(UNCOMPARED)]
        if score not in better:
            raise RecipeError("best", f"found {score}", "a score for which higher is better", nearest(score, better))

    def describe(self, job: Job, found: dict[str, float]) -> str:
        scores = {k: v for k, v in found.items() if k != "validation" and not k.endswith(UNCOMPARED)}
        first = {self.task.record: scores.pop(self.task.record), **scores}  # it compares checkpoints
        listed = ", ".join(f"{name} {value:.2f}" for name, value in list(first.items())[:4])
        return f"dev loss {found['validation']:.4f} ({listed})"

    def facts(self) -> dict[str, Any]:
        splits = {"train": self.train, "dev": self.dev}
        same = self.task.paths("train") == self.task.paths("dev")  # a column separates the splits
        return {
            ", ".join(self.task.paths(name)) + (f" ({name})" if same else ""): {
                "split": name,
                "records": len(split.records),
                "examples": len(split.features),
                "tokens": len(split.features.ids),
                "longest": int(split.features.sizes.max(initial=0)),
            }
            for name, split in splits.items()
            if split is not None
        }


def records_of(task: TaskSettings) -> tuple[TaskSettings, Sized, Sized | None]:
    """Return the task completed by its training data, its training records and its dev records."""
    learning = task.records(task.paths("train"), learning=True)
    task = task.complete(learning)
    return task, learning, task.records(task.paths("dev")) if task.paths("dev") else None


def _split(
    task: TaskSettings,
    network: ModelSettings,
    tokenizer: Tokenizer,
    cache: str,
    name: str,
    records: Sized,
    max_unknown: float = MOST,
) -> TaskSplit:
    """Return the features of a split, cached on disk if `cache` is set; raise if too many tokens are unknown."""
    location, features = ", ".join(task.paths(name)), reader(tokenizer, network)
    if not cache:
        fresh = task.features(records, features)
        features.unknown.check(location, max_unknown)
        return TaskSplit(records, fresh)
    essence = {k: v for k, v in settings.plain(task, essence=True).items() if k not in task.UNREAD}
    stamps = read.stamp(read.files(task.paths(name)))
    described = [FORMAT, name, essence, stamps, tokenizer.fingerprint, features.types, features.causal]
    key = value_key(described, 16)
    folder = Path(cache) / f"{kind_of(task)}-{name}-{key}"
    if folder.is_dir():
        detail(f"{folder}: cached features are used")
        features.unknown.count(Features.open(folder).ids, tokenizer)
        features.unknown.check(location, max_unknown)
    else:
        with run.locked(folder):
            if not folder.is_dir():  # another process may have made them meanwhile
                fresh = task.features(records, features)
                features.unknown.check(location, max_unknown)
                fresh.save(folder)
    return TaskSplit(records, Features.open(folder))
