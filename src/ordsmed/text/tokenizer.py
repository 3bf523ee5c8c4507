"""Tokenizer: text <-> ids, with the ids of special tokens by their roles, and which pieces continue a word.

"The newts" -> encode -> [1996, 25597, 2015] -> piece -> the newt ##s -> continues -> [no, no, yes]
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.keys import value_key
from ordsmed.text import sentencepiece_model, vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers.processors import PostProcessor

Ids = NDArray[np.integer[Any]]
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>", "<UNK>"),
    "start": ("[CLS]", "<s>", "<S>"),
    "stop": ("[SEP]", "</s>", "</S>"),
    "mask": ("[MASK]", "<mask>"),
    "end": (vocabulary.END, "</s>"),
}
CONFIG = {
    "pad": "pad_token",
    "unknown": "unk_token",
    "start": "cls_token",
    "stop": "sep_token",
    "mask": "mask_token",
    "end": "eos_token",
}
FRAMED = "ordsmed_post_processor"  # key of tokenizer_config.json: the post-processor that an export replaced
LETTER, DIGIT, OTHER, WITHIN, NEVER, SPACE, ALONE = 1, 2, 3, 4, 5, 6, 7  # classes of a piece's first and last character


class Tokenizer:
    """A pipeline of the `tokenizers` library together with the roles of its special tokens."""

    def __init__(
        self,
        pipeline: Pipeline,
        config: dict[str, Any] | None = None,
        counts: list[int] | None = None,
        source: bytes | None = None,
    ) -> None:
        pipeline.no_padding()
        pipeline.no_truncation()
        self.pipeline, self.config = pipeline, config or {}
        self.counts = counts  # of each word in the training texts, if known
        self.source = source  # the SentencePiece .model that the pipeline was made from
        self.about: dict[str, Any] = json.loads(pipeline.to_str())
        self.vocabulary: int = max(pipeline.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        added = {entry["id"] for entry in self.about["added_tokens"] if entry["special"]}
        roles = {role: self._role(role, added) for role in ROLES}
        self.pad, self.unknown, self.start = roles["pad"], roles["unknown"], roles["start"]
        self.stop, self.mask, self.end = roles["stop"], roles["mask"], roles["end"]
        self.roles: dict[str, int] = {role: number for role, number in roles.items() if number is not None}
        self.special: frozenset[int] = frozenset(added | set(self.roles.values()))

    @staticmethod
    def load(
        path: str | Path | Sequence[str | Path], *, as_there: bool = False, **options: Unpack[vocabulary.ReadingOptions]
    ) -> Tokenizer:
        """Load from a folder, a file, or files that belong together. `vocabulary.read` documents formats and `options`.

        Args:
            as_there: keep the post-processor of tokenizer.json, which other programs use, instead of the original one.
        """
        paths = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
        pipeline = vocabulary.read(paths, **options)
        described = (paths[0] if paths[0].is_dir() else paths[0].parent) / "tokenizer_config.json"
        known = paths[0].is_dir() or paths[0].name == "tokenizer.json"
        config = files.read_table(described) if known and described.is_file() else None
        if config and (framed := config.pop(FRAMED, None)) and not as_there:
            pipeline.post_processor = _post_processor(framed)
        source = sentencepiece_model.file_of(paths[0])
        counts = vocabulary.read_counts(paths, pipeline)
        return Tokenizer(pipeline, config, counts, source.read_bytes() if source else None)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, its config and the plain vocabulary files, for `AutoTokenizer` and this class."""
        with files.survive_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.pipeline.save(str(folder / "tokenizer.json"))
            if self.kind == "wordpiece" or (self.kind == "bpe" and not self.source):
                self.pipeline.model.save(str(folder))
            if self.source:
                sentencepiece_model.save(self.source, folder)
            if self.whole_words:
                self._save_words(folder)
        files.write_json(folder / "tokenizer_config.json", self._described())

    @property
    def facts(self) -> dict[str, Any]:
        """Return the kind, size and fingerprint that records of runs contain."""
        return {"kind": self.kind, "vocabulary": self.vocabulary, "tokenizer": self.fingerprint}

    @property
    def model(self) -> dict[str, Any]:
        """Return the pipeline's description of its model: type, prefix, pieces."""
        return dict(self.about["model"])

    @property
    def separator(self) -> int | None:
        """Return the id of the token between documents: end-of-text of left-to-right models, else stop."""
        return self.end if self.end is not None else self.stop

    def named(self, key: str) -> int | None:
        """Return the id of the token that tokenizer_config.json names under `key`, or None."""
        token = self.config.get(key)
        token = token.get("content") if isinstance(token, dict) else token
        return self.pipeline.token_to_id(token) if isinstance(token, str) else None

    @property
    def begins_texts(self) -> bool:
        """Return whether a prompt begins with the start token, as `add_bos_token` in tokenizer_config.json says."""
        return bool(self.config.get("add_bos_token", True))

    @property
    def kind(self) -> str:
        """Return the model's type: `wordpiece`, `bpe`, `unigram`, `wordlevel`."""
        return str(self.model["type"]).lower()

    @property
    def prefix(self) -> str:
        """Return the prefix of WordPiece pieces inside a word; empty for other kinds, and for LTG-BERT."""
        sign = self.model.get("continuing_subword_prefix", "##") if self.kind == "wordpiece" else ""
        return str(sign or "")

    @property
    def byte_level(self) -> bool:
        """Return whether pieces are bytes, each written as a letter, as in GPT-2."""
        return any(step["type"] == "ByteLevel" for step in _parts(self.about["pre_tokenizer"]))

    @property
    def sentencepiece(self) -> bool:
        """Return whether pieces write a space as SentencePiece does."""
        steps = _parts(self.about["pre_tokenizer"])
        return self.kind in ("unigram", "bpe") and any(step["type"] == "Metaspace" for step in steps)

    @property
    def whole_words(self) -> bool:
        """Return whether every entry is a word except <S>, </S> and <UNK>. A store then keeps unknown words apart."""
        steps = self.about["pre_tokenizer"] or {"type": ""}
        cut = self.kind == "wordlevel" and steps["type"] in ("WhitespaceSplit", "Split")
        return cut and all(sign in self.about["model"]["vocab"] for sign in vocabulary.SIGNS)

    def words(self, text: str) -> list[str]:
        """Return the words of the text before they are looked up."""
        if self.pipeline.normalizer is not None:
            text = self.pipeline.normalizer.normalize_str(text)
        return [word for word, _ in self.pipeline.pre_tokenizer.pre_tokenize_str(text)]

    @functools.cached_property
    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that are equal for tokenizers that give every text equal ids."""
        known = {k: v for k, v in self.about.items() if k not in ("version", "truncation", "padding")}
        return value_key(_without_nulls(known), 16, any_order=True)

    @functools.cached_property
    def cutting(self) -> str:
        """Return 16 hexadecimal digits that are equal for tokenizers that cut every text into equal pieces.

        Special tokens around a text do not count.
        """
        parts = [self.about[part] for part in ("normalizer", "pre_tokenizer", "model")]
        return value_key(_without_nulls(parts), 16, any_order=True)

    @property
    def lowercase(self) -> bool:
        steps = _parts(self.about["normalizer"])
        if any(step["type"] == "Precompiled" for step in steps):  # SentencePiece's rules
            return bool(self.pipeline.normalizer.normalize_str("A") == "a")
        return any(step.get("lowercase") or step["type"] == "Lowercase" for step in steps)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of a text in which names such as [MASK] mean the token. `special`: add special tokens."""
        return self.pipeline.encode(text, add_special_tokens=special).ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of texts in which names such as [MASK] are ordinary text, without special tokens."""
        return [
            np.asarray(e.ids, np.int32) for e in self.plain.encode_batch_fast(list(texts), add_special_tokens=False)
        ]

    @functools.cached_property
    def plain(self) -> Pipeline:
        """The pipeline for corpora: the names of special tokens are ordinary text."""
        from tokenizers import Tokenizer as Pipeline

        about = self.pipeline.to_str()
        if self.whole_words:  # special tokens get a space, which no word has, so that the word <S> is not one
            hidden = {f" {word}" if n in self.special else word: n for word, n in self.model["vocab"].items()}
            model = self.model | {"vocab": hidden, "unk_token": " <UNK>"}
            about = json.dumps(self.about | {"added_tokens": [], "model": model})
        elif self.sentencepiece and all(entry["special"] for entry in self.about["added_tokens"]):
            about = json.dumps(self.about | {"added_tokens": [], "model": self._nameless()})
        copy = Pipeline.from_str(about)
        copy.encode_special_tokens = True
        return copy

    def _nameless(self) -> dict[str, Any]:
        """Return the model with a space before the names of special tokens, so that no normalized text matches them."""
        model, pieces = self.model, self.about["model"]["vocab"]
        if self.kind == "unigram":
            hidden = [[f" {piece}" if n in self.special else piece, score] for n, (piece, score) in enumerate(pieces)]
            return model | {"vocab": hidden}
        unknown = f" {name}" if (name := model["unk_token"]) and pieces.get(name) in self.special else name
        vocabulary = {f" {piece}" if n in self.special else piece: n for piece, n in pieces.items()}
        return model | {"vocab": vocabulary, "unk_token": unknown}

    def decode(self, ids: Sequence[int] | Ids, skip_special: bool = True) -> str:
        return self.pipeline.decode([int(i) for i in ids], skip_special_tokens=skip_special)

    def piece(self, number: int) -> str:
        piece = self.pipeline.id_to_token(int(number))
        if piece is None:
            raise DataError("tokenizer", f"no piece {number}", f"0 to {self.vocabulary - 1}")
        return piece

    def listed(self) -> str:
        """Return all pieces in the order of their ids, one per line."""
        return "".join(f"{self.piece(number)}\n" for number in range(self.vocabulary))

    def save_byte_level(self, pieces: Path, merges: Path) -> None:
        """Write GPT-2's two files: the pieces with their ids, and the merges in order."""
        known = self.pipeline.get_vocab(with_added_tokens=True)
        files.write_json(pieces, dict(sorted(known.items(), key=lambda pair: pair[1])))
        files.write_text(merges, "#version: 0.2\n" + "".join(f"{pair}\n" for pair in self.merges()))

    def merges(self) -> list[str]:
        return [pair if isinstance(pair, str) else " ".join(pair) for pair in self.model["merges"]]

    @property
    def rewrites(self) -> bool:
        """Return whether a piece changes how earlier text is decoded: WordPiece drops spaces before punctuation."""
        return self.kind == "wordpiece"

    def joins(self, number: int) -> bool:
        """Return whether a piece is decoded without a space before it."""
        piece = self.piece(number)
        if self.prefix:
            return piece.startswith(self.prefix)
        return not piece.startswith(("\u0120", "\u2581"))  # the space of byte-level pieces and of SentencePiece

    def continues(self, ids: Ids, *, blanks: bool = False) -> NDArray[np.bool_]:
        """Return True where a piece continues the word before it; never in the first column, never at a special token.

        `blanks`: a space that is a byte-level piece of its own belongs to the word after it, as the tokenizer cut it.
        Without `blanks`, as for masks in training, it is a word.
        """
        first, last = self._borders
        goes_on = first[ids] == WITHIN
        goes_on[..., 1:] |= first[ids[..., 1:]] == last[ids[..., :-1]]
        if blanks:
            goes_on[..., 1:] |= (last[ids[..., :-1]] == ALONE) & (first[ids[..., 1:]] != SPACE)
        goes_on[..., :1] = False
        return goes_on

    @functools.cached_property
    def _borders(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Classes of each piece's first character (WITHIN: the piece always continues a word) and last character."""
        first, last = np.full(self.vocabulary, SPACE, np.uint8), np.full(self.vocabulary, NEVER, np.uint8)
        border = self._border()
        for piece, number in self.pipeline.get_vocab(with_added_tokens=True).items():
            if number not in self.special:
                first[number], last[number] = border(piece)
        return first, last

    def _border(self) -> Callable[[str], tuple[int, int]]:
        if self.byte_level:
            return _byte_border
        steps = _parts(self.about["pre_tokenizer"])
        space = next((step["replacement"] for step in steps if step["type"] == "Metaspace"), None)
        if space:
            return lambda piece: (SPACE if piece.startswith(space) else WITHIN, NEVER)
        if self.whole_words:
            return lambda piece: (SPACE, NEVER)
        prefix = self.prefix or "##"
        return lambda piece: (WITHIN if piece.startswith(prefix) else SPACE, NEVER)

    def _save_words(self, folder: Path) -> None:
        entries = sorted(self.model["vocab"], key=self.model["vocab"].__getitem__)
        files.write_text(folder / "vocab.txt", "".join(f"{word}\n" for word in entries))
        (folder / vocabulary.COUNTS).unlink(missing_ok=True)  # it may be of another vocabulary
        if self.counts is not None:
            lines = (f"{word}\t{count}\n" for word, count in zip(entries, self.counts, strict=True))
            files.write_text(folder / vocabulary.COUNTS, "".join(lines))

    def _role(self, role: str, added: set[int]) -> int | None:
        """Return the id of a role, from the config or a known name. Registered special tokens come first."""
        known = [self.named(CONFIG[role]), *(self.pipeline.token_to_id(name) for name in ROLES[role])]
        numbers = [number for number in known if number is not None]
        return next((n for n in numbers if n in added), next(iter(numbers), None))

    def _described(self) -> dict[str, Any]:
        names = {role: self.piece(number) for role, number in self.roles.items()}
        settings = {CONFIG[role]: name for role, name in names.items()}
        if self.end is not None:
            settings["bos_token"] = names["start"] if "start" in names else names["end"]
        bert = self.kind == "wordpiece" or (self.source is not None and names.get("start") == "[CLS]")
        types = ["token_type_ids"] if bert else []
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", *types, "attention_mask"],
            "clean_up_tokenization_spaces": False,
            **settings,
        }


