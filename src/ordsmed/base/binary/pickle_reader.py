"""Read files of torch.save without executing them: tensors, plain values, and inert stubs for everything else.

A pickle is a program for a stack machine. `Inert` is such a machine without imports and calls: a class is its name, an
instance is a `Stub` with its arguments and state, and tensors are positions in the file. Reading takes time and memory
in proportion to the file's length, whatever the file contains.

    zip: NAME/data.pkl, NAME/data/0 ...            torch 1.6 and later
    magic, version, facts, the pickle, keys, numbers ...    before
"""

import io
import math
import mmap
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import torch
from torch import Tensor

from ordsmed.base.errors import DataError

MAGIC = 0x1950A86A20F9469CFC6C
ZIP = b"PK\x03\x04"  # the first bytes of a zip file
LEGACY = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P"  # the pickled magic number
WANTED = "a file of torch.save"
TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
SHORT, LONGEST = 1 << 21, 1 << 25  # limits of a pickle's bytes: of a small file, of any; a tensor takes about 150
LONGEST_NAME, MOST_SIZES, LARGEST = (
    1000,
    64,
    1 << 59,
)  # characters, dimensions, a number (larger ones collide in hashes)
MOST_VALUES, DEEPEST = 1 << 17, 32  # values and depth of nested tables


class Broken(ValueError):
    """The bytes are not a pickle of torch."""


MALFORMED = (pickle.UnpicklingError, zipfile.BadZipFile, NotImplementedError, zlib.error, struct.error, EOFError)
BROKEN = (*MALFORMED, KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError)


class Stub:
    """An instance of an unknown class: the class's name, the arguments and the state. It does nothing."""

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: object = None

    def table(self) -> dict[str, Any]:
        """Return its attributes, if it has a dict of them."""
        return self.state if isinstance(self.state, dict) else {}


@dataclass(frozen=True)
class Storage:
    key: str
    dtype: torch.dtype
    size: int


