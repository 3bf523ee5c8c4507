"""Embedding readers: lines of text -> vectors of words from the chosen layers.

    "newts swim" -> [CLS] new ##ts swim [SEP] -> layers [L, 5, D] -> mean of 1 and 2, 3 -> words [L, 2, D]

L layers, T words of a line, D width. Layer 0 is the input of the first block, layer n the output of block n, and the
last layer the output of the network, after a final norm if it has one. Words are separated by white space. A token
belongs to every word of which it covers a character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Packing, by_length
from ordsmed.nn.capture import capture_layers
from ordsmed.nn.model import Block
from ordsmed.nn.varlen import Texts
from ordsmed.weights.trained_model import Trained

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
TOKENS = {"cpu": 2_048, "cuda": 1 << 14}  # tokens per batch, at most


@dataclass(frozen=True)
class Read:
    words: list[str]
    vectors: Floats  # float32 [L, T, D]
    pooled: Floats | None = None  # float32 [L, D], pooled over the line's tokens; None: the network reads whole words
    bare: int = 0  # words without a token; their vectors are 0
    windows: int = 1  # windows that the line was read in
    cut: int = 0  # words of which only the first characters were read

    @property
    def blank(self) -> bool:
        """Return whether the line has no token that the network reads."""
        return len(self.words) == self.bare


class EmbeddingReader(Protocol):
    layers: int  # L
    width: int  # D
    pools: tuple[str, ...]  # supported poolings of a line: mean, first or last of its tokens, or mean of its words

    def read(self, lines: list[str]) -> list[Read]:
        """Return one result per line, in order. An empty line has no words."""


class TransformerReader:
    """Reader of all models made of blocks. It runs on the model's device."""

    def __init__(
        self, trained: Trained, layers: Sequence[int], *, pieces: str = "mean", pool: str = "words", batch: int = 64
    ) -> None:
        """Set up the reader.

        `layers` are numbers from 0 to the number of blocks. `pieces` (mean, first or last) combines the tokens of a
        word. `batch` is the number of rows per batch. The pools mean (or tokens), first and last pool the tokens of a
        line's first window, special tokens included, as sentence-transformers does. The pool words is the mean of the
        line's words in all windows.
        """
        self.model, self.tokenizer = trained.objective.model, trained.tokenizer
        self.wanted, self.pieces, self.pool, self.batch = list(layers), pieces, pool, batch
        self.layers, self.width = len(self.wanted), trained.settings.width
        # a hybrid model reads like a masked model: every token sees all others
        self.hybrid, self.causal = trained.objective.shifted, trained.causal and not trained.objective.shifted
        tokenizer = self.tokenizer
        end = tokenizer.separator
        frame = (trained.opening, None) if self.causal else (tokenizer.start, tokenizer.stop)
        frame = (end, end) if self.hybrid else frame
        before, after = ([n] if n is not None else [] for n in frame)
        self.before, self.after = before, after
        seen = ("first",) if self.before and not self.causal else ()
        self.pools = ("mean", "words", *seen, "last", "tokens")
        self.room = trained.settings.longest() - len(self.before) - len(self.after)

    @torch.inference_mode()
    def read(self, lines: list[str]) -> list[Read]:
        encodings = self.tokenizer.plain.encode_batch(lines, add_special_tokens=False)
        parts = [
            WordShares.of(line, encoding.offsets, self.pieces) for line, encoding in zip(lines, encodings, strict=True)
        ]
        rows = [row for number, encoding in enumerate(encodings) for row in self._rows(number, encoding.ids)]
        begin = np.cumsum([0, *(len(part.words) for part in parts)])
        sums = torch.zeros(self.layers, int(begin[-1]), self.width)
        pooled = torch.zeros(self.layers, len(lines), self.width)
        for group, batch in self._batches(rows):
            states = self._states(batch)
            assert batch.spans is not None
            begins = batch.spans[:, 0].tolist()
            vectors = [parts[row.line].between(row.low, row.high) for row in group]
            shift = [at + len(self.before) - row.start for at, row in zip(begins, group, strict=True)]
            at = np.concatenate([piece + by for (piece, _, _), by in zip(vectors, shift, strict=True)])
            word = np.concatenate([word + begin[row.line] for (_, word, _), row in zip(vectors, group, strict=True)])
            share = torch.from_numpy(np.concatenate([share for _, _, share in vectors]))[:, None]
            opening = [n for n, row in enumerate(group) if row.start == 0]
            opened, spans = [group[n].line for n in opening], batch.spans[opening]
            for sum_, line, state in zip(sums, pooled, states, strict=True):
                taken = state[torch.from_numpy(at).to(state.device)].float().cpu()
                sum_.index_add_(0, torch.from_numpy(word), taken * share)
                if self.pool != "words" and opening:
                    line[opened] = _pooled(state.float(), spans.to(state.device), self.pool).cpu()
        used = Counter(row.line for row in rows)
        return [
            Read(part.words, sums[:, begin[n] : begin[n + 1]].numpy(), pooled[:, n].numpy(), part.bare, max(used[n], 1))
            for n, part in enumerate(parts)
        ]

    def _rows(self, line: int, ids: list[int]) -> Iterator[Row]:
        framed = self.pool != "words" and (self.before or self.after)  # an empty line still has special tokens
        if ids or framed:
            for start, low, high in windows(len(ids), self.room, causal=self.causal):
                yield Row(line, start, low, high, [*self.before, *ids[start : start + self.room], *self.after])

    def _batches(self, rows: list[Row]) -> Iterator[tuple[list[Row], Batch]]:
        """Yield batches of rows of similar length, with several short texts in one row."""
        features = Features(np.cumsum([0, *(len(row.ids) for row in rows)]), _joined([row.ids for row in rows]))
        device = next(self.model.parameters()).device
        for alike in by_length(features.sizes, TOKENS.get(device.type, TOKENS["cpu"])):
            for at in range(0, len(alike), self.batch):
                chosen = alike[at : at + self.batch]
                even = len(set(features.sizes[chosen].tolist())) == 1  # then no attention mask is needed
                batch = Packing(self.tokenizer.pad or 0, alone=even).batch(features, chosen, chosen)
                yield [rows[n] for n in chosen.tolist()], batch.to(device)

    def _states(self, batch: Batch) -> list[Tensor]:
        """Return the states of the chosen layers, rows end to end: L tensors [B * T, D]."""
        documents: Tensor | Texts | None = batch.texts(self.model)
        keywords = {}
        if self.hybrid:
            documents = torch.ones_like(batch.tokens) if documents is None else documents
            keywords = {"causal": torch.zeros(len(batch.tokens), dtype=torch.bool, device=batch.tokens.device)}
        with capture_layers(self.model, self.wanted) as captured:
            last = self.model(batch.tokens, batch.positions, documents, **keywords)
        return [captured.get(number, last).flatten(0, 1) for number in self.wanted]


