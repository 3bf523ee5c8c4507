"""Transplant: of every family all weights but those of pieces are as they were, and these are known to the bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kit.families import shaken
from kit.language_models import WORDS, hub_folder, made, tokenizer
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.learn.objective import fresh
from ordsmed.learn.objectives import bilm, clm, diffusion, hybrid, mlm, mlm_nsp, rtd
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert, electra, elmo, gpt2, megatron_bert, modern, roberta
from ordsmed.text.extension import extended
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import transplant, weights
from ordsmed.weights.origin import Origin
from ordsmed.weights.transplant import Beginning, Vocabulary, begin, tables_of

SIZE = {"width": 16, "layers": 1, "heads": 2, "positions": 16}
MODERN = modern.ModernBert(**SIZE, inner=24, window=4)  # type: ignore[arg-type]
TABLE, BIAS = "model.words.weight", "head.bias"
SMALLER = rtd.Generator(width=8, heads=1)
FAMILIES: dict[str, tuple[Any, Any, set[str]]] = {
    "bert": (bert.Bert(**SIZE), mlm.Mlm(), {TABLE, BIAS}),
    "bert, untied": (bert.Bert(**SIZE, tied=False), mlm.Mlm(), {TABLE, BIAS, "head.words.weight"}),
    "roberta": (roberta.Roberta(**SIZE), mlm.Mlm(), {TABLE, BIAS}),
    "megatron": (megatron_bert.MegatronBert(**SIZE), mlm_nsp.MlmNsp(), {TABLE, BIAS}),
    "electra": (electra.Electra(**SIZE, embedding=8), rtd.Rtd(generator=SMALLER), {TABLE, BIAS}),
    "electra, apart": (
        electra.Electra(**SIZE, embedding=8),
        rtd.Rtd(generator=SMALLER, share="none"),
        {TABLE, BIAS, "generator.words.weight"},
    ),
    "modern": (MODERN, mlm.Mlm(), {TABLE, BIAS}),
    "modern, diffusion": (MODERN, diffusion.Diffusion(), {TABLE, BIAS}),
    "modern, hybrid": (MODERN, hybrid.Hybrid(), {TABLE, BIAS}),
    "gpt2": (gpt2.Gpt2(**SIZE), clm.Clm(), {TABLE}),
    "gpt2, untied": (gpt2.Gpt2(**SIZE, tied=False), clm.Clm(), {TABLE, "head.words.weight"}),
    "gpt2, hybrid": (gpt2.Gpt2(**SIZE), hybrid.Hybrid(), {TABLE}),
}


@dataclasses.dataclass
class Held:
    """A model in memory, as far as a transplant asks."""

    objective: Any
    pieces: Tokenizer
    is_run: bool = True
    name: str = "theirs"
    folder: Path = Path("theirs")

    def tokenizer(self) -> Tokenizer:
        return self.pieces

    def load_into(self, objective: Any, tokenizer: Tokenizer) -> None:
        assert tokenizer is self.pieces
        objective.load_state_dict(self.objective.state_dict())


def listed(folder: Path, *pieces: str) -> Tokenizer:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(["[CLS]", "[SEP]", "[UNK]", "[MASK]", "[PAD]", *pieces]) + "\n")
    return Tokenizer.load(folder / "vocab.txt")


@pytest.fixture
def old(tmp_path: Path) -> Tokenizer:
    return tokenizer(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Tokenizer:
    """`newt` and signs are kept, `newts` is newt ##s, `seal` s ##e ##a ##l, `øl` is nothing."""
    return listed(tmp_path / "new", "newts", "newt", "øl", "seal", "##s")


def moved(
    family: str, old: Tokenizer, new: Tokenizer, how: Vocabulary = "transplant", seed: int = 1
) -> tuple[dict[str, Tensor], dict[str, Tensor], Beginning, set[str]]:
    network, learned, tables = FAMILIES[family]
    torch.manual_seed(3)
    theirs, ours = shaken(learned.build(network, old)), fresh(learned, network, new, seed)
    start = begin(ours, Held(theirs, old), learned, network, new, how, seed)  # type: ignore[arg-type]
    return own_tensors(theirs), own_tensors(ours), start, tables


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str, old: Tokenizer, new: Tokenizer) -> None:
    held, own, start, tables = moved(family, old, new)
    network, learned, _ = FAMILIES[family]
    assert set(tables_of(learned, network, new)) == tables == set(start.fresh)
    a, b = old.pipeline.token_to_id, new.pipeline.token_to_id
    for name, tensor in own.items():
        if name not in tables:
            assert torch.equal(tensor, held[name]), name
            continue
        assert len(tensor) == new.vocabulary, name
        for piece in ("[CLS]", "[MASK]", "[PAD]", "newt", "##s"):
            assert torch.equal(tensor[b(piece)], held[name][a(piece)]), (name, piece)
        for piece, parts in (("newts", ["newt", "##s"]), ("seal", ["s", "##e", "##a", "##l"])):
            mean = torch.stack([held[name][a(part)] for part in parts]).mean(0)
            assert torch.allclose(tensor[b(piece)], mean, atol=1e-7, rtol=0), (name, piece)
        assert not torch.isclose(held[name], tensor[b("øl")]).flatten(1 if tensor.ndim > 1 else 0).all(-1).any()
    assert start.descent is not None
    assert start.descent.counts() == {"kept": 7, "mean of 2": 1, "mean of 4": 1, "new": 1}
    assert start.checkpoint is None, "moments begin anew"


