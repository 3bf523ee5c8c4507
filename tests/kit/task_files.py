"""Files to fine-tune on, drawn from a seed: texts with classes, words with tags, questions with and without answers.

What is right can be learned from the words alone: words are numbered, and those from 60 on are high.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kit.makers import SPECIAL, WORDS

HALF = WORDS // 2
LABELS = ("low", "mixed", "high")


def task_files(folder: Path, *, train: int = 48, dev: int = 21) -> Path:
    """train and dev as .tsv (classes), .conll (spans) and .json (SQuAD 2.0), with vocabularies of pieces and words."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"w{n}" for n in range(WORDS)]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    (folder / "words.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *words]) + "\n")
    for seed, (name, count) in enumerate((("train", train), ("dev", dev))):
        draw = np.random.default_rng(seed)
        texts = [_text(draw) for _ in range(count)]
        lines = ["text\tlabel", *(f"{_spelled(text)}\t{_label(text)}" for text in texts)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        tagged = ["\n".join(f"w{n} {tag}" for n, tag in zip(text, _tags(text), strict=True)) for text in texts]
        (folder / f"{name}.conll").write_text("\n\n".join(tagged) + "\n")
        asked = {"title": name, "paragraphs": [_paragraph(text, number, draw) for number, text in enumerate(texts)]}
        (folder / f"{name}.json").write_text(json.dumps({"version": "2.0", "data": [asked]}))
    return folder


def _text(draw: np.random.Generator) -> list[int]:
    """Mostly low words, mostly high ones, or both by turns."""
    part = draw.choice((0.03, 0.5, 0.97))
    return [int(draw.integers(HALF)) + HALF * int(draw.random() < part) for _ in range(int(draw.integers(4, 24)))]


def _spelled(text: list[int]) -> str:
    return " ".join(f"w{n}" for n in text)


def _label(text: list[int]) -> str:
    high = sum(n >= HALF for n in text) / len(text)
    return LABELS[(high > 0.2) + (high > 0.8)]


def _tags(text: list[int]) -> list[str]:
    """Runs of high words are spans."""
    before = [0, *text]
    return ["O" if n < HALF else "I-HIGH" if last >= HALF else "B-HIGH" for last, n in zip(before, text, strict=False)]


def _paragraph(text: list[int], number: int, draw: np.random.Generator) -> dict[str, Any]:
    """Asked for is the word behind the first high one; of the last word, or where none is high, there is no answer."""
    context = _spelled(text)
    place = next((at for at, n in enumerate(text[:-1]) if n >= HALF), None)
    answers = []
    if place is not None:
        begin = len(_spelled(text[: place + 1])) + 1
        answers = [{"text": f"w{text[place + 1]}", "answer_start": begin}]
    question = {"id": f"q{number}", "question": f"w{draw.integers(WORDS)} w{draw.integers(WORDS)} ?"}
    return {"context": context, "qas": [{**question, "answers": answers, "is_impossible": not answers}]}


def pair_files(folder: Path, *, train: int = 48, dev: int = 21) -> Path:
    """train and dev (anchor, positive), and as train: negatives, scored, taught (a teacher's scores), with vocab.txt.

    A topic is two words of anchors and two of positives.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(WORDS))]) + "\n")
    for seed, (name, count) in enumerate((("train", train), ("dev", dev))):
        draw = np.random.default_rng(seed)
        rows = [_pair(number if name == "dev" else number % TOPICS, draw) for number in range(count)]
        _write_rows(folder / f"{name}.jsonl", rows)
    draw = np.random.default_rng(9)
    for row in (rows := [_pair(number % TOPICS, draw) for number in range(train)]):
        row["negatives"] = [
            _pair(int(draw.integers(TOPICS)), draw)["positive"] for _ in range(int(draw.integers(1, 3)))
        ]
    _write_rows(folder / "negatives.jsonl", rows)
    _write_rows(folder / "taught.jsonl", [row | {"scores": _scores(row, draw)} for row in rows])
    plain = [{"anchor": row["anchor"], "positive": row["positive"]} for row in rows]
    _write_rows(folder / "scored.jsonl", [row | {"score": round(float(draw.random()), 3)} for row in plain])
    return folder


TOPICS = WORDS // 5


def _pair(topic: int, draw: np.random.Generator) -> dict[str, Any]:
    def text(words: tuple[int, int], most: int) -> str:
        return _spelled([int(n) for n in draw.choice(words, int(draw.integers(2, most)))])

    return {"anchor": text((topic, topic + TOPICS), 6), "positive": text((topic + 2 * TOPICS, topic + 3 * TOPICS), 20)}


def _scores(row: dict[str, Any], draw: np.random.Generator) -> list[float]:
    return [round(float(value), 3) for value in draw.normal(size=1 + len(row["negatives"]))]


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
