"""Answers are at the reported positions of the text, for every kind of input, and equal those of `predict`."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from kit.families import shaken
from kit.makers import SPECIAL
from ordsmed import cli
from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS
from ordsmed.base.menu import load
from ordsmed.learn.objective import fresh
from ordsmed.learn.objectives import mlm
from ordsmed.learn.tasks import squad
from ordsmed.nn.model import own_tensors
from ordsmed.text.edges import whole
from ordsmed.text.labelled.questions import Question
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe
from ordsmed.use import answer as verb
from ordsmed.use.predict import _lines, open_task
from ordsmed.weights import weights
from ordsmed.weights.foreign import Networks

TEXT = "It is wet , for rain falls in Bergen ."
LETTERS = "abcdefghijklmnopqrstuvwxyz"
STRANGE = "قال 🙂 الحدّاد\n\tNaïve  Ærø — 👩‍🔬 mends הרכבת 中文 ﬁn."
ASKED = [("what falls ?", TEXT), ("where ?", f"{STRANGE} {TEXT} {STRANGE}"), ("who ?", TEXT[::-1])]


def model_of(folder: Any, family: str = "bert", task: Any = None) -> Any:
    """A model that answers at random."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS)]) + "\n")
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    if family == "gpt2":
        tokenizer = bytebpe.ByteBpe(size=270).train([TEXT] * 9)
    version = "1.1" if family == "gpt2" else "2.0"
    task = task or squad.Squad(version=version, threshold=1e6, length=48, stride=16)  # type: ignore[arg-type]
    shape = {"width": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 64}
    model = load("models", family)(**shape)
    role = "task" if hasattr(task, "role") else "objective"
    weights.write(folder / WEIGHTS, own_tensors(shaken(fresh(task, model, tokenizer, 3), 0.5)))
    files.write_text(folder / SETTINGS, settings.write(Networks(**{"model": model, role: task})))
    tokenizer.save(folder / TOKENIZER)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return model_of(tmp_path_factory.mktemp("answer") / "run")


def said(run: Any, *words: str, given: str = "", **how: Any) -> list[dict[str, Any]]:
    stream = io.BytesIO(given.encode())
    overrides = how.pop("overrides", ())
    found = verb.answer_lines(run, words, stream, overrides, as_json=True, device="cpu", **how)
    return [json.loads(line) for line in found]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("context", [context for _, context in ASKED], ids=["plain", "strange", "backwards"])
def test_places_are_those_of_the_text_as_it_was_given(family, context, tmp_path):
    [found] = said(model_of(tmp_path / "run", family), "what ?", context, best=9)
    before, text, after = found["around"]
    assert context[found["from"] : found["to"]] == found["answer"] == text
    assert before.removeprefix("... ") + text + after.removesuffix(" ...") in context
    spans = [span for span in found["n_best"] if span["text"]]
    assert len(spans) >= 8
    assert all(context[span["from"] : span["to"]] == span["text"] for span in spans)
    assert found["probability"] == max(span["probability"] for span in spans)


def test_one_by_one_or_together_they_are_the_tasks_own(run, tmp_path):
    (tmp_path / "asked.json").write_text(
        json.dumps([{"id": n, "question": q, "context": c} for n, (q, c) in enumerate(ASKED)])
    )
    asked = open_task(run, device="cpu")
    records = asked.settings.records((str(tmp_path / "asked.json"),))
    features = asked.settings.features(records, asked.reader)
    own = asked.settings.predictions(records, features, asked.answers(features)[0])
    assert len(features) > len(ASKED), "one of them needs windows"
    asking = [Question(str(n), q, c, (), impossible=False) for n, (q, c) in enumerate(ASKED)]
    for found in (verb.answers(asked, asking), [verb.answers(asked, [each])[0] for each in asking]):
        assert [(one.text, one.span) for one in found] == [(one.text, one.span) for one in own]
        for one, other in zip(found, own, strict=True):
            assert one.probability == pytest.approx(other.probability, abs=1e-5)
            assert one.null_odds == pytest.approx(other.null_odds, abs=1e-4)


