"""run an unmodified command line of another code: convert it to recipes, and print or run them

ordsmed as megatron pretrain_bert.py --num-layers 24 ...
ordsmed as megatron --install FOLDER          # programs of the same names: `bash scripts/pretrain_bert.sh` works
ordsmed as megatron pretrain_bert.py --flags  # what each flag becomes
ordsmed as --find max-preds                   # what a flag becomes, in any code
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re

from ordsmed.base.arguments import Parser, UsageError
from ordsmed.base.ending import GOES_ON, Stopped
from ordsmed.cli import verb
from ordsmed.cli.output import print_lines

PLACE = ("make", 9)
STOPPED = GOES_ON
SHOW = "ORDSMED_RECIPE"  # environment variable; 1: only print the recipes, also for scripts that call this command
ALONE = ("predict",)  # commands of a single process; if a launcher started several, the first one runs them
OTHERS_BEHIND = 2  # number of arguments; the program's rules parse those after them


def arguments(parser: Parser) -> None:
    from ordsmed.others.translate import program

    meaning = f"the other code: {', '.join(program.names())} (without it: list all)"
    parser.add_argument("code", nargs="?", metavar="CODE", help=meaning, offers=program.names)
    meaning = "its program and flags (without it: list all programs)"
    parser.add_argument("program", nargs="?", metavar="PROGRAM ...", help=meaning)
    parser.add_argument("--recipe", action="store_true", help="print the recipes and run nothing")
    parser.add_argument("--flags", action="store_true", help="print what each flag of the program becomes")
    meaning = "print what the flags become whose names contain WORD, in CODE or in all codes"
    parser.add_argument("--find", metavar="WORD", nargs=argparse.REMAINDER, help=meaning)
    parser.add_argument("--install", metavar="FOLDER", help="write scripts with the programs' names that call this")


def look_up(word: str) -> list[str]:
    """Return the lines that `ordsmed as --find` prints for the word."""
    from ordsmed.others.translate import page, program

    flag = "-".join(word.split())
    return page.flags_with(flag, program.names()) if re.fullmatch(r"-*[\w-]{3,}", flag) else []


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.ranks import as_single_process, process_info
    from ordsmed.others.translate import follow, install, page, perform, program
    from ordsmed.others.translate.dllogger import METRICS

    if args.find is not None:
        if len(args.find) != 1:
            problem = f"found {len(args.find)} words after it"
            raise UsageError("--find", problem, "one word: a flag's name, or a part of it")
        print_lines(page.find(args.find[0], [args.code] if args.code else program.names()))
        return
    if not args.code:
        if args.install:
            raise UsageError("--install", "found without a code", f"one of {', '.join(program.names())} before it")
        print_lines(page.codes())
        return
    if args.install:
        print_lines(install.install(args.code, args.install))
        return
    if not args.program:
        print_lines(page.programs(args.code))
        return
    original = program.find(args.code, args.program)
    if args.flags or {"--flags", "-h", "--help"} & set(args.others):
        print_lines(page.flags(original))
        return
    words = [word for word in args.others if word != "--recipe"]
    values = original.read(words, process_info(os.environ), os.environ)
    call = original.translated(values)
    perform.keep_former_results(original, call)
    if args.recipe or "--recipe" in args.others or os.environ.get(SHOW) == "1":
        if values.place.rank == 0:
            print_lines(perform.recipe_lines(original, values, call))
        return
    for part in (call, *call.then):
        words = perform.prepare(original, values, part)
        for step in part.before:
            step()
        if words and (part.verb not in ALONE or values.place.rank == 0):
            tells = part.tells if values.place.rank == 0 else None
            with (
                follow.followed(perform.run_of(original, values, part) / METRICS, tells)
                if tells
                else contextlib.nullcontext(),
                as_single_process() if part.verb in ALONE else contextlib.nullcontext(),
            ):
                _perform(words)
        if values.place.rank == 0:
            with as_single_process():  # the other processes may have ended
                for step in part.after:
                    step()


def _perform(words: list[str]) -> None:
    """Run a command of `ordsmed`. Ignore a SystemExit without an error, which commands that start processes raise."""
    name = verb.named(words)
    entry = verb.find(name)
    if name == "pretrain":  # print warnings of the plan, but do not stop
        words = [*words, "--yes"]
    args = entry.parser().read(words[len(name.split()) :])
    args.words = words
    try:
        entry.run(args)
    except SystemExit as ended:
        if ended.code:
            raise
    except Stopped as run:  # without `by`, the stop was planned
        if run.by:
            raise
