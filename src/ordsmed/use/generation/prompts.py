"""Read prompts from words, files, streams or JSON lines, and write the generated texts."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks, on_rank0
from ordsmed.use.fill import lines
from ordsmed.use.generation.options import Generated

KEYS = ("prompt", "text")  # names of the prompt in a JSON line
JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Prompt:
    text: str
    more: dict[str, Any] = field(default_factory=dict)  # other fields of its JSON line


def given(texts: Iterable[str]) -> Iterator[Prompt]:
    """Yield a prompt for each text, or raise an error if a text is not valid Unicode."""
    for text in texts:
        checked(text, repr(text[:40]))
        yield Prompt(text)


def before(end: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts before the first that contains `end`, or all if `end` is empty."""
    return itertools.takewhile(lambda text: not end or end not in text, texts)


def checked(text: str, location: str) -> None:
    """Raise an error if the text was not valid UTF-8 when it was read."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(location, f"invalid UTF-8 at character {error.start + 1}", "UTF-8 text") from None


def of_file(name: str | Path) -> list[Prompt]:
    """Return the prompts of a file: one per line, or of JSON lines `{"prompt": ...}`. A prompt may be empty."""
    path = Path(name)
    if not path.is_file():
        wrong = "is not a regular file" if path.exists() else "no such file"
        raise RecipeError(path, wrong, "a file with one prompt per line, or JSON lines (.jsonl)")
    with path.open("rb") as stream:
        prompt_lines = list(lines(stream, str(path)))
    if path.suffix in JSON_LINES:
        prompts = [_of_json(line, f"{path}:{number}") for number, line in enumerate(prompt_lines, 1) if line.strip()]
    else:
        prompts = [Prompt(line) for line in prompt_lines]
    if not prompts:
        raise DataError(path, "is empty", "one prompt per line")
    return prompts


def _of_json(line: str, location: str) -> Prompt:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(location, f"not JSON: {error}", '{"prompt": "..."}') from None
    name = next((key for key in KEYS if isinstance(record, dict) and isinstance(record.get(key), str)), None)
    if name is None:
        keys = ", ".join(list(record)[:6]) if isinstance(record, dict) else type(record).__name__
        raise DataError(location, f"has no prompt ({keys or 'no fields'})", '{"prompt": "..."}, or "text"')
    checked(record[name], location)
    return Prompt(record[name], {key: value for key, value in record.items() if key != name})


def same_on_all_ranks(ranks: Ranks, prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    """Yield the same prompts on every rank. Rank 0 reads them."""
    if ranks.world == 1:
        yield from prompts
        return
    source = iter(prompts if ranks.first else ())

    def read() -> list[Any] | None:
        prompt = next(source, None)
        return None if prompt is None else [prompt.text, prompt.more]

    while (request := on_rank0(ranks, read)) is not None:
        yield Prompt(*request)


def as_json(text: Generated, prompt: Prompt) -> str:
    """Return a JSON line: the fields of the prompt's line, prompt, continuation, sample, new tokens, end."""
    facts = {"prompt": text.prompt, "continuation": text.continuation, "sample": text.sample}
    facts |= {"tokens": text.tokens, "ended": text.ended}
    return json.dumps({**prompt.more, **facts}, ensure_ascii=False)


def as_line(text: Generated, prompt: Prompt) -> str:
    """Return prompt and continuation on one line, with spaces for line breaks."""
    return " ".join(text.text.splitlines())


@contextlib.contextmanager
def line_writer(out: str | None, *, anew: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes a line: to a file, which is written whole or not at all, or to the terminal."""
    if out is None:
        yield lambda line: print(line, flush=True)
        return
    path = Path(out)
    if path.exists() and not anew:
        raise RecipeError(
            path, "already exists", "a new file", "name another, or add --anew, which moves this one aside"
        )
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RecipeError(path, wrong, "a file to write")
    with files.writing(path, keep=True) as file:

        def put(line: str) -> None:
            file.write(f"{line}\n".encode())

        yield put


def print_pieces(pieces: Iterable[str]) -> None:
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
