"""Pages: every number in a table is the one in the JSON; whatever is wrong with a run, there is a page that says so."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kit.measurements import measurement
from kit.planted_runs import falling, plant, plant_trials
from ordsmed.base import measurements
from ordsmed.base.errors import RecipeError
from ordsmed.tell.report import content, folders, page, report, tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = ("meta", "input", "wbr")


class Reader(HTMLParser):
    """Parse a page: cells with their sources, text of elements, and whether all elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[tuple[str, str, str]] = []
        self.addresses: list[str] = []
        self.own: list[str] | None = None
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.addresses += [str(given[name]) for name in ("src", "href", "srcset") if name in given]
        if tag not in VOID:
            self.open.append(tag)
        if "data-from" in given:
            self.cells.append((str(given["data-from"]), str(given["data-value"]), ""))
            self.own = [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if self.own:
            self.cells[-1] = (*self.cells[-1][:2], "".join(self.own[1:]))
            self.own = None

    def handle_data(self, data: str) -> None:
        if self.own:
            self.own.append(data)


def value_at(report: Any, pointer: str) -> Any:
    for part in pointer.strip("/").split("/"):
        report = report[int(part)] if isinstance(report, list) else report[part]
    return report


def several(folder: Path) -> list[str]:
    """Runs of two recipes with seeds, one that failed, trials, probes."""
    for seed in (1, 2, 3):
        plant(
            folder / f"mlm-{seed}",
            falling(30, end=3.0 + 0.01 * seed),
            validations={10: 4.0, 30: 3.1},
            recipe={"seed": seed},
            layouts=[{"from": 0, "processes": 2}],
            scores={"step": 30, "validation": 3.1 + 0.1 * seed, "mlm_right": 0.4},
        )
    plant(
        folder / "short",
        falling(12),
        recipe={"phase": [{"steps": 12, "length": 64, "learning_rate": 0.001}]},
        left_out=[{"first": 3, "last": 4, "why": "loss nan"}],
    )
    plant(folder / "fell", state="failed", why="out of memory", recipe={"data": "other"})
    plant_trials(
        folder / "grid", [({"learning_rate": 0.1}, 1, {"f1": 80.123456}), ({"learning_rate": 0.2}, 1, {"f1": 70.0})]
    )
    (folder / "short/scores").mkdir()
    for step, words, value in ((4, 400, 0.5), (12, 1200, 0.75)):
        (folder / f"short/scores/pairs-{step}.json").write_text(
            json.dumps(
                {
                    "accuracy": value,
                    "probe": "pairs",
                    "way": "causal",
                    "files": ["a/w.txt"],
                    "key": "k",
                    "model": "short",
                    "errors": {"accuracy": 0.01},
                    "guessing": {"accuracy": 0.5},
                    "step": step,
                    "seen": {"words": words, "tokens": 100 * step},
                }
            )
        )
    return [str(folder)]


def test_every_number_of_a_table_is_the_one_in_the_json(tmp_path: Path) -> None:
    report.write(several(tmp_path / "runs"), out=str(tmp_path / "p.html"), json=str(tmp_path / "p.json"), watts=300.0)
    facts = json.loads((tmp_path / "p.json").read_text())
    reader = Reader((tmp_path / "p.html").read_text())
    assert len(reader.cells) > 100
    for pointer, value, _ in reader.cells:
        wanted = value_at(facts, pointer)
        assert value == (wanted if isinstance(wanted, str) else json.dumps(wanted)), pointer
    shown = {pointer: text for pointer, _, text in reader.cells}
    assert shown["/runs/2/course/step"] == "30"
    assert shown["/runs/2/course/best_judged/validation"] == "3.1000"
    assert shown["/runs/1/trials/trials/0/scores/f1"] == "80.12"
    group = next(n for n, one in enumerate(facts["groups"]) if len(one["runs"]) == 3)
    place = next(n for n, one in enumerate(facts["groups"][group]["scores"]) if one["score"] == "validation")
    assert shown[f"/groups/{group}/scores/{place}/mean"] == "3.3"
    assert shown[f"/groups/{group}/scores/{place}/deviation"] == "0.1"
    interval = facts["groups"][group]["scores"][place]["interval"]
    assert interval == pytest.approx([3.3 - 4.30265 * 0.1 / 3**0.5, 3.3 + 4.30265 * 0.1 / 3**0.5], abs=1e-5)
    assert shown["/cost/device_hours"] == "0.0267"  # three of 30 steps by two processes, 12 by one, half a second each
    assert shown["/cost/kwh"] == "0.008"


def test_a_page_needs_nothing_else(tmp_path: Path) -> None:
    text = page.page(content.content(several(tmp_path / "runs")))
    reader = Reader(text)
    assert reader.addresses == []
    assert "@import" not in text
    assert "url(" not in text
    assert not re.findall(r"https?://", text)
    assert {"svg", "table", "input"} <= set(reader.tags)


def test_what_a_page_tells_of_runs(tmp_path: Path) -> None:
    text = page.page(content.content(several(tmp_path / "runs")))
    for part in (
        "failed: out of memory",
        "Skipped and rewound",
        "How the recipes differ: pretrain",
        "Trials of grid",
        "accuracy: pairs (causal) of w.txt",
        "words seen",
        "phase[1].steps",
        "3 seeds: mean, lowest to highest",
    ):
        assert html.escape(part) in text, part


def test_curves_stand_where_their_numbers_say(tmp_path: Path) -> None:
    plant(tmp_path / "run", [4.0, 3.0, 2.0, 1.0])
    text = page.page(content.content([str(tmp_path / "run")]))
    figure = re.search(
        r'data-axis="step".*?data-y0="(\S+)" data-y1="(\S+)".*?<path class="line c0"[^>]* d="([^"]+)"', text, re.S
    )
    assert figure
    low, high = float(figure[1]), float(figure[2])
    points = [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", figure[3])]
    assert [high - y / 1000 * (high - low) for _, y in points] == pytest.approx([4.0, 3.0, 2.0, 1.0], abs=0.01)
    assert points[-1][0] == 1000


def test_pictures_of_probes_show_guessing_and_leave_out_what_was_asked_first(tmp_path: Path) -> None:
    """A model that was asked before its first step alone has no place on a logarithm."""
    for name, steps in (("a", (0, 10, 100)), ("b", (0,))):
        run = plant(tmp_path / name, [3.0])
        (run / "scores").mkdir()
        for step in steps:
            (run / f"scores/pairs-{step}.json").write_text(
                json.dumps(
                    {
                        "accuracy": 60.0 + step / 10,
                        "probe": "pairs",
                        "way": "causal",
                        "files": ["w.txt"],
                        "key": "k",
                        "model": name,
                        "errors": {"accuracy": 1.0},
                        "guessing": {"accuracy": 50.0},
                        "step": step,
                        "seen": {"words": 7 * step, "tokens": 9 * step},
                    }
                )
            )
    text = page.page(content.content([str(tmp_path)]))
    picture = re.search(r'<section class="small">(.*?)</section>', text, re.S)
    assert picture
    low, high = (float(number) for number in re.findall(r'data-y[01]="([^"]+)"', picture[1]))
    assert (low < 50.0, high > 71.0) == (True, True)
    place = re.search(r'<i class="g" style="top:([\d.]+)%">guessing</i>', picture[1])
    assert place
    assert high - float(place[1]) / 100 * (high - low) == pytest.approx(50.0, abs=0.1)
    assert "Scores before the first step are only in the table." in picture[1]
    assert re.findall(r'class="line (c\d)"', picture[1]) == ["c0"]


def test_names_are_no_html(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>&\"'"
    plant(tmp_path / "a<b>&\"'", [3.0, 2.0, 1.0], recipe={"data": bad}, state="failed", why=bad, scores={bad: 1.5})
    plant(tmp_path / "other", [3.0, 2.0, 1.0], recipe={"data": "x"})
    text = page.page(content.content([str(tmp_path)]))
    assert bad not in text
    assert "<b>&" not in text
    assert text.count("<script") == 2
    pointers = {pointer: shown for pointer, _, shown in Reader(text).cells}
    assert pointers["/runs/0/name"] == "a<b>&\"'"
    own = re.search(r'id="report">(.*?)</script>', text, re.S)
    assert own
    assert json.loads(own[1])["runs"][0]["why"] == bad


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda run: (run / "metrics.jsonl").unlink(), "no metrics.jsonl"),
        (lambda run: (run / "metrics.jsonl").write_text(""), "holds no step"),
        (lambda run: (run / "recipe.toml").unlink(), "the requested settings are unknown"),
        (lambda run: (run / "recipe.toml").write_text("= ="), "the requested settings are unknown"),
        (lambda run: (run / "status.json").write_text("{"), "status.json: not JSON"),
        (lambda run: (run / "scores.json").write_text("[]"), "scores.json: is not a JSON table"),
        (lambda run: (run / "environment.json").write_bytes(b"\xff"), "environment.json: not JSON"),
        (lambda run: (run / "data.json").write_text('{"a": {"train": 3}, "b": 1}'), ""),
        (lambda run: (run / "log.txt").unlink(), ""),
        (lambda run: (run / "status.json").write_text('{"verb": "pretrain", "layouts": 3, "left_out": [1]}'), ""),
        (lambda run: (run / "status.json").write_text('{"verb": "finetune", "steps_asked": "x"}'), ""),
    ],
)
def test_damaged_folders_give_a_page_that_says_so(tmp_path: Path, harm: Any, told: str) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0], scores={"f1": 1.0})
    harm(run)
    text = page.page(content.content([str(run)]))
    Reader(text)
    assert html.escape(told) in text
    assert "<h1>run</h1>" in text


