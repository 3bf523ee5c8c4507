"""Options of generation (length, sampling, stop strings) and the generated text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError

FLAGS = {"best": "--best (--top-k)", "share": "--share (--top-p)", "typical": "--typical-p"}  # as users write them
Ending = Literal["end", "stop", "tokens"]  # the model's end token, a stop string, or the limit of tokens was reached


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen, and when a text ends."""

    tokens: int = 40  # most new tokens
    temperature: float = 1.0  # 0: always the likeliest token
    best: int = 0  # top-k: draw among the k likeliest tokens; 0: all
    share: float = 1.0  # top-p: draw among the likeliest tokens until their probabilities reach this sum
    typical: float = 1.0  # draw among the most typical tokens until they reach this sum (Meister et al. 2023)
    seed: int = 0
    penalty: float = 1.0  # repetition penalty of tokens that the text already has; 1: none
    stop: tuple[str, ...] = ()  # a text ends before the first of these strings
    samples: int = 1  # texts per prompt
    together: int = 1  # models that fill masks: tokens decided per pass
    order: Literal["certain", "chance"] = "certain"  # models that fill masks: which tokens are decided first
    start: bool = True  # causal models: put the document separator, if the model has one, before a prompt

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
                shown = "an empty string" if name == "stop" else value
                raise RecipeError(FLAGS.get(name, f"--{name}"), f"found {shown}", wanted)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def stopped(self, text: str) -> str | None:
        """Return the text up to the first stop string, or None if it has none."""
        positions = [position for stop in self.stop if (position := text.find(stop)) >= 0]
        return text[: min(positions)] if positions else None

    def key(self, prompt: str, sample: int) -> int:
        """Return the key of a text's random draws. It does not depend on the batch that the text is in."""
        return chance.key("text", self.seed, prompt, sample)


@dataclass(frozen=True)
class Generated:
    prompt: str
    continuation: str
    sample: int = 0  # its number among the samples of the prompt
    tokens: int = 0  # new tokens
    ended: Ending = "tokens"

    @property
    def text(self) -> str:
        return self.prompt + self.continuation
