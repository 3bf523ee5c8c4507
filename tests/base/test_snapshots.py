"""Numbered folders that are whole or absent: what they are called, when they are damaged, which one is gone on from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.base import files, snapshots
from ordsmed.base.errors import DataError
from ordsmed.base.snapshots import KINDS, damage, latest, path_of, steps, strip


def made(folder: Path, step: int, names: tuple[str, ...] = ("model.safetensors", "optimizer.safetensors")) -> Path:
    path = path_of(folder, step)
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_bytes(f"{name} of {step}".encode())
    sums = {name: files.checksum(path / name) for name in names}
    files.write_json(path / "state.json", {"step": step, "checksums": sums})
    return path


def test_names() -> None:
    assert path_of(Path("a"), 500) == Path("a/step-000000500")
    assert snapshots.file_of("model", 0, 1) == "model.safetensors"
    assert [snapshots.file_of("model", rank, 2) for rank in (0, 1)] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert {snapshots.kind_of(snapshots.file_of(kind, rank, 2)) for kind in KINDS for rank in (0, 1)} == set(KINDS)
    assert [snapshots.kind_of(f"{kind}.safetensors") for kind in KINDS] == list(KINDS)


def test_steps_are_folders_with_a_number(tmp_path: Path) -> None:
    for name in ("step-000000010", "step-9", "step-x", ".step-000000011.part", "other-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-000000012").write_text("")
    assert steps(tmp_path) == [9, 10]
    assert steps(tmp_path / "nowhere") == []


def test_what_is_damaged(tmp_path: Path) -> None:
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "optimizer.safetensors")
    path = made(tmp_path, 3, names)
    assert damage(path) == ""
    (path / names[1]).write_bytes(b"other")
    told = f"{names[1]} is damaged (checksum {files.checksum(path / names[1])}, wanted "
    assert damage(path).startswith(told)
    assert damage(path, ("optimizer",)) == "", "nobody asks for the weights"
    (path / names[1]).unlink()
    assert damage(path) == f"{names[1]} is missing"
    (path / "state.json").write_text("{")
    assert damage(path).startswith("state.json is damaged (")
    files.write_json(path / "state.json", {"step": 3})
    assert damage(path).startswith("state.json is damaged (")
    files.write_json(path / "state.json", {"checksums": {"model.safetensors": "1"}})
    assert damage(path) == "state.json has no optimizer"
    (path / "state.json").unlink()
    assert damage(path).startswith("state.json is damaged (")


def test_the_last_whole_one_is_gone_on_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert latest(tmp_path, place="here") is None
    for step in (3, 6, 9):
        made(tmp_path, step)
    found = latest(tmp_path, place="here")
    assert found is not None
    assert (found[0], found[1]["step"]) == (path_of(tmp_path, 9), 9)
    (path_of(tmp_path, 9) / "optimizer.safetensors").unlink()
    found = latest(tmp_path, place="here")
    assert found is not None
    assert found[1]["step"] == 6
    told = "step-000000009: optimizer.safetensors is missing; using the checkpoint before it"
    assert told in capsys.readouterr().err
    for step in (3, 6):
        (path_of(tmp_path, step) / "model.safetensors").unlink()
    with pytest.raises(
        DataError, match="here: all 3 checkpoints are damaged; wanted an intact checkpoint; start again with another"
    ):
        latest(tmp_path, place="here")


def test_a_revision_keeps_its_weights_alone(tmp_path: Path) -> None:
    """Nothing to go on from, but weights to look at; stripped twice it is the same, killed in between it is whole."""
    made(tmp_path, 3)
    path = made(tmp_path, 6)
    strip(path)
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "state.json"]
    assert files.read_json(path / "state.json")["step"] == 6
    assert snapshots.is_stripped(path)
    assert not snapshots.is_stripped(path_of(tmp_path, 3))
    assert not snapshots.is_stripped(tmp_path)
    before = (path / "state.json").stat().st_mtime_ns
    strip(path)
    assert (path / "state.json").stat().st_mtime_ns == before
    whole, weights = latest(tmp_path, place="here"), latest(tmp_path, place="here", kinds=KINDS[:1])
    assert whole is not None
    assert weights is not None
    assert (whole[1]["step"], weights[1]["step"]) == (3, 6)
    assert (damage(path, KINDS[:1]), damage(path)) == ("", "state.json has no optimizer")
