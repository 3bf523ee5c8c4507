"""Steps, learning rates and sizes computed by the originals' functions (`originals.json`), compared with ordsmed's.

The originals' warmup starts at 0; ordsmed's is one step ahead until its end, and equal afterwards.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, resolved
from ordsmed.base import settings
from ordsmed.learn.phases import Phase
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.weights.origin import planned

NUMBERS: dict[str, Any] = json.loads(Path(__file__).with_name("originals.json").read_text())
PEAK = 1e-3


def recipe_of(code: str, name: str, *words: str, world: int = 1) -> Finetuning:
    table = called(code, name, *words, world=world).recipes["finetune"]
    return settings.decode(Finetuning, {**table, "out": "o", "freeze": False}, "finetune")


def counted(recipe: Finetuning, examples: int, records: int = 0) -> tuple[int, float, int]:
    """Return the steps, the warmup steps and the steps of the schedule for these data."""
    full = dataclasses.replace(recipe, examples=examples, records=records)
    phase = full.phases[0]
    assert planned(settings.plain(full)) == full.updates == phase.steps
    assert full.validates(full.updates) or full.epochs % 1, "an epoch ends with its last step"
    return phase.steps, phase.warmup, phase.schedule.span(phase.steps)


@pytest.mark.parametrize(("entries", "batch", "epochs", "warmup", "steps", "rise"), NUMBERS["google"]["steps"])
def test_google_counts_entries(entries: int, batch: int, epochs: float, warmup: float, steps: int, rise: int) -> None:
    """Google counts questions, not windows; it trains no step if they fill no batch."""
    words = [
        "--do_train",
        "--init_checkpoint=i",
        "--output_dir=o",
        f"--train_batch_size={batch}",
        f"--num_train_epochs={epochs}",
        f"--warmup_proportion={warmup}",
    ]
    wanted = max(steps, 1), rise, max(steps, 1)
    squad = recipe_of("google", "run_squad.py", *words, "--train_file=t.json")
    assert counted(squad, 4 * entries, entries) == wanted
    classes = recipe_of("google", "run_classifier.py", *words, "--task_name=rte", "--data_dir=d")
    assert counted(classes, entries, entries) == wanted


@pytest.mark.parametrize(("examples", "batch", "epochs", "steps"), NUMBERS["electra"]["steps"])
def test_electra_fills_the_last_step_of_an_epoch(examples: int, batch: int, epochs: float, steps: int) -> None:
    keys = {"task_names": ["squad"], "train_batch_size": batch, "num_train_epochs": epochs, "warmup_proportion": 0.1}
    recipe = recipe_of(
        "electra", "run_finetuning.py", "--data-dir=d", "--model-name=m", f"--hparams={json.dumps(keys)}"
    )
    assert counted(recipe, examples) == (steps, int(0.1 * steps), steps)


@pytest.mark.parametrize(
    ("windows", "batch", "world", "epochs", "warmup", "course", "rise", "steps"), NUMBERS["nvidia"]["steps"]
)
def test_nvidia_leaves_out_what_fills_no_step(
    windows: int, batch: int, world: int, epochs: int, warmup: float, course: int, rise: int, steps: int
) -> None:
    """Its schedule spans all examples and a step more, regardless of the number of steps."""
    words = [
        "--do_train",
        "--train_file=t",
        "--output_dir=o",
        f"--train_batch_size={batch}",
        f"--num_train_epochs={epochs}",
        f"--warmup_proportion={warmup}",
    ]
    recipe = recipe_of("nvidia", "run_tf_squad.py", *words, world=world)
    assert counted(recipe, windows) == (steps, rise, course)
    few = recipe_of("nvidia", "run_tf_squad.py", *words, "--max_steps=2", world=world)
    few = dataclasses.replace(few, examples=windows)
    assert (few.updates, planned(settings.plain(few)), few.phases[0].schedule.span(2)) == (2, 2, course)
    many = recipe_of("nvidia", "run_tf_squad.py", *words, "--max_steps=999999", world=world)
    assert counted(many, windows) == (steps, rise, course)


def compare(phase: Phase, theirs: list[float], rise: float) -> None:
    ours = [phase.rate_at(step) for step in range(len(theirs))]
    later = [step for step in range(len(theirs)) if step >= rise]
    assert [ours[step] for step in later] == pytest.approx([theirs[step] for step in later], rel=1e-5, abs=1e-12)
    for step in range(min(int(rise), len(theirs)) - 1):
        down = (1 - step / phase.steps) ** phase.schedule.power if phase.schedule.since == "start" else 1.0
        assert ours[step] / PEAK / down == pytest.approx((step + 1) / int(rise), rel=1e-5), "one step ahead"


def phase_of(code: str, *words: str) -> Phase:
    table = called(code, "run_pretraining.py", *words).recipes["pretrain"]["phase"][0]
    return settings.decode(Phase, table, "phase")


@pytest.mark.parametrize(("steps", "rise", "theirs"), NUMBERS["google"]["rates"])
def test_rates_of_google(
    steps: int, rise: int, theirs: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "type_vocab_size",
        "vocab_size",
        "max_position_embeddings",
    )
    Path("c.json").write_text(json.dumps(dict.fromkeys(sizes, 8)))
    Path("vocab.txt").touch()
    words = [
        "--bert_config_file=c.json",
        "--input_file=r",
        "--do_train",
        "--output_dir=s",
        f"--learning_rate={PEAK}",
        f"--num_train_steps={steps}",
        f"--num_warmup_steps={rise}",
    ]
    compare(phase_of("google", *words), theirs, rise)


@pytest.mark.parametrize(("steps", "rise", "power", "theirs"), NUMBERS["electra"]["rates"])
def test_rates_of_electra(steps: int, rise: float, power: float, theirs: list[float]) -> None:
    """The original's warmup may end within a step; ordsmed's has complete steps."""
    keys = {"learning_rate": PEAK, "num_train_steps": steps, "num_warmup_steps": int(rise), "lr_decay_power": power}
    compare(phase_of("electra", "--data-dir=d", "--model-name=m", f"--hparams={json.dumps(keys)}"), theirs, rise)


@pytest.mark.parametrize(("steps", "rise", "power", "end", "theirs"), NUMBERS["nvidia"]["rates"])
def test_rates_of_nvidia(steps: int, rise: int, power: float, end: float, theirs: list[float]) -> None:
    words = [
        "--model_name=m",
        "--pretrain_tfrecords=a",
        f"--learning_rate={PEAK}",
        f"--num_train_steps={steps}",
        f"--num_warmup_steps={rise}",
        f"--lr_decay_power={power}",
        f"--end_lr={end}",
    ]
    compare(phase_of("nvidia", *words), theirs, rise)


@pytest.mark.parametrize("code", ["electra", "nvidia"])
def test_generators(code: str) -> None:
    """Google rounds the width to an integer, NVIDIA to complete attention heads."""
    for width, layers, share, wide, deep, _, heads in NUMBERS[code]["generators"]:
        size = {256: "small", 768: "base", 1024: "large"}[width]
        if code == "nvidia":
            words = ["--model_name=m", "--pretrain_tfrecords=a", f"--model_size={size}"]
            got = resolved(code, "run_pretraining.py", *words, f"--generator_hidden_size={share}")
            assert (got["pretrain: objective.generator.width"], wide) == (wide, 64 * heads)
            continue
        keys = {"model_size": size, "generator_hidden_size": share, "generator_layers": 0.55}
        call = called(code, "run_pretraining.py", "--data-dir=d", "--model-name=m", f"--hparams={json.dumps(keys)}")
        assert call.recipes["pretrain"]["objective"]["generator"] == {"width": wide, "layers": deep}
        assert deep == round(0.55 * layers)
