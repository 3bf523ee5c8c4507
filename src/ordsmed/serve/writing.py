"""Text generation with continuous batching: a new text may join the running batch at any step.

prompts  ->  rows  ->  ContinuingWriter: a token of every row per step  ->  pieces, sent to each request at once
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from ordsmed.serve.refusal import Refusal
from ordsmed.use.generate import grown
from ordsmed.use.generation.continuing import Continuation, TextRow, TokenLog, continued, stable_length
from ordsmed.use.generation.network import WritingNetwork
from ordsmed.use.generation.options import Ending, SamplingOptions

ROWS = 32  # maximum of texts in a batch


@dataclass(frozen=True)
class WrittenPiece:
    """The part of a text that a step added; often empty."""

    number: int  # of the text
    text: str
    tokens: int  # number of new tokens so far
    ended: Ending | None = None
    log: TokenLog | None = None
    prompt_logs: Sequence[TokenLog] = ()  # only in the first piece, and if requested


class PendingTexts:
    """The texts of a request. The batcher's thread adds their pieces, and the event loop reads them."""

    def __init__(self, count: int, seconds: float) -> None:
        self.unfinished, self.deadline, self.canceled = count, time.monotonic() + seconds, False
        self._loop, self._pieces = asyncio.get_running_loop(), asyncio.Queue[WrittenPiece | BaseException]()

    def put(self, piece: WrittenPiece | BaseException) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def is_over(self) -> bool:
        """Return whether the client has disconnected or the deadline has passed."""
        if not self.canceled and time.monotonic() > self.deadline:
            self.put(Refusal("late", "the texts took longer than the deadline"))
            self.canceled = True
        return self.canceled

    async def pieces(self) -> AsyncIterator[WrittenPiece]:
        """Yield the pieces as they arrive, until all texts have ended."""
        try:
            while self.unfinished:
                piece = await self._pieces.get()
                if isinstance(piece, BaseException):
                    raise piece
                self.unfinished -= piece.ended is not None
                yield piece
        finally:
            self.canceled = True

    async def texts(self) -> dict[int, list[WrittenPiece]]:
        pieces: dict[int, list[WrittenPiece]] = {number: [] for number in range(self.unfinished)}
        async for piece in self.pieces():
            pieces[piece.number].append(piece)
        return pieces


@dataclass(eq=False)
class RowInProgress:
    """A text in progress, and the part of it that was sent."""

    row: TextRow
    number: int
    request: PendingTexts
    sent: str = ""

    def send(self, network: WritingNetwork) -> None:
        """Send the new part of the text that later tokens cannot change."""
        row = self.row
        text = row.text if row.ended else continued(network, row)
        size = len(text) if row.ended else stable_length(network, row.how, text)
        extends = size >= len(self.sent) and text.startswith(self.sent)
        piece = text[len(self.sent) : size] if extends else ""
        self.sent = text[:size] if extends else self.sent
        log = row.logs[-1] if row.logs else None
        echoed, row.prompt_logs = row.prompt_logs, []
        self.request.put(WrittenPiece(self.number, piece, row.made, row.ended, log, echoed))


class ContinuingWriter:
    """Continues the texts of all requests to a model that generates token by token."""

    def __init__(self, network: WritingNetwork) -> None:
        self.network, self.continuation = network, Continuation(network, [])
        self.waiting: list[RowInProgress] = []
        self.writing: list[RowInProgress] = []

    @property
    def size(self) -> int:
        return len(self.waiting) + len(self.writing)

    def step(self) -> None:
        self.waiting = [entry for entry in self.waiting if not entry.request.is_over()]
        if over := [entry for entry in self.writing if entry.request.is_over()]:
            self.continuation.leave([entry.row for entry in over])
            self.writing = [entry for entry in self.writing if entry not in over]
        joining = self.waiting[: ROWS - len(self.writing)]
        self.waiting = self.waiting[len(joining) :]
        self.continuation.join([entry.row for entry in joining])
        self.writing += joining
        if not self.writing:
            return
        self.continuation.step()
        for entry in self.writing:
            entry.send(self.network)
        self.writing = [entry for entry in self.writing if entry.row.ended is None]

    def fail(self, error: Exception) -> None:
        """Report the error to all texts in progress. The next request starts with an empty batch."""
        for entry in self.writing:
            entry.request.put(error)
        self.writing, self.continuation = [], Continuation(self.network, [])


class FillingWriter:
    """Generates the texts of one request with a model that fills masks, pass by pass."""

    def __init__(
        self, network: WritingNetwork, prompts: Sequence[str], options: SamplingOptions, request: PendingTexts
    ) -> None:
        self.request, self.size = request, len(prompts) * options.samples
        self._passes = self._generate(network, prompts, options)

    def step(self) -> None:
        if self.request.is_over() or next(self._passes, None) is None:
            self.size = 0

    def fail(self, error: Exception) -> None:
        self.request.put(error)
        self.size = 0

    def _generate(self, network: WritingNetwork, prompts: Sequence[str], options: SamplingOptions) -> Iterator[bool]:
        numbers = ((prompt, sample) for prompt in prompts for sample in range(options.samples))
        for number, (prompt, sample) in enumerate(numbers):
            for piece, ended in grown(network, prompt, options, sample):
                self.request.put(WrittenPiece(number, piece, options.tokens if ended else 0, ended))
                yield True
