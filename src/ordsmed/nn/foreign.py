"""Hugging Face folders as starting weights: config.json -> settings, tensors -> ours; nothing of theirs is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ordsmed.base import files, menu
from ordsmed.base.errors import DataError, nearest
from ordsmed.base.say import say
from ordsmed.nn import weights


def settings(folder: Path) -> Any:
    """The settings of the network that a Hugging Face folder holds."""
    config = read_config(folder)
    kind = config.get("model_type", "")
    families = {menu.load("models", name).model_type: name for name in menu.entries("models")}
    if kind not in families:
        raise DataError(folder / "config.json", f"model_type `{kind}`", "", nearest(kind, families))
    try:
        return menu.load("models", families[kind]).from_hugging_face(config)
    except KeyError as error:
        raise DataError(folder / "config.json", f"has no {error}", f"the settings of a {kind}") from None
    except ValueError as error:
        raise DataError(folder / "config.json", f"{error}") from None
    except TypeError as error:
        raise DataError(
            folder / "config.json", f"a setting of another kind ({error})", f"the settings of a {kind}"
        ) from None


def load_into(objective: Any, folder: Path, tokenizer: Any) -> None:
    """Put the tensors of a Hugging Face folder into an objective's network and heads; others stand beside it."""
    filled: dict[int, Any] = {}  # networks may share tensors: both folders must hold the same then
    for name, network in objective.networks().items():
        _fill(network, beside(folder, name), tokenizer, filled)


def beside(folder: Path, name: str) -> Path:
    """Where the folder of another network of an objective stands: in the first one's, or next to it by its name."""
    if not name:
        return folder
    places = [folder / name, folder.with_name(folder.name.replace("discriminator", name))]
    found = next((p for p in places if p != folder and (p / "config.json").exists()), None)
    if found is None:
        raise DataError(
            folder,
            f"has no {name} beside it",
            " or ".join(str(p) for p in places if p != folder),
            f"put the {name} there",
        )
    return found


def _fill(network: Any, folder: Path, tokenizer: Any, filled: dict[int, Any]) -> None:
    rows = read_config(folder).get("vocab_size")
    if not _holds(rows, tokenizer.vocabulary):
        raise DataError(
            folder, f"has {rows} token rows, the data's tokenizer {tokenizer.vocabulary}", "the same vocabulary",
            f"encode with `tokenizer = \"{folder}\"`",
        )  # fmt: skip
    own = network.tensors()
    ours = weights.from_foreign(weights.read_foreign(folder), own, network.settings.names(), folder)
    for name in ("model.words.weight", "head.bias"):  # rows behind the vocabulary are padding
        if name in ours:
            ours[name] = ours[name][: tokenizer.vocabulary].contiguous()
    if rows != tokenizer.vocabulary:
        say(f"{folder}: {rows - tokenizer.vocabulary} rows behind the vocabulary are padding, and left out")
    weights.compare(ours, own, folder)
    apart = [name for name, tensor in own.items() if id(tensor) in filled and not tensor.equal(ours[name])]
    if apart:
        found = f"its {apart[0]} is not that of the network it shares it with"
        raise DataError(folder, found, "two networks that learned together", 'or `share = "none"` in [objective]')
    weights.fill(own, ours, folder)
    filled.update((id(tensor), name) for name, tensor in own.items())


def _holds(rows: Any, vocabulary: int) -> bool:
    """As many rows as tokens, or some of padding behind them (to a multiple of 8 and more, as NVIDIA's codes do)."""
    return rows == vocabulary or (isinstance(rows, int) and vocabulary < rows < vocabulary + 1024 and rows % 8 == 0)


def expect(config: dict[str, Any], **understood: tuple[Any, ...]) -> None:
    """Refuse a config.json that asks for what a network of ours does not do; a key that is not there is fine."""
    for key, values in understood.items():
        if key in config and config[key] not in values:
            raise ValueError(f"{key}: found {config[key]}; wanted {' or '.join(str(v) for v in values)}")


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says."""
    if not (folder / "config.json").exists():
        raise DataError(folder, "holds no config.json", "a run, or a folder that Hugging Face's save_pretrained made")
    return dict(files.read_json(folder / "config.json"))
