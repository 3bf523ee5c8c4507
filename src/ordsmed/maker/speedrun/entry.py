"""An entry of the board, stored as `entry.json`: code, machine, recipe and results."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ordsmed.base import files, run, settings
from ordsmed.base.identity import identity
from ordsmed.base.machine.host import cores, processor
from ordsmed.base.run import Run
from ordsmed.base.say import many, operations
from ordsmed.learn.score.seeds import over_seeds
from ordsmed.maker.speedrun import scores
from ordsmed.maker.speedrun.budget import Budgeted
from ordsmed.maker.speedrun.track import KEPT, SpeedrunRequest, Track, track, tracks
from ordsmed.train import checkpoint, meters
from ordsmed.train.pretrain.recipe import Pretraining

FILE = "entry.json"
VERSION = 1
OWN = ("seed", "data", "out")  # settings of a run's recipe that the entry has elsewhere
WEIGHTS = "weights/model.safetensors"


def of_run(seed: int, folder: Path, scored: Mapping[str, float]) -> dict[str, Any]:
    status = Run(folder).status
    seconds = math.fsum(line.get("seconds") or 0.0 for line in meters.read(folder / "metrics.jsonl") if "loss" in line)
    return {
        "seed": seed,
        "steps": status["step"],
        "minutes": round(seconds / 60, 2),
        "scores": dict(scored),
        "weights": scores.file_mark(folder / WEIGHTS),
    }


def entry(
    request: SpeedrunRequest,
    rule: Track,
    budget: float,
    planned: Budgeted,
    folder: Path,
    corpus: Path,
    runs: Sequence[Mapping[str, Any]],
    minutes: Mapping[str, float],
    passes: float,
) -> dict[str, Any]:
    """Return a complete entry; `folder` is that of one of its runs."""
    names = list(dict.fromkeys(name for row in runs for name in row["scores"]))
    over = {name: asdict(over_seeds([row["scores"][name] for row in runs])) for name in names}
    table = settings.plain(run.read_recipe(Pretraining, folder))
    sample = scores.sample_mark(corpus)
    result = {
        "version": VERSION,
        "track": request.track,
        "budget": budget,
        "rules": settings.plain(rule),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "ordsmed": str(identity()),
        "code": identity().digest,
        "score": scores.ranked_by(runs[0]["scores"]),
        "name": request.recipe or rule.recipes[request.kind or next(iter(rule.recipes))],
        "recipe": {key: value for key, value in table.items() if key not in OWN},
        "seeds": [row["seed"] for row in runs],
        "runs": [dict(row) for row in runs],
        "over": over,
        "flops": planned.flops,
        "tokens": planned.tokens,
        "passes": round(passes, 3),
        "words": round(passes * sample["train"]["words"]),
        "sample": sample,
        "tokenizer": scores.file_mark(folder / "tokenizer/tokenizer.json"),
        "minutes": dict(minutes),
        "machine": machine(folder),
    }
    return {**result, "no_entry": why_none(result)}


def machine(run_folder: Path) -> dict[str, Any]:
    known = run.environment()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {
        "processor": processor(),
        "cores": cores(),
        "gpu": gpu,
        "torch": known["torch"],
        "numpy": known["numpy"],
        "tokenizers": known["tokenizers"],
        "threads": checkpoint.threads_kept(run_folder),
        "system": known["system"],
    }


def why_none(result: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a result is not a valid entry of its track; empty if it is."""
    rule, reasons = result["rules"], list[str]()
    if result["budget"] != 1:
        reasons.append(f"{result['budget']:g} times the budget")
    if result["track"] not in tracks() or _that_count(rule) != _that_count(settings.plain(track(result["track"]))):
        reasons.append("rules of its own")
    if result["passes"] > rule["passes"]:
        reasons.append(f"{result['passes']:.1f} passes over the text, more than {rule['passes']:g}")
    if len(result["seeds"]) < len(rule["seeds"]):
        reasons.append(f"{many(len(result['seeds']), 'seed')}, fewer than {len(rule['seeds'])}")
    if "+g" not in result["ordsmed"]:
        reasons.append("the commit of the code is not known")
    if "+changes" in result["ordsmed"]:
        reasons.append("files of the code differ from its commit")
    return reasons


def _that_count(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules that scores depend on."""
    return {key: value for key, value in rules.items() if key != KEPT}


def lines(result: Mapping[str, Any]) -> list[str]:
    means = [f"{name}: {with_deviation(result['over'][name])}" for name in result["over"]]
    minutes = result["minutes"]
    training = f"{operations(result['flops'])} in {minutes['training']:.1f} minutes of training a seed"
    read_ = f"{result['words']:,} words read, {result['passes']:.2f} passes"
    none = result["no_entry"]
    return [
        f"{result['track']}, {result['name']}, {many(len(result['seeds']), 'seed')}: {'; '.join(means)}",
        f"{training}; {read_}; {minutes['wall']:.1f} minutes in all",
        f"no entry of the board: {'; '.join(none)}" if none else "an entry of the board: docs/speedrun.md says how",
    ]


def with_deviation(over: Mapping[str, Any], digits: int = 4) -> str:
    deviation = over["deviation"]
    return f"{over['mean']:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation is not None else "")


def is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two results come from the same runs with the same scores; then the first file is kept."""
    return all(before.get(key) == now[key] for key in ("version", "runs", "recipe", "rules", "sample"))


def read(path: Path) -> dict[str, Any]:
    return files.read_table(path / FILE if path.is_dir() else path)
