"""Read SentencePiece's .model without its library, and build the `tokenizers` pipeline that gives the same ids.

pieces with scores and kinds, normalization rules -> Unigram or BPE after normalizers that follow the rules
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

MODEL, LIST = "spiece.model", "spiece.vocab"  # next to a tokenizer.json that was made from them
NAMES = (MODEL, "tokenizer.model", "sentencepiece.bpe.model", "spm.model")  # names that other programs use
SPACE = "\u2581"  # a space in pieces
# kinds of pieces; OWN: user-defined symbols
NORMAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = range(1, 7)
TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
WANTED = "a SentencePiece .model, unigram or BPE"
MASKS = ("<mask>", "[MASK]")
NODES = 4_096  # nodes of the rule table that are visited at once
RULES = 1_000  # most rules that a pipeline applies in addition to the usual ones
_MARK = "\U000e01ef"  # invisible; before each combining mark, it makes `tokenizers` normalize characters separately
# replaces removed characters: `tokenizers` panics if a text begins with one, and combining marks do not join across it
_GONE = "\U000e01ee"
_MARKED = r"(?<=[\s\S])(?=[\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}]|(?<=\r)\n)"


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a .model that determine ids."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    kinds: tuple[int, ...]
    type: str  # unigram, bpe
    byte_fallback: bool
    charsmap: bytes  # normalization rules; empty if texts are not normalized
    prefix: bool  # whether a space is put before a text
    remove_extra_whitespaces: bool  # whether spaces at the ends and repeated spaces are dropped

    def names(self, *kinds: int) -> list[str]:
        return [piece for piece, kind in zip(self.pieces, self.kinds, strict=True) if kind in kinds]


def file_of(path: Path) -> Path | None:
    """Return the .model of a path: the file itself, the one next to a .vocab, or one with a known name in a folder."""
    if path.suffix == ".vocab":
        return path.with_suffix(".model")
    if path.suffix == ".model":
        return path
    folder = path if path.is_dir() else path.parent
    is_model_folder = path.is_dir() and not (path / "tokenizer.json").is_file()
    names = NAMES if is_model_folder else (MODEL,) if path.is_dir() or path.name == "tokenizer.json" else ()
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read(path: Path) -> SentencePieceModel:
    try:
        return parsed(path.read_bytes(), path)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}", WANTED) from None


def save(data: bytes, folder: Path) -> None:
    """Write the .model, and the list of its pieces and scores in SentencePiece's format."""
    model = parsed(data, folder)
    with files.writing(folder / MODEL) as file:
        file.write(data)
    lines = (f"{piece}\t{score:g}\n" for piece, score in zip(model.pieces, model.scores, strict=True))
    files.write_text(folder / LIST, "".join(lines))


def parsed(data: bytes, location: object) -> SentencePieceModel:
    """Parse the bytes of a .model. `location` names it in errors."""
    try:
        pieces, trainer, normalizer = _fields(memoryview(data))
    except (proto.Torn, UnicodeDecodeError, KeyError, TypeError, struct.error) as error:
        raise DataError(location, f"is not a complete SentencePiece model: {error}", WANTED, "copy it again") from None
    if not pieces or not normalizer:
        missing = "pieces" if not pieces else "normalizer"
        raise DataError(
            location, f"is not a complete SentencePiece model: it has no {missing}", WANTED, "copy it again"
        )
    kind = TYPES.get(int(trainer.get(3, 1)), str(trainer.get(3)))
    names, scores, kinds = zip(*pieces, strict=True)
    _check(location, kind, names, kinds, bool(trainer.get(24)), bool(normalizer.get(5, 1)))
    byte_fallback, charsmap = bool(trainer.get(35)), bytes(normalizer.get(2, b""))
    prefix, remove_extra_whitespaces = bool(normalizer.get(3, 1)), bool(normalizer.get(4, 1))
    return SentencePieceModel(names, scores, kinds, kind, byte_fallback, charsmap, prefix, remove_extra_whitespaces)


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


