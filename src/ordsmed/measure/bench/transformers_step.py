"""What a user would pick instead: a step of Hugging Face's transformers, of the same sizes, on rows as full.

Their class and its settings are those that an export of our network names; the batch, how it is cut, dropout,
precision, clipping and AdamW are the same. 15 per cent of the words are predicted, as their losses do it; where there
are two networks, fakes are drawn from the generator's scores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.train.mesh.precision import DTYPES

if TYPE_CHECKING:
    from ordsmed.train.job import Job

PREDICTED = 0.15
NONE = -100  # a label of theirs that is not predicted
MADE_UP = 8  # micro-batches, taken in turn


@dataclass(frozen=True)
class TransformersStep:
    """Networks of theirs, and steps of them."""

    networks: list[nn.Module]
    optimizer: torch.optim.Optimizer
    loss: Callable[[Tensor, Tensor], Tensor]
    rows: list[tuple[Tensor, Tensor]]  # of micro-batches: words, and which are predicted
    accumulation: int
    clip: float
    device: torch.device
    dtype: torch.dtype | None  # of products; None: fp32

    @staticmethod
    def of(job: Job) -> TransformersStep:
        """Theirs to the same sizes."""
        device, layout = job.ranks.device, job.recipe.layout
        if job.ranks.world > 1:
            raise RecipeError(
                "beside", f"found {many(job.ranks.world, 'process')}", "one: their step is measured on one"
            )
        if layout.precision == "fp16":
            raise RecipeError("beside", "found fp16, whose losses are scaled", "fp32, tf32 or bf16")
        networks = _networks(job)
        for network in networks:
            network.to(device).train()
        optimizer = torch.optim.AdamW([p for network in networks for p in network.parameters()], lr=1e-4, fused=True)
        share, loss = job.share(0), _loss_of(networks, job)
        if layout.compile:
            loss = torch.compile(loss)
        length = job.phases[0].length
        chance = torch.Generator().manual_seed(0)
        shape, words = (share.micro, length), job.tokenizer.vocabulary
        rows = [(torch.randint(words // 2, words, shape, generator=chance).to(device),
                 (torch.rand(shape, generator=chance) < PREDICTED).to(device))
                for _ in range(min(MADE_UP, share.accumulation))]  # fmt: skip
        dtype = DTYPES[layout.precision] if layout.half else None
        return TransformersStep(networks, optimizer, loss, rows, share.accumulation, job.recipe.clip, device, dtype)

    def steps(self, count: int) -> None:
        weights = [weight for network in self.networks for weight in network.parameters()]
        for _ in range(count):
            for micro in range(self.accumulation):
                within = torch.autocast(self.device.type, self.dtype) if self.dtype else contextlib.nullcontext()
                with within:
                    loss = self.loss(*self.rows[micro % len(self.rows)])
                (loss / self.accumulation).backward()
            if self.clip:
                nn.utils.clip_grad_norm_(weights, self.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()


def _networks(job: Job) -> list[nn.Module]:
    """Their classes as our exports name them; those that others learn from come first."""
    try:
        import transformers
    except ModuleNotFoundError:
        raise RecipeError("beside", "transformers is not installed", "", "`pip install transformers`") from None
    transformers.logging.set_verbosity_error()  # of settings that they fill in themselves
    built: list[nn.Module] = []
    for network in reversed(job.objective.networks().values()):
        family = network.settings
        roles = " ".join(role for role in network.modules if role != "model")
        name = family.architectures.get(roles)
        if name is None:
            kind = type(family).__module__.rpartition(".")[2]
            raise RecipeError("beside", f"found {kind}", "a family that transformers has with these heads")
        hf_class = getattr(transformers, name)
        config = {**family.hugging_face(job.tokenizer.vocabulary, job.tokenizer), "use_cache": False}
        built.append(hf_class(hf_class.config_class(**config)))
    return built


def _loss_of(networks: list[nn.Module], job: Job) -> Callable[[Tensor, Tensor], Tensor]:
    """As their classes tell it, with our weights of the terms."""
    causal, mask = job.recipe.model.capabilities.causal, job.tokenizer.mask or 0  # a causal one has no mask
    if len(networks) == 1:
        [network] = networks
        pairs = {"next_sentence_label": torch.zeros(job.share(0).micro, dtype=torch.long, device=job.ranks.device)}
        more = pairs if hasattr(network, "cls") and hasattr(network.cls, "seq_relationship") else {}

        def one(words: Tensor, chosen: Tensor) -> Tensor:
            shown = words if causal else words.masked_fill(chosen, mask)
            labels = words if causal else words.masked_fill(~chosen, NONE)
            return network(input_ids=shown, labels=labels, **more).loss

        return one
    guessing, telling = networks
    weight = list(job.objective.weights.values())[-1]

    def both(words: Tensor, chosen: Tensor) -> Tensor:
        guess = guessing(input_ids=words.masked_fill(chosen, mask), labels=words.masked_fill(~chosen, NONE))
        with torch.no_grad():
            drawn = torch.distributions.Categorical(logits=guess.logits[chosen].float()).sample()
        fakes = words.masked_scatter(chosen, drawn)
        return guess.loss + weight * telling(input_ids=fakes, labels=(fakes != words).float()).loss

    return both
