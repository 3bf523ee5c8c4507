"""Heads of Hugging Face folders are exported again under their class, or the loss of a head is reported."""

from __future__ import annotations

import json

import pytest
import torch

from kit.families import close, shaken
from kit.language_models import tokenizer
from kit.makers import SPECIAL
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.learn.objectives.rtd import Generator, Rtd
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import electra
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, weights
from ordsmed.weights.export import export
from ordsmed.weights.formats.huggingface import HuggingFace
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import Trained, open_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
WORDS = 60
SHAPE = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
    "type_vocab_size": 2,
}
PAIRS = ("Bert", "MegatronBert")


def theirs(folder, name, **more):
    import transformers as t

    stem = name.partition("For")[0].removesuffix("Model")
    torch.manual_seed(len(name))
    model = shaken(getattr(t, name)(getattr(t, f"{stem}Config")(vocab_size=WORDS, **SHAPE, **more)))
    model.save_pretrained(folder)
    signs = ["[UNK]", "[PAD]", *SPECIAL[2:]] if stem == "Roberta" else SPECIAL
    (folder / "vocab.txt").write_text("\n".join([*signs, *(f"w{n}" for n in range(WORDS - len(signs)))]) + "\n")
    Tokenizer.load(folder / "vocab.txt").save(folder)
    return model


def same_there(model, folder):
    """The same class, nothing missing and nothing unexpected, with the same numbers and answers."""
    again, report = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    ids = torch.randint(6, WORDS, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        here, there = model(ids).to_tuple(), again.eval()(ids).to_tuple()
    assert len(here) == len(there)
    assert all(close(a, b, 1e-5) for a, b in zip(here, there, strict=True))
    idle = set() if model.config.tie_word_embeddings else {"cls.predictions.bias"}  # the decoder has its own
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in model.state_dict().items() if k not in idle)


@pytest.mark.parametrize("stem", PAIRS)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_both_heads_of_a_pretraining_are_kept(stem, tied, tmp_path):
    model = theirs(tmp_path / "hub", f"{stem}ForPreTraining", tie_word_embeddings=tied)
    same_there(model, export(tmp_path / "hub", tmp_path / "out"))
    take_over(tmp_path / "hub", tmp_path / "ours")
    same_there(model, export(tmp_path / "ours", tmp_path / "again"))
    assert json.loads((tmp_path / "again/config.json").read_text())["architectures"] == [f"{stem}ForPreTraining"]


def test_heads_are_known_by_their_tensors_whatever_class_is_named(tmp_path):
    """Published BERTs name the class for masks alone, and hold all."""
    model = theirs(tmp_path / "hub", "BertForPreTraining")
    path = tmp_path / "hub" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["BertForMaskedLM"]}))
    same_there(model, export(tmp_path / "hub", tmp_path / "out"))
    held = weights.read(tmp_path / "hub" / "model.safetensors")  # as the first ones were saved
    old = {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in held.items()
    }
    (tmp_path / "hub" / "model.safetensors").unlink()
    torch.save(old, tmp_path / "hub" / "pytorch_model.bin")
    same_there(model, export(tmp_path / "hub", tmp_path / "old"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BertForMaskedLM", "bert.pooler.dense"),
        ("MegatronBertForMaskedLM", "bert.pooler.dense"),
        ("RobertaForMaskedLM", "roberta.pooler.dense"),
    ],
)
def test_a_pooler_that_nobody_asks_is_told(tmp_path, capsys, name, said):
    theirs(tmp_path / "hub", name, **({"pad_token_id": 1} if name.startswith("Roberta") else {}))
    path = tmp_path / "hub" / "model.safetensors"
    extra = {f"{said}.weight": torch.randn(32, 32), f"{said}.bias": torch.randn(32)}
    weights.write(path, {**weights.read(path), **extra})
    capsys.readouterr()
    take_over(tmp_path / "hub", tmp_path / "ours")
    assert f"unused weights of heads that this model does not have: {said}\n" in capsys.readouterr().err


def test_of_what_begins_a_task_the_heads_that_stay_behind_are_told(tmp_path, capsys):
    from ordsmed.learn.tasks import tag

    theirs(tmp_path / "hub", "BertForPreTraining")
    task = tag.Tag(labels=("a", "b")).build(foreign.settings(tmp_path / "hub"), Tokenizer.load(tmp_path / "hub"))
    foreign.begin(task.networks()[""], tmp_path / "hub", Tokenizer.load(tmp_path / "hub"))
    told = capsys.readouterr().err
    assert "unused weights of heads" in told
    assert all(name in told for name in ("bert.pooler.dense", "cls.seq_relationship", "cls.predictions.transform"))


