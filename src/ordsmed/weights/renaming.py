"""Conversion of tensors from and to other frameworks' names, one tensor at a time to save memory.

    foreign tensors  <--  spell(Hugging Face's name)  -->  this library's tensors

Every model family has a table of Hugging Face's names (`Family.names`); a format says how it writes those names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from ordsmed.base.errors import DataError
from ordsmed.base.say import many
from ordsmed.learn.objective import Objective
from ordsmed.nn.model import Names, own_tensors
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights

Shape = tuple[int, ...]
TensorLayout = Literal[
    "alike", "turned", "lifted"
]  # as Hugging Face has it, [in, out] for [out, in], or an extra dimension
Spell = Callable[
    [str, str], tuple[str, TensorLayout]
]  # (network of the objective, Hugging Face's name) -> foreign name
PADDING = 8192  # most padding rows after a vocabulary: Megatron pads to a multiple of 128 x ranks
ROWS = ("model.words.weight", "head.words.weight", "head.bias")  # tensors that may have padding rows


class LazyTensors(Mapping[str, Tensor]):
    """Tensors by name with known shapes, each read from its file on access."""

    def __init__(self, shapes: Mapping[str, Shape], read: Callable[[str], Tensor]) -> None:
        self.shapes, self.read = dict(shapes), read

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def renamed(self, rename: Callable[[str], str | None]) -> LazyTensors:
        """Return the tensors under new names; None drops one. If two get the same name, the first is kept."""
        sources: dict[str, str] = {}
        for name in self.shapes:
            new = rename(name)
            if new is not None:
                sources.setdefault(new, name)
        return LazyTensors(
            {new: self.shapes[name] for new, name in sources.items()}, lambda new: self.read(sources[new])
        )

    def also(self, new: str, name: str) -> LazyTensors:
        return LazyTensors(
            {**self.shapes, new: self.shapes[name]}, lambda wanted: self.read(name if wanted == new else wanted)
        )


@dataclass(frozen=True)
class Counterpart:
    """The foreign names and layout of one tensor of this library."""

    stored_names: tuple[str, ...]
    lies: TensorLayout
    name: str  # this library's, within its network
    names: Names | None  # None: the file has this library's layout

    def take(self, parts: list[Tensor]) -> Tensor:
        if self.names is None:
            return parts[0]
        return weights.native_layout(
            self.name, [_with_layout(part, self.lies, back=True) for part in parts], self.names
        )

    def give(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = weights.foreign_layout(self.name, tensor, self.names) if self.names else [tensor]
        return {name: _with_layout(part, self.lies) for name, part in zip(self.stored_names, parts, strict=True)}


def counterparts(objective: Objective, spell: Spell, *, alike: bool = False) -> dict[str, Counterpart]:
    """Return the foreign counterpart of each tensor of an objective, by its name there. Shared tensors appear once.

    With `alike`, the file has this library's layout, and `spell` gets this library's names.
    """
    known: dict[int, Counterpart] = {}
    for inner, network in objective.networks().items():
        names = network.settings.names()
        for key, tensor in network.tensors().items():
            if alike:
                known.setdefault(id(tensor), Counterpart((spell(inner, key)[0],), "alike", key, None))
                continue
            parts = names.table[key]
            spelled = [spell(inner, part) for part in ((parts,) if isinstance(parts, str) else parts)]
            location = Counterpart(tuple(name for name, _ in spelled), spelled[0][1], key, names)
            known.setdefault(id(tensor), location)
    return {name: known[id(tensor)] for name, tensor in own_tensors(objective).items()}


def import_tensors(
    networks: Any,
    tokenizer: Tokenizer,
    stored: LazyTensors,
    spell: Spell,
    location: object,
    *,
    alike: bool = False,
    only: str = "",
) -> LazyTensors:
    """Return this library's tensors, each converted from foreign ones on access.

    Missing or unexpected tensors and wrong shapes raise an error before any tensor is read. `only` is a pattern of the
    tensors to convert, for a network without all of its heads.
    """
    with unfilled():
        objective = networks.learned.build(networks.model, tokenizer)
    tensors = {name: tensor for name, tensor in own_tensors(objective).items() if re.match(only, name)}
    at, rows = counterparts(objective, spell, alike=alike), tokenizer.vocabulary
    at = {name: counterpart for name, counterpart in at.items() if name in tensors}
    wanted = {
        name: shape for key, counterpart in at.items() for name, shape in _shapes(counterpart, tensors[key]).items()
    }
    padded = {name for counterpart in at.values() if counterpart.name in ROWS for name in counterpart.stored_names}
    check_tensors(stored, wanted, padded, location)

    def read(key: str) -> Tensor:
        counterpart = at[key]
        parts = [stored[name][:rows] if name in padded else stored[name] for name in counterpart.stored_names]
        weights.check_numbers(dict(zip(counterpart.stored_names, parts, strict=True)), location)
        return counterpart.take(parts).to(torch.float32).contiguous()

    return LazyTensors({name: tuple(tensor.shape) for name, tensor in tensors.items()}, read)


def export_tensors(
    objective: Objective, spell: Spell, *, alike: bool = False, instead: Mapping[str, Tensor] = MappingProxyType({})
) -> Iterator[tuple[str, Tensor]]:
    """Yield an objective's tensors under foreign names. `instead` replaces tensors, by this library's names."""
    tensors, names = {**own_tensors(objective), **instead}, set[str]()
    for key, counterpart in counterparts(objective, spell, alike=alike).items():
        for name, part in counterpart.give(tensors[key].detach().to(torch.float32)).items():
            assert name not in names, name
            names.add(name)
            yield name, part.contiguous()


def check_tensors(stored: LazyTensors, wanted: Mapping[str, Shape], padded: Iterable[str], location: object) -> None:
    """Raise DataError if tensors are missing, unexpected or of the wrong shape, and say which."""
    padded = set(padded)
    missing = [f"{name} {list(shape)}" for name, shape in wanted.items() if name not in stored]
    left = [f"{name} {list(stored.shapes[name])}" for name in stored if name not in wanted]
    both = {name: (stored.shapes[name], shape) for name, shape in wanted.items() if name in stored}
    unlike = [name for name, shapes in both.items() if not _fits(*shapes, name in padded)]
    unlike_shapes = [f"{name} {list(both[name][0])}, not {list(both[name][1])}" for name in unlike]
    if missing or left or unlike_shapes:
        parts = {"missing": missing, "unexpected": left, "of another shape": unlike_shapes}
        lines = "; ".join(f"{problem} {weights.some(names)}" for problem, names in parts.items() if names)
        wrong = f"has {len(both):,} of the {len(wanted):,} tensors of this network; {lines}"
        remedy = "`model.KEY=VALUE` after the folder in `ordsmed import` corrects a size"
        if not missing and not left and padded.issuperset(unlike):
            remedy = "put its vocabulary there"
        raise DataError(location, wrong, "exactly these tensors", remedy)


def padding_note(stored: LazyTensors, name: str, tokenizer: Tokenizer, location: object) -> list[str]:
    """Return a note if the word table has padding rows after the vocabulary, which are dropped."""
    rows = stored.shapes[name][0] - tokenizer.vocabulary if name in stored else 0
    return [f"{location}: {many(rows, 'row')} after the vocabulary are padding and are dropped"] if rows > 0 else []


def layers(names: Iterable[str], pattern: str) -> int:
    """Return the number of layers: one more than the highest number at the `N` of `pattern` in the names."""
    before, _, after = pattern.partition("N")
    numbers = (name[len(before) :].partition(after)[0] for name in names if name.startswith(before))
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def _shapes(counterpart: Counterpart, tensor: Tensor) -> dict[str, Shape]:
    return {name: tuple(part.shape) for name, part in counterpart.give(tensor).items()}


def _fits(stored: Shape, shape: Shape, padded: bool) -> bool:
    if stored == shape:
        return True
    return padded and stored[1:] == shape[1:] and shape[0] < stored[0] < shape[0] + PADDING and stored[0] % 8 == 0


def _with_layout(tensor: Tensor, lies: TensorLayout, *, back: bool = False) -> Tensor:
    if lies == "turned":
        return tensor.T if tensor.ndim == 2 else tensor
    if lies == "lifted":
        return tensor[0] if back else tensor[None]
    return tensor
