"""More hours for a model that `make` started or finished: inputs are kept, and the training is extended."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.base.say import duration, many, say
from ordsmed.maker import networks
from ordsmed.maker import plan as planning
from ordsmed.maker.plan import MakePlan
from ordsmed.maker.recipes import write
from ordsmed.maker.request import SEARCH, MakeRequest
from ordsmed.train import checkpoint
from ordsmed.train.fitting import TooShort
from ordsmed.train.pretrain.extension import Extension, extend

KEPT = "corpus, tokenizer and token ids stay"
LEARNED_FROM_PAIRS = ("dense", "cross")  # made from the language model, so made again once it was trained longer
BUILT = ("test", "index")  # built from those
RESTART = 15.0  # seconds from the start of a command to its first step, if corpus and token ids exist
ASIDE = ".before"  # suffix of a folder that is replaced at the end


@dataclass(frozen=True)
class LongerPlan:
    """The effect of more hours on a model whose training has started."""

    request: MakeRequest
    extension: Extension
    used: float  # seconds until now
    seconds: float  # seconds of training from now on
    passes: float  # passes over the text, earlier ones included
    max_passes: float  # most passes of its family
    threads: int

    def lines(self) -> list[str]:
        extension, request = self.extension, self.request
        phase, status = extension.after.phase[-1], Run(extension.folder).status
        loss = f", validation loss {status['validation']:.3f}" if extension.finished and "validation" in status else ""
        on = many(self.threads, "thread") if self.threads else "a GPU"
        whole = request.hours * 3600
        batch = f"{many(phase.batch, 'row')} of {many(phase.length, 'token')}"
        training = [
            f"about {many(extension.steps, 'step')} more, of {batch}: {self.passes:.3g} times over the text in all",
            f"{duration(self.seconds)} of {duration(whole)}, of which {duration(self.used)} are used; on {on}",
        ]
        rows = [
            ("kept", [f"{KEPT}; the model continues from step {extension.step:,}{loss}"]),
            ("training", training),
            ("rate", extension.lines()),
            ("then", [planning.SEARCHED if request.purpose == SEARCH else planning.CLOSED]),
            ("note", self._notes()),
        ]
        return [f"  {'' if n else name:<10} {line}" for name, of_row in rows for n, line in enumerate(of_row)]

    def _notes(self) -> list[str]:
        notes = []
        if self.extension.finished:
            notes.append("the finished model stays until the longer training is at least as good on held-out text")
        if self.passes > self.max_passes:
            more = f"more than {many(round(self.max_passes), 'pass')} over so little text teach little"
            notes.append(f"{more}: more text would help more than more hours")
        return notes

    def facts(self) -> dict[str, Any]:
        extension = self.extension
        phases = [settings.plain(phase) for phase in extension.after.phase]
        return {
            "request": asdict(self.request),
            "seconds": self.request.hours * 3600,
            "used": self.used,
            "training": self.seconds,
            "passes": self.passes,
            "threads": self.threads,
            "from_step": extension.step,
            "finished": extension.finished,
            "phases": phases,
        }

    def write(self, run_folder: Run) -> None:
        """Write the plan to the folders; a finished search engine is built again from the longer trained model."""
        self.extension.write()
        again = [*LEARNED_FROM_PAIRS, *BUILT] if self.request.purpose == SEARCH and self.extension.finished else []
        run_folder.set(replaces=[*run_folder.status.get("replaces", []), *again] or None)


@dataclass(frozen=True)
class RestartedPlan:
    """The plan of more hours for a model without a checkpoint: a new network, or more steps."""

    plan: MakePlan

    def lines(self) -> list[str]:
        return [f"  {'kept':<10} {KEPT}", *self.plan.lines()]

    def facts(self) -> dict[str, Any]:
        return self.plan.facts()

    def write(self, run_folder: Run) -> None:
        """Write the recipes of the training again; a recipe that was changed by hand is kept."""
        written = run_folder.status.get("written", {})
        for name in ("model", *LEARNED_FROM_PAIRS):
            path = run_folder.path / f"{name}.toml"
            if path.exists() and written.get(name) != files.checksum(path):
                say(f"{path}: was changed by hand, and stays as it is: its steps are the most that are made")
            elif name in self.plan.recipes:
                path.unlink(missing_ok=True)
                write({name: self.plan.recipes[name]}, run_folder.path)
                written[name] = files.checksum(path)
                run_folder.set(written=written)


def is_longer(run_folder: Run, request: MakeRequest) -> bool:
    return bool(run_folder.status.get("planned")) and request.hours > run_folder.status["request"]["hours"]


def plan_more(request: MakeRequest, run_folder: Run, used: float) -> LongerPlan | RestartedPlan:
    """Plan more hours after `used` seconds. Nothing is written."""
    model = run_folder.path / "model"
    if not checkpoint.steps(model / "checkpoints"):
        return RestartedPlan(_plan_again(request, run_folder, used))
    finished = Run(model).status.get("state") == "done"
    seconds = request.hours * 3600 - used
    closed = finished and run_folder.status["state"] == "done"  # then examples, scores and export are made again
    training = seconds - planning.closing_seconds(request, max(seconds, 1.0) if closed else 0.0)
    try:
        extension = extend(model, training)
    except TooShort as error:
        raise too_short(request, used, error.seconds) from None
    data, phases = Run(run_folder.path / "data").status["train"]["tokens"], extension.after.phase
    passes = sum(phase.rows * phase.length for phase in phases) / max(data, 1)
    family = networks.like(extension.after.model)
    threads = planning.threads_here(request.devices)
    return LongerPlan(request, extension, used, training, passes, family.passes, threads)


def _plan_again(request: MakeRequest, run_folder: Run, used: float) -> MakePlan:
    """Plan the training again, from the finished corpus or else the texts, with the planned vocabulary size."""
    corpus, recipe = run_folder.path / "corpus", run_folder.path / "tokenizer.toml"
    stands = Run(corpus).status.get("state") == "done"
    vocabulary = settings.read(recipe)["tokenizer"]["size"] if recipe.exists() else 0
    texts = (str(corpus),) if stands else request.texts
    return planning.plan(replace(request, texts=texts), vocabulary=vocabulary, used=used)


def too_short(request: MakeRequest, used: float, training: float) -> RecipeError:
    hours = planning.hours_for(request, used + RESTART + 1.5 * training)
    problem = f"{request.hours:g} are too few: {duration(used)} are used, and training needs {duration(training)} more"
    return RecipeError(
        "--hours", problem, f"{hours:.2g} or more", f"the same command with more hours continues: {KEPT}"
    )


def set_aside(run_folder: Run, names: tuple[str, ...]) -> None:
    """Rename folders that are going to be made again; they stay until all is done."""
    for name in names:
        replaces = run_folder.status.get("replaces", [])
        if name in replaces:
            folder, aside = run_folder.path / name, run_folder.path / f"{name}{ASIDE}"
            if folder.exists():
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
            run_folder.set(replaces=[waiting for waiting in replaces if waiting != name])


def clear_aside(run_folder: Run) -> None:
    for name in (*LEARNED_FROM_PAIRS, *BUILT):
        shutil.rmtree(run_folder.path / f"{name}{ASIDE}", ignore_errors=True)
