"""Trained models: a run's folder or a Hugging Face folder -> network, tokenizer and settings, ready to be asked.

work/pretrain/x/ checkpoints/step-...  | weights/      ->  Trained(objective, tokenizer, settings, ...)
hub-folder/      config.json, model.safetensors        ->
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordsmed.base import files, hub, run, settings, snapshots
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS
from ordsmed.base.menu import kind_of, load
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.data.encode import Encoding
from ordsmed.learn.objective import Objective, fresh
from ordsmed.nn import boxes, foreign, weights
from ordsmed.nn.adapters import Adapters, merged
from ordsmed.nn.foreign import Networks, decoded
from ordsmed.text.tokenizer import Tokenizer

KIND = snapshots.KINDS[0]
WANTED = "a run's folder, an import's (`ordsmed pretrain`, `ordsmed import`) or a Hugging Face folder"


@dataclass(frozen=True)
class Trained:
    """A model that has learned, on the CPU, not learning any more."""

    objective: Objective
    tokenizer: Tokenizer
    settings: Any  # the network's
    folder: Path
    recipe: dict[str, Any] | None = None  # of the run, as a table; None: not a run of ours
    step: int | None = None
    learned: Any = None  # the settings of what it learned: of its objective or task

    @property
    def kind(self) -> str:
        """The family: bert, gpt2..."""
        return kind_of(self.settings)

    @property
    def causal(self) -> bool:
        """Does a token see only what stands before it?"""
        return bool(self.settings.capabilities.causal)


@dataclass(frozen=True)
class WeightsSource:
    """Where a run's weights stand, in one file or in parts."""

    folder: Path
    step: int
    state: dict[str, Any] = field(default_factory=dict)  # of a checkpoint


def open_model(path: str | Path, step: int | None = None, *, body: bool = False) -> Trained:
    """The newest model of a run, the one of a kept step, or that of a Hugging Face folder; `body`: heads may lack."""
    folder = hub.folder(path)
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "no such folder"
        raise RecipeError(path, found, WANTED, hub.remedy(path))
    if foreign.is_imported(folder) and folder.name == "weights" and (folder.parent / "recipe.toml").exists():
        folder = folder.parent
    if foreign.is_imported(folder):
        return _moved(folder, step)
    status = Run(folder).status
    if status:
        if status.get("verb") not in ("pretrain", "finetune"):
            raise RecipeError(path, f"is the folder of a `{status.get('verb')}`", WANTED)
        with run.at_home(folder) as own:
            return dataclasses.replace(_run(Path(own), status, step), folder=folder)
    if not (folder / "config.json").exists():
        remedy = "`ordsmed import` takes other formats over"
        raise RecipeError(path, "is neither a run nor a Hugging Face folder", WANTED, remedy)
    if step is not None:
        raise RecipeError("--step", f"found {step}, but {path} is a Hugging Face folder", "a run's folder")
    return _foreign(folder, body=body)


def standing(name: str) -> Path:
    """The folder that a recipe's `data` means; nothing is made."""
    if Path(name).is_dir():
        return Path(name)
    encoding, title = run.load(Encoding, name)
    return run.place(encoding, title)


def sources(recipe: dict[str, Any]) -> list[str]:
    """The data a run's recipe names."""
    data = recipe["data"]
    return [data] if isinstance(data, str) else list(data)


def _run(folder: Path, status: dict[str, Any], step: int | None) -> Trained:
    recipe = settings.read(folder / "recipe.toml")
    if step == 0 and 0 not in snapshots.steps(folder / "checkpoints"):
        return _before_the_first_step(folder, recipe, status)
    found = _source(folder, status, step)
    if step is None and (left := unfinished(folder, found.step)):
        say(left)
    networks = _networks(recipe, folder)
    tokenizer = _tokenizer(folder, recipe, found.state.get("tokenizer"))
    tensors = boxes.read_weights(found.folder)
    if recipe.get("adapters") and found.state:  # what stands in weights/ is merged
        tensors = merged(tensors, settings.decode(Adapters, recipe["adapters"], f"{folder}/recipe.toml: adapters"))
    objective = _filled(networks, tokenizer, tensors, found.folder)
    learned = _task_as_left(folder, found, networks)
    return Trained(objective, tokenizer, networks.model, folder, recipe, found.step, learned)


