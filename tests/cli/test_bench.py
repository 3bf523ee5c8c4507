"""Bench: one JSON line, through the same loop and loader; numbers that can be checked are checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.train.bench import bench


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def measured(*words: str) -> dict[str, Any]:
    (line,) = bench(words[0], words[1:], json_line=True)
    return dict(json.loads(line))


def test_the_index_map() -> None:
    found = measured("bench/windows", "sentences=5000", "batch=8")
    assert (found["bench"], found["measure"], found["sentences"], found["length"]) == (
        "bench/windows",
        "windows",
        5000,
        128,
    )
    assert found["tokens"] / 126 < found["rows"] < found["tokens"] / 126 * 1.4
    assert {"index_seconds", "step_1_ms", "step_1000000_ms"} <= found.keys()


def test_the_loader() -> None:
    cores = os.sched_getaffinity(0)
    found = measured("loader", "tokens=20000", "vocabulary=300", "steps=1", "batch=4", "lengths=[16, 64]")
    assert found["real_tokens_per_second_16"] > 0
    assert found["real_tokens_per_second_64"] > 0
    assert os.sched_getaffinity(0) == cores
    assert Path("work/bench/random-300-20000/train.bin").stat().st_size >= 2 * 20_000
    assert (
        bench("loader", ["tokens=20000", "vocabulary=300", "steps=1", "batch=4", "lengths=[16]"])[0] == "bench: loader"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert-mini", "gpt2-mini"])
def test_training(name: str) -> None:
    small = [
        "model.width=32",
        "model.layers=1",
        "model.heads=2",
        "model.inner=64",
        "vocabulary=300",
        "tokens=5000",
        "steps=3",
    ]
    found = measured(f"bench/{name}", *small, "length=16", "batch=4", "dropout=0.2", "layout.device=cpu")
    said = {
        "dropout": 0.2,
        "attention_dropout": 0.2,
        "length": 16,
        "batch": 4,
        "precision": "fp32",
        "width": 32,
        "steps": 3,
    }
    assert said.items() <= found.items()
    assert found["tokens_per_second"] == pytest.approx(16 * found["sequences_per_second"], rel=0.01)
    assert 0 < found["share_of_peak"] < 1
    assert found["threads"] >= 1
    assert found["sequences_per_second"] == pytest.approx(4 / found["step_seconds"], rel=0.2)


def test_what_cannot_be_measured() -> None:
    with pytest.raises(RecipeError, match="vocabulary: found 6; wanted more than 6"):
        measured("loader", "vocabulary=6")
    with pytest.raises(RecipeError, match="loader: steps: found 0"):
        measured("loader", "steps=0")