@functools.cache
def byte_of() -> dict[str, int]:
    """Return the byte of each letter in byte-level pieces: GPT-2's table, in which a printable byte is its own
    letter.
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def _byte_border(piece: str) -> tuple[int, int]:
    """Return the classes of the first and last character. A piece that begins inside a character continues a word."""
    table = byte_of()
    raw = bytes(table.get(letter, 63) for letter in piece)
    text = raw.decode("utf-8", "surrogateescape")  # bytes of a broken character become lone surrogates
    first = WITHIN if 0x80 <= raw[0] < 0xC0 else _class(text[0])
    last = _class(text[-1])
    return first, ALONE if text == " " else NEVER if last == SPACE else last


def _class(character: str) -> int:
    if character.isspace():
        return SPACE
    half = "\udc80" <= character <= "\udcff"  # most characters of several bytes are letters
    return LETTER if half or character.isalpha() else DIGIT if character.isnumeric() else OTHER


def _post_processor(described: dict[str, Any] | None) -> PostProcessor:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers.models import WordLevel

    about = json.loads(Pipeline(WordLevel({"": 0}, "")).to_str())
    return Pipeline.from_str(json.dumps(about | {"post_processor": described})).post_processor


def _parts(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    if not step:
        return []
    inner = step.get("normalizers") or step.get("pretokenizers")
    return [part for s in inner for part in _parts(s)] if inner else [step]


def _without_nulls(value: object) -> object:
    """Return the value without nulls, so that a new field in a newer library changes no fingerprint."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
