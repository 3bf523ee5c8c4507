"""Pairs: losses by hand, a step however it is cut, data sets in proportions, vectors as learned; bad input."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from kit.task_files import pair_files
from ordsmed.api.model import OpenModel
from ordsmed.api.model import open as open_model
from ordsmed.base import run
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.ranks import prepare
from ordsmed.data.examples import cut_examples
from ordsmed.learn.embedding.inputs import RecordRows, Turns
from ordsmed.learn.embedding.losses import Comparison, losses
from ordsmed.learn.embedding.mining import Mining, mined_negatives, with_added
from ordsmed.learn.embedding.records import records_of
from ordsmed.learn.task import packing, reader
from ordsmed.learn.tasks.pairs import TextPairs
from ordsmed.learn.tasks.rerank import Rerank
from ordsmed.text.labelled.pairs import PairRow
from ordsmed.train import loop
from ordsmed.train.finetune.finetune import finetune
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.job import Job
from ordsmed.use.index.encoder import index_encoder
from ordsmed.use.predict import evaluate, predict
from ordsmed.weights.export import export

CPU = prepare("cpu", 1)
RECIPE = """
tokenizer = "{folder}/vocab.txt"
steps = 3
batch = 12
learning_rate = 2e-3
features = ""
[layout]
device = "cpu"
threads = 1
precision = "fp32"
[model]
kind = "bert"
width = 16
layers = 1
heads = 2
inner = 16
positions = 64
dropout = 0.0
attention_dropout = 0.0
[task]
kind = "pairs"
length = 24
train = "{folder}/train.jsonl"
dev = "{folder}/dev.jsonl"
"""
Jobs = Callable[..., Job]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = pair_files(tmp_path_factory.mktemp("pairs"))
    (folder / "r.toml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture
def job(data: Path) -> Jobs:
    def make(*words: str) -> Job:
        recipe, _ = run.load(Finetuning, str(data / "r.toml"), list(words))
        return FinetuningPlan.of(recipe, CPU).completed(make=True).build()

    return make


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps with prompts."""
    out = tmp_path_factory.mktemp("run") / "run"
    words = [f"out={out}", "steps=12", "task.query=w1 w2 ", "task.passage=w3 "]
    return finetune(str(data / "r.toml"), words)


def gradients(made: Job, *, step: int = 0) -> tuple[dict[str, torch.Tensor], float]:
    """Of one step, and its loss, before anything is updated."""
    kept: dict[str, torch.Tensor] = {}
    parts = dict(made.objective.named_parameters())
    steps = made.optimizer.step
    made.optimizer.step = lambda *_: kept.update({n: p.grad.clone() for n, p in parts.items() if p.grad is not None})  # type: ignore
    batches = next(loop.load(made.rows(0), made.share(0), step, step + 1, workers=0, device=CPU.device))
    seen, _, reason = loop.train_step(made, batches, 1e-3, 0, step)
    made.optimizer.step = steps  # type: ignore[method-assign]
    assert not reason
    return kept, float(seen["pairs"])


VECTORS = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
KIND = [0, 1, 2, 0, 1, 0, 1, 2]  # three anchors, with negatives of the first and the last
TEXT = [0, 3, 4, 1, 5, 2, 6, 7]


def told(
    how: Comparison, scores: dict[int, float] | None = None, text: list[int] = TEXT, kind: list[int] = KIND
) -> torch.Tensor:
    labels = torch.tensor(
        [[k, t, (scores or {}).get(n, np.nan)] for n, (k, t) in enumerate(zip(kind, text, strict=True))]
    )
    count = kind.count(0)
    each = torch.zeros(count)
    for numbers, lost in losses(how, VECTORS[: len(kind)], labels):
        each[numbers] += lost
    return each


def likelihood(right: int, of: list[float]) -> float:
    values = np.exp(of)
    return float(-np.log(values[right] / values.sum()))


def test_the_positive_among_all_texts_of_a_step() -> None:
    units = F.normalize(VECTORS, dim=-1)
    candidates = [1, 4, 6, 2, 7]
    similar = (units[[0, 3, 5]] @ units[candidates].T / 0.1).tolist()
    want = [likelihood(n, row) for n, row in enumerate(similar)]
    assert told(Comparison("infonce", 0.1, True)).tolist() == pytest.approx(want, rel=1e-5)
    backwards = (units[[1, 4, 6]] @ units[[0, 3, 5]].T / 0.1).tolist()
    both = [(a + likelihood(n, row)) / 2 for n, (a, row) in enumerate(zip(want, backwards, strict=True))]
    assert told(Comparison("infonce", 0.1, True, symmetric=True)).tolist() == pytest.approx(both, rel=1e-5)
    product = (VECTORS[[0, 3, 5]] @ VECTORS[candidates].T).tolist()
    plain = [likelihood(n, row) for n, row in enumerate(product)]
    assert told(Comparison("infonce", 1.0, False)).tolist() == pytest.approx(plain, rel=1e-5)


