"""The model card: every score next to its baseline, nothing about the machine, for complete and damaged runs."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.makers import PAD_SECOND, make_store
from ordsmed.base.run import Run
from ordsmed.learn.classification.records import Records
from ordsmed.learn.objectives import mlm, mlm_nsp, rtd
from ordsmed.learn.score.metrics import share_guessed
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.models import bert, electra
from ordsmed.text.labelled.conll import TaggedSentences
from ordsmed.text.labelled.questions import Question
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.pretrain.finish import beside
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.weights import card
from ordsmed.weights.trained_model import Trained, open_model

SMALL = {"width": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 32}
RECIPE = """
data = "{folder}/store"
out = "{folder}/{objective}"
validation_rows = 16
layout = {{ device = "cpu", threads = 1 }}
model = {{ kind = "{model}", width = 16, layers = 1, heads = 2, positions = 32 }}
objective = "{objective}"
[[phase]]
steps = 2
length = 32
batch = 4
learning_rate = 1e-3
pack = false
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = make_store(tmp_path_factory.mktemp("card") / "store", documents=4)
    return Tokenizer.load(folder / "tokenizer")


def trained(folder: Path, tokenizer: Tokenizer, learned: Any, model: Any, scores: dict[str, Any]) -> Trained:
    """A run of two steps that left these scores."""
    (folder / "scores.json").write_text(json.dumps({"step": 2, **scores}))
    recipe = {
        "data": {"/secret/place/store": 1.0},
        "init": "/secret/place/start",
        "out": "/secret/run",
        "seed": 3,
        "layout": {"device": "cpu", "threads": 7, "replicate": 4},
        "objective": {"kind": "x"},
        "phase": [{"steps": 2}],
    }
    (folder / "data.json").write_text(json.dumps({"/secret/place/store": {"title": "Mine", "licence": "CC0-1.0"}}))
    return Trained(learned.build(model, tokenizer).eval(), tokenizer, model, folder, recipe, 2, learned)


