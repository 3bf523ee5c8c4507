"""Pictures: whatever was measured, they are drawn, or there is none; no NaN stands in them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.text import histogram
from ordsmed.train import picture

NAN, INF = math.nan, math.inf


def whole(text: str) -> bool:
    """Is every number of the picture one?"""
    return bool(text.startswith("<svg") and text.endswith("</svg>\n") and not re.search(r"\b(nan|inf)\b", text))


def metrics(folder: Path, losses: list[Any], judged: dict[int, Any]) -> Path:
    lines = [{"step": step, "phase": 1 + (step > 2), "loss": loss} for step, loss in enumerate(losses, 1)]
    lines += [{"step": step, "phase": 1, "validation": loss} for step, loss in judged.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("losses", "judged"),
    [
        ([3.0, 2.0, 1.0], {3: 1.5}),
        ([3.0, NAN, 1.0], {3: NAN}),
        ([3.0, 2.0, INF, NAN], {2: INF, 4: 2.0}),
        ([NAN, NAN, 2.0, 1.0], {}),  # a phase without a number
        ([-INF, 2.0, None, 1.0], {1: None}),
        ([2.0, 2.0], {}),
        ([1e20, 1e20], {1: 1e20}),
        ([1e308, 1.0, -1e308, 2.0], {}),
    ],
)
def test_a_course_is_drawn(tmp_path: Path, losses: list[Any], judged: dict[int, Any]) -> None:
    path = picture.draw(metrics(tmp_path, losses, judged), "x")
    assert path is not None
    assert whole(path.read_text())
    told = re.findall(r"• validation: (\S+)<", path.read_text())
    numbers = [loss for loss in judged.values() if loss is not None and math.isfinite(loss)]
    assert told == [f"{loss:.3f}" for loss in numbers[-1:]]


@pytest.mark.parametrize("losses", [[], [1.0], [NAN, NAN, INF], [NAN, 1.0]])
def test_nothing_to_draw(tmp_path: Path, losses: list[float]) -> None:
    assert picture.draw(metrics(tmp_path, losses, {}), "x") is None
    assert picture.draw(tmp_path / "nowhere", "x") is None


def trials(*scores: float, steps: bool = False, guessing: float = 50.0) -> dict[str, Any]:
    key = "step" if steps else "rate"
    rows = [
        {"setting": {key: place}, "seeds": [1], "scores": {"f1": {"mean": score, "best": score, "deviation": NAN}},
         "guessing": {"f1": {"mean": guessing}}, "best": False} for place, score in enumerate(scores)
    ]  # fmt: skip
    made = [{"trial": "t", "setting": row["setting"], "scores": {"f1": row["scores"]["f1"]["mean"]}} for row in rows]
    return {"score": "f1", "settings": rows, "trials": made}


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("scores", [(1.0, 2.0, 3.0), (NAN, 2.0, 3.0), (1.0, INF, 3.0), (1.0, NAN, NAN)])
def test_trials_are_drawn(tmp_path: Path, scores: tuple[float, ...], steps: bool) -> None:
    for guessing in (50.0, NAN):
        path = picture.draw_trials(tmp_path, "x", trials(*scores, steps=steps, guessing=guessing))
        assert path is not None
        assert whole(path.read_text())
    assert picture.draw_trials(tmp_path, "x", trials(NAN, INF, steps=steps)) is None
    assert picture.draw_trials(tmp_path, "x", trials(steps=steps)) is None


def test_histograms_of_nothing_are_drawn() -> None:
    none = histogram.count(np.zeros(0, np.int64))
    some = histogram.count(np.array([0, 1, 5]))
    for panels in ({}, {"a": {}}, {"a": {"train": none}}, {"a": {"train": some, "test": none}}):
        assert whole(histogram.svg(panels))
