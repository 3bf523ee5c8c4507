"""The deed `finetune`: a pretrained network learns a task; its best checkpoint, predictions and scores are left.

init -> network, tokenizer, weights; the task's files -> examples -> loop -> the best check -> weights/, predictions/
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ordsmed.apply.trained import Trained, open_model
from ordsmed.base import chance, files
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks, first_alone
from ordsmed.base.run import Run, at_home
from ordsmed.base.say import many, say
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.finetune import trials
from ordsmed.finetune.examples import Examples, Split
from ordsmed.finetune.recipe import Finetuning
from ordsmed.learn.kept import Kept, head_of, keep
from ordsmed.learn.objective import Objective, fresh
from ordsmed.learn.task import Task
from ordsmed.nn import adapters, boxes, foreign, weights
from ordsmed.nn.dropout import number_layers
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import average, checkpoint, picture, room
from ordsmed.train.job import Job, assemble, check_init, check_same
from ordsmed.train.session import leave_weights, perform


@dataclass(frozen=True)
class Start:
    """What a fine-tuning starts from."""

    network: Any  # its settings
    tokenizer: Tokenizer
    fill: Callable[[Task, Any], Begun]  # puts the weights under a task's head, and into it what goes on
    head: str = ""  # the role of a head that they learned


@dataclass(frozen=True)
class Begun:
    """With which weights a task begins."""

    told: str = ""  # whose they are, and what is random; empty: all of them are
    labels: tuple[str, ...] = ()  # of a head that goes on, those that it knows
    head: bool = False  # does one go on?

    @property
    def facts(self) -> dict[str, Any]:
        """For the run's record."""
        return {"head_kept": list(self.labels) or True} if self.head else {}


def start(recipe: Finetuning, folder: Path | None = None) -> Start:
    """The network and tokenizer of a recipe; of a run that goes on (`folder`), its own."""
    kept = folder / "tokenizer" if folder else None
    if kept and kept.is_dir() and recipe.examples:
        again = recipe.init and not recipe.fresh  # asked for where it never came to a checkpoint
        return Start(
            recipe.model, Tokenizer.load(kept),
            lambda task, its: _pretrained(recipe).fill(task, its) if again else Begun(),
        )  # fmt: skip
    if recipe.init is None:
        assert recipe.tokenizer is not None
        return Start(recipe.model, read_tokenizer(recipe.tokenizer), lambda task, its: Begun())
    found = _pretrained(recipe)
    tokenizer = read_tokenizer(recipe.tokenizer) if recipe.tokenizer else found.tokenizer
    if tokenizer.fingerprint != found.tokenizer.fingerprint and not recipe.fresh:
        raise RecipeError("tokenizer", f"is another than that of {recipe.init}", "", "leave `tokenizer` out")
    check_same(recipe.model, found.network, recipe.init)
    fill = (lambda task, its: Begun()) if recipe.fresh else found.fill
    head = "" if recipe.fresh or recipe.fresh_head else found.head
    return Start(recipe.model or found.network, tokenizer, fill, head)


def _pretrained(recipe: Finetuning) -> Start:
    """A run of ours, a run's weights, an import, or a Hugging Face folder."""
    init, step = str(recipe.init), recipe.step
    folder = check_init(init)
    if Run(folder).status or foreign.is_imported(folder):
        assert step != "all", "each trial has a step of its own"
        trained = open_model(folder, step)
        head = head_of(trained.objective) if isinstance(trained.objective, Task) else ""
        return Start(trained.settings, trained.tokenizer, lambda task, its: _adopt(task, its, recipe, trained), head)
    if step is not None:
        raise RecipeError("step", f"found {step}, but {init} is a Hugging Face folder", "a run's folder, or none")
    network, tokenizer = foreign.settings(folder), Tokenizer.load(folder)
    head = str((_told(folder) or [""])[0])
    return Start(network, tokenizer, lambda task, its: _adopt_foreign(task, its, recipe, folder, tokenizer), head)


def _adopt(task: Task, its: Any, recipe: Finetuning, trained: Trained) -> Begun:
    held = trained.objective.networks()[""].tensors()
    left = weights.adopt(task.networks()[""].tensors(), held, trained.settings.begins, trained.folder)
    return _go_on(task, its, recipe, trained, left)


def _adopt_foreign(task: Task, its: Any, recipe: Finetuning, folder: Path, tokenizer: Tokenizer) -> Begun:
    """A folder's head is opened where it is of the same kind; one that cannot be is told of, and stays behind."""
    left, trained = foreign.begin(task.networks()[""], folder, tokenizer), None
    if not recipe.fresh_head and (_told(folder) or [head_of(task)])[0] == head_of(task):
        try:
            trained = open_model(folder)
        except DataError as error:
            say(f"{error}; so its head stays behind")
    return _go_on(task, its, recipe, trained, left)


