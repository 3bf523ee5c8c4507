"""The plan of a fine-tuning: initial model, files, number of examples and of trained parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from ordsmed.base import hub, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import in_words, many, say, size
from ordsmed.data.tokenizer_training import is_tokenizer
from ordsmed.learn.objective import Objective, built, fresh
from ordsmed.learn.task import Task
from ordsmed.nn.model import ModelSettings
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.text import read
from ordsmed.train import memory
from ordsmed.train.finetune.examples import TaskData, records_of
from ordsmed.train.finetune.finish import finish
from ordsmed.train.finetune.initialization import InitialModel, Loaded, prepare, start
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.job import Job, assemble
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.parallel import weights_of_rank
from ordsmed.train.plan import Plan
from ordsmed.train.training import Training
from ordsmed.weights.origin import Origin

SPLITS = ("train", "dev")


@dataclass(frozen=True, kw_only=True)
class FinetuningPlan(Plan):
    recipe: Finetuning
    initial: InitialModel | None = None  # the initial model; None: it does not exist
    data: TaskData | None = None

    recipes: ClassVar[type[Finetuning]] = Finetuning
    final_validations: ClassVar[float] = 2.0  # the finished run validates its best checkpoint again

    @classmethod
    def of(cls, recipe: Training, ranks: Ranks, folder: Path | None = None, *, here: bool = True) -> Self:
        assert isinstance(recipe, Finetuning)
        if recipe.several:  # plan the first of the trials
            recipe = dataclasses.replace(recipe, seeds=(), grid={}, step=None)
        initial, notes = _start(recipe, folder)
        return cls(recipe=recipe, ranks=ranks, folder=folder, notes=tuple(notes))._with_initial_model(initial)

    def _with_initial_model(self, initial: InitialModel | None) -> Self:
        if initial is None:
            if self.recipe.init is None:  # the recipe has the network, so only the tokenizer is missing
                check(self.recipe, self.recipe.model, self.ranks)
            return self
        check(self.recipe, initial.network, self.ranks)
        return dataclasses.replace(self, initial=initial, network=initial.network, tokenizer=initial.tokenizer)

    def missing(self) -> list[tuple[str, str]]:
        name = None if self.initial else self.recipe.tokenizer
        return [("tokenizer", name)] if name and not is_tokenizer(name) else []

    def _read_initial_model(self) -> Self:
        try:
            return self._with_initial_model(start(self.recipe, self.folder))
        except run.NotMade:
            return self

    def completed(self, *, make: bool, here: bool = True) -> Self:
        if make and not self.initial:
            records_of(self.recipe.task)  # raise errors in the files before a tokenizer is made
        plan = self._read_initial_model() if make and not self.initial else self
        recipe = plan.recipe
        if plan.initial is None:
            return dataclasses.replace(plan, notes=(*plan.notes, *_files(recipe)))
        filled_recipe = plan._with_defaults(recipe)
        filled = [] if recipe.complete else [_defaults_line(recipe, filled_recipe)]
        recipe = filled_recipe
        if recipe.layout.tensor > 1 and recipe.layout.sequence:
            say("layout.sequence = false: examples have different lengths, which tensor ranks cannot split")
            recipe = dataclasses.replace(recipe, layout=dataclasses.replace(recipe.layout, sequence=False))
        plan = dataclasses.replace(plan, recipe=recipe, notes=(*plan.notes, *filled, *_files(recipe)))
        if make or (
            not recipe.examples and all(existing_files(path) for split in SPLITS for path in recipe.task.paths(split))
        ):
            plan = plan._read(recipe.features if make and not run.only_checks() else "")
        vocabulary = plan.tokenizer.vocabulary
        memory.check(plan.recipe, plan.network, plan.ranks, lambda model: model.build(vocabulary), here=here)
        return plan

    def _read(self, cache: str) -> Self:
        recipe = self.recipe
        self.network.fits(self.tokenizer)
        task = recipe.task, self.network, self.tokenizer
        return self._with_data(TaskData.of(*task, recipe.seed, cache, self.max_unknown))

    def _with_data(self, data: TaskData) -> Self:
        """Return the plan with these examples; raise if the recipe's warm-up or score does not fit them."""
        recipe = self.recipe
        data = dataclasses.replace(data, batch=recipe.batch)
        rows = data.rows(0)
        records = len(data.train.records) if recipe.epoch_steps == "records" else 0
        counts = {"examples": len(rows), "records": records}
        counted = dataclasses.replace(recipe, task=data.task, **counts, warmup=None)  # type: ignore[arg-type]
        if (recipe.warmup or 0.0) > (longest := counted.run_schedule().span(counted.updates)):
            raise RecipeError("warmup", f"found {recipe.warmup:g}", f"0 to {many(longest, 'step')}")
        counted = dataclasses.replace(counted, warmup=recipe.warmup)
        data.check(counted.score)
        sizes, often = data.train.features.sizes, counted.updates * counted.batch / counted.examples
        dev = f"; {len(data.dev.features):,} for validation" if data.dev is not None else ""
        notes = (
            f"examples: {len(rows):,} of {rows.tokens:.1f} tokens (the longest has {int(sizes.max()):,}){dev}",
            f"{many(counted.examples, 'example')} for training: {many(counted.updates, 'step')} of {counted.batch}, "
            f"{many(often, 'epoch')}",
        )
        return dataclasses.replace(self, recipe=counted, data=data, notes=(*self.notes, *notes))

    def check(self, recipe: Finetuning) -> None:
        """Raise the errors of another recipe with the same initial model and the same data."""
        plan = dataclasses.replace(self, recipe=recipe)._with_initial_model(self.initial)
        if self.data is not None:
            plan.by(self._with_defaults(recipe))._with_data(self.data)

    def _with_defaults(self, recipe: Finetuning) -> Finetuning:
        learns_on = self.initial is not None and self.initial.head == recipe.task.role
        return recipe.fill_defaults(self.network, self.initial.learned if self.initial and learns_on else None)

    @functools.cached_property
    def task(self) -> Task:
        """The network with its head, without allocated weights."""
        with unfilled():
            return prepare(built(self.recipe.task, self.network, self.tokenizer), self.recipe)

    def subject(self) -> str:
        recipe, count = self.recipe, self._counts()[0]
        often = recipe.updates * recipe.batch / max(recipe.examples, 1)
        weights = f"weights from {recipe.init}" if recipe.init and not recipe.fresh else "random weights"
        network = f"{kind_of(self.network)}: {many(count, 'parameter')}, {weights}"
        return f"{network}; {kind_of(recipe.task)}: {many(recipe.examples, 'example')}, {often:.3g} epochs"

    def sizes(self) -> list[str]:
        if self.initial is None:
            return []
        if not self.recipe.examples:  # the labels are known only from the data
            with unfilled():
                body = self.network.build(self.tokenizer.vocabulary)
            return [f"network: {sum(t.numel() for t in body.parameters()):,} parameters without a head"]
        count, learned = self._counts()
        some = f", of which {learned:,} are trained" if learned < count else ""
        return [f"network: {count:,} parameters with its head{some}"]

    def _counts(self) -> tuple[int, int]:
        sizes = [(tensor.numel(), tensor.requires_grad) for tensor in self.task.parameters()]
        return sum(n for n, _ in sizes), sum(n for n, learns in sizes if learns)

    def memory(self) -> RankMemory:
        if self.initial is None or not self.recipe.examples:
            return RankMemory(0)
        count, learned = self._counts()
        moments = self.recipe.optimizer.moments + bool(self.recipe.average)
        return RankMemory(4 * weights_of_rank(self.task, self.recipe.layout), moments, learned / count)

    def flops(self, index: int) -> float:
        return self.task.flops(self.recipe.batch, self.row_length(index)) if self.data else 0.0

    def validation_rows(self) -> int:
        return len(self.data.dev.features) if self.data and self.data.dev is not None else 0

    def build(self, *, resume_state: dict[str, Any] | None = None) -> Job:
        initial, recipe = self.initial, self.recipe
        assert initial is not None
        assert self.data is not None
        facts: dict[str, Any] = {}

        def networks() -> Objective:
            task = fresh(recipe.task, initial.network, initial.tokenizer, recipe.seed)
            assert isinstance(task, Task)
            loaded = initial.fill(task, recipe.task) if resume_state is None else Loaded()
            if loaded.note:
                say(loaded.note)
            facts.update(loaded.facts)
            return prepare(task, recipe)

        job = assemble(recipe, self.ranks, self.data, networks, new=resume_state is None)
        return dataclasses.replace(job, initial_facts=facts)

    def verify(self) -> None:
        """Do nothing: the files were read and checked by `completed`."""

    def finish(self, job: Job, folder: Path) -> dict[str, Any]:
        return finish(job, folder)


