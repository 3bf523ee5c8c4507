"""Leading: of several processes the first one asks for prompts, and all write, each with its part of every layer.

rank 0    a prompt, or nothing more -> all      write a step, was it ended? -> all      write a step ...
rank n    follow: the prompt, step by step with the first

A Ctrl-C must not tear one process out of what all compute together: it is looked at between two steps.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import asdict
from types import FrameType
from typing import Any

from ordsmed.base.errors import OrdsmedError
from ordsmed.base.ranks import first_alone
from ordsmed.use.generate import steps
from ordsmed.use.generation.network import WritingNetwork
from ordsmed.use.generation.options import SamplingOptions


def lead(network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int) -> Iterator[str]:
    """A text in pieces, of one process or of all; who is asked to end it says so to all."""
    if network.ranks.world == 1:
        yield from steps(network, prompt, how, sample)
        return
    with _held_back() as signal:
        first_alone(network.ranks, lambda: [prompt, asdict(how), sample])
        for piece in steps(network, prompt, how, sample):
            yield piece
            if first_alone(network.ranks, lambda: bool(signal)):
                raise KeyboardInterrupt


def end(network: WritingNetwork) -> None:
    """No prompt comes any more."""
    first_alone(network.ranks, lambda: None)


def follow(network: WritingNetwork) -> None:
    """Write what the first process is asked for, until nothing more comes."""
    with _held_back():
        while (request := first_alone(network.ranks, _nothing)) is not None:
            prompt, how, sample = request
            options = SamplingOptions(**how | {"stop": tuple(how["stop"])})
            with contextlib.suppress(OrdsmedError):  # the first one tells it
                for _ in steps(network, prompt, options, sample):
                    if first_alone(network.ranks, _nothing):
                        break


def _nothing() -> Any:
    """What who follows has to say."""


@contextlib.contextmanager
def _held_back() -> Iterator[list[int]]:
    """Ctrl-C ends nothing in here; how often it was heard."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)
