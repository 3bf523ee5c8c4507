"""print how surprising each word of texts is to a model, in bits, or to all checkpoints of a run

A text is an argument, or a line of standard input. Any language model works: a causal one reads from left to right, a
masked one predicts each token with that token masked, an ELMo reads from both sides (`--way` changes this).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

if TYPE_CHECKING:
    from ordsmed.measure.likelihood.surprisal import Scored

PLACE = ("use", 1)
HEAD = ("step", "text", "number", "start", "end", "bits", "word")


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "texts; none: lines of standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=meaning)
    meaning = "causal, masked, word (mask a token and the rest of its word), detect, forward, backward, mean"
    parser.add_argument("--way", metavar="WAY", default="", help=meaning, offers=lambda: flags.WAYS)
    parser.add_argument("--tokens", action="store_true", help="print tokens, not words")
    parser.add_argument("--tsv", action="store_true", help=f"one tab-separated line each: {', '.join(HEAD)}")
    meaning = "use this checkpoint, not the last; several as 0,100,200; all: every checkpoint"
    parser.add_argument("--step", type=flags.steps_or_all, metavar="N|N,N|all", help=meaning)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.model import open
    from ordsmed.use.fill import lines

    options = {name: getattr(args, name) for name in ("device", "precision", "threads")}
    single = args.step if isinstance(args.step, int) else None
    model = open(args.run, step=single, **options)
    model.check("score")  # before a user types a line
    texts: Iterator[str] = filter(str.strip, args.text or lines(sys.stdin.buffer))
    if args.tsv:
        print(*HEAD, sep="\t")
    if single is not None or args.step is None:
        for number, text in enumerate(texts, 1):
            _tell(model.step, number, model.score(text, way=args.way), args)
        return
    all_texts = [*texts]
    for at_step in model.at_steps(args.step):
        for number, scored in enumerate(at_step.score(all_texts, way=args.way), 1):
            _tell(at_step.step, number, scored, args)


def _tell(step: int | None, number: int, scored: Scored, args: argparse.Namespace) -> None:
    parts = scored.tokens if args.tokens else scored.words
    if args.json:
        print(json.dumps({"step": step, **dataclasses.asdict(scored)}), flush=True)
    elif args.tsv:
        for position, part in enumerate(parts, 1):
            cells = (part.start, part.end, "" if part.bits is None else repr(part.bits), part.text.strip())
            print("" if step is None else step, number, position, *cells, sep="\t")
    else:
        of = "" if step is None else f"step {step:,}, "
        bits = sum(part.bits or 0 for part in scored.tokens)
        words = "  ".join(f"{part.text} {'-' if part.bits is None else f'{part.bits:.2f}'}" for part in parts)
        print_lines([f"{scored.text}: {of}{scored.way}, {bits:.2f} bits", f"  {words}"])
