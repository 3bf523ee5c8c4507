"""Process JSON lines without building a corpus: write one sentence per line, or divide lines into fixed splits.

presplit  {"text": "One. Two.", "url": "u"}  ->  {"text": "One.\\nTwo.", "url": "u"}
split     a.json, b.json  ->  OUT/train.json, dev.json, test.json, each with the file and line of origin (.map)

Lines are read as a stream, twice for a split, and keep their order.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import chance, files
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.sentences import rules

LONGEST = 1 << 28  # characters of one line
NAMES = ("train", "dev", "test")


def presplit(source: str, target: str, *, key: str = "text", anew: bool = False) -> list[str]:
    """Write TARGET, one document per line: one sentence per line of its text, its other keys unchanged."""
    import msgspec

    path, count, encode = Path(target), 0, msgspec.json.Encoder().encode
    sources = read.files(source)
    _may_write(path, sources, anew)
    with files.writing(path, keep=True) as out:
        for location, line in _lines(sources):
            record = _record(line, location, key)
            # line ends in the text also end sentences
            text = record[key]
            sentences = Document(text, rules(text)).sentences()
            record[key] = "\n".join(" ".join(whole.split()) for sentence in sentences if (whole := sentence.strip()))
            out.write(encode(record) + b"\n")
            count += 1
    return [f"{path}: {many(count, 'document')}", "to read it: source.kind=jsonl sentences=presplit"]


def split(
    sources: Sequence[str], out: str, *, dev: float = 0.05, test: float = 0.0, seed: int = 0, anew: bool = False
) -> list[str]:
    """Write OUT/train.json, dev.json and test.json with their maps. Each line is assigned at random."""
    if not (0 <= dev < 1 and 0 <= test < 1 and dev + test < 1):
        raise RecipeError("--dev", f"found {dev:g} and --test {test:g}", "shares that leave some to train on")
    paths, target = [path for source in sources for path in read.files(source)], Path(out)
    total = sum(1 for _ in _lines(paths))
    sizes = [math.ceil(dev * total), math.ceil(test * total)]
    if sum(sizes) >= total:
        raise DataError(paths[0], many(total, "line"), "more than are held out", "give more lines, or smaller shares")
    order = np.argsort(chance.bits(chance.key("split", seed), np.arange(total)), kind="stable")
    where = np.zeros(total, dtype=np.uint8)
    where[order[: sizes[0]]] = 1
    where[order[sizes[0] : sum(sizes)]] = 2
    outputs = {name: target / f"{name}.json" for name in NAMES}
    for path in outputs.values():
        _may_write(path, paths, anew)
    target.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as open_:
        texts = [open_.enter_context(files.writing(path, keep=True)) for path in outputs.values()]
        map_paths = [path.with_name(f"{path.name}.map") for path in outputs.values()]
        maps = [open_.enter_context(files.writing(path, keep=True)) for path in map_paths]
        for file in maps:
            file.write(b"file\tline #\n")
        for (number, at, line), n in zip(_numbered(paths), where.tolist(), strict=True):
            texts[n].write(line.strip().encode() + b"\n")
            maps[n].write(b"%d\t%d\n" % (number, at))
    counts = (total - sum(sizes), *sizes)
    return [f"{path}: {many(count, 'line')}" for path, count in zip(outputs.values(), counts, strict=True)]


def _may_write(path: Path, sources: Sequence[Path], anew: bool) -> None:
    if any(source.resolve() == path.resolve() for source in sources):
        raise RecipeError(path, "is one of the files that are read", "another file to write")
    if path.is_dir() or (path.exists() and not anew):
        raise RecipeError(path, "exists", "a file to write", "name another, or add --anew: it moves this one aside")


def _numbered(paths: Sequence[Path]) -> Iterator[tuple[int, int, str]]:
    """Yield file number, line number (both from 0) and text of each line that is not blank."""
    for number, path in enumerate(paths):
        for at, line in enumerate(read.lines(path, longest=LONGEST)):
            if line and not line.isspace():
                yield number, at, line


def _lines(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    yield from ((f"{paths[number]}:{at + 1}", line) for number, at, line in _numbered(paths))


def _record(line: str, location: str, key: str) -> dict[str, Any]:
    import msgspec

    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        problem = str(error)
        raise DataError(location, f"bad JSON: {problem[:1].lower()}{problem[1:]}", "one JSON object per line") from None
    if not isinstance(record, dict) or not isinstance(record.get(key), str):
        keys = ", ".join(sorted(record)[:8]) if isinstance(record, dict) else type(record).__name__
        raise DataError(location, f"no text under `{key}`; keys: {keys}", f"a string under `{key}`", "name its --key")
    return record
