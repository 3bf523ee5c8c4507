"""Sources of a corpus: read by portion, long documents in parts, past files that are broken."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run
from ordsmed.corpus import sources
from ordsmed.corpus.pipeline import Corpus


def made(folder: Path, path: Path, **how: Any) -> dict[str, Any]:
    """The status of a corpus of these texts."""
    source = {"kind": "text", "path": str(path)}
    recipe = settings.decode(
        Corpus, {"source": source, "validation": 0.0, "out": str(folder / "corpus"), **how}, "test"
    )
    run = Run(folder / "corpus")
    run.begin(recipe)
    return recipe.perform(run)


def test_of_a_large_file_the_beginning_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"document {n} of {'x' * 90}\n\n" for n in range(40_000)))
    whole, half = (made(tmp_path / name, tmp_path / "a.txt", portion=share) for name, share in (("1", 1.0), ("2", 0.5)))
    assert whole["train"]["documents"] == 40_000
    assert half["train"]["documents"] == pytest.approx(20_000, rel=0.3)


def test_of_small_files_a_share_is_read(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(400):
        (tmp_path / f"texts/{number}.txt").write_text(f"document {number}")
    documents = made(tmp_path, tmp_path / "texts", portion=0.25)["train"]["documents"]
    assert 60 < documents < 140


@pytest.mark.parametrize("portion", [0.0, -0.5, 1.5])
def test_no_other_portion_is_taken(portion: float, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(RecipeError, match="portion: found"):
        made(tmp_path, tmp_path / "a.txt", portion=portion)


def test_long_documents_become_parts_of_whole_lines(tmp_path: Path) -> None:
    lines = [f"line {n} of a long document" for n in range(100)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\nshort")
    [source] = settings.decode(Corpus, {"source": {"kind": "text", "path": str(tmp_path / "a.txt")}}, "test").sources
    parts = [
        document
        for bundle in sources.CorpusSource(source, longest=500).bundles()
        for document in sources.CorpusSource(source, longest=500).read(bundle)
    ]
    assert "\n".join(part.text for part in parts).split("\n") == [*lines, "short"]
    assert all(len(part.text) <= 500 for part in parts)
    assert len({part.id for part in parts}) == len(parts) > 4


def test_markup_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>text</p>")
    with pytest.raises(RecipeError, match="longest: found with web"):
        settings.decode(Corpus, {"source": {"kind": "web", "path": str(tmp_path)}, "longest": 500}, "test")


def test_broken_files_are_refused_or_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(0)
    packed = gzip.compress("".join(f"document {draw.random()}\n\n" for _ in range(100_000)).encode(), 1)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/broken.txt.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "texts/whole.txt").write_text("a whole document")
    with pytest.raises(DataError, match="is cut off"):
        made(tmp_path / "1", tmp_path / "texts")
    status = made(tmp_path / "2", tmp_path / "texts", broken="skip")
    assert status["left_out"] == {"broken files, from where they break": 1}
    assert status["train"]["documents"] > 1
    assert "left out: " in capsys.readouterr().err
