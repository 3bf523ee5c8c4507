"""The rules of Gopher, C4 and FineWeb: alone, with thresholds from a corpus, and compared with published code."""

from __future__ import annotations

import functools
import json
import lzma
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.corpus import published_rules
from ordsmed.corpus.cleaners.c4 import C4
from ordsmed.corpus.cleaners.fineweb import FineWeb
from ordsmed.corpus.cleaners.gopher import Gopher
from ordsmed.text.document import Document
from ordsmed.text.read import tallied

WORDS = """the fire began at noon and was out by four
    and that is what they have to say of it"""
LEAST = 0.995  # of the decisions that are to be the same


def prose(seed: int, sentences: int = 12) -> str:
    """Lines of sentences whose words come in another order each time, with some of their own."""
    chance = random.Random(seed)
    own = ["".join(chance.choice("abdefgiklmnorstu") for _ in range(chance.randint(3, 8))) for _ in range(200)]
    lines = (" ".join([*chance.sample(own, 8), *chance.sample(WORDS.split(), 6)]) for _ in range(sentences))
    return "\n".join(f"{line.capitalize()}." for line in lines)


GOOD = prose(1)
GOPHER = {
    "min words": "Too short.",
    "max words": "word " * 100_001,
    "min mean word": " ".join(f"{n} a b c" for n in range(80)),
    "max mean word": " ".join(f"{'unlikely' * 2}{n:x}" for n in range(100)),
    "hashes": GOOD + "\n" + "# " * 40,
    "ellipses": GOOD.replace(" ", "... ", 40),
    "cut lines": GOOD.replace(".", "..."),
    "bullets": "\n".join(f"- {line}" for line in GOOD.split("\n")),
    "alphabetic": GOOD + " " + " ".join(str(n * 7919) for n in range(60)),
    "stops": GOOD.upper(),
    "paragraphs": "\n\n".join([GOOD, *["Read more here."] * 3]),
    "paragraph characters": "\n\n".join([*prose(1).split("\n"), *prose(1, 1).split("\n") * 4]),
    "lines": "\n".join([GOOD, *["Read more here."] * 9]),
    "line characters": "\n".join([*prose(1).split("\n"), *prose(1, 1).split("\n") * 4]),
    "pairs": GOOD + " buy now" * 40,
    "triples": GOOD + " buy it now" * 40,
    "fours": GOOD + " buy it right now" * 40,
    **{name: f"{GOOD} {prose(1, 3)}" for name in (f"dup {n}gram" for n in range(5, 11))},
}
FINEWEB = {
    "ended lines": GOOD.replace(".", ""),
    "short lines": GOOD + "".join(f"\nLine {n}." for n in range(40)),
    "repeated line characters": GOOD + "\n" + GOOD.split("\n")[0],
    "new lines": "\n".join(f"Word{n} two." for n in range(40)),
}


@pytest.mark.parametrize(("kind", "rule"), [*((Gopher, r) for r in GOPHER), *((FineWeb, r) for r in FINEWEB)])
def test_each_rule_drops(kind: Any, rule: str) -> None:
    """All others are off; it lets prose pass."""
    name, text = rule.replace(" ", "_"), {**GOPHER, **FINEWEB}[rule]
    others = {other: 0 if other in kind.LEAST else 1e9 for other in kind.RULES if other != name}
    with tallied() as tally:
        assert kind(**others).clean(GOOD, {}) == GOOD
        assert kind(**others).clean(text, {}) is None
        assert kind(**others, **{name: 0 if name in kind.LEAST else 1e9}).clean(text, {}) == text
    assert dict(tally.left_out) == {f"{kind.__name__.lower()}: {rule}": 1}


def test_every_rule_has_a_text() -> None:
    assert {rule.replace(" ", "_") for rule in GOPHER} == set(Gopher.RULES)
    assert {rule.replace(" ", "_") for rule in FINEWEB} == set(FineWeb.RULES)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Home\nThe fire began.\nIt was out by four.\n" * 2, "sentences"),
        (GOOD + "\nA lorem ipsum it is.", "lorem ipsum"),
        (GOOD + "\nA { it has.", "braces"),
    ],
)
def test_c4_drops(text: str, rule: str) -> None:
    with tallied() as tally:
        assert C4().clean(text, {}) is None
    assert dict(tally.left_out) == {f"c4: {rule}": 1}


def test_prose_stays() -> None:
    for step in (Gopher(), C4(), FineWeb()):
        assert step.clean(GOOD, {}) == GOOD


def test_c4_takes_lines_out() -> None:
    lines = [
        "Home",
        "It ends in dots...",
        "We use cookies here, friend.",
        "Turn on JavaScript { for this.",
        "Two words.",
    ]
    marked = GOOD.replace(".", " [12][edit].", 1) + f'\n{"x" * 1001} is too long.\nHe said "yes, that is so"'
    kept = C4().clean("\n".join([*lines, marked]), {})
    assert kept == GOOD.replace(".", " .", 1) + '\nHe said "yes, that is so"'
    assert C4(ended_lines=False).clean("\n".join(["A line without end", GOOD]), {}) == "A line without end\n" + GOOD


