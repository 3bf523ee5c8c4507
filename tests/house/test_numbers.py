"""What messages count goes through `many`, which knows that one is one: no `1 documents`."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

HOUSE = Path(__file__).parents[2] / "src" / "ordsmed"
NOUNS = re.compile(
    " (documents|epochs|threads|processes|files|trials|runs|seeds|examples|questions|sentences|pages|steps|rows|texts"
    "|checkpoints|nodes|machines|devices|jobs|cases|shards|samples|passes|losses|tasks|packages|wheels|hours|days)\\b"
)
FREE = """
    train/runner: steps | train/auto: speed | train/finetune/plan: often
    maker/plan: learning.passes | maker/plan: passes | maker/plan: phase['batch']
    learn/score/squad: len(questions) | text/labelled/conll: len(self)
    train/finetune/recipe: longest or 'all' | data/tokenizer_training: split | others/translate/trainer: flag
    machines/doctor/software: threads or 'any number of' | tell/report/markdown: tables.count(examples[file])
    tell/report/markdown: tables.count(row['documents']) | serve/server: options.workers
    learn/optimizers/muon: size | maker/speedrun/plan: run.passes(unique)
    maker/speedrun/plan: request.rule.passes | maker/speedrun/entry: result['passes']
"""  # words, or numbers that are never one where they are said


def counted(source: str) -> Iterator[tuple[int, str]]:
    """Lines of a source, and what they put before a noun in the plural as it is."""
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for value, text in itertools.pairwise(parts):
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                number = ast.unparse(value.value)
                constant = re.fullmatch(r"[A-Z_]+", number)
                if NOUNS.match(str(text.value)) and not constant and not number.startswith(("many(", "large(")):
                    yield node.lineno, number


def test_a_number_before_a_noun_in_the_plural_may_be_one() -> None:
    free = {tuple(entry.strip().split(": ", 1)) for entry in FREE.replace("\n", "|").split("|") if entry.strip()}
    found = {
        (path.relative_to(HOUSE).with_suffix("").as_posix(), number): line
        for path in HOUSE.rglob("*.py")
        for line, number in counted(path.read_text(encoding="utf-8"))
    }
    assert {place: line for place, line in found.items() if place not in free} == {}, "use `many` of base/say"
    assert {place for place in free if place not in found} == set(), "these are gone"


def test_it_finds_them() -> None:
    assert list(counted('f"{count} documents, {MOST} files, {many(2, noun)} steps, {n:,} stepsons"')) == [(1, "count")]
