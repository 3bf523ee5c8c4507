"""WikiText, or the Penn Treebank: perplexity of a word-level test file, computed as in Megatron.

tokenized file -> detokenized text -> T tokens -> windows that start 32 tokens apart -> loss L per token
perplexity e^L; per word e^(L R), where R = (T - 1) / (W - 1) and W counts the parts between single spaces
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, cast

import numpy as np

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice, kind_of
from ordsmed.measure.likelihood import windows
from ordsmed.measure.likelihood.detokenizers import BY_SET
from ordsmed.measure.likelihood.items import Ints, Scorer
from ordsmed.measure.likelihood.probe import Example, Finding, paths_of, perplexity
from ordsmed.measure.likelihood.windows import Cutting, ScoredWindow, WindowedProbe
from ordsmed.text import read

PAGE = re.compile(r"(?m)^(?= = [^=].* = $)")  # start of a level-1 heading
LARGE = 2_000  # words needed to recognize the kind of a file


@dataclass(frozen=True)
class WikitextWindow(ScoredWindow):
    """Counts of the file or page whose first window this is; zeros for its other windows."""

    tokens: int = 0
    original: int = 0  # words and separators of the file before detokenization
    words: int = 0
    bytes: int = 0
    documents: int = 1
    vocabulary: int = 0  # size of the vocabulary


@dataclass(frozen=True)
class Wikitext(WindowedProbe, Choice):
    """Perplexity per token and word, and bits per byte."""

    files: tuple[str, ...] = ()
    """word-level test files, such as wiki.test.tokens"""
    way: str = ""
    """how the model is read: causal"""
    set: Literal["wikitext", "wikitext-raw", "ptb", "lambada", "none"] = "wikitext"
    """detokenizer (wikitext-raw: for files without <unk>); none: leave the text unchanged"""
    overlap: int = 32
    """tokens between the starts of windows; 0: consecutive windows; elsewhere overlapping_eval"""
    window: int = 0
    """tokens per window; 0: the model's positions, at most 1,024; elsewhere seq_length"""
    pages: bool = False
    """score every page separately after the start token, with windows and words as in lm-evaluation-harness"""

    RECORD: ClassVar = WikitextWindow
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("pages",)

    def fits(self, scorer: Scorer, location: str) -> str:
        if scorer.by_line:
            wrong = f"is read the way `{scorer.way}`, word by word, so that there are no tokens of running text"
            raise RecipeError(
                location, wrong, "a causal model", "`--probe perplexity` reads the same file, word by word"
            )
        if self.pages and self.overlap not in (0, type(self).overlap):
            raise RecipeError(
                f"{location}.overlap", f"found {self.overlap:,}", "none with pages, whose windows are consecutive"
            )
        return super().fits(scorer, location)

    def cutting(self, scorer: Scorer, location: str = "") -> Cutting:
        cutting = Cutting.of(scorer, self.window, 0 if self.pages else self.overlap, location or kind_of(self))
        return replace(cutting, last_full=self.pages)

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        cutting = self.cutting(scorer)
        for path in paths_of(self.files):
            text = "".join(read.texts(path))
            self._check(text, path)
            if self.pages:
                yield from self._paged(scorer, cutting, text, path)
                continue
            ids = scorer.cut([BY_SET[self.set](text)])[0].pieces
            original = len(text.strip().split(" "))
            if original < 2:
                raise DataError(path, "has one word", "two or more, so that a word is predicted")
            words, size = len(text.split()), len(text.encode())
            counts = WikitextWindow(len(ids), original, words, size, 1, scorer.tokenizer.vocabulary)
            yield from windows.examples(cutting, ids, str(path), counts)

    def _paged(self, scorer: Scorer, cutting: Cutting, text: str, path: Path) -> Iterator[Example]:
        """Yield pages one by one; a word is a part between white space, including empty parts at both ends."""
        for page in filter(str.strip, PAGE.split(text)):
            ids = np.concatenate([cast(Ints, scorer.start_tokens), scorer.cut([BY_SET[self.set](page)])[0].pieces])
            words, size = len(re.split(r"\s+", page)), len(page.encode())
            counts = WikitextWindow(len(ids), words, words, size, 1, scorer.tokenizer.vocabulary)
            yield from windows.examples(cutting, ids, str(path), counts)

    def finding(self, records: list[WikitextWindow]) -> Finding:
        total = windows.summed(records)
        units: dict[str, float] = {"word": total.words, "byte": total.bytes}
        result = windows.perplexities(records, units, int(total.vocabulary / total.documents))
        size = {"words": int(total.words), "bytes": int(total.bytes), "windows": len(records)}
        if self.pages:
            return replace(result, facts={**result.facts, "pages": int(total.documents), **size})
        ratio = (total.tokens - total.documents) / (total.original - total.documents)
        adjusted = perplexity(total.nats / total.targets * ratio)
        error = result.errors["perplexity"] / result.facts["perplexity"] * ratio * adjusted
        facts = {
            "perplexity": result.facts["perplexity"],
            "adjusted_perplexity": adjusted,
            **result.facts,
            "tokens": int(total.tokens),
            "original_tokens": int(total.original),
            **size,
        }
        return replace(result, facts=facts, errors={**result.errors, "adjusted_perplexity": error})

    def _check(self, text: str, path: Path) -> None:
        """Raise an error if the file is recognizably not a word-level test file."""
        words = text.split()
        if not words:
            raise DataError(path, "is empty", "a word-level test file")
        if self.set == "none":
            return
        if text.lstrip().startswith('{"'):
            raise DataError(path, "holds JSON", "a word-level test file", "`--probe perplexity` reads JSON lines")
        if len(words) < LARGE:
            return
        remedy = "`--probe wikitext FILE set=none` leaves the text unchanged"
        raw = f"`--probe wikitext FILE set=wikitext-raw` detokenizes it, {remedy}"
        if self.set == "wikitext" and "<unk>" not in text and ("@-@" in text or "@,@" in text):
            wrong = "is raw WikiText: it has no <unk>"
            raise DataError(path, wrong, "the word-level file, such as wiki.test.tokens", raw)
        if " , " not in text and " 's" not in text and " n't" not in text and (", " in text or ". " in text):
            wrong = "has punctuation attached to words, so it is not tokenized"
            raise DataError(path, wrong, "the word-level file, such as wiki.test.tokens", remedy)
