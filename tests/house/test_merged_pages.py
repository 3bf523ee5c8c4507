"""The changelog and the log, whose ends two changes at once both write, read as one wrote them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OVER = re.compile(r"\s*[a-z0-9]")  # a line that begins so goes on with a sentence
SCRAMBLED = ["- A thing.\n  left over from another.\n", "- A thing of this kind, and some more of that.\n" * 2]


def scrambled(text: str) -> list[str]:
    """Lines that go on where a sentence has ended, and long ones that stand twice."""
    outside = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in outside.splitlines() if not line.startswith(("|", "#"))]
    ends = [after for line, after in pairwise(lines) if line.endswith((".", "!", "?")) and LEFT_OVER.match(after)]
    return ends + [line for line, count in Counter(lines).items() if count > 1 and len(line) > 40]


@pytest.mark.parametrize("text", SCRAMBLED)
def test_what_is_scrambled_is_seen(text: str) -> None:
    assert scrambled(text) != []


def test_the_changelog_is_one_list_under_each_heading() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert scrambled(text) == []
    body = text[text.index("### ") :].splitlines()
    assert [line for line in body if line and not line.startswith(("- ", "  ", "## ", "### ", "#### "))] == []
    assert [line for before, line in pairwise(body) if not before and line.startswith("  ")] == []


MONTHS = sorted((ROOT / "docs/log").glob("*.md"))


@pytest.mark.parametrize("page", MONTHS, ids=lambda page: page.stem)
def test_entries_of_the_log_are_separate_and_in_order(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert scrambled(text) == []
    lines = text.splitlines()
    assert [line for before, line in pairwise(lines) if before and line.startswith("## ")] == []
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    dates = [heading.partition(": ")[0] for heading in headings]
    assert [date for date in dates if not re.fullmatch(rf"{page.stem}-\d\d", date)] == []
    assert dates == sorted(dates)
    assert [name for name, count in Counter(headings).items() if count > 1] == []


def test_the_index_of_the_log_has_every_entry() -> None:
    """Month by month, in the order of the pages."""
    index = (ROOT / "docs/log.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- (\d{4}-\d\d-\d\d: .*)$", index, re.MULTILINE)
    headings = [re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in MONTHS]
    assert entries == [heading for month in headings for heading in month]
    assert re.findall(r"\(log/(.*)\)", index) == [page.name for page in MONTHS]
