"""Input and output of the verb `search`: read questions, and print hits as a table or as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from ordsmed.base.errors import DataError
from ordsmed.base.say import many
from ordsmed.base.screen import table
from ordsmed.use.embed import lines_of
from ordsmed.use.index.open_index import OpenIndex, SearchHit

AT_ONCE = 64  # questions of a file that are searched together, so that the vectors are read once for all of them
SHOWN = 220  # characters of a passage in the table


def asked(questions: Sequence[str], file: str, stream: IO[bytes]) -> Iterator[list[str]]:
    """Yield questions in batches, from the command line or from the lines of a file."""
    if not file:
        yield [*questions]
        return
    lines, most = lines_of(stream if file == "-" else Path(file)), 1 if file == "-" else AT_ONCE
    blocks = iter(lambda: list(islice(lines, most)), [])
    if (first := next(blocks, None)) is None:
        raise DataError(file, "has no question", "one question per line")
    yield from chain([first], blocks)


def lines(question: str, hits: Sequence[SearchHit], wanted: int, index: OpenIndex, *, whole: bool = False) -> list[str]:
    """Return a question and a table of its hits for a terminal: rank, score, document, passage."""
    rows = [(f"{hit.rank}", f"{hit.score:.4f}", _named(hit), excerpt(hit, whole=whole)) for hit in hits]
    note = [] if len(hits) == min(wanted, len(index)) else [f"  found {many(len(hits), 'passage')} of {len(index):,}"]
    if wanted > len(index) == len(hits):
        note = [f"  the index has only {many(len(index), 'passage')}"]
    question = " ".join(question.split())
    return [question, *table(rows), *note] if rows else [question, "  nothing found: no passage has a word of it"]


def _named(hit: SearchHit) -> str:
    name = hit.passage.title or hit.passage.id or f"document {hit.passage.document}"
    return name if len(name) <= 24 else f"{name[:11]}...{name[-10:]}"


def excerpt(hit: SearchHit, *, whole: bool = False) -> str:
    """Return a passage on one line, cut between words at SHOWN characters unless `whole`."""
    text = " ".join(hit.passage.text.split())
    return text if whole or len(text) <= SHOWN else f"{text[:SHOWN].rpartition(' ')[0] or text[:SHOWN]} ..."


def facts_of(hit: SearchHit) -> dict[str, Any]:
    """Return a hit as a JSON object, without empty fields."""
    ranking = {"rank": hit.rank, "score": hit.score, "dense": hit.dense, "words": hit.words, "number": hit.number}
    return {key: value for key, value in {**ranking, **asdict(hit.passage)}.items() if value not in (None, "", {})}


def as_line(question: str, hits: Sequence[SearchHit]) -> str:
    return json.dumps({"question": question, "hits": [facts_of(hit) for hit in hits]}, ensure_ascii=False)
