"""The start of a fine-tuning: a run, an import, a Hugging Face folder or random weights, with or without a head."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ordsmed.base import chance
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import FolderKind
from ordsmed.base.menu import load
from ordsmed.base.say import say
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.learn.head_transfer import TransferredHead, head_of, transfer_head
from ordsmed.learn.task import Task, TaskSettings
from ordsmed.nn import adapters
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.init_check import check_same
from ordsmed.weights import foreign, sentence_modules, weights
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import Trained, open_model


@dataclass(frozen=True)
class InitialModel:
    """The network, tokenizer and weights that a fine-tuning starts from."""

    network: ModelSettings  # settings
    tokenizer: Tokenizer
    fill: Callable[[Task, TaskSettings], Loaded]  # loads the weights into a task, and the head if it is kept
    head: str = ""  # the role of a trained head; empty: none
    learned: TaskSettings | None = None  # the task of that head


@dataclass(frozen=True)
class Loaded:
    note: str = ""  # source of the weights, and which are random; empty: all
    labels: tuple[str, ...] = ()  # labels known by the head that is trained further
    head: bool = False  # whether a trained head is used

    @property
    def facts(self) -> dict[str, Any]:
        return {"head_kept": list(self.labels) or True} if self.head else {}


def start(recipe: Finetuning, folder: Path | None = None) -> InitialModel:
    """Return the initial model of a recipe; for a resumed run in `folder`, with the run's tokenizer."""
    tokenizer_folder = folder / "tokenizer" if folder else None
    if tokenizer_folder and tokenizer_folder.is_dir() and recipe.examples:
        reads_init = recipe.init and not recipe.fresh  # needed only if the run has no checkpoint yet
        return InitialModel(
            recipe.model,
            Tokenizer.load(tokenizer_folder),
            lambda task, settings: _pretrained(recipe).fill(task, settings) if reads_init else Loaded(),
        )
    if recipe.init is None:
        assert recipe.tokenizer is not None
        return InitialModel(recipe.model, read_tokenizer(recipe.tokenizer), lambda task, settings: Loaded())
    source = _pretrained(recipe)
    tokenizer = read_tokenizer(recipe.tokenizer) if recipe.tokenizer else source.tokenizer
    if tokenizer.fingerprint != source.tokenizer.fingerprint and not recipe.fresh:
        raise RecipeError("tokenizer", f"is another than that of {recipe.init}", "", "leave `tokenizer` out")
    check_same(recipe.model, source.network, recipe.init)
    fill = (lambda task, settings: Loaded()) if recipe.fresh else source.fill
    new = recipe.fresh or recipe.fresh_head
    head, learned = ("", None) if new else (source.head, source.learned)
    return InitialModel(recipe.model or source.network, tokenizer, fill, head, learned)


def _pretrained(recipe: Finetuning) -> InitialModel:
    assert recipe.step != "all", "each trial has a step of its own"
    origin = Origin.of(str(recipe.init), key="init").owner
    origin.check_one_step(recipe.step, "step")
    if origin.kind is not FolderKind.HUGGING_FACE:
        trained = open_model(origin, recipe.step)
        head = head_of(trained.objective) if isinstance(trained.objective, Task) else ""
        network = _bidirectional(trained.settings, shifted=trained.objective.shifted)
        learned = trained.learned if head else None
        return InitialModel(
            network, trained.tokenizer, lambda task, settings: _adopt(task, settings, recipe, trained), head, learned
        )
    folder, tokenizer, form, learned = origin.folder, origin.tokenizer(), load("formats", foreign.FORMAT)(), None
    network = _bidirectional(origin.network(), shifted=form.is_shifted(folder))
    head = str((_task_of(folder) or [""])[0])
    with contextlib.suppress(DataError):  # a head with unreadable settings is not loaded, which is reported later
        learned = form.task(folder)

    def fill(task: Task, settings: TaskSettings) -> Loaded:
        return _adopt_foreign(task, settings, recipe, folder, tokenizer)

    return InitialModel(network, tokenizer, fill, head, learned)


def _bidirectional(network: ModelSettings, *, shifted: bool) -> ModelSettings:
    """Return the settings of a hybrid (causal and masked) network without its causal mask."""
    return dataclasses.replace(network, causal=False) if shifted and network.capabilities.causal else network


def _adopt(task: Task, settings: TaskSettings, recipe: Finetuning, trained: Trained) -> Loaded:
    tensors = trained.objective.networks()[""].tensors()
    left = weights.adopt(task.networks()[""].tensors(), tensors, trained.settings.begins, trained.folder)
    return _load_head(task, settings, recipe, trained, left)


def _adopt_foreign(
    task: Task, settings: TaskSettings, recipe: Finetuning, folder: Path, tokenizer: Tokenizer
) -> Loaded:
    """Load weights of a Hugging Face folder, and its head if it is for the same kind of task."""
    sentence_modules.report_ignored(folder)
    left, trained = foreign.begin(task.networks()[""], folder, tokenizer), None
    head, alone = head_of(task), recipe.fresh_head or sentence_modules.behind(folder)
    if not alone and (_task_of(folder) or [head])[0] == head:
        try:
            trained = open_model(folder)
        except DataError as error:
            say(f"{error}; so its head is not used")
    return _load_head(task, settings, recipe, trained, left)


def _task_of(folder: Path) -> Sequence[Any] | None:
    """Return the task of a Hugging Face folder; None if its labels cannot be read, which `open_model` reports."""
    with contextlib.suppress(DataError):
        return foreign.task_of(folder) or [""]
    return None


def _load_head(task: Task, settings: Any, recipe: Finetuning, trained: Trained | None, left: list[str]) -> Loaded:
    """Load the head of `trained` if it is for the same kind of task. `left` names the weights not loaded so far."""
    kept = TransferredHead()
    if trained and isinstance(trained.objective, Task) and not recipe.fresh_head:
        scales = (trained.learned.scale, settings.scale) if task.number and trained.objective.number else None
        kept = transfer_head(task, trained.objective, scales)
    roles = dict.fromkeys(name.partition(".")[0] for name in left if name not in kept.names)
    note = f"weights from {recipe.init}"
    if kept.names:
        return Loaded(f"{note} {kept.note}", kept.labels, head=True)
    random = f"; random at the start: {', '.join(roles)}" if roles else ""
    return Loaded(f"{note}{random}{f' ({kept.note})' if kept.note else ''}")


def prepare(task: Task, recipe: Finetuning) -> Task:
    if recipe.freeze:
        task.freeze()
    if recipe.adapters:
        torch.manual_seed(chance.key("adapters", recipe.seed) >> 1)
        adapters.put_in(task.model, recipe.adapters)
        number_layers(task)
    return task
