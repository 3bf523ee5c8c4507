"""The deed `finetune`: what it starts from, refuses, learns and leaves; killed at any moment, it goes on to the bit."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.processes import Process
from kit.task_files import task_files
from ordsmed.base import files, snapshots
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.learn.inference import predict_all
from ordsmed.learn.task import packing, reader
from ordsmed.nn import adapters
from ordsmed.nn.model import own_tensors
from ordsmed.tell.show.show import show
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import average, fitting
from ordsmed.train.deadline import Deadline
from ordsmed.train.finetune.examples import TaskData
from ordsmed.train.finetune.finetune import finetune, rehearse
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.use.predict import evaluate, predict
from ordsmed.weights import boxes, weights
from ordsmed.weights.export import export
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model

NETWORK = {"kind": "bert", "width": 32, "layers": 2, "heads": 2, "positions": 64}
LAYOUT = {"device": "cpu", "threads": 1}
ENDING = {"classify": "tsv", "tag": "conll", "squad": "json"}


@pytest.fixture(autouse=True)
def _no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_files(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def pretrained(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps over the same vocabulary."""
    folder = tmp_path_factory.mktemp("before")
    (folder / "before.toml").write_text(
        f'data = "{store}"\nout = "{folder}/run"\nsave = 2\nkeep = 9\n[layout]\ndevice = "cpu"\nthreads = 1\n'
        '[model]\nkind = "bert"\nwidth = 32\nlayers = 2\nheads = 2\npositions = 64\n[objective]\nkind = "mlm"\n'
        "[[phase]]\nsteps = 4\nlength = 32\nbatch = 8\nrate = 2e-3\n"
    )
    return pretrain(str(folder / "before.toml"))


Recipe = Callable[..., str]


@pytest.fixture
def recipe(data: Path, tmp_path: Path) -> Recipe:
    """Write a recipe; keywords are its settings, `init` takes the place of network and tokenizer."""

    def write(name: str = "run", kind: str = "classify", task: dict[str, Any] | None = None, **said: Any) -> str:
        ending = ENDING[kind]
        top = {
            "steps": 12,
            "batch": 8,
            "learning_rate": 2e-3,
            "warmup": 2,
            "save": 3,
            "keep": 9,
            "features": "",
            "out": str(tmp_path / name),
        }
        begin = {} if "init" in said else {"tokenizer": str(data / "vocab.txt"), "model": NETWORK}
        own = {"kind": kind, "train": f"{data}/train.{ending}", "dev": f"{data}/dev.{ending}", "length": 24}
        tables = {"layout": LAYOUT, "task": {**own, **(task or {})}}
        path = tmp_path / f"{name}.toml"
        path.write_text("".join(f"{k} = {toml(v)}\n" for k, v in {**top, **begin, **tables, **said}.items()))
        return str(path)

    return write


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


@dataclasses.dataclass(frozen=True)
class Course:
    """All that a fine-tuning found and left, to the last bit."""

    losses: list[tuple[int, float, float]]
    validations: list[dict[str, Any]]
    left: dict[str, bytes]


def course(folder: Path) -> Course:
    lines = read(folder / "metrics.jsonl")
    left = [folder / "weights" / "model.safetensors", folder / "scores.json", *(folder / "predictions").glob("*")]
    return Course(
        [(line["step"], line["loss"], line["norm"]) for line in lines if "validation" not in line],
        [line for line in lines if "validation" in line],
        {path.name: path.read_bytes() for path in left},
    )


def scores(folder: Path) -> dict[str, Any]:
    return dict(files.read_json(folder / "scores.json"))


def checks(folder: Path) -> list[int]:
    return [line["step"] for line in course(folder).validations]


def left(folder: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    """The weights that are left, or those of a checkpoint."""
    if step is None:
        return weights.read(folder / "weights" / "model.safetensors")
    return boxes.read_weights(snapshots.path_of(folder / "checkpoints", step))


def equal(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor], *, only: str = "") -> bool:
    names = [name for name in some if name.startswith(only)]
    assert names
    return all(torch.equal(some[name], others[name]) for name in names)


def cut_back(folder: Path, step: int) -> None:
    """As if it had been killed after the checkpoint of a step."""
    for later in snapshots.steps(folder / "checkpoints"):
        if later > step:
            shutil.rmtree(snapshots.path_of(folder / "checkpoints", later))
    Run(folder).set(state="running")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """Let the checks of a run find these accuracies, whatever it learned."""

    def tell(accuracies: list[float]) -> None:
        real = TaskData.validate

        def judge(self: TaskData, job: Any, index: int) -> dict[str, Any]:
            return {**real(self, job, index), "accuracy": accuracies[len(job.state.validations)]}

        monkeypatch.setattr(TaskData, "validate", judge)

    return tell


