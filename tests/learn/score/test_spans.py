"""Spans: tags of every scheme are read as the usual scorer reads them, and scored with its numbers."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from ordsmed.learn.score import spans
from ordsmed.learn.score.spans import Scheme

WRITTEN = {
    "IOB1": "I-A I-A B-A O I-B I-A O I-B",
    "IOB2": "B-A I-A B-A O B-B B-A O B-B",
    "IOBES": "B-A E-A S-A O S-B S-A O S-B",
    "BILOU": "B-A L-A U-A O U-B U-A O U-B",
}
MEANT = [("A", 0, 1), ("A", 2, 2), ("B", 4, 4), ("A", 5, 5), ("B", 7, 7)]


def drawn(letters: str, count: int, seed: int) -> list[list[str]]:
    """Sentences of tags in any order, so most are malformed."""
    chance = random.Random(seed)
    tags = ["O", "O", *(f"{letter}-{kind}" for letter in letters for kind in ("A", "B-c"))]
    return [chance.choices(tags, k=chance.randint(0, 12)) for _ in range(count)]


@pytest.mark.parametrize("name", get_args(Scheme))
def test_schemes_are_read_told_apart_and_turned_into_each_other(name: Scheme) -> None:
    tags = WRITTEN[name].split()
    assert spans.spans(tags) == MEANT
    assert spans.scheme([["O"], tags]) == name
    assert spans.is_spans(tags)
    for other in WRITTEN.values():
        assert spans.converted(other.split(), name) == tags


@pytest.mark.parametrize(
    ("tags", "lenient", "strict"),
    [
        ("O I-A I-A", [("A", 1, 2)], []),
        ("B-A I-B", [("A", 0, 0), ("B", 1, 1)], [("A", 0, 0)]),
        ("B-A I-B I-A", [("A", 0, 0), ("B", 1, 1), ("A", 2, 2)], [("A", 0, 0)]),
        ("I I O B I B", [("_", 0, 1), ("_", 3, 4), ("_", 5, 5)], [("_", 3, 4), ("_", 5, 5)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 1)], [("creative-work", 0, 1)]),
        ("", [], []),
    ],
)
def test_malformed_sequences(tags: str, lenient: list[object], strict: list[object]) -> None:
    assert spans.spans(tags.split()) == lenient
    assert spans.spans(tags.split(), "IOB2") == strict
    assert spans.spans(spans.converted(tags.split(), "IOB2"), "IOB2") == lenient


def test_letters_of_another_scheme_mark_no_strict_span() -> None:
    assert spans.spans(["S-A", "B-A", "E-A"], "IOB2") == [("A", 1, 1)]
    assert spans.spans(["U-A", "L-A", "I-A"], "IOB1") == [("A", 2, 2)]
    assert spans.spans(["U-A", "S-A"], "IOBES") == [("A", 1, 1)]
    assert spans.spans(["U-A", "S-A", "B-A", "E-A"], "BILOU") == [("A", 0, 0)]


def test_a_span_without_its_end() -> None:
    tags = ["B-A", "I-A", "O", "S-A", "E-A", "I-B", "E-B", "B-A", "E-A"]
    assert spans.spans(tags) == [("A", 0, 1), ("A", 3, 3), ("A", 4, 4), ("B", 5, 6), ("A", 7, 8)]
    assert spans.spans(tags, "IOBES") == [("A", 3, 3), ("A", 7, 8)]
    assert spans.scheme([tags]) == "IOBES"
    assert spans.scheme([["B-A", "L-A", "L-A"]]) == "BILOU"
    assert spans.scheme([["B-A", "I-B"]]) == "IOB2"
    assert spans.scheme([["O"]]) == "IOB2"


def test_labels_that_are_none() -> None:
    assert spans.is_spans(["O", "B", "I"])
    for labels in (["NOUN", "O"], ["O"], [], ["B-A", "I"], ["B-A", "X-A"], ["O", "B-"]):
        assert not spans.is_spans(labels)
    with pytest.raises(ValueError, match="tag: found 'NOUN'; wanted O, or B, I"):
        spans.spans(["B-A", "NOUN"])


def test_scores() -> None:
    gold = [["B-A", "I-A", "O", "B-B"], ["B-A", "O"], []]
    found = spans.span_f1(gold, [["B-A", "I-A", "O", "B-A"], ["O", "B-A"], []])
    assert (found["right"], found["predicted"], found["gold"]) == (1, 3, 3)
    assert [found[name] for name in ("precision", "recall", "f1")] == pytest.approx([1 / 3] * 3)
    assert list(found["types"]) == ["A", "B"]
    assert found["types"]["A"]["f1"] == pytest.approx(0.4)
    assert (found["types"]["B"]["gold"], found["types"]["B"]["f1"]) == (1, 0)
    assert spans.span_f1([["O"]], [["O"]])["f1"] == 0
    assert spans.accuracy([["N", "V"], ["N"]], [["N", "N"], ["N"]]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError):
        spans.span_f1([["O", "O"]], [["O"]])


def test_words_without_a_gold_tag_do_not_count() -> None:
    found = spans.span_f1([["B-A", None, "B-A"]], [["B-A", "B-A", "I-A"]])
    assert (found["predicted"], found["f1"]) == (2, 1)
    assert spans.accuracy([["N", None]], [["N", "V"]]) == 1
    assert spans.accuracy([[None]], [["V"]]) == 0


@pytest.mark.parametrize(
    ("letters", "strict"),
    [("I", None), ("BI", None), ("BIES", None), ("BI", "IOB1"), ("BI", "IOB2"), ("BIES", "IOBES"), ("BILU", "BILOU")],
)
@pytest.mark.parametrize("seed", range(4))
def test_the_numbers_of_seqeval(letters: str, strict: Scheme | None, seed: int) -> None:
    pytest.importorskip("seqeval")
    from seqeval import scheme
    from seqeval.metrics import accuracy_score, classification_report

    gold, chance = drawn(letters, 200, seed), random.Random(seed)
    known = sorted({tag for tags in gold for tag in tags})
    predicted = [[tag if chance.random() < 0.7 else chance.choice(known) for tag in tags] for tags in gold]
    asked = {"mode": "strict", "scheme": getattr(scheme, strict)} if strict else {}
    theirs = classification_report(gold, predicted, output_dict=True, zero_division=0, **asked)
    ours = spans.span_f1(gold, predicted, strict)
    assert 0 < ours["f1"] < 1
    assert set(theirs) == {*ours["types"], "micro avg", "macro avg", "weighted avg"}
    for name, rates in {"micro avg": ours, **ours["types"]}.items():
        found = [rates[rate] for rate in ("precision", "recall", "f1", "gold")]
        assert found == pytest.approx(list(theirs[name].values()))
    assert spans.accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
