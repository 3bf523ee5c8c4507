"""A finished index, opened for search by vectors, by words or by both.

    index = OpenIndex.of("work/index/nn")
    index.search("where do newts live?", k=3)  ->  [SearchHit(rank=1, score=0.0328, passage=...), ...]

A search by both fuses the scores of two rankings of at least DEPTH passages. The weight of the vectors was chosen when
the index was made (choice.py); with weight 0, only words are searched. An index without a weight sums reciprocal ranks
(text/bm25.py).
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
from ordsmed.use.index.store import REMEDY, IndexedPassage, StoredPassages
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder
from ordsmed.weights.trained_model import Trained, opened

DEPTH = 100  # fewest passages per ranking that is fused
MEMORY = 256 << 20  # bytes of memory for a search in token vectors
Ranking = tuple[NDArray[Any], NDArray[Any]]  # numbers of passages, best first, and scores
Questions = torch.Tensor | TokenRows  # vectors of questions, or of their tokens
TOP = 50  # default number of passages to rerank


@dataclass(frozen=True)
class SearchHit:
    rank: int
    score: float  # it is ranked by this: a cosine, BM25, a fusion of both, or a reranker's score
    number: int  # of the passage
    passage: IndexedPassage
    dense: float | None = None  # cosine or MaxSim, if the ranking by vectors has it
    words: float | None = None  # BM25, if the ranking by words has it


@dataclass(frozen=True)
class OpenIndex:
    """A folder of `ordsmed index`."""

    folder: Path
    recipe: Indexing
    facts: dict[str, Any]
    model: str = ""  # present path of the model; empty: the path in the recipe
    opening: dict[str, Any] = field(default_factory=dict)  # keyword arguments to open the model with

    @staticmethod
    def of(name: str | Path, model: str | Path = "", opening: dict[str, Any] | None = None) -> OpenIndex:
        """Open a finished index. Its model is opened by the first question that needs it."""
        folder = Path(stages.stage(name, stages.INDEX))
        model, kind = model and stages.stage(model, *stages.VECTORS), kind_of_folder(folder)
        if kind is not FolderKind.INDEX:
            remedy = f"make one: `{command('index', 'MODEL', 'CORPUS', 'OUT')}`"
            problem = kind.value if kind is FolderKind.ABSENT else f"is not an index, but {kind.value}"
            raise RecipeError(folder, problem, "a folder of `ordsmed index`", remedy)
        facts = Run(folder).status
        if facts.get("state") != "done":
            raise DataError(folder, "is not finished", "a complete index", "give the command that makes it again")
        index = OpenIndex(folder, run.read_recipe(Indexing, folder), facts, str(model), opening or {})
        try:
            index.check()
        except DataError:
            if Run(folder).status.get("data") == facts.get("data"):
                raise
            return OpenIndex.of(name, model, opening)  # an update happened between reading the status and the files
        return index

    def check(self, *, whole: bool = False) -> None:
        """Raise an error if files are damaged, truncated or of another index. With `whole`, read every file."""
        checksums.check(self.folder, self.facts.get("checksums", {}), whole=whole)
        self.passages.check()
        counts = {"passages": len(self.passages)}
        if self.recipe.model:
            counts["vectors"] = len(self.vectors) if self.tokens is None else self._whole_tokens(self.tokens)
        if self.bm25:
            counts["words"] = self.bm25.count
        wanted = self.facts.get("passages")
        if wrong := next((name for name, count in counts.items() if count != wanted), ""):
            raise DataError(self.data / wrong, f"{counts[wrong]:,} passages", f"{wanted:,}", REMEDY)

    def __len__(self) -> int:
        return len(self.passages)

    def __repr__(self) -> str:
        options = {"both": "vectors and words", "dense": "vectors"}.get(self.recipe.kind, "words")
        return f"<index {self.folder}: {self.size}, by {options}>"

    @property
    def size(self) -> str:
        """Return the numbers of passages and documents as text."""
        return f"{many(len(self), 'passage')} of {many(self.facts['documents'], 'document')}"

    @property
    def data(self) -> Path:
        """Return the folder of the data files: the index's folder, or after an update a folder in it."""
        return self.folder / self.facts.get("data", "")

    @cached_property
    def passages(self) -> StoredPassages:
        return StoredPassages(self.data)

    @cached_property
    def vectors(self) -> NDArray[np.float16]:
        return files.mapped(self.data / "vectors.npy", "the vectors of an index", REMEDY, mode="c")

    @cached_property
    def tokens(self) -> TokenRows | None:
        """Return the token vectors of passages, or None if the model makes one vector per passage."""
        if not (self.data / "tokens.npy").exists():
            return None
        ends = files.mapped(self.data / "tokens.npy", "the ends of passages", REMEDY)
        return TokenRows(self.vectors, np.concatenate([[0], ends]))

    def _whole_tokens(self, tokens: TokenRows) -> int:
        return int((tokens.starts[1:] <= len(tokens.vectors)).sum())

    @cached_property
    def near(self) -> NearVectors | None:
        """Return the faiss index, or None if every vector is compared."""
        facts = self.facts.get("faiss")
        return NearVectors.of(self.data, self.vectors, facts["effort"]) if facts else None

    @cached_property
    def bm25(self) -> Bm25 | None:
        return Bm25.load(self.data / "words") if self.recipe.kind != "dense" else None

    @cached_property
    def encoder(self) -> TextEncoder | TokenEncoder:
        """Open the model that made the vectors, or raise an error if it has changed."""
        if self.model:
            return self.fitting(opened(self.model, **self.opening))
        with run.in_start_folder(self.folder):
            return self.fitting(opened(self.recipe.model, **self.opening))

    def fitting(self, trained: Trained) -> TextEncoder | TokenEncoder:
        """Return the encoder of a model if its vectors are those of this index.

        In older indexes the pool `mean` is the mean of words.
        """
        pools = [self.recipe.pool, *(["words"] if self.recipe.pool in ("", "mean") else [])]
        for pool in pools if not isinstance(trained.objective, LateInteraction) else pools[:1]:
            encoder = index_encoder(trained, pool)
            if encoder.key() == self.facts.get("model_key"):
                return encoder
        problem = f"was not made with {trained.folder}"
        remedy = "name the right model with --model, or make the index again"
        raise RecipeError(self.folder, problem, f"the model that made it ({self.recipe.model})", remedy)

    @property
    def weight(self) -> float | None:
        """Return the weight of vectors in a search by both, or None to sum reciprocal ranks."""
        return self.facts.get("weight")

    def weighted(self, weight: float, *, keep: bool = False) -> OpenIndex:
        """Return the index with another weight of the vectors. With `keep`, it is saved in the folder."""
        check_weight(weight, self.recipe.kind)
        return self._with(keep=keep, weight=weight, choice=None)

    def chosen(
        self, rescore: Rescoring | None = None, reranker: dict[str, str] | None = None, *, weight: float | None = None
    ) -> OpenIndex:
        """Return the index with the settings that pseudo-questions choose, and save them in its folder.

        `rescore` is a reranker to try, and `reranker` its description, which is saved if it helps. `weight` is a fixed
        weight of the vectors.
        """
        choice = self._choice(rescore, weight)
        for line in choice.lines():
            say(line)
        index = self
        if self.recipe.kind == "both" and weight is None:
            index = self._with(keep=True, weight=choice.weight, choice=choice.facts)
        return index.reranked(reranker, choice) if reranker else index

    def _choice(self, rescore: Rescoring | None, weight: float | None) -> SearchChoice:
        among = AMONG if self.tokens is None else AMONG_TOKENS
        pseudo = PseudoQuestions.of(self.passages, self.recipe.title, among)
        if len(pseudo.questions) < 2 * FEWEST:
            return SearchTrial([], [], []).choose(weight)
        dense = pseudo.by_vectors(self.encoder, self.vectors, self.tokens) if self.recipe.model else []
        trial = SearchTrial(dense, pseudo.by_words() if self.bm25 else [], range(len(pseudo.questions)))
        chosen = trial.choose(weight)
        return trial.rerank(chosen, pseudo.questions, pseudo.texts.__getitem__, rescore) if rescore else chosen

    def reranked(self, reranker: dict[str, str], choice: SearchChoice) -> OpenIndex:
        """Return the index with the reranker if the choice uses it, else without, and save that."""
        measured: dict[str, object] = {
            name: round(choice.scores[name], 1) for name in ("before reranking", "reranked") if name in choice.scores
        }
        used = {**reranker, **measured, "top": choice.top, "weight": choice.rerank_weight}
        return self._with(keep=True, reranker=used if choice.top else None)

    def notes(self, kind: str, rerank: str) -> list[str]:
        """Return notes for a user of this search about settings that were never measured or did not help."""
        notes = []
        if self.weight is None and kind in ("", "both") and self.recipe.kind == "both":
            again = command("index", self.folder, "--choose")
            notes.append(f"{self.folder}: the use of vectors was never measured; `{again}` chooses their weight")
        if rerank and "reranker" not in self.facts:
            again = command("index", self.folder, "--rerank", rerank)
            notes.append(f"{rerank}: not known to help in this index; `{again}` measures that")
        return notes

    def _with(self, *, keep: bool = False, **facts: object) -> OpenIndex:
        """Return the index with other facts, saved with `keep`. The value None removes a fact."""
        if keep:
            Run(self.folder).set(**facts)
        return replace(self, facts={key: fact for key, fact in {**self.facts, **facts}.items() if fact is not None})

    @property
    def by_hand(self) -> float | None:
        """Return the weight of the vectors if the user gave it."""
        return None if "choice" in self.facts else self.weight

    @cached_property
    def reranker(self) -> Reranker | None:
        """Open the reranker of this index, if one helped on pseudo-questions."""
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
        """Return the best k passages for a question."""
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
        """Return the best k passages for each of several questions.

        `kind` is both, dense (vectors) or words. `rerank` replaces the index's reranker by another function; False
        disables it. `top` is the number of passages to rerank. `where` has conditions on the fields of documents.
        """
        reranker = self.reranker if rerank is None and not kind else Reranker(rerank, TOP) if rerank else None
        kind = self.kind_of(kind)
        check_questions(questions, k)
        vectors = self.encoder.questions(questions) if kind != "words" else None
        options = replace(reranker, top=top) if reranker and top else reranker
        return self.found(questions, vectors, k, kind=kind, rerank=options, where=where)

    def kind_of(self, kind: str) -> str:
        """Return the kind of search to use: `kind` if given, else all kinds that the index has.

        Vectors with weight 0 are not searched, unless that weight was never measured because the index is too small.
        Then they add passages after those found by words.
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
        """Return the best k passages for each question, whose vectors are given."""
        count = min(max(k, rerank.top if rerank else 0), len(self))
        depth = min(max(count, DEPTH), len(self)) if kind == "both" else count
        rankings = self.rankings(questions, vectors, depth, words=kind != "dense", where=where)
        hits = [self._hits(pair, count) for pair in rankings]
        if rerank:
            hits = [self._reranked(q, of_one, rerank) for q, of_one in zip(questions, hits, strict=True)]
        return [of_one[:k] for of_one in hits]

    def rankings(
        self, questions: Sequence[str], vectors: Questions | None, depth: int, *, words: bool, where: Sequence[str] = ()
    ) -> list[tuple[Ranking | None, Ranking | None]]:
        """Return each question's rankings by vectors and by words, among documents that meet the conditions."""
        allowed = self.passages.allowed(tuple(where)) if where else None
        if allowed is not None and not allowed.any():
            empty = (np.zeros(0, np.int64), np.zeros(0, np.float32))
            return [(None if vectors is None else empty, empty if self.bm25 and words else None) for _ in questions]
        dense = [None] * len(questions) if vectors is None else self._by_vectors(vectors, depth, allowed)
        by_words = [self.bm25.search(q, depth, allowed) if self.bm25 and words else None for q in questions]
        return [*zip(dense, by_words, strict=True)]

    def _by_vectors(self, vectors: Questions, depth: int, allowed: NDArray[np.bool_] | None) -> list[Ranking | None]:
        if isinstance(vectors, TokenRows):
            assert self.tokens is not None
            return [*nearest_tokens(self.tokens, vectors, depth, MEMORY, allowed)]
        if self.near and allowed is None:
            scores, numbers = self.near.search(vectors, depth)
        else:  # with conditions, every vector is compared, so that no passage is missed
            scores, numbers = nearest(self.vectors, vectors, depth, allowed=allowed)
        return [(rows[rows >= 0], of[rows >= 0]) for rows, of in zip(numbers.numpy(), scores.numpy(), strict=True)]

    def _hits(self, rankings: tuple[Ranking | None, Ranking | None], most: int) -> list[SearchHit]:
        both = [ranking for ranking in rankings if ranking is not None]
        numbers, scores = both[0] if len(both) == 1 else self._together(*both)
        of = [dict(zip(*map(np.ndarray.tolist, ranking), strict=True)) if ranking else {} for ranking in rankings]
        return [
            SearchHit(rank, float(score), int(n), self.passages[int(n)], of[0].get(int(n)), of[1].get(int(n)))
            for rank, (n, score) in enumerate(zip(numbers[:most], scores[:most], strict=True), 1)
        ]

    def _together(self, dense: Ranking, words: Ranking) -> Ranking:
        return fused([dense[0], words[0]]) if self.weight is None else blended(dense, words, self.weight)

    def _reranked(self, question: str, hits: list[SearchHit], rerank: Reranker) -> list[SearchHit]:
        """Return the hits with the first ones reranked. The others keep their positions and scores."""
        texts = self.texts_of(hits[: rerank.top])
        scores = rerank.scores([question] * len(texts), texts) if texts else []
        return reordered(hits, scores, rerank.weight)

    def texts_of(self, hits: Sequence[SearchHit]) -> list[str]:
        """Return the passages as a model reads them, after their titles."""
        return [read_as(hit.passage.title if self.recipe.title else "", hit.passage.text) for hit in hits]


