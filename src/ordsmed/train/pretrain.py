"""The deed `pretrain`: a new run, or one that goes on from its last whole checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ordsmed.base import files, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.ranks import Ranks, first_alone, join, leave, measured_peak, prepare
from ordsmed.base.run import Run, obtain
from ordsmed.base.say import logged, say
from ordsmed.data.encode import Encoding
from ordsmed.learn.metrics import below, unigram_cross_entropy
from ordsmed.learn.phases import locate, total
from ordsmed.nn import boxes, weights
from ordsmed.train import average, checkpoint, loop, picture
from ordsmed.train.auto import largest
from ordsmed.train.deadline import fit
from ordsmed.train.guard import Course
from ordsmed.train.job import Job, build, check, counted, model_settings
from ordsmed.train.layout import arithmetic, memory, parse, site_layout
from ordsmed.train.meters import read
from ordsmed.train.recipe import Pretraining, named
from ordsmed.train.saving import Saving, circumstances
from ordsmed.train.watch import Watch


def pretrain(
    name: str, overrides: Sequence[str] = (), *, deadline: float | None = None, anew: bool = False, layout: str = "",
    site: str = "",
) -> Path:  # fmt: skip
    """Start the run a recipe describes, or go on with one that a folder holds; every process of a launch calls this."""
    began = time.time()
    if (
        anew
        and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
        and os.environ.get("GROUP_WORLD_SIZE", "1") != "1"
    ):
        found = "found with torchrun's --max-restarts on several machines, which would delete the run at a restart"
        raise RecipeError("--anew", found, "", "delete the folder by hand, or name another `out`")
    folder, recipe = _asked(name, overrides, layout, site)
    with named(name):
        alone = prepare(recipe.layout.device, recipe.layout.threads or None)
        shape = recipe.layout.shape(alone.world)
        check(recipe, model_settings(recipe), dataclasses.replace(alone, shape=shape))
        for source in recipe.sources:
            obtain(Encoding, source)  # before the processes meet: a corpus may take hours
        recipe = counted(recipe)
        ranks = join(alone, shape, recipe.layout.patience)
        with contextlib.ExitStack() as at_the_end, Watch(ranks, recipe.layout.patience) as watch:
            at_the_end.push(lambda kind, *_: leave(ranks, well=kind in (None, loop.Stopped)))
            try:
                _perform(folder, recipe, name, ranks, watch, began, deadline, auto=layout == "auto", anew=anew)
            except OrdsmedError as error:
                watch.farewell(error)
                raise
            except RuntimeError as error:
                if ranks.world == 1:
                    raise
                if (told := watch.explain(error)) is None:
                    raise
                raise told from error
    return folder


def _asked(name: str, overrides: Sequence[str], layout: str, site: str) -> tuple[Path, Pretraining]:
    """The folder and recipe that are meant. A run goes on by its own recipe; only its layout may be another."""
    if Path(name).is_dir() and Run(Path(name)).status:
        run.finished(Path(name), "pretrain")
        folder = Path(name)
        other = [word for word in overrides if not word.startswith("layout.")]
        if other:
            raise RecipeError(
                name, f"is a run, but {other[0]} is given", "a run goes on by its own recipe and any layout"
            )
        table = settings.read(folder / "recipe.toml") if (folder / "recipe.toml").exists() else {}
        place = f"{name}/recipe.toml"
    else:
        table, place = run.read_table(run.find_recipe(name, "pretrain"), "pretrain"), name
        folder = None
    if site:
        table["layout"] = {**table.get("layout", {}), **site_layout(site)}
    recipe = settings.decode(Pretraining, settings.override(table, overrides), place)
    if layout and layout != "auto":
        recipe = dataclasses.replace(recipe, layout=parse(layout, recipe.layout))
    return folder or run.place(recipe, run.title(name)), recipe


def _perform(
    folder: Path, recipe: Pretraining, name: str, ranks: Ranks, watch: Watch, began: float, deadline: float | None, *,
    auto: bool, anew: bool,
) -> None:  # fmt: skip
    with contextlib.ExitStack() as held:
        first_alone(ranks, lambda: bool(held.enter_context(run.locked(folder))))
        stands = first_alone(ranks, lambda: _stands(folder, recipe, name, anew=anew))
        if stands:
            if deadline:
                say(f"{folder}: --deadline is not applied again: the steps of a run are fitted when it begins")
            kept = run.read_recipe(Pretraining, folder)
            recipe = kept if auto else dataclasses.replace(kept, layout=recipe.layout)
        else:
            if auto:
                recipe = dataclasses.replace(recipe, layout=largest(recipe, ranks))
            recipe = _begin(folder, recipe, ranks, began, deadline)
        if ranks.first:
            held.enter_context(logged(folder / "log.txt"))
        try:
            facts = go_on(folder, recipe, ranks, watch)
        except OrdsmedError as error:
            if ranks.first:
                with contextlib.suppress(OrdsmedError):  # a full disk may be what failed
                    Run(folder).set(state="failed", why=str(error))
            raise
        first_alone(ranks, lambda: Run(folder).set(state="done", why=None, **facts))


def _begin(folder: Path, recipe: Pretraining, ranks: Ranks, began: float, deadline: float | None) -> Pretraining:
    """Write a new run's folder; returns the recipe as resolved."""
    mark, asked = run.fingerprint(recipe), [phase.steps for phase in recipe.phase]
    resolved = dataclasses.replace(recipe, model=model_settings(recipe))
    if deadline:
        resolved = fit(resolved, ranks, deadline - (time.time() - began))
    facts = {"fingerprint": mark, "began": began, "deadline": deadline, "steps_asked": asked}
    first_alone(ranks, lambda: Run(folder).begin(resolved, **facts))
    return resolved


