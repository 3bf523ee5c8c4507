"""More hours for a model that `make` started or finished: inputs are kept, and the training is extended."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.run import Run
from ordsmed.base.say import duration, many, say
from ordsmed.maker import networks
from ordsmed.maker import plan as planning
from ordsmed.maker.hours import KEPT
from ordsmed.maker.plan import MakePlan
from ordsmed.maker.recipes import write
from ordsmed.maker.request import SEARCH, MakeRequest
from ordsmed.maker.runner import JobPlan
from ordsmed.train import checkpoint
from ordsmed.train.fitting import TooShort
from ordsmed.train.pretrain.extension import Extension, extend

LEARNED_FROM_PAIRS = ("dense", "cross")  # made from the language model, so made again once it was trained longer
BUILT = ("test", "index")  # built from those


@dataclass(frozen=True)
class LongerPlan(JobPlan):
    """The effect of more hours on a model whose training has started."""

    request: MakeRequest
    extension: Extension
    seconds: float  # of all hours
    used: float  # seconds until now
    training: float  # seconds of training from now on
    passes: float  # passes over the text, earlier ones included
    max_passes: float  # most passes of its family
    threads: int

    def rows(self) -> list[tuple[str, list[str]]]:
        extension = self.extension
        phase, status = extension.after.phase[-1], Run(extension.folder).status
        loss = f", validation loss {status['validation']:.3f}" if extension.finished and "validation" in status else ""
        on = many(self.threads, "thread") if self.threads else "a GPU"
        batch = f"{many(phase.batch, 'row')} of {many(phase.length, 'token')}"
        training = [
            f"about {many(extension.steps, 'step')} more, of {batch}: {self.passes:.3g} times over the text in all",
            f"{duration(self.training)} of {duration(self.seconds)}, of which {duration(self.used)} are used; on {on}",
        ]
        return [
            ("kept", [f"{KEPT}; the model continues from step {extension.step:,}{loss}"]),
            ("training", training),
            ("rate", extension.lines()),
            ("then", [planning.SEARCHED if self.request.purpose == SEARCH else planning.CLOSED]),
            ("note", self._notes()),
        ]

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
            "seconds": self.seconds,
            "used": self.used,
            "training": self.training,
            "passes": self.passes,
            "threads": self.threads,
            "from_step": extension.step,
            "finished": extension.finished,
            "phases": phases,
        }

    def write(self, run_folder: Run) -> dict[str, Any]:
        """Write the plan to the folders; a finished search engine is built again from the longer trained model."""
        self.extension.write()
        again = [*LEARNED_FROM_PAIRS, *BUILT] if self.request.purpose == SEARCH and self.extension.finished else []
        return {"replaces": [*run_folder.status.get("replaces", []), *again] or None}


class RestartedPlan(MakePlan):
    """The plan of more hours for a model without a checkpoint: a new network, or more steps."""

    def rows(self) -> list[tuple[str, list[str]]]:
        return [("kept", [KEPT]), *super().rows()]

    def write(self, run_folder: Run) -> dict[str, Any]:
        """Write the recipes of the training again; a recipe that was changed by hand is kept."""
        written = run_folder.status.get("written", {})
        for name in ("model", *LEARNED_FROM_PAIRS):
            path = run_folder.path / f"{name}.toml"
            if path.exists() and written.get(name) != files.checksum(path):
                say(f"{path}: was changed by hand, and stays as it is: its steps are the most that are made")
            elif name in self.recipes:
                path.unlink(missing_ok=True)
                write({name: self.recipes[name]}, run_folder.path)
                run_folder.set(written=(written := {**written, name: files.checksum(path)}))
        return {}


def plan_more(request: MakeRequest, run_folder: Run, used: float) -> LongerPlan | RestartedPlan:
    """Plan more hours after `used` seconds. Nothing is written."""
    model = run_folder.path / "model"
    if not checkpoint.steps(model / "checkpoints"):
        return RestartedPlan(**vars(_plan_again(request, run_folder, used)))
    closed = Run(model).status.get("state") == "done" and run_folder.status["state"] == "done"
    training = request.time.more_training(used, closed=closed)
    try:
        extension = extend(model, training)
    except TooShort as error:
        raise request.time.too_few(used, error.seconds) from None
    data, phases = Run(run_folder.path / "data").status["train"]["tokens"], extension.after.phase
    passes = sum(phase.rows * phase.length for phase in phases) / max(data, 1)
    family = networks.like(extension.after.model)
    threads = planning.threads_here(request.devices)
    return LongerPlan(request, extension, request.time.seconds, used, training, passes, family.passes, threads)


def _plan_again(request: MakeRequest, run_folder: Run, used: float) -> MakePlan:
    """Plan the training again, from the finished corpus or else the texts, with the planned vocabulary size."""
    corpus, recipe = run_folder.path / "corpus", run_folder.path / "tokenizer.toml"
    stands = Run(corpus).status.get("state") == "done"
    vocabulary = settings.read(recipe)["tokenizer"]["size"] if recipe.exists() else 0
    texts = (str(corpus),) if stands else request.texts
    return planning.plan(replace(request, texts=texts), vocabulary=vocabulary, used=used)
