"""torch's pickles: the same tensors as torch reads, and nothing that a file asks for is done."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.foreign_files import everything
from ordsmed.base.binary import pickle_reader
from ordsmed.base.binary.pickle_reader import Pickled, Strided, Stub, is_pickled
from ordsmed.base.errors import DataError


class Hostile:
    """What runs something when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_are_those_that_torch_reads(tmp_path: Path, zipped: bool, protocol: int) -> None:
    own, path = everything(), tmp_path / "x.pt"
    torch.save(own, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    assert is_pickled(path)
    found = Pickled(path)
    read = found.value
    assert list(read["model"]) == list(own["model"])
    for name, tensor in own["model"].items():
        assert torch.equal(found.tensor(read["model"][name]), tensor)
        assert found.tensor(read["model"][name]).dtype == tensor.dtype
    assert all(torch.equal(found.tensor(a), b) for a, b in zip(read["numbers"], own["numbers"], strict=True))
    assert torch.equal(found.tensor(read["parameter"]), own["parameter"])
    table = read["args"].table()
    assert (table["heads"], table["sizes"], table["dtype"].name) == (2, [1, (2, 3)], "torch.float16")
    assert read["unknown"].name.endswith("Unknown")
    assert read["unknown"].state == {"scale": 2.0}
    assert read["values"][:9] == own["values"][:9]


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_is_run(tmp_path: Path, zipped: bool) -> None:
    path, traces = tmp_path / "x.pt", tmp_path / "traces"
    torch.save({"a": torch.ones(2), "bad": Hostile(traces)}, path, _use_new_zipfile_serialization=zipped)
    found = Pickled(path).value
    assert (found["bad"].name, found["bad"].arguments) == ("posix.system", (f"touch {traces}",))
    assert not traces.exists()
    torch.load(path, weights_only=False)  # it would have been
    assert traces.exists()


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.ones(200)}, path)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"x\.pt: cannot be read: it is truncated: a zip file without its end"):
        Pickled(path)


HOSTILE = {  # of every way to make something: what a reader that runs it would do
    "reduce": b"cos\nsystem\n(S'touch %s'\ntR.",
    "inst": b"(S'touch %s'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'touch %s'\no.",
    "newobj": b"\x80\x02cos\nsystem\n(S'touch %s'\nt\x81.",
    "build": b"cos\nsystem\n(S'touch %s'\ntR}S'__setstate__'\ncos\nsystem\nsb.",
    "global": b"\x80\x04\x8c\x02os\x8c\x06system\x93(S'touch %s'\ntR.",
}


@pytest.mark.parametrize("program", HOSTILE.values(), ids=HOSTILE)
def test_no_operation_runs_anything(tmp_path: Path, program: bytes) -> None:
    traces, path = tmp_path / "traces", tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("x/data.pkl", program % str(traces).encode())
    assert isinstance(Pickled(path).value, Stub)
    assert not traces.exists()


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (b"\x80\x02}", "its pickle is truncated"),
        (b"not a pickle", "has the operation 110"),
        (b"\x80\x02U\x05modelQ.", "refers to something outside of the file"),
        (b"\x80\x02\x82\x01.", "has the operation EXT1"),
        (b"\x80\x05\x97.", "has the operation NEXT_BUFFER"),
        (b"\x80\x05C\x01a\x98.", "has the operation READONLY_BUFFER"),
        (b"Pmodel\n.", "has the operation PERSID"),
        (b".", "empty list"),
        (b"h\x05.", "5"),
    ],
)
def test_what_is_no_pickle_of_torch_is_refused(tmp_path: Path, program: bytes, told: str) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("x/data.pkl", program)
    with pytest.raises(DataError, match=rf"x\.pt: cannot be read: .*{told}.*; wanted a file of torch\.save"):
        Pickled(path)


@pytest.mark.parametrize("zipped", [True, False])
def test_damage_is_named(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.arange(1000.0)}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"x\.pt: cannot be read"):
        Pickled(path)
    if zipped:
        at = whole.index(np.arange(1000, dtype=np.float32).tobytes())
        path.write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])
        found = Pickled(path)
        with pytest.raises(DataError, match=r"the checksum of data/0 differs"):
            found.tensor(found.value["a"])


def test_a_tensor_beyond_its_numbers_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(10.0)}, tmp_path / "x.pt")
    found = Pickled(tmp_path / "x.pt")
    storage = found.value["a"].storage
    for piece in (Strided(storage, 1, (10,), (1,)), Strided(storage, 0, (2,), (10,)), Strided(storage, -1, (2,), (1,))):
        with pytest.raises(DataError, match="exceeds its storage"):
            found.tensor(piece)


def test_other_files_do_not_look_like_one(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    assert not is_pickled(tmp_path / "x")
    assert not is_pickled(tmp_path)
    (tmp_path / "y").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match="it is not a file of torch"):
        Pickled(tmp_path / "y")


@pytest.mark.parametrize("zipped", [True, False])
def test_how_long_a_pickle_may_be_follows_from_the_file(
    tmp_path: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some bytes beside few numbers, more beside many: 400 of a tensor here."""
    monkeypatch.setattr(pickle_reader, "SHORT", 100)
    for numbers in (100, 10000):
        torch.save({"a": torch.zeros(numbers)}, tmp_path / f"{numbers}.pt", _use_new_zipfile_serialization=zipped)
    assert Pickled(tmp_path / "10000.pt").value["a"].shape == (10000,)
    with pytest.raises(DataError, match=r"100\.pt: cannot be read: (x/|100/)?(data|its pickle)"):
        Pickled(tmp_path / "100.pt")
