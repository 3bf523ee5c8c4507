"""Exported models load in transformers and give the same outputs there."""

from __future__ import annotations

import json
import logging
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.use.fill import fill
from ordsmed.use.generate import generate
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights.export import export
from ordsmed.weights.trained_model import open_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXT = "The old smith mends the iron gate, and my sister forgets a bell."


@pytest.fixture(scope="module")
def out(tiny_run, tmp_path_factory):
    """Both runs, exported."""
    folder = tmp_path_factory.mktemp("out")
    return {family: export(getattr(tiny_run, family), folder / family) for family in ("bert", "gpt2")}


@pytest.fixture
def quiet(caplog):
    """Fails a test in which transformers complained: of missing or unexpected weights, say."""
    from transformers.utils import logging as theirs

    theirs.disable_progress_bar()
    theirs.enable_propagation()
    yield
    theirs.disable_propagation()
    said = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
    said = [line for line in said if not line.startswith("Device set to use")]
    assert not said, said


def auto(family):
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    return AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM


def framed(tokenizer, text, family):
    """As the exported tokenizer frames it: a causal model's puts the sign before each text."""
    return tokenizer.encode(text, special=True) if family == "bert" else [tokenizer.end, *tokenizer.encode(text)]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_scores_are_equal_there(tiny_run, out, family, quiet):
    from transformers import AutoTokenizer

    trained = open_model(getattr(tiny_run, family))
    encoded = AutoTokenizer.from_pretrained(out[family])(TEXT, return_tensors="pt")
    ids = encoded["input_ids"]
    assert ids[0].tolist() == framed(trained.tokenizer, TEXT, family)
    theirs, report = auto(family).from_pretrained(out[family], output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        there = theirs.eval()(**encoded).logits
        positions = torch.arange(ids.shape[1])[None]
        here = trained.objective.head(trained.objective.model(ids, positions))
    assert (there - here).abs().max() <= 1e-5 * there.abs().max()
    assert theirs.dtype == torch.float32


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_bare_network_loads(tiny_run, out, family):
    from transformers import AutoModel

    trained = open_model(getattr(tiny_run, family))
    theirs, report = AutoModel.from_pretrained(out[family], output_loading_info=True)
    assert {name for name in report["missing_keys"]} <= {"pooler.dense.weight", "pooler.dense.bias"}
    assert not report["mismatched_keys"]
    ids = torch.tensor([trained.tokenizer.encode(TEXT, special=True)])
    with torch.no_grad():
        there = theirs.eval()(ids).last_hidden_state
        here = trained.objective.model(ids, torch.arange(ids.shape[1])[None])
    assert (there - here).abs().max() <= 1e-5 * there.abs().max()


def test_fill_mask_pipeline_agrees_with_fill(tiny_run, out, quiet):
    from transformers import pipeline

    found = pipeline("fill-mask", model=str(out["bert"]), device="cpu")("The old [MASK] mends the gate.", top_k=4)
    ours = fill(open_model(tiny_run.bert), "The old [MASK] mends the gate.", 4).masks[0]
    assert [f["score"] for f in found] == pytest.approx([guess.probability for guess in ours], rel=1e-4)
    assert [f["token_str"].removeprefix("##") for f in found] == [guess.text for guess in ours]


def test_text_generation_pipeline_goes_on(tiny_run, out, quiet):
    from transformers import pipeline

    write = pipeline("text-generation", model=str(out["gpt2"]), device="cpu")
    [found] = write("The old smith", max_new_tokens=4, do_sample=False)
    ours = generate(open_model(tiny_run.gpt2), "The old smith", SamplingOptions(tokens=4, temperature=0))
    assert found["generated_text"] == ours.text


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_tokenizer_knows_its_limits_and_signs(tiny_run, out, family):
    from transformers import AutoTokenizer

    ours, theirs = open_model(getattr(tiny_run, family)).tokenizer, AutoTokenizer.from_pretrained(out[family])
    assert theirs.model_max_length == 64
    assert theirs.mask_token_id == ours.mask
    assert (theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id) == (ours.start, ours.stop, ours.pad)
    assert theirs.eos_token_id == ours.end
    for text in (TEXT, "Ærlig talt: naïve\tçédille 中文 🙂", ""):
        assert theirs(text)["input_ids"] == framed(ours, text, family)
    assert ("token_type_ids" in theirs("a")) == (family == "bert")


def test_each_tensor_is_written_once_in_fp32(out):
    from safetensors import safe_open

    for family, absent in (("bert", "cls.predictions.decoder.weight"), ("gpt2", "lm_head.weight")):
        with safe_open(out[family] / "model.safetensors", "pt") as file:
            assert file.metadata() == {"format": "pt"}
            assert absent not in file.keys()  # noqa: SIM118
            assert {file.get_tensor(k).dtype for k in file.keys()} == {torch.float32}  # noqa: SIM118


def test_a_step_is_exported(tiny_run, out, tmp_path):
    early = export(tiny_run.bert, tmp_path / "early", 8)
    assert (early / "model.safetensors").read_bytes() != (out["bert"] / "model.safetensors").read_bytes()
    card = (early / "README.md").read_text()
    assert "8 of 12 steps, 1,024 tokens seen" in card
    lines = [json.loads(line) for line in (tiny_run.bert / "metrics.jsonl").read_text().splitlines()]
    [judged] = [line["validation"] for line in lines if line["step"] == 8 and "validation" in line]
    assert f"| loss (nats a prediction) | {judged:.4f} |" in card
    assert json.loads((early / "ordsmed.json").read_text())["step"] == 8


def test_the_same_run_gives_the_same_files(tiny_run, out, tmp_path):
    again = export(tiny_run.bert, tmp_path / "bert")
    names = sorted(p.name for p in out["bert"].iterdir())
    assert names == sorted(p.name for p in again.iterdir())
    assert all((again / n).read_bytes() == (out["bert"] / n).read_bytes() for n in names)


# the card


def test_the_card_tells_data_settings_steps_and_scores(tiny_run, out):
    card = (out["bert"] / "README.md").read_text()
    status = Run(tiny_run.folder / "encode-bert").status
    row = next(line for line in card.splitlines() if line.startswith("| Invented sentences"))
    assert f"{status['train']['documents']:,} documents, {status['train']['tokens']:,} tokens" in row
    assert f"{status['validation']['documents']:,} documents" in row
    assert "| en | CC0-1.0 | 100% |" in row
    assert "| 1 | 8 | 32 | 4 |" in card
    assert "12 of 12 steps, 2,048 tokens seen" in card
    scores = json.loads((tiny_run.bert / "scores.json").read_text())
    assert f"| {scores['validation']:.4f} |" in card
    assert f"| {scores['unigram']:.4f} |" in card
    assert "With ordsmed " in card


def test_the_cards_head_is_read_by_the_hub(out):
    from huggingface_hub import ModelCard

    for family, task in (("bert", "fill-mask"), ("gpt2", "text-generation")):
        found = ModelCard.load(out[family] / "README.md").data
        assert found.library_name == "transformers"
        assert found.pipeline_tag == task
        assert family in found.tags
        assert found.language == ["en"]
        assert found.datasets is None  # "Invented sentences" is no data set of the hub
        assert found.license is None


def test_a_licence_that_is_told_stands_in_the_card(tiny_run, tmp_path):
    assert (
        'license: "apache-2.0"'
        in (export(tiny_run.gpt2, tmp_path / "x", licence="apache-2.0") / "README.md").read_text()
    )


def test_the_cards_recipe_is_the_runs(tiny_run, out):
    told = re.search(r"```toml\n(.*?)```", (out["bert"] / "README.md").read_text(), re.S)
    recipe = tomllib.loads((tiny_run.bert / "recipe.toml").read_text())
    assert recipe.pop("layout")
    recipe.pop("out")
    for key in ("data", "init"):  # paths depend on the machine
        if key in recipe:
            recipe[key] = Path(recipe[key]).name
    assert tomllib.loads(told[1]) == recipe


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_cards_code_works(out, family, monkeypatch, capsys):
    code = re.search(r"```python\n(.*?)```", (out[family] / "README.md").read_text(), re.S)[1]
    monkeypatch.chdir(out[family].parent)
    names = {}
    exec(code, names)
    assert capsys.readouterr().out
    assert names["model"].config.model_type == family


def test_the_card_survives_data_that_are_gone(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run.bert, tmp_path / "run")
    text = (run / "recipe.toml").read_text().replace("encode-bert.toml", "gone.toml")
    (run / "recipe.toml").write_text(text)
    assert (
        "| gone.toml | not said | not said | 100% | none | none |"
        in (export(run, tmp_path / "out") / "README.md").read_text()
    )


# where it writes


def test_an_earlier_export_is_replaced_whole(tiny_run, tmp_path):
    out = export(tiny_run.bert, tmp_path / "x")
    (out / "vocab.txt").write_text("stale")
    assert export(tiny_run.gpt2, out) == out
    assert not (out / "vocab.txt").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x"]


def test_a_folder_of_others_is_kept_unless_told(tiny_run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RecipeError, match=r"mine: stands; wanted a new folder.*--anew"):
        export(tiny_run.bert, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    export(tiny_run.bert, tmp_path / "mine", anew=True)
    assert not (tmp_path / "mine" / "thesis.txt").exists()
    (tmp_path / "empty").mkdir()
    assert export(tiny_run.bert, tmp_path / "empty")


def test_a_run_or_the_model_itself_is_never_written_over(tiny_run, tmp_path, monkeypatch):
    hub = export(tiny_run.bert, tmp_path / "hub")
    (tmp_path / "models.toml").write_text('[names]\n"their/model" = "hub"\n')
    monkeypatch.setenv("ORDSMED_MODELS", str(tmp_path / "models.toml"))
    with pytest.raises(RecipeError, match="is the model that is read, or contains it"):
        export("their/model", hub)
    for target in (hub, tmp_path):
        with pytest.raises(RecipeError, match="is the model that is read, or contains it"):
            export(hub, target, anew=True)
    with pytest.raises(RecipeError, match="is the folder of a `pretrain`"):
        export(hub, tiny_run.gpt2, anew=True)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(RecipeError, match="is a file"):
        export(hub, file)


def test_a_failure_leaves_nothing_and_keeps_the_earlier_export(tiny_run, tmp_path, monkeypatch):
    out = export(tiny_run.bert, tmp_path / "x")
    before = (out / "README.md").read_bytes()

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ordsmed.weights.card.write", fail)
    with pytest.raises(KeyboardInterrupt):
        export(tiny_run.gpt2, out)
    assert (out / "README.md").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_hugging_face_folder_is_exported_again_unchanged(out, tmp_path):
    again = export(out["gpt2"], tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (out["gpt2"] / "model.safetensors").read_bytes()
    assert (again / "config.json").read_bytes() == (out["gpt2"] / "config.json").read_bytes()
    assert "how they were trained is not known here" in (again / "README.md").read_text()


@pytest.mark.parametrize(("name", "called"), [("", "mine"), ("lab/bert", "lab/bert")])
def test_the_card_calls_a_folder_by_its_name_or_another(tiny_run: Any, tmp_path: Path, name: str, called: str) -> None:
    card = (export(tiny_run.bert, tmp_path / "mine", name=name) / "README.md").read_text()
    assert f"\n# {called}\n" in card
    assert f'"{called}"' in card.replace("'", '"')
