"""Folders of weights that are not runs: Hugging Face folders and imported ones.

config.json, model.safetensors                  Hugging Face's, converted when read; code in the folder is never run
settings.toml, model.safetensors, tokenizer/    written by `ordsmed import` (formats/); also a run's weights/
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from torch import Tensor

from ordsmed.base import files, menu
from ordsmed.base import settings as tables
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.menu import Menu
from ordsmed.base.say import many, say
from ordsmed.learn.objective import Network, Objective
from ordsmed.nn.config import expect, short, table_of, whole
from ordsmed.nn.model import TASK_CLASSES, ModelSettings, TaskKind, own_tensors
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import sentence_modules, weights

GENERATOR = "generator"  # ELECTRA's second network: a subfolder, or replaces `discriminator` in the name
EMBEDDINGS = "electra.embeddings."  # embedding tables and their norm in Hugging Face folders
FORMAT = "huggingface"  # the format in formats/ of Hugging Face folders
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")  # files with a vocabulary
MAX_SPARE = 1_024  # padding rows, if the folder has no vocabulary: more mean another vocabulary
MANY = 1_000_000  # labels: a larger number is a mistake
REMEDY = "download config.json again from the model's source"


@dataclass(frozen=True)
class Networks:
    """The [model], [objective] and [task] tables of a recipe."""

    objective: Annotated[Any, Menu("objectives")] = None
    model: Annotated[Any, Menu("models")] = None
    task: Annotated[Any, Menu("tasks")] = None

    def __post_init__(self) -> None:
        if self.objective is None and self.task is None:
            raise ValueError("objective: missing; wanted an [objective], or a [task]")

    @property
    def learned(self) -> Any:
        """Return the settings of the task if the model was fine-tuned, otherwise of the objective."""
        return self.task or self.objective


@dataclass(frozen=True)
class Imported:
    """A model read from a foreign format, with this library's settings and tensor names."""

    networks: Networks
    tokenizer: Tokenizer
    tensors: Mapping[str, Tensor]  # by this library's names; those of large files are read on access
    notes: tuple[str, ...] = ()  # messages for the user
    bare: bool = False  # is it a network without heads?


class Format(Protocol):
    """Interface of the formats in formats/."""

    wanted: ClassVar[str]  # the files it reads, for error messages; empty: write-only
    readers: ClassVar[str]  # programs that load its files
    families: ClassVar[tuple[str, ...]]  # model families it writes; empty: no fixed list

    def recognises(self, path: Path) -> bool:
        """Return whether a path looks like this format, even if it is damaged: `read` reports the damage."""

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        """Return the model at `path`; `overrides` change settings of its network."""

    def write(self, trained: Any, folder: Path) -> None:
        """Write the files of a trained model, except the card. A read-only format does not have this method."""


def is_imported(folder: Path) -> bool:
    return kind_of_folder(folder) is FolderKind.IMPORT


def networks(folder: Path) -> Networks:
    networks = decoded(tables.read(folder / SETTINGS), folder / SETTINGS)
    if networks.model is None:
        raise DataError(folder / SETTINGS, "has no [model]", "the network's sizes", "make or import the folder again")
    _check_size(networks.model, folder, folder / SETTINGS)
    return networks


def decoded(table: tables.Table, location: object) -> Networks:
    """Return the networks' settings of a recipe. Its other tables are ignored."""
    return tables.decode(
        Networks, {k: v for k, v in table.items() if k in ("model", "objective", "task")}, str(location)
    )


def fits(family: ModelSettings, tokenizer: Tokenizer, folder: Path) -> None:
    """Raise DataError if the tokenizer in a folder does not fit the network there."""
    try:
        family.fits(tokenizer)
    except RecipeError as error:
        raise DataError(f"{folder}: {error.place}", error.found, error.wanted, "add the model's tokenizer") from None


def tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a Hugging Face folder.

    In a folder of sentence-transformers it adds special tokens around a text as it does there.
    """
    return Tokenizer.load(folder, as_there=bool(sentence_modules.behind(folder)))


def tokenizer_of(folder: Path) -> Path | None:
    """Return the folder of the tokenizer whose ids the weights use; None for a character model without a head."""
    if not is_imported(folder):
        return folder
    return folder / TOKENIZER if getattr(networks(folder).learned, "head", True) else None


def settings(folder: Path) -> Any:
    if is_imported(folder):
        return networks(folder).model
    config, path = read_config(folder), folder / "config.json"
    sentence_modules.check_code(folder, config)
    kind = config.get("model_type", "")
    choices = {name: menu.load("models", name) for name in menu.entries("models")}
    families = {called: name for name, choice in choices.items() for called in (choice.model_type, *choice.other_types)}
    if not isinstance(kind, str) or kind not in families:
        code = f", whose code (auto_map, {short(config['auto_map'])}) is never run" if config.get("auto_map") else ""
        known = sorted(called for called, name in families.items() if called and choices[name].architectures)
        remedy = "use a model of one of these families, or train one (`ordsmed help make`)"
        raise DataError(path, f"model_type: found {short(kind)}{code}", f"one of {', '.join(known)}", remedy)
    settings = meant(families[kind], config, path)
    _check_class(folder, config, settings.architectures.values())
    _check_size(settings, folder, path)
    return settings


def _check_class(folder: Path, config: dict[str, Any], known: Iterable[str]) -> None:
    unknown = [name for name in classes(folder) if name not in known]
    if config.get("auto_map") and (unknown or not classes(folder)):
        code, network = short(config["auto_map"]), ", ".join(unknown) or "no known class"
        wanted = f"a class of transformers ({', '.join(sorted(set(known)))})"
        problem = f"names custom code (auto_map, {code}) for {network}, which is never run"
        remedy = "if its network is one of these, name its class in config.json and remove auto_map"
        raise DataError(folder / "config.json", problem, wanted, remedy)


def meant(family: str, config: dict[str, Any], path: Path) -> Any:
    """Return the settings of a model family from a table with the keys of Hugging Face's config.json."""
    kind = config.get("model_type", family)
    try:
        expect(config, quantization_config=(None,))
        settings = menu.load("models", family).from_hugging_face(config)
        whole(config, "vocab_size")
    except KeyError as error:
        raise DataError(path, f"has no {error}", f"the settings of a {kind}", REMEDY) from None
    except ValueError as error:
        raise DataError(path, f"{error}") from None
    except (TypeError, AttributeError, OverflowError, IndexError) as error:
        raise DataError(path, f"a setting of a wrong type ({error})", f"the settings of a {kind}", REMEDY) from None
    return settings


def _check_size(family: Any, folder: Path, location: Path) -> None:
    """Raise DataError if the weight files are too small for the sizes in the settings.

    This check comes before a network of that size is allocated.
    """
    try:
        size_in_bytes = sum(path.stat().st_size for path in weights.foreign_files(folder))
    except DataError:  # reported when the weights are read
        return
    layers, width, positions = family.layers, family.width, getattr(family, "positions", None)
    inner, embedded = getattr(family, "inner", getattr(family, "cells", 0)), getattr(family, "embedded", width)
    rows = getattr(family, "types", 0)
    names = getattr(family.smaller(64, 1), "names", None)  # a user-defined family may have no foreign names
    if positions and names and "model.places.weight" in names().table:
        rows += positions
    if layers * width * max(width, inner) + rows * embedded > size_in_bytes:
        weights.foreign_names(folder)  # raises a clearer error if a file is truncated
        places = f", and {positions} positions" if positions else ""
        problem = f"describes {layers} layers of width {width}, {inner} inside{places}"
        remedy = REMEDY if location.name == "config.json" else "make or import the folder again"
        raise DataError(location, problem, f"a network that fits {size_in_bytes:,} bytes of weights", remedy)


def load_into(objective: Objective, folder: Path, tokenizer: Tokenizer, *, body: bool = False) -> bool:
    """Load the tensors of a folder into an objective's networks. Return whether the folder has all their heads.

    Further networks (ELECTRA's generator) are read from a folder inside a Hugging Face folder or next to it. With
    `body`, a Hugging Face folder without the heads is accepted.
    """
    if is_imported(folder):
        _load_imported(objective, folder)
        return True
    whole = True
    filled: dict[int, Any] = {}  # loaded tensors by id: both folders must agree on shared tensors
    for name, network in objective.networks().items():
        bare = not name and _lacks_heads(network, folder)
        if bare and not body:
            raise no_heads(folder)
        if bare:
            whole = False
            network = dataclasses.replace(network, modules={"model": network.modules["model"]})
        _fill(network, beside(folder, name), tokenizer, filled, heads=not bare)
    return whole


