"""Layers between a network and a head: the states that are read, their mix, and the LSTM over each example."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kit import elmo_files
from kit.families import WORDS, shaken
from ordsmed.base.errors import RecipeError
from ordsmed.data.batch import Batch
from ordsmed.learn.task import Task
from ordsmed.learn.upper_layers import Top, Upper, read, width
from ordsmed.nn.characters import SPECIAL, listed
from ordsmed.nn.dropout import begin_micro_batch, number_layers
from ordsmed.nn.models import bert, electra, elmo, gpt2, megatron_bert, modern, roberta
from ordsmed.use.elmo_reader import ElmoReader
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model

SHAPE: dict[str, Any] = {"width": 16, "layers": 3, "heads": 2, "inner": 24, "positions": 24}
FAMILIES = {
    "bert": bert.Bert(**SHAPE),
    "roberta": roberta.Roberta(**SHAPE),
    "gpt2": gpt2.Gpt2(**SHAPE),
    "megatron_bert": megatron_bert.MegatronBert(**SHAPE),
    "electra": electra.Electra(**SHAPE, embedding=8),
    "modern": modern.ModernBert(**SHAPE, window=4),
    "elmo": elmo.Elmo(width=5, cells=8, layers=2, highways=1, filters=((1, 4), (3, 6)), longest_word=12),
}
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
LINES = ["the newts ran up the hill", "up", "naïve 🙂🙂🙂🙂 unquestionably", "the the newts"]
PACKED = ((5, 9, 3), (1, 12), (7, 2))  # lengths of the examples of each row


def asked(tokens: Tensor, spans: list[tuple[int, int]], **more: Any) -> Batch:
    positions = more.pop("positions", torch.arange(tokens.shape[1]).expand_as(tokens))
    nothing = torch.zeros(tokens.shape)
    return Batch(
        torch.arange(len(spans)), tokens, positions, nothing.long(), nothing, spans=torch.tensor(spans), **more
    )


def packed_batch(length: int = 20) -> Batch:
    """Rows of several examples, and of padding behind them."""
    tokens = torch.randint(6, WORDS, (len(PACKED), length), generator=torch.Generator().manual_seed(4))
    documents, positions = torch.zeros(tokens.shape, dtype=torch.int32), torch.zeros_like(tokens)
    spans = []
    for row, sizes in enumerate(PACKED):
        begin = 0
        for number, size in enumerate(sizes, 1):
            documents[row, begin : begin + size] = number
            positions[row, begin : begin + size] = torch.arange(size)
            spans.append((row * length + begin, size))
            begin += size
    return asked(tokens, spans, positions=positions, documents=documents)


def each_alone(batch: Batch) -> list[Batch]:
    flat = batch.tokens.flatten()
    assert batch.spans is not None
    return [asked(flat[None, begin : begin + size], [(0, size)]) for begin, size in batch.spans.tolist()]


def word_batch(lines: list[str], spare: int = 0) -> Batch:
    """Lines as an ELMo is given them."""
    words = [line.split() for line in lines]
    numbers = {word: n for n, word in enumerate(dict.fromkeys(w for line in words for w in line), SPECIAL)}
    rows = [torch.tensor([0, *(numbers[word] for word in line), 1]) for line in words]
    tokens = nn.functional.pad(nn.utils.rnn.pad_sequence(rows, batch_first=True), (0, spare))
    letters, starts = listed([word.encode() for word in numbers])
    spans = [(n * tokens.shape[1], len(row)) for n, row in enumerate(rows)]
    return asked(tokens, spans, characters=letters, words=starts)


def examples(states: Tensor, batch: Batch) -> list[Tensor]:
    assert batch.spans is not None
    return [states.flatten(0, 1)[begin : begin + size] for begin, size in batch.spans.tolist()]


def network(family: Any) -> Any:
    torch.manual_seed(8)
    return shaken(family.build(WORDS))


def upper(settings: Top, family: Any) -> Upper:
    torch.manual_seed(9)
    made: Upper = shaken(Upper(settings, family))
    number_layers(made)
    return made


def near(found: Tensor, wanted: Tensor, within: float = 1e-6) -> bool:
    limit = within * max(1, float(wanted.detach().abs().max()))
    return found.shape == wanted.shape and bool((found - wanted).abs().max() <= limit)


@EVERY_FAMILY
def test_layers_come_in_order_and_a_mix_can_be_each_of_them(family: Any) -> None:
    model = network(family)
    batch = word_batch(LINES) if family.capabilities.state else packed_batch()
    layers, [last] = (read(model, family, batch, every=every) for every in (True, False))
    assert {layer.shape for layer in layers} == {(*batch.tokens.shape, width(family))}
    assert len(layers) == family.layers + 1
    assert torch.equal(layers[-1], last)
    other = batch.tokens.clone()
    other[0, 2] += 1
    moved = [
        (one != two).any(-1)
        for one, two in zip(
            read(model, family, dataclasses.replace(batch, tokens=other), every=True), layers, strict=True
        )
    ]
    assert moved[0].nonzero().tolist() == [[0, 2]], "embeddings see nothing of their neighbours"
    assert moved[1][0, 3:5].all()
    top = upper(Top(mix=True, recurrent=0), family)
    assert top.mix is not None
    with torch.no_grad():
        top.mix.gamma.fill_(1)
        for number, layer in enumerate(layers):
            top.mix.weights.copy_(torch.where(torch.arange(len(layers)) == number, 0.0, -1e3))
            assert torch.equal(top(layers, batch), layer)


@EVERY_FAMILY
def test_packed_rows_give_what_each_example_gives_alone(family: Any) -> None:
    """With all of a top, and whatever the padding."""
    model, top = network(family), upper(Top(mix=True, recurrent=6, layers=2), family)
    words = family.capabilities.state
    batch = word_batch(LINES, spare=3) if words else packed_batch()
    alone = [word_batch([line]) for line in LINES] if words else each_alone(batch)
    with torch.no_grad():
        found = top(read(model, family, batch, every=True), batch)
        for here, one in zip(examples(found, batch), alone, strict=True):
            assert near(here, top(read(model, family, one, every=True), one)[0], 2e-6)
    assert found.shape == (*batch.tokens.shape, top.width)


def test_the_lstm_is_that_of_torch_slopes_too() -> None:
    """Each example alone through torch's own LSTM of two layers and both directions."""
    batch = packed_batch()
    top = upper(Top(recurrent=6, layers=2), FAMILIES["bert"])
    theirs = nn.LSTM(16, 6, 2, batch_first=True, bidirectional=True)
    assert top.recurrent is not None
    with torch.no_grad():
        for way, lstms in (("", top.recurrent.ahead), ("_reverse", top.recurrent.back)):
            for layer, lstm in enumerate(lstms):
                for name, weight in lstm.named_parameters():
                    getattr(theirs, name.replace("l0", f"l{layer}{way}")).copy_(weight)
    states = torch.randn(*batch.tokens.shape, 16).requires_grad_()
    found = top([states], batch)
    wanted = [theirs(part[None])[0][0] for part in examples(states, batch)]
    assert all(near(one, two) for one, two in zip(examples(found, batch), wanted, strict=True))
    assert batch.documents is not None
    padding = batch.documents == 0
    assert not found[padding].any()
    [here] = torch.autograd.grad(found.square().sum(), states)
    [there] = torch.autograd.grad(sum((part.square().sum() for part in wanted), torch.zeros(())), states)
    assert near(here, there)
    assert not here[padding].any()


