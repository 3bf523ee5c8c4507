"""The results of a finished fine-tuning: the weights of its best validation, predictions on the dev files, scores."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.say import say
from ordsmed.learn.inference import predict_all
from ordsmed.learn.task import Task, no_better
from ordsmed.nn import adapters, products
from ordsmed.train import average, checkpoint
from ordsmed.train.finetune.examples import TaskData, TaskSplit
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.job import Job
from ordsmed.train.results import leave_weights
from ordsmed.weights import boxes, weights


def finish(job: Job, folder: Path) -> dict[str, Any]:
    """Write the weights of the best validation, their predictions on the dev files, and scores; return the scores."""
    recipe, data = job.recipe, job.data
    assert isinstance(recipe, Finetuning)
    assert isinstance(data, TaskData)
    kinds = checkpoint.KINDS if recipe.average else checkpoint.KINDS[:1]  # averages are stored with the moments
    step, path = checkpoint.best(folder / "checkpoints", job.state.validations, recipe.best_of, kinds)
    tensors = boxes.read_weights(path)
    if recipe.average:
        tensors |= average.read(path)
    if recipe.adapters:
        tensors = adapters.merged(tensors, recipe.adapters)
    task = recipe.task.build(job.objective.model_settings, data.tokenizer)
    weights.load_into(task, tensors, path)
    products.take(task)
    facts: dict[str, Any] = {"step": step, "examples": recipe.examples}
    if data.dev is not None:
        facts |= _scored(job, task.to(job.ranks.device), data, data.dev, folder / "predictions")
    fitted = dataclasses.replace(recipe, task=data.task)
    leave_weights(dataclasses.replace(job, recipe=fitted), folder / "weights", tensors)
    files.write_json(folder / "scores.json", facts)
    return facts


def _scored(job: Job, task: Task, data: TaskData, dev: TaskSplit, out: Path) -> dict[str, Any]:
    """Write predictions on the dev files, and return their scores; `data.task` gets settings fitted to them."""
    alone = dataclasses.replace(job.ranks, rank=0, world=1, shape=(1, 1, 1))
    answers, means = predict_all(task, dev.features, data.packing, alone)  # in full precision, as `evaluate` does
    task_before, fitted = data.task, data.task.fitted(dev.records, dev.features, answers)
    for field in dataclasses.fields(fitted):
        if (value := getattr(fitted, field.name)) != getattr(task_before, field.name):
            say(f"task.{field.name} = {value}: chosen on the dev files, so scores on these files are slightly too high")
    data.task = fitted
    means |= fitted.losses(dev.features, answers)
    predictions = fitted.predictions(dev.records, dev.features, answers)
    with files.making(out) as new:
        fitted.write(new, dev.records, predictions)
    guessed = fitted.guesses(data.train.records, dev.records)
    scores: dict[str, Any] = {"validation": sum(w * means[term] for term, w in task.weights.items() if term in means)}
    scores |= fitted.score(dev.records, predictions)
    if guessed is not None:
        scores["guessing"] = fitted.score(dev.records, guessed)
    if (counted := fitted.counted(data.train.features, dev.features)) is not None:
        scores["word_counts"] = fitted.score(dev.records, counted)
    pool, baselines = getattr(fitted, "pool", None), (scores.get("guessing", {}), scores.get("word_counts"))
    if verdict := no_better(fitted.record, scores, *baselines, pool):
        scores["verdict"] = verdict
    return scores
