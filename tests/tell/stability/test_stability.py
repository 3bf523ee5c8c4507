"""Studies over seeds whose runs end at once: files, messages, runs that are left out, and comparisons."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ordsmed import cli
from ordsmed.base import files, settings
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.learn.score.seeds import paired
from ordsmed.tell.report.folders import read_one
from ordsmed.tell.show.show import show
from ordsmed.tell.stability import results
from ordsmed.tell.stability.stability import StudyOptions, compare, stability
from ordsmed.train import run_group
from ordsmed.train.run_group import PlannedRun

LOSSES = {1: 8.72, 2: 8.69, 3: 8.71, 4: 8.70, 5: 8.68}  # NVIDIA's
FIVE = StudyOptions(seeds=(1, 2, 3, 4, 5))
LENGTH = 6  # steps

FINETUNING = """
steps = 6
tokenizer = "vocab.txt"
[layout]
device = "cpu"
threads = 1
[model]
kind = "bert"
[task]
kind = "classify"
train = "train.tsv"
dev = "dev.tsv"
"""


class Made:
    """A substitute for processes: runs that write these scores at once, or fail with this error."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.scores: Callable[[PlannedRun], dict[str, Any]] = lambda one: {"validation": LOSSES[one.recipe.seed]}
        self.complaints: dict[str, str] = {}
        self.left_out: dict[str, list[dict[str, Any]]] = {}

    def start(self, one: PlannedRun, place: dict[str, str], threads: int, devices: int) -> Any:
        self.begun.append(one.name)
        complaint, out = self.complaints.get(one.name), self.left_out.get(one.name, [])
        one.output_file.write_text(f"ordsmed: {complaint}\n")
        shutil.rmtree(one.folder, ignore_errors=True)
        (one.folder / "checkpoints").mkdir(parents=True)
        state = "failed" if complaint else "done"
        Run(one.folder).set(verb=one.recipe.verb, state=state, step=LENGTH, left_out=out)
        files.write_text(one.folder / "recipe.toml", settings.write(one.recipe))
        lines = [{"step": step, "phase": 1, "loss": one.recipe.seed + 1 / step, "seconds": 0.5} for step in range(1, 7)]
        (one.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        if not complaint:
            files.write_json(one.folder / "scores.json", {"step": LENGTH, "tokens": 99, **self.scores(one)})
        return type("Ended", (), {"returncode": int(bool(complaint)), "poll": lambda self: self.returncode})()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    made = Made()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_group, "start", made.start)
    monkeypatch.setattr(run_group, "LOOK", 0.0)
    monkeypatch.setattr(
        "ordsmed.tell.stability.stability._check_runs", lambda *_: None
    )  # files here hold next to nothing
    return made


@pytest.fixture
def study(made: Made, recipe: Callable[..., Path]) -> Path:
    """A pretraining's recipe."""
    return recipe("steady")


@pytest.fixture
def tuning(made: Made, tmp_path: Path) -> Path:
    """A fine-tuning's recipe."""
    for name in ("train.tsv", "dev.tsv", "vocab.txt"):
        Path(name).write_text("[UNK]\n")
    path = tmp_path / "tuning.toml"
    path.write_text(FINETUNING)
    made.scores = lambda one: {
        "accuracy": 80.0 + one.recipe.seed,
        "f1": 70.0,
        "validation": 0.5,
        "guessing": {"accuracy": 60.0},
    }
    return path


HERE = Path("work/stability/steady")


def test_five_seeds_of_the_mission_s_table(study: Path, made: Made) -> None:
    """Every number of the page is that of the JSON, which is that of the runs."""
    result = stability(str(study), how=FIVE)
    assert result["metric"] == "validation"
    assert result["lower_is_better"]
    over = result["over"]["validation"]
    assert (round(over["mean"], 2), float(f"{over['deviation']:.3g}")) == (8.70, 0.0158)
    assert (over["count"], over["least"], over["most"]) == (5, 8.68, 8.72)
    assert files.read_json(HERE / "stability.json") == json.loads(json.dumps(result))
    page = (HERE / "stability.md").read_text()
    assert "validation 8.700 ± 0.016: mean and sample deviation (n - 1) of 5 seeds; 95% interval of the mean" in page
    assert "8.680 to 8.720" in page
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    assert cells[0][:3] == ["seed", "validation", "loss"]
    assert [row[:2] for row in cells[2:7]] == [[str(seed), f"{loss:.3f}"] for seed, loss in LOSSES.items()]
    assert [row[:2] for row in cells[7:]] == [
        ["mean", "8.700"],
        ["deviation", "0.016"],
        ["least", "8.680"],
        ["most", "8.720"],
    ]
    assert cells[2][3:5] == ["6", "3"], "steps and seconds"
    assert result["in_mean"] == [1, 2, 3, 4, 5]
    assert Run(HERE).status["state"] == "done"
    assert kind_of_folder(HERE) is FolderKind.STABILITY


