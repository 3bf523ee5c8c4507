"""A job: everything one training needs, built from its recipe, equal on every rank.

recipe -> data, tokenizer -> model settings -> objective (networks) -> spread over the mesh -> optimizer -> Job
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ordsmed.apply.origin import Origin
from ordsmed.base import menu
from ordsmed.base import settings as tables
from ordsmed.base.errors import RecipeError, Trouble
from ordsmed.base.folder import FolderKind
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.data.loader import Share
from ordsmed.data.rows import Rows
from ordsmed.learn.groups import groups
from ordsmed.learn.objective import Objective, fresh
from ordsmed.learn.phases import MOST_ROWS, Phase
from ordsmed.learn.updates import squares
from ordsmed.mesh import parallel, precision
from ordsmed.mesh.parallel import Parallel
from ordsmed.mesh.precision import Scaler
from ordsmed.nn import weights
from ordsmed.nn.shards import LocalParameter
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import checkpoint, room
from ordsmed.train.guard import Guard, LossHistory
from ordsmed.train.material import TextData, TrainingData
from ordsmed.train.recipe import Pretraining
from ordsmed.train.training import Training


@dataclass
class Vote:
    """Whether the run shall stop: ranks hear a signal at different moments, and must stop after the same step."""

    mine: int = 0  # the signal that this rank heard
    heard: bool | None = None  # did any? None: this rank is alone
    short: bool = False  # did it hear it while it made the rows of a step, which are too few now?

    def result(self, mine: int) -> int:
        """The signal to stop by after this step, 0: none."""
        if self.heard is None:
            return mine
        return (mine or signal.SIGTERM) if self.heard else 0


@dataclass
class RunState:
    """What changes while a training goes on."""

    losses: LossHistory
    vote: Vote = field(default_factory=Vote)
    deadline: Any = None  # train/deadline.py: when the run has to end, and its plans
    tell: Callable[[str], None] = lambda stage: None  # the watch: what this rank does now
    validations: list[dict[str, Any]] = field(default_factory=list)  # what was found so far, each with its step
    left_out: list[dict[str, Any]] = field(default_factory=list)  # stretches of steps that teach nothing, and why


@dataclass(frozen=True)
class Job:
    """One training, ready to go."""

    recipe: Training
    ranks: Ranks
    material: TrainingData
    objective: Objective
    optimizer: torch.optim.Optimizer
    parallel: Parallel
    scaler: Scaler
    precision: str  # what is used and why, for a person
    state: RunState = field(default_factory=lambda: RunState(LossHistory(Guard())))
    phases_before: int = 0  # those of the run this one starts from: its chance goes on, it does not begin again
    began_with: str = ""  # the digest of the weights before the first step; empty: the run goes on
    began_as: dict[str, Any] = field(default_factory=dict)  # what the run's record says of those weights

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The recipe's phases."""
        return self.recipe.phases

    @property
    def tokenizer(self) -> Tokenizer:
        """The material's."""
        return self.material.tokenizer

    def rows(self, index: int) -> Rows:
        """The training rows of a phase."""
        return self.material.rows(index, self.phases_before)

    def share(self, index: int) -> Share:
        """How a phase's batch is cut."""
        ranks, layout = self.ranks, self.recipe.layout
        return layout.share(self.phases[index], index + 1, ranks.device.type, ranks.data_rank, ranks.data_world)

    def carry(self, index: int) -> None:
        """Let the objective carry states of this process's rows of a phase, if it carries any; all begin anew."""
        share = self.share(index)
        own = share.batch // share.world
        self.objective.begin(share.rank * own, own)

    @property
    def parts(self) -> list[LocalParameter]:
        """Every weight that learns, as it lies on this rank."""
        return [part for group in self.optimizer.param_groups for part in group["parts"]]

    def is_kept(self, step: int) -> bool:
        """Are the weights of this step kept whatever comes? Then they are asked for, or are the best so far."""
        return self.recipe.is_revision(step) or step == self.recipe.best_of(self.state.validations)

    def leave_out(self, folder: Path, first: int, last: int, why: str) -> None:
        """From now on these steps teach nothing; in the run's record."""
        if len(self.state.left_out) >= self.recipe.trouble.most:
            found = f"{why}; before it {many(len(self.state.left_out), 'time')} the like"
            wanted = f"at most {self.recipe.trouble.most} (trouble.most)"
            raise Trouble(f"{folder}: step {last}", found, wanted)
        stretch = f"steps {first} to {last} teach" if first < last else f"step {last} teaches"
        say(f"step {last}: {why}: {stretch} nothing")
        self.state.left_out.append({"first": first, "last": last, "why": why})
        if self.ranks.first:
            Run(folder).set(left_out=self.state.left_out)

    @property
    def finite(self) -> bool:
        """Are all weights numbers? The same answer on every rank."""
        parts = self.parts
        return bool(torch.isfinite(squares([part.local.detach() for part in parts], parts)).all())

    def leaves_out(self, step: int) -> bool:
        """Is this a step that teaches nothing?"""
        return any(stretch["first"] <= step <= stretch["last"] for stretch in self.state.left_out)

    @property
    def workers(self) -> int:
        """Processes that make batches ahead."""
        asked = self.recipe.layout.workers
        return asked if asked >= 0 else min(8, self.ranks.threads - 1) if self.ranks.device.type == "cuda" else 0


