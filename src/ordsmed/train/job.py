"""A job: everything that one training run needs, built from its recipe, equal on every rank.

plan -> data, objective (networks) -> spread over the mesh -> optimizer -> Job
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from ordsmed.base.errors import RecipeError, Trouble
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.data.loader import Share
from ordsmed.data.rows import Rows
from ordsmed.data.word_counts import WordsSeen, passed
from ordsmed.learn.groups import groups
from ordsmed.learn.objective import Objective
from ordsmed.learn.phases import Phase
from ordsmed.learn.updates import squared_norms
from ordsmed.nn import products
from ordsmed.nn.kernel_shapes import shapes_of
from ordsmed.nn.kernels import switch
from ordsmed.nn.model import own_tensors
from ordsmed.nn.shards import LocalParameter, is_sharded
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import average
from ordsmed.train.guard import Guard, LossHistory
from ordsmed.train.mesh import parallel, precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.parallel import Parallel
from ordsmed.train.mesh.precision import Scaler
from ordsmed.train.training import Training
from ordsmed.weights import weights


class TrainingData(Protocol):
    tokenizer: Tokenizer

    def rows(self, index: int, before: int) -> Rows:
        """Return the training rows of a phase; `before` counts the phases of the run that this run started from."""

    def renew(self, job: Job, folder: Path, index: int, inner: int) -> int:
        """Choose the data from step `inner` of a phase on; return the step of the phase up to which it is used."""

    def row_length(self, index: int) -> int:
        """Return the mean number of tokens of a row in a phase."""

    def validate(self, job: Job, index: int) -> dict[str, float]:
        """Return the validation scores with the loss as `validation`; empty if no data are held out."""

    def validation_seconds(self, job: Job) -> float:
        """Return the seconds of a validation, estimated from a part of it; 0 if no data are held out."""

    def describe(self, job: Job, scores: dict[str, float]) -> str:
        """Return validation scores as text."""

    def facts(self) -> dict[str, Any]:
        """Return the facts for data.json in the run's folder, by the names of the data in the recipe."""


@dataclass
class Vote:
    """Whether to stop the run. Ranks receive signals at different times and must stop after the same step."""

    received: int = 0  # the signal that this rank received
    any_rank: bool | None = None  # whether any rank did; None: there is one rank
    rows_missing: bool = False  # the signal came while the rows of a step were made, so some are missing

    def result(self, received: int) -> int:
        """Return the signal to stop by after this step; 0: continue."""
        if self.any_rank is None:
            return received
        return (received or signal.SIGTERM) if self.any_rank else 0


class Replanner(Protocol):
    plans: list[dict[str, Any]]  # changes of plan: after which step, old plan, new plan

    def replan(self, job: Job, step: int, seconds: float) -> list[list[float]] | None:
        """Return the steps and warm-up of every phase from now on, or None if they do not change."""


@dataclass
class RunState:
    losses: LossHistory
    vote: Vote = field(default_factory=Vote)
    deadline: Replanner | None = None  # the deadline and the plans made for it
    tell: Callable[[str], None] = lambda stage: None  # reports to the watch what this rank does now
    validations: list[dict[str, Any]] = field(default_factory=list)  # the scores so far, each with its step
    left_out: list[dict[str, Any]] = field(default_factory=list)  # ranges of skipped steps, each with the reason
    ends: list[int] = field(default_factory=list)  # steps at which the run was finished before an extension
    words: int | None = 0  # words of text seen, repetitions included; None: unknown
    reached: list[str] = field(default_factory=list)  # labels of the word counts reached by the last step


