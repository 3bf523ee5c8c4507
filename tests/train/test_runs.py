"""Runs that survive: killed at any moment, stopped, damaged, or short of disk, and gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.makers import job_of, make_words
from kit.processes import Process, run_born
from ordsmed.base import files, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.train import checkpoint, loop
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain, rehearse

pytestmark = pytest.mark.long

Recipe = Callable[..., Path]


def losses(folder: Path) -> list[tuple[int, float, float]]:
    """Step, loss and gradient norm of every training step, to the last bit."""
    lines = [line for line in read(folder / "metrics.jsonl") if "validation" not in line]
    return [(line["step"], line["loss"], line["norm"]) for line in lines]


def judged(folder: Path) -> list[float]:
    return [line["validation"] for line in read(folder / "metrics.jsonl") if "validation" in line]


@pytest.fixture
def start(nursery: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[[Path], Process]]:
    """`ordsmed pretrain RECIPE` in a process of its own."""
    begun: list[Process] = []

    def begin(recipe: Path) -> Process:
        out = tmp_path / f"said-{len(begun)}.txt"
        pid = nursery(words=["pretrain", str(recipe), "--yes"], env={"SAID": str(out)})
        begun.append(Process(pid, lambda: nursery(poll=pid), out))
        return begun[-1]

    yield begin
    for process in begun:
        process.end()


@pytest.mark.parametrize(("kind", "objective"), [("bert", "mlm"), ("gpt2", "clm")])
def test_go_on_after_every_checkpoint_gives_the_same_bits(recipe: Recipe, kind: str, objective: str) -> None:
    whole = pretrain(str(recipe("whole", kind, objective, keep=9)))
    for step in (4, 8):
        cut = recipe(f"cut{step}", kind, objective, keep=9)
        folder = pretrain(str(cut))
        for later in checkpoint.steps(folder / "checkpoints"):
            if later > step:
                shutil.rmtree(folder / "checkpoints" / f"step-{later:09d}")
        Run(folder).set(state="running")
        pretrain(str(folder))
        assert losses(folder) == losses(whole)
        assert judged(folder) == judged(whole)
        last = "checkpoints/step-000000012/model.safetensors"
        assert (folder / last).read_bytes() == (whole / last).read_bytes()


def test_kill_9_at_any_moment_loses_nothing(start: Callable[[Path], Process], recipe: Recipe, tmp_path: Path) -> None:
    whole = pretrain(str(recipe("whole", steps=120)))
    asked = recipe("killed", steps=120)
    folder = tmp_path / "killed"
    for wish in (4, 40, 80):
        process = start(asked)
        process.until((folder / "checkpoints" / f"step-{wish:09d}").exists)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    # what a kill in the middle of writing leaves behind is no checkpoint
    (folder / "checkpoints" / ".step-000000999.part").mkdir()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 999, "lo')
    pretrain(str(folder))
    assert losses(folder) == losses(whole)
    assert judged(folder) == judged(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_saves_first(
    start: Callable[[Path], Process], recipe: Recipe, tmp_path: Path, number: signal.Signals
) -> None:
    asked = recipe("stopped", steps=100_000)
    asked.write_text(asked.read_text().replace("save = 4", "save = 50000").replace("validate = 6", "validate = 0"))
    folder = tmp_path / "stopped"
    process = start(asked)
    process.until((folder / "metrics.jsonl").exists)
    os.kill(process.pid, number)
    assert process.wait() == 128 + number
    status = Run(folder).status
    assert status["state"] == "stopped"
    assert checkpoint.steps(folder / "checkpoints") == [status["step"]]
    assert losses(folder)[-1][0] == status["step"]
    assert f"ordsmed pretrain {folder}" in process.said


def test_a_damaged_checkpoint_is_passed_over(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    whole = pretrain(str(recipe("whole")))
    folder = pretrain(str(recipe("damaged")))
    newest = folder / "checkpoints" / "step-000000012"
    for part, harm in (("model.safetensors", _flip), ("optimizer.safetensors", _halve), ("state.json", _halve)):
        shutil.rmtree(newest)
        shutil.copytree(whole / "checkpoints" / newest.name, newest)
        harm(newest / part)
        Run(folder).set(state="running")
        pretrain(str(folder))
        said = capsys.readouterr().err
        assert str(newest) in said
        assert part in said
        assert "resumed from" in said
        assert "step-000000008" in said
        assert losses(folder) == losses(whole)


def test_no_whole_checkpoint_left_is_refused(recipe: Recipe) -> None:
    folder = pretrain(str(recipe()))
    for step in checkpoint.steps(folder / "checkpoints"):
        _halve(folder / "checkpoints" / f"step-{step:09d}" / "model.safetensors")
    with pytest.raises(DataError, match="damaged"):
        pretrain(str(folder))


def test_only_the_last_few_are_kept(recipe: Recipe) -> None:
    folder = pretrain(str(recipe(keep=2)))
    assert checkpoint.steps(folder / "checkpoints") == [8, 12]


def test_a_full_disk_leaves_the_last_checkpoint(recipe: Recipe) -> None:
    """A limit on file size is what a process can have of a full disk without being root."""
    asked = recipe("full", steps=8)
    small = recipe("small", steps=4)
    assert pretrain(str(small))
    asked.write_text(asked.read_text().replace("width = 32", "width = 64"))
    folder = pretrain(str(asked))
    asked = recipe("full2", steps=8)
    asked.write_text(asked.read_text().replace("width = 32", "width = 64").replace("[layout]", "keep = 5\n[layout]", 1))
    size = (folder / "checkpoints/step-000000004/optimizer.safetensors").stat().st_size
    process = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(asked), str(size)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    lines = [line for line in process.stderr.splitlines() if line.startswith("ordsmed: ")]
    assert len(lines) == 1, process.stderr
    assert "cannot write" in lines[0]
    assert "the last complete one is of step 4" in lines[0]
    assert "Traceback" not in process.stderr
    target = folder.parent / "full2"
    assert checkpoint.steps(target / "checkpoints") == [4]
    assert not list((target / "checkpoints").glob(".*.part"))
    pretrain(str(target))
    assert losses(target) == losses(folder)


_LIMITED = """
import resource, signal, sys
from ordsmed.train.checkpoint import CheckpointWriter
from ordsmed.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
save, limit = CheckpointWriter.save, int(sys.argv[2]) // 2
def saving(self, step, *given, **facts):
    if step > 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    save(self, step, *given, **facts)
