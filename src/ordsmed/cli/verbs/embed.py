"""vectors of the words or sentences of every line of a text, as HDF5, NumPy or Parquet"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, whole
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("use", 1)
STOPPED = BEGINS_AGAIN
FORM = ("of", "layers", "mix", "pieces", "pool", "prompt", "dtype", "batch", "carry", "cut")


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "text, plain or packed, an entry a line; -: standard input"
    parser.add_argument("input", metavar="INPUT", help=meaning)
    meaning = "to write, by its ending: .h5 .hdf5 .npz .npy .parquet"
    parser.add_argument("out", metavar="OUT", help=meaning)
    flags.anew(parser)
    _vectors(parser)
    meaning = "lines the network reads at once (default 64)"
    parser.add_argument("--batch", type=whole(1), metavar="N", default=64, help=meaning)
    meaning = "ELMo: a line goes on from the one at its place of the batch before (--batch 1: from the last one)"
    parser.add_argument("--carry", action="store_true", help=meaning)
    parser.add_argument("--cut", action="store_true", help="ELMo: cut lines into words as its tokenizer does")
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def _vectors(parser: Parser) -> None:
    """Of what, from which layers, and in which form."""
    meaning = "a vector a word, or a line; tokens: of each token, as a model with task.head=multi-vector learned it"
    parser.add_argument("--of", default="words", metavar="words|sentences|tokens", help=meaning)
    meaning = "0: embeddings, -1: the last; several: an axis more, in front (default top, of an ELMo all)"
    parser.add_argument("--layers", default="", metavar="top|all|mean|0,-1", help=meaning)
    meaning = '{"weights": [...], "gamma": 1.0}: of all layers, by a softmax'
    parser.add_argument("--mix", default="", metavar="JSON", help=meaning)
    parser.add_argument("--pieces", default="mean", metavar="mean|first|last", help="of a word (default mean)")
    meaning = "of a sentence: the mean, first or last of its tokens, special ones included; words: the mean of its "
    meaning += "words; left out: as a model learned it that was trained on pairs, of others the mean of tokens"
    parser.add_argument("--pool", default="", metavar="mean|first|last|words", help=meaning)
    meaning = "of such a model: write its prompt for queries or passages before each line"
    parser.add_argument("--prompt", default="", metavar="query|passage", help=meaning)
    parser.add_argument("--dtype", default="float32", metavar="float32|float16", help="of the numbers written")


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.model import open
    from ordsmed.base.stages import VECTORS, stage
    from ordsmed.use.embed import Form, prepared

    how = {name: getattr(args, name) for name in FORM}
    source = sys.stdin.buffer if args.input == "-" else args.input
    prepared(source, args.out, Form(**how), anew=args.anew)  # what cannot be is refused before a model is opened
    model = open(
        stage(args.run, *VECTORS), step=args.step, device=args.device, precision=args.precision, threads=args.threads
    )
    print_lines([model.embed_file(source, args.out, anew=args.anew, **how)])
