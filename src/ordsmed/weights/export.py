"""Export of a trained model as a folder that other programs load, with a model card.

run -> Trained -> .out.part/ config.json, model.safetensors, tokenizer.json ..., README.md -> renamed to out/

The files are in a format of formats/: Hugging Face's if transformers has the model family, otherwise the format named
after the family. A fine-tuned model keeps its task head if transformers has a class that computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, hub, settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import RECIPE
from ordsmed.base.identity import identity
from ordsmed.base.menu import entries, kind_of, load
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.learn.task import LateInteraction, Task
from ordsmed.learn.usage import Usage
from ordsmed.text.language import check_code
from ordsmed.weights import card
from ordsmed.weights.foreign import FORMAT, Format
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import Trained, open_model

MARK = "ordsmed.json"  # marks an export; names its model and format


def export_all(path: str | Path, out: str | Path, **options: Any) -> list[Path]:
    """Export step 0 and each saved step of a run to `out`/step-N, to study how it learns. Return the folders."""
    origin = Origin.of(path)
    if not origin.is_run:
        raise RecipeError("--step", f"found all, but {path} is not a run", "a run's folder")
    folder = origin.folder.resolve()
    if Path(out).exists() and Path(out).resolve() in (folder, *folder.parents):
        raise RecipeError(out, "is the exported run, or contains it", "another folder")
    lines = []
    for step in origin.steps():
        try:
            lines.append(export(origin.folder, Path(out) / f"step-{step}", step, **options))
        except DataError as error:
            if step:
                raise
            say(f"step 0 is skipped: {error}")
    return lines


def export(
    path: str | Path,
    out: str | Path,
    step: int | None = None,
    *,
    anew: bool = False,
    licence: str | None = None,
    to: str | None = None,
    overrides: Sequence[str] = (),
    name: str = "",
    title: str = "",
    language: str = "",
) -> Path:
    """Export a run, an imported folder or a Hugging Face folder to `out`, and return `out`.

    The folder is written completely or not at all. An earlier export there is replaced.

    Args:
        to: format in formats/; None: Hugging Face's if transformers has the family, otherwise the family's format.
        overrides: settings of that format, as KEY=VALUE.
        name: the folder's name in the code on the card; empty: the name of `out`.
        title: heading of the card; empty: the name.
        language: language of the model, for the card; empty: the languages of its data.
    """
    check_code("language", language)
    target, to = Path(out), to and to.replace("-", "_")
    check(target, hub.folder(path), anew=anew or (target / MARK).exists())
    kind = to or _family(path)
    if kind in entries("formats") and (ready := getattr(load("formats", kind), "ready", None)):
        ready(target)
    trained = open_model(path, step)
    if isinstance(trained.objective, Task) and to in (None, FORMAT):
        _check_head(trained, trained.objective, path)
    form = export_format(trained, to, overrides) if to else format_of(trained)
    if trained.recipe is None and not getattr(form, "beside", ""):
        inner = trained.folder / "generator"
        if (inner / "config.json").exists() and "generator" not in trained.objective.networks():
            say(f"{inner}: not exported; `{command('export', inner)} OUT` writes it as well")
    with files.making(target, keep=anew) as folder:
        form.write(trained, folder)
        name = name or target.name
        usage = form.usage(name, folder, trained) if hasattr(form, "usage") else None
        text = _card(trained, name, licence, usage, title=title, language=language)
        files.write_text(folder / "README.md", text)
        for part, text in card.inner(trained, name).items():
            files.write_text(folder / part / "README.md", text)
        facts = {"ordsmed": str(identity()), "of": str(trained.folder), "step": trained.step}
        files.write_json(folder / MARK, {**facts, "format": kind_of(form)})
    return target


def _family(path: str | Path) -> str:
    recipe = hub.folder(path) / RECIPE
    model: Any = settings.read(recipe).get("model") if recipe.is_file() else {}
    return str(model.get("kind", "")) if isinstance(model, dict) else ""


def _card(trained: Trained, name: str, licence: str | None, usage: Usage | None, **more: str) -> str:
    try:
        return card.write(trained, name, licence, usage, **more)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        problem = f"data.json, scores.json or metrics.jsonl were not written by a run ({type(error).__name__}: {error})"
        remedy = "move them away: the model card does not need them"
        raise DataError(trained.folder, problem, "the files of a run", remedy) from error


def _check_head(trained: Trained, task: Task, path: str | Path) -> None:
    """Raise RecipeError if transformers has no class for the task's head or for the layers below it."""
    usual = "last" if trained.causal else "first"
    heads = " ".join(role for role in task.networks()[""].modules if role not in ("model", "top"))
    if trained.settings.capabilities.state:
        problem = "is an ELMo with a task head, which its files cannot hold"
    elif task.top is not None:
        problem = "has a mix of layers or an LSTM below its head (task.top), which no class of transformers has"
    elif trained.settings.model_type and not trained.settings.architectures:
        problem = f"is a {trained.kind} with bidirectional attention, which no class of transformers is"
    elif heads not in trained.settings.architectures:
        problem = f"has a {heads} head, which no class of transformers has"
    elif getattr(task, "pool", usual) not in (usual, *trained.settings.poolings):
        problem = f"pools by {task.pool} (task.pool), but its class in transformers reads the {usual} token"
    else:
        return
    verbs = "`ordsmed predict` and `evaluate`"
    verbs += "".join(f", and `{verb}`," for verb in getattr(trained.learned, "VERBS", ()))
    if isinstance(task, LateInteraction):
        verbs = f"`--to {trained.learned.FORMAT}` exports it; {verbs}"
    raise RecipeError(path, problem, "", f"{verbs} open it as it is")


