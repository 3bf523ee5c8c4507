"""How `make` divides its hours: every share, reserve and deadline that follows from `--hours` is computed here.

    hours = preparing (corpus, tokenizer, token ids) + training + [pairs, vectors, reranker, index] + closing

The plan reserves the parts; a stage takes the seconds that are left when it starts; more hours extend the training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import duration, say

PREPARING, PREPARING_SECONDS = 0.2, 8.0  # most share of the time for the corpus; least seconds
CLOSING, CLOSING_SECONDS = (0.03, 25.0)  # for examples, scores and export: share of the time, least seconds
SEARCHING = 0.45  # share of the time for building a search engine from a language model
LEAST = 0.1  # least share of the time for training, and for training on pairs
ENDING, ENDING_SECONDS = 0.2, 20.0  # for the test, index and exports of a search engine: share, least seconds
RESTART = 15.0  # seconds from the start of a command to its first step, if corpus and token ids exist
KEPT = "corpus, tokenizer and token ids stay"


@dataclass(frozen=True)
class Hours:
    """The hours of a request; `search` builds a search engine in them as well."""

    hours: float
    search: bool = False

    @property
    def seconds(self) -> float:
        return self.hours * 3600

    @property
    def row_length(self) -> int:
        """The tokens of a row: longer rows take longer to pay off."""
        return 64 if self.hours < 2 else 128 if self.hours < 24 else 256

    def preparing(self, reading: float) -> tuple[float, float]:
        """Return the share of the text to read, and the seconds of preparing, if all of it takes `reading` seconds."""
        share = min(1.0, max(PREPARING * self.seconds - PREPARING_SECONDS, 4.0) / max(reading, 1e-9))
        if share >= 0.95:
            return 1.0, reading + PREPARING_SECONDS
        return float(f"{share:.2g}"), PREPARING * self.seconds

    def after_training(self, seconds: float = 0.0) -> float:
        """Return the seconds of all stages after the training, out of `seconds`; 0: out of all hours."""
        seconds = seconds or self.seconds
        return max(CLOSING_SECONDS, CLOSING * seconds) + (SEARCHING * seconds if self.search else 0.0)

    def training(self, spent: float) -> float:
        """Return the seconds of training after `spent` seconds."""
        return max(self.seconds - spent - self.after_training(), LEAST * self.seconds)

    def deadline(self, used: float) -> float:
        """Return the seconds that a training may take which starts after `used` seconds."""
        left = self.training(used)
        if left > self.seconds - used - self.after_training():
            say(f"preparing took longer than planned: training gets {duration(left)} all the same")
        return left

    def more_training(self, used: float, *, closed: bool) -> float:
        """Return the further seconds of a training; `closed`: the later stages are done already, and are repeated."""
        left = self.seconds - used
        return left - self.after_training(max(left, 1.0) if closed else 0.0)

    def pair_training(self, used: float) -> float:
        """Return the seconds for training vectors and a reranker on pairs of texts."""
        return max(self.seconds - used - max(ENDING_SECONDS, ENDING * self.seconds), LEAST * self.seconds)

    def enough(self, seconds: float) -> float:
        """Return the hours, rounded up, in which `seconds` of preparing and training fit."""
        share = CLOSING + (SEARCHING if self.search else 0.0)
        hours = max(seconds / (1 - share), (seconds + CLOSING_SECONDS) / (1 - share + CLOSING)) / 3600
        digits = 1 - math.floor(math.log10(hours))
        return math.ceil(hours * 10**digits) / 10**digits

    def too_few(self, used: float, training: float) -> RecipeError:
        """Return the error that too little is left for the `training` seconds of the smallest training."""
        problem = f"{self.hours:g} are too few: {duration(used)} are used, and training needs {duration(training)} more"
        wanted = f"{self.enough(used + RESTART + 1.5 * training):.2g} or more"
        return RecipeError("--hours", problem, wanted, f"the same command with more hours continues: {KEPT}")
