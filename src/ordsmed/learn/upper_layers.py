"""Layers between a network and a task's head: a weighted mix of the network's layers, and an LSTM.

    batch -> read -> one layer or all, [B, T, D] -> mix -> one example per row, [E, L, D] -> LSTM -> [B, T, W]

B rows, T tokens per row, E examples in them, L tokens of the longest one, D width of the network's states, W width of
the result. The defaults for an ELMo are those of Peters et al. 2018; a Transformer has no such layers by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.data.batch import Batch
from ordsmed.nn.capture import capture_layers
from ordsmed.nn.characters import symbols
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.mix import ScalarMix
from ordsmed.nn.model import Block, Model, ModelSettings

MAX_WIDTH, MAX_LAYERS = 65_536, 100  # of the LSTM, which is built before memory is estimated


@dataclass(frozen=True)
class Top:
    """The layers that a task puts between the network and its head."""

    mix: bool | None = None
    """read a learned mix of all layers instead of the last layer; left out: only for an ELMo"""
    recurrent: int | None = None
    """width of each direction of a bidirectional LSTM over the states; 0: no LSTM; left out: 256 for an ELMo, else 0"""
    layers: int = 1
    """number of layers of the LSTM"""
    dropout: float | None = None
    """dropout of the states and of the output of each LSTM layer; left out: 0.5 for an ELMo, else 0.1"""

    def __post_init__(self) -> None:
        if self.recurrent is not None and not 0 <= self.recurrent <= MAX_WIDTH:
            raise ValueError(f"recurrent: found {self.recurrent}; wanted 0 to {MAX_WIDTH:,}")
        if not 1 <= self.layers <= MAX_LAYERS:
            raise ValueError(f"layers: found {self.layers}; wanted 1 to {MAX_LAYERS}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: found {self.dropout}; wanted 0 to below 1")

    def for_family(self, family: ModelSettings) -> Top:
        """Return the settings with the defaults for this network filled in."""
        elmo = family.capabilities.state
        usual: dict[str, Any] = {"mix": elmo, "recurrent": 256 if elmo else 0, "dropout": 0.5 if elmo else 0.1}
        top = replace(self, **{name: value for name, value in usual.items() if getattr(self, name) is None})
        if top.plain and (self.layers > 1 or self.dropout is not None):
            problem = "found layers or dropout without layers that use them"
            wanted = "mix = true, or recurrent above 0"
            raise RecipeError("task.top", problem, wanted, "the dropout of the network is set in [model]")
        return top

    @property
    def plain(self) -> bool:
        """Return whether the head reads the network's last layer directly; needs the result of `for_family`."""
        assert None not in (self.mix, self.recurrent)
        return not self.mix and not self.recurrent


class Upper(nn.Module):
    """The layers of `Top`: they turn states of a network's layers into states for a head."""

    def __init__(self, settings: Top, family: ModelSettings) -> None:
        super().__init__()
        settings = settings.for_family(family)
        self.mix = ScalarMix(family.layers + 1) if settings.mix else None
        self.dropout = Dropout(settings.dropout or 0.0)
        self.recurrent = Recurrent(width(family), settings) if settings.recurrent else None
        self.width = width(family) if self.recurrent is None else self.recurrent.width

    @property
    def mixes(self) -> bool:
        return self.mix is not None

    def forward(self, layers: Sequence[Tensor], batch: Batch) -> Tensor:
        """Return states [B, T, W] from the layers that `read` returns."""
        states: Tensor = self.dropout(layers[-1] if self.mix is None else self.mix(layers))
        if self.recurrent is not None:
            states = self.recurrent(states, batch)
        return states


