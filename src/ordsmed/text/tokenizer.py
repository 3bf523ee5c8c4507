"""Tokenizer: text <-> ids, with the special ids by their roles, and where words begin.

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
CONFIG = {"pad": "pad_token", "unknown": "unk_token", "start": "cls_token", "stop": "sep_token", "mask": "mask_token",
          "end": "eos_token"}  # fmt: skip
FRAMED = "ordsmed_post_processor"  # in tokenizer_config.json: that of a tokenizer to which an export gave another
LETTER, DIGIT, OTHER, WITHIN, NEVER, SPACE, ALONE = 1, 2, 3, 4, 5, 6, 7  # classes of a piece's first and last character


class Tokenizer:
    """A pipeline of the `tokenizers` library whose special tokens are known by what they do."""

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
        self.counts = counts  # how often each word was seen, where that is known
        self.source = source  # the SentencePiece .model that it was made of
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
        path: str | Path | Sequence[str | Path], *, as_there: bool = False, **how: Unpack[vocabulary.ReadingOptions]
    ) -> Tokenizer:
        """From a folder, a file, or files that belong together; see `vocabulary.read` for the kinds and for `how`.

        Args:
            as_there: with the signs around a text that others read in a folder of ours.
        """
        paths = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
        pipeline = vocabulary.read(paths, **how)
        described = (paths[0] if paths[0].is_dir() else paths[0].parent) / "tokenizer_config.json"
        known = paths[0].is_dir() or paths[0].name == "tokenizer.json"
        config = files.read_table(described) if known and described.is_file() else None
        if config and (framed := config.pop(FRAMED, None)) and not as_there:
            pipeline.post_processor = _post_processor(framed)
        source = sentencepiece_model.file_of(paths[0])
        counts = vocabulary.read_counts(paths, pipeline)
        return Tokenizer(pipeline, config, counts, source.read_bytes() if source else None)

    def save(self, folder: Path) -> None:
        """Write what `AutoTokenizer` and this class read: tokenizer.json, its config, the plain vocabulary files."""
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
        """What records of runs say of it."""
        return {"kind": self.kind, "vocabulary": self.vocabulary, "tokenizer": self.fingerprint}

    @property
    def model(self) -> dict[str, Any]:
        """What the pipeline says of its model: type, prefix, pieces."""
        return dict(self.about["model"])

    @property
    def separator(self) -> int | None:
        """The sign between documents: where a model writes from left to right it ends a text, and begins one."""
        return self.end if self.end is not None else self.stop

    def named(self, key: str) -> int | None:
        """Return the id of the token that tokenizer_config.json names under `key`; None: it names none."""
        token = self.config.get(key)
        token = token.get("content") if isinstance(token, dict) else token
        return self.pipeline.token_to_id(token) if isinstance(token, str) else None

    @property
    def begins_texts(self) -> bool:
        """Does a text that is gone on with stand behind that sign? Some folders say that theirs do not."""
        return bool(self.config.get("add_bos_token", True))

    @property
    def kind(self) -> str:
        """`wordpiece`, `bpe`, `unigram`...: the model's type."""
        return str(self.model["type"]).lower()

    @property
    def prefix(self) -> str:
        """What WordPiece writes before a piece that goes on a word; nothing of other kinds and of LTG-BERT."""
        sign = self.model.get("continuing_subword_prefix", "##") if self.kind == "wordpiece" else ""
        return str(sign or "")

    @property
    def byte_level(self) -> bool:
        """Are its pieces bytes, each written as a letter (GPT-2's)?"""
        return any(step["type"] == "ByteLevel" for step in _parts(self.about["pre_tokenizer"]))

    @property
    def sentencepiece(self) -> bool:
        """Do its pieces write a blank as SentencePiece's do?"""
        steps = _parts(self.about["pre_tokenizer"])
        return self.kind in ("unigram", "bpe") and any(step["type"] == "Metaspace" for step in steps)

    @property
    def whole_words(self) -> bool:
        """Is every entry a word, but for <S>, </S> and <UNK>? A store then keeps words apart that it lacks."""
        steps = self.about["pre_tokenizer"] or {"type": ""}
        cut = self.kind == "wordlevel" and steps["type"] in ("WhitespaceSplit", "Split")
        return cut and all(sign in self.about["model"]["vocab"] for sign in vocabulary.SIGNS)

    def words(self, text: str) -> list[str]:
        """The text cut into words, before they are looked up."""
        if self.pipeline.normalizer is not None:
            text = self.pipeline.normalizer.normalize_str(text)
        return [word for word, _ in self.pipeline.pre_tokenizer.pre_tokenize_str(text)]

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits: equal where every text gets equal ids."""
        known = {k: v for k, v in self.about.items() if k not in ("version", "truncation", "padding")}
        return value_key(_said(known), 16, any_order=True)

    @functools.cached_property
    def cutting(self) -> str:
        """16 hexadecimal digits: equal where every text is cut into equal pieces, whatever signs stand round them."""
        parts = [self.about[part] for part in ("normalizer", "pre_tokenizer", "model")]
        return value_key(_said(parts), 16, any_order=True)

    @property
    def lowercase(self) -> bool:
        """Are capitals lost?"""
        steps = _parts(self.about["normalizer"])
        if any(step["type"] == "Precompiled" for step in steps):  # SentencePiece's rules
            return bool(self.pipeline.normalizer.normalize_str("A") == "a")
        return any(step.get("lowercase") or step["type"] == "Lowercase" for step in steps)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of a text in which names such as [MASK] mean the token; with `special`, framed as the model wants it."""
        return self.pipeline.encode(text, add_special_tokens=special).ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of texts in which names such as [MASK] are mere text, without special tokens."""
        return [
            np.asarray(e.ids, np.int32) for e in self.plain.encode_batch_fast(list(texts), add_special_tokens=False)
        ]

    @functools.cached_property
    def plain(self) -> Pipeline:
        """The same pipeline, blind to the names of special tokens: for corpora."""
        from tokenizers import Tokenizer as Pipeline

        about = self.pipeline.to_str()
        if self.whole_words:  # a word that reads <S> is no sign: signs get a blank, which no word has
            hidden = {f" {word}" if n in self.special else word: n for word, n in self.model["vocab"].items()}
            model = self.model | {"vocab": hidden, "unk_token": " <UNK>"}
            about = json.dumps(self.about | {"added_tokens": [], "model": model})
        elif self.sentencepiece and all(entry["special"] for entry in self.about["added_tokens"]):
            about = json.dumps(self.about | {"added_tokens": [], "model": self._nameless()})
        copy = Pipeline.from_str(about)
        copy.encode_special_tokens = True
        return copy

    def _nameless(self) -> dict[str, Any]:
        """The model, special tokens written with a blank, which no text has by then: none is met by its name."""
        model, pieces = self.model, self.about["model"]["vocab"]
        if self.kind == "unigram":
            hidden = [[f" {piece}" if n in self.special else piece, score] for n, (piece, score) in enumerate(pieces)]
            return model | {"vocab": hidden}
        unknown = f" {name}" if (name := model["unk_token"]) and pieces.get(name) in self.special else name
        vocabulary = {f" {piece}" if n in self.special else piece: n for piece, n in pieces.items()}
        return model | {"vocab": vocabulary, "unk_token": unknown}

    def decode(self, ids: Sequence[int] | Ids, skip_special: bool = True) -> str:
        """Text again."""
        return self.pipeline.decode([int(i) for i in ids], skip_special_tokens=skip_special)

    def piece(self, number: int) -> str:
        """The piece as the vocabulary writes it."""
        piece = self.pipeline.id_to_token(int(number))
        if piece is None:
            raise DataError("tokenizer", f"no piece {number}", f"0 to {self.vocabulary - 1}")
        return piece

    def listed(self) -> str:
        """All pieces by their numbers, one a line."""
        return "".join(f"{self.piece(number)}\n" for number in range(self.vocabulary))

    def save_byte_level(self, pieces: Path, merges: Path) -> None:
        """As GPT-2's two files: the pieces with their numbers, and what is joined in which order."""
        known = self.pipeline.get_vocab(with_added_tokens=True)
        files.write_json(pieces, dict(sorted(known.items(), key=lambda pair: pair[1])))
        files.write_text(merges, "#version: 0.2\n" + "".join(f"{pair}\n" for pair in self.merges()))

    def merges(self) -> list[str]:
        """Pairs of pieces that are joined, the first ones first."""
        return [pair if isinstance(pair, str) else " ".join(pair) for pair in self.model["merges"]]

    @property
    def rewrites(self) -> bool:
        """Does a piece change how those before it are written? Of WordPiece's, blanks before signs go."""
        return self.kind == "wordpiece"

    def joins(self, number: int) -> bool:
        """Is a piece written at once behind what stands before it?"""
        piece = self.piece(number)
        if self.prefix:
            return piece.startswith(self.prefix)
        return not piece.startswith(("\u0120", "\u2581"))  # as bytes, and as SentencePiece, spell a blank

    def continues(self, ids: Ids, *, blanks: bool = False) -> NDArray[np.bool_]:
        """True where a piece goes on the word before it; never in the first column, never at a special token.

        `blanks`: a blank that is a byte-level piece of its own belongs to the word behind it, as it was cut; to the
        masks of training it is a word.
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
        """The class of each piece's first character (WITHIN: always goes on) and of its last."""
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
        """The plain list, and the list with counts where they are known."""
        entries = sorted(self.model["vocab"], key=self.model["vocab"].__getitem__)
        files.write_text(folder / "vocab.txt", "".join(f"{word}\n" for word in entries))
        (folder / vocabulary.COUNTS).unlink(missing_ok=True)  # of another vocabulary
        if self.counts is not None:
            lines = (f"{word}\t{count}\n" for word, count in zip(entries, self.counts, strict=True))
            files.write_text(folder / vocabulary.COUNTS, "".join(lines))

    def _role(self, role: str, added: set[int]) -> int | None:
        """The id that plays a role: as the config says, else by a known name; registered special tokens come first."""
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
    """The letter by which byte-level pieces write each byte (GPT-2's table: printable ones stand for themselves)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def _byte_border(piece: str) -> tuple[int, int]:
    """Classes of first and last character; a piece that begins inside a character always goes on."""
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
    """The steps of a normalizer or pre-tokenizer, sequences laid flat."""
    if not step:
        return []
    inner = step.get("normalizers") or step.get("pretokenizers")
    return [part for s in inner for part in _parts(s)] if inner else [step]


def _said(value: object) -> object:
    """Without what is null, so that a newer library's new field changes no fingerprint."""
    if isinstance(value, dict):
        return {k: _said(v) for k, v in value.items() if v is not None}
    return [_said(v) for v in value] if isinstance(value, list) else value
