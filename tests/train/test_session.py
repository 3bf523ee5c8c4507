"""The deed of a training in its parts: what is put back from a checkpoint, how it rewinds, tells and deletes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.clocks import set_time
from kit.makers import change, job_of
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError, Trouble
from ordsmed.base.run import Run
from ordsmed.base.say import log_to
from ordsmed.learn.objective import Objective
from ordsmed.nn.model import own_tensors
from ordsmed.train import checkpoint, loop, request, results, resume, runner, session
from ordsmed.train.callbacks import Replanned
from ordsmed.train.job import Job
from ordsmed.train.memory import RankMemory
from ordsmed.train.plan import planned
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.request import requested
from ordsmed.train.saving import Saving
from ordsmed.train.trouble import Rewind
from ordsmed.weights import weights
from ordsmed.weights.trained_model import open_model

Recipe = Callable[..., Path]
TWO = '[[phase]]\nsteps = 2\nlength = 16\nbatch = 4\nrate = 1e-3\nschedule = "constant"'


@pytest.fixture
def job(recipe: Recipe) -> Callable[..., Job]:
    return lambda *words: job_of(recipe(steps=3, extra=TWO), "model.width=16", "model.layers=1", *words)


def test_validations_up_to_the_step_that_is_gone_on_from(tmp_path: Path) -> None:
    lines = [
        {"step": 2, "loss": 1.0},
        {"step": 2, "validation": 3.0},
        {"step": 4, "validation": 2.0},
        {"step": 6, "validation": 1.0},
    ]
    assert resume._validations(tmp_path, 4) == []
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert resume._validations(tmp_path, 4) == lines[1:3]


@pytest.mark.parametrize("step", [2, 3])
def test_a_checkpoint_is_put_back(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    words = ("trouble.spike=9.0", "trouble.window=3")
    one, other = job(*words), job("seed=1", *words)
    for each in (one, other):
        each.scaler.window, each.scaler.factor = 5, 64.0
    batches = next(loop.load(one.rows(0), one.share(0), 0, 1, workers=0, device=one.ranks.device))
    loop.train_step(one, batches, 1e-3, 0, 0)
    one.state.losses.trouble(1.5, 1.0)
    one.objective.state["h"] = torch.full((8, 1), 3.0)
    other.objective.state["h"] = torch.zeros(8, 1)
    Saving(one, tmp_path).save(step, final=True)
    path, state = checkpoint.latest(tmp_path / "checkpoints", place=tmp_path) or (tmp_path, {})
    other.scaler.factor = 1.0
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(Objective, "begin", lambda self, first, count: begun.append((first, count)))
    assert resume.restore(other, path, state) == step
    for ours, theirs in zip(one.parts, other.parts, strict=True):
        assert torch.equal(ours.local, theirs.local)
        moments = (one.optimizer.state[ours.local], other.optimizer.state[theirs.local])
        assert torch.equal(moments[0]["exp_avg"], moments[1]["exp_avg"])
    assert list(other.state.losses.losses) == list(one.state.losses.losses)
    assert other.state.losses.losses[-1] == 1.5
    assert (other.state.losses.losses.maxlen, other.scaler.factor) == (3, 64.0)
    assert begun == ([(0, 8)] if step == 2 else [])
    assert bool(other.objective.state) == (step == 2)
    if step == 2:
        assert float(other.objective.state["h"].sum()) == 24.0


def test_other_circumstances_are_told(
    job: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Saving(job(), tmp_path).save(2, final=True)
    path, state = checkpoint.latest(tmp_path / "checkpoints", place=tmp_path) or (tmp_path, {})
    resume.restore(job(), path, state)
    assert "losses will agree" not in capsys.readouterr().err
    resume.restore(job("layout.micro=2"), path, {**state, "threads": 99})
    said = capsys.readouterr().err
    assert "saved with threads 99, now 1; micro [8, 4], now [2, 2]: losses will agree except for rounding" in said
    resume.restore(job("layout.micro=2"), path, {**state, "threads": 99}, over=True)
    assert "losses will agree" not in capsys.readouterr().err, "nothing is learned any more"
    resume.restore(job(), path, {**state, "machine": "NVIDIA A100", "kernels": ["gelu"], "triton": "3.6.0"})
    said = capsys.readouterr().err
    assert f"machine NVIDIA A100, now {state['machine']}; kernels ['gelu'], now []; triton 3.6.0, now none: " in said
    resume.restore(job(), path, {k: v for k, v in state.items() if k not in ("machine", "kernels", "triton")})
    assert "losses will agree" not in capsys.readouterr().err, "a checkpoint of before says nothing of these"
    resume.restore(job("layout.precision=bf16", "layout.fp8=true"), path, state)
    assert "saved with precision fp32, now bf16, fp8: losses will agree" in capsys.readouterr().err


def test_it_rewinds_as_often_as_it_must(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being written is waited for; all from the checkpoint on to the trouble teaches nothing; then it ends."""
    own, done = job(), []
    back = iter([(6, 4), (9, 4)])

    def train(job: Job, folder: Path, start: int, *_: Any, **__: Any) -> int:
        done.append(f"from {start}")
        for step, _ in back:
            raise Rewind(step, f"loss {step}")
        return 12

    monkeypatch.setattr(loop, "train", train)
    monkeypatch.setattr(runner, "last_checkpoint", lambda *_: (tmp_path, {"step": 4}))
    monkeypatch.setattr(runner, "restore", lambda *_: done.append("restored") or 4)
    saving: Any = SimpleNamespace(wait=lambda: done.append("settled"))
    runner._run_loop(plan_of(own.recipe, own.ranks, data=own.data), own, tmp_path, 0, 1e12, saving, None)  # type: ignore[arg-type]
    assert done == ["from 0", "settled", "restored", "from 4", "settled", "restored", "from 4"]
    assert own.state.left_out == [{"first": 5, "last": 6, "why": "loss 6"}, {"first": 5, "last": 9, "why": "loss 9"}]


