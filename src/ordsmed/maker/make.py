"""The verb `make`: from texts to a corpus, a tokenizer, token ids and a trained model with scores.

OUT/ corpus.toml tokenizer.toml data.toml model.toml     the plan, as recipes; each has a folder of the same name
     hugging-face/  report.html                          the export, and the page
     status.json                                         the request, seconds used, results
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ordsmed.api import training
from ordsmed.api.model import OpenModel
from ordsmed.api.model import open as open_model
from ordsmed.base import files, run
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.say import duration, say
from ordsmed.base.screen import command, command_lines
from ordsmed.base.stages import resume_command
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.maker import more_hours, search
from ordsmed.maker import plan as planning
from ordsmed.maker.closing import close
from ordsmed.maker.more_hours import LongerPlan, RestartedPlan
from ordsmed.maker.plan import MakePlan
from ordsmed.maker.recipes import write
from ordsmed.maker.request import SEARCH, MakeRequest, Purpose
from ordsmed.maker.session import Clock, NamedFolder, timed
from ordsmed.train import checkpoint
from ordsmed.train.fitting import TooShort

VERB = "make"


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
    folder = Path(request.out)
    run.output_folder(NamedFolder(request.out, VERB), folder.name)
    with run.locked(folder):
        run_folder = Run(folder)
        _check(run_folder, request, anew=anew)
        longer = not anew and more_hours.is_longer(run_folder, request)
        if run_folder.status and not anew:
            if run_folder.status["state"] == "done" and not longer:
                say(
                    f"{folder}: is finished, with --hours {run_folder.status['request']['hours']:g}; "
                    "more hours continue it"
                )
                return MadeModel(folder)
        elif anew and folder.is_dir():
            files.set_aside(folder)
        with timed(run_folder, began) as clock:
            if longer:
                _extend(request, run_folder, clock)
            if not run_folder.status.get("planned"):
                say(f"looking at {' '.join(request.texts)}")
                plan = planning.plan(request)
                with files.survive_disk(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                run_folder.set(
                    verb=VERB, state="running", request=asdict(request), stood_in=str(Path.cwd()), folder=str(folder)
                )
                for line in ["plan:", *plan.lines()]:
                    say(line)
                paths = write(plan.recipes, folder)
                say(f"{' '.join(path.name for path in paths)} in {folder}: the plan as recipes, to look at or change")
                written = {path.stem: files.checksum(path) for path in paths}
                run_folder.set(planned={"seconds": plan.seconds, "lines": plan.lines()}, written=written)
            _perform(request, run_folder, clock)
    return MadeModel(folder)


def rehearse(request: MakeRequest, *, anew: bool = False) -> MakePlan | LongerPlan | RestartedPlan:
    """Return the plan alone; nothing is written, and the same requests are refused."""
    path = Run(Path(request.out))
    _check(path, request, anew=anew)
    if not anew and more_hours.is_longer(path, request):
        return more_hours.plan_more(request, path, Clock(path).used)
    return planning.plan(request)


def _extend(request: MakeRequest, run_folder: Run, clock: Clock) -> None:
    plan = more_hours.plan_more(request, run_folder, clock.used)
    for line in ["plan:", *plan.lines()]:
        say(line)
    plan.write(run_folder)
    planned = {"seconds": request.hours * 3600, "lines": plan.lines()}
    run_folder.set(state="running", request=asdict(request), planned=planned)


def _check(run_folder: Run, request: MakeRequest, *, anew: bool) -> None:
    """Raise for a folder of something else, even with `anew`, and for another request in a folder of `make`."""
    run_folder.check_place()
    if not run_folder.status:
        return
    if run_folder.status.get("verb") != VERB:
        raise RecipeError(
            run_folder.path,
            f"is a folder of `{run_folder.status.get('verb')}`",
            "a new or empty folder",
            "name another OUT",
        )
    if anew:
        return
    usual = {field.name: field.default for field in fields(MakeRequest)}  # for folders from before a field was added
    before = usual | run_folder.status["request"]
    now = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(request).items()}
    fewer = now["hours"] < before["hours"] and run_folder.status["state"] != "done"
    may_change = ("devices", "site", *(() if fewer else ("hours",)))
    if changed := [key for key in now if key not in may_change and before.get(key) != now[key]]:
        names = {"purpose": "--for", "kind": "--kind", "start": "--from", "hours": "--hours", "texts": "TEXTS"}
        key = changed[0]
        if key in ("title", "language", "licence"):
            words = (
                "export",
                run_folder.path / "model",
                run_folder.path / "hugging-face",
                f"--{key}",
                now[key],
                "--anew",
            )
            remedy = f"once it is made, `{command(*words)}` writes the card again"
            raise RecipeError(f"--{key}", f"{run_folder.path} was begun with another one", "the same command", remedy)
        problem = f"was begun with {names.get(key, key)} {_in_words(before.get(key))}; found {_in_words(now[key])}"
        again = "the same or more hours continue it, or name another OUT"
        remedy = again if key == "hours" else "name another OUT, or add --anew: it moves this folder aside"
        raise RecipeError(run_folder.path, problem, "", remedy)


def _in_words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _perform(request: MakeRequest, run_folder: Run, clock: Clock) -> None:
    folder, seconds = run_folder.path, request.hours * 3600
    stages = (("corpus", Corpus), ("tokenizer", TokenizerTraining), ("data", Encoding))
    for name, recipe in stages:
        if (folder / f"{name}.toml").exists():
            clock.stage(name)
            run.obtain(recipe, str(folder / f"{name}.toml"))
    clock.stage("model")
    begun = bool(checkpoint.steps(folder / "model/checkpoints"))
    if not begun and kind_of_folder(folder / "model") is FolderKind.PRETRAINING:
        run.clear(folder / "model")  # nothing was trained: start again in the time that is left now
    deadline = None if begun else _left(request, clock)  # a resumed run keeps its deadline
    try:
        trained = training.pretrain(
            str(folder / "model.toml"), deadline=deadline, devices=request.devices, site=request.site
        )
    except Stopped:
        say("\n".join(command_lines(f"{folder}: all of it goes on with", resume_command(folder))))
        raise
    except TooShort as error:
        raise more_hours.too_short(request, clock.used, error.seconds) from None
    if request.purpose == SEARCH:
        clock.stage("pairs")
        search.write_training_pairs(folder)
        more_hours.set_aside(run_folder, more_hours.LEARNED_FROM_PAIRS)
        search.train(folder, clock, seconds, request.devices)
    clock.stage("what came of it")
    if request.purpose == SEARCH:
        more_hours.set_aside(run_folder, more_hours.BUILT)
        results = search.close(folder, clock)
    else:
        results = close(request, folder, trained.folder, clock, round(seconds))
    run_folder.set(state="done", **results)
    more_hours.clear_aside(run_folder)


def _left(request: MakeRequest, clock: Clock) -> float:
    seconds = request.hours * 3600
    least = planning.LEAST * seconds
    left = seconds - clock.used - planning.closing_seconds(request)
    if left < least:
        say(f"preparing took longer than planned: training gets {duration(least)} all the same")
    return max(left, least)
