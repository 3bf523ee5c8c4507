"""`ordsmed.pretrain` and `ordsmed.finetune`, which the commands of these names call as well."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ordsmed.api.example_files import with_example_files
from ordsmed.api.keywords import words_of
from ordsmed.api.run import TrainingRun
from ordsmed.base import stages
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.files import errors_in_one_line
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.launch.local import PASSED_ON, start
from ordsmed.base.run import Run
from ordsmed.base.say import many, seconds
from ordsmed.tell.show.picture import Pictures
from ordsmed.train.finetune import finetune as finetuning
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.plan import Plan
from ordsmed.train.pretrain import pretrain as pretraining
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.request import SessionOptions, folder_of, read


@errors_in_one_line()
def pretrain(
    recipe: str | Path,
    *,
    overrides: Sequence[str] = (),
    deadline: str | float | None = None,
    anew: bool = False,
    layout: str | Mapping[str, object] = "",
    site: str = "",
    devices: int = 0,
    restarts: int = 0,
    yes: bool = False,
    part: str = "",
    **settings: object,
) -> TrainingRun:
    """Pretrain a model from a recipe, run trials (`seeds`, `grid`), or resume a run's folder.

    `recipe` is a built-in name, a TOML file or a folder. Keywords change its settings; tables are dicts or dotted keys,
    and `overrides` are words of the command line. `steps` is the total of all phases, whose warm-ups shrink in
    proportion. `deadline` is "3h" or seconds. `anew` moves the present folder aside. `devices` processes are started,
    one per GPU (or share of the CPU), and restarted up to `restarts` times after a failure. `yes` accepts a plan with
    too many passes over the text or too little time. `part="2/8"` runs the second eighth of the trials. Ctrl-C saves
    the run and raises Stopped; the same call resumes it.

        run = ordsmed.pretrain("tiny/bert", steps=100, out="work/short", **{"phase.learning_rate": 1e-3})
        run.scores["validation"], run.open().fill("it is [MASK].")
    """
    options = SessionOptions(deadline=_seconds(deadline), anew=anew, site=site, yes=yes)
    perform = _part_of(pretraining.pretrain, part, devices)
    return _trained(PretrainingPlan, perform, recipe, overrides, layout, settings, devices, restarts, options)


@errors_in_one_line()
def finetune(
    recipe: str | Path,
    *,
    train: object = None,
    dev: object = None,
    overrides: Sequence[str] = (),
    deadline: str | float | None = None,
    anew: bool = False,
    layout: str | Mapping[str, object] = "",
    site: str = "",
    devices: int = 0,
    restarts: int = 0,
    part: str = "",
    **settings: object,
) -> TrainingRun:
    """Fine-tune a pretrained model on a task, run trials (`seeds`, `grid`), or resume a run's folder.

    `train` and `dev` set `task.train` and `task.dev`: paths, or examples as a dict of lists or a `datasets.Dataset`,
    which are written to the run's folder. Keywords change settings of the recipe; tables are dicts or dotted keys, and
    `overrides` are words of the command line. `deadline` is "3h" or seconds, and the steps are fitted to it. `anew`
    moves the present folder aside. `devices` processes are started, one per GPU (or share of the CPU), and restarted up
    to `restarts` times after a failure. `part="2/8"` runs the second eighth of the trials. Ctrl-C saves the run and
    raises Stopped; the same call resumes it.

        run = ordsmed.finetune("tiny/words", init="work/pretrain/tiny-bert", task={"length": 64})
        run.scores["f1"], run.open().tag("Newts swim in Bergen")
    """
    options = SessionOptions(deadline=_seconds(deadline), anew=anew, site=site)
    settings |= {f"task.{split}": data for split, data in (("train", train), ("dev", dev)) if data is not None}
    settings = with_example_files(str(recipe), overrides, settings)
    perform = _part_of(finetuning.finetune, part, devices)
    return _trained(FinetuningPlan, perform, recipe, overrides, layout, settings, devices, restarts, options)


def _part_of(perform: Callable[..., Path], part: str, devices: int) -> Callable[..., Path]:
    if part and devices:
        raise RecipeError("--devices", f"found {devices} with --part", "one of them", "each trial has one device")
    return functools.partial(perform, part=part) if part else perform


def _trained(
    kind: type[Plan],
    perform: Callable[..., Path],
    recipe: str | Path,
    overrides: Sequence[str],
    layout: str | Mapping[str, object],
    settings: dict[str, object],
    devices: int,
    restarts: int,
    options: SessionOptions,
) -> TrainingRun:
    """Train in this process, or in `devices` processes that it starts."""
    if not isinstance(layout, str):  # the recipe's setting `layout`, not a mesh
        layout, settings["layout"] = "", layout
    name, options["layout"] = stages.stage(recipe, stages.BY_VERB.get(kind.recipes.verb, "")), layout
    words = words_of(kind.recipes, name, overrides, settings)
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 0:
        raise RecipeError("devices", f"found {devices!r}", "a number of processes, 1 or more")
    if devices and "RANK" not in os.environ:
        return TrainingRun(_by_processes(kind, name, words, devices, restarts, options))
    return TrainingRun(perform(name, words, callbacks=[Pictures()], **options))


def _by_processes(
    kind: type[Plan], name: str, words: Sequence[str], devices: int, restarts: int, options: SessionOptions
) -> Path:
    folder = Path(name) if kind_of_folder(name).made else folder_of(read(kind.recipes, name, words), name)
    until = [f"--deadline={options['deadline']}s"] if options["deadline"] else []
    named = [f"--{key}={options[key]}" for key in ("layout", "site") if options[key]]
    flags = [*until, *(f"--{key}" for key in ("anew", "yes") if options.get(key)), *named]
    if status := start([kind.recipes.verb, name, *words, *flags], devices, restarts=restarts):
        if status - 128 in PASSED_ON:
            raise Stopped(int(Run(folder).status.get("step", 0)), status - 128)
        problem = f"its {many(devices, 'process')} ended with status {status}"
        raise RunError(folder, problem, "", "read their errors in the lines above")
    return folder


def _seconds(deadline: str | float | None) -> float | None:
    try:
        left = seconds(deadline) if isinstance(deadline, str) else deadline
    except ValueError:
        left = 0.0
    if left is not None and not (left > 0 and math.isfinite(left)):
        raise RecipeError("deadline", f"found {deadline!r}", "seconds above 0, or a text such as 3h, 90m or 1h30m")
    return left
