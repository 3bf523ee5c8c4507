"""Vectors of tokens: MaxSim by hand, which tokens count, scores of pairs, and sentence-transformers' own encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.task_files import pair_files
from learn.tasks.test_pairs import RECIPE
from ordsmed.api.model import open as open_model
from ordsmed.api.searching import reranker
from ordsmed.base.errors import RecipeError
from ordsmed.learn.embedding import maxsim
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.embedding.tokens import token_features
from ordsmed.learn.task import packing, reader
from ordsmed.learn.tasks.pairs import TextPairs
from ordsmed.train.finetune.finetune import finetune
from ordsmed.use.predict import predict
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.weights.export import export
from ordsmed.weights.trained_model import Trained

TEXTS = ["w1 w2 . w3", "w9", ". w4, w5", "w5 " * 40]
HEAD = ["task.head=multi-vector", "task.token_width=8", "task.skip_punctuation=true", "task.expand=6"]
TOKENS = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs whose positives have signs of punctuation, and a vocabulary that has them."""
    folder = pair_files(tmp_path_factory.mktemp("tokens"))
    with (folder / "vocab.txt").open("a") as file:
        file.write(".\n,\n")
    for name in ("train", "dev"):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        rows = [row | {"positive": row["positive"].replace(" ", " . ", 1)} for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "r.toml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    words = [*HEAD, "task.query=w1 ", "task.query_length=12", "steps=50", "learning_rate=5e-3", f"out={out}"]
    return finetune(str(data / "r.toml"), words)


def token_vectors(trained: Trained, texts: list[str], group: str) -> list[np.ndarray]:
    """Of each text alone those that count."""
    task, found = trained.objective, []
    for text in texts:
        features, _ = token_features([text], group, reader(trained.tokenizer, trained.settings), task.tokens)
        batch = packing(trained.tokenizer, trained.settings).batch(features, np.arange(1), np.arange(1))
        with torch.inference_mode():
            [vectors] = task.token_vectors(batch).numpy()
        found.append(vectors[vectors.any(-1)])
    return found


def by_hand(question: np.ndarray, text: np.ndarray) -> float:
    return float((question @ text.T).max(1).sum())


def test_of_each_token_of_a_question_the_nearest_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [7, 2, 4, 5, 1]
    vectors = TOKENS.masked_fill((torch.arange(7) >= torch.tensor(sizes)[:, None])[..., None], 0)
    vectors[0, 2] = 0
    vectors[1, 1] = vectors[1, 0] / 2
    vectors[3, :5] = -vectors[1, :1]
    alone = [part[part.any(-1)].numpy() for part in vectors]
    want = np.array([[by_hand(q, t) for t in alone] for q in alone[:2]])
    assert want[1, 3] < 0
    assert maxsim.maxsim(vectors[:2], vectors).numpy() == pytest.approx(want, abs=1e-5)
    assert maxsim.maxsim_pairs(vectors[:2], vectors[2:4]).tolist() == pytest.approx([want[0, 2], want[1, 3]], abs=1e-5)
    rows = TokenRows(np.concatenate(alone), np.cumsum([0, *map(len, alone)]))
    with_zeros = TokenRows(vectors.flatten(0, 1).numpy(), np.arange(0, 36, 7))
    assert maxsim.maxsim_with_all(vectors[:2], with_zeros).numpy() == pytest.approx(want, abs=1e-5)
    empty = TokenRows(rows.vectors, np.insert(rows.starts, 2, rows.starts[2]))
    found = maxsim.maxsim_with_all(vectors[:2], empty).numpy()
    assert np.delete(found, 2, 1) == pytest.approx(want, abs=1e-5)
    assert np.isneginf(found[:, 2]).all()
    for name in ("AT_ONCE", "NUMBERS"):
        monkeypatch.setattr(maxsim, name, 1)
    assert maxsim.maxsim(vectors[:2], vectors).numpy() == pytest.approx(want, abs=1e-5)
    assert maxsim.maxsim_with_all(vectors[:2], rows).numpy() == pytest.approx(want, abs=1e-5)


def test_a_gradient_goes_to_tokens_alone() -> None:
    leaf = TOKENS.clone()
    leaf[0, 3:], leaf[2, 4:] = 0, 0
    leaf.requires_grad_()
    maxsim.maxsim(leaf[:2], leaf[2:]).sum().backward()
    assert leaf.grad is not None
    assert not leaf.grad[0, 3:].any()
    assert not leaf.grad[2, 4:].any()
    assert leaf.grad[0, :3].all()


def test_a_planted_rule_is_learned(run: Path) -> None:
    scores = json.loads((run / "scores.json").read_text())
    assert scores["accuracy@1"] > 60 > 6 * scores["guessing"]["accuracy@1"]
    assert scores["validation"] < 2


def test_which_tokens_count(run: Path) -> None:
    """Questions are filled up with masks, behind a prompt, and cut; of passages punctuation is left out."""
    trained = open_model(run, device="cpu").trained
    queries, passages = (token_vectors(trained, TEXTS, group) for group in ("query", "passage"))
    assert [len(vectors) for vectors in queries] == [7, 6, 7, 12]
    assert [len(vectors) for vectors in passages] == [5, 3, 4, 24]
    assert all(vectors.shape[1] == 8 for vectors in (*queries, *passages))
    assert np.linalg.norm(np.concatenate([*queries, *passages]), axis=1) == pytest.approx(1, abs=1e-5)


def test_two_texts_are_scored_and_predictions_are_scores(run: Path, data: Path, tmp_path: Path) -> None:
    model = open_model(run, device="cpu")
    queries, passages = (token_vectors(model.trained, TEXTS, group) for group in ("query", "passage"))
    assert "classify" in model.can
    numbers = [found.number for found in model.classify(TEXTS, TEXTS[::-1])]
    assert numbers == pytest.approx([by_hand(q, p) for q, p in zip(queries, passages[::-1], strict=True)], abs=1e-5)
    assert reranker(model)(TEXTS, TEXTS[::-1]) == pytest.approx(numbers)
    told = predict(str(run), [str(data / "dev.jsonl")], tmp_path / "out", scores=True)
    records = TextPairs(train="x").records([str(data / "dev.jsonl")])
    again = TextPairs(train="x").read(told.folder / "pairs.tsv", records)
    queries = token_vectors(model.trained, records.texts[: records.queries], "query")
    passages = token_vectors(model.trained, records.texts[records.queries :], "passage")
    every = np.array([[by_hand(q, p) for p in passages] for q in queries])
    positives, right = records.positives - records.queries, records.right()
    for record, (anchor, positive) in enumerate(zip(records.anchors.tolist(), positives.tolist(), strict=True)):
        assert again.similar[record] == pytest.approx(every[anchor, positive], abs=1e-4)
        others = [n for n in range(len(passages)) if n not in right[anchor]]
        assert again.rank[record] == 1 + (every[anchor, others] > every[anchor, positive]).sum()


def test_a_text_has_no_vector(run: Path, tmp_path: Path) -> None:
    model = open_model(run, device="cpu")
    with pytest.raises(RecipeError, match=r"makes vectors of tokens \(late interaction\), not of texts"):
        model.embed("w1", of="sentences")
    with pytest.raises(RecipeError, match=r"not of texts; wanted a model that embeds texts; use it for"):
        TextEncoder(model.trained)
    for setting in ("pool=mean", "similarity=dot", "length=8"):
        with pytest.raises(RecipeError, match=r"for vectors of tokens, which are as learned"):
            export(run, tmp_path / "out", to="sentence-transformers", overrides=[setting])
    assert model.embed("w9 w8").vectors.shape == (2, 16)
    with pytest.raises(RecipeError, match=r"has a projection head, .*`--to sentence-transformers` exports it"):
        export(run, tmp_path / "out", to="huggingface")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", [[], ["prompt"]])
def test_the_folder_of_sentence_transformers_gives_the_same(run: Path, tmp_path: Path, words: list[str]) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import MultiVectorEncoder

    more: Any = {"overrides": ["passage=w7 "]} if words else {}
    theirs = MultiVectorEncoder(str(export(run, tmp_path / "out", to="sentence-transformers", **more)), device="cpu")
    trained = open_model(run, device="cpu").trained
    queries = token_vectors(trained, TEXTS, "query")
    passages = token_vectors(trained, [f"w7 {text}" for text in TEXTS] if words else TEXTS, "passage")
    found = theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)
    for ours, its in zip((*queries, *passages), (*found[0], *found[1]), strict=True):
        assert ours.shape == its.shape
        assert np.abs(ours - its.numpy()).max() < 1e-5
    want = [[by_hand(q, p) for p in passages] for q in queries]
    assert theirs.similarity(*found).numpy() == pytest.approx(np.array(want), abs=1e-5)
    assert "MultiVectorEncoder('out')" in (tmp_path / "out" / "README.md").read_text()
