"""Masking: so many places, only where it may, 80/10/10, words and spans whole, each code's habits; by number alone."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ordsmed.base import chance
from ordsmed.learn import masking
from ordsmed.learn.masking import amounts, choose, choose_spans, choose_words, corrupt, round_by_chance, slots
from ordsmed.learn.objectives import mlm
from ordsmed.learn.phases import Phase, Stretch
from ordsmed.learn.schedules import Ramp

MASK, SPECIAL, VOCABULARY = 4, 5, 1000  # ids below SPECIAL are special
WORDS = np.arange(SPECIAL, VOCABULARY)
flags = st.integers(1, 40).flatmap(lambda length: arrays(np.bool_, st.tuples(st.integers(1, 6), st.just(length))))
shares = st.floats(0.01, 0.99)


def numbers_of(allowed: np.ndarray, first: int = 0) -> np.ndarray:
    return np.arange(first, first + len(allowed))


def in_words(allowed: np.ndarray, seed: int) -> np.ndarray:
    continues = np.random.default_rng(seed).random(allowed.shape) < 0.45
    continues[:, 0] = False
    return continues


def words_of(allowed: np.ndarray, continues: np.ndarray) -> list[list[int]]:
    """The words of one row, one after the other."""
    found: list[list[int]] = []
    for place in np.flatnonzero(allowed):
        if found and continues[place] and found[-1][-1] == place - 1:
            found[-1].append(int(place))
        else:
            found.append([int(place)])
    return found


def test_slots() -> None:
    assert [slots(0.15, n) for n in (20, 100, 128, 512)] == [3, 15, 20, 77]
    assert slots(0.15, 1) == 1
    assert 0.07 * 100 > 7, "a little, in a machine's numbers"
    assert slots(0.07, 100) == 7


def test_amounts_by_hand() -> None:
    lengths = [0, 1, 3, 10, 20, 30, 100]
    allowed = np.arange(100) < np.asarray(lengths)[:, None]
    assert amounts(allowed, 0.15, 12).tolist() == [0, 1, 1, 2, 3, 4, 12]


@given(flags, shares)
def test_a_slot_for_every_prediction(allowed: np.ndarray, share: float) -> None:
    limit = slots(share, allowed.shape[1])
    amount, able = amounts(allowed, share, 10**6), allowed.sum(1)
    assert (amount <= limit).all()
    assert (amount == np.minimum(np.maximum(np.rint(able * share), 1), able)).all()


@given(flags, shares, st.integers(0, 2**64 - 1))
def test_so_many_of_the_allowed_places(allowed: np.ndarray, share: float, key: int) -> None:
    limit = slots(share, allowed.shape[1])
    amount = amounts(allowed, share, limit)
    places, weights = choose(allowed, amount, limit, key, numbers_of(allowed))
    assert places.shape == weights.shape == (len(allowed), limit)
    assert weights.dtype == np.float32
    for row in range(len(allowed)):
        used = weights[row] > 0
        assert set(weights[row]) <= {0.0, 1.0}
        assert used.sum() == amount[row]
        assert (np.diff(places[row][used]) > 0).all(), "in order, none twice"
        assert allowed[row, places[row][used]].all()
        assert not places[row][~used].any()
        assert (np.diff(used.astype(int)) <= 0).all(), "unused slots stand last"


@given(flags, shares, st.integers(0, 2**32), st.integers(0, 9))
def test_words_whole_and_never_too_many(allowed: np.ndarray, share: float, key: int, seed: int) -> None:
    limit, continues = slots(share, allowed.shape[1]), in_words(allowed, seed)
    amount = amounts(allowed, share, limit)
    places, weights = choose_words(allowed, continues, amount, limit, key, numbers_of(allowed))
    assert places.shape == weights.shape == (len(allowed), limit)
    for row in range(len(allowed)):
        chosen = places[row][weights[row] > 0].tolist()
        assert chosen == sorted(set(chosen))
        assert len(chosen) <= amount[row]
        words = words_of(allowed[row], continues[row])
        taken = [word for word in words if set(word) & set(chosen)]
        assert sorted(p for word in taken for p in word) == chosen, "a word is hidden whole or not at all"
        left = amount[row] - len(chosen)
        assert all(len(word) > left for word in words if word not in taken), "another word would have fitted"


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_a_row_has_its_own_masks_in_any_batch(unit: str) -> None:
    generator = np.random.default_rng(0)
    allowed, tokens = generator.random((30, 60)) < 0.9, generator.integers(SPECIAL, VOCABULARY, (30, 60))
    continues, limit = in_words(allowed, 1), slots(0.15, 60)

    def masked(rows: np.ndarray, numbers: np.ndarray, key: int = 7) -> tuple[np.ndarray, ...]:
        amount, heads = amounts(allowed[rows], 0.15, limit), None
        if unit == "word":
            chosen = choose_words(allowed[rows], continues[rows], amount, limit, key, numbers)
        elif unit == "span":
            *chosen, heads = choose_spans(  # type: ignore[assignment]
                allowed[rows], allowed[rows], continues[rows], amount, limit, key, numbers
            )
        else:
            chosen = choose(allowed[rows], amount, limit, key, numbers)
        shown = corrupt(tokens[rows], *chosen, key, numbers, mask=MASK, keep=0.1, swap=0.1, words=WORDS, heads=heads)
        return (*chosen, *shown)

    rows = np.arange(30)
    together = masked(rows, rows + 100)
    for some in (np.asarray([4]), np.asarray([29, 3, 17]), rows[::-1]):
        for mine, theirs in zip(masked(some, some + 100), together, strict=True):
            assert np.array_equal(mine, theirs[some])
    for other in (masked(rows, rows + 101), masked(rows, rows + 100, key=8), masked(rows, rows + (1 << 33))):
        assert (other[0] == together[0]).mean() < 0.5
        assert not np.array_equal(other[2], together[2])


@given(flags, shares, st.floats(0, 0.5), st.floats(0, 0.5), st.integers(0, 2**32))
def test_only_what_was_chosen_is_changed(allowed: np.ndarray, share: float, keep: float, swap: float, key: int) -> None:
    tokens = np.arange(allowed.size).reshape(allowed.shape) + SPECIAL
    limit, numbers = slots(share, allowed.shape[1]), numbers_of(allowed)
    places, weights = choose(allowed, amounts(allowed, share, limit), limit, key, numbers)
    before = tokens.copy()
    shown, targets = corrupt(tokens, places, weights, key, numbers, mask=MASK, keep=keep, swap=swap, words=WORDS)
    assert np.array_equal(tokens, before)
    chosen = np.zeros_like(allowed)
    row, slot = np.nonzero(weights)
    chosen[row, places[row, slot]] = True
    assert np.array_equal(shown[~chosen], tokens[~chosen])
    assert np.array_equal(targets[row, slot], tokens[row, places[row, slot]])
    assert all(s in (t, MASK) or s in WORDS for s, t in zip(shown[chosen], tokens[chosen], strict=True))


@pytest.mark.parametrize(("keep", "swap"), [(0.1, 0.1), (0.0, 0.0), (0.25, 0.5), (1.0, 0.0), (0.0, 1.0)])
def test_shares_of_mask_keep_and_swap(keep: float, swap: float) -> None:
    rows, length = 1500, 128
    tokens = np.full((rows, length), 7)  # no swap may be told from a kept token but one in 995
    numbers, allowed = np.arange(rows), np.ones((rows, length), np.bool_)
    allowed[:, 0] = allowed[:, -1] = False
    amount = amounts(allowed, 0.15, slots(0.15, length))
    chosen = choose(allowed, amount, slots(0.15, length), 3, numbers)
    shown, _ = corrupt(tokens, *chosen, 3, numbers, mask=MASK, keep=keep, swap=swap, words=WORDS)
    at = np.take_along_axis(shown, chosen[0], 1)[chosen[1] > 0]
    assert len(at) == 19 * rows
    found = {"mask": (at == MASK).mean(), "keep": (at == 7).mean(), "swap": ((at != MASK) & (at != 7)).mean()}
    wanted = {"mask": 1 - keep - swap, "keep": keep + swap / 995, "swap": swap * 994 / 995}
    assert found == pytest.approx(wanted, abs=0.01)
    if swap:
        swapped = at[(at != MASK) & (at != 7)]
        assert swapped.min() >= SPECIAL
        assert swapped.max() < VOCABULARY
        assert len(np.unique(swapped)) > 900


def test_every_place_is_chosen_about_as_often() -> None:
    rows, length = 20_000, 20
    allowed = np.ones((rows, length), np.bool_)
    limit = slots(0.15, length)
    places, weights = choose(allowed, amounts(allowed, 0.15, limit), limit, 11, np.arange(rows))
    assert weights.all()
    counts = np.bincount(places.ravel(), minlength=length)
    assert np.abs(counts / rows - 0.15).max() < 0.012
    pairs = np.bincount(places[:, 0] * length + places[:, 1], minlength=length**2)
    assert pairs.max() < rows / 190 * 3.5  # no two places go together


def spans_by_hand(
    row: np.ndarray, text: np.ndarray, continues: np.ndarray, amount: int, key: int, number: int
) -> dict[int, int]:
    """Place -> first place of its span, word by word, from the same draws."""
    words: list[list[int]] = []
    for place in np.flatnonzero(row):
        goes_on = words and words[-1][-1] == place - 1 and continues[place]
        words = [*words[:-1], [*words[-1], int(place)]] if goes_on else [*words, [int(place)]]
    shares = np.asarray([0.2 * 0.8**n for n in range(10)])
    steps = np.cumsum(shares / shares.sum())
    order = sorted(words, key=lambda word: float(chance.unit(key, masking.CHOOSE, number, word[0])))
    head: dict[int, int] = {}
    for anchor in order:
        many = 1 + int((float(chance.unit(key, masking.LENGTH, number, anchor[0])) >= steps[:-1]).sum())
        last = anchor[0]
        for word in words[words.index(anchor) :][:many]:
            follows = word is anchor or (word[0] - 1 == last and text[word[0]] and text[last])
            if not follows or word[0] in head or len(head) + len(word) > amount:
                break
            head |= dict.fromkeys(word, anchor[0])
            last = word[-1]
    return head


@given(flags, shares, st.integers(0, 2**32), st.integers(0, 9), st.floats(0.5, 1))
def test_spans_against_a_plain_loop(allowed: np.ndarray, share: float, key: int, seed: int, much: float) -> None:
    text = allowed & (np.random.default_rng(seed + 10).random(allowed.shape) < much)
    limit, continues = slots(share, allowed.shape[1]), in_words(allowed, seed) & text & np.roll(text, 1, axis=1)
    amount = amounts(allowed, share, limit)
    places, weights, heads = choose_spans(allowed, text, continues, amount, limit, key, numbers_of(allowed))
    assert places.shape == weights.shape == heads.shape == (len(allowed), limit)
    for row in range(len(allowed)):
        used = weights[row] > 0
        found = dict(zip(places[row][used].tolist(), heads[row][used].tolist(), strict=True))
        wanted = spans_by_hand(allowed[row], text[row], continues[row], int(amount[row]), key, row)
        assert found == wanted
        assert list(found) == sorted(found)
        assert not places[row][~used].any()


def test_lengths_of_spans() -> None:
    """Geometric with 0.2, cut at ten words: 3.8 on average."""
    found = np.bincount(masking._span_lengths(chance.unit(3, np.arange(10**6))), minlength=11)[1:] / 10**6
    shares = 0.2 * 0.8 ** np.arange(10)
    assert found == pytest.approx(shares / shares.sum(), abs=2e-3)
    assert (np.arange(1, 11) * found).sum() == pytest.approx(3.797, abs=0.01)
    ends = masking._span_lengths(np.asarray([0.0, 1 - 2**-53]))
    assert ends.tolist() == [1, 10]


def test_rounding_by_chance_has_no_bias() -> None:
    allowed = np.ones((40_000, 25), np.bool_)
    numbers = np.arange(len(allowed))
    found = amounts(allowed, 0.15, slots(0.15, 25), chances=round_by_chance(5, numbers))
    assert set(found) == {3, 4}
    assert found.mean() == pytest.approx(3.75, abs=0.01)
    assert (amounts(allowed, 0.15, slots(0.15, 25)) == 4).all()
    small = amounts(allowed[:, :2], 0.15, 1, chances=round_by_chance(6, numbers))
    assert small.mean() == pytest.approx(0.3, abs=0.01)  # none at all in most rows, as fairseq
    assert (amounts(allowed[:, :2], 0.15, 1) == 1).all()


def test_the_share_of_other_places() -> None:
    allowed = np.arange(40) < np.asarray([3, 20, 38])[:, None]
    row = np.arange(40) < np.asarray([5, 22, 40])[:, None]
    assert amounts(allowed, 0.5, 20, of=row).tolist() == [2, 11, 20]
    assert amounts(allowed[:1], 0.9, 36, of=np.ones((1, 40), np.bool_)).tolist() == [3], "no more than there are"
    assert amounts(allowed, np.asarray([0.9, 0.5, 0.1]), 36).tolist() == [3, 10, 4]


PAD, START, STOP, ONSET, TOKENS = 1, 0, 2, 700, 10**6  # ids from ONSET on go on the word before them
STUB: Any = SimpleNamespace(
    pad=PAD,
    start=START,
    stop=STOP,
    mask=MASK,
    vocabulary=VOCABULARY,
    special=frozenset(range(SPECIAL)),
    continues=lambda ids: (ids >= ONSET) & (np.arange(ids.shape[1]) > 0),
)


@functools.cache
def text_of(count: int) -> Any:
    """So many random ids in sentences of 5 to 44 and documents of 1 to 30 sentences."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(5, 45, count // 20)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    starts = np.append(starts[starts < count], count)
    borders = np.cumsum(generator.integers(1, 31, len(starts)))
    documents = np.unique(np.concatenate([[0], borders[borders < len(starts) - 1], [len(starts) - 1]]))
    tokens = generator.integers(SPECIAL, VOCABULARY, count).astype(np.uint16)
    tokens[starts[:-1]] = SPECIAL  # a sentence begins with a word
    return SimpleNamespace(tokens=tokens, starts=starts, document_starts=starts[documents])


