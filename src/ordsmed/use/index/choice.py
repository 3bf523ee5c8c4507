"""Choose how much vectors and a reranker count in a search, by pseudo-questions about the indexed passages.

    passages -> a sentence of some, removed from its passage -> which search finds the passage again?
    each half of the questions chooses a weight, and the other half checks it against a search by words

Vectors or a reranker are only used if they help on questions that did not choose their weight, so a search is never
worse than BM25. Questions are drawn by hash: the same passages and model give the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.say import many
from ordsmed.corpus.pair_kinds import pairs_of
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.score.paired_tests import Clustered, clustered
from ordsmed.learn.score.ranking import FIRST
from ordsmed.text.bm25 import Bm25, blended
from ordsmed.text.document import Document
from ordsmed.use.index.nearest import nearest
from ordsmed.use.index.nearest_tokens import nearest_tokens
from ordsmed.use.index.passages import read_as
from ordsmed.use.index.store import StoredPassages
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder

QUESTIONS = 300  # at most
SHARE = 0.5  # most passages, as a share, that become questions
AMONG, AMONG_TOKENS = 2_000, 500  # passages that are searched; fewer if tokens have vectors
FEWEST = 20  # questions per half that are needed for a decision
KINDS = {"cloze": 1.0, "questions": 1.0}
SHORTEST = 5  # fewest words of a question's sentence, and of the rest of its passage
WHOLE = 1 << 30  # words: passages are not cut again
WAYS = ("words", "vectors", "both")
WEIGHTS = (0.0, 0.05, *(n / 10 for n in range(1, 11)))  # weights tried for vectors and for a reranker
TOPS = (10, 20)  # numbers of passages to rerank that are tried
RERANKED = 100  # questions to try a reranker with
SURE = 0.1  # two-sided p-value: a gain by chance alone passes in fewer than 5 of 100 cases
DEPTH = 100  # passages per ranking
MEMORY = 64 << 20  # bytes
Ranking = tuple[NDArray[Any], NDArray[Any]]  # numbers of passages, best first, and scores
Way = TypeVar("Way")  # settings of a search
Rescoring = Callable[[list[str], list[str]], list[float]]  # questions and texts -> a score for each pair


@dataclass(frozen=True)
class SearchChoice:
    """The chosen settings, and the mean reciprocal ranks (MRR@10, in per cent) that decided."""

    weight: float = 0.0  # of the vectors; 0: words only
    top: int = 0  # passages that the reranker orders; 0: no reranker
    rerank_weight: float = 0.0
    questions: int = 0  # pseudo-questions that were searched
    by_hand: bool = False  # whether the user gave the weight
    scores: dict[str, float] = field(default_factory=dict)  # words, vectors, both, reranked

    @property
    def facts(self) -> dict[str, Any]:
        return {"questions": self.questions, **{name: round(score, 1) for name, score in self.scores.items()}}

    def lines(self) -> list[str]:
        """Return a line on vectors, and one on the reranker if there is one, for a terminal."""
        if not self.questions:
            return ["search: by words first, then by vectors; too few passages to measure how much vectors help"]
        scores = ", ".join(f"{name} {self.scores[name]:.1f}" for name in WAYS if name in self.scores)
        measured = f"MRR@10 on {many(self.questions, 'pseudo-question')}: {scores}"
        if "both" not in self.scores:
            lines = [f"search: {measured}"]
        elif self.by_hand or self.weight:
            lines = [f"search: by words and vectors, with weight {self.weight:g} for vectors; {measured}"]
        else:
            lines = [f"search: by words only, because vectors do not help; {measured}"]
        if "reranked" in self.scores:
            gain = f"with it {self.scores['reranked']:.1f}, without it {self.scores['before reranking']:.1f}"
            used = f"orders the first {self.top}, with weight {self.rerank_weight:g}" if self.top else "not used"
            lines.append(f"reranker: {used}; {gain}")
        return lines


@dataclass(frozen=True)
class SearchTrial:
    """Rankings of passages by vectors and by words, for questions whose right document is known."""

    dense: Sequence[Ranking]  # ranking by vectors for each question; empty if the index has no vectors
    words: Sequence[Ranking]  # ranking by words for each question; empty if the index has no words
    wanted: Sequence[int]  # number of each question's right document
    documents: NDArray[np.int64] | None = None  # document of each passage; None: each passage is its own document

    def ranking(self, question: int, weight: float) -> Ranking:
        """Return the ranking of a question with this weight of the vectors."""
        if weight in (0, 1):
            return (self.dense if weight else self.words)[question]
        return blended(self.dense[question], self.words[question], weight)

    def reciprocal(self, question: int, numbers: NDArray[Any]) -> float:
        """Return 1 / rank of the right document, or 0 beyond the tenth."""
        documents = numbers if self.documents is None else self.documents[numbers]
        first = list(dict.fromkeys(documents.tolist()))[:FIRST]
        wanted = self.wanted[question]
        return 1 / (1 + first.index(wanted)) if wanted in first else 0.0

    def by_weight(self, weight: float) -> NDArray[np.float64]:
        return np.array([self.reciprocal(n, self.ranking(n, weight)[0]) for n in range(len(self.wanted))])

    def choose(self, fixed: float | None = None) -> SearchChoice:
        """Choose the weight of the vectors; it is 0 if they do not help. `fixed` is a weight to use in any case."""
        if len(self.wanted) < 2 * FEWEST:
            return SearchChoice(fixed or 0.0, by_hand=fixed is not None)
        if not self.dense or not self.words:
            weight, name = (1.0, "vectors") if self.dense else (0.0, "words")
            means = {name: 100 * float(self.by_weight(weight).mean())}
            return SearchChoice(weight, questions=len(self.wanted), scores=means)
        ranks_by_weight = {weight: self.by_weight(weight) for weight in WEIGHTS}
        weight, both = verified(ranks_by_weight, 0.0)
        if fixed is not None:
            weight, both = fixed, self.by_weight(fixed)
        scores = {"words": ranks_by_weight[0.0], "vectors": ranks_by_weight[1.0], "both": both}
        means = {name: 100 * float(values.mean()) for name, values in scores.items()}
        return SearchChoice(weight, questions=len(self.wanted), by_hand=fixed is not None, scores=means)

    def rerank(
        self, choice: SearchChoice, questions: Sequence[str], texts: Callable[[int], str], rescore: Rescoring
    ) -> SearchChoice:
        """Return the choice with the reranker's number of passages and weight, if it helps."""
        count = min(len(self.wanted), RERANKED)
        if count < 2 * FEWEST:
            return choice
        rankings = [self.ranking(n, choice.weight) for n in range(count)]
        candidates = [(numbers[: TOPS[-1]], scores[: TOPS[-1]]) for numbers, scores in rankings]
        pairs = [(questions[n], texts(int(number))) for n in range(count) for number in candidates[n][0]]
        new_scores = iter(rescore([question for question, _ in pairs], [text for _, text in pairs]) if pairs else [])
        scores = [np.array([next(new_scores) for _ in numbers]) for numbers, _ in candidates]
        ways = [(0, 0.0), *((top, weight) for top in TOPS for weight in WEIGHTS[1:])]
        ranks = {
            way: np.array([self.reciprocal(n, reordered(*candidates[n], scores[n], *way)) for n in range(count)])
            for way in ways
        }
        (top, weight), after = verified(ranks, (0, 0.0))
        if not top:
            after = max(list(ranks.values())[1:], key=lambda values: float(values.mean()))
        reranked = {"before reranking": ranks[0, 0.0], "reranked": after}
        means = {name: 100 * float(values.mean()) for name, values in reranked.items()}
        return replace(choice, top=top, rerank_weight=weight, scores={**choice.scores, **means})


