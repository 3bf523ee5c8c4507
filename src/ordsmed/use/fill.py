"""Fill masks: the best guesses of a model for every [MASK] of a text.

"the [MASK] sat on the [MASK]"  ->  cat 41.0%, dog 12.0%  |  mat 33.0%, sofa 8.0%
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Packing, by_length
from ordsmed.learn.inference import TOKENS
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights.trained_model import Trained

MASK = "[MASK]"  # accepted in texts, whatever the tokenizer calls its mask
STATES = 256  # positions scored at once over the whole vocabulary


@dataclass(frozen=True)
class Guess:
    """A token that may replace a mask."""

    text: str
    probability: float
    token: int = field(default=-1, repr=False)  # its id


@dataclass(frozen=True)
class Filled:
    text: str
    masks: tuple[tuple[Guess, ...], ...]

    @property
    def lines(self) -> list[str]:
        """Return the text and, below it, the guesses for each mask with their probabilities."""
        rows = (", ".join(f"{guess.text} {guess.probability:.1%}" for guess in mask) for mask in self.masks)
        names = [MASK] if len(self.masks) == 1 else [f"{MASK} {number}" for number in range(1, len(self.masks) + 1)]
        return [self.text, *(f"  {name}: {row}" for name, row in zip(names, rows, strict=True))]


def lines(stream: IO[bytes], name: str = "standard input") -> Iterator[str]:
    """Yield lines of UTF-8 as they arrive, or raise an error that names the number of an invalid line."""
    for number, line in enumerate(iter(stream.readline, b""), 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            problem = f"invalid UTF-8 at byte {error.start + 1} of the line (0x{line[error.start]:02x})"
            raise DataError(f"{name}:{number}", problem, "UTF-8 text", "correct that line") from None


def fill(trained: Trained, text: str, best: int = 5) -> Filled:
    return fill_each(trained, [text], best)[0]


def fill_each(trained: Trained, texts: Sequence[str], best: int = 5, targets: Sequence[str] = ()) -> list[Filled]:
    """Return the likeliest tokens at each mask of several texts, which are read together without padding.

    `targets` restricts the tokens to choose from.
    """
    check(trained, best)
    rows = [_row(trained, text) for text in texts]
    if not rows:
        return []
    features = Features(np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(np.int32))
    gaps = [np.flatnonzero(np.asarray(row) == trained.tokenizer.mask) for row in rows]
    network, head = _guesser(trained)
    only = [_target(trained.tokenizer, target) for target in targets]
    filled: dict[int, Filled] = {}
    for chosen in by_length(features.sizes, TOKENS.get(trained.device.type, TOKENS["cpu"])):
        batch = Packing(trained.tokenizer.pad or 0).batch(features, chosen, chosen)
        assert batch.spans is not None
        begins = batch.spans[:, 0].tolist()
        at = np.concatenate([gaps[n] + begin for n, begin in zip(chosen, begins, strict=True)])
        with torch.no_grad(), trained.within():
            hidden = _hidden(network, batch.to(trained.device), shifted=trained.objective.shifted)
            states = hidden[torch.from_numpy(at - trained.objective.shifted).to(trained.device)]
            guesses = [guess for part in states.split(STATES) for guess in _best(head(part), best, only)]
        guessed = iter(guesses)
        for n in chosen.tolist():
            masks = [next(guessed) for _ in gaps[n]]
            filled[n] = Filled(texts[n], tuple(tuple(_guess(trained, *pair) for pair in mask) for mask in masks))
    return [filled[n] for n in range(len(texts))]


def _row(trained: Trained, text: str) -> list[int]:
    """Return the ids of a text, or raise an error if it has no mask or is too long."""
    ids = framed(trained.tokenizer, text, ends=trained.objective.shifted)
    if trained.tokenizer.mask not in ids:
        raise RecipeError(_short(text), "has no mask", f"one or more {MASK}")
    if len(ids) > trained.settings.longest():
        raise RecipeError(
            _short(text), f"found {many(len(ids), 'token')}", f"at most {trained.settings.longest():,}", "shorten it"
        )
    return ids


def _target(tokenizer: Tokenizer, target: str) -> int:
    """Return the token of a word, or its first token if it has several."""
    number = tokenizer.pipeline.token_to_id(target)
    ids = tokenizer.encode(target) if number is None else [number]
    if not ids or ids[0] == tokenizer.unknown:
        problem = f"found {_short(target)}, which begins with no token of the vocabulary"
        raise RecipeError("targets", problem, "a known word")
    return ids[0]


def _hidden(network: nn.Module, batch: Batch, *, shifted: bool) -> Tensor:
    """Return the states of all tokens, rows end to end. A hybrid model reads them bidirectionally."""
    documents = batch.texts(network)
    both: dict[str, Tensor] = {}
    if shifted:
        documents = torch.ones_like(batch.tokens) if documents is None else documents
        both = {"causal": torch.zeros(len(batch.tokens), dtype=torch.bool, device=batch.tokens.device)}
    hidden: Tensor = network(batch.tokens, batch.positions, documents=documents, **both)
    return hidden.flatten(0, 1)


def _best(scores: Tensor, best: int, only: list[int]) -> list[list[tuple[int, float]]]:
    """Return the `best` likeliest tokens at each state with their probabilities."""
    shares = scores.float().softmax(-1)
    chosen = torch.tensor(only, device=shares.device) if only else None
    shares = shares if chosen is None else shares[:, chosen]
    top = shares.topk(min(best, shares.shape[-1]))
    numbers = top.indices if chosen is None else chosen[top.indices]
    return [
        list(zip(row, values, strict=True)) for row, values in zip(numbers.tolist(), top.values.tolist(), strict=True)
    ]


def _guess(trained: Trained, number: int, probability: float) -> Guess:
    return Guess(text_of_token(trained.tokenizer, number), probability, number)


def _guesser(trained: Trained) -> Any:
    """Return the network with a token head (of an ELECTRA, its generator) and the head, or None."""
    with_head = (network.modules for network in trained.objective.networks().values() if "head" in network.modules)
    return next(((modules["model"], modules["head"]) for modules in with_head), None)


def check(trained: Trained, best: int = 1) -> None:
    if best < 1:
        raise RecipeError("--best", f"found {best}", "1 or more")
    trained.check_heads()
    if trained.settings.capabilities.state:
        wanted, remedy = "a model trained with mlm or hybrid", "`ordsmed embed` makes vectors with it"
        raise RecipeError(trained.folder, "is an ELMo, which cannot fill masks", wanted, remedy)
    if trained.causal and not trained.objective.shifted:
        problem = f"is a causal model ({trained.kind}), which does not see the text after a mask"
        remedy = "`ordsmed generate` continues texts with it"
        raise RecipeError(trained.folder, problem, "a model trained with mlm or hybrid", remedy)
    if _guesser(trained) is None:
        inner = trained.folder / "generator"
        remedy = f"use its generator: `{command('fill', inner)}`" if inner.is_dir() else ""
        raise RecipeError(trained.folder, "has no head that predicts tokens", "a model trained with mlm", remedy)
    if trained.tokenizer.mask is None:
        raise RecipeError(trained.folder, "its tokenizer has no mask token", f"{MASK} or <mask> in its vocabulary")


def framed(tokenizer: Tokenizer, text: str, *, ends: bool) -> list[int]:
    """Return the ids of a text with the special tokens that rows have in training.

    These are the start and stop tokens, or with `ends` the end token on both sides.
    """
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


def text_of_token(tokenizer: Tokenizer, number: int) -> str:
    """Return a token as text, without ## or the character that marks a space."""
    piece = tokenizer.piece(number)
    prefix = tokenizer.model.get("continuing_subword_prefix") or "##"
    if tokenizer.kind == "wordpiece":
        return piece.removeprefix(prefix) or piece
    return tokenizer.decode([number], skip_special=False).strip() or piece


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
