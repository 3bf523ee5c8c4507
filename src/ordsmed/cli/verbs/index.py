"""build an index of a corpus for search: passages, a vector for each, and their words

CORPUS is the folder or recipe of a corpus, or files of text or JSON lines. `--kind words` needs no model: give only
CORPUS OUT. The same command resumes after it was stopped. The folder can be moved, and contains all texts it shows.

An index of both kinds chooses by pseudo-questions how much vectors count in a search: not at all, if they do not help.
INDEX alone is a finished index: its documents, weight and reranker are changed, or its files are checked.
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
    meaning = "a model that embeds, a corpus, a new folder; without a model the index has words only; or an INDEX"
    parser.add_argument("places", nargs="+", metavar="[MODEL] CORPUS OUT", help=meaning, offers=lambda: [FILES])
    flags.cache(parser)
    meaning = "search by vectors (dense), words (BM25) or both (default; without a model words)"
    parser.add_argument("--kind", choices=KINDS, help=meaning)
    meaning = "most tokens of a passage (default 200, or as many as the model reads); without a model, words"
    parser.add_argument("--length", type=whole(8), metavar="N", help=meaning)
    meaning = "tokens that a passage may share with the one before it (default 0)"
    parser.add_argument("--overlap", type=whole(0), metavar="N", default=0, help=meaning)
    parser.add_argument(
        "--no-title", action="store_true", help="do not put titles before passages; they are only shown"
    )
    meaning = "pooling of a passage, as in `embed` (default: as the model learned, or the mean of tokens)"
    parser.add_argument("--pool", default="", metavar="mean|first|last|words", help=meaning)
    meaning = "passages per batch (default 64)"
    parser.add_argument("--batch", type=whole(1), metavar="N", default=64, help=meaning)
    meaning = "compare every vector (default), or search millions approximately with faiss, which may miss some"
    parser.add_argument("--nearest", choices=("exact", "faiss"), default="exact", help=meaning)
    meaning = "weight of vectors in a search by both, 0 to 1 (default: chosen by pseudo-questions)"
    parser.add_argument("--weight", type=number, metavar="W", help=meaning)
    meaning = "a model that scores pairs of texts; searches use it if it helps on pseudo-questions"
    parser.add_argument("--rerank", default="", metavar="RUN", help=meaning)
    _changes(parser)
    flags.anew(parser)
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def _changes(parser: Parser) -> None:
    meaning = "with INDEX: add documents of files, replacing those with the same ids"
    parser.add_argument("--add", nargs="+", default=[], metavar="FILE", help=meaning, offers=lambda: [FILES])
    parser.add_argument("--delete", nargs="+", default=[], metavar="ID", help="with INDEX: delete these documents")
    meaning = "with INDEX: choose the weight of vectors, and with --rerank a reranker, by pseudo-questions"
    parser.add_argument("--choose", action="store_true", help=meaning)
    parser.add_argument("--check", action="store_true", help="with INDEX: read all files and compare their checksums")
    parser.add_argument("--model", default="", metavar="RUN", help="with INDEX: present path of its model")


def run(args: argparse.Namespace) -> None:
    changes = [f"--{name}" for name in CHANGES if getattr(args, name)]
    if len(args.places) == 1:
        if not changes and not args.rerank and args.weight is None:
            wanted = "CORPUS OUT, or INDEX and --add, --delete, --choose, --rerank, --weight or --check"
            raise RecipeError("index", f"found only {args.places[0]}", wanted)
        if args.choose and args.weight is not None:
            raise RecipeError("--choose", f"found with --weight {args.weight:g}", "one of the two")
        _change(args)
        return
    if changes or args.model:
        option = (changes or ["--model"])[0]
        raise RecipeError(option, f"found with {' '.join(args.places)}", "one INDEX", "give these options to an index")
    if len(args.places) > 3:
        raise RecipeError("index", f"found {len(args.places)} words", "MODEL CORPUS OUT, or CORPUS OUT")
    _make(args)


def _change(args: argparse.Namespace) -> None:
    from ordsmed.api.searching import choose, open_index, update_index

    opening = flags.opened_as(args)
    index = open_index(args.places[0], args.model, **opening)
    if args.check:
        index.check(whole=True)
        print_lines([f"{index.folder}: all files are intact"])
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
        words = f"the model {model}" if model else "CORPUS OUT only"
        raise RecipeError("--kind", f"found {kind} with {words}", "MODEL CORPUS OUT; for words CORPUS OUT")
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
