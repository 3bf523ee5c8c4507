"""a corpus cut in passages, with a vector for each and its words, to be searched by questions

CORPUS is the folder or recipe of a corpus, or files of text or JSON lines. `--kind words` needs no model: give CORPUS
OUT alone. The same command goes on where it was stopped; the folder can be moved, and holds all that it shows.
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser, number, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.next_steps import tell_next
from ordsmed.cli.output import print_lines

PLACE = ("use", 4)
STOPPED = GOES_ON
KINDS = ("both", "dense", "words")


def arguments(parser: Parser) -> None:
    meaning = "a model that embeds, a corpus, a new folder; without a model the index knows words alone"
    parser.add_argument("places", nargs="+", metavar="[MODEL] CORPUS OUT", help=meaning, offers=lambda: [FILES])
    flags.cache(parser)
    meaning = "searched by vectors (dense), words (BM25) or both (default; without a model words)"
    parser.add_argument("--kind", choices=KINDS, help=meaning)
    meaning = "tokens of a passage at most (default 200, or as many as the model reads); of words alone, words"
    parser.add_argument("--length", type=whole(8), metavar="N", help=meaning)
    meaning = "tokens of a passage that the next one begins with (default 0)"
    parser.add_argument("--overlap", type=whole(0), metavar="N", default=0, help=meaning)
    parser.add_argument("--no-title", action="store_true", help="titles are shown, but not read before passages")
    meaning = "of a passage, as `embed` has it (default: as the model learned, or the mean of tokens)"
    parser.add_argument("--pool", default="", metavar="mean|first|last|words", help=meaning)
    meaning = "passages the network reads at once (default 64)"
    parser.add_argument("--batch", type=whole(1), metavar="N", default=64, help=meaning)
    meaning = "look at every vector (default), or by a graph or cells of faiss at some: of millions; may miss some"
    parser.add_argument("--nearest", choices=("exact", "faiss"), default="exact", help=meaning)
    meaning = "of the vectors in a search by both, 0 to 1, also of an index that stands (default: ranks of both alike)"
    parser.add_argument("--weight", type=number, metavar="W", help=meaning)
    flags.anew(parser)
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.searching import index

    if len(args.places) not in (2, 3):
        raise RecipeError("index", f"found {' '.join(args.places)}", "MODEL CORPUS OUT, or CORPUS OUT")
    model = args.places[0] if len(args.places) == 3 else None
    corpus, out = args.places[-2:]
    if (kind := args.kind) and (kind == "words") != (model is None):
        words = f"a model, {model}," if model else "CORPUS OUT alone"
        raise RecipeError("--kind", f"found {kind} beside {words}", "MODEL CORPUS OUT; of words alone CORPUS OUT")
    opening = flags.opened_as(args) if model else {}
    opened = index(
        model,
        corpus,
        out,
        kind=kind,
        length=args.length,
        overlap=args.overlap,
        title=not args.no_title,
        pool=args.pool,
        nearest=args.nearest,
        batch=args.batch,
        weight=args.weight,
        anew=args.anew,
        **opening,
    )
    print_lines([f"{opened.folder}: {opened.size}"])
    tell_next(opened.folder)