def test_what_is_told_before_the_first_step(job: Callable[..., Job]) -> None:
    own = job("average=0.9", 'layout.precision="fp32"')
    assert runner._machine_lines(own, 3e12) == [
        "cpu, 1 thread; measured peak of all 3 TFLOP/s",
        own.precision,
        *filter(None, [own.kernels]),
    ]
    change(own, ranks=dataclasses.replace(own.ranks, world=2))
    assert runner._machine_lines(own, 3e12)[0].startswith("2 processes, each cpu, 1 thread; ")
    plan = PretrainingPlan.of(own.recipe, planned(own.recipe.layout)).completed(make=False)
    count, lines = sum(p.numel() for p in own.objective.parameters()), plan.lines()
    assert lines[1].startswith("positions: 64, for good: ")
    del lines[1]
    assert lines[1].startswith(f"network: {count:,} parameters, ")
    assert lines[5].endswith(" passes over 3,838 tokens")
    assert lines[6].startswith("layout: 1 x 1 x 1")
    assert [line.partition(";")[0] for line in lines[7:9]] == [
        "phase 1: 3 steps of 8 rows x 32 tokens",
        "phase 2: 2 steps of 4 rows x 16 tokens",
    ]
    assert lines[9].startswith("attention: plain products")
    assert lines[10:] == RankMemory(4 * count, 3).lines, "two moments and the mean"


