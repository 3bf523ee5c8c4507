"""Features of each model family, determined by building small networks, so that no list is maintained by hand.

A family's settings are combined with objectives, tasks, optimizers and layouts as in a training, on parameters without
memory where possible. A feature is missing if that raises an error; its detail is the error message.
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
from ordsmed.nn.weight_shapes import unfilled
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
ABILITIES = {  # fields of Capabilities in nn/model.py
    "cached": "generates with a key-value cache",
    "state": "carries a state across rows",
}


@dataclass(frozen=True)
class Cell:
    """Whether a family has a feature."""

    has: bool
    needs: str = ""  # the setting it requires, if not the default
    detail: str = ""  # names, or why the feature is missing

    @property
    def sign(self) -> str:
        return (f"`{self.needs}`" if self.needs else "yes") if self.has else "-"


@dataclass(frozen=True)
class Feature:
    group: str
    name: str
    cells: dict[str, Cell]  # by family


@dataclass(frozen=True)
class AnyTokenizer:
    """Substitute for a tokenizer: the ids that networks need, with every special token."""

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
    named = {name: Layout(**options) for name, options in LAYOUTS.items()}
    for precision in get_args(get_type_hints(Layout)["precision"]):
        named |= {f"precision {precision}": Layout(precision=precision)} if precision != "auto" else {}
    layouts = [_row("layouts", name, functools.partial(_layout, layout)) for name, layout in named.items()]
    return [
        *_of_menu("objectives", "learns", _objective),
        *_of_menu("tasks", "tasks", _task),
        *_of_menu("optimizers", "optimizers", _optimizer),
        *layouts,
        *_abilities(),
        *_formats(),
        _row("recipes", "sizes", lambda family: _listed(menu.load("models", family).SIZES)),
        _row("recipes", "pretraining", lambda family: _listed(_recipes().get(family, []))),
    ]


def lines(features: Sequence[Feature], family: str = "") -> list[str]:
    """Return a row per feature with all families, or with the details of one family."""
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
    """Return Markdown: a table per group, or a line per group for one family."""
    written: list[str] = []
    for group, members in _grouped(features):
        if family:
            written += _line(group, {feature.name: feature.cells[family] for feature in members})
            continue
        rows = [[feature.name, *(feature.cells[name].sign for name in families())] for feature in members]
        written += [f"### {group[0].upper()}{group[1:]}", "", *rows_of(["", *families()], rows), ""]
    return written


def _line(group: str, cells: dict[str, Cell]) -> list[str]:
    present = [
        name + (f" (`{cell.needs}`)" if cell.needs else "") + (f": {cell.detail}" if cell.detail else "")
        for name, cell in cells.items()
        if cell.has
    ]
    missing = [name for name, cell in cells.items() if not cell.has]
    text = ("; " if any(": " in part for part in present) else ", ").join(present)
    text += f"{'. ' if present else ''}Not: {', '.join(missing)}" if missing and group != FILES else ""
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


def _directions(family: str) -> Iterator[tuple[str, ModelSettings]]:
    """Yield a family's settings, then those with the other attention direction if it has a choice."""
    default = _small(family)
    yield "", default
    if isinstance(causal := getattr(default, "causal", None), bool):
        yield f"causal = {str(not causal).lower()}", _small(family, causal=not causal)


def _attempted(family: str, attempt: Callable[[ModelSettings], object]) -> Cell:
    """Return whether `attempt` succeeds; if not, with the error of the default settings."""
    reason = ""
    for needs, network in _directions(family):
        try:
            attempt(network)
        except OrdsmedError as error:
            reason = reason or str(error)
        else:
            return Cell(True, needs)
    return Cell(False, detail=reason)


def _objective(kind: str, family: str) -> Cell:
    return _attempted(family, lambda network: _built("objectives", kind, network))


def _task(kind: str, family: str) -> Cell:
    return _attempted(family, lambda network: _built("tasks", kind, network))


def _built(name: str, kind: str, network: ModelSettings) -> Objective:
    settings = menu.load(name, kind)()
    if hasattr(settings, "labels"):  # usually determined by the data
        settings = dataclasses.replace(settings, labels=("one", "other"))
    with unfilled():
        return built(settings, network, AnyTokenizer())  # type: ignore[arg-type]


def _optimizer(kind: str, family: str) -> Cell:
    def attempt(network: ModelSettings) -> None:
        menu.load("optimizers", kind)().build(groups(network.build(WIDTH)))

    return _attempted(family, attempt)


def _layout(layout: Layout, family: str) -> Cell:
    """Check a layout in the family's usual size, as it must divide the number of heads."""
    try:
        layout.check(menu.load("models", family)(), [LENGTH], layout.meant() if layout.shard > 1 else PROCESSES)
    except OrdsmedError as error:
        return Cell(False, detail=str(error))
    return Cell(True)


def _abilities() -> Iterator[Feature]:
    for field, name in ABILITIES.items():
        yield _row("rows and states", name, lambda family, field=field: _capability(family, field))  # type: ignore[misc]
    yield _row("rows and states", "short texts share rows", _shares_rows)
    yield _row("rows and states", "packed texts without a mask", _without_mask)


def _capability(family: str, field: str) -> Cell:
    return Cell(bool(getattr(menu.load("models", family).capabilities, field)))


def _shares_rows(family: str) -> Cell:
    return Cell(not packing(AnyTokenizer(), _small(family)).alone)  # type: ignore[arg-type]


def _without_mask(family: str) -> Cell:
    with unfilled():
        return Cell(bool(getattr(_small(family).build(WIDTH), "takes_texts", False)))


def _formats() -> Iterator[Feature]:
    for kind in menu.entries("formats"):
        form = menu.load("formats", kind)
        if kind == FORMAT:
            yield _row(FILES, kind, lambda family: _classes(family, task=False))
            yield _row(FILES, f"{kind}, a task's head", lambda family: _classes(family, task=True))
        else:
            yield _row(FILES, kind, functools.partial(_written, form))


def _written(form: type[Format], family: str) -> Cell:
    takes = getattr(form, "takes", None)
    return Cell(any(takes(network) for _, network in _directions(family)) if takes else family in form.families)


def _classes(family: str, *, task: bool) -> Cell:
    pairs = [pair for _, network in _directions(family) for pair in network.architectures.items()]
    return _listed(list(dict.fromkeys(name for role, name in pairs if role and (role in TASK_CLASSES) == task)))


@functools.cache
def _recipes() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name in run.recipe_names():
        table = run.read_table(run.find_recipe(name, ""), name.partition("/")[0])
        if "objective" in table and name.startswith(("pretrain/", "tiny/", "laptop/", "desk/")):
            names.setdefault(table["model"]["kind"], []).append(name.removeprefix("pretrain/"))
    return names