def test_what_is_right_beside_the_positive_is_no_negative() -> None:
    """The same text, what belongs to the same anchor, and with a margin what is more like it than the positive is."""
    units = F.normalize(VECTORS, dim=-1)
    similar = units[[0, 3, 5]] @ units[[1, 4, 6, 2, 7]].T / 0.1
    same = [TEXT[n] if n != 7 else TEXT[1] for n in range(8)]  # the last negative is the first one's positive
    want = [likelihood(0, similar[0, :4].tolist()), *[likelihood(n, similar[n].tolist()) for n in (1, 2)]]
    assert told(Comparison("infonce", 0.1, True), text=same).tolist() == pytest.approx(want, rel=1e-5)
    twice = [0 if n == 3 else TEXT[n] for n in range(8)]  # the second anchor is the first one again
    want = [
        likelihood(0, similar[0, [0, 2, 3, 4]].tolist()),
        likelihood(0, similar[1, [1, 2, 3, 4]].tolist()),
        likelihood(2, similar[2].tolist()),
    ]
    assert told(Comparison("infonce", 0.1, True), text=twice).tolist() == pytest.approx(want, rel=1e-5)
    margin = 0.1
    want = []
    for n, row in enumerate(similar.tolist()):
        left = [value for place, value in enumerate(row) if place == n or value <= row[n] + margin / 0.1]
        want.append(likelihood(left.index(row[n]), left))
    assert want != pytest.approx([likelihood(n, row) for n, row in enumerate(similar.tolist())])
    assert told(Comparison("infonce", 0.1, True, margin=margin)).tolist() == pytest.approx(want, rel=1e-5)


def test_scores_are_learned_by_order_as_cosines_and_as_a_teachers() -> None:
    units = F.normalize(VECTORS, dim=-1)
    kind, text, scores = [0, 1] * 3, [0, 3, 1, 4, 2, 5], {1: 0.1, 3: 0.9, 5: 0.1}
    cosines = (units[0:6:2] * units[1:6:2]).sum(1)
    low = [float(((cosines[n] - cosines[1]) / 0.05).exp()) for n in (0, 2)]
    cosent = told(Comparison("cosent", 0.05, True), scores, text, kind)
    assert cosent.tolist() == pytest.approx([np.log(1 + sum(low))] * 3, rel=1e-3)
    squared = [(float(c) - s) ** 2 for c, s in zip(cosines, scores.values(), strict=True)]
    assert told(Comparison("cosine_mse", 1, True), scores, text, kind).tolist() == pytest.approx(squared, rel=1e-5)
    kind, text = [0, 1, 2, 2], [0, 1, 2, 3]
    products = [float(VECTORS[0] @ VECTORS[n]) for n in (1, 2, 3)]
    teacher = {1: 3.0, 2: 1.0, 3: 0.5}
    want = np.mean([(products[0] - products[n] - (3.0 - teacher[n + 1])) ** 2 for n in (1, 2)])
    assert told(Comparison("margin_mse", 1, False), teacher, text, kind).tolist() == pytest.approx([want], rel=1e-5)
    alone = np.mean([(products[0] - products[n] - 2.5) ** 2 for n in (1, 2)])  # one number is the margin
    assert told(Comparison("margin_mse", 1, False), {1: 2.5}, text, kind).tolist() == pytest.approx([alone], rel=1e-5)
    theirs, ours = (torch.tensor(v).log_softmax(0) for v in (list(teacher.values()), products))
    kl = float((theirs.exp() * (theirs - ours)).sum())
    assert told(Comparison("kl", 1, False), teacher, text, kind).tolist() == pytest.approx([kl], rel=1e-4)


def test_fronts_of_vectors_are_vectors_as_well() -> None:
    apart = []
    for width in (6, 3):
        front = Comparison("infonce", 0.1, True)
        labels = torch.tensor([[k, t, np.nan] for k, t in zip(KIND, TEXT, strict=True)])
        apart.append(torch.cat([lost for _, lost in losses(front, VECTORS[:, :width], labels)]))
    assert torch.allclose(told(Comparison("infonce", 0.1, True, widths=(6, 3))), apart[0] + apart[1])


