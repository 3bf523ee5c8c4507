"""Measurement of training steps: rounds through the training loop, a profile, and steps of a reference implementation.

bench recipe -> plan -> connected processes -> job -> rounds of steps -> facts to print, measurements to store
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordsmed.base import settings
from ordsmed.base.machine.memory import peak_memory, reset_peak_memory
from ordsmed.base.machine.speed import measured_peak
from ordsmed.base.measurements import Measurement
from ordsmed.learn.phases import Phase
from ordsmed.measure.bench import energy, synthetic
from ordsmed.measure.bench.measurement import WARM, measurement_of, over_processes, with_dropout
from ordsmed.measure.bench.processes import connected_plan
from ordsmed.measure.bench.profile import Profile, VocabularySizes
from ordsmed.measure.bench.recipe import Bench
from ordsmed.measure.bench.rounds import Rounds, RowWaits, Spread
from ordsmed.train import loop
from ordsmed.train.callbacks import AfterStep, LoopState
from ordsmed.train.plan import attention_kernels
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.recipe import Pretraining

if TYPE_CHECKING:
    from ordsmed.train.job import Job

Facts = dict[str, Any]


def measure_training(recipe: Bench) -> tuple[Facts, list[Measurement]]:
    """Measure steps of the training loop on full rows from a store."""
    with planned(recipe, log=recipe.steps + recipe.profile + WARM) as plan:
        job = plan.build()
        ranks = job.ranks
        peak = measured_peak(ranks.device, job.recipe.layout.precision)
        with energy.meter(ranks.device) as (source, joules):
            rounds, profiled, waiting_share = _steps(recipe, job, joules, peak)
        steady = rounds.steady(rounds.seconds)
        memory, energy_spent = over_processes(ranks, peak_memory(ranks.device), rounds.energy)
        measurement = _measurement(recipe, job, Spread.of(steady), peak=peak * ranks.world, memory=memory)
        attention = "".join(attention_kernels(plan))
        implementations: Facts = {
            "kernels": job.kernels.removeprefix("kernels: "),
            "attention": attention.removeprefix("attention: "),
        }
        measurement = dataclasses.replace(measurement, rounds=len(steady), **implementations)
        if source:
            measurement = dataclasses.replace(measurement, energy=energy_spent, energy_of=source)
        facts = _facts(recipe, job, measurement, waiting_share) | {
            name: implementation for name, implementation in implementations.items() if implementation
        }
        if len(steady) < len(rounds.seconds):
            facts["rounds_left_out"] = len(rounds.seconds) - len(steady)  # rounds with compilation
        results = [measurement]
        if rounds.reference_seconds:
            reference = reference_measurement(measurement, Spread.of(rounds.steady(rounds.reference_seconds)))
            facts |= _compared(rounds, reference)
            results.append(reference)
        if profiled:
            facts["profile"] = profiled.shares()
        return facts, results if ranks.first else []


@contextlib.contextmanager
def planned(recipe: Bench, **changes: Any) -> Iterator[PretrainingPlan]:
    """Yield the connected plan of the training to measure: one phase on synthetic text, nothing saved or validated."""
    model = with_dropout(recipe.model, recipe.dropout)
    steps = recipe.steps + recipe.profile + WARM
    phase = Phase(steps=steps, length=recipe.length, batch=recipe.batch, learning_rate=1e-4)
    if model.capabilities.state:
        data = synthetic.word_store(recipe.vocabulary, recipe.tokens)
    else:  # RoBERTa numbers positions from its padding id
        data = synthetic.random_store(recipe.vocabulary, recipe.tokens, pad=max(0, getattr(model, "offset", 0) - 1))
    training = Pretraining(
        data=str(data),
        objective=recipe.objective,
        phase=(phase,),
        model=model,
        optimizer=recipe.optimizer,
        save=0,
        validate=0,
        layout=recipe.layout,
        **changes,
    )
    with connected_plan(PretrainingPlan, training) as plan:
        yield plan


def _steps(recipe: Bench, job: Job, joules: energy.Joules, peak: float) -> tuple[Rounds, Profile | None, float]:
    ranks, waits = job.ranks, list[float]()
    reference = None
    if recipe.beside != "none":
        from ordsmed.measure.bench.transformers_step import TransformersStep

        reference = TransformersStep.of(job).steps
    compiler = job.parallel.compiler
    rounds = Rounds(
        ranks.device,
        recipe.steps,
        recipe.rounds,
        WARM,
        joules,
        reference,
        graphs=(lambda: compiler.graphs) if compiler else int,
    )
    watch = RowWaits(ranks, recipe.layout.patience)
    profiled = (
        Profile(ranks.device, vocabulary_sizes(job), hasattr(job.recipe.model, "heads")) if recipe.profile else None
    )
    last = WARM + recipe.steps
    reset_peak_memory(ranks.device)

    def after_step(state: LoopState) -> None:
        step = state.step
        rounds.end_of_step(step)
        if step in (WARM, last):
            waits.append(watch.waited)
        if profiled and step == last:
            profiled.begin()
        if profiled and step == last + recipe.profile:
            profiled.end(watch.waited - waits[-1])

    with tempfile.TemporaryDirectory() as folder:
        loop.train(job, Path(folder), 0, peak, callbacks=[AfterStep(after_step, every_rank=True)], watch=watch)
    waiting_share = (waits[-1] - waits[0]) / (sum(rounds.seconds) / len(rounds.seconds) * recipe.steps)
    return rounds, profiled, waiting_share


def vocabulary_sizes(job: Job) -> VocabularySizes:
    return VocabularySizes({job.tokenizer.vocabulary})


def _measurement(recipe: Bench, job: Job, seconds: Spread, *, peak: float, memory: int) -> Measurement:
    return measurement_of(
        job,
        (seconds.median, seconds.least, seconds.most),
        batch=recipe.batch,
        tokens=recipe.batch * recipe.length * filled(job),
        flops=job.objective.flops(recipe.batch, recipe.length),
        peak=peak,
        memory=memory,
        measure="training",
        software="ordsmed",
        task=settings.plain(recipe.objective)["kind"],
        optimizer=settings.plain(job.recipe.optimizer)["kind"],
        length=recipe.length,
        micro=job.share(0).micro,
        dropout=getattr(job.recipe.model, "dropout", 0.0),
        steps=recipe.steps,
        rounds=min(recipe.rounds, recipe.steps),
    )


def filled(job: Job) -> float:
    """Return the share of positions that hold tokens, from a step's first rows."""
    share = job.share(0)
    batch = job.rows(0).batch(np.arange(min(share.batch, max(share.micro, 32))))
    return 1.0 if batch.documents is None else float((batch.documents > 0).double().mean())


