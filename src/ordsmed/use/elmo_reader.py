"""The embedding reader of ELMo models: vectors of words from every layer, in both directions.

    the newts ran  ->  <S> the newts ran </S>   forward     ->  layer 0  [word ; word]
                       </S> ran newts the <S>   backward        layer k  [forward k ; backward k]

Words are separated by white space or by the tokenizer. Lines are read in windows, and the LSTM states are passed from
window to window, so a long line needs no more memory than its vectors.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ordsmed.nn.characters import SPECIAL, listed, symbols
from ordsmed.use.readers import Read
from ordsmed.weights.trained_model import Trained

WINDOW = 1 << 11  # words of all lines of a window
WORDS = 1 << 12  # distinct words whose characters are read at once


class ElmoReader:
    # both names mean the same, because its tokens are words; <S> is not a vector of the line
    pools: tuple[str, ...] = ("mean", "words")

    def __init__(self, trained: Trained, *, carry: bool = False, cut: bool = False, batch: int = 64) -> None:
        """Set up the reader.

        With `carry`, a line continues the states of the line at its position in the previous batch. With `cut`, the
        tokenizer separates words. `batch` is the number of lines per batch.
        """
        self.model = cast(Any, trained.objective.model)
        self.carry, self.batch = carry, batch
        self.words = trained.tokenizer.words if cut else str.split
        self.layers, self.width = trained.settings.layers + 1, 2 * trained.settings.width
        self.longest, self.device = trained.settings.longest_word, next(self.model.parameters()).device
        self.normalizer = trained.tokenizer.pipeline.normalizer
        self.states = self.model.silence(batch)

    @torch.inference_mode()
    def read(self, lines: list[str]) -> list[Read]:
        return [read for at in range(0, len(lines), self.batch) for read in self._batch(lines[at : at + self.batch])]

    def _batch(self, lines: list[str]) -> list[Read]:
        words = [self.words(line) for line in lines]
        numbers = {word: n for n, word in enumerate(dict.fromkeys(w for line in words for w in line), SPECIAL)}
        spelled = [(self.normalizer.normalize_str(word) if self.normalizer else word).encode() for word in numbers]
        long = {word for word, letters in zip(numbers, spelled, strict=True) if len(letters) > self.longest - 2}
        rows = symbols(*listed(spelled), self.longest).split(WORDS)
        vectors = torch.cat([self.model.letters(part.to(self.device)) for part in rows])
        ahead = [torch.tensor([0, *(numbers[word] for word in line), 1]) for line in words]
        read_layers = self._layers(vectors, ahead)
        return [
            Read(line, layers[:, 1:-1], cut=sum(word in long for word in line))
            for line, layers in zip(words, read_layers, strict=True)
        ]

    def _layers(self, vectors: Tensor, ahead: list[Tensor]) -> list[np.ndarray]:
        """Return the vectors of all layers for lines with <S> and </S>, [L, T, 2P] each."""
        lengths = torch.tensor([len(line) for line in ahead])
        arrays = [np.empty((self.layers, len(line), self.width), np.float32) for line in ahead]
        both = [torch.nn.utils.rnn.pad_sequence(x, batch_first=True) for x in (ahead, [x.flip(0) for x in ahead])]
        states = self.states if self.carry else self.model.silence(len(ahead))
        begin = 0
        while len(rows := torch.nonzero(lengths > begin).flatten()):
            end = begin + max(1, WINDOW // len(rows))
            counts = (lengths[rows] - begin).clamp(max=end - begin)
            end = begin + int(counts.max())
            window = [x[rows, begin:end].to(self.device) for x in both]
            at = rows.to(self.device)
            layers, *new = self.model.read(vectors, *window, *(state[at] for state in states), counts.to(self.device))
            for state, after in zip(states, new, strict=True):
                state[at] = after
            directions = [torch.stack(layer).cpu().numpy() for layer in zip(*layers, strict=True)]  # [L, T, B, P] each
            for n, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
                half, last = self.width // 2, int(lengths[row]) - begin
                arrays[row][:, begin : begin + count, :half] = directions[0][:, :count, n]
                arrays[row][:, last - count : last, half:] = directions[1][:, :count, n][:, ::-1]
            begin = end
        return arrays
