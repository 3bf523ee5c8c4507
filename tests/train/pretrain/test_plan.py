"""The plan of a pretraining, part by part: what its data are, which tokenizer is expected, what a step costs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from kit.makers import job_of, make_store
from ordsmed.base import run
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.ranks import Ranks, prepare
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.learn.schedules import Ramp, Schedule
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import plan as train_plans
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.pretrain import plan as plans
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.train.pretrain.recipe import Pretraining

Recipe = Callable[..., Path]
SMALL = ("model.width=16", "model.layers=1")


def phase(steps: int, length: int = 8, batch: int = 2, **more: Any) -> Phase:
    return Phase(steps=steps, length=length, batch=batch, learning_rate=1.0, **more)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def encoded() -> Path:
    """A store with the recipe it would have been made by."""
    store = make_store(Path("store"))
    (store / "recipe.toml").write_text('corpus = "nowhere"\ntokenizer = "store/tokenizer"\n')
    return store


def test_a_tokenizer_that_will_be_made() -> None:
    """A file and a finished folder are opened; of a recipe, and of a folder that is half made, its size is believed."""
    store = make_store(Path("store"))
    own = plans.read_tokenizer(str(store / "tokenizer"))
    assert plans._expected_tokenizer("store/vocab.txt").vocabulary == own.vocabulary
    assert plans._expected_tokenizer("store/tokenizer").vocabulary == own.vocabulary
    Path("work/corpus/mine").mkdir(parents=True)
    learned = plans.learned_from("folder-wordpiece", "work/corpus/mine")
    assert learned == ["corpus=work/corpus/mine", "out=work/tokenizer/folder-wordpiece-mine"]
    assert plans._expected_tokenizer("folder-wordpiece", "work/corpus/mine").vocabulary == 30_000
    made = Path("work/tokenizer/folder-wordpiece-mine")
    made.mkdir(parents=True)
    own.save(made)
    Run(made).set(verb="tokenizer", state="done")
    assert plans._expected_tokenizer("folder-wordpiece", "work/corpus/mine").vocabulary == own.vocabulary, (
        "that of this corpus"
    )
    assert plans._expected_tokenizer("folder-wordpiece", "work/corpus/other").vocabulary == 30_000
    Path("t.toml").write_text('corpus = "stdlib"\nout = "made"\n[tokenizer]\nkind = "wordpiece"\nsize = 77\n')
    assert vars(plans._expected_tokenizer("t.toml")) == {"vocabulary": 77, "pad": 0, "mask": 0, "kind": "wordpiece"}
    Path("made").mkdir()
    Run(Path("made")).set(verb="tokenizer", state="running")
    (Path("made") / "recipe.toml").write_text(Path("t.toml").read_text().replace("77", "78"))
    assert plans._expected_tokenizer("made").vocabulary == 78
    own.save(Path("made"))
    Run(Path("made")).set(state="done")
    assert plans._expected_tokenizer("t.toml").vocabulary == own.vocabulary
    assert plans._expected_tokenizer("made").vocabulary == own.vocabulary
    Path("t.toml").write_text('corpus = "stdlib"\n[tokenizer]\nkind = "wordpiece"\nfile = "store/vocab.txt"\n')
    assert plans._expected_tokenizer("t.toml").vocabulary == own.vocabulary


def test_what_the_data_of_a_recipe_are() -> None:
    """A store is opened, one that will be made has its tokenizer read; the first source's tokenizer counts."""
    encoded()
    Path("e.toml").write_text('corpus = "stdlib"\ntokenizer = "t.toml"\nout = "encoded"\n')
    Path("t.toml").write_text('corpus = "stdlib"\n[tokenizer]\nkind = "wordpiece"\nsize = 77\n')
    facts = plans.Encoded(Path("store")).train
    stands = f"data: store, {facts.token_count:,} tokens in 60 documents"
    later = "data: encoded does not exist yet; it will be made from e.toml"
    for names, lines, size in (
        (["store"], [stands], 126),
        (["e.toml"], [later], 77),
        (["store", "e.toml"], [stands, later], 126),
        (["e.toml", "store"], [later, stands], 77),
    ):
        recipe: Any = SimpleNamespace(sources=names, data=names, tokenizer=None)
        told, tokenizer, data = plans._inputs(recipe, make=False)
        assert (told, tokenizer.vocabulary) == (lines, size)
        assert (data is not None) == ("e.toml" not in names), "they are read where all stand"
    recipe.sources = ["nothing"]
    with pytest.raises(OrdsmedError):
        plans._inputs(recipe, make=False)


