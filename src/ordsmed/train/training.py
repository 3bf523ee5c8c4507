"""The settings that every training recipe has: initial weights, optimizer, saving, validation and folder."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Menu
from ordsmed.base.settings import as_toml
from ordsmed.data.unknown import MOST, check_share
from ordsmed.learn.groups import Rule
from ordsmed.learn.phases import Phase
from ordsmed.learn.schedules import Ramp, ends
from ordsmed.train.average import Tail
from ordsmed.train.guard import Guard
from ordsmed.train.mesh.layout import Layout

MAY_CHANGE = ("layout.", "trouble.", "callbacks=", "max_unknown=")  # settings that a resumed run may change
NOT_IN_GRID = ("seed", "seeds", "grid", "jobs", "out")
ALONE: dict[str, Any] = {"seeds": (), "grid": {}, "jobs": 0}  # settings of a single trial


def check_seed(recipe: Training, location: object) -> None:
    """Raise a `RecipeError` for a negative seed in a new run; existing runs with one can be resumed."""
    for key, seed in (("seed", recipe.seed), *(("seeds", seed) for seed in getattr(recipe, "seeds", ()))):
        if seed < 0:
            raise RecipeError(f"{location}: {key}", f"found {seed}", "0 or more")


def check_axes(seeds: Sequence[int], grid: Mapping[str, Any]) -> dict[str, Any]:
    """Return the grid by the dotted paths of settings; raise a `ValueError` if `seeds` or `grid` are invalid."""
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds: found {as_toml(seeds)}; wanted different ones")
    by_path = dict(_by_path(grid))
    for path, values in by_path.items():
        if path in NOT_IN_GRID:
            raise ValueError(f"grid: found {path}; wanted other settings (`seeds` makes a trial with each)")
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"grid.{path}: found {as_toml(values)}; wanted a list of one or more values")
    return by_path


def _by_path(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted paths and values: {"task": {"length": [128, 256]}} -> "task.length", [128, 256]."""
    for key, values in table.items():
        if isinstance(values, Mapping):
            yield from _by_path(values, f"{before}{key}.")
        else:
            yield f"{before}{key}", values


