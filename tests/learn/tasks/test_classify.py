"""Classify: reading files, truncation, losses, output files; every family learns a planted rule."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.menu import lines
from ordsmed.base.ranks import prepare
from ordsmed.base.settings import decode, plain
from ordsmed.data.batch import Batch
from ordsmed.data.features import ExampleRows, Packing
from ordsmed.data.pieces import TextReader
from ordsmed.learn.classification.outputs import LabelPredictions
from ordsmed.learn.classification.records import Records
from ordsmed.learn.inference import predict_all
from ordsmed.learn.objective import fresh
from ordsmed.learn.pool import pooled
from ordsmed.learn.task import packing, reader
from ordsmed.learn.tasks.classify import Classifier, Classify
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.models import bert, elmo, gpt2
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.predict import _changed

WORDS = [f"w{n}" for n in range(40)]
SHAPE: dict[str, Any] = {
    "width": 24,
    "layers": 1,
    "heads": 2,
    "inner": 48,
    "positions": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
BERT, GPT = bert.Bert(**SHAPE), gpt2.Gpt2(**SHAPE)
ELMO = elmo.Elmo(width=16, cells=24, highways=1, filters=((1, 8), (2, 24)), dropout=0.0)
CPU = prepare("cpu", 1)


def tokenizer(folder: Path, signs: str = "[PAD] [UNK] [CLS] [SEP] [MASK]") -> Tokenizer:
    path = folder / "vocab.txt"
    path.write_text("\n".join([*signs.split(), *WORDS]) + "\n")
    return Tokenizer.load(path)


def of_words(folder: Path) -> Tokenizer:
    return tokenizer(folder, "<S> </S> <UNK>")


def tsv(path: Path, *rows: tuple[object, ...]) -> str:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return str(path)


def sentences(count: int, seed: int, longest: int = 9) -> list[list[str]]:
    draw = np.random.default_rng(seed)
    return [[str(word) for word in draw.choice(WORDS, draw.integers(2, longest))] for _ in range(count)]


def learned(settings: Classify, model: Any, words: Tokenizer, paths: list[str], steps: int, rate: float = 3e-3) -> Any:
    """Settings, task, records and features after some steps on the first file, with those of the second."""
    train = settings.records(paths[:1], learning=True)
    settings = settings.complete(train)
    read, pack = reader(words, model), packing(words, model)
    dev = settings.records(paths[1:])
    rows, judged = ExampleRows(settings.features(train, read), pack, 0), settings.features(dev, read)
    task = fresh(settings, model, words, 1)
    optimizer = torch.optim.AdamW(task.parameters(), rate)
    for step in range(steps):
        batch = rows.batch(np.arange(step * 32, step * 32 + 32))
        loss = sum(task(batch).values()) / sum(task.count(batch).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    answers, means = predict_all(task, judged, pack, CPU)
    return SimpleNamespace(
        settings=settings,
        task=task,
        train=train,
        dev=dev,
        answers=answers,
        means=means,
        said=settings.predictions(dev, judged, answers),
    )


def test_the_seam_and_its_words() -> None:
    offered = "paths records complete features build predictions score fitted guesses write read details"
    assert all(callable(getattr(Classify, name)) for name in offered.split())
    assert all(line.doc for line in lines("ordsmed.learn.tasks.classify"))
    settled = Classify(name="rte", train="a", class_weights={"entailment": 2.0})
    assert decode(Classify, {k: v for k, v in plain(settled).items() if k != "kind"}, "recipe") == settled


def planted(folder: Path, rule: Any, count: int = 500) -> list[str]:
    """Two files of sentences whose label follows a rule."""
    return [
        tsv(folder / f"{seed}.tsv", ("text", "label"), *((" ".join(s), rule(s)) for s in sentences(size, seed)))
        for seed, size in ((1, count), (2, 200))
    ]


def early(words: list[str]) -> str:
    return "early" if sum(int(word[1:]) < 20 for word in words) * 2 > len(words) else "late"


@pytest.mark.parametrize(("model", "pool"), [(BERT, "first"), (GPT, "last")], ids=["bert", "gpt2"])
def test_a_planted_rule_is_learned(tmp_path: Path, model: Any, pool: str) -> None:
    run = learned(Classify(), model, tokenizer(tmp_path), planted(tmp_path, early, 1500), 90)
    assert run.task.pool == pool
    assert run.settings.labels == run.task.labels == ("early", "late")
    found = run.settings.score(run.dev, run.said)
    assert list(found) == ["accuracy", "macro_f1"]
    assert found["accuracy"] >= 95
    assert 45 < run.settings.score(run.dev, run.settings.guesses(run.train, run.dev))["accuracy"] < 65
    assert run.means["classify"] == pytest.approx(
        -np.log([run.answers["probabilities"][n, run.task.labels.index(g)] for n, g in enumerate(run.dev.gold)]).mean(),
        rel=1e-4,
    )


@pytest.mark.parametrize(
    ("model", "recurrent", "pool"),
    [(BERT, 0, "first"), (GPT, 0, "last"), (BERT, 8, "max"), (GPT, 8, "max"), (ELMO, 0, "max"), (ELMO, 8, "max")],
)
def test_the_state_that_a_head_is_given(model: Any, recurrent: int, pool: str) -> None:
    settings = Classify(labels=("a", "b"), top=Top(recurrent=recurrent))
    assert Classifier(settings, model, 40).pool == pool
    assert Classifier(dataclasses.replace(settings, pool="mean"), model, 40).pool == "mean"


@pytest.mark.long
def test_an_elmo_learns_it_through_its_top(tmp_path: Path) -> None:
    settings = Classify(top=Top(recurrent=24, dropout=0.1))
    run = learned(settings, ELMO, of_words(tmp_path), planted(tmp_path, early, 1000), 180, 1e-2)
    assert run.task.pool == "max"
    assert run.settings.score(run.dev, run.said)["accuracy"] > 95


@pytest.mark.long
def test_a_number_of_two_texts_is_learned_and_told_on_its_scale(tmp_path: Path) -> None:
    """How many of the second text's words are of the early half, in tens."""
    pairs = [zip(sentences(size, size), sentences(size, size + 1), strict=True) for size in (1500, 200)]
    paths = [
        tsv(tmp_path / f"{n}.tsv", *((*map(" ".join, p), 10 * sum(int(w[1:]) < 20 for w in p[1])) for p in each))
        for n, each in enumerate(pairs)
    ]
    how: dict[str, Any] = {"header": False, "text": 1, "second": 2, "label": 3}
    run = learned(Classify(number=True, **how), BERT, tokenizer(tmp_path), paths, 150)
    assert (run.settings.scale, run.task.number) == ((0.0, 80.0), True)
    found = run.settings.score(run.dev, run.said)
    assert list(found) == ["pearson", "spearman"]
    assert found["pearson"] > 95
    right = np.array([float(gold) for gold in run.dev.gold])
    assert np.abs(np.array(run.said.values) - right).mean() < 5
    assert run.means["classify"] == pytest.approx((((run.said.values - right) / 80) ** 2).mean(), rel=1e-3)
    guessed = run.settings.guesses(run.train, run.dev)
    assert guessed.values[0] == pytest.approx(np.mean([float(gold) for gold in run.train.gold]))
    assert [row[0] for row in run.settings.details(run.dev, run.said)[0][2]] == ["right", "predicted", "too high by"]


