"""The language of a text: probabilities, samples from all over the text, and the two forms of Norwegian."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.text import language

TEXTS = {
    "en": "The harbour was quiet this morning, and nobody had seen where the two boats went.",
    "nb": "Havna var stille denne morgenen, og ingen hadde sett hvor de to båtene ble av.",
    "nn": "Hamna var stille denne morgonen, og ingen hadde sett kvar dei to båtane vart av.",
    "da": "Havnen lå stille hen den morgen, og ingen havde set, hvor de to både blev af i tågen.",
    "sv": "Hamnen låg stilla den morgonen, och ingen hade sett vart de två båtarna tog vägen.",
    "de": "Der Hafen war an diesem Morgen still, und niemand hatte gesehen, wohin die Boote fuhren.",
    "fr": "Le port était calme ce matin, et personne n'avait vu où les deux bateaux étaient partis.",
    "ru": "В гавани этим утром было тихо, и никто не видел, куда ушли обе лодки.",
    "zh": "今天早上港口很安静，没有人看见那两条船去了哪里，也没有人问起它们。",
    "ar": "كان الميناء هادئا هذا الصباح ولم ير أحد إلى أين ذهب القاربان.",
}


@pytest.mark.parametrize("name", TEXTS)
def test_languages_are_told(name: str) -> None:
    weighed = language.weigh(TEXTS[name])
    assert next(iter(weighed)) == name
    assert sum(weighed.values()) == pytest.approx(1, abs=1e-4)
    assert list(weighed.values()) == sorted(weighed.values(), reverse=True)


def test_the_codes_are_those_of_the_model() -> None:
    assert set(language.weigh("one")) == language.CODES


def test_nothing_is_printed_and_threads_agree(capfd: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(language.weigh, list(TEXTS.values()) * 5))
    assert found == [language.weigh(text) for text in TEXTS.values()] * 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["", "\0", "😀", "\ud800", "1 2 3", "x" * 5000])
def test_what_is_no_language_gets_probabilities_too(text: str) -> None:
    assert sum(language.weigh(text).values()) == pytest.approx(1, abs=1e-4)


def test_samples_come_from_all_over_the_text() -> None:
    text = "".join(f"{number:04d} " for number in range(2000))
    sample = language.sample(text, 400)
    assert len(sample) <= 400 + language.SAMPLES
    thirds = [int(stretch[5:9].split()[0]) * 3 // 2000 for stretch in sample.split("\n") if stretch[5:9].strip()]
    assert set(thirds) == {0, 1, 2}
    assert language.sample("see https://example.org/the/way and www.example.org", 100) == "see   and  "
    assert language.sample("short", 100) == "short"


def test_a_foreign_head_does_not_decide() -> None:
    text = TEXTS["en"] * 10 + TEXTS["nb"] * 40
    assert next(iter(language.weigh(language.sample(text, 800)))) == "nb"


@pytest.mark.parametrize(
    ("text", "bytes_"), [("", 0), ("a b, 1_2!", 2), ("båt", 4), ("港口", 6), ("😀", 0), ("\ud800", 0)]
)
def test_letters(text: str, bytes_: int) -> None:
    assert language.evidence(text) == bytes_


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        (["nb"], {"nb"}),
        (["no"], {"nb", "nn"}),
        (["nn", "EN-gb"], {"nn", "en"}),
        (["zh_TW"], {"zh", "wuu", "yue"}),
        ([], set()),
    ],
)
def test_members(codes: list[str], found: set[str]) -> None:
    assert language.members(codes) == found


def test_an_unknown_code_is_told() -> None:
    with pytest.raises(ValueError, match="found `nob`; wanted a language of ISO 639"):
        language.members(["en", "nob"])


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    with pytest.raises(RecipeError, match=r"`py3langid` is not installed; pip install 'ordsmed\[corpora\]'"):
        language._identifier.__wrapped__()
