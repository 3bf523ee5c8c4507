"""Half an hour on a GPU, in four commands: steps of real recipes by blocks and by profile, shapes by themselves.

    python tests/measure/gpu_steps.py first     versions, ELECTRA-base at 128 plain and compiled, at 512; tests/gpu
    python tests/measure/gpu_steps.py second    products, attention, heads, our kernels; BERT-large, GPT-2 345M, ELMo
    python tests/measure/gpu_steps.py third     what a change was to bring: ELECTRA-base without dropout, fp32, compiled
    python tests/measure/gpu_steps.py final     all of them twice, for docs/log.md
    ... NAME [KEY=VALUE...]                     one bench recipe by its name, with a profile

Each prints as it goes, ends by itself (600, 450, 360 and 300 seconds are enough), and begins with what would make the
rest worthless. `--small` goes the same ways on a CPU with tiny sizes. Steps are timed in blocks without a wait.
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from ordsmed.base import run, settings
from ordsmed.base.machine import measured_peak
from ordsmed.bench import bench
from ordsmed.data.loader import load
from ordsmed.train import loop

CEILING = 790e12  # bf16 products of an H200, measured at 8192 cubed
ELECTRA = ["electra-small", "model.size=base", "objective.generator={width=256}", "layout.micro=512", "batch=512"]
ROW512 = ["length=512", "layout.micro=128", "batch=128"]
LARGE = ["bert-base", "model.size=large", *ROW512]
GPT2 = ["gpt2-mini", "model.size=345M", "vocabulary=50257", "length=1024", "layout.micro=64", "batch=64"]
ELMO = ["elmo-original"]
PLANS = {
    "first": [ELECTRA, [*ELECTRA, "layout.compile=true"], [*ELECTRA, *ROW512]],
    "second": [LARGE, GPT2, ELMO],
    "third": [[*ELECTRA, "dropout=0"], [*ELECTRA, "layout.precision=fp32"], [*GPT2, "layout.compile=true"]],
    "final": [each for each in (ELECTRA, [*ELECTRA, *ROW512], LARGE, GPT2, ELMO) for _ in range(2)],
}
TINY = ["model.width=64", "model.layers=1", "vocabulary=500", "tokens=20000", "batch=4", "layout.micro=2", "length=16"]
KINDS = {
    "products": ("gemm", "cutlass", "nvjet", "cublas", "wgmma", "gemv", "splitk", "::mm", "addmm", "bmm"),
    "attention": ("flash", "fmha", "attention", "sdpa", "cudnn"), "norms": ("layer_norm", "layernorm", "gammabeta"),
    "optimizer": ("multi_tensor", "adam", "foreach"), "compiled": ("triton",), "dropout": ("dropout", "bernoulli"),
    "copies": ("copy", "memcpy", "cat", "memset", "fill", "to_copy"), "sums": ("reduce", "::sum"),
    "rows": ("index", "embedding", "scatter", "gather", "sort", "radix"), "head": ("softmax",),
    "elementwise": ("elementwise", "::mul", "::add", "gelu"),
}  # fmt: skip


def steps_of(words: list[str], *, small: bool, blocks: int = 5) -> None:
    """One recipe: rows a second by blocks of four steps, the host's part of them, and a profile of one step."""
    name, *changes = words
    if small:
        less = ["model.cells=64", "objective.samples=64"] if words == ELMO else ["model.heads=1"]
        changes = [each for each in changes if not each.startswith(("model.", "objective."))] + TINY + less
    else:
        changes += [] if "precision" in str(words) else ["layout.precision=bf16"]
    recipe = settings.decode(
        bench.Bench, settings.override(run.read_table(run.find_recipe(name, "bench"), "bench"), changes), name
    )
    job = bench._plan(recipe).build()
    job.carry(0)
    cuda = job.ranks.device.type == "cuda"
    ready = load(job.rows(0), job.share(0), 0, 10**6, workers=job.workers, device=job.ranks.device)
    count = 0

    def go(steps: int) -> float:
        nonlocal count
        waited = 0.0
        for _ in range(steps):
            began = time.perf_counter()
            batches = next(ready)
            waited += time.perf_counter() - began
            loop.update(job, batches, 1e-4, 0, count, step=count + 1)
            count += 1
        return waited

    def finish() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    began = time.perf_counter()
    go(3)
    warm = finish() - began
    times = []
    for _ in range(blocks):
        began = finish()
        waited = go(4)
        launched = time.perf_counter() - began
        times.append((finish() - began, launched, waited))
    seconds, launched, waited = (float(np.median([each[n] for each in times])) / 4 for n in range(3))
    flops = job.objective.flops(recipe.batch, recipe.length)
    memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    print(json.dumps({
        "recipe": name, "changes": changes, "rows_per_second": round(recipe.batch / seconds, 1),
        "tokens_per_second": round(recipe.batch * recipe.length / seconds), "tflops": round(flops / seconds / 1e12, 2),
        "share": round(flops / seconds / CEILING, 4), "step_ms": round(seconds * 1e3, 2),
        "host_ms": round(launched * 1e3, 2), "rows_ms": round(waited * 1e3, 2), "warm_s": round(warm, 1),
        "gib": round(memory, 1), "graphs": job.parallel.compiler.graphs if job.parallel.compiler else 0,
    }), flush=True)  # fmt: skip
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as seen:
        go(1)
        finish()
    _tell(seen, cuda=cuda)
    ready.close()  # type: ignore[attr-defined]


