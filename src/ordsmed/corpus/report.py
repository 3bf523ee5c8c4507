"""Report what happened to a corpus: facts for `status.json`, lines for the terminal, and the page `report.md`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many, say, size
from ordsmed.base.screen import markdown
from ordsmed.corpus.chunks import Chunk
from ordsmed.corpus.cleaning import Facts, Work
from ordsmed.corpus.dedup import Matched
from ordsmed.corpus.folder import PartWriter
from ordsmed.corpus.sources import CorpusSource

PUBLISHED = {"English Wikipedia": 2_500_000_000, "BookCorpus": 800_000_000}  # words, according to BERT's paper


def facts(
    work: Work,
    chunks: Sequence[Chunk],
    sources: Sequence[CorpusSource],
    matched: Matched,
    writers: Mapping[str, PartWriter],
) -> dict[str, Any]:
    entries, whole = [], Facts()
    for number, source in enumerate(sources):
        of_source = Facts()
        for chunk in chunks:
            if chunk.source == number:
                of_source.add(chunk.facts)
        entries.append(_source(source, of_source))
        if source.purpose != "against":
            whole.add(of_source)
    names = ("documents", "changed", "dropped", "characters_before", "characters_after")
    steps: list[dict[str, Any]] = [
        {"name": name, **dict(zip(names, counts, strict=True)), "reasons": _reasons(whole, name)}
        for name, counts in zip(work.names(), whole.steps, strict=False)
    ]
    cleaned: dict[str, Any] = {step["name"]: step["dropped"] for step in steps if step["dropped"]}
    written: dict[str, Any] = {
        name: {**asdict(writer.count), "parts": writer.parts, "checksums": writer.checksums}
        for name, writer in writers.items()
    }
    duplicates = {"exact": matched.exact, "near": matched.near, "groups": matched.groups, "sources": matched.sources}
    dropped = {**cleaned, "duplicates": matched.exact, **({"near": matched.near} if work.near else {})}
    dropped |= {"in too few sources": matched.few} if matched.few else {}
    written |= {"read": whole.read, "sources": entries, "left_out": dict(largest_first(whole.left_out)), "steps": steps}
    written |= {"dropped": dropped, "duplicates": duplicates, "held_out": whole.held_out or None}
    return written | {"replaced": whole.replaced, "cut": whole.cut, "encodings": dict(whole.encodings)}


def largest_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def _why(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())


def dropped_phrase(facts: Mapping[str, Any]) -> str:
    """Return a phrase with the numbers of dropped documents and the reasons; empty if none were dropped."""
    return ", ".join(
        f"{count:,} {reason}" for t in ("dropped", "left_out") for reason, count in facts[t].items() if count
    )


def _counted(encodings: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} in {name}" for name, count in sorted(encodings.items()))


def print_summary(facts: Mapping[str, Any]) -> None:
    for name in ("train", "validation", "test"):
        count = facts[name]
        if count["documents"]:
            say(f"{name}: {', '.join(many(count[f'{noun}s'], noun) for noun in ('document', 'sentence', 'word'))}")
    if phrase := dropped_phrase(facts):
        say(f"left out: {phrase}")
    if facts["replaced"]:
        say(f"invalid UTF-8: {many(facts['replaced'], 'sequence')} replaced by U+FFFD")
    if encodings := facts.get("encodings"):
        say(f"not in UTF-8: {_counted(encodings)}")
    if facts["cut"]:
        say(f"cut: {facts['cut']:,} lines or documents that were too long")


def write(folder: Path, title: str, facts: Mapping[str, Any]) -> None:
    files.write_text(folder / "report.md", "\n".join([f"# {title}", "", *_page(facts)]) + "\n")


def _page(facts: Mapping[str, Any]) -> list[str]:
    splits = [
        [n, *(f"{facts[n][k]:,}" for k in COUNTED)] for n in ("train", "validation", "test") if facts[n]["documents"]
    ]
    sources = []
    for s in facts["sources"]:
        licence = s["licence"] or (s["purpose"] != "against" and facts.get("licence")) or "not specified"
        published = f"{s['published'] / 1e6:,.0f} M words" if s["published"] else ""
        sources.append([s["kind"], s["purpose"] or "all", licence, size(s["bytes"]), f"{s['documents']:,}", published])
    steps = [
        [s["name"], *(f"{s[k]:,}" for k in ("documents", "changed", "dropped")), f"{_lost(s):.2%}", _why(s["reasons"])]
        for s in facts["steps"]
    ]
    words = sum(facts[name]["words"] for name in ("train", "validation", "test"))
    shares = ", ".join(f"{words / count:.2%} of {name} ({count / 1e6:,.0f} M)" for name, count in PUBLISHED.items())
    whole = f"All splits: {many(words, 'word')}: {shares}."
    lines = ["## Contents", "", *markdown(["split", *COUNTED], splits), "", whole]
    lines += [
        "",
        f"Language: {facts.get('language') or 'not specified'}. License: {facts.get('licence') or 'not specified'}.",
    ]
    head = ["kind", "for", "license", "size", "documents", "published size"]
    lines += ["", "## Sources", "", *markdown(head, sources)]
    head = ["step", "documents", "changed", "dropped", "characters lost", "why dropped"]
    lines += ["", "## Cleaning", "", *markdown(head, steps)]
    lines += [f"\nSet by a sample of the corpus: {line}." for line in facts.get("set", ())]
    losses = [
        [reason, f"{count:,}"] for reason, count in [*facts["dropped"].items(), *facts["left_out"].items()] if count
    ]
    losses += [["sequences of invalid UTF-8 replaced", f"{facts['replaced']:,}"]] if facts["replaced"] else []
    losses += [["lines or documents cut", f"{facts['cut']:,}"]] if facts["cut"] else []
    if encodings := facts.get("encodings"):
        lines += ["", "## Encodings", "", f"Files that are not in UTF-8: {_counted(encodings)}."]
    lines += ["", "## Left out", "", *(markdown(["what", "documents"], losses) if losses else ["Nothing."])]
    if len(sources_of := facts["duplicates"].get("sources", {})) > 1:
        rows = [[number, f"{count:,}"] for number, count in sources_of.items()]
        lines += [
            "",
            "## Documents by the number of sources that contain them",
            "",
            *markdown(["sources", "documents"], rows),
        ]
    if groups := facts["duplicates"]["groups"]:
        lines += ["", "## The largest groups of duplicates", ""]
        for group in groups:
            members = ", ".join(f"{name} ({share:.2f})" for name, share in group["members"])
            lines += [f"- {group['size']:,} like {group['kept']}: {members}", f"  > {group['excerpt']}"]
    if examples := facts["held_out"]:
        lines += ["", "## Documents that contain evaluation data", "", *(f"- {line}" for line in examples)]
    return lines


COUNTED = ("documents", "sentences", "words", "characters", "bytes")


def _source(source: CorpusSource, facts: Facts) -> dict[str, Any]:
    settings = source.settings
    licence, published = getattr(settings, "LICENCE", "") or None, getattr(settings, "WORDS", 0)
    about = {"kind": kind_of(settings), "purpose": source.purpose, "licence": licence, "bytes": settings.size()}
    counts = {"published": published, "read": facts.read, "documents": facts.documents}
    return {**about, **counts, "left_out": dict(largest_first(facts.left_out))}


def _reasons(whole: Facts, name: str) -> dict[str, int]:
    reasons = [(reason, count) for reason, count in largest_first(whole.left_out) if reason.startswith(f"{name}: ")]
    for reason, _ in reasons:
        del whole.left_out[reason]
    return {reason.removeprefix(f"{name}: "): count for reason, count in reasons}


def _lost(step: Mapping[str, Any]) -> float:
    return 1 - step["characters_after"] / max(step["characters_before"], 1)
