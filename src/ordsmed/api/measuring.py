"""`ordsmed.evaluate` and `ordsmed.compare`: scores of models, and comparisons of models or recipes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ordsmed.api.keywords import by_path
from ordsmed.api.making import Place, listed
from ordsmed.api.model import open
from ordsmed.api.verb_result import Made
from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.files import errors_in_one_line
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.run import recipe_names
from ordsmed.data.unknown import MOST
from ordsmed.measure.evaluation import comparison
from ordsmed.measure.evaluation.evaluate import ComputeOptions
from ordsmed.measure.evaluation.evaluate import evaluate as ask_probes
from ordsmed.measure.evaluation.recipe import named, read
from ordsmed.measure.evaluation.results import finite, table
from ordsmed.tell.stability import pages
from ordsmed.tell.stability.stability import StudyOptions
from ordsmed.tell.stability.stability import compare as compare_recipes
from ordsmed.use.predict import Evaluated

ALONE = "several models, all steps, `out` and `anew` need a probe, but none is named"


@errors_in_one_line()
def evaluate(
    models: Place | Sequence[Place],
    files: Place | Sequence[Place] = (),
    *,
    probe: str = "",
    step: int | Literal["all"] | None = None,
    out: Place | None = None,
    overrides: Sequence[str] = (),
    anew: bool = False,
    device: str = "auto",
    precision: str = "fp32",
    threads: int | None = None,
    max_unknown: float = MOST,
    **changes: object,
) -> Evaluated:
    """Evaluate a fine-tuned model on files of its task, or any language model with a probe, with error bars.

    With a probe (`ordsmed menus probes`), each of several models is compared with the first. A recipe of probes
    (`ordsmed recipes evaluate`) may be given as the model. Keywords and `overrides` change settings of the task, the
    probe or the recipe. `step` selects a checkpoint ("all" with a probe: each checkpoint). `out` is the folder for
    results of probes, instead of the model's `scores/`. `anew` computes them again. `max_unknown` is the largest
    accepted share of unknown tokens.

        ordsmed.evaluate("work/finetune/tiny-words", "dev.conll").scores["f1"]
        ordsmed.evaluate([run, "work/pretrain/tiny-bert"], "texts.txt", probe="perplexity", window=16).lines
    """
    names, paths = listed(models), listed(files)
    if probe or (len(names) == 1 and is_recipe(names[0])):
        question = _models_and_probes(names, paths, probe, [*overrides, *settings.words(changes)])
        means = ComputeOptions(device, threads, "", anew, precision, max_unknown)
        at, location = question[2] if step is None else step, question[3] if out is None else os.fspath(out)
        answer = ask(question[0], question[1], step=at, out=location, means=means)
        return Evaluated(dict(answer.facts), list(answer.lines))
    if len(names) != 1 or step == "all" or out is not None or anew:
        raise RecipeError("evaluate", ALONE, 'one model, or probe="perplexity"')
    model = open(names[0], step=step, device=device, precision=precision, threads=threads)
    words = [*overrides, *settings.words(changes, "task.")]
    return model.evaluate(paths, overrides=words, max_unknown=max_unknown)


def _models_and_probes(
    names: Sequence[str], paths: Sequence[str], probe: str, words: Sequence[str]
) -> tuple[Sequence[str], Sequence[Any], int | str | None, str | None]:
    """Return models, probes, step and output folder, from the words or from a recipe."""
    if probe:
        return names, named([[probe, *paths, *words]]), None, None
    recipe = read(names[0], words)
    return recipe.models, recipe.probe, recipe.step, recipe.out


def ask(
    models: Sequence[str],
    probes: Sequence[Any],
    *,
    step: int | str | None = None,
    out: str | None = None,
    means: ComputeOptions | None = None,
    records: str | None = None,
) -> Made:
    """Evaluate models with probes and compare them. In a run of several processes, only the first returns lines."""
    result = ask_probes(models, probes, step=step, out=out, means=means, each=records)
    if not result:
        return Made(Path(), {}, [])
    comparisons = comparison.compare(result)
    written = [*(scores.path for scores in result), *([comparison.write(comparisons, out)] if comparisons else [])]
    plain = [scores.plain() for scores in result]
    compared_facts = {"comparisons": [finite(comparison.plain()) for comparison in comparisons]} if comparisons else {}
    facts = plain[0] if len(plain) == 1 else {"results": plain, **compared_facts}
    lines = [*table(result), *comparison.table(comparisons), *(f"{path}: written" for path in written)]
    return Made(written[-1], facts, lines)


@errors_in_one_line()
def compare(
    first: Place,
    second: Place,
    files: Place | Sequence[Place] = (),
    *,
    probe: str = "",
    seeds: Sequence[int] | None = None,
    workers: int = 0,
    devices: int = 0,
    metric: str = "",
    out: Place | None = None,
    overrides: Sequence[str] = (),
    anew: bool = False,
    **changes: object,
) -> Made:
    """Test whether the second is better than the first beyond chance: two models by a probe, or two recipes by seeds.

    With `probe`, two models are evaluated on `files` and compared example by example. Without it, two recipes (or
    folders of `ordsmed stability`) are trained with each of `seeds`, `workers` runs at a time, and compared by
    `metric`. Keywords and `overrides` change settings of the probe, or of both recipes.

        ordsmed.compare("work/pretrain/a", "work/pretrain/b", "texts.txt", probe="perplexity").lines
        ordsmed.compare("tiny/bert", "mine.toml", seeds=[1, 2, 3]).facts["verdict"]
    """
    names = os.fspath(first), os.fspath(second)
    if probe:
        models, probes, *_ = _models_and_probes(names, listed(files), probe, [*overrides, *settings.words(changes)])
        return ask(models, probes, out=None if out is None else os.fspath(out), means=ComputeOptions(anew=anew))
    if trained := [name for name in names if kind_of_folder(name).model]:
        raise RecipeError(trained[0], "is a model, but no probe is named", 'probe="perplexity" and files, or recipes')
    words = [*overrides, *(word for key, value in changes.items() for word in by_path(key, settings.plain(value)))]
    words += [f"out={os.fspath(out)}"] if out is not None else []
    options = StudyOptions(tuple(seeds) if seeds else None, workers, devices, metric, anew)
    result = compare_recipes(*names, words, options)
    return Made(Path(result["folder"]), result, pages.compared_lines(result))


def is_recipe(name: str) -> bool:
    return not Path(name).is_dir() and (name.endswith(".toml") or name in recipe_names("evaluate"))
