"""Encodings: detected by marks, zeros and escapes, or guessed if exactly one fits well."""

from __future__ import annotations

import pytest

from kit.makers import digest_of
from ordsmed.text import encodings
from ordsmed.text.encodings import canonical_name, escaped, guess, marked

NORWEGIAN = "Været på øya er blåere enn sjøen på våren, sa læreren, og så gikk hun hjem over brua. "
RUSSIAN = "Он живёт в большом городе у реки и каждый день ходит пешком на работу. "
JAPANESE = "これは日本語の文章です。とてもいい天気ですね。"
GREEK = "Πηγαίνω στο σπίτι και είναι αργά το βράδυ. "


def test_the_tables_are_as_they_were() -> None:
    """What is guessed hangs on each letter: who changes one says so in the change log, and the digest here."""
    names = "SAMPLE FEWEST LEAST AHEAD _MARKS _ESCAPES _HZ _RUN _NEUTRAL _LATIN _OTHER _WIDE _VARIANTS"
    assert digest_of(encodings, names) == "2db91421"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (NORWEGIAN, "cp1252"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (RUSSIAN, "iso8859-5"),
        (RUSSIAN, "cp866"),
        (GREEK, "cp1253"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jp"),
        (NORWEGIAN, "utf-8"),
        (RUSSIAN, "utf-8"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy a běžel dál. ", "cp1250"),
        ("我们的学校在城市的中间，有很多学生在这里学习。", "gb18030"),
        ("我們的學校在城市的中間，有很多學生在這裡學習。", "cp950"),
        ("나는 학교에서 한국어를 공부하고 있습니다. ", "cp949"),
    ],
)
def test_a_text_is_told_by_its_letters(text: str, encoding: str) -> None:
    assert guess((text * 20).encode(encoding), True) == encoding


def test_what_cannot_be_told_is_not() -> None:
    assert guess(b"plain", True) == "utf-8"
    assert guess("Он жил".encode("cp1251")[:9], True) is None, "too few letters of another alphabet"
    assert guess(bytes(range(0x80, 0x100)) * 3, True) is None
    assert guess("øß".encode("cp1252") + "þñç ".encode("cp1252") * 9 + "ýÿ".encode("cp1252"), True) is None
    whole = (NORWEGIAN * 3).encode()
    assert guess(whole[: whole.index("ø".encode()) + 1], False) == "utf-8", "cut off inside a letter"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("text", [NORWEGIAN, RUSSIAN * 2, "plain\n" * 20])
def test_marks_and_zeros(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    assert marked(data) == encoding.removesuffix("-sig")
    assert text == data.decode(marked(data) or "").removeprefix("\ufeff")


def test_zeros_that_tell_nothing() -> None:
    plain = "plain text of some lines\n" * 20
    assert marked(plain.encode()) is None
    assert marked("plain t".encode("utf-16-le")) is None, "too short"
    assert marked("plain te".encode("utf-16-le")) == "utf-16-le"
    assert marked(plain.encode("utf-16-le")[:-1]) == "utf-16-le", "half a letter at the end"
    assert marked(bytes(64)) is None
    assert marked(b"\0plain bytes with zeros among them" * 9) is None
    assert marked(("ab" * 3 + "\0").encode("utf-16-le") * 40) is None, "letters that nobody writes"


def test_few_zeros_and_odd_letters_are_told_apart() -> None:
    """One zero in fifty bytes is enough; one letter in a hundred may be unusual."""
    many = "".join(chr(0x4E01 + 300 * n) for n in range(49))  # no two of one block
    assert marked((many[:48] + "  ").encode("utf-16-le")) == "utf-16-le"
    assert marked((many + " ").encode("utf-16-le")) is None
    assert marked(("α" * 49 + " ").encode("utf-16-le")) == "utf-16-le", "letters of one block tell it too"
    assert marked(("α" * 50).encode("utf-16-le")) is None
    for odd, name in ((5, None), (1, "utf-16-le")):
        for text in ("ab" * 60 + "\uffff" * odd, "\uffff" * odd + "ab" * 60):
            assert marked(text.encode("utf-16-le")) == name
            assert marked(text.encode("utf-16-be")) == (name and "utf-16-be")


def test_escapes() -> None:
    assert escaped(JAPANESE.encode("iso2022_jp")) == "iso2022_jp_2"
    assert escaped("한국어".encode("iso2022_kr")) == "iso2022_kr"
    assert escaped(("中文\n" * 2).encode("hz")) == "hz"
    assert escaped("中文\n".encode("hz")) is None, "once may be chance"
    assert escaped(b"a ~{ b ~} \x1b[0m") is None
    assert escaped(b"~{!!}~} ~{wxyz~}") is None
    assert guess(JAPANESE.encode("iso2022_jp"), True) == "iso2022_jp_2"


def test_names() -> None:
    assert [canonical_name(name) for name in ("UTF8", "windows-1252", "latin-1", "auto")] == [
        "utf-8",
        "cp1252",
        "iso8859-1",
        "auto",
    ]
    for wrong in ("klingon", "base64", "", "utf-8\0", "rot13"):
        with pytest.raises(ValueError, match=r"encoding: found .*; wanted a name such as windows-1252, or 'auto'"):
            canonical_name(wrong)
