"""Tables of addresses: files come whole and once, whatever the server and the day are like."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import set_time
from kit.processes import PATIENT
from kit.web_server import Answer, Request, Server, serving
from ordsmed.base import files
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError
from ordsmed.text import read
from ordsmed.web import download, fetch_tables
from ordsmed.web import fetch as module
from ordsmed.web.fetch import fetch
from ordsmed.web.fetch_tables import find, listing

TEXT = bytes(range(256)) * 40  # 10,240 bytes


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)
    with serving() as running:
        yield running


def table(*rows: dict[str, Any], lists: tuple[str, ...] = (), name: str = "mine") -> str:
    """Write a table of files and lists; its path."""
    parts = ['title = "Mine"\nlicence = "CC0-1.0"\n']
    parts += ["[[file]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in row.items()) for row in rows]
    parts += [f"[[list]]\nurl = {json.dumps(url)}\n" for url in lists]
    Path(f"{name}.toml").write_text("".join(parts), encoding="utf-8")
    return f"{name}.toml"


def bring(*names: str, **how: Any) -> list[str]:
    return fetch(names, **{"private": True, "out": "out", "timeout": 5.0, "sleep": lambda _: None, **how})


def complaint(*names: str, **how: Any) -> OrdsmedError:
    with pytest.raises(OrdsmedError) as caught:
        bring(*names, **how)
    return caught.value


def left() -> list[str]:
    """The files of the folder, without the record."""
    folder = Path("out/mine")
    found = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return [name for name in found if name != ".fetched.jsonl"]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_comes_once_and_is_recorded(server: Server) -> None:
    server.pages = {"/a.txt": TEXT, "/b": b""}
    row = {"path": "in/a.txt", "url": server.url("/a.txt"), "size": len(TEXT), "sha256": sha256(TEXT).upper()}
    name = table(row, {"path": "b", "url": server.url("/b")})
    assert bring(name) == ["out/mine: 2 fetched (10.2 kB), 0 already there"]
    assert Path("out/mine/in/a.txt").read_bytes() == TEXT
    assert left() == ["b", "in/a.txt"]
    assert read.files("out/mine") == [Path("out/mine/b"), Path("out/mine/in/a.txt")], "a corpus of the folder"
    lines = Path("out/mine/.fetched.jsonl").read_text().split("\n")
    assert [bool(line) for line in lines] == [True, True, False], "a line a file"
    record = json.loads(lines[0])
    assert (record["path"], record["size"], record["sha256"]) == ("in/a.txt", len(TEXT), sha256(TEXT))
    assert bring(name) == ["out/mine: 0 fetched (0 bytes), 2 already there"]
    assert len(server.asked) == 2
    os.utime("out/mine/in/a.txt", (1, 1))  # another time, the same bytes
    assert bring(name) == ["out/mine: 0 fetched (0 bytes), 2 already there"]
    assert len(server.asked) == 2


def test_a_changed_file_is_not_overwritten(server: Server) -> None:
    server.pages = {"/a": TEXT, "/c": TEXT}
    name = table({"path": "a", "url": server.url("/a")})
    bring(name)
    Path("out/mine/a").write_bytes(TEXT[::-1])
    assert f"wanted {sha256(TEXT)}; remove it" in str(complaint(name))
    Path("out/mine/a").write_bytes(b"short")
    assert str(complaint(name)).startswith("out/mine/a: 5 bytes; wanted 10,240; remove it")
    Path("out/mine/a").write_bytes(TEXT)
    assert "was fetched from" in str(complaint(table({"path": "a", "url": server.url("/c")})))
    other = {"path": "a", "url": server.url("/a"), "sha256": "0" * 64}
    assert f"sha256 {sha256(TEXT)}; wanted 000" in str(complaint(table(other)))
    assert Path("out/mine/a").read_bytes() == TEXT
    assert len(server.asked) == 1


def test_a_file_that_stood_there_is_taken_if_it_can_be_checked(server: Server) -> None:
    server.pages = {"/a": TEXT}
    Path("out/mine").mkdir(parents=True)
    Path("out/mine/a").write_bytes(TEXT)
    row = {"path": "a", "url": server.url("/a")}
    assert "its origin is unknown" in str(complaint(table(row)))
    assert bring(table(row | {"md5": hashlib.md5(TEXT).hexdigest()})) == [
        "out/mine: 0 fetched (0 bytes), 1 already there"
    ]
    assert bring(table(row)) == ["out/mine: 0 fetched (0 bytes), 1 already there"]
    assert server.asked == []


def test_what_was_cut_off_is_gone_on_with(server: Server) -> None:
    server.pages = {"/a": [Answer(TEXT, cut=4000), Answer(TEXT, cut=3000), TEXT]}
    assert bring(table({"path": "a", "url": server.url("/a"), "sha256": sha256(TEXT)})) == [
        "out/mine: 1 fetched (10.2 kB), 0 already there"
    ]
    assert [request.headers["Range"] for request in server.asked] == [None, "bytes=4000-", "bytes=7000-"]
    assert server.asked[1].headers["If-Range"] == f'"{sha256(TEXT)[:12]}"'
    assert left() == ["a"]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Answer(TEXT, cut=4000), Answer(TEXT, ranges=False)),  # ignores the range
        (Answer(TEXT[::-1], cut=4000), Answer(TEXT)),  # changed between
        (Answer(TEXT[::-1], cut=4000, ranges=False), Answer(TEXT)),  # had no tag, so it could not be resumed
        (Answer(TEXT[::-1], cut=4000, headers={"ETag": 'W/"weak"'}), Answer(TEXT, headers={"ETag": 'W/"weak"'})),
        (Answer(TEXT, cut=4000), [Answer(status=416, ranges=False), Answer(TEXT)]),
        (
            Answer(TEXT, cut=4000),
            [Answer(TEXT[:7], 206, {"ETag": '"x"', "Content-Range": "bytes 4000-"}), Answer(TEXT)],
        ),
        (Answer(TEXT, cut=4000), [Answer(TEXT, 206, {"Content-Range": "bytes 7-10239/10240"}), Answer(TEXT)]),
    ],
)
def test_else_it_is_begun_anew(server: Server, first: Answer, then: Any) -> None:
    server.pages = {"/a": [first, *(then if isinstance(then, list) else [then])]}
    bring(table({"path": "a", "url": server.url("/a")}))
    assert Path("out/mine/a").read_bytes() == TEXT
    assert left() == ["a"]


def test_the_beginning_of_another_address_is_not_gone_on_with(server: Server) -> None:
    server.pages = {"/a": Answer(TEXT, cut=4000), "/b": TEXT}
    complaint(table({"path": "a", "url": server.url("/a")}), attempts=1)
    bring(table({"path": "a", "url": server.url("/b")}))
    assert server.asked[-1].headers["Range"] is None


def test_what_only_lacks_its_name_is_not_fetched_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pages = {"/a": TEXT}
    name = table({"path": "a", "url": server.url("/a")})

    def crash(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.files, "sync", lambda path: crash(path, path))
        with pytest.raises(KeyboardInterrupt):
            bring(name)
    assert left() == [".a.part", ".a.part.json"]
    bring(name)
    assert server.asked[-1].headers["Range"] == "bytes=10240-"  # answered by 416: nothing is left to send
    assert left() == ["a"]


def test_busy_servers_are_asked_again_as_they_wish(server: Server) -> None:
    busy = Answer(status=503, headers={"Retry-After": "7"})
    server.pages = {"/a": [busy, busy, Answer(status=403), TEXT], "/b": Answer(status=500), "/c": Answer(status=404)}
    waits: list[float] = []
    bring(table({"path": "a", "url": server.url("/a")}), sleep=waits.append, attempts=4)
    assert waits == [7, 7, 4]
    assert str(complaint(table({"path": "b", "url": server.url("/b")}), attempts=2)).startswith(
        f"{server.url('/b')}: HTTP 500; try again later"
    )
    assert server.count("/b") == 2
    complaint(table({"path": "c", "url": server.url("/c")}))
    assert server.count("/c") == 1


def test_a_long_file_gets_new_attempts_while_bytes_come(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "GAIN", 1000)
    server.pages = {"/a": [*(Answer(TEXT, cut=1500) for _ in range(6)), TEXT]}
    bring(table({"path": "a", "url": server.url("/a"), "sha256": sha256(TEXT)}), attempts=1)
    server.pages = {"/b": Answer(TEXT, cut=400)}
    assert "cut off" in str(complaint(table({"path": "b", "url": server.url("/b")}), attempts=2))


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Answer(TEXT, wait=9), "timed out; try again later"),
        (Answer(TEXT[:200], drip=0.02), "too slow; try again later"),
        (Answer(raw=b"\0\1 no HTTP \r\n\r\n"), "garbage instead of HTTP"),
        (Answer(status=301, headers={"Location": "/a"}), "redirects in a circle"),
        (Answer(status=404), "HTTP 404"),
    ],
)
def test_bad_servers_have_a_reason(server: Server, page: Answer, reason: str) -> None:
    server.pages = {"/a": page}
    error = complaint(
        table({"path": "a", "url": server.url("/a")}), timeout=0.4 if page.wait or page.drip else 60, attempts=2
    )
    assert isinstance(error, RunError)
    assert str(error) == f"{server.url('/a')}: {reason}; `--allow-missing` continues without it"


@pytest.mark.long
def test_how_slow_a_server_may_be_is_told(server: Server) -> None:
    server.pages = {"/a": Answer(TEXT[:60], drip=0.02), "/b": Answer(TEXT, wait=0.1)}
    rows = [{"path": name, "url": server.url(f"/{name}")} for name in "ab"]
    assert bring(table(*rows), timeout=0.8, slowest=5) == ["out/mine: 2 fetched (10.3 kB), 0 already there"]
    assert "too slow" in str(complaint(table(rows[0], name="slow"), timeout=0.5, slowest=100, attempts=1))
    assert server.count("/a") == 2
    for wrong in ({"timeout": 0.0}, {"timeout": float("nan")}, {"slowest": -1}, {"attempts": 0}):
        assert f"--{next(iter(wrong))}: found" in str(complaint(table(*rows), **wrong))


@pytest.mark.long
def test_a_host_that_hangs_costs_its_time_for_few_files(server: Server) -> None:
    server.pages = {"/0": Answer(TEXT, wait=9), "/1": Answer(TEXT, wait=9), "/2": TEXT, "/ok": TEXT}
    server.pages |= {f"/{n}": Answer(TEXT, wait=9) for n in range(3, 9)}
    rows = [{"path": str(n), "url": server.url(f"/{n}")} for n in range(9)]
    other = {"path": "ok", "url": server.url("/ok", "127.0.0.2").replace("127.0.0.2", "localhost")}
    told = bring(table(*rows, other), timeout=0.4, attempts=1, allow_missing=True)[0]
    assert (
        told == "out/mine: 2 fetched (20.5 kB), 0 already there, 8 skipped "
        "(timed out: 5, not requested, because its host hangs: 3)"
    )
    assert len(server.asked) == 7


def test_without_a_network_the_way_out_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    name = table({"path": "a", "url": "http://somewhere.test/a"})
    with monkeypatch.context() as offline:
        offline.setattr(socket, "getaddrinfo", no_network)
        said = str(complaint(name))
        for word in ("no such host", "check the network", "https_proxy", "--mirror", "--allow-missing"):
            assert word in said
        said = str(complaint(name, allow_missing=True))  # nothing got is no success
        assert said.startswith("out/mine: nothing was fetched: 1 skipped (no such host: 1); check the network")
        assert "https_proxy" in said
        assert "--mirror" in said
        assert "--allow-missing" not in said
        listed = {"path": "b", "url": "http://somewhere.test/b", "sums": "http://somewhere.test/sums"}
        assert "https_proxy" in str(complaint(table(listed, name="listed")))
        offline.setenv("http_proxy", "http://proxy.test:3128")
        assert "the proxy proxy.test: no such host" in str(complaint(name))
    found = str(complaint(table({"path": "a", "url": server.url("/gone")}), allow_missing=True))
    assert found == "out/mine: nothing was fetched: 1 skipped (HTTP 404: 1)"


def test_private_addresses_are_refused_unless_asked_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pages = {"/a": TEXT}
    error = complaint(table({"path": "a", "url": server.url("/a")}), private=False)
    assert error.found == "private address 127.0.0.1"
    assert "--private" in error.remedy
    assert server.asked == []
    monkeypatch.setattr("ordsmed.web.http.public", lambda address: str(address) == "127.0.0.1")
    server.pages = {"/a": Answer(status=302, headers={"Location": "http://10.0.0.1/"})}
    error = complaint(table({"path": "a", "url": server.url("/a")}), private=False)
    assert error.found == "private address 10.0.0.1"


def test_wrong_sizes_and_hashes(server: Server) -> None:
    server.pages = {"/a": TEXT, "/b": Answer(b"5\r\nhello\r\n0\r\n\r\n", headers={"Transfer-Encoding": "chunked"})}
    row = {"path": "a", "url": server.url("/a")}
    for wrong in ({"size": 7}, {"sha256": "0" * 64}, {"sha1": "0" * 40}, {"md5": "0" * 32}):
        error = complaint(table(row | wrong))
        assert isinstance(error, DataError)
        assert error.wanted in ("7", next(iter(map(str, wrong.values()))))
        assert left() == []
    unsaid = {"path": "b", "url": server.url("/b")}
    assert "5 bytes; wanted 9" in str(complaint(table(unsaid | {"size": 9})))
    assert "longer than 3 bytes" in str(complaint(table(unsaid | {"size": 3})))
    assert left() == []
    assert complaint(table(row | {"md5": "0" * 32}), allow_missing=True).wanted == "0" * 32  # damage is not absence


def test_a_list_of_hashes(server: Server) -> None:
    def digest(kind: str) -> str:
        return hashlib.new(kind, TEXT).hexdigest()

    sums = f"{'0' * 40}  x-20240101.bz2.gz\n{digest('sha1')}  x-20240101.bz2"
    server.pages = {"/x-latest.bz2": TEXT, "/sums": [Answer(sums.encode(), cut=60), sums.encode()]}
    row = {"path": "x", "url": server.url("/x-latest.bz2"), "sums": server.url("/sums"), "listed": "x-[0-9]*.bz2"}
    bring(table(row))
    assert left() == ["x"]
    for said in (f"{digest('md5')} *dir/x-latest.bz2\n", f"{digest('sha256').upper()}  ./x-latest.bz2\r\n# x\n"):
        shutil.rmtree("out")
        server.pages["/sums"] = said.encode()
        bring(table({key: row[key] for key in ("path", "url", "sums")}))
    wrong = [
        "",
        f"{'0' * 40}  y",
        f"{'0' * 40}  x-1.bz2\n{'1' * 40}  x-2.bz2",
        "<html>  x-1.bz2",
        f"{'0' * 9}  x-1.bz2",
    ]
    shutil.rmtree("out")
    for said in wrong:
        server.pages["/sums"] = said.encode()
        assert "wanted a single line" in str(complaint(table(row)))
    server.pages["/sums"] = f"{'0' * 40}  x-1.bz2".encode()
    assert "wanted " + "0" * 40 in str(complaint(table(row)))
    del server.pages["/sums"]
    assert "HTTP 404" in str(complaint(table(row)))


def test_packed_on_the_way(server: Server) -> None:
    packed = gzip.compress(TEXT)
    coded = {"Content-Encoding": "gzip"}
    cut = Answer(packed, headers=coded, cut=200)
    server.pages = {"/a": [cut, Answer(packed, headers=coded)], "/a.gz": Answer(packed, headers=coded)}
    bring(table({"path": "a", "url": server.url("/a")}, {"path": "a.gz", "url": server.url("/a.gz")}))
    assert Path("out/mine/a").read_bytes() == TEXT
    assert Path("out/mine/a.gz").read_bytes() == packed


def test_a_list_of_addresses(server: Server) -> None:
    server.pages = {"/1/book.txt": b"one", "/2/book.txt?x": b"two", "/3": Answer(status=403), "/4": Answer(status=404)}
    server.pages["/list"] = f"# books\n{server.url('/1/book.txt')}\r\n\n{server.url('/3')}\n".encode()
    more = [
        server.url("/2/book.txt?x"),
        server.url("/4"),
        "no address",
        server.url("/1/book.txt"),
        "http://127.0.0.1:1/",
    ]
    Path("more.txt").write_text("\n".join(more))
    name = table(lists=(server.url("/list"), "more.txt"))
    error = complaint(name, attempts=2)
    assert "HTTP 403: 1, HTTP 404: 1, an address that is neither http nor https: 1, connection refused: 1" in str(error)
    assert f"the other 4 are kept; the first error: {server.url('/3')}: HTTP 403" in str(error)
    assert server.count("/3") == 2
    told = bring(name, attempts=1, allow_missing=True, timeout=0.2)
    assert told[0].startswith("out/mine: 0 fetched (0 bytes), 4 already there, 4 skipped (")
    books = [name for name in left() if name.endswith("-book.txt")]
    assert sorted(Path("out/mine", name).read_bytes() for name in books) == [b"one", b"two"]
    assert server.count("/1/book.txt") == 1
    Path("more.txt").unlink()
    assert str(complaint(name)).startswith("more.txt: no such file; wanted addresses")


def test_names_of_files_are_safe(server: Server) -> None:
    odd = [
        "/../../evil",
        "/..%2f..%2fevil",
        "/%00a",
        "/a b/æ?c",
        "/" + "x" * 300,
        "/",
        "/..",
        "/.fetched.jsonl",
        "/CON:",
    ]
    server.pages = dict.fromkeys([*odd, "/a%20b/%C3%A6?c"], b"text")
    Path("list.txt").write_text("\n".join(server.url(path) for path in odd))
    bring(table(lists=("list.txt",)))
    assert len(left()) == len(odd)
    assert all("/" not in name and len(name) < 100 and name.isascii() for name in left())
    assert not list(Path().rglob("evil"))


def test_a_file_of_a_list_may_not_be_endless(server: Server) -> None:
    server.pages = {"/a": TEXT}
    Path("list.txt").write_text(server.url("/a"))
    Path("mine.toml").write_text('title = "x"\nlicence = "x"\n[[list]]\nurl = "list.txt"\nlongest = 100\n')
    assert "longer than 100 bytes" in str(complaint("mine.toml"))
    assert left() == []


def test_a_mirror(server: Server) -> None:
    assert str(complaint(table(), mirror="none")).startswith("none: no such folder; wanted a mirror")
    row = {"path": "in/a.txt", "url": "http://no-such-host.invalid/data/a%20b.txt?x=1", "sha256": sha256(TEXT)}
    name = table(row)
    places = ("mirror/mine/in/a.txt", "mirror/no-such-host.invalid/data/a b.txt")
    for place in places:
        Path(place).parent.mkdir(parents=True)
        Path(place).write_bytes(TEXT)
        assert bring(name, mirror="mirror") == ["out/mine: 1 fetched (10.2 kB), 0 already there"]
        Path(place).write_bytes(b"other")
        shutil.rmtree("out")
        assert f"wanted {sha256(TEXT)}" in str(complaint(name, mirror="mirror"))
        Path(place).unlink()
    assert "not in the mirror" in str(complaint(name, mirror="mirror"))
    for path in ("/m/mine/in/a.txt", "/m/no-such-host.invalid/data/a%20b.txt"):
        shutil.rmtree("out")
        server.pages = {path: TEXT}
        bring(name, mirror=server.url("/m/"))
    server.pages = {}
    shutil.rmtree("out")
    assert "HTTP 404" in str(complaint(name, mirror=server.url("/m")))
    server.pages = {"/m/mine/in/a.txt": Answer(status=503)}
    assert "HTTP 503" in str(complaint(name, mirror=server.url("/m")))  # errors that a retry may fix come first
    name = table(row | {"path": "b.txt", "sums": "http://no-such-host.invalid/sums/", "listed": "b"})
    assert "not in the mirror" in str(complaint(name, mirror="mirror"))
    Path("mirror/mine/sums").write_text(f"{hashlib.md5(TEXT).hexdigest()}  b")
    Path("mirror/mine/b.txt").write_bytes(TEXT)
    bring(name, mirror="mirror")


@pytest.mark.parametrize("name", ["openwebtext-urls-jp", "openwebtext-urls-eu"])
def test_lists_without_an_address_come_from_a_mirror(server: Server, name: str) -> None:
    wanted = rf"urls.txt: its address is unknown; `--mirror FOLDER` copies it from FOLDER/{name}/urls.txt"
    with pytest.raises(RunError, match=wanted):
        fetch([name])
    Path("m").joinpath(name).mkdir(parents=True)
    with pytest.raises(RunError, match=r"urls\.txt: not in the mirror"):
        fetch([name], mirror="m")
    Path("m", name, "urls.txt").write_text("https://example.org/a\n")
    assert fetch([name], mirror="m") == [f"work/fetch/{name}: 1 fetched (22 bytes), 0 already there"]
    assert fetch([name]) == [f"work/fetch/{name}: 0 fetched (0 bytes), 1 already there"]
    assert Path("work/fetch", name, "urls.txt").read_text() == "https://example.org/a\n"
    server.pages = {"/m/": TEXT}  # an index of the mirror is not the list
    assert "HTTP 404" in str(complaint(name, mirror=server.url("/m")))
    server.pages = {f"/m/{name}/urls.txt": TEXT}
    assert bring(name, mirror=server.url("/m")) == [f"out/{name}: 1 fetched (10.2 kB), 0 already there"]


def test_archives_are_unpacked_once(server: Server) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("in/x.txt", TEXT)
    server.pages = {"/a": packed.getvalue(), "/b": gzip.compress(TEXT)}
    rows = [{"path": "a.zip", "url": server.url("/a")}, {"path": "y.txt.gz", "url": server.url("/b")}]
    name = table(*(row | {"unpack": "to"} for row in rows))
    for gone in ("out/mine/to", "out/mine/a.zip", "out/mine/to/y.txt"):
        bring(name)
        assert left() == ["a.zip", "to/in/x.txt", "to/y.txt", "y.txt.gz"]
        assert Path("out/mine/to/in/x.txt").read_bytes() == Path("out/mine/to/y.txt").read_bytes() == TEXT
        shutil.rmtree(gone) if Path(gone).is_dir() else Path(gone).unlink()  # comes again, from the archive if there
    assert [server.count(path) for path in ("/a", "/b")] == [2, 1]
    shutil.rmtree("out/mine/to")
    Path("out/mine/to/y.txt").mkdir(parents=True)
    assert "cannot write" in str(complaint(name))


def test_an_archive_does_not_replace_what_another_file_is(server: Server) -> None:
    server.pages = {"/a": gzip.compress(b"unpacked"), "/b": b"fetched", "/record": gzip.compress(b"{}")}
    row = {"path": "b.gz", "url": server.url("/a"), "unpack": "."}
    assert "b.gz contains a file of that name" in str(complaint(table({"path": "b", "url": server.url("/b")}, row)))
    assert Path("out/mine/b").read_bytes() == b"fetched"
    evil = {"path": ".fetched.jsonl.gz", "url": server.url("/record"), "unpack": "."}
    assert "contains a file of that name" in str(complaint(table(evil)))


def test_a_table_names_places_in_its_folder_only() -> None:
    for row in ({"path": "../a"}, {"path": "/a"}, {"path": "a", "unpack": ".."}, {"path": "a.txt", "unpack": "."}):
        with pytest.raises(ValueError, match="wanted"):
            module.File(url="http://x.org/", **row)


RUN = "import sys; from ordsmed.web.fetch import fetch; print(*fetch([sys.argv[1]], out='out', private=True))"


def started(name: str) -> subprocess.Popen[bytes]:
    with Path("out.txt").open("ab") as out, Path("err.txt").open("ab") as err:
        return subprocess.Popen([sys.executable, "-c", RUN, name], stdout=out, stderr=err)


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENT
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_two_processes_fetch_each_file_once(server: Server) -> None:
    together = threading.Event()

    def first(request: Request) -> bytes:
        together.wait(PATIENT)
        return TEXT

    server.pages = {"/0": first, "/1": TEXT}
    name = table(*({"path": key, "url": server.url(f"/{key}")} for key in "01"))
    both = [started(name), started(name)]
    until(lambda: "waiting for another process that works on it" in Path("err.txt").read_text())
    together.set()
    assert [process.wait(PATIENT) for process in both] == [0, 0]
    assert Path("out.txt").read_text().splitlines() == [
        "out/mine: 2 fetched (20.5 kB), 0 already there",
        "out/mine: 0 fetched (0 bytes), 2 already there",
    ]
    assert len(server.asked) == 2


def test_after_a_kill_it_goes_on(server: Server) -> None:
    large = TEXT * 300  # 3 MB: more than what a file keeps in memory
    server.pages = {"/a": b"a", "/b": Answer(large, cut=2_000_000, hold=True)}
    name = table(*({"path": key, "url": server.url(f"/{key}")} for key in "ab"))
    process = started(name)
    part = Path("out/mine/.b.part")
    until(lambda: part.exists() and part.stat().st_size > 1_000_000)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENT)
    begun = part.stat().st_size
    server.pages["/b"] = Answer(large)
    assert bring(name) == ["out/mine: 1 fetched (3.07 MB), 1 already there"]
    assert server.asked[-1].headers["Range"] == f"bytes={begun}-"
    assert Path("out/mine/b").read_bytes() == large
    assert server.count("/a") == 1
    assert left() == ["a", "b"]


def test_a_full_disk_keeps_what_is_done(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pages = {"/a": b"a", "/b": TEXT}
    name = table(*({"path": key, "url": server.url(f"/{key}")} for key in "ab"))
    real = files.sync

    def full(path: Path) -> None:
        if path.name == ".b.part":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", full)
        assert "cannot write: No space left on device" in str(complaint(name))
    assert bring(name) == ["out/mine: 1 fetched (10.2 kB), 1 already there"]
    assert server.count("/a") == 1


def test_a_record_that_was_cut_off(server: Server) -> None:
    server.pages = {"/a": b"a", "/b": b"b"}
    bring(table({"path": "a", "url": server.url("/a")}))
    with Path("out/mine/.fetched.jsonl").open("ab") as record:
        record.write(b'{"path": "c", "ur')
    name = table(*({"path": key, "url": server.url(f"/{key}")} for key in "ab"))
    assert bring(name) == ["out/mine: 1 fetched (1 byte), 1 already there"]
    assert bring(name) == ["out/mine: 0 fetched (0 bytes), 2 already there"]


def test_names_and_what_they_stand_for() -> None:
    assert find("squad")[0] == "squad"
    title, found = find("wikipedia-nb")
    assert (title, found.file[0].path) == ("wikipedia-nb", "nowiki-latest-pages-articles.xml.bz2")
    assert find("wikipedia-zh-min-nan")[1].file[0].url.startswith("https://dumps.wikimedia.org/zh_min_nanwiki/latest/")
    for wrong, near in (("sqaud", "`squad`"), ("wikipedia", "wikipedia-en"), ("wikipedia-XX", "wikipedia-en")):
        with pytest.raises(RecipeError, match=near):
            find(wrong)
    lines = listing()
    assert [line.split()[0] for line in lines] == [
        "books",
        "glue",
        "lambada",
        "openwebtext",
        "openwebtext-urls-eu",
        "openwebtext-urls-jp",
        "squad",
        "wikipedia-XX",
        "wikitext",
        "xnli",
    ]
    assert lines[3].split()[1:3] == ["12.9", "GB"]
    assert lines[6].split()[1:5] == ["81.6", "MB", "and", "more"]
    assert lines[7].split()[1] == "?"
    assert "more" not in lines[7].partition(":")[0]


@pytest.mark.parametrize("name", [path.stem for path in fetch_tables._builtin().values()])
def test_shipped_tables_are_sound(name: str) -> None:
    path = fetch_tables._builtin()[name]
    found = fetch_tables._read(path)
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert found.file or found.list
    assert len({file.path for file in found.file}) == len({file.url for file in found.file}) == len(found.file)
    for file in found.file:
        assert file.url.startswith("https://") or (not file.url and "mirror" in found.title)
        for kind, length in (("sha256", 64), ("sha1", 40), ("md5", 32)):
            digest = getattr(file, kind)
            assert digest is None or (len(digest) == length and int(digest, 16) > 0)


def test_a_megabyte_is_worth_new_attempts(server: Server) -> None:
    large = bytes(1_100_000)
    for gained, asked in ((1_000_000, 2), (999_999, 1)):
        server.pages = {f"/{gained}": [Answer(large, cut=gained), large]}
        name = table({"path": str(gained), "url": server.url(f"/{gained}")}, name=f"t{gained}")
        if asked == 2:
            assert bring(name, attempts=1) == [f"out/t{gained}: 1 fetched (1.1 MB), 0 already there"]
        else:
            assert "answer was cut off; try again later" in str(complaint(name, attempts=1))
        assert server.count(f"/{gained}") == asked


def test_what_is_gone_on_with_by_its_date_and_within_its_length(server: Server) -> None:
    day = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": 'W/"weak"'}
    server.pages = {"/a": [Answer(TEXT, cut=4000, headers=day), Answer(TEXT, headers=day)]}
    bring(table({"path": "a", "url": server.url("/a"), "longest": len(TEXT)}))
    assert (server.asked[1].headers["Range"], server.asked[1].headers["If-Range"]) == (
        "bytes=4000-",
        day["Last-Modified"],
    )
    assert Path("out/mine/a").read_bytes() == TEXT
    server.pages = {"/b": [Answer(TEXT, cut=4000), TEXT, TEXT]}
    error = complaint(table({"path": "b", "url": server.url("/b"), "longest": len(TEXT) - 1}))
    assert "longer than 10,239 bytes" in str(error)
    assert left() == ["a"], "the received part is useless"


def test_a_body_that_trickles(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    set_time(monkeypatch, download, monotonic=lambda: now)
    way = module.FetchOptions(None, False, 1, True, timeout=10.0, slowest=100, sleep=lambda _: None)

    def comes(*steps: tuple[float, int]) -> Iterator[bytes]:
        nonlocal now
        for passed, size in steps:
            now += passed
            yield bytes(size)

    good = [(10.0, 1), (0.5, 1049), (9.0, 0), (2.0, 1100)]  # 1,050 bytes in 10.5 s, then 1,100 in 11 s
    assert [len(block) for block in download._check_speed(comes(*good), way)] == [1, 1049, 0, 1100]
    for bad in ([(10.5, 1049)], [(10.5, 9999), (10.1, 1009)], [(9.0, 500), (1.5, 549)]):
        with pytest.raises(module.Failed, match="too slow") as caught:
            list(download._check_speed(comes(*bad), way))
        assert caught.value.again


def test_what_is_recorded_of_a_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the disk before it has its name, with the folder behind it."""
    done: list[str] = []
    sync, fsync, replace = files.sync, os.fsync, Path.replace
    monkeypatch.setattr(files, "sync", lambda path: done.append(f"sync {path.name}") or sync(path))
    monkeypatch.setattr(Path, "replace", lambda old, new: done.append(f"name {new.name}") or replace(old, new))
    server.pages = {"/a": TEXT}
    name = table({"path": "in/a", "url": server.url("/a")})
    append = module._append

    def noted(known: dict[str, Any], shelf: Any) -> None:
        monkeypatch.setattr(os, "fsync", lambda file: done.append("fsync record") or fsync(file))
        append(known, shelf)
        monkeypatch.setattr(os, "fsync", fsync)

    monkeypatch.setattr(module, "_append", noted)
    set_time(monkeypatch, module, gmtime=lambda: time.struct_time((2024, 5, 6, 7, 8, 9, 0, 127, 0)))
    bring(name)
    assert [step for step in done if ".json" not in step] == ["sync .a.part", "fsync record", "name a", "sync in"]
    lines = Path("out/mine/.fetched.jsonl").read_bytes().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0]) == {
        "path": "in/a",
        "url": server.url("/a"),
        "size": len(TEXT),
        "sha256": sha256(TEXT),
        "tag": f'"{sha256(TEXT)[:12]}"',
        "when": "2024-05-06T07:08:09Z",
        "time": Path("out/mine/in/a").stat().st_mtime_ns,
    }


