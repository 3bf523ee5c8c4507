"""The list: its golden numbers, what is red when one is another, and how the report of a machine comes about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import set_time
from ordsmed.base.errors import RunError
from ordsmed.cli import main
from ordsmed.machines.doctor.outcome import Outcome, error, ok
from ordsmed.machines.suite import items, validate
from ordsmed.machines.suite.items import Workplace, compare_with_golden, run_items
from ordsmed.train.pretrain import golden


def states(item: items.Item, folder: Path) -> dict[str, str]:
    return {case: outcome.state for case, outcome in item(Workplace(folder))}


def test_tokenizers_and_rows_are_the_same_here(tmp_path: Path) -> None:
    cases = states(items.tokenizers, tmp_path) | states(items.masking, tmp_path)
    assert set(cases) == {*golden.read_table("tokenizers"), *golden.read_table("rows")}
    assert {state for case, state in cases.items() if not case.startswith("sentencepiece")} == {"ok"}


def test_another_id_or_row_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = golden.read_table("tokenizers")
    wrong["words"]["ids"][1][0] += 1
    monkeypatch.setattr(golden, "read_table", lambda name: wrong)
    assert {case for case, state in states(items.tokenizers, tmp_path).items() if state == "error"} == {"words"}
    monkeypatch.undo()
    rows = golden.read_table("rows")
    rows["mlm"]["digest"] = "00000000"
    monkeypatch.setattr(golden, "read_table", lambda name: rows)
    assert [case for case, state in states(items.masking, tmp_path).items() if state == "error"] == ["mlm"]


def test_losses_within_their_tolerance() -> None:
    assert compare_with_golden([5.0, 4.0], [5.0, 4.0001, 3.0], 1e-4).state == "ok"
    assert [compare_with_golden([5.0], [wanted], 0.0).state for wanted in (5.0, 4.0)] == ["ok", "error"]
    assert [compare_with_golden([5.0], [4.0], within).state for within in (0.25, 0.24)] == ["ok", "error"]
    one = compare_with_golden([5.0, 4.01], [5.0, 4.0, 3.0], 1e-4)
    assert (one.state, one.text) == ("error", "loss 2 is 4.010000, wanted 4.000000 within 0.0001")
    assert compare_with_golden([5.0, float("nan")], [5.0, 4.0], 1e-2).state == "error"


@pytest.mark.parametrize(("quick", "count"), [(True, 2), (False, 10)])
def test_families_take_as_many_steps_as_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool, count: int
) -> None:
    """In every precision, each with its tolerance; how fast they were is told."""
    asked: list[tuple[str, int, str]] = []

    def losses(name: str, folder: Path, steps: int, *, device: str, precision: str) -> tuple[list[float], float]:
        asked.append((name, steps, precision))
        return [loss * (1.001 if precision == "bf16" else 1.0) for loss in known[name]["losses"][:steps]], 4.0

    known = golden.read_table("losses")
    monkeypatch.setattr(golden, "losses", losses)
    work = Workplace(tmp_path, precisions=("fp32", "bf16"), quick=quick)
    found = dict(items.steps(work))
    assert asked == [(name, count, precision) for precision in work.precisions for name in known]
    assert {outcome.state for outcome in found.values()} == {"ok"}
    assert {outcome.figures["steps/s"] for outcome in found.values()} == {count / 4}


def test_a_course_that_differs_is_red() -> None:
    whole = {1: 5.0, 2: 4.0}
    assert items._compare_losses(whole, dict(whole), 0.0).text == "2 losses are the same to the last bit"
    assert items._compare_losses(whole, {1: 5.0, 2: 4.0000001}, 0.0).state == "error"
    assert items._compare_losses(whole, {1: 5.0, 2: 4.0000001}, 1e-5).state == "ok"
    assert items._compare_losses(whole, {1: 5.0}, 1e-5).text == "1 of 2 steps have a loss"
    assert items._compare_losses({}, {}, 1e-5).state == "error"


def test_extras_are_those_that_users_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By group, what lacks and how to get it; what only developers need is none."""
    needs = [
        "torch>=2",
        "pytest>=8; extra == 'dev'",
        "nothere>=1; extra == 'web'",
        "numpy>=1; extra == 'web'",
        'numpy; extra == "plain"',
    ]
    monkeypatch.setattr(items.importlib.metadata, "requires", lambda name: needs)
    found = dict(items.extras(Workplace(tmp_path)))
    assert {name: outcome.state for name, outcome in found.items()} == {"web": "absent", "plain": "ok"}
    assert (found["web"].text, found["web"].remedy) == ("without nothere", "pip install 'ordsmed[web]'")
    assert found["plain"].text.startswith("numpy ")


