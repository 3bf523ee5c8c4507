"""Epubs: the chapters come in the spine's order and as paragraphs; what locks, leads out or explodes is refused."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.makers import digest_of
from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.text.markup import epub, zip_archive

CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>
<dc:title>The  Heron &amp; I</dc:title><dc:creator>A. One</dc:creator><dc:creator>B. Two</dc:creator>
<dc:language>en</dc:language></metadata><manifest>%s</manifest><spine>%s</spine>%s</package>"""
PAGE = "<html xmlns:epub='x'><head><title>no text</title></head><body>%s</body></html>"


def written(path: Path, pages: dict[str, str | bytes], *, guide: str = "", more: dict[str, str] | None = None) -> Path:
    """An epub whose spine names these pages in this order; `more` adds or replaces members."""
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(pages)
    )
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(pages)))
    members: dict[str, str | bytes] = {
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": PACKAGE % (items, spine, guide),
    }
    members |= {
        f"OEBPS/{name.replace('%20', ' ')}": PAGE % page if isinstance(page, str) else page
        for name, page in pages.items()
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (members | (more or {})).items():
            archive.writestr(name, text)
    return path


def complaint(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        epub.book(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def test_chapters_come_in_the_order_of_the_spine(tmp_path: Path) -> None:
    path = written(tmp_path / "a.epub", {"z.xhtml": "<h1>One</h1><p>First.</p>", "a%20b.xhtml": "<p>Second.</p>"})
    found = epub.book(path)
    assert found.meta == {"title": "The Heron & I", "author": "A. One, B. Two", "language": "en"}
    assert found.chapters == [["One", "First."], ["Second."]]
    assert epub.book(path, headings=False).chapters == [["First."], ["Second."]]


@pytest.mark.parametrize(
    ("markup", "wanted"),
    [
        ("<p>One <i>two</i>\n 3.</p><p> </p><div>Fo<b>u</b>r<div>five</div>six", ["One two 3.", "Four", "five", "six"]),
        ("<p>A line<br/>another&nbsp;line &mdash; &#233;&amp;</p>", ["A line", "another line — é&"]),
        ("<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</ruby>だ</p>", ["漢字だ"]),
        ("<pre>one\n  two\n</pre><ul><li>x</li><li>y</li></ul>", ["one", "two", "x", "y"]),
        ("<p>so<a epub:type='noteref' href='#n1'>1</a> it was.</p><script>if (a<b) {}</script>", ["so it was."]),
        (
            "<p>so.<a class='fnanchor' href='#f1'>[1]</a>"
            " It<a href='#f2'><sup>2</sup></a> was<a href=\"#f3\">*</a>.</p>",
            ["so. It was."],
        ),
        ("<p>was <a href='#f2'><sup>2</sup></a></p><p><a href='#r1'>1</a> A note.</p>", ["was", "A note."]),
        (
            "<p>see page <a href='#p12'>12</a> and <a href='x'>[3]</a>, <a href='#y'>[so]</a></p>",
            ["see page 12 and [3], [so]"],
        ),
        ("<p>in<span epub:type='pagebreak'>12</span>side com\xadmon</p><nav><ol>I</ol></nav>", ["inside common"]),
        ("<section epub:type='toc'><p>I<p>II</section><p>text</p>", ["text"]),
        ("<section class='pg-boilerplate pgheader'>The Project<img src='x'/></section><p>text</p>", ["text"]),
        ("<p><a href='1'>Chapter 1</a></p><p><a href='2'>Chapter 2</a> 7</p>", []),
        ("<p>seen <a id='p1'/>here</p><p>and <a href='x'>there</a> too</p>", ["seen here", "and there too"]),
        ("<p>a<!-- > <p> --> b<img alt='>'/> c<br></p><!-- <!-- x -->", ["a b c"]),
        ('<p title=\'it"s\' lang="it\'s" x=">one</p>', ["one"]),
        ("<p>a < b & c <unknown>d</unknown></p>", ["a < b & c d"]),
    ],
)
def test_paragraphs(markup: str, wanted: list[str]) -> None:
    assert epub.paragraphs(PAGE % markup) == wanted


def test_what_a_doctype_declares_is_no_text() -> None:
    subset = "<!DOCTYPE html [\n<!ENTITY x 'ex&#233;'>\n<!ELEMENT p (b)>\n<!ENTITY y \"<p>no</p>\">\n] >\n"
    for start in ("", "<?xml version='1.0'?>\n"):
        assert epub.paragraphs(f"{start}{subset}<p>an &x; [a]> &amp;</p>") == ["an exé [a]> &"]


@pytest.mark.parametrize(
    "unit", ["<a ", "<!--", "<a b='", "<a href='#'>1</a>", "<nav>", "<nav></b>", "&#", "<!DOCTYPE b ["]
)
def test_a_page_broken_on_purpose_is_read_through(unit: str) -> None:
    assert epub.paragraphs("<body>" + unit * 50_000 + "<!-- --></nav><p>'>\"></p><p>x</p>")[-1:] in ([], ["x"])
    assert epub.paragraphs("<p>x</p") == ["x"]


def test_contents_and_covers_are_left_out(tmp_path: Path) -> None:
    pages = {"cover.xhtml": "<p>Cover</p>", "list.xhtml": "<p>I ... 7</p>", "1.xhtml": "<p>Text.</p>"}
    guide = '<guide><reference type="cover" href="cover.xhtml#x"/><reference type="toc" href="list.xhtml"/></guide>'
    assert epub.book(written(tmp_path / "a.epub", pages, guide=guide)).chapters == [["Text."]]
    marked = '<item id="n" href="n.xhtml" properties="nav scripted" media-type="application/xhtml+xml"/>'
    spine = '<itemref idref="n"/><itemref idref="x" linear="no"/><itemref idref="i"/><itemref idref="p"/>'
    items = marked + "".join(
        f'<item id="{name}" href="{name}.xhtml" media-type="{kind}"/>'
        for name, kind in (("x", "application/xhtml+xml"), ("i", "text/html"), ("p", "image/svg+xml"))
    )
    more = {f"OEBPS/{name}.xhtml": PAGE % f"<p>{name}</p>" for name in "nxip"} | {
        "OEBPS/book.opf": PACKAGE % (items, spine, "")
    }
    assert epub.book(written(tmp_path / "b.epub", {}, more=more)).chapters == [["i"]]


def test_encodings_of_pages(tmp_path: Path) -> None:
    declared = "<?xml version='1.0' encoding='iso-8859-1'?>" + PAGE % "<p>blå</p>"
    pages: dict[str, str | bytes] = {
        "1": declared.encode("latin-1"),
        "2": (PAGE % "<p>rød</p>").encode("utf-16"),
        "3": b"\xef\xbb\xbf<p>\xc3\xb8</p>",
    }
    assert epub.book(written(tmp_path / "a.epub", pages)).chapters == [["blå"], ["rød"], ["ø"]]
    bad = written(tmp_path / "b.epub", {"1.xhtml": b"<p>a\xff\x00b</p>"})
    assert complaint(bad).startswith(":OEBPS/1.xhtml: byte 4: invalid UTF-8 (0xff: invalid start byte)")
    with read.tallied() as tally:
        assert epub.book(bad, "replace").chapters == [["a\ufffd\x00b"]]
    assert tally.replaced == 1
    unknown = written(tmp_path / "c.epub", {"1.xhtml": b"<?xml encoding='klingon'?><p>a</p>"})
    assert complaint(unknown).startswith(":OEBPS/1.xhtml: is in `klingon`")


def test_a_page_of_one_long_line(tmp_path: Path) -> None:
    (chapter,) = epub.book(written(tmp_path / "a.epub", {"1.xhtml": "<p>" + "word " * 800_000 + "</p>"})).chapters
    assert chapter == [("word " * 800_000).strip()]


def test_locked_books_are_told_and_locked_fonts_are_none(tmp_path: Path) -> None:
    locked = (
        '<encryption><EncryptedData><CipherData><CipherReference URI="%s"/></CipherData></EncryptedData></encryption>'
    )
    for name in ("OEBPS/a.xhtml", "OEBPS/font.otf"):
        path = written(tmp_path / "a.epub", {"a.xhtml": "<p>x</p>"}, more={"META-INF/encryption.xml": locked % name})
        if name.endswith("xhtml"):
            with pytest.raises(zip_archive.Encrypted, match="is encrypted; wanted a book without copy protection"):
                epub.book(path)
        else:
            assert epub.book(path).chapters == [["x"]]


def test_a_declared_entity_is_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY s SYSTEM "file:///etc/hostname">]>'
    for name, text in (("META-INF/container.xml", CONTAINER), ("OEBPS/book.opf", PACKAGE % ("", "", "&b;&s;"))):
        path = written(
            tmp_path / "a.epub", {"a.xhtml": "<p>x</p>"}, more={name: bomb + text.removeprefix('<?xml version="1.0"?>')}
        )
        assert complaint(path).startswith(f":{name}: declares entities")
    page = (bomb + PAGE % "<p>&b; &s;</p>").encode()
    assert epub.book(written(tmp_path / "a.epub", {"a.xhtml": page})).chapters == [["&b; &s;"]]


def test_what_unpacks_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "LARGEST", 10_000)
    path = written(tmp_path / "a.epub", {"a.xhtml": "<p>x</p>", "b.xhtml": "0" * 10_000})
    assert complaint(path).startswith(": unpacks to 10,")
    path = written(tmp_path / "a.epub", {}, more={"META-INF/container.xml": CONTAINER + " " * 10_000})
    assert complaint(path).startswith(":META-INF/container.xml: unpacks to 10,")


def test_a_page_is_read_once_however_often_the_spine_names_it(tmp_path: Path) -> None:
    items, spine = '<item id="i" href="a.xhtml"/>', '<itemref idref="i"/>' * 1000
    path = written(tmp_path / "a.epub", {"a.xhtml": "<p>x</p>"}, more={"OEBPS/book.opf": PACKAGE % (items, spine, "")})
    assert epub.book(path).chapters == [["x"]]


def test_a_link_is_no_chapter(tmp_path: Path) -> None:
    path = written(tmp_path / "a.epub", {"a.xhtml": "<p>x</p>", "b.xhtml": "<p>y</p>"})
    with zipfile.ZipFile(path) as whole:
        members = {info.filename: whole.read(info) for info in whole.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name.endswith("a.xhtml") else 0o100644) << 16
            archive.writestr(info, data)
    with read.tallied() as tally:
        assert epub.book(path).chapters == [["y"]]
    assert tally.left_out == {"missing chapters": 1}


def test_names_that_lead_out_or_nowhere_find_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.xhtml").write_text(PAGE % "<p>secret</p>")
    names = ("../../secret.xhtml", str(tmp_path / "secret.xhtml"), "gone.xhtml", "a.xhtml")
    items = "".join(f'<item id="i{n}" href="{name}"/>' for n, name in enumerate(names))
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(names)))
    (tmp_path / "in").mkdir()
    path = written(
        tmp_path / "in/a.epub", {"a.xhtml": "<p>x</p>"}, more={"OEBPS/book.opf": PACKAGE % (items, spine, "")}
    )
    with read.tallied() as tally:
        assert epub.book(path).chapters == [["x"]]
    assert tally.left_out == {"missing chapters": 3}


