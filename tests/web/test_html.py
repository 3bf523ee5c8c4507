"""Web pages: how they are decoded, what is their main text, and what odd pages do."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.absent import Lazy
from ordsmed.base.errors import RecipeError
from ordsmed.text import read
from ordsmed.web import html

lxml_html, trafilatura = Lazy("lxml.html"), Lazy("trafilatura")
PROSE = [
    f"The ferry left the {quay} quay at dawn, and nobody who stood there with a lantern waved to those on board; "
    "the water was grey, the wind had turned in the night, and the bell rang twice before the fog took it."
    for quay in ("northern", "southern", "eastern", "western", "old", "new")
]


def page(*body: str, head: str = "<title>A ferry in the fog | The Quay Post</title>") -> str:
    return f"<html><head>{head}</head><body>{''.join(body)}</body></html>"


def paragraphs(*texts: str) -> str:
    return "".join(f"<p>{text}</p>" for text in texts)


@pytest.mark.parametrize(
    ("raw", "content_type", "text"),
    [
        (b"\xef\xbb\xbf<p>\xc3\xa5", "text/html; charset=latin-1", "<p>å"),
        ("\ufeffæ".encode("utf-16-le"), "", "æ"),
        ("\ufeffæ".encode("utf-16-be"), "", "æ"),
        (b"\xe6", "text/html; charset=ISO-8859-1", "æ"),
        (b"\x93\xe6", "text/html;charset='latin1'", "“æ"),
        (b"<meta charset=koi8-r>\xc1", "", "<meta charset=koi8-r>а"),
        (b"<META http-equiv='Content-Type' content='text/html; charset=gb2312'>\x96\x57", "", "朩"),
        (b"<meta charset=utf-16>\xc3\xa5", "", "å"),
        (b"\xc3\xa5", "", "å"),
        (b"\x93\xe6", "", "“æ"),
        (b"\xc3\xa5", "text/html; charset=nonsense", "å"),
        (b"\xc3\xa5", "text/html; charset=base64", "å"),
        (b"\\u0041", "text/html; charset=unicode-escape", "\\u0041"),
        (b"a\xffb", "text/html; charset=utf-8", "a\ufffdb"),
        (b"", "", ""),
    ],
)
def test_decoding(raw: bytes, content_type: str, text: str) -> None:
    assert html.decode(raw, content_type).endswith(text)


@given(st.binary(max_size=40), st.one_of(st.text(max_size=20), st.sampled_from(["utf-7", "idna", "undefined", "hex"])))
def test_decoding_takes_whatever_comes(raw: bytes, charset: str) -> None:
    html.decode(raw, f"charset={charset}")
    html.decode(b"<meta charset=" + raw)


def test_the_paragraphs_of_a_page_without_what_stands_around_them() -> None:
    menu = "<nav><ul><li><a href=/>Home</a><li><a href=/b>Boats</a></ul></nav>"
    foot = "<footer><p>© 2024 The Quay Post</p></footer>"
    found = html.main_text(page(menu, "<article>", paragraphs(*PROSE), "</article>", foot))
    assert found.split("\n") == PROSE


@pytest.mark.parametrize(
    "beside",
    [
        "<h1>A ferry in the fog</h1>",
        "<p><strong>READ MORE: </strong><a href=/b>The bell that rang for nobody at all</a></p>",
        "<p>Sign up for our daily newsletter!</p>",
        "<p>Related: the bell</p>",
        "<p>Les også: Ferja som forsvant</p>",
        "<p>Copyright The Quay Post 2024</p>",
    ],
)
def test_what_stands_beside_the_prose_is_left_out(beside: str) -> None:
    for place in (0,) if "<h1>" in beside else (0, 3):
        parts = [paragraphs(*PROSE[:place]), beside, paragraphs(*PROSE[place:])]
        assert html.main_text(page("<article>", *parts, "</article>")).split("\n") == PROSE


@pytest.mark.parametrize(
    "said",
    [
        "Related work on ferries was done in the north.",
        "Copyright law says little about ferries.",
        "Subscribe to nothing that you have not read.",
        "The <a href=/b>bell that rang for nobody at all</a> rang again.",
        "Account: <a href=/b>@quay</a>",
        "Comments on the ferry were many, and few of them kind.",
    ],
)
def test_what_only_resembles_it_stays(said: str) -> None:
    found = html.main_text(page("<article>", paragraphs(*PROSE[:3], said, *PROSE[3:]), "</article>"))
    text = said.replace("<a href=/b>", "").replace("</a>", "")
    assert found.split("\n") == [*PROSE[:3], text, *PROSE[3:]]


def test_a_title_that_comes_again_in_the_prose_stays() -> None:
    again = [*PROSE[:4], "A ferry in the fog", *PROSE[4:]]
    assert (
        html.main_text(page("<article><h1>A ferry in the fog</h1>", paragraphs(*again), "</article>")).split("\n")
        == again
    )


@pytest.mark.parametrize(
    "box",
    [
        "<div class='related-content'>{}</div>",
        "<div class='story-promo'>{}</div>",
        "<section id='sponsored-post'>{}</section>",
        "<div class='article-tools'><header><h1>A ferry in the fog</h1>{}</header></div>",
    ],
)
def test_no_name_of_a_box_loses_what_the_library_finds(box: str) -> None:
    """Half of the prose in a box with such a name: rules that dropped it paid on few pages."""
    body = paragraphs(*PROSE[:3]), box.format(paragraphs(*PROSE[3:]))
    whole = page("<article>", *body, "</article>")
    known = trafilatura.extract(whole, fast=True, include_comments=False)
    assert known
    assert set(html.main_text(whole).split("\n")) >= set(known.split("\n")) & set(PROSE)


def test_an_article_in_several_boxes_is_put_together() -> None:
    boxes = [f"<div><div class='x article-body'>{paragraphs(*PROSE[at : at + 2])}</div></div>" for at in (0, 2, 4)]
    found = html.main_text(page("<article><div>", "<div class=ad>Buy a boat</div>".join(boxes), "</div></article>"))
    assert found.split("\n") == PROSE


def test_text_without_paragraphs_of_its_own_is_kept() -> None:
    one, two, three, four, five, six = PROSE
    body = f"{one} <b>Yes.</b>{paragraphs(two, three)}<div>A heading of sorts</div>{paragraphs(four, five)}{six}"
    found = html.main_text(page("<div class='article-body'>", body, "</div>"))
    assert found.split("\n") == [f"{one} Yes.", two, three, "A heading of sorts", four, five, six]


def test_line_breaks_part_paragraphs() -> None:
    found = html.main_text(page("<div id=content>", "<br><br>".join(PROSE), "</div>"))
    assert found.split("\n") == PROSE


@pytest.mark.parametrize("cut", ["</p><p>", "<br><br>", "<br>"])
@pytest.mark.parametrize("box", ["div class=content", "div class=message", "article class=post-text"])
def test_every_reply_of_a_forum_is_found(box: str, cut: str) -> None:
    said = [f"Reply {number}: {text}" for number in range(6) for text in PROSE[:3]]
    tag, replies = box.split()[0], [said[at : at + 3] for at in range(0, 18, 3)]
    boxes = [f"<div class=post><{box}><p>{cut.join(reply)}</p></{tag}></div>" for reply in replies]
    if cut != "</p><p>":
        boxes = [one.replace("<p>", "").replace("</p>", "") for one in boxes]
    found = html.main_text(page("<ul><li><a href=/>Home</a></ul>", *boxes))
    assert [text for text in said if text not in found] == []
    assert "Home" not in found


def test_comments_are_not_taken_for_the_article() -> None:
    comments = f"<div class=comments>{f'<div class=comment-text>{paragraphs(*PROSE)}</div>' * 9}</div>"
    assert html.main_text(page("<article>", paragraphs(*PROSE[:3]), "</article>", comments)).split("\n") == PROSE[:3]


def test_a_name_does_not_drop_what_holds_the_prose() -> None:
    body = f"<div class='barnard-menu article__body'>{paragraphs(*PROSE)}</div>"
    found = html.main_text(page("<main><article>", body, "</article>", "<div>A word on boats. " * 30, "</main>"))
    assert found.split("\n") == PROSE


@pytest.mark.parametrize(
    "odd", ["", " \n", "\0", "<", "<html></html>", page(), page("<script>var a = '<p>b</p>';</script>")]
)
def test_pages_without_prose(odd: str) -> None:
    assert html.main_text(odd) == ""


@pytest.mark.parametrize(
    "body",
    [
        "<article>" + paragraphs(*PROSE),
        "<article>" + paragraphs(*PROSE) + "</div></b></article></table>",
        "<script>" + "if (a<b) { c() }" * 50_000 + "</script><article>" + paragraphs(*PROSE) + "</article>",
        "<!-- " + "-" * 1000 + "><p>no</p> --><article>" + paragraphs(*PROSE) + "</article>",
        "<article>" + paragraphs(*PROSE).replace("ferry", "fe\0rry").replace("; ", "&#59;&#x20;") + "</article>",
        "<article>" + paragraphs(*PROSE) + "</article>" + "<div>" * 100_000,
    ],
)
def test_broken_pages_are_read_as_browsers_do(body: str) -> None:
    assert html.main_text(page(body)).split("\n")[:6] == PROSE


def test_no_page_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = page("<article>", paragraphs(*PROSE), "</article>")
    monkeypatch.setattr(html, "LONGEST", whole.index("The ferry left the old"))
    with read.tallied() as tally:
        assert html.main_text(whole).split("\n") == PROSE[:4]
    assert tally.cut == 1
    monkeypatch.setattr(html, "ELEMENTS", 5)
    with read.tallied() as tally:
        assert html.main_text(whole) == html.main_text("<div>" * 100_000 + PROSE[0]) == ""
    assert tally.left_out == {"pages that could not be parsed": 2}


def test_what_the_library_stumbles_on_is_counted_and_said_to_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def stumble(*_: Any, **__: Any) -> str:
        logging.getLogger("trafilatura.core").error("odd page")
        raise RecursionError

    monkeypatch.setattr(html._trafilatura(), "extract", stumble)
    with read.tallied() as tally:
        assert html.main_text(page(paragraphs(*PROSE))) == ""
        assert html.main_text("no markup at all") == ""
    assert tally.left_out == {"pages that could not be parsed": 2}
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_no_page_depends_on_those_before() -> None:
    same = page("<article>", paragraphs(*PROSE), "</article>")
    assert {html.main_text(same) for _ in range(5)} == {"\n".join(PROSE)}


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    html._trafilatura.cache_clear()
    with pytest.raises(RecipeError, match="`trafilatura` is not installed; pip install"):
        html.main_text(page(paragraphs(*PROSE)))


@pytest.mark.long
def test_more_of_real_pages_is_found_than_by_the_library_alone(shared_data: Path) -> None:
    path = Path(__file__).parents[1] / "measure" / "web_pages.py"
    spec = importlib.util.spec_from_file_location("web_pages", path)
    assert spec
    assert spec.loader
    measuring = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measuring)
    plain, ours = (measuring.measure(shared_data / "html-article", f) for f in (measuring.plainly, html.main_text))
    for part in (slice(None), slice(0, None, 2), slice(1, None, 2)):  # all pages, and each half
        found, known = measuring.score(ours[part]), measuring.score(plain[part])
        assert found[2] >= known[2] + 0.005
        assert found[1] >= known[1], "nothing is lost"
    lost = [1 - own / theirs for (own, *_), (theirs, *_) in zip(ours, plain, strict=True) if theirs]
    assert max(lost) <= 0.02, "of a page that the library finds by itself"


def test_a_charset_counts_in_the_first_four_kilobytes() -> None:
    meta = b"<meta charset=koi8-r>"
    for blanks, found in (
        (4096 - len(meta) - 6, "а"),
        (4096 - len(meta) + 6, "Б"),
    ):  # 0xC1 in KOI8-R, and else 0xD0 0x91
        assert html.decode(b" " * blanks + meta + (b"\xc1" if found == "а" else b"\xd0\x91"))[-1] == found
    assert html.decode(b"<meta" + b" " * 900 + b"charset=koi8-r>\xc1")[-1] == "а"


@pytest.mark.parametrize(
    ("body", "made"),
    [
        # boxes without <p> beside three or more paragraphs are paragraphs, if they are not mostly links
        (
            "<div><p>a</p><p>b</p><p>c</p><div>in <b>line</b></div><div>x<ul></ul></div>"
            "<div><a>link</a>text</div><div><a>link</a>texts</div></div>",
            "<div><p>a</p><p>b</p><p>c</p><p>in <b>line</b></p><div>x<ul></ul></div>"
            "<div><a>link</a>text</div><p><a>link</a>texts</p></div>",
        ),
        ("<div><p>a</p><p>b</p><div>in</div></div>", "<div><p>a</p><p>b</p><div>in</div></div>"),
        # line breaks tell paragraphs where there are three
        ("<div>one<br>two<br>three<br>four</div>", "<div><p>one</p><p>two</p><p>three</p><p>four</p></div>"),
        ("<div>one<br>two<br>three</div>", "<div>one<br>two<br>three</div>"),
        # loose text among paragraphs, with what stands within a line; comments part nothing
        (
            "<section> loose <b>bold</b> on <!-- c -->more <p>p</p> tail <i>i</i><ul><li>x</li></ul> \n </section>",
            "<section><p> loose <b>bold</b> on more </p><p>p</p><p> tail <i>i</i></p><ul><li>x</li></ul></section>",
        ),
        ("<table><tr><td><p>x</p>y</td></tr></table>", "<table><tr><td><p>x</p><p>y</p></td></tr></table>"),
        ("<div>a<span>b<p>c</p></span>d<p>e</p></div>", "<div><p>a</p><span>b<p>c</p></span><p>d</p><p>e</p></div>"),
        ("<article>t<p>x</p></article>", "<article><p>t</p><p>x</p></article>"),
        ("<div> <p>a</p> <b>x</b><b>y</b>z<i>w</i>v</div>", "<div><p>a</p><p><b>x</b><b>y</b>z<i>w</i>v</p></div>"),
        ("<main>a<p>b</p></main>", "<main>a<p>b</p></main>"),
    ],
)
def test_loose_text_becomes_paragraphs(body: str, made: str) -> None:
    tree = lxml_html.fromstring(f"<html><body>{body}</body></html>")
    html.make_paragraphs(tree)
    assert lxml_html.tostring(tree, encoding="unicode") == f"<html><body>{made}</body></html>"


def test_what_a_page_calls_itself() -> None:
    """The titles, and those of the first five headlines that contain a title or are part of one."""
    metas = "<meta property='og:title' content='One, two'><meta name=twitter:title content='Three!'>"
    metas += "<meta name=author content='Nobody'><meta property='og:title'>"
    heads = "".join(f"<h1>{text}</h1>" for text in ("A Ferry", "Boats", "", "one <b>two</b> three", "a ferry in"))
    tree = lxml_html.fromstring(page(heads + "<h1>in the fog</h1>", head="<title>A ferry in the fog</title>" + metas))
    assert html._headlines(tree) == {"a ferry in the fog", "one two", "three", "a ferry", "one two three", "a ferry in"}
    assert html._headlines(lxml_html.fromstring(page("<h1>A Ferry</h1>", head=""))) == set()


def test_a_headline_goes_from_the_first_four_lines_alone() -> None:
    for at in range(6):
        texts = [*PROSE[:at], "A ferry in the fog", *PROSE[at:]]
        found = html.main_text(
            page("<article>", paragraphs(*texts), "</article>", head="<title>A ferry in the fog</title>")
        )
        assert found.split("\n") == (PROSE if at < 4 else texts), at


@pytest.mark.parametrize(("longer", "stays"), [(0, False), (1, True)])
def test_a_line_of_a_hundred_characters_is_prose(longer: int, stays: bool) -> None:
    line = "Related: the bell that rang ".ljust(99 + longer, "g")
    found = html.main_text(page("<article>", paragraphs(*PROSE[:3], line, *PROSE[3:]), "</article>"))
    assert found.split("\n") == ([*PROSE[:3], line, *PROSE[3:]] if stays else PROSE)


class Library:
    """Substitute for trafilatura: returns the given results, and records whether the fast mode was requested."""

    def __init__(self, found: dict[bool, str | None]) -> None:
        self.found, self.asked = found, list[bool]()
        self.tree: Any = None

    def load_html(self, page: str) -> Any:
        self.page = page
        return lxml_html.fromstring(page) if page.strip() else None

    def extract(self, tree: Any, *, fast: bool, include_comments: bool) -> str | None:
        assert not include_comments
        self.tree = tree
        self.asked.append(fast)
        return self.found[fast]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    pytest.importorskip("lxml.html")
    found = Library({True: "plain", False: "greedy"})
    monkeypatch.setattr(html, "_trafilatura", lambda: found)
    return found


def test_a_page_is_looked_through_again_where_less_than_half_was_found(library: Library) -> None:
    """What looks like prose: texts of more than 60 characters, but not in links, scripts and comments."""
    prose = paragraphs("x" * 60, "<a>" + "x" * 900 + "</a>", "y" * 61, "z  " * 39 + "z")
    hidden = "".join(
        f"<{tag}>{'w' * 99}</{tag.split()[0]}>" for tag in ("script", "style", "noscript", "ul class=comments")
    )
    whole = page("<div class=body>", prose, "</div>", hidden, "<article><div id=comment-text></div></article>")
    for count, asked in ((70, [True]), (69, [True, False])):
        library.asked.clear()
        library.found[True] = "f" * count  # of 61 and 79
        assert html.main_text(whole) == ("f" * 70 if count == 70 else "f" * 69)
        assert library.asked == asked
    library.found[False] = "g" * 90
    assert html.main_text(whole) == "g" * 90
    tree = lxml_html.tostring(library.tree, encoding="unicode")
    assert 'class="body"' not in tree
    assert "<article" not in tree
    assert 'id="comment-text"' in tree
    library.found = {True: None, False: None}
    with read.tallied() as tally:
        assert html.main_text(whole) == ""
    assert not +tally.left_out


def test_pages_of_too_many_elements_or_characters(library: Library) -> None:
    with read.tallied() as tally:
        for count, found in ((30_000, "plain"), (30_001, "")):
            assert html.main_text("<html><body>" + "<p>x" * (count - 2) + "</body></html>") == found
        assert tally.left_out == {"pages that could not be parsed": 1}
        assert tally.cut == 0
        for length, cut in ((5 << 20, 0), ((5 << 20) + 1, 1)):
            assert html.main_text("<p>".ljust(length)) == "plain"
            assert (len(library.page), tally.cut) == (5 << 20, cut)
        for nothing in ("", " \n"):
            assert html.main_text(nothing) == ""
    assert tally.left_out == {"pages that could not be parsed": 1}