def _stands(folder: Path, recipe: Pretraining, name: str, *, anew: bool) -> bool:
    """Does a run of this recipe stand here, to go on with? What is in the way is refused, or was never begun."""
    place = Run(folder)
    if not place.status:
        return False
    run.finished(folder, "pretrain")
    own = Path(name).is_dir()
    if not own and not (folder / "recipe.toml").exists():
        return False  # killed between the first two files of a run
    if anew and not int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
        _remove(folder)
        return False
    if own or place.status["fingerprint"] == run.fingerprint(recipe):
        return True
    if checkpoint.steps(folder / "checkpoints"):
        raise RecipeError(
            folder, "holds a run of another recipe or other data", "",
            f"`ordsmed show {folder} {name}` tells the difference; name another `out=`, or add --anew",
        )  # fmt: skip
    _remove(folder)  # it never came to a checkpoint: a recipe that was mended
    return False


def _remove(folder: Path) -> None:
    """Delete a run's folder; killed in between, what is left does not stand in the way of the next one."""
    aside = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside)


def go_on(folder: Path, recipe: Pretraining, ranks: Ranks, watch: Watch) -> dict[str, Any]:
    """Train from the last whole checkpoint, or from the start, to the end of the recipe; on any layout."""
    found = _found(folder, ranks)
    stamp, status = recipe.stamp(), Run(folder).status
    if found and status.get("data") not in (None, stamp):
        began_with = f"{status['data']}, which it began with"
        raise RecipeError(folder, f"its data are {stamp}", began_with, "put those back, or begin a new run")
    job = build(recipe, ranks, gone_on=found[1] if found else None)
    job.skipped = list(status.get("left_out", []))
    first_alone(ranks, lambda: _note(folder, job, stamp, found[1]["step"] if found else 0))
    start = _restore(job, *found) if found else 0
    steps = total(job.phases)
    if start >= steps:
        say(f"{folder}: all {steps} steps are done")
        return first_alone(ranks, lambda: _finish(job, folder))
    peak = float(ranks.total(torch.tensor(measured_peak(ranks.device, recipe.layout.precision)))) * ranks.shape[2]
    for line in told(job, peak):
        say(line)
    saving = Saving(job, folder)
    if recipe.trouble.action == "rewind" and not found:
        saving.save(0)
    try:
        _train(job, folder, start, peak, saving, watch)
    except loop.Stopped as stopped:
        if ranks.first:
            Run(folder).set(state="stopped", step=stopped.step)
        say(f"saved at step {stopped.step} of {steps}; go on with: ordsmed pretrain {folder}")
        raise
    except OrdsmedError:
        saving.writer.wait_for_own()
        raise
    return first_alone(ranks, lambda: _finish(job, folder))


def _train(job: Job, folder: Path, start: int, peak: float, saving: Saving, watch: Watch) -> None:
    """The loop, begun again from the last checkpoint where the recipe wants to rewind."""
    while True:
        try:
            loop.train(job, folder, start, peak, saving=saving, watch=watch)
            return
        except loop.Rewind as back:
            saving.settle()
            found = _found(folder, job.ranks)
            assert found is not None, "a run that rewinds saves before its first step"
            start = _restore(job, *found)
            job.leave_out(folder, start + 1, back.step, back.why)


def _found(folder: Path, ranks: Ranks) -> tuple[Path, dict[str, Any]] | None:
    """The last whole checkpoint, looked for by the first rank."""

    def look() -> list[Any] | None:
        found = checkpoint.latest(folder / "checkpoints", place=folder)
        return [str(found[0]), found[1]] if found else None

    answer = first_alone(ranks, look)
    return (Path(answer[0]), answer[1]) if answer else None


