"""A job of two nodes that meets its limit, sends itself in again and ends: its losses beside an undisturbed run's.

    python tests/measure/slurm.py --site my-site.toml [--steps 300]

Wants a Slurm whose partition has two nodes (a site's file that names it). The limit of two minutes is shorter than the
run on any machine that takes more than a fifth of a second a step; the last line says how often it was sent in again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

COMMAND = (sys.executable, "-m", "ordsmed")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "unknown to Slurm")


def losses(folder: str) -> list[tuple[int, float]]:
    lines = map(json.loads, Path(folder, "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", required=True)
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    words = ["tiny/electra", f"phase.steps={asked.steps}", "save=50", "log=1"]
    job = ["submit", *words, "out=work/broken", "--site", asked.site, "--nodes", "2", "--time", "2m", "--save", "60"]
    subprocess.run([*COMMAND, *job, "--yes"], check=True)
    while True:
        answer = subprocess.run([*COMMAND, "submit", "--status", "--json"], check=True, capture_output=True, text=True)
        if json.loads(answer.stdout)[-1]["state"].split()[0] in OVER[:3] or OVER[3] in answer.stdout:
            break
        time.sleep(5)
    subprocess.run([*COMMAND, "pretrain", *words, "out=work/whole", "--devices", "2"], check=True)
    broken, whole = losses("work/broken"), losses("work/whole")
    sittings = Path("work/broken/log.txt").read_text().count("saved at step") + 1
    print(f"{len(broken)} losses of {sittings} sittings; equal to the last bit: {broken == whole}")


if __name__ == "__main__":
    main()