def test_every_form_of_questions_is_answered_alike(run, tmp_path):
    plain = [(q, " ".join(c.split())) for q, c in ASKED]
    records = [{"id": f"q{n}", "question": q, "context": c} for n, (q, c) in enumerate(plain)]
    texts = {
        "nested.json": json.dumps({"data": [{"paragraphs": [{"context": r["context"], "qas": [r]}]} for r in records]}),
        "lines.jsonl": "\n".join(map(json.dumps, records)),
        "columns.tsv": "question\tcontext\n" + "".join(f"{q}\t{c}\n\n" for q, c in plain),
    }
    wanted = [said(run, *each)[0] for each in plain]
    for name, text in texts.items():
        (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
        for found in (said(run, file=str(tmp_path / name)), said(run, file="-", given=text)):
            assert [one["id"] for one in found] == (["2", "4", "6"] if name == "columns.tsv" else ["q0", "q1", "q2"])
            for one, other in zip(found, wanted, strict=True):
                assert (one["answer"], one["from"], one["question"]) == (
                    other["answer"],
                    other["from"],
                    other["question"],
                )


def test_columns_of_standard_input_are_answered_as_they_come(run):
    read: list[int] = []

    class Slow(io.BytesIO):
        def readline(self, *_: Any) -> bytes:
            read.append(1)
            return super().readline()

    stream = Slow(b"what ?\tit rains .\nwhen ?\tit rains .\n")
    found = verb.answer_lines(run, (), stream, file="-", as_json=True, device="cpu")
    assert json.loads(next(found))["question"] == "what ?"
    assert len(read) == 1
    assert [json.loads(line)["question"] for line in found] == ["when ?"]


def test_a_conversation(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "story.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    found = said(run, given="\nIt is wet ,\nfor rain falls .\n\nwhat ?\nwhen ?\n\nstory.txt\nwhere ?\n")
    assert [one["question"] for one in found] == ["what ?", "when ?", "where ?"]
    for one, context in zip(found, ["It is wet ,\nfor rain falls ."] * 2 + [TEXT], strict=True):
        assert context[one["from"] : one["to"]] == one["answer"] != ""
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("?")[0] for line in told] == [
        "context",
        "question",
        "question",
        "question",
        "context",
        "story.txt: 10 words",
        "question",
        "question",
    ]


def test_what_a_person_is_told(run, capsys, monkeypatch):
    [found] = said(run, "what falls ?", TEXT, best=2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    cli.main(["answer", str(run), "what falls ?", TEXT, "--best", "2", "--device", "cpu"])
    start, end, odds = found["from"], found["to"], found["null_odds"]
    second, score = [span for span in found["n_best"] if span["text"]][-1], found["n_best"][0]["score"]
    assert capsys.readouterr().out.splitlines()[:3] == [
        "what falls ?",
        f"  {found['answer']}  {found['probability']:.1%} (score {score:.2f}), characters {start}-{end} "
        f"(null odds {odds:.6g}, threshold 1e+06)",
        f"    {TEXT[:start]}[{TEXT[start:end]}]{TEXT[end:]}",
    ]
    assert second["text"] in TEXT


def test_no_answer_by_the_threshold(run):
    [found] = said(run, "what ?", TEXT, overrides=["task.threshold=-1e6"])
    assert (found["answer"], found["from"], found["to"], found["threshold"]) == ("", None, None, -1e6)
    lines = list(verb.answer_lines(run, ("what ?", TEXT), io.BytesIO(), ["task.threshold=-1e6"], device="cpu"))
    assert lines[1].startswith("  no answer  ")
    assert lines[2].startswith("  1. ")
    [sure] = said(run, "what ?", TEXT, overrides=['task.version="1.1"', "task.threshold=-1e6"])
    assert sure["answer"]
    assert "null_odds" not in sure


def test_a_joint_head_answers_too(tmp_path):
    [found] = said(model_of(tmp_path / "run", task=squad.Squad(head="joint", length=48)), "what ?", STRANGE)
    assert STRANGE[found["from"] : found["to"]] == found["answer"] != ""


@pytest.mark.long
def test_a_context_of_a_hundred_thousand_words(run):
    context = "a b c d e f g h i j " * 10_000
    [found] = said(run, "what falls ?", context, overrides=["task.stride=40"])
    assert context[found["from"] : found["to"]] == found["answer"] != ""


@pytest.mark.parametrize("at", [0, 59, 60, 200, 395])
def test_the_text_around_is_cut_between_words(at):
    context = "word " * 80
    before, text, after = verb.around(context, at, at + 4)
    assert text == context[at : at + 4]
    assert len(before) <= verb.AROUND + 4
    assert len(after) <= verb.AROUND + 4
    assert before.startswith("... ") == (at > verb.AROUND)
    assert after.endswith(" ...") == (at + 4 + verb.AROUND < len(context))
    assert before.removeprefix("... ") + text + after.removesuffix(" ...") in context


def test_a_folder_of_questions(run, tmp_path):
    for name, text in (
        ("b.tsv", "what ?\tit rains .\n"),
        ("a.tsv", "when ?\tit rains .\nwho ?\tit rains .\n"),
        ("c.json", '[{"id": 1, "question": "why ?", "context": "it rains ."}]'),
    ):
        (tmp_path / "asked" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "asked" / name).write_text(text)
    found = said(run, file=str(tmp_path / "asked"))
    assert [one["question"] for one in found] == ["when ?", "who ?", "what ?", "why ?"]
    assert len({one["id"] for one in found}) == 4
    (tmp_path / "bad.tsv").write_bytes(b"what ?\tit rains \xff .\n")
    assert said(run, file=str(tmp_path / "bad.tsv"), overrides=["task.errors=replace"])
    with pytest.raises(DataError, match="invalid UTF-8"):
        said(run, file=str(tmp_path / "bad.tsv"))


def test_an_answer_cuts_no_word_on_request(run):
    for question, context in ASKED:
        [cut], [found] = (
            said(run, question, context, best=9, overrides=more) for more in ([], ["task.whole_words=true"])
        )
        spans = [one for one in found["n_best"] if one["text"]]
        assert all(context[one["from"] : one["to"]] == one["text"] for one in spans)
        assert all(whole(context, one["from"], one["to"]) == (one["from"], one["to"]) for one in spans)
        assert any(
            whole(context, one["from"], one["to"]) != (one["from"], one["to"]) for one in cut["n_best"] if one["text"]
        )
        assert len({one["text"] for one in spans}) == len(spans)


def test_a_mistyped_file_is_told(run, capsys):
    said(run, "what ?", "stroy.txt")
    assert "stroy.txt: no such file, so it is read as a text" in capsys.readouterr().err
    said(run, "what ?", "It rains.")
    assert not capsys.readouterr().err


GOOD = {"id": 1, "question": "what ?", "context": TEXT}
BAD = {"id": 2, "question": "who ?", "context": " "}


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("ending", ["json", "tsv", "-"])
def test_one_question_that_cannot_be_answered_stops_no_other(run, tmp_path, ending, as_json):
    last = {"id": 3, "question": "where ?", "context": TEXT}
    table = f"what ?\t{TEXT}\nwho ?\t \nwhere ?\t{TEXT}\nwhen ?\ta\tb\n"
    path, stream = tmp_path / f"asked.{ending}", io.BytesIO(table.encode())
    path.write_text(json.dumps([GOOD, BAD, last]) if ending == "json" else table)
    found, how = [], {"device": "cpu", "as_json": as_json, "file": "-" if ending == "-" else str(path)}
    with pytest.raises(DataError) as caught:
        found.extend(verb.answer_lines(run, (), stream, **how))
    count = "1 of 3" if ending == "json" else "2 of 4"
    assert f"an empty context: there is nothing to answer from; {count} questions not answered" in str(caught.value)
    alone = [
        list(verb.answer_lines(run, (q, TEXT), io.BytesIO(), device="cpu", as_json=as_json))
        for q in ("what ?", "where ?")
    ]
    if as_json:
        lines = [json.loads(line) for line in found]
        assert [line["question"] for line in lines[:3]] == ["what ?", "who ?", "where ?"]
        assert lines[1]["error"] == "an empty context: there is nothing to answer from"
        said_of = [{k: v for k, v in line.items() if k in ("answer", "from", "to")} for line in (lines[0], lines[2])]
        assert said_of == [{k: json.loads(one)[k] for k in said_of[0]} for [one] in alone]
    else:
        assert "  not answered: an empty context: there is nothing to answer from" in found
        odds = r"null odds \S+,"  # their last digits depend on what else is in the batch
        assert [re.sub(odds, "", line) for line in found[: len(alone[0])]] == [re.sub(odds, "", x) for x in alone[0]]
        if ending != "json":
            assert found[-1] == "  not answered: 3 columns"


def test_questions_none_of_which_can_be_answered_are_refused_at_once(run, tmp_path):
    (tmp_path / "bad.json").write_text(json.dumps([BAD, {**BAD, "id": 3}]))
    with pytest.raises(
        DataError, match=r"bad.json: 2: an empty context: there is nothing to answer from; wanted a text"
    ):
        next(verb.answer_lines(run, (), io.BytesIO(), file=str(tmp_path / "bad.json"), device="cpu"))


@pytest.mark.parametrize("as_file", [True, False])
def test_a_question_alone_asks_for_its_context(run, tmp_path, capsys, as_file):
    (tmp_path / "story.txt").write_text(TEXT)
    [found] = said(run, "what ?", given=f"{tmp_path / 'story.txt' if as_file else TEXT}\n\n")
    [other] = said(run, "what ?", TEXT)
    assert found == other
    assert "context? (a text followed by an empty line, or the name of a file)" in capsys.readouterr().err


def test_a_threshold_is_rounded_for_people_and_whole_in_scores(run):
    """Taken from scores or JSON it refuses just the same questions."""
    odd = -2.3456789012345678
    asked = open_task(run, [f"task.threshold={odd}"], device="cpu")
    [line] = [
        x
        for x in verb.answer_lines(run, ("what ?", TEXT), io.BytesIO(), [f"task.threshold={odd}"], device="cpu")
        if "threshold" in x
    ]
    assert line.rpartition("threshold ")[2] == "-2.34568)"
    assert (
        said(run, "what ?", TEXT, overrides=[f"task.threshold={odd}"])[0]["threshold"]
        == asked.settings.threshold
        == odd
    )
    told = _lines({"best_f1": 71.23456, "best_f1_thresh": odd})
    assert told == ["  best_f1: 71.23", f"  best_f1_thresh: {odd!r}"]


@pytest.mark.parametrize(
    ("words", "how", "said_of"),
    [
        (("", TEXT), {}, "answer: an empty question; wanted a question"),
        (("what ?", " \n"), {}, "an empty context: there is nothing to answer from"),
        (("what ?",), {}, "answer: found a question without a context; wanted QUESTION CONTEXT, .* standard input"),
        (("what ?", "a", "b"), {}, "found 3 texts; wanted QUESTION CONTEXT"),
        ((__file__,), {}, r"found the file .*test_answer\.py and no question; wanted QUESTION CONTEXT"),
        (("what ?", TEXT), {"file": "x.json"}, "found --file and a text"),
        (("what ?", "a \udce9"), {}, "invalid UTF-8"),
        ((), {}, "standard input: has no question"),
        ((), {"file": "-"}, "standard input: is empty"),
        ((), {"file": "-", "given": "what ?\n"}, "standard input:1: 1 column; wanted SQuAD"),
        ((), {"file": "-", "given": "what ?\tthis\n \tthat"}, "standard input:2: an empty question"),
        ((), {"file": "-", "given": '{"id": 1,\n "question": '}, "standard input:2: column 14: the file stops"),
        ((), {"file": "-", "given": '{"id": 7, "question": "a", "context": ""}'}, "input: 7: an empty context"),
        ((), {"file": "nowhere.tsv"}, "nowhere.tsv: no such file"),
        (("what ?", TEXT), {"best": 0}, "--best: found 0"),
        (("what ?", TEXT), {"overrides": ["task.n_bets=3"]}, "n_bets"),
    ],
)
def test_what_cannot_be_answered(run, words, how, said_of):
    with pytest.raises(OrdsmedError, match=said_of):
        said(run, *words, **how)


def test_a_model_of_something_else_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="has no task head"):
        said(model_of(tmp_path / "words", task=mlm.Mlm()), "what ?", TEXT)
    labelled = load("tasks", "classify")(labels=("a", "b"))
    with pytest.raises(RecipeError, match="was fine-tuned for classify; wanted squad"):
        said(model_of(tmp_path / "classes", task=labelled), "what ?", TEXT)
