"""Indexes: passages, vectors and words in files; exact search; a kill loses nothing, another model is refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ordsmed
from kit.language_models import WORDS, hub_folder
from kit.task_files import task_files
from kit.task_models import task_models, write_model
from ordsmed import cli
from ordsmed.base import files
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks import pairs
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.text.bm25 import Bm25, fused
from ordsmed.text.document import Document
from ordsmed.use import text_encoder, token_encoder
from ordsmed.use.embed import Form, embedded
from ordsmed.use.index import approximate, build, encoder, open_index
from ordsmed.use.index.growing_files import GrowingRows
from ordsmed.use.index.nearest import nearest
from ordsmed.use.index.open_index import OpenIndex
from ordsmed.use.index.passages import PassageCutting, in_words, read_as
from ordsmed.weights.foreign import Networks
from ordsmed.weights.trained_model import open_model


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, forty documents as JSON lines, and an index of them."""
    folder = tmp_path_factory.mktemp("index")
    hub_folder("bert", folder / "bert")
    draw = np.random.default_rng(5)
    with (folder / "texts.jsonl").open("w") as file:
        for number in range(40):
            sentences = [" ".join(draw.choice(WORDS, draw.integers(3, 12))).capitalize() + "." for _ in range(6)]
            text = " ".join(sentences[:3]) + "\n" + " ".join(sentences[3:])
            file.write(json.dumps({"_id": f"d{number}", "title": f"Mat {number}", "text": text}) + "\n")
    ordsmed.index(folder / "bert", folder / "texts.jsonl", folder / "made", length=24, overlap=6, weight=0.5)
    Run(folder / "made").set(weight=None)  # as indexes of former versions
    return folder


def cut(text, length, overlap=0, **meta):
    document = Document(text, meta=meta)
    (spans,) = PassageCutting(length, overlap, bool(meta)).passages([document], in_words)
    return [document.text[a:b] for a, b in spans]


def test_passages_are_whole_sentences_of_at_most_a_length():
    text = "One two three. Four five. Six seven eight nine. Ten."
    assert cut(text, 8) == ["One two three. Four five.", "Six seven eight nine. Ten."]
    assert cut(text, 9, 2) == ["One two three. Four five. Six seven eight nine.", "Ten."]
    assert cut(text, 8, 2) == ["One two three. Four five.", "Four five. Six seven eight nine. Ten."]
    assert cut(" \n ", 8) == []


def test_a_paragraph_that_does_not_fit_begins_a_passage_once_half_is_used():
    text = "A b c d e.\nF g h. I j k."
    assert cut(text, 10) == ["A b c d e.", "F g h. I j k."]
    assert cut("A b.\nF g h. I j k l m n.", 10) == ["A b.\nF g h.", "I j k l m n."]


def test_a_long_sentence_is_cut_between_words():
    words = " ".join(f"w{n}" for n in range(50))
    parts = cut(words, 8)
    assert " ".join(parts) == words
    assert max(map(len, map(str.split, parts))) <= 8
    assert "".join(cut("x" * 40, 8)) == "x" * 40


def test_titles_take_room_and_stand_above():
    assert cut("One two three. Four five six.", 8, title="A b c d") == ["One two three.", "Four five six."]
    assert cut("One two three. Four five six.", 8) == ["One two three. Four five six."]
    assert read_as("Newts", "  swim\n well ") == "Newts swim well"
    assert read_as("Newts", "Newts swim") == "Newts swim"


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_nearest_are_those_of_all_products(block):
    torch.manual_seed(3)
    vectors = torch.randn(50, 4).half()
    vectors[31] = vectors[8] = torch.tensor([9.0, 0, 0, 0])
    questions = torch.cat([torch.randn(2, 4), vectors[8:9].float()])
    scores, numbers = nearest(vectors.numpy(), questions, 6, numbers=4 * block, scores=60)
    every = questions @ vectors.float().T
    order = every.sort(dim=1, descending=True, stable=True).indices[:, :6]
    assert numbers.tolist() == order.tolist()
    torch.testing.assert_close(scores, every.gather(1, order))
    assert numbers[2, :2].tolist() == [8, 31]
    assert nearest(vectors.numpy(), questions, 99, numbers=4 * block, scores=60)[1].shape == (3, 50)


