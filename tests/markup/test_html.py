"""Web pages: how they are decoded, what is their main text, and what odd pages do."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import trafilatura
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base.errors import RecipeError
from ordsmed.markup import html
from ordsmed.text import read

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
        "<div class='related-content'>{}</div>", "<div class='story-promo'>{}</div>",
        "<section id='sponsored-post'>{}</section>",
        "<div class='article-tools'><header><h1>A ferry in the fog</h1>{}</header></div>",
    ],
)  # fmt: skip
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