def test_each_case_has_its_own_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    set_time(monkeypatch, items, perf_counter=lambda: now[0])

    def slow(work: Workplace) -> Iterator[tuple[str, Outcome]]:
        for seconds in (3.0, 1.0, 2.0):
            now[0] += seconds
            yield f"{seconds:g}", ok("fine")

    assert [row[3] for row in run_items(Workplace(tmp_path / "x"), (slow,))] == [3.0, 1.0, 2.0]


def test_a_command_of_the_list_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE", "KEPT"):
        monkeypatch.setenv(name, "1")
    own = items.environment()
    assert {"RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE"} & set(own) == set()
    assert own["KEPT"] == "1"


def green(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    work.folder.mkdir()
    yield "one", ok("fine", **{"steps/s": 3.0})


def broken(work: Workplace) -> Iterator[tuple[str, Outcome]]:
    yield "first", error("wrong", "look")
    raise RunError("here", "is broken")


def test_an_item_that_fails_itself_is_red_and_the_others_are_asked(tmp_path: Path) -> None:
    rows = [(item, case, one.state) for item, case, one, _ in run_items(Workplace(tmp_path / "list"), (broken, green))]
    assert rows == [("broken", "first", "error"), ("broken", "itself", "error"), ("green", "one", "ok")]
    assert not (tmp_path / "list").exists()


@pytest.mark.parametrize(
    ("chosen", "status", "last"),
    [((green,), 0, "1 ok, 0 wrong, 1 absent"), ((broken, green), 1, "1 ok, 2 wrong, 1 absent")],
)
def test_the_command_writes_its_report(
    chosen: Any,
    status: int,
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(validate.validate.__kwdefaults__, "chosen", chosen)  # type: ignore[index]
    with pytest.raises(SystemExit) as end:
        main(["validate", "--device", "cpu", "--out", str(tmp_path)])
    assert end.value.code == status
    lines = capsys.readouterr().out.splitlines()
    assert "ok      green        one                       fine, 3 steps/s" in lines
    assert lines[-2] == last
    kept = json.loads((tmp_path / "report.json").read_text())
    assert [one["state"] for one in kept["items"]][-2:] == ["ok", "absent"]
    assert kept["facts"]["ranks"] == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junit.xml", "report.json", "report.md"]


def test_what_is_red_on_another_machine_is_told() -> None:
    rows = [
        validate.row_of("steps", "a", ok("fine"), 0.0, "n1"),
        validate.row_of("steps", "a", error("x", "y"), 0, "n2"),
    ]
    assert list(validate._merged([rows[:1], rows, []])) == rows[1:]


@pytest.mark.long
def test_a_family_s_losses_are_of_one_process_whoever_was_started_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    losses, _ = golden.losses("tiny/gpt2", tmp_path, 2)
    assert losses == pytest.approx(golden.read_table("losses")["tiny/gpt2"]["losses"][:2], rel=1e-4)


@pytest.mark.long
def test_runs_are_killed_and_go_on(tmp_path: Path) -> None:
    """The real commands: killed, by two processes, in another layout."""
    (tmp_path / "list").mkdir()
    assert set(states(items.runs, tmp_path / "list").values()) <= {"ok", "absent"}
