"""The plan of a pretraining: which data stand, how large the networks are, what a step costs."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import torch

from ordsmed.apply.origin import Origin, standing
from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks, first_alone
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining as TokenizerTraining
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.learn.objective import Objective, built
from ordsmed.learn.phases import total
from ordsmed.mesh.layout import memory
from ordsmed.mesh.parallel import held_by_rank
from ordsmed.nn import weights
from ordsmed.pretrain.finish import finish
from ordsmed.train import checkpoint, job
from ordsmed.train.deadline import fit
from ordsmed.train.plan import Plan
from ordsmed.train.recipe import Pretraining


@dataclass(frozen=True, kw_only=True)
class PretrainingPlan(Plan):
    """What a pretraining would do."""

    recipe: Pretraining

    recipes: ClassVar[type[Pretraining]] = Pretraining

    @classmethod
    def of(cls, recipe: Pretraining, ranks: Ranks, folder: Path | None = None, *, here: bool = True) -> Self:
        begun = folder is not None and bool(checkpoint.steps(folder / "checkpoints"))
        if recipe.init and here and not begun:
            Origin.of(recipe.init, key="init")  # before the data are made, which may take hours
        network = job.model_settings(recipe)
        job.check(recipe, network, ranks)
        return cls(recipe=recipe, ranks=ranks, folder=folder, network=network)

    def completed(self, *, make: bool, here: bool = True) -> Self:
        recipe = self.recipe
        if make:
            for source in recipe.sources:
                run.obtain(Encoding, source)
        if make or all(run.finished(standing(name), "encode") for name in recipe.sources):
            recipe = job.counted(recipe)
        notes, tokenizer = _inputs(recipe)
        if (origin := Origin.find(recipe.init, key="init")) and (left := origin.unfinished()):
            notes.append(f"init: {left}")
        plan = dataclasses.replace(self, recipe=recipe, tokenizer=tokenizer, notes=tuple(notes))
        plan.fits(lambda model: recipe.objective.build(model, tokenizer), here=here)
        return plan

    @functools.cached_property
    def objective(self) -> Objective:
        """The networks without their numbers."""
        with torch.device("meta"):
            made: Objective = built(self.recipe.objective, self.network, self.tokenizer)
        return made

    def sizes(self) -> list[str]:
        counts = {name: tensor.numel() for name, tensor in weights.own_tensors(self.objective).items()}
        whole, body = sum(counts.values()), sum(n for name, n in counts.items() if name.startswith("model."))
        lines = [f"network: {whole:,} parameters, {body:,} without heads; vocabulary {self.tokenizer.vocabulary:,}"]
        flops = tokens = 0.0
        for number, phase in enumerate(self.recipe.phase, 1):
            step = self.objective.flops(phase.batch, phase.length)
            flops, tokens = flops + step * phase.steps, tokens + phase.rows * phase.length
            lines.append(f"phase {number}: {step:.3g} FLOPs a step")
        if all(phase.steps for phase in self.recipe.phase):
            whole_run = many(total(self.recipe.phase), "step")
            return [*lines, f"in all: {whole_run}, {tokens:,.0f} tokens, {flops:.3g} FLOPs"]
        return [*lines, "in all: how many steps epochs are is known when the data stand"]

    def spread(self) -> list[str]:
        first, *batches = super().spread()
        return [first, *self.objective.describe(self.ranks.device.type), *batches]

    def memory(self) -> list[str]:
        held = 4 * held_by_rank(self.objective, self.recipe.layout)
        return [memory(held, self.recipe.optimizer.moments + (self.recipe.average > 0))]

    def build(self, ranks: Ranks, *, gone_on: dict[str, Any] | None = None) -> job.Job:
        return job.build(self.recipe, ranks, gone_on=gone_on)

    def fitted(self, ranks: Ranks, seconds: float) -> tuple[Pretraining, dict[str, Any]]:
        return fit(self.recipe, ranks, seconds)

    def finish(self, job: job.Job, folder: Path) -> dict[str, Any]:
        found: dict[str, Any] = first_alone(job.ranks, lambda: finish(job, folder))
        return found

    def verify(self) -> None:
        for source in self.recipe.sources:
            Encoded(run.obtain(Encoding, source)).check()


def _inputs(recipe: Pretraining) -> tuple[list[str], Any]:
    """The tokenizer of the data; one that is not made yet is stood in for by what its recipe says."""
    lines, tokenizer = [], None
    for name in recipe.sources:
        folder = standing(name)
        if run.finished(folder, "encode"):
            encoded = Encoded(folder)
            tokens, documents = encoded.train.token_count, encoded.train.document_count
            lines.append(f"data: {folder}, {tokens:,} tokens in {documents:,} documents")
            tokenizer = tokenizer or encoded.tokenizer
        else:
            lines.append(f"data: {folder} does not stand yet; it will be made from {name}")
            own = run.read_recipe(Encoding, folder) if Path(name).is_dir() else run.load(Encoding, name)[0]
            tokenizer = tokenizer or _expected(own.tokenizer)
    return lines, tokenizer


def _expected(name: str) -> Any:
    """A tokenizer that is not made yet, as far as its recipe tells."""
    path = Path(name)
    if path.is_dir() or (path.is_file() and path.suffix != ".toml"):
        if Run(path).status.get("state", "done") == "done":
            return read_tokenizer(name)
        recipe = run.read_recipe(TokenizerTraining, path)
    else:
        recipe, title = run.load(TokenizerTraining, name)
        folder = run.place(recipe, title)
        if run.finished(folder, "tokenizer"):
            return read_tokenizer(str(folder))
    if (own := recipe.tokenizer.load()) is not None:
        return own
    if not hasattr(recipe.tokenizer, "size"):  # one of somebody's own, which learns as many as it likes
        raise RecipeError(name, "is not made yet, and does not say how many pieces it will have", "",
                          f"`{command('tokenizer', name)}` makes it")  # fmt: skip
    return SimpleNamespace(vocabulary=recipe.tokenizer.size, pad=0, mask=0)
