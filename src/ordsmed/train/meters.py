"""Meters: collect the measurements of each step, write them to metrics.jsonl and summarize them for the screen."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base.errors import RunError, Trouble
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import say


class Meters:
    """Collects the measurements of steps and writes them. Losses stay on the device until they are written.

    They are then summed over ranks, unless they already are (`summed`). Only the first rank writes.
    """

    def __init__(
        self,
        folder: Path,
        peak: float,
        start: int,
        ranks: Ranks,
        *,
        summed: bool = False,
        tell: Callable[[Sequence[dict[str, Any]]], object] = lambda lines: None,
    ) -> None:
        """`tell` is called with the written lines, on every rank."""
        self.path, self.peak, self.ranks, self.summed = folder / "metrics.jsonl", peak, ranks, summed
        self.tell = tell
        self.waiting: list[dict[str, Any]] = []
        self.unwritten, self.full = "", False  # text that did not fit on a full disk, and whether that was reported
        self.last: dict[str, Any] = {}
        if ranks.first and self.path.exists():
            self._cut(start)

    def _cut(self, step: int) -> None:  # remove lines of later steps, which are trained again
        lines = [line for line in read(self.path) if line["step"] <= step]
        files.write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))

    def validations(self) -> list[dict[str, Any]]:
        return [line for line in read(self.path) if "validation" in line] if self.path.exists() else []

    def add(self, line: dict[str, Any], sums: dict[str, Tensor]) -> None:
        self.waiting.append({**line, **sums})

    def flush(self, weights: dict[str, float], *, final: bool = False) -> dict[str, Any]:
        """Write the waiting lines; return the last one with means over all of them."""
        if self.waiting:
            self._read(list(weights))
            lines = []
            flops, seconds = (sum(line[key] for line in self.waiting) for key in ("flops", "seconds"))
            for line in self.waiting:
                line["tokens_per_second"] = round(line["tokens"] / (line["seconds"] or 1e-9), 1)
                line["left"] = round(line["ahead"] * seconds / flops, 3) if flops else None
                line["loss"] = sum(weight * line[term] for term, weight in weights.items())
                _check(line, self.path)
                line["seconds"] = round(line["seconds"], 4)
                lines.append({k: v for k, v in line.items() if k not in ("flops", "ahead")})
            self._write("".join(json.dumps(line) + "\n" for line in lines))
            self._summarize()
            self.tell(lines)
        if final:
            self._write("", final=True)
        return self.last

    def _read(self, terms: list[str]) -> None:
        began = time.perf_counter()
        local = torch.stack([torch.stack([line[term].double() for term in terms]) for line in self.waiting])
        losses = local if self.summed else self.ranks.total(local)
        norms = torch.stack([line["norm"] for line in self.waiting]).tolist()
        wait = (time.perf_counter() - began) / len(self.waiting)  # a GPU runs asynchronously until its results are read
        for line, values, norm in zip(self.waiting, losses.tolist(), norms, strict=True):
            line.update(zip(terms, values, strict=True), norm=norm, seconds=line["seconds"] + wait)

    def _summarize(self) -> None:
        seconds = sum(line["seconds"] for line in self.waiting) or 1e-9
        tokens = sum(line["tokens"] for line in self.waiting)
        self.last = {
            **self.waiting[-1],
            "mean": sum(line["loss"] for line in self.waiting) / len(self.waiting),
            "tokens_per_second": tokens / seconds,
            "share_of_peak": sum(line["flops"] for line in self.waiting) / seconds / self.peak,
        }
        self.waiting = []

    def _write(self, text: str, *, final: bool = False) -> None:
        """Append text to the file. If the disk is full the text waits; that is an error only at the end."""
        if not self.ranks.first:
            return
        self.unwritten += text
        if not self.unwritten:
            return
        size_before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with files.survive_disk(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(self.unwritten)
            self.unwritten, self.full = "", False
        except RunError as error:
            with contextlib.suppress(OSError):
                os.truncate(self.path, size_before)  # remove incomplete lines
            if final:
                raise
            if not self.full:
                say(f"{error}; metrics are kept in memory until the disk has space")
            self.full = True

    def write_validation(self, line: dict[str, Any]) -> None:
        self._write(json.dumps(line) + "\n")
        self.tell([line])


def read(path: Path) -> list[dict[str, Any]]:
    return files.read_lines(path)


def _check(line: dict[str, Any], path: Path) -> None:
    over = "scale" in line and not math.isfinite(line["norm"])  # fp16: the step was skipped and the scale halved
    if not math.isfinite(line["loss"]) or not (over or math.isfinite(line["norm"])):
        problem = f"loss {line['loss']:g}, gradient norm {line['norm']:g}"
        raise Trouble(f"{path.parent}: step {line['step']}", problem, "finite numbers")
    if over:
        line["norm"] = None
