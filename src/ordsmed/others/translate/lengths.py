"""Check that TFRecords have the sequence length that a command line gives: shorter rows would be padded."""

from __future__ import annotations

from collections.abc import Sequence

from ordsmed.base.arguments import UsageError


def check_length(patterns: Sequence[str], length: int, flag: str, remedy: str) -> None:
    from ordsmed.data import records
    from ordsmed.text import read

    for path in read.files(list(patterns))[:1]:
        actual = next((block.ids.shape[1] for block in records.read(path)), length)
        if actual != length:
            problem = f"found {length}; the records of {path} have {actual} tokens"
            raise UsageError(flag, problem, str(actual), f"write new records: {remedy}")