@contextlib.contextmanager
def named(name: str, recipe: type) -> Iterator[None]:
    try:
        yield
    except RecipeError as error:
        if re.split(r"[.\[]", error.place)[0] not in {f.name for f in dataclasses.fields(recipe)}:
            raise
        raise RecipeError(f"{name}: {error.place}", error.found, error.wanted, error.remedy) from None


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings that pretraining and fine-tuning share."""

    model: Annotated[Any, Menu("models")] = None
    """the network; may be left out with `init`"""
    optimizer: Annotated[Any, Menu("optimizers", "adamw")] = None
    """the optimizer; left out: adamw"""
    init: str | None = None
    """start from these weights: a run, an import or a Hugging Face folder (pretraining from a run also keeps its
    optimizer's moments); elsewhere model_name_or_path, init_checkpoint"""
    seed: int = 0
    """random seed of initial weights, data order, masks and dropout"""
    clip: float = 1.0
    """largest gradient norm; larger gradients are scaled down to it; 0: no clipping; elsewhere max_grad_norm,
    gradient_clip_val"""
    group: tuple[Rule, ...] = ()
    """groups of weights with their own learning rate or weight decay"""
    layer_decay: float = 1.0
    """learning rate of a layer as a share of that of the layer above it; 1: the same for all layers"""
    decay_schedule: Literal["constant", "rate"] | Ramp = "constant"
    """factor of the optimizer's weight decay during the run: constant (1); rate: the learning rate divided by its peak;
    { start = 1.0, end = 0.1 }: linear over the run"""
    average: float | Tail = 0.0
    """keep an average of the weights, which is validated too: an exponential moving average with this decay (0.999:
    over about a thousand steps), or { last = 0.2, every = 50 }: the mean of every 50th step of the last fifth of the
    run; 0: none"""
    trouble: Guard = field(default_factory=Guard)
    """what to do if the loss is NaN or Inf, or jumps"""
    keep: int = 3
    """number of checkpoints to keep; elsewhere save_total_limit"""
    log: int = 10
    """steps between printed lines; elsewhere logging_steps, log_interval"""
    max_unknown: float = MOST
    """largest share of the texts' tokens that may be unknown to the tokenizer; texts with more are refused before
    training"""
    callbacks: tuple[str, ...] = ()
    """your own Python modules with actions that run after a step: ["my_lab.histogram"]; may change when a run is
    resumed"""
    layout: Layout = field(default_factory=Layout)
    """how this machine runs the training; results depend on it only by rounding"""
    out: str | None = None
    """the run's folder; left out: work/<verb>/<name of the recipe>; elsewhere output_dir"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("decay_schedule",)
    validates_average: ClassVar[bool] = False  # whether the averaged weights are validated during training
    verb: ClassVar[str]
    HOW: ClassVar[tuple[str, ...]] = ("callbacks", "max_unknown")

    @staticmethod
    def as_recorded(table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table of a recorded recipe as it was meant: the first recipes had no precision and used fp32."""
        layout = table.get("layout", {})
        return {**table, "layout": {"precision": "fp32", **layout} if isinstance(layout, Mapping) else layout}

    def __post_init__(self) -> None:
        if self.optimizer is None:
            from ordsmed.base.menu import load

            object.__setattr__(self, "optimizer", load("optimizers", "adamw")())
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay: found {self.layer_decay}; wanted above 0, to 1")
        check_share("max_unknown", self.max_unknown)
        if isinstance(self.average, float | int) and not 0 <= self.average < 1:
            raise ValueError(f"average: found {self.average}; wanted 0 to below 1")
        if isinstance(self.decay_schedule, Ramp) and not 0 <= ends(self.decay_schedule)[0] < math.inf:
            raise ValueError(f"decay_schedule: found {as_toml(self.decay_schedule)}; wanted factors, 0 or more")
        if not 0 <= self.clip < math.inf:
            raise ValueError(f"clip: found {self.clip}; wanted 0 or more")
        for name in ("keep", "log"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")

    @property
    def several(self) -> bool:
        return bool(getattr(self, "seeds", ()) or getattr(self, "grid", {}))

    @property
    def axes(self) -> dict[str, Sequence[Any]]:
        """The settings in which trials differ, with their values, without the seed."""
        return dict(getattr(self, "grid", {}))

    def alone(self) -> Self:
        """Return the recipe of a single trial, without the settings in which trials differ."""
        return dataclasses.replace(self, **ALONE)

    def compared_by(self, facts: Mapping[str, Any]) -> dict[str, float]:
        """Return the scores among a run's facts by which trials are compared."""
        raise NotImplementedError

    def stamp(self) -> list[Any]:
        """Return what the result depends on in addition to the recipe, such as digests of data."""
        raise NotImplementedError

    def learned(self) -> dict[str, Any]:
        """Return the objective or task, as stored in the settings of the weights."""
        raise NotImplementedError

    @property
    def phases(self) -> tuple[Phase, ...]:
        raise NotImplementedError

    def with_phases(self, phases: Sequence[Phase]) -> Self:
        """Return the recipe with other phases, for example fewer steps for a deadline."""
        raise NotImplementedError

    @property
    def validation_interval(self) -> int:
        """Steps between validations; 0: validate only at the end."""
        raise NotImplementedError

    def validation_cost(self, seconds: float) -> tuple[float, float]:
        """Return the seconds of validation per step, and the seconds of all validations whose number is fixed.

        `seconds` is the time of one validation. The validation after the last step is not included.
        """
        return (seconds / self.validation_interval if self.validation_interval else 0.0), 0.0

    def with_validations(self, count: int) -> Self:
        """Return the recipe with `count` validations before the last step, if their number is fixed."""
        return self

    def validates(self, step: int) -> bool:
        raise NotImplementedError

    @property
    def validations(self) -> int:
        """The number of validations, including the one after the last step."""
        return 1 + sum(map(self.validates, range(1, sum(phase.steps for phase in self.phases))))

    def is_saved(self, step: int) -> bool:
        raise NotImplementedError

    def is_revision(self, step: int) -> bool:
        """Return whether weights of this step are kept permanently."""
        raise NotImplementedError

    @property
    def revision_words(self) -> tuple[int, ...]:
        """Numbers of words seen at which weights are kept permanently."""
        return ()

    def best_of(self, validations: Sequence[Mapping[str, Any]]) -> int:
        """Return the step of the best of some validations, the first of equals; 0: they are not compared."""
        return 0

    def is_enough(self, validations: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether to stop early, by the validations so far."""
        return False