@dataclass(frozen=True)
class Job:
    recipe: Training
    ranks: Ranks
    data: TrainingData
    objective: Objective
    optimizer: torch.optim.Optimizer
    parallel: Parallel
    scaler: Scaler
    precision: str  # the precision and its reason, as text
    state: RunState = field(default_factory=lambda: RunState(LossHistory(Guard())))
    phases_before: int = 0  # phases of the run that this one starts from: random numbers continue from there
    began_with: str = ""  # digest of the initial weights; empty: the run is resumed
    starts_trained: bool = False  # starts from trained weights, so validate before the first step
    initial_facts: dict[str, Any] = field(default_factory=dict)  # facts about the initial weights for the run's status
    kernels: str = ""  # this project's kernels in use, as text; empty on a CPU
    by_phase: tuple[Objective, ...] = ()  # networks without data, with the settings of each phase; empty: all are equal

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.recipe.phases

    @property
    def tokenizer(self) -> Tokenizer:
        return self.data.tokenizer

    def rows(self, index: int) -> Rows:
        return self.data.rows(index, self.phases_before)

    def share(self, index: int) -> Share:
        ranks, layout = self.ranks, self.recipe.layout
        return layout.share(self.phases[index], index + 1, ranks.device.type, ranks.data_rank, ranks.data_world)

    def flops(self, index: int) -> float:
        objective = self.by_phase[index] if self.by_phase else self.objective
        return objective.flops(self.phases[index].batch, self.data.row_length(index))

    def begin_phase(self, index: int, *, new: bool = False) -> None:
        """Apply the settings of a phase to the networks. `new`: the phase is at its first step."""
        index = min(index, len(self.phases) - 1)
        if self.by_phase:
            self.objective.take_settings(self.by_phase[index])
        if self.skips_frozen_gradients:
            learning = {id(part) for part in self.learning(index)}
            for part in self.parts:
                part.whole.requires_grad_(id(part) in learning)
        if new and self.phases[index].rewarm:
            average.forget_moments(self.optimizer)

    @property
    def skips_frozen_gradients(self) -> bool:
        """Whether to compute no gradients for frozen weights; only if that does not change other results.

        It does change results if FSDP2 handles the weights, and if a compiler fuses operations differently. It also
        does for bf16 attention on a CPU, which uses another kernel if nothing is trained.
        """
        layout, split = self.recipe.layout, any(is_sharded(part.whole) for part in self.parts)
        in_half = layout.half and self.ranks.device.type == "cpu"
        return any(phase.freeze for phase in self.phases) and not (split or in_half or layout.compile)

    def learning(self, index: int) -> list[LocalParameter]:
        return [part for part in self.parts if not self.phases[index].freezes(part.name)]

    def count_words(self, words: int | None) -> None:
        """Add the words of a finished step to the count of words; None: unknown."""
        state = self.state
        before, state.words = state.words, None if None in (words, state.words) else (state.words or 0) + (words or 0)
        state.reached = passed(self.recipe.revision_words, before, state.words)

    def carry(self, index: int) -> None:
        """Reset the states that the objective carries between steps, for this process's rows of a phase."""
        share = self.share(index)
        rows = share.batch // share.world
        self.objective.begin(share.rank * rows, rows)

    @property
    def parts(self) -> list[LocalParameter]:
        return [part for group in self.optimizer.param_groups for part in group["parts"]]

    @property
    def is_enough(self) -> bool:
        """Whether to stop early, by the validations since the run was last extended."""
        since = self.state.ends[-1] if self.state.ends else -1
        return self.recipe.is_enough([line for line in self.state.validations if line["step"] > since])

    def skip_steps(self, folder: Path, first: int, last: int, reason: str) -> None:
        """Mark steps `first` to `last` as skipped, also in the run's status."""
        if len(self.state.left_out) >= self.recipe.trouble.most:
            problem = f"{reason}; steps were skipped {many(len(self.state.left_out), 'time')} before"
            wanted = f"at most {self.recipe.trouble.most} (trouble.most)"
            raise Trouble(f"{folder}: step {last}", problem, wanted)
        stretch = f"steps {first} to {last} are" if first < last else f"step {last} is"
        say(f"step {last}: {reason}: {stretch} skipped")
        self.state.left_out.append({"first": first, "last": last, "why": reason})
        if self.ranks.first:
            Run(folder).set(left_out=self.state.left_out)

    @property
    def finite(self) -> bool:
        parts = self.parts
        return bool(torch.isfinite(squared_norms([part.local.detach() for part in parts], parts)).all())

    def is_skipped(self, step: int) -> bool:
        return any(stretch["first"] <= step <= stretch["last"] for stretch in self.state.left_out)

    @property
    def workers(self) -> int:
        wanted = self.recipe.layout.workers
        return wanted if wanted >= 0 else min(8, self.ranks.threads - 1) if self.ranks.device.type == "cuda" else 0


