"""Weights in and out: nothing is lost, nothing is mixed up, damage is named."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import pytest
import torch
from torch import nn

from ordsmed.base.errors import DataError
from ordsmed.nn.model import Names, own_tensors
from ordsmed.weights import weights


class Network(nn.Module):
    """A tied table and a fused projection."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList([nn.ModuleDict({"gather": nn.Linear(4, 12), "up": nn.Linear(4, 8)})])
        self.head = nn.ModuleDict({"words": self.words})


def table(fused, transposed):
    parts = {}
    for end in ("weight", "bias"):
        apart = tuple(f"h.0.{part}.{end}" for part in "qkv")
        parts[f"blocks.0.gather.{end}"] = f"h.0.qkv.{end}" if fused else apart
        parts[f"blocks.0.up.{end}"] = f"h.0.up.{end}"
    parts["words.weight"] = "h.words.weight"
    return Names(
        parts,
        heads=2,
        prefix="h.",
        fused=fused,
        transposed=transposed,
        tied={"out.weight": "h.words.weight"},
        buffers=(".mask",),
    )


NAMES = pytest.mark.parametrize("names", [table(f, t) for f in (True, False) for t in (True, False)])


@NAMES
def test_to_theirs_and_back_is_the_same(names):
    ours = {k: v.detach() for k, v in own_tensors(Network()).items()}
    there = weights.to_foreign(ours, names)
    back = weights.from_foreign(there, ours, names, "test")
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[k], ours[k]) for k in ours)


def test_heads_stand_one_by_one_in_ours_and_part_by_part_in_theirs():
    names = table(True, True)
    fused = torch.arange(12.0)  # 2 heads x (query, key, value) x 2 numbers
    ours = {"blocks.0.gather.bias": fused, "blocks.0.gather.weight": fused[:, None] * torch.ones(4)}
    there = weights.to_foreign(ours, names)
    wanted = [0.0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]
    assert there["h.0.qkv.bias"].tolist() == wanted
    assert there["h.0.qkv.weight"].shape == (4, 12)
    assert there["h.0.qkv.weight"][2].tolist() == wanted
    apart = weights.to_foreign(ours, table(False, False))
    assert apart["h.0.k.bias"].tolist() == [2, 3, 8, 9]


def test_only_matrices_of_blocks_are_turned():
    there = weights.to_foreign(own_tensors(Network()), table(True, True))
    assert there["h.0.up.weight"].shape == (4, 8)
    assert there["h.words.weight"].shape == (5, 4)


def test_a_tied_table_stands_once():
    assert list(own_tensors(Network())) == [
        "words.weight",
        "blocks.0.gather.weight",
        "blocks.0.gather.bias",
        "blocks.0.up.weight",
        "blocks.0.up.bias",
    ]


def test_missing_and_left_over_are_named():
    names = table(True, False)
    there = weights.to_foreign(own_tensors(Network()), names)
    there["h.0.more.weight"] = there.pop("h.0.up.bias")
    there["h.0.mask"] = there["out.weight"] = torch.zeros(1)  # these two may be there
    wanted = r"weights do not fit: missing h\.0\.up\.bias; unexpected h\.0\.more\.weight"
    with pytest.raises(DataError, match=wanted):
        weights.from_foreign(there, names.table, names, "place")


def test_written_is_read_and_keeps_its_facts(tmp_path):
    from safetensors import safe_open

    network = Network()
    path = tmp_path / "x.safetensors"
    weights.write(path, {**own_tensors(network), "turned": torch.randn(3, 4).T}, of="test")
    other = Network()
    held = weights.read(path)
    assert held.pop("turned").shape == (4, 3)
    weights.load_into(other, held, path)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "of": "test"}


@pytest.mark.parametrize("damage", ["cut", "garbled", "empty", "absent"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "x.safetensors"
    weights.write(path, {"a": torch.randn(100)})
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[:-10], "garbled": b"\xff" * 100, "empty": b"", "absent": b""}[damage])
    if damage == "absent":
        path.unlink()
    with pytest.raises(DataError, match=r"x\.safetensors: cannot be read"):
        weights.read(path)


def test_what_does_not_fit_a_network_is_named_and_nothing_is_changed():
    network = Network()
    before = [p.clone() for p in network.parameters()]
    held = dict(own_tensors(Network()))
    held["other"] = held.pop("blocks.0.up.bias")
    held["words.weight"] = torch.zeros(6, 4)
    with pytest.raises(
        DataError, match=r"missing blocks\.0\.up\.bias; unexpected other; wrong shapes words\.weight \[6, 4\]"
    ):
        weights.load_into(network, held, "place")
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_many_names_are_cut_short():
    with pytest.raises(DataError, match=r"missing .*, .*, .*, .* and 1 more"):
        weights.load_into(Network(), {}, "place")


def test_rows_of_padding_may_lack_and_never_be_more():
    own = {"a": torch.zeros(4, 2)}
    weights.compare({"a": torch.zeros(3, 2)}, own, "place", padded=["a"])
    for held, padded in ((torch.zeros(5, 2), ["a"]), (torch.zeros(3, 3), ["a"]), (torch.zeros(3, 2), [])):
        with pytest.raises(DataError, match=r"wrong shapes a \[\d, \d\], not \[4, 2\]"):
            weights.compare({"a": held}, own, "place", padded=padded)


