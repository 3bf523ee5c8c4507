"""Prompts in and texts out: words of a command, lines of a stream or file, or JSON lines; and how texts are written."""

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
from ordsmed.base.ranks import Ranks, first_alone
from ordsmed.use.fill import lines
from ordsmed.use.generation.options import Generated

KEYS = ("prompt", "text")  # of a line of JSON
JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Prompt:
    """A text to go on with, and what else its line of JSON held."""

    text: str
    more: dict[str, Any] = field(default_factory=dict)


def given(texts: Iterable[str]) -> Iterator[Prompt]:
    """Texts as they are; one that is no text is refused."""
    for text in texts:
        checked(text, repr(text[:40]))
        yield Prompt(text)


def before(end: str, texts: Iterable[str]) -> Iterator[str]:
    """Those before the first that holds this text; all, where it is empty."""
    return itertools.takewhile(lambda text: not end or end not in text, texts)


def checked(text: str, place: str) -> None:
    """Refuse what was no UTF-8 when it came in."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(place, f"invalid UTF-8 at character {error.start + 1}", "UTF-8 text") from None


def of_file(name: str | Path) -> list[Prompt]:
    """A prompt a line (an empty one is begun by the model), or `{"prompt": ...}` a line in a file of JSON lines."""
    path = Path(name)
    if not path.is_file():
        wrong = "is no plain file" if path.exists() else "no such file"
        raise RecipeError(path, wrong, "a prompt a line, or JSON lines (.jsonl)")
    with path.open("rb") as stream:
        found_lines = list(lines(stream, str(path)))
    if path.suffix in JSON_LINES:
        prompts = [_of_json(line, f"{path}:{number}") for number, line in enumerate(found_lines, 1) if line.strip()]
    else:
        prompts = [Prompt(line) for line in found_lines]
    if not prompts:
        raise DataError(path, "is empty", "a prompt a line")
    return prompts


def _of_json(line: str, place: str) -> Prompt:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(place, f"not JSON: {error}", '{"prompt": "..."}') from None
    name = next((key for key in KEYS if isinstance(record, dict) and isinstance(record.get(key), str)), None)
    if name is None:
        keys = ", ".join(list(record)[:6]) if isinstance(record, dict) else type(record).__name__
        raise DataError(place, f"holds no prompt ({keys or 'nothing'})", '{"prompt": "..."}, or "text"')
    checked(record[name], place)
    return Prompt(record[name], {key: value for key, value in record.items() if key != name})


def same_on_all_ranks(ranks: Ranks, prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    """The same prompts on every process: the first one reads them."""
    if ranks.world == 1:
        yield from prompts
        return
    source = iter(prompts if ranks.first else ())

    def read() -> list[Any] | None:
        prompt = next(source, None)
        return None if prompt is None else [prompt.text, prompt.more]

    while (read_there := first_alone(ranks, read)) is not None:
        yield Prompt(*read_there)


def as_json(text: Generated, prompt: Prompt) -> str:
    """A line of JSON: what the prompt's line held, the prompt, what follows it, which sample, how long, its end."""
    facts = {"prompt": text.prompt, "continuation": text.continuation, "sample": text.sample, "tokens": text.tokens,
             "ended": text.ended}  # fmt: skip
    return json.dumps({**prompt.more, **facts}, ensure_ascii=False)


def as_line(text: Generated, prompt: Prompt) -> str:
    """A text on one line: its own line ends become blanks."""
    return " ".join(text.text.splitlines())


@contextlib.contextmanager
def line_writer(out: str | None, *, anew: bool = False) -> Iterator[Callable[[str], None]]:
    """Who takes lines: a file, which is whole or absent, or standard output as they come."""
    if out is None:
        yield lambda line: print(line, flush=True)
        return
    path = Path(out)
    if path.exists() and not anew:
        raise RecipeError(path, "stands", "a new file", "name another, or add --anew: it moves this one aside")
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RecipeError(path, wrong, "a file to write")
    with files.writing(path, keep=True) as file:

        def put(line: str) -> None:
            file.write(f"{line}\n".encode())

        yield put


def print_pieces(pieces: Iterable[str]) -> None:
    """Pieces of a text on standard output, as they come."""
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
