"""A server of models in a thread of the tests, on a free port of this machine, as `ordsmed serve` makes one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ordsmed.serve.batcher import Batcher, BatchLimits
from ordsmed.serve.call import ServerLimits, Service
from ordsmed.serve.indexes import open_indexes
from ordsmed.serve.models import ServedModels


@dataclass(frozen=True)
class Running:
    """A server that listens."""

    url: str
    service: Service
    server: Any


@contextlib.contextmanager
def running(
    models: Mapping[str, Path | str],
    *,
    access: Any = None,
    batch: BatchLimits | None = None,
    checkpoints: bool = False,
    indexes: Sequence[str] = (),
    connections: Mapping[str, int] | None = None,
    **limits: Any,
) -> Iterator[Running]:
    """Serves these, by their names, until the block ends."""
    from ordsmed.serve.app import Access, App
    from ordsmed.serve.connections import ConnectionLimits
    from ordsmed.serve.graceful import GracefulServer
    from ordsmed.serve.server import listening

    words = [f"{name}={folder}" for name, folder in models.items()]
    opened, limited = ServedModels.opened(words, {"device": "cpu"}), replace(ServerLimits(), **limits)
    searched = open_indexes(indexes, opened)
    service = Service(opened, Batcher(batch), limited, indexes=searched, checkpoints=checkpoints)
    listener = listening("127.0.0.1", 0)
    most = ConnectionLimits(**(connections or {}), metrics=service.metrics)
    server = GracefulServer.of(lambda closing: App(service, access or Access(), closing).app(), most)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    service.batcher.start()
    thread.start()
    torch.set_flush_denormal(False)  # opening models set it in this thread, whose tests may draw subnormal numbers
    try:
        yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", service, server)
    finally:
        server.should_exit = True
        thread.join(60)
        service.batcher.close()
        listener.close()
        assert not thread.is_alive(), "the server does not end"
