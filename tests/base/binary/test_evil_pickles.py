"""Files that are made to take all time or memory, and files changed at random: each is one line, soon."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kit import evil_pickles
from kit.foreign_files import everything

REFUSED = {
    "shared tables": "deep",
    "wide tables": "131,072 values",
    "a long pickle": "data.pkl has 3,145,730 bytes, more than 2,1",
    "cyclic tables": "deep",
    "a storage's key": "numbers of the type",
    "a table copied": "unfolds",
    "a table of a table": "unfolds",
    "a size copied": "unfolds",
    "dimensions": "dimensions",
    "arguments": "arguments of a call",
    "names": "a name of 200,000 characters",
    "names of tensors": "names over 1000 characters",
    "digits": "Exceeds the limit",
    "a repeated number": "exceeds its storage",
    "nothing, widely": "with invalid sizes",
    "nothing, twice": "exceeds its storage",
    "below nothing": "with invalid sizes",
    "packed byteorder": "compressed",
    "packed data.pkl": "compressed",
    "locked": "encrypted",
    "long text": "truncated",
    "text": "truncated",
}
HARMLESS = ("shared lists", "a tuple as a key", "a frozen set", "depth", "equal hashes", "a place in memory", "sets")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, str]]:
    folder = tmp_path_factory.mktemp("evil") / "files"
    evil_pickles.write(folder)
    run = subprocess.run([sys.executable, evil_pickles.__file__, folder], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return {line["name"]: (line["seconds"], line["said"]) for line in lines}


@pytest.mark.parametrize("name", [*evil_pickles.PROGRAMS, "packed byteorder", "packed data.pkl", "locked"])
def test_what_is_made_to_be_endless_ends_soon_in_little_memory(said: dict[str, tuple[float, str]], name: str) -> None:
    seconds, line = said[name]
    assert line.endswith(" tensors") or f"/{name}: " in line
    assert "\n" not in line
    assert seconds < evil_pickles.SECONDS
    if name in REFUSED:
        assert REFUSED[name] in line
    if name in HARMLESS:
        assert line == "0 tensors"


@pytest.mark.parametrize("zipped", [True, False])
def test_files_changed_at_random_are_read_or_refused_in_a_line(tmp_path: Path, zipped: bool) -> None:
    path, chance = tmp_path / "x.pt", random.Random(7)
    torch.save(everything(), path, _use_new_zipfile_serialization=zipped, pickle_protocol=4 if zipped else 2)
    whole, refused = path.read_bytes(), 0
    reach = whole.index(b"data/") if zipped else len(whole)  # of a zip file its pickle, whose checksum is left out
    if zipped:
        whole = without_checksums(whole)
    for turn in range(400):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(reach if turn % 4 else len(whole))
            changed[at] = chance.choice((chance.randrange(256), 0, 255))
        path.write_bytes(changed[: chance.randrange(len(whole))] if turn % 10 == 9 else changed)
        line = evil_pickles.opened(path)  # whatever else is raised ends the test
        assert "\n" not in line
        refused += not line.endswith(" tensors")
    assert 50 < refused < 400


def without_checksums(whole: bytes) -> bytes:
    """A zip file whose list says of no part what its checksum is."""
    parts, at = bytearray(whole), 0
    while (at := parts.find(b"PK\x01\x02", at + 1)) > 0:
        parts[at + 16 : at + 20] = bytes(4)
    return bytes(parts)
