"""SentencePiece models written by hand, byte by byte: no library is needed for them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ordsmed.base.binary import proto

CONTROL, OWN, UNUSED, BYTE = 3, 4, 5, 6


def model_bytes(
    pieces: Sequence[tuple[str, float] | tuple[str, float, int]],
    kind: int = 1,
    normalizer: dict[int, int] | None = None,
    **trainer: int,
) -> bytes:
    """A .model of these pieces, <unk> before them; kind: 1 unigram, 2 bpe, 3 word, 4 char."""
    data = b""
    for piece, score, *what in [("<unk>", 0.0, 2), *pieces]:
        number = int.from_bytes(struct.pack("<f", score), "little")
        entry = proto.run(1, piece.encode()) + proto.message({2: number}, fixed=(2,))
        data += proto.run(1, entry + proto.message({3: what[0] if what else 1}))
    fields = {"byte_fallback": 35, "suffix": 24}
    data += proto.run(2, proto.message({3: kind, **{fields[name]: value for name, value in trainer.items()}}))
    rules = {3: 1, 4: 1, 5: 1} | (normalizer or {})
    written = b"".join(proto.number(field << 3) + proto.number(value) for field, value in rules.items())
    return data + proto.run(3, proto.run(1, b"identity") + written)