def test_an_elmo_gives_the_vectors_it_gives_everywhere(tmp_path: Path) -> None:
    options = elmo_files.options()
    take_over(elmo_files.write(tmp_path / "theirs", options, elmo_files.arrays(options)), tmp_path / "ours")
    trained = open_model(tmp_path / "ours")
    batch = word_batch(LINES, spare=2)
    with torch.no_grad():
        layers = read(trained.objective.model, trained.settings, batch, every=True)
    parts = zip(*(examples(layer, batch) for layer in layers), strict=True)
    found = [torch.stack(part)[:, 1:-1].numpy() for part in parts]
    for here, there in zip(found, ElmoReader(trained).read(LINES), strict=True):
        np.testing.assert_allclose(here, there.vectors, rtol=0, atol=1e-6)


@EVERY_FAMILY
def test_a_frozen_network_keeps_nothing_and_a_tuned_one_learns_all_of_it(family: Any) -> None:
    model, top = network(family), upper(Top(mix=True, recurrent=4), family)
    batch = word_batch(LINES) if family.capabilities.state else packed_batch()
    frozen = read(model, family, batch, every=True, frozen=True)
    assert not any(layer.requires_grad for layer in frozen)
    assert torch.is_grad_enabled()
    top(frozen, batch).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in top.parameters())
    assert all(p.grad is None for p in model.parameters())
    top(read(model, family, batch, every=True), batch).square().sum().backward()
    unused = {"types"} if getattr(family, "types", 0) else set()
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.grad is None} <= unused


