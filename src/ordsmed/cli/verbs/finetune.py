"""fine-tune a pretrained model on a task (questions, classes, tags), or resume a run's folder"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.next_steps import tell_next
from ordsmed.cli.output import print_lines, speaks
from ordsmed.cli.recipes import train

PLACE = ("train", 3)
RECIPE = "ordsmed.train.finetune.recipe:Finetuning"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    flags.training(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.training import finetune
    from ordsmed.base.run import Run
    from ordsmed.train.finetune.finetune import rehearse

    folder = train(args, finetune, rehearse)
    if folder and speaks() and not (args.part and Run(folder).status.get("state") != "done"):
        from ordsmed.train.finetune.summary import summary_lines

        print_lines(summary_lines(folder))
        tell_next(folder)
