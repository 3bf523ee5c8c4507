"""Phases: a curriculum as a list. The learning rate schedule restarts at each phase, the optimizer's state is kept.

A phase may read other data and change settings that do not affect the shapes of weights: masking, positions, dropout.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import settings
from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import choices_with_setting, is_choice, kind_of
from ordsmed.base.say import many
from ordsmed.data.batch_sizes import BatchSizes
from ordsmed.data.mix import Mix, Names, listed
from ordsmed.learn.schedules import Schedule, factor

MOST_ROWS = 2**60  # a run counts its rows in 64 bits
EpochSteps = Literal["exact", "up", "down", "records", "whole"]
S = TypeVar("S")
CHANGED = ("data", "mix", "min_length", "objective", "model", "rewarm", "freeze")  # what a phase may override
MAX_SIZES = 10_000  # sizes of a growing batch
OF_NETWORK = ("theta", "local_theta", "rope_scaling", "dropout")  # settings of `model` that a phase may set directly


@dataclass(frozen=True, kw_only=True)
class BatchRamp:
    start: int
    """rows of the first step; equal to `batch`: the batch does not grow"""
    over: float = 0.0
    """when the batch reaches `batch`: after this many steps, or below 1 after this share of the phase; 0: every size,
    `batch` included, gets the same number of steps"""
    by: int = 0
    """rows added at a time; 0: as many as `start`; elsewhere rampup_batch_size is start, by and rows"""

    def __post_init__(self) -> None:
        or_more(self, start=1, by=0)
        if not 0 <= self.over < math.inf or (self.over > 1 and self.over % 1):
            raise ValueError(f"over: found {self.over:g}; wanted steps, 0 or more, or a share of the phase below 1")

    def sizes(self, batch: int, steps: int) -> BatchSizes:
        return _sizes(batch, self.start, self.by or self.start, self.steps(batch, steps))

    def steps(self, batch: int, steps: int) -> int:
        """Return the number of steps before the batch has its full size, in a phase of `steps` steps."""
        smaller = (batch - self.start) // (self.by or self.start)
        return int(self.over) if self.over >= 1 else max(1, round((self.over or smaller / (smaller + 1)) * steps))


_sizes = functools.lru_cache(maxsize=64)(BatchSizes.of)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of training with one row length, batch size and learning rate schedule."""

    steps: int = 0
    """number of updates; elsewhere max_steps, num_train_steps, train_iters"""
    length: int
    """tokens of a row; elsewhere max_seq_length, seq_length, block_size"""
    batch: int
    """rows of a step over all devices; elsewhere batch_size, train_batch_size, global_batch_size"""
    learning_rate: float
    """peak learning rate; elsewhere lr, learning_rate"""
    warmup: float = 0.0
    """steps; below 1: a share of the phase, or of `schedule.over` if it is set;
    elsewhere warmup_steps, warmup_ratio, warmup_proportion, num_warmup_steps"""
    schedule: Schedule = field(default_factory=Schedule)
    """the learning rate after its warm-up; elsewhere lr_scheduler_type, lr_decay_style"""
    pack: bool = True
    """put several short documents into a row, hidden from each other; false: one per row, as in most papers"""
    epochs: float = 0.0
    """number of passes over the data, instead of `steps`; elsewhere num_train_epochs"""
    max_steps: int = 0
    """with `epochs`: the maximum number of steps; 0: no maximum"""
    data: Names | None = None
    """data of this phase instead of the run's `data`: a folder or recipe of `encode`, a list, or weights"""
    mix: Mix | None = None
    """shares of tokens of this phase's data; left out: the run's `mix`"""
    min_length: int = 0
    """read only documents of at least this many tokens, one per row with `pack = false`; 0: all"""
    objective: dict[str, Any] = field(default_factory=dict)
    """settings of the objective that change for this phase: { mask_prob = 0.15 }; `mask_prob` may be set directly"""
    model: dict[str, Any] = field(default_factory=dict)
    """settings of the network that change from this phase on, without a change of its weights: { theta = 160_000 };
    `theta`, `local_theta`, `rope_scaling` and `dropout` may be set directly"""
    rewarm: bool = False
    """reset the optimizer's moments, as if a run started from these weights; needs a warm-up"""
    freeze: tuple[str, ...] = ()
    """weights that are not updated in this phase, as regular expressions: ["model.words", "blocks\\.[0-5]\\."]"""
    batch_ramp: BatchRamp | None = None
    """growth of the batch: { start = 128, over = 0.1 } over the first tenth of the phase; left out: `batch` from the
    first step on"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("max_steps", *CHANGED, "batch_ramp")
    SHORT: ClassVar[dict[str, str]] = {"mask_prob": "objective", **dict.fromkeys(OF_NETWORK, "model")}

    def __post_init__(self) -> None:
        or_more(self, length=1, batch=1)
        if self.epochs and self.steps:
            wanted = "wanted one of the two; `phase.steps=0` removes the steps of a recipe"
            raise ValueError(f"epochs: found {self.epochs:g} and {many(self.steps, 'step')}; {wanted}")
        if self.max_steps < 0 or (self.max_steps and self.steps):
            count = f"{self.max_steps}" + (f" and {many(self.steps, 'step')}" if self.steps else "")
            remedy = "; `phase.max_steps=0` removes that of a recipe" if self.steps else ""
            raise ValueError(f"max_steps: found {count}; wanted 0 or more, with epochs instead of steps{remedy}")
        if self.steps < 1 and not 0 < self.epochs < float("inf"):
            raise ValueError(f"steps: found {self.steps}; wanted 1 or more, or epochs above 0")
        if self.batch * max(self.steps, 1) * self.length > MOST_ROWS:
            most = MOST_ROWS // (self.batch * self.length)
            name = "steps" if most > 0 else "batch" if self.batch > self.length else "length"
            raise ValueError(f"{name}: found {getattr(self, name):,}; wanted less: a run cannot count this many tokens")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate: found {self.learning_rate}; wanted a finite number above 0")
        longest = self.schedule.span(self.steps)
        if not 0 <= self.warmup <= (longest or float("inf")):
            whose = "schedule" if self.schedule.over else "phase"
            wanted = f"at most the {many(longest, 'step')} of the {whose}" if self.warmup > 0 else "0 or more steps"
            raise ValueError(f"warmup: found {self.warmup:g}; wanted {wanted}, or a share of the phase, below 1")
        self._check_changes()

    def _check_changes(self) -> None:
        or_more(self, min_length=0)
        if self.data is not None:
            listed(self.data, self.mix)
        if ramp := self.batch_ramp:
            by, left = ramp.by or ramp.start, self.batch - ramp.start
            if left < 0:
                problem = f"found start {ramp.start:,}, more than the batch of {self.batch:,}"
                raise ValueError(f"batch_ramp: {problem}; wanted at most {self.batch:,}")
            if left % by:
                fitting = next(size for size in range(min(by, left), 0, -1) if left % size == 0)
                problem = f"found start {ramp.start:,}, from which steps of {by:,} do not reach {self.batch:,}"
                raise ValueError(f"batch_ramp: {problem}; wanted `by` = {fitting:,}, or another divisor of {left:,}")
            if left // by > MAX_SIZES:
                raise ValueError(f"batch_ramp: found by {by:,}; wanted more, for at most {MAX_SIZES:,} sizes")
        if self.rewarm and not self.warmup:
            raise ValueError("rewarm: found true without a warm-up; wanted `warmup`, above 0")
        for pattern in self.freeze:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"freeze: found {pattern}, {error}; wanted regular expressions") from None

    @property
    def rows(self) -> int:
        return self.rows_of(self.steps)[0]

    @property
    def sizes(self) -> BatchSizes | None:
        return self.batch_ramp.sizes(self.batch, self.steps) if self.batch_ramp else None

    def rows_of(self, step: int) -> tuple[int, int]:
        """Return the first row of a step (0 is the first step) and the number of its rows."""
        return sizes.at(step) if (sizes := self.sizes) else (step * self.batch, self.batch)

    @property
    def ramp_steps(self) -> int:
        """Return the number of steps before the batch has its full size; 0 if the batch does not grow."""
        return self.batch_ramp.steps(self.batch, self.steps) if self.batch_ramp else 0

    @property
    def whole_steps(self) -> float:
        """Return the rows of the phase divided by the full batch, to which its cost is proportional."""
        return self.rows / self.batch

    @property
    def unit(self) -> int:
        """Return the largest number of rows that divides the batch of every step, even while it grows."""
        ramp = self.batch_ramp
        return math.gcd(ramp.start, ramp.by or ramp.start) if ramp else self.batch

    def with_fixed_ramp(self) -> Phase:
        """Return this phase with its batch ramp fixed to a number of steps.

        Changing the number of steps then does not change the batch sizes of past steps.
        """
        if not self.batch_ramp:
            return self
        return replace(self, batch_ramp=replace(self.batch_ramp, over=float(self.ramp_steps)))

    def rate_at(self, step: int) -> float:
        return self.learning_rate * factor(self.schedule, step, self.steps, self.warmup)

    def freezes(self, name: str) -> bool:
        return any(re.search(pattern, name) for pattern in self.freeze)


def changed(usual: S, table: Mapping[str, Any], location: str, menu: str) -> S:
    """Return `usual` with the settings of `table`; raise an error for a setting that a phase may not change.

    A phase may change the settings in `CHANGES` of the choice `usual` of `menu`, and the dropout of networks.
    """
    if not table:
        return usual
    table = settings.with_present_names(type(usual), table, location)
    names = [f.name for f in fields(usual)]  # type: ignore[arg-type]
    free = [n for n in names if n in getattr(usual, "CHANGES", ()) or (menu == "models" and n.endswith("dropout"))]
    for key in table:
        if key not in free:
            called = kind_of(usual) if is_choice(usual) else type(usual).__name__
            problem = f"{called} has no such setting" if key not in names else f"{called} cannot change it during a run"
            wanted = f"one that a phase may change: {', '.join(free)}" if free else "none: it has no CHANGES"
            raise RecipeError(
                f"{location}.{key}", problem, wanted, "" if key in names else choices_with_setting(menu, key)
            )
    whole = {name: value for name, value in settings.plain(usual).items() if name != "kind"}
    try:
        return settings.decode(type(usual), {**whole, **table}, location)
    except RecipeError as error:  # decode() puts the key after a colon; here it follows a period
        key = error.place.removeprefix(f"{location}: ")
        raise RecipeError(f"{location}.{key}", error.found, error.wanted, error.remedy) from None


def epoch_length(rule: EpochSteps, batch: int, examples: int, records: int) -> float:
    filled = -(-examples // batch)
    whole = {"up": filled, "whole": filled, "down": max(examples // batch, 1), "records": records / batch}
    return whole.get(rule, examples / batch)


def steps_of_epochs(epochs: float, batch: int, examples: int, rule: EpochSteps = "exact", records: int = 0) -> int:
    """Return the steps of `epochs` epochs, at least 1.

    The rule `exact` rounds to the nearest step and `whole` rounds up; the others drop an incomplete last step.
    """
    if rule == "exact":
        return max(1, round(epochs * examples / batch))
    steps = epoch_length(rule, batch, examples, records) * epochs
    return max(1, math.ceil(steps) if rule == "whole" else int(steps))


def steps_of_rows(phase: Phase, rows: float) -> int:
    """Return the number of steps, at least 1, in which a phase reads about `rows` rows."""
    if not phase.batch_ramp:
        return max(1, round(rows / phase.batch))
    low, high = 1, max(1, math.ceil(rows / phase.batch_ramp.start))
    while low < high:
        middle = (low + high) // 2
        enough = phase.batch_ramp.sizes(phase.batch, middle).at(middle)[0] >= rows
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def locate(phases: Sequence[Phase], step: int) -> tuple[int, int]:
    """Return a step of the run (0 is the first) as (phase, step in it); past the end: (number of phases, 0)."""
    for index, phase in enumerate(phases):
        if step < phase.steps:
            return index, step
        step -= phase.steps
    return len(phases), 0


def total(phases: Sequence[Phase]) -> int:
    return sum(phase.steps for phase in phases)


@dataclass(frozen=True)
class Stretch:
    """The part of a run that a phase covers, for settings that change over the run."""

    start: float
    """share of the run's rows that are read before the phase"""
    end: float
    """share of the run's rows that are read up to its end"""
    rows: int
    """rows of the phase"""
    validating: bool = False
    """whether rows are for validation, which scores every task of the objective"""

    @staticmethod
    def of(phases: Sequence[Phase], index: int) -> Stretch:
        counts = [phase.rows for phase in phases]
        whole = sum(counts)
        return Stretch(sum(counts[:index]) / whole, sum(counts[: index + 1]) / whole, counts[index])

    def progress(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the progress of the run, from 0 to 1, at each of these rows of the phase."""
        return self.start + (self.end - self.start) * np.minimum(numbers / self.rows, 1.0)


OVER = Stretch(1.0, 1.0, 1, validating=True)  # the end of a run, for its validation
