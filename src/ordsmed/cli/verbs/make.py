"""from texts of yours to a model, in the time that you give: corpus, tokenizer, network, scores, Hugging Face folder

TEXTS are files, folders or patterns (.txt .epub .html .jsonl .csv .parquet, a Wikipedia dump, packed or plain), or a
corpus; OUT is a new folder. It looks at the texts, measures the machine, plans, says the plan, writes it as recipes
into OUT and does it. The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

PLACE = ("make", 1)
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    meaning = "files, folders, patterns, or the folder of a corpus"
    parser.add_argument("texts", nargs="+", metavar="TEXTS", help=meaning, offers=lambda: [FILES])
    parser.add_argument("out", metavar="OUT", help="a new folder", offers=lambda: [FILES])
    parser.add_argument("--hours", type=float, default=1.0, metavar="H", help="in which all is done (1)")
    meaning = "fill gaps, write, embed sentences, or both of the first (what --kind is for; fill)"
    parser.add_argument("--for", dest="purpose", choices=["fill", "write", "embed", "both"], default="", help=meaning)
    meaning = "of network: modern, bert, roberta, electra, gpt2, hybrid, elmo (modern; to write gpt2, for both hybrid)"
    parser.add_argument("--kind", default="", metavar="KIND", help=meaning)
    meaning = "go on from this model instead: a run, a Hugging Face folder, a published name"
    parser.add_argument("--from", dest="start", default="", metavar="MODEL", help=meaning, offers=lambda: [FILES])
    parser.add_argument(
        "--devices", type=whole(1), default=0, metavar="N", help="processes, one a GPU (or share of the CPU)"
    )
    parser.add_argument("--site", default="", metavar="SITE", help="a machine's layout", offers=flags.sites)
    parser.add_argument("--dry-run", action="store_true", help="the plan alone; nothing is written")
    flags.anew(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.maker.make import perform, rehearse
    from ordsmed.maker.request import MakeRequest

    request = MakeRequest(
        tuple(args.texts), args.out, args.hours, args.purpose, args.kind, args.start, args.devices, args.site
    )
    if args.dry_run:
        plan = rehearse(request, anew=args.anew)
        print_or_json(plan.facts(), ["plan:", *plan.lines()], args)
        return
    model = perform(request, anew=args.anew)
    print_or_json(model.facts, model.lines, args)
