"""BabyLM: the zero-shot tasks of the BabyLM evaluation, read from its data folder and scored like its own program.

evaluation_data/full_eval/ blimp_filtered/ supplement_filtered/ ewok_filtered/ entity_tracking/ comps/
                           global_piqa_parallel/ global_piqa_nonparallel/ reading/ aoa/

The choices of a question are compared by the sum of their tokens' log-probabilities, in GlobalPIQA by the mean per
token. Age of acquisition is measured on the revisions of a run (`revisions_at_words`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many
from ordsmed.learn.score.labels import spearman
from ordsmed.measure.babylm import acquisition, parts, reading
from ordsmed.measure.babylm.parts import PARTS, Edition, SuiteQuestion
from ordsmed.measure.likelihood.choosing import cut_off, shorten
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import TOGETHER, Example, Finding, PairedExample, Record, fits, share

if TYPE_CHECKING:
    from tokenizers import Encoding

WAYS = ("causal", "masked")  # BabyLM's backends causal, mlm and, for hybrids, mntp
ALIKE = 1e-6  # scores this close are equal, within fp32 precision
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
LATER = "the revisions of a run, `revisions_at_words`"


@dataclass(frozen=True)
class Score:
    """Score of a part, in per cent."""

    value: float
    questions: int
    error: float = math.nan
    guess: float | None = None


@dataclass(frozen=True)
class SuiteRecord(Record):
    """Base class of the records of all parts."""

    part: str
    subset: str  # in age of acquisition, the word
    place: str

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Self:
        kind = {"reading": ReadingRecord, "aoa": AcquisitionRecord}.get(values[0], QuestionRecord)
        return cast(Self, kind(*values))


@dataclass(frozen=True)
class QuestionRecord(SuiteRecord):
    right: float  # number of the right choice; for WUG the ratio of human answers
    dropped: int  # tokens cut off because the text was too long
    options: list[list[float]]  # score and number of tokens of each choice

    def values(self) -> list[float]:
        """Return the scores that choices are compared by: sums, or means per token in GlobalPIQA."""
        return [total / count if self.part.startswith("global_piqa") else total for total, count in self.options]

    def first(self) -> float:
        """Return the first choice's share of the probability, in fp32 so that equal scores get equal ranks."""
        scores = np.asarray([total for total, _ in self.options], np.float32)
        shares = np.exp(scores - scores.max())
        return float(shares[0] / shares.sum())


@dataclass(frozen=True)
class ReadingRecord(SuiteRecord):
    numbers: list[float | None]  # `reading.NUMBERS`, then the surprisal of the word and of the previous word


@dataclass(frozen=True)
class AcquisitionRecord(SuiteRecord):
    surprisal: float
    guessed: float  # surprisal of a random guess


