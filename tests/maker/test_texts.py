"""Which texts there are: how files are read, what is left out and said, and what a sample tells of all."""

from __future__ import annotations

import bz2
import csv
import gzip
import itertools
import json
import random
import sys
import zipfile
from pathlib import Path

import pytest

from ordsmed.base import settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.corpus.pipeline import Corpus
from ordsmed.maker import texts
from ordsmed.text import language
from ordsmed.text.markup import pdf

PROSE = "The river rose in the night and took the bridge with it. Nobody in the village had seen such water before."


STEMS = ["river", "bridge", "village", "water", "night", "market", "letter", "winter", "garden", "window", "captain"]
ENDS = ["", "s", "ing", "less", "ward", "man", "like", "y", "er", "ish"]


def sentence(draw: random.Random) -> str:
    words = [draw.choice(STEMS) + draw.choice(ENDS) for _ in range(draw.randint(8, 20))]
    return " ".join(["The", *words]) + "."


def prose(paragraphs: int, *, apart: str = "\n\n", of: int = 3, seed: int = 0) -> str:
    """Documents of several lines, in drawn sentences."""
    draw = random.Random(seed)
    return apart.join("\n".join(f"{sentence(draw)} {sentence(draw)}" for _ in range(of)) for _ in range(paragraphs))


def sources(folder: Path) -> dict[str, dict[str, object]]:
    return {source["kind"]: source for source in texts.input_texts([str(folder)]).sources}


def test_each_kind_of_file_is_read_by_its_own_source(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(prose(5))
    (tmp_path / "b.md.gz").write_bytes(gzip.compress(prose(5).encode()))
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "1", "body": PROSE, "url": "x"}) + "\n")
    (tmp_path / "d.xml.bz2").write_bytes(bz2.compress(b"<mediawiki><page></page></mediawiki>"))
    (tmp_path / "d.xml-p1p41242.bz2").write_bytes(bz2.compress(b"<mediawiki><page></page></mediawiki>"))
    with (tmp_path / "e.csv").open("w") as file:
        csv.writer(file).writerows([["n", "note"], ["1", PROSE]])
    (tmp_path / "f.epub").write_bytes(b"PK")
    (tmp_path / "no-suffix").write_text(prose(5))
    (tmp_path / "g.bin").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "h.doc").write_bytes(b"\0" * 99)
    (tmp_path / "i.odt").write_bytes(b"PK")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(prose(900).encode())[:200])
    found = texts.input_texts([str(tmp_path)])
    kinds = {source["kind"]: source for source in found.sources}
    assert set(kinds) == {"text", "jsonl", "wikipedia", "csv", "books", "office"}
    assert kinds["jsonl"]["text_key"] == "body"
    assert kinds["csv"]["text_key"] == "note"
    assert [Path(path).name for path in kinds["text"]["path"]] == ["a.txt", "b.md.gz", "no-suffix"]
    assert [Path(path).name for path in kinds["wikipedia"]["path"]] == ["d.xml-p1p41242.bz2", "d.xml.bz2"]
    assert found.left_out == {".bin file": 1, ".doc file": 1, "empty file": 1, "unreadable file": 1}
    assert found.unreadable == ("cut.txt.gz",)
    assert found.skipped == (
        "cut.txt.gz: cannot be read",
        "empty.txt: is empty",
        "g.bin: is not text",
        "h.doc: is not text; catdoc makes text of it",
    )
    assert found.files == 9
    assert settings.decode(Corpus, {"source": list(found.sources)}, "test").sources  # every table is one of the menu's