def reordered(numbers: NDArray[Any], scores: NDArray[Any], new: NDArray[Any], top: int, weight: float) -> NDArray[Any]:
    """Return the passages with the first `top` ordered by both scores, where `weight` is that of the `new` ones."""
    order = np.argsort(-mixed_scores(scores[:top], new[:top], weight), kind="stable")
    return np.concatenate([numbers[:top][order], numbers[top:]])


def mixed_scores(scores: NDArray[Any], new: NDArray[Any], weight: float) -> NDArray[np.float64]:
    """Return the weighted sum of both scores, each scaled to the range from 0 to 1."""
    return (1 - weight) * _share(scores) + weight * _share(new)


def _share(values: NDArray[Any]) -> NDArray[np.float64]:
    least, most = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    return (values - least).astype(np.float64) / ((most - least) or 1)


def cautious(ranks: dict[Way, NDArray[np.float64]]) -> Way:
    """Return the first way whose mean is within a standard error of the best mean.

    Ways are ordered from plain to far-reaching, so the plainest of nearly equal ways is chosen.
    """
    best = max(ranks.values(), key=lambda values: float(values.mean()))
    for way, values in ranks.items():
        loss = _difference(best, values)
        if loss.mean <= max(loss.error, 0.0):
            return way
    raise AssertionError("the best way is as good as itself")