def test_words_are_those_of_the_codes() -> None:
    """As spaCy's English tokenizer makes them, written down."""
    text = (
        "Mr. Smith didn't pay $1,000.50 for the U.S.-made 3.5-inch disks... He said: \"It's John's!\" (well-known) e.g."
    )
    wanted = """Mr. Smith did n't pay $ 1,000.50 for the U.S.-made 3.5 - inch disks ... He said : " It 's John 's ! " (
        well - known ) e.g."""
    assert published_rules.words(text) == wanted.split()
    assert published_rules.words("東京です。") == ["東", "京", "で", "す", "。"]
    counted = {"": 0, "a b": 1, "He went. She too. So": 3, "What!? Yes... no. (So.) End": 4, "Mr. X went on.": 1}
    assert {line: published_rules.count_sentences(published_rules.words(line)) for line in counted} == counted


def test_hostile_texts_end() -> None:
    for text in ("(" * 200_000, "a." * 100_000, "…" * 100_000, "'s" * 100_000, "x" * 200_000):
        for step in (Gopher(), C4(), FineWeb()):
            step.clean(text, {})


def documents(count: int) -> list[Document]:
    """Two languages, one of which has more line ends."""
    english = [Document(prose(n), meta={"language": "en"}) for n in range(count)]
    other = [
        Document(prose(-n).replace(" ", "\n", n % 40).replace("the", "dei"), meta={"language": "nn"})
        for n in range(count)
    ]
    return english + other


def test_thresholds_are_set_by_language() -> None:
    """So that a tenth of each language lies beyond each; of a language with few documents those of the paper hold."""
    step = FineWeb(tail=0.1).fitted([*documents(200), *(Document(GOOD, meta={"language": "sv"}) for _ in range(4))])
    assert set(step.limits) == {"en", "nn"}
    assert step.tail == 0
    assert step.limits["nn"]["new_lines"] > 2 * step.limits["en"]["new_lines"]
    for language in ("en", "nn"):
        values = [dict(step.measures(d.text, "")) for d in documents(200) if d.meta["language"] == language]
        beyond = [value["new_lines"] > step.limits[language]["new_lines"] + 1e-4 for value in values]
        assert sum(beyond) <= 20
    some = FineWeb(tail=0.1, rules=("new_lines",)).fitted(documents(200))
    assert {name: [*limits] for name, limits in some.limits.items()} == {"en": ["new_lines"], "nn": ["new_lines"]}
    text = GOOD.replace(" ", "\n", 12)
    assert FineWeb(limits={"nn": {"new_lines": 0.1}}).clean(text, {"language": "nn"}) is None
    assert FineWeb(limits={"nn": {"new_lines": 0.1}}).clean(text, {"language": "en"}) == text
    assert FineWeb(tail=0.1, limits={"nn": {"new_lines": 9}}).fitted(documents(200)).limits["nn"]["new_lines"] == 9


def test_stop_words_are_set_by_language() -> None:
    step = Gopher(tail=0.1).fitted(documents(120))
    assert "dei" in step.stop_words["nn"]
    assert "the" in step.stop_words["en"]
    assert "the" not in step.stop_words["nn"]


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"limits": {"nb": {"newlines": 1}}}, "found nb.newlines; wanted one of ended_lines"),
        ({"rules": ["newlines"]}, "rules: found newlines; wanted one of ended_lines"),
        ({"tail": 1}, "tail: found 1.0"),
        ({"tail": 0.1, "sample": 50}, "too few to set thresholds; wanted 100 or more"),
    ],
)
def test_bad_thresholds_are_refused(table: dict[str, Any], wanted: str) -> None:
    with pytest.raises(RecipeError, match=wanted):
        settings.decode(FineWeb, table, "clean")


def plainly(text: str, size: int) -> dict[str, float]:
    """Runs of words that come again, as the paper's table says them, word by word."""
    parts, found = published_rules.words(text), dict[str, float]()
    for rule, n in {"pairs": 2, "triples": 3, "fours": 4}.items():
        run, count = Counter(" ".join(parts[at : at + n]) for at in range(len(parts) - n + 1)).most_common(1)[0]
        found[rule] = len(run) * count / size
    for rule, n in {
        "dup_5gram": 5,
        "dup_6gram": 6,
        "dup_7gram": 7,
        "dup_8gram": 8,
        "dup_9gram": 9,
        "dup_10gram": 10,
    }.items():
        seen, characters, at = set[str](), 0, 0
        while at <= len(parts) - n:
            run = " ".join(parts[at : at + n])
            characters, at = (characters + len(run) - n + 1, at + n) if run in seen else (characters, at + 1)
            seen.add(run)
        found[rule] = characters / size
    return found


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_counted_as_word_by_word(seed: int) -> None:
    chance = random.Random(seed)
    text = " ".join(chance.choice(["a", "bcd", "ef", "ghijk"][: 1 + seed]) for _ in range(60 + 40 * seed))
    measures = dict(Gopher().measures(text, ""))
    wanted = plainly(text, len(text))
    assert {rule: measures[rule] for rule in wanted} == pytest.approx(wanted)


