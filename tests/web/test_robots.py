"""robots.txt is obeyed: the rules and examples of RFC 9309, and frequent deviations of hosts."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.web import robots


def allowed(text: str, *paths: str, name: str = "ordsmed") -> list[bool]:
    rules = robots.parse(text, name)
    return [rules.allow(f"https://example.com{path}") for path in paths]


def for_all(*lines: str) -> str:
    return "\n".join(("User-agent: *", *lines))


EXAMPLES = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("name", "open_"),
    [
        ("foobot", [False, True, True, False, False]),
        ("barbot", [True, False, True, True, True]),
        ("bazbot", [True, False, True, True, True]),
        ("quxbot", [True] * 5),
        ("ordsmed", [True, False, False, True, False]),
    ],
)
def test_the_simple_example(name: str, open_: list[bool]) -> None:
    paths = ("/", "/example/page.html", "/example/allowed.gif", "/publications/", "/a.gif")
    assert allowed(EXAMPLES, *paths, name=name) == open_


def test_the_longest_match_wins_and_of_equals_what_allows() -> None:
    text = for_all("Allow: /example/page/", "Disallow: /example/page/disallowed.gif")
    assert allowed(text, "/example/page/disallowed.gif", "/example/page/other.gif") == [False, True]
    for lines in (("Allow: /ab", "Disallow: /ab"), ("Disallow: /ab", "Allow: /ab")):
        assert allowed(for_all(*lines), "/ab", "/abc") == [True, True]
    assert allowed(for_all("Disallow: /", "Allow: /$"), "/", "/a") == [True, False]
    assert allowed(for_all("Allow: /fish*.php", "Disallow: /*.php"), "/fishy.php", "/a.php") == [True, False]
    assert allowed(for_all("Allow: /p", "Disallow: /*/q"), "/p/q") == [False], "a star counts"
    assert allowed(for_all("Allow: /p?x", "Disallow: /p*xy"), "/p?xyz") == [False], "a reserved sign is one octet"
    assert allowed(for_all("Allow: /å", "Disallow: /*12"), "/å12") == [True], "one of two octets is six signs"


@pytest.mark.parametrize("line", ["Disallow: /", "Disallow: *", "Disallow: /*", "disallow : /  # all", "\tDISALLOW:/"])
def test_all_may_be_forbidden(line: str) -> None:
    assert allowed(for_all(line), "/", "/a?b", "//[", "") == [False] * 4


@pytest.mark.parametrize(
    ("rule", "fits", "not_"),
    [
        (
            "/fish",
            ["/fish", "/fish.html", "/fishheads/y.html", "/fish?id=1"],
            ["/Fish", "/catfish", "/f", "/desert/fish"],
        ),
        ("/fish*", ["/fish", "/fish.html", "/fish/s"], ["/catfish"]),
        ("/fish/", ["/fish/", "/fish/?id=a"], ["/fish", "/fish.html"]),
        ("/*.php", ["/index.php", "/d/f.php?x=1", "/d/f.php/"], ["/", "/windows.PHP"]),
        ("/*.php$", ["/filename.php", "/d/f.php", "/a.php.php"], ["/f.php?x", "/f.php/", "/f.php5"]),
        ("/fish*.php", ["/fish.php", "/fishheads/catfish.php?x=y"], ["/Fish.PHP", "/fish", "/php.fish"]),
        ("/a$", ["/a"], ["/ab", "/a/", "/"]),
        ("/a$b", ["/a$b", "/a$bc"], ["/a", "/ab"]),
        ("/a%24", ["/a$", "/a$b"], ["/a"]),
        ("/a%2A", ["/a*b"], ["/ab"]),
        ("/*a*b$", ["/ab", "/xaxbxb"], ["/ba", "/b", "/abx"]),
        ("/ab*b$", ["/abb", "/ab/b"], ["/ab"]),
        ("/a*a*a", ["/aaa", "/axaxax"], ["/aa", "/axa"]),
        ("/***x", ["/x", "/yx"], ["/y"]),
        ("*$", ["/", "/a"], []),
        ("/foo/bar?baz=quz", ["/foo/bar?baz=quz&more"], ["/foo/bar", "/foo/bar/?baz=quz"]),
        ("/foo/bar?baz=https://foo.bar", ["/foo/bar?baz=https%3A%2F%2Ffoo.bar"], []),
        ("/foo/bar/ツ", ["/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84x"], ["/foo/bar/%E3%83"]),
        ("/foo/bar/%E3%83%84", ["/foo/bar/%E3%83%84"], ["/foo/bar/"]),
        ("/foo/bar/%62%61%7A", ["/foo/bar/baz"], ["/foo/bar/ba"]),
        ("/%zz", ["/%zz"], ["/zz"]),
    ],
)
def test_patterns(rule: str, fits: list[str], not_: list[str]) -> None:
    assert allowed(for_all(f"Disallow: {rule}"), *fits, *not_) == [False] * len(fits) + [True] * len(not_)
    assert allowed(for_all("Disallow: *", f"Allow: {rule}"), *fits, *not_)[: len(fits)] == [True] * len(fits)


@pytest.mark.parametrize(
    "text",
    [
        "User-agent: ordsmed\nDisallow: /a\n\nUser-agent: other\nDisallow: /c\n\nUser-agent: ORDSMED\nDisallow: /b",
        "User-agent: ordsmed\nDisallow: /a\nDisallow: /b\n\nUser-agent: *\nDisallow: /",
        "User-agent: *\nDisallow: /\n\nUser-agent: ordsmed/1.0\nDisallow: /a\nDisallow: /b",
        "User-agent: other\nUser-agent: Ordsmed # us\n\nDisallow: /a\n\n\nDisallow: /b\nUser-agent: x\nDisallow: /c",
        "User-agent: *\nDisallow: /a\n\nUser-agent: * \nDisallow: /b\n\nUser-agent: ord\nAllow: /\nDisallow: /c",
        "User-agent: *\nDisallow: /a\nDisallow: /b\nUser-agent: ordsmed-image\nDisallow: /c\nUser-agent: my-ordsmed\n",
        "user agent: *\nSitemap: x\nUser-agent: other\nHost: y\nno line\nDissalow: /a\nDisallow:\nDisallow: /b",
        "Disallow: /c\nUser-agent: *x\nDisallow: /c\nUser-agent: * x\nDisallow: /a\nDisallow: /b",
        "\ufeffUser-agent: *\rDisallow: /a\r\rDisallow: /b\r",
        "User-agent: *\r\nDisallow: /a\r\n# Allow: /a\r\nDisallow: /b\r\nUser-agent:\r\nAllow: /\r\nDisallow: /c",
        "User-agent: *\nDisallow: /a\nDisallow: /b\nCrawl-delay: 3\nUser-agent: other\nDisallow: /c",
    ],
)
def test_whose_rules_are_ours(text: str) -> None:
    assert allowed(text, "/a", "/b", "/c", "/") == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("User-agent: *\nCrawl-delay: 5", 5.0),
        ("User-agent: *\nDisallow: /x\nCrawl-Delay: 0.5\n", 0.5),
        ("User-agent: *\nCrawl-delay: 5\n\nUser-agent: ordsmed\nCrawl-delay: 2", 2.0),
        ("User-agent: *\nCrawl-delay: 5\n\nUser-agent: ordsmed\nDisallow:", 0.0),
        ("User-agent: *\nCrawl-delay: 5\nUser-agent: other\nCrawl-delay: 9", 5.0),
        *((f"User-agent: *\nCrawl-delay: {odd}", 0.0) for odd in ("nan", "inf", "-1", "", "soon", "1e999")),
    ],
)
def test_delays(text: str, delay: float) -> None:
    assert robots.parse(text).delay == delay


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_half_a_line_where_too_long_a_file_is_cut_counts_for_nothing(end: str) -> None:
    lines = end.join(["User-agent: *", "Disallow: /x", "#" * robots.LARGEST, "Allow: /x"])
    reply: Any = SimpleNamespace(status=200, blocks=lambda seconds: iter([lines.encode(), b"yz"]))
    assert not robots.read_rules(reply, 1.0).allow("http://a.org/x")


def test_as_protego_reads_them() -> None:
    """Only where it follows the RFC: it also matches `ord`, and ends a group at any line that it does not know."""
    protego = pytest.importorskip("protego").Protego
    chance = random.Random(30)

    def path() -> str:
        return "/" + "".join(chance.choice("aab*/") for _ in range(chance.randint(0, 4))) + chance.choice(["", "", "$"])

    for _ in range(3000):
        kinds = (
            "User-agent: ordsmed",
            "User-agent: *",
            "User-agent: x",
            "Allow: {}",
            "Disallow: {}",
            "Disallow: {}",
            "",
        )
        text = "\n".join(chance.choice(kinds).format(path()) for _ in range(9))
        theirs, paths = protego.parse(text), ("/", "/a", "/ab", "/aab", "/a/b", "/b", "/ba/a")
        assert allowed(text, *paths) == [theirs.can_fetch(f"https://example.com{path}", "ordsmed") for path in paths]


@pytest.mark.parametrize("path", ["/" + "a" * 3000, "/" + "ab" * 1500])
def test_many_stars_cost_no_time(path: str) -> None:
    assert allowed(for_all(*["Disallow: /" + "*a" * 500 + "*c"] * 50), path) == [True]
