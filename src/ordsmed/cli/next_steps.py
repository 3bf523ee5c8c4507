"""Suggest the next commands for a folder, ready to be pasted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ordsmed.base import files, run, settings
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.folder import RECIPE, FolderKind, kind_of_folder, read_status
from ordsmed.base.menu import load, recipe_class
from ordsmed.base.screen import command, command_lines, shell_command
from ordsmed.cli.output import print_lines, speaks

MOST = 5  # lines
SERVING = ("starlette", "uvicorn")  # packages that `serve` needs
TRANSFORMERS = "from transformers import AutoModel; print(AutoModel.from_pretrained({}))"
TEXT = {"fill": "The [MASK] is here.", "generate": "The first"}  # example texts for verbs


def tell_next(folder: str | Path) -> None:
    if speaks() and (steps := next_steps(Path(folder))):
        print_lines(command_lines("next", *steps))


def next_steps(folder: Path) -> list[str]:
    """Return commands that a user may run next with a folder, by the folder's kind."""
    with contextlib.suppress(OrdsmedError):  # a damaged folder is reported by the command that uses it
        steps = STEPS.get(kind_of_folder(folder))
        return list(steps(folder))[:MOST] if steps else []
    return []


def opened_in_browser(page: str | Path) -> str:
    return shell_command("python3", "-m", "webbrowser", page)


def _of_corpus(folder: Path) -> Iterator[str]:
    yield command("corpus", "stats", folder)
    for verb in ("tokenizer", "encode"):
        out = f"work/{verb}/{folder.resolve().name}-wordpiece"
        yield command(verb, "folder-wordpiece", f"corpus={folder}", f"out={out}")


def _of_tokenizer(folder: Path) -> Iterator[str]:
    """Yield commands that encode the corpora it was trained on."""
    corpus, kind = settings.read(folder / RECIPE).get("corpus"), read_status(folder).get("kind")
    fitting = (
        name for name in run.recipe_names("encode") if name.startswith("folder-") and _kind_of_pieces(name) == kind
    )
    corpora = [corpus] if isinstance(corpus, str) else corpus
    if corpora and (recipe := next(fitting, None)):
        for name in corpora:
            out = "-".join([folder.resolve().name, *([Path(name).name] if corpora[1:] else [])])
            yield command("encode", recipe, f"corpus={name}", f"tokenizer={folder}", f"out=work/encode/{out}")


def _of_store(folder: Path) -> Iterator[str]:
    """Yield a command for a small recipe with the same kind of tokens, and one that lists all recipes."""
    kind, tiny = read_status(folder).get("kind"), run.BUILT_IN / "tiny"
    data = {name: settings.read(tiny / f"{name}.toml").get("data") for name in run.recipe_names("tiny")}
    if name := next((name for name, read in data.items() if read and _kind_of_pieces(str(read)) == kind), None):
        yield command("pretrain", f"tiny/{name}", f"data={folder}", f"out=work/pretrain/{folder.resolve().name}")
    yield command("recipes", "pretrain")


def _kind_of_pieces(encoding: str) -> str:
    """Return the kind of tokens of a built-in recipe of `encode`."""
    training = run.load(recipe_class("encode"), encoding)[0].tokenizer
    return str(getattr(run.load(recipe_class("tokenizer"), training)[0].tokenizer, "learns", ""))


def _of_pretraining(folder: Path) -> Iterator[str]:
    verbs = getattr(run.read_recipe(recipe_class("pretrain"), folder).objective, "VERBS", ())
    yield from (command(verb, folder, TEXT[verb]) for verb in verbs[:1])
    yield command("show", folder)
    yield command("recipes", "finetune")
    yield _export(folder)
    if all(map(find_spec, SERVING)):
        yield command("serve", folder)


def _of_finetuning(folder: Path) -> Iterator[str]:
    task = run.read_recipe(recipe_class("finetune"), folder).task
    if files := task.paths("dev")[:1]:
        yield command("evaluate", folder)
        yield command("predict", folder, *files, f"{folder.resolve().name}-predicted")
    texts = task.EXAMPLE if getattr(task, "pairs", True) else task.EXAMPLE[:1]
    yield from (command(verb, folder, *texts) for verb in task.VERBS)
    yield _export(folder, *(["--to", task.FORMAT] if getattr(task, "FORMAT", "") else []))


def _of_trials(folder: Path) -> Iterator[str]:
    yield from (_of_pretraining if read_status(folder).get("verb") == "pretrain" else _of_finetuning)(folder)


def _of_export(folder: Path) -> Iterator[str]:
    from ordsmed.weights.export import MARK

    form = load("formats", str(files.read_table(folder / MARK)["format"])) if (folder / MARK).is_file() else None
    code = getattr(form, "opened", None)  # for a format whose folders need different code
    opened = code(folder) if code else getattr(form, "OPENED", TRANSFORMERS).format(repr(str(folder)))
    yield shell_command("python3", "-c", opened)


def _of_index(folder: Path) -> Iterator[str]:
    yield command("search", folder, "a question")


def _export(folder: Path, *flags: str) -> str:
    return command("export", folder, f"{folder.resolve().name}-exported", *flags)


STEPS = {
    FolderKind.CORPUS: _of_corpus,
    FolderKind.TOKENIZER: _of_tokenizer,
    FolderKind.STORE: _of_store,
    FolderKind.PRETRAINING: _of_pretraining,
    FolderKind.FINETUNING: _of_finetuning,
    FolderKind.TRIALS: _of_trials,
    FolderKind.HUGGING_FACE: _of_export,
    FolderKind.INDEX: _of_index,
}
