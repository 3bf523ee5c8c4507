"""Files of torch's that would take all time or memory of who reads them carelessly; and a process that reads them.

python evil_pickles.py FOLDER: reads each file there under limits, and prints its name, seconds, MB, and what was said.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

from ordsmed.base.binary.pickle_reader import Pickled
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.weights.import_folder import recognised

SECONDS, MEGABYTES = 20, 300
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORED = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
TABLE = b"ccollections\nOrderedDict\n"


def text(words: str) -> bytes:
    return b"X" + struct.pack("<I", len(words)) + words.encode()


def put(number: int) -> bytes:
    return b"r" + struct.pack("<I", number)


def get(number: int) -> bytes:
    return b"j" + struct.pack("<I", number)


def doubled(level: bytes, times: int = 60) -> bytes:
    """A value that holds the one before twice, again and again; `level` makes one of number 0."""
    return (b"N" if level is TWICE["tuple"] else b"]") + put(0) + (b"0" + level + put(0)) * times


TWICE = {
    "list": b"]" + get(0) + b"a" + get(0) + b"a",
    "tuple": get(0) + get(0) + b"\x86",
    "table": b"}X\x01\x00\x00\x00a" + get(0) + b"sX\x01\x00\x00\x00b" + get(0) + b"s",
}
PAIRS = b"".join(b"]M" + struct.pack("<H", n) + b"aK\x02a" for n in range(20000))
LIST = b"](" + PAIRS + b"e" + put(1) + b"0"  # number 1
COUNT = b"](" + b"K\x01" * 100000 + b"e" + put(1) + b"0"  # 100,000 numbers
NAME = text("a" * 100000) + put(1) + b"0"
SAME_HASH = (
    b"}(" + b"".join(b"\x8a\x0a" + ((n << 61) - n).to_bytes(10, "little") + b"N" for n in range(1, 60000)) + b"u"
)
ENDLESS = struct.pack("<Q", 1 << 40)
WIDE = b"\x8a\x07" + (1 << 50).to_bytes(7, "little")
DEEP = b"N" + b"\x85" * 300000  # a tuple in a tuple, ...


def model(value: bytes) -> bytes:
    """A table of a model with one value."""
    return b"}" + text("model") + value + b"s"


def tensor(shape: bytes, strides: bytes) -> bytes:
    return TENSOR + b"(" + STORED + b"K\x00" + shape + strides + b"tR"


PROGRAMS = {
    "shared tables": model(doubled(TWICE["table"])),
    "wide tables": model(doubled(TWICE["table"], 27)),
    "a long pickle": b"N0" * (3 << 19) + b"N",
    "cyclic tables": model(b"}" + put(0) + text("a") + get(0) + b"s"),
    "shared lists": model(doubled(TWICE["list"])),
    "a tuple as a key": b"}" + doubled(TWICE["tuple"]) + b"Ns",
    "as an item": b"\x8f(" + doubled(TWICE["tuple"]) + b"\x90",
    "a frozen set": b"(" + doubled(TWICE["tuple"]) + b"\x91",
    "a key of a copy": LIST + TABLE + b"]" + doubled(TWICE["tuple"]) + b"N\x86a\x85R",
    "a deep key": b"}" + DEEP + b"Ns",
    "depth": b"]" * 300000 + b"a" * 299999,
    "a storage's key": tensor(b"K\x04\x85", b"K\x01\x85").replace(b"X\x01\x00\x00\x000", doubled(TWICE["list"])),
    "a table copied": LIST + TABLE + b"0" + b"](" + (TABLE + get(1) + b"\x85R") * 3000 + b"e",
    "a table of a table": LIST + b"](" + TABLE + get(1) + b"\x85R" + put(2) + (TABLE + get(2) + b"\x85R") * 3000 + b"e",
    "a size copied": COUNT + b"](" + (b"ctorch\nSize\n" + get(1) + b"\x85R") * 3000 + b"e",
    "dimensions": COUNT + b"](" + (TENSOR + b"(" + STORED + b"K\x00" + get(1) * 2 + b"tR") * 3000 + b"e",
    "arguments": COUNT + b"](" + (b"cos\nsystem\n" + get(1) + b"R") * 3000 + b"e",
    "names": b"\x80\x04" + NAME + b"](" + (get(1) + get(1) + b"\x93") * 5000 + b"e",
    "names of tensors": NAME + model((b"}" + get(1)) * 3000 + tensor(b"K\x04\x85", b"K\x01\x85") + b"s" * 3000),
    "marks": b"N" * 60000 + b"(t" * 60000,
    "equal hashes": SAME_HASH,
    "a place in memory": b"\x80\x02N" + put(0xFFFFFFF0),
    "a written place": b"Np4294967280\n",
    "long text": b"\x80\x04\x8d" + ENDLESS,
    "long bytes": b"\x80\x04\x8e" + ENDLESS,
    "a long array": b"\x80\x05\x96" + ENDLESS,
    "a long frame": b"\x80\x04\x95" + ENDLESS,
    "text": b"X" + struct.pack("<I", 0xFFFFFFFF),
    "bytes": b"B" + struct.pack("<I", 0xFFFFFFFF),
    "a long number": b"\x8b" + struct.pack("<i", 0x7FFFFFFF),
    "digits": b"L" + b"9" * 400000 + b"L\n",
    "a repeated number": tensor(b"\x8a\x06" + (1 << 40).to_bytes(6, "little") + b"\x85", b"K\x00\x85"),
    "nothing, widely": tensor(b"K\x00\x8a\x08" + (1 << 62).to_bytes(8, "little") + b"\x86", b"K\x01K\x01\x86"),
    "nothing, twice": tensor(b"K\x00" + WIDE + WIDE + b"\x87", b"K\x01K\x01K\x01\x87"),
    "below nothing": tensor(b"J\xff\xff\xff\xffK\x00\x86", b"K\x01K\x01\x86"),
    "sets": b"(" + b"\x8f" * 1000000 + b"t",
    "memory": b"N" + b"\x94" * 1000000,
}


def write(folder: Path) -> list[str]:
    """A file of each program, and a few that are evil outside their pickles."""
    folder.mkdir()
    for name, program in PROGRAMS.items():
        with zipfile.ZipFile(folder / name, "w") as parts:
            parts.writestr("x/data.pkl", program + b".")
            parts.writestr("x/data/0", bytes(16))
    for name, unpacked in (("byteorder", 1 << 26), ("data.pkl", 1 << 26)):
        with zipfile.ZipFile(folder / f"packed {name}", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as parts:
            with parts.open(f"x/{name}", "w") as part:
                for _ in range(unpacked >> 20):
                    part.write(bytes(1 << 20))
            parts.writestr("x/data.pkl", b"N.") if name != "data.pkl" else None
    with zipfile.ZipFile(folder / "locked", "w") as parts:
        parts.writestr("x/data.pkl", b"N.")
    locked = (folder / "locked").read_bytes()
    at = locked.rindex(b"PK\x01\x02")
    (folder / "locked").write_bytes(locked[: at + 8] + b"\x01" + locked[at + 9 :])
    return sorted(path.name for path in folder.iterdir())


def opened(path: Path) -> str:
    """What reading a file says: its error, or how many tensors it has."""
    try:
        if path.is_dir():
            return f"{len(recognised(path).read(path, ['model.heads=2']).tensors)} tensors"
        file = Pickled(path)
        return f"{len([file.tensor(piece) for piece in file.flat(file.value).values()])} tensors"
    except (DataError, RecipeError) as error:
        return f"{error}"


def limited(path: Path) -> dict[str, Any]:
    """The same in a process of its own, which ends where it takes too much."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (taken + (MEGABYTES << 20), resource.RLIM_INFINITY))
        before = time.process_time()
        try:
            said = opened(path)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:200]
        os.write(writing, json.dumps([round(time.process_time() - before, 2), said[:2000]]).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as file:
        seconds, said = json.loads(file.read() or f'[{SECONDS}, "ended by {status}"]')
    return {"name": path.name, "seconds": seconds, "said": said}


if __name__ == "__main__":
    for file in sorted(Path(sys.argv[1]).iterdir()):
        print(json.dumps(limited(file)), flush=True)
