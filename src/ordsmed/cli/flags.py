"""Arguments that several verbs share, with their help and checks."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any

from ordsmed.base import menu
from ordsmed.base.arguments import FILES, Parser, number, whole
from ordsmed.base.errors import RecipeError
from ordsmed.cli import verb

WAYS = ("causal", "masked", "word", "detect", "forward", "backward", "mean")  # values of --way, for completion
EITHER = "a recipe (a built-in one by name, or a TOML file)"


def recipe(parser: Parser, *, run: bool = False) -> None:
    """Add arguments for a recipe and its overrides. With `run`, a run's folder is accepted as well."""
    either, metavar = (f"{EITHER}, or a run's folder", "RECIPE|RUN") if run else (EITHER, "RECIPE")
    parser.add_argument("name", metavar=metavar, help=either, offers=lambda: [*recipes_for(parser.verb), FILES])
    overrides = "change a setting; phase[2].learning_rate=... changes one phase"
    parser.add_argument(
        "overrides", nargs="*", metavar="key.path=value", help=overrides, offers=lambda: settings_of(parser.verb)
    )


def settings_of(name: str) -> list[str]:
    """Return completions for the settings of a verb's recipe, with descriptions."""
    location = verb.find(name).recipe
    assert location
    tables = [("", *location), *((f"{table.key}.", table.module, table.name) for table in menu.nested(*location))]
    return [f"{key}{line.name}=\t{line.doc}" for key, *of in tables for line in menu.lines(*of)]


def recipes_for(name: str) -> list[str]:
    """Return the built-in recipes of a verb, and general ones that it accepts, such as tiny/bert."""
    import tomllib

    location = verb.find(name).recipe
    assert location
    settings = menu.lines(*location)
    keys, needed = {line.name for line in settings}, {line.name for line in settings if line.default == "required"}
    named = (menu.PACKAGE_ROOT / "recipes" / name).is_dir()
    names, verbs = recipes_of(name) if named else [], verb.of_recipes()
    for recipe in recipes_of():
        if recipe.split("/")[0] not in verbs:
            table = tomllib.loads((menu.PACKAGE_ROOT / "recipes" / f"{recipe}.toml").read_text(encoding="utf-8"))
            names += [recipe] if needed <= set(table) <= keys else []
    return names


def recipes_of(name: str = "") -> list[str]:
    from ordsmed.base.run import recipe_names

    return recipe_names(name)


def recipes_and_files() -> list[str]:
    return [*recipes_of(), FILES]


def anew(parser: Parser, meaning: str = "make it again; the present folder or file is renamed NAME.old-1") -> None:
    parser.add_argument("--anew", action="store_true", help=meaning)


def card(parser: Parser, licensed: str) -> None:
    parser.add_argument("--title", default="", metavar="TEXT", help="for the model card")
    parser.add_argument("--language", default="", metavar="CODE", help="for the model card: en, nb, ...")
    parser.add_argument("--licence", help=f"{licensed}: CC-BY-4.0, MIT, ...")


def yes(parser: Parser) -> None:
    meaning = "train even if the plan has too many passes over the text, or too little time"
    parser.add_argument("--yes", action="store_true", help=meaning)


def verbose(parser: Parser) -> None:
    meaning = "print everything about the start that log.txt has"
    parser.add_argument("-v", "--verbose", action="store_true", help=meaning)


def cache(parser: Parser) -> None:
    """Add --cache-dir, which the command line puts into the variable `hub.CACHE`."""
    meaning = "cache for published models; like ORDSMED_CACHE"
    parser.add_argument("--cache-dir", type=cache_folder, metavar="DIR", help=meaning)


def cache_folder(text: str) -> str:
    path = os.path.abspath(os.path.expanduser(text))
    if not text or (os.path.exists(path) and not os.path.isdir(path)):
        raise argparse.ArgumentTypeError(f"found {text or 'nothing'}; wanted a folder")
    return path


