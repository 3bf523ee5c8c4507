"""Runs and foreign folders open; what is missing or damaged is said in a line."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from kit.language_models import LEARNED, SENTENCES, elmo_made, made
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.nn.attention import Cache
from ordsmed.nn.model import own_tensors
from ordsmed.nn.packed_layers import lacks_int8
from ordsmed.use.embed import Form, embedded
from ordsmed.use.fill import fill
from ordsmed.use.generation.network import writing
from ordsmed.weights import weights
from ordsmed.weights.export import export, export_all
from ordsmed.weights.trained_model import Trained, can_multiply, open_model, opened

WITH_INT8 = pytest.mark.skipif(bool(lacks_int8(torch.device("cpu"))), reason="no exact products of 8 bits here")


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of the BERT run that a test may break."""
    return shutil.copytree(tiny_run.bert, tmp_path / "run")


def same(one, other):
    a, b = (own_tensors(t.objective) for t in (one, other))
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_finished_run_opens_with_its_last_weights(tiny_run):
    found = open_model(tiny_run.bert)
    saved = weights.read(tiny_run.bert / "weights" / "model.safetensors")
    own = own_tensors(found.objective)
    assert found.step == 12
    assert found.kind == "bert"
    assert not found.objective.training
    assert saved.keys() == own.keys()
    assert all(torch.equal(saved[k], own[k]) for k in saved)


def test_a_kept_step_opens_and_differs_from_the_last(tiny_run):
    early, late = open_model(tiny_run.bert, 8), open_model(tiny_run.bert, 12)
    assert (early.step, late.step) == (8, 12)
    assert not same(early, late)


def test_checkpoint_and_weights_of_the_last_step_agree(run):
    whole = open_model(run)
    shutil.rmtree(run / "weights")
    assert same(open_model(run), whole)
    assert open_model(run).tokenizer.fingerprint == whole.tokenizer.fingerprint


def test_weights_alone_are_enough(run, tmp_path):
    moved = shutil.copytree(run / "weights", tmp_path / "elsewhere")
    assert same(open_model(moved), open_model(run))
    assert same(open_model(run / "weights"), open_model(run))
    shutil.rmtree(run / "checkpoints")
    assert same(open_model(moved), open_model(run))


def test_a_stopped_run_opens_at_its_newest_whole_checkpoint(run, capsys):
    Run(run).set(state="stopped")
    assert open_model(run).step == 12
    broken = run / "checkpoints" / "step-000000012" / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-7] + b"garbage")
    assert open_model(run).step == 8
    assert "damaged" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"step-000000012: model\.safetensors is damaged.*leave out --step"):
        open_model(run, 12)


def test_a_step_that_is_not_kept_is_refused_naming_the_kept_ones(tiny_run):
    with pytest.raises(
        RecipeError, match=r"--step: found 5, but .*bert has no checkpoint of it; wanted one of 0, 8, 12"
    ):
        open_model(tiny_run.bert, 5)


def test_a_run_without_checkpoints_is_told_how_to_get_one(run):
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "weights")
    Run(run).set(state="running")
    with pytest.raises(RecipeError, match=r"no checkpoint yet; `ordsmed pretrain .*run` resumes it"):
        open_model(run)


def test_what_is_no_model_is_refused(tiny_run, tmp_path):
    with pytest.raises(RecipeError, match="no such folder; wanted a run's folder"):
        open_model(tmp_path / "nothing")
    with pytest.raises(RecipeError, match="is neither a run nor a model of a known format"):
        open_model(tmp_path)
    with pytest.raises(RecipeError, match="is the folder of a `encode`"):
        open_model(tiny_run.folder / "encode-bert")
    with pytest.raises(RecipeError, match="is a file"):
        open_model(tiny_run.folder / "texts.txt")


def test_a_tokenizer_other_than_the_checkpoints_is_refused(run, tiny_run):
    Run(run).set(state="stopped")
    shutil.rmtree(run / "weights" / "tokenizer")
    shutil.copytree(tiny_run.gpt2 / "weights" / "tokenizer", run / "weights" / "tokenizer")
    with pytest.raises(DataError, match=r"tokenizer .*; wanted .*, that of"):
        open_model(run)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_hugging_face_folder_opens_as_what_was_exported(tiny_run, tmp_path, family):
    out = export(getattr(tiny_run, family), tmp_path / "hub")
    back, run = open_model(out), open_model(getattr(tiny_run, family))
    assert same(back, run)
    assert back.settings == run.settings
    assert back.tokenizer.fingerprint == run.tokenizer.fingerprint
    assert back.recipe is None
    with pytest.raises(RecipeError, match="--step: found 3"):
        open_model(out, 3)