def rows(text: str) -> dict[str, list[str]]:
    told = text.partition("## Scores")[2].partition("## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in told if line.startswith("|")]
    return {line[0]: line[1:] for line in cells[2:]}


def test_a_pair_is_compared_with_pairs_and_a_token_with_tokens(tmp_path, tokenizer):
    scores = {
        "validation": 7.5,
        "mlm": 6.0,
        "pair": 0.7,
        "mlm_right": 0.2,
        "pair_right": 0.55,
        "apart": 0.4,
        "loss": 7.9,
        "unigram": 6.5,
        "guessing": {"mlm": 6.5, "mlm_right": 0.08},
    }
    found = trained(tmp_path, tokenizer, mlm_nsp.MlmNsp(), bert.Bert(**SMALL), scores)
    entropy = -(0.4 * math.log(0.4) + 0.6 * math.log(0.6))
    assert rows(card.write(found, "x")) == {
        "mlm: loss (nats a prediction)": ["6.0000", "6.5000"],
        "pair: loss (nats a prediction)": ["0.7000", f"{entropy:.4f}"],
        "mlm: right": ["20.0%", "8.0%"],
        "pair: right": ["55.0%", "60.0%"],
        "weighted sum of these losses": ["7.5000", ""],
        "training loss, last step": ["7.9000", ""],
    }


def test_fakes_are_compared_with_there_being_none(tmp_path, tokenizer):
    scores = {
        "validation": 20.0,
        "guess": 6.0,
        "detect": 0.3,
        "guess_right": 0.1,
        "detect_right": 0.9,
        "fake_right": 0.2,
        "real_right": 0.95,
        "original": 0.875,
        "balanced": 0.575,
        "unigram": 6.5,
        "loss": 21.0,
    }
    model = electra.Electra(**SMALL, embedding=16)
    told = rows(card.write(trained(tmp_path, tokenizer, rtd.Rtd(), model, scores), "x"))
    assert told["detect: right"] == ["90.0%", "87.5%"]
    assert told["detect: loss (nats a prediction)"] == ["0.3000", "0.3768"]
    assert told["guess: loss (nats a prediction)"] == ["6.0000", "6.5000"]
    assert told["guess: right"] == ["10.0%", ""]  # a run from before that was noted
    assert told["balanced"] == ["57.5%", "50.0%"]
    assert told["fake: right"] == ["20.0%", ""]


@pytest.mark.parametrize("odd", [float("nan"), None, "gone"])
def test_numbers_that_are_none_are_told_as_none(tmp_path, tokenizer, odd):
    scores = {"validation": odd, "mlm": odd, "mlm_right": odd, "unigram": 6.5, "loss": odd}
    found = trained(tmp_path, tokenizer, mlm.Mlm(), bert.Bert(**SMALL), scores)
    told = rows(card.write(found, "x"))
    assert told["loss (nats a prediction)"] == ["none", "6.5000"]
    assert told["training loss, last step"] == ["none", ""]
    (tmp_path / "scores.json").unlink()
    assert "## Scores" not in card.write(found, "x")


def test_nothing_of_the_machine_stands_in_it(tmp_path, tokenizer):
    scores = {"validation": 6.0, "mlm": 6.0, "loss": 6.0}
    text = card.write(trained(tmp_path, tokenizer, mlm.Mlm(), bert.Bert(**SMALL), scores), "x", "mit")
    machine = ("/secret", "layout", "threads", "replicate", str(tmp_path))
    assert not [line for line in text.splitlines() for word in machine if word in line]
    assert 'init = "start"' in text
    assert "seed = 3" in text
    assert "| Mine | not said | CC0-1.0 | 100% |" in text


def test_two_things_are_guessed_by_the_more_frequent_one():
    assert share_guessed("pair", 0.25) == {"pair": pytest.approx(0.5623, abs=1e-4), "pair_right": 0.75}
    assert share_guessed("pair", 1.0) == {"pair": 0.0, "pair_right": 1.0}


def test_a_term_is_told_beside_guessing():
    facts = {"pair": 0.7, "pair_right": 0.5, "guessing": {"pair": 0.69, "pair_right": 0.6}}
    assert beside("pair", facts) == "pair: 50.0% right, 60.0% by guessing; loss 0.7000, 0.6900 by guessing"
    assert beside("other", facts) == ""


@pytest.mark.long
@pytest.mark.parametrize(("objective", "model"), [("mlm_nsp", "bert"), ("rtd", "electra")])
def test_a_run_notes_what_guessing_gets(tmp_path, capsys, objective, model):
    make_store(tmp_path / "store", specials=PAD_SECOND)
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path, objective=objective, model=model))
    run = pretrain(str(path))
    scores, told = json.loads((run / "scores.json").read_text()), capsys.readouterr().err
    guessed, main, other = scores["guessing"], *(("mlm", "pair") if objective == "mlm_nsp" else ("guess", "detect"))
    assert guessed[main] == scores["unigram"]
    assert 0 <= guessed[f"{main}_right"] < 0.5
    assert f"{other}: {scores[f'{other}_right']:.1%} right, {guessed[f'{other}_right']:.1%} by guessing" in told
    found = open_model(run)
    if objective == "mlm_nsp":
        share = np.mean(labels(found, tmp_path / "store", 16) == 1)
        assert scores["apart"] == pytest.approx(share)
        assert guessed["pair_right"] == max(share, 1 - share)
    else:
        real, fake, right = (scores[f"{name}_right"] for name in ("real", "fake", "detect"))
        original = scores["original"]
        assert right == pytest.approx(original * real + (1 - original) * fake)
        assert guessed["detect_right"] == original > 0.5
    assert rows(card.write(found, "x"))[f"{other}: right"][1] == f"{guessed[f'{other}_right']:.1%}"


def labels(found: Trained, store: Path, count: int) -> Any:
    from ordsmed.base import run
    from ordsmed.data.encode import Encoded
    from ordsmed.train.pretrain.recipe import Pretraining
    from ordsmed.train.pretrain.texts import TextData

    recipe = run.read_recipe(Pretraining, found.folder)
    rows = TextData.of(recipe, [Encoded(store)]).validation(0)
    return rows.batch(np.arange(count)).pairs.numpy()


def section(text: str, name: str) -> list[str]:
    return text.partition(f"## {name}\n\n")[2].partition("\n\n## ")[0].splitlines()


