"""fairseq's RoBERTa and Megatron's GPT-2 and BERT: every age, order and number of ranks in, and out again."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit import evil_pickles, foreign_files
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import entries, kind_of, load
from ordsmed.nn.model import own_tensors
from ordsmed.weights import weights
from ordsmed.weights.export import export
from ordsmed.weights.import_folder import recognised
from ordsmed.weights.importing import take_over
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model

AGES = {  # of Megatron's GPT-2
    "2019": {"old": True, "version": 0},
    "2019 two ranks": {"old": True, "version": 0, "ranks": 2},
    "version 0": {"version": 0, "ranks": 2},
    "version 1": {"version": 1.0, "ranks": 2},
    "version 2": {"version": 2.0},
    "version 3 two ranks": {"ranks": 2},
    "pipeline": {"stages": 2, "ranks": 2},
    "half": {"half": True},
}


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of each kind: the network, its tensors, and the folder of transformers."""
    made = {}
    for kind in foreign_files.CLASSES:
        folder = tmp_path_factory.mktemp(kind)
        made[kind] = (*foreign_files.transformers_network(kind, folder), folder)
    return made


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return own_tensors(open_model(folder).objective)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def says(network: Any, folder: Path) -> float:
    """How far apart the logits of two networks of one class are."""
    tokens = torch.arange(2, 20).reshape(2, 9)
    mine = type(network).from_pretrained(folder).eval()(input_ids=tokens)
    yours = network(input_ids=tokens)
    return max(
        float((a - b).abs().max().detach())
        for a, b in zip(mine[:2], yours[:2], strict=True)
        if isinstance(a, torch.Tensor)
    )


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_fairseq(tmp_path: Path, networks: dict[str, Any], old: bool, fused: bool) -> None:
    network, theirs, _ = networks["roberta"]
    folder = foreign_files.fairseq_roberta(tmp_path / "theirs", theirs, old=old, fused=fused)
    assert [k for k in entries("formats") if load("formats", k)().recognises(folder)] == ["fairseq_roberta"]
    take_over(folder, tmp_path / "ours")
    ours = open_model(tmp_path / "ours")
    assert (ours.settings.dropout, ours.settings.heads, ours.settings.positions) == (0.2, 2, 12)
    assert ours.tokenizer.piece(4) == "u"  # the first of dict.txt is GPT-2's 20
    assert says(network, export(tmp_path / "ours", tmp_path / "hf")) < 1e-5
    out = export(tmp_path / "ours", tmp_path / "out", to="fairseq_roberta")
    alike = export(
        tmp_path / "ours",
        tmp_path / "alike",
        to="fairseq_roberta",
        overrides=[f"old={str(old).lower()}", f"fused={str(fused).lower()}"],
    )
    was, again = (torch.load(place / "model.pt", weights_only=False)["model"] for place in (folder, alike))
    assert again.keys() == was.keys()
    assert all(torch.equal(again[name], was[name]) for name in was if "version" not in name)
    take_over(alike, tmp_path / "alike_again")
    assert same(tensors(tmp_path / "alike_again"), tensors(tmp_path / "ours"))
    take_over(out, tmp_path / "again")
    assert same(tensors(tmp_path / "again"), tensors(tmp_path / "ours"))
    assert open_model(tmp_path / "again").tokenizer.fingerprint == ours.tokenizer.fingerprint


