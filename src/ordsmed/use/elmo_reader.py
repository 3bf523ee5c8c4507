"""ELMo's reader: lines of words to their vectors from every layer, in both directions of reading.

    the newts ran  ->  <S> the newts ran </S>   forward     ->  layer 0  [word ; word]
                       </S> ran newts the <S>   backward        layer k  [forward k ; backward k]

Words are what stands between white space, or what the tokenizer cuts a line into. Lines are read in windows through
which the states go on, so that a long one takes no more memory than its vectors.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ordsmed.nn.characters import SPECIAL, listed, symbols
from ordsmed.use.readers import Read
from ordsmed.weights.trained import Trained

WINDOW = 1 << 11  # words of all lines that are read at once
WORDS = 1 << 12  # different words whose letters are read at once


class ElmoReader:
    """Reads with an ELMo, where it stands."""

    pools: tuple[str, ...] = (
        "mean",
        "words",
    )  # both are the same: its tokens are words, and <S> is no vector of a line

    def __init__(self, trained: Trained, *, carry: bool = False, cut: bool = False, batch: int = 64) -> None:
        """`carry`: a line goes on from the line at its place in the batch before; `cut`: into words, as its tokenizer
        does; `batch`: lines of one, at most."""
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
        """What the layers make of framed lines, [L, T, 2P] each."""
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
            places = rows.to(self.device)
            layers, *new = self.model.read(
                vectors, *window, *(state[places] for state in states), counts.to(self.device)
            )
            for state, after in zip(states, new, strict=True):
                state[places] = after
            ways = [torch.stack(way).cpu().numpy() for way in zip(*layers, strict=True)]  # [L, T, B, P] each
            for n, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
                half, last = self.width // 2, int(lengths[row]) - begin
                arrays[row][:, begin : begin + count, :half] = ways[0][:, :count, n]
                arrays[row][:, last - count : last, half:] = ways[1][:, :count, n][:, ::-1]
            begin = end
        return arrays
