"""Names of published models -> folders on this machine; nothing is downloaded.

    google/electra-base-discriminator  ->  models.toml  ->  /data/hub/google/electra-base-discriminator

The one table is `models.toml`: the file that $ORDSMED_MODELS names, or the one in the current folder:

    mirror = "/data/hub"                          # holds folders by their names
    [names]
    "google/electra-small-discriminator" = "/data/electra-small"

Where it tells nothing, Hugging Face's own cache is looked into.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError

TABLE = "models.toml"
# names from before organisations had to be named
MOVED = {
    "bert-base-uncased": "google-bert/bert-base-uncased", "bert-base-cased": "google-bert/bert-base-cased",
    "bert-large-uncased": "google-bert/bert-large-uncased", "bert-large-cased": "google-bert/bert-large-cased",
    "bert-base-multilingual-cased": "google-bert/bert-base-multilingual-cased",
    "roberta-base": "FacebookAI/roberta-base", "roberta-large": "FacebookAI/roberta-large",
    "gpt2": "openai-community/gpt2", "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large", "gpt2-xl": "openai-community/gpt2-xl",
}  # fmt: skip


def folder(name: str | Path) -> Path:
    """The folder that a name means: itself if it stands, else what the table, its mirror or the cache has."""
    path = Path(name)
    if path.is_dir():
        return path
    for known in _spellings(str(name)):
        for place in _places(known):
            if place.is_dir():
                return place
    return path


def remedy(name: str | Path) -> str:
    """What somebody can do whose name leads nowhere."""
    if Path(name).is_absolute() or str(name).count("/") > 1:
        return ""
    table = _table_path()
    told = f"{table} does not lead to it" if table else f"there is no {TABLE}"
    return f'{told}: add `"{name}" = "FOLDER"` under [names], or `mirror = "FOLDER"`'


def _spellings(name: str) -> list[str]:
    older = [old for old, new in MOVED.items() if new == name]
    return [name, *([MOVED[name]] if name in MOVED else []), *older]


def _places(name: str) -> list[Path]:
    """Where a model of this name may stand, likeliest first."""
    table, base = _table()
    found = [base / table["names"][name]] if name in table.get("names", {}) else []
    if "mirror" in table:
        found.append(base / table["mirror"] / name)
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cached = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{name.replace('/', '--')}"
    main = cached / "refs" / "main"
    if main.is_file():
        found.append(cached / "snapshots" / main.read_text(encoding="utf-8").strip())
    return found


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
    odd = [key for key in table if key not in ("mirror", "names")]
    texts = isinstance(names, dict) and all(isinstance(v, str) for v in [*names.values(), table.get("mirror", "")])
    if odd or not texts:
        found = f"unknown setting `{odd[0]}`" if odd else "a place that is no text"
        raise RecipeError(path, found, 'mirror = "FOLDER" and [names] with "NAME" = "FOLDER"')
    return table, path.parent