def test_the_data_go_by_the_recipe_of_their_plan(recipe: Recipe) -> None:
    """Also by one with other steps, whose rows are others."""
    asked, _ = run.load(Pretraining, str(recipe()), SMALL)
    plan = PretrainingPlan.of(asked, prepare("cpu", 1)).completed(make=True)
    other = plan.by(dataclasses.replace(asked, seed=5))
    assert plan.data is not None
    assert other.data is not None
    assert (plan.data.recipe, other.data.recipe) == (plan.recipe, other.recipe)
    assert other.build().data is other.data
    begun = [str(plan.data.rows(0, before).batch(np.arange(8)).tokens.tolist()) for before in (0, 0, 1)]
    assert begun[0] == begun[1] != begun[2], "phases of the run before count too"
    wider = dataclasses.replace(asked.model, width=32)
    assert plan.by(dataclasses.replace(asked, model=wider)).network is wider, "a run's own, whatever `init` is now"


def planned(monkeypatch: pytest.MonkeyPatch, world: int = 1, **objective: Any) -> tuple[Any, PretrainingPlan]:
    """A plan over networks that are as large as the test says."""
    recipe: Any = SimpleNamespace(
        layout=Layout(),
        phase=(phase(3),),
        average=0.9,
        objective=None,
        optimizer=SimpleNamespace(moments=2),
        decay_schedule="constant",
        objective_of=lambda index: SimpleNamespace(mask_prob=0.15),
        learned=dict,
        network_of=lambda network, index: network,
    )
    recipe.phases = recipe.phase
    monkeypatch.setattr(plans, "built", lambda *_: SimpleNamespace(**objective))
    tokenizer = SimpleNamespace(vocabulary=50)
    ranks = Ranks(torch.device("cpu"), world=world, shape=(world, 1, 1))
    return recipe, PretrainingPlan(recipe=recipe, ranks=ranks, tokenizer=tokenizer)


def test_what_takes_part_in_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is what is below `model.`; rows of all steps count; a phase of epochs has no end yet."""
    sizes = {"model.a": torch.zeros(1000), "model.b": torch.zeros(200), "head.c": torch.zeros(30)}
    monkeypatch.setattr(plans, "own_tensors", lambda _: sizes)
    recipe, plan = planned(monkeypatch, flops=lambda batch, length: float(batch * length * 10))
    recipe.phase = recipe.phases = (phase(3), phase(2, 16, 4))
    assert plan.sizes() == [
        "network: 1,230 parameters, 1,200 without heads; vocabulary 50",
        "phase 1: 160 FLOP a step",
        "phase 2: 640 FLOP a step",
        "in total: 5 steps, 176 tokens, 1.76 kFLOP",
    ]
    recipe.decay_schedule = Ramp(1.0, 0.25)
    recipe.objective_of = lambda index: SimpleNamespace(mask_prob=Ramp(0.3, 0.15), keep=0.1)
    assert plan.sizes()[1:3] == [
        "phase 1: 160 FLOP a step, mask_prob 0.3 to 0.236, weight decay x 1 to 0.679",
        "phase 2: 640 FLOP a step, mask_prob 0.236 to 0.15, weight decay x 0.679 to 0.25",
    ]
    recipe.phase = recipe.phases = (phase(3), phase(0, epochs=2.0))
    assert plan.sizes()[-1].startswith("in total: the number of steps is known once")


@pytest.mark.parametrize("one_way", [True, False])
def test_rows_that_are_read_either_way_are_planned_so(monkeypatch: pytest.MonkeyPatch, one_way: bool) -> None:
    """As hybrid's: attention takes another way where some rows are read from left to right."""
    told: list[bool] = []
    monkeypatch.setattr(train_plans, "attention_lines", lambda *_, mixed: told.append(mixed) or ["a way"])  # type: ignore[func-returns-value]
    _, plan = planned(monkeypatch, one_way=one_way)
    plan = dataclasses.replace(plan, network=SimpleNamespace())  # type: ignore[arg-type]
    assert train_plans.attention_kernels(plan) == ["a way"]
    assert told == [one_way]


