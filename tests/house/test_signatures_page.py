"""docs/python.md says every argument of what Python calls, as the code has it: names, types, defaults.

Run as a script (PYTHONPATH=src:tests), it prints the section of the page, with the meanings that the page has.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, ForwardRef

import pytest

import ordsmed
from ordsmed.api import model, options
from ordsmed.use.embed import Form
from ordsmed.use.generation.options import SamplingOptions

PAGE = Path(__file__).parents[2] / "docs/python.md"
TEXT = PAGE.read_text(encoding="utf-8")
CALLS: dict[str, Callable[..., Any]] = {
    "ordsmed.open": ordsmed.open,
    **{f"model.{name}": getattr(model.OpenModel, name) for name in ("fill", "generate", "embed")},
    "ordsmed.pretrain": ordsmed.pretrain,
    "ordsmed.finetune": ordsmed.finetune,
    "ordsmed.speedrun": ordsmed.speedrun,
}
STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
OPTIONS: dict[str, tuple[Any, type]] = {
    "Unpack[WritingOptions]": (options.WritingOptions, SamplingOptions),
    "Unpack[EmbedOptions]": (options.EmbedOptions, Form),
}


def literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def call(name: str) -> str:
    """How it is called, its types left out, on lines of the page."""
    words, star = [], False
    for key, parameter in inspect.signature(CALLS[name]).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            words, star = [*words, "*"], True
        if parameter.kind in STARS:
            words, star = [*words, f"{STARS[parameter.kind]}{key}"], True
        elif key != "self":
            words.append(key if parameter.default is parameter.empty else f"{key}={literal(parameter.default)}")
    line = f"{name}({', '.join(words)})"
    return textwrap.fill(line, 116, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)


def kind(annotation: str) -> str:
    """A type as a cell shows it."""
    plain = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " or ").replace("'", '"'), annotation)
    return plain.replace("Texts", "list[str]").replace(" | ", " or ")


def rows(name: str) -> Iterator[tuple[str, str, str]]:
    """Each argument, its type, and what it is where it is left out."""
    for key, parameter in inspect.signature(CALLS[name]).parameters.items():
        if parameter.annotation in OPTIONS:
            options, defaults = OPTIONS[parameter.annotation]
            usual = {field.name: literal(field.default) for field in fields(defaults)}
            for option, hint in options.__annotations__.items():
                text = hint.__forward_arg__ if isinstance(hint, ForwardRef) else str(hint)
                yield option, kind(text), usual.get(option, "")
        elif key != "self":
            stars = STARS.get(parameter.kind, "")
            usual_ = "" if parameter.default is parameter.empty else literal(parameter.default)
            yield f"{stars}{key}", kind(parameter.annotation), usual_


def begin(name: str, row: tuple[str, str, str]) -> str:
    """A row of the table up to its meaning."""
    return f"| `{row[0]}` | {row[1]} | {f'`{row[2]}`' if row[2] else ''} | "


def section(name: str) -> str:
    """The text behind the heading of a call."""
    return TEXT.partition(f"\n### {name}\n")[2].partition("\n### ")[0].partition("\n## ")[0]


def shown(name: str) -> str:
    """The section as it should be, with the meanings that the page has."""
    meanings = dict(re.findall(r"^\| `(\S+)` \|.*\| (.*) \|$", section(name), re.M))
    table = [f"{begin(name, row)}{meanings.get(row[0], '')} |" for row in rows(name)]
    return "\n".join([call(name), "", "| argument | type | default | meaning |", "|---|---|---|---|", *table])


@pytest.mark.parametrize("name", CALLS)
def test_the_page_has_every_argument(name: str) -> None:
    assert shown(name) in section(name)


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_has_a_meaning(name: str) -> None:
    assert [line for line in shown(name).splitlines() if line.endswith("|  |")] == []


if __name__ == "__main__":
    print("\n\n".join(f"### {name}\n\n{shown(name)}" for name in CALLS))
