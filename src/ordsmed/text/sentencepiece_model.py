"""SentencePiece's .model, read without its library, and the pipeline of `tokenizers` that gives its ids.

pieces with scores and kinds, how texts are normalized -> Unigram or BPE, behind normalizers that follow its rules
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.binary import proto
from ordsmed.base.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

MODEL, LIST = "spiece.model", "spiece.vocab"  # beside a tokenizer.json that was made of them
NAMES = (MODEL, "tokenizer.model", "sentencepiece.bpe.model", "spm.model")  # as others call it
SPACE = "\u2581"  # as a blank is written in pieces
NORMAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = range(1, 7)  # kinds of pieces
TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
WANTED = "a SentencePiece .model, unigram or BPE"
MASKS = ("<mask>", "[MASK]")
NODES = 4_096  # of a table, walked at once
RULES = 1_000  # that a pipeline may spell out beside the usual ones
_MARK = "\U000e01ef"  # invisible; before each mark it makes `tokenizers` normalize characters one by one
_GONE = "\U000e01ee"  # for what is left out: `tokenizers` panics where a text begins with it; and no mark joins over it
_MARKED = r"(?<=[\s\S])(?=[\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}]|(?<=\r)\n)"


@dataclass(frozen=True)
class SentencePieceModel:
    """What a .model holds that decides about ids."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    kinds: tuple[int, ...]
    type: str  # unigram, bpe
    byte_fallback: bool
    charsmap: bytes  # rules of normalization; none where texts stay as they are
    prefix: bool  # is a blank put before a text?
    squeeze: bool  # are blanks at the ends, and behind a blank, left out?

    def names(self, *kinds: int) -> list[str]:
        """The pieces of these kinds, in their order."""
        return [piece for piece, kind in zip(self.pieces, self.kinds, strict=True) if kind in kinds]


def file_of(path: Path) -> Path | None:
    """The .model that a path means: the file, the one beside its .vocab, or what a folder holds of that name."""
    if path.suffix == ".vocab":
        return path.with_suffix(".model")
    if path.suffix == ".model":
        return path
    folder = path if path.is_dir() else path.parent
    alone = path.is_dir() and not (path / "tokenizer.json").is_file()
    names = NAMES if alone else (MODEL,) if path.is_dir() or path.name == "tokenizer.json" else ()
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read(path: Path) -> SentencePieceModel:
    """A .model, whole or not at all."""
    try:
        return parsed(path.read_bytes(), path)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}", WANTED) from None


def save(data: bytes, folder: Path) -> None:
    """The .model and the list of its pieces with their scores, as SentencePiece writes them."""
    model = parsed(data, folder)
    with files.writing(folder / MODEL) as file:
        file.write(data)
    lines = (f"{piece}\t{score:g}\n" for piece, score in zip(model.pieces, model.scores, strict=True))
    files.write_text(folder / LIST, "".join(lines))


def parsed(data: bytes, place: object) -> SentencePieceModel:
    """The bytes of a .model."""
    try:
        pieces, trainer, normalizer = _fields(memoryview(data))
    except (proto.Torn, UnicodeDecodeError, KeyError, TypeError, struct.error) as error:
        raise DataError(place, f"is no whole SentencePiece model: {error}", WANTED, "copy it again") from None
    if not pieces or not normalizer:
        lacks = "pieces" if not pieces else "how texts are normalized"
        raise DataError(place, f"is no whole SentencePiece model: it lacks {lacks}", WANTED, "copy it again")
    kind = TYPES.get(int(trainer.get(3, 1)), str(trainer.get(3)))
    names, scores, kinds = zip(*pieces, strict=True)
    _check(place, kind, names, kinds, bool(trainer.get(24)), bool(normalizer.get(5, 1)))
    byte_fallback, charsmap = bool(trainer.get(35)), bytes(normalizer.get(2, b""))
    prefix, squeeze = bool(normalizer.get(3, 1)), bool(normalizer.get(4, 1))
    return SentencePieceModel(names, scores, kinds, kind, byte_fallback, charsmap, prefix, squeeze)


def _fields(data: memoryview) -> tuple[list[tuple[str, float, int]], dict[int, Any], dict[int, Any]]:
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in proto.fields(data):
        if number == 1:
            entry: dict[int, Any] = proto.table(value)  # type: ignore[arg-type]
            score = struct.unpack("<f", struct.pack("<I", entry.get(2, 0)))[0]
            pieces.append((bytes(entry[1]).decode(), score, int(entry.get(3, NORMAL))))
        elif number == 2:
            trainer = dict(proto.table(value))  # type: ignore[arg-type]
        elif number == 3:
            normalizer = dict(proto.table(value))  # type: ignore[arg-type]
    return pieces, trainer, normalizer


