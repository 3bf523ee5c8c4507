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
