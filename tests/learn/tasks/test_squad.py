"""Questions: examples as each family reads them, positions of answers, and a planted rule that is learned."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import SPECIAL
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.settings import decode, plain
from ordsmed.data import question_windows
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.learn import inference as asking
from ordsmed.learn.inference import predict_all
from ordsmed.learn.objective import fresh
from ordsmed.learn.question_answering import inputs
from ordsmed.learn.question_answering.inputs import lowered
from ordsmed.learn.question_answering.records import QuestionRecords
from ordsmed.learn.score import squad as official
from ordsmed.learn.task import packing, reader
from ordsmed.learn.tasks import squad
from ordsmed.learn.tasks.squad import Squad
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.models import bert, elmo, gpt2, roberta
from ordsmed.text import vocabulary
from ordsmed.text.labelled.questions import Answer, Question
from ordsmed.text.tokenizer import Tokenizer, byte_of

SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "inner": 64, "positions": 64}
STILL = {"dropout": 0.0, "attention_dropout": 0.0}
BERT = bert.Bert(**SHAPE, **STILL)
ELMO = elmo.Elmo(width=16, cells=16, layers=2, highways=1, filters=((1, 8), (2, 8), (3, 8)), longest_word=8)
HEADS = pytest.mark.parametrize("head", ["independent", "joint"])
WORDS = [f"w{n}" for n in range(12)]
SIGNS = ["here", "where", "?"]


def pieces(texts: Sequence[str] = (), words: Sequence[str] = ()) -> Tokenizer:
    """BERT's, of words and of single characters."""
    letters = sorted(set("".join(texts)) - {" "})
    entries = [*SPECIAL, *words, *letters, *(f"##{letter}" for letter in letters)]
    return Tokenizer(vocabulary.wordpiece({entry: n for n, entry in enumerate(entries)}, lowercase=False))


def tokenizer_of(family: Any) -> Tokenizer:
    """Of words, or of bytes."""
    if family.capabilities.state:
        entries = ["<S>", "</S>", "<UNK>", *WORDS, *SIGNS]
        return Tokenizer(vocabulary.words({e: n for n, e in enumerate(entries)}, split="spaces", lowercase=False))
    if isinstance(family, bert.Bert):
        return pieces(words=[*WORDS, *SIGNS])
    signs = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if isinstance(family, roberta.Roberta) else ["<|endoftext|>"]
    table = {entry: n for n, entry in enumerate([*signs, *byte_of()])}
    make = vocabulary.roberta if len(signs) > 1 else vocabulary.byte_level
    more = {} if len(signs) > 1 else {"prefix_space": False, "special": signs}
    return Tokenizer(make(table, [], **more))  # type: ignore[operator]


def asked(context: str, answer: str = "", *, name: str = "q", question: str = "where ?", at: int = -1) -> Question:
    answers = (Answer(answer, context.rindex(answer) if at < 0 else at),) if answer else ()
    return Question(name, question, context, answers, not answers)


def planted(count: int, seed: int, none: float) -> list[Question]:
    """The answer is the word after `here`; a share of the questions has none."""
    chance, found = np.random.default_rng(seed), []
    for number in range(count):
        words = [WORDS[n] for n in chance.integers(len(WORDS), size=chance.integers(4, 9))]
        answer = ""
        if chance.random() >= none:
            place = int(chance.integers(len(words) - 1))
            words[place], answer = "here", words[place + 1]
        start = len(" ".join(words[: place + 1])) + 1 if answer else -1
        found.append(asked(" ".join(words), answer, name=f"q{number}", at=start))
    return found


def certain(features: Features) -> dict[str, Any]:
    """The answers of a network that is right about every window."""
    scores = np.zeros((2, len(features), int(features.sizes.max())), np.float32)
    assert features.labels is not None
    for side in (0, 1):
        scores[side, np.arange(len(features)), features.labels[:, side]] = 9
    return {"start": scores[0], "end": scores[1]}


