"""The official scores of SQuAD 1.1 and 2.0, as their scripts compute them, and the same by kinds of questions.

    gold and predicted text -> lower case, no ASCII punctuation, no a/an/the, single spaces -> words
    exact: the same words      f1: 2PR/(P+R) of the words in common, with multiplicity
    the best of several gold texts counts; 1.1 counts a missing prediction as 0, 2.0 ignores it
    if both texts have no words, F1 is 0 in 1.1 and 1 in 2.0

Sums are computed in the order of questions, as in the scripts, so that the last digit agrees.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say
from ordsmed.text.labelled.questions import Question, json_values, shortened

PREDICTIONS = '{"id": "answer", ...} as in predictions.json'
NULL_ODDS = '{"id": number, ...} as in null_odds.json'

_DROPPED = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def scored(
    version: str, questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float] | None
) -> dict[str, float]:
    """Return the scores of a version, with exact_match and f1 for both versions; 2.0 also has other names.

    Predictions are scored as they are; null odds, from which they were made, only give the best_ scores.
    """
    if version == "1.1":
        return score_v1(questions, predictions)
    scores = score_v2(questions, predictions, null_odds, math.inf)
    return {"exact_match": scores["exact"], **scores}


def score_v1(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return the scores of SQuAD 1.1 in percent: exact_match and f1 over all questions."""
    _report_missing(questions, predictions, "counted as wrong")
    if bare := [question.id for question in questions if not question.answers]:
        problem = f"{many(len(bare), 'question')} without an answer ({shortened(bare)})"
        raise DataError("the questions", problem, "at least one for each", "score them as SQuAD 2.0")
    pairs = [(question.answers, predictions[question.id]) for question in questions if question.id in predictions]
    exact = [max(float(words(gold.text) == words(text)) for gold in golds) for golds, text in pairs]
    f1 = [max(_overlap(words(gold.text), words(text)) for gold in golds) for golds, text in pairs]
    return {"exact_match": _percent(exact, len(questions)), "f1": _percent(f1, len(questions))}


def score_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Return the scores of SQuAD 2.0 in percent, over all, HasAns_ and NoAns_; with null odds also best_ scores.

    A prediction whose null odds are above the threshold counts as no answer. Missing predictions are ignored; the
    script fails at them when it computes HasAns_ and NoAns_.
    """
    _report_missing(questions, predictions, "left out")
    exact, f1 = raw_scores(questions, predictions)
    answered = {question.id: bool(question.answers) for question in questions}
    odds = null_odds if null_odds is not None else dict.fromkeys(exact, 0.0)
    if bare := [name for name in exact if name not in odds]:
        raise DataError("null odds", f"none for {many(len(bare), 'prediction')} ({shortened(bare)})", NULL_ODDS)
    scores: dict[str, float] = {}
    for part, wanted in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        if names := [name for name in exact if answered[name] in wanted]:
            for measure, raw in (("exact", exact), ("f1", f1)):
                values = [float(not answered[name]) if odds[name] > threshold else raw[name] for name in names]
                scores[f"{part}{measure}"] = _percent(values, len(names))
            scores[f"{part}total"] = len(names)
    if null_odds is not None:
        for measure, raw in (("exact", exact), ("f1", f1)):
            best = best_threshold(null_odds, answered, raw, predictions)
            scores[f"best_{measure}"], scores[f"best_{measure}_thresh"] = best
    return scores


def raw_scores(
    questions: Iterable[Question], predictions: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return exact match and F1 of every prediction by id, as in SQuAD 2.0; without gold answers, "" is right."""
    exact, f1 = {}, {}
    for question in questions:
        if question.id in predictions:
            golds = [gold_words for gold in question.answers if (gold_words := words(gold.text))] or [[]]
            guess = words(predictions[question.id])
            exact[question.id] = float(guess in golds)
            f1[question.id] = max(_overlap(gold, guess) if gold and guess else float(gold == guess) for gold in golds)
    return exact, f1


