"""Masking: choose the predicted positions of a batch's rows, and the tokens shown at them instead.

    tokens [B, T] --choose--> positions [B, P], weights [B, P] --corrupt--> masked tokens [B, T], targets [B, P]

All random numbers are `chance.unit(key, use, row number, position)`, so a row is masked the same way in any batch.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.data.windows import run

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
Shares = NDArray[np.float64]
CHOOSE, KIND, WORD, ROUND, LENGTH = 1, 2, 3, 4, 5  # uses of `chance`: draws for different uses are independent
STOP, MAX_WORDS = 0.2, 10  # of spans: probability that a word is the last, and maximum words (SpanBERT)


def slots(share: float, length: int) -> int:
    """Return the number of prediction slots of a row, the same for all rows: `share` of a full row, rounded up."""
    return max(1, math.ceil(round(share * length, 6)))


def amounts(
    allowed: Flags, share: float | Shares, limit: int, *, of: Flags | None = None, chances: Shares | None = None
) -> Ids:
    """Return the number of predicted positions of each row: `share` of the allowed ones, at least 1.

    Args:
        allowed: positions that may be predicted.
        share: of these positions, or of `of`.
        limit: the maximum.
        of: positions that the share is taken of; by default the allowed ones.
        chances: numbers in [0, 1) that are added before truncating; by default, numbers are rounded half to even.
    """
    able = allowed.sum(1)
    wanted = (able if of is None or of is allowed else of.sum(1)) * share
    rounded = np.clip(np.rint(wanted), 1, limit) if chances is None else np.minimum(wanted + chances, limit)
    counts: NDArray[np.int64] = np.minimum(rounded, able).astype(np.int64)
    return counts


def round_by_chance(key: int, numbers: Ids) -> Shares:
    """Return the `chances` of `amounts` with which the mean over rows is exactly the share, as in fairseq."""
    return chance.unit(key, ROUND, numbers)


def choose(allowed: Flags, amount: Ids, limit: int, key: int, numbers: Ids) -> tuple[Ids, NDArray[np.float32]]:
    """Choose `amount` of the allowed positions of each row, without replacement, in increasing order.

    Return positions [B, limit] and weights [B, limit]; unused slots have position 0 and weight 0.
    """
    height = np.where(allowed, chance.unit(key, CHOOSE, numbers[:, None], np.arange(allowed.shape[1])), 2.0)
    positions = np.argpartition(height, min(limit, allowed.shape[1] - 1), axis=1)[:, :limit]
    positions = np.take_along_axis(positions, np.argsort(np.take_along_axis(height, positions, 1), axis=1), 1)
    return _sorted_slots(positions, np.arange(positions.shape[1]) < amount[:, None], limit)


def choose_again(allowed: Flags, amount: Ids, limit: int, key: int, numbers: Ids) -> tuple[Ids, NDArray[np.float32]]:
    """Choose `amount` allowed positions with replacement, as ELECTRA's code does."""
    able = allowed.sum(1, keepdims=True)
    turn = (chance.unit(key, CHOOSE, numbers[:, None], np.arange(limit)) * able).astype(np.int64)
    order = np.argsort(~allowed, axis=1, kind="stable")
    used = (np.arange(limit) < amount[:, None]) & (able > 0)
    return np.where(used, np.take_along_axis(order, turn, 1), 0), used.astype(np.float32)


def choose_words(
    allowed: Flags, continues: Flags, amount: Ids, limit: int, key: int, numbers: Ids
) -> tuple[Ids, NDArray[np.float32]]:
    """Choose whole words until `amount` is reached; a word that would exceed it is skipped, as in BERT."""
    rows = len(allowed)
    starts = allowed & ~(continues & np.roll(allowed, 1, axis=1))
    positions, used = np.zeros((rows, limit), np.int64), np.zeros((rows, limit), np.bool_)
    for row in range(rows):
        first = np.flatnonzero(starts[row])
        word = np.cumsum(starts[row]) - 1
        sizes = np.bincount(word[allowed[row]], minlength=len(first))
        words = _take(sizes, np.argsort(chance.unit(key, CHOOSE, int(numbers[row]), first)), int(amount[row]))
        at = np.repeat(first[words], sizes[words]) + run(sizes[words])
        positions[row, : len(at)], used[row, : len(at)] = at, True
    return _sorted_slots(positions, used, limit)