def _told(folder: Path) -> Sequence[Any] | None:
    """What a Hugging Face folder was fine-tuned for; None where its labels cannot be read: who opens it is told so."""
    with contextlib.suppress(DataError):
        return foreign.task_of(folder) or [""]
    return None


def _go_on(task: Task, its: Any, recipe: Finetuning, trained: Trained | None, left: list[str]) -> Begun:
    """With the head of what has learned a task of the same kind; `left`: what is random else."""
    found = Kept()
    if trained and isinstance(trained.objective, Task) and not recipe.fresh_head:
        scales = (trained.learned.scale, its.scale) if task.number and trained.objective.number else None
        found = keep(task, trained.objective, scales)
    roles = dict.fromkeys(name.partition(".")[0] for name in left if name not in found.names)
    told = f"weights from {recipe.init}"
    if found.names:
        return Begun(f"{told} {found.told}", found.labels, head=True)
    random = f"; random to begin with: {', '.join(roles)}" if roles else ""
    return Begun(f"{told}{random}{f' ({found.told})' if found.told else ''}")


class OfTask:
    """Fine-tuning's way."""

    recipe = Finetuning

    def __init__(self) -> None:
        self.begun: Start | None = None
        self.material: Examples | None = None

    def network(self, recipe: Finetuning, folder: Path | None = None) -> Any:
        self.begun = self.begun or start(recipe, folder)
        return self.begun.network

    def check(self, recipe: Finetuning, network: Any, ranks: Ranks) -> None:
        if recipe.task.length > network.longest():
            found = f"found {recipe.task.length}, more than the model's {network.longest()} positions"
            raise RecipeError("task.length", found, "", f"use task.length={network.longest()}")
        if recipe.adapters and recipe.layout.tensor > 1:
            raise RecipeError("layout.tensor", f"found {recipe.layout.tensor} with adapters", "1", "use shard")
        if recipe.adapters and recipe.freeze:
            raise RecipeError("freeze", "found true with adapters, which learn inside the network", "one of the two")
        recipe.layout.check(network, [], ranks.world)
        try:
            recipe.layout.share(recipe.phases[0], 1, ranks.device.type, 0, ranks.data_world)
        except RecipeError as error:
            raise RecipeError(error.place.removeprefix("phase[1]."), error.found, error.wanted, error.remedy) from None

    def obtain(self, recipe: Finetuning) -> Finetuning:
        assert self.begun is not None, "the network comes first: it says how texts are read"
        begun = self.begun
        begun.network.fits(begun.tokenizer)
        recipe = recipe.settle(begun.network)
        if recipe.layout.tensor > 1 and recipe.layout.sequence:
            say("layout.sequence = false: rows of examples are of any length, which tensor ranks could not split")
            recipe = dataclasses.replace(recipe, layout=dataclasses.replace(recipe.layout, sequence=False))
        self.material = Examples.of(recipe.task, begun.network, begun.tokenizer, recipe.seed, recipe.features)
        counted = dataclasses.replace(recipe, task=self.material.task, examples=len(self.material.train.features))
        often = counted.updates * counted.batch / counted.examples
        told = f"{many(counted.updates, 'step')} of {counted.batch}, {often:.3g} epochs"
        say(f"{many(counted.examples, 'example')} to learn from: {told}")
        if (counted.warmup or 0.0) > counted.updates:
            raise RecipeError("warmup", f"found {counted.warmup:g}", f"0 to {counted.updates} steps")
        self.material.check(counted.score)
        return counted

    def build(self, recipe: Finetuning, ranks: Ranks, *, gone_on: dict[str, Any] | None) -> Job:
        begun, material = self.begun, self.material
        assert begun is not None
        assert material is not None

        facts: dict[str, Any] = {}

        room.check(recipe, begun.network, ranks, lambda model: recipe.task.build(model, begun.tokenizer))

        def networks() -> Objective:
            task = fresh(recipe.task, begun.network, begun.tokenizer, recipe.seed)
            assert isinstance(task, Task)
            with_these = begun.fill(task, recipe.task) if gone_on is None else Begun()
            if with_these.told:
                say(with_these.told)
            facts.update(with_these.facts)
            return prepared(task, recipe)

        job = assemble(recipe, ranks, material, networks, new=gone_on is None)
        job.began_as = facts
        return job

    def fit(self, recipe: Finetuning, ranks: Ranks, seconds: float) -> tuple[Finetuning, dict[str, Any]]:
        raise _no_deadline()

    def finish(self, job: Job, folder: Path) -> dict[str, Any]:
        found: dict[str, Any] = first_alone(job.ranks, lambda: finish(job, folder))
        return found


