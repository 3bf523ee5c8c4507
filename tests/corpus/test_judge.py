"""Trained filters: the linear classifier, other models, and how a corpus uses scores."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.language_models import hub_folder
from kit.task_files import task_files
from kit.task_models import task_models
from ordsmed.base import files, menu, settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run
from ordsmed.cli import main as ordsmed
from ordsmed.corpus import linear
from ordsmed.corpus.chunks import Reading
from ordsmed.corpus.cleaners.judge import Judge
from ordsmed.corpus.cleaning import Work
from ordsmed.corpus.folder import SPLITS, documents, parts
from ordsmed.corpus.judge_training import JudgeLearning, learn
from ordsmed.corpus.pipeline import Corpus
from ordsmed.measure.evaluation.evaluate import evaluate
from ordsmed.measure.probes.bits import Bits
from ordsmed.text.document import Document
from ordsmed.use.predict import classified
from ordsmed.weights.trained_model import open_model

ADVERT = ["buy", "now", "free", "shipping", "discount", "save", "order", "today", "%d", "price", "sale"]
PROSE = ["the", "river", "was", "cold", "and", "she", "thought", "of", "the", "house", "where", "they", "had", "lived"]


def text(kind: str, seed: int, words: int = 40) -> str:
    chance = random.Random(f"{kind} {seed}")
    return " ".join(chance.choice(ADVERT if kind == "advert" else PROSE) for _ in range(words))


def rows(count: int, seed: int = 0) -> list[tuple[str, str]]:
    kinds = ["advert" if n % 4 == 0 else "prose" for n in range(count)]
    return [(kind, text(kind, seed + n)) for n, kind in enumerate(kinds)]


def lines(path: Path, values: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return str(path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of two classes, one of numbers, and unseen texts of both classes."""
    folder = tmp_path_factory.mktemp("judges")
    table = lines(folder / "rows.jsonl", [{"text": body, "label": kind} for kind, body in rows(400)])
    said = learn([table], str(folder / "classes"), JudgeLearning(bits=12))
    answers = [{"text": body, "said": f"Well. Score: {4 if kind == 'prose' else 1}."} for kind, body in rows(400)]
    table = lines(folder / "answers.jsonl", [*answers, {"text": "x", "said": "I cannot tell."}])
    said += learn([table], str(folder / "numbers"), JudgeLearning(bits=12, label="said", pattern=r"Score: (\d)"))
    (folder / "said.txt").write_text("\n".join(said))
    lines(
        folder / "new.jsonl", [{"text": f"{body} {n}", "kind": kind} for n, (kind, body) in enumerate(rows(200, 1000))]
    )
    return folder


def test_the_step_that_is_proposed_keeps_the_better_half_of_the_scale(lab: Path) -> None:
    steps = re.findall(r"clean = \[(.*)\]", (lab / "said.txt").read_text())
    assert steps == [
        f'{{ kind = "judge", run = "{lab}/classes", label = "advert", least = 0.5 }}',
        f'{{ kind = "judge", run = "{lab}/numbers", least = 2.5 }}',
    ]


