"""Read and write tf.train.Example with NumPy: named features, each a list of integers, floats or bytes.

    Example { features = 1 { feature = 1 { key = 1, value = 2 { bytes = 1 | floats = 2 | ints = 3 { value = 1 }}}}}

All examples of a block are read together: the positions of each feature's numbers are found record by record, and the
numbers are decoded by a few passes over all their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.binary import proto
from ordsmed.base.binary.proto import Torn, varint
from ordsmed.base.binary.records import RecordBlock
from ordsmed.base.errors import DataError

Feature = NDArray[np.int64] | NDArray[np.float32]
KINDS = {1: "bytes", 2: "floats", 3: "integers"}
FLOATS, INTS = 2, 3
OUTER, VALUE = 1 << 3 | proto.RUN, 2 << 3 | proto.RUN  # tags of the first and second field of a message


@dataclass(frozen=True)
class Columns:
    """Features of all examples of a block: numbers end to end, and the start of each example's numbers, [N + 1]."""

    values: dict[str, Feature]
    starts: dict[str, NDArray[np.int64]]

    def table(self, name: str, block: RecordBlock, width: int | None = None) -> Feature:
        """Return a feature as an array [N, width], if every example has the same number of values."""
        counts = np.diff(self.starts[name])
        width = int(counts[0]) if width is None else width
        for number in np.flatnonzero(counts != width)[:1]:
            problem = f"{name} has {counts[number]:,} numbers"
            raise DataError(block.place(int(number)), problem, f"{width:,}, as in other examples")
        return self.values[name].reshape(len(counts), width)


def read(block: RecordBlock, wanted: Mapping[str, int]) -> Columns:
    """Return the wanted features (names with their kinds) of all examples. Errors name the example."""
    numbers = {name.encode(): position for position, name in enumerate(wanted)}
    runs: list[list[tuple[int, int]]] = [[] for _ in wanted]
    kinds = list(wanted.values())
    for number in range(len(block)):
        try:
            seen = _runs(block, number, numbers, kinds, runs)
        except Torn as error:
            raise DataError(block.place(number), f"is not a tf.train.Example: {error}", "an Example") from None
        if seen < len(wanted):
            _refuse(block, number, wanted)
    values: dict[str, Feature] = {}
    starts: dict[str, NDArray[np.int64]] = {}
    for (name, kind), run in zip(wanted.items(), runs, strict=True):
        values[name], starts[name] = _ints(block, run) if kind == INTS else _floats(block, run)
    return Columns(values, starts)


def features(record: memoryview) -> dict[str, tuple[int, memoryview]]:
    """Return all features of an example: kind and encoded list of each."""
    kept: dict[str, tuple[int, memoryview]] = {}
    for _, inner in proto.fields(record):
        for _, entry in proto.fields(_run(inner)):
            parts = proto.table(_run(entry))
            key, kinds = bytes(_run(parts.get(1, memoryview(b"")))), proto.table(_run(parts.get(2, memoryview(b""))))
            for kind, values in kinds.items():
                kept[key.decode(errors="replace")] = (kind, _run(values))
    return kept


def written(table: Mapping[str, Feature]) -> Iterator[bytes]:
    """Encode features, [N, width] each, as examples."""
    columns = [_Packed.of(name, array) for name, array in table.items()]
    for number in range(len(next(iter(table.values())))):
        yield proto.run(1, b"".join([column.entry(number) for column in columns]))


@dataclass(frozen=True)
class _Packed:
    """One feature of many examples, encoded."""

    key: bytes
    kind: int
    data: bytes
    borders: list[int]

    @staticmethod
    def of(name: str, array: Feature) -> _Packed:
        if array.dtype.kind == "f":
            borders = np.arange(len(array) + 1) * 4 * array.shape[1]
            return _Packed(proto.run(1, name.encode()), FLOATS, array.astype("<f4").tobytes(), borders.tolist())
        data, sizes = _varints(array.astype(np.int64).ravel())
        rows = sizes.reshape(array.shape).sum(1)
        return _Packed(proto.run(1, name.encode()), INTS, data, np.cumsum([0, *rows.tolist()]).tolist())

    def entry(self, number: int) -> bytes:
        packed = proto.run(1, self.data[self.borders[number] : self.borders[number + 1]])
        return proto.run(1, self.key + proto.run(2, proto.run(self.kind, packed)))


