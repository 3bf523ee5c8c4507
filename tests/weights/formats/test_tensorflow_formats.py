"""Google's BERT and ELECTRA, NVIDIA's ELECTRA, OpenAI's GPT-2: real checkpoints in, the same bits out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from kit import foreign_files
from ordsmed.base.binary import bundle
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import entries, kind_of, load
from ordsmed.nn.model import own_tensors
from ordsmed.weights import foreign, weights
from ordsmed.weights.export import export
from ordsmed.weights.import_folder import recognised
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model, opened

SAYS = np.load(foreign_files.REAL / "says.npz")  # what TensorFlow computed
TOKENS, TYPES = (torch.from_numpy(SAYS[name]) for name in ("tokens", "types"))
MAKERS = {
    "google_bert": foreign_files.google_bert,
    "google_electra": foreign_files.electra,
    "openai_gpt2": foreign_files.openai_gpt2,
}
HEADS = {"google_electra": ["model.heads=2"]}  # which its files do not have


def imported(tmp_path: Path, kind: str) -> Path:
    take_over(MAKERS[kind](tmp_path / "theirs"), tmp_path / "ours", HEADS.get(kind, []))
    return tmp_path / "ours"


def near(found: torch.Tensor, name: str) -> bool:
    return float((found.detach() - torch.from_numpy(SAYS[name])).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", MAKERS)
def test_in_and_out_bit_for_bit(tmp_path: Path, kind: str) -> None:
    out = export(imported(tmp_path, kind), tmp_path / "out", to=kind)
    theirs, back = bundle.opened(tmp_path / "theirs"), bundle.opened(out)
    left = theirs.shapes().keys() - back.shapes().keys()
    assert all(name == "global_step" or "/adam_" in name for name in left)
    assert back.shapes().keys() < theirs.shapes().keys()
    assert all(torch.equal(theirs.read(name), back.read(name)) for name in back.shapes())
    assert json.loads((out / "ordsmed.json").read_text())["format"] == kind
    for name in ("vocab.txt", "vocab.bpe"):
        if (tmp_path / "theirs" / name).exists():
            assert (out / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    for name in ("bert_config.json", "hparams.json", "encoder.json"):
        if (tmp_path / "theirs" / name).exists():
            own, was = (json.loads((folder / name).read_text()) for folder in (out, tmp_path / "theirs"))
            assert own == was
            assert list(own) == list(was) or name != "encoder.json"
    take_over(out, tmp_path / "again", HEADS.get(kind, []))
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "ours/model.safetensors").read_bytes()


@pytest.mark.long
def test_bert_says_what_tensorflow_says(tmp_path: Path) -> None:
    from transformers import BertForPreTraining

    out = export(imported(tmp_path, "google_bert"), tmp_path / "out")
    said = BertForPreTraining.from_pretrained(out).eval()(input_ids=TOKENS, token_type_ids=TYPES)
    assert near(said.prediction_logits, "bert.words")
    assert near(said.seq_relationship_logits, "bert.pair")


@pytest.mark.long
def test_electra_says_what_tensorflow_says(tmp_path: Path) -> None:
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    out = export(imported(tmp_path, "google_electra"), tmp_path / "out")
    fakes = ElectraForPreTraining.from_pretrained(out).eval()(input_ids=TOKENS, token_type_ids=TYPES)
    words = ElectraForMaskedLM.from_pretrained(out / "generator").eval()(input_ids=TOKENS, token_type_ids=TYPES)
    assert near(fakes.logits, "electra.fake")
    assert near(words.logits, "electra.words")


@pytest.mark.long
def test_gpt2_says_what_tensorflow_says(tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    out = export(imported(tmp_path, "openai_gpt2"), tmp_path / "out")
    assert near(GPT2LMHeadModel.from_pretrained(out).eval()(input_ids=TOKENS).logits, "gpt2.words")


def test_nvidias_electra_is_googles_but_for_a_norm(tmp_path: Path) -> None:
    """There both networks share the tables and each has a norm of its own."""
    google = open_model(imported(tmp_path, "google_electra"))
    take_over(foreign_files.electra(tmp_path / "nvidia", "nvidia"), tmp_path / "other", ["model.heads=2"])
    nvidia = open_model(tmp_path / "other")
    assert (google.learned.share, nvidia.learned.share) == ("embeddings", "words")
    one, two = (own_tensors(model.objective) for model in (google, nvidia))
    assert one.keys() < two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    for own in ("places.weight", "types.weight"):
        assert torch.equal(two[f"generator.{own}"], one[f"model.{own}"])
    for own in ("norm.weight", "norm.bias"):
        assert torch.equal(two[f"generator.{own}"], one[f"model.{own}"] + 1)
    with pytest.raises(RecipeError, match="shares words between its two networks"):
        export(tmp_path / "other", tmp_path / "out", to="google_electra")


def test_sizes_that_electras_files_do_not_tell_are_asked_for_or_told(tmp_path: Path) -> None:
    folder = foreign_files.electra(tmp_path / "theirs")
    take_over(folder, tmp_path / "four", ["model.heads=4"])  # of two numbers each, in the generator too
    four = open_model(tmp_path / "four")
    assert (four.settings.heads, four.learned.generator.heads) == (4, 2)
    with pytest.raises(
        RecipeError, match=r"width 8; the files do not say how many heads it has; wanted .*add model\.heads=N"
    ):
        take_over(folder, tmp_path / "ours")


@pytest.mark.parametrize("kind", ["electra", "nvidia"])
def test_heads_of_electras_generator_are_set_at_import(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are not in the files, need not be as wide as those of the other network, and change what it says."""
    folder, words = foreign_files.electra(tmp_path / "theirs", kind), ["model.heads=4"]
    take_over(folder, tmp_path / "usual", words)
    told = (
        "2 heads in the generator, as wide as the discriminator's; objective.generator.heads=N after `ordsmed import`"
    )
    assert told in capsys.readouterr().err
    take_over(folder, tmp_path / "one", [*words, "objective.generator.heads=1"])
    assert "heads" not in capsys.readouterr().err
    usual, one = (open_model(tmp_path / name) for name in ("usual", "one"))
    assert (usual.learned.generator.heads, one.learned.generator.heads) == (2, 1)
    assert (one.settings, one.objective.networks()["generator"].settings.heads) == (usual.settings, 1)
    out = export(tmp_path / "one", tmp_path / "out")
    assert foreign.settings(out / "generator").heads == 1
    with pytest.raises(RecipeError, match=r"objective\.generator\.heads"):
        take_over(folder, tmp_path / "three", [*words, "objective.generator.heads=3"])