def _check(place: object, kind: str, names: tuple[str, ...], kinds: tuple[int, ...], suffix: bool, sign: bool) -> None:
    """Refuse what no pipeline here can do."""
    if kind not in ("unigram", "bpe"):
        raise DataError(place, f"is a SentencePiece model of the type {kind}", "unigram or bpe", "train one of these")
    if kinds.count(UNKNOWN) != 1:
        raise DataError(place, f"has {kinds.count(UNKNOWN)} pieces for what is unknown", "one")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(place, f"has the piece {twice[0]!r} twice", "each once")
    if suffix or not sign:
        wrong = "puts the sign of a blank behind words" if suffix else "writes no sign for a blank"
        raise DataError(place, wrong, f"{SPACE} before words, as SentencePiece does if not told otherwise")
    if kind == "bpe" and UNUSED in kinds:
        raise DataError(place, "has unused pieces in a BPE model", "a model as it was trained")


def pipeline(model: SentencePieceModel, place: object = "tokenizer", special: tuple[str, ...] = ()) -> Pipeline:
    """The same ids by the `tokenizers` library, but for ties of unigram; more special tokens come behind."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    unknown = model.kinds.index(UNKNOWN)
    if model.type == "unigram":
        # an unused piece gets a blank before it, which no text has by then
        pieces = (f" {p}" if kind == UNUSED else p for p, kind in zip(model.pieces, model.kinds, strict=True))
        entries = list(zip(pieces, _scores(model), strict=True))
        tokenizer = Tokenizer(models.Unigram(entries, unknown, model.byte_fallback))
    else:
        vocabulary = {piece: number for number, piece in enumerate(model.pieces)}
        has_user_defined = bool(model.names(OWN))
        tokenizer = Tokenizer(
            models.BPE(
                vocabulary, list(_merges(model)), unk_token=model.pieces[unknown], fuse_unk=True,
                byte_fallback=model.byte_fallback, ignore_merges=has_user_defined,
            )
        )  # fmt: skip
    tokenizer.normalizer = _normalizer(model, place)
    tokenizer.pre_tokenizer = _pre_tokenizer(model)
    blank = decoders.Replace(SPACE, " ")
    ends = [decoders.Strip(" ", 1, 0)] if model.prefix else []
    tokenizer.decoder = decoders.Sequence([blank, decoders.ByteFallback(), decoders.Fuse(), *ends])
    names = [*model.names(UNKNOWN, CONTROL), *special]
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name in MASKS, special=True, normalized=True) for name in dict.fromkeys(names)]
    )
    _frame(tokenizer)
    return tokenizer


def _frame(tokenizer: Pipeline) -> None:
    """Signs around one text and two: BERT's or RoBERTa's, where the vocabulary has them."""
    from tokenizers import processors

    known = tokenizer.get_vocab(with_added_tokens=True)
    for start, stop, between in (("[CLS]", "[SEP]", ""), ("<s>", "</s>", "</s> ")):
        if start in known and stop in known:
            types = ":1" if start == "[CLS]" else ""
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{start} $A {stop}",
                pair=f"{start} $A {stop} {between}$B{types} {stop}{types}",
                special_tokens=[(start, known[start]), (stop, known[stop])],
            )
            return


def _scores(model: SentencePieceModel) -> Iterator[float]:
    """What counts for the library: own pieces, which stand alone, first; bytes, which no text spells, far below."""
    least = min((score for score, kind in zip(model.scores, model.kinds, strict=True) if kind == NORMAL), default=0.0)
    fixed = {OWN: 0.0, BYTE: least - 100.0, UNUSED: least, CONTROL: least, UNKNOWN: least}
    for score, kind in zip(model.scores, model.kinds, strict=True):
        yield float(f"{fixed.get(kind, score):.9g}")  # float32 in so few digits that tokenizer.json reads back equal


def _merges(model: SentencePieceModel) -> Iterator[tuple[str, str]]:
    """All pairs of pieces that make a piece, the best first, as SentencePiece joins whatever is in its list."""
    entries = zip(model.pieces, model.scores, model.kinds, strict=True)
    usable = {piece: score for piece, score, kind in entries if kind == NORMAL}
    for piece, _ in sorted(usable.items(), key=lambda pair: -pair[1]):
        for at in range(1, len(piece)):
            if piece[:at] in usable and piece[at:] in usable:
                yield piece[:at], piece[at:]


def _pre_tokenizer(model: SentencePieceModel) -> PreTokenizer:
    """Blanks become signs, one before the text; own pieces stand alone; words apart where no piece spans two."""
    from tokenizers import Regex, pre_tokenizers

    user_defined = sorted(model.names(OWN), key=len, reverse=True)
    usable = model.names(NORMAL)
    spans = any(SPACE in piece[1:] for piece in usable) or any(SPACE in piece for piece in user_defined)
    apart = SPACE in usable and not spans
    sign = pre_tokenizers.Metaspace(SPACE, "first" if model.prefix else "never", split=apart)
    steps: list[Any] = [sign]
    if model.type == "unigram" and model.byte_fallback:  # what spells a byte's piece in a text is no byte
        steps.append(pre_tokenizers.Split(Regex("<(?=0x[0-9A-F]{2}>)"), "merged_with_previous"))
    if user_defined:
        steps.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, user_defined))), "isolated"))
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


def _normalizer(model: SentencePieceModel, place: object) -> Normalizer:
    from tokenizers import Regex, normalizers

    replace = normalizers.Replace
    steps: list[Any] = _by_rules(model.charsmap, place) if model.charsmap else []
    doubled = [replace(Regex(rf"\A(?=[ {SPACE}])"), " ")] if model.prefix and not model.squeeze else []
    # The sign before a text is put where nothing was left out: a blank there leads to it too.
    gone = [replace(Regex(rf"\A{_GONE}+"), " ")] if model.prefix else []
    steps += [*doubled, *gone, replace(_GONE, "")] if model.charsmap else doubled
    if model.squeeze:
        steps += [replace(Regex(rf"[ {SPACE}]+\z"), ""), replace(Regex(" {2,}"), " ")]
        steps.append(replace(Regex(rf"\A(?={SPACE})"), " ") if model.prefix else replace(Regex(r"\A "), ""))
    normalizer = normalizers.Sequence(steps)
    for name in (name.replace(SPACE, " ").strip() for name in model.names(OWN)):
        if normalizer.normalize_str(name).strip() != name:
            raise DataError(place, f"normalizes its own piece {name!r} away", "pieces that stay as they are")
    return normalizer


def _by_rules(charsmap: bytes, place: object) -> list[Any]:
    """Characters one by one by the table, then what it does with sequences: Unicode's composition, and the rest."""
    from tokenizers import Regex, normalizers

    rules = rules_of(charsmap, place)
    first = {key[0] for key in rules if len(key) > 1}
    gone = _class([key for key, value in rules.items() if len(key) == 1 and not value])
    able = {key for key, value in rules.items() if len(key) == 1 and value} - first
    alone = _class(sorted(key for key in able if unicodedata.category(key)[0] != "M"))
    rules = {key: value for key, value in rules.items() if len(key) > 1}
    single = [
        normalizers.Replace(Regex(gone), _GONE),
        normalizers.Replace(Regex(rf"(?=\p{{M}})(?<={alone})"), _GONE),
        normalizers.Replace(Regex(_MARKED), _MARK),
        normalizers.Precompiled(charsmap),
        normalizers.Replace(_MARK, ""),
    ]
    best: tuple[list[Any], dict[str, str]] | None = None
    for steps in ([*single, normalizers.NFC()], single):
        odd = _unlike(normalizers.Sequence(steps), rules)
        if best is None or len(odd) < len(best[1]):
            best = steps, odd
        if not odd:
            break
    assert best is not None
    if len(best[1]) > RULES:
        raise DataError(place, f"has {len(best[1]):,} rules of normalization of its own", f"{RULES:,} at most")
    longest_first = sorted(best[1].items(), key=lambda rule: (-len(rule[0]), rule[0]))
    return best[0] + [normalizers.Replace(key, value) for key, value in longest_first]


