"""What a run writes of itself: every step once, means of what is shown, and nothing of steps that are made again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base.errors import RunError
from ordsmed.base.ranks import Ranks
from ordsmed.train.meters import Meters, read

WEIGHTS = {"a": 2.0, "b": 0.5}


def of(folder: Path, rank: int = 0, **how: Any) -> Meters:
    return Meters(folder, 1000.0, how.pop("start", 0), Ranks(torch.device("cpu"), rank, rank + 1), **how)


def add(own: Meters, step: int, a: float, b: float, norm: float = 1.0, **more: Any) -> None:
    line = {"step": step, "norm": torch.tensor(norm), "seconds": 0.5, "tokens": 40, "flops": 100.0, "ahead": 300.0}
    line |= more
    own.add(line, {"a": torch.tensor(a), "b": torch.tensor(b)})


def test_every_step_is_a_line_and_what_is_shown_are_means(tmp_path: Path) -> None:
    listened: list[dict[str, Any]] = []
    own = of(tmp_path, summed=True, tell=listened.extend)
    assert own.flush(WEIGHTS) == {}
    add(own, 1, 1.0, 2.0, learning_rate=0.25)
    add(own, 2, 3.0, 4.0, learning_rate=0.5)
    assert not own.path.exists(), "nothing is asked off the device before it is shown"
    told = own.flush(WEIGHTS)
    lines = read(own.path)
    assert [(line["step"], line["a"], line["b"], line["loss"], line["norm"]) for line in lines] == [
        (1, 1.0, 2.0, 3.0, 1.0),
        (2, 3.0, 4.0, 8.0, 1.0),
    ]
    assert not {"flops", "ahead"} & set(lines[0])
    assert [line["tokens_per_second"] for line in lines] == pytest.approx([80.0, 80.0], rel=0.1)
    assert [line["left"] for line in lines] == pytest.approx([1.5, 1.5], rel=0.1), "300 at 200 a second"
    assert (told["step"], told["mean"], told["loss"]) == (2, 5.5, 8.0)
    assert told["tokens_per_second"] == pytest.approx(80.0, rel=0.1)
    assert told["share_of_peak"] == pytest.approx(0.2, rel=0.1)
    assert own.flush(WEIGHTS) is told
    assert len(read(own.path)) == 2
    own.write_validation({"step": 2, "validation": 1.5})
    assert listened == read(own.path), "who listens gets every line once"


def test_a_line_has_its_seconds_to_a_tenth_of_a_millisecond(tmp_path: Path) -> None:
    own = of(tmp_path, summed=True)
    add(own, 1, 1.0, 2.0, seconds=0.123456789)
    own.flush(WEIGHTS)
    (line,) = read(own.path)
    assert line["seconds"] == round(line["seconds"], 4) >= 0.1234


def test_losses_are_summed_over_ranks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Ranks, "total", lambda self, values: asked.append(values.shape) or values * 4)
    for summed, wanted in ((False, 12.0), (True, 3.0)):
        own = of(tmp_path / str(summed), summed=summed)
        own.path.parent.mkdir()
        add(own, 1, 1.0, 2.0)
        add(own, 2, 1.0, 2.0)
        assert own.flush(WEIGHTS)["mean"] == wanted
    assert asked == [(2, 2)], "all that waits in one message"


@pytest.mark.parametrize(("a", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_a_loss_or_a_norm_that_is_no_number_ends_the_run(tmp_path: Path, a: float, norm: float) -> None:
    own = of(tmp_path)
    add(own, 7, a, 1.0, norm)
    with pytest.raises(RunError, match=r"step 7: loss .*wanted finite numbers"):
        own.flush(WEIGHTS)


def test_fp16_steps_that_ran_over_have_no_norm(tmp_path: Path) -> None:
    own = of(tmp_path)
    add(own, 7, 1.0, 1.0, math.inf, scale=64.0)
    own.flush(WEIGHTS)
    assert [(line["norm"], line["scale"]) for line in read(own.path)] == [(None, 64.0)]
    add(own, 8, math.nan, 1.0, math.inf, scale=64.0)
    with pytest.raises(RunError, match="step 8"):
        own.flush(WEIGHTS)


def test_lines_of_steps_that_will_be_made_again_go(tmp_path: Path) -> None:
    """The first rank's alone; a last line that a kill cut off is no line."""
    lines = [{"step": 1}, {"step": 2}, {"step": 2, "validation": 1.5}, {"step": 3}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 4, "los')
    of(tmp_path, rank=1, start=1)
    assert (tmp_path / "metrics.jsonl").read_text().startswith(text)
    own = of(tmp_path, start=2)
    assert read(own.path) == lines[:3]
    assert own.validations() == [{"step": 2, "validation": 1.5}]
    assert of(tmp_path / "nowhere", rank=1).validations() == []


def test_only_the_first_rank_writes(tmp_path: Path) -> None:
    own = of(tmp_path, rank=1, summed=True)
    add(own, 1, 1.0, 2.0)
    assert own.flush(WEIGHTS, final=True)["loss"] == 3.0
    own.write_validation({"step": 1, "validation": 2.0})
    assert not own.path.exists()


def test_a_validation_is_a_line_of_its_own(tmp_path: Path) -> None:
    own = of(tmp_path)
    own.write_validation({"step": 4, "phase": 1, "validation": 2.5, "mlm_right": 0.5})
    assert read(own.path) == [{"step": 4, "phase": 1, "validation": 2.5, "mlm_right": 0.5}]


def test_what_a_full_disk_does_not_take_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = of(tmp_path)
    own.write_validation({"step": 1})
    real = Path.open

    class Half:
        """Takes three letters and no more."""

        def __init__(self, path: Path) -> None:
            self.path = path

        def __enter__(self) -> Half:
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, text: str) -> None:
            with real(self.path, "a") as file:
                file.write(text[:3])
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda self, mode="r", **_: Half(self) if mode == "a" else real(self, mode))
        own.write_validation({"step": 2})
        own.write_validation({"step": 3})
        assert own.path.read_text() == '{"step": 1}\n'
        with pytest.raises(RunError, match="No space left on device"):
            own.flush(WEIGHTS, final=True)
    assert capsys.readouterr().err.count("metrics are kept in memory until the disk has space") == 1
    own.write_validation({"step": 4})
    assert [line["step"] for line in read(own.path)] == [1, 2, 3, 4]
    assert (own.unwritten, own.full) == ("", False)
