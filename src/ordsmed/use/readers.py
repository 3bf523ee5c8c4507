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

from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Packing, by_length
from ordsmed.nn.capture import capture_layers
from ordsmed.nn.model import Block
from ordsmed.nn.varlen import Texts
from ordsmed.weights.trained import Trained

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
TOKENS = {"cpu": 2_048, "cuda": 1 << 14}  # of one batch, at most: long rows come in smaller batches


@dataclass(frozen=True)
class Read:
    """What a network makes of a line."""

    words: list[str]
    vectors: Floats  # float32 [L, T, D]
    pooled: Floats | None = None  # float32 [L, D]  of the line's tokens; None: the network reads whole words
    bare: int = 0  # words without a piece: their vectors are 0
    windows: int = 1  # in which the line was read
    cut: int = 0  # words that were too long, of which the front alone was read

    @property
    def blank(self) -> bool:
        """Does the line hold nothing that the network reads?"""
        return len(self.words) == self.bare


class EmbeddingReader(Protocol):
    """What every kind of network offers `embed`."""

    layers: int  # L of what it reads
    width: int  # D
    pools: tuple[str, ...]  # how a line becomes a vector: mean, first or last of its tokens | mean of its words

    def read(self, lines: list[str]) -> list[Read]:
        """One result a line, in their order; an empty line has no words."""


class TransformerReader:
    """Every family that is made of blocks; its network is asked where it stands, on a CPU or GPU."""

    def __init__(
        self, trained: Trained, layers: Sequence[int], *, pieces: str = "mean", pool: str = "words", batch: int = 64
    ) -> None:
        """`layers`: 0 to the number of blocks; `pieces`: mean, first or last of a word; `batch`: rows at a time.

        `pool`: mean (or tokens), first or last: of the tokens of a line's first window, special tokens included, as
        sentence-transformers pools them. words: the mean of the line's words, in all its windows.
        """
        self.model, self.tokenizer = trained.objective.model, trained.tokenizer
        self.wanted, self.pieces, self.pool, self.batch = list(layers), pieces, pool, batch
        self.layers, self.width = len(self.wanted), trained.settings.width
        # a hybrid is read as a masked model: every token sees all
        self.hybrid, self.causal = trained.objective.shifted, trained.causal and not trained.objective.shifted
        tokenizer = self.tokenizer
        end = tokenizer.separator
        frame = (
            (end, end) if self.hybrid else (trained.opening, None) if self.causal else (tokenizer.start, tokenizer.stop)
        )
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
        return [
            Read(part.words, sums[:, begin[n] : begin[n + 1]].numpy(), pooled[:, n].numpy(), part.bare,
                 max(sum(row.line == n for row in rows), 1))
            for n, part in enumerate(parts)
        ]  # fmt: skip

    def _rows(self, line: int, ids: list[int]) -> Iterator[Row]:
        framed = self.pool != "words" and (self.before or self.after)  # an empty line has its special tokens
        if ids or framed:
            for start, low, high in windows(len(ids), self.room, causal=self.causal):
                yield Row(line, start, low, high, [*self.before, *ids[start : start + self.room], *self.after])

    def _batches(self, rows: list[Row]) -> Iterator[tuple[list[Row], Batch]]:
        """Rows that are read at once, of about the same length, several texts in a row where they are short."""
        features = Features(np.cumsum([0, *(len(row.ids) for row in rows)]), _joined([row.ids for row in rows]))
        device = next(self.model.parameters()).device
        for alike in by_length(features.sizes, TOKENS.get(device.type, TOKENS["cpu"])):
            for at in range(0, len(alike), self.batch):
                chosen = alike[at : at + self.batch]
                even = len(set(features.sizes[chosen].tolist())) == 1  # then no row needs a mask
                batch = Packing(self.tokenizer.pad or 0, alone=even).batch(features, chosen, chosen)
                yield [rows[n] for n in chosen.tolist()], batch.to(device)

    def _states(self, batch: Batch) -> list[Tensor]:
        """What the layers make of rows, end to end; L times [B * T, D]."""
        documents: Tensor | Texts | None = batch.texts(self.model)
        more = {}
        if self.hybrid:
            documents = torch.ones_like(batch.tokens) if documents is None else documents
            more = {"causal": torch.zeros(len(batch.tokens), dtype=torch.bool, device=batch.tokens.device)}
        with capture_layers(self.model, self.wanted) as heard:
            last = self.model(batch.tokens, batch.positions, documents, **more)
        return [heard.get(number, last).flatten(0, 1) for number in self.wanted]


def _joined(ids: list[list[int]]) -> NDArray[np.int32]:
    return np.concatenate(ids).astype(np.int32) if ids else np.zeros(0, np.int32)


def _pooled(states: Tensor, spans: Tensor, pool: str) -> Tensor:
    """One vector a row of its tokens, of states end to end."""
    begins, sizes = spans.T
    if pool in ("first", "last"):
        return states[begins + (sizes - 1) * (pool == "last")]
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=states.device), sizes)
    at = torch.arange(len(owner), device=states.device) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    sums = states.new_zeros(len(sizes), states.shape[1]).index_add_(0, owner, states[begins[owner] + at])
    return sums / sizes[:, None]


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


def blank_texts(trained: Trained, texts: Sequence[str]) -> list[int]:
    """Return the numbers, from 0, of the texts that hold nothing the model reads: no token, or of an ELMo no word."""
    doubtful = [number for number, text in enumerate(texts) if not re.search(r"\w", text)]
    if trained.settings.capabilities.state:
        return [number for number in doubtful if not texts[number].split()]
    encodings = trained.tokenizer.plain.encode_batch([texts[n] for n in doubtful], add_special_tokens=False)
    return [number for number, encoding in zip(doubtful, encodings, strict=True) if not encoding.ids]


def layers_of(trained: Trained) -> int:
    """How many layers a Transformer has, its embeddings counted."""
    return 1 + sum(isinstance(module, Block) for module in trained.objective.model.modules())
