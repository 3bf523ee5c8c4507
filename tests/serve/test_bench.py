"""`ordsmed bench serve`: requests are answered and counted; invalid options are refused in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from kit.served import Running, running
from ordsmed.base.errors import RunError
from ordsmed.measure.bench import serving
from ordsmed.measure.bench.bench import bench
from ordsmed.serve.batcher import BatchLimits

SMALL = ("words=[3, 0]", "clients=[1, 4]", "requests=6")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(served: Running, name: str, *words: str) -> list[dict[str, Any]]:
    [line] = bench("serve", [f"url={served.url}/{name}", *SMALL, *words], json_line=True)
    table = json.loads(line)
    assert table["model"] == name
    return list(table["rows"])


def test_every_cell_is_asked_and_kept(served: Running, folders: dict[str, Path]) -> None:
    short = rows(served, "bert", "words=[3]")
    assert [(row["words"], row["clients"], row["requests"], row["unanswered"]) for row in short] == [
        (3, 1, 6, 0),
        (3, 4, 6, 0),
    ]
    tokenizer = ordsmed.open(folders["bert"], device="cpu").trained.tokenizer
    texts = [*serving.sentences(3, 6)]
    assert len(set(texts)) == 6
    assert short[0]["tokens"] == round(sum(len(tokenizer.encode(text)) + 2 for text in texts) / 6, 1)
    assert all(0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] for row in short)
    assert ("beside_ms" in short[0], "beside_ms" in short[1]) == (True, False)
    kept = json.loads(Path("work/bench/serve.json").read_text())
    assert kept["rows"] == short
    page = Path("work/bench/serve.md").read_text().splitlines()
    assert max(map(len, page)) <= 80
    assert len(page) == 1 + 2 + 2


def test_whatever_a_model_can_is_asked(served: Running) -> None:
    can = {"bert": ("fill", "score"), "gpt2": ("generate",), "elmo": ("embed",), "tag": ("tag",), "answer": ("answer",)}
    for name, methods in {**can, "classify": ("classify",)}.items():
        for method in methods:
            found = rows(served, name, f"ask={method}", "words=[3]", "clients=[2]", "written=2", "requests=4", "keep=")
            assert (found[0]["requests"], found[0]["unanswered"]) == (4, 0), (name, method)
    assert found[0].keys().isdisjoint({"tokens_per_second"})
    with pytest.raises(RunError, match="ask: found fill; wanted score or embed"):
        rows(served, "elmo", "ask=fill")


def test_what_is_refused_is_counted(folders: dict[str, Path]) -> None:
    with running({"bert": folders["bert"]}, batch=BatchLimits(queue=1)) as server:
        body = json.dumps({"texts": ["a [MASK]", "the [MASK]"]}).encode()
        found = serving.load(f"{server.url}/api/fill", [body] * 5, 2, 20)
    assert (found.latencies, found.statuses) == ([], {"413": 5})
    assert serving.load("http://127.0.0.1:1/x", [b"{}"] * 3, 2, 20).statuses == {"refused": 3}


def test_a_server_that_is_not_there_or_ends_is_told() -> None:
    with pytest.raises(RunError, match=r"cannot be reached: .*wanted a server"):
        bench("serve", ["url=http://127.0.0.1:1/bert", *SMALL])
    command = [sys.executable, "-c", "import sys; sys.exit('ordsmed: no such model')"]
    with pytest.raises(RunError, match="serve: the server ended: no such model"), serving.started(command):
        pass
    with pytest.raises(ordsmed.RecipeError, match="clients: found \\[0\\]; wanted numbers"):
        bench("serve", ["clients=[0]"])


@pytest.mark.long
def test_a_made_up_model_is_served_here(tmp_path: Path) -> None:
    small = ("model.size=none", "model.width=16", "model.layers=1", "model.heads=2", "vocabulary=300")
    [line] = bench("serve", [*SMALL, *small[1:], "keep="], json_line=True)
    assert [row["requests"] for row in json.loads(line)["rows"]] == [6] * 4
    assert not Path("work").exists()