def choose_spans(
    allowed: Flags, text: Flags, continues: Flags, amount: Ids, limit: int, key: int, numbers: Ids
) -> tuple[Ids, NDArray[np.float32], Ids]:
    """Choose spans of whole words until `amount` is reached (SpanBERT, Joshi et al. 2020).

    Return positions, weights, and for each position the first position of its span. The number of words in a span
    follows a geometric distribution truncated at MAX_WORDS. A span is shorter where the text, the remaining amount, or
    the words not yet chosen end. A word that would exceed the amount is skipped. Positions outside `text` join no span.
    """
    rows = len(allowed)
    starts = allowed & ~(continues & np.roll(allowed, 1, axis=1))
    positions, heads = np.zeros((rows, limit), np.int64), np.zeros((rows, limit), np.int64)
    used = np.zeros((rows, limit), np.bool_)
    for row in range(rows):
        first, number = np.flatnonzero(starts[row]), int(numbers[row])
        word = np.cumsum(starts[row]) - 1
        sizes = np.bincount(word[allowed[row]], minlength=len(first))
        joined = np.append((first[1:] == (first + sizes)[:-1]) & text[row, first[1:]] & text[row, first[:-1]], False)
        wanted = _span_lengths(chance.unit(key, LENGTH, number, first))
        order = np.argsort(chance.unit(key, CHOOSE, number, first))
        words, head = _take_spans(sizes, joined, wanted, order, int(amount[row]))
        at = np.repeat(first[words], sizes[words]) + run(sizes[words])
        order_in_row = np.argsort(at)
        positions[row, : len(at)], used[row, : len(at)] = at[order_in_row], True
        heads[row, : len(at)] = np.repeat(first[head], sizes[words])[order_in_row]
    return *_sorted_slots(positions, used, limit), heads


def corrupt(
    tokens: Ids,
    positions: Ids,
    weights: NDArray[np.float32],
    key: int,
    numbers: Ids,
    *,
    mask: int,
    keep: float,
    swap: float,
    words: Ids,
    heads: Ids | None = None,
) -> tuple[Ids, Ids]:
    """Replace the chosen tokens by [MASK], except a share `keep`, and a share `swap` that becomes any of `words`.

    Return the corrupted tokens [B, T] and the targets [B, P]. Chosen positions with the same entry in `heads`, such as
    the first position of their span, are replaced in the same way; by default each position is drawn separately.
    """
    targets = np.take_along_axis(tokens, positions, 1)
    kind = chance.unit(key, KIND, numbers[:, None], positions if heads is None else heads)
    word = words[(chance.unit(key, WORD, numbers[:, None], positions) * len(words)).astype(np.int64)]
    shown = np.where(kind < keep, targets, np.where(kind < keep + swap, word, mask))
    changed = tokens.copy()
    row, slot = np.nonzero(weights)
    changed[row, positions[row, slot]] = shown[row, slot]
    return changed, targets


def _take(sizes: Ids, order: Ids, amount: int) -> Ids:
    words, left = [], amount
    for word in order.tolist():
        if sizes[word] <= left:
            words.append(word)
            left -= int(sizes[word])
            if not left:
                break
    return np.asarray(words, np.int64)


def _take_spans(sizes: Ids, joined: Flags, wanted: Ids, order: Ids, amount: int) -> tuple[Ids, Ids]:
    """Return the chosen words and the first word of the span of each.

    Args:
        sizes: positions of each word.
        joined: whether the next word follows without a gap.
        wanted: maximum words of a span that starts at each word.
        order: words in the order in which spans are tried.
        amount: maximum positions.
    """
    size, follows, many = sizes.tolist(), joined.tolist(), wanted.tolist()
    head: dict[int, int] = {}
    left = amount
    for anchor in order.tolist():
        if not left:
            break
        word = anchor
        while word not in head and size[word] <= left and word < anchor + many[anchor]:
            head[word] = anchor
            left -= size[word]
            if not follows[word]:
                break
            word += 1
    return np.fromiter(head, np.int64, len(head)), np.fromiter(head.values(), np.int64, len(head))


def _span_lengths(chances: Shares) -> Ids:
    """Draw the numbers of words of spans, 1 to MAX_WORDS, from a truncated geometric distribution with mean 3.8."""
    within = 1 - (1 - STOP) ** MAX_WORDS  # probability that an untruncated span is short enough
    drawn = 1 + np.floor(np.log1p(-chances * within) / math.log(1 - STOP)).astype(np.int64)
    return np.minimum(drawn, MAX_WORDS)


def _sorted_slots(positions: Ids, used: Flags, limit: int) -> tuple[Ids, NDArray[np.float32]]:
    """Return used positions in increasing order, then unused slots, and the weights of both."""
    last = np.iinfo(np.int64).max  # unused slots sort after all positions
    ordered = np.sort(np.where(used, positions, last), axis=1)
    weights = (ordered < last).astype(np.float32)
    ordered = np.where(weights > 0, ordered, 0)
    if ordered.shape[1] < limit:
        unused = ((0, 0), (0, limit - ordered.shape[1]))
        ordered, weights = np.pad(ordered, unused), np.pad(weights, unused)
    return ordered, weights
