"""Server: models opened, the batcher started, the port listened to; at TERM what was accepted is finished first.

ordsmed serve RUN  ->  ServedModels, Batcher, app  ->  uvicorn  ->  TERM: no new ones, the others answered, status 0
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.say import say

PIP = "pip install 'ordsmed[serve]'"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServerOptions:
    """Where it listens, and to whom."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    origins: tuple[str, ...] = ()
    admin: bool = False
    connections: int = 1_000  # at once
    queue: int = 4_096  # items that may wait
    seconds: float = 120.0  # of a request
    items: int = 2_048  # of a request
    indexes: tuple[str, ...] = ()  # FOLDER, or NAME=FOLDER
    pool: str = ""  # of sentences; empty: as the model learned it, else the mean
    checkpoints: bool = False  # may requests ask for those of served runs?
    opening: dict[str, object] = field(default_factory=dict)  # how models are opened


def check_installed() -> None:
    """Refuse where the extra is not installed, before a model is opened."""
    for module in ("starlette", "uvicorn"):
        try:
            __import__(module)
        except ImportError:
            raise RecipeError("serve", f"`{module}` is not installed", "", PIP) from None


def listening(host: str, port: int) -> socket.socket:
    """The socket; refused where the port is taken, before a model is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # by its number asyncio knows it for TCP and sends at once; else each answer waits 40 ms for the client's word
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        problem = f"cannot listen to {host}:{port}: {os.strerror(error.errno or 0).lower()}"
        raise RunError("serve", problem, "a port that is free", "name another with --port, or 0 for any") from None
    listener.setblocking(False)
    return listener


def tunnel(port: int, environment: Mapping[str, str]) -> str:
    """How a job of Slurm is reached from a machine that knows its login node; empty: it is no job."""
    if "SLURM_JOB_ID" not in environment:
        return ""
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    user = environment.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    login = f"{user}@{environment.get('SLURM_SUBMIT_HOST', 'LOGIN-NODE')}"
    return f"from your own machine: ssh -N -L 8000:{node}:{port} {login}; then http://localhost:8000, with the token"


def serve(words: Sequence[str], options: ServerOptions) -> None:
    """Until TERM or Ctrl-C."""
    check_installed()
    if options.host not in LOOPBACK and not options.token:
        say(f"--host {options.host}: everybody who reaches it may ask; --token-file lets only those who know the token")
    with contextlib.closing(listening(options.host, options.port)) as listener:
        _serve(words, options, listener)


def _serve(words: Sequence[str], options: ServerOptions, listener: socket.socket) -> None:
    from ordsmed.serve.app import Access, Door
    from ordsmed.serve.batcher import Batcher, BatchLimits
    from ordsmed.serve.call import ServerLimits, Service
    from ordsmed.serve.graceful import GracefulServer
    from ordsmed.serve.indexes import open_indexes
    from ordsmed.serve.models import ServedModels

    models = ServedModels.opened(words, options.opening)  # type: ignore[arg-type]
    batcher = Batcher(BatchLimits(queue=options.queue))
    limits = ServerLimits(seconds=options.seconds, items=options.items)
    indexes = open_indexes(options.indexes, models)
    service = Service(models, batcher, limits, indexes=indexes, pool=options.pool, checkpoints=options.checkpoints)
    access = Access(options.token, options.origins, options.host in LOOPBACK, options.admin)
    server = GracefulServer.of(lambda closing: Door(service, access, closing).app(), options.connections)
    batcher.start()
    for served in models.by_name.values():
        say(f"{served.name}: {served.model.family}, can {', '.join(served.can)}")
    for index in indexes.values():
        say(f"{index.name}: index of {index.index.size}, searched by {index.index.recipe.kind}")
    port = listener.getsockname()[1]
    address = f"[{options.host}]" if ":" in options.host else options.host
    say(f"http://{address}:{port}: serving; a browser shows a page; Ctrl-C or TERM ends")
    if options.host not in LOOPBACK and (line := tunnel(port, os.environ)):
        say(line)
    try:
        server.run([listener])
    finally:
        batcher.close()
    say("stopped; every accepted request was answered")
