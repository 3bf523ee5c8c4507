"""Wikipedia: from a dump in any language to prose, with what was left out counted."""

from __future__ import annotations

import bz2
import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.corpus.corpora import wikipedia
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece

SITE = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="{0}"><siteinfo><dbname>{0}wiki</dbname>
<base>https://{0}.wikipedia.org/wiki/Main</base><namespaces><namespace key="6">{1}</namespace>
<namespace key="14">{2}</namespace></namespaces></siteinfo>"""


def page(number: int, title: str, text: str, more: str = "<ns>0</ns>") -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return f"<page><title>{title}</title>{more}<id>{number}</id><revision><text>{text}</text></revision></page>\n"


def documents(path: Path, text: str, **settings: Any) -> tuple[list[Document], dict[str, int]]:
    path.write_text(text, encoding="utf-8")
    with read.tallied() as tally:
        return list(wikipedia.Wikipedia(str(path), **settings).documents()), dict(tally.left_out)


WORLD = {
    "en": ("File", "Category", "'''Ula''' is a [[town]].<ref>{{cite}}</ref>", "Ula is a town.", "REDIRECT", "disambig"),
    "nb": ("Fil", "Kategori", "'''Ula''' er en [[by]].{{tr}}", "Ula er en by.", "OMDIRIGERING", "peker"),
    "de": (
        "Datei",
        "Kategorie",
        "'''Ula''' ist ein [[Ort|Dorf]].",
        "Ula ist ein Dorf.",
        "WEITERLEITUNG",
        "Begriffsklärung",
    ),
    "ru": (
        "Файл",
        "Категория",
        "'''Ула''' — [[город]] ({{lang-en|Ula}}).",
        "Ула — город (Ula).",
        "перенаправление",
        "неоднозначность",
    ),
    "ar": ("ملف", "تصنيف", "'''أولا''' [[مدينة]]&nbsp;صغيرة.", "أولا مدينة صغيرة.", "تحويل", "توضيح"),
    "zh": ("文件", "分类", "'''乌拉'''（{{bd}}；小）是[[城市|城]]。", "乌拉（小）是城。", "重定向", "消歧义"),
    "xx": ("Own File", "Own kind", "Ula [[x]].", "Ula x.", "redirect", "dab"),
}


@pytest.mark.parametrize("language", WORLD)
def test_dumps_of_many_languages(tmp_path: Path, language: str) -> None:
    file, category, text, shown, redirect, ambiguous = WORLD[language]
    marked = f"[[{file}:a.jpg|mini|x [[y]]]]\n{text}\n\n== H ==\n* l\n[[{category}:c]]"
    dump = [
        SITE.format(language, file, category),
        page(1, "Ula", marked),
        page(2, "To", "[[There]]", '<ns>0</ns><redirect title="There"/>'),
        page(3, "To", f"#{redirect} [[There]]"),
        page(4, f"{file}:a.jpg", "x", "<ns>6</ns>"),
        page(5, "None", " "),
        page(6, "No prose", "* [[a]]"),
        page(7, "Many", f"Ula:\n* a\n{{{{{ambiguous}}}}}"),
        "</mediawiki>",
    ]
    found, left_out = documents(tmp_path / "a.xml", "".join(dump))
    about = {"title": "Ula", "url": f"https://{language}.wikipedia.org/wiki/Ula"}
    assert found == [Document(shown, id=f"{language}wiki:1", meta=about)]
    assert left_out == {"redirects": 2, "other namespaces": 1, "empty": 2, "disambiguation pages": 1}


def test_settings(tmp_path: Path) -> None:
    dump = "<mediawiki>" + page(1, "A", "A:\n{{dab}}") + page(2, "Talk:A", "B.", "<ns>1</ns>") + page(3, "C", "C.", "")
    path = tmp_path / "a.xml"
    found, left_out = documents(path, dump, namespaces=[0, 1], disambiguation=True, cut="take")
    assert [(d.id, d.text) for d in found] == [("1", "A:"), ("2", "B."), ("3", "C.")]
    assert left_out == {"cut-off dumps": 1}
    with pytest.raises(ValueError, match=r"namespaces: found an empty list; wanted numbers such as \[0\]"):
        wikipedia.Wikipedia(str(path), namespaces=[])


def test_what_wikiextractor_wrote_is_taken_as_it_stands(tmp_path: Path) -> None:
    text = (
        '{"id": 1, "url": "u", "title": "A", "text": "A\\n\\n# B [[c]]"}\n{"id": 2, "url": "", "title": "", "text": ""}'
    )
    found, left_out = documents(tmp_path / "wiki_00", text)
    assert found == [Document("# B [[c]]", id="1", meta={"title": "A", "url": "u"})]
    assert left_out == {"empty": 1}


def test_a_multistream_dump_is_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.text.markup.dump.PART", 1000)
    streams = [SITE.format("xx", "Bilete hos oss", "Slag")]
    streams += [page(n, f"T{n}", f"[[Bilete hos oss:a|b]]Text {n} " + f"{n * n} " * 500) for n in range(40)]
    (tmp_path / "a.xml.bz2").write_bytes(b"".join(bz2.compress(s.encode()) for s in [*streams, "</mediawiki>"]))
    settings = wikipedia.Wikipedia(str(tmp_path))
    pieces = settings.pieces()
    assert len(pieces) > 3
    raw = [pickle.loads(pickle.dumps(d)) for piece in pieces for d in settings.read(piece)]
    assert [settings.refine(d) for d in raw] == list(settings.documents())
    assert list(map(settings.refine, raw)) == list(map(settings.refine, settings.read(Piece(pieces[0].path))))
    assert [d.text[:7].strip() for d in settings.documents()] == [f"Text {n}" for n in range(40)]


def test_every_setting_reaches_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = "<mediawiki>" + page(1, "A", "A\ufffe.", "<ns>0</ns><id>1</id>") + "</mediawiki>"
    path = tmp_path / "a.xml"
    with pytest.raises(DataError, match="forbids"):
        documents(path, dump)
    found, _ = documents(path, dump, errors="replace")
    assert [d.text for d in found] == ["A\ufffd."]
    with pytest.raises(DataError, match="cut off"):
        documents(path, dump[:-5].replace("\ufffe", ""))
    monkeypatch.setattr(read, "WINDOW", 1 << 20)
    packed = tmp_path / "b.xml.gz"
    packed.write_bytes(gzip.compress(("<mediawiki>" + page(1, "A", "a " * 1_500_000) + "</mediawiki>").encode()))
    with pytest.raises(DataError, match="200 times"):
        list(wikipedia.Wikipedia(str(packed)).documents())
    assert len(list(wikipedia.Wikipedia(str(packed), densest=0).documents())) == 1
    with pytest.raises(ValueError, match="densest: found -1; wanted at least 0"):
        wikipedia.Wikipedia(str(packed), densest=-1)


def test_disambiguation_pages_are_named_by_their_template_alone(tmp_path: Path) -> None:
    """WikiExtractor's output contains no wikitext, even if it looks so; a page may have neither title nor address."""
    path = tmp_path / "wiki_00"
    text = '{"id": 1, "url": "", "title": "", "text": "#REDIRECT [[b]] {{dab}}"}\n'
    found, left_out = documents(path, text)
    assert (found, left_out) == ([Document("#REDIRECT [[b]] {{dab}}", id="1", meta={})], {})
