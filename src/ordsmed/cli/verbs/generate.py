"""a model goes on with a text, or with each line of a file or of standard input; an empty one it begins itself

A causal model (or a hybrid) writes token by token, a masked one by filling masks, those it is surest of first. Without
a text, on a terminal, prompts are asked for one after the other; /help there tells more.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ordsmed.base.arguments import Parser, UsageError, number, whole
from ordsmed.cli import flags

PLACE = ("use", 1)
WAY = ("tokens", "temperature", "best", "share", "seed", "penalty", "samples", "together", "order", "start")


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "texts to go on with; none: a prompt after the other, or lines of standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=meaning)
    meaning = "at most so many new ones (default 40)"
    parser.add_argument("--tokens", type=whole(1), metavar="N", default=40, help=meaning)
    meaning = "0: always the likeliest token (default 1)"
    parser.add_argument("--temperature", type=number, metavar="X", default=1.0, help=meaning)
    parser.add_argument("--greedy", action="store_true", help="always the likeliest token: --temperature 0")
    meaning = "draw among so many of the likeliest (0: all)"
    parser.add_argument("--top-k", "--best", dest="best", type=whole(0), metavar="N", default=0, help=meaning)
    meaning = "draw among the likeliest with this share together, the one that reaches it among them"
    parser.add_argument("--top-p", "--share", dest="share", type=number, metavar="X", default=1.0, help=meaning)
    meaning = "divides scores of tokens that were there (1: no)"
    parser.add_argument(
        "--repetition-penalty", "--penalty", dest="penalty", type=number, metavar="X", default=1.0, help=meaning
    )
    meaning = "end a text before this; may be given several times"
    parser.add_argument("--stop", action="append", metavar="TEXT", default=[], help=meaning)
    meaning = "of the draws (default 0); the same text whatever else is written"
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help=meaning)
    parser.add_argument("--samples", type=whole(1), metavar="N", default=1, help="texts a prompt (default 1)")
    meaning = "leave out the sign between documents that stands before each prompt, as in training and in exports"
    parser.add_argument("--no-start", dest="start", action="store_false", help=meaning)
    meaning = "masked models: tokens that are decided in one pass (default 1)"
    parser.add_argument("--together", type=whole(1), metavar="N", default=1, help=meaning)
    meaning = "masked models: the surest first, or any (default certain)"
    parser.add_argument("--order", choices=("certain", "chance"), default="certain", help=meaning)
    meaning = 'a prompt a line, or JSON lines (.jsonl): {"prompt": "..."}'
    parser.add_argument("--file", metavar="FILE", help=meaning)
    meaning = "write the texts there, a line each, or JSON lines (.jsonl), whole or not at all"
    parser.add_argument("--out", metavar="OUT", help=meaning)
    flags.json_line(parser)
    flags.anew(parser, "replace the file that stands")
    parser.add_argument("--batch", type=whole(1), metavar="N", default=16, help="texts at once (default 16)")
    meaning = "a prompt that holds this ends the prompts: no text is made of it"
    parser.add_argument("--until", metavar="TEXT", default="", help=meaning)
    parser.add_argument("--interactive", action="store_true", help="ask for prompts, whatever standard input is")
    meaning = "processes, which share every layer (tensor parallelism)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    flags.any_step(parser)
    flags.device(parser)
    flags.precision(parser)
    flags.threads(parser)


def run(asked: argparse.Namespace) -> None:
    how = _options(asked)
    asks = asked.interactive or (not asked.text and not asked.file and sys.stdin.isatty())
    if asked.devices and "RANK" not in os.environ:
        from ordsmed.base.launch.local import start
        from ordsmed.cli.recipes import without

        sys.exit(start(without(asked.words, "--devices"), asked.devices))
    from ordsmed.base.ranks import first_alone
    from ordsmed.use.generation.network import together
    from ordsmed.use.generation.prompts import agreed, before, given, of_file
    from ordsmed.weights.trained import opened

    prompts: Any = of_file(asked.file) if asked.file else given(asked.text)
    with together(opened(asked.run, **flags.opened_as(asked))) as network:
        if first_alone(network.ranks, lambda: asks):
            _session(network, how, asked.until)
            return
        if not (asked.file or asked.text):
            from ordsmed.use.fill import lines

            prompts = given(before(asked.until, lines(sys.stdin.buffer)))
        _write(asked, network, agreed(network.ranks, prompts), how)


def _options(asked: argparse.Namespace) -> Any:
    from ordsmed.use.generation.options import SamplingOptions

    if asked.greedy and asked.temperature not in (0.0, 1.0):
        raise UsageError("--greedy", f"found with --temperature {asked.temperature:g}", "one of the two")
    asked.temperature = 0.0 if asked.greedy else asked.temperature
    if asked.file and asked.text:
        raise UsageError("--file", "found with a text", "one of the two")
    return SamplingOptions(**{name: getattr(asked, name) for name in WAY}, stop=tuple(asked.stop))


def _session(network: Any, how: Any, until: str) -> None:
    """The first process asks; others write with it."""
    import contextlib
    import functools

    from ordsmed.use.generation import leading
    from ordsmed.use.generation.session import Session

    if not network.ranks.first:
        leading.follow(network)
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (lines can be edited, and come again)
    Session(functools.partial(leading.lead, network), how, after=network.tell, until=until).run()
    leading.end(network)


def _write(asked: argparse.Namespace, network: Any, prompts: Any, how: Any) -> None:
    """Texts of all prompts; one by itself as it is made."""
    import itertools

    from ordsmed.cli.output import speaks
    from ordsmed.use.generate import generate_all, steps
    from ordsmed.use.generation import prompts as way

    json = asked.json or (asked.out or "").endswith(way.JSON_LINES)
    tells, written = speaks(), way.as_json if json else way.as_line if asked.out else lambda text, prompt: text.text
    with way.taken(asked.out if tells else None, anew=asked.anew) as take:
        size = asked.batch if asked.file or len(asked.text) > 1 else 1  # lines of a stream are answered as they come
        while some := list(itertools.islice(prompts, size)):
            if len(some) == how.samples == 1 and not asked.out and not json:
                pieces = itertools.chain([some[0].text], steps(network, some[0].text, how), ["\n"])
                way.shown(pieces if tells else (piece for piece in pieces if not piece))
                network.tell()
                continue
            texts = generate_all(network, [prompt.text for prompt in some], how, batch=asked.batch)
            for number, text in enumerate(texts):
                if tells:
                    take(written(text, some[number // how.samples]))
