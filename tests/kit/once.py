"""Expensive things that several test processes need, made by the first that asks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> Any:
    """What `make` tells of a folder that it fills, read by the other processes."""
    folder = factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / f"once-{name}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "found.json").exists():
            folder.mkdir(exist_ok=True)
            (folder / "found.json").write_text(json.dumps(make(folder)))
    return json.loads((folder / "found.json").read_text())
