"""Cleaning steps that set their thresholds on a sample of the corpus before it is cleaned.

sources -> the documents with the smallest hashes -> refined, earlier steps -> step.fitted(documents) -> the step

Every process draws the same sample. Of sources larger than READ bytes only that much is read, evenly from all parts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ordsmed.base import files, menu, settings
from ordsmed.base.keys import text_number, value_key
from ordsmed.base.say import Progress, many, say
from ordsmed.corpus.sources import CorpusSource, naming
from ordsmed.text.document import Document
from ordsmed.text.read import tallied

READ = 1_000_000_000  # bytes read of all sources
LEAST = 1_000_000  # bytes read of each part
HASHED = 1000  # characters that determine a document's hash


class CleaningStep(Protocol):
    """The interface of a cleaning step. Only steps that need a sample have `sampled` and `fitted`."""

    def sampled(self) -> int:
        """Return the number of documents needed to set the step; 0: none."""

    def fitted(self, documents: Sequence[Document]) -> CleaningStep:
        """Return the step set on these documents, which earlier steps have cleaned."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        """Return the cleaned text, or None to drop the document."""


def fitted(steps: Path, clean: Sequence[Any], sources: Sequence[CorpusSource]) -> tuple[Any, ...]:
    """Return the steps, those that need a sample set on it. The result is stored in a file for the next call."""
    chosen: list[Any] = []
    for step in clean:
        if count := step.sampled() if hasattr(step, "sampled") else 0:
            step = _once(steps, step, chosen, [source for source in sources if not source.purpose], count)
        chosen.append(step)
    return tuple(chosen)


def _once(
    steps: Path, step: CleaningStep, before: Sequence[CleaningStep], sources: Sequence[CorpusSource], count: int
) -> CleaningStep:
    name = menu.kind_of(step)
    stamps = [part.stamp() for part in [*before, step] if hasattr(part, "stamp")]
    from_ = [[settings.plain(source), source.settings.stamp()] for source in sources]
    path = steps / f"fitted-{value_key([settings.plain([*before, step]), stamps, from_], 12, any_order=True)}.json"
    if path.exists():
        return settings.decode(type(step), files.read_json(path), name)
    documents = list(_cleaned(sample(sources, count), before))
    settled = step.fitted(documents)
    set_ = changes([step], [settled]) or [f"{name}: nothing"]
    say(f"set on a sample of {many(len(documents), 'document')}: {set_[0]}")
    with files.survive_disk(path):
        steps.mkdir(parents=True, exist_ok=True)
    files.write_json(path, {key: value for key, value in settings.plain(settled).items() if key != "kind"})
    return settled


def changes(old_steps: Sequence[Any], new_steps: Sequence[Any]) -> list[str]:
    """Return a line for each step that the sample set, with the settings that changed."""
    lines = []
    for step, new in zip(old_steps, new_steps, strict=True):
        was = settings.plain(step)
        values = [f"{key} = {value}" for key, value in settings.plain(new).items() if was.get(key) != value]
        lines += [f"{menu.kind_of(step)}: {', '.join(values)}"] if values else []
    return lines


def _cleaned(documents: Sequence[tuple[CorpusSource, Document]], steps: Sequence[CleaningStep]) -> Iterator[Document]:
    for source, raw in documents:
        with tallied():
            document = source.refine(raw)
            for step in steps:
                if document is None:
                    break
                with naming(f"{menu.kind_of(step)}: {document.id}"):
                    text = step.clean(document.text, document.meta)
                document = None if text is None else Document(text, document.ends, document.id, document.meta)
        if document is not None:
            yield document


def sample(sources: Sequence[CorpusSource], count: int) -> list[tuple[CorpusSource, Document]]:
    """Return `count` raw documents of all sources, those with the smallest hashes."""
    parts = [(source, bundle) for source in sources for bundle in source.bundles()]
    bytes_a_part = max(READ // max(len(parts), 1), LEAST)
    least: list[tuple[int, int, CorpusSource, Document]] = []
    number, total = 0, sum(min(source.size(bundle), bytes_a_part) for source, bundle in parts)
    with Progress("sample", total / 1e6, "MB") as progress, tallied() as counted:
        for source, bundle in _thinned(parts):
            bytes_before = counted.bytes
            for document in source.read(bundle):
                number += 1
                draw = text_number(f"{document.id}\n{document.text[:HASHED]}")
                if len(least) < count:
                    heapq.heappush(least, (-draw, -number, source, document))
                elif -draw > least[0][0]:
                    heapq.heapreplace(least, (-draw, -number, source, document))
                if counted.bytes - bytes_before >= bytes_a_part:
                    break
            progress.add((counted.bytes - bytes_before) / 1e6)
    return [(source, document) for _, _, source, document in sorted(least, key=lambda entry: -entry[1])]


def _thinned(parts: Sequence[Any]) -> Iterator[Any]:
    yield from parts[:: max(math.ceil(len(parts) * LEAST / READ), 1)]
