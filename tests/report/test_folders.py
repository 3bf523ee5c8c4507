"""What is read of a run's folder: work as the run noted it, or as the log of an older one tells it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import TinyRuns
from kit.planted_runs import plant
from ordsmed.report import content, folders, page

LINES = """network: 1,010 parameters, 989 without heads; vocabulary 4,500
phase 1: {} a step
phase 1: 3 steps of 8 rows x 32 tokens; batch = micro 8 x accumulation 1 x devices 1
cpu, 1 thread; measured peak of all 182 GFLOP/s
"""


@pytest.mark.parametrize(
    ("said", "count"),
    [("160 FLOP", 160.0), ("909 MFLOP", 9.09e8), ("14.6 GFLOP", 1.46e10), ("1,000 TFLOP", 1e15), ("3.2 EFLOP", 3.2e18),
     ("2e+09 FLOPs", 2e9), ("1.5 kFLOP", 1500.0), ("7 PFLOP", 7e15)],
)  # fmt: skip
def test_work_is_read_from_the_log_of_an_older_run(tmp_path: Path, said: str, count: float) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0, 1.0], log=LINES.format(said))
    (facts,) = folders.read([run])
    assert facts["course"]["flops"] == pytest.approx(3 * count)
    assert [point[6] for point in facts["course"]["points"]] == pytest.approx([count, 2 * count, 3 * count])


def test_what_a_run_noted_goes_before_its_log(tmp_path: Path) -> None:
    (facts,) = folders.read([plant(tmp_path / "run", [3.0, 2.0], flops=[1.25e9, 7e9])])
    assert facts["course"]["flops"] == 2.5e9


@pytest.mark.parametrize("noted", [[None], "much", [0.0], [-1.0], {"1": 2.0}, [float("nan")]])
def test_a_note_that_is_none_is_passed_over(tmp_path: Path, noted: object) -> None:
    (facts,) = folders.read([plant(tmp_path / "run", [3.0, 2.0], flops=noted)])
    assert facts["course"]["flops"] == 4e9  # those of the log


def test_a_real_run_tells_its_work(tiny_run: TinyRuns, tmp_path: Path) -> None:
    """Exactly; to three digits where it has its log alone, as runs of older versions."""
    own = json.loads((tiny_run.bert / "status.json").read_text())["flops"]
    lines = [json.loads(line) for line in (tiny_run.bert / "metrics.jsonl").read_text().splitlines()]
    work = sum(own[line["phase"] - 1] for line in lines if "validation" not in line)
    report = content.content([str(tiny_run.bert)])
    assert report["cost"]["flops"] == work > 1e6
    assert report["cost"]["without_flops"] == 0
    assert ">FLOPs</label>" in page.page(report)
    older = tmp_path / "older"
    shutil.copytree(tiny_run.bert, older, ignore=shutil.ignore_patterns("checkpoints", "weights"))
    status = json.loads((older / "status.json").read_text())
    (older / "status.json").write_text(json.dumps({key: own for key, own in status.items() if key != "flops"}))
    assert content.content([str(older)])["cost"]["flops"] == pytest.approx(work, rel=5e-3)
