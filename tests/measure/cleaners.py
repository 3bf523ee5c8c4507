"""How quickly each cleaning step reads: MB of UTF-8 a second of one processor, and what it does.

python tests/measure/cleaners.py texts.txt.xz [MB]       documents are told apart by blank lines
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from ordsmed.base import menu
from ordsmed.corpus.corpora.text import TextFiles as Texts
from ordsmed.text.clean import tidy


class Tidy:
    """What the pipeline always ends with, in the form of a step."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        return tidy(text)


def documents(path: str, most: float) -> Iterator[str]:
    size = 0
    for document in Texts(path).documents():
        yield document.text
        if (size := size + len(document.text.encode())) > most * 1e6:
            return


def measured(name: str, step: Any, texts: list[str]) -> str:
    step.clean("one text, so that tables and models are loaded before the clock runs æ € ã", {})
    start = time.process_time()
    found = [step.clean(text, {}) for text in texts]
    rate = sum(len(text.encode()) for text in texts) / 1e6 / (time.process_time() - start)
    dropped = sum(text is None for text in found)
    changed = sum(new not in (None, old) for new, old in zip(found, texts, strict=True))
    return f"{name:12} {rate:8.1f} MB/s  {changed:7,} changed  {dropped:7,} dropped"


def main() -> None:
    texts = list(documents(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 20))
    print(f"{len(texts):,} documents, {sum(map(len, texts)):,} characters")
    for name in sorted({*menu.entries("cleaners")} - {"judge"}):  # which needs a model: planted.py
        print(measured(name, menu.load("cleaners", name)(), texts))
    print(measured("(tidy)", Tidy(), texts))


if __name__ == "__main__":
    main()