def _note(folder: Path, job: Job, stamp: Any, step: int) -> None:
    """What the run's folder says before it trains: the recipe with today's layout, data, tokenizer, which layouts."""
    place, recipe = Run(folder), job.recipe
    files.write_text(folder / "recipe.toml", settings.write(recipe))
    here = {"from": step, "processes": job.ranks.world, "mesh": list(job.ranks.shape)}
    before = [entry for entry in place.status.get("layouts", []) if entry["from"] < step]
    same = before and {**before[-1], "from": step} == here
    if job.began_with:
        place.set(began_with=job.began_with)
    place.set(state="running", data=stamp, phases_before=job.phases_before, layouts=before if same else [*before, here])
    job.tokenizer.save(folder / "tokenizer")
    files.write_json(folder / "data.json", {n: d.facts for n, d in zip(recipe.sources, job.data, strict=True)})


def told(job: Job, peak: float) -> list[str]:
    """Device, layout, precision, batch arithmetic and memory, in lines."""
    layout, ranks = job.recipe.layout, job.ranks
    count = sum(part.whole.numel() for part in job.parts)
    processes = f"{ranks.world} processes, each " if ranks.world > 1 else ""
    lines = [f"{count:,} parameters; {processes}{ranks.device.type}, {ranks.threads} threads; measured peak of all "
             f"{peak / 1e9:,.0f} GFLOP/s", f"layout: {layout.told(ranks.world)}", job.precision,
             *job.objective.told(ranks.device.type)]  # fmt: skip
    lines += [arithmetic(phase, index + 1, job.share(index)) for index, phase in enumerate(job.phases)]
    held = sum(part.local.numel() * part.local.element_size() for part in job.parts)
    return [*lines, memory(held, job.recipe.optimizer.moments + (job.recipe.average > 0))]


def _restore(job: Job, path: Path, state: dict[str, Any]) -> int:
    """Put a checkpoint back; returns its step."""
    own = circumstances(job)
    other = [f"{k} {state[k]}, now {v}" for k, v in own.items() if state.get(k, v) != v]
    if other:
        say(f"{path}: made with {'; '.join(other)}: losses will agree, but not to the last bit")
    index, inner = locate(job.phases, int(state["step"]))
    if inner:
        job.carry(index)
    else:  # a phase begins, and with it every state
        job.objective.state = {}
    checkpoint.restore(path, job.objective, job.optimizer, job.parts, job.ranks, job.parallel.rows)
    job.scaler.restore(state.get("scaler", {}))
    job.course = Course(job.recipe.trouble, state.get("course", []))
    say(f"goes on from {path}")
    return int(state["step"])


def _finish(job: Job, folder: Path) -> dict[str, Any]:
    """What a finished run leaves: weights, picture, scores, and how it compares with guessing by frequency."""
    last = checkpoint.path_of(folder / "checkpoints", total(job.phases))
    _leave(job, folder / "weights", boxes.read_weights(last))
    if job.recipe.average:
        _leave(job, folder / "average", {**boxes.read_weights(last), **average.read(last)})
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
        guesses = job.objective.guesses
        if guesses in facts:
            facts["unigram"] = unigram(job)
            share = below(facts[guesses], facts["unigram"])
            side = f"{share:.1%} below" if share >= 0 else f"{-share:.1%} above"
            whole = guesses == "validation" or len(job.objective.weights) == 1
            of = "validation loss" if whole else f"loss of {guesses}"
            say(f"{of} {facts[guesses]:.4f}: {side} the {facts['unigram']:.4f} of guessing by frequency")
    files.write_json(folder / "scores.json", facts)
    return facts


def _leave(job: Job, out: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Weights with what is needed to open them."""
    out.mkdir(exist_ok=True)
    weights.write(out / "model.safetensors", tensors)
    networks = {"model": job.objective.model_settings, "objective": job.recipe.objective}
    files.write_text(out / "settings.toml", settings.write(networks))
    job.tokenizer.save(out / "tokenizer")


def unigram(job: Job) -> float:
    """Cross-entropy of the validation's targets under how often each token stands in the training split."""
    rows = job.validation(len(job.phases) - 1)
    assert rows is not None
    counts = np.asarray(sum(np.asarray(encoded.train.counts) for encoded in job.data))
    batch = rows.batch(np.arange(min(job.recipe.validation_rows, len(rows))))
    targets = batch.targets[batch.weights > 0].numpy()
    if job.objective.model_settings.capabilities.state:  # a sign ends every sentence, in each direction its own
        start, stop = job.tokenizer.start, job.tokenizer.stop
        counts[stop] += sum(encoded.train.sequence_count for encoded in job.data)
        targets[targets == start] = stop
    return unigram_cross_entropy(counts, targets)


def where(folder: Path) -> str:
    """`step 500 of 1,000, phase 1`, for a line of a person's."""
    recipe, found = run.read_recipe(Pretraining, folder), checkpoint.steps(folder / "checkpoints")
    step = found[-1] if found else 0
    return (
        f"step {step:,} of {total(recipe.phase):,}, phase {min(locate(recipe.phase, step)[0] + 1, len(recipe.phase))}"
    )
