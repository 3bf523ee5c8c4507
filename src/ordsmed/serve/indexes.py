"""Search indexes by name, each with the served model that made its vectors, and the search in them.

nn=work/index/nn  ->  index `nn`, with the served model that has the weights, tokenizer and pooling of its vectors
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from msgspec import Struct

from ordsmed.api.model import OpenModel
from ordsmed.base.errors import OrdsmedError, RecipeError, nearest
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.serve.call import ServedCall
from ordsmed.serve.models import ServedModel, ServedModels
from ordsmed.serve.refusal import Refusal
from ordsmed.use.index.open_index import TOP, OpenIndex, Questions, SearchHit, check_questions, check_weight, reordered
from ordsmed.use.index.rerank import check_reranker, pair_score, reranker_key
from ordsmed.use.text_encoder import TextEncoder, check_readable
from ordsmed.use.token_encoder import TokenEncoder


class FoundPassage(Struct, omit_defaults=True):
    """A passage in the answer of a search."""

    rank: int
    score: float
    id: str
    text: str
    start: int  # in characters of the document
    end: int
    document: int
    title: str = ""
    url: str = ""
    dense: float | None = None
    words: float | None = None
    meta: dict[str, Any] = {}


@dataclass(eq=False)
class ServedIndex:
    """An index and the served model that embeds questions for it, or None for an index of words only."""

    name: str
    index: OpenIndex
    served: ServedModel | None
    model: OpenModel | None  # the opened model that was checked against the index
    encoder: TextEncoder | TokenEncoder | None
    reranker: str = ""  # the name of the served model that the index chose as its reranker

    @staticmethod
    def opened(word: str, models: ServedModels) -> ServedIndex:
        """Open an index given on the command line as a folder or `NAME=FOLDER`."""
        name, equals, folder = word.partition("=")
        name, folder = (name, folder) if equals else (word.rstrip("/").rpartition("/")[2], word)
        index = OpenIndex.of(folder)
        if not index.recipe.model:
            return ServedIndex(name, index, None, None, None, _reranker(index, models))
        for served in models.by_name.values():
            try:
                encoder = index.fitting(served.model.trained)
            except OrdsmedError:
                continue
            return ServedIndex(name, index, served, served.model, encoder, _reranker(index, models))
        wanted = f"the model that made it, {index.recipe.model}, among the served models"
        raise RecipeError(word, "is the index of another model", wanted, "serve that model as well")

    def renew(self, models: ServedModels) -> None:
        """Open the index again if its folder changed. Requests in progress keep the old one."""
        if Run(self.index.folder).status != self.index.facts:
            self.index = OpenIndex.of(self.index.folder)
            self.reranker, self.model = _reranker(self.index, models), None

    def current_encoder(self) -> TextEncoder | TokenEncoder | None:
        """Return the encoder of questions. After a reload of the model, check again that it fits the index."""
        if self.served is not None and self.served.model is not self.model:
            try:
                self.encoder = self.index.fitting(self.served.model.trained)
            except OrdsmedError as error:
                raise Refusal.of(error, self.served.hidden, "cannot") from None
            self.model = self.served.model
        return self.encoder


def _reranker(index: OpenIndex, models: ServedModels) -> str:
    """Return the name of the served model that is the index's reranker; empty if it has none or it is not served."""
    if not (facts := index.facts.get("reranker")):
        return ""
    for served in models.by_name.values():
        if "classify" in served.can and reranker_key(served.model.trained) == facts["key"]:
            return served.name
    say(f"{index.folder}: searched without its reranker, {facts['model']}, because that model is not served")
    return ""


def open_indexes(words: Iterable[str], models: ServedModels) -> dict[str, ServedIndex]:
    by_name: dict[str, ServedIndex] = {}
    for word in words:
        index = ServedIndex.opened(word, models)
        if index.name in by_name:
            raise RecipeError(word, f"found `{index.name}` twice", "different names", "give NAME=FOLDER")
        by_name[index.name] = index
    return by_name


def indexes_of(call: ServedCall, served: ServedModel) -> list[str]:
    """Return the names of the indexes of the model's vectors, and of the indexes of words only."""
    indexes: dict[str, ServedIndex] = call.service.indexes
    return [name for name, index in indexes.items() if index.served in (None, served)]


