"""What the verbs do that take a recipe: make a folder of it, or train."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import show_details
from ordsmed.cli.next_steps import tell_next
from ordsmed.cli.output import print_lines


def make(kind: type[Any], args: argparse.Namespace) -> None:
    """What the recipe makes, and what was made."""
    from ordsmed.api import making

    show_details(args.verbose)
    done = making.make(kind, args.name, args.overrides, anew=args.anew)
    print_lines(done.lines)
    tell_next(done.path)


def train(args: argparse.Namespace, training: Callable[..., Any], rehearse: Callable[..., Any]) -> Path | None:
    """The folder of a training that is done; None where it was only rehearsed."""
    from ordsmed.base.stages import BY_VERB, stage
    from ordsmed.train.request import BEGAN

    show_details(args.verbose)
    args.name = stage(args.name, BY_VERB.get(next(iter(args.words), ""), ""))
    if args.deadline and (began := getattr(args, "began", None)):
        os.environ.setdefault(BEGAN, str(began))  # imports count, and those of the processes started below
    if args.threads:
        args.overrides.append(f"layout.threads={args.threads}")
    if args.devices and not args.dry_run and "RANK" not in os.environ and not getattr(args, "part", ""):
        from ordsmed.base.launch.local import start

        sys.exit(start(without(args.words, "--devices", "--restarts"), args.devices, restarts=args.restarts))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost rank is told in a line, not in the others' stacks
    some = {key: value for key in ("part", "yes") if (value := getattr(args, key, ""))}  # flags of one of the verbs
    how = {"deadline": _deadline(args), "anew": args.anew, "layout": args.layout, "site": args.site, **some}
    if args.dry_run:
        from ordsmed.tell.show import show

        recipe, lines = rehearse(args.name, args.overrides, devices=args.devices, **how)
        print_lines(show.rehearsed(args.name, args.overrides, recipe, lines))
        return None
    return Path(training(args.name, overrides=args.overrides, **how).folder)


def _deadline(args: argparse.Namespace) -> float | None:
    """In how many seconds the training is to end."""
    from ordsmed.base.say import seconds

    try:
        return seconds(args.deadline) if args.deadline is not None else None
    except ValueError as error:
        raise RecipeError("--deadline", str(error)) from None


def without(words: Sequence[str], *flags: str) -> list[str]:
    """A command's words without these flags and their numbers."""
    kept, drop = [], False
    for word in words:
        if not drop and not any(word.startswith(f"{flag}=") for flag in flags) and word not in flags:
            kept.append(word)
        drop = word in flags
    return kept
