"""continue a text, or each line of a file or of standard input; a model begins an empty text itself

A causal or hybrid model generates token by token, a masked one fills masks, those first that it is surest of. Without a
text, on a terminal, it prompts for texts one after the other; /help there lists the commands.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from ordsmed.base.arguments import Parser, UsageError, number, whole
from ordsmed.cli import flags

if TYPE_CHECKING:
    from ordsmed.use.generation.network import WritingNetwork
    from ordsmed.use.generation.options import Generated, SamplingOptions
    from ordsmed.use.generation.prompts import Prompt

PLACE = ("use", 1)
WAY = ("tokens", "temperature", "best", "share", "typical", "seed", "penalty", "samples", "together", "order", "start")


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "texts to continue; none: an interactive session, or lines of standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=meaning)
    meaning = "most new tokens (default 40)"
    parser.add_argument("--tokens", type=whole(1), metavar="N", default=40, help=meaning)
    meaning = "0: always the likeliest token (default 1)"
    parser.add_argument("--temperature", type=number, metavar="X", default=1.0, help=meaning)
    parser.add_argument("--greedy", action="store_true", help="always the likeliest token: --temperature 0")
    meaning = "draw among the N likeliest tokens (0: all)"
    parser.add_argument("--top-k", "--best", dest="best", type=whole(0), metavar="N", default=0, help=meaning)
    meaning = "draw among the likeliest tokens until their probabilities sum to this"
    parser.add_argument("--top-p", "--share", dest="share", type=number, metavar="X", default=1.0, help=meaning)
    meaning = "draw among the most typical tokens whose probabilities sum to this (1: off)"
    parser.add_argument("--typical-p", dest="typical", type=number, metavar="X", default=1.0, help=meaning)
    meaning = "divide the scores of tokens that the text already has by this (1: off)"
    parser.add_argument(
        "--repetition-penalty", "--penalty", dest="penalty", type=number, metavar="X", default=1.0, help=meaning
    )
    meaning = "end a text before this; may be given several times"
    parser.add_argument("--stop", action="append", metavar="TEXT", default=[], help=meaning)
    meaning = "random seed (default 0); texts do not depend on others in the batch"
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help=meaning)
    parser.add_argument("--samples", type=whole(1), metavar="N", default=1, help="texts per prompt (default 1)")
    meaning = "omit the document separator before each prompt, which is put there as in training and exports"
    parser.add_argument("--no-start", dest="start", action="store_false", help=meaning)
    meaning = "masked models: tokens decided per pass (default 1)"
    parser.add_argument("--together", type=whole(1), metavar="N", default=1, help=meaning)
    meaning = "masked models: decide the surest tokens first, or in random order (default certain)"
    parser.add_argument("--order", choices=("certain", "chance"), default="certain", help=meaning)
    meaning = 'one prompt per line, or JSON lines (.jsonl): {"prompt": "..."}'
    parser.add_argument("--file", metavar="FILE", help=meaning)
    meaning = "write the texts to this file, one per line, or JSON lines (.jsonl)"
    parser.add_argument("--out", metavar="OUT", help=meaning)
    flags.json_line(parser)
    flags.anew(parser)
    parser.add_argument("--batch", type=whole(1), metavar="N", default=16, help="texts per batch (default 16)")
    meaning = "stop at the first prompt that contains this"
    parser.add_argument("--until", metavar="TEXT", default="", help=meaning)
    parser.add_argument("--interactive", action="store_true", help="prompt for texts, whatever standard input is")
    meaning = "processes, which share every layer (tensor parallelism)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.use.generation.options import SamplingOptions

    if args.greedy and args.temperature not in (0.0, 1.0):
        raise UsageError("--greedy", f"found with --temperature {args.temperature:g}", "one of the two")
    args.temperature = 0.0 if args.greedy else args.temperature
    if args.file and args.text:
        raise UsageError("--file", "found with a text", "one of the two")
    options = SamplingOptions(**{name: getattr(args, name) for name in WAY}, stop=tuple(args.stop))
    asks = args.interactive or (not args.text and not args.file and sys.stdin.isatty())
    if args.devices and "RANK" not in os.environ:
        from ordsmed.cli.recipes import run_in_processes

        run_in_processes(args)
    from ordsmed.base.hub import is_address
    from ordsmed.base.ranks import on_rank0
    from ordsmed.use.generate import generate_all, steps
    from ordsmed.use.generation.network import together
    from ordsmed.use.generation.prompts import before, given, of_file, same_on_all_ranks
    from ordsmed.weights.trained_model import opened

    prompts: Iterable[Prompt] = of_file(args.file) if args.file else given(args.text)
    if is_address(args.run):
        _of_served(args, prompts, options)
        return
    with together(opened(args.run, **flags.opened_as(args))) as network:
        if on_rank0(network.ranks, lambda: asks):
            _session(network, options, args.until)
            return
        if not (args.file or args.text):
            from ordsmed.use.fill import lines

            prompts = given(before(args.until, lines(sys.stdin.buffer)))
        writer = TextWriter(partial(steps, network), partial(generate_all, network, batch=args.batch), network.tell)
        _write(args, writer, same_on_all_ranks(network.ranks, prompts), options)


@dataclass(frozen=True)
class TextWriter:
    """Continues texts, by a network in this process or a served model."""

    steps: Callable[[str, SamplingOptions], Iterator[str]]  # of one text, piece by piece
    texts: Callable[[list[str], SamplingOptions], Iterable[Generated]]
    tell: Callable[[], object]  # prints the notes on the last text, such as a sliding window


def _of_served(args: argparse.Namespace, prompts: Iterable[Prompt], settings: SamplingOptions) -> None:
    from ordsmed.api.model import open
    from ordsmed.use.fill import lines
    from ordsmed.use.generation.prompts import before, given

    model = open(args.run, **flags.opened_as(args))
    model.check("generate")
    if not (args.file or args.text):
        prompts = given(before(args.until, lines(sys.stdin.buffer)))
    options = asdict(settings)
    writer = TextWriter(
        lambda text, _: model.stream(text, **options), lambda texts, _: model.generate(texts, **options), lambda: None
    )
    _write(args, writer, iter(prompts), settings)


def _session(network: WritingNetwork, options: SamplingOptions, until: str) -> None:
    """Run an interactive session in the first process, while the others compute with it."""
    import contextlib
    import functools

    from ordsmed.use.generation import leading
    from ordsmed.use.generation.session import Session

    if not network.ranks.first:
        leading.follow(network)
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (enables line editing and history)
    Session(functools.partial(leading.lead, network), options, after=network.tell, until=until).run()
    leading.end(network)


def _write(args: argparse.Namespace, writer: TextWriter, prompts: Iterator[Prompt], options: SamplingOptions) -> None:
    """Write the texts of all prompts. A single text is printed while it is generated."""
    import itertools

    from ordsmed.cli.output import speaks
    from ordsmed.use.generation import prompts as way

    json = args.json or (args.out or "").endswith(way.JSON_LINES)
    prints, written = speaks(), way.as_json if json else way.as_line if args.out else lambda text, prompt: text.text
    with way.line_writer(args.out if prints else None, anew=args.anew) as write_line:
        size = args.batch if args.file or len(args.text) > 1 else 1  # lines of a stream are continued as they arrive
        while block := list(itertools.islice(prompts, size)):
            if len(block) == options.samples == 1 and not args.out and not json:
                pieces = itertools.chain([block[0].text], writer.steps(block[0].text, options), ["\n"])
                way.print_pieces(pieces if prints else (piece for piece in pieces if not piece))
                writer.tell()
                continue
            texts = writer.texts([prompt.text for prompt in block], options)
            for number, text in enumerate(texts):
                if prints:
                    write_line(written(text, block[number // options.samples]))
