"""Pages of dumps: the same however they are packed, encoded and cut; what is damaged is named with its place."""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.text.markup import dump
from ordsmed.text.markup.dump import DumpPage, pages
from ordsmed.text.source import Piece

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="nb">
  <siteinfo><sitename>Wikipedia</sitename><dbname>nowiki</dbname><base>https://no.wikipedia.org/wiki/Forside</base>
  <namespaces><namespace key="-2">Medium</namespace><namespace key="0" /><namespace key="6">Fil</namespace>
  <namespace key="14">Eget slag</namespace></namespaces></siteinfo>
"""
FOOT = "</mediawiki>\n"


def page(number: int, text: str = "Tekst &lt;ref&gt;æ&lt;/ref&gt;", more: str = "", space: int = 0) -> str:
    return f"""  <page>
    <title>Ålen {number}</title> <ns>{space}</ns> <id>{number}</id> {more}
    <revision> <id>9{number}</id> <contributor><username>x</username><id>8</id></contributor> <comment>c</comment>
      <text bytes="3" xml:space="preserve">{text}</text>
    </revision>
  </page>
"""


def written(path: Path, *streams: str) -> Path:
    path.write_bytes(b"".join(bz2.compress(s.encode()) for s in streams))
    return path


def taken(path: Path, **choices: str) -> list[DumpPage]:
    return list(pages(Piece(path), **choices))  # type: ignore[arg-type]


def test_a_page_and_what_is_known_of_it(tmp_path: Path) -> None:
    (path := tmp_path / "a.xml").write_text(HEAD + page(7) + page(8, more='<redirect title="x" />', space=4) + FOOT)
    one, two = taken(path)
    assert one == DumpPage(
        "nowiki:7", "Ålen 7", "Tekst <ref>æ</ref>", "https://no.wikipedia.org/wiki/%C3%85len_7", 0, False, ["eget slag"]
    )
    assert (two.id, two.namespace, two.redirect) == ("nowiki:8", 4, True)


def test_odd_pages(tmp_path: Path) -> None:
    twice = page(1).replace("</revision>", "</revision><revision><id>3</id><text>Last</text></revision>")
    empty = page(2).replace(">Tekst &lt;ref&gt;æ&lt;/ref&gt;</text>", " />")
    without = "<page><title>T</title><id>3</id></page>"
    large = page(4, "å &amp;amp; " * 1_000_000)
    (path := tmp_path / "a.xml").write_text("<mediawiki>" + twice + empty + without + large + FOOT)
    assert [(p.id, p.url, p.text[:12], len(p.text)) for p in taken(path)] == [
        ("1", "", "Last", 4),
        ("2", "", "", 0),
        ("3", "", "", 0),
        ("4", "", "å &amp; å &a", 8_000_000),
    ]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".xml": bytes,
    ".xml.gz": gzip.compress,
    ".xml.bz2": bz2.compress,
    ".xml.xz": lzma.compress,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1"])
@pytest.mark.parametrize("name", PACKERS)
def test_packings_and_encodings(tmp_path: Path, name: str, encoding: str) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")[:10].upper()}"?>\n'
    text = declared + HEAD + page(1) + page(2) + FOOT
    (path := tmp_path / f"a{name}").write_bytes(PACKERS[name](text.encode(encoding)))
    with read.tallied() as tally:
        assert [(p.title, p.text) for p in taken(path)] == [(f"Ålen {n}", "Tekst <ref>æ</ref>") for n in (1, 2)]
    assert tally.bytes == path.stat().st_size


def test_zstandard(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    (path := tmp_path / "a.xml.zst").write_bytes(zstandard.compress((HEAD + page(1) + FOOT).encode()))
    assert [p.id for p in taken(path)] == ["nowiki:1"]


@given(groups=st.lists(st.integers(1, 4), min_size=1, max_size=12), size=st.integers(1, 4000), apart=st.booleans())
def test_parts_together_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, groups: list[int], size: int, apart: bool
) -> None:
    """Header and footer may be separate streams, or be in the streams of pages."""
    numbers = iter(range(100))
    streams = ["".join(page(next(numbers)) for _ in range(n)) for n in groups]
    whole = [HEAD, *streams, FOOT] if apart else [HEAD + streams[0], *streams[1:-1], *streams[1:][-1:], FOOT]
    path = written(tmp_path_factory.mktemp("parts") / "a.bz2", *whole)
    parts = dump.parts(path, size)
    assert [p for part in parts for p in pages(part)] == taken(path)
    assert [p.id for p in taken(path)] == [f"nowiki:{n}" for n in range(sum(groups))]
    assert (parts[0].start, parts[-1].stop) == (0, None)
    assert len(parts) >= min(len(groups), 2) or size > 100


def test_every_stream_can_be_a_part(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bz2", HEAD, *map(page, range(9)), FOOT)
    parts = dump.parts(path, 1)
    assert [[p.id for p in pages(part)] for part in parts] == [[], *([f"nowiki:{n}"] for n in range(9))]
    with read.tallied() as tally:
        for part in parts:
            list(pages(part))
    assert tally.bytes == path.stat().st_size


def test_streams_that_are_cut_inside_of_pages_stay_together(tmp_path: Path) -> None:
    text = HEAD + "".join(map(page, range(20))) + FOOT
    path = written(tmp_path / "a.bz2", *(text[at : at + 333] for at in range(0, len(text), 333)))
    assert dump.parts(path, 1) == [Piece(path)]
    assert len(taken(path)) == 20


def test_what_only_looks_like_a_stream_is_no_place_to_cut(tmp_path: Path) -> None:
    packed = [bz2.compress(t.encode()) for t in (HEAD, page(1), page(2) + FOOT)]
    (path := tmp_path / "a.bz2").write_bytes(b"".join(packed) + b"BZh91AY&SY and more that is none" * 9)
    assert [part.start for part in dump.parts(path, 1)] == [0, len(packed[0]), len(packed[0]) + len(packed[1])]
    assert [p.id for part in dump.parts(path, 1) for p in pages(part)] == ["nowiki:1", "nowiki:2"]


@pytest.mark.parametrize("size", [300, 1000, 10**6])
@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("cut", ["refuse", "take"])
def test_a_damaged_stream_is_never_left_out(tmp_path: Path, size: int, at: int, cut: str) -> None:
    """Neither the zeroed name of one nor its first block, whether parts begin there, hold it or are the whole file."""
    streams = [bz2.compress(s.encode()) for s in (HEAD, *map(page, range(20)), FOOT)]
    for bad in (1, 9, 20):
        damaged = [s[:at] + bytes(4) + s[at + 4 :] if n == bad else s for n, s in enumerate(streams)]
        (path := tmp_path / "a.bz2").write_bytes(b"".join(damaged))
        found: list[DumpPage] = []
        every = (p for part in dump.parts(path, size) for p in pages(part, cut=cut))  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"damaged \.bz2 data before byte"):
            found.extend(every)
        assert [p.id for p in found] == [f"nowiki:{n}" for n in range(bad - 1)]


def test_a_part_that_stops_inside_of_a_page_is_damaged(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bz2", HEAD, page(1), page(2)[:40], page(3), FOOT)
    last = dump.parts(path, 1)[-1].start
    with pytest.raises(DataError, match=r"is damaged at line [\d,]+, after 1 whole pages"):
        list(pages(Piece(path, 0, last), cut="take"))
    with pytest.raises(DataError, match=r"is damaged at line [\d,]+, after 1 whole pages"):
        list(pages(Piece(path, 0, last - 20), cut="take"))


@pytest.mark.parametrize("name", PACKERS)
def test_a_dump_cut_off(tmp_path: Path, name: str) -> None:
    whole = PACKERS[name]((HEAD + "".join(page(n, f"{n} " * 99) for n in range(300)) + FOOT).encode())
    (path := tmp_path / f"a{name}").write_bytes(whole[: -len(whole) // 3])
    found = []
    with pytest.raises(
        DataError, match=r"is cut off at line [\d,]+, after \d+ whole pages; .*cut = \"take\""
    ) as caught:
        taken(path)
    with read.tallied() as tally:
        found = taken(path, cut="take")
    assert tally.left_out == {"cut-off dumps": 1}
    assert f"after {len(found)} whole pages" in str(caught.value)
    assert [p.id for p in found] == [f"nowiki:{n}" for n in range(len(found))]
    assert found or name in (".xml.gz", ".xml.xz", ".xml.bz2")


def test_the_pages_before_the_end_of_a_multistream_dump_come(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bz2", HEAD, *map(page, range(5)), page(5), FOOT)
    path.write_bytes(path.read_bytes()[:-90])
    found: list[DumpPage] = []
    with pytest.raises(DataError, match="after 5 whole pages"):
        found.extend(pages(Piece(path)))
    assert [p.id for p in found] == [f"nowiki:{n}" for n in range(5)]
    last = dump.parts(path, 1)[-1]
    with pytest.raises(DataError, match=rf"of the part from byte {last.start:,}"):
        list(pages(last))


def test_a_missing_end_is_a_cut(tmp_path: Path) -> None:
    for text in (HEAD + page(1), HEAD, HEAD[:50]):
        (path := tmp_path / "a.xml").write_text(text)
        with pytest.raises(DataError, match="cut off"):
            taken(path)


BOMB = '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaa"><!ENTITY c "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (BOMB + HEAD + page(1, "&c;") + FOOT, "line 1: a document type (<!DOCTYPE)"),
        ("<rss><page></page></rss>", "found XML that begins with <rss>; wanted a MediaWiki XML dump"),
        ("a text, not XML", "found no XML; wanted a MediaWiki XML dump, or WikiExtractor's"),
        ("", "an empty file"),
        (HEAD + page(1) + page(2, "a < b") + FOOT, "after 1 whole pages: not well-formed"),
        (HEAD + page(1) + page(2, "a\0b") + FOOT, "the character '\\x00', which XML forbids"),
        (HEAD + page(1, "&#0;") + FOOT, "after 0 whole pages: reference to invalid character number"),
        (
            HEAD + page(1).replace("<ns>0", "<ns>a: b") + FOOT,
            "after 0 whole pages: the namespace 'a: b' is not a number; wanted",
        ),
        (HEAD.replace('"6"', '"x"') + FOOT, "after 0 whole pages: the namespace 'x' is not a number; wanted"),
        ('<?xml version="1.0" encoding="klingon"?>' + HEAD + FOOT, "the unknown encoding `klingon`"),
    ],
)
def test_what_is_no_dump_is_told_in_one_line(tmp_path: Path, bad: str, said: str) -> None:
    (path := tmp_path / "a.xml").write_text(bad)
    with pytest.raises(DataError) as caught:
        taken(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file_and_damaged_data(tmp_path: Path) -> None:
    for name in ("a.xml", "a.bz2"):
        with pytest.raises(DataError, match="no such file"):
            taken(tmp_path / name)
    (path := tmp_path / "b.bz2").write_bytes(b"no bzip2 at all" * 9)
    with pytest.raises(DataError, match=r"damaged \.bz2 data before byte 135"):
        taken(path)


def test_invalid_bytes(tmp_path: Path) -> None:
    good = (HEAD + page(1, "a@b\x02c \ufffd") + FOOT).encode()
    (path := tmp_path / "a.xml").write_bytes(good.replace(b"@", b"\xff"))
    with pytest.raises(DataError, match=rf"byte {good.index(b'@'):,} \(unpacked\): invalid UTF-8"):
        taken(path)
    with read.tallied() as tally:
        (one,) = taken(path, errors="replace")
    assert one.text == "a\ufffdb\ufffdc \ufffd"
    assert tally.replaced == 2


def test_wikiextractor_json(tmp_path: Path) -> None:
    (path := tmp_path / "wiki_00").write_text(
        '{"id": "1", "revid": "5", "url": "http://x", "title": "Å", "text": "Å\\n\\nOne &lt;b&gt;.\\n\\nTwo."}\n'
        '{"id": "2", "url": "", "title": "B", "text": ""}\n'
    )
    assert taken(path) == [DumpPage("1", "Å", "One <b>.\nTwo.", "http://x"), DumpPage("2", "B")]
    for bad, said in {
        '{"id": "1"}': "without 'url'",
        '{"id": ': "Input data was truncated",
        "[1]": "Expected `object`",
        '{"text":' + "[" * 100_000: "nested too deeply",
    }.items():
        path.write_text('{"id": "2", "url": "", "title": "B", "text": ""}\n' + bad)
        with pytest.raises(DataError, match=rf"wiki_00:2: not a page as JSON: {said}"):
            taken(path)


def test_wikiextractor_documents(tmp_path: Path) -> None:
    (path := tmp_path / "wiki_00").write_text(
        '<doc id="1" url="http://x" title="Å "b"">\nÅ "b"\n\nOne &amp; two.\n\n</doc>\n\n<doc id="2">\n</doc>\n'
    )
    assert taken(path) == [DumpPage("1", 'Å "b"', "One & two.", "http://x"), DumpPage("2")]
    path.write_text('<doc id="1" url="http://x" title="A">\nA')
    with pytest.raises(DataError, match="wiki_00: is cut off at line 2, a <doc> without its </doc>"):
        taken(path)
    with read.tallied() as tally:
        assert taken(path, cut="take") == []
    assert tally.left_out == {"cut-off dumps": 1}
    for more in ("more", "</doc>"):
        path.write_text(f'<doc id="1">\n</doc>\n{more}')
        with pytest.raises(DataError, match="wiki_00:3: text outside of"):
            taken(path)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WINDOW", 1 << 20)
    for suffix, pack in ((".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)):
        path = tmp_path / f"a.xml{suffix}"
        path.write_bytes(pack(b"<mediawiki><page><title>A</title>" + b" " * 9_000_000))
        with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
            list(dump.pages(Piece(path)))
        with pytest.raises(DataError, match="cut off"):
            list(dump.pages(Piece(path), densest=0))


def test_namespaces_without_text_are_the_dumps_own(tmp_path: Path) -> None:
    """Media, files and categories by the site's names; the usual names are known without a dump."""
    names = {
        -2: "Spor",
        -1: "Spesial",
        0: "",
        4: "Om oss",
        6: "Bilete hos oss",
        8: "Fil",
        10: "Mal",
        14: "Slag",
        100: "P",
    }
    spaces = "".join(f'<namespace key="{key}">{name}</namespace>' for key, name in names.items())
    spaces += "<namespace>Uten</namespace>" + '<namespace key="6">File</namespace>'
    (path := tmp_path / "a.xml").write_text(f"<mediawiki><siteinfo>{spaces}</siteinfo>{page(1)}</mediawiki>")
    assert [p.unshown for p in taken(path)] == [["spor", "bilete hos oss", "slag"]]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://x.org/wiki/Main_Page", "https://x.org/wiki/A_b/c:d@!$()*,;~'%3F%26%C3%A5_%22%23"),
        ("http://x.org/Main", "http://x.org/A_b/c:d@!$()*,;~'%3F%26%C3%A5_%22%23"),
        ("https://x.org/w/index.php?title=Main", ""),
        ("x.org/wiki/Main", ""),
        ("", ""),
    ],
)
def test_addresses_of_pages_follow_that_of_the_main_page(tmp_path: Path, base: str, url: str) -> None:
    titled = page(1).replace("Ålen 1", "A b/c:d@!$()*,;~'?&amp;å \"#")
    (path := tmp_path / "a.xml").write_text(f"<mediawiki><siteinfo><base>{base}</base></siteinfo>{titled}</mediawiki>")
    assert [(p.id, p.url) for p in taken(path)] == [("1", url)]