def json_line(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def threads(parser: Parser) -> None:
    meaning = "CPU threads (default: OMP_NUM_THREADS, or the idle cores)"
    parser.add_argument("--threads", type=whole(1, 1024), metavar="N", help=meaning)


def device(parser: Parser) -> None:
    meaning = "auto: a GPU if there is one"
    parser.add_argument("--device", default="auto", metavar="auto|cpu|cuda", help=meaning)


def devices(parser: Parser) -> None:
    meaning = "processes, one per GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    meaning = "a machine's layout: a built-in site or a TOML file"
    parser.add_argument("--site", default="", help=meaning, offers=sites)


def sites() -> list[str]:
    return [*sorted(path.stem for path in (menu.PACKAGE_ROOT / "sites").glob("*.toml")), FILES]


def training(parser: Parser) -> None:
    recipe(parser, run=True)
    anew(parser)
    cache(parser)
    verbose(parser)
    parser.add_argument("--dry-run", action="store_true", help="check everything up to the first step, make nothing")
    meaning = "train for fewer steps if needed to end in this time"
    parser.add_argument("--deadline", metavar="3h", help=meaning)
    meaning = "with --devices: number of restarts after failures"
    parser.add_argument("--restarts", type=whole(0), metavar="N", default=0, help=meaning)
    meaning = "replicate x shard x tensor; auto: measure"
    parser.add_argument("--layout", default="", metavar="auto|RxSxT", help=meaning)
    devices(parser)
    threads(parser)
    meaning = "run one of N parts of the trials, as in a job array"
    parser.add_argument("--part", default="", metavar="I/N", help=meaning)


def any_model(parser: Parser) -> None:
    meaning = "the folder of a run, of `make` or an import, a Hugging Face folder, or a served model's address"
    parser.add_argument("run", metavar="RUN", help=meaning)
    cache(parser)


def any_step(parser: Parser) -> None:
    meaning = "use this checkpoint, not the last; 0: before the first step"
    parser.add_argument("--step", type=whole(0), metavar="N", help=meaning)


def step_or_all(text: str) -> int | str:
    """Parse the number of a step, or `all`."""
    return text if text == "all" else whole(0)(text)


def steps_or_all(text: str) -> int | list[int] | str:
    """Parse the number of a step, several numbers, or `all`."""
    return [whole(0)(part) for part in text.split(",")] if "," in text else step_or_all(text)


def finetuned(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the folder of a fine-tuning, or a Hugging Face folder")
    cache(parser)


def opening(parser: Parser) -> None:
    parser.add_argument("--step", type=whole(0), metavar="N", help="use this checkpoint, not the best")
    device(parser)
    precision(parser)
    threads(parser)


def precision(parser: Parser) -> None:
    meaning = "of matrix products (default fp32); int8: on a CPU"
    parser.add_argument("--precision", default="fp32", metavar="fp32|bf16|fp16|int8", help=meaning)


def serving(parser: Parser) -> None:
    """Add the options of a server, here or in a job, except its address and token."""
    meaning = "accept requests from pages of this origin, such as https://lab.example; may be given several times"
    parser.add_argument("--allow-origin", action="append", metavar="ORIGIN", default=[], help=meaning)
    parser.add_argument("--admin", action="store_true", help="let POST /admin/reload open the models again")
    meaning = "let POST /score request checkpoints of a run (`steps`), which are opened one at a time"
    parser.add_argument("--checkpoints", action="store_true", help=meaning)
    meaning = "processes, each with its own model and a share of the threads (default 1); --threads sets those of each"
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
    any_step(parser)
    device(parser)
    precision(parser)
    threads(parser)


def check_serving(args: argparse.Namespace) -> None:
    """Raise an error if a server cannot be started with these options, here or in a job."""
    from ordsmed.base.folder import FolderKind, kind_of_folder
    from ordsmed.base.machine.devices import DEVICES
    from ordsmed.base.stages import INDEX, stage

    token_of(args.token_file)
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


def token_of(path: str | None) -> str:
    """Return the token in the first line of a file. On the command line, other users could see it."""
    if not path:
        return ""
    from pathlib import Path

    from ordsmed.base.files import split_lines

    token = (split_lines(Path(path)) or [""])[0].strip()
    if len(token) < 8 or not token.isascii() or not token.isprintable():
        raise RecipeError(path, "has no token", "8 or more ASCII characters in its first line")
    return token


def _seconds(text: str) -> float:
    if (seconds := number(text)) <= 0:
        raise argparse.ArgumentTypeError(f"found {text}; wanted more than 0")
    return seconds


def serving_words(args: argparse.Namespace) -> list[str]:
    parser, words = Parser("serve", owners=lambda _: "", add_help=False), list[str]()
    serving(parser)
    for action in parser._actions:
        value, flag = getattr(args, action.dest), action.option_strings[0]
        if value != action.default:
            values = value if isinstance(value, list) else [value]
            words += [word for item in values for word in ([flag] if item is True else [flag, str(item)])]
    return words


def opened_as(args: argparse.Namespace) -> dict[str, Any]:
    return {"step": args.step, "device": args.device, "threads": args.threads, "precision": args.precision}


def typed(parser: Parser, metavar: str, meaning: str) -> None:
    parser.add_argument("text", nargs="*", metavar=metavar, help=f"{meaning}; - or none: standard input")
    parser.add_argument("--file", default="", help="a file with one text per line, plain or compressed; or -")


def task_files(parser: Parser, nargs: str, metavar: str) -> None:
    parser.add_argument("files", nargs=nargs, metavar=metavar, help="files of the task, and settings task.key=value")


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words into files and settings of the task."""
    overrides = [word for word in words if word.startswith("task.") and "=" in word]
    return [word for word in words if word not in overrides], overrides
