"""Checkpoints in parts: each rank writes its share, any number of ranks reads them back, carried state with them."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.base import snapshots
from ordsmed.base.errors import DataError
from ordsmed.base.ranks import Ranks
from ordsmed.learn.groups import groups
from ordsmed.learn.objectives import mlm
from ordsmed.learn.optimizers import adamw
from ordsmed.nn.models import bert
from ordsmed.nn.shards import Box
from ordsmed.train import checkpoint
from ordsmed.weights import boxes


def learned(seed: int, state: torch.Tensor, vocabulary: int = 50) -> tuple[Any, Any, Any]:
    """A small objective after one update, with carried state."""
    torch.manual_seed(seed)
    named = SimpleNamespace(vocabulary=vocabulary)
    objective = mlm.Mlm().build(bert.Bert(width=16, layers=1, heads=2, positions=8), named)  # type: ignore[arg-type]
    objective.state["streams"] = state
    made = groups(objective)
    optimizer = adamw.AdamW().build(made)
    for parameter in objective.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return objective, optimizer, [part for group in made for part in group["parts"]]


def rank_of(rank: int, world: int) -> Ranks:
    return Ranks(torch.device("cpu"), rank, world, shape=(world, 1, 1))


def test_copies_share_the_writing_and_state_is_cut_by_streams(tmp_path: Path) -> None:
    streams = torch.arange(12.0).view(4, 3)
    writers = []
    for rank in (1, 0):
        objective, optimizer, parts = learned(0, streams[2 * rank : 2 * rank + 2].clone())
        writers.append(checkpoint.CheckpointWriter(tmp_path, rank_of(rank, 2), 3, background=True, token="x"))
        writers[-1].save(5, objective, optimizer, parts, {}, scaler={})
    assert writers[1].outcome(give_up=False) is None
    path = tmp_path / "step-000000005"
    sizes = sorted(file.stat().st_size for file in path.glob("model-*"))
    assert len(sizes) == 2
    assert sizes[1] < 3 * sizes[0]
    assert checkpoint.damage(path) == ""
    wanted, moments, parts = learned(0, streams)
    for rank, world in ((0, 1), (0, 2), (1, 2), (3, 4)):
        own = streams[len(streams) // world * rank : len(streams) // world * (rank + 1)]
        objective, optimizer, into = learned(1, torch.zeros_like(own))
        checkpoint.restore(path, objective, optimizer, into, rank_of(rank, world), {})
        assert torch.equal(objective.state["streams"], own)
        for name, tensor in objective.state_dict().items():
            assert torch.equal(tensor, wanted.state_dict()[name]), name
        for ours, theirs in zip(into, parts, strict=True):
            assert torch.equal(optimizer.state[ours.local]["exp_avg_sq"], moments.state[theirs.local]["exp_avg_sq"])


@pytest.mark.parametrize(("writers", "files"), [(0, 4), (2, 2), (1, 1), (9, 4)])
def test_so_many_of_those_that_hold_the_same_write_it(tmp_path: Path, writers: int, files: int) -> None:
    """Each tensor once; ranks that write nothing leave no file, and the last to come is waited for."""
    by_rank = {}
    for rank in (2, 0, 3, 1):
        objective, optimizer, parts = learned(0, torch.zeros(1, 1))
        objective.state = {}
        writer = checkpoint.CheckpointWriter(tmp_path, rank_of(rank, 4), 3, background=True, token="x", writers=writers)
        writer.save(5, objective, optimizer, parts, {}, scaler={})
        by_rank[rank] = writer
    assert by_rank[0].outcome(give_up=False) is None
    path = tmp_path / "step-000000005"
    assert len(list(path.glob("model-*"))) == len(list(path.glob("optimizer-*"))) == files
    assert not list(path.glob("done-*"))
    assert checkpoint.damage(path) == ""
    again, optimizer, parts = learned(1, torch.zeros(1, 1))
    again.state = {}
    checkpoint.restore(path, again, optimizer, parts, rank_of(0, 1), {})
    assert all(torch.equal(tensor, objective.state_dict()[name]) for name, tensor in again.state_dict().items())


class Opened:
    """A stand-in for a file of a checkpoint, or a slice of it; notes how many bytes are read from the file."""

    def __init__(self, real: Any, read: Counter[str], name: str) -> None:
        self.real, self.read, self.name = real, read, name

    def get_slice(self, name: str) -> Opened:
        return Opened(self.real.get_slice(name), self.read, self.name)

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._noted(self.real.get_tensor(name))

    def __getitem__(self, at: Any) -> torch.Tensor:
        return self._noted(self.real[at])

    def _noted(self, tensor: torch.Tensor) -> torch.Tensor:
        self.read[self.name] += tensor.nbytes
        return tensor


def cut(tensors: dict[str, torch.Tensor], rank: int, world: int) -> tuple[dict[str, torch.Tensor], dict[str, Box]]:
    """A rank's rows of every tensor; scalars are the first rank's."""
    rows = {name: len(tensor) // world for name, tensor in tensors.items() if tensor.ndim}
    parts = {name: tensors[name][rank * n : (rank + 1) * n].clone() for name, n in rows.items()}
    where = {name: Box(tuple(tensors[name].shape), (rank * n, 0), (n, 4)) for name, n in rows.items()}
    scalars = {name: tensor for name, tensor in tensors.items() if not tensor.ndim and rank == 0}
    return parts | scalars, where | {name: Box((), (), ()) for name in scalars}


@pytest.mark.parametrize("world", [32, 8, 64])
def test_a_rank_opens_the_files_that_hold_its_part_and_reads_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int
) -> None:
    """Of a checkpoint of 32 ranks, whatever the layout of the resumed run; without an index it opens them all."""
    torch.manual_seed(0)
    whole = {f"exp_avg/{n}": torch.randn(64, 4) for n in range(3)} | {"step/0": torch.tensor(7.0)}
    for rank in reversed(range(32)):
        writer = checkpoint.CheckpointWriter(tmp_path, rank_of(rank, 32), 3, background=False, token="x")
        writer.writing = range(32)
        writer._work(5, {"model": cut(whole, rank, 32), "optimizer": cut(whole, rank, 32)}, {})
        assert writer.complaint is None
    path = tmp_path / "step-000000005"
    assert checkpoint.damage(path) == ""
    read, real = Counter[str](), boxes._open
    monkeypatch.setattr(boxes, "_open", lambda file: Opened(real(file), read, file.name))
    for rank in (0, world - 1):
        read.clear()
        stored = boxes.Boxes(path, "optimizer")
        parts, where = cut(whole, rank, world)
        for name, part in parts.items():
            assert torch.equal(stored.read(name, where[name] if part.ndim else None), part)
        first = 32 * rank // world
        files = {f"optimizer-{first + n + 1:05d}-of-00032.safetensors" for n in range(max(1, 32 // world))}
        assert (set(read), {file.name for file in stored.opened}) == (files, files)
        assert read.total() == sum(part.nbytes for part in parts.values())
    (path / snapshots.INDEX).unlink()
    monkeypatch.setattr(boxes, "_open", real)
    old = boxes.Boxes(path, "optimizer")
    assert len(old.opened) == 32
    assert torch.equal(old.read("exp_avg/1"), whole["exp_avg/1"])


@pytest.mark.parametrize(("shape", "files"), [((512, 1, 1), 16), ((64, 8, 1), 128)])
def test_hundreds_of_ranks_that_hold_the_same_leave_few_files(shape: tuple[int, int, int], files: int) -> None:
    """Every tensor once; which ranks write is known to all, and they are spread over the machines."""
    split = frozenset(["shard"]) if shape[1] > 1 else frozenset[str]()
    held = [checkpoint.TensorPiece(str(n), torch.ones(8), Box((8,), (0,), (8,)), split) for n in range(154)]
    held += [checkpoint.TensorPiece("step", torch.ones(()), Box((), (), ()))]
    written, known, writing = Counter[str](), set[tuple[int, ...]](), list[int]()
    for rank in range(512):
        place = Ranks(torch.device("cpu"), rank, 512, shape=shape)
        writer = checkpoint.CheckpointWriter(Path("x"), place, 3, background=False, token="x")
        shares = set[Any]()
        tensors, _ = writer._copy(iter(held), shares)
        written.update(list(tensors))
        writing += [rank] if tensors else []
        if rank % 100 == 0:
            known.add(tuple(n for n in range(512) if writer._writes(n, shares)))
    assert known == {tuple(writing)}
    assert len(writing) == files
    assert max(Counter(rank // 8 for rank in writing).values()) == shape[1], "of a machine with eight GPUs"
    assert written == {**{str(n): shape[1] for n in range(154)}, "step": 1}


def test_of_ranks_that_hold_the_same_one_reads_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """And sends it to the others, each in turn; also into tensors whose numbers are not in one piece."""
    sent: dict[int, torch.Tensor] = {}
    replica = 0

    def broadcast(tensor: torch.Tensor, source: int, group: str) -> None:
        assert (group, tensor.is_contiguous()) == ("replicas", True)
        if source == 100 + replica:
            sent[source] = tensor.clone()
        tensor.copy_(sent[source])

    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    monkeypatch.setattr(torch.distributed, "get_global_rank", lambda group, rank: 100 + rank)
    mesh: Any = SimpleNamespace(get_group=lambda name: {"replicate": "replicas"}[name])
    sharing = [
        checkpoint.SharedReading(Ranks(torch.device("cpu"), 2 * at, 4, shape=(2, 2, 1), mesh=mesh)) for at in (0, 1)
    ]
    stored = [torch.rand(3, 2) for _ in range(4)]
    reads = Counter[tuple[int, int]]()
    for number, wanted in enumerate(stored):
        for replica in (number % 2, 1 - number % 2):  # the one that reads comes first here
            target = torch.zeros(2, 3).t() if number == 2 else torch.zeros(3, 2)
            sharing[replica].fill(target, lambda: reads.update([(replica, number)]) or wanted)  # noqa: B023
            assert torch.equal(target, wanted)
    assert reads == {(number % 2, number): 1 for number in range(4)}


def test_an_index_that_is_damaged_is_told(tmp_path: Path) -> None:
    objective, optimizer, parts = learned(0, torch.zeros(1, 1))
    for rank in (1, 0):
        writer = checkpoint.CheckpointWriter(tmp_path, rank_of(rank, 2), 3, background=True, token="x")
        writer.save(5, objective, optimizer, parts, {}, scaler={})
    assert writer.outcome(give_up=False) is None
    path = tmp_path / "step-000000005"
    index = path / snapshots.INDEX
    text = index.read_text()
    index.write_text(text.replace("F32", "F16"))
    assert checkpoint.damage(path) == "index.json is damaged"
    index.write_text(text)
    snapshots.strip(path)
    assert (checkpoint.damage(path, ["model"]), index.exists()) == ("", False)
    assert boxes.read_whole(path).keys() >= checkpoint.own_tensors(objective).keys()


def test_the_rank_whose_part_lacks_is_named(tmp_path: Path) -> None:
    writers = []
    for rank in (0, 2):
        objective, optimizer, parts = learned(0, torch.zeros(1, 1))
        writers.append(checkpoint.CheckpointWriter(tmp_path, rank_of(rank, 3), 3, background=True, token="x"))
        writers[-1].save(5, objective, optimizer, parts, {}, scaler={})
        writers[-1].wait_for_part()
    outcome = writers[0].outcome(give_up=True)
    assert outcome
    assert outcome[1] == "rank 1 could not write its part (no checkpoint is complete)"


def saved(folder: Path, *steps: int, keep: int = 3, revision: Any = lambda step: False) -> checkpoint.CheckpointWriter:
    """A writer that has written these steps, one after the other."""
    objective, optimizer, parts = learned(0, torch.zeros(1, 1))
    writer = checkpoint.CheckpointWriter(folder, rank_of(0, 1), keep, background=False, token="x", revision=revision)
    for step in steps:
        writer.save(step, objective, optimizer, parts, {}, scaler={})
        assert writer.outcome(give_up=False) is None
        writer.reset()
    return writer


def test_checkpoints_after_the_step_that_is_saved_go(tmp_path: Path) -> None:
    saved(tmp_path, 3, 6, 9, 12)
    assert checkpoint.steps(tmp_path) == [6, 9, 12]
    saved(tmp_path, 7)
    assert checkpoint.steps(tmp_path) == [6, 7]
    assert checkpoint.latest(tmp_path, place=tmp_path)[1]["step"] == 7  # type: ignore[index]


def test_the_last_few_are_kept_and_revisions_without_their_moments(tmp_path: Path) -> None:
    saved(tmp_path, 2, 3, 4, 5, keep=2, revision=lambda step: step == 2)
    assert checkpoint.steps(tmp_path) == [2, 4, 5]
    assert sorted(file.name for file in (tmp_path / "step-000000002").iterdir()) == ["model.safetensors", "state.json"]
    shutil.rmtree(tmp_path / "step-000000005")
    shutil.rmtree(tmp_path / "step-000000004")
    assert checkpoint.latest(tmp_path, place=tmp_path) is None, "nothing to go on from"
    weights = checkpoint.KINDS[:1]
    assert checkpoint.latest(tmp_path, place=tmp_path, kinds=weights)[1]["step"] == 2  # type: ignore[index]
    assert checkpoint.damage(tmp_path / "step-000000002", weights) == ""


def test_a_checkpoint_has_its_name_on_the_disk_before_an_old_one_goes(
    tmp_path: Path, synced: list[tuple[str, str]]
) -> None:
    saved(tmp_path, 2, 4, keep=1)
    named = synced.index(("rename", str(tmp_path / "step-000000004")))
    assert synced[named + 1] == ("sync", str(tmp_path))
    assert [what for what, path in synced[named + 2 :] if "step-000000002" in path] == ["rename"]


def test_a_step_that_is_saved_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    (tmp_path / "step-000000005" / "model.safetensors").write_bytes(b"damaged")
    (tmp_path / "step-000000005" / "left").write_bytes(b"")
    saved(tmp_path, 5)
    assert checkpoint.damage(tmp_path / "step-000000005") == ""
    assert not (tmp_path / "step-000000005" / "left").exists()


def test_what_goes_on_learning_does_not_reach_what_is_written(tmp_path: Path) -> None:
    objective, optimizer, parts = learned(0, torch.ones(1, 1))
    writer = checkpoint.CheckpointWriter(tmp_path, rank_of(0, 1), 3, background=True, token="x")
    kinds = writer._copy(checkpoint._weights(objective, writer.ranks, {}), set())[0]
    with torch.no_grad():
        for part in parts:
            part.local.add_(1)
        objective.state["streams"].zero_()
    wanted, _, _ = learned(0, torch.ones(1, 1))
    assert all(torch.equal(kinds[name], tensor) for name, tensor in wanted.state_dict().items() if name in kinds)
    assert kinds["state/streams"].tolist() == [[1.0]]
    assert optimizer.state


class OnGpu:
    """A tensor that says it lies on a GPU, and is copied from when the GPU is waited for, as one there may be."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.device = tensor, torch.device("cuda:0")
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def detach(self) -> OnGpu:
        return self

    def to(self, device: str, copy: bool) -> torch.Tensor:
        return self.tensor.to(device, copy=copy)


