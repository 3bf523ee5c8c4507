"""Surfaces: what a piece writes and whether a word begins with it, whatever kind of tokenizer it is of.

    ##s  s  s   ->  goes on a word, "s"           newt  Ġnewt  ▁newt  ->  begins a word, "newt"

By them the pieces of one tokenizer are found among those of another (WordPiece's, byte-level, SentencePiece's), or are
spelled by several of them. Special tokens are matched by what they do: [MASK] is <mask>.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ordsmed.text.tokenizer import Tokenizer, byte_of

SPACE = "\u2581"  # SentencePiece's sign of a blank
ALIKE = {  # of the old vocabulary what may stand for a role of the new one, the best first
    "pad": ("pad",), "unknown": ("unknown",), "start": ("start", "end"), "stop": ("stop", "end"), "mask": ("mask",),
    "end": ("end", "stop"),
}  # fmt: skip


# pieces mark that they are inside a word (WordPiece), or that they begin one: by a byte or by SentencePiece's sign
Kind = Literal["inner", "bytes", "outset", "whole"]


class Surface(NamedTuple):
    """What a piece writes."""

    begins: bool | None  # a word; None: it stands apart from words on both sides, as BERT's punctuation does
    text: bytes


@dataclass(frozen=True)
class Descent:
    """What every piece of a new vocabulary comes from: one and the same old piece, several that spell it, or none."""

    kept: dict[int, int]  # new -> old
    spelled: dict[int, list[int]]  # new -> old ones
    new: list[int]  # nothing old writes them

    def counts(self) -> dict[str, int]:
        """How many of each kind: `kept`, `mean of 2`..., `new`."""
        lengths = Counter(len(pieces) for pieces in self.spelled.values())
        means = {f"mean of {length}": lengths[length] for length in sorted(lengths)}
        return {"kept": len(self.kept), **means, "new": len(self.new)}

    def describe(self) -> str:
        """That in words."""
        lengths = Counter(min(len(pieces), 5) for pieces in self.spelled.values())
        of = ", ".join(f"{'5 and more' if n == 5 else n}: {lengths[n]:,}" for n in sorted(lengths))
        means = f"{len(self.spelled):,} begin as the mean of the old pieces that spell them" + (
            f" ({of})" if of else ""
        )
        return (
            f"{len(self.kept):,} pieces kept, {means}, {len(self.new):,} that none spells are drawn as the old ones lie"
        )


def descent(old: Tokenizer, new: Tokenizer) -> Descent:
    """Where the pieces of a new tokenizer come from in an old one."""
    writer = Writer(old)
    lost = new.lowercase and not old.lowercase  # capitals
    kept, spelled, strange = _roles(old, new), dict[int, list[int]](), list[int]()
    written = dict(surfaces(new))
    for number, surface in written.items():
        if number in kept:
            continue
        if (same := writer.same(surface)) is not None:
            kept[number] = same
        elif pieces := writer.spell(surface, capitals=lost):
            spelled[number] = pieces
        else:
            strange.append(number)
    strange += sorted({*range(new.vocabulary)} - written.keys() - kept.keys())  # roles that the old one lacks
    return Descent(kept, spelled, strange)


def _roles(old: Tokenizer, new: Tokenizer) -> dict[int, int]:
    """Special tokens by what they do; those that do nothing by their names."""
    kept: dict[int, int] = {}
    for role, number in new.roles.items():
        for like in ALIKE[role]:
            if like in old.roles:
                kept.setdefault(number, old.roles[like])
                break
    names = old.pipeline.get_vocab(with_added_tokens=True)
    for number in sorted(new.special - set(new.roles.values())):
        if (name := new.pipeline.id_to_token(number)) in names:
            kept[number] = names[name]
    return kept


def surfaces(tokenizer: Tokenizer) -> Iterator[tuple[int, Surface]]:
    """Every piece by its number, special ones with a role left out; what text never becomes is marked by a 0 byte."""
    surface = _reader(tokenizer)
    added = {entry["content"] for entry in tokenizer.about["added_tokens"]}
    taken = set(tokenizer.roles.values())
    for piece, number in sorted(
        tokenizer.pipeline.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]
    ):
        if number in tokenizer.special:
            if number not in taken:
                yield number, _never(piece)
        else:
            yield number, Surface(None, piece.encode()) if piece in added else surface(piece)


def _never(piece: str) -> Surface:
    return Surface(None, b"\0" + piece.encode())


def _reader(tokenizer: Tokenizer) -> Callable[[str], Surface]:
    """How pieces of its kind are read."""
    kind = kind_of(tokenizer)
    if kind == "bytes":
        table = byte_of()

        def of_bytes(piece: str) -> Surface:
            raw = bytes(table[letter] for letter in piece if letter in table)
            return Surface(raw[:1] == b" ", raw.removeprefix(b" "))

        return of_bytes
    if kind == "inner":
        prefix, apart = tokenizer.prefix, Apart(tokenizer)

        def of_words(piece: str) -> Surface:
            text = piece.removeprefix(prefix)
            begins = text == piece
            if apart(text):
                return Surface(None, text.encode()) if begins and len(text) == 1 else _never(piece)
            return Surface(begins, text.encode())

        return of_words
    if kind == "whole":
        return lambda piece: Surface(True, piece.encode())

    def of_sentences(piece: str) -> Surface:
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return Surface(False, bytes.fromhex(piece[3:5]))
        text = piece.removeprefix(SPACE)
        return Surface(text != piece, text.replace(SPACE, " ").encode())

    return of_sentences


def kind_of(tokenizer: Tokenizer) -> Kind:
    """How its pieces tell where words begin."""
    if tokenizer.byte_level:
        return "bytes"
    if tokenizer.prefix:
        return "inner"
    return "whole" if tokenizer.whole_words else "outset"


class Apart:
    """Does the tokenizer cut words at a letter of a text, as BERT's does at punctuation and Chinese signs?"""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.pipeline = tokenizer.pipeline
        self.cut = functools.cache(self._cut)

    def __call__(self, text: str) -> bool:
        return any(map(self.cut, text))

    def _cut(self, letter: str) -> bool:
        between = f"a{letter}a"
        if self.pipeline.normalizer is not None:
            between = self.pipeline.normalizer.normalize_str(between)
        return (
            self.pipeline.pre_tokenizer is not None and len(self.pipeline.pre_tokenizer.pre_tokenize_str(between)) > 1
        )