@pytest.mark.parametrize("room", [1, 2, 7, 8])
def test_two_texts_are_cut_as_the_tokenizers_library_cuts_them(tmp_path: Path, room: int) -> None:
    words = tokenizer(tmp_path)
    sizes = [(a, b) for a in range(11) for b in range(11)]
    words.pipeline.enable_truncation(room + 3, strategy="longest_first")
    want = []
    for a, b in sizes:
        found = words.pipeline.encode("w1 " * a, "w2 " * b)
        want.append((found.sequence_ids.count(0), found.sequence_ids.count(1)))
    one, two = np.array(sizes).T
    assert np.stack(TextReader.longest_first(one, two, room), 1).tolist() == [list(pair) for pair in want]


def test_examples_are_framed_as_the_tokenizer_frames_them(tmp_path: Path, capsys: Any) -> None:
    words = tokenizer(tmp_path)
    one, two = ([" ".join(s) for s in sentences(40, seed, 12)] for seed in (3, 4))
    one[0] = one[1] = two[1] = ""
    records = Records(one, two, [""] * 40, [])
    settings = Classify(length=12, second="b", labels=("a", "b"))
    found = settings.features(records, reader(words, BERT))
    words.pipeline.enable_truncation(12)
    want = words.pipeline.encode_batch(list(zip(one, two, strict=True)))
    assert found.ids.tolist() == [n for each in want for n in each.ids]
    assert found.types is not None
    assert found.types.tolist() == [n for each in want for n in each.type_ids]
    cut = sum(len(f"{a} {b}".split()) > 9 for a, b in zip(one, two, strict=True))
    assert f"{cut} of 40 examples are longer than 12 tokens (task.length): truncated" in capsys.readouterr().err
    assert found.labels is None
    with pytest.raises(OrdsmedError, match=r"task.length: 3, of which 3 are special tokens; wanted 4 or more"):
        dataclasses.replace(settings, length=3).features(records, reader(words, BERT))


