"""What a probe of vectors offers: texts in groups -> a vector each, kept in files -> a record a question or pair.

It has the settings by which texts become vectors; left out, they are those that the model was trained with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ordsmed.measure.likelihood.probe import Finding, PairedExample, Record


@dataclass(frozen=True, kw_only=True)
class VectorProbe:
    """Settings of all of them, and what each has of its own."""

    files: tuple[str, ...] = ()
    """what is read"""
    pool: Literal["", "mean", "words", "first", "last", "tokens"] = ""
    """which vector is a text's: the mean (also called tokens), the first or the last of its tokens, special ones
    included; or the mean of its words (words); left out: as the model was trained, else the mean of tokens"""
    similarity: Literal["", "cosine", "dot"] = ""
    """of two vectors; left out: as the model was trained, else cosine"""
    batch: int = 64
    """texts that the network reads at once"""

    HOW: ClassVar[tuple[str, ...]] = ("batch",)
    TOKENS: ClassVar[bool] = False  # can texts have a vector a token, too?

    def groups(self) -> dict[str, Sequence[str]]:
        """Texts by what they are: query, passage, or neither (\"\")."""
        raise NotImplementedError

    def prompts(self) -> dict[str, str]:
        """What is written before texts of a group, where settings say so."""
        return {}

    def records(self, vectors: Mapping[str, Any]) -> list[Record]:
        """What is kept, from the vectors of every group, of length 1 where they are compared by their cosine: an array,
        or the rows of tokens (`TokenRows`)."""
        raise NotImplementedError

    def finding(self, records: list[Record]) -> Finding:
        """What all of them say."""
        raise NotImplementedError

    def as_line(self, record: Record) -> dict[str, Any]:
        """A record as --each writes it."""
        raise NotImplementedError

    def compared(self, records: list[Record]) -> list[PairedExample]:
        """What two models are compared by, example by example."""
        raise NotImplementedError
