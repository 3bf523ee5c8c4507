"""Scorers of Transformers: causal, masked (token by token or word by word), and by a head that detects fake tokens.

causal   <end> the newts        ->  the newts ran         each token from those before it
masked   [CLS] the [MASK] ran   ->  newts                 each token masked in its own row (Salazar et al. 2020)
word     [CLS] [MASK] [MASK]    ->  new(t ##s)            the rest of the word is masked, too (Kauf, Ivanova 2023)
detect   [CLS] the newts ran    ->  real real real        all tokens in one pass
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
from ordsmed.measure.likelihood.rows import ScoredRows, score_rows
from ordsmed.nn.loss import token_logs
from ordsmed.nn.model import TokenHead
from ordsmed.weights.trained_model import Trained


class TransformerScorer:
    """Base class: `rows` builds inputs and scored positions, a network and its head compute the scores."""

    way = ""
    chained = False
    first = 0  # index of the first token that can be scored
    start_tokens: Ints | None = None
    by_line = False

    def __init__(
        self, trained: Trained, network: nn.Module, head: TokenHead, before: list[int], after: list[int]
    ) -> None:
        self.tokenizer, self.network, self.head = trained.tokenizer, network, head
        self.before, self.after = np.asarray(before, np.int64), np.asarray(after, np.int64)
        self.max_tokens = trained.settings.longest() - len(before) - len(after)
        self.both = trained.settings.capabilities.both and trained.objective.shifted
        self.bare = not trained.settings.capabilities.causal  # bidirectional by default

    def cut(self, texts: list[str]) -> list[Item]:
        """Tokenize texts; the text of a special token such as [MASK] becomes that token, as in other libraries."""
        result = self.tokenizer.pipeline.encode_batch_fast(texts, add_special_tokens=False)
        return [Item(np.asarray(encoding.ids, np.int64), first=self.first) for encoding in result]

    def cost(self, item: Item) -> int:
        return len(item) + len(self.before) + len(self.after)

    def spelled(self, text: str, item: Item) -> int:
        encoded = self.tokenizer.pipeline.encode(text, add_special_tokens=False)
        unknown = np.flatnonzero(np.asarray(encoded.ids) == self.tokenizer.unknown).tolist()
        return sum(len(text[slice(*encoded.offsets[n])].encode()) for n in unknown)

    @torch.inference_mode()
    def scores(self, items: list[Item], *, best: bool = False) -> list[Scores]:
        def answer(states: Tensor, targets: Tensor, state_numbers: Tensor) -> tuple[Tensor, Tensor]:
            return self.answer(states, targets, state_numbers, best=best)

        device = next(self.network.parameters()).device
        logs, right = score_rows(self.rows(items), device, self.tokenizer.pad or 0, self.states, answer)
        return split(logs, right, [item.scored_count for item in items])

    def rows(self, items: list[Item]) -> ScoredRows:
        """Return the input rows and scored positions of items, in order."""
        raise NotImplementedError

    def answer(self, states: Tensor, targets: Tensor, state_numbers: Tensor, *, best: bool) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of targets, each from state number `numbers`; `best`: are they the likeliest?"""
        states, head = self.head.transform(states), self.head
        words = head.words.weight
        return token_logs(states, words, head.bias, targets, self.tokenizer.vocabulary, states=state_numbers, best=best)

    def states(self, batch: Batch, at: Tensor) -> Tensor:
        """Return the network's hidden states at these positions of the concatenated rows."""
        options = {"documents": batch.texts(self.network), **self.network_inputs(batch)}
        takes_positions = getattr(self.network, "takes_positions", False)
        hidden: Tensor = self.network(
            batch.tokens, batch.positions, **options, **({"at": at} if takes_positions else {})
        )
        states = hidden.flatten(0, 1)
        return states if takes_positions else states.index_select(0, at)

    def network_inputs(self, batch: Batch) -> dict[str, Any]:
        return {}


