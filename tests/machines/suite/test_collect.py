"""Reports of many systems in one table: what is read, what changed, what differs, and how it is written."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from machines.suite.test_report import row
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.cli import main
from ordsmed.machines.doctor.host import CODE_FACT
from ordsmed.machines.suite import collect, collect_page, report

NOW = datetime(2026, 11, 26, 12)


def written(
    folder: Path, rows: list[dict[str, Any]], *, host: str = "n1", site: str = "", month: int = 1, **facts: str
) -> Path:
    """A report of the first of a month."""
    facts = {
        "torch": "2.11.0",
        "ordsmed": "0.2.0",
        CODE_FACT: "0123456789ab",
        "device": "cpu",
        "ranks": "1",
        "cores": "2",
        **facts,
    }
    content = {
        "host": host,
        "site": site,
        "made": f"2026-{month:02}-01 08:00:00",
        "quick": False,
        "facts": facts,
        "items": rows,
    }
    report.write(folder, content)
    return folder


def speeds(folder: Path, numbers: list[float], **how: Any) -> Path:
    """A report a month in which one speed is such a number, the other always the same."""
    for month, number in enumerate(numbers, 1):
        rows = [row("a", **{"steps/s": number}), row("b", **{"steps/s": 5.0})]
        written(folder / f"{month:02}", rows, month=month, **how)
    return folder


def changed(folder: Path, share: float = 0.2) -> list[tuple[str, str, str]]:
    changes = collect.changes(collect.read([str(folder)], NOW), share)
    return [(change.kind, change.now[:7], change.text) for change in changes]


def test_folders_are_searched_and_files_are_taken(tmp_path: Path) -> None:
    written(tmp_path / "x/deep/down", [row("a")])
    named = written(tmp_path / "y", [row("a")], month=2) / "report.json"
    named = named.rename(tmp_path / "saga-february.json")
    collection = collect.read([str(tmp_path / "x"), str(named), str(tmp_path / "x/deep")], NOW)
    assert [str(one.when)[:7] for one in collection.systems["n1"]] == ["2026-01", "2026-02"]
    assert collection.left_out == ()


def test_systems_are_sites_or_machines(tmp_path: Path) -> None:
    written(tmp_path / "1", [row("a")], host="c1-1", site="saga:a100")
    written(tmp_path / "2", [row("a")], host="c1-7", site="saga:a100", month=2)
    written(tmp_path / "3", [row("a")], host="c1-7", month=3)
    written(tmp_path / "4", [row("a")], host="c1-7", site="/proj/here/mine.toml:gpu", month=4)
    systems = collect.read([str(tmp_path)], NOW).systems
    assert {name: len(history) for name, history in systems.items()} == {"saga:a100": 2, "c1-7": 1, "mine:gpu": 1}


def test_two_systems_of_one_name_are_told_apart_by_hardware(tmp_path: Path) -> None:
    """One that does not say what it is belongs to the name alone, or to the only hardware that has it."""
    written(tmp_path / "1", [row("a")], processor="EPYC")
    written(tmp_path / "2", [row("a")], month=2)
    assert [*collect.read([str(tmp_path)], NOW).systems] == ["n1"]
    written(tmp_path / "3", [row("a")], month=3, processor="EPYC", GPUs="A100")
    collection = collect.read([str(tmp_path)], NOW)
    assert [*collection.systems] == ["n1", "n1 (A100)", "n1 (EPYC)"]
    assert collection.notes == ("n1: 2 systems have this name; they are distinguished by hardware: EPYC, A100",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"runs": []}', "is not a report: Object missing required field `items`"),
        ('{"items": [{"item": "a"}]}', "is not a report: Object missing required field `case`"),
        ("[]", "is not a JSON table"),
        ('{"host": "n1", "items": [', "not JSON"),
        ("", "not JSON"),
        ('{"host": "n1", "made": "2026-01-01 08:00:00", "items": []}', "has no cases"),
    ],
)
def test_what_is_no_report_is_left_out_and_told(tmp_path: Path, text: str, reason: str) -> None:
    written(tmp_path / "good", [row("a")])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/report.json").write_text(text)
    (left,) = collect.read([str(tmp_path)], NOW).left_out
    assert left.path.endswith("bad/report.json")
    assert left.reason.startswith(reason)
    with pytest.raises(DataError, match="1 file was found, but none is usable"):
        collect.read([str(tmp_path / "bad")], NOW)


def test_dates_that_cannot_be(tmp_path: Path) -> None:
    """A date that is still to come, by more than zones differ; none at all; the machine's name missing."""
    soon, late = (str(NOW + timedelta(hours=hours)) for hours in (25, 27))
    for number, (host, made) in enumerate([("n1", soon), ("n1", late), ("n1", "yesterday"), ("", soon)]):
        content = {"host": host, "made": made, "items": [row("a")]}
        report.write(tmp_path / str(number), {**content, "facts": {}})
    collection = collect.read([str(tmp_path)], NOW)
    assert [str(one.when) for one in collection.systems["n1"]] == [soon]
    assert [left.reason for left in collection.left_out] == [
        f"is from {late}, which is in the future: the clock of n1 was wrong",
        "has no valid date: 'yesterday'",
        "has no name of a machine (`host`)",
    ]
    assert collection.notes == ("all reports have no digest of the code, as in older versions; they are used as well",)


