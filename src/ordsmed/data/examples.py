"""Examples of one text or two for tasks, truncated to a length, with special tokens.

    "Rain falls .", "It is wet ."  ->  [CLS] Rain falls . [SEP] It is wet . [SEP]

Two texts that are too long together are truncated as transformers does it, the longer one first.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many, say
from ordsmed.data.features import Features, Text, framed
from ordsmed.data.pieces import TextReader
from ordsmed.text.tokenizer import Tokenizer


def examples(columns: Sequence[Sequence[str]], length: int, reader: TextReader, called: str = "example") -> Features:
    """Build examples of one or two columns of texts, with at most `length` tokens; print how many were truncated."""
    features, cut = cut_examples(columns, length, reader)
    if cut.any():
        count = f"{int(cut.sum()):,} of {many(len(cut), called)}"
        say(f"{count} are longer than {length} tokens (task.length): truncated")
    return features


def cut_examples(
    columns: Sequence[Sequence[str]], length: int, reader: TextReader
) -> tuple[Features, NDArray[np.bool_]]:
    texts = [reader.pieces(column) for column in columns]
    special = reader.frame.joint(two=len(texts) == 2)
    if length <= special:
        problem = f"{length}, of which {special} are special tokens"
        raise RecipeError("task.length", problem, f"{special + 1} or more")
    sizes = [np.diff(pieces.starts) for pieces in texts]
    kept = reader.longest_first(sizes[0], sizes[1] if len(sizes) == 2 else 0 * sizes[0], length - special)
    left = np.sum(kept, axis=0)
    parts = [Text(p.ids, p.starts[:-1], p.starts[:-1] + k) for p, k in zip(texts, kept[: len(texts)], strict=True)]
    if not special:
        parts[0] = _never_empty(parts[0], left == 0, reader.tokenizer)
    starts, ids, types, _ = framed(reader.frame, *parts)
    characters, words = reader.listed() or (None, None)
    known = types if reader.frame.types else None
    cut = left < np.sum(sizes, axis=0)
    return Features(starts, ids.astype(np.int32), known, characters=characters, words=words), cut


def _never_empty(text: Text, empty: NDArray[np.bool_], tokenizer: Tokenizer) -> Text:
    """Replace an empty text by one token if there are no special tokens, because a head needs a state."""
    token = next((n for n in (tokenizer.end, tokenizer.stop, tokenizer.unknown, tokenizer.pad) if n is not None), 0)
    location = len(text.ids)
    first, last = np.where(empty, location, text.first), np.where(empty, location + 1, text.last)
    return Text(np.append(text.ids, token), first, last)
