"""SQuAD's files: every form gives the same questions, answers are at their offsets, and losses are reported."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.text.labelled import questions
from ordsmed.text.labelled.questions import Answer, Question

LAKE = "Lake Nordvann 🏔 is deep. It freezes in May."


def answer(text: str, start: int | None) -> dict[str, Any]:
    return {"text": text, "answer_start": start}


def record(**changes: Any) -> dict[str, Any]:
    """A flat record of one question."""
    return {"id": "q1", "context": LAKE, "question": "When?", "answers": [answer("May", 39)]} | changes


def squad(*qas: dict[str, Any], context: str = LAKE) -> dict[str, Any]:
    return {"version": "2", "data": [{"title": "Lake", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def read(
    tmp_path: Path, *values: Any, repair: bool = True, name: str = "a.json"
) -> tuple[list[Question], dict[str, int]]:
    """What is read of a file of these values, one a line; and what is counted."""
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(value) for value in values))
    found, report = questions.read(str(path), repair=repair)
    return found, report.counts()


ONE, TWO = record(), record(id=2, question="Is it warm?", answers=[], is_impossible=True)
WANTED = [Question("q1", "When?", LAKE, (Answer("May", 39),), False), Question("2", "Is it warm?", LAKE, (), True)]
COLUMNS = {"text": ["May"], "answer_start": [39]}
FORMS = {
    "squad": [squad(ONE, TWO)],
    "squad, a paragraph an article": [{"data": squad(ONE)["data"] + squad(TWO)["data"]}],
    "squad in lines": [squad(ONE), squad(TWO)],
    "articles in lines": [*squad(ONE)["data"], *squad(TWO)["data"]],
    "list": [[ONE, TWO]],
    "under data": [{"data": [ONE, TWO]}],
    "lines": [ONE, TWO],
    "columns, without marks": [record(answers=COLUMNS), TWO | {"answers": {"text": [], "answer_start": []}}],
}


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(tmp_path: Path, form: str, repair: bool) -> None:
    found, counts = read(tmp_path, *FORMS[form], repair=repair)
    assert [Question(q.id, q.question, q.context, q.answers, q.impossible) for q in found] == WANTED
    assert found[0].context is found[1].context
    assert {q.title for q in found} == ({"Lake"} if "squad" in form or "articles" in form else {""})
    assert counts == {}


def test_packed_pretty_and_several(tmp_path: Path) -> None:
    (tmp_path / "a.json.xz").write_bytes(lzma.compress(json.dumps([ONE], indent=4).encode()))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps([TWO]).encode()))
    found, report = questions.read([str(tmp_path / "b.json.gz"), str(tmp_path / "a.json.xz")], repair=False)
    assert found == WANTED[::-1]
    assert (report.questions, report.contexts) == (2, 1)


ARABIC = "تقع البحيرة في الشمال. البحيرة عميقة"
PLACES = {
    "right": (LAKE, "May", 39, "May", 39, ""),
    "emoji, in UTF-16": (LAKE, "May", 40, "May", 39, questions.MOVED),
    "emoji, in bytes": (LAKE, "deep", 22, "deep", 19, questions.MOVED),
    "the nearest": ("one two one two one", "one", 10, "one", 8, questions.MOVED),
    "the nearest of those that overlap": ("- a a a a", "a a", 5, "a a", 4, questions.MOVED),
    "from the end": ("one two one", "one", -1, "one", 0, questions.MOVED),
    "not given": (LAKE, "May", None, "May", 39, questions.MOVED),
    "right to left": (ARABIC, "البحيرة", 22, "البحيرة", 23, questions.MOVED),
    "padded": (LAKE, " May ", 38, "May", 39, questions.SPACED),
    "other white space": ("It is\u00a0very \n deep", "very deep", 6, "very \n deep", 6, questions.SPACED),
    "other case": (LAKE, "lake nordvann", 3, "Lake Nordvann", 0, questions.CASED),
    "signs of patterns": ("It cost (5.0)* then", "(5.0)*", 0, "(5.0)*", 8, questions.MOVED),
}


@pytest.mark.parametrize("case", PLACES)
def test_answers_are_put_where_they_stand(tmp_path: Path, case: str) -> None:
    context, text, start, wanted, place, kind = PLACES[case]
    given = record(context=context, answers=[answer(text, start)])
    [found], counts = read(tmp_path, given)
    assert found.answers == (Answer(wanted, place),)
    assert context[place:].startswith(wanted)
    assert counts == ({kind: 1} if kind else {})
    [kept], counts = read(tmp_path, given, repair=False)
    assert kept.answers == (Answer(text, -1 if start is None else start),)
    assert counts == {}


def test_what_cannot_be_learned_from_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost, blank = answer("June", 39), answer(" ", 4)
    given = [
        record(id="half", answers=[lost, answer("May", 39), answer("May", 39)]),
        record(id="lost", answers=[lost, blank, {"text": None}]),
        record(id="none", answers=[], is_impossible=False),
        record(id="mute", question=" "),
        record(id="bare", context=""),
    ]
    found, counts = read(tmp_path, *given)
    assert [(q.id, q.answers) for q in found] == [("half", (Answer("May", 39),) * 2)]
    assert counts == {
        questions.LOST: 2,
        questions.TEXTLESS: 2,
        questions.UNFOUND: 1,
        questions.UNANSWERED: 1,
        questions.BLANK_OUT: 2,
    }
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "1 question about 1 context" in told
    assert f"2 {questions.BLANK_OUT} (mute, bare)" in told
    kept, counts = read(tmp_path, *given, repair=False)  # all of them are scored, by the texts as they are
    assert [(q.id, len(q.answers)) for q in kept] == [("half", 3), ("lost", 2), ("none", 0), ("mute", 1), ("bare", 1)]
    assert counts == {questions.TEXTLESS: 1, questions.BLANK_KEPT: 2, questions.UNTOLD: 1}
    with pytest.raises(DataError, match=questions.UNFOUND.partition(" ")[2]):
        read(tmp_path, record(answers=[lost]))


def test_files_to_be_answered(tmp_path: Path) -> None:
    asked = [{key: record(id=n)[key] for key in ("id", "context", "question")} for n in range(2)]
    for given in (asked, [each | {"answers": []} for each in asked], [each | {"answers": None} for each in asked]):
        found, counts = read(tmp_path, *given, repair=False)
        assert [(q.answers, q.impossible) for q in found] == [((), False)] * 2
        assert counts == {}


def test_no_answer_and_no_mark_is_impossible_among_answered(tmp_path: Path) -> None:
    found, counts = read(tmp_path, ONE, record(id="2", answers=[]))
    assert [q.impossible for q in found] == [False, True]
    assert counts == {questions.UNMARKED: 1}


def test_impossible_but_answered(tmp_path: Path) -> None:
    given = record(is_impossible=True)
    [learned], counts = read(tmp_path, given)
    assert (learned.answers, learned.impossible, counts) == ((), True, {questions.MARK_WINS: 1})
    [scored], counts = read(tmp_path, given, repair=False)  # the official score asks for answers only
    assert (scored.answers, scored.impossible, counts) == ((Answer("May", 39),), False, {questions.ANSWERS_WIN: 1})


def test_an_id_names_one_question(tmp_path: Path) -> None:
    other = record(question="What is deep?", answers=[answer("Lake", 0)])
    again = record(answers=[answer("in May", 36), answer("May", 39)])
    found, counts = read(tmp_path, ONE, other, again, other)
    assert [(q.id, [a.text for a in q.answers]) for q in found] == [("q1", ["May", "in May"]), ("q1#2", ["Lake"])]
    assert counts == {questions.RENAMED: 1, questions.TWICE: 2}


def test_halves_of_characters(tmp_path: Path) -> None:
    [found], counts = read(tmp_path, record(context="\ud83d cold", answers=[answer("\ud83d cold", 0)]))
    assert (found.context, found.answers) == ("\ufffd cold", (Answer("\ufffd cold", 0),))
    assert counts == {questions.HALVES: 2}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in record().items() if name != key}


BAD = {
    "cut in a string": ('[\n{"id": "a", "conte', r"a\.json:2: column 13: the file stops in the middle"),
    "cut after a value": ('{"data": [{"id": 1}', r"a\.json:1: column 20: the file stops in the middle"),
    "no JSON": ("id,question\n1,Who?", r"a\.json:1: not JSON: .*; wanted SQuAD"),
    "bad in the middle": ('{"data":\n [1,, 2]}', r"a\.json:2: column 5: bad JSON"),
    "deep": ("[" * 100_000, "bad JSON"),
    "empty": ("", "0 questions"),
    "no questions": ('{"data": []}', "0 questions"),
    "something else": ('{"a": 1, "b": 2}', r"no `id`, `question`, `context`; keys: a, b"),
    "a line without": (json.dumps(ONE) + "\n" + json.dumps(without("context")), r"a\.json:2: no `context`"),
    "a paragraph without": (
        json.dumps(squad(without("question"), context=LAKE)),
        r"a\.json:1: data\[0\]\.paragraphs\[0\]\.qas\[0\]: no `question`; keys: title, context, id, answers",
    ),
    "a string for a record": ('{"data": ["Who?"]}', r"data\[0\]: a JSON str; wanted an object"),
    "a list for a text": (json.dumps(record(question=["Who?"])), "question: a JSON list; wanted a string"),
    "a name for a mark": (json.dumps(record(is_impossible="no")), "`is_impossible` is 'no'"),
    "a share for an id": (json.dumps(record(id=0.5)), "`id` is a float"),
    "texts for answers": (json.dumps(record(answers=["May"])), r"answers: \['May'\]"),
    "a column short": (json.dumps(record(answers=COLUMNS | {"text": ["a", "b"]})), "of equal lengths"),
    "no column": (json.dumps(record(answers={"text": 5})), "of equal lengths"),
    "a text for a place": (json.dumps(record(answers=[{"text": "May", "answer_start": "39"}])), "answer_start: '39'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, case: str) -> None:
    written, told = BAD[case]
    (tmp_path / "a.json").write_text(written)
    with pytest.raises(DataError, match=told) as error:
        questions.read(str(tmp_path / "a.json"), repair=False)
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_public_files(shared_data: Path) -> None:
    known = {
        "squad/squad-v1.1-train-part.json": (4799, 0, {}),
        "squad/squad-v2.0-train-part.json": (5466, 2789, {}),
        "squadshifts/new_wiki_v1.0.json.xz": (7938, 0, {}),
        "norquad/validation_dataset_flattened.json": (472, 0, {questions.RENAMED: 10}),
    }
    for name, wanted in known.items():
        found, report = questions.read(str(shared_data / name), repair=True)
        assert (len(found), sum(q.impossible for q in found), report.counts()) == wanted
        assert all(q.context.startswith(a.text, a.start) for q in found for a in q.answers)
        assert len({q.id for q in found}) == len(found)


@pytest.mark.parametrize(
    ("wrong", "said"), [({"id": True}, "`id` is a bool"), ({"answers": [answer("May", True)]}, "answer_start: True")]
)
def test_true_is_no_number(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, record(**wrong))


def test_a_question_given_twice_is_impossible_if_both_say_so(tmp_path: Path) -> None:
    said = {"id": "q1", "context": LAKE, "question": "When?"}
    both = [
        said | {"is_impossible": True, "answers": []},
        said | {"is_impossible": False, "answers": [answer("May", 39)]},
    ]
    for order in (both, both[::-1]):
        [found], counts = read(tmp_path, *order)
        assert (found.impossible, found.answers) == (False, (Answer("May", 39),))
        assert counts == {questions.TWICE: 1}
