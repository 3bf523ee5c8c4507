"""Tags of words: checks that they are spans, and their scheme."""

from collections.abc import Sequence
from itertools import chain

from ordsmed.base.errors import DataError
from ordsmed.learn.score import spans
from ordsmed.text.labelled.conll import TaggedSentences

OTHER_COLUMN = "name the column of the tags with task.column="
Tags = Sequence[str | None]


def is_span(tag: str) -> bool:
    return tag == "O" or spans.is_spans([tag])


def check_spans(records: TaggedSentences, tags: Sequence[Tags]) -> None:
    odd = {tag for tag in set(chain.from_iterable(tags)) if tag is not None and not is_span(tag)}
    if odd:
        location, tag = first_of(odd, records, tags)
        raise DataError(location, f"the tag {tag}", "O, or a tag such as B-PER", f"correct it, or {OTHER_COLUMN}")


def first_of(odd: set[str], records: TaggedSentences, tags: Sequence[Tags]) -> tuple[str, str]:
    """Return the location of the first of these tags, and the tag."""
    for number, sentence in enumerate(tags):
        for at, tag in enumerate(sentence):
            if tag in odd:
                return records.place(number, at), str(tag)
    raise AssertionError(f"none of {sorted(odd)}")


def in_scheme(tags: Tags, scheme: spans.Scheme | None) -> Tags:
    """Return span tags rewritten in a scheme; words without a tag keep None."""
    if not scheme or not any(tag not in ("O", None) for tag in tags):
        return tags
    converted = spans.converted([tag or "O" for tag in tags], scheme)
    return [new if tag is not None else None for new, tag in zip(converted, tags, strict=True)]


def scheme_of(tags: Sequence[Tags]) -> spans.Scheme:
    return spans.scheme([[tag or "O" for tag in sentence] for sentence in tags])
