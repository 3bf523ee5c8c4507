"""Prose of the pages: words that sound odd to a reader of other projects' pages, counted; the counts may only fall.

Run as a script (PYTHONPATH=tests), it prints them: of each page, and with a word or more the lines that have these.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from house.test_spelling import ROOT, prose

# what is written here -> what is plainer
PLAINER = {
    "anew": "again", "beside": "next to, in addition to", "lacks?|lacked|lacking": "is missing, does not have",
    "stands?|stood|standing": "is, exists", "tells?|told|telling": "says, prints, reports",
    "whoever": "anyone who", "theirs": "the original, that of ...", "slopes?": "gradients", "judged?|judges": "scored",
    "go on|goes on|going on|went on|gone on": "resume, continue", "ask(?:s|ed|ing)? (?:for|of)": "request, require",
    "taken over": "imported, converted", "handed in|hand in": "submitted", "courses?": "schedule, learning curve",
    "laid": "placed", "begins? anew": "starts again", "kin": "family", "quirks?": "special case",
    "somebody|nobody|everybody": "someone, a user", "of one's own|of yours|of theirs": "your own",
    "is to be|are to be": "should be, will be", "all that": "everything that",
}  # fmt: skip
WORDS = re.compile(rf"\b(?:{'|'.join(PLAINER)})\b", re.IGNORECASE)
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("src/ordsmed/*/README.md"))]
DONE = {ROOT / "CHANGELOG.md", *ROOT.glob("docs/log/*.md"), ROOT / "docs/log.md"}  # what was written at its time
MOST = {
    "AGENTS.md": 1,
    "docs/add-a/probe.md": 1,
    "docs/add-a/task.md": 1,
    "docs/add-a/validation-item.md": 1,
    "docs/add-a.md": 1,
    "docs/clusters.md": 2,
    "docs/coming-from/fairseq.md": 2,
    "docs/coming-from/google.md": 1,
    "docs/coming-from/megatron.md": 6,
    "docs/coming-from/nvidia.md": 3,
    "docs/design/README.md": 8,
    "docs/evaluation.md": 2,
    "docs/finetuning.md": 2,
    "docs/formats.md": 1,
    "docs/layouts.md": 2,
    "docs/new/0.2.md": 1,
    "docs/results.md": 1,
    "src/ordsmed/data/README.md": 1,
    "src/ordsmed/tell/README.md": 1,
}


def odd(page: Path) -> list[str]:
    """The words of a page that are in the list, in lower case."""
    text = "\n".join(part for _, part in prose(page))
    return [match[0].lower() for match in WORDS.finditer(CODE.sub(" ", text))]


def counts() -> dict[str, int]:
    """How many each page has."""
    found = {page.relative_to(ROOT).as_posix(): len(odd(page)) for page in PAGES if page not in DONE}
    return {name: count for name, count in found.items() if count}


def test_odd_words_become_fewer() -> None:
    assert {name: count for name, count in counts().items() if count > MOST.get(name, 0)} == {}, "more than there were"


def test_odd_words_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It stands beside `anew`, and tells\nwhoever asks for it: an understanding.\n\n    lacks\n")
    assert odd(page) == ["stands", "beside", "tells", "whoever", "asks for"]


if __name__ == "__main__":
    for page in PAGES if sys.argv[1:] else []:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if page not in DONE and any(re.search(rf"\b{word}\b", line) for word in sys.argv[1:]):
                print(f"{page.relative_to(ROOT)}:{number}: {line}")
    if not sys.argv[1:]:
        print(*(f'    "{name}": {count},' for name, count in counts().items()), sep="\n")