def _no_deadline() -> RecipeError:
    return RecipeError("--deadline", "found for a fine-tuning, which goes by epochs", "", "set `steps` or `epochs`")


def prepared(task: Task, recipe: Finetuning) -> Task:
    """A task whose network learns as the recipe says: in full, not at all, or by adapters."""
    if recipe.freeze:
        task.freeze()
    if recipe.adapters:
        torch.manual_seed(chance.key("adapters", recipe.seed) >> 1)
        adapters.put_in(task.model, recipe.adapters)
        number_layers(task)
    return task


def finetune(name: str, overrides: Sequence[str] = (), **how: Any) -> Path:
    """Start the run or the trials that a recipe describes, or go on; every process of a launch calls this.

    `how` as in deed.perform.
    """
    if how.get("deadline"):
        raise _no_deadline()  # before anything is deleted to begin anew
    if Path(how.get("site", "")).is_file():
        how["site"] = str(Path(how["site"]).absolute())
    with at_home(name) as own:
        return _finetuned(own, overrides, how)


def _finetuned(name: str, overrides: Sequence[str], how: dict[str, Any]) -> Path:
    several = trials.asked(name, overrides, **how)
    if several:
        return trials.perform(*several, name, anew=bool(how.get("anew")))
    if not how.get("anew") and trials.is_put_away(Path(name)):
        say(f"{name}: all is done; its weights stand")
        return Path(name)
    return perform(OfTask(), name, overrides, **how)


def finish(job: Job, folder: Path) -> dict[str, Any]:
    """The weights of the best check, what they predict of the dev files, and the scores."""
    recipe, material = job.recipe, job.material
    assert isinstance(recipe, Finetuning)
    assert isinstance(material, Examples)
    step, path = _chosen(job, recipe, folder / "checkpoints")
    tensors = boxes.read_weights(path)
    if recipe.average:
        tensors |= average.read(path)
    if recipe.adapters:
        tensors = adapters.merged(tensors, recipe.adapters)
    network = job.objective.model_settings
    task = recipe.task.build(network, material.tokenizer)
    weights.load_into(task, tensors, path)
    facts: dict[str, Any] = {"step": step, "examples": recipe.examples}
    if material.dev is not None:
        facts |= _judged(job, task.to(job.ranks.device), material, material.dev, folder / "predictions")
    picture.draw(folder, folder.name)
    job.recipe = dataclasses.replace(recipe, task=material.task)
    leave_weights(job, folder / "weights", tensors)
    files.write_json(folder / "scores.json", facts)
    return facts


def _chosen(job: Job, recipe: Finetuning, folder: Path) -> tuple[int, Path]:
    """The checkpoint of the best check, or the last one of all; of those that stand with all that is read of them."""
    judged, last = [line for line in job.judged if recipe.score in line], checkpoint.steps(folder)[-1]
    kinds = checkpoint.KINDS if recipe.average else checkpoint.KINDS[:1]  # running means stand beside the moments
    while True:
        step = recipe.best_of(judged) or last
        path = checkpoint.path_of(folder, step)
        wrong = checkpoint.damage(path, kinds)
        if not wrong:
            return step, path
        if not judged:
            raise DataError(path, wrong, "a whole checkpoint", "start anew with --anew, or name another `out`")
        say(f"{path}: {wrong}; the next best check is taken")
        judged = [line for line in judged if line["step"] != step]


def _judged(job: Job, task: Task, material: Examples, dev: Split, out: Path) -> dict[str, Any]:
    """Scores and files of the dev set, by the weights that are left; settings that are fitted to it stand after."""
    alone = dataclasses.replace(job.ranks, rank=0, world=1, shape=(1, 1, 1))
    answers, means = material.asked(task, dev.features, alone)  # in full precision, as `evaluate` does
    asked, fitted = material.task, material.task.fitted(dev.records, dev.features, answers)
    for field in dataclasses.fields(fitted):
        if (value := getattr(fitted, field.name)) != getattr(asked, field.name):
            say(
                f"task.{field.name} = {value}: the best on the dev files, so what they score by it is a little too good"
            )
    material.task = fitted
    predictions = fitted.predictions(dev.records, dev.features, answers)
    with files.making(out) as beside:
        fitted.write(beside, dev.records, predictions)
    guessed = fitted.guesses(material.train.records, dev.records)
    told = {"validation": sum(w * means[term] for term, w in task.weights.items() if term in means)}
    told |= fitted.score(dev.records, predictions)
    if guessed is not None:
        told["guessing"] = fitted.score(dev.records, guessed)
    return told
