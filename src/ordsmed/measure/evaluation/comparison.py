"""Paired comparison of models that answered the same probe: differences with confidence intervals and paired tests.

results of A, B, C  ->  B less A, C less A  ->  a table of all scores, one per paradigm; comparison-KEY.json

Only examples that both models scored are compared. Several steps of one model are not compared, nor are windows of text
that two tokenizers cut differently.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.keys import value_key
from ordsmed.base.say import many, say
from ordsmed.base.screen import markdown
from ordsmed.learn.score.paired_tests import Clustered, clustered, holm, sign_test
from ordsmed.measure.evaluation.results import AWAY, Result, finite, probe_key
from ordsmed.measure.likelihood.probe import PairedExample
from ordsmed.weights.probe_results import said, who

CHANCE = 0.05  # p-value below which a difference counts
HEAD = ["probe", "files", "score", "model", "less", "difference", "± error", "from", "to", "p", "examples", "groups"]


@dataclass(frozen=True)
class Paradigm:
    name: str
    pairs: int
    first: float
    second: float
    more: int  # examples that only the second model got right
    less: int  # examples that only the first model got right
    p: float  # McNemar's exact test
    p_of_all: float = 1.0  # corrected for the number of groups (Holm)

    @property
    def difference(self) -> float:
        return self.second - self.first

    def cells(self) -> list[Any]:
        scores = [self.first, self.second, self.difference]
        return [self.name, self.pairs, *scores, self.more, self.less, self.p, self.p_of_all]


@dataclass(frozen=True)
class Compared:
    """Difference in one score between two models: second minus first."""

    probe: str
    files: list[str]
    score: str
    first: str
    second: str
    examples: int
    over: Clustered
    paradigms: list[Paradigm] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        about = {name: getattr(self, name) for name in ("probe", "files", "score", "first", "second", "examples")}
        statistics = {
            "difference": self.over.mean,
            "error": self.over.error,
            "interval": [*self.over.interval],
            "p": self.over.p,
            "groups": self.over.groups,
        }
        return {
            **about,
            **statistics,
            "paradigms": [{**vars(paradigm), "difference": paradigm.difference} for paradigm in self.paradigms],
        }

    def row(self) -> list[str]:
        name = Path(self.files[0]).name + (f" and {len(self.files) - 1} more" if self.files[1:] else "")
        numbers = [self.over.mean, self.over.error, *self.over.interval, self.over.p]
        return [
            self.probe,
            name,
            self.score,
            self.second,
            self.first,
            *(said(value) for value in (*numbers, self.examples, self.over.groups)),
        ]


def compare(results: Sequence[Result]) -> list[Compared]:
    """Compare each model with the first one, on every probe that several models answered at one step each."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if hasattr(result.probe, "compared"):  # user-defined probes may not have it
            groups[probe_key(result.plain())].append(result)
    comparisons = []
    for first, *later in groups.values():
        if len({result.model for result in (first, *later)}) == len(later) + 1:
            comparisons += [comparison for second in later for comparison in _compared(first, second)]
    return comparisons


def _compared(first: Result, second: Result) -> Iterator[Compared]:
    examples = [
        {example.key: example for example in result.probe.compared(result.records)} for result in (first, second)
    ]
    same_windows = first.cutting == second.cutting or not getattr(first.probe, "by_windows", False)
    if not same_windows or examples[0].keys() != examples[1].keys():
        unit = "windows" if same_windows else "tokens"
        say(f"{second.model}: splits {second.name} into other {unit} than {first.model}; not compared")
        return
    pairs = [(example, examples[1][key]) for key, example in examples[0].items()]
    for score in pairs[0][0].values:
        differences = [counterpart.values[score] - example.values[score] for example, counterpart in pairs]
        over = clustered(differences, [example.weight for example, _ in pairs], [example.group for example, _ in pairs])
        plain = first.plain(), second.plain()
        yield Compared(
            plain[0]["probe"],
            first.files,
            score,
            who(plain[0]),
            who(plain[1]),
            len(pairs),
            over,
            _paradigms(pairs, score),
        )


def _paradigms(pairs: Sequence[tuple[PairedExample, PairedExample]], score: str) -> list[Paradigm]:
    by: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for example, counterpart in pairs:
        if example.group:
            by[example.group].append((example.values[score], counterpart.values[score]))
    counts = {name: (sum(b > a for a, b in both), sum(b < a for a, b in both)) for name, both in by.items()}
    chances = [sign_test(*counts[name]) for name in by]
    paradigms = []
    for (name, both), p, of_all in zip(by.items(), chances, holm(chances), strict=True):
        first, second = (sum(values) / len(both) for values in zip(*both, strict=True))
        paradigms.append(Paradigm(name, len(both), first, second, *counts[name], p, of_all))
    return paradigms


def table(comparisons: Sequence[Compared]) -> list[str]:
    if not comparisons:
        return []
    lines = ["", *markdown(HEAD, [comparison.row() for comparison in comparisons], padded=True)]
    for comparison in comparisons:
        if comparison.paradigms:
            shown = sorted(comparison.paradigms, key=lambda paradigm: (paradigm.p, -abs(paradigm.difference)))
            rows = [[said(value) for value in paradigm.cells()] for paradigm in shown]
            differ = sum(paradigm.p_of_all < CHANCE for paradigm in shown)
            title = f"{comparison.second} less {comparison.first}, {comparison.score}: "
            title += f"{differ} of {many(len(shown), 'group')} differ"
            title += f" (exact paired tests of as many, p of all < {CHANCE})"
            models = [comparison.first, comparison.second]
            head = ["", "pairs", *models, "difference", "right alone", "wrong alone", "p", "p of all"]
            lines += ["", title, *markdown(head, rows, padded=True)]
    return lines


def write(comparisons: Sequence[Compared], out: str | None) -> Path:
    """Write the comparisons as JSON, named by a hash of probes, files and models, and return the path."""
    plain = [comparison.plain() for comparison in comparisons]
    questions = [[comparison[key] for key in ("probe", "files", "first", "second")] for comparison in plain]
    path = (AWAY if out is None else Path(out)) / f"comparison-{value_key(json.dumps(questions), 8)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, finite({"comparisons": plain}))
    return path
