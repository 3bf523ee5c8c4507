"""What each family of networks can have: asked of the code, which builds it small or refuses; nothing is kept by hand.

A family's settings, objectives, tasks, optimizers and layouts are put together as a training would, on numbers that
take no memory where none are needed. What is refused is told in the words in which a recipe would be refused.
"""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from ordsmed.base import menu, run
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.screen import markdown as rows_of
from ordsmed.base.screen import table
from ordsmed.learn.groups import groups
from ordsmed.learn.objective import Objective, built
from ordsmed.learn.task import packing
from ordsmed.nn.model import TASK_CLASSES, ModelSettings
from ordsmed.nn.unfilled import unfilled
from ordsmed.train.mesh.layout import Layout
from ordsmed.weights.foreign import FORMAT, Format

WIDE = 120  # columns of a page
WIDTH, LAYERS = 32, 1
LENGTH, PROCESSES = 64, 16
LAYOUTS: dict[str, dict[str, Any]] = {
    "copies (as DDP)": {"replicate": PROCESSES},
    "split weights (FSDP)": {"shard": PROCESSES},
    "split layers (tensor parallel)": {"tensor": 2},
    "all three at once": {"replicate": 4, "shard": 2, "tensor": 2},
    "recompute": {"recompute": True},
    "compile": {"compile": True},
}
FILES = "files in and out"
ABILITIES = {  # of nn/model.py's Capabilities
    "cached": "writes with kept keys and values",
    "state": "carries a state from row to row",
}


@dataclass(frozen=True)
class Cell:
    """Whether a family has something."""

    has: bool
    needs: str = ""  # a setting that is not the usual one
    detail: str = ""  # names, where there are several; why not, where it has none

    @property
    def sign(self) -> str:
        """For a table of all families."""
        return (f"`{self.needs}`" if self.needs else "yes") if self.has else "-"


@dataclass(frozen=True)
class Feature:
    group: str
    name: str
    cells: dict[str, Cell]  # by family


@dataclass(frozen=True)
class AnyTokenizer:
    """As much of one as networks ask for: its numbers, and that it has every special token."""

    vocabulary: int = 1 << 15
    pad: int = 0
    unknown: int = 1
    start: int = 2
    stop: int = 3
    mask: int = 4
    end: int = 5


def families() -> list[str]:
    return menu.entries("models")


def features() -> list[Feature]:
    named = {name: Layout(**how) for name, how in LAYOUTS.items()}
    for precision in get_args(get_type_hints(Layout)["precision"]):
        named |= {f"precision {precision}": Layout(precision=precision)} if precision != "auto" else {}
    layouts = [_row("layouts", name, functools.partial(_laid_out, layout)) for name, layout in named.items()]
    return [
        *_of_menu("objectives", "learns", _objective), *_of_menu("tasks", "tasks", _task),
        *_of_menu("optimizers", "optimizers", _optimizer), *layouts, *_abilities(), *_formats(),
        _row("recipes", "sizes", lambda family: _listed(menu.load("models", family).SIZES)),
        _row("recipes", "pretraining", lambda family: _listed(_recipes().get(family, []))),
    ]  # fmt: skip


def lines(features: Sequence[Feature], family: str = "") -> list[str]:
    """A row a feature with all families, or of one family each with how it is had or why not."""
    shown = [family, ""] if family else families()
    rows = [["", *shown]]
    for group, group_features in _grouped(features):
        rows.append([group, *("" for _ in shown)])
        for feature in group_features:
            cells = [feature.cells[name] for name in ([family] if family else families())]
            details = [cell.detail for cell in cells if family]
            rows.append([f"  {feature.name}", *(cell.sign for cell in cells), *details])
    return table(rows)


def facts(features: Sequence[Feature], family: str = "") -> list[dict[str, Any]]:
    if family:
        features = [dataclasses.replace(feature, cells={family: feature.cells[family]}) for feature in features]
    return [dataclasses.asdict(feature) for feature in features]


def markdown(features: Sequence[Feature], family: str = "") -> list[str]:
    """For docs: a table a group, or of one family a line a group."""
    written: list[str] = []
    for group, members in _grouped(features):
        if family:
            written += _line(group, {feature.name: feature.cells[family] for feature in members})
            continue
        rows = [[feature.name, *(feature.cells[name].sign for name in families())] for feature in members]
        written += [f"### {group[0].upper()}{group[1:]}", "", *rows_of(["", *families()], rows), ""]
    return written


def _line(group: str, cells: dict[str, Cell]) -> list[str]:
    """What a family has of a group, and what it lacks, in as many lines as that takes."""
    had = [
        name + (f" (`{cell.needs}`)" if cell.needs else "") + (f": {cell.detail}" if cell.detail else "")
        for name, cell in cells.items()
        if cell.has
    ]
    lacked = [name for name, cell in cells.items() if not cell.has]
    text = ("; " if any(": " in part for part in had) else ", ").join(had)
    text += f"{'. ' if had else ''}Not: {', '.join(lacked)}" if lacked and group != FILES else ""
    return textwrap.wrap(f"- **{group}**: {text}.", WIDE, subsequent_indent="  ", break_on_hyphens=False)


