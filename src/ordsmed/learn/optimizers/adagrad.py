"""Adagrad: every weight's rate falls with the squares it has seen (Duchi et al. 2011), as ELMo's authors had it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ordsmed.base.menu import Choice
from ordsmed.learn import updates
from ordsmed.nn.kernels import switch
from ordsmed.nn.shards import is_sharded

LARGE = 1 << 20  # least size of a tensor for which the kernel is used


@dataclass(frozen=True)
class Adagrad(Choice):
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
        return AdagradOptimizer(built, lr=0.0, initial_accumulator_value=self.initial, eps=self.epsilon)


class AdagradOptimizer(torch.optim.Adagrad):
    """The optimizer of torch, with a Triton kernel for large tables if Triton is available."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        every = [(weight, weight.grad, group) for group in self.param_groups for weight in group["params"]]
        large = [(weight, gradient, group) for weight, gradient, group in every if self._by_kernel(weight)]
        for weight, gradient, group in large:
            from ordsmed.nn.kernels import adaptive_step  # needs Triton, which is installed if the switch is on

            state = self.state[weight]
            state["step"] += 1
            adaptive_step.step(weight, state["sum"], gradient, group["lr"], group["eps"], group["weight_decay"])
            weight.grad = None
        super().step()
        for weight, gradient, _ in large:
            weight.grad = gradient

    @staticmethod
    def _by_kernel(weight: torch.Tensor) -> bool:
        gradient, runs = weight.grad, switch.runs("adaptive_step", weight.device)
        if gradient is None or weight.numel() < LARGE or not runs or is_sharded(weight):
            return False
        return weight.dtype == gradient.dtype == torch.float32 and weight.is_contiguous() and gradient.is_contiguous()
