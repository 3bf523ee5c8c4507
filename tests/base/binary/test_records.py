"""TFRecords and their examples: TensorFlow's file read, ours written alike, damage named by record and byte."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.base.binary import examples, proto, records
from ordsmed.base.binary.crc32c import crc32c, masked
from ordsmed.base.errors import DataError

REAL = Path(__file__).parent / "tensorflow/records.tfrecord"  # made by tests/measure/tensorflow_files.py
WANTED = {"input_ids": examples.INTS, "masked_lm_weights": examples.FLOATS}
PACKED = {"plain": bytes, "gzip": gzip.compress, "zlib": zlib.compress}


def file(folder: Path, own: list[bytes], pack: Any = bytes) -> Path:
    (folder / "x.tfrecord").write_bytes(pack(b"".join(records.framed(own))))
    return folder / "x.tfrecord"


def contents(path: Path) -> list[bytes]:
    return [bytes(block.record(n)) for block in records.read(path) for n in range(len(block))]


def test_what_tensorflow_wrote() -> None:
    [block] = records.read(REAL)
    columns = examples.read(block, WANTED)
    numbers = [[n, 300 * n, -1, 1 << 40] for n in range(5)]
    assert columns.table("input_ids", block).tolist() == numbers
    assert columns.table("masked_lm_weights", block).tolist() == [[0.5 * n, 1.0] for n in range(5)]
    assert sorted(examples.features(block.record(2))) == ["input_ids", "masked_lm_weights", "text"]
    assert bytes(examples.features(block.record(2))["text"][1]) == proto.run(1, b"aa")
    assert b"".join(records.framed(contents(REAL))) == REAL.read_bytes()


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_there_and_back(tmp_path: Path, pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)
    own = [chance.bytes(int(size)) for size in [0, 1, 3, 5, 70_000, *chance.integers(0, 3000, 1500)]]
    path = file(tmp_path, own, pack)
    assert contents(path) == own
    monkeypatch.setattr(records, "BLOCK", 10_000)  # records reach over blocks, and one over several
    assert contents(path) == own


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_a_long_record_is_put_together_once(tmp_path: Path, pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again with every block that is read."""
    own = [b"a" * 10, np.random.default_rng(1).bytes(1_000_000), *[b"b" * 1000] * 100]
    path, looked = file(tmp_path, own, pack), list[int]()
    monkeypatch.setattr(records, "BLOCK", 10_000)
    monkeypatch.setattr(
        records, "_starts", lambda held, inner=records._starts: (looked.append(len(held)), inner(held))[1]
    )
    assert contents(path) == own
    assert sum(looked) < 1_250_000
    assert max(looked[-8:]) <= 2 * records.BLOCK, "as little as before at once"


def test_the_framing_is_tensorflows(tmp_path: Path) -> None:
    head = struct.pack("<Q", 3)
    sums = [int(masked(crc32c(part))) for part in (head, b"abc")]
    first, second = (struct.pack("<I", one) for one in sums)
    assert file(tmp_path, [b"abc"]).read_bytes() == head + first + b"abc" + second


def test_numbers_of_every_size(tmp_path: Path) -> None:
    edges = [0, 1, 127, 128, 16383, 16384, (1 << 63) - 1, -(1 << 63), -1]
    table = {"a": np.array([edges, edges[::-1]]), "b": np.array([[0.5], [-3.0]], np.float32)}
    [block] = records.read(file(tmp_path, list(examples.written(table))))
    columns = examples.read(block, {"a": examples.INTS, "b": examples.FLOATS})
    assert all(np.array_equal(columns.table(name, block), table[name]) for name in table)
    assert columns.values["b"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda raw: raw[:-3], r"record 3, at byte 46: is truncated: 20 bytes are left of a record of 23; .*; copy it"),
        (lambda raw: raw[:50], r"record 3, at byte 46: is truncated: 4 bytes are left"),
        (lambda raw: raw[:5], r"record 1, at byte 0: is truncated: 5 bytes are left"),
        (lambda raw: raw[:36] + b"X" + raw[37:], r"record 2, at byte 23: its checksum differs; wanted TFRecords"),
        (lambda raw: raw[:32] + b"X" + raw[33:], r"record 2, at byte 23: the checksum of its length differs"),
        (lambda raw: b"some text that is no record", r"record 1, at byte 0: the checksum of its length differs"),
        (lambda raw: gzip.compress(raw)[:-9], r"x\.tfrecord: cannot be decompressed"),
        (lambda raw: zlib.compress(raw)[:-9], r"x\.tfrecord: cannot be decompressed: the compressed data is truncated"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: Any, told: str) -> None:
    path = file(tmp_path, [b"one____", b"two____", b"three__"])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=told):
        contents(path)


def test_a_record_longer_than_the_file_is_not_waited_for(tmp_path: Path) -> None:
    head = struct.pack("<Q", 1 << 40)
    (tmp_path / "x").write_bytes(head + struct.pack("<I", int(masked(crc32c(head)))) + bytes(100))
    with pytest.raises(DataError, match=r"record 1, at byte 0: claims 1,099,511,627,776 bytes"):
        contents(tmp_path / "x")


def test_no_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert contents(tmp_path / "x") == []


def example(**table: Any) -> bytes:
    return next(examples.written({name: np.array([values]) for name, values in table.items()}))


OTHER = {
    "features": (example(label=[1]), r"record 2, at byte \d+: has label \(integers\); missing: input_ids"),
    "kind": (example(input_ids=[1.5], masked_lm_weights=[1.0]), r"record 2, .*: input_ids has floats; wanted integers"),
    "count": (
        example(input_ids=[1, 2, 3], masked_lm_weights=[1.0]),
        r"record 2, .*: input_ids has 3 numbers; wanted 2, as in other examples",
    ),
    "no example": (b"\x0a\x05ab", r"record 2, .*: is not a tf\.train\.Example: "),
    "empty": (b"", r"record 2, .*: has no features; missing: input_ids"),
    "cut number": (
        proto.run(1, proto.run(1, proto.run(1, b"input_ids") + proto.run(2, proto.run(3, proto.run(1, b"\x80"))))),
        r"record 2, .*missing: masked_lm_weights|truncated in a number",
    ),
}


@pytest.mark.parametrize(("bad", "told"), OTHER.values(), ids=OTHER)
def test_examples_of_another_kind_are_named(tmp_path: Path, bad: bytes, told: str) -> None:
    good = example(input_ids=[1, 2], masked_lm_weights=[1.0])
    [block] = records.read(file(tmp_path, [good, bad]))
    with pytest.raises(DataError, match=told):
        examples.read(block, WANTED).table("input_ids", block)


def test_a_number_that_is_cut_off_is_named(tmp_path: Path) -> None:
    bad = proto.run(1, proto.run(1, proto.run(1, b"a") + proto.run(2, proto.run(3, proto.run(1, b"\x05\x80")))))
    [block] = records.read(file(tmp_path, [example(a=[7]), bad]))
    with pytest.raises(DataError, match=r"record 2, .*: is not a tf\.train\.Example: it is truncated in a number"):
        examples.read(block, {"a": examples.INTS})
