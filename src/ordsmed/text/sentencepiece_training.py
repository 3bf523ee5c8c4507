"""SentencePiece's own library learns a .model: from counts of words, so that it holds the same memory for any corpus.

texts -> words at white space, counted -> "word, tab, count" a line -> the bytes of a .model
"""

import io
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from ordsmed.base.binary import proto
from ordsmed.base.errors import RecipeError
from ordsmed.text.word_counts import WordCounts

WORDS = 2_000_000  # different ones that are counted and learned from, at most
LAID_OUT = 100_000_000  # letters at most: the library lays out a word as often as it is counted, 14 bytes a letter
LONGEST = 256  # letters of a word; a longer one, as of a script without blanks, is cut
THREADS = 16  # the library's own number: sums, and so pieces, depend on it and on no machine
STEP = 2.0**-7  # of scores: nine digits write them, and float32, which the library sums in, is exact up to 2^17


def train(texts: Iterable[str], place: str = "tokenizer", **settings: object) -> bytes:
    """The .model of a vocabulary, by the library's names of settings; the same texts give the same bytes."""
    library = _library()
    counts = WordCounts(WORDS)
    for text in texts:
        counts.add(_words(text))
    if not counts.counts:
        raise RecipeError(place, "no words to learn from", "a corpus that holds some")
    written = io.BytesIO()
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=_lines(counts.counts), model_writer=written, input_format="tsv", num_threads=THREADS,
            minloglevel=3, hard_vocab_limit=False, max_sentence_length=1 << 16, **settings,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:
        reason = re.sub(r"^.*\] *", "", str(error).strip().split("\n")[-1])
        raise RecipeError(place, f"SentencePiece refuses: {reason}", "settings and texts that it takes") from None
    return b"".join(_stepped(written.getvalue()))


def _lines(counts: Mapping[str, int]) -> Iterator[str]:
    """Words and their counts, the most frequent first; scaled down where they are too many for the library's memory."""
    share = min(1.0, LAID_OUT / sum(len(word) * count for word, count in counts.items()))
    for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"{word}\t{max(1, round(count * share))}"


def _stepped(data: bytes) -> Iterator[bytes]:
    """The .model with each score at a whole number of steps.

    Of two ways to spell a word whose sums are equal, rounding would choose, in one place so and in another otherwise;
    exact sums are equal in float32, float64 and any order, and every program takes the first way that it finds.
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
        remedy = "pip install 'ordsmed[sentencepiece]'; a .model that there is needs none: name it with `file`"
        raise RecipeError("tokenizer", "`sentencepiece` is not installed", "", remedy) from None
    return sentencepiece
