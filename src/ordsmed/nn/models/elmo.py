"""ELMo (Peters et al. 2018): word vectors from characters, then LSTM layers in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.settings import as_toml
from ordsmed.nn.characters import CharacterCnn
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.heads import WordHead
from ordsmed.nn.lstm import Lstm, describe, lacks_fused, read
from ordsmed.nn.model import Block, Capabilities, Family, SpecialTokens, Tuning

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class Elmo(Family, Choice):
    """An ELMo; `size` names one of: original 5.5B survey medium small."""

    width: int = 512
    """projection size: dimension of a word's vector in each direction"""
    cells: int = 4096
    """cell size of an LSTM layer in one direction"""
    layers: int = 2
    """LSTM layers in each direction"""
    highways: int = 2
    """number of highway layers of the character network"""
    filters: tuple[tuple[int, int], ...] = FILTERS
    """convolution widths over characters, and the number of filters of each"""
    letter: int = 16
    """dimension of a character's embedding"""
    longest_word: int = 50
    """maximum characters (bytes) of a word, with its start and end symbols; longer words are truncated"""
    activation: Literal["relu", "tanh"] = "relu"
    """activation of the filters"""
    cell_clip: float = 3.0
    """cell states are clipped to this; 0: no clipping"""
    projection_clip: float = 3.0
    """projections are clipped to this; 0: no clipping"""
    residual: bool = True
    """every LSTM layer but the first adds its input to its output"""
    dropout: float = 0.1
    """dropout of every LSTM layer's input and of the last layer's output"""
    lstm: Literal["auto", "exact", "fast"] = "auto"
    """exact: clip at every step, as the reference implementation; fast: torch's fused kernel, which clips only at the
    end of a window; auto: exact, but fast on a GPU if there is no clipping"""

    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "original": {"width": 512, "cells": 4096, "highways": 2},
        "5.5B": {"width": 512, "cells": 4096, "highways": 2},
        "survey": {"width": 512, "cells": 2048, "highways": 2},
        "medium": {"width": 256, "cells": 2048, "highways": 1},
        "small": {"width": 128, "cells": 1024, "highways": 1},
    }
    capabilities: ClassVar[Capabilities] = Capabilities(state=True, compiled=False)
    model_type: ClassVar[str] = "elmo"
    architectures: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        or_more(self, width=1, cells=1, layers=1, letter=1, highways=0)
        if not self.filters or any(reach < 1 or count < 1 for reach, count in self.filters):
            raise ValueError(f"filters: found {as_toml(self.filters)}; wanted pairs of a width and a number of filters")
        if self.longest_word < max(4, *(reach for reach, _ in self.filters)):
            raise ValueError(f"longest_word: found {self.longest_word}; wanted the widest filter's width, 4 or more")
        or_more(self, cell_clip=0, projection_clip=0)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: found {self.dropout}; wanted 0 to below 1")

    def fits(self, tokenizer: SpecialTokens) -> None:
        """Require a vocabulary of words, because only words have characters."""
        if tokenizer.kind != "wordlevel":
            problem = f"splits words into pieces ({tokenizer.kind})"
            raise RecipeError("tokenizer", problem, "whole words, with <S>, </S> and <UNK>", 'use kind = "words"')

    def build(self, vocabulary: int) -> ElmoModel:
        return ElmoModel(self)

    def token_head(self, model: ElmoModel) -> Any:
        raise RecipeError("objective.kind", "an objective over tokens with an ELMo", "bilm, over words")

    def word_head(self, vocabulary: int) -> WordHead:
        return WordHead(vocabulary, self.width)

    def smaller(self, width: int, layers: int) -> Elmo:
        cells = max(1, width * self.cells // self.width)
        filters = ((1, 8), (2, 8), (3, 16))
        return Elmo(width=width, cells=cells, layers=layers, highways=1, filters=filters, dropout=self.dropout)

    def longest(self) -> int:
        return 1 << 30  # a recurrent network has no longest row

    def flops(self, length: int) -> float:
        """Return the FLOPs per word, without the character network, whose cost depends on the words of a batch."""
        cell = 4 * self.cells * 2 * self.width + (self.cells * self.width if self.cells != self.width else 0)
        return 2.0 * 2 * self.layers * cell

    def head_flops(self, vocabulary: int) -> float:
        return 2.0 * 2 * vocabulary * self.width

    def tuning(self) -> Tuning:
        """Freeze the network and train the head at a high rate, as in the paper's tasks."""
        return Tuning(learning_rate=1e-3, warmup=0.0, freeze=True)

    def describe(self, device: str, precision: str) -> str:
        lacks = lacks_fused(device, precision, projects=self.cells != self.width)
        return describe(self.fused(device), self.cell_clip, self.projection_clip, lacks)

    def fused(self, device: str) -> bool:
        free = not (self.cell_clip or self.projection_clip)
        return self.lstm == "fast" or (self.lstm == "auto" and device != "cpu" and free)


class Layer(Block):
    """One LSTM layer with two independent directions."""

    def __init__(self, settings: Elmo, *, residual: bool) -> None:
        super().__init__()
        options = {"cell_clip": settings.cell_clip, "projection_clip": settings.projection_clip}
        self.ahead = Lstm(settings.width, settings.cells, **options)
        self.back = Lstm(settings.width, settings.cells, **options)
        self.dropout_ahead, self.dropout_back = Dropout(settings.dropout), Dropout(settings.dropout)
        self.settings, self.residual = settings, residual

    def forward(
        self, ahead: Tensor, back: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Map both directions' inputs [T, B, P] and states h [2, B, P], c [2, B, C] to the same after reading."""
        fused = lengths is None and self.settings.fused(ahead.device.type)
        ahead, back = self.dropout_ahead(ahead), self.dropout_back(back)
        ahead_out, back_out = read((self.ahead, self.back), (ahead, back), h, c, lengths, fused=fused)
        ahead, back = (ahead + ahead_out[0], back + back_out[0]) if self.residual else (ahead_out[0], back_out[0])
        return ahead, back, torch.stack([ahead_out[1], back_out[1]]), torch.stack([ahead_out[2], back_out[2]])


class ElmoModel(nn.Module):
    """Map characters of words to the states of every layer, in both directions."""

    def __init__(self, settings: Elmo) -> None:
        super().__init__()
        self.settings = settings
        filters, highways, activation = settings.filters, settings.highways, settings.activation
        sizes = {"width": settings.width, "size": settings.letter}
        self.letters = CharacterCnn(**sizes, filters=filters, highways=highways, activation=activation)
        self.blocks = nn.ModuleList(
            Layer(settings, residual=n > 0 and settings.residual) for n in range(settings.layers)
        )

    def forward(
        self, symbols: Tensor, ahead: Tensor, back: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None = None
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """Encode words given as symbols of the batch's different words [U, longest] and indices into them.

        `ahead` and `back` [B, T] are the indices in the order in which each direction reads. `h` [B, 2, layers, P] and
        `c` [B, 2, layers, C] are the states after the previous window. Return both directions' states [T, B, P] of
        every layer, starting with the word vectors, and the new h and c. `lengths`: words of each row, if rows are not
        full.
        """
        return self.read(self.letters(symbols), ahead, back, h, c, lengths)

    def read(
        self, words: Tensor, ahead: Tensor, back: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None = None
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """Encode words given as vectors of the different words [U, P]; see `forward`."""
        layers = [(F.embedding(ahead.T, words), F.embedding(back.T, words))]  # gradients sum up in a fixed order
        carried = []
        for number, block in enumerate(self.blocks):
            state = (h[:, :, number].transpose(0, 1), c[:, :, number].transpose(0, 1))
            ahead, back, *last = block(*layers[-1], *state, lengths)
            layers.append((ahead, back))
            carried.append(last)
        new_h, new_c = (torch.stack([pair[k] for pair in carried], 2).transpose(0, 1) for k in (0, 1))
        return layers, new_h, new_c

    def silence(self, rows: int) -> tuple[Tensor, Tensor]:
        like = self.letters.table.weight
        shape = (rows, 2, self.settings.layers)
        h, c = (torch.zeros(*shape, size, device=like.device) for size in (self.settings.width, self.settings.cells))
        return h, c