def test_what_is_shown_of_a_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[Any]] = []

    class Bar:
        def __init__(self, name: str, total: float, unit: str, *, done: float = 0) -> None:
            self.row: list[Any] = [name, unit, total, done, 0]
            shown.append(self.row)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def add(self, amount: float) -> None:
            self.row[4] += amount

    for where in (module, download):
        monkeypatch.setattr(where, "Progress", Bar)
    packed = gzip.compress(TEXT)
    server.pages = {"/a": [Answer(TEXT, cut=4000), TEXT], "/b": Answer(packed, headers={"Content-Encoding": "gzip"})}
    server.pages["/c"] = TEXT
    Path("list.txt").write_text(f"{server.url('/c')}\n")
    bring(table({"path": "a", "url": server.url("/a")}, {"path": "b", "url": server.url("/b")}, lists=("list.txt",)))
    bars = [[name, *(round(n * 1e6) for n in numbers)] for name, unit, *numbers in shown if unit == "MB"]
    assert bars[:3] == [["fetch a", 10240, 0, 4000], ["fetch a", 10240, 4000, 6240], ["fetch b", 0, 0, 10240]]
    assert [bar for bar in shown if bar[1] == "files"] == [["fetch mine", "files", 1, 0, 1]]


def test_names_of_listed_files_stay_from_version_to_version() -> None:
    assert module._file_name("http://a.org/b/c%20d.txt?x=1#y") == "8565fba11f-c_d.txt"
    assert module._file_name("http://a.org/" + "z" * 99) == "d19d6b5dab-" + "z" * 80
    assert module._file_name("http://a.org/") == "61681776a9-"


