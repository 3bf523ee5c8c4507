"""Find the book inside a Project Gutenberg file.

The Project Gutenberg eBook of ...        (before)
*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***
Produced by ...                           (before)
the book
*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***
... license                               (after)
"""

import re
from itertools import takewhile

_STARTS_WITHIN = 1000  # lines that may contain the start marker; further down it is a quotation
_TITLE = 3  # most lines of a long title below its marker
_CREDITS = 10  # most lines of credits; with more lines and no blank one, each line is a paragraph
_START = re.compile(
    r"\s*\*{1,4} ?START OF (?:THE |THIS )?PROJECT GUTENBERG|.*\*END[ *]{0,4}THE SMALL PRINT", re.IGNORECASE
)
_END = re.compile(
    r"\s*\*{1,4} ?END OF (?:THE |THIS )?PROJECT GUTENBERG"
    r"|\s*End of (?:the |this )?Project Gutenberg(?:['’]s | e-?(?:book|text))",
    re.IGNORECASE,
)
_TITLE_ENDS = re.compile(r"[^*]+\*{2,4}\s*\Z")
_CREDIT = re.compile(
    r"\s*\[?(?:(?:produced|e-?text prepared) by|transcribed (?:from|by)|this e-?text was)\b", re.IGNORECASE
)


def frame(lines: list[str]) -> tuple[int, int]:
    """Return `start` and `stop` so that lines[start:stop] is the book: all lines if there are no markers.

    A line may be a whole paragraph.
    """
    start = max((n for n, line in enumerate(lines[:_STARTS_WITHIN], 1) if _START.match(line)), default=0)
    if start:
        start = _without_credits(lines, _text_from(lines, _title_end(lines, start)))
    stop = next((n for n in range(start, len(lines)) if _END.match(lines[n])), len(lines))
    return start, stop


def _title_end(lines: list[str], start: int) -> int:
    if lines[start - 1].rstrip().endswith("*"):
        return start
    title = takewhile(str.strip, lines[start : start + _TITLE])
    return next((n for n, line in enumerate(title, start + 1) if _TITLE_ENDS.match(line)), start)


def _text_from(lines: list[str], start: int) -> int:
    return next((n for n in range(start, len(lines)) if lines[n].strip()), len(lines))


def _without_credits(lines: list[str], start: int) -> int:
    if start == len(lines) or not _CREDIT.match(lines[start]):
        return start
    credits = list(takewhile(str.strip, lines[start : start + _CREDITS]))
    return _text_from(lines, start + (len(credits) if len(credits) < _CREDITS else 1))
