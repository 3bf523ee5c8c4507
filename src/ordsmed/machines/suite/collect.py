"""Collect the validation reports of many systems, versions and dates, and find regressions and differences.

folders -> report.json files -> validations -> systems, each by date -> changes, differences between systems
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many
from ordsmed.machines.doctor.host import CODE_FACT
from ordsmed.machines.suite import report
from ordsmed.machines.suite.report import GREEN, SLOWER

RECENT = 5  # number of earlier reports whose median a figure is compared with
LAST = 3  # number of last reports that must all be slower than the first ones to report a gradual loss of speed
ENOUGH = 4  # least number of figures to estimate their variation
DEVIATIONS = 3.0  # deviations that a change must exceed, for figures that vary more than the tolerance
ZONES = timedelta(hours=26)  # dates have no time zone, so a correct one may be this far ahead of the local clock
NOT_REPORTED = "not said"
RED = ("worse", "slower")

Key = tuple[str, str]  # item, case
Kind = Literal["worse", "slower", "different", "better"]
ChangeKey = tuple[Kind, Key]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Validation:
    path: Path
    when: datetime
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the name of the system: SITE:PARTITION, or the host if the report names no site."""
        site, _, partition = str(self.content.get("site", "")).rpartition(":")
        return f"{Path(site).stem}:{partition}" if site else str(self.content["host"])

    @functools.cached_property
    def facts(self) -> Mapping[str, str]:
        return self.content.get("facts", {})

    @property
    def hardware(self) -> str:
        return self.facts.get("GPUs") or self.facts.get("processor", "")

    @property
    def version(self) -> str:
        return self.facts.get("ordsmed", NOT_REPORTED)

    @property
    def digest(self) -> str:
        return self.facts.get(CODE_FACT, "")

    @property
    def shape(self) -> tuple[str, str]:
        """Device and number of ranks. Reports of different shape have different cases."""
        return self.facts.get("device", ""), self.facts.get("ranks", "")

    @property
    def speed_depends_on(self) -> tuple[str, Any]:
        return self.facts.get("cores", ""), self.content.get("quick")

    @functools.cached_property
    def cases(self) -> Mapping[Key, Row]:
        return {(row["item"], row["case"]): row for row in self.content["items"]}

    def figures(self) -> Iterator[tuple[Key, str, float]]:
        """Yield all speeds (units that end in /s)."""
        for key, row in self.cases.items():
            for unit, value in row["figures"].items():
                if unit.endswith("/s") and math.isfinite(value):
                    yield key, unit, value


@dataclass(frozen=True)
class UnusedReport:
    path: str
    reason: str


@dataclass(frozen=True)
class SystemChange:
    system: str
    kind: Kind
    before: str  # dates
    now: str
    item: str
    case: str
    text: str
    newest: bool  # whether it concerns the newest report
    path: str


@dataclass(frozen=True)
class Collection:
    systems: Mapping[str, Sequence[Validation]]  # by name; oldest first
    left_out: tuple[UnusedReport, ...]
    notes: tuple[str, ...]


def read(names: Sequence[str], now: datetime | None = None, flag: str = "--collect") -> Collection:
    """Read all reports below these folders. List unusable files and copies in `left_out`."""
    validations: list[Validation] = []
    left_out: list[UnusedReport] = []
    known: dict[tuple[Any, ...], Validation] = {}
    now = now or datetime.now()
    for path in _paths(names, flag):
        try:
            validation = _validation(path, now)
        except DataError as error:
            left_out.append(UnusedReport(str(path), error.found))
            continue
        first = known.setdefault((validation.name, validation.when, validation.shape), validation)
        if first is not validation and first.content == validation.content:
            left_out.append(UnusedReport(str(path), f"is a copy of {first.path}"))
        else:
            validations.append(validation)
    if not validations:
        _refuse_nothing(names, left_out, flag)
    validations.sort(key=lambda validation: (validation.when, str(validation.path)))
    systems, notes = _systems(validations)
    if silent := sum(not validation.digest for validation in validations):
        which = "all" if silent == len(validations) else f"{silent:,} of {len(validations):,}"
        notes.append(f"{which} reports have no digest of the code, as in older versions; they are used as well")
    notes += [note for system, history in systems.items() if (note := _late_report(system, history, now))]
    return Collection(systems, tuple(left_out), tuple(notes))


def _late_report(system: str, history: Sequence[Validation], now: datetime) -> str:
    """Return a note if a system has stopped to report regularly; it may be broken. Else return an empty string."""
    dates = sorted({validation.when.date() for validation in history})
    gaps = [(after - before).days for before, after in itertools.pairwise(dates)]
    days, usual = (now.date() - dates[-1]).days, statistics.median(gaps or [0])
    late = len(gaps) > 1 and days > 2 * usual + 1
    return f"{system}: no report for {many(days, 'day')}; usually there is one every {usual:.0f}" if late else ""