def test_broken_books_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.epub"
    assert complaint(path) == ": no such file"
    whole = written(path, {"a.xhtml": "<p>x</p>"}).read_bytes()
    for data in (b"", b"no zip", whole[: len(whole) // 2], whole.replace(b"OEBPS/a.xhtml", b"OEBPS/b.xhtml", 1)):
        path.write_bytes(data)
        assert complaint(path).startswith(": is not a complete epub: ")
    assert complaint(written(path, {"a": ""}, more={"META-INF/container.xml": "<container/>"})).startswith(
        ": has no `package`"
    )
    assert complaint(written(path, {"a": ""}, more={"META-INF/container.xml": "<cont"})).startswith(
        ":META-INF/container.xml: is broken"
    )
    assert complaint(written(path, {})).startswith(": no chapters")


@given(st.data())
def test_damage_gives_a_book_or_a_complaint(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.epub"
    whole = bytearray(written(path, {"a.xhtml": "<p>x</p>", "b.xhtml": "<h1>y</h1>"}).read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    with contextlib.suppress(DataError):  # anything else is a failure
        epub.book(path)


def test_no_word_of_the_tables_is_lost_unseen() -> None:
    """What is text hangs on each: who changes one says so in the change log, and the digest here."""
    names = "_BLOCKS _HEADINGS _VOID _DROPPED _FRONT _MARKS _TAG _NOTE _TO_NOTE _SUBSET _ENTITY _ATTRIBUTE"
    assert digest_of(epub, names) == "c9514eda"