class Masked:
    """All rows of a text once, before and after masking."""

    def __init__(self, length: int, stretch: Stretch | None = None, *, tokens: int = TOKENS, **how: Any) -> None:
        phase = Phase(steps=1, length=length, batch=1, learning_rate=1.0)
        more = {} if stretch is None else {"stretch": stretch}
        self.rows = mlm.Mlm(**how).rows([text_of(tokens)], [1.0], STUB, phase, 3, **more)
        self.numbers = np.arange(len(self.rows))
        batch = self.rows.batch(self.numbers)
        self.before, self.after = self.rows.plain.assembled(self.numbers), batch.tokens.numpy()
        assert batch.predicted_positions is not None
        self.used, self.places = batch.weights.numpy() > 0, batch.predicted_positions.numpy()
        self.hidden = np.zeros(self.after.shape, np.bool_)
        np.put_along_axis(self.hidden, self.places, True, 1)
        self.hidden[:, 0] = (self.used & (self.places == 0)).any(1)
        self.real, self.inner = self.before.documents > 0, self.before.inner
        targets = np.take_along_axis(self.before.tokens, self.places, 1)
        assert (batch.targets.numpy()[self.used] == targets[self.used]).all()
        assert (self.after[~self.hidden] == self.before.tokens[~self.hidden]).all()
        assert not self.hidden[~self.real].any(), "padding is never asked for"

    def shares(self) -> tuple[float, float, float]:
        """Of what is hidden: shown as [MASK], as it is, as something else; a chance hit counts as kept."""
        shown, right = self.after[self.hidden], self.before.tokens[self.hidden]
        mask = shown == MASK
        return float(mask.mean()), float((shown == right).mean()), float((~mask & (shown != right)).mean())


