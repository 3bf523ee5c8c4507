"""Lists of addresses: normalized, without duplicates, and with counts of each rule."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.makers import digest_of
from ordsmed import cli
from ordsmed.base.errors import DataError
from ordsmed.web import urls
from ordsmed.web.urls import Rules, addresses, is_private, normalized, number, write_list


def chosen(path: Path, *rows: str, private: bool = False, **rules: Any) -> tuple[list[str], dict[str, int]]:
    path.write_bytes("\n".join(rows).encode("utf-8", "surrogateescape"))
    left_out = Counter[str]()
    return list(addresses([path], Rules(**rules), left_out, private)), dict(left_out)


@pytest.mark.parametrize(
    ("link", "spelling"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("http://example.com:80/A/b?x=1#top", "http://example.com/A/b?x=1"),
        ("https://example.com.:443/", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com/?utm_source=a&b=2&fbclid=3&GCLID=4", "http://example.com/?b=2"),
        ("http://example.com/a?utm_source=a", "http://example.com/a"),
        ("http://example.com/?my_utm_x=1&outgclid=2", "http://example.com/?my_utm_x=1&outgclid=2"),
        ("http://blåbær.no/sti/å?ø=%20", "http://xn--blbr-roah.no/sti/%C3%A5?%C3%B8=%20"),
        ("http://faß.de/", "http://xn--fa-hia.de/"),
        ("http://FASS.de/", "http://fass.de/"),
        ("http://βόλος.com/", "http://xn--nxasmm1c.com/"),
        ("http://BÜCHER.example", "http://xn--bcher-kva.example/"),
        ("http://日本。jp/", "http://xn--wgv71a.jp/"),
        ("http://☃.net/", "http://xn--n3h.net/"),
        ("http://my_host.faß.de./", "http://my_host.xn--fa-hia.de/"),
        ("http://１２７.0.0.1/", "http://127.0.0.1/"),
        ("http://xn--fa-hia.de/", "http://xn--fa-hia.de/"),
        ("http://example.com/a;b=(c)|\"<{'*", "http://example.com/a;b=(c)%7C%22%3C%7B'*"),
        ("http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080/"),
    ],
)
def test_one_spelling(link: str, spelling: str) -> None:
    assert normalized(link)[0] == spelling
    assert normalized(spelling)[0] == spelling


@pytest.mark.parametrize(
    "link",
    [
        "example.com/a",
        "ftp://example.com/",
        "javascript:alert(1)",
        "//example.com/",
        "http:///a",
        "http://",
        "#",
        "http://a b.com/",
        "http://example.com/a b",
        "http://[::1/",
        "http://example.com:99999/",
        "http://-/",
        "http://example..com/",
        "http://me:secret@example.com/",
        "http://me@example.com",
        "http://exa\ufffdmple.com/",
        "http://example.com/\ud800",
        f"http://{'a' * 64}.com/",
        f"http://example.com/{'a' * 5000}",
        "http://\u2028.com/",
        "http://example.com:x/",
        "http://a%2Fb.com/",
        "http://ü..com/",
        "http://a\u2010\u00ad\ufffc.com/",
        f"http://{'ü' * 64}.com/",
    ],
)
def test_what_is_no_address(link: str) -> None:
    assert normalized(link) == ("", "")


@given(st.text(), st.sampled_from(["", "http://", "https://a.org", "http://a.org/?", "http://bå.no:"]))
def test_whatever_it_is_one_spelling_is_kept(text: str, before: str) -> None:
    url, host = normalized(before + text)
    assert normalized(url) == (url, host)
    assert url.isascii()
    assert not set(url) & set(' "<>\\^`{|}\t\n#')


def test_http_and_https_count_as_one() -> None:
    assert number("http://example.com/a") == number("https://example.com/a") != number("http://example.com/b")


def test_each_rule_is_counted_by_its_name(tmp_path: Path) -> None:
    found, left_out = chosen(
        tmp_path / "list.txt",
        "# a comment",
        "",
        "  http://a.org/1  ",
        "no address",
        "http://www.youtube.com/watch",
        "http://a.org/x.JPG?v=1",
        "http://a.org/x.html?v=1.jpg",
        "http://ads.org/a",
        "http://a",
        "http://192.168.0.1/",
        "http://a.org/1#again",
        "https://A.org/1",
        "http://a.org",
        patterns=[r"//ads\.", "^$"],
    )
    assert found == ["http://a.org/1", "http://a.org/x.html?v=1.jpg", "http://a.org/"]
    assert left_out == {
        "malformed address": 1,
        "blacklisted domain": 1,
        "no page by its extension": 1,
        "pattern in address": 1,
        "short address": 1,
        "private host": 1,
        "duplicate address": 2,
    }


def test_the_first_rule_that_fits_is_counted(tmp_path: Path) -> None:
    rows = ["http://youtube.com/a.jpg", "http://10.0.0.1/a.jpg", "http://10.0.0.1/ads", "http://a"]
    assert chosen(tmp_path / "list.txt", *rows, *rows, patterns=["ads"])[1] == {
        "blacklisted domain": 2,
        "no page by its extension": 2,
        "pattern in address": 2,
        "short address": 2,
    }
    assert chosen(tmp_path / "list.txt", "http://10.0.0.1/", private=True) == (["http://10.0.0.1/"], {})


def test_a_blacklist_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "black.txt").write_text("# sites\nexample.com\nAPPLE  # any ending\n\nnews.example.org\n")
    hosts = [
        "example.com",
        "www.example.com",
        "a.b.example.com",
        "example.net",
        "myexample.com",
        "example.com.evil.net",
        "apple.com",
        "www.apple.co.uk",
        "shop.apple.de",
        "apple.example.net",
        "pineapple.com",
        "example.org",
        "x.news.example.org",
        "youtube.com",
    ]
    found, left_out = chosen(
        tmp_path / "list.txt", *(f"http://{host}/" for host in hosts), blacklist=[str(tmp_path / "black.txt")]
    )
    kept = [
        "example.net",
        "myexample.com",
        "example.com.evil.net",
        "apple.example.net",
        "pineapple.com",
        "example.org",
        "youtube.com",
    ]
    assert found == [f"http://{host}/" for host in kept]
    assert left_out == {"blacklisted domain": 7}


def test_a_bad_blacklist_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "black.txt").write_text("example.com\n1542261 google\n")
    with pytest.raises(DataError, match=r"black\.txt:2: found '1542261 google'; wanted a domain"):
        chosen(tmp_path / "list.txt", "http://a.org/", blacklist=[str(tmp_path / "black.txt")])
    with pytest.raises(DataError, match=r"none\.txt: no such file or folder"):
        Rules(blacklist=[str(tmp_path / "none.txt")]).rules_stamp()


def test_the_usual_blacklist_is_sorted_out() -> None:
    names = list(urls._names(urls.USUAL))
    assert len(names) == len(set(names)) > 50
    assert not [name for name in names if name in {"wordpress", "blogspot", "medium.com", "bbc", "wikipedia", "github"}]


def test_a_bad_pattern_is_told() -> None:
    with pytest.raises(ValueError, match=r"^patterns: found '\(' .*; wanted a regular expression"):
        Rules(patterns=["("])


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("169.254.169.254", True),
        ("0.0.0.0", True),
        ("127.1", True),
        ("2130706433", True),
        ("0x7f000001", True),
        ("[::1]", True),
        ("[fe80::1]", True),
        ("[::ffff:10.0.0.1]", True),
        ("localhost", True),
        ("printer", True),
        ("x.local", True),
        ("8.8.8.8", False),
        ("example.com", False),
        ("10.example.com", False),
        ("mylocal.net", False),
        ("[2606:4700::1111]", False),
    ],
)
def test_private_hosts_are_told_by_their_names(host: str, private: bool) -> None:
    assert is_private(host) == private


def submission(**fields: Any) -> str:
    return json.dumps({"url": "http://a.org/1", "score": 3, "is_self": False, "over_18": False, "title": "x", **fields})


@pytest.mark.parametrize("pack", [None, gzip, lzma])
def test_links_of_reddit(tmp_path: Path, pack: Any) -> None:
    rows = [
        submission(),
        submission(url="http://a.org/2?a=1&amp;b=2", score=900),
        submission(url="http://a.org/1#"),
        submission(score="5", url="http://a.org/5"),
        submission(score=2),
        submission(score=None),
        submission(is_self=True, url="http://a.org/self"),
        submission(over_18=True),
        submission(url=""),
        submission(url=None),
        json.dumps({"score": 7}),
        '{"url": "cut',
        "{[]",
        submission(url=3),
        '{"score": 7, "url": "http://a.org/\\ud800"}',
        "[]",
    ]
    path = tmp_path / ("dump" + {None: "", gzip: ".gz", lzma: ".xz"}[pack])
    with pack.open(path, "wb") if pack else path.open("wb") as file:
        file.write("\n".join(rows).encode())
    left_out = Counter[str]()
    found = list(addresses([path], Rules(), left_out))
    assert found == ["http://a.org/1", "http://a.org/2?a=1&b=2", "http://a.org/5"]
    assert left_out == {
        "low score": 2,
        "self post": 1,
        "over 18": 1,
        "no address": 3,
        "bad JSON": 4,
        "malformed address": 1,
        "duplicate address": 1,
    }


def test_thresholds_of_reddit_can_be_moved(tmp_path: Path) -> None:
    rows = [submission(score=2), submission(over_18=True, url="http://a.org/2", score=-1)]
    assert chosen(tmp_path / "dump", *rows, score=-5, over_18=True) == (["http://a.org/1", "http://a.org/2"], {})


def test_invalid_bytes_in_a_list_are_no_address(tmp_path: Path) -> None:
    found, left_out = chosen(tmp_path / "list.txt", "http://a.org/\udcff\udcfe", "http://a.org/")
    assert (found, left_out) == (["http://a.org/"], {"malformed address": 1})


def test_a_list_cut_off_is_told(tmp_path: Path) -> None:
    whole = gzip.compress(b"http://a.org/\n" * 1000)
    (tmp_path / "list.txt.gz").write_bytes(whole[:-10])
    with pytest.raises(DataError, match=r"list\.txt\.gz: is cut off"):
        list(addresses([tmp_path / "list.txt.gz"], Rules(), Counter()))


def test_a_real_dump(shared_data: Path) -> None:
    left_out = Counter[str]()
    found = list(addresses([shared_data / "openwebtext" / "RS_v2_2005-06.xz"], Rules(), left_out))
    assert (len(found), left_out) == (83, {"low score": 20})
    assert found[0] == "http://www.downingstreetmemo.com/"
    assert found[1].endswith("_s5eff_5SbJW3B_RdxwYLvU3s6c_20050723,00.html?mod=blogs")


def test_the_list_of_a_dump_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"url": f"http://a.org/{n}?utm_source=x", "score": n} for n in (2, 3, 9)] + [
        {"url": "http://b.org/a.pdf", "score": 5}
    ]
    dump, out = tmp_path / "RS_2011-01.xz", tmp_path / "made" / "list.txt"
    dump.write_bytes(lzma.compress("\n".join(map(json.dumps, [*rows, rows[2]])).encode()))
    cli.main(["corpus", "addresses", str(dump), str(out)])
    assert out.read_text() == "http://a.org/3\nhttp://a.org/9\n"
    told = " ".join(capsys.readouterr().out.split())
    assert told.endswith("2 addresses; left out: 1 low score, 1 no page by its extension, 1 duplicate address")
    assert list(addresses([out], Rules(), Counter())) == out.read_text().split()
    write_list([str(dump)], str(out), Rules(score=5, patterns=["zzz"]), anew=True)
    assert out.read_text() == "http://a.org/9\n"
    for wrong, said in (
        ((str(dump), out), "exists; give another file, or add `--anew`, which moves this file aside"),
        ((str(dump), tmp_path), "exists; give another"),
        ((str(dump), tmp_path / "a.gz"), "a compressed file"),
        ((str(tmp_path / "none"), tmp_path / "b"), "no such file"),
    ):
        with pytest.raises(DataError, match=said):
            write_list([wrong[0]], str(wrong[1]), Rules())
    with pytest.raises(DataError, match="one of the input lists"):
        write_list([str(out.parent)], str(out), Rules(), anew=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["RS_2011-01.xz", "list.txt", "list.txt.old-1", "made"]
    with pytest.raises(SystemExit):
        cli.main(["corpus", "addresses", str(dump), str(tmp_path / "c"), "--pattern", "("])
    assert "wanted a regular expression" in " ".join(capsys.readouterr().err.split())


def test_a_name_without_a_dot_is_no_ending(tmp_path: Path) -> None:
    """`com` matches com.org and similar domains, not all domains that end in it."""
    (tmp_path / "black.txt").write_text("com\n")
    told = urls.fault_of(Rules(blacklist=[str(tmp_path / "black.txt")]), private=True)
    assert [told(link) for link in ("http://example.com/", "http://com.org/", "http://ab")] == [
        "",
        "blacklisted domain",
        "",
    ]


@pytest.mark.parametrize(
    ("host", "banned"), [("apple.co.uk", True), ("apple.com.info", False), ("apple.xx.uk", False), ("apple.info", True)]
)
def test_a_second_level_stands_before_a_countrys_letters_alone(host: str, banned: bool) -> None:
    assert urls.blacklisted(host, frozenset(["apple"])) == banned


def test_each_rule_is_in_the_stamp() -> None:
    stamps = [Rules(), Rules(score=4), Rules(over_18=True), Rules(patterns=["x"]), Rules(blacklist=[])]
    assert len({json.dumps(rules.rules_stamp()) for rules in stamps}) == len(stamps)


def test_a_list_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.txt").write_text("http://example.com/\n")
    write_list([str(tmp_path / "in.txt")], str(tmp_path / "out.txt"), Rules(blacklist=[]))
    assert (tmp_path / "out.txt").read_text() == "http://example.com/\n"

    def cut(*_: Any) -> Any:
        yield "http://a.org/"
        raise DataError("list", "cut off")

    monkeypatch.setattr(urls, "addresses", cut)
    with pytest.raises(DataError):
        write_list([str(tmp_path / "in.txt")], str(tmp_path / "other.txt"), Rules(blacklist=[]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_no_word_of_the_tables_is_lost_unseen() -> None:
    """Which addresses are got hangs on each: who changes one says so in the change log, and the digest here."""
    assert digest_of(urls, "EXTENSIONS SECOND LOCAL TRACKING KEPT ODD NAME") == "a4f9c7a0"
    assert hashlib.sha256(" ".join(urls._names(urls.USUAL)).encode()).hexdigest()[:8] == "fa776503"


def test_how_long_an_address_may_be(tmp_path: Path) -> None:
    longest = "http://a.org/" + "x" * (4096 - 13)
    rows = [longest, longest + "x", "http://a", "http://b.", "http://ab"]
    found, left_out = chosen(tmp_path / "list.txt", *rows, private=True)
    assert found == [longest, "http://b/", "http://ab/"]
    assert left_out == {"malformed address": 1, "short address": 1}


def test_an_address_is_known_by_64_bits_that_stay() -> None:
    digest = hashlib.blake2b(b"example.com/\xc3\xa5", digest_size=8).digest()
    assert number("https://example.com/å") == int.from_bytes(digest, "little")


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("http://a.org/x.pdf", False),
        ("http://a.org/x.PDF?a=b.html", False),
        ("http://a.org/x.html?a=b.pdf", True),
        ("http://a.org/x.pdf/", True),
        ("http://a.org/pdf", True),
        ("http://a.zip", True),
        ("http://a.zip/", True),
        ("http://a.org/a/b.c/x.tar.gz", False),
        ("http://a.org/.zip", False),
        ("http://a.org/x.pdfx", True),
    ],
)
def test_what_is_no_page_by_its_extension(url: str, page: bool) -> None:
    assert (urls.fault_of(Rules(blacklist=[]))(url) == "") == page
