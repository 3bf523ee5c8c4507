"""Binary files are little-endian on any machine: no type of numbers in a file is spelled without its byte order."""

from __future__ import annotations

import re

import pytest

from ordsmed.base import menu

FILES = sorted(menu.HOUSE.rglob("*.py"))
BARE = re.compile(r"""["'](?:[uif][248]|>[uif][1248])["']""")
RAW = re.compile(r"(?:frombuffer|fromfile|memmap)\([^\n]*?, np\.(?:u?int|float)(?:16|32|64)[,)]")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(menu.HOUSE)))
def test_numbers_in_files_tell_their_byte_order(path: object) -> None:
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert not BARE.findall(text)
    assert not RAW.findall(text)