# --- killed and started again


Start = Callable[..., Process]


@pytest.fixture
def start(nursery: Callable[..., Any], tmp_path: Path) -> Iterator[Start]:
    """`ordsmed finetune WORDS` in a process of its own; devices: so many ranks; fault: what goes wrong in each."""
    begun: list[Process] = []

    def begin(*words: object, devices: int = 0, fault: str = "") -> Process:
        out = tmp_path / f"said-{len(begun)}.txt"
        more = ["--devices", str(devices)] if devices else []
        env = {"FAULT": fault, "MARKS": str(tmp_path), "SAID": str(out), "GRACE": "5.0"}
        pid = nursery(words=["finetune", *map(str, words), *more], env=env)
        begun.append(Process(pid, lambda: nursery(poll=pid), out))
        return begun[-1]

    yield begin
    for process in begun:
        process.end()


ACCURACIES = [50.0, 80.0, 70.0, 60.0]  # with patience 2 that is all
UPS_AND_DOWNS = f"""
from ordsmed.train.finetune.examples import TaskData
judge = TaskData.validate
found = lambda job: {{"accuracy": {ACCURACIES}[len(job.state.validations)]}}
TaskData.validate = lambda self, job, index: judge(self, job, index) | found(job)
"""
KILLS = """
from ordsmed.train.finetune import finish, plan
kill = lambda moment: once(moment) and die()
steps = (1, 4, 10)
before(loop, "train_step", lambda _, batches, rate, index, inner, **__: inner in steps and kill(f"step {inner + 1}"))
before(saving.Saving, "save", lambda self, step, **_: step == 6 and kill("judged, not saved"))
before(plan, "finish", lambda *_: kill("saved, not finished"))
before(finish, "leave_weights", lambda *_: kill("predicted"))
after(finish, "leave_weights", lambda *_: kill("weights stand, scores do not"))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "more", "fault"),
    [
        ("classify", {"steps": 0, "epochs": 5.0, "patience": 2}, UPS_AND_DOWNS),
        ("squad", {"task": {"version": "2.0", "head": "joint", "threshold": "dev"}}, ""),
    ],
)
def test_kill_9_at_any_moment_loses_nothing(
    start: Start, recipe: Recipe, pretrained: Path, tmp_path: Path, kind: str, more: Any, fault: str
) -> None:
    """Before the first checkpoint, between them, between a check and its saving, and while the end is written."""
    said = {"init": str(pretrained), "adapters": {"rank": 2}} if kind == "squad" else {"init": str(pretrained)}
    whole, folder = recipe("whole", kind, **more, **said), tmp_path / "killed"
    asked = recipe("killed", kind, **more, **said)
    assert start(whole, fault=fault).wait() == 0
    wanted, kills = course(tmp_path / "whole"), 0
    while True:
        process = start(folder if kills % 2 else asked, fault=fault + KILLS)
        if process.wait() == 0:
            break
        kills += 1
        assert kills < 9, process.said
    assert kills == 7
    assert course(folder) == wanted
    if kind == "classify":
        assert "stopped early, at step 24 of 30, and is done" in process.said
        assert [checks(folder), Run(folder).status["step"]] == [[6, 12, 18, 24], 12]


@pytest.mark.long
def test_a_request_to_stop_saves_and_the_same_command_goes_on(
    start: Start, recipe: Recipe, pretrained: Path, tmp_path: Path
) -> None:
    asked, folder = recipe("stopped", init=str(pretrained)), tmp_path / "stopped"
    assert start(recipe("whole", init=str(pretrained))).wait() == 0
    process = start(asked, fault="at_step(5, lambda: once() and os.kill(os.getpid(), signal.SIGTERM))")
    assert process.wait() == 128 + signal.SIGTERM
    assert f"saved at step 5 of 12; resume it with:\n    ordsmed finetune {folder}" in process.said
    assert [Run(folder).status["state"], snapshots.steps(folder / "checkpoints")] == ["stopped", [3, 5]]
    process = start(asked)
    assert process.wait() == 0
    assert f"resumed from {folder}/checkpoints/step-000000005" in process.said
    assert course(folder) == course(tmp_path / "whole")


@pytest.mark.long
def test_two_processes_lose_nothing_either(start: Start, recipe: Recipe, pretrained: Path, tmp_path: Path) -> None:
    """Weights split over both; one of them is killed."""
    said = {"init": str(pretrained), "layout": {**LAYOUT, "shard": 2}, "task": {"version": "2.0"}, "save": 4}
    process = start(recipe("whole", "squad", **said), devices=2)
    assert process.wait() == 0, process.said
    asked = recipe("killed", "squad", **said)
    assert start(asked, devices=2, fault="at_step(6, lambda: RANK == 1 and once() and die())").wait() != 0
    process = start(asked, devices=2)
    assert process.wait() == 0, process.said
    assert "resumed from" in process.said
    assert course(tmp_path / "killed") == course(tmp_path / "whole")


PAUSE = """
def pause():
    mark("here")
    while not os.path.exists(os.environ["MARKS"] + "/on"):
        time.sleep(0.01)
