"""A folder of pages: its log and parts, retries, and the positions of the pages of a list."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.web import pages as module
from ordsmed.web import warc
from ordsmed.web.pages import LOG, Outcomes, Page, Pages, bytes_laid_out, lay_out, pages_in_order, part_path

URL = "http://a.org/"


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]


def tell(folder: Path, *lines: dict[str, Any]) -> Outcomes:
    """What a log of these lines, and parts of 100 bytes, say."""
    folder.mkdir(exist_ok=True)
    (folder / LOG).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for part in (0, 1):
        part_path(folder, part).write_bytes(bytes(100))
    return Outcomes(folder)


def test_what_is_written_of_pages_and_of_those_that_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_now", lambda: "2024-05-06T07:08:09Z")
    synced: list[str] = []
    monkeypatch.setattr(module, "sync", lambda path: synced.append(path.name))
    one, two = Page(f"{URL}å", "text/html;\r\n charset=x", b"<p>1"), Page(f"{URL}2", "", b"", f"{URL}3")
    with Pages(tmp_path) as pages:
        pages.keep(one, 2)
        pages.miss(f"{URL}4", 3, "HTTP 503", True)
        pages.miss(f"{URL}5", 1, "a rule behind a redirect", False, f"{URL}6")
        pages.keep(two, 1)
        pages.keep(Page(f"{URL}7", "", b"", f"{URL}7"), 1)
    assert synced == ["pages-00000.warc.gz", LOG]
    stored = part_path(tmp_path, 0).read_bytes()
    first, second, third = (line["place"] for line in log(tmp_path) if "place" in line)
    assert (first[:2], second[:2]) == ([0, 0], [0, first[2]])
    assert third[1] + third[2] == len(stored)
    when = {"when": "2024-05-06T07:08:09Z"}
    assert log(tmp_path) == [
        {"url": f"{URL}å", "tries": 2, **when, "status": 200, "place": first},
        {"url": f"{URL}4", "tries": 3, **when, "reason": "HTTP 503", "again": True},
        {
            "url": f"{URL}5",
            "tries": 1,
            **when,
            "reason": "a rule behind a redirect",
            "again": False,
            "final": f"{URL}6",
        },
        {"url": f"{URL}2", "tries": 1, **when, "status": 200, "final": f"{URL}3", "place": second},
        {"url": f"{URL}7", "tries": 1, **when, "status": 200, "place": third},
    ]
    member = gzip.decompress(stored[: first[2]])
    identity = re.search(rb"<urn:uuid:[0-9a-f-]{36}>", member)
    assert identity is not None
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Length: 4\r\n\r\n<p>1"
    assert member.replace(identity[0], b"ID").decode() == (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {URL}å\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n"
        "WARC-Record-ID: ID\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(block)}\r\n\r\n{block.decode()}\r\n\r\n"
    )
    found = [(r.url, r.status, r.content_type, r.body) for r in warc.records(part_path(tmp_path, 0))]
    assert found[:2] == [(f"{URL}å", 200, "text/html; charset=x", b"<p>1"), (f"{URL}2", 200, "", b"")]


def test_the_time_is_that_of_greenwich() -> None:
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ", module._now())


def test_what_is_tried_again(tmp_path: Path) -> None:
    found = tell(
        tmp_path,
        {"url": f"{URL}page", "tries": 2, "place": [1, 40, 60]},
        {"url": f"{URL}busy", "tries": 2, "reason": "HTTP 503", "again": True},
        {"url": f"{URL}gone", "tries": 1, "reason": "HTTP 404", "again": False},
        {"url": f"{URL}lost", "tries": 1, "place": [1, 41, 60]},
        {"url": f"{URL}no part", "tries": 1, "place": [7, 0, 1]},
        {"url": f"{URL}later", "tries": 1, "reason": "HTTP 503", "again": True},
        {"url": f"{URL}later", "tries": 70000, "reason": "HTTP 500", "again": True},
        {"url": f"{URL}at last", "tries": 9, "reason": "HTTP 500", "again": True},
        {"url": f"{URL}at last", "tries": 10, "place": [0, 10, 20]},
    )
    tries = {name: found.tries(f"{URL}{name}", 3) for name in ("page", "busy", "gone", "lost", "no part", "new")}
    assert tries == {"page": None, "busy": 2, "gone": None, "lost": 0, "no part": 0, "new": 0}
    assert found.tries(f"{URL}busy".replace("http", "https"), 2) is None
    assert (found.tries(f"{URL}later", 65536), found.tries(f"{URL}later", 65535)) == (65535, None)
    assert (found.lost, found.ends) == (2, {0: 30, 1: 100, 7: 0})
    names = ["page", "gone", "lost", "later", "at last", "new"]
    slots, why = found.find([f"{URL}{name}" for name in names])
    assert slots.tolist() == [(40, 1, 60), (0, 0, 0), (0, 0, 0), (0, 0, 0), (10, 0, 20), (0, 0, 0)]
    assert [found.reasons[code][0] for code in why[[1, 3, 5]]] == ["HTTP 404", "HTTP 500", "not downloaded"]


def test_rules_of_today_judge_where_redirects_led(tmp_path: Path) -> None:
    tell(
        tmp_path,
        {"url": f"{URL}1", "tries": 1, "place": [0, 0, 10], "final": f"{URL}bad"},
        {"url": f"{URL}2", "tries": 1, "reason": "old rule behind a redirect", "again": False, "final": f"{URL}good"},
        {"url": f"{URL}3", "tries": 1, "place": [0, 10, 10], "final": f"{URL}good"},
        {"url": f"{URL}4", "tries": 1, "reason": "x", "again": False, "final": f"{URL}bad"},
        {"url": f"{URL}5", "tries": 1, "reason": "x", "again": False},
    )
    found = Outcomes(tmp_path, lambda url: "a rule" if url.endswith("bad") else "")
    urls = [f"{URL}{n}" for n in range(1, 6)]
    assert [found.tries(url, 9) for url in urls] == [None, 0, None, None, None]
    slots, why = found.find(urls)
    assert slots["length"].tolist() == [0, 0, 10, 0, 0]
    assert [found.reasons[code][0] for code in why[[0, 1, 3, 4]]] == [
        "a rule behind a redirect",
        "not downloaded",
        "a rule behind a redirect",
        "x",
    ]
    assert found.ends[0] == 20, "it stands though it is not taken"
    plain = Outcomes(tmp_path)
    assert [plain.tries(url, 9) for url in urls] == [None] * 5


def test_the_order_of_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(module, "PART", 1)
    with Pages(tmp_path) as pages:
        for n in range(4):
            pages.keep(Page(f"{URL}{n}", "text/html", b"page %d" % n), 1)
        pages.miss(f"{URL}gone", 1, "HTTP 404", False)
    order = tmp_path / "order-x.bin"
    urls = [f"{URL}{name}" for name in ("3", "gone", "new", "0", "2", "new 2", "gone")]
    assert lay_out(urls, tmp_path, order) == {"HTTP 404": 2, "not downloaded": 2}
    assert order.stat().st_size == 7 * 16
    sizes = [part_path(tmp_path, n).stat().st_size for n in range(4)]
    with read.tallied() as tally:
        assert [page.body for page in pages_in_order(order)] == [b"page 3", b"page 0", b"page 2"]
    assert tally.bytes == bytes_laid_out(order) == sizes[3] + sizes[0] + sizes[2]
    assert [page.url for page in pages_in_order(order, 16, 80)] == [f"{URL}0", f"{URL}2"]
    assert bytes_laid_out(order, 16, 64) == sizes[0]
    assert not list(pages_in_order(order, 16, 48))
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("pages-")) == [
        "order-x.bin",
        LOG,
    ]


def test_a_part_is_full_when_it_has_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(URL, "", b"x" * 500)
    with Pages(tmp_path) as pages:
        pages.keep(page, 1)
        size = part_path(tmp_path, 0).stat().st_size
        monkeypatch.setattr(module, "PART", size + 1)
        pages.keep(page, 1)
        pages.keep(page, 1)
    assert [line["place"][0] for line in log(tmp_path)] == [0, 0, 1]
    with Pages(tmp_path) as pages:
        pages.keep(page, 1)
    assert log(tmp_path)[-1]["place"][0] == 2, "a part is never gone on with"


def test_what_a_kill_left_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Pages(tmp_path) as pages:
        pages.keep(Page(URL, "", b"x"), 1)
    whole, told = part_path(tmp_path, 0).read_bytes(), (tmp_path / LOG).read_bytes()
    part_path(tmp_path, 0).write_bytes(whole + b"half")
    part_path(tmp_path, 1).write_bytes(b"nothing of it is known")
    (tmp_path / LOG).write_bytes(told + b'{"url": "http://b')
    with Pages(tmp_path):
        pass
    assert (part_path(tmp_path, 0).read_bytes(), (tmp_path / LOG).read_bytes()) == (whole, told)
    assert not part_path(tmp_path, 1).exists()
    said = " ".join(capsys.readouterr().err.split())
    for line in (
        "removed an incomplete last line",
        "00000.warc.gz: removed 4 bytes of pages",
        "00001.warc.gz: removed 22 bytes of pages",
    ):
        assert line in said
    (tmp_path / LOG).write_bytes(b'{"url": "http://b')
    with Pages(tmp_path):
        pass
    assert (tmp_path / LOG).read_bytes() == b"", "the log stays, with nothing in it"


def test_pages_are_checked_when_they_are_read(tmp_path: Path) -> None:
    with Pages(tmp_path) as pages:
        pages.keep(Page(URL, "", b"\r\n\r\nx\r\n\r\n"), 1)
    lay_out([URL], tmp_path, tmp_path / "order-x.bin")
    assert [page.body for page in pages_in_order(tmp_path / "order-x.bin")] == [b"\r\n\r\nx\r\n\r\n"]
    part_path(tmp_path, 0).unlink()
    with pytest.raises(DataError, match=r"byte 0: incomplete page .*; remove pages-00000\.warc\.gz, so that"):
        list(pages_in_order(tmp_path / "order-x.bin"))
