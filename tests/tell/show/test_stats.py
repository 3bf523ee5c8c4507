"""Statistics of a corpus: counts equal those of a slow implementation, words of all scripts, histograms, status."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.makers import synthetic_text
from ordsmed.base import run
from ordsmed.base.errors import OrdsmedError
from ordsmed.corpus import histogram
from ordsmed.corpus.folder import PartWriter
from ordsmed.corpus.pipeline import Corpus
from ordsmed.corpus.report import COUNTED as REPORTED
from ordsmed.tell.show import stats as deed
from ordsmed.tell.show.stats import stats, words
from ordsmed.text.document import Document
from ordsmed.text.sentences import rules
from ordsmed.text.tokenizer import Tokenizer

TEXTS = [text + " Æ “ø” – 5." * (n % 3 == 0) for n, text in enumerate(synthetic_text(40).strip().split("\n\n"))]


def corpus(folder: Path, texts: list[str], *, meta: dict[str, Any] | None = None, **status: Any) -> str:
    """A finished corpus folder; the last text is held out."""
    for split, found in (("train", texts[:-1]), ("validation", texts[-1:])):
        with PartWriter(folder / split, 4000) as writer:
            for number, text in enumerate(found):
                document = Document(text, rules(text) if number else [], f"a:{number}", meta or {})
                writer.write(msgspec.json.encode(document) + b"\n", 1, 1, 1)
    run.Run(folder).set(verb="corpus", state="done", fingerprint="x", **status)
    return str(folder)


def test_a_corpus_that_may_only_be_read_is_counted(tmp_path: Path, read_only: Callable[..., None]) -> None:
    name = corpus(tmp_path / "c", TEXTS)
    told = stats(name)
    read_only(tmp_path / "c")
    found = stats(name)
    assert found[:-1] == told[:-1]
    assert found[-1].startswith("stats.json and stats.svg were not written: ")
    assert found[-1].endswith("c/stats.json: cannot write: Read-only file system")


def test_counts_are_what_a_slow_reader_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deed, "BLOCK", 500)  # many blocks
    name = corpus(tmp_path / "c", TEXTS, meta={"language": "en"})
    told = stats(name)
    facts = json.loads((tmp_path / "c" / "stats.json").read_text())
    for split, texts in (("train", TEXTS[:-1]), ("validation", TEXTS[-1:])):
        cut = [[text] if not n else Document(text, rules(text)).sentences() for n, text in enumerate(texts)]
        lengths = {
            "words_a_document": [len(text.split()) for text in texts],
            "words_a_sentence": [len(sentence.split()) for sentences in cut for sentence in sentences],
        }
        assert {key: value for key, value in facts[split].items() if isinstance(value, int)} == {
            "documents": len(texts),
            "sentences": sum(map(len, cut)),
            "words": sum(lengths["words_a_document"]),
            "characters": sum(map(len, texts)),
            "bytes": sum(len(text.encode()) for text in texts),
        }
        for what, numbers in lengths.items():
            assert sum(facts[split][what].values()) == len(numbers)
            for bin, count in facts[split][what].items():
                first, _, last = bin.partition("-")
                assert count == sum(int(first) <= n <= int(last or first) for n in numbers)
    assert facts["languages"] == {"en": 1.0}
    assert "  en: 100.0%" in told
    assert told[0].startswith("train: 39 documents, ")
    assert any("of English Wikipedia (2,500 M)" in line for line in told)
    assert any("`--tokenizer NAME`" in line for line in told)


THAI = "ๆ๏๚๛"  # signs that stand among letters without spaces, beside those letters themselves (Lo) and marks


@given(
    st.text(
        st.characters(codec="utf-8", max_codepoint=0x2FFF, exclude_categories=["Lo", "Mn"], exclude_characters=THAI),
        max_size=40,
    )
)
@example("0\u0e50 \u2026 a")
def test_words_with_spaces_are_those_of_split(text: str) -> None:
    assert len(words(text)) == len(text.split())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" a\tb\n", 2),
        ("你好。我说：“很好……”！", 6),
        ("他用Python写程序。", 6),
        ("東京タワーは、高い。", 8),
        ("Yes — “no”.", 3),
        ("한국어는 띄어쓴다.", 2),
        ("ไป", 2),
        ("I 你.", 2),
    ],
)
def test_words_of_scripts_without_spaces_are_letters(text: str, count: int) -> None:
    assert len(words(text)) == count


def test_tokens_are_counted(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij."]))
    name = corpus(tmp_path / "c", ["Ab. Cd.", "Ef. gh. i."])
    told = stats(name, tokenizer=str(tmp_path / "vocab.txt"))
    pieces = Tokenizer.load(tmp_path / "vocab.txt").encode_batch(["Ab. Cd.", "Ef. gh. i."])
    facts = json.loads((tmp_path / "c" / "stats.json").read_text())
    assert (facts["train"]["tokens"], facts["validation"]["tokens"]) == (len(pieces[0]), len(pieces[1]))
    assert not any("not counted" in line for line in told)


def test_languages_are_guessed_from_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("py3langid")
    monkeypatch.setattr(deed, "SAMPLED", 8)
    english, norwegian = "This is a plain sentence about the weather.", "Dette er en vanlig setning om været i dag."
    name = corpus(tmp_path / "c", [f"{english} {n}" for n in range(60)] + [f"{norwegian} {n}" for n in range(20)])
    told = stats(name)
    shares = json.loads((tmp_path / "c" / "stats.json").read_text())["languages"]
    assert shares["en"] == pytest.approx(0.75, abs=0.13)
    assert shares["nb"] == pytest.approx(0.25, abs=0.13)
    assert sum("of 80 documents without a language" in line for line in told) == 1
    monkeypatch.setitem(sys.modules, "py3langid", None)
    deed.language._identifier.cache_clear()
    try:
        assert any("`py3langid` is not installed" in line for line in stats(name))
    finally:
        deed.language._identifier.cache_clear()


def test_what_the_status_tells_is_printed_and_nothing_where_it_is_silent(tmp_path: Path) -> None:
    meta = {"language": "en"}
    groups = [{"kept": f"a:{n}", "size": n, "members": [["a:9", 0.9]], "excerpt": f"Words {n}"} for n in range(2, 15)]
    status: dict[str, Any] = {
        "sources": [{"kind": "text", "read": 1200, "documents": 1100, "left_out": {}}],
        "steps": [{"name": "length", "documents": 1100, "changed": 7, "dropped": 60}],
        "dropped": {"length": 60, "duplicates": 5, "near": 0},
        "left_out": {"redirects": 100},
        "duplicates": {"exact": 5, "near": 0, "groups": groups},
    }
    told = stats(corpus(tmp_path / "full", TEXTS, meta=meta, **status))
    assert told[told.index("sources") :][:12] == [
        "sources",
        "  text: 1,200 read, 1,100 documents",
        "",
        "cleaning",
        "  length: 1,100 documents, 7 changed, 60 dropped",
        "",
        "left out",
        "  length: 60",
        "  duplicates: 5",
        "  redirects: 100",
        "",
        "duplicates",
    ]
    assert "  14 like a:14: Words 14" in told
    assert "  2 like a:2: Words 2" not in told
    silent = stats(corpus(tmp_path / "bare", TEXTS, meta=meta))
    assert not {"sources", "cleaning", "left out", "duplicates"} & set(silent)


def test_histograms() -> None:
    counts = histogram.count(np.array([1, 3, 3, 9, 1024]))
    assert histogram.named(counts) == {
        "1": 1,
        "2-3": 2,
        "4-7": 0,
        "8-15": 1,
        "16-31": 0,
        "32-63": 0,
        "64-127": 0,
        "128-255": 0,
        "256-511": 0,
        "512-1,023": 0,
        "1,024-2,047": 1,
    }
    drawn = histogram.lines(counts, 29)
    assert max(map(len, drawn)) == 29
    assert [max(map(len, histogram.lines(counts, wide))) for wide in (0, 60, 40, 120)] == [61, 60, 40, 61]
    assert [line.split() for line in drawn[:3]] == [
        ["1", "████", "20.0%"],
        ["2-3", "████████", "40.0%"],
        ["4-7", "0.0%"],
    ]
    assert histogram.named(histogram.count(np.array([0]))) == {"0": 1}
    assert histogram.lines(histogram.count(np.array([], np.int64))) == []


def test_the_picture_is_svg_with_a_bar_for_each_bin_and_split(tmp_path: Path) -> None:
    stats(corpus(tmp_path / "c", TEXTS, meta={"language": "en"}))
    facts = json.loads((tmp_path / "c" / "stats.json").read_text())
    picture = ElementTree.parse(tmp_path / "c" / "stats.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"words a document", "words a sentence", "train", "validation"} <= set(texts)
    bars = [e for e in picture.iter("{http://www.w3.org/2000/svg}rect") if e.get("fill", "").startswith("#")]
    assert len(bars) >= sum(
        len(facts[s][k]) for s in ("train", "validation") for k in facts[s] if k.startswith("words_")
    )
    assert histogram.svg({"<&>": {"train": np.zeros(histogram.BINS, np.int64)}}).count("&lt;&amp;&gt;") == 1


def test_what_is_no_finished_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OrdsmedError, match="absent: no such folder"):
        stats(str(tmp_path / "absent"))
    run.Run(tmp_path).set(verb="encode", state="done")
    with pytest.raises(OrdsmedError, match="is the folder of a `encode`"):
        stats(str(tmp_path))
    run.Run(tmp_path).set(verb="corpus", fingerprint="x")
    with pytest.raises(OrdsmedError, match="has no training documents"):
        stats(str(tmp_path))


@pytest.mark.long
def test_the_report_and_the_statistics_count_alike(tmp_path: Path) -> None:
    texts = [*TEXTS, "これは短い文です。 二つ目。", "ภาษาไทย สวัสดี", "“Æ” – ø\tå", "naïve 𐍈"]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    (tmp_path / "a.toml").write_text(
        f'out = "{tmp_path}/c"\nvalidation = 0.2\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n'
    )
    folder = run.obtain(Corpus, str(tmp_path / "a.toml"))
    stats(str(folder))
    found, told = json.loads((folder / "stats.json").read_text()), run.Run(folder).status
    for split in ("train", "validation"):
        for what in ("documents", "sentences", "words", "characters", "bytes"):
            assert told[split][what] == found[split][what], (split, what)
    assert sum(told[split]["bytes"] for split in ("train", "validation")) == sum(len(text.encode()) for text in texts)
    assert (
        f"| train | {' | '.join(format(found['train'][w], ',') for w in REPORTED)} |"
        in (folder / "report.md").read_text()
    )


def test_samples_are_spread_evenly_over_documents_that_name_no_language() -> None:
    """At most 400 of them; those that name one are counted and spoil no step."""
    found = deed.Languages()
    for number in range(1000):
        found.add(Document(f"{number:04} " * 200, meta={"language": "en"} if number % 5 == 0 else {}))
    assert found.known == {"en": 200}
    others = [number for number in range(1000) if number % 5]
    assert (found.others, found.step) == (800, 2)
    assert [int(sample.split()[1]) for sample in found.samples] == others[::2]
    assert {len(sample) for sample in found.samples} == {607}  # eight stretches of 75
    found.add(Document("one more"))
    assert (found.step, len(found.samples)) == (4, 201)


def test_shares_of_languages_weigh_what_is_known_and_what_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deed.language, "weigh", lambda sample: {sample: 1.0, "xx": 0.0})
    languages = deed.Languages(known=Counter(en=50, nb=10), samples=["nb", "nb", "nb", "sv"], others=40)
    assert deed._language_shares(languages) == (
        {"en": 0.5, "nb": 0.4, "sv": 0.1},
        ["guessed from 4 of 40 documents without a language"],
    )
    assert deed._language_shares(deed.Languages(known=Counter(en=2, nb=1))) == ({"en": 0.6667, "nb": 0.3333}, [])


def test_a_corpus_is_counted_in_blocks_of_a_million_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Document("x" * 600_000), Document("y" * (448_576)), Document("z")]
    made += [Document("w" * (1 << 20)), Document("v"), Document("u")]
    assert [[d.text[0] for d in block] for block in deed._blocks(iter(made))] == [["x", "y", "z"], ["w", "v"], ["u"]]
    assert list(deed._blocks(iter([]))) == []


def test_what_is_told_of_a_corpus_line_by_line(tmp_path: Path) -> None:
    """Two documents for training, of two sentences and of one, and one that is held out."""
    folder = tmp_path / "c"
    made = {
        "train": [
            Document("One two. Three 四五.", [8, 18], "a", {"language": "en"}),
            Document("Six", [], "b", {"language": "nb"}),
        ],
        "validation": [Document("Æ!", [2], "c", {"language": "en"})],
    }
    for split, found in made.items():
        with PartWriter(folder / split, 4000) as writer:
            for document in found:
                writer.write(msgspec.json.encode(document) + b"\n", 1, 1, 1)
    status = {
        "steps": [{"name": "tidy", "documents": 3, "changed": 1, "dropped": 0}],
        "duplicates": {"exact": 0, "near": 4, "groups": []},
    }
    run.Run(folder).set(verb="corpus", state="done", fingerprint="x", **status)
    assert stats(str(folder)) == [
        "train: 2 documents, 3 sentences, 6 words, 21 characters, 25 bytes",
        "validation: 1 document, 1 sentence, 1 word, 2 characters, 3 bytes",
        "tokens: not counted; `--tokenizer NAME` counts them",
        "all splits: 7 words: 0.00% of English Wikipedia (2,500 M), 0.00% of BookCorpus (800 M)",
        "",
        "train: words a document",
        *histogram.lines(histogram.count(np.array([5, 1]))),
        "",
        "train: words a sentence",
        *histogram.lines(histogram.count(np.array([2, 3, 1]))),
        "",
        "languages (all splits)",
        "  en: 66.7%",
        "  nb: 33.3%",
        "",
        "cleaning",
        "  tidy: 3 documents, 1 changed, 0 dropped",
        "",
        "duplicates",
        "  near: 4",
        "",
        f"{folder}/stats.svg, {folder}/stats.json",
    ]
    facts = json.loads((folder / "stats.json").read_text())
    assert facts["tokenizer"] is None
    assert facts["train"]["words_a_sentence"] == {"1": 1, "2-3": 2}
    assert facts["train"]["words_a_document"] == {"1": 1, "2-3": 0, "4-7": 1}
    wide = stats(str(folder), wide=30)
    assert max(len(line) for line in wide if "█" in line) <= 30
