"""A fine-tuned model gives the same outputs in transformers, can be imported again, and is described by its card."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
import torch

from kit.families import shaken
from kit.makers import PAD_SECOND, SPECIAL
from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS
from ordsmed.base.menu import load
from ordsmed.learn.objective import fresh
from ordsmed.learn.objectives import mlm
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.model import own_tensors
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, words
from ordsmed.train.finetune.finetune import finetune
from ordsmed.use.predict import open_task
from ordsmed.weights import foreign, weights
from ordsmed.weights.export import export, export_all
from ordsmed.weights.foreign import Networks
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]
SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "inner": 48, "positions": 64}
FAMILIES = ("bert", "megatron_bert", "roberta", "electra", "gpt2", "modern")
TEXT = "the old smith mends the iron gate and my sister sees a small boat , for rain falls in bergen"
PIECES = [
    *dict.fromkeys(TEXT.split()),
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
PAIRS = [("the old smith mends", "rain falls"), ("a sister", "my small gate sees the smiths"), ("boats", "iron ." * 3)]
LABELS = ("no", "perhaps", "yes")
TAGS = ("B-PER", "I-PER", "O", "B-LOC")


def tokenizer_of(family: str, folder: Any) -> Tokenizer:
    if family in ("gpt2", "roberta"):
        return bytebpe.ByteBpe(size=290, order=family).train([TEXT] * 9)
    folder.mkdir(exist_ok=True)
    path = folder / "vocab.txt"
    path.write_text("\n".join([*(PAD_SECOND if family == "roberta" else SPECIAL), *PIECES]) + "\n")
    return Tokenizer.load(path)


def learned(folder: Any, family: str, task: Any, tokenizer: Tokenizer | None = None, **shape: Any) -> Any:
    """The weights that a fine-tuning leaves, every one random."""
    tokenizer = tokenizer or tokenizer_of(family, folder.parent)
    model = load("models", family)(**(SHAPE | shape))
    objective = shaken(fresh(task, model, tokenizer, 0))
    folder.mkdir(parents=True)
    weights.write(folder / WEIGHTS, own_tensors(objective))
    role = "task" if hasattr(task, "role") else "objective"
    files.write_text(folder / SETTINGS, settings.write(Networks(**{"model": model, role: task})))
    tokenizer.save(folder / TOKENIZER)
    return folder


def said(folder: Any, path: Any, *overrides: str) -> Any:
    asked = open_task(folder, overrides, device="cpu")
    records = asked.settings.records((str(path),))
    features = asked.settings.features(records, asked.reader)
    return asked.settings.predictions(records, features, asked.answers(features)[0])


def theirs(folder: Any, kind: str) -> Any:
    import transformers

    model, report = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def pipe(kind: str, folder: Any, **how: Any) -> Any:
    from transformers import pipeline
    from transformers.utils import logging

    logging.disable_progress_bar()
    return pipeline(kind, model=str(folder), device="cpu", **how)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{one}\t{two}\n" for one, two in [("text", "second"), *PAIRS]))
    return path


@pytest.fixture
def tagged(tmp_path):
    path = tmp_path / "tagged.conll"
    path.write_text("\n\n".join("\n".join(f"{w}\tO" for w in text.split()) for pair in PAIRS for text in pair) + "\n")
    return path


@pytest.fixture
def asking(tmp_path):
    """Questions, of which some need several windows."""
    path = tmp_path / "asking.json"
    asked = [{"id": n, "question": f"{one} ?", "context": f"{two} {TEXT}."} for n, (one, two) in enumerate(PAIRS)]
    path.write_text(json.dumps(asked))
    return path


@pytest.mark.parametrize(("family", "pieces"), [*((f, f) for f in FAMILIES), ("bert", "roberta")])
def test_classes_of_pairs_are_told_alike_there(family, pieces, table, tmp_path):
    task = classify.Classify(labels=LABELS, second="second", length=60)
    own = learned(tmp_path / "own", family, task, tokenizer_of(pieces, tmp_path))
    ask = pipe("text-classification", export(own, tmp_path / "out"), top_k=None)
    for (one, two), shares in zip(PAIRS, said(own, table).shares, strict=True):
        found = {f["label"]: f["score"] for f in ask({"text": one, "text_pair": two})}
        assert list(map(found.get, LABELS)) == pytest.approx(shares.tolist(), abs=1e-5)


@pytest.mark.parametrize(("family", "pool"), [("bert", None), ("gpt2", None), ("modern", "mean")])
def test_a_text_alone_is_told_alike_there(family, pool, table, tmp_path):
    own = learned(tmp_path / "own", family, classify.Classify(labels=LABELS, length=48, pool=pool))
    found = pipe("text-classification", export(own, tmp_path / "out"))([one for one, _ in PAIRS])
    here = said(own, table)
    assert [f["label"] for f in found] == here.values
    assert [f["score"] for f in found] == pytest.approx(here.shares.max(1).tolist(), abs=1e-5)
    config = files.read_table(tmp_path / "out/config.json")
    assert config.get("classifier_pooling") == pool
    for kept in (config, {key: value for key, value in config.items() if not key.startswith("ordsmed")}):
        files.write_json(tmp_path / "out/config.json", kept)
        again = open_task(tmp_path / "out", (), device="cpu").trained.objective
        assert again.pool == (pool or ("last" if family == "gpt2" else "first"))
    files.write_json(tmp_path / "out/config.json", config | {"classifier_pooling": "max"})
    with pytest.raises(DataError, match="classifier_pooling: found max; wanted cls"):
        open_task(tmp_path / "out", (), device="cpu")


@pytest.mark.parametrize(("family", "scale"), [("bert", (1.0, 5.0)), ("gpt2", (0.0, 5.0)), ("gpt2", (1.0, 5.0))])
def test_numbers_are_told_on_their_scale_and_come_back(family, scale, table, tmp_path):
    own = learned(tmp_path / "own", family, classify.Classify(number=True, scale=scale, length=48))
    out = export(own, tmp_path / "out")
    here = said(own, table).values
    found = [f["score"] for f in pipe("text-classification", out)([one for one, _ in PAIRS])]
    told = "print(1 + 4 * ask(" in (out / "README.md").read_text()
    assert told == (family == "gpt2" and scale[0] == 1)
    assert ([1 + 4 * score for score in found] if told else found) == pytest.approx(here, abs=1e-4)
    assert said(out, table).values == pytest.approx(here, abs=1e-5)
    take_over(out, tmp_path / "imported")
    assert said(tmp_path / "imported", table).values == pytest.approx(here, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_tags_are_told_alike_there(family, tagged, tmp_path):
    own = learned(tmp_path / "own", family, tag.Tag(column=2, labels=TAGS, file_scheme="IOB2", length=60))
    ask = pipe("token-classification", export(own, tmp_path / "out"), ignore_labels=[])
    here = said(own, tagged, "task.repair_tags=false")
    each = iter(here.probability.tolist())
    for text, tags in zip((text for pair in PAIRS for text in pair), here.tags, strict=True):
        found = [f for f in ask(text) if text[f["start"] : f["end"]].strip()]  # bytes may make a piece of a blank
        words = [match.start() for match in re.finditer(r"\S+", text)]
        pieces = found if family == "gpt2" else found[::-1]  # the last of a word's stays, or the first
        asked = {max(w for w in words if w < f["end"]): f for f in pieces}
        assert [asked[w]["entity"] for w in words] == tags
        assert [asked[w]["score"] for w in words] == pytest.approx([next(each) for _ in words], abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_starts_and_ends_are_scored_alike_there(family, asking, tmp_path):
    own = learned(tmp_path / "own", family, squad.Squad(length=30, stride=8, longest_question=12))
    model = theirs(export(own, tmp_path / "out"), "AutoModelForQuestionAnswering")
    asked = open_task(own, device="cpu")
    features = asked.settings.features(asked.settings.records((str(asking),)), asked.reader)
    assert len(features) > len(PAIRS)
    alone = dataclasses.replace(asked.packing, alone=True).batch(features, *[np.arange(len(features))] * 2)
    kept = torch.ones_like(alone.tokens) if alone.documents is None else (alone.documents > 0).long()
    kinds = {} if alone.types is None else {"token_type_ids": alone.types}
    there = model(input_ids=alone.tokens, attention_mask=kept, **kinds)
    here = asked.answers(features)[0]
    told = alone.weights > 0
    told[:, 0] = True
    for name, logits in (("start", there.start_logits), ("end", there.end_logits)):
        ours = torch.as_tensor(here[name])
        width = min(ours.shape[1], logits.shape[1])
        assert torch.allclose(ours[:, :width][told[:, :width]], logits[:, :width][told[:, :width]], atol=1e-5)


# the way back

TASKS = {
    "classify": (classify.Classify(labels=LABELS, second="second", length=40), "table"),
    "tag": (tag.Tag(column=2, labels=TAGS, file_scheme="IOB2", length=40, repair_tags=False), "tagged"),
    "squad": (squad.Squad(version="2.0", threshold=-1.5, length=32, stride=8), "asking"),
}


@pytest.mark.parametrize("kind", TASKS)
def test_an_export_and_what_others_saved_of_it_come_back(kind, tmp_path, request):
    import transformers

    task, path = TASKS[kind][0], request.getfixturevalue(TASKS[kind][1])
    own = learned(tmp_path / "own", "bert", task)
    out = export(own, tmp_path / "out")
    with_head = getattr(transformers, files.read_json(out / "config.json")["architectures"][0])
    with_head.from_pretrained(out).save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(out).save_pretrained(tmp_path / "theirs")
    take_over(out, tmp_path / "imported")
    here = said(own, path)
    for folder in ("out", "theirs", "imported"):
        assert settings.plain(open_model(tmp_path / folder).learned) == settings.plain(task)
        again = said(tmp_path / folder, path)
        assert repr(again) == repr(here), "the same numbers, for they are the same weights"
    assert (export(out, tmp_path / "again") / "model.safetensors").read_bytes() == (
        out / "model.safetensors"
    ).read_bytes()
    config = files.read_json(out / "config.json")
    del config["ordsmed"]  # a folder of people who never heard of us
    files.write_json(out / "config.json", config)
    strange = open_task(out, device="cpu").settings
    assert (strange.length, getattr(strange, "labels", ())) == (64, getattr(task, "labels", ()))


def test_a_folder_that_others_taught_another_task_is_opened_as_theirs(tmp_path):
    glue = classify.Classify(name="mnli", length=40)
    out = export(learned(tmp_path / "own", "bert", glue), tmp_path / "out")
    assert open_model(out).learned.name == "mnli"
    config = files.read_json(out / "config.json")
    files.write_json(out / "config.json", config | {"id2label": {str(n): label for n, label in enumerate("abc")}})
    assert settings.plain(open_model(out).learned) == settings.plain(
        classify.Classify(labels=("a", "b", "c"), length=64)
    )


def test_a_fine_tuning_begins_with_an_export(tmp_path):
    out = export(learned(tmp_path / "own", "bert", TASKS["squad"][0]), tmp_path / "out")
    task = fresh(TASKS["tag"][0], foreign.settings(out), Tokenizer.load(out), 1)
    left = foreign.begin(task.networks()[""], out, Tokenizer.load(out))
    assert {name.partition(".")[0] for name in left} == {"tag"}
    held = weights.read(tmp_path / "own" / WEIGHTS)
    assert all(torch.equal(held[f"model.{n}"], t) for n, t in own_tensors(task.model).items())


@pytest.mark.parametrize(
    ("family", "task", "found"),
    [
        ("bert", tag.Tag(column=2, labels=TAGS, top=Top(mix=True)), "has a mix of layers or an LSTM"),
        ("gpt2", tag.Tag(column=2, labels=TAGS, top=Top(recurrent=8)), "has a mix of layers or an LSTM"),
        ("elmo", tag.Tag(column=2, labels=TAGS), "is an ELMo with a task head"),
        ("bert", squad.Squad(head="joint", length=32), "has a joint head.*`answer`, open it as it is"),
        ("bert", classify.Classify(labels=LABELS, pool="mean"), "pools by mean .*reads the first token"),
    ],
)
def test_what_no_class_has_is_refused_before_anything_is_written(family, task, found, tmp_path):
    if family == "elmo":
        shape = {"width": 8, "cells": 16, "letter": 4, "filters": ((1, 8), (2, 8)), "highways": 1, "layers": 1}
        model, tokenizer = load("models", "elmo")(**shape), words.WordList(least=1).train([TEXT])
        objective = shaken(fresh(task, model, tokenizer, 0))
        own = tmp_path / "own"
        own.mkdir()
        weights.write(own / WEIGHTS, own_tensors(objective))
        files.write_text(own / SETTINGS, settings.write(Networks(model=model, task=task)))
        tokenizer.save(own / TOKENIZER)
    else:
        own = learned(tmp_path / "own", family, task)
    with pytest.raises(RecipeError, match=found):
        export(own, tmp_path / "out")
    assert not [p for p in tmp_path.iterdir() if "out" in p.name]


# a run, and the text of its card

RECIPE = """
init = "{init}"
out = "{out}"
epochs = 2.0
batch = 4
learning_rate = 1e-3
checks = 1
features = ""
layout = {{ device = "cpu" }}
adapters = {{ rank = 2 }}
[task]
kind = "classify"
train = "{folder}/train.tsv"
dev = "{folder}/dev.tsv"
length = 32
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A fine-tuning with adapters, of two epochs."""
    folder = tmp_path_factory.mktemp("run")
    for name in ("train", "dev"):
        rows = [f"{word} {other}\t{word}" for word in ("boat", "gate") for other in TEXT.split()[:6]]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    init = learned(folder / "init", "bert", mlm.Mlm())
    (folder / "recipe.toml").write_text(RECIPE.format(init=init, out=folder / "tuned", folder=folder))
    return finetune(str(folder / "recipe.toml"))


def test_adapters_are_merged_and_steps_exported(run, tmp_path):
    texts = [f"{word} {other}" for word in ("boat", "gate") for other in TEXT.split()[:6]]
    made = export_all(run, tmp_path)
    assert [out.name for out in made] == ["step-3", "step-6"]
    for step, out in zip((3, 6), made, strict=True):
        asked = open_task(run, step=step, device="cpu")
        features = asked.settings.features(asked.settings.records((str(run.parent / "dev.tsv"),)), asked.reader)
        here = asked.answers(features)[0]["probabilities"]
        found = pipe("text-classification", out)(texts)
        assert [f["score"] for f in found] == pytest.approx(here.max(1).tolist(), abs=1e-5)
    assert (made[0] / "model.safetensors").read_bytes() != (made[1] / "model.safetensors").read_bytes()


def test_the_card_tells_task_files_scores_and_start(run, tmp_path, monkeypatch):
    monkeypatch.setattr(classify, "is_short", lambda text: text.startswith("gate"))
    card = (export(run, tmp_path / "out", licence="mit") / "README.md").read_text()
    scores = files.read_json(run / "scores.json")
    assert "predicts the class of a text: `boat`, `gate`." in card
    assert "| dev | dev.tsv | 12 | 12 | " in card
    for name in ("accuracy", "macro_f1"):
        assert f"| {name} | {scores[name]:.4g} | {scores['guessing'][name]:.4g} |" in card
    assert "On `dev.tsv`" in card
    assert "started from the weights of `init`" in card  # no path of a machine
    assert f'print(ask("gate {TEXT.split()[0]}", truncation' in card  # of the dev file
    assert f"{scores['step']} of 6 steps" in card
    assert "adapters" in card
    assert "by `ordsmed finetune` and this recipe" in card


@pytest.mark.parametrize("case", ["pair", "number", "tag", "squad-1.1", "squad-2.0"])
def test_the_cards_code_runs_and_says_what_we_say(case, tmp_path, monkeypatch, capsys):
    from huggingface_hub import ModelCard

    task: Any = {
        "pair": TASKS["classify"][0],
        "number": classify.Classify(number=True, scale=(1.0, 5.0), length=40),
        "tag": TASKS["tag"][0],
        "squad-1.1": squad.Squad(length=60),
        "squad-2.0": squad.Squad(version="2.0", threshold=-1e9, lowercase=True, length=60),
    }[case]
    own = learned(tmp_path / "own", "gpt2" if case == "number" else "bert", task)
    out = export(own, tmp_path / "out")
    code = re.search(r"```python\n(.*?)```", (out / "README.md").read_text(), re.S)[1]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    printed = capsys.readouterr().out.strip()
    tagged = {"pair": "text-classification", "number": "text-classification", "tag": "token-classification"}
    assert ModelCard.load(out / "README.md").data.pipeline_tag == tagged.get(case, "question-answering")
    if case == "squad-2.0":
        assert printed == "no answer"
    elif case == "squad-1.1":
        (tmp_path / "one.json").write_text(json.dumps({"id": 1, **{k: names[k] for k in ("question", "context")}}))
        assert printed == said(own, tmp_path / "one.json")[0].text
    elif case == "number":
        (tmp_path / "one.tsv").write_text("text\nRain falls.\n")
        assert float(printed) == pytest.approx(said(own, tmp_path / "one.tsv").values[0], abs=1e-4)
    else:
        assert "score" in printed