@dataclass(frozen=True)
class BabyLmSuite(Choice):
    """Scores of the parts under their official names, and the official averages if no part is missing."""

    files: tuple[str, ...] = ()
    """the folder `evaluation_data/full_eval`, or folders of parts, such as `ewok_filtered`"""
    way: str = ""
    """causal, or masked (one token at a time); empty: the model's default"""
    edition: Edition = "2026"
    """2025: EWoK compares two targets after one context, the first of equal scores counts, WUG instead of GlobalPIQA"""
    part: str = ""
    """a single part: blimp, blimp_supplement, ewok, entity_tracking, comps, global_piqa_parallel,
    global_piqa_nonparallel, wug_adj, wug_past, reading or aoa"""
    superglue: float | None = None
    """score of (Super)GLUE after fine-tuning, in per cent; averages need it"""

    RECORD: ClassVar = SuiteRecord
    best: ClassVar[bool] = False
    prefers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        known = [part.name for part in PARTS.values() if self.edition in part.sizes]
        if self.part and self.part not in known:
            raise ValueError(f"part: found {self.part}; wanted {' or '.join(known)}")

    @cached_property
    def folders(self) -> dict[str, Path]:
        return parts.folders(self.files, self.edition, self.part)

    @property
    def at_once(self) -> dict[str, Path]:
        """Folders of the parts to run on one model: age of acquisition only if it is the only part."""
        return {name: folder for name, folder in self.folders.items() if name != "aoa" or self.part}

    def paths(self) -> list[Path]:
        return [path for name, folder in self.at_once.items() for path in parts.files(name, folder)]

    def fits(self, scorer: Scorer, location: str) -> str:
        if scorer.way not in WAYS:
            raise RecipeError(location, f"a model that is read the way `{scorer.way}`", " or ".join(WAYS))
        self.paths()
        return "" if _has_start_token(scorer) else "the first token of a text is not scored, as there is no start token"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        for name, folder in self.at_once.items():
            if name == "reading":
                yield from _words(scorer, folder)
            elif name == "aoa":
                yield from _acquired(scorer, folder, self.edition)
            else:
                yield from _choices(scorer, name, parts.questions(name, folder, self.edition))

    def record(self, example: Example, scores: list[Scores]) -> SuiteRecord:
        name, *about = example.about
        if name == "reading":
            location, pieces, numbers = about
            totals = [-score.logs[0] for score in scores]
            surprisal_before = float(sum(totals[pieces:])) if totals[pieces:] else None
            return ReadingRecord(name, "", location, [*numbers, float(sum(totals[:pieces])), surprisal_before])
        if name == "aoa":
            word, location, guessed = about
            return AcquisitionRecord(name, word, location, -scores[0].total, guessed)
        subset, location, right, dropped, item_numbers = about
        options = [[scores[n].total, len(scores[n].logs)] for n in item_numbers]
        return QuestionRecord(name, subset, location, right, dropped, options)

    def finding(self, records: list[SuiteRecord]) -> Finding:
        return self._finding(records, {})

    def with_revisions(self, records: list[SuiteRecord], revisions: Mapping[float, list[SuiteRecord]]) -> Finding:
        return self._finding(records, revisions)

    def at_revisions(self) -> BabyLmSuite | None:
        return replace(self, part="aoa") if "aoa" in self.folders and acquisition.has_fits() else None

    def _finding(self, records: list[SuiteRecord], revisions: Mapping[float, list[SuiteRecord]]) -> Finding:
        by: dict[str, list[Any]] = defaultdict(list)
        for record in records:
            by[record.part].append(record)
        scores, notes = self._choice_scores(by), [self._ties(records), _cut_note(records)]
        tables: list[tuple[str, list[str], list[list[Any]]]] = []
        if "reading" in by:
            scores |= _reading_scores(by["reading"])
            tables.append(_regressions(by["reading"]))
        if "aoa" in by:
            surprisals = [record.surprisal for record in by["aoa"]]
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

    def _choice_scores(self, by: Mapping[str, list[Any]]) -> dict[str, Score]:
        scores = {}
        for name, records in by.items():
            if name in ("wug_adj", "wug_past"):
                chosen = [record.first() for record in records]
                scores[name] = Score(100 * spearman([record.right for record in records], chosen), len(records))
            elif PARTS[name].guess is not None:
                scores[name] = _accuracy(name, records, self._share)
        pair = [scores[name] for name in ("global_piqa_parallel", "global_piqa_nonparallel") if name in scores]
        if len(pair) == 2:
            error = math.hypot(*(score.error for score in pair)) / 2
            mean, count = sum(score.value for score in pair) / 2, sum(score.questions for score in pair)
            scores["global_piqa"] = Score(mean, count, error, sum(score.guess or 0 for score in pair) / 2)
        return scores

    def _share(self, record: QuestionRecord) -> float:
        """Return the credit for an answer, from 0 to 1.

        Among choices with equal scores, the program of 2025 takes the first. That of 2026 draws one, so the credit is
        its expected value.
        """
        values = record.values()
        best = [n for n, value in enumerate(values) if value >= max(values) - ALIKE]
        if self.edition == "2025":
            return float(best[0] == record.right)
        return (record.right in best) / len(best)

    def _ties(self, records: Sequence[SuiteRecord]) -> str:
        all_values = [record.values() for record in _questions(records)]
        ties = sum(sum(v >= max(values) - ALIKE for v in values) > 1 for values in all_values)
        options = (
            "the first counts" if self.edition == "2025" else "each gets an equal share, where the program draws one"
        )
        return f"{many(ties, 'question')} with several likeliest choices: {options}" if ties else ""

    def _acquisition(self, revisions: Mapping[float, list[Any]]) -> tuple[Score, str]:
        known = {
            words_of_training: [(row.subset, row.surprisal, row.guessed) for row in rows]
            for words_of_training, rows in revisions.items()
        }
        ages = acquisition.children(parts.files("aoa", self.folders["aoa"])[1])
        fit = acquisition.compare(self.edition, acquisition.curves(self.edition, known), ages)
        note = f"AoA over {many(len(revisions), 'revision')}: {many(fit.words, 'word')} with both ages known"
        return Score(100 * fit.correlation, max(map(len, revisions.values()))), note

    def _is_suite(self) -> bool:
        return not self.part and any(Path(location) not in self.folders.values() for location in self.files)

    def _averages(self, scores: Mapping[str, Score]) -> tuple[dict[str, Score], str]:
        if self.edition == "2025":
            return {}, "the program of 2025 reports no average"
        missing = [name for name in (*NLP, *HUMAN) if not self._is_whole(name, scores)]
        result = {}
        for average, names in AVERAGES.items():
            if not set(names) & set(missing):
                result[average] = Score(sum(scores[name].value for name in names) / len(names), 0)
        called = ", ".join(_official_name(name) for name in missing)
        return result, f"no average, as parts are missing or incomplete: {called}" if missing else ""

    def _is_whole(self, name: str, scores: Mapping[str, Score]) -> bool:
        size = sum(part.sizes.get(self.edition, 0) for part in PARTS.values() if part.name.startswith(name))
        size = PARTS[name].sizes[self.edition] if name in PARTS else size
        return name in scores and (name == "superglue" or scores[name].questions == size)

    def _rows(self, scores: Mapping[str, Score]) -> list[list[Any]]:
        sizes = {name: part.sizes[self.edition] for name, part in PARTS.items() if self.edition in part.sizes}
        names = [*dict.fromkeys((*sizes, *scores, *((*NLP, *HUMAN) if self.edition == "2026" else ())))]
        rows: list[list[Any]] = []
        for name in names:
            score, size = scores.get(name), sizes.get(name)
            if score is None:
                rows.append([_official_name(name), f"missing: {self._requirement(name)}", None, None, None, size])
            else:
                error = score.error if math.isfinite(score.error) else None
                rows.append([_official_name(name), score.value, error, score.guess, score.questions or None, size])
        return rows

    def _requirement(self, name: str) -> str:
        if name == "aoa" and name in self.folders:
            return LATER if acquisition.has_fits() else "pip install scipy"
        if name == "superglue":
            return "superglue=..., after fine-tuning"
        return PARTS[name].folders[0] if name in PARTS else "both halves"

    def as_line(self, record: SuiteRecord) -> dict[str, Any]:
        about = {"part": record.part, **({"subset": record.subset} if record.subset else {}), "place": record.place}
        if isinstance(record, ReadingRecord):
            return about | dict(zip((*reading.NUMBERS, "pred", "prev_pred"), record.numbers, strict=True))
        if isinstance(record, AcquisitionRecord):
            return about | {"surprisal": record.surprisal}
        assert isinstance(record, QuestionRecord)
        answer: dict[str, Any] = (
            {"probability": record.first(), "ratio": record.right}
            if record.part in ("wug_adj", "wug_past")
            else {"right": record.right, "share": self._share(record)}
        )
        return about | {"scores": record.values()} | answer

    def compared(self, records: list[SuiteRecord]) -> list[PairedExample]:
        return [
            PairedExample(record.place, f"{record.part} {record.subset}".strip(), {"right": 100 * self._share(record)})
            for record in _questions(records)
        ]


