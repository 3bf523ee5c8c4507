"""Continuing: a causal model goes on with texts, several at once, token by token, keeping keys and values.

"Once upon a"  ->  <end> Once upon a  ->  time  ->  there  ->  was ...

Rows of a batch end at different places: shorter ones stand behind padding, which nobody sees, and who has ended leaves.
A row that is longer than the model's window slides: its last tokens are read anew, as the beginning of a row.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ordsmed.nn.attention import Cache
from ordsmed.use.generation.choosing import choose, penalized
from ordsmed.use.generation.network import WritingNetwork
from ordsmed.use.generation.options import Ending, SamplingOptions

STATES = 256  # of a prompt's tokens, of which the scores of all that may follow are made at once
HELD = 12  # characters of the last word that may change yet: pieces that are put together, signs that move up to it


@dataclass(frozen=True)
class TokenLog:
    """A token, how likely it was, and what was likelier: natural logarithms of probabilities."""

    token: int
    log: float | None  # None: nothing stands before it that would tell it
    likeliest: tuple[tuple[int, float], ...]


@dataclass(eq=False)
class TextRow:
    prompt: str
    sample: int
    ids: list[int]  # with the sign before it
    given: int  # so many were there
    how: SamplingOptions
    lead: int = 0  # the first of them that no prompt has
    begin: int = 0  # the first token that is seen
    ended: Ending | None = None
    text: str = ""  # of the continuation, when it has ended
    alternatives: int | None = None  # so many of the likeliest are noted of each token; None: nothing is noted
    logs: list[TokenLog] = field(default_factory=list)
    echoed: bool = False  # are those of the prompt noted, too?
    prompt_logs: list[TokenLog] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.ids) - self.given

    @functools.cached_property
    def key(self) -> int:
        return self.how.key(self.prompt, self.sample)


@dataclass
class Continuation:
    """Rows that are written together, a token of each a step; others may join between two steps, and rows may leave."""

    network: WritingNetwork
    rows: list[TextRow]
    cache: Cache | None = None
    seen: Tensor | None = field(default=None)  # [R, V]: which tokens a text holds, where that matters
    joining: list[TextRow] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[TextRow]]:
        """The rows that got a token, or ended, after every step; until all have ended."""
        while self.rows or self.joining:
            yield self.step()

    def join(self, rows: Sequence[TextRow]) -> None:
        """More rows, from the next step on."""
        self.joining += rows

    def leave(self, rows: Sequence[TextRow]) -> None:
        """These are not gone on with."""
        self.joining = [row for row in self.joining if row not in rows]
        self._keep([number for number, row in enumerate(self.rows) if row not in rows])

    def step(self) -> list[TextRow]:
        """A token of each; the rows that got one, or ended."""
        words = self._words(self._scores())
        done = [self._put(row, word) for row, word in zip(self.rows, words.tolist(), strict=True)]
        stepped = self.rows
        if any(done):
            self._keep([number for number, over in enumerate(done) if not over])
        return stepped

    def _keep(self, numbers: list[int]) -> None:
        if len(numbers) == len(self.rows):
            return
        self.rows = [self.rows[number] for number in numbers]
        at = torch.tensor(numbers, dtype=torch.int64, device=self.network.device)
        if not numbers:
            self.cache = self.seen = None
        elif self.cache is not None:
            self.cache.select(at)
        self.seen = None if self.seen is None else self.seen.index_select(0, at)

    def _put(self, row: TextRow, word: int) -> bool:
        """A row's next token; has it ended?"""
        if word == self.network.end:
            row.ended = "end"
        else:
            row.ids.append(word)
            row.ended = "tokens" if row.made >= row.how.tokens else None
        if row.how.stop and (text := row.how.stopped(continued(self.network, row))) is not None:
            row.text, row.ended = text, "stop"
            return True
        if row.ended:
            row.text = continued(self.network, row)
        return row.ended is not None

    def _scores(self) -> Tensor:
        """Of what may follow each row, those that join behind the others."""
        longest, joining = self.network.longest, self.joining
        self.joining, more = [], None
        if self.cache is None or any(len(row.ids) - row.begin > longest for row in self.rows):
            self.rows = [*self.rows, *joining]
            self.seen = None if joining else self.seen
            scores, self.cache = self._read(self.rows)
            return scores
        if joining:  # before the others go on: what is wrong with them changes nothing
            more, cache = self._read(joining)
        tokens = torch.tensor([row.ids[-1:] for row in self.rows], device=self.network.device)
        positions = torch.tensor([[len(row.ids) - row.begin - 1] for row in self.rows], device=self.network.device)
        documents = None if self.cache.documents is None else torch.ones_like(tokens)
        scores = self.network.next_scores(tokens, positions, documents, self.cache)
        if more is not None:
            self.cache.join(cache)
            self.rows, self.seen = [*self.rows, *joining], None
            scores = torch.cat([scores, more])
        return scores

    def _read(self, rows: Sequence[TextRow]) -> tuple[Tensor, Cache]:
        """Rows from their beginning, or from where their windows begin now: scores of what follows, and the cache."""
        for row in rows:
            self._slide(row)
        parts = [row.ids[row.begin :] for row in rows]
        most = max(map(len, parts))
        tokens = torch.tensor([[0] * (most - len(part)) + part for part in parts], device=self.network.device)
        lead = torch.tensor([[most - len(part)] for part in parts], device=self.network.device)
        places = torch.arange(most, device=self.network.device)
        documents = (places >= lead).long() if lead.any() else None
        cache = Cache(self.network.trained.settings.layers)
        states = self.network.states(tokens, (places - lead).clamp(min=0), documents, cache)
        for row, begin, of_row in zip(rows, lead[:, 0].tolist(), states, strict=True):
            if row.echoed and not row.made:
                row.prompt_logs = self._prompt_logs(row, of_row[begin:])
        return self.network.scores(states[:, -1]), cache

    def _prompt_logs(self, row: TextRow, states: Tensor) -> list[TokenLog]:
        """Of each token of a prompt, from the states of those before it."""
        logs, count = [TokenLog(row.ids[0], None, ())], row.alternatives or 0
        for begin in range(0, len(row.ids) - 1, STATES):
            words = row.ids[begin + 1 : begin + 1 + STATES]
            logs += _logs(self.network.scores(states[begin : begin + len(words)]), words, count)
        return logs[row.lead :]

    def _slide(self, row: TextRow) -> None:
        """Where a row is longer than the window: see its last tokens alone, with room for what is still wanted."""
        longest = self.network.longest
        if len(row.ids) - row.begin <= longest:
            return
        self.network.note_it_slides()
        row.begin = len(row.ids) - max(1, longest - min(row.how.tokens - row.made - 1, longest // 2))

    def _words(self, scores: Tensor) -> Tensor:
        plain = scores
        if any(row.how.penalty != 1 for row in self.rows):
            if self.seen is None:
                self.seen = torch.zeros_like(scores, dtype=torch.bool)
                for marks, row in zip(self.seen, self.rows, strict=True):
                    marks[row.ids] = True
            penalties = torch.tensor([[row.how.penalty] for row in self.rows], device=scores.device)
            scores = penalized(scores, self.seen, penalties)
        words = self._chosen(scores)
        if self.seen is not None:
            self.seen.scatter_(1, words[:, None], True)
        for number, row in enumerate(self.rows):
            if row.alternatives is not None:
                row.logs += _logs(plain[number : number + 1], [int(words[number])], row.alternatives)
        return words

    def _chosen(self, scores: Tensor) -> Tensor:
        """The next token of each row, those chosen at once whose options are alike."""
        alike = defaultdict[tuple[float, ...], list[int]](list)
        for number, row in enumerate(self.rows):
            alike[row.how.temperature, row.how.best, row.how.share, row.how.typical].append(number)
        words = torch.empty(len(self.rows), dtype=torch.int64, device=scores.device)
        for numbers in alike.values():
            rows = [self.rows[number] for number in numbers]
            at = torch.tensor(numbers, device=scores.device)
            keys = np.asarray([row.key for row in rows], np.uint64)
            of_rows = scores if len(rows) == len(self.rows) else scores[at]
            words[at] = choose(of_rows, rows[0].how, keys, np.asarray([row.made for row in rows]))
        return words


def _logs(scores: Tensor, words: Sequence[int], count: int) -> list[TokenLog]:
    """How likely tokens were among all [N, V], and which were the likeliest."""
    logs = scores.float().log_softmax(1)
    top = logs.topk(min(count, logs.shape[1]))
    chosen = logs[torch.arange(len(words)), list(words)].tolist()
    return [
        TokenLog(word, log, tuple(zip(*likeliest, strict=True)))
        for word, log, *likeliest in zip(words, chosen, top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def text_rows(network: WritingNetwork, how: SamplingOptions, prompts: Sequence[str]) -> list[TextRow]:
    """Rows of all prompts, each as often as samples are wanted."""
    rows = []
    for prompt in prompts:
        ids = network.trained.tokenizer.encode(prompt)
        lead = _lead(network, how, ids)
        rows += rows_of_ids(how, prompt, [*lead, *ids], len(lead))
    return rows


def rows_of_ids(how: SamplingOptions, prompt: str, ids: Sequence[int], lead: int = 0) -> list[TextRow]:
    """Those of a prompt whose tokens are known: as many as samples are wanted."""
    return [TextRow(prompt, sample, [*ids], len(ids), how, lead) for sample in range(how.samples)]


def _lead(network: WritingNetwork, how: SamplingOptions, ids: Sequence[int]) -> list[int]:
    """The sign before a prompt, as documents have it in training, if it has not been written there."""
    if network.opening is None or not how.start or list(ids[:1]) == [network.opening]:
        return []
    if ids and not network.trained.tokenizer.begins_texts:
        return []
    if ids:
        network.note_the_start()
    return [network.opening]


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
