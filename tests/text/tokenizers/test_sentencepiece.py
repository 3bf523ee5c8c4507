"""SentencePiece's vocabularies: the ids of its own library, read without it, learned by it, and refused if others'."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.sentencepieces import BYTE, CONTROL, OWN, UNUSED, model_bytes
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.words import Words, splitter_of
from ordsmed.text import sentencepiece_training, word_counts
from ordsmed.text.sentencepiece_model import LIST, MODEL, parsed, pipeline
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import sentencepiece

PIECES = [
    ("▁the", -2.0),
    ("▁newt", -3.0),
    ("s", -3.5),
    ("▁", -4.0),
    ("t", -5.0),
    ("h", -5.0),
    ("e", -5.0),
    ("he", -4.5),
    ("▁t", -4.6),
]
HOSTILE = [
    "",
    " ",
    "  \n ",
    "The newts ran,  and the newts won: 42!",
    "«smørbrød» sa han — ærlig talt…",
    "e\u0301 \u0301f ñ n\u0303 \ufb01ne \ufb01\u0301 ①②½ ＡＢ Å",
    "\x01a\x02 b\x7f",
    "\ufeffx\u200by\u00a0z\u2028w\r\n\tq",
    "한국 \u1112\u1161\u11ab か\uff9e 漢字 👨\u200d👩\u200d👧 👍🏽 ทำ",
    "<unk> [MASK] </s> <0x0A> <s>",
    "▁a▁ b ▁",
    "!!!!!!!!! hahahaha aaaaaaa",
    "a  <sep>b<sep> ",
    "\u0323\ufeff",
    "\uff9e",
    "x" * 70,
    "\n\na \n",
    "ths the ntew",
]
MADE = ("unigram", "bpe")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Made-up words, some letters that are rare, and HOSTILE ones."""
    draw = np.random.default_rng(5)
    stems = ["".join(draw.choice(list("aeiounrstldåmh"), draw.integers(2, 7))) for _ in range(150)]
    return [" ".join(draw.choice(stems, 12)) + "." for _ in range(250)] + HOSTILE


def written(tmp_path: Path, data: bytes, name: str = "x.model") -> Path:
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.piece(n) for n in tokenizer.encode_batch([text])[0]]


def test_a_unigram_model_is_read_without_the_library(tmp_path: Path) -> None:
    path = written(tmp_path, model_bytes([*PIECES, ("</s>", 0.0, CONTROL), ("newt", -1.0, UNUSED)]))
    for name in (path, tmp_path / "x.vocab"):
        (tmp_path / "x.vocab").touch()
        tokenizer = sentencepiece.SentencePiece(file=str(name), special=("<pad>", "<mask>")).load()
        assert tokenizer is not None
        assert (tokenizer.kind, tokenizer.unknown, tokenizer.end, tokenizer.pad, tokenizer.mask) == (
            "unigram",
            0,
            10,
            12,
            13,
        )
    assert pieces_of(tokenizer, "  the newts  </s>") == ["▁the", "▁newt", "s", "▁", "<unk>", "s", "<unk>"]
    assert pieces_of(tokenizer, "ths thet") == ["▁t", "h", "s", "▁the", "t"]
    assert tokenizer.encode("the <mask> newts") == [1, 13, 2, 3]


def test_a_bpe_model_is_read_without_the_library(tmp_path: Path) -> None:
    letters = [(letter, -10.0 - n) for n, letter in enumerate("▁thenws")]
    path = written(tmp_path, model_bytes([("he", -0.0), ("▁t", -1.0), ("▁the", -2.0), ("th", -3.0), *letters], kind=2))
    tokenizer = sentencepiece.SentencePiece(file=str(path)).load()
    assert tokenizer is not None
    assert (tokenizer.kind, tokenizer.sentencepiece, tokenizer.byte_level) == ("bpe", True, False)
    assert pieces_of(tokenizer, "the thhe") == ["▁the", "▁t", "h", "he"]
    own = Tokenizer.load(written(tmp_path, model_bytes([("he", -0.0), ("<x>", 0.0, OWN), *letters], kind=2)))
    assert pieces_of(own, "<x>he<x> t") == ["▁", "<x>", "he", "<x>", "▁", "t"]


def test_bytes_stand_for_what_has_no_piece(tmp_path: Path) -> None:
    bytes_ = [(f"<0x{n:02X}>", 0.0, BYTE) for n in range(256)]
    for kind in (1, 2):
        path = written(tmp_path, model_bytes([*PIECES, *bytes_], kind=kind, byte_fallback=1))
        tokenizer = Tokenizer.load(path)
        assert pieces_of(tokenizer, "é") == ["▁", "<0xC3>", "<0xA9>"]
        assert pieces_of(tokenizer, "<0x0A>")[1] == "<0x3C>"
        assert tokenizer.decode(tokenizer.encode("the é")) == "the é"


