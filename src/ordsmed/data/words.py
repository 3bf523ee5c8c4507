"""Words: texts to ids with each distinct word encoded once; the results equal those of the tokenizer's pipeline.

    " The newts ran" -> [" The", " newts", " ran"] -> rows of a table -> ids of the words, end to end

BERT's pipeline splits words at every space; GPT-2's joins at most one space to the front of a word. Splitting texts
there and encoding each word gives the same ids, and a known word is only a table lookup. Other pipelines encode
complete texts. With a vocabulary of words, the words outside it get temporary ids.
"""

import re
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.text.tokenizer import Ids, Tokenizer

Ints = NDArray[np.int64]
Cut = Callable[[str], list[str]]
FULL = 1_000_000  # limit of words in the table, ...
LONG = 24_000_000  # ... and of characters or ids in it; beyond, it is cleared
_GAPS = re.compile(r"[ \n]?[^ \n]+|[ \n]+(?![^ \n])|[ \n]")
_OTHER_SPACE = re.compile(
    r"[^\S \n]"
)  # white space other than blank and newline: GPT-2's pattern has a lookahead for it


class Words:
    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        self.tokenizer, self.cut = tokenizer, splitter_of(tokenizer)
        self.dtype = dtype
        self._begin()

    def _begin(self) -> None:
        self.table: dict[str, int] = {}
        self.used = self.characters = 0
        self.ids: Ids = np.zeros(1 << 16, self.dtype)
        self.starts: Ints = np.zeros(1 << 14, np.int64)
        self.lengths: Ints = np.zeros(1 << 14, np.int64)

    def strangers(self, ids: Ids) -> tuple[Ids, list[str]]:
        """Return ids from `encode` and the words outside the vocabulary among them; none for subwords."""
        return ids, []

    def encode(self, texts: Sequence[str]) -> tuple[Ids, Ints]:
        """Return the ids of all texts, end to end, and the number of ids of each text."""
        if self.cut is None:
            return _joined(self.tokenizer, texts, self.dtype)
        pieces = list(map(self.cut, texts))
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return self._gather(self._numbers([word for piece in pieces for word in piece]), sizes)

    def _numbers(self, words: list[str]) -> Ints:
        numbers = np.fromiter(map(self.table.get, words, repeat(-1)), np.int64, len(words))
        unknown = np.flatnonzero(numbers < 0).tolist()
        if not unknown:
            return numbers
        if len(self.table) > FULL or self.characters > LONG or self.used > LONG:
            self._begin()
            unknown = list(range(len(words)))
        new = list(dict.fromkeys(words[i] for i in unknown))
        ids, lengths = self._looked_up(new)
        self.ids = _room(self.ids, self.used + len(ids))
        self.ids[self.used : self.used + len(ids)] = ids
        known, total = len(self.table), len(self.table) + len(new)
        self.starts, self.lengths = _room(self.starts, total), _room(self.lengths, total)
        self.starts[known:total] = self.used + np.cumsum(lengths) - lengths
        self.lengths[known:total] = lengths
        self.table.update(zip(new, range(known, total), strict=True))
        self.used += len(ids)
        self.characters += sum(map(len, new))
        numbers[unknown] = np.fromiter((self.table[words[i]] for i in unknown), np.int64, len(unknown))
        return numbers

    def _looked_up(self, new: Sequence[str]) -> tuple[Ids, Ints]:
        return _joined(self.tokenizer, new, self.dtype)

    def _gather(self, numbers: Ints, sizes: Ints) -> tuple[Ids, Ints]:
        lengths = self.lengths[numbers]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        position = np.repeat(self.starts[numbers] - ends + lengths, lengths) + np.arange(total)
        borders = np.concatenate([[0], ends])[np.concatenate([[0], np.cumsum(sizes)])]
        return self.ids[position], np.diff(borders)


