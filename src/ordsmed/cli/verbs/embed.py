"""write vectors of the words or sentences of every line of a text, as HDF5, NumPy or Parquet"""

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
    meaning = "text, plain or compressed, with one entry per line; -: standard input"
    parser.add_argument("input", metavar="INPUT", help=meaning)
    meaning = "file to write, in the format of its suffix: .h5 .hdf5 .npz .npy .parquet"
    parser.add_argument("out", metavar="OUT", help=meaning)
    flags.anew(parser)
    _vectors(parser)
    meaning = "lines per batch (default 64)"
    parser.add_argument("--batch", type=whole(1), metavar="N", default=64, help=meaning)
    meaning = (
        "ELMo: continue the states of the line at the same position of the previous batch (--batch 1: the last line)"
    )
    parser.add_argument("--carry", action="store_true", help=meaning)
    parser.add_argument("--cut", action="store_true", help="ELMo: separate words by its tokenizer")
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def _vectors(parser: Parser) -> None:
    meaning = "a vector per word or line; tokens: per token, for a model that learned task.head=multi-vector"
    parser.add_argument("--of", default="words", metavar="words|sentences|tokens", help=meaning)
    meaning = "0: embeddings, -1: the last; several add an axis in front (default top, for an ELMo all)"
    parser.add_argument("--layers", default="", metavar="top|all|mean|0,-1", help=meaning)
    meaning = 'mix all layers by the softmax of {"weights": [...], "gamma": 1.0}'
    parser.add_argument("--mix", default="", metavar="JSON", help=meaning)
    parser.add_argument("--pieces", default="mean", metavar="mean|first|last", help="tokens of a word (default mean)")
    meaning = "pooling of a sentence: mean, first or last of its tokens, special tokens included; words: mean of words "
    meaning += "(default: the learned pooling of a model trained on pairs, else mean)"
    parser.add_argument("--pool", default="", metavar="mean|first|last|words", help=meaning)
    meaning = "put the learned prompt for queries or passages before each line"
    parser.add_argument("--prompt", default="", metavar="query|passage", help=meaning)
    parser.add_argument("--dtype", default="float32", metavar="float32|float16", help="type of the numbers")


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.model import open
    from ordsmed.base.stages import VECTORS, stage
    from ordsmed.use.embed import Form, prepared

    options = {name: getattr(args, name) for name in FORM}
    source = sys.stdin.buffer if args.input == "-" else args.input
    prepared(source, args.out, Form(**options), anew=args.anew)  # report errors before a model is opened
    model = open(
        stage(args.run, *VECTORS), step=args.step, device=args.device, precision=args.precision, threads=args.threads
    )
    print_lines([model.embed_file(source, args.out, anew=args.anew, **options)])