def test_as_bert_masks() -> None:
    """Share of the whole row with its special tokens, which are never hidden; swapped for anything."""
    found = Masked(128, over="row", swap_from="all", cut="sentence")
    size, able = found.real.sum(1), found.inner.sum(1)
    wanted = [min(max(1, round(0.15 * int(n))), int(a)) for n, a in zip(size, able, strict=True)]
    assert found.hidden.sum(1).tolist() == wanted
    assert not found.hidden[~found.inner].any()
    assert found.shares() == pytest.approx((0.8 + 0.1 / 1000, 0.1, 0.1), abs=4e-3)
    swapped = found.after[found.hidden & (found.after != found.before.tokens) & (found.after != MASK)]
    counts = np.bincount(swapped, minlength=VOCABULARY)
    assert (counts[:SPECIAL] > 0).sum() == SPECIAL - 1, "special ids too, all but the mask's, which shows as a mask"
    assert counts[SPECIAL:].min() > 0


def test_as_roberta_masks() -> None:
    """Share of the whole row, rounded by chance; signs are hidden as often as text; swapped for text."""
    found = Masked(512, over="row", rounding="chance", signs=True, cut="full_sentences")
    size, hidden = found.real.sum(1), found.hidden.sum(1)
    assert set(hidden - np.floor(0.15 * size)) == {0, 1}
    assert hidden.sum() / size.sum() == pytest.approx(0.15, abs=2e-4)
    signs = found.real & ~found.inner
    assert found.hidden[signs].mean() == pytest.approx(0.15, abs=5e-3)
    assert found.hidden[:, 0].mean() == pytest.approx(0.15, abs=0.03)
    assert found.hidden[found.inner].mean() == pytest.approx(0.15, abs=1e-3)
    assert found.shares() == pytest.approx((0.8, 0.1, 0.1), abs=4e-3)
    swapped = found.after[found.hidden & (found.after != found.before.tokens) & (found.after != MASK)]
    counts = np.bincount(swapped, minlength=VOCABULARY)
    assert not counts[:SPECIAL].any()
    assert counts[SPECIAL:].std() / counts[SPECIAL:].mean() == pytest.approx(counts[SPECIAL:].mean() ** -0.5, rel=0.2)