def test_an_index_holds_every_text_and_vectors_as_embed_makes_them(place):
    index, trained = ordsmed.open_index(place / "made"), open_model(place / "bert")
    documents = [json.loads(line) for line in (place / "texts.jsonl").read_text().splitlines()]
    passages = [index.passages[n] for n in range(len(index))]
    assert len(passages) > 80
    assert {p.document for p in passages} == set(range(40))
    for passage in passages:
        document = documents[passage.document]
        assert (passage.id, passage.title) == (document["_id"], document["title"])
        assert passage.text == document["text"][passage.start : passage.end]
    texts = [read_as(passage.title, passage.text) for passage in passages]
    theirs = np.stack([row.vectors for row in embedded(trained, texts, Form(of="sentences", layers="top"))])
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    assert index.vectors.dtype == np.float16
    assert np.abs(index.vectors - theirs).max() < 1e-3
    assert max(len(trained.tokenizer.encode(text)) for text in texts) <= 24


def test_searches_by_vectors_by_words_and_by_both(place):
    index = ordsmed.open_index(place / "made")
    number = 17
    text = read_as(index.passages[number].title, index.passages[number].text)
    dense = index.search(text, 3, kind="dense")
    assert (dense[0].number, dense[0].words) == (number, None)
    assert dense[0].score == pytest.approx(1, abs=1e-3)
    bm25 = Bm25.of([read_as(p.title, p.text) for p in map(index.passages.__getitem__, range(len(index)))])
    numbers, scores = bm25.search("the old newt", 3)
    worded = index.search("the old newt", 3, kind="words")
    assert [(hit.number, hit.score) for hit in worded] == list(zip(numbers, scores.tolist(), strict=True))
    both = index.search("the old newt", 5)
    rankings = [[hit.number for hit in index.search("the old newt", 100, kind=kind)] for kind in ("dense", "words")]
    numbers, scores = fused(rankings)
    assert [(hit.number, hit.score) for hit in both] == list(zip(numbers[:5], scores[:5].tolist(), strict=True))
    assert [hit.rank for hit in both] == [1, 2, 3, 4, 5]
    again = ordsmed.search(place / "made", ["the old newt", "a dog"], 5)[0]
    assert [(hit.number, hit.score) for hit in again] == [(hit.number, hit.score) for hit in both]


def test_a_weight_of_the_vectors_is_kept_and_can_be_another(place, capsys):
    question, made = "the old newt", place / "made"
    ways = {kind: ordsmed.search(made, question, 5, kind=kind) for kind in ("dense", "words", "both")}
    by = {weight: ordsmed.search(made, question, 5, weight=weight) for weight in (0, 0.4, 1)}
    assert [hit.number for hit in by[1]] == [hit.number for hit in ways["dense"]]
    assert [hit.words for hit in by[0]] == [hit.words for hit in ways["words"]]
    assert [hit.score for hit in by[0]] == [hit.words for hit in by[0]]
    assert [hit.number for hit in by[0.4]] not in ([h.number for h in by[0]], [h.number for h in by[1]])
    kept = ordsmed.index(place / "bert", place / "texts.jsonl", made, length=24, overlap=6, weight=0.4)
    assert kept.search(question, 5) == by[0.4] == ordsmed.search(made, question, 5)
    cli.main(["search", str(made), question, "--weight", "1", "--json"])
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert [hit["number"] for hit in hits] == [hit.number for hit in by[1]]
    for weight, kind, problem in (
        (1.5, "", "found 1.5; wanted 0 .* to 1"),
        (0.5, "words", "found 0.5 with --kind words"),
    ):
        with pytest.raises(RecipeError, match=f"--weight: {problem}"):
            ordsmed.search(made, question, kind=kind, weight=weight)
    with pytest.raises(RecipeError, match=r"--weight: found 0.5 with --kind words"):
        ordsmed.index(None, place / "texts.jsonl", place / "unweighted", weight=0.5)
    assert not (place / "unweighted").exists()
    Run(made).set(weight=None)
    assert ordsmed.search(made, question, 5) == ways["both"]


def test_of_words_alone_no_model_is_opened(place, monkeypatch):
    monkeypatch.setattr(open_index, "opened", None)
    index = ordsmed.index(None, place / "texts.jsonl", place / "words")
    assert index.search("mat 7", 1)[0].passage.id == "d7"
    assert not (place / "words/vectors.npy").exists()
    with pytest.raises(RecipeError, match=r"--kind: found dense; wanted words, which .*words has"):
        index.search("mat", kind="dense")


