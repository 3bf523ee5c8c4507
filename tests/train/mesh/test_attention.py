"""The line that says which way attention takes, and why a faster one is not taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base.ranks import Ranks
from ordsmed.nn import varlen
from ordsmed.nn.models import bert, elmo, gpt2, modern
from ordsmed.train.mesh.attention import attention_lines
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.pretrain.pretrain import rehearse

CPU, GPU, HALF = torch.device("cpu"), torch.device("cuda", 0), {"precision": "bf16"}


@pytest.fixture(autouse=True)
def _recent_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "has_windows", lambda: True)


FLASH = "flash kernels for texts of any length"
BERT, PLAIN = bert.Bert(), bert.Bert(attention_dropout=0.0)


@pytest.mark.parametrize(
    ("network", "layout", "device", "lengths", "said"),
    [
        (PLAIN, {}, CPU, [128], "torch's kernel; texts one by one where that costs less than a mask"),
        (
            PLAIN,
            HALF,
            CPU,
            [128],
            "torch's kernel, gradients by plain products, which are faster in bf16; texts one by one",
        ),
        (BERT, {}, CPU, [128], "plain products, because torch's kernel is slower with dropout; texts one by one"),
        (gpt2.Gpt2(attention_dropout=0.0), HALF, CPU, [128, 1024], "which are faster in bf16 to 512 tokens; texts"),
        (gpt2.Gpt2(attention_dropout=0.0), HALF, CPU, [128], "which are faster in bf16; texts"),
        (PLAIN, {"compile": True}, CPU, [128], "torch's kernel; masks, because blocks are compiled"),
        (modern.ModernBert(), {}, CPU, [256, 1024, 8192], "local layers by neighbors at length 1,024 and 8,192"),
        (modern.ModernBert(), {}, CPU, [511, 512], "local layers by neighbors at length 512"),
        (modern.ModernBert(), {}, CPU, [256], "; local layers by masks"),
        (PLAIN, HALF, GPU, [128], FLASH + ", no mask"),
        (BERT, HALF, GPU, [128], FLASH + ", no mask; dropout in torch's operator"),
        (PLAIN, {}, GPU, [128], "several texts or padding (" + FLASH + " need bf16 or fp16 (here: fp32))"),
        (modern.ModernBert(), {}, GPU, [128], "padding, and where layers are local (" + FLASH + " need bf16"),
        (bert.Bert(width=60, heads=3), HALF, GPU, [128], "a multiple of 8 (here: 20))"),
    ],
)
def test_the_way_in_a_line(
    network: Any,
    layout: dict[str, Any],
    device: torch.device,
    lengths: list[int],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a login node, which has no GPU itself
    (line,) = attention_lines(network, Layout(**layout), Ranks(device), lengths)
    assert line.startswith("attention: ")
    assert said in line


def test_rows_of_both_kinds_and_old_gpus_have_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    (line,) = attention_lines(PLAIN, Layout(precision="fp16"), Ranks(GPU), [128], mixed=True)
    assert line.endswith(f"({FLASH} need rows of one direction)")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    (line,) = attention_lines(PLAIN, Layout(precision="fp16"), Ranks(GPU), [128])
    assert line.endswith("need compute capability 8.0 (some GPU: 7.0))")


def test_what_has_no_attention_says_nothing() -> None:
    network: Any = elmo.Elmo()
    assert attention_lines(network, Layout(), Ranks(CPU), [128]) == []


ATTENDS = "attention: torch's kernel; texts one by one"


@pytest.mark.parametrize(("recipe", "said"), [("tiny/bert", ATTENDS), ("tiny/elmo", "")])
def test_it_is_shown_before_a_run(recipe: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in rehearse(recipe)[1] if line.startswith("attention: ")]
    assert len(lines) == bool(said)
    assert all(line.startswith(said) for line in lines)
