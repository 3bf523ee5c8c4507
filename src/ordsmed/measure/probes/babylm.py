"""BabyLM: the zero-shot tasks of its evaluation, from the folder that it reads, counted as its program counts.

evaluation_data/full_eval/ blimp_filtered/ supplement_filtered/ ewok_filtered/ entity_tracking/ comps/
                           global_piqa_parallel/ global_piqa_nonparallel/ reading/ aoa/

A question's choices are compared by the sum of their tokens' log-probabilities, those of GlobalPIQA by the mean a
token. Age of acquisition is asked of a run's weights at numbers of words (`revisions_at_words`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many
from ordsmed.learn.score.labels import spearman
from ordsmed.measure.babylm import acquisition, parts, reading
from ordsmed.measure.babylm.parts import PARTS, Edition, SuiteQuestion
from ordsmed.measure.likelihood.choosing import cut_off, shortened
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import TOGETHER, Example, Finding, PairedExample, Record, fits, share

if TYPE_CHECKING:
    from tokenizers import Encoding

WAYS = ("causal", "masked")  # its backends causal, mlm and, of a hybrid, mntp
ALIKE = 1e-6  # scores no further apart are equal: fp32 does not tell them apart
NLP = ("blimp", "blimp_supplement", "ewok", "entity_tracking", "comps", "superglue", "global_piqa")
HUMAN = ("reading", "aoa")
AVERAGES = {"nlp_average": NLP, "human_like_average": HUMAN, "overall_average": (*NLP, *HUMAN)}
CALLED = {
    "global_piqa": "GlobalPIQA",
    "superglue": "(Super)GLUE",
    "nlp_average": "NLP Average",
    "reading_self_paced": "Self-paced Reading",
    "reading_eye_tracking": "Eye Tracking",
    "human_like_average": "Human-like Average",
    "overall_average": "Overall Average",
}
HEAD = ["", "score", "error", "guessing", "questions", "of"]
LATER = "a run's weights by words, `revisions_at_words`"


@dataclass(frozen=True)
class Score:
    """Of a part, per cent."""

    value: float
    questions: int
    error: float = math.nan
    guess: float | None = None


@dataclass(frozen=True)
class BabyLmSuite(Choice):
    """Its parts by their official names, and its averages where none is missing."""

    files: tuple[str, ...] = ()
    """its folder `evaluation_data/full_eval`, or folders of parts in it, such as `ewok_filtered`"""
    way: str = ""
    """causal, or masked (each token hidden by itself); empty: the model's usual one"""
    edition: Edition = "2026"
    """2025: two targets of EWoK behind one context, equal scores right where the first is, WUG, no GlobalPIQA"""
    part: str = ""
    """one part alone: blimp, blimp_supplement, ewok, entity_tracking, comps, global_piqa_parallel,
    global_piqa_nonparallel, wug_adj, wug_past, reading or aoa"""
    superglue: float | None = None
    """the score of (Super)GLUE, per cent, as fine-tunings found it: averages need it"""

    best: ClassVar[bool] = False
    prefers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        known = [part.name for part in PARTS.values() if self.edition in part.sizes]
        if self.part and self.part not in known:
            raise ValueError(f"part: found {self.part}; wanted {' or '.join(known)}")

    @cached_property
    def folders(self) -> dict[str, Path]:
        """Of each part that is there."""
        return parts.folders(self.files, self.edition, self.part)

    @property
    def at_once(self) -> dict[str, Path]:
        """Those that one model is asked: age of acquisition only where it is asked alone."""
        return {name: folder for name, folder in self.folders.items() if name != "aoa" or self.part}

    def paths(self) -> list[Path]:
        """The files that are read."""
        return [path for name, folder in self.at_once.items() for path in parts.files(name, folder)]

    def fits(self, scorer: Scorer, place: str) -> str:
        if scorer.way not in WAYS:
            raise RecipeError(place, f"a model that is read the way `{scorer.way}`", " or ".join(WAYS))
        self.paths()
        return "" if _sign(scorer) else "the first token unscored, as no sign stands before texts"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        for name, folder in self.at_once.items():
            if name == "reading":
                yield from _words(scorer, folder)
            elif name == "aoa":
                yield from _acquired(scorer, folder, self.edition)
            else:
                yield from _choices(scorer, name, parts.questions(name, folder, self.edition))

    def record(self, example: Example, scores: list[Scores]) -> Record:
        """Of choices: part, subset, place, the right one, dropped tokens, and of each its score and tokens."""
        name, *about = example.about
        if name == "reading":
            place, pieces, numbers = about
            totals = [-score.logs[0] for score in scores]
            before = float(sum(totals[pieces:])) if totals[pieces:] else None
            return [name, "", place, [*numbers, float(sum(totals[:pieces])), before]]
        if name == "aoa":
            word, place, guessed = about
            return [name, word, place, -scores[0].total, guessed]
        subset, place, right, dropped, which = about
        options = [[scores[n].total, len(scores[n].logs)] for n in which]
        return [name, subset, place, right, dropped, options]

    def finding(self, records: list[Record]) -> Finding:
        return self._finding(records, {})

    def with_revisions(self, records: list[Record], revisions: Mapping[float, list[Record]]) -> Finding:
        """What is found with the weights after so many words as well."""
        return self._finding(records, revisions)

    def at_revisions(self) -> BabyLmSuite | None:
        """What a run's weights at numbers of words are asked; None: nothing."""
        return replace(self, part="aoa") if "aoa" in self.folders and acquisition.has_fits() else None

    def _finding(self, records: list[Record], revisions: Mapping[float, list[Record]]) -> Finding:
        by: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            by[record[0]].append(record)
        scores, notes = self._choices_found(by), [self._ties(records), _cut(records)]
        tables: list[tuple[str, list[str], list[list[Any]]]] = []
        if "reading" in by:
            scores |= _reading_found(by["reading"])
            tables.append(_regressions(by["reading"]))
        if "aoa" in by:
            surprisals = [record[3] for record in by["aoa"]]
            scores["aoa_surprisal"] = Score(sum(surprisals) / len(surprisals), len(surprisals))
        if revisions:
            scores["aoa"], note = self._acquisition(revisions)
            notes.append(note)
        if self.superglue is not None:
            scores["superglue"] = Score(self.superglue, 0)
        if self._is_suite():
            averages, note = self._averages(scores)
            scores |= averages
            notes.append(note)
            tables.insert(0, (f"BabyLM {self.edition}", HEAD, self._rows(scores)))
        tables += [_subsets(name, by[name], self._share) for name in by if _has_subsets(by[name])]
        errors = {name: score.error for name, score in scores.items() if math.isfinite(score.error)}
        guessing = {name: float(score.guess) for name, score in scores.items() if score.guess is not None}
        facts: dict[str, Any] = {name: float(score.value) for name, score in scores.items()}
        return Finding(facts | {"questions": len(records)}, errors, guessing, tables, "; ".join(filter(None, notes)))

    def _choices_found(self, by: Mapping[str, list[Record]]) -> dict[str, Score]:
        """Of parts that are choices."""
        scores = {}
        for name, records in by.items():
            if name in ("wug_adj", "wug_past"):
                chosen = [_first(record) for record in records]
                scores[name] = Score(100 * spearman([record[3] for record in records], chosen), len(records))
            elif PARTS[name].guess is not None:
                scores[name] = _accuracy(name, records, self._share)
        pair = [scores[name] for name in ("global_piqa_parallel", "global_piqa_nonparallel") if name in scores]
        if len(pair) == 2:
            error = math.hypot(*(score.error for score in pair)) / 2
            mean, count = sum(score.value for score in pair) / 2, sum(score.questions for score in pair)
            scores["global_piqa"] = Score(mean, count, error, sum(score.guess or 0 for score in pair) / 2)
        return scores

    def _share(self, record: Record) -> float:
        """How right an answer is: of equal ones 2025 takes the first, 2026 draws, which comes to its share."""
        values = _values(record)
        best = [n for n, value in enumerate(values) if value >= max(values) - ALIKE]
        if self.edition == "2025":
            return float(best[0] == record[3])
        return (record[3] in best) / len(best)

    def _ties(self, records: Sequence[Record]) -> str:
        """How many have several likeliest choices."""
        ties = sum(sum(v >= max(values) - ALIKE for v in values) > 1 for values in map(_values, _questions(records)))
        how = "the first counts" if self.edition == "2025" else "each counts by its share, where the program draws one"
        return f"{many(ties, 'question')} with several likeliest choices, of which {how}" if ties else ""

    def _acquisition(self, revisions: Mapping[float, list[Record]]) -> tuple[Score, str]:
        known = {
            after: [(word, value, chance) for _, word, _, value, chance in rows] for after, rows in revisions.items()
        }
        ages = acquisition.children(parts.files("aoa", self.folders["aoa"])[1])
        fit = acquisition.compare(self.edition, acquisition.curves(self.edition, known), ages)
        note = f"AoA over {many(len(revisions), 'revision')}: {many(fit.words, 'word')} of which both ages are known"
        return Score(100 * fit.correlation, max(map(len, revisions.values()))), note

    def _is_suite(self) -> bool:
        return not self.part and any(Path(place) not in self.folders.values() for place in self.files)

    def _averages(self, scores: Mapping[str, Score]) -> tuple[dict[str, Score], str]:
        """Over whole parts, all that belong to an average, or none; and why not."""
        if self.edition == "2025":
            return {}, "its program of 2025 tells no average"
        lacking = [name for name in (*NLP, *HUMAN) if not self._is_whole(name, scores)]
        result = {}
        for average, names in AVERAGES.items():
            if not set(names) & set(lacking):
                result[average] = Score(sum(scores[name].value for name in names) / len(names), 0)
        called = ", ".join(_called(name) for name in lacking)
        return result, f"no average where a part is missing or not whole: {called}" if lacking else ""

    def _is_whole(self, name: str, scores: Mapping[str, Score]) -> bool:
        size = sum(part.sizes.get(self.edition, 0) for part in PARTS.values() if part.name.startswith(name))
        size = PARTS[name].sizes[self.edition] if name in PARTS else size
        return name in scores and (name == "superglue" or scores[name].questions == size)

    def _rows(self, scores: Mapping[str, Score]) -> list[list[Any]]:
        """By the official names; of a part that is missing what it would be read of."""
        sizes = {name: part.sizes[self.edition] for name, part in PARTS.items() if self.edition in part.sizes}
        names = [*dict.fromkeys((*sizes, *scores, *((*NLP, *HUMAN) if self.edition == "2026" else ())))]
        rows: list[list[Any]] = []
        for name in names:
            score, size = scores.get(name), sizes.get(name)
            if score is None:
                rows.append([_called(name), f"missing: {self._wanted(name)}", None, None, None, size])
            else:
                error = score.error if math.isfinite(score.error) else None
                rows.append([_called(name), score.value, error, score.guess, score.questions or None, size])
        return rows

    def _wanted(self, name: str) -> str:
        """What a missing part would be read of."""
        if name == "aoa" and name in self.folders:
            return LATER if acquisition.has_fits() else "pip install scipy"
        if name == "superglue":
            return "superglue=..., of fine-tunings"
        return PARTS[name].folders[0] if name in PARTS else "both halves"

    def as_line(self, record: Record) -> dict[str, Any]:
        name, subset, place = record[:3]
        about = {"part": name, **({"subset": subset} if subset else {}), "place": place}
        if name == "reading":
            return about | dict(zip((*reading.NUMBERS, "pred", "prev_pred"), record[3], strict=True))
        if name == "aoa":
            return about | {"surprisal": record[3]}
        scores = _values(record)
        answer: dict[str, Any] = (
            {"probability": _first(record), "ratio": record[3]}
            if name in ("wug_adj", "wug_past")
            else {"right": record[3], "share": self._share(record)}
        )
        return about | {"scores": scores} | answer

    def compared(self, records: list[Record]) -> list[PairedExample]:
        return [
            PairedExample(record[2], f"{record[0]} {record[1]}".strip(), {"right": 100 * self._share(record)})
            for record in _questions(records)
        ]


