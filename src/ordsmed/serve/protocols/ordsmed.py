"""The API of ordsmed: the methods of OpenModel, for `ordsmed.open("http://...")`, scores, search and the run."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import PlainTextResponse, Response

from ordsmed.api.methods import METHODS, ModelScores, PackedVectors, ScoreRequest, TextsRequest, Way
from ordsmed.base.say import many
from ordsmed.measure.likelihood.surprisal import Scored
from ordsmed.serve import indexes
from ordsmed.serve.call import Endpoint, ServedCall, texts_of
from ordsmed.serve.indexes import FoundPassage, index_of
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.runs import RunFacts
from ordsmed.serve.sentences import packed, word_vectors
from ordsmed.serve.streams import events
from ordsmed.use.generation.options import Generated, SamplingOptions

TOLERANCE = 1e-6  # sums that differ by no more are equal, as in minimal pairs


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


async def score(call: ServedCall) -> list[ModelScores]:
    """Return the surprisal in bits of each text by token and word, for each model and each requested step."""
    request: ScoreRequest = call.request
    models = [call.model("score", name) for name in request.models or [""]]
    if len(set(request.models)) < len(request.models) or len(models) > 64:
        raise Refusal("invalid", "found a model twice, or more than 64", "different models", place="models")
    items: list[tuple[object, ...]] = [(text,) for text in texts_of(request.texts, "texts")]
    if request.steps is not None:
        return [scored for served in models for scored in await _at_steps(call, served, items)]
    scores = await asyncio.gather(*(call.compute(served, "score", items, way=request.way) for served in models))
    return [_scores(served, result) for served, result in zip(models, scores, strict=True)]


def _scores(served: ServedModel, scores: list[Scored]) -> ModelScores:
    return ModelScores(served.name, scores, served.model.step)


async def _at_steps(call: ServedCall, served: ServedModel, items: list[tuple[object, ...]]) -> list[ModelScores]:
    """Score the texts by checkpoints of a run.

    Each checkpoint is opened for this request only, and only one is open at a time in the server.
    """
    service, request = call.service, call.request
    if not service.checkpoints:
        raise Refusal("cannot", "this server does not open checkpoints", "", "start it with --checkpoints", "steps")
    call.check_size(items)
    checkpoints, scores = served.at_steps(request.steps), list[ModelScores]()
    try:
        async with asyncio.timeout(service.limits.seconds):
            while True:
                async with service.opening:
                    at_step = await call.answer(served, asyncio.to_thread(next, checkpoints, None))
                    if at_step is None:
                        return scores
                    scores.append(_scores(at_step, await call.compute(at_step, "score", items, way=request.way)))
    except TimeoutError:
        raise Refusal("late", f"{many(len(scores), 'checkpoint')} took longer than the deadline") from None


class SearchRequest(Struct, forbid_unknown_fields=True):
    questions: str | list[str]
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
    scored = await call.compute(served, "score", items, way=request.way)
    sums = [result.log_likelihood for result in scored]
    return [ScoredPair(good, bad, good - bad > TOLERANCE) for good, bad in zip(sums[::2], sums[1::2], strict=True)]


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


class LayersRequest(TextsRequest):
    layers: Annotated[str, Meta(max_length=100)] = "all"  # all, top, mean or numbers such as 0,-1


class WordLayers(Struct):
    words: list[str]
    vectors: list[Any]  # [layers, words, width]; [words, width] for one layer


async def layers(call: ServedCall) -> list[WordLayers]:
    request: LayersRequest = call.request
    served, texts = call.model("embed"), texts_of(request.texts, "texts")
    embedded = await word_vectors(call, served, texts, layers=request.layers)
    return [WordLayers([*result.words], result.vectors.tolist()) for result in embedded]


async def results(call: ServedCall, method: str) -> list[Any]:
    """Return the results of a method of the model for the inputs of the request."""
    columns, options = METHODS[method].split(call.request)
    if method == "classify" and not columns[1]:
        del columns[1]  # texts alone, no pairs
    if len({*map(len, columns)}) > 1:
        counts = " and ".join(str(len(column)) for column in columns)
        raise Refusal("invalid", f"found lists of different lengths: {counts}", "lists of equal length")
    return await call.compute(call.model(method), method, [*zip(*columns, strict=True)], **options)


async def generate(call: ServedCall) -> object:
    """Return all samples of each text. With `stream`, send the continuation of one text piece by piece."""
    served = call.model("generate")
    [texts], options = METHODS["generate"].split(call.request)
    stream, sampling = options.pop("stream"), SamplingOptions(**options)
    pending = call.write(served, texts, sampling)
    if stream:
        if len(texts) * sampling.samples > 1:
            raise Refusal("invalid", "found several texts", "one", place="stream")
        return events(served, pending.pieces(), failure)
    written = await call.answer(served, pending.texts())
    return [
        Generated(
            texts[number // sampling.samples],
            "".join(piece.text for piece in pieces),
            number % sampling.samples,
            pieces[-1].tokens,
            pieces[-1].ended or "tokens",
        )
        for number, pieces in written.items()
    ]


async def embed(call: ServedCall) -> list[PackedVectors]:
    [texts], options = METHODS["embed"].split(call.request)
    embedded = await word_vectors(call, call.model("embed"), texts, **options)
    return [
        PackedVectors(result.text, [*result.words], [*result.vectors.shape], options["dtype"], packed(result.vectors))
        for result in embedded
    ]


async def reload(call: ServedCall) -> HealthAnswer:
    """Open all models again. Until they are open, the old ones answer requests."""
    worker = call.service.worker
    await (worker.reload() if worker else asyncio.to_thread(call.service.models.reload))
    return HealthAnswer("ok")


def failure(refusal: Refusal) -> ErrorForm:
    about = {"place": refusal.place, "found": refusal.problem, "wanted": refusal.wanted, "remedy": refusal.remedy}
    return ErrorForm(refusal.status, {"error": str(refusal), "kind": refusal.kind, **about})


def _endpoint(name: str, run: Callable[[ServedCall], Awaitable[object]] | None = None, does: str = "") -> Endpoint:
    """Return the endpoint of a method of OpenModel."""
    method = METHODS[name]
    run = run or functools.partial(results, method=name)
    return Endpoint(f"/{method.path}", does or f"OpenModel.{name}", run, method.request, method.answer, name)


SCORE = "how likely texts are, by token and by word, to one model or several, or to the checkpoints of a run"
SEARCH = "the passages of an index that answer a question, by vectors, words or both"
SUSPECT = "which tokens an ELECTRA takes for replaced"
ENDPOINTS = (
    Endpoint("/health", "is it well?", health, answer=HealthAnswer, public=True),
    Endpoint("/metrics", "counts and times, as Prometheus reads them", metrics),
    Endpoint("/run", "the loss and the scores of the run that a model comes from", run, answer=RunFacts),
    _endpoint("score", score, SCORE),
    Endpoint("/search", SEARCH, search, SearchRequest, list[list[FoundPassage]]),
    Endpoint("/pairs", "which of two texts is the likelier", pairs, PairsRequest, list[ScoredPair], "score"),
    Endpoint("/replaced", SUSPECT, replaced, TextsRequest, list[list[SuspectedToken]], "score"),
    Endpoint("/layers", "the vectors of words in every layer", layers, LayersRequest, list[WordLayers], "embed"),
    _endpoint("generate", generate, "OpenModel.generate, and stream"),
    _endpoint("embed", embed),
    *map(_endpoint, ("fill", "answer", "classify", "tag")),
    Endpoint("/admin/reload", "all models opened again", reload, dict[str, str], HealthAnswer),
)