CheckpointWriter.save = saving
main(["pretrain", sys.argv[1]])
"""


def test_a_loss_that_is_no_number_stops_the_run(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recipe("nan")
    update = loop.train_step

    def broken(job, batches, rate, index, inner, **more):  # type: ignore[no-untyped-def]
        if inner == 5:
            with __import__("torch").no_grad():
                job.objective.model.words.weight[0, 0] = float("nan")
                job.objective.model.words.weight[7:] = float("nan")
        return update(job, batches, rate, index, inner, **more)

    monkeypatch.setattr(loop, "train_step", broken)
    with pytest.raises(RunError, match=r"step 6: loss nan.*finite.*the last complete one is of step 4"):
        pretrain(str(asked))
    folder = asked.with_suffix("")
    assert checkpoint.steps(folder / "checkpoints") == [4]
    monkeypatch.undo()
    pretrain(str(folder))
    assert losses(folder) == losses(pretrain(str(recipe("whole"))))


@pytest.mark.parametrize("at", [2, 6])
def test_where_no_memory_is_left_it_goes_on_with_fewer_rows_at_a_time(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    update, asked = loop.train_step, recipe("full")
    tried: list[int] = []

    def full(job, batches, rate, index, inner, **more):  # type: ignore[no-untyped-def]
        tried.append(len(batches[0].tokens))
        if inner + 1 == at and tried[-1] > 2:
            raise torch.OutOfMemoryError("no memory")
        return update(job, batches, rate, index, inner, **more)

    monkeypatch.setattr(loop, "train_step", full)
    folder = pretrain(str(asked), ["layout.micro=8"])
    monkeypatch.undo()
    said, since = capsys.readouterr().err, 4 if at > 4 else 0
    for micro in (4, 2):
        assert f"{folder}: out of memory at step {at}: the run continues with layout.micro=[{micro}]\n" in said
    assert tried == [*[8] * at, *[4] * (at - since), *[2] * (12 - since)]
    assert settings.read(folder / "recipe.toml")["layout"]["micro"] == [2]
    other, words = recipe("other"), ["layout.micro=2"]
    if since:
        monkeypatch.setattr(
            loop, "train_step", lambda *a, **k: stop(k["step"] - 1) if k["step"] > 4 else update(*a, **k)
        )

        def stop(step: int) -> None:
            while not checkpoint.steps(other.with_suffix("") / "checkpoints"):  # which is written beside
                time.sleep(0.01)
            raise Stopped(step, 1)

        with pytest.raises(Stopped):
            pretrain(str(other), ["layout.micro=8"])
        monkeypatch.undo()
        other = other.with_suffix("")
    assert losses(pretrain(str(other), words)) == losses(folder)


def test_a_checkpoint_that_is_being_written_counts(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after memory ran out begins there, however long the disk takes to finish it."""
    update, complete, asked, tried = loop.train_step, checkpoint.CheckpointWriter._complete, recipe("slow"), []

    def full(job, batches, rate, index, inner, **more):  # type: ignore[no-untyped-def]
        tried.append((inner + 1, len(batches[0].tokens)))
        if tried[-1] == (5, 8):
            raise torch.OutOfMemoryError("no memory")
        return update(job, batches, rate, index, inner, **more)

    def slow(*asked: Any) -> None:
        time.sleep(0.5)
        complete(*asked)

    monkeypatch.setattr(loop, "train_step", full)
    monkeypatch.setattr(checkpoint.CheckpointWriter, "_complete", slow)
    pretrain(str(asked), ["layout.micro=8"])
    assert tried[5] == (5, 4)