def test_copies_count_once(tmp_path: Path) -> None:
    written(tmp_path / "1", [row("a")])
    written(tmp_path / "2", [row("a")])
    written(tmp_path / "3", [row("b")])
    collection = collect.read([str(tmp_path)], NOW)
    assert len(collection.systems["n1"]) == 2
    assert [left.reason for left in collection.left_out] == [f"is a copy of {tmp_path}/1/report.json"]


def test_a_system_that_sends_no_reports_any_more_is_noted(tmp_path: Path) -> None:
    """By how often it did."""
    speeds(tmp_path, [1.0, 1.0, 1.0, 1.0])
    silent = lambda now: [note for note in collect.read([str(tmp_path)], now).notes if "no report" in note]  # noqa: E731
    assert silent(datetime(2026, 6, 1)) == []
    assert silent(datetime(2026, 6, 10)) == ["n1: no report for 70 days; usually there is one every 31"]


def test_nothing_to_collect(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no report.json in .*; wanted folders of `ordsmed validate`"):
        collect.read([str(tmp_path)])
    with pytest.raises(RecipeError, match="no such file or folder"):
        collect.read([str(tmp_path / "nowhere")])


def test_cases_that_become_worse_and_better(tmp_path: Path) -> None:
    written(tmp_path / "1", [row("a"), row("b"), row("c", "error", "loss 2 is 7"), row("d", "absent")])
    written(tmp_path / "2", [row("a", "error", "loss 1 is 3"), row("c"), row("d", "error", "x")], month=2, torch="2.12")
    assert changed(tmp_path) == [
        ("worse", "2026-02", "was ok, is error: loss 1 is 3"),
        ("worse", "2026-02", "was ok, is missing"),
        ("better", "2026-02", "was error, is ok"),
        ("different", "2026-02", "torch: 2.11.0 before, 2.12 now"),
    ]


def test_reports_of_another_shape_are_not_compared(tmp_path: Path) -> None:
    """Of other ranks cases differ; of other cores, or a list cut short, speeds do."""
    written(tmp_path / "1", [row("a", **{"steps/s": 10.0}), row("2 ranks")])
    written(tmp_path / "2", [row("a", **{"steps/s": 1.0})], month=2, ranks="2")
    assert changed(tmp_path) == []
    written(tmp_path / "3", [row("a", **{"steps/s": 1.0}), row("2 ranks")], month=3, cores="1")
    assert changed(tmp_path) == [("different", "2026-03", "cores: 2 before, 1 now")]
    written(tmp_path / "4", [row("a", **{"steps/s": 7.9}), row("2 ranks")], month=4)
    assert changed(tmp_path)[1:] == [
        ("slower", "2026-04", "10 steps/s before, 7.9 now, 21% slower"),
        ("different", "2026-04", "cores: 1 before, 2 now"),
    ]


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ([10, 8.1], []),
        ([10, 7.9], ["10 steps/s before, 7.9 now, 21% slower"]),
        ([10, 12.4], []),
        ([10, 12.6], ["10 steps/s before, 12.6 now, 26% faster"]),
        ([10, 10, 10, 5, 8.2], ["10 steps/s before (median of 3), 5 now, 50% slower"]),  # one outlier is no usual speed
        ([10, 10, 5, 5, 5.1, 5], ["10 steps/s before (median of 2), 5 now, 50% slower"]),  # said once, then it is usual
        (
            [10, 10, 5, 5.1],
            [
                "10 steps/s before (median of 2), 5 now, 50% slower",
                "10 steps/s before (median of 3), 5.1 now, 49% slower",
            ],
        ),  # and of the newest
        ([10, 10, 10, 10, 10, 5, 5, 5, 5], ["10 steps/s before (median of 5), 5 now, 50% slower"]),
        ([10, 9.6, 10.4, 9.2, 10.8, 8.4], []),  # varies so much by itself
        ([10, 9.6, 10.4, 9.2, 10.8, 8.2], ["10 steps/s before (median of 5), 8.2 now, 18% slower"]),
        ([10, 9.3, 8.6, 8, 7.4, 6.8, 6.2, 5.7], ["8.6 steps/s at first, 6.2 in the last 3, 28% slower, gradually"]),
        ([10, 9.3, 8.6, 8, 7.4, 6.8, 6.2, 6.9], []),
        ([0, 0, 5], []),
        ([10, float("nan"), 9], []),
    ],
)
def test_speeds_are_compared_with_the_usual_ones(tmp_path: Path, numbers: list[float], texts: list[str]) -> None:
    assert [text for _, _, text in changed(speeds(tmp_path, numbers), 0.1 if 9.6 in numbers else 0.2)] == texts


