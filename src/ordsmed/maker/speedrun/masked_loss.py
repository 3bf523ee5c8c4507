"""The loss of a masked model on held-out text: 15 % of each row is masked, none of it kept or swapped.

Rows and masked positions depend only on the tokenizer and a seed, so they are equal for all models with this tokenizer.

[CLS] 126 pieces of one document [SEP]  ->  19 of them [MASK]  ->  mean of - log p of the masked pieces
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
from ordsmed.weights.trained_model import Trained

HIDE = 0.15
LENGTH = 128  # tokens of a row with special tokens; fewer if the model has fewer positions
ROWS = 500  # rows from each half of the documents
SEED = 1
TOGETHER = 25  # rows scored together


def masked_loss(trained: Trained, corpus: Path) -> float | None:
    """Return the loss in nats on a corpus's held-out documents; None if none of them is as long as a row."""
    scorer, longest = ways.scorer(trained, "masked"), trained.settings.longest()
    size = min(LENGTH, longest) - (longest - scorer.max_tokens)
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
    texts = (document.text for part in parts(corpus, "validation") for document in documents(part))
    for text in islice(texts, half, None, 2):
        pieces = scorer.cut([text])[0].pieces
        yield from (pieces[at : at + size] for at in range(0, len(pieces) - size + 1, size))


def _item(pieces: Ints, drawn: random.Random) -> Item:
    hidden = drawn.sample(range(len(pieces)), max(1, round(HIDE * len(pieces))))
    return Item(pieces, hidden=np.asarray(sorted(hidden), np.int64))
