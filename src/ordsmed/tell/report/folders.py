"""Facts of a run from the files in its folder alone; damaged or missing files become notes.

Neither data nor weights are needed, so a folder that was moved from another machine can be read, too.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.folder import RECIPE, STATUS, TRIALS, FolderKind, kind_of_folder, read_status
from ordsmed.base.machine.host import cores
from ordsmed.base.run import is_abandoned
from ordsmed.base.say import duration, many
from ordsmed.base.workers import worker_pool
from ordsmed.tell.report import learning_curve, samples, summary, values
from ordsmed.tell.report.learning_curve import Known
from ordsmed.weights import probe_results

METRICS, LOG, SCORES = "metrics.jsonl", "log.txt", "scores.json"
TRAININGS = ("pretrain", "finetune")
DEEP = 3  # levels of folders that are searched for runs
AT_ONCE = 1 << 27  # bytes of metrics up to which one process is enough
ENDS = 1 << 18  # bytes read from each end of a log
PLAIN = re.compile(r"(seed[-_]?)?\d+")  # names that need the parent folder's name
SILENT = 600.0  # seconds without output after which a running run gets a note
LOSSES = ("loss", "validation", "squared_error")  # lower is better
UNRANKED = (*LOSSES[:2], "total", "HasAns_total", "NoAns_total")  # values that do not rank runs
CurveReader = Callable[[Path, Known, int], dict[str, Any]]
POINTS = 40_000  # points of all curves of a report
UNITS = {
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Z": 1e21,
}  # as written by `operations`


def find(names: Sequence[str], more: Collection[str] = ()) -> list[Path]:
    """Return the runs in the named folders, each once; a folder may hold several.

    Names in `more` may hold other reportable files instead of runs.
    """
    result: dict[Path, Path] = {}
    for name in names:
        runs_below = list(_below(Path(name), DEEP))
        if not runs_below and name not in more:
            raise RecipeError(name, _why_none(Path(name)), "the folder of a run, or one with runs")
        for path in runs_below:
            result.setdefault(path.resolve(), path)
    return list(result.values())


def _below(path: Path, deep: int) -> Iterator[Path]:
    """Yield the runs at a path: itself with its trials, or those below it."""
    if _is_run(path):
        yield path
        path = path / "trials"
    try:
        if not deep or not path.is_dir():
            return
        folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    except OSError:
        return
    for folder in sorted(folders, key=_by_number):
        if folder.name not in ("checkpoints", "weights", "tokenizer", "tensorboard", "predictions"):
            yield from _below(folder, deep - 1)


def _is_run(path: Path) -> bool:
    """Return whether a folder is a training, even if its status is missing or damaged."""
    try:
        verb = values.text(read_status(path).get("verb"))
    except (OrdsmedError, OSError):
        return True
    return verb in TRAININGS or (verb is None and values.exists(path / METRICS))


def _by_number(path: Path) -> list[Any]:
    """Sort key that puts seed-2 before seed-10."""
    return [(int(part), "") if part.isdigit() else (math.inf, part) for part in re.split(r"(\d+)", path.name)]


def _why_none(path: Path) -> str:
    kind = kind_of_folder(path)
    if kind in (FolderKind.ABSENT, FolderKind.FILE):
        return "no such folder" if kind is FolderKind.ABSENT else "is a file"
    return f"is a folder of `ordsmed {kind.value}`, not a run" if kind.made else "holds no run"


def read(paths: Sequence[Path], most: int = 0, *, read: CurveReader | None = None) -> list[dict[str, Any]]:
    """Return the facts of runs in order; several processes read large metrics files.

    `read` replaces the reader of metrics files; then this process reads them all.
    """
    most = most or max(60, min(learning_curve.MOST, POINTS // max(len(paths), 1) // 2))
    sizes = [_size(path / METRICS) for path in paths]
    count = min(cores(), len(paths)) if sum(sizes) > AT_ONCE and read is None else 1
    with worker_pool(count) as map_in_order:
        runs = list(map_in_order(read_one, [(path, most, read or learning_curve.read) for path in paths]))
    for run, name in zip(runs, _names(paths), strict=True):
        run["name"] = values.written(name)
    return runs


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _names(paths: Sequence[Path]) -> list[str]:
    parts = [path.resolve().parts for path in paths]
    lengths = [1 + bool(PLAIN.fullmatch(path_parts[-1])) for path_parts in parts]
    while True:
        names = ["/".join(path_parts[-length:]) for path_parts, length in zip(parts, lengths, strict=True)]
        twice = [
            names.count(name) > 1 and length < len(path_parts)
            for name, path_parts, length in zip(names, parts, lengths, strict=True)
        ]
        if not any(twice):
            return names
        lengths = [length + more for length, more in zip(lengths, twice, strict=True)]


def read_one(path: Path, most: int, read: CurveReader = learning_curve.read) -> dict[str, Any]:
    notes: list[str] = []
    status = _table(path / STATUS, notes)
    recipe = _recipe(path, notes)
    log = _log(path / LOG)
    known = Known(_flops(status) or log.get("flops", {}), _processes(status))
    verb = str(status.get("verb", "run"))
    kind = "trials" if verb in TRAININGS and values.exists(path / TRIALS) else verb
    facts = {
        "folder": values.written(str(path)),
        "kind": kind,
        "state": str(status.get("state") or "unknown"),
        "why": str(status.get("why") or ""),
        "began": values.number(status.get("began")),
        "seed": values.count(recipe.get("seed")),
        "recipe": settings.flat(recipe),
        "course": _learning_curve(lambda: read(path / METRICS, known, most), path / METRICS, notes, status),
        "planned": _planned(recipe, status),
        "scores": _scores(path, notes, status),
        "trials": _trials(path, notes),
        "probes": _probes(path, notes),
        "data": _data(path, notes),
        "network": log.get("network"),
        "machine": log.get("machine", ""),
        "precision": settings.flat(recipe).get("layout.precision"),
        "layouts": status.get("layouts", []),
        "parameters": log.get("parameters"),
        "left_out": _left_out(status),
        "environment": _table(path / "environment.json", notes) if values.exists(path / "environment.json") else {},
        "starts": log.get("starts", 0),
        "samples": samples.read(path),
        "notes": notes,
    }
    facts["guessing_loss"] = _guessing_loss(facts["scores"], status)
    losses = values.table(status.get("verdict"))
    facts["verdict"] = values.text(losses.get("line")) or "" if losses.get("kind") != "unknown" else ""
    facts["summary"] = summary.summary(facts)
    _note_state(path, facts)
    _note_scores(facts)
    return facts


def _left_out(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ranges of skipped steps. A range that was extended by later steps counts once."""
    result: list[dict[str, Any]] = []
    for stretch in values.tables(status.get("left_out")):
        first, last = (values.count(stretch.get(key)) for key in ("first", "last"))
        reason = str(stretch.get("why") or "")
        if first is None or last is None:
            continue
        previous = result[-1] if result else {}
        is_extended = (previous.get("first"), previous.get("why")) == (first, reason)
        result = result[:-1] if is_extended else result
        result.append(
            {"first": first, "last": last, "why": reason, "times": previous["times"] + 1 if is_extended else 1}
        )
    return result