@dataclass(frozen=True)
class Strided:
    """A tensor: a view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Pickled:
    """An opened file with its values and tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[str, tuple[int, int, int]] = {}  # offset, size in bytes and CRC-32 (or 0) of storages
        try:
            with path.open("rb") as file:
                if not path.stat().st_size:
                    raise Broken("it is empty")
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                self.value = self._zipped(file) if zipfile.is_zipfile(path) else self._legacy()
        except BROKEN as error:
            remedy = "fetch it again, or save it again with torch.save"
            raise DataError(path, f"cannot be read: {error}", WANTED, remedy) from None
        self.checked: set[str] = set()

    def tensor(self, piece: Strided) -> Tensor:
        """Return a tensor that shares the memory-mapped file."""
        key, dtype = piece.storage.key, piece.storage.dtype
        count = math.prod(n or 1 for n in piece.shape)
        if 0 in piece.shape and count <= LARGEST:
            return torch.empty(piece.shape, dtype=dtype)
        start, size, crc = self.places.get(key, (0, -1, 0))
        reach = piece.offset + 1 + sum((n - 1) * s for n, s in zip(piece.shape, piece.strides, strict=True))
        count = max(reach, count)  # a tensor with repeated numbers (stride 0) could have any size
        if min((piece.offset, *piece.shape, *piece.strides)) < 0 or count * dtype.itemsize > max(size, 0):
            raise DataError(self.path, f"is damaged: a tensor {list(piece.shape)} exceeds its storage", WANTED)
        if crc and key not in self.checked:
            if zlib.crc32(memoryview(self.bytes)[start : start + size]) != crc:
                raise DataError(self.path, f"is damaged: the checksum of data/{key} differs", WANTED, "fetch it again")
            self.checked.add(key)
        numbers = torch.frombuffer(self.bytes, dtype=dtype, count=size // dtype.itemsize, offset=start)
        return numbers.as_strided(piece.shape, piece.strides, piece.offset)

    def flat(self, table: object) -> dict[str, Strided]:
        tensors: dict[str, Strided] = {}
        self._gather(table, "", 0, tensors, [MOST_VALUES])
        return tensors

    def _gather(self, value: object, name: str, depth: int, tensors: dict[str, Strided], left: list[int]) -> None:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0 or len(name) > LONGEST_NAME:
            wrong = f"has tables over {DEEPEST} deep, {MOST_VALUES:,} values, or names over {LONGEST_NAME} characters"
            raise DataError(self.path, wrong, "tables of tensors")
        if isinstance(value, Strided):
            tensors[name] = value
        elif isinstance(value, dict):
            for key, inner in value.items():
                part = key if isinstance(key, str) else f"{key}" if isinstance(key, int) else "?"
                self._gather(inner, f"{name}.{part}" if name else part, depth + 1, tensors, left)

    def _zipped(self, file: IO[bytes]) -> object:
        with zipfile.ZipFile(file) as parts:
            listed = parts.infolist()
        names = [part for part in listed if part.filename.endswith("data.pkl")]
        if len(names) != 1:
            raise Broken("a zip file, but not one of torch.save")
        prefix = names[0].filename.removesuffix("data.pkl")
        for part in listed:
            if part.filename == f"{prefix}byteorder" and self._bytes_of(part, 8).strip() != b"little":
                raise Broken("its numbers are big-endian")
            if part.filename.startswith(f"{prefix}data/"):
                self.places[part.filename.removeprefix(f"{prefix}data/")] = self._part(part)
        return _run(self._bytes_of(names[0], self._longest()))[0]

    def _longest(self) -> int:
        return min(LONGEST, SHORT + len(self.bytes) // 32)

    def _bytes_of(self, part: zipfile.ZipInfo, most: int) -> bytes:
        start, size, crc = self._part(part)
        if size > most:
            raise Broken(f"{part.filename} has {size:,} bytes, more than {most:,}")
        data = self.bytes[start : start + size]
        if crc and zlib.crc32(data) != crc:
            raise Broken(f"it is damaged: the checksum of {part.filename} differs")
        return data

    def _part(self, part: zipfile.ZipInfo) -> tuple[int, int, int]:
        """Return offset, size and CRC-32 of a member of the zip file."""
        if part.compress_type != zipfile.ZIP_STORED or part.flag_bits & 1:
            raise Broken(f"{part.filename} is compressed, or encrypted")
        name, extra = struct.unpack_from("<HH", self.bytes, part.header_offset + 26)
        start = part.header_offset + 30 + name + extra
        if start + part.file_size > len(self.bytes):
            raise Broken(f"it is truncated: {part.filename} exceeds it")
        return start, part.file_size, part.CRC

    def _legacy(self) -> object:
        if self.bytes[:2] == ZIP[:2]:
            raise Broken("it is truncated: a zip file without its end")
        if LEGACY not in self.bytes[:32]:
            raise Broken("it is not a file of torch")
        at, values = 0, []
        used: dict[str, Storage] = {}
        for _ in range(5):  # magic number, version, facts of the machine, values, keys of storages
            value, length = _run(self.bytes[at : at + self._longest()], used)
            values.append(value)
            at += length
            if values[0] != MAGIC:
                raise Broken("it is not a file of torch")
        keys = values[4] if isinstance(values[4], list) else []
        for key in keys:
            storage = used.get(key) if isinstance(key, str) else None
            (count,) = struct.unpack_from("<q", self.bytes, at)
            size = count * (storage.dtype.itemsize if storage else 1)
            if storage is None or count < 0 or at + 8 + size > len(self.bytes):
                raise Broken("it is truncated in its numbers")
            self.places[storage.key] = (at + 8, size, 0)
            at += 8 + size
        return values[3]


def is_pickled(path: Path) -> bool:
    """Return whether a file looks like one of torch.save."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(32)
    return head.startswith(ZIP) or LEGACY in head


def attributes(value: object) -> dict[str, Any]:
    """Return the attributes of a Namespace, or a table in place of one; else an empty dict."""
    return value.table() if isinstance(value, Stub) else value if isinstance(value, dict) else {}


def plain(value: object) -> dict[str, Any]:
    """Return the attributes that are strings, numbers, booleans or None."""
    return {name: inner for name, inner in attributes(value).items() if _is_plain(inner)}


def brief(value: object) -> str:
    """Return a value as text for a message, or only its type if it may be long."""
    return repr(value) if _is_plain(value) else f"a {type(value).__name__}"


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST
    return value is None or isinstance(value, float) or (isinstance(value, str) and len(value) <= LONGEST_NAME)


def write(path: Path, value: object) -> None:
    """Write a file for torch.load, only for programs that read nothing else."""
    torch.save(value, path)


def _run(data: bytes, used: dict[str, Storage] | None = None) -> tuple[Any, int]:
    """Return the value of a pickle, and its length in bytes."""
    file = io.BytesIO(data)
    machine = Inert(file, {} if used is None else used, len(data))
    try:
        return machine.load(), file.tell()
    except EOFError:
        raise Broken("its pickle is truncated, or too long for names and numbers of a model") from None
    except KeyError as error:
        names = {ord(operation.code): operation.name for operation in pickletools.opcodes}
        raise Broken(f"its pickle has the operation {names.get(error.args[0], error.args[0])}") from None


class Inert(pickle._Unpickler):
    """Python's own unpickler, in which every class is only a name and nothing is called.

    It is the version written in Python. The one in C allocates memory for the highest number that a file gives a value,
    and for as many bytes as the file announces, before it checks them. It also hashes every key of a table, which can
    take forever for nested tuples. Here all of that is under control, at a tenth of the speed.
    """

    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    readline: Callable[[], bytes]
    load_binbytes8: Callable[[], None]
    dispatch: ClassVar[dict[int, Callable[[pickle.Unpickler], None]]] = {}

    def __init__(self, file: IO[bytes], used: dict[str, Storage], budget: int) -> None:
        super().__init__(file, encoding="latin-1")
        self.used, self.budget = used, budget  # values that may still be copied, at first the number of bytes

    def find_class(self, module: str, name: str) -> Stub:
        if len(module) + len(name) > LONGEST_NAME:  # a long name would be copied at each use
            raise Broken(f"a class with a name of {len(module) + len(name):,} characters")
        return Stub(f"{module}.{name}")

    def persistent_load(self, pid: object) -> Storage:
        """Return the storage that the pickle refers to."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], Stub):
            raise Broken("it refers to something outside of the file")
        kind = pid[1].name.rpartition(".")[2].removesuffix("Storage")
        if kind not in TYPES or not isinstance(pid[2], str | int) or not isinstance(pid[4], int):
            raise Broken(f"numbers of the type {pid[1].name}")
        storage = Storage(f"{pid[2]}", TYPES[kind], pid[4])
        self.used[storage.key] = storage
        return storage

    def make(self, of: object, arguments: object) -> None:
        """Push what a class and its arguments make: a tensor, a table, a tuple, or a stub in all other cases."""
        name = of.name if isinstance(of, Stub) else "?"
        if not isinstance(arguments, tuple):
            raise Broken("the arguments of a call are not a tuple")
        if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"):
            self.append(_strided(*arguments[:4]))
        elif name.startswith("torch._utils._rebuild_parameter") and isinstance(arguments[0], Strided):
            self.append(arguments[0])
        elif name == "collections.OrderedDict":
            pairs = self.copied(arguments[0]) if arguments else []
            self.append({_key(key): value for key, value in (pairs.items() if isinstance(pairs, dict) else pairs)})
        elif name == "torch.Size":
            self.append(tuple(self.copied(arguments[0])))
        else:
            self.append(Stub(name, arguments))

    def copied(self, values: Any) -> Any:
        """Count values that are about to be copied: a few bytes may refer to the same long list many times."""
        self.budget -= len(values)
        if self.budget < 0:
            raise Broken("its pickle unfolds to more values than it has bytes")
        return values

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        self.make(self.stack.pop(), arguments)

    load_newobj = load_reduce

    def load_newobj_ex(self) -> None:
        self.stack.pop()  # arguments by name
        self.load_reduce()

    def load_obj(self) -> None:
        of, *arguments = self.pop_mark()
        self.make(of, tuple(arguments))

    def load_inst(self) -> None:
        module, name = (self.readline()[:-1].decode("ascii") for _ in range(2))
        self.make(self.find_class(module, name), tuple(self.pop_mark()))

    def load_build(self) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Stub):
            self.stack[-1].state = state

    def load_append(self) -> None:
        self.add_items([self.stack.pop()])

    def load_appends(self) -> None:
        self.add_items(self.pop_mark())

    def load_setitem(self) -> None:
        value = self.stack.pop()
        self.set_items([self.stack.pop(), value])

    def load_setitems(self) -> None:
        self.set_items(self.pop_mark())

    def add_items(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):  # the items of a stub are ignored
            self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(_pairs(items))

    def load_dict(self) -> None:
        self.append(_pairs(self.pop_mark()))

    def load_empty_set(self) -> None:
        self.append(Stub("builtins.set"))  # sets are never used

    def load_additems(self) -> None:
        self.pop_mark()

    def load_frozenset(self) -> None:
        self.pop_mark()
        self.load_empty_set()

    def load_bytearray8(self) -> None:
        self.load_binbytes8()  # allocates the bytes that are there, not those that are announced


KNOWN = (
    "proto frame mark stop pop pop_mark dup get binget long_binget put binput long_binput memoize none true false int "
    "binint binint1 binint2 long long1 long4 float binfloat string binstring short_binstring unicode binunicode "
    "short_binunicode binunicode8 binbytes short_binbytes binbytes8 bytearray8 tuple empty_tuple tuple1 tuple2 tuple3 "
    "empty_list list append appends empty_dictionary dict setitem setitems empty_set additems frozenset global "
    "stack_global binpersid reduce newobj newobj_ex obj inst build"
)
for _code, _usual in pickle._Unpickler.dispatch.items():
    if _usual.__name__.removeprefix("load_") in KNOWN.split():
        Inert.dispatch[_code] = getattr(Inert, _usual.__name__)


def _strided(storage: object, offset: object, shape: object, strides: object) -> Strided:
    if not (isinstance(storage, Storage) and isinstance(shape, tuple | list) and isinstance(strides, tuple | list)):
        raise Broken("a tensor without a storage")
    if len(shape) != len(strides) or len(shape) > MOST_SIZES:
        raise Broken(f"a tensor of {len(shape):,} dimensions")
    numbers = (offset, *shape, *strides)
    if not isinstance(offset, int) or not all(isinstance(n, int) and 0 <= n <= LARGEST for n in numbers):
        raise Broken("a tensor with invalid sizes")
    return Strided(storage, offset, tuple(shape), tuple(strides))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return {_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _key(key: object) -> object:
    """Return a table's key if it is cheap to compare, a string or number. Other keys are never read."""
    small = abs(key) <= LARGEST if isinstance(key, int) else isinstance(key, str | float | bytes | Stub | None)
    return key if small else Stub("key")
