"""`layout.precision = "auto"` with given timings: what is chosen, kept, told and written into the run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.base import run
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import Trouble
from ordsmed.base.machine import speed
from ordsmed.base.ranks import Ranks, prepare
from ordsmed.base.run import Run
from ordsmed.tell.show import show
from ordsmed.train import precision_trial
from ordsmed.train import session as deed
from ordsmed.train.mesh import precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.plan import layout_lines
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining

Recipe = Callable[..., Path]
TINY = ("model.width=16", "model.layers=1", "phase[1].steps=4")


@dataclass(frozen=True)
class Made:
    """As much of a recipe as is looked at."""

    layout: Layout


@dataclass(frozen=True)
class Planned:
    """As much of a plan as is asked on a GPU."""

    recipe: Made
    ranks: Ranks = field(default_factory=lambda: Ranks(torch.device("cuda")))

    def by(self, recipe: Made) -> Planned:
        return Planned(recipe)


pytestmark = pytest.mark.usefixtures("details")


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Speeds of products and steps in bf16, where fp32's are 1; networks that were timed, each with its layout."""
    given = SimpleNamespace(peak=1e15, products=5.0, steps=2.0, norm=1.0, alone=True, first=9.0, timed=[])
    monkeypatch.setattr(precision_trial, "idle_check", lambda: lambda: given.alone)

    def timed_steps(job: Any, index: int) -> Iterator[tuple[float, float]]:
        precision = job.recipe.layout.precision
        given.timed.append((precision, job.share(0).micro))
        yield given.first if precision == "bf16" else 9.0, 1.0  # it wakes threads
        while True:
            yield 1.0 / (given.steps if precision == "bf16" else 1.0), given.norm if precision == "bf16" else 1.0

    peaks = lambda device, which: given.peak * (given.products if which == "bf16" else 1.0)  # noqa: E731
    monkeypatch.setattr(precision_trial, "measured_peak", peaks)
    monkeypatch.setattr(precision_trial, "timed_steps", timed_steps)
    monkeypatch.setattr(speed, "_cache", lambda: tmp_path / "cache" / "speed.json")
    monkeypatch.setattr(speed, "_known", {})
    return given


def plan_of(path: Path, *words: str) -> PretrainingPlan:
    recipe = run.load(Pretraining, str(path), ["layout.precision=auto", *TINY, *words])[0]
    return PretrainingPlan.of(recipe, prepare("cpu", 1)).completed(make=True)


@pytest.mark.parametrize(
    ("products", "steps", "chosen", "timed"),
    [(1.19, 9.0, "fp32", 0), (1.2, 1.19, "fp32", 2), (1.2, 1.2, "bf16", 2), (0.6, 0.9, "fp32", 0)],
)
def test_bf16_is_taken_where_it_is_faster_by_a_fifth(
    recipe: Recipe,
    speeds: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    products: float,
    steps: float,
    chosen: str,
    timed: int,
) -> None:
    """Where products are not, no steps are timed; one line says all."""
    speeds.products, speeds.steps = products, steps
    plan = precision_trial.with_fastest_precision(plan_of(recipe(), "layout.exact=['norms']"))
    layout = plan.recipe.layout
    assert (layout.precision, layout.exact) == (chosen, ("norms",) if chosen == "bf16" else ())
    assert [one[0] for one in speeds.timed] == ["fp32", "bf16"][:timed]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"layout.precision: auto chose {chosen}: products in bf16 are {products:.2f} times as fast")
    assert (f"steps of this network {steps:.2f} times" in line) == bool(timed)


def test_what_is_named_stays(recipe: Recipe, speeds: SimpleNamespace) -> None:
    plan = plan_of(recipe(), "layout.precision=fp32")
    assert precision_trial.with_fastest_precision(plan) is plan
    assert not speeds.timed


