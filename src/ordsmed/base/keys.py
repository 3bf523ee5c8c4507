"""Keys by content: equal where what they stand for is equal, on every machine; folders and files are found by them."""

import hashlib
import json


def bytes_key(content: bytes, digits: int = 64) -> str:
    """So many hexadecimal digits that stand for these bytes."""
    return hashlib.sha256(content).hexdigest()[:digits]


def value_key(value: object, digits: int = 64, *, any_order: bool = False) -> str:
    """So many that stand for a value as JSON writes it; `any_order`: tables count as equal in any order."""
    return bytes_key(json.dumps(value, sort_keys=any_order).encode(), digits)


def text_number(text: str) -> int:
    """64 bits that stand for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
