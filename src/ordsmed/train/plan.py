"""Plan: everything known about a training before anything is made. Runs, --dry-run and `show` print it.

recipe -> weights to start from, network, tokenizer (or what is known of it), data that exist or are missing
       -> parameters, FLOPs, mesh, batches and memory, as lines; if all data exist, also the job
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from ordsmed.base import ranks as processes
from ordsmed.base.launch.site import Destination
from ordsmed.base.ranks import Ranks
from ordsmed.learn.objective import Objective
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import checkpoint
from ordsmed.train.callbacks import Callback
from ordsmed.train.job import Job, TrainingData
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.attention import attention_lines
from ordsmed.train.mesh.layout import Layout, arithmetic
from ordsmed.train.mesh.precision import expected_layout
from ordsmed.train.request import requested
from ordsmed.train.training import Training, named


@dataclass(frozen=True, kw_only=True)
class Plan(abc.ABC):
    recipe: Training  # with settings from network and data, as far as they are known
    ranks: Ranks  # one of its processes, and their mesh
    folder: Path | None = None  # the folder of the run, which may not exist
    # both are None if the initial model does not exist; then nothing is printed about them
    network: ModelSettings = None  # type: ignore[assignment]
    tokenizer: Tokenizer = None  # type: ignore[assignment]  # the tokenizer of the data, or a placeholder
    data: TrainingData | None = None  # the data; None: they do not exist or were not read
    notes: tuple[str, ...] = ()  # existing and missing inputs, and settings filled in
    changed: str = ""  # changes to the layout of a resumed run
    callbacks: tuple[Callback, ...] = ()  # callbacks of the run
    seconds: float = 0.0  # expected on this machine; 0: unknown

    recipes: ClassVar[type[Training]]
    final_validations: ClassVar[float] = 1.0  # time needed after the last step, in validations

    @classmethod
    def read(
        cls, name: str, overrides: Sequence[str] = (), *, layout: str = "", site: str = "", devices: int = 0
    ) -> Self:
        """Return the plan of a recipe or a run, as far as it is known without making anything."""
        request = requested(cls.recipes, name, overrides, layout, site, devices=devices, shown=True)
        with named(name, cls.recipes):
            ranks = dataclasses.replace(
                planned(request.recipe.layout, request.devices),
                card=Destination.find(site).partition.card if site else None,
            )
            plan = cls.of(request.recipe, ranks, request.folder if request.is_run else None, here=False)
            return dataclasses.replace(plan.completed(make=False, here=False), changed=request.changed)

    @classmethod
    @abc.abstractmethod
    def of(cls, recipe: Training, ranks: Ranks, folder: Path | None = None, *, here: bool = True) -> Self:
        """Return the plan of a recipe, and raise if it is impossible; `here`: it will start now on this machine."""

    @abc.abstractmethod
    def completed(self, *, make: bool, here: bool = True) -> Self:
        """Return the plan with the facts of its data; `make`: make missing data, otherwise only report them."""

    @property
    def by_phase(self) -> tuple[Objective, ...]:
        """The networks of each phase, without allocated weights; empty: not built."""
        return ()

    def missing(self) -> list[tuple[str, str]]:
        """Return the verb and the name of each input that must still be made."""
        return []

    @abc.abstractmethod
    def subject(self) -> str:
        """Return a line on the network, its initial weights and the amount of data; all data must exist."""

    @abc.abstractmethod
    def sizes(self) -> list[str]:
        """Return lines on the parameters and the cost of training them."""

    @abc.abstractmethod
    def memory(self) -> RankMemory:
        """Return the memory of a rank without activations; 0 bytes: unknown so far."""

    @abc.abstractmethod
    def flops(self, index: int) -> float:
        """Return the FLOPs of a step of a phase; 0: unknown so far."""

    @abc.abstractmethod
    def validation_rows(self) -> int:
        """Return the rows of a validation, as far as known."""

    def work(self) -> tuple[float, float]:
        """Return the FLOPs of all steps and of all validations; 0: unknown so far."""
        phases = self.recipe.phases
        costs = [self.flops(index) for index in range(len(phases))]
        steps = sum(cost * phase.whole_steps for cost, phase in zip(costs, phases, strict=True))
        forward = costs[-1] / phases[-1].batch / 3
        return steps, self.recipe.validations * self.validation_rows() * forward

    def with_estimate(self, *, here: bool, yes: bool) -> Self:
        """Return the plan with its expected time `here`; raise if the time or the passes over the text are absurd.

        `yes`: print the problem instead of raising it.
        """
        return self

    def row_length(self, index: int) -> int:
        return self.data.row_length(index) if self.data else self.recipe.phases[index].length

    @abc.abstractmethod
    def build(self, *, resume_state: dict[str, Any] | None = None) -> Job:
        """Return the job; `resume_state` is the state of the checkpoint that will be restored into it, if any."""

    @abc.abstractmethod
    def finish(self, job: Job, folder: Path) -> dict[str, Any]:
        """Write the results of a finished run, and return the facts for its status. Called on the first rank only."""

    @abc.abstractmethod
    def verify(self) -> None:
        """Raise if the data have changed since they were made. Called before training starts."""

    @property
    def max_unknown(self) -> float:
        """The allowed share of unknown tokens; a run with a checkpoint resumes with any share."""
        begun = self.folder is not None and bool(checkpoint.steps(self.folder / "checkpoints"))
        return 1.0 if begun else self.recipe.max_unknown

    def on(self, ranks: Ranks) -> Self:
        return dataclasses.replace(self, ranks=ranks)

    def by(self, recipe: Training) -> Self:
        return dataclasses.replace(self, recipe=recipe)

    def lines(self) -> list[str]:
        return [*self.notes, *self.sizes(), *layout_lines(self)]


def layout_lines(plan: Plan) -> list[str]:
    """Return lines on the mesh, batches, precision, attention kernels and memory of a plan."""
    layout, ranks, phases, networks = plan.recipe.layout, plan.ranks, plan.recipe.phases, plan.by_phase
    expected = expected_layout(layout, ranks.device, ranks.card)
    lines = [f"layout: {layout.describe(ranks.world)}"]
    if networks:
        lines += networks[0].describe(ranks.device.type, expected.precision)
    for number, phase in enumerate(phases, 1):
        lines.append(arithmetic(phase, number, layout.share(phase, number, ranks.device.type, 0, ranks.data_world)))
    if layout.precision == "auto" and (ranks.device.type == "cuda" or layout.fp8):
        lines.append(f"layout.precision: auto, which chooses {expected.precision}")
    elif layout.precision == "auto":
        lines.append("layout.precision: auto, which measures once whether steps are faster in bf16 than in fp32")
    return [*lines, *attention_kernels(plan), *plan.memory().lines, *([plan.changed] if plan.changed else [])]


def attention_kernels(plan: Plan) -> list[str]:
    """Return a line on the attention kernels; empty if the network is not known or has no attention."""
    if plan.network is None:
        return []
    layout, ranks = plan.recipe.layout, plan.ranks
    lengths, mixed = {phase.length for phase in plan.recipe.phases}, any(network.one_way for network in plan.by_phase)
    return attention_lines(
        plan.network, expected_layout(layout, ranks.device, ranks.card), ranks, sorted(lengths), mixed=mixed
    )


def planned(layout: Layout, devices: int = 0) -> Ranks:
    """Return the ranks of `devices` processes (0: as many as there are) by a layout, without starting them.

    A layout for CUDA is planned for CUDA even without a GPU: a login node plans jobs for other machines.
    """
    if devices and layout.device.startswith("cuda") and not torch.cuda.is_available():
        ranks = Ranks(torch.device("cuda"))
    else:
        ranks = processes.plan(layout.device)
    world = devices or ranks.world
    return dataclasses.replace(ranks, world=world, shape=layout.shape(world))
