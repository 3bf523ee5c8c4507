"""Generate: a causal model goes on with a text, token by token, keeping keys and values of what it has read.

"Once upon a" -> " time there was"    scores / temperature -> the best k -> the likeliest that make a share -> draw
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ordsmed.apply.trained import Trained
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.nn.attention import Cache


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen."""

    tokens: int = 40  # at most so many
    temperature: float = 1.0  # 0: always the likeliest
    best: int = 0  # among so many; 0: all
    share: float = 1.0  # among the likeliest that together have this share
    seed: int = 0

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("tokens", self.tokens >= 1, "1 or more"), ("temperature", self.temperature >= 0, "0 or more"),
            ("best", self.best >= 0, "0 or more"), ("share", 0 < self.share <= 1, "above 0, to 1"),
        ):  # fmt: skip
            if not good:
                raise RecipeError(f"--{name}", f"found {getattr(self, name)}", wanted)


@dataclass(frozen=True)
class Generated:
    """A text and how the model goes on with it."""

    prompt: str
    continuation: str

    @property
    def text(self) -> str:
        """The whole."""
        return self.prompt + self.continuation


@torch.no_grad()
def generate(trained: Trained, text: str, way: SamplingOptions) -> Generated:
    """What the model writes behind a text, up to its end sign."""
    check(trained)
    tokenizer = trained.tokenizer
    end = tokenizer.end if tokenizer.end is not None else tokenizer.stop
    ids = [*([] if end is None else [end]), *tokenizer.encode(text)]
    longest = trained.settings.longest()
    if not ids or len(ids) >= longest:
        raise RecipeError(
            repr(text[:40]),
            f"found {many(len(ids), 'token')}",
            f"1 to {longest - 1:,}, so that one can follow",
            "shorten it",
        )
    chance, device = torch.Generator().manual_seed(way.seed), trained.device
    model, head = trained.objective.model, trained.objective.get_submodule("head")
    cache, new, made = Cache(trained.settings.layers), torch.tensor([ids], device=device), []
    for _ in range(min(way.tokens, longest - len(ids))):
        positions = torch.arange(cache.length, cache.length + new.shape[1], device=device)[None]
        with trained.within():
            scores = head(model(new, positions, cache=cache)[0, -1])
        word = choose(scores.float().cpu(), way, chance)
        if word == end:
            break
        made.append(word)
        new = torch.tensor([[word]], device=device)
    before = tokenizer.decode(ids)
    return Generated(text, tokenizer.decode([*ids, *made]).removeprefix(before) if made else "")


def choose(scores: Tensor, way: SamplingOptions, chance: torch.Generator) -> int:
    """The next token by its scores, [V]."""
    if way.temperature == 0:
        return int(scores.argmax())
    scores = scores / way.temperature
    if way.best and way.best < len(scores):
        least = scores.topk(way.best).values[-1]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if way.share < 1:
        ordered, words = scores.softmax(-1).sort(descending=True)
        behind = ordered.cumsum(-1) - ordered >= way.share  # what stands before it has the share already
        scores = scores.index_fill(0, words[behind], -torch.inf)
    return int(torch.multinomial(scores.softmax(-1), 1, generator=chance))


def check(trained: Trained) -> None:
    """Refuse a model that goes on with no text."""
    trained.check_heads()
    if not trained.continues:
        raise RecipeError(
            trained.folder, f"is no causal model ({trained.kind})", "one trained with clm or hybrid",
            "`ordsmed embed` takes it" if trained.settings.capabilities.state else "`ordsmed fill` asks a masked one",
        )  # fmt: skip
