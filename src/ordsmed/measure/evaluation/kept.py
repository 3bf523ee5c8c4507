"""What was scored is kept: a line a chunk, appended as it is made, so that who was killed goes on behind it.

scores/parts/KEY.RANK.jsonl      [0, [record, record, ...]]
                                 [2, [record, ...]]              chunks in any order; a line that was cut off is no line

The key is of content: weights, tokenizer, files with their names, which records tell, and settings that change a score.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ordsmed.base import files, settings
from ordsmed.base.keys import value_key
from ordsmed.base.menu import kind_of
from ordsmed.measure.likelihood.probe import Record
from ordsmed.nn.model import own_tensors
from ordsmed.weights import weights
from ordsmed.weights.trained import Trained

VERSION = 2  # of how scores are computed and kept


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_key(trained: Trained) -> dict[str, str]:
    """What a model's scores depend on."""
    return {
        "weights": weights.digest(own_tensors(trained.objective)),
        "tokenizer": trained.tokenizer.fingerprint,
        "family": kind_of(trained.settings),
        "settings": json.dumps(settings.plain(trained.settings), sort_keys=True),
    }


def key_of(model: dict[str, str], probe: object, paths: list[Path], way: str, precision: str = "fp32") -> str:
    """16 hexadecimal digits: equal where every score is."""
    how = {k: v for k, v in settings.plain(probe, essence=True).items() if k not in ("files", "way")}
    table = [VERSION, model, how, way, precision, [[str(path), digest(path)] for path in paths]]
    return value_key(table, 16, any_order=True)


class Kept:
    """The chunks of one evaluation that are done, of all ranks."""

    def __init__(self, folder: Path, key: str, rank: int = 0) -> None:
        self.folder, self.key, self.rank = folder, key, rank

    def chunks(self) -> dict[int, list[Record]]:
        """Records by the number of their chunk."""
        result = {}
        for path in sorted(self.folder.glob(f"{self.key}.*.jsonl")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    number, records = json.loads(line)
                except ValueError:  # the last one, which was cut off
                    continue
                result[int(number)] = records
        return result

    def add(self, number: int, records: list[Record]) -> None:
        path = self.folder / f"{self.key}.{self.rank}.jsonl"
        with files.survive_disk(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                begun = file.tell()
                line = json.dumps([number, records]).encode() + b"\n"
                file.write((b"\n" if begun and not _ends(path) else b"") + line)
                file.flush()
                os.fsync(file.fileno())

    def clear(self) -> None:
        for path in self.folder.glob(f"{self.key}.*.jsonl"):
            path.unlink(missing_ok=True)


def _ends(path: Path) -> bool:
    """Does a file end with a whole line?"""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
