"""Our kernels where no GPU is: Triton's interpreter runs them on a CPU, number for number."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device that kernels run on; a CPU counts as one."""
    pytest.importorskip("triton", reason="kernels of our own need Triton")
    if torch.cuda.is_available():
        return torch.device("cuda")
    from ordsmed.nn.kernels import switch

    monkeypatch.setattr(switch, "DEVICES", ("cpu",))
    return torch.device("cpu")
