"""Chunks: what is counted in either half of the reading adds up, files stand on the disk before they have names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.crew import crew
from ordsmed.base.run import obtain
from ordsmed.text import chunks, read
from ordsmed.text.chunks import Reading, Source, Work
from ordsmed.text.document import Document
from ordsmed.text.folder import documents, parts
from ordsmed.text.near import Near
from ordsmed.text.pipeline import Corpus, partly


@dataclass(frozen=True)
class Counting:
    """Documents of which both halves of the reading count something."""

    texts: list[str] = field(default_factory=list)

    def documents(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            tally = read.tally()
            tally.left_out["redirects"] += 2
            tally.replaced += 1
            tally.cut += number % 2
            yield Document(text, id=str(number))
        read.tally().left_out["behind the last"] += 1

    def refine(self, document: Document) -> Document | None:
        read.tally().replaced += 10
        read.tally().cut += 100
        if int(document.id) % 3:
            return document
        read.tally().left_out["empty pages"] += 1
        return None

    def stamp(self) -> Any:
        return self.texts

    def size(self) -> int:
        return 0


def facts(folder: Path, *, shortest: int = 1) -> chunks.Facts:
    reading = Reading(folder, [Source(Counting(["text"] * 30))], Work(shortest=shortest))
    with crew() as spread:
        reading.run(spread, 1)
    found = chunks.Facts()
    for chunk in reading.chunks():
        found.add(chunk.facts)
    return found


@pytest.mark.parametrize("size", [1, 2500, 8_000_000])
def test_what_both_halves_count_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(chunks, "CHUNK", size)
    found = facts(tmp_path)
    assert (found.read, found.documents, found.replaced, found.cut) == (30, 20, 30 + 300, 15 + 3000)
    assert found.left_out == {"redirects": 60, "empty pages": 10, "behind the last": 1}
    assert found.steps == [[20, 0, 0, 80, 80]]
    short = facts(tmp_path, shortest=5)
    assert (short.documents, short.left_out["short documents"]) == (0, 20)


def test_a_chunk_stands_on_the_disk_before_it_has_a_name(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    reading = Reading(tmp_path, [Source(Counting(["some text"] * 4))], Work(near=Near()))
    with crew() as spread:
        reading.run(spread, 1)
    renamed = [place for what, place in synced if what == "rename"]
    assert [Path(place).name.partition(".")[2] for place in renamed] == ["jsonl", "npy", "near.npy", "json", "whole"]
    for place in renamed:
        before = synced[synced.index(("rename", place)) - 1]
        assert before[0] == "sync"
        assert Path(before[1]).name.startswith(f".{Path(place).name}.")


def test_a_file_that_is_changed_in_place_is_read_again(tmp_path: Path) -> None:
    """Its size need not change: its time does."""
    path, recipe = tmp_path / "a.txt", tmp_path / "a.toml"
    path.write_text("One text.\n\nAnother one.")
    recipe.write_text(f'out = "{tmp_path}/c"\nvalidation = 0\n[source]\nkind = "text"\npath = "{path}"\n')
    partly(str(recipe), [], part=None, until="read")
    path.write_text("New text.\n\nAnother one.")
    os.utime(path, ns=(1, 1))
    folder = obtain(Corpus, str(recipe))
    assert [d.text for part in parts(folder, "train") for d in documents(part)] == ["New text.", "Another one."]
