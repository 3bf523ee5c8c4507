"""The deed `pretrain`: a new run, or one that goes on from its last whole checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ordsmed.base import files, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.ranks import measured_peak, prepare
from ordsmed.base.run import Run
from ordsmed.base.say import duration, logged, say
from ordsmed.learn.metrics import below, unigram_cross_entropy
from ordsmed.learn.phases import Phase, locate, total
from ordsmed.nn import weights
from ordsmed.train import checkpoint, loop, picture
from ordsmed.train.job import Job, build, model_settings
from ordsmed.train.meters import read
from ordsmed.train.recipe import Pretraining, named

RESERVE = 0.95  # of a deadline is planned; the rest is for the checkpoint at the end and a slower hour
TRIAL_STEPS = 3


def pretrain(name: str, overrides: Sequence[str] = (), *, deadline: float | None = None, anew: bool = False) -> Path:
    """Start the run a recipe describes, or go on with one that a folder holds."""
    began = time.time()
    if Path(name).is_dir() and Run(Path(name)).status:
        run.finished(Path(name), "pretrain")
        if overrides:
            raise RecipeError(name, f"is a run, but {overrides[0]} is given", "a run goes on by its own recipe")
        folder, recipe = Path(name), None
    else:
        recipe, title = run.load(Pretraining, name, overrides)
        folder = run.place(recipe, title)
    with named(name), run.locked(folder):
        if deadline and Run(folder).status and not anew:
            say(f"{folder}: --deadline is not applied again: the steps of a run are fitted when it begins")
        if recipe is not None:
            _begin(folder, recipe, name, began, deadline, anew=anew)
        with logged(folder / "log.txt"):
            try:
                facts = go_on(folder)
            except OrdsmedError as error:
                with contextlib.suppress(OrdsmedError):  # a full disk may be what failed
                    Run(folder).set(state="failed", why=str(error))
                raise
        Run(folder).set(state="done", why=None, **facts)
    return folder


def go_on(folder: Path) -> dict[str, Any]:
    """Train from the last whole checkpoint, or from the start, to the end of the recipe."""
    recipe = run.read_recipe(Pretraining, folder)
    ranks = prepare(recipe.layout.device, recipe.layout.threads or None)
    found = checkpoint.latest(folder / "checkpoints", place=folder)
    stamp, seen = recipe.stamp(), Run(folder).status.get("data")
    if found and seen and seen != stamp:
        raise RecipeError(
            folder, f"its data are {stamp}", f"{seen}, which it began with", "put those back, or begin a new run"
        )
    job = build(recipe, ranks, gone_on=found[1] if found else None)
    Run(folder).set(state="running", data=stamp, phases_before=job.phases_before)
    job.tokenizer.save(folder / "tokenizer")
    files.write_json(folder / "data.json", {n: d.facts for n, d in zip(recipe.sources, job.data, strict=True)})
    start = _restore(job, *found) if found else 0
    steps = total(job.phases)
    if start >= steps:
        say(f"{folder}: all {steps} steps are done")
        return _finish(job, folder)
    peak = measured_peak(ranks.device, recipe.layout.precision)
    for line in told(job, peak):
        say(line)
    try:
        loop.train(job, folder, start, peak)
    except loop.Stopped as stopped:
        Run(folder).set(state="stopped", step=stopped.step)
        say(f"saved at step {stopped.step} of {steps}; go on with: ordsmed pretrain {folder}")
        raise
    return _finish(job, folder)


def told(job: Job, peak: float) -> list[str]:
    """Device, precision and batch arithmetic, in lines."""
    layout, ranks = job.recipe.layout, job.ranks
    count = sum(t.numel() for t in weights.own_tensors(job.objective).values())
    lines = [f"{count:,} parameters on {ranks.device}, {layout.precision}, {ranks.threads} threads, "
             f"measured peak {peak / 1e9:,.0f} GFLOP/s"]  # fmt: skip
    for index, phase in enumerate(job.phases):
        share = job.share(index)
        lines.append(
            f"phase {index + 1}: {phase.steps:,} steps of {phase.batch:,} rows x {phase.length} tokens; batch = micro "
            f"{share.micro} x accumulation {share.accumulation} x devices {share.world}"
        )
    return lines


def _begin(folder: Path, recipe: Pretraining, name: str, began: float, deadline: float | None, *, anew: bool) -> None:
    """Write a new run's folder; one that stands is gone on with if its recipe is the same."""
    place = Run(folder)
    if anew and place.status:
        run.finished(folder, "pretrain")
        shutil.rmtree(folder)
    if place.status:
        run.finished(folder, "pretrain")
        same = place.status["fingerprint"] == run.fingerprint(recipe)
        if not same and checkpoint.steps(folder / "checkpoints"):
            raise RecipeError(
                folder, "holds a run of another recipe or other data", "",
                f"`ordsmed show {folder} {name}` tells the difference; name another `out=`, or add --anew",
            )  # fmt: skip
        if same:
            return
        shutil.rmtree(folder)  # it never came to a checkpoint: a recipe that was mended
    mark = run.fingerprint(recipe)
    recipe = dataclasses.replace(recipe, model=model_settings(recipe))
    fitted = _fit(recipe, deadline - (time.time() - began)) if deadline else recipe
    if fitted is not recipe:
        mended = [phase.steps for phase in fitted.phase]
        say(f"deadline {duration(deadline or 0)}: steps {[p.steps for p in recipe.phase]} became {mended}")
    asked = [phase.steps for phase in recipe.phase]
    place.begin(fitted, fingerprint=mark, began=began, deadline=deadline, steps_asked=asked)


