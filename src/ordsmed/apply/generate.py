"""Generate: a causal model goes on with a text, token by token, keeping keys and values of what it has read.

"Once upon a" -> " time there was"    scores / temperature -> the best k -> the likeliest that make a share -> draw
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import torch
from torch import Tensor

from ordsmed.apply.fill import lines
from ordsmed.apply.trained import Trained, open_model
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import prepare
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


def generate_lines(
    path: str | Path, texts: Iterable[str] | IO[bytes], way: SamplingOptions, *, step: int | None = None,
    threads: int | None = None,
) -> Iterator[str]:  # fmt: skip
    """Each text and how the model goes on; an empty one is begun by the model."""
    prepare("cpu", threads, flags=True)
    trained = open_model(path, step)
    _check(trained)
    given = lines(cast("IO[bytes]", texts)) if hasattr(texts, "readline") else texts
    for text in given:
        yield text + generate(trained, text, way)


@torch.no_grad()
def generate(trained: Trained, text: str, way: SamplingOptions) -> str:
    """What the model writes behind a text, up to its end sign."""
    _check(trained)
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
    chance = torch.Generator().manual_seed(way.seed)
    model, head = trained.objective.model, trained.objective.get_submodule("head")
    cache, new, made = Cache(trained.settings.layers), torch.tensor([ids]), []
    for _ in range(min(way.tokens, longest - len(ids))):
        positions = torch.arange(cache.length, cache.length + new.shape[1])[None]
        hidden = model(new, positions, cache=cache)
        word = choose(head(hidden[0, -1]).float(), way, chance)
        if word == end:
            break
        made.append(word)
        new = torch.tensor([[word]])
    before = tokenizer.decode(ids)
    return tokenizer.decode([*ids, *made]).removeprefix(before) if made else ""


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


def _check(trained: Trained) -> None:
    if not trained.continues:
        raise RecipeError(
            trained.folder, f"is no causal model ({trained.kind})", "one trained with clm or hybrid",
            "`ordsmed embed` takes it" if trained.settings.capabilities.state else "`ordsmed fill` asks a masked one",
        )  # fmt: skip
