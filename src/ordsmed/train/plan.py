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
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import checkpoint, memory
from ordsmed.train.callbacks import Callback
from ordsmed.train.job import Job, TrainingData
from ordsmed.train.mesh.attention import way
from ordsmed.train.mesh.layout import Layout, arithmetic
from ordsmed.train.mesh.precision import likely
from ordsmed.train.request import requested
from ordsmed.train.training import Training, named


@dataclass(frozen=True, kw_only=True)
class Plan(abc.ABC):
    """A plan of a training; pretraining and fine-tuning derive from it."""

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

    @classmethod
    def read(
        cls, name: str, overrides: Sequence[str] = (), *, layout: str = "", site: str = "", devices: int = 0
    ) -> Self:
        """Return the plan of a recipe or a run, as far as it is known without making anything."""
        request = requested(cls.recipes, name, overrides, layout, site, devices=devices, shown=True)
        with named(name, cls.recipes):
            card = Destination.find(site).partition.card if site else None
            ranks = dataclasses.replace(planned(request.recipe.layout, request.devices), card=card)
            plan = cls.of(request.recipe, ranks, request.folder if request.stands else None, here=False)
            return dataclasses.replace(plan.completed(make=False, here=False), changed=request.changed)

    @classmethod
    @abc.abstractmethod
    def of(cls, recipe: Training, ranks: Ranks, folder: Path | None = None, *, here: bool = True) -> Self:
        """Return the plan of a recipe, and raise if it is impossible; `here`: it will start now on this machine."""

    @abc.abstractmethod
    def completed(self, *, make: bool, here: bool = True) -> Self:
        """Return the plan with the facts of its data; `make`: make missing data, otherwise only report them."""

    def missing(self) -> list[tuple[str, str]]:
        """Return the verb and the name of all inputs that must still be made."""
        return []

    @abc.abstractmethod
    def subject(self) -> str:
        """Return a line on the network, its initial weights and the amount of data; all data must exist."""

    def weights(self) -> str:
        return f"weights from {self.recipe.init}" if self.recipe.init else "random weights"

    @abc.abstractmethod
    def sizes(self) -> list[str]:
        """Return lines on the parameters and the cost of training them."""

    @abc.abstractmethod
    def memory_bytes(self) -> int:
        """Return the bytes that a rank holds for any micro-batch; 0: unknown so far."""

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
    def memory_lines(self) -> list[str]:
        """Return lines on the memory of a rank."""

    @abc.abstractmethod
    def build(self, *, resume_state: dict[str, Any] | None = None) -> Job:
        """Return the job; `resume_state` is the state of the checkpoint that will be restored into it, if any."""

    @abc.abstractmethod
    def fitted(self, seconds: float) -> tuple[Training, dict[str, Any]]:
        """Return the recipe with fewer steps if needed to end in time, and the facts used to change the plan later."""

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

    def spread(self) -> list[str]:
        layout, ranks = self.recipe.layout, self.ranks
        lines = [f"layout: {layout.describe(ranks.world)}"]
        for number, phase in enumerate(self.recipe.phases, 1):
            lines.append(arithmetic(phase, number, layout.share(phase, number, ranks.device.type, 0, ranks.data_world)))
        return lines

    @property
    def likely_layout(self) -> Layout:
        return likely(self.recipe.layout, self.ranks.device, self.ranks.card)

    def precision(self) -> list[str]:
        layout, device = self.recipe.layout, self.ranks.device
        if layout.precision != "auto":
            return []
        if device.type == "cuda" or layout.fp8:
            return [f"layout.precision: auto, which takes {self.likely_layout.precision}"]
        return ["layout.precision: auto, which measures once whether steps are faster in bf16 than in fp32"]

    def attention(self, *, mixed: bool = False) -> list[str]:
        """Return a line on the attention kernels; `mixed`: some rows are causal and some bidirectional."""
        if self.network is None:
            return []
        lengths = sorted({phase.length for phase in self.recipe.phases})
        return way(self.network, self.likely_layout, self.ranks, lengths, mixed=mixed)

    def fits(self, make: memory.Make, *, here: bool) -> None:
        """Raise if the networks or batches do not fit on any machine, or on this one if `here`."""
        memory.check(self.recipe, self.network, self.ranks, make, here=here)

    def lines(self) -> list[str]:
        return [*self.notes, *self.sizes(), *self.lying()]

    def lying(self) -> list[str]:
        return [
            *self.spread(),
            *self.precision(),
            *self.attention(),
            *self.memory_lines(),
            *([self.changed] if self.changed else []),
        ]


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
