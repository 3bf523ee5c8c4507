"""Runs of several processes that survive: killed, hanging, stopped, in trouble or short of disk, and gone on with.

A nursery holds torch imported and forks `ordsmed` from itself, launcher and ranks alike: a run of two ranks takes a
second or two instead of ten. One test goes the whole way through the operating system instead (torchrun).

What goes wrong is a few lines of Python in the variable FAULT, performed in every rank before it begins (faulty.py).
ORDSMED_KILLS=20 asks for so many kills -9 a mesh.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from kit.processes import KIT, PATIENT, Process, alive
from ordsmed.base import settings, snapshots
from ordsmed.base.errors import Lost
from ordsmed.base.run import Run
from ordsmed.train import checkpoint
from ordsmed.train.meters import read

KILLS = int(os.environ.get("ORDSMED_KILLS", "2"))
STEPS, SAVE = 18, 3
MESHES = {"2x1x1": [], "1x2x1": ["layout.shard=2"], "1x1x2": ["layout.tensor=2"]}


@pytest.fixture(scope="module")
def recipe_file(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of this file; tests change it by overrides, as a user does."""
    path = tmp_path_factory.mktemp("recipe") / "survivor.toml"
    path.write_text(f"""
data = "{store}"
save = {SAVE}
keep_best = false
validate = 5
validation_rows = 8
log = 2
layout = {{ device = "cpu", threads = 1 }}
[model]
kind = "bert"
width = 32
layers = 1
heads = 2
positions = 32
[objective]
kind = "mlm"
[[phase]]
steps = {STEPS}
length = 32
batch = 8
learning_rate = 2e-3
warmup = 2
""")
    return path


Start = Callable[..., Process]


@pytest.fixture
def start(
    nursery: Callable[..., Any], recipe_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Start]:
    """`ordsmed pretrain RECIPE WORDS` into a folder; devices: so many ranks; fault: what goes wrong in each."""
    begun: list[Process] = []

    def begin(
        folder: Path | str, *words: str, devices: int = 0, fault: str = "", own: bool = False, grace: float = 60.0
    ) -> Process:
        out = tmp_path / f"said-{len(begun)}.txt"
        asked = [str(folder), *words] if own else [str(recipe_file), f'out="{folder}"', *words]
        more = ["--devices", str(devices)] if devices else []
        env = {"FAULT": fault, "MARKS": str(tmp_path), "SAID": str(out), "GRACE": str(grace)}
        pid = nursery(words=["pretrain", *asked, *more], env=env)
        begun.append(Process(pid, lambda: nursery(poll=pid), out))
        return begun[-1]

    yield begin
    for process in begun:
        process.end()


@dataclass(frozen=True)
class Course:
    """What a run learned, to the last bit, and what it said."""

    losses: list[tuple[int, float, float]]
    validations: list[tuple[int, float]]
    seconds: float = field(compare=False, default=0.0)
    said: str = field(compare=False, default="")


def course(folder: Path, **more: Any) -> Course:
    lines = read(folder / "metrics.jsonl")
    learned = [(line["step"], line["loss"], line["norm"]) for line in lines if "validation" not in line]
    return Course(learned, [(line["step"], line["validation"]) for line in lines if "validation" in line], **more)


@pytest.fixture(scope="module")
def undisturbed() -> dict[tuple[Any, ...], Course]:
    return {}


@pytest.fixture
def whole(start: Start, undisturbed: dict[tuple[Any, ...], Course], tmp_path: Path) -> Callable[..., Course]:
    """The course of a run that nothing happens to but its own troubles; made once for all tests of this file."""

    def find(*words: str, devices: int = 0, fault: str = "") -> Course:
        key = (words, devices, fault)
        if key not in undisturbed:
            folder, began = tmp_path / f"whole-{len(undisturbed)}", time.monotonic()
            process = start(folder, *words, devices=devices, fault=fault)
            assert process.wait() == 0, process.said
            found = course(folder, seconds=time.monotonic() - began, said=process.said)
            assert found.validations
            undisturbed[key] = found
        return undisturbed[key]

    return find


def complaints(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("ordsmed: ")]


def saved(folder: Path) -> list[int]:
    return checkpoint.steps(folder / "checkpoints")


