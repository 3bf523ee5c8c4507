"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2017), with torch's fused kernel if possible."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from ordsmed.base.menu import Choice
from ordsmed.learn import updates


@dataclass(frozen=True)
class AdamW(Choice):
    """AdamW; biases, norms and other vectors are not decayed."""

    betas: tuple[float, float] = (0.9, 0.999)
    """decay rates of the two moments' running means; elsewhere adam_beta1, adam_beta2"""
    epsilon: float = 1e-8
    """added to the square root of the second moment; elsewhere adam_epsilon"""
    decay: float = 0.01
    """weight decay of matrices; elsewhere weight_decay"""
    variant: Literal["torch", "bert", "keras"] = "torch"
    """bias correction: torch's; bert: none (Google's BERT, ELECTRA); keras: after adding epsilon (NVIDIA's ELECTRA)"""

    cautious: updates.Cautious = "no"
    """decay: a weight decays only if its update also moves it toward 0; updates: a weight is updated only if the update
    agrees with the gradient's sign, and the other updates grow to compensate"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("cautious",)
    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        updates.check_betas(self.betas)
        updates.check_epsilon(self.epsilon)
        updates.check_not_negative("decay", self.decay)

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        built = updates.with_decay(groups, self.decay)
        if self.variant == "torch" and self.cautious == "no":
            return torch.optim.AdamW(built, lr=0.0, betas=self.betas, eps=self.epsilon, fused=True)
        return AdamWOptimizer(built, self)


class AdamWOptimizer(torch.optim.Optimizer):
    """The update w -= rate (c m / (√v + ε) + decay w), with a factor c for the bias correction.

    For bert c is 1, for keras √(1 - b2^t) / (1 - b1^t); torch corrects both moments.
    """

    def __init__(self, groups: list[dict[str, Any]], settings: AdamW) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.settings = settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        options, corrections = self.settings, dict[str, updates.Correct](torch="yes", bert="no", keras="outside")
        for group in updates.weight_groups(self, *updates.MOMENTS):
            directions = updates.directions(group, options.betas, options.epsilon, corrections[options.variant])
            if options.cautious == "updates":
                updates.make_cautious(group, directions)
            updates.apply_update(group, directions, group.rate, cautious=options.cautious == "decay")
