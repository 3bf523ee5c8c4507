"""Copy the first examples of a file, for --max_train_samples of transformers' scripts.

An example is a row of TSV or CSV, an object or a question of JSON, or a sentence of CoNLL.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ordsmed.base import files


def first(source: Path, target: Path, count: int, *, header: bool = True) -> None:
    """Write the first `count` examples to `target`. With `header`, the first row of a table is not an example."""
    text = source.read_bytes().decode("utf-8-sig")
    kind = source.suffix
    if kind in (".json", ".jsonl"):
        cut = _objects(text, count)
    elif kind == ".csv":
        reader = csv.reader(io.StringIO(text, newline=""))
        for _ in itertools.islice(reader, count + header):
            pass
        cut = _lines(text, reader.line_num)
    elif kind == ".tsv":
        cut = _lines(text, count + header)
    else:
        cut = "".join(itertools.islice(_sentences(text), count))
    if not target.is_file() or target.read_bytes() != cut.encode():  # keep its modification time
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(target, cut)


def _lines(text: str, count: int) -> str:
    return "".join(itertools.islice(io.StringIO(text, newline=""), count))


def _sentences(text: str) -> Iterator[str]:
    block: list[str] = []
    for line in io.StringIO(text, newline=""):
        if line.strip() and len(block) > 1 and not block[-1].strip() and any(map(str.strip, block)):
            yield "".join(block)
            block = []
        block.append(line)
    yield "".join(block)


def _objects(text: str, count: int) -> str:
    """Return the first examples of JSON lines, a JSON list, a list in `data`, or the questions of SQuAD."""
    try:
        whole: Any = json.loads(text)
    except json.JSONDecodeError:
        return "".join(itertools.islice((line for line in io.StringIO(text, newline="") if line.strip()), count))
    if isinstance(whole, list):
        return _dumped(whole[:count])
    if "data" not in whole:
        return text  # JSON lines with a single line
    entries = whole["data"]
    if not entries or "paragraphs" not in entries[0]:
        return _dumped(whole | {"data": entries[:count]})
    for paragraph in (paragraph for entry in entries for paragraph in entry["paragraphs"]):
        paragraph["qas"] = paragraph["qas"][:count]
        count -= len(paragraph["qas"])
    return _dumped(whole)


def _dumped(value: object) -> str:
    """Return the JSON text. Unpaired surrogates are escaped, since UTF-8 cannot encode them."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.encode("utf-8", "ignore").decode() == text else json.dumps(value)