def test_a_run_that_is_silent_is_told(tmp_path: Path) -> None:
    import os

    run = plant(tmp_path / "run", [3.0, 2.0], state="running")
    assert content.content([str(run)])["runs"][0]["notes"] == []
    for name in ("metrics.jsonl", "status.json"):
        os.utime(run / name, (1e9, 1e9))
    assert "it may have been killed" in content.content([str(run)])["runs"][0]["notes"][0]


@pytest.mark.parametrize("name", ["nothing", "file", "empty", "corpus"])
def test_folders_that_are_no_run_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    plant(tmp_path / "corpus", verb="corpus")
    told = {
        "nothing": "no such folder",
        "file": "is a file",
        "empty": "holds no run",
        "corpus": "a folder of `ordsmed corpus`, not a run",
    }
    with pytest.raises(RecipeError, match=re.escape(told[name])):
        content.content([str(tmp_path / name)])


def test_a_run_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    run = plant(tmp_path / "runs/one", [3.0, 2.0])
    assert folders.find([str(tmp_path / "runs"), str(run), str(run / "..") + "/one"]) == [run]


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    for name in ("a/seed-1", "b/seed-1", "b/seed-10", "b/seed-2"):
        plant(tmp_path / name, [3.0, 2.0])
    assert [run["name"] for run in content.content([str(tmp_path)])["runs"]] == [
        "a/seed-1",
        "b/seed-1",
        "b/seed-2",
        "b/seed-10",
    ]


