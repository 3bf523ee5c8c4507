"""Text generation by any model: causal models continue token by token, masked models fill masks.

prompts -> rows -> Continuation | unmasking -> Generated, in the order of the prompts
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ordsmed.base.errors import RecipeError
from ordsmed.use.generation.continuing import Continuation, TextRow, continued, stable_length, text_rows
from ordsmed.use.generation.network import WritingNetwork, check, fills, writing
from ordsmed.use.generation.options import Ending, Generated, SamplingOptions
from ordsmed.use.generation.unmasking import behind, filled, written
from ordsmed.weights.trained_model import Trained

__all__ = ["check", "generate", "generate_all", "steps", "stream"]
BATCH = 16  # texts per batch


def generate(trained: Trained, prompt: str, options: SamplingOptions) -> Generated:
    """Return the first sample of a prompt's text. An empty prompt lets the model begin."""
    return next(generate_all(writing(trained), [prompt], options))


def generate_all(
    network: WritingNetwork, prompts: Iterable[str], options: SamplingOptions, *, batch: int = BATCH
) -> Iterator[Generated]:
    """Yield all samples of all prompts in order, `batch` texts at a time."""
    if fills(network.trained):
        for prompt in prompts:
            for sample in range(options.samples):
                text = written(network, prompt, options, sample)
                network.tell()
                yield text
        return
    rows = (row for prompt in prompts for row in rows_of(network, options, prompt))
    while block := list(itertools.islice(rows, batch)):
        for _ in Continuation(network, block):
            pass
        network.tell()
        yield from map(_generated, block)


def stream(network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int = 0) -> Iterator[str]:
    """Yield the text after the prompt in pieces, while it is generated."""
    yield from filter(None, steps(network, prompt, options, sample))
    network.tell()


def steps(network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int = 0) -> Iterator[str]:
    """Yield, after every token or pass, the new text that cannot change any more; often an empty string."""
    yield from (piece for piece, _ in grown(network, prompt, options, sample))


def grown(
    network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int = 0
) -> Iterator[tuple[str, Ending | None]]:
    """Yield the pieces of `steps` with None, and with the last piece how the text ended."""
    sent = ""
    for text, ended in (_filled if fills(network.trained) else _continued)(network, prompt, options, sample):
        size = len(text) if ended else stable_length(network, options, text)
        fits = size > len(sent) and text.startswith(sent)
        yield text[len(sent) : size] if fits else "", ended
        sent = text[:size] if fits else sent
        if ended:
            return


def _continued(
    network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int
) -> Iterator[tuple[str, Ending | None]]:
    """Yield the whole continuation after every token, and how it ended once it has."""
    row = rows_of(network, options, prompt)[sample]
    for _ in Continuation(network, [row]):
        yield row.text if row.ended else continued(network, row), row.ended


def _filled(
    network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int
) -> Iterator[tuple[str, Ending | None]]:
    """Yield the text up to the first unfilled mask after every pass, and how it ended once it has."""
    text = ""
    for ids in filled(network, prompt, options, sample):
        text = behind(network, prompt, ids)
        if (short := options.stopped(text[: stable_length(network, options, text)])) is not None:
            text = short
            yield text, "stop"
            return
        yield text, None
    short = options.stopped(text)
    yield (text, "tokens") if short is None else (short, "stop")


def rows_of(network: WritingNetwork, options: SamplingOptions, prompt: str) -> list[TextRow]:
    """Return a row for each sample of a prompt, or raise an error if there is no token to continue from."""
    rows = text_rows(network, options, [prompt])
    if not rows[0].ids:
        reason = "--no-start omits the start token"
        reason = "its tokenizer has no start token" if options.start else reason
        raise RecipeError(repr(prompt[:40]), "has no token to continue from", f"a text, because {reason}")
    return rows


def _generated(row: TextRow) -> Generated:
    return Generated(row.prompt, row.text, row.sample, row.made, row.ended or "tokens")
