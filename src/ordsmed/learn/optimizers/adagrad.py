"""Adagrad: the learning rate of a weight falls with the sum of its squared gradients (Duchi et al. 2011)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ordsmed.base.menu import Choice
from ordsmed.learn import updates
from ordsmed.nn.kernels import switch
from ordsmed.nn.shards import is_sharded

MIN_KERNEL_SIZE = 1 << 20  # numbers of a tensor from which the kernel is used


@dataclass(frozen=True)
class Adagrad(Choice):
    """Adagrad, ELMo's optimizer, with a learning rate of 0.2 there."""

    initial: float = 1.0
    """initial value of the sums of squares"""
    epsilon: float = 0.0
    """added to the square root of the sum of squares"""
    decay: float = 0.0
    """weight decay of matrices and tables, added to their gradient; elsewhere weight_decay"""

    moments: ClassVar[int] = 1

    def __post_init__(self) -> None:
        updates.check_not_negative("initial", self.initial)
        updates.check_not_negative("epsilon", self.epsilon)
        updates.check_not_negative("decay", self.decay)
        if self.initial == self.epsilon == 0:
            raise ValueError("initial: found 0; wanted more, or an epsilon above 0, to divide a gradient of 0 by")

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        built = updates.with_decay(groups, self.decay)
        return AdagradOptimizer(built, lr=0.0, initial_accumulator_value=self.initial, eps=self.epsilon)


class AdagradOptimizer(torch.optim.Adagrad):
    """torch.optim.Adagrad with a Triton kernel for large tables if Triton is available."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        every = [(weight, weight.grad, group) for group in self.param_groups for weight in group["params"]]
        large = [(weight, gradient, group) for weight, gradient, group in every if self._fits_kernel(weight)]
        for weight, gradient, group in large:
            from ordsmed.nn.kernels import adaptive_step  # needs Triton, which `switch` has checked

            state = self.state[weight]
            state["step"] += 1
            adaptive_step.step(weight, state["sum"], gradient, group["lr"], group["eps"], group["weight_decay"])
            weight.grad = None
        super().step()
        for weight, gradient, _ in large:
            weight.grad = gradient

    @staticmethod
    def _fits_kernel(weight: torch.Tensor) -> bool:
        gradient, runs = weight.grad, switch.runs("adaptive_step", weight.device)
        if gradient is None or weight.numel() < MIN_KERNEL_SIZE or not runs or is_sharded(weight):
            return False
        return weight.dtype == gradient.dtype == torch.float32 and weight.is_contiguous() and gradient.is_contiguous()
