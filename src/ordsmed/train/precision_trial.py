"""`layout.precision = "auto"`: choose the fastest precision for this device, by timing products and real steps once."""

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
from ordsmed.base.machine.speed import cache_figure, cached_figure, key_of, measured_peak
from ordsmed.base.machine.threads import idle_check, threads_of
from ordsmed.base.ranks import Ranks, on_rank0
from ordsmed.base.say import detail
from ordsmed.train.auto import free_memory, slowest, timed_steps
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import expected_layout, fastest_format
from ordsmed.train.plan import Plan, planned
from ordsmed.train.training import Training

GAIN = 1.2  # 16 bits are used if they are this many times as fast; a smaller gain is not worth their rounding
TOKENS = 2_048  # tokens of a timed micro-batch
MAX_STEP_SECONDS = 0.75  # seconds that a trial step in fp32 may take; with slower devices it has fewer tokens
STEPS = 4  # most timed steps of each precision; the first one starts threads and loads libraries
ALONE_SECONDS = 1.0  # seconds of steps after which timing stops, if the process has its cores to itself
MAX_SECONDS = 5.0  # seconds of timing in any case

P = TypeVar("P", bound=Plan)


def with_fastest_precision(plan: P) -> P:
    """Return `plan` with a precision chosen if its layout leaves it open; the first rank decides for all."""
    if plan.recipe.layout.precision != "auto":
        return plan
    return _with_precision(plan, _choose(plan.recipe.layout, plan.ranks, lambda: plan))


def fastest_precision(kind: type[Plan], recipe: Training, processes: int) -> str:
    """Return one precision for `processes` runs that train side by side."""
    layout = dataclasses.replace(recipe.layout, replicate=0, shard=1, tensor=1)
    before, ranks = torch.get_num_threads(), planned(layout, 1)
    torch.set_num_threads(threads_of(layout.threads or None, local_world=max(1, processes)))
    try:
        alone = dataclasses.replace(recipe, layout=layout)
        return _choose(layout, ranks, lambda: kind.of(alone, ranks).completed(make=True))
    finally:
        torch.set_num_threads(before)


def expected_precision(plan: Plan) -> str:
    """Return the precision that `auto` is likely to choose, by earlier measurements."""
    layout, device = plan.recipe.layout, plan.ranks.device
    if layout.precision == "auto" and not layout.fp8 and device.type == "cpu" and plan.network is not None:
        layout = layout.with_precision("bf16" if cached_figure(_key(plan)) >= GAIN else "fp32")
    return expected_layout(layout, device, plan.ranks.card).precision


def _choose(layout: Layout, ranks: Ranks, make: Callable[[], Plan]) -> str:
    """Return the fastest precision on this device. `make` builds the plan if steps must be timed."""
    if layout.fp8:
        chosen, reason = "bf16", "needed by layout.fp8"
    elif ranks.device.type == "cuda":
        chosen = on_rank0(ranks, lambda: fastest_format(ranks.device))
        reason = "the GPU has units for it" if chosen != "fp32" else "the GPU has no 16-bit units"
    else:
        chosen, reason = _measure(ranks, make)
    detail(f"layout.precision: auto chose {chosen}: {reason}")
    return chosen


def _measure(ranks: Ranks, make: Callable[[], Plan]) -> tuple[str, str]:
    """Return fp32 or bf16 for a CPU, and the reason. Steps are timed only if products are faster in bf16."""
    products = on_rank0(ranks, lambda: measured_peak(ranks.device, "bf16") / measured_peak(ranks.device, "fp32"))
    reason = f"products in bf16 are {products:.2f} times as fast as in fp32"
    if products < GAIN:
        return "fp32", f"{reason}; wanted {GAIN:g}"
    try:
        plan = make()
    except OrdsmedError as error:  # the run itself will raise and report it
        return "fp32", f"{reason}, but steps could not be timed: {error}"
    steps, failed = _step_speedup(plan)
    if failed:
        return "fp32", f"{reason}, but steps of this network could not be timed: {failed}"
    return "bf16" if steps >= GAIN else "fp32", f"{reason}, steps of this network {steps:.2f} times; wanted {GAIN:g}"