def test_each_seed_s_run_is_that_recipe_with_another_seed(study: Path) -> None:
    stability(str(study), ["phase.learning_rate=1e-3"], FIVE)
    tables = [settings.read(HERE / f"seed-{seed}.toml") for seed in (1, 5)]
    assert [table["seed"] for table in tables] == [1, 5]
    assert [table["out"] for table in tables] == [str(HERE / f"seed-{seed}") for seed in (1, 5)]
    assert [table["phase"][0]["learning_rate"] for table in tables] == [1e-3, 1e-3]
    for table in tables:
        del table["seed"], table["out"]
    assert tables[0] == tables[1]


def test_a_page_stands_beside(study: Path, made: Made, recipe: Callable[..., Path]) -> None:
    stability(str(study), how=StudyOptions(seeds=(5,)))
    compare(str(study), str(recipe("other", clip=0.5)), how=StudyOptions(seeds=(1, 2)))
    own = (HERE / "stability.html").read_text()
    assert "<h1>steady</h1>" in own
    assert "2 runs of 1 recipe: 2 done." in own, "of those that were asked for"
    both = Path("work/stability/steady-and-other/comparison.html").read_text()
    assert "4 runs of 2 recipes: 4 done." in both
    assert "<h1>other against steady</h1>" in both
    assert "other against steady: validation" in both
    assert "no difference shown" in both


def test_the_picture_has_a_band(study: Path) -> None:
    stability(str(study), how=StudyOptions(seeds=(1, 3)))
    text = (HERE / "stability.svg").read_text()
    root = ElementTree.fromstring(text)
    fills = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("d", "").endswith("Z")]
    assert len(fills) == 2, "mean and deviation; least to most"
    assert "validation 8.7150 ± 0.0071" in text
    assert "steady: 2 seeds" in text


def test_what_is_done_is_not_made_again_and_seeds_are_added(study: Path, made: Made) -> None:
    stability(str(study), how=StudyOptions(seeds=(1, 2)))
    stability(str(study), how=StudyOptions(seeds=(1, 2, 3)))
    assert made.begun == ["seed-1", "seed-2", "seed-3"]
    result = stability(str(study), how=StudyOptions(seeds=(2, 3)))
    assert [row["seed"] for row in result["runs"]] == [2, 3], "of those that are asked for"
    assert stability(str(HERE)) == result, "the folder knows its seeds"
    assert len(made.begun) == 3


def test_as_many_are_made_at_a_time_as_are_not_done(
    study: Path, made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_group, "cores", lambda: 8)
    for seeds, said in (
        ((1, 2), "0 of 2 seeds are done; 2 at a time"),
        ((1, 2, 3), "2 of 3 seeds are done; 1 at a time"),
    ):
        stability(str(study), how=StudyOptions(seeds))
        assert said in capsys.readouterr().err


