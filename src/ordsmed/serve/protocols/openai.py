"""OpenAI's shapes: /v1/models, /v1/embeddings and /v1/completions, as its own clients and LangChain send them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from ordsmed.serve.call import Endpoint, ServedCall, texts_of_tokens
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.sentences import packed, sentence_vectors
from ordsmed.serve.streams import events, sampling
from ordsmed.serve.writing import PendingTexts, WrittenPiece
from ordsmed.use.generation.options import SamplingOptions

STARTED = int(time.time())
REASONS = {"end": "stop", "stop": "stop", "tokens": "length", None: "length"}
KINDS = {"token": "authentication_error", "busy": "rate_limit_error", "host": "permission_error"}
Tokens = list[Annotated[int, Meta(ge=0)]]


class EmbeddingsRequest(Struct, forbid_unknown_fields=True):
    input: str | list[str | int | Tokens]
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None


class TokenUsage(Struct):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class EmbeddingObject(Struct):
    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingsAnswer(Struct):
    data: list[EmbeddingObject]
    model: str
    usage: TokenUsage
    object: str = "list"


class ModelObject(Struct):
    id: str
    created: int = STARTED
    owned_by: str = "ordsmed"
    object: str = "model"


class ModelsAnswer(Struct):
    data: list[ModelObject]
    object: str = "list"


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False


class CompletionsRequest(Struct, forbid_unknown_fields=True):
    prompt: str | list[str | int | Tokens] = ""
    model: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] = 16
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0  # not OpenAI's: among so many of the likeliest
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] = 1.0  # not OpenAI's
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    stop: str | list[str] | None = None
    seed: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    suffix: str | None = None
    best_of: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0


class Logprobs(Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Struct):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class CompletionsAnswer(Struct):
    id: str
    model: str
    choices: list[CompletionChoice]
    usage: TokenUsage | None = None
    created: int = 0
    object: str = "text_completion"


async def models(call: ServedCall) -> ModelsAnswer:
    return ModelsAnswer([ModelObject(name) for name in call.service.models.by_name])


async def model(call: ServedCall) -> ModelObject:
    return ModelObject(call.service.models.find(call.parameters["id"]).name)


async def embeddings(call: ServedCall) -> EmbeddingsAnswer:
    request: EmbeddingsRequest = call.request
    served = call.model("embed", request.model)
    texts = texts_of_tokens(served, request.input, "input")
    vectors = await sentence_vectors(call, served, texts, unit=True, dimensions=request.dimensions)
    write = packed if request.encoding_format == "base64" else lambda vector: vector.tolist()
    tokens = sum(map(len, served.model.trained.tokenizer.encode_batch(texts)))
    data = [EmbeddingObject(number, write(vector)) for number, vector in enumerate(vectors)]
    return EmbeddingsAnswer(data, served.name, TokenUsage(tokens, tokens))


async def completions(call: ServedCall) -> object:
    request: CompletionsRequest = call.request
    served = call.model("generate", request.model)
    prompts = texts_of_tokens(served, request.prompt, "prompt")
    options = _options(request)
    texts = call.write(served, prompts, options, request.logprobs)
    samples = options.samples
    starts = [prompt if request.echo else "" for prompt in prompts for _ in range(samples)]
    tokens = sum(map(len, served.model.trained.tokenizer.encode_batch(prompts)))
    head = CompletionsAnswer(f"cmpl-{secrets.token_hex(12)}", served.name, [], created=int(time.time()))
    if request.stream:
        usage = request.stream_options is not None and request.stream_options.include_usage
        return events(served, _chunks(served, texts, starts, head, tokens if usage else None), failure)
    written = await call.answer(served, texts.texts())
    choices = [
        CompletionChoice(
            number,
            starts[number] + "".join(piece.text for piece in pieces),
            REASONS[pieces[-1].ended],
            _logprobs(served, pieces, len(starts[number])),
        )
        for number, pieces in written.items()
    ]
    count = sum(pieces[-1].tokens for pieces in written.values())
    return structs.replace(head, choices=choices, usage=TokenUsage(tokens, tokens + count, count))


async def _chunks(
    served: ServedModel, texts: PendingTexts, starts: list[str], head: CompletionsAnswer, tokens: int | None
) -> AsyncIterator[object]:
    """An answer for every piece, at last one with the numbers of tokens where they are wanted."""
    offsets, counts = [*map(len, starts)], [0] * len(starts)
    for number, start in enumerate(starts):
        if start:
            yield structs.replace(head, choices=[CompletionChoice(number, start)])
    async for piece in texts.pieces():
        counts[piece.number] = piece.tokens
        if not piece.text and not piece.ended and piece.log is None:
            continue
        logprobs = _logprobs(served, [piece], offsets[piece.number])
        offsets[piece.number] += len(piece.text)
        reason = REASONS[piece.ended] if piece.ended else None
        yield structs.replace(head, choices=[CompletionChoice(piece.number, piece.text, reason, logprobs)])
    if tokens is not None:
        yield structs.replace(head, usage=TokenUsage(tokens, tokens + sum(counts), sum(counts)))


def _options(request: CompletionsRequest) -> SamplingOptions:
    """Ours, of OpenAI's; what is not there is refused."""
    absent = {
        "suffix": bool(request.suffix),
        "best_of": request.best_of not in (None, 1, request.n),
        "logit_bias": bool(request.logit_bias),
        "presence_penalty": bool(request.presence_penalty),
        "frequency_penalty": bool(request.frequency_penalty),
        "logprobs": request.echo and request.logprobs is not None,
    }
    for name, wrong in absent.items():
        if wrong:
            remedy = "POST /score tells how likely a text is" if name == "logprobs" else ""
            problem = "found with echo" if name == "logprobs" else "is not done here"
            raise Refusal("invalid", problem, "a request without it", remedy, name)
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    return sampling(
        tokens=request.max_tokens,
        temperature=1.0 if request.temperature is None else request.temperature,
        best=request.top_k,
        share=request.top_p or 1.0,
        penalty=request.repetition_penalty,
        samples=request.n or 1,
        stop=stop,
        seed=request.seed,
    )


def _logprobs(served: ServedModel, pieces: Sequence[WrittenPiece], offset: int) -> Logprobs | None:
    """Of each token: its logarithm, those of the likeliest, and where its text begins."""
    logs = [piece.log for piece in pieces if piece.log is not None]
    if not logs:
        return None
    offsets, write = [], partial(served.model.trained.tokenizer.decode, skip_special=False)
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece.text)
    top = [{write([token]): value for token, value in log.likeliest} for log in logs]
    return Logprobs([write([log.token]) for log in logs], [log.log for log in logs], top, offsets[: len(logs)])


def failure(refusal: Refusal) -> ErrorForm:
    kind = KINDS.get(refusal.kind, "invalid_request_error" if refusal.status < 500 else "server_error")
    code = "model_not_found" if refusal.kind == "unknown" else refusal.kind
    error = {"message": str(refusal), "type": kind, "param": refusal.place or None, "code": code}
    return ErrorForm(refusal.status, {"error": error})


ENDPOINTS = (
    Endpoint("/v1/models", "the models that are served", models, answer=ModelsAnswer),
    Endpoint("/v1/models/{id:path}", "one of them", model, answer=ModelObject),
    Endpoint(
        "/v1/embeddings",
        "a vector of unit length for each text",
        embeddings,
        EmbeddingsRequest,
        EmbeddingsAnswer,
        "embed",
    ),
    Endpoint(
        "/v1/completions",
        "texts that go on with prompts, at once or as they are written",
        completions,
        CompletionsRequest,
        CompletionsAnswer,
        "generate",
    ),
)
