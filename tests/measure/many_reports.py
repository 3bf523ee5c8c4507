"""A thousand reports of four systems, made up, how long it takes to collect them, and what is found slower in them.

Speeds vary by 4 per cent; those of `case 1` fall by 30 in the last twentieth of the reports, and nothing else does.

python tests/measure/many_reports.py FOLDER [COUNT]
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

SYSTEMS = (
    ("saga:a100", "A100", "8"),
    ("lumi:standard-g", "MI250X", "8"),
    ("olivia:accel", "GH200", "4"),
    ("", "", "1"),
)
CASES = 55  # of a report, as `ordsmed validate` has them


def report(number: int, count: int, chance: random.Random) -> dict[str, Any]:
    """One of a system's, two days after the one before; half of its cases have a speed."""
    site, gpu, ranks = SYSTEMS[number % len(SYSTEMS)]
    fallen = 0.7 if number > 0.95 * count else 1.0
    speeds = {case: 20 * chance.gauss(1, 0.04) * (fallen if case == 1 else 1) for case in range(1, CASES, 2)}
    rows = [
        {
            "item": "steps",
            "case": f"case {case}",
            "state": "ok",
            "text": "10 losses agree within 0.0001",
            "remedy": "",
            "figures": {"steps/s": speeds[case]} if case in speeds else {},
            "seconds": 1.0,
            "node": "",
        }
        for case in range(CASES)
    ]
    facts = {"torch": f"2.{7 + number * 5 // count}.0", "GPUs": gpu, "ranks": ranks, "device": "cuda", "cores": "16"}
    made = datetime(2024, 1, 1) + timedelta(days=number // len(SYSTEMS) * 2)
    return {"host": "n1", "site": site, "made": str(made), "facts": facts, "items": rows}


def main(folder: Path, count: int) -> None:
    chance = random.Random(1)
    for number in range(count):
        path = folder / f"{number:05}/report.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report(number, count, chance), indent=1))
    began = time.perf_counter()
    words = ["validate", "--collect", str(folder), "--page", str(folder / "page.html"), "--json"]
    done = subprocess.run([sys.executable, "-m", "ordsmed", *words], check=False, capture_output=True, text=True)
    took, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    slower = [(change["system"], change["case"]) for change in json.loads(done.stdout)["changes"]]
    print(f"{count:,} reports: {took:.2f} s, {used.ru_utime + used.ru_stime:.2f} s of the CPU")
    print("changes:", *(f"{system} {case or 'versions'}: {times}" for (system, case), times in Counter(slower).items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 1000)