def best_threshold(
    null_odds: Mapping[str, float],
    answered: Mapping[str, bool],
    raw: Mapping[str, float],
    predictions: Mapping[str, str],
) -> tuple[float, float]:
    """Return the best score in percent, and its threshold: null odds above it mean no answer.

    As in the script, the sweep starts with no answers (threshold 0, whatever the odds are) and adds questions by rising
    odds, in the order of `null_odds` if odds are equal. The first of equal scores is returned.
    """
    score = best = float(sum(not has_answer for has_answer in answered.values()))
    threshold = 0.0
    for name in sorted(null_odds, key=null_odds.__getitem__):
        if name in raw:
            score += raw[name] if answered[name] else -float(bool(predictions[name]))
            if score > best:
                best, threshold = score, null_odds[name]
    return 100.0 * best / len(raw), threshold


def fitted_threshold(
    questions: Iterable[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Return the threshold of null odds with the best F1; questions with equal odds stay together.

    It is half-way to the next odds, so that rounding errors do not change answers.
    """
    questions = list(questions)
    _, f1 = raw_scores(questions, predictions)
    gains: dict[float, float] = {}
    for question in questions:
        gain = f1[question.id] if question.answers else -float(bool(predictions[question.id]))
        gains[null_odds[question.id]] = gains.get(null_odds[question.id], 0.0) + gain
    ordered = sorted(gains)
    best, threshold, total = 0.0, ordered[0] - 1.0, 0.0
    for odds, following in zip(ordered, [*ordered[1:], ordered[-1] + 2.0], strict=True):
        total += gains[odds]
        if total > best:
            best, threshold = total, (odds + following) / 2
    return threshold


def written(name: str, value: object, form: str = ".4g") -> str:
    """Format a score; a threshold is written in full, because a rounded one may give other answers."""
    return f"{value:{form}}" if isinstance(value, float) and not name.endswith("thresh") else f"{value}"


def words(text: str) -> list[str]:
    """Return the normalized words of an answer, which are compared."""
    return _ARTICLES.sub(" ", text.lower().translate(_DROPPED)).split()


def details(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, dict[str, dict[str, float]]]:
    """Return exact, F1 (percent) and total by kind of question and of answer; missing predictions are wrong."""
    exact, f1 = raw_scores(questions, predictions)
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for title, (kinds, kind_of) in GROUPS.items():
        groups: dict[str, list[str]] = {kind: [] for kind in kinds}
        for question in questions:
            groups[kind_of(question)].append(question.id)
        table = tables[title] = {}
        for kind, names in groups.items():
            if names:
                both = [_percent([scores.get(name, 0.0) for name in names], len(names)) for scores in (exact, f1)]
                table[kind] = {"exact": both[0], "f1": both[1], "total": len(names)}
    return tables


def read_predictions(path: Path) -> dict[str, str]:
    return _by_id(path, str, PREDICTIONS)


def read_null_odds(path: Path) -> dict[str, float]:
    return {name: float(number) for name, number in _by_id(path, (int, float), NULL_ODDS).items()}


def _overlap(gold: list[str], guess: list[str]) -> float:
    same = (Counter(gold) & Counter(guess)).total()
    if not same:
        return 0.0
    precision, recall = same / len(guess), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def _percent(scores: Iterable[float], count: int) -> float:
    total = 0.0
    for score in scores:  # not sum(): since Python 3.12 it compensates rounding errors, which
        total += score  # the scripts' numbers include
    return 100.0 * total / count


def _report_missing(questions: Sequence[Question], predictions: Mapping[str, str], consequence: str) -> None:
    names = {question.id for question in questions}
    missing = [question.id for question in questions if question.id not in predictions]
    strange = [name for name in predictions if name not in names]
    if len(missing) == len(questions):
        problem = f"none for any of {many(len(questions), 'question')} ({shortened(missing)})"
        raise DataError("predictions", problem, "some", f"those found are for {shortened(strange) or 'no question'}")
    if missing:
        say(f"no prediction for {len(missing):,} of {len(questions):,} questions, {consequence}: {shortened(missing)}")
    if strange:
        say(f"{many(len(strange), 'prediction')} for questions outside the data, left out: {shortened(strange)}")


def _by_id(path: Path, kind: type | tuple[type, ...], wanted: str) -> dict[str, Any]:
    values = list(json_values(path))
    predictions = values[0][1] if len(values) == 1 else None
    if not isinstance(predictions, dict):
        problem = f"{len(values)} JSON values" if len(values) != 1 else f"a JSON {type(predictions).__name__}"
        raise DataError(path, problem, wanted)
    for name, value in predictions.items():
        if isinstance(value, bool) or not isinstance(value, kind) or value != value:
            raise DataError(path, f"`{name}` is {_described(value)}", wanted, "name the other file")
    return predictions


def _described(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "text" in value[0]:
        return "several answers, as in nbest_predictions.json"
    if isinstance(value, float):
        return f"{value}, as in null_odds.json" if value == value else "NaN"
    return f"a JSON {type(value).__name__}"


LENGTHS = ("1 to 5 words", "6 to 10 words", "11 to 15 words", "16 to 20 words", "more than 20 words")
QUESTION_WORDS = {  # English, and Norwegian in both written standards
    "how many": "how many|how much|hvor mange|hvor mye|kor mange|kor mykje",
    "who": "who|whom|whose|hvem|kven",
    "what": "what|hva|kva",
    "when": "when|når",
    "where": "where|hvor|kor|kvar",
    "why": "why|hvorfor|kvifor",
    "how": "how|hvordan|korleis",
    "which": "which|hvilken|hvilket|hvilke",
}
ANSWER_KINDS = ("number", "date", "name", "other phrase", "no answer")

_ASKED = re.compile("|".join(rf"(\b(?:{words})\b)" for words in QUESTION_WORDS.values()), re.IGNORECASE)
_YEAR = re.compile(r"(?<![$€£.,\d])\b(?:1\d|20)\d\ds?\W*$")
_DAY = re.compile(r"\b\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b")
_MONTH = re.compile(
    r"\b(?:january?|februar[y]?|march|mars|april|may|mai|june|juni|july|juli|august|"
    r"september|o[ck]tober|november|de[cs]ember)\b",
    re.IGNORECASE,
)


def _length(question: Question) -> str:
    return LENGTHS[min(max(len(question.question.split()) - 1, 0) // 5, len(LENGTHS) - 1)]


def _asked(question: Question) -> str:
    match = _ASKED.search(question.question)
    return list(QUESTION_WORDS)[match.lastindex - 1] if match and match.lastindex else "other"


def _answer_kind(question: Question) -> str:
    """Return the kind of the first gold text; spelled-out numbers are phrases.

    A date ends in a year, or has a month next to a number. A number begins with a digit. A name begins in upper case,
    as do all its words of more than three characters.
    """
    if not question.answers:
        return "no answer"
    text = question.answers[0].text.strip()
    if _YEAR.search(text) or _DAY.search(text) or (_MONTH.search(text) and (" " not in text or re.search(r"\d", text))):
        return "date"
    if re.match(r"\W*\d", text):
        return "number"
    parts = re.findall(r"\w+", _ARTICLES.sub(" ", text))
    heads = parts[:1] + [part for part in parts if len(part) > 3]
    return "name" if heads and all(part[0].isupper() for part in heads) else "other phrase"


GROUPS: dict[str, tuple[Iterable[str], Callable[[Question], str]]] = {
    "question length": (LENGTHS, _length),
    "question word": ([*QUESTION_WORDS, "other"], _asked),
    "kind of answer": (ANSWER_KINDS, _answer_kind),
    "answer": (("has answer", "no answer"), lambda question: "has answer" if question.answers else "no answer"),
}