def no_heads(folder: Path) -> DataError:
    holds = f"has a network without the required heads ({', '.join(classes(folder)) or 'of no class'})"
    return DataError(folder, holds, "a network with these heads", "`embed` and `finetune init=...` accept it")


def begin(network: Network, folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Load a pretrained network below a task head, and the parts of the head that start from pretrained tensors.

    Return the names of the tensors that keep their random weights.
    """
    tensors, begins = network.tensors(), network.settings.begins
    if is_imported(folder):
        return weights.adopt(tensors, weights.read(folder / WEIGHTS), begins, folder)
    wanted = weights.beginnings(tensors, begins).values()
    return weights.adopt(tensors, _read(wanted, network.settings, folder, tokenizer, heads=False), begins, folder)


def task_of(folder: Path) -> tuple[TaskKind, tuple[str, ...], bool] | None:
    """Return the head, the labels and whether it predicts a number, of a fine-tuned Hugging Face folder; else None."""
    config = read_config(folder)
    named = (classes(folder) or [""])[0]
    kind = next((kind for kind, end in TASK_CLASSES.items() if named.endswith(end)), None)
    if kind is None or kind == "span":
        return (kind, (), False) if kind else None
    try:
        labels = _labels(config)
        number = kind == "classify" and _tells_a_number(config, len(labels))
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(folder / "config.json", f"{error}") from None
    return kind, () if number else labels, number


def task_with(role: str, labels: tuple[str, ...], number: bool, longest: int) -> tuple[str, dict[str, Any]]:
    """Return the kind of the task with this head, and its settings as far as they follow from the arguments."""
    tasks = ((kind, menu.load("tasks", kind).of_others(role, labels, number)) for kind in menu.entries("tasks"))
    kind, table = next((kind, table) for kind, table in tasks if table is not None)
    return kind, {"length": min(menu.load("tasks", kind).length, longest), **table}


def classes(folder: Path) -> list[str]:
    names = read_config(folder).get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(folder / "config.json", f"architectures: found {short(names)}", "a list of classes", REMEDY)
    return names


def beside(folder: Path, name: str) -> Path:
    """Return the folder of an objective's network `name`: inside the first network's folder, or next to it."""
    if not name:
        return folder
    if path := _beside(folder, name):
        return path
    wanted = " or ".join(map(str, _candidates(folder, name)))
    raise DataError(folder, f"has no {name} next to it", wanted, f"put the {name} there")


def _beside(folder: Path, name: str) -> Path | None:
    return next((path for path in _candidates(folder, name) if (path / "config.json").exists()), None)


def _candidates(folder: Path, name: str) -> list[Path]:
    paths = [folder / name, folder.with_name(folder.name.replace("discriminator", name))]
    return [path for path in paths if path != folder]


def has_generator(folder: Path) -> bool:
    return _beside(folder, GENERATOR) is not None


def generator_table(folder: Path) -> tables.Table:
    """Return the settings of replaced-token detection for a Hugging Face discriminator and its generator.

    These are the generator's sizes and `share`, found by comparing the embedding tensors of both networks.
    """
    path = beside(folder, GENERATOR)
    small = settings(path)
    sizes = {name: getattr(small, name) for name in ("width", "layers", "heads", "inner")}
    discriminator, generator = weights.read_foreign(folder), weights.read_foreign(path)
    shared = {name for name, tensor in generator.items() if name in discriminator and tensor.equal(discriminator[name])}
    embeddings = {name for name in generator if name.startswith(EMBEDDINGS)}
    share = "none" if f"{EMBEDDINGS}word_embeddings.weight" not in shared else "words"
    return {"generator": sizes, "share": "embeddings" if embeddings <= shared else share}


def _lacks_heads(network: Network, folder: Path) -> bool:
    """Return whether a Hugging Face folder has no tensor of one of the network's heads.

    AutoModel saves a network without heads, and other classes save other heads.
    """
    table, stored = network.settings.names().table, weights.foreign_names(folder)
    heads: dict[str, set[str]] = {}
    for name in network.tensors():
        heads.setdefault(name.partition(".")[0], set()).add(str(table[name]))
    return any(stored.isdisjoint(hf_names) for head, hf_names in heads.items() if head != "model")


def _load_imported(objective: Objective, folder: Path) -> None:
    """Load an imported folder. Heads it does not have keep their weights; heads unknown here are ignored."""
    tensors, stored = own_tensors(objective), weights.read(folder / WEIGHTS)
    roles, stored_roles = ({name.partition(".")[0] for name in names} for names in (tensors, stored))
    lacks, more = roles - stored_roles - {"model"}, stored_roles - roles - {"model"}
    wanted = {k: v for k, v in tensors.items() if k.partition(".")[0] not in lacks}
    weights.fill(wanted, {k: v for k, v in stored.items() if k.partition(".")[0] not in more}, folder)
    if more:
        say(f"{folder}: unused weights of heads that this model does not have: {', '.join(sorted(more))}")
    for role in sorted(lacks):
        say(f"{folder}: has no {role}: it starts from random weights")


def _read(
    wanted: Iterable[str], family: ModelSettings, folder: Path, tokenizer: Tokenizer, *, heads: bool = True
) -> weights.Tensors:
    """Return tensors of a Hugging Face folder by this library's names, without padding rows of the vocabulary."""
    config = read_config(folder)
    if config.get("auto_map"):
        read_as = ", ".join(classes(folder))
        say(f"{folder}/config.json: its code (auto_map, {short(config['auto_map'])}) is never run; read as {read_as}")
    rows = config["vocab_size"]
    spare = rows - tokenizer.vocabulary
    if spare < 0 or (spare >= MAX_SPARE and not has_vocabulary(folder)):
        problem = f"has {rows} token rows, but the tokenizer has {tokenizer.vocabulary} tokens"
        wanted = "a row for each token" if spare < 0 else "the same vocabulary"
        raise DataError(folder, problem, wanted, "put the tokenizer that it was trained with there")
    if hasattr(family, "causal"):  # tensor names depend on the class that saved the weights
        family = dataclasses.replace(family, causal=settings(folder).causal)
    tensors = weights.from_foreign(weights.read_foreign(folder), wanted, family.names(), folder, heads=heads)
    for name in ("model.words.weight", "head.words.weight", "head.bias"):  # rows after the vocabulary are padding
        if name in tensors:
            if len(tensors[name]) != rows:
                raise DataError(folder / "config.json", f"vocab_size: found {rows}", f"{len(tensors[name])}", REMEDY)
            tensors[name] = tensors[name][: tokenizer.vocabulary].contiguous()
    if spare:
        say(f"{folder}: {many(spare, 'row')} after the vocabulary are padding and are dropped")
    return tensors


def has_vocabulary(folder: Path) -> bool:
    return any((folder / name).exists() for name in VOCABULARIES)


def _fill(network: Network, folder: Path, tokenizer: Tokenizer, filled: dict[int, Any], *, heads: bool) -> None:
    tensors = network.tensors()
    from_file = _read(tensors, network.settings, folder, tokenizer, heads=heads)
    weights.compare(from_file, tensors, folder)
    apart = [name for name, tensor in tensors.items() if id(tensor) in filled and not tensor.equal(from_file[name])]
    if apart:
        problem = f"its {apart[0]} differs from that of the network that shares it"
        raise DataError(folder, problem, "two networks trained together", 'or `share = "none"` in [objective]')
    weights.fill(tensors, from_file, folder)
    filled.update((id(tensor), name) for name, tensor in tensors.items())


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the label names in order. If config.json has none, use LABEL_0, LABEL_1, ... as transformers does."""
    count = config.get("num_labels") or 2
    if not isinstance(count, int) or not 0 < count < MANY:
        raise ValueError(f"num_labels: found {short(count)}; wanted a whole number, 1 or more")
    named = table_of(config, "id2label") or {f"{n}": f"LABEL_{n}" for n in range(count)}
    if wrong := [number for number in named if not number.isdecimal()]:
        raise ValueError(f"id2label: found the number {short(wrong[0])}; wanted whole numbers from 0 on")
    labels = {int(number): str(label) for number, label in named.items()}
    if set(labels) != set(range(len(labels))):
        raise ValueError(f"id2label: found the numbers {sorted(labels)}; wanted all from 0 on")
    return tuple(labels[number] for number in range(len(labels)))


def _tells_a_number(config: dict[str, Any], outputs: int) -> bool:
    wanted = "regression" if outputs == 1 else "single_label_classification"
    expect(config, problem_type=(None, wanted))
    return outputs == 1


def read_config(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").exists():
        raise DataError(folder, "has no config.json", "a run, or a folder written by Hugging Face's save_pretrained")
    table = files.read_json(folder / "config.json")
    if not isinstance(table, dict):
        raise DataError(folder / "config.json", f"found {short(table)}", "a table of settings", REMEDY)
    return table
