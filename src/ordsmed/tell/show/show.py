"""The command `show`: what a recipe would do or a run did, how two differ, and the documents of a step."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import hub, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.folder import RECIPE, SETTINGS, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.base.stages import MODEL, stage
from ordsmed.corpus.folder import origin
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.data.long_documents import LongDocuments
from ordsmed.data.tokenizer_training import TokenizerTraining as TokenizerTraining
from ordsmed.learn.phases import locate, total
from ordsmed.measure.bench.recipe import Bench
from ordsmed.measure.evaluation.recipe import Evaluation
from ordsmed.tell.show import others, stages, state
from ordsmed.train import request
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.finetune.trials import FinetuningTrials
from ordsmed.train.plan import Plan, layout_lines
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.texts import TextData
from ordsmed.train.pretrain.trials import PretrainingTrials
from ordsmed.train.training import Training
from ordsmed.train.trials import Trials, describe
from ordsmed.use.index.build import Indexing
from ordsmed.weights import weights
from ordsmed.weights.origin import Origin

RECIPES: dict[str, Any] = {
    recipe.verb: recipe
    for recipe in (Corpus, TokenizerTraining, Encoding, Pretraining, Finetuning, Bench, Evaluation, Indexing)
}
PLANS: dict[str, type[Plan]] = {plan.recipes.verb: plan for plan in (PretrainingPlan, FinetuningPlan)}
TRIALS: dict[str, type[Trials]] = {
    trials.plans.recipes.verb: trials for trials in (PretrainingTrials, FinetuningTrials)
}


def show(
    name: str,
    overrides: Sequence[str] = (),
    *,
    layout: str = "",
    site: str = "",
    devices: int = 0,
    own_settings: bool = False,
    defaults: bool = False,
) -> list[str]:
    """Describe a recipe, a run (its state first) or a model of any format, in lines.

    `own_settings` adds a run's settings; `defaults` also those that have their default.
    """
    if Path(name).exists() or not any(name in run.recipe_names(verb) for verb in ("", *RECIPES)):
        if location := others.place_of(name):
            return others.lines(name, location, overrides)
        others.refuse_absent(name)
        name = name if Path(name).exists() else str(hub.folder(name))
    if kind_of_folder(name) is FolderKind.IMPORT:
        if overrides:
            raise RecipeError(name, f"is a folder, but {overrides[0]} is given", "no override")
        count = sum(math.prod(shape) for shape in weights.shapes(Path(name) / WEIGHTS).values())
        text = (Path(name) / SETTINGS).read_text(encoding="utf-8")
        return [f"{name}: weights without a run", *_indent(text.rstrip().splitlines()), many(count, "number")]
    if kind_of_folder(name) is FolderKind.MAKE:
        return [f"{name}: make", *stages.lines(Path(name))]
    if (kind := kind_of_folder(name)) in (FolderKind.STABILITY, FolderKind.JUDGE):
        return [f"{name}: {kind.value}", *state.lines(Path(name))]
    with run.in_start_folder(name) as folder_name:
        recipe, verb = read(folder_name, overrides, site=site)
        folder = Path(folder_name) if kind_of_folder(folder_name).made else None
        status, lines = state.lines(folder) if folder else [], []
        if isinstance(recipe, Training):
            several = recipe if recipe.several else None
            try:
                lines = _trials(several, folder_name) if several and folder is None else []
                plan = PLANS[verb].read(folder_name, overrides, layout=layout, site=site, devices=devices)
                lines += plan.lines()
                recipe = several or plan.recipe
            except OrdsmedError as error:
                if folder is None:
                    raise
                lines = [f"cost: unknown: {error}"]  # the state is shown even if the data are gone
    if folder is None:
        return [f"{name}: {verb}", *_settings(recipe, [name, *overrides], defaults), *lines]
    if own_settings or defaults:
        return [f"{name}: {verb}", *status, *lines, *_settings(recipe, [name], defaults)]
    return [f"{name}: {verb}", *status, *lines, f"settings: `{command('show', name, '--settings')}`"]


def rehearsed(name: str, overrides: Sequence[str], recipe: Training, lines: Sequence[str]) -> list[str]:
    """Describe a training before it starts: the state of its run or the settings of its recipe, and its plan."""
    if not kind_of_folder(name).made:
        return [f"{name}: {recipe.verb}", *_settings(recipe, [name, *overrides], defaults=False), *lines]
    with run.in_start_folder(name) as home:
        status = state.lines(Path(home))
    return [f"{name}: {recipe.verb}", *status, *lines, f"settings: `{command('show', name, '--settings')}`"]


def _settings(recipe: object, words: Sequence[str], defaults: bool) -> list[str]:
    """Return the changed settings and the command that shows the others, or with `defaults` all settings."""
    if defaults:
        return _indent(settings.lines(settings.plain(recipe)))
    default_settings = f"settings at their defaults: `{command('show', *words, '--all')}`"
    return [*_indent(settings.lines(settings.without_defaults(recipe))), default_settings]


def layout(
    name: str, overrides: Sequence[str] = (), *, layout: str = "", site: str = "", devices: int = 0
) -> list[str]:
    with run.in_start_folder(stage(name, MODEL)) as home:
        kind = read(home, overrides, site=site)[1]
        if kind not in PLANS:
            raise RecipeError(name, "is not a training", "a recipe or run of `ordsmed pretrain` or `finetune`")
        return layout_lines(PLANS[kind].read(home, overrides, layout=layout, site=site, devices=devices))


def difference(first: str, second: str, overrides: Sequence[str] = ()) -> list[str]:
    recipes = (read(stage(first, MODEL))[0], read(stage(second, MODEL), overrides)[0])
    flats = [settings.flat(settings.plain(recipe)) for recipe in recipes]
    keys = [k for k in dict.fromkeys([*flats[0], *flats[1]]) if flats[0].get(k) != flats[1].get(k)]
    if not keys:
        return [f"{first} and {second}: the same settings"]
    width = max(map(len, keys))
    lines = [f"{'':{width}}  {first} | {second}"]
    return lines + [f"{k:{width}}  {_as_text(flats[0].get(k))} | {_as_text(flats[1].get(k))}" for k in keys]


def documents(name: str, step: int) -> list[str]:
    """Return the documents that a step of a run read, with their positions in the corpus and their beginnings."""
    with run.in_start_folder(stage(name, MODEL)) as home:
        return _documents(name, Path(home), step)


def _documents(name: str, folder: Path, step: int) -> list[str]:
    if kind_of_folder(folder) is not FolderKind.PRETRAINING:
        raise RecipeError(name, "is not a run", "a folder written by `ordsmed pretrain`")
    recipe = run.read_recipe(Pretraining, folder)
    if not 1 <= step <= total(recipe.phase):
        raise RecipeError("--step", f"found {step}", f"1 to {total(recipe.phase)}")
    index, inner = locate(recipe.phase, step - 1)
    texts = TextData.of(recipe, [Encoded(run.obtain(Encoding, source)) for source in recipe.sources])
    phases_before = int(Run(folder).status.get("phases_before", 0))
    rows, stores, data = texts.rows(index, phases_before), texts.stores(index), list(texts.read_in(index).items())
    first, batch = recipe.phase[index].rows_of(inner)
    spans = rows.spans(np.arange(first, first + batch))
    location = f"{name}: step {step} (phase {index + 1}, its step {inner + 1})"
    lines = [f"{location}: {many(batch, 'row')}, {many(len(spans), 'piece')} of documents"]
    for span in spans:
        store, (source, encoded) = stores[span.source], data[span.source]
        ids = np.asarray(store.tokens[span.start : min(span.stop, span.start + 24)])
        lexicon = store.lexicon
        words = [] if lexicon is None else [lexicon.word(number).decode() for number in ids]
        text = " ".join(words) or texts.tokenizer.decode(ids)
        begin = span.start - int(store.document_starts[span.document])
        document = int(store.numbers[span.document]) if isinstance(store, LongDocuments) else span.document
        lines.append(
            f"  row {span.number}: {source} document {document}{_origin(encoded, document)}, "
            f"tokens {begin} to {begin + span.stop - span.start}: {' '.join(text.split())[:80]}"
        )
    return lines


def read(name: str, overrides: Sequence[str] = (), verb: str = "", *, site: str = "") -> tuple[Any, str]:
    path = Path(name) / RECIPE if kind_of_folder(name).made else None
    if path and path.exists():
        verb = str(Run(Path(name)).status.get("verb"))
        if verb not in RECIPES:
            raise RecipeError(name, "was not written by ordsmed", "a folder written by " + ", ".join(RECIPES))
        table = run.as_recorded(RECIPES[verb], settings.read(path))
    else:
        location, verb = _find(name, verb)
        table = _table(location, verb)
        verb = verb or _verb(settings.override(table, overrides), name)
    if issubclass(RECIPES[verb], Training):
        return request.read(RECIPES[verb], name, overrides, site=site), verb
    if site:
        raise RecipeError("--site", f"found {site}, for a recipe of `{verb}`", "a recipe or run of a training")
    if path and overrides:
        raise RecipeError(name, f"is a folder, but {overrides[0]} is given", "a recipe to change, or no override")
    return settings.decode(RECIPES[verb], settings.override(table, overrides), name), verb


def _table(path: Path, verb: str) -> dict[str, Any]:
    """Read a recipe's table; without a verb, its `like` may name a recipe of pretraining or fine-tuning."""
    try:
        return run.read_table(path, verb or "pretrain")
    except RecipeError:
        if verb:
            raise
        with contextlib.suppress(RecipeError):
            return run.read_table(path, "finetune")
        raise


