"""Tables of another code's flags and their translation, as text and Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from ordsmed.base import menu
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import nearest
from ordsmed.base.screen import markdown as rows_of
from ordsmed.base.screen import table
from ordsmed.others.translate.program import MENU, Flag, Program, names
from ordsmed.others.translate.program import programs as programs_of


def programs(code: str) -> list[str]:
    return table([[program.name, program.doc] for program in programs_of(code).values()])


def codes() -> list[str]:
    docs = {
        code: (inspect.getdoc(menu.import_choice(MENU, code)) or "").partition("\n")[0].rstrip(".") for code in names()
    }
    return [*table([[code, doc] for code, doc in docs.items()]), "`ordsmed as CODE` lists its programs"]


def find(word: str, codes_searched: Sequence[str]) -> list[str]:
    """Return lines about the flags whose names contain `word`. Raise an error if there is none."""
    if lines := flags_with(word, codes_searched):
        return lines
    names = sorted({flag.name.lstrip("-") for *_, flag in _flags_of(codes_searched)})
    near = nearest(word if word[:1] != "-" else word.lstrip("-"), names)
    raise UsageError("--find", f"no flag of {', '.join(codes_searched)} contains `{word}`", "", near)


def flags_with(word: str, codes_searched: Sequence[str]) -> list[str]:
    """Return lines about the flags whose names contain `word`, ignoring dashes. Equal flags share a line.

    The word may have a value, as in --lr=1e-4 and in optimization.lr=[1e-4] of fairseq's YAML.
    """
    part, rows = _plain(word.partition("=")[0].rpartition(".")[2]), dict[tuple[str, ...], list[str]]()
    for code, program, flag in _flags_of(codes_searched):
        if any(part in _plain(name) for name in (flag.name, *flag.also)):
            rows.setdefault((code, flag.name, _default(flag), _target(flag)), []).append(program.name)
    if not rows:
        return []
    lines = [[code, ", ".join(names), flag, *texts] for (code, flag, *texts), names in rows.items()]
    return table([["code", "program", "flag", "default there", "here"], *lines])


def _flags_of(codes_searched: Sequence[str]) -> list[tuple[str, Program, Flag]]:
    return [
        (code, program, flag)
        for code in codes_searched
        for program in programs_of(code).values()
        for flag in program.flags
    ]


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def flags(program: Program) -> list[str]:
    rows = [[flag.spelling, _default(flag), _target(flag)] for flag in program.flags]
    return [f"{program.name}: {program.doc}", *table([["flag", "default there", "here"], *rows])]


def markdown(code: str) -> list[str]:
    lines = []
    for program in programs_of(code).values():
        lines += [f"### `{program.name}`", "", f"{program.doc[0].upper()}{program.doc[1:]}.", ""]
        rows = [[f"`{flag.spelling}`", _default(flag), _target(flag, "`")] for flag in program.flags]
        lines += [*rows_of(["flag", "default there", "here"], rows), ""]
    return lines


def _default(flag: Flag) -> str:
    if flag.kind is bool:
        return "on" if flag.default else "off"
    return "required" if flag.required else "" if flag.default in (None, "", {}) else str(flag.default)


def _target(flag: Flag, mark: str = "") -> str:
    if flag.goes:
        recipe, _, path = flag.goes.rpartition(": ")
        return f"{recipe}: {mark}{path}{mark}" if recipe else f"{mark}{path}{mark}"
    return f"nothing: {flag.nothing}" if flag.nothing else f"refused: {flag.refused}"
