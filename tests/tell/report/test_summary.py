"""What came of a run in words, its scores as it learned, what it says: each from the files of its folder alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.planted_runs import falling, plant
from ordsmed.cli import main
from ordsmed.tell.report import content, page, ranking, report, samples, summary, tables

STORE = {
    "mine": {
        "fingerprint": "f",
        "train": {"tokens": 900, "documents": 5, "words": 500_000},
        "validation": {"tokens": 9},
        "language": "nb",
        "dropped": {"duplicates": 2},
        "left_out": {"empty": 1},
    }
}
SCORES = {
    "step": 30,
    "validation": 3.1,
    "mlm": 3.1,
    "mlm_right": 0.3124,
    "unigram": 5.5,
    "guessing": {"validation": 5.5, "mlm": 5.5, "mlm_right": 0.051},
}


def planted(folder: Path, **how: Any) -> Path:
    run = plant(folder, falling(30), validations={10: 4.0, 30: 3.1}, **{"scores": SCORES, **how})
    (run / "data.json").write_text(json.dumps(STORE))
    return run


def shown(folder: Path, **how: Any) -> tuple[dict[str, Any], str]:
    facts = content.content([str(folder)], **how)
    return facts, page.page(facts)


def test_a_sentence_says_what_came_of_a_run(tmp_path: Path) -> None:
    facts, text = shown(planted(tmp_path / "run"))
    wanted = (
        "A BERT of 1.0 million weights learned from 0.5 million Norwegian words in 15 seconds; on texts it never saw, "
        "it predicts masked words (or pieces of words) right in 31.2% of cases (guessing: 5.1%)."
    )
    assert facts["runs"][0]["summary"] == wanted
    assert f'<p class="summary">{wanted}</p>' in text


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            {"state": "stopped", "scores": None},
            "has so far learned from 0.5 million Norwegian words in 15 seconds (30 of 30",
        ),
        ({"scores": {"step": 30}}, "; its quality on texts it never saw was not measured."),
        (
            {"recipe": {"objective": "my_lab.rhymes"}},
            "; on examples it never saw, the loss is 3.1 (guessing: 5.5, lower is",
        ),
        ({"recipe": {"model": {"kind": "my_lab.net"}}}, "A my_lab.net of 1.0 million weights"),
        ({"recipe": {"model": {"kind": "electra"}}}, "An ELECTRA of"),
        ({"log": ""}, "A BERT learned from"),
    ],
)
def test_what_is_not_known_is_not_said(tmp_path: Path, how: dict[str, Any], told: str) -> None:
    facts, _ = shown(planted(tmp_path / "run", **how))
    assert told in facts["runs"][0]["summary"]


def test_no_step_no_sentence_and_of_many_runs_none(tmp_path: Path) -> None:
    facts, text = shown(plant(tmp_path / "none"))
    assert facts["runs"][0]["summary"] == ""
    assert "1 run of 1 recipe: 1 done." in text
    for number in range(4):
        planted(tmp_path / f"runs/{number}", recipe={"seed": number})
    _, text = shown(tmp_path / "runs")
    assert "4 runs of 1 recipe: 4 done." in text
    assert "learned from" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (999, "999"),
        (94_999, "94,999"),
        (500_000, "0.5 million"),
        (3_462_000, "3.5 million"),
        (124e6, "124 million"),
        (3.3e9, "3.3 billion"),
    ],
)
def test_numbers_are_said_as_people_do(count: float, told: str) -> None:
    assert summary.large(count) == told


def test_times_are_said_as_people_do() -> None:
    times = {0.2: "1 second", 90: "90 seconds", 850: "14 minutes", 9000: "2.5 hours", 4e5: "4.6 days"}
    assert {time: summary.minutes(time) for time in times} == times


def test_title_author_and_date_head_the_page(tmp_path: Path) -> None:
    _, text = shown(planted(tmp_path / "run"), title="Mine <1>", author="A & B")
    assert "<h1>Mine &lt;1&gt;</h1>" in text
    assert re.search(r'<p class="note">A &amp; B, \d{4}-\d\d-\d\d</p>', text)
    report.write([str(tmp_path / "run")], markdown=str(tmp_path / "r.md"), title="Mine", author="A")
    assert (tmp_path / "r.md").read_text().startswith("# Mine\n\nA, ")


def test_guessing_is_a_line_and_scores_are_pictures_in_percent(tmp_path: Path) -> None:
    run = planted(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rights = iter((0.125, 0.25))
    lines = [{**line, "mlm_right": next(rights)} if "validation" in line else line for line in lines]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts, text = shown(run)
    assert facts["runs"][0]["course"]["scores"] == {"mlm_right": [[10, 0.125], [30, 0.25]]}  # mlm is the loss again
    for title, level in (("loss", 5.5), ("% right", 5.1)):
        figure = re.search(
            rf'data-y0="(\S+)" data-y1="(\S+)"[^>]*><div class="value">{title}</div>.*?class="g" style="top:([\d.]+)%',
            text,
            re.S,
        )
        assert figure
        low, high, place = map(float, figure.groups())
        assert high - place / 100 * (high - low) == pytest.approx(level, abs=0.05)
    (run / "scores.json").unlink()
    (run / "status.json").write_text(json.dumps({"verb": "pretrain", "state": "stopped", "unigram": 5.25}))
    assert shown(run)[0]["runs"][0]["guessing_loss"] == 5.25


def test_each_score_stands_once_and_thresholds_apart(tmp_path: Path) -> None:
    run = planted(tmp_path / "run", scores={**SCORES, "f1": 80.0, "best_f1_thresh": -2.5})
    every = {table.key: table for table in tables.tables(content.content([str(run)]))}
    rows = [[cell.text for cell in row[1:]] for row in every["scores"].rows]
    assert rows == [["validation", "3.1", "5.5"], ["mlm_right", "31.2%", "5.1%"], ["f1", "80.00", ""]]
    assert [cell.text for cell in every["thresholds"].rows[0]] == ["run", "best_f1_thresh", "-2.5"]
    assert dict(zip(every["data"].head, (cell.text for cell in every["data"].rows[0]), strict=True))["dropped"] == "3"


def test_what_a_model_says_is_asked_once_and_kept(tiny_run: Any, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(tiny_run.bert, run)
    facts, text = shown(run)
    rows = facts["runs"][0]["samples"]
    if not rows:
        pytest.skip("no sentence of the tiny corpus has a word of one piece")
    assert [json.loads(line) for line in (run / samples.NAME).read_text().splitlines()] == rows
    steps = [answer["step"] for answer in rows[0]["says"]]
    assert (steps[-1], steps) == (facts["runs"][0]["course"]["step"], sorted(steps))
    assert all("[MASK]" in row["text"] and row["right"] not in ("", "[MASK]") for row in rows)
    assert "Predictions" in text
    shutil.rmtree(run / "weights")
    assert shown(run)[0]["runs"][0]["samples"] == rows


def test_samples_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    run = planted(tmp_path / "run")
    good = {"text": "<b> [MASK]", "right": "x", "says": [{"step": 30, "text": "<i>"}]}
    for bad in ('{"text": 3}\n', "{", '{"text": "a", "says": [{"text": "b"}]}\n', '{"text": "a", "says": 3}\n'):
        (run / samples.NAME).write_text(json.dumps(good) + "\n" + bad)
        facts, text = shown(run)
        assert facts["runs"][0]["samples"] in ([good], [])  # half a line at the end is left out
        assert "<i>" not in text


def test_three_steps_are_the_first_the_middle_and_the_last() -> None:
    assert samples.three([0, 100, 400, 700, 800]) == [0, 400, 800]
    assert samples.three([0, 600, 800]) == [0, 600, 800]
    assert samples.three([5]) == [5]
    assert samples.three([]) == [0]


@pytest.mark.parametrize(
    ("score", "values", "sentence"),
    [
        ("validation", {"a": (3.0, 1)}, ""),
        ("validation", {"a": (3.0, 2)}, "2 runs of one recipe (a): mean validation loss 3.0000."),
        ("validation", {"a": (3.0, 1), "b": (2.5, 1)}, "loss is b: 2.5000, 0.5000 less than a."),
        (
            "validation",
            {"a": (3.0, 1), "b": (2.5, 3), "c": (4.0, 1)},
            "(mean of 3 runs), 0.5000 less than a; the last is c with",
        ),
        ("f1", {"a": (30.0, 1), "b": (25.0, 1)}, "the best by f1 is a: 30.00, 5 more than b."),
        ("squared_error", {"a": (3.0, 1), "b": (2.5, 1)}, "the best by squared_error is b: 2.5"),
    ],
)
def test_the_best_of_recipes_is_the_lowest_loss_or_the_highest_score(
    score: str, values: dict[str, tuple[float, int]], sentence: str
) -> None:
    found = ranking._line("mlm", score, [ranking.RankedRecipe(name, *value) for name, value in values.items()])
    assert sentence in found
    assert bool(found) == bool(sentence)
    assert (f"Of {len(values)} that learned mlm" in found) == (len(values) > 1)


@pytest.mark.parametrize(
    ("more", "shown"), [([], report.USUAL), (["--out", "x.html"], "x.html"), (["--json", "x"], "")]
)
def test_the_command_says_what_shows_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], shown: str
) -> None:
    monkeypatch.chdir(tmp_path)
    planted(tmp_path / "run")
    main(["report", "run", *more])
    last = capsys.readouterr().out.splitlines()[-1]
    assert ("-m webbrowser" in last, last.endswith(f" {shown}")) == (bool(shown), bool(shown))
