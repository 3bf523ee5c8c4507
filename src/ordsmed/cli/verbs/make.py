"""from texts of yours to a model, in the time that you give: corpus, tokenizer, network, scores, Hugging Face folder

TEXTS are files, folders or patterns (.txt .docx .odt .pdf .epub .html .jsonl .csv .parquet, a Wikipedia dump), or a
corpus; OUT is a new folder. It looks at the texts, measures the machine, plans, says the plan, writes it as recipes
into OUT and does it. The same command continues where it was stopped; with more `--hours` it continues a finished
model, too. A recipe says all of it: `ordsmed make tiny/search` makes a search engine, as `--for search` does of any
texts.
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
    meaning = "files, folders, patterns, or the folder of a corpus; or a recipe, and key=value that change it"
    parser.add_argument("texts", nargs="+", metavar="TEXTS|RECIPE", help=meaning, offers=_offers)
    parser.add_argument("out", nargs="?", metavar="OUT", help="a new folder", offers=lambda: [FILES])
    meaning = "in which all is done (1), or a time as 90m; more than before continues"
    parser.add_argument("--hours", type=hours, metavar="H", help=meaning)
    meaning = "fill gaps, write, embed sentences, both of the first (what --kind is for; fill), or search the texts"
    purposes = ["fill", "write", "embed", "both", "search"]
    parser.add_argument("--for", dest="purpose", choices=purposes, default="", help=meaning)
    meaning = "of network: modern, bert, roberta, electra, gpt2, hybrid, elmo (modern; to write gpt2, for both hybrid)"
    parser.add_argument("--kind", default="", metavar="KIND", help=meaning)
    meaning = "go on from this model instead: a run, a Hugging Face folder, a published name"
    parser.add_argument("--from", dest="start", default="", metavar="MODEL", help=meaning, offers=lambda: [FILES])
    parser.add_argument(
        "--devices", type=whole(1), default=0, metavar="N", help="processes, one a GPU (or share of the CPU)"
    )
    parser.add_argument("--site", default="", metavar="SITE", help="a machine's layout", offers=flags.sites)
    flags.card(parser, "of the texts and the model, for the model card")
    parser.add_argument("--dry-run", action="store_true", help="the plan alone; nothing is written")
    flags.anew(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.maker.make import perform, rehearse

    request = _request(args)
    if args.dry_run:
        plan = rehearse(request, anew=args.anew)
        print_or_json(plan.facts(), ["plan:", *plan.lines()], args)
        return
    model = perform(request, anew=args.anew, began=args.began)
    print_or_json(model.facts, model.lines, args)


def _offers() -> list[str]:
    return [*flags.recipes_for("make"), *flags.settings_of("make"), FILES]


def _request(args: argparse.Namespace) -> MakeRequest:
    """By a recipe and what changes it, or by texts and a folder."""
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
