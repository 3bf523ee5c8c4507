"""The table `You know it as` of docs/models.md is src/ordsmed/cli/words.toml; run as a script this file writes it.

PYTHONPATH=src python tests/house/test_known_as_page.py
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from ordsmed.cli import words

PAGE = Path(__file__).parents[2] / "docs/models.md"
HEADING = "\n## You know it as\n"
INTRODUCTION = """
What other codes and papers call it, and what it is called here; `ordsmed help WORD` looks up one word. A word in
backquotes is a command, a flag, a setting of a recipe, or an entry of a menu.

"""
SPACE = "\xa0"  # code is not broken between lines


def section() -> str:
    """The rows as a list: names, and what they are here."""
    lines = [HEADING + INTRODUCTION]
    for names, meaning in words.table().items():
        parts = f"- **{names}**: {meaning}".split("`")
        parts[1::2] = [part.replace(" ", SPACE) if len(part) < 60 else part for part in parts[1::2]]
        filled = textwrap.fill("`".join(parts), 120, subsequent_indent="  ", break_on_hyphens=False)
        lines.append(filled.replace(SPACE, " ") + "\n")
    return "".join(lines)


def whole(page: str) -> str:
    """The page with this section at its end."""
    return page.partition(HEADING)[0] + section()


def test_the_page_has_every_word() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == whole(page), f"run {__doc__.splitlines()[-1]}"
    assert page.count("\n- **") >= len(words.table()) > 50


if __name__ == "__main__":
    PAGE.write_text(whole(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