def test_a_corpus_is_indexed_with_all_that_it_holds_out(place):
    source = {"kind": "jsonl", "path": str(place / "texts.jsonl")}
    corpus = ordsmed.corpus("folder", source=source, validation=0.2, processes=1, out=str(place / "corpus"))
    index = ordsmed.index(None, corpus.path, place / "of-corpus")
    assert index.facts["documents"] == 40
    found = {index.passages[n].title for n in range(len(index))}
    assert found == {f"Mat {n}" for n in range(40)}


class Killed(BaseException):
    pass


def files_of(folder):
    paths = [*folder.glob("*.npy"), *folder.glob("documents.jsonl"), *folder.glob("*.bin"), *folder.glob("words/*")]
    return {path.name: path.read_bytes() for path in paths}


def test_blocks_of_vectors_are_read_by_themselves(place, monkeypatch):
    blocks, entries = list[list[str]](), text_encoder.Embedder.entries
    monkeypatch.setattr(
        text_encoder.Embedder, "entries", lambda self, texts: blocks.append([*texts]) or entries(self, texts)
    )
    texts = ["cat " * (1 + number % 7) for number in range(20)]
    reader = encoder.index_encoder(open_model(place / "bert"))
    whole = [*reader.vectors(texts, rows=8)]
    assert [len(block) for block in blocks] == [len(block) for block in whole] == [8, 8, 4]
    blocks.clear()
    rest = [*reader.vectors(iter(texts[8:]), rows=8)]
    assert blocks == [texts[8:16], texts[16:]]
    assert all(np.array_equal(a, b) for a, b in zip(whole[1:], rest, strict=True))


@pytest.mark.parametrize("step", ["cut", "vectors", "words"])
def test_what_is_killed_goes_on_where_it_was(step, place, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "EVERY", 0.0)
    monkeypatch.setattr(build, "BLOCK", 1_000)
    monkeypatch.setattr(text_encoder.TextEncoder.vectors, "__defaults__", ("passage", 16))
    words = (place / "bert", place / "texts.jsonl", tmp_path / "index")
    ordsmed.index(
        *words[:2], tmp_path / "whole", length=24, overlap=6, weight=0.5
    )  # in the same blocks, which round alike
    read = list[str]()
    left = [{"cut": 3, "vectors": 4, "words": 1}[step]]

    def until(inner):
        def call(*given, **named):
            left[0] -= 1
            if not left[0]:
                raise Killed
            return inner(*given, **named)

        return call

    results_folder = {"cut": (PassageCutting, "passages"), "vectors": (text_encoder, "units"), "words": (Bm25, "save")}
    with monkeypatch.context() as patched:
        owner, name = results_folder[step]
        patched.setattr(owner, name, until(getattr(owner, name)))
        with pytest.raises(Killed):
            ordsmed.index(*words, length=24, overlap=6, weight=0.5)
    with pytest.raises(DataError, match="is not finished"):
        ordsmed.open_index(tmp_path / "index")
    for name in {"cut": ("texts.bin", "passages.npy"), "vectors": ("vectors.npy",)}.get(step, ()):
        with (tmp_path / "index" / name).open("ab") as file:  # what was written and not noted
            file.write(b"torn")
    entries = text_encoder.Embedder.entries
    monkeypatch.setattr(
        text_encoder.Embedder, "entries", lambda own, texts: entries(own, (read.append(t) or t for t in texts))
    )
    index = ordsmed.index(*words, length=24, overlap=6, weight=0.5)
    assert files_of(tmp_path / "index") == files_of(tmp_path / "whole")
    assert not list((tmp_path / "index").glob("*.kept"))
    again = len([text for text in read if text != "."])
    assert again == {"cut": len(index), "words": 0}.get(step, again)
    assert step != "vectors" or 0 < again < len(index)


