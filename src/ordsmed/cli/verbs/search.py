"""find the passages of an index that answer a question: by vectors, by words, or by both

Passages are ranked by their score. With --kind both it is the weighted mean of both scores (in an index without a
weight the sum of 1 / (60 + rank) over both rankings), with dense a cosine, with words BM25, with a reranker its score.
Without --kind, --weight and --rerank an index is searched in the way that was chosen when it was made.
"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, number, whole
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import say
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("use", 4)


def arguments(parser: Parser) -> None:
    parser.add_argument("index", metavar="INDEX", help="a folder of `ordsmed index`")
    meaning = "a question; several are separate searches"
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=meaning)
    flags.cache(parser)
    parser.add_argument("--file", default="", metavar="FILE", help="questions, one per line; -: standard input")
    parser.add_argument("-k", "--best", type=whole(1), metavar="N", default=5, help="passages per question (default 5)")
    meaning = "search by vectors, by words, or by both (default: as chosen for the index, else by what it has)"
    parser.add_argument("--kind", choices=("both", "dense", "words"), default="", help=meaning)
    meaning = "weight of vectors in a search by both, 0 to 1 (default: the index's)"
    parser.add_argument("--weight", type=number, metavar="W", help=meaning)
    meaning = "rerank the first passages with a model that scores pairs of texts"
    parser.add_argument("--rerank", default="", metavar="RUN", help=meaning)
    parser.add_argument("--no-rerank", action="store_true", help="search without the reranker of the index")
    parser.add_argument("--top", type=whole(1), metavar="N", default=0, help="passages to rerank (default 50)")
    meaning = "only documents whose field fits: KEY=VALUE, or != < <= > >=, such as year>=1990; all given must hold"
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help=meaning)
    meaning = "present path of the index's model, if it has moved"
    parser.add_argument("--model", default="", metavar="RUN", help=meaning)
    parser.add_argument("--whole", action="store_true", help="print whole passages")
    flags.json_line(parser)
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.searching import open_index, reranker
    from ordsmed.use.index.open_index import check_weight
    from ordsmed.use.index.search_output import as_line, asked, lines

    if bool(args.questions) == bool(args.file):
        problem = "found questions and --file" if args.file else "found no question"
        raise RecipeError("search", problem, "questions or --file")
    opening = flags.opened_as(args)
    index = open_index(args.index, args.model, **opening)
    if args.weight is not None:
        check_weight(args.weight, args.kind or index.recipe.kind)
        index = index.weighted(args.weight)
    if args.rerank and args.no_rerank:
        raise RecipeError("--no-rerank", "found with --rerank", "one of the two")
    for note in index.notes(args.kind, args.rerank):
        say(note)
    rescoring = reranker(args.rerank, **{**opening, "step": None}) if args.rerank else False if args.no_rerank else None
    for block in asked(args.questions, args.file, sys.stdin.buffer):
        options = {"kind": args.kind, "rerank": rescoring, "top": args.top, "where": args.where}
        all_hits = index.search_all(block, args.best, **options)
        for question, hits in zip(block, all_hits, strict=True):
            if args.json:
                print(as_line(question, hits), flush=True)
            else:
                print_lines(lines(question, hits, args.best, index, whole=args.whole))
