"""What the tests of layouts share: processes that work through lists of cases, born in the nursery."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.processes import work_side_by_side

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def at_work(nursery: Callable[..., Any]) -> Callable[[Path, int, list[dict[str, Any]]], list[dict[str, Any]]]:
    """What each of so many processes found in a list of cases (ranks_at_work.py)."""

    def work(folder: Path, world: int, todo: list[dict[str, Any]]) -> list[dict[str, Any]]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cases.json").write_text(json.dumps(todo))
        script = [str(HERE / "ranks_at_work.py"), str(folder / "cases.json"), str(folder)]
        work_side_by_side(nursery, folder, world, script)
        return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world)]

    return work