def test_an_old_folder_with_a_plain_vocabulary_opens(tiny_run, tmp_path):
    """vocab.txt alone, no tokenizer.json: as BERTs lay on the hub for years."""
    out = export(tiny_run.bert, tmp_path / "hub")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (out / name).unlink()
    assert fill(open_model(out), "the old [MASK]") == fill(open_model(tiny_run.bert), "the old [MASK]")


def test_a_damaged_hugging_face_folder_is_refused(tiny_run, tmp_path):
    out = export(tiny_run.bert, tmp_path / "hub")
    file = out / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be read"):
        open_model(out)
    file.unlink()
    with pytest.raises(DataError, match="has no weights"):
        open_model(out)


def test_a_run_that_took_its_size_from_another_opens(run, tiny_run):
    Run(run).set(state="stopped")
    (run / "weights" / "settings.toml").unlink()
    text = (run / "recipe.toml").read_text()
    head, _, rest = text.partition("[model]")
    tail = rest[rest.index("\n[") :]
    (run / "recipe.toml").write_text(f'init = "{tiny_run.bert}"\n{head}{tail}')
    assert open_model(run).settings == open_model(tiny_run.bert).settings
    (run / "recipe.toml").write_text(f'init = "{tiny_run.folder}/gone"\n{head}{tail}')
    with pytest.raises(RecipeError, match=r"was started from .*gone, which is missing"):
        open_model(run)


@pytest.mark.parametrize(
    ("state", "why"),
    [("stopped", "it was stopped"), ("failed", "it failed"), ("running", "it is still running, or was killed")],
)
def test_weights_of_no_end_are_told(run, capsys, state, why, tmp_path):
    shutil.rmtree(run / "checkpoints" / "step-000000012")
    Run(run).set(state=state)
    open_model(run)
    assert f"{run}: step 8 of 12: {why}; `ordsmed pretrain {run}` resumes it\n" in capsys.readouterr().err
    open_model(run, 8)
    assert "of 12" not in capsys.readouterr().err
    card = (export(run, tmp_path / "out") / "README.md").read_text()
    assert "8 of 12 steps (the run is not finished)" in card
    Run(run).set(state="done")
    capsys.readouterr()
    open_model(run)
    assert "of 12" not in capsys.readouterr().err
    assert "not finished" not in (export(run, tmp_path / "out") / "README.md").read_text()


def test_a_first_step_whose_init_is_gone_is_left_out_of_all(run, tmp_path, capsys):
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(f'init = "{tmp_path}/gone"\n{recipe}')
    with pytest.raises(DataError, match=r"run: init: found .*gone, no such folder; wanted a run's folder"):
        open_model(run, 0)
    assert [out.name for out in export_all(run, tmp_path / "out")] == ["step-8", "step-12"]
    assert "step 0 is skipped: " in capsys.readouterr().err


