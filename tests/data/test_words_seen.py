"""Words seen: rows of every kind hold all words of a text once an epoch, and say so by their numbers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.makers import Source, make_store
from ordsmed.base.errors import DataError
from ordsmed.data.long_documents import LongDocuments
from ordsmed.data.pairs import PairRows
from ordsmed.data.rows import Frame, PackedRows, StreamRows
from ordsmed.data.sentences import LineRows
from ordsmed.data.store import Store
from ordsmed.data.word_counts import BABYLM, WordsSeen, label, passed

FRAME = Frame(length=12, before=2, after=3, pad=0)
END = 1
DOCUMENTS = [[5, 9, 3], [30], [2, 2, 2, 2], [17, 8], [1]]


class Counted(Source):
    """A source every token of which is a word, or `words` in each sentence."""

    words: np.ndarray


def source(words: list[int] | None = None) -> Any:
    made = Source.of(DOCUMENTS)
    counted = Counted(made.tokens, made.document_starts, made.starts)
    object.__setattr__(counted, "words", np.asarray(words or [s for d in DOCUMENTS for s in d], np.int32))
    return counted


def rows(kind: str, one: Any, seed: int = 5) -> Any:
    if kind in ("packed", "single", "fitted"):
        return PackedRows.of([one], [1.0], FRAME, seed, pack=kind != "single", sentences=kind == "fitted")
    if kind in ("lines", "lines alone"):
        return LineRows([one], [1.0], FRAME, seed, cross=kind == "lines")
    return StreamRows([one], [1.0], 11, END, seed, pack=kind == "stream")


KINDS = ["packed", "single", "fitted", "lines", "lines alone", "stream", "stream alone"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_the_words_it_is_taught(kind: str) -> None:
    made = rows(kind, source())
    count = WordsSeen.of(made)
    assert count is not None
    for number in range(len(made)):
        numbers = np.asarray([number])
        one = made.assembled(numbers)
        taught = one.tokens[:, 1:] if kind.startswith("stream") else one.tokens[one.inner]
        assert count(numbers) == int((taught >= 10).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_has_all_words_wherever_rows_are_cut(kind: str) -> None:
    words = [2, 4, 1, 7, 1, 1, 0, 2, 40, 3, 1]
    made = rows(kind, source(words))
    count, size = WordsSeen.of(made), len(rows(kind, source()))
    assert count is not None
    for epoch in range(3):
        assert count(np.arange(epoch * size, (epoch + 1) * size)) == sum(words)
    single = [count(np.asarray([n])) for n in range(size)]
    assert sum(single) == sum(words)
    assert min(single) >= 0


def test_words_within_a_sentence_come_with_its_tokens() -> None:
    count = WordsSeen.of(rows("packed", source([5, 9, 3, 7, 2, 2, 2, 2, 17, 8, 1])))
    assert count is not None
    before = count.before(0, np.asarray([0, 17, 17 + 4, 17 + 5, 17 + 29, 47, 81]))
    assert before.tolist() == [0, 17, 17, 18, 23, 24, 58]


def test_pairs_of_segments_are_counted(tmp_path: Path) -> None:
    made = PairRows([source()], [1.0], length=14, start=2, stop=3, pad=0, style="next", short=0.1, key=(3,))
    count, numbers = WordsSeen.of(made), np.arange(6)
    assert count is not None
    assert count(numbers) == int(made.assembled(numbers).inner.sum())


def test_long_documents_have_their_own_words(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store") / "train")
    np.save(tmp_path / "store/train.words.npy", np.arange(store.sequence_count, dtype=np.int32))
    long = LongDocuments.of(Store.open(tmp_path / "store/train"), 60)
    assert 0 < long.document_count < store.document_count
    of_document = [np.arange(*store.documents[n : n + 2]).sum() for n in long.numbers]
    assert long.words is not None
    assert int(long.words.sum()) == sum(of_document)
    assert len(long.words) == len(long.starts) - 1


def test_a_document_of_exactly_the_limit_is_long(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store") / "train")
    for limit in sorted(set(np.diff(store.document_starts).tolist()))[:3]:
        lengths = np.diff(LongDocuments.of(store, limit).document_starts)
        assert lengths.min() == limit
        assert len(lengths) == sum(np.diff(store.document_starts) >= limit)


def test_a_store_without_words_is_not_counted(tmp_path: Path) -> None:
    assert WordsSeen.of(rows("packed", Source.of(DOCUMENTS))) is None
    store = make_store(tmp_path / "store", documents=3)
    assert Store.open(store / "train").words is None
    np.save(store / "train.words.npy", np.zeros(2, np.int32))
    with pytest.raises(DataError, match=r"train\.words\.npy: 2 sequences; wanted \d+, the store's; encode again"):
        _ = Store.open(store / "train").words
    (store / "train.words.npy").write_bytes(b"none")
    with pytest.raises(DataError, match=r"train\.words\.npy: is damaged"):
        _ = Store.open(store / "train").words


def test_labels_are_those_of_babylm() -> None:
    assert [label(n) for n in BABYLM[:11]] == [*(f"chck_{n}M" for n in range(1, 11)), "chck_20M"]
    assert (len(BABYLM), label(BABYLM[-1]), label(1500)) == (28, "chck_1000M", "chck_1500")
    assert passed(BABYLM, 999_999, 2_000_000) == ["chck_1M", "chck_2M"]
    assert passed(BABYLM, 1_000_000, 1_999_999) == passed(BABYLM, None, 5) == []