@pytest.mark.parametrize("mark", ["\ufeff", " \t\r\n", "\ufeff \n"])
def test_what_stands_before_the_first_sign_does_not_matter(tmp_path: Path, mark: str) -> None:
    for encoding in ("utf-8", "utf-16-le", "utf-16-be") if mark == "\ufeff" else ("utf-8",):
        for text in (
            HEAD + page(1) + FOOT,
            '{"id": "1", "url": "", "title": "T", "text": "x"}',
            '<doc id="1">\nx\n</doc>',
        ):
            if text.startswith("<med") or encoding == "utf-8":
                (path := tmp_path / "a").write_bytes((mark + text).encode(encoding))
                assert [p.id.removeprefix("nowiki:") for p in taken(path)] == ["1"], (encoding, text[:9])


def test_odd_elements_are_passed_over(tmp_path: Path) -> None:
    text = '<mediawiki><redirect title="x"/><id>5</id>' + page(1, more="<page><id>7</id></page>") + page(2) + FOOT
    (path := tmp_path / "a.xml").write_text(text)
    assert [(p.id, p.redirect) for p in taken(path)][-1] == ("2", False)


def test_parts_begin_with_the_first_page_behind_so_many_bytes(tmp_path: Path) -> None:
    """A stream that begins inside of a page is passed over, and so is one that unpacks slowly; names may be large."""
    noise = base64.b64encode(random.Random(1).randbytes(300_000)).decode()  # one block of bzip2, larger than a bite
    text = page(5, noise)
    streams = [HEAD, page(0), page(1) + page(2)[:60], page(2)[60:], page(3), page(4), text, page(6), FOOT]
    path = written(tmp_path / "A.XML.BZ2", *streams)
    starts = [0]
    for stream in streams:
        starts.append(starts[-1] + len(bz2.compress(stream.encode())))
    begins = [starts[n] for n in (1, 2, 4, 5, 6, 7)]
    assert begins[5] - begins[4] > 2 * dump.BITE
    for size in (1, starts[2] - 1, starts[2], starts[2] + 1, starts[4], starts[5], 100_000, starts[7], starts[-1] - 1):
        wanted, last = [0], 0
        while later := [start for start in begins if start >= last + size]:
            wanted.append(last := later[0])
        parts = dump.parts(path, size)
        assert [part.start for part in parts] == wanted, size
        assert [part.stop for part in parts] == [*wanted[1:], None]
        assert [p.id for part in parts for p in pages(part)] == [f"nowiki:{n}" for n in range(7)]
    assert dump.parts(path, starts[-1]) == dump.parts(path) == [Piece(path)]
    assert len(dump.parts(written(tmp_path / "b.bz2", HEAD + page(1) + FOOT), 1)) == 1
    path.rename(other := tmp_path / "a.xml")
    assert dump.parts(other, 1) == [Piece(other)]


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_an_invalid_byte_is_named_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(read, "BLOCK", block)
    path = tmp_path / "a.xml"
    for before in range(8):
        good = (HEAD + page(1, "å" + "x" * before + "@(") + FOOT).encode()
        path.write_bytes(good.replace(b"@", b"\xc3"))
        with pytest.raises(DataError, match=rf"byte {good.index(b'@'):,} \(unpacked\): invalid UTF-8"):
            taken(path)