class Pinned:
    """Memory that is filled when the GPU is waited for."""

    made = 0

    def __init__(self, like: Any) -> None:
        Pinned.made += 1
        self.shape, self.dtype, self.holds, self.comes = like.shape, like.dtype, None, None

    def copy_(self, source: OnGpu, non_blocking: bool) -> Pinned:
        assert non_blocking
        self.comes = source.tensor
        return self


def test_a_gpu_is_waited_for_once_and_its_copies_keep_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(checkpoint, "_pinned_buffer", Pinned)
    monkeypatch.setattr(Pinned, "made", 0)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    copies = checkpoint.HostCopies()
    for _ in range(2):
        found: list[Any] = [copies.copy(name, OnGpu(torch.ones(2, 3))) for name in ("a", "b")]  # type: ignore[arg-type]
        assert [one.comes.tolist() for one in found] == [[[1.0] * 3] * 2] * 2
        copies.wait()
    assert (Pinned.made, waited) == (2, [torch.device("cuda:0")] * 2)
    again: Any = copies.copy("a", OnGpu(torch.ones(4)))  # type: ignore[arg-type]
    assert (again.shape, Pinned.made) == ((4,), 3), "another layout: another tensor by this name"
    other: Any = copies.copy("a", OnGpu(torch.ones(4).half()))  # type: ignore[arg-type]
    assert (other.dtype, Pinned.made) == (torch.float16, 4)