@pytest.mark.parametrize("many", [10**6, 50])
def test_faiss_looks_at_some_vectors_and_tells_its_recall(many, place, tmp_path, capsys, monkeypatch):
    """A graph, or cells where passages are many; what it finds has the scores of exact search, in their order."""
    pytest.importorskip("faiss", reason="faiss is not installed: pip install -e .[dev]")
    monkeypatch.setattr(approximate, "MANY", many)
    words = (place / "bert", place / "texts.jsonl", tmp_path / "made")
    index = ordsmed.index(*words, length=24, overlap=6, nearest="faiss", weight=0.5)
    kind = "HNSW32" if many > 50 else "IVF"
    assert f"{kind}" in (said := "".join(capsys.readouterr()))
    assert "of the 10 nearest passages are found, of" in said
    assert index.facts["faiss"]["recall"] >= approximate.RECALL
    exact = ordsmed.open_index(place / "made")
    questions = ["the old newt", "a dog", read_as("", index.passages[5].text)]
    for question in questions:
        near, every = (one.search(question, 5, kind="dense") for one in (index, exact))
        scores = {hit.number: hit.score for hit in exact.search(question, len(exact), kind="dense")}
        assert len({hit.number for hit in near} & {hit.number for hit in every}) >= 4
        assert [hit.score for hit in near] == pytest.approx([scores[hit.number] for hit in near], abs=1e-6)
        assert [hit.score for hit in near] == sorted((hit.score for hit in near), reverse=True)
    again = ordsmed.open_index(tmp_path / "made")
    assert [hit.number for hit in again.search("the old newt", 5)] == [
        hit.number for hit in index.search("the old newt", 5)
    ]
    (tmp_path / "made" / "vectors.faiss").write_bytes(b"no index")
    with pytest.raises(DataError, match=r"vectors\.faiss: is damaged: 8 bytes; .*make the index again"):
        ordsmed.open_index(tmp_path / "made")
    Run(tmp_path / "made").set(checksums=None)
    with pytest.raises(DataError, match=r"vectors\.faiss: cannot be read; .*make the index again"):
        ordsmed.open_index(tmp_path / "made").search("newt")


