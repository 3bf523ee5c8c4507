"""Archives: every kind gives the same members, nothing leaves them, and broken ones are named."""

from __future__ import annotations

import base64
import bz2
import gc
import gzip
import io
import lzma
import os
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ordsmed.base.errors import DataError
from ordsmed.corpus.corpora import tar
from ordsmed.text import read

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tgz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
    ".tar.zst": zstandard.compress,
}
TEXTS = {"a.txt": b"one\n\ntwo\n", "in/b.txt.gz": gzip.compress(b"three"), "c.TXT": b"\xef\xbb\xbffour\r\nfive"}


def tarred(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def texts(path: Path, data: bytes | None = None, **settings: Any) -> dict[str, str]:
    if data is not None:
        path.write_bytes(data)
    found = list(tar.Tar(str(path), **settings).documents())
    assert len({d.id for d in found}) == len(found)
    return {d.id.removeprefix(f"{path}:"): d.text for d in found}


def complaint(path: Path, data: bytes, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        texts(path, data, **settings)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("suffix", [*PACK, ".zip"])
def test_every_kind_gives_the_same_members(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    data = zipped(TEXTS) if suffix == ".zip" else PACK[suffix](tarred(TEXTS))
    with read.tallied() as tally:
        found = texts(path, data)
    assert found == {"a.txt": "one\n\ntwo\n", "in/b.txt.gz": "three", "c.TXT": "four\nfive"}
    assert tally.bytes == path.stat().st_size
    assert not tally.left_out


def test_documents_can_be_told_apart_by_blank_lines(tmp_path: Path) -> None:
    found = texts(tmp_path / "x.tar", tarred({"a.txt": b"\n\none\ntwo\r\n \t\r\n\n three\n\n"}), cut="blank lines")
    assert found == {"a.txt:1": "one\ntwo", "a.txt:2": "three"}


def test_gaps_are_found_wherever_blocks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tarred({"a.txt": "æ\r\n\r\nb b\n \n\n\ncå\n".encode()})
    for block in range(1, 12):
        monkeypatch.setattr(read, "BLOCK", block)
        found = texts(tmp_path / "x.tar", data, cut="blank lines")
        assert [text.strip() for text in found.values()] == ["æ", "b b", "cå"]


def test_a_tar_of_packed_tars_is_read_through(tmp_path: Path) -> None:
    inner = tarred({"1.txt": b"one", "2.txt": b"two"})
    deep = tarred({"deep.tar": inner})
    outer = {
        "set/00.xz": lzma.compress(inner),
        "x.tar": tarred({"3.txt": b"three"}),
        "deep.tar": deep,
        "n.xz": lzma.compress(b"-"),
    }
    with read.tallied() as tally:
        found = texts(tmp_path / "x.tar.xz", lzma.compress(tarred(outer)))
    assert found == {"set/00.xz:1.txt": "one", "set/00.xz:2.txt": "two", "x.tar:3.txt": "three"}
    assert tally.left_out == {"archives too deep": 1, "members of other names": 1}
    assert texts(tmp_path / "00.xz", lzma.compress(inner)) == {"1.txt": "one", "2.txt": "two"}


def test_nothing_leaves_the_archive(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("../../out.txt", "/abs.txt", "a/../../b.txt", "._a.txt", "./fine.txt"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"text"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("link.txt")
            info.type, info.linkname = kind, "/etc/hostname"
            archive.addfile(info)
    inside = tmp_path / "inside"
    inside.mkdir()
    with read.tallied() as tally:
        assert texts(inside / "x.tar", made.getvalue()) == {"./fine.txt": "text"}
    assert tally.left_out == {"members outside the archive": 3, "hidden members": 1, "links and devices in archives": 4}
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["inside", "inside/x.tar"]
    assert list(texts(inside / "x.zip", zipped({"../a.txt": b"x", "b.txt": b"y"}))) == ["b.txt"]


def test_names_are_chosen_by_a_pattern(tmp_path: Path) -> None:
    data = tarred({"wiki.train.tokens": b"x", "a.txt": b"y", "b.tokens.gz": gzip.compress(b"z")})
    assert texts(tmp_path / "x.tar", data, members="*.tokens") == {"wiki.train.tokens": "x", "b.tokens.gz": "z"}
    (tmp_path / "README").write_text("about")
    with read.tallied() as tally:
        assert [d.text for d in tar.Tar(str(tmp_path), members="a*").documents()] == ["y"]
    assert tally.left_out == {"files other than archives": 1, "members of other names": 2}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("kept", [0, 0.5, 0.9])
def test_whole_members_come_before_the_cut(tmp_path: Path, suffix: str, kept: float) -> None:
    members = {f"{n}.txt": os.urandom(5_000).hex().encode() for n in range(20)}
    data = PACK[suffix](tarred(members))
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data[: int(kept * len(data))])
    found: list[str] = []
    with pytest.raises(DataError) as caught:
        found.extend(d.text for d in tar.Tar(str(path)).documents())
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert found == [text.decode() for text in members.values()][: len(found)]
    if suffix not in (".tar.bz2", ".tar.zst"):  # these unpack by large blocks
        assert len(found) >= int(kept * 20) - 2


def test_broken_archives_and_members_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    whole = tarred({"a.txt": b"a" * 600, "b.txt": b"b"})
    assert "is broken or cut off" in complaint(path, b"no archive at all" * 100)
    assert "is broken or cut off" in complaint(path, whole[:1536])  # cut between two members
    assert "not a tar header" in complaint(path, whole[:1536] + b"x" * 512 + whole[2048:])
    assert complaint(path, tarred({"a.txt.gz": gzip.compress(b"a" * 99)[:-9]})).startswith(":a.txt.gz: is broken")
    assert complaint(path, tarred({"a.txt.gz": b"no gzip"})).startswith(":a.txt.gz: is broken")
    for cut in (0, 30, 99):
        assert "is broken or cut off" in complaint(tmp_path / "x.zip", zipped({"a.txt": os.urandom(200)})[:cut])
    with pytest.raises(DataError, match="no such file"):
        texts(tmp_path / "none.tar")


def test_invalid_utf8_is_named_or_replaced(tmp_path: Path) -> None:
    path, data = tmp_path / "x.tar", tarred({"a.txt": b"\xef\xbb\xbfab\xff\xef\xbf\xbd\x00c\xe2\x82"})
    assert complaint(path, data).startswith(":a.txt: byte 5: invalid UTF-8 (0xff: ")
    with read.tallied() as tally:
        assert texts(path, errors="replace") == {"a.txt": "ab\ufffd\ufffd\x00c\ufffd"}
    assert tally.replaced == 2


def test_a_long_line_is_cut_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tarred({"a.txt": b"w " * 2_000_000, "empty.txt": b"", "blank.txt": b" \n "})
    assert texts(tmp_path / "x.tar", data) == {"a.txt": "w " * 2_000_000}
    monkeypatch.setattr(tar, "LONGEST", 1_000_000)
    with read.tallied() as tally:
        found = texts(tmp_path / "x.tar", data)
    assert "".join(found.values()) == "w " * 2_000_000
    assert max(map(len, found.values())) <= 1_000_000
    assert tally.cut == len(found) - 1
    monkeypatch.setattr(tar, "LONGEST", 20)
    first, _ = texts(tmp_path / "x.tar", tarred({"a.txt": b"one line of a\nx y z w v u"})).values()
    assert first == "one line of a\n"


def test_bombs_are_left_out_in_little_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(b"0" * (32 << 20))
    data = tarred({"bomb.txt.gz": bomb, "large.txt": b"x" * 200_000, "a.txt": b"fine"})
    path = tmp_path / "x.tar"
    tracemalloc.start()
    try:
        with read.tallied() as tally:
            assert texts(path, data, largest=100_000) == {"a.txt": "fine"}
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert tally.left_out == {"members too large": 2}
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    assert "name and metadata of 8,589,934,592 bytes" in complaint(path, header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def test_a_link_in_a_zip_is_no_document(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, kind in (
            ("a.txt", stat.S_IFREG),
            ("link.txt", stat.S_IFLNK),
            ("pipe.txt", stat.S_IFIFO),
            ("b.txt", 0),
        ):
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o644) << 16 if kind else 0
            archive.writestr(info, "/etc/hostname")
    with read.tallied() as tally:
        assert list(texts(tmp_path / "x.zip", made.getvalue())) == ["a.txt", "b.txt"]
    assert tally.left_out == {"links and devices in archives": 2}


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_an_archive_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(read, "WINDOW", 1 << 20)
    noise = base64.b64encode(os.urandom(300_000))  # the bomb stands behind text
    for name in ("a.txt", "other.bin"):
        data = PACK[f".tar{suffix}"](tarred({"0.txt": noise, name: noise + bytes(6 << 20)}))
        assert "unpacks to more than 200 times its size (after byte " in complaint(tmp_path / f"x.tar{suffix}", data)
    assert list(texts(tmp_path / f"x.tar{suffix}", data, densest=0)) == ["0.txt"]
    bomb = zipped({"a.txt": bytes(6 << 20)})
    assert "more than 200 times" in complaint(tmp_path / "x.zip", bomb)


@pytest.mark.parametrize("suffix", [".tar", ".zip"])
def test_members_in_other_encodings(tmp_path: Path, suffix: str) -> None:
    members = {
        "a.txt": "blåbær på øya\n".encode("cp1252"),
        "b.txt": "å ja\n".encode("utf-16"),
        "c.txt": "ærlig".encode(),
    }
    data = zipped(members) if suffix == ".zip" else tarred(members)
    with read.tallied() as tally:
        found = texts(tmp_path / f"x{suffix}", data, encoding="auto")
    assert found == {"a.txt": "blåbær på øya\n", "b.txt": "å ja\n", "c.txt": "ærlig"}
    assert tally.encodings == {"cp1252": 1, "utf-16": 1}
    assert ":b.txt: is UTF-16; wanted text in UTF-8" in complaint(
        tmp_path / "x.tar", tarred({"b.txt": members["b.txt"]})
    )
    with pytest.raises(ValueError, match="encoding: found 'utf-99'"):
        texts(tmp_path / f"x{suffix}", encoding="utf-99")


@pytest.mark.long
def test_many_members_do_not_pile_up(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tarred({f"{n}.txt": b"x" for n in range(2000)}))
    found = tar.Tar(str(tmp_path / "x.tar")).documents()
    next(found)
    tracemalloc.start()
    try:
        assert sum(1 for _ in islice(found, 1990)) == 1990
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 600_000
    finally:
        tracemalloc.stop()


def test_a_member_as_large_as_may_be_is_read(tmp_path: Path) -> None:
    data = tarred(
        {
            "a.txt": b"x" * 100,
            "b.txt": b"y" * 101,
            "c.txt.gz": gzip.compress(b"z" * 100),
            "d.txt.gz": gzip.compress(b"w" * 101),
        }
    )
    with read.tallied() as tally:
        found = texts(tmp_path / "x.tar", data, largest=100)
    assert found == {"a.txt": "x" * 100, "c.txt.gz": "z" * 100}
    assert tally.left_out == {"members too large": 2}
    assert len(texts(tmp_path / "x.tar", largest=101)) == 4
    tar.Tar("x", largest=1)
    with pytest.raises(ValueError, match="largest: found 0; wanted at least 1"):
        tar.Tar("x", largest=0)
    inner = tarred({"a.txt": b"inner" * 30})
    assert list(texts(tmp_path / "y.tar", tarred({"in.tar": inner}), largest=200)) == ["in.tar:a.txt"]


@pytest.mark.parametrize("over", [0, 1])
def test_a_member_of_eight_million_characters_is_one_document(tmp_path: Path, over: int) -> None:
    with read.tallied() as tally:
        found = list(tar._documents(iter(["x" * (8 << 20), "y" * over]), False))
    assert [len(text) for text in found] == [8 << 20, 1][: 1 + over]
    assert tally.cut == over


def test_a_line_or_a_word_ends_what_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its second half: at a line's end, else at a blank, else anywhere."""
    monkeypatch.setattr(tar, "LONGEST", 10)
    for text, cut in {
        "a b c d\ne f ghij": ["a b c d\n", "e f ghij"],
        "abcdef ghijklm": ["abcdef ", "ghijklm"],
        "abc\ndefghijklm": ["abc\ndefghi", "jklm"],
        "ab cdefghijklm": ["ab cdefghi", "jklm"],
        "abcde\nf hijklm": ["abcde\n", "f hijklm"],
        "abcdefghij": ["abcdefghij"],
    }.items():
        assert list(tar._documents(iter([text]), False)) == cut


def test_encrypted_members_folders_and_hidden_ones_are_no_documents(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("in/", "")
        archive.writestr("in/a.txt", "one")
        archive.writestr(".b/c.txt", "hidden")
        archive.writestr("secret.txt", "locked")
    data = bytearray(made.getvalue())
    at = data.index(
        b"PK\x01\x02", data.index(b"PK\x01\x02", data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1) + 1) + 1
    )
    data[at + 8] |= 1  # the flag of encryption, in the directory of the last
    with read.tallied() as tally:
        assert texts(tmp_path / "x.zip", bytes(data)) == {"in/a.txt": "one"}
    assert tally.left_out == {"hidden members": 1, "encrypted members": 1}


def test_names_of_archives_and_numbers_of_documents(tmp_path: Path) -> None:
    data = tarred({"a.txt": b"one\n\ntwo", "B.TXT": b"three"})
    for name in ("x.TAR", "x.ZIP", "noname"):
        made = zipped({"a.txt": b"one\n\ntwo", "B.TXT": b"three"}) if name == "x.ZIP" else data
        assert texts(tmp_path / name, made, cut="blank lines") == {
            "a.txt:1": "one",
            "a.txt:2": "two",
            "B.TXT:1": "three",
        }
    assert texts(tmp_path / "x.tar", data, members="b*") == {"B.TXT": "three"}
    long = "n" * 200 + ".txt"
    assert texts(tmp_path / "y.tar", tarred({long: b"long name"})) == {long: "long name"}
