"""Read vocabulary files of many programs into a pipeline of the `tokenizers` library.

tokenizer.json                                    any pipeline, unchanged
vocab.txt                                         WordPiece, as of BERT
vocab.txt | vocab.txt.gz    <S>, </S>, <UNK> first     whole words, as of ELMo; each may have a tab and its count
vocab.json | encoder.json  + merges.txt | vocab.bpe    byte-level BPE, as of GPT-2
dict.txt                   + those two            byte-level BPE in fairseq's order, as of RoBERTa
*.model | *.vocab + *.model                       SentencePiece, unigram or BPE
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.text import sentencepiece_model

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Pipeline

END = "<|endoftext|>"
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>")
SIGNS = ("<S>", "</S>", "<UNK>")
PIECES, MERGES = ("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")
KNOWN = "tokenizer.json, vocab.txt, vocab.json (encoder.json) with merges.txt (vocab.bpe), or SentencePiece's .model"
COUNTS = "vocab-counts.tsv"  # next to a tokenizer.json of words: each word, a tab, its count
LISTS = (".txt", ".tsv", ".gz")
FIRST = 10  # lines that must contain the special tokens of a word vocabulary
FILLER = "!!!MAXTERMID"  # a line of Google's word vocabulary that is not a word
Split = Literal["words", "spaces"]


class ReadingOptions(TypedDict, total=False):
    """Settings of a recipe that change how a vocabulary is read."""

    lowercase: bool | None
    strip_accents: bool | None
    split: Split | None
    special: tuple[str, ...]


# A word is letters, marks, digits and invisible characters, and the few symbols that join two of these. Any other
# symbol is a word, alone or repeated. The zero-width space (Thai, Khmer) is white space.
_LETTER = r"[\p{L}\p{M}\p{N}[\p{Cf}&&[^\x{200B}]]]"
_JOINED = r"['’.,_·\x{05F3}\x{05F4}\-\x{2010}\x{2011}]"
_SIGN = r"([^\s\p{L}\p{M}\p{N}\p{Cf}])\1*[\p{M}[\p{Cf}&&[^\x{200B}]]]*"
_WORD = f"{_LETTER}+(?:{_JOINED}{_LETTER}+)*|{_SIGN}"


def read(
    paths: Sequence[Path],
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    split: Split | None = None,
    special: tuple[str, ...] = (),
) -> Pipeline:
    """Return the pipeline of a folder, a file, or files that belong together.

    With `split`, the file is a list of words. `special` tokens are added after the pieces of a .model.
    """
    for path in paths:
        if not path.exists():
            raise DataError(path, "no such file or folder", KNOWN)
    model = sentencepiece_model.file_of(paths[0])
    without = paths[0].is_dir() and not (paths[0] / "tokenizer.json").is_file()
    if model and (without or paths[0].suffix in (".model", ".vocab")):
        if not model.exists():
            raise DataError(paths[0], "lists pieces only", f"{model.name} next to it, which says how texts are cut")
        whole = sentencepiece_model.pipeline(sentencepiece_model.read(model), model, special)
        return _as_stated(whole, model, lowercase=lowercase, strip_accents=strip_accents)
    files = _gather(paths)
    pipelines = [p for p in files if p.suffix == ".json" and isinstance(_json(p).get("model"), dict)]
    if pipelines and (len(paths) == 1 or len(pipelines) == len(files)):
        return _as_stated(_whole(pipelines[0]), pipelines[0], lowercase=lowercase, strip_accents=strip_accents)
    pieces = [p for p in files if p.suffix == ".json" and p not in pipelines]
    merges = [p for p in files if p.name in MERGES or _has_merges(p)]
    named = bool(split) and len(paths) == 1 and paths[0].is_file()  # a list of whole words, with any suffix
    listing = [p for p in files if (p.suffix in LISTS or named) and p not in merges]
    if pieces and merges:
        return _byte_level(pieces[0], merges[0], listing[0] if listing else None)
    if pieces or merges:
        problem = "is half of a byte-level vocabulary"
        raise DataError((pieces or merges)[0], problem, " and ".join(map(" or ".join, _HALVES)))
    if not listing:
        raise DataError(", ".join(map(str, paths)), "holds no tokenizer", KNOWN)
    if split or {b"<S>", b"</S>"} <= {line.strip().partition(b"\t")[0] for line in _first(listing[0])}:
        entries = {word: number for number, word in enumerate(_entries(listing[0])[0])}
        return words(entries, split=split or "spaces", lowercase=bool(lowercase))
    if _is_frequencies(listing[0]):
        remedy = "put encoder.json and vocab.bpe next to it"
        raise DataError(listing[0], "is a list of frequencies (fairseq's), not a vocabulary", KNOWN, remedy)
    return _wordpiece_file(listing[0], lowercase, strip_accents)


def read_counts(paths: Sequence[Path], pipeline: Pipeline) -> list[int] | None:
    """Return the counts of the words from a file that belongs to the vocabulary, or None if there is none."""
    folder = paths[0] if paths[0].is_dir() else paths[0].parent
    listing = [folder / COUNTS] if paths[0].is_dir() or paths[0].name == "tokenizer.json" else []
    for path in (*listing, *_gather(paths)):
        if path.suffix in LISTS and path.is_file() and b"\t" in _first(path)[0]:
            entries, counts = _entries(path)
            numbers = pipeline.get_vocab()
            if [numbers.get(word) for word in entries] != list(range(len(numbers))):
                raise DataError(path, "lists other words than the tokenizer", "the same in the same order", "remove it")
            return counts
    return None


def words(vocabulary: Mapping[str, int], *, split: Split, lowercase: bool) -> Pipeline:
    """Return a pipeline that looks up whole words. Only `split` "words" separates punctuation from them."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    pipeline = Tokenizer(models.WordLevel(dict(vocabulary), unk_token="<UNK>"))
    if lowercase:
        pipeline.normalizer = normalizers.Lowercase()
    if split == "words":
        pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(_WORD), "removed", invert=True)
    else:
        pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    known = sorted(SIGNS, key=vocabulary.__getitem__)
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in known])
    ends = [(name, vocabulary[name]) for name in ("<S>", "</S>")]
    pipeline.post_processor = processors.TemplateProcessing(single="<S> $A </S>", special_tokens=ends)
    return pipeline


