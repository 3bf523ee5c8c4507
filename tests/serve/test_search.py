"""Searches over HTTP give the results of the opened index, with the model that made it; others are refused."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from kit.served import Running, running
from kit.task_models import write_model
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks.pairs import TextPairs
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.serve.indexes import open_indexes
from ordsmed.serve.models import ServedModels
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.index.rerank import reranker_key
from ordsmed.weights.foreign import Networks

TEXTS = "The newt swam under the mat.\n\nA red cat sat on it.\n\nThe old dog ran and ran.\n\nA newt and a cat ran.\n"


@pytest.fixture(scope="module")
def place(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    (folder / "texts.txt").write_text(TEXTS)
    ordsmed.index(folders["bert"], folder / "texts.txt", folder / "both", weight=0.5)
    ordsmed.index(None, folder / "texts.txt", folder / "words")
    task, cutter = TextPairs(head="multi-vector", token_width=8, length=20, expand=6), Tokenizer.load(folders["bert"])
    model = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=32)
    objective = fresh(task, model, cutter, 3)
    write_model(folder / "tokens", own_tensors(objective), Networks(model=model, task=task), cutter)
    rows = [{"_id": "a", "text": "The newt swam.", "year": 1999}]
    rows.append({"_id": "b", "text": "An old newt ran.", "year": 2001, "by": {"name": "Bo"}})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ordsmed.index(folders["bert"], folder / "rows.jsonl", folder / "fields", weight=0.5)
    ordsmed.index(folder / "tokens", folder / "texts.txt", folder / "late", length=18, weight=0.5)
    return folder


@pytest.fixture(scope="module")
def searching(folders: dict[str, Path], place: Path) -> Any:
    models = {name: folders[name] for name in ("gpt2", "bert", "fits", "tag")} | {"tokens": place / "tokens"}
    indexes = [f"mats={place / 'both'}", *(str(place / name) for name in ("words", "late", "fields"))]
    with running(models, indexes=indexes) as server:
        yield server


def post(server: Running, path: str, body: object) -> tuple[int, Any]:
    request = urllib.request.Request(f"{server.url}{path}", json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_search_gives_what_the_index_gives(searching: Running, place: Path) -> None:
    index = ordsmed.open_index(place / "both")
    for kind in ("both", "dense", "words"):
        status, answers = post(searching, "/search", {"questions": ["a newt", "old dogs"], "k": 3, "kind": kind})
        assert status == 200, answers
        for question, hits in zip(["a newt", "old dogs"], answers, strict=True):
            wanted = index.search(question, 3, kind=kind)
            assert [(hit["rank"], hit["text"]) for hit in hits] == [(hit.rank, hit.passage.text) for hit in wanted]
            assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-5)
    with urllib.request.urlopen(searching.url, timeout=60) as answer:
        indexes = {model["name"]: model["indexes"] for model in json.load(answer)["models"]}
    alone = {name: ["words"] for name in ("gpt2", "fits", "tag")}
    assert indexes == {**alone, "bert": ["mats", "words", "fields"], "tokens": ["words", "late"]}
    assert post(searching, "/bert/search", {"questions": "a newt", "index": "words"})[1][0][0]["words"] > 0


def test_a_request_weighs_vectors(searching: Running, place: Path) -> None:
    index = ordsmed.open_index(place / "both")
    scores = []
    for weight in (0.0, 0.3, 1.0):
        hits = post(searching, "/search", {"questions": "a newt", "k": 4, "weight": weight})[1][0]
        wanted = index.weighted(weight).search("a newt", 4)
        assert [hit["text"] for hit in hits] == [hit.passage.text for hit in wanted]
        scores.append([hit["score"] for hit in hits])
        assert scores[-1] == pytest.approx([hit.score for hit in wanted], abs=1e-5)
    again = post(searching, "/search", {"questions": "a newt", "k": 4})[1][0]
    assert [hit["score"] for hit in again] not in scores  # the index itself stays as it is


def test_a_search_knows_fields_conditions_and_updates(searching: Running, place: Path) -> None:
    """The next search sees an update of the index, and the reranker and the weight that were chosen."""
    found = post(searching, "/search", {"questions": "newt", "index": "fields", "where": ["year>=2000"]})
    assert [hit["meta"] for hit in found[1][0]] == [{"year": 2001, "by": {"name": "Bo"}}]
    status, refusal = post(searching, "/search", {"questions": "newt", "index": "fields", "where": ["yaer=1"]})
    assert (status, "did you mean `year`" in refusal["error"]) == (400, True)
    (place / "more.jsonl").write_text('{"_id": "c", "text": "A newt of today.", "year": 2020}\n')
    ordsmed.update_index(place / "fields", place / "more.jsonl", ["b"])
    hits = post(searching, "/search", {"questions": "newt", "index": "fields"})[1][0]
    assert {hit["id"] for hit in hits} == {"a", "c"}
    assert hits[0]["dense"] is not None
    ordsmed.open_index(place / "fields").weighted(0, keep=True)
    hits = post(searching, "/search", {"questions": "newt", "index": "fields"})[1][0]
    assert [("dense" in hit, hit["words"]) for hit in hits] == [(False, hit["score"]) for hit in hits]


def test_the_reranker_that_an_index_chose_is_asked(searching: Running, place: Path, folders: dict[str, Path]) -> None:
    key = reranker_key(ordsmed.open(folders["fits"], device="cpu").trained)
    Run(place / "both").set(reranker={"model": str(folders["fits"]), "key": key, "top": 3, "weight": 0.5})
    wanted = ordsmed.open_index(place / "both", folders["bert"]).search("a newt", 4)
    (hits,) = post(searching, "/search", {"questions": "a newt", "k": 4})[1]
    assert [(hit["text"], hit["score"]) for hit in hits] == [
        (hit.passage.text, pytest.approx(hit.score, abs=1e-5)) for hit in wanted
    ]
    (plain,) = post(searching, "/search", {"questions": "a newt", "k": 4, "rerank": ""})[1]
    Run(place / "both").set(reranker=None)
    (without,) = post(searching, "/search", {"questions": "a newt", "k": 4})[1]
    assert plain == without != hits


def test_texts_without_a_token_are_refused(searching: Running) -> None:
    for path, body in (
        ("/v1/embeddings", {"model": "bert", "input": ["a cat", ""]}),
        ("/v1/embeddings", {"model": "bert", "input": "\0"}),
        ("/bert/api/embed", {"texts": ["\u200b"], "of": "sentences"}),
        ("/search", {"questions": "\0", "index": "mats", "kind": "dense"}),
    ):
        status, refusal = post(searching, path, body)
        assert (status, "that the model can read" in str(refusal)) == (400, True), refusal


def test_a_model_of_pairs_reranks(searching: Running, place: Path, folders: dict[str, Path]) -> None:
    wanted = ordsmed.search(place / "both", "a newt", 3, rerank=folders["fits"], top=2)
    (hits,) = post(searching, "/search", {"questions": "a newt", "k": 3, "rerank": "fits", "top": 2})[1]
    assert [hit["text"] for hit in hits] == [hit.passage.text for hit in wanted]
    assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-5)


def test_an_index_of_token_vectors_is_asked_through_its_model(searching: Running, place: Path) -> None:
    questions, index = ["a newt", "old dogs ran and ran and ran"], ordsmed.open_index(place / "late")
    for kind in ("both", "dense"):
        body = {"questions": questions, "k": 3, "kind": kind, "index": "late"}
        status, answers = post(searching, "/search", body)
        assert status == 200, answers
        for question, hits in zip(questions, answers, strict=True):
            wanted = index.search(question, 3, kind=kind)
            assert [hit["text"] for hit in hits] == [hit.passage.text for hit in wanted]
            assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-4)


def test_a_model_of_token_vectors_reranks(searching: Running, place: Path) -> None:
    """Each text is read by itself: two of 12 tokens fit a model of 20."""
    wanted = ordsmed.search(place / "both", "a newt", 4, rerank=place / "tokens")
    (hits,) = post(searching, "/search", {"questions": "a newt", "k": 4, "rerank": "tokens"})[1]
    assert [hit["text"] for hit in hits] == [hit.passage.text for hit in wanted]
    assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-5)
    assert len({round(hit["score"], 4) for hit in hits}) > 2
    texts = ["cat " * 12, "a red newt"]
    status, ranks = post(searching, "/tokens/rerank", {"query": "cat " * 12, "texts": texts})
    assert (status, sorted(rank["index"] for rank in ranks)) == (200, [0, 1])
    numbers = [found.number for found in ordsmed.open(place / "tokens").classify(["cat " * 12] * 2, texts)]
    assert {rank["index"]: rank["score"] for rank in ranks} == pytest.approx(dict(enumerate(numbers)), abs=1e-4)
    status, refusal = post(searching, "/tokens/rerank", {"query": "cat", "texts": ["cat " * 19]})
    assert (status, "found 21 tokens" in str(refusal)) == (422, True)


@pytest.mark.parametrize(
    ("path", "body", "status", "problem"),
    [
        ("/search", {"questions": ""}, 400, "question: is empty"),
        ("/search", {"questions": []}, 400, "found none"),
        ("/search", {"questions": "cat", "index": "mat"}, 404, "did you mean `mats`"),
        ("/search", {"questions": "cat", "index": "words", "kind": "dense"}, 400, "--kind: found dense; wanted words"),
        ("/search", {"questions": "cat", "rerank": "tag"}, 400, "cannot classify"),
        ("/gpt2/search", {"questions": "cat", "index": "mats"}, 404, "no index `mats`"),
        ("/search", {"questions": "cat", "k": 0}, 400, "k"),
        ("/search", {"questions": "cat", "weight": 1.5}, 400, "<= 1.0"),
        (
            "/search",
            {"questions": "cat", "index": "words", "weight": 0.5},
            400,
            "--weight: found 0.5 with --kind words",
        ),
        (
            "/search",
            {"questions": "cat", "index": "mats", "kind": "dense", "weight": 0.5},
            400,
            "found 0.5 with --kind",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(
    path: str, body: object, status: int, problem: str, searching: Running, place: Path
) -> None:
    found, answer = post(searching, path, body)
    assert found == status, answer
    assert problem in answer["error"]
    assert str(place) not in answer["error"]


def test_an_index_needs_its_model_and_a_server_its_index(
    folders: dict[str, Path], place: Path, served: Running
) -> None:
    models = ServedModels.opened([f"gpt2={folders['gpt2']}"], {"device": "cpu"})
    with pytest.raises(RecipeError, match="is the index of another model; wanted the model that made it"):
        open_indexes([f"x={place / 'both'}"], models)
    with pytest.raises(RecipeError, match="found `words` twice"):
        open_indexes([f"{place / 'words'}", f"{place / 'words'}"], models)
    assert "--index NAME=FOLDER" in post(served, "/search", {"questions": "cat"})[1]["error"]
