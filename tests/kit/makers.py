"""What several rooms' tests make: a small encoded folder of text drawn from a seed, a job, and its first steps."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ordsmed.train.pretrain.random_data import (
    PAD_SECOND,
    SPECIAL,
    WORDS,
    build,
    job_of,
    learned,
    make_store,
    make_words,
    synthetic_text,
)

if TYPE_CHECKING:
    from ordsmed.train.job import Job

__all__ = [  # what is drawn for the list of `ordsmed validate`, and what is the tests' own
    "PAD_SECOND",
    "SPECIAL",
    "WORDS",
    "Source",
    "build",
    "change",
    "digest_of",
    "job_of",
    "learned",
    "make_store",
    "make_words",
    "synthetic_text",
]


@dataclass(frozen=True)
class Source:
    """A store in memory whose tokens are all different: `first`, `first` + 1, ..."""

    tokens: np.ndarray
    document_starts: np.ndarray
    starts: np.ndarray

    @staticmethod
    def of(documents: list[list[int]], first: int = 10) -> Source:
        """From the lengths of the sentences of each document."""
        ends = np.cumsum([0, *(sum(d) for d in documents)])
        return Source(np.arange(first, first + ends[-1]), ends, np.cumsum([0, *(s for d in documents for s in d)]))


def change(job: Job, **fields: Any) -> None:
    """A job, which is frozen, in another place or with another past: what the test is about."""
    for name, value in fields.items():
        object.__setattr__(job, name, value)


def digest_of(module: Any, names: str) -> str:
    """What these tables of a module hold, words, signs, numbers and patterns, in 8 digits: a change is to be meant."""
    told = "\n".join(f"{name} {_told(getattr(module, name))}" for name in names.split())
    return hashlib.sha256(told.encode()).hexdigest()[:8]


def _told(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r} {value.flags}"
    if isinstance(value, set | frozenset):
        return repr(sorted(map(_told, value)))
    if isinstance(value, dict):
        return repr([(key, _told(inner)) for key, inner in value.items()])
    if dataclasses.is_dataclass(value):
        return _told({one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    return repr([_told(inner) for inner in value]) if isinstance(value, tuple | list) else repr(value)