def _check(
    location: object, kind: str, names: tuple[str, ...], kinds: tuple[int, ...], suffix: bool, sign: bool
) -> None:
    """Raise DataError for a model that no `tokenizers` pipeline can reproduce."""
    if kind not in ("unigram", "bpe"):
        raise DataError(
            location, f"is a SentencePiece model of the type {kind}", "unigram or bpe", "train one of these"
        )
    if kinds.count(UNKNOWN) != 1:
        raise DataError(location, f"has {kinds.count(UNKNOWN)} unknown pieces", "one")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(location, f"has the piece {twice[0]!r} twice", "each once")
    if suffix or not sign:
        wrong = "marks spaces after words" if suffix else "does not mark spaces"
        raise DataError(location, wrong, f"{SPACE} before words, SentencePiece's default")
    if kind == "bpe" and UNUSED in kinds:
        raise DataError(location, "has unused pieces in a BPE model", "a model as it was trained")


def pipeline(model: SentencePieceModel, location: object = "tokenizer", special: tuple[str, ...] = ()) -> Pipeline:
    """Return a pipeline with the same ids, except for ties of unigram. `special` tokens come after the pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    unknown = model.kinds.index(UNKNOWN)
    if model.type == "unigram":
        # a space before an unused piece: no normalized text contains a space, so the piece never matches
        pieces = (f" {p}" if kind == UNUSED else p for p, kind in zip(model.pieces, model.kinds, strict=True))
        entries = list(zip(pieces, _scores(model), strict=True))
        tokenizer = Tokenizer(models.Unigram(entries, unknown, model.byte_fallback))
    else:
        vocabulary = {piece: number for number, piece in enumerate(model.pieces)}
        has_user_defined = bool(model.names(OWN))
        tokenizer = Tokenizer(
            models.BPE(
                vocabulary,
                list(_merges(model)),
                unk_token=model.pieces[unknown],
                fuse_unk=True,
                byte_fallback=model.byte_fallback,
                ignore_merges=has_user_defined,
            )
        )
    tokenizer.normalizer = _normalizer(model, location)
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
    """Yield the scores for `tokenizers`. User-defined pieces, which the pre-tokenizer isolates, get the best score.

    Byte pieces, which are not in texts, get a score far below all others.
    """
    least = min((score for score, kind in zip(model.scores, model.kinds, strict=True) if kind == NORMAL), default=0.0)
    fixed = {OWN: 0.0, BYTE: least - 100.0, UNUSED: least, CONTROL: least, UNKNOWN: least}
    for score, kind in zip(model.scores, model.kinds, strict=True):
        # nine digits of a float32, so that tokenizer.json reads back equal
        yield float(f"{fixed.get(kind, score):.9g}")


def _merges(model: SentencePieceModel) -> Iterator[tuple[str, str]]:
    """Yield all pairs of pieces that form a piece, the best first: SentencePiece merges every such pair."""
    entries = zip(model.pieces, model.scores, model.kinds, strict=True)
    usable = {piece: score for piece, score, kind in entries if kind == NORMAL}
    for piece, _ in sorted(usable.items(), key=lambda pair: -pair[1]):
        for at in range(1, len(piece)):
            if piece[:at] in usable and piece[at:] in usable:
                yield piece[:at], piece[at:]


def _pre_tokenizer(model: SentencePieceModel) -> PreTokenizer:
    """Replace spaces by U+2581, one before the text; isolate user-defined pieces; split words if no piece spans two."""
    from tokenizers import Regex, pre_tokenizers

    user_defined = sorted(model.names(OWN), key=len, reverse=True)
    usable = model.names(NORMAL)
    spans = any(SPACE in piece[1:] for piece in usable) or any(SPACE in piece for piece in user_defined)
    split_words = SPACE in usable and not spans
    sign = pre_tokenizers.Metaspace(SPACE, "first" if model.prefix else "never", split=split_words)
    steps: list[Any] = [sign]
    if model.type == "unigram" and model.byte_fallback:  # the text "<0x41>" must not match the byte piece
        steps.append(pre_tokenizers.Split(Regex("<(?=0x[0-9A-F]{2}>)"), "merged_with_previous"))
    if user_defined:
        steps.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, user_defined))), "isolated"))
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


def _normalizer(model: SentencePieceModel, location: object) -> Normalizer:
    from tokenizers import Regex, normalizers

    replace = normalizers.Replace
    steps: list[Any] = _by_rules(model.charsmap, location) if model.charsmap else []
    doubled = [replace(Regex(rf"\A(?=[ {SPACE}])"), " ")] if model.prefix and not model.remove_extra_whitespaces else []
    # Removed characters at the start become a space, because U+2581 is only put before a text that has kept its start.
    restore_start = [replace(Regex(rf"\A{_GONE}+"), " ")] if model.prefix else []
    steps += [*doubled, *restore_start, replace(_GONE, "")] if model.charsmap else doubled
    if model.remove_extra_whitespaces:
        steps += [replace(Regex(rf"[ {SPACE}]+\z"), ""), replace(Regex(" {2,}"), " ")]
        steps.append(replace(Regex(rf"\A(?={SPACE})"), " ") if model.prefix else replace(Regex(r"\A "), ""))
    normalizer = normalizers.Sequence(steps)
    for name in (name.replace(SPACE, " ").strip() for name in model.names(OWN)):
        if normalizer.normalize_str(name).strip() != name:
            raise DataError(
                location, f"its normalization changes its own piece {name!r}", "pieces that are not changed"
            )
    return normalizer


def _by_rules(charsmap: bytes, location: object) -> list[Any]:
    """Return normalizers: the table for single characters, NFC, and explicit replacements of sequences."""
    from tokenizers import Regex, normalizers

    rules = rules_of(charsmap, location)
    first = {key[0] for key in rules if len(key) > 1}
    removed = _class([key for key, value in rules.items() if len(key) == 1 and not value])
    able = {key for key, value in rules.items() if len(key) == 1 and value} - first
    characters = _class(sorted(key for key in able if unicodedata.category(key)[0] != "M"))
    rules = {key: value for key, value in rules.items() if len(key) > 1}
    single = [
        normalizers.Replace(Regex(removed), _GONE),
        normalizers.Replace(Regex(rf"(?=\p{{M}})(?<={characters})"), _GONE),
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
        raise DataError(location, f"has {len(best[1]):,} normalization rules of its own", f"{RULES:,} at most")
    longest_first = sorted(best[1].items(), key=lambda rule: (-len(rule[0]), rule[0]))
    return best[0] + [normalizers.Replace(key, value) for key, value in longest_first]


def _class(characters: list[str]) -> str:
    """Return a regular expression for one of these characters; for none, a character that no text contains."""
    return "[" + ("".join(rf"\x{{{ord(character):x}}}" for character in characters) or _GONE) + "]"


def _unlike(normalizer: Normalizer, rules: dict[str, str]) -> dict[str, str]:
    between = "\u0378"  # an unassigned code point
    done = normalizer.normalize_str(between.join(rules)).split(between)
    if len(done) != len(rules):
        done = [normalizer.normalize_str(key) for key in rules]
    return {key: value for (key, value), text in zip(rules.items(), done, strict=True) if text != value}


def rules_of(charsmap: bytes, location: object) -> dict[str, str]:
    """Return the replacement of each character sequence, by walking the double array of the table from its root."""
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
            parent, byte = np.nonzero((known & 0x800000FF == np.arange(256)) & (children < len(units)))
            parent, byte = parent[byte > 0], byte[byte > 0]
            child = children[parent, byte]
            keys = [above[m] + bytes((c,)) for m, c in zip(parent.tolist(), byte.tolist(), strict=True)]
            inner = child ^ _offset(units[child])
            for n in np.flatnonzero(units[child] >> 8 & 1).tolist():
                first = int(units[inner[n]]) & 0x7FFFFFFF
                rules[keys[n].decode()] = texts[first : texts.index(0, first)].decode()
            waiting += [(inner[at : at + NODES], keys[at : at + NODES]) for at in range(0, len(keys), NODES)]
    except (IndexError, ValueError) as error:
        raise DataError(location, f"holds a broken table of normalization: {error}", WANTED, "copy it again") from None
    return rules


def _offset(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return (units >> 10) << ((units & 0x200) >> 6)