def test_without_faiss_a_line_says_what_to_install(place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(RecipeError, match=r"`faiss` is not installed; pip install 'ordsmed\[faiss\]'"):
        ordsmed.index(place / "bert", place / "texts.jsonl", tmp_path / "made", nearest="faiss")
    assert not (tmp_path / "made").exists()
    with pytest.raises(RecipeError, match=r"nearest: found faiss with --kind words"):
        ordsmed.index(None, place / "texts.jsonl", tmp_path / "made", nearest="faiss")


def test_what_stands_is_reused_and_another_is_refused(place, tmp_path):
    words = (place / "bert", place / "texts.jsonl", place / "made")
    before = (place / "made/vectors.npy").stat().st_mtime_ns
    ordsmed.index(*words, length=24, overlap=6, batch=3, weight=0.5)
    Run(place / "made").set(weight=None)
    assert (place / "made/vectors.npy").stat().st_mtime_ns == before
    with pytest.raises(RecipeError, match=r"was made with overlap 6, found 0; name another folder, or add --anew"):
        ordsmed.index(*words, length=24)
    hub_folder("electra", tmp_path / "other")
    with pytest.raises(RecipeError, match=r"made: was not made with .*other; wanted the model that"):
        ordsmed.open_index(place / "made", tmp_path / "other").search("cat")
    assert ordsmed.open_index(place / "made", place / "bert").search("cat")


def test_it_can_be_moved_with_its_model(place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    ordsmed.index("bert", "texts.jsonl", "moving", kind="dense")
    here = ordsmed.open_index("moving").search("a red cat")
    (place / "moving").rename(place / "moved")
    monkeypatch.chdir(tmp_path)
    assert ordsmed.open_index(place / "moved", place / "bert").search("a red cat") == here


def test_what_is_no_index_and_what_is_damaged_is_told(place, tmp_path):
    for name, problem in (("bert", "is not an index, but a Hugging Face folder"), ("gone", "gone: no such folder")):
        with pytest.raises(RecipeError, match=problem):
            ordsmed.open_index(place / name)
    ordsmed.index(place / "bert", place / "texts.jsonl", tmp_path / "cut", length=24)
    vectors = np.load(tmp_path / "cut/vectors.npy")
    np.save(tmp_path / "cut/vectors.npy", vectors[:-1])
    with pytest.raises(DataError, match=r"vectors.npy: is damaged: \S+ bytes; wanted"):
        ordsmed.open_index(tmp_path / "cut")
    Run(tmp_path / "cut").set(checksums=None)
    with pytest.raises(DataError, match=rf"vectors: {len(vectors) - 1} passages; wanted {len(vectors)}"):
        ordsmed.open_index(tmp_path / "cut")
    os.truncate(tmp_path / "cut/vectors.npy", 200)
    with pytest.raises(DataError, match="truncated"):
        ordsmed.open_index(tmp_path / "cut")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"corpus": "empty.txt"}, "empty.txt: has no text to index"),
        ({"corpus": "bert"}, "is the folder of a Hugging Face folder"),
        ({"corpus": "book.pdf"}, "is neither text nor JSON lines"),
        ({"length": 99}, "--length: found 99; wanted at most 30"),
        ({"overlap": 20}, "overlap: found 20; wanted at most half"),
        ({"pool": "median"}, "--pool: found median"),
        ({"model": None, "kind": "dense"}, "found none with --kind dense"),
        ({"out": "texts.jsonl"}, "a file; wanted a folder"),
    ],
)
def test_what_cannot_be_indexed_is_refused_and_leaves_nothing(change, problem, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    Path("empty.txt").write_text("\n \n")
    Path("book.pdf").write_text("")
    words = {"model": "bert", "corpus": "texts.jsonl", "out": str(tmp_path / "index"), **change}
    with pytest.raises(OrdsmedError) as refused:
        ordsmed.index(**words)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises((RecipeError, DataError)):
        ordsmed.open_index(tmp_path / "index")


def test_a_document_alone_and_questions_that_ask_nothing(place, tmp_path):
    (tmp_path / "one.txt").write_text("The newt swam.")
    index = ordsmed.index(place / "bert", tmp_path / "one.txt", tmp_path / "one")
    assert [hit.passage.text for hit in index.search("newt", 50)] == ["The newt swam."]
    assert index.search("zebra", kind="words") == []
    for question, k, problem in ((" ", 1, "question: is empty"), ("newt", 0, "k: found 0")):
        with pytest.raises(RecipeError, match=problem):
            index.search(question, k)
    with pytest.raises(RecipeError, match="question 2: is empty"):
        index.search_all(["newt", ""])
    with pytest.raises(RecipeError, match="found none"):
        index.search_all([])


def test_a_full_disk_is_told_and_gone_on_from(place, tmp_path, monkeypatch):
    words = (place / "bert", place / "texts.jsonl", tmp_path / "index")

    class Full(GrowingRows):
        def add(self, data):
            with files.survive_disk(self.path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(build, "GrowingRows", Full)
        with pytest.raises(RunError, match=r"cannot write: No space left on device.*free some space"):
            ordsmed.index(*words)
    assert len(ordsmed.index(*words)) > 80


def test_a_model_of_pairs_reranks_and_makes_no_index(place, tmp_path):
    data = task_files(tmp_path)
    models = task_models(data)
    with pytest.raises(RecipeError, match=r"scores two texts together.*search --rerank"):
        ordsmed.index(models["fits"], place / "texts.jsonl", tmp_path / "index")
    for name in ("tag", "number"):
        with pytest.raises(RecipeError, match="does not score pairs of texts"):
            ordsmed.search(place / "made", "the old newt", rerank=models[name])
    plain = ordsmed.search(place / "made", "the old newt", 6)
    hits = ordsmed.search(place / "made", "the old newt", 3, rerank=models["fits"], top=6)
    texts = [read_as(hit.passage.title, hit.passage.text) for hit in plain]
    classified = ordsmed.open(models["fits"]).classify(["the old newt"] * 6, texts)
    scores = sorted(((result.number, hit.number) for result, hit in zip(classified, plain, strict=True)), reverse=True)
    assert [(pytest.approx(hit.score, abs=1e-6), hit.number) for hit in hits] == scores[:3]
    asked, index = list[int](), ordsmed.open_index(place / "made")

    def rescore(questions, texts):
        asked.append(len(texts))
        return [0.0] * len(texts)

    index.search("the old newt", 3, rerank=rescore)
    index.search_all(["the old newt"], 3, rerank=rescore)
    assert asked == [min(open_index.TOP, len(index))] * 2
    behind = ordsmed.search(place / "made", "the old newt", 6, rerank=models["fits"], top=2)
    assert behind[2:] == plain[2:]
    assert {hit.number for hit in behind[:2]} == {hit.number for hit in plain[:2]}


def test_a_model_that_learned_vectors_of_texts_makes_them_as_it_learned(place, tmp_path):
    task = pairs.TextPairs(query="the ", passage="a ", length=20)
    model, cutter = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=32), open_model(place / "bert").tokenizer
    objective = fresh(task, model, cutter, 3)
    write_model(tmp_path / "model", own_tensors(objective), Networks(model=model, task=task), cutter)
    index = ordsmed.index(tmp_path / "model", place / "texts.jsonl", tmp_path / "index", kind="dense", length=18)
    trained = open_model(tmp_path / "model")
    texts = [read_as(p.title, p.text) for p in map(index.passages.__getitem__, range(len(index)))]
    rows = [
        embedded(trained, some, Form(of="sentences", layers="top", prompt=prompt))
        for some, prompt in ((texts, "passage"), (["the newt"], "query"))
    ]
    passages, question = (text_encoder.units(np.stack([row.vectors for row in of_some])) for of_some in rows)
    assert np.abs(index.vectors - passages).max() < 1e-3
    scores = passages @ question[0]
    assert [hit.score for hit in index.search("the newt", 4)] == pytest.approx(sorted(scores)[:-5:-1], abs=1e-3)
    with pytest.raises(RecipeError, match="--length: found 20; wanted at most 18"):
        ordsmed.index(tmp_path / "model", place / "texts.jsonl", tmp_path / "long", length=20)
    with pytest.raises(RecipeError, match="was not made with"):
        OpenIndex(index.folder, replace(index.recipe, pool="first"), index.facts, str(tmp_path / "model")).encoder  # noqa: B018


@pytest.fixture(scope="module")
def tokens(place, tmp_path_factory):
    """A model that gives each token a vector, and an index by it."""
    folder = tmp_path_factory.mktemp("tokens")
    cutter = open_model(place / "bert").tokenizer
    task = pairs.TextPairs(head="multi-vector", token_width=8, query="the ", expand=9, length=20)
    model = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=32)
    objective = fresh(task, model, cutter, 3)
    write_model(folder / "model", own_tensors(objective), Networks(model=model, task=task), cutter)
    ordsmed.index(folder / "model", place / "texts.jsonl", folder / "index", length=18, batch=5, weight=0.5)
    return folder


