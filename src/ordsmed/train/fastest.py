"""`layout.precision = "auto"`: which precision is fastest here, by products and real steps that are timed once."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from ordsmed.base import settings
from ordsmed.base.keys import value_key
from ordsmed.base.machine import keep_figure, kept_figure, key_of, measured_peak
from ordsmed.base.ranks import Ranks, first_alone
from ordsmed.base.say import say
from ordsmed.mesh.precision import best_on
from ordsmed.train.auto import let_go, speed_of
from ordsmed.train.plan import Plan

GAIN = 1.2  # 16 bits are taken where they are so many times as fast: for less, their rounding is not worth it
TOKENS = 2_048  # of the micro-batches that are timed
STEPS = 4  # of each precision; the first wakes threads and libraries

P = TypeVar("P", bound=Plan)


def settled(plan: P) -> P:
    """A plan whose precision is chosen, where its layout leaves that open; the first rank decides for all."""
    layout, ranks = plan.recipe.layout, plan.ranks
    if layout.precision != "auto":
        return plan
    if ranks.device.type == "cuda":
        chosen = first_alone(ranks, lambda: best_on(ranks.device))
        why = "for which this GPU has units"
    else:
        chosen, why = _measured(plan)
    say(f"layout.precision: auto took {chosen}: {why}")
    return plan.by(dataclasses.replace(plan.recipe, layout=layout.settled(chosen)))


def _measured(plan: Plan) -> tuple[str, str]:
    """fp32 or bf16 on a CPU, and what was found; where products are not faster, no steps are timed."""
    ranks = plan.ranks
    products = first_alone(ranks, lambda: _products(ranks))
    found = f"products in bf16 are {products:.2f} times as fast as in fp32"
    if products < GAIN:
        return "fp32", f"{found}; wanted {GAIN:g}"
    steps = _steps(plan)
    return "bf16" if steps >= GAIN else "fp32", f"{found}, steps of this network {steps:.2f} times; wanted {GAIN:g}"


def _products(ranks: Ranks) -> float:
    """How many times as fast products are in bf16."""
    return measured_peak(ranks.device, "bf16") / measured_peak(ranks.device, "fp32")


def _steps(plan: Plan) -> float:
    """How many times as fast this network's steps are in bf16; kept, by machine, network and what it learns."""
    ranks, short = plan.ranks, _short(plan)
    key = key_of(ranks.device, f"steps in bf16 beside fp32 {_mark(short)}")
    if known := first_alone(ranks, lambda: kept_figure(key)):
        return known
    # one after the other: two networks may be more than memory holds
    speeds = {precision: _speed(short, precision) for precision in ("fp32", "bf16")}
    ratio = speeds["bf16"] / speeds["fp32"]
    first_alone(ranks, lambda: keep_figure(key, ratio))
    return first_alone(ranks, lambda: ratio)


def _speed(plan: Plan, precision: str) -> float:
    """Rows a second of a few steps of a network that is thrown away after."""
    layout = plan.recipe.layout.settled(precision)
    job = plan.by(dataclasses.replace(plan.recipe, layout=layout)).build()
    speed = speed_of(job, 0, STEPS)
    del job
    let_go(plan.ranks)
    return speed


def _short(plan: Plan) -> Plan:
    """The plan with micro-batches of few tokens, in its first phase."""
    layout, phase, ranks = plan.recipe.layout, plan.recipe.phases[0], plan.ranks
    share = dataclasses.replace(layout, micro=0, tokens=TOKENS).share(phase, 1, ranks.device.type, 0, ranks.data_world)
    usual = layout.share(phase, 1, ranks.device.type, 0, ranks.data_world)
    micro = min(share.micro, usual.micro)
    return plan.by(dataclasses.replace(plan.recipe, layout=dataclasses.replace(layout, micro=micro)))


def _mark(plan: Plan) -> str:
    """What a step's time depends on beside the machine."""
    recipe, layout, ranks = plan.recipe, plan.recipe.layout, plan.ranks
    learned = settings.plain({"model": plan.network, "optimizer": recipe.optimizer, **recipe.learned()})
    how = [layout.micro, recipe.phases[0].length, layout.recompute, layout.compile, *layout.exact, *ranks.shape]
    return value_key([learned, how], 16)