def told(task: Any, features: Features, rows: Packing) -> tuple[dict[str, Any], dict[str, float]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(asking.TOKENS, "cpu", 512)
        return predict_all(task, features, rows, Ranks(torch.device("cpu")))


def learned(settings: Squad, family: Any, steps: int) -> tuple[Any, Tokenizer]:
    """A network that has seen the planted rule."""
    tokenizer = tokenizer_of(family)
    torch.set_num_threads(1)
    questions = QuestionRecords.of(planted(600, 1, 0.3 if settings.refuse else 0.0), learning=True)
    rows = ExampleRows(settings.features(questions, reader(tokenizer, family)), packing(tokenizer, family), 1)
    task = fresh(settings, family, tokenizer, 3)
    optimizer = torch.optim.AdamW(task.parameters(), lr=5e-3)
    task.train()
    for step in range(steps):
        batch = rows.batch(np.arange(32 * step, 32 * step + 32))
        counts = task.count(batch)
        loss = sum(task.weights[term] * sums / counts[term] for term, sums in task(batch).items())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return task, tokenizer


@pytest.mark.long
@pytest.mark.parametrize(
    ("head", "form", "family", "steps"),
    [
        ("independent", "nvidia", BERT, 120),
        ("joint", "nvidia", BERT, 140),
        ("joint", "google", BERT, 140),
        ("joint", "google", ELMO, 60),
        ("independent", "nvidia", ELMO, 60),
    ],
)
def test_a_planted_rule_is_learned_and_the_threshold_refuses(head: Any, form: Any, family: Any, steps: int) -> None:
    settings = Squad(
        version="2.0",
        head=head,
        form=form,
        length=24,
        stride=4,
        threshold="dev",
        dev="dev.json",
        top=Top(recurrent=32 if family is ELMO else 0),
    ).complete(QuestionRecords.of([]))
    task, tokenizer = learned(settings, family, steps)
    dev = QuestionRecords.of(planted(150, 2, 0.3))
    features = settings.features(dev, reader(tokenizer, family))
    answers, losses = told(task, features, packing(tokenizer, family))
    assert losses.keys() == task.weights.keys()
    assert losses["span"] < 0.3
    fitted = settings.fitted(dev, features, answers)
    predictions = fitted.predictions(dev, features, answers)
    assert predictions == settings.predictions(dev, features, answers)
    odds, none = {one.id: one.null_odds for one in predictions}, {one.id for one in predictions if not one.text}
    assert none == {name for name, value in odds.items() if value > fitted.threshold}
    assert fitted.score(dev, predictions)["f1"] > 95
    assert all(one.text == dev.questions[n].context[slice(*one.span)] for n, one in enumerate(predictions) if one.text)
    for threshold, has, none in ((-1e9, 0, 100), (1e9, 95, 0)):
        settings = dataclasses.replace(settings, threshold=threshold)
        scores = settings.score(dev, settings.predictions(dev, features, answers))
        assert scores["HasAns_f1"] >= has
        assert scores["NoAns_f1"] == none


@HEADS
@pytest.mark.parametrize("family", [BERT, roberta.Roberta(**SHAPE), gpt2.Gpt2(**SHAPE)], ids=lambda f: f.model_type)
def test_packed_examples_are_told_what_they_are_told_alone(head: Any, family: Any) -> None:
    version = "1.1" if family.capabilities.causal else "2.0"
    settings = Squad(version=version, head=head, length=60, stride=16, beam=4)  # type: ignore[arg-type]
    tokenizer = tokenizer_of(family)
    features = settings.features(QuestionRecords.of(planted(40, 5, 0.3)), reader(tokenizer, family))
    torch.manual_seed(1)
    task = fresh(settings, family, tokenizer, 3)
    for parameter in task.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    rows = dataclasses.replace(packing(tokenizer, family), length=64)
    assert len(rows.batch(features, np.arange(8), np.arange(8)).tokens) < 8
    packed, losses = told(task, features, rows)
    alone, apart = told(task, features, dataclasses.replace(rows, alone=True, length=0))
    assert losses == pytest.approx(apart, rel=1e-5)
    for name, values in packed.items():
        sizes = np.arange(values.shape[1])[None] < features.sizes[:, None] if name in task.by_token else slice(None)
        assert values[sizes] == pytest.approx(alone[name][sizes], rel=1e-4, abs=1e-4), name
        assert np.isfinite(values).all()


FRAMED = {
    "bert": ("[CLS] where ? [SEP] w1 here w2 [SEP]", (0,) * 4 + (1,) * 4, 4),
    "roberta": ("<s> w h e r e Ġ ? </s> </s> w 1 Ġ h e r e Ġ w 2 </s>", None, 10),
    "gpt2": ("w h e r e Ġ ? w 1 Ġ h e r e Ġ w 2", None, 7),
}


@pytest.mark.parametrize("name", FRAMED)
def test_examples_are_framed_as_the_tokenizer_does(name: str) -> None:
    family = {"bert": BERT, "roberta": roberta.Roberta(**SHAPE), "gpt2": gpt2.Gpt2(**SHAPE)}[name]
    tokenizer, (tokens, types, begin) = tokenizer_of(family), FRAMED[name]
    found = Squad(length=40).features(QuestionRecords.of([asked("w1 here w2", "w2")]), reader(tokenizer, family))
    assert [tokenizer.piece(n) for n in found.ids] == tokens.split()
    assert (found.types is None) if types is None else (tuple(found.types.tolist()) == types)  # type: ignore[union-attr]
    context = np.flatnonzero(found.marks == 0)  # type: ignore[operator]
    size = len(tokens.split()) - begin - (0 if name == "gpt2" else 1)
    assert context.tolist() == list(range(begin, begin + size))
    width = {"bert": 1, "roberta": 2, "gpt2": 2}[name]
    assert found.labels.tolist() == [[begin + size - width, begin + size - 1, 0]]  # type: ignore[union-attr]


LONG = " ".join(WORDS[n % 12] for n in range(100))
CONTEXTS = {
    "the last window": asked(f"{LONG} here Zürich .", "Zürich"),
    "the first of many": asked(f"Zürich here {LONG}", "Zürich"),
    "right to left": asked("הספר נמצא בעיר חיפה היום", "חיפה"),
    "emoji": asked("🙂🙃 she said 👩‍👩‍👧 and 🇳🇴 left", "🇳🇴"),
    "inside a word": asked("unquestionably", "question"),
    "white space around": asked("so \n\t it is   here  ", "it is"),
    "a question longer than the window": asked("it is here", "it", question="why " * 80),
    "no question": asked("it is here", "here", question=""),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_an_answer_is_found_again_in_the_original_text(name: str) -> None:
    """Through windows, labels, scores of a perfect network, and the candidates of all windows."""
    question = CONTEXTS[name]
    tokenizer = pieces([question.context, question.question, "?"])
    settings = Squad(length=40, stride=8, longest_question=30)
    records = QuestionRecords.of([question])
    features = settings.features(records, reader(tokenizer, BERT))
    assert features.sizes.max() <= 40
    [found] = settings.predictions(records, features, certain(features))
    assert (found.text, found.span[0]) == (question.answers[0].text, question.answers[0].start)
    assert settings.score(records, [found]) == {"exact_match": 100, "f1": 100}


def test_nothing_to_answer_from() -> None:
    records = QuestionRecords.of([asked("", name="a"), asked("w1", "w1", name="b"), asked("", name="c", question="")])
    causal = gpt2.Gpt2(**SHAPE)
    for family, version in ((BERT, "1.1"), (BERT, "2.0"), (causal, "1.1")):
        settings = Squad(length=16, version=version)  # type: ignore[arg-type]
        tokenizer = tokenizer_of(family)
        features = settings.features(records, reader(tokenizer, family))
        assert features.sizes.min() > 0
        answers, _ = told(fresh(settings, family, tokenizer, 1), features, packing(tokenizer, family))
        assert [one.text for one in settings.predictions(records, features, answers)][::2] == ["", ""]
    with pytest.raises(RecipeError, match="causal network, whose first token"):
        fresh(Squad(length=16, version="2.0"), causal, tokenizer_of(causal), 1)


def test_a_document_of_a_hundred_thousand_words() -> None:
    context = " ".join(WORDS[n % 12] for n in range(100_000)) + " here Rome"
    records, settings = QuestionRecords.of([asked(context, "Rome")]), Squad(length=384)
    features = settings.features(records, reader(pieces(words=[*WORDS, *SIGNS, "Rome"]), BERT))
    room = 384 - 3 - 2
    assert len(features) == 1 + -(-(100_002 - room) // 128)
    [found] = settings.predictions(records, features, certain(features))
    assert (found.text, found.span) == ("Rome", (len(context) - 4, len(context)))


def test_lower_case_keeps_every_character_in_its_place() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    assert len(lowered(every)) == len(every)
    question = asked("İ İSTANBUL Straße İ ÅRE", "ÅRE")
    records, settings = QuestionRecords.of([question]), Squad(length=40, lowercase=True)
    features = settings.features(records, reader(pieces(["istanbul", "straße", "åre", "where?"]), BERT))
    assert SPECIAL.index("[UNK]") not in features.ids
    [found] = settings.predictions(records, features, certain(features))
    assert (found.text, found.span[0]) == ("ÅRE", question.answers[0].start)


@pytest.mark.parametrize(("more", "impossible"), [({}, 1), ({"form": "google"}, 0), ({"impossible_windows": False}, 0)])
def test_windows_without_the_answer_point_at_the_first_token(more: dict[str, Any], impossible: int) -> None:
    records = QuestionRecords.of([asked(f"{LONG} here w1", "here"), asked("w1 w2", name="none")], learning=True)
    settings = Squad(version="2.0", length=30, stride=20, **more)
    labels = settings.features(records, reader(tokenizer_of(BERT), BERT)).labels
    assert labels is not None
    assert labels[:-2].tolist() == [[0, 0, impossible]] * (len(labels) - 2)
    assert labels[-2, 0] == labels[-2, 1] > 0
    assert labels[-2:, 2].tolist() == [0, 1]


def test_what_no_token_holds_is_told_and_not_learned(capsys: pytest.CaptureFixture[str]) -> None:
    questions = [asked("w1 \u200b w2", "\u200b", name="lost"), asked("w1 w22", "w2", name="part"), asked("w1", "w1")]
    tokenizer, settings = pieces(words=["w1", "w2", "w22", *SIGNS]), Squad(length=16)
    for learning, windows in ((True, 2), (False, 3)):
        found = settings.features(QuestionRecords.of(questions, learning=learning), reader(tokenizer, BERT))
        assert len(found) == windows
        assert capsys.readouterr().err == (
            "squad: 1 answer covered by no token (lost); 1 answer beginning or ending inside a token (part)\n"
        )
    assert found.labels is not None
    assert found.labels[0].tolist() == [-1, -1, -1]
    task = fresh(settings, BERT, tokenizer, 1)
    batch = packing(tokenizer, BERT).batch(found, np.arange(3), np.arange(3))
    assert task.count(batch)["span"] == 2
    rows = packing(tokenizer, BERT)
    both = dataclasses.replace(settings, version="2.0", head="joint")
    task = fresh(both, BERT, tokenizer, 1).eval()
    held = np.arange(1, 3)
    with torch.no_grad():
        one, other = (task(batch) for batch in (batch, rows.batch(found, held, held)))
    assert {name: float(v) for name, v in one.items()} == pytest.approx({name: float(v) for name, v in other.items()})
    with pytest.raises(DataError, match="no token covers an answer"):
        settings.features(QuestionRecords.of(questions[:1], learning=True), reader(tokenizer, BERT))


def test_files_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of questions, features kept on disk, and predictions that score as they did, by hand."""
    questions = [asked("w1 here w2 w3", "w2 w3", name="a"), asked("w4 w5", "w4", name="b"), asked("w6", name="c")]
    rows = [
        {
            "id": q.id,
            "context": q.context,
            "question": q.question,
            "is_impossible": q.impossible,
            "answers": [{"text": a.text, "answer_start": a.start} for a in q.answers],
        }
        for q in questions
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps(rows))
    settings = Squad(version="2.0", length=16)
    records = settings.records([str(path)])
    features = settings.features(records, reader(tokenizer_of(BERT), BERT))
    features.save(tmp_path / "features")
    answers = certain(features)
    answers["end"][0] = 0
    answers["end"][0, 6] = 5  # "w2" alone
    predictions = settings.predictions(records, Features.open(tmp_path / "features"), answers)
    wanted = {"exact": 200 / 3, "f1": (200 / 3 + 200) / 3, "HasAns_exact": 50, "NoAns_f1": 100, "best_exact": 200 / 3}
    scores = settings.score(records, predictions)
    assert {name: scores[name] for name in wanted} == pytest.approx(wanted)
    assert scores["exact_match"] == scores["exact"]
    written = settings.write(tmp_path, records, predictions)
    assert [p.name for p in written] == ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    again = settings.read(written[0], records)
    assert settings.score(records, again) == scores
    tables = {title: rows for title, _, rows in settings.details(records, again)}
    assert tables["by answer"] == [["has answer", 2, 50, pytest.approx(250 / 3)], ["no answer", 1, 100, 100]]
    assert [one.text for one in settings.guesses(records, records)] == ["", "", ""]
    first = Squad(length=16)
    assert len(first.records([str(path)], learning=True)) == 2
    assert "1 question without an answer skipped" in capsys.readouterr().err
    assert [one.text for one in first.guesses(records, records)] == ["", "", ""]


def test_files_to_be_answered_have_no_score(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    path.write_text(json.dumps([{"id": 1, "context": "w1 w2", "question": "where ?"}]))
    settings = Squad(length=16)
    records = settings.records([str(path)])
    tokenizer = tokenizer_of(BERT)
    features = settings.features(records, reader(tokenizer, BERT))
    assert features.labels is None
    answers, losses = told(fresh(settings, BERT, tokenizer, 1), features, packing(tokenizer, BERT))
    predictions = settings.predictions(records, features, answers)
    assert (losses, settings.score(records, predictions), settings.details(records, predictions)) == ({}, {}, [])
    with pytest.raises(RecipeError, match="the right answers are not known"):
        Squad(version="2.0", length=16, threshold="dev").predictions(records, features, answers)
    assert predictions[0].text in ("w1", "w2", "w1 w2")


def test_where_to_refuse_is_tried_at_every_odds() -> None:
    """Those of equal odds go together; nothing is answered where that is best."""
    given = [asked("yes", "yes", name=name) for name in "ab"] + [asked("no", name=name) for name in "cd"]
    texts = dict.fromkeys("abcd", "yes")
    scores = official.scored("2.0", given, texts, dict.fromkeys("abcd", 5.0))
    assert scores["exact_match"] == 50, "predictions count as they stand"
    assert official.fitted_threshold(given, texts, {"a": -3, "b": 2, "c": 1, "d": 4}) == -1
    assert official.fitted_threshold(given, texts, {"a": -3, "b": 1, "c": 1, "d": 4}) == -1
    assert official.fitted_threshold(given, texts, {"a": 2, "b": 3, "c": 4, "d": 4}) == 3.5
    assert official.fitted_threshold(given, texts, {"a": 2, "b": 3, "c": -4, "d": -4}) == -5
    assert official.fitted_threshold(given, texts, {"a": 0, "b": 3, "c": 0, "d": -4}) == -5


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    for bad in (
        {"length": 1},
        {"beam": 0},
        {"beam": 10**6},
        {"n_best": 10**6},
        {"threshold": float("nan")},
        {"answerable_weight": -1.0},
    ):
        with pytest.raises(ValueError, match=f"^{next(iter(bad))}: found "):
            Squad(**bad)  # type: ignore[arg-type]
    with pytest.raises(
        RecipeError, match=r"task\.length: 384, more than the model's 64 positions; use task\.length=64"
    ):
        Squad().build(BERT, tokenizer_of(BERT))
    with pytest.raises(RecipeError, match="no dev files"):
        Squad(version="2.0", threshold="dev").complete(QuestionRecords.of([]))
    answered = {"id": "1", "question": "where ?", "answers": [{"text": "w1", "answer_start": 0}]}
    for name, more, refused in (("all", {}, True), ("some", {"answers": [], "is_impossible": True}, False)):
        path = tmp_path / f"{name}.json"
        task_model = [answered, {**answered, "id": "2", **more}]
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "w1 w2", "qas": task_model}]}]}))
        settings = Squad(version="2.0", threshold="dev", dev=str(path))
        refusal = pytest.raises(RecipeError, match="no question of the dev files is unanswerable")
        with refusal if refused else contextlib.nullcontext():
            settings.records(settings.paths("dev"))
        assert len(settings.records([str(path)], learning=True)) == 2
    with pytest.raises(RecipeError, match="threshold"):
        decode(Squad, {"threshold": "best"}, "recipe")
    for threshold in ("dev", -2.75, 1):
        settings = decode(Squad, {"version": "2.0", "threshold": threshold}, "recipe")
        assert decode(Squad, {k: v for k, v in plain(settings).items() if k != "kind"}, "recipe") == settings
        assert settings.threshold == threshold


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_public_files(shared_data: Path, version: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores equal the scripts', and a perfect network loses only what tokens and 30 of them cannot say."""
    folder, settings = shared_data / "squad", Squad(version=version)
    records = settings.records([str(folder / f"squad-v{version}-dev-part.json")])
    given = folder / f"example-predictions-v{version}-dev-part.json"
    wanted = json.loads(given.with_suffix(".official-scores.json").read_text())
    found = settings.score(records, settings.read(given, records))
    assert found == {"exact_match": wanted.get("exact"), **wanted}
    tokenizer = Tokenizer.load(shared_data / "vocab" / "bert-base-cased-vocab.txt")
    records = QuestionRecords.of(records.questions[:500])
    features = settings.features(records, reader(tokenizer, BERT))
    scores = settings.score(records, settings.predictions(records, features, certain(features)))
    assert scores["f1"] > 98


def test_the_loss_is_half_of_that_of_starts_and_of_that_of_ends() -> None:
    """By hand, with a window of which it is not known what is right; both heads take it from here."""
    scores = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]])
    labels = torch.tensor([[2, 1, 0], [-1, -1, 0]])
    start, end = scores.unbind(1)
    wanted = -(start[0].log_softmax(0)[2] + end[0].log_softmax(0)[1]) / 2
    assert float(squad._span_loss(start, end, labels)) == pytest.approx(float(wanted), rel=1e-6)


def test_what_is_cut_of_questions_and_windows_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    limits = question_windows.Limits(length=12, stride=4, longest_question=9, overlap=True)
    inputs._report_truncation(question_windows.windows(np.array([1, 5, 10]), np.array([20, 20, 3]), limits, 3), limits)
    wanted = [
        "1 questions truncated to 9 tokens",
        "1 questions truncated further, to leave room",
        "2 questions whose windows are too short to share 4 tokens share half",
    ]
    shown = capsys.readouterr().err
    assert [line for line in wanted if line not in shown] == []
    inputs._report_truncation(question_windows.windows(np.array([1]), np.array([20]), limits, 3), limits)
    assert not capsys.readouterr().err
