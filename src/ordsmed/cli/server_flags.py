"""The options of a server, which `serve` and the job of a server take."""

from __future__ import annotations

import argparse
import re

from ordsmed.base.arguments import Parser, number, whole
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags


class ServerFlags:
    """Adds the flags of a server to a verb, checks their values, and writes them as words of a command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    @staticmethod
    def add(parser: Parser) -> None:
        """Add the options of a server, here or in a job, except its address and token."""
        meaning = "accept requests from pages of this origin, such as https://lab.example; may be given several times"
        parser.add_argument("--allow-origin", action="append", metavar="ORIGIN", default=[], help=meaning)
        parser.add_argument("--admin", action="store_true", help="let POST /admin/reload open the models again")
        meaning = "let POST /score request checkpoints of a run (`steps`), which are opened one at a time"
        parser.add_argument("--checkpoints", action="store_true", help=meaning)
        meaning = "processes with their own model and a share of the threads (default 1); --threads sets those of each"
        parser.add_argument("--workers", type=whole(1, 256), metavar="N", default=1, help=meaning)
        meaning = "most texts that wait; further requests get status 429 (default 4096)"
        parser.add_argument("--queue", type=whole(1), metavar="N", default=4_096, help=meaning)
        meaning = "most texts per request (default 2048)"
        parser.add_argument("--items", type=whole(1), metavar="N", default=2_048, help=meaning)
        meaning = "limit for a request, including its wait (default 120)"
        parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", default=120.0, help=meaning)
        meaning = "most open connections, of all processes (default 1000); when more come, silent ones are closed"
        parser.add_argument("--connections", type=whole(1), metavar="N", default=1_000, help=meaning)
        meaning = "most of them from one address (default 500); behind a proxy set it to --connections"
        parser.add_argument("--connections-per-address", type=whole(1), metavar="N", default=500, help=meaning)
        meaning = "pooling of text vectors, as in `embed` (default: as the model learned, else the mean of tokens)"
        parser.add_argument("--pool", choices=("mean", "first", "last", "words", "tokens"), default="", help=meaning)
        meaning = "an index for /search, also as NAME=FOLDER; the model that made it must be served too"
        parser.add_argument("--index", action="append", metavar="FOLDER", default=[], help=meaning)
        flags.any_step(parser)
        flags.device(parser)
        flags.precision(parser)
        flags.threads(parser)

    def check(self) -> None:
        """Raise an error if a server cannot be started with these options, here or in a job."""
        from ordsmed.base.folder import FolderKind, kind_of_folder
        from ordsmed.base.machine.devices import DEVICES
        from ordsmed.base.stages import INDEX, stage

        _ = self.token
        args = self.args
        if not re.fullmatch(DEVICES, args.device):
            raise RecipeError("--device", f"found {args.device}", "auto, cpu or cuda")
        if args.precision != "fp32":
            from ordsmed.weights.trained_model import known

            known(args.precision)
        for word in args.index:
            name, equals, folder = word.partition("=")
            if (kind := kind_of_folder(stage(folder if equals else name, INDEX))) is not FolderKind.INDEX:
                problem = kind.value if kind is FolderKind.ABSENT else f"is not an index, but {kind.value}"
                raise RecipeError(f"--index {word}", problem, "a folder of `ordsmed index`")

    @property
    def token(self) -> str:
        """Return the token in a file's first line. A token on the command line would be visible to all users."""
        path = self.args.token_file
        if not path:
            return ""
        from pathlib import Path

        from ordsmed.base.files import split_lines

        token = (split_lines(Path(path)) or [""])[0].strip()
        if len(token) < 8 or not token.isascii() or not token.isprintable():
            raise RecipeError(path, "has no token", "8 or more ASCII characters in its first line")
        return token

    def words(self) -> list[str]:
        parser, words = Parser("serve", owners=lambda _: "", add_help=False), list[str]()
        ServerFlags.add(parser)
        for action in parser._actions:
            value, flag = getattr(self.args, action.dest), action.option_strings[0]
            if value != action.default:
                values = value if isinstance(value, list) else [value]
                words += [word for item in values for word in ([flag] if item is True else [flag, str(item)])]
        return words


def _seconds(text: str) -> float:
    if (seconds := number(text)) <= 0:
        raise argparse.ArgumentTypeError(f"found {text}; wanted more than 0")
    return seconds