def is_whole(folder: Path) -> bool:
    """Does every checkpoint stand with all its parts, and nothing of a half one?"""
    stand = [folder / "checkpoints" / f"step-{step:09d}" for step in saved(folder)]
    return not any(map(damage, stand)) and not list((folder / "checkpoints").glob(".*"))


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; of the best one, once newer ones stand, the weights alone are kept."""
    return checkpoint.damage(path, checkpoint.KINDS[:1] if snapshots.is_stripped(path) else checkpoint.KINDS)


# --- kill -9


@pytest.mark.long
@pytest.mark.parametrize("mesh", ["1x1x1", *MESHES])
def test_kill_9_of_all_at_any_moment_loses_nothing(
    start: Start, whole: Callable[..., Course], tmp_path: Path, mesh: str
) -> None:
    """The same command again, until the run is done: the same losses, norms and validations, bit for bit."""
    words, devices = ["keep_best=true", *MESHES.get(mesh, [])], 2 if mesh in MESHES else 0
    wanted = whole(*words, devices=devices)
    chance, kills, runs, takes = random.Random(f"all {mesh}"), 0, 0, wanted.seconds
    while kills < KILLS:
        runs, before = runs + 1, kills
        folder, status = tmp_path / f"killed-{runs}", None
        while status is None:
            process, began = start(folder, *words, devices=devices), time.monotonic()
            until = began + (chance.uniform(0.3, 1) * takes if kills < KILLS else PATIENT)
            while (status := process.poll()) is None and time.monotonic() < until:
                time.sleep(0.002)
            if status is None:
                process.end()
                kills += 1
        if kills == before:  # too late: the machine was busy when it was measured
            takes = min(takes, time.monotonic() - began)
        assert status == 0, process.said
        assert course(folder) == wanted
        assert is_whole(folder)


@pytest.mark.long
@pytest.mark.parametrize("mesh", MESHES)
def test_kill_9_of_one_ends_all_and_is_told(
    start: Start, whole: Callable[..., Course], tmp_path: Path, mesh: str
) -> None:
    wanted = whole(*MESHES[mesh], devices=2)
    chance, folder = random.Random(f"one {mesh}"), tmp_path / "killed"
    kills = (KILLS + 1) // 2
    for kill in range(1, kills + 1):
        rank, step = chance.choice((0, 1)), (STEPS - SAVE) * kill // kills - SAVE
        until = f"at_step({STEPS}, lambda: until('killed-{kill}'))"  # or all is done before it is killed
        waits = "watch.ANSWER = watch.LONG = 6.0"  # who waits for its part of a checkpoint learns it from the watch
        process = start(folder, *MESHES[mesh], "layout.patience=25", devices=2, fault=f"{waits}\n{until}")
        while (
            max(saved(folder), default=0) < step
            or ("Ctrl-C saves the run" not in process.said and "resumed from" not in process.said)
            or len(process.ranks) < 2
        ):
            assert process.poll() is None, process.said
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        lost = process.ranks[rank]
        os.kill(lost, signal.SIGKILL)
        (tmp_path / f"killed-{kill}").touch()
        assert process.wait() == 128 + signal.SIGKILL, process.said
        assert f"rank {rank} was ended by SIGKILL; start the same command again" in process.said
        if rank == 1:
            named = rf"ordsmed: .*lost or hanging: rank 1 \(\S+ process {lost}\) at step \d"
            assert re.search(named, process.said), process.said
        else:  # with it goes the store through which ranks know of each other
            assert "ordsmed: rank 1: rank 0: is gone" in process.said
        assert len(complaints(process.said)) == 1
        assert not any(map(alive, process.left))
    process = start(folder, *MESHES[mesh], devices=2)
    assert process.wait() == 0, process.said
    assert course(folder) == wanted


MOMENTS = """
def kill(moment):
    once(moment) and die()

before(files, "write_text", lambda path, text: path.name == "recipe.toml" and kill("status stands, recipe does not"))

def half_a_part(path, tensors, boxes):
    if once("half a part"):
        path.write_bytes(b"half")
        die()
before(boxes, "write", half_a_part)
before(checkpoint.CheckpointWriter, "_complete", lambda *_: kill("parts stand, state does not"))
after(files, "write_json", lambda path, value: path.name == "state.json" and kill("state stands, has no name"))
before(files, "sync", lambda path: path.name == "checkpoints" and kill("named, but not on the disk"))

def half_away(path, *_, **__):
    if path.name.endswith(".old.part") and once("the oldest half away"):
        (path / "state.json").unlink()
        die()
before(snapshots.shutil, "rmtree", half_away)

