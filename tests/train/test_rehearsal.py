"""A dry run is the run with making switched off: the same refusals, the same functions up to the first step."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.makers import make_store
from kit.task_files import task_files
from ordsmed.base import files, menu, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.run import Run
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.machines.cluster import estimate, submit
from ordsmed.tell.stability import stability
from ordsmed.train import fitting, run_group, runner, session
from ordsmed.train.finetune.examples import TaskData
from ordsmed.train.finetune.finetune import finetune
from ordsmed.train.finetune.finetune import rehearse as rehearse_finetuning
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.texts import TextData
from ordsmed.train.request import requested

Recipe = Callable[..., Path]

TUNING = """
tokenizer = "files/vocab.txt"
steps = 4
batch = 8
features = ""
out = "tuned"
layout = {device = "cpu", threads = 1, precision = "fp32"}
task = {kind = "classify", length = 32, train = "files/train.tsv", dev = "files/dev.tsv"}
model = {kind = "bert", width = 16, layers = 1, heads = 2, positions = 64}
"""
ENCODE = 'corpus = "{corpus}"\ntokenizer = "{tokenizer}"\n'
CORPUS = '[source]\nkind = "text"\npath = "{path}"\n'
TOKENIZER = 'corpus = "c.toml"\n[tokenizer]\nkind = "wordpiece"\nsize = {size}\n'


VERBS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "pretrain": (rehearse, pretrain),
    "finetune": (rehearse_finetuning, finetune),
}


class Reached(Exception):
    """The first step, or what would be made."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends where it would make something, or take its first step."""

    def reached(*_: Any, **__: Any) -> Any:
        raise Reached

    for kind in (Corpus, Encoding, TokenizerTraining):
        monkeypatch.setattr(kind, "perform", reached)
    monkeypatch.setattr(runner, "_run_loop", reached)
    monkeypatch.setattr(runner, "measured_peak", lambda *_: 1e11)
    monkeypatch.setattr(fitting, "_time_steps", lambda *_: 0.1)
    monkeypatch.setattr(TextData, "validation_seconds", lambda *_: 0.1)
    monkeypatch.setattr(TaskData, "validation_seconds", lambda *_: 0.1)


def outcome(act: Callable[..., Any], *words: Any, **how: Any) -> str:
    """What was refused, or that it was not."""
    try:
        act(*words, **how)
    except OrdsmedError as error:
        return str(error)
    except Reached:
        return "goes on"
    return "goes on"


def tree(folder: Path) -> dict[str, int]:
    """All that stands in a folder."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def compared(verb: str, words: list[str], how: dict[str, Any], home: Path) -> str:
    """The dry run first, which leaves nothing behind; then the run, which has to say the same."""
    dry_run, real_run = VERBS[verb]
    before = tree(home)
    dry = outcome(dry_run, words[0], words[1:], **how)
    assert tree(home) == before, "a dry run makes nothing"
    assert outcome(real_run, words[0], words[1:], **how) == dry
    return dry


@pytest.fixture
def home(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a recipe, files of others and all kinds of folders stand that are in the way."""
    monkeypatch.chdir(tmp_path)
    recipe("r")
    recipe("shared")
    make_store(tmp_path / "damaged")
    sums = {"train.bin": files.checksum(tmp_path / "damaged/train.bin")}
    Run(tmp_path / "damaged").set(checksums=sums)
    (tmp_path / "damaged/train.bin").write_bytes(bytes((tmp_path / "damaged/train.bin").stat().st_size))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/thesis.tex").write_text("years of work")
    (tmp_path / "texts.txt").write_text("one text\n\nand another\n")
    for name, path in (("c", "texts.txt"), ("c-gone", "nowhere.txt")):
        (tmp_path / f"{name}.toml").write_text(CORPUS.format(path=path))
    (tmp_path / "t.toml").write_text(TOKENIZER.format(size=300))
    (tmp_path / "t-bad.toml").write_text(TOKENIZER.format(size=-1))
    (tmp_path / "t-gone.toml").write_text(TOKENIZER.format(size=300).replace("c.toml", "c-gone.toml"))
    for name, kind in (("words", "words"), ("bytes", 'bytebpe"\norder = "roberta')):
        (tmp_path / f"t-{name}.toml").write_text(TOKENIZER.format(size=300).replace("wordpiece", kind))
    for name, corpus, tokenizer in (
        ("e-words", "c.toml", "t-words.toml"),
        ("e-bytes", "c.toml", "t-bytes.toml"),
        ("e", "c.toml", "t.toml"),
        ("e-corpus", "nowhere.toml", "t.toml"),
        ("e-source", "c-gone.toml", "t.toml"),
        ("e-tokenizer", "c.toml", "nowhere.toml"),
        ("e-bad", "c.toml", "t-bad.toml"),
        ("e-learned", "c.toml", "t-gone.toml"),
        ("e-none", "c.toml", "no-such-tokenizer"),
    ):
        (tmp_path / f"{name}.toml").write_text(ENCODE.format(corpus=corpus, tokenizer=tokenizer))
    (tmp_path / "e-out.toml").write_text(ENCODE.format(corpus="c.toml", tokenizer="t.toml") + 'out = "r.toml/x"\n')
    (tmp_path / "closed").mkdir()
    access = os.access  # root may do everything
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed" and access(path, mode))
    (tmp_path / "circle.toml").write_text('like = "circle.toml"\n')
    Run(tmp_path / "encoded").path.mkdir()
    Run(tmp_path / "encoded").set(verb="encode", state="done")
    task_files(tmp_path / "files")
    (tmp_path / "f.toml").write_text(TUNING)
    return tmp_path