def test_a_text_without_a_token_is_still_asked(tmp_path: Path) -> None:
    """A tokenizer without signs makes nothing of an empty text."""
    from tokenizers import Tokenizer as Pipeline
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    pipeline = Pipeline(WordLevel({"<|endoftext|>": 0, "w1": 1, "w2": 2}, unk_token="<|endoftext|>"))
    pipeline.pre_tokenizer = Whitespace()
    words, settings = Tokenizer(pipeline), Classify(labels=("a", "b"))
    found = settings.features(Records(["", "w1 w2", ""], [], [""] * 3, []), reader(words, GPT))
    assert (found.ids.tolist(), found.starts.tolist()) == ([0, 1, 2, 0], [0, 1, 3, 4])
    answers, _ = predict_all(fresh(settings, GPT, words, 0), found, packing(words, GPT), CPU)  # type: ignore[arg-type]
    assert np.allclose(answers["probabilities"][0], answers["probabilities"][2], atol=1e-6)


def test_loss_and_answers_do_not_hang_on_the_packing_and_sums_add_up(tmp_path: Path) -> None:
    words = tokenizer(tmp_path)
    texts = [" ".join(s) for s in sentences(24, 5)]
    gold = [("a", "b", "c", "", "new")[n % 5] for n in range(24)]
    for pool in ("first", "last", "mean", "max"):
        settings = Classify(labels=("a", "b", "c"), class_weights={"a": 3.0, "c": 0.5}, pool=pool)  # type: ignore[arg-type]
        features = settings.features(Records(texts, [], gold, [SimpleNamespace(path="x")]), reader(words, BERT))  # type: ignore[list-item]
        task = fresh(settings, BERT, words, 0).eval()
        assert isinstance(task, Classifier)
        every = np.arange(24)
        packed, alone = (Packing(0, alone=alone).batch(features, every, every) for alone in (False, True))
        assert len(packed.tokens) < 24
        with torch.no_grad():
            scores = task.scores(packed)
        assert torch.allclose(task.answers(scores, packed)["probabilities"].sum(1), torch.ones(24))
        assert torch.allclose(scores["scores"], task.scores(alone)["scores"], atol=1e-5)
        halves = [Packing(0).batch(features, half, half) for half in (every[:9], every[9:])]
        with torch.no_grad():
            sums = {
                tell: [float(tell(batch)["classify"]) for batch in (packed, *halves)] for tell in (task.count, task)
            }
        assert all(whole == pytest.approx(sum(parts)) for whole, *parts in sums.values())
        weights = torch.tensor([{"a": 3.0, "b": 1.0, "c": 0.5}.get(label, 0) for label in gold])
        assert float(task.count(packed)["classify"]) == weights.sum()
        right = scores["scores"].log_softmax(1)[
            every, [settings.labels.index(g) if g in "abc" and g else 0 for g in gold]
        ]
        assert sums[task][0] == pytest.approx(-(weights * right).sum().item(), rel=1e-5)


def test_a_number_that_is_not_known_teaches_nothing(tmp_path: Path) -> None:
    words, settings = tokenizer(tmp_path), Classify(number=True, scale=(0.0, 4.0))
    features = settings.features(Records(["w1 w2", "w3", "w4"], [], ["1", "", "4"], []), reader(words, BERT))
    task, every = fresh(settings, BERT, words, 0), np.arange(3)
    batch = Packing(0).batch(features, every, every)
    assert features.labels is not None
    assert np.array_equal(features.labels, np.array([0.25, np.nan, 1.0], np.float32), equal_nan=True)
    loss = task(batch)["classify"]
    loss.backward()
    said = task.scores(batch)["scores"].detach()  # type: ignore[operator]
    assert loss.item() == pytest.approx(float((said[0] - 0.25) ** 2 + (said[2] - 1) ** 2), rel=1e-5)
    assert float(task.count(batch)["classify"]) == 2
    assert all(p.grad is None or p.grad.isfinite().all() for p in task.parameters())