at_step(3, pause)
"""


@pytest.mark.long
def test_the_second_of_two_at_once_waits(start: Start, recipe: Recipe, tmp_path: Path) -> None:
    asked = recipe("run")
    one = start(asked, fault=PAUSE)
    one.until(lambda: (tmp_path / "here").exists())
    two = start(asked)
    two.until(lambda: "waiting for another process that works on it" in two.said)
    (tmp_path / "on").touch()
    assert [one.wait(), two.wait()] == [0, 0]
    assert "all 12 steps are done" in two.said
    assert [step for step, _, _ in course(tmp_path / "run").losses] == list(range(1, 13))


# --- how it goes on, and what is left


def test_the_best_check_is_left_and_a_finished_run_only_tells(
    recipe: Recipe, tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights of the best check, what those predict of the dev files, and the scores of just that."""
    told([30.0, 90.0, 20.0, 10.0])
    asked = recipe("run", steps=0, epochs=2.0, checks=2)
    folder = finetune(asked)
    assert checks(folder) == [3, 6, 9, 12]
    assert equal(left(folder), left(folder, 6))
    assert not equal(left(folder), left(folder, 12))
    rows = [line.split("\t") for line in (folder / "predictions" / "predictions.tsv").read_text().splitlines()[1:]]
    right = 100 * np.mean([said == gold for _, said, gold, *_ in rows])
    found = scores(folder)
    assert (found["step"], found["accuracy"], found["examples"]) == (6, pytest.approx(right), 48)
    assert found["guessing"].keys() == {"accuracy", "macro_f1"}
    cut = "3 of 48 examples are longer than 24 tokens (task.length): truncated"
    assert (folder / "log.txt").read_text().startswith(cut), "what is told of the data stands in the log"
    before = course(folder)
    capsys.readouterr()
    assert finetune(asked) == finetune(str(folder)) == folder
    assert "all 12 steps are done" in capsys.readouterr().err
    assert course(folder) == before


