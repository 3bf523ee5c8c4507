"""Files of vectors and rows that are read at once, without a network."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base.errors import RecipeError
from ordsmed.measure.bench.plain import PlainBiLm
from ordsmed.use import vectors
from ordsmed.use.embed import Form, _buffers, _split, numbers
from ordsmed.use.readers import Row, TransformerReader


@pytest.mark.parametrize("ending", [".npz", ".npy", ".h5", ".parquet"])
def test_what_is_renamed_stands_on_the_disk_before(tmp_path: Path, synced: list[tuple[str, str]], ending: str) -> None:
    if ending == ".h5":
        pytest.importorskip("h5py")
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    target, beside = tmp_path / "deep" / f"v{ending}", tmp_path / "deep" / f".v{ending}.part"
    with vectors.writing(target, (2,), "float32") as writer:
        writer.add(0, ["a"], np.ones(2, np.float32))
        assert beside.exists()
        assert not target.exists()
    own = [told for told in synced if str(tmp_path) in told[1]]
    assert own == [("sync", str(beside)), ("rename", str(target)), ("sync", str(target.parent))] or own == [
        ("sync", str(beside)),
        ("sync", str(target.parent)),
    ]
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_row_groups_of_parquet_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(vectors, "GROUP", 1000)
    with vectors.writing(tmp_path / "v.parquet", (None, 2), "float32") as writer:
        for line in range(20):
            writer.add(line, ["w"] * (line % 3), np.full((line % 3, 2), line, np.float32))
    found = parquet.ParquetFile(tmp_path / "v.parquet")
    assert 2 <= found.num_row_groups <= 10
    table = found.read().to_pydict()
    assert table["line"] == list(range(20))
    assert table["words"] == [["w"] * (line % 3) for line in range(20)]
    assert table["vectors"] == [[[float(line)] * 2] * (line % 3) for line in range(20)]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stands.npz").write_text("")
    (tmp_path / "folder.npz").mkdir()
    for name, even, said in (
        ("v.txt", True, "ends in .txt; wanted one of .h5 .hdf5 .npz .npy .parquet"),
        ("v", True, "has no ending; wanted"),
        ("v.npy", False, "needs entries of one shape"),
        ("folder.npz", True, "is a folder; wanted a file to write"),
        ("stands.npz", True, "already exists; wanted a new file; name another, or add --anew"),
    ):
        with pytest.raises(RecipeError, match=said):
            vectors.check(tmp_path / name, even=even, anew=False)
    vectors.check(tmp_path / "stands.npz", even=False, anew=True)
    vectors.check(tmp_path / "v.NPY", even=True, anew=False)


def test_rows_that_are_read_at_once() -> None:
    """The longest first, so many at most, no more tokens than a batch may have; short ones share rows."""
    lengths = [5, 300, 3_000, 900, 900, 7, 6, 4, 3]
    rows = [Row(n, 0, 0, length, [n] * length) for n, length in enumerate(lengths)]
    own: Any = SimpleNamespace(batch=3, model=torch.nn.Linear(1, 1), tokenizer=SimpleNamespace(pad=0))
    groups = [*TransformerReader._batches(own, rows)]
    assert [[len(row.ids) for row in group] for group, _ in groups] == [[3_000], [900, 900], [300, 7, 6], [5, 4, 3]]
    assert [tuple(batch.tokens.shape) for _, batch in groups] == [(1, 3_000), (2, 900), (1, 320), (2, 8)]
    for group, batch in groups:
        assert batch.spans is not None
        texts = [batch.tokens.flatten()[begin : begin + size].tolist() for begin, size in batch.spans.tolist()]
        assert texts == [row.ids for row in group]


def test_lines_that_wait_are_bounded_by_their_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    reader: Any = SimpleNamespace(layers=2, width=4)
    monkeypatch.setattr("ordsmed.use.embed.BUFFER_LINES", 4)
    monkeypatch.setattr("ordsmed.use.embed.BUFFER_BYTES", 3 * 32)  # of three words
    lines = ["a", "b c", "d e f g", "", "", "", "", "x"]
    assert list(_buffers(lines, reader, Form())) == [["a", "b c"], ["d e f g"], ["", "", "", ""], ["x"]]
    assert list(_buffers(lines, reader, Form(carry=True, batch=3))) == [lines[:3], lines[3:6], lines[6:]]
    assert list(_buffers([], reader, Form())) == []


def test_lines_go_over_blocks() -> None:
    assert list(_split([b"a\nb", b"", b"c\n", b"\nd"])) == [b"a\n", b"bc\n", b"\n", b"d"]
    assert list(_split([b"a\n"])) == [b"a\n"]


def test_layers_by_their_numbers() -> None:
    assert (numbers("all", 3), numbers("top", 3), numbers("0,-1,1", 3)) == ([0, 1, 2], [2], [0, 2, 1])
    for odd in ("3", "-4", "x", "1,,2"):
        with pytest.raises(RecipeError, match="wanted top, all, mean or numbers from -3 to 2, such as --layers=0,-1"):
            numbers(odd, 3)


def test_the_plain_script_s_cell_by_hand() -> None:
    script = object.__new__(PlainBiLm)
    big = torch.full((1, 1), 50.0)
    cell = {"enter": torch.full((4, 1), 50.0), "carry": torch.zeros(4, 1), "bias": torch.zeros(4), "project": big}
    x = torch.ones(1, 5, 1, requires_grad=True)
    made, h, c = script._layer(cell, x, torch.zeros(1, 1), torch.zeros(1, 1))
    assert c.item() == 3.0, "five steps of 1 each are more than that"
    assert h.item() == 3.0
    assert made.flatten().tolist() == [3.0] * 5
    assert (made.requires_grad, h.requires_grad, c.requires_grad) == (True, False, False)
    soft = {
        "enter": torch.zeros(4, 1),
        "carry": torch.zeros(4, 1),
        "bias": torch.tensor([0.0, 0.5, 1.0, 2.0]),
        "project": torch.full((1, 1), 0.5),
    }
    made, h, c = script._layer(soft, torch.ones(1, 1, 1), torch.zeros(1, 1), torch.full((1, 1), 2.0))
    forget, come, new, out = (torch.sigmoid(torch.tensor(v)) for v in (1.5, 0.0, 0.0, 2.0))
    wanted = forget * 2 + come * torch.tanh(torch.tensor(1.0))
    assert new == 0.5
    assert c.item() == pytest.approx(float(wanted), rel=1e-6)
    assert h.item() == pytest.approx(float(0.5 * out * torch.tanh(wanted)), rel=1e-6)
