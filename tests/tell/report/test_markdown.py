"""Reports as Markdown: the tables of the page, and a statement of what is known of data and compute."""

from __future__ import annotations

import json
from pathlib import Path

from kit.planted_runs import falling, plant
from ordsmed.tell.report import content, report
from ordsmed.tell.report.markdown import markdown, statement
from ordsmed.tell.report.page import page

STORE = {
    "verb": "encode",
    "fingerprint": "f1",
    "vocabulary": 4500,
    "kind": "wordpiece",
    "language": "en",
    "licence": "CC0",
    "train": {"documents": 595, "tokens": 315010},
    "validation": {"tokens": 9612},
}


def test_tables_are_those_of_the_page(tmp_path: Path) -> None:
    for seed in (1, 2):
        plant(tmp_path / f"runs/s-{seed}", falling(30), recipe={"seed": seed}, scores={"mlm_right": 0.25 * seed})
    report.write([str(tmp_path / "runs")], markdown=str(tmp_path / "r.md"))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["r.md"]
    lines = (tmp_path / "r.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert ["recipe", "score", "seeds", "mean", "± deviation", "95% interval", "lowest", "highest"] in rows
    assert ["runs", "mlm\\_right", "2", "37.5%", "17.7%", "-121.3% to 196.3%", "25.0%", "50.0%"] in rows
    assert ["phase\\[1\\].learning\\_rate", "0.001"] in rows
    assert "Seeds: 1, 2." in lines


def test_commands_stand_apart(tmp_path: Path) -> None:
    """In what a table is about, and on a page in notes as well."""
    plant(tmp_path / "run", [3.0], state="failed", why="use `layout.micro=2` or <i>")
    plant(tmp_path / "other", [3.0], recipe={"data": "x"})
    facts = content.content([str(tmp_path)], watts=300)
    text = markdown(facts)
    assert "Settings in which the recipes of `pretrain` differ; –: the recipe does not have the setting." in text
    assert "energy at 300 W per device, from `--watts`." in text
    assert "use <code>layout.micro=2</code> or &lt;i&gt;</li>" in page(facts)


def test_the_statement_tells_data_and_compute(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", falling(30), layouts=[{"from": 0, "processes": 8}])
    (run / "data.json").write_text(json.dumps({"books": STORE}))
    data, compute, software = statement(content.content([str(run)], watts=500))
    assert data == (
        "**Data.** Trained on books, 315,010 tokens of 595 documents (9,612 more held out), "
        "wordpiece of 4,500 pieces, language en, license CC0. All runs together read 3,000 "
        "tokens."
    )
    assert compute == (
        "**Compute.** 1 run, 0.0333 device hours in total (cpu, 1 thread), 60 GFLOP from the size of the networks; "
        "time of the final steps, without validation, saving and repeated work. Energy: 0.0167 kWh, estimated at 500 W "
        "per device."
    )
    assert software == "**Software.** ordsmed 0.1.0, torch 2.7.0."


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", log="")
    (run / "environment.json").unlink()
    assert statement(content.content([str(run)])) == [
        "**Data.** Unknown: no run here records it.",
        "**Compute.** Unknown: no run here has written a step.",
        "**Software.** Unknown.",
    ]


def test_names_are_no_markdown(tmp_path: Path) -> None:
    plant(tmp_path / "a|b_*c*<i>", [3.0], state="failed", why="[x](y) `z`")
    text = markdown(content.content([str(tmp_path)]))
    assert "a\\|b\\_\\*c\\*\\<i\\>" in text
    assert "\\[x\\](y) \\`z\\`" in text
