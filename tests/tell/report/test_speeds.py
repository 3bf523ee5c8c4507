"""Speeds on a page: tables that benches left and all measurements, each number the one in its file."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.damage import changed, damages, written
from kit.measurements import measurement
from kit.planted_runs import falling, plant
from ordsmed import cli
from ordsmed.base import files, measurements
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.measurements import Measurement
from ordsmed.measure.bench import table
from ordsmed.measure.bench.table import Axes, CellResult
from ordsmed.tell.report import content, live, page, report, speeds, values
from ordsmed.tell.report.markdown import markdown


def rate(sequences: float, **changes: Any) -> Measurement:
    batch = changes.get("batch", 16)
    step = batch / sequences
    return measurement(
        sequences_per_second=sequences,
        step_seconds=step,
        step_seconds_least=step / 2,
        step_seconds_most=step * 2,
        date=f"2026-01-0{len(changes)}",
        **changes,
    )


LIKE_THEIRS = {"family": "electra", "width": 768, "layers": 12, "device": "NVIDIA A100-SXM4-40GB"}
AXES = Axes(published="nvidia-electra", train=((128, 3_600_000), (512, 7200)))


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A folder with a table in whose last cell memory was short, and with measurements."""
    ours = [
        rate(500, precision="tf32", **LIKE_THEIRS),
        rate(1000, precision="bf16", **LIKE_THEIRS),
        rate(1950, precision="bf16", processes=2, batch=32, layout="2x1x1", **LIKE_THEIRS),
    ]
    asked = rate(10, measure="predict", length=384, precision="fp16", batch=256, **LIKE_THEIRS)
    told = {
        "batch_256": {"latency_ms": {"mean": 3.5, "90%": 4.25}, "ratio": 1.5},
        "batch_256_padded": {"nvidia_latency_ms": {"mean": 5.125}, "nvidia_examples_per_second": 7},
    }
    results = [CellResult((f"batch={one.batch}",), (one,)) for one in ours]
    results += [
        CellResult((), (asked, rate(5, software="padded", length=384, batch=256)), told),
        CellResult(("length=512",), why="no memory is left <b>"),
    ]
    folder = tmp_path / "work/bench"
    folder.mkdir(parents=True)
    files.write_json(folder / "some.json", table.summary("some", AXES, results))
    measurements.add(folder / "measurements.jsonl", [*ours, rate(250, software="transformers", **LIKE_THEIRS)])
    return folder


def cells(text: str) -> dict[str, tuple[str, str]]:
    """Return path, value and text of the numeric cells of a page."""
    found = re.findall(r'data-value="([^"]*)" data-from="([^"]*)"[^>]*>([^<]*)<', text)
    return {place: (html.unescape(value), shown) for value, place, shown in found}


def test_every_number_is_the_one_in_the_json(bench: Path, tmp_path: Path) -> None:
    report.write([str(bench)], out=str(tmp_path / "p.html"), json=str(tmp_path / "p.json"))
    facts = json.loads((tmp_path / "p.json").read_text())
    assert [{k: v for k, v in facts["speeds"][0].items() if k != "file"}] == [
        json.loads((bench / "some.json").read_text())
    ]
    shown = cells((tmp_path / "p.html").read_text())
    assert len(shown) > 80
    for place, (value, text) in shown.items():
        wanted: Any = facts
        for part in place.strip("/").split("/"):
            wanted = wanted[int(part)] if isinstance(wanted, list) else wanted[part]
        assert value == (wanted if isinstance(wanted, str) else json.dumps(wanted)), place
        if isinstance(wanted, int | float) and not isinstance(wanted, bool):
            assert float(text.replace(",", "")) == wanted, place


