"""serve models over HTTP, for clients of OpenAI and Hugging Face, curl, and ordsmed.open on another machine

A browser gets a page to try them. The name of a model is the last part of its folder, or NAME of NAME=RUN. `GET /`
lists the models, their methods and all paths; `GET /openapi.json` describes the requests. Only clients on this machine
can connect, unless --host allows others.
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser, whole
from ordsmed.cli import flags
from ordsmed.cli.server_flags import ServerFlags

PLACE = ("use", 3)


def arguments(parser: Parser) -> None:
    meaning = "runs, imports, Hugging Face folders or published names; NAME=RUN names one"
    parser.add_argument("models", nargs="+", metavar="RUN", help=meaning)
    flags.cache(parser)
    meaning = "port (default 8000; 0: a free one)"
    parser.add_argument("--port", type=whole(0, 65535), metavar="N", default=8000, help=meaning)
    meaning = "address of this machine to listen on (default 127.0.0.1: this machine only)"
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help=meaning)
    meaning = "a file whose first line is the token that clients must send"
    parser.add_argument("--token-file", metavar="FILE", help=meaning)
    ServerFlags.add(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.serve.server import ServerOptions, serve

    flags_of_server = ServerFlags(args)
    flags_of_server.check()
    options = ServerOptions(
        host=args.host,
        port=args.port,
        token=flags_of_server.token,
        origins=tuple(args.allow_origin),
        admin=args.admin,
        workers=args.workers,
        connections=args.connections,
        by_address=args.connections_per_address,
        queue=args.queue,
        seconds=args.timeout,
        items=args.items,
        indexes=tuple(args.index or filter(_has_index, args.models)),
        pool=args.pool,
        checkpoints=args.checkpoints,
        opening=flags.opened_as(args),
    )
    serve(args.models, options)


def _has_index(word: str) -> bool:
    """Return whether a word (RUN or NAME=RUN) is a folder of `make` with a search index."""
    from ordsmed.base.folder import FolderKind, kind_of_folder
    from ordsmed.base.stages import INDEX, stage

    return kind_of_folder(stage(word.partition("=")[2] or word, INDEX)) is FolderKind.INDEX
