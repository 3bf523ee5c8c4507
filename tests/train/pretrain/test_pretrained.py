"""What a finished pretraining leaves and tells, held against what it wrote on the way; and what it asks of its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import job_of, make_store
from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.learn.objectives import mlm
from ordsmed.train import checkpoint
from ordsmed.train.meters import read
from ordsmed.train.pretrain import plan as plans
from ordsmed.train.pretrain.finish import beside, where
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.texts import TextData
from ordsmed.weights import weights
from ordsmed.weights.boxes import Boxes
from ordsmed.weights.export import export

Recipe = Callable[..., Path]


def test_what_a_finished_run_leaves(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    """Sums over its steps, the last loss, the last validation; weights and their running mean as they were saved."""
    folder = pretrain(str(recipe(steps=4, validate=2, average=0.5)), ["model.width=16", "model.layers=1"])
    facts, status = files.read_json(folder / "scores.json"), Run(folder).status
    lines = read(folder / "metrics.jsonl")
    steps, judged = [x for x in lines if "validation" not in x], [x for x in lines if "validation" in x]
    assert ([x["step"] for x in steps], [x["step"] for x in judged]) == ([1, 2, 3, 4], [2, 4])
    assert (facts["step"], facts["tokens"], facts["loss"]) == (4, 4 * 8 * 32, steps[-1]["loss"])
    assert facts["training_seconds"] == round(sum(x["seconds"] for x in steps), 1)
    assert {k: facts[k] for k in judged[-1] if k not in ("step", "phase")} == {
        k: v for k, v in judged[-1].items() if k not in ("step", "phase")
    }
    assert "phase" not in facts
    assert {k: status[k] for k in facts} == facts
    assert (status["state"], "why" in status) == ("done", False)
    share = 1 - facts["validation"] / facts["unigram"]
    side = f"{share:.1%} below" if share >= 0 else f"{-share:.1%} above"
    said = capsys.readouterr().err
    told = f"validation loss {facts['validation']:.4f}: {side} the {facts['unigram']:.4f} of guessing by frequency"
    assert told in said
    saved = weights.read(folder / "checkpoints" / "step-000000004" / "model.safetensors")
    own, mean = (weights.read(folder / name / "model.safetensors") for name in ("weights", "average"))
    assert all(torch.equal(own[name], saved[name]) for name in saved)
    assert not torch.equal(own["model.words.weight"], mean["model.words.weight"])
    assert not (folder / "loss.svg").exists()  # who starts a training has it drawn
    assert where(folder) == "step 4 of 4, phase 1"


@pytest.mark.parametrize(("guessed", "side"), [(10.0, "below"), (1.0, "above")])
def test_a_loss_lies_below_or_above_that_of_guessing(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], guessed: float, side: str
) -> None:
    monkeypatch.setattr(TextData, "unigram", lambda *_: (guessed, 0.25))
    folder = pretrain(str(recipe(steps=2, validate=2)), ["model.width=16", "model.layers=1"])
    loss = files.read_json(folder / "scores.json")["validation"]
    told = f"validation loss {loss:.4f}: {abs(1 - loss / guessed):.1%} {side} the {guessed:.4f} of guessing"
    assert told in capsys.readouterr().err


def test_what_guesses_no_tokens_is_beside_no_guessing(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    build = mlm.Mlm.build

    def built(self: mlm.Mlm, *given: Any) -> Any:
        made = build(self, *given)
        made.guesses = ""
        return made

    monkeypatch.setattr(mlm.Mlm, "build", built)
    folder = pretrain(str(recipe(steps=2, validate=2)), ["model.width=16", "model.layers=1"])
    facts = files.read_json(folder / "scores.json")
    assert facts["validation"] > 0
    assert not {"unigram", "guessing"} & facts.keys()


def test_guessing_by_frequency_by_hand(recipe: Recipe, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other", seed=4, documents=200)
    store = job_of(recipe()).recipe.data
    job = job_of(recipe(validation_rows=5), f'data={{ "{store}" = 1.0, "{other}" = 1.0 }}')
    texts: Any = job.data
    rows = texts.validation(0)
    batch = rows.batch(np.arange(5))
    targets = batch.targets[batch.weights > 0].numpy()
    counts = sum(np.bincount(np.asarray(e.train.tokens), minlength=126) for e in texts.encoded)
    loss, right = texts.unigram(0)
    assert right == pytest.approx(float((targets == counts.argmax()).mean()))
    shares = (counts + 1) / (counts + 1).sum()
    assert loss == pytest.approx(-np.log(shares[targets]).mean(), rel=0.02)
    assert texts.validation(0) is rows, "made once"
    assert list(texts.facts()) == [str(store), str(other)]
    told = texts.describe(job, {"validation": 1.5, "mlm_right": 0.25, "mlm": 1.5})
    assert told == "validation loss 1.5000 (mlm 25.0% right)"
    assert texts.describe(job, {"validation": 1.5}) == "validation loss 1.5000"


def test_a_term_beside_guessing() -> None:
    facts = {"guessing": {"nsp": 0.69, "nsp_right": 0.5, "mlm": 6.0}, "nsp": 0.5, "nsp_right": 0.75, "mlm": 3.0}
    assert beside("nsp", facts) == "nsp: 75.0% right, 50.0% by guessing; loss 0.5000, 0.6900 by guessing"
    assert beside("mlm", facts) == ""
    assert beside("nsp", {**facts, "guessing": {"nsp": 0.69}}) == ""


def test_data_of_every_source_are_made_and_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(plans.run, "obtain", lambda kind, source: noted.append(source) or f"at {source}")
    train = SimpleNamespace(token_count=1, document_count=1)
    monkeypatch.setattr(
        plans,
        "Encoded",
        lambda at: SimpleNamespace(
            check=lambda: noted.append(at),
            train=train,
            tokenizer=SimpleNamespace(fingerprint="same"),
            facts={"tokenizer": "same"},
        ),
    )
    monkeypatch.setattr(plans.run, "finished_by", lambda *_: True)
    recipe: Any = SimpleNamespace(sources=["a", "b"], data={"a": 1.0, "b": 2.0}, tokenizer=None)
    _, _, data = plans._inputs(recipe, make=True)
    assert noted == ["a", "b"]
    PretrainingPlan(recipe=recipe, ranks=Ranks(torch.device("cpu")), data=data).verify()
    assert noted[2:] == ["at a", "at b"]


def test_what_it_starts_from_is_asked_for_before_data_are_made(recipe: Recipe, tmp_path: Path) -> None:
    """Not where it has come to a checkpoint of its own, nor where it is only planned."""
    asked, _ = run.load(Pretraining, str(recipe()), [f'init="{tmp_path}/gone"'])
    ranks = Ranks(torch.device("cpu"))
    for folder in (None, tmp_path / "run"):
        with pytest.raises(RecipeError, match=r"init: found .*gone, no such folder"):
            PretrainingPlan.of(asked, ranks, folder)
        assert PretrainingPlan.of(asked, ranks, folder, here=False).network is asked.model
    (tmp_path / "run" / "checkpoints" / "step-000000003").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "step-000000003" / "state.json").write_text("{}")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [3]
    assert PretrainingPlan.of(asked, ranks, tmp_path / "run").network is asked.model


def test_where_a_run_stands(recipe: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "stands"
    folder.mkdir()
    second = "[[phase]]\nsteps = 1200\nlength = 8\nbatch = 4\nrate = 1e-3\n"
    (folder / "recipe.toml").write_text(recipe(steps=12, extra=second).read_text())
    for step, told in ((0, "step 0 of 1,212, phase 1"), (12, "step 12 of 1,212, phase 2"), (1212, "step 1,212 of 1,2")):
        if step:
            made = folder / "checkpoints" / f"step-{step:09d}"
            made.mkdir(parents=True)
            (made / "state.json").write_text("{}")
        assert where(folder).startswith(told)
    assert where(folder).endswith("phase 2")


@pytest.mark.parametrize("kind", ["modern", "gpt2"])
def test_first_causal_then_masked_on_one_body(recipe: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    """Two runs, the second from the first one's weights and moments; exported as what it is now, or refused."""
    first = pretrain(str(recipe("first", kind, "clm", steps=4)), ["model.causal=true"])
    second = str(recipe("second", kind, "mlm", steps=4, init=str(first)))
    run = pretrain(second, ["model.causal=false", "phase.learning_rate=1e-12"])
    before, after = (weights.read(folder / "weights" / "model.safetensors") for folder in (first, run))
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], value, atol=1e-6) for name, value in after.items())
    moments = [Boxes(folder / "checkpoints" / "step-000000004", "optimizer") for folder in (first, run)]
    counts = [stored.read("step/model.words.weight").item() for stored in moments]
    assert counts == [4, 8], "moments went on"
    assert export_of(first, tmp_path / "causal") in ("ModernBertDecoderForCausalLM", "GPT2LMHeadModel")
    if kind == "modern":
        assert export_of(run, tmp_path / "masked") == "ModernBertForMaskedLM"
    else:
        with pytest.raises(RecipeError, match="no format can hold it"):
            export_of(run, tmp_path / "masked")


def export_of(run: Path, out: Path) -> str:
    """The class of others that opens a run's folder."""
    export(run, out)
    return str(files.read_json(out / "config.json")["architectures"][0])
