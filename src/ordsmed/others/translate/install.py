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
"""{doc}: as {code}'s program of this name, done by ordsmed."""

import sys

from ordsmed.cli import main

main(["as", "{code}", "{name}", *sys.argv[1:]])
'''


SHELL = """#!/usr/bin/env bash
# {doc}: as {code}'s script of this name, done by ordsmed
exec python -m {words} "$@"
"""


def install(code: str, folder: str) -> list[str]:
    """Write into `folder` programs and scripts that call ordsmed, named as in the other toolkit `code` (megatron, ...).

    Return lines that describe the written files. Raise an error, before anything is written, if one of the files exists
    with other content.
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
            raise DataError(path, "stands there, and is another", "a folder without them", "name another folder")
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
        path.chmod(0o755)
    names = sorted(str(path.relative_to(target)) for path in written)
    return [*(f"{folder}/{name}" for name in names), f"{many(len(names), 'file')}; run them within {folder}"]
