"""OpenIndex: a finished index that is asked: the passages nearest to a question, by vectors, by words or by both.

    index = OpenIndex.of("work/index/nn")
    index.search("where do newts live?", k=3)  ->  [SearchHit(rank=1, score=0.0328, passage=...), ...]

By both: two rankings of as many passages as DEPTH says are fused by their scores, of which those of vectors have the
weight that was chosen when the index was made (choice.py); at weight 0 words alone are searched. In an index without a
weight reciprocal ranks are summed (text/bm25.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base import files, run, stages
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.base.screen import command
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.task import LateInteraction
from ordsmed.text.bm25 import Bm25, blended, fused
from ordsmed.use.index import checksums
from ordsmed.use.index.approximate import NearVectors
from ordsmed.use.index.build import Indexing
from ordsmed.use.index.choice import (
    AMONG,
    AMONG_TOKENS,
    FEWEST,
    PseudoQuestions,
    Rescoring,
    SearchChoice,
    SearchTrial,
    mixed_scores,
)
from ordsmed.use.index.encoder import index_encoder
from ordsmed.use.index.nearest import nearest
from ordsmed.use.index.nearest_tokens import nearest_tokens
from ordsmed.use.index.passages import read_as
from ordsmed.use.index.rerank import Reranker
from ordsmed.use.index.stored import REMEDY, IndexedPassage, StoredPassages
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder
from ordsmed.weights.trained import Trained, opened

DEPTH = 100  # of each ranking that is fused, at least
MEMORY = 256 << 20  # bytes that a search among vectors of tokens holds
Ranking = tuple[NDArray[Any], NDArray[Any]]  # numbers of passages, best first, and scores
Questions = torch.Tensor | TokenRows  # vectors of questions, or of their tokens
TOP = 50  # passages that a reranker orders, where none is said


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
        try:
            index.check()
        except DataError:
            if Run(folder).status.get("data") == facts.get("data"):
                raise
            return OpenIndex.of(name, model, opening)  # documents were added or deleted meanwhile
        return index

    def check(self, *, whole: bool = False) -> None:
        """Refuse files that are damaged, cut off, or of another index; `whole`: read all of them."""
        checksums.check(self.folder, self.facts.get("checksums", {}), whole=whole)
        self.passages.check()
        counts = {"passages": len(self.passages)}
        if self.recipe.model:
            counts["vectors"] = len(self.vectors) if self.tokens is None else self._whole_tokens(self.tokens)
        if self.bm25:
            counts["words"] = self.bm25.count
        wanted = self.facts.get("passages")
        if odd := next((name for name, count in counts.items() if count != wanted), ""):
            raise DataError(self.data / odd, f"{counts[odd]:,} passages", f"{wanted:,}", REMEDY)

    def __len__(self) -> int:
        return len(self.passages)

    def __repr__(self) -> str:
        how = {"both": "vectors and words", "dense": "vectors"}.get(self.recipe.kind, "words")
        return f"<index {self.folder}: {self.size}, by {how}>"

    @property
    def size(self) -> str:
        """For a person."""
        return f"{many(len(self), 'passage')} of {many(self.facts['documents'], 'document')}"

    @property
    def data(self) -> Path:
        """The folder of its files: its own, or once documents were added or deleted one within."""
        return self.folder / self.facts.get("data", "")

    @cached_property
    def passages(self) -> StoredPassages:
        return StoredPassages(self.data)

    @cached_property
    def vectors(self) -> NDArray[np.float16]:
        return files.mapped(self.data / "vectors.npy", "the vectors of an index", REMEDY, mode="c")

    @cached_property
    def tokens(self) -> TokenRows | None:
        """The vectors of passages' tokens, where the model gives each one."""
        if not (self.data / "tokens.npy").exists():
            return None
        ends = files.mapped(self.data / "tokens.npy", "where the tokens of passages end", REMEDY)
        return TokenRows(self.vectors, np.concatenate([[0], ends]))

    def _whole_tokens(self, tokens: TokenRows) -> int:
        """How many passages have all their vectors."""
        return int((tokens.starts[1:] <= len(tokens.vectors)).sum())

    @cached_property
    def near(self) -> NearVectors | None:
        """How vectors are found without a look at each; None: each is looked at."""
        facts = self.facts.get("faiss")
        return NearVectors.of(self.data, self.vectors, facts["effort"]) if facts else None

    @cached_property
    def bm25(self) -> Bm25 | None:
        return Bm25.load(self.data / "words") if self.recipe.kind != "dense" else None

    @cached_property
    def encoder(self) -> TextEncoder | TokenEncoder:
        """The model that made the vectors; another one is refused."""
        if self.model:
            return self.fitting(opened(self.model, **self.opening))
        with run.at_home(self.folder):
            return self.fitting(opened(self.recipe.model, **self.opening))

    def fitting(self, trained: Trained) -> TextEncoder | TokenEncoder:
        """A model, if its vectors are those of this index; older indexes have the mean over words as their `mean`."""
        pools = [self.recipe.pool, *(["words"] if self.recipe.pool in ("", "mean") else [])]
        for pool in pools if not isinstance(trained.objective, LateInteraction) else pools[:1]:
            encoder = index_encoder(trained, pool)
            if encoder.key() == self.facts.get("model_key"):
                return encoder
        problem = f"is the index of another model than {trained.folder}"
        remedy = "name that with --model, or make the index again"
        raise RecipeError(self.folder, problem, f"the model that made it ({self.recipe.model})", remedy)

    @property
    def weight(self) -> float | None:
        """Of the vectors in a search by both; None: it was never chosen, and reciprocal ranks weigh both alike."""
        return self.facts.get("weight")

    def weighted(self, weight: float, *, keep: bool = False) -> OpenIndex:
        """The same with another weight of the vectors, which its folder keeps where that is asked for."""
        check_weight(weight, self.recipe.kind)
        return self._with(keep=keep, weight=weight, choice=None)

    def chosen(
        self, rescore: Rescoring | None = None, reranker: dict[str, str] | None = None, *, weight: float | None = None
    ) -> OpenIndex:
        """The same with the weight of the vectors that pseudo-questions choose, which its folder keeps.

        `rescore`: a reranker, which is kept, as `reranker` describes it, if it helps; `weight`: one that is kept.
        """
        choice = self._choice(rescore, weight)
        for line in choice.lines():
            say(line)
        chosen = self
        if self.recipe.kind == "both" and weight is None:
            chosen = self._with(keep=True, weight=choice.weight, choice=choice.facts)
        return chosen.reranked(reranker, choice) if reranker else chosen

    def _choice(self, rescore: Rescoring | None, weight: float | None) -> SearchChoice:
        """What pseudo-questions about the passages choose."""
        among = AMONG if self.tokens is None else AMONG_TOKENS
        pseudo = PseudoQuestions.of(self.passages, self.recipe.title, among)
        if len(pseudo.questions) < 2 * FEWEST:
            return SearchTrial([], [], []).choose(weight)
        dense = pseudo.by_vectors(self.encoder, self.vectors, self.tokens) if self.recipe.model else []
        trial = SearchTrial(dense, pseudo.by_words() if self.bm25 else [], range(len(pseudo.questions)))
        chosen = trial.choose(weight)
        return trial.rerank(chosen, pseudo.questions, pseudo.texts.__getitem__, rescore) if rescore else chosen

    def reranked(self, reranker: dict[str, str], choice: SearchChoice) -> OpenIndex:
        """The same with a reranker, or without one where the choice leaves it out; its folder keeps that."""
        measured: dict[str, object] = {
            name: round(choice.scores[name], 1) for name in ("before reranking", "reranked") if name in choice.scores
        }
        used = {**reranker, **measured, "top": choice.top, "weight": choice.rerank_weight}
        return self._with(keep=True, reranker=used if choice.top else None)

    def notes(self, kind: str, rerank: str) -> list[str]:
        """What someone should know who searches this way: what was never measured, or did not help."""
        notes = []
        if self.weight is None and kind in ("", "both") and self.recipe.kind == "both":
            again = command("index", self.folder, "--choose")
            notes.append(f"{self.folder}: how much vectors help was never measured; `{again}` chooses their weight")
        if rerank and "reranker" not in self.facts:
            again = command("index", self.folder, "--rerank", rerank)
            notes.append(f"{rerank}: not known to help in this index; `{again}` measures that")
        return notes

    def _with(self, *, keep: bool = False, **facts: object) -> OpenIndex:
        """The same with other facts; None takes a fact out."""
        if keep:
            Run(self.folder).set(**facts)
        return replace(self, facts={key: fact for key, fact in {**self.facts, **facts}.items() if fact is not None})

    @property
    def by_hand(self) -> float | None:
        """The weight of the vectors, if it was given and not chosen."""
        return None if "choice" in self.facts else self.weight

    @cached_property
    def reranker(self) -> Reranker | None:
        """The reranker that the index is searched with, since it helped on pseudo-questions."""
        return Reranker.opened(self.folder, self.facts["reranker"], self.opening) if "reranker" in self.facts else None

    def search(
        self,
        question: str,
        k: int = 10,
        *,
        kind: str = "",
        rerank: Rescoring | Literal[False] | None = None,
        top: int = 0,
        where: Sequence[str] = (),
    ) -> list[SearchHit]:
        """The k passages that answer it best."""
        return self.search_all([question], k, kind=kind, rerank=rerank, top=top, where=where)[0]

    def search_all(
        self,
        questions: Sequence[str],
        k: int = 10,
        *,
        kind: str = "",
        rerank: Rescoring | Literal[False] | None = None,
        top: int = 0,
        where: Sequence[str] = (),
    ) -> list[list[SearchHit]]:
        """Of several questions each.

        `kind`: both, dense (vectors) or words; `rerank`: what scores pairs of texts in the place of the index's own
        reranker, False: nothing; `top`: how many passages it orders; `where`: conditions of documents' fields.
        """
        reranker = self.reranker if rerank is None and not kind else Reranker(rerank, TOP) if rerank else None
        kind = self.kind_of(kind)
        check_questions(questions, k)
        vectors = self.encoder.questions(questions) if kind != "words" else None
        how = replace(reranker, top=top) if reranker and top else reranker
        return self.found(questions, vectors, k, kind=kind, rerank=how, where=where)

    def kind_of(self, kind: str) -> str:
        """By what it is searched, unless that is said: all that it has; words alone where vectors count nothing.

        Where too little was there to measure that, vectors follow behind words.
        """
        can = ("both", "dense", "words") if self.recipe.kind == "both" else (self.recipe.kind,)
        if kind and kind not in can:
            raise RecipeError(
                "--kind", f"found {kind}", f"{' or '.join(can)}, which {self.folder} has", meant(kind, can)
            )
        measured = self.facts.get("choice", {}).get("questions", 1) > 0
        words_alone = self.recipe.kind == "both" and self.weight == 0 and measured
        return kind or ("words" if words_alone else self.recipe.kind)

    def found(
        self,
        questions: Sequence[str],
        vectors: Questions | None,
        k: int,
        *,
        kind: str,
        rerank: Reranker | None = None,
        where: Sequence[str] = (),
    ) -> list[list[SearchHit]]:
        """The same, once the questions' vectors are known."""
        most = min(max(k, rerank.top if rerank else 0), len(self))
        depth = min(max(most, DEPTH), len(self)) if kind == "both" else most
        rankings = self.rankings(questions, vectors, depth, words=kind != "dense", where=where)
        hits = [self._hits(pair, most) for pair in rankings]
        if rerank:
            hits = [self._reranked(q, of_one, rerank) for q, of_one in zip(questions, hits, strict=True)]
        return [of_one[:k] for of_one in hits]

    def rankings(
        self, questions: Sequence[str], vectors: Questions | None, depth: int, *, words: bool, where: Sequence[str] = ()
    ) -> list[tuple[Ranking | None, Ranking | None]]:
        """Of each question the passages by vectors and by words, of those whose documents fit all conditions."""
        allowed = self.passages.allowed(tuple(where)) if where else None
        if allowed is not None and not allowed.any():
            none = (np.zeros(0, np.int64), np.zeros(0, np.float32))
            return [(None if vectors is None else none, none if self.bm25 and words else None) for _ in questions]
        dense = [None] * len(questions) if vectors is None else self._by_vectors(vectors, depth, allowed)
        worded = [self.bm25.search(q, depth, allowed) if self.bm25 and words else None for q in questions]
        return [*zip(dense, worded, strict=True)]

    def _by_vectors(self, vectors: Questions, depth: int, allowed: NDArray[np.bool_] | None) -> list[Ranking | None]:
        if isinstance(vectors, TokenRows):
            assert self.tokens is not None
            return [*nearest_tokens(self.tokens, vectors, depth, MEMORY, allowed)]
        if self.near and allowed is None:
            scores, numbers = self.near.search(vectors, depth)
        else:  # with conditions every vector is looked at, so that none is missed
            scores, numbers = nearest(self.vectors, vectors, depth, allowed=allowed)
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

    def _reranked(self, question: str, every: list[SearchHit], rerank: Reranker) -> list[SearchHit]:
        """The first in a new order; those behind keep their places and scores."""
        texts = self.texts_of(every[: rerank.top])
        scores = rerank.scores([question] * len(texts), texts) if texts else []
        return reordered(every, scores, rerank.weight)

    def texts_of(self, hits: Sequence[SearchHit]) -> list[str]:
        """Passages as they are read: below their titles."""
        return [read_as(hit.passage.title if self.recipe.title else "", hit.passage.text) for hit in hits]


def reordered(every: Sequence[SearchHit], scores: Sequence[float], weight: float = 1.0) -> list[SearchHit]:
    """As many as have scores by these, mixed with their own scores below weight 1; those behind keep their places."""
    if weight < 1:
        scores = mixed_scores(np.array([hit.score for hit in every[: len(scores)]]), np.array(scores), weight).tolist()
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
