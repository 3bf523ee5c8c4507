"""JSON lines: one object per line, with its text under a key; the other keys become metadata.

{"text": "One. Two.", "url": "..."}  ->  Document("One. Two.", id="a.jsonl:1", meta={"url": "..."})
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.base.say import with_article
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece, TextSource

LONGEST = 1 << 28  # most characters of a line


@dataclass(frozen=True)
class Jsonl(TextSource, Choice):
    """Documents of JSON lines."""

    text_key: str = "text"
    "the key of the text"
    id_key: str | None = None
    "the key of the document's id; default: file and line"
    errors: read.Errors = "strict"
    "invalid UTF-8 and lone surrogates: stop with an error (strict), or write U+FFFD and count them (replace)"

    def read(self, piece: Piece) -> Iterator[Document]:
        for number, line in enumerate(self.lines(piece.path, LONGEST), 1):
            if line and not line.isspace():
                yield self._document(line, f"{piece.path}:{number}")

    def _document(self, line: str, location: str) -> Document:
        record = _decode(line, location, self.errors)
        if not isinstance(record, dict):
            problem = f"JSON, but {with_article(type(record).__name__)}"
            raise DataError(location, problem, "an object {...}", "one object per line")
        text = record.pop(self.text_key, None)
        if not isinstance(text, str):
            problem = f"no `{self.text_key}`"
            if text is not None:
                problem = f"`{self.text_key}` holds {with_article(type(text).__name__)}"
            keys = ", ".join(sorted(record)[:8]) or "none"
            raise DataError(location, f"{problem}; keys: {keys}", f"a string under `{self.text_key}`", "set `text_key`")
        name = record.pop(self.id_key, None) if self.id_key else None
        return Document(text, id=location if name is None else str(name), meta=record)


def _decode(line: str, location: str, errors: read.Errors) -> object:
    import msgspec

    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return _decode_slowly(line, location, errors, str(error))


def _decode_slowly(line: str, location: str, errors: read.Errors, reason: str) -> object:
    """Decode what msgspec refuses but Python writes as JSON: NaN, and lone surrogates."""
    import json
    import re

    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        reason = re.sub("^[A-Z](?![A-Z])", lambda first: first[0].lower(), reason)
        raise DataError(location, f"bad JSON: {reason}", "one JSON object per line", "fix or remove the line") from None
    lone = re.compile("[\ud800-\udfff]")
    count = len(lone.findall(repr_free := json.dumps(record, ensure_ascii=False)))
    if not count:
        return record
    if errors == "strict":
        problem = f"{count} lone surrogates (\\ud800 to \\udfff)"
        raise DataError(location, problem, "whole characters", 'fix it, or set errors = "replace"')
    read.tally().replaced += count
    return json.loads(lone.sub("\ufffd", repr_free))