def reordered(hits: Sequence[SearchHit], scores: Sequence[float], weight: float = 1.0) -> list[SearchHit]:
    """Return the hits with the first ones ordered by `scores`. The others keep their positions and scores.

    With a weight below 1, the hits' own scores have the rest of the weight.
    """
    if weight < 1:
        scores = mixed_scores(np.array([hit.score for hit in hits[: len(scores)]]), np.array(scores), weight).tolist()
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    first = [replace(hits[at], rank=rank, score=scores[at]) for rank, at in enumerate(order, 1)]
    return [*first, *hits[len(scores) :]]


def check_questions(questions: Sequence[str], k: int) -> None:
    """Raise an error if there is no question, an empty one, or k below 1."""
    if not questions:
        raise RecipeError("question", "found none", "a question or more")
    for number, question in enumerate(questions, 1):
        if not question.strip():
            location = f"question {number}" if len(questions) > 1 else "question"
            raise RecipeError(location, "is empty", "words to search for")
    if k < 1:
        raise RecipeError("k", f"found {k}", "1 or more")


def check_weight(weight: float | None, kind: str) -> None:
    """Raise an error if the weight is not between 0 and 1, or if the index is searched in one way only."""
    if weight is not None and not 0 <= weight <= 1:
        raise RecipeError("--weight", f"found {weight:g}", "0 (words only) to 1 (vectors only)")
    if weight is not None and kind != "both":
        raise RecipeError("--weight", f"found {weight:g} with --kind {kind}", "an index and a search of kind both")