def test_rows_and_what_follows_from_them(bench: Path) -> None:
    every = {one.key: one for one in speeds.and_tables(content.content([str(bench)]))}
    rows = [
        dict(zip(every["speeds-0"].head, (cell.text for cell in row), strict=True)) for row in every["speeds-0"].rows
    ]
    assert [row["sequences/s"] for row in rows] == ["500", "1,000", "1,950", "10"]
    assert [row["speed-up"] for row in rows] == ["", "2", "", ""]
    assert [row["weak scaling"] for row in rows] == ["1", "1", "1.95", "1"]
    times = [
        dict(zip(every["latencies-0"].head, (cell.text for cell in row), strict=True))
        for row in every["latencies-0"].rows
    ]
    assert (times[3]["ms mean"], times[3]["ms 90%"], times[3]["ms (NVIDIA's way) mean"]) == ("3.5", "4.25", "5.125")
    assert (times[3]["length"], times[0]["ms mean"]) == ("384", "")
    assert every["work-0"].head == (
        "length",
        "batch",
        "precision",
        "layout",
        "devices",
        "TFLOP/s",
        "of the peak",
        "GiB",
    )
    assert not set(every["work-0"].head[5:]) & set(every["speeds-0"].head)
    assert every["speeds-0"].about.endswith("time to train is unknown: length 512 was not measured")
    assert "profile-0" not in every
    assert (rows[3]["padded"], rows[3]["ratio"]) == ("5", "1.5")
    theirs = [
        dict(zip(every["published-0"].head, (cell.text for cell in row), strict=True))
        for row in every["published-0"].rows
    ]
    assert [(row["published on"], row["published, sequences/s"], row["hardware"]) for row in theirs[:3]] == [
        ("A100", "533", "same"),
        ("V100 16 GB", "116", "other"),
        ("V100 32 GB", "128", "other"),
    ]
    assert [row["ordsmed, padded"] for row in theirs if row["length"] == "384"] == ["7", "7"]
    assert [row["ms mean"] for row in theirs if row["length"] == "384"] == ["276.26", "1,451.396"]
    assert every["not-measured-0"].rows[0][1].text == "no memory is left <b>"
    assert "hours-0" not in every
    kept = [
        dict(zip(every["speeds-1"].head, (cell.text for cell in row), strict=True)) for row in every["speeds-1"].rows
    ]
    assert [row["weak scaling"] for row in kept] == ["", "", "1.95"]
    assert [row["transformers"] for row in kept] == ["", "", "250"]
    assert "electra 12 x 768" in every["speeds-1"].about


def test_a_page_that_has_nothing_but_speeds(bench: Path) -> None:
    text = page.page(content.content([str(bench / "some.json")]))
    assert "<h1>some</h1>" in text
    assert "1 speed table." in text
    assert "No run here" not in text
    assert "no memory is left &lt;b&gt;" in text
    widths = [float(each) for each in re.findall(r'class="ours" style="width:([\d.]+)%"', text)]
    assert widths == [pytest.approx(40 * share / 1950, abs=0.01) for share in (500, 1000, 1950, 10)]
    lines = markdown(content.content([str(bench / "some.json")])).splitlines()
    assert lines[0] == "# some"
    assert "## Speeds: some" in lines
    assert "## Data and compute" not in lines


def test_speeds_and_runs_are_one_page(bench: Path, tmp_path: Path) -> None:
    plant(tmp_path / "work/pretrain/one", falling(12))
    both = content.content([str(tmp_path / "work")])
    assert [run["name"] for run in both["runs"]] == ["one"]
    assert [each["bench"] for each in both["speeds"]] == ["some", "all measurements of bert-mini"]
    assert (
        report.write([str(tmp_path / "work")], out=str(tmp_path / "p.html"))
        .lines[-1]
        .split(": ")[1]
        .startswith("1 run and 2 speed tables, ")
    )


def test_served_live_it_is_another_once_something_was_measured(bench: Path) -> None:
    served = live.LiveReport([str(bench)])
    before = served.state()
    assert served.state() == before
    measurements.add(bench / "measurements.jsonl", [rate(1)])
    assert served.state() != before


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("x.json", "{}", "is not a table of `ordsmed bench`"),
        ("x.json", '{"bench"', "not JSON"),
        ("x.jsonl", '{"loss": 3}\n', "x.jsonl:1"),
        ("x.jsonl", "", "holds no measurement"),
        ("x.json", '{"bench": "a", "scaling": "weak", "failed": [], "rows": [{"length": 1}]}', "sequences_per_second"),
        ("x.json", '{"bench": "a", "scaling": "weak", "failed": [], "rows": 5}', "Expected `array`, got `int`"),
        ("x.txt", "", "is a file"),
    ],
)
def test_what_holds_no_speeds_is_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(OrdsmedError, match=why):
        content.content([str(tmp_path / name)])


