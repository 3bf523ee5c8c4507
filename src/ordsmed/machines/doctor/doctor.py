"""Run a list of checks on this machine, or on all machines of a job together, and report the outcomes.

Host -> each check -> outcomes      ranks: outcomes of all, differences, tested all-reduces -> the first rank
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from ordsmed.base import ranks as ranking
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.launch.site import Destination
from ordsmed.base.ranks import Ranks
from ordsmed.machines.doctor import disks, job, network, software, speed, together
from ordsmed.machines.doctor.host import Host, this_host
from ordsmed.machines.doctor.outcome import Outcome, State, plain, worst

if TYPE_CHECKING:
    import torch

Check = Callable[[Host], Iterator[Outcome]]

# A check is a function from a host to outcomes; its name is the name of the check. Add new checks to this list.
CHECKS: tuple[Check, ...] = (
    job.site,
    job.partition,
    job.account,
    job.cores,
    software.python,
    software.torch,
    software.checkpoints,
    software.wheel,
    software.gpus,
    software.driver,
    software.precision,
    software.switches,
    disks.room,
    disks.temporary,
    disks.quotas,
    disks.caches,
    disks.offline,
    disks.disk,
    disks.locks,
    disks.renames,
    disks.clock,
    network.names,
    network.port,
    network.interfaces,
    network.collectives,
    speed.products,
    speed.memory,
)
STAGES = STARTING, LOOKING, COMPARING, SUMMING = "starting", "looking", "comparing", "sums"
RENDEZVOUS = "ranks"
MAX_NAMED = 4  # most machines or outcomes named in one message
PATIENCE = 60.0  # seconds that a rank may keep the others waiting
HANG_REMEDY = (
    "check its machine (`srun -w NODE`, its driver, its network), or exclude it with `--exclude`, then run this again"
)


def examine(host: Host, checks: tuple[Check, ...] = CHECKS) -> Iterator[Outcome]:
    """Yield the outcomes of each check on this machine. A check that raises an error yields an error outcome."""
    for check in checks:
        name = check.__name__.rstrip("_").replace("_", " ")
        try:
            for outcome in check(host):
                yield dataclasses.replace(outcome, check=name)
        except (OrdsmedError, OSError, RuntimeError, ValueError) as failure:
            reason = str(failure).splitlines()[0][:300] if str(failure) else type(failure).__name__
            yield Outcome("error", reason, "find out why, then run this again", check=name)


class Examination:
    def __init__(self, host: Host, show: Callable[[Outcome], None], *, first: bool = True) -> None:
        self.host, self.show, self.first = host, show, first
        self.outcomes: list[Outcome] = []

    def add(self, outcomes: Iterable[Outcome], check: str = "") -> None:
        for outcome in outcomes:
            outcome = dataclasses.replace(outcome, check=check) if check else outcome
            self.outcomes.append(outcome)
            if self.first:
                self.show(outcome)

    @property
    def report(self) -> dict[str, Any]:
        state, host = worst(self.outcomes), self.host
        return {"state": state, "host": host.name, "ranks": host.world, "checks": plain(self.outcomes)}


def doctor(
    *,
    site: str = "",
    device: str = "auto",
    account: str = "",
    patience: float = PATIENCE,
    show: Callable[[Outcome], None],
    ending: Callable[[dict[str, Any]], None],
) -> State:
    """Examine this machine, or all machines of a job together. The first rank passes the report to `ending`."""
    location = Destination.find(site) if site else None
    try:
        ranks = ranking.prepare(device, flags=True)
    except ImportError:  # without torch, only the checks that do not need it run
        examination = Examination(this_host(location, account=account), show)
        examination.add(examine(examination.host))
    else:
        host = this_host(location, account=account, device=ranks.device.type, world=ranks.world)
        examination = Examination(host, show, first=ranks.first)
        try:
            ranks = ranking.rendezvous(ranks, patience, least=patience)
        except OrdsmedError as failure:
            if not ranks.first:
                raise
            examination.add([Outcome("error", str(failure))], RENDEZVOUS)
            examination.add(examine(host, tuple(check for check in CHECKS if check is not network.port)))
            ending(examination.report)
            return "error"
        if ranks.world == 1:
            examination.add(examine(host))
        else:
            try:
                _examine_together(examination, ranks, patience, ending)
            except OrdsmedError as failure:
                if not ranks.first:
                    raise
                examination.add([Outcome("error", str(failure))], SUMMING)
            finally:
                ranking.disconnect(ranks)
    if examination.first:
        ending(examination.report)
    return worst(examination.outcomes)


def _examine_together(
    examination: Examination, ranks: Ranks, patience: float, ending: Callable[[dict[str, Any]], None]
) -> None:
    from ordsmed.train.watch import Watch

    def end(failure: OrdsmedError) -> None:
        if examination.first:
            examination.add([Outcome("error", str(failure))], SUMMING)
            ending(examination.report)

    with Watch(ranks, patience, stages=STAGES, remedy=HANG_REMEDY, ending=end) as watch:
        try:
            watch.at(1, LOOKING)
            examination.add(examine(examination.host))
            watch.at(2, COMPARING)
            _compare(examination, ranks, 2 * patience)  # longer than the watch, which reports first
            watch.at(3, SUMMING)
            ranking.connect(ranks, patience)
            sums = together.sums(
                ranks.world, ranks.rank, str(ranks.device), add_over_all, at=lambda n: watch.at(n + 2, SUMMING)
            )
            rows = together.gather(ranks, "sums", plain(sums), 2 * patience)
        except RuntimeError as failure:
            raise watch.explain(failure) or failure from None
        every = [Outcome(**outcome) for rank in rows for outcome in rank]
        examination.add([outcome for outcome in every if outcome.state != "ok"][:MAX_NAMED] or every[:1], SUMMING)
        state = ranking.on_rank0(ranks, lambda: worst(examination.outcomes))
        if state != worst(examination.outcomes):  # end all ranks with the state that the first rank found
            examination.outcomes.append(Outcome(state, "see the first rank's report"))


def _compare(examination: Examination, ranks: Ranks, patience: float) -> None:
    rows = together.gather(ranks, "outcomes", [examination.host.name, plain(examination.outcomes)], patience)
    every = together.members(ranks, examination.host, patience)
    shared = list(together.disk(ranks, examination.host, patience))
    if ranks.first:
        examination.add(complaints_of_others(rows))
        examination.add(shared, "shared disk")
        examination.add(together.compare_facts(every), "alike")
        examination.add(together.clocks(every), "clocks")
        examination.add(together.cores(every), "cores")
        figures = [
            {key: value for outcome in outcomes for key, value in outcome["figures"].items()} for _, outcomes in rows
        ]
        examination.add(together.slower(figures, [member.name for member in every]), "slower")


def complaints_of_others(rows: list[tuple[str, list[dict[str, Any]]]]) -> Iterator[Outcome]:
    """Yield the complaints of other ranks that the first rank does not have, each with its machines."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    keys = ("state", "text", "remedy")
    known = [[outcome[key] for key in ("check", *keys)] for outcome in rows[0][1]]
    for node, outcomes in rows[1:]:
        for outcome in outcomes:
            complaint = [outcome[key] for key in ("check", *keys)]
            if outcome["state"] != "ok" and complaint not in known:
                nodes.setdefault(tuple(complaint), []).append(node)
    for (check, state, text, remedy), on in nodes.items():
        names = list(dict.fromkeys(on))
        node = ", ".join(names[:MAX_NAMED]) + (" ..." if len(names) > MAX_NAMED else "")
        yield Outcome(cast(State, state), text, remedy, check=check, node=node)


def add_over_all(numbers: torch.Tensor) -> None:
    import torch.distributed

    torch.distributed.all_reduce(numbers)
