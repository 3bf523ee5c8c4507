"""Scores on disk, so that an interrupted evaluation resumes: one line per chunk, appended as soon as it is scored.

    scores/parts/KEY.RANK.jsonl      [0, [record, record, ...]]
                                     [2, [record, ...]]          chunks in any order; an incomplete line is ignored

The key is a hash of everything that changes a score: weights, tokenizer, settings, and the files with their names.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.keys import value_key
from ordsmed.base.menu import kind_of
from ordsmed.measure.likelihood.probe import Record
from ordsmed.nn.model import own_tensors
from ordsmed.weights import weights
from ordsmed.weights.trained_model import Trained

VERSION = 2  # raised when scores are computed or stored differently


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_key(trained: Trained) -> dict[str, str]:
    return {
        "weights": weights.digest(own_tensors(trained.objective)),
        "tokenizer": trained.tokenizer.fingerprint,
        "family": kind_of(trained.settings),
        "settings": json.dumps(settings.plain(trained.settings), sort_keys=True),
    }


def key_of(model: dict[str, str], probe: object, paths: list[Path], way: str, precision: str = "fp32") -> str:
    """Return a hash of 16 hexadecimal digits: evaluations with the same key have the same scores."""
    options = {k: v for k, v in settings.plain(probe, essence=True).items() if k not in ("files", "way")}
    table = [VERSION, model, options, way, precision, [[str(path), digest(path)] for path in paths]]
    return value_key(table, 16, any_order=True)


class ScoreCache:
    """Stored chunks of one evaluation, of all ranks."""

    def __init__(self, folder: Path, key: str, rank: int = 0) -> None:
        self.folder, self.key, self.rank = folder, key, rank

    def chunks(self) -> dict[int, list[list[Any]]]:
        """Return the stored records of each chunk, as lists of their values."""
        result = {}
        for path in sorted(self.folder.glob(f"{self.key}.*.jsonl")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    number, records = json.loads(line)
                except ValueError:  # an incomplete last line
                    continue
                result[int(number)] = records
        return result

    def add(self, number: int, records: Sequence[Record | list[Any]]) -> None:
        rows = [record.to_list() if isinstance(record, Record) else record for record in records]
        path = self.folder / f"{self.key}.{self.rank}.jsonl"
        with files.survive_disk(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                position = file.tell()
                line = json.dumps([number, rows]).encode() + b"\n"
                file.write((b"\n" if position and not _ends(path) else b"") + line)
                file.flush()
                os.fsync(file.fileno())

    def clear(self) -> None:
        for path in self.folder.glob(f"{self.key}.*.jsonl"):
            path.unlink(missing_ok=True)


def _ends(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