def _refuse_nothing(names: Sequence[str], left_out: Sequence[UnusedReport], flag: str) -> None:
    remedy = f"`ordsmed validate --out FOLDER` writes {report.NAME} there"
    if left_out:
        problem = f"{left_out[0].reason}; {many(len(left_out), 'file', 'was', 'were')} found, but none is usable"
        raise DataError(left_out[0].path, problem, "reports of `ordsmed validate`", remedy)
    problem = f"no {report.NAME} in {', '.join(names[:4])}{' ...' if names[4:] else ''}"
    raise RecipeError(flag, problem, "folders of `ordsmed validate`, or folders that contain some", remedy)


def _paths(names: Iterable[str], flag: str) -> Iterator[Path]:
    """Yield named files, and reports at any depth of named folders, each file once."""
    seen = set()
    for name in names:
        path = Path(name)
        if not path.exists():
            raise RecipeError(flag, f"{name}: no such file or folder", "folders of `ordsmed validate`")
        for file in [path] if path.is_file() else _below(path):
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def _below(folder: Path) -> Iterator[Path]:
    for parent, inner, names in os.walk(folder):
        inner.sort()
        if report.NAME in names:
            yield Path(parent, report.NAME)


def _validation(path: Path, now: datetime) -> Validation:
    content = report.checked(path)
    if not content["items"]:
        raise DataError(path, "has no cases")
    if not content.get("host"):
        raise DataError(path, "has no name of a machine (`host`)")
    try:
        when = datetime.fromisoformat(content.get("made", ""))
    except (TypeError, ValueError):
        raise DataError(path, f"has no valid date: {content.get('made', 'none')!r}") from None
    when = when.astimezone().replace(tzinfo=None) if when.tzinfo else when
    if when > now + ZONES:
        raise DataError(path, f"is from {when}, which is in the future: the clock of {content['host']} was wrong")
    return Validation(path, when, content)


def _systems(validations: Sequence[Validation]) -> tuple[dict[str, list[Validation]], list[str]]:
    """Group the reports by system. Reports with the same name but different hardware are of different systems."""
    hardware: dict[str, dict[str, None]] = {}
    for validation in validations:
        hardware.setdefault(validation.name, {}).update({validation.hardware: None} if validation.hardware else {})
    systems: dict[str, list[Validation]] = {}
    for validation in validations:
        several = len(hardware[validation.name]) > 1 and validation.hardware
        label = f"{validation.name} ({validation.hardware})" if several else validation.name
        systems.setdefault(label, []).append(validation)
    notes = [
        f"{name}: {len(kinds)} systems have this name; they are distinguished by hardware: {', '.join(kinds)}"
        for name, kinds in hardware.items()
        if len(kinds) > 1
    ]
    return dict(sorted(systems.items())), notes


# --- changes


def changes(collection: Collection, share: float = SLOWER) -> list[SystemChange]:
    result: list[SystemChange] = []
    for system, history in collection.systems.items():
        shapes: dict[tuple[str, str], list[Validation]] = {}
        for validation in history:
            shapes.setdefault(validation.shape, []).append(validation)
        for alike in shapes.values():
            result += _changes(system, alike, share)
    return sorted(result, key=lambda change: (change.system, change.now))


def _changes(system: str, history: Sequence[Validation], share: float) -> Iterator[SystemChange]:
    past: Past = {}
    known: set[ChangeKey] = set()  # of the previous report; repeated only for the newest report
    at_once: set[ChangeKey] = set()
    for number, now in enumerate(history):
        before, newest = history[max(0, number - 1)], number == len(history) - 1
        speeds = [*_slower(now, past, share)]
        lines = [line for line in speeds if newest or line[:2] not in known]
        known = {line[:2] for line in speeds}
        at_once |= known
        lines += [*_states(before, now), *_different(before, now)]
        for kind, (item, case), text in lines:
            yield SystemChange(system, kind, str(before.when), str(now.when), item, case, text, newest, str(now.path))
    dates = str(history[0].when), str(history[-1].when)
    for kind, key, text in _gradually_slower(history[-1], past, share):
        if (kind, key) not in at_once:
            yield SystemChange(system, kind, *dates, *key, text, True, str(history[-1].path))


Past = dict[tuple[Any, ...], list[float]]  # figures of comparable reports, by date
ChangeLine = tuple[Kind, Key, str]


def _states(before: Validation, now: Validation) -> Iterator[ChangeLine]:
    for key, row in before.cases.items():
        after = now.cases.get(key)
        if text := report.regression(row, after):
            yield "worse", key, text
        elif after and row["state"] == "error" and after["state"] == GREEN:
            yield "better", key, "was error, is ok"


def _different(before: Validation, now: Validation) -> Iterator[ChangeLine]:
    if lines := [*report.differences(before.content, now.content)]:
        yield "different", ("", ""), "; ".join(lines)