@pytest.mark.parametrize("family", [*LEARNED, "elmo"])
def test_in_16_bits_a_model_is_as_near_as_by_autocast(family, tmp_path, monkeypatch):
    trained = elmo_made(tmp_path) if family == "elmo" else made(family, tmp_path)
    before = {name: tensor.clone() for name, tensor in own_tensors(trained.objective).items()}
    half = replace(trained, precision="bf16")

    def vectors(trained):
        found = embedded(trained, SENTENCES, Form(of="sentences", layers="all"))
        return np.concatenate([one.vectors for one in found])

    whole, once, again = vectors(trained), vectors(half), vectors(half)
    assert np.array_equal(once, again)
    monkeypatch.setattr(Trained, "within", lambda self: torch.autocast("cpu", torch.bfloat16))
    far, by_autocast = (float(np.abs(one - whole).mean()) for one in (once, vectors(half)))
    assert 0 < far <= 1.25 * by_autocast
    assert by_autocast < 0.05 * float(np.abs(whole).mean())
    after = own_tensors(trained.objective)
    assert all(after[name].dtype == torch.float32 and torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("tensor", [1, 2])
def test_in_16_bits_on_a_gpu_attention_is_not_cudnns(tensor, tmp_path, monkeypatch):
    """While the model is asked; who learns in the same process has what he had."""
    cuda, asked = Ranks(torch.device("cuda"), shape=(1, 1, tensor)), []
    monkeypatch.setattr(torch, "autocast", lambda device, dtype: asked.append(device) or nullcontext())
    trained = made("gpt2", tmp_path)
    for ranks, precision, runs in ((cuda, "bf16", False), (cuda, "fp16", False), (trained.ranks, "bf16", True)):
        with replace(trained, ranks=ranks, precision=precision).within():
            assert torch.backends.cuda.cudnn_sdp_enabled() == runs
        assert torch.backends.cuda.cudnn_sdp_enabled()
    assert asked == ["cuda", "cuda", "cpu"]


@WITH_INT8
@pytest.mark.parametrize("family", [*LEARNED])
def test_in_8_bits_a_model_tells_about_the_same(family, tmp_path):
    """Batches or texts alone, the second time the same; its own weights stay."""
    trained = made(family, tmp_path)
    before = {name: tensor.clone() for name, tensor in own_tensors(trained.objective).items()}
    small = replace(trained, precision="int8")

    def vectors(trained, texts):
        return np.concatenate([one.vectors for one in embedded(trained, texts, Form(of="sentences", layers="all"))])

    whole, once, again = (vectors(each, SENTENCES) for each in (trained, small, small))
    apart = np.concatenate([vectors(small, [each]) for each in SENTENCES])
    spread = float(np.abs(whole).mean())
    assert np.array_equal(once, again)
    assert 0 < float(np.abs(once - whole).mean()) < 0.03 * spread
    assert float(np.abs(apart - whole).mean()) < 0.03 * spread
    after = own_tensors(trained.objective)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert np.array_equal(vectors(trained, SENTENCES), whole)


@WITH_INT8
def test_in_8_bits_texts_are_written_and_masks_filled(tmp_path):
    network, small = (writing(replace(made("gpt2", tmp_path), precision=each)) for each in ("fp32", "int8"))
    row = torch.arange(6, 18)[None]
    scores = [each.next_scores(row, torch.arange(12)[None], None, Cache(2)) for each in (network, small)]
    cache = Cache(2)
    small.next_scores(row[:, :11], torch.arange(11)[None], None, cache)
    scores.append(small.next_scores(row[:, 11:], torch.tensor([[11]]), None, cache))
    assert not torch.equal(scores[0], scores[1])
    spread = float(scores[0].std())
    assert all(float((one - scores[0]).abs().mean()) < 0.05 * spread for one in scores[1:])
    whole, mended = (
        fill(replace(made("bert", tmp_path), precision=each), "a [MASK] cat", 3) for each in ("fp32", "int8")
    )
    chances = [[guess.probability for guess in each.masks[0]] for each in (whole, mended)]
    assert chances[0] != chances[1]
    assert chances[0] == pytest.approx(chances[1], rel=0.1)


def test_who_cannot_multiply_in_8_bits_is_told_what_can(tmp_path, monkeypatch, capsys):
    trained, cpu = made("bert", tmp_path / "bert"), torch.device("cpu")
    with pytest.raises(RecipeError, match=r"found int8, which is for CPUs, and the model is on cuda; use bf16$"):
        can_multiply(trained, "int8", torch.device("cuda"))
    monkeypatch.setattr("ordsmed.weights.trained_model.lacks_int8", lambda device: "this CPU, without VNNI, lacks")
    with pytest.raises(RecipeError, match=r"--precision: found int8, which this CPU, without .*; use fp32 or bf16$"):
        can_multiply(trained, "int8", cpu)
    monkeypatch.setattr("ordsmed.weights.trained_model.lacks_int8", lambda device: "")
    with pytest.raises(RecipeError, match=r"found int8 with layers split over 2 processes; use fp32 or bf16$"):
        can_multiply(trained, "int8", cpu, 2)
    with pytest.raises(RecipeError, match=r"found int8, but .* \(elmo\) is not made of linear layers; use"):
        can_multiply(elmo_made(tmp_path / "elmo"), "int8", cpu)
    can_multiply(trained, "fp32", cpu, 2)
    assert capsys.readouterr().err == ""
    can_multiply(trained, "int8", cpu)
    assert "--precision: 8 linear layers are computed in int8, the rest in fp32" in capsys.readouterr().err


@WITH_INT8
def test_a_model_is_opened_in_8_bits(tiny_run, capsys):
    trained = opened(tiny_run.bert, device="cpu", precision="int8", threads=1)
    assert "linear layers are computed in int8" in capsys.readouterr().err
    whole = opened(tiny_run.bert, device="cpu", threads=1)
    assert fill(trained, "it [MASK] .") != fill(whole, "it [MASK] .")


@pytest.mark.parametrize("family", ["gpt2", "hybrid", "bert"])
def test_in_16_bits_words_are_scored_by_a_table_that_is_cast_once(family, tmp_path, monkeypatch):
    network = writing(replace(made(family, tmp_path), precision="bf16"))
    row = torch.arange(6, 12)[None]

    def told(network):
        if network.trained.settings.capabilities.causal:
            return network.next_scores(row, torch.arange(6)[None], None, Cache(2))
        return network.gap_scores(row[0].tolist(), [2, 4])

    once, again = told(network), told(network)
    assert network.kept["words"].dtype == torch.bfloat16
    monkeypatch.setattr(type(network), "_words", lambda self: self.head.words.weight)
    wanted = told(network)
    assert torch.equal(wanted, once)
    assert torch.equal(wanted, again)
