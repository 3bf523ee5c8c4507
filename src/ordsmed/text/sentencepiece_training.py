"""SentencePiece's own library learns a .model: from counts of words, so that it holds the same memory for any corpus.

texts -> words at white space, counted -> "word, tab, count" a line -> the bytes of a .model
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ordsmed.base.errors import RecipeError
from ordsmed.text.word_counts import WordCounts

WORDS = 2_000_000  # different ones that are counted and learned from, at most
LONGEST = 256  # letters of a word; a longer one, as of a script without blanks, is cut
THREADS = 16  # the library's own number: sums, and so pieces, depend on it and on no machine


def train(texts: Iterable[str], place: str = "tokenizer", **settings: Any) -> bytes:
    """The .model of a vocabulary, by the library's names of settings; the same texts give the same bytes."""
    library = _library()
    counts = WordCounts(WORDS)
    for text in texts:
        counts.add(_words(text))
    if not counts.counts:
        raise RecipeError(place, "no words to learn from", "a corpus that holds some")
    written = io.BytesIO()
    lines = (f"{word}\t{count}" for word, count in sorted(counts.counts.items(), key=lambda pair: (-pair[1], pair[0])))
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=lines, model_writer=written, input_format="tsv", num_threads=THREADS, minloglevel=3,
            hard_vocab_limit=False, max_sentence_length=1 << 16, **settings,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:
        why = re.sub(r"^.*\] *", "", str(error).strip().split("\n")[-1])
        raise RecipeError(place, f"SentencePiece refuses: {why}", "settings and texts that it takes") from None
    return written.getvalue()


def _words(text: str) -> Iterator[str]:
    for word in text.split():
        if len(word) <= LONGEST:
            yield word
        else:
            yield from (word[at : at + LONGEST] for at in range(0, len(word), LONGEST))


def _library() -> Any:
    """The package, or how to get it."""
    try:
        import sentencepiece
    except ImportError:
        remedy = "pip install 'ordsmed[sentencepiece]'; a .model that there is needs none: name it with `file`"
        raise RecipeError("tokenizer", "`sentencepiece` is not installed", "", remedy) from None
    return sentencepiece
