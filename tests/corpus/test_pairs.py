"""Pairs of texts: each kind from a document, one a passage; what is dropped is counted, and the same comes again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordsmed.base import run
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.corpus.folder import PartWriter
from ordsmed.corpus.pair_kinds import KINDS, DrawnPair, pairs_of
from ordsmed.corpus.pairs import Pairing, write_pairs
from ordsmed.text.document import Document
from ordsmed.text.sentences import rules

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PARAGRAPHS = [
    "The old bridge was built of grey stone here. It carries a road over the river still.",
    "Where do the newts of the pond sleep? They sleep under wet stones on its northern bank.",
    "The miller sells flour to all the villages. His dog guards the mill at night alone.",
]


def document(text: str = "\n".join(PARAGRAPHS), **meta: Any) -> Document:
    return Document(text, rules(text), "a:1", meta)


def drawn(kind: str, found: Document, length: int = 200, seed: int = 0) -> list[DrawnPair | None]:
    return list(pairs_of(found, "a:1", {kind: 1.0}, length, 5, seed))


def test_a_title_and_its_first_passage() -> None:
    [pair] = drawn("title", document(title="The village"))
    assert pair == DrawnPair("The village", "\n".join(PARAGRAPHS), "title", "a:1")
    assert drawn("title", document()) == drawn("title", document("Alone", title="Alone")) == [None]
    first, *rest = drawn("title", document(title="The village"), length=20)
    assert first is not None
    assert rest == [None, None]


def test_a_paragraph_and_the_next() -> None:
    """Of one passage, or of two where each has but one."""
    pairs = {(pair.anchor, pair.positive) for n in range(20) if (pair := drawn("paragraphs", document(), seed=n)[0])}
    assert pairs == {(PARAGRAPHS[0], PARAGRAPHS[1]), (PARAGRAPHS[1], PARAGRAPHS[2])}
    pair, last = drawn("paragraphs", document(), length=20)
    assert (pair and pair.anchor, pair and pair.positive, last) == (*PARAGRAPHS[:2], None)


def test_a_sentence_and_its_passage() -> None:
    """It is left in its passage once in ten times."""
    sentences = [sentence.strip() for sentence in document().sentences()]
    anchors, left_in = Counter[str](), 0
    for seed in range(200):
        [pair] = drawn("cloze", document(), seed=seed)
        assert pair is not None
        anchors[pair.anchor] += 1
        left_in += pair.anchor in pair.positive
        rest = [sentence for sentence in sentences if sentence != pair.anchor]
        assert pair.anchor in pair.positive or pair.positive.replace("\n", " ") == " ".join(rest)
    assert set(anchors) == set(sentences)
    assert min(anchors.values()) > 15
    assert 8 < left_in < 40


def test_two_crops() -> None:
    words = " ".join(NUMBERS * 10)
    sizes = []
    for seed in range(50):
        [pair] = drawn("crops", document(words), seed=seed)
        assert pair is not None
        assert all(side in words for side in (pair.anchor, pair.positive))
        sizes += [len(side.split()) for side in (pair.anchor, pair.positive)]
    assert (min(sizes), max(sizes)) == (pytest.approx(10, abs=2), pytest.approx(50, abs=2))
    assert drawn("crops", document(" ".join(NUMBERS[:9]))) == [None]


def test_a_question_and_what_follows() -> None:
    [pair] = drawn("questions", document())
    assert pair is not None
    assert pair.anchor == "Where do the newts of the pond sleep?"
    assert pair.positive == f"They sleep under wet stones on its northern bank.\n{PARAGRAPHS[2]}"
    assert drawn("questions", document("Why? Because it rained on all of them.")) == [None]
    [asked] = drawn("questions", document("It rained all May long.", title="Why so wet?"))
    assert (asked and asked.anchor, asked and asked.source) == ("Why so wet?", "questions")


def test_kinds_by_their_shares() -> None:
    """A kind that a passage cannot give leaves it to the others."""
    shares = {"cloze": 1.0, "crops": 3.0, "title": 100.0}
    kinds = Counter[str]()
    for seed in range(400):
        kinds += Counter(pair.source for pair in pairs_of(document(), "a:1", shares, 200, 5, seed) if pair)
    assert set(kinds) == {"cloze", "crops"}
    assert 0.65 < kinds["crops"] / kinds.total() < 0.85


def test_no_passage_is_longer_than_its_length() -> None:
    """Also where a text has no sentence at which to cut it, and in a script without blanks."""
    for text in (" ".join(NUMBERS * 30), "東" * 300):
        pairs = drawn("paragraphs", document(text), length=40)
        sides = [side for pair in pairs if pair for side in (pair.anchor, pair.positive)]
        assert len(sides) == 8
        assert {len(side.split()) if " " in side else len(side) for side in sides} <= {40, 20}


# ---- the files


def corpus(folder: Path, texts: dict[str, str]) -> str:
    """A finished corpus folder of these documents."""
    with PartWriter(folder / "train", 1000) as writer:
        for name, text in texts.items():
            found = Document(text, rules(text), name, {"title": f"About {name}"})
            writer.write(msgspec.json.encode(found) + b"\n", 1, 1, 1)
    run.Run(folder).set(verb="corpus", state="done", fingerprint=folder.name)
    return str(folder)


def text_of(number: int) -> str:
    """Three paragraphs that no other number has."""
    words = [f"{word}{number}" for word in NUMBERS]
    return "\n".join(f"{' '.join(words)} {n}. {' '.join(reversed(words))} {n * 7}." for n in range(3))


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> str:
    return corpus(tmp_path_factory.mktemp("pairs") / "corpus", {f"d{n}": text_of(n) for n in range(30)})


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_pairs_of_a_corpus(village: str, tmp_path: Path) -> None:
    told = write_pairs([village], str(tmp_path / "out" / "a.jsonl"), Pairing())
    pairs = lines(tmp_path / "out" / "a.jsonl")
    assert told[0] == f"{tmp_path}/out/a.jsonl: 30 pairs of 30 documents"
    assert [pair["document"] for pair in pairs] == [f"d{n}" for n in range(30)]
    assert {pair["source"] for pair in pairs} == {*KINDS} - {"questions"}
    assert all(pair["anchor"] and pair["positive"] for pair in pairs)
    assert [*(tmp_path / "out").iterdir()] == [tmp_path / "out" / "a.jsonl"]
    write_pairs([village], str(tmp_path / "b.jsonl"), Pairing())
    assert lines(tmp_path / "b.jsonl") == pairs
    write_pairs([village], str(tmp_path / "c.jsonl"), Pairing(seed=1))
    assert lines(tmp_path / "c.jsonl") != pairs
    fewer = write_pairs([village], str(tmp_path / "d.jsonl"), Pairing(most=7))
    assert [pair for pair in pairs if pair in lines(tmp_path / "d.jsonl")] == lines(tmp_path / "d.jsonl")
    assert len(lines(tmp_path / "d.jsonl")) == 7
    assert lines(tmp_path / "d.jsonl") != pairs[:7]
    assert fewer[-1] == "left out: 23 pairs over --max-pairs"
    with pytest.raises(RecipeError, match="exists"):
        write_pairs([village], str(tmp_path / "d.jsonl"), Pairing())
    write_pairs([village], str(tmp_path / "d.jsonl"), Pairing(most=3), anew=True)
    assert len(lines(tmp_path / "d.jsonl")) == 3


def test_what_is_left_out(tmp_path: Path) -> None:
    """A copy of a document with a word changed, a quoted one, a short one; anchors that come again."""
    copy = text_of(1).replace("nine1 ten1 2", "nine1 ten1 two")
    texts = {"a": text_of(0), "b": text_of(1), "c": copy, "d": "Short.", "e": text_of(2), "f": text_of(3)}
    source = corpus(tmp_path / "corpus", texts)
    (tmp_path / "test.tsv").write_text(f"question\t{text_of(2).splitlines()[1]}\n")
    how = Pairing(shares={"title": 1.0}, against=(str(tmp_path / "test.tsv"),), shortest=5)
    told = write_pairs([source], str(tmp_path / "out.jsonl"), how)
    assert [pair["document"] for pair in lines(tmp_path / "out.jsonl")] == ["a", "b", "d", "f"]
    assert told[-1] == ("left out: 1 pair quoting a file of --against, 1 pair with a positive nearly equal to another")
    everything = Pairing(shares={"title": 1.0}, near=0)
    write_pairs([source], str(tmp_path / "all.jsonl"), everything)
    assert len(lines(tmp_path / "all.jsonl")) == 6


def test_two_files_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("One newt swims.\n\nTwo newts swim.\nOne newt  swims.\n")
    (tmp_path / "no.txt").write_text("En salamander svømmer.\nTom.\nTo salamandere svømmer.\nNoe helt annet her.\n")
    sources = [str(tmp_path / "en.txt"), str(tmp_path / "no.txt")]
    told = write_pairs(sources, str(tmp_path / "out.jsonl"), Pairing())
    assert lines(tmp_path / "out.jsonl") == [
        {"anchor": english, "positive": norwegian, "document": f"en.txt:{line}", "source": "translation"}
        for english, norwegian, line in (
            ("One newt swims.", "En salamander svømmer.", 1),
            ("Two newts swim.", "To salamandere svømmer.", 3),
        )
    ]
    assert told[-1] == "left out: 1 line with an empty side, 1 pair with a repeated anchor"
    with pytest.raises(RecipeError, match="--length: found with two files"):
        write_pairs(sources, str(tmp_path / "b.jsonl"), Pairing(length=99))
    (tmp_path / "no.txt").write_text("En.\n")
    with pytest.raises(DataError, match=r"no.txt: ends at line 1, but .*en.txt continues"):
        write_pairs(sources, str(tmp_path / "b.jsonl"), Pairing())
    assert not (tmp_path / "b.jsonl").exists()


def test_a_corpus_that_gives_no_pair(tmp_path: Path) -> None:
    source = corpus(tmp_path / "corpus", {"a": "Short.", "b": "Also short."})
    with pytest.raises(DataError, match="gives no pair; wanted documents of several sentences; 2 passages too short"):
        write_pairs([source], str(tmp_path / "out.jsonl"), Pairing(shares={"cloze": 1.0}))
    with pytest.raises(DataError, match="has no documents in validation"):
        write_pairs([source], str(tmp_path / "out.jsonl"), Pairing(split="validation"))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"shares": {"cloz": 1.0}}, "--kinds: found cloz; wanted .*; did you mean `cloze`"),
        ({"shares": {"cloze": -1.0}}, "--kinds: found cloze=-1"),
        ({"shares": {"cloze": 0.0}}, "--kinds: found no share above 0"),
        ({"split": "dev"}, "--split: found dev"),
        ({"length": 19}, "--length: found 19; wanted 20 or more"),
        ({"near": 1.5}, "--near: found 1.5"),
    ],
)
def test_settings_that_cannot_be(how: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Pairing(**how)
