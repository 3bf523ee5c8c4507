"""Generate: texts that a model writes, of any kind: a causal one goes on token by token, a masked one fills.

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
from ordsmed.weights.trained import Trained

__all__ = ["check", "generate", "generate_all", "steps", "stream"]
BATCH = 16  # texts at once


def generate(trained: Trained, prompt: str, how: SamplingOptions) -> Generated:
    """The first text of a prompt; an empty one is begun by the model."""
    return next(generate_all(writing(trained), [prompt], how))


def generate_all(
    network: WritingNetwork, prompts: Iterable[str], how: SamplingOptions, *, batch: int = BATCH
) -> Iterator[Generated]:
    """Every text of every prompt, in their order, so many at once."""
    if fills(network.trained):
        for prompt in prompts:
            for sample in range(how.samples):
                text = written(network, prompt, how, sample)
                network.tell()
                yield text
        return
    rows = (row for prompt in prompts for row in rows_of(network, how, prompt))
    while some := list(itertools.islice(rows, batch)):
        for _ in Continuation(network, some):
            pass
        network.tell()
        yield from map(_generated, some)


def stream(network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int = 0) -> Iterator[str]:
    """A text as it is made, in pieces: what follows the prompt."""
    yield from filter(None, steps(network, prompt, how, sample))
    network.tell()


def steps(network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int = 0) -> Iterator[str]:
    """What has come to stand behind the prompt for good after every token or pass: often nothing."""
    yield from (piece for piece, _ in grown(network, prompt, how, sample))


def grown(
    network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int = 0
) -> Iterator[tuple[str, Ending | None]]:
    """The same; with the last piece, how the text ended."""
    sent = ""
    for text, ended in (_filled if fills(network.trained) else _continued)(network, prompt, how, sample):
        size = len(text) if ended else stable_length(network, how, text)
        fits = size > len(sent) and text.startswith(sent)
        yield text[len(sent) : size] if fits else "", ended
        sent = text[:size] if fits else sent
        if ended:
            return


def _continued(
    network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int
) -> Iterator[tuple[str, Ending | None]]:
    """What follows a prompt after every token; has it ended?"""
    row = rows_of(network, how, prompt)[sample]
    for _ in Continuation(network, [row]):
        yield row.text if row.ended else continued(network, row), row.ended


def _filled(
    network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int
) -> Iterator[tuple[str, Ending | None]]:
    """What follows a prompt up to the first gap that is left, after every pass; is it all?"""
    text = ""
    for ids in filled(network, prompt, how, sample):
        text = behind(network, prompt, ids)
        if (short := how.stopped(text[: stable_length(network, how, text)])) is not None:
            text = short
            yield text, "stop"
            return
        yield text, None
    short = how.stopped(text)
    yield (text, "tokens") if short is None else (short, "stop")


def rows_of(network: WritingNetwork, how: SamplingOptions, prompt: str) -> list[TextRow]:
    """A row for each sample of a prompt; refused where there is nothing to go on from."""
    rows = text_rows(network, how, [prompt])
    if not rows[0].ids:
        reason = (
            "its tokenizer has no sign to begin with" if how.start else "--no-start leaves out the sign that begins one"
        )
        raise RecipeError(repr(prompt[:40]), "found no token to go on from", f"a text, for {reason}")
    return rows


def _generated(row: TextRow) -> Generated:
    return Generated(row.prompt, row.text, row.sample, row.made, row.ended or "tokens")
