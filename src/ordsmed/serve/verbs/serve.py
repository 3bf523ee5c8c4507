"""models asked over HTTP, by OpenAI's and Hugging Face's clients, by curl, and by ordsmed.open from another machine

A browser is shown a page to try them. Each model has a name: the last part of its folder, or NAME=RUN. `GET /` lists
the models, what each can do and every path, `GET /openapi.json` describes the requests. Only this machine is listened
to, unless --host says otherwise.
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser, whole
from ordsmed.cli import flags

PLACE = ("use", 3)


def arguments(parser: Parser) -> None:
    meaning = "runs, imports, Hugging Face folders or published names; NAME=RUN names one"
    parser.add_argument("models", nargs="+", metavar="RUN", help=meaning)
    flags.cache(parser)
    meaning = "default 8000; 0: one that is free"
    parser.add_argument("--port", type=whole(0, 65535), metavar="N", default=8000, help=meaning)
    meaning = "an address of this machine to listen to (default 127.0.0.1: this machine alone)"
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help=meaning)
    meaning = "a file whose first line is the token that clients have to send"
    parser.add_argument("--token-file", metavar="FILE", help=meaning)
    flags.serving(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.serve.server import ServerOptions, serve

    flags.check_serving(args)
    options = ServerOptions(
        host=args.host,
        port=args.port,
        token=flags.token_of(args.token_file),
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
    """Return whether a word (RUN or NAME=RUN) is a folder of `make` with a search index, which is served too."""
    from ordsmed.base.folder import FolderKind, kind_of_folder
    from ordsmed.base.stages import INDEX, stage

    return kind_of_folder(stage(word.partition("=")[2] or word, INDEX)) is FolderKind.INDEX
