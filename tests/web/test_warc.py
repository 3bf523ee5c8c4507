"""WARC files: whole, packed in several ways, damaged, cut off, and very large."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from pathlib import Path

import pytest

from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.web import warc


def record(kind: str, block: bytes, url: str = "http://quay.example/", version: str = "1.0", length: str = "") -> bytes:
    head = f"WARC/{version}\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nContent-Length: {length or len(block)}"
    return head.encode() + b"\r\n\r\n" + block + b"\r\n\r\n"


def answer(body: bytes, *fields: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, "Content-Type: text/html", *fields, "", ""]).encode() + body


def pages(count: int) -> list[bytes]:
    return [record("response", answer(b"<p>%d</p>" % n * 50), f"http://quay.example/{n}") for n in range(count)]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def numbers(path: Path) -> list[int]:
    return [int(r.url.rpartition("/")[2]) for r in warc.records(path)]


@pytest.mark.parametrize("version", ["0.17", "1.0", "1.1"])
def test_only_answers_files_and_converted_texts_are_given(tmp_path: Path, version: str) -> None:
    other = [record(kind, answer(b"x"), version=version) for kind in ("warcinfo", "request", "metadata", "revisit")]
    lookup = record("response", b"20240101\nquay.example. A 1", "dns:quay.example", version)
    found = record(
        "response", answer(b"<p>\r\n\r\nA</p>", status="HTTP/1.1 404 No"), "<http://quay.example/a>", version
    )
    text = record("conversion", "Å\n".encode(), "http://quay.example/b", version)
    file = record("resource", b"<p>B</p>", "http://quay.example/c", version)
    file = file.replace(b"\r\nContent-Length", b"\r\nContent-Type: text/html\r\nContent-Length", 1)
    path = written(tmp_path / "a.warc", b"".join([*other, lookup, found, *other, text, file]))
    with read.tallied() as tally:
        one, two, three = warc.records(path)
    assert tally.left_out == {"pages that stand in another record": 2}
    at = len(b"".join([*other, lookup]))
    place = f"{path}: byte {at:,}"
    assert one == warc.WarcRecord("http://quay.example/a", 404, "text/html", b"<p>\r\n\r\nA</p>", place)
    assert (two.url, two.status, two.content_type, two.body) == (
        "http://quay.example/b",
        200,
        "text/plain",
        "Å\n".encode(),
    )
    assert (three.url, three.status, three.content_type, three.body) == (
        "http://quay.example/c",
        200,
        "text/html",
        b"<p>B</p>",
    )


def test_every_packing_gives_the_same(tmp_path: Path) -> None:
    import zstandard

    made = pages(30)
    whole = b"".join(made)
    packings = {
        "plain.warc": whole,
        "members.warc.gz": b"".join(map(gzip.compress, made)),
        "stream.warc.gz": gzip.compress(whole, mtime=0) + b"\0" * 512,
        "misnamed.warc": gzip.compress(whole, mtime=0),
        "frames.warc.zst": b"".join(map(zstandard.compress, made)),
    }
    for name, content in packings.items():
        with read.tallied() as tally:
            found = [(r.url, r.body) for r in warc.records(written(tmp_path / name, content))]
        assert found == [(f"http://quay.example/{n}", b"<p>%d</p>" % n * 50) for n in range(30)], name
        assert (tally.bytes, tally.left_out) == (len(content), {})


def deflated(body: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(body) + machine.flush()


CHUNKED = b"3;x=y\r\n<p>\r\nA\r\n0123456789\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "fields", "plain"),
    [
        (CHUNKED, ["Transfer-Encoding: chunked"], b"<p>0123456789"),
        (CHUNKED[:21], ["Transfer-Encoding: chunked"], b"<p>012345"),
        (b"<p>no chunks", ["Transfer-Encoding: Chunked"], b"<p>no chunks"),
        (b"0\r\n\r\n", ["Transfer-Encoding: chunked"], b""),
        (gzip.compress(b"<p>x", mtime=0), ["content-encoding: GZIP"], b"<p>x"),
        (gzip.compress(b"<p>x", mtime=0)[:-9], ["Content-Encoding: gzip"], b"<p>x"),
        (b"<p>unpacked before", ["Content-Encoding: gzip"], b"<p>unpacked before"),
        (zlib.compress(b"<p>x"), ["Content-Encoding: deflate"], b"<p>x"),
        (deflated(b"<p>x"), ["Content-Encoding: deflate"], b"<p>x"),
        (b"<p>unpacked before", ["Content-Encoding: deflate"], b"<p>unpacked before"),
        (gzip.compress(b"<p>x", mtime=0), ["Content-Encoding: x-gzip"], b"<p>x"),
        (b"<p>x", ["Content-Encoding: Identity"], b"<p>x"),
        (b"<p>x", ["Content-Encoding: none"], b"<p>x"),
        (b"<p>x", ["Content-Encoding: UTF-8"], b"<p>x"),
        (b" 3\n<p>A ;x\n0123456789", ["Transfer-Encoding: gzip, chunked"], b"<p>0123456789"),  # line ends lost
        (b"3\r\n\r\np\r\n2\r\n\r\n\r\n0\r\n\r\n", ["Transfer-Encoding: chunked"], b"\r\np\r\n"),
        (
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(gzip.compress(b"<p>x", mtime=0)), gzip.compress(b"<p>x", mtime=0)),
            ["Content-Encoding: gzip", "Transfer-Encoding: chunked"],
            b"<p>x",
        ),
    ],
)
def test_bodies_are_as_they_were_before_they_were_sent(
    tmp_path: Path, body: bytes, fields: list[str], plain: bytes
) -> None:
    (found,) = warc.records(written(tmp_path / "a.warc", record("response", answer(body, *fields))))
    assert found.body == plain


def test_heads_may_end_in_bare_line_ends_or_not_at_all(tmp_path: Path) -> None:
    for head, body in (
        (b"HTTP/1.0  503\nContent-Type: a\n\n<p>\n\n</p>", b"<p>\n\n</p>"),
        (b"HTTP/1.1 503 x\r\nContent-Type: a", b""),
    ):
        (found,) = warc.records(written(tmp_path / "a.warc", record("response", head)))
        assert (found.status, found.content_type, found.body) == (503, "a", body)


def test_an_unknown_packing_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "a.warc", record("response", answer(b"\x8b\x01", "Content-Encoding: br")) + pages(1)[0])
    with read.tallied() as tally:
        assert numbers(path) == [0]
    assert tally.left_out == {"pages in an unknown packing": 1}


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
@pytest.mark.parametrize("lost", [1, 4, 30, 200, 500, 660])
def test_a_cut_off_file_gives_what_is_whole_and_then_an_error(tmp_path: Path, name: str, lost: int) -> None:
    import zstandard

    made = [page[:-4] if n == 2 else page for n, page in enumerate(pages(3))]  # the last ends with its block
    pack = {"a.warc": bytes, "a.warc.gz": gzip.compress, "a.warc.zst": zstandard.compress}[name]
    packed = [pack(page) for page in made]
    path = written(tmp_path / name, b"".join(packed)[: -min(lost, len(packed[-1]) - 1)])
    found: list[str] = []
    with pytest.raises(DataError, match=r"cut off.*wanted a whole file; copy it again") as caught:
        found.extend(r.url for r in warc.records(path))
    assert str(caught.value).startswith(str(path))
    assert len(found) >= 2
    if name != "a.warc.zst":
        assert f"byte {len(b''.join(made[: len(found)])):,}" in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        b"garbage\n" * 9,
        b"\0\xff" * 90_000,
        b"WARC/1.0\r\n\r\n",
        record("response", answer(b"x"), length="many"),
        record("response", answer(b"x" * 99), length="7"),
        record("response", answer(b"x"))[20:],
        b"WARC/1.0\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damage_is_passed_over_and_counted_once(tmp_path: Path, damage: bytes, packed: bool) -> None:
    made = pages(6)
    parts = [*made[:3], damage + b"\r\n", *made[3:]]
    name, pack = ("a.warc.gz", gzip.compress) if packed else ("a.warc", bytes)
    with read.tallied() as tally:
        found = [r.url[-1] for r in warc.records(written(tmp_path / name, b"".join(map(pack, parts))))]
    assert [n for n in found if n.isdigit()] == list("012345")
    assert tally.left_out == {"damaged WARC records": 1}


@pytest.mark.parametrize("at", [0, 12, 100, -6])
def test_a_damaged_member_loses_one_record(tmp_path: Path, at: int) -> None:
    packed = [bytearray(gzip.compress(page, mtime=0)) for page in pages(6)]
    packed[3][at] ^= 0xFF
    path = written(tmp_path / "a.warc.gz", b"".join(packed))
    with read.tallied() as tally:
        assert numbers(path) == [0, 1, 2, 4, 5]
    assert tally.left_out == {"damaged WARC records": 1}


@pytest.mark.parametrize(
    "content", [b"<html>no records</html>\n", gzip.compress(b"a: b\n" * 9, mtime=0), b"\x1f\x8b\x08garbage" * 9]
)
def test_what_is_no_warc_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"a\.warc: holds no WARC record; wanted WARC or WET files"):
        list(warc.records(written(tmp_path / "a.warc", content)))


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(warc.records(tmp_path / "none.warc.gz"))
    assert list(warc.records(written(tmp_path / "a.warc", b"\r\n"))) == []


@pytest.mark.parametrize("fields", [[], ["Content-Encoding: gzip"]])
def test_no_large_record_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: list[str]) -> None:
    monkeypatch.setattr(warc, "LARGEST", 1 << 16)
    large = b"\0" * (32 << 20)
    block = answer(gzip.compress(large, mtime=0) if fields else large, *fields)
    path = written(tmp_path / "a.warc.gz", gzip.compress(record("response", block) + pages(2)[1], 1))
    del large, block
    tracemalloc.start()
    one, two = warc.records(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 60_000 < len(one.body) <= 1 << 16
    assert two.url.endswith("/1")
    assert peak < 8 << 20


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WINDOW", 1 << 20)
    path = tmp_path / "a.warc.gz"
    path.write_bytes(gzip.compress(b"WARC/1.0\r\nContent-Length: 9000000\r\n\r\n" + bytes(9_000_000)))
    with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
        list(warc.records(path))
    assert list(warc.records(path, 0)) == []


@pytest.mark.parametrize("size", [1, 5, 64])
def test_the_sizes_of_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Wherever the border of two pieces falls: in the head of a member, in a line end, in padding, in damage."""
    made = [
        *pages(2),
        record("response", answer(b"<p>1", "Content-Encoding: gzip"), "http://quay.example/2"),
        *pages(1),
    ]
    plain = [*made[:2], b"garbage\n" * 9, *made[2:]]
    packed = [*map(gzip.compress, made[:2]), b"\x1f\x8b no member", *map(gzip.compress, made[2:])]
    padded = [*map(gzip.compress, made[:2]), b"\0" * 70, *map(gzip.compress, made[2:])]
    for name, parts, lost in (("a.warc", plain, 1), ("b.warc.gz", packed, 1), ("c.warc.gz", padded, 0)):
        path = written(tmp_path / name, b"".join(parts))
        with read.tallied() as tally:
            whole = list(warc.records(path))
        assert [int(r.url.rpartition("/")[2]) for r in whole] == [0, 1, 2, 0], name
        assert tally.left_out.total() == lost, name
        with monkeypatch.context() as small, read.tallied() as pieces:
            small.setattr(warc, "_PACKED", size)
            small.setattr(read, "BLOCK", size)
            assert list(warc.records(path)) == whole, name
        assert (pieces.bytes, pieces.left_out) == (tally.bytes, tally.left_out)


