"""What a search prints: hits as lines of a table, or a line of JSON a question; and questions as they are given."""

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
from ordsmed.use.index.opened import OpenIndex, SearchHit

AT_ONCE = 64  # questions of a file that are searched together: each looks at all vectors
SHOWN = 220  # characters of a passage


def asked(questions: Sequence[str], file: str, stream: IO[bytes]) -> Iterator[list[str]]:
    """Questions, some at a time: as they stand on the command line, or the lines of a file."""
    if not file:
        yield [*questions]
        return
    lines, most = lines_of(stream if file == "-" else Path(file)), 1 if file == "-" else AT_ONCE
    blocks = iter(lambda: list(islice(lines, most)), [])
    if (first := next(blocks, None)) is None:
        raise DataError(file, "holds no question", "one a line")
    yield from chain([first], blocks)


def lines(question: str, hits: Sequence[SearchHit], wanted: int, index: OpenIndex, *, whole: bool = False) -> list[str]:
    """For a person: rank, score, document, passage."""
    rows = [(f"{hit.rank}", f"{hit.score:.4f}", _named(hit), excerpt(hit, whole=whole)) for hit in hits]
    note = [] if len(hits) == min(wanted, len(index)) else [f"  {many(len(hits), 'passage')} of {len(index):,} found"]
    if wanted > len(index) == len(hits):
        note = [f"  all there are: {many(len(index), 'passage')}"]
    question = " ".join(question.split())
    return [question, *table(rows), *note] if rows else [question, "  nothing found: no such passage has a word of it"]


def _named(hit: SearchHit) -> str:
    name = hit.passage.title or hit.passage.id or f"document {hit.passage.document}"
    return name if len(name) <= 24 else f"{name[:11]}...{name[-10:]}"


def excerpt(hit: SearchHit, *, whole: bool = False) -> str:
    """A passage on a line, cut between words."""
    text = " ".join(hit.passage.text.split())
    return text if whole or len(text) <= SHOWN else f"{text[:SHOWN].rpartition(' ')[0] or text[:SHOWN]} ..."


def facts_of(hit: SearchHit) -> dict[str, Any]:
    """For other programs."""
    ranking = {"rank": hit.rank, "score": hit.score, "dense": hit.dense, "words": hit.words, "number": hit.number}
    return {key: value for key, value in {**ranking, **asdict(hit.passage)}.items() if value not in (None, "", {})}


def as_line(question: str, hits: Sequence[SearchHit]) -> str:
    return json.dumps({"question": question, "hits": [facts_of(hit) for hit in hits]}, ensure_ascii=False)
