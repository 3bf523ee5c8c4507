"""A plan over very many stores, and rows of them: seconds of the CPU, and memory at the most.

python tests/measure/many_stores.py FOLDER [COUNT]     # 1,700 stores of 1 to 60 documents, made where they lack

`ordsmed pretrain --dry-run` of three phases that share their data by temperature, one of them of long documents, in a
process of its own with one thread; and batches of 32 rows of 128 tokens, of a hundred of the stores and of all.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from kit.makers import make_store
from ordsmed.base.run import Run
from ordsmed.train.pretrain.plan import PretrainingPlan

RECIPE = """
data = [{data}]
mix = {{ temperature = 0.5 }}
out = "{out}"
layout = {{ device = "cpu", threads = 1, precision = "fp32" }}
model = {{ kind = "modern", width = 128, layers = 4, heads = 2, positions = 128 }}
objective = {{ kind = "mlm" }}
[[phase]]
steps = 4_000
length = 128
batch = 32
learning_rate = 1e-3
[[phase]]
steps = 1_000
length = 128
batch = 32
learning_rate = 1e-3
mix = {{ temperature = 0.3 }}
mask_prob = 0.15
[[phase]]
steps = 1_000
length = 128
batch = 32
learning_rate = 1e-3
min_length = 5
"""
SIZES = (1, 2, 5, 10, 20, 40, 60)  # documents of a store


def made(folder: Path, count: int) -> list[Path]:
    """So many stores of one tokenizer, with other fingerprints."""
    models = [folder / f"model-{size}" for size in SIZES]
    for model, size in zip(models, SIZES, strict=True):
        if not model.exists():
            make_store(model, documents=size)
    stores = [folder / f"stores/s{number:05}" for number in range(count)]
    for number, store in enumerate(stores):
        if not store.exists():
            shutil.copytree(models[number % len(models)], store)
            Run(store).set(fingerprint=f"store {number}")
    return stores


def recipe(folder: Path, stores: list[Path]) -> Path:
    path = folder / f"{len(stores)}.toml"
    path.write_text(RECIPE.format(data=", ".join(f'"{store}"' for store in stores), out=folder / f"run-{len(stores)}"))
    return path


def plan(path: Path) -> str:
    """Of the command, from its start to its end."""
    words = [sys.executable, "-m", "ordsmed", "pretrain", str(path), "--dry-run", "--yes"]
    began = time.monotonic()
    process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    assert status == 0
    return f"{used.ru_utime + used.ru_stime:.2f} s of the CPU, {took:.2f} s, {used.ru_maxrss / 1024:.0f} MB"


def rows(path: Path) -> str:
    """Seconds of the CPU of a batch of the first phase, the fastest of five times twenty."""
    data = PretrainingPlan.read(str(path)).data
    assert data is not None
    made, spent = data.rows(0), list[float]()
    for turn in range(6):
        began = time.process_time()
        for step in range(20 * turn, 20 * turn + 20):
            made.batch(np.arange(32 * step, 32 * step + 32))
        spent.append((time.process_time() - began) / 20)
    return f"{1000 * min(spent[1:]):.2f} ms of the CPU a batch of 32 rows"


def main(folder: Path, count: int) -> None:
    stores = made(folder, count)
    for some in (stores[-1:], stores[:100], stores):
        path = recipe(folder, some)
        print(f"{len(some):,} stores: plan {plan(path)}; {rows(path)}", flush=True)
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at the most")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 1_700)