def test_words_begin_where_a_blank_is_spelled(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(written(tmp_path, model_bytes(PIECES)))
    ids = tokenizer.encode_batch(["the newts ths"])[0]
    assert tokenizer.continues(ids).tolist() == [False, False, True, False, True, True]
    assert splitter_of(tokenizer) is None  # a line's end is a character here


@pytest.mark.long
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("order", ["bert", "roberta", "gpt2"])
def test_learned_saved_and_opened_by_others(name: Any, order: Any, texts: list[str], tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    from transformers import AutoTokenizer

    tokenizer = sentencepiece.SentencePiece(model=name, size=240, order=order, special=("[X]",)).train(iter(texts))
    assert tokenizer.kind == name
    roles = {
        "bert": {"pad": 0, "unknown": 1, "start": 2, "stop": 3, "mask": 4},
        "roberta": {"start": 0, "pad": 1, "stop": 2, "end": 2, "unknown": 3, "mask": 4},
        "gpt2": {"unknown": 0, "end": 1},
    }
    assert tokenizer.roles == roles[order]
    tokenizer.save(tmp_path)
    assert (tmp_path / MODEL).read_bytes() == tokenizer.source
    lines = (tmp_path / LIST).read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == tokenizer.listed().splitlines()
    again = Tokenizer.load(tmp_path)
    assert (again.fingerprint, again.source) == (tokenizer.fingerprint, tokenizer.source)
    (tmp_path / "tokenizer.json").rename(tmp_path / "kept.json")
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint  # from the .model alone
    (tmp_path / "kept.json").rename(tmp_path / "tokenizer.json")
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    plain = [text for text in HOSTILE if "<" not in text]
    for text, ids in zip(plain, tokenizer.encode_batch(plain), strict=True):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids.tolist(), ascii(text)
    if order == "bert":
        made = theirs("nara", "lisa")
        assert set(made["token_type_ids"]) == {0, 1}
        assert theirs("a [MASK].")["input_ids"].count(4) == 1


@pytest.mark.parametrize("prefix", [True, False])
def test_a_first_blank_goes_only_where_one_is_put(prefix: bool) -> None:
    """A tokenizer without a sign before texts gives back the blanks that a text has there."""
    data = model_bytes(PIECES, normalizer={} if prefix else {3: 0, 4: 0})
    tokenizer = Tokenizer(pipeline(parsed(data, "x")), source=data)
    for text in ("the newts", " the newts", "  the"):
        [ids] = tokenizer.encode_batch([text])
        assert tokenizer.pipeline.decode(ids.tolist()) == (text.lstrip() if prefix else text)


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True},
    "own": {"own": ("<sep>", "42", "hah")},
    "no prefix": {"prefix": False},
    "no squeeze": {"remove_extra_whitespaces": False},
    "identity": {"normalization": "identity"},
    "folded": {"normalization": "nfkc_cf"},
    "raw": {"normalization": "identity", "remove_extra_whitespaces": False, "own": ("\n", "  ")},
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "way"), list(itertools.product(MADE, WAYS)))
def test_the_same_ids_as_the_library(name: Any, way: str, texts: list[str]) -> None:
    library = pytest.importorskip("sentencepiece")
    tokenizer = sentencepiece.SentencePiece(model=name, size=420, **WAYS[way]).train(texts)
    theirs = library.SentencePieceProcessor(model_proto=tokenizer.source)
    draw = np.random.default_rng(7)
    letters = [
        *"abcdehinorst <>!.0A_",
        " ",
        " ",
        "\n",
        "\x01",
        "\u200b",
        "▁",
        "ﬁ",
        "①",
        "å",
        "字",
        "か",
        "<sep>",
        "[MASK]",
        "42",
    ]
    drawn = ["".join(draw.choice(letters, draw.integers(0, 12))) for _ in range(800)]
    asked = HOSTILE + drawn
    wanted = theirs.encode(asked)
    assert [ids.tolist() for ids in tokenizer.encode_batch(asked)] == wanted
    assert (splitter_of(tokenizer) is not None) == (way in ("plain", "bytes", "own"))
    ids, lengths = Words(tokenizer, np.dtype("<u2")).encode(asked)
    assert [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] == wanted


def test_scores_are_whole_steps_and_nothing_else_changes() -> None:
    pieces = [("▁a", -1.234567), ("b", -9.87654, OWN), ("c", -99.9, UNUSED), ("<s>", 0.0, CONTROL)]
    data = model_bytes(pieces)
    stepped = b"".join(sentencepiece_training._stepped(data))
    old, new = parsed(data, "old"), parsed(stepped, "new")
    assert new.scores == (0.0, -158 / 128, -1264 / 128, -12787 / 128, 0.0)
    assert (new.pieces, new.kinds, new.type) == (old.pieces, old.kinds, old.type)
    assert len(stepped) == len(data)
    assert stepped.endswith(data[-30:])
    assert b"".join(sentencepiece_training._stepped(stepped)) == stepped


