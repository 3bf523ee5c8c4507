"""Parquet: rows with any columns become documents, and the parts of a file give the documents of the whole."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.corpus.corpora import parquet
from ordsmed.text import read
from ordsmed.text.document import Document

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def documents(path: Path, columns: dict[str, Any] | None = None, **settings: Any) -> list[Document]:
    if columns is not None:
        pq.write_table(pa.table(columns), path)
    return list(parquet.Parquet(str(path), **settings).documents())


def complaint(path: Path, columns: dict[str, Any] | None = None, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        documents(path, columns, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


def test_rows_are_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with read.tallied() as tally:
        one, two = documents(
            path, {"text": ["One. Å", None, "", "Two"], "n": [1, 2, 3, 4], "url": ["a", "b", "c", None]}
        )
    assert one == Document("One. Å", id=f"{path}:1", meta={"n": 1, "url": "a"})
    assert two == Document("Two", id=f"{path}:4", meta={"n": 4, "url": None})
    assert tally.left_out == {"empty": 2}
    assert tally.bytes == path.stat().st_size
    (named,) = documents(path, {"body": ["b"], "name": [7], "x": [0]}, text_key="body", id_key="name", keep=[])
    assert named == Document("b", id="7", meta={})


def test_metadata_is_what_json_can_hold(tmp_path: Path) -> None:
    columns = {
        "text": ["t"],
        "day": [dt.date(2020, 1, 31)],
        "price": [decimal.Decimal("1.50")],
        "raw": [b"\xff\x00"],
        "nested": [{"tags": ["a", "b"], "at": dt.datetime(2020, 1, 31, 12)}],
        "took": [dt.timedelta(seconds=5)],
        "fine": pa.array([1], pa.timestamp("ns", "UTC")),
        "pairs": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        "none": pa.nulls(1),
        "far": pa.array([1 << 48], pa.timestamp("ms")),
    }
    (found,) = documents(tmp_path / "a.parquet", columns)
    assert msgspec.json.decode(msgspec.json.encode(found.meta)) == {
        "day": "2020-01-31",
        "price": "1.50",
        "raw": "/wA=",
        "took": "PT5S",
        "pairs": [["k", 1]],
        "none": None,
        "nested": {"tags": ["a", "b"], "at": "2020-01-31T12:00:00"},
        "fine": "1970-01-01T00:00:00.000000001Z",
        "far": "10889-08-02T05:31:50.656",
    }


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_of_every_kind(tmp_path: Path, kind: Any) -> None:
    column = pa.array(["å", "b"]).cast(kind)
    assert [d.text for d in documents(tmp_path / "a.parquet", {"text": column})] == ["å", "b"]


@pytest.mark.parametrize("part", [1, 3000, 1 << 40])
def test_pieces_give_what_the_whole_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{n} " * 50 for n in range(100)]}), path, row_group_size=7)
    monkeypatch.setattr(parquet, "PART", part)
    monkeypatch.setattr(parquet, "BATCH", 1000)
    source = parquet.Parquet(str(tmp_path))
    assert (len(source.pieces()) > 1) == (part < 1 << 40)
    with read.tallied() as tally:
        found = list(source.documents())
    assert [(d.id, d.text) for d in found] == [(f"{path}:{n + 1}", f"{n} " * 50) for n in range(100)]
    assert tally.bytes == path.stat().st_size


def test_invalid_utf8_is_named_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    raw = pa.array([b"fine", b"a\xffb \xef\xbf\xbd"], pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    assert complaint(path, {"text": bad}).startswith(":2: invalid UTF-8 at byte 1 of the text; wanted text in UTF-8")
    with read.tallied() as tally:
        assert [d.text for d in documents(path, errors="replace")] == ["fine", "a\ufffdb \ufffd"]
    assert tally.replaced == 1
    assert "column `url`: cannot be kept" in complaint(path, {"text": ["a", "b"], "url": bad})


def test_odd_texts_stay_whole(tmp_path: Path) -> None:
    texts = ["\ufeffa\x00b", "w " * 2_000_000]
    assert [d.text for d in documents(tmp_path / "a.parquet", {"text": texts})] == texts


def test_what_cannot_be_read_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    wrong = complaint(path, {"body": ["x"], "id": [3]})
    assert wrong == ": no column `text`; wanted one of body, id; set `text_key`, `id_key` or `keep`"
    assert complaint(path, {"text": ["x"]}, id_key="url").startswith(": no column `url`; wanted one of text;")
    assert complaint(path, {"text": [3]}).startswith(": column `text` holds int64; wanted text")
    whole = path.read_bytes()
    for kept in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        assert complaint(path).startswith(": cannot be read: ")
    path.write_bytes(whole[:4] + b"\xaa" * 40 + whole[44:])
    assert complaint(path).startswith(": cannot be read: ")


def test_other_files_of_a_folder_are_counted(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("what this is")
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "part-0")
    with read.tallied() as tally:
        assert [d.text for d in parquet.Parquet(str(tmp_path)).documents()] == ["x"]
    assert tally.left_out == {"files other than Parquet and Arrow": 1}
    assert tally.bytes == parquet.Parquet(str(tmp_path)).size()


def test_without_pyarrow_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecipeError, match=r"pip install 'ordsmed\[parquet\]'"):
        documents(tmp_path / "a.parquet")


def test_large_files_are_cut_in_as_many_parts_as_they_have_sizes_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups form parts of about equal size; each reports its share of the bytes."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{n} " * 50 for n in range(100)]}), path, row_group_size=10)
    size = path.stat().st_size
    for parts, groups in ((1, [10]), (2, [5, 5]), (3, [3, 3, 4]), (4, [2, 3, 2, 3])):
        monkeypatch.setattr(parquet, "PART", size // parts)
        pieces = parquet.Parquet(str(path)).pieces()
        if parts == 1:
            assert [(p.start, p.stop, p.bytes) for p in pieces] == [(0, None, None)]
            continue
        assert [(p.stop or 0) - p.start for p in pieces] == groups
        assert [p.bytes for p in pieces] == [n * (size // 10) for n in groups]
        with read.tallied() as tally:
            found = [[d.text.split()[0] for d in parquet.Parquet(str(path)).read(piece)] for piece in pieces]
        assert [text for some in found for text in some] == [str(n) for n in range(100)]
        assert [len(texts) for texts in found] == [10 * n for n in groups]
        assert tally.bytes == size
    (other := tmp_path / "b.bin").write_bytes(b"x" * size)
    assert len(parquet.Parquet(str(other)).pieces()) == 1


def test_so_many_rows_are_unpacked_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * n for n in range(1000)]}), path, row_group_size=300)
    with pq.ParquetFile(path) as file:
        unpacked = sum(file.metadata.row_group(n).total_byte_size for n in range(4))
        assert parquet._batch(file) == 4096
        for batch in (unpacked // 10, unpacked // 500, unpacked - 1, 1):
            monkeypatch.setattr(parquet, "BATCH", batch)
            assert parquet._batch(file) == max(1, batch * 1000 // unpacked)


def test_a_file_without_rows_is_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PART", 1)
    path = tmp_path / "a.parquet"
    assert documents(path, {"text": pa.array([], pa.string())}) == []
    assert [piece.path for piece in parquet.Parquet(str(path)).pieces()] == [path]


def test_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"text": ["one", "two"], "name": ["n", None], "a": [1, 2], "b": [3, 4]}
    (one, two) = documents(path, columns, keep=["b"], id_key="name")
    assert (one, two) == (Document("one", id="n", meta={"b": 3}), Document("two", id=f"{path}:2", meta={"b": 4}))
    (one, _) = documents(path, id_key="name", keep=["name", "text"])
    assert one == Document("one", id="n", meta={})
    (one, _) = documents(path, keep=["name"])
    assert one.meta == {"name": "n"}
    assert complaint(path, keep=["c"]).startswith(": no column `c`; wanted one of text, name, a, b;")


@pytest.mark.parametrize("opened", ["new_stream", "new_file"])
def test_arrow_files_of_a_saved_dataset(tmp_path: Path, opened: str) -> None:
    """In a folder written by Hugging Face's save_to_disk, next to its description files."""
    ipc = pytest.importorskip("pyarrow.ipc")
    columns = {"text": ["One. Two.", "", "Ærlig."], "stars": [1, 2, 3], "day": [dt.date(2020, 1, 31)] * 3}
    table = pa.table(columns)
    paths = [tmp_path / f"data-0000{number}-of-00002.arrow" for number in range(2)]
    for path in paths:
        with pa.OSFile(str(path), "wb") as file, getattr(ipc, opened)(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    (tmp_path / "state.json").write_text("{}")
    with read.tallied() as tally:
        own = documents(tmp_path)
    assert [document.text for document in own] == ["One. Two.", "Ærlig."] * 2
    assert own[3].id == f"{paths[1]}:3"
    assert own[3].meta == {"stars": 3, "day": "2020-01-31"}
    assert tally.left_out == {"files other than Parquet and Arrow": 1, "empty": 2}
    assert tally.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert [document.meta for document in documents(paths[0], keep=[])] == [{}, {}]
    paths[0].write_bytes(paths[0].read_bytes()[:200])
    assert complaint(paths[0]).startswith(": cannot be read: ")