def test_damage_in_two_places_is_counted_twice_and_at_the_end_refuses_nothing(tmp_path: Path) -> None:
    one, two, three = pages(3)
    junk = b"garbage\n"
    with read.tallied() as tally:
        assert numbers(written(tmp_path / "a.warc", b"".join([one, junk, two, junk, junk, three, junk]))) == [0, 1, 2]
    assert tally.left_out == {"damaged WARC records": 3}
    assert numbers(written(tmp_path / "a.warc", junk + one)) == [0]
    with pytest.raises(DataError, match="cut off"):
        numbers(written(tmp_path / "a.warc", one + b"WARC"))


def test_a_head_has_lines_enough_and_names_in_any_letters(tmp_path: Path) -> None:
    fields = b"X: y\r\n" * 990
    large = pages(1)[0].replace(b"WARC-Type: response", fields + b"warc-TYPE:RESPONSE")
    assert numbers(written(tmp_path / "a.warc", large + pages(2)[1])) == [0, 1]
    with read.tallied() as tally:
        assert numbers(written(tmp_path / "a.warc", large.replace(b"X: y", b"X: y\r\nX: y", 20) + pages(2)[1])) == [1]
    assert tally.left_out == {"damaged WARC records": 1}


def test_no_more_of_a_page_is_kept_than_16_mib(tmp_path: Path) -> None:
    head, size = answer(b""), 16 << 20
    long = record("response", head + b"x" * size + b"y")
    packed = gzip.compress(b"x" * size + b"y", 1, mtime=0)
    long += record("response", answer(packed, "Content-Encoding: gzip"))
    one, two = warc.records(written(tmp_path / "a.warc", long))
    assert (len(one.body), len(two.body)) == (size - len(head), size)


def test_where_a_record_stands(tmp_path: Path) -> None:
    for name, pack, said in (("a.warc", bytes, ""), ("a.warc.GZ", gzip.compress, " (unpacked)")):
        path = written(tmp_path / name, b"".join(map(pack, pages(9))))
        at = [len(b"".join(pages(n))) for n in range(9)]
        assert [r.place for r in warc.records(path)] == [f"{path}: byte {n:,}{said}" for n in at]
