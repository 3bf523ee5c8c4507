"""Searching: an index of a corpus made, opened and asked; the verbs `index` and `search` call these functions too.

index = ordsmed.index("work/pretrain/tiny-bert", "work/corpus/stdlib", "work/index/stdlib")
index.search("how is a file closed?", k=3)[0].passage.text
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Unpack, overload

from ordsmed.api.model import OpenModel
from ordsmed.api.options import OpeningOptions, Texts, texts_of
from ordsmed.base import files, settings, stages
from ordsmed.use.index.build import Indexing, Kind
from ordsmed.use.index.encoder import index_encoder, longest_of
from ordsmed.use.index.opened import OpenIndex, Rescoring, SearchHit, check_weight
from ordsmed.use.index.rerank import check_reranker, pair_scores
from ordsmed.weights.trained import opened

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
    anew: bool = False,
    **opening: Unpack[OpeningOptions],
) -> OpenIndex:
    """An index of a corpus: its documents cut in passages, a vector for each by the model, and the words of each.

    `model`: None makes one of words alone; `corpus`: a corpus's folder or recipe, or files of text or JSON lines;
    `kind`: dense (vectors), words (BM25) or both; `length` of a passage and `overlap` in tokens; `title`: is a
    document's title read before each of its passages?; `pool` and `batch` as those of `embed`; `weight`: of vectors in
    a search by both, from 0 to 1, which the index keeps, one that stands as well; None: what it has, else ranks of both
    alike; `nearest`: exact, or some vectors alone are looked at (faiss); `anew`: what stands in `out` is set aside;
    further keywords say how the model is opened. The same call goes on where it was stopped.

        ordsmed.index("work/pretrain/tiny-bert", "work/corpus/stdlib", "work/index/stdlib").search("closing files")
    """
    kind = kind or ("words" if model is None else "both")
    check_weight(weight, kind)
    if model is not None and not isinstance(model, OpenModel):
        model = stages.stage(model, *stages.VECTORS)
    trained = model.trained if isinstance(model, OpenModel) else opened(model, **opening) if model else None
    encoder = index_encoder(trained, pool, batch) if trained is not None and kind != "words" else None
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
    return finished if weight is None else finished.weighted(weight, keep=True)


@files.in_a_line()
def open_index(folder: Place, model: Place = "", **opening: Unpack[OpeningOptions]) -> OpenIndex:
    """An index that stands; `model`: where its model is now, if not where it was; further keywords open that.

    ordsmed.open_index("work/index/stdlib").search("closing files", k=3)
    """
    return OpenIndex.of(Path(folder), os.fspath(model), {**opening})


@overload
def search(
    index: Place | OpenIndex,
    questions: str,
    k: int = 10,
    *,
    kind: str = "",
    weight: float | None = None,
    rerank: Place | OpenModel | None = None,
    top: int = 50,
) -> list[SearchHit]: ...
@overload
def search(
    index: Place | OpenIndex,
    questions: Texts,
    k: int = 10,
    *,
    kind: str = "",
    weight: float | None = None,
    rerank: Place | OpenModel | None = None,
    top: int = 50,
) -> list[list[SearchHit]]: ...
@files.in_a_line()
def search(
    index: Place | OpenIndex,
    questions: str | Texts,
    k: int = 10,
    *,
    kind: str = "",
    weight: float | None = None,
    rerank: Place | OpenModel | None = None,
    top: int = 50,
) -> list[SearchHit] | list[list[SearchHit]]:
    """The passages of an index that answer a question best; of several questions each.

    `kind`: by dense (vectors), words (BM25) or both; `weight`: of the vectors in a search by both, from 0 to 1, in
    the place of the index's; `rerank`: a model that scores pairs of texts orders the first `top` anew.

        ordsmed.search("work/index/stdlib", "how is a file closed?", k=3)[0].passage.text
    """
    opened_index = index if isinstance(index, OpenIndex) else open_index(index)
    rescoring = reranker(rerank) if rerank is not None else None
    if weight is not None:
        check_weight(weight, kind or opened_index.recipe.kind)
        opened_index = opened_index.weighted(weight)
    hits = opened_index.search_all(texts_of("search", questions), k, kind=kind, rerank=rescoring, top=top)
    return hits[0] if isinstance(questions, str) else hits


def reranker(model: Place | OpenModel, **opening: Unpack[OpeningOptions]) -> Rescoring:
    """What scores pairs, by a model that can."""
    trained = model.trained if isinstance(model, OpenModel) else opened(stages.stage(model, stages.RERANKER), **opening)
    check_reranker(trained)

    def scores(questions: Sequence[str], texts: Sequence[str]) -> list[float]:
        return pair_scores(trained, questions, texts)

    return scores
