"""What a finished pretraining leaves: weights, scores, and how it compares with guessing by frequency."""

from __future__ import annotations

import math
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
from ordsmed.train.session import leave_weights
from ordsmed.weights import boxes


def finish(job: Job, folder: Path) -> dict[str, Any]:
    """Write weights and scores; return facts for the status, among them how the loss compares with guessing."""
    lines = read(folder / "metrics.jsonl")
    training = [line for line in lines if "validation" not in line]
    judged = [line for line in lines if "validation" in line]
    step = _best_end(job, judged)
    judged = [line for line in judged if line["step"] <= step]
    last = checkpoint.path_of(folder / "checkpoints", step)
    leave_weights(job, folder / "weights", boxes.read_weights(last))
    if job.recipe.average and step == total(job.phases):  # of the ends before it only the weights are kept
        leave_weights(job, folder / "average", {**boxes.read_weights(last), **average.read(last)})
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
        facts |= {k: v for k, v in judged[-1].items() if k not in ("step", "phase")}
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
    files.write_json(folder / "scores.json", facts)
    return facts


def _best_end(job: Job, validations: list[dict[str, Any]]) -> int:
    """Return the step whose weights the run leaves: its last one, or the end before an extension that made it worse."""
    losses = {line["step"]: line["validation"] for line in validations}
    ends = [total(job.phases), *reversed(job.state.ends)]
    best = min(ends, key=lambda step: losses.get(step, math.inf))
    if best != ends[0]:
        worse = f"validation loss {losses.get(ends[0], math.nan):.4f}, {losses[best]:.4f} before"
        say(f"the longer training is no better ({worse}): the weights of step {best:,} stay")
    return best


def beside(term: str, facts: dict[str, Any]) -> str:
    """What was found of a term beside what guessing by frequency gets; empty where nothing is known of that."""
    guessed, name = facts["guessing"], f"{term}_right"
    if name not in guessed or name not in facts:
        return ""
    return (
        f"{term}: {facts[name]:.1%} right, {guessed[name]:.1%} by guessing; loss {facts[term]:.4f}, "
        f"{guessed[term]:.4f} by guessing"
    )


def where(folder: Path) -> str:
    """`step 500 of 1,000, phase 1`, for a line of a person's."""
    recipe, steps = run.read_recipe(Pretraining, folder), checkpoint.steps(folder / "checkpoints")
    step = steps[-1] if steps else 0
    return (
        f"step {step:,} of {total(recipe.phase):,}, phase {min(locate(recipe.phase, step)[0] + 1, len(recipe.phase))}"
    )