def test_fairseqs_heads_of_classes(
    tmp_path: Path, networks: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The only one is what was learned, or the one that its settings name; of several others none, and that is said."""
    folder = foreign_files.fairseq_roberta(tmp_path / "theirs", networks["roberta"][1], old=True)
    held, chance = torch.load(folder / "model.pt", weights_only=False), torch.Generator().manual_seed(2)

    def add(name: str, rows: int) -> None:
        for part, shape in (("dense", (8, 8)), ("out_proj", (rows, 8))):
            held["model"][f"classification_heads.{name}.{part}.weight"] = torch.randn(shape, generator=chance)
            held["model"][f"classification_heads.{name}.{part}.bias"] = torch.randn(shape[:1], generator=chance)
        torch.save(held, folder / "model.pt")

    add("mnli", 3)
    take_over(folder, tmp_path / "mnli", ['task.labels=["contradiction", "neutral", "entailment"]'])
    told = "the classification head is read, the masked-LM head is not; `objective.kind=mlm` reads it"
    assert told in capsys.readouterr().err
    assert open_model(tmp_path / "mnli").learned.labels == ("contradiction", "neutral", "entailment")
    theirs = weights.read_foreign(export(tmp_path / "mnli", tmp_path / "hf"))
    for part in ("dense", "out_proj"):
        for end in ("weight", "bias"):
            own = held["model"][f"classification_heads.mnli.{part}.{end}"]
            assert torch.equal(theirs[f"classifier.{part}.{end}"], own)
    out = export(tmp_path / "mnli", tmp_path / "mnli_out", to="fairseq_roberta")
    back = torch.load(out / "model.pt", weights_only=False)
    named = export(tmp_path / "mnli", tmp_path / "named", to="fairseq_roberta", overrides=["name=mnli"])
    alike = torch.load(named / "model.pt", weights_only=False)
    assert alike["args"].classification_head_name == "mnli"
    (own, new) = ({n: t for n, t in one["model"].items() if "classification_heads" in n} for one in (held, alike))
    assert same(new, own)
    take_over(folder, tmp_path / "words", ["objective.kind=mlm"])
    assert "classification heads that are not read: mnli\n" in capsys.readouterr().err
    plain = foreign_files.fairseq_roberta(tmp_path / "plain", networks["roberta"][1], old=True)
    take_over(plain, tmp_path / "plain_ours")
    assert same(tensors(tmp_path / "words"), tensors(tmp_path / "plain_ours"))
    (own, new) = ({n: t for n, t in one["model"].items() if "classification_heads" in n} for one in (held, back))
    assert same({n.replace("sentence_classification_head", "mnli"): t for n, t in new.items()}, own)
    assert (back["args"].num_classes, back["args"].regression_target) == (3, False)
    assert not any(t.any() for n, t in back["model"].items() if "lm_head" in n and not n.endswith("lm_head.weight"))
    take_over(out, tmp_path / "mnli_again", ['task.labels=["contradiction", "neutral", "entailment"]'])
    assert same(tensors(tmp_path / "mnli_again"), tensors(tmp_path / "mnli"))
    add("sentence_classification_head", 1)
    take_over(folder, tmp_path / "both")
    told = "classification heads that are not read: mnli, sentence_classification_head"
    assert told in capsys.readouterr().err
    assert kind_of(open_model(tmp_path / "both").learned) == "mlm"
    held["args"].classification_head_name = "sentence_classification_head"
    torch.save(held, folder / "model.pt")
    take_over(folder, tmp_path / "number")
    assert open_model(tmp_path / "number").learned.number
    assert "classification heads that are not read: mnli\n" in capsys.readouterr().err


def test_what_fairseqs_files_do_not_tell(tmp_path: Path, networks: dict[str, Any]) -> None:
    folder = foreign_files.fairseq_roberta(tmp_path / "theirs", networks["roberta"][1])
    held = torch.load(folder / "model.pt", weights_only=False)
    held["args"], held["cfg"] = None, None
    torch.save(held, folder / "model.pt")
    with pytest.raises(RecipeError, match=r"model\.pt: has no number of attention heads; .*add model\.heads=N"):
        take_over(folder, tmp_path / "ours")
    take_over(folder, tmp_path / "ours", ["model.heads=2"])
    with pytest.raises(
        RecipeError, match=r"no number of attention heads; .*import .*theirs OUT model\.KEY=VALUE`, and name"
    ):
        open_model(folder)
    held["model"]["encoder.lm_head.weight"] = torch.ones(40, 8)
    torch.save(held, folder / "model.pt")
    with pytest.raises(
        DataError, match=r"lm_head\.weight differs from encoder\.sentence_encoder\.embed_tokens\.weight"
    ):
        take_over(folder, tmp_path / "other", ["model.heads=2"])
    del held["model"]["encoder.lm_head.weight"]
    torch.save(held, folder / "model.pt")
    (folder / "vocab.bpe").unlink()
    with pytest.raises(DataError, match=r"has no vocab\.bpe; .*put GPT-2's two files there"):
        take_over(folder, tmp_path / "other", ["model.heads=2"])


@pytest.mark.parametrize("how", AGES.values(), ids=AGES)
def test_megatrons_gpt2(
    tmp_path: Path, networks: dict[str, Any], how: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    network, theirs, _ = networks["gpt2"]
    folder = foreign_files.megatron(tmp_path / "theirs", theirs, "gpt2", **how)
    assert [k for k in entries("formats") if load("formats", k)().recognises(folder)] == ["megatron"]
    heads = ["model.heads=2"] if how.get("old") else []
    if heads:
        with pytest.raises(RecipeError, match=r"has no number of attention heads; .*add model\.heads=N"):
            take_over(folder, tmp_path / "ours")
    take_over(folder, tmp_path / "ours", heads)
    told = capsys.readouterr().err
    assert "24 rows after the vocabulary are padding" in told
    assert ("16 bits are read as float32" in told) == bool(how.get("half"))
    assert tensors(tmp_path / "ours")["model.words.weight"].shape == (40, 8)
    theirs = {name: tensor.half().float() for name, tensor in theirs.items()}
    network.load_state_dict(theirs)
    assert says(network, export(tmp_path / "ours", tmp_path / "hf")) < 1e-5


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_pipeline_of_three_stages(tmp_path: Path, ranks: int) -> None:
    """Each numbers its own layers from 0; one in the middle has neither embeddings nor the last norm."""
    network, theirs = foreign_files.transformers_network("gpt2", tmp_path / "hf", n_layer=3)
    folder = foreign_files.megatron(tmp_path / "theirs", theirs, "gpt2", stages=3, ranks=ranks)
    take_over(folder, tmp_path / "ours")
    network.load_state_dict({name: tensor.half().float() for name, tensor in theirs.items()})
    assert says(network, export(tmp_path / "ours", tmp_path / "out")) < 1e-5


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_what_megatron_core_saved_says_what_it_said(tmp_path: Path, kind: str) -> None:
    """A checkpoint by its own code, and the logits of its own network; norms within what follows are the same."""
    said = np.load(foreign_files.TORCH / "megatron_core.npz")
    folder = tmp_path / "theirs"
    shutil.copytree(foreign_files.TORCH / f"megatron_core_{kind}", folder)
    foreign_files.byte_pieces(folder) if kind == "gpt2" else foreign_files.wordpieces(folder)
    take_over(folder, tmp_path / "ours")
    out = export(tmp_path / "ours", tmp_path / "hf")
    tokens = torch.from_numpy(said["tokens"])
    if kind == "gpt2":
        from transformers import GPT2LMHeadModel

        found = {"gpt2": GPT2LMHeadModel.from_pretrained(out).eval()(tokens).logits}
    else:
        from transformers import MegatronBertForPreTraining

        both = MegatronBertForPreTraining.from_pretrained(out).eval()
        told = both(tokens, token_type_ids=torch.from_numpy(said["types"]))
        found = {"bert.words": told.prediction_logits, "bert.pair": told.seq_relationship_logits}
    for name, tensor in found.items():
        wanted = torch.from_numpy(said[name])[..., : tensor.shape[-1]]
        assert float((tensor.detach() - wanted).abs().max()) < 1e-5
    file = folder / "iter_0000007/mp_rank_00/model_optim_rng.pt"
    held = torch.load(file, weights_only=False)
    for old, new in (
        ("input_layernorm.", "self_attention.linear_qkv.layer_norm_"),
        ("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"),
    ):
        held["model"] = {name.replace(old, new): tensor for name, tensor in held["model"].items()}
    held["model"]["decoder.layers.0.mlp.linear_fc2._extra_state"] = torch.zeros(4, dtype=torch.uint8)
    torch.save(held, file)
    take_over(folder, tmp_path / "fused")
    assert same(tensors(tmp_path / "fused"), tensors(tmp_path / "ours"))
    held["args"].normalization, held["args"].swiglu = "RMSNorm", True
    torch.save(held, file)
    unknown = r"is of an unknown network: normalization RMSNorm, swiglu True; wanted a GPT-2 or BERT: normalization Lay"
    with pytest.raises(DataError, match=unknown):
        take_over(folder, tmp_path / "other")
    shutil.rmtree(folder / "iter_0000007/mp_rank_00")
    (folder / "iter_0000007/__0_0.distcp").touch()
    with pytest.raises(
        DataError,
        match=r"is a distributed checkpoint \(\*\.distcp\); .*save it again in Megatron with --ckpt-format torch",
    ):
        take_over(folder, tmp_path / "other")


@pytest.mark.parametrize("kind", ["pretrained", "classes"])
def test_what_fairseq_saved_says_what_it_said(tmp_path: Path, kind: str) -> None:
    """A checkpoint by its own code, and the numbers of its own network."""
    import transformers

    said, folder = np.load(foreign_files.TORCH / "fairseq.npz"), tmp_path / "theirs"
    shutil.copytree(foreign_files.TORCH / f"fairseq_{kind}", folder)
    foreign_files.byte_pieces(folder, foreign_files.WORDS - 7)
    take_over(folder, tmp_path / "ours")
    name = "RobertaForMaskedLM" if kind == "pretrained" else "RobertaForSequenceClassification"
    network = getattr(transformers, name).from_pretrained(export(tmp_path / "ours", tmp_path / "hf")).eval()
    found = network(torch.from_numpy(said["tokens"])).logits.detach()
    assert float((found - torch.from_numpy(said[f"fairseq_{kind}"])).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", ["bert", "megatron_bert"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_megatrons_berts(tmp_path: Path, networks: dict[str, Any], kind: str, ranks: int) -> None:
    network, theirs, _ = networks[kind]
    old = kind == "bert"
    folder = foreign_files.megatron(tmp_path / "theirs", theirs, kind, ranks=ranks, old=old, version=0 if old else 3.0)
    take_over(folder, tmp_path / "ours", ["model.heads=2"])
    assert (open_model(tmp_path / "ours").kind, kind_of(open_model(tmp_path / "ours").learned)) == (kind, "mlm_nsp")
    network.load_state_dict(
        {name: tensor.half().float() for name, tensor in theirs.items() if tensor.is_floating_point()}, strict=False
    )
    assert says(network, export(tmp_path / "ours", tmp_path / "hf")) < 1e-5


@pytest.mark.parametrize(("kind", "old"), [("gpt2", True), ("gpt2", False), ("bert", True), ("megatron_bert", False)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_out_to_megatron_and_back(tmp_path: Path, networks: dict[str, Any], kind: str, old: bool, ranks: int) -> None:
    """The same names, shapes and bits as Megatron's own, but for rows of padding."""
    how = {"ranks": ranks, "old": old, "version": 0 if old else 3.0}
    folder = foreign_files.megatron(tmp_path / "theirs", networks[kind][1], kind, **how)
    take_over(folder, tmp_path / "ours", ["model.heads=2"])
    style = ["style=2019"] if old else []
    out = export(
        tmp_path / "ours", tmp_path / "out", to="megatron", overrides=[f"ranks={ranks}", "multiple=32", *style]
    )
    assert (out / "latest_checkpointed_iteration.txt").read_text() == "release"
    for rank in range(ranks):
        name = f"mp_rank_{rank:02}/model_optim_rng.pt"
        was, now = (
            torch.load(place / name, weights_only=False) for place in (folder / "iter_0000100", out / "release")
        )
        was, now = (flattened(table["model"]) for table in (was, now))
        for one, other in () if old else (("encoder.", "transformer."), ("self_attention", "attention")):
            was = {name.replace(one, other): tensor for name, tensor in was.items()}
        assert now.keys() == was.keys()
        for name, tensor in now.items():
            kept = 40 if ranks == 1 else 32 if rank == 0 else 8
            rows = kept if "word_embeddings" in name or name.endswith(("lm_head.bias", "predictions.bias")) else None
            assert torch.equal(tensor[:rows], was[name][:rows]), name
            assert tensor.shape == was[name].shape
    take_over(out, tmp_path / "again", ["model.heads=2"])
    assert same(tensors(tmp_path / "again"), tensors(tmp_path / "ours"))


def test_out_to_megatron_under_a_step(tmp_path: Path, tiny_run: Any) -> None:
    out = export(tiny_run.gpt2, tmp_path / "out", to="megatron", overrides=["release=false", "style=2019"])
    step = int((out / "latest_checkpointed_iteration.txt").read_text())
    held = torch.load(out / f"iter_{step:07}" / "mp_rank_00" / "model_optim_rng.pt", weights_only=False)
    assert held["iteration"] == step == Origin.of(tiny_run.gpt2).last()
    out = export(tiny_run.gpt2, tmp_path / "released", to="megatron", overrides=["multiple=8", "ranks=2"])
    ranks = [torch.load(out / f"release/mp_rank_0{n}/model_optim_rng.pt", weights_only=False) for n in range(2)]
    assert [held["iteration"] for held in ranks] == [0, 0]
    rows = sum(len(flattened(held["model"])["language_model.embedding.word_embeddings.weight"]) for held in ranks)
    words = open_model(tiny_run.gpt2).tokenizer.vocabulary
    assert rows == words + -words % 16  # a multiple of 8 for each of two ranks


def flattened(table: Any, before: str = "") -> dict[str, torch.Tensor]:
    if isinstance(table, torch.Tensor):
        return {before: table}
    parts = [flattened(value, f"{before}.{key}".strip(".")) for key, value in table.items()]
    return {name: tensor for part in parts for name, tensor in part.items()}


def test_ranks_that_are_missing_are_named(tmp_path: Path, networks: dict[str, Any]) -> None:
    folder = foreign_files.megatron(tmp_path / "theirs", networks["gpt2"][1], "gpt2", ranks=2)
    inner = folder / "iter_0000100"
    (inner / "mp_rank_00").rename(inner / "gone")
    with pytest.raises(DataError, match=r"iter_0000100: lacks mp_rank_00; wanted model_optim_rng\.pt of every rank"):
        take_over(folder, tmp_path / "ours")
    (inner / "gone").rename(inner / "mp_rank_00")
    shutil.rmtree(inner / "mp_rank_01")
    with pytest.raises(DataError, match=r"has 1 of 2 ranks, without mp_rank_01; wanted a file of every rank; download"):
        take_over(folder, tmp_path / "ours")
    (folder / "latest_checkpointed_iteration.txt").write_text("200")
    with pytest.raises(DataError, match=r"iter_0000200: has no mp_rank_00"):
        take_over(folder, tmp_path / "ours")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda held: held.pop("model"), r"has no table `model`"),
        (lambda held: held.update(checkpoint_version="new"), r"checkpoint_version: found 'new'"),
        (
            lambda held: held["model"]["language_model"]["embedding"].clear(),
            r"has 26 tensors, .*, but no word_embeddings",
        ),
        (lambda held: held["model"].update(other={"weight": torch.ones(2)}), r"unexpected other\.weight \[2\]"),
        (
            lambda held: held["model"]["language_model"]["encoder"].pop("final_layernorm.bias"),
            r"has 27 of the 28 tensors of this network; missing final_layernorm\.bias \[8\]",
        ),
        (
            lambda held: setattr(held["args"], "num_attention_heads", 5),
            r"layers\.0\.attention\.query_key_value\.weight \[24, 8\] does not fit 5 heads",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, networks: dict[str, Any], change: Any, told: str) -> None:
    folder = foreign_files.megatron(tmp_path / "theirs", networks["gpt2"][1], "gpt2")
    file = folder / "iter_0000100/mp_rank_00/model_optim_rng.pt"
    held = torch.load(file, weights_only=False)
    change(held)
    torch.save(held, file)
    with pytest.raises((DataError, RecipeError), match=told):
        take_over(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_vocabulary_is_asked_for(tmp_path: Path, networks: dict[str, Any]) -> None:
    folder = foreign_files.megatron(tmp_path / "theirs", networks["gpt2"][1], "gpt2")
    (folder / "encoder.json").unlink()
    with pytest.raises(
        DataError, match=r"no vocabulary next to it or above it; .*put vocab\.txt \(BERT\), or vocab\.json"
    ):
        take_over(folder, tmp_path / "ours")
    assert kind_of(recognised(folder / "iter_0000100/mp_rank_00/model_optim_rng.pt")) == "megatron"


def test_nothing_that_a_checkpoint_asks_for_is_done(tmp_path: Path, networks: dict[str, Any]) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'traces'}",)

    folder = foreign_files.megatron(tmp_path / "theirs", networks["gpt2"][1], "gpt2")
    file = folder / "iter_0000100/mp_rank_00/model_optim_rng.pt"
    held = torch.load(file, weights_only=False)
    torch.save(held | {"optimizer": Hostile(), "args": argparse.Namespace(num_attention_heads=Hostile())}, file)
    take_over(folder, tmp_path / "ours", ["model.heads=2"])
    assert open_model(tmp_path / "ours")
    assert not (tmp_path / "traces").exists()