def _class(characters: list[str]) -> str:
    """One of these letters, for a regular expression; of none, what no text has."""
    return "[" + ("".join(rf"\x{{{ord(character):x}}}" for character in characters) or _GONE) + "]"


def _unlike(normalizer: Normalizer, rules: dict[str, str]) -> dict[str, str]:
    """The rules that a normalizer does not follow; all are asked at once."""
    between = "\u0378"  # no character
    done = normalizer.normalize_str(between.join(rules)).split(between)
    if len(done) != len(rules):
        done = [normalizer.normalize_str(key) for key in rules]
    return {key: value for (key, value), text in zip(rules.items(), done, strict=True) if text != value}


def rules_of(charsmap: bytes, place: object) -> dict[str, str]:
    """What becomes of which characters: the table's double array walked from its root."""
    size = int.from_bytes(charsmap[:4], "little")
    texts = charsmap[4 + size :]
    rules: dict[str, str] = {}
    try:
        units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
        waiting = [(_offset(units[:1]), [b""])]
        while waiting:
            offsets, above = waiting.pop()
            children = offsets[:, None] ^ np.arange(256)
            known = units[np.minimum(children, len(units) - 1)]
            mother, byte = np.nonzero((known & 0x800000FF == np.arange(256)) & (children < len(units)))
            mother, byte = mother[byte > 0], byte[byte > 0]
            child = children[mother, byte]
            keys = [above[m] + bytes((c,)) for m, c in zip(mother.tolist(), byte.tolist(), strict=True)]
            inner = child ^ _offset(units[child])
            for n in np.flatnonzero(units[child] >> 8 & 1).tolist():
                first = int(units[inner[n]]) & 0x7FFFFFFF
                rules[keys[n].decode()] = texts[first : texts.index(0, first)].decode()
            waiting += [(inner[at : at + NODES], keys[at : at + NODES]) for at in range(0, len(keys), NODES)]
    except (IndexError, ValueError) as error:
        raise DataError(place, f"holds a broken table of normalization: {error}", WANTED, "copy it again") from None
    return rules


def _offset(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return (units >> 10) << ((units & 0x200) >> 6)
