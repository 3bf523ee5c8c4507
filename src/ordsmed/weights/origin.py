"""A model by its name or path, before it is opened: where its weights, settings and tokenizer are.

    work/pretrain/x, work/finetune/of-trials        a run: its final weights, a saved step, or the newest checkpoint
    my-elmo, RUN/weights                            converted weights with settings, of no run or taken from one
    hub-folder                                      a Hugging Face folder
    google/electra-small-discriminator              a published name, resolved by models.toml
    uncased_L-12_H-768_A-12, roberta.base/model.pt  another format (formats/), converted once into the cache

Every verb that takes a model starts here. Nothing is opened until it is needed; `weights/trained_model.py` opens
networks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ordsmed.base import files, hub, run, settings, snapshots, stages
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import RECIPE, SETTINGS, STATUS, TOKENIZER, FolderKind, kind_of_folder, read_status
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.data.encode import Encoding
from ordsmed.data.mix import listed
from ordsmed.learn.objective import WHILE_LEARNING, Objective
from ordsmed.learn.phases import changed, steps_of_epochs
from ordsmed.nn.model import own_tensors
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import boxes, foreign, import_folder, sentence_modules, weights
from ordsmed.weights.foreign import Networks, decoded

KIND = snapshots.KINDS[0]
WANTED = "a run's folder, an import's, a Hugging Face folder, or a model in a format of `ordsmed menus formats`"
MOVE = 'move it to this vocabulary: `vocabulary = "transplant"`'


@dataclass(frozen=True)
class WeightsSource:
    """Where the weights of a step are, in one file or several."""

    folder: Path
    step: int
    state: dict[str, Any] = field(default_factory=dict)  # state.json of a checkpoint


@dataclass(frozen=True)
class Origin:
    """A model that exists under a name or path."""

    name: str  # as the user wrote it
    folder: Path
    kind: FolderKind
    status: dict[str, Any] = field(default_factory=dict)  # status.json of a run

    @staticmethod
    def of(name: str | Path, *, key: str = "") -> Origin:
        """Return the model that `name` means, or raise an error. `key` is the setting that named it."""
        location = hub.folder(name)
        kind = kind_of_folder(location)
        if not kind.made and not kind.model and (folder := import_folder.once(location, name)):
            location, kind = folder, kind_of_folder(folder)
        if not kind.model:
            raise _refused(name, key, location, kind)
        return Origin(str(name), location, kind, read_status(location) if kind.run else {})

    @staticmethod
    def find(name: str | Path | None, *, key: str = "") -> Origin | None:
        """Return the model that `name` means; None if `name` is None or nothing exists there."""
        return None if name is None or not import_folder.exists(hub.folder(name)) else Origin.of(name, key=key)

    @property
    def is_run(self) -> bool:
        return self.kind.run

    @property
    def owner(self) -> Origin:
        """Return the run that contains these weights; otherwise the model itself."""
        around = self.folder.parent
        inside = self.kind is FolderKind.IMPORT and self.folder.name == "weights" and kind_of_folder(around).run
        return replace(Origin.of(around), name=self.name) if inside and (around / RECIPE).exists() else self

    def check_one_step(self, step: int | None, key: str = "--step") -> None:
        if step is not None and not self.is_run:
            holds = (
                "is a Hugging Face folder"
                if self.kind is FolderKind.HUGGING_FACE
                else "has the weights of a single step"
            )
            raise RecipeError(key, f"found {step}, but {self.name} {holds}", "a run's folder")

    @contextlib.contextmanager
    def at_home(self) -> Iterator[Origin]:
        """Yield the model from the working directory where it was made, so that relative paths in it are valid."""
        with run.in_start_folder(self.folder) as folder:
            yield replace(self, folder=Path(folder))

    def recipe(self) -> dict[str, Any]:
        return settings.renamed(settings.read(self.folder / RECIPE))

    def network(self) -> Any:
        return self.networks().model if self.is_run else foreign.settings(self.folder)

    def networks(self, step: int | None = None) -> Networks:
        """Return the settings of a run's networks as they are at `step` (None: the newest).

        If the recipe has no [model], the run has the network of its `init`.
        """
        with self.at_home() as here:
            recipe, left = here.recipe(), here.folder / "weights"
            networks = decoded(recipe, here.folder / RECIPE)
            if networks.model is None and (left / SETTINGS).exists():
                networks = foreign.networks(left)
            elif networks.model is None:
                if (start := Origin.find(recipe["init"])) is None:
                    gone = f"was started from {hub.folder(recipe['init'])}, which is missing"
                    raise RecipeError(here.folder, gone, "", "restore it: the network's size is read from it")
                networks = replace(networks, model=start.network())
            return here._in_phase(networks, recipe, step)

    def _in_phase(self, networks: Networks, recipe: dict[str, Any], step: int | None) -> Networks:
        """Return the networks' settings as changed by the phases of the recipe up to `step`."""
        phases = [table for table in recipe.get("phase", ()) if isinstance(table, dict)]
        if not any(table.get("model") or table.get("objective") for table in phases):
            return networks
        if step is None:
            step = self.last() or max(snapshots.steps(self.folder / "checkpoints"), default=0)
        model, before = networks.model, 0  # steps of earlier phases, whose changes of the network persist
        for number, table in enumerate(phases, 1):
            location = f"{self.folder}/{RECIPE}: phase[{number}]"
            model = changed(model, table.get("model", {}), f"{location}.model", "models")
            if step <= before + int(table["steps"]) or number == len(phases):
                break
            before += int(table["steps"])
        learned = changed(networks.objective, table.get("objective", {}), f"{location}.objective", "objectives")
        return replace(networks, model=model, objective=learned)

    def tokenizer(self, fingerprint: str | None = None) -> Tokenizer:
        """Return the tokenizer the model was trained with: its saved copy, or that of the run's data.

        Raise DataError if its fingerprint is not `fingerprint`.
        """
        if not self.is_run:
            return Tokenizer.load(self.folder / TOKENIZER if self.kind is FolderKind.IMPORT else self.folder)
        with self.at_home() as here:
            return here._tokenizer_of_run(fingerprint)

    def _tokenizer_of_run(self, fingerprint: str | None) -> Tokenizer:
        places = [self.folder / "weights" / "tokenizer", self.folder / "tokenizer"]
        path = next((p for p in places if (p / "tokenizer.json").exists()), None)
        if path is None:
            path = standing(sources(self.recipe())[0]) / "tokenizer"
        if not path.is_dir():
            wanted = f"the tokenizer that {self.folder} was trained with"
            raise DataError(path, "no such folder", wanted, "restore its data")
        tokenizer = Tokenizer.load(path)
        if fingerprint not in (None, tokenizer.fingerprint):
            wanted = f"{fingerprint}, that of {self.folder}"
            raise DataError(path, f"tokenizer {tokenizer.fingerprint}", wanted, "restore its data")
        return tokenizer

    def last(self) -> int | None:
        """Return the step of a finished run's final weights; None if it is not finished or not a run."""
        if self.status.get("state") != "done" or kind_of_folder(self.folder / "weights") is not FolderKind.IMPORT:
            return None
        step = self.status.get("step", 0)
        if not isinstance(step, int):
            raise DataError(self.folder / STATUS, f"step: found {step!r}", "a whole number", "it is damaged")
        return step

    def steps(self) -> list[int]:
        """Return the steps whose weights can be opened, oldest first. Step 0 of a pretraining can be recomputed."""
        stored, last = self.folder / "checkpoints", self.last()
        whole = [s for s in snapshots.steps(stored) if not snapshots.damage(snapshots.path_of(stored, s), (KIND,))]
        return sorted({*self._restorable_steps(), *whole, *([] if last is None else [last])})

    def _restorable_steps(self) -> list[int]:
        return [0] if self.kind is FolderKind.PRETRAINING else []

    def chosen_steps(self, steps: Literal["all"] | Sequence[int], key: str = "--step") -> list[int]:
        """Return the requested steps, oldest first. Raise an error if one is missing or the model is not a run."""
        if not self.is_run:
            raise RecipeError("steps", f"found {steps}, but {self.name} has no checkpoints", "a run's folder")
        there = self.steps()
        if steps == "all":
            return there
        for step in set(steps).difference(there):
            self.source(step, key)  # raises an error that lists the steps
        return sorted(set(steps))

    def source(self, step: int | None, key: str = "--step") -> WeightsSource:
        """Return where the weights are: those of `step`, else the final ones, else the newest intact checkpoint."""
        last, folder = self.last(), self.folder / "checkpoints"
        if last is not None and step in (None, last):
            return WeightsSource(self.folder / "weights", last)
        stored = snapshots.steps(folder)
        if step is not None and step not in stored:
            steps_text = ", ".join(
                f"{s}" for s in sorted({*self._restorable_steps(), *stored, *([last] if last else [])})
            )
            lacks = f"found {step}, but {self.folder} has no checkpoint of it"
            raise RecipeError(key, lacks, f"one of {steps_text}" if steps_text else "")
        if step is not None:
            path = snapshots.path_of(folder, step)
            wrong = snapshots.damage(path, (KIND,))
            if wrong:
                raise DataError(path, wrong, "a complete checkpoint", "leave out --step to use the newest complete one")
            return WeightsSource(path, step, files.read_table(path / "state.json"))
        newest = snapshots.latest(folder, place=self.folder, kinds=(KIND,))
        if newest is None:
            raise RecipeError(self.folder, "no checkpoint yet", "", f"`{self._continuing()}` resumes it")
        return WeightsSource(newest[0], int(newest[1]["step"]), newest[1])

    def unfinished(self, step: int | None = None) -> str:
        """Return a message if the weights (of `step` or the newest checkpoint) are not final, else nothing."""
        stored = snapshots.steps(self.folder / "checkpoints") if step is None else [step]
        if not self.is_run or not stored or self.status.get("state") == "done":
            return ""
        with self.at_home() as here:
            recipe = here.recipe()
        states = {"stopped": "it was stopped", "failed": "it failed"}
        reason = states.get(str(self.status.get("state")), "it is still running, or was killed")
        at = f"step {stored[-1]:,} of {planned(recipe):,}"
        return f"{self.folder}: {at}: {reason}; `{self._continuing()}` resumes it"

    def _continuing(self) -> str:
        """Return the command that continues an unfinished run; for a stage of `make`, that of the `make`."""
        around = self.folder.parent
        if kind_of_folder(around) is FolderKind.MAKE:
            return stages.resume_command(around)
        return command(self.status["verb"], self.folder)

    def load_into(self, objective: Objective, tokenizer: Tokenizer) -> tuple[Path, dict[str, Any]] | None:
        """Load the weights into networks for further training. Return the checkpoint they came from, if any.

        A finished run gives its final weights, which may be those of its best validation. Raise RecipeError if the
        tokenizer is not the run's.
        """
        if not self.is_run:
            numbered = foreign.tokenizer_of(self.folder)
            if numbered:
                _check_same_ids(numbered, tokenizer)
            sentence_modules.report_ignored(self.folder)
            foreign.load_into(objective, self.folder, tokenizer)
            return None
        newest = snapshots.latest(self.folder / "checkpoints", place=self.folder)
        if newest is None:
            raise RecipeError("init", f"{self.name} has no checkpoint", "a run that saved one")
        step = self.last()
        if step is not None and step != newest[1]["step"]:
            best = snapshots.path_of(self.folder / "checkpoints", step)
            if wrong := snapshots.damage(best, (KIND,)):
                say(f"{best}: {wrong}; init takes {newest[0]}, the last step")
            else:
                newest = best, files.read_table(best / "state.json")
        fingerprint = newest[1]["tokenizer"]
        if fingerprint != tokenizer.fingerprint:
            raise RecipeError(
                "init",
                f"{self.name} was trained with tokenizer {fingerprint}",
                tokenizer.fingerprint,
                f"use data encoded with its tokenizer, or {MOVE}",
            )
        tensors, kept = boxes.read_weights(newest[0]), own_tensors(objective)
        for name in [name for name in tensors if name.startswith(WHILE_LEARNING) and name not in kept]:
            del tensors[name]
        weights.load_into(objective, tensors, newest[0])
        return newest


