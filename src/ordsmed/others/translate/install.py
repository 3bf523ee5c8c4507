"""Write programs with another code's names that call ordsmed, so that its launch scripts work unmodified.

FOLDER/pretrain_bert.py           `ordsmed as megatron pretrain_bert.py`, with the same arguments
FOLDER/scripts/pretrain_bert.sh   as the original calls the program
"""

from __future__ import annotations

from pathlib import Path

from ordsmed.base import files, menu
from ordsmed.base.errors import DataError
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.others.translate.program import MENU, programs

PYTHON = '''#!{python}
"""{doc}: run by ordsmed with the arguments of {code}'s program of this name."""

import sys

from ordsmed.cli import main

main(["as", "{code}", "{name}", *sys.argv[1:]])
'''


SHELL = """#!/usr/bin/env bash
# {doc}: run by ordsmed with the arguments of {code}'s script of this name
exec python -m {words} "$@"
"""


def install(code: str, folder: str) -> list[str]:
    """Write programs and scripts of the dialect `code` (megatron, ...) that call ordsmed into `folder`.

    Return the lines to print. Raise an error, before anything is written, if a file exists with other content.
    """
    target, known = Path(folder), programs(code)
    written = {
        target / path: (SHELL if program.name.endswith(".sh") else PYTHON).format(
            python="/usr/bin/env python3",
            doc=program.doc[0].upper() + program.doc[1:],
            code=code,
            name=program.name,
            words=command("as", code, program.name),
        )
        for program in known.values()
        for path in (program.path or program.name, *program.also)
    }
    scripts = menu.folders_of(MENU)[0] / "scripts" / code
    for path in sorted(path for path in scripts.rglob("*") if path.is_file()):
        written[target / path.relative_to(scripts)] = path.read_text(encoding="utf-8")
    for path, text in written.items():
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise DataError(path, "already exists with other content", "a folder without it", "give another folder")
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
        path.chmod(0o755)
    names = sorted(str(path.relative_to(target)) for path in written)
    return [*(f"{folder}/{name}" for name in names), f"{many(len(names), 'file')}; run them in {folder}"]
