"""pairs of texts that belong together, from a corpus without labels or from translations, to train vectors of texts on

Each passage gives one pair, of a kind that is drawn by its share among those that it can give: title (title, first
passage), paragraphs (one, the next), cloze (a sentence, its passage without it), crops (two parts of a passage),
questions (a question or a heading that asks, what follows). Of two files each line is a pair: translation.
"""

from __future__ import annotations

import argparse

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
    meaning = "kinds and their shares; kinds that are not named have none (default: all alike)"
    parser.add_argument("--kinds", nargs="+", metavar="KIND=SHARE", default=[], help=meaning)
    meaning = "words of a passage, at most (default 150)"
    parser.add_argument("--length", type=whole(1), metavar="N", default=150, help=meaning)
    meaning = "words of a side, at least; titles and questions may be shorter (default 5)"
    parser.add_argument("--shortest", type=whole(1), metavar="N", default=5, help=meaning)
    parser.add_argument("--most", type=whole(1), metavar="N", help="pairs; of more, some are drawn")
    meaning = "how alike two positives may be: Jaccard similarity by MinHash (default 0.7; 0: as alike as they are)"
    parser.add_argument("--near", type=number, metavar="X", default=0.7, help=meaning)
    meaning = "test sets: a pair that quotes 13 words in a row of one of them, or a whole line, is left out"
    parser.add_argument("--against", nargs="+", metavar="FILE", default=[], help=meaning)
    meaning = "of the corpus: train (default), validation or test"
    parser.add_argument("--split", default="train", metavar="SPLIT", help=meaning)
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help="of what is drawn (default 0)")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.corpus.pairs import Pairing, write_pairs

    *sources, out = args.sources
    if not sources:
        raise RecipeError("corpus pairs", f"found one name, {out}", "CORPUS OUT, or FILE FILE OUT")
    names = ("length", "shortest", "most", "near", "split", "seed")
    how = {name: getattr(args, name) for name in names} | {"against": tuple(args.against)}
    how |= {"shares": dict(map(_share, args.kinds))} if args.kinds else {}
    print_lines(write_pairs(sources, out, Pairing(**how), anew=args.anew))


def _share(word: str) -> tuple[str, float]:
    kind, equals, share = word.partition("=")
    try:
        return kind, float(share) if equals else 1.0
    except ValueError:
        raise RecipeError("--kinds", f"found {word}", "KIND=SHARE, as cloze=0.5") from None
