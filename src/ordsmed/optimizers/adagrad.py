"""Adagrad: every weight's rate falls with the squares it has seen (Duchi et al. 2011), as ELMo's authors had it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ordsmed.learn import updates


@dataclass(frozen=True)
class Settings:
    """Adagrad; ELMo's rate is 0.2."""

    initial: float = 1.0
    """what the sums of squares begin at"""
    epsilon: float = 0.0
    """added to the root of the sum of squares"""
    decay: float = 0.0
    """weight decay of matrices and tables, added to their gradient; elsewhere weight_decay"""

    moments: ClassVar[int] = 1

    def __post_init__(self) -> None:
        updates.check_share("initial", self.initial)
        updates.check_share("epsilon", self.epsilon)
        updates.check_share("decay", self.decay)
        if self.initial == self.epsilon == 0:
            raise ValueError("initial: found 0; wanted more, or an epsilon above 0: a gradient of 0 is divided by it")

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        built = updates.with_decay(groups, self.decay)
        return torch.optim.Adagrad(built, lr=0.0, initial_accumulator_value=self.initial, eps=self.epsilon)
