"""Trials looked at without making one: which are planned, where they run, what is said of them, which is the best."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import files, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.base.folder import TRIALS
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.learn.tasks import classify
from ordsmed.nn.models import bert
from ordsmed.train import grid, request, run_group, scores, trial_results, trials
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.finetune.summary import summary_lines
from ordsmed.train.finetune.trials import FinetuningTrials
from ordsmed.train.grid import Trial
from ordsmed.train.mesh.layout import Layout


def recipe(folder: Path, **how: Any) -> Finetuning:
    task = classify.Classify(train="train.tsv", dev="dev.tsv", length=16)
    said = {
        "task": task,
        "model": bert.Bert(),
        "tokenizer": "vocab.txt",
        "steps": 5,
        "out": str(folder),
        "layout": Layout(precision="fp32"),
    }
    return Finetuning(**{**said, **how})


def perform(folder: Path, recipe: Finetuning, name: str, **how: Any) -> Path:
    return FinetuningTrials.of(folder, recipe, name).perform(**how)


def planned(folder: Path, **how: Any) -> list[Trial]:
    return list(FinetuningTrials.of(folder, recipe(folder, **how), "the recipe").runs)


def done(trial: Trial, accuracy: float | None, f1: float = 50.0, guessing: float = 40.0) -> Trial:
    """A trial that has been made, with these scores."""
    trial.folder.mkdir(parents=True)
    Run(trial.folder).set(verb="finetune", state="done")
    scores = {} if accuracy is None else {"accuracy": accuracy, "f1": f1, "validation": 0.5}
    files.write_json(trial.folder / "scores.json", {"step": 5, **scores, "guessing": {"accuracy": guessing}})
    (trial.folder / "checkpoints").mkdir()
    lines = [{"step": 1, "seconds": 1.25}, {"step": 2, "seconds": 2.0}, {"step": 2, "validation": 1.0}]
    (trial.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return trial


def test_a_trial_for_each_combination_and_seed(tmp_path: Path) -> None:
    """Named by the last part of a setting's path, or by the whole where two would be alike."""
    found = planned(tmp_path, seeds=(1, 2), grid={"learning_rate": [1e-5, 3e-5], "task": {"length": [8]}})
    assert [trial.name for trial in found] == [
        f"learning_rate-{rate},length-8,seed-{seed}" for rate in ("1e-05", "3e-05") for seed in (1, 2)
    ]
    assert [trial.setting for trial in found[::2]] == [
        {"learning_rate": 1e-5, "length": 8},
        {"learning_rate": 3e-5, "length": 8},
    ]
    made = found[3].recipe
    assert (made.learning_rate, made.task.length, made.seed, made.seeds, made.grid) == (3e-5, 8, 2, (), {})
    assert found[0].folder == tmp_path / "trials" / found[0].name
    assert found[0].path == tmp_path / "trials" / f"{found[0].name}.toml"
    assert [trial.recipe.seed for trial in planned(tmp_path, seed=7, grid={"batch": [8, 16]})] == [7, 7]
    (alike,) = planned(tmp_path, grid={"schedule": {"decay": [0.5]}, "optimizer": {"decay": [0.25]}, "clip": [2.0]})
    assert alike.name == "schedule.decay-0.5,optimizer.decay-0.25,clip-2.0,seed-0"


def test_the_same_trial_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="are the same trial; wanted others"):
        planned(tmp_path, grid={"learning_rate": [1e-5, 0.00001]})
    with pytest.raises(RecipeError, match="are the same trial"):
        planned(tmp_path, grid={"schedule": ["linear", {"kind": "linear"}]})


def test_the_best_is_the_first_of_the_highest_score(tmp_path: Path) -> None:
    made = planned(tmp_path, seeds=(1, 2, 3, 4))
    for trial, accuracy in zip(made, (70.0, 90.0, 90.0, None), strict=True):
        done(trial, accuracy)
    assert trial_results.best_of(made, "accuracy") is made[1]
    assert trial_results.best_of(made[3:], "accuracy") is made[3]
    odd = planned(tmp_path / "odd", seeds=(1, 2))
    for trial, accuracy in zip(odd, (math.nan, 10.0), strict=True):
        done(trial, accuracy)
    assert trial_results.best_of(odd, "accuracy") is odd[1], "what is no number comes last"