class WholeWords(Words):
    """The table for a vocabulary of words; other words have ids after the vocabulary until the table is cleared."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        entries = tokenizer.model["vocab"].items()
        self.known = {word: n for word, n in entries if n not in tokenizer.special}  # "<S>" in a text is a plain word
        super().__init__(tokenizer, np.dtype("<i4"))

    def _begin(self) -> None:
        super()._begin()
        self.others: dict[str, int] = {}
        self.names: list[str] = []  # the other words in order

    def strangers(self, ids: Ids) -> tuple[Ids, list[str]]:
        """Return the words outside the vocabulary in order of appearance; their ids are made indices into that list."""
        first = self.tokenizer.vocabulary
        positions = np.flatnonzero(ids >= first)
        numbers, appeared, which = np.unique(ids[positions], return_index=True, return_inverse=True)
        order = np.argsort(appeared)
        ids[positions] = first + np.argsort(order)[which]
        return ids, [self.names[n - first] for n in numbers[order].tolist()]

    def _looked_up(self, new: Sequence[str]) -> tuple[Ids, Ints]:
        words = [self.tokenizer.words(chunk) for chunk in new]
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        return np.fromiter((self._number(w) for some in words for w in some), self.dtype, int(lengths.sum())), lengths

    def _number(self, word: str) -> int:
        number = self.known.get(word, self.others.get(word))
        if number is None:
            number = self.others[word] = self.tokenizer.vocabulary + len(self.names)
            self.names.append(word)
        return number


def splitter_of(tokenizer: Tokenizer) -> Cut | None:
    """Return how texts can be split without changing ids; None if only complete texts can be encoded."""
    about = tokenizer.about
    if not all(entry["special"] for entry in about["added_tokens"]) or about["model"].get("dropout"):
        return None
    normalizer, steps = about["normalizer"], about["pre_tokenizer"] or {"type": ""}
    if steps["type"] == "BertPreTokenizer" and (normalizer or {}).get("type") == "BertNormalizer":
        return _at_spaces
    if tokenizer.whole_words:
        return _at_spaces
    if tokenizer.sentencepiece:
        return _at_blanks if _forgets_blanks(tokenizer) else None
    plain = steps["type"] == "ByteLevel" and not steps["add_prefix_space"] and steps.get("use_regex", True)
    return _before_spaces if plain and normalizer is None else None


def _at_spaces(text: str) -> list[str]:
    return text.replace("\n", " ").split(" ")


def _forgets_blanks(tokenizer: Tokenizer) -> bool:
    """Return whether the pipeline puts exactly one blank before each word, for any white space in the text."""
    steps, normalizer = tokenizer.about["pre_tokenizer"], tokenizer.pipeline.normalizer
    first, *rest = steps.get("pretokenizers", [steps])
    apart = first["type"] == "Metaspace" and first["split"] and first["prepend_scheme"] == "first"
    if normalizer is None or not apart or any(step["type"] != "Split" for step in rest):
        return False
    return bool(normalizer.normalize_str(" a \n b ").strip(" ") == "a b" == normalizer.normalize_str("a  \nb  "))


def _at_blanks(text: str) -> list[str]:
    return [text] if "\u2581" in text else _at_spaces(text)


def _before_spaces(text: str) -> list[str]:
    head = text[:1]
    if "  " not in text and text[1:].isprintable() and (head == "\n" or head.isprintable()):
        words = text.replace(" ", "\0 ").split("\0")  # nearly every sentence; three times as fast as a pattern
        return words if words[0] else words[1:]
    return [text] if _OTHER_SPACE.search(text) else _GAPS.findall(text)


def _joined(tokenizer: Tokenizer, texts: Sequence[str], dtype: np.dtype[Any]) -> tuple[Ids, Ints]:
    encoded = [e.ids for e in tokenizer.plain.encode_batch_fast(list(texts), add_special_tokens=False)]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return np.fromiter((i for ids in encoded for i in ids), dtype, int(lengths.sum())), lengths


def _room(array: NDArray[Any], wanted: int) -> NDArray[Any]:
    if wanted <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(wanted, 2 * len(array)) - len(array), array.dtype)])
