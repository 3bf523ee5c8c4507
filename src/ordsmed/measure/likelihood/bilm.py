"""Scorer of ELMo models: each word from the words before it, from those after it, or the mean of both.

The boundary symbols around a text are not scored.

<S> the newts        ->  the newts ran       forward
</S> ran newts       ->  ran newts the       backward
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ordsmed.measure.likelihood.items import Ints, Item, Scores
from ordsmed.nn.characters import SPECIAL, listed, symbols
from ordsmed.nn.loss import token_logs
from ordsmed.weights.trained_model import Trained

WORDS = 2_048  # words per batch
SPELLED = 1 << 12  # distinct words per pass of the character encoder
LONGEST = 1 << 14  # words of an item


class BiScorer:
    """Scores words with an ELMo, on the device it is on."""

    max_tokens = LONGEST
    start_tokens: Ints | None = None
    by_line = True

    def __init__(self, trained: Trained, way: str) -> None:
        self.objective, self.tokenizer = cast(Any, trained.objective), trained.tokenizer
        self.way, self.chained = way, way != "mean"
        self.longest = trained.settings.longest_word

    def cut(self, texts: list[str]) -> list[Item]:
        known, unknown = self.tokenizer.model["vocab"], self.tokenizer.unknown
        words = [tuple(self.tokenizer.words(text)) for text in texts]
        return [Item(np.asarray([known.get(word, unknown) for word in row], np.int64), words=row) for row in words]

    def cost(self, item: Item) -> int:
        return len(item) + 2

    def spelled(self, text: str, item: Item) -> int:
        unknown = np.flatnonzero(item.pieces == self.tokenizer.unknown).tolist()
        return sum(len(item.words[n].encode()) for n in unknown)

    @torch.inference_mode()
    def scores(self, items: list[Item], *, best: bool = False) -> list[Scores]:
        result: list[Scores | None] = [None] * len(items)
        order = sorted(range(len(items)), key=lambda n: -len(items[n]))
        while order:
            count = max(1, WORDS // (len(items[order[0]]) + 2))
            chosen, order = order[:count], order[count:]
            for n, scores in zip(chosen, self._read([items[n] for n in chosen], best), strict=True):
                result[n] = scores
        return cast("list[Scores]", result)

    def _read(self, items: list[Item], best: bool) -> list[Scores]:
        model, device = self.objective.model, next(self.objective.model.parameters()).device
        numbers = {word: n for n, word in enumerate(dict.fromkeys(w for item in items for w in item.words), SPECIAL)}
        rows = symbols(*listed([word.encode() for word in numbers]), self.longest).split(SPELLED)
        vectors = torch.cat([model.letters(part.to(device)) for part in rows])
        ahead = [torch.tensor([0, *(numbers[w] for w in item.words)]) for item in items]
        back = [torch.tensor([1, *(numbers[w] for w in reversed(item.words))]) for item in items]
        directions = [torch.nn.utils.rnn.pad_sequence(x, batch_first=True).to(device) for x in (ahead, back)]
        lengths = torch.tensor([len(row) for row in ahead], device=device)
        tops = model.read(vectors, *directions, *model.silence(len(items)), lengths)[0][-1]
        scores_by_direction = {}
        for direction, top, sign in (("forward", tops[0], 1), ("backward", tops[1], -1)):
            if self.way in (direction, "mean"):
                scores_by_direction[direction] = self._predicted(top, items, sign, best)
        if self.way != "mean":
            return scores_by_direction[self.way]
        pairs = zip(scores_by_direction["forward"], scores_by_direction["backward"], strict=True)
        return [Scores((forward.logs + backward.logs) / 2, forward.best & backward.best) for forward, backward in pairs]

    def _predicted(self, top: Tensor, items: list[Item], turn: int, best: bool) -> list[Scores]:
        """Score the words that the states of one direction, [T, B, P], predict; `turn` is -1 for backward."""
        states = torch.cat([top[: len(item), n] for n, item in enumerate(items)])
        targets = torch.from_numpy(np.concatenate([item.pieces[::turn] for item in items])).to(states.device)
        table = self.objective.head.table.weight
        logs, right = token_logs(states, table, self.objective.head.bias, targets, best=best)
        ends = np.cumsum([len(item) for item in items])[:-1]
        logs_of, right_of = np.split(logs.double().cpu().numpy(), ends), np.split(right.cpu().numpy(), ends)
        return [
            Scores(item_logs[::turn][item.first :], right[::turn][item.first :])
            for item_logs, right, item in zip(logs_of, right_of, items, strict=True)
        ]
