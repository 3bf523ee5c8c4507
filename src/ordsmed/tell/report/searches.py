"""Search results on a page: how well `make --for search` measured each way to search, and which one its index uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.base.folder import read_status
from ordsmed.tell.report import values
from ordsmed.tell.report.tables import Cells, ReportCell, ReportTable, cut

MEASURES = ("mrr@10", "ndcg@10", "recall@100")


def read(path: Path) -> list[dict[str, Any]]:
    try:
        status = read_status(path) if path.is_dir() else {}
    except DataError as error:
        values.note_left_out(str(error))
        return []
    methods, verdict = status.get("search"), status.get("verdict")
    if status.get("verb") != "make" or not isinstance(methods, dict) or not isinstance(verdict, list):
        return []
    return [{"name": path.resolve().name, "verdict": [*map(str, verdict)], "ways": methods}]


def summary_lines(report: Mapping[str, Any]) -> Iterator[str]:
    for searched in report["searches"]:
        *reasons, used = searched["verdict"]
        yield from (f"{used[:1].upper()}{used[1:]}.", *(f"{reason[:1].upper()}{reason[1:]}." for reason in reasons))


def tables(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    for number, searched in enumerate(report["searches"]):
        cells, at = Cells(report), ("searches", number, "ways")
        for method in searched["ways"]:
            cells.add(ReportCell(method), *(cells.at((*at, method, key), "{:.1f}".format) for key in MEASURES))
        about = "on held-out questions that were not used to choose anything, in per cent"
        yield cells.table(f"search-{number}", f"{cut(searched['name'])}: ways to search", ("way", *MEASURES), about)
