"""Rows of sentences with stop tokens between them, as in RoBERTa; all tokens of a row see each other.

    <s> a sentence </s> the next one </s> the last of its document </s> </s> one of the next </s> <pad> <pad>

FULL-SENTENCES crosses the ends of documents, with an additional stop token there; DOC-SENTENCES does not.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ordsmed.data.rows import Assembled, Blend, Frame, Span, TokenSource
from ordsmed.data.windows import Ints, SentenceLines, SentenceParts, run, split


class LineRows:
    """Rows of complete sentences, each with its stop token; `alone`: one sentence per row."""

    def __init__(
        self,
        sources: Sequence[TokenSource],
        weights: Sequence[float],
        frame: Frame,
        *key: object,
        cross: bool,
        alone: bool = False,
    ) -> None:
        self.sources, self.frame = sources, frame
        self.lines = [
            SentenceLines.of(s.starts if alone else s.document_starts, s.starts, frame.length - 1, cross=cross)
            for s in sources
        ]
        self.blend = Blend([len(lines) for lines in self.lines], weights, *key)

    def __len__(self) -> int:
        return len(self.blend)

    def assembled(self, numbers: Ints) -> Assembled:
        source, rows = self.blend.place(numbers)
        order = {int(k): np.flatnonzero(source == k) for k in np.unique(source)}
        parts = [lay(self.sources[k].tokens, self.lines[k].parts(rows[at]), self.frame) for k, at in order.items()]
        return Assembled.join(parts, list(order.values()))

    def spans(self, numbers: Ints) -> list[Span]:
        spans = []
        for number, source, row in zip(numbers, *self.blend.place(numbers), strict=True):
            start, stop = self.lines[source].spans(np.asarray([row]))
            p = split(self.sources[source].document_starts, start, stop)
            pieces = zip(p.document, p.start, p.stop, strict=True)
            spans += [Span(int(number), int(source), int(d), int(a), int(b)) for d, a, b in pieces if a < b]
        return spans

    def ranges(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        source, rows = self.blend.place(numbers)
        return [(k, *self.lines[k].spans(rows[source == k])) for k in np.unique(source).tolist()]


def lay(source: NDArray[np.integer], parts: SentenceParts, frame: Frame) -> Assembled:
    rows, row, lengths = len(parts.led), parts.row, parts.stop - parts.start
    sizes = lengths + parts.stops
    begun = np.cumsum(sizes) - sizes
    first = 1 + parts.led
    inside = begun - begun[np.searchsorted(row, np.arange(rows))][row] + first[row]
    steps = np.arange(frame.length)
    real = steps < (first + np.bincount(row, sizes, rows).astype(np.int64))[:, None]
    inner = real & (steps >= first[:, None])
    inner[row, inside + lengths] = False
    doubled = parts.stops > 1
    inner[row[doubled], (inside + lengths)[doubled] + 1] = False
    tokens = np.where(real, frame.after or 0, frame.pad)
    tokens[:, 0] = frame.before or 0
    tokens[inner] = source[np.repeat(parts.start, lengths) + run(lengths)]
    return Assembled(tokens, real.astype(np.int32), np.where(real, steps, 0), inner)