def planned(recipe: dict[str, Any]) -> int:
    """How many steps a run's recipe wants."""
    if "phase" in recipe:
        return sum(int(phase["steps"]) for phase in recipe["phase"])
    return int(recipe["steps"]) or max(1, round(recipe["epochs"] * recipe["examples"] / recipe["batch"]))


def unfinished(folder: Path, step: int) -> str:
    """That the weights are not those of a run's end, in a line; empty where they are, or no run stands there."""
    status = Run(folder).status
    if not status or status.get("state") == "done":
        return ""
    with run.at_home(folder) as own:
        recipe = settings.read(Path(own) / "recipe.toml")
    states = {"stopped": "it was stopped", "failed": "it failed"}
    why = states.get(str(status.get("state")), "it is still at work, or was killed")
    again = command(status.get("verb", ""), folder)
    return f"{folder}: step {step:,} of {planned(recipe):,}: {why}; `{again}` goes on to its end"


def _step(folder: Path, status: dict[str, Any]) -> int:
    found = status.get("step", 0)
    if not isinstance(found, int):
        raise DataError(folder / "status.json", f"step: found {found!r}", "a whole number", "it is damaged")
    return found


def kept(folder: Path) -> list[int]:
    """The steps of a run whose weights can be opened, oldest first."""
    status = Run(folder).status
    ended = [_step(folder, status)] if status.get("state") == "done" and foreign.is_imported(folder / "weights") else []
    whole = [s for s in snapshots.steps(folder / "checkpoints")
             if not snapshots.damage(snapshots.path_of(folder / "checkpoints", s), (KIND,))]  # fmt: skip
    return sorted({0, *whole, *ended})


def _before_the_first_step(folder: Path, recipe: dict[str, Any], status: dict[str, Any]) -> Trained:
    """The weights a run began with, made anew from its seed (and `init`), and held against what it noted of them."""
    if status["verb"] != "pretrain":
        raise RecipeError("--step", f"found 0, of a `{status['verb']}`", "a step that it kept")
    networks = _networks(recipe, folder)
    tokenizer = _tokenizer(folder, recipe, None)
    objective = fresh(networks.learned, networks.model, tokenizer, int(recipe.get("seed", 0)))
    if recipe.get("init"):
        start = hub.folder(recipe["init"])
        if Run(start).status:
            newest = snapshots.latest(start / "checkpoints", place=start)
            weights.load_into(objective, boxes.read_weights(newest[0]) if newest else {}, start)
        else:
            foreign.load_into(objective, start, tokenizer)
    found = weights.digest(weights.own_tensors(objective))
    if status.get("began_with") != found:
        raise DataError(
            f"{folder}: step 0", f"weights {found}", f"{status.get('began_with', 'none noted')}, with which it began",
            "they come again only with the same version of torch, the same seed and the same `init`",
        )  # fmt: skip
    return Trained(objective.eval(), tokenizer, networks.model, folder, recipe, 0, networks.learned)


