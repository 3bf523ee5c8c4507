"""Web pages as a corpus: downloaded or local; excluded pages are counted by reason."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.web_server import Answer, Server, serving
from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.web.corpora import web
from ordsmed.web.pages import Page, Pages, part_path

PROSE = "The old bridge was mended in spring, and carts crossed the brown river again before the hay was in."
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def markup(name: str, text: str = PROSE) -> bytes:
    paragraphs = "".join(f"<p>{name} {n}. {text}</p>" for n in range(4))
    return f"<html><body><nav><a href='/'>Home</a></nav><article>{paragraphs}</article></body></html>".encode()


def prose(name: str) -> str:
    return "\n".join(f"{name} {n}. {PROSE}" for n in range(4))


def downloaded(folder: Path, urls: list[str], **told: Any) -> web.Web:
    (folder / "list.txt").write_text("\n".join(urls))
    told = {"pause": 0.0, "private": True, "timeout": 5.0, **told}
    return web.Web(urls=str(folder / "list.txt"), pages=str(folder / "pages"), **told)


def documents(settings: web.Web) -> tuple[list[Document], dict[str, int]]:
    with read.tallied() as tally:
        found = list(settings.documents())
    return found, dict(+tally.left_out)  # without what was counted 0 times


def test_pages_of_a_list(server: Server, tmp_path: Path) -> None:
    server.pages = {
        "/1": Answer(markup("one"), headers=HTML, wait=0.1),
        "/2": Answer(markup("two"), headers=HTML),
        "/3": Answer("tre å ".encode("latin-1") * 99, headers={"Content-Type": "text/plain; charset=latin-1"}),
        "/short": Answer(markup("", "Brief."), headers=HTML),
        "/empty": Answer(b"", headers=HTML),
        "/robots.txt": b"User-agent: *\nDisallow: /secret",
    }
    paths = ["/2", "/1", "/1#top", "/gone", "/short", "/3", "/empty", "/secret", "/a.jpg"]
    found, left_out = documents(downloaded(tmp_path, [server.url(path) for path in paths]))
    assert found == [
        Document(prose("two"), id=server.url("/2"), meta={"url": server.url("/2")}),
        Document(prose("one"), id=server.url("/1"), meta={"url": server.url("/1")}),
        Document("tre å " * 99, id=server.url("/3"), meta={"url": server.url("/3")}),
    ]
    assert left_out == {
        "duplicate address": 1,
        "no page by its extension": 1,
        "HTTP 404": 1,
        "robots.txt": 1,
        "short main text": 1,
        "no main text": 1,
    }


def test_the_corpus_is_the_same_from_the_folder_alone(server: Server, tmp_path: Path) -> None:
    server.pages = {f"/{n}": Answer(markup(f"page {n}"), headers=HTML) for n in range(6)}
    urls = [server.url(f"/{n}") for n in (5, 0, 3, 1)]
    first = documents(downloaded(tmp_path, urls))
    asked = len(server.asked)
    assert documents(downloaded(tmp_path, urls)) == first
    assert documents(downloaded(tmp_path, urls, download=False)) == first
    found, left_out = documents(downloaded(tmp_path, [*urls[::-1], server.url("/2")], download=False))
    assert (found, left_out) == (first[0][::-1], {"not downloaded": 1})
    assert len(server.asked) == asked  # nothing was requested again, not even robots.txt


def test_pieces_hold_what_the_whole_does(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PIECE", 2 * web.SLOT.itemsize)
    settings = downloaded(tmp_path, [f"http://a.org/{n}" for n in range(5)], download=False)
    with Pages(tmp_path / "pages") as pages:
        for n in (4, 1, 3, 2):
            pages.keep(Page(f"http://a.org/{n}", "text/html", markup(str(n))), 1)
    settings.prepare()
    pieces = settings.pieces()
    with read.tallied() as tally:
        found = [[raw.id[-1] for raw in settings.read(piece)] for piece in pieces]
    assert found == [["1"], ["2", "3"], ["4"]]
    assert (tally.left_out, tally.bytes) == ({"not downloaded": 1}, settings.size())
    assert tally.bytes == part_path(tmp_path / "pages", 0).stat().st_size


def test_a_list_of_nothing_is_a_piece_that_tells_why(tmp_path: Path) -> None:
    assert documents(downloaded(tmp_path, ["mailto:somebody"])) == ([], {"malformed address": 1})


def test_private_addresses_are_left_out_unless_asked_for(server: Server, tmp_path: Path) -> None:
    settings = downloaded(tmp_path, [server.url("/")], private=False)
    assert documents(settings) == ([], {"private host": 1})
    assert server.asked == []


def test_every_hop_is_judged_by_the_rules(server: Server, tmp_path: Path) -> None:
    """`127.0.0.1` is an allowed host; redirects to a banned host are neither requested nor used."""
    banned = tmp_path / "banned.txt"
    banned.write_text("127.0.0.9\n")
    led = lambda to: Answer(status=302, headers={"Location": to})  # noqa: E731
    server.pages = {
        "/bad": led(server.url("/x", "127.0.0.9")),
        "/twice": led("/bad"),
        "/pattern": led("/casino/1"),
        "/good": led("/there"),
        "/there": Answer(markup("there"), headers=HTML),
        "/file": led("/a.pdf"),
        "/x": Answer(markup("x"), headers=HTML),
        "/casino/1": Answer(markup("casino"), headers=HTML),
    }
    urls = [server.url(path) for path in ("/bad", "/twice", "/pattern", "/good", "/file")]
    told = {"blacklist": [str(banned)], "patterns": ["casino"]}
    found, left_out = documents(downloaded(tmp_path, urls, **told))
    assert [document.id for document in found] == [server.url("/good")]
    assert left_out == {
        "blacklisted domain behind a redirect": 2,
        "pattern in address behind a redirect": 1,
        "no page by its extension behind a redirect": 1,
    }
    assert server.count("/x") == server.count("/casino/1") == 0
    asked = len(server.asked)
    assert documents(downloaded(tmp_path, urls, **told)) == (found, left_out)
    assert len(server.asked) == asked, "addresses that the rules exclude are not requested again"
    found, left_out = documents(
        downloaded(tmp_path, urls, **told | {"patterns": ["there"]})
    )  # other rules, same folder
    assert [document.id for document in found] == [server.url("/pattern")]
    assert left_out["pattern in address behind a redirect"] == 1, "a page that exists already"
    assert server.count("/there") == 1


def test_links_of_reddit(server: Server, tmp_path: Path) -> None:
    server.pages = {"/1": Answer(markup("one"), headers=HTML)}
    rows = [json.dumps({"url": server.url("/1"), "score": 9}), json.dumps({"url": server.url("/2"), "score": 1})]
    found, left_out = documents(downloaded(tmp_path, rows))
    assert ([d.text for d in found], left_out) == ([prose("one")], {"low score": 1})


def test_files_that_stand_here(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "1.html").write_bytes(markup("one"))
    (folder / "2.HTM").write_bytes(markup("zwei", PROSE + " über").replace(b"<html>", b"<meta charset=utf-8>"))
    (folder / "3.xhtml").write_bytes(b"")
    (folder / "4.html").write_bytes(bytes(50_000_000))
    (folder / "5.css").write_text("p {}")
    (folder / "6.html").write_bytes(b"<p>\xff\xfe\x00" + bytes(range(256)) * 3)
    (folder / "7.html.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    (folder / "8.html.gz").write_bytes(gzip.compress(markup("acht")))
    found, left_out = documents(web.Web(path=str(folder)))
    assert [(d.id, d.meta) for d in found[:2]] == [(str(folder / "1.html"), {}), (str(folder / "2.HTM"), {})]
    assert found[0].text == prose("one")
    assert "über" in found[1].text
    assert found[-1].text == prose("acht")
    assert (left_out["too large"], left_out["neither HTML nor WARC"]) == (2, 1)
    assert len(found) + sum(left_out.values()) == 8
    assert web.Web(path=str(folder)).size() == sum(p.stat().st_size for p in folder.iterdir())


def test_warc_files(tmp_path: Path) -> None:
    with Pages(tmp_path) as pages:
        pages.keep(Page("http://a.org/1", "text/html", markup("one")), 1)
        pages.keep(Page("http://a.org/2", "image/png", b"\x89PNG"), 1)
        pages.keep(Page("http://a.org/3", "text/html", bytes(20_000)), 1)
    found, left_out = documents(web.Web(path=str(part_path(tmp_path, 0)), largest=10_000))
    assert found == [Document(prose("one"), id="http://a.org/1", meta={"url": "http://a.org/1"})]
    assert left_out == {"no HTML or text": 1, "too large": 1}


def test_the_stamp_follows_lists_and_rules_and_not_the_folder(tmp_path: Path) -> None:
    settings = downloaded(tmp_path, ["http://a.org/"], download=False)
    before = settings.stamp()
    with Pages(tmp_path / "pages") as pages:
        pages.keep(Page("http://a.org/", "text/html", b""), 1)
    settings.prepare()
    assert settings.stamp() == before
    assert dataclasses.replace(settings, patterns=["x"]).stamp() != before
    assert dataclasses.replace(settings, threads=1).stamp() == before
    assert downloaded(tmp_path, ["http://a.org/", "http://b.org/"]).stamp() != before
    (tmp_path / "a.html").write_text("a")
    assert web.Web(path=str(tmp_path / "a.html")).stamp() == read.stamp([tmp_path / "a.html"])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "path: found neither `path` nor `urls`; wanted one of them"),
        ({"path": "a", "urls": "b"}, "path: found both `path` and `urls`; wanted one of them"),
        ({"path": "a", "shortest": -1}, "shortest: found -1; wanted at least 0"),
        ({"path": "a", "threads": 0}, "threads: found 0; wanted at least 1"),
        ({"path": "a", "patterns": ["("]}, "patterns: found '\\('"),
    ],
)
def test_what_cannot_be_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        web.Web(**told)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: no such file or folder"):
        web.Web(urls=str(tmp_path / "none.txt"), pages=str(tmp_path / "pages")).prepare()
    with pytest.raises(DataError, match=r"pages: no such folder; .*; set `download = true`"):
        downloaded(tmp_path, ["http://a.org/"], download=False).prepare()


def test_real_pages(shared_data: Path) -> None:
    found, left_out = documents(web.Web(path=str(shared_data / "html-article" / "html" / "0*")))
    assert len(found) + sum(left_out.values()) == len(list((shared_data / "html-article" / "html").glob("0*")))
    assert all(len(document.text) >= 200 for document in found)
    assert len(found) > 2


@pytest.mark.parametrize(
    "name",
    ["a.html", "a.HTM", "a.xhtml", "a.html.gz", "a.warc", "a.warc.gz", "a.wet", "a.html.txt", "ahtml", "a.wet.bz2"],
)
def test_which_files_are_read(tmp_path: Path, name: str) -> None:
    data = markup("one")
    if ".w" in name:
        head = "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: u\r\nContent-Type: text/plain\r\n"
        head += f"Content-Length: {len(data)}"
        data = head.encode() + b"\r\n\r\n" + data + b"\r\n\r\n"
    (path := tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found, left_out = documents(web.Web(path=str(path)))
    wanted = name not in ("a.html.txt", "ahtml", "a.wet.bz2")
    assert (len(found), left_out) == (int(wanted), {} if wanted else {"neither HTML nor WARC": 1})


@pytest.mark.parametrize(
    ("length", "shortest", "kept"), [(200, 200, 1), (199, 200, 0), (1, 1, 1), (0, 0, 0), (1, 0, 1)]
)
def test_a_page_of_as_many_characters_as_are_wanted_is_kept(length: int, shortest: int, kept: int) -> None:
    settings = web.Web(path="x", shortest=shortest)
    with read.tallied() as tally:
        found = settings.refine(Document("x" * length, meta={"plain": True, "url": "u"}))
    assert (found is not None) == bool(kept)
    assert found is None or found.meta == {"url": "u"}
    assert dict(+tally.left_out) == ({} if kept else {"short main text" if length else "no main text": 1})


def test_records_of_an_archive_are_judged_by_status_kind_and_size(tmp_path: Path) -> None:
    """The content type may have parameters and capitals; a page of exactly the maximum size is kept."""
    text = b"x" * 300

    def record(number: int, status: int, kind: str, body: bytes) -> bytes:
        body = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n\r\n".encode() + body
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.org/{number}\r\n"
        return (
            f"{head}Content-Type: application/http\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"
        )

    told = [(200, "Text/Plain ; charset=utf-8"), (404, "text/plain"), (200, "image/png"), (200, "text/plain")]
    made = [record(n, status, kind, text) for n, (status, kind) in enumerate(told)]
    (path := tmp_path / "a.warc").write_bytes(b"".join([*made, record(4, 200, "text/plain", text + b"y")]))
    found, left_out = documents(web.Web(path=str(path), largest=300))
    assert [d.id[-1] for d in found] == ["0", "3"]
    assert left_out == {"HTTP 404": 1, "no HTML or text": 1, "too large": 1}
    (path := tmp_path / "a.html").write_bytes(page := markup("one"))
    for largest, count in ((len(page), 1), (len(page) - 1, 0)):
        assert len(documents(web.Web(path=str(path), largest=largest))[0]) == count


def test_the_corpus_of_a_list_tells_its_size_and_where_it_is_noted(tmp_path: Path) -> None:
    settings = downloaded(tmp_path, [f"http://a.org/{n}" for n in range(3)], download=False)
    assert settings.size() == (tmp_path / "list.txt").stat().st_size
    with Pages(tmp_path / "pages") as pages:
        for n in range(3):
            pages.keep(Page(f"http://a.org/{n}", "text/html", markup(str(n))), 1)
    with read.tallied() as tally:
        settings.prepare()
    assert (tally.bytes, tally.left_out) == (0, {}), "lists are no documents"
    assert settings.size() == part_path(tmp_path / "pages", 0).stat().st_size
    (piece,) = settings.pieces()
    assert (piece.start, piece.stop, piece.bytes) == (0, 3 * web.SLOT.itemsize, settings.size())
    assert len(list((tmp_path / "pages").glob("order-*.bin"))) == 1
    dataclasses.replace(settings, score=9).prepare()
    assert len(list((tmp_path / "pages").glob("order-*.bin"))) == 2
    web.Web(path=str(tmp_path / "list.txt"), pages=str(tmp_path / "none")).prepare()
    assert not (tmp_path / "none").exists()
