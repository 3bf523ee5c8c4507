"""How an index chooses its search: vectors and rerankers count where pseudo-questions are answered better with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ordsmed
from kit.language_models import hub_folder
from kit.task_files import task_files
from kit.task_models import task_models
from ordsmed import cli
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.text.bm25 import Bm25
from ordsmed.use.index import choice
from ordsmed.use.index.choice import PseudoQuestions, SearchChoice, SearchTrial, cautious, helps
from ordsmed.use.index.passages import read_as
from ordsmed.use.text_encoder import TextEncoder

WORDS = [f"{first}{second}" for first in ("ba", "do", "ke", "mi", "su", "ra", "lo") for second in ("n", "t", "rk", "l")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked model that learned nothing, and an index by it of 200 documents."""
    folder, draw = tmp_path_factory.mktemp("choice"), np.random.default_rng(3)
    hub_folder("bert", folder / "bert")
    with (folder / "texts.jsonl").open("w") as file:
        for number in range(200):
            topic = draw.choice(WORDS, 9)
            sentences = [" ".join(draw.choice(topic, 7)).capitalize() + "." for _ in range(4)]
            file.write(json.dumps({"_id": f"d{number}", "text": " ".join(sentences)}) + "\n")
    ordsmed.index(folder / "bert", folder / "texts.jsonl", folder / "made", length=30)
    return folder


def ranks(*values: float) -> np.ndarray:
    return np.array(values * 20)


def trial(dense: list[int], words: list[int], questions: int = 100) -> SearchTrial:
    """The right passage of each question is found at one of these ranks by vectors, and by words, in turn."""

    def ranking(question: int, places: list[int]) -> tuple[np.ndarray, np.ndarray]:
        place = places[question % len(places)]
        numbers = np.delete(np.arange(1_000, 1_020), place)
        return np.insert(numbers, place, question), np.linspace(1, 0.1, 20)

    every = range(questions)
    return SearchTrial([ranking(n, dense) for n in every], [ranking(n, words) for n in every], every)


def test_vectors_that_do_not_help_are_left_out() -> None:
    chosen = trial([9, 15, 19], [0, 2, 5]).choose()
    assert chosen.weight == 0
    assert chosen.scores["both"] == chosen.scores["words"] > chosen.scores["vectors"]
    assert "by words only, because vectors do not help" in chosen.lines()[0]
    assert SearchTrial([], [], []).choose() == SearchChoice()
    assert "too few passages" in SearchChoice().lines()[0]
    assert trial([9, 15, 19], [0, 2, 5]).choose(0.4).weight == 0.4


def test_vectors_that_help_count() -> None:
    chosen = trial([0], [3, 8, 12]).choose()
    assert chosen.weight > 0.4
    assert chosen.scores["both"] > chosen.scores["words"]
    assert f"by words and vectors, with weight {chosen.weight:g} for vectors" in chosen.lines()[0]


def test_a_way_is_taken_that_is_as_good_as_the_best_and_careful() -> None:
    assert cautious({0: ranks(0.5, 1), 1: ranks(1, 0.5)}) == 0
    assert cautious({0: ranks(0.1, 0.2), 1: ranks(1, 0.5), 2: ranks(1, 0.5)}) == 1
    assert helps(ranks(1, 0.5), ranks(0.3, 0.5))
    assert not helps(ranks(1, 0.1), ranks(0.1, 1))
    assert not helps(ranks(0.3, 0.5), ranks(1, 0.5))


def test_what_helps_by_chance_on_the_first_half_is_not_taken() -> None:
    """The even questions are answered better by vectors, the odd ones by words."""
    assert trial([0, 9], [9, 0]).choose().weight == 0


def test_a_reranker_is_used_where_it_helps_and_left_out_where_it_harms() -> None:
    made, questions = trial([19], [0, 3, 8]), [str(n) for n in range(100)]
    chosen = made.choose()

    def rescore(sign: int) -> choice.Rescoring:
        return lambda asked, texts: [float(sign * (a == b)) for a, b in zip(asked, texts, strict=True)]

    better = made.rerank(chosen, questions, str, rescore(1))
    assert (better.top, better.scores["reranked"]) == (10, 100.0)
    assert "orders the first 10, with weight" in better.lines()[1]
    worse = made.rerank(chosen, questions, str, rescore(-1))
    assert (worse.top, worse.rerank_weight) == (0, 0)
    assert worse.scores["reranked"] <= worse.scores["before reranking"]
    assert "reranker: not used" in worse.lines()[1]


