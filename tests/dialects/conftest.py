"""Command lines mean the same on every machine that runs the tests."""

from __future__ import annotations

import pytest

from ordsmed.base import machine


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that what is asked for is had."""
    monkeypatch.setattr(machine, "cores", lambda: 64)