GOES = "goes on"
BROKEN: list[tuple[list[str], dict[str, Any], str]] = [
    (["lenght=5"], {}, "lenght: unknown setting"),
    (["phase.lenght=5"], {}, "lenght: unknown setting"),
    (["nonsense"], {}, "not an override"),
    (["seed=-1"], {}, "seed: found -1"),
    (["model.width=33"], {}, "width"),
    (["model.kind=brt"], {}, "brt"),
    (["objective.kind=mml"], {}, "mml"),
    (["objective.mask_prob=2"], {}, "mask_prob"),
    (["optimizer.kind=adam2"], {}, "adam2"),
    (["phase.length=65"], {}, "more than the model's 64 positions"),
    (["phase.batch=0"], {}, "batch"),
    (["phase.warmup=99"], {}, "warmup"),
    (["phase[2].length=16"], {}, "phase"),
    (["layout.micro=3"], {}, "layout.micro"),
    (["layout.threads=0"], {}, GOES),
    (["layout.threads=99999"], {}, "layout.threads"),
    (["layout.device=cuda"], {}, "cuda"),
    (["layout.tensor=2"], {}, "layout"),
    (["trouble.action=hope"], {}, "hope"),
    (["keep=0"], {}, "keep"),
    (["average=1"], {}, "average"),
    (["clip=-1"], {}, "clip"),
    (["validation_rows=-1"], {}, "validation_rows"),
    (["data=nowhere.toml"], {}, "nowhere.toml"),
    (["data=bert-base"], {}, "bert-base"),
    (["data=foreign"], {}, "foreign"),
    (["data=damaged"], {}, "is damaged"),
    (["data=e.toml"], {}, GOES),
    (["data=e-corpus.toml"], {}, "nowhere.toml"),
    (["data=e-source.toml"], {}, "nowhere.txt"),
    (["data=e-tokenizer.toml"], {}, "nowhere.toml"),
    (["data=e-none.toml"], {}, "no-such-tokenizer"),
    (["data=e-bad.toml"], {}, "size"),
    (["data=e-learned.toml"], {}, "nowhere.txt"),
    (["data=e.toml", "tokenizer=nowhere"], {}, "nowhere"),
    (["data=e.toml", "model={kind='elmo', width=16, cells=32}", "objective.kind=bilm"], {}, "splits words into pieces"),
    (["data=e.toml", "model.kind=roberta"], {}, "its padding token has the id 0"),
    (["data=e-words.toml"], {}, "has whole words"),
    (["data=e-words.toml", "model={kind='elmo', width=16, cells=32}", "objective={kind='bilm', samples=0}"], {}, GOES),
    (["data=e-bytes.toml", "model.kind=roberta"], {}, GOES),
    (["init=nowhere"], {}, "init: found nowhere"),
    (["model.kind=gpt2"], {}, "mlm"),
    (["out=r.toml"], {}, "a file"),
    (["out=foreign"], {}, "has files that were not made by `ordsmed`"),
    (["out=encoded"], {}, "is the folder of a `encode`"),
    (["data=e.toml", "out=foreign"], {}, "has files that were not made by `ordsmed`"),
    (["data=e.toml", "out=encoded"], {}, "is the folder of a `encode`"),
    (["out=r.toml/x"], {}, "r.toml/x: cannot write: Not a directory"),
    (["data=e.toml", "out=r.toml/x"], {}, "r.toml/x: cannot write: Not a directory"),
    (["data=e-out.toml"], {}, "r.toml/x: cannot write: Not a directory"),
    (["data=e.toml", "out=closed/x/y"], {}, "closed/x/y: cannot write: Permission denied"),
    (["model.width=100000000"], {}, "parameters, which need"),
    ([], {"layout": "2x1x1"}, "layout"),
    ([], {"layout": "x"}, "layout"),
    ([], {"layout": "auto"}, GOES),
    ([], {"site": "nowhere"}, "nowhere"),
    ([], {"deadline": 1e-9}, "--deadline"),
    ([], {"deadline": 600.0}, GOES),
    ([], {"anew": True}, GOES),
    ([], {}, GOES),
]


