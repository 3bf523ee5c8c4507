"""make a model from your texts in a given time: corpus, tokenizer, network, scores, Hugging Face folder

TEXTS are files, folders or patterns (.txt .docx .odt .pdf .epub .html .jsonl .csv .parquet, a Wikipedia dump), or a
corpus; OUT is a new folder. The command inspects the texts, measures the machine, plans, prints the plan, writes it as
recipes to OUT and carries it out. The same command resumes after it was stopped; with more `--hours` it continues to
train a finished model. A recipe can replace all arguments: `ordsmed make tiny/search` makes a search engine, as `--for
search` does of any texts.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from ordsmed.base.arguments import FILES, Parser, hours, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

if TYPE_CHECKING:
    from ordsmed.maker.request import MakeRequest

PLACE = ("make", 1)
RECIPE = "ordsmed.maker.request:MakeRequest"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    meaning = "files, folders, patterns, or the folder of a corpus; or a recipe, and key=value to change it"
    parser.add_argument("texts", nargs="+", metavar="TEXTS|RECIPE", help=meaning, offers=_offers)
    parser.add_argument("out", nargs="?", metavar="OUT", help="a new folder", offers=lambda: [FILES])
    meaning = "time for everything (1), also such as 90m; more than before continues the training"
    parser.add_argument("--hours", type=hours, metavar="H", help=meaning)
    meaning = (
        "purpose: fill masks, write, embed sentences, both (fill and write), or search the texts (default by --kind)"
    )
    purposes = ["fill", "write", "embed", "both", "search"]
    parser.add_argument("--for", dest="purpose", choices=purposes, default="", help=meaning)
    meaning = (
        "network: modern, bert, roberta, electra, gpt2, hybrid, elmo (default modern; to write gpt2, for both hybrid)"
    )
    parser.add_argument("--kind", default="", metavar="KIND", help=meaning)
    meaning = "continue from this model: a run, a Hugging Face folder, a published name"
    parser.add_argument("--from", dest="start", default="", metavar="MODEL", help=meaning, offers=lambda: [FILES])
    meaning = "processes, one per GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), default=0, metavar="N", help=meaning)
    parser.add_argument("--site", default="", metavar="SITE", help="a machine's layout", offers=flags.sites)
    flags.card(parser, "license of the texts and the model, for the model card")
    parser.add_argument("--dry-run", action="store_true", help="print the plan only; nothing is written")
    flags.anew(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.maker.make import MakeJob, perform
    from ordsmed.maker.runner import rehearse

    request = _request(args)
    if args.dry_run:
        plan = rehearse(MakeJob(request), anew=args.anew)
        print_or_json(plan.facts(), ["plan:", *plan.lines()], args)
        return
    model = perform(request, anew=args.anew, began=args.began)
    print_or_json(model.facts, model.lines, args)


def _offers() -> list[str]:
    return [*flags.recipes_for("make"), *flags.settings_of("make"), FILES]


def _request(args: argparse.Namespace) -> MakeRequest:
    from ordsmed.maker.request import is_recipe, of_recipe, of_words

    words = [*args.texts, *([args.out] if args.out else [])]
    keys = ("hours", "purpose", "kind", "start", "devices", "site", "title", "language", "licence")
    changes = {key: value for key in keys if (value := getattr(args, key))}
    if is_recipe(words[0]):
        return of_recipe(words[0], words[1:], **changes)
    named = [word for word in words if re.match(r"[a-z_]+=", word) and not os.path.exists(word)]
    paths = [word for word in words if word not in named]
    if len(paths) > 1:
        changes |= {"texts": paths[:-1], "out": paths[-1]}
    elif paths:
        changes["out" if any(word.startswith("texts=") for word in named) else "texts"] = paths[0]
    return of_words(named, **changes)
