"""The verb `make`: from texts to a corpus, a tokenizer, token ids and a trained model with scores.

OUT/ corpus.toml tokenizer.toml data.toml model.toml     the plan, as recipes; each has a folder of the same name
     hugging-face/  report.html                          the export, and the page
     status.json                                         the request, seconds used, results
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.api import training
from ordsmed.api.model import OpenModel
from ordsmed.api.model import open as open_model
from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.screen import command, command_lines
from ordsmed.base.stages import FLAGS, resume_command
from ordsmed.maker import more_hours, runner, search
from ordsmed.maker import plan as planning
from ordsmed.maker.closing import close
from ordsmed.maker.recipes import recipe_stages
from ordsmed.maker.request import SEARCH, MakeRequest, Purpose
from ordsmed.maker.runner import Clock, JobPlan, Stage, StagedJob
from ordsmed.train import checkpoint
from ordsmed.train.fitting import TooShort


@dataclass(frozen=True)
class MadeModel:
    """The result of `make`."""

    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """The request and its results."""
        return Run(self.folder).status

    @property
    def lines(self) -> list[str]:
        """The results as lines to print."""
        return list(self.facts.get("lines", []))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(chr(10).join(self.lines))}</pre>"

    def open(self, *, device: str = "auto") -> OpenModel:
        """Open the trained model."""
        return open_model(self.folder / "model", device=device)


@files.errors_in_one_line()
def make(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    hours: float = 1.0,
    purpose: Purpose = "",
    kind: str = "",
    start: str | Path = "",
    devices: int = 0,
    site: str = "",
    title: str = "",
    language: str = "",
    licence: str = "",
    anew: bool = False,
) -> MadeModel:
    """Train a model from texts in `hours` hours: corpus, tokenizer, network, scores, a folder for Hugging Face.

    `texts` are files, folders, patterns, or the folder of a corpus. `purpose` is fill, write, embed or both (of the
    first two); by default it is that of `kind`. `kind` is the network: bert, modern, gpt2 ... `start` is a model to
    continue from. `title`, `language` and `licence` describe the texts on the model card. `anew` sets `out` aside as
    `out.old-1`. The same call continues where it was stopped; with more `hours` it also continues a finished model.

        made = ordsmed.make("my-texts", "my-model", hours=0.5)
        made.open().fill("it is [MASK].")
    """
    named = [texts] if isinstance(texts, str | Path) else texts
    request = MakeRequest(
        tuple(map(str, named)), str(out), hours, purpose, kind, str(start), devices, site, title, language, licence
    )
    return perform(request, anew=anew)


def perform(request: MakeRequest, *, anew: bool = False, began: float | None = None) -> MadeModel:
    """Do all stages, or continue where they stopped; time counts from `began`, the start of this process."""
    runner.perform(MakeJob(request), anew=anew, began=began)
    return MadeModel(Path(request.out))


class MakeJob(StagedJob):
    """The stages of `make`, and what may change when it is continued."""

    request: MakeRequest
    changeable = ("devices", "site")

    def plan(self, status: Mapping[str, Any], used: float) -> JobPlan | None:
        if not status.get("planned"):
            return planning.plan(self.request)
        if self._has_more_hours(status):
            return more_hours.plan_more(self.request, Run(self.folder), used)
        return None

    def _has_more_hours(self, status: Mapping[str, Any]) -> bool:
        return bool(status.get("planned")) and self.request.hours > status["request"]["hours"]

    def finished(self, status: Mapping[str, Any]) -> str:
        if status.get("state") != "done" or self._has_more_hours(status):
            return ""
        return f"is finished, with --hours {status['request']['hours']:g}; more hours continue it"

    def mismatch(self, key: str, before: str, now: str, status: Mapping[str, Any]) -> RecipeError | None:
        if key in ("title", "language", "licence"):
            folders = self.folder / "model", self.folder / "hugging-face"
            again = command("export", *folders, f"--{key}", now, "--anew")
            remedy = f"once it is made, `{again}` writes the card again"
            return RecipeError(f"--{key}", f"{self.folder} was begun with another one", "the same command", remedy)
        if key == "hours":
            if status["state"] == "done" or float(now) > float(before):
                return None
            remedy = "the same or more hours continue it, or name another OUT"
            return RecipeError(self.folder, f"was begun with --hours {before}; found {now}", "", remedy)
        return super().mismatch(FLAGS.get(key, "TEXTS" if key == "texts" else f"--{key}"), before, now, status)

    def resume_lines(self) -> list[str]:
        return command_lines(f"{self.folder}: resume all of it with", resume_command(self.folder))

    def stages(self, clock: Clock) -> Iterator[Stage]:
        folder, request = self.folder, self.request
        yield from recipe_stages(folder)
        yield Stage("model", lambda: self._train(clock), [folder / "model"])
        if request.purpose == SEARCH:
            yield from search.stages(request, clock)
        else:
            yield Stage("results", lambda: close(request, clock), [folder / "hugging-face"])

    def _train(self, clock: Clock) -> None:
        model, hours = self.folder / "model", self.request.time
        begun = bool(checkpoint.steps(model / "checkpoints"))
        if not begun and kind_of_folder(model) is FolderKind.PRETRAINING:
            run.clear(model)  # nothing was trained: start again in the time that is left now
        deadline = None if begun else hours.deadline(clock.used)  # a resumed run keeps its deadline
        devices, site = self.request.devices, self.request.site
        try:
            training.pretrain(f"{model}.toml", deadline=deadline, devices=devices, site=site)
        except TooShort as error:
            raise hours.too_few(clock.used, error.seconds) from None