def test_a_list_that_cannot_be_had_and_other_ways_to_go_wrong(server: Server) -> None:
    name = table(lists=(server.url("/list"),))
    assert str(complaint(name)).startswith(f"{server.url('/list')}: HTTP 404; `--allow-missing` continues without it")
    assert str(complaint(name, allow_missing=True)) == "out/mine: nothing was fetched: 1 skipped (HTTP 404: 1)"
    server.pages = {f"/{n}": Answer(status=n) for n in (400, 401, 402, 405, 406, 410)} | {"/ok": TEXT}
    rows = [{"path": path[1:], "url": server.url(path)} for path in server.pages]
    told = bring(table(*rows, rows[0] | {"path": "again"}), allow_missing=True)
    reasons = "HTTP 400: 2, HTTP 401: 1, HTTP 402: 1, HTTP 405: 1, HTTP 406: 1"
    assert told == [f"out/mine: 1 fetched (10.2 kB), 0 already there, 7 skipped ({reasons})"]
    wrong = {"path": "bad", "url": server.url("/ok"), "size": 3}
    said = str(complaint(table(wrong, rows[0])))
    reasons = "not as expected: 1, HTTP 400: 1"
    assert said.startswith(f"out/mine: 2 files could not be fetched ({reasons}); the other 0 are kept;")
    with pytest.raises(RecipeError, match=r"--timeout: found inf; wanted more than 0 seconds"):
        bring(table(rows[-1]), timeout=float("inf"))
    assert bring(table(rows[-1]), attempts=1, slowest=0) == ["out/mine: 0 fetched (0 bytes), 1 already there"]


def test_tables_of_one_s_own(server: Server) -> None:
    server.pages = {"/a": TEXT, "/b": b"b"}
    one, two = (table({"path": key, "url": server.url(f"/{key}")}, name=f"my.{key}") for key in "ab")
    assert bring(one, two) == [
        "out/my.a: 1 fetched (10.2 kB), 0 already there",
        "out/my.b: 1 fetched (1 byte), 0 already there",
    ]
    with pytest.raises(RecipeError, match="not a fetch table or a file"):
        bring(one, "none")
    with pytest.raises(DataError, match=r"none: no such folder; wanted a mirror: a folder or an address; give another"):
        bring(one, mirror="none")
