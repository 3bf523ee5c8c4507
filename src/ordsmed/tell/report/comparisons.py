"""Comparisons of two recipes over common seeds, as written by `ordsmed stability ONE OTHER`, for the page."""

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
    seed: int
    first: float
    second: float
    difference: float


class UnpairedSeed(TypedDict):
    seed: int
    why: str


class ComparedRecipe(TypedDict):
    name: str
    left_out: list[UnpairedSeed]


class ComparedOver(TypedDict):
    mean: float
    deviation: float | None


class ComparedFacts(TypedDict):
    """Fields of comparison.json that the report uses."""

    metric: str
    verdict: NotRequired[str]
    recipes: tuple[ComparedRecipe, ComparedRecipe]
    pairs: list[ComparedPair]
    over: ComparedOver | None


def read(path: Path) -> list[dict[str, Any]]:
    paths = [*path.glob(NAME), *sorted(path.glob(f"*/{NAME}"))] if path.is_dir() else []
    return [{**facts, "file": values.written(str(file))} for file in paths if (facts := _read(file))]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts = files.read_table(path)
        if not {"metric", "recipes", "pairs", "over"} <= facts.keys():
            return None
        return values.shaped(path, facts, ComparedFacts, "`ordsmed stability ONE OTHER` writes it again")
    except DataError as error:
        values.note_left_out(str(error))
        return None


def title(compared: Mapping[str, Any]) -> str:
    first, second = (cut(recipe["name"]) for recipe in compared["recipes"])
    return f"{second} against {first}"


def tables(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    for number, compared in enumerate(report["comparisons"]):
        cells, at = Cells(report), ("comparisons", number)
        for row in range(len(compared["pairs"])):
            cells.add(
                *(
                    cells.at((*at, "pairs", row, key), str if key == "seed" else score)
                    for key in ("seed", "first", "second", "difference")
                )
            )
        for key in ("mean", "deviation") if compared["over"] else ():
            cells.add(ReportCell(key), ReportCell(""), ReportCell(""), cells.at((*at, "over", key), score))
        names = [cut(recipe["name"]) for recipe in compared["recipes"]]
        about = compared.get("verdict") or f"by {compared['metric']}"
        about += "".join(
            f"; {cut(recipe['name'])}, seed {unpaired['seed']} has no pair: {cut(unpaired['why'])}"
            for recipe in compared["recipes"]
            for unpaired in recipe["left_out"]
        )
        yield cells.table(
            f"comparison-{number}", f"{title(compared)}: {compared['metric']}", ("seed", *names, "difference"), about
        )