def test_states_are_pooled_over_an_example_alone() -> None:
    states, tokens = torch.randn(2, 6, 3), torch.zeros(2, 6, dtype=torch.int64)
    spans = torch.tensor([[0, 2], [2, 4], [7, 3]])
    batch = Batch(torch.arange(3), tokens, tokens, tokens, tokens.float(), spans=spans)
    flat = states.flatten(0, 1)
    apart = [flat[0:2], flat[2:6], flat[7:10]]
    by_hand = {
        "first": lambda s: s[0],
        "last": lambda s: s[-1],
        "mean": lambda s: s.mean(0),
        "max": lambda s: s.amax(0),
    }
    for pool, want in by_hand.items():
        assert torch.allclose(pooled(states, batch, pool), torch.stack([want(s) for s in apart]))  # type: ignore[arg-type]


def test_labels_come_from_the_training_data(tmp_path: Path, capsys: Any) -> None:
    rows = [("text", "label"), ("w1", "10"), ("w2", " 9 "), ("", "10"), ("w3", ""), ("w4", "1.5")]
    path = tsv(tmp_path / "a.tsv", *rows)
    train = Classify().records([path], learning=True)
    assert (train.texts, train.gold, train.parts[0].lines) == (
        ["w1", "w2", "", "w4"],
        ["10", "9", "10", "1.5"],
        [2, 3, 4, 6],
    )
    assert "skipped 1 of 5 rows without a label to learn; the first, line 5, has ``" in capsys.readouterr().err
    settings = Classify(class_weights="balanced").complete(train)
    assert settings.labels == ("1.5", "9", "10")
    assert settings.class_weights == {"1.5": 4 / 3, "9": 4 / 3, "10": 2 / 3}
    named = Classify(labels=("9", "10", "11"))
    assert named.complete(named.records([path], learning=True)).labels == ("9", "10", "11")
    told = capsys.readouterr().err
    assert "skipped 2 of 5 rows" in told
    assert "no training example has the label 11" in told
    for how, rows, found in (
        ({}, [("text", "label"), ("w1", "a"), ("w2", "a")], "`a` in every row; wanted two labels"),
        ({"labels": ("x", "y")}, [("text", "label"), ("w1", "a")], "no row has a label to learn; wanted x, y"),
        ({"number": True}, [("text", "label"), ("w1", "1"), ("w2", "b")], "a.tsv:3: `label` is `b`; wanted a number"),
        ({"metrics": ("f1",)}, [("text", "label"), ("w1", 1), ("w2", 2), ("w3", 3)], "f1 of 3 labels; wanted two"),
        (
            {"class_weights": {"aa": 1.0}},
            [("text", "label"), ("w1", "ab"), ("w2", "b")],
            "found `aa`; wanted labels; there are: ab, b",
        ),
        ({"label": "lable"}, [("text", "label"), ("w1", "a")], "no column `lable`"),
    ):
        made, path = Classify(**how), tsv(tmp_path / "a.tsv", *rows)  # type: ignore[arg-type]
        with pytest.raises(OrdsmedError) as caught:
            made.complete(made.records([path], learning=True))
        assert found in str(caught.value)


def test_unseen_labels_are_wrong_and_unknown_ones_are_not_scored(tmp_path: Path, capsys: Any) -> None:
    settings = Classify(labels=("a", "b"), metrics=("accuracy", "f1"))
    path = tsv(tmp_path / "a.tsv", ("text", "label"), ("w1", "a"), ("w2", "b"), ("w3", "new"), ("w4", ""))
    records = settings.records([path])
    features = settings.features(records, reader(tokenizer(tmp_path), BERT))
    assert features.labels is not None
    assert features.labels.tolist() == [0, 1, -1, -1]
    assert "1 of 4 labels are not in the training data, such as `new`" in capsys.readouterr().err
    said = LabelPredictions(["a", "b", "b", "b"])
    assert settings.score(records, said) == pytest.approx({"accuracy": 200 / 3, "f1": 200 / 3})
    shares, confused = settings.details(records, said)
    assert [row[0] for row in shares[2]] == ["a", "b", "new"]
    assert confused[2][2] == ["new", 0, 1, 0]
    bare = settings.records([tsv(tmp_path / "b.tsv", ("text",), ("w1",))])
    assert "b.tsv: no column `label`, so the right answers are not known" in capsys.readouterr().err
    assert settings.score(bare, LabelPredictions(["a"])) == {}
    assert settings.details(bare, LabelPredictions(["a"])) == []