def test_where_no_memory_can_be_pinned_checkpoints_are_made_as_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(like: Any) -> None:
        raise RuntimeError("CUDA error: out of memory\nmore")

    monkeypatch.setattr(checkpoint, "_pinned_buffer", full)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("nothing is on its way"))
    copies = checkpoint.HostCopies()
    for _ in range(2):
        assert copies.copy("a", OnGpu(torch.ones(2))).tolist() == [1.0, 1.0]  # type: ignore[arg-type]
    copies.wait()
    assert capsys.readouterr().err.count("cannot pin memory (CUDA error: out of memory)") == 1


def test_a_writer_waits_before_what_it_copied_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(checkpoint.HostCopies, "copy", lambda self, name, own: done.append("copy") or own.clone())
    monkeypatch.setattr(checkpoint.HostCopies, "wait", lambda self: done.append("wait"))
    monkeypatch.setattr(checkpoint.CheckpointWriter, "_work", lambda self, *_: self.written.set())
    objective, optimizer, parts = learned(0, torch.zeros(1, 1))
    checkpoint.CheckpointWriter(tmp_path, rank_of(0, 1), 3, background=False, token="x").save(
        1, objective, optimizer, parts, {}
    )
    assert done[-1] == "wait"
    assert (done.count("wait"), done.count("copy") > 9) == (1, True)


