"""Estimate the time, memory and energy of a training before it runs; results are ranges.

recipe, site -> plan -> FLOPs of its steps and validations
steps timed here, or similar measurements, or a share of the peak -> FLOP/s of all devices, as a range
-> seconds, device hours, energy, memory, and the causes of the uncertainty
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ordsmed.base import measurements, run
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import gpus
from ordsmed.base.launch.site import Destination, absolute
from ordsmed.base.machine import devices, host, speed
from ordsmed.base.measurements import Measurement
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import prepare
from ordsmed.base.say import duration, many, operations, size
from ordsmed.machines.cluster import submit
from ordsmed.machines.sites import slurm
from ordsmed.tell.show.show import PLANS, read, trials_of
from ordsmed.train.pace import SHARE
from ordsmed.train.plan import Plan
from ordsmed.train.precision_trial import expected_precision, with_fastest_precision
from ordsmed.train.step_times import step_times
from ordsmed.train.training import Training, named

if TYPE_CHECKING:
    from ordsmed.machines.suite.collect import Validation

MAX_UNCERTAINTY = 1.0  # largest uncertainty of a usable measurement: twice or half as fast
MIN_UNCERTAINTY_TIMED = 0.1  # least relative uncertainty of steps that were timed here
MIN_UNCERTAINTY_MEASURED = 0.1  # least relative uncertainty of any other measurement
START = 5.0  # seconds to start and end a run, if not measured


@dataclass(frozen=True)
class Margin:
    """An uncertain number: the least, the most likely and the largest value."""

    least: float
    likely: float
    most: float

    def times(self, factor: float) -> Margin:
        return Margin(self.least * factor, self.likely * factor, self.most * factor)

    def by(self, factors: Margin) -> Margin:
        return Margin(self.least * factors.least, self.likely * factors.likely, self.most * factors.most)

    def seconds_for(self, work: float) -> Margin:
        """Return the seconds that `work` FLOPs take at these speeds in FLOP/s."""
        return Margin(work / self.most, work / self.likely, work / self.least)

    def plus(self, more: float) -> Margin:
        return Margin(self.least + more, self.likely + more, self.most + more)


# Shares of the peak that trainings reach. NVIDIA's published ELECTRA and Megatron's GPT-2 reach 0.19 to 0.31 of the
# stated peak of tensor cores, and 0.56 of the fp32 peak on V100 (`ordsmed estimate --claims` shows them).
TENSOR_CORES = Margin(0.12, 0.25, 0.45)
NO_TENSOR_CORES = Margin(0.2, 0.5, 0.7)
OF_CPU = Margin(0.25, SHARE["cpu"], 0.9)  # of the measured peak
OF_GPU = Margin(0.15, SHARE["cuda"], 0.6)  # of the measured peak
# Share of the devices' speed that remains when several of them sum gradients. Published values are 0.98 for 8 GPUs of
# one machine, 0.56 for 48 machines and 0.74 for 64 machines.
IN_A_NODE = Margin(0.85, 0.97, 1.0)
BETWEEN_NODES = Margin(0.5, 0.8, 0.97)
BOARD = Margin(0.5, 0.75, 1.0)  # share of a GPU's power limit that a training draws


@dataclass(frozen=True)
class Speed:
    """FLOP/s of all devices together, and the source of that number."""

    flops: Margin
    basis: str
    reasons: tuple[str, ...] = ()
    energy: float = 0.0  # joules per FLOP if measured, else 0
    memory: int = 0  # bytes per device if measured, else 0


@dataclass(frozen=True)
class Devices:
    device: str  # model name
    kind: str  # cpu or cuda
    world: int  # processes: one per GPU, or one per CPU node
    nodes: int = 1
    precision: str = "fp32"
    threads: int = 0
    site: str = ""  # empty: this machine

    @property
    def here(self) -> bool:
        return not self.site


@dataclass(frozen=True)
class Estimate:
    """The estimate of a training. If the recipe has several trials, the numbers are totals of all trials."""

    name: str
    where: str
    nodes: int
    devices: int
    precision: str
    trials: int
    steps: int
    tokens: float
    flops: float
    speed: Speed
    start: float  # seconds of each training before its first step and after its last one
    seconds: Margin
    device_hours: Margin
    kilowatt_hours: Margin | None
    memory_bytes: int  # per device before activations; 0 if unknown
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        table = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {k: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v for k, v in table.items()}  # type: ignore[arg-type]
        return {**plain, "hours": dataclasses.asdict(self.seconds.times(1 / 3600))}

    def lines(self) -> list[str]:
        trials = f"{many(self.trials, 'trial')} of " if self.trials > 1 else ""
        energy = self.kilowatt_hours
        memory = f"{size(self.memory_bytes)} per device" + ("" if self.speed.memory else ", plus activations")
        if self.speed.memory:
            memory += f"; measured with activations {size(self.speed.memory)}"
        energy_text = (
            "not known"
            if energy is None
            else f"{_range(energy)} kWh"
            + (", measured" if self.speed.energy else ", of the GPUs only, at 50 to 100% of their power limit")
        )
        likely, least, most = map(duration, (self.seconds.likely, self.seconds.least, self.seconds.most))
        spent = f"{likely}; {least} to {most}" if least != most else likely
        return [
            f"{self.name} on {self.where}, {self.precision}",
            f"  work: {trials}{many(self.steps, 'step')}, {self.tokens:,.0f} tokens, {operations(self.flops)} in all",
            f"  time: {spent}; of it {duration(self.start)} per training to start and end",
            f"  device hours: {_range(self.device_hours)}",
            f"  energy: {energy_text}",
            f"  memory: {memory if self.memory_bytes else 'not known'}",
            f"  speed: {operations(self.speed.flops.likely)}/s, {self.speed.basis}",
            *(f"    {reason}" for reason in self.speed.reasons),
            *(f"  {note}" for note in self.notes),
        ]


def _range(of: Margin) -> str:
    likely, *ends = (f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}" for value in (of.likely, of.least, of.most))
    return f"{likely} ({' to '.join(ends)})"


def estimate(
    name: str,
    overrides: Sequence[str] = (),
    *,
    site: str = "",
    nodes: int = 1,
    per_node: int | None = None,
    file: Path | None = None,
    measure: bool = False,
) -> Estimate:
    """Return the estimate of a recipe at `site`, or on this machine if no site is given.

    `per_node` is the number of processes per node. `measure` times some steps here.
    """
    began = time.monotonic() - host.age()
    if site and measure:
        raise RecipeError("--measure", f"found with --site {site}", "no site", "run it there, or name measurements")
    if measure and per_node and per_node > 1:
        problem = f"found with {many(per_node, 'process')}"
        raise RecipeError("--measure", problem, "one", "`ordsmed bench RECIPE --devices N` measures several")
    recipe, verb = read(name, overrides)
    if not isinstance(recipe, Training):
        raise RecipeError(name, f"is a recipe of `{verb}`", "one of pretrain or finetune")
    trials = 1
    if recipe.several:
        trials = len(trials_of(recipe, name).runs)
    plan, target = _plan_and_devices(name, overrides, verb, site, nodes, per_node, one_device=trials > 1, make=measure)
    steps, work, checking, tokens = _work(plan, name)
    start = time.monotonic() - began if target.here else START
    speed = _measured_speed(plan) if measure else _speed_of(plan, target, work / tokens, file)
    trial = speed.flops.seconds_for(work + checking).plus(start)
    at_a_time = max(1, target.world * (1 if trials > 1 else 0) or 1)
    seconds = trial.times(ceil(trials / at_a_time))
    device_hours = trial.times(trials * (1 if trials > 1 else target.world) / 3600)
    missing = [note for note in plan.notes if "does not exist" in note or "not there" in note]
    devices = f"{many(target.nodes, 'node')}, {target.world} x {target.device}"
    location = f"{site}: {devices}" if site else f"this machine: {target.world} x {target.device}"
    return Estimate(
        name=name,
        where=location,
        nodes=nodes,
        devices=target.world,
        precision=target.precision,
        trials=trials,
        steps=steps,
        tokens=tokens,
        flops=(work + checking) * trials,
        speed=speed,
        start=start,
        seconds=seconds,
        device_hours=device_hours,
        kilowatt_hours=_energy(speed, target, (work + checking) * trials, device_hours),
        memory_bytes=plan.memory().bytes,
        notes=tuple(f"not counted: {note}" for note in missing),
    )


def _plan_and_devices(
    name: str,
    overrides: Sequence[str],
    verb: str,
    site: str,
    nodes: int,
    per_node: int | None,
    *,
    one_device: bool,
    make: bool,
) -> tuple[Plan, Devices]:
    """Return the recipe's plan and the devices it would run on. With `one_device`, each trial uses a single device."""
    if site:
        where = Destination.find(site)
        part = where.partition
        count = submit.gpus_of(where, per_node)
        slurm.check_place(where, nodes, count)
        world = nodes * max(1, count)
        plan = submit.checked_plan(name, overrides, verb, where, site, 1 if one_device else world)
        kind = "cpu" if part.gpu == "none" else "cuda"
        device = "CPU" if kind == "cpu" else f"{part.gpu} MIG {part.mig}" if part.mig else part.gpu
        return plan, Devices(device, kind, world, nodes, expected_precision(plan), site=absolute(site))
    if nodes > 1:
        raise RecipeError("--nodes", f"found {nodes}, of this machine", "1", "name a cluster with `--site`")
    with run.in_start_folder(name) as folder:
        plan = PLANS[verb].read(folder, overrides, devices=1 if one_device else per_node or 0)
        layout = plan.recipe.layout
        with named(name, plan.recipes):
            ranks = prepare(layout.device, layout.threads or None)
        if make:
            plan = with_fastest_precision(
                plan.on(dataclasses.replace(plan.ranks, threads=ranks.threads)).completed(make=True)
            )
    here = plan.ranks.device
    return plan, Devices(
        devices.name_of(here), here.type, per_node or plan.ranks.world, 1, expected_precision(plan), ranks.threads
    )