def test_what_a_rank_holds_of_a_pretraining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "weights_of_rank", lambda *_: 1000)
    _, plan = planned(monkeypatch, 2, describe=lambda device, precision: [f"told of {device} in {precision}"])
    lines = train_plans.layout_lines(plan)
    assert lines[0].startswith("layout: 2 x 1 x 1")
    assert lines[1] == "told of cpu in fp32"
    assert lines[2].endswith("batch = micro 1 x accumulation 1 x devices 2")
    assert lines[-1:] == RankMemory(4000, 3).lines
    assert plan.memory().bytes == 4000 * (2 + 3), "weights, gradients, two moments and the mean"


def test_gpus_may_stand_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        train_plans.processes, "plan", lambda device: Ranks(torch.device("cpu"), rank=1, world=2, threads=5)
    )
    for there, wanted in ((False, ("cuda", 4, (4, 1, 1), 1)), (True, ("cpu", 4, (4, 1, 1), 5))):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        found = train_plans.planned(Layout(device="cuda:1"), 4)
        assert (found.device.type, found.world, found.shape, found.threads) == wanted
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for layout, devices, shape in (
        (Layout(device="cuda"), 0, (2, 1, 1)),
        (Layout(device="cpu", shard=2), 4, (2, 2, 1)),
    ):
        found = train_plans.planned(layout, devices)
        assert (found.threads, found.shape) == (5, shape)


def test_rows_longer_than_the_network_and_warm_ups_longer_than_the_run(recipe: Recipe) -> None:
    with pytest.raises(RecipeError, match=r"phase\[1\].length: found 65, more than the model's 64 positions"):
        job_of(recipe(), "phase.length=65")
    assert job_of(recipe(), "phase.length=64").phases[0].length == 64


@pytest.mark.parametrize(("positions", "said"), [(32, True), (127, True), (128, False)])
def test_few_positions_are_told_before_the_first_step(recipe: Recipe, positions: int, said: bool) -> None:
    plan = PretrainingPlan.read(str(recipe()), ["phase.length=16", f"model.positions={positions}"])
    told = [
        line for line in plan.lines() if line.startswith(f"positions: {positions}, for good: `embed` and tasks cut")
    ]
    assert bool(told) == said