@pytest.mark.parametrize("rounding", ["even", "chance"])
def test_as_we_mask(rounding: Any) -> None:
    """The share of a row's text alone."""
    found = Masked(128, rounding=rounding)
    assert not found.hidden[~found.inner].any()
    text, hidden = found.inner.sum(1), found.hidden.sum(1)
    if rounding == "even":
        assert hidden.tolist() == [max(1, round(0.15 * int(n))) for n in text]
    else:
        assert set(hidden - np.floor(0.15 * text)) == {0, 1}
        assert hidden.sum() / text.sum() == pytest.approx(0.15, abs=5e-4)
    assert found.shares() == pytest.approx((0.8, 0.1, 0.1), abs=4e-3)


@pytest.mark.parametrize("over", ["row", "text"])
def test_signs_may_be_hidden_whatever_the_share_is_taken_of(over: Any) -> None:
    """They are drawn as text is; the share of the text alone is a little less than that of the row."""
    found = Masked(512, tokens=40_000, signs=True, over=over, cut="full_sentences")
    of = found.real if over == "row" else found.inner
    assert found.hidden.sum(1).tolist() == [max(1, round(0.15 * int(n))) for n in of.sum(1)]
    signs = found.real & ~found.inner
    assert found.hidden[signs].mean() == pytest.approx(0.15, abs=0.03)
    assert found.hidden[found.inner].mean() == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize("tokens", [30_000, pytest.param(TOKENS, marks=pytest.mark.long)])
