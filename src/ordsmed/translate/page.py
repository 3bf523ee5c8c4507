"""Where each flag of another code goes, as lines and as Markdown: made from what the programs say."""

from __future__ import annotations

from ordsmed.base.screen import markdown as rows_of
from ordsmed.base.screen import table
from ordsmed.translate.program import Flag, Program
from ordsmed.translate.program import programs as programs_of


def programs(code: str) -> list[str]:
    """The programs of a code, in lines."""
    return table([[program.name, program.doc] for program in programs_of(code).values()])


def flags(program: Program) -> list[str]:
    """Every flag of a program, in lines."""
    rows = [[flag.name, _usual(flag), _becomes(flag)] for flag in program.flags]
    return [f"{program.name}: {program.doc}", *table([["flag", "theirs, unsaid", "here"], *rows])]


def markdown(code: str) -> list[str]:
    """A table of each program, for docs."""
    lines = []
    for program in programs_of(code).values():
        lines += [f"### `{program.name}`", "", f"{program.doc[0].upper()}{program.doc[1:]}.", ""]
        rows = [[f"`{flag.name}`", _usual(flag), _becomes(flag, "`")] for flag in program.flags]
        lines += [*rows_of(["flag", "theirs, unsaid", "here"], rows), ""]
    return lines


def _usual(flag: Flag) -> str:
    if flag.kind is bool:
        return "on" if flag.default else "off"
    return "must be said" if flag.required else "" if flag.default in (None, "") else str(flag.default)


def _becomes(flag: Flag, mark: str = "") -> str:
    if flag.goes:
        recipe, _, path = flag.goes.rpartition(": ")
        return f"{recipe}: {mark}{path}{mark}" if recipe else f"{mark}{path}{mark}"
    return f"nothing: {flag.nothing}" if flag.nothing else f"refused: {flag.refused}"
