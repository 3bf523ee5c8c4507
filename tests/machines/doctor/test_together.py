"""Several machines looked at together: sums that come out wrong, and who has another version, clock or speed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.processes import run_at_once, run_born
from ordsmed.base.errors import Lost, RunError
from ordsmed.base.identity import identity
from ordsmed.machines.doctor import together
from ordsmed.machines.doctor.doctor import complaints_of_others
from ordsmed.machines.doctor.host import this_host
from ordsmed.machines.doctor.outcome import Outcome, lines, worst
from ordsmed.machines.doctor.together import (
    Member,
    clocks,
    compare_facts,
    cores,
    difference,
    expected,
    share,
    slower,
    sums,
)

ALIKE = {"torch": "2.11.0", "NCCL_PROTO": "Simple"}


def all_reduce(world: int, spoil: Callable[[torch.Tensor], None] = lambda numbers: None) -> Callable[..., None]:
    """A sum as all ranks would have it, each rank's numbers made anew; added in their own type, one after another."""

    def add(numbers: torch.Tensor) -> None:
        period = together.period_of(str(numbers.dtype).removeprefix("torch."), world)
        total = torch.zeros_like(numbers)
        for rank in range(world):
            total += share(len(numbers), rank, "cpu", period).to(numbers.dtype)
        numbers.copy_(total)
        spoil(numbers)

    return add


@pytest.mark.parametrize("world", [1, 2, 3, 8, 85, 200, 512])
def test_sums_that_are_right(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (1, 2, 7, 1_000, 1_027) if world < 100 else (1_027,)
    monkeypatch.setattr(together, "SIZES", sizes)
    one = list(sums(world, 0, "cpu", all_reduce(world)))
    assert [each.state for each in one] == ["ok"]
    assert one[0].text.startswith(f"{5 * len(sizes)} sums over {world} ranks are exact"), one[0].text


def test_every_rank_reckons_the_sums_for_itself() -> None:
    for world, period in ((1, 3), (2, 3), (3, 3), (4, 3), (7, 3), (7, 4), (40, 11), (3, 50)):
        wanted = torch.stack([share(50, rank, "cpu", period) for rank in range(world)]).sum(0)
        assert expected(50, world, "cpu", period).equal(wanted)


@pytest.mark.parametrize("world", [255, 256, 512, 2_046, 2_047, 100_000])
def test_no_sum_is_more_than_its_type_holds(world: int) -> None:
    """And none is nothing but zeros, by which nothing would be checked."""
    for kind, most in together.EXACT.items():
        period = together.period_of(kind, world)
        sums_of_places = expected(period, world, "cpu", period)
        assert sums_of_places.min() > 0
        assert sums_of_places.max() <= most


def corrupt(numbers: torch.Tensor) -> None:
    """As between nodes that LL128 spoils: large ones alone, a few numbers of them."""
    if len(numbers) > 1_000 and numbers.dtype in (torch.bfloat16, torch.int64):
        numbers[700:708] += 1


def test_a_sum_that_is_wrong_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "SIZES", (1, 1_000, 1_027))
    (one,) = sums(2, 1, "cpu", all_reduce(2, corrupt))
    assert one.state == "error"
    assert "rank 1: 1,027 numbers of bfloat16 summed over 2 ranks: 8 are wrong, number 700 is" in one.text
    assert one.text.endswith("; and 1 of 15 sums more")  # it goes on, as the other ranks do
    assert "NCCL_PROTO=^LL128" in one.remedy


def test_what_is_no_number_is_wrong() -> None:
    numbers = torch.tensor([1.0, float("nan"), 2.0])
    assert difference(numbers, torch.tensor([1, 1, 2])) == "1 are wrong, number 1 is nan and not 1"
    assert (
        difference(torch.tensor([1.0, 1.0, 2.5]), torch.tensor([1, 1, 2])) == "1 are wrong, number 2 is 2.5 and not 2"
    )
    assert difference(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1, 1, 2])) == ""


def test_each_sum_says_that_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "SIZES", (1, 2, 3, 4, 5))
    steps: list[int] = []
    list(sums(2, 0, "cpu", all_reduce(2), at=steps.append))
    assert steps == list(range(1, 26))


def of(*facts: dict[str, str], times: tuple[float, ...] = ()) -> list[Member]:
    return [Member(rank, f"n{rank + 1}", one, times[rank] if times else 0.0) for rank, one in enumerate(facts)]


def test_the_machine_that_differs_is_named() -> None:
    every = of(ALIKE, {**ALIKE, "torch": "2.9.1"}, ALIKE)
    (one,) = compare_facts(every)
    assert (one.state, one.text) == ("error", "torch: n2 (rank 1) has 2.9.1, n1 (rank 0) has 2.11.0")
    first = {**ALIKE, "torch": "2.9.1"}
    assert [each.text for each in compare_facts(of(first, ALIKE, ALIKE))] == [
        "torch: n1 (rank 0) has 2.9.1, n2 (rank 1) has 2.11.0"
    ]
    (one,) = compare_facts(of(ALIKE, {"torch": "2.11.0"}))
    assert one.text == "NCCL_PROTO: n2 (rank 1) has none, n1 (rank 0) has Simple"
    assert [each.text for each in compare_facts(of(ALIKE, ALIKE))] == ["2 ranks on 2 nodes have the same"]