def _table(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        return values.table(values.clean(files.read_table(path)))
    except OrdsmedError as error:
        notes.append(f"{path.name}: {error.found}")
        return {}


def _recipe(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        return values.table(values.clean(settings.renamed(settings.read(path / RECIPE))))
    except (OrdsmedError, OSError) as error:
        result = error.found if isinstance(error, OrdsmedError) else error.strerror
        notes.append(f"{RECIPE}: {result}; the requested settings are unknown")
        return {}


def _log(path: Path) -> dict[str, Any]:
    """Return facts that a run logs at each start: FLOPs per step, parameters, devices; and the number of starts."""
    try:
        with path.open("rb") as file:
            text = file.read(ENDS)
            file.seek(0, 2)
            if file.tell() > ENDS:
                file.seek(max(ENDS, file.tell() - ENDS))
                text += file.read()
    except OSError:
        return {}
    lines = text.decode("utf-8", "replace")
    facts: dict[str, Any] = {"flops": {}}
    for phase, count, unit in re.findall(r"^phase (\d+): (\d[\d,.e+]*) ([kMGTPEZ]?)FLOPs? a step", lines, re.M):
        facts["flops"][int(phase)] = float(count.replace(",", "")) * UNITS[unit]
    if result := re.findall(r"^(?:network: )?(([\d,]+) parameters.*)$", lines, re.M):
        facts |= {"network": result[-1][0], "parameters": int(result[-1][1].replace(",", ""))}
    if machines := re.findall(r"^(?:[\d,]+ parameters; )?(.*; measured peak of all .*)$", lines, re.M):
        facts |= {"machine": machines[-1], "starts": len(machines)}
    return facts


def _flops(status: Mapping[str, Any]) -> dict[int, float]:
    noted = status.get("flops", [])
    numbers = enumerate(map(values.number, noted), 1) if isinstance(noted, list) else ()
    return {phase: count for phase, count in numbers if count and count > 0}


def _processes(status: Mapping[str, Any]) -> list[tuple[int, int]]:
    result = []
    for layout in values.tables(status.get("layouts")):
        first, count = values.number(layout.get("from")), values.number(layout.get("processes"))
        if first is not None and count:
            result.append((int(first), int(count)))
    return sorted(result) or [(0, 1)]


def _learning_curve(
    read: Callable[[], dict[str, Any]], path: Path, notes: list[str], status: Mapping[str, Any]
) -> dict[str, Any] | None:
    if not values.exists(path):
        if status.get("verb") in TRAININGS and not values.exists(path.parent / TRIALS):
            notes.append(f"no {METRICS}: no step was written")
        return None
    try:
        result = read()
    except OSError as error:
        notes.append(f"{METRICS}: {error.strerror}")
        return None
    if result["cut"]:
        notes.append(f"{METRICS}: {result['cut']}")
    if count := result["damaged_count"]:
        where = ", ".join(f"{number:,}" for number in result["damaged"]) + (
            ", ..." if count > len(result["damaged"]) else ""
        )
        notes.append(
            f"{METRICS}: {count:,} of {result['lines']:,} lines cannot be read (line {where}); they are left out"
        )
    if count := result["no_numbers"]:
        notes.append(
            f"{METRICS}: the loss of {count:,} of {many(result['steps'], 'step')} is not finite, first at step "
            f"{result['first_no_number']:,.0f}; the curve has a gap there"
        )
    if not result["steps"]:
        notes.append(f"{METRICS}: holds no step")
    return result


def _planned(recipe: Mapping[str, Any], status: Mapping[str, Any]) -> int | None:
    counts = [phase.get("steps") for phase in values.tables(recipe.get("phase"))]
    requested = counts if counts and all(counts) else status.get("steps_asked", [])
    numbers = list(map(values.number, requested)) if isinstance(requested, list) else []
    return int(sum(filter(None, numbers))) if numbers and all(numbers) else None


def _scores(path: Path, notes: list[str], status: Mapping[str, Any]) -> dict[str, Any]:
    if not values.exists(path / SCORES):
        return {}
    facts = _table(path / SCORES, notes)
    verdict = {"verdict": facts["verdict"]} if isinstance(facts.get("verdict"), str) else {}
    return {"found": _numbers(facts), "guessing": _numbers(values.table(facts.get("guessing"))), **verdict}


def _guessing_loss(scores: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return the loss of guessing by frequency, if the run's loss is over tokens alone."""
    guessing: float | None = scores.get("guessing", {}).get("validation")
    return guessing if guessing is not None or scores else values.number(status.get("unigram"))


def _numbers(table: Mapping[str, Any]) -> dict[str, float]:
    pairs = ((key, values.count(value)) for key, value in table.items())
    return {key: value for key, value in pairs if value is not None}


def _trials(path: Path, notes: list[str]) -> dict[str, Any]:
    if not values.exists(path / "trials.json"):
        return {}
    facts = _table(path / "trials.json", notes)
    rows = [
        {
            **_numbers(trial),
            "trial": str(trial.get("trial", "")),
            "setting": values.table(trial.get("setting")),
            "scores": _numbers(values.table(trial.get("scores"))),
        }
        for trial in values.tables(facts.get("trials"))
    ]
    return {**facts, "trials": rows}


def _probes(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    rows = []
    for file in values.matching(path / probe_results.SCORES, "*-*.json"):
        try:
            result = values.clean(probe_results.read_one(file))
        except OrdsmedError as error:
            notes.append(f"{probe_results.SCORES}/{file.name}: {error.found}")
            continue
        seen, errors, guessing = (values.table(result.get(key)) for key in ("seen", "errors", "guessing"))
        rows += [
            {
                "probe": f"{result['probe']} ({result['way']})",
                "files": _files(result["files"]),
                "step": values.count(result.get("step")),
                "score": key,
                "value": value,
                "error": values.number(errors.get(key)),
                "guessing": values.number(guessing.get(key)),
                "words": values.count(seen.get("words")),
                "tokens": values.count(seen.get("tokens")),
            }
            for key, value in result.items()
            if isinstance(value, float)
        ]
    return sorted(rows, key=lambda row: (row["probe"], row["files"], row["score"], row["step"] or 0))


def _files(names: object) -> str:
    names = [str(name) for name in names] if isinstance(names, list) else []
    return Path(names[0]).name + (f" and {len(names) - 1} more" if names[1:] else "") if names else ""


def _data(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    if not values.exists(path / "data.json"):
        return []
    rows = []
    for source, facts in _table(path / "data.json", notes).items():
        if not isinstance(facts, dict):
            continue
        train, validation = (values.table(facts.get(name)) for name in ("train", "validation"))
        sizes = {
            "documents": train.get("documents"),
            "words": train.get("words"),
            "dropped": _dropped(facts),
            "examples": facts.get("examples"),
            "tokens": train.get("tokens", facts.get("tokens")),
            "held_out": validation.get("tokens"),
            "bytes_a_token": train.get("bytes_a_token"),
            "unknown": train.get("unknown"),
            "vocabulary": facts.get("vocabulary"),
        }
        names = ("split", "kind", "tokenizer", "language", "licence", "fingerprint")
        rows.append(
            {
                "source": source,
                **{key: values.count(size) for key, size in sizes.items()},
                **{name: values.text(facts.get(name)) for name in names},
            }
        )
    return rows


def _dropped(store: Mapping[str, Any]) -> int | None:
    tables = [store[key] for key in ("dropped", "left_out") if isinstance(store.get(key), dict)]
    counts = [values.count(count) or 0 for reasons in tables for count in reasons.values()]
    return int(sum(counts)) if tables else None


def _note_state(path: Path, facts: dict[str, Any]) -> None:
    if facts["state"] == "running" and is_abandoned(path, facts["environment"].get("host")):
        facts["state"] = "killed"
        facts["notes"].append("killed: no process is working on it; the same command resumes it")
    elif facts["state"] == "running":
        if not math.isfinite(silent := silence(path)):
            return
        facts["silent_seconds"] = round(silent, 1)
        if silent > SILENT:
            facts["notes"].append(f"running, but nothing was written for {duration(silent)}: it may have been killed")
    elif facts["state"] == "failed":
        facts["notes"].append(f"failed: {facts['why'] or 'its log says why'}")
    elif facts["state"] == "stopped":
        facts["notes"].append("stopped early; the same command resumes it")


def silence(path: Path) -> float:
    try:
        return max(
            0.0,
            time.time()
            - max((path / name).stat().st_mtime for name in (METRICS, STATUS) if values.exists(path / name)),
        )
    except (OSError, ValueError):
        return math.inf


def _note_scores(facts: dict[str, Any]) -> None:
    scores, guessing = (facts["scores"].get(key, {}) for key in ("found", "guessing"))
    keys = ["validation"] if facts["kind"] == "pretrain" else [key for key in guessing if key not in UNRANKED]
    known = [key for key in keys if key in scores and key in guessing]
    if Path(facts["folder"]).parent.name == "trials":  # trials are compared; only the best one gets a note
        return
    if verdict := facts["scores"].get("verdict"):
        facts["notes"].append(verdict)
    elif known and all(scores[k] >= guessing[k] if k in LOSSES else scores[k] <= guessing[k] for k in known):
        worse = ", ".join(f"{key} {scores[key]:.4g} (guessing: {guessing[key]:.4g})" for key in known[:2])
        facts["notes"].append(f"no better than guessing: {worse}")