def test_one_file_may_hold_what_to_learn_and_what_to_be_judged_by(tmp_path: Path) -> None:
    rows = [("train", "w1", "a"), ("test", "w2", "b"), ("train", "w3", "b"), ("dev", "w4", "a"), ("test", "w5", "a")]
    settings, path = Classify(header=False, split=1, text=2, label=3), tsv(tmp_path / "a.tsv", *rows)
    assert settings.records([path], learning=True).texts == ["w1", "w3"]
    assert settings.records([path]).parts[0].lines == [4]
    assert settings.records([tsv(tmp_path / "b.tsv", *rows[:3])]).texts == ["w2"]
    with pytest.raises(DataError, match=r"`split` is train; wanted one of dev, validation"):
        settings.records([tsv(tmp_path / "c.tsv", *rows[:1])])


def test_predictions_are_read_as_they_were_written_and_as_others_write_them(tmp_path: Path, capsys: Any) -> None:
    settings = Classify(labels=("a", "b"))
    paths = [tsv(tmp_path / f"{n}.tsv", ("text", "label"), ("w1", "a"), ("w2", "b")) for n in range(2)]
    odd = [shutil.copy(path, f"{path[:-4]}\t\n\u2028.tsv") for path in paths]
    for chosen in (odd, paths[:1], paths):
        records = settings.records(chosen)
        said = ["b", "a", "a", "a"][: len(records)]
        shares = np.array([[0.25, 0.75], [1.0, 0.0], [0.9, 0.1], [0.75, 0.25]], np.float32)[: len(records)]
        (tmp_path / "out").mkdir(exist_ok=True)
        [path] = settings.write(tmp_path / "out", records, LabelPredictions(said, shares))
        assert settings.read(path, records).values == said
    assert path.read_text().split("\n")[:2] == ["line\tpredicted\tgold\ta\tb", f"{paths[0]}:2\tb\ta\t0.25\t0.75"]
    plain_file = tmp_path / "plain.txt"
    plain_file.write_text("b\na\na\nzz\n")
    assert settings.read(plain_file, records).values == ["b", "a", "a", "zz"]
    assert "1 of 4 predictions are unknown labels, such as `zz`" in capsys.readouterr().err
    assert Classify().score(records, settings.read(plain_file, records))["accuracy"] == 25
    plain_file.write_text("index\tprediction\n2\ta\n0\tb\n1\ta\n3\tb\n")
    assert settings.read(plain_file, records).values == ["b", "a", "a", "b"]
    for content, found in (
        ("b\na\na\n", "3 predictions for 4 rows; wanted one per row of the data"),
        ("", "0 predictions for 4 rows"),
        ("b\n\na\nb\n", "3 predictions for 4 rows"),
        (
            "index\tprediction\n0\ta\n1\tb\n2\tb\n9\tb\n",
            "a prediction for `9`; wanted predictions only for rows of the data",
        ),
    ):
        plain_file.write_text(content)
        with pytest.raises(DataError, match=found):
            settings.read(plain_file, records)
    for head, place in (("", 4), ("index\tprediction\n", 5)):
        rows = [f"{n}\t{n}" if head else f"{n}" for n in range(3)]
        plain_file.write_text(head + "\n".join([*rows, "3\tx" if head else "x"]))
        with pytest.raises(DataError, match=rf"plain.txt:{place}: `prediction` is `x`; wanted a number"):
            Classify(number=True).read(plain_file, records)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """Tasks of GLUE in words of our own."""
    for name in ("RTE", "MRPC", "STS-B"):
        (tmp_path / name).mkdir()
    head = ("index", "sentence1", "sentence2", "label")
    for split in ("train", "dev"):
        rows = [(0, "w1", "w2", "entailment"), (1, "w3", "w4", "not_entailment"), (2, "w5", "w6", "1")]
        tsv(tmp_path / f"RTE/{split}.tsv", head, *rows)
        tsv(
            tmp_path / f"MRPC/{split}.tsv",
            ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            (1, 7, 8, "w1", "w2"),
            (0, 7, 9, "w1", "w3"),
        )
        tsv(tmp_path / f"STS-B/{split}.tsv", ("sentence1", "sentence2", "score"), ("w1", "w2", 2.5), ("w1", "w1", 5))
    tsv(tmp_path / "RTE/test.tsv", head[:3], (5, "w1", "w2"), (6, "w3", "w4"))
    return tmp_path


