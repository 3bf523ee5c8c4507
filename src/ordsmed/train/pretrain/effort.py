"""Effort: how often a pretraining passes over its text and how long that takes; what makes no sense is refused.

A recipe of a paper takes the paper's steps, whatever the text is: on a page of text that is a million passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import duration, large, many
from ordsmed.learn.phases import Phase, total

MOST_PASSES = 1_000
MOST_DAYS = 60  # on the machine that it would begin on
PASSES = 40  # what is named in their place: more of the same text hardly teach more (Muennighoff et al. 2023)
DAY = 86_400.0
FITTED = "`ordsmed make TEXTS OUT --hours H` fits a model and its steps to a text"


@dataclass(frozen=True)
class Effort:
    """What a pretraining takes."""

    phases: tuple[Phase, ...]
    tokens: int  # of the text that it learns from
    by_epochs: bool  # its recipe counts in those
    lacks_validation: bool  # text was to be held out, and is none
    seconds: float  # on this machine; 0: not known

    @property
    def passes(self) -> float:
        """How often the text is gone through."""
        return sum(phase.rows * phase.length for phase in self.phases) / self.tokens

    @property
    def line(self) -> str:
        """For a person."""
        time = f"; about {duration(self.seconds)} on this machine" if self.seconds else ""
        return f"{_count(self.passes)} over {large(self.tokens)} tokens{time}"

    def problems(self) -> Iterator[RecipeError]:
        """What makes no sense, each with what to write instead; --yes wants it all the same."""
        steps, largest = f"{many(total(self.phases), 'step')}", max(phase.batch * phase.length for phase in self.phases)
        if self.passes > MOST_PASSES:
            problem = f"found {steps}, {_count(self.passes)} over {large(self.tokens)} tokens"
            share = PASSES / self.passes
            fewer = f"{self._fewer(share)} for {PASSES}" if share * total(self.phases) >= len(self.phases) else ""
            yield _error("phase.steps", problem, f"at most {MOST_PASSES:,} passes", fewer)
        if self.tokens < largest:
            problem = f"found {large(self.tokens)} tokens, less than the {largest:,} of one batch"
            yield _error("data", problem, "more text, or a smaller `phase.batch`")
        if self.lacks_validation:
            remedy = "put blank lines between documents, or give the corpus validation=0"
            yield _error("data", "found nothing held out: its corpus has one document", "two or more", remedy)
        if self.seconds > MOST_DAYS * DAY:
            problem = f"found {steps}, about {duration(self.seconds)} on this machine"
            yield _error("phase.steps", problem, f"at most {MOST_DAYS} days", "--deadline 8h takes fewer")

    def _fewer(self, share: float) -> str:
        """Words that leave so many of the steps, their warm-up in proportion."""
        words = []
        for number, phase in enumerate(self.phases, 1):
            key = f"phase[{number}]" if len(self.phases) > 1 else "phase"
            words += [f"{key}.epochs=0"] if self.by_epochs else []
            words.append(f"{key}.steps={max(1, int(phase.steps * share))}")
            words += [f"{key}.warmup={phase.warmup / phase.steps:.2g}"] if phase.warmup >= 1 else []
        return f"`{' '.join(words)}`"


def _count(passes: float) -> str:
    return many(passes, "pass") if passes < 999.5 else f"{large(passes)} passes"


def _error(place: str, problem: str, wanted: str, remedy: str = "") -> RecipeError:
    parts = [remedy, FITTED, "--yes (submit: --anyway, Python: yes=True) trains all the same"]
    return RecipeError(place, problem, wanted, "; ".join(part for part in parts if part))
