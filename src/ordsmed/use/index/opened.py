"""OpenIndex: a finished index that is asked: the passages nearest to a question, by vectors, by words or by both.

    index = OpenIndex.of("work/index/nn")
    index.search("where do newts live?", k=3)  ->  [SearchHit(rank=1, score=0.0328, passage=...), ...]

By both: two rankings of as many passages as DEPTH says are fused, by their scores where the weight of the vectors is
known, else by their reciprocal ranks (text/bm25.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base import files, run, stages
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.text.bm25 import Bm25, blended, fused
from ordsmed.use.index.approximate import NearVectors
from ordsmed.use.index.build import Indexing
from ordsmed.use.index.encoder import index_encoder
from ordsmed.use.index.nearest import nearest
from ordsmed.use.index.nearest_tokens import nearest_tokens
from ordsmed.use.index.passages import read_as
from ordsmed.use.index.stored import REMEDY, IndexedPassage, StoredPassages
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder
from ordsmed.weights.trained import Trained, opened

DEPTH = 100  # of each ranking that is fused, at least
MEMORY = 256 << 20  # bytes that a search among vectors of tokens holds
Ranking = tuple[NDArray[Any], NDArray[Any]]  # numbers of passages, best first, and scores
Questions = torch.Tensor | TokenRows  # vectors of questions, or of their tokens
Rescoring = Callable[[list[str], list[str]], list[float]]  # questions and texts, pair by pair


@dataclass(frozen=True)
class SearchHit:
    """A passage that was found."""

    rank: int
    score: float  # what it is ranked by: a cosine, BM25's, what both give, or a reranker's
    number: int
    passage: IndexedPassage
    dense: float | None = None  # its cosine, or the sum over a question's tokens, where vectors found it
    words: float | None = None  # its BM25, where words did


@dataclass(frozen=True)
class OpenIndex:
    """A folder of `ordsmed index`."""

    folder: Path
    recipe: Indexing
    facts: dict[str, Any]
    model: str = ""  # where the model stands now; empty: where it stood
    opening: dict[str, Any] = field(default_factory=dict)  # how it is opened

    @staticmethod
    def of(name: str | Path, model: str | Path = "", opening: dict[str, Any] | None = None) -> OpenIndex:
        """A finished one; its model is opened by the first question that needs it."""
        folder = Path(stages.stage(name, stages.INDEX))
        model, kind = model and stages.stage(model, *stages.VECTORS), kind_of_folder(folder)
        if kind is not FolderKind.INDEX:
            remedy = f"make one: `{command('index', 'MODEL', 'CORPUS', 'OUT')}`"
            problem = kind.value if kind is FolderKind.ABSENT else f"is no index, but {kind.value}"
            raise RecipeError(folder, problem, "a folder of `ordsmed index`", remedy)
        facts = Run(folder).status
        if facts.get("state") != "done":
            raise DataError(folder, "is not finished", "a whole index", "the command that made it goes on")
        index = OpenIndex(folder, run.read_recipe(Indexing, folder), facts, str(model), opening or {})
        index.check()
        return index

    def check(self) -> None:
        """Refuse files that are cut off, or of another index."""
        counts = {"passages": len(self.passages)}
        if self.recipe.model:
            counts["vectors"] = len(self.vectors) if self.tokens is None else self._whole_tokens(self.tokens)
        if self.bm25:
            counts["words"] = self.bm25.count
        wanted = self.facts.get("passages")
        if odd := next((name for name, count in counts.items() if count != wanted), ""):
            raise DataError(self.folder / odd, f"{counts[odd]:,} passages", f"{wanted:,}", REMEDY)

    def __len__(self) -> int:
        return len(self.passages)

    def __repr__(self) -> str:
        how = {"both": "vectors and words", "dense": "vectors"}.get(self.recipe.kind, "words")
        return f"<index {self.folder}: {self.size}, by {how}>"

    @property
    def size(self) -> str:
        """For a person."""
        return f"{many(len(self), 'passage')} of {many(self.facts['documents'], 'document')}"

    @cached_property
    def passages(self) -> StoredPassages:
        return StoredPassages(self.folder)

    @cached_property
    def vectors(self) -> NDArray[np.float16]:
        return files.mapped(self.folder / "vectors.npy", "the vectors of an index", REMEDY, mode="c")

    @cached_property
    def tokens(self) -> TokenRows | None:
        """The vectors of passages' tokens, where the model gives each one."""
        if not (self.folder / "tokens.npy").exists():
            return None
        ends = files.mapped(self.folder / "tokens.npy", "where the tokens of passages end", REMEDY)
        return TokenRows(self.vectors, np.concatenate([[0], ends]))

    def _whole_tokens(self, tokens: TokenRows) -> int:
        """How many passages have all their vectors."""
        return int((tokens.starts[1:] <= len(tokens.vectors)).sum())

    @cached_property
    def near(self) -> NearVectors | None:
        """How vectors are found without a look at each; None: each is looked at."""
        facts = self.facts.get("faiss")
        return NearVectors.of(self.folder, self.vectors, facts["effort"]) if facts else None

    @cached_property
    def bm25(self) -> Bm25 | None:
        return Bm25.load(self.folder / "words") if self.recipe.kind != "dense" else None

    @cached_property
    def encoder(self) -> TextEncoder | TokenEncoder:
        """The model that made the vectors; another one is refused."""
        if self.model:
            return self.fitting(opened(self.model, **self.opening))
        with run.at_home(self.folder):
            return self.fitting(opened(self.recipe.model, **self.opening))

    def fitting(self, trained: Trained) -> TextEncoder | TokenEncoder:
        """A model, if its vectors are those of this index."""
        encoder = index_encoder(trained, self.recipe.pool)
        if encoder.key() != self.facts.get("model_key"):
            problem = f"is the index of another model than {trained.folder}"
            remedy = "name that with --model, or make the index again"
            raise RecipeError(self.folder, problem, f"the model that made it ({self.recipe.model})", remedy)
        return encoder

    @property
    def weight(self) -> float | None:
        """Of the vectors in a search by both; None: reciprocal ranks weigh both alike."""
        return self.facts.get("weight")

    def weighted(self, weight: float, *, keep: bool = False) -> OpenIndex:
        """The same with another weight of the vectors, which its folder keeps where that is asked for."""
        check_weight(weight, self.recipe.kind)
        if keep:
            Run(self.folder).set(weight=weight)
        return replace(self, facts={**self.facts, "weight": weight})

    def search(
        self, question: str, k: int = 10, *, kind: str = "", rerank: Rescoring | None = None, top: int = 50
    ) -> list[SearchHit]:
        """The k passages that answer it best."""
        return self.search_all([question], k, kind=kind, rerank=rerank, top=top)[0]

    def search_all(
        self, questions: Sequence[str], k: int = 10, *, kind: str = "", rerank: Rescoring | None = None, top: int = 50
    ) -> list[list[SearchHit]]:
        """Of several questions each."""
        kind = self.kind_of(kind)
        check_questions(questions, k)
        vectors = self.encoder.questions(questions) if kind != "words" else None
        return self.found(questions, vectors, k, kind=kind, rerank=rerank, top=top)

    def kind_of(self, kind: str) -> str:
        """By what it is searched: all that it has, unless one of both is meant."""
        can = ("both", "dense", "words") if self.recipe.kind == "both" else (self.recipe.kind,)
        if kind and kind not in can:
            raise RecipeError(
                "--kind", f"found {kind}", f"{' or '.join(can)}, which {self.folder} has", meant(kind, can)
            )
        return kind or self.recipe.kind

    def found(
        self,
        questions: Sequence[str],
        vectors: Questions | None,
        k: int,
        *,
        kind: str,
        rerank: Rescoring | None = None,
        top: int = 50,
    ) -> list[list[SearchHit]]:
        """The same, once the questions' vectors are known."""
        most = min(max(k, top if rerank else 0), len(self))
        depth = min(max(most, DEPTH), len(self)) if kind == "both" else most
        dense = [None] * len(questions) if vectors is None else self._by_vectors(vectors, depth)
        worded = [self.bm25.search(q, depth) if self.bm25 and kind != "dense" else None for q in questions]
        hits = [self._hits(pair, most) for pair in zip(dense, worded, strict=True)]
        if rerank:
            hits = [self._reranked(q, of_one, top, rerank) for q, of_one in zip(questions, hits, strict=True)]
        return [of_one[:k] for of_one in hits]

    def _by_vectors(self, vectors: Questions, depth: int) -> list[Ranking | None]:
        if isinstance(vectors, TokenRows):
            assert self.tokens is not None
            return [*nearest_tokens(self.tokens, vectors, depth, MEMORY)]
        find = self.near.search if self.near else partial(nearest, self.vectors)
        scores, numbers = find(vectors, depth)
        return [(rows[rows >= 0], of[rows >= 0]) for rows, of in zip(numbers.numpy(), scores.numpy(), strict=True)]

    def _hits(self, rankings: tuple[Ranking | None, Ranking | None], most: int) -> list[SearchHit]:
        """One ranking as it is, or two fused."""
        both = [ranking for ranking in rankings if ranking is not None]
        numbers, scores = both[0] if len(both) == 1 else self._together(*both)
        of = [dict(zip(*map(np.ndarray.tolist, ranking), strict=True)) if ranking else {} for ranking in rankings]
        return [
            SearchHit(rank, float(score), int(n), self.passages[int(n)], of[0].get(int(n)), of[1].get(int(n)))
            for rank, (n, score) in enumerate(zip(numbers[:most], scores[:most], strict=True), 1)
        ]

    def _together(self, dense: Ranking, words: Ranking) -> Ranking:
        return fused([dense[0], words[0]]) if self.weight is None else blended(dense, words, self.weight)

    def _reranked(self, question: str, every: list[SearchHit], top: int, rerank: Rescoring) -> list[SearchHit]:
        """The first in a new order; those behind keep their places and scores."""
        texts = self.texts_of(every[:top])
        return reordered(every, rerank([question] * len(texts), texts) if texts else [])

    def texts_of(self, hits: Sequence[SearchHit]) -> list[str]:
        """Passages as they are read: below their titles."""
        return [read_as(hit.passage.title if self.recipe.title else "", hit.passage.text) for hit in hits]


def reordered(every: Sequence[SearchHit], scores: Sequence[float]) -> list[SearchHit]:
    """As many as have scores by these; those behind keep their places."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    first = [replace(every[at], rank=rank, score=scores[at]) for rank, at in enumerate(order, 1)]
    return [*first, *every[len(scores) :]]


def check_questions(questions: Sequence[str], k: int) -> None:
    """Refuse what asks nothing."""
    if not questions:
        raise RecipeError("question", "found none", "a question or more")
    for number, question in enumerate(questions, 1):
        if not question.strip():
            place = f"question {number}" if len(questions) > 1 else "question"
            raise RecipeError(place, "is empty", "words to search for")
    if k < 1:
        raise RecipeError("k", f"found {k}", "1 or more")


def check_weight(weight: float | None, kind: str) -> None:
    """Refuse one that is no share, or of an index that is searched in one way."""
    if weight is not None and not 0 <= weight <= 1:
        raise RecipeError("--weight", f"found {weight:g}", "from 0 (words alone) to 1 (vectors alone)")
    if weight is not None and kind != "both":
        raise RecipeError("--weight", f"found {weight:g} with --kind {kind}", "an index, and a search, by both")
