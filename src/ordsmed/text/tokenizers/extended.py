"""A tokenizer that already exists, extended by the pieces that save most tokens over a corpus."""

from collections.abc import Iterable
from dataclasses import dataclass

from ordsmed.base import hub
from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text.extension import extended
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ExtendedTokenizer(Choice):
    """Settings for adding pieces to an existing tokenizer."""

    base: str
    "a folder or file with a tokenizer (WordPiece, byte-level BPE, unigram), a run, or a published name"
    pieces: int = 2000
    "most pieces that are added"
    least: int = 5
    "a piece with a smaller count is not added"

    def __post_init__(self) -> None:
        at_least(self, pieces=1, least=1)

    @property
    def size(self) -> int:
        """Return the number of pieces, if the corpus yields as many as requested."""
        return self.old().vocabulary + self.pieces

    def old(self) -> Tokenizer:
        location = hub.folder(self.base)
        return Tokenizer.load(location / "tokenizer" if (location / "tokenizer").is_dir() else location)

    def stamp(self) -> str:
        """Return the fingerprint of the old tokenizer: what training depends on in addition to the settings."""
        return self.old().fingerprint

    def load(self) -> Tokenizer | None:
        """Return None: an extended tokenizer is always trained."""
        return None

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Count the words of the texts and add the pieces that save most tokens."""
        return extended(self.old(), texts, self.pieces, self.least)