def test_how_far_a_figure_varies_by_itself() -> None:
    assert collect.tolerance([10, 10, 10], 0.2) == 0.2
    assert collect.tolerance([10, 10, 10, 10], 0.2) == 0.2
    assert collect.tolerance([8, 9, 11, 12], 0.2) == pytest.approx(3 * 1.4826 * 1.5 / 10)


def fleet(folder: Path) -> Path:
    """Two systems, one of which became slower and then lost a case; a file that is no report."""
    speeds(folder / "a", [10, 7], site="saga:a100")
    speeds(folder / "b", [3, 3], host="laptop", torch="2.12.0")
    (folder / "c").mkdir()
    (folder / "c/report.json").write_text("{}")
    return folder


def test_all_of_it_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["validate", "--collect", str(fleet(tmp_path)), "--json"])
    assert end.value.code == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["reports"], facts["between"]["systems"]) == (4, ["laptop", "saga:a100"])
    assert [
        (one["system"], one["version"], one["first"], one["last"], one["reports"], one["ok"])
        for one in facts["systems"]
    ] == [
        ("laptop", "0.2.0", "2026-01-01 08:00:00", "2026-02-01 08:00:00", 2, 2),
        ("saga:a100", "0.2.0", "2026-01-01 08:00:00", "2026-02-01 08:00:00", 2, 2),
    ]
    (change,) = facts["changes"]
    assert (change["system"], change["kind"], change["newest"]) == ("saga:a100", "slower", True)
    assert facts["between"]["facts"] == [{"fact": "torch", "values": ["2.12.0", "2.11.0"]}]
    assert facts["between"]["figures"][0] == {"item": "steps", "case": "a", "unit": "steps/s", "values": [3.0, 7.0]}
    assert [left["reason"] for left in facts["left_out"]] == ["is not a report: Object missing required field `items`"]
    with pytest.raises(SystemExit) as end:
        main(["validate", "--collect", str(tmp_path), "--json", "--slower", "50"])
    assert (end.value.code, json.loads(capsys.readouterr().out)["changes"]) == (0, [])


