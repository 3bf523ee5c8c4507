"""Keys by content: folders on disk are named by them, so they stay what they are."""

from __future__ import annotations

from ordsmed.base import chance
from ordsmed.base.keys import bytes_key, text_number, value_key


def test_keys_stay_what_they_are() -> None:
    value = {"b": [1, None, 0.5], "a": "ø"}
    assert bytes_key(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert bytes_key(b"abc", 10) == "ba7816bf8f"
    assert value_key(value, 16) == bytes_key(b'{"b": [1, null, 0.5], "a": "\\u00f8"}', 16)
    assert value_key(value, any_order=True) == bytes_key(b'{"a": "\\u00f8", "b": [1, null, 0.5]}')
    assert text_number("ø") == 8791554173871234619
    assert chance.key(1, "a") == text_number("(1, 'a')")