def build(recipe: Pretraining, ranks: Ranks, *, gone_on: dict[str, Any] | None = None) -> Job:
    """Data, networks and optimizer of a recipe; whatever cannot be is refused here.

    `gone_on` is the state of the checkpoint that will be put in: then what `init` names is not needed any more.
    """
    material, settings = TextData.of(recipe), model_settings(recipe)
    check(recipe, settings, ranks)
    settings.fits(material.tokenizer)
    wordy = next((own.folder for own in material.encoded if own.train.lexicon is not None), None)
    if wordy and not settings.capabilities.state:
        raise RecipeError(wordy, "holds whole words", "pieces of words", "encode with another tokenizer, or use elmo")
    room.check(recipe, settings, ranks, lambda model: recipe.objective.build(model, material.tokenizer))
    start: tuple[Path, dict[str, Any]] | None = None

    def networks() -> Objective:
        nonlocal start
        objective = fresh(recipe.objective, settings, material.tokenizer, recipe.seed)
        material.measures = objective.measures
        if recipe.init and gone_on is None:
            start = _start_from(recipe.init, objective, material.tokenizer)
        return objective

    job = assemble(recipe, ranks, material, networks, new=gone_on is None)
    if gone_on:
        return dataclasses.replace(job, phases_before=int(gone_on["phases"]) - len(recipe.phase))
    if start:
        checkpoint.restore_moments(start[0], job.optimizer, job.parts)
        return dataclasses.replace(job, phases_before=int(start[1]["phases"]))
    return job


def assemble(
    recipe: Training, ranks: Ranks, material: TrainingData, networks: Callable[[], Objective], *, new: bool
) -> Job:
    """Networks spread over the mesh, with their optimizer; `new`: the weights are those that the run begins with."""
    if recipe.layout.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses to be deterministic
        torch.use_deterministic_algorithms(True)
    said = precision.set_up(recipe.layout, ranks.device)
    objective = networks()
    began_with = weights.digest(weights.own_tensors(objective)) if new and ranks.first else ""
    precision.keep_in_half(objective, recipe.layout)
    objective.to(ranks.device).train()
    spread = parallel.spread(objective, recipe.layout, ranks)
    made = groups(objective, rules=recipe.group, layer_decay=recipe.layer_decay, rows=spread.rows)
    optimizer = recipe.optimizer.build(made)
    job = Job(recipe, ranks, material, objective, optimizer, spread, Scaler.of(recipe.layout), said,
              RunState(LossHistory(recipe.trouble)), began_with=began_with)  # fmt: skip
    parallel.sum_copies(spread, job.parts, recipe.layout, ranks)
    return job