def test_what_cannot_be_cut_or_computed_is_not_written(tmp_path: Path, networks: dict[str, Any]) -> None:
    folder = foreign_files.megatron(tmp_path / "theirs", networks["gpt2"][1], "gpt2")
    take_over(folder, tmp_path / "ours")
    for words, told in (
        (["ranks=3"], "found ranks 3, with 2 heads"),
        (["ranks=0"], "wanted 1 or more"),
        (["rank=2"], "did you mean `ranks`"),
    ):
        with pytest.raises(RecipeError, match=told):
            export(tmp_path / "ours", tmp_path / "out", to="megatron", overrides=words)
    take_over(folder, tmp_path / "relu", ["model.activation=relu"])
    with pytest.raises(RecipeError, match="has relu; wanted gelu or gelu_tanh"):
        export(tmp_path / "relu", tmp_path / "out", to="megatron")


def told_of_activation(folder: Path, out: Path, args: dict[str, Any] | None, words: list[str]) -> tuple[str, list[str]]:
    """The activation that an import takes of files with these args, and its notes."""
    file = folder / "iter_0000100/mp_rank_00/model_optim_rng.pt"
    held = torch.load(file, weights_only=False)
    held["args"] = argparse.Namespace(**args) if args is not None else None
    torch.save(held, file)
    found = recognised(folder).read(folder, ["model.heads=2", *words])
    return found.networks.model.activation, [note for note in found.notes if ": activation " in note]


