"""Words by their characters: symbols of any word, and the network against convolutions over every window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.nn.characters import BEGIN, END, PAD, START, STOP, CharacterCnn, listed, symbols

WORDS = ["a", "aaaa", "newt", "blåbærsyltetøy", "x" * 400, "q" * 44, "r" * 48, "", "😀", "well-known"]
FILTERS = ((1, 4), (2, 4), (3, 8), (7, 16))


def rows(words: list[str], longest: int = 50) -> Tensor:
    return symbols(*listed([word.encode() for word in words]), longest)


def test_symbols_of_words() -> None:
    found = rows(WORDS)
    assert found.shape == (2 + len(WORDS), 50)
    for sign, row in ((START, found[0]), (STOP, found[1])):
        assert row.tolist() == [BEGIN, sign, END] + [PAD] * 47
    for word, row in zip(WORDS, found[2:], strict=True):
        inner = list(word.encode()[:48])
        assert row.tolist() == [BEGIN, *inner, END] + [PAD] * (48 - len(inner))


def test_no_words_are_the_two_signs() -> None:
    assert rows([]).shape == (2, 50)
    assert rows([""])[2].tolist()[:3] == [BEGIN, END, PAD]


def test_a_shorter_limit_cuts() -> None:
    assert rows(["newts"], 6)[2].tolist() == [BEGIN, *b"newt", END]


def network(activation: str, highways: int = 2, width: int = 12) -> CharacterCnn:
    torch.manual_seed(1)
    made = CharacterCnn(width=width, size=5, filters=FILTERS, highways=highways, activation=activation)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made


def written_down(characters: CharacterCnn, found: Tensor) -> Tensor:
    """Every window of every filter, as the reference has it."""
    embedded = characters.table(found).transpose(1, 2)
    x = torch.cat([characters.activation(F.conv1d(embedded, w.weight, w.bias).amax(2)) for w in characters.windows], 1)  # type: ignore[arg-type]
    for highway in characters.highways:
        gate, change = highway.both(x).chunk(2, 1)  # type: ignore[operator]
        x = gate.sigmoid() * change.relu() + (1 - gate.sigmoid()) * x
    return x if characters.project is None else characters.project(x)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("highways", "width"), [(2, 12), (0, 32), (1, 32)])
def test_the_network_is_the_written_one(activation: str, highways: int, width: int) -> None:
    """Values, and what everything learns; padding's windows, equal windows in a word, words as long as a row."""
    characters, found = network(activation, highways, width), rows(WORDS * 9)
    weight = torch.randn(len(found), width, generator=torch.Generator().manual_seed(2))
    gradients = []
    for run in (characters, lambda x: written_down(characters, x)):
        characters.zero_grad()
        out = run(found)
        (out * weight).sum().backward()
        gradients.append([out.detach(), *(p.grad.clone() for p in characters.parameters() if p.grad is not None)])
    assert len(gradients[0]) == 1 + len(list(characters.parameters()))
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() <= 5e-5 * other.abs().max()


def test_order_and_company_do_not_matter() -> None:
    characters, found = network("relu"), rows(WORDS)
    alone = torch.cat([characters(row[None]) for row in found])
    assert torch.allclose(characters(found.flip(0)).flip(0), alone, atol=1e-6)


def test_sixteen_bits_are_near() -> None:
    characters, found = network("relu"), rows(WORDS)
    exact = characters(found)
    with torch.autocast("cpu", torch.bfloat16):
        half = characters(found)
        half.float().sum().backward()
    assert (half - exact).abs().max() < 0.05 * exact.abs().max()
    assert all(p.grad is not None for p in characters.parameters())


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_fresh_weights_are_as_elmos_authors_had_them(activation: str) -> None:
    """Gates begin nearly shut, biases at 0, and no answer grows or fades with how much a filter reads."""
    torch.manual_seed(1)
    made: Any = CharacterCnn(width=64, size=32, filters=((2, 200), (5, 200)), highways=1, activation=activation)  # type: ignore[arg-type]
    assert float(made.table.weight.abs().max().detach()) == pytest.approx(1, rel=1e-3)
    assert float(made.table.weight.std().detach()) == pytest.approx(1 / 3**0.5, rel=0.02)
    for window, reach in zip(made.windows, (2, 5), strict=True):
        if activation == "relu":
            assert float(window.weight.abs().max().detach()) == pytest.approx(0.05, rel=1e-2)
            spread = 0.05 / 3**0.5
        else:
            spread = (reach * 32) ** -0.5
        assert float(window.weight.std().detach()) == pytest.approx(spread, rel=0.05)
        assert not window.bias.any()
    both, project = made.highways[0].both, made.project
    assert float(both.weight.std().detach()) == pytest.approx(400**-0.5, rel=0.05)
    assert both.bias.tolist() == [-2.0] * 400 + [0.0] * 400
    assert float(project.weight.std().detach()) == pytest.approx(400**-0.5, rel=0.05)
    assert not project.bias.any()