def test_recipes_that_differ_in_the_seed_alone_are_one(tmp_path: Path) -> None:
    plant(tmp_path / "s-1", [3.0], recipe={"seed": 1})
    plant(tmp_path / "s-2", [3.0], recipe={"seed": 2, "log": 7})
    plant(tmp_path / "wide", [3.0], recipe={"seed": 2, "model": {"kind": "bert", "width": 256}})
    facts = content.content([str(tmp_path)])
    assert [group["runs"] for group in facts["groups"]] == [[0, 1], [2]]
    assert facts["differences"] == [
        {"verb": "pretrain", "groups": [0, 1], "rows": [{"setting": "model.width", "values": [128, 256]}]}
    ]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("run-1", "run-2"), "study"),
        (("runs-1", "runs-2"), "runs"),
        (("seed-1", "seed-2"), "study"),
        (("a", "b"), "study"),
        (("bert-seed-1", "bert-seed-3"), "bert-seed"),
    ],
)
def test_seeds_are_called_by_what_their_names_begin_with(tmp_path: Path, names: tuple[str, str], wanted: str) -> None:
    """If the common part says little, they are named after their folder."""
    for seed, name in enumerate(names):
        plant(tmp_path / "study" / name, [3.0], recipe={"seed": seed})
    (group,) = content.content([str(tmp_path)])["groups"]
    assert group["name"] == wanted


