"""Transformers' scorers: causal, by masks (plain or word by word), and by a head that tells fake tokens.

causal   <end> the newts        ->  the newts ran             each from those before it
masked   [CLS] the [MASK] ran   ->  newts                     each hidden in a row of its own (Salazar et al. 2020)
word     [CLS] [MASK] [MASK]    ->  new(t ##s)                and what its word has right of it (Kauf, Ivanova 2023)
detect   [CLS] the newts ran    ->  real real real            all in one pass
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.data.batch import Batch
from ordsmed.measure.likelihood.items import Ints, Item, Scores, split
from ordsmed.measure.likelihood.rows import AskedRows, answered
from ordsmed.nn.loss import token_logs
from ordsmed.nn.model import TokenHead
from ordsmed.weights.trained import Trained


class TransformerScorer:
    """What all have in common: `rows` says what is given and asked, a network and its head answer."""

    way = ""
    chained = False
    first = 0  # of a text's tokens that can be asked about
    lead: Ints | None = None
    by_line = False

    def __init__(
        self, trained: Trained, network: nn.Module, head: TokenHead, before: list[int], after: list[int]
    ) -> None:
        self.tokenizer, self.network, self.head = trained.tokenizer, network, head
        self.before, self.after = np.asarray(before, np.int64), np.asarray(after, np.int64)
        self.room = trained.settings.longest() - len(before) - len(after)
        self.both = trained.settings.capabilities.both and trained.objective.shifted
        self.bare = not trained.settings.capabilities.causal  # without being told it sees all

    def cut(self, texts: list[str]) -> list[Item]:
        """By the tokenizer, in which names such as [MASK] mean the token, as in others' libraries."""
        result = self.tokenizer.pipeline.encode_batch_fast(texts, add_special_tokens=False)
        return [Item(np.asarray(encoding.ids, np.int64), first=self.first) for encoding in result]

    def cost(self, item: Item) -> int:
        return len(item) + len(self.before) + len(self.after)

    def spelled(self, text: str, item: Item) -> int:
        """Those of words that its pieces do not make."""
        encoded = self.tokenizer.pipeline.encode(text, add_special_tokens=False)
        unknown = np.flatnonzero(np.asarray(encoded.ids) == self.tokenizer.unknown).tolist()
        return sum(len(text[slice(*encoded.offsets[n])].encode()) for n in unknown)

    @torch.inference_mode()
    def scores(self, items: list[Item], *, best: bool = False) -> list[Scores]:
        def answer(states: Tensor, targets: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            return self.answer(states, targets, which, best=best)

        device = next(self.network.parameters()).device
        logs, right = answered(self.rows(items), device, self.tokenizer.pad or 0, self.states, answer)
        return split(logs, right, [item.asked for item in items])

    def rows(self, items: list[Item]) -> AskedRows:
        """What is given and asked, item by item in their order."""
        raise NotImplementedError

    def answer(self, states: Tensor, targets: Tensor, which: Tensor, *, best: bool) -> tuple[Tensor, Tensor]:
        """Log-probabilities of tokens, each from the state with a number, and with `best` which are the likeliest."""
        states, head = self.head.transform(states), self.head
        words = head.words.weight
        return token_logs(states, words, head.bias, targets, self.tokenizer.vocabulary, states=which, best=best)

    def states(self, batch: Batch, at: Tensor) -> Tensor:
        """Of the network, at these places of all rows end to end."""
        how = {"documents": batch.texts(self.network), **self.how(batch)}
        alone = getattr(self.network, "takes_positions", False)
        hidden: Tensor = self.network(batch.tokens, batch.positions, **how, **({"at": at} if alone else {}))
        states = hidden.flatten(0, 1)
        return states if alone else states.index_select(0, at)

    def how(self, batch: Batch) -> dict[str, Any]:
        """What else the network is told."""
        return {}


class Causal(TransformerScorer):
    """Each token from those before it."""

    way = "causal"
    chained = True

    def __init__(
        self, trained: Trained, network: nn.Module, head: TokenHead, before: list[int], after: list[int]
    ) -> None:
        super().__init__(trained, network, head, before, after)
        self.room += 1  # the last token is not read
        self.first = 0 if before else 1
        self.lead = self.before

    def rows(self, items: list[Item]) -> AskedRows:
        ids, positions, targets = [], [], []
        for item in items:
            lead = self.before if item.sign else self.before[:0]
            ids.append(np.concatenate([lead, item.pieces[:-1]]))
            positions.append(np.arange(item.first - 1, len(item) - 1) + len(lead))
            targets.append(item.pieces[item.first :])
        return replace(AskedRows.joined(ids, positions, targets), read=_read(ids, positions))

    def how(self, batch: Batch) -> dict[str, Any]:
        return read_as(batch, causal=True) if self.both and self.bare else {}


class Masked(TransformerScorer):
    """Each token from all others."""

    way = "masked"

    def cost(self, item: Item) -> int:
        return super().cost(item) * (item.asked if item.hidden is None else 1)

    def rows(self, items: list[Item]) -> AskedRows:
        ids, counts, positions, targets = [], [], [], []
        for item in items:
            whole = np.concatenate([self.before, item.pieces, self.after])
            scored = np.arange(item.first, len(item)) if item.hidden is None else item.hidden
            shown = np.tile(whole, (len(scored) if item.hidden is None else 1, 1))
            inner = shown[:, len(self.before) : len(self.before) + len(item)]
            if item.hidden is None:
                inner[self.hidden(item.pieces)[scored]] = self.tokenizer.mask
            else:
                inner[0, scored] = self.tokenizer.mask
            ids += list(shown)
            counts += [len(scored) // len(shown)] * len(shown)
            positions.append(scored + len(self.before) - self.both)  # a hybrid fills a gap from the place before it
            targets.append(item.pieces[scored])
        return replace(AskedRows.joined(ids, positions, targets), asked_starts=np.cumsum([0, *counts]))

    def hidden(self, pieces: Ints) -> NDArray[np.bool_]:
        """[N, N]: which tokens are hidden when one is asked about."""
        return np.eye(len(pieces), dtype=bool)

    def how(self, batch: Batch) -> dict[str, Any]:
        return read_as(batch, causal=False) if self.both else {}


class WordAware(Masked):
    """Each token from all others but those of its word right of it."""

    way = "word"

    def hidden(self, pieces: Ints) -> NDArray[np.bool_]:
        word = np.cumsum(~self.tokenizer.continues(pieces, blanks=True))
        return (word[:, None] == word) & np.triu(np.ones((len(pieces), len(pieces)), bool))


class Detecting(TransformerScorer):
    """How real each token looks."""

    way = "detect"

    def rows(self, items: list[Item]) -> AskedRows:
        ids = [np.concatenate([self.before, item.pieces, self.after]) for item in items]
        positions = [np.arange(item.first, len(item)) + len(self.before) for item in items]
        return AskedRows.joined(ids, positions, [item.pieces[item.first :] for item in items])

    def answer(self, states: Tensor, targets: Tensor, which: Tensor, *, best: bool) -> tuple[Tensor, Tensor]:
        fake = self.head(states).float()[which]
        return F.logsigmoid(-fake), fake <= 0


def _read(ids: list[Ints], positions: list[Ints]) -> Ints:
    """A number for what stands up to each place: equal where that is."""
    numbers: dict[tuple[int, int], int] = {}
    result = []
    for row, at in zip(ids, positions, strict=True):
        node, nodes = 0, []
        for token in row.tolist():
            node = numbers.setdefault((node, token), len(numbers) + 1)
            nodes.append(node)
        result.append(np.asarray(nodes, np.int64)[at])
    return np.concatenate(result)


def read_as(batch: Batch, *, causal: bool) -> dict[str, Any]:
    """What a network that reads both ways is told: how these rows are to be read."""
    rows = len(batch.tokens)
    device = batch.tokens.device
    documents = {} if batch.documents is not None else {"documents": torch.ones_like(batch.tokens)}
    return {"causal": torch.full((rows,), causal, device=device), **documents}