def test_where_no_single_row_fits_it_ends_with_what_to_do(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(loop, "train_step", full)
    with pytest.raises(RunError, match=r"^rank 0, step 1: Default.*memory.*; `layout.recompute=true`, or split"):
        pretrain(str(recipe("none")), ["layout.micro=1"])


def test_a_run_of_another_recipe_is_refused(recipe: Recipe) -> None:
    pretrain(str(recipe()))
    with pytest.raises(RecipeError, match="another recipe"):
        pretrain(str(recipe(seed=7)))
    assert pretrain(str(recipe()))  # the same one stands, and is done


def test_the_same_recipe_goes_on_and_a_folder_takes_no_overrides(recipe: Recipe) -> None:
    folder = pretrain(str(recipe()))
    with pytest.raises(RecipeError, match="keeps its recipe"):
        pretrain(str(folder), ["seed=3"])


def test_epochs_become_steps_when_the_data_stand(recipe: Recipe) -> None:
    """The run's own recipe says how many; with the same recipe it is the same run."""
    asked = recipe("epochs", steps=3)
    asked.write_text(asked.read_text().replace("steps = 3", "epochs = 2"))
    folder = pretrain(str(asked))
    text = (folder / "recipe.toml").read_text()
    job = job_of(asked, "phase.epochs=0", "phase.steps=3")
    steps = round(2 * len(job.rows(0)) / job.phases[0].batch)
    assert f"steps = {steps}\n" in text
    assert checkpoint.steps(folder / "checkpoints")[-1] == steps
    assert pretrain(str(asked)) == folder
    with pytest.raises(RecipeError, match=rf"phase\[1\].warmup: found {steps + 1}; wanted 0 to {steps} steps"):
        pretrain(str(asked), [f"phase.warmup={steps + 1}"])


def test_a_deadline_fits_steps(recipe: Recipe) -> None:
    asked = recipe("late", steps=1_000_000, extra="\n[[phase]]\nsteps = 500_000\nlength = 64\nbatch = 8\nrate = 1e-3")
    folder = pretrain(str(asked), deadline=4.0)
    status = Run(folder).status
    text = (folder / "recipe.toml").read_text()
    steps = [int(line.split("=")[1]) for line in text.splitlines() if line.startswith("steps")]
    assert status["steps_asked"] == [1_000_000, 500_000]
    assert 1 <= steps[0] < 1_000_000
    assert 1 <= steps[1] < 500_000
    assert status["step"] == sum(steps)
    pretrain(str(folder), deadline=1.0)
    assert (folder / "recipe.toml").read_text() == text


def test_a_deadline_never_adds_steps(recipe: Recipe) -> None:
    folder = pretrain(str(recipe("early", steps=5)), deadline=3600.0)
    assert Run(folder).status["step"] == 5


def test_metrics_and_status_tell_the_run(recipe: Recipe) -> None:
    folder = pretrain(str(recipe()))
    lines = [line for line in read(folder / "metrics.jsonl") if "validation" not in line]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert {"loss", "mlm", "rate", "norm", "seconds", "tokens", "phase"} <= lines[0].keys()
    for line in lines:
        assert line["tokens_per_second"] == pytest.approx(line["tokens"] / line["seconds"], rel=0.2, abs=1)
        assert (line["left"] > 0) == (line["step"] < 12)
    assert lines[0]["left"] == pytest.approx(11 * sum(line["seconds"] for line in lines[:4]) / 4, rel=0.05)
    status = Run(folder).status
    assert status["state"] == "done"
    assert status["tokens"] == 12 * 8 * 32
    assert status["unigram"] > 0
    assert (folder / "weights" / "model.safetensors").exists()
    assert json.loads((folder / "environment.json").read_text())["torch"]


def test_every_complaint_is_one_line(recipe: Recipe) -> None:
    for text, wanted in (("lenght = 128", "did you mean `phase.length`"), ("length = 128", "64 positions")):
        asked = recipe("bad")
        asked.write_text(asked.read_text().replace("length = 32", text))
        with pytest.raises(OrdsmedError) as caught:
            pretrain(str(asked))
        assert wanted in str(caught.value)
        assert "\n" not in str(caught.value)


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 0xFF
    path.write_bytes(raw)


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_tensorboard_events_where_it_is_installed(recipe: Recipe) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = pretrain(str(recipe()))
    shutil.rmtree(folder / "checkpoints" / "step-000000012")
    pretrain(str(folder))  # steps 9 to 12 are made again, and stand once
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("training/loss")] == list(range(1, 13))
    assert [e.step for e in events.Scalars("validation/validation")] == [6, 12]
    assert events.Scalars("training/loss")[3].value == pytest.approx(losses(folder)[3][1])