def test_settings_of_another_kind_are_not_told_one_by_one(tmp_path: Path) -> None:
    plant(tmp_path / "a", [3.0])
    plant(tmp_path / "b", [3.0], recipe={"objective": {"kind": "clm", "window": 3}})
    rows = content.content([str(tmp_path)])["differences"][0]["rows"]
    assert [row["setting"] for row in rows] == ["objective.kind"]


def test_cells_are_short_and_empty_columns_go(tmp_path: Path) -> None:
    plant(tmp_path / ("long" * 40), [3.0, 2.0])
    found = tables.tables(content.content([str(tmp_path)]))
    runs = next(table for table in found if table.key == "runs")
    assert "seed" in runs.head
    assert "best validation" not in runs.head
    assert len(runs.rows[0][0].text) <= tables.LONGEST


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: chromium")
def test_a_browser_shows_the_numbers_of_the_json_and_sorts_them(tmp_path: Path) -> None:
    speeds = [measurement(precision="bf16"), measurement(), measurement(processes=2, batch=32)]
    measurements.add(tmp_path / "runs/measurements.jsonl", speeds)
    report.write(several(tmp_path / "runs"), out=str(tmp_path / "p.html"), json=str(tmp_path / "p.json"))
    facts = json.loads((tmp_path / "p.json").read_text())
    script = """<script>document.title = JSON.stringify((() => {
      const all = (words) => [...document.querySelectorAll(words)];
      const cells = all("[data-from]").map((c) => [c.dataset.from, c.dataset.value, c.textContent]);
      const button = all("#runs th button").find((b) => b.textContent === "step");
      const column = button.parentElement.cellIndex;
      const steps = () => all("#runs tbody tr").map((r) => r.cells[column].textContent);
      button.click(); const up = steps(); button.click(); const down = steps();
      const panels = all("#loss .panel").filter((panel) => panel.offsetParent).length;
      const page = document.documentElement;
      const wide = [...document.querySelectorAll("table")].filter((each) => each.scrollWidth > page.clientWidth).length;
      return {cells, up, down, panels, wide, fits: page.scrollWidth <= page.clientWidth};
    })())</script></body>"""
    (tmp_path / "p.html").write_text((tmp_path / "p.html").read_text().replace("</body>", script))
    words = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'browser'}",
        "--window-size=320,800",
        "--dump-dom",
        (tmp_path / "p.html").as_uri(),
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip("the browser here does not answer")
    if "<body" not in done.stdout:
        pytest.skip(f"the browser here shows no page: {done.stderr[-300:]}")
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout, re.S)
    assert title, done.stderr[-2000:]
    seen = json.loads(html.unescape(title[1]))
    assert len(seen["cells"]) > 100
    for pointer, value, _ in seen["cells"]:
        wanted = value_at(facts, pointer)
        assert value == (wanted if isinstance(wanted, str) else json.dumps(wanted)), pointer
    assert sum(pointer.startswith("/speeds/0/rows/2/") for pointer, _, _ in seen["cells"]) > 8
    assert seen["up"] == ["12", "30", "30", "30", "", ""]
    assert seen["down"] == ["30", "30", "30", "12", "", ""]
    assert seen["panels"] == 1
    assert seen["fits"] is True
    assert seen["wide"] == 0


def test_failures_are_told_first(tmp_path: Path) -> None:
    plant(tmp_path / "a", [3.0], state="stopped")
    plant(tmp_path / "b", [3.0], state="failed", why="no memory")
    text = page.page(content.content([str(tmp_path)]))
    assert text.index("failed: no memory") < text.index("stopped early")


