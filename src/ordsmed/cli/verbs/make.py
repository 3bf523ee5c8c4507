"""from texts of yours to a model, in the time that you give: corpus, tokenizer, network, scores, Hugging Face folder

TEXTS are files, folders or patterns (.txt .epub .html .jsonl .csv .parquet, a Wikipedia dump, packed or plain), or a
corpus; OUT is a new folder. It looks at the texts, measures the machine, plans, says the plan, writes it as recipes
into OUT and does it. The same command continues where it was stopped; with more `--hours` it continues a finished
model, too. A recipe says all of it: `ordsmed make tiny/search` makes a search engine, as `--for search` does of any
texts.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ordsmed.base.arguments import FILES, Parser, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.base.errors import RecipeError
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
    parser.add_argument("--hours", type=float, metavar="H", help="in which all is done (1); more than before continues")
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
    from ordsmed.maker.request import MakeRequest, is_recipe, of_recipe

    first, *overrides = words = [*args.texts, *([args.out] if args.out else [])]
    flags_of = {key: getattr(args, key) for key in ("hours", "purpose", "kind", "start", "devices", "site")}
    if is_recipe(first):
        return of_recipe(first, overrides, **{key: value or None for key, value in flags_of.items()})
    if not overrides:
        raise RecipeError("make", f"found {first} alone", "TEXTS OUT, or a recipe of `make`", "name a new folder, too")
    flags_of["hours"] = flags_of["hours"] or MakeRequest.hours
    return MakeRequest(tuple(words[:-1]), words[-1], **flags_of)