def check(recipe: Finetuning, network: ModelSettings, ranks: Ranks) -> None:
    if recipe.task.length > network.longest():
        found = f"found {recipe.task.length}, more than the model's {network.longest()} positions"
        raise RecipeError("task.length", found, "", f"use task.length={network.longest()}")
    if recipe.adapters and recipe.layout.tensor > 1:
        raise RecipeError("layout.tensor", f"found {recipe.layout.tensor} with adapters", "1", "use shard")
    if recipe.adapters and recipe.freeze:
        raise RecipeError("freeze", "found true with adapters, which are inside the network", "one of the two")
    recipe.layout.check(network, [], ranks.world)
    try:
        recipe.layout.share(recipe.phases[0], 1, ranks.device.type, 0, ranks.data_world)
    except RecipeError as error:
        raise RecipeError(error.place.removeprefix("phase[1]."), error.found, error.wanted, error.remedy) from None


def _start(recipe: Finetuning, folder: Path | None) -> tuple[InitialModel | None, list[str]]:
    """Return the initial model if it exists, and lines that describe it."""
    if folder and (folder / "tokenizer").is_dir() and recipe.examples:
        return start(recipe, folder), []
    if recipe.init is not None and Origin.find(recipe.init, key="init") is None:
        hint = hub.remedy(recipe.init)
        left = "its default settings and its size are not known yet"
        return None, [f"init: {recipe.init} does not exist here{f' ({hint})' if hint else ''}; {left}"]
    if recipe.tokenizer and not is_tokenizer(recipe.tokenizer):
        return None, [f"tokenizer: {recipe.tokenizer} does not exist yet; it will be made when it is needed"]
    initial = start(recipe)
    weights_of = "random weights" if recipe.init is None or recipe.fresh else recipe.init
    head = f"; its {initial.head} head is trained further" if initial.head == recipe.task.role else ""
    pieces = many(initial.tokenizer.vocabulary, "piece")
    return initial, [f"init: {weights_of}, {kind_of(initial.network)}; {pieces}{head}"]