def test_an_electra_of_hugging_face_goes_out_with_the_generator_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    google = imported(tmp_path, "google_electra")
    hugging = export(google, tmp_path / "hf")
    out = export(hugging, tmp_path / "out", to="google_electra")
    assert "not exported" not in capsys.readouterr().err
    was, now = (bundle.opened(folder) for folder in (tmp_path / "theirs", out))
    names = [name for name in was.shapes() if name in now.shapes()]
    assert set(now.shapes()) == set(names)
    assert all(was.read(name).equal(now.read(name)) for name in names)
    take_over(out, tmp_path / "again", ["model.heads=2"])
    one, two = (open_model(folder) for folder in (google, tmp_path / "again"))
    assert one.learned == two.learned
    own, again = (own_tensors(model.objective) for model in (one, two))
    assert own.keys() == again.keys()
    assert all(own[name].equal(again[name]) for name in own)
    path = hugging / "generator/model.safetensors"
    held = weights.read(path)
    held["electra.embeddings.LayerNorm.bias"] += 1
    weights.write(path, held)
    with pytest.raises(RecipeError, match="shares words between its two networks; wanted two networks that share em"):
        export(hugging, tmp_path / "apart", to="google_electra")
    held["electra.embeddings.word_embeddings.weight"] += 1
    weights.write(path, held)
    with pytest.raises(DataError, match=r"generator: weights do not fit: .*unexpected electra\.embeddings_project"):
        export(hugging, tmp_path / "apart", to="google_electra")  # Google's, apart, are as wide as the generator
    (hugging / "generator").rename(tmp_path / "gone")
    with pytest.raises(DataError, match=r"hf: has no generator next to it; wanted .*hf/generator; put the generator"):
        export(hugging, tmp_path / "lost", to="google_electra")