@pytest.mark.parametrize(("questions", "measured"), [(39, 0), (40, 40), (100, 100)])
def test_fewer_questions_than_two_halves_need_decide_nothing(questions: int, measured: int) -> None:
    made, asked = trial([0], [3], questions), list[str]()

    def rescore(texts: list[str], others: list[str]) -> list[float]:
        asked.extend(texts)
        return [0.0] * len(texts)

    chosen = made.rerank(made.choose(), [str(n) for n in range(questions)], str, rescore)
    assert (chosen.questions, len(asked)) == (measured, measured * choice.TOPS[-1])
    assert (made.choose(0.3).weight, made.choose(0.3).by_hand, made.choose(0.3).questions) == (0.3, True, measured)


def test_one_kind_of_ranking_alone_is_its_own_choice() -> None:
    made = trial([3], [1])
    vectors, words = SearchTrial(made.dense, [], made.wanted), SearchTrial([], made.words, made.wanted)
    assert vectors.choose() == SearchChoice(1.0, questions=100, scores={"vectors": 25.0})
    assert words.choose() == SearchChoice(0.0, questions=100, scores={"words": 50.0})
    assert words.choose().lines() == ["search: MRR@10 on 100 pseudo-questions: words 50.0"]
    assert made.by_weight(1.0).tolist() == vectors.by_weight(1.0).tolist() == [0.25] * 100


def test_passages_of_a_document_count_as_one_and_the_eleventh_document_not_at_all() -> None:
    documents = np.array([5, 5, 6, 7, *range(10, 20)])
    made = SearchTrial([], [], [7, 19, 5], documents)
    order = np.arange(len(documents))
    assert [made.reciprocal(n, order) for n in range(3)] == [1 / 3, 0.0, 1.0]
    assert made.reciprocal(1, order[4:]) == 0.1


def test_scores_of_a_reranker_are_mixed_as_shares_of_their_range() -> None:
    old, new = np.array([8.0, 4.0, 6.0]), np.array([-1.0, 1.0, -1.0])
    for weight in (0.0, 0.25, 1.0):
        wanted = [(1 - weight) * a + weight * b for a, b in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.0))]
        assert choice.mixed_scores(old, new, weight).tolist() == pytest.approx(wanted)
    assert choice.mixed_scores(old[:1], new[:1], 0.5).tolist() == [0.0]
    assert choice.mixed_scores(old[:0], new[:0], 0.5).tolist() == []
    assert choice.reordered(np.array([7, 8, 9]), old, new, 2, 1.0).tolist() == [8, 7, 9]
    assert choice.reordered(np.array([7, 8, 9]), old, new, 3, 0.25).tolist() == [7, 9, 8]


def test_vectors_of_tokens_of_some_texts_stand_behind_those_of_others() -> None:
    def rows(first: int, *sizes: int) -> TokenRows:
        starts = np.cumsum([0, *sizes])
        return TokenRows(first + np.arange(starts[-1], dtype=np.float32)[:, None], starts)

    joined = choice._joined_rows(rows(0, 2, 1), rows(10, 1, 3, 2), np.array([2, 0]))
    assert joined.vectors[:, 0].tolist() == [0, 1, 2, 14, 15, 10]
    assert joined.starts.tolist() == [0, 2, 3, 5, 6]


def test_pseudo_questions_are_not_in_their_passages(place: Path) -> None:
    index = ordsmed.open_index(place / "made")
    made = PseudoQuestions.of(index.passages, True)
    again = PseudoQuestions.of(index.passages, True)
    assert (made.questions, made.texts) == (again.questions, again.texts)
    count = len(made.questions)
    assert 100 <= count <= choice.QUESTIONS
    left = [question in text for question, text in zip(made.questions, made.texts, strict=False)]
    assert sum(left) < 0.25 * count  # a sentence of ten stays
    assert made.texts[count:] == [read_as("", index.passages[int(number)].text) for number in made.rest]


def test_an_untrained_model_is_searched_by_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = ordsmed.open_index(place / "made")
    assert index.weight == 0
    assert index.facts["choice"]["words"] > index.facts["choice"]["vectors"] + 20
    assert index.notes("", "run") == [
        f"run: not known to help in this index; `ordsmed index {index.folder} --rerank run` measures that"
    ]
    assert index.notes("words", "") == []
    texts = [read_as("", index.passages[n].text) for n in range(len(index))]
    numbers, scores = Bm25.of(texts).search("ban dot kerk", 5)
    hits = index.search("ban dot kerk", 5)
    assert [(hit.number, hit.score) for hit in hits] == list(zip(numbers, scores.tolist(), strict=True))
    assert index.search("ban", 5, kind="dense")[0].dense is not None
    cli.main(["show", str(place / "made")])
    assert f"choice: questions {index.facts['choice']['questions']}, words" in capsys.readouterr().out
    cli.main(["search", str(place / "made"), "ban"])
    assert "never measured" not in capsys.readouterr().err


