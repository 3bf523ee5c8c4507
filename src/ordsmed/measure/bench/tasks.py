"""Benchmarks of tasks: fine-tuning and prediction, with packed rows compared with rows padded to full length.

    examples, synthetic or read -> steps, alternately packed and padded -> examples per second, ratio
                                -> batches, likewise -> latencies, examples per second

Speed is reported in two ways: over the total time, and as NVIDIA's fine-tuning scripts do (DeepLearningExamples,
ELECTRA in TensorFlow), whose rate is a mean of rates and whose "90%" is not a percentile.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.machine.memory import peak_memory, reset_peak_memory
from ordsmed.base.machine.speed import measured_peak
from ordsmed.base.measurements import Measurement
from ordsmed.measure.bench import synthetic as made_up
from ordsmed.measure.bench.measurement import WARM, measurement_of, now, over_processes, with_dropout
from ordsmed.measure.bench.recipe import Bench

if TYPE_CHECKING:
    from ordsmed.data.features import Features, Packing
    from ordsmed.train.finetune.recipe import Finetuning
    from ordsmed.train.job import Job
    from ordsmed.weights.trained_model import Trained

SHARES = (90, 95, 99)  # percentiles
DROPPED = 2  # longest times that NVIDIA's scripts leave out

Seconds = Sequence[float]
Ints = NDArray[np.int64]


def measure_finetune(recipe: Bench) -> tuple[dict[str, Any], list[Measurement]]:
    """Measure steps of the loop alternately on packed rows and on rows padded to full length."""
    with _job(recipe) as job:
        return _measure_steps(recipe, job)


def _measure_steps(recipe: Bench, job: Job) -> tuple[dict[str, Any], list[Measurement]]:
    from ordsmed.data.features import ExampleRows
    from ordsmed.data.loader import load
    from ordsmed.train import loop

    device, share, rate = job.ranks.device, job.share(0), 1e-5
    steps = recipe.steps + WARM
    blocks = [
        *np.split(np.arange(WARM), WARM),
        *np.array_split(np.arange(WARM, steps), min(recipe.rounds, recipe.steps)),
    ]
    packed = job.rows(0)
    assert isinstance(packed, ExampleRows)
    padded_packing = _padded(packed.packing, job)
    ready = [
        load(rows, share, 0, steps, workers=job.workers, device=device)
        for rows in (packed, ExampleRows(packed.features, padded_packing, *packed.key))
    ]
    seconds_by_packing: list[list[float]] = [[], []]
    sizes: list[list[tuple[int, int]]] = [[], []]  # positions and tokens of each step
    reset_peak_memory(device)
    for block in blocks:
        for packing, source in enumerate(ready):
            began = now(device)
            for step in map(int, block):
                batches = next(source)
                loop.train_step(job, batches, rate, 0, step, step=step + 1)
                tokens = sum(int(batch.spans[:, 1].sum()) for batch in batches if batch.spans is not None)
                sizes[packing].append((sum(batch.tokens.numel() for batch in batches), tokens))
            seconds_by_packing[packing] += [(now(device) - began) / len(block)] * len(block)
    packed_seconds, padded_seconds = (seconds[WARM:] for seconds in seconds_by_packing)
    positions, tokens, padded = _summed(job, [np.sum(way_sizes[WARM:], axis=0) for way_sizes in sizes])
    results = [
        _measurement(recipe, job, recipe.batch, seconds, tokens / recipe.steps, software)
        for seconds, software in ((packed_seconds, "ordsmed"), (padded_seconds, "padded"))
    ]
    return {
        **_description(recipe, job),
        **rates(recipe.batch, packed_seconds),
        "padded": rates(recipe.batch, padded_seconds),
        **ratios(packed_seconds, padded_seconds),
        "ratio_of_places": round(padded / positions, 3),
        "filled": round(tokens / positions, 3),
        "length": job.phases[0].length,
        "tokens_an_example": round(tokens / recipe.batch / recipe.steps, 1),
        "batch": recipe.batch,
        "micro": share.micro,
        "steps": recipe.steps,
        "rounds": min(recipe.rounds, recipe.steps),
        "processes": job.ranks.world,
    }, results if job.ranks.first else []


def measure_predict(recipe: Bench) -> tuple[dict[str, Any], list[Measurement]]:
    """Measure prediction of batches alternately with packed rows and with rows padded to full length."""
    with _job(recipe) as job:
        return _measure_batches(recipe, job)


def _measure_batches(recipe: Bench, job: Job) -> tuple[dict[str, Any], list[Measurement]]:
    from ordsmed.data.features import ExampleRows
    from ordsmed.learn.inference import predict_all
    from ordsmed.learn.task import Task

    trained, device, rows = _for_inference(job), job.ranks.device, job.rows(0)
    task = trained.objective
    assert isinstance(task, Task)
    assert isinstance(rows, ExampleRows)
    packings = [rows.packing, _padded(rows.packing, job)]
    facts: dict[str, Any] = _description(recipe, job) | {"length": job.phases[0].length}
    results = list[Measurement]()
    for batch, times in recipe.batches:
        seconds_by_packing: list[list[float]] = [[], []]
        tokens = 0
        reset_peak_memory(device)
        for repetition in range(times + 1):  # the first turn is a warm-up
            examples = part(rows.features, np.arange(repetition * batch, (repetition + 1) * batch) % len(rows))
            tokens += int(examples.sizes.sum()) if repetition else 0
            for number, packing in enumerate(packings):
                began = now(device)
                predict_all(task, examples, packing, job.ranks, within=trained.within)
                seconds_by_packing[number].append(now(device) - began)
        packed_seconds, padded_seconds = (seconds[1:] for seconds in seconds_by_packing)
        facts[f"batch_{batch}"] = {
            "times": times,
            **summary(batch, packed_seconds),
            **ratios(packed_seconds, padded_seconds),
        }
        facts[f"batch_{batch}_padded"] = summary(batch, padded_seconds)
        results += [
            _measurement(recipe, job, batch, seconds, tokens / times, software)
            for seconds, software in ((packed_seconds, "ordsmed"), (padded_seconds, "padded"))
        ]
    return facts, results


def _for_inference(job: Job) -> Trained:
    """Return the network as the commands of inference open it, without the casts and kernels of a training."""
    from ordsmed.nn.kernels import switch
    from ordsmed.weights.trained_model import Trained

    layout, network = job.recipe.layout, job.recipe.model
    switch.begin("plain", job.ranks.device)
    task = job.recipe.learned()["task"].build(network, job.tokenizer)
    task.load_state_dict(job.objective.state_dict(), assign=True)  # shares the tensors
    task.to(job.ranks.device).eval()
    return Trained(task, job.tokenizer, network, Path(), ranks=job.ranks, precision=layout.precision)


def _measurement(recipe: Bench, job: Job, batch: int, seconds: Seconds, tokens: float, software: str) -> Measurement:
    """Return the measurement that estimates use; prediction needs a third of a step's arithmetic."""
    ranks, learning, length = job.ranks, recipe.measure == "finetune", job.phases[0].length
    memory, _ = over_processes(ranks, peak_memory(ranks.device), 0)
    return measurement_of(
        job,
        (float(np.median(seconds)), min(seconds), max(seconds)),
        batch=batch,
        tokens=tokens,
        # without padding, which is not useful work, so that both packings have the same FLOPs
        flops=job.objective.flops(1, length) * tokens / length / (1 if learning else 3),
        peak=measured_peak(ranks.device, job.recipe.layout.precision) * ranks.world,
        memory=memory,
        measure=recipe.measure,
        software=software,
        task=settings.plain(recipe.task)["kind"],
        optimizer=settings.plain(job.recipe.optimizer)["kind"] if learning else "",
        length=length,
        micro=job.share(0).micro if learning else batch,
        dropout=getattr(job.recipe.model, "dropout", 0.0) if learning else 0.0,
        steps=len(seconds),
        rounds=len(seconds),
    )


