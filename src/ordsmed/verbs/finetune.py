"""teach a pretrained network a task: questions, classes, tags; or go on with a run's folder"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.command import flags
from ordsmed.command.output import print_lines, speaks
from ordsmed.command.recipes import train

PLACE = ("train", 3)
RECIPE = "ordsmed.finetune.recipe:Finetuning"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    flags.training(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.api.training import finetune

    folder = train(asked, finetune)
    if folder and speaks():
        from ordsmed.finetune.compared import ended

        print_lines(ended(folder))
