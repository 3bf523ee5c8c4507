"""The API of text-embeddings-inference: /embed, /embed_all, /predict, /rerank, /similarity, /tokenize, /info."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from ordsmed import __version__
from ordsmed.base.say import many
from ordsmed.serve.call import Endpoint, ServedCall, texts_of, texts_of_tokens
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.sentences import Truncation, cosines, fit_pairs, sentence_vectors, top_layer, word_vectors
from ordsmed.use.predict import Classified

Tokens = list[Annotated[int, Meta(ge=0)]]
Inputs = str | list[str | int | Tokens]
KINDS = {"busy": "overloaded", "broken": "backend", "cannot": "backend", "memory": "backend", "closing": "unhealthy"}
STATUS = {"invalid": 422, "cannot": 424}


class EmbedRequest(Truncation, forbid_unknown_fields=True, kw_only=True):
    inputs: Inputs
    normalize: bool = True
    dimensions: Annotated[int, Meta(ge=1)] | None = None


async def embed(call: ServedCall) -> list[list[float]]:
    request: EmbedRequest = call.request
    served = call.model("embed")
    texts = texts_of_tokens(served, request.inputs, "inputs")
    unit = request.normalize
    vectors = await sentence_vectors(call, served, texts, unit=unit, dimensions=request.dimensions, truncation=request)
    rows: list[list[float]] = vectors.tolist()
    return rows


class EmbedAllRequest(Truncation, forbid_unknown_fields=True, kw_only=True):
    inputs: Inputs
    layers: Annotated[str, Meta(max_length=100)] = ""  # not in TEI: top, all, mean or numbers; several add a first axis


async def embed_all(call: ServedCall) -> list[Any]:
    """Return a vector for each word of each text; with several `layers`, one per layer."""
    request: EmbedAllRequest = call.request
    served = call.model("embed")
    texts = texts_of_tokens(served, request.inputs, "inputs")  # windows cover long texts: nothing is truncated
    embedded = await word_vectors(call, served, texts, layers=request.layers or top_layer(served))
    return [result.vectors.tolist() for result in embedded]


class PredictRequest(Truncation, forbid_unknown_fields=True, kw_only=True):
    inputs: str | list[str | list[str]]
    raw_scores: bool = False


class Prediction(Struct):
    score: float
    label: str


async def predict(call: ServedCall) -> object:
    """Return the classes of a text, a pair or several of them, the most probable first."""
    request: PredictRequest = call.request
    served = call.model("classify")
    _refuse_raw_scores(request.raw_scores)
    inputs = request.inputs
    several = isinstance(inputs, list) and any(isinstance(entry, list) for entry in inputs)
    batch = inputs if several else [[inputs] if isinstance(inputs, str) else inputs]
    items: list[tuple[str, ...]] = []
    for number, entry in enumerate(batch):
        texts = texts_of(entry, f"inputs[{number}]")
        if isinstance(entry, str) or not 1 <= len(texts) <= 2:
            raise Refusal(
                "invalid", f"found {many(len(texts), 'text')}", "a text, or a pair of texts", place=f"inputs[{number}]"
            )
        items.append(tuple(texts))
    if len({len(item) for item in items}) > 1:
        raise Refusal("invalid", "found texts and pairs", "only texts or only pairs", place="inputs")
    items = _fit(call, served, items, request)
    answers = [_predictions(result) for result in await call.compute(served, "classify", items)]
    return answers if several else answers[0]


def _predictions(classified: Classified) -> list[Prediction]:
    if classified.number is not None:
        return [Prediction(classified.number, "LABEL_0")]
    ordered = sorted(classified.probabilities.items(), key=lambda entry: -entry[1])
    return [Prediction(share, label) for label, share in ordered]


class RerankRequest(Truncation, forbid_unknown_fields=True, kw_only=True):
    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False


class Rank(Struct, omit_defaults=True):
    index: int
    score: float
    text: str | None = None


async def rerank(call: ServedCall) -> list[Rank]:
    """Rank texts by the model's regression value for each pair of query and text, or its second class's probability."""
    request: RerankRequest = call.request
    models = call.service.models.by_name.items()
    served = call.model("classify", next((name for name, model in models if _ranks(model)), ""))
    _refuse_raw_scores(request.raw_scores)
    labels = served.model.labels
    if not _ranks(served):
        problem = f"`{served.name}` does not score pairs of texts"
        raise Refusal("cannot", problem, "a regression model, or one of two classes, for pairs")
    items = _fit(call, served, [(request.query, text) for text in request.texts], request)
    classified = await call.compute(served, "classify", items)
    scores = [result.number if result.number is not None else result.probabilities[labels[1]] for result in classified]
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    return [Rank(number, scores[number], request.texts[number] if request.return_text else None) for number in order]


def _ranks(served: ServedModel) -> bool:
    return "classify" in served.can and served.model.pairs and len(served.model.labels) in (0, 2)


class SimilarityInputs(Struct, forbid_unknown_fields=True):
    source_sentence: str
    sentences: list[str]


class SimilarityRequest(Struct, forbid_unknown_fields=True):
    inputs: SimilarityInputs
    parameters: Truncation | None = None


async def similarity(call: ServedCall) -> list[float]:
    request: SimilarityRequest = call.request
    served, inputs = call.model("embed"), request.inputs
    texts = [inputs.source_sentence, *texts_of(inputs.sentences, "sentences")]
    vectors = await sentence_vectors(call, served, texts, unit=False, truncation=request.parameters)
    return cosines(vectors[0], vectors[1:])


class TokenizeRequest(Struct, forbid_unknown_fields=True):
    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: None = None


class SimpleToken(Struct):
    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


async def tokenize(call: ServedCall) -> list[list[SimpleToken]]:
    request: TokenizeRequest = call.request
    served = call.model("")
    texts = texts_of(request.inputs, "inputs")
    call.check_size([(text,) for text in texts])
    tokenizer = served.model.trained.tokenizer
    encodings = tokenizer.pipeline.encode_batch(texts, add_special_tokens=request.add_special_tokens)
    return [
        [
            SimpleToken(number, piece, bool(special), None if special else begin, None if special else end)
            for number, piece, special, (begin, end) in zip(
                encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
            )
        ]
        for encoding in encodings
    ]


class DecodeRequest(Struct, forbid_unknown_fields=True):
    ids: list[int | Tokens]
    skip_special_tokens: bool = True


async def decode(call: ServedCall) -> list[str]:
    request: DecodeRequest = call.request
    tokenizer = call.model("").model.trained.tokenizer
    rows = request.ids if all(isinstance(row, list) for row in request.ids) else [request.ids]
    for number, row in enumerate(rows):
        if not all(isinstance(token, int) and 0 <= token < tokenizer.vocabulary for token in row):  # type: ignore[union-attr]
            wanted = f"token ids from 0 to {tokenizer.vocabulary - 1:,}, or lists of them"
            raise Refusal("invalid", "found a value that is not a token id", wanted, place=f"ids[{number}]")
    return [tokenizer.decode(row, skip_special=request.skip_special_tokens) for row in rows]  # type: ignore[arg-type]


class InfoAnswer(Struct):
    model_id: str
    served_model_name: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_concurrent_requests: int
    max_client_batch_size: int
    max_batch_tokens: int
    auto_truncate: bool = True
    tokenization_workers: int = 1
    version: str = __version__


async def info(call: ServedCall) -> InfoAnswer:
    served, limits = call.model(""), call.service.limits
    trained, labels = served.model.trained, served.model.labels
    kinds: dict[str, Any] = {"embedding": {"pooling": call.service.pool or "mean"}}
    if "classify" in served.can and labels:
        numbers = {str(number): label for number, label in enumerate(labels)}
        kinds = {"classifier": {"id2label": numbers, "label2id": {label: n for n, label in enumerate(labels)}}}
    dtype = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(trained.precision, trained.precision)
    batch = call.service.batcher.limits
    return InfoAnswer(
        served.name, served.name, dtype, kinds, trained.settings.longest(), batch.queue, limits.items, batch.cost
    )


def _fit(
    call: ServedCall, served: ServedModel, items: Sequence[tuple[str, ...]], truncation: Truncation
) -> list[tuple[str, ...]]:
    if truncation.prompt:
        raise Refusal(
            "invalid", f"found {truncation.prompt_name}", "none: classifiers have no prompts", place="prompt_name"
        )
    call.check_size(items)
    return fit_pairs(call, served, items, truncation)


def _refuse_raw_scores(raw: bool) -> None:
    if raw:
        raise Refusal(
            "invalid",
            "is not supported",
            "false: scores are probabilities, or values of a regression",
            place="raw_scores",
        )


def failure(refusal: Refusal) -> ErrorForm:
    kind = KINDS.get(refusal.kind, "validation")
    return ErrorForm(STATUS.get(refusal.kind, refusal.status), {"error": str(refusal), "error_type": kind})


ENDPOINTS = (
    Endpoint(
        "/embed",
        "embed texts; vectors have length 1 unless `normalize` is false",
        embed,
        EmbedRequest,
        list[list[float]],
        "embed",
    ),
    Endpoint("/embed_all", "embed every word of texts", embed_all, EmbedAllRequest, list[Any], "embed"),
    Endpoint(
        "/predict", "classify texts or pairs", predict, PredictRequest, list[Prediction | list[Prediction]], "classify"
    ),
    Endpoint("/rerank", "rank texts by their relevance to a query", rerank, RerankRequest, list[Rank], "classify"),
    Endpoint(
        "/similarity", "compare sentences with a source sentence", similarity, SimilarityRequest, list[float], "embed"
    ),
    Endpoint("/tokenize", "tokenize texts", tokenize, TokenizeRequest, list[list[SimpleToken]]),
    Endpoint("/decode", "decode tokens", decode, DecodeRequest, list[str]),
    Endpoint("/info", "describe the model and the limits", info, answer=InfoAnswer),
)