def counted(recipe: Pretraining) -> Pretraining:
    """The recipe with steps in place of epochs, by how many rows the data have."""
    phases = []
    for index, phase in enumerate(recipe.phase):
        if not phase.steps:
            one = dataclasses.replace(phase, steps=1, epochs=0.0, warmup=0.0)
            material = TextData.of(dataclasses.replace(recipe, phase=(one,)))
            model_settings(recipe).fits(material.tokenizer)
            rows = material.rows(0, index)
            if phase.epochs * len(rows) > MOST_ROWS:
                raise RecipeError(f"phase[{index + 1}].epochs", f"found {phase.epochs:g}", "fewer")
            steps = max(1, round(phase.epochs * len(rows) / phase.batch))
            say(f"phase {index + 1}: {phase.epochs:g} epochs of {len(rows):,} rows are {many(steps, 'step')}")
            if phase.warmup > steps:
                raise RecipeError(f"phase[{index + 1}].warmup", f"found {phase.warmup:g}", f"0 to {steps} steps")
            phase = dataclasses.replace(phase, steps=steps, epochs=0.0)
        phases.append(phase)
    return dataclasses.replace(recipe, phase=tuple(phases))


def model_settings(recipe: Pretraining) -> Any:
    """The network's settings: the recipe's, or those of what it starts from."""
    if recipe.init is None:
        return recipe.model
    origin = Origin.find(recipe.init, key="init")
    if origin is None and recipe.model is not None:
        return recipe.model  # a run that goes on has no need of it any more
    theirs = (origin or Origin.of(recipe.init, key="init")).network()
    check_same(recipe.model, theirs, recipe.init)
    return recipe.model or theirs


def check(recipe: Pretraining, settings: Any, ranks: Ranks) -> None:
    """Refuse phases that this network or layout cannot take."""
    for index, phase in enumerate(recipe.phase):
        if phase.length > settings.longest():
            found = f"found {phase.length}, more than the model's {settings.longest()} positions"
            raise RecipeError(f"phase[{index + 1}].length", found, "", "shorten it or raise `model.positions`")
        recipe.layout.share(phase, index + 1, ranks.device.type, 0, ranks.data_world)
    others = getattr(recipe.objective, "others", None)
    networks = {"model": settings, **(others(settings) if others else {})}
    for name, network in networks.items():
        recipe.layout.check(network, [phase.length for phase in recipe.phase], ranks.world, whose=name)


def _start_from(init: str, objective: Objective, tokenizer: Tokenizer) -> tuple[Path, dict[str, Any]] | None:
    """Take weights over; returns the checkpoint whose moments go on too, None for weights alone."""
    origin = Origin.of(init, key="init")
    if left := origin.unfinished():
        say(left)
    start = origin.load_into(objective, tokenizer)
    if start:
        say(f"weights and moments from {start[0]}")
    else:
        say(f"weights from {init} ({'imported' if origin.kind is FolderKind.IMPORT else 'Hugging Face'})")
    return start


def check_same(ours: Any, theirs: Any, init: str) -> None:
    """Refuse a [model] that is not the network of `init`, by what differs; none (None) is right."""
    if ours is None:
        return
    kinds = [menu.kind_of(model) for model in (ours, theirs)]
    names = unlike(ours, theirs)
    if kinds[0] != kinds[1]:
        found, wanted = (f"kind {kind}" for kind in kinds)
    elif names:
        found, wanted = (", ".join(f"{name} {_said(model, name)}" for name in names) for model in (ours, theirs))
    else:
        return
    raise RecipeError("model", f"found {found}", f"{wanted}, as {init} has", "leave [model] out (`model=none`)")


def _said(model: Any, name: str) -> str:
    value = tables.plain(getattr(model, name, None))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def unlike(ours: Any, theirs: Any) -> list[str]:
    """In which settings two networks differ; dropout, fresh weights and what a token sees may."""
    free = ("dropout", "spread", "deep", "lstm", "types", "causal")
    fields = dict.fromkeys(f.name for model in (ours, theirs) for f in dataclasses.fields(model))
    names = [name for name in fields if not name.endswith(free)]
    found = [name for name in names if getattr(ours, name, None) != getattr(theirs, name, None)]
    own, other = (getattr(model, "types", None) for model in (ours, theirs))
    return found + (["types"] if own != other and {own, other} != {0, 1} else [])  # a row of zeros there is none here