def test_a_recipe_that_was_refused_can_be_mended(recipe: Recipe) -> None:
    asked = recipe()
    with pytest.raises(RecipeError, match=r"run\.toml: phase\[1\]\.batch: found 8, not a multiple"):
        pretrain(str(asked), ["layout.micro=3"])
    assert Run(pretrain(str(asked))).status["state"] == "done"
    with pytest.raises(RecipeError, match="another recipe"):
        pretrain(str(asked), ["seed=9"])


def test_a_run_does_not_go_on_with_other_data(recipe: Recipe, store: Path) -> None:
    folder = pretrain(str(recipe()))
    shutil.rmtree(folder / "checkpoints" / "step-000000012")
    before = Run(store).status["fingerprint"]
    try:
        Run(store).set(fingerprint="another")
        with pytest.raises(RecipeError, match="this run was started with"):
            pretrain(str(folder))
    finally:
        Run(store).set(fingerprint=before)
    pretrain(str(folder))


def test_a_folder_of_the_users_is_not_taken(recipe: Recipe, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for anew in (False, True):
        with pytest.raises(RecipeError, match="were not made by `ordsmed`"):
            pretrain(str(recipe()), [f'out="{mine}"'], anew=anew)
    assert (mine / "thesis.txt").exists()


@pytest.mark.parametrize(
    "word", ["clip=-1.0", "save=-1", "layout.micro=-1", "layout.device=foo", "model.initializer_std=-1.0"]
)
def test_numbers_that_cannot_be(recipe: Recipe, word: str) -> None:
    with pytest.raises(RecipeError, match="wanted"):
        pretrain(str(recipe()), [word])


def elmo(folder: Path, *top: str, phases: tuple[tuple[int, int], ...] = ((8, 6),)) -> Path:
    """A recipe of a small ELMo; phases are streams and steps."""
    path, words = folder / "elmo.toml", folder / "words"
    if not words.exists():
        make_words(words)
    lines = [
        f'data = "{words}"',
        f'out = "{folder / "elmo"}"',
        "save = 2",
        "validate = 0",
        *top,
        '[layout]\ndevice = "cpu"\nthreads = 1',
        '[model]\nkind = "elmo"\nwidth = 16\ncells = 24',
        "filters = [[1, 8], [3, 8]]",
        '[objective]\nkind = "bilm"\nsamples = 0',
    ]
    lines += [f"[[phase]]\nsteps = {steps}\nlength = 6\nbatch = {batch}\nrate = 1e-3" for batch, steps in phases]
    path.write_text("\n".join(lines) + "\n")
    return path


def broken_once(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """One step of the run whose loss is no number, the first time it comes."""
    look, seen = loop.find_trouble, []

    def looked(job, found, norm):  # type: ignore[no-untyped-def]
        seen.append(1)
        return "loss nan" if len(seen) == at else look(job, found, norm)

    monkeypatch.setattr(loop, "find_trouble", looked)


@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_run_that_carries_states_rewinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """To its start, into a phase, and to the border of one with other streams, and on from there with the same bits."""
    path = elmo(tmp_path, 'trouble = { action = "rewind" }', phases=((8, 6), (4, 4)))
    broken_once(monkeypatch, at)
    folder = pretrain(str(path))
    monkeypatch.undo()
    whole = losses(folder)
    assert Run(folder).status["step"] == 10
    for step in checkpoint.steps(folder / "checkpoints"):
        if step > 8:
            shutil.rmtree(folder / "checkpoints" / f"step-{step:09d}")
    Run(folder).set(state="running")
    pretrain(str(folder))
    assert losses(folder) == whole


def test_another_number_of_streams_begins_anew_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pretrain(str(elmo(tmp_path)))
    for step in checkpoint.steps(folder / "checkpoints"):
        if step > 2:
            shutil.rmtree(folder / "checkpoints" / f"step-{step:09d}")
    Run(folder).set(state="running")
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("batch = 8", "batch = 4"))
    pretrain(str(folder))
    assert "has h of 8 streams, the run has 4: all streams start empty" in capsys.readouterr().err
    assert Run(folder).status["step"] == 6


def test_a_run_goes_on_with_its_own_threads(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bits depend on their number, so the load of the machine must not choose another one; where they do not fit, it
    is said."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)))
    monkeypatch.setattr("ordsmed.base.machine.threads._idle_cores", lambda share: 1)
    threads = torch.get_num_threads()
    try:
        folder = pretrain(str(recipe(steps=8)), ["layout.threads=2"])
        assert files.read_json(folder / "checkpoints" / "step-000000008" / "state.json")["threads"] == 2
        assert Run(folder).status["threads"] == 2
        text = (folder / "recipe.toml").read_text()
        for cores, taken in ((3, 2), (1, 1)):
            shutil.rmtree(folder / "checkpoints" / "step-000000008")
            Run(folder).set(state="stopped")
            (folder / "recipe.toml").write_text(text.replace("threads = 2", "threads = 0"))
            monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
            capsys.readouterr()
            pretrain(str(folder))
            assert Run(folder).status["threads"] == taken
            assert ("threads 2, now 1: losses will agree" in capsys.readouterr().err) == (taken == 1)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_begins_with_data_that_are_whole(
    recipe: Recipe, store: Path, tmp_path: Path, ranks: int, nursery: Any
) -> None:
    shutil.copytree(store, tmp_path / "store")
    data = bytearray((tmp_path / "store/train.bin").read_bytes())
    Run(tmp_path / "store").set(checksums={"train.bin": files.checksum(tmp_path / "store/train.bin")})
    data[len(data) // 2] ^= 1
    whole = (tmp_path / "store/train.bin").read_bytes()
    (tmp_path / "store/train.bin").write_bytes(data)
    path = recipe(data=str(tmp_path / "store"), steps=2)
    if ranks == 2:
        done = run_born(nursery, tmp_path, "pretrain", path, "--devices", "2")
        assert (done.returncode, done.stderr.count("is damaged")) == (1, 1), done.stderr
        return
    with pytest.raises(DataError, match=r"store/train\.bin: is damaged: checksum \w+; wanted \w+, the recorded one"):
        pretrain(str(path))
    assert not (tmp_path / "run/checkpoints").exists()
    (tmp_path / "store/train.bin").write_bytes(whole)
    pretrain(str(path))


def test_a_start_that_is_not_there_is_refused_before_data_are_made(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = recipe(data="stdlib-wordpiece", init=str(tmp_path / "nowhere"))
    for act in (lambda: pretrain(str(path)), lambda: rehearse(str(path))):
        with pytest.raises(RecipeError, match=r"init: found \S+nowhere, no such folder; wanted a run"):
            act()
    assert not Path("work").exists()
