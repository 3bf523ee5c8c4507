"""Generation by causal models: continue several texts at once, token by token, with a cache of keys and values.

    "Once upon a"  ->  <end> Once upon a  ->  time  ->  there  ->  was ...

Rows of a batch have different lengths. Shorter rows are padded on the left, the padding is masked, and finished rows
leave the batch. A row longer than the model's window slides: its last tokens are read again as the beginning of a row.
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

STATES = 256  # positions of a prompt scored at once over the whole vocabulary
HELD = 12  # last characters that may still change when the next tokens are decoded: joined tokens, moved punctuation


@dataclass(frozen=True)
class TokenLog:
    """The log probability of a token, and the likeliest tokens at its position with their log probabilities."""

    token: int
    log: float | None  # None: it is the first token
    likeliest: tuple[tuple[int, float], ...]


@dataclass(eq=False)
class TextRow:
    prompt: str
    sample: int
    ids: list[int]  # start token, prompt and new tokens
    given: int  # tokens before the new ones
    how: SamplingOptions
    lead: int = 0  # tokens before the prompt
    begin: int = 0  # first token inside the window
    ended: Ending | None = None
    text: str = ""  # the continuation, once it has ended
    alternatives: int | None = None  # likeliest tokens logged per position; None: no log
    logs: list[TokenLog] = field(default_factory=list)
    echoed: bool = False  # whether tokens of the prompt are logged as well
    prompt_logs: list[TokenLog] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.ids) - self.given

    @functools.cached_property
    def key(self) -> int:
        return self.how.key(self.prompt, self.sample)


@dataclass
class Continuation:
    """Rows that are generated together, one token per step. Between two steps rows may join or leave."""

    network: WritingNetwork
    rows: list[TextRow]
    cache: Cache | None = None
    seen: Tensor | None = field(default=None)  # [R, V]: tokens that each text has, if there is a repetition penalty
    joining: list[TextRow] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[TextRow]]:
        """Yield, after every step, the rows that got a token or ended, until all rows have ended."""
        while self.rows or self.joining:
            yield self.step()

    def join(self, rows: Sequence[TextRow]) -> None:
        self.joining += rows

    def leave(self, rows: Sequence[TextRow]) -> None:
        self.joining = [row for row in self.joining if row not in rows]
        self._keep([number for number, row in enumerate(self.rows) if row not in rows])

    def step(self) -> list[TextRow]:
        """Generate a token for each row, and return the rows that got one or ended."""
        words = self._words(self._scores())
        ended = [self._put(row, word) for row, word in zip(self.rows, words.tolist(), strict=True)]
        stepped = self.rows
        if any(ended):
            self._keep([number for number, is_ended in enumerate(ended) if not is_ended])
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
        """Append a token to a row, and return whether the row has ended."""
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
        """Return the scores of each row's next token. Joining rows are appended to the batch."""
        longest, joining = self.network.longest, self.joining
        self.joining, joining_scores = [], None
        if self.cache is None or any(len(row.ids) - row.begin > longest for row in self.rows):
            self.rows = [*self.rows, *joining]
            self.seen = None if joining else self.seen
            scores, self.cache = self._read(self.rows)
            return scores
        if joining:  # first, so that an error in them leaves the other rows unchanged
            joining_scores, cache = self._read(joining)
        tokens = torch.tensor([row.ids[-1:] for row in self.rows], device=self.network.device)
        positions = torch.tensor([[len(row.ids) - row.begin - 1] for row in self.rows], device=self.network.device)
        documents = None if self.cache.documents is None else torch.ones_like(tokens)
        scores = self.network.next_scores(tokens, positions, documents, self.cache)
        if joining_scores is not None:
            self.cache.join(cache)
            self.rows, self.seen = [*self.rows, *joining], None
            scores = torch.cat([scores, joining_scores])
        return scores

    def _read(self, rows: Sequence[TextRow]) -> tuple[Tensor, Cache]:
        """Read rows from the beginning of their windows. Return the next tokens' scores and the cache."""
        for row in rows:
            self._slide(row)
        parts = [row.ids[row.begin :] for row in rows]
        longest = max(map(len, parts))
        tokens = torch.tensor([[0] * (longest - len(part)) + part for part in parts], device=self.network.device)
        lead = torch.tensor([[longest - len(part)] for part in parts], device=self.network.device)
        positions = torch.arange(longest, device=self.network.device)
        documents = (positions >= lead).long() if lead.any() else None
        cache = Cache(self.network.trained.settings.layers)
        states = self.network.states(tokens, (positions - lead).clamp(min=0), documents, cache)
        for row, begin, of_row in zip(rows, lead[:, 0].tolist(), states, strict=True):
            if row.echoed and not row.made:
                row.prompt_logs = self._prompt_logs(row, of_row[begin:])
        return self.network.scores(states[:, -1]), cache

    def _prompt_logs(self, row: TextRow, states: Tensor) -> list[TokenLog]:
        """Return the logs of a prompt's tokens, from the states of the tokens before them."""
        logs, count = [TokenLog(row.ids[0], None, ())], row.alternatives or 0
        for begin in range(0, len(row.ids) - 1, STATES):
            words = row.ids[begin + 1 : begin + 1 + STATES]
            logs += _logs(self.network.scores(states[begin : begin + len(words)]), words, count)
        return logs[row.lead :]

    def _slide(self, row: TextRow) -> None:
        """Move the window if the row is too long, to leave room for the tokens that are still wanted."""
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
        """Return the next token of each row. Rows with equal sampling options are drawn together."""
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
    """Return the log probabilities of `words`, and of the `count` likeliest tokens, from scores [N, V]."""
    logs = scores.float().log_softmax(1)
    top = logs.topk(min(count, logs.shape[1]))
    chosen = logs[torch.arange(len(words)), list(words)].tolist()
    return [
        TokenLog(word, log, tuple(zip(*likeliest, strict=True)))
        for word, log, *likeliest in zip(words, chosen, top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def text_rows(network: WritingNetwork, options: SamplingOptions, prompts: Sequence[str]) -> list[TextRow]:
    """Return the rows of all prompts, one per sample."""
    rows = []
    for prompt in prompts:
        ids = network.trained.tokenizer.encode(prompt)
        lead = _lead(network, options, ids)
        rows += rows_of_ids(options, prompt, [*lead, *ids], len(lead))
    return rows


def rows_of_ids(options: SamplingOptions, prompt: str, ids: Sequence[int], lead: int = 0) -> list[TextRow]:
    """Return the rows of a tokenized prompt, one per sample."""
    return [TextRow(prompt, sample, [*ids], len(ids), options, lead) for sample in range(options.samples)]


def _lead(network: WritingNetwork, options: SamplingOptions, ids: Sequence[int]) -> list[int]:
    """Return the start token that documents have in training, unless the prompt already begins with it."""
    if network.opening is None or not options.start or list(ids[:1]) == [network.opening]:
        return []
    if ids and not network.trained.tokenizer.begins_texts:
        return []
    if ids:
        network.note_the_start()
    return [network.opening]


def continued(network: WritingNetwork, row: TextRow) -> str:
    """Return the text generated after the prompt."""
    if not row.made:
        return ""
    tokenizer = network.trained.tokenizer
    return tokenizer.decode(row.ids).removeprefix(tokenizer.decode(row.ids[: row.given]))


def stable_length(network: WritingNetwork, options: SamplingOptions, text: str) -> int:
    """Return how many characters will not change as the text grows and cannot begin a stop string."""
    size = len(text.rstrip("\N{REPLACEMENT CHARACTER}"))  # decoded from an incomplete character
    for stop in options.stop:
        size = min(size, len(text) - next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0))
    if network.trained.tokenizer.rewrites:
        blank = max(text.rfind(" ", 0, size), 0)
        size = min(size, max(blank, len(text) - HELD))
    return size
