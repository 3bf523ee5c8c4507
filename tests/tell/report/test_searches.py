"""Searches on a page: the verdict first, and a row for each way to search."""

from __future__ import annotations

from pathlib import Path

from ordsmed.base.run import Run
from ordsmed.tell.report import searches

SCORES = {"mrr@10": 50.04, "ndcg@10": 55.0, "recall@100": 90.0, "map": 51.0}


def test_the_verdict_on_a_search_comes_first(tmp_path: Path) -> None:
    reasons = ["search: by words only, because vectors do not help", "reranker: not used"]
    ways = {"words (BM25)": SCORES, "both, reranked": {**SCORES, "mrr@10": 18.4}}
    Run(tmp_path).set(verb="make", search=ways, verdict=[*reasons, "the index is searched by words (BM25)"])
    report = {"searches": searches.read(tmp_path)}
    first, *rest = searches.summary_lines(report)
    assert first == "The index is searched by words (BM25)."
    assert rest == ["Search: by words only, because vectors do not help.", "Reranker: not used."]
    [table] = searches.tables(report)
    assert table.head == ("way", "mrr@10", "ndcg@10", "recall@100")
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [
        ["words (BM25)", "50.0"],
        ["both, reranked", "18.4"],
    ]
    Run(tmp_path).set(verb="pretrain")
    assert searches.read(tmp_path) == []