def test_an_import_with_two_heads_begins_what_asks_for_one(tmp_path, capsys):
    from ordsmed.learn.objectives import mlm

    theirs(tmp_path / "hub", "BertForPreTraining")
    take_over(tmp_path / "hub", tmp_path / "ours")
    tokenizer = Tokenizer.load(tmp_path / "hub")
    objective = mlm.Mlm().build(foreign.settings(tmp_path / "ours"), tokenizer)
    foreign.load_into(objective, tmp_path / "ours", tokenizer)
    assert "ours: unused weights of heads that this model does not have: pair\n" in capsys.readouterr().err
    held = weights.read(tmp_path / "ours/model.safetensors")
    assert all(torch.equal(tensor, held[name]) for name, tensor in own_tensors(objective).items())


@pytest.mark.parametrize(
    "name",
    [
        "BertModel",
        "ElectraModel",
        *(f"{stem}ForNextSentencePrediction" for stem in PAIRS),
        "BertForMultipleChoice",
        "ElectraForMultipleChoice",
    ],
)
def test_a_network_without_a_head_is_no_model_to_write_but_one_to_embed_with(tmp_path, name):
    model = theirs(tmp_path / "hub", name)
    for asked in (export, take_over):
        with pytest.raises(DataError, match=rf"without the required heads \({name}\).*`embed` and `finetune init"):
            asked(tmp_path / "hub", tmp_path / "out")
    own = open_model(tmp_path / "hub", body=True).objective.networks()[""].tensors()["model.words.weight"]
    assert torch.equal(own, model.get_input_embeddings().weight)


def test_a_generator_that_stays_behind_is_told(tmp_path, capsys):
    model = theirs(tmp_path / "hub", "ElectraForPreTraining")
    theirs(tmp_path / "hub/generator", "ElectraForMaskedLM")
    same_there(model, export(tmp_path / "hub", tmp_path / "out"))
    assert f"`ordsmed export {tmp_path}/hub/generator OUT` writes it as well" in capsys.readouterr().err
    (tmp_path / "hub/generator").rename(tmp_path / "elsewhere")
    with pytest.raises(RecipeError, match="has a discriminator without its generator"):
        take_over(tmp_path / "hub", tmp_path / "ours")


@pytest.mark.parametrize("share", ["embeddings", "words", "none"])
def test_an_electra_that_was_exported_comes_back_whole(tmp_path, share):
    learned = Rtd(share=share, generator=Generator(width=16, layers=1, heads=2, inner=24))
    network = electra.Electra(width=32, layers=2, heads=2, positions=32, embedding=16)
    words, first = tokenizer(tmp_path / "words"), tmp_path / "small-discriminator"
    run = Trained(shaken(learned.build(network, words)).eval(), words, network, tmp_path, learned=learned)
    first.mkdir()
    HuggingFace().write(run, first)
    take_over(first, tmp_path / "ours")
    (first / "generator").rename(tmp_path / "small-generator")
    take_over(first, tmp_path / "again")
    wanted = own_tensors(run.objective)
    for name in ("ours", "again"):
        found = open_model(tmp_path / name)
        assert (found.learned.share, found.learned.generator) == (share, learned.generator)
        tensors = own_tensors(found.objective)
        assert tensors.keys() == wanted.keys()
        assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)


def test_a_tokenizer_that_is_not_the_networks_is_refused(tmp_path):
    """A RoBERTa counts positions from its padding token on: with another one its export would answer otherwise."""
    theirs(tmp_path / "hub", "RobertaForMaskedLM", pad_token_id=1)
    text = (tmp_path / "hub/tokenizer.json").read_text()
    swapped = text.replace('"[PAD]"', '"[X]"').replace('"[UNK]"', '"[PAD]"').replace('"[X]"', '"[UNK]"')
    (tmp_path / "hub/tokenizer.json").write_text(swapped)
    for asked in (export, take_over):
        with pytest.raises(
            DataError, match=r"hub: tokenizer: its padding token has the id 0; wanted 1, .*add the model's tokenizer"
        ):
            asked(tmp_path / "hub", tmp_path / "out")
