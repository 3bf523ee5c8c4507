"""Golden words of the command line: what each verb takes, as verbs.json has it.

Who scripts the command relies on names, defaults and bounds: a change of one is named, with its reason, in the commit.
New verbs and flags are written into the file by `PYTHONPATH=src python tests/golden/test_verbs.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ordsmed.cli import verb

GOLDEN = Path(__file__).with_name("verbs.json")
TRIED = ("-1", "0", "1", "2", "1024", "1025", "1.5", "3h", "all", "", "1000000000000000")


def taken(kind: Callable[[str], Any] | None) -> str | list[str]:
    """Which of a few words an argument takes."""
    if kind is None:
        return "text"
    found = []
    for text in TRIED:
        try:
            kind(text)
        except (argparse.ArgumentTypeError, ValueError):
            continue
        found.append(text)
    return found


def arguments() -> dict[str, dict[str, dict[str, Any]]]:
    """Of every verb: its arguments, by flag or place, in the order of the words that have none."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in sorted(verb.names()):
        found[name] = {}
        for one in verb.find(name).parser()._actions:
            found[name][one.option_strings[-1] if one.option_strings else one.dest] = {
                "words": list(one.option_strings),
                "dest": one.dest,
                "action": type(one).__name__.strip("_"),
                "nargs": one.nargs,
                "const": one.const,
                "default": one.default,
                "metavar": list(one.metavar) if isinstance(one.metavar, tuple) else one.metavar,
                "required": one.required,
                "takes": taken(one.type),
            }
    return found


def test_words_are_as_they_were() -> None:
    """Those that are still there, and all of them are; a new verb or flag is nobody's change."""
    golden, now = json.loads(GOLDEN.read_text(encoding="utf-8")), arguments()
    assert len(golden) > 25
    for name, rows in golden.items():
        assert {key: now[name].get(key) for key in rows} == rows, name
        assert places(now[name]) == places(rows), name


def places(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Arguments without a flag, in their order."""
    return [key for key, row in rows.items() if not row["words"]]


def written(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """An argument a line."""
    verbs = []
    for name, rows in found.items():
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
        verbs.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(verbs) + "\n}\n"


if __name__ == "__main__":
    GOLDEN.write_text(written(arguments()), encoding="utf-8")