def index_of(call: ServedCall, name: str) -> ServedIndex:
    """Return the index `name`; without a name, the first one of the model in the path, or the first of all."""
    indexes: dict[str, ServedIndex] = call.service.indexes
    if call.name:
        indexes = {key: indexes[key] for key in indexes_of(call, call.model(""))}
    if not indexes:
        raise Refusal("cannot", "no index is served", "", "start the server with --index NAME=FOLDER")
    if name and name not in indexes:
        raise Refusal("unknown", f"no index `{name}`", "", nearest(name, indexes), "index")
    return indexes[name] if name else next(iter(indexes.values()))


@dataclass(frozen=True)
class SearchOptions:
    k: int
    kind: str = ""  # empty: the index's default
    weight: float | None = None  # of vectors in a search by vectors and words; None: the index's
    rerank: str | None = None  # name of a model; None: the index's reranker, empty: none
    top: int = 0  # passages to rerank; 0: as the index says, else TOP
    where: Sequence[str] = ()  # conditions on fields of the documents


async def search(
    call: ServedCall, index: ServedIndex, questions: Sequence[str], options: SearchOptions
) -> list[list[FoundPassage]]:
    """Return the best passages for each question.

    The batcher computes the vectors of the questions, a thread searches, and the batcher scores pairs for a reranker.
    """
    try:
        await asyncio.to_thread(index.renew, call.service.models)
        searched = index.index
        check_questions(questions, options.k)
        if options.weight is not None:
            check_weight(options.weight, options.kind or searched.recipe.kind)
            searched = searched.weighted(options.weight)
        kind = searched.kind_of(options.kind)
        call.check_size([(question,) for question in questions])
        vectors = await _vectors(call, index, questions) if kind != "words" else None
        by_index = options.rerank is None and not options.kind and index.reranker
        facts: dict[str, Any] = searched.facts["reranker"] if by_index else {"top": TOP, "weight": 1.0}
        name, top = (index.reranker if by_index else options.rerank or ""), options.top or facts["top"]
        count = max(options.k, top) if name else options.k
        found = await asyncio.to_thread(searched.found, questions, vectors, count, kind=kind, where=options.where)
    except OrdsmedError as error:
        raise Refusal.of(error, {str(index.index.folder): index.name}, "invalid") from None
    if name:
        found = await _reranked(call, searched, questions, found, name, top, facts["weight"])
    return [[_passage(hit) for hit in hits[: options.k]] for hits in found]


async def _vectors(call: ServedCall, index: ServedIndex, questions: Sequence[str]) -> Questions:
    encoder = index.current_encoder()
    assert encoder is not None
    assert index.served is not None
    check_readable(encoder.trained, questions)
    texts = [(question,) for question in questions]
    if isinstance(encoder, TokenEncoder):
        embedded = await call.compute(index.served, "embed", texts, of="tokens", prompt="query")
        rows = [result.vectors for result in embedded]
        return TokenRows(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
    form = encoder.form("query")
    options = {"of": form.of, "layers": form.layers, "pool": form.pool, "prompt": form.prompt}
    embedded = await call.compute(index.served, "embed", texts, **options)
    return torch.from_numpy(encoder.finished(np.stack([result.vectors for result in embedded])))


async def _reranked(
    call: ServedCall,
    index: OpenIndex,
    questions: Sequence[str],
    found: list[list[SearchHit]],
    name: str,
    top: int,
    weight: float,
) -> list[list[SearchHit]]:
    served = call.service.models.find(name, "classify")
    try:
        check_reranker(served.model.trained)
    except OrdsmedError as error:
        raise Refusal.of(error, served.hidden, "cannot") from None
    pairs = [
        (question, text) for question, hits in zip(questions, found, strict=True) for text in index.texts_of(hits[:top])
    ]
    scores = iter([pair_score(result) for result in await call.compute(served, "classify", pairs)] if pairs else [])
    return [reordered(hits, [next(scores) for _ in hits[:top]], weight) for hits in found]


def _passage(hit: SearchHit) -> FoundPassage:
    part = hit.passage
    return FoundPassage(
        hit.rank,
        hit.score,
        part.id,
        part.text,
        part.start,
        part.end,
        part.document,
        part.title,
        part.url,
        hit.dense,
        hit.words,
        part.meta,
    )
