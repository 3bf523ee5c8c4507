"""Tag: a label for each word of a sentence, such as named entities and parts of speech.

    Newts   B-ANIMAL        [CLS] new ##ts swim [SEP]        new  -> Newts   B-ANIMAL
    swim    O          ->          ^        ^           ->   swim -> swim    O

A word's tag is learned and told at its first piece; by a network that sees only what stands before, at its last. A
sentence that is too long is read in windows that overlap, and each word is asked about in the window where it has the
most context. Tags such as B-PER, I-PER and O mark spans: what counts is then how many spans are found, else how many
words have the right tag.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.files import write_text
from ordsmed.base.menu import Choice
from ordsmed.base.say import many, say
from ordsmed.data.batch import Batch
from ordsmed.data.features import NOT_ASKED, Features, Text, framed
from ordsmed.data.pieces import SPECIAL_WORDS, Ints, TextReader
from ordsmed.data.question_windows import Limits, QuestionWindows, windows
from ordsmed.learn.score import spans
from ordsmed.learn.task import Arrays, ClassWeights, Files, LabelWeights, Task, by_example, check_labels, label_weights
from ordsmed.learn.usage import Usage, in_python, pipeline
from ordsmed.text import read
from ordsmed.text.labelled import conll
from ordsmed.text.labelled.conll import TaggedSentences
from ordsmed.text.tokenizer import Tokenizer

TABLE = "conlleval.txt"
RATES = ("f1", "precision", "recall")
OTHER_COLUMN = "name the column of the tags with task.column="
AT_ONCE = 1 << 20  # tokens of windows whose best is looked for

Tags = Sequence[str | None]


@dataclass(frozen=True)
class TagPredictions:
    """What is said of each word."""

    tags: list[list[str]]  # by sentence
    probability: NDArray[np.float32] | None = None  # of each of those tags, end to end, where it is known


@dataclass(frozen=True, kw_only=True)
class Tag(Files, Choice):
    """A tag for each word."""

    column: str | int = -1
    """of the tags: upos, xpos, feats, feats:KEY, misc:KEY (misc:name in NorNE) or its number, -1 the last"""
    word: int = 1
    """number of the words' column, in files that are not CoNLL-U"""
    errors: read.Errors = "strict"
    """bytes that are no UTF-8: refused, or replaced and counted"""
    labels: tuple[str, ...] = ()
    """the tags in their order, as they are learned; left out: those of the training data, sorted"""
    scheme: spans.Scheme | None = None
    """how spans are written to be learned: IOB1, IOB2, IOBES or BILOU; left out: as in the files"""
    file_scheme: spans.Scheme | None = None
    """how spans are written in what is told; left out: as in the training data"""
    mend: bool = True
    """write spans well-formed, whatever order their tags are told in; how many are right does not change by it"""
    length: int = 256
    """tokens of the longest row, signs included; longer sentences are read in windows; elsewhere max_seq_length"""
    stride: int | None = None
    """how many tokens behind the one before each window begins; left out: half of a window"""
    class_weights: ClassWeights = None
    """how much the loss of each label counts, 1 if not said; balanced: all labels alike, however often they are"""

    METHOD: ClassVar[str] = "tag"
    role: ClassVar[str] = "tag"
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, "file_scheme", "mend", "class_weights")
    LATER: ClassVar[tuple[str, ...]] = (
        "train", "dev", "column", "word", "errors", "file_scheme", "mend", "length", "stride",
    )  # fmt: skip

    def __post_init__(self) -> None:
        conll.Column.of(self.column)
        if self.word == 0:
            raise ValueError("word: found 0; wanted a column's number: 1 is the first, -1 the last")
        check_labels(self.labels, self.class_weights)
        if self.labels and self.scheme and not self.of_spans:
            raise ValueError(f"scheme: found {self.scheme} with labels that mark no spans; wanted B-PER and the like")
        for name in ("length", "stride"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}: found {value}; wanted 1 or more")

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        if role != cls.role:
            return None
        known: dict[str, Any] = {"column": -1} | ({"labels": list(labels)} if labels else {})  # the last one
        return known | ({"file_scheme": spans.scheme([labels])} if spans.is_spans(labels) else {})

    @property
    def record(self) -> str:
        return "f1" if self.of_spans else "accuracy"

    @property
    def of_spans(self) -> bool:
        """Do the labels mark spans?"""
        return spans.is_spans(self.labels)

    def records(self, paths: Sequence[str], *, learning: bool = False) -> TaggedSentences:
        sentences = conll.read(paths, self.column, word=self.word, tagged=learning, errors=self.errors)
        return sentences.to_learn() if learning else sentences

    def about(self, sentences: Sequence[Sequence[str]]) -> TaggedSentences:
        """Words that stand in no file."""
        words = [[*sentence] for sentence in sentences]
        places = [f"sentence {number}" for number in range(1, len(words) + 1)]
        return TaggedSentences(words, [[None] * len(own) for own in words], places)

    def settled(self, records: TaggedSentences) -> Tag:
        counts = Counter(tag for tag in chain.from_iterable(records.tags) if tag is not None)
        file_scheme = self.file_scheme
        if spans.is_spans(self.labels or counts):
            _check_spans(records, records.tags)
            file_scheme = self._written_as(records.tags)
            learned = chain.from_iterable(_written(tags, self.scheme) for tags in records.tags)
            counts = Counter(tag for tag in learned if tag is not None)
        elif not self.labels:
            self._tell_odd(records)
        labels = self.labels or tuple(sorted(counts))
        known = [label for label in labels if counts[label]]
        if len(known) < 2:
            tags = f"no tag but {known[0]}" if known else "none of the labels"
            raise DataError(records.places[0], f"the words have {tags}", "two different ones at least")
        weights = label_weights(self.class_weights, labels, counts)
        return replace(self, labels=labels, file_scheme=file_scheme, class_weights=weights)

    def _tell_odd(self, records: TaggedSentences) -> None:
        """Not all tags mark spans: say so where some look as if they did."""
        tags = {tag for tag in chain.from_iterable(records.tags) if tag is not None}
        odd = {tag for tag in tags if not _is_span(tag)} or {tag for tag in tags - {"O"} if "-" not in tag} or tags
        place, tag = _first(records, records.tags, odd)
        if self.scheme and tags == {"O"}:
            raise DataError(place, "no tag but O", "spans to write in a scheme: B-PER and the like", OTHER_COLUMN)
        if self.scheme:
            beside = f" beside {min(tags - odd - {'O'})}" if tags - odd - {"O"} else ""
            raise RecipeError(
                "task.scheme", f"{self.scheme}, but {place} has the tag {tag}{beside}", "O, B-PER and the like"
            )
        if "O" in tags and any(tag.startswith("B-") for tag in tags):
            say(f"{place}: with tags such as {tag} not all mark spans, so each word's tag counts by itself")

    def features(self, records: TaggedSentences, reader: TextReader) -> Features:
        cut = _cut(records.words, reader)
        signs = reader.frame.joint(two=False)
        stride = self.stride or max(1, (self.length - signs) // 2)
        nothing = np.zeros(len(records), np.int64)
        parts = windows(nothing, np.diff(cut.starts), Limits(self.length, stride, longest_question=1), signs)
        begin = cut.starts[parts.question]
        text = Text(cut.ids, begin + parts.first, begin + parts.last + 1)
        starts, ids, types, [front] = framed(reader.frame, text)
        example = _best_windows(parts, cut.starts)[cut.words]
        place = cut.words - text.first[example] + front[example]
        marks = None
        if any(tag is not None for tag in chain.from_iterable(records.tags)):
            marks = np.full(len(ids), NOT_ASKED, np.int32)
            marks[starts[example] + place] = self._codes(records)
        letters, words = reader.listed() or (None, None)
        return Features(
            starts, ids.astype(np.int32), types if reader.types else None, marks, characters=letters, words=words,
            more={"example": example.astype(np.int32), "place": place.astype(np.int32)},
        )  # fmt: skip

    def _codes(self, records: TaggedSentences) -> NDArray[np.int32]:
        """The number of each word's label; those that are not there, or not to be learned, are not asked about."""
        if self.of_spans:
            _check_spans(records, records.tags)
        known = {label: number for number, label in enumerate(self.labels)}
        strange: Counter[str] = Counter()
        codes = np.empty(sum(map(len, records.words)), np.int32)
        for at, tag in enumerate(chain.from_iterable(_written(tags, self.scheme) for tags in records.tags)):
            codes[at] = known.get(tag, NOT_ASKED) if tag is not None else NOT_ASKED
            if tag is not None and tag not in known:
                strange[tag] += 1
        if strange:
            listed = ", ".join(f"{tag} ({count:,})" for tag, count in strange.most_common(5))
            rest = f" and {many(len(strange) - 5, 'other')}" if len(strange) > 5 else ""
            if not (codes != NOT_ASKED).any():
                problem = f"none of its {many(strange.total(), 'tag')} was learned, but {listed}{rest}"
                raise DataError(_file(records), problem, f"tags such as {', '.join(self.labels[:5])}", OTHER_COLUMN)
            count = many(strange.total(), "word", "has", "have")
            say(f"{records.places[0]}: {count} tags that are not learned: {listed}{rest}")
        return codes

    def build(self, model: Any, tokenizer: Tokenizer) -> Tagger:
        return Tagger(self, model, tokenizer.vocabulary)

    def predictions(self, records: TaggedSentences, features: Features, answers: Arrays) -> TagPredictions:
        asked = features.more["example"], features.more["place"]
        names = iter(np.array(self.labels, object)[answers["tag"][asked]].tolist())
        tags = [list(islice(names, len(words))) for words in records.words]
        if self.of_spans and (self.mend or self.scheme):
            assert self.file_scheme
            tags = [spans.converted(own, self.file_scheme) for own in tags]
        return TagPredictions(tags, answers["probability"][asked])

    def score(self, records: TaggedSentences, predictions: TagPredictions) -> dict[str, float]:
        gold, predicted = records.tags, predictions.tags
        if not any(tag is not None for tag in chain.from_iterable(gold)):
            return {}
        if self.of_spans:
            _check_spans(records, gold)
            loose, strict = spans.span_f1(gold, predicted), spans.span_f1(gold, predicted, self._written_as(gold))
            return {
                **{name: 100 * loose[name] for name in RATES},
                "accuracy": 100 * spans.accuracy(gold, predicted),
                **{f"strict_{name}": 100 * strict[name] for name in RATES},
            }
        each = [rates["f1"] for rates in spans.by_tag(gold, predicted).values()]
        return {"accuracy": 100 * spans.accuracy(gold, predicted), "macro_f1": 100 * sum(each) / len(each)}

    def _written_as(self, gold: Sequence[Tags]) -> spans.Scheme:
        return self.file_scheme or spans.scheme([[tag or "O" for tag in tags] for tags in gold])

    def fitted(self, records: TaggedSentences, features: Features, answers: Arrays) -> Tag:
        return self

    def guesses(self, train: TaggedSentences, records: TaggedSentences) -> TagPredictions:
        """Each word's most frequent tag; that of all words for those that were not met."""
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for word, tag in zip(chain.from_iterable(train.words), chain.from_iterable(train.tags), strict=True):
            if tag is not None:
                seen[word][tag] += 1
        [(usual, _)] = Counter(tag for tag in chain.from_iterable(train.tags) if tag is not None).most_common(1)
        best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
        return TagPredictions([[best.get(word, usual) for word in words] for words in records.words])

    def write(self, folder: Path, records: TaggedSentences, predictions: TagPredictions) -> list[Path]:
        """The files that were read with what is said in place of the tags; where it is known, beside what is right."""
        taken = {TABLE}
        written = []
        for source, text in zip(records.sources, conll.texts(records, predictions.tags), strict=True):
            written.append(folder / _name(source.path, taken))
            write_text(written[-1], text)
        if any(tag is not None for tag in chain.from_iterable(records.tags)):
            written.append(folder / TABLE)
            write_text(written[-1], "\n".join(_table(records, predictions, of_spans=self.of_spans)) + "\n")
        return written

    def read(self, path: Path, records: TaggedSentences) -> TagPredictions:
        """From a file like those that `write` made, or from the last column of any other with the same words."""
        sentences = conll.read(str(path), -1, tagged=False, errors=self.errors)
        alike = sentences.sources[0].width == records.sources[0].width
        column, word = (self.column, self.word) if alike else (-1, 1)
        say(f"{path}: what is said of each word is read from column {column}")
        sentences = conll.read(str(path), column, word=word, tagged=False, errors=self.errors)
        _check_words(sentences, records)
        tags = [[tag or "_" for tag in own] for own in sentences.tags]
        if not records.sources[0].features:
            for number, own in enumerate(sentences.tags):
                if None in own:
                    raise DataError(sentences.place(number, own.index(None)), "no tag", "one for each word")
        if self.of_spans:
            _check_spans(sentences, tags)
        return TagPredictions(tags)

    def details(
        self, records: TaggedSentences, predictions: TagPredictions
    ) -> list[tuple[str, list[str], list[list[Any]]]]:
        gold, predicted = records.tags, predictions.tags
        kind = "type" if self.of_spans else "tag"
        rates_of = spans.span_f1(gold, predicted)["types"] if self.of_spans else spans.by_tag(gold, predicted)
        counts, shares = ["gold", "predicted", "right"], ["precision", "recall", "f1"]
        rows = [
            [name, *(rates[count] for count in counts), *(round(100 * rates[share], 2) for share in shares)]
            for name, rates in sorted(rates_of.items(), key=lambda item: (-item[1]["gold"], item[0]))
        ]
        return [(f"scores by {kind}", [kind, *counts, *shares], rows)]


class Tagger(Task):
    """A network that scores every tag for every token; tokens that begin a word are asked about."""

    by_marks, by_token = True, ("tag", "probability")

    def __init__(self, settings: Tag, model: Any, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        self.labels, self.weights, given = settings.labels, {"tag": 1.0}, settings.class_weights
        assert given != "balanced", "settled settings say how much"
        self.label_weights = LabelWeights(given, self.labels) if given else None
        self.add_head("tag", len(self.labels))

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {"tag": self._asked(batch).sum(dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        head: Any = self.tag
        return {"tag": head(self.states(batch)).float()}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        lost = F.cross_entropy(scores["tag"].flatten(0, 1), batch.targets.flatten(), reduction="none")
        return {"tag": (lost * self._asked(batch).flatten()).sum()}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        probability, tag = scores["tag"].softmax(-1).max(-1)
        return {"tag": by_example(tag, batch, 0).int(), "probability": by_example(probability, batch)}

    def usage(self, name: str, tokenizer: Tokenizer, learned: Tag) -> Usage:
        kind, does = (
            "token-classification",
            "tells the tag of each word: " + ", ".join(f"`{tag}`" for tag in self.labels),
        )
        grouped = all(label == "O" or label[:2] in ("B-", "I-") for label in self.labels)
        made = pipeline(kind, name, ', aggregation_strategy="first"' if grouped else "")
        return Usage(
            kind, does, in_python(name, f'{made}for found in ask("Rain falls in Bergen ."):\n    print(found)\n')
        )

    def _asked(self, batch: Batch) -> Tensor:
        """How much each token counts, [B, T]."""
        if self.label_weights is None:
            return batch.weights
        return batch.weights * self.label_weights.on(batch.targets.device)[batch.targets]


@dataclass(frozen=True)
class _Cut:
    """Sentences in pieces, laid end to end; every word has one."""

    starts: Ints  # [S + 1]
    ids: Ints
    words: Ints  # [W]  the piece of each word that is asked


def _cut(sentences: Sequence[Sequence[str]], reader: TextReader) -> _Cut:
    """A piece belongs to the first word of which it covers a character; who has none gets the unknown token."""
    cuts = reader.pieces([" ".join(words) for words in sentences])
    sizes = np.fromiter(map(len, chain.from_iterable(sentences)), np.int64)
    ends = np.cumsum(sizes + 1) - 1  # of all text, a blank behind every word
    begins = ends - sizes
    after = np.cumsum(np.fromiter(map(len, sentences), np.int64))  # one behind the last word of each sentence
    first = np.concatenate([[0], after])
    counts = np.diff(cuts.starts)
    before = np.repeat(begins[first[:-1]], counts)
    left, right = cuts.left + before, cuts.right + before
    spelled = np.flatnonzero(sizes)
    owner = np.append(spelled, len(sizes))[np.searchsorted(ends[spelled], left, "right")]
    owner = np.maximum.accumulate(np.minimum(owner, np.repeat(after - 1, counts)))
    covers = np.flatnonzero(np.maximum(left, begins[owner]) < np.minimum(right, ends[owner]))
    words = np.full(len(sizes), -1, np.int64)
    covers = covers if reader.causal else covers[::-1]  # of several pieces of a word the one put last stays
    words[owner[covers]] = covers
    return _with_unknown(_Cut(cuts.starts, cuts.ids, words), owner, first, list(chain.from_iterable(sentences)), reader)


def _with_unknown(cut: _Cut, owner: Ints, first: Ints, spelled: list[str], reader: TextReader) -> _Cut:
    """A piece for each word that has none; `first` is the first word of each sentence, `owner` the word of a piece."""
    bare = np.flatnonzero(cut.words < 0)
    if not len(bare):
        return cut
    at = np.searchsorted(owner, bare, "right")
    words = cut.words + np.searchsorted(at, cut.words, "right")
    words[bare] = at + np.arange(len(bare))
    starts = cut.starts + np.searchsorted(bare, first)
    return _Cut(starts, np.insert(cut.ids, at, [_unknown(spelled[word], reader) for word in bare]), words)


def _unknown(word: str, reader: TextReader) -> int:
    tokenizer = reader.tokenizer
    if tokenizer.whole_words:
        return reader.words.setdefault(word.encode(), len(SPECIAL_WORDS) + len(reader.words))
    for number in (tokenizer.unknown, tokenizer.mask, tokenizer.end):
        if number is not None:
            return number
    raise RecipeError("tokenizer", f"makes nothing of the word {word!r} and has no unknown token", "an unknown token")


def _best_windows(found: QuestionWindows, starts: Ints) -> Ints:
    """For each piece of all sentences, in which window it has the most context."""
    counts = np.bincount(found.question, minlength=len(starts) - 1)
    best = np.repeat(np.cumsum(counts) - counts, np.diff(starts))
    several = np.flatnonzero(counts[found.question] > 1)
    width = int((found.last - found.first + 1)[several].max(initial=1))
    for chosen in np.array_split(several, -(-len(several) * width // AT_ONCE) or 1):
        window, place = np.nonzero(found.positions(chosen, np.zeros(len(chosen), np.int64), width)[1])
        window = chosen[window]
        best[starts[found.question[window]] + found.first[window] + place] = window
    return best


def _is_span(tag: str) -> bool:
    return tag == "O" or spans.is_spans([tag])


def _check_spans(records: TaggedSentences, tags: Sequence[Tags]) -> None:
    """Refuse tags that mark no spans where the others do."""
    odd = {tag for tag in set(chain.from_iterable(tags)) if tag is not None and not _is_span(tag)}
    if odd:
        place, tag = _first(records, tags, odd)
        raise DataError(place, f"the tag {tag}", "O, or a tag such as B-PER", f"mend it, or {OTHER_COLUMN}")


def _file(records: TaggedSentences) -> str:
    return ", ".join(str(source.path) for source in records.sources)


def _first(records: TaggedSentences, tags: Sequence[Tags], odd: set[str]) -> tuple[str, str]:
    """Where the first of these tags stands, and which it is."""
    for number, own in enumerate(tags):
        for at, tag in enumerate(own):
            if tag in odd:
                return records.place(number, at), str(tag)
    raise AssertionError(f"none of {sorted(odd)}")


def _written(tags: Tags, scheme: spans.Scheme | None) -> Tags:
    """Spans as a scheme writes them; words without a tag stay so."""
    if not scheme or not any(tag not in ("O", None) for tag in tags):
        return tags
    written = spans.converted([tag or "O" for tag in tags], scheme)
    return [own if tag is not None else None for own, tag in zip(written, tags, strict=True)]


def _name(path: Path, taken: set[str]) -> str:
    """The name of a file, unpacked, that no other has."""
    plain = path.name.removesuffix(path.suffix) if path.suffix in (".gz", ".bz2", ".xz", ".zst") else path.name
    name = next(n for n in chain([plain], (f"{k}-{plain}" for k in range(2, len(taken) + 3))) if n not in taken)
    taken.add(name)
    return name


def _table(records: TaggedSentences, predictions: TagPredictions, *, of_spans: bool) -> Iterator[str]:
    """Lines as conlleval reads them: word, probability, right, predicted; no span is there where none is known."""
    shares: Iterable[str] = repeat("")
    if predictions.probability is not None:
        shares = (f" {share:.4f}" for share in predictions.probability.tolist())
    each = iter(shares)
    for words, gold, predicted in zip(records.words, records.tags, predictions.tags, strict=True):
        for word, right, own in zip(words, gold, predicted, strict=True):
            if right is None:
                right, own = ("O", "O") if of_spans else ("_", own)
            yield f"{_unbroken(word)}{next(each)} {_unbroken(right)} {_unbroken(own)}"
        yield ""


def _unbroken(word: str) -> str:
    """Without blanks, in a file whose columns they part."""
    return "_".join(word.split()) or "_"


def _check_words(found: TaggedSentences, records: TaggedSentences) -> None:
    """Refuse predictions for other words than these; in a file whose columns blanks part, words have none."""
    for number, (own, words) in enumerate(zip(found.words, records.words, strict=False)):
        if own == words or own == list(map(_unbroken, words)):
            continue
        pairs = enumerate(zip(own, words, strict=False))
        at = next((at for at, (one, other) in pairs if one not in (other, _unbroken(other))), None)
        if at is None:
            wanted = f"{many(len(words), 'word')} as in {records.place(number, 0)}"
            raise DataError(found.place(number, 0), f"a sentence of {len(own):,} words", wanted)
        wanted = f"{words[at]} as in {records.place(number, at)}"
        raise DataError(found.place(number, at), f"the word {own[at]}", wanted, "predict for the same words")
    if len(found) != len(records):
        path = records.sources[0].path
        raise DataError(found.sources[0].path, many(len(found), "sentence"), f"{len(records):,} as in {path}")
