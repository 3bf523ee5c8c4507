"""Effort: passes over the text and training time of a pretraining; absurd values are refused.

A paper's recipe has the paper's number of steps for any text: on a page of text these are a million passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import duration, large, many
from ordsmed.learn.phases import Phase, total

MOST_PASSES = 1_000
MOST_DAYS = 60  # on this machine
PASSES = 40  # passes that the remedy suggests: more of the same text hardly help (Muennighoff et al. 2023)
DAY = 86_400.0
FITTED = "`ordsmed make TEXTS OUT --hours H` chooses a model and steps that suit a text"


@dataclass(frozen=True)
class Effort:
    phases: tuple[Phase, ...]
    tokens: int  # tokens of the training text
    by_epochs: bool  # the recipe sets epochs instead of steps
    lacks_validation: bool  # no text could be held out for validation
    seconds: float  # on this machine; 0: unknown

    @property
    def passes(self) -> float:
        return sum(phase.rows * phase.length for phase in self.phases) / self.tokens

    @property
    def line(self) -> str:
        time = f"; about {duration(self.seconds)} on this machine" if self.seconds else ""
        return f"{_count(self.passes)} over {large(self.tokens)} tokens{time}"

    def problems(self) -> Iterator[RecipeError]:
        """Yield an error with a remedy for each absurd value; `--yes` trains anyway."""
        steps, largest = f"{many(total(self.phases), 'step')}", max(phase.batch * phase.length for phase in self.phases)
        if self.passes > MOST_PASSES:
            problem = f"found {steps}, {_count(self.passes)} over {large(self.tokens)} tokens"
            share = PASSES / self.passes
            fewer = f"{self._reduced(share)} for {PASSES}" if share * total(self.phases) >= len(self.phases) else ""
            yield _error("phase.steps", problem, f"at most {MOST_PASSES:,} passes", fewer)
        if self.tokens < largest:
            problem = f"found {large(self.tokens)} tokens, less than the {largest:,} of one batch"
            yield _error("data", problem, "more text, or a smaller `phase.batch`")
        if self.lacks_validation:
            remedy = "separate documents by blank lines, or set validation=0 for the corpus"
            yield _error("data", "found no held-out text: the corpus has one document", "two or more", remedy)
        if self.seconds > MOST_DAYS * DAY:
            problem = f"found {steps}, about {duration(self.seconds)} on this machine"
            yield _error("phase.steps", problem, f"at most {MOST_DAYS} days", "--deadline 8h trains fewer steps")

    def _reduced(self, share: float) -> str:
        """Return overrides that reduce steps and warm-ups to `share`."""
        words = []
        for number, phase in enumerate(self.phases, 1):
            key = f"phase[{number}]" if len(self.phases) > 1 else "phase"
            words += [f"{key}.epochs=0"] if self.by_epochs else []
            words.append(f"{key}.steps={max(1, int(phase.steps * share))}")
            words += [f"{key}.warmup={phase.warmup / phase.steps:.2g}"] if phase.warmup >= 1 else []
        return f"`{' '.join(words)}`"


def _count(passes: float) -> str:
    return many(passes, "pass") if passes < 999.5 else f"{large(passes)} passes"


def _error(location: str, problem: str, wanted: str, remedy: str = "") -> RecipeError:
    parts = [remedy, FITTED, "--yes (submit: --anyway, Python: yes=True) trains anyway"]
    return RecipeError(location, problem, wanted, "; ".join(part for part in parts if part))