def wordpiece(vocabulary: Mapping[str, int], *, lowercase: bool, strip_accents: bool | None = None) -> Pipeline:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    pipeline = Tokenizer(models.WordPiece(dict(vocabulary), unk_token="[UNK]", max_input_chars_per_word=100))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    known = sorted((name for name in BERT if name in vocabulary), key=vocabulary.__getitem__)
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in known])
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    pipeline.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return pipeline


def byte_level(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], *, prefix_space: bool, special: Sequence[str]
) -> Pipeline:
    """Return GPT-2's pipeline with these pieces and merges. Missing special tokens are appended."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    pipeline = Tokenizer(models.BPE(dict(vocabulary), list(merges)))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.post_processor = processors.ByteLevel(trim_offsets=False)
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return pipeline


def roberta(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> Pipeline:
    """Return RoBERTa's pipeline: GPT-2's with <s> text </s>, and a <mask> that includes the space before it."""
    from tokenizers import AddedToken, processors

    pipeline = byte_level(vocabulary, merges, prefix_space=False, special=ROBERTA)
    pipeline.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    pipeline.post_processor = processors.RobertaProcessing(
        ("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]), add_prefix_space=False
    )
    return pipeline


_HALVES = (PIECES, MERGES)


def _gather(paths: Sequence[Path]) -> list[Path]:
    if len(paths) > 1:
        return list(paths)
    path = paths[0]
    if path.is_dir():
        named = ("tokenizer.json", *PIECES, *MERGES, "dict.txt", "vocab.txt", "vocab.txt.gz")
        files = [path / name for name in named if (path / name).is_file()]
        return files[:1] if files and files[0].name == "tokenizer.json" else files
    wanted = {".json": (MERGES,), ".txt": _HALVES if path.name == "dict.txt" else ()}.get(path.suffix, ())
    if path.name in MERGES:
        wanted = (PIECES,)
    halves = [next((path.with_name(n) for n in names if path.with_name(n).is_file()), None) for names in wanted]
    return [path, *(p for p in halves if p)]


def _json(path: Path) -> dict[str, object]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise DataError(path, "is nested too deeply to be read", KNOWN) from None
    except (ValueError, OSError) as error:
        raise DataError(path, f"not JSON: {error}", KNOWN) from None
    if not isinstance(table, dict):
        raise DataError(path, "is JSON but not a table", KNOWN)
    return table


def _has_merges(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix != ".json" and file.read(8) == b"#version"


def _first(path: Path) -> list[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(4096).split(b"\n")[:FIRST]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be read: {error}", KNOWN) from None


def _entries(path: Path) -> tuple[list[str], list[int] | None]:
    wanted = "a word vocabulary: one word per line, optionally a tab and its count, in UTF-8"
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be read: {error}", wanted) from None
    try:
        lines = raw.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        at = raw[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{at}", "is not UTF-8", wanted) from None
    line_of: dict[str, int] = {}
    counts: list[int] = []
    for number, line in enumerate(lines, 1):
        word, tab, count = line.partition("\t")
        if word == FILLER:
            continue
        if not word or " " in word or (tab and not (count.isascii() and count.isdigit())):
            raise DataError(f"{path}:{number}", f"found {line!r}" if line else "is empty", wanted)
        if word in line_of:
            raise DataError(f"{path}:{number}", f"{word!r} is also on line {line_of[word]}", "every word once")
        line_of[word] = number
        if tab:
            counts.append(int(count))
    missing = [word for word in SIGNS if line_of.get(word, FIRST + 1) > FIRST]
    if missing:
        wanted = "<S>, </S> and <UNK> first, then words by descending frequency: the sampled softmax relies on it"
        raise DataError(path, f"{', '.join(missing)} not among its first {FIRST} lines", wanted)
    if counts and len(counts) != len(line_of):
        raise DataError(path, f"{len(counts)} counts for {len(line_of)} words", "a count for every word, or for none")
    return list(line_of), counts or None


def _is_frequencies(path: Path) -> bool:
    head = path.read_bytes()[:4096].split(b"\n")[:10]
    return path.name == "dict.txt" or all(len(w := line.split(b" ")) == 2 and w[1].strip().isdigit() for line in head)


def _whole(path: Path) -> Pipeline:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise DataError(path, f"not a tokenizer: {error}", KNOWN) from None


def _as_stated(pipeline: Pipeline, path: Path, **stated: bool | None) -> Pipeline:
    """Return the pipeline. Raise DataError if it treats case or accents differently from the settings."""
    normalized = pipeline.normalizer.normalize_str if pipeline.normalizer else str
    does = {"lowercase": normalized("A").endswith("a"), "strip_accents": normalized("é").endswith("e")}
    for key, value in stated.items():
        if value not in (None, does[key]):
            problem = f"is a whole pipeline with {key} = {str(does[key]).lower()}"
            remedy = f"leave tokenizer.{key} out, or name a vocab.txt"
            raise DataError(path, problem, f"{key} = {str(value).lower()}", remedy)
    return pipeline


def _wordpiece_file(path: Path, lowercase: bool | None, strip_accents: bool | None) -> Pipeline:
    from tokenizers import models

    try:
        vocabulary = models.WordPiece.read_file(str(path))
    except Exception as error:
        raise DataError(path, f"cannot be read: {error}", "one piece per line, in UTF-8") from None
    for name in ("[UNK]", "[CLS]", "[SEP]"):
        if name not in vocabulary:
            raise DataError(path, f"has no {name}", "a WordPiece vocabulary, one piece per line", f"or {KNOWN}")
    config = path.with_name("tokenizer_config.json")
    if lowercase is None and config.is_file():
        stated = _json(config).get("do_lower_case")
        lowercase = stated if isinstance(stated, bool) else None
    if lowercase is None:
        lowercase = not any(p != p.lower() for p in vocabulary if not (p.startswith("[") and p.endswith("]")))
    return wordpiece(vocabulary, lowercase=lowercase, strip_accents=strip_accents)


def _byte_level(pieces: Path, merges: Path, listing: Path | None) -> Pipeline:
    from tokenizers import models

    try:
        vocabulary, joined = models.BPE.read_file(str(pieces), str(merges))
        if listing:
            return roberta(_fairseq(listing, vocabulary), joined)
        return byte_level(vocabulary, joined, prefix_space=False, special=[END])
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{pieces} and {merges}", f"do not make a vocabulary: {error}", KNOWN) from None


def _fairseq(path: Path, vocabulary: Mapping[str, int]) -> dict[str, int]:
    """Return the ids of RoBERTa's order: four special tokens, then the listed GPT-2 ids by frequency, <mask> last."""
    names = {str(number): piece for piece, number in vocabulary.items()}
    order = list(ROBERTA)
    for number, line in enumerate(files.split_lines(path), 1):
        entry, _, count = line.rpartition(" ")
        if not count.isdigit() or not (entry in names or entry.startswith("madeupword")):
            raise DataError(f"{path}:{number}", f"found {line!r}", "a GPT-2 id and its frequency")
        order.append(names.get(entry, entry))
    return {piece: number for number, piece in enumerate([*order, "<mask>"])}
