"""Made-up measurements."""

from __future__ import annotations

from typing import Any

from ordsmed.base.measurements import Measurement


def measurement(**changes: Any) -> Measurement:
    """A BERT-mini's on a CPU: 16 rows of 128 in half a second."""
    told: dict[str, Any] = {
        "bench": "bert-mini",
        "measure": "training",
        "software": "ordsmed",
        "family": "bert",
        "task": "mlm",
        "optimizer": "adamw",
        "width": 256,
        "layers": 4,
        "parameters": 11_171_642,
        "vocabulary": 30_522,
        "length": 128,
        "batch": 16,
        "micro": 16,
        "dropout": 0.1,
        "precision": "fp32",
        "compile": False,
        "recompute": False,
        "layout": "1x1x1",
        "device": "Some CPU",
        "kind": "cpu",
        "processes": 1,
        "threads": 2,
        "steps": 2,
        "rounds": 5,
        "step_seconds": 0.5,
        "step_seconds_least": 0.45,
        "step_seconds_most": 0.6,
        "sequences_per_second": 32.0,
        "tokens_per_second": 4096.0,
        "flops_per_second": 1e11,
        "peak": 2e11,
        "share_of_peak": 0.5,
        "memory": 1 << 30,
        "date": "2026-01-31T12:00:00Z",
        "version": "0.1.0",
        "torch": "2.10",
    }
    return Measurement(**told | changes)
