"""Conversion of models in other formats to folders of this library, into a cache if a recipe or command names one.

folder or file -> the format in formats/ that recognizes it -> settings.toml, model.safetensors, tokenizer/
                                                       or, of a network without heads, a Hugging Face folder
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ordsmed.base import files, hub, run, settings
from ordsmed.base.binary import bundle
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.identity import identity
from ordsmed.base.menu import entries, kind_of, load
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.weights import foreign, weights
from ordsmed.weights.foreign import Format, Imported
from ordsmed.weights.renaming import LazyTensors

LAYOUT = "1"  # version of the cache: a new one converts every model again


def exists(path: Path) -> bool:
    """Return whether a path exists, or is the prefix of a TensorFlow checkpoint, which is not itself a file."""
    return path.exists() or bundle.find(path) is not None


def once(path: Path, name: str | Path) -> Path | None:
    """Return the cached conversion of a model, made if it is missing; None if the format is unknown."""
    if not exists(path) or (form := known(path)) is None:
        return None
    target = hub.cache() / "taken" / f"{path.resolve().name}-{_key(path)}"
    with run.locked(target):
        if not kind_of_folder(target).model:
            try:
                imported = form.read(path)
            except RecipeError as error:
                if "model." not in error.remedy:
                    raise
                by_hand = f"`{command('import', path, 'OUT', 'model.KEY=VALUE')}`, and name OUT"
                raise RecipeError(error.place, error.found, error.wanted, by_hand) from None
            write(imported, target, path, form)
            say(f"{name}: {kind_of(form)}, converted to {target}")
    return target


def write(imported: Imported, target: Path, path: Path, form: Format) -> None:
    with files.making(target, keep=True) as folder:
        if imported.bare:
            load("formats", foreign.FORMAT)().write_bare(imported, folder)
        else:
            if isinstance(imported.tensors, LazyTensors):
                weights.write_each(folder / WEIGHTS, imported.tensors.shapes, imported.tensors)
            else:
                weights.write(folder / WEIGHTS, imported.tensors)
            files.write_text(folder / SETTINGS, settings.write(imported.networks))
            imported.tokenizer.save(folder / TOKENIZER)
        files.write_text(folder / "README.md", _describe(imported, target.name, path, kind_of(form)))
    for note in imported.notes:
        say(note)


def known(path: Path) -> Format | None:
    """Return the format of an existing folder or file; None if no format recognizes it."""
    bundle.refuse_first_version(path)
    formats: Sequence[Format] = [load("formats", kind)() for kind in entries("formats")]
    return next((form for form in formats if form.recognises(path)), None)


def recognised(path: Path) -> Format:
    """Return the format of a folder or file. Raise RecipeError if no format recognizes it."""
    wanted = "; or ".join(filter(None, (load("formats", kind)().wanted for kind in entries("formats"))))
    if not exists(path):
        formats = "a model in a format of `ordsmed menus formats`"
        raise RecipeError(path, "no such folder or file", formats, hub.remedy_for_imported(path))
    kind = kind_of_folder(path)
    if kind.made or kind is FolderKind.IMPORT:
        raise RecipeError(path, "is a folder of this library", "a model of another format", "use it directly")
    if form := known(path):
        return form
    refuse_unknown(path)
    raise RecipeError(path, "has no known format", wanted)


def refuse_unknown(path: Path) -> None:
    """Raise DataError for a TensorFlow checkpoint of an unknown network, with some of its tensor names."""
    prefix = bundle.find(path)
    if names := bundle.names(prefix) if prefix else frozenset():
        wrong = f"is a TensorFlow checkpoint of an unknown network: {weights.some(sorted(filter(None, names)))}"
        raise DataError(path, wrong, "bert/..., electra/..., model/wte (GPT-2) or lm/... (ELMo)")


def _key(folder: Path) -> str:
    """Return a hash of the names, sizes and times of the files, so that a changed model is converted again."""
    around = folder if folder.is_dir() else folder.parent
    paths = [path for path in sorted(around.rglob("*")) if path.is_file()]
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr((LAYOUT, str(folder.resolve()), facts)).encode()).hexdigest()[:12]


def _describe(imported: Imported, name: str, path: Path, form: str) -> str:
    lines = [f"# {name}", f"Converted by ordsmed {identity()} from `{path.name}` ({form})."]
    return "\n\n".join([*lines, *imported.notes, "`ordsmed embed`, `export` and `pretrain init=...` open it."]) + "\n"