def test_what_is_compared(tmp_path: Path) -> None:
    """Means over the seeds that are done, the deviation of a sample, and the one setting with the highest mean."""
    made = planned(tmp_path, seeds=(1, 2), grid={"learning_rate": [1e-5, 3e-5]})
    for trial, accuracy in zip(made[:3], (70.0, 80.0, 77.0), strict=True):
        done(trial, accuracy)
    found = trial_results.compare("accuracy", made, {made[3].name: "out of memory"})
    low, high = found["settings"]
    assert (low["setting"], low["seeds"], high["seeds"]) == ({"learning_rate": 1e-5}, [1, 2], [1])
    assert low["scores"]["accuracy"] == {"mean": 75.0, "best": 80.0, "deviation": pytest.approx(50.0**0.5)}
    assert high["scores"]["accuracy"] == {"mean": 77.0, "best": 77.0}
    assert "validation" not in low["scores"]
    assert low["guessing"]["accuracy"]["mean"] == 40.0
    assert (low["best"], high["best"], found["best"], found["score"]) == (False, True, made[1].name, "accuracy")
    assert found["trials"][0] == {
        "trial": made[0].name,
        "setting": {"learning_rate": 1e-5},
        "seed": 1,
        "step": 5,
        "seconds": 3.2,
        "scores": {"accuracy": 70.0, "f1": 50.0},
    }
    assert found["trials"][3]["failed"] == "out of memory"
    (only,) = trial_results.compare("accuracy", made[:2], {})["settings"]
    assert not only["best"], "one setting is compared with nothing"
    none = trial_results.compare("accuracy", made[3:], {made[3].name: "-"})
    assert (none["best"], none["settings"][0]["best"]) == (None, False)


def test_the_table(tmp_path: Path) -> None:
    made = planned(tmp_path, seeds=(1, 2), grid={"learning_rate": [1e-5, 3e-5]})
    for trial, accuracy in zip(made[:3], (70.0, 80.0, 77.0), strict=True):
        done(trial, accuracy)
    lines = trial_results.table("tiny", trial_results.compare("accuracy", made, {made[3].name: "out of memory"}))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert lines[0] == "# tiny: 4 trials"
    assert cells[0] == ["setting", "seeds", "accuracy", "best", "guessing", "f1"]
    assert cells[2][1:] == ["2", "75.00 ± 7.07", "80.00", "40.00", "50.00 ± 0.00"]
    assert cells[3][1:] == ["1", "**77.00**", "77.00", "40.00", "50.00"]
    assert cells[3][0].startswith("**")
    assert not cells[2][0].startswith("**")
    assert cells[6:] == [
        [made[0].name, "70.00", "5", "3", ""],
        [made[1].name, "80.00", "5", "3", "←"],
        [made[2].name, "77.00", "5", "3", ""],
        [made[3].name, "failed", "", "", ""],
    ]
    assert lines[-1] == f"\n{made[3].name} failed: out of memory"
    wide = {len(line) for line in lines[4:8] if line.startswith("|")}
    assert len(wide) == 1, "columns stand one below the other"


def test_only_the_best_so_far_keeps_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = planned(tmp_path, seeds=(1, 2, 3))
    done(made[0], 70.0)
    done(made[1], 80.0)
    monkeypatch.setattr(FinetuningTrials, "score", "accuracy")
    group = FinetuningTrials.of(tmp_path, recipe(tmp_path, seeds=(1, 2, 3)), "the recipe")
    group.note(made[1], "5 s")
    assert [(trial.folder / "checkpoints").exists() for trial in made[:2]] == [False, True]
    assert (
        f"seed-2: accuracy 80.00; 2 of 3 done, 5 s left; best: accuracy 80.00, {made[1].name}"
        in capsys.readouterr().err
    )
    done(made[2], 75.0)
    group.note(made[2], "")
    assert "seed-3: accuracy 75.00; 3 of 3 done; best: accuracy 80.00, seed-2" in capsys.readouterr().err
    assert [(trial.folder / "checkpoints").exists() for trial in made] == [False, True, False]
    assert [trials.has_only_weights(str(trial.folder)) for trial in made] == [True, False, True]
    assert not trials.has_only_weights(str(tmp_path))


