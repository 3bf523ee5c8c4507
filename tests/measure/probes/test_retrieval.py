"""Retrieval: sets of BEIR and SQuAD, scores of trec_eval, BM25 and both combined, storing and resuming."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.language_models import LEARNED, hub_folder, tokenizer
from kit.task_models import write_model
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.cli import main
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.embedding.tokens import token_features
from ordsmed.learn.objective import fresh
from ordsmed.learn.score.ranking import MEASURES
from ordsmed.learn.task import packing, reader
from ordsmed.learn.tasks import pairs
from ordsmed.measure.evaluation import vectors as asking
from ordsmed.measure.evaluation.comparison import compare
from ordsmed.measure.evaluation.evaluate import ComputeOptions, evaluate
from ordsmed.measure.evaluation.results import Result
from ordsmed.measure.evaluation.score_cache import ScoreCache
from ordsmed.measure.probes.retrieval import Retrieval
from ordsmed.measure.vectors.sets import read_set
from ordsmed.nn.model import own_tensors
from ordsmed.text.bm25 import Bm25
from ordsmed.use.embed import Form, embedded
from ordsmed.use.index.nearest_tokens import nearest_tokens
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder
from ordsmed.weights.foreign import Networks
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import Trained, open_model

CPU = ComputeOptions(device="cpu", threads=1)
NOUNS = ["newt", "cat", "dog"]
TEXTS = [
    f"the {a} {doing} {where} the {b}"
    for a in NOUNS
    for b in ("mat", "pond", "old red mat")
    for doing in ("sat", "ran", "swam")
    for where in ("on", "under")
]
PASSAGES = {f"p{n}": text for n, text in enumerate([*TEXTS, *TEXTS[:4]])}  # some twice: equal scores
QUESTIONS = {
    f"q{n}": f"{noun} {rest}"
    for n, (noun, rest) in enumerate((noun, rest) for noun in NOUNS for rest in ("in the pond", "on a mat", "it ran"))
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hub_folder("bert", tmp_path_factory.mktemp("models") / "bert")


def judgments() -> dict[str, dict[str, int]]:
    """Grades from -1 to 2; one question has none above 0, one names a passage that is not there."""
    random = np.random.default_rng(1)
    grades = {q: {p: int(random.integers(-1, 3)) for p in random.permutation([*PASSAGES])[:6]} for q in QUESTIONS}
    return grades | {"q1": {"p1": 0, "p2": 0}, "q2": {"p3": 1, "gone": 1}}


def beir(folder: Path, grades: dict[str, dict[str, int]], passages: dict[str, str] = PASSAGES) -> Path:
    """A folder in BEIR's format; the first word of a passage is its title, and `q99` has no judgment."""
    (folder / "qrels").mkdir(parents=True)
    parts = {name: text.partition(" ")[::2] for name, text in passages.items()}
    rows = [{"_id": name, "title": title, "text": text, "metadata": {}} for name, (title, text) in parts.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": name, "text": text} for name, text in {**QUESTIONS, "q99": "it"}.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    lines = [f"{q}\t{p}\t{grade}\n" for q, judged in grades.items() for p, grade in judged.items()]
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beir(tmp_path_factory.mktemp("sets") / "pond", judgments())


def ask(model: Path, folder: Path, out: Path, **how: Any) -> Result:
    [result] = evaluate([str(model)], [Retrieval(files=(str(folder),), **how)], out=str(out), means=CPU)
    return result


def vectors_of(model: Path, texts: list[str], **form: Any) -> np.ndarray:
    rows = embedded(open_model(Origin.of(str(model)), None), texts, Form(of="sentences", **form))
    return np.stack([row.vectors for row in rows])


def scored(run: dict[str, dict[str, float]], grades: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    peer = pytest.importorskip("pytrec_eval")
    names = dict(zip(MEASURES, ("ndcg_cut_10", "recip_rank", "recall_100", "map"), strict=True))
    found = peer.RelevanceEvaluator(grades, {"ndcg_cut", "recip_rank", "recall", "map"}).evaluate(run)
    rows = {question: {name: 100 * row[its] for name, its in names.items()} for question, row in found.items()}
    return {q: row | {"mrr@10": row["mrr@10"] if row["mrr@10"] >= 10 else 0.0} for q, row in rows.items()}


def test_numbers_of_trec_eval(model: Path, folder: Path, tmp_path: Path) -> None:
    """Of the same vectors, question by question, equal scores and all; BM25's too."""
    result = ask(model, folder, tmp_path)
    questions, passages = vectors_of(model, [*QUESTIONS.values()]), vectors_of(model, [*PASSAGES.values()])
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (questions, passages)]
    alike = units[0] @ units[1].T
    run = {q: dict(zip(PASSAGES, map(float, row), strict=True)) for q, row in zip(QUESTIONS, alike, strict=True)}
    wanted = scored(run, judgments())
    got = {example.key: example.values for example in result.probe.compared(result.records)}
    assert got == {question: pytest.approx(row, abs=1e-6) for question, row in wanted.items()}
    for name in MEASURES:
        assert result.finding.facts[name] == pytest.approx(np.mean([row[name] for row in wanted.values()]))
    assert result.finding.facts["questions"] == 9
    ranked = Bm25.of(PASSAGES.values())
    by_words = {q: dict(zip(PASSAGES, map(float, ranked.scores(t)), strict=True)) for q, t in QUESTIONS.items()}
    by_words = {q: {p: score for p, score in row.items() if score > 0} for q, row in by_words.items()}
    means = np.mean([[row[name] for name in MEASURES] for row in scored(by_words, judgments()).values()], 0)
    [(_, head, rows)] = result.finding.tables
    assert [row[0] for row in rows] == ["vectors", "bm25", "vectors less bm25"]
    assert rows[1][1::2] == pytest.approx(means)
    assert rows[2][1::2] == pytest.approx(np.array(rows[0][1::2]) - np.array(rows[1][1::2]))
    assert len(head) == len(rows[0]) == 9


def test_both_together(model: Path, folder: Path, tmp_path: Path) -> None:
    """By reciprocal ranks; the passages that --each shows are those of the ranking that is scored."""
    plain, both = (ask(model, folder, tmp_path / str(hybrid), hybrid=hybrid) for hybrid in (False, True))
    rows = {row[0]: row[1:] for row in both.finding.tables[0][2]}
    assert list(rows) == ["vectors", "bm25", "hybrid", "hybrid less bm25"]
    assert rows["hybrid"][::2] == pytest.approx([both.finding.facts[name] for name in MEASURES])
    assert rows["vectors"][::2] == pytest.approx([plain.finding.facts[name] for name in MEASURES])
    line, other = (result.probe.as_line(result.records[0]) for result in (plain, both))
    assert (line["question"], len(line["first"])) == ("q0", 10)
    assert line["first"] != other["first"]
    first = PASSAGES[other["first"][0]].split()
    assert {"newt", "pond"} <= {*first}


def test_both_by_a_weight(model: Path, folder: Path, tmp_path: Path) -> None:
    """All of it on one side is that side's ranking; in between it is another; what is no weight is refused."""
    found = {weight: ask(model, folder, tmp_path / str(weight), hybrid=weight) for weight in (0.0, 0.5, 1.0)}
    rows = {weight: {row[0]: row[1:] for row in result.finding.tables[0][2]} for weight, result in found.items()}
    at = 2 * MEASURES.index("ndcg@10")
    assert rows[1.0]["hybrid"] == pytest.approx(rows[1.0]["vectors"])
    assert rows[0.0]["hybrid"][at] >= rows[0.0]["bm25"][at]  # vectors find passages without a word of a question
    assert rows[0.5]["hybrid"][at] not in (rows[1.0]["hybrid"][at], rows[0.0]["hybrid"][at])
    assert found[0.5].probe.as_line(found[0.5].records[0])["first"][0] in PASSAGES
    with pytest.raises(ValueError, match=r"hybrid: found 1.5; wanted true, false or a weight from 0 to 1"):
        Retrieval(files=(str(folder),), hybrid=1.5)


def test_pool_and_similarity(model: Path, folder: Path, tmp_path: Path) -> None:
    """The last token's vector by its product: what is nearest is so."""
    result = ask(model, folder, tmp_path, pool="last", similarity="dot")
    question = vectors_of(model, [QUESTIONS["q0"]], pool="last")[0]
    alike = vectors_of(model, [*PASSAGES.values()], pool="last") @ question
    ranked = [alike[[*PASSAGES].index(name)] for name in result.records[0].first]
    assert ranked == pytest.approx(sorted(alike, reverse=True)[:10])
    assert result.way == "last"
    cosines = ask(model, folder, tmp_path, pool="last")
    assert cosines.records[0].first != result.records[0].first


def test_prompts_are_written_before_texts(model: Path, folder: Path, tmp_path: Path) -> None:
    result = ask(model, folder, tmp_path, query="the old ", passage="red ")
    question = vectors_of(model, [f"the old {QUESTIONS['q0']}"])[0]
    passages = vectors_of(model, [f"red {text}" for text in PASSAGES.values()])
    alike = passages @ question / np.linalg.norm(passages, axis=1)
    assert PASSAGES[result.records[0].first[0]] == PASSAGES[[*PASSAGES][int(alike.argmax())]]


def test_a_model_that_was_trained_on_pairs(tmp_path: Path) -> None:
    """Its own prompts, pool and similarity; what is said in their place counts."""
    settings, cutter = LEARNED["bert"][0], tokenizer(tmp_path)
    task = pairs.TextPairs(pool="last", normalize=False, query="the old ", passage="red ")
    trained = Trained(task.build(settings, cutter).eval(), cutter, settings, tmp_path, learned=task)
    encoder, bare = TextEncoder(trained), TextEncoder(trained, prompts={"query": ""})

    def vector(encoder: TextEncoder, text: str, group: str) -> Any:
        return next(encoder.vectors([text], group))[0]

    first = vector(encoder, "cat", "query")
    assert first == pytest.approx(vector(bare, "the old cat", "query"))
    assert vector(encoder, "cat", "passage") == pytest.approx(vector(encoder, "red cat", ""))
    assert vector(encoder, "cat", "") != pytest.approx(first, rel=1e-3)
    assert (encoder.way, encoder.unit, TextEncoder(trained, similarity="cosine").unit) == ("as trained", False, True)
    last = TextEncoder(trained, pool="last")
    assert vector(last, "cat", "query") == pytest.approx(vector(last, "the old cat", ""))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that gives each token a vector."""
    folder = tmp_path_factory.mktemp("tokens")
    model, cutter = LEARNED["bert"][0], tokenizer(folder)
    task = pairs.TextPairs(head="multi-vector", token_width=8, length=20, query="the ", expand=9)
    objective = fresh(task, model, cutter, 3)
    write_model(folder / "model", own_tensors(objective), Networks(model=model, task=task), cutter)
    return folder / "model"


def test_vectors_of_tokens_are_searched_by_maxsim(tokens: Path, folder: Path, tmp_path: Path) -> None:
    """All passages, however few of them fit in the memory, in several blocks of texts that were read."""
    trained = open_model(Origin.of(str(tokens)), None)
    texts = {"query": [*QUESTIONS.values()], "passage": [*PASSAGES.values()]}
    task, encoder, rows = trained.objective, TokenEncoder(trained, batch=5), {}
    for group, of_group in texts.items():
        read, starts = np.concatenate([*encoder.vectors(of_group, group, rows=7)]), encoder.starts(of_group, group)
        rows[group] = [read[a:b] for a, b in pairwise(starts)]
    features, _ = token_features(["cat"], "query", reader(trained.tokenizer, trained.settings), task.tokens)
    batch = packing(trained.tokenizer, trained.settings).batch(features, np.arange(1), np.arange(1))
    with torch.no_grad():
        [alone] = encoder.vectors(["cat"], "query")
        assert alone == pytest.approx(task.token_vectors(batch)[0].numpy(), abs=1e-6)
    assert len(alone) == 9
    alike = [[float((q @ p.T).max(1).sum()) for p in rows["passage"]] for q in rows["query"]]
    run = {q: dict(zip(PASSAGES, row, strict=True)) for q, row in zip(QUESTIONS, np.round(alike, 5), strict=True)}
    result = ask(tokens, folder, tmp_path / "once", memory=64)
    narrow = ask(tokens, folder, tmp_path / "narrow", memory=1, batch=3)
    assert result.finding.facts == pytest.approx(narrow.finding.facts, abs=1e-6)
    first = {row.question: row.first for row in result.records}
    for question, row in run.items():
        best = sorted(row.values(), reverse=True)[:10]
        assert [row[name] for name in first[question]] == pytest.approx(best, abs=1e-4)
    assert result.finding.facts["questions"] == 9
    with pytest.raises(RecipeError, match=r"pool: found mean, but .* makes a vector per token, compared by MaxSim"):
        ask(tokens, folder, tmp_path / "pool", pool="mean")


def test_nearest_texts_of_tokens_are_exact_in_any_memory() -> None:
    """Equal scores, of which there are many here, keep the order of the passages."""
    draw = np.random.default_rng(1)
    texts, questions = (
        TokenRows(draw.choice(np.array([-1, 1], np.float32), (int(sum(sizes)), 4)), np.cumsum([0, *sizes]))
        for sizes in (draw.integers(1, 5, 60), draw.integers(1, 5, 6))
    )
    best = [
        np.argsort(
            [
                -float((questions.vectors[slice(*q)] @ texts.vectors[slice(*t)].T).max(1).sum())
                for t in pairwise(texts.starts)
            ],
            kind="stable",
        )[:7].tolist()
        for q in pairwise(questions.starts)
    ]
    for memory in (1, 3_000, 1 << 24):
        assert [numbers.tolist() for numbers, _ in nearest_tokens(texts, questions, 7, memory)] == best


def test_two_models_by_questions(model: Path, folder: Path, tmp_path: Path) -> None:
    other = hub_folder("modern", tmp_path / "modern")
    probe = Retrieval(files=(str(folder),))
    found = evaluate([str(model), str(other)], [probe], out=str(tmp_path / "out"), means=CPU)
    comparisons = compare(found)
    assert [comparison.score for comparison in comparisons] == [*MEASURES]
    difference = found[1].finding.facts["ndcg@10"] - found[0].finding.facts["ndcg@10"]
    assert comparisons[0].over.mean == pytest.approx(difference)


def test_who_was_killed_goes_on(
    model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the blocks that are kept; a block is read once, and no vectors are left. The result is the same."""
    whole = ask(model, folder, tmp_path / "whole")
    monkeypatch.setattr(asking, "BLOCK", 16)
    add, made = ScoreCache.add, list[int]()

    def until(self: ScoreCache, number: int, records: Any) -> None:
        if number == 3:
            raise KeyboardInterrupt
        made.append(number)
        add(self, number, records)

    monkeypatch.setattr(ScoreCache, "add", until)
    with pytest.raises(KeyboardInterrupt):
        ask(model, folder, tmp_path / "out")
    assert len([*(tmp_path / "out/parts").glob("*.npy")]) == 2
    monkeypatch.setattr(ScoreCache, "add", lambda self, number, rows: (made.append(number), add(self, number, rows)))
    again = ask(model, folder, tmp_path / "out")
    assert made == [*range(6)]
    assert again.finding.facts == whole.finding.facts
    assert "resumes after 60% that are stored" in capsys.readouterr().err
    assert [*(tmp_path / "out/parts").glob("*.npy")] == []
    ask(model, folder, tmp_path / "out")
    assert made == [*range(6)]


def test_squad_is_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All contexts are passages; a question's own answers it; one that has no answer is left out."""
    paragraphs = [
        {
            "context": text,
            "qas": [
                {"id": f"{n}", "question": f"what {n}?", "answers": [{"text": "the", "answer_start": 0}]},
                {"id": f"{n}x", "question": "what?", "answers": [], "is_impossible": True},
            ],
        }
        for n, text in enumerate(TEXTS[:3])
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    found = read_set([str(tmp_path / "dev.json")], "test")
    assert found.questions == {"0": "what 0?", "1": "what 1?", "2": "what 2?"}
    assert [found.passages[name] for question in found.grades.values() for name in question] == TEXTS[:3]
    assert "3 questions left out that no passage answers" in capsys.readouterr().err


def test_what_does_not_fit_together_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = beir(tmp_path / "pond", {**judgments(), "nobody": {"p1": 1}}, {**PASSAGES, "p98": ""})
    with (place / "qrels/test.tsv").open("a") as file:
        file.write("q0\tp0\t2\nq0\tp0\t1\n")
    found = read_set([str(place)], "test")
    assert [*found.passages] == sorted([*PASSAGES, "p98"], reverse=True)
    assert (found.grades["q0"]["p0"], "nobody" in found.questions, "q99" in found.questions) == (1, False, False)
    told = capsys.readouterr().err
    for line in (
        "1 question without a text left out",
        "1 passage in the judgments that the corpus does not have",
        "repeated: the last counts",
        "1 passage without a text",
    ):
        assert line in told


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda place: (place / "corpus.jsonl").unlink(), "has no corpus.jsonl"),
        (lambda place: (place / "qrels/test.tsv").rename(place / "qrels/dev.tsv"), "has no test.tsv.*it has dev"),
        (lambda place: (place / "qrels/test.tsv").write_text("q0\tp0\tx\nq0\tp0\ty\n"), "test.tsv:2: found 'q0"),
        (lambda place: (place / "qrels/test.tsv").write_text("a\tp0\t1\n"), "has no text for 1 question of the"),
        (lambda place: (place / "qrels/test.tsv").write_text("q0\ta\t1\n"), "has no passage of the judgments"),
        (lambda place: (place / "corpus.jsonl").write_text('{"_id": "p3", "text": "a"}\n'), "has one passage"),
        (lambda place: (place / "corpus.jsonl").write_text('{"text": "a"}\n'), "corpus.jsonl:1: has no id"),
        (
            lambda place: (place / "corpus.jsonl").write_text('{"_id": 1, "text": "a"}\n{"_id": 1, "text": "b"}\n'),
            "jsonl:2: another text with the id 1",
        ),
    ],
)
def test_sets_that_are_refused(damage: Any, problem: str, tmp_path: Path) -> None:
    place = beir(tmp_path / "pond", judgments())
    damage(place)
    with pytest.raises(DataError, match=problem):
        read_set([str(place)], "test")


def test_own_ids_and_other_forms_of_judgments(model: Path, tmp_path: Path) -> None:
    """Packed judgments in TREC's format; a passage with the question's id is left out on request."""
    place = beir(tmp_path / "pond", judgments(), {**PASSAGES, "q0": QUESTIONS["q0"]})
    (place / "qrels/test.tsv").write_text("q0 0 p1 1\nq0 0 q0 1\n")
    first, without = (ask(model, place, tmp_path / str(same), same_id=same) for same in (True, False))
    assert first.records[0].first[0] == "q0"
    assert "q0" not in without.records[0].first


def test_at_the_command_line(model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(model), "--probe", "retrieval", str(folder), "hybrid=true", "--out", str(tmp_path)]
    main([*words, "--device", "cpu", "--threads", "1", "--each", str(tmp_path / "each.jsonl")])
    out = capsys.readouterr().out
    assert "| bert  | retrieval (mean) | pond  | ndcg@10" in out
    assert "| hybrid less bm25 |" in out
    rows = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    assert [row["question"] for row in rows] == [*QUESTIONS]