def test_long_names_go_on_in_the_next_line_and_numbers_do_not(tmp_path: Path) -> None:
    plant(tmp_path / "rate-0.1,batch-32_b", [3.0] * 1200, scores={"mlm_right": 1.0})
    text = page.page(content.content([str(tmp_path)]))
    assert "<td>rate-0.1,<wbr>batch-32_<wbr>b</td>" in re.sub(r"(<td) [^>]*", r"\1", text)
    assert ">1,200<" in text
    assert ">mlm_right<" in text


@pytest.mark.parametrize(
    ("names", "title"), [(["a"], "a"), (["a", "b"], "a, b"), (["."], "runs: 3 runs"), (["a", "b", "c"], "a, b, c")]
)
def test_a_page_is_called_as_what_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], title: str
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    for name in ("a", "b", "c"):
        plant(Path(name), [3.0], recipe={"model": {"kind": "bert", "width": ord(name)}})
    assert f"<title>{title}</title>" in page.page(content.content(names))


def test_the_page_of_a_make_folder_is_called_as_the_folder_is(tmp_path: Path) -> None:
    plant(tmp_path / "my-model/model", [3.0])
    report.write([str(tmp_path / "my-model")], out=str(tmp_path / "p.html"), markdown=str(tmp_path / "p.md"))
    assert "<h1>my-model</h1>" in (tmp_path / "p.html").read_text()
    assert (tmp_path / "p.md").read_text().startswith("# my-model\n")


def lead(names: list[Path]) -> list[str]:
    text = page.page(content.content([*map(str, names)]))
    return [html.unescape(line) for line in re.findall('<p class="summary">(.*?)</p>', text)]


def test_the_top_says_which_run_is_best_and_by_how_much(tmp_path: Path) -> None:
    runs = []
    for number, value in enumerate((3.1, 3.0, 3.4, 3.2)):
        recipe = {"model": {"kind": "bert", "width": 64 + number}}
        runs.append(plant(tmp_path / f"r{number}", [3.0], recipe=recipe, scores={"step": 1, "validation": value}))
    wanted = "the best by validation loss is r1: 3.0000, 0.1000 less than r0; the last is r2 with 3.4000."
    assert lead(runs)[-2] == f"Of 4 that learned mlm from the same data, {wanted}"
    assert not any("best by" in line for line in lead(runs[:1]))
    other = plant(tmp_path / "causal", [1.0], recipe={"objective": {"kind": "clm"}}, scores={"validation": 1.0})
    assert "No two of these runs have the same" in " ".join(lead([runs[0], other]))
    assert "Of 4 that learned mlm" in " ".join(lead([*runs, other]))


def test_tasks_are_compared_by_their_score_and_seeds_by_their_mean(tmp_path: Path) -> None:
    runs = []
    for number, (rate, value) in enumerate(((1e-3, 80.0), (1e-3, 82.0), (1e-4, 84.0))):
        recipe = {"seed": number, "learning_rate": rate, "task": {"kind": "tag"}}
        scores = {"step": 1, "f1": value, "guessing": {"f1": 10.0}}
        runs.append(plant(tmp_path / f"runs/r{number}", [3.0], verb="finetune", recipe=recipe, scores=scores))
    assert "Of 2 that learned tag from the same data, the best by f1 is r2: 84.00, 3 more than runs." in " ".join(
        lead(runs)
    )
    assert "2 runs of one recipe (runs): mean f1 81.00." in " ".join(lead(runs[:2]))


def test_counts_are_shown_as_counts() -> None:
    assert [tables.score(value) for value in (1692784.0, 1000.0, 100.0, 1234.5, 3.25)] == [
        "1,692,784",
        "1,000",
        "100.00",
        "1,234.50",
        "3.25",
    ]


def test_a_narrow_screen_shows_the_head_of_each_cell(tmp_path: Path) -> None:
    text = page.page(content.content(several(tmp_path / "runs")))
    assert len(re.findall("<td[^>]* data-head=", text)) == len(re.findall("<td[ >]", text)) > 100
    assert "content: attr(data-head)" in text
