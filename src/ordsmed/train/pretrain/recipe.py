"""The recipe of a pretraining: network, objective, data and phases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Menu, kind_of
from ordsmed.base.run import Run, obtain
from ordsmed.base.settings import as_toml
from ordsmed.data.encode import Encoding
from ordsmed.data.mix import Mix, Names, listed
from ordsmed.data.word_counts import WordNumbers, numbers
from ordsmed.learn.objective import ObjectiveSettings
from ordsmed.learn.phases import Phase, changed
from ordsmed.learn.schedules import Schedule
from ordsmed.nn.model import ModelSettings
from ordsmed.train.average import Tail
from ordsmed.train.pretrain.teaching import fingerprint
from ordsmed.train.training import Training, check_axes
from ordsmed.weights.transplant import Vocabulary

LOSSES = ("validation", "validation_average")


def is_share(every: float) -> bool:
    """Return whether an interval is a share of all steps (0.1, 1.0) instead of a number of steps (1, 500)."""
    return isinstance(every, float) and 0 < every <= 1


@dataclass(frozen=True, kw_only=True)
class Pretraining(Training):
    """Train a network on encoded text."""

    data: Names
    """folder or recipe of `encode`; several with their weights: { "work/encode/a" = 0.7, ... }, or a list with `mix`"""
    objective: Annotated[Any, Menu("objectives")]
    """what the network is trained to predict"""
    phase: tuple[Phase, ...]
    """one or more phases of training"""
    vocabulary: Vocabulary = "same"
    """with `init`: how the data's vocabulary relates to that of the model: same; transplant: another one, pieces in
    both keep their vectors and new ones start as the mean of the old pieces that spell them; fresh: another one, all
    vectors start at random"""
    mix: Mix | None = None
    """shares of several data by their tokens: { temperature = 0.5 } or { unimax = 4 }; a phase may have its own"""
    max_epochs: float = 0.0
    """largest number of epochs over any of several data, all phases together; more is refused; 0: print a warning above
    4"""
    tokenizer: str | None = None
    """folder, file or recipe of the tokenizer; must be the one of the data; left out: the one of the data"""
    save: int | float = 500
    """steps between checkpoints; 0.1: a tenth of all steps, 1.0: all of them; 0: only at the end or when the run is
    stopped; elsewhere save_steps, save_interval"""
    revisions: int | tuple[int, ...] | Literal["powers"] = ()
    """steps whose weights are kept permanently, to study how a model learns: an interval, a list, or powers (1 2 4
    8...)"""
    revisions_at_words: WordNumbers = ()
    """the same by words of text seen; babylm: 1M 2M ... 10M 20M ... 100M 200M ... 1000M, as its evaluation requires"""
    validate: int | float = 500
    """steps between validations; 0.1: a tenth of all steps, 1.0: all of them; 0: only at the end; elsewhere eval_steps,
    eval_interval"""
    validation_rows: int = 512
    """held-out rows of a validation"""
    keep_best: bool = True
    """use the weights of the lowest validation loss of the last phase, and keep their checkpoint; false: use those of
    the last step, which is also done if validation losses cannot be compared (rtd); elsewhere load_best_model_at_end"""
    patience: int = 0
    """stop after this many validations of the last phase without a lower loss; 0: never; elsewhere
    early_stopping_patience"""
    seeds: tuple[int, ...] = ()
    """train one run with each seed, and report mean and deviation; left out: one run with `seed`"""
    grid: dict[str, Any] = field(default_factory=dict)
    """train one run with each combination: { phase.learning_rate = [5e-4, 1e-3], objective.mask_prob = [0.15, 0.3] }"""
    jobs: int = 0
    """of these runs, how many train at a time; 0: one for each GPU, on a CPU one for every two cores"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = (
        *Training.LATER_ADDED,
        "vocabulary",
        "mix",
        "max_epochs",
        "revisions_at_words",
        "keep_best",
        "patience",
        "seeds",
        "grid",
        "jobs",
    )
    HOW: ClassVar[tuple[str, ...]] = (*Training.HOW, "jobs")
    validates_average: ClassVar[bool] = True
    verb: ClassVar[str] = "pretrain"

    @staticmethod
    def as_recorded(table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table of a recorded recipe; a run from before `keep_best` keeps the weights of its last step."""
        return {"keep_best": False, **Training.as_recorded(table)}

    def __post_init__(self) -> None:
        if self.model is None and self.init is None:
            raise ValueError("model: missing; wanted a [model], or `init` to start from")
        if self.init is None and self.vocabulary != "same":
            raise ValueError(f"vocabulary: found {self.vocabulary} without init; wanted `init`, a model with another")
        if not self.phase:
            raise ValueError("phase: missing; wanted one or more [[phase]]")
        super().__post_init__()
        listed(self.data, self.mix)
        for index, phase in enumerate(self.phase):
            self._check_objective(index)
            if phase.mix and phase.data is None:
                listed(self.data, phase.mix)
        if not 0 <= self.max_epochs < math.inf:
            raise ValueError(f"max_epochs: found {self.max_epochs:g}; wanted 0 or more")
        for name in ("save", "validate"):
            every = getattr(self, name)
            if not 0 <= every < math.inf or (every > 1 and every % 1):
                raise ValueError(f"{name}: found {every}; wanted steps, 0 or more, or a share of all, to 1.0")
        kept = (self.revisions,) if isinstance(self.revisions, int) else self.revisions
        if kept != "powers" and any(step < 1 for step in kept):
            raise ValueError(f"revisions: found {as_toml(self.revisions)}; wanted steps from 1 on (0 is not stored)")
        if any(words < 1 for words in self.revision_words):
            raise ValueError(f"revisions_at_words: found {min(self.revision_words)}; wanted words from 1 on")
        object.__setattr__(self, "grid", check_axes(self.seeds, self.grid))
        if self.jobs < 0:
            raise ValueError(f"jobs: found {self.jobs}; wanted 0 or more")
        if self.patience < 0:
            raise ValueError(f"patience: found {self.patience}; wanted 0 or more")
        if self.patience and isinstance(self.average, Tail):
            raise ValueError(f"patience: found {self.patience}; wanted 0: `average` needs the last steps of the run")
        if self.patience and not self.comparable:
            problem = f"validation losses of {kind_of(self.objective_of(-1))} cannot be compared between steps"
            raise ValueError(f"patience: found {self.patience}; wanted 0: {problem}")
        if self.validation_rows < 1:
            raise ValueError(f"validation_rows: found {self.validation_rows}; wanted 1 or more")

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for index in range(len(self.phase)) for name in self.data_of(index)))

    def data_of(self, index: int) -> dict[str, float]:
        data = self.phase[index].data
        return listed(self.data if data is None else data)

    def mix_of(self, index: int) -> Mix | None:
        """Return the mix that sets the shares of a phase's data, or None if the data have weights."""
        phase = self.phase[index]
        return phase.mix or (None if isinstance(phase.data, Mapping) else self.mix)

    def objective_of(self, index: int) -> ObjectiveSettings:
        number = index % len(self.phase) + 1
        usual: ObjectiveSettings = self.objective
        return changed(usual, self.phase[index].objective, f"phase[{number}].objective", "objectives")

    def _check_objective(self, index: int) -> None:
        """Raise a `ValueError` like other settings do, so that the message names the file."""
        try:
            self.objective_of(index)
        except RecipeError as error:
            raise ValueError(str(error)) from None

    def network_of(self, network: ModelSettings, index: int) -> ModelSettings:
        """Return the network's settings in a phase; changes by earlier phases stay."""
        for number, phase in enumerate(self.phase[: index + 1], 1):
            network = changed(network, phase.model, f"phase[{number}].model", "models")
        return network

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.phase

    def with_phases(self, phases: Sequence[Phase]) -> Self:
        return dataclasses.replace(self, phase=tuple(phases))

    @property
    def validation_interval(self) -> int:
        return self._steps(self.validate)

    def validation_cost(self, seconds: float) -> tuple[float, float]:
        if is_share(self.validate):
            return 0.0, (self.validations - 1) * seconds
        return super().validation_cost(seconds)

    def with_validations(self, count: int) -> Self:
        return dataclasses.replace(self, validate=1 / (count + 1) if count else 0) if is_share(self.validate) else self

    def _steps(self, every: float) -> int:
        """Return an interval in steps; a share needs the number of all steps, so epochs must be counted."""
        steps = sum(phase.steps for phase in self.phase)
        return max(1, math.ceil(every * steps - 1e-6)) if is_share(every) else int(every)

    def compared_by(self, facts: Mapping[str, Any]) -> dict[str, float]:
        known = {name: value for name, value in facts.items() if isinstance(value, float)}
        return {name: value for name, value in known.items() if name in LOSSES or name.endswith("_right")}

    def learned(self) -> dict[str, Any]:
        return {"objective": self.objective_of(-1)}

    def validates(self, step: int) -> bool:
        return self.validate > 0 and step % self.validation_interval == 0

    @property
    def validations(self) -> int:
        between = sum(phase.steps for phase in self.phase) - 1
        return 1 + (between // self.validation_interval if self.validate else 0)

    def is_saved(self, step: int) -> bool:
        return (self.save > 0 and step % self._steps(self.save) == 0) or self.is_revision(step)

    def is_revision(self, step: int) -> bool:
        if self.revisions == "powers":
            return step & (step - 1) == 0
        return step % self.revisions == 0 if isinstance(self.revisions, int) else step in self.revisions

    @property
    def comparable(self) -> bool:
        return bool(getattr(self.objective_of(-1), "COMPARABLE", True))

    def best_of(self, validations: Sequence[Mapping[str, Any]]) -> int:
        return self._lowest(validations) if self.keep_best else 0

    def is_enough(self, validations: Sequence[Mapping[str, Any]]) -> bool:
        best = self._lowest(validations)
        return bool(self.patience and best and sum(line["step"] > best for line in validations) >= self.patience)

    def _lowest(self, validations: Sequence[Mapping[str, Any]]) -> int:
        """Return the step of the lowest validation loss in the last phase, the first of equals; 0: there is none."""
        losses = {
            step: loss for step, loss in self.last_phase(validations).items() if math.isfinite(loss) and self.comparable
        }
        return min(losses, key=lambda step: (losses[step], step), default=0)

    @property
    def last_phases(self) -> range:
        """The numbers of the last phase and of the phases before it with comparable validation losses.

        Such phases differ only in length and learning rate, as the phases that extend a finished run do.
        """
        same: dict[str, Any] = {"steps": 1, "epochs": 0.0, "max_steps": 0, "batch": 1, "batch_ramp": None}
        same |= {"learning_rate": 1.0, "warmup": 0.0, "schedule": Schedule(), "rewarm": False}
        like = [replace(phase, **same) for phase in self.phase]
        count = len(like)
        first = next((n for n in range(count, 0, -1) if like[n - 1] != like[-1]), 0)
        return range(first + 1, count + 1)

    def last_phase(self, validations: Sequence[Mapping[str, Any]]) -> dict[int, float]:
        """Return the validation losses by step, of the last phase and the phases comparable with it."""
        numbers = self.last_phases
        of_phase = [line for line in validations if line["step"] and line.get("phase", numbers[-1]) in numbers]
        return {line["step"]: line["validation"] for line in of_phase}

    @property
    def revision_words(self) -> tuple[int, ...]:
        return numbers(self.revisions_at_words)

    def stamp(self) -> list[Any]:
        data: list[Any] = [Run(obtain(Encoding, name)).status["fingerprint"] for name in self.sources]
        return data + fingerprint(self.objective)