WAYS = {
    "plain": [],
    "negatives": ["task.train={folder}/negatives.jsonl", "task.symmetric=true"],
    "widths": ["task.widths=[16,8]", "task.normalize=false", "task.temperature=20"],
    "cosent": ["task.train={folder}/scored.jsonl", "task.dev={folder}/scored.jsonl"],
    "sparse": ["task.head=sparse", "task.flops=[0.1,0.2]"],
    "teacher": ["task.train={folder}/taught.jsonl", "task.loss=margin_mse"],
    "multi-vector": [
        "task.head=multi-vector",
        "task.token_width=8",
        "task.widths=[8,4]",
        "task.expand=8",
        "task.query_length=10",
        "task.symmetric=true",
        "task.train={folder}/negatives.jsonl",
    ],
    "multi-vector teacher": ["task.head=multi-vector", "task.train={folder}/taught.jsonl", "task.loss=kl"],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_the_same_however_it_is_cut(data: Path, job: Jobs, way: str, monkeypatch: Any) -> None:
    """In one piece, or in six and with the similarities of a few anchors at a time: gradients to 1e-5."""
    words = [word.replace("{folder}", str(data)) for word in WAYS[way]]
    whole, lost = gradients(job(*words, "layout.micro=12"))
    monkeypatch.setattr("ordsmed.learn.embedding.losses.AT_ONCE", 40)
    monkeypatch.setattr("ordsmed.learn.embedding.maxsim.AT_ONCE", 300)
    cut, same = gradients(job(*words, "layout.micro=2"))
    assert same == pytest.approx(lost, rel=1e-5)
    assert whole.keys() == cut.keys()
    difference = sum(float((cut[name] - gradient).square().sum()) for name, gradient in whole.items())
    size = sum(float(gradient.square().sum()) for gradient in whole.values())
    assert difference**0.5 < 1e-5 * size**0.5
    assert size**0.5 > 1e-3


def test_a_cut_step_drops_the_same_places_twice(job: Jobs) -> None:
    """What was seen ahead is what is learned from: the pull of no micro-batch sees other vectors."""
    made = job("layout.micro=4", "model.dropout=0.5")
    seen: list[torch.Tensor] = []
    scores = made.objective.scores
    made.objective.scores = lambda batch: seen.append((out := scores(batch))["vectors"].detach()) or out  # type: ignore
    gradients(made)
    assert len(seen) == 6
    for ahead, again in zip(seen[:3], seen[3:], strict=True):
        assert torch.equal(ahead, again)


def test_each_step_is_of_one_data_set_in_its_proportion(data: Path, job: Jobs) -> None:
    files = f'task.train=["{data}/train.jsonl","{data}/negatives.jsonl"]'
    made = job(files, "task.proportions=[1,3]", "batch=4")
    rows = made.rows(0)
    assert isinstance(rows, RecordRows)
    chosen = [rows._chosen(np.arange(step * 4, step * 4 + 4)) for step in range(8)]
    of_second = [(records >= rows.sets[1]).tolist() for records in chosen]
    assert all(len(set(step)) == 1 for step in of_second)
    assert [step[0] for step in of_second].count(True) == 6
    again = RecordRows(rows.features, rows.packing, *rows.key, batch=4, proportions=(1, 3))
    assert again._chosen(np.arange(30, 32)).tolist() == chosen[7][2:].tolist()  # whatever was asked before
    epoch = np.concatenate([r for r in (rows._chosen(np.arange(4 * s, 4 * s + 4)) for s in range(64)) if r[0] < 48])
    assert sorted(epoch[:48].tolist()) == list(range(48))
    turns = Turns(np.array([10, 30]), 4, ())
    assert [turns.of(step)[0] for step in range(8)].count(0) == 2  # by their sizes


def test_vectors_are_given_as_they_were_learned(trained: Path, tmp_path: Path) -> None:
    model = open_model(trained, device="cpu")
    assert isinstance(model, OpenModel)
    texts = ["w1 w2 w3", "w9", "", "w5 " * 40]
    plain = [found.vectors for found in model.embed(texts, of="sentences")]
    assert np.linalg.norm(plain, axis=1) == pytest.approx(1, abs=1e-5)
    asked = model.embed("w9", of="sentences", prompt="query").vectors
    assert asked == pytest.approx(model.embed("w1 w2 w9", of="sentences").vectors, abs=1e-6)
    raw = model.embed("w9", of="sentences", pool="tokens").vectors
    assert raw / np.linalg.norm(raw) == pytest.approx(plain[1], abs=1e-6)
    assert model.embed("w5 " * 22, of="sentences").vectors == pytest.approx(plain[3], abs=1e-6)  # cut as it learned
    assert model.embed("w9 w8").vectors.shape == (2, 16)
    with pytest.raises(RecipeError, match="--prompt: found query with --of words"):
        model.embed("w9", prompt="query")
    with pytest.raises(RecipeError, match="--prompt: found query with a pool"):
        model.embed("w9", of="sentences", prompt="query", pool="first")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_folder_of_sentence_transformers_gives_the_same_vectors(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(export(trained, tmp_path / "out", to="sentence-transformers")), device="cpu")
    ours, texts = open_model(trained, device="cpu"), ["w1 w2 w3", "w9", " w4 w5", "w5 " * 40]
    assert theirs.max_seq_length == 24
    for encode, prompt in ((theirs.encode, ""), (theirs.encode_query, "query"), (theirs.encode_document, "passage")):
        mine = [found.vectors for found in ours.embed(texts, of="sentences", prompt=prompt)]
        assert np.abs(encode(texts) - mine).max() < 1e-5
    card = (tmp_path / "out" / "README.md").read_text()
    assert "SentenceTransformer('out')" in card
    assert "never trained on pairs" not in card


def test_predictions_are_scored_written_and_read_again(trained: Path, data: Path, tmp_path: Path) -> None:
    scores = json.loads((trained / "scores.json").read_text())
    found = evaluate(str(trained), [str(data / "dev.jsonl")]).scores
    assert {"mrr@10", "accuracy@1", "recall@10"} < scores.keys()
    assert found["mrr@10"] == pytest.approx(scores["mrr@10"], abs=1e-6)
    told = predict(str(trained), [str(data / "dev.jsonl")], tmp_path / "out", scores=True)
    records = TextPairs(train="x").records([str(data / "dev.jsonl")])
    again = TextPairs(train="x").read(tmp_path / "out" / "pairs.tsv", records)
    assert TextPairs(train="x").score(records, again) == told.scores
    model = open_model(trained, device="cpu")
    sides = {"query": records.texts[: records.queries], "passage": records.texts[records.queries :]}
    vectors = {w: [e.vectors for e in model.embed(t, of="sentences", prompt=w)] for w, t in sides.items()}
    similar = np.array(vectors["query"]) @ np.array(vectors["passage"]).T
    ranks = []
    for anchor, positive in zip(records.anchors, records.positives - records.queries, strict=True):
        right = {
            int(p) for a, p in zip(records.anchors, records.positives - records.queries, strict=True) if a == anchor
        }
        ranks.append(
            1 + sum(similar[anchor, n] > similar[anchor, positive] for n in range(similar.shape[1]) if n not in right)
        )
    assert again.rank.tolist() == ranks
    assert told.scores["mrr@10"] == pytest.approx(100 * np.mean([1 / r if r <= 10 else 0 for r in ranks]))


def test_a_planted_rule_is_learned(data: Path, tmp_path: Path) -> None:
    out = finetune(str(data / "r.toml"), [f"out={tmp_path / 'run'}", "steps=60", "learning_rate=5e-3", "batch=24"])
    scores = json.loads((out / "scores.json").read_text())
    assert scores["accuracy@1"] > 60 > 6 * scores["guessing"]["accuracy@1"]
    assert scores["validation"] < 2.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["batch=1"], r"batch: found 1, with pairs without negatives; wanted 2 or more"),
        (["task.loss=cosent"], r"train\.jsonl:1: 48 pairs without a score, this one first; .*task\.loss=infonce"),
        (["task.loss=margin_mse", "task.train={folder}/scored.jsonl"], r":1: 48 pairs without negatives"),
        (["task.loss=cosine_mse", "task.train={folder}/stars.jsonl"], r"a score of 5; wanted scores from -1 to 1"),
        (["task.loss=kl", "task.train={folder}/margins.jsonl"], r"one score for a positive and its negatives"),
        (["task.widths=[32]"], r"task\.widths: found 32; wanted at most 16"),
        (["task.widths=[4,8]"], r"widths: found \[4, 8\]; wanted whole numbers, the largest first"),
        (["task.proportions=[1,2]"], r"task\.proportions: found 2 numbers; wanted 1"),
        (["task.temperature=0"], r"temperature: found 0; wanted above 0"),
        (["task.loss=cosent", "task.symmetric=true"], r"symmetric: found with cosent"),
        (["task.top={mix=true}"], r"top: found layers; wanted none"),
        (["task.length=2"], r"task\.length: 2, of which 2 are special tokens; wanted 3 or more"),
        (["model.kind=gpt2", "task.head=sparse"], r"task\.head: found sparse; a gpt2 has no masked-LM head"),
        (["task.head=sparse", "task.pool=mean"], r"pool: found with sparse vectors; wanted it with dense vectors only"),
        (["task.head=sparse", "task.normalize=true"], r"normalize: found with sparse vectors"),
        (["task.head=sparse", "task.flops=[1]"], r"flops: found \[1\.0\]; wanted two numbers of 0 or more"),
        (["task.flops=[1,1]"], r"flops: found with dense vectors"),
        (["task.expand=8"], r"expand: found with dense vectors; wanted it with task\.head=multi-vector only"),
        (["task.head=sparse", "task.token_width=8"], r"token_width: found with sparse vectors"),
        (["task.head=multi-vector", "task.pool=mean"], r"pool: found with multi-vector vectors"),
        (["task.head=multi-vector", "task.loss=cosine_mse"], r"loss: found cosine_mse with sums of cosines"),
        (["task.head=multi-vector", "task.widths=[256]"], r"task\.widths: found 256; wanted at most 128, task"),
        (["task.head=multi-vector", "task.query_length=25"], r"query_length: found 25; wanted at most 24"),
        (["task.head=multi-vector", "task.expand=9", "task.query_length=8"], r"expand: found 9; wanted at most 8"),
        (
            ["task.head=multi-vector", "task.skip_punctuation=true"],
            r"task\.skip_punctuation: found true; no punctuation",
        ),
        (["task.flops_warmup=9"], r"flops_warmup: found with dense vectors"),
        (["task.mining.count=3", "task.mining.ranks=[1,2]"], r"count: found 3, more than there are ranks in \[1, 2\]"),
        (["task.mining.ranks=[2,1]"], r"ranks: found \[2, 1\]; wanted the first and the last"),
        (["task.mining.every=9"], r"count: missing; wanted the number of negatives"),
        (["task.mining.count=1", "task.head=multi-vector"], r"mining: found with multi-vector vectors"),
        (["task.mining.count=1", "task.mining.every=-1"], r"every: found -1; wanted steps, epoch, or 0: once"),
        (
            ["task.mining.count=1", "task.loss=cosent", "task.train={folder}/scored.jsonl"],
            r"task\.mining: found with cosent",
        ),
        (["model.kind=gpt2", "task.pool=first"], r"task\.pool: found first"),
    ],
)
def test_what_cannot_be_is_refused(data: Path, job: Jobs, words: list[str], message: str) -> None:
    rows = [json.loads(line) for line in (data / "scored.jsonl").read_text().splitlines()]
    (data / "stars.jsonl").write_text("".join(json.dumps(row | {"score": 5}) + "\n" for row in rows))
    margins = [row | {"negative": "w1", "score": 0.5} for row in rows]
    (data / "margins.jsonl").write_text("".join(json.dumps(row) + "\n" for row in margins))
    with pytest.raises(OrdsmedError, match=message):
        job(*[word.replace("{folder}", str(data)) for word in words])


