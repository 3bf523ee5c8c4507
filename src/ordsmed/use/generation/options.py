"""Options of what is written: how long, how the next token is chosen, where a text ends; and what comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError

FLAGS = {
    "best": "--best (--top-k)",
    "share": "--share (--top-p)",
    "typical": "--typical-p",
}  # where a flag has two names
Ending = Literal["end", "stop", "tokens"]  # the model's end sign, a stop string, as many tokens as were asked for


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen, and when a text is done."""

    tokens: int = 40  # at most so many
    temperature: float = 1.0  # 0: always the likeliest
    best: int = 0  # among so many; 0: all
    share: float = 1.0  # among the likeliest that together have this share, the one that reaches it among them
    typical: float = 1.0  # among those with this share whose information is nearest to the mean (Meister et al. 2023)
    seed: int = 0
    penalty: float = 1.0  # what a token's score is lessened by when it stands in the text already; 1: nothing
    stop: tuple[str, ...] = ()  # a text ends before one of these
    samples: int = 1  # texts a prompt
    together: int = 1  # of who writes by filling: tokens that are decided in one pass
    order: Literal["certain", "chance"] = "certain"  # of the same: which of them
    start: bool = True  # of who goes on: does a prompt stand behind the sign between documents, where it has one?

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("tokens", self.tokens >= 1, "1 or more"),
            ("temperature", 0 <= self.temperature < math.inf, "0 or more"),
            ("best", self.best >= 0, "0 or more"),
            ("share", 0 < self.share <= 1, "above 0, to 1"),
            ("typical", 0 < self.typical <= 1, "above 0, to 1"),
            ("penalty", 0 < self.penalty < math.inf, "above 0; 1 changes nothing"),
            ("stop", all(self.stop), "a string that is not empty"),
            ("samples", self.samples >= 1, "1 or more"),
            ("together", self.together >= 1, "1 or more"),
            ("order", self.order in ("certain", "chance"), "certain or chance"),
        ):
            if not good:
                value = getattr(self, name)
                shown = "an empty one" if name == "stop" else value
                raise RecipeError(FLAGS.get(name, f"--{name}"), f"found {shown}", wanted)

    @property
    def greedy(self) -> bool:
        """Is nothing left to chance?"""
        return self.temperature == 0

    def stopped(self, text: str) -> str | None:
        """A text up to the first of the stop strings; None: it holds none."""
        places = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else None

    def key(self, prompt: str, sample: int) -> int:
        """What the draws of one text are hashed from: neither its place in a batch nor what else is written."""
        return chance.key("text", self.seed, prompt, sample)


@dataclass(frozen=True)
class Generated:
    """A text and how the model goes on with it."""

    prompt: str
    continuation: str
    sample: int = 0  # which of several
    tokens: int = 0  # so many are new
    ended: Ending = "tokens"

    @property
    def text(self) -> str:
        return self.prompt + self.continuation
