"""Base class of probes that compare text vectors, such as `retrieval` and `similarity`.

A probe groups its texts, the evaluation embeds every group (`VectorAsking`), and the probe turns the vectors into one
record per question or pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ordsmed.measure.likelihood.probe import AnyRecord, Finding, PairedExample


@dataclass(frozen=True, kw_only=True)
class VectorProbe:
    """Settings shared by all vector probes, and the methods that each of them implements."""

    files: tuple[str, ...] = ()
    """the files to read"""
    pool: Literal["", "mean", "words", "first", "last", "tokens"] = ""
    """vector of a text: mean (or tokens), first or last vector of its tokens, special tokens included, or words, the
    mean over its words; default: as the model was trained, otherwise mean"""
    similarity: Literal["", "cosine", "dot"] = ""
    """how two vectors are compared; default: as the model was trained, otherwise cosine"""
    batch: int = 64
    """texts per forward pass"""

    HOW: ClassVar[tuple[str, ...]] = ("batch",)
    TOKENS: ClassVar[bool] = False  # does the probe accept models with one vector per token?

    def groups(self) -> dict[str, Sequence[str]]:
        """Return the texts of each group: "query", "passage", or "" where texts have no role."""
        raise NotImplementedError

    def prompts(self) -> dict[str, str]:
        """Return the prompt to put before the texts of each group; by default there is none."""
        return {}

    def records(self, vectors: Mapping[str, Any]) -> Sequence[Any]:
        """Compute the records from the vectors of each group.

        Vectors are rows of an array, or `TokenRows` if the model keeps one vector per token. They have length 1 if they
        are compared by cosine.
        """
        raise NotImplementedError

    def finding(self, records: list[Any]) -> Finding:
        raise NotImplementedError

    def as_line(self, record: AnyRecord) -> dict[str, Any]:
        raise NotImplementedError

    def compared(self, records: list[Any]) -> list[PairedExample]:
        """Return the examples that a paired comparison of two models uses."""
        raise NotImplementedError
