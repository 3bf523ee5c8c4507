"""The recipe of a pretraining: what is trained on what, in which phases; and where the machine's share of it stands."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Menu
from ordsmed.base.run import Run, obtain
from ordsmed.data.encode import Encoding
from ordsmed.learn.groups import Rule
from ordsmed.learn.phases import Phase
from ordsmed.train.guard import Guard
from ordsmed.train.layout import Layout


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Complaints about a key say whose key it is."""
    try:
        yield
    except RecipeError as error:
        if re.split(r"[.\[]", error.place)[0] not in {f.name for f in dataclasses.fields(Pretraining)}:
            raise
        raise RecipeError(f"{name}: {error.place}", error.found, error.wanted, error.remedy) from None


@dataclass(frozen=True)
class Pretraining:
    """Train a network on encoded text."""

    data: str | dict[str, float]
    """folder or recipe of `encode`; several with their weights: { "work/encode/a" = 0.7, ... }"""
    objective: Annotated[Any, Menu("objectives")]
    """what is learned"""
    phase: tuple[Phase, ...]
    """one or more stretches of training"""
    model: Annotated[Any, Menu("models")] = None
    """the network; may be left out with `init`"""
    optimizer: Annotated[Any, Menu("optimizers", "adamw")] = None
    """how weights are updated; left out: adamw"""
    tokenizer: str | None = None
    """folder, file or recipe; must be the one of the data, which is taken where none is named"""
    init: str | None = None
    """start from these weights: a run (its moments go on too) or a Hugging Face folder"""
    seed: int = 0
    """of weights, order, masks and dropout"""
    clip: float = 1.0
    """the gradient's longest norm; 0: any"""
    group: tuple[Rule, ...] = ()
    """weights that learn at a rate of their own, or decay otherwise than usual"""
    layer_decay: float = 1.0
    """each layer learns at this share of the rate of the one above it; 1: all alike"""
    average: float = 0.0
    """keep a running mean of the weights that forgets at this rate (0.999: over about a thousand steps); 0: none"""
    trouble: Guard = field(default_factory=Guard)
    """what is done about a loss that is no number, or jumps"""
    save: int = 500
    """steps between checkpoints; 0: only at the end, or when asked to stop"""
    keep: int = 3
    """checkpoints kept"""
    revisions: int | tuple[int, ...] | Literal["powers"] = ()
    """steps whose weights are kept for good, to see how a model learns: each so many, a list, or 1 2 4 8..."""
    validate: int = 500
    """steps between validations; 0: only at the end"""
    validation_rows: int = 512
    """held-out rows a validation takes"""
    log: int = 10
    """steps between lines on the screen"""
    layout: Layout = field(default_factory=Layout)
    """what belongs to the machine"""
    out: str | None = None
    """the run's folder; left out: work/pretrain/<name of the recipe>"""

    verb: ClassVar[str] = "pretrain"

    def __post_init__(self) -> None:
        if self.model is None and self.init is None:
            raise ValueError("model: missing; wanted a [model], or `init` to start from")
        if not self.phase:
            raise ValueError("phase: missing; wanted one or more [[phase]]")
        if self.optimizer is None:
            from ordsmed.base.menu import load

            object.__setattr__(self, "optimizer", load("optimizers", "adamw")())
        if not self.sources or not all(0 <= weight < math.inf for weight in self.sources.values()):
            raise ValueError(f"data: found {self.data}; wanted one or more, with weights of 0 or more")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay: found {self.layer_decay}; wanted above 0, to 1")
        if not 0 <= self.average < 1:
            raise ValueError(f"average: found {self.average}; wanted 0 to below 1")
        if not 0 <= self.clip < math.inf:
            raise ValueError(f"clip: found {self.clip}; wanted 0 or more")
        for name in ("save", "validate"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 0 or more")
        listed = (self.revisions,) if isinstance(self.revisions, int) else self.revisions
        if listed != "powers" and any(step < 1 for step in listed):
            raise ValueError(f"revisions: found {self.revisions}; wanted steps from 1 on (step 0 needs no keeping)")
        for name in ("keep", "log", "validation_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")

    @property
    def sources(self) -> dict[str, float]:
        """The data and their weights."""
        return {self.data: 1.0} if isinstance(self.data, str) else self.data

    def is_revision(self, step: int) -> bool:
        """Are the weights of this step kept for good?"""
        if self.revisions == "powers":
            return step & (step - 1) == 0
        return step % self.revisions == 0 if isinstance(self.revisions, int) else step in self.revisions

    def stamp(self) -> Any:
        """The fingerprints of the data."""
        return [Run(obtain(Encoding, name)).status["fingerprint"] for name in self.sources]
