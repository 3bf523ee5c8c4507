"""Rows of imported records: examples as another program masked them, from the store of their text and a table of masks.

train.given.bin   int32 [N, 2 + 2P]   an example per row: tokens of A, label, P positions, the ids shown there
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many
from ordsmed.data.pair_examples import Pairs, Style
from ordsmed.data.pairs import LABELLED, PairRows, TokenRanges
from ordsmed.data.rows import Blend
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints

GIVEN, NO_LABEL = ".given.bin", -1


def beside(prefix: Path, width: int, documents: int) -> NDArray[np.int32]:
    path = prefix.with_name(prefix.name + GIVEN)
    if not path.is_file() or path.stat().st_size != 4 * width * documents:
        raise DataError(path, "truncated or missing", f"{many(documents, 'row')} of {width} numbers", "encode again")
    return np.memmap(path, "<i4", "r", shape=(documents, width))


class ImportedRows(PairRows):
    """Rows of two segments as the records have them, in a different order each epoch."""

    def __init__(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        *,
        length: int,
        start: int,
        stop: int,
        pad: int,
        style: Style,
        key: tuple[object, ...],
    ) -> None:
        self.sources, self.style, self.length = stores, style, length
        self.start, self.stop, self.pad = start, stop, pad
        for store in stores:
            if store.given is None:
                remedy = "encode TFRecords with `records = ...`, or remove `examples`"
                raise RecipeError("objective.examples", f"{store.prefix} was encoded from text", "records", remedy)
            if style in LABELLED and store.given[0, 1] == NO_LABEL:
                wrong = f"{store.prefix} holds ELECTRA's examples, without labels"
                raise RecipeError("objective.examples", wrong, "BERT's", "train rtd on them, or remove `examples`")
            if store.row_length > length:
                wrong = f"found {length}, but the rows of {store.prefix} have {store.row_length} tokens"
                raise RecipeError("phase.length", wrong, f"{store.row_length} or more")
        self.tables = [store.given for store in stores if store.given is not None]
        if len({table.shape[1] for table in self.tables}) > 1:
            raise RecipeError("data", "found records with different numbers of predictions", "the same")
        self.blend = Blend([len(table) for table in self.tables], weights, "given", *key)
        self.slots = (self.tables[0].shape[1] - 2) // 2

    def masks(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the masked positions of these rows (0: unused) and the ids shown there, [B, P] each."""
        source, row = self.blend.place(numbers)
        both = np.stack([self.tables[k][n, 2:] for k, n in zip(source.tolist(), row.tolist(), strict=True)])
        return both[:, : self.slots].astype(np.int64), both[:, self.slots :].astype(np.int64)

    def _examples(self, numbers: Ints) -> Iterator[tuple[int, Ints, Pairs]]:
        source, row = self.blend.place(numbers)
        for k in np.unique(source).tolist():
            at = np.flatnonzero(source == k)
            rows, starts = self.tables[k][row[at]], self.sources[k].document_starts
            begin, end = starts[row[at]], starts[row[at] + 1]
            middle = begin + rows[:, 0]
            yield k, at, Pairs(np.stack([begin, middle], 1), np.stack([middle, end], 1), rows[:, 1].astype(np.int64))

    def _pieces(self, source: int, examples: Pairs, numbers: Ints) -> TokenRanges:
        full = (examples.stop > examples.start).ravel()
        row, side = np.repeat(np.arange(len(examples)), 2), np.tile([0, 1], len(examples))
        return TokenRanges(row[full], side[full], examples.start.ravel()[full], examples.stop.ravel()[full])
