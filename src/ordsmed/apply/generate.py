"""Generate: texts that a model writes, of any kind: a causal one goes on token by token, a masked one fills.

prompts -> rows -> Continuation | unmasking -> Generated, in the order of the prompts
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ordsmed.apply.generation.continuing import Continuation, TextRow, begun, continued, settled
from ordsmed.apply.generation.network import WritingNetwork, check, fills, writing
from ordsmed.apply.generation.options import Generated, SamplingOptions
from ordsmed.apply.generation.unmasking import written
from ordsmed.apply.trained import Trained
from ordsmed.base.errors import RecipeError

__all__ = ["check", "generate", "generate_all", "stream"]
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
                yield written(network, prompt, how, sample)
        return
    rows = (row for prompt in prompts for row in _rows(network, how, prompt))
    while some := list(itertools.islice(rows, batch)):
        for _ in Continuation(network, how, some):
            pass
        yield from map(_generated, some)


def stream(network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int = 0) -> Iterator[str]:
    """A text as it is made, in pieces: what follows the prompt."""
    if fills(network.trained):
        yield written(network, prompt, how, sample).continuation
        return
    row, sent = _rows(network, how, prompt)[sample], ""
    for _ in Continuation(network, how, [row]):
        text = row.text if row.ended else continued(network, row)
        size = len(text) if row.ended else settled(network, how, text)
        if size > len(sent) and text.startswith(sent):
            yield text[len(sent) : size]
            sent = text[:size]


def _rows(network: WritingNetwork, how: SamplingOptions, prompt: str) -> list[TextRow]:
    rows = begun(network, how, [prompt])
    if not rows[0].ids:
        wanted = "a text, for its tokenizer has no sign to begin with"
        raise RecipeError(repr(prompt[:40]), "found no token to go on from", wanted)
    return rows


def _generated(row: TextRow) -> Generated:
    return Generated(row.prompt, row.text, row.sample, row.made, row.ended or "tokens")
