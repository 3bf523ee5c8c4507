"""One step of the loop, looked at alone: keys of chance, what trouble leaves behind, and the wish to stop."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.makers import change, job_of
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.nn import dropout
from ordsmed.nn.shards import LocalParameter
from ordsmed.train import average, callbacks, loop, trouble
from ordsmed.train.callbacks import AfterStep
from ordsmed.train.job import Job, Vote
from ordsmed.train.meters import read

Recipe = Callable[..., Path]


@pytest.fixture
def small(recipe: Recipe) -> Callable[..., Job]:
    """A job of one narrow layer."""

    def make(*words: str) -> Job:
        return job_of(recipe(steps=4), "model.width=16", "model.layers=1", *words)

    return make


def batches_of(job: Job, step: int = 0) -> list[Any]:
    return next(loop.load(job.rows(0), job.share(0), step, step + 1, workers=0, device=job.ranks.device))


def weights_of(job: Job) -> list[torch.Tensor]:
    return [part.local.detach().clone() for part in job.parts]


def test_every_micro_batch_of_every_step_drops_other_places(
    small: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[int] = []

    def begin(*parts: object, stream: int = 0) -> None:
        dropout.begin_micro_batch(*parts, stream=stream)
        keys.append(dropout._Key.value)

    monkeypatch.setattr(loop, "begin_micro_batch", begin)
    jobs = [small("layout.micro=2"), small("layout.micro=2", "seed=1")]
    change(jobs[1], phases_before=1)
    for job in jobs:
        change(job, recipe=job.recipe.with_phases(job.phases * 3))
        for index, inner in ((0, 0), (0, 1), (2, 0)):
            loop.train_step(job, batches_of(job), 1e-3, index, inner)
    assert len(keys) == 2 * 3 * 4
    assert len(set(keys)) == len(keys)
    again = small("layout.micro=2")
    loop.train_step(again, batches_of(again), 1e-3, 0, 0)
    assert keys[-4:] == keys[:4]


@pytest.mark.parametrize("why", ["norm", "left out", ""])
def test_what_is_carried_begins_anew_after_a_step_that_teaches_nothing(small: Callable[..., Job], why: str) -> None:
    """And the weights, their moments and their running mean stay as they are; gradients are gone either way."""
    job = small('trouble.action="skip"', "average=0.9")
    job.objective.state["streams"] = torch.ones(2, 3)
    if why == "norm":
        job.parts[0].local.register_hook(lambda grad: grad * torch.inf)
    if why == "left out":
        job.state.left_out.append({"first": 3, "last": 4, "why": "-"})
    before = weights_of(job)
    _, norm, found = loop.train_step(job, batches_of(job), 1e-3, 0, 2, step=3)
    assert bool(found) == bool(why)
    assert bool(job.objective.state["streams"].any()) != bool(why)
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(job), strict=True)) == bool(why)
    assert bool(job.optimizer.state) != bool(why)
    assert all(part.local.grad is None for part in job.parts)
    assert bool(torch.isfinite(norm)) == (why != "norm")


def test_a_step_moves_by_its_rate_and_feeds_the_running_mean(small: Callable[..., Job]) -> None:
    moved = {}
    for rate in (1e-3, 4e-3):
        job = small("optimizer.decay=0.0", "average=0.5", "model.dropout=0.0", "model.attention_dropout=0.0")
        before = weights_of(job)
        loop.train_step(job, batches_of(job), rate, 0, 0)
        moved[rate] = max(float((a - b).abs().max()) for a, b in zip(before, weights_of(job), strict=True))
        for part in job.parts:
            assert torch.equal(job.optimizer.state[part.local][average.KEY], part.local)
    assert moved[4e-3] == pytest.approx(4 * moved[1e-3], rel=1e-3)
    assert moved[1e-3] == pytest.approx(1e-3, rel=0.05)


def test_a_step_without_a_prediction_is_one_without_a_gradient(small: Callable[..., Job]) -> None:
    job = small("model.dropout=0.0", "model.attention_dropout=0.0")
    batches = batches_of(job)
    for batch in batches:
        batch.weights.zero_()
    assert {term: float(count) for term, count in loop.total_counts(job, batches).items()} == {"mlm": 1.0}
    seen, norm, why = loop.train_step(job, batches, 1e-3, 0, 0)
    assert (float(seen["mlm"]), float(norm), why) == (0.0, 0.0, "")


def test_the_guard_is_told_the_loss_and_the_norm(small: Callable[..., Job]) -> None:
    """Of a recipe that looks; of others no number is asked off the device. fp16's infinite norm is not the guard's."""
    job, told = small('trouble.action="skip"'), []
    job.state.losses.trouble = lambda loss, norm: told.append((loss, norm)) or "-"  # type: ignore[method-assign,func-returns-value]
    job.objective.weights = {"a": 2.0, "b": 0.5}
    seen = {"a": torch.tensor(3.0), "b": torch.tensor(4.0)}
    assert loop.find_trouble(job, seen, torch.tensor(torch.inf)) == "-"
    assert told == [(8.0, torch.inf)]
    job.scaler.window = 5
    loop.find_trouble(job, seen, torch.tensor(torch.inf))
    loop.find_trouble(job, {"a": torch.tensor(torch.nan), "b": torch.tensor(0.0)}, torch.tensor(7.0))
    assert told[1] == (8.0, 0.0)
    assert told[2][1] == 7.0
    calm = small()
    calm.state.losses.trouble = lambda loss, norm: pytest.fail("nobody asked")  # type: ignore[method-assign]
    assert loop.find_trouble(calm, seen, torch.tensor(1.0)) == ""


def test_the_guard_and_the_record_are_told_the_loss_of_all_ranks(
    small: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, told = small('trouble.action="skip"'), []
    job.state.losses.trouble = lambda loss, norm: told.append((loss, norm)) or ""  # type: ignore[method-assign,func-returns-value]
    job.objective.weights = {"a": 2.0, "b": 0.5}
    monkeypatch.setattr(type(job.ranks), "total", lambda ranks, own: own + 1)
    seen = {"a": torch.tensor(3.0), "b": torch.tensor(4.0)}
    loop.find_trouble(job, seen, torch.tensor(7.0))
    assert told == [(2 * 4.0 + 0.5 * 5.0, 7.0)]
    assert {term: float(loss) for term, loss in seen.items()} == {"a": 4.0, "b": 5.0}


def test_trouble_is_stopped_by_skipped_or_rewound(small: Callable[..., Job], tmp_path: Path) -> None:
    stopped, skipped, rewound = (small(f'trouble.action="{action}"') for action in ("stop", "skip", "rewind"))
    with pytest.raises(RunError, match="step 3: loss nan"):
        trouble.handle_trouble(stopped, tmp_path, 3, "loss nan")
    with pytest.raises(trouble.Rewind) as raised:
        trouble.handle_trouble(rewound, tmp_path, 3, "loss nan")
    assert (raised.value.step, raised.value.reason) == (3, "loss nan")
    trouble.handle_trouble(skipped, tmp_path, 3, "loss nan")
    trouble.handle_trouble(skipped, tmp_path, 3, "left out")  # known already
    assert skipped.state.left_out == [{"first": 3, "last": 3, "why": "loss nan"}]
    assert [skipped.is_skipped(step) for step in (2, 3, 4)] == [False, True, False]
    skipped.parts[0].local.data.fill_(torch.nan)
    with pytest.raises(
        RunError, match="step 5: loss nan; the weights contain NaN or Inf, so skipping steps does not help"
    ):
        trouble.handle_trouble(skipped, tmp_path, 5, "loss nan")
    assert not skipped.is_skipped(5)


def test_a_clip_leaves_short_gradients_and_undoes_the_scaling() -> None:
    for limit, scaling, wanted in ((1.0, 1.0, 1.0), (5.0, 1.0, 5.0), (0.0, 4.0, 5.0), (1.0, 4.0, 1.0), (9.0, 4.0, 5.0)):
        p = torch.nn.Parameter(torch.zeros(2))
        p.grad = torch.tensor([3.0, 4.0]) * scaling
        loop.clip([LocalParameter.of("p", p)], torch.tensor(5.0), limit, scaling)
        assert float(p.grad.norm()) == pytest.approx(wanted, rel=1e-5)


def test_ranks_stop_after_the_same_step() -> None:
    """Alone by what this process heard; together by what all heard, and by SIGTERM where only others did."""
    assert [Vote().result(number) for number in (0, signal.SIGINT)] == [0, signal.SIGINT]
    assert [Vote(any_rank=False).result(number) for number in (0, signal.SIGINT)] == [0, 0]
    assert [Vote(any_rank=True).result(number) for number in (0, signal.SIGINT)] == [signal.SIGTERM, signal.SIGINT]


def test_a_second_ctrl_c_stops_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with loop.catch_stop_signals() as asked:
        assert asked() == 0
        os.kill(os.getpid(), signal.SIGINT)
        assert asked() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
    assert "SIGINT: the run is saved after this step (press again to stop at once)" in capsys.readouterr().err


def test_who_makes_rows_says_nothing_and_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C reaches all processes of a terminal; the step that is finished wants its rows."""
    with loop.catch_stop_signals():
        if not (child := os.fork()):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_other_wishes_may_come_twice(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning and the SIGTERM after it, or Ctrl-C passed on by who started this process, are one wish."""
    with loop.catch_stop_signals() as asked:
        for each in (number, number, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), each)
        assert asked() == number
        with pytest.raises(KeyboardInterrupt):  # Ctrl-C a second time means it, whatever came before the first
            os.kill(os.getpid(), signal.SIGINT)
    assert capsys.readouterr().err.count("the run is saved") == 1


class Course:
    """What a run did, as those who watch it, save it and judge it are told."""

    def __init__(self, job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int = 0) -> None:
        self.job, self.folder, self.monkeypatch, self.stop_after = job, folder, monkeypatch, stop_after
        self.saved: list[tuple[int, bool]] = []
        self.validations: list[tuple[int, int]] = []
        self.seen: list[int] = []
        self.stages: list[tuple[int, str]] = []
        self.carried: list[int] = []
        folder.mkdir()

    def train(self, start: int = 0) -> int:
        def judge(job: Job, index: int, meters: Any, step: int) -> str:
            lines = read(self.folder / "metrics.jsonl")
            assert lines[-1]["step"] == step or job.is_skipped(step), "written before"
            self.validations.append((index, step))
            return ""

        @contextlib.contextmanager
        def asked() -> Iterator[Callable[[], int]]:
            yield lambda: signal.SIGTERM if self.stop_after and len(self.seen) >= self.stop_after else 0

        class Watching:
            step = 0

            def at(watching, step: int, stage: str) -> None:
                watching.step = step
                self.stages.append((step, stage))

        class Writing:
            def save(writing, step: int, *, final: bool = False) -> None:
                self.saved.append((step, final))

            def save_now(writing, step: int) -> None:
                self.saved.append((step, True))

        self.monkeypatch.setattr(callbacks, "run_validation", judge)
        self.monkeypatch.setattr(loop, "catch_stop_signals", asked)
        self.monkeypatch.setattr(type(self.job), "carry", lambda job, index: self.carried.append(index))
        seen = AfterStep(lambda state: self.seen.append(state.step))
        how: Any = {"saving": Writing(), "watch": Watching(), "callbacks": [seen]}
        return loop.train(self.job, self.folder, start, 1e12, **how)


@pytest.fixture
def course(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Course]:
    """Of 3 steps of 8 rows of 32 and 2 of 4 rows of 16."""
    second = '[[phase]]\nsteps = 2\nlength = 16\nbatch = 4\nrate = 1e-3\nschedule = "constant"'

    def make(*words: str, stop_after: int = 0) -> Course:
        said = ["model.width=16", "model.layers=1", "save=2", "validate=2", "log=2", *words]
        return Course(job_of(recipe(steps=3, extra=second), *said), tmp_path / "run", monkeypatch, stop_after)

    return make


def test_a_run_goes_through_its_phases(course: Callable[..., Course]) -> None:
    found = course()
    assert found.train() == 5
    assert found.seen == [1, 2, 3, 4, 5]
    assert found.saved == [(2, False), (4, False), (5, True)]
    assert found.validations == [(0, 2), (1, 4), (1, 5)]
    assert found.carried == [0, 1]
    lines = read(found.folder / "metrics.jsonl")
    told = [(line["step"], line["phase"], line["rows"], line["tokens"]) for line in lines]
    assert told == [(1, 1, 8, 256), (2, 1, 8, 256), (3, 1, 8, 256), (4, 2, 4, 64), (5, 2, 4, 64)]
    assert [line["rate"] for line in lines] == [1e-3, 2e-3, 2e-3, 1e-3, 1e-3]
    assert lines[-1]["left"] == 0.0
    one = ["making rows", "learning", "summing gradients"]
    assert [stage for step, stage in found.stages if step == 1] == one
    assert [stage for step, stage in found.stages if step == 2] == [*one, "judging", "saving"]


def test_each_step_knows_how_much_work_lies_ahead(course: Callable[..., Course]) -> None:
    found = course()
    real, told = loop.Meters.add, []
    add = lambda own, line, sums: told.append((line["flops"], line["ahead"])) or real(own, line, sums)  # noqa: E731
    found.monkeypatch.setattr(loop.Meters, "add", add)
    found.train()
    work = [flops for flops, _ in told]
    assert work[0] == work[2] > work[3] == work[4] > 0
    assert [ahead for _, ahead in told] == [pytest.approx(sum(work[n + 1 :])) for n in range(5)]


def test_a_run_goes_on_inside_a_phase(course: Callable[..., Course]) -> None:
    found = course()
    assert found.train(start=1) == 5
    assert (found.seen, found.carried) == ([2, 3, 4, 5], [1]), "the first phase's states are restored"
    found = Course(found.job, found.folder.with_name("later"), found.monkeypatch)
    assert found.train(start=3) == 5
    assert (found.seen, found.carried) == ([4, 5], [1])


def test_asked_to_stop_it_saves_and_stops(course: Callable[..., Course]) -> None:
    found = course(stop_after=2)
    with pytest.raises(Stopped) as stopped:
        found.train()
    assert (stopped.value.step, stopped.value.by) == (3, signal.SIGTERM)
    assert found.saved == [(2, False), (3, True)]
    assert [line["step"] for line in read(found.folder / "metrics.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("finite", [True, False])
def test_a_step_that_lacks_rows_is_not_taken(course: Callable[..., Course], finite: bool) -> None:
    """The run is saved as the step before left it, with its lines; weights with NaN or Inf are not saved."""
    found = course("save=0", "log=9", stop_after=2)
    made = loop.load

    def short(*given: Any, **how: Any) -> Iterator[Any]:
        ready = made(*given, **how)
        yield next(ready)
        if not finite:
            found.job.parts[0].local.data.fill_(torch.nan)
        found.seen.append(0)  # asked to stop while rows are made
        yield []

    found.monkeypatch.setattr(loop, "load", short)
    with pytest.raises(Stopped) as stopped:
        found.train()
    assert (stopped.value.step, stopped.value.by) == (1, signal.SIGTERM)
    assert found.saved == ([(1, True)] if finite else [])
    assert [line["step"] for line in read(found.folder / "metrics.jsonl")] == [1]


@pytest.mark.parametrize("action", ["stop", "rewind"])
def test_weights_that_are_no_numbers_are_not_saved_by_who_stops(course: Callable[..., Course], action: str) -> None:
    found = course("save=0", "validate=0", f"trouble.action={action}", stop_after=1)
    found.monkeypatch.setattr(Job, "finite", property(lambda job: len(found.seen) != 2))
    kind = trouble.Rewind if action == "rewind" else RunError
    with pytest.raises(kind, match=r"step 2.*weights with NaN or Inf"):
        found.train()
    assert found.saved == []


def test_asked_to_stop_in_its_last_step_it_is_done(course: Callable[..., Course]) -> None:
    found = course(stop_after=4)
    assert found.train() == 5
    assert found.saved[-1] == (5, True)


def test_it_ends_when_a_check_says_it_is_enough(course: Callable[..., Course]) -> None:
    found = course("validate=1", "save=0")
    found.monkeypatch.setattr(type(found.job.recipe), "is_enough", lambda recipe, judged: len(found.validations) == 3)
    assert found.train() == 3
    assert found.saved == [(3, True)]


def test_without_saving_and_judging_a_run_ends_all_the_same(course: Callable[..., Course]) -> None:
    found = course("validate=0", "save=0")
    assert found.train() == 5
    assert (found.saved, found.validations) == ([(5, True)], [(1, 5)])


def test_steps_that_are_left_out_have_no_line_and_teach_nothing(course: Callable[..., Course]) -> None:
    found = course()
    found.job.state.left_out = [{"first": 1, "last": 1, "why": "-"}, {"first": 3, "last": 3, "why": "-"}]
    before = weights_of(found.job)
    found.monkeypatch.setattr(callbacks, "run_validation", lambda *_: "")

    def taught(state: callbacks.LoopState) -> None:
        step = state.step
        found.seen.append(step)
        now = weights_of(found.job)
        same = all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
        assert same == (step in (1, 3)), step
        before[:] = now

    found.stages.clear()
    assert loop.train(found.job, found.folder, 0, 1e12, callbacks=[AfterStep(taught)]) == 5
    assert [line["step"] for line in read(found.folder / "metrics.jsonl")] == [2, 4, 5]
    assert found.job.state.left_out == [{"first": 1, "last": 1, "why": "-"}, {"first": 3, "last": 3, "why": "-"}]


def test_trouble_in_a_step_is_answered_at_once(course: Callable[..., Course]) -> None:
    """The second step's: it is left out of the record of steps, or the run rewinds or stops there."""
    for action, wanted in (("skip", None), ("rewind", trouble.Rewind), ("stop", RunError)):
        found = course(f'trouble.action="{action}"', "trouble.spike=9.0")
        found.monkeypatch.setattr(
            loop, "find_trouble", lambda job, *_, found=found: "loss nan" if len(found.seen) == 1 else ""
        )
        if wanted:
            with pytest.raises(wanted, match="step 2"):
                found.train()
            assert found.seen == [1]
        else:
            assert found.train() == 5
            assert [line["step"] for line in read(found.folder / "metrics.jsonl")] == [1, 3, 4, 5]
            assert [entry["first"] for entry in found.job.state.left_out] == [2]
        shutil.rmtree(found.folder)


def test_what_is_saved_has_its_lines(course: Callable[..., Course]) -> None:
    found = course("validate=0", "log=9")
    lines: list[tuple[int, list[int]]] = []
    saved = lambda step, final: lines.append((step, [line["step"] for line in read(found.folder / "metrics.jsonl")]))  # noqa: E731
    found.saved = SimpleNamespace(append=lambda told: saved(*told))  # type: ignore[assignment]
    found.train()
    assert lines == [(2, [1, 2]), (4, [1, 2, 3, 4]), (5, [1, 2, 3, 4, 5])]


def test_a_scaled_loss_has_the_same_norm_and_moves_the_same_way(small: Callable[..., Job]) -> None:
    """fp16's factor is undone before anything is compared with it or learned."""
    found = []
    for factor in (1.0, 64.0):
        job = small("optimizer.decay=0.0", "model.dropout=0.0", "model.attention_dropout=0.0", "clip=0.5")
        job.scaler.factor = factor
        _, norm, _ = loop.train_step(job, batches_of(job), 1e-3, 0, 0)
        found.append((float(norm), torch.cat([part.local.detach().flatten() for part in job.parts])))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    assert found[0][0] > 0.5, "it is clipped"
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("shape", "factor"), [((2, 1, 1), 2.0), ((1, 1, 2), 1.0), ((2, 1, 2), 2.0)])
@pytest.mark.parametrize(("mine", "theirs", "wanted"), [(0, 0, False), (15, 0, True), (0, 1, True)])
def test_counts_of_the_whole_step_and_the_wish_to_stop_travel_together(
    small: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    shape: Any,
    factor: float,
    mine: int,
    theirs: int,
    wanted: bool,
) -> None:
    """Ranks that share a layer have the same rows, which count once; the others here have as many as this one."""
    job = small()
    batches = batches_of(job)
    alone = loop.total_counts(job, batches)
    world = shape[0] * shape[1] * shape[2]

    def all_reduce(spoken: torch.Tensor) -> None:
        spoken[0] *= world
        spoken[1] += theirs

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    change(job, ranks=dataclasses.replace(job.ranks, world=world, shape=shape))
    job.state.vote = Vote(mine)
    together = loop.total_counts(job, batches)
    assert float(together["mlm"]) == factor * float(alone["mlm"])
    assert (job.state.vote.any_rank, job.state.vote.rows_missing) == (wanted, False)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("count", {"pairs": torch.ones(())}, "count\\(\\): gave a table of pairs; wanted a table with the terms"),
        ("count", {}, "count\\(\\): gave a table of nothing"),
        ("forward", torch.ones(()), "forward\\(\\): gave no table; wanted a table with the terms of its weights: mlm"),
    ],
)
def test_terms_that_an_objective_forgets_are_one_line(
    small: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, method: str, given: object, message: str
) -> None:
    job = small()
    monkeypatch.setattr(job.objective, method, lambda batch: given)
    with pytest.raises(RunError, match=message):
        loop.train_step(job, batches_of(job), 0, 0, 0.1)


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [('"constant"', [1, 1, 1, 1]), ('"rate"', [0.5, 1, 1, 0.5]), ("{start=1.0,end=0.2}", [1, 0.8, 0.6, 0.4])],
)
def test_weight_decay_follows_its_schedule(small: Callable[..., Job], schedule: str, wanted: list[float]) -> None:
    schedules = "phase.warmup=2", "phase.schedule='linear'"
    found = []
    for step in range(4):
        job = small(f"decay_schedule={schedule}", *schedules, "optimizer.decay=0.5")
        for inner in range(step + 1) if step % 2 else (step,):
            loop.set_rates(job, 1e-3, 0, inner)
        decays = {group["weight_decay"] for group in job.optimizer.param_groups if group["kind"] == "matrix"}
        found.append(decays.pop() / 0.5)
        assert not decays
        assert {g["weight_decay"] for g in job.optimizer.param_groups if g["kind"] == "vector"} == {0.0}
    assert found == pytest.approx(wanted)
    before = weights_of(job)
    loop.train_step(job, batches_of(job), 1e-3, 0, 0)
    assert next(g["weight_decay"] for g in job.optimizer.param_groups if g["decayed"]) == 0.5 * wanted[0]
    assert any(not torch.equal(one, other) for one, other in zip(before, weights_of(job), strict=True))


def test_a_schedule_of_no_decay_is_refused(small: Callable[..., Job]) -> None:
    with pytest.raises(RecipeError, match=r"decay_schedule: .*adamw"):
        small('decay_schedule="rate"', "optimizer.decay=0.0")
    with pytest.raises(RecipeError, match=r"decay_schedule: .*0 or more"):
        small("decay_schedule={start=1.0,end=-1.0}")
