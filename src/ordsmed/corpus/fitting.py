"""Cleaning steps that look at a sample of the corpus before it is cleaned, to set their thresholds by it.

sources -> the documents whose hashes are least -> refined, the steps before -> step.fitted(documents) -> the step

The same sample is drawn wherever it is drawn. Of what is larger than READ bytes as much is read, evenly of all parts.
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

READ = 1_000_000_000  # bytes of the sources
LEAST = 1_000_000  # of each part
HASHED = 1000  # characters by which a document is drawn


class CleaningStep(Protocol):
    """A cleaning step; those of the menu without `sampled` and `fitted` need no sample."""

    def sampled(self) -> int:
        """How many documents it is to be set by; 0: it is as it is."""

    def fitted(self, documents: Sequence[Document]) -> CleaningStep:
        """The step as these documents, cleaned by the steps before, set it."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        """The text as it should be, or None: the document is dropped."""


def fitted(steps: Path, clean: Sequence[Any], sources: Sequence[CorpusSource]) -> tuple[Any, ...]:
    """The steps, those that set themselves by a sample set; once, for it stands in a file then."""
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
    say(f"set by {many(len(documents), 'document')}: {set_[0]}")
    with files.survive_disk(path):
        steps.mkdir(parents=True, exist_ok=True)
    files.write_json(path, {key: value for key, value in settings.plain(settled).items() if key != "kind"})
    return settled


def changes(before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    """What the sample set of each step that it set, in a line."""
    lines = []
    for step, new in zip(before, after, strict=True):
        was = settings.plain(step)
        values = [f"{key} = {value}" for key, value in settings.plain(new).items() if was.get(key) != value]
        lines += [f"{menu.kind_of(step)}: {', '.join(values)}"] if values else []
    return lines


def _cleaned(documents: Sequence[tuple[CorpusSource, Document]], steps: Sequence[CleaningStep]) -> Iterator[Document]:
    """Those that the steps before keep, as they leave them."""
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
    """So many raw documents of all sources, those whose hashes are least."""
    parts = [(source, bundle) for source in sources for bundle in source.bundles()]
    most = max(READ // max(len(parts), 1), LEAST)
    least: list[tuple[int, int, CorpusSource, Document]] = []
    number, total = 0, sum(min(source.size(bundle), most) for source, bundle in parts)
    with Progress("sample", total / 1e6, "MB") as shown, tallied() as counted:
        for source, bundle in _thinned(parts):
            begun = counted.bytes
            for document in source.read(bundle):
                number += 1
                draw = text_number(f"{document.id}\n{document.text[:HASHED]}")
                if len(least) < count:
                    heapq.heappush(least, (-draw, -number, source, document))
                elif -draw > least[0][0]:
                    heapq.heapreplace(least, (-draw, -number, source, document))
                if counted.bytes - begun >= most:
                    break
            shown.add((counted.bytes - begun) / 1e6)
    return [(source, document) for _, _, source, document in sorted(least, key=lambda entry: -entry[1])]


def _thinned(parts: Sequence[Any]) -> Iterator[Any]:
    """Parts from all over, as many as READ bytes allow."""
    yield from parts[:: max(math.ceil(len(parts) * LEAST / READ), 1)]
