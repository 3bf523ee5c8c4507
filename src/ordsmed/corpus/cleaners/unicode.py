"""Normalize Unicode: a normal form, and no invisible characters without meaning.

    "cafe\\u0301 co\\u00adop"  ->  "café coop"

Removed: soft hyphens, zero-width spaces, word joiners, byte order marks, invisible operators, marks of objects and
annotations, noncharacters. Kept where they have a meaning: the joiners U+200C and U+200D after letters of Arabic, Indic
and other joining scripts and after emoji; zero-width spaces after letters of Thai, Lao, Burmese and Khmer; direction
marks in a text with letters written from right to left.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

from ordsmed.base.menu import Choice

_JOINING = "\u0590-\u0dff\u0e00-\u109f\u1700-\u18af\u1a20-\u1cff\ua800-\uabff\ufb1d-\ufdcf\ufe70-\ufefc"
_JOINING += "\U00010a00-\U00011fff\U0001e900-\U0001e95f"
_EMOJI = "\u203c-\u205e\u2070-\u2bff\u3030-\u303d\u3297-\u3299\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
_NOTHING = "\u00ad\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffc\ufdd0-\ufdef\ufffe\uffff"
_INVISIBLE = re.compile(
    rf"[{_NOTHING}\u200b-\u200d](?:(?<=[{_NOTHING}])"
    rf"|(?<=\u200b)(?<![{_UNSPACED}].)|(?<=[\u200c\u200d])(?<![{_JOINING}{_EMOJI}].))"
)
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LEFTWARD = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)


@dataclass(frozen=True)
class Unicode(Choice):
    """Applies a Unicode normal form, and removes invisible characters without meaning."""

    form: Literal["NFC", "NFKC", "none"] = "NFC"
    "normal form; NFKC also turns ² into 2, ﬁ into fi and full width into half"
    invisible: Literal["drop", "keep"] = "drop"
    "invisible characters without meaning in their position"

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if text.isascii():
            return text
        if self.invisible == "drop":  # before normalization: the characters on both sides may combine
            text = _INVISIBLE.sub("", text)
            if _DIRECTION.search(text) and not _LEFTWARD.search(text):
                text = _INVISIBLE.sub("", _DIRECTION.sub("", text))
        if self.form == "none" or unicodedata.is_normalized(self.form, text):
            return text
        return unicodedata.normalize(self.form, text)
