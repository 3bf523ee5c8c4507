"""Find the folders of published models on this machine. Nothing is downloaded.

    google/electra-base-discriminator  ->  models.toml  ->  /data/hub/google/electra-base-discriminator

`models.toml` is the file that $ORDSMED_MODELS names, or the one in the current folder:

    mirror = "/data/hub"                          # has folders by their names
    cache = "kept/models"                         # models are copied there, and only read from there afterwards
    [names]
    "google/electra-small-discriminator" = "/data/electra-small"
    "bert-large-uncased" = "/data/vocab/bert-large-uncased-vocab.txt"

A name that is not in the table is looked up in Hugging Face's own cache, where `NAME@REVISION` selects a branch, tag or
commit. $ORDSMED_CACHE, or a verb's --cache-dir, sets a cache without a table.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from ordsmed.base import files, run, settings, stages
from ordsmed.base.errors import RecipeError, near
from ordsmed.base.other_names import MOVED, looks_published
from ordsmed.base.say import say

TABLE, CACHE = "models.toml", "ORDSMED_CACHE"
KEYS = ("mirror", "cache", "names")
# weights in other formats, which are not copied
OTHER_FORMATS = ("*.h5", "*.msgpack", "*.ot", "onnx", "openvino", "coreml", ".*")
VERBS = ("pretrain", "finetune")  # verbs that make models


def folder(name: str | Path) -> Path:
    """Return the folder of a model, which is given by a path or by a published name.

    A name is looked up in the cache, the table, the mirror and Hugging Face's cache. For an output folder of `make`,
    return the folder of its language model.
    """
    path, kept = Path(name), _configured_cache()
    if path.exists():
        return Path(stages.stage(path, stages.MODEL))
    if path.is_absolute() or ".." in path.parts:
        kept = None
    repository, at, revision = str(name).partition("@")
    renamed = [MOVED.get(repository), *(old for old, new in MOVED.items() if new == repository)]
    names = [str(name), *(f"{known}{at}{revision}" for known in renamed if known)]
    if kept and (copies := [copy for known in names if (copy := _copy_of(kept / "models" / known))]):
        return copies[0]
    for known in names:
        for location in _candidates(known):
            if location.exists():
                return _copy_to_cache(location, kept / "models" / known) if kept else location
    return path


def is_address(name: object) -> bool:
    return str(name).startswith(("http://", "https://"))


def cache() -> Path:
    """Return the cache for imported models: the configured one, or the user's cache."""
    return _configured_cache() or files.user_cache()


def remedy(name: str | Path) -> str:
    """Return a remedy for a name without a folder: a similar name, a recipe, or an entry in models.toml."""
    text = str(name)
    if suggestion := _recipe(text) or _near(text):
        return suggestion
    if published := _published(text):
        return published
    runs = [str(path) for path in _default_runs()]
    there = f"there are: {', '.join(runs[:4])}{' ...' if runs[4:] else ''}; " if runs else ""
    return there + "`ordsmed recipes` lists recipes"


def remedy_for_imported(name: str | Path) -> str:
    """Return a remedy for a missing model of another program: a similar folder name, or an entry in models.toml."""
    return _near_folder(Path(name)) or _published(str(name))


def _published(name: str) -> str:
    if not looks_published(name):
        return ""
    table = _table_path()
    state = f"{table} has no such name" if table else f"there is no {TABLE}"
    return f'{state}: add `"{name}" = "FOLDER"` under [names], or `mirror = "FOLDER"`'


def _recipe(name: str) -> str:
    """Return a suggestion if `name` is a recipe instead of a run."""
    known = next(
        (recipe for recipe in (name, *(f"{verb}/{name}" for verb in VERBS)) if recipe in run.recipe_names()), None
    )
    if known is None:
        return ""
    table = run.read_table(run.find_recipe(known, ""), "")
    verb = "finetune" if "task" in table else "pretrain" if "phase" in table else ""
    if not verb:
        return ""
    title = known.removeprefix(f"{verb}/")
    folder = Path("work") / verb / run.title(title)
    return (
        f"did you mean `{folder}`?"
        if folder.is_dir()
        else f"a recipe has this name: `ordsmed {verb} {title}` makes the run"
    )