def test_what_is_new_is_drawn_as_the_old_pieces_lie(tmp_path: Path, old: Tokenizer) -> None:
    strange = [chr(0x3B1 + n // 20) + chr(0x430 + n % 20) for n in range(400)]
    new = listed(tmp_path / "greek", *strange)
    held, own, _, _ = moved("bert", old, new)
    for name in (TABLE, BIAS):
        drawn, was = own[name][5:].detach(), held[name].detach()
        assert torch.allclose(drawn.mean(0), was.mean(0), atol=0.05)
        assert torch.allclose(drawn.std(0), was.std(0, correction=0), rtol=0.2)
        assert len(drawn.unique(dim=0)) == 400, "each for itself"
        assert torch.equal(own[name], moved("bert", old, new)[1][name]), "the same for the same seed"
    assert not torch.equal(own[TABLE], moved("bert", old, new, seed=2)[1][TABLE])


@pytest.mark.parametrize("family", ["bert", "gpt2", "modern, hybrid"])
def test_an_extended_vocabulary_changes_nothing_where_no_new_piece_stands(family: str, old: Tokenizer) -> None:
    new = extended(old, ["newts swam", "ponder on"] * 5, 3, 5)
    held, own, start, tables = moved(family, old, new)
    assert start.descent is not None
    assert (len(start.descent.kept), len(start.descent.spelled)) == (old.vocabulary, 2)
    for name in tables:
        assert torch.equal(own[name][: old.vocabulary], held[name])
    network, learned, _ = FAMILIES[family]
    before, after = (learned.build(network, own).eval() for own in (old, new))
    before.load_state_dict(held, strict=False)
    after.load_state_dict(own, strict=False)
    for text, same in (("the newt sat on it", True), ("the newt ponder s", False)):
        ids, was = (torch.tensor([cutter.encode(text)]) for cutter in (new, old))
        assert torch.equal(ids, was) is same
        scores = [
            objective.head(objective.model(asked, torch.arange(asked.shape[1])[None]))
            for objective, asked in ((before, was), (after, ids))
        ]
        if same:
            assert torch.allclose(scores[1][..., : old.vocabulary], scores[0], atol=1e-6, rtol=0)
        else:
            at = ids[0].tolist().index(new.pipeline.token_to_id("ponder"))
            assert torch.allclose(scores[1][:, :at, : old.vocabulary], scores[0][:, :at], atol=1e-6) is (
                family == "gpt2"
            )


def test_fresh_tables_are_those_of_a_model_without_a_start(old: Tokenizer, new: Tokenizer) -> None:
    held, own, start, tables = moved("bert", old, new, "fresh")
    network, learned, _ = FAMILIES["bert"]
    plain = own_tensors(fresh(learned, network, new, 1))
    for name in own:
        assert torch.equal(own[name], plain[name] if name in tables else held[name]), name
    assert not start.fresh, "nothing to compare with"
    assert start.descent is not None
    assert start.descent.counts() == {"kept": 0, "new": new.vocabulary}
    both = moved("bert", old, new)[2]
    assert all(torch.equal(both.fresh[name], plain[name]) for name in tables)


def test_chance_is_not_touched(old: Tokenizer, new: Tokenizer) -> None:
    network, learned, _ = FAMILIES["bert"]
    objective, theirs = fresh(learned, network, new, 1), learned.build(network, old)
    torch.manual_seed(5)
    begin(objective, Held(theirs, old), learned, network, new, "transplant", 1)  # type: ignore[arg-type]
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))


