"""CPU time a record of reading TFRecords and their examples, with checksums, beside the `tfrecord` package.

python tests/measure/records.py FILE          # BERT's examples, laid end to end to 12,000 and more
tf/bin/python tests/measure/records.py FILE   # where `tfrecord` is installed: that one, which checks nothing
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

WHOLE = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")


def ours(path: Path) -> int:
    from ordsmed.binary import examples, records

    wanted = dict.fromkeys(WHOLE, examples.INTS) | {"masked_lm_weights": examples.FLOATS}
    count = 0
    for block in records.read(path):
        columns = examples.read(block, wanted)
        assert columns.table("input_ids", block).shape == (len(block), 128)
        count += len(block)
    return count


def theirs(path: Path) -> int:
    from tfrecord import tfrecord_loader

    return sum(
        1 for _ in tfrecord_loader(str(path), None, dict.fromkeys(WHOLE, "int") | {"masked_lm_weights": "float"})
    )


def main(sample: Path) -> None:
    read = ours if importlib.util.find_spec("ordsmed") else theirs
    with tempfile.NamedTemporaryFile() as file:
        file.write(sample.read_bytes() * 200)
        file.flush()
        best = 1.0
        for _ in range(3):
            began = time.process_time()
            count = read(Path(file.name))
            best = min(best, (time.process_time() - began) / count)
    print(f"{read.__name__}: {count:,} records, {best * 1e6:.1f} us of CPU each")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