class Causal(TransformerScorer):
    way = "causal"
    chained = True

    def __init__(
        self, trained: Trained, network: nn.Module, head: TokenHead, before: list[int], after: list[int]
    ) -> None:
        super().__init__(trained, network, head, before, after)
        self.max_tokens += 1  # the last token is predicted, not read
        self.first = 0 if before else 1
        self.start_tokens = self.before

    def rows(self, items: list[Item]) -> ScoredRows:
        ids, positions, targets = [], [], []
        for item in items:
            start = self.before if item.sign else self.before[:0]
            ids.append(np.concatenate([start, item.pieces[:-1]]))
            positions.append(np.arange(item.first - 1, len(item) - 1) + len(start))
            targets.append(item.pieces[item.first :])
        return replace(ScoredRows.joined(ids, positions, targets), read=_prefix_numbers(ids, positions))

    def network_inputs(self, batch: Batch) -> dict[str, Any]:
        return read_as(batch, causal=True) if self.both and self.bare else {}


class Masked(TransformerScorer):
    way = "masked"

    def cost(self, item: Item) -> int:
        return super().cost(item) * (item.scored_count if item.hidden is None else 1)

    def rows(self, items: list[Item]) -> ScoredRows:
        ids, counts, positions, targets = [], [], [], []
        for item in items:
            whole = np.concatenate([self.before, item.pieces, self.after])
            scored = np.arange(item.first, len(item)) if item.hidden is None else item.hidden
            shown = np.tile(whole, (len(scored) if item.hidden is None else 1, 1))
            tokens_of_text = shown[:, len(self.before) : len(self.before) + len(item)]
            if item.hidden is None:
                tokens_of_text[self.hidden(item.pieces)[scored]] = self.tokenizer.mask
            else:
                tokens_of_text[0, scored] = self.tokenizer.mask
            ids += list(shown)
            counts += [len(scored) // len(shown)] * len(shown)
            positions.append(scored + len(self.before) - self.both)  # hybrids predict at the previous position
            targets.append(item.pieces[scored])
        return replace(ScoredRows.joined(ids, positions, targets), position_starts=np.cumsum([0, *counts]))

    def hidden(self, pieces: Ints) -> NDArray[np.bool_]:
        """Return [N, N]: which tokens are masked when each token is scored."""
        return np.eye(len(pieces), dtype=bool)

    def network_inputs(self, batch: Batch) -> dict[str, Any]:
        return read_as(batch, causal=False) if self.both else {}


class WordAware(Masked):
    way = "word"

    def hidden(self, pieces: Ints) -> NDArray[np.bool_]:
        word = np.cumsum(~self.tokenizer.continues(pieces, blanks=True))
        return (word[:, None] == word) & np.triu(np.ones((len(pieces), len(pieces)), bool))


class Detecting(TransformerScorer):
    way = "detect"

    def rows(self, items: list[Item]) -> ScoredRows:
        ids = [np.concatenate([self.before, item.pieces, self.after]) for item in items]
        positions = [np.arange(item.first, len(item)) + len(self.before) for item in items]
        return ScoredRows.joined(ids, positions, [item.pieces[item.first :] for item in items])

    def answer(self, states: Tensor, targets: Tensor, state_numbers: Tensor, *, best: bool) -> tuple[Tensor, Tensor]:
        fake = self.head(states).float()[state_numbers]
        return F.logsigmoid(-fake), fake <= 0


def _prefix_numbers(ids: list[Ints], positions: list[Ints]) -> Ints:
    """Number the prefix up to each scored position; equal prefixes get the same number."""
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
    """Return the arguments that make a hybrid network read these rows causally or bidirectionally."""
    rows = len(batch.tokens)
    device = batch.tokens.device
    documents = {} if batch.documents is not None else {"documents": torch.ones_like(batch.tokens)}
    return {"causal": torch.full((rows,), causal, device=device), **documents}