@pytest.mark.parametrize("length", [0, 1, linear.PART - 1, linear.PART, linear.PART + 1, 2 * linear.PART])
def test_the_parts_of_a_text_are_all_of_it(length: int) -> None:
    body = "abcdefg"[:7] * (length // 7 + 1)
    parts = [*linear.parts(body[:length])]
    assert "".join(parts) == body[:length]
    assert len(parts) == max(1, -(-length // linear.PART))


@pytest.fixture
def cleaned(lab: Path, tmp_path: Path) -> Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]:
    """What a corpus of the new texts keeps, and its facts."""

    def made(**step: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        source, folder = (
            menu.load("corpora", "jsonl")(str(lab / "new.jsonl")),
            tmp_path / str(len(list(tmp_path.iterdir()))),
        )
        folder.mkdir()
        corpus = Corpus(source, clean=(Judge(**step),))
        corpus.check_inputs()
        facts = corpus.perform(Run(folder))
        return [d.meta for split in SPLITS for part in parts(folder, split) for d in documents(part)], facts

    return made


def test_tokens_are_those_of_a_pattern() -> None:
    """As many as a regular expression finds, equal where they are equal, different where they are not."""
    sample = "Å er 1984—ikke?  Åre 1024 VÆRE!!\n東京は、とても x_y\t\x00 naïve e\u0301 \U0001f600 ikke\u00a0da ... år "
    for body in (sample, sample * 3, "", " ", "a", "12", "\n\n"):
        found = linear.tokens(body)
        names = [re.sub(r"\d", "0", name) for name in _reference(body)]
        assert len(found) == len(names), body
        numbers = dict(zip(names, found.tolist(), strict=True))
        assert [numbers[name] for name in names] == found.tolist()
        assert len(set(numbers.values())) == len(numbers)


def _reference(body: str) -> list[str]:
    """Letters in a run, whatever is above ASCII among them; digits; other signs; a line end; an ideograph."""
    pattern = r"[\u3000-\u9fff]|[a-z\x80-\u2fff\ua000-\U0010ffff]+|[0-9]+|\n|[^\sa-z0-9\x80-\U0010ffff\x00]+"
    return re.findall(pattern, body.lower())


def test_pairs_of_words_have_their_own_weights() -> None:
    words = linear.tokens("one two three")
    both = linear.buckets("one two three", 20)
    assert len(both) == 5
    assert len({*both.tolist()}) == 5
    assert set(linear.buckets("two three", 20).tolist()) < set(both.tolist())
    assert set(linear.buckets("three two", 20).tolist()) - set(both.tolist())
    assert len(words) == 3


def test_a_long_text_is_the_mean_of_its_parts(lab: Path) -> None:
    model = linear.Linear.load(lab / "classes")
    body = (text("advert", 1) + " " + text("prose", 1) + " ") * 200
    assert len(body) > 2 * linear.PART
    places = np.concatenate(
        [linear.buckets(body[at : at + linear.PART], 12) for at in range(0, len(body), linear.PART)]
    )
    wanted = linear.softmax(model.weights[places].mean(0, dtype=np.float64) + model.bias)
    assert model.probabilities(body) == pytest.approx(wanted, abs=1e-4)
    assert model.probabilities("") == pytest.approx(linear.softmax(model.bias))


def test_it_learns_and_says_how_well(lab: Path) -> None:
    status = Run(lab / "classes").status
    assert status["labels"] == ["advert", "prose"]
    assert status["scores"]["accuracy"] > 95
    assert Run(lab / "numbers").status["documents"] == {"1": 100, "4": 300}
    assert Run(lab / "numbers").status["scores"]["mean_error"] < 1


def test_the_same_documents_give_the_same_weights(lab: Path, tmp_path: Path) -> None:
    table = lines(tmp_path / "turned.jsonl", [{"text": b, "label": k} for k, b in reversed(rows(400))])
    learn([table], str(tmp_path / "again"), JudgeLearning(bits=12))
    assert linear.stamp(tmp_path / "again") == linear.stamp(lab / "classes")
    learn([table], str(tmp_path / "other"), JudgeLearning(bits=12, seed=1))
    assert linear.stamp(tmp_path / "other") != linear.stamp(lab / "classes")


def test_positives_against_random(tmp_path: Path, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text file of good ones, JSON lines of any; at most so many of each."""
    good = tmp_path / "good.txt"
    good.write_text("\n\n".join(text("prose", n) for n in range(120)))
    words = [
        f"good={good}",
        f"random={lab / 'new.jsonl'}",
        str(tmp_path / "judge"),
        "--max-documents",
        "90",
        "--bits",
        "10",
    ]
    ordsmed(["corpus", "judge", *words])
    assert '{ kind = "judge", run = ' in capsys.readouterr().out
    assert Run(tmp_path / "judge").status["documents"] == {"good": 90, "random": 90}


def test_a_threshold_keeps_scores_and_counts(cleaned: Any, lab: Path) -> None:
    kept, facts = cleaned(run=str(lab / "classes"), label="prose", least=0.5)
    assert [meta["kind"] for meta in kept].count("advert") == 0
    assert len(kept) == 150
    assert all(0.5 <= meta["score"] <= 1 for meta in kept)
    [step, _] = facts["steps"]
    assert (step["dropped"], step["reasons"]) == (50, {"low score": 50})
    kept, facts = cleaned(run=str(lab / "numbers"), most=2.5, into="quality")
    assert {meta["kind"] for meta in kept} == {"advert"}
    assert all(1 <= meta["quality"] <= 2.5 for meta in kept)
    assert facts["steps"][0]["reasons"] == {"high score": 150}


@pytest.mark.parametrize("best", [0.1, 0.6])
def test_a_share_of_the_corpus_is_kept(cleaned: Any, lab: Path, best: float) -> None:
    everything, _ = cleaned(run=str(lab / "classes"), label="prose")
    kept, facts = cleaned(run=str(lab / "classes"), label="prose", best=best)
    scores = sorted((meta["score"] for meta in everything), reverse=True)
    assert min(meta["score"] for meta in kept) == scores[round(best * 200) - 1]
    assert len(kept) == sum(score >= scores[round(best * 200) - 1] for score in scores)
    assert facts["set"] == [f"judge: least = {scores[round(best * 200) - 1]}, best = 1.0"]


def test_a_sample_sees_what_the_steps_before_leave(lab: Path, tmp_path: Path) -> None:
    """A resumed run uses the stored threshold."""
    source = menu.load("corpora", "jsonl")(str(lab / "new.jsonl"))
    length = menu.load("cleaners", "length")(min_characters=10_000)
    corpus = Corpus(source, clean=(length, Judge(str(lab / "classes"), "prose", best=0.5)), keep_steps=True)
    with pytest.raises(DataError, match="none of 200 documents is left"):
        corpus.perform(Run(tmp_path))
    [path] = (tmp_path / "steps").glob("fitted-*.json")
    assert files.read_json(path).get("least") is None


def test_a_score_at_the_threshold_is_kept(lab: Path) -> None:
    meta: dict[str, Any] = {}
    Judge(str(lab / "classes"), "prose").clean("the river sale", meta)
    score = meta["score"]
    for step in (Judge(str(lab / "classes"), "prose", least=score), Judge(str(lab / "classes"), "prose", most=score)):
        assert step.clean("the river sale", meta) == "the river sale"


def test_another_judge_at_the_same_place_cleans_again(lab: Path, tmp_path: Path) -> None:
    folders = []
    for name in ("classes", "numbers"):
        shutil.rmtree(tmp_path / "judge", ignore_errors=True)
        shutil.copytree(lab / name, tmp_path / "judge")
        step = Judge(str(tmp_path / "judge"))
        corpus = Corpus(menu.load("corpora", "jsonl")(str(lab / "new.jsonl")), clean=(step,))
        folders.append((Reading(tmp_path, corpus._sources(), Work(corpus.clean)).folder, json.dumps(corpus.stamp())))
    assert len({folder for folder, _ in folders}) == len({stamp for _, stamp in folders}) == 2


def test_documents_are_drawn_by_their_scores(cleaned: Any, lab: Path) -> None:
    everything, _ = cleaned(run=str(lab / "classes"), label="prose")
    kept, facts = cleaned(run=str(lab / "classes"), label="prose", weight="score")
    wanted = sum(meta["score"] for meta in everything)
    assert len(kept) == pytest.approx(wanted, abs=3 * sum(m["score"] * (1 - m["score"]) for m in everything) ** 0.5)
    assert facts["steps"][0]["reasons"] == {"not drawn": 200 - len(kept)}
    other, _ = cleaned(run=str(lab / "classes"), label="prose", weight="score", seed=1)
    assert kept != other


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    task_files(folder)
    found = {**task_models(folder), **{name: hub_folder(name, folder / name) for name in ("gpt2", "bert")}}
    return {name: str(path) for name, path in found.items()}


def test_a_fine_tuned_model_judges(models: dict[str, str]) -> None:
    [answer] = classified(open_model(models["classify"]), ["a newt"])
    for label, share in answer.probabilities.items():
        step, meta = Judge(models["classify"], label, least=share - 1e-3), dict[str, Any]()
        step.check_inputs()
        assert step.clean("a newt", meta) == "a newt"
        assert meta["score"] == pytest.approx(share, abs=1e-4)
        assert Judge(models["classify"], label, least=share + 1e-3).clean("a newt", {}) is None
    [answer] = classified(open_model(models["number"]), ["a newt"])
    step, meta = Judge(models["number"]), {}
    step.check_inputs()
    step.clean("a newt", meta)
    assert meta["score"] == pytest.approx(answer.number, abs=1e-4)


def test_a_language_model_judges_by_bits(models: dict[str, str], tmp_path: Path) -> None:
    """As the probe counts them; fewer are better."""
    path = tmp_path / "one.txt"
    path.write_text("the newt sat on the mat\nand ran")
    [result] = evaluate([models["gpt2"]], [Bits((str(path),))], out=str(tmp_path / "out"))
    step, meta = Judge(models["gpt2"], best=0.3), dict[str, Any]()
    step.check_inputs()
    step.clean(path.read_text(), meta)
    assert meta["score"] == pytest.approx(result.plain()["bits_per_byte"], abs=1e-4)
    bodies = ["the newt sat on the mat", "zq xv jk", ""]
    settled = step.fitted([Document(body) for body in bodies])
    assert (settled.least, settled.best) == (None, 1.0)
    assert [settled.clean(body, meta) for body in bodies] == [bodies[0], None, None]
    assert meta["score"] == 8.0


WRONG = [
    ({"run": "nowhere"}, "found nowhere, which is none of these; wanted a folder of"),
    ({"run": "{lab}/classes"}, "judge.label: missing; .* knows classes; wanted one of advert, prose"),
    ({"run": "{lab}/classes", "label": "pros"}, "found `pros`; wanted one of advert, prose; did you mean `prose`"),
    ({"run": "{lab}/classes", "label": "prose", "least": 1.5}, "found 1.5, so that nothing is kept; wanted at most 1"),
    ({"run": "{lab}/numbers", "most": 0.5}, "found 0.5, so that nothing is kept; wanted at least 1"),
    ({"run": "{gpt2}", "weight": "score"}, "found score with .*, a language model; wanted scores with a lowest"),
    ({"run": "{gpt2}", "label": "good"}, "found `good`; wanted none: it predicts a number"),
    ({"run": "{bert}"}, "does not multiply|wanted a causal model"),
    ({"run": "{tag}"}, "was fine-tuned for tag, not for classes"),
    ({"run": "{pairs}"}, "was fine-tuned for classify, not for classes or a number per text"),
]


@pytest.mark.parametrize(("step", "wanted"), WRONG)
def test_what_is_no_judge_is_refused(step: dict[str, Any], wanted: str, lab: Path, models: dict[str, str]) -> None:
    """Before anything runs: a dry run, and a run, ask so first."""
    source = menu.load("corpora", "jsonl")(str(lab / "new.jsonl"))
    corpus = Corpus(source, clean=(Judge(**{**step, "run": step["run"].format(lab=lab, **models)}),))
    with pytest.raises(RecipeError, match=wanted):
        corpus.check_inputs()


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"best": 0}, "judge: best: found 0.0; wanted a share above 0"),
        ({"best": 0.001, "sample": 100}, "keeps nothing of a sample of 100"),
        ({"best": 0.5, "least": 0.1}, "found together with least or most"),
        ({"least": 0.5, "most": 0.1}, "nothing is kept"),
    ],
)
def test_thresholds_that_keep_nothing_are_refused(table: dict[str, Any], wanted: str) -> None:
    with pytest.raises(RecipeError, match=wanted):
        settings.decode(Judge, {"run": "x", **table}, "judge")


@pytest.mark.parametrize(
    ("source", "how", "wanted"),
    [
        ([{"text": "a", "label": "x"}, {"text": "b", "label": "x"}], {}, "only one label, `x`"),
        (
            [{"text": "a", "label": ""}, {"text": "b", "label": "x"}] * 3,
            {"pattern": "y"},
            "6 of 6 rows without a label",
        ),
        ([{"text": "a", "lable": "x"}], {}, "no column `label`.*did you mean `lable`"),
    ],
)
def test_bad_tables_are_refused(source: Any, how: Any, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=wanted):
        learn([lines(tmp_path / "t.jsonl", source)], str(tmp_path / "out"), JudgeLearning(**how))
    assert not (tmp_path / "out").exists()


def test_what_stands_is_kept(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="exists; wanted a new folder"):
        learn(["x"], str(lab / "classes"), JudgeLearning())
    (tmp_path / "mine").mkdir()
    with pytest.raises(RecipeError, match="exists"):
        learn(["x"], str(tmp_path / "mine"), JudgeLearning(), anew=True)
    (lab / "broken").mkdir()
    files.write_json(lab / "broken" / "status.json", Run(lab / "classes").status)
    (lab / "broken" / linear.WEIGHTS).write_bytes(b"PK no archive")
    with pytest.raises(DataError, match="cannot be read"):
        linear.Linear.load(lab / "broken")