def check_decay(job: Job) -> None:
    if job.recipe.decay_schedule == "constant" or any(
        group.get("weight_decay") for group in job.optimizer.param_groups
    ):
        return
    problem = f"found a schedule, but {kind_of(job.recipe.optimizer)} has no weight decay"
    raise RecipeError("decay_schedule", problem, "`optimizer.decay` above 0, or no schedule")


def check_word_count(job: Job, resume_state: Mapping[str, Any] | None) -> None:
    """Raise a `RecipeError` if weights are kept by words seen, but words cannot be counted."""
    if not job.recipe.revision_words:
        return
    if resume_state and resume_state.get("words") is None:
        problem = f"the run is resumed from step {resume_state['step']}, and no words were counted before it"
        raise RecipeError("revisions_at_words", problem, "", "start a new run, or name steps: `revisions`")
    for index in range(len(job.phases)):
        if WordsSeen.of(job.rows(index)) is None:
            problem = f"words of phase {index + 1} cannot be counted: its rows mix two kinds, or its data lack counts"
            remedy = "encode the corpus again (older and imported data have none), or name steps: `revisions`"
            raise RecipeError("revisions_at_words", problem, "", remedy)


def check_frozen(phases: Sequence[Phase], names: Sequence[str]) -> None:
    """Raise a `RecipeError` if a frozen name matches no weight in `names`, or if all weights are frozen."""
    for index, phase in enumerate(phases):
        location = f"phase[{index + 1}].freeze"
        for pattern in phase.freeze:
            if not any(re.search(pattern, name) for name in names):
                remedy = "weights are named like " + ", ".join(f"`{name}`" for name in names[:3])
                raise RecipeError(location, f"found {pattern}, which matches no weight", "", remedy)
        if all(map(phase.freezes, names)):
            raise RecipeError(location, "found all weights", "a pattern that leaves some weights trained")


def _choose_kernels(layout: Layout, ranks: Ranks, objective: Objective) -> str:
    """Switch on the kernels that the layout allows, and describe them in a line; empty: torch's kernels."""
    products_used = products.begin(layout.kernels)
    dtype = precision.DTYPES.get(layout.precision, torch.float32)
    shapes = shapes_of(objective, dtype, layout.exact if layout.half else ())
    kernels_used = switch.begin(layout.kernels, ranks.device, shapes, ranks)
    return kernels_used if ranks.device.type != "cpu" else "" if layout.half else products_used


def assemble(
    recipe: Training, ranks: Ranks, data: TrainingData, networks: Callable[[], Objective], *, new: bool
) -> Job:
    """Build the networks, spread them over the mesh, and return a job with their optimizer.

    `new`: the weights are the initial weights of the run, so their digest is recorded.
    """
    if recipe.layout.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it to be deterministic
        torch.use_deterministic_algorithms(True)
    note = precision.set_up(recipe.layout, ranks.device)
    objective = networks()
    kernels = _choose_kernels(recipe.layout, ranks, objective)
    began_with = weights.digest(own_tensors(objective)) if new and ranks.first else ""
    precision.return_half(objective, recipe.layout)
    objective.to(ranks.device).train()
    spread = parallel.spread(objective, recipe.layout, ranks)
    grouped = groups(objective, rules=recipe.group, layer_decay=recipe.layer_decay, rows=spread.rows)
    _without_compiler()
    optimizer = recipe.optimizer.build(grouped)
    scaler, state = Scaler.of(recipe.layout), RunState(LossHistory(recipe.trouble))
    job = Job(
        recipe, ranks, data, objective, optimizer, spread, scaler, note, state, began_with=began_with, kernels=kernels
    )
    check_decay(job)
    parallel.sum_copies(spread, job.parts, recipe.layout, ranks)
    return job


def _without_compiler() -> None:
    """Let optimizers skip the import of torch's compiler, which takes 1 to 2 s and 100 MB."""
    plain = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", None)
    if plain and "torch._dynamo" not in sys.modules:
        plain.__dynamo_disable = plain  # torch looks here for the function to call instead
