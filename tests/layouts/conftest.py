"""What the tests of layouts share: processes that work through lists of cases, born in the nursery."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.processes import Process

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def at_work(nursery: Callable[..., Any]) -> Callable[[Path, int, list[dict[str, Any]]], list[dict[str, Any]]]:
    """What each of so many processes found in a list of cases (ranks_at_work.py)."""

    def work(folder: Path, world: int, todo: list[dict[str, Any]]) -> list[dict[str, Any]]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cases.json").write_text(json.dumps(todo))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        shared = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        script = [str(HERE / "ranks_at_work.py"), str(folder / "cases.json"), str(folder)]
        started = []
        for rank in range(world):
            out = folder / f"said-{rank}.txt"
            env = shared | {"RANK": rank, "LOCAL_RANK": rank, "SAID": out}
            pid = nursery(script=script, env={name: str(value) for name, value in env.items()})
            started.append(Process(pid, lambda pid=pid: nursery(poll=pid), out))
        try:
            ended = [process.wait() for process in started]
        finally:
            for process in started:
                process.end()
        assert ended == [0] * world, "\n".join(process.said for process in started)[-6000:]
        return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world)]

    return work