def test_other_code_of_the_same_version_is_named() -> None:
    here = together.facts(this_host(None))
    code = identity()
    assert (here["ordsmed"], here["code of ordsmed"]) == (str(code), code.digest)
    (one,) = compare_facts(of(here, here, {**here, "code of ordsmed": "9f5d08048661"}))
    assert one.state == "error"
    assert one.text == f"code of ordsmed: n3 (rank 2) has 9f5d08048661, n1 (rank 0) has {code.digest}"


def test_many_that_differ_are_counted() -> None:
    (one,) = compare_facts(of(*[ALIKE] * 8, *[{**ALIKE, "torch": str(number)} for number in range(7)]))
    assert "n12 (rank 11) has 3 and 3 others" in one.text


@pytest.mark.parametrize(("times", "state"), [((5, 5.2, 5.1), "ok"), ((5, 3605, 5), "error"), ((5, 5, 25), "warning")])
def test_the_clock_that_is_off_is_named(times: tuple[float, ...], state: str) -> None:
    (one,) = clocks(of({}, {}, {}, times=times))
    assert one.state == state
    assert state == "ok" or f"on n{2 + times.index(max(times)) - 1} (rank" in one.text


def test_the_slow_one_is_named() -> None:
    figures = [{"memory GB/s": 100.0, "disk MB/s": 1.0}, {"memory GB/s": 20.0, "disk MB/s": 900.0}]
    figures.append({"memory GB/s": 99.0})
    (one,) = slower(figures, ["n1", "n2", "n3"])
    assert one.text == "memory GB/s: n2 20, the others about 99"


def test_what_only_others_complain_of() -> None:
    full = {"check": "room", "state": "error", "text": "full", "remedy": "free some"}
    same = {"check": "disk", "state": "warning", "text": "slow", "remedy": "wait"}
    fine = {"check": "gpus", "state": "ok", "text": "many", "remedy": ""}
    one = list(
        complaints_of_others([["n1", [same, fine]], *(["n2", [full, same, fine]] for _ in range(2)), ["n3", [full]]])
    )
    assert one == [Outcome("error", "full", "free some", check="room", node="n2, n3")]
    assert list(lines(one)) == ["  error  room  n2, n3: full; free some"]
    assert worst(one) == "error"


def test_a_disk_that_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a")
    assert together._check_locked_file(tmp_path / "word", "b") == "reads other contents"
    assert together._check_locked_file(tmp_path / "word", "a") == "gets a lock that rank 0 holds"
    assert together._check_locked_file(tmp_path / "nothing", "a") == "No such file or directory"
    (one,) = together._disk_outcome(tmp_path, ["", "reads other contents", ""])
    assert one.state == "error"
    assert "rank 1 reads other contents; start from a folder" in one.words


@pytest.mark.long
def test_two_processes(tmp_path: Path, nursery: Any) -> None:
    done = run_born(nursery, tmp_path, "doctor", "--devices", "2", "--json", "--patience", "400")
    report = json.loads(done.stdout)
    checks = {one["check"]: one for one in report["checks"]}
    assert (report["ranks"], checks["alike"]["text"]) == (2, "2 ranks on 1 node have the same")
    assert checks["sums"]["text"].startswith("25 sums over 2 ranks are exact")
    assert checks["shared disk"]["state"] == "ok"
    assert checks["clocks"]["figures"]  # of how busy the machine is the test knows nothing
    assert done.returncode == (report["state"] == "error")


@pytest.mark.long
def test_who_never_comes_is_named_within_the_patience(tmp_path: Path, nursery: Any) -> None:
    """By the first rank, in its report; another that came ends without a word of its own."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        env = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(holder.getsockname()[1])}
        born = [
            run_at_once(nursery, tmp_path / str(rank), {**env, "RANK": str(rank)}, "doctor", "--json", "--patience", 9)
            for rank in (0, 2)
        ]
        status = [process.wait() for process in born]
    report = json.loads(born[0].said)
    (missing,) = [one for one in report["checks"] if one["check"] == "ranks"]
    assert missing["state"] == "error"
    assert "rank 1 did not connect within 9 s; wanted 3 processes; check their machines" in missing["text"]
    assert {"python", "room", "names"} <= {one["check"] for one in report["checks"]}
    assert (status, born[1].said) == ([1, Lost.status], "")


def test_ranks_that_are_bound_to_the_same_cores() -> None:
    def bound(*cores: tuple[int, ...]) -> list[Member]:
        return [Member(rank, f"n{rank // 2 + 1}", {}, 0.0, one, 4) for rank, one in enumerate(cores)]

    first, second = tuple(range(4)), tuple(range(4, 8))
    assert [one.state for one in cores(bound(first, second, second, first))] == ["ok"]
    assert [one.state for one in cores(bound((*first, *second), (*first, *second)))] == ["ok"]
    (one,) = cores(bound(first, second, first, first))
    assert one.state == "warning"
    assert one.words.startswith(
        "n2: 2 ranks share 4 cores, but should have 8; bind each rank to separate cores (`srun --"
    )


def test_the_command_ends_with_1_on_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from ordsmed.cli import main
    from ordsmed.machines.doctor import doctor as room

    def bad(host: Any) -> list[Outcome]:
        raise RunError("here", "is wrong")

    monkeypatch.setattr(room, "CHECKS", (bad,))
    monkeypatch.setattr(room.examine, "__defaults__", ((bad,),))
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--device", "cpu"])
    assert end.value.code == 1
    assert capsys.readouterr().out.splitlines() == [
        "error    bad           here: is wrong; find out why, then run this again",
        "0 ok, 0 warnings, 1 errors",
    ]
    monkeypatch.setattr(room.examine, "__defaults__", ((),))
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--device", "cpu", "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["state"] == "ok"
