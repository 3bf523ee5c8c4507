"""What torch.save wrote, read without running it: tensors, plain values, and inert stubs for everything else.

A pickle is a program for a small machine with a stack. This is such a machine that knows no import and no call: a class
is its name, what would be made of it is a `Stub` with its arguments and state, and tensors are places in the file.

    zip: NAME/data.pkl, NAME/data/0 ...            torch 1.6 and later
    magic, version, facts, the pickle, keys, numbers ...    before
"""

from __future__ import annotations

import mmap
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ordsmed.base.errors import DataError

MAGIC = 0x1950A86A20F9469CFC6C
ZIP = b"PK\x03\x04"  # how a zip file begins
LEGACY = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P"  # how the magic number is pickled
WANTED = "a file of torch.save"
TYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool,
}  # fmt: skip
LONGEST = 1 << 27  # bytes of a pickle: more are no names and numbers of a model
MARK = object()


class Broken(ValueError):
    """Bytes that are no pickle of torch's."""


BROKEN = (Broken, zipfile.BadZipFile, zlib.error, struct.error, KeyError, ValueError, TypeError, AttributeError,
          IndexError, EOFError)  # fmt: skip


class Stub:
    """Something of a class that nobody here knows: its name, what it was made from, its state. It does nothing."""

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None

    def table(self) -> dict[str, Any]:
        """Its attributes, as far as it has some."""
        return self.state if isinstance(self.state, dict) else {}


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file."""

    key: str
    dtype: torch.dtype
    size: int


@dataclass(frozen=True)
class Strided:
    """A tensor: how it lies in a run of numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Pickled:
    """An opened file: its values, and the tensors that they speak of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[str, tuple[int, int, int]] = {}  # of storages: where, how many bytes, their CRC-32 or 0
        try:
            with path.open("rb") as file:
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                self.value = self._zipped(file) if zipfile.is_zipfile(path) else self._legacy(file)
        except BROKEN as error:
            remedy = "fetch it again, or have it saved anew by torch.save"
            raise DataError(path, f"cannot be read: {error}", WANTED, remedy) from None
        self.checked: set[str] = set()

    def tensor(self, piece: Strided) -> Tensor:
        """A tensor, as it lies in the file: not copied."""
        key, dtype = piece.storage.key, piece.storage.dtype
        if 0 in piece.shape:
            return torch.empty(piece.shape, dtype=dtype)
        start, size, crc = self.places.get(key, (0, -1, 0))
        reach = piece.offset + 1 + sum((n - 1) * s for n, s in zip(piece.shape, piece.strides, strict=True))
        if min((piece.offset, *piece.shape, *piece.strides)) < 0 or reach * dtype.itemsize > max(size, 0):
            raise DataError(self.path, f"is damaged: a tensor {list(piece.shape)} reaches over its numbers", WANTED)
        if crc and key not in self.checked:
            if zlib.crc32(memoryview(self.bytes)[start : start + size]) != crc:
                raise DataError(self.path, f"is damaged: the checksum of data/{key} differs", WANTED, "fetch it again")
            self.checked.add(key)
        numbers = torch.frombuffer(self.bytes, dtype=dtype, count=size // dtype.itemsize, offset=start)
        return numbers.as_strided(piece.shape, piece.strides, piece.offset)

    def _zipped(self, file: IO[bytes]) -> Any:
        with zipfile.ZipFile(file) as parts:
            names = [part for part in parts.infolist() if part.filename.endswith("data.pkl")]
            if len(names) != 1 or names[0].file_size > LONGEST:
                raise Broken("a zip file, but not one of torch.save")
            prefix = names[0].filename.removesuffix("data.pkl")
            for part in parts.infolist():
                if part.filename == f"{prefix}byteorder" and parts.read(part).strip() != b"little":
                    raise Broken("its numbers are big-endian")
                if part.filename.startswith(f"{prefix}data/"):
                    self.places[part.filename.removeprefix(f"{prefix}data/")] = self._part(part)
            with parts.open(names[0]) as inner:
                return _run(inner)

    def _part(self, part: zipfile.ZipInfo) -> tuple[int, int, int]:
        """Where the numbers of a part begin."""
        if part.compress_type != zipfile.ZIP_STORED:
            raise Broken(f"{part.filename} is compressed")
        name, extra = struct.unpack_from("<HH", self.bytes, part.header_offset + 26)
        start = part.header_offset + 30 + name + extra
        if start + part.file_size > len(self.bytes):
            raise Broken(f"it is cut off: {part.filename} reaches over its end")
        return start, part.file_size, part.CRC

    def _legacy(self, file: IO[bytes]) -> Any:
        if self.bytes[:4] == ZIP:
            raise Broken("it is cut off: a zip file without its end")
        if _run(file) != MAGIC:
            raise Broken("another kind of file")
        _run(file), _run(file)  # a version, and facts of the machine
        used: dict[str, Storage] = {}
        value = _run(file, used)
        keys = _run(file)
        at = file.tell()
        for key in keys:
            storage = used.get(f"{key}")
            (count,) = struct.unpack_from("<q", self.bytes, at)
            size = count * (storage.dtype.itemsize if storage else 1)
            if storage is None or count < 0 or at + 8 + size > len(self.bytes):
                raise Broken(f"it is cut off within its numbers ({key})")
            self.places[f"{key}"] = (at + 8, size, 0)
            at += 8 + size
        return value


def is_pickled(path: Path) -> bool:
    """Does a file look like one of torch.save?"""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(32)
    return head.startswith(ZIP) or LEGACY in head


def flat(table: object, before: str = "") -> dict[str, Strided]:
    """Tensors of tables within tables, by their names with dots between."""
    if isinstance(table, Strided):
        return {before: table}
    inner = table.items() if isinstance(table, dict) else ()
    parts = (flat(value, f"{before}.{key}" if before else f"{key}") for key, value in inner)
    return {name: piece for part in parts for name, piece in part.items()}


def attributes(value: object) -> dict[str, Any]:
    """Of a Namespace, or a table that stands for one; none where there is neither."""
    return value.table() if isinstance(value, Stub) else value if isinstance(value, dict) else {}


def write(path: Path, value: Any) -> None:
    """Write what torch.load reads; nothing else is read by the codes that such files are for."""
    torch.save(value, path)


def _run(file: IO[bytes], used: dict[str, Storage] | None = None) -> Any:
    """Run a pickle to its end, on a machine without imports and calls."""
    machine = Machine({} if used is None else used)
    for operation, argument, _ in pickletools.genops(file):
        if operation.name == "STOP":
            return machine.stack[-1]
        machine.step(operation.name, argument)
    raise Broken("it is cut off")


class Machine:
    """A stack and a memory; every class is its name."""

    def __init__(self, used: dict[str, Storage]) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.used = used

    def step(self, name: str, argument: Any) -> None:
        """One operation."""
        if name in PUSHED:
            self.stack.append(argument)
        elif name in MADE:
            self.stack.append(MADE[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memory[len(self.memory) if name == "MEMOIZE" else argument] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memory[argument])
        elif name in ("GLOBAL", "INST"):
            known = Stub(argument.replace(" ", "."))
            self.stack.append(called(known, tuple(self.marked())) if name == "INST" else known)
        elif name not in ("PROTO", "FRAME"):
            self.compound(name)

    def compound(self, name: str) -> None:
        """An operation on what lies on the stack."""
        pop = self.stack.pop
        if name in JOINED:
            self.stack.append(JOINED[name](self.marked()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name in ("APPEND", "APPENDS"):
            more = [pop()] if name == "APPEND" else self.marked()
            if isinstance(self.stack[-1], list):  # of a stub's items nobody knows what they are
                self.stack[-1].extend(more)
        elif name == "ADDITEMS":
            more = self.marked()
            self.stack[-1].update(more)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self.marked() if name == "SETITEMS" else [self.stack.pop(-2), pop()]
            if isinstance(self.stack[-1], dict):
                self.stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
        elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL", "BUILD", "BINPERSID", "OBJ"):
            self.thing(name)
        elif name in ("POP", "DUP", "POP_MARK"):
            {"POP": pop, "DUP": lambda: self.stack.append(self.stack[-1]), "POP_MARK": self.marked}[name]()
        else:
            raise Broken(f"its pickle asks for {name}")

    def thing(self, name: str) -> None:
        """An operation that would import, call or change something: here it takes notes."""
        if name == "OBJ":
            of, *rest = self.marked()
            self.stack.append(called(of, tuple(rest)))
            return
        last = self.stack.pop()
        if name == "BINPERSID":
            self.stack.append(self.storage(last))
        elif name == "BUILD":
            if isinstance(self.stack[-1], Stub):
                self.stack[-1].state = last
        elif name == "STACK_GLOBAL":
            self.stack.append(Stub(f"{self.stack.pop()}.{last}"))
        else:
            arguments = self.stack.pop() if name == "NEWOBJ_EX" else last
            self.stack.append(called(self.stack.pop(), tuple(arguments)))

    def marked(self) -> list[Any]:
        """What was put on the stack since the last mark."""
        at = len(self.stack) - 1 - self.stack[::-1].index(MARK)
        inner = self.stack[at + 1 :]
        del self.stack[at:]
        return inner

    def storage(self, told: Any) -> Storage:
        """A run of numbers that the pickle speaks of."""
        if not isinstance(told, tuple) or len(told) < 5 or told[0] != "storage" or not isinstance(told[1], Stub):
            raise Broken("it speaks of something outside itself")
        kind = told[1].name.rpartition(".")[2].removesuffix("Storage")
        if kind not in TYPES or not isinstance(told[4], int):
            raise Broken(f"numbers of the kind {told[1].name}")
        storage = Storage(f"{told[2]}", TYPES[kind], told[4])
        self.used[storage.key] = storage
        return storage


def called(of: Any, arguments: tuple[Any, ...]) -> Any:
    """What comes of a class and arguments: a tensor's place, a table, a tuple; a stub in all other cases."""
    name = of.name if isinstance(of, Stub) else "?"
    if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"):
        storage, offset, shape, strides = arguments[:4]
        whole = all(isinstance(n, int) for n in (offset, *shape, *strides)) and len(shape) == len(strides)
        if not isinstance(storage, Storage) or not whole:
            raise Broken("a tensor without numbers")
        return Strided(storage, offset, tuple(shape), tuple(strides))
    if name.startswith("torch._utils._rebuild_parameter") and isinstance(arguments[0], Strided):
        return arguments[0]
    if name == "collections.OrderedDict":
        return dict(*arguments)
    if name == "torch.Size":
        return tuple(*arguments)
    return Stub(name, arguments)


def _pairs(inner: list[Any]) -> dict[Any, Any]:
    return dict(zip(inner[::2], inner[1::2], strict=True))


PUSHED = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
MADE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict, "EMPTY_SET": set, "MARK": lambda: MARK,
}  # fmt: skip
JOINED: dict[str, Callable[[list[Any]], Any]] = {"LIST": list, "TUPLE": tuple, "DICT": _pairs, "FROZENSET": frozenset}
