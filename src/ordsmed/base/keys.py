"""Hashes of contents, which name folders and files. Equal contents have equal keys on every machine."""

import hashlib
import json


def bytes_key(content: bytes, digits: int = 64) -> str:
    """Return the first `digits` hexadecimal digits of the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:digits]


def value_key(value: object, digits: int = 64, *, any_order: bool = False) -> str:
    """Return a hash of a value's JSON. With `any_order`, the order of keys in tables does not matter."""
    return bytes_key(json.dumps(value, sort_keys=any_order).encode(), digits)


def text_number(text: str) -> int:
    """Return a 64-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