def planned(recipe: dict[str, Any]) -> int:
    if "phase" in recipe:
        return sum(int(phase["steps"]) for phase in recipe["phase"])
    rule, records = recipe.get("epoch_steps", "exact"), recipe.get("records", 0)
    whole = steps_of_epochs(recipe["epochs"], recipe["batch"], recipe["examples"], rule, records)
    steps = int(recipe["steps"])
    return min(steps or whole, whole) if recipe.get("course") == "epochs" else steps or whole


def standing(name: str) -> Path:
    """Return the folder that a `data` entry of a recipe means, without creating it."""
    if Path(name).is_dir():
        return Path(name)
    encoding, title = run.load(Encoding, name)
    return run.output_folder(encoding, title)


def sources(recipe: dict[str, Any]) -> list[str]:
    read = [phase.get("data", recipe["data"]) for phase in recipe["phase"]]
    return list(dict.fromkeys(name for data in read for name in listed(data)))


def _refused(name: str | Path, key: str, path: Path, kind: FolderKind) -> RecipeError:
    if hub.is_address(name):
        problem, remedy = (
            "the address of a served model",
            "name its folder; only `fill`, `generate` and `surprisal` accept an address",
        )
    elif kind is FolderKind.FOREIGN:
        import_folder.refuse_unknown(path)
        problem, remedy = "neither a run nor a model of a known format", ""
    elif kind is FolderKind.MAKE:
        problem, remedy = (
            "the folder of a `make` that has no model yet",
            f"`{stages.resume_command(path)}` continues it",
        )
    elif kind.made:
        problem, remedy = f"the folder of a `{read_status(path).get('verb')}`", ""
    else:
        problem, remedy = kind.value, hub.remedy(name)
    if key:
        return RecipeError(key, f"found {name}, {problem}", f"{WANTED}, or the name of one", remedy)
    return RecipeError(name, problem if problem == FolderKind.ABSENT.value else f"is {problem}", WANTED, remedy)


def _check_same_ids(folder: Path, tokenizer: Tokenizer) -> None:
    """Raise RecipeError if the folder's tokenizer gives tokens other ids. A folder without one is accepted."""
    if not foreign.has_vocabulary(folder):
        return
    stored_pieces = Tokenizer.load(folder).pipeline.get_vocab(with_added_tokens=True)
    pieces = tokenizer.pipeline.get_vocab(with_added_tokens=True)
    differing = sorted(
        piece for piece in pieces.keys() | stored_pieces.keys() if pieces.get(piece) != stored_pieces.get(piece)
    )
    if differing:
        problem = f"{folder} gives {len(differing)} tokens other ids than the data, such as `{differing[0]}`"
        raise RecipeError("init", problem, "the same vocabulary", f'encode with `tokenizer = "{folder}"`, or {MOVE}')
