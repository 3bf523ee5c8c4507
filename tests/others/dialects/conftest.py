"""Command lines mean the same on every machine that runs the tests."""

from __future__ import annotations

import pytest

from ordsmed.base.machine import host


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report more GPUs than any command line requests."""
    monkeypatch.setattr(host, "cores", lambda: 64)
