"""Every line of metrics is printed once, also with half-written lines and a truncated or replaced file."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from ordsmed.base.ending import Stopped
from ordsmed.cli import main
from ordsmed.others.translate.follow import NewLines, followed
from ordsmed.others.verbs import as_


def test_lines_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"

    def added(text: str) -> list[str]:
        with path.open("a") as file:
            file.write(text)
        lines.look()
        return capsys.readouterr().out.splitlines()

    path.write_text('{"step": 1}\n')  # of a start before this one
    lines = NewLines(path, lambda line: [f"step {line['step']}"] if line["step"] % 2 == 0 else [])
    assert added('{"step": 2}\n{"step": 3}\n{"st') == ["step 2"]
    assert added('ep": 4}\n') == ["step 4"]
    path.write_text('{"step": 1}\n{"step": 2}\n')  # the run went back
    assert added("") == []
    assert added('{"step": 4}\n') == ["step 4"]
    path.unlink()  # it restarts
    lines.look()
    assert added('{"step": 2}\n') == ["step 2"]


@pytest.mark.parametrize(("first", "second"), [((1, 2, 3), (10, 20, 30, 40)), ((1, 2, 3), (1, 2, 30, 40))])
def test_a_file_that_is_another_and_longer_at_the_next_look(
    first: tuple[int, ...], second: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that restarts or rewinds between two checks."""
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}}}\n' for step in first))
    lines = NewLines(path, lambda line: [str(line["step"])])
    path.write_text("".join(f'{{"step": {step}}}\n' for step in second))
    lines.look()
    assert capsys.readouterr().out.split() == [str(step) for step in second if step not in first]
    lines.look()
    with path.open("a") as file:
        file.write('{"step": 50}\n')
    lines.look()
    assert capsys.readouterr().out == "50\n"


def test_what_is_left_is_told_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"

    def fail() -> None:
        path.write_text('{"step": 7}\n')
        raise KeyError

    with pytest.raises(KeyError), followed(path, lambda line: [str(line["step"])]):
        fail()
    assert capsys.readouterr().out == "7\n"


MEGATRON = (
    " iteration        2/       3 | elapsed time per iteration (ms): 375.0 | learning rate 2.000E-04 |"
    " lm loss 1.500000E+00 |"
)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("megatron pretrain_gpt2.py --train-data a.json --save s --log-interval 2 --train-iters 3", MEGATRON),
        ("megatron pretrain_gpt2.py --train-data a.json --log-interval 2 --train-iters 3", MEGATRON),  # no --save
        ("megatron pretrain_gpt2.py --train-data a.json --save t --log-interval 2 --train-iters 3 out=s", MEGATRON),
        (
            "nvidia run_pretraining.py --model_name m --pretrain_tfrecords a --log_freq 2 out=s",
            " - Training Iteration: 2  train_perf : 24.0 total_loss : 3.0 masked_lm_loss : 6.0 disc_loss : 9.0",
        ),
    ],
)
def test_trainings_are_told_as_theirs_tell_them(
    words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def train(own: list[str]) -> None:
        """Write the files of a training that stopped after one of three steps."""
        steps = [
            {
                "step": n,
                "clm": float(n),
                "guess": 4.0 * n,
                "detect": 6.0 * n,
                "loss": 2.0 * n,
                "rate": n / 1e4,
                "rows": 4 * n * n,
                "seconds": 0.5 / (3 - n),
            }
            for n in (1, 2)
        ]
        folder = Path("s" if {"s", "out=s"} & set(words.split()) else "work/as/pretrain_gpt2/pretrain")
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in steps))
        (folder / "status.json").write_text('{"steps_asked": [3]}')

    monkeypatch.setattr("ordsmed.others.dialects.nvidia.check_length", lambda *_: None)  # of records that are not there
    monkeypatch.setattr(as_, "_perform", train)
    main(["as", *words.split()])
    texts = [text for text in capsys.readouterr().out.splitlines() if line[:20] in text]
    assert [text[-len(line) :] for text in texts] == [line]


@pytest.mark.parametrize(("by", "rank", "lines"), [(0, "0", 1), (0, "1", 0), (15, "0", 1)])
def test_what_is_left_of_a_training_that_stops(
    by: int, rank: str, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If its flags say so, a stopped run counts as finished; one of several processes prints."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ORDSMED_STOP_AT", "0")  # as it was, afterwards

    def run(asked: object) -> None:
        Path("s").mkdir()
        Path("s/metrics.jsonl").write_text('{"step": 2, "clm": 1.0, "rate": 1.0, "seconds": 1.0}\n')
        Path("s/status.json").write_text('{"steps_asked": [3], "state": "stopped"}')
        raise Stopped(2, by)

    monkeypatch.setattr("ordsmed.cli.verbs.pretrain.run", run)
    words = "as megatron pretrain_gpt2.py --train-data a.json --save s --log-interval 2 --exit-interval 2"
    with pytest.raises(SystemExit) if by else contextlib.nullcontext() as ended:
        main(words.split())
    assert (ended.value.code if ended else 0) == (143 if by else 0)
    assert os.environ["ORDSMED_STOP_AT"] == "2"
    assert capsys.readouterr().out.count(" iteration        2/") == lines
    assert Path("s/log-megatron.txt").exists() == (by == 0 and rank == "0")