def _choices(scorer: Scorer, name: str, questions: Iterator[SuiteQuestion]) -> Iterator[Example]:
    """Yield the distinct choices of each question; `about` ends with the item number of every choice."""
    while group := list(islice(questions, TOGETHER)):
        texts = list(dict.fromkeys(text for question in group for text, _ in parts.check(question).sentences))
        cuts = scorer.tokenizer.pipeline.encode_batch(texts, add_special_tokens=False)
        known = dict(zip(texts, cuts, strict=True))
        for question in group:
            choices = list(dict.fromkeys(question.sentences))
            items = [_item(scorer, known[text], at) for text, at in choices]
            shown = [shorten(scorer, item) for item in items]
            for item, (text, _) in zip(shown, choices, strict=True):
                fits(scorer, item, question.place, text)
            dropped = max(len(a) - len(b) for a, b in zip(items, shown, strict=True))
            item_numbers = [choices.index(choice) for choice in question.sentences]
            yield Example(tuple(shown), [name, question.subset, question.place, question.right, dropped, item_numbers])


def _item(scorer: Scorer, cut: Encoding, at: int) -> Item:
    """Score the tokens that reach beyond character `at`; without a start token, never the first one."""
    first = next((n for n, (_, end) in enumerate(cut.offsets) if end > at), len(cut.ids))
    sign = _has_start_token(scorer)
    return Item(np.asarray(cut.ids, np.int64), first if sign else max(first, 1), sign)


