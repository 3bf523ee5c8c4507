"""How much text a run had been trained on at a step, in tokens and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.run import Run, in_start_folder
from ordsmed.data.mix import listed
from ordsmed.learn.phases import Phase
from ordsmed.learn.task import Task
from ordsmed.weights.origin import sources, standing
from ordsmed.weights.trained_model import Trained

Table = dict[str, Any]


def seen(trained: Trained) -> dict[str, int]:
    """Return the tokens and words of a pretraining so far, repetitions included; empty if they were not recorded.

    Words that were not counted are estimated from the words and tokens of the data.
    """
    pretrained = trained.recipe and not isinstance(trained.objective, Task)
    if not pretrained or not (trained.folder / "metrics.jsonl").exists():
        return {}
    lines = [line for line in metrics(trained) if "tokens" in line]
    tokens = sum(line["tokens"] for line in lines)
    if lines and "words" in lines[-1]:
        return {"tokens": tokens, "words": lines[-1]["words"]}
    splits = [(source["share"], source.get("train", {})) for source in data_of(trained)]
    if not all(split.get("words") and split.get("tokens") for _, split in splits):
        return {"tokens": tokens}
    words = tokens * sum(share * split["words"] / split["tokens"] for share, split in splits)
    return {"tokens": tokens, "words": round(words)}


def metrics(trained: Trained) -> list[Table]:
    """Return the lines of metrics.jsonl up to the model's step. A truncated line is skipped."""
    path = trained.folder / "metrics.jsonl"
    if trained.step is None or not path.exists():
        return []
    return [line for line in files.read_lines(path) if line["step"] <= trained.step]


def data_of(trained: Trained) -> list[Table]:
    """Return the facts of each data source of a pretraining, with its name and its share of the training text."""
    assert trained.recipe is not None
    phases = trained.recipe["phase"]
    shares = dict.fromkeys(sources(trained.recipe), 0.0)
    several = any("data" in phase for phase in phases)
    tokens = [_rows(phase) * phase["length"] if several else 1 for phase in phases]
    for phase, seen in zip(phases, tokens, strict=True):
        weights = listed(phase.get("data", trained.recipe["data"]))
        for name, weight in weights.items():
            shares[name] += weight / sum(weights.values()) * (seen / sum(tokens))
    return [{**_facts(n, trained.folder), "name": Path(n).name, "share": round(s, 12)} for n, s in shares.items()]


def _rows(phase: Table) -> int:
    return settings.decode(Phase, phase, "phase").rows if "batch_ramp" in phase else phase["steps"] * phase["batch"]


def _facts(name: str, folder: Path) -> Table:
    """Return what the run recorded about its data; for an older run, the status of the data folder if it exists."""
    kept = folder / "data.json"
    if kept.exists():
        return dict(files.read_table(kept).get(name, {}))
    try:
        with in_start_folder(folder):
            return Run(standing(name)).status
    except OrdsmedError:
        return {}
