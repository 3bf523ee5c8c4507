"""The results of a finished pretraining: weights, scores, and a comparison with guessing by frequency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, run
from ordsmed.base.say import say
from ordsmed.learn.phases import locate, total
from ordsmed.learn.score.metrics import below
from ordsmed.train import average, checkpoint
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.texts import TextData
from ordsmed.train.results import leave_weights
from ordsmed.train.verdict import Verdict, verdict
from ordsmed.weights import boxes


def finish(job: Job, folder: Path) -> dict[str, Any]:
    """Write the weights of the best validation (or the last step), the scores and the verdict; return the scores."""
    recipe, stored = job.recipe, folder / "checkpoints"
    assert isinstance(recipe, Pretraining)
    last_step = checkpoint.steps(stored)[-1]
    step, path = checkpoint.best(stored, job.state.validations, lambda lines: _best_step(job, last_step, lines))
    if job.state.ends and step <= job.state.ends[-1] < last_step:
        say(f"the longer training is not better on held-out text: the weights of step {step:,} are used")
    leave_weights(job, folder / "weights", boxes.read_weights(path))
    if recipe.average:  # averaged over the last steps, whatever the best validation
        last = checkpoint.path_of(stored, last_step)
        leave_weights(job, folder / "average", {**boxes.read_weights(last), **average.read(last)})
    lines = read(folder / "metrics.jsonl")
    training = [line for line in lines if "validation" not in line]
    judged = [line for line in lines if "validation" in line]
    facts: dict[str, Any] = {
        "step": step,
        "tokens": sum(line["tokens"] for line in training),
        **({"words": job.state.words} if job.state.words is not None else {}),
        "training_seconds": round(sum(line["seconds"] for line in training), 1),
        "loss": training[-1]["loss"] if training else None,
    }
    if judged:
        if judged[0]["step"] == 0:
            facts["validation_before"] = judged[0]["validation"]
        of_step = next((line for line in judged if line["step"] == step), judged[-1])
        facts |= {k: v for k, v in of_step.items() if k not in ("step", "phase")}
        guesses = job.objective.guesses
        if guesses in facts:
            assert isinstance(job.data, TextData)
            facts["unigram"], right = job.data.unigram(len(job.phases) - 1)
            facts["guessing"] = job.objective.guessing(facts, facts["unigram"], right)
            share = below(facts[guesses], facts["unigram"])
            side = f"{share:.1%} below" if share >= 0 else f"{-share:.1%} above"
            whole = guesses == "validation" or len(job.objective.weights) == 1
            of = "validation loss" if whole else f"loss of {guesses}"
            say(f"{of} {facts[guesses]:.4f}: {side} the {facts['unigram']:.4f} of guessing by frequency")
            for term in job.objective.weights:
                if not whole and (line := beside(term, facts)):
                    say(line)
    if losses := verdict_on(recipe, lines, step):
        facts["verdict"] = losses.facts
        if losses.kind != "unknown":
            say(losses.line)
    files.write_json(folder / "scores.json", facts)
    return facts


def _best_step(job: Job, last_step: int, validations: Sequence[Mapping[str, Any]]) -> int:
    """Return the step whose weights to use; 0: the last one.

    Without `keep_best` it is the last step, or an earlier end of the run if its extension made it worse.
    """
    recipe = job.recipe
    assert isinstance(recipe, Pretraining)
    if recipe.keep_best or not job.state.ends:
        return recipe.best_of(validations)
    losses = {line["step"]: line["validation"] for line in validations}
    best = min([last_step, *reversed(job.state.ends)], key=lambda step: losses.get(step, math.inf))
    return 0 if best == last_step else best


def verdict_on(recipe: Pretraining, lines: Sequence[dict[str, Any]], kept: int = 0) -> Verdict | None:
    """Return the verdict on a run's metrics. `kept` is the step whose weights are used, 0 if the run is not done."""
    validations = recipe.last_phase([line for line in lines if "validation" in line])
    training = [
        (line["step"], line["loss"]) for line in lines if "loss" in line and line["phase"] in recipe.last_phases
    ]
    return verdict(validations, training, kept=kept, comparable=recipe.comparable)


def beside(term: str, facts: dict[str, Any]) -> str:
    """Return a line that compares a term's accuracy and loss with guessing by frequency; empty if unknown."""
    guessed, name = facts["guessing"], f"{term}_right"
    if name not in guessed or name not in facts:
        return ""
    return (
        f"{term}: {facts[name]:.1%} right, {guessed[name]:.1%} by guessing; loss {facts[term]:.4f}, "
        f"{guessed[term]:.4f} by guessing"
    )


def where(folder: Path) -> str:
    recipe, steps = run.read_recipe(Pretraining, folder), checkpoint.steps(folder / "checkpoints")
    step = steps[-1] if steps else 0
    return (
        f"step {step:,} of {total(recipe.phase):,}, phase {min(locate(recipe.phase, step)[0] + 1, len(recipe.phase))}"
    )