def test_exact_sums_choose_as_the_library_wherever_a_word_stands() -> None:
    library = pytest.importorskip("sentencepiece")
    draw = np.random.default_rng(3)
    line = " ".join("a" * n for n in draw.integers(1, 12, 2000))
    equal = []
    data = model_bytes([("▁", -1.7), ("a", -3.1234567), ("aa", -4.7654321), ("aaa", -6.1112223)])
    for own in (data, b"".join(sentencepiece_training._stepped(data))):
        tokenizer = Tokenizer(pipeline(parsed(own, "x")), source=own)
        theirs = library.SentencePieceProcessor(model_proto=own).encode(line)
        equal.append(tokenizer.encode_batch([line])[0].tolist() == theirs)
    assert equal == [False, True]


def test_what_is_no_such_model_is_refused(tmp_path: Path) -> None:
    whole = model_bytes(PIECES)
    cases = {
        "a SentencePiece model of the type word": model_bytes(PIECES, kind=3),
        "a SentencePiece model of the type char": model_bytes(PIECES, kind=4),
        "it is cut off|a field of .* bytes where": whole[:50],
        "it has no normalizer": whole[: whole.index(b"identity") - 4],
        "not a complete SentencePiece model": b"\x80\x02}q\x00.",
        "has the piece 's' twice": model_bytes([*PIECES, ("s", -1.0)]),
        "marks spaces after words": model_bytes(PIECES, suffix=1),
        "has 2 unknown pieces; wanted one": model_bytes([*PIECES, ("<what>", 0.0, 2)]),
        "does not mark spaces": model_bytes(PIECES, normalizer={5: 0}),
    }
    for said, data in cases.items():
        with pytest.raises(DataError, match=said):
            Tokenizer.load(written(tmp_path, data))
    with pytest.raises(DataError, match=r"lists pieces only; wanted y.model next to it"):
        Tokenizer.load(written(tmp_path, b"a\t-1\n", "y.vocab"))
    for at in range(1, len(whole), 7):  # cut anywhere: an error, never half a model
        with pytest.raises(DataError):
            parsed(whole[:at], "x")


@pytest.mark.parametrize(("model", "number"), [("unigram", 2), ("bpe", 1)])
def test_another_kind_is_refused(model: Any, number: int, tmp_path: Path) -> None:
    path = written(tmp_path, model_bytes(PIECES, kind=number))
    other = "bpe" if number == 2 else "unigram"
    with pytest.raises(
        DataError, match=f'is a {other} model; wanted {model}; leave `model` out, or set it to "{other}"'
    ):
        sentencepiece.SentencePiece(model=model, file=str(path)).load()
    made = sentencepiece.SentencePiece(file=str(path)).load()
    assert made is not None
    assert made.kind == other
    words = tmp_path / "vocab.txt"
    words.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", encoding="utf-8")
    with pytest.raises(DataError, match="is a wordpiece tokenizer"):
        sentencepiece.SentencePiece(model=model, file=str(words)).load()


def test_settings_that_cannot_be() -> None:
    for wrong in (
        {"size": 5},
        {"coverage": 0.5},
        {"own": ("a", "a")},
        {"special": ("[CLS]",)},
        {"size": 200, "byte_fallback": True},
    ):
        with pytest.raises(ValueError, match="found"):
            sentencepiece.SentencePiece(**wrong)  # type: ignore[arg-type]


def test_what_the_library_refuses_is_one_line(texts: list[str]) -> None:
    pytest.importorskip("sentencepiece")
    with pytest.raises(RecipeError, match=r"SentencePiece refuses: .*smaller than required_chars") as caught:
        sentencepiece.SentencePiece(size=12).train(texts)
    assert "\n" not in str(caught.value)
    with pytest.raises(RecipeError, match="no words to learn from"):
        sentencepiece.SentencePiece().train([" \n"])


def test_the_library_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(RecipeError, match=r"not installed; pip install 'ordsmed\[sentencepiece\]'"):
        sentencepiece.SentencePiece().train(["a"])


def test_counts_are_scaled_down_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"c": 1, "ab": 10}
    assert list(sentencepiece_training._lines(counts)) == ["ab\t10", "c\t1"]
    monkeypatch.setattr(sentencepiece_training, "LAID_OUT", 11)
    assert list(sentencepiece_training._lines(counts)) == ["ab\t5", "c\t1"]


def test_counts_hold_a_stated_number_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = word_counts.WordCounts(4)
    for text in ("a a a b b", "c d", "e f", "b g"):
        counts.add(text.split())
        assert len(counts.counts) <= 4
    assert counts.counts["a"] == 3
    assert counts.counts["b"] == 3
    assert counts.dropped + counts.counts.total() == 11
    monkeypatch.setattr(word_counts, "LETTERS", 2)
    long = word_counts.WordCounts(4)
    long.add(["aaaa", "bbbb", "c"])
    assert list(long.counts) == ["aaaa"]
    cut = [len(word) for word in sentencepiece_training._words("x" * 600 + " yy")]
    assert cut == [256, 256, 88, 2]
