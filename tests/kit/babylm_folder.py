"""A small folder as BabyLM's evaluation reads one, of words that small models know."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kit.language_models import WORDS

COLUMNS = (
    "item",
    "word",
    "prev_item",
    "prev_word",
    "RTfirstfix",
    "RTfirstpass",
    "RTgopast",
    "RTrightbound",
    "self_paced_reading_time",
    "Subtlex_log10",
    "length",
    "context_length",
    "prev_length",
)


def made(root: Path, count: int = 4, words: int = 40) -> Path:
    """Every part, from a seed."""
    chance = random.Random(1)

    def text(length: int = 0) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(length or chance.randint(3, 6)))

    for name in ("alpha", "beta"):
        pairs = [{"sentence_good": text(), "sentence_bad": text()} for _ in range(count)]
        write(
            root / f"blimp_filtered/{name}.jsonl", ({**pair, "field": "syntax", "UID": f"{name}_1"} for pair in pairs)
        )
        write(root / f"supplement_filtered/{name}.jsonl", pairs)
        keys = ("Context1", "Target1", "Context2", "Target2")
        rows = ({"Domain": f"{name}-relations", **{key: f"{text()}." for key in keys}} for _ in range(count))
        write(root / f"ewok_filtered/{name}.jsonl", rows)
    for name in ("regular", "ambiref", "move_contents"):
        options = [[f" {text(2)}" for _ in range(5)] for _ in range(count)]
        options[0][3] += " nothing"
        rows = ({"input_prefix": text(8), "options": o, "numops": n % 3} for n, o in enumerate(options))
        write(root / f"entity_tracking/{name}.jsonl", rows)
    for name in ("base", "wugs", "wugs_dist-before", "wugs_dist-in-between"):
        keys = ("prefix_acceptable", "prefix_unacceptable", "property_phrase")
        write(root / f"comps/comps_{name}.jsonl", ({key: text() for key in keys} for _ in range(count)))
    for name, of in (("parallel", 4), ("nonparallel", 2)):
        solutions = [{f"solution{n}": text() for n in range(of)} for _ in range(count)]
        rows = ({"prompt": text(), "label": n % of, "example_id": f"x{n}", **s} for n, s in enumerate(solutions))
        write(root / f"global_piqa_{name}/eng_latn.jsonl", rows)
    for name, of in (("wug_adj_nominalization", 2), ("wug_past_tense", 3)):
        rows = ({"sentences": "\t".join(text() for _ in range(of)), "ratio": str(n / count)} for n in range(count))
        write(root / f"{name}/{name}.jsonl", rows)
    (root / "reading").mkdir()
    with (root / "reading/reading_data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("", *COLUMNS), *((n, *row) for n, row in enumerate(reading_rows(chance, words)))])
    _acquisition(root / "aoa")
    return root


def reading_rows(chance: random.Random, words: int) -> Iterable[tuple[Any, ...]]:
    """Sentences of four words, the last one of two pieces; some numbers are not there."""
    for start in range(0, words, 4):
        sentence = [*(chance.choice(WORDS) for _ in range(3)), "newts"]
        texts = [" ".join(sentence[:n]) for n in range(4)]
        for n, word in enumerate(sentence):
            known = (texts[n - 1], sentence[n - 1]) if n > 1 else ("", "")
            times = [200 + 10 * len(word) + chance.gauss(0, 30) for _ in range(5)]
            if not (start + n) % 9:
                times[n] = ""  # type: ignore[call-overload]
            about = (1 + chance.random() * 4, len(word), n, len(sentence[n - 1]) if n else "")
            yield (texts[n], word, *known, *times, *about)


def _acquisition(folder: Path) -> None:
    """Contexts of words, and at which ages children say them."""
    folder.mkdir()
    contexts = {word: [{"context": f"the old {other}"} for other in WORDS[:2]] for word in ("a", "newt", "pond", "mat")}
    (folder / "cdi_childes.json").write_text(json.dumps(contexts))
    ages = [
        [word, *(1 / (1 + math.exp(-0.4 * (month - middle))) for month in range(16, 31))]
        for word, middle in (("newt", 20), ("pond", 23), ("mat", 26))
    ]
    with (folder / "cdi_human.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("word", *range(16, 31)), *ages])


def write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