def test_a_folder_of_one_kind_is_named_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(prose(5))
    (tmp_path / "b.txt").write_text(prose(5))
    assert sources(tmp_path)["text"]["path"] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "kind", "apart"),
    [
        (prose(20), "text", "blank"),  # blocks of lines
        ("\n\n".join([PROSE] * 20), "text", "file"),  # paragraphs of a line each
        ("\n".join([PROSE] * 20), "text", "file"),  # lines, which are sentences
        ("\n".join([PROSE * 4] * 20), "text", "line"),  # long lines
    ],
)
def test_how_documents_are_told_apart(tmp_path: Path, text: str, kind: str, apart: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    source = sources(tmp_path)[kind]
    assert source["apart"] == apart


def test_wrapped_lines_are_a_book(tmp_path: Path) -> None:
    words = (PROSE + " ") * 60
    lines, line = [], ""
    for word in words.split():
        if len(line) + len(word) > 68:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    (tmp_path / "a.txt").write_text("\n".join(lines))
    assert set(sources(tmp_path)) == {"books"}


def test_nothing_that_is_text_is_one_line_with_what_helps(tmp_path: Path) -> None:
    (tmp_path / "a.doc").write_bytes(b"\0" * 99)
    with pytest.raises(DataError, match=r"1 \.doc file\).*catdoc makes text of \.doc files"):
        texts.input_texts([str(tmp_path)])


def test_documents_of_word_processors_are_read_and_broken_ones_named(tmp_path: Path) -> None:
    for number in range(2):
        paragraphs = prose(120, of=1, seed=number).split("\n\n")
        body = "".join(f"<w:p><w:r><w:t>{paragraph}</w:t></w:r></w:p>" for paragraph in paragraphs)
        with zipfile.ZipFile(tmp_path / f"{number}.docx", "w") as archive:
            archive.writestr("_rels/.rels", "<Relationships/>")
            archive.writestr("word/document.xml", f'<w:document xmlns:w="w">{body}</w:document>')
    (tmp_path / "broken.odt").write_bytes(b"no zip")
    (tmp_path / "empty.txt").write_bytes(b"")
    found = texts.input_texts([str(tmp_path)])
    survey = texts.survey(found)
    assert survey.documents == pytest.approx(2, rel=0.1)
    assert texts.lines(found, survey)[1:4] == [
        "left out: 1 empty file, 1 broken file",
        "  broken.odt: is not a complete odt: File is not a zip file; copy it again, or repair it",
        "  empty.txt: is empty",
    ]


def test_pdfs_are_named_where_their_reader_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "is_installed", lambda: False)
    (tmp_path / "a.txt").write_text(prose(900))
    for number in range(7):
        (tmp_path / f"{number}.pdf").write_bytes(b"%PDF-1.7")
    found = texts.input_texts([str(tmp_path)])
    assert texts.lines(found, texts.survey(found))[1:] == [
        "left out: 7 PDF files (pip install 'ordsmed[pdf]' reads them)",
        *(f"  {number}.pdf: pip install 'ordsmed[pdf]' reads them" for number in range(5)),
        "  and 2 more",
    ]


def test_a_corpus_stands_alone(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "status.json").write_text('{"verb": "corpus", "state": "running"}')
    with pytest.raises(RecipeError, match="not finished"):
        texts.input_texts([str(corpus)])
    (tmp_path / "a.txt").write_text(prose(5))
    with pytest.raises(RecipeError, match="named with other texts"):
        texts.input_texts([str(corpus), str(tmp_path / "a.txt")])


def test_a_sample_tells_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "OF_A_FILE", 1_000)
    monkeypatch.setattr(texts, "SAMPLE", 40_000)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(prose(1_000, seed=number))
    survey = texts.survey(texts.input_texts([str(tmp_path)]))
    words = sum(len(path.read_text().split()) for path in tmp_path.glob("*.txt"))
    assert survey.sampled < 0.5 * sum(path.stat().st_size for path in tmp_path.glob("*.txt"))
    assert survey.words == pytest.approx(words, rel=0.05)
    assert survey.documents == pytest.approx(4_000, rel=0.05)