def _choices(scorer: Scorer, name: str, questions: Iterator[SuiteQuestion]) -> Iterator[Example]:
    """Of each question its different choices, and which of them each is."""
    while group := list(islice(questions, TOGETHER)):
        texts = list(dict.fromkeys(text for question in group for text, _ in parts.check(question).sentences))
        cuts = scorer.tokenizer.pipeline.encode_batch(texts, add_special_tokens=False)
        known = dict(zip(texts, cuts, strict=True))
        for question in group:
            choices = list(dict.fromkeys(question.sentences))
            items = [_item(scorer, known[text], at) for text, at in choices]
            shown = [shortened(scorer, item) for item in items]
            for item, (text, _) in zip(shown, choices, strict=True):
                fits(scorer, item, question.place, text)
            dropped = max(len(a) - len(b) for a, b in zip(items, shown, strict=True))
            which = [choices.index(choice) for choice in question.sentences]
            yield Example(tuple(shown), [name, question.subset, question.place, question.right, dropped, which])


def _item(scorer: Scorer, cut: Encoding, at: int) -> Item:
    """Scored are tokens that reach beyond a character; without a sign before it nothing tells a text's first."""
    first = next((n for n, (_, end) in enumerate(cut.offsets) if end > at), len(cut.ids))
    sign = _sign(scorer)
    return Item(np.asarray(cut.ids, np.int64), first if sign else max(first, 1), sign)


