"""JSON lines without a corpus: one sentence per line, and fixed splits with maps of the original lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.corpus import jsonl_files


def test_sentences_stand_on_lines(tmp_path: Path) -> None:
    """Other keys stay; a line end of the text ends a sentence; empty texts and lines are no trouble."""
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    records = [{"text": "One. Two? \nThree  and\n\nfour.", "url": "é"}, {"text": ""}]
    source.write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    told = jsonl_files.presplit(str(source), str(target))
    got = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert got == [{"text": "One.\nTwo?\nThree and\nfour.", "url": "é"}, {"text": ""}]
    assert told[0] == f"{target}: 2 documents"
    with pytest.raises(RecipeError, match="exists"):
        jsonl_files.presplit(str(source), str(target))
    again = tmp_path / "c.json"
    jsonl_files.presplit(str(target), str(again))
    assert again.read_bytes() == target.read_bytes()


def test_each_line_falls_to_one_split(tmp_path: Path) -> None:
    """Sizes are rounded up as in the original tool; the maps lead back; a folder with other files is accepted."""
    for name, count in (("a", 41), ("b", 20)):
        (tmp_path / f"{name}.json").write_text("\n".join(f'{{"text": "{name} {n}"}}' for n in range(count)) + "\n\n")
    sources = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    jsonl_files.split(sources, str(tmp_path), dev=0.1, test=0.04)
    lines = {name: (tmp_path / f"{name}.json").read_text().splitlines() for name in jsonl_files.NAMES}
    assert {name: len(found) for name, found in lines.items()} == {"train": 51, "dev": 7, "test": 3}
    read = [Path(source).read_text().splitlines() for source in sources]
    assert sorted(line for found in lines.values() for line in found) == sorted(
        line for own in read for line in own if line
    )
    for name, found in lines.items():
        head, *where = (tmp_path / f"{name}.json.map").read_text().splitlines()
        assert head == "file\tline #"
        assert [read[int(file)][int(at)] for file, at in (one.split("\t") for one in where)] == found
    jsonl_files.split(sources, str(tmp_path / "again"), dev=0.1, test=0.04)
    assert (tmp_path / "again" / "dev.json").read_text().splitlines() == lines["dev"]
    jsonl_files.split(sources, str(tmp_path / "other"), dev=0.1, test=0.04, seed=1)
    assert (tmp_path / "other" / "dev.json").read_text().splitlines() != lines["dev"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{", "bad JSON"),
        ("[1]", "no text under `text`; keys: list"),
        ('{"text": 3, "a": 1}', "no text under `text`; keys: a, text"),
    ],
)
def test_lines_that_hold_no_text(tmp_path: Path, text: str, wanted: str) -> None:
    source = tmp_path / "a.json"
    source.write_text(f'{{"text": "x"}}\n{text}\n')
    with pytest.raises(DataError, match=re.escape(f"{source}:2: {wanted}")):
        jsonl_files.presplit(str(source), str(tmp_path / "b.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_splits_that_cannot_be(tmp_path: Path) -> None:
    source = tmp_path / "train.json"
    source.write_text('{"text": "x"}\n{"text": "y"}\n{"text": "z"}\n')
    for how, wanted in (
        ({"dev": 1.5}, "shares that leave"),
        ({"dev": 0.6, "test": 0.3}, "more than are held out"),
        ({}, "is one of the files that are read"),
    ):
        with pytest.raises(OrdsmedError, match=wanted):
            jsonl_files.split([str(source)], str(tmp_path), **how, anew=True)
    with pytest.raises(RecipeError, match="is one of the files that are read"):
        jsonl_files.presplit(str(source), str(source), anew=True)
    assert [path.name for path in tmp_path.iterdir()] == ["train.json"]
