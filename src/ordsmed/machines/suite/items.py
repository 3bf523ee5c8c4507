"""The items of the validation suite. Each is a function that yields the outcome of each of its cases."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.machine import host
from ordsmed.base.machine.speed import measured_peak
from ordsmed.base.menu import PACKAGE_ROOT
from ordsmed.base.say import many
from ordsmed.machines.doctor import speed
from ordsmed.machines.doctor.outcome import Outcome, absent, error, ok
from ordsmed.train.pretrain import golden

TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 2e-2, "fp16": 1e-2}  # relative; processors round differently
LAYOUTS = 1e-5  # relative tolerance of losses between layouts of one run
STEPS, QUICK = 10, 2  # steps of each model family
TRAINING = ("tiny/bert", "phase.steps=6", "phase.warmup=2", "save=2", "keep=9", "validate=100", "log=1")
SAVED = 4  # step after which a run is killed
LIMIT = 900.0  # seconds that a command of the suite may take
LAUNCHER_VARIABLES = re.compile(
    r"RANK|LOCAL_|WORLD_SIZE|GROUP_|ROLE_|MASTER_|SLURM|PMI|OMPI|TORCHELASTIC|ORDSMED_DEVICES"
)
FAILURE_REMEDY = "run it again; if it fails again, compare versions (`ordsmed doctor`), and report it with report.json"


@dataclass(frozen=True)
class Workplace:
    folder: Path  # on the shared disk; empty at first
    device: str = "cpu"
    precisions: tuple[str, ...] = ("fp32",)
    quick: bool = False


Item = Callable[[Workplace], Iterator[tuple[str, Outcome]]]


def tokenizers(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    """Check that each tokenizer learns the same vocabulary and gives the same ids for the same texts."""
    for name, case in golden.read_table("tokenizers").items():
        if (needed := case.get("needs")) and not importlib.util.find_spec(needed):
            yield name, absent(f"`{needed}` is not installed", f"pip install 'ordsmed[{needed}]'")
            continue
        ids = golden.tokens(case["kind"], case["settings"])
        wrong = [number for number, (a, b) in enumerate(zip(ids, case["ids"], strict=True), 1) if a != b]
        count = sum(map(len, ids))
        yield (
            name,
            error(f"text {wrong[0]} gives other ids", FAILURE_REMEDY) if wrong else ok(f"{count} ids are the same"),
        )


def masking(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    """Check that each objective makes the same rows: order, masks, pairs and noise."""
    wanted = golden.read_table("rows")
    for name, sum_ in golden.rows(work.folder / "rows"):
        same = sum_ == wanted[name]["digest"]
        yield (
            name,
            ok(f"rows are the same ({sum_})")
            if same
            else error(f"rows sum to {sum_}, wanted {wanted[name]['digest']}", FAILURE_REMEDY),
        )


def steps(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    """Check that each model family has the same losses, within the tolerance of the precision."""
    count = QUICK if work.quick else STEPS
    for precision in work.precisions:
        for name, case in golden.read_table("losses").items():
            losses, spent = golden.losses(name, work.folder, count, device=work.device, precision=precision)
            figures = {"steps/s": count / max(spent, 1e-9)}
            yield f"{name} {precision}", compare_with_golden(losses, case["losses"], TOLERANCE[precision], figures)


def compare_with_golden(
    losses: list[float], wanted: list[float], tolerance: float, figures: dict[str, float] | None = None
) -> Outcome:
    far = [abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(losses, wanted, strict=False)]
    worst = max(range(len(far)), key=far.__getitem__)
    if far[worst] <= tolerance:
        text = f"{many(len(losses), 'loss')} agree within {tolerance:g} (furthest {far[worst]:.1g})"
        return Outcome("ok", text, figures=figures or {})
    text = f"loss {worst + 1} is {losses[worst]:.6f}, wanted {wanted[worst]:.6f} within {tolerance:g}"
    return error(text, FAILURE_REMEDY, **(figures or {}))


def runs(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    """Check that a killed run resumes exactly, and that two processes and another layout give equal losses."""
    store, here = golden.store_of({}, work.folder), work.folder
    overrides = [*TRAINING, f"data={store}", f"layout.device={'cuda' if _has_two_gpus(work) else 'cpu'}"]
    whole = _losses(here / "whole", overrides)
    _train_and_kill(here / "killed", overrides)
    yield "killed and gone on", _compare_losses(whole, _losses(here / "killed", overrides), 0.0)
    if host.cores() < 2:
        yield "two processes", absent("only one core is available")
        return
    both = [*overrides, "layout.shard=2"]
    _train_and_kill(here / "split", [*both, "--devices", "2"])
    split = {step: loss for step, loss in _metrics(here / "split").items() if step <= SAVED}
    yield "two processes", _compare_losses({step: whole[step] for step in split}, split, LAYOUTS)
    yield "another layout", _compare_losses(whole, _losses(here / "split", overrides), LAYOUTS)


def _has_two_gpus(work: Workplace) -> bool:
    import torch

    return work.device.startswith("cuda") and torch.cuda.device_count() > 1


def _compare_losses(whole: dict[int, float], again: dict[int, float], tolerance: float) -> Outcome:
    if set(whole) != set(again) or not whole:
        return error(f"{len(again)} of {many(len(whole), 'step')} have a loss", FAILURE_REMEDY)
    far = max(abs(again[step] - loss) / abs(loss) for step, loss in whole.items())
    options = "to the last bit" if not tolerance else f"within {tolerance:g}"
    if far <= tolerance:
        return ok(f"{many(len(whole), 'loss')} are the same {options}")
    return error(f"losses differ by {far:.2g} of their size, wanted {options}", FAILURE_REMEDY)


def _losses(folder: Path, words: list[str]) -> dict[int, float]:
    done = subprocess.run(
        _command(folder, words), env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
        raise OSError(f"`ordsmed pretrain` ended: {lines[-1][:300]}")
    return _metrics(folder)


def _train_and_kill(folder: Path, words: list[str]) -> None:
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        process = subprocess.Popen(
            _command(folder, words), env=environment(), stdout=log, stderr=log, start_new_session=True
        )
        until = time.monotonic() + LIMIT
        while process.poll() is None and not (folder / f"checkpoints/step-{SAVED:09}").is_dir():
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        for pid in [*_children(process.pid), process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
    if not (folder / "checkpoints").is_dir():
        lines = (folder.parent / f"{folder.name}.log").read_text().splitlines() or ["no output"]
        raise OSError(f"`ordsmed pretrain` saved nothing: {lines[-1][:300]}")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _command(folder: Path, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "ordsmed", "pretrain", words[0], f"out={folder}", *words[1:]]


def environment() -> dict[str, str]:
    """Return this process's environment without the variables of launchers, and with this code on the path."""
    variables = {name: value for name, value in os.environ.items() if not LAUNCHER_VARIABLES.match(name)}
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT.parent), variables.get("PYTHONPATH", "")]))
    return {**variables, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _metrics(folder: Path) -> dict[int, float]:
    rows = files.read_lines(folder / "metrics.jsonl")
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def extras(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    try:
        needs = importlib.metadata.requires("ordsmed") or []
    except importlib.metadata.PackageNotFoundError:
        yield "all", absent("ordsmed is not installed, so its extras are unknown")
        return
    groups: dict[str, list[str]] = {}
    for need in needs:
        if (match := re.match(r"([\w-]+).*extra\s*==\s*['\"](\w+)['\"]", need)) and match[2] != "dev":
            groups.setdefault(match[2], []).append(match[1])
    for extra, names in groups.items():
        versions, missing = [], []
        for name in names:
            try:
                versions.append(f"{name} {importlib.metadata.version(name)}")
            except importlib.metadata.PackageNotFoundError:
                missing.append(name)
        remedy = f"pip install 'ordsmed[{extra}]'"
        yield extra, absent(f"without {', '.join(missing)}", remedy) if missing else ok(", ".join(versions))


def speeds(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    import torch

    device = torch.device(work.device)
    for precision in work.precisions:
        peak = measured_peak(device, precision)
        yield f"products {precision}", ok("large squares", **{"TFLOP/s": peak / 1e12})
    rate = speed.copied(work.device)
    yield "memory", ok("a copy, read and written", **{"GB/s": rate / 1e9})


ITEMS: tuple[Item, ...] = (tokenizers, masking, steps, runs, extras, speeds)


def run_items(work: Workplace, items: tuple[Item, ...] = ITEMS) -> Iterator[tuple[str, str, Outcome, float]]:
    """Yield (item, case, outcome, seconds).

    An item that raises an error yields an error outcome, and the next item runs.
    """
    for item in items:
        began = time.perf_counter()
        try:
            for case, outcome in item(work):
                yield item.__name__, case, outcome, time.perf_counter() - began
                began = time.perf_counter()
        except (OrdsmedError, OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as failure:
            reason = str(failure).splitlines()[0][:300] if str(failure) else type(failure).__name__
            yield item.__name__, "itself", error(reason, FAILURE_REMEDY), time.perf_counter() - began
    shutil.rmtree(work.folder, ignore_errors=True)
