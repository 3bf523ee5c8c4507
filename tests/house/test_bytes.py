"""Binary files are little-endian on any machine: no type of numbers in a file is spelled without its byte order."""

from __future__ import annotations

import re

from kit.sources import offenders, text

BARE = re.compile(r"""["'](?:[uif][248]|>[uif][1248])["']""")
RAW = re.compile(r"(?:frombuffer|fromfile|memmap)\([^\n]*?, np\.(?:u?int|float)(?:16|32|64)[,)]")


def test_numbers_in_files_tell_their_byte_order() -> None:
    assert offenders(lambda path: BARE.findall(text(path)) + RAW.findall(text(path))) == {}