def _work(plan: Plan, name: str) -> tuple[int, float, float, float]:
    """Return the number of steps, the FLOPs of training and of validation, and the number of tokens."""
    phases = plan.recipe.phases
    costs = [plan.flops(index) for index in range(len(phases))]
    if not all(costs) or not all(phase.steps for phase in phases):
        remedy = "the number follows from data that do not exist yet: `--measure` makes them, as the training does"
        raise RecipeError(name, "does not say how many steps it takes", "`steps`, or data that exist", remedy)
    tokens = sum(phase.rows * plan.row_length(index) for index, phase in enumerate(phases))
    return sum(phase.steps for phase in phases), *plan.work(), float(tokens)


def _energy(speed: Speed, target_devices: Devices, work: float, device_hours: Margin) -> Margin | None:
    if speed.energy:
        return Margin(0.9, 1.0, 1.1).times(speed.energy * work / 3.6e6)
    if model := gpus.known(target_devices.device):
        return device_hours.by(BOARD).times(model.watts / 1000)
    return None


# --- speed


def _measured_speed(plan: Plan) -> Speed:
    """Time some steps of this training on its own data, and discard them.

    A batch size that grows during training is timed at its final value.
    """
    if any(phase.batch_ramp for phase in plan.recipe.phases):
        whole = [dataclasses.replace(phase, batch_ramp=None) for phase in plan.recipe.phases]
        job = plan.by(plan.recipe.with_phases(whole)).build()
    else:
        job = plan.build()
    seconds, work, before, count, uncertainty = 0.0, 0.0, 0, 0, MIN_UNCERTAINTY_TIMED
    for index, phase in enumerate(plan.recipe.phases):
        steps = step_times(job, before, phase.steps)
        mean = statistics.fmean(steps)  # not the median: a step that waits for other work is part of the total time
        if len(steps) > 3:
            low, _, high = statistics.quantiles(steps, n=4)
            uncertainty = max(uncertainty, (high - low) / mean / 2)
        seconds, work = seconds + mean * phase.whole_steps, work + plan.flops(index) * phase.whole_steps
        before, count = before + phase.steps, count + len(steps)
    reason = f"the middle half of {many(count, 'step')} is within {uncertainty:.0%} of their mean"
    return Speed(
        _margin_around(work / seconds, uncertainty), "from steps of this training that were timed here", (reason,)
    )


