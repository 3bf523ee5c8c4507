"""Find the words of a text in any script with a few vectorized operations.

Words are separated by white space, as in `str.split`. Chinese, Japanese and Thai write no spaces: each of their letters
is a word, and punctuation next to them is not.
"""

import numpy as np
from numpy.typing import NDArray

# _LETTER: a word by itself; _MARK: never part of a word; _SIGN: not part of a word next to a _LETTER
_OTHER, _SPACE, _LETTER, _MARK, _SIGN = range(5)
UNSPACED = (  # letters of scripts without spaces between words, as ranges of hexadecimal code points
    "3005 3007 3041-3096 30a1-30fa 30fc 31f0-31ff 3400-4dbf 4e00-9fff f900-faff ff66-ff9f 20000-323af"
    " e01-e2e e30 e32-e33 e40-e46"
)
_RANGES = {
    _LETTER: UNSPACED,
    _MARK: "3001-3004 3008-303f 3099-309e 30fb ff01-ff0f ff1a-ff20 ff3b-ff40 ff5b-ff65 e2f e31 e34-e3a e47-e4f e5a-e5b",
    _SIGN: "21-2f 3a-40 5b-60 7b-7e b7 2010-2027",
}


def _kinds() -> NDArray[np.uint8]:
    table = np.zeros(0x110000, np.uint8)
    table[[code for code in range(0x3001) if chr(code).isspace()]] = _SPACE
    for kind, ranges in _RANGES.items():
        for first, _, last in (word.partition("-") for word in ranges.split()):
            table[int(first, 16) : int(last or first, 16) + 1] = kind
    return table


KINDS = _kinds()
_ASCII = bytes(KINDS[:256] == _SPACE)


def words(text: str) -> NDArray[np.int64]:
    """Return the offsets at which words begin, in rising order."""
    if text.isascii():
        is_space = np.frombuffer(b"\x01" + text.encode().translate(_ASCII), np.bool_)
        return np.flatnonzero(is_space[:-1] > is_space[1:])
    kinds = KINDS[np.frombuffer(text.encode("utf-32-le"), "<u4")]
    is_letter = kinds == _LETTER
    separates = kinds == _SPACE
    if is_letter.any():
        unspaced, punctuation = is_letter | (kinds == _MARK), kinds == _SIGN
        for _ in range(2):  # punctuation comes in pairs: "……", "”。"
            neighbors = np.zeros(len(kinds), np.bool_)
            neighbors[1:] |= unspaced[:-1]
            neighbors[:-1] |= unspaced[1:]
            unspaced |= neighbors & punctuation
        separates |= unspaced
    begins = ~separates
    begins[1:] &= separates[:-1]
    return np.flatnonzero(begins | is_letter)