def _step_speedup(plan: Plan) -> tuple[float, str]:
    """Return how many times as fast this network's steps are in bf16 as in fp32, or 0 and why that is unknown.

    The figure is stored by machine, network and objective, if nothing else ran on the machine meanwhile.
    """
    ranks, key = plan.ranks, _key(plan)
    if known := on_rank0(ranks, lambda: cached_figure(key)):
        return known, ""
    short, speeds, alone = _small_plan(plan), list[float](), idle_check()
    for precision in ("fp32", "bf16"):  # one after the other, because two networks may not fit in memory
        speed, failed = _try_speed(short, precision)
        free_memory(ranks)
        speeds.append(slowest(speed, ranks))
        if not speeds[-1]:
            return 0.0, on_rank0(ranks, lambda: f"{precision}: {failed or 'another process failed'}")  # noqa: B023
    ratio = speeds[1] / speeds[0]
    if ranks.world > 1 or alone():  # several processes always share the machine
        on_rank0(ranks, lambda: cache_figure(key, ratio))
    return on_rank0(ranks, lambda: ratio), ""


def _try_speed(plan: Plan, precision: str) -> tuple[float, str]:
    try:
        return _speed(_with_precision(plan, precision)), ""
    except Stopped:
        raise
    except Exception as error:
        if plan.ranks.world > 1 and not (isinstance(error, Trouble) or is_out_of_memory(error)):
            raise
        return 0.0, next(iter(str(error).splitlines()), "") or type(error).__name__


def _speed(plan: Plan) -> float:
    job, spent = plan.build(), list[float]()
    began = time.perf_counter()
    for seconds, norm in timed_steps(job, 0):
        if not math.isfinite(norm):
            raise Trouble(f"step {len(spent) + 1}", "gradients contain NaN or Inf")
        spent.append(seconds)
        if len(spent) > 1 and on_rank0(
            plan.ranks,
            lambda: len(spent) == STEPS or sum(spent) > ALONE_SECONDS or time.perf_counter() - began > MAX_SECONDS,
        ):
            break
    return 1 / min(spent[1:])


def _with_precision(plan: P, precision: str) -> P:
    return plan.by(dataclasses.replace(plan.recipe, layout=plan.recipe.layout.with_precision(precision)))


def _small_plan(plan: Plan) -> Plan:
    layout, phase, ranks = plan.recipe.layout, plan.recipe.phases[0], plan.ranks
    tokens = min(TOKENS, on_rank0(ranks, lambda: _max_tokens(plan)))
    share = dataclasses.replace(layout, micro=0, tokens=tokens).share(phase, 1, ranks.device.type, 0, ranks.data_world)
    layout = dataclasses.replace(layout, micro=min(share.micro, _micro(plan)))
    return plan.by(dataclasses.replace(plan.recipe, layout=layout))


def _max_tokens(plan: Plan) -> int:
    phase, ranks = plan.recipe.phases[0], plan.ranks
    a_token = plan.flops(0) / (phase.batch * plan.row_length(0))
    return max(1, int(MAX_STEP_SECONDS * measured_peak(ranks.device, "fp32") / a_token)) if a_token else TOKENS


def _micro(plan: Plan) -> int:
    layout, phase, ranks = plan.recipe.layout, plan.recipe.phases[0], plan.ranks
    return layout.share(phase, 1, ranks.device.type, 0, ranks.data_world).micro


def _key(plan: Plan) -> str:
    recipe, layout, ranks = plan.recipe, plan.recipe.layout, plan.ranks
    learned = settings.plain({"model": plan.network, "optimizer": recipe.optimizer, **recipe.learned()})
    options = [_micro(plan), recipe.phases[0].length, layout.recompute, layout.compile, *layout.exact, *ranks.shape]
    return key_of(ranks.device, f"steps in bf16 beside fp32 {value_key([learned, options], 16)}")