def _sign(scorer: Scorer) -> bool:
    """Does a sign stand before each text in the folder that `export` writes?"""
    return scorer.way != "causal" or (scorer.tokenizer.separator is not None and scorer.tokenizer.begins_texts)


def _words(scorer: Scorer, folder: Path) -> Iterator[Example]:
    """Of each word its pieces, and those of the word before it."""
    for row in reading.words(parts.files("reading", folder)[0]):
        pieces = reading.items(scorer, row.context, row.word)
        both = [*pieces, *(reading.items(scorer, *row.before) if row.before else [])]
        items = tuple(replace(item, sign=_sign(scorer)) for item in both)
        for item in items:
            fits(scorer, item, row.place, row.word)
        yield Example(items, ["reading", row.place, len(pieces), row.numbers])


def _acquired(scorer: Scorer, folder: Path, edition: Edition) -> Iterator[Example]:
    """Each word behind each of its contexts."""
    for place, word, context in acquisition.contexts(parts.files("aoa", folder)[0]):
        text = f"{context.strip()} {word.strip()}"
        question = parts.check(SuiteQuestion(place, word, [(text, len(text) - len(word.strip()))], 0))
        [example] = _choices(scorer, "aoa", iter([question]))
        yield replace(example, about=["aoa", word, place, acquisition.guessed(scorer, word, edition)])