def _find(name: str, verb: str) -> tuple[Path, str]:
    if verb or Path(name).is_file():
        return run.find_recipe(name, verb), verb
    for guess in RECIPES:
        if name in run.recipe_names(guess):
            return run.find_recipe(name, guess), guess if name not in run.recipe_names() else ""
    return run.find_recipe(name, ""), ""


def _verb(table: dict[str, Any], name: str) -> str:
    marks = {"bench": "measure", "evaluate": "probe", "pretrain": "phase", "finetune": "task", "corpus": "source"}
    for verb, key in marks.items():
        if key in table:
            return verb
    if "tokenizer" in table:
        return "tokenizer" if isinstance(table["tokenizer"], dict) else "encode"
    raise RecipeError(name, f"keys {', '.join(table)}", "those of a " + ", ".join(RECIPES))


def _trials(recipe: Training, name: str) -> list[str]:
    if getattr(recipe, "step", None) == "all" and Origin.find(recipe.init) is None:
        return ["trials: one from each checkpoint of `init`, and for each setting and seed"]
    return describe(trials_of(recipe, name).runs)


def trials_of(recipe: Training, name: str) -> Trials:
    return TRIALS[recipe.verb].of(request.folder_of(recipe, name), recipe, name)


def _origin(encoded: Encoded, document: int) -> str:
    try:
        with run.in_start_folder(encoded.folder) as home:
            corpus = run.obtain(Corpus, run.read_recipe(Encoding, Path(home)).corpus)
            return f" ({origin(corpus, 'train', document)})"
    except (OrdsmedError, OSError):
        return ""


def _as_text(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
