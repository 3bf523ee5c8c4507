"""Extension: add the pieces that save most tokens over texts to a tokenizer, whose pieces keep their ids.

    hemoglobin -> hem ##og ##lo ##bin, 900 times    one more piece, `hemoglobin`, saves 2,700 tokens

Byte-level BPE gets merges after its own; WordPiece and unigram get whole runs of pieces. Text without a new piece is
cut as before: WordPiece takes the longest piece, merges are applied in order, and a new piece of a unigram model scores
a little better than the pieces it replaces.
"""

import copy
import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ordsmed.base.errors import DataError
from ordsmed.base.say import say
from ordsmed.text.tokenizer import Tokenizer

MOST = 4_000_000  # different words that are counted; when there are more, the rarer half of them is dropped
WORDS = 400_000  # most frequent different words of several pieces from which pieces are chosen
RUN = 12  # most pieces that one new piece replaces
BETTER = 0.1  # by how much a new piece of a unigram model scores better than those it replaces


class Candidate(NamedTuple):
    """A piece that may be added, and for a merge the two pieces it joins."""

    piece: str
    joined: tuple[str, ...] = ()


@dataclass
class Cut:
    """A word, the pieces it is currently split into, and its count in the texts."""

    pieces: list[str]
    count: int


@dataclass
class Chooser:
    """Chooses pieces greedily: take the best candidate, split the words that contain it again, and repeat."""

    merges: bool  # join pairs of pieces only
    prefix: str  # of pieces inside words
    known: set[str]
    words: list[Cut]
    gains: Counter[Candidate] = field(default_factory=Counter)
    holders: dict[Candidate, set[int]] = field(default_factory=lambda: defaultdict(set))
    heap: list[tuple[int, Candidate]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(len(self.words)):
            self._count(number, 1)
        self.heap = [(-gain, candidate) for candidate, gain in self.gains.items()]
        heapq.heapify(self.heap)

    def next(self, least: int) -> tuple[Candidate, list[str]] | None:
        """Return the best candidate that occurs at least `least` times, and the pieces it replaces, or None."""
        while self.heap:
            gain, candidate = heapq.heappop(self.heap)
            current_gain = self.gains.get(candidate, 0)
            if current_gain <= 0 or candidate.piece in self.known:
                continue
            if current_gain != -gain:
                heapq.heappush(self.heap, (-current_gain, candidate))
                continue
            occurrences = sum(self.words[number].count for number in self.holders[candidate])
            if occurrences >= least:
                return candidate, self._take(candidate)
        return None

    def _take(self, candidate: Candidate) -> list[str]:
        """Split every word that contains the candidate again, and return the pieces that it replaces most often."""
        self.known.add(candidate.piece)
        replaced: Counter[tuple[str, ...]] = Counter()
        changed: set[Candidate] = set()
        for number in sorted(self.holders[candidate]):
            word = self.words[number]
            changed |= self._count(number, -1)
            pieces, at = [], 0
            while at < len(word.pieces):
                run = next((n for n, option in self._runs(word.pieces, at) if option == candidate), 1)
                if run > 1:
                    replaced[tuple(word.pieces[at : at + run])] += word.count
                pieces.append(candidate.piece if run > 1 else word.pieces[at])
                at += run
            word.pieces = pieces
            changed |= self._count(number, 1)
        for affected in changed:
            if self.gains[affected] > 0:
                heapq.heappush(self.heap, (-self.gains[affected], affected))
            else:
                del self.gains[affected], self.holders[affected]
        return list(max(replaced.items(), key=lambda entry: (entry[1], entry[0]))[0])

    def _count(self, number: int, sign: int) -> set[Candidate]:
        """Add the tokens that a word's candidates would save (`sign` -1: subtract them). Return these candidates."""
        word, candidates = self.words[number], set[Candidate]()
        for at in range(len(word.pieces)):
            for run, candidate in self._runs(word.pieces, at):
                self.gains[candidate] += sign * (run - 1) * word.count
                candidates.add(candidate)
        for candidate in candidates:
            if sign > 0:
                self.holders[candidate].add(number)
            else:
                self.holders[candidate].discard(number)
        return candidates

    def _runs(self, pieces: list[str], at: int) -> Iterator[tuple[int, Candidate]]:
        """Yield the runs of pieces that begin at index `at`: their number of pieces and the candidate."""
        text = pieces[at]
        for end in range(at + 1, min(at + (2 if self.merges else RUN), len(pieces))):
            text += pieces[end].removeprefix(self.prefix)
            yield end - at + 1, Candidate(text, tuple(pieces[at : end + 1]) if self.merges else ())


def extended(old: Tokenizer, texts: Iterable[str], count: int, least: int) -> Tokenizer:
    """Return the tokenizer with up to `count` more pieces that each occur at least `least` times in the texts."""
    steps = old.about["pre_tokenizer"]
    merges, scored = "merges" in old.model, isinstance(old.model.get("vocab"), list)
    longest = "max_input_chars_per_word" in old.model  # WordPiece
    if steps is None or not (longest or scored or (merges and old.byte_level)):
        wanted = "WordPiece, byte-level BPE or a unigram model that splits text into words first"
        problem = f"a {old.kind} model{'' if steps else ' without words'} cannot be extended"
        raise DataError("tokenizer", problem, wanted)
    words = _counted(old, texts)
    characters = _alphabet(old, words, least)[:count] if longest else []
    cut = _cut(_with(old, characters), words)
    chooser = Chooser(merges, old.prefix, set(old.pipeline.get_vocab(with_added_tokens=True)), cut)
    chooser.known.update(characters)
    tokens_before = sum(word.count * len(word.pieces) for word in cut)
    added: list[tuple[Candidate, list[str]]] = []
    while len(added) < count - len(characters) and (chosen := chooser.next(least)):
        added.append(chosen)
    tokens_after = sum(word.count * len(word.pieces) for word in chooser.words)
    larger = _with(old, characters, added)
    say(
        f"{len(characters) + len(added):,} pieces added, {len(characters):,} of them letters: "
        f"words of several pieces were {tokens_before:,} tokens and are now {tokens_after:,}"
    )
    return larger


def _counted(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split())
        if len(chunks) > MOST:
            chunks = Counter(dict(chunks.most_common(MOST // 2)))
    words: Counter[str] = Counter()
    pipeline = tokenizer.pipeline
    for chunk, count in chunks.items():
        text = f" {chunk}"  # a space before it, as inside a text
        if pipeline.normalizer is not None:
            text = pipeline.normalizer.normalize_str(text)
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text):
            words[word] += count
    return words


def _alphabet(tokenizer: Tokenizer, words: Counter[str], least: int) -> list[str]:
    """Return the missing single-character pieces without which words are unknown, the most frequent first."""
    known = tokenizer.pipeline.get_vocab(with_added_tokens=True)
    missing: Counter[str] = Counter()
    for word, count in words.items():
        at = 0
        while at < len(word):
            prefix = tokenizer.prefix if at else ""
            end = next((end for end in range(len(word), at, -1) if prefix + word[at:end] in known), at)
            if end == at:
                missing[prefix + word[at]] += count
            at = max(end, at + 1)
    return [
        piece for piece, count in sorted(missing.items(), key=lambda entry: (-entry[1], entry[0])) if count >= least
    ]


def _cut(tokenizer: Tokenizer, words: Counter[str]) -> list[Cut]:
    """Return the most frequent words of several pieces. Words with unknown pieces are left out."""
    cut = []
    for word, count in sorted(words.items(), key=lambda entry: (-entry[1], entry[0])):
        pieces = tokenizer.pipeline.model.tokenize(word)
        if len(pieces) > 1 and all(piece.id != tokenizer.unknown for piece in pieces):
            cut.append(Cut([piece.value for piece in pieces], count))
            if len(cut) == WORDS:
                break
    return cut


def _with(old: Tokenizer, characters: list[str], added: Iterable[tuple[Candidate, list[str]]] = ()) -> Tokenizer:
    from tokenizers import Tokenizer as Pipeline

    added = list(added)
    about: dict[str, Any] = copy.deepcopy(old.about)
    model, names = about["model"], [*characters, *(candidate.piece for candidate, _ in added)]
    special = {entry["id"]: entry["content"] for entry in about["added_tokens"]}
    if isinstance(model["vocab"], list):
        scores = {piece: score for piece, score in model["vocab"]}
        for number in range(len(model["vocab"]), old.vocabulary):  # special tokens after the model's pieces
            model["vocab"].append([special[number], -1e4])
        for candidate, replaced in added:
            scores[candidate.piece] = sum(scores[piece] for piece in replaced) + BETTER
            model["vocab"].append([candidate.piece, scores[candidate.piece]])
    else:
        numbered = set(model["vocab"].values())
        model["vocab"] |= {piece: number for number, piece in special.items() if number not in numbered}
        model["vocab"] |= {piece: old.vocabulary + number for number, piece in enumerate(names)}
    if "merges" in model:
        merges_are_texts = bool(model["merges"]) and isinstance(model["merges"][0], str)
        joined = [candidate.joined for candidate, _ in added]
        model["merges"] += [" ".join(pair) if merges_are_texts else list(pair) for pair in joined]
    larger = Tokenizer(Pipeline.from_str(json.dumps(about)), old.config)
    old_vocabulary, new_vocabulary = (
        tokenizer.pipeline.get_vocab(with_added_tokens=True) for tokenizer in (old, larger)
    )
    moved = [piece for piece, number in old_vocabulary.items() if new_vocabulary.get(piece) != number]
    if moved or larger.vocabulary != old.vocabulary + len(names):
        problem = f"pieces would change their ids: {moved[:3] or names[:3]}"
        raise DataError("tokenizer", problem, "one id for each piece", "fix tokenizer.json")
    return larger
