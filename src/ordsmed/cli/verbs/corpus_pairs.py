"""write pairs of related texts, from a corpus without labels or from translations, to train text vectors on

Each passage gives one pair. Its kind is drawn by its share among the kinds that the passage allows: title (title, first
passage), paragraphs (one, the next), cloze (a sentence, its passage without it), crops (two parts of a passage),
questions (a question or a heading that asks, what follows). Two files are translations: each line is a pair.
"""

from __future__ import annotations

import argparse
from typing import Any

from ordsmed.base.arguments import Parser, number, whole
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("make", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    meaning = "a finished corpus, or two files, line by line; and the JSON lines to write"
    parser.add_argument("sources", nargs="+", metavar="CORPUS|FILE FILE OUT", help=meaning)
    meaning = "kinds and their shares; other kinds are not used (default: all kinds equally)"
    parser.add_argument("--kinds", nargs="+", metavar="KIND=SHARE", default=[], help=meaning)
    meaning = "most words of a passage (default 150)"
    parser.add_argument("--length", type=whole(1), metavar="N", default=150, help=meaning)
    meaning = "fewest words of each text; titles and questions may be shorter (default 5)"
    count: dict[str, Any] = {"type": whole(1), "metavar": "N"}
    parser.add_argument("--min-words", former="--shortest", dest="shortest", default=5, help=meaning, **count)
    meaning = "most pairs; of more, some are drawn"
    parser.add_argument("--max-pairs", former="--most", dest="most", help=meaning, **count)
    meaning = "largest similarity of two positives: Jaccard by MinHash (default 0.7; 0: no limit)"
    parser.add_argument("--near", type=number, metavar="X", default=0.7, help=meaning)
    meaning = "test sets: pairs with 13 consecutive words or a whole line of one of them are left out"
    parser.add_argument("--against", nargs="+", metavar="FILE", default=[], help=meaning)
    meaning = "split of the corpus: train (default), validation or test"
    parser.add_argument("--split", default="train", metavar="SPLIT", help=meaning)
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help="random seed (default 0)")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.corpus.pairs import Pairing, write_pairs

    *sources, out = args.sources
    if not sources:
        raise RecipeError("corpus pairs", f"found one name, {out}", "CORPUS OUT, or FILE FILE OUT")
    names = ("length", "shortest", "most", "near", "split", "seed")
    options = {name: getattr(args, name) for name in names} | {"against": tuple(args.against)}
    options |= {"shares": dict(map(_share, args.kinds))} if args.kinds else {}
    print_lines(write_pairs(sources, out, Pairing(**options), anew=args.anew))


def _share(word: str) -> tuple[str, float]:
    kind, equals, share = word.partition("=")
    try:
        return kind, float(share) if equals else 1.0
    except ValueError:
        raise RecipeError("--kinds", f"found {word}", "KIND=SHARE, such as cloze=0.5") from None
