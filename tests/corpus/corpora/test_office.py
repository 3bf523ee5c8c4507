"""Documents of word processors and PDFs as a corpus: a document a file, broken ones named, others counted."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ordsmed.base.errors import DataError
from ordsmed.base.run import obtain
from ordsmed.corpus.corpora import office
from ordsmed.corpus.folder import documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.text import read
from ordsmed.text.document import Document

TEXT = "<text:p>{}</text:p>"


def odt(path: Path, *paragraphs: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("content.xml", f"<o xmlns:text='t'>{''.join(map(TEXT.format, paragraphs))}</o>")
        archive.writestr("meta.xml", "<o xmlns:dc='dc'><dc:title>Herons</dc:title></o>")
    return path


def test_a_document_a_file(tmp_path: Path) -> None:
    path = odt(tmp_path / "a.odt", "One.", "Two.")
    odt(tmp_path / "b.ODT")
    (tmp_path / "c.jpg").write_bytes(b"\xff")
    with read.tallied() as tally:
        found = list(office.Office(str(tmp_path)).documents())
    assert found == [Document("One.\nTwo.", id=str(path), meta={"title": "Herons"})]
    assert tally.left_out == {"documents without text": 1, "files of other kinds": 1}
    assert tally.bytes == office.Office(str(tmp_path)).size()


def test_a_corpus_names_broken_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(6):
        odt(tmp_path / f"texts/{number}.odt", f"It is document {number} of the corpus that is made here.")
    (tmp_path / "texts/broken.docx").write_bytes(b"PK")
    words = [f"source.path={tmp_path}/texts", "validation=0.2", "processes=1"]
    folder = obtain(Corpus, "office", [*words, f"out={tmp_path}/out"])
    assert sum(len(list(documents(path))) for name in ("train", "validation") for path in parts(folder, name)) == 6
    assert "left out: " in (said := capsys.readouterr().err)
    assert "broken.docx: is not a complete docx" in said
    with pytest.raises(DataError, match=r"broken\.docx: is not a complete docx"):
        obtain(Corpus, "office", [*words, "broken=refuse", f"out={tmp_path}/refused"])


def test_a_reader_of_text_says_who_reads_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`ordsmed corpus office` reads it"):
        list(read.lines(odt(tmp_path / "a.odt", "x")))
