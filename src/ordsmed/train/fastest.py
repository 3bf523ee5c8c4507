"""`layout.precision = "auto"`: which precision is fastest here, by products and real steps that are timed once."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from ordsmed.base import settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import OrdsmedError, Trouble
from ordsmed.base.keys import value_key
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.machine.speed import keep_figure, kept_figure, key_of, measured_peak
from ordsmed.base.machine.threads import threads_of, watch_alone
from ordsmed.base.ranks import Ranks, first_alone
from ordsmed.base.say import detail
from ordsmed.train.auto import let_go, slowest, timed_steps
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import best_on, likely
from ordsmed.train.plan import Plan, planned
from ordsmed.train.training import Training

GAIN = 1.2  # 16 bits are taken where they are so many times as fast: for less, their rounding is not worth it
TOKENS = 2_048  # of the micro-batches that are timed
LONG = 0.75  # seconds: fewer tokens, where fp32 would take longer for them at the speed of large products
STEPS = 4  # of each precision at most; the first wakes threads and libraries
ENOUGH = 1.0  # seconds after which the second step is the last, where the process has its cores for itself
MOST = 5.0  # where it has not

P = TypeVar("P", bound=Plan)


def with_fastest_precision(plan: P) -> P:
    """A plan whose precision is chosen, where its layout leaves that open; the first rank decides for all."""
    if plan.recipe.layout.precision != "auto":
        return plan
    return _in(plan, _chosen(plan.recipe.layout, plan.ranks, lambda: plan))


def fastest_precision(kind: type[Plan], recipe: Training, processes: int) -> str:
    """The precision of several runs of a recipe, as one process of those that go on side by side would choose it."""
    layout = dataclasses.replace(recipe.layout, replicate=0, shard=1, tensor=1)
    before, ranks = torch.get_num_threads(), planned(layout, 1)
    torch.set_num_threads(threads_of(layout.threads or None, local_world=max(1, processes)))
    try:
        alone = dataclasses.replace(recipe, layout=layout)
        return _chosen(layout, ranks, lambda: kind.of(alone, ranks).completed(make=True))
    finally:
        torch.set_num_threads(before)


def expected(plan: Plan) -> str:
    """What would be taken, as far as that is known before anything is measured; on a CPU else fp32."""
    layout, device = plan.recipe.layout, plan.ranks.device
    if layout.precision == "auto" and not layout.fp8 and device.type == "cpu" and plan.network is not None:
        layout = layout.with_precision("bf16" if kept_figure(_key(plan)) >= GAIN else "fp32")
    return likely(layout, device, plan.ranks.card).precision


def _chosen(layout: Layout, ranks: Ranks, make: Callable[[], Plan]) -> str:
    """What this device is fastest in, and a line that says why; `make`: the plan, should its steps be timed."""
    if layout.fp8:
        chosen, reason = "bf16", "which layout.fp8 needs"
    elif ranks.device.type == "cuda":
        chosen = first_alone(ranks, lambda: best_on(ranks.device))
        reason = "for which this GPU has units" if chosen != "fp32" else "this GPU has no units for 16 bits"
    else:
        chosen, reason = _measured(ranks, make)
    detail(f"layout.precision: auto took {chosen}: {reason}")
    return chosen


def _measured(ranks: Ranks, make: Callable[[], Plan]) -> tuple[str, str]:
    """fp32 or bf16 on a CPU, and what was found; where products are not faster, no steps are timed."""
    products = first_alone(ranks, lambda: measured_peak(ranks.device, "bf16") / measured_peak(ranks.device, "fp32"))
    reason = f"products in bf16 are {products:.2f} times as fast as in fp32"
    if products < GAIN:
        return "fp32", f"{reason}; wanted {GAIN:g}"
    try:
        plan = make()
    except OrdsmedError as error:  # the run itself meets and tells it
        return "fp32", f"{reason}, but steps could not be timed: {error}"
    steps, failed = _steps(plan)
    if failed:
        return "fp32", f"{reason}, but steps of this network could not be timed: {failed}"
    return "bf16" if steps >= GAIN else "fp32", f"{reason}, steps of this network {steps:.2f} times; wanted {GAIN:g}"


def _steps(plan: Plan) -> tuple[float, str]:
    """How many times as fast this network's steps are in bf16, or why that is not known.

    It is kept, by machine, network and what it learns, where nothing else ran beside it.
    """
    ranks, key = plan.ranks, _key(plan)
    if known := first_alone(ranks, lambda: kept_figure(key)):
        return known, ""
    short, speeds, alone = _short(plan), list[float](), watch_alone()
    for precision in ("fp32", "bf16"):  # one after the other: two networks may be more than memory holds
        speed, failed = _tried(short, precision)
        let_go(ranks)
        speeds.append(slowest(speed, ranks))
        if not speeds[-1]:
            return 0.0, first_alone(ranks, lambda: f"{precision}: {failed or 'another process failed'}")  # noqa: B023
    ratio = speeds[1] / speeds[0]
    if ranks.world > 1 or alone():  # of several processes each has others beside it
        first_alone(ranks, lambda: keep_figure(key, ratio))
    return first_alone(ranks, lambda: ratio), ""


def _tried(plan: Plan, precision: str) -> tuple[float, str]:
    """Steps a second, or 0 and why there are none; what may have befallen one of several processes alone is raised."""
    try:
        return _speed(_in(plan, precision)), ""
    except Stopped:
        raise
    except Exception as error:
        if plan.ranks.world > 1 and not (isinstance(error, Trouble) or is_out_of_memory(error)):
            raise
        return 0.0, next(iter(str(error).splitlines()), "") or type(error).__name__


def _speed(plan: Plan) -> float:
    """Steps a second of a network that is thrown away after; the fastest step but the first counts."""
    job, spent = plan.build(), list[float]()
    began = time.perf_counter()
    for seconds, norm in timed_steps(job, 0):
        if not math.isfinite(norm):
            raise Trouble(f"step {len(spent) + 1}", "its gradient is no number")
        spent.append(seconds)
        if len(spent) > 1 and first_alone(
            plan.ranks, lambda: len(spent) == STEPS or sum(spent) > ENOUGH or time.perf_counter() - began > MOST
        ):
            break
    return 1 / min(spent[1:])


def _in(plan: P, precision: str) -> P:
    return plan.by(dataclasses.replace(plan.recipe, layout=plan.recipe.layout.with_precision(precision)))


def _short(plan: Plan) -> Plan:
    """The plan with micro-batches of few tokens, in its first phase."""
    layout, phase, ranks = plan.recipe.layout, plan.recipe.phases[0], plan.ranks
    tokens = min(TOKENS, first_alone(ranks, lambda: _affordable(plan)))
    share = dataclasses.replace(layout, micro=0, tokens=tokens).share(phase, 1, ranks.device.type, 0, ranks.data_world)
    layout = dataclasses.replace(layout, micro=min(share.micro, _micro(plan)))
    return plan.by(dataclasses.replace(plan.recipe, layout=layout))


def _affordable(plan: Plan) -> int:
    """So many tokens are not too many to try with."""
    phase, ranks = plan.recipe.phases[0], plan.ranks
    a_token = plan.flops(0) / (phase.batch * plan.row_length(0))
    return max(1, int(LONG * measured_peak(ranks.device, "fp32") / a_token)) if a_token else TOKENS


def _micro(plan: Plan) -> int:
    """The micro-batch of the run itself in its first phase."""
    layout, phase, ranks = plan.recipe.layout, plan.recipe.phases[0], plan.ranks
    return layout.share(phase, 1, ranks.device.type, 0, ranks.data_world).micro


def _key(plan: Plan) -> str:
    """What a step's time depends on: the machine, the network, what it learns and how it lies there."""
    recipe, layout, ranks = plan.recipe, plan.recipe.layout, plan.ranks
    learned = settings.plain({"model": plan.network, "optimizer": recipe.optimizer, **recipe.learned()})
    how = [_micro(plan), recipe.phases[0].length, layout.recompute, layout.compile, *layout.exact, *ranks.shape]
    return key_of(ranks.device, f"steps in bf16 beside fp32 {value_key([learned, how], 16)}")