def reference_measurement(timing: Measurement, seconds: Spread, software: str = "transformers") -> Measurement:
    """Return the measurement of a reference that does the same work in `seconds` per step; its memory is unknown."""
    slower = seconds.median / timing.step_seconds
    rates = ("sequences_per_second", "tokens_per_second", "flops_per_second", "share_of_peak")
    return dataclasses.replace(
        timing,
        software=software,
        step_seconds=seconds.median,
        step_seconds_least=seconds.least,
        step_seconds_most=seconds.most,
        memory=0,
        energy=None,
        energy_of="",
        kernels="",
        attention="",
        **{name: getattr(timing, name) / slower for name in rates},
    )


def _compared(rounds: Rounds, reference: Measurement) -> Facts:
    pairs = np.divide(rounds.steady(rounds.reference_seconds), rounds.steady(rounds.seconds))
    return {
        reference.software: {
            "sequences_per_second": round(reference.sequences_per_second, 3),
            "step_seconds": round(reference.step_seconds, 4),
        },
        "ratio": round(float(np.median(pairs)), 3),
        "min_ratio": round(float(np.min(pairs)), 3),
        "max_ratio": round(float(np.max(pairs)), 3),
    }


def _facts(recipe: Bench, job: Job, timing: Measurement, waiting_share: float) -> Facts:
    energy_told = {"joules_a_step": round(timing.energy, 2), "energy_of": timing.energy_of} if timing.energy else {}
    return {
        "model": timing.family,
        "width": timing.width,
        "layers": timing.layers,
        "parameters": timing.parameters,
        "objective": timing.task,
        "sequences_per_second": round(timing.sequences_per_second, 3),
        "tokens_per_second": round(timing.tokens_per_second, 1),
        "share_of_peak": round(timing.share_of_peak, 4),
        "dropout": timing.dropout,
        "attention_dropout": getattr(job.recipe.model, "attention_dropout", None),
        "length": timing.length,
        "batch": timing.batch,
        "micro": timing.micro,
        "precision": timing.precision,
        "compile": timing.compile,
        "threads": timing.threads,
        "device": str(job.ranks.device),
        "device_name": timing.device,
        "processes": timing.processes,
        "layout": timing.layout,
        "step_seconds": round(timing.step_seconds, 4),
        "step_seconds_least": round(timing.step_seconds_least, 4),
        "step_seconds_most": round(timing.step_seconds_most, 4),
        "waited": round(waiting_share, 4),
        "gflops": round(timing.flops_per_second / 1e9, 1),
        "peak_gflops": round(timing.peak / 1e9, 1),
        "memory_mb": timing.memory >> 20,
        **energy_told,
        "steps": timing.steps,
        "rounds": timing.rounds,
    }
