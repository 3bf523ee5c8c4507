"""Comparisons on a page: two recipes by the seeds that both have, as `ordsmed stability ONE OTHER` left them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.tell.report import values
from ordsmed.tell.report.tables import Cells, ReportCell, ReportTable, cut, score

NAME = "comparison.json"


class ComparedPair(TypedDict):
    """A seed that both have."""

    seed: int
    first: float
    second: float
    difference: float


class UnpairedSeed(TypedDict):
    """A seed in no pair."""

    seed: int
    why: str


class ComparedRecipe(TypedDict):
    name: str
    left_out: list[UnpairedSeed]


class ComparedOver(TypedDict):
    mean: float
    deviation: float | None


class ComparedFacts(TypedDict):
    """What is read of a file."""

    metric: str
    verdict: NotRequired[str]
    recipes: tuple[ComparedRecipe, ComparedRecipe]
    pairs: list[ComparedPair]
    over: ComparedOver | None


def read(path: Path) -> list[dict[str, Any]]:
    """Those of a folder: its own, and of those in it."""
    every = [*path.glob(NAME), *sorted(path.glob(f"*/{NAME}"))] if path.is_dir() else []
    return [{**facts, "file": values.written(str(file))} for file in every if (facts := _read(file))]


def _read(path: Path) -> dict[str, Any] | None:
    """None: it is another's, or damaged, which is told."""
    try:
        facts = files.read_table(path)
        if not {"metric", "recipes", "pairs", "over"} <= facts.keys():
            return None
        return values.shaped(path, facts, ComparedFacts, "`ordsmed stability ONE OTHER` makes it again")
    except DataError as error:
        values.tell_left_out(str(error))
        return None


def title(compared: Mapping[str, Any]) -> str:
    """Which two."""
    first, second = (cut(recipe["name"]) for recipe in compared["recipes"])
    return f"{second} against {first}"


def tables(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    """A row a seed, mean and deviation of the differences behind them."""
    for number, compared in enumerate(report["comparisons"]):
        cells, at = Cells(report), ("comparisons", number)
        for row in range(len(compared["pairs"])):
            cells.add(*(cells.at((*at, "pairs", row, key), str if key == "seed" else score)
                        for key in ("seed", "first", "second", "difference")))  # fmt: skip
        for key in ("mean", "deviation") if compared["over"] else ():
            cells.add(ReportCell(key), ReportCell(""), ReportCell(""), cells.at((*at, "over", key), score))
        names = [cut(recipe["name"]) for recipe in compared["recipes"]]
        about = compared.get("verdict") or f"by {compared['metric']}"
        about += "".join(
            f"; {cut(recipe['name'])}, seed {unpaired['seed']} is in no pair: {cut(unpaired['why'])}"
            for recipe in compared["recipes"]
            for unpaired in recipe["left_out"]
        )
        yield cells.table(
            f"comparison-{number}", f"{title(compared)}: {compared['metric']}", ("seed", *names, "difference"), about
        )
