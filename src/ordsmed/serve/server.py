"""Start a server of models, in one process or several, until a signal stops it."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.say import say
from ordsmed.serve.shared_memory import SharedMemory
from ordsmed.serve.workers import Worker, WorkerKeeper

PIP = "pip install 'ordsmed[serve]'"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServerOptions:
    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    origins: tuple[str, ...] = ()
    admin: bool = False
    workers: int = 1  # processes
    connections: int = 1_000  # at once
    by_address: int = 500  # of these, from one address
    queue: int = 4_096  # maximum of waiting items
    seconds: float = 120.0  # of a request
    items: int = 2_048  # of a request
    indexes: tuple[str, ...] = ()  # FOLDER, or NAME=FOLDER
    pool: str = ""  # pooling of sentences; empty: that of the model's training, else the mean
    checkpoints: bool = False  # whether requests may use the checkpoints of served runs
    opening: dict[str, object] = field(default_factory=dict)  # options for opening models


def check_installed() -> None:
    for module in ("starlette", "uvicorn"):
        try:
            __import__(module)
        except ImportError:
            raise RecipeError("serve", f"`{module}` is not installed", "", PIP) from None


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise RunError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol number asyncio sets TCP_NODELAY; otherwise each answer waits 40 ms for the client's ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        problem = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0).lower()}"
        raise RunError("serve", problem, "a free port", "give another --port, or 0 for any") from None
    listener.setblocking(False)
    return listener


def tunnel(port: int, environment: Mapping[str, str]) -> str:
    """Return a line on how to reach a Slurm job through the login node; empty outside a job."""
    if "SLURM_JOB_ID" not in environment:
        return ""
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    user = environment.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    login = f"{user}@{environment.get('SLURM_SUBMIT_HOST', 'LOGIN-NODE')}"
    return f"from your machine: ssh -N -L 8000:{node}:{port} {login}; then http://localhost:8000, with the token"


def serve(words: Sequence[str], options: ServerOptions) -> None:
    check_installed()
    if options.host not in LOOPBACK and not options.token:
        say(f"--host {options.host}: everyone who can reach it may send requests; --token-file requires a token")
    with contextlib.closing(listening(options.host, options.port)) as listener:
        if options.workers == 1:
            _serve(words, options, listener)
            say("stopped; all accepted requests were answered")
        else:
            _serve_in_workers(words, options, listener)


def _serve_in_workers(words: Sequence[str], options: ServerOptions, port: socket.socket) -> None:
    """Fork the worker processes and serve in each. The parent opens no model and waits for all of them."""
    keeper = WorkerKeeper(SharedMemory(options.workers))
    opening = dict(options.opening)
    opening["threads"] = opening.get("threads") or threads_of(local_world=options.workers)
    options = replace(options, opening=opening)
    if worker := keeper.run(lambda: _print_address(options, port)):
        _serve(words, options, port, worker)
        return
    keeper.check()
    say("stopped; all accepted requests were answered")


def _serve(words: Sequence[str], options: ServerOptions, listener: socket.socket, worker: Worker | None = None) -> None:
    from ordsmed.serve.app import Access, App
    from ordsmed.serve.batcher import Batcher, BatchLimits
    from ordsmed.serve.call import ServerLimits, Service
    from ordsmed.serve.connections import ConnectionLimits
    from ordsmed.serve.graceful import GracefulServer
    from ordsmed.serve.indexes import open_indexes
    from ordsmed.serve.models import ServedModels

    models = ServedModels.opened(words, options.opening)  # type: ignore[arg-type]
    batcher = Batcher(BatchLimits(queue=options.queue), worker.waiting_elsewhere if worker else None)
    limits = ServerLimits(seconds=options.seconds, items=options.items)
    indexes = open_indexes(options.indexes, models)
    service = Service(
        models, batcher, limits, indexes=indexes, pool=options.pool, checkpoints=options.checkpoints, worker=worker
    )
    access = Access(options.token, options.origins, options.host in LOOPBACK, options.admin)
    total, by_address = (max(1, limit // options.workers) for limit in (options.connections, options.by_address))
    connections = ConnectionLimits(total, by_address, metrics=service.metrics)
    server = GracefulServer.of(lambda closing: App(service, access, closing).app(), connections, worker)
    batcher.start()
    if worker is None or worker.first:
        for served in models.by_name.values():
            say(f"{served.name}: {served.model.family}; methods: {', '.join(served.can)}")
        for index in indexes.values():
            say(f"{index.name}: index of {index.index.size}, searched by {index.index.recipe.kind}")
    if worker is None:
        _print_address(options, listener)
    else:
        server.tick = partial(worker.tick, models=models, batcher=batcher)
        listener = worker.listener(listener)
    try:
        server.run([listener])
    finally:
        batcher.close()


def _print_address(options: ServerOptions, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    address = f"[{options.host}]" if ":" in options.host else options.host
    several = f" in {options.workers} processes" if options.workers > 1 else ""
    say(f"http://{address}:{port}: serving{several}, with a page for browsers; Ctrl-C or TERM stops")
    if options.host not in LOOPBACK and (line := tunnel(port, os.environ)):
        say(line)
