"""Hugging Face folders as starting weights: config.json -> settings, tensors -> ours; nothing of theirs is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ordsmed.base import files, menu
from ordsmed.base.errors import DataError, nearest
from ordsmed.nn import weights


def settings(folder: Path) -> Any:
    """The settings of the network that a Hugging Face folder holds."""
    config = _config(folder)
    kind = config.get("model_type", "")
    if kind not in menu.entries("models"):
        raise DataError(folder / "config.json", f"model_type `{kind}`", "", nearest(kind, menu.entries("models")))
    try:
        return menu.load("models", kind).from_hugging_face(config)
    except KeyError as error:
        raise DataError(folder / "config.json", f"has no {error}", f"the settings of a {kind}") from None
    except ValueError as error:
        raise DataError(folder / "config.json", f"{error}") from None


def load_into(objective: Any, folder: Path, tokenizer: Any) -> None:
    """Put the tensors of a Hugging Face folder into an objective's network and head."""
    rows = _config(folder).get("vocab_size")
    if rows != tokenizer.vocabulary:
        raise DataError(
            folder, f"has {rows} token rows, the data's tokenizer {tokenizer.vocabulary}", "the same vocabulary",
            f"encode with `tokenizer = \"{folder}\"`",
        )  # fmt: skip
    names = objective.model_settings.names()
    theirs = weights.read_foreign(folder)
    ours = weights.from_foreign(theirs, weights.own_tensors(objective), names, folder)
    weights.load_into(objective, ours, folder)


def expect(config: dict[str, Any], **understood: tuple[Any, ...]) -> None:
    """Refuse a config.json that asks for what a network of ours does not do; a key that is not there is fine."""
    for key, values in understood.items():
        if key in config and config[key] not in values:
            raise ValueError(f"{key}: found {config[key]}; wanted {' or '.join(str(v) for v in values)}")


def _config(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").exists():
        raise DataError(folder, "holds no config.json", "a run, or a folder that Hugging Face's save_pretrained made")
    return dict(files.read_json(folder / "config.json"))
