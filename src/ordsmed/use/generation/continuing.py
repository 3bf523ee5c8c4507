"""Continuing: a causal model goes on with texts, several at once, token by token, keeping keys and values.

"Once upon a"  ->  <end> Once upon a  ->  time  ->  there  ->  was ...

Rows of a batch end at different places: shorter ones stand behind padding, which nobody sees, and who has ended leaves.
A row that is longer than the model's window slides: its last tokens are read anew, as the beginning of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ordsmed.nn.attention import Cache
from ordsmed.use.generation.choosing import choose, penalized
from ordsmed.use.generation.network import WritingNetwork
from ordsmed.use.generation.options import Ending, SamplingOptions

HELD = 12  # characters of the last word that may change yet: pieces that are put together, signs that move up to it


@dataclass
class TextRow:
    prompt: str
    sample: int
    ids: list[int]  # with the sign before it
    given: int  # so many were there
    key: int
    begin: int = 0  # the first token that is seen
    ended: Ending | None = None
    text: str = ""  # of the continuation, when it has ended

    @property
    def made(self) -> int:
        return len(self.ids) - self.given


@dataclass
class Continuation:
    """Rows that are written together, a token of each a step."""

    network: WritingNetwork
    how: SamplingOptions
    rows: list[TextRow]
    cache: Cache | None = None
    seen: Tensor | None = field(default=None)  # [R, V]: which tokens a text holds, where that matters

    def __iter__(self) -> Iterator[list[TextRow]]:
        """The rows that got a token, or ended, after every step; until all have ended."""
        while self.rows:
            words = self._words(self._scores())
            done = []
            for row, word in zip(self.rows, words.tolist(), strict=True):
                done.append(self._put(row, word))
            stepped = self.rows
            if any(done):
                left = [number for number, over in enumerate(done) if not over]
                self.rows = [self.rows[number] for number in left]
                at = torch.tensor(left, dtype=torch.int64, device=self.network.device)
                if left and self.cache is not None:
                    self.cache.select(at)
                self.seen = None if self.seen is None else self.seen.index_select(0, at)
            yield stepped

    def _put(self, row: TextRow, word: int) -> bool:
        """A row's next token; has it ended?"""
        if word == self.network.end:
            row.ended = "end"
        else:
            row.ids.append(word)
            row.ended = "tokens" if row.made >= self.how.tokens else None
        if self.how.stop and (text := self.how.stopped(continued(self.network, row))) is not None:
            row.text, row.ended = text, "stop"
            return True
        if row.ended:
            row.text = continued(self.network, row)
        return row.ended is not None

    def _scores(self) -> Tensor:
        """Of what may follow each row."""
        longest = self.network.longest
        if self.cache is None or any(len(row.ids) - row.begin > longest for row in self.rows):
            return self._read_all()
        tokens = torch.tensor([row.ids[-1:] for row in self.rows], device=self.network.device)
        positions = torch.tensor([[len(row.ids) - row.begin - 1] for row in self.rows], device=self.network.device)
        documents = None if self.cache.documents is None else torch.ones_like(tokens)
        return self.network.next_scores(tokens, positions, documents, self.cache)

    def _read_all(self) -> Tensor:
        """Every row from its beginning, or from where its window begins now."""
        for row in self.rows:
            self._slide(row)
        parts = [row.ids[row.begin :] for row in self.rows]
        most = max(map(len, parts))
        tokens = torch.tensor([[0] * (most - len(part)) + part for part in parts], device=self.network.device)
        lead = torch.tensor([[most - len(part)] for part in parts], device=self.network.device)
        places = torch.arange(most, device=self.network.device)
        documents = (places >= lead).long() if lead.any() else None
        self.cache = Cache(self.network.trained.settings.layers)
        return self.network.next_scores(tokens, (places - lead).clamp(min=0), documents, self.cache)

    def _slide(self, row: TextRow) -> None:
        """Where a row is longer than the window: see its last tokens alone, with room for what is still wanted."""
        longest = self.network.longest
        if len(row.ids) - row.begin <= longest:
            return
        self.network.note_it_slides()
        row.begin = len(row.ids) - max(1, longest - min(self.how.tokens - row.made - 1, longest // 2))

    def _words(self, scores: Tensor) -> Tensor:
        if self.how.penalty != 1:
            if self.seen is None:
                self.seen = torch.zeros_like(scores, dtype=torch.bool)
                for marks, row in zip(self.seen, self.rows, strict=True):
                    marks[row.ids] = True
            scores = penalized(scores, self.seen, self.how.penalty)
        keys = np.asarray([row.key for row in self.rows], np.uint64)
        words = choose(scores, self.how, keys, np.asarray([row.made for row in self.rows]))
        if self.seen is not None:
            self.seen.scatter_(1, words[:, None], True)
        return words


def text_rows(network: WritingNetwork, how: SamplingOptions, prompts: Sequence[str]) -> list[TextRow]:
    """Rows of all prompts, each as often as samples are wanted."""
    rows = []
    for prompt in prompts:
        ids = network.trained.tokenizer.encode(prompt)
        ids = [*_lead(network, how, ids), *ids]
        for sample in range(how.samples):
            rows.append(TextRow(prompt, sample, list(ids), len(ids), how.key(prompt, sample)))
    return rows


def _lead(network: WritingNetwork, how: SamplingOptions, ids: Sequence[int]) -> list[int]:
    """The sign before a prompt, as documents have it in training, if it has not been written there."""
    if network.end is None or not how.start or list(ids[:1]) == [network.end]:
        return []
    if ids and not network.trained.tokenizer.begins_texts:
        return []
    if ids:
        network.note_the_start()
    return [network.end]


def continued(network: WritingNetwork, row: TextRow) -> str:
    """What stands behind the prompt so far."""
    if not row.made:
        return ""
    tokenizer = network.trained.tokenizer
    return tokenizer.decode(row.ids).removeprefix(tokenizer.decode(row.ids[: row.given]))


def stable_length(network: WritingNetwork, how: SamplingOptions, text: str) -> int:
    """How many characters of a text that grows will not change any more, and are no beginning of a stop string."""
    size = len(text.rstrip("\N{REPLACEMENT CHARACTER}"))  # of a character of which bytes are missing
    for stop in how.stop:
        size = min(size, len(text) - next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0))
    if network.trained.tokenizer.rewrites:
        blank = max(text.rfind(" ", 0, size), 0)
        size = min(size, max(blank, len(text) - HELD))
    return size