def test_a_sample_tells_of_packed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "OF_A_FILE", 1_000)
    monkeypatch.setattr(texts, "SAMPLE", 40_000)
    text = prose(1_000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    survey = texts.survey(texts.input_texts([str(tmp_path)]))
    assert survey.sampled < len(text)
    assert survey.words == pytest.approx(len(text.split()), rel=0.1)


def test_what_cleaning_drops_is_told(tmp_path: Path) -> None:
    digits = "\n".join("4711 0815 1234 5678 " * 10 for _ in range(4))
    (tmp_path / "a.txt").write_text("\n\n".join([prose(200), *[digits] * 100]))
    found = texts.input_texts([str(tmp_path)])
    survey = texts.survey(found)
    assert any(reason.startswith("ratios") for reason in survey.dropped)
    assert any("cleaning drops about" in line for line in texts.lines(found, survey))


def test_too_few_words_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(prose(3))
    with pytest.raises(DataError, match=r"about \d+ words; wanted 2,000 or more"):
        texts.survey(texts.input_texts([str(tmp_path)]))


def test_encodings_and_languages_are_told(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    norwegian = (
        "Elva steg om natta og tok brua med seg. Ingen i bygda hadde sett så mye vann før, sa de gamle på høyden."
    )
    draw = random.Random(0)
    several = [" ".join(draw.sample(norwegian.split(), 18)) for _ in range(900)]
    (tmp_path / "a.txt").write_bytes("\n\n".join(f"{a}\n{b}" for a, b in itertools.pairwise(several)).encode("cp1252"))
    found = texts.input_texts([str(tmp_path)])
    survey = texts.survey(found)
    assert survey.language in ("nb", "nn")
    assert list(survey.encodings) == ["cp1252"]


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ({"nb": 0.8, "da": 0.2}, "nb"),
        ({"nn": 0.6, "nb": 0.4}, "nn"),
        ({"nb": 0.6, "und": 0.4}, "nb"),
        ({"en": 0.6, "de": 0.4}, ""),
        ({"und": 0.6, "en": 0.4}, ""),
        ({}, ""),
    ],
)
def test_a_language_is_told_where_it_is_certain(shares: dict[str, float], wanted: str) -> None:
    assert texts.TextSurvey(1.0, 1.0, 1.0, shares, {}, {}, 1, 1, 0.0).language == wanted


def test_it_is_said_how_to_have_the_language_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    monkeypatch.setattr(language, "_identifier", language._identifier.__wrapped__)
    (tmp_path / "a.txt").write_text(prose(900))
    found = texts.input_texts([str(tmp_path)])
    survey = texts.survey(found)
    assert survey.language == ""
    [line] = texts.lines(found, survey)
    assert line.endswith("words; language unknown: `pip install 'ordsmed[corpora]'` detects it")


def test_what_is_made_inside_the_texts_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(prose(5))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/b.txt").write_text(prose(5))
    [source] = texts.input_texts([str(tmp_path)], str(tmp_path / "out")).sources
    assert source["path"] == str(tmp_path / "a.txt")


def test_many_files_are_named_by_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LISTED", 3)
    (tmp_path / "inner").mkdir()
    for number in range(4):
        (tmp_path / f"inner/{number}.txt").write_text(prose(5))
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": PROSE}) + "\n")
    found = texts.input_texts([str(tmp_path)])
    assert {str(source["path"]) for source in found.sources} == {
        f"['{tmp_path}/**/*.{end}']" for end in ("txt", "jsonl")
    }
    recipe = settings.decode(Corpus, {"source": list(found.sources)}, "test")
    assert sum(len(source.pieces()) for source in recipe.sources) == 8  # type: ignore[attr-defined]


def test_of_very_many_files_the_names_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LOOKED_AT", 2)
    opened = []
    source_of = texts._source_of
    monkeypatch.setattr(texts, "_source_of", lambda path, suffix: opened.append(path.name) or source_of(path, suffix))
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(prose(5))
    (tmp_path / "z.jsonl").write_text(json.dumps({"text": PROSE}) + "\n")
    found = texts.input_texts([str(tmp_path)])
    assert found.files == 7
    assert opened == ["0.txt", "1.txt", "z.jsonl"]