UNTOLD = "which Megatron computes of files without bias_gelu_fusion and openai_gelu, until April 2020"
EITHER = "without bias_gelu_fusion and openai_gelu"
BIASED = {"bias_gelu_fusion": True, "openai_gelu": False}
ACTIVATIONS: dict[str, tuple[str, dict[str, Any] | None, str, str]] = {
    "no args": ("gpt2", None, "gelu_tanh", UNTOLD),
    "args of March 2020": ("gpt2", {}, "gelu_tanh", UNTOLD),
    "April 2020": ("gpt2", {"openai_gelu": False}, "gelu", "without openai_gelu"),
    "neither": ("gpt2", {"openai_gelu": False, "bias_gelu_fusion": False}, "gelu", EITHER),
    "old": ("gpt2", {"openai_gelu": True}, "gelu_tanh", "as openai_gelu says"),
    "fused": ("gpt2", BIASED, "gelu_tanh", "as bias_gelu_fusion says"),
    "squared": ("gpt2", {"squared_relu": True}, "relu2", "as squared_relu says"),
    "BERT without args": ("megatron_bert", None, "gelu_tanh", UNTOLD),
    "BERT": ("megatron_bert", {"openai_gelu": False}, "gelu", "without openai_gelu"),
    "BERT fused": ("megatron_bert", BIASED, "gelu_tanh", "its masked-LM head was trained with the exact GELU"),
    "BERT of 2019": ("bert", None, "gelu", "which Megatron's BERT of 2019 computes"),
}