@pytest.mark.usefixtures("details")
def test_epochs_are_so_many_steps_of_the_datas_rows(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    more = "[[phase]]\nepochs = 2.5\nlength = 32\nbatch = 8\nrate = 1e-3\nwarmup = 2"
    asked, _ = run.load(Pretraining, str(recipe(steps=5, extra=more)), SMALL)
    rows = len(job_of(recipe(), *SMALL).rows(0))
    counted = lambda asked: PretrainingPlan.of(asked, prepare("cpu", 1)).completed(make=True).recipe  # noqa: E731
    made = counted(asked)
    assert [phase.steps for phase in made.phase] == [5, round(2.5 * rows / 8)]
    assert (made.phase[1].epochs, made.phase[1].warmup) == (0.0, 2.0)
    assert f"phase 2: 2.5 epochs of {rows:,} rows are {made.phase[1].steps:,} steps" in capsys.readouterr().err
    late = dataclasses.replace(asked.phase[1], epochs=0.01)
    assert counted(dataclasses.replace(asked, phase=(dataclasses.replace(late, warmup=1.0),))).phase[0].steps == 1
    with pytest.raises(RecipeError, match=r"phase\[1\].warmup: found 2; wanted 0 to 1 step"):
        counted(dataclasses.replace(asked, phase=(late,)))


def test_what_a_layout_cannot_take_is_refused_before_anything_is_built(recipe: Recipe) -> None:
    """A batch of 8 for three processes, a cut that is no divisor, heads that do not divide."""
    job = job_of(recipe(), *SMALL)
    for shape, words, said in (
        ((3, 1, 1), {}, r"phase\[1\].batch: found 8; wanted a multiple of the 3 devices"),
        ((1, 1, 1), {"micro": 3}, r"phase\[1\].batch: found 8, not a multiple of micro 3"),
        ((1, 1, 4), {"tensor": 4}, r"layout.tensor: found 4"),
    ):
        ranks = dataclasses.replace(job.ranks, world=shape[0] * shape[2], shape=shape)
        asked = dataclasses.replace(job.recipe, layout=dataclasses.replace(job.recipe.layout, **words))  # type: ignore[arg-type]
        with pytest.raises(RecipeError, match=said):
            plans.check(asked, job.objective.model_settings, ranks)


def test_phases_and_networks_are_held_against_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest row a network can have is allowed; each network of an objective is asked, by its name."""
    asked: list[Any] = []
    layout = SimpleNamespace(
        tensor=1,
        share=lambda phase, number, *more: asked.append((phase.length, number, *more)),
        check=lambda *given, whose: asked.append((*given, whose)),
    )
    phases = tuple(Phase(steps=1, length=length, batch=2, learning_rate=1.0) for length in (4, 8))
    objective = SimpleNamespace(others=lambda settings: {"generator": "small"})
    same: Any = lambda network, index: network  # noqa: E731
    recipe: Any = SimpleNamespace(
        phase=phases, layout=layout, objective=objective, network_of=same, objective_of=lambda _: None
    )
    settings, ranks = SimpleNamespace(longest=lambda: 8), Ranks(torch.device("cpu"), world=4, shape=(2, 1, 2))
    plans.check(recipe, settings, ranks)
    assert asked == [
        (4, 1, "cpu", 0, 2),
        (8, 2, "cpu", 0, 2),
        (settings, [4, 8], 4, "model"),
        ("small", [4, 8], 4, "generator"),
    ]
    settings.longest = lambda: 7
    with pytest.raises(RecipeError, match=r"^phase\[2\].length: found 8, more than the model's 7 positions"):
        plans.check(recipe, settings, ranks)


@dataclasses.dataclass(frozen=True)
class Several:
    """As much of a recipe as is counted."""

    phase: tuple[Phase, ...]

    def with_phases(self, phases: list[Phase]) -> Several:
        return Several(tuple(phases))


@dataclasses.dataclass(frozen=True)
class Ten:
    """Data of ten rows."""

    recipe: Several

    def rows(self, index: int, before: int) -> range:
        return range(10)


@pytest.mark.parametrize(("epochs", "warmup", "steps"), [(1.5, 0.0, 4), (1.3, 3.0, 3), (0.01, 0.0, 1)])
def test_epochs_become_the_nearest_number_of_steps(epochs: float, warmup: float, steps: int) -> None:
    """Of ten rows, four a step; a warm-up may be as long as the phase, not longer."""
    phase = Phase(length=8, batch=4, learning_rate=1.0, epochs=epochs, warmup=warmup)
    found = plans.with_counted_steps(Ten(Several((phase, Phase(steps=7, length=8, batch=4, learning_rate=1.0)))))  # type: ignore[arg-type]
    assert [(one.steps, one.epochs, one.warmup) for one in found.phase] == [(steps, 0.0, warmup), (7, 0.0, 0.0)]
    course = dataclasses.replace(phase, warmup=steps + 1.0, schedule=Schedule(over=steps + 1))
    assert plans.with_counted_steps(Ten(Several((course,)))).phase[0].warmup == steps + 1.0  # type: ignore[arg-type]
    for most, wanted in ((2, min(2, steps)), (99, steps)):
        bound = dataclasses.replace(phase, max_steps=most, warmup=0.0)
        (one,) = plans.with_counted_steps(Ten(Several((bound,)))).phase  # type: ignore[arg-type]
        assert (one.steps, one.epochs, one.max_steps) == (wanted, 0.0, 0)
    late = dataclasses.replace(phase, warmup=steps + 1.0)
    with pytest.raises(RecipeError, match=rf"^phase\[1\].warmup: found {steps + 1}; wanted 0 to {steps} step"):
        plans.with_counted_steps(Ten(Several((late,))))  # type: ignore[arg-type]


def test_more_rows_than_a_run_counts_are_refused() -> None:
    endless = Phase(length=8, batch=4, learning_rate=1.0, epochs=1e20)
    with pytest.raises(RecipeError, match=r"^phase\[1\].epochs: found 1e\+20; wanted fewer"):
        plans.with_counted_steps(Ten(Several((endless,))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "objective", "refusal"),
    [
        ("tiny/roberta", "clm", "objective.kind: clm with a bidirectional model; use mlm"),
        ("tiny/gpt2", "mlm", "objective.kind: mlm with a causal model; use clm"),
        ("tiny/bert", "rtd", "objective.kind: "),
    ],
)
def test_a_network_that_cannot_learn_this_is_refused_before_data_are_made(
    name: str, objective: str, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=re.escape(refusal)):
        pretrain(name, [f'objective={{kind="{objective}"}}'])
    assert [path.name for path in tmp_path.glob("work/*") if path.name != "pretrain"] == []


def without_signs() -> Path:
    """A store whose tokenizer has pieces alone."""
    store = make_store(Path("store"))
    words = (store / "vocab.txt").read_text().split()
    pieces = {word if word[0] == "w" else f"x{number}": number for number, word in enumerate(words)}
    tokenizer = Tokenizer(Pipeline(models.WordPiece(pieces, unk_token="x1")))
    tokenizer.save(store / "tokenizer")
    Run(store).set(tokenizer=tokenizer.fingerprint)
    return store


@pytest.mark.parametrize(
    ("kind", "objective", "line"),
    [
        ("bert", "mlm", "tokenizer: has no start token; wanted [CLS] [SEP] [MASK] [PAD], as mlm needs"),
        ("bert", "diffusion", "tokenizer: has no start token; wanted [CLS] [SEP] [MASK] [PAD], as diffusion needs"),
        ("bert", "mlm_nsp", "tokenizer: has no start token; wanted [CLS] [SEP] [MASK] [PAD], as mlm_nsp needs"),
        ("electra", "rtd", "tokenizer: has no start token; wanted [CLS] [SEP] [MASK] [PAD], as rtd needs"),
        ("gpt2", "clm", "tokenizer: has no end token; wanted <|endoftext|>, </s> or [SEP], as clm needs"),
        ("modern", "hybrid", "tokenizer: has no mask token; wanted one with [MASK] or <mask>, as hybrid needs"),
    ],
)
def test_a_tokenizer_without_signs_is_refused_by_the_plan(kind: str, objective: str, line: str, recipe: Recipe) -> None:
    """As by the rows themselves, in the same words; by a dry run too, and before data are made."""
    store = without_signs()
    Path("e.toml").write_text(f'corpus = "stdlib"\ntokenizer = "{store}/tokenizer"\nout = "encoded"\n')
    extra = "pack = false" if objective == "mlm_nsp" else ""
    for data in (str(store), "e.toml"):
        path = str(recipe(f"{objective}-run", kind, objective, extra=extra, data=data))
        for perform in (rehearse, pretrain):
            with pytest.raises(RecipeError) as refused:
                perform(path)
            assert str(refused.value) == f"{path}: {line}"
    assert not Path("encoded").exists()
    settings = run.load(Pretraining, path)[0]
    tokenizer = Tokenizer.load(store / "tokenizer")
    with pytest.raises(RecipeError, match=r"tokenizer: has no end token" if objective == "hybrid" else re.escape(line)):
        settings.objective.rows([], [], tokenizer, settings.phase[0], 0)