def summary(batch: int, seconds: Seconds) -> dict[str, Any]:
    return rates(batch, seconds) | {"latency_ms": latencies(seconds), "nvidia_latency_ms": trimmed(seconds)}


def rates(batch: int, seconds: Seconds) -> dict[str, float]:
    """Return examples per second over the total time, and NVIDIA's definition: the mean of the batches' rates."""
    batch_seconds = np.asarray(seconds)
    return {
        "examples_per_second": round(batch * len(batch_seconds) / float(batch_seconds.sum()), 3),
        "nvidia_examples_per_second": round(float((batch / batch_seconds).mean()), 3),
    }


def latencies(seconds: Seconds) -> dict[str, float]:
    """Return milliseconds per batch: the mean and percentiles, which are measured values."""
    milliseconds = np.asarray(seconds) * 1e3
    shares = {f"{share}%": float(np.percentile(milliseconds, share, method="inverted_cdf")) for share in SHARES}
    return {name: round(value, 3) for name, value in ({"mean": float(milliseconds.mean())} | shares).items()}


def trimmed(seconds: Seconds) -> dict[str, float]:
    """Return the milliseconds that NVIDIA's scripts call latencies.

    They are the mean of all times except the two longest, and the means of the fastest 90, 95 and 99 % of those; an
    empty share is left out.
    """
    fastest = np.sort(seconds)[: max(0, len(seconds) - DROPPED)] * 1e3
    counts = {"mean": len(fastest)} | {f"mean of fastest {share}%": int(len(fastest) * share / 100) for share in SHARES}
    return {name: round(float(fastest[:count].mean()), 3) for name, count in counts.items() if count}


