"""The end of `make --for search`: what is measured among held-out passages, what it chooses, and what it says of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.language_models import WORDS, hub_folder
from ordsmed.base.run import Run
from ordsmed.maker import search
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.runner import Clock
from ordsmed.use.index.choice import SearchChoice


def pairs(count: int, *, first: int = 0) -> list[dict[str, str]]:
    """Questions of two words, and passages with one of them and two others."""
    found = []
    for number in range(first, first + count):
        left, right = WORDS[number % 16], WORDS[number // 16]
        found.append({"anchor": f"{left} {WORDS[number % 7]}", "positive": f"{WORDS[number % 7]} {right} {left} it"})
    return [{**pair, "source": "cloze"} for pair in found]


def right(questions: Sequence[str], texts: Sequence[str]) -> list[float]:
    """Scores of a reranker that knows the answers."""
    answers = {(pair["anchor"], pair["positive"]) for pair in pairs(60)}
    return [float((asked, text) in answers) for asked, text in zip(questions, texts, strict=True)]


def test_what_is_measured_among_held_out_passages(tmp_path: Path) -> None:
    hub_folder("bert", tmp_path / "model", seed=1)
    hub_folder("bert", tmp_path / "dense", seed=2)
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/train.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs(30, first=60)))
    (tmp_path / "test").mkdir()
    (tmp_path / "test/old").touch()
    asked, dev = pairs(10), pairs(50, first=10)
    scores, choice = search._tested(tmp_path, asked, dev, right)
    assert len((tmp_path / "test/passages.jsonl").read_text().splitlines()) == 90
    assert not (tmp_path / "test/old").exists()
    assert [*scores] == [search.UNTRAINED, *search.BY.values()]
    assert scores["words (BM25)"]["mrr@10"] > scores["vectors"]["mrr@10"]
    assert scores[search.UNTRAINED] != scores["vectors"]
    assert scores["both, reranked"]["mrr@10"] > scores["both"]["mrr@10"]
    assert choice.questions == len(dev)
    assert choice.top > 0
    assert choice.scores["reranked"] > choice.scores["before reranking"]


WAYS = [
    (SearchChoice(0.0), "words (BM25)", "the index is searched by words (BM25): mrr@10 40.0 on 3 other questions"),
    (SearchChoice(0.5), "both", "the index is searched by both: mrr@10 50.0 on 3 other questions, words alone 40.0"),
    (SearchChoice(0.5, top=9), "both, reranked", "the index is searched by both, reranked: mrr@10 60.0 on 3"),
    (
        SearchChoice(0.0, top=9),
        "words (BM25), reranked",
        "the index is searched by words (BM25), reranked: mrr@10 40.0",
    ),
]
SCORES = {name: {"mrr@10": 10.0 * n, "ndcg@10": 1.0, "recall@100": 2.0} for n, name in enumerate(search.BY.values(), 4)}
SCORES["vectors"], SCORES["both"] = SCORES["both"], SCORES["vectors"]
SCORES["both, reranked"]["mrr@10"] = 60.0


@pytest.mark.parametrize(("choice", "way", "verdict"), WAYS)
def test_the_verdict_is_of_the_way_that_is_used(choice: SearchChoice, way: str, verdict: str) -> None:
    assert search._way(choice) == way
    assert search._verdict(SCORES, choice, 3).startswith(verdict)


def test_examples_are_what_people_would_ask() -> None:
    def pair(source: str, words: int) -> dict[str, str]:
        return {"source": source, "anchor": "a " * words, "positive": "b"}

    every = [pair("cloze", 8), pair("title", 1), pair("other", 8), pair("questions", 30), pair("questions", 9)]
    assert search._examples(every) == [every[4], every[3], every[1]]


@pytest.mark.parametrize(("count", "reranked"), [(0, False), (3, False), (3, True)])
def test_the_end_leaves_an_index_folders_for_others_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, reranked: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, done = Path("out"), dict[str, Any]()
    (folder / "pairs").mkdir(parents=True)
    for name in ("corpus", "model"):
        (folder / name).mkdir()
    if count:
        (folder / "pairs/test.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs(count)))
    asked = MakeRequest(("texts",), "out", title="Mine", licence="MIT")
    Run(folder).set(state="running")
    Run(folder / "model").set(validation=2.0, unigram=4.0)
    measured = {"before reranking": 1.0, "reranked": 2.0} if reranked else {}
    choice = SearchChoice(0.5, top=9 if reranked else 0, questions=3, scores={"both": 1.0, **measured})
    index = SimpleNamespace(folder=folder / "index", size="7 passages", search=lambda question, k: [])
    index_made = lambda model, corpus, out, weight: done.update(index=(model, out, weight)) or index  # noqa: E731
    monkeypatch.setattr(search, "_tested", lambda *_: (SCORES, choice))
    monkeypatch.setattr(search.searching, "reranker", lambda model: None)
    monkeypatch.setattr(search.searching, "index", index_made)
    monkeypatch.setattr(search.searching, "with_reranker", lambda *given: done.update(reranker=given[1:]) or index)
    monkeypatch.setattr(search, "hit_lines", lambda asked, hits, *_: [f"hits of {asked}"])
    monkeypatch.setattr(search, "export", lambda model, out, **named: done.update({out.name: (model, named)}) or out)
    monkeypatch.setattr(search.report, "write", lambda folders, out: done.update(report=out))
    facts = search.close(asked, Clock(Run(folder)))
    weight = 0.5 if count else SearchChoice().weight
    assert done["index"] == (folder / "dense", folder / "index", weight)
    assert done.get("reranker") == ((folder / "cross", choice) if reranked else None)
    about = {"to": "sentence_transformers", "name": "out", "title": "Mine", "language": "", "licence": "MIT"}
    assert done["sentence-transformers"] == (folder / "dense", about)
    assert done["cross-encoder"] == (folder / "cross", about)
    assert (facts["weight"], facts["reranked"], done["report"]) == (weight, reranked, "out/report.html")
    assert Run(folder).status["weight"] == weight
    lines = facts["lines"]
    assert lines[0].startswith("loss on held-out text 2.000; guessing by frequency 4.000: 50.0% below")
    assert sum(line.startswith("  hits of ") for line in lines) == min(count, search.SHOWN)
    left_out = "reranker: is left out; too few questions to measure whether it helps"
    assert (left_out in lines) == (count > 0 and not reranked)
    assert any("held-out questions, in per cent" in line for line in lines) == (count > 0)
    assert "out/index: 7 passages; out/report.html: the page" in lines
    assert "ordsmed search out/index 'a question'" in " ".join(lines)
