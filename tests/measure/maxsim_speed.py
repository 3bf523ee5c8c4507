"""How long MaxSim takes over an index of token vectors in 16 bits, beside sentence-transformers' in memory.

python tests/measure/maxsim_speed.py [PASSAGES] [TOKENS] [WIDTH]   # 10,000 of 150 tokens of 128 numbers: 0.4 GB
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.use.index.growing_files import GrowingRows
from ordsmed.use.index.nearest_tokens import nearest_tokens
from ordsmed.use.index.open_index import MEMORY
from ordsmed.use.text_encoder import units

ASKED, QUESTION = 4, 32  # questions, and tokens of each


def main(count: int = 10_000, tokens: int = 150, width: int = 128) -> None:
    draw = np.random.default_rng(1)
    sizes = draw.integers(tokens // 2, tokens + tokens // 2, count)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    with tempfile.TemporaryDirectory() as folder:
        with GrowingRows(Path(folder) / "vectors.npy", (width,), "float16") as rows:
            for size in sizes.tolist():
                rows.put(units(draw.standard_normal((size, width))))
            rows.finish()
        vectors = np.load(Path(folder) / "vectors.npy", mmap_mode="c")
        texts = TokenRows(vectors, starts)
        for number in (1, ASKED):
            asked = units(draw.standard_normal((number * QUESTION, width)))
            questions = TokenRows(asked, np.arange(0, len(asked) + 1, QUESTION))
            took, cpu = time.perf_counter(), time.process_time()
            found = [*nearest_tokens(texts, questions, 10, MEMORY)]
            took, cpu = time.perf_counter() - took, time.process_time() - cpu
            print(
                f"{number} question(s), {count:,} passages, {len(vectors):,} tokens: {took:.2f} s, {cpu:.2f} of cores"
            )
        from sentence_transformers.util import maxsim

        whole = [torch.from_numpy(vectors[a:b].astype(np.float32)) for a, b in pairwise(starts)]
        begin = time.process_time()
        theirs = maxsim([torch.from_numpy(asked[n : n + QUESTION]) for n in range(0, len(asked), QUESTION)], whole)
        cpu = time.process_time() - begin
        print(f"sentence-transformers, {ASKED} questions, in 32 bits in memory: {cpu:.2f} s of cores")
        best = theirs.sort(dim=1, descending=True).values[:, :10].numpy()
        print(f"largest difference of the ten best: {np.abs(best - np.stack([s for _, s in found])).max():.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