def _near(name: str) -> str:
    path = Path(name)
    if suggestion := _near_folder(path):
        return suggestion
    runs = {key: p for p in reversed(_default_runs()) for key in (p.name, f"{p.parent.name}/{p.name}")}
    like = [] if path.is_absolute() else near(name, runs) or near(path.name, runs)
    return f"did you mean `{runs[like[0]]}`?" if like else ""


def _near_folder(path: Path) -> str:
    with contextlib.suppress(OSError):
        folders = [p.name for p in path.parent.iterdir() if p.is_dir() and not p.name.startswith(".")]
        if like := near(path.name, folders):
            return f"did you mean `{path.with_name(like[0])}`?"
    return ""


def _default_runs() -> list[Path]:
    return [p for verb in VERBS for p in sorted((Path("work") / verb).glob("*/")) if not p.name.startswith(".")]


def _candidates(name: str) -> list[Path]:
    """Return the possible folders of a model, likeliest first."""
    table, base = _table()
    candidates = [base / table["names"][name]] if name in table.get("names", {}) else []
    if "mirror" in table:
        candidates.append(base / table["mirror"] / name)
    repository, _, revision = name.partition("@")
    cached = _hub_cache() / f"models--{repository.replace('/', '--')}"
    ref = cached / "refs" / (revision or "main")
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    return [*candidates, cached / "snapshots" / commit] if commit else candidates


def _hub_cache() -> Path:
    """Return Hugging Face's cache from its environment variables. Importing huggingface_hub would take 70 to 190 ms."""
    home = os.environ.get("HF_HOME", os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    cache = os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub")))
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def _configured_cache() -> Path | None:
    """Return the cache folder that $ORDSMED_CACHE or the table sets, or None."""
    if named := os.environ.get(CACHE):
        return Path(named)
    table, base = _table()
    return base / table["cache"] if "cache" in table else None


def _copy_of(location: Path) -> Path | None:
    """Return the cached copy of a model at `location`, which is a folder, or a file with any suffix; else None."""
    if location.is_dir():
        return location
    neighbors = location.parent.iterdir() if location.parent.is_dir() else ()
    return next((path for path in sorted(neighbors) if path.stem == location.name and path.is_file()), None)


def _copy_to_cache(path: Path, target: Path) -> Path:
    """Copy a model to the cache and return the copy. Other processes wait for it."""
    with run.locked(target):
        if copy := _copy_of(target):
            return copy
        if path.is_file():
            with files.writing(target.with_name(target.name + path.suffix)) as file:
                file.write(path.read_bytes())
        else:
            duplicates = ("*.bin",) if any(path.glob("*.safetensors")) else ()
            with files.making(target) as part, files.survive_disk(target):
                ignore = shutil.ignore_patterns(*OTHER_FORMATS, *duplicates)
                shutil.copytree(path, part, ignore=ignore, dirs_exist_ok=True)
        say(f"{path}: copied to {target.parent}; the copy is used from now on")
        return _copy_of(target) or path


def _table_path() -> Path | None:
    named = os.environ.get("ORDSMED_MODELS")
    path = Path(named) if named else Path(TABLE)
    if named and not path.is_file():
        raise RecipeError("ORDSMED_MODELS", f"found {named}, no such file", f"a {TABLE}")
    return path if path.is_file() else None


def _table() -> tuple[dict[str, Any], Path]:
    path = _table_path()
    if path is None:
        return {}, Path()
    table = settings.read(path)
    names = table.get("names", {})
    unknown = [key for key in table if key not in KEYS]
    folders = [table.get("mirror", ""), table.get("cache", "")]
    texts = isinstance(names, dict) and all(isinstance(v, str) for v in [*names.values(), *folders])
    if unknown or not texts:
        problem = f"unknown setting `{unknown[0]}`" if unknown else "a path that is not a string"
        raise RecipeError(path, problem, 'mirror = "FOLDER", cache = "FOLDER" and [names] with "NAME" = "FOLDER"')
    return table, path.parent