def test_a_file_is_linked_where_a_disk_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("weights")
    trials._link(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "a").samefile(tmp_path / "b")

    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(trials.os, "link", refuse)
    trials._link(str(tmp_path / "a"), str(tmp_path / "c"))
    assert (tmp_path / "c").read_text() == "weights"
    assert not (tmp_path / "a").samefile(tmp_path / "c")


@pytest.mark.parametrize(
    ("value", "name", "toml"),
    [
        (3e-5, "3e-05", "3e-05"),
        ("a b/c", "a_b_c", '"a b/c"'),
        (True, "true", "true"),
        ({"kind": "wsd", "decay": 0.1}, "kind_wsd_decay_0.1", '{"kind" = "wsd", "decay" = 0.1}'),
        ([0.9, 0.98], "0.9_0.98", "[0.9, 0.98]"),
        ("x" * 70, "x" * 60, '"' + "x" * 70 + '"'),
        ("x" * 70 + "/step-2", "x" * 53 + "_step-2", '"' + "x" * 70 + '/step-2"'),
    ],
)
def test_a_value_in_a_name_and_in_a_recipe(value: Any, name: str, toml: str) -> None:
    assert (grid._in_a_name(value), settings.literal(value)) == (name, toml)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What trials.asked answers of a recipe's file with more words."""
    (tmp_path / "tiny.toml").write_text(
        'tokenizer = "vocab.txt"\nsteps = 5\n[model]\nkind = "bert"\n[task]\nkind = "classify"\n'
        'train = "a.tsv"\ndev = "b.tsv"\nlength = 16\n'
    )
    monkeypatch.setattr(trials.os, "environ", {})
    return lambda *words, **how: FinetuningTrials.asked(
        str(tmp_path / "tiny.toml"), [f'out="{tmp_path}/out"', *words], **how
    )


def test_trials_are_asked_for_by_seeds_and_grids(asked: Callable[..., Any], tmp_path: Path) -> None:
    assert asked() is None
    group = asked("seeds=[1,2]", layout="1x1x1")
    folder, found = group.folder, group.recipe
    assert (folder, found.seeds, found.layout.replicate) == (tmp_path / "out", (1, 2), 1)
    for how, said in (({"deadline": 60.0}, "--deadline"), ({"layout": "auto"}, "--layout: found auto")):
        with pytest.raises(RecipeError, match=said):
            asked("seeds=[1,2]", **how)
        assert asked(**how) is None
    folder.mkdir()
    Run(folder).set(verb="finetune")
    (folder / TRIALS).write_text("")
    with pytest.raises(RecipeError, match="holds several trials; wanted one run"):
        asked()
    assert asked(anew=True) is None


