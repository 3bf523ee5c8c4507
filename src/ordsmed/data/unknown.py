"""Unknown: text for which a tokenizer has no piece, by its share of all tokens: a little is told, much is refused.

Bytes as pieces (GPT-2, RoBERTa) leave nothing unknown. Of a vocabulary of whole words (ELMo) strangers are expected: a
network reads their letters, so `encode` says their share, and nothing is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.say import say
from ordsmed.text.tokenizer import Ids, Tokenizer

TOLD, MOST = 0.01, 0.1  # shares of all tokens: above the first a line says so, above the second it is refused
LISTED = 8  # texts that a line shows
LOOKED_THROUGH = 1_000_000  # characters for what is unknown in them
FOREIGN = "take a tokenizer that was learned from such texts"


@dataclass
class UnknownTokens:
    """What was read, and what of it was unknown."""

    tokens: int = 0
    unknown: int = 0
    texts: Counter[str] = field(default_factory=Counter)  # what the unknown ones stand for, as far as it was looked at

    def count(self, ids: Ids, tokenizer: Tokenizer) -> None:
        """Tokens, but for other special ones, which frame texts."""
        if is_limited(tokenizer):
            self.unknown += int((ids == tokenizer.unknown).sum())
            self.tokens += len(ids) - int(np.isin(ids, list(tokenizer.special - {tokenizer.unknown})).sum())

    def look(self, texts: Iterable[str], tokenizer: Tokenizer) -> None:
        """Which parts of texts are unknown."""
        left = LOOKED_THROUGH
        for text in texts:
            encoded = tokenizer.plain.encode(text[:left], add_special_tokens=False)
            where = np.flatnonzero(np.asarray(encoded.ids) == tokenizer.unknown).tolist()
            self.texts.update(text[slice(*encoded.offsets[n])] for n in where)
            left -= len(text)
            if left <= 0:
                break

    @property
    def share(self) -> float:
        """Of all tokens."""
        return self.unknown / max(self.tokens, 1)

    def check(self, place: object, most: float, key: str = "most_unknown=") -> None:
        """Tell of many unknown tokens, or refuse them; `key`: the setting or flag that allows more."""
        if self.share <= TOLD:
            return
        listed = f" ({', '.join(text for text, _ in self.texts.most_common(LISTED))})" if self.texts else ""
        problem = f"{self.share:.1%} of its tokens are unknown to the tokenizer{listed}"
        if self.share > most:
            allow = f"`{key}{min(1.0, np.ceil(self.share * 100) / 100):g}` allows it"
            raise DataError(place, problem, f"at most {most:.0%}", f"{FOREIGN}; {allow}")
        say(f"{place}: {problem}; a tokenizer that was learned from such texts knows more")


def is_limited(tokenizer: Tokenizer) -> bool:
    """Can a text be unknown to it, where that is a loss?"""
    return tokenizer.unknown is not None and not tokenizer.whole_words


def check_share(name: str, value: float) -> None:
    """Refuse a setting that is no share."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: found {value:g}; wanted a share of all tokens, 0 to 1")
