"""How much of the main text of web pages is found: trafilatura used plainly, and ours.

python tests/measure/web_pages.py FOLDER # ground-truth.json and html/*.html.gz, as in scrapinghub's benchmark
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from ordsmed.web import html

Counts = tuple[int, int, int]  # runs of four words: found, found wrongly, missed


def pages(folder: Path) -> dict[str, tuple[str, str]]:
    """Name -> the page and the text that people found in it."""
    truth = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    read = lambda name: html.decode(gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()))  # noqa: E731
    return {name: (read(name), truth[name].get("articleBody", "")) for name in sorted(truth)}


def plainly(page: str) -> str:
    """The library, used as its manual says."""
    import trafilatura

    return trafilatura.extract(page, fast=True, include_comments=False) or ""


def compare(wanted: str, found: str) -> Counts:
    """Runs of four words that both texts have, that only the second has, and only the first."""
    a, b = _runs(wanted), _runs(found)
    return (a & b).total(), (b - a).total(), (a - b).total()


def score(counts: Sequence[Counts]) -> tuple[float, float, float]:
    """Precision and recall, each the mean over pages, and their F1."""
    precision = mean(both / (both + wrong) for both, wrong, _ in counts if both + wrong)
    recall = mean(both / (both + missed) for both, _, missed in counts if both + missed)
    return precision, recall, 2 * precision * recall / (precision + recall)


def measure(folder: Path, find: Callable[[str], str]) -> list[Counts]:
    """One count a page."""
    return [compare(wanted, find(page)) for page, wanted in pages(folder).values()]


def _runs(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    return Counter(tuple(words[at : at + 4]) for at in range(max(len(words) - 3, min(len(words), 1))))


def main(folder: Path) -> None:
    """A line for each way: all pages, each half of them, and the speed."""
    texts = [page for page, _ in pages(folder).values()]
    plainly(texts[0])  # loads the library
    print(f"{len(texts)} pages            precision  recall      F1  F1 of odd  and even   pages/s")
    for name, find in (("trafilatura plainly", plainly), ("ordsmed", html.main_text)):
        counts = measure(folder, find)
        begun = time.process_time()
        for page in texts:
            find(page)
        speed = len(texts) / (time.process_time() - begun)
        (precision, recall, f1), odd, even = score(counts), score(counts[::2])[2], score(counts[1::2])[2]
        print(f"{name:20} {precision:10.4f} {recall:8.4f} {f1:7.4f} {odd:10.4f} {even:9.4f} {speed:9.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
