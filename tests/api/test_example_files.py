"""Examples that a program holds: fine-tuned on as files in the run's folder, resumed by it, or refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from kit.task_files import task_files
from ordsmed.base import settings
from ordsmed.base.run import Run
from ordsmed.text.labelled import conll

NETWORK = {"kind": "bert", "width": 16, "layers": 1, "heads": 2, "positions": 64}
CLASSES = {"text": ["w1 w2", "w90 w91", "w3", "w99"] * 4, "label": ["low", "high"] * 8}
TAGGED = {"tokens": [["w1", "w90"], ["w99", "w2", "w3"]] * 4, "ner_tags": [[0, 1], [1, 2, 0]] * 4}


@pytest.fixture
def learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fine-tune a small random network on the examples given, with these settings."""
    monkeypatch.chdir(tmp_path)
    task_files(tmp_path / "lab")

    def run(kind: str, **how: Any) -> Any:
        lines = ['tokenizer = "lab/vocab.txt"\nfeatures = ""\nepochs = 1\nbatch = 4']
        lines.append(f'out = "{how.pop("out", "run")}"')
        lines += ["[layout]\ndevice = 'cpu'\nthreads = 1", "[model]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in NETWORK.items()]
        Path("mine.toml").write_text("\n".join([*lines, f'[task]\nkind = "{kind}"\nlength = 32', ""]))
        return ordsmed.finetune("mine.toml", **how)

    return run


def learned_from(run: Any) -> str:
    return str(settings.read(run.folder / "recipe.toml")["task"]["train"])


def test_a_dict_of_lists_is_a_file_of_the_run(learn: Any) -> None:
    """The record names it; the same call and the folder resume; other examples are another run."""
    run = learn("classify", train=CLASSES, dev=CLASSES)
    assert run.open().evaluate(CLASSES).scores["accuracy"] == run.scores["accuracy"]
    path = Path(learned_from(run))
    assert path.parent == Path("run/examples")
    assert [json.loads(line)["label"] for line in path.read_text().splitlines()] == CLASSES["label"]
    assert run.open().labels == ("high", "low")
    before, status = run.scores, Run(run.folder).status
    assert learn("classify", train=dict(CLASSES), task={"dev": CLASSES}).scores == before
    assert (ordsmed.finetune("run").scores, Run(run.folder).status) == (before, status)
    with pytest.raises(
        ordsmed.RecipeError,
        match="run: is a run, but examples are given; leave them out: a run resumes with its own data",
    ):
        ordsmed.finetune("run", train=CLASSES)
    other = {**CLASSES, "text": ["w5"] * 16}
    with pytest.raises(ordsmed.RecipeError, match="holds a run of another recipe or of other data"):
        learn("classify", train=other, dev=CLASSES)
    again = learn("classify", train=other, dev=CLASSES, anew=True)
    assert "w5" in Path(learned_from(again)).read_text()


def test_examples_outlive_a_kill_and_a_new_start(learn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learn("tag", train=TAGGED, dev=TAGGED, out="whole")
    assert whole.open().evaluate(TAGGED).scores["accuracy"] == whole.scores["accuracy"]
    monkeypatch.setenv("ORDSMED_STOP_AT", "1")
    with pytest.raises(ordsmed.Stopped):
        learn("tag", train=TAGGED, dev=TAGGED)
    monkeypatch.delenv("ORDSMED_STOP_AT")
    assert ordsmed.finetune("run").scores == whole.scores
    assert learn("tag", train=TAGGED, dev=TAGGED, anew=True).scores == whole.scores


def test_datasets_of_hugging_face(learn: Any) -> None:
    """Numbers of classes are written as their names; a pair is two columns; trials read the same files."""
    datasets = pytest.importorskip("datasets")
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-HIGH", "I-HIGH"]))
    words = datasets.Sequence(datasets.Value("string"))
    data = datasets.Dataset.from_dict(TAGGED, features=datasets.Features(tokens=words, ner_tags=tags))
    run = learn("tag", train=data, dev=data)
    assert conll.read([learned_from(run)], -1).tags[:2] == [["O", "B-HIGH"], ["B-HIGH", "I-HIGH", "O"]]
    assert set(run.open().labels) == {"O", "B-HIGH", "I-HIGH"}
    label = datasets.ClassLabel(names=["low", "high"])
    pairs = {"one": CLASSES["text"], "two": CLASSES["text"], "label": [0, 1] * 8}
    value = datasets.Value("string")
    data = datasets.Dataset.from_dict(pairs, features=datasets.Features(one=value, two=value, label=label))
    task = {"text": "one", "second": "two"}
    trials = learn("classify", train=data, dev=data, task=task, seeds=[1, 2], out="pairs")
    assert trials.open().classify("w1", "w2").label in ("low", "high")
    with pytest.raises(ordsmed.RecipeError, match=r"task\.train: found the splits train, test; wanted one of them"):
        learn("classify", train=datasets.DatasetDict(train=data, test=data), out="splits")


def test_pairs_for_vectors(learn: Any) -> None:
    data = {"anchor": CLASSES["text"], "positive": CLASSES["text"][::-1], "negatives": [["w7", "w8"]] * 16}
    assert "mrr@10" in learn("pairs", train=data, dev=data).scores


@pytest.mark.parametrize(
    ("kind", "how", "wrong"),
    [
        (
            "classify",
            {"train": {"sentence": ["a"], "label": [1]}},
            "task.train: no column `text`, but sentence, label; wanted text, label; name the columns with `task.text`",
        ),
        ("classify", {"train": {"text": ["a", "b"], "label": [1]}}, "found rows: text 2, label 1; wanted columns of"),
        ("classify", {"train": {"text": "a", "label": [1]}}, "found str as `text`; wanted a list"),
        ("classify", {"train": {"text": [], "label": []}}, "found rows: text 0, label 0"),
        ("classify", {"train": {"text": [b"a"], "label": [1]}}, "a value that is neither text nor number"),
        ("classify", {"train": 3}, "task.train: found int; wanted a path, paths, a dict of lists, or a datasets.Data"),
        ("classify", {"train": [{"text": "a"}]}, "task.train: found list; wanted a path"),
        ("tag", {"train": {"text": ["a"], "tags": [["O"]]}}, "found the columns text, tags; wanted one of words, tok"),
        ("tag", {"train": {"words": [["a", "b"]], "tags": [["O"]]}}, "task.train: row 1: found .* as many tags"),
        ("tag", {"train": {"words": [["a\tb"]], "tags": [["O"]]}}, r"row 1: found 'a\\tb'; wanted words and tags with"),
        ("tag", {"train": TAGGED, "dev": "lab/dev.conll"}, "task.dev: found a file next to columns as task.train"),
    ],
)
def test_what_is_not_understood_is_refused(learn: Any, kind: str, how: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ordsmed.RecipeError, match=wrong):
        learn(kind, **how)
    assert not Path("run").exists()
