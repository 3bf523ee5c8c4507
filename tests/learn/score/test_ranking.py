"""Measures of rankings: by hand, and as trec_eval has them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ordsmed.learn.score.ranking import MEASURES, by_chance, measures


def test_by_hand() -> None:
    """Grades 0, 2, 0, 1 in front; another passage of grade 1 was not found."""
    ndcg, mrr, recall, average = measures([0, 2, 0, 1], [1, 2, 1, 0, -1])
    ideal = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    assert ndcg == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert (mrr, recall, average) == (pytest.approx(1 / 2), pytest.approx(2 / 3), pytest.approx((1 / 2 + 2 / 4) / 3))


def test_cuts() -> None:
    """Ten for nDCG and MRR, a hundred for recall, all for MAP."""
    assert measures([0] * 10 + [1], [1]) == [0, 0, 1, pytest.approx(1 / 11)]
    assert measures([0] * 100 + [1], [1]) == [0, 0, 0, pytest.approx(1 / 101)]
    assert measures([0, -1], [1]) == measures([], [1]) == measures([0], [0]) == [0, 0, 0, 0]


def test_as_trec_eval_has_them() -> None:
    """Graded judgements, some below 0, some of passages that are not found, equal scores among them."""
    peer = pytest.importorskip("pytrec_eval")
    names = dict(zip(MEASURES, ("ndcg_cut_10", "", "recall_100", "map"), strict=True))
    random = np.random.default_rng(0)
    for _ in range(20):
        judged = {f"d{n}": int(grade) for n, grade in enumerate(random.integers(-1, 4, 30))}
        scores = {f"d{n}": float(random.integers(40)) for n in random.permutation(200)[:150]}
        theirs = peer.RelevanceEvaluator({"q": judged}, {"ndcg_cut", "recip_rank", "recall", "map"})
        wanted = theirs.evaluate({"q": scores})["q"]
        ranked = sorted(sorted(scores, reverse=True), key=lambda name: -scores[name])
        values = dict(zip(MEASURES, measures([judged.get(d, 0) for d in ranked], [*judged.values()]), strict=True))
        assert {ours: values[ours] for ours in names if names[ours]} == pytest.approx(
            {ours: wanted[its] for ours, its in names.items() if its}
        )
        assert values["mrr@10"] == (pytest.approx(wanted["recip_rank"]) if wanted["recip_rank"] >= 0.1 else 0)


@pytest.mark.parametrize(("passages", "grades", "depth"), [(30, [1, 2, 1], 25), (5, [1], 1000), (200, [1] * 20, 150)])
def test_by_chance_is_the_mean_of_many_orders(passages: int, grades: list[int], depth: int) -> None:
    random, every = np.random.default_rng(0), [*grades, *[0] * (passages - len(grades))]
    drawn = [measures(random.permutation(every)[:depth], grades) for _ in range(4000)]
    assert by_chance(passages, grades, depth) == pytest.approx(np.mean(drawn, 0), abs=0.02)
