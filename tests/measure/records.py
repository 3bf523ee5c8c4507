"""CPU time a record of reading and writing TFRecords of examples, with checksums, beside the `tfrecord` package.

python tests/measure/records.py FILE          # BERT's examples, laid end to end to 12,000 and more
tf/bin/python tests/measure/records.py FILE   # where `tfrecord` is installed: that one, which checks nothing
"""

from __future__ import annotations

import gzip
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHOLE = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
KINDS = dict.fromkeys(WHOLE, "int") | {"masked_lm_weights": "float"}


def ours(path: Path) -> int:
    from ordsmed.base.binary import examples, records

    wanted = {name: examples.INTS if kind == "int" else examples.FLOATS for name, kind in KINDS.items()}
    count = 0
    for block in records.read(path):
        columns = examples.read(block, wanted)
        assert columns.table("input_ids", block).shape == (len(block), 128)
        count += len(block)
    return count


def theirs(path: Path) -> int:
    from tfrecord import tfrecord_loader

    packed = "gzip" if path.suffix == ".gz" else None
    return sum(1 for _ in tfrecord_loader(str(path), None, KINDS, compression_type=packed))


def our_writer(path: Path, out: Path) -> Callable[[], int]:
    from ordsmed.base.binary import examples, records

    wanted = {name: examples.INTS if kind == "int" else examples.FLOATS for name, kind in KINDS.items()}
    tables: list[dict[str, Any]] = []
    for block in records.read(path):
        columns = examples.read(block, wanted)
        whole = {name: columns.table(name, block) for name in KINDS}
        tables += [{name: table[n : n + 512] for name, table in whole.items()} for n in range(0, len(block), 512)]

    def write() -> int:
        with out.open("wb") as file:
            made = (example for table in tables for example in examples.written(table))
            for part in records.framed(made):
                file.write(part)
        return sum(len(table["input_ids"]) for table in tables)

    return write


def their_writer(path: Path, out: Path) -> Callable[[], int]:
    from tfrecord import TFRecordWriter, tfrecord_loader

    rows = [
        {name: (value.copy(), KINDS[name]) for name, value in row.items()}
        for row in tfrecord_loader(str(path), None, KINDS)
    ]

    def write() -> int:
        writer = TFRecordWriter(str(out))
        for row in rows:
            writer.write(row)
        writer.close()
        return len(rows)

    return write


def told(what: str, run: Callable[[], int]) -> None:
    best, count = 1.0, 0
    for _ in range(3):
        began = time.process_time()
        count = run()
        best = min(best, (time.process_time() - began) / count)
    print(f"{what}: {count:,} records, {best * 1e6:.1f} us of CPU each")


def main(sample: Path) -> None:
    own = importlib.util.find_spec("ordsmed") is not None
    read, writer = (ours, our_writer) if own else (theirs, their_writer)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "x.tfrecord", Path(folder) / "x.tfrecord.gz"
        plain.write_bytes(sample.read_bytes() * 200)
        packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
        told(f"{read.__name__}, read", lambda: read(plain))
        told(f"{read.__name__}, read, gzip", lambda: read(packed))
        told(f"{read.__name__}, written", writer(plain, Path(folder) / "out.tfrecord"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