class Writer:
    """Writes surfaces by the pieces of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.kind = tokenizer, kind_of(tokenizer)
        self.numbers: dict[Surface, int] = {}
        late = []
        for number, surface in surfaces(tokenizer):
            if self.kind == "outset" and tokenizer.piece(number).startswith("<0x"):
                late.append((surface, number))  # a letter of its own is written by its piece, not by its byte
            else:
                self.numbers.setdefault(surface, number)
        for surface, number in late:
            self.numbers.setdefault(surface, number)
        self.vocabulary = tokenizer.pipeline.get_vocab(with_added_tokens=False)
        self.letter_of = {byte: letter for letter, byte in byte_of().items()}

    def same(self, surface: Surface) -> int | None:
        """The piece that writes the same at the same place of a word; what stands apart does so anywhere."""
        ways = (surface.begins, None) if surface.begins is not None else (None, False, True)
        numbers = (self.numbers.get(Surface(begins, surface.text)) for begins in ways)
        return next((number for number in numbers if number is not None), None)

    def spell(self, surface: Surface, *, capitals: bool = False) -> list[int]:
        """The pieces that write it, none where it cannot be written; with `capitals` as it is shortest with them."""
        if surface.text.startswith(b"\0"):
            return []
        try:
            text = surface.text.decode()
        except UnicodeDecodeError:
            return self._bytes(surface.begins, surface.text) if self.kind == "bytes" else []
        ways = dict.fromkeys((text, text.capitalize(), text.upper())) if capitals else (text,)
        spelled = [pieces for way in ways if (pieces := self._spelled(surface.begins, way))]
        return min(spelled, key=len, default=[])

    def _spelled(self, begins: bool | None, text: str) -> list[int]:
        """By the tokenizer's own way with a text."""
        tokenizer = self.tokenizer
        if tokenizer.pipeline.normalizer is not None:
            text = tokenizer.pipeline.normalizer.normalize_str(text)
        if self.kind == "bytes":
            return self._bytes(begins, text.encode())
        if self.kind == "inner":
            return self._words(begins, text)
        if self.kind == "whole":
            return self._known([self.vocabulary.get(word) for word in tokenizer.words(text)])
        text = text.replace(" ", SPACE).removeprefix(SPACE)
        pieces = tokenizer.pipeline.model.tokenize((SPACE if begins else "") + text) if text or begins else []
        return self._known([piece.id for piece in pieces])

    def _bytes(self, begins: bool | None, raw: bytes) -> list[int]:
        written = "".join(self.letter_of[byte] for byte in (b" " if begins else b"") + raw)
        return self._known([piece.id for piece in self.tokenizer.pipeline.model.tokenize(written)]) if written else []

    def _words(self, begins: bool | None, text: str) -> list[int]:
        """Each word by its longest pieces, from the left; the first may go on the word before it."""
        pieces: list[int | None] = []
        for at, (word, _) in enumerate(self.tokenizer.pipeline.pre_tokenizer.pre_tokenize_str(text)):
            inside = at == 0 and begins is False and not self.apart(word)
            pieces += self._longest(word, inside=inside)
        return self._known(pieces)

    @functools.cached_property
    def apart(self) -> Apart:
        """Where its words are cut."""
        return Apart(self.tokenizer)

    def _longest(self, word: str, *, inside: bool) -> list[int | None]:
        prefix, pieces, at = self.tokenizer.prefix, list[int | None](), 0
        while at < len(word):
            sign = prefix if at or inside else ""
            end = next((end for end in range(len(word), at, -1) if sign + word[at:end] in self.vocabulary), None)
            if end is None:
                return [None]
            pieces.append(self.vocabulary[sign + word[at:end]])
            at = end
        return pieces

    def _known(self, pieces: list[int | None]) -> list[int]:
        """Unless one of them is unknown."""
        known = [piece for piece in pieces if piece is not None and piece != self.tokenizer.unknown]
        return known if len(known) == len(pieces) else []
