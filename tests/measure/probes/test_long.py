"""Positions and needle: what of a long text is asked, in which bins; what is found of models that know or know not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.measure.likelihood.items import Item, Scores
from ordsmed.measure.probes.needle import Needle
from ordsmed.measure.probes.positions import Positions
from ordsmed.text.tokenizer import Tokenizer


class Reader:
    """A scorer whose log-probabilities depend on the position; with `remembers`, also on earlier words."""

    chained = by_line = False
    start_tokens = None

    def __init__(self, way: str, room: int, remembers: bool = False) -> None:
        self.way, self.max_tokens, self.remembers, self.tokenizer = way, room, remembers, words()

    def cut(self, texts: list[str]) -> list[Item]:
        return [Item(np.asarray(self.tokenizer.encode_batch([text])[0], np.int64)) for text in texts]

    def spelled(self, text: str, item: Item) -> int:
        return 0

    def scores(self, item: Item) -> Scores:
        at = np.arange(item.first, len(item)) if item.hidden is None else item.hidden
        if not self.remembers:
            return Scores(np.where(at < 128, -4.0, -2.0), np.zeros(len(at), bool))
        known = np.asarray([item.pieces[n] in item.pieces[:4] for n in at])
        return Scores(np.where(known, -0.1, -5.0), known)


def words() -> Tokenizer:
    folder = Path(FOLDER["at"])
    names = [f"{a}{b}word" for a in "abcdefghijkl" for b in "abcdefghijkl"]
    path = folder / "vocab.txt"
    path.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "secret", "is", ".", *names]) + "\n"
    )
    return Tokenizer.load(path)


FOLDER: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def text(tmp_path: Path) -> Path:
    """Of 1,100 words of five letters, a byte of white space between, after a short one of 20."""
    FOLDER["at"] = tmp_path
    chance = np.random.default_rng(0)
    long = " ".join(f"{'abcdefghijkl'[a]}{'abcdefghijkl'[b]}word" for a, b in chance.integers(0, 12, (1_100, 2)))
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": long}) + "\n" + json.dumps({"text": long[:140]}) + "\n")
    return path


def asked(probe: Any, reader: Reader) -> list[Any]:
    return [
        probe.record(example, [reader.scores(item) for item in example.items]) for example in probe.examples(reader)
    ]


@pytest.mark.parametrize("way", ["masked", "causal"])
def test_bits_by_where_a_byte_stands(text: Path, way: str) -> None:
    probe, reader = Positions(files=(str(text),), window=512, short=100), Reader(way, 600)
    assert probe.fits(reader, "p").startswith("consecutive windows of 512 tokens")
    records = asked(probe, reader)
    facts = probe.finding(records).facts
    bits = 1 / np.log(2) / ((1_100 + 20) * 7 - 2) * 1_120  # a token's nats, by bytes
    assert facts["documents"] == 2
    assert facts["bytes"] == 1_100 * 7 - 1 + 140
    for name, nats in (("short", 4), ("1_to_128", 4), ("129_to_256", 2), ("257_to_512", 2)):
        assert facts[f"bits_per_byte_{name}"] == pytest.approx(nats * bits, rel=2e-3)
    hidden = [item.hidden for example in probe.examples(reader) for item in example.items]
    if way == "masked":
        assert facts["scored"] == sum(round(0.15 * n) for n in (512, 512, 76, 20))
        assert not np.array_equal(hidden[0], hidden[2]), "other tokens of every window"
        assert all(
            np.array_equal(a, b)
            for a, b in zip(hidden, [i.hidden for e in probe.examples(reader) for i in e.items], strict=True)
        )
    else:
        assert facts["scored"] == 511 + 511 + 75 + 19
    assert sum(probe.compared(records)[0].values.values()) == pytest.approx(sum(probe.as_line(records[0]).values()))
    with pytest.raises(RecipeError, match=r"p\.window: found 512; wanted at most 511"):
        probe.fits(Reader(way, 511), "p")


def test_a_needle_is_found_by_who_remembers(text: Path) -> None:
    probe = Needle(files=(str(text),), fact="the secret is {word} .", distances=(16, 700, 5_000), count=20)
    reader = Reader("masked", 800, remembers=True)
    assert probe.fits(reader, "p") == "distances of 16, 700 tokens; no room for 5000"
    examples = list(probe.examples(reader))
    first, other = examples[0].items
    ask = int(first.hidden[0])
    assert first.pieces[3] == first.pieces[ask] == other.pieces[ask] != other.pieces[3]
    assert np.array_equal(first.pieces[4:], other.pieces[4:])
    assert len(first) == 16 + 2 * 5
    facts = probe.finding(asked(probe, reader)).facts
    assert facts == {"filled_16": 100, "likelier_16": 100, "filled_700": 100, "likelier_700": 100, "examples": 40}
    lost = probe.finding(asked(probe, Reader("masked", 800))).facts
    assert (lost["filled_16"], lost["likelier_700"]) == (0, 0)
    causal = next(iter(probe.examples(Reader("causal", 800)))).items[0]
    assert (causal.first, len(causal)) == (ask, ask + 1)


def test_needles_that_cannot_be(text: Path) -> None:
    with pytest.raises(ValueError, match=r"fact: found no; wanted a sentence with \{word\} in it, once"):
        Needle(fact="no")
    with pytest.raises(RecipeError, match=r"p.distances: found \[4096\], for a model of 100 positions"):
        Needle(distances=(4096,)).fits(Reader("masked", 100), "p")
    short = Needle(files=(str(text),), fact="the secret is {word}", distances=(2_000,))
    with pytest.raises(DataError, match="has 1,120 tokens; wanted 2,000 or more"):
        list(short.examples(Reader("masked", 9_000)))
