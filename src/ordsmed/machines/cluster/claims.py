"""Training times reported by other projects, next to our estimates for the same devices."""

from __future__ import annotations

import functools
from typing import Any

from ordsmed.base import screen, settings
from ordsmed.base.launch.gpus import GPUS
from ordsmed.base.say import duration
from ordsmed.machines.cluster import scaling, survey
from ordsmed.machines.cluster.estimate import Devices, Margin, share_of_peak
from ordsmed.machines.cluster.survey import Claim
from ordsmed.train.pretrain.plan import PretrainingPlan

NOT_ESTIMATED = "not estimated"
HEAD = ("code", "work", "reported", "on", "device hours", "estimated", "range", "reported/estimated")


def estimated(claim: Claim) -> Margin | None:
    """Return the hours our recipe would take on the claim's devices; None if there is no estimate (see `why_not`)."""
    if why_not(claim):
        return None
    precision = claim.precision or GPUS[claim.device].precision
    devices = Devices(claim.device, "cuda", claim.devices[0], claim.nodes, precision, site="claims")
    return share_of_peak(devices).flops.seconds_for(_work(claim.recipe, claim.tokens)).times(1 / 3600)


def why_not(claim: Claim) -> str:
    """Return the reason why a claim cannot be estimated; empty if it can."""
    if claim.device == "GPU":
        return "the GPU model is not reported"
    if claim.device not in GPUS:
        return f"{claim.device} is not a known GPU"
    return "" if claim.recipe else "there is no similar recipe"


@functools.cache
def _work(recipe: str, tokens: float) -> float:
    """Return the FLOPs of a recipe, or of `tokens` tokens at the lengths of its first phase."""
    plan = PretrainingPlan.read(recipe)
    if tokens:
        first = plan.recipe.phases[0]
        return plan.flops(0) / (first.batch * first.length) * tokens
    return sum(plan.flops(index) * phase.whole_steps for index, phase in enumerate(plan.recipe.phases))


def series() -> tuple[scaling.Series, ...]:
    return settings.decode(scaling.ScalingFile, {"series": survey.table()["series"]}, "survey.toml").series


def facts() -> dict[str, Any]:
    """Return all claims and their estimates as JSON data, and the codes that report no time."""
    rows = []
    for claim in survey.claims():
        margin = estimated(claim)
        hours = margin and [margin.least, margin.likely, margin.most]
        rows.append({**settings.plain(claim), "estimated_hours": hours, "why_not": why_not(claim)})
    silent = {code.name: code.training_time for code in _without_claims()}
    return {"claims": rows, "others": silent, "scaling": scaling.facts(series())}


def _without_claims() -> list[survey.Code]:
    claimed = {claim.code for claim in survey.claims()}
    return [code for code in survey.codes() if code.name not in claimed and code.use != survey.INFERENCE]


def lines() -> list[str]:
    shown = ["reported training times, each with an estimate of our most similar recipe by the devices' stated peak:"]
    for claim in survey.claims():
        shown += _lines(claim)
    shown += [f"{code.name}: {code.training_time}" for code in _without_claims()]
    return [
        *shown,
        "",
        "reported rates, with speed-up and efficiency as `--scaling` defines them:",
        *scaling.lines(series()),
    ]


def _lines(claim: Claim) -> list[str]:
    shown = [
        f"{claim.code}: {claim.work}: {claim.time} on {claim.on}, {_device_hours(claim)} device hours ({claim.source})"
    ]
    shown.append(f"  {sentence(claim)}")
    return [*shown, f"  {claim.note}"] if claim.note else shown


def sentence(claim: Claim) -> str:
    """Return a sentence with our estimate for the claim's devices, or with the reason why there is none."""
    if not (margin := estimated(claim)):
        return f"{NOT_ESTIMATED}: {why_not(claim)}"
    least, likely, most = (duration(hours * 3600) for hours in (margin.least, margin.likely, margin.most))
    within = margin.least <= claim.hours[0] and claim.hours[1] <= margin.most
    times = (
        f"the reported time is {_times(claim, margin):.2g} times that,  {'within' if within else 'outside'} the range"
    )
    return f"{claim.recipe}: {likely} ({least} to {most}); {times}"


def claims_by_code() -> dict[str, list[dict[str, Any]]]:
    """Return the claims of each code, each with its estimate in hours and as a sentence."""
    rows = facts()["claims"]
    result: dict[str, list[dict[str, Any]]] = {code.name: [] for code in survey.codes()}
    for claim, row in zip(survey.claims(), rows, strict=True):
        result[claim.code].append({**row, "reported": f"{claim.time} on {claim.on}", "estimate": sentence(claim)})
    return result


def _device_hours(claim: Claim) -> str:
    hours = (hours * count for hours, count in zip(claim.hours, claim.devices, strict=True))
    return survey.to(*(float(f"{number:.4g}") for number in hours))


def _times(claim: Claim, margin: Margin) -> float:
    return sum(claim.hours) / 2 / margin.likely


def markdown() -> list[str]:
    rows = []
    for claim in survey.claims():
        estimate_cells = [NOT_ESTIMATED, "-", "-"]
        if margin := estimated(claim):
            estimate_cells = [
                f"{margin.likely:.3g} h",
                f"{margin.least:.3g} to {margin.most:.3g} h",
                f"{_times(claim, margin):.2g}",
            ]
        cells = [claim.code, claim.work, f"{survey.to(*claim.hours)} h", claim.on, _device_hours(claim)]
        rows.append([*cells, *estimate_cells])
    rows += [[code.name, "-", code.training_time, *(["-"] * 5)] for code in _without_claims()]
    return screen.markdown(HEAD, rows)
