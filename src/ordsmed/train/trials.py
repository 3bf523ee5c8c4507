"""Trials: several fine-tunings of one recipe, over seeds, settings or checkpoints, side by side in a table."""

from __future__ import annotations

from pathlib import Path

from ordsmed.base import files


def ended(folder: Path) -> list[str]:
    """What a person is told of a finished fine-tuning."""
    scores = {k: v for k, v in files.read_json(folder / "scores.json").items() if isinstance(v, float)}
    told = ", ".join(f"{name} {value:.2f}" for name, value in scores.items() if name != "validation")
    return [f"{folder}: done; {told}" if told else f"{folder}: done"]
