"""Pairs of sentences: which is likelier, ties, several candidates, and files that hold no pairs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.language_models import LEARNED, made, pairs_file
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.items import Item, Scores
from ordsmed.measure.likelihood.probe import Example, Finding
from ordsmed.measure.probes.minimal_pairs import MinimalPairs
from ordsmed.text.tokenizers import bytebpe

PAIRS = [("the newt swam", "the newts swam"), ("a cat sat on it", "a cat sat on"), ("it ran", "it ran and ran")]


def asked(tmp_path: Path, *files: Path, family: str = "gpt2", **how: Any) -> tuple[list[Any], Finding]:
    scorer = ways.scorer(made(family, tmp_path / family), how.get("way", ""))
    probe = MinimalPairs(files=tuple(map(str, files)), **how)
    examples = list(probe.examples(scorer))
    scores = iter(scorer.scores([item for one in examples for item in one.items]))
    records = [probe.record(one, [next(scores) for _ in one.items]) for one in examples]
    return records, probe.finding(records)


def lines(path: Path, *found: Any) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in found))
    return path


def test_the_likelier_one_is_right(tmp_path: Path) -> None:
    """By the sum over the sentence; the other way round the others are right."""
    one = pairs_file(tmp_path / "one.jsonl", PAIRS)
    other = pairs_file(tmp_path / "other.jsonl", [pair[::-1] for pair in PAIRS])
    records, found = asked(tmp_path, one)
    right = sum(good > bad for good, bad in (row.scores for row in records))
    assert found.facts == {"accuracy": pytest.approx(100 * right / 3), "pairs": 3, "right": right, "ties": 0}
    assert found.guessing == {"accuracy": 50.0}
    turned, back = asked(tmp_path, other)
    assert [record.scores[::-1] for record in turned] == [pytest.approx(record.scores, abs=1e-5) for record in records]
    assert back.facts["right"] == 3 - right
    told = [MinimalPairs().as_line(record)["right"] for record in (*records, *turned)]
    assert told == [good > bad for good, bad in (row.scores for row in (*records, *turned))]
    assert any(told)
    _, found = asked(tmp_path, one, other)
    assert found.facts["pairs"] == 6
    assert [found.facts[key] for key in ("accuracy", "paradigm_mean")] == pytest.approx([50, 50])
    # of two paradigms, each as far from the mean: (2 / 1 x 2 squares) ** 0.5 / 6
    assert found.errors["accuracy"] == pytest.approx(100 * 2 * abs(right - 1.5) / 6)


def test_a_space_stands_before_each_sentence(tmp_path: Path) -> None:
    """As lm-evaluation-harness has it; the scores are those of such files."""
    spaced = [tuple(f" {text}" for text in pair) for pair in PAIRS]
    plain, other = pairs_file(tmp_path / "one.jsonl", PAIRS), pairs_file(tmp_path / "other.jsonl", spaced)
    trained = replace(made("gpt2", tmp_path), tokenizer=bytebpe.ByteBpe(size=260).train([text for text, _ in PAIRS]))
    objective = LEARNED["gpt2"][1].build(LEARNED["gpt2"][0], trained.tokenizer)
    scorer = ways.scorer(replace(trained, objective=objective))
    items = [
        [item.pieces.tolist() for example in probe.examples(scorer) for item in example.items]
        for probe in (MinimalPairs((str(plain),), space=True), MinimalPairs((str(other),)), MinimalPairs((str(plain),)))
    ]
    assert items[0] == items[1] != items[2]


def test_ties_are_wrong_and_told(tmp_path: Path) -> None:
    """Words that the tokenizer does not know are one and the same."""
    path = pairs_file(tmp_path / "x.jsonl", [("a €", "a ¥"), ("€ ran", "¥ ran"), *PAIRS], UID="mine")
    records, found = asked(tmp_path, path)
    assert found.facts["ties"] == 2
    assert found.facts["right"] == sum(good - bad > 1e-6 for good, bad in (row.scores for row in records))
    probe = MinimalPairs()
    assert [probe.as_line(record)["tie"] for record in records] == [True, True, False, False, False]
    told = probe.as_line(records[0])
    assert told["right"] is False
    assert told == {
        "file": str(path),
        "line": 1,
        "paradigm": "mine",
        "good": told["bad"],
        "bad": told["bad"],
        "right": False,
        "tie": True,
    }


def test_equal_sentences_are_ties(tmp_path: Path) -> None:
    """Scored once, never right, and counted in one line, which says nothing of other ties."""
    same = [("the cat ran", "the cat ran"), ("a dog", "a dog")]
    one = pairs_file(tmp_path / "one.jsonl", [*PAIRS, *same])
    other = pairs_file(tmp_path / "other.jsonl", [same[0], ("a €", "a ¥"), *PAIRS])
    third = pairs_file(tmp_path / "third.jsonl", PAIRS)
    records, found = asked(tmp_path, one, other, third)
    assert [found.facts[key] for key in ("pairs", "ties")] == [13, 4]
    assert found.facts["right"] == 3 * asked(tmp_path, third)[1].facts["right"]
    assert found.note == (
        "equal sentences, which are never right: 2 of 5 pairs of one.jsonl, 1 of 5 pairs of other.jsonl"
    )
    assert asked(tmp_path, third)[1].note == ""
    told = MinimalPairs().as_line(records[3])
    assert told["good"] == told["bad"] < 0
    assert [told[key] for key in ("line", "right", "tie")] == [4, False, True]
    scorer = ways.scorer(made("gpt2", tmp_path / "gpt2"), "")
    assert [len(one.items) for one in MinimalPairs((str(one),)).examples(scorer)] == [2, 2, 2, 1, 1]


def test_a_candidate_equal_to_the_good_one(tmp_path: Path) -> None:
    """A tie where the good one is the best, else wrong."""
    texts = sorted(["it ran", "a cat sat on the old mat", "the dog"], key=len)
    rows = [{"good": good, "bad": texts} for good in texts]
    records, found = asked(tmp_path, lines(tmp_path / "x.jsonl", *rows, {"candidates": texts}))
    told = [MinimalPairs().as_line(record) for record in records[:3]]
    scores = [one["good"] for one in told]
    for one in told:
        assert one["bad"] == pytest.approx(scores, abs=1e-5)
    assert [one["tie"] for one in told] == [score == max(scores) for score in scores]
    assert [one["right"] for one in told] == [False] * 3
    assert [found.facts["ties"], found.guessing["accuracy"]] == [1, pytest.approx((3 * 25 + 100 / 3) / 4)]
    assert found.note.endswith(": 3 of 4 pairs of x.jsonl")


def test_scores_a_token(tmp_path: Path) -> None:
    path = pairs_file(tmp_path / "x.jsonl", PAIRS)
    whole, _ = asked(tmp_path, path)
    each, _ = asked(tmp_path, path, per="token")
    for one, other in zip(whole, each, strict=True):
        assert one.scores[1] < other.scores[1] < 0
    assert each[0].scores == pytest.approx([whole[0].scores[0] / 3, whole[0].scores[1] / 4])


def test_many_candidates(tmp_path: Path) -> None:
    """One of four by chance."""
    texts = ["it ran", "a cat", "the dog", "on it"]
    path = lines(tmp_path / "x.jsonl", {"good": texts[0], "bad": texts[1:]}, {"candidates": texts, "right": 2})
    records, found = asked(tmp_path, path)
    assert found.guessing == {"accuracy": 25.0}
    assert sorted(records[0].scores) == pytest.approx(sorted(records[1].scores), abs=1e-5)
    best = max(records[0].scores)
    assert found.facts["right"] == (records[0].scores[0] == best) + (
        records[1].scores[0] == pytest.approx(best, abs=1e-5)
    )


def test_other_names_of_the_two(tmp_path: Path) -> None:
    rows = [dict(zip(keys, PAIRS[0], strict=True)) for keys in (("sen", "wrong_sen"), ("good", "bad"))]
    records, _ = asked(tmp_path, lines(tmp_path / "x.jsonl", *rows))
    assert records[0].scores == pytest.approx(records[1].scores, abs=1e-5)
    table = tmp_path / "x.tsv"
    table.write_text("sen\twrong_sen\tverb\n" + "\t".join([*PAIRS[0], "swim"]) + "\n")
    assert asked(tmp_path, table)[0][0].scores == pytest.approx(records[0].scores, abs=1e-5)


def scores(*logs: float) -> Scores:
    return Scores(np.asarray(logs), np.zeros(len(logs), bool))


def test_babylm_sums_and_takes_ties_as_right() -> None:
    """By hand: a sum of -4 over two tokens against -4.8 over four; equal ones; the mean turned round."""
    probe, items = MinimalPairs(scoring="babylm"), (Item(np.asarray([1, 2])), Item(np.asarray([1, 2, 3, 4])))
    pairs = [
        (scores(-2, -2), scores(-1.2, -1.2, -1.2, -1.2)),
        (scores(-3, -3), scores(-1, -1, -2, -2)),
        (scores(-3, -4), scores(-1, -1, -1, -1)),
    ]
    records = [
        probe.record(Example(items, [[0, 1], 0, kind, f"x.jsonl:{n}"]), list(pair))
        for n, (kind, pair) in enumerate(zip("aab", pairs, strict=True), 1)
    ]
    assert records[0].to_list() == ["a", "x.jsonl:1", -4.0, pytest.approx(-4.8), [-2.0, pytest.approx(-1.2)]]
    facts = probe.finding(records).facts
    assert [facts[name] for name in ("right", "ties", "pairs")] == [2, 1, 3]
    assert [facts["babylm"], facts["paradigm_mean"], facts["per_token"]] == pytest.approx([200 / 3, 50, 0])
    assert [probe.as_line(record)["right"] for record in records] == [True, True, False]
    assert [probe.as_line(record)["tie"] for record in records] == [False, True, False]


def test_babylm_counts_equal_sentences_as_right(tmp_path: Path) -> None:
    path = pairs_file(tmp_path / "x.jsonl", [*PAIRS, ("it ran", "it ran"), ("a €", "a ¥")])
    own, official = asked(tmp_path, path)[1], asked(tmp_path, path, scoring="babylm")[1]
    assert [own.facts["ties"], official.facts["ties"]] == [2, 2]
    assert official.facts["right"] == own.facts["right"] + 2
    assert official.note == "equal sentences, which are ties: 1 of 5 pairs of x.jsonl"


def test_babylm_scores_no_first_token_without_a_sign(tmp_path: Path) -> None:
    """Of a causal model whose tokenizer puts none; a model of masks is asked about all."""
    path = pairs_file(tmp_path / "x.jsonl", PAIRS)
    trained = made("gpt2", tmp_path / "gpt2")
    trained.tokenizer.config["add_bos_token"] = False
    scorer = ways.scorer(trained)
    probe = MinimalPairs((str(path),), scoring="babylm")
    [first, *_] = probe.examples(scorer)
    good = first.items[0].pieces
    with torch.no_grad():
        states = trained.objective.networks()[""].modules["model"](
            torch.from_numpy(good)[None], torch.arange(len(good))[None]
        )
        logs = trained.objective.networks()[""].modules["head"](states)[0].log_softmax(-1)
    by_hand = sum(float(logs[n, good[n + 1]]) for n in range(len(good) - 1))
    assert probe.record(first, scorer.scores(list(first.items))).scores[0] == pytest.approx(by_hand, abs=1e-4)
    assert "the first token is not scored" in probe.fits(scorer, "")
    (tmp_path / "short.jsonl").write_text('{"good": "it ran", "bad": "it"}\n')
    with pytest.raises(DataError, match=r"short\.jsonl:1: 'it' has one token, without context; wanted two"):
        list(MinimalPairs((str(tmp_path / "short.jsonl"),), scoring="babylm").examples(scorer))
    bert = ways.scorer(made("bert", tmp_path / "bert"))
    assert [item.first for one in probe.examples(bert) for item in one.items] == [0] * 6


def test_babylm_beside_what_is_not_its_own_is_refused(tmp_path: Path) -> None:
    for how, said in ({"per": "token"}, "per=token"), ({"space": True}, "space=true"):
        with pytest.raises(ValueError, match=f"scoring: found babylm with {said}, which it does not support"):
            MinimalPairs(scoring="babylm", **how)
    scorer = ways.scorer(made("electra", tmp_path))
    with pytest.raises(RecipeError, match="x: scoring=babylm of a model that is read the way `detect`; wanted causal"):
        MinimalPairs(scoring="babylm").fits(scorer, "x")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ": is empty; wanted a JSON object a line"),
        (["{"], ":1: not JSON"),
        (['{"good": ' + "[" * 100_000], ":1: not JSON"),
        (["[1]"], ":1: found list; wanted a JSON object a line"),
        ([{"text": "a"}], ":1: holds no pair (keys: text); wanted `sentence_good` and `sentence_bad` or `good`"),
        ([{"good": "a"}], ":1: has no key `bad` (keys: good); wanted `bad`, a text"),
        ([{"good": "a", "bad": " "}], ":1: `bad` is empty; wanted a text"),
        ([{"good": "a", "bad": 3}], ":1: `bad` is not a text"),
        ([{"good": "a", "bad": "a"}] * 2, ": the good sentence of every pair is equal to a bad one; wanted pairs that"),
        ([{"candidates": ["a", "b", "a"], "right": 2}], ": the good sentence of every pair is equal to a bad one"),
        ([{"candidates": ["a"]}], ":1: `candidates` and `right` form no choice"),
        ([{"good": "a " * 40, "bad": "b"}], ":1: 'a a a a a a a a a a a a a a a a a a a...' has 40 tokens; wanted at"),
        ([{"good": "a", "bad": "\ud800"}], ":1: invalid UTF-8 at character 1"),
    ],
)
def test_files_of_another_kind_are_refused(rows: list[Any], said: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", *rows)
    with pytest.raises(DataError) as error:
        asked(tmp_path, path)
    assert str(error.value).startswith(f"{path}{said}")


def test_a_table_of_a_head_alone_has_no_equal_pairs(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("good\tbad\n")
    assert (
        list(MinimalPairs((str(tmp_path / "x.tsv"),)).examples(ways.scorer(made("gpt2", tmp_path / "gpt2"), ""))) == []
    )


def test_invalid_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"good": "a", "bad": "\xff"}\n')
    with pytest.raises(DataError, match=r"x\.jsonl: byte 22: invalid UTF-8"):
        asked(tmp_path, tmp_path / "x.jsonl")
