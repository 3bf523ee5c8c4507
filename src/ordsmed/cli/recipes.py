"""What the verbs do that take a recipe: make a folder of it, or train."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import in_words
from ordsmed.base.screen import command
from ordsmed.cli.output import print_lines

# of a folder's status, what is no news to a person
HIDDEN = ("verb", "state", "fingerprint", "began", "parts", "checksums", "stood_in", "folder")


def make(kind: type[Any], asked: argparse.Namespace) -> None:
    """What the recipe makes, and what was made."""
    from ordsmed.base.run import Run, obtain

    folder = obtain(kind, asked.name, asked.overrides, anew=asked.anew)
    if (folder / "report.md").exists():
        next_step = command("corpus", "stats", folder)
        print_lines([f"{folder}: done; {folder}/report.md tells what it is made of", f"next: {next_step}"])
        return
    facts = [f"  {key}: {in_words(value)}" for key, value in Run(folder).status.items() if key not in HIDDEN]
    print_lines([f"{folder}: done", *facts])


def train(asked: argparse.Namespace, training: Callable[..., Any], rehearse: Callable[..., Any]) -> Path | None:
    """The folder of a training that is done; None where it was only rehearsed."""
    if asked.threads:
        asked.overrides.append(f"layout.threads={asked.threads}")
    if asked.devices and not asked.dry_run and "RANK" not in os.environ and not getattr(asked, "part", ""):
        from ordsmed.base.launch.local import start

        sys.exit(start(without(asked.words, "--devices", "--restarts"), asked.devices, restarts=asked.restarts))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost rank is told in a line, not in the others' stacks
    part = {"part": asked.part} if getattr(asked, "part", "") else {}
    how = {"deadline": _deadline(asked), "anew": asked.anew, "layout": asked.layout, "site": asked.site, **part}
    if asked.dry_run:
        from ordsmed.tell.show import show

        recipe, lines = rehearse(asked.name, asked.overrides, devices=asked.devices, **how)
        print_lines(show.rehearsed(asked.name, asked.overrides, recipe, lines))
        return None
    return Path(training(asked.name, overrides=asked.overrides, **how).folder)


def _deadline(asked: argparse.Namespace) -> float | None:
    """In how many seconds the training is to end."""
    from ordsmed.base.say import seconds

    try:
        return seconds(asked.deadline) if asked.deadline is not None else None
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