def test_a_former_index_says_that_nothing_was_measured(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former = ordsmed.index(place / "bert", place / "texts.jsonl", tmp_path / "former", length=30, weight=0.3)
    assert "choice" not in former.facts
    Run(former.folder).set(weight=None)
    cli.main(["search", str(former.folder), "ban"])
    assert f"`ordsmed index {former.folder} --choose` chooses their weight" in capsys.readouterr().err
    cli.main(["index", str(former.folder), "--choose"])
    assert "search: by words only, because vectors do not help; MRR@10 on" in capsys.readouterr().err
    assert ordsmed.open_index(former.folder).facts["choice"] == ordsmed.open_index(place / "made").facts["choice"]
    with pytest.raises(SystemExit):
        cli.main(["index", str(former.folder), "--choose", "--weight", "0.3"])
    with pytest.raises(SystemExit):
        cli.main(["index", str(former.folder)])
    assert "--add, --delete, --choose" in capsys.readouterr().err


def test_an_index_keeps_a_reranker_that_helps(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = task_models(task_files(tmp_path))
    monkeypatch.setattr(choice, "RERANKED", 2 * choice.FEWEST)
    index = ordsmed.index(place / "bert", place / "texts.jsonl", tmp_path / "made", length=30, rerank=models["fits"])
    assert "reranker" not in index.facts
    assert "reranker: not used; with it" in capsys.readouterr().err
    plain = index.search("ban dot", 4)
    measured = {"before reranking": 50.04, "reranked": 61.26}
    monkeypatch.setattr(SearchTrial, "rerank", lambda *_: SearchChoice(0.0, 3, 0.5, 100, scores=measured))
    cli.main(["index", str(tmp_path / "made"), "--rerank", str(models["fits"])])
    index = ordsmed.open_index(tmp_path / "made")
    assert (index.facts["reranker"]["top"], index.facts["reranker"]["weight"]) == (3, 0.5)
    assert [index.facts["reranker"][name] for name in measured] == [50.0, 61.3]
    reranked = index.search("ban dot", 4)
    assert {hit.number for hit in reranked[:3]} == {hit.number for hit in plain[:3]}
    assert max(hit.score for hit in reranked[:3]) <= 1  # mixed
    assert reranked[3] == plain[3]
    assert index.search("ban dot", 4, rerank=False) == plain
    Run(index.folder).set(reranker={**index.facts["reranker"], "key": "0" * 16})
    with pytest.raises(RecipeError, match=r"has changed since it was measured.*search with --no-rerank"):
        ordsmed.search(index.folder, "ban dot")
    assert ordsmed.search(index.folder, "ban dot", 4, rerank=False) == plain


def test_indexes_by_the_mean_over_words_are_searched_as_they_were_made(place: Path, tmp_path: Path) -> None:
    words = ordsmed.index(place / "bert", place / "texts.jsonl", tmp_path / "words", pool="words", weight=1.0)
    path = tmp_path / "words/recipe.toml"
    path.write_text(path.read_text().replace('pool = "words"', 'pool = ""'))  # as it was written before
    Run(tmp_path / "words").set(checksums=None)
    former = ordsmed.open_index(tmp_path / "words")
    assert isinstance(former.encoder, TextEncoder)
    assert former.encoder.pool == "words"
    assert former.search("ban dot", 3) == words.search("ban dot", 3)
    assert former.search("ban dot", 3) != ordsmed.open_index(place / "made").search("ban dot", 3, kind="dense")


def test_of_few_passages_words_come_first(place: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("The red newt.\n\nA cat.\n\nAn old newt swam.\n")
    index = ordsmed.index(place / "bert", tmp_path / "few.txt", tmp_path / "few")
    words = index.search("old newt", 3, kind="words")
    hits = index.search("old newt", 3)
    assert [hit.number for hit in hits[:2]] == [hit.number for hit in words]
    assert (len(words), hits[2].words) == (2, None)


def test_a_weight_that_was_given_stays_beside_a_reranker(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = task_models(task_files(tmp_path))
    index = ordsmed.index(place / "bert", place / "texts.jsonl", tmp_path / "made", length=30, weight=0.7)
    seen = list[SearchChoice]()
    monkeypatch.setattr(SearchTrial, "rerank", lambda self, choice, *_: seen.append(choice) or choice)
    cli.main(["index", str(index.folder), "--rerank", str(models["fits"])])
    assert (ordsmed.open_index(index.folder).weight, seen[0].weight) == (0.7, 0.7)
    cli.main(["index", str(index.folder), "--rerank", str(models["fits"]), "--choose"])
    assert ordsmed.open_index(index.folder).weight == 0


@pytest.mark.parametrize("text", ["\0", "\u200b", " \0 "])
def test_a_question_without_a_token_is_refused(text: str, place: Path) -> None:
    with pytest.raises(RecipeError, match="question: has no text that the model can read"):
        ordsmed.search(place / "made", text, kind="dense")
