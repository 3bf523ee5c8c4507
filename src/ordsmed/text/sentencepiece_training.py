"""Train a SentencePiece .model with its own library, from word counts, so that memory does not grow with the corpus.

texts -> words at white space, counted -> "word, tab, count" per line -> the bytes of a .model
"""

import io
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from ordsmed.base.binary import proto
from ordsmed.base.errors import RecipeError
from ordsmed.text.word_counts import WordCounts

WORDS = 2_000_000  # most different words that are counted
LAID_OUT = 100_000_000  # most characters: the library repeats a word as often as its count, at 14 bytes per character
LONGEST = 256  # characters of a word; longer ones, as in scripts without spaces, are cut
THREADS = 16  # the library's default; fixed, because its sums and so the pieces depend on the number of threads
STEP = 2.0**-7  # scores are multiples of it: nine digits write them, and float32 sums are exact up to 2^17


def train(texts: Iterable[str], location: str = "tokenizer", **settings: object) -> bytes:
    """Return the bytes of a .model trained with SentencePiece's `settings`. The same texts give the same bytes."""
    library = _library()
    counts = WordCounts(WORDS)
    for text in texts:
        counts.add(_words(text))
    if not counts.counts:
        raise RecipeError(location, "no words to learn from", "a corpus that contains some")
    written = io.BytesIO()
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=_lines(counts.counts),
            model_writer=written,
            input_format="tsv",
            num_threads=THREADS,
            minloglevel=3,
            hard_vocab_limit=False,
            max_sentence_length=1 << 16,
            **settings,
        )
    except (RuntimeError, OSError) as error:
        reason = re.sub(r"^.*\] *", "", str(error).strip().split("\n")[-1])
        raise RecipeError(location, f"SentencePiece refuses: {reason}", "settings and texts that it takes") from None
    return b"".join(_stepped(written.getvalue()))


def _lines(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield words and counts, the most frequent first, scaled down if they need too much of the library's memory."""
    share = min(1.0, LAID_OUT / sum(len(word) * count for word, count in counts.items()))
    for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"{word}\t{max(1, round(count * share))}"


def _stepped(data: bytes) -> Iterator[bytes]:
    """Yield the .model with each score rounded to a multiple of `STEP`.

    Two ways to spell a word may have equal sums. Rounding errors would choose between them differently in different
    programs. Sums of rounded scores are exact in float32 and float64 in any order, so every program takes the first
    way.
    """
    for number, value in proto.fields(memoryview(data)):
        assert isinstance(value, memoryview)
        if number == 1:
            entry = proto.table(value)
            score = struct.unpack("<f", struct.pack("<I", entry.get(2, 0)))[0]
            bits = int.from_bytes(struct.pack("<f", round(score / STEP) * STEP), "little")
            value = memoryview(b"".join(_field(n, bits if n == 2 else field) for n, field in proto.fields(value)))
        yield proto.run(number, bytes(value))


def _field(number: int, value: proto.Value) -> bytes:
    return proto.message({number: bytes(value) if isinstance(value, memoryview) else value}, fixed=(2,))


def _words(text: str) -> Iterator[str]:
    for word in text.split():
        if len(word) <= LONGEST:
            yield word
        else:
            yield from (word[at : at + LONGEST] for at in range(0, len(word), LONGEST))


def _library() -> ModuleType:
    try:
        import sentencepiece
    except ImportError:
        remedy = "pip install 'ordsmed[sentencepiece]'; an existing .model (`file`) does not need it"
        raise RecipeError("tokenizer", "`sentencepiece` is not installed", "", remedy) from None
    return sentencepiece