def test_a_folder_is_deleted_with_what_a_kill_left_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / ".run.removed").mkdir()
    (tmp_path / ".run.removed" / "older").write_text("")
    resume._remove(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_examples_of_a_program_outlive_a_folder_that_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "run/examples").mkdir(parents=True)
    (tmp_path / "run/examples/train-1.jsonl").touch()
    (tmp_path / "run/status.json").touch()
    resume._remove(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["examples", "train-1.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_who_comes_to_a_folder_goes_on_begins_or_is_refused(job: Callable[..., Job], tmp_path: Path) -> None:
    recipe, folder, words = job().recipe, tmp_path / "run", ["tiny/bert"]

    def stands(words: list[str], *, anew: bool) -> bool:
        return resume.is_resumed(plan_of(recipe, None), asked_for(recipe, folder, *words, anew=anew))

    mark = session.run.fingerprint(recipe)
    assert not stands(words, anew=False)
    folder.mkdir()
    Run(folder).set(verb="pretrain", fingerprint=mark)
    assert not stands(words, anew=False), "killed between the first two files of a run"
    (folder / "recipe.toml").write_text("")
    assert stands(words, anew=False)
    assert stands([str(folder)], anew=False)
    Run(folder).set(fingerprint="another")
    (folder / "checkpoints" / "step-000000003").mkdir(parents=True)
    assert stands([str(folder)], anew=False), "a folder means itself"
    with pytest.raises(RecipeError, match="holds a run of another recipe or of other data"):
        stands(words, anew=False)
    (folder / "checkpoints" / "step-000000003").rmdir()
    assert not stands(words, anew=False)
    assert not folder.exists(), "it never came to a checkpoint"
    folder.mkdir()
    Run(folder).set(verb="pretrain", fingerprint=mark)
    (folder / "recipe.toml").write_text("")
    assert not stands(words, anew=True)
    assert not folder.exists()
    assert (folder.with_name(f"{folder.name}.old-1") / "recipe.toml").exists(), "set aside, not deleted"


def test_a_restart_of_torchrun_does_not_begin_anew_again(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    recipe = job().recipe
    Run(tmp_path).set(verb="pretrain", fingerprint=session.run.fingerprint(recipe))
    (tmp_path / "recipe.toml").write_text("")
    assert resume.is_resumed(plan_of(recipe, None), asked_for(recipe, tmp_path, anew=True))


def test_what_is_asked_of_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "site_layout", lambda site: {"threads": 3, "device": "cuda"})
    words = ["layout.micro=2", "trouble.window=3", "layout.workers=0"]
    assert (
        request._layout_overrides(words, "", "") == request._layout_overrides(words, "auto", "") == {"micro", "workers"}
    )
    assert request._layout_overrides([], "1x2x1", "") == {"replicate", "shard", "tensor"}
    assert request._layout_overrides(["layout.micro=2"], "", "big") == {"micro", "threads", "device"}


@pytest.mark.parametrize("gpu", [False, True])
def test_a_run_of_a_gpu_goes_on_without_one(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    on_cpu = job().recipe
    kept = dataclasses.replace(on_cpu, layout=dataclasses.replace(on_cpu.layout, device="cuda:1", replicate=2))
    found, changed = request.fit_layout(kept, tmp_path, 1, set())
    assert (found.layout.device, found.layout.replicate) == ("cuda:1" if gpu else "auto", 0)
    told = "its layout on 1 process: 2 x 1 x 1 became 1 x 1 x 1"
    assert changed == (told if gpu else f"{told}; no GPU: device cuda:1 became auto")
    assert request.fit_layout(kept, tmp_path, 2, {"device"}) == (kept, "")
    assert request.fit_layout(on_cpu, tmp_path, 1, set()) == (on_cpu, "")


def test_a_run_is_asked_for_by_its_folder_or_a_recipe(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipe("asked")
    first = requested(Pretraining, str(path), ["seed=4", "layout.micro=4"], "1x1x1", "")
    folder, found = first.folder, first.recipe
    assert (folder, found.seed, found.layout.micro, found.layout.replicate) == (tmp_path / "asked", 4, 4, 1)
    with pytest.raises(RecipeError, match="seed: found -1"):
        requested(Pretraining, str(path), ["seed=-1"], "", "")
    folder.mkdir()
    Run(folder).set(verb="pretrain", state="running", layouts=[])
    (folder / "recipe.toml").write_text(path.read_text() + "[trouble]\nwindow = 7\n")
    monkeypatch.setattr(request, "site_layout", lambda site: {"threads": 3, "micro": 1})
    again = requested(Pretraining, str(folder), ["layout.micro=2", "trouble.window=9"], "auto", "big")
    found = again.recipe
    assert (again.folder, found.layout.micro, found.layout.threads, found.trouble.window) == (folder, 2, 3, 9)
    with pytest.raises(RecipeError, match="is a run, which cannot be resumed with seed=4; a resumed run keeps"):
        requested(Pretraining, str(folder), ["layout.micro=2", "seed=4"], "", "")
    capsys.readouterr()
    (folder / "recipe.toml").write_text(path.read_text().replace("[layout]", "[layout]\nshard = 2"))
    fitted = requested(Pretraining, str(folder), [], "", "")
    fitted.tell()
    assert fitted.recipe.layout.shard == 1
    assert f"{folder}: its layout on 1 process: any x 2 x 1 became 1 x 1 x 1" in capsys.readouterr().err
    Run(folder).set(state="done")
    fitted.tell()
    assert capsys.readouterr().err == "", "nothing is left to be laid out"
    Run(folder).set(verb="finetune")
    with pytest.raises(RecipeError, match="is the folder of a `finetune`; wanted that of a `pretrain`"):
        requested(Pretraining, str(folder), [], "", "")


def test_a_folder_notes_where_it_lay(job: Callable[..., Job], tmp_path: Path) -> None:
    """One entry a change; what was noted of steps that will be made again goes."""
    own = job()
    lay = {"processes": 1, "mesh": [1, 1, 1]}
    other = {"from": 2, "processes": 2, "mesh": [2, 1, 1]}
    for before, step, wanted in (
        ([], 0, [{"from": 0, **lay}]),
        ([{"from": 0, **lay}], 4, [{"from": 0, **lay}]),
        ([{"from": 0, **lay}, other], 4, [{"from": 0, **lay}, other, {"from": 4, **lay}]),
        ([{"from": 0, **lay}, other], 2, [{"from": 0, **lay}]),
        ([{"from": 0, **lay}], 0, [{"from": 0, **lay}]),
    ):
        Run(tmp_path).set(layouts=before)
        runner._record_start(tmp_path, own, step)
        assert Run(tmp_path).status["layouts"] == wanted
    status = Run(tmp_path).status
    assert (status["state"], status["data"], status["threads"], status["phases_before"]) == (
        "running",
        own.recipe.stamp(),
        1,
        0,
    )
    assert status["began_with"] == own.began_with
    assert status["flops"] == [own.objective.flops(8, 32), own.objective.flops(4, 16)]
    assert (tmp_path / "tokenizer" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "data.json").read_text()) == own.data.facts()
    assert Pretraining is type(session.run.read_recipe(Pretraining, tmp_path))


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ([["gone", 1]], "other data: .*; wanted the data this run was started with"),
        (None, "fewer documents or files; wanted the data"),
    ],
)
def test_a_run_goes_on_with_its_own_data(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Any, said: str
) -> None:
    """What is there and was not is named; of less there is nothing to name."""
    recipe: Any = job().recipe
    stamp = [list(entry) if isinstance(entry, tuple) else entry for entry in recipe.stamp()]
    Run(tmp_path).set(data=before or [*stamp, ["more", 1]])
    monkeypatch.setattr(runner, "last_checkpoint", lambda *_: (tmp_path, {"step": 4}))
    with pytest.raises(RecipeError, match=said):
        runner.run_to_end(plan_of(recipe, job().ranks), tmp_path, None)  # type: ignore[arg-type]


def test_a_deadline_counts_from_the_start(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    shorter = job("seed=5").recipe

    def fit(plan: Any, seconds: float) -> Any:
        asked.append(seconds)
        return shorter, {"asked": [[3, 0]], "learning": [0.1], "judging": 0.0}

    own = job()
    plan = plan_of(own.recipe, own.ranks)
    monkeypatch.setattr(session, "fit", fit)
    set_time(monkeypatch, session, time=lambda: 1100.0)
    assert session._record_new_run(plan, asked_for(own.recipe, tmp_path / "a", began=1000.0, deadline=500.0)) is shorter
    status = Run(tmp_path / "a").status
    assert (asked, status["deadline"], status["began"], status["steps_asked"]) == ([400.0], 500.0, 1000.0, [3, 2])
    assert (status["fit"]["learning"], status["state"]) == ([0.1], "running")
    assert status["fingerprint"] == session.run.fingerprint(own.recipe), "of what was asked for, not of what fits"
    made = session._record_new_run(plan, asked_for(own.recipe, tmp_path / "b", began=1000.0))
    assert (made, len(asked), "fit" in Run(tmp_path / "b").status) == (own.recipe, 1, False)


def test_another_plan_is_followed(job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def train(job: Job, folder: Path, start: int, peak: float, **_: Any) -> int:
        starts.append(start)
        if start == 0:
            raise Replanned(2, [[2, 0.0], [1, 0.0]])
        return 3

    monkeypatch.setattr(loop, "train", train)
    own = job()
    saving: Any = SimpleNamespace(job=own)
    new = runner._run_loop(plan_of(own.recipe, own.ranks, data=own.data), own, tmp_path, 0, 1e12, saving, None)  # type: ignore[arg-type]
    assert starts == [0, 2]
    assert [phase.steps for phase in new.phases] == [2, 1]
    assert saving.job is new


def test_seconds_that_were_used_are_those_of_steps_that_stand(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"step": n, "loss": 1.0, "seconds": float(n)} for n in range(1, 6)] + [{"step": 3, "validation": 1.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given: list[Any] = []
    monkeypatch.setattr(runner.Deadline, "of", lambda *how: given.append(how[2:]))
    monkeypatch.setattr(loop, "train", lambda *_, **__: 5)
    for start in (3, 0):
        runner._run_loop(SimpleNamespace(callbacks=()), job(), tmp_path, start, 1e12, None, None)  # type: ignore[arg-type]
    assert given == [(3, 6.0), (0, 0)]


def test_a_run_is_not_deleted_again_by_a_restart_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who restarts on several machines has no common count of restarts."""
    monkeypatch.setattr(request, "requested", lambda *_, **__: (_ for _ in ()).throw(LookupError))
    for restarts, machines, refused in (("1", "2", True), ("0", "2", False), ("1", "1", False)):
        monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", restarts)
        monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
        with pytest.raises(RecipeError if refused else LookupError):
            session.run_session(PretrainingPlan, "x", anew=True)
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    with pytest.raises(LookupError):
        session.run_session(PretrainingPlan, "x")


def test_most_of_a_run_must_have_taught_something(job: Callable[..., Job], tmp_path: Path) -> None:
    own = job()  # of 5 steps
    own.state.left_out = [{"first": 1, "last": 2, "why": "loss nan"}]
    results._check_learned(own, tmp_path)
    own.state.left_out.append({"first": 4, "last": 4, "why": "norm inf"})
    with pytest.raises(
        Trouble, match="3 of 5 steps were skipped, the last for norm inf; wanted at least half of the steps trained"
    ):
        results._check_learned(own, tmp_path)


def test_weights_are_left_with_what_opens_them(job: Callable[..., Job], tmp_path: Path) -> None:
    own = job()
    tensors = own_tensors(own.objective)
    results.leave_weights(own, tmp_path / "weights", tensors)
    opened = open_model(tmp_path / "weights")
    assert opened.settings == own.objective.model_settings
    found = own_tensors(opened.objective)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_weights_that_are_there_already_stay(job: Callable[..., Job], tmp_path: Path) -> None:
    small = job()
    tensors, place = own_tensors(small.objective), tmp_path / "weights"
    results.leave_weights(small, place, tensors)
    times = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    results.leave_weights(small, place, tensors)
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()} == times
    for spoil in (lambda path: path.write_bytes(b"half"), lambda path: path.unlink()):
        spoil(place / "model.safetensors")
        results.leave_weights(small, place, tensors)
        assert weights.digest(weights.read(place / "model.safetensors")) == weights.digest(tensors)
    other = {name: tensor + 1 for name, tensor in tensors.items()}
    results.leave_weights(small, place, other)
    assert weights.digest(weights.read(place / "model.safetensors")) == weights.digest(other)
    (place / "settings.toml").write_text("")
    results.leave_weights(small, place, other)
    assert open_model(place).settings == small.objective.model_settings


def asked_for(recipe: Any, folder: Path, *words: str, **how: Any) -> request.Request:
    return request.Request(recipe, folder, words or ("tiny/bert",), **how)


def plan_of(recipe: Any, ranks: Any, **more: Any) -> Any:
    """As much of a plan as a session has to do with."""
    plan = SimpleNamespace(
        recipe=recipe,
        ranks=ranks,
        recipes=Pretraining,
        callbacks=(),
        network=recipe.model,
        lines=lambda: ["planned"],
        subject=lambda: "bert: 9 parameters",
        finish=lambda job, folder: {"finished": True},
        **{"verify": lambda: None, **more},
    )
    plan.by = lambda recipe: plan_of(recipe, ranks, **more)
    return plan


@pytest.fixture
def going(job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Goes on with a run of five steps, as a way does whose loop only notes what it is given."""
    noted: list[Any] = []

    def go(
        *words: str, found: int | None = None, ends: BaseException | None = None, finite: bool = True, **ranks: Any
    ) -> Any:
        own = job(*words)
        change(own, kernels="")  # on some CPUs there are some
        if ranks:
            change(own, ranks=dataclasses.replace(own.ranks, **ranks))

        def train(plan: Any, job: Job, folder: Path, start: int, peak: float, saving: Any, watch: Any) -> Job:
            noted.append(("train", start, peak))
            if ends:
                raise ends
            return job

        plan = plan_of(
            own.recipe,
            own.ranks,
            build=lambda resume_state: noted.append(("build", resume_state)) or own,
            verify=lambda: noted.append("verified"),
        )
        state = {"step": found}
        Run(tmp_path).set(verb="pretrain")
        monkeypatch.setattr(runner, "_run_loop", train)
        monkeypatch.setattr(runner, "_machine_lines", lambda job, peak: ["lent"])
        monkeypatch.setattr(runner, "measured_peak", lambda *_: 2e9)
        monkeypatch.setattr(
            runner, "last_checkpoint", lambda *_: (tmp_path / "step", state) if found is not None else None
        )
        monkeypatch.setattr(resume, "restore", lambda *_, over=False: noted.append(("restore", over)))
        monkeypatch.setattr(runner, "_record_start", lambda folder, job, start: noted.append(("note", start)))
        monkeypatch.setattr(Job, "finite", property(lambda self: finite))
        saver = SimpleNamespace(
            save=lambda step: noted.append(("save", step)),
            wait=lambda: noted.append("settle"),
            finish_writing=lambda: noted.append("wait"),
        )
        monkeypatch.setattr(runner, "Saving", lambda job, folder: saver)
        return runner.run_to_end(plan, tmp_path, None)  # type: ignore[arg-type]

    return go, noted


def test_a_start_is_told_in_a_few_lines(
    going: Any, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    go, _ = going
    with log_to(tmp_path / "log"):
        go()
    short = capsys.readouterr().err.splitlines()
    assert len(short) == 4
    assert (tmp_path / "log").read_text().splitlines() == [*short, "planned", "lent"]
    request.getfixturevalue("details")
    go(found=4)
    assert capsys.readouterr().err.splitlines() == [*short[:2], f"resumed from {tmp_path}/step", "planned", "lent"]


def test_a_run_begins(going: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go, noted = going
    assert go() == {"finished": True}
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == ["bert: 9 parameters", "on cpu, 1 thread, fp32"]
    assert told[2:] == [f"in {tmp_path}; Ctrl-C saves the run; resume it with:", f"    ordsmed pretrain {tmp_path}"]
    assert noted == ["verified", ("build", None), ("note", 0), ("train", 0, 2e9)]
    noted.clear()
    go("trouble.action=rewind")
    assert noted == ["verified", ("build", None), ("note", 0), ("save", 0), ("train", 0, 2e9)]
    noted.clear()
    go(world=3, shape=(1, 1, 3))
    assert noted[-1] == ("train", 0, 6e9)


def test_a_run_goes_on(going: Any) -> None:
    go, noted = going
    assert go("trouble.action=rewind", found=4) == {"finished": True}
    assert noted == [("build", {"step": 4}), ("restore", False), ("note", 4), ("train", 4, 2e9)]


def test_what_is_over_stays_as_it_lies(
    going: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go, noted = going
    assert go(found=5) == {"finished": True}
    assert noted == [("build", {"step": 5}), ("restore", True)]
    assert f"{tmp_path}: all 5 steps are done" in capsys.readouterr().err
    monkeypatch.setattr(Pretraining, "is_enough", lambda self, judged: True)
    noted.clear()
    go(found=3)
    assert ("restore", True) in noted
    assert f"{tmp_path}: stopped early, at step 3 of 5, and is done" in capsys.readouterr().err
    noted.clear()
    go()
    assert noted[-1] == ("train", 0, 2e9), "what has not begun is not over"


def test_a_checkpoint_of_no_numbers_is_not_gone_on_from(going: Any, tmp_path: Path) -> None:
    go, _ = going
    for before, said in (((), "wanted finite ones; "), ((2, 4), "delete it to resume from step 2; or ")):
        for step in before:
            (tmp_path / "checkpoints" / f"step-{step:09d}").mkdir(parents=True)
        with pytest.raises(Trouble, match="has weights with NaN or Inf") as error:
            go(found=4, finite=False)
        assert said in str(error.value)
        assert ("delete it" in str(error.value)) == bool(before)


def test_how_a_run_ends(going: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go, noted = going
    for step, said in ((3, "saved at step 3 of 5"), (0, "stopped before its first step")):
        with pytest.raises(Stopped):
            go(ends=Stopped(step, 15))
        status = Run(tmp_path).status
        assert (status["state"], status["step"]) == ("stopped", step)
        assert f"{said}; resume it with:\n    ordsmed pretrain {tmp_path}" in capsys.readouterr().err
    Run(tmp_path).set(state="running")
    with pytest.raises(Stopped):
        go(ends=Stopped(1, 15), rank=1, world=2, shape=(1, 1, 2))
    assert Run(tmp_path).status["state"] == "running", "the first rank writes it"
    noted.clear()
    with pytest.raises(Trouble):
        go(ends=Trouble("x", "loss nan"))
    assert noted[-1] == "settle"
    with pytest.raises(RecipeError):
        go(ends=RecipeError("x", "y"))
    assert noted[-1] == "wait"


def test_a_remedy_names_what_can_be_gone_on_from(job: Callable[..., Job], tmp_path: Path) -> None:
    own, error = job(), Trouble("x", "loss nan", "numbers")
    assert "checkpoint" in results.with_remedy(error, own, tmp_path).remedy
    for step, sums in ((2, ["model", "optimizer"]), (4, ["model"])):
        folder = tmp_path / "checkpoints" / f"step-{step:09d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"checksums": {f"{name}.safetensors": "0" for name in sums}}))
    told = results.with_remedy(error, own, tmp_path)
    assert (told.place, told.found, told.wanted) == ("x", "loss nan", "numbers")
    assert told.remedy == results.remedy(tmp_path, "pretrain", own.recipe.trouble, 2)


@pytest.mark.parametrize(("auto", "stands", "micro"), [(True, False, 2), (False, False, 1), (True, True, 4)])
def test_a_layout_is_measured_to_begin_with(
    job: Callable[..., Job],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    auto: bool,
    stands: bool,
    micro: int,
) -> None:
    own = job("layout.micro=1")
    laid = lambda recipe, micro: dataclasses.replace(recipe, layout=dataclasses.replace(recipe.layout, micro=micro))  # noqa: E731
    begun: list[Any] = []
    monkeypatch.setattr(session, "choose_layout", lambda plan: plan.by(laid(plan.recipe, 2)))
    monkeypatch.setattr(session, "is_resumed", lambda *_, **__: stands)
    monkeypatch.setattr(session, "_record_new_run", lambda plan, *_: plan.recipe)
    monkeypatch.setattr(session, "run_to_end", lambda plan, *_: begun.append(plan.recipe) or {"found": 3})
    monkeypatch.setattr(resume.run, "read_recipe", lambda *_: laid(job("seed=9").recipe, 4))
    folder = tmp_path / "run"
    folder.mkdir()
    meant = asked_for(own.recipe, folder, deadline=60.0, auto=auto)
    how: Any = (plan_of(own.recipe, own.ranks), meant, None, "said before\n")
    session._train_in_folder(*how)
    (recipe,) = begun
    assert (recipe.layout.micro, recipe.seed) == (micro, 9 if stands else 0)
    assert ("--deadline is ignored" in capsys.readouterr().err) == stands
    status = Run(folder).status
    assert (status["state"], status["found"]) == ("done", 3)
    assert (folder / "log.txt").read_text().startswith("said before\n")
    monkeypatch.setattr(session, "run_to_end", lambda *_: (_ for _ in ()).throw(RecipeError("x", "y")))
    with pytest.raises(RecipeError):
        session._train_in_folder(*how)
    assert (Run(folder).status["state"], Run(folder).status["why"]) == ("failed", "x: y")


def test_a_finished_run_that_may_only_be_read_says_that_it_is_done(
    tiny_run: Any, read_only: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_run.bert.rglob("*")}
    read_only(tiny_run.folder)
    pretrain(str(tiny_run.bert))
    assert f"{tiny_run.bert}: is done and read-only, so nothing is changed" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in tiny_run.bert.rglob("*")} == before
