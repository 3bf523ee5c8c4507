"""WikiText, or the Penn Treebank: perplexity of a word-level test file, counted as Megatron counts it.

The file as it was tokenized -> detokenized -> tokens T -> windows, each 32 tokens further -> loss L a token
perplexity e^L; of a word e^(L R), where R = (T - 1) / (W - 1) and W counts what stands between single spaces
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.likelihood import windows
from ordsmed.likelihood.detokenizers import BY_SET
from ordsmed.likelihood.items import Scorer
from ordsmed.likelihood.probe import Example, Finding, Record, limited, paths_of
from ordsmed.likelihood.windows import WindowedProbe
from ordsmed.text import read

LARGE = 2_000  # words from which on a text shows what it is


@dataclass(frozen=True)
class Settings(WindowedProbe):
    """Per token, word and byte."""

    files: tuple[str, ...] = ()
    """word-level test files, such as wiki.test.tokens"""
    way: str = ""
    """how the model is read: causal"""
    set: Literal["wikitext", "ptb", "lambada", "none"] = "wikitext"
    """whose words are put together again; none: text as it stands"""
    overlap: int = 32
    """tokens that each window goes further, scoring so many; 0: windows end to end; elsewhere overlapping_eval"""
    window: int = 0
    """tokens; 0: the model's positions, at most 1,024; elsewhere seq_length"""

    def fits(self, scorer: Scorer, place: str) -> str:
        if scorer.by_line:
            wrong = f"is read the way `{scorer.way}`, word by word: there are no tokens of running text to count"
            raise RecipeError(place, wrong, "a causal model", "`--probe perplexity` takes the same file, word by word")
        return super().fits(scorer, place)

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        cutting = self.cutting(scorer)
        for path in paths_of(self.files):
            text = "".join(read.texts(path))
            self._check(text, path)
            ids = scorer.cut([BY_SET[self.set](text)])[0].pieces
            original = len(text.strip().split(" "))
            if original < 2:
                raise DataError(path, "has one word", "two or more: perplexity of a word needs one behind another")
            words, size = len(text.split()), len(text.encode())
            yield from windows.examples(cutting, ids, str(path), len(ids), original, words, size, 1,
                                        scorer.tokenizer.vocabulary)  # fmt: skip

    def finding(self, records: list[Record]) -> Finding:
        tokens, original, words, size, texts, vocabulary, nats, targets = windows.sums(records)
        result = windows.perplexities(records, {"word": words, "byte": size}, int(vocabulary / texts))
        ratio = (tokens - texts) / (original - texts)
        adjusted = limited(nats / targets * ratio)
        error = result.errors["perplexity"] / result.facts["perplexity"] * ratio * adjusted
        facts = {"perplexity": result.facts["perplexity"], "adjusted_perplexity": adjusted, **result.facts,
                 "tokens": int(tokens), "original_tokens": int(original), "words": int(words), "bytes": int(size),
                 "windows": len(records)}  # fmt: skip
        return replace(result, facts=facts, errors={**result.errors, "adjusted_perplexity": error})

    def _check(self, text: str, path: Path) -> None:
        """Refuse a file of another kind, as far as it shows."""
        words = text.split()
        if not words:
            raise DataError(path, "is empty", "a word-level test file")
        if self.set == "none":
            return
        if text.lstrip().startswith('{"'):
            raise DataError(path, "holds JSON", "a word-level test file", "`--probe perplexity` takes JSON lines")
        if len(words) < LARGE:
            return
        remedy = "`set=none` takes text as it stands"
        if self.set == "wikitext" and "<unk>" not in text and ("@-@" in text or "@,@" in text):
            wrong = "is raw WikiText: it has no <unk>"
            raise DataError(path, wrong, "the word-level file, such as wiki.test.tokens", remedy)
        if " , " not in text and " 's" not in text and " n't" not in text and (", " in text or ". " in text):
            wrong = "has signs that stand at their words: it is detokenized, or never was tokenized"
            raise DataError(path, wrong, "the word-level file, such as wiki.test.tokens", remedy)