def test_what_is_cut_or_not_read_is_told(data: Path, job: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    job("task.length=8", f"task.train={data}/scored.jsonl", "task.loss=infonce", "task.dev=[]")
    told = "".join(capsys.readouterr())
    assert "texts are longer than 8 tokens (task.length): truncated" in told
    assert "infonce does not use scores; task.loss chooses another loss" in told


def test_another_models_vectors_have_no_prompts(tmp_path: Path, tiny_run: Any) -> None:
    with pytest.raises(RecipeError, match=r"--prompt: found query, but .* did not learn vectors of texts"):
        open_model(tiny_run.bert, device="cpu").embed("a", of="sentences", prompt="query")


def test_hard_negatives_share_words_and_are_not_right(
    data: Path, job: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ("red fox", "the red fox runs"),
        ("red fox", "a fox that is red"),
        ("old gate", "the old gate"),
        ("blue sea", "the sea"),
        ("nothing", "no words here"),
    ]
    path = data / "words.jsonl"
    lines = [{"anchor": a, "positive": b} for a, b in rows]
    lines[2]["negative"] = "the red fox runs"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = TextPairs(train=str(path)).records([str(path)])
    mined = TextPairs(train=str(path), mine=2).records([str(path)], learning=True)
    assert TextPairs(train=str(path), mine=2).records([str(path)]).members.tolist() == told.members.tolist()
    right = mined.right()
    for record in range(len(mined)):
        members = mined.members[mined.first[record] : mined.first[record + 1]].tolist()
        assert members[:2] == told.members[told.first[record] : told.first[record] + 2].tolist()
        assert not set(members[2:]) & {n + mined.queries for n in right[members[0]]}
        assert len(set(members)) == len(members)
    assert mined.texts[mined.members[mined.first[2] + 2]] == "the red fox runs"
    assert "hard negatives by BM25 for 5 pairs" in "".join(capsys.readouterr())


@pytest.fixture(scope="module")
def scorer(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of some steps."""
    out = tmp_path_factory.mktemp("scorer") / "run"
    words = ["task.kind=rerank", f"task.train={data}/negatives.jsonl", f"task.dev={data}/negatives.jsonl"]
    return finetune(
        str(data / "r.toml"), [*words, "task.length=40", "steps=150", "learning_rate=5e-3", "batch=16", f"out={out}"]
    )


def test_a_cross_encoder_scores_two_texts_read_together(scorer: Path, data: Path, tmp_path: Path) -> None:
    scores = json.loads((scorer / "scores.json").read_text())
    assert scores["mrr@10"] > 85 > scores["guessing"]["mrr@10"]
    model = open_model(scorer, device="cpu")
    records = Rerank(train="x").records([str(data / "negatives.jsonl")])
    asked = [records.texts[n] for n in records.anchors[:6]]
    mine = [found.number for found in model.classify(asked, [records.texts[n] for n in records.positives[:6]])]
    assert min(mine) > 0
    assert max(mine) < 1
    told = predict(str(scorer), [str(data / "negatives.jsonl")], tmp_path / "out")
    similar = Rerank(train="x").read(told.folder / "pairs.tsv", records).similar[:6]
    assert mine == pytest.approx(similar.tolist(), abs=1e-5)
    with pytest.raises(RecipeError, match=r"scores pairs of texts \(a cross-encoder\)"):
        model.embed("w1", of="sentences")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.train={folder}/train.jsonl"], r"only pairs; wanted negatives or scores, .*task\.mine=4"),
        (["task.train={folder}/taught.jsonl", "task.loss=bce"], r"scores from -.* wanted scores from 0 to 1"),
        (["task.mine=-1"], r"mine: found -1; wanted 0 or more"),
    ],
)
def test_what_a_cross_encoder_cannot_learn_is_refused(data: Path, job: Jobs, words: list[str], message: str) -> None:
    with pytest.raises(OrdsmedError, match=message):
        job("task.kind=rerank", *[word.replace("{folder}", str(data)) for word in words])


def test_a_teachers_scores_are_learned_as_they_are(data: Path, job: Jobs) -> None:
    made = job("task.kind=rerank", f"task.train={data}/taught.jsonl", f"task.dev={data}/taught.jsonl", "batch=8")
    assert (made.data.task.loss, made.data.task.record) == ("mse", "spearman")  # type: ignore[attr-defined]
    rows = [json.loads(line)["scores"] for line in (data / "taught.jsonl").read_text().splitlines()]
    labels = made.data.train.features.labels  # type: ignore[attr-defined]
    assert labels.tolist() == pytest.approx([score for scores in rows for score in scores], abs=1e-6)
    few = [{"anchor": f"w1 w{n}", "positive": f"w1 w{n + 9}"} for n in range(48)]
    (data / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in few))
    files = [f"task.train={data}/few.jsonl", f"task.dev={data}/few.jsonl"]
    mined = job("task.kind=rerank", "task.mine=2", "batch=8", *files).data.train.features  # type: ignore[attr-defined]
    assert mined.labels.sum() == 48
    assert len(mined) > 96


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_folder_of_a_cross_encoder_gives_the_same_scores(scorer: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(export(scorer, tmp_path / "out", to="sentence-transformers")), device="cpu")
    pairs = [("w1 w2", "w3 w4 w5"), ("w7", "w9"), ("w1", "w50 " * 60)]
    mine = [found.number for found in open_model(scorer, device="cpu").classify(*map(list, zip(*pairs, strict=True)))]
    assert theirs.predict(pairs) == pytest.approx(mine, abs=1e-5)
    assert "CrossEncoder('out')" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(RecipeError, match="found settings of vectors for a cross-encoder"):
        export(scorer, tmp_path / "other", to="sentence-transformers", overrides=["pool=last"])


@pytest.fixture(scope="module")
def sparse(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of some steps that learned a weight for each piece."""
    out = tmp_path_factory.mktemp("sparse") / "run"
    words = [
        "task.head=sparse",
        "task.query=w1 ",
        "task.flops=[1e-2,1e-2]",
        "steps=60",
        "learning_rate=5e-3",
        f"out={out}",
    ]
    return finetune(str(data / "r.toml"), words)


def test_the_work_of_a_search_counts_as_splade_counts_it() -> None:
    plain = Comparison("infonce", 1.0, normalize=False)
    counted = Comparison("infonce", 1.0, normalize=False, flops=(0.5, 0.25))
    sides = [VECTORS[[n for n, kind in enumerate(KIND) if (kind == 0) == anchor]] for anchor in (True, False)]
    work = [float(side.mean(0).square().sum()) for side in sides]
    more = float(told(counted).sum() - told(plain).sum()) / KIND.count(0)
    assert more == pytest.approx(0.5 * work[0] + 0.25 * work[1], rel=1e-5)
    growing = Comparison("infonce", 1.0, normalize=False, flops=(0.5, 0.25), flops_warmup=4)
    labels = torch.tensor([[k, t, np.nan, 0] for k, t in zip(KIND, TEXT, strict=True)])
    for step, share in ((0, 0.0), (2, 0.25), (4, 1.0), (5, 1.0)):
        labels[:, 3] = step
        grown = sum(float(lost.sum()) for _, lost in losses(growing, VECTORS, labels)) - float(told(plain).sum())
        assert grown / KIND.count(0) == pytest.approx(share * more, abs=1e-5)
    assert told(growing).tolist() == told(counted).tolist()  # of dev files: in full


def test_the_work_of_a_search_counts_more_from_step_to_step(job: Jobs) -> None:
    words = ["task.head=sparse", "task.flops=[10,10]"]
    full, growing = job(*words), job(*words, "task.flops_warmup=2")
    lost = [[gradients(made, step=step)[1] for step in range(3)] for made in (full, growing)]
    free = [gradients(job("task.head=sparse", "task.flops=[0,0]"), step=step)[1] for step in range(3)]
    shares = [(b - c) / (a - c) for a, b, c in zip(*lost, free, strict=True)]
    assert shares == pytest.approx([0, 0.25, 1], abs=1e-4)


def test_sparse_vectors_are_the_heads_largest_scores(sparse: Path, tmp_path: Path) -> None:
    scores = json.loads((sparse / "scores.json").read_text())
    assert scores["mrr@10"] > 1.5 * scores["guessing"]["mrr@10"]
    model = open_model(sparse, device="cpu")
    texts = ["w1 w2 w3", "w9", "w5 " * 40]
    vectors = np.array([found.vectors for found in model.embed(texts, of="sentences")])
    assert vectors.shape == (3, model.trained.tokenizer.vocabulary)
    assert 0 == vectors.min() < vectors.max()
    task, tokenizer, family = model.trained.objective, model.trained.tokenizer, model.trained.settings
    features, _ = cut_examples([texts[:1]], 24, reader(tokenizer, family))
    alone = packing(tokenizer, family).batch(features, np.arange(1), np.arange(1))
    with torch.no_grad():
        logits = task.head(task.states(alone))[0, :5]  # type: ignore[operator]
    assert np.log1p(np.maximum(logits.numpy(), 0)).max(0) == pytest.approx(vectors[0], abs=1e-6)
    with pytest.raises(RecipeError, match=r"makes sparse vectors.*wanted dense vectors for an index"):
        index_encoder(model.trained)
    again = open_model(export(sparse, tmp_path / "again", to="sentence-transformers"), device="cpu")
    assert np.array([found.vectors for found in again.embed(texts, of="sentences")]) == pytest.approx(vectors, abs=1e-6)
    for setting in ("pool=mean", "similarity=cosine"):
        with pytest.raises(RecipeError, match="for sparse vectors, which are pooled and compared as learned"):
            export(sparse, tmp_path / "out", to="sentence-transformers", overrides=[setting])


def test_a_sparse_encoder_begins_with_the_head_of_pretraining(data: Path, tiny_run: Any, tmp_path: Path) -> None:
    text = RECIPE.format(folder=data).partition("steps")[2]
    recipe = "steps" + text.partition("[model]")[0] + "[task]" + text.partition("[task]")[2]
    (data / "begun.toml").write_text(recipe)
    told = open_model(str(tiny_run.bert), device="cpu").trained.objective
    for place in (tiny_run.bert, export(tiny_run.bert, tmp_path / "hf", to="huggingface")):
        words = ["task.head=sparse", f"init={place}", "steps=1", "max_unknown=1"]
        loaded, _ = run.load(Finetuning, str(data / "begun.toml"), words)
        made = FinetuningPlan.of(loaded, CPU).completed(make=True).build()
        for name in ("head.dense.weight", "head.norm.weight", "head.bias", "model.words.weight"):
            assert torch.equal(made.objective.get_parameter(name), told.get_parameter(name)), name


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_folder_of_a_sparse_encoder_gives_the_same_weights(sparse: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import SparseEncoder

    theirs = SparseEncoder(str(export(sparse, tmp_path / "out", to="sentence-transformers")), device="cpu")
    ours, texts = open_model(sparse, device="cpu"), ["w1 w2 w3", "w9", " w4 w5", "w5 " * 40]
    assert (theirs.max_seq_length, theirs.similarity_fn_name) == (24, "dot")
    for encode, prompt in ((theirs.encode_query, "query"), (theirs.encode_document, "passage")):
        mine = [found.vectors for found in ours.embed(texts, of="sentences", prompt=prompt)]
        assert np.abs(encode(texts).to_dense().numpy() - mine).max() < 1e-5
    assert "SparseEncoder('out')" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("head", ["dense", "sparse", "multi-vector"])
def test_a_cut_step_goes_on_to_the_same_bytes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    """With dropout, data sets in turns, and a stop between two steps of three micro-batches each."""
    files = f'task.train=["{data}/train.jsonl","{data}/negatives.jsonl"]'
    words = [files, "task.proportions=[1,2]", "task.dev=[]", f"task.head={head}", "layout.micro=4", "steps=5"]
    words += ["model.dropout=0.1", "task.mine=1"]
    whole = finetune(str(data / "r.toml"), [*words, f"out={tmp_path / 'whole'}"])
    monkeypatch.setenv("ORDSMED_STOP_AT", "3")
    with pytest.raises(Stopped):
        finetune(str(data / "r.toml"), [*words, f"out={tmp_path / 'cut'}"])
    monkeypatch.delenv("ORDSMED_STOP_AT")
    cut = finetune(str(tmp_path / "cut"))
    stored = [(run / "weights" / "model.safetensors").read_bytes() for run in (whole, cut)]
    assert stored[0] == stored[1]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_ten_steps_lose_what_those_of_sentence_transformers_lose(data: Path, tmp_path: Path) -> None:
    """Their trainer and ours from the same weights on the same pairs: the losses of ten steps to 1e-4."""
    for library in ("sentence_transformers", "datasets", "accelerate"):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install -e .[dev]")
    from measure.pairs_st import measured

    rows = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    paragraphs = [{"context": row["positive"], "qas": [{"question": row["anchor"]}]} for row in rows]
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    how = {
        "size": "tiny",
        "length": 24,
        "batch": 8,
        "micro": 4,
        "steps": 10,
        "rate": 3e-4,
        "threads": 1,
        "dropout": 0.0,
    }
    files = {"file": tmp_path / "squad.json", "vocabulary": data / "vocab.txt"}
    facts = measured(tmp_path, argparse.Namespace(**how, **files, cpu_time=True))
    assert len(facts["losses"]) == 10
    assert facts["losses"][0] != facts["losses"][9]
    assert facts["difference_of_ten"] < 1e-4


def test_a_server_gives_sparse_vectors_whole(sparse: Path) -> None:
    """A part of a weight for each piece of the vocabulary means nothing."""
    pytest.importorskip("uvicorn")
    from kit.served import running

    with running({"sparse": sparse}) as server:
        whole = httpx.post(f"{server.url}/v1/embeddings", json={"input": "w1"}, timeout=60)
        part = httpx.post(f"{server.url}/v1/embeddings", json={"input": "w1", "dimensions": 4}, timeout=60)
    assert (whole.status_code, part.status_code) == (200, 400)
    assert "dimensions: found 4 with a model of sparse vectors" in part.json()["error"]["message"]


MINING = ["task.mining.count=2", "task.mining.ranks=[1,4]"]


def added_by(folder: Path, step: int) -> NDArray[np.int64]:
    return np.load(folder / "chosen" / f"{step:08d}.npy")


def test_the_model_finds_what_is_near_and_wrong() -> None:
    """By hand: of some ranks, without what is right, given already, or too near to be surely wrong."""
    rows = [PairRow(1, "a", "p"), PairRow(2, "a", "q"), PairRow(3, "b", "r", ("s",)), PairRow(4, "c", "t")]
    records = records_of([Path("f")], [rows])
    assert records.texts == ["a", "b", "c", "p", "q", "r", "s", "t"]
    angles = np.radians([0, 0, 90, 10, 20, 30, 5, 60])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)

    def found(**how: Any) -> list[tuple[int, str]]:
        return [(r, records.texts[t]) for r, t in mined_negatives(vectors, records, Mining(**how), 0).tolist()]

    assert found(count=2, ranks=(1, 2)) == [
        (0, "s"),
        (0, "r"),
        (1, "s"),
        (1, "r"),
        (2, "p"),
        (2, "q"),
        (3, "r"),
        (3, "q"),
    ]
    assert found(count=1, ranks=(2, 2)) == [(0, "r"), (1, "r"), (2, "q"), (3, "q")]
    near = found(count=2, ranks=(1, 2), margin=0.05)  # 10 degrees less 0.05 is about 20.6
    assert near == [(0, "r"), (0, "t"), (1, "r"), (1, "t"), (2, "t"), (3, "r"), (3, "q")]
    drawn = [mined_negatives(vectors, records, Mining(count=1, ranks=(1, 3)), seed).tolist() for seed in range(9)]
    assert len({str(some) for some in drawn}) > 1
    assert drawn[0] == mined_negatives(vectors, records, Mining(count=1, ranks=(1, 3)), 0).tolist()
    assert [Mining(count=1, every=every).steps(2.4) for every in (0, 3, "epoch")] == [0, 3, 2]  # type: ignore[arg-type]
    first, members, _ = with_added(records.first, records.members, records.scores, np.array([[0, 7], [2, 3], [2, 4]]))
    assert [members[a:b].tolist() for a, b in pairwise(first.tolist())] == [[0, 3, 7], [0, 4], [1, 5, 6, 3, 4], [2, 7]]


def test_the_model_in_training_finds_negatives_and_a_run_goes_on_with_them(
    data: Path, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*MINING, "task.mining.every=2", "task.mine=1", "steps=5", "save=1", f"task.train={data}/negatives.jsonl"]
    whole = finetune(str(data / "r.toml"), [*words, f"out={tmp_path / 'whole'}"])
    assert "hard negatives by the model for 48 pairs" in "".join(capsys.readouterr())
    assert sorted(path.stem for path in (whole / "chosen").iterdir()) == ["00000000", "00000002", "00000004"]
    records = TextPairs(train="x", mine=1).records([str(data / "negatives.jsonl")], learning=True)
    assert len({str(added_by(whole, step).tolist()) for step in (0, 2, 4)}) == 3
    for record, text in added_by(whole, 2).tolist():
        assert text not in records.members[records.first[record] : records.first[record + 1]]
        assert text - records.queries not in records.right()[int(records.anchors[record])]
    monkeypatch.setenv("ORDSMED_STOP_AT", "3")
    cut = tmp_path / "cut"
    with pytest.raises(Stopped):
        finetune(str(data / "r.toml"), [*words, f"out={cut}"])
    monkeypatch.delenv("ORDSMED_STOP_AT")
    (cut / "chosen" / "00000000.npy").unlink()
    finetune(str(cut), [])
    weights = "weights/model.safetensors"
    assert (whole / weights).read_bytes() == (cut / weights).read_bytes()
    assert np.array_equal(added_by(whole, 4), added_by(cut, 4))


def test_rows_have_what_the_model_found(data: Path, job: Jobs, tmp_path: Path) -> None:
    made = job(*MINING)
    plain, known = made.rows(0).batch(np.arange(12)), made.data.row_length(0)
    assert made.data.renew(made, tmp_path, 0, 0) == 3
    added = added_by(tmp_path, 0)
    rows = made.rows(0)
    assert isinstance(rows, RecordRows)
    assert made.data.row_length(0) > known
    batch = rows.batch(np.arange(12))
    assert plain.labels is not None
    assert batch.labels is not None
    assert batch.labels[:, 0].tolist().count(2) == 24 > plain.labels[:, 0].tolist().count(2)
    record = int(rows._chosen(np.arange(1))[0])
    assert batch.labels[2:4, 1].tolist() == added[added[:, 0] == record, 1].tolist()
    (tmp_path / "chosen" / "00000000.npy").unlink()
    with pytest.raises(OrdsmedError, match=r"no such file; wanted what the run learns from; .*--anew"):
        made.data.renew(made, tmp_path, 0, 1)
