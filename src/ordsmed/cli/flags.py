"""Arguments that several verbs share, with their help and checks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from ordsmed.base import menu
from ordsmed.base.arguments import FILES, Parser, whole
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
