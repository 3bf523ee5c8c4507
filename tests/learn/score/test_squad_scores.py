"""The official scores of SQuAD: worked out by hand, and those of the scripts, if they are next to the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordsmed.base.errors import DataError
from ordsmed.learn.score import squad as official
from ordsmed.text.labelled import questions
from ordsmed.text.labelled.questions import Answer, Question


def asked(name: str, *golds: str, question: str = "Who?") -> Question:
    return Question(name, question, " ".join(golds), tuple(Answer(gold, -1) for gold in golds), not golds)


CASES = {  # golds, predicted: exact, F1
    "equal": (["Oslo"], "Oslo", 1, 1),
    "case and signs": (["Oslo"], '"OSLO!"', 1, 1),
    "articles": (["the end of a day"], "The End of An day", 1, 1),
    "an article inside a word": (["then"], "n", 0, 0),
    "signs join words": (["well-known"], "well known", 0, 0),
    "a dash beyond ASCII stays": (["1914–1918"], "1914-1918", 0, 0),
    "an article before a dash beyond ASCII": (["the–end"], "–end", 1, 1),
    "white space": (["New  York"], " New\tYork\n", 1, 1),
    "the best of several": (["one", "one two"], "one two", 1, 1),
    "the best of several, in part": (["one two", "three four five"], "four five six seven", 0, 4 / 7),  # 2 of 4, 2 of 3
    "words as often as both have them": (["x x y"], "x x x z", 0, 4 / 7),  # 2 of 4, 2 of 3
    "nothing in common": (["Oslo"], "Bergen", 0, 0),
    "empty": (["Oslo"], "", 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_one_answer(case: str) -> None:
    golds, guess, exact, f1 = CASES[case]
    both, guesses = [asked("a", *golds), asked("b", "right")], {"a": guess, "b": "right"}
    wanted = [(exact + 1) * 50, pytest.approx((f1 + 1) * 50)]
    assert list(official.score_v1(both, guesses).values()) == wanted
    found = official.score_v2(both, guesses)
    assert [found["exact"], found["f1"]] == wanted


def test_of_nothing_but_articles_the_versions_differ() -> None:
    given = [asked("a", "The")], {"a": "an"}
    assert official.score_v1(*given) == {"exact_match": 100, "f1": 0}
    whole = {"exact": 100, "f1": 100, "total": 1}
    assert official.score_v2(*given) == whole | {f"HasAns_{name}": number for name, number in whole.items()}


def test_a_missing_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    given = [asked(name, "yes") for name in "abcd"], {"a": "yes", "c": "yes", "d": "no", "z": "yes"}
    assert official.score_v1(*given) == {"exact_match": 50, "f1": 50}
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "no prediction for 1 of 4 questions, counted as wrong: b"
    assert told[1] == "1 prediction for questions outside the data, left out: z"
    found = official.score_v2(*given)
    assert found["exact"] == found["HasAns_f1"] == pytest.approx(200 / 3)
    assert found["total"] == found["HasAns_total"] == 3
    assert "left out: b" in capsys.readouterr().err


@pytest.mark.parametrize("score", [official.score_v1, official.score_v2])
def test_predictions_of_other_data_are_refused(score: object) -> None:
    with pytest.raises(DataError, match=r"none for any of 1 question \(a\).*those found are for z"):
        score([asked("a", "yes")], {"z": "yes"})  # type: ignore[operator]


def test_the_first_version_wants_answers() -> None:
    with pytest.raises(DataError, match=r"1 question without an answer \(b\)"):
        official.score_v1([asked("a", "yes"), asked("b")], {"a": "yes"})


MIXED = [asked("has 1", "one"), asked("has 2", "one two"), asked("no 1"), asked("no 2"), asked("no 3")]
GUESSES = {"has 1": "one", "has 2": "one", "no 1": "x", "no 2": "y", "no 3": ""}  # F1 of "has 2": 2/3
ODDS = {"has 1": -2.0, "no 1": -1.0, "has 2": -1.0, "no 2": 5.0, "no 3": 9.0}


def test_the_second_version_by_hand() -> None:
    found = official.score_v2(MIXED, GUESSES)
    wanted = {
        **{"exact": 40, "f1": 100 * (1 + 2 / 3 + 1) / 5, "total": 5},
        **{"HasAns_exact": 50, "HasAns_f1": 100 * (5 / 3) / 2, "HasAns_total": 2},
        **{"NoAns_exact": 100 / 3, "NoAns_f1": 100 / 3, "NoAns_total": 3},
    }
    assert found == pytest.approx(wanted)
    assert list(found) == list(wanted)


@pytest.mark.parametrize(("threshold", "exact", "answered", "unanswered"), [(-3, 60, 0, 100), (-1, 60, 50, 200 / 3)])
def test_null_odds_above_the_threshold_are_no_answer(
    threshold: float, exact: float, answered: float, unanswered: float
) -> None:
    found = official.score_v2(MIXED, GUESSES, ODDS, threshold)
    parts = [found[name] for name in ("exact", "HasAns_exact", "NoAns_exact")]
    assert parts == pytest.approx([exact, answered, unanswered])
    assert found["best_exact"] == 80  # the sweep is over what was predicted


def test_the_sweep_goes_one_question_at_a_time() -> None:
    found = official.score_v2(MIXED, GUESSES, ODDS)
    best = {name: number for name, number in found.items() if name.startswith("best")}
    assert best == {"best_exact": 80, "best_exact_thresh": -2, "best_f1": 80, "best_f1_thresh": -2}
    other = dict(sorted(ODDS.items()))  # of the equal odds "has 2" comes first now: 3 + 1 + 2/3 of 5
    found = official.score_v2(MIXED, GUESSES, other)
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(100 * (14 / 3) / 5), -1)


def test_the_sweep_begins_with_no_answer_at_all() -> None:
    wrong = dict.fromkeys(GUESSES, "wrong")
    found = official.score_v2(MIXED, wrong, ODDS)
    assert (found["best_f1"], found["best_f1_thresh"]) == (60, 0)
    articles = {"has": "yes", "no": "the"}  # "the" is right as it is scored, and wrong in the sweep
    given = [asked("has", "yes"), asked("no")], articles, {"no": -2.0, "has": -1.0}
    found = official.score_v2(*given)
    assert (found["exact"], found["best_exact"], found["best_exact_thresh"]) == (100, 50, 0)


def test_null_odds_are_wanted_for_every_prediction() -> None:
    with pytest.raises(DataError, match=r"none for 4 predictions \(has 2, no 1, no 2, ...\)"):
        official.score_v2(MIXED, GUESSES, {"has 1": 0.0})


KINDS = {
    "50%": "number",
    "$1500": "number",
    "1500 people": "number",
    "27.7 million tons": "number",
    "May 17, 1814": "date",
    "17. mai": "date",
    "the 1990s": "date",
    "2016-02-07": "date",
    "the University of Oslo": "name",
    "Ole Bull": "name",
    "use in the Storting": "other phrase",
    "blå": "other phrase",
    "...": "other phrase",
}
ASKED = {
    "Who was it?": "who",
    "In what year did it end, and how?": "what",
    "How many came?": "how many",
    "How did they come?": "how",
    "Hvor mange kom?": "how many",
    "Hvorfor kom de?": "why",
    "Når kom de?": "when",
    "Somewhat late?": "other",
}


def test_details() -> None:
    given = [asked(answer, answer, question="Who?") for answer in KINDS]
    given += [asked(question, "Oslo", question=question) for question in ASKED]
    given += [asked("long", question="why " * 21), asked("none", question="x " * 20)]
    guesses = {
        each.id: each.answers[0].text if each.answers else "" for each in given if each.id not in ("50%", "none")
    }
    found = official.details(given, guesses | {"long": "because"})
    assert {kind: rows["total"] for kind, rows in found["kind of answer"].items()} == {
        "number": 4,
        "date": 4,
        "name": 2 + len(ASKED),
        "other phrase": 3,
        "no answer": 2,
    }
    totals = {"how many": 2, "who": 14, "what": 1, "when": 1, "why": 2, "how": 1, "other": 2}
    assert {kind: rows["total"] for kind, rows in found["question word"].items()} == totals
    lengths = {"1 to 5 words": 20, "6 to 10 words": 1, "16 to 20 words": 1, "more than 20 words": 1}
    assert {kind: rows["total"] for kind, rows in found["question length"].items()} == lengths
    assert found["kind of answer"]["number"] == {"exact": 75, "f1": 75, "total": 4}  # one of them was not predicted
    assert found["answer"]["no answer"] == {"exact": 0, "f1": 0, "total": 2}


@pytest.mark.parametrize("text", KINDS)
def test_kinds_of_answers(text: str) -> None:
    [(kind, _)] = official.details([asked("a", text)], {})["kind of answer"].items()
    assert kind == KINDS[text]


@pytest.mark.parametrize("question", ASKED)
def test_question_words(question: str) -> None:
    [(word, _)] = official.details([asked("a", "x", question=question)], {})["question word"].items()
    assert word == ASKED[question]


@pytest.mark.parametrize(
    ("count", "length"),
    [
        (0, "1 to 5 words"),
        (1, "1 to 5 words"),
        (5, "1 to 5 words"),
        (6, "6 to 10 words"),
        (10, "6 to 10 words"),
        (11, "11 to 15 words"),
        (15, "11 to 15 words"),
        (16, "16 to 20 words"),
        (20, "16 to 20 words"),
        (21, "more than 20 words"),
        (99, "more than 20 words"),
    ],
)
def test_lengths_of_questions(count: int, length: str) -> None:
    assert list(official.details([asked("a", "x", question="w " * count)], {})["question length"]) == [length]


MORE_KINDS = {
    "mai 17": "date",
    "May": "date",
    "may be so": "other phrase",
    "in 1814": "date",
    "$1814": "number",
    "12/24": "number",
    "1.5.1900": "date",
    "10 of them": "number",
    "Anna of the hills": "other phrase",
    "Per of Os": "name",
    "the": "other phrase",
    "A Big House": "name",
    "20th": "number",
    "the 20th": "other phrase",
}


def test_more_kinds_of_answers() -> None:
    """By the first of several; what a date is not is a number, a name or else."""
    found = {
        text: next(iter(official.details([asked("a", text, "1814")], {})["kind of answer"])) for text in MORE_KINDS
    }
    assert found == MORE_KINDS


def test_predictions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    path.write_text('{\n  "1": "Ås",\n  "2": ""\n}\n')
    assert official.read_predictions(path) == {"1": "Ås", "2": ""}
    path.write_text('{"1": -2, "2": 0.5}')
    assert official.read_null_odds(path) == {"1": -2, "2": 0.5}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"1": [{"text": "a", "probability": 0.5}]}', "`1` is several answers, as in nbest_predictions.json"),
        ('{"1": "a", "2": -1.5}', "`2` is -1.5, as in null_odds.json"),
        ('{"1": null}', "`1` is a JSON NoneType"),
        ('[{"id": "1", "text": "a"}]', "a JSON list"),
        ('{"1": "a"}\n{"2": "b"}', "2 JSON values"),
        ("", "0 JSON values"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, written: str, told: str) -> None:
    path = tmp_path / "nbest.json"
    path.write_text(written)
    with pytest.raises(DataError, match=told) as error:
        official.read_predictions(path)
    assert "predictions.json" in str(error.value)


@pytest.mark.parametrize("written", ['{"1": NaN}', '{"1": true}', '{"1": "a"}'])
def test_null_odds_are_numbers(tmp_path: Path, written: str) -> None:
    (tmp_path / "odds.json").write_text(written)
    with pytest.raises(DataError, match=r"wanted .* as in null_odds.json"):
        official.read_null_odds(tmp_path / "odds.json")


@pytest.mark.parametrize(("version", "score"), [("1.1", official.score_v1), ("2.0", official.score_v2)])
def test_the_scripts_gave_the_same(shared_data: Path, version: str, score: object) -> None:
    folder = shared_data / "squad"
    given, _ = questions.read(str(folder / f"squad-v{version}-dev-part.json"), repair=False)
    stem = f"example-predictions-v{version}-dev-part"
    found = score(given, official.read_predictions(folder / f"{stem}.json"))  # type: ignore[operator]
    wanted = json.loads((folder / f"{stem}.official-scores.json").read_text())
    assert found == wanted  # to the last digit
    assert list(found) == list(wanted)
