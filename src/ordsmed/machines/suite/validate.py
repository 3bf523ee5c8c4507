"""`validate`: run the suite on one process of each machine, then some checks on all ranks together.

first rank of each machine: items -> outcomes      all ranks: sums, and losses of one training over them
-> first rank: report.json, junit.xml, report.md
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ordsmed.base import ranks as ranking
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.launch.gpus import known
from ordsmed.base.launch.site import Destination
from ordsmed.base.machine.host import processor
from ordsmed.base.ranks import Ranks
from ordsmed.machines.doctor import together
from ordsmed.machines.doctor.doctor import HANG_REMEDY, PATIENCE, SUMMING, add_over_all
from ordsmed.machines.doctor.host import Host, this_host
from ordsmed.machines.doctor.outcome import Outcome, absent
from ordsmed.machines.suite import items, report
from ordsmed.machines.suite.items import Item, Workplace
from ordsmed.train.pretrain import golden

LONG = 3600.0  # seconds that the first process of a machine may take for the suite
COMMON_RECIPE = "tiny/bert"  # recipe that all ranks train together
STAGES = STARTING, SUMS, LEARNING = "starting", SUMMING, "learning"

Row = dict[str, Any]


def validate(
    out: Path,
    *,
    device: str = "auto",
    site: str = "",
    quick: bool = False,
    patience: float = PATIENCE,
    show: Callable[[Row], None],
    chosen: tuple[Item, ...] = items.ITEMS,
) -> dict[str, Any]:
    location = Destination.find(site) if site else None
    ranks = ranking.rendezvous(ranking.prepare(device, flags=True), patience)
    host = this_host(location, device=ranks.device.type, world=ranks.world)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        if ranks.first:
            show(row)

    def hung(failure: OrdsmedError) -> None:
        if ranks.first:
            add(row_of("ranks", f"{ranks.world} ranks", Outcome("error", str(failure)), 0.0))
            report.write(out, _report(rows, host, ranks, quick))

    try:
        if ranks.process.local == 0:  # one process of each machine
            for item, case, outcome, seconds in items.run_items(_work(out, ranks, quick), chosen):
                add(row_of(item, case, outcome, seconds, host.name if ranks.world > 1 else ""))
        if ranks.world > 1:
            all_rows = together.gather(ranks, "items", rows, LONG)
            for row in _merged(all_rows) if ranks.first else ():
                add(row)
            try:
                for row in _check_all_ranks(ranks, out, patience, hung):
                    add(row)
            except OrdsmedError as failure:
                if not ranks.first:
                    raise
                hung(failure)
            failed = ranking.on_rank0(ranks, lambda: any(row["state"] == "error" for row in rows))
        else:
            add(row_of("sums", "1 rank", absent("one process alone"), 0.0))
            failed = False
        whole = _report(rows, host, ranks, quick)
        if ranks.first:
            report.write(out, whole)
        return whole if ranks.first or not failed else {**whole, "items": [{"state": "error"}]}
    finally:
        ranking.disconnect(ranks)


def row_of(item: str, case: str, outcome: Outcome, seconds: float, node: str = "") -> Row:
    plain = dataclasses.asdict(outcome)
    return {
        "item": item,
        "case": case,
        **{key: plain[key] for key in ("state", "text", "remedy", "figures")},
        "seconds": round(seconds, 3),
        "node": node,
    }


def _work(out: Path, ranks: Ranks, quick: bool) -> Workplace:
    import torch

    out.mkdir(parents=True, exist_ok=True)
    precisions = ["fp32"]
    if ranks.device.type == "cuda":
        model = known(torch.cuda.get_device_name(ranks.device))
        precisions.append(model.precision if model else "fp16")
    return Workplace(out.absolute() / f".list-{secrets.token_hex(4)}", str(ranks.device), tuple(precisions), quick)


def _merged(all_rows: list[list[Row]]) -> Iterator[Row]:
    """Yield the errors of the other machines; passed cases are reported only by the first machine."""
    for rows in all_rows[1:]:
        yield from (row for row in rows if row["state"] == "error")


def _check_all_ranks(ranks: Ranks, out: Path, patience: float, hung: Callable[[OrdsmedError], None]) -> Iterator[Row]:
    """Yield the results of checks that all ranks run together. A rank that hangs is named."""
    from ordsmed.train.watch import Watch

    name = f"{ranks.world} ranks"
    with Watch(ranks, patience, stages=STAGES, remedy=HANG_REMEDY, ending=hung) as watch:
        try:
            watch.at(1, SUMS)
            ranking.connect(ranks, patience)
            began = time.perf_counter()
            step = lambda number: watch.at(number, SUMS)  # noqa: E731
            outcomes_here = list(together.sums(ranks.world, ranks.rank, str(ranks.device), add_over_all, at=step))
            rows = together.gather(
                ranks, "sums", [dataclasses.asdict(outcome) for outcome in outcomes_here], 2 * patience
            )
            every = [Outcome(**outcome) for outcomes in rows for outcome in outcomes]
            sums = next((outcome for outcome in every if outcome.state != "ok"), every[0])
            yield row_of("sums", name, sums, time.perf_counter() - began)
            watch.at(100, LEARNING)
            began = time.perf_counter()
            learned = _train_together(ranks, out, lambda: watch.at(100, LEARNING))
            yield row_of("training", name, learned, time.perf_counter() - began)
        except RuntimeError as failure:
            raise watch.explain(failure) or failure from None


def _train_together(ranks: Ranks, out: Path, beat: Callable[[], None]) -> Outcome:
    """Compare the losses of one training whose batches are divided among all ranks with the golden losses."""
    folder = Path(ranking.on_rank0(ranks, lambda: str(out.absolute() / f".list-{secrets.token_hex(4)}")))
    try:
        batch, losses = golden.losses_over(ranks, COMMON_RECIPE, folder, beat)
        if not losses:
            return absent(f"a batch of {batch} does not divide by {ranks.world}")
    except OrdsmedError as failure:
        return Outcome("error", str(failure))
    finally:
        if ranks.first:
            shutil.rmtree(folder, ignore_errors=True)
    return items.compare_with_golden(
        losses, golden.read_table("losses")[COMMON_RECIPE]["losses"], items.TOLERANCE["fp32"]
    )


def _report(rows: list[Row], host: Host, ranks: Ranks, quick: bool) -> dict[str, Any]:
    started = {"device": ranks.device.type, "ranks": str(ranks.world), "cores": str(host.cores)}
    facts = {**together.facts(host), "processor": processor(), **started}
    location = f"{host.place.name}:{host.place.partition.name}" if host.place else ""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return {"host": host.name, "site": location, "made": now, "quick": quick, "facts": facts, "items": rows}
