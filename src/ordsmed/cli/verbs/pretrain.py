"""pretrain a model from a recipe, or resume a run's folder"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.next_steps import tell_next
from ordsmed.cli.output import print_lines, speaks
from ordsmed.cli.recipes import train

PLACE = ("train", 2)
RECIPE = "ordsmed.train.pretrain.recipe:Pretraining"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    flags.training(parser)
    flags.yes(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.training import pretrain
    from ordsmed.base.folder import FolderKind, kind_of_folder
    from ordsmed.base.run import Run
    from ordsmed.train.pretrain.pretrain import rehearse
    from ordsmed.train.trial_results import summary

    folder = train(args, pretrain, rehearse)
    if folder and speaks() and kind_of_folder(folder) is FolderKind.TRIALS:
        if Run(folder).status.get("state") == "done":
            print_lines(summary(folder))
            tell_next(folder)
    elif folder and speaks():
        print_lines([f"{folder}: done; {folder}/loss.svg is its learning curve"])
        tell_next(folder)