def _has_start_token(scorer: Scorer) -> bool:
    """Return whether exported models of this kind put a start token before each text."""
    return scorer.way != "causal" or (scorer.tokenizer.separator is not None and scorer.tokenizer.begins_texts)


def _words(scorer: Scorer, folder: Path) -> Iterator[Example]:
    for row in reading.words(parts.files("reading", folder)[0]):
        pieces = reading.items(scorer, row.context, row.word)
        both = [*pieces, *(reading.items(scorer, *row.before) if row.before else [])]
        items = tuple(replace(item, sign=_has_start_token(scorer)) for item in both)
        for item in items:
            fits(scorer, item, row.place, row.word)
        yield Example(items, ["reading", row.place, len(pieces), row.numbers])


def _acquired(scorer: Scorer, folder: Path, edition: Edition) -> Iterator[Example]:
    for location, word, context in acquisition.contexts(parts.files("aoa", folder)[0]):
        text = f"{context.strip()} {word.strip()}"
        question = parts.check(SuiteQuestion(location, word, [(text, len(text) - len(word.strip()))], 0))
        [example] = _choices(scorer, "aoa", iter([question]))
        yield replace(example, about=["aoa", word, location, acquisition.guessed(scorer, word, edition)])


def _questions(records: Sequence[SuiteRecord]) -> list[QuestionRecord]:
    return [row for row in records if isinstance(row, QuestionRecord) and PARTS[row.part].guess is not None]


def _accuracy(name: str, records: Sequence[QuestionRecord], right: Callable[[QuestionRecord], float]) -> Score:
    by: dict[str, list[float]] = defaultdict(list)
    for record in records:
        by[record.subset].append(right(record))
    weights, shares = parts.weights(name, list(by)), {key: share(sum(v), len(v)) for key, v in by.items()}
    mean = sum(weights[key] * shares[key][0] for key in by)
    return Score(mean, len(records), math.hypot(*(weights[key] * shares[key][1] for key in by)), PARTS[name].guess)


def _reading_scores(records: Sequence[ReadingRecord]) -> dict[str, Score]:
    gains = {outcome: gain.percent for outcome, gain in _gains(records)}
    eye = sum(gains[outcome] for outcome in reading.EYE) / len(reading.EYE)
    both = {"reading_self_paced": gains[reading.SELF_PACED], "reading_eye_tracking": eye}
    return {name: Score(value, len(records)) for name, value in {"reading": sum(both.values()) / 2, **both}.items()}


def _gains(records: Sequence[ReadingRecord]) -> Iterator[tuple[str, reading.Gain]]:
    """Yield the gain for each reading time; self-paced reading also depends on the previous word."""
    rows, names = [record.numbers for record in records], (*reading.NUMBERS, "pred", "prev_pred")
    for outcome in (*reading.EYE, reading.SELF_PACED):
        known = reading.SPILLED if outcome == reading.SELF_PACED else reading.PLAIN
        yield outcome, reading.gain(rows, names, outcome, known)


def _regressions(records: Sequence[ReadingRecord]) -> tuple[str, list[str], list[list[Any]]]:
    rows: list[list[Any]] = [
        [outcome, gain.rows, gain.without, gain.with_it, gain.percent, gain.log_likelihood]
        for outcome, gain in _gains(records)
    ]
    return "reading times", ["", "words", "R^2 without", "with surprisal", "gain, %", "nats gained"], rows


def _has_subsets(records: Sequence[SuiteRecord]) -> bool:
    return PARTS[records[0].part].guess is not None and len({record.subset for record in records}) > 1


def _subsets(
    name: str, records: Sequence[QuestionRecord], right: Callable[[QuestionRecord], float]
) -> tuple[str, list[str], list[list[Any]]]:
    by: dict[str, list[float]] = defaultdict(list)
    for record in records:
        by[record.subset].append(right(record))
    rows = [[key, len(marks), *share(sum(marks), len(marks))] for key, marks in by.items()]
    return f"{PARTS[name].called} by subset", ["", "questions", "right", "error"], rows


def _cut_note(records: Sequence[SuiteRecord]) -> str:
    return cut_off([record.dropped for record in records if isinstance(record, QuestionRecord)])


def _official_name(name: str) -> str:
    return CALLED.get(name) or PARTS[name].called