def test_steps_are_timed_once_for_a_machine_and_a_network(
    recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process finds them too; another network, length or number of threads is timed on its own."""
    precision_trial.with_fastest_precision(plan_of(recipe()))
    assert speeds.timed == [("fp32", 8), ("bf16", 8)]
    speeds.steps = 1.0
    monkeypatch.setattr(speed, "_known", {})
    assert precision_trial.with_fastest_precision(plan_of(recipe(), "seed=5")).recipe.layout.precision == "bf16"
    assert len(speeds.timed) == 2
    for word in (
        "model.width=18",
        "phase[1].length=16",
        "layout.micro=4",
        "layout.recompute=true",
        "layout.compile=true",
        "layout.exact=['norms']",
        "optimizer.kind=lamb",
    ):
        assert precision_trial.with_fastest_precision(plan_of(recipe(), word)).recipe.layout.precision == "fp32", word
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "fp32"
    assert len(speeds.timed) == 18


def test_the_first_step_counts_for_nothing(recipe: Recipe, speeds: SimpleNamespace) -> None:
    speeds.first, speeds.steps = 1e-6, 1.0
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "fp32"


def test_what_was_timed_beside_others_is_timed_again(recipe: Recipe, speeds: SimpleNamespace) -> None:
    speeds.alone, speeds.steps = False, 0.5
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "fp32"
    speeds.alone, speeds.steps = True, 2.0
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "bf16"


def test_few_tokens_are_timed(recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more rows than the run itself holds at a time, and one where fp32 would take long for more."""
    monkeypatch.setattr(precision_trial, "TOKENS", 4 * 32)
    plan = precision_trial.with_fastest_precision(plan_of(recipe()))
    assert plan.recipe.layout.micro == 0, "the run's own micro-batch stays"
    precision_trial.with_fastest_precision(plan_of(recipe(), "layout.micro=2"))
    speeds.peak = 1.0
    precision_trial.with_fastest_precision(plan_of(recipe(), "model.width=18"))
    assert [micro for _, micro in speeds.timed] == [4, 4, 2, 2, 1, 1]


def test_the_first_rank_decides(recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another rank measured or kept does not count."""
    plan = plan_of(recipe())
    answers = iter([3.0, 0.0, 99, True, True, None, 1.1])  # products; steps kept; tokens; enough, twice; kept; steps
    monkeypatch.setattr(precision_trial, "on_rank0", lambda ranks, act: next(answers))
    assert precision_trial.with_fastest_precision(plan).recipe.layout.precision == "fp32"
    assert len(speeds.timed) == 2, "steps are taken by all ranks together"
    answers = iter([3.0, 1.3])
    assert precision_trial.with_fastest_precision(plan).recipe.layout.precision == "bf16"
    assert len(speeds.timed) == 2, "the first rank knew"


@pytest.mark.parametrize(
    ("arch", "chosen"), [((6, 0), "fp32"), ((7, 0), "fp16"), ((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")]
)
def test_a_gpu_has_units_for_16_bits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arch: tuple[int, int], chosen: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: arch)
    plan: Any = Planned(Made(Layout(precision="auto")))
    assert precision_trial.with_fastest_precision(plan).recipe.layout.precision == chosen
    why = "the GPU has units for it" if arch >= (7, 0) else "the GPU has no 16-bit units"
    assert capsys.readouterr().err == f"layout.precision: auto chose {chosen}: {why}\n"


def test_nothing_is_built_before_the_choice() -> None:
    with pytest.raises(AssertionError, match="chosen before"):
        precision.set_up(Layout(precision="auto"), torch.device("cpu"))


def test_a_recipe_that_says_nothing_leaves_it_open() -> None:
    assert Layout().precision == "auto"
    assert not Layout().half


def test_on_the_machine_of_the_tests_nothing_is_measured(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As kit/machine.py keeps it, so that every test has fp32's numbers on every machine."""
    monkeypatch.setattr(speed, "_measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(speed, "_known", {})
    monkeypatch.setattr(precision_trial, "timed_steps", lambda *_: pytest.fail("timed"))
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "fp32"
    assert "products in bf16 are 1.00 times as fast" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("norm", "error", "told"),
    [
        (float("nan"), None, "bf16: step 2: gradients contain NaN or Inf"),
        (1.0, RuntimeError("no kernel\nfor this"), "bf16: no kernel"),
        (1.0, MemoryError(), "bf16: MemoryError"),
    ],
)
def test_what_cannot_be_timed_is_plain_fp32(
    recipe: Recipe,
    speeds: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    norm: float,
    error: Exception | None,
    told: str,
) -> None:
    """And is tried again next time: nothing is kept of it."""
    speeds.norm, inner = norm, precision_trial._speed
    if error:
        monkeypatch.setattr(precision_trial, "_speed", lambda plan: inner(plan) if _is_fp32(plan) else raised(error))
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "fp32"
    line = capsys.readouterr().err
    assert line.endswith(f"times as fast as in fp32, but steps of this network could not be timed: {told}\n")
    assert not any("steps" in key for key in speed._known)
    speeds.norm = 1.0
    monkeypatch.setattr(precision_trial, "_speed", inner)
    assert precision_trial.with_fastest_precision(plan_of(recipe())).recipe.layout.precision == "bf16"


def _is_fp32(plan: Any) -> bool:
    return bool(plan.recipe.layout.precision == "fp32")


def raised(error: Exception) -> Any:
    raise error


def test_a_request_to_stop_is_no_failure(
    recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_trial, "_speed", lambda plan: raised(Stopped(0, 15)))
    with pytest.raises(Stopped):
        precision_trial.with_fastest_precision(plan_of(recipe()))


def test_of_several_processes_one_s_own_failure_is_raised(
    recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others would wait for it; what all meet alike, as gradients with NaN or Inf, is not."""
    plan = plan_of(recipe())
    both = dataclasses.replace(plan, ranks=dataclasses.replace(plan.ranks, world=2))
    monkeypatch.setattr(precision_trial, "_speed", lambda plan: raised(RuntimeError("gone")))
    with pytest.raises(RuntimeError, match="gone"):
        precision_trial._try_speed(both, "fp32")
    monkeypatch.setattr(precision_trial, "_speed", lambda plan: raised(Trouble("step 1", "is no number")))
    assert precision_trial._try_speed(both, "fp32") == (0.0, "step 1: is no number")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_8_bits_need_bf16(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is measured for it."""
    plan: Any = Planned(Made(Layout(fp8=True)), Ranks(torch.device(device)))
    assert precision_trial.with_fastest_precision(plan).recipe.layout.precision == "bf16"
    assert capsys.readouterr().err == "layout.precision: auto chose bf16: needed by layout.fp8\n"
    assert precision_trial.expected_precision(plan) == "bf16"


def test_what_is_expected_before_anything_is_measured(recipe: Recipe, speeds: SimpleNamespace) -> None:
    """On a CPU what is kept of this very network; else fp32. On a GPU that is not here: what newer ones have."""
    plan = plan_of(recipe())
    assert precision_trial.expected_precision(plan) == "fp32"
    line = "layout.precision: auto, which measures once whether steps are faster in bf16 than in fp32"
    assert line in layout_lines(plan)
    assert not speeds.timed
    precision_trial.with_fastest_precision(plan)
    assert precision_trial.expected_precision(plan) == "bf16"
    assert precision_trial.expected_precision(plan_of(recipe(), "model.width=18")) == "fp32"
    assert precision_trial.expected_precision(plan_of(recipe(), "layout.precision=fp16")) == "fp16"
    assert "precision" not in "".join(layout_lines(plan_of(recipe(), "layout.precision=fp16")))
    if not torch.cuda.is_available():
        elsewhere = plan.on(Ranks(torch.device("cuda")))
        assert precision_trial.expected_precision(elsewhere) == "bf16"
        assert "layout.precision: auto, which chooses bf16" in layout_lines(elsewhere)


def test_several_runs_choose_once(
    recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["layout.precision=auto", "layout.threads=0", "layout.tensor=2", *TINY]
    several = run.load(Pretraining, str(recipe()), words)[0]
    threads: list[tuple[int, int]] = []
    before = torch.get_num_threads()
    monkeypatch.setattr(
        precision_trial, "threads_of", lambda wish, *, local_world: threads.append((wish, local_world)) or 2
    )
    assert precision_trial.fastest_precision(PretrainingPlan, several, 3) == "bf16"
    assert (threads, len(speeds.timed), torch.get_num_threads()) == ([(None, 3)], 2, before)
    missing = dataclasses.replace(several, data="no/such/store", model=dataclasses.replace(several.model, width=20))
    assert precision_trial.fastest_precision(PretrainingPlan, missing, 1) == "fp32"
    assert re.search(r"as in fp32, but steps could not be timed: .*no/such/store", capsys.readouterr().err)


def test_a_record_without_a_precision_meant_fp32(
    recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of the first version wrote none down, and there was fp32 alone."""
    folder = pretrain(str(recipe()), TINY)
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace('precision = "fp32"\n', ""))
    laid: list[str] = []
    monkeypatch.setattr(deed, "run_to_end", lambda plan, *_: laid.append(plan.recipe.layout.precision) or {})
    for words in ([str(folder)], [str(recipe()), "layout.precision=auto", *TINY]):
        Run(folder).set(state="stopped")
        pretrain(words[0], words[1:])
    assert laid == ["fp32", "fp32"]
    assert run.read_recipe(Pretraining, folder).layout.precision == "fp32"
    assert show.read(str(folder))[0].layout.precision == "fp32"
    assert not speeds.timed


def test_a_run_keeps_its_choice(
    recipe: Recipe, speeds: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = pretrain(str(recipe("named")), ["layout.precision=bf16", *TINY])
    path, words = str(recipe("auto")), ["layout.precision=auto", *TINY]
    monkeypatch.setattr(deed, "choose_layout", lambda plan: plan)
    folder = pretrain(path, words, layout="auto")
    assert run.read_recipe(Pretraining, folder).layout.precision == "bf16"
    assert "layout.precision: auto chose bf16" in (folder / "log.txt").read_text()
    weights = [(each / "weights" / "model.safetensors").read_bytes() for each in (named, folder)]
    assert weights[0] == weights[1]

    monkeypatch.setattr(precision_trial, "_measure", lambda plan: pytest.fail("measured again"))
    laid: list[str] = []
    monkeypatch.setattr(deed, "run_to_end", lambda plan, *_: laid.append(plan.recipe.layout.precision) or {})
    Run(folder).set(state="stopped")
    pretrain(path, words)
    pretrain(str(folder), ["layout.precision=auto"])
    pretrain(str(folder), [])
    pretrain(str(folder), ["layout.precision=fp32"])
    assert laid == ["bf16", "bf16", "bf16", "fp32"]
