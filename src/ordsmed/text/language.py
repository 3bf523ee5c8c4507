"""Identify the language of a text offline with py3langid: probabilities that add up to 1, from samples of the text.

    weigh("Eg veit ikkje kva ho heiter.")  ->  {"nn": 0.99, "nb": 0.004, "da": ...}

Norwegian Bokmål is "nb" and Nynorsk "nn". "no" means both, and "zh", "ar", "ku", "uz" and "sh" also mean several
languages (FAMILIES). A long text is identified by samples from all over it, so that a foreign header or footer does not
decide. The model is loaded once per process and only read, so threads can share it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ordsmed.base.errors import RecipeError, nearest

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_LANGUAGES = """
    ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo fr fuv fy
    ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km kn ko ku ky la lb lg
    lij ln lo lt ltg lv mg mk ml mn mr ms mt my nb ne nl nn nso oc om or pa pcm pl ps pt qu ro ru rw sa sdh se si sk sl
    sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa wuu xh yo yue zh zu zxx
"""
FAMILIES = {
    "no": ("nb", "nn"),
    "zh": ("zh", "wuu", "yue"),
    "ar": ("ar", "ary", "arz"),
    "ku": ("ku", "sdh"),
    "uz": ("uz", "uzs"),
    "sh": ("bs", "hr", "sr"),
}
CODES = frozenset(_LANGUAGES.split())
_NAMED = """
ar Arabic, bg Bulgarian, ca Catalan, cs Czech, da Danish, de German, el Greek, en English, es Spanish, et
Estonian, eu Basque, fa Persian, fi Finnish, fo Faroese, fr French, ga Irish, he Hebrew, hi Hindi, hr Croatian,
hu Hungarian, is Icelandic, it Italian, ja Japanese, ko Korean, lt Lithuanian, lv Latvian, nb Norwegian, nl
Dutch, nn Norwegian Nynorsk, no Norwegian, pl Polish, pt Portuguese, ro Romanian, ru Russian, se Northern Sami,
sk Slovak, sl Slovenian, sr Serbian, sv Swedish, tr Turkish, uk Ukrainian, vi Vietnamese, zh Chinese
"""
# code -> English name, of common languages
NAMES = dict(pair.split(maxsplit=1) for pair in _NAMED.split(",") if pair.strip())
CODE = re.compile(r"[a-z]{2,3}(?:-\w+)*")  # a code of ISO 639, with or without a region
UNKNOWN = "und"  # the code of an undetermined language
SAMPLES = 8

_LETTERS = re.compile(r"[^\W\d_]+")
_LINKS = re.compile(r"(?:https?://|www\.)\S+")


def check_code(location: str, code: str) -> None:
    """Raise RecipeError if `code` is not empty and does not look like a code of ISO 639."""
    if code and not CODE.fullmatch(code):
        suggestion = next((known for known, name in NAMES.items() if name.lower() == code.lower()), "")
        remedy = f"{code} is {suggestion}" if suggestion else ""
        raise RecipeError(location, f"found {code}", "a code of ISO 639, such as en or nb", remedy)


def sample(text: str, characters: int) -> str:
    """Return the text, or stretches from all over it with `characters` characters in total. Links are removed."""
    if len(text) > characters:
        part, length = len(text) / SAMPLES, characters // SAMPLES
        starts = [int(part * i + (part - length) / 2) for i in range(SAMPLES)]
        text = "\n".join(text[start : start + length] for start in starts)
    return _LINKS.sub(" ", text)


def evidence(text: str) -> int:
    """Return the number of UTF-8 bytes of letters: 7 Chinese letters are as much evidence as 20 Latin ones."""
    return len("".join(_LETTERS.findall(text)).encode("utf-8", "replace"))


def weigh(text: str) -> dict[str, float]:
    return {"nb" if label == "no" else label: chance for label, chance in _identifier().rank(text)}


def members(codes: Iterable[str]) -> frozenset[str]:
    """Return the languages that codes such as `nb`, `no`, `en-GB` or `zh_TW` mean. Raise ValueError for an unknown
    code.
    """
    all_codes: set[str] = set()
    for code in codes:
        plain = re.split("[-_]", code.lower())[0]
        if plain not in CODES and plain not in FAMILIES:
            raise ValueError(f"found `{code}`; wanted a language of ISO 639; {nearest(plain, CODES | {*FAMILIES})}")
        all_codes |= set(FAMILIES.get(plain, (plain,)))
    return frozenset(all_codes)


@functools.cache
def _identifier() -> LanguageIdentifier:
    try:
        from py3langid import langid
    except ImportError:
        raise RecipeError("language", "`py3langid` is not installed", "", "pip install 'ordsmed[corpora]'") from None
    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    identifier.nb_ptc = identifier.nb_ptc.astype("float32")  # stored as float16, which every call would convert again
    return identifier
