"""The recipe of a fine-tuning: the task, the pretrained network, the schedule, and the trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from ordsmed.base.menu import Menu, load
from ordsmed.learn.phases import EpochSteps, Phase, epoch_length, steps_of_epochs
from ordsmed.learn.schedules import Schedule
from ordsmed.learn.task import TaskSettings
from ordsmed.nn.adapters import Adapters
from ordsmed.nn.model import NARROW, ModelSettings
from ordsmed.text import read
from ordsmed.train.average import Tail
from ordsmed.train.scores import numbers
from ordsmed.train.training import Training, check_axes

MOST = 10**9  # steps, examples a step, or epochs


@dataclass(frozen=True, kw_only=True)
class Finetuning(Training):
    """Train a pretrained network for a task."""

    task: Annotated[Any, Menu("tasks")]
    """the task, with its files"""
    step: int | Literal["all"] | None = None
    """checkpoint of the run `init` to start from; all: one trial from each; left out: the last one"""
    fresh: bool = False
    """start from random weights instead of those of `init`, as a baseline for pretraining"""
    fresh_head: bool = False
    """start from a random head; false: a head of `init` for the same kind of task is trained further, label by label"""
    tokenizer: str | None = None
    """folder, file or recipe of the tokenizer; left out: that of `init`"""
    epochs: float = 3.0
    """epochs over the training data; elsewhere num_train_epochs"""
    steps: int = 0
    """number of steps, instead of epochs; elsewhere max_steps"""
    epoch_steps: EpochSteps = "exact"
    """how epochs become steps: exact: examples divided by the batch size, rounded; up: each epoch rounded up (Google's
    ELECTRA); down: each rounded down (NVIDIA's); records: counted in entries of the files, whose long texts are
    several examples (Google's BERT); whole: as up, with the last part of an epoch rounded up too (transformers). A
    warm-up that is a share is rounded down, for whole up, and not for exact"""
    course: Literal["steps", "epochs"] = "steps"
    """epochs: the schedule spans all of `epochs` and one more step, and `steps` limits the run (NVIDIA's); steps: it
    spans the run"""
    batch: int = 32
    """examples of a step over all devices; elsewhere batch_size, train_batch_size"""
    learning_rate: float | None = None
    """peak learning rate; left out: as the family is usually fine-tuned, like warmup, layer_decay and freeze; elsewhere
    lr, learning_rate"""
    warmup: float | None = None
    """warm-up: 1 and more: steps; below 1: a share of all steps; elsewhere warmup_steps, warmup_ratio,
    warmup_proportion"""
    schedule: Schedule = field(default_factory=Schedule)
    """schedule of the learning rate after its warm-up"""
    layer_decay: float | None = None  # type: ignore[assignment]
    """learning rate of a layer as a share of that of the layer above it; 1: the same for all layers"""
    freeze: bool | None = None
    """train only the head"""
    adapters: Adapters | None = None
    """train low-rank adapters instead of the network's weights, to save memory"""
    checks: int = 1
    """validations and checkpoints in each epoch"""
    save: int = 0
    """steps between additional checkpoints for resuming; 0: none; elsewhere save_steps"""
    best: str = ""
    """score that selects the best checkpoint; left out: the task's score"""
    patience: int = 0
    """stop after this many validations without a better score; 0: never; elsewhere early_stopping_patience"""
    features: str = "work/features"
    """folder that caches tokenized examples for later runs; empty: no cache"""
    seeds: tuple[int, ...] = ()
    """train one trial with each seed, and report mean and deviation; left out: one run with `seed`"""
    grid: dict[str, Any] = field(default_factory=dict)
    """train one trial with each combination: { learning_rate = [3e-5, 5e-5], task.length = [128, 256] }; any setting"""
    jobs: int = 0
    """trials at a time; 0: one for each GPU, on a CPU one for every two cores"""
    examples: int = 0
    """number of training examples; counted by the program, not to be set"""
    records: int = 0
    """number of entries in the training files, if `epoch_steps` counts them; counted by the program, not to be set"""

    verb: ClassVar[str] = "finetune"
    HOW: ClassVar[tuple[str, ...]] = (*Training.HOW, "jobs", "features")
    LATER_ADDED: ClassVar[tuple[str, ...]] = (*Training.LATER_ADDED, "fresh_head", "epoch_steps", "course", "records")

    def __post_init__(self) -> None:
        if self.init is None and (self.model is None or self.tokenizer is None):
            raise ValueError("init: missing; wanted a pretrained model, or [model] and a tokenizer for random weights")
        if isinstance(self.average, Tail):
            raise ValueError(
                "average: found a table; wanted a number, because a fine-tuning uses its best checkpoint, not the last"
            )
        if not self.task.paths("train"):
            raise ValueError("task.train: missing; wanted files to learn from")
        for name in ("batch", "checks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")
        for name in ("steps", "save", "patience", "jobs"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 0 or more")
        for name in ("steps", "batch"):
            if getattr(self, name) > MOST:
                raise ValueError(f"{name}: found {getattr(self, name):,}; wanted at most {MOST:,}")
        if not self.steps and not 0 < self.epochs < MOST:
            raise ValueError(f"epochs: found {self.epochs}; wanted above 0, to {MOST:,}")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate: found {self.learning_rate}; wanted a finite number above 0")
        longest = self.run_schedule().span(self.updates)
        if self.warmup is not None and not 0 <= self.warmup <= (longest or math.inf):
            raise ValueError(f"warmup: found {self.warmup:g}; wanted 0 to {longest or 'all'} steps")
        if self.task.length < 1:
            raise ValueError(f"task.length: found {self.task.length}; wanted 1 or more")
        if isinstance(self.step, int) and self.init is None:
            raise ValueError(f"step: found {self.step} without init; wanted a run as `init`")
        if self.patience and not self.task.paths("dev"):
            raise ValueError(f"patience: found {self.patience} without task.dev; wanted files for validation")
        object.__setattr__(self, "grid", check_axes(self.seeds, self.grid))
        if self.complete:
            super().__post_init__()
        else:  # check the other settings now, before the family fills in these
            decay = 1.0 if self.layer_decay is None else self.layer_decay
            optimizer = self.optimizer or load("optimizers", "adamw")()
            replace(self, learning_rate=1.0, warmup=0.0, layer_decay=decay, freeze=False, optimizer=optimizer)

    @property
    def several(self) -> bool:
        return super().several or self.step == "all"

    @property
    def complete(self) -> bool:
        """Whether no setting is left to the network's family, as in the recipe of a run's folder."""
        return None not in (self.learning_rate, self.warmup, self.layer_decay, self.freeze, self.optimizer)

    def fill_defaults(self, network: ModelSettings, head: TaskSettings | None = None) -> Finetuning:
        """Return the recipe with missing settings filled in from the network's family.

        `head` is the task of a head that is trained further. A complete recipe gets only its network.
        """
        if self.complete:
            return replace(self, model=network)
        usual = network.tuning()
        narrow = not usual.freeze and network.width < NARROW
        defaults = {
            "learning_rate": usual.learning_rate * (self.task.NARROW_SHARE if narrow else 1.0),
            "warmup": usual.warmup,
            "layer_decay": usual.layer_decay,
            "freeze": usual.freeze,
        }
        chosen: dict[str, Any] = {k: v for k, v in defaults.items() if getattr(self, k) is None}
        if self.optimizer is None:
            chosen["optimizer"] = load("optimizers", "adamw")(decay=usual.decay, betas=usual.betas, epsilon=1e-6)
        return replace(self, model=network, task=self.task.fill_pool(usual.pool, head), **chosen)

    @property
    def objective(self) -> TaskSettings:
        task: TaskSettings = self.task
        return task

    @property
    def updates(self) -> int:
        """The number of steps; 0: the examples are not counted yet."""
        if not self.examples:
            return self.steps
        whole = steps_of_epochs(self.epochs, self.batch, self.examples, self.epoch_steps, self.records)
        return min(self.steps or whole, whole) if self.course == "epochs" else self.steps or whole

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The only phase, in steps once the examples are counted."""
        steps = self.updates
        return (
            Phase(
                steps=steps,
                epochs=0.0 if steps else self.epochs,
                length=self.task.length,
                batch=self.batch,
                learning_rate=self.learning_rate or 1.0,
                warmup=self._warmup_steps(),
                schedule=self.run_schedule(),
            ),
        )

    def with_phases(self, phases: Sequence[Phase]) -> Finetuning:
        (phase,) = phases
        return replace(self, steps=phase.steps, course="steps", warmup=phase.warmup, schedule=phase.schedule)

    def run_schedule(self) -> Schedule:
        if self.course == "steps" or not self.examples:
            return self.schedule
        return replace(self.schedule, over=int(self.epochs * self.examples / self.batch) + 1)

    def _warmup_steps(self) -> float:
        """Return the warm-up; if `epoch_steps` follows another program, a share is rounded to steps as there."""
        warmup = self.warmup or 0.0
        if self.epoch_steps == "exact" or warmup >= 1 or not self.updates:
            return warmup
        rise = warmup * self.run_schedule().span(self.updates)
        return float(math.ceil(rise) if self.epoch_steps == "whole" else int(rise))

    @property
    def score(self) -> str:
        return self.best or str(self.task.record)

    @property
    def epoch(self) -> float:
        return epoch_length(self.epoch_steps, self.batch, self.examples, self.records)

    @property
    def validation_interval(self) -> int:
        return max(1, round(self.epoch / self.checks))

    def validates(self, step: int) -> bool:
        interval = max(self.epoch / self.checks, 1.0)  # steps between checks, not always a whole number
        whole = round if self.epoch_steps == "exact" else int
        return any(whole(count * interval) == step for count in (int(step / interval), int(step / interval) + 1))

    def is_saved(self, step: int) -> bool:
        return self.validates(step) or (self.save > 0 and step % self.save == 0)

    def is_revision(self, step: int) -> bool:
        return False

    def is_enough(self, validations: Sequence[Mapping[str, Any]]) -> bool:
        best = self.best_of(validations)
        return bool(self.patience and best and sum(line["step"] > best for line in validations) >= self.patience)

    def best_of(self, validations: Sequence[Mapping[str, Any]]) -> int:
        """Return the step of the best validation, the first of equals; 0: none has scores."""
        scored = [line for line in validations if self.score in line and not math.isnan(line[self.score])]
        return int(max(scored, key=lambda line: (line[self.score], -line["step"]))["step"]) if scored else 0

    def alone(self) -> Finetuning:
        return replace(super().alone(), step=None if self.step == "all" else self.step)

    def compared_by(self, facts: Mapping[str, Any]) -> dict[str, float]:
        return numbers(facts)

    def learned(self) -> dict[str, Any]:
        return {"task": self.task}

    def stamp(self) -> list[Any]:
        """Return paths, sizes and modification times of the task's files."""
        paths = [path for split in ("train", "dev") for path in self.task.paths(split)]
        return read.stamp(read.files(paths))