@pytest.mark.parametrize("name", ["bert", "elmo"])
def test_dropouts_of_a_frozen_network_sleep_while_the_top_learns(name: str) -> None:
    family = FAMILIES[name]
    batch = word_batch(LINES) if name == "elmo" else packed_batch()
    task = Task(Top(mix=False, recurrent=0), family, WORDS)
    number_layers(task)

    def seen(step: int) -> Tensor:
        begin_micro_batch("frozen", step)
        return task.states(batch)

    task.train()
    assert not torch.equal(seen(1), seen(2))
    task.freeze()
    task.train()
    assert torch.equal(seen(1), seen(2))
    assert not seen(1).requires_grad


def test_the_same_micro_batch_gives_the_same_bits() -> None:
    family = FAMILIES["elmo"]
    model, top = network(family).train(), upper(Top(recurrent=8, layers=2), family).train()
    batch = word_batch(LINES)

    def gradients(step: int) -> list[Tensor]:
        begin_micro_batch("top", step)
        found = top(read(model, family, batch, every=True), batch)
        return [found, *torch.autograd.grad(found.square().sum(), [*model.parameters(), *top.parameters()])]

    assert all(torch.equal(one, two) for one, two in zip(gradients(1), gradients(1), strict=True))


@pytest.mark.parametrize("recurrent", [0, 50])
def test_dropout_of_what_enters_and_of_what_leaves(recurrent: int) -> None:
    top = upper(Top(mix=True, recurrent=recurrent, dropout=0.25), FAMILIES["bert"]).train()
    batch = packed_batch()
    states = [torch.ones(*batch.tokens.shape, 16)] * (FAMILIES["bert"].layers + 1)
    found = []
    for step in (1, 1, 2):
        begin_micro_batch("top", step)
        found.append(top(states, batch))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    dropped = torch.cat(examples(found[0], batch)) == 0
    assert dropped.float().mean().item() == pytest.approx(0.25, abs=0.05)
    if recurrent:
        kept = (found[0] != 0) & (found[2] != 0)
        assert not torch.allclose(found[0][kept], found[2][kept]), "what entered was dropped too"


def test_what_is_left_out_is_settled_by_the_family() -> None:
    of_elmo, of_bert = (Top().for_family(FAMILIES[name]) for name in ("elmo", "bert"))
    assert of_elmo == Top(mix=True, recurrent=256, dropout=0.5)
    assert of_bert == Top(mix=False, recurrent=0, dropout=0.1)
    assert (of_elmo.plain, of_bert.plain) == (False, True)
    assert Top(mix=False, recurrent=0).for_family(FAMILIES["elmo"]).plain
    assert [width(FAMILIES[name]) for name in ("elmo", "bert")] == [10, 16]
    assert upper(Top(), FAMILIES["elmo"]).width == 512
    assert upper(Top(recurrent=0), FAMILIES["elmo"]).width == 10
    for wrong in ({"recurrent": -1}, {"layers": 0}, {"dropout": 1.0}):
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))}: found"):
            Top(**wrong)  # type: ignore[arg-type]


def test_fresh_weights() -> None:
    recurrent = Upper(Top(recurrent=8), FAMILIES["bert"]).recurrent
    assert recurrent is not None
    for lstm in (*recurrent.ahead, *recurrent.back):
        for gate in lstm.weight_hh_l0.chunk(4):  # type: ignore[union-attr, operator]
            assert near(gate @ gate.T, torch.eye(8))
        assert (lstm.bias_ih_l0 + lstm.bias_hh_l0).tolist() == [0.0] * 8 + [1.0] * 8 + [0.0] * 16  # type: ignore[operator]


def test_what_nothing_has_cannot_be_set() -> None:
    of_bert, of_elmo = FAMILIES["bert"], FAMILIES["elmo"]
    for wrong in (Top(layers=2), Top(dropout=0.3), Top(mix=False, recurrent=0, layers=2)):
        with pytest.raises(RecipeError, match=r"task\.top: found layers or dropout without layers that use them"):
            wrong.for_family(of_bert)
    assert Top(mix=True, dropout=0.3).for_family(of_bert) == Top(mix=True, recurrent=0, dropout=0.3)
    assert Top(recurrent=4, layers=2).for_family(of_bert) == Top(mix=False, recurrent=4, layers=2, dropout=0.1)
    assert Top(layers=2).for_family(of_elmo).layers == 2
    assert (Top(dropout=0.0).dropout, Top(recurrent=0, layers=1).recurrent) == (0.0, 0)


@pytest.mark.parametrize("bad", [{"layers": 10**9}, {"layers": 0}, {"recurrent": 10**9}, {"recurrent": -1}])
def test_sizes_that_nobody_means_are_refused_before_anything_is_made(bad):
    with pytest.raises(ValueError, match=rf"{next(iter(bad))}: found .*; wanted"):
        Top(**bad)
