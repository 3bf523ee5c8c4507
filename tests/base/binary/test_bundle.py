"""TensorFlow's checkpoints: real ones read, ours read back, damage named by file and place."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
import torch

from ordsmed.base.binary import bundle, proto, sstable
from ordsmed.base.binary.crc32c import crc32c, masked
from ordsmed.base.errors import DataError, RecipeError

REAL = Path(__file__).parent / "tensorflow"  # made by tests/measure/tensorflow_files.py
KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool]


def copied(folder: Path) -> Path:
    for path in (REAL / "gpt2").iterdir():
        shutil.copy(path, folder)
    return folder / "model.ckpt"


def tensors(prefix: Path) -> dict[str, torch.Tensor]:
    found = bundle.Bundle(prefix)
    return {name: found.read(name) for name in found.shapes()}


def test_what_tensorflow_wrote_is_read_and_written_alike(tmp_path: Path) -> None:
    for place in (REAL, REAL / "electra", REAL / "nvidia", REAL / "gpt2"):
        prefix = bundle.find(place)
        assert prefix is not None
        theirs = tensors(prefix)
        bundle.write(tmp_path / "own.ckpt", iter(theirs.items()))
        ours = tensors(tmp_path / "own.ckpt")
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        assert (bundle.opened(place).shapes()) == {name: tuple(tensor.shape) for name, tensor in theirs.items()}
    assert theirs["model/wte"].dtype == torch.float32
    assert theirs["global_step"].item() == 7


def test_every_type_and_shape(tmp_path: Path) -> None:
    own = {f"{n}": torch.arange(6).reshape(2, 3).to(kind) for n, kind in enumerate(KINDS)}
    own |= {"none": torch.empty(0, 4), "one": torch.tensor(2.5), "ø": torch.ones(3)}
    bundle.write(tmp_path / "x", iter(own.items()))
    found = tensors(tmp_path / "x")
    assert sorted(found) == sorted(own)
    assert all(torch.equal(found[n], own[n]) and found[n].dtype == own[n].dtype for n in own)


def test_large_tables_have_many_blocks(tmp_path: Path) -> None:
    table = {f"layer_{n:05}/kernel".encode(): bytes([n % 251]) * (n % 90) for n in range(9000)}
    path = tmp_path / "x.index"
    path.write_bytes(sstable.write(table))
    assert sstable.read(path) == table
    assert path.stat().st_size > sstable.FULL


def test_which_checkpoint_is_meant(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001", "."):
        assert bundle.find(tmp_path / name) == prefix
    bundle.write(tmp_path / "other.ckpt", iter([("x", torch.ones(1))]))
    assert bundle.find(tmp_path) == tmp_path / "other.ckpt"  # the newest, as `checkpoint` says
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(RecipeError, match=r"has model\.ckpt and other\.ckpt; wanted one checkpoint; name one: .*index"):
        bundle.find(tmp_path)


def spoiled(path: Path, change: object) -> None:
    raw = bytearray(path.read_bytes())
    change(raw)  # type: ignore[operator]
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("ending", "change", "told"),
    [
        (".index", lambda raw: raw.__delitem__(slice(-60, None)), r"index: [\d,]+ bytes without the end of a table"),
        (
            ".index",
            lambda raw: raw.__setitem__(30, raw[30] ^ 1),
            r"index: is damaged: the checksum of the block at byte 0",
        ),
        (".index", lambda raw: raw.__setitem__(slice(-48, -40), b"\xff" * 8), r"index: is damaged: "),
        (
            ".data-00000-of-00001",
            lambda raw: raw.__setitem__(9, raw[9] ^ 1),
            r"is damaged: the checksum of .*, at byte",
        ),
        (
            ".data-00000-of-00001",
            lambda raw: raw.__delitem__(slice(5000, None)),
            r"is truncated: 5,000 bytes, but model/",
        ),
    ],
)
def test_damage_is_named(tmp_path: Path, ending: str, change: object, told: str) -> None:
    prefix = copied(tmp_path)
    spoiled(prefix.with_name(prefix.name + ending), change)
    with pytest.raises(DataError, match=told):
        tensors(prefix)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    prefix.with_name("model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(DataError, match=r"model\.ckpt\.data-00000-of-00001: no such file; .*; fetch it as well"):
        bundle.Bundle(prefix)


def entry(*parts: tuple[int, int], long: int = 2, **fields: int | bytes) -> bytes:
    shape = proto.run(2, proto.message({1: long}))
    whole = {"dtype": 1, "shape": shape, "shard": 0, "offset": 0, "size": 8, "crc": 0} | fields
    extents = b"".join(proto.run(7, proto.run(1, proto.message({1: at, 2: size}))) for at, size in parts)
    return proto.message(dict(zip((1, 2, 3, 4, 5, 6), whole.values(), strict=True)), fixed=(6,)) + extents


PART = b"\0x\0\1\1\1\x80"  # the key of a part of x that begins at 0; behind it the length


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({b"": b"", b"x": entry()}, "has no number of files"),
        ({b"": proto.message({1: 1, 2: 1}), b"x": entry()}, "big-endian"),
        ({b"": proto.message({1: 1}), b"x": entry(size=9)}, r"damaged: x \[2\] has 9 bytes"),
        ({b"": proto.message({1: 1}), b"x": entry(shard=3)}, r"damaged: x \[2\]"),
        ({b"": proto.message({1: 1}), b"x": entry(dtype=23)}, "unknown type 23"),
        ({b"": proto.message({1: 1}), b"x": entry() + proto.run(7, b"")}, "parts have other axes than the whole"),
        ({b"": proto.message({1: 1}), b"x": entry((0, 2))}, "parts of x"),
        (
            {b"": proto.message({1: 1}), b"x": entry((0, 2)), PART + b"\x82": entry(long=1, size=4)},
            r"the parts of x \[2\] do not form the whole",
        ),
        (
            {b"": proto.message({1: 1}), b"x": entry((0, 1)), PART + b"\x81": entry(long=1, size=4)},
            r"the parts of x \[2\] do not form the whole",
        ),
        (
            {b"": proto.message({1: 1}), b"x": entry((0, 2)), PART + b"\x82": entry(size=4)},
            r"damaged: x \[2\] has 4 bytes",
        ),
        ({b"": proto.message({1: 1}), b"x": b"\xff"}, "truncated in a number"),
    ],
)
def test_an_index_that_cannot_be_is_refused(tmp_path: Path, table: dict[bytes, bytes], told: str) -> None:
    (tmp_path / "x.index").write_bytes(sstable.write(table))
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(8))
    with pytest.raises(DataError, match=told):
        bundle.Bundle(tmp_path / "x")


def test_compressed_blocks_are_told(tmp_path: Path) -> None:
    raw = bytearray(sstable.write({b"a": b"b"}))
    size = 1 + 1 + 1 + 1 + 1 + 8  # one entry and where it stands whole
    raw[size] = sstable.SNAPPY
    raw[size + 1 : size + 5] = struct.pack("<I", int(masked(crc32c(bytes(raw[: size + 1])))))
    (tmp_path / "x.index").write_bytes(raw)
    with pytest.raises(DataError, match=r"block at byte 0 is compressed \(snappy\).*load and save it with TensorFlow"):
        sstable.read(tmp_path / "x.index")


def test_the_first_kind_is_refused_with_a_remedy(tmp_path: Path) -> None:
    shutil.copy(REAL / "first.ckpt", tmp_path / "model.ckpt")
    for place in (tmp_path, tmp_path / "model.ckpt"):
        with pytest.raises(DataError, match=r"checkpoint of TensorFlow's first format.*write_version"):
            bundle.refuse_first_version(place)
    bundle.refuse_first_version(REAL / "gpt2")


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, "80"), (63, "bf"), (64, "c040"), (-1, "7f"), (8191, "dfff"), (8192, "e02000"), (1 << 40, "fd0000000000")],
)
def test_how_tensorflow_orders_numbers(number: int, written: str) -> None:
    assert bundle._ordered(number).hex() == written
