"""Import: a model from files of another format becomes a folder of ours, for embed, export and `init`.

folder or file -> the format in formats/ that recognizes it -> .out.part/ settings.toml, model.safetensors, tokenizer/
                                                                                                    -> renamed to out/
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import ordsmed
from ordsmed.apply.export import check
from ordsmed.base import files, hub, settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.menu import entries, kind_of, load
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.binary import bundle
from ordsmed.nn import weights
from ordsmed.nn.foreign import Format, Imported
from ordsmed.nn.renaming import Held


def take_over(source: str | Path, out: str | Path, overrides: Sequence[str] = (), *, anew: bool = False) -> list[str]:
    """Write the folder, whole or not at all; lines that tell of it."""
    target, place = Path(out), hub.folder(source)
    for word in overrides:
        if not word.startswith("model."):
            raise RecipeError(f"`{word}`", "changes no setting of the model", "model.key=value")
    check(target, place, anew=anew)
    form = recognised(place)
    found = form.read(place, overrides)
    with files.making(target) as folder:
        if isinstance(found.tensors, Held):
            weights.write_each(folder / WEIGHTS, found.tensors.shapes, found.tensors)
        else:
            weights.write(folder / WEIGHTS, found.tensors)
        files.write_text(folder / SETTINGS, settings.write(found.networks))
        found.tokenizer.save(folder / TOKENIZER)
        files.write_text(folder / "README.md", _describe(found, target.name, place, kind_of(form)))
    for note in found.notes:
        say(note)
    size = sum(math.prod(shape) for shape in weights.shapes(target / WEIGHTS).values())
    kind = kind_of(found.networks.model)
    told = f"{target}: {kind} with {size:,} numbers, from {place} ({kind_of(form)})"
    return [told, f"next: {command('embed', target)} in.txt out.h5"]


def recognised(place: Path) -> Format:
    """The format of a folder or file."""
    formats: list[Format] = [load("formats", kind)() for kind in entries("formats")]
    wanted = "; or ".join(form.wanted for form in formats)
    if not place.exists() and not bundle.find(place):  # of a checkpoint of TensorFlow the prefix may be named
        raise RecipeError(place, "no such folder or file", wanted, hub.remedy_of_others(place))
    kind = kind_of_folder(place)
    if kind.made or kind is FolderKind.IMPORT:
        raise RecipeError(place, "is a folder of ours", "a model of another format", "it is opened as it is")
    bundle.refuse_first_version(place)
    for form in formats:
        if form.recognises(place):
            return form
    _refuse_unknown(place)
    raise RecipeError(place, "is of no known format", wanted)


def _refuse_unknown(place: Path) -> None:
    """Say what a checkpoint holds that is none of the networks that are known here."""
    prefix = bundle.find(place)
    if names := bundle.names(prefix) if prefix else frozenset():
        wrong = f"is a TensorFlow checkpoint of an unknown network: {weights.some(sorted(filter(None, names)))}"
        raise DataError(place, wrong, "bert/..., electra/..., model/wte (GPT-2) or lm/... (ELMo)")


def _describe(found: Imported, name: str, place: Path, form: str) -> str:
    """What the folder says of itself to a person."""
    lines = [f"# {name}", f"Taken over by ordsmed {ordsmed.__version__} from `{place.name}` ({form})."]
    return "\n\n".join([*lines, *found.notes, "`ordsmed embed`, `export` and `pretrain init=...` take it."]) + "\n"
