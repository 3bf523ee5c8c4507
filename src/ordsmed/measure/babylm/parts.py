"""Parts of the BabyLM evaluation: the rows of its data files as questions with choices to score.

evaluation_data/full_eval/ blimp_filtered/ ewok_filtered/ comps/ reading/ ...     ->  SuitePart, SuiteQuestion

Follows the program at github.com/babylm-org/babylm-eval: 2026 as of July 2026, 2025 as of August 2025.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.measure.likelihood.probe import paths_of, records, text_of, valid

Edition = Literal["2026", "2025"]
Row = dict[str, Any]
SPLITS = ("regular", "ambiref", "move_contents")  # files of entity tracking
SETS = {
    "comps_base": "base",
    "comps_wugs": "wugs",
    "comps_wugs_dist-before": "wugs_dist_before",
    "comps_wugs_dist-in-between": "wugs_dist_in_between",
}


@dataclass(frozen=True)
class SuitePart:
    name: str
    called: str  # official name
    folders: tuple[str, ...]
    sizes: dict[str, int]  # edition -> questions in the full set
    guess: float | None = None  # accuracy of guessing, per cent; None for correlations and regressions


@dataclass(frozen=True)
class SuiteQuestion:
    """Sentences to compare, each with the character from which it is scored."""

    place: str
    subset: str
    sentences: Sequence[tuple[str, int]]
    right: float  # index of the right sentence; for WUG, the share of people who chose the first


def _both_editions(size: int) -> dict[str, int]:
    return {"2026": size, "2025": size}


PARTS = {
    part.name: part
    for part in (
        SuitePart("blimp", "BLiMP", ("blimp_filtered", "blimp_fast"), _both_editions(59_875), 50),
        SuitePart(
            "blimp_supplement",
            "BLiMP Supplement",
            ("supplement_filtered", "supplement_fast"),
            _both_editions(5_218),
            50,
        ),
        SuitePart("ewok", "EWoK", ("ewok_filtered", "ewok_fast"), _both_editions(7_618), 50),
        SuitePart(
            "entity_tracking",
            "Entity Tracking",
            ("entity_tracking", "entity_tracking_fast"),
            {"2026": 6_780, "2025": 9_483},
            20,
        ),
        SuitePart("comps", "COMPS", ("comps",), _both_editions(91_028), 50),
        SuitePart("global_piqa_parallel", "GlobalPIQA parallel", ("global_piqa_parallel",), {"2026": 103}, 25),
        SuitePart("global_piqa_nonparallel", "GlobalPIQA nonparallel", ("global_piqa_nonparallel",), {"2026": 100}, 50),
        SuitePart("wug_adj", "WUG Adj", ("wug_adj_nominalization",), {"2025": 200}),
        SuitePart("wug_past", "WUG Past", ("wug_past_tense",), {"2025": 50}),
        SuitePart("reading", "Reading", ("reading",), _both_editions(1_726)),
        SuitePart("aoa", "AoA", ("aoa",), _both_editions(8_005)),
    )
}


def folders(roots: Sequence[str], edition: Edition, only: str = "") -> dict[str, Path]:
    by_name = {folder: part.name for part in PARTS.values() if edition in part.sizes for folder in part.folders}
    result: dict[str, Path] = {}
    for root in map(Path, roots):
        if not root.is_dir():
            raise RecipeError(root, "is not a folder", "evaluation_data/full_eval, or a folder in it")
        inside = [root] if root.resolve().name in by_name else sorted(path for path in root.iterdir() if path.is_dir())
        for folder in inside:
            name = by_name.get(folder.resolve().name, "")
            if name and (not only or name == only):
                if name in result:
                    raise RecipeError(folder, f"is `{name}` again, in addition to {result[name]}", "one of them")
                result[name] = folder
    if not result:
        wanted = only or ", ".join(by_name)
        raise RecipeError(", ".join(roots), f"holds no part of BabyLM's evaluation of {edition}", f"folders {wanted}")
    return {name: result[name] for name in PARTS if name in result}


def files(part: str, folder: Path) -> list[Path]:
    names = {"reading": ["reading_data.csv"], "aoa": ["cdi_childes.json", "cdi_human.csv"]}.get(part)
    paths = [folder / name for name in names] if names else sorted(folder.glob("*.jsonl"))
    if not paths or (missing := [path for path in paths if not path.exists()]):
        raise DataError(folder, f"has no {missing[0].name if paths else 'file'}", "the evaluation's unchanged files")
    return paths


def questions(part: str, folder: Path, edition: Edition) -> Iterator[SuiteQuestion]:
    for path in paths_of([str(path) for path in files(part, folder)]):
        for location, row in records(path):
            question = ROWS[part](row, location, path.stem, edition)
            if question is not None:
                yield question


def weights(part: str, subsets: Sequence[str]) -> dict[str, float]:
    """Return the weight of each subset in a part's score: equal ones; in entity tracking, equal within each split."""
    by: dict[str, list[str]] = defaultdict(list)
    for subset in subsets:
        by[next(s for s in SPLITS if subset.startswith(s)) if part == "entity_tracking" else ""].append(subset)
    return {subset: 1 / len(by) / len(group) for group in by.values() for subset in group}


