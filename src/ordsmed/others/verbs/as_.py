"""a command line of another code, unmodified: it becomes recipes, which are printed or performed

ordsmed as megatron pretrain_bert.py --num-layers 24 ...
ordsmed as megatron --install FOLDER          # their programs by name: `bash scripts/pretrain_bert.sh` goes on
ordsmed as megatron pretrain_bert.py --flags  # where each flag goes
ordsmed as --find max-preds                   # where a flag goes, whosever it is
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
SHOW = "ORDSMED_RECIPE"  # 1: a script that calls this shows what it would do
ALONE = ("predict",)  # verbs of one process: where a launcher started several, the first does them
OTHERS_BEHIND = 2  # words; what comes behind them is read by the program's own rules


def arguments(parser: Parser) -> None:
    from ordsmed.others.translate import program

    meaning = f"whose command line it is: {', '.join(program.names())}"
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help=f"{meaning}; left out: all are told", offers=program.names
    )
    parser.add_argument(
        "program", nargs="?", metavar="PROGRAM ...", help="original, and its flags; left out: all are told"
    )
    parser.add_argument("--recipe", action="store_true", help="print the recipes and perform nothing")
    parser.add_argument("--flags", action="store_true", help="print where each flag of the program goes")
    meaning = "print where flags go whose names hold this: of the code, or of all"
    parser.add_argument("--find", metavar="WORD", nargs=argparse.REMAINDER, help=meaning)
    parser.add_argument("--install", metavar="FOLDER", help="write files of their programs' names, which call this")


def look_up(word: str) -> list[str]:
    """Return lines on the flags of other codes whose names contain the word, as `ordsmed as --find` prints them."""
    from ordsmed.others.translate import page, program

    flag = "-".join(word.split())
    return page.flags_with(flag, program.names()) if re.fullmatch(r"-*[\w-]{3,}", flag) else []


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.ranks import alone, place_of
    from ordsmed.others.translate import follow, install, page, perform, program
    from ordsmed.others.translate.dllogger import METRICS

    if args.find is not None:
        if len(args.find) != 1:
            raise UsageError("--find", f"found {len(args.find)} words behind it", "one: a flag's name, or a part of it")
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
    values = original.read(words, place_of(os.environ), os.environ)
    call = original.translated(values)
    perform.keep_beside(original, call)
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
                alone() if part.verb in ALONE else contextlib.nullcontext(),
            ):
                _perform(words)
        if values.place.rank == 0:
            with alone():  # the others are done, and may be gone
                for step in part.after:
                    step()


def _perform(words: list[str]) -> None:
    """Run a command of `ordsmed`; a verb that started processes, all of which are done, is done."""
    name = verb.named(words)
    entry = verb.find(name)
    if name == "pretrain":  # what their command line says is theirs to know: what makes no sense is told
        words = [*words, "--yes"]
    args = entry.parser().read(words[len(name.split()) :])
    args.words = words
    try:
        entry.run(args)
    except SystemExit as ended:
        if ended.code:
            raise
    except Stopped as run:  # or one that stopped where its words say
        if run.by:
            raise