def test_an_index_of_token_vectors_is_searched_by_maxsim(tokens, monkeypatch):
    index, model = ordsmed.open_index(tokens / "index"), ordsmed.open(tokens / "model", device="cpu")
    texts = [read_as(p.title, p.text) for p in map(index.passages.__getitem__, range(len(index)))]
    rows = [found.vectors for found in model.embed(texts, of="tokens", prompt="passage")]
    assert index.vectors.dtype == np.float16
    assert np.abs(index.vectors - np.concatenate(rows)).max() < 1e-3
    assert [*np.diff(index.tokens.starts)] == [len(of_text) for of_text in rows]
    question = model.embed("the newt", of="tokens", prompt="query")
    assert (len(question.vectors), question.words[0], question.words[-1]) == (9, "[CLS]", "[MASK]")
    scores = np.array([(question.vectors @ of_text.T).max(1).sum() for of_text in rows])
    hits = index.search("the newt", 5, kind="dense")
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores)[:-6:-1], abs=0.02)
    assert [scores[hit.number] for hit in hits] == pytest.approx([hit.score for hit in hits], abs=0.02)
    every = [[hit.number for hit in index.search("the newt", 5, kind=kind)] for kind in ("both", "words", "dense")]
    assert every[0] not in every[1:]
    monkeypatch.setattr(open_index, "MEMORY", 1_000)
    again = index.search("the newt", 5, kind="dense")
    assert [hit.number for hit in again] == [hit.number for hit in hits]
    assert [hit.score for hit in again] == pytest.approx([hit.score for hit in hits], abs=1e-4)


def test_vectors_of_tokens_are_searched_exactly(tokens, place, tmp_path):
    with pytest.raises(RecipeError, match="--nearest: found faiss for vectors of tokens"):
        ordsmed.index(tokens / "model", place / "texts.jsonl", tmp_path / "made", nearest="faiss")


