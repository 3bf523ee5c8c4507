"""Training step of Hugging Face's transformers, as a reference of the same size on rows of the same length.

The class and its config are those of an exported network. Batch, micro-batches, dropout, precision, clipping and AdamW
are the same. 15 % of the tokens are predicted, with the class's own loss. For ELECTRA, fake tokens are sampled from the
generator's scores.
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
NONE = -100  # label of positions that are not predicted
MADE_UP = 8  # synthetic micro-batches, which are used cyclically


@dataclass(frozen=True)
class TransformersStep:
    """Networks of transformers and their training steps."""

    networks: list[nn.Module]
    optimizer: torch.optim.Optimizer
    loss: Callable[[Tensor, Tensor], Tensor]
    rows: list[tuple[Tensor, Tensor]]  # micro-batches: tokens, and which of them are predicted
    accumulation: int
    clip: float
    device: torch.device
    dtype: torch.dtype | None  # of matrix products; None: fp32

    @staticmethod
    def of(job: Job) -> TransformersStep:
        device, layout = job.ranks.device, job.recipe.layout
        if job.ranks.world > 1:
            raise RecipeError(
                "beside",
                f"found {many(job.ranks.world, 'process')}",
                "one, as a step of transformers is measured on one",
            )
        if layout.precision == "fp16":
            raise RecipeError("beside", "found fp16, which needs loss scaling", "fp32, tf32 or bf16")
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
        rows = [
            (
                torch.randint(words // 2, words, shape, generator=chance).to(device),
                (torch.rand(shape, generator=chance) < PREDICTED).to(device),
            )
            for _ in range(min(MADE_UP, share.accumulation))
        ]
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
    try:
        import transformers
    except ModuleNotFoundError:
        raise RecipeError("beside", "transformers is not installed", "", "`pip install transformers`") from None
    transformers.logging.set_verbosity_error()  # about settings that it fills in itself
    built: list[nn.Module] = []
    for network in reversed(job.objective.networks().values()):
        family = network.settings
        roles = " ".join(role for role in network.modules if role != "model")
        name = family.architectures.get(roles)
        if name is None:
            kind = type(family).__module__.rpartition(".")[2]
            raise RecipeError("beside", f"found {kind}", "a family that transformers supports with these heads")
        hf_class = getattr(transformers, name)
        config = {**family.hugging_face(job.tokenizer.vocabulary, job.tokenizer), "use_cache": False}
        built.append(hf_class(hf_class.config_class(**config)))
    return built


def _loss_of(networks: list[nn.Module], job: Job) -> Callable[[Tensor, Tensor], Tensor]:
    causal, mask = job.recipe.model.capabilities.causal, job.tokenizer.mask or 0  # causal models have no mask token
    if len(networks) == 1:
        [network] = networks
        pairs = {"next_sentence_label": torch.zeros(job.share(0).micro, dtype=torch.long, device=job.ranks.device)}
        extra = pairs if hasattr(network, "cls") and hasattr(network.cls, "seq_relationship") else {}

        def single(words: Tensor, chosen: Tensor) -> Tensor:
            shown = words if causal else words.masked_fill(chosen, mask)
            labels = words if causal else words.masked_fill(~chosen, NONE)
            return network(input_ids=shown, labels=labels, **extra).loss

        return single
    generator, discriminator = networks
    weight = list(job.objective.weights.values())[-1]

    def electra_loss(words: Tensor, chosen: Tensor) -> Tensor:
        guess = generator(input_ids=words.masked_fill(chosen, mask), labels=words.masked_fill(~chosen, NONE))
        with torch.no_grad():
            sampled = torch.distributions.Categorical(logits=guess.logits[chosen].float()).sample()
        fakes = words.masked_scatter(chosen, sampled)
        return guess.loss + weight * discriminator(input_ids=fakes, labels=(fakes != words).float()).loss

    return electra_loss
