"""Names of published models -> folders on this machine; nothing is downloaded.

    google/electra-base-discriminator  ->  models.toml  ->  /data/hub/google/electra-base-discriminator

The one table is `models.toml`: the file that $ORDSMED_MODELS names, or the one in the current folder:

    mirror = "/data/hub"                          # holds folders by their names
    cache = "kept/models"                         # what was found is copied there: the second time it alone is asked
    [names]
    "google/electra-small-discriminator" = "/data/electra-small"
    "bert-large-uncased" = "/data/vocab/bert-large-uncased-vocab.txt"

Where the table has no such name, Hugging Face's own cache is looked into; `NAME@REVISION` is a branch, tag or commit
there. $ORDSMED_CACHE, or a verb's --cache-dir, names a cache without a table.
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
OTHERS = ("*.h5", "*.msgpack", "*.ot", "onnx", "openvino", "coreml", ".*")  # the same weights once more, and notes
VERBS = ("pretrain", "finetune")  # that make models


def folder(name: str | Path) -> Path:
    """Return the path of a name: an existing folder or file, else what the cache, the table, a mirror or the hub has.

    A folder of `make` means the language model in it.
    """
    path, kept = Path(name), _named_cache()
    if path.exists():
        return Path(stages.stage(path, stages.MODEL))
    if path.is_absolute() or ".." in path.parts:
        kept = None
    repository, sign, revision = str(name).partition("@")
    renamed = [MOVED.get(repository), *(old for old, new in MOVED.items() if new == repository)]
    names = [str(name), *(f"{known}{sign}{revision}" for known in renamed if known)]
    if kept and (copies := [copy for known in names if (copy := _copy_of(kept / "models" / known))]):
        return copies[0]
    for known in names:
        for place in _candidates(known):
            if place.exists():
                return _copied(place, kept / "models" / known) if kept else place
    return path


def is_address(name: object) -> bool:
    """Return whether a name is the address of a served model."""
    return str(name).startswith(("http://", "https://"))


def cache() -> Path:
    """Where what was taken over is kept: the cache that is named, else the user's."""
    return _named_cache() or files.user_cache()


def remedy(name: str | Path) -> str:
    """What somebody can do whose name leads nowhere: what is near by, a recipe, or where published names are told."""
    text = str(name)
    if suggestion := _recipe(text) or _near(text):
        return suggestion
    if published := _published(text):
        return published
    runs = [str(path) for path in _made()]
    there = f"there are: {', '.join(runs[:4])}{' ...' if runs[4:] else ''}; " if runs else ""
    return there + "`ordsmed recipes` lists what can be made"


def remedy_of_others(name: str | Path) -> str:
    """The same for who names a model of others: nothing that was made here is meant."""
    return _beside(Path(name)) or _published(str(name))


def _published(name: str) -> str:
    """Where a published name is told which folder it means."""
    if not looks_published(name):
        return ""
    table = _table_path()
    state = f"{table} does not lead to it" if table else f"there is no {TABLE}"
    return f'{state}: add `"{name}" = "FOLDER"` under [names], or `mirror = "FOLDER"`'


def _recipe(name: str) -> str:
    """For who names a recipe where its run is meant."""
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
    return f"did you mean `{folder}`?" if folder.is_dir() else f"a recipe is: `ordsmed {verb} {title}` makes the run"


def _near(name: str) -> str:
    """The nearest folder: beside the one that is named, or among those that were made here."""
    path = Path(name)
    if suggestion := _beside(path):
        return suggestion
    runs = {key: p for p in reversed(_made()) for key in (p.name, f"{p.parent.name}/{p.name}")}
    like = [] if path.is_absolute() else near(name, runs) or near(path.name, runs)
    return f"did you mean `{runs[like[0]]}`?" if like else ""


def _beside(path: Path) -> str:
    """The folder in the same place whose name is much like it."""
    with contextlib.suppress(OSError):
        folders = [p.name for p in path.parent.iterdir() if p.is_dir() and not p.name.startswith(".")]
        if like := near(path.name, folders):
            return f"did you mean `{path.with_name(like[0])}`?"
    return ""


def _made() -> list[Path]:
    """The runs that stand where recipes put them."""
    return [p for verb in VERBS for p in sorted((Path("work") / verb).glob("*/")) if not p.name.startswith(".")]


def _candidates(name: str) -> list[Path]:
    """Where a model of this name may stand, likeliest first."""
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
    """Hugging Face's cache, where its environment variables put it; importing huggingface_hub takes 70 to 190 ms."""
    home = os.environ.get("HF_HOME", os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    cache = os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub")))
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def _named_cache() -> Path | None:
    """The cache that the environment or the table names."""
    if named := os.environ.get(CACHE):
        return Path(named)
    table, base = _table()
    return base / table["cache"] if "cache" in table else None


def _copy_of(place: Path) -> Path | None:
    """What the cache has under a name: a folder, or a file with the ending that it had."""
    if place.is_dir():
        return place
    neighbors = place.parent.iterdir() if place.parent.is_dir() else ()
    return next((path for path in sorted(neighbors) if path.stem == place.name and path.is_file()), None)


def _copied(place: Path, target: Path) -> Path:
    """A copy in the cache, whole or not at all; made once, while others wait."""
    with run.locked(target):
        if copy := _copy_of(target):
            return copy
        if place.is_file():
            with files.writing(target.with_name(target.name + place.suffix)) as file:
                file.write(place.read_bytes())
        else:
            twice = ("*.bin",) if any(place.glob("*.safetensors")) else ()
            with files.making(target) as part, files.survive_disk(target):
                shutil.copytree(place, part, ignore=shutil.ignore_patterns(*OTHERS, *twice), dirs_exist_ok=True)
        say(f"{place}: copied to {target.parent}, where it is looked for from now on")
        return _copy_of(target) or place


def _table_path() -> Path | None:
    named = os.environ.get("ORDSMED_MODELS")
    path = Path(named) if named else Path(TABLE)
    if named and not path.is_file():
        raise RecipeError("ORDSMED_MODELS", f"found {named}, no such file", f"a {TABLE}")
    return path if path.is_file() else None


def _table() -> tuple[dict[str, Any], Path]:
    """The table, and the folder that its paths are relative to."""
    path = _table_path()
    if path is None:
        return {}, Path()
    table = settings.read(path)
    names = table.get("names", {})
    odd = [key for key in table if key not in KEYS]
    folders = [table.get("mirror", ""), table.get("cache", "")]
    texts = isinstance(names, dict) and all(isinstance(v, str) for v in [*names.values(), *folders])
    if odd or not texts:
        problem = f"unknown setting `{odd[0]}`" if odd else "a place that is no text"
        raise RecipeError(path, problem, 'mirror = "FOLDER", cache = "FOLDER" and [names] with "NAME" = "FOLDER"')
    return table, path.parent
