"""Unknown tokens: text that a tokenizer cannot encode. A small share is reported, a large one is an error.

Byte-level tokenizers (GPT-2, RoBERTa) have no unknown tokens. With a vocabulary of words (ELMo) unknown words are
expected, because the network reads characters; `encode` prints their share and accepts any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.say import say
from ordsmed.text.tokenizer import Ids, Tokenizer

TOLD, MOST = 0.01, 0.1  # shares of all tokens: above the first print a line, above the second raise an error
LISTED = 8  # texts shown in a line
SEARCHED = 1_000_000  # characters searched for unknown parts
FOREIGN = "use a tokenizer that was trained on such texts"


@dataclass
class UnknownTokens:
    """Counts of tokens and of unknown tokens, with some of the unknown texts."""

    tokens: int = 0
    unknown: int = 0
    texts: Counter[str] = field(default_factory=Counter)  # unknown texts that `look` found

    def count(self, ids: Ids, tokenizer: Tokenizer) -> None:
        """Count tokens and unknown tokens; other special tokens are not counted."""
        if is_limited(tokenizer):
            self.unknown += int((ids == tokenizer.unknown).sum())
            self.tokens += len(ids) - int(np.isin(ids, list(tokenizer.special - {tokenizer.unknown})).sum())

    def look(self, texts: Iterable[str], tokenizer: Tokenizer) -> None:
        left = SEARCHED
        for text in texts:
            encoded = tokenizer.plain.encode(text[:left], add_special_tokens=False)
            where = np.flatnonzero(np.asarray(encoded.ids) == tokenizer.unknown).tolist()
            self.texts.update(text[slice(*encoded.offsets[n])] for n in where)
            left -= len(text)
            if left <= 0:
                break

    @property
    def share(self) -> float:
        return self.unknown / max(self.tokens, 1)

    def check(self, location: object, most: float, key: str = "max_unknown=") -> None:
        """Report many unknown tokens, or raise an error above `most`; `key`: the setting or flag that allows more."""
        if self.share <= TOLD:
            return
        listed = f" ({', '.join(text for text, _ in self.texts.most_common(LISTED))})" if self.texts else ""
        problem = f"{self.share:.1%} of its tokens are unknown to the tokenizer{listed}"
        if self.share > most:
            allow = f"`{key}{min(1.0, np.ceil(self.share * 100) / 100):g}` allows it"
            raise DataError(location, problem, f"at most {most:.0%}", f"{FOREIGN}; {allow}")
        say(f"{location}: {problem}; a tokenizer that was trained on such texts knows more")


def is_limited(tokenizer: Tokenizer) -> bool:
    """Return whether a text can have unknown tokens whose content is lost to the network."""
    return tokenizer.unknown is not None and not tokenizer.whole_words


def check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: found {value:g}; wanted a share of all tokens, from 0 to 1")