def test_a_run_in_words(tmp_path, tokenizer):
    """Sources with their shares, how far it came, what it saw until then, and by whom it was made."""
    made = trained(tmp_path, tokenizer, mlm.Mlm(), bert.Bert(**SMALL), {})
    phases = [
        {"steps": 600, "length": 32, "epochs": 2.0},
        {"steps": 600, "learning_rate": 0.5, "schedule": {"kind": "cosine"}},
    ]
    recipe = {**made.recipe, "data": {"a/one|two": 3.0, "b": 1.0}, "phase": phases, "objective": "mlm"}
    made = dataclasses.replace(made, recipe=recipe, step=1000)
    held = {"train": {"documents": 1, "tokens": 2000}, "validation": {"documents": 2, "tokens": 1}}
    facts = {"a/one|two": {"title": "Old|new", "language": "nb", **held}, "b": {"language": "nb", "title": "Mine"}}
    (tmp_path / "data.json").write_text(json.dumps(facts))
    lines = [{"step": step, "tokens": 1500, "seconds": 1800.0} for step in (999, 1000, 1001)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9')
    (tmp_path / "environment.json").write_text('{"ordsmed": "0.0.1"}')
    text = card.write(made, "x", 'a "licence"')
    assert text.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\nlicense: other\n")
    assert 'license_name: "a-licence"' in text
    front = text.split("---")[1]
    assert front.count('- "nb"') == 1
    assert front.index("language:") < front.index("tags:") < front.index("datasets:")
    assert "Old|new" not in front  # which is no name of a data set
    assert section(text, "Data")[2:] == [
        "| Old\\|new | nb | not said | 75% | 1 document, 2,000 tokens | 2 documents, 1 token |",
        "| Mine | nb | not said | 25% | none | none |",
    ]
    assert section(text, "Settings")[-4:] == [
        "| phase | steps | length | learning_rate | schedule |",
        "| --- | --- | --- | --- | --- |",
        "| 1 | 600 | 32 |  |  |",
        "| 2 | 600 |  | 0.5 | kind cosine |",
    ]
    assert "| objective |  |" in section(text, "Settings")
    assert section(text, "Training") == [
        "1,000 of 1,200 steps (the run is not finished), 3,000 tokens seen, 1 hour; started from the weights of "
        "`start`."
    ]
    assert "With ordsmed 0.0.1, by `ordsmed pretrain` and this recipe:" in text
    Run(tmp_path).set(state="done")
    text = card.write(dataclasses.replace(made, recipe={k: v for k, v in recipe.items() if k != "init"}), "x")
    assert section(text, "Training")[0].startswith("1,000 of 1,200 steps, 3,000 tokens seen")
    assert section(text, "Training")[0].endswith("; started from random weights.")
    assert "license" not in text


@pytest.mark.parametrize(
    ("licence", "metadata"),
    [("CC-BY-4.0", ("cc-by-4.0", None)), ("mine alone", ("other", "mine-alone")), (None, (None, None))],
)
def test_the_hub_reads_the_card(tmp_path, tokenizer, licence, metadata):
    model_card = pytest.importorskip("huggingface_hub").ModelCard
    made = trained(tmp_path, tokenizer, mlm.Mlm(), bert.Bert(**SMALL), {})
    (tmp_path / "data.json").write_text('{"/secret/place/store": {"title": "Æ \\": x", "language": "klingon: a"}}')
    text = card.write(made, "x", licence, title="Mine: all", language="nb")
    data = model_card(text).data
    assert (data.license, data.license_name) == metadata
    assert (data.language, data.datasets, data.pipeline_tag) == (["nb"], None, "fill-mask")
    assert "\n# Mine: all\n" in text
    assert model_card(card.write(made, "x")).data.language is None  # what is no code is no metadata


def test_examples_of_a_task_are_its_records() -> None:
    long = "word " * 40
    texts = Records(["Hei.", long, 'Det "er" bra.'], [], ["a", "b", "a"], [])
    pairs = dataclasses.replace(texts, seconds=["x", "y", "Ja."])
    assert classify.Classify().card_examples(texts) == {classify.FIRST: 'Det "er" bra.'}
    assert classify.Classify().card_examples(pairs)[classify.SECOND] == "Ja."
    assert classify.Classify().card_examples(Records([long], [], ["a"], [])) == {}
    tagged = TaggedSentences([["Hei"], ["Det", "er", "bra"]], [[None], [None] * 3], ["a", "b"])
    assert tag.Tag().card_examples(tagged) == {tag.SENTENCE: "Det er bra"}
    asked = [Question(str(n), f"Hva {n}?", "lang tekst " * n, (), False) for n in (3, 1, 2)]
    assert squad.Squad().card_examples(squad.Squad().about(asked))[squad.QUESTION] == "Hva 1?"
    code = Usage("x", "y", in_python("m", f'ask("{classify.FIRST}")')).with_examples({classify.FIRST: 'a "b" å'}).how
    assert 'ask("a \\"b\\" å")' in code


def test_a_folder_of_weights_in_words(tmp_path, tokenizer):
    made = trained(tmp_path, tokenizer, mlm.Mlm(), bert.Bert(**SMALL), {})
    text = card.write(dataclasses.replace(made, recipe=None, step=None), "x")
    assert "## Training" not in text
    assert "## Data" not in text
    assert "from a folder of weights; how they were trained is not known here." in text
    count = sum(t.numel() for t in made.objective.networks()[""].tensors().values())
    assert f"This one has {count:,} parameters and fills masked tokens, seeing both sides." in text
    assert f"It takes texts of up to 32 tokens of a vocabulary of {tokenizer.vocabulary:,} (" in text


NUMBER = {"number": True, "scale": (1.0, 5.0)}


@pytest.mark.parametrize(
    ("task", "what", "code"),
    [
        (
            classify.Classify(labels=("a", "b"), length=20),
            "predicts the class of a text: `a`, `b`.",
            'print(ask("Rain falls.", truncation=True, max_length=20))\n',
        ),
        (
            classify.Classify(labels=("a", "b"), second="other", length=20),
            "predicts the class of two texts: `a`, `b`.",
            'print(ask({"text": "Rain falls.", "text_pair": "It is wet."}, truncation=True, max_length=20))\n',
        ),
        (
            classify.Classify(**NUMBER),
            "predicts a number for a text, from 1 to 5.",
            'print(ask("Rain falls.", truncation=True, max_length=128))\n',
        ),
        (
            tag.Tag(labels=("O", "B-X", "I-X")),
            "predicts the tag of each word: `O`, `B-X`, `I-X`.",
            'model="x", aggregation_strategy="first")\n',
        ),
        (tag.Tag(labels=("NOUN", "VERB")), "predicts the tag of each word: `NOUN`, `VERB`.", 'model="x")\n'),
        (squad.Squad(), "answers a question by a part of a text.", "print(context[offsets[start][0]"),
        (
            squad.Squad(version="2.0", threshold=0.5, lowercase=True, longest_answer=9),
            "answers a question by a part of a text, or reports that there is no answer.",
            'print("no answer" if scores[0, 0] - best.max() > 0.5 else context[',
        ),
    ],
)
def test_a_task_in_words(tmp_path, tokenizer, task, what, code):
    task = dataclasses.replace(task, train="/data/train.tsv", dev=("/data/dev.tsv", "b.tsv"))
    recipe = {
        "init": "start",
        "epochs": 3.0,
        "steps": 0,
        "batch": 8,
        "learning_rate": 1e-3,
        "examples": 100,
        "seed": 0,
        "freeze": True,
        "optimizer": {"kind": "adamw", "decay": 0.1},
        "task": {"kind": "x"},
    }
    model = bert.Bert(**{**SMALL, "positions": 512})
    found = Trained(task.build(model, tokenizer).eval(), tokenizer, model, tmp_path, recipe, 38, task)
    files = {"split": "dev", "records": 1000, "examples": 1200, "tokens": 9, "longest": 4}
    (tmp_path / "data.json").write_text(json.dumps({"/data/dev.tsv, b.tsv": files}))
    scores = {"step": 38, "validation": 0.5, "examples": 100, "f1": 50.25, "guessing": {"f1": 40.0}}
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    text = card.write(found, "x")
    assert f"parameters and {what}" in text
    assert code in text
    assert ("question.lower(), context.lower()" in text) == getattr(task, "lowercase", False)
    assert section(text, "Data")[2:] == ["| dev | dev.tsv, b.tsv | 1,000 | 1,200 | 9 |"]
    assert section(text, "Scores")[0] == "On `dev.tsv`, `b.tsv`, in per cent but for the loss and thresholds:"
    head, _, loss, f1 = section(text, "Scores")[2:]
    assert head == "| score | this model | guessing |"
    assert loss.startswith("| loss | 0.5")
    assert f1.startswith("| f1 | 50.25")
    assert " | 40" in f1
    told = section(text, "Settings")
    assert "| batch | 8 |" in told
    assert "| freeze | True |" in told
    assert "| optimizer | kind adamw, decay 0.1 |" in told
    assert not [line for line in told if line.startswith(("| seed", "| steps", "| train |", "| labels", "| top"))]
    assert section(text, "Training")[0].startswith("38 of 38 steps; started from the weights of `start`.")
    assert "by `ordsmed finetune` and this recipe:" in text


def test_a_scale_that_no_class_can_keep_stands_in_the_code(tmp_path, tokenizer, monkeypatch):
    task, model = classify.Classify(**NUMBER, train="a", length=9), bert.Bert(**SMALL)
    found = Trained(task.build(model, tokenizer).eval(), tokenizer, model, tmp_path, learned=task)
    for tells in (True, False):
        monkeypatch.setattr(classify, "rescalable", lambda *_, tells=tells: (1.0, 5.0) if tells else None)
        asked = 'ask("Rain falls.", truncation=True, max_length=9)'
        scaled = f'1 + 4 * {asked}[0]["score"]'
        code = section(card.write(found, "x"), "How to use it")
        assert code[-2].startswith(f"print({asked if tells else scaled})")