def _margin_around(likely: float, uncertainty: float) -> Margin:
    return Margin(likely / (1 + uncertainty), likely, likely * (1 + uncertainty))


def _speed_of(plan: Plan, target_devices: Devices, flops_per_token: float, file: Path | None) -> Speed:
    path = file or measurements.DEFAULT_PATH
    if file or path.is_file():
        similar = [
            (*like, measurement)
            for measurement in _read_measurements(path)
            if (like := _uncertainty_of(measurement, plan, target_devices, flops_per_token))
        ]
        if similar:
            uncertainty, reasons, nearest = min(similar, key=lambda entry: entry[0])
            return _scaled_speed(uncertainty, nearest, reasons, target_devices, path)
        if file and (speed := _speed_by_reports(path, target_devices)):
            return speed
        if file:
            wanted = f"a training of ordsmed on {target_devices.device} in {target_devices.precision}"
            remedy = "run `ordsmed bench` there, or leave the flag out for an estimate by the devices' peak"
            raise RecipeError("--measurements", f"{file} has no similar measurement", wanted, remedy)
    return share_of_peak(target_devices)


def _read_measurements(path: Path) -> list[Measurement]:
    if path.suffix == ".json":
        return []
    paths = sorted(path.rglob(measurements.DEFAULT_PATH.name)) if path.is_dir() else [path]
    return [measurement for file in paths for measurement in measurements.read(file)]


