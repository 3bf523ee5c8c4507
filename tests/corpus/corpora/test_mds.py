"""Mosaic's shards: samples become documents, packed or not; what does not fit together is named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ordsmed.base.errors import DataError
from ordsmed.corpus.corpora.mds import Mds
from ordsmed.text import read

COLUMNS = {"id": "str", "n": "int", "picture": "jpeg", "text": "str", "about": "json"}
ROWS = [("a", 1, b"\xff\xd8", "One. Ærlig.", {"x": [1]}), ("b", -2, b"", "", {}), ("c", 1 << 40, b"...", "Three.", {})]


def shard(rows: list[tuple[Any, ...]]) -> bytes:
    samples = []
    for name, number, picture, text, about in rows:
        loose = [name.encode(), picture, text.encode(), json.dumps(about).encode()]
        columns = loose[0] + struct.pack("<q", number) + b"".join(loose[1:])
        samples.append(struct.pack("<4I", *map(len, loose)) + columns)
    at = 4 + 4 * (len(samples) + 1)
    borders = [at + sum(map(len, samples[:n])) for n in range(len(samples) + 1)]
    return struct.pack(f"<{len(borders) + 1}I", len(samples), *borders) + b"".join(samples)


def folder(path: Path, *, packed: bool = False) -> Path:
    """Two shards as streaming writes them."""
    path.mkdir()
    shards = []
    for number, rows in enumerate((ROWS[:2], ROWS[2:])):
        name, data = f"shard.0000{number}.mds", shard(rows)
        own = {"basename": f"{name}.zstd" if packed else name, "bytes": len(data)}
        (path / own["basename"]).write_bytes(zstandard.compress(data) if packed else data)
        shards.append(
            {
                "column_encodings": [*COLUMNS.values()],
                "column_names": [*COLUMNS],
                "samples": len(rows),
                "format": "mds",
                "column_sizes": [8 if kind == "int" else None for kind in COLUMNS.values()],
                "version": 2,
                "raw_data": {"basename": name},
                "zip_data": own if packed else None,
            }
        )
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_samples_are_documents(tmp_path: Path, packed: bool) -> None:
    place = folder(tmp_path / "data", packed=packed)
    with read.tallied() as tally:
        own = list(Mds(str(place)).documents())
    assert [document.text for document in own] == ["One. Ærlig.", "Three."]
    assert own[0].meta == {"id": "a", "n": 1, "about": {"x": [1]}}
    assert own[1].id.endswith("shard.00001.mds.zstd:1" if packed else "shard.00001.mds:1")
    assert own[1].meta["n"] == 1 << 40
    assert tally.left_out == {"empty": 1}
    assert [document.id for document in Mds(str(place), id_key="id").documents()] == ["a", "c"]


def spoil(place: Path, change: Any) -> None:
    table = json.loads((place / "index.json").read_text())
    change(table["shards"][1])
    (place / "index.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one.pop("samples"), r"index\.json: a shard without 'samples'"),
        (lambda one: one.update(format="jsonl"), r"shard\.00001\.mds is of the format jsonl; wanted mds"),
        (lambda one: one.update(samples=7), r"shard\.00001\.mds: is damaged: .* bytes of 1 sample"),
        (lambda one: one["raw_data"].update(basename="gone.mds"), r"gone\.mds: no such file"),
        (lambda one: one["column_names"].__setitem__(3, "body"), r"has no text in `text`; wanted one of id \(str\)"),
        (lambda one: one["column_sizes"].__setitem__(1, 800), r"is damaged: `n` extends beyond its sample"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: Any, told: str) -> None:
    place = folder(tmp_path / "data")
    spoil(place, change)
    with pytest.raises(DataError, match=told):
        list(Mds(str(place)).documents())


def test_damage_is_named(tmp_path: Path) -> None:
    place = folder(tmp_path / "data")
    path = place / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"shard\.00000\.mds: is damaged: .*; wanted a complete dataset of Mosaic"):
        list(Mds(str(place)).documents())
    (place / "index.json").unlink()
    with pytest.raises(DataError, match=r"contains no index\.json"):
        Mds(str(place)).pieces()