def test_what_was_left_half_written_is_cleaned(tmp_path: Path) -> None:
    for name in (".step-000000005.x.part", "step-000000004", "mine"):
        (tmp_path / name).mkdir()
    snapshots.clean(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "step-000000004"]


def test_a_failed_write_is_told_with_what_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = saved(tmp_path, 5)
    objective, optimizer, parts = learned(0, torch.zeros(1, 1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.boxes, "write", full)
        writer.save(9, objective, optimizer, parts, {}, scaler={})
        complaint = writer.outcome(give_up=False)
    assert complaint is not None
    assert "No space left on device" in complaint[1]
    assert "(the last complete one is of step 5)" in complaint[1]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005"]
    writer.save(9, objective, optimizer, parts, {}, scaler={})
    assert writer.outcome(give_up=False) is None, "the next one is another matter"
    assert checkpoint.steps(tmp_path) == [5, 9]


@pytest.mark.parametrize(("start", "kept"), [(0, 4), (4, 2), (6, 0), (8, 0)])
def test_rows_of_padding_are_not_written(monkeypatch: pytest.MonkeyPatch, start: int, kept: int) -> None:
    """A table of 12 rows of which 6 count, four on each rank."""
    monkeypatch.setattr(checkpoint, "box_of", lambda tensor: Box((12, 2), (start, 0), (4, 2)))
    own = torch.arange(8.0).view(4, 2)
    piece = checkpoint._piece("words", own, own, 6)
    assert (piece.box, piece.tensor.tolist()) == (Box((6, 2), (start, 0), (kept, 2)), own[:kept].tolist())
    whole = checkpoint._piece("words", own, own, None)
    assert (whole.box.shape, len(whole.tensor)) == ((12, 2), 4)


@pytest.mark.parametrize("there", [50, 52, 64])
def test_a_padded_table_is_put_back_whatever_its_padding(tmp_path: Path, there: int) -> None:
    """Written with 56 rows of which 50 count; other rows of padding stay as they are, and so do their moments."""
    objective, optimizer, parts = learned(0, torch.zeros(1, 1), 56)
    padded = {name: 50 for name, tensor in checkpoint.own_tensors(objective).items() if len(tensor) == 56}
    assert set(padded) == {"model.words.weight", "head.bias"}
    writer = checkpoint.CheckpointWriter(tmp_path, rank_of(0, 1), 3, background=False, token="x")
    writer.save(5, objective, optimizer, parts, padded, scaler={})
    assert writer.outcome(give_up=False) is None
    other, moments, into = learned(1, torch.zeros(1, 1), there)
    before = {part.name: moments.state[part.local]["exp_avg"].clone() for part in into}
    checkpoint.restore(checkpoint.path_of(tmp_path, 5), other, moments, into, rank_of(0, 1), padded)
    found, wanted = (checkpoint.own_tensors(each) for each in (other, objective))
    assert all(torch.equal(tensor[:50], wanted[name][:50]) for name, tensor in found.items())
    for ours, theirs in zip(into, parts, strict=True):
        mean = moments.state[ours.local]["exp_avg"]
        assert torch.equal(mean[:50], optimizer.state[theirs.local]["exp_avg"][:50])
        assert ours.name not in padded or torch.equal(mean[50:], before[ours.name][50:])
    if there > 50:
        with pytest.raises(DataError, match="wrong shapes"):
            checkpoint.restore(checkpoint.path_of(tmp_path, 5), other, moments, into, rank_of(0, 1), {})


@pytest.mark.parametrize(
    ("split", "copies", "numbers"),
    [
        ((), 12, list(range(12))),
        (("shard",), 4, [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3]),
        (("tensor",), 6, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        (("shard", "tensor"), 2, [0] * 6 + [1] * 6),
    ],
)
def test_who_holds_the_same_shares_the_writing(split: tuple[str, ...], copies: int, numbers: list[int]) -> None:
    """On a mesh of 2 x 3 x 2, by the dimensions along which a tensor is split."""
    place = lambda name: SimpleNamespace(is_replicate=lambda: name not in split)  # noqa: E731
    names = ("replicate", "shard", "tensor")
    tensor: Any = SimpleNamespace(
        to_local=None, device_mesh=SimpleNamespace(mesh_dim_names=names), placements=[place(name) for name in names]
    )
    ranks = [Ranks(torch.device("cpu"), rank, 12, shape=(2, 3, 2)) for rank in range(12)]
    kept = checkpoint._split_of(tensor)
    assert kept == set(split)
    assert [checkpoint._copies(kept, each) for each in ranks] == [(copies, number) for number in numbers]
    assert checkpoint._copies(checkpoint._split_of(torch.zeros(1)), ranks[7]) == (12, 7)


def test_carried_state_of_ranks_are_neighbours() -> None:
    share = checkpoint._share_of(torch.zeros(4, 3), Ranks(torch.device("cpu"), 5, 6, shape=(3, 1, 2)))
    assert (share.shape, share.start, share.size) == ((12, 3), (8, 0), (4, 3))


@pytest.mark.parametrize("background", [True, False])
def test_a_slow_disk_is_waited_for_in_the_foreground_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    objective, optimizer, parts = learned(0, torch.zeros(1, 1))
    writer = checkpoint.CheckpointWriter(tmp_path, rank_of(0, 1), 3, background=background, token="x")
    writer.wait_for_part()  # nothing is being written
    slow, real, asked = threading.Event(), checkpoint.boxes.write, []

    def write(*given: Any) -> None:
        asked.append(writer.written.is_set())
        assert slow.wait(20)
        real(*given)

    monkeypatch.setattr(checkpoint.boxes, "write", write)
    if not background:
        slow.set()
    writer.save(5, objective, optimizer, parts, {}, scaler={})
    assert writer.written.is_set() != background
    slow.set()
    writer.wait_for_part()
    assert writer.written.is_set()
    assert writer.outcome(give_up=False) is None
    assert asked == [False, False]
    assert checkpoint.steps(tmp_path) == [5]