def _varints(array: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """Encode integers as varints. Return the bytes, and how many bytes each integer has."""
    left, sizes = array.view(np.uint64), np.ones(len(array), np.int64)
    for shift in range(7, 64, 7):
        more = (left >> np.uint64(shift)) > 0
        if not more.any():
            break
        sizes += more
    out = np.zeros((len(left), int(sizes.max(initial=1))), np.uint8)
    for byte in range(out.shape[1]):
        continues = (byte + 1 < sizes).astype(np.uint8) << 7
        out[:, byte] = ((left >> np.uint64(7 * byte)) & np.uint64(0x7F)).astype(np.uint8) | continues
    return out[np.arange(out.shape[1]) < sizes[:, None]].tobytes(), sizes


def _runs(
    block: RecordBlock, number: int, wanted: dict[bytes, int], kinds: list[int], runs: list[list[tuple[int, int]]]
) -> int:
    """Record the positions of an example's lists in the block. Return how many of the wanted features it has."""
    raw, at = block.raw, int(block.starts[number])
    end, seen = at + int(block.lengths[number]), 0
    if at == end:
        return 0
    at, stop = _inside(raw, at, end, OUTER)
    if stop != end:
        raise Torn("there are bytes after its features")
    while at < stop:
        entry, after = _inside(raw, at, stop, OUTER)
        begin, value = _inside(raw, entry, after, OUTER)
        index = wanted.get(raw[begin:value])
        if index is not None:
            begin, last = _inside(raw, value, after, VALUE)
            if begin < last:
                kind = raw[begin] >> 3
                if kind != kinds[index]:
                    _refuse_kind(block, number, kind, kinds[index], list(wanted)[index].decode())
                begin, last = _inside(raw, begin, last, raw[begin])
                if begin < last:
                    begin, last = _inside(raw, begin, last, OUTER)
            runs[index].append((begin, last))
            seen += 1
        at = after
    return seen


def _inside(raw: bytes, at: int, end: int, tag: int) -> tuple[int, int]:
    """Return the begin and end of the byte string of the field at `at`."""
    if at + 1 >= end or raw[at] != tag:
        raise Torn(f"no field {tag >> 3} where one should be")
    size, begin = raw[at + 1], at + 2
    if size >= 0x80:
        size, begin = varint(raw, at + 1)
    if begin + size > end:
        raise Torn(f"a field of {size:,} bytes where {end - begin:,} are left")
    return begin, begin + size


def _ints(block: RecordBlock, spans: list[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Decode varints. Return the numbers end to end, and where those of each span begin."""
    raw, borders = _gathered(block, spans)
    for number in np.flatnonzero((np.diff(borders) > 0) & (raw[borders[1:] - 1] >= 0x80))[:1] if len(raw) else ():
        problem = "is not a tf.train.Example: it is truncated in a number"
        raise DataError(block.place(int(number)), problem, "an Example")
    ends = np.flatnonzero(raw < 0x80)
    begins = np.zeros_like(ends)
    begins[1:] = ends[:-1] + 1
    sizes = ends - begins
    values = (raw[begins] & np.uint8(0x7F)).astype(np.uint64)
    for byte in range(1, int(sizes.max(initial=0)) + 1):
        longer = np.flatnonzero(sizes >= byte)
        values[longer] |= (raw[begins[longer] + byte] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * byte)
    return values.view(np.int64), np.searchsorted(ends, borders)


def _floats(block: RecordBlock, spans: list[tuple[int, int]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    raw, borders = _gathered(block, spans)
    return raw[: len(raw) // 4 * 4].view("<f4"), borders // 4


def _gathered(block: RecordBlock, spans: list[tuple[int, int]]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    raw = block.raw
    parts = [raw[begin:end] for begin, end in spans]
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)])


def _run(value: proto.Value) -> memoryview:
    if not isinstance(value, memoryview):
        raise Torn("a number where a message should be")
    return value


def _refuse(block: RecordBlock, number: int, wanted: Mapping[str, int]) -> None:
    present = features(block.record(number))
    missing = [name for name in wanted if name not in present]
    names = ", ".join(f"{name} ({KINDS.get(kind, 'nothing')})" for name, (kind, _) in sorted(present.items()))
    problem = f"has {names or 'no features'}; missing: {', '.join(missing)}"
    raise DataError(block.place(number), problem, "examples of another kind")


def _refuse_kind(block: RecordBlock, number: int, kind: int, wanted: int, name: str) -> None:
    raise DataError(block.place(number), f"{name} has {KINDS.get(kind, f'field {kind}')}", KINDS[wanted])
