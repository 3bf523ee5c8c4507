"""Build, open, update and search an index; the verbs `index` and `search` call these functions as well.

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
from ordsmed.use.index.open_index import OpenIndex, SearchHit, check_weight
from ordsmed.use.index.rerank import check_reranker, pair_scores, reranker_key
from ordsmed.use.index.update import update
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.weights.trained_model import Trained, opened

Place = str | os.PathLike[str]


@files.errors_in_one_line()
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
    """Build an index of a corpus: passages, a vector of each by the model, and inverted word lists.

    Without a model (None), the index has words only. `corpus` is a folder or recipe of a corpus, or files of text or
    JSON lines. `kind` is dense (vectors), words (BM25) or both. `length` and `overlap` of passages are in tokens.
    `title` puts the document's title before each passage. `pool` and `batch` are those of `embed`. `weight`, from 0 to
    1, is that of vectors in a search by both; by default the index keeps the one it has, or pseudo-questions choose it.
    `nearest` is exact or faiss (approximate). `rerank` is a model that scores pairs of texts; it is used if it helps on
    pseudo-questions. `anew` moves `out` aside if it exists. Further keywords are options to open the model. The same
    call resumes an unfinished index.

        ordsmed.index("work/pretrain/tiny-bert", "work/corpus/stdlib", "work/index/stdlib").search("closing files")
    """
    kind = kind or ("words" if model is None else "both")
    check_weight(weight, kind)
    if model is not None and not isinstance(model, OpenModel):
        model = stages.stage(model, *stages.VECTORS)
    trained = model.trained if isinstance(model, OpenModel) else opened(model, **opening) if model else None
    encoder = index_encoder(trained, pool, batch) if trained is not None and kind != "words" else None
    if isinstance(encoder, TextEncoder) and pool in ("", "mean"):
        encoder = _with_index_pooling(encoder, Path(os.fspath(out)))
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


def _with_index_pooling(encoder: TextEncoder, out: Path) -> TextEncoder:
    """Return the encoder, pooling words if the index in `out` was built when `mean` was the mean of words."""
    former = replace(encoder, pool="words")
    return former if out.is_dir() and Run(out).status.get("model_key") == former.key() else encoder


def choose(
    index: Place | OpenIndex,
    rerank: Place | OpenModel | None = None,
    *,
    weight: float | None = None,
    **opening: Unpack[OpeningOptions],
) -> OpenIndex:
    """Choose the weight of vectors and of a reranker with pseudo-questions, and save them in the index.

    If `weight` is given, it is the weight of the vectors and is not chosen.
    """
    opened_index = index if isinstance(index, OpenIndex) else open_index(index, **opening)
    if opened_index.recipe.kind != "both" and rerank is None:
        problem = f"found an index of kind {opened_index.recipe.kind}"
        raise RecipeError("--choose", problem, "an index of kind both, or --rerank RUN")
    if rerank is None:
        return opened_index.chosen(weight=weight)
    trained = _opened(rerank, **opening)
    check_reranker(trained)
    described = _described(opened_index, rerank, trained)
    return opened_index.chosen(partial(pair_scores, trained), described, weight=weight)


def with_reranker(index: OpenIndex, rerank: Place, choice: SearchChoice) -> OpenIndex:
    """Save a reranker that was evaluated elsewhere in the index, and return the index."""
    return index.reranked(_described(index, rerank, _opened(rerank)), choice)


def _described(index: OpenIndex, rerank: Place | OpenModel, trained: Trained) -> dict[str, str]:
    location = str(rerank.folder) if isinstance(rerank, OpenModel) else os.fspath(rerank)
    if (home := Run(index.folder).home) and os.path.exists(location):
        location = os.path.relpath(location, home)  # relative like the paths of its recipe, so that both can be moved
    return {"model": location, "key": reranker_key(trained)}


@files.errors_in_one_line()
def open_index(folder: Place, model: Place = "", **opening: Unpack[OpeningOptions]) -> OpenIndex:
    """Open an index. `model` is the present path of its model, if that has moved; further keywords open it.

    ordsmed.open_index("work/index/stdlib").search("closing files", k=3)
    """
    return OpenIndex.of(Path(folder), os.fspath(model), {**opening})


@files.errors_in_one_line()
def update_index(
    folder: Place,
    add: Place | Sequence[Place] = (),
    delete: Sequence[str] = (),
    *,
    model: Place = "",
    **opening: Unpack[OpeningOptions],
) -> OpenIndex:
    """Add documents to an index, replacing those with the same ids, and delete documents by their ids.

    `add` are files of text or JSON lines, or a corpus. The result equals an index built from the documents that stay,
    followed by the new ones. The old index is used until the new one is complete.

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
@files.errors_in_one_line()
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
    """Return the passages of an index that answer a question best; for several questions, a list for each.

    `kind` is dense (vectors), words (BM25) or both. `weight`, from 0 to 1, replaces the index's weight of vectors in a
    search by both. `rerank` is a model that scores pairs of texts and orders the first `top` passages (50). None uses
    the index's own reranker, if one helped; False uses none. `where` has conditions on fields of documents, such as
    `year>=1990`.

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
    """Return a function that scores pairs of texts with a model, or raise an error if the model cannot."""
    trained = _opened(model, **opening)
    check_reranker(trained)
    return partial(pair_scores, trained)


def _opened(model: Place | OpenModel, **opening: Unpack[OpeningOptions]) -> Trained:
    return model.trained if isinstance(model, OpenModel) else opened(stages.stage(model, stages.RERANKER), **opening)