def export_format(trained: Trained, name: str, overrides: Sequence[str] = ()) -> Format:
    """Return the format `name` with its settings. Raise RecipeError if it cannot hold this model."""
    form: Format = settings.decode(load("formats", name, place="--to"), settings.override({}, overrides), "--to")
    if name == FORMAT:
        format_of(trained)
    elif check := getattr(form, "check", None):
        check(trained)
    elif not _can_hold(form, trained):
        wrong = f"{name} holds {' and '.join(form.families)}; {trained.folder} is a {trained.kind}"
        fitting = [kind for kind in entries("formats") if _can_hold(load("formats", kind), trained)]
        raise RecipeError("--to", wrong, " or ".join(fitting))
    return form


def _can_hold(form: Any, trained: Trained) -> bool:
    return not form.families or trained.kind in form.families


def format_of(trained: Trained) -> Format:
    kind, heads = FORMAT if trained.settings.architectures else trained.kind, ""
    if kind == FORMAT:
        heads = " ".join(role for role in trained.objective.networks()[""].modules if role != "model")
    if kind not in entries("formats") or (heads and heads not in trained.settings.architectures):
        problem = f"is a {trained.kind}{f' with heads `{heads}`' if heads else ''}: no format can hold it"
        opened = f"`{command('embed', trained.folder)} in.txt out.npz` and `init` open it"
        remedy = f"{opened}; docs/add-a/model.md: `architectures`"
        raise RecipeError(trained.folder, problem, "", remedy)
    form: Format = load("formats", kind)()
    return form


def readers(out: Path) -> str:
    return str(load("formats", files.read_table(out / MARK)["format"]).readers)


def check(target: Path, source: Path, *, anew: bool) -> None:
    """Raise RecipeError if `target` must not be replaced, or if it contains the model at `source`."""
    if target.exists() and source.exists() and target.resolve() in (source.resolve(), *source.resolve().parents):
        raise RecipeError(target, "is the model that is read, or contains it", "another folder")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not target.is_dir():
        raise RecipeError(target, "is a file", "a folder to write")
    if Run(target).status:
        raise RecipeError(target, f"is the folder of a `{Run(target).status.get('verb')}`", "another folder")
    if not anew:
        remedy = "name another folder, or add --anew, which moves this one aside"
        raise RecipeError(target, "stands", "a new folder", remedy)
