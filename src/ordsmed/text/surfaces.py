"""Surfaces: the text of a token, and whether it begins a word, for any kind of tokenizer.

    ##s  s  s   ->  continues a word, "s"           newt  Ġnewt  ▁newt  ->  begins a word, "newt"

Surfaces make it possible to find the pieces of one tokenizer in another (WordPiece, byte-level, SentencePiece), or to
write them with several of its pieces. Special tokens are matched by role: [MASK] is <mask>.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ordsmed.text.tokenizer import Tokenizer, byte_of

SPACE = "\u2581"  # how SentencePiece writes a space
ALIKE = {  # role of the new vocabulary -> roles of the old one whose token can replace it, the best first
    "pad": ("pad",),
    "unknown": ("unknown",),
    "start": ("start", "end"),
    "stop": ("stop", "end"),
    "mask": ("mask",),
    "end": ("end", "stop"),
}


# How pieces mark word boundaries. inner: a prefix marks pieces inside a word (WordPiece). bytes, outset: a space marks
# the beginning of a word, as a byte or as SentencePiece's character. whole: every piece is a word.
Kind = Literal["inner", "bytes", "outset", "whole"]


class Surface(NamedTuple):
    begins: bool | None  # whether the piece begins a word; None: the piece is no part of a word, like punctuation
    text: bytes


@dataclass(frozen=True)
class Descent:
    """The origin of each piece of a new vocabulary: the same old piece, several that spell it, or none."""

    kept: dict[int, int]  # new -> old
    spelled: dict[int, list[int]]  # new -> old pieces
    new: list[int]  # pieces that the old ones cannot write

    def counts(self) -> dict[str, int]:
        """Return the number of pieces of each kind: `kept`, `mean of 2`..., `new`."""
        lengths = Counter(len(pieces) for pieces in self.spelled.values())
        means = {f"mean of {length}": lengths[length] for length in sorted(lengths)}
        return {"kept": len(self.kept), **means, "new": len(self.new)}

    def describe(self) -> str:
        lengths = Counter(min(len(pieces), 5) for pieces in self.spelled.values())
        of = ", ".join(f"{'5 and more' if n == 5 else n}: {lengths[n]:,}" for n in sorted(lengths))
        of = f" ({of})" if of else ""
        means = f"{len(self.spelled):,} start as the mean of the old pieces that spell them{of}"
        return f"{len(self.kept):,} pieces kept, {means}, {len(self.new):,} start from the statistics of the old pieces"


def descent(old: Tokenizer, new: Tokenizer) -> Descent:
    writer = Writer(old)
    capitals = new.lowercase and not old.lowercase
    copied, spelled, unknown = _roles(old, new), dict[int, list[int]](), list[int]()
    written = dict(surfaces(new))
    for number, surface in written.items():
        if number in copied:
            continue
        if (old_number := writer.same(surface)) is not None:
            copied[number] = old_number
        elif pieces := writer.spell(surface, capitals=capitals):
            spelled[number] = pieces
        else:
            unknown.append(number)
    # roles that the old vocabulary does not have
    unknown += sorted({*range(new.vocabulary)} - written.keys() - copied.keys())
    return Descent(copied, spelled, unknown)


def _roles(old: Tokenizer, new: Tokenizer) -> dict[int, int]:
    copied: dict[int, int] = {}
    for role, number in new.roles.items():
        for like in ALIKE[role]:
            if like in old.roles:
                copied.setdefault(number, old.roles[like])
                break
    names = old.pipeline.get_vocab(with_added_tokens=True)
    for number in sorted(new.special - set(new.roles.values())):
        if (name := new.pipeline.id_to_token(number)) in names:
            copied[number] = names[name]
    return copied


def surfaces(tokenizer: Tokenizer) -> Iterator[tuple[int, Surface]]:
    """Yield the id and surface of every piece except special tokens with a role.

    Pieces that never occur in text begin with a zero byte.
    """
    surface = _reader(tokenizer)
    added = {entry["content"] for entry in tokenizer.about["added_tokens"]}
    role_numbers = set(tokenizer.roles.values())
    for piece, number in sorted(
        tokenizer.pipeline.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]
    ):
        if number in tokenizer.special:
            if number not in role_numbers:
                yield number, _never(piece)
        else:
            yield number, Surface(None, piece.encode()) if piece in added else surface(piece)


def _never(piece: str) -> Surface:
    return Surface(None, b"\0" + piece.encode())


def _reader(tokenizer: Tokenizer) -> Callable[[str], Surface]:
    kind = kind_of(tokenizer)
    if kind == "bytes":
        table = byte_of()

        def of_bytes(piece: str) -> Surface:
            raw = bytes(table[letter] for letter in piece if letter in table)
            return Surface(raw[:1] == b" ", raw.removeprefix(b" "))

        return of_bytes
    if kind == "inner":
        prefix, is_separated = tokenizer.prefix, Apart(tokenizer)

        def of_words(piece: str) -> Surface:
            text = piece.removeprefix(prefix)
            begins = text == piece
            if is_separated(text):
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
    if tokenizer.byte_level:
        return "bytes"
    if tokenizer.prefix:
        return "inner"
    return "whole" if tokenizer.whole_words else "outset"


class Apart:
    """Says whether a tokenizer separates a character from its neighbors, as BERT's does with punctuation."""

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
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.kind = tokenizer, kind_of(tokenizer)
        self.numbers: dict[Surface, int] = {}
        byte_pieces = []
        for number, surface in surfaces(tokenizer):
            if self.kind == "outset" and tokenizer.piece(number).startswith("<0x"):
                # prefer the piece of a character to the piece of its byte
                byte_pieces.append((surface, number))
            else:
                self.numbers.setdefault(surface, number)
        for surface, number in byte_pieces:
            self.numbers.setdefault(surface, number)
        self.vocabulary = tokenizer.pipeline.get_vocab(with_added_tokens=False)
        self.letter_of = {byte: letter for letter, byte in byte_of().items()}

    def same(self, surface: Surface) -> int | None:
        """Return the piece that writes the same text at the same position of a word, or None.

        Text that is separate from words may match at any position.
        """
        positions = (surface.begins, None) if surface.begins is not None else (None, False, True)
        numbers = (self.numbers.get(Surface(begins, surface.text)) for begins in positions)
        return next((number for number in numbers if number is not None), None)

    def spell(self, surface: Surface, *, capitals: bool = False) -> list[int]:
        """Return the tokens of this tokenizer that together write the surface; an empty list if no tokens do.

        With `capitals`, try the text as it is, capitalized, and in upper case, and return the fewest tokens.
        """
        if surface.text.startswith(b"\0"):
            return []
        try:
            text = surface.text.decode()
        except UnicodeDecodeError:
            return self._bytes(surface.begins, surface.text) if self.kind == "bytes" else []
        spellings = dict.fromkeys((text, text.capitalize(), text.upper())) if capitals else (text,)
        token_lists = [pieces for spelling in spellings if (pieces := self._encoded(surface.begins, spelling))]
        return min(token_lists, key=len, default=[])

    def _encoded(self, begins: bool | None, text: str) -> list[int]:
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
        pieces: list[int | None] = []
        for at, (word, _) in enumerate(self.tokenizer.pipeline.pre_tokenizer.pre_tokenize_str(text)):
            inside = at == 0 and begins is False and not self.apart(word)
            pieces += self._longest(word, inside=inside)
        return self._known(pieces)

    @functools.cached_property
    def apart(self) -> Apart:
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
        known = [piece for piece in pieces if piece is not None and piece != self.tokenizer.unknown]
        return known if len(known) == len(pieces) else []
