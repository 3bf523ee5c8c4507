"""Write examples given in Python, as a dict of lists or a `datasets.Dataset`, to files in the run's folder.

    train={"text": [...], "label": [...]}   ->   OUT/examples/train-3f2a91c0b7d4.jsonl, and task.train names it

A file is named after its contents, so the same call reuses it, and the run can be resumed by its folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.api.keywords import words_of
from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import EXAMPLES, kind_of_folder
from ordsmed.base.settings import words
from ordsmed.learn.task import Task
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.request import folder_of, read
from ordsmed.weights.trained_model import Trained

SPLITS = ("train", "dev")
WANTED = "a path, paths, a dict of lists, or a datasets.Dataset"
Columns = dict[str, list[Any]]


def with_example_files(name: str, overrides: Sequence[str], settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with examples replaced by the paths of files that they are written to."""
    settings, examples = _without_examples(settings)
    if not examples:
        return settings
    if kind_of_folder(name).made:
        raise RecipeError(
            name, "is a run, but examples are given", "", "leave them out: a run resumes with its own data"
        )
    paths: dict[str, object] = {f"task.{split}": split for split in examples}
    recipe = read(Finetuning, name, words_of(Finetuning, name, overrides, settings | paths))
    folder = folder_of(recipe, name) / EXAMPLES
    for split, data in examples.items():
        location = f"task.{split}"
        ending, text, options = recipe.task.example_file(location, _columns(location, data))
        if as_files := [s for s in SPLITS if options and s not in examples and recipe.task.paths(s)]:
            problem = f"found a file next to columns as task.{split}"
            raise RecipeError(f"task.{as_files[0]}", problem, "both as files, or both as columns", "or `task.dev=[]`")
        settings |= {location: str(_write(folder, split, ending, text)), **{f"task.{k}": v for k, v in options.items()}}
    return settings


@contextlib.contextmanager
def evaluated_files(trained: Trained, data: object) -> Iterator[tuple[object, list[str]]]:
    """Yield paths unchanged, or examples as a temporary file, and the settings to read them with."""
    if _is_path(data) or not isinstance(trained.objective, Task):
        yield data, []
        return
    ending, text, options = trained.learned.example_file("evaluate", _columns("evaluate", data))
    with tempfile.TemporaryDirectory() as folder:
        yield str(_write(Path(folder), "examples", ending, text)), list(words(options, "task."))


def _write(folder: Path, split: str, ending: str, text: str) -> Path:
    path = folder / f"{split}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{ending}"
    if not path.exists():  # a new modification time would look like changed data to a run
        with files.survive_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
    return path


def _without_examples(settings: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the settings without examples, and the examples by their split."""
    rest, examples = dict(settings), dict[str, object]()
    table = rest.get("task")
    for split in SPLITS:
        if isinstance(table, Mapping) and not _is_path(table.get(split)):
            examples[split] = table[split]
            table = {key: value for key, value in table.items() if key != split}
            rest |= {"task": table}
            if not table:
                del rest["task"]
        if not _is_path(rest.get(f"task.{split}")):
            examples[split] = rest.pop(f"task.{split}")
    return rest, examples


def _is_path(value: object) -> bool:
    """Return whether a setting names files. None counts as a path."""
    several = value if isinstance(value, list | tuple) else [value]
    return all(entry is None or isinstance(entry, str | Path) for entry in several)


def _columns(location: str, data: object) -> Columns:
    """Return examples as lists of equal length, with class numbers replaced by their names if the data has them."""
    if isinstance(data, Mapping) and data and all(hasattr(value, "column_names") for value in data.values()):
        raise RecipeError(location, f"found the splits {', '.join(map(str, data))}", "one of them")
    features = getattr(data, "features", None) or {}
    if hasattr(data, "column_names") and hasattr(data, "to_dict"):
        data = data.to_dict()
    if not isinstance(data, Mapping):
        raise RecipeError(location, f"found {type(data).__name__}", WANTED)
    columns = {str(name): _values(location, str(name), values) for name, values in data.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1 or not any(lengths.values()):
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items()) or "no columns"
        raise RecipeError(location, f"found rows: {listed}", "columns of the same length, with at least one row")
    return {name: [_named(value, features.get(name)) for value in values] for name, values in columns.items()}


def _values(location: str, name: str, values: object) -> list[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple):
        raise RecipeError(location, f"found {type(values).__name__} as `{name}`", "a list with a value for each row")
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def _named(value: object, feature: object) -> object:
    """Return the name of a class number, if the feature has names; for the number -1 (unknown) an empty string."""
    if isinstance(value, list | tuple):
        return [_named(entry, getattr(feature, "feature", None)) for entry in value]
    names = getattr(feature, "names", None)
    if not names or not isinstance(value, int):
        return value
    return names[value] if value >= 0 else ""