def test_killed_in_between_it_goes_on(study: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def third(*words: Any) -> Any:
        if len(made.begun) == 2:
            raise SystemExit(137)
        return made.start(*words)

    monkeypatch.setattr(run_group, "start", third)
    with pytest.raises(SystemExit):
        stability(str(study), how=StudyOptions(seeds=(1, 2, 3, 4, 5), workers=1))
    assert [row["state"] for row in files.read_json(HERE / "stability.json")["runs"]].count("done") == 2
    monkeypatch.setattr(run_group, "start", made.start)
    result = stability(str(HERE), how=StudyOptions(workers=1))
    assert made.begun == [f"seed-{seed}" for seed in LOSSES]
    assert result["in_mean"] == list(LOSSES)


def test_what_fails_is_told_and_in_no_mean(study: Path, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.complaints = {"seed-3": "there: step 5: loss nan; wanted finite numbers"}
    with pytest.raises(RunError, match=rf"^{HERE}: 1 of 5 seeds failed: 3; {HERE}/stability.md says why") as error:
        stability(str(study), how=FIVE)
    assert "the same command retries them" in str(error.value)
    assert "validation 8.697 ± 0.017: mean and sample deviation (n - 1) of 4 seeds" in capsys.readouterr().err
    result = files.read_json(HERE / "stability.json")
    assert result["in_mean"] == [1, 2, 4, 5]
    assert result["over"]["validation"]["count"] == 4
    assert math.isclose(result["over"]["validation"]["mean"], (8.72 + 8.69 + 8.70 + 8.68) / 4)
    page = (HERE / "stability.md").read_text()
    assert "seed 3 is not in the mean: there: step 5: loss nan; wanted finite numbers" in page
    assert "| 3         |            |" in page
    assert "of 4 seeds" in page
    assert 'stroke-dasharray="3 3"' in (HERE / "stability.svg").read_text(), "its course is shown"
    assert Run(HERE).status["state"] == "failed"
    made.complaints.clear()
    made.begun.clear()
    assert stability(str(study), how=FIVE)["in_mean"] == [1, 2, 3, 4, 5]
    assert made.begun == ["seed-3"]
    assert "why" not in Run(HERE).status


def test_all_that_fail_leave_no_mean(study: Path, made: Made) -> None:
    made.complaints = dict.fromkeys(("seed-1", "seed-2"), "here: it burns")
    with pytest.raises(RunError, match="2 of 2 seeds failed: 1, 2"):
        stability(str(study), how=StudyOptions(seeds=(1, 2)))
    assert "no seed has a score" in (HERE / "stability.md").read_text()
    assert files.read_json(HERE / "stability.json")["over"] == {}


def test_a_run_that_fails_before_it_begins_is_no_trouble_for_the_page(
    study: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.complaints = {"seed-2": "here: no such file"}

    def start(one: PlannedRun, *more: Any) -> Any:
        process = made.start(one, *more)
        if one.name == "seed-2":
            shutil.rmtree(one.folder)
        return process

    monkeypatch.setattr(run_group, "start", start)
    with pytest.raises(RunError, match="1 of 2 seeds failed: 2"):
        stability(str(study), how=StudyOptions(seeds=(1, 2)))
    page = (HERE / "stability.html").read_text()
    assert "seed-1" in page
    assert "seed-2" not in page


def test_a_score_that_is_no_number_is_left_out_and_told(study: Path, made: Made) -> None:
    made.scores = lambda one: {"validation": math.nan if one.recipe.seed == 2 else LOSSES[one.recipe.seed]}
    result = stability(str(study), how=FIVE)
    assert result["in_mean"] == [1, 3, 4, 5]
    assert result["over"]["validation"]["count"] == 4
    assert "seed 2 is not in the mean: validation is not a number: it diverged" in (HERE / "stability.md").read_text()
    assert "NaN" not in (HERE / "stability.json").read_text()


def test_without_validation_the_last_loss_is_compared(study: Path, made: Made) -> None:
    made.scores = lambda one: {}
    result = stability(str(study), how=StudyOptions(seeds=(1, 2)))
    assert result["metric"] == "loss"
    assert result["over"]["loss"]["mean"] == pytest.approx(1.5 + 2.45 / 6)


def test_of_shares_of_right_answers_more_is_better(study: Path, made: Made) -> None:
    made.scores = lambda one: {"validation": 3.0, "mlm": 2.0, "mlm_right": 0.5}
    asked = {name: stability(str(study), how=StudyOptions(seeds=(1,), metric=name)) for name in ("mlm", "mlm_right")}
    assert {name: result["lower_is_better"] for name, result in asked.items()} == {"mlm": True, "mlm_right": False}


def test_a_recipe_s_own_seed_and_folder_make_no_other_study(
    study: Path, made: Made, recipe: Callable[..., Path]
) -> None:
    stability(str(study), how=StudyOptions(seeds=(1,)))
    stability(str(recipe("steady", seed=9, out="elsewhere")), how=StudyOptions(seeds=(1,)))
    assert made.begun == ["seed-1"]
    assert not Path("elsewhere").exists()


def test_one_seed_has_no_deviation(study: Path) -> None:
    over = stability(str(study), how=StudyOptions(seeds=(4,)))["over"]["validation"]
    assert (over["mean"], over["deviation"], over["interval"]) == (8.7, None, None)
    page = (HERE / "stability.md").read_text()
    assert "validation 8.7000; one seed has no deviation" in page
    assert "| deviation |            |" in page


def test_what_was_rewound_is_told_and_counts(study: Path, made: Made) -> None:
    made.left_out = {"seed-2": [{"first": 3, "last": 4, "why": "loss nan"}]}
    result = stability(str(study), how=FIVE)
    assert result["in_mean"] == [1, 2, 3, 4, 5]
    assert [row["left_out"] for row in result["runs"]] == [0, 2, 0, 0, 0]
    page = (HERE / "stability.md").read_text()
    assert "seed 2: steps 3 to 4 were left out: loss nan" in page
    assert "2 steps left out" in page


def test_metrics_that_are_cut_off_are_told(study: Path) -> None:
    stability(str(study), how=StudyOptions(seeds=(1, 2)))
    path = HERE / "seed-2" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    result = stability(str(study), how=StudyOptions(seeds=(1, 2)))
    assert result["in_mean"] == [1, 2], "its score stands by itself"
    assert result["runs"][1]["step"] == 5
    assert "seed 2: metrics.jsonl ends at step 5 of 6: it is truncated" in (HERE / "stability.md").read_text()


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_scores_that_cannot_be_read_cost_the_others_nothing(study: Path, text: str | None) -> None:
    stability(str(study), how=StudyOptions(seeds=(1, 2)))
    path = HERE / "seed-2" / "scores.json"
    path.write_text(text) if text else path.unlink()
    with pytest.raises(RunError, match="1 of 2 seeds failed: 2"):
        stability(str(study), how=StudyOptions(seeds=(1, 2)))
    result = files.read_json(HERE / "stability.json")
    assert result["in_mean"] == [1]
    assert "scores.json" in result["runs"][1]["why"]


def test_a_fine_tuning_is_judged_by_its_score(tuning: Path, made: Made) -> None:
    result = stability(str(tuning), how=FIVE)
    assert (result["metric"], result["lower_is_better"], result["of"]) == ("accuracy", False, "finetune")
    assert result["over"]["accuracy"]["mean"] == 83.0
    assert result["over"]["accuracy"]["deviation"] == pytest.approx(math.sqrt(2.5))
    assert "Of accuracy, more is better." in Path("work/stability/tuning/stability.md").read_text()
    other = stability(str(tuning), how=StudyOptions(seeds=(1, 2), metric="validation"))
    assert (other["metric"], other["lower_is_better"]) == ("validation", True)


def test_checkpoints_of_fine_tunings_go_and_those_of_pretrainings_stay(tuning: Path, study: Path) -> None:
    """The best of a fine-tuning is in its weights; a pretraining may be wanted at its steps."""
    stability(str(tuning), how=StudyOptions(seeds=(1,)))
    stability(str(study), how=StudyOptions(seeds=(1,)))
    assert not Path("work/stability/tuning/seed-1/checkpoints").exists()
    assert (HERE / "seed-1" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("name", "other", "why"),
    [
        ("status.json", {"left_out": {"a": 1}}, "damaged"),
        ("status.json", {"step": "x"}, "damaged"),
        ("metrics.jsonl", {"seconds": "x"}, ""),
        ("metrics.jsonl", {"step": []}, ""),
    ],
)
def test_a_fact_of_another_kind_costs_the_others_nothing(
    study: Path, name: str, other: dict[str, Any], why: str
) -> None:
    stability(str(study), how=StudyOptions(seeds=(1, 2)))
    path = HERE / "seed-2" / name
    *before, last = path.read_text().splitlines() if name == "metrics.jsonl" else [path.read_text()]
    path.write_text("\n".join([*before, json.dumps(json.loads(last) | other)]) + "\n")
    with pytest.raises(RunError, match="1 of 2 seeds failed: 2") if why else contextlib.nullcontext():
        stability(str(study), how=StudyOptions(seeds=(1, 2)))
    result = files.read_json(HERE / "stability.json")
    assert result["in_mean"] == ([1] if why else [1, 2])
    assert why in result["runs"][1]["why"]


def test_a_run_that_is_done_is_read_once(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the last of a thousand would wait for what the others left."""
    read, count = results.course, list[Path]()
    monkeypatch.setattr(results, "course", lambda folder: count.append(folder) or read(folder))  # type: ignore[func-returns-value]
    stability(str(study), how=FIVE)
    assert len(count) <= 2 * 5 + 4 + 3 + 2 + 1, "to judge, to draw, and those that are not begun"


def test_what_only_guesses_is_told_and_counts(tuning: Path, made: Made) -> None:
    made.scores = lambda one: {"accuracy": 60.0 if one.recipe.seed == 2 else 90.0, "guessing": {"accuracy": 60.0}}
    result = stability(str(tuning), how=FIVE)
    assert result["in_mean"] == [1, 2, 3, 4, 5]
    assert [bool(row["notes"]) for row in result["runs"]] == [False, True, False, False, False]
    text = Path("work/stability/tuning/stability.md").read_text()
    assert "seed 2: accuracy 60 is no better than guessing, 60" in text


def test_a_pretraining_worse_than_frequencies_is_told(study: Path, made: Made) -> None:
    made.scores = lambda one: {"validation": 37.0 if one.recipe.seed == 2 else 3.0, "guessing": {"validation": 4.9}}
    rows = stability(str(study), how=StudyOptions(seeds=(1, 2)))["runs"]
    assert [row["notes"] for row in rows] == [[], ["validation 37 is no better than guessing, 4.9"]]


def test_a_recipe_s_own_seeds_are_taken(tuning: Path) -> None:
    tuning.write_text("seeds = [7, 9]\n" + FINETUNING)
    assert [row["seed"] for row in stability(str(tuning))["runs"]] == [7, 9]
    assert [row["seed"] for row in stability(str(tuning), how=StudyOptions(seeds=(7,)))["runs"]] == [7]


def test_a_wrong_metric_fails_nothing(study: Path) -> None:
    with pytest.raises(RecipeError, match="--metric: found validaton; wanted one of loss, validation; did you mean"):
        stability(str(study), how=StudyOptions(seeds=(1, 2), metric="validaton"))
    assert Run(HERE).status["state"] == "done"
    assert files.read_json(HERE / "stability.json")["metric"] == "validation"


def test_a_folder_of_another_recipe_is_refused(study: Path, made: Made) -> None:
    stability(str(study), how=StudyOptions(seeds=(1,)))
    with pytest.raises(RecipeError, match=rf"^{HERE}: holds seeds of another recipe, or of other data"):
        stability(str(study), ["phase.learning_rate=1e-3"], StudyOptions(seeds=(1,)))
    stability(str(study), ["phase.learning_rate=1e-3", "out=other"], StudyOptions(seeds=(1,)))
    assert (Path("other") / "stability.md").exists()
    stability(str(study), ["phase.learning_rate=1e-3"], StudyOptions(seeds=(1,), anew=True))
    assert made.begun == ["seed-1"] * 3
    stability(str(study), ["phase.learning_rate=1e-3", "layout.threads=2"], StudyOptions(seeds=(1,)))
    assert len(made.begun) == 3, "the layout is the machine's"
    table = settings.read(HERE / "seed-1.toml") | {"clip": 0.5}
    (HERE / "seed-1.toml").write_text(settings.write(table))
    with pytest.raises(RecipeError, match="seed-1: is a seed with other settings"):
        stability(str(study), ["phase.learning_rate=1e-3"], StudyOptions(seeds=(1,)))


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("seed=3", "--seeds"),
        ("seeds=[1,2]", "--seeds"),
        ("jobs=3", "--workers N"),
        ("grid.learning_rate=[1,2]", "--seeds"),
    ],
)
def test_words_that_seeds_do_not_share(study: Path, word: str, remedy: str) -> None:
    with pytest.raises(RecipeError, match=f"{remedy}"):
        stability(str(study), [word])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("grid = { learning_rate = [1e-5] }\n", "grid: found several settings; wanted one"),
        ('step = "all"\ninit = "x"\n', "step: found several settings; wanted one"),
    ],
)
def test_trials_are_no_seeds(tuning: Path, text: str, complaint: str) -> None:
    tuning.write_text(text + FINETUNING)
    with pytest.raises(RecipeError, match=complaint):
        stability(str(tuning))


def test_what_is_no_study_is_refused(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stability(str(study), how=StudyOptions(seeds=(1,)))
    with pytest.raises(RecipeError, match=r"seed-1: is a folder written by `pretrain`; wanted a recipe"):
        stability(str(HERE / "seed-1"))
    with pytest.raises(RecipeError, match=r"steady: exists, but phase.learning_rate=1 is given"):
        stability(str(HERE), ["phase.learning_rate=1"])
    with pytest.raises(RecipeError, match=r"is a recipe of `tokenizer`; wanted one of pretrain or finetune"):
        stability("stdlib-wordpiece")
    Path("file").write_text("")
    with pytest.raises(RecipeError, match="out: found file, a file"):
        stability(str(study), ["out=file"])
    Run(HERE).set(of="weaving")
    with pytest.raises(RecipeError, match="does not record its kind of training"):
        stability(str(HERE))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="found 2 processes; wanted one"):
        stability(str(study))


def test_a_disk_that_fails_is_told_once(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        monkeypatch.setattr(Run, "set", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "status")))
        raise RunError("seeds", "cannot write: No space left on device")

    monkeypatch.setattr(run_group.RunGroup, "make", full)
    with pytest.raises(RunError, match=r"^seeds: cannot write: No space left on device$"):
        stability(str(study))


def test_a_study_that_is_done_may_lie_where_nothing_can_be_written(
    study: Path, read_only: Any, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stability(str(study), how=StudyOptions(seeds=(1, 2)))
    read_only(HERE.absolute())
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert stability(str(study), how=StudyOptions(seeds=(1, 2))) == before
    with pytest.raises(OrdsmedError, match="cannot write"):
        stability(str(study), how=StudyOptions(seeds=(1, 2, 3)))
    assert len(made.begun) == 2


def precisions(name: str) -> set[str]:
    """Of the seeds of a study, as their recipes say it."""
    return {settings.read(path)["layout"]["precision"] for path in Path("work/stability", name).glob("seed-*.toml")}


def test_a_precision_is_measured_beside_as_many_processes_as_will_run(
    study: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has this number of devices, and the runs share the cores."""
    asked: list[int] = []
    monkeypatch.setattr(run_group, "fastest_precision", lambda kind, recipe, beside: asked.append(beside) or "fp32")
    for number, (workers, devices) in enumerate([(2, 3), (2, 0), (1, 2)]):
        how = StudyOptions(seeds=(1, 2, 3), workers=workers, devices=devices)
        stability(str(study), ["layout.precision=auto", f"out=study-{number}"], how)
    assert asked == [6, 2, 2]


def test_all_seeds_have_one_precision(study: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen once, before the first; seeds that come later keep it, though another would be chosen now."""
    answers, words = ["fp32", "bf16"], ["layout.precision=auto"]
    monkeypatch.setattr(
        run_group, "fastest_precision", lambda kind, recipe, beside: say("it was chosen") or answers.pop()
    )
    stability(str(study), words, StudyOptions(seeds=(1, 2)))
    assert "it was chosen\n" in (HERE / "log.txt").read_text()
    stability(str(study), words, StudyOptions(seeds=(1, 2, 3)))
    stability(str(HERE), how=StudyOptions(seeds=(1, 2, 3, 4)))
    assert precisions("steady") == {"bf16"}
    assert answers == ["fp32"]
    stability(str(study), words, StudyOptions(seeds=(1,), anew=True))
    assert precisions("steady") == {"fp32"}


@pytest.mark.parametrize(("workers", "devices", "beside"), [(0, 0, 4), (2, 0, 2), (2, 3, 6), (0, 4, 8), (1, 1, 1)])
def test_a_precision_is_chosen_beside_as_many_processes_as_will_run(
    study: Path, made: Made, monkeypatch: pytest.MonkeyPatch, workers: int, devices: int, beside: int
) -> None:
    """Of eight cores, which are shared by as many; each run is begun with its devices."""
    told: list[int] = []
    begun: set[tuple[int, int]] = set()

    def start(one: PlannedRun, place: dict[str, str], threads: int, devices: int) -> Any:
        begun.add((threads, devices))
        return made.start(one, place, threads, devices)

    monkeypatch.setattr(run_group, "cores", lambda: 8)
    monkeypatch.setattr(run_group, "threads_of", lambda *, local_world: local_world)
    monkeypatch.setattr(run_group, "start", start)
    monkeypatch.setattr(run_group, "fastest_precision", lambda kind, recipe, beside: told.append(beside) or "fp32")  # type: ignore[func-returns-value]
    stability(str(study), ["layout.precision=auto"], StudyOptions(FIVE.seeds, workers, devices))
    assert (told, begun) == ([beside], {(beside, devices)})


@pytest.mark.parametrize("first", [0, 1, None])
def test_what_is_compared_is_computed_alike(
    study: Path, made: Made, recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, first: int | None
) -> None:
    """The second recipe takes the precision of the first one's study, or the other way round."""
    answers, words, both = ["fp32", "bf16"], ["layout.precision=auto"], [str(study), str(recipe("quicker", clip=0.5))]
    monkeypatch.setattr(run_group, "fastest_precision", lambda kind, recipe, beside: answers.pop())
    if first is not None:
        stability(both[first], words, StudyOptions(seeds=(1, 2)))
    compare(*both, words, StudyOptions(seeds=(1, 2)))
    assert (precisions("steady"), precisions("quicker"), answers) == ({"bf16"}, {"bf16"}, ["fp32"])
    compare(*both, words, StudyOptions(seeds=(1, 2), anew=True))
    assert (precisions("steady"), precisions("quicker"), answers) == ({"fp32"}, {"fp32"}, [])


def test_a_precision_that_is_named_stays(
    study: Path, made: Made, recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_group, "fastest_precision", lambda *_: pytest.fail("chosen"))
    second = recipe("quicker", clip=0.5)
    second.write_text(second.read_text().replace("fp32", "bf16"))
    compare(str(study), str(second), how=StudyOptions(seeds=(1, 2)))
    assert (precisions("steady"), precisions("quicker")) == ({"fp32"}, {"bf16"})


def test_two_recipes_are_compared_seed_by_seed(study: Path, made: Made, recipe: Callable[..., Path]) -> None:
    """The second is lower by about 0.1 at every seed: pairs show it, though the seeds differ by as much."""
    second = recipe("quicker", clip=0.5)
    shift = {1: 0.10, 2: 0.09, 3: 0.11, 4: 0.10, 5: 0.12}
    made.scores = lambda one: {
        "validation": LOSSES[one.recipe.seed] - (shift[one.recipe.seed] if one.recipe.clip == 0.5 else 0)
    }
    result = compare(str(study), str(second), how=FIVE)
    lower = paired(LOSSES, {seed: loss - shift[seed] for seed, loss in LOSSES.items()})
    assert [pair["difference"] for pair in result["pairs"]] == list(lower.differences.values())
    assert result["over"]["mean"] == lower.over.mean
    assert result["shown"]
    folder = Path("work/stability/steady-and-quicker")
    page = (folder / "comparison.md").read_text()
    assert "# quicker against steady: validation" in page
    assert "validation of quicker less that of steady: -0.104; 95% interval -0.118 to -0.090" in page
    assert "quicker is better." in page
    assert "| clip    | 1.0    | 0.5     |" in page
    assert files.read_json(folder / "comparison.json")["over"]["mean"] == result["over"]["mean"]
    assert "steady" in (folder / "comparison.svg").read_text()
    assert len(made.begun) == 10
    again = compare("work/stability/steady", "work/stability/quicker")
    assert again["pairs"] == result["pairs"], "folders that stand are compared alike"
    assert len(made.begun) == 10
    back = compare(str(second), str(study), how=FIVE)
    assert back["over"]["mean"] == -result["over"]["mean"]
    assert "quicker is better" in Path("work/stability/quicker-and-steady/comparison.md").read_text()


def test_where_the_interval_holds_0_no_difference_is_shown(
    study: Path, made: Made, recipe: Callable[..., Path]
) -> None:
    second = recipe("other", clip=0.5)
    made.scores = lambda one: {"validation": LOSSES[one.recipe.seed if one.recipe.clip == 1 else 6 - one.recipe.seed]}
    result = compare(str(study), str(second), ["out=both"], FIVE)
    assert not result["shown"]
    text = Path("both/comparison.md").read_text()
    assert "no difference shown, the interval holds 0." in text
    assert "better" not in text
    assert (Path("both") / "steady" / "stability.md").exists(), "out= is the place of all"
    made.scores = lambda one: {"validation": 1.0}
    one = compare(str(study), str(second), ["out=one"], StudyOptions(seeds=(1,)))
    assert (one["shown"], one["over"]["interval"]) == (False, None)
    assert "from 1 seed, too few for an interval: no difference shown" in Path("one/comparison.md").read_text()


def test_three_seeds_that_point_one_way_suggest_how_many_more(
    study: Path, made: Made, recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    second = recipe("other", clip=0.5)
    made.scores = lambda one: {"validation": 5.0 - (one.recipe.seed if one.recipe.clip == 0.5 else 0)}
    words = ["stability", str(study), str(second), "--seeds", "1..3"]
    cli.main(words)
    said = capsys.readouterr().out
    lines = ["all differ in one direction: 1 more seed like these would decide:"]
    lines.append("    ordsmed stability work/stability/steady work/stability/other --seeds 1,2,3,4")
    assert "no difference shown" in said
    assert "\n".join(lines) in said
    assert "\n".join(lines) in Path("work/stability/steady-and-other/comparison.md").read_text()
    cli.main(shlex.split(lines[1])[1:])
    said = capsys.readouterr().out
    assert "4 seeds paired: other is better" in said
    assert "would decide" not in said


def test_higher_scores_are_better_where_they_are(tuning: Path, made: Made) -> None:
    other = tuning.with_name("slower.toml")
    other.write_text("clip = 0.5\n" + FINETUNING)
    made.scores = lambda one: {"accuracy": 80.0 + one.recipe.seed + (2.0 if one.recipe.clip == 0.5 else 0.0)}
    result = compare(str(tuning), str(other), how=FIVE)
    assert (result["metric"], result["over"]["mean"], result["over"]["deviation"]) == ("accuracy", 2.0, 0.0)
    assert "slower is better" in Path("work/stability/tuning-and-slower/comparison.md").read_text()


def test_a_seed_that_failed_is_in_no_pair(
    study: Path, made: Made, recipe: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    second = recipe("other", clip=0.5)
    made.complaints = {"seed-2": "here: it burns"}
    with pytest.raises(RunError, match="steady: 1 of 3 seeds failed: 2"):
        compare(str(study), str(second), how=StudyOptions(seeds=(1, 2, 3)))
    assert "2 seeds paired: no difference shown, the interval holds 0" in capsys.readouterr().err
    found = files.read_json(Path("work/stability/steady-and-other/comparison.json"))
    assert [pair["seed"] for pair in found["pairs"]] == [1, 3]
    assert [recipe["left_out"] for recipe in found["recipes"]] == [[{"seed": 2, "why": "here: it burns"}]] * 2
    text = Path("work/stability/steady-and-other/comparison.md").read_text()
    assert "other, seed 2 is in no pair: here: it burns" in text
    made.complaints = {f"seed-{seed}": "here: it burns" for seed in (1, 2, 3)}
    shutil.rmtree("work/stability/other")
    with pytest.raises(RunError, match="seeds failed"):
        compare(str(study), str(second), how=StudyOptions(seeds=(1, 2, 3)))
    text = Path("work/stability/steady-and-other/comparison.md").read_text()
    assert "no difference shown: no seed has a score with both recipes." in text


def test_seeds_of_one_recipe_alone_are_in_no_pair(study: Path, made: Made, recipe: Callable[..., Path]) -> None:
    second = recipe("other", clip=0.5)
    stability(str(study), how=StudyOptions(seeds=(1, 2)))
    stability(str(second), how=StudyOptions(seeds=(2, 3)))
    found = compare("work/stability/steady", "work/stability/other")
    assert [pair["seed"] for pair in found["pairs"]] == [2]
    assert found["recipes"][0]["left_out"] == [{"seed": 1, "why": "the other recipe has no score with it"}]


def test_studies_of_one_name_are_told_apart_by_their_folders(study: Path) -> None:
    stability(str(study), ["out=one/steady"], StudyOptions(seeds=(1, 2)))
    stability(str(study), ["out=two/steady", "clip=0.5"], StudyOptions(seeds=(1, 2)))
    result = compare("one/steady", "two/steady")
    assert [recipe["name"] for recipe in result["recipes"]] == ["one/steady", "two/steady"]
    assert result["over"]["mean"] == 0.0
    assert not result["shown"]


def test_what_cannot_be_compared(study: Path, tuning: Path, made: Made, recipe: Callable[..., Path]) -> None:
    with pytest.raises(RecipeError, match=r"is of pretrain, .* of finetune; wanted two of the same kind"):
        compare(str(study), str(tuning))
    with pytest.raises(RecipeError, match="has the folder of"):
        compare(str(study), str(study))
    made.scores = lambda one: {"validation": 1.0} if one.recipe.clip == 1 else {}
    with pytest.raises(RecipeError, match="other: has no validation; wanted a score of both recipes; --metric"):
        compare(str(study), str(recipe("other", clip=0.5)), how=StudyOptions(seeds=(1,)))
    assert made.begun == ["seed-1", "seed-1"]


def test_the_command(study: Path, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["stability", str(study), "--seeds", "1..2", "--json"])
    assert json.loads(capsys.readouterr().out) == files.read_json(HERE / "stability.json")
    cli.main(["stability", str(study), "--seeds", "1,2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("validation 8.705 ± 0.021: mean and sample deviation (n - 1) of 2 seeds")
    assert lines[1] == f"{HERE}/stability.md has each seed, stability.html their curves"
    made.complaints = {"seed-3": "here: it burns"}
    with pytest.raises(SystemExit) as ended:
        cli.main(["stability", str(study), "--seeds", "1..3"])
    assert ended.value.code == 1
    assert "ordsmed: work/stability/steady: 1 of 3 seeds failed: 3" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["stability", str(study), str(study), str(study)])
    assert ended.value.code == 2
    shown = show(str(HERE))
    assert shown[:2] == [f"{HERE}: stability", "state: failed"]
    assert any("seed 3 is not in the mean: here: it burns" in line for line in shown)
    assert f"picture: {HERE}/stability.svg" in shown


@pytest.mark.parametrize(
    ("value", "deviation", "text"),
    [
        (8.7, 0.0158, "8.700"),
        (87.022, 0.1693, "87.02"),
        (0.123456, 0.00012345, "0.12346"),
        (5.0, 0.0, "5.0000"),
        (1234.5, 30.0, "1234.50"),
        (1.0, 1e-30, "1.00000000"),
    ],
)
def test_numbers_have_the_digits_that_their_deviation_leaves(value: float, deviation: float, text: str) -> None:
    assert results.rounded(value, deviation) == text


def test_the_last_loss_is_the_mean_of_the_last_steps_as_a_report_tells_it(study: Path, made: Made) -> None:
    made.scores = lambda one: {"validation": 5.0, "loss": one.recipe.seed + 1 / 6}  # as runs leave it
    [row] = stability(str(study), [], StudyOptions(seeds=(3,)))["runs"]
    own = read_one(Path(row["folder"]), 10)["course"]["loss"]
    assert row["scores"]["loss"] == pytest.approx(own) == pytest.approx(3 + sum(1 / step for step in range(1, 7)) / 6)
    lines = "".join(json.dumps({"step": n, "loss": 100.0 if n <= 90 else n / 10}) + "\n" for n in range(1, 101))
    (Path(row["folder"]) / "metrics.jsonl").write_text(lines)
    [row] = stability(row["folder"].rpartition("/")[0])["runs"]
    assert (
        row["scores"]["loss"]
        == pytest.approx(9.55)
        == pytest.approx(read_one(Path(row["folder"]), 10)["course"]["loss"])
    )


def test_a_last_loss_that_is_no_number_is_none(study: Path, made: Made) -> None:
    result = stability(str(study), ["out=one"], StudyOptions(seeds=(1,)))
    with Path("one/seed-1/metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": NaN}\n{"step": 8, "loss": 2.0}\n')
    [row] = stability("one")["runs"]
    assert result["runs"][0]["scores"]["loss"] is not None
    assert row["scores"]["loss"] is None


def test_seeds_that_stand_beside_are_told(study: Path, made: Made) -> None:
    stability(str(study), [], StudyOptions(seeds=(1, 2, 3)))
    result = stability(str(study), [], StudyOptions(seeds=(2, 4)))
    assert (result["beside"], result["over"]["validation"]["count"]) == ([1, 3], 2)
    text = (Path(result["folder"]) / "stability.md").read_text()
    assert "seeds 1, 3 exist but are not in this table: --seeds 1,2,3,4" in text
    whole = stability(str(study), [], StudyOptions(seeds=(1, 2, 3, 4)))
    assert (whole["beside"], whole["over"]["validation"]["count"]) == ([], 4)
    assert "exist but are not" not in (Path(result["folder"]) / "stability.md").read_text()


@pytest.mark.parametrize(
    ("words", "unlike"),
    [
        ({"mask_prob": 0.3}, ["objective.mask_prob"]),
        ({"learning_rate": 0.5}, []),
        ({"length": 16}, ["phase[1].length"]),
    ],
)
def test_scores_of_different_things_show_no_better_one(
    study: Path, made: Made, words: dict[str, float], unlike: list[str]
) -> None:
    text = study.read_text()
    lines = text.splitlines()
    for key, value in words.items():
        place = "[objective]" if key == "mask_prob" else "[[phase]]"
        lines = [line for line in lines if not line.startswith(f"{key} =")]
        lines.insert(lines.index(place) + 1, f"{key} = {value}")
    study.with_name("other.toml").write_text("\n".join(lines))
    made.scores = lambda one: {"validation": LOSSES[one.recipe.seed] - ("other" in str(one.folder))}
    result = compare(str(study), str(study.with_name("other.toml")), [], StudyOptions(seeds=(1, 2, 3)))
    assert (result["shown"], result["unlike"]) == (True, unlike)
    page = (Path(result["folder"]) / "comparison.md").read_text()
    assert ("other is better" in page) == (not unlike)
    if unlike:
        assert f"which is better is unknown, because validation is not comparable when {unlike[0]} differs" in page


def test_recipes_of_two_precisions_differ(study: Path, made: Made) -> None:
    study.with_name("other.toml").write_text('like = "steady.toml"\n[layout]\nprecision = "bf16"\n')
    made.scores = lambda one: {"validation": LOSSES[one.recipe.seed]}
    result = compare(str(study), str(study.with_name("other.toml")), [], StudyOptions(seeds=(1, 2, 3)))
    assert set(result["settings"]) == {"layout.precision"}
    assert "The two recipes have the same settings" not in (Path(result["folder"]) / "comparison.md").read_text()