@pytest.mark.parametrize(("kind", "args", "wanted", "why"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_megatrons_activation_is_taken_by_its_age_and_flags(
    tmp_path: Path, networks: dict[str, Any], kind: str, args: dict[str, Any] | None, wanted: str, why: str
) -> None:
    how = {"old": True, "version": 0} if kind == "bert" else {}
    folder = foreign_files.megatron(tmp_path / "theirs", networks[kind][1], kind, **how)
    found, (note,) = told_of_activation(folder, tmp_path, args, [])
    assert found == wanted
    assert f"activation {wanted}, " in note
    assert why in note
    assert ("epsilon 1e-05, because the file has none" in note) == (not args)
    assert ("with the exact GELU" in note) == (kind == "megatron_bert" and args == BIASED)
    assert told_of_activation(folder, tmp_path, args, ["model.activation=relu"]) == ("relu", [])


def test_a_gpt2_of_2019_says_what_its_code_said(tmp_path: Path, networks: dict[str, Any]) -> None:
    """Args without either flag: GELU by tanh, as the network of transformers that these weights are of."""
    network, theirs, _ = networks["gpt2"]
    folder = foreign_files.megatron(tmp_path / "theirs", theirs, "gpt2")
    file = folder / "iter_0000100/mp_rank_00/model_optim_rng.pt"
    held = torch.load(file, weights_only=False)
    held["args"] = argparse.Namespace(num_attention_heads=2, norm_epsilon=1e-4)
    torch.save(held, file)
    take_over(folder, tmp_path / "ours")
    assert open_model(tmp_path / "ours").settings.epsilon == 1e-4
    network.load_state_dict({name: tensor.half().float() for name, tensor in theirs.items()})
    take_over(folder, tmp_path / "usual", ["model.epsilon=1e-5"])
    assert says(network, export(tmp_path / "usual", tmp_path / "hf")) < 1e-5


def test_megatrons_core_does_not_know_openai_gelu(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(foreign_files.TORCH / "megatron_core_gpt2", folder)
    foreign_files.byte_pieces(folder)
    file = folder / "iter_0000007/mp_rank_00/model_optim_rng.pt"
    held = torch.load(file, weights_only=False)
    for flags, wanted, why in (
        ({"openai_gelu": True, "bias_gelu_fusion": False}, "gelu", "without bias_gelu_fusion"),
        (BIASED, "gelu_tanh", "as bias_gelu_fusion says"),
        ({}, "gelu", "without bias_gelu_fusion"),
    ):
        held["args"] = argparse.Namespace(num_attention_heads=2, **flags)
        torch.save(held, file)
        found = recognised(folder).read(folder)
        assert found.networks.model.activation == wanted
        assert any(why in note for note in found.notes)


@pytest.mark.parametrize("name", ["apply_layernorm_1p", "apply_residual_connection_post_layernorm"])
def test_megatrons_other_norms_are_refused(tmp_path: Path, networks: dict[str, Any], name: str) -> None:
    folder = foreign_files.megatron(tmp_path / "theirs", networks["gpt2"][1], "gpt2")
    with pytest.raises(DataError, match=rf"unknown network: {name} True; wanted a GPT-2 or BERT: {name} False"):
        told_of_activation(folder, tmp_path, {name: True}, [])


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("gpt2", "model.activation=gelu", r"has gelu, .*of 2019: gelu_tanh, .*style=2020"),
        ("gpt2", "model.epsilon=1e-12", r"epsilon 1e-12, .*of 2019: gelu_tanh, epsilon 1e-05, 32 inside"),
        ("bert", "model.activation=gelu_tanh", r"has gelu_tanh, .*of 2019: gelu, .*without --to keeps it"),
    ],
)
def test_what_megatron_of_2019_computes_otherwise_is_not_written(
    tmp_path: Path, networks: dict[str, Any], kind: str, change: str, told: str
) -> None:
    how = {"old": True, "version": 0} if kind == "bert" else {}
    folder = foreign_files.megatron(tmp_path / "theirs", networks[kind][1], kind, **how)
    take_over(folder, tmp_path / "ours", ["model.heads=2", change])
    with pytest.raises(RecipeError, match=told):
        export(tmp_path / "ours", tmp_path / "out", to="megatron", overrides=["style=2019"])
    if kind == "gpt2":  # later files hold their settings
        out = export(tmp_path / "ours", tmp_path / "out", to="megatron")
        take_over(out, tmp_path / "again")
        assert open_model(tmp_path / "again").settings == open_model(tmp_path / "ours").settings


def test_an_export_of_2019_tells_the_flags_that_load_it(
    tmp_path: Path, networks: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = foreign_files.megatron(tmp_path / "theirs", networks["bert"][1], "bert", old=True, version=0)
    take_over(folder, tmp_path / "ours", ["model.heads=2", "model.epsilon=1e-12"])
    export(tmp_path / "ours", tmp_path / "out", to="megatron")
    wanted = "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --max-position-embeddings 12 "
    assert wanted + "--intermediate-size 16 --layernorm-epsilon 1e-12" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["normalization", "checkpoint_version", "activation_fn", "num_attention_heads"])
def test_an_endless_value_where_a_plain_one_is_asked(tmp_path: Path, networks: dict[str, Any], name: str) -> None:
    kind = "roberta" if name == "activation_fn" else "gpt2"
    make = foreign_files.fairseq_roberta if kind == "roberta" else foreign_files.megatron
    folder = make(tmp_path / "theirs", networks[kind][1], *([] if kind == "roberta" else [kind]))
    file = next(folder.rglob("*.pt"))
    held, endless = torch.load(file, weights_only=False), []
    for _ in range(60):
        endless = [endless, endless]
    held.update({name: endless}) if name in held else setattr(held.get("args") or held["cfg"]["model"], name, endless)
    torch.save(held, file)
    line = evil_pickles.limited(folder)
    assert line["seconds"] < evil_pickles.SECONDS
    assert line["said"].endswith(" tensors") or ".pt: " in line["said"]
    assert "Error" not in line["said"]


@pytest.mark.parametrize("row", [0.0, 0.25])
def test_a_roberta_of_hugging_face_goes_out_to_fairseq(
    tmp_path: Path, networks: dict[str, Any], row: float, capsys: pytest.CaptureFixture[str]
) -> None:
    network, theirs, _ = networks["roberta"]
    take_over(foreign_files.fairseq_roberta(tmp_path / "theirs", theirs), tmp_path / "ours")
    hugging = export(tmp_path / "ours", tmp_path / "hf")
    held = weights.read(hugging / "model.safetensors")
    held["roberta.embeddings.token_type_embeddings.weight"] += row
    weights.write(hugging / "model.safetensors", held)
    wanted = type(network).from_pretrained(hugging).eval()
    out = export(hugging, tmp_path / "out", to="fairseq_roberta")
    assert ("added to the position embeddings" in capsys.readouterr().err) == bool(row)
    names = torch.load(out / "model.pt", weights_only=False)["model"]
    assert not [name for name in names if "type" in name]
    take_over(out, tmp_path / "again")
    assert says(wanted, export(tmp_path / "again", tmp_path / "back")) < 1e-5
    if not row:
        assert same(tensors(tmp_path / "again"), tensors(tmp_path / "ours"))


@pytest.mark.parametrize("kind", ["gpt2", "bert", "megatron_bert"])
def test_what_hugging_face_holds_goes_out_to_megatron(tmp_path: Path, networks: dict[str, Any], kind: str) -> None:
    how = {"old": True, "version": 0} if kind == "bert" else {}
    folder = foreign_files.megatron(tmp_path / "theirs", networks[kind][1], kind, **how)
    take_over(folder, tmp_path / "ours", ["model.heads=2"])
    hugging = export(tmp_path / "ours", tmp_path / "hf")
    out = export(hugging, tmp_path / "out", to="megatron")
    take_over(out, tmp_path / "again", ["model.heads=2"])
    assert same(tensors(tmp_path / "again"), tensors(tmp_path / "ours"))