def test_a_vocabulary_may_be_padded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = foreign_files.google_bert(tmp_path / "theirs")
    foreign_files.wordpieces(folder, 37)
    take_over(folder, tmp_path / "ours")
    assert "theirs: 3 rows after the vocabulary are padding and are dropped" in capsys.readouterr().err
    found = own_tensors(open_model(tmp_path / "ours").objective)
    assert found["model.words.weight"].shape == (37, 8)
    assert found["head.bias"].shape == (37,)
    foreign_files.wordpieces(folder, 41)
    told = r"of another shape bert/embeddings/word_embeddings \[40, 8\], not \[41, 8\].*; put its vocabulary there"
    with pytest.raises(DataError, match=told):
        take_over(folder, tmp_path / "ours", anew=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda own: own.pop("bert/pooler/dense/bias"), r"has 45 of the 46 .*; missing bert/pooler/dense/bias \[8\]"),
        (lambda own: own.update(extra=torch.ones(2)), r"has 46 of the 46 .*; unexpected extra \[2\]"),
        (
            lambda own: own.update({"cls/predictions/output_bias": torch.ones(3)}),
            r"has 46 of the 46.*of another shape cls/predictions/output_bias \[3\], not \[40\]",
        ),
        (lambda own: own["bert/pooler/dense/bias"].fill_(torch.nan), "8 of 8 numbers are NaN"),
        (
            lambda own: [own.pop(name) for name in list(own) if name.startswith("cls/predictions")],
            r"has no masked-LM head \(scopes: bert, cls\); wanted cls/predictions",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: object, told: str) -> None:
    folder = foreign_files.google_bert(tmp_path / "theirs")
    source = bundle.opened(folder)
    own = {name: source.read(name) for name in source.shapes()}
    change(own)  # type: ignore[operator]
    bundle.write(folder / "bert_model.ckpt", iter(own.items()))
    with pytest.raises(DataError, match=told):
        take_over(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_bert_without_pairs_leaves_its_pooler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = foreign_files.google_bert(tmp_path / "theirs")
    source = bundle.opened(folder)
    own = {name: source.read(name) for name in source.shapes() if "seq_relationship" not in name}
    bundle.write(folder / "bert_model.ckpt", iter(own.items()))
    take_over(folder, tmp_path / "ours")
    assert "no head for pairs, so its pooler is not read" in capsys.readouterr().err
    assert kind_of(open_model(tmp_path / "ours").learned) == "mlm"


@pytest.mark.parametrize("kind", ["parts", "objects"])
def test_parts_of_variables_and_names_of_tensorflow_2(tmp_path: Path, kind: str) -> None:
    """The same network, its variables cut into parts, or saved by the names of the code of 2020: the same bits."""
    whole = imported(tmp_path, "google_bert")
    for path in (tmp_path / "theirs").glob("bert_model*"):
        path.unlink()
    for path in (foreign_files.REAL / kind).iterdir():
        shutil.copy(path, tmp_path / "theirs")
    take_over(tmp_path / "theirs", tmp_path / "other")
    assert (tmp_path / "other/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_the_names_of_2021(tmp_path: Path) -> None:
    """Layers by name; the words' table under the head's name alone."""
    whole = imported(tmp_path, "google_bert")
    source, own = bundle.opened(foreign_files.REAL / "objects"), {}
    layers = {
        "0/": "_embedding_layer/",
        "1/": "_position_embedding_layer/",
        "2/": "_type_embedding_layer/",
        "3/": "_embedding_norm_layer/",
        "4/": "_transformer_layers/0/",
        "5/": "_transformer_layers/1/",
        "6/": "_pooler_layer/",
    }
    for name in source.shapes():
        new = name
        for number, layer in layers.items():
            new = new.replace(f"encoder/layer_with_weights-{number}", f"encoder/{layer}")
        own[new.replace("encoder/_embedding_layer/embeddings", "masked_lm/embedding_table")] = source.read(name)
    bundle.write(tmp_path / "theirs" / "bert_model.ckpt", iter(own.items()))
    take_over(tmp_path / "theirs", tmp_path / "other")
    assert (tmp_path / "other/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def fine_tuned(folder: Path, **heads: tuple[int, ...]) -> tuple[Path, dict[str, torch.Tensor]]:
    """Google's BERT as its scripts leave it: `name` of a head's scope, and the shape of its weights."""
    foreign_files.google_bert(folder)
    source, chance = bundle.opened(folder), torch.Generator().manual_seed(5)
    own = {name: source.read(name) for name in source.shapes() if not name.startswith("cls/")}
    for scope, shape in heads.items():
        scope = {"classes": "", "squad": "cls/squad/"}[scope]
        own[f"{scope}output_weights"] = torch.randn(shape, generator=chance)
        own[f"{scope}output_bias"] = torch.randn(shape[:1], generator=chance)
    bundle.write(folder / "bert_model.ckpt", iter(own.items()))
    return folder, own


def test_heads_of_fine_tunings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """run_classifier's and run_squad's: the classes that transformers has for them, with the same numbers."""
    folder, own = fine_tuned(tmp_path / "classes", classes=(3, 8))
    take_over(folder, tmp_path / "ours", ['task.labels=["no", "maybe", "yes"]'])
    take_over(folder, tmp_path / "plain")
    assert "have no names: LABEL_0, LABEL_1, LABEL_2; name them with task.labels=[...]" in capsys.readouterr().err
    found = open_model(tmp_path / "ours")
    assert (kind_of(found.learned), found.learned.labels) == ("classify", ("no", "maybe", "yes"))
    out = export(tmp_path / "ours", tmp_path / "hf")
    theirs = weights.read_foreign(out)
    assert json.loads((out / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    assert torch.equal(theirs["classifier.weight"], own["output_weights"])
    assert torch.equal(theirs["classifier.bias"], own["output_bias"])
    assert torch.equal(theirs["bert.pooler.dense.weight"], own["bert/pooler/dense/kernel"].T)
    folder, own = fine_tuned(tmp_path / "squad", squad=(2, 8))
    take_over(folder, tmp_path / "spans")
    assert kind_of(open_model(tmp_path / "spans").learned) == "squad"
    theirs = weights.read_foreign(export(tmp_path / "spans", tmp_path / "spans_hf"))
    assert torch.equal(theirs["qa_outputs.weight"], own["cls/squad/output_weights"])
    folder, own = fine_tuned(tmp_path / "one", classes=(1, 8))
    take_over(folder, tmp_path / "number")
    assert open_model(tmp_path / "number").learned.number
    take_over(folder, tmp_path / "stars", ["task.scale=[1.0, 5.0]"])  # trained between 0 and 1, reported on the scale
    stars = bundle.opened(export(tmp_path / "stars", tmp_path / "stars_out", to="google_bert"))
    assert torch.equal(stars.read("output_weights"), own["output_weights"] * 4)
    assert torch.equal(stars.read("output_bias"), own["output_bias"] * 4 + 1)
    for one, kept in (("ours", "classes"), ("spans", "squad"), ("number", "one")):  # and out again
        out = export(tmp_path / one, tmp_path / f"{one}_out", to="google_bert")
        was, back = bundle.opened(tmp_path / kept), bundle.opened(out)
        assert back.shapes().keys() == {name for name in was.shapes() if "/adam_" not in name and name != "global_step"}
        idle = "bert/pooler/" if one == "spans" else "\0"
        assert all(torch.equal(was.read(n), back.read(n)) for n in back.shapes() if not n.startswith(idle))
        take_over(out, tmp_path / f"{one}_again", ['task.labels=["no", "maybe", "yes"]'] if one == "ours" else [])
        files = [tmp_path / name / "model.safetensors" for name in (one, f"{one}_again")]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert "its classes have numbers there: 0 no, 1 maybe, 2 yes" in capsys.readouterr().err
    folder, own = fine_tuned(tmp_path / "five", classes=(5, 8))
    with pytest.raises(DataError, match=r"output_weights \[5, 8\], not \[2, 8\]"):
        take_over(folder, tmp_path / "wrong", ['task.labels=["no", "yes"]'])


def test_a_body_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opened for states and as a beginning; what asks its heads is refused."""
    from transformers import BertModel

    folder, own = fine_tuned(tmp_path / "theirs")
    take_over(folder, tmp_path / "ours")
    assert "a network without heads, converted to a Hugging Face folder for" in capsys.readouterr().err
    theirs = BertModel.from_pretrained(tmp_path / "ours").state_dict()
    assert torch.equal(theirs["pooler.dense.weight"], own["bert/pooler/dense/kernel"].T)
    assert torch.equal(
        theirs["encoder.layer.1.attention.self.key.weight"], own["bert/encoder/layer_1/attention/self/key/kernel"].T
    )
    assert len(theirs) == len([name for name in own if "adam" not in name and name != "global_step"])
    assert opened(folder, device="cpu").bare
    with pytest.raises(DataError, match="has a network without the required heads"):
        open_model(folder)


def test_each_knows_its_own(tmp_path: Path) -> None:
    for kind, make in MAKERS.items():
        folder = make(tmp_path / kind)
        assert [k for k in entries("formats") if load("formats", k)().recognises(folder)] == [kind]
        assert kind_of(recognised(next(folder.glob("*.index")))) == kind


def test_a_checkpoint_may_be_named_by_its_prefix(tmp_path: Path) -> None:
    whole, prefix = imported(tmp_path, "google_bert"), bundle.find(tmp_path / "theirs")
    assert prefix is not None
    assert not prefix.exists()
    take_over(prefix, tmp_path / "other")
    assert (tmp_path / "other/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_other_checkpoints_are_told(tmp_path: Path) -> None:
    bundle.write(tmp_path / "model.ckpt", iter([("resnet/conv1/kernel", torch.ones(2))]))
    with pytest.raises(DataError, match=r"checkpoint of an unknown network: resnet/conv1/kernel; wanted bert/\.\.\."):
        recognised(tmp_path)
    (tmp_path / "old").mkdir()
    shutil.copy(foreign_files.REAL / "first.ckpt", tmp_path / "old")
    with pytest.raises(DataError, match=r"TensorFlow's first format"):
        recognised(tmp_path / "old")


def test_what_a_format_cannot_say_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = imported(tmp_path, "google_bert")
    for kind, told in (
        ("openai_gpt2", r"--to: openai_gpt2 holds gpt2; .*ours is a bert; wanted babylm or google_bert"),
        ("nowhere", r"--to: `nowhere` is not in formats"),
    ):
        with pytest.raises(RecipeError, match=told):
            export(ours, tmp_path / "out", to=kind)
    take_over(tmp_path / "theirs", tmp_path / "silu", ["model.activation=silu"])
    with pytest.raises(
        RecipeError, match=r"silu: has silu, epsilon 1e-12, types 2; wanted the settings of google-research/bert"
    ):
        export(tmp_path / "silu", tmp_path / "out", to="google_bert")
    assert not (tmp_path / "out").exists()
    take_over(tmp_path / "theirs", tmp_path / "exact", ["model.activation=gelu"])
    export(tmp_path / "exact", tmp_path / "out", to="google_bert")
    assert "it uses the exact gelu" in capsys.readouterr().err
