"""Extended: a tokenizer that you have, and the pieces that save most tokens over a corpus behind its own."""

from collections.abc import Iterable
from dataclasses import dataclass

from ordsmed.base import hub
from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text.extension import extended
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ExtendedTokenizer(Choice):
    """Which tokenizer gets how many pieces more."""

    base: str
    "a folder or file with a tokenizer (WordPiece, byte-level BPE, unigram), a run, or a published name"
    pieces: int = 2000
    "pieces added, at most"
    least: int = 5
    "a piece that would stand less often is not added"

    def __post_init__(self) -> None:
        at_least(self, pieces=1, least=1)

    @property
    def size(self) -> int:
        """Pieces, where the corpus gives as many as are asked for."""
        return self.old().vocabulary + self.pieces

    def old(self) -> Tokenizer:
        """The one that is extended."""
        place = hub.folder(self.base)
        return Tokenizer.load(place / "tokenizer" if (place / "tokenizer").is_dir() else place)

    def stamp(self) -> str:
        """What it depends on beside its settings."""
        return self.old().fingerprint

    def load(self) -> Tokenizer | None:
        """It is always learned."""
        return None

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Count the words of texts, and add what they need most."""
        return extended(self.old(), texts, self.pieces, self.least)