@pytest.fixture
def at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trials that are done as soon as they begin, better with every seed; that of seed 9 complains. What was begun."""
    begun: list[str] = []
    monkeypatch.chdir(tmp_path)
    for name in ("train.tsv", "dev.tsv", "vocab.txt"):
        Path(name).write_text("[UNK]\n")

    class AtOnce:
        def __init__(self, trial: Trial, place: dict[str, str], threads: int, devices: int) -> None:
            begun.append(trial.name)
            self.returncode = int(trial.recipe.seed == 9)
            trial.output_file.write_text("ordsmed: here: it burns\n")
            if self.returncode:
                return
            shutil.rmtree(trial.folder, ignore_errors=True)
            done(trial, 60.0 + trial.recipe.seed)
            for name in ("weights/model.safetensors", "predictions/predictions.tsv"):
                (trial.folder / name).parent.mkdir()
                (trial.folder / name).write_text(f"{name} of {trial.name}")
            files.write_text(trial.folder / "recipe.toml", settings.write(trial.recipe))

        def poll(self) -> int:
            return self.returncode

    monkeypatch.setattr(run_group, "start", AtOnce)
    monkeypatch.setattr(run_group, "LOOK", 0.0)
    return begun


def precisions(folder: Path) -> dict[str, str]:
    """Of each trial, as its recipe says it."""
    tables = {path.stem: settings.read(path) for path in (folder / "trials").glob("*.toml")}
    return {name: table["layout"]["precision"] for name, table in tables.items()}


def test_all_trials_have_one_precision(tmp_path: Path, at_once: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen once, before the first; trials that come later keep it, though another would be chosen now."""
    answers, folder = ["bf16"], tmp_path / "out"
    monkeypatch.setattr(
        run_group, "fastest_precision", lambda kind, recipe, beside: say("it was chosen") or answers.pop()
    )
    perform(folder, recipe(folder, layout=Layout(), seeds=(1, 2), jobs=1), "r")
    perform(folder, recipe(folder, layout=Layout(), seeds=(1, 2, 3), jobs=1), "r")
    perform(folder, recipe(folder, layout=Layout(), seeds=(1, 2, 3, 4), jobs=1), "r", part=(3, 4))
    assert precisions(folder) == {f"seed-{seed}": "bf16" for seed in (1, 2, 3, 4)}
    assert (folder / "log.txt").read_text().splitlines().count("it was chosen") == 1
    assert settings.read(folder / TRIALS)["layout"]["precision"] == "bf16"
    answers.append("fp32")
    perform(folder, recipe(folder, layout=Layout(), seeds=(1,), jobs=1), "r", anew=True)
    assert precisions(folder) == {"seed-1": "fp32"}


@pytest.mark.parametrize(("jobs", "trials_beside"), [(0, 3), (2, 2), (9, 3)])
def test_a_precision_is_chosen_beside_as_many_trials_as_will_run(
    tmp_path: Path, at_once: list[str], monkeypatch: pytest.MonkeyPatch, jobs: int, trials_beside: int
) -> None:
    told: list[int] = []
    monkeypatch.setattr(run_group, "cores", lambda: 12)
    monkeypatch.setattr(run_group, "fastest_precision", lambda kind, recipe, beside: told.append(beside) or "fp32")  # type: ignore[func-returns-value]
    perform(tmp_path / "out", recipe(tmp_path / "out", layout=Layout(), seeds=(1, 2, 3), jobs=jobs), "r")
    assert told == [trials_beside]