def _speed_by_reports(path: Path, target_devices: Devices) -> Speed | None:
    """Return a share of the peak that `validate` measured on equal devices, from reports in a folder or a file."""
    if not path.is_dir() and path.suffix != ".json":
        return None
    from ordsmed.machines.suite import collect

    if path.is_dir() and not any(path.rglob(collect.report.NAME)):
        return None
    peaks = collect.peaks(
        str(path), target_devices.precision, lambda validation: _same_devices(validation, target_devices)
    )
    if not peaks:
        return None
    peak = statistics.median(peak for _, peak in peaks) * (
        target_devices.world if target_devices.kind == "cuda" else target_devices.nodes
    )
    share, newest = (OF_CPU if target_devices.kind == "cpu" else OF_GPU), peaks[-1][0]
    left, more = _scaling_loss(target_devices, 1)
    basis = f"{share.likely:.0%} of the peak that `validate` measured, {operations(peak)}/s"
    reason = f"median of {many(len(peaks), 'report')}, the last of {newest.name} on {newest.when:%Y-%m-%d} in {path}"
    taken = f"trainings reach {share.least:.0%} to {share.most:.0%} of that; no similar training was measured there"
    return Speed(share.times(peak).by(left), basis, (reason, taken, *more))


def _same_devices(validation: Validation, target_devices: Devices) -> bool:
    if validation.facts.get("device") != target_devices.kind:
        return False
    if target_devices.kind == "cuda":
        cards = validation.facts.get("GPUs", "").split(", ")
        return target_devices.device in (*cards, *map(gpus.named, cards))
    if target_devices.here:
        return validation.facts.get("processor") == target_devices.device
    where = Destination.find(target_devices.site)
    return validation.name == f"{Path(where.name).stem}:{where.partition.name}"


def _uncertainty_of(
    measurement: Measurement, plan: Plan, target_devices: Devices, flops_per_token: float
) -> tuple[float, tuple[str, ...]] | None:
    """Return the relative uncertainty of predicting this training's speed from a past measurement, and its reasons.

    Return None if the measurement is of another program, device or precision, or if the uncertainty is above NEAR.
    """
    same_device = (
        measurement.device == target_devices.device
        or (gpus.named(measurement.device) or measurement.device) == target_devices.device
    )
    if measurement.software != "ordsmed" or measurement.measure not in ("training", "finetune"):
        return None
    if not same_device or measurement.kind != target_devices.kind or measurement.precision != target_devices.precision:
        return None
    recipe, layout = plan.recipe, plan.recipe.layout
    target_kind = kind_of(getattr(recipe, "objective", None) or getattr(recipe, "task", None))
    rows, threads = recipe.phases[0].batch / target_devices.world, measurement.threads * measurement.processes
    optimizer = kind_of(recipe.optimizer) if recipe.optimizer else ""
    parts = [
        ("another network", 0.2 * (measurement.family != kind_of(plan.network))),
        ("another objective or task", 0.1 * (measurement.task != target_kind)),
        ("another optimizer", 0.05 * (measurement.optimizer != optimizer)),
        (
            "other FLOPs per token",
            0.15 * _doublings(flops_per_token, measurement.flops_per_second / measurement.tokens_per_second),
        ),
        ("another row length", 0.1 * _doublings(plan.row_length(0), measurement.length)),
        ("other rows per device", 0.05 * _doublings(rows, measurement.batch / measurement.processes)),
        (
            "other `recompute` or `compile`",
            0.2 * ((measurement.recompute, measurement.compile) != (layout.recompute, layout.compile)),
        ),
        (
            "another number of threads",
            0.2 * (target_devices.kind == "cpu" and target_devices.here and threads != target_devices.threads),
        ),
    ]
    jitter = (measurement.step_seconds_most - measurement.step_seconds_least) / measurement.step_seconds / 2
    uncertainty = MIN_UNCERTAINTY_MEASURED + jitter + sum(number for _, number in parts)
    reasons = tuple(f"{reason}: {number:.0%} more uncertain" for reason, number in parts if number >= 0.01)
    return (uncertainty, reasons) if uncertainty < MAX_UNCERTAINTY else None


