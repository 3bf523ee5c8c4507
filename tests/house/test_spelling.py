"""Spelling of the house: American in pages, comments, docstrings and messages; names and keys stay as they are."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# British: American; of a stem every word that goes on from it
STEMS = {
    "colour": "color",
    "behaviour": "behavior",
    "neighbour": "neighbor",
    "favour": "favor",
    "flavour": "flavor",
    "honour": "honor",
    "labour": "labor",
    "licence": "license",
    "defence": "defense",
    "centre": "center",
    "centring": "centering",
    "metres": "meters",
    "normalis": "normaliz",
    "initialis": "initializ",
    "optimis": "optimiz",
    "tokenis": "tokeniz",
    "recognis": "recogniz",
    "organis": "organiz",
    "standardis": "standardiz",
    "summaris": "summariz",
    "generalis": "generaliz",
    "specialis": "specializ",
    "serialis": "serializ",
    "quantis": "quantiz",
    "synchronis": "synchroniz",
    "minimis": "minimiz",
    "maximis": "maximiz",
    "realis": "realiz",
    "capitalis": "capitaliz",
    "vectoris": "vectoriz",
    "randomis": "randomiz",
    "parallelise": "parallelize",
    "analyse": "analyze",
    "labelled": "labeled",
    "labelling": "labeling",
    "modelled": "modeled",
    "modelling": "modeling",
    "signalled": "signaled",
    "signalling": "signaling",
    "cancelled": "canceled",
    "travelled": "traveled",
    "catalogue": "catalog",
    "artefact": "artifact",
    "judgement": "judgment",
    "programme": "program",
    "grey": "gray",
    "whilst": "while",
    "learnt": "learned",
    "spelt": "spelled",
    "practise": "practice",
    "fulfil ": "fulfill ",
}
# Not within a name (hugging_face, layout.variant, --licence, labelled/) and not where it is one: "licence"
WORD = re.compile(rf"(?<![\w./=\"'-])({'|'.join(STEMS)})[a-z]*+(?![\w/=(\"'-])", re.IGNORECASE)
NAMES = re.compile(r"`[^`]*`|\{[^{}]*\}|\"\w+\"|'\w+'|https?://\S+", re.DOTALL)
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
TABLES = {"templates.py"}  # which hold names of templates, as many words in a string
FILES = sorted(path for path in (ROOT / "src").rglob("*.py") if path.name not in TABLES)


def british(text: str) -> list[str]:
    """The words that are spelled otherwise here."""
    return [found[0] for found in WORD.finditer(NAMES.sub(lambda name: "\n" * name[0].count("\n"), text))]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Of a page what stands in no block of code; of a module comments, docstrings and strings of several words."""
    if path.suffix == ".py":
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string.strip()):
                    yield token.start[0], token.string
        return
    fenced, begin, lines = False, 1, list[str]()
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        edge = line.startswith("```")
        fenced ^= edge
        if line.strip() and not fenced and not edge and not line.startswith("    "):
            lines.append(line)
        elif lines:
            yield begin, "\n".join(lines)
            lines = []
        begin = begin if lines else number + 1


@pytest.mark.parametrize("paths", [PAGES, FILES], ids=["pages", "modules"])
def test_spelling_is_american(paths: list[Path]) -> None:
    assert paths
    offenders = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in paths
        for number, text in prose(path)
        for word in british(text)
    ]
    assert offenders == []


def test_the_list_finds_them() -> None:
    assert british("A colour, two Neighbours; it is normalised, recognised and labelled") == [
        "colour",
        "Neighbours",
        "normalised",
        "recognised",
        "labelled",
    ]
    names = "`licence`, 'colour', labelled/glue.py, --licence, optimizer.variant, {self.licence}, variant=b, licence_of"
    assert british(names) == []
    assert british("colors of neighbors, licensed, tokenized") == []


def test_prose_of_a_module_and_of_a_page(tmp_path: Path) -> None:
    module, page = tmp_path / "a.py", tmp_path / "a.md"
    module.write_text('"""Two words."""\nx = {"colour": "key"}  # a note\ny = f"to {x}"\n')
    assert [text for _, text in prose(module)] == ['"""Two words."""', "# a note", 'f"to {x}"']
    page.write_text("one\ntwo\n\n    code\n\n```\ncode\n```\nthree")
    assert list(prose(page)) == [(1, "one\ntwo"), (9, "three")]
