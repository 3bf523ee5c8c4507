"""Meters: what a run writes of itself, a line of metrics.jsonl a step, and what the loop shows while it works."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from ordsmed.base import files
from ordsmed.base.errors import RunError
from ordsmed.base.say import say


class Meters:
    """Collects steps, reads their losses off the device together, writes them; refuses a loss that is not a number."""

    def __init__(self, folder: Path, peak: float, start: int) -> None:
        self.path, self.peak = folder / "metrics.jsonl", peak
        self.waiting: list[dict[str, Any]] = []
        self.board = _tensorboard(folder, start)
        self.last: dict[str, Any] = {}
        self._cut(start)

    def _cut(self, step: int) -> None:
        """Drop the lines of steps after the restored checkpoint: they will be made again."""
        if self.path.exists():
            lines = [line for line in read(self.path) if line["step"] <= step]
            files.write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))

    def close(self) -> None:
        """Let go of the TensorBoard file, everything written."""
        if self.board:
            self.board.close()

    def add(self, line: dict[str, Any], sums: dict[str, Tensor]) -> None:
        """One step is done; its losses may still be on the device."""
        self.waiting.append({**line, **sums})

    def flush(self, weights: dict[str, float]) -> dict[str, Any]:
        """Write what waits; returns the last line, with means over what waited."""
        if not self.waiting:
            return self.last
        with files.survive_disk(self.path), self.path.open("a", encoding="utf-8") as file:
            for line in self.waiting:
                line.update({k: float(v) for k, v in line.items() if isinstance(v, Tensor)})
                line["loss"] = sum(weight * line[term] for term, weight in weights.items())
                _check(line, self.path)
                line["seconds"] = round(line["seconds"], 4)
                file.write(json.dumps({k: v for k, v in line.items() if k != "flops"}) + "\n")
        seconds = sum(line["seconds"] for line in self.waiting) or 1e-9
        tokens = sum(line["tokens"] for line in self.waiting)
        self.last = {
            **self.waiting[-1],
            "mean": sum(line["loss"] for line in self.waiting) / len(self.waiting),
            "tokens_per_second": tokens / seconds,
            "share_of_peak": sum(line["flops"] for line in self.waiting) / seconds / self.peak,
        }
        self._show_board()
        self.waiting = []
        return self.last

    def note(self, line: dict[str, Any]) -> None:
        """A line that is no training step: a validation."""
        with files.survive_disk(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.board:
            for name, value in line.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"validation/{name}", value, line["step"])

    def _show_board(self) -> None:
        if self.board:
            for line in self.waiting:
                for name in ("loss", "rate", "norm"):
                    self.board.add_scalar(f"training/{name}", line[name], line["step"])
            self.board.add_scalar("speed/tokens_per_second", self.last["tokens_per_second"], self.last["step"])


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a last line that was cut off by a kill is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(text))
        except ValueError:
            break
    return found


def _check(line: dict[str, Any], path: Path) -> None:
    if not math.isfinite(line["loss"]) or not math.isfinite(line["norm"]):
        found = f"loss {line['loss']:g}, gradient norm {line['norm']:g}"
        raise RunError(
            f"{path.parent}: step {line['step']}", found, "finite numbers",
            "the last checkpoint stands; lower `phase.rate`, lengthen `phase.warmup`, or try `precision = \"fp32\"`",
        )  # fmt: skip


def _tensorboard(folder: Path, start: int) -> Any:
    import importlib.util

    if importlib.util.find_spec("tensorboard") is None:
        say("no TensorBoard events (`pip install tensorboard` adds them); metrics.jsonl has every number")
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1 if start else None)
