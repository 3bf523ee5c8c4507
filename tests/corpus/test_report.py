"""The report of a corpus: its page and the lines of the end, by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ordsmed.corpus import report
from ordsmed.corpus.chunks import Chunk
from ordsmed.corpus.cleaning import Facts, Work
from ordsmed.corpus.dedup import Matched
from ordsmed.corpus.folder import Count, PartWriter
from ordsmed.corpus.signatures import Near
from ordsmed.corpus.sources import CorpusSource


class Kind:
    """A source of a known size."""

    def __init__(self, size: int, licence: str = "", words: int = 0) -> None:
        self.bytes, self.LICENCE, self.WORDS = size, licence, words

    def size(self) -> int:
        return self.bytes


def writers(folder: Path) -> dict[str, PartWriter]:
    made = {name: PartWriter(folder / name, 9) for name in ("train", "validation", "test")}
    made["train"].count = Count(1200, 3400, 500_000, 2_500_000, 2_600_000)
    made["validation"].count = Count(1, 2, 3, 40, 50)
    made["train"].parts, made["train"].checksums = {"00000.jsonl": 1200}, {"00000.jsonl": "abc"}
    return made


@pytest.fixture
def facts(tmp_path: Path) -> dict[str, Any]:
    """Of three sources, one of them another corpus."""
    sources = [
        CorpusSource(Kind(0, "no licence of ours"), "against"),
        CorpusSource(Kind(2_000_000, "CC0", 2_500_000_000)),
        CorpusSource(Kind(500), "test"),
    ]
    against = Facts(read=7, documents=7, left_out=Counter({"other": 9}), steps=[[7, 7, 7, 7, 7]] * 2)
    gone = Counter({"redirects": 5, "empty": 5, "ratios: digits": 4, "ratios: lost": 6, "late": 6})
    one = Facts(
        1000,
        800,
        3,
        0,
        gone,
        [[990, 20, 10, 1000, 400], [980, 1, 0, 400, 400]],
        Counter({"utf-16": 2}),
        ["a:1: 'some words'"],
    )
    more = Facts(
        600, 500, 2, 4, Counter({"empty": 1}), [[590, 0, 0, 600, 600], [590, 0, 0, 600, 600]], Counter(cp1252=1)
    )
    chunks = [Chunk("x", 0, against), Chunk("y", 1, one), Chunk("z", 2, more)]
    groups = [{"kept": "a:7", "size": 1234, "members": [["a:8", 0.756], ["b|9", 1.0]], "excerpt": "Some words"}]
    matched = Matched(exact=11, near=2, groups=groups)

    class Ratios:
        __module__ = "ordsmed.corpus.cleaners.ratios"

    return report.facts(Work(clean=(Ratios(),), near=Near()), chunks, sources, matched, writers(tmp_path))


def test_facts_of_a_corpus(facts: dict[str, Any]) -> None:
    assert facts["train"] == {
        "documents": 1200,
        "sentences": 3400,
        "words": 500_000,
        "characters": 2_500_000,
        "bytes": 2_600_000,
        "parts": {"00000.jsonl": 1200},
        "checksums": {"00000.jsonl": "abc"},
    }
    assert (facts["read"], facts["replaced"], facts["cut"]) == (1600, 5, 4)
    assert list(facts["left_out"].items()) == [("empty", 6), ("late", 6), ("redirects", 5)]
    assert [(s["name"], s["documents"], s["changed"], s["dropped"]) for s in facts["steps"]] == [
        ("ratios", 1580, 20, 10),
        ("tidy", 1570, 1, 0),
    ]
    assert [(s["characters_before"], s["characters_after"]) for s in facts["steps"]] == [(1600, 1000), (1000, 1000)]
    assert [list(s["reasons"].items()) for s in facts["steps"]] == [[("lost", 6), ("digits", 4)], []]
    assert facts["dropped"] == {"ratios": 10, "duplicates": 11, "near": 2}
    assert [(s["purpose"], s["licence"], s["bytes"], s["read"], s["documents"]) for s in facts["sources"]] == [
        ("against", "no licence of ours", 0, 7, 7),
        ("", "CC0", 2_000_000, 1000, 800),
        ("test", None, 500, 600, 500),
    ]
    assert facts["held_out"] == ["a:1: 'some words'"]
    assert facts["encodings"] == {"utf-16": 2, "cp1252": 1}


def test_the_page_of_a_corpus(facts: dict[str, Any], tmp_path: Path) -> None:
    report.write(tmp_path, "Mine", {**facts, "language": "en", "licence": None})
    lines = (tmp_path / "report.md").read_text().split("\n")
    assert lines[:2] == ["# Mine", ""]
    assert lines[-1] == ""
    for line in (
        "| train | 1,200 | 3,400 | 500,000 | 2,500,000 | 2,600,000 |",
        "| validation | 1 | 2 | 3 | 40 | 50 |",
        "All splits: 500,003 words: 0.02% of English Wikipedia (2,500 M), 0.06% of BookCorpus (800 M).",
        "Language: en. License: not specified.",
        "| ratios | 1,580 | 20 | 10 | 37.50% | lost 6, digits 4 |",
        "| tidy | 1,570 | 1 | 0 | 0.00% |  |",
        "Files that are not in UTF-8: 1 in cp1252, 2 in utf-16.",
        "| ratios | 10 |",
        "| duplicates | 11 |",
        "| near | 2 |",
        "| empty | 6 |",
        "| sequences of invalid UTF-8 replaced | 5 |",
        "| lines or documents cut | 4 |",
        "- 1,234 like a:7: a:8 (0.76), b|9 (1.00)",
        "  > Some words",
        "- a:1: 'some words'",
    ):
        assert line in lines, line
    assert not [line for line in lines if line.startswith("| test | 0")]
    table = lines[lines.index("| kind | for | license | size | documents | published size |") + 2 :][:3]
    assert [[cell.strip() for cell in row.split("|")[2:-1]] for row in table] == [
        ["against", "no licence of ours", "0 bytes", "7", ""],
        ["all", "CC0", "2 MB", "800", "2,500 M words"],
        ["test", "not specified", "500 bytes", "500", ""],
    ]


def test_a_licence_that_is_said_is_that_of_sources_that_tell_none(facts: dict[str, Any], tmp_path: Path) -> None:
    facts["sources"][0]["licence"], facts["sources"][1]["licence"] = None, "CC0 | MIT"
    report.write(tmp_path, "a|b", {**facts, "licence": "own"})
    lines = (tmp_path / "report.md").read_text().split("\n")
    at = lines.index("| kind | for | license | size | documents | published size |")
    cells = [row.replace("\\|", "or").split("|")[3].strip() for row in lines[at + 2 :][:3]]
    assert cells == ["not specified", "CC0 or MIT", "own"]
    assert "Language: not specified. License: own." in lines


def test_a_page_of_a_corpus_of_which_all_is_there_says_so(facts: dict[str, Any], tmp_path: Path) -> None:
    nothing = {"dropped": {"duplicates": 0}, "left_out": {}, "replaced": 0, "cut": 0, "held_out": None, "encodings": {}}
    facts = {**facts, **nothing, "duplicates": {"groups": []}}
    report.write(tmp_path, "Mine", facts)
    text = (tmp_path / "report.md").read_text()
    assert text.endswith("## Left out\n\nNothing.\n")
    assert "Encodings" not in text


def test_the_lines_of_the_end(facts: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    report.print_summary(facts)
    assert capsys.readouterr().err.splitlines() == [
        "train: 1,200 documents, 3,400 sentences, 500,000 words",
        "validation: 1 document, 2 sentences, 3 words",
        "left out: 10 ratios, 11 duplicates, 2 near, 6 empty, 6 late, 5 redirects",
        "invalid UTF-8: 5 sequences replaced by U+FFFD",
        "not in UTF-8: 1 in cp1252, 2 in utf-16",
        "cut: 4 lines or documents that were too long",
    ]
    report.print_summary(
        {**facts, "dropped": {"duplicates": 0}, "left_out": {}, "replaced": 0, "cut": 0, "encodings": {}}
    )
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert report.dropped_phrase({"dropped": {}, "left_out": {}}) == ""
