"""Protocol buffers: read and write the fields of a message by number, without a schema.

A field is a varint, 8 bytes, a byte string or 4 bytes. Fields are read as (number, value), byte strings as memoryviews.
"""

from collections.abc import Iterator, Mapping

Value = int | memoryview
VARINT, EIGHT, RUN, FOUR = 0, 1, 2, 5


class Torn(ValueError):
    """The bytes are not a complete message."""


def varint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and the position after it."""
    value = shift = 0
    try:
        while (byte := data[at]) >= 0x80:
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if shift > 63:
                raise Torn("a number has more than 64 bits")
    except IndexError:
        raise Torn("it is truncated in a number") from None
    return value | byte << shift, at + 1


def fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the fields of a message in order."""
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == RUN:
            size, at = varint(data, at)
        elif kind in (EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
        else:
            raise Torn(f"a field of the kind {kind}")
        if at + size > end:
            raise Torn(f"a field of {size:,} bytes where {end - at:,} are left")
        run = data[at : at + size]
        yield tag >> 3, run if kind == RUN else int.from_bytes(run, "little")
        at += size


def table(data: memoryview) -> dict[int, Value]:
    return dict(fields(data))


def signed(value: int) -> int:
    """Return the int64 that a varint represents."""
    return value - (1 << 64) if value >> 63 else value


def number(value: int) -> bytes:
    """Encode a number as a varint."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def run(field: int, data: bytes) -> bytes:
    return number(field << 3 | RUN) + number(len(data)) + data


def message(values: Mapping[int, int | bytes], fixed: tuple[int, ...] = ()) -> bytes:
    """Encode a message. Zeros are omitted, as protobuf does. Fields in `fixed` are numbers of four bytes."""
    out = b""
    for field, value in values.items():
        if isinstance(value, bytes):
            out += run(field, value)
        elif field in fixed:
            out += number(field << 3 | FOUR) + value.to_bytes(4, "little")
        elif value:
            out += number(field << 3 | VARINT) + number(value)
    return out