def test_all_of_it_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(tmp_path)
    with pytest.raises(SystemExit):
        main(["validate", "--collect", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "4 reports of 2 systems, 2026-01-01 to 2026-02-01; 1 file left out.",
        "1 worse or slower in the newest reports on saga:a100.",
    ]
    assert lines[-3].startswith("slower     saga:a100, 2026-01-01 to 2026-02-01: steps, a: 10 steps/s before, 7 now")
    page = tmp_path / "out/systems.html"
    with pytest.raises(SystemExit):
        main(["validate", "--collect", str(tmp_path), "--markdown", "--page", str(page)])
    text = capsys.readouterr().out
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert titles == [
        "# One table over systems",
        "## Systems, versions, dates",
        "## What changed",
        "## Speeds of systems",
        "## Facts that differ between systems",
        "## Left out",
    ]
    html = page.read_text()
    assert all(title.lstrip("# ") in html for title in titles)
    assert 'data-from="/between/figures/0/values/1">7</td>' in html


def test_what_is_over_is_no_longer_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["validate", "--collect", str(speeds(tmp_path, [10, 7, 10]))])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Nothing is worse or slower in the newest reports."
    assert [line.split()[:2] for line in lines if line.startswith("  n1")] == [["n1", "0.2.0"]], (
        "and the past is not repeated"
    )
    assert any("wrong" in line.split() for line in lines)


def test_a_page_from_names_that_are_markup(tmp_path: Path) -> None:
    written(tmp_path / "1", [row("<b>a</b>", **{"steps/s": float("nan")})], host="</script><i>|", torch="<img>")
    facts = collect.facts([str(tmp_path)])
    html = collect_page.html_page(facts)
    assert html.count("</script>") == 2
    assert "<img>" not in html
    assert "<i>" not in collect_page.markdown(facts)


def test_a_case_that_ends_otherwise_elsewhere(tmp_path: Path) -> None:
    written(tmp_path / "1", [row("a"), row("b"), row("c")])
    written(tmp_path / "2", [row("a"), row("b", "absent")], host="n2")
    facts = collect.facts([str(tmp_path)])
    assert facts["between"]["cases"] == [{"item": "steps", "case": "b", "states": ["ok", "absent"]}]
    (table,) = [table for table in collect_page.tables(facts) if table.key == "cases"]
    assert [cell.text for cell in table.rows[0]] == ["steps", "b", "ok", "absent"]


def test_many_reports_are_shown_in_part(tmp_path: Path) -> None:
    rows = [row(str(number)) for number in range(300)]
    written(tmp_path / "1", rows)
    written(tmp_path / "2", rows[:10], month=2)
    facts = collect.facts([str(tmp_path)])
    assert len(facts["changes"]) == 290
    (table,) = [table for table in collect_page.tables(facts) if table.key == "changes"]
    assert len(table.rows) == 200
    assert "200 of 290, the JSON has all" in table.about
    assert "and 270 more, see --markdown or --json" in [*collect_page.lines(facts)]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--collect", "x", "--compare", "x", "y"], "--collect and --compare"),
        (["--collect", "x", "--quick"], "--quick: found with --collect, which runs nothing"),
        (["--markdown"], "found without --collect"),
        (["--page", "x.html"], "found without --collect"),
        (["--collect", "x", "--markdown", "--json"], "--markdown and --json"),
        (["--site", "saga", "--site", "lumi"], "found 2 sites, of one machine"),
    ],
)
def test_flags_that_do_not_go_together(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["validate", *words])
    assert end.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_folders_that_may_not_be_read_are_passed_by(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    written(tmp_path / "1", [row("a")])
    closed = written(tmp_path / "2", [row("a")], month=2)
    (closed / "report.json").chmod(0)
    (left,) = collect.read([str(tmp_path)], NOW).left_out
    assert left.reason.startswith("cannot be read")