class Recurrent(nn.Module):
    """LSTM layers that read each example in both directions.

    The backward direction is a separate LSTM over reversed examples, so padding is at the end for both and affects
    neither. `pack_padded_sequence` gives the same numbers, but is five times slower on a CPU if rows are long.
    """

    def __init__(self, input_width: int, settings: Top) -> None:
        super().__init__()
        assert settings.recurrent
        self.width = 2 * settings.recurrent
        widths = [input_width, *[self.width] * (settings.layers - 1)]
        self.ahead, self.back = (
            nn.ModuleList(nn.LSTM(width, settings.recurrent, batch_first=True) for width in widths) for _ in range(2)
        )
        self.dropouts = nn.ModuleList(Dropout(settings.dropout or 0.0) for _ in widths)
        for lstm in (*self.ahead, *self.back):
            initialize_lstm(lstm)

    def forward(self, states: Tensor, batch: Batch) -> Tensor:
        """Return states [B, T, W] from states [B, T, D]; 0 at positions outside any example."""
        begin, lengths, longest = batch.examples()
        step = torch.arange(longest, device=lengths.device)
        positions = begin + torch.minimum(step, lengths - 1)
        x = self._read_both_ways(states_at(states, positions), lengths)
        extra = states.shape[0] * states.shape[1]  # padding is written to one extra position, which is dropped
        positions = positions.masked_fill(step >= lengths, extra)  # indexing with a mask would synchronize the GPU
        flat = x.new_zeros(extra + 1, self.width).index_copy(0, positions.flatten(), x.flatten(0, 1))
        rows: Tensor = flat[:-1].unflatten(0, states.shape[:2])
        return rows

    def _read_both_ways(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return [E, L, W] from [E, L, D], in 32 bits because not every device has a 16-bit kernel for LSTMs."""
        examples, longest = x.shape[:2]
        begin = torch.arange(examples, device=lengths.device)[:, None] * longest
        turn = reversed_positions(begin, lengths, longest)
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            for ahead, back, dropout in zip(self.ahead, self.back, self.dropouts, strict=True):
                x = dropout(torch.cat([ahead(x)[0], states_at(back(states_at(x, turn))[0], turn)], -1))
        return x


def read(model: Model, family: ModelSettings, batch: Batch, *, every: bool, frozen: bool = False) -> list[Tensor]:
    """Return the states of the last layer, or of `every` layer with the embeddings first, [B, T, D] each.

    With `frozen`, they have no gradient.
    """
    with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
        return (_read_elmo if family.capabilities.state else _read_blocks)(model, family, batch, every)


def width(family: ModelSettings) -> int:
    return int(family.width) * (2 if family.capabilities.state else 1)


def initialize_lstm(lstm: nn.LSTM) -> None:
    """Initialize an LSTM: input weights Glorot uniform, recurrent ones orthogonal, biases 0, except forget gates 1."""
    for name, weight in lstm.named_parameters():
        for number, gate in enumerate(weight.chunk(4)):  # i f g o
            if name.startswith("bias"):
                nn.init.constant_(gate, float(number == 1 and name.startswith("bias_ih")))
            else:
                (nn.init.xavier_uniform_ if name.startswith("weight_ih") else nn.init.orthogonal_)(gate)


def states_at(states: Tensor, positions: Tensor) -> Tensor:
    """Return the states at these positions of the flattened rows, [B, T, D] and [E, L] -> [E, L, D]."""
    words: Tensor = states.flatten(0, 1).index_select(0, positions.flatten()).unflatten(0, positions.shape)
    return words


def reversed_positions(begin: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """Return the positions of examples that start at `begin` [E, 1], in reverse, [E, longest].

    Padding keeps its positions. Reversing twice restores the order.
    """
    step = torch.arange(longest, device=lengths.device)
    return begin + torch.where(step < lengths, lengths - 1 - step, step)


def _read_blocks(model: Model, family: ModelSettings, batch: Batch, every: bool) -> list[Tensor]:
    count = sum(isinstance(module, Block) for module in model.modules()) if every else 0
    with capture_layers(model, range(count)) as states:
        last = model(batch.tokens, batch.positions, batch.texts(model), batch.types)
    return [*(states[number] for number in range(count)), last]


def _read_elmo(model: Any, family: Any, batch: Batch, every: bool) -> list[Tensor]:
    """Return the states of both directions, concatenated in reading order, [B, T, 2P]; each row is one example."""
    assert batch.characters is not None
    assert batch.words is not None
    assert batch.spans is not None
    rows, length = batch.tokens.shape
    assert len(batch.spans) == rows, (
        f"{many(len(batch.spans), 'example')} in {many(rows, 'row')}: an ELMo reads one example per row"
    )
    turn = reversed_positions(batch.spans[:, :1], batch.spans[:, 1:], length)
    backwards = batch.tokens.flatten()[turn]
    spelled = symbols(batch.characters, batch.words, family.longest_word)
    layers, _, _ = model(spelled, batch.tokens, backwards, *model.silence(rows))
    return [
        torch.cat([ahead.transpose(0, 1), states_at(back.transpose(0, 1), turn)], -1)
        for ahead, back in (layers if every else layers[-1:])
    ]
