"""Generation in several processes: rank 0 reads prompts, and all ranks compute, each with its part of every layer.

    rank 0    a prompt, or None at the end -> all      one step; interrupted? -> all      next step ...
    rank n    follow: receive the prompt, then compute step by step with rank 0

Ctrl-C is only acted on between two steps, because one process must not leave a computation that all take part in.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import asdict
from types import FrameType
from typing import Any

from ordsmed.base.errors import OrdsmedError
from ordsmed.base.ranks import on_rank0
from ordsmed.use.generate import steps
from ordsmed.use.generation.network import WritingNetwork
from ordsmed.use.generation.options import SamplingOptions


def lead(network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int) -> Iterator[str]:
    """Yield a text in pieces, written by this process or by all. After Ctrl-C, rank 0 stops the text on every rank."""
    if network.ranks.world == 1:
        yield from steps(network, prompt, options, sample)
        return
    with _held_back() as signal:
        on_rank0(network.ranks, lambda: [prompt, asdict(options), sample])
        for piece in steps(network, prompt, options, sample):
            yield piece
            if on_rank0(network.ranks, lambda: bool(signal)):
                raise KeyboardInterrupt


def end(network: WritingNetwork) -> None:
    """Signal to the other ranks that no more prompts follow."""
    on_rank0(network.ranks, lambda: None)


def follow(network: WritingNetwork) -> None:
    """Take part in generating a text for each prompt that rank 0 sends, until rank 0 signals the end."""
    with _held_back():
        while (request := on_rank0(network.ranks, _nothing)) is not None:
            prompt, settings, sample = request
            options = SamplingOptions(**settings | {"stop": tuple(settings["stop"])})
            with contextlib.suppress(OrdsmedError):  # rank 0 reports it
                for _ in steps(network, prompt, options, sample):
                    if on_rank0(network.ranks, _nothing):
                        break


def _nothing() -> Any:
    """Return None: only the value of rank 0 is used."""


@contextlib.contextmanager
def _held_back() -> Iterator[list[int]]:
    """Block Ctrl-C, and yield a list that gets an entry for each one received."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)