@pytest.mark.parametrize("unit", ["word", "span"])
@pytest.mark.parametrize("signs", [False, True])
def test_words_are_never_split(unit: Any, signs: bool, tokens: int) -> None:
    over: Any = "row" if signs else "text"
    found = Masked(512, tokens=tokens, unit=unit, signs=signs, over=over, cut="full_sentences")
    within = (found.before.tokens >= ONSET) & found.inner & np.roll(found.inner, 1, axis=1)
    within[:, 0] = False
    assert (found.hidden == np.roll(found.hidden, 1, axis=1))[within].all()
    of = found.real if signs else found.inner
    assert found.hidden.sum() / of.sum() == pytest.approx(0.15, abs=5e-3)
    assert found.hidden[found.real & ~found.inner].any() == signs
    assert found.shares() == pytest.approx((0.8, 0.1, 0.1), abs=0.01 if tokens == TOKENS else 0.05)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_a_piece_behind_a_sign_is_a_word_of_its_own(unit: Any) -> None:
    """Rows that begin within a word: what is left of it and the sign before it are hidden one without the other."""
    found = Masked(64, tokens=40_000, unit=unit, signs=True, over="row")
    behind = found.before.tokens[:, 1] >= ONSET
    apart = found.hidden[behind, 0] != found.hidden[behind, 1]
    assert behind.sum() > 100
    assert apart.any()


