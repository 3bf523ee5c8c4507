"""Repeat an entry from its texts and compare: sample, tokenizer, weights and scores must be equal to the bit.

Differences are reported, together with the differences in machine and code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.maker.speedrun import entry
from ordsmed.maker.speedrun.speedrun import perform
from ordsmed.maker.speedrun.track import SpeedrunRequest

FOLDER = "again"  # subfolder of the entry, if no other is named
Facts = Mapping[str, Any]


@files.errors_in_one_line()
def speedrun_check(
    entry: str | Path, texts: str | Path | Sequence[str | Path] = (), out: str | Path = "", *, blimp: str | Path = ""
) -> list[str]:
    """Repeat an entry (entry.json or its folder). Return lines if it is equal to the bit; else raise `RunError`.

    `texts` and `out` default to the texts of the entry's folder, and `again` in it. `blimp` are its minimal pairs.

        ordsmed.speedrun_check("my-speedrun")
    """
    names = tuple(map(str, [texts] if isinstance(texts, str | Path) else texts))
    if bool(names) != bool(str(out)):
        raise RecipeError("--check", f"found {'texts' if names else 'out'} alone", "texts and out, a new folder")
    return check(Path(entry), names, str(out), str(blimp))


def check(name: Path, texts: Sequence[str] = (), out: str = "", blimp: str = "") -> list[str]:
    """Repeat an entry; return lines if it is equal, and raise a `RunError` with the differences if not."""
    facts = entry.read(name)
    if facts.get("version") != entry.VERSION:
        problem = f"is no entry of version {entry.VERSION}"
        raise RecipeError(name, problem, f"an {entry.FILE} of `ordsmed speedrun`, or its folder")
    result = perform(request_of(facts, texts or texts_of(name), out or str(name / FOLDER), blimp)).entries[0]
    if problems := list(differences(facts, result)):
        elsewhere = list(reasons(facts, result))
        remedy = f"other than there: {', '.join(elsewhere)}" if elsewhere else "machine, versions and code are the same"
        raise RunError(out or name / FOLDER, "; ".join(problems), f"those of {name}", remedy)
    scored = [name for name in facts["over"] if name in result["over"]]
    missing = [name for name in facts["over"] if name not in result["over"]]
    lines = [
        f"equal to the bit: sample, tokenizer, weights of {many(len(facts['seeds']), 'seed')}, {', '.join(scored)}"
    ]
    return lines + [f"{name}: not scored again; --{name} FOLDER does" for name in missing]


def request_of(facts: Facts, texts: Sequence[str], out: str, blimp: str) -> SpeedrunRequest:
    """Return the request that repeats an entry, by its rules and recipe, with its thread count for equal bits."""
    threads = facts["machine"]["threads"]
    words = [f"layout.threads={threads}"] if threads and not facts["machine"]["gpu"] else []
    return SpeedrunRequest(
        facts["track"],
        tuple(texts),
        out,
        recipe=facts["name"],
        budgets=(facts["budget"],),
        seeds=tuple(facts["seeds"]),
        blimp=blimp,
        yes=True,
        rules=dict(facts["rules"]),
        table=settings.override(facts["recipe"], words),
    )


def texts_of(folder: Path) -> list[str]:
    status = Run(folder).status if folder.is_dir() else {}
    if "request" not in status:
        raise RecipeError("--check", f"{folder} does not say its texts", "TEXTS OUT behind it, and OUT a new folder")
    return [
        str(Path(status["stood_in"]) / name) if Path(status["stood_in"], name).exists() else name
        for name in status["request"]["texts"]
    ]


def differences(before: Facts, now: Facts) -> Iterator[str]:
    """Yield the differences between two entries; causes come before their effects."""
    if before["sample"]["sha256"] != now["sample"]["sha256"]:
        words = [f"{facts['sample']['train']['words']:,} words" for facts in (before, now)]
        yield f"the sample differs: other texts ({words[0]} there, {words[1]} here)"
    if before["tokenizer"] != now["tokenizer"]:
        yield "the tokenizer differs"
    weights = [str(row["seed"]) for row, again in _pairs(before, now) if row["weights"] != again["weights"]]
    if weights:
        yield f"weights of {'seeds' if weights[1:] else 'seed'} {', '.join(weights)} differ"
    for name in before["over"]:
        if name in now["over"]:
            values = [(row["scores"][name], again["scores"][name]) for row, again in _pairs(before, now)]
            if unequal := next((pair for pair in values if pair[0] != pair[1]), None):
                yield f"{name} differs: {unequal[0]!r} there, {unequal[1]!r} here"


def _pairs(before: Facts, now: Facts) -> list[tuple[Facts, Facts]]:
    return list(zip(before["runs"], now["runs"], strict=True))


def reasons(before: Facts, now: Facts) -> Iterator[str]:
    """Yield the differences in machine and code that bits may depend on."""
    for key, value in before["machine"].items():
        if now["machine"].get(key) != value:
            yield f"{key} {value or 'none'} (here {now['machine'].get(key) or 'none'})"
    if before["code"] != now["code"]:
        yield f"ordsmed {before['ordsmed']} (here {now['ordsmed']})"
