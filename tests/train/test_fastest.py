"""`layout.precision = "auto"` with given timings: what is chosen, kept, told and written into the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.base import machine, run
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks, prepare
from ordsmed.base.run import Run
from ordsmed.finetune import trials
from ordsmed.mesh import precision
from ordsmed.mesh.layout import Layout
from ordsmed.pretrain.plan import PretrainingPlan
from ordsmed.pretrain.pretrain import pretrain
from ordsmed.pretrain.recipe import Pretraining
from ordsmed.train import fastest
from ordsmed.train import session as deed

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


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Speeds of products and steps in bf16, where fp32's are 1; steps that were timed, each with its layout."""
    given = SimpleNamespace(products=5.0, steps=2.0, timed=[])

    def speed(job: Any, index: int, steps: int) -> float:
        layout = job.recipe.layout
        given.timed.append((layout.precision, job.share(0).micro, steps))
        return float(given.steps if layout.precision == "bf16" else 1.0)

    peaks = lambda device, which: given.products if which == "bf16" else 1.0  # noqa: E731
    monkeypatch.setattr(fastest, "measured_peak", peaks)
    monkeypatch.setattr(fastest, "speed_of", speed)
    monkeypatch.setattr(machine, "_cache", lambda: tmp_path / "cache" / "speed.json")
    monkeypatch.setattr(machine, "_known", {})
    return given


def plan_of(path: Path, *words: str) -> PretrainingPlan:
    recipe = run.load(Pretraining, str(path), ["layout.precision=auto", *TINY, *words])[0]
    return PretrainingPlan.of(recipe, prepare("cpu", 1)).completed(make=True)


@pytest.mark.parametrize(
    ("products", "steps", "chosen", "timed"),
    [(1.19, 9.0, "fp32", 0), (1.2, 1.19, "fp32", 2), (1.2, 1.2, "bf16", 2), (0.6, 0.9, "fp32", 0)],
)
def test_bf16_is_taken_where_it_is_faster_by_a_fifth(
    recipe: Recipe, speeds: SimpleNamespace, capsys: pytest.CaptureFixture[str],
    products: float, steps: float, chosen: str, timed: int,
) -> None:  # fmt: skip
    """Where products are not, no steps are timed; one line says all."""
    speeds.products, speeds.steps = products, steps
    plan = fastest.settled(plan_of(recipe(), "layout.exact=['norms']"))
    layout = plan.recipe.layout
    assert (layout.precision, layout.exact) == (chosen, ("norms",) if chosen == "bf16" else ())
    assert [one[0] for one in speeds.timed] == ["fp32", "bf16"][:timed]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"layout.precision: auto took {chosen}: products in bf16 are {products:.2f} times as fast")
    assert (f"steps of this network {steps:.2f} times" in line) == bool(timed)


def test_what_is_named_stays(recipe: Recipe, speeds: SimpleNamespace) -> None:
    plan = plan_of(recipe(), "layout.precision=fp32")
    assert fastest.settled(plan) is plan
    assert not speeds.timed


def test_steps_are_timed_once_for_a_machine_and_a_network(
    recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process finds them too; another network, length or number of threads is timed on its own."""
    fastest.settled(plan_of(recipe()))
    assert speeds.timed == [("fp32", 8, fastest.STEPS), ("bf16", 8, fastest.STEPS)]
    speeds.steps = 1.0
    monkeypatch.setattr(machine, "_known", {})
    assert fastest.settled(plan_of(recipe(), "seed=5")).recipe.layout.precision == "bf16"
    assert len(speeds.timed) == 2
    for word in ("model.width=18", "phase[1].length=16", "layout.micro=4", "layout.recompute=true"):
        assert fastest.settled(plan_of(recipe(), word)).recipe.layout.precision == "fp32", word
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert fastest.settled(plan_of(recipe())).recipe.layout.precision == "fp32"
    assert len(speeds.timed) == 12


def test_few_tokens_are_timed(recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """And never more rows than the run itself holds at a time."""
    monkeypatch.setattr(fastest, "TOKENS", 4 * 32)
    plan = fastest.settled(plan_of(recipe()))
    assert plan.recipe.layout.micro == 0, "the run's own micro-batch stays"
    fastest.settled(plan_of(recipe(), "layout.micro=2"))
    assert [micro for _, micro, _ in speeds.timed] == [4, 4, 2, 2]


def test_the_first_rank_decides(recipe: Recipe, speeds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another rank measured or kept does not count."""
    plan = plan_of(recipe())
    answers = iter([3.0, 0.0, None, 1.1])
    monkeypatch.setattr(fastest, "first_alone", lambda ranks, act: next(answers))
    assert fastest.settled(plan).recipe.layout.precision == "fp32"
    assert len(speeds.timed) == 2, "steps are taken by all ranks together"
    answers = iter([3.0, 1.3])
    assert fastest.settled(plan).recipe.layout.precision == "bf16"
    assert len(speeds.timed) == 2, "the first rank knew"


@pytest.mark.parametrize(("arch", "chosen"), [((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_a_gpu_has_units_for_16_bits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arch: tuple[int, int], chosen: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: arch)
    plan: Any = Planned(Made(Layout(precision="auto")))
    assert fastest.settled(plan).recipe.layout.precision == chosen
    assert capsys.readouterr().err == f"layout.precision: auto took {chosen}: for which this GPU has units\n"


def test_nothing_is_built_before_the_choice() -> None:
    with pytest.raises(AssertionError, match="chosen before"):
        precision.set_up(Layout(precision="auto"), torch.device("cpu"))


def test_trials_are_computed_alike(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^layout\.precision: found auto, with several trials"):
        trials.asked("electra-squad", ["seeds=[1,2]", "layout.precision=auto", f"out={tmp_path}"])


def test_a_run_keeps_its_choice(
    recipe: Recipe, speeds: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its recipe and log tell it; it learns what a run with that precision does, and goes on by it, also where
    another would be chosen now."""
    named = pretrain(str(recipe("named")), ["layout.precision=bf16", *TINY])
    path, words = str(recipe("auto")), ["layout.precision=auto", *TINY]
    monkeypatch.setattr(deed, "laid_out", lambda plan: plan)
    folder = pretrain(path, words, layout="auto")
    assert run.read_recipe(Pretraining, folder).layout.precision == "bf16"
    assert "layout.precision: auto took bf16" in (folder / "log.txt").read_text()
    weights = [(each / "weights" / "model.safetensors").read_bytes() for each in (named, folder)]
    assert weights[0] == weights[1]

    monkeypatch.setattr(fastest, "_measured", lambda plan: pytest.fail("measured again"))
    laid: list[str] = []
    monkeypatch.setattr(deed, "go_on", lambda plan, *_: laid.append(plan.recipe.layout.precision) or {})
    Run(folder).set(state="stopped")
    pretrain(path, words)
    pretrain(str(folder), ["layout.precision=auto"])
    pretrain(str(folder), [])
    pretrain(str(folder), ["layout.precision=fp32"])
    assert laid == ["bf16", "bf16", "bf16", "fp32"]
