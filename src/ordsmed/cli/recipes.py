"""Run verbs with a recipe: make the folder of a recipe, or train."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import show_details
from ordsmed.cli.next_steps import tell_next
from ordsmed.cli.output import print_lines


def make(kind: type[Any], args: argparse.Namespace) -> None:
    """Make the folder of a recipe, and print what was made and the next steps."""
    from ordsmed.api import making

    show_details(args.verbose)
    done = making.make(kind, args.name, args.overrides, anew=args.anew)
    print_lines(done.lines)
    tell_next(done.path)


def train(args: argparse.Namespace, training: Callable[..., Any], rehearse: Callable[..., Any]) -> Path | None:
    from ordsmed.base.stages import BY_VERB, stage
    from ordsmed.train.request import BEGAN

    show_details(args.verbose)
    args.name = stage(args.name, BY_VERB.get(next(iter(args.words), ""), ""))
    if args.deadline and (began := getattr(args, "began", None)):
        os.environ.setdefault(BEGAN, str(began))  # the deadline includes imports, also those of processes started below
    if args.threads:
        args.overrides.append(f"layout.threads={args.threads}")
    if args.devices and not args.dry_run and "RANK" not in os.environ and not getattr(args, "part", ""):
        run_in_processes(args, restarts=args.restarts)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # no stack traces of the others if a rank is lost
    special = {key: value for key in ("part", "yes") if (value := getattr(args, key, ""))}  # not flags of both verbs
    options = {"deadline": _deadline(args), "anew": args.anew, "layout": args.layout, "site": args.site, **special}
    if args.dry_run:
        from ordsmed.tell.show import show

        recipe, lines = rehearse(args.name, args.overrides, devices=args.devices, **options)
        print_lines(show.rehearsed(args.name, args.overrides, recipe, lines))
        return None
    return Path(training(args.name, overrides=args.overrides, **options).folder)


def _deadline(args: argparse.Namespace) -> float | None:
    from ordsmed.base.say import seconds

    try:
        return seconds(args.deadline) if args.deadline is not None else None
    except ValueError as error:
        raise RecipeError("--deadline", str(error)) from None


def run_in_processes(args: argparse.Namespace, restarts: int = 0) -> NoReturn:
    """Run this command as `--devices` processes, and exit with their status."""
    from ordsmed.base.launch.local import start

    sys.exit(start(without(args.words, "--devices", "--restarts"), args.devices, restarts=restarts))


def without(words: Sequence[str], *flags: str) -> list[str]:
    """Return the words of a command without these flags and their values."""
    kept, drop = [], False
    for word in words:
        if not drop and not any(word.startswith(f"{flag}=") for flag in flags) and word not in flags:
            kept.append(word)
        drop = word in flags
    return kept
