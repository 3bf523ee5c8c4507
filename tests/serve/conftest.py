"""A server of small models of every kind, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ordsmed
from kit.served import Running, running
from kit.task_files import task_files
from kit.task_models import language_models, task_models


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of models by their served names."""
    folder = tmp_path_factory.mktemp("served")
    return {**language_models(folder / "language"), **task_models(task_files(folder / "tasks", dev=9))}


@pytest.fixture(scope="session")
def local(folders: dict[str, Path]) -> dict[str, ordsmed.OpenModel]:
    """The same, opened from Python."""
    models = {name: ordsmed.open(folder, device="cpu") for name, folder in folders.items()}
    torch.set_flush_denormal(False)  # as in `kit.served`
    return models


@pytest.fixture(scope="session")
def served(folders: dict[str, Path]) -> Iterator[Running]:
    with running(folders) as server:
        yield server