def test_a_grid_may_name_precisions(tmp_path: Path, at_once: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is chosen, as none is left open; one that comes later and leaves it open is settled too."""
    folder, grids = tmp_path / "out", [["fp32", "bf16"], ["fp16", "auto"]]
    monkeypatch.setattr(run_group, "fastest_precision", lambda *_: pytest.fail("chosen"))
    perform(folder, recipe(folder, layout=Layout(), grid={"layout.precision": grids[0]}, jobs=1), "r")
    assert sorted(precisions(folder).values()) == ["bf16", "fp32"]
    monkeypatch.setattr(run_group, "fastest_precision", lambda *_: "bf16")
    perform(folder, recipe(folder, layout=Layout(), grid={"layout.precision": grids[1]}, jobs=1), "r")
    assert precisions(folder)["precision-auto,seed-0"] == "bf16"


def test_trials_of_before_were_in_fp32(tmp_path: Path, at_once: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    perform(folder, recipe(folder, seeds=(1,), jobs=1), "r")
    path = folder / TRIALS
    path.write_text(path.read_text().replace('precision = "fp32"\n', ""))
    monkeypatch.setattr(run_group, "fastest_precision", lambda *_: pytest.fail("chosen"))
    again = FinetuningTrials.asked(str(folder), ["seeds=[1,2]"])
    assert again
    assert again.recipe.layout.precision == "fp32"
    perform(folder, recipe(folder, layout=Layout(), seeds=(1, 2), jobs=1), "r")
    assert precisions(folder) == {"seed-1": "fp32", "seed-2": "fp32"}


def test_trials_are_made_compared_and_stood_for(
    tmp_path: Path, at_once: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    asked = recipe(folder, seeds=(2, 1), jobs=1)
    assert perform(folder, asked, "r") == folder
    assert at_once == ["seed-2", "seed-1"]
    told = f"0 of 2 trials are done; 1 at a time; their logs are {folder}/trials/*/log.txt"
    assert told in capsys.readouterr().err
    assert (folder / "weights/model.safetensors").read_text() == "weights/model.safetensors of seed-2"
    status = Run(folder).status
    assert (status["state"], status["best"], status["accuracy"]) == ("done", "seed-2", 62.0)
    began = status["began"]
    perform(folder, recipe(folder, seeds=(2, 3), jobs=1), "r")
    assert at_once == ["seed-2", "seed-1", "seed-3"]
    assert "1 of 2 trials are done; " in capsys.readouterr().err
    for name in trials.COPIED:
        (made,) = (folder / name).iterdir()
        assert made.read_text().endswith("of seed-3")
    assert settings.read(folder / "recipe.toml") == settings.plain(asked) | {"seed": 3, "seeds": [], "jobs": 0}
    assert settings.read(folder / "recipe.toml")["out"] == str(folder)
    assert settings.read(folder / TRIALS)["seeds"] == [2, 3]
    assert files.read_json(folder / "scores.json")["accuracy"] == 63.0
    assert (Run(folder).status["best"], Run(folder).status["began"]) == ("seed-3", began)
    assert [(folder / "trials" / f"seed-{n}" / "checkpoints").exists() for n in (1, 2, 3)] == [False, False, True]
    assert not list(folder.glob("trials/*.said"))
    assert "best: accuracy 63.00, seed-3" in (folder / "log.txt").read_text()
    capsys.readouterr()
    perform(folder, recipe(folder, seeds=(2, 3), jobs=1), "r")
    assert len(at_once) == 3
    assert "trials stand" not in capsys.readouterr().err, "nothing is to be made"


def test_trials_of_another_recipe_are_begun_anew_on_request(tmp_path: Path, at_once: list[str]) -> None:
    folder = tmp_path / "out"
    perform(folder, recipe(folder, seeds=(1,), grid={"learning_rate": [1e-5, 2e-5]}), "r")
    other = recipe(folder, seeds=(1,), batch=4)
    with pytest.raises(RecipeError, match="only `seeds` and `grid` may change"):
        perform(folder, other, "r")
    assert len(list((folder / "trials").iterdir())) == 4
    perform(folder, other, "r", anew=True)
    assert sorted(path.name for path in (folder / "trials").iterdir()) == ["seed-1", "seed-1.toml"]
    perform(folder, other, "r", anew=True)
    assert len(at_once) == 4
    early = tmp_path / "early"
    FinetuningTrials.of(early, recipe(early, seeds=(1,)), "r").begin(anew=False)
    FinetuningTrials.of(early, recipe(early, seeds=(1,), batch=4), "r").begin(
        anew=False
    )  # nothing was trained: nothing is lost
    assert settings.read(early / TRIALS)["batch"] == 4


def test_a_trial_that_stands_has_the_settings_of_its_name(tmp_path: Path, at_once: list[str]) -> None:
    folder = tmp_path / "out"
    perform(folder, recipe(folder, seeds=(1, 2)), "r")
    stands = folder / "trials" / "seed-2.toml"
    stands.write_text(stands.read_text().replace("batch = ", "batch = 1"))
    with pytest.raises(RecipeError, match="seed-2: is a trial with other settings"):
        perform(folder, recipe(folder, seeds=(1, 2)), "r")
    assert Run(folder).status["state"] == "failed"
    assert "is a trial with other settings" in Run(folder).status["why"]
    shutil.rmtree(folder / "trials" / "seed-2")  # its recipe alone is nothing that stands
    perform(folder, recipe(folder, seeds=(1, 2)), "r")
    assert at_once == ["seed-1", "seed-2", "seed-2"]
    assert "why" not in Run(folder).status


def test_trials_that_fail_alike_are_told_once(
    tmp_path: Path, at_once: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(
        RunError, match="2 of 2 trials failed: learning_rate-1e-05,seed-9, learning_rate-2e-05,seed-9"
    ) as error:
        perform(folder, recipe(folder, seeds=(9,), grid={"learning_rate": [1e-5, 2e-5]}, jobs=1), "r")
    assert error.value.remedy == "run the same command again to repeat them"
    said = capsys.readouterr().err
    assert "learning_rate-1e-05,seed-9 failed: here: it burns" in said
    assert "learning_rate-2e-05,seed-9 failed for the same reason" in said


@pytest.mark.parametrize("stop_after", [1, 2])
def test_asked_to_stop_what_is_done_is_told(
    tmp_path: Path,
    at_once: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stop_after: int,
) -> None:
    folder = tmp_path / "out"

    @contextlib.contextmanager
    def asked() -> Iterator[Callable[[], int]]:
        yield lambda: signal.SIGTERM if len(list(folder.glob("trials/*/scores.json"))) >= stop_after else 0

    monkeypatch.setattr(run_group, "catch_stop_signals", asked)
    monkeypatch.setattr(run_group, "end", lambda running: None)
    with pytest.raises(Stopped) as stopped:
        perform(folder, recipe(folder, seeds=(1, 2, 3), jobs=1), "r")
    assert (stopped.value.step, stopped.value.by) == (stop_after, signal.SIGTERM)
    assert len(at_once) == stop_after
    assert Run(folder).status["state"] == "stopped"
    told = f"{stop_after} of 3 trials are done; resume it with:\n    ordsmed finetune {folder}"
    assert told in capsys.readouterr().err
    monkeypatch.setattr(run_group, "catch_stop_signals", lambda: contextlib.nullcontext(lambda: 0))
    perform(folder, recipe(folder, seeds=(1, 2, 3), jobs=1), "r")
    assert at_once == ["seed-1", "seed-2", "seed-3"]


def test_a_site_s_settings_are_every_trial_s(asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "site_layout", lambda site: {"threads": 4, "workers": 3})
    found = asked("seeds=[1,2]", "layout.workers=5", site="big").recipe
    assert (found.layout.threads, found.layout.workers) == (4, 5)


def test_a_table_has_room_for_six_scores(tmp_path: Path) -> None:
    row = {
        "setting": {},
        "seeds": [1],
        "best": False,
        "guessing": {},
        "scores": {f"s{n}": {"mean": float(n), "best": float(n)} for n in range(9)},
    }
    lines = trial_results.table("t", {"score": "s3", "best": None, "settings": [row], "trials": []})
    (head,) = [line for line in lines if line.startswith("| setting")]
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "setting",
        "seeds",
        "s3",
        "best",
        "guessing",
        "s0",
        "s1",
        "s2",
        "s4",
        "s5",
    ]
    assert lines[0] == "# t: 0 trials"


def test_what_a_person_is_told_of_what_is_done(tmp_path: Path, at_once: list[str]) -> None:
    folder = tmp_path / "out"
    perform(folder, recipe(folder, seeds=(1, 2), grid={"learning_rate": [1e-5, 2e-5]}), "r")
    assert summary_lines(folder) == [
        f"{folder}: 4 trials are done; {folder}/trials.md compares them",
        "  learning_rate 1e-05  accuracy 61.50 ± 0.71 (2 seeds)  <- best",
        "  learning_rate 2e-05  accuracy 61.50 ± 0.71 (2 seeds)  <- best",
        "the folder has the results of the best trial, learning_rate-1e-05,seed-2",
        "guessing: accuracy 40.00",
    ]
    alone = folder / "trials" / "learning_rate-1e-05,seed-2"
    assert summary_lines(alone)[0] == f"{alone}: done; step 5: accuracy 62.00, f1 50.00"
    files.write_json(alone / "scores.json", {"step": 5})
    assert summary_lines(alone) == [f"{alone}: done"]
    files.write_json(alone / "scores.json", {"step": 5, "guessing": 3})
    with pytest.raises(DataError, match="`guessing` is 3, no table of scores"):
        scores.read_scores(alone)