def test_tasks_of_glue_by_name(benchmark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Classify(name="RTE", train=str(benchmark))
    assert (settings.record, settings.labels) == ("accuracy", ("entailment", "not_entailment"))
    want = {split: (str(benchmark / f"RTE/{split}.tsv"),) for split in ("train", "dev")}
    assert {split: settings.paths(split) for split in want} == want
    one = Classify(name="rte", train=want["train"], dev=str(benchmark / "RTE"))
    assert {split: one.paths(split) for split in want} == want
    assert Classify(name="rte", train=want["train"]).paths("dev") == ()
    train = settings.records(settings.paths("train"), learning=True)
    assert train.gold == ["entailment", "not_entailment", "not_entailment"]
    assert settings.complete(train) == settings
    assert settings.records([str(benchmark)]).parts[0].path.name == "dev.tsv"
    test = settings.records([str(benchmark / "RTE/test.tsv")])
    written = settings.write(benchmark, test, LabelPredictions(["not_entailment", "entailment"]))
    assert [path.name for path in written] == ["predictions.tsv", "RTE.tsv"]
    assert written[1].read_text() == "index\tprediction\n5\tnot_entailment\n6\tentailment\n"
    assert settings.read(written[1], test).values == settings.read(written[0], test).values
    own = settings.records([tsv(benchmark / "own.tsv", ("sentence2", "sentence1"), ("w2", "w1"))])
    assert (own.texts, own.seconds, own.known) == (["w1"], ["w2"], [])
    with pytest.raises(DataError, match="no labels"):
        settings.records([str(benchmark / "RTE/test.tsv")], learning=True)
    monkeypatch.chdir(benchmark)
    assert Classify(name="rte").paths("train") == ("work/fetch/glue",)
    with pytest.raises(DataError, match="`ordsmed fetch glue` gets them"):
        settings.records(("work/fetch/glue",), learning=True)


def test_both_test_files_of_mnli_are_handed_in(tmp_path: Path) -> None:
    """Each by its own name with what is said of its rows."""
    (tmp_path / "MNLI").mkdir()
    head, label = ("index", "sentence1", "sentence2", "gold_label"), ("neutral", "entailment", "contradiction")
    for split in ("train", "dev_matched"):
        tsv(tmp_path / f"MNLI/{split}.tsv", head, *((n, f"w{n}", "w9", each) for n, each in enumerate(label)))
    paths = [
        tsv(tmp_path / f"MNLI/{name}.tsv", head[:3], *((n, f"w{n}", "w8") for n in numbers))
        for name, numbers in (("test_matched", (3, 4)), ("test_mismatched", (5, 6, 7)))
    ]
    settings = Classify(name="mnli", train=str(tmp_path))
    records = settings.records(paths)
    said = ["neutral", "entailment", "contradiction", "neutral", "entailment"]
    written = {
        path.name: path.read_text().split() for path in settings.write(tmp_path, records, LabelPredictions(said))
    }
    assert written["MNLI-m.tsv"][2:] == ["3", said[0], "4", said[1]]
    assert written["MNLI-mm.tsv"][2:] == ["5", said[2], "6", said[3], "7", said[4]]


def test_xnli_by_its_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XNLI-1.0", "XNLI-MT-1.0/multinli"):
        (tmp_path / name).mkdir(parents=True)
    for language in ("de", "en"):
        tsv(
            tmp_path / f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv",
            ("premise", "hypo", "label"),
            (f"{language}1", "w", "contradictory"),
            (f"{language}2", "w", "neutral"),
        )
    dev = tsv(
        tmp_path / "XNLI-1.0/xnli.dev.tsv",
        ("language", "gold_label", "sentence1", "sentence2"),
        ("de", "neutral", "d", "w"),
        ("en", "contradiction", "e", "w"),
    )
    for language, texts, judged in (
        ("de", ["de1", "de2"], ["neutral"]),
        ("", ["en1", "en2"], ["neutral", "contradiction"]),
    ):
        settings = Classify(name="xnli", train=str(tmp_path), language=language)
        assert settings.labels == ("contradiction", "entailment", "neutral")
        train = settings.records(settings.paths("train"), learning=True)
        assert (train.texts, train.gold) == (texts, ["contradiction", "neutral"])
        assert settings.records([str(tmp_path)], learning=True).texts == texts, "of the folder itself"
        assert settings.paths("dev") == (dev,)
        assert settings.records((dev,)).gold == settings.records([str(tmp_path)]).gold == judged
    from_english = dataclasses.replace(settings, language="de", train=settings.paths("train"))
    assert from_english.records(from_english.paths("train"), learning=True).texts == ["en1", "en2"]
    monkeypatch.chdir(tmp_path)
    assert Classify(name="xnli").paths("train") == ("work/fetch/xnli",)
    with pytest.raises(DataError, match="`ordsmed fetch xnli` gets them"):
        settings.records(("work/fetch/xnli",), learning=True)
    assert "language" not in plain(Classify(name="xnli"), essence=True)
    assert Classify.named("xnli") == {"name": "xnli"}


def test_a_test_file_with_labels_is_scored_and_handed_in(benchmark: Path, capsys: Any) -> None:
    """MRPC's own has them; where copies write -1 nothing is known, and nothing learned."""
    path = tsv(
        benchmark / "msr_paraphrase_test.txt",
        ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
        (1, 7, 8, "w1", "w2"),
        (0, 7, 9, "w1", "w3"),
    )
    settings = Classify(name="mrpc", train=str(benchmark))
    records = settings.records([path])
    assert (records.gold, records.known, records.indexes) == (["1", "0"], [0, 1], ["0", "1"])
    said = LabelPredictions(["1", "1"])
    assert settings.score(records, said)["accuracy"] == 50
    assert [made.name for made in settings.write(benchmark, records, said)] == ["predictions.tsv", "MRPC.tsv"]
    withheld = tsv(benchmark / "withheld.tsv", ("sentence1", "sentence2", "label"), ("w1", "w2", -1))
    assert settings.records([withheld]).known == []
    with pytest.raises(DataError, match="no row has a label to learn"):
        settings.records([withheld], learning=True)


def test_the_remedy_for_other_columns_works(benchmark: Path) -> None:
    path = tsv(benchmark / "own.tsv", ("a", "b", "much"), ("w1", "w2", 2.5))
    settings = Classify(name="sts-b", train=str(benchmark))
    with pytest.raises(DataError, match=r"no column `sentence1`.*name them yourself: task\.name= ") as caught:
        settings.records([path])
    words = caught.value.remedy.partition(": ")[2].replace("COLUMN", "{}").format("a", "b", "much").split()
    records = _changed(settings, words).records([path])
    assert (records.texts, records.seconds, records.gold) == (["w1"], ["w2"], ["2.5"])


def test_a_table_without_the_column_says_how_to_choose_another(tmp_path: Path) -> None:
    path = tsv(tmp_path / "own.tsv", ("my review", "grade"), ("w1", "b"))
    settings = Classify(train="x", text="the text", label="grade")
    with pytest.raises(
        DataError,
        match=r"no column `the text`; wanted one of my review, grade; choose it: task\.text=COLUMN, or set header",
    ):
        settings.records([path])
    near = dataclasses.replace(settings, text="review")
    with pytest.raises(DataError, match=r"did you mean `my review`\? choose it: task\.text=COLUMN"):
        near.records([path])
    assert _changed(settings, ["task.text=my review"]).records([path]).texts == ["w1"]
    with pytest.raises(DataError, match=r"no column 7; wanted a number from 1 to 2; choose it: task\.text=COLUMN"):
        dataclasses.replace(settings, text=7).records([path])


def test_pairs_without_an_order_are_learned_in_both(benchmark: Path) -> None:
    settings = Classify(name="mrpc", train=str(benchmark))
    train = settings.records(settings.paths("train"), learning=True)
    assert (train.texts, train.seconds) == (["w1", "w1", "w2", "w3"], ["w2", "w3", "w1", "w1"])
    assert train.gold == ["1", "0", "1", "0"]
    assert len(train.locations) == len(train)
    assert len(settings.records(settings.paths("dev"))) == 2
    assert len(dataclasses.replace(settings, unordered=False).records(settings.paths("train"), learning=True)) == 2


def test_numbers_of_glue(benchmark: Path) -> None:
    settings = Classify(name="sts-b", train=str(benchmark))
    train = settings.records(settings.paths("train"), learning=True)
    settings, dev = settings.complete(train), settings.records(settings.paths("dev"))
    assert (settings.scale, settings.number, settings.record) == ((0.0, 5.0), True, "spearman")
    said = settings.predictions(dev, None, {"number": np.array([0.5, 0.875], np.float32)})  # type: ignore[arg-type]
    assert said.values == [2.5, 4.375]
    assert settings.score(dev, said) == pytest.approx({"spearman": 100, "pearson": 100})


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"metrics": ("pearson",)}, "metrics: found pearson; wanted some of accuracy"),
        ({"metrics": ("squared_error",), "number": True}, "first; wanted a score of which higher is better"),
        ({"labels": ("a",)}, "labels: found"),
        ({"labels": ("a", "b"), "number": True}, "number: found with labels"),
        ({"scale": (1.0, 1.0)}, "scale: found"),
        ({"unordered": True}, "unordered: found without"),
        ({"class_weights": {"a": 0.0}}, "class_weights: found"),
        ({"name": "cola", "text": "sentence"}, "name: found with columns"),
        ({"name": "cola", "language": "de"}, "language: found de; wanted none: `name=xnli` has several"),
        ({"language": "de"}, "language: found de; wanted none"),
        ({"name": "xnli", "language": "no"}, "language: found no; wanted one of ar, bg, de"),
        ({"name": "cola", "labels": ("1", "0")}, "labels: found"),
    ],
)
def test_settings_that_cannot_be(how: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        Classify(**how)


@pytest.mark.long
@pytest.mark.parametrize(("name", "guess"), [("sst-2", 50.9), ("cola", 0.0), ("rte", 52.7), ("sts-b", 0.0)])
def test_real_files(shared_data: Path, name: str, guess: float) -> None:
    settings = Classify(name=name, train=str(shared_data / "glue"))
    train = settings.records(settings.paths("train"), learning=True)
    settings, dev = settings.complete(train), settings.records(settings.paths("dev"))
    assert settings.score(dev, settings.guesses(train, dev))[settings.record] == pytest.approx(guess, abs=0.1)


def test_a_scale_that_does_not_begin_at_0(tmp_path: Path) -> None:
    words = tokenizer(tmp_path)
    train = Records(["w1", "w2", "w3"], [], ["1", "5", "2"], [SimpleNamespace(path="here")])  # type: ignore[list-item]
    settings = Classify(number=True).complete(train)
    assert settings.scale == (1.0, 5.0)
    labels = settings.features(train, reader(words, BERT)).labels
    assert labels is not None
    assert labels.tolist() == [0.0, 1.0, 0.25]
    told = settings.predictions(train, None, {"number": np.array([0.0, 1.0, 0.25, -0.5], np.float32)})  # type: ignore[arg-type]
    assert told.values == [1.0, 5.0, 2.0, -1.0]


def completed(folder: Path, gold: list[Any], **settings: Any) -> Classify:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps({"text": "w1", "label": label}) + "\n" for label in gold))
    made = Classify(**settings)
    return made.complete(made.records([str(path)], learning=True))