def _joined(ids: list[list[int]]) -> NDArray[np.int32]:
    return np.concatenate(ids).astype(np.int32) if ids else np.zeros(0, np.int32)


def _pooled(states: Tensor, spans: Tensor, pool: str) -> Tensor:
    begins, sizes = spans.T
    if pool in ("first", "last"):
        return states[begins + (sizes - 1) * (pool == "last")]
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=states.device), sizes)
    at = torch.arange(len(owner), device=states.device) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    sums = states.new_zeros(len(sizes), states.shape[1]).index_add_(0, owner, states[begins[owner] + at])
    return sums / sizes[:, None]


@dataclass(frozen=True)
class Row:
    """A window of a line with special tokens. Only its tokens `low` to `high`, numbered as in the line, are used."""

    line: int
    start: int
    low: int
    high: int
    ids: list[int]


@dataclass(frozen=True)
class WordShares:
    """How much each token contributes to each word, one entry per pair of token and word, ordered by token."""

    words: list[str]
    piece: Ints  # number of the token
    word: Ints  # number of the word
    share: NDArray[np.float32]  # weight of the token in the word's vector
    bare: int  # words without a token

    @staticmethod
    def of(line: str, offsets: Sequence[tuple[int, int]], how: str) -> WordShares:
        """Compute the shares from the character offsets of tokens; `how` is mean, first or last."""
        spans = [match.span() for match in re.finditer(r"\S+", line)]
        begins, ends = np.array(spans, np.int64).reshape(-1, 2).T
        left, right = np.array(offsets, np.int64).reshape(-1, 2).T
        from_word, to_word = np.searchsorted(ends, left, "right"), np.searchsorted(begins, right, "left")
        counts = np.maximum(to_word - from_word, 0)  # 0: a token of white space only
        piece = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)
        word = np.repeat(from_word, counts) + within
        sizes = np.bincount(word, minlength=len(spans))
        share = (1 / sizes[word]).astype(np.float32)
        if how != "mean":
            _, chosen = np.unique(word if how == "first" else word[::-1], return_index=True)
            share = np.zeros(len(word), np.float32)
            share[chosen if how == "first" else -1 - chosen] = 1
        return WordShares([line[a:b] for a, b in spans], piece, word, share, int((sizes == 0).sum()))

    def between(self, low: int, high: int) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """Return the entries of the tokens from `low` to `high`."""
        at, end = np.searchsorted(self.piece, (low, high))
        return self.piece[at:end], self.word[at:end], self.share[at:end]


def windows(pieces: int, room: int, *, causal: bool) -> list[tuple[int, int, int]]:
    """Return the start of each window and the range of tokens to use from it, where they have the most context."""
    last = max(pieces - room, 0)
    starts = [*range(0, last, max(room // 2, 1)), last]
    cuts = [start + room if causal else (start + stop + room + 1) // 2 for start, stop in pairwise(starts)]
    return list(zip(starts, [0, *cuts], [*cuts, pieces], strict=True))


def blank_texts(trained: Trained, texts: Sequence[str]) -> list[int]:
    """Return the numbers, from 0, of the texts without a token, or for an ELMo without a word."""
    doubtful = [number for number, text in enumerate(texts) if not re.search(r"\w", text)]
    if trained.settings.capabilities.state:
        return [number for number in doubtful if not texts[number].split()]
    encodings = trained.tokenizer.plain.encode_batch([texts[n] for n in doubtful], add_special_tokens=False)
    return [number for number, encoding in zip(doubtful, encodings, strict=True) if not encoding.ids]


def layers_of(trained: Trained) -> int:
    """Return the number of layers of a Transformer, including its embeddings."""
    return 1 + sum(isinstance(module, Block) for module in trained.objective.model.modules())
