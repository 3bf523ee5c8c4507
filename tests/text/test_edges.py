"""A part of a text that is widened cuts no word and no character, in any script, and takes no more than it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.makers import digest_of
from ordsmed.text import edges
from ordsmed.text.edges import whole


@pytest.mark.parametrize(
    ("text", "part", "wanted"),
    [
        ("It rained in Brønnøysund today.", "ønnøy", "Brønnøysund"),
        ("a well-known man", "kno", "known"),
        ("Ann's cat", "An", "Ann"),
        ("ANN’S cat", "A", "ANN"),
        ("Ann's", "s", "Ann's"),
        ("the cat'sup here", "cat", "cat'sup"),
        ("ພາສາລາວ", "ພ", "ພ"),
        ("I don't know", "don", "don't"),
        ("O'Brien left", "Brien", "O'Brien"),
        ("d'aujourd'hui,", "aujourd", "d'aujourd'hui"),
        ("the 'quoted' word", "quot", "quoted"),
        ("some 3.5 million", "3", "3.5"),
        ("it cost 1,234,567.89.", "234", "1,234,567.89"),
        ("born in 1990.", "90", "1990"),
        ("the end.The next", "nd", "end"),
        ("version v2_1 is", "2", "v2_1"),
        ("EU:n jäsen", "EU", "EU:n"),
        ("Ratio 3:4 here", "3", "3"),
        ("cafe\u0301s open", "caf", "cafe\u0301s"),
        ("e\u0301", "e", "e\u0301"),
        ("Добрый день", "обр", "Добрый"),
        ("καλημέρα κόσμε", "μέρα", "καλημέρα"),
        ("שלום עולם", "לו", "שלום"),
        ('צה"ל נכנס', "צה", "צה"),
        ("السَّلام عليكم", "سَّ", "السَّلام"),
        ("नमस्ते दुनिया", "नम", "नमस्ते"),
        ("क्ष", "क", "क्ष"),
        ("می\u200cخواهم رفت", "می", "می\u200cخواهم"),
        ("서울에서 왔다", "서울", "서울에서"),
        ("東京に行く", "京", "京"),
        ("2019年の夏", "19", "2019"),
        ("トウキョウタワーへ", "キョウ", "トウキョウタワー"),
        ("ABCタワー", "ワ", "タワー"),
        ("กินข้าว", "กิ", "กิน"[:2]),
        ("ก\u0e34น", "ก", "ก\u0e34"),
        ("a 👩\u200d🔬 mends", "👩", "👩\u200d🔬"),
        ("👍🏽 fine", "👍", "👍🏽"),
        ("🇳🇴🇸🇪 here", "🇳", "🇳🇴"),
        ("🇳🇴🇸🇪 here", "🇪", "🇸🇪"),
        ("x² + y", "x", "x²"),
        ("(rain)", "rain", "rain"),
        ("rain", "", ""),
    ],
)
def test_words_are_whole(text: str, part: str, wanted: str) -> None:
    start = text.index(part)
    begin, end = whole(text, start, start + len(part)) if part else whole(text, 0, 0)
    assert text[begin:end] == wanted
    assert whole(text, begin, end) == (begin, end)


@given(text=st.text(max_size=20), data=st.data())
def test_it_only_widens_and_never_over_blanks(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    begin, stop = whole(text, start, end)
    assert 0 <= begin <= start <= end <= stop <= len(text)
    assert not any(map(str.isspace, text[begin:start] + text[end:stop]))
    assert whole(text, begin, stop) == (begin, stop)


def test_no_sign_of_the_tables_is_lost_unseen() -> None:
    """Where words end hangs on each: who changes one says so in the change log, and the digest here."""
    assert digest_of(edges, "UNSPACED BETWEEN_LETTERS BETWEEN_DIGITS JOINER SKINS FLAGS") == "fe6a2f1d"