@pytest.mark.parametrize("tokens", [40_000, pytest.param(TOKENS, marks=pytest.mark.long)])
def test_spans_decide_once(tokens: int) -> None:
    """Spans in so many tokens: how long they are, and one choice of mask, keep, swap for each."""
    found, close = Masked(512, tokens=tokens, unit="span"), 0.01 if tokens == TOKENS else 0.04
    rows = found.before
    numbers, key, limit = found.numbers, found.rows.key, found.rows.slots
    amount = amounts(rows.inner, 0.15, limit)
    places, weights, heads = choose_spans(
        rows.inner, rows.inner, STUB.continues(rows.tokens), amount, limit, key, numbers
    )
    assert np.array_equal(places, found.places)
    shown, right = (np.take_along_axis(x, places, 1)[weights > 0] for x in (found.after, rows.tokens))
    span = (numbers[:, None] * 1000 + heads)[weights > 0]
    _, which = np.unique(span, return_inverse=True)
    masks, kept, many = np.bincount(which, shown == MASK), np.bincount(which, shown == right), np.bincount(which)
    assert ((masks == 0) | (masks == many)).all(), "a span is masked whole or not at all"
    assert (masks == many).mean() == pytest.approx(0.8, abs=close)
    swapped = (masks == 0) & (kept < many)
    assert swapped.mean() == pytest.approx(0.1, abs=close)
    assert (kept[swapped] / many[swapped]).mean() < close, "swapped tokens are drawn each"
    start = ~((rows.tokens >= ONSET) & np.roll(rows.inner, 1, axis=1))
    words = np.bincount(which, np.take_along_axis(start, places, 1)[weights > 0])
    assert words.max() == 10
    assert words.mean() == pytest.approx(3.3, abs=0.25)  # 3.8 less what neighbours, ends of text and the amount cut off
    documents = np.take_along_axis(rows.documents, places, 1)[weights > 0]
    low, high = np.full(len(many), 99), np.zeros(len(many), np.int64)
    np.minimum.at(low, which, documents)
    np.maximum.at(high, which, documents)
    assert (low == high).all(), "no span goes over the end of a document"


def test_a_ramp_is_followed() -> None:
    """Over the middle half of a run, from 0.3 at its start to 0.1 at its end."""
    length = 128
    rows = -(-TOKENS // (length - 2))
    found = Masked(length, Stretch(0.25, 0.75, rows), mask_prob=Ramp(0.3, 0.1))
    assert found.rows.slots == slots(0.3, length)
    at = 0.3 - 0.2 * (0.25 + 0.5 * found.numbers / rows)
    wanted = [max(1, round(float(x) * int(n))) for x, n in zip(at, found.inner.sum(1), strict=True)]
    assert found.hidden.sum(1).tolist() == wanted
    over = Masked(length, mask_prob=Ramp(0.3, 0.1))
    assert over.hidden.sum() / over.inner.sum() == pytest.approx(0.1, abs=2e-3), "validation goes by the run's end"


@pytest.mark.parametrize(
    ("mask_prob", "said"), [(1.5, "1.5"), (0.0, "0.0"), (Ramp(0.3, 1.0), "0.3 to 1.0"), (Ramp(0.0, 0.2), "0.0 to 0.2")]
)
def test_shares_that_cannot_be(mask_prob: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^mask_prob: found {said}; wanted a share above 0 and below 1$"):
        mlm.Mlm(mask_prob=mask_prob)


def test_unused_slots_stand_at_0_and_weigh_0() -> None:
    allowed, numbers = np.array([[False, True, True]]), np.array([4])
    for way in (masking.choose, masking.choose_again):
        places, weights = way(allowed, np.array([2]), 5, 7, numbers)
        assert places.shape == weights.shape == (1, 5)
        assert weights.tolist() == [[1, 1, 0, 0, 0]]
        assert set(places[0, :2].tolist()) <= {1, 2}
        assert places[0, 2:].tolist() == [0, 0, 0]
