"""A small encoded folder of text made from a seed, and recipes over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from makers import make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture
def recipe(store: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe file; keywords change its text."""

    def write(
        name: str = "run", kind: str = "bert", objective: str = "mlm", steps: int = 12, extra: str = "", **top: object
    ) -> Path:
        top = {"data": str(store), "out": str(tmp_path / name), "save": 4, "validate": 6, "validation_rows": 8, **top}
        lines = [f"{key} = {value!r}".replace("'", '"') for key, value in top.items()]
        lines += ["[layout]", 'device = "cpu"', "threads = 1"]
        lines += ["[model]", f'kind = "{kind}"', "width = 32", "layers = 2", "heads = 2", "positions = 64"]
        lines += ["[objective]", f'kind = "{objective}"']
        lines += ["[[phase]]", f"steps = {steps}", "length = 32", "batch = 8", "rate = 2e-3", "warmup = 2", extra]
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write
