"""a corpus cut in passages, with a vector for each and its words, to be searched by questions

CORPUS is the folder or recipe of a corpus, or files of text or JSON lines. `--kind words` needs no model: give CORPUS
OUT alone. The same command goes on where it was stopped; the folder can be moved, and holds all that it shows.

An index of both chooses by pseudo-questions how much vectors count in a search: not at all, if they do not help.
INDEX alone names a finished index: its documents, weight and reranker are changed, or its files are checked.
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
CHANGES = ("add", "delete", "choose", "check")  # of a finished index


def arguments(parser: Parser) -> None:
    meaning = "a model that embeds, a corpus, a new folder; without a model the index knows words alone; or an INDEX"
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
    meaning = "of the vectors in a search by both, 0 to 1 (default: chosen by pseudo-questions made of passages)"
    parser.add_argument("--weight", type=number, metavar="W", help=meaning)
    meaning = "a model that scores pairs of texts: searches use it if pseudo-questions are answered better with it"
    parser.add_argument("--rerank", default="", metavar="RUN", help=meaning)
    _changes(parser)
    flags.anew(parser)
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def _changes(parser: Parser) -> None:
    """What is done with a finished index."""
    meaning = "to INDEX: documents of files, in the place of those with the same ids"
    parser.add_argument("--add", nargs="+", default=[], metavar="FILE", help=meaning, offers=lambda: [FILES])
    parser.add_argument("--delete", nargs="+", default=[], metavar="ID", help="from INDEX: documents with these ids")
    meaning = "of INDEX: choose the weight of the vectors, and with --rerank a reranker, by pseudo-questions"
    parser.add_argument("--choose", action="store_true", help=meaning)
    parser.add_argument("--check", action="store_true", help="of INDEX: read all files and compare their checksums")
    parser.add_argument("--model", default="", metavar="RUN", help="of INDEX: where its model is now")


def run(args: argparse.Namespace) -> None:
    changes = [f"--{name}" for name in CHANGES if getattr(args, name)]
    if len(args.places) == 1:
        if not changes and not args.rerank and args.weight is None:
            wanted = "CORPUS OUT, or INDEX and --add, --delete, --choose, --rerank, --weight or --check"
            raise RecipeError("index", f"found {args.places[0]} alone", wanted)
        if args.choose and args.weight is not None:
            raise RecipeError("--choose", f"found beside --weight {args.weight:g}", "one of both")
        _change(args)
        return
    if changes or args.model:
        option = (changes or ["--model"])[0]
        raise RecipeError(
            option, f"found beside {' '.join(args.places)}", "one INDEX", "give these options to an index"
        )
    if len(args.places) > 3:
        raise RecipeError("index", f"found {len(args.places)} words", "MODEL CORPUS OUT, or CORPUS OUT")
    _make(args)


def _change(args: argparse.Namespace) -> None:
    from ordsmed.api.searching import choose, open_index, update_index

    opening = flags.opened_as(args)
    index = open_index(args.places[0], args.model, **opening)
    if args.check:
        index.check(whole=True)
        print_lines([f"{index.folder}: every file is as it was written"])
    if args.add or args.delete:
        index = update_index(index.folder, args.add, args.delete, model=args.model, **opening)
    if args.weight is not None:
        index = index.weighted(args.weight, keep=True)
    if args.choose or args.rerank:
        index = choose(index, args.rerank or None, weight=None if args.choose else index.by_hand, **opening)
    print_lines([f"{index.folder}: {index.size}"])
    tell_next(index.folder)


def _make(args: argparse.Namespace) -> None:
    from ordsmed.api.searching import index

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
        rerank=args.rerank or None,
        anew=args.anew,
        **opening,
    )
    print_lines([f"{opened.folder}: {opened.size}"])
    tell_next(opened.folder)