# ---- beside the published code


def dirt(text: str, chance: random.Random) -> str:
    """A text as it comes from the web: with menus, lists, cut lines, copies of lines, marks."""
    lines = text.split("\n")
    some = lambda: chance.choice(lines)  # noqa: E731
    ways: list[Callable[[], str]] = [
        lambda: text,
        lambda: text[: chance.randint(50, 600)],
        lambda: "\n".join([*["Home", "News", "Contact us", "Sign in"] * chance.randint(1, 8), *lines]),
        lambda: "\n".join(f"{chance.choice('•-*')} {line}" for line in lines),
        lambda: "\n".join(line[: chance.randint(10, 90)] + chance.choice(["...", "…", ""]) for line in lines),
        lambda: "\n".join([*lines, *[some()] * chance.randint(1, 9)]),
        lambda: "\n\n".join([*lines, *[some()] * chance.randint(1, 9)]),
        lambda: text.replace(" ", " #", chance.randint(1, 80)),
        lambda: text + "\n" + "\n".join(str(chance.randint(0, 10**6)) for _ in range(chance.randint(5, 200))),
        lambda: "\n".join(text.split(" ")[: chance.randint(20, 400)]),
        lambda: (
            text + " Please turn on JavaScript.\nWe use cookies.\n" + chance.choice(["", "{", "Lorem ipsum dolor."])
        ),
        lambda: text.replace(".", chance.choice(["", "!", " . "]), chance.randint(1, 100)),
        lambda: " ".join([text, *["buy cheap shoes"] * chance.randint(2, 60)]),
        lambda: text.upper(),
        lambda: text.replace("the", "").replace("and", "&").replace("of", ""),
    ]
    return chance.choice(ways)()


def collected(data: Path, count: int) -> list[str]:
    """Articles, novels and reviews in two languages, dirtied."""
    chance = random.Random(0)
    truth = json.loads((data / "html-article/ground-truth.json").read_text(encoding="utf-8"))
    texts = [article["articleBody"] for article in truth.values()] * max(count // 500, 1)
    for name in ("english-novels-100.txt.xz", "norec-train.no.txt.xz"):
        with lzma.open(data / "corpus" / name, "rt", encoding="utf-8") as file:
            whole, at = file.read(3000 * count), 0
        while at < len(whole) - 10_000 and len(texts) < count:
            size = chance.randint(300, 4000)
            texts.append(whole[at : at + size])
            at += size * 2
            if name.startswith("english") and len(texts) > 0.8 * count:
                break
    return [dirt(text, chance) for text in texts]


@functools.cache
def agreement(data: Path, count: int) -> dict[str, tuple[float, Counter[str]]]:
    """Of each preset the share of documents whose decision is the same, and how many each keeps."""
    from datatrove.data import Document as Theirs
    from datatrove.pipeline import filters

    pairs: dict[str, tuple[Any, list[Any]]] = {
        "gopher": (Gopher(), [filters.GopherRepetitionFilter(), filters.GopherQualityFilter()]),
        "c4": (C4(), [filters.C4QualityFilter()]),
        "fineweb": (FineWeb(), [filters.FineWebQualityFilter()]),
        "c4, any line": (C4(ended_lines=False), [filters.C4QualityFilter(filter_no_terminal_punct=False)]),
    }
    found = {}
    for name, (step, chain) in pairs.items():
        seen = Counter[str]()
        for number, text in enumerate(collected(data, count)):
            theirs, own = Theirs(text=text, id=str(number)), step.clean(text, {})
            kept = all(one.filter(theirs) is True for one in chain)
            seen[f"{'kept' if kept else 'dropped'}, {'kept' if own is not None else 'dropped'}"] += 1
            seen["other text"] += own is not None and kept and own != theirs.text
        found[name] = ((seen["kept, kept"] + seen["dropped, dropped"]) / count, seen)
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", ["gopher", "c4", "fineweb", "c4, any line"])
def test_decisions_are_those_of_the_published_code(name: str, shared_data: Path) -> None:
    pytest.importorskip("datatrove")
    pytest.importorskip("spacy")
    share, seen = agreement(shared_data, 300)[name]
    assert share >= LEAST, seen
    assert min(seen["kept, kept"], seen["dropped, dropped"]) > 30, seen
    assert seen["other text"] == 0


if __name__ == "__main__":  # python tests/corpus/test_published.py DATA COUNT
    for title, (same, how) in agreement(Path(sys.argv[1]), int(sys.argv[2])).items():
        print(f"{title}: {same:.2%} the same; published, ours: {dict(how)}")