def _blimp(row: Row, location: str, stem: str, edition: Edition) -> SuiteQuestion:
    """Read a row of BLiMP; rows of its supplement name no paradigm, so use the file's name."""
    sentences = [text_of(row, key, location) for key in ("sentence_good", "sentence_bad")]
    return SuiteQuestion(location, str(row["UID"]) if "field" in row else stem, [(text, 0) for text in sentences], 0)


def _ewok(row: Row, location: str, stem: str, edition: Edition) -> SuiteQuestion:
    """Read a row of EWoK; 2026 compares one target after two contexts, 2025 two targets after one."""
    pairs = (("Context1", "Target1"), ("Context2", "Target1") if edition == "2026" else ("Context1", "Target2"))
    texts = [[text_of(row, key, location) for key in pair] for pair in pairs]
    return SuiteQuestion(location, text_of(row, "Domain", location), [_ended(*pair, space=True) for pair in texts], 0)


def _entity(row: Row, location: str, stem: str, edition: Edition) -> SuiteQuestion | None:
    """Read a row of entity tracking; edition 2026 skips rows with an option that contains `nothing`."""
    options, numops = row.get("options"), row.get("numops")
    if not isinstance(options, list) or len(options) < 2 or not isinstance(numops, int) or stem not in SPLITS:
        wanted = f"`options`, two or more, and `numops`, in files {', '.join(SPLITS)}"
        raise DataError(location, "is not a question of entity tracking", wanted)
    options = [text_of({"options": option}, "options", location) for option in options]
    if edition == "2026" and any("nothing" in option for option in options):
        return None
    context = text_of(row, "input_prefix", location)
    return SuiteQuestion(location, f"{stem}_{numops}_ops", [(context + option, len(context)) for option in options], 0)


def _comps(row: Row, location: str, stem: str, edition: Edition) -> SuiteQuestion:
    if stem not in SETS:
        raise DataError(location, f"is in a file named {stem}", " or ".join(SETS))
    ending = text_of(row, "property_phrase", location)
    texts = [text_of(row, key, location) for key in ("prefix_acceptable", "prefix_unacceptable")]
    return SuiteQuestion(location, SETS[stem], [(f"{text} {ending}", len(text) + 1) for text in texts], 0)


def _piqa(row: Row, location: str, stem: str, edition: Edition) -> SuiteQuestion:
    solutions = [row[f"solution{n}"] for n in range(4) if f"solution{n}" in row]
    right = row.get("label")
    if not isinstance(right, int) or not 0 <= right < len(solutions):
        raise DataError(location, f"`label` is {right!r} of {len(solutions)}", "`solution0`, ... and the number of one")
    context = text_of(row, "prompt", location)
    texts = [text_of({"solution": text}, "solution", location) for text in solutions]
    return SuiteQuestion(location, "", [_ended(context, text, space=True) for text in texts], right)


def _wug(row: Row, location: str, stem: str, edition: Edition) -> SuiteQuestion:
    texts = text_of(row, "sentences", location).split("\t")
    try:
        ratio = float(row["ratio"])
    except (KeyError, TypeError, ValueError):
        raise DataError(location, f"`ratio` is {str(row.get('ratio'))[:40]!r}", "a number") from None
    if len(texts) < 2:
        raise DataError(location, "`sentences` holds one", "two or more, separated by tabs")
    return SuiteQuestion(location, "", [(text, 0) for text in texts], ratio)


def _ended(context: str, ending: str, *, space: bool) -> tuple[str, int]:
    """Return a text and the character from which it is scored; `space`: the space before the ending, too."""
    return f"{context} {ending}", len(context) + (not space)


ROWS: dict[str, Callable[[Row, str, str, Edition], SuiteQuestion | None]] = {
    "blimp": _blimp,
    "blimp_supplement": _blimp,
    "ewok": _ewok,
    "entity_tracking": _entity,
    "comps": _comps,
    "global_piqa_parallel": _piqa,
    "global_piqa_nonparallel": _piqa,
    "wug_adj": _wug,
    "wug_past": _wug,
}


def check(question: SuiteQuestion) -> SuiteQuestion:
    valid("".join(text for text, _ in question.sentences), question.place)
    return question