def test_a_model_without_a_mask_may_learn_one(tmp_path: Path, new: Tokenizer) -> None:
    old = listed(tmp_path / "causal", "newt")
    old.roles.pop("mask")
    old.mask = None
    causal, both = (FAMILIES[name] for name in ("gpt2", "gpt2, hybrid"))
    theirs, ours = causal[1].build(causal[0], old), fresh(both[1], both[0], new, 1)
    start = begin(ours, Held(theirs, old), both[1], both[0], new, "transplant", 1)  # type: ignore[arg-type]
    assert start.descent is not None
    assert new.mask in start.descent.new


def test_an_elmo_keeps_the_words_of_its_softmax(tmp_path: Path) -> None:
    def words(name: str, *own: str) -> Tokenizer:
        (tmp_path / name).write_text("\n".join(["<S>", "</S>", "<UNK>", *own]) + "\n")
        return Tokenizer.load(tmp_path / name)

    old, new = words("old.txt", *WORDS), words("new.txt", "pond", "ponder", "cat")
    network = elmo.Elmo(width=8, cells=12, layers=1, highways=1, filters=((1, 4),), letter=4)
    learned = bilm.BiLm(samples=0)
    theirs, ours = shaken(learned.build(network, old)), fresh(learned, network, new, 1)
    start = begin(ours, Held(theirs, old), learned, network, new, "transplant", 1)  # type: ignore[arg-type]
    held, own = own_tensors(theirs), own_tensors(ours)
    assert set(start.fresh) == {"head.table.weight", "head.bias"}
    for name in own:
        if name in start.fresh:
            pairs = [(1, 1), (2, 2), (3, 3 + WORDS.index("pond")), (5, 3 + WORDS.index("cat"))]
            assert all(torch.equal(own[name][n], held[name][m]) for n, m in pairs), name
        else:
            assert torch.equal(own[name], held[name]), name
    assert start.descent is not None
    assert start.descent.new == [4]


def test_a_folder_of_hugging_faces(tmp_path: Path, new: Tokenizer) -> None:
    (tmp_path / "theirs").mkdir()
    place = hub_folder("bert", tmp_path / "theirs")
    theirs = made("bert", tmp_path / "again")
    ours = fresh(theirs.learned, theirs.settings, new, 1)
    with pytest.raises(
        RecipeError, match=r'tokens other ids.* move it to this vocabulary: `vocabulary = "transplant"`'
    ):
        begin(ours, Origin.of(place), theirs.learned, theirs.settings, new, "same", 1)
    begin(ours, Origin.of(place), theirs.learned, theirs.settings, new, "transplant", 1)
    at = theirs.tokenizer.pipeline.token_to_id("newt")
    assert torch.equal(ours.model.words.weight[6], own_tensors(theirs.objective)[TABLE][at])
    before = {name: tensor.detach().clone() for name, tensor in own_tensors(ours).items()}
    rows, held = 5, weights.read(place / "model.safetensors")
    assert (theirs.tokenizer.vocabulary + rows) % 8 == 0
    padded = {
        name: torch.cat([tensor, torch.full((rows, *tensor.shape[1:]), 9.0)])
        for name, tensor in held.items()
        if len(tensor) == theirs.tokenizer.vocabulary
    }
    weights.write(place / "model.safetensors", held | padded)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"vocab_size": theirs.tokenizer.vocabulary + rows}))
    begin(ours, Origin.of(place), theirs.learned, theirs.settings, new, "transplant", 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in own_tensors(ours).items()), "padding tells nothing"
    for name in ("tokenizer.json", "vocab.txt"):
        (place / name).unlink()
    with pytest.raises(DataError, match="holds no tokenizer"):
        begin(ours, Origin.of(place), theirs.learned, theirs.settings, new, "transplant", 1)


def test_what_cannot_be_moved(monkeypatch: pytest.MonkeyPatch, old: Tokenizer, new: Tokenizer) -> None:
    network, learned, _ = FAMILIES["bert"]
    origin = Held(None, old, is_run=False)
    monkeypatch.setattr(transplant.foreign, "tokenizer_of", lambda folder: None)
    with pytest.raises(
        RecipeError, match="vocabulary: found transplant, but theirs reads characters and has no tokens"
    ):
        begin(fresh(learned, network, new, 1), origin, learned, network, new, "transplant", 1)  # type: ignore[arg-type]

    class Sideways:
        def build(self, model: Any, tokenizer: Tokenizer) -> Any:
            objective = learned.build(model, tokenizer)
            objective.model.words.weight = torch.nn.Parameter(torch.zeros(4, tokenizer.vocabulary))
            return objective

    with pytest.raises(RecipeError, match=r"vocabulary: model\.words\.weight does not have a row for each token"):
        tables_of(Sideways(), network, new)