def test_a_damaged_file_costs_the_others_nothing(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (bench / "measurements.jsonl").open("a") as file:
        file.write('{"loss": 3}\n')
    assert [each["bench"] for each in content.content([str(bench)])["speeds"]] == ["some"]
    assert "measurements.jsonl:5: " in (err := capsys.readouterr().err)
    assert err.endswith("; it is left out\n")
    live.LiveReport([str(bench)]).state()
    assert capsys.readouterr().err == "", "once is enough"


@pytest.mark.parametrize("name", ["some.json", "comparison.json"])
def test_any_value_of_a_table_may_be_another(bench: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is a page, with the file or without it; a file that is left out gets a note."""
    (bench / "comparison.json").write_text(json.dumps(COMPARED))
    facts = json.loads((bench / name).read_text())
    (bench / "measurements.jsonl").unlink()
    facts |= {"rows": facts["rows"][-1:], "time_to_train": [{"hours": 2.0}]} if name == "some.json" else {}
    for at, other in damages(facts):
        values.note_left_out.cache_clear()
        (bench / name).write_text(json.dumps(changed(facts, at, other)))
        whole = written(bench)
        stands = any(each["file"].endswith(name) for each in (*whole["speeds"], *whole["comparisons"]))
        left_out = f"{name}: " in (err := capsys.readouterr().err) and err.endswith("; it is left out\n")
        assert stands != left_out or not at


def test_damaged_files_of_a_run_are_no_speeds(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", falling(12))
    (run / "scores.json").write_text('{"bench"')
    assert speeds.read(run) == []


def test_of_very_many_measurements_the_last_are_shown(tmp_path: Path) -> None:
    count = speeds.MOST + 7
    measurements.add(tmp_path / "measurements.jsonl", [rate(1 + number) for number in range(count)])
    facts = content.content([str(tmp_path / "measurements.jsonl")])
    [shown] = [one for one in speeds.and_tables(facts) if one.key == "speeds-0"]
    assert [row["sequences_per_second"] for row in facts["speeds"][0]["rows"]] == [*range(8, count + 1)]
    assert shown.about.endswith("the last 100 of 107")


def test_a_table_leaves_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table, "_run", lambda *_: CellResult((), (rate(32),)))
    assert cli.main(["bench", "bert-mini", "table={lengths=[128]}"]) in (0, None)
    assert "| 128 | 16 |" in capsys.readouterr().out
    assert "<h1>bert-mini</h1>" in Path("work/bench/bert-mini.html").read_text()
    assert sorted(each.name for each in Path("work/bench").iterdir()) == [
        "bert-mini.html",
        "bert-mini.json",
        "bert-mini.md",
        "measurements.jsonl",
    ]


COMPARED = {
    "metric": "validation",
    "verdict": "no difference shown",
    "over": {"count": 2, "mean": -0.25, "deviation": 0.125, "interval": [-1.4, 0.9], "least": -0.3, "most": -0.2},
    "pairs": [{"seed": seed, "first": 2.5, "second": 2.25, "difference": -0.25} for seed in (1, 2)],
    "recipes": [
        {"name": "one", "left_out": [{"seed": 3, "why": "it <b>diverged</b>"}]},
        {"name": "two", "left_out": []},
    ],
}


def test_two_recipes_compared_by_seeds_stand_on_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "one-and-two"
    folder.mkdir()
    files.write_json(folder / "comparison.json", COMPARED)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/comparison.json").write_text('{"metric"')
    for name in (tmp_path, folder):
        facts = content.content([str(name)])
        [shown] = speeds.and_tables(facts)
        assert (shown.title, shown.head) == ("two against one: validation", ("seed", "one", "two", "difference"))
        rows = [[cell.text for cell in row] for row in shown.rows]
        assert rows[0] == ["1", "2.5", "2.25", "-0.25"]
        assert rows[2:] == [["mean", "", "", "-0.25"], ["deviation", "", "", "0.125"]]
        assert shown.about == "no difference shown; one, seed 3 has no pair: it <b>diverged</b>"
        text = page.page(facts)
        assert "<h1>two against one</h1>" in text
        assert "1 comparison." in text
        assert "it &lt;b&gt;diverged" in text
    assert live.LiveReport([str(folder)]).answer("/") is not None
