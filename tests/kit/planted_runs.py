"""Folders of runs written by hand, for what only reads them: nothing is trained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

RECIPE: dict[str, Any] = {
    "seed": 0,
    "data": "books",
    "model": {"kind": "bert", "width": 128},
    "objective": {"kind": "mlm", "mask_prob": 0.15},
    "layout": {"precision": "fp32"},
    "phase": [{"steps": 30, "length": 128, "learning_rate": 0.001}],
}
LOG = """network: 1,010,708 parameters, 989,440 without heads
phase 1: 2 GFLOP a step
phase 2: 5 GFLOP a step
cpu, 1 thread; measured peak of all 100 GFLOP/s
"""


def step_line(step: int, loss: float, *, phase: int = 1, tokens: int = 100, seconds: float = 0.5) -> dict[str, Any]:
    """A training step as a run writes it."""
    return {
        "step": step,
        "phase": phase,
        "rate": 0.001,
        "norm": 1.5,
        "seconds": seconds,
        "rows": 4,
        "tokens": tokens,
        "mlm": loss,
        "tokens_per_second": tokens / seconds,
        "left": 1.0,
        "loss": loss,
    }


def falling(count: int, start: float = 9.0, end: float = 3.0) -> list[float]:
    """Losses that fall."""
    return [end + (start - end) * math.exp(-4 * number / count) for number in range(count)]


def plant(
    folder: Path,
    losses: Iterable[float] = (),
    *,
    validations: Mapping[int, float] | None = None,
    verb: str = "pretrain",
    state: str = "done",
    recipe: Mapping[str, Any] | None = None,
    log: str = LOG,
    scores: Mapping[str, Any] | None = None,
    **status: Any,
) -> Path:
    """A run of these losses, a step each."""
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    for step, loss in enumerate(losses, 1):
        lines.append(step_line(step, loss))
        if validations and step in validations:
            lines.append({"step": step, "phase": 1, "validation": validations[step], "mlm": validations[step]})
    if lines:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "status.json").write_text(json.dumps({"verb": verb, "state": state, "began": 1.7e9, **status}))
    (folder / "recipe.toml").write_text(tomli_w.dumps({**RECIPE, **(recipe or {}), "out": str(folder)}))
    (folder / "log.txt").write_text(log)
    (folder / "environment.json").write_text(json.dumps({"ordsmed": "0.1.0", "torch": "2.7.0", "host": "hall"}))
    if scores:
        (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def plant_trials(folder: Path, rows: Sequence[tuple[Mapping[str, Any], int, Mapping[str, float]]]) -> Path:
    """Trials by their setting, seed and scores."""
    plant(folder, verb="finetune")
    (folder / "trials.toml").write_text("")
    trials = [
        {
            "trial": f"trial-{number}",
            "setting": dict(setting),
            "seed": seed,
            "step": 5,
            "seconds": 1.5,
            "scores": dict(scores),
        }
        for number, (setting, seed, scores) in enumerate(rows)
    ]
    (folder / "trials.json").write_text(
        json.dumps({"score": "f1", "best": "trial-0", "settings": [], "trials": trials})
    )
    return folder