def test_a_pickle_with_code_is_not_run(tmp_path):
    class Bad:
        def __reduce__(self):
            return (tmp_path / "ran").touch, ()

    torch.save({"a": Bad()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"pytorch_model\.bin: cannot be read: it asks to run `\S+`") as caught:
        weights.read_foreign(tmp_path)
    assert "safetensors" in str(caught.value)
    assert "weights_only" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "held",
    [b"", b"PK", b"garbled" * 9, [1, 2], {"a": 1}, {"epoch": torch.zeros(2), "b": "x"}, pickle.dumps({"a": 1}, 4)],
)
def test_other_pickles_are_refused_in_a_line_of_our_own(tmp_path, held):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(held) if isinstance(held, bytes) else torch.save(held, path)
    ends = "it is empty|it has more|not a file of torch|a zip file without its end"
    told = rf"cannot be read: .*({ends}).*wanted plain tensors"
    with pytest.raises(DataError, match=told) as caught:
        weights.read_foreign(tmp_path)
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_flipped_byte_in_a_file_of_torchs_is_found(tmp_path):
    path, number = tmp_path / "pytorch_model.bin", 1.2345678
    torch.save({"a": torch.full((50,), number)}, path)
    whole = path.read_bytes()
    place = whole.index(struct.pack("<f", number)) + 81
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(DataError, match=r"pytorch_model\.bin: is damaged: the checksum of data/0 differs"):
        weights.read_foreign(tmp_path)


def test_a_file_of_torchs_without_checksums_or_in_its_older_form_is_read(tmp_path):
    try:
        torch.serialization.set_crc32_options(False)
        for zipped in (False, True):
            torch.save({"a": torch.arange(3.0)}, tmp_path / "model", _use_new_zipfile_serialization=zipped)
            (tmp_path / "model").rename(tmp_path / "pytorch_model.bin")
            assert weights.read_foreign(tmp_path)["a"].tolist() == [0, 1, 2]
    finally:
        torch.serialization.set_crc32_options(True)


@pytest.mark.parametrize("held", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")])
def test_tensors_without_all_their_numbers_are_named(tmp_path, held):
    torch.save({"a": torch.zeros(2), "b": held}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="cannot be read: b is sparse or has no numbers; wanted plain tensors"):
        weights.read_foreign(tmp_path)


def test_what_is_no_number_does_not_fill_a_network():
    network, other = Network(), Network()
    before = [p.clone() for p in network.parameters()]
    held = {k: v.detach().clone() for k, v in own_tensors(other).items()}
    held["blocks.0.up.weight"][0, :2] = torch.tensor([float("nan"), float("inf")])
    with pytest.raises(DataError, match=r"place: blocks\.0\.up\.weight: 2 of 32 numbers are NaN or infinite"):
        weights.load_into(network, held, "place")
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_a_full_disk_is_said_in_a_line(tmp_path, monkeypatch):
    import safetensors.torch
    from safetensors import SafetensorError

    from ordsmed.base.errors import RunError

    def full(*_, **__):
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(RunError, match="cannot write: No space left"):
        weights.write(tmp_path / "x.safetensors", {"a": torch.zeros(2)})


def test_what_is_written_stands_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And others may read it, whatever the library makes of that."""
    synced: list[Path] = []
    monkeypatch.setattr(weights.files, "sync", synced.append)
    path = tmp_path / "model.safetensors"
    weights.write(path, {"a": torch.ones(2, 3).T})
    assert synced == [path]
    assert path.stat().st_mode & 0o777 == 0o644
    assert weights.read(path)["a"].shape == (3, 2)


def test_numbers_are_looked_at_one_by_one() -> None:
    """A sum of large ones may be infinite where none of them is."""
    weights.check_numbers({"a": torch.full((100,), 60_000.0, dtype=torch.float16), "none": torch.zeros(0)}, "place")
    for wrong in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(DataError, match=r"^place: b: 1 of 3 numbers are NaN or infinite"):
            weights.check_numbers({"b": torch.tensor([1.0, wrong, 2.0])}, "place")
    for kind in (torch.int8, torch.float8_e4m3fn):
        with pytest.raises(DataError, match=rf"c has type {kind}; wanted floating-point numbers"):
            weights.check_numbers({"c": torch.zeros(2).to(kind)}, "place")
    with pytest.raises(DataError, match=r"d: 1 of 2 numbers are NaN, infinite or too large for fp32"):
        weights.check_numbers({"d": torch.tensor([1e38, -1e39], dtype=torch.float64)}, "place")


def test_halves_stand_side_by_side_in_ours_and_end_to_end_in_theirs() -> None:
    """Three parts a half: a0 b0 a1 b1 a2 b2 -> a0 a1 a2 b0 b1 b2, and back."""
    name = "model.blocks.0.up.weight"
    names = Names({name: "m.wi"}, 1, "m.", halves=3)
    ours = {name: torch.arange(12.0).view(12, 1)}
    theirs = weights.to_foreign(ours, names)
    assert theirs["m.wi"].flatten().tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
    assert torch.equal(weights.from_foreign(theirs, [name], names, "place")[name], ours[name])
