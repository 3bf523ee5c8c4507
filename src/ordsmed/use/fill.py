"""Fill: a model's best guesses for every [MASK] of a text.

"the [MASK] sat on the [MASK]"  ->  cat 41.0%, dog 12.0%  |  mat 33.0%, sofa 8.0%
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import torch

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights.trained import Trained

MASK = "[MASK]"  # understood whatever the tokenizer's own spelling


@dataclass(frozen=True)
class Guess:
    """A piece that may stand at a mask."""

    text: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text and the best guesses for each of its masks."""

    text: str
    masks: tuple[tuple[Guess, ...], ...]

    @property
    def lines(self) -> list[str]:
        """The text and, below it, every mask's guesses with their probabilities."""
        rows = (", ".join(f"{guess.text} {guess.probability:.1%}" for guess in mask) for mask in self.masks)
        names = [MASK] if len(self.masks) == 1 else [f"{MASK} {number}" for number in range(1, len(self.masks) + 1)]
        return [self.text, *(f"  {name}: {row}" for name, row in zip(names, rows, strict=True))]


def lines(stream: IO[bytes], name: str = "standard input") -> Iterator[str]:
    """Lines of UTF-8 as they come; one that is not is refused by its number."""
    for number, line in enumerate(iter(stream.readline, b""), 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            found = f"invalid UTF-8 at byte {error.start + 1} of the line (0x{line[error.start]:02x})"
            raise DataError(f"{name}:{number}", found, "UTF-8 text", "mend that line") from None


def fill(trained: Trained, text: str, best: int = 5) -> Filled:
    """The likeliest pieces at each mask of a text, with their probabilities."""
    check(trained, best)
    tokenizer = trained.tokenizer
    ids = framed(tokenizer, text, ends=trained.objective.shifted)
    masks = [place for place, number in enumerate(ids) if number == tokenizer.mask]
    if not masks:
        raise RecipeError(_short(text), "no mask in the text", f"one or more {MASK}")
    if len(ids) > trained.settings.longest():
        raise RecipeError(
            _short(text), f"found {many(len(ids), 'token')}", f"at most {trained.settings.longest():,}", "shorten it"
        )
    network, head = _guesser(trained)
    shifted, device = trained.objective.shifted, trained.device
    tokens, positions = torch.tensor([ids], device=device), torch.arange(len(ids), device=device)[None]
    both = {"documents": torch.ones_like(tokens), "causal": torch.tensor([False], device=device)} if shifted else {}
    with torch.no_grad(), trained.within():
        hidden = network(tokens, positions, **both)
        shares = head(hidden[0, [place - 1 for place in masks] if shifted else masks]).float().softmax(-1)
    top = shares.topk(min(best, shares.shape[-1]))
    rows = zip(top.values.tolist(), top.indices.tolist(), strict=True)
    guesses = ((Guess(written_as(tokenizer, n), share) for share, n in zip(*row, strict=True)) for row in rows)
    return Filled(text, tuple(map(tuple, guesses)))


def _guesser(trained: Trained) -> Any:
    """The network that guesses words, and its head: of an ELECTRA it is the generator. None: there is none."""
    with_head = (network.modules for network in trained.objective.networks().values() if "head" in network.modules)
    return next(((modules["model"], modules["head"]) for modules in with_head), None)


def check(trained: Trained, best: int = 1) -> None:
    """Refuse a model that fills no masks."""
    if best < 1:
        raise RecipeError("--best", f"found {best}", "1 or more")
    trained.check_heads()
    if trained.settings.capabilities.state:
        remedy = "`ordsmed embed` gives its vectors"
        raise RecipeError(trained.folder, "is an ELMo: it fills no masks", "a model trained with mlm or hybrid", remedy)
    if trained.causal and not trained.objective.shifted:
        problem = f"is a causal model ({trained.kind}): it does not see what stands after a mask"
        remedy = "`ordsmed generate` goes on with a text"
        raise RecipeError(trained.folder, problem, "a model trained with mlm or hybrid", remedy)
    if _guesser(trained) is None:
        inner = trained.folder / "generator"
        remedy = f"`{command('fill', inner)}` asks its generator" if inner.is_dir() else ""
        raise RecipeError(trained.folder, "has no head that predicts tokens", "a model trained with mlm", remedy)
    if trained.tokenizer.mask is None:
        raise RecipeError(trained.folder, "its tokenizer has no mask", f"{MASK} or <mask> among its pieces")


def framed(tokenizer: Tokenizer, text: str, *, ends: bool) -> list[int]:
    """Ids of a text as rows hold them in training: start, pieces, stop; or pieces between end signs."""
    assert tokenizer.mask is not None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(_short(text), f"invalid UTF-8 at character {error.start + 1}", "UTF-8 text") from None
    ids = tokenizer.encode(text.replace(MASK, tokenizer.piece(tokenizer.mask)))
    end = tokenizer.separator
    frame = (end, end) if ends else (tokenizer.start, tokenizer.stop)
    before, after = ([n] if n is not None else [] for n in frame)
    return [*before, *ids, *after]


def written_as(tokenizer: Tokenizer, number: int) -> str:
    """A piece as people read it: without ## and without the sign for a space."""
    piece = tokenizer.piece(number)
    prefix = tokenizer.model.get("continuing_subword_prefix") or "##"
    if tokenizer.kind == "wordpiece":
        return piece.removeprefix(prefix) or piece
    return tokenizer.decode([number], skip_special=False).strip() or piece


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
