"""OpenAI's API: /v1/models, /v1/embeddings and /v1/completions, as its clients and LangChain send them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from ordsmed.serve.call import Endpoint, Prompt, ServedCall, prompts_of, texts_of_tokens
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.sentences import packed, sentence_vectors
from ordsmed.serve.streams import events, sampling
from ordsmed.serve.writing import PendingTexts, WrittenPiece
from ordsmed.use.generation.continuing import TokenLog
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
    max_tokens: Annotated[int, Meta(ge=0)] | None = 16  # 0 with echo: return only the prompt
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0  # not in OpenAI's API: sample among this many most probable tokens
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] = 1.0  # not in OpenAI's API
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
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
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
    fills = served.writer is None
    prompts = (texts_of_tokens if fills else prompts_of)(served, request.prompt, "prompt")
    options, echo = _options(request), bool(request.echo)
    texts = call.write(served, prompts, options, request.logprobs, echoed=echo)
    starts = [_text(served, prompt) if echo else "" for prompt in prompts for _ in range(options.samples)]
    encode = served.model.trained.tokenizer.encode
    tokens = sum(len(prompt if isinstance(prompt, list) else encode(prompt)) for prompt in prompts)
    head = CompletionsAnswer(f"cmpl-{secrets.token_hex(12)}", served.name, [], created=int(time.time()))
    if request.stream:
        usage = request.stream_options is not None and request.stream_options.include_usage
        return events(served, _chunks(served, texts, starts, head, tokens if usage else None), failure)
    written = await call.answer(served, texts.texts())
    if request.max_tokens == 0:
        written = {number: [_without_token(pieces[0])] for number, pieces in written.items()}
    choices = [
        CompletionChoice(
            number,
            starts[number] + "".join(piece.text for piece in pieces),
            REASONS[pieces[-1].ended],
            _logprobs(served, pieces, starts[number]),
        )
        for number, pieces in written.items()
    ]
    count = sum(pieces[-1].tokens for pieces in written.values())
    return structs.replace(head, choices=choices, usage=TokenUsage(tokens, tokens + count, count))


async def chat(call: ServedCall) -> object:
    """Refuse: no served model has a chat template."""
    request: dict[str, Any] = call.request
    name = request.get("model")
    served = call.service.models.find(call.name or (name if name in call.service.models.by_name else ""), "generate")
    problem = f"`{served.name}` continues texts and has no chat template"
    raise Refusal("cannot", problem, "a prompt", "use POST /v1/completions", "messages")


def _text(served: ServedModel, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else served.model.trained.tokenizer.decode(prompt, skip_special=False)


def _without_token(piece: WrittenPiece) -> WrittenPiece:
    """Return the piece without its token: generation makes at least one, and `max_tokens` may be 0."""
    return replace(piece, text="", tokens=0, ended=None, log=None)


async def _chunks(
    served: ServedModel, texts: PendingTexts, starts: list[str], head: CompletionsAnswer, tokens: int | None
) -> AsyncIterator[object]:
    """Yield an answer for each piece. With `tokens`, those of the prompts, yield the token counts at the end."""
    texts_so_far, counts, started = [*starts], [0] * len(starts), set[int]()
    async for piece in texts.pieces():
        number = piece.number
        counts[number] = piece.tokens
        text = piece.text if number in started else starts[number] + piece.text
        if not text and not piece.ended and piece.log is None:
            continue
        started.add(number)
        logprobs = _logprobs(served, [piece], texts_so_far[number])
        texts_so_far[number] += piece.text
        reason = REASONS[piece.ended] if piece.ended else None
        yield structs.replace(head, choices=[CompletionChoice(number, text, reason, logprobs)])
    if tokens is not None:
        yield structs.replace(head, usage=TokenUsage(tokens, tokens + sum(counts), sum(counts)))


def _options(request: CompletionsRequest) -> SamplingOptions:
    """Return the generation options of a request. Refuse parameters that are not supported."""
    unsupported = {
        "suffix": bool(request.suffix),
        "best_of": request.best_of not in (None, 1, request.n),
        "logit_bias": bool(request.logit_bias),
        "presence_penalty": bool(request.presence_penalty),
        "frequency_penalty": bool(request.frequency_penalty),
    }
    for name, is_given in unsupported.items():
        if is_given:
            raise Refusal("invalid", "is not supported", "a request without it", place=name)
    if request.max_tokens == 0 and (not request.echo or request.stream):
        raise Refusal("invalid", "found 0", "1 or more; 0 with echo, and without stream", place="max_tokens")
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    return sampling(
        tokens=16 if request.max_tokens is None else max(1, request.max_tokens),
        temperature=1.0 if request.temperature is None else request.temperature,
        best=request.top_k,
        share=request.top_p or 1.0,
        penalty=request.repetition_penalty,
        samples=request.n or 1,
        stop=stop,
        seed=request.seed,
    )


def _logprobs(served: ServedModel, pieces: Sequence[WrittenPiece], before: str) -> Logprobs | None:
    """Return the log-probability, the most probable alternatives and the offset of each token after `before`."""
    logs, offset = [*pieces[0].prompt_logs], len(before)
    offsets = _offsets(served, before, [log.token for log in logs])
    for piece in pieces:
        if piece.log is not None:
            logs.append(piece.log)
            offsets.append(offset)
        offset += len(piece.text)
    if not logs:
        return None
    texts = [_text(served, [log.token]) for log in logs]
    return Logprobs(texts, [log.log for log in logs], [_top(served, log) for log in logs], offsets)


def _top(served: ServedModel, log: TokenLog) -> dict[str, float] | None:
    """Return the most probable alternatives by text; of several tokens with the same text, the most probable."""
    return None if log.log is None else {_text(served, [n]): value for n, value in reversed(log.likeliest)}


def _offsets(served: ServedModel, text: str, ids: list[int]) -> list[int]:
    encoding = served.model.trained.tokenizer.pipeline.encode(text, add_special_tokens=False)
    if encoding.ids == ids:
        return [begin for begin, _ in encoding.offsets]
    return [0, *accumulate(len(_text(served, [number])) for number in ids[:-1])] if ids else []


def failure(refusal: Refusal) -> ErrorForm:
    kind = KINDS.get(refusal.kind, "invalid_request_error" if refusal.status < 500 else "server_error")
    code = "model_not_found" if refusal.kind == "unknown" else refusal.kind
    error = {"message": str(refusal), "type": kind, "param": refusal.place or None, "code": code}
    return ErrorForm(refusal.status, {"error": error})


ENDPOINTS = (
    Endpoint("/v1/models", "list the models", models, answer=ModelsAnswer),
    Endpoint("/v1/models/{id:path}", "describe a model", model, answer=ModelObject),
    Endpoint(
        "/v1/embeddings", "embed texts as vectors of length 1", embeddings, EmbeddingsRequest, EmbeddingsAnswer, "embed"
    ),
    Endpoint(
        "/v1/completions",
        "continue prompts, at once or streamed",
        completions,
        CompletionsRequest,
        CompletionsAnswer,
        "generate",
    ),
    *(
        Endpoint(path, "refused: no served model has a chat template", chat, dict[str, Any])
        for path in ("/v1/chat/completions", "/v1/responses")
    ),
)