def test_numbers_are_not_learned_as_classes_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [number / 8 for number in range(12)]
    with pytest.raises(
        DataError, match=r"12 different labels, all numbers, such as 0.125, in 20 rows; .*task.number=true"
    ):
        completed(tmp_path, [*many, *many[:8]])
    assert completed(tmp_path, many, number=True).scale == (0, 1.375)
    assert completed(tmp_path, many, labels=tuple(map(str, many))).labels[1] == "0.125"
    capsys.readouterr()
    assert len(completed(tmp_path, many * 2).labels) == 12
    said = capsys.readouterr().err
    assert (
        "12 different labels, all numbers, such as 0.125, are learned as classes; `task.number=true` predicts" in said
    )
    for classes in ([*range(20)], ["a", 0.5], [1.0, 2.0], ["01", "1"], ["1_0", "10"], [-1, 1]):
        completed(tmp_path, classes)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("labels", [[0, 1, 1.0], [0, "1", "1.0"], [0, 1, True], [False, 0, 1], ["1.00", 1, 0]])
def test_labels_that_mean_the_same_are_refused(tmp_path: Path, labels: list[object]) -> None:
    with pytest.raises(DataError, match=r"labels `.*` and `.*` mean the same; wanted one spelling of each label"):
        completed(tmp_path, labels)
    completed(tmp_path, labels, labels=("0", "1"))
