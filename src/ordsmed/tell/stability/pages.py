"""Pages of a study and of a comparison in Markdown: a line a seed, and what diverged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ordsmed.base.say import many
from ordsmed.base.screen import markdown
from ordsmed.tell.report.learning_curve import LAST
from ordsmed.tell.stability.results import ended, shown

SHOWN = 6  # scores in a table


def page(result: Mapping[str, Any]) -> Iterator[str]:
    """Of a study."""
    yield f"# {result['name']}: {many(len(result['runs']), 'seed')}"
    yield ""
    side = "less" if result["lower_is_better"] else "more"
    yield f"{ended(result)}. Of {result['metric']}, {side} is better."
    yield ""
    names = _names(result)
    rows = [[str(row["seed"]), *(_score(result, row, name) for name in names), f"{row['step']:,}",
             f"{row['seconds']:,.0f}", _mark(row)] for row in result["runs"]]  # fmt: skip
    for title in ("mean", "deviation", "least", "most") if names else ():
        cells = [_of_all(result, name, title) for name in names]
        rows.append([title, *cells, "", "", ""])
    yield from markdown(["seed", *names, "step", "seconds", ""], rows, padded=True)
    yield from told(result)


def told(result: Mapping[str, Any]) -> Iterator[str]:
    """What is not in the mean and why, and what else is to be known of runs that are."""
    if "loss" in result["over"]:
        yield f"\nloss: the mean of the last {LAST} steps"
    if result["beside"]:
        numbers = ",".join(str(seed) for seed in sorted([*result["beside"], *(row["seed"] for row in result["runs"])]))
        yield f"\nseeds {', '.join(map(str, result['beside']))} stand too and are not in this table: --seeds {numbers}"
    for row in result["runs"]:
        if row["why"]:
            yield f"\nseed {row['seed']} is not in the mean: {row['why']}"
        for note in row["notes"]:
            yield f"\nseed {row['seed']}: {note}"


def _names(result: Mapping[str, Any]) -> list[str]:
    """The scores that are shown, what runs are compared by first."""
    order = dict.fromkeys([result["metric"], "validation", "loss", *result["over"]])
    return [name for name in order if name in result["over"] and not name.endswith("thresh")][:SHOWN]


def _score(result: Mapping[str, Any], row: Mapping[str, Any], name: str) -> str:
    value = row["scores"].get(name) if row["state"] == "done" else None
    return "" if value is None else shown(value, result["over"][name].get("deviation") or 0.0)


def _mark(row: Mapping[str, Any]) -> str:
    if row["why"]:
        return row["state"] if row["state"] != "done" else "diverged"
    return f"{row['left_out']:,} steps left out" if row["left_out"] else ""


def _of_all(result: Mapping[str, Any], name: str, title: str) -> str:
    value, deviation = result["over"][name].get(title), result["over"][name].get("deviation")
    return "" if value is None else shown(value, deviation or 0.0)


def comparison_page(found: Mapping[str, Any]) -> Iterator[str]:
    """Of two recipes."""
    first, second = (recipe["name"] for recipe in found["recipes"])
    yield f"# {second} against {first}: {found['metric']}"
    yield ""
    yield f"{verdict(found)}."
    yield ""
    deviation = (found["over"] or {}).get("deviation") or 0.0
    rows = [
        [str(pair["seed"]), *(shown(pair[key], deviation) for key in ("first", "second", "difference"))]
        for pair in found["pairs"]
    ]
    if found["over"]:
        for title in ("mean", "deviation"):
            if (value := found["over"][title]) is not None:
                rows.append([title, "", "", shown(value, deviation)])
    yield from markdown(["seed", first, second, "difference"], rows, padded=True)
    for recipe in found["recipes"]:
        for one in recipe["left_out"]:
            yield f"\n{recipe['name']}, seed {one['seed']} is in no pair: {one['why']}"
    yield ""
    if found["settings"]:
        rows = [[key, _plain(one), _plain(other)] for key, (one, other) in found["settings"].items()]
        yield from markdown(["setting", first, second], rows, padded=True)
    else:
        yield "The two recipes have the same settings."


def _plain(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def verdict(found: Mapping[str, Any]) -> str:
    """In a line: by how much the second differs, and whether that is shown."""
    over, metric = found["over"], found["metric"]
    if not over:
        return "no difference shown: no seed came to a score with both recipes"
    first, second = (recipe["name"] for recipe in found["recipes"])
    deviation, pairs = over["deviation"] or 0.0, many(over["count"], "seed")
    change = f"{metric} of {second} less that of {first}: {shown(over['mean'], deviation)}"
    if over["interval"] is None:
        return f"{change}, by {pairs}, which leaves no interval: no difference shown"
    low, high = (shown(end, deviation) for end in over["interval"])
    reach = f"{found['level']:.0%} interval {low} to {high} by Student's t, {pairs} in pairs"
    if not found["shown"]:
        return f"{change}; {reach}: no difference shown, the interval holds 0"
    better = second if (over["mean"] < 0) == found["lower_is_better"] else first
    if found["unlike"]:
        return (
            f"{change}; {reach}: which is better is not shown, for {metric} is not of the same thing where "
            f"{', '.join(found['unlike'])} {'differ' if found['unlike'][1:] else 'differs'}"
        )
    return f"{change}; {reach}: {better} is better"