def half_a_line(self, text, **_):
    if text and once("half a line"):
        with self.path.open("a") as file:
            file.write(text[: len(text) // 2])
        die()
before(meters.Meters, "_write", half_a_line)
before(meters.Meters, "_cut", lambda self, step: step and kill("before the metrics are cut"))
before(files, "write_text", lambda path, text: path.name == "metrics.jsonl" and text and kill("they are being cut"))
before(texts, "validate", lambda *_: kill("judging"))
after(finish, "leave_weights", lambda *_: kill("weights are left, scores are not"))
before(files, "write_json", lambda path, value: path.name == "scores.json" and kill("all but scores"))
"""


@pytest.mark.long
def test_kill_9_between_any_two_writes_loses_nothing(
    start: Start, whole: Callable[..., Course], tmp_path: Path
) -> None:
    """The same command again, until it is done; each of these moments was one of a kill."""
    wanted, folder, kills = whole(), tmp_path / "killed", 0
    moments = set(re.findall(r'(?:kill|once)\("(.+?)"\)', MOMENTS))
    while (status := (process := start(folder, fault=MOMENTS)).wait()) != 0:
        assert status == -signal.SIGKILL, process.said
        kills += 1
    assert moments <= {path.name for path in tmp_path.iterdir()}
    assert kills == len(moments)
    assert course(folder) == wanted
    assert is_whole(folder)
    assert Run(folder).status["state"] == "done"


@pytest.mark.long
def test_kill_9_while_the_last_takes_the_oldest_away(
    start: Start, whole: Callable[..., Course], tmp_path: Path
) -> None:
    """All is learned by then, and nothing is written any more: what is half deleted goes all the same."""
    wanted, folder = whole(), tmp_path / "killed"
    fault = f"""
def half_away(path, *_, **__):
    if path.name.endswith(".old.part") and (path.parent / "step-{STEPS:09d}").exists() and once():
        (path / "state.json").unlink()
        die()
before(snapshots.shutil, "rmtree", half_away)
"""
    assert start(folder, fault=fault).wait() == -signal.SIGKILL
    assert list((folder / "checkpoints").glob(".*"))
    assert start(folder).wait() == 0
    assert course(folder) == wanted
    assert is_whole(folder)


@pytest.mark.long
@pytest.mark.parametrize("mesh", ["1x2x1"])
def test_kill_9_while_one_part_stands_and_the_other_does_not(
    start: Start, whole: Callable[..., Course], tmp_path: Path, mesh: str
) -> None:
    wanted, folder = whole(*MESHES[mesh], devices=2), tmp_path / "killed"
    fault = f"""
def late(path, *_):
    if "{2 * SAVE:09d}" in path.parent.name and RANK == 1:
        until = time.monotonic() + {PATIENT}
        while not (path.parent / "done-0.json").exists():
            assert time.monotonic() < until
        once() and die()
before(boxes, "write", late)
"""
    process = start(folder, *MESHES[mesh], "--restarts", "1", devices=2, fault=fault)
    assert process.wait() == 0, process.said
    assert "all 2 processes restart (1 of 1)" in process.said
    assert re.search(rf"resumed from \S+step-{SAVE:09d}\n", process.said)
    assert course(folder) == wanted
    assert is_whole(folder)


ONCE = "if RANK == 1: at_step(10, lambda: once() and die())"


def real(command: list[str], recipe: Path, folder: Path, fault: str) -> subprocess.CompletedProcess[str]:
    """The command as a user gives it to torchrun, with processes of its own."""
    env = {
        "PYTHONPATH": os.pathsep.join([str(KIT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "ignore",
        "FAULT": fault,
        "MARKS": str(folder.parent),
    }
    words = ["-m", "ordsmed", "pretrain", str(recipe), f'out="{folder}"', "objective.kind=lab.faulty"]
    return subprocess.run(
        [sys.executable, *command, *words],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENT,
    )


@pytest.mark.long
def test_the_command_begins_again(start: Start, whole: Callable[..., Course], tmp_path: Path) -> None:
    folder = tmp_path / "again"
    process = start(folder, "--restarts", "1", devices=2, fault=ONCE)
    assert process.wait() == 0, process.said
    assert "frame #" not in process.said
    assert "rank 1 was ended by SIGKILL" in process.said
    assert re.search(r"ordsmed: .*lost or hanging: rank 1 \(\S+ process \d+\) at step \d", process.said)
    assert "all 2 processes restart (1 of 1)" in process.said
    assert re.search(r"resumed from \S+step-00000000[69]\n", process.said)
    assert f"\n{folder}: done; " in process.said
    assert course(folder) == whole(devices=2)


@pytest.mark.long
def test_torchrun_begins_again(whole: Callable[..., Course], recipe_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    found = real(torchrun, recipe_file, folder, ONCE)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "once").exists()
    assert re.search(r"resumed from \S+step-00000000[69]\n", found.stderr)
    assert course(folder) == whole(devices=2)


@pytest.mark.long
def test_the_first_rank_leaves_last(start: Start, whole: Callable[..., Course], tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    late = 'before(session, "on_rank0", lambda *_: RANK == 1 and time.sleep(0.1))'
    for _ in ("to the end", "all is done"):
        process = start(folder, devices=2, fault=late)
        assert process.wait() == 0, process.said
    assert course(folder) == whole(devices=2)


# --- asked to stop

PAUSE = "at_step(10, lambda: (mark(f'at10-{RANK}'), until('asked')))"


def paused(process: Process, folder: Path, devices: int = 2) -> None:
    process.until(lambda: all((folder / f"at10-{rank}").exists() for rank in range(devices)))


def stopped_and_saved(process: Process, folder: Path) -> None:
    """All ranks stopped after the same step, which stands whole; nobody is left at work."""
    step = Run(folder).status["step"]
    assert step in (10, 11)
    assert Run(folder).status["state"] == "stopped"
    assert saved(folder)[-1] == step
    assert is_whole(folder)
    assert course(folder).losses[-1][0] == step
    assert f"saved at step {step} of {STEPS}; resume it with:\n    ordsmed pretrain {folder}" in process.said
    assert not any(map(alive, process.left))


def goes_on(start: Start, folder: Path, wanted: Course, *words: str, devices: int = 2) -> None:
    process = start(folder, *words, devices=devices, own=True)
    assert process.wait() == 0, process.said
    assert course(folder) == wanted


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_launcher_is_asked_to_stop(
    start: Start, whole: Callable[..., Course], tmp_path: Path, number: signal.Signals
) -> None:
    wanted, folder = whole(devices=2), tmp_path / "stopped"
    process = start(folder, "--restarts", "3", devices=2, fault=PAUSE)
    paused(process, tmp_path)
    assert len(process.ranks) == 2
    os.kill(process.pid, number)
    process.until(lambda: "is saved after this step" in process.said)
    (tmp_path / "asked").touch()
    assert process.wait() == 128 + number
    stopped_and_saved(process, folder)
    assert process.said.count("the run is saved after this step") == 1
    assert not complaints(process.said)
    goes_on(start, folder, wanted)


@pytest.mark.long
@pytest.mark.parametrize(("number", "rank"), [(signal.SIGTERM, 0), (signal.SIGUSR1, 1)])
def test_one_rank_is_asked_to_stop(
    start: Start, whole: Callable[..., Course], tmp_path: Path, number: signal.Signals, rank: int
) -> None:
    """The others hear of it with the step's counts: all save the same step and stop, and none begins again."""
    wanted, folder = whole(*MESHES["1x2x1"], devices=2), tmp_path / "stopped"
    process = start(folder, "--restarts", "3", *MESHES["1x2x1"], devices=2, fault=PAUSE)
    paused(process, tmp_path)
    os.kill(process.ranks[rank], number)
    (tmp_path / "asked").touch()
    assert process.wait() in (128 + number, 128 + signal.SIGTERM)
    stopped_and_saved(process, folder)
    assert not complaints(process.said)
    goes_on(start, folder, wanted, *MESHES["1x2x1"])


@pytest.mark.long
def test_a_warning_that_arrives_twice_is_one(start: Start, whole: Callable[..., Course], tmp_path: Path) -> None:
    """Slurm signals every process of a step: ranks hear it from Slurm and from the launcher, and SIGTERM after it."""
    wanted, folder = whole(devices=2), tmp_path / "stopped"
    process = start(folder, devices=2, fault=PAUSE)
    paused(process, tmp_path)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        for pid in (*process.ranks, process.pid):
            os.kill(pid, number)
        time.sleep(0.1)
    (tmp_path / "asked").touch()
    assert process.wait() == 128 + signal.SIGUSR1, process.said
    stopped_and_saved(process, folder)
    goes_on(start, folder, wanted)


@pytest.mark.long
def test_kill_9_of_the_launcher_leaves_nobody_behind(
    start: Start, whole: Callable[..., Course], tmp_path: Path
) -> None:
    """Its ranks save and stop by themselves."""
    wanted, folder = whole(devices=2), tmp_path / "orphans"
    process = start(folder, devices=2, fault=PAUSE)
    paused(process, tmp_path)
    ranks = process.ranks
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (tmp_path / "asked").touch()
    until = time.monotonic() + PATIENT
    while any(map(alive, ranks)):
        assert time.monotonic() < until
        time.sleep(0.02)
    stopped_and_saved(process, folder)
    goes_on(start, folder, wanted)


# --- hanging

STILL = "os.kill(os.getpid(), signal.SIGSTOP)"
ASLEEP = 'before(loader.MicroBatches, "__getitem__", lambda self, i: i + self.first == 9 and time.sleep(120))'
HANGING = {  # which rank hangs where -> what it does
    (1, "in a step"): f"at_step(10, lambda: {STILL})",
    (0, "in a step"): f"at_step(10, lambda: {STILL})",
    (0, "while the others connect"): f'before(session, "connect", lambda *_: {STILL})',
    (0, "before the others have a watch"): f'before(session, "connect", lambda *_: mark("still") or {STILL})',
    (0, "while they meet"): f'before(ranks, "_send_token", lambda *_: mark("met") or {STILL})',
    (0, "at the start"): f'before(plan, "assemble", lambda *_, **__: {STILL})',
    (1, "while saving"): f'before(checkpoint.CheckpointWriter, "save", lambda *_, **__: {STILL})',
    (0, "making rows"): ASLEEP,
    (1, "making rows"): ASLEEP,
    (1, "learning"): 'at_step(10, lambda: before(mlm.MaskedTokens, "forward", lambda *_: time.sleep(120)))',
}


@pytest.mark.long
@pytest.mark.parametrize("part", [0, 1])
def test_a_rank_that_hangs_is_named(start: Start, tmp_path: Path, part: int) -> None:
    """Within the patience the others end and say whom they waited for; the launcher ends that one too.

    Stopped by SIGSTOP, or alive in a loader or a network that takes for ever: that one knows it by itself as well.
    """
    late = {
        "before the others have a watch": 'before(session, "Watch", lambda *_: until("still") or time.sleep(0.1))',
        "while they meet": (
            'ranks.rendezvous.__kwdefaults__["least"] = 3.0; before(ranks, "attempt_token", lambda *_: until("met"))'
        ),
    }
    begun = {}
    for (rank, where), what in list(HANGING.items())[part::2]:  # together: mostly they wait
        fault = f"""
watch.ANSWER = watch.LONG = 6.0
if RANK == {rank}: {what}
else: {late.get(where, "pass")}
"""
        folder = tmp_path / f"{rank} {where}"
        begun[rank, where] = start(folder, "layout.patience=6", devices=2, fault=fault, grace=8.0)
    for (rank, where), process in begun.items():
        assert process.wait() == Lost.status, process.said
        lines = complaints(process.said)
        alive_still = where in ("making rows", "learning")
        assert len(lines) == 1 or (lines and alive_still), process.said
        named = rf"lost or hanging: rank {rank} \(\S+ process \d+\) at step \d+, "
        gone = "rank 0: (has ended|is gone|does not answer: lost or hanging)"  # it keeps what ranks know of each other
        assert rank == 0 or any(re.search(named, line) for line in lines), process.said
        for line in lines:
            assert re.search(f"{named}|{gone}", line), process.said
            assert line.endswith("start the same command again to resume from the last checkpoint")
        if alive_still:
            wanted = f"at step 10, {where}; wanted a step within 6 s of all 2"
            assert any(wanted in line for line in lines), process.said
        assert not any(map(alive, process.left))


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_rank_is_told_in_its_own_words(start: Start, tmp_path: Path, rank: int) -> None:
    fault = f"""
def short():
    if RANK == {rank}:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\\nmore of it")
at_step(10, short)
"""
    process = start(tmp_path / "short", devices=2, fault=fault)
    assert process.wait() == 1, process.said
    remedy = "; use `layout.micro=2` (it is 4), `layout.recompute=true`, or split the weights with `layout.shard`"
    wanted = f"rank {rank}, step 10: CUDA out of memory. Tried to allocate 2.00 GiB.{remedy}"
    assert any(line.endswith(wanted) for line in complaints(process.said)), process.said
    assert len(complaints(process.said)) <= 2
    assert not any(map(alive, process.left))


@pytest.mark.long
def test_one_rank_that_has_no_room_for_what_auto_tries_ends_all(start: Start, tmp_path: Path) -> None:
    """The other one waits for it in a step, and would do so for as long as the patience."""
    fault = """
from ordsmed.train import auto, loop
auto.GAIN, auto.ALIKE, sums = 0.0, 1.0, loop.total_counts
def counts(job, batches):
    counted = sums(job, batches)
    if RANK == 1 and len(batches[0].tokens) > 1:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return counted
loop.total_counts = counts
"""
    process = start(tmp_path / "full", "--layout", "auto", devices=2, fault=fault)
    assert process.wait() == 1, process.said
    wanted = "rank 1: ran out of memory alone, for phase 1, micro 2; name a smaller `layout.micro`"
    assert any(wanted in line for line in complaints(process.said)), process.said
    assert not any(map(alive, process.left))


@pytest.mark.long
def test_a_mesh_that_was_measured_is_kept(start: Start, tmp_path: Path) -> None:
    fault = """
from ordsmed.train import auto
auto._time_micro_batch = lambda job, index, micro, ranks, **_: micro * float(job.recipe.layout.shard == 2 and micro < 3)
at_step(5, lambda: RANK == 0 and once() and os.kill(os.getpid(), signal.SIGTERM))
"""
    folder, words = tmp_path / "split", ["--layout", "auto"]
    first = start(folder, *words, devices=2, fault=fault)
    assert first.wait() != 0
    assert "auto: 1 x 2 x 1 (replicate x shard x tensor)" in first.said, first.said
    second = start(folder, *words, devices=2, fault=fault)
    assert second.wait() == 0, second.said
    assert "auto: " not in second.said
    own, status = settings.read(folder / "recipe.toml")["layout"], Run(folder).status
    assert (own["shard"], own["recompute"], own["micro"]) == (2, False, [2])
    assert (status["state"], [entry["mesh"] for entry in status["layouts"]]) == ("done", [[1, 2, 1]])


# --- trouble

NAN, JUMP = "sick({10}, float('nan'))", "sick({10}, 5.0)"
SPIKE = ("trouble.spike=1.5", "trouble.window=5")


def trouble(action: str, *more: str) -> list[str]:
    return [f'trouble.action="{action}"', *more]


def steps_of(found: Course) -> list[int]:
    return [step for step, _, _ in found.losses]


@pytest.mark.long
@pytest.mark.parametrize(("fault", "more"), [(NAN, ()), (JUMP, SPIKE)])
def test_trouble_stops_in_one_line(start: Start, tmp_path: Path, fault: str, more: tuple[str, ...]) -> None:
    folder = tmp_path / "stop"
    process = start(folder, *trouble("stop", *more), fault=fault)
    assert process.wait() == 1
    (line,) = complaints(process.said)
    assert re.search(
        r"step 10: loss (nan|[\d.]+, \d\.\d\d times the mean of 5 steps).*; the last complete one is of step 9: `", line
    )
    assert saved(folder)[-1] == 9
    assert Run(folder).status["state"] == "failed"


@pytest.mark.long
@pytest.mark.parametrize(("fault", "more"), [(NAN, ()), (JUMP, SPIKE)])
def test_trouble_is_skipped(
    start: Start, whole: Callable[..., Course], tmp_path: Path, fault: str, more: tuple[str, ...]
) -> None:
    """The step teaches nothing, has no line, and the record says why; killed after it, the run is the same."""
    words = trouble("skip", *more)
    wanted = whole(*words, fault=fault)
    assert steps_of(wanted) == [step for step in range(1, STEPS + 1) if step != 10]
    assert wanted.losses[:9] == whole().losses[:9]
    assert wanted.losses[9:] != whole().losses[10:]
    assert re.search(r"step 10: loss .*: step 10 is skipped", wanted.said)
    folder = tmp_path / "killed"
    for step in (11, 14):
        assert start(folder, *words, fault=f"{fault}; at_step({step}, die)").wait() == -signal.SIGKILL
    process = start(folder, *words, fault=fault)
    assert process.wait() == 0, process.said
    assert course(folder) == wanted
    (left_out,) = Run(folder).status["left_out"]
    assert (left_out["first"], left_out["last"]) == (10, 10)
    assert left_out["why"].startswith("loss nan" if not more else "loss ")
    assert all(np.isfinite(value).all() for value in load_file(folder / "weights/model.safetensors").values())


@pytest.mark.long
@pytest.mark.parametrize(("devices", "fault", "more"), [(0, NAN, ()), (0, JUMP, SPIKE), (2, NAN, ())])
def test_trouble_rewinds(
    start: Start, whole: Callable[..., Course], tmp_path: Path, devices: int, fault: str, more: tuple[str, ...]
) -> None:
    """Back to the last checkpoint; the steps from it to the trouble teach nothing; killed after it, it is the same.

    On two ranks the loss is sick on one of them, and both go back.
    """
    words = trouble("rewind", *more)
    fault = fault.replace("10", "11") if not devices else f"if RANK == 1: {fault.replace('10', '11')}"
    wanted = whole(*words, devices=devices, fault=fault)
    assert steps_of(wanted) == [step for step in range(1, STEPS + 1) if step not in (10, 11)]
    assert wanted.losses[:9] == whole(*words, devices=devices).losses[:9]
    assert re.search(r"resumed from \S+step-000000009\n", wanted.said)
    assert "steps 10 to 11 are skipped" in wanted.said
    folder = tmp_path / "killed"
    for step in (11, 14):
        again = f"{fault}\nif once('{step}'): at_step({step}, die)"
        assert start(folder, *words, devices=devices, fault=again).wait() != 0
    process = start(folder, *words, devices=devices, fault=fault)
    assert process.wait() == 0, process.said
    assert course(folder) == wanted
    (left_out,) = Run(folder).status["left_out"]
    assert (left_out["first"], left_out["last"]) == (10, 11)
    assert all(np.isfinite(value).all() for value in load_file(folder / "weights/model.safetensors").values())


@pytest.mark.long
def test_trouble_before_any_checkpoint_rewinds_to_the_beginning(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "early"
    process = start(folder, *trouble("rewind"), fault=NAN.replace("10", "2"))
    assert process.wait() == 0, process.said
    assert steps_of(course(folder)) == list(range(3, STEPS + 1))


@pytest.mark.long
@pytest.mark.parametrize("action", ["skip", "rewind"])
def test_too_much_trouble_stops(start: Start, tmp_path: Path, action: str) -> None:
    process = start(tmp_path / "most", *trouble(action, "trouble.most=2"), fault="sick({5, 8, 11}, float('nan'))")
    assert process.wait() == 1
    (line,) = complaints(process.said)
    assert "step 11: loss nan" in line
    assert "steps were skipped 2 times before; wanted at most 2" in line
    assert len(Run(tmp_path / "most").status["left_out"]) == 2
    assert saved(tmp_path / "most")[-1] == 9


# --- disks

FULL_AT = """
steps = {steps}
before(checkpoint.CheckpointWriter, "save", lambda self, step, *_, **__: limit(20_000 if step in steps else 0))
"""


@pytest.mark.long
def test_a_disk_that_is_full_for_a_while(start: Start, whole: Callable[..., Course], tmp_path: Path) -> None:
    folder = tmp_path / "full"
    process = start(folder, "keep=9", fault=FULL_AT.format(steps=[9]))
    assert process.wait() == 0, process.said
    assert re.search(
        r"step-000000009\S*: cannot write: .*\(the last complete one is of step 6\).*training continues", process.said
    )
    assert saved(folder) == [step for step in range(SAVE, STEPS + 1, SAVE) if step != 9]
    assert is_whole(folder)
    assert course(folder) == whole()
    assert Run(folder).status["state"] == "done"


@pytest.mark.long
@pytest.mark.parametrize(("steps", "last"), [([9, 12, 15], 6), ([STEPS], STEPS - SAVE)])
def test_a_disk_that_stays_full(
    start: Start, whole: Callable[..., Course], tmp_path: Path, steps: list[int], last: int
) -> None:
    folder = tmp_path / "full"
    process = start(folder, fault=FULL_AT.format(steps=steps))
    assert process.wait() == 1, process.said
    (line,) = complaints(process.said)
    assert re.search(rf"step-{steps[-1]:09d}\S*: cannot write: .*the last complete one is of step {last}", line)
    assert process.said.count("training continues") == len(steps) - 1
    assert saved(folder)[-1] == last
    assert is_whole(folder)
    goes_on(start, folder, whole(), devices=0)


@pytest.mark.long
def test_a_folder_that_became_read_only(start: Start, tmp_path: Path) -> None:
    """Nothing of a program's insides is shown."""
    fault = """
def refuse(tensors, path, **_):
    if "checkpoints" in str(path):
        raise OSError(errno.EROFS, "Read-only file system", str(path))
import safetensors.torch
before(safetensors.torch, "save_file", refuse)
"""
    process = start(tmp_path / "readonly", fault=fault)
    assert process.wait() == 1
    (line,) = complaints(process.said)
    assert "cannot write: Read-only file system" in line
    assert "no checkpoint is complete" in line


def test_a_broken_safetensors_ends_a_run_before_its_first_step(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path / "broken", fault="import safetensors.torch; del safetensors.torch.save_file")
    assert process.wait() == 1
    (line,) = complaints(process.said)
    assert "safetensors: cannot write checkpoints: cannot import name 'save_file'" in line
    assert not (tmp_path / "broken" / "metrics.jsonl").exists()


MANY = ("save=0", "validate=0", "phase[1].steps=60", "log=10")


@pytest.mark.long
def test_metrics_wait_for_a_full_disk(start: Start, whole: Callable[..., Course], tmp_path: Path) -> None:
    """No half line meanwhile, none lost afterwards; TensorBoard's events are no reason to end."""
    folder = tmp_path / "full"
    fault = """
at_step(6, lambda: limit(4_000))
at_step(45, lambda: (mark("meanwhile"), until("read"), limit(0)))
"""
    process = start(folder, *MANY, fault=fault)
    process.until((tmp_path / "meanwhile").exists)
    text = (folder / "metrics.jsonl").read_text()
    (tmp_path / "read").touch()
    assert 0 < text.count("\n") < 40
    assert text.endswith("}\n")
    assert process.wait() == 0, process.said
    assert "no more TensorBoard events: File too large" in process.said
    assert "metrics.jsonl: cannot write: File too large" in process.said
    assert "metrics are kept in memory until the disk has space" in process.said
    assert course(folder) == whole(*MANY)


@pytest.mark.long
def test_metrics_on_a_full_disk_at_the_end(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    process = start(folder, *MANY, fault="at_step(6, lambda: limit(4_000))")
    assert process.wait() == 1, process.said
    (line,) = complaints(process.said)
    assert "metrics.jsonl: cannot write: File too large" in line
    text = (folder / "metrics.jsonl").read_text()
    assert text.endswith("}\n")
    assert len(read(folder / "metrics.jsonl")) == text.count("\n") > 0


@pytest.mark.long
def test_what_is_said_goes_to_a_full_disk(start: Start, whole: Callable[..., Course], tmp_path: Path) -> None:
    """A scheduler writes what a run says to the same disk: lines are lost, and nothing else."""
    folder = tmp_path / "full"
    fault = "at_step(6, lambda: limit(len(Path(os.environ['SAID']).read_text())))\nat_step(16, lambda: limit(0))"
    process = start(folder, "save=0", fault=fault)
    assert process.wait() == 0, process.said
    assert course(folder) == whole("save=0")


SLOW = """
real = boxes.write
def slowly(*given):
    time.sleep({seconds} if RANK == {rank} else 0)
    real(*given)
boxes.write = slowly
"""


@pytest.mark.long
@pytest.mark.parametrize(("devices", "rank"), [(0, 0), (2, 1)])
def test_a_slow_disk_loses_nothing(
    start: Start, whole: Callable[..., Course], tmp_path: Path, devices: int, rank: int
) -> None:
    wanted, folder = whole(devices=devices), tmp_path / "slow"
    fault = SLOW.format(seconds=0.15, rank=rank)
    process = start(folder, "keep=9", devices=devices, fault=f"{fault}\nif RANK == {rank}: at_step(14, die)")
    assert process.wait() != 0
    assert is_whole_but_for_one(folder)
    process = start(folder, "keep=9", devices=devices, fault=fault)
    assert process.wait() == 0, process.said
    assert saved(folder) == list(range(SAVE, STEPS + 1, SAVE))
    assert is_whole(folder)
    assert course(folder) == wanted


def is_whole_but_for_one(folder: Path) -> bool:
    """What a kill leaves: all that have a name are whole, and at most one has none."""
    stand = [folder / "checkpoints" / f"step-{step:09d}" for step in saved(folder)]
    return not any(map(damage, stand)) and len(list((folder / "checkpoints").glob(".*"))) <= 1


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_that_one_rank_cannot_write(
    start: Start, whole: Callable[..., Course], tmp_path: Path, rank: int
) -> None:
    wanted, folder = whole(devices=2), tmp_path / "part"
    fault = f"""
def refuse(path, *_):
    if RANK == {rank} and any(f"{{step:09d}}" in path.parent.name for step in STEPS):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
before(boxes, "write", refuse)
"""
    process = start(folder, "keep=9", devices=2, fault=f"STEPS = (9, 15)\n{fault}")
    assert process.wait() == 0, process.said
    assert process.said.count("training continues") == 2
    assert process.said.count("No space left on device") == 2
    assert saved(folder) == [step for step in range(SAVE, STEPS + 1, SAVE) if step not in (9, 15)]
    assert is_whole(folder)
    assert course(folder) == wanted
    process = start(tmp_path / "last", devices=2, fault=f"STEPS = ({STEPS},)\n{fault}")
    assert process.wait() == 1, process.said
    (line,) = complaints(process.said)
    assert f"the last complete one is of step {STEPS - SAVE}" in line
    assert is_whole(tmp_path / "last")


# --- ranks with less to do


@pytest.mark.long
@pytest.mark.parametrize(("rows", "mesh"), [(40, "2x1x1"), (8, "1x2x1"), (72, "1x1x2")])
def test_validation_rows_that_do_not_divide(
    start: Start, whole: Callable[..., Course], tmp_path: Path, rows: int, mesh: str
) -> None:
    words = [
        f"validation_rows={rows}",
        "phase[1].steps=4",
        "validate=2",
        "model.dropout=0",
        "model.attention_dropout=0",
    ]
    process = start(tmp_path / "rows", *words, *MESHES[mesh], devices=2)
    assert process.wait() == 0, process.said
    found, alone = course(tmp_path / "rows").validations, whole(*words).validations
    assert [step for step, _ in found] == [2, 4]
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in alone], rel=1e-4)


# --- what cannot be


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["phase[1].batch=7"], "phase[1].batch: found 7; wanted a multiple of the 2 devices"),
        (["layout.shard=3"], "layout.shard: found shard 3 x tensor 1 = 3, which does not divide 2 processes"),
        (["layout.replicate=2", "layout.shard=2"], "layout.replicate: found 2 x 2 x 1 = 4; wanted 2"),
        (["--layout", "2x2x1"], "layout.replicate: found 2 x 2 x 1 = 4; wanted 2"),
        (["layout.tensor=2", "model.heads=1"], "layout.tensor: found 2, which does not divide the model's 1 head;"),
        (["layout.tensor=2", "layout.compile=true"], "compile: found true with tensor 2"),
        (["layout.micro=3"], "phase[1].batch: found 8, not a multiple of micro 3 x 2 devices"),
    ],
)
def test_what_cannot_be_is_refused_once_before_anything_is_written(
    start: Start, tmp_path: Path, words: list[str], wanted: str
) -> None:
    process = start(tmp_path / "never", *words, devices=2)
    assert process.wait() == 1
    (line,) = complaints(process.said)
    assert wanted in line
    assert process.said.strip() == line
    assert not (tmp_path / "never").exists()


@pytest.mark.long
def test_ranks_that_share_every_layer_share_every_row(start: Start, tmp_path: Path) -> None:
    """A batch divides by the ranks that see other rows, not by all."""
    words = ["layout.tensor=2", "phase[1].batch=7", "phase[1].steps=2"]
    process = start(tmp_path / "odd", *words, devices=2)
    assert process.wait() == 0, process.said
