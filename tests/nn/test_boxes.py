"""Tensors whose boxes are spread over files: whole again in any cut, and refused where a part is not there."""

from __future__ import annotations

import json

import pytest
import torch

from ordsmed.base.errors import DataError
from ordsmed.nn.shards import Box
from ordsmed.weights import boxes, weights

WHOLE = torch.arange(40.0).view(8, 5)


def spread(folder, *parts):
    """Files with rows of a tensor, each by where they begin and end."""
    for number, (start, end) in enumerate(parts):
        box = Box((8, 5), (start, 0), (end - start, 5))
        boxes.write(folder / f"model-{number}.safetensors", {"a": WHOLE[start:end]}, {"a": box})


def test_boxes_are_one_tensor_in_any_cut(tmp_path):
    spread(tmp_path, (0, 3), (3, 8))
    found = boxes.Boxes(tmp_path, "model")
    assert found.shape("a") == (8, 5)
    assert found.read("a").equal(WHOLE)
    assert found.read("a", Box((8, 5), (2, 1), (4, 3))).equal(WHOLE[2:6, 1:4])
    padded = found.read("a", Box((8, 5), (6, 0), (4, 5)))  # rows behind the whole are padding
    assert padded.equal(torch.cat([WHOLE[6:], torch.zeros(2, 5)]))


@pytest.mark.parametrize(("parts", "held"), [([(0, 3), (4, 8)], 35), ([(2, 8)], 30), ([(0, 7)], 35)])
def test_a_hole_in_a_tensor_is_told(tmp_path, parts, held):
    spread(tmp_path, *parts)
    found = boxes.Boxes(tmp_path, "model")
    with pytest.raises(DataError, match=f"a is incomplete: {held} numbers of 40"):
        found.read("a")
    with pytest.raises(DataError, match="is incomplete"):
        boxes.read_whole(tmp_path)
    inside = found.read("a", Box((8, 5), (parts[0][0], 0), (2, 5)))  # what is there can be read
    assert inside.equal(WHOLE[parts[0][0] : parts[0][0] + 2])


@pytest.mark.parametrize("told", ["{", "[1]", '{"a": 7}', '{"a": [[8, 5]]}', '{"a": [["x"], [0]]}'])
def test_a_header_that_tells_no_boxes_is_refused(tmp_path, told):
    weights.write(tmp_path / "model.safetensors", {"a": WHOLE}, boxes=told)
    with pytest.raises(DataError, match=r"model\.safetensors: boxes: .*wanted the full shape") as caught:
        boxes.Boxes(tmp_path, "model")
    assert "\n" not in str(caught.value)


def test_headers_that_are_cut_or_absurd_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    weights.write(path, {"a": WHOLE})
    whole = path.read_bytes()
    header = {"a": {"dtype": "F32", "shape": [10**15, 5], "data_offsets": [0, 160]}}
    told = json.dumps(header).encode()
    far, wide = ((size).to_bytes(8, "little") for size in (2**62, len(told)))
    for damaged in (whole[:4], whole[:30], far + whole[8:], wide + told + b"x" * 160):
        path.write_bytes(damaged)
        for read in (lambda: boxes.read_whole(tmp_path), lambda: weights.read(path), lambda: weights.shapes(path)):
            with pytest.raises(DataError, match=r"model\.safetensors: cannot be read"):
                read()


def test_columns_kinds_and_scalars_come_back(tmp_path):
    """Split by columns, of every kind of number; what is one number, or whole, needs no box."""
    kinds = sorted(boxes.DTYPES.values(), key=str)
    whole = {f"t{n}": (WHOLE[:2] % 2).to(kind) for n, kind in enumerate(kinds)} | {"one": torch.tensor(7.5)}
    for number, (start, end) in enumerate(((0, 2), (2, 5))):
        held = {name: t[:, start:end] if t.ndim else t for name, t in whole.items() if t.ndim or number == 0}
        told = {
            name: Box(tuple(whole[name].shape), (0, start) if t.ndim else (), tuple(t.shape))
            for name, t in held.items()
        }
        boxes.write(tmp_path / f"model-{number}.safetensors", held, told)
    found = boxes.read_whole(tmp_path)
    assert found.keys() == whole.keys()
    for name, tensor in whole.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].equal(tensor)


def test_what_lies_outside_the_whole_stands_as_it_was(tmp_path):
    """Rows of padding keep what a network has there; what is read is no part of it."""
    spread(tmp_path, (0, 3), (3, 8))
    over = torch.full((4, 5), 9.0)
    found = boxes.Boxes(tmp_path, "model").read("a", Box((10, 5), (6, 0), (4, 5)), over=over)
    assert found.equal(torch.cat([WHOLE[6:], torch.full((2, 5), 9.0)]))
    assert over.eq(9).all()


def test_states_of_a_run_are_no_weights(tmp_path):
    boxes.write(
        tmp_path / "model.safetensors",
        {"a": WHOLE, "state/h": torch.ones(5)},
        {"a": Box((8, 5), (0, 0), (8, 5)), "state/h": Box((5,), (0,), (5,))},
    )
    assert set(boxes.read_whole(tmp_path)) == {"a", "state/h"}
    assert set(boxes.read_weights(tmp_path)) == {"a"}
    with pytest.raises(DataError, match=r"has no optimizer; wanted optimizer\.safetensors, complete or in parts"):
        boxes.read_whole(tmp_path, "optimizer")