def _questions(records: Sequence[Record]) -> list[Record]:
    """Those that have a right answer."""
    return [record for record in records if PARTS[record[0]].guess is not None]


def _values(record: Record) -> list[float]:
    """What choices are compared by: sums, of GlobalPIQA means a token."""
    return [total / count if record[0].startswith("global_piqa") else total for total, count in record[5]]


def _first(record: Record) -> float:
    """The first one's share of the probability, in fp32, whose equal ones have equal ranks."""
    scores = np.asarray([total for total, _ in record[5]], np.float32)
    shares = np.exp(scores - scores.max())
    return float(shares[0] / shares.sum())


def _accuracy(name: str, records: Sequence[Record], right: Callable[[Record], float]) -> Score:
    """The mean over subsets, as their weights say, and its error."""
    by: dict[str, list[float]] = defaultdict(list)
    for record in records:
        by[record[1]].append(right(record))
    weights, shares = parts.weights(name, list(by)), {key: share(sum(v), len(v)) for key, v in by.items()}
    mean = sum(weights[key] * shares[key][0] for key in by)
    return Score(mean, len(records), math.hypot(*(weights[key] * shares[key][1] for key in by)), PARTS[name].guess)


def _reading_found(records: Sequence[Record]) -> dict[str, Score]:
    gains = {outcome: gain.percent for outcome, gain in _gains(records)}
    eye = sum(gains[outcome] for outcome in reading.EYE) / len(reading.EYE)
    both = {"reading_self_paced": gains[reading.SELF_PACED], "reading_eye_tracking": eye}
    return {name: Score(value, len(records)) for name, value in {"reading": sum(both.values()) / 2, **both}.items()}


def _gains(records: Sequence[Record]) -> Iterator[tuple[str, reading.Gain]]:
    """Of how long eyes stay, and of reading at one's own pace, where the word before counts too."""
    rows, names = [record[3] for record in records], (*reading.NUMBERS, "pred", "prev_pred")
    for outcome in (*reading.EYE, reading.SELF_PACED):
        known = reading.SPILLED if outcome == reading.SELF_PACED else reading.PLAIN
        yield outcome, reading.gain(rows, names, outcome, known)


def _regressions(records: Sequence[Record]) -> tuple[str, list[str], list[list[Any]]]:
    rows: list[list[Any]] = [
        [outcome, gain.rows, gain.without, gain.with_it, gain.percent, gain.log_likelihood]
        for outcome, gain in _gains(records)
    ]
    return "reading times", ["", "words", "R^2 without", "with surprisal", "gain, %", "nats gained"], rows


def _has_subsets(records: Sequence[Record]) -> bool:
    return PARTS[records[0][0]].guess is not None and len({record[1] for record in records}) > 1


def _subsets(
    name: str, records: Sequence[Record], right: Callable[[Record], float]
) -> tuple[str, list[str], list[list[Any]]]:
    """The share right of each."""
    by: dict[str, list[float]] = defaultdict(list)
    for record in records:
        by[record[1]].append(right(record))
    rows = [[key, len(marks), *share(sum(marks), len(marks))] for key, marks in by.items()]
    return f"{PARTS[name].called} by subset", ["", "questions", "right", "error"], rows


def _cut(records: Sequence[Record]) -> str:
    return cut_off([record[4] for record in records if len(record) == 6])


def _called(name: str) -> str:
    return CALLED.get(name) or PARTS[name].called