def test_an_error_is_named_by_its_line_and_the_whole_pages_before_it(tmp_path: Path) -> None:
    text = HEAD + page(1) + page(2) + page(3, "a < b") + FOOT
    (path := tmp_path / "a.xml").write_text(text)
    line = text[: text.index("a < b")].count("\n") + 1
    with pytest.raises(DataError, match=f"line {line}, after 2 whole pages: not well-formed"):
        taken(path)
    path = written(tmp_path / "a.bz2", HEAD + page(0), page(1), page(2), page(3, "\n\na < b"), FOOT)
    part = dump.parts(path, 1)[1]
    start = f"{part.start:,}"
    line = (page(1) + page(2) + page(3, "\n\na <"))[: -len("</text>\n    </revision>\n  </page>\n")].count("\n") + 1
    with pytest.raises(DataError, match=f"line {line} of the part from byte {start}, after 2 whole pages: not well"):
        list(pages(Piece(path, part.start)))
    broken = written(tmp_path / "b.bz2", "<mediawiki></siteinfo>", page(1), FOOT)
    for part in dump.parts(broken, 1):
        with pytest.raises(DataError, match="mismatched tag"):
            list(pages(part))


@pytest.mark.parametrize("form", ["json", "doc"])
def test_what_wikiextractor_wrote_is_read_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    rows = {"json": b'{"id": "1", "url": "", "title": "T", "text": "%s"}\n', "doc": b'<doc id="1">\n%s\n</doc>\n'}
    (path := tmp_path / "wiki_00").write_bytes(rows[form] % b"a\xff")
    with pytest.raises(DataError, match="invalid UTF-8"):
        taken(path)
    with read.tallied() as tally:
        assert [p.text for p in taken(path, errors="replace")] == ["a\ufffd"]
    assert tally.replaced == 1
    monkeypatch.setattr(read, "WINDOW", 1 << 20)
    (path := tmp_path / "wiki_00.gz").write_bytes(gzip.compress(rows[form] % (b"a" * 3_000_000)))
    with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
        taken(path)
    assert [len(p.text) for p in pages(Piece(path), densest=0)] == [3_000_000]


def test_titles_above_texts_and_empty_lines_go(tmp_path: Path) -> None:
    text = '<doc id="1" revid="2" url="http://x" title="A &amp; B">\n\nA &amp; B\n\nOne.\n\nA &amp; B\n</doc>\n\n'
    (path := tmp_path / "wiki_00").write_text(text + '<doc id="2" url="" title="T">\nOne.\nT\n</doc>\n')
    assert taken(path) == [DumpPage("1", "A & B", "One.\nA & B", "http://x"), DumpPage("2", "T", "One.\nT")]
    path.write_text(text + "\n" + '<doc id="3">\nA')
    with pytest.raises(DataError, match=f"line {text.count(chr(10)) + 3}, a <doc> without"):
        taken(path)