def _doublings(a: float, b: float) -> float:
    return abs(log2(a / b)) if a > 0 and b > 0 else 1.0


def _scaled_speed(
    uncertainty: float,
    measurement: Measurement,
    reasons_of_difference: tuple[str, ...],
    target_devices: Devices,
    path: Path,
) -> Speed:
    """Return the speed of a past measurement with uncertainty `uncertainty`, scaled to the number of target devices."""
    times = (
        target_devices.world / measurement.processes
        if target_devices.kind == "cuda" or target_devices.nodes > 1
        else 1.0
    )
    left, more = _scaling_loss(target_devices, measurement.processes)
    similar = f"{measurement.bench} ({measurement.family}, {measurement.task}, {measurement.date[:10]}) in {path}"
    reasons = (f"total uncertainty: {uncertainty:.0%}", *reasons_of_difference, *more)
    speed = _margin_around(measurement.flops_per_second * times, uncertainty).by(left)
    energy = (measurement.energy or 0.0) / (measurement.flops_per_second * measurement.step_seconds)
    same = not reasons_of_difference and measurement.processes == target_devices.world
    return Speed(speed, f"measured: {similar}", reasons, energy, measurement.memory if same else 0)


def share_of_peak(target_devices: Devices) -> Speed:
    """Return the speed as a share of the devices' peak, for trainings without a similar measurement."""
    model = gpus.known(target_devices.device)
    left, more = _scaling_loss(target_devices, 1)
    if target_devices.here:
        peak = speed.measured_peak(torch.device(target_devices.kind), target_devices.precision)
        share, of = (OF_CPU if target_devices.kind == "cpu" else OF_GPU), "its measured peak"
        if target_devices.kind == "cuda":
            peak *= target_devices.world
    elif model:
        peak, of = model.peak(target_devices.precision) * target_devices.world, "the peak that its vendor states"
        share = TENSOR_CORES if model.has_units(target_devices.precision) else NO_TENSOR_CORES
    else:
        problem = f"the speed of {target_devices.device} of {target_devices.site} is unknown"
        raise RecipeError(
            "--site", problem, "a known GPU", "run `ordsmed bench` there, then name its file with `--measurements`"
        )
    basis = f"{share.likely:.0%} of {of}, {operations(peak)}/s"
    reason = f"trainings reach {share.least:.0%} to {share.most:.0%} of that; no similar training was measured here"
    return Speed(share.times(peak).by(left), basis, (reason, *more))


def _scaling_loss(target_devices: Devices, measured: int) -> tuple[Margin, tuple[str, ...]]:
    """Return the share of the speed per device that remains on the target devices, and the reason.

    A measurement on `measured` devices already includes the time in which these sum gradients.
    """
    if target_devices.world <= measured or (target_devices.kind == "cpu" and target_devices.nodes == 1):
        return Margin(1.0, 1.0, 1.0), ()
    left, where = (BETWEEN_NODES, "nodes") if target_devices.nodes > 1 else (IN_A_NODE, "GPUs of a node")
    return left, (f"{where} that sum gradients: {left.least:.0%} to {left.most:.0%} of their speed remains",)
