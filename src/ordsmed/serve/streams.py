"""Answers streamed as server-sent events, and the sampling options of all protocols."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable

import msgspec
from starlette.responses import StreamingResponse

from ordsmed.base.errors import OrdsmedError
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.use.generation.options import SamplingOptions

DONE = b"data: [DONE]\n\n"


def events(
    served: ServedModel, answers: AsyncIterator[object], failure: Callable[[Refusal], ErrorForm], *, last: bytes = DONE
) -> StreamingResponse:
    """Stream each answer as an event. An error becomes the last event, in the protocol's form."""

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for answer in answers:
                yield b"data: " + msgspec.json.encode(answer) + b"\n\n"
            yield last
        except OrdsmedError as error:
            yield b"data: " + msgspec.json.encode(failure(Refusal.of(error, served.hidden)).body) + b"\n\n"
        except Refusal as refusal:
            yield b"data: " + msgspec.json.encode(failure(refusal).body) + b"\n\n"

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def sampling(
    *,
    tokens: int,
    temperature: float,
    best: int = 0,
    share: float = 1.0,
    typical: float = 1.0,
    penalty: float = 1.0,
    samples: int = 1,
    stop: tuple[str, ...] = (),
    seed: int | None = None,
    start: bool = True,
) -> SamplingOptions:
    """Return the options for generation. Without a seed, draw a random one."""
    if any(not text for text in stop):
        raise Refusal("invalid", "found an empty text", "non-empty texts", place="stop")
    return SamplingOptions(
        tokens=tokens,
        temperature=temperature,
        best=best,
        share=share,
        typical=typical,
        penalty=penalty,
        samples=samples,
        stop=stop,
        seed=secrets.randbelow(1 << 31) if seed is None else seed,
        start=start,
    )
