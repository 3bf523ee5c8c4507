"""Keep documents in the wanted languages, and store the language of each document.

    keep = ["nb", "nn"]:  "Dette er en setning på bokmål."  ->  kept, meta["language"] = "nb"
                          "This is a plain English line."   ->  dropped

`nb` is Bokmål, `nn` Nynorsk, `no` both. The probabilities of the kept languages are added, because a text that may be
Bokmål or Nynorsk is certainly one of both. A text that is too short to identify is "und".
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text import language
from ordsmed.text.read import tally


@dataclass(frozen=True)
class Language(Choice):
    """Keeps documents in the wanted languages; sets meta["language"] of all."""

    keep: list[str] = field(default_factory=list)
    "languages to keep, such as en, nb, nn, no (both); default: keep all and only store the language"
    least: float = 0.5
    "least total probability of the kept languages"
    characters: int = 1000
    "characters examined, in samples from all over the text"
    shortest: int = 20
    "least letters in the samples (bytes of UTF-8) to identify the language"
    short: Literal["keep", "drop"] = "keep"
    "what to do with a text too short to identify"

    def __post_init__(self) -> None:
        try:
            language.members(self.keep)
        except ValueError as error:
            raise ValueError(f"keep: {error}") from None
        if not 0 <= self.least <= 1:
            raise ValueError(f"least: found {self.least}; wanted a probability from 0 to 1")
        at_least(self, characters=100)

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        sample = language.sample(text, self.characters)
        if language.evidence(sample) < max(self.shortest, 1):
            meta["language"] = language.UNKNOWN
            return text if self.short == "keep" else _counted(language.UNKNOWN)
        weighed = language.weigh(sample)
        wanted_languages = language.members(self.keep) or weighed.keys()
        if sum(chance for name, chance in weighed.items() if name in wanted_languages) < (
            self.least if self.keep else 0
        ):
            meta["language"] = next(iter(weighed))
            return _counted(meta["language"])
        meta["language"] = next(name for name in weighed if name in wanted_languages)
        return text


def _counted(name: str) -> str | None:
    tally().left_out[f"language: {name}"] += 1
    return None