def verified(ranks: dict[Way, NDArray[np.float64]], plain: Way) -> tuple[Way, NDArray[np.float64]]:
    """Return the way that helps, or else the plain one, and its reciprocal ranks.

    Each half of the questions is searched in the way that the other half chooses, and the result is compared with the
    plain way.
    """
    held_out = np.zeros_like(ranks[plain])
    for half in (slice(0, None, 2), slice(1, None, 2)):
        rest = slice(1 - half.start, None, 2)
        held_out[rest] = ranks[cautious({way: values[half] for way, values in ranks.items()})][rest]
    way = cautious(ranks)
    return (way, held_out) if way != plain and helps(held_out, ranks[plain]) else (plain, ranks[plain])


def helps(ranks: NDArray[np.float64], before: NDArray[np.float64]) -> bool:
    """Return whether the ranks are better than before, beyond chance."""
    gain = _difference(ranks, before)
    return gain.mean > 0 and gain.p < SURE


def _difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> Clustered:
    return clustered((first - second).tolist(), [1.0] * len(first), [""] * len(first))


# ---- pseudo-questions about an index


@dataclass(frozen=True)
class PseudoQuestions:
    """Questions made from passages, and the texts that are searched, without the questions' sentences."""

    questions: list[str]
    texts: list[str]  # first the passages of the questions, shortened, then other passages
    rest: NDArray[np.int64]  # numbers of the other passages

    @staticmethod
    def of(stored: StoredPassages, title: bool, among: int = AMONG) -> PseudoQuestions:
        """Draw questions from an index. Passages that overlap the passage of a question are left out."""
        order = np.argsort(chance.unit(chance.key("pseudo-questions"), np.arange(len(stored))))[:among].tolist()
        most, pairs, left = min(QUESTIONS, int(SHARE * len(stored))), list[tuple[str, str]](), list[int]()
        drawn = dict[int, list[int]]()  # passages that became questions, by document
        for number in order:
            document = int(stored.rows[number, 0])
            overlaps = any(_overlap(stored, number, taken) for taken in drawn.get(document, []))
            if len(pairs) < most and not overlaps and (pair := _pair(stored, number, title)):
                pairs.append(pair)
                drawn.setdefault(document, []).append(number)
            else:
                left.append(number)
        kept = [n for n in left if not any(_overlap(stored, n, m) for m in drawn.get(int(stored.rows[n, 0]), []))]
        texts = [text for _, text in pairs] + [_read(stored, number, title) for number in kept]
        return PseudoQuestions([question for question, _ in pairs], texts, np.array(kept, np.int64))

    def by_words(self) -> list[Ranking]:
        words = Bm25.of(self.texts)
        return [words.search(question, DEPTH) for question in self.questions]

    def by_vectors(
        self, encoder: TextEncoder | TokenEncoder, vectors: NDArray[Any], tokens: TokenRows | None = None
    ) -> list[Ranking]:
        """Return the ranking by vectors for each question. Only shortened passages are embedded again."""
        count = len(self.questions)
        if isinstance(encoder, TokenEncoder):
            assert tokens is not None
            [first] = encoder.token_rows(self.texts[:count], rows=count)
            rows = _joined_rows(first, tokens, self.rest)
            return [*nearest_tokens(rows, encoder.questions(self.questions), DEPTH, MEMORY)]
        shortened = np.concatenate([*encoder.vectors(self.texts[:count])]).astype(np.float16)
        both = np.concatenate([shortened, vectors[self.rest]])
        scores, numbers = nearest(both, encoder.questions(self.questions), DEPTH)
        return [*zip(numbers.numpy(), scores.numpy(), strict=True)]


def _pair(stored: StoredPassages, number: int, title: bool) -> tuple[str, str] | None:
    """Return a question and its passage without it, or None if the passage is too short."""
    passage = stored[number]
    name = f"{passage.document}:{passage.start}"
    pair = next(pairs_of(Document(passage.text), name, KINDS, WHOLE, SHORTEST, 0), None)
    return (pair.anchor, read_as(passage.title if title else "", pair.positive)) if pair else None


def _read(stored: StoredPassages, number: int, title: bool) -> str:
    passage = stored[number]
    return read_as(passage.title if title else "", passage.text)


def _overlap(stored: StoredPassages, first: int, second: int) -> bool:
    (a, b), (c, d) = (stored.rows[number, 3:].tolist() for number in (first, second))
    return bool(a < d and c < b)


def _joined_rows(first: TokenRows, rest: TokenRows, numbers: NDArray[np.int64]) -> TokenRows:
    """Return the vectors of `first`, followed by those of the texts `numbers` of `rest`."""
    parts: Iterator[NDArray[Any]] = (rest.vectors[rest.starts[n] : rest.starts[n + 1]] for n in numbers)
    sizes = np.concatenate([np.diff(first.starts), np.diff(rest.starts)[numbers]])
    vectors = np.concatenate([first.vectors.astype(np.float16), *parts])
    return TokenRows(vectors, np.concatenate([[0], np.cumsum(sizes)]))
