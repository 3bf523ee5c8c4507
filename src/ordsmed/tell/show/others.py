"""Models of other formats, as `import` reads them: network, vocabulary, and what an import would leave out.

FOLDER|FILE|PREFIX -> the format in formats/ that recognizes it -> kind, sizes, vocabulary, what would be left out
google/electra-base-discriminator -> its folder in the table of names -> the same
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import hub, run, settings
from ordsmed.base.binary import bundle
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many
from ordsmed.nn.model import ModelSettings
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, google, import_folder, weights
from ordsmed.weights.foreign import Format
from ordsmed.weights.renaming import LazyTensors

VOCABULARIES = (".json", ".txt", ".bpe", ".model", ".vocab")  # suffixes of tokenizer files


def place_of(name: str) -> Path | None:
    """Return the path of another project's model that a name means, or None."""
    location = hub.folder(name)
    if kind_of_folder(location).made or not import_folder.exists(location):
        return None
    listed = location.is_file() and (str(location) != name or location.suffix in VOCABULARIES)
    return location if listed or bundle.find(location) or import_folder.known(location) else None


def lines(name: str, path: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Describe a model; raise the errors of an import. `overrides`: settings that its files do not contain."""
    form = import_folder.known(path)
    location = [] if str(path) == name else [f"  found at {path}"]
    if form is None and path.is_file():
        return [f"{name}: a vocabulary", *location, f"  {_pieces(Tokenizer.load(path))}"]
    form = form or import_folder.recognised(path)
    return [f"{name}: {kind_of(form)}", *location, *(f"  {line}" for line in _details(form, path, overrides))]


def refuse_absent(name: str) -> None:
    """Raise an error for a name that is neither a recipe nor a folder; names of other projects' models get a remedy."""
    if hub.is_address(name):
        raise RecipeError(
            name, "is the address of a served model", "a recipe or a folder", "open its page in a browser"
        )
    owners = {recipe.split("/")[0] for recipe in run.recipe_names()}
    if import_folder.exists(hub.folder(name)) or name.split("/")[0] in owners:
        return
    if remedy := hub.remedy_for_imported(name):
        raise RecipeError(name, "is neither a recipe nor a folder", "", remedy)


def _details(form: Format, path: Path, overrides: Sequence[str]) -> list[str]:
    if kind_of(form) == foreign.FORMAT:
        if overrides:
            raise RecipeError(path, f"is a Hugging Face folder, but {overrides[0]} is given", "no override")
        return _hugging_face(form, path)
    imported = form.read(path, overrides)
    tensors = imported.tensors
    shapes = (
        tensors.shapes
        if isinstance(tensors, LazyTensors)
        else {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    )
    omitted = [note.removeprefix(f"{path}: ") for note in imported.notes]
    prefix = bundle.find(path)
    slots = sum(bool(google.SLOTS.search(name)) for name in bundle.names(prefix)) if prefix else 0
    if slots:
        omitted.append(f"{many(slots, 'tensor')} of its optimizer are left out")
    networks = imported.networks
    learned = None if imported.bare else networks.learned
    return [*_network(networks.model, learned), *_sizes(shapes.values(), imported.tokenizer), *omitted]


def _hugging_face(form: Any, path: Path) -> list[str]:
    model, tokenizer = foreign.settings(path), Tokenizer.load(path)
    learned = form.learned(path, model)
    with unfilled():
        network = learned.build(model, tokenizer).networks()[""]
    shapes = weights.foreign_shapes(path)
    unused = weights.left_out(shapes, network.tensors(), network.settings.names())
    notes = [f"unused weights of heads that this model does not have: {', '.join(unused)}"] if unused else []
    return [*_network(model, learned), *_sizes(shapes.values(), tokenizer), *notes]


def _network(model: ModelSettings, learned: object) -> list[str]:
    written = settings.lines({"model": settings.plain(model)})
    return [*filter(None, written), f"learned: {kind_of(learned)}" if learned else "a network without heads"]


def _sizes(shapes: Iterable[Sequence[int]], tokenizer: object) -> list[str]:
    return [many(sum(map(math.prod, shapes)), "number"), _pieces(tokenizer)]


def _pieces(tokenizer: object) -> str:
    if not isinstance(tokenizer, Tokenizer):
        return f"tokenizer: {type(tokenizer).__name__}"
    return f"tokenizer: {tokenizer.kind}, {many(tokenizer.vocabulary, 'piece')}"
