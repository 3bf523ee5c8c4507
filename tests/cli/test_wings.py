"""The READMEs of the wings name what is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("wing", sorted((ROOT / "src/ordsmed").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_the_readme_of_a_wing_names_what_is_in_it(wing: Path) -> None:
    """A file or folder that was moved is named where it is now, once."""
    rows = re.findall(r"^- `([^`]+)`", wing.read_text(encoding="utf-8"), re.MULTILINE)
    named = [name.strip(" /") for row in rows for name in row.split(",") if name != "__init__"]
    rooms = {path.stem for path in wing.parent.glob("*.py")} | {path.parent.name for path in wing.parent.glob("*/*.*")}
    rooms -= {"__pycache__"}
    assert [name for name in named if name not in rooms or named.count(name) > 1] == []
    assert len(named) > 0.8 * len(rooms) - 1, sorted(rooms - {*named})