def test_an_index_of_token_vectors_goes_on_after_a_kill(tokens, place, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "EVERY", 0.0)
    monkeypatch.setattr(token_encoder.TokenEncoder.token_rows, "__defaults__", ("passage", 16))
    words, read, left = (tokens / "model", place / "texts.jsonl"), token_encoder.TokenEncoder._read, [3]

    def until(self, features):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return read(self, features)

    whole = ordsmed.index(*words, tmp_path / "whole", length=18)
    monkeypatch.setattr(token_encoder.TokenEncoder, "_read", until)
    with pytest.raises(Killed):
        ordsmed.index(*words, tmp_path / "index", length=18)
    for name in ("vectors.npy", "tokens.npy"):
        with (tmp_path / "index" / name).open("ab") as file:  # what was written and not noted
            file.write(b"torn")
    left[0] = 0
    ordsmed.index(*words, tmp_path / "index", length=18)
    assert -left[0] == -(-len(whole) // 16) - 2
    assert files_of(tmp_path / "index") == files_of(tmp_path / "whole")
    assert np.array_equal(whole.tokens.starts, ordsmed.open_index(tokens / "index").tokens.starts)  # of one block


def test_what_an_index_of_token_vectors_cannot_be(tokens, place, tmp_path):
    with pytest.raises(RecipeError, match=r"pool: found mean, but .* makes a vector per token, compared by MaxSim"):
        ordsmed.index(tokens / "model", place / "texts.jsonl", tmp_path / "index", pool="mean")
    with pytest.raises(RecipeError, match="was not made with"):
        ordsmed.open_index(tokens / "index", place / "bert").search("the newt")
    with pytest.raises(RecipeError, match=r"--of: found tokens, but .*bert learned no vectors of tokens"):
        ordsmed.open(place / "bert", device="cpu").embed("a", of="tokens")
    with pytest.raises(RecipeError, match=r"--of tokens: found with layers, .* wanted only --prompt"):
        ordsmed.open(tokens / "model", device="cpu").embed("a", of="tokens", layers="all")
    shutil.copytree(tokens / "index", tmp_path / "cut")
    with (tmp_path / "cut/tokens.npy").open("r+b") as file:
        np.lib.format.write_array(file, np.load(tokens / "index/tokens.npy") + 1)
    Run(tmp_path / "cut").set(checksums=None)
    with pytest.raises(DataError, match=r"cut/vectors: \S+ passages"):
        ordsmed.open_index(tmp_path / "cut")


def test_the_commands(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(place)
    cli.main(["index", "bert", "texts.jsonl", str(tmp_path / "index"), "--length", "24", "--weight", "0.5"])
    said = capsys.readouterr().out
    assert f"{tmp_path}/index: " in said
    assert f"next:\n    ordsmed search {tmp_path}/index" in said
    cli.main(["search", str(tmp_path / "index"), "mat 7", "-k", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mat 7"
    assert [line.split()[0] for line in lines[1:]] == ["1", "2"]
    assert "Mat 7 " in lines[1]
    (tmp_path / "questions.txt").write_text("mat 7\nthe newt\n")
    cli.main(["search", str(tmp_path / "index"), "--file", str(tmp_path / "questions.txt"), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["question"] for row in rows] == ["mat 7", "the newt"]
    hit = ordsmed.search(tmp_path / "index", ["mat 7", "the newt"], 5)[0][0]  # together, as a batch rounds
    assert rows[0]["hits"][0] == {
        "rank": 1,
        "score": hit.score,
        "dense": hit.dense,
        "words": hit.words,
        "number": hit.number,
        "document": 7,
        "id": "d7",
        "title": "Mat 7",
        "text": hit.passage.text,
        "end": hit.passage.end,
        "start": hit.passage.start,
    }
    cli.main(["search", str(tmp_path / "index"), "the", "-k", "5000"])
    assert capsys.readouterr().out.rstrip().endswith("passages")
    for words, problem in ((["--file", "texts.jsonl"], "questions or --file"), ([], "questions or --file")):
        with pytest.raises(SystemExit):
            cli.main(["search", str(tmp_path / "index"), *(["x"] if words else []), *words])
        assert problem in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["index", "texts.jsonl", str(tmp_path / "words"), "--kind", "both"])
    assert "found both with CORPUS OUT only" in capsys.readouterr().err
