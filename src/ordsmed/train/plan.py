"""Plan: what a training would do, known before anything is made; a run, --dry-run and `show` tell the same of it.

recipe -> origin of the weights, network, tokenizer or what is expected of it, what stands and what lacks
       -> parameters, FLOPs, mesh, batches, memory, in lines; and, where all stands, the job
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
from ordsmed.base.launch.site import find
from ordsmed.base.ranks import Ranks
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import checkpoint, room
from ordsmed.train.callbacks import Callback
from ordsmed.train.job import Job, TrainingData
from ordsmed.train.mesh.attention import way
from ordsmed.train.mesh.layout import Layout, arithmetic
from ordsmed.train.mesh.precision import likely
from ordsmed.train.request import requested
from ordsmed.train.training import Training, named


@dataclass(frozen=True, kw_only=True)
class Plan(abc.ABC):
    """What a training would do; pretraining and fine-tuning plan each in their own way."""

    recipe: Training  # with what network and data tell, as far as those stand
    ranks: Ranks  # one of the processes it is meant for, and their mesh
    folder: Path | None = None  # where the run stands, or would
    # both lack where what it starts from does not stand; of neither is anything told then
    network: ModelSettings = None  # type: ignore[assignment]
    tokenizer: Tokenizer = None  # type: ignore[assignment]  # of what is read, or what is expected of it
    data: TrainingData | None = None  # what is read; None: it does not stand, or was not read
    notes: tuple[str, ...] = ()  # what stands, what lacks, what is filled in
    changed: str = ""  # what of a run's own layout would be another
    callbacks: tuple[Callback, ...] = ()  # what is done after a step of the run
    seconds: float = 0.0  # that it is expected to take on this machine; 0: not known

    recipes: ClassVar[type[Training]]

    @classmethod
    def read(
        cls, name: str, overrides: Sequence[str] = (), *, layout: str = "", site: str = "", devices: int = 0
    ) -> Self:
        """That of a recipe or a run, as far as it is known, wherever it is started; nothing is made."""
        request = requested(cls.recipes, name, overrides, layout, site, devices=devices, shown=True)
        with named(name, cls.recipes):
            ranks = dataclasses.replace(
                planned(request.recipe.layout, request.devices), card=find(site).partition.card if site else None
            )
            plan = cls.of(request.recipe, ranks, request.folder if request.stands else None, here=False)
            return dataclasses.replace(plan.completed(make=False, here=False), changed=request.changed)

    @classmethod
    @abc.abstractmethod
    def of(cls, recipe: Training, ranks: Ranks, folder: Path | None = None, *, here: bool = True) -> Self:
        """That of a recipe. What cannot be is refused; `here`: what is to be started now, on this machine."""

    @abc.abstractmethod
    def completed(self, *, make: bool, here: bool = True) -> Self:
        """With what the data tell; `make`: they are made where they lack, else they are told of."""

    def missing(self) -> list[tuple[str, str]]:
        """What it reads that is still to be made: the verb and the name of each."""
        return []

    @abc.abstractmethod
    def subject(self) -> str:
        """What learns, from which weights, and how much of what it reads, in a line; all that it reads stands."""

    def weights(self) -> str:
        """Which it starts from, in words."""
        return f"weights from {self.recipe.init}" if self.recipe.init else "random weights"

    @abc.abstractmethod
    def sizes(self) -> list[str]:
        """Parameters, and what learning them costs, in lines."""

    @abc.abstractmethod
    def held(self) -> int:
        """Bytes that a rank holds, whatever its micro-batch; 0: not known yet."""

    @abc.abstractmethod
    def flops(self, index: int) -> float:
        """Of a step of this phase; 0: not known yet."""

    @abc.abstractmethod
    def judged(self) -> int:
        """Rows of a validation, as far as known."""

    def work(self) -> tuple[float, float]:
        """FLOPs of all steps, and of all validations; 0: not known yet."""
        phases = self.recipe.phases
        costs = [self.flops(index) for index in range(len(phases))]
        steps = sum(cost * phase.whole_steps for cost, phase in zip(costs, phases, strict=True))
        forward = costs[-1] / phases[-1].batch / 3
        return steps, self.recipe.validations * self.judged() * forward

    def weighed(self, *, here: bool, yes: bool) -> Self:
        """With the time that it is expected to take `here`; refused where that or its text makes no sense.

        `yes`: what would be refused is told.
        """
        return self

    def row_length(self, index: int) -> int:
        """Tokens of a row of this phase, as the loop counts them."""
        return self.data.row_length(index) if self.data else self.recipe.phases[index].length

    @abc.abstractmethod
    def memory(self) -> list[str]:
        """What a rank holds, in lines."""

    @abc.abstractmethod
    def build(self, *, gone_on: dict[str, Any] | None = None) -> Job:
        """Everything the training needs; `gone_on`: the state of the checkpoint that will be put in."""

    @abc.abstractmethod
    def fitted(self, seconds: float) -> tuple[Training, dict[str, Any]]:
        """The recipe with fewer steps, if needed, so that it ends in time; and what the plan is made again by."""

    @abc.abstractmethod
    def finish(self, job: Job, folder: Path) -> dict[str, Any]:
        """What a finished run leaves beside its checkpoints, and what its status says; the first rank alone does it."""

    @abc.abstractmethod
    def verify(self) -> None:
        """Refuse data that are not as they were made, before they are learned from."""

    @property
    def most_unknown(self) -> float:
        """Share of tokens that may be unknown; a run that has begun goes on whatever it reads."""
        begun = self.folder is not None and bool(checkpoint.steps(self.folder / "checkpoints"))
        return 1.0 if begun else self.recipe.most_unknown

    def on(self, ranks: Ranks) -> Self:
        """The same for these processes."""
        return dataclasses.replace(self, ranks=ranks)

    def by(self, recipe: Training) -> Self:
        """The same for a recipe that differs in its layout, its steps or what is done about trouble."""
        return dataclasses.replace(self, recipe=recipe)

    def spread(self) -> list[str]:
        """Mesh and batches, in lines."""
        layout, ranks = self.recipe.layout, self.ranks
        lines = [f"layout: {layout.describe(ranks.world)}"]
        for number, phase in enumerate(self.recipe.phases, 1):
            lines.append(arithmetic(phase, number, layout.share(phase, number, ranks.device.type, 0, ranks.data_world)))
        return lines

    @property
    def likely_layout(self) -> Layout:
        """Return the layout with the precision that `auto` is expected to choose on its device, or at its site."""
        return likely(self.recipe.layout, self.ranks.device, self.ranks.card)

    def precision(self) -> list[str]:
        """How a precision that is left open will be chosen, in a line."""
        layout, device = self.recipe.layout, self.ranks.device
        if layout.precision != "auto":
            return []
        if device.type == "cuda" or layout.fp8:
            return [f"layout.precision: auto, which takes {self.likely_layout.precision}"]
        return ["layout.precision: auto, which measures once whether steps are faster in bf16 than in fp32"]

    def attention(self, *, mixed: bool = False) -> list[str]:
        """Which way attention takes, in a line; `mixed`: some rows are read from left to right and some both ways."""
        if self.network is None:
            return []
        lengths = sorted({phase.length for phase in self.recipe.phases})
        return way(self.network, self.likely_layout, self.ranks, lengths, mixed=mixed)

    def fits(self, make: room.Make, *, here: bool) -> None:
        """Refuse what no machine holds, or not this one (`here`)."""
        room.check(self.recipe, self.network, self.ranks, make, here=here)

    def lines(self) -> list[str]:
        return [*self.notes, *self.sizes(), *self.lying()]

    def lying(self) -> list[str]:
        """How it lies on its processes, and what is new in that."""
        return [
            *self.spread(),
            *self.precision(),
            *self.attention(),
            *self.memory(),
            *([self.changed] if self.changed else []),
        ]


def planned(layout: Layout, devices: int = 0) -> Ranks:
    """One of so many processes; GPUs that are named with their number may stand elsewhere: a login node has none."""
    if devices and layout.device.startswith("cuda") and not torch.cuda.is_available():
        ranks = Ranks(torch.device("cuda"))
    else:
        ranks = processes.plan(layout.device)
    world = devices or ranks.world
    return dataclasses.replace(ranks, world=world, shape=layout.shape(world))
