"""The loss of a masked model at hidden places of held-out text: 15 % of each row, hidden at once, none kept or swapped.

Rows and places go by the tokenizer and a seed alone, so that all models with this tokenizer are asked the same.

[CLS] 126 pieces of one document [SEP]  ->  19 of them [MASK]  ->  - log of what stood there, the mean of all
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from ordsmed.base.say import say
from ordsmed.corpus.folder import documents, parts
from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.items import Ints, Item, Scorer
from ordsmed.weights.trained import Trained

HIDE = 0.15
LENGTH = 128  # of a row with its signs; of a model with fewer positions as many as it has
ROWS = 500  # of each half of the documents
SEED = 1
TOGETHER = 25  # rows


def masked_loss(trained: Trained, corpus: Path) -> float | None:
    """In nats, on the held-out documents of a corpus; None, and told, where none is as long as a row."""
    scorer, longest = ways.scorer(trained, "masked"), trained.settings.longest()
    size = min(LENGTH, longest) - (longest - scorer.room)
    total, count = 0.0, 0
    for half in range(2):
        drawn = random.Random(SEED)
        rows = (_item(row, drawn) for row in islice(_rows(scorer, corpus, half, size), ROWS))
        while items := list(islice(rows, TOGETHER)):
            with trained.within():
                scored = scorer.scores(items)
            total -= sum(scores.total for scores in scored)
            count += sum(len(scores.logs) for scores in scored)
    if not count:
        say(f"{corpus}: no held-out document has {size} tokens; masked_loss is left out")
    return total / count if count else None


def _rows(scorer: Scorer, corpus: Path, half: int, size: int) -> Iterator[Ints]:
    """Of every second document."""
    texts = (document.text for part in parts(corpus, "validation") for document in documents(part))
    for text in islice(texts, half, None, 2):
        pieces = scorer.cut([text])[0].pieces
        yield from (pieces[at : at + size] for at in range(0, len(pieces) - size + 1, size))


def _item(pieces: Ints, drawn: random.Random) -> Item:
    """A row and its hidden places, in their order."""
    hidden = drawn.sample(range(len(pieces)), max(1, round(HIDE * len(pieces))))
    return Item(pieces, hidden=np.asarray(sorted(hidden), np.int64))
