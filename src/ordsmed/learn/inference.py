"""Inference: a task's answers for all examples of a data set, batched by length and divided among the ranks."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordsmed.base.ranks import Ranks
from ordsmed.data.features import Features, Packing, by_length
from ordsmed.data.pieces import Ints
from ordsmed.data.windows import run
from ordsmed.learn.task import LOST, Arrays, Task

TOKENS = {"cpu": 2_048, "cuda": 65_536}  # tokens of a batch


def predict_all(
    task: Task,
    features: Features,
    packing: Packing,
    ranks: Ranks,
    *,
    within: Callable[[], Any] = contextlib.nullcontext,
    done: Callable[[int], None] = lambda examples: None,
) -> tuple[Arrays, dict[str, float]]:
    """Return a task's answers for all examples, in their order, and its mean losses over those with known labels.

    The data-parallel ranks take batches in turn, and every rank returns the answers of all examples.

    Args:
        within: makes the context of each forward pass, such as autocast.
        done: called after each batch with its number of examples.
    """
    batches = by_length(features.sizes, TOKENS.get(ranks.device.type, TOKENS["cpu"]))
    rank, world = ranks.data_rank, ranks.data_world
    answers: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {term: torch.zeros(2, dtype=torch.float64) for term in task.weights}
    if was_training := task.training:  # eval() visits all modules, which takes as long as a small layer
        task.eval()
    with torch.no_grad():
        for turn in range(rank, rank + len(batches), world):
            mine = turn < len(batches)  # a rank without batches left repeats one, to take part in collectives
            chosen = batches[min(turn, len(batches) - 1)]
            on_cpu = packing.batch(features, chosen, chosen)
            batch = on_cpu.to(ranks.device)
            with within():
                output = task.validate(batch)
            losses = {term: output.pop(f"{term}{LOST}") for term in sums if f"{term}{LOST}" in output}
            counts = task.count(on_cpu) if losses else {}
            for term, lost in losses.items():
                sums[term] += torch.stack([lost.double().cpu(), counts[term].double()]) * mine
            for name, value in output.items():
                _put(answers, name, value, chosen, features, task, mine=mine)
            done(len(chosen))
    if was_training:
        task.train()
    if world > 1:
        answers = {name: ranks.total(value.to(ranks.device)).cpu() for name, value in answers.items()}
        sums = {term: ranks.total(value.to(ranks.device)).cpu() for term, value in sums.items()}
    means = {term: float(value[0] / value[1]) for term, value in sums.items() if value[1] > 0}
    return {name: value.numpy() for name, value in answers.items()}, means


def _put(
    answers: dict[str, Tensor], name: str, value: Tensor, chosen: Ints, features: Features, task: Task, *, mine: bool
) -> None:
    """Copy the output of a batch into `answers`, the arrays for all examples; they stay 0 if it is not `mine`.

    Outputs by token are padded to the longest example, or stored end to end without padding.
    """
    if name in task.end_to_end:
        sizes = torch.from_numpy(features.sizes[chosen])
        if name not in answers:
            answers[name] = torch.zeros((len(features.ids), *value.shape[2:]), dtype=value.dtype)
        if mine:
            rows = np.repeat(features.starts[chosen], sizes) + run(features.sizes[chosen])
            answers[name][rows] = value.cpu()[torch.arange(value.shape[1]) < sizes[:, None]]
        return
    if name not in answers:
        rest = (int(features.sizes.max()), *value.shape[2:]) if name in task.by_token else tuple(value.shape[1:])
        answers[name] = torch.zeros((len(features), *rest), dtype=value.dtype)
    if not mine:
        return
    if name in task.by_token:
        answers[name][chosen, : value.shape[1]] = value.cpu()
    else:
        answers[name][chosen] = value.cpu()
