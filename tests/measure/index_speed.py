"""How fast an index is made and searched, beside its encoder.

python tests/measure/index_speed.py [PASSAGES] [WIDTH]   # 1,000,000 of 384 numbers, in 0.8 GB of a temporary folder
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from ordsmed.base.machine.host import cores
from ordsmed.use.index.growing_files import GrowingRows, Noted
from ordsmed.use.index.nearest import nearest
from ordsmed.use.text_encoder import units

BLOCK = 256


def timed(act, count):
    """The best of so many: seconds that passed, and seconds of cores."""
    best = (1e9, 0.0)
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        act()
        best = min(best, (time.perf_counter() - wall, time.process_time() - cpu))
    return best


def main(count, width):
    torch.set_num_threads(cores())
    draw = np.random.default_rng(1)
    block = draw.standard_normal((BLOCK, width)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"

        def write():
            noted = Noted(Path(folder) / "kept", "0")
            with GrowingRows(path, (width,), "float16") as rows:
                for number in range(count // BLOCK):
                    rows.put(units(np.roll(block, number, 1)))
                noted.keep({"vectors": rows})
                rows.finish()

        wall, cpu = timed(write, 1)
        print(f"written: {count / wall:,.0f} passages/s ({wall:.2f} s; {cpu:.2f} s of cores)")
        vectors = np.load(path, mmap_mode="c")
        for questions in (1, 16):
            asked = torch.from_numpy(units(draw.standard_normal((questions, width)).astype(np.float32)))
            wall, cpu = timed(lambda asked=asked: nearest(vectors, asked, 10), 3)
            print(
                f"searched: {questions} question(s) in {len(vectors):,} x {width}: {wall:.3f} s; {cpu:.3f} s of cores"
            )


if __name__ == "__main__":
    main(*(int(word) for word in [*sys.argv[1:], *("1000000", "384")[len(sys.argv) - 1 :]][:2]))
