"""Markdown pages of a study and of a comparison, with a line per seed and the runs that diverged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ordsmed.base.say import many
from ordsmed.base.screen import command, command_lines, markdown
from ordsmed.tell.report.learning_curve import LAST
from ordsmed.tell.stability.results import ended, rounded

SHOWN = 6  # maximum number of scores in a table


def page(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {result['name']}: {many(len(result['runs']), 'seed')}"
    yield ""
    side = "less" if result["lower_is_better"] else "more"
    yield f"{ended(result)}. Of {result['metric']}, {side} is better."
    yield ""
    order = dict.fromkeys([result["metric"], "validation", "loss", *result["over"]])
    names = [name for name in order if name in result["over"] and not name.endswith("thresh")][:SHOWN]
    rows = [
        [
            str(row["seed"]),
            *(_score(result, row, name) for name in names),
            f"{row['step']:,}",
            f"{row['seconds']:,.0f}",
            _mark(row),
        ]
        for row in result["runs"]
    ]
    for title in ("mean", "deviation", "least", "most") if names else ():
        cells = [_statistic(result, name, title) for name in names]
        rows.append([title, *cells, "", "", ""])
    yield from markdown(["seed", *names, "step", "seconds", ""], rows, padded=True)
    yield from notes(result)


def notes(result: Mapping[str, Any]) -> Iterator[str]:
    if "loss" in result["over"]:
        yield f"\nloss: the mean of the last {LAST} steps"
    if result["beside"]:
        numbers = ",".join(str(seed) for seed in sorted([*result["beside"], *(row["seed"] for row in result["runs"])]))
        yield f"\nseeds {', '.join(map(str, result['beside']))} exist but are not in this table: --seeds {numbers}"
    for row in result["runs"]:
        if row["why"]:
            yield f"\nseed {row['seed']} is not in the mean: {row['why']}"
        for note in row["notes"]:
            yield f"\nseed {row['seed']}: {note}"


def _score(result: Mapping[str, Any], row: Mapping[str, Any], name: str) -> str:
    value = row["scores"].get(name) if row["state"] == "done" else None
    return "" if value is None else rounded(value, result["over"][name].get("deviation") or 0.0)


def _mark(row: Mapping[str, Any]) -> str:
    if row["why"]:
        return row["state"] if row["state"] != "done" else "diverged"
    return f"{many(row['left_out'], 'step')} left out" if row["left_out"] else ""


def _statistic(result: Mapping[str, Any], name: str, title: str) -> str:
    value, deviation = result["over"][name].get(title), result["over"][name].get("deviation")
    return "" if value is None else rounded(value, deviation or 0.0)


def comparison_page(result: Mapping[str, Any]) -> Iterator[str]:
    first, second = (recipe["name"] for recipe in result["recipes"])
    yield f"# {second} against {first}: {result['metric']}"
    yield ""
    yield f"{verdict(result)}."
    yield ""
    if more := more_seeds(result):
        yield from [*more, ""]
    deviation = (result["over"] or {}).get("deviation") or 0.0
    rows = [
        [str(pair["seed"]), *(rounded(pair[key], deviation) for key in ("first", "second", "difference"))]
        for pair in result["pairs"]
    ]
    if result["over"]:
        for title in ("mean", "deviation"):
            if (value := result["over"][title]) is not None:
                rows.append([title, "", "", rounded(value, deviation)])
    yield from markdown(["seed", first, second, "difference"], rows, padded=True)
    for recipe in result["recipes"]:
        for excluded in recipe["left_out"]:
            yield f"\n{recipe['name']}, seed {excluded['seed']} is in no pair: {excluded['why']}"
    yield ""
    if result["settings"]:
        rows = [[key, _as_text(a), _as_text(b)] for key, (a, b) in result["settings"].items()]
        yield from markdown(["setting", first, second], rows, padded=True)
    else:
        yield "The two recipes have the same settings."


def _as_text(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def compared_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the lines that the command prints for a comparison."""
    folder = result["folder"]
    page = f"{folder}/comparison.md lists each seed, comparison.html shows their learning curves"
    return [verdict(result), *more_seeds(result), page]


def more_seeds(result: Mapping[str, Any]) -> list[str]:
    """Return how many more seeds would decide, with the command to train them; nothing if that is unknown."""
    if not (count := result["seeds_wanting"]):
        return []
    seeds = [pair["seed"] for pair in result["pairs"]]
    seeds += range(max(seeds) + 1, max(seeds) + 1 + count)
    folders = (recipe["folder"] for recipe in result["recipes"])
    title = f"all differ in one direction: {many(count, 'more seed')} like these would decide"
    return command_lines(title, command("stability", *folders, "--seeds", ",".join(map(str, seeds))))


def verdict(result: Mapping[str, Any]) -> str:
    """Return in one sentence how much the second recipe differs, and whether that is significant."""
    statistics, metric = result["over"], result["metric"]
    if not statistics:
        return "no difference shown: no seed has a score with both recipes"
    first, second = (recipe["name"] for recipe in result["recipes"])
    deviation, pairs = statistics["deviation"] or 0.0, many(statistics["count"], "seed")
    change = f"{metric} of {second} less that of {first}: {rounded(statistics['mean'], deviation)}"
    if statistics["interval"] is None:
        return f"{change}, from {pairs}, too few for an interval: no difference shown"
    low, high = (rounded(end, deviation) for end in statistics["interval"])
    interval = f"{result['level']:.0%} interval {low} to {high} by Student's t, {pairs} paired"
    if not result["shown"]:
        return f"{change}; {interval}: no difference shown, the interval holds 0"
    better = second if (statistics["mean"] < 0) == result["lower_is_better"] else first
    if result["unlike"]:
        return (
            f"{change}; {interval}: which is better is unknown, because {metric} is not comparable when "
            f"{', '.join(result['unlike'])} {'differ' if result['unlike'][1:] else 'differs'}"
        )
    return f"{change}; {interval}: {better} is better"