@pytest.mark.parametrize(("words", "how", "said"), BROKEN, ids=[" ".join([*w, *h]) or "as it is" for w, h, _ in BROKEN])
def test_a_dry_run_refuses_what_the_run_refuses(
    stopped: None, home: Path, words: list[str], how: dict[str, Any], said: str
) -> None:
    assert said in compared("pretrain", ["r.toml", *words], how, home)


@pytest.mark.parametrize("name", ["circle.toml", "nowhere.toml", "encoded", "foreign", "bert-bse", "squad-1.1"])
def test_what_is_no_recipe_is_refused_alike(stopped: None, home: Path, name: str) -> None:
    assert compared("pretrain", [name], {}, home) != GOES


TUNED: list[tuple[list[str], dict[str, Any], str]] = [
    ([], {}, GOES),
    (["task.length=999"], {}, "task.length"),
    (["task.train=nowhere.tsv"], {}, "nowhere.tsv"),
    (["task.train=files/dev.json"], {}, "dev.json"),
    (["task.kind=clasify"], {}, "clasify"),
    (["tokenizer=nowhere"], {}, "nowhere"),
    (["tokenizer=t.toml"], {}, GOES),
    (["tokenizer=t.toml", "task.train=nowhere.tsv"], {}, "nowhere.tsv"),
    (["tokenizer=t.toml", "task.train=files/dev.json"], {}, "dev.json"),
    (["tokenizer=t.toml", "task.dev=files/dev.json"], {}, "dev.json"),
    (["tokenizer=t.toml", "task.length=999"], {}, "task.length"),
    (["tokenizer=t.toml", "seeds=[1,2]"], {}, GOES),
    (["init=nowhere"], {}, "nowhere"),
    (["warmup=99"], {}, "warmup"),
    (["seed=-1"], {}, "seed"),
    (["best=fluency"], {}, "fluency"),
    (["out=foreign"], {}, "were not made by `ordsmed`"),
    (["out=encoded"], {}, "is the folder of a `encode`"),
    (["seeds=[1,2]"], {}, GOES),
    (["seeds=[1,1]"], {}, "wanted different ones"),
    (["seeds=[1,2]", "out=foreign"], {}, "were not made by `ordsmed`"),
    (["seeds=[1,2]", "out=f.toml/x"], {}, "f.toml/x: cannot write: Not a directory"),
    (["seeds=[1,2]", "out=encoded"], {}, "is the folder of a `encode`"),
    (["grid.learning_rate=[1e-4,1e-4]"], {}, "the same trial"),
    (["grid.task.length=[16,999]"], {}, "task.length"),
    (["tokenizer=t.toml", "grid.task.length=[16,999]"], {}, "task.length"),
    (['grid.task.train=["files/train.tsv","nowhere.tsv"]'], {}, "nowhere.tsv"),
    (['grid.best=["accuracy","fluency"]'], {}, "fluency"),
    (['grid.tokenizer=["files/vocab.txt","nowhere"]'], {}, "nowhere"),
    (["steps=0", "epochs=1.0", "grid.warmup=[1,99]"], {}, "warmup"),
    (["step=all"], {}, "is not a run"),
    ([], {"part": "1/2"}, "--part"),
    (["seeds=[1,2]"], {"layout": "auto"}, "--layout"),
    ([], {"deadline": 1e-9}, "--deadline"),
    ([], {"deadline": 600.0}, GOES),
    (["seeds=[1,2]"], {"part": "3/2"}, "--part"),
]