def _defaults_line(recipe: Finetuning, filled: Finetuning) -> str:
    left = [
        key for key in ("learning_rate", "warmup", "layer_decay", "freeze", "optimizer") if getattr(recipe, key) is None
    ]
    usual, pool = settings.plain(filled), getattr(filled.task, "pool", None)
    listed = [f"{key} {in_words(usual[key])}" for key in left]
    listed += [f"task.pool {pool}"] if pool != getattr(recipe.task, "pool", None) else []
    return f"defaults of {kind_of(filled.model)}: {', '.join(listed)}"


def existing_files(path: str) -> list[Path]:
    with contextlib.suppress(OrdsmedError, OSError):
        return read.files(path)
    return []


def _files(recipe: Finetuning) -> list[str]:
    lines = []
    for split in SPLITS:
        for path in recipe.task.paths(split):
            if paths := existing_files(path):
                count = f"{many(len(paths), 'file')}, " if len(paths) > 1 else ""
                lines.append(f"task.{split}: {path}, {count}{size(read.size(paths))}")
                continue
            get = read.fetching(path)
            lines.append(f"task.{split}: {path} does not exist{'; ' + get if get else ''}")
    if not recipe.task.paths("dev"):
        lines.append("task.dev: none, so the last checkpoint is used and nothing is scored")
    return lines
