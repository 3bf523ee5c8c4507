"""Searching: an index of a corpus made, opened and asked; the verbs `index` and `search` call these functions too.

index = ordsmed.index("work/pretrain/tiny-bert", "work/corpus/stdlib", "work/index/stdlib")
index.search("how is a file closed?", k=3)[0].passage.text
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Unpack, overload

from ordsmed.api.model import OpenModel
from ordsmed.api.options import OpeningOptions, Texts, texts_of
from ordsmed.base import files, settings, stages
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.use.index.build import Indexing, Kind
from ordsmed.use.index.choice import Rescoring, SearchChoice
from ordsmed.use.index.encoder import index_encoder, longest_of
from ordsmed.use.index.opened import OpenIndex, SearchHit, check_weight
from ordsmed.use.index.rerank import check_reranker, pair_scores, reranker_key
from ordsmed.use.index.update import update
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.weights.trained import Trained, opened

Place = str | os.PathLike[str]


@files.in_a_line()
def index(
    model: Place | OpenModel | None,
    corpus: Place,
    out: Place,
    *,
    kind: Kind | None = None,
    length: int | None = None,
    overlap: int = 0,
    title: bool = True,
    pool: str = "",
    batch: int = 64,
    weight: float | None = None,
    nearest: Literal["exact", "faiss"] = "exact",
    rerank: Place | OpenModel | None = None,
    anew: bool = False,
    **opening: Unpack[OpeningOptions],
) -> OpenIndex:
    """An index of a corpus: its documents cut in passages, a vector for each by the model, and the words of each.

    `model`: None makes one of words alone; `corpus`: a corpus's folder or recipe, or files of text or JSON lines;
    `kind`: dense (vectors), words (BM25) or both; `length` of a passage and `overlap` in tokens; `title`: is a
    document's title read before each of its passages?; `pool` and `batch` as those of `embed`; `weight`: of vectors in
    a search by both, from 0 to 1, which the index keeps; None: what it has, else pseudo-questions choose it; `nearest`:
    exact, or some vectors alone are looked at (faiss); `rerank`: a model that scores pairs of texts, which searches use
    if pseudo-questions are answered better with it; `anew`: what stands in `out` is set aside; further keywords say how
    the model is opened. The same call goes on where it was stopped.

        ordsmed.index("work/pretrain/tiny-bert", "work/corpus/stdlib", "work/index/stdlib").search("closing files")
    """
    kind = kind or ("words" if model is None else "both")
    check_weight(weight, kind)
    if model is not None and not isinstance(model, OpenModel):
        model = stages.stage(model, *stages.VECTORS)
    trained = model.trained if isinstance(model, OpenModel) else opened(model, **opening) if model else None
    encoder = index_encoder(trained, pool, batch) if trained is not None and kind != "words" else None
    if isinstance(encoder, TextEncoder) and pool in ("", "mean"):
        encoder = _as_it_stands(encoder, Path(os.fspath(out)))
    length = length or min(Indexing.length, longest_of(encoder) if encoder else Indexing.length)
    name = "" if model is None else str(model.folder) if isinstance(model, OpenModel) else os.fspath(model)
    table = {
        "corpus": os.fspath(corpus),
        "model": name,
        "kind": kind,
        "length": length,
        "overlap": overlap,
        "title": title,
        "pool": pool,
        "nearest": nearest,
        "batch": batch,
        "out": os.fspath(out),
    }
    request = settings.decode(Indexing, table, "index")
    folder = request.make(encoder, anew=anew)
    finished = open_index(folder, name, **opening)
    if weight is not None:
        finished = finished.weighted(weight, keep=True)
    if rerank is not None or (kind == "both" and finished.weight is None):
        finished = choose(finished, rerank, weight=finished.by_hand)
    return finished


def _as_it_stands(encoder: TextEncoder, out: Path) -> TextEncoder:
    """The mean over words, where an index of former times has that as its mean."""
    former = replace(encoder, pool="words")
    return former if out.is_dir() and Run(out).status.get("model_key") == former.key() else encoder


def choose(
    index: Place | OpenIndex,
    rerank: Place | OpenModel | None = None,
    *,
    weight: float | None = None,
    **opening: Unpack[OpeningOptions],
) -> OpenIndex:
    """Choose by pseudo-questions how much vectors, and a reranker, count in searches of an index, which keeps it.

    `weight`: of the vectors, which is not chosen then, but stays.
    """
    standing = index if isinstance(index, OpenIndex) else open_index(index, **opening)
    if standing.recipe.kind != "both" and rerank is None:
        raise RecipeError(
            "--choose", f"found an index of {standing.recipe.kind} alone", "an index by both, or --rerank RUN"
        )
    if rerank is None:
        return standing.chosen(weight=weight)
    trained = _opened(rerank, **opening)
    check_reranker(trained)
    described = _described(standing, rerank, trained)
    return standing.chosen(partial(pair_scores, trained), described, weight=weight)


def with_reranker(index: OpenIndex, rerank: Place, choice: SearchChoice) -> OpenIndex:
    """The index with a reranker that was measured elsewhere, which its folder keeps."""
    return index.reranked(_described(index, rerank, _opened(rerank)), choice)


def _described(index: OpenIndex, rerank: Place | OpenModel, trained: Trained) -> dict[str, str]:
    """Where a reranker is, and what it is."""
    place = str(rerank.folder) if isinstance(rerank, OpenModel) else os.fspath(rerank)
    if (home := Run(index.folder).home) and os.path.exists(place):
        place = os.path.relpath(place, home)  # as the paths of its recipe, so that both can be moved together
    return {"model": place, "key": reranker_key(trained)}


@files.in_a_line()
def open_index(folder: Place, model: Place = "", **opening: Unpack[OpeningOptions]) -> OpenIndex:
    """An index that stands; `model`: where its model is now, if not where it was; further keywords open that.

    ordsmed.open_index("work/index/stdlib").search("closing files", k=3)
    """
    return OpenIndex.of(Path(folder), os.fspath(model), {**opening})


@files.in_a_line()
def update_index(
    folder: Place,
    add: Place | Sequence[Place] = (),
    delete: Sequence[str] = (),
    *,
    model: Place = "",
    **opening: Unpack[OpeningOptions],
) -> OpenIndex:
    """Add documents to an index, in the place of those with the same ids, and delete documents by their ids.

    `add`: files of text or JSON lines, or a corpus. A search finds what it would in an index that was made of the
    documents that stay, then of those added. The index is the old one until the new one is whole.

        ordsmed.update_index("work/index/stdlib", "more.jsonl", ["d7"])
    """
    sources = [add] if isinstance(add, str | os.PathLike) else add
    return update(open_index(folder, model, **opening), [os.fspath(source) for source in sources], delete)


@overload
def search(
    index: Place | OpenIndex,
    questions: str,
    k: int = 10,
    *,
    kind: str = "",
    weight: float | None = None,
    rerank: Place | OpenModel | Literal[False] | None = None,
    top: int = 0,
    where: Sequence[str] = (),
) -> list[SearchHit]: ...
@overload
def search(
    index: Place | OpenIndex,
    questions: Texts,
    k: int = 10,
    *,
    kind: str = "",
    weight: float | None = None,
    rerank: Place | OpenModel | Literal[False] | None = None,
    top: int = 0,
    where: Sequence[str] = (),
) -> list[list[SearchHit]]: ...
@files.in_a_line()
def search(
    index: Place | OpenIndex,
    questions: str | Texts,
    k: int = 10,
    *,
    kind: str = "",
    weight: float | None = None,
    rerank: Place | OpenModel | Literal[False] | None = None,
    top: int = 0,
    where: Sequence[str] = (),
) -> list[SearchHit] | list[list[SearchHit]]:
    """The passages of an index that answer a question best; of several questions each.

    `kind`: by dense (vectors), words (BM25) or both; `weight`: of the vectors in a search by both, from 0 to 1, in
    the place of the index's; `rerank`: a model that scores pairs of texts orders the first `top` (50); None: the one
    that the index has, if it helped; False: none; `where`: conditions of the documents' fields, as `year>=1990`.

        ordsmed.search("work/index/stdlib", "how is a file closed?", k=3)[0].passage.text
    """
    opened_index = index if isinstance(index, OpenIndex) else open_index(index)
    rescoring = rerank if rerank is None or rerank is False else reranker(rerank)
    if weight is not None:
        check_weight(weight, kind or opened_index.recipe.kind)
        opened_index = opened_index.weighted(weight)
    conditions = [where] if isinstance(where, str) else where
    texts = texts_of("search", questions)
    hits = opened_index.search_all(texts, k, kind=kind, rerank=rescoring, top=top, where=conditions)
    return hits[0] if isinstance(questions, str) else hits


def reranker(model: Place | OpenModel, **opening: Unpack[OpeningOptions]) -> Rescoring:
    """What scores pairs, by a model that can."""
    trained = _opened(model, **opening)
    check_reranker(trained)
    return partial(pair_scores, trained)


def _opened(model: Place | OpenModel, **opening: Unpack[OpeningOptions]) -> Trained:
    return model.trained if isinstance(model, OpenModel) else opened(stages.stage(model, stages.RERANKER), **opening)