@pytest.mark.parametrize(("words", "how", "said"), TUNED, ids=[" ".join([*w, *h]) or "as it is" for w, h, _ in TUNED])
def test_a_dry_fine_tuning_refuses_what_the_run_refuses(
    stopped: None, home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], how: dict[str, Any], said: str
) -> None:
    failed = said != GOES and any(word.startswith("grid") for word in words) and "the same trial" not in said
    if any(word.startswith(("seeds", "grid")) for word in words):
        monkeypatch.setattr("ordsmed.train.run_group.RunGroup.make", lambda *_: (_ for _ in ()).throw(Reached))
    if not failed:
        assert said in compared("finetune", ["f.toml", *words], how, home)
        return
    # what one of several trials refuses, the run tells in the end, after the others
    assert said in outcome(rehearse_finetuning, "f.toml", words)


BUILT_IN = [(verb, name) for verb in VERBS for name in run.recipe_names(verb)] + [
    ("pretrain" if "phase" in settings.read(path) else "finetune", f"tiny/{path.stem}")
    for path in sorted((menu.PACKAGE_ROOT / "recipes/tiny").glob("*.toml"))
    if {"phase", "task"} & {*settings.read(path)}
]


@pytest.mark.long
@pytest.mark.parametrize(("verb", "name"), BUILT_IN)
def test_built_in_recipes_are_refused_alike_or_not(
    stopped: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    """In an empty folder: most have data to make, others name files or models that are not there."""
    monkeypatch.chdir(tmp_path)
    compared(verb, [name, "layout.device=cpu"], {}, tmp_path)


def test_trials_are_not_started_by_several_processes(stopped: None, home: Path) -> None:
    assert "--devices: found 2 processes" in outcome(rehearse_finetuning, "f.toml", ["seeds=[1,2]"], devices=2)


def test_a_folder_of_another_run_is_refused_before_data_are_made(
    stopped: None, home: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(home)
    pretrain(str(recipe("r", steps=4)))
    before = tree(home)
    for act in (rehearse, pretrain):
        with pytest.raises(RecipeError, match="holds a run of another recipe or of other data"):
            act("r.toml", ["data=e.toml"])
        assert tree(home) == before, "nothing was made"
    assert outcome(rehearse, "r.toml", ["data=e.toml"], anew=True) == GOES
    assert outcome(rehearse, "r.toml", ["phase.steps=5"]).startswith(f"{home / 'r'}: holds a run")
    assert outcome(rehearse, "r.toml") == GOES
    assert tree(home) == before


def test_a_run_whose_data_are_gone_is_not_taken_for_another(home: Path, recipe: Recipe) -> None:
    """Its recipe is the same: whether the data are, is known when they are made again."""
    recipe("r", data="e.toml")
    Run(home / "r").path.mkdir()
    key = run.recipe_key(requested(Pretraining, "r.toml", [], "", "").recipe)
    Run(home / "r").set(verb="pretrain", recipe_key=key, fingerprint="unknown")
    (home / "r/checkpoints/step-000000004").mkdir(parents=True)
    assert outcome(rehearse, "r.toml") == GOES
    Run(home / "r").set(recipe_key="another")
    assert "holds a run of another recipe" in outcome(rehearse, "r.toml")


def test_what_would_be_made_is_told(home: Path) -> None:
    _, lines = rehearse("r.toml", ["data=e.toml"])
    assert "data: work/encode/e does not exist yet; it will be made from e.toml" in lines
    assert any(line.startswith("network: ") for line in lines)


WRITES = {
    "begin",
    "_record_new_run",
    "_record_start",
    "_run_processes",
    "_rendezvous",
    "_train_in_folder",
    "run_session",
    "run_to_end",
    "_train_from_last",
    "_machine_lines",
    "_process",
    "_writable",
}
SAYS = {
    "tell",
    "subject",
    "weights",
    "task",
    "_counts",
    "_device_line",
    "_folder_line",
    "_processes",
    "_machine_lines",
}  # what a run says as it begins
DRY = {"rehearse", "dry_run", "ready"}
ROOMS = (
    "train/session.py",
    "train/resume.py",
    "train/runner.py",
    "train/request.py",
    "train/plan.py",
    "train/pretrain/plan.py",
    "train/finetune/plan.py",
)


def visited(act: Callable[[], Any]) -> list[str]:
    """The functions of a training's beginning that are called, each where it first is."""
    seen = dict[str, None]()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.endswith(ROOMS) and not code.co_name.startswith("<"):
            seen.setdefault(f"{Path(code.co_filename).parent.name}.{code.co_name}")

    sys.setprofile(note)
    try:
        act()
    except Reached:
        pass
    finally:
        sys.setprofile(None)
    return list(seen)


@pytest.mark.parametrize(
    ("verb", "words"), [("pretrain", ["r.toml"]), ("pretrain", ["r.toml", "data=e.toml"]), ("finetune", ["f.toml"])]
)
def test_a_dry_run_visits_what_the_run_visits(
    stopped: None, home: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: list[str]
) -> None:
    dry_run, real_run = VERBS[verb]
    monkeypatch.setattr(session, "with_fastest_precision", lambda plan: plan)
    dry = [name for name in visited(lambda: dry_run(words[0], words[1:])) if name.split(".")[1] not in DRY]
    real = [
        name
        for name in visited(lambda: real_run(words[0], words[1:]))
        if name.split(".")[1] not in WRITES | SAYS | {"_with_fastest_layout", "objective"}
    ]
    extra = {"train.planned", "train._process", "train.on", "train.check", "pretrain.objective"}
    assert [name for name in real if name not in dry] == []
    assert [name for name in dry if name in real] == real, "in the same order"
    if "data=e.toml" not in words:  # there the run goes on to make them
        assert {name for name in dry if name not in real and name.split(".")[1] not in SAYS} <= extra


# doors that start no run by themselves, or several: what they refuse of a recipe is what the run refuses
ELSEWHERE = ("model.width=1000", "objective.kind=bilm")  # asked of another machine, or without the rows of an objective
UNSHARED = ("seed", "out", "grid", "step=")  # each study has its own


CLUSTER = """
source = "x"
checked = "2026-11"
scheduler = "slurm"
[[partition]]
name = "main"
cores = 8
hours = 48
"""


def doors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., Any]]:
    Path("cpus.toml").write_text(CLUSTER)

    def reached(*_: Any, **__: Any) -> Any:
        raise Reached

    monkeypatch.setattr(submit, "write_script", reached)
    monkeypatch.setattr(estimate, "_work", reached)
    monkeypatch.setattr(run_group.RunGroup, "work", reached)
    return {
        "submit": lambda name, words: submit.prepare(name, words, submit.JobRequest("cpus.toml")),
        "estimate": estimate.estimate,
        "stability": lambda name, words: stability.stability(name, words, stability.StudyOptions((1, 2), workers=1)),
    }


IN_A_RECIPE = [("r.toml", words, said) for words, how, said in BROKEN if not how and words] + [
    ("f.toml", words, said) for words, how, said in TUNED if not how and words
]


@pytest.mark.parametrize(("name", "words", "said"), IN_A_RECIPE, ids=[" ".join([n, *w]) for n, w, _ in IN_A_RECIPE])
def test_other_doors_refuse_a_recipe_in_the_words_of_the_run(
    stopped: None, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str], said: str
) -> None:
    dry_run = rehearse if name == "r.toml" else rehearse_finetuning
    wanted, acts = outcome(dry_run, name, words), doors(monkeypatch)
    before = tree(home)
    for door, act in acts.items():
        if door == "stability" and any(word.startswith(UNSHARED) for word in words):
            continue
        answer = outcome(act, name, words)
        if answer != wanted and not any(word.startswith(ELSEWHERE) for word in words):
            assert (answer, door == "stability" and words != ["data=damaged"]) == (GOES, False), door
    assert [path for path in tree(home) if path not in before] in ([], ["work", "work/jobs"]), "nothing is made"
