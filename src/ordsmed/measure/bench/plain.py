"""ELMo as a plain PyTorch script, the reference of `bench` with measure = "plain".

It has the same weights and batches as the production network, but runs the character network on every token, the LSTM
cell step by step, and torch's own gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.data.batch import Batch
from ordsmed.learn.sampling import log_expected
from ordsmed.nn.characters import symbols


class PlainBiLm(nn.Module):
    """Forward and backward language models, written without optimizations."""

    def __init__(self, objective: Any) -> None:
        super().__init__()
        settings, self.vocabulary = objective.model_settings, objective.vocabulary
        characters = objective.model.letters
        self.settings, self.longest = settings, settings.longest_word
        features = sum(count for _, count in settings.filters)
        self.table = nn.Embedding.from_pretrained(characters.table.weight.detach().clone(), freeze=False)
        self.windows = nn.ModuleList(nn.Conv1d(settings.letter, count, width) for width, count in settings.filters)
        for module, source in zip(self.windows, characters.windows, strict=True):
            module.load_state_dict(source.state_dict())
        self.gates = nn.ModuleList(nn.Linear(features, 2 * features) for _ in range(settings.highways))
        for module, source in zip(self.gates, characters.highways, strict=True):
            module.load_state_dict(source.both.state_dict())
        self.project = nn.Linear(features, settings.width)
        self.project.load_state_dict(characters.project.state_dict())
        self.cells = nn.ModuleList(
            nn.ParameterDict({k: p.detach().clone() for k, p in layer.named_parameters()})
            for block in objective.model.blocks
            for layer in (block.ahead, block.back)
        )
        self.out = nn.Embedding.from_pretrained(objective.head.table.weight.detach().clone(), freeze=False)
        self.out_bias = nn.Parameter(objective.head.bias.detach().clone())

    def forward(self, batch: Batch, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert batch.characters is not None
        assert batch.words is not None
        assert batch.candidates is not None
        assert batch.tries is not None
        rows = symbols(batch.characters, batch.words, self.longest)[batch.tokens]  # [B, 2T, 50]
        new_h, new_c, losses = torch.zeros_like(h), torch.zeros_like(c), []
        halves = zip(rows.chunk(2, 1), batch.targets.chunk(2, 1), strict=True)
        for direction, (half, targets) in enumerate(halves):
            x = self._words(half.flatten(0, 1)).view(*half.shape[:2], -1)
            for number in range(self.settings.layers):
                cell = self.cells[2 * number + direction]
                out, new_h[:, direction, number], new_c[:, direction, number] = self._layer(
                    cell, self._drop(x), h[:, direction, number], c[:, direction, number]
                )
                x = out + x if number else out
            losses.append(self._loss(self._drop(x).flatten(0, 1), targets.flatten(), batch))
        return sum(losses, torch.zeros(())) / 2, new_h, new_c

    def _words(self, rows: Tensor) -> Tensor:
        characters = self.table(rows).transpose(1, 2)
        x = torch.cat([window(characters).amax(2).relu() for window in self.windows], 1)
        for gate in self.gates:
            opening, change = gate(x).chunk(2, 1)
            x = x + opening.sigmoid() * (change.relu() - x)
        return self.project(x)

    def _layer(self, cell: Any, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states = []
        for step in x.unbind(1):
            i, f, g, o = (step @ cell["enter"].T + h @ cell["carry"].T + cell["bias"]).chunk(4, 1)
            c = (torch.sigmoid(f + 1) * c + i.sigmoid() * g.tanh()).clamp(-3, 3)
            h = ((o.sigmoid() * c.tanh()) @ cell["project"].T).clamp(-3, 3)
            states.append(h)
        return torch.stack(states, 1), h.detach(), c.detach()

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.settings.dropout, self.training)

    def _loss(self, hidden: Tensor, targets: Tensor, batch: Batch) -> Tensor:
        words = batch.candidates
        assert words is not None
        assert batch.tries is not None
        right = (hidden * self.out(targets)).sum(1) + self.out_bias[targets]
        negatives = (
            hidden @ self.out(words).T + self.out_bias[words] - log_expected(words, batch.tries, self.vocabulary)
        )
        negatives = negatives.masked_fill(words[None] == targets[:, None], -torch.inf)
        right = right - log_expected(targets, batch.tries, self.vocabulary)
        return F.cross_entropy(torch.cat([right[:, None], negatives], 1), torch.zeros_like(targets))