def _grouped(features: Sequence[Feature]) -> list[tuple[str, list[Feature]]]:
    groups = dict.fromkeys(feature.group for feature in features)
    return [(group, [feature for feature in features if feature.group == group]) for group in groups]


def _row(group: str, name: str, ask: Callable[[str], Cell]) -> Feature:
    return Feature(group, name, {family: ask(family) for family in families()})


def _of_menu(name: str, group: str, ask: Callable[[str, str], Cell]) -> list[Feature]:
    return [_row(group, kind, functools.partial(ask, kind)) for kind in menu.entries(name)]


def _listed(names: Sequence[str]) -> Cell:
    return Cell(bool(names), detail=", ".join(names))


def _small(family: str, **changes: bool) -> ModelSettings:
    return dataclasses.replace(menu.load("models", family)().smaller(WIDTH, LAYERS), **changes)


def _both(family: str) -> Iterator[tuple[str, ModelSettings]]:
    """A family's settings as they are, then with the other choice of what a token sees, if it has one."""
    usual = _small(family)
    yield "", usual
    if isinstance(seen := getattr(usual, "causal", None), bool):
        yield f"causal = {str(not seen).lower()}", _small(family, causal=not seen)


def _tried(family: str, attempt: Callable[[ModelSettings], object]) -> Cell:
    """What is refused is told as the usual settings are refused."""
    reason = ""
    for needs, network in _both(family):
        try:
            attempt(network)
        except OrdsmedError as error:
            reason = reason or str(error)
        else:
            return Cell(True, needs)
    return Cell(False, detail=reason)


def _objective(kind: str, family: str) -> Cell:
    return _tried(family, lambda network: _built("objectives", kind, network))


def _task(kind: str, family: str) -> Cell:
    return _tried(family, lambda network: _built("tasks", kind, network))


def _built(name: str, kind: str, network: ModelSettings) -> Objective:
    settings = menu.load(name, kind)()
    if hasattr(settings, "labels"):  # which data tell otherwise
        settings = dataclasses.replace(settings, labels=("one", "other"))
    with unfilled():
        return built(settings, network, AnyTokenizer())  # type: ignore[arg-type]


def _optimizer(kind: str, family: str) -> Cell:
    """Over the parameters of the network."""

    def attempt(network: ModelSettings) -> None:
        menu.load("optimizers", kind)().build(groups(network.build(WIDTH)))

    return _tried(family, attempt)


def _laid_out(layout: Layout, family: str) -> Cell:
    """In the size that its recipes have, which heads are divided of."""
    try:
        layout.check(menu.load("models", family)(), [LENGTH], layout.meant() if layout.shard > 1 else PROCESSES)
    except OrdsmedError as error:
        return Cell(False, detail=str(error))
    return Cell(True)


def _abilities() -> Iterator[Feature]:
    for field, name in ABILITIES.items():
        yield _row("rows and states", name, lambda family, field=field: _able(family, field))  # type: ignore[misc]
    yield _row("rows and states", "short texts share rows", _shared)
    yield _row("rows and states", "texts side by side without a mask", _without_mask)


def _able(family: str, field: str) -> Cell:
    return Cell(bool(getattr(menu.load("models", family).capabilities, field)))


def _shared(family: str) -> Cell:
    return Cell(not packing(AnyTokenizer(), _small(family)).alone)  # type: ignore[arg-type]


def _without_mask(family: str) -> Cell:
    with unfilled():
        return Cell(bool(getattr(_small(family).build(WIDTH), "takes_texts", False)))


def _formats() -> Iterator[Feature]:
    """Hugging Face's by its classes, others by what they say they write."""
    for kind in menu.entries("formats"):
        form = menu.load("formats", kind)
        if kind == FORMAT:
            yield _row(FILES, kind, lambda family: _classes(family, task=False))
            yield _row(FILES, f"{kind}, a task's head", lambda family: _classes(family, task=True))
        else:
            yield _row(FILES, kind, functools.partial(_written, form))


def _written(form: type[Format], family: str) -> Cell:
    """Does a format write it? By the names that it gives, or by what it asks of its settings."""
    takes = getattr(form, "takes", None)
    return Cell(any(takes(network) for _, network in _both(family)) if takes else family in form.families)


def _classes(family: str, *, task: bool) -> Cell:
    """The classes there, by both choices of what a token sees."""
    pairs = [pair for _, network in _both(family) for pair in network.architectures.items()]
    return _listed(list(dict.fromkeys(name for role, name in pairs if role and (role in TASK_CLASSES) == task)))


@functools.cache
def _recipes() -> dict[str, list[str]]:
    """Built-in recipes of pretraining by the family of their network."""
    names: dict[str, list[str]] = {}
    for name in run.recipe_names():
        table = run.read_table(run.find_recipe(name, ""), name.partition("/")[0])
        if "objective" in table and name.startswith(("pretrain/", "tiny/", "laptop/", "desk/")):
            names.setdefault(table["model"]["kind"], []).append(name.removeprefix("pretrain/"))
    return names