def test_a_best_check_that_no_disk_took_is_passed_over(
    recipe: Recipe, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told([30.0, 90.0, 20.0, 10.0])
    folder = finetune(recipe("run", checks=2))
    (folder / "checkpoints" / "step-000000006" / "model.safetensors").write_bytes(b"")
    finetune(str(folder))
    assert "step-000000006: model.safetensors is damaged" in capsys.readouterr().err
    assert equal(left(folder), left(folder, 3))
    assert scores(folder)["step"] == 3


@pytest.mark.long
@pytest.mark.parametrize("more", [{"adapters": {"rank": 2, "dropout": 0.1}}, {"average": 0.9}, {"freeze": True}])
def test_it_goes_on_after_every_checkpoint(recipe: Recipe, pretrained: Path, more: dict[str, Any]) -> None:
    whole, folder = (finetune(recipe(name, "tag", init=str(pretrained), **more)) for name in ("whole", "cut"))
    for step in (9, 3):
        cut_back(folder, step)
        shutil.rmtree(folder / "weights")
        finetune(str(folder))
        assert course(folder) == course(whole)


def test_a_frozen_network_stays_as_it_was(recipe: Recipe, pretrained: Path) -> None:
    folder = finetune(recipe("run", init=str(pretrained), freeze=True))
    assert equal(left(folder), left(pretrained), only="model.")
    assert not equal(left(folder), left(folder, 3), only="classify.")


def test_adapters_are_merged_into_what_is_left(recipe: Recipe, pretrained: Path) -> None:
    """What the adapted network says, the plain one says as well."""
    folder = finetune(recipe("run", init=str(pretrained), adapters={"rank": 2, "on": ["gather", "up"]}))
    adapted = left(folder, scores(folder)["step"])
    own = {name: value for name, value in adapted.items() if name.startswith("model.") and "adapter" not in name}
    assert equal(own, left(pretrained)), "the network itself does not learn"
    merged = open_model(folder)
    assert equal(own_tensors(merged.objective), left(folder))
    task = merged.learned.build(merged.settings, merged.tokenizer)
    adapters.put_in(task.model, adapters.Adapters(rank=2, on=("gather", "up")))
    weights.load_into(task, adapted, "here")
    features = merged.learned.features(
        merged.learned.records(merged.learned.paths("dev")), reader(merged.tokenizer, merged.settings)
    )
    said, plain = (
        predict_all(each, features, packing(merged.tokenizer, merged.settings), Ranks(torch.device("cpu")))[0][
            "probabilities"
        ]
        for each in (task, merged.objective)
    )
    assert np.abs(said - plain).max() < 1e-5
    table = (folder / "predictions" / "predictions.tsv").read_text().splitlines()[1:]
    assert np.allclose(plain, [[float(share) for share in line.split("\t")[3:]] for line in table], atol=1e-5)


def test_running_means_are_left(recipe: Recipe, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told([90.0, 30.0, 20.0, 80.0] * 2)
    folder = finetune(recipe("run", checks=2, average=0.9))
    assert equal(left(folder), average.read(snapshots.path_of(folder / "checkpoints", 3)))
    assert not equal(left(folder), left(folder, 3))
    folder = finetune(recipe("few", checks=2, average=0.9, keep=1, save=0))
    assert "step-000000003: state.json has no optimizer; using the next best checkpoint" in capsys.readouterr().err
    assert scores(folder)["step"] == 12


# --- what it starts from


@pytest.fixture(scope="module")
def elsewhere(data: Path, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of transformers', an import of it, a run's weights taken away, and a run fine-tuned for another task."""
    from transformers import BertConfig, BertForMaskedLM

    folder, tokenizer = tmp_path_factory.mktemp("elsewhere"), Tokenizer.load(data / "vocab.txt")
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=tokenizer.vocabulary, max_position_embeddings=64, **shape)
    BertForMaskedLM(config).save_pretrained(folder / "theirs")
    tokenizer.save(folder / "theirs")
    take_over(folder / "theirs", folder / "import")
    shutil.copytree(pretrained / "weights", folder / "weights")
    asked = folder / "tagger.toml"
    task = {"kind": "tag", "train": f"{data}/train.conll", "length": 24}
    said = {
        "init": str(pretrained),
        "steps": 3,
        "batch": 8,
        "learning_rate": 2e-3,
        "features": "",
        "out": f"{folder}/tagger",
    }
    asked.write_text("".join(f"{k} = {toml(v)}\n" for k, v in {**said, "layout": LAYOUT, "task": task}.items()))
    finetune(str(asked))
    return {"run": pretrained, **{name: folder / name for name in ("theirs", "import", "weights", "tagger")}}


@pytest.mark.long
@pytest.mark.parametrize("name", ["run", "theirs", "import", "weights", "tagger"])
def test_it_starts_from_whatever_holds_weights(recipe: Recipe, elsewhere: dict[str, Path], name: str) -> None:
    """Frozen, the network that is left is the one it started from."""
    folder = finetune(recipe("run", init=str(elsewhere[name]), freeze=True, steps=2))
    began = own_tensors(open_model(elsewhere[name], body=True).objective)
    assert equal(left(folder), began, only="model.")


@pytest.mark.long
def test_a_step_of_a_run_and_random_weights_in_its_place(recipe: Recipe, pretrained: Path) -> None:
    frozen = {"init": str(pretrained), "freeze": True, "steps": 2}
    early = finetune(recipe("early", **frozen, step=2))
    assert equal(left(early), left(pretrained, 2), only="model.")
    assert not equal(left(early), left(pretrained), only="model.")
    anew, none = finetune(recipe("anew", init=str(pretrained), fresh=True)), finetune(recipe("none"))
    assert equal(left(anew), left(none))


@pytest.mark.long
def test_a_run_needs_what_it_started_from_no_more(recipe: Recipe, pretrained: Path, tmp_path: Path) -> None:
    shutil.copytree(pretrained / "weights", tmp_path / "begun")
    folder = finetune(recipe("run", init=str(tmp_path / "begun")))
    wanted = course(folder)
    (tmp_path / "begun").rename(tmp_path / "gone")
    cut_back(folder, 6)
    finetune(str(folder))
    assert course(folder) == wanted
    cut_back(folder, 0)
    with pytest.raises(RecipeError, match=r"init: found .*begun, no such folder"):
        finetune(str(folder))
    (tmp_path / "gone").rename(tmp_path / "begun")
    finetune(str(folder))
    assert course(folder) == wanted


def test_a_threshold_is_told_so_that_scores_come_again(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    """That of the dev files, said to be chosen on them, and the best one of a table; taken as they are printed."""
    folder = finetune(recipe("run", "squad", task={"version": "2.0", "threshold": "dev"}))
    said = re.search(r"^task\.threshold = (\S+): chosen on the dev files, so scores", capsys.readouterr().err, re.M)
    assert said
    assert float(said[1]) == open_model(folder).learned.threshold
    found, lines = evaluate(folder, device="cpu")
    printed = dict(line.strip().split(": ") for line in lines if ": " in line)
    for measure, name in (("f1", "best_f1"), ("exact_match", "best_exact")):
        again, _ = evaluate(folder, (), [f"task.threshold={printed[f'{name}_thresh']}"], device="cpu")
        assert again[measure] == found[name]
    assert f"best_f1_thresh {printed['best_f1_thresh']}" in "\n".join(show(str(folder)))


# --- going on with a head


ONE_STEP = {"steps": 1, "learning_rate": 1e-12, "warmup": 0}  # what it begins with is what it leaves


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "task", "head", "told"),
    [
        ("classify", {}, "classify", "and its classify head with all 3 labels"),
        ("tag", {}, "tag", "and its tag head with all 3 labels"),
        ("squad", {"version": "2.0"}, "span", "and its span head"),
        ("squad", {"version": "2.0", "head": "joint"}, "joint", "and its joint head"),
    ],
)
def test_a_head_that_has_learned_goes_on(
    recipe: Recipe, data: Path, kind: str, task: Any, head: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a run (adapters are merged in it) and from its export; in the same words, and noted in the run."""
    first = finetune(recipe("first", kind, task=task, adapters={"rank": 2}))
    begun = {"run": first}
    if head != "joint":  # no class of others has one
        begun["export"] = export(first, first.parent / "taken-out")
    for name, init in begun.items():
        capsys.readouterr()
        again = finetune(recipe(name, kind, task=task, init=str(init), **ONE_STEP))
        line = f"weights from {init} {told}"
        assert line in capsys.readouterr().err.splitlines()
        assert line in (again / "log.txt").read_text().splitlines()
        assert all(torch.allclose(value, left(first)[key], atol=1e-6) for key, value in left(again).items())
        assert Run(again).status["head_kept"] in (True, list(open_model(first).objective.labels))
    fresh = finetune(recipe("fresh", kind, task=task, init=str(first), fresh_head=True, **ONE_STEP))
    assert f"weights from {first}; random at the start: {head}" in capsys.readouterr().err.splitlines()
    assert not equal(left(fresh), left(first), only=f"{head}.")
    assert "head_kept" not in Run(fresh).status


@pytest.mark.long
def test_what_a_new_head_reads_is_the_familys_and_a_head_that_learns_on_keeps_its_own(
    recipe: Recipe, data: Path
) -> None:
    """A recipe that says all the rest, as that of an older run, leaves the first state."""
    modern = {"tokenizer": str(data / "vocab.txt"), "model": {**NETWORK, "kind": "modern"}, **ONE_STEP}

    def pool(name: str, **said: Any) -> str:
        return str(open_model(finetune(recipe(name, **said))).objective.pool)

    assert pool("bert", **ONE_STEP) == "first"
    assert pool("new", **modern) == "mean"
    assert pool("said", task={"pool": "first"}, **modern) == "first"
    whole = {"layer_decay": 1.0, "freeze": False, "optimizer": {"kind": "adamw"}}
    assert pool("older", **modern, **whole) == "first"
    place = Path(recipe()).parent
    for name, wanted in (("new", "mean"), ("older", "first")):
        assert pool(f"{name} on", init=str(place / name), **ONE_STEP) == wanted
        assert pool(f"{name} out", init=str(export(place / name, place / f"{name}-hf")), **ONE_STEP) == wanted
    assert pool("head", init=str(place / "older"), fresh_head=True, **ONE_STEP) == "mean"


@pytest.mark.long
def test_labels_that_both_have_go_on_by_name(
    recipe: Recipe, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = finetune(recipe("first"))
    for split in ("train", "dev"):
        text = (data / f"{split}.tsv").read_text()
        (tmp_path / f"{split}.tsv").write_text(text.replace("\tlow", "\tnone").replace("\tmixed", "\talso"))
    task = {split: str(tmp_path / f"{split}.tsv") for split in ("train", "dev")}
    capsys.readouterr()
    again = finetune(recipe("again", task=task, init=str(first), **ONE_STEP))
    assert "and its classify head with 1 of 3 labels (high); fresh: also, none" in capsys.readouterr().err
    labels, before = (open_model(folder).objective.labels for folder in (again, first))
    for end in ("weight", "bias"):
        now, was = (left(folder)[f"classify.out.{end}"] for folder in (again, first))
        assert torch.allclose(now[labels.index("high")], was[before.index("high")], atol=1e-6)
    assert Run(again).status["head_kept"] == ["high"]
    whole = finetune(recipe("whole", task=task, init=str(first)))
    wanted = course(whole)
    for step in (6, 0):
        cut_back(whole, step)
        finetune(str(whole))
        assert course(whole) == wanted


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "stem", "named", "told"),
    [
        (
            "classify",
            "SequenceClassification",
            {0: "HIGH", 1: "odd", 2: "LOW"},
            "2 of 3 labels (high, low); fresh: mixed",
        ),
        ("tag", "TokenClassification", {0: "O", 1: "B-HIGH"}, "2 of 3 labels (B-HIGH, O); fresh: I-HIGH"),
        ("squad", "QuestionAnswering", {}, "its span head"),
    ],
)
def test_a_head_of_transformers_goes_on(
    recipe: Recipe, data: Path, tmp_path: Path, kind: str, stem: str, named: Any, told: str, capsys: Any
) -> None:
    import transformers

    tokenizer = Tokenizer.load(data / "vocab.txt")
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=tokenizer.vocabulary, max_position_embeddings=64, **shape)
    if named:
        config.id2label = named
    theirs = getattr(transformers, f"BertFor{stem}")(config)
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs")
    task = {"version": "2.0"} if kind == "squad" else {}
    folder = finetune(recipe("run", kind, task=task, init=str(tmp_path / "theirs"), **ONE_STEP))
    assert told in capsys.readouterr().err
    role, out = {"squad": ("span", "qa_outputs")}.get(kind, (kind, "classifier"))
    now, labels = left(folder)[f"{role}.out.weight"], open_model(folder).objective.labels
    for row, label in named.items() or {0: "0", 1: "1"}.items():
        spelled = next((at for at, own in enumerate(labels or ("0", "1")) if own.casefold() == label.casefold()), None)
        if spelled is not None:
            assert torch.allclose(now[spelled], getattr(theirs, out).weight[row], atol=1e-6)


def test_a_foreign_head_that_cannot_be_opened_stays_behind(
    recipe: Recipe, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One for several labels at a time is no head of ours; the network under it is taken."""
    first = finetune(recipe("first", steps=2))
    folder = export(first, tmp_path / "several")
    config = files.read_json(folder / "config.json")
    files.write_json(folder / "config.json", {**config, "problem_type": "multi_label_classification"})
    capsys.readouterr()
    again = finetune(recipe("again", init=str(folder), **ONE_STEP))
    said = capsys.readouterr().err
    assert "problem_type: found multi_label_classification" in said
    assert "so its head is not used" in said
    assert f"weights from {folder}; random at the start: classify" in said
    assert not equal(left(again), left(first), only="classify.out")


# --- files


def test_without_dev_files_the_last_step_is_left(recipe: Recipe) -> None:
    folder = finetune(recipe("run", task={"dev": []}))
    assert scores(folder) == {"step": 12, "examples": 48}
    assert equal(left(folder), left(folder, 12))
    assert not (folder / "predictions").exists()
    assert not course(folder).validations


def test_predictions_of_files_with_and_without_right_answers(
    recipe: Recipe, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finetune(recipe("run"))
    predict(folder, [str(data / "dev.tsv")], tmp_path / "known", scores=True, device="cpu")
    found, own = json.loads((tmp_path / "known" / "scores.json").read_text()), scores(folder)
    assert found == {name: own[name] for name in ("accuracy", "macro_f1", "validation")}
    silent = tmp_path / "silent.tsv"
    silent.write_text("text\nw1 w2\nw3\n")
    capsys.readouterr()
    predict(folder, [str(silent)], tmp_path / "unknown", scores=True, device="cpu")
    assert "silent.tsv: no labels, so nothing is scored" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "unknown").iterdir()] == ["predictions.tsv"]
    with pytest.raises(RecipeError, match=r"length=8: is not an output folder; wanted RUN FILE\.\.\. OUT"):
        predict(folder, [str(silent)], "length=8", device="cpu")


@pytest.mark.parametrize("kind", ENDING)
def test_dev_files_that_tell_nothing_are_refused(recipe: Recipe, data: Path, tmp_path: Path, kind: str) -> None:
    silent = tmp_path / f"silent.{ENDING[kind]}"
    if kind == "classify":
        silent.write_text("text\nw1 w2\nw3\n")
    elif kind == "tag":
        silent.write_text("w1\nw2\n\nw3\n")
    else:
        silent.write_text((data / "dev.json").read_text().replace('"is_impossible": true', '"is_impossible": false'))
        told = json.loads(silent.read_text())
        for paragraph in told["data"][0]["paragraphs"]:
            for asked in paragraph["qas"]:
                del asked["answers"], asked["is_impossible"]
        silent.write_text(json.dumps(told))
    with pytest.raises(
        DataError, match=r"silent\..*: have no answers; wanted files for validation; leave task\.dev out"
    ):
        finetune(recipe("run", kind, task={"dev": str(silent)}))
    assert not (tmp_path / "run").exists()


def test_labels_that_were_never_learned_count_as_wrong(
    recipe: Recipe, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (data / "dev.tsv").read_text().splitlines()
    (tmp_path / "odd.tsv").write_text("\n".join([lines[0], *(f"w{n}\tneither" for n in range(8)), *lines[1:9]]) + "\n")
    folder = finetune(recipe("run", task={"dev": str(tmp_path / "odd.tsv")}))
    assert "8 of 16 labels are not in the training data, such as `neither`" in capsys.readouterr().err
    assert scores(folder)["accuracy"] <= 50


def test_one_file_of_several_splits(recipe: Recipe, data: Path, tmp_path: Path) -> None:
    rows = [
        f"{line}\t{name}" for name in ("train", "dev") for line in (data / f"{name}.tsv").read_text().splitlines()[1:]
    ]
    both = tmp_path / "both.tsv"
    both.write_text("\n".join(["text\tlabel\tsplit", *rows]) + "\n")
    task = {"train": str(both), "dev": str(both), "split": "split"}
    folder = finetune(recipe("both", task=task))
    assert course(folder).losses == course(finetune(recipe("apart"))).losses
    kept = files.read_json(folder / "data.json")
    assert {facts["split"]: facts["records"] for facts in kept.values()} == {"train": 48, "dev": 21}


@pytest.mark.long
def test_features_are_kept_and_made_anew_when_a_file_changes(
    recipe: Recipe, data: Path, tmp_path: Path, details: None, capsys: pytest.CaptureFixture[str]
) -> None:
    train, cache = tmp_path / "train.json", tmp_path / "features"
    train.write_text((data / "train.json").read_text())
    said = {"features": str(cache), "task": {"train": str(train), "version": "2.0"}}
    first, none = (
        finetune(recipe("first", "squad", **said)),
        finetune(recipe("none", "squad", **{**said, "features": ""})),
    )
    assert "cached features are used" not in capsys.readouterr().err
    again = finetune(recipe("again", "squad", **said))
    assert capsys.readouterr().err.count("cached features are used") == 2
    assert course(first) == course(again) == course(none)
    train.write_text(train.read_text() + "\n")
    finetune(recipe("changed", "squad", **said))
    assert capsys.readouterr().err.count("cached features are used") == 1
    with pytest.raises(RecipeError, match="another recipe or of other data"):
        finetune(recipe("first", "squad", **said))
    cut_back(first, 6)
    with pytest.raises(RecipeError, match="this run was started with"):
        finetune(str(first))
    for column in cache.glob("squad-dev-*/ids.npy"):
        column.write_bytes(column.read_bytes()[:-8])
    with pytest.raises(DataError, match=r"squad-dev-.*/ids\.npy: truncated.*delete the folder"):
        finetune(recipe("damaged", "squad", **said))


# --- what cannot be


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"task": {"length": 65}}, r"task\.length: found 65, more than the model's 64 positions; use task\.length=64"),
        ({"task": {"length": 0}}, r"task\.length: found 0; wanted 1 or more"),
        ({"task": {"lenght": 9}}, "task.*lenght: unknown setting; did you mean `task.length`"),
        ({"adaptors": {"rank": 2}}, "adaptors: unknown setting; did you mean `adapters`"),
        ({"adapters": {"rang": 2}}, "rang: unknown setting; did you mean `adapters.rank`"),
        (
            {"best": "acuracy"},
            "best: found acuracy; wanted a score for which higher is better; did you mean `accuracy`",
        ),
        ({"learning_rate": -1.0}, "learning_rate: found -1.0; wanted a finite number above 0"),
        ({"warmup": -2}, "warmup: found -2; wanted 0 to 12 steps"),
        ({"warmup": 13}, "warmup: found 13; wanted 0 to 12 steps"),
        ({"warmup": 21, "schedule": {"over": 20}}, "warmup: found 21; wanted 0 to 20 steps"),
        ({"steps": 0, "warmup": 100}, "warmup: found 100; wanted 0 to 18 steps"),
        ({"steps": 0, "epochs": 2.0, "examples": 16, "warmup": 100}, "warmup: found 100; wanted 0 to 4 steps"),
        ({"average": 1.5}, "average: found 1.5; wanted 0 to below 1"),
        ({"layer_decay": 0.0}, "layer_decay: found 0.0; wanted above 0"),
        ({"keep": 0}, "keep: found 0; wanted 1 or more"),
        ({"checks": 0}, "checks: found 0; wanted 1 or more"),
        ({"patience": 2, "task": {"dev": []}}, r"patience: found 2 without task\.dev"),
        ({"step": 4}, "step: found 4 without init"),
        ({"freeze": True, "adapters": {"rank": 2}}, "freeze: found true with adapters"),
        ({"layout": {**LAYOUT, "micro": 3}}, "batch: found 8, not a multiple of"),
        ({"init": "nowhere"}, "init: found nowhere, no such folder"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_written(
    recipe: Recipe, tmp_path: Path, said: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(OrdsmedError, match=wanted) as caught:
        finetune(recipe("run", **said))
    assert "run.toml" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_is_refused(recipe: Recipe, pretrained: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "vocab.txt"
    other.write_text((data / "vocab.txt").read_text() + "newt\n")
    said = {"init": str(pretrained), "tokenizer": str(other)}
    with pytest.raises(RecipeError, match=r"tokenizer: is another than that of .*; leave `tokenizer` out"):
        finetune(recipe("run", **said))
    assert left(finetune(recipe("run", **said, fresh=True)))["model.words.weight"].shape[0] == 127
    with pytest.raises(RecipeError, match=r"step: found 7, but .* has no checkpoint of it"):
        finetune(recipe("late", init=str(pretrained), step=7))


def test_a_run_takes_no_overrides_but_its_layout(recipe: Recipe) -> None:
    folder = finetune(recipe("run"), ["steps=6", "task.length=20", "layout.micro=4"])
    assert [step for step, _, _ in course(folder).losses] == list(range(1, 7))
    assert "length = 20" in (folder / "recipe.toml").read_text()
    cut_back(folder, 3)
    with pytest.raises(RecipeError, match=r"is a run, which cannot be resumed with learning_rate=1"):
        finetune(str(folder), ["learning_rate=1.0"])
    finetune(str(folder), ["layout.micro=2"])
    assert [step for step, _, _ in course(folder).losses] == list(range(1, 7))


@pytest.mark.parametrize("start", [finetune, rehearse])
def test_a_model_in_place_of_a_task_is_told_where_it_goes(tmp_path: Path, start: Any) -> None:
    (tmp_path / "run").mkdir()
    Run(tmp_path / "run").set(verb="pretrain", state="running")
    wanted = (
        r"run: is the folder of a `pretrain`; wanted that of a `finetune`, or .*; `ordsmed finetune TASK init=\S+run` "
    )
    with pytest.raises(RecipeError, match=wanted):
        start(str(tmp_path / "run"))
    for name in ("settings.toml", "model.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(RecipeError, match=r"is a model; .*`ordsmed finetune TASK init=\S+` trains it for a task"):
        start(str(tmp_path))


@pytest.mark.parametrize("said", [{"steps": 400}, {"steps": 0, "epochs": 100.0}, {"course": "epochs", "epochs": 100.0}])
def test_a_deadline_shrinks_steps_and_warm_up(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: dict[str, Any]
) -> None:
    """A step takes a second, a validation half a second; the last of these comes twice."""
    monkeypatch.setattr(fitting, "_time_steps", lambda *_: 1.0)
    monkeypatch.setattr(TaskData, "validation_seconds", lambda *_: 0.5)
    monkeypatch.setattr(Deadline, "_plan", lambda *_: None)
    path = recipe(**{"steps": 400, "warmup": 20, "save": 0, **said})
    folder = finetune(path, deadline=40.0)
    told = capsys.readouterr().err
    (steps,) = {line["step"] for line in checks_of(folder)[-1:]}
    assert 15 < steps < 38
    assert f" became {steps}, warm-up 20 became 1;" in told
    status = Run(folder).status
    assert (status["state"], status["deadline"], status["fit"]["ending"]) == ("done", 40.0, 1.0)
    assert course(finetune(str(folder))) == course(folder), "it is done, and resuming it changes nothing"


def test_a_deadline_that_is_long_enough_changes_nothing(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_time_steps", lambda *_: 1e-6)
    whole, fitted = finetune(recipe("whole")), finetune(recipe("fitted"), deadline=3600.0)
    assert course(whole).losses == course(fitted).losses


def checks_of(folder: Path) -> list[dict[str, Any]]:
    return course(folder).validations


def test_a_task_that_chooses_its_examples_is_timed(tmp_path: Path, pretrained: Path) -> None:
    pairs = "".join(json.dumps({"anchor": f"newt {n}", "positive": f"frog {n}"}) + "\n" for n in range(40))
    (tmp_path / "pairs.jsonl").write_text(pairs)
    words = (
        f"init={pretrained} task.train={tmp_path}/pairs.jsonl task.dev=[] task.length=32 task.mining.count=1 steps=4"
    )
    words += f" batch=8 features= max_unknown=1.0 out={tmp_path}/run layout.device=cpu layout.threads=1"
    folder = finetune("pairs", words.split(), deadline=600.0)
    assert Run(folder).status["step"] == 4
