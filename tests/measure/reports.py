"""How quickly a report of many long runs is made, how large it is, and how quickly a browser opens it.

python tests/measure/reports.py [RUNS] [STEPS]      200 runs of 100,000 steps: 4.6 GB in the folder for temporary files
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit.planted_runs import plant

DIFFERENT = 10  # courses; the rest are copies of them


def course(steps: int, seed: int) -> Iterator[str]:
    """Lines as a run writes them."""
    drawn = random.Random(seed)
    for step in range(1, steps + 1):
        loss = 3 + 7 / (1 + step / 2000) ** 0.5 + drawn.gauss(0, 0.1)
        yield (
            f'{{"step": {step}, "phase": {1 + (step > 0.9 * steps)}, "rate": {1e-3 * step / steps}, '
            f'"norm": {loss / 3}, "seconds": {0.4 + drawn.random() / 100:.4f}, "rows": 64, "tokens": 8192, '
            f'"mlm": {loss}, "tokens_per_second": 20000.0, "left": {steps - step}.5, "loss": {loss}}}\n'
        )


def planted(folder: Path, runs: int, steps: int) -> None:
    """Recipes of five seeds each."""
    for number in range(runs):
        rate = 0.001 * (1 + number // 5)
        phases = [{"steps": steps, "length": 128, "rate": rate}]
        run = plant(
            folder / f"rate-{rate:.3f}-seed-{number % 5}",
            recipe={"seed": number % 5, "phase": phases},
            scores={"validation": 3.0 + number / 100},
        )
        first = folder / f"rate-{0.001 * (1 + number % DIFFERENT // 5):.3f}-seed-{number % DIFFERENT % 5}/metrics.jsonl"
        if number < DIFFERENT:
            with (run / "metrics.jsonl").open("w") as file:
                file.writelines(course(steps, number))
        else:
            shutil.copy(first, run / "metrics.jsonl")


def opened(page: Path, folder: Path) -> float:
    """Seconds in which a browser has drawn it, less those in which it draws an empty one; 0: there is none here."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        return 0.0
    empty = folder / "empty.html"
    empty.write_text("<!DOCTYPE html><title>x</title>")
    words = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'browser'}",
        "--window-size=1200,3000",
        f"--screenshot={folder / 'seen.png'}",
    ]
    took = []
    for each in (empty, empty, page):
        began = time.perf_counter()
        subprocess.run([*words, each.as_uri()], capture_output=True, check=True, timeout=300)
        took.append(time.perf_counter() - began)
    return took[2] - took[1]


def main() -> None:
    runs, steps = (int(word) for word in (*sys.argv[1:], *("200", "100000")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planted(folder / "runs", runs, steps)
        page = folder / "report.html"
        before, began = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "ordsmed", "report", str(folder / "runs"), "--out", str(page)], check=True
        )
        took, after = time.perf_counter() - began, os.times()
        busy = after.children_user + after.children_system - before.children_user - before.children_system
        size = sum(path.stat().st_size for path in (folder / "runs").rglob("metrics.jsonl"))
        print(f"{runs} runs of {steps:,} steps, {size / 1e9:.2f} GB: made in {took:.1f} s ({busy:.1f} s of processors)")
        print(f"page: {page.stat().st_size / 1e6:.2f} MB, drawn in {opened(page, folder):.2f} s more than an empty one")


if __name__ == "__main__":
    main()
