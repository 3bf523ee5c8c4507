"""The API of ordsmed: the methods of OpenModel, for `ordsmed.open("http://...")`, scores, search and the run."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import PlainTextResponse, Response

from ordsmed.base.say import many
from ordsmed.learn.score.answers import Answered
from ordsmed.measure.likelihood.surprisal import Scored
from ordsmed.serve import indexes
from ordsmed.serve.call import Endpoint, ServedCall, texts_of
from ordsmed.serve.indexes import FoundPassage, index_of
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.runs import RunFacts
from ordsmed.serve.sentences import packed, word_vectors
from ordsmed.serve.streams import events
from ordsmed.use.fill import Filled
from ordsmed.use.generation.options import Generated, SamplingOptions
from ordsmed.use.predict import Classified, Tagged

Count = Annotated[int, Meta(ge=1, le=4_096)]
TOLERANCE = 1e-6  # sums that differ by no more count as equal, as in minimal pairs
Way = Literal["", "causal", "masked", "word", "detect", "forward", "backward", "mean"]
Texts = str | list[str]


class HealthAnswer(Struct):
    status: str


async def health(call: ServedCall) -> HealthAnswer:
    if call.service.batcher.closing:
        raise Refusal("closing", "the server is stopping")
    return HealthAnswer("ok")


async def metrics(call: ServedCall) -> Response:
    return PlainTextResponse(call.service.metrics.text(), media_type="text/plain; version=0.0.4")


async def run(call: ServedCall) -> RunFacts:
    """Return the facts of the run of the model in the path, or of the first served run."""
    served = call.model("")
    if not call.name:
        runs = (model for model in call.service.models.by_name.values() if model.is_run)
        served = next(runs, served)
    if not served.is_run:
        raise Refusal("cannot", "has only weights, not a run", "the folder of a run", place=served.name)
    return await call.service.runs.read(served)


class ScoreRequest(Struct, forbid_unknown_fields=True):
    texts: Texts
    way: Way = ""
    models: list[str] = []  # several models; empty: the one of the path
    steps: Literal["all"] | list[Annotated[int, Meta(ge=0)]] | None = None  # checkpoints of the run


class ModelScores(Struct):
    model: str
    scores: list[Scored]
    step: int | None = None


async def score(call: ServedCall) -> list[ModelScores]:
    """Return the surprisal in bits of each text by token and word, for each model and each requested step."""
    request: ScoreRequest = call.request
    models = [call.model("score", name) for name in request.models or [""]]
    if len(set(request.models)) < len(request.models) or len(models) > 64:
        raise Refusal("invalid", "found a model twice, or more than 64", "different models", place="models")
    items: list[tuple[object, ...]] = [(text,) for text in texts_of(request.texts, "texts")]
    way = {"way": request.way} if request.way else {}
    if request.steps is not None:
        return [scored for served in models for scored in await _at_steps(call, served, items, way)]
    scores = await asyncio.gather(*(call.compute(served, "score", items, **way) for served in models))
    return [_scores(served, result) for served, result in zip(models, scores, strict=True)]


def _scores(served: ServedModel, scores: list[Scored]) -> ModelScores:
    return ModelScores(served.name, scores, served.model.step)


async def _at_steps(
    call: ServedCall, served: ServedModel, items: list[tuple[object, ...]], way: Mapping[str, str]
) -> list[ModelScores]:
    """Score the texts with checkpoints of a run.

    Each checkpoint is opened for this request only, and only one is open at a time in the server.
    """
    service = call.service
    if not service.checkpoints:
        raise Refusal("cannot", "this server does not open checkpoints", "", "start it with --checkpoints", "steps")
    call.check_size(items)
    checkpoints, scores = served.at_steps(call.request.steps), list[ModelScores]()
    try:
        async with asyncio.timeout(service.limits.seconds):
            while True:
                async with service.opening:
                    at_step = await call.answer(served, asyncio.to_thread(next, checkpoints, None))
                    if at_step is None:
                        return scores
                    scores.append(_scores(at_step, await call.compute(at_step, "score", items, **way)))
    except TimeoutError:
        raise Refusal("late", f"{many(len(scores), 'checkpoint')} took longer than the deadline") from None


class SearchRequest(Struct, forbid_unknown_fields=True):
    questions: Texts
    k: Annotated[int, Meta(ge=1, le=1_000)] = 10
    kind: Literal["", "both", "dense", "words"] = ""
    index: str = ""  # name of the index; empty: the first
    weight: Annotated[float, Meta(ge=0, le=1)] | None = (
        None  # of vectors in a search by vectors and words; null: the weight of the index
    )
    rerank: str | None = None  # name of a model that scores pairs; null: the index's reranker, empty: none
    top: Annotated[int, Meta(ge=0, le=1_000)] = 0  # passages to rerank; 0: as the index says, else 50
    where: list[str] = []  # conditions on documents' fields, such as year>=1990


async def search(call: ServedCall) -> list[list[FoundPassage]]:
    request: SearchRequest = call.request
    index, questions = index_of(call, request.index), texts_of(request.questions, "questions")
    options = (request.k, request.kind, request.weight, request.rerank, request.top, request.where)
    settings = indexes.SearchOptions(*options)
    return await indexes.search(call, index, questions, settings)


class MinimalPair(Struct, forbid_unknown_fields=True):
    good: str
    bad: str


class PairsRequest(Struct, forbid_unknown_fields=True):
    pairs: list[MinimalPair]
    way: Way = ""


class ScoredPair(Struct):
    good: float  # natural logarithm of the text's probability, or the score used instead
    bad: float
    right: bool  # whether the good text is more probable


async def pairs(call: ServedCall) -> list[ScoredPair]:
    request: PairsRequest = call.request
    served = call.model("score")
    items: list[tuple[object, ...]] = [(text,) for pair in request.pairs for text in (pair.good, pair.bad)]
    way = {"way": request.way} if request.way else {}
    scored = await call.compute(served, "score", items, **way)
    sums = [result.log_likelihood for result in scored]
    return [ScoredPair(good, bad, good - bad > TOLERANCE) for good, bad in zip(sums[::2], sums[1::2], strict=True)]


class TextsRequest(Struct, forbid_unknown_fields=True):
    texts: Texts


class SuspectedToken(Struct):
    text: str
    start: int
    end: int
    fake: float  # probability that the token was replaced


async def replaced(call: ServedCall) -> list[list[SuspectedToken]]:
    """Return the probability that each token was replaced, from an ELECTRA discriminator."""
    request: TextsRequest = call.request
    served = call.model("score")
    scored = await call.compute(served, "score", [(text,) for text in texts_of(request.texts, "texts")], way="detect")
    return [
        [
            SuspectedToken(part.text, part.start, part.end, 1 - 2.0**-part.bits)
            for part in result.tokens
            if part.bits is not None
        ]
        for result in scored
    ]


class LayersRequest(Struct, forbid_unknown_fields=True):
    texts: Texts
    layers: Annotated[str, Meta(max_length=100)] = "all"  # all, top, mean or numbers such as 0,-1


class WordLayers(Struct):
    words: list[str]
    vectors: list[Any]  # [layers, words, width]; [words, width] for one layer


async def layers(call: ServedCall) -> list[WordLayers]:
    request: LayersRequest = call.request
    served, texts = call.model("embed"), texts_of(request.texts, "texts")
    embedded = await word_vectors(call, served, texts, layers=request.layers)
    return [WordLayers([*result.words], result.vectors.tolist()) for result in embedded]


class FillRequest(TextsRequest, forbid_unknown_fields=True):
    best: Count = 5
    targets: list[str] = []


async def fill(call: ServedCall) -> list[Filled]:
    request: FillRequest = call.request
    targets = {"targets": tuple(request.targets)} if request.targets else {}
    return await call.compute(call.model("fill"), "fill", _items(request), best=request.best, **targets)


class GenerateRequest(TextsRequest, forbid_unknown_fields=True):
    tokens: Count = 40
    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    best: Annotated[int, Meta(ge=0)] = 0
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    typical: Annotated[float, Meta(gt=0, le=1)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    penalty: Annotated[float, Meta(gt=0, le=100)] = 1.0
    stop: list[Annotated[str, Meta(min_length=1)]] = []
    samples: Annotated[int, Meta(ge=1, le=128)] = 1
    together: Count = 1
    order: Literal["certain", "chance"] = "certain"
    start: bool = True
    stream: bool = False


async def generate(call: ServedCall) -> object:
    """Return all samples of each text. With `stream`, send the continuation of one text piece by piece."""
    request: GenerateRequest = call.request
    served, texts = call.model("generate"), texts_of(request.texts, "texts")
    names = [option.name for option in dataclasses.fields(SamplingOptions)]
    options = SamplingOptions(**{name: getattr(request, name) for name in names} | {"stop": tuple(request.stop)})
    pending = call.write(served, texts, options)
    if request.stream:
        if len(texts) * options.samples > 1:
            raise Refusal("invalid", "found several texts", "a single text", place="stream")
        return events(served, pending.pieces(), failure)
    written = await call.answer(served, pending.texts())
    return [
        Generated(
            texts[number // options.samples],
            "".join(piece.text for piece in pieces),
            number % options.samples,
            pieces[-1].tokens,
            pieces[-1].ended or "tokens",
        )
        for number, pieces in written.items()
    ]


class VectorsRequest(TextsRequest, forbid_unknown_fields=True):
    of: Literal["words", "sentences", "tokens"] = "words"
    layers: Annotated[str, Meta(max_length=100)] = ""
    pieces: Literal["mean", "first", "last"] = "mean"
    pool: Literal["", "mean", "words", "first", "last", "tokens"] = ""
    prompt: Literal["", "query", "passage"] = ""
    dtype: Literal["float32", "float16"] = "float32"
    cut: bool = False


class PackedVectors(Struct):
    text: str
    words: list[str]
    shape: list[int]
    dtype: str
    vectors: str  # little-endian, in base64


async def embed(call: ServedCall) -> list[PackedVectors]:
    request: VectorsRequest = call.request
    options = {name: getattr(request, name) for name in ("of", "layers", "pieces", "pool", "prompt", "dtype", "cut")}
    embedded = await word_vectors(call, call.model("embed"), texts_of(request.texts, "texts"), **options)
    return [
        PackedVectors(result.text, [*result.words], [*result.vectors.shape], request.dtype, packed(result.vectors))
        for result in embedded
    ]


class AnswerRequest(Struct, forbid_unknown_fields=True):
    questions: list[str]
    contexts: list[str]
    best: Count = 3


async def answer(call: ServedCall) -> list[Answered]:
    request: AnswerRequest = call.request
    if len(request.questions) != len(request.contexts):
        problem = f"found {many(len(request.questions), 'question')} and {many(len(request.contexts), 'context')}"
        raise Refusal("invalid", problem, "one context per question")
    items: list[tuple[object, ...]] = [*zip(request.questions, request.contexts, strict=True)]
    return await call.compute(call.model("answer"), "answer", items, best=request.best)


class ClassifyRequest(TextsRequest, forbid_unknown_fields=True):
    seconds: list[str] = []


async def classify(call: ServedCall) -> list[Classified]:
    request: ClassifyRequest = call.request
    items = _items(request)
    if request.seconds:
        if len(request.seconds) != len(items):
            problem = f"found {many(len(items), 'text')} and {many(len(request.seconds), 'second text')}"
            raise Refusal("invalid", problem, "a second text for each text, or none")
        items = [(*item, second) for item, second in zip(items, request.seconds, strict=True)]
    return await call.compute(call.model("classify"), "classify", items)


class TagRequest(Struct, forbid_unknown_fields=True):
    sentences: list[str | list[str]]  # words between white space, or a list of words


async def tag(call: ServedCall) -> list[Tagged]:
    request: TagRequest = call.request
    return await call.compute(call.model("tag"), "tag", [(sentence,) for sentence in request.sentences])


def _items(request: TextsRequest) -> list[tuple[object, ...]]:
    return [(text,) for text in texts_of(request.texts, "texts")]


async def reload(call: ServedCall) -> HealthAnswer:
    """Open all models again. Until they are open, the old ones answer requests."""
    worker = call.service.worker
    await (worker.reload() if worker else asyncio.to_thread(call.service.models.reload))
    return HealthAnswer("ok")


def failure(refusal: Refusal) -> ErrorForm:
    about = {"place": refusal.place, "found": refusal.problem, "wanted": refusal.wanted, "remedy": refusal.remedy}
    return ErrorForm(refusal.status, {"error": str(refusal), "kind": refusal.kind, **about})


ENDPOINTS = (
    Endpoint("/health", "check that the server works", health, answer=HealthAnswer, public=True),
    Endpoint("/metrics", "counts and durations in Prometheus's format", metrics),
    Endpoint("/run", "losses and scores of a model's run", run, answer=RunFacts),
    Endpoint(
        "/score",
        "log-probabilities of texts by token and word, from one or several models or checkpoints of a run",
        score,
        ScoreRequest,
        list[ModelScores],
        "score",
    ),
    Endpoint("/search", "search an index by vectors, words or both", search, SearchRequest, list[list[FoundPassage]]),
    Endpoint("/pairs", "decide which of two texts is more probable", pairs, PairsRequest, list[ScoredPair], "score"),
    Endpoint(
        "/replaced",
        "detect replaced tokens with an ELECTRA",
        replaced,
        TextsRequest,
        list[list[SuspectedToken]],
        "score",
    ),
    Endpoint("/layers", "embed words by every layer", layers, LayersRequest, list[WordLayers], "embed"),
    Endpoint("/api/fill", "OpenModel.fill", fill, FillRequest, list[Filled], "fill"),
    Endpoint("/api/generate", "OpenModel.generate, and stream", generate, GenerateRequest, list[Generated], "generate"),
    Endpoint("/api/embed", "OpenModel.embed", embed, VectorsRequest, list[PackedVectors], "embed"),
    Endpoint("/api/answer", "OpenModel.answer", answer, AnswerRequest, list[Answered], "answer"),
    Endpoint("/api/classify", "OpenModel.classify", classify, ClassifyRequest, list[Classified], "classify"),
    Endpoint("/api/tag", "OpenModel.tag", tag, TagRequest, list[Tagged], "tag"),
    Endpoint("/admin/reload", "open all models again", reload, dict[str, str], HealthAnswer),
)