def _source(folder: Path, status: dict[str, Any], step: int | None) -> WeightsSource:
    """The weights to read: of the step asked for, of the end, or of the newest whole checkpoint."""
    ended = status.get("state") == "done" and foreign.is_imported(folder / "weights")
    last = _step(folder, status) if ended else None
    if last is not None and step in (None, last):
        return WeightsSource(folder / "weights", last)
    stored = snapshots.steps(folder / "checkpoints")
    if step is not None and step not in stored:
        held = ", ".join(f"{s}" for s in sorted({0, *stored, *([last] if last else [])}))
        raise RecipeError("--step", f"found {step}, which {folder} does not keep", f"one of {held}" if held else "")
    if step is not None:
        path = snapshots.path_of(folder / "checkpoints", step)
        wrong = snapshots.damage(path, (KIND,))
        if wrong:
            raise DataError(path, wrong, "a whole checkpoint", "leave --step out: the newest whole one is taken")
        return WeightsSource(path, step, files.read_table(path / "state.json"))
    newest = snapshots.latest(folder / "checkpoints", place=folder, kinds=(KIND,))
    if newest is None:
        raise RecipeError(folder, "no checkpoint yet", "", f"`{command('pretrain', folder)}` goes on and makes one")
    return WeightsSource(newest[0], int(newest[1]["step"]), newest[1])


def _moved(folder: Path, step: int | None) -> Trained:
    """An import, or the `weights/` of a run, taken away from it."""
    if step is not None:
        raise RecipeError("--step", f"found {step}, but {folder} holds the weights of one step", "a run's folder")
    networks = foreign.networks(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    objective = _filled(networks, tokenizer, weights.read(folder / WEIGHTS), folder / WEIGHTS)
    return Trained(objective, tokenizer, networks.model, folder, learned=networks.learned)


def _foreign(folder: Path, *, body: bool) -> Trained:
    model = foreign.settings(folder)
    tokenizer = Tokenizer.load(folder)
    foreign.fits(model, tokenizer, folder)
    form = load("formats", "huggingface")()
    learned = form.learned(folder, model)
    alone = getattr(learned, "alone", learned.build)  # a detector without the network that makes its fakes
    objective = alone(model, tokenizer)
    foreign.load_into(objective, folder, tokenizer, body=body)
    form.to_learned(objective, learned)
    return Trained(objective.eval(), tokenizer, model, folder, learned=learned)


def _task_as_left(folder: Path, found: WeightsSource, networks: Networks) -> Any:
    """What it learned; of a finished fine-tuning with what was chosen on the dev set."""
    left = folder / "weights"
    if networks.task is not None and found.folder == left:
        return foreign.networks(left).learned
    return networks.learned


def _filled(networks: Networks, tokenizer: Tokenizer, tensors: weights.Tensors, place: Path) -> Objective:
    objective: Objective = networks.learned.build(networks.model, tokenizer)
    weights.load_into(objective, tensors, place)
    return objective.eval()


def _networks(recipe: dict[str, Any], folder: Path) -> Networks:
    """What was trained; a recipe without [model] took that of its `init`."""
    found = decoded(recipe, folder / "recipe.toml")
    if found.model is not None:
        return found
    if (folder / "weights" / SETTINGS).exists():
        return foreign.networks(folder / "weights")
    start = hub.folder(recipe["init"])
    if not start.is_dir():
        raise RecipeError(
            folder, f"was started from {start}, which is gone", "", "put it back: it tells the network's size"
        )
    if Run(start).status:
        with run.at_home(start) as own:
            theirs = _networks(settings.read(Path(own) / "recipe.toml"), Path(own))
        return dataclasses.replace(found, model=theirs.model)
    return dataclasses.replace(found, model=foreign.settings(start))


def _tokenizer(folder: Path, recipe: dict[str, Any], fingerprint: str | None) -> Tokenizer:
    """The run's own copy, or that of its data."""
    places = [folder / "weights" / "tokenizer", folder / "tokenizer"]
    found = next((p for p in places if (p / "tokenizer.json").exists()), None)
    if found is None:
        found = standing(sources(recipe)[0]) / "tokenizer"
    if not found.is_dir():
        raise DataError(found, "no such folder", f"the tokenizer that {folder} was trained with", "put its data back")
    tokenizer = Tokenizer.load(found)
    if fingerprint not in (None, tokenizer.fingerprint):
        raise DataError(
            found, f"tokenizer {tokenizer.fingerprint}", f"{fingerprint}, that of {folder}", "put its data back"
        )
    return tokenizer