def _tell(seen: Any, *, cuda: bool) -> None:
    """Milliseconds of the step by kinds of kernels, and the kernels that take longest."""
    spent, times = collections.Counter[str](), collections.Counter[str]()
    for event in seen.events():
        if (event.device_type == torch.autograd.DeviceType.CUDA) == cuda:
            spent[event.name] += event.self_device_time_total if cuda else event.self_cpu_time_total
            times[event.name] += 1
    kinds = collections.Counter[str]()
    for kernel, micro in spent.items():
        kinds[next((kind for kind, words in KINDS.items() if any(w in kernel.lower() for w in words)), "other")] += (
            micro
        )
    told = ", ".join(f"{kind} {micro / 1e3:.2f}" for kind, micro in kinds.most_common())
    print(f"  ms: {told}; in all {sum(spent.values()) / 1e3:.1f}, kernels {sum(times.values())}")
    for kernel, micro in spent.most_common(15):
        print(f"  {micro / 1e3:9.2f} ms {times[kernel]:6d} x {kernel[:90]}", flush=True)


def versions(device: str) -> None:
    """What figures depend on; the memory that processes share, which loaders need."""
    name = torch.cuda.get_device_name() if device == "cuda" else "a CPU"
    print(f"torch {torch.__version__}, {name}, {shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB free in /dev/shm")
    print(f"peak of bf16: {measured_peak(torch.device(device), 'bf16') / 1e12:.2f} TFLOP/s", flush=True)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("plan", help="first, second, third, final, or the name of a bench recipe")
    reader.add_argument("changes", nargs="*")
    reader.add_argument("--small", action="store_true")
    asked = reader.parse_args()
    device = "cpu" if asked.small or not torch.cuda.is_available() else "cuda"
    here = Path(__file__).parent
    versions(device)
    if asked.plan == "second":
        for script in ("gpu_parts.py", "gpu_kernels.py"):
            subprocess.run([sys.executable, here / script, *(["--small"] if asked.small else [])], check=False)
    for words in PLANS.get(asked.plan, [[asked.plan, *asked.changes]]):
        try:
            steps_of([*words], small=asked.small, blocks=1 if asked.small else 5)
        except Exception as error:  # one that fails must not cost the others' time
            print(f"{' '.join(words)}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    if asked.plan == "first" and not asked.small:
        words = ["-m", "pytest", "-q", "-W", "default", "-n", "6", str(here.parent / "gpu")]
        subprocess.run([sys.executable, *words], check=False)


if __name__ == "__main__":
    main()