def ratios(packed: Seconds, padded: Seconds) -> dict[str, float]:
    """Return padded time over packed time: of the totals, and the median of consecutive pairs."""
    pairs = np.divide(padded, packed)
    return {
        "ratio": round(float(np.sum(padded) / np.sum(packed)), 3),
        "median_ratio": round(float(np.median(pairs)), 3),
    }


def part(features: Features, chosen: Ints) -> Features:
    sizes = features.sizes[chosen]
    source = np.concatenate([np.arange(features.starts[e], features.starts[e + 1]) for e in chosen])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    types, marks = (None if column is None else column[source] for column in (features.types, features.marks))
    return dataclasses.replace(
        features, starts=starts, ids=features.ids[source], types=types, marks=marks, labels=None, more={}
    )


@contextlib.contextmanager
def _job(recipe: Bench) -> Iterator[Job]:
    from ordsmed.measure.bench.processes import connected_plan
    from ordsmed.train.finetune.plan import FinetuningPlan

    with connected_plan(FinetuningPlan, _finetuning(recipe)) as plan:
        yield plan.build()


def _finetuning(recipe: Bench) -> Finetuning:
    from ordsmed.train.finetune.recipe import Finetuning

    task = recipe.task
    source: dict[str, Any] = {"init": recipe.init, "model": None, "tokenizer": None}
    if recipe.init is None:
        source |= {"model": with_dropout(recipe.model, recipe.dropout), "tokenizer": recipe.tokenizer}
    if not task.paths("train"):
        if recipe.init:
            raise RecipeError("task.train", "missing, but init is set", "text files for its tokenizer")
        tokenizer, examples = made_up.examples(task, recipe.sizes, recipe.vocabulary)
        task, source = dataclasses.replace(task, train=str(examples)), source | {"tokenizer": str(tokenizer)}
    return Finetuning(
        task=task,
        optimizer=recipe.optimizer,
        steps=recipe.steps + WARM,
        batch=recipe.batch,
        warmup=0.0,
        layout=recipe.layout,
        features="",
        **source,
    )


def _summed(job: Job, sizes: list[Ints]) -> list[int]:
    import torch

    counts = torch.tensor([*sizes[0].tolist(), sizes[1][0]], device=job.ranks.device)
    return [int(number) for number in job.ranks.total(counts)]


def _padded(packing: Packing, job: Job) -> Packing:
    return dataclasses.replace(packing, alone=True, length=job.phases[0].length)


def _description(recipe: Bench, job: Job) -> dict[str, Any]:
    model = job.recipe.model
    return {
        "task": settings.plain(recipe.task)["kind"],
        "examples_made_up": not recipe.task.paths("train"),
        "model": settings.plain(model)["kind"],
        "width": model.width,
        "layers": model.layers,
        "parameters": sum(p.numel() for p in job.objective.parameters()),
        "dropout": getattr(model, "dropout", None),
        "precision": job.recipe.layout.precision,
        "threads": job.ranks.threads,
        "device": str(job.ranks.device),
    }