def _restore(job: Job, path: Path, state: dict[str, Any]) -> int:
    """Put a checkpoint back; returns its step."""
    own = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": job.ranks.device.type}
    other = [f"{k} {state[k]}, now {v}" for k, v in own.items() if state.get(k) != v]
    if other:
        say(f"{path}: made with {'; '.join(other)}: losses will agree, but not to the last bit")
    checkpoint.restore(path, job.objective, job.optimizer)
    say(f"goes on from {path}")
    return int(state["step"])


def _finish(job: Job, folder: Path) -> dict[str, Any]:
    """What a finished run leaves: weights, picture, scores, and how it compares with guessing by frequency."""
    out = folder / "weights"
    out.mkdir(exist_ok=True)
    weights.write(out / "model.safetensors", weights.own_tensors(job.objective))
    networks = {"model": job.objective.model_settings, "objective": job.recipe.objective}
    files.write_text(out / "settings.toml", settings.write(networks))
    job.tokenizer.save(out / "tokenizer")
    picture.draw(folder, folder.name)
    lines = read(folder / "metrics.jsonl")
    training = [line for line in lines if "validation" not in line]
    judged = [line for line in lines if "validation" in line]
    facts: dict[str, Any] = {
        "step": total(job.phases), "tokens": sum(line["tokens"] for line in training),
        "training_seconds": round(sum(line["seconds"] for line in training), 1),
        "loss": training[-1]["loss"] if training else None,
    }  # fmt: skip
    if judged:
        facts |= {k: v for k, v in judged[-1].items() if k not in ("step", "phase")}
        facts["unigram"] = unigram(job)
        share = below(facts["validation"], facts["unigram"])
        side = f"{share:.1%} below" if share >= 0 else f"{-share:.1%} above"
        say(f"validation loss {facts['validation']:.4f}: {side} the {facts['unigram']:.4f} of guessing by frequency")
    files.write_json(folder / "scores.json", facts)
    return facts


def unigram(job: Job) -> float:
    """Cross-entropy of the validation's targets under how often each token stands in the training split."""
    rows = job.validation(len(job.phases) - 1)
    assert rows is not None
    counts = sum(np.asarray(encoded.train.counts) for encoded in job.data)
    batch = rows.batch(np.arange(min(job.recipe.validation_rows, len(rows))))
    return unigram_cross_entropy(np.asarray(counts), batch.targets[batch.weights > 0].numpy())


def _fit(recipe: Pretraining, seconds: float) -> Pretraining:
    """Fewer steps, never more, so that all phases end in time; each phase and its warm-up shrink by the same share."""
    ranks = prepare(recipe.layout.device, recipe.layout.threads or None)
    job = build(recipe, ranks)
    start = time.perf_counter()
    needed = sum(phase.steps * _step_seconds(job, index) for index, phase in enumerate(recipe.phase))
    left = (seconds - (time.perf_counter() - start)) * RESERVE - _judge_seconds(job)
    if needed <= left:
        return recipe
    share = left / needed
    if share <= 0 or any(phase.steps * share < 1 for phase in recipe.phase):
        found = f"{duration(seconds)} is less than a step of every phase takes"
        raise RecipeError("--deadline", found, f"more than {duration(needed / min(p.steps for p in recipe.phase))}")
    return dataclasses.replace(recipe, phase=tuple(_shrunk(phase, share) for phase in recipe.phase))


def _shrunk(phase: Phase, share: float) -> Phase:
    steps = max(1, int(phase.steps * share))
    warmup = phase.warmup if phase.warmup < 1 else max(float(int(phase.warmup * share)), 0.0)
    return dataclasses.replace(phase, steps=steps, warmup=min(warmup, steps))


def _step_seconds(job: Job, index: int) -> float:
    """Seconds of a step of this phase with what recurs in it, measured on the networks, which are thrown away after."""
    rows, share, phase = job.rows(index), job.share(index), job.phases[index]
    ready = loop.load(rows, share, 0, min(TRIAL_STEPS + 1, phase.steps), workers=0, device=job.ranks.device)
    spent = []
    for inner, batches in enumerate(ready):
        began = time.perf_counter()
        float(loop.update(job, batches, 0.0, index, inner)[1])
        spent.append(time.perf_counter() - began)
    each = sorted(spent)[len(spent) // 2]
    every = job.recipe.validate
    return each + (_judge_seconds(job) / every if every else 0.0)


def _judge_seconds(job: Job) -> float:
    rows = job.validation(len(job.phases) - 1)
    if rows is None:
        return 0.0
    count, began = min(job.recipe.validation_rows, len(rows)), time.perf_counter()
    some = min(count, loop.JUDGED_ROWS)
    loop.judge(job, rows, some)
    return (time.perf_counter() - began) * count / some


def where(folder: Path) -> str:
    """`step 500 of 1,000, phase 1`, for a line of a person's."""
    recipe, found = run.read_recipe(Pretraining, folder), checkpoint.steps(folder / "checkpoints")
    step = found[-1] if found else 0
    return (
        f"step {step:,} of {total(recipe.phase):,}, phase {min(locate(recipe.phase, step)[0] + 1, len(recipe.phase))}"
    )
