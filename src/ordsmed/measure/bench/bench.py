"""The command `bench`: reproducible speed measurements through the production loop, loader, store and commands."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordsmed.base import measurements, run, settings
from ordsmed.base.errors import RunError
from ordsmed.base.launch.local import start
from ordsmed.base.machine.memory import check_fits_memory, is_out_of_memory
from ordsmed.base.measurements import Measurement
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.learn.phases import Phase
from ordsmed.measure.bench import synthetic as made_up
from ordsmed.measure.bench import tasks as bench_tasks
from ordsmed.measure.bench.measurement import WARM, now
from ordsmed.measure.bench.recipe import Bench
from ordsmed.measure.bench.table import measured_table
from ordsmed.train.guard import Guard

if TYPE_CHECKING:
    from ordsmed.data.batch import Batch
    from ordsmed.train.job import Job
    from ordsmed.train.pretrain.plan import PretrainingPlan


def bench(
    name: str, overrides: Sequence[str] = (), *, json_line: bool = False, left: Callable[[Path], None] | None = None
) -> list[str]:
    """Run the measurement of a recipe and return the lines to print: one JSON line, or one line per number.

    A recipe with `table` returns its table and calls `left` with the path of the table's file.
    """
    path = run.find_recipe(name, "bench")
    recipe = settings.decode(Bench, settings.override(run.read_table(path, "bench"), overrides), name)
    for key, size in (("tokens", 16), ("sentences", 32), ("vocabulary", 256)):
        check_fits_memory(f"{name}: {key}", getattr(recipe, key), size)
    check_fits_memory(f"{name}: batch", recipe.batch * recipe.length, 64)
    if recipe.table:
        return measured_table(name, overrides, recipe, json_line=json_line, left=left)
    if recipe.measure == "serve":
        from ordsmed.measure.bench.serving import measure_serving  # starts servers as separate processes

        return measure_serving(name, recipe, json_line=json_line)
    if recipe.devices > 1 and "RANK" not in os.environ:
        if status := start(["bench", name, *overrides, *(["--json"] if json_line else [])], recipe.devices):
            problem = f"its {many(recipe.devices, 'process')} ended with status {status}"
            raise RunError(name, problem, "", "their errors are in the lines above")
        return []
    facts = {"bench": name, "measure": recipe.measure, **_measured(name, recipe)}
    if os.environ.get("RANK", "0") != "0":
        return []
    return [json.dumps(facts)] if json_line else [f"{k}: {_figure(v)}" for k, v in facts.items()]


def _measured(name: str, recipe: Bench) -> dict[str, Any]:
    """Return the measured facts, and add measurements that `estimate` uses to the file `recipe.keep`."""
    try:
        if recipe.measure not in KEPT:
            return dict(MEASURES[recipe.measure](recipe))
        facts, results = KEPT[recipe.measure](recipe)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        problem = (
            f"no memory is left: length {recipe.length}, batch {recipe.batch}, micro {recipe.layout.micro or 'auto'}"
        )
        raise RunError(name, problem, "", "use a smaller layout.micro, or layout.recompute=true") from None
    if recipe.keep:
        measurements.add(Path(recipe.keep), [dataclasses.replace(measurement, bench=name) for measurement in results])
    return dict(facts)


def _figure(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} ({_figure(v)})" if isinstance(v, dict) else f"{name} {v}" for name, v in value.items())


def measure_overhead(recipe: Bench) -> dict[str, Any]:
    """Measure the milliseconds per step that the training loop adds: rows, keys, counts, guard, metrics.

    Each step of the loop is followed by a bare step: forward and backward of the same objective on a prepared batch,
    torch's gradient clipping, and the optimizer. The overhead is the median of the differences.
    """
    from ordsmed.measure.bench.training import planned

    with planned(recipe, trouble=Guard(action="skip")) as plan:
        return _overhead(recipe, plan)


def _overhead(recipe: Bench, plan: PretrainingPlan) -> dict[str, Any]:
    from ordsmed.data.loader import load

    job, bare, ranks, phase = plan.build(), plan.build(), plan.ranks, plan.recipe.phases[0]
    bare.carry(0)
    ready = load(bare.rows(0), bare.share(0), 0, phase.steps, workers=0, device=ranks.device)
    rates = [phase.rate_at(step) for step in range(phase.steps)]
    moved = [([batch.to(ranks.device) for batch in batches], _counts(bare, batches)) for batches in ready]

    def bare_step(step: int, began: float) -> float:
        _bare_step(bare, *moved[step - 1], rates[step - 1])
        return began

    loops, bares = _alternate(job, bare_step)
    loop_times, bare_times = np.asarray([loops[WARM:], bares[WARM:]]) * 1e3
    return {
        "model": settings.plain(recipe.model)["kind"],
        "width": recipe.model.width,
        "layers": recipe.model.layers,
        "objective": settings.plain(recipe.objective)["kind"],
        "loop_ms": round(float(np.median(loop_times)), 3),
        "arithmetic_ms": round(float(np.median(bare_times)), 3),
        "overhead_ms": round(float(np.median(loop_times - bare_times)), 3),
        "length": recipe.length,
        "batch": recipe.batch,
        "micro": job.share(0).micro,
        "precision": job.recipe.layout.precision,
        "threads": ranks.threads,
        "device": str(ranks.device),
        "steps": recipe.steps,
    }


def _alternate(job: Job, reference: Callable[[int, float], float]) -> tuple[list[float], list[float]]:
    """Run the training loop, and a step of a reference after each of its steps; return the seconds of both.

    `reference` gets the number of the step and the current time, and returns the time from which it is measured.
    """
    from ordsmed.train import loop
    from ordsmed.train.callbacks import AfterStep, LoopState

    device = job.ranks.device
    loops, references, began = list[float](), list[float](), 0.0

    def after_step(state: LoopState) -> None:
        nonlocal began
        ended = now(device)
        loops.append(ended - began)
        reference_began = reference(state.step, ended)
        began = now(device)
        references.append(began - reference_began)

    with tempfile.TemporaryDirectory() as folder:
        loop.train(job, Path(folder), 0, 1.0, callbacks=[AfterStep(after_step, every_rank=True)])
    return loops, references


def _bare_step(job: Job, batches: list[Batch], counts: dict[str, float], rate: float) -> None:
    import torch

    from ordsmed.train.mesh.precision import autocast

    for batch in batches:
        with autocast(job.recipe.layout, job.ranks.device):
            sums = job.objective(batch)
        sum(weight * sums[term] / counts[term] for term, weight in job.objective.weights.items()).backward()
    torch.nn.utils.clip_grad_norm_([part.local for part in job.parts], job.recipe.clip)
    for group in job.optimizer.param_groups:
        group["lr"] = rate * group["share"]
    job.optimizer.step()
    job.optimizer.zero_grad()


def _counts(job: Job, batches: list[Batch]) -> dict[str, float]:
    counts = [job.objective.count(batch) for batch in batches]
    return {term: float(sum(count[term] for count in counts)) for term in job.objective.weights}


def measure_plain(recipe: Bench) -> dict[str, Any]:
    """Measure ELMo in words per second: steps of the loop and of a plain script on the same rows, alternately."""
    from ordsmed.measure.bench.training import planned

    with planned(recipe) as plan:
        return _plain(recipe, plan.build())


def _plain(recipe: Bench, job: Job) -> dict[str, Any]:
    import torch

    from ordsmed.data.loader import load
    from ordsmed.measure.bench.plain import PlainBiLm

    ranks = job.ranks
    job.carry(0)
    plain = PlainBiLm(job.objective).to(ranks.device).train()
    optimizer = recipe.optimizer.build([{"params": list(plain.parameters()), "decayed": False}])
    steps = job.phases[0].steps
    share = dataclasses.replace(job.share(0), micro=recipe.batch)
    ready = load(job.rows(0), share, 0, steps, workers=0, device=ranks.device)
    carried = [job.objective.state[name].clone() for name in ("h", "c")]

    def plain_step(step: int, began: float) -> float:
        [batch] = next(ready)
        began = now(ranks.device)  # rows are made outside of the measurement
        loss, *carried[:] = plain(batch.to(ranks.device), *carried)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), job.recipe.clip)
        for group in optimizer.param_groups:
            group["lr"] = job.phases[0].rate_at(step - 1)
        optimizer.step()
        optimizer.zero_grad()
        return began

    loops, plains = _alternate(job, plain_step)
    loop_seconds, plain_seconds = (float(np.median(seconds[WARM:])) for seconds in (loops, plains))
    words = recipe.batch * recipe.length
    different = [len(job.rows(0).batch(np.arange(recipe.batch) + recipe.batch * s).words) - 1 for s in range(3)]  # type: ignore[arg-type]
    return {
        "width": recipe.model.width,
        "cells": recipe.model.cells,
        "words_per_second": round(words / loop_seconds),
        "plain_words_per_second": round(words / plain_seconds),
        "ratio": round(plain_seconds / loop_seconds, 2),
        "min_ratio": round(float(np.min(np.divide(plains, loops)[WARM:])), 2),
        "different_words_a_step": different,
        "words_a_step": words,
        "batch": recipe.batch,
        "length": recipe.length,
        "told": job.objective.describe(ranks.device.type, job.recipe.layout.precision),
        "micro": job.share(0).micro,
        "threads": ranks.threads,
        "device": str(ranks.device),
        "steps": recipe.steps,
    }


def measure_loader(recipe: Bench) -> dict[str, Any]:
    """Measure the tokens per second, without padding, of the batches that one process on one core makes."""
    from ordsmed.data.encode import Encoded

    encoded = Encoded(made_up.random_store(recipe.vocabulary, recipe.tokens))
    objective = recipe.objective
    facts: dict[str, Any] = {"objective": settings.plain(objective), "batch": recipe.batch}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        for length in recipe.lengths:
            phase = Phase(steps=1, length=length, batch=recipe.batch, learning_rate=1.0)
            rows = objective.rows([encoded.train], [1.0], encoded.tokenizer, phase, 0)
            rows.batch(np.arange(recipe.batch))
            real, began = 0, time.perf_counter()
            for step in range(recipe.steps * 20):
                batch = rows.batch(np.arange(step * recipe.batch, (step + 1) * recipe.batch))
                real += batch.tokens.numel() if batch.documents is None else int((batch.documents > 0).sum())
            facts[f"real_tokens_per_second_{length}"] = round(real / (time.perf_counter() - began))
    finally:
        os.sched_setaffinity(0, cores)
    return facts


def measure_windows(recipe: Bench) -> dict[str, Any]:
    """Measure the time to build the index map of a large store, and to make the rows of an early and of a late step."""
    from ordsmed.data.order import draw
    from ordsmed.data.windows import Fitted

    generator = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(generator.integers(5, 45, recipe.sentences))])
    documents = starts[np.concatenate([np.arange(0, recipe.sentences, 20), [recipe.sentences]])]
    began = time.perf_counter()
    windows = Fitted.of(documents, starts, recipe.length - 2, 2, pack=True)
    seconds = time.perf_counter() - began

    def step(number: int) -> float:
        numbers = np.arange(number * recipe.batch, (number + 1) * recipe.batch)
        seconds_of_calls = []
        for _ in range(20):
            began = time.perf_counter()
            windows.spans(draw(numbers, len(windows), 0))
            seconds_of_calls.append(time.perf_counter() - began)
        return round(min(seconds_of_calls) * 1e3, 3)

    return {
        "sentences": recipe.sentences,
        "tokens": int(starts[-1]),
        "rows": len(windows),
        "length": recipe.length,
        "index_seconds": round(seconds, 3),
        "step_1_ms": step(0),
        "step_1000000_ms": step(1_000_000),
    }


def measure_pairs(recipe: Bench) -> dict[str, Any]:
    """Measure making sentence pairs from a large store: the first batch, an epoch, the start of the next epoch.

    The last group of the first epoch is read batch by batch; the next epoch's first group is made at the same time.
    """
    from ordsmed.data.pairs import PairRows

    source = _skewed_source(recipe.sentences)
    began = time.perf_counter()
    rows = PairRows(
        [source], [1.0], length=recipe.length, start=2, stop=3, pad=0, style=recipe.style, short=0.1, key=(0,)
    )
    built = time.perf_counter() - began

    def batch(first: int) -> float:
        began = time.perf_counter()
        rows.assembled(np.arange(first, first + recipe.batch))
        return time.perf_counter() - began

    first, examples = built + batch(0), rows.examples[0]
    began = time.perf_counter()
    for group in range(examples.groups):
        examples.group(group)
    walked = time.perf_counter() - began
    last = len(rows) - examples.share
    seconds_of_batches = [batch(begin) for begin in range(last, len(rows) - recipe.batch + 1, recipe.batch)]
    return {
        "style": recipe.style,
        "sentences": recipe.sentences,
        "documents": len(source.document_starts) - 1,
        "rows": len(rows),
        "groups": examples.groups,
        "length": recipe.length,
        "batch": recipe.batch,
        "first_batch_seconds": round(first, 3),
        "epoch_seconds": round(walked, 2),
        "examples_per_second": round(len(rows) / walked),
        "batch_ms": round(float(np.median(seconds_of_batches or [first])) * 1e3, 3),
        "second_epoch_seconds": round(batch(len(rows)), 3),
    }


@dataclass(frozen=True)
class MadeUp:
    tokens: np.ndarray
    document_starts: np.ndarray
    starts: np.ndarray


def _skewed_source(sentences: int) -> MadeUp:
    """Return sentences of 5 to 44 tokens, half of them in documents of more than 70, the longest of 50,000."""
    generator = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(generator.integers(5, 45, sentences))])
    sizes = np.clip(generator.lognormal(2.3, 1.4, sentences // 10 + 1).astype(np.int64), 1, 50_000)
    sizes[:: 1 << 18] = 50_000
    ends = np.cumsum(sizes)
    borders = np.concatenate([[0], ends[ends < sentences], [sentences]])
    return MadeUp(np.broadcast_to(np.uint16(len(made_up.SPECIAL)), (int(starts[-1]),)), starts[borders], starts)


def measure_encode(recipe: Bench) -> dict[str, Any]:
    import resource

    from ordsmed.corpus.folder import documents, parts
    from ordsmed.corpus.pipeline import Corpus
    from ordsmed.data.encode import Encoding
    from ordsmed.data.tokenizer_training import read_tokenizer

    folder, tokenizer = run.obtain(Corpus, recipe.corpus), read_tokenizer(recipe.tokenizer)
    texts = [s for part in parts(folder, "train") for d in documents(part) for s in d.sentences()]
    size = sum(len(text.encode()) for text in texts) / 1e6
    pipeline = tokenizer.plain
    began = time.perf_counter()
    for first in range(0, len(texts), 4096):
        pipeline.encode_batch_fast(texts[first : first + 4096], add_special_tokens=False)
    library = time.perf_counter() - began
    del texts
    with tempfile.TemporaryDirectory() as out:
        tokenizer.save(Path(out) / "tokenizer")
        began = time.perf_counter()
        encoding = Encoding(corpus=str(folder), tokenizer=str(Path(out) / "tokenizer"))
        store = Run(Path(out) / "store")
        store.begin(encoding)
        facts = encoding.perform(store)
        encoding_seconds = time.perf_counter() - began
    return {
        "megabytes": round(size, 2),
        "library_mb_per_second": round(size / library, 2),
        "encode_mb_per_second": round(size / encoding_seconds, 2),
        "ratio": round(library / encoding_seconds, 3),
        "cores": len(os.sched_getaffinity(0)),
        "stored_bytes_per_token": facts["train"]["stored_a_token"],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _training(recipe: Bench) -> tuple[dict[str, Any], list[Measurement]]:
    from ordsmed.measure.bench.training import measure_training  # imports torch

    return measure_training(recipe)


MEASURES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "overhead": measure_overhead,
    "loader": measure_loader,
    "encode": measure_encode,
    "windows": measure_windows,
    "pairs": measure_pairs,
    "plain": measure_plain,
}
KEPT: dict[str, Callable[[Bench], tuple[dict[str, Any], list[Measurement]]]] = {
    "training": _training,
    "finetune": bench_tasks.measure_finetune,
    "predict": bench_tasks.measure_predict,
}
