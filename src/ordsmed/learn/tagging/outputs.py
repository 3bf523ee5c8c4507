"""Predicted tags: scored, written into copies of the input files, and read from such files."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.base.files import write_text
from ordsmed.base.say import many, say
from ordsmed.learn.score import spans
from ordsmed.learn.tagging.tags import check_spans, scheme_of
from ordsmed.text.labelled import conll
from ordsmed.text.labelled.conll import TaggedSentences
from ordsmed.text.read import Errors

TABLE = "conlleval.txt"
RATES = ("f1", "precision", "recall")


@dataclass(frozen=True)
class TagPredictions:
    tags: list[list[str]]  # by sentence
    probability: NDArray[np.float32] | None = None  # of each tag, end to end, if known


def score(
    records: TaggedSentences, predictions: TagPredictions, file_scheme: spans.Scheme | None, *, of_spans: bool
) -> dict[str, float]:
    """Return scores in per cent: F1 of spans, lenient and strict (in the files' scheme), or accuracy and F1 of tags."""
    gold, predicted = records.tags, predictions.tags
    if not any(tag is not None for tag in chain.from_iterable(gold)):
        return {}
    if of_spans:
        check_spans(records, gold)
        loose, strict = spans.span_f1(gold, predicted), spans.span_f1(gold, predicted, file_scheme or scheme_of(gold))
        return {
            **{name: 100 * loose[name] for name in RATES},
            "accuracy": 100 * spans.accuracy(gold, predicted),
            **{f"strict_{name}": 100 * strict[name] for name in RATES},
        }
    f1 = [rates["f1"] for rates in spans.by_tag(gold, predicted).values()]
    return {"accuracy": 100 * spans.accuracy(gold, predicted), "macro_f1": 100 * sum(f1) / len(f1)}


def guesses(train: TaggedSentences, records: TaggedSentences) -> TagPredictions:
    """Return a baseline: each word's most frequent tag, or the most frequent tag of all for unseen words."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for word, tag in zip(chain.from_iterable(train.words), chain.from_iterable(train.tags), strict=True):
        if tag is not None:
            seen[word][tag] += 1
    [(usual, _)] = Counter(tag for tag in chain.from_iterable(train.tags) if tag is not None).most_common(1)
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    return TagPredictions([[best.get(word, usual) for word in words] for words in records.words])


def write(folder: Path, records: TaggedSentences, predictions: TagPredictions, *, of_spans: bool) -> list[Path]:
    """Write copies of the input files with predicted tags, and, if right tags are known, a table for conlleval."""
    names = {TABLE}
    written = []
    for source, text in zip(records.sources, conll.texts(records, predictions.tags), strict=True):
        written.append(folder / _free_name(source.path, names))
        write_text(written[-1], text)
    if any(tag is not None for tag in chain.from_iterable(records.tags)):
        written.append(folder / TABLE)
        write_text(written[-1], "\n".join(_table(records, predictions, of_spans=of_spans)) + "\n")
    return written


def read(
    path: Path, records: TaggedSentences, column: str | int, word: int, errors: Errors, *, of_spans: bool
) -> TagPredictions:
    """Read predictions from a file of `write`, or from the last column of any file with the same words."""
    sentences = conll.read(str(path), -1, tagged=False, errors=errors)
    if sentences.sources[0].width != records.sources[0].width:
        column, word = -1, 1
    say(f"{path}: reading tags from column {column}")
    sentences = conll.read(str(path), column, word=word, tagged=False, errors=errors)
    _check_words(sentences, records)
    tags = [[tag or "_" for tag in sentence] for sentence in sentences.tags]
    if not records.sources[0].features:
        for number, sentence in enumerate(sentences.tags):
            if None in sentence:
                raise DataError(sentences.place(number, sentence.index(None)), "no tag", "one for each word")
    if of_spans:
        check_spans(sentences, tags)
    return TagPredictions(tags)


def details(
    records: TaggedSentences, predictions: TagPredictions, *, of_spans: bool
) -> list[tuple[str, list[str], list[list[Any]]]]:
    gold, predicted = records.tags, predictions.tags
    kind = "type" if of_spans else "tag"
    rates_of = spans.span_f1(gold, predicted)["types"] if of_spans else spans.by_tag(gold, predicted)
    counts, shares = ["gold", "predicted", "right"], ["precision", "recall", "f1"]
    rows = [
        [name, *(rates[count] for count in counts), *(round(100 * rates[share], 2) for share in shares)]
        for name, rates in sorted(rates_of.items(), key=lambda item: (-item[1]["gold"], item[0]))
    ]
    return [(f"scores by {kind}", [kind, *counts, *shares], rows)]


def _free_name(path: Path, taken: set[str]) -> str:
    """Return the name of a file without its compression suffix, with a number if the name is taken."""
    plain = path.name.removesuffix(path.suffix) if path.suffix in (".gz", ".bz2", ".xz", ".zst") else path.name
    name = next(n for n in chain([plain], (f"{k}-{plain}" for k in range(2, len(taken) + 3))) if n not in taken)
    taken.add(name)
    return name


def _table(records: TaggedSentences, predictions: TagPredictions, *, of_spans: bool) -> Iterator[str]:
    """Yield lines in conlleval's format: word, probability, right and predicted tag; O O for unknown spans."""
    shares: Iterable[str] = repeat("")
    if predictions.probability is not None:
        shares = (f" {share:.4f}" for share in predictions.probability.tolist())
    share = iter(shares)
    for sentence in zip(records.words, records.tags, predictions.tags, strict=True):
        for word, right, predicted in zip(*sentence, strict=True):
            if right is None:
                right, predicted = ("O", "O") if of_spans else ("_", predicted)
            yield f"{_unbroken(word)}{next(share)} {_unbroken(right)} {_unbroken(predicted)}"
        yield ""


def _unbroken(word: str) -> str:
    """Replace spaces, because they separate the columns of the file."""
    return "_".join(word.split()) or "_"


def _check_words(sentences: TaggedSentences, records: TaggedSentences) -> None:
    """Raise an error for predictions of other words; `_unbroken` words count as equal."""
    for number, (predicted, words) in enumerate(zip(sentences.words, records.words, strict=False)):
        if predicted == words or predicted == list(map(_unbroken, words)):
            continue
        pairs = enumerate(zip(predicted, words, strict=False))
        at = next((at for at, (written, word) in pairs if written not in (word, _unbroken(word))), None)
        if at is None:
            wanted = f"{many(len(words), 'word')} as in {records.place(number, 0)}"
            raise DataError(sentences.place(number, 0), f"a sentence of {len(predicted):,} words", wanted)
        wanted = f"{words[at]} as in {records.place(number, at)}"
        raise DataError(sentences.place(number, at), f"the word {predicted[at]}", wanted, "predict for the same words")
    if len(sentences) != len(records):
        path = records.sources[0].path
        raise DataError(sentences.sources[0].path, many(len(sentences), "sentence"), f"{len(records):,} as in {path}")