def _slower(now: Validation, past: Past, share: float) -> Iterator[ChangeLine]:
    """Yield figures that differ from the median of recent reports by more than `tolerance`."""
    for key, unit, value in now.figures():
        values = past.setdefault((now.speed_depends_on, key, unit), [])
        recent = values[-RECENT:]
        change = value / usual - 1 if recent and (usual := statistics.median(recent)) > 0 else 0.0
        if change < -share or change > share:  # skip the estimate of the variation for small changes
            far = tolerance(recent, share)
            of = f"{usual:.4g} {unit} before" + (f" (median of {len(recent)})" if recent[1:] else "")
            if change < -far:
                yield "slower", key, f"{of}, {value:.4g} now, {-change:.0%} slower"
            elif far < 1 and change > far / (1 - far):
                yield "better", key, f"{of}, {value:.4g} now, {change:.0%} faster"
        values.append(value)


def _gradually_slower(now: Validation, past: Past, share: float) -> Iterator[ChangeLine]:
    """Yield figures that are slower than in the first reports, even if no report was much slower than recent ones."""
    for key, unit, _ in now.figures():
        values = past[now.speed_depends_on, key, unit]
        if len(values) >= RECENT + LAST and max(values[-LAST:]) < (1 - share) * (
            first := statistics.median(values[:RECENT])
        ):
            last = statistics.median(values[-LAST:])
            slower = f"{1 - last / first:.0%} slower, gradually"
            yield "slower", key, f"{first:.4g} {unit} at first, {last:.4g} in the last {LAST}, {slower}"


def tolerance(values: Sequence[float], share: float) -> float:
    """Return the relative loss that is tolerated: `share`, or more if the figures vary more."""
    if len(values) < ENOUGH:
        return share
    usual = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - usual) for value in values)
    return max(share, DEVIATIONS * deviation / usual)


def peaks(name: str, precision: str, alike: Callable[[Validation], bool]) -> list[tuple[Validation, float]]:
    """Return the FLOP/s of large matrix products in the last reports that `alike` accepts."""
    validations = [
        validation for history in read([name], flag="--measurements").systems.values() for validation in history
    ]
    validations.sort(key=lambda validation: validation.when)
    figures = [
        (validation, validation.cases["speeds", f"products {precision}"]["figures"].get("TFLOP/s", 0.0) * 1e12)
        for validation in validations
        if ("speeds", f"products {precision}") in validation.cases and alike(validation)
    ]
    return [(validation, peak) for validation, peak in figures if peak > 0][-RECENT:]


# --- all facts


def facts(names: Sequence[str], share: float = SLOWER) -> dict[str, Any]:
    """Return all results as JSON data, from which the text, Markdown and HTML forms are made."""
    collection = read(names)
    newest = {system: history[-1] for system, history in collection.systems.items()}
    return {
        "named": [*names],
        "slower": share,
        "reports": sum(map(len, collection.systems.values())),
        "systems": [row for system, history in collection.systems.items() for row in _versions(system, history)],
        "changes": [asdict(change) for change in changes(collection, share)],
        "between": {
            "systems": [*newest],
            "facts": _facts_between(newest),
            "cases": _cases_between(newest),
            "figures": _figures_between(newest),
        },
        "left_out": [asdict(left) for left in collection.left_out],
        "notes": [*collection.notes],
    }


def _versions(system: str, history: Sequence[Validation]) -> Iterator[dict[str, Any]]:
    """Yield a row per version and shape of a system, by date, with the counts of its newest report."""
    groups: dict[tuple[Any, ...], list[Validation]] = {}
    for validation in history:
        torch = validation.facts.get("torch", NOT_REPORTED)
        groups.setdefault((validation.version, validation.digest, torch, *validation.shape), []).append(validation)
    for (version, digest, torch, device, ranks), alike in groups.items():
        software = {"version": version, "digest": digest, "torch": torch}
        shape = {"device": device, "ranks": ranks, "reports": len(alike)}
        dates = {"first": str(alike[0].when), "last": str(alike[-1].when)}
        counts = report.count(dict(alike[-1].content))
        yield {"system": system, **software, **shape, **dates, **counts, "path": str(alike[-1].path)}


def _facts_between(newest: Mapping[str, Validation]) -> list[dict[str, Any]]:
    names = sorted({name for validation in newest.values() for name in validation.facts})
    rows = [{"fact": name, "values": [v.facts.get(name) for v in newest.values()]} for name in names]
    return [row for row in rows if len(set(row["values"])) > 1]


def _cases_between(newest: Mapping[str, Validation]) -> list[dict[str, Any]]:
    keys = dict.fromkeys(key for validation in newest.values() for key in validation.cases)
    rows = []
    for item, case in keys:
        states = [v.cases[item, case]["state"] if (item, case) in v.cases else None for v in newest.values()]
        if len({state for state in states if state}) > 1:
            rows.append({"item": item, "case": case, "states": states})
    return rows


def _figures_between(newest: Mapping[str, Validation]) -> list[dict[str, Any]]:
    rows: dict[tuple[Key, str], dict[str, float]] = {}
    for system, validation in newest.items():
        for key, unit, value in validation.figures():
            rows.setdefault((key, unit), {})[system] = value
    return [
        {"item": key[0], "case": key[1], "unit": unit, "values": [values.get(system) for system in newest]}
        for (key, unit), values in rows.items()
    ]
