"""Readers: lines of text to a vector for every word, from each layer that is asked for.

    "newts swim" -> [CLS] new ##ts swim [SEP] -> layers [L, 5, D] -> mean of 1 and 2, 3 -> words [L, 2, D]

L layers, T words of a line, D width. Layer 0 is what the first block is given, layer n what block n gives, and the last
one what the network gives: behind its last norm, where it has one. Words are what stands between white space; a piece
belongs to every word of which it covers a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.nn.capture import capture_layers
from ordsmed.nn.model import Block
from ordsmed.weights.trained import Trained

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
TOKENS = 1 << 14  # of one batch, at most: long rows come in smaller batches


@dataclass(frozen=True)
class Read:
    """What a network makes of a line."""

    words: list[str]
    vectors: Floats  # float32 [L, T, D]
    pooled: Floats | None = None  # float32 [L, D]  of the line's tokens, where a sentence is not the mean of its words
    bare: int = 0  # words without a piece: their vectors are 0
    windows: int = 1  # in which the line was read
    cut: int = 0  # words that were too long, of which the front alone was read


class EmbeddingReader(Protocol):
    """What every kind of network offers `embed`."""

    layers: int  # L of what it reads
    width: int  # D
    pools: tuple[str, ...]  # how a line becomes a vector: mean of its words | first, last or mean of its tokens

    def read(self, lines: list[str]) -> list[Read]:
        """One result a line, in their order; an empty line has no words."""


class TransformerReader:
    """Every family that is made of blocks; its network is asked where it stands, on a CPU or GPU."""

    def __init__(
        self, trained: Trained, layers: Sequence[int], *, pieces: str = "mean", pool: str = "mean", batch: int = 64
    ) -> None:
        """`layers`: 0 to the number of blocks; `pieces`: mean, first or last of a word; `batch`: rows at a time.

        `pool`: first, last or tokens (their mean), of all tokens of a line's first window, signs counted.
        """
        self.model, self.tokenizer = trained.objective.model, trained.tokenizer
        self.wanted, self.pieces, self.pool, self.batch = list(layers), pieces, pool, batch
        self.layers, self.width = len(self.wanted), trained.settings.width
        # a hybrid is read as a masked model: every token sees all
        self.hybrid, self.causal = trained.objective.shifted, trained.causal and not trained.objective.shifted
        tokenizer = self.tokenizer
        end = tokenizer.separator
        frame = (end, end) if self.hybrid else (end, None) if self.causal else (tokenizer.start, tokenizer.stop)
        before, after = ([n] if n is not None else [] for n in frame)
        self.before, self.after = before, after
        seen = ("first",) if self.before and not self.causal else ()
        self.pools = ("mean", *seen, "last", "tokens")
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
        for group in self._groups(rows):
            states = self._states(group)
            length = states[0].shape[1]
            vectors = [parts[row.line].between(row.low, row.high) for row in group]
            shift = [n * length + len(self.before) - row.start for n, row in enumerate(group)]
            at = np.concatenate([piece + by for (piece, _, _), by in zip(vectors, shift, strict=True)])
            word = np.concatenate([word + begin[row.line] for (_, word, _), row in zip(vectors, group, strict=True)])
            share = torch.from_numpy(np.concatenate([share for _, _, share in vectors]))[:, None]
            opening = [n for n, row in enumerate(group) if row.start == 0]
            opened = [group[n].line for n in opening]
            lengths = [len(group[n].ids) for n in opening]
            for sum_, line, state in zip(sums, pooled, states, strict=True):
                taken = state.flatten(0, 1)[torch.from_numpy(at).to(state.device)].float().cpu()
                sum_.index_add_(0, torch.from_numpy(word), taken * share)
                if self.pool != "mean":
                    line[opened] = _pooled(state[opening].float(), lengths, self.pool).cpu()
        return [
            Read(part.words, sums[:, begin[n] : begin[n + 1]].numpy(), pooled[:, n].numpy(), part.bare,
                 max(sum(row.line == n for row in rows), 1))
            for n, part in enumerate(parts)
        ]  # fmt: skip

    def _rows(self, line: int, ids: list[int]) -> Iterator[Row]:
        if ids:
            for start, low, high in windows(len(ids), self.room, causal=self.causal):
                yield Row(line, start, low, high, [*self.before, *ids[start : start + self.room], *self.after])

    def _groups(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Rows that are read at once, of about the same length."""
        left = sorted(rows, key=lambda row: len(row.ids))
        while left:
            count = min(self.batch, max(1, TOKENS // len(left[-1].ids)))
            yield left[-count:]
            del left[-count:]

    def _states(self, rows: list[Row]) -> list[Tensor]:
        """What the layers make of rows; L times [B, T, D]."""
        device = next(self.model.parameters()).device
        lengths = [len(row.ids) for row in rows]
        tokens = torch.full((len(rows), max(lengths)), self.tokenizer.pad or 0)
        documents = torch.zeros(len(rows), max(lengths), dtype=torch.int32)
        for n, row in enumerate(rows):
            tokens[n, : lengths[n]] = torch.tensor(row.ids)
            documents[n, : lengths[n]] = 1
        positions = torch.arange(max(lengths)).expand(len(rows), -1)
        # behind what a causal network has read padding does no harm
        plain = not self.hybrid and (self.causal or min(lengths) == max(lengths))
        more = {"causal": torch.zeros(len(rows), dtype=torch.bool, device=device)} if self.hybrid else {}
        with capture_layers(self.model, self.wanted) as heard:
            last = self.model(tokens.to(device), positions.to(device), None if plain else documents.to(device), **more)
        return [heard.get(number, last) for number in self.wanted]


def _pooled(states: Tensor, lengths: Sequence[int], pool: str) -> Tensor:
    """One vector a row of its tokens [B, T, D]."""
    count = torch.tensor(lengths, device=states.device)
    if pool in ("first", "last"):
        return states[torch.arange(len(count)), (count - 1) * (pool == "last")]
    inside = torch.arange(states.shape[1], device=states.device) < count[:, None]
    return (states * inside[..., None]).sum(1) / count[:, None]


@dataclass(frozen=True)
class Row:
    """A window of a line, with signs; its pieces from `low` to `high` are taken, numbered as in the line."""

    line: int
    start: int
    low: int
    high: int
    ids: list[int]


@dataclass(frozen=True)
class WordShares:
    """Which share of which word a piece is; one entry a piece and word, in the order of the pieces."""

    words: list[str]
    piece: Ints
    word: Ints
    share: NDArray[np.float32]
    bare: int

    @staticmethod
    def of(line: str, offsets: Sequence[tuple[int, int]], how: str) -> WordShares:
        """From the places of the line's words and pieces; `how`: mean, first or last."""
        spans = [match.span() for match in re.finditer(r"\S+", line)]
        begins, ends = np.array(spans, np.int64).reshape(-1, 2).T
        left, right = np.array(offsets, np.int64).reshape(-1, 2).T
        from_word, to_word = np.searchsorted(ends, left, "right"), np.searchsorted(begins, right, "left")
        counts = np.maximum(to_word - from_word, 0)  # 0: a piece that is mere white space
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
        """The entries of these pieces."""
        at, end = np.searchsorted(self.piece, (low, high))
        return self.piece[at:end], self.word[at:end], self.share[at:end]


def windows(pieces: int, room: int, *, causal: bool) -> list[tuple[int, int, int]]:
    """Where each window begins, and from and to which piece it is taken: where a piece has the most context."""
    last = max(pieces - room, 0)
    starts = [*range(0, last, max(room // 2, 1)), last]
    cuts = [start + room if causal else (start + stop + room + 1) // 2 for start, stop in pairwise(starts)]
    return list(zip(starts, [0, *cuts], [*cuts, pieces], strict=True))


def layers_of(trained: Trained) -> int:
    """How many layers a Transformer has, its embeddings counted."""
    return 1 + sum(isinstance(module, Block) for module in trained.objective.model.modules())
