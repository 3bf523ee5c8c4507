"""Tokenizers are learned alike each time, hold what they must, and are read where their users have them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.base.menu import choice
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, wordpiece

LEARN = """
import sys
from ordsmed.text.tokenizers import bytebpe, wordpiece
texts = open(sys.argv[1], encoding="utf-8").read().split("\\n")
made = wordpiece.WordPiece(size=400, alphabet=25).train(texts), bytebpe.ByteBpe(size=500).train(texts)
print(*(tokenizer.fingerprint for tokenizer in made))
"""


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Made-up words from a seed: many pairs are seen equally often."""
    draw = np.random.default_rng(3)
    letters = np.asarray(list("abcdefghijklmnopqrstuvwxyzæøåABC.,-'0123"))
    made = ["".join(draw.choice(letters, draw.integers(1, 9))) for _ in range(400)]
    return [" ".join(draw.choice(made, 12)) for _ in range(300)]


@pytest.mark.long
def test_learned_alike_in_every_process(texts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    runs = {subprocess.check_output([sys.executable, "-c", LEARN, str(file)], text=True) for _ in range(2)}
    here = f"{wordpiece.WordPiece(size=400, alphabet=25).train(texts).fingerprint} "
    here += bytebpe.ByteBpe(size=500).train(iter(texts)).fingerprint + "\n"
    assert runs == {here}


def test_wordpiece_has_its_signs_first(texts: list[str]) -> None:
    tokenizer = wordpiece.WordPiece(size=300, unused=3).train(iter(texts))
    assert tokenizer.vocabulary == 300
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "[unused2]"]
    assert [tokenizer.piece(i) for i in range(8)] == names
    roles = (tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.stop, tokenizer.mask)
    assert roles == (0, 1, 2, 3, 4)
    assert tokenizer.special == {0, 1, 2, 3, 4}
    assert tokenizer.encode("ab", special=True)[0] == 2
    assert tokenizer.lowercase


def test_wordpiece_keeps_the_most_frequent_characters() -> None:
    tokenizer = wordpiece.WordPiece(size=60, alphabet=3, least=1).train(["aab bba abab c", "d e"])
    assert [tokenizer.piece(i) for i in range(5, 10)] == ["a", "b", "c", "##a", "##b"]
    assert tokenizer.encode("d") == [tokenizer.unknown]


def test_wordpiece_joins_only_what_is_frequent() -> None:
    tokenizer = wordpiece.WordPiece(size=100, least=3).train(["aab"] * 2 + ["cd"] * 3)
    pieces = {tokenizer.piece(i) for i in range(tokenizer.vocabulary)}
    assert "cd" in pieces
    assert "aab" not in pieces


def test_case_and_accents() -> None:
    cased = wordpiece.WordPiece(size=80, lowercase=False).train(["Blåbær blåbær"] * 3)
    assert not cased.lowercase
    assert cased.encode("Blåbær") != cased.encode("blåbær")
    kept = wordpiece.WordPiece(size=80, lowercase=True, strip_accents=False).train(["Blåbær"] * 3)
    assert kept.decode(kept.encode("BLÅBÆR")) == "blåbær"
    lost = wordpiece.WordPiece(size=80).train(["Blåbær"] * 3)
    assert lost.decode(lost.encode("BLÅBÆR")) == "blabær"


def test_bytebpe_has_every_byte_and_its_signs_last(texts: list[str]) -> None:
    tokenizer = bytebpe.ByteBpe(size=400, special=("<pad>", "<mask>")).train(texts)
    assert tokenizer.vocabulary == 400
    assert [tokenizer.piece(i) for i in (397, 398, 399)] == ["<pad>", "<mask>", "<|endoftext|>"]
    assert (tokenizer.pad, tokenizer.mask, tokenizer.end, tokenizer.unknown) == (397, 398, 399, None)
    assert tokenizer.decode(tokenizer.encode("漢字 \x00 ☃")) == "漢字 \x00 ☃"
    spaced = bytebpe.ByteBpe(size=300, prefix_space=True).train(texts)
    assert spaced.encode("ab") == spaced.encode(" ab")


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]


def test_bytebpe_in_the_order_of_roberta(texts: list[str]) -> None:
    tokenizer = bytebpe.ByteBpe(size=400, order="roberta").train(texts)
    assert tokenizer.vocabulary == 400
    assert [tokenizer.piece(i) for i in (0, 1, 2, 3, 399)] == [*ROBERTA, "<mask>"]
    roles = (tokenizer.start, tokenizer.pad, tokenizer.stop, tokenizer.unknown, tokenizer.mask, tokenizer.end)
    assert roles == (0, 1, 2, 3, 399, 2)
    assert tokenizer.special == {0, 1, 2, 3, 399}
    plain = bytebpe.ByteBpe(size=396).train(texts)
    assert [tokenizer.piece(i) for i in range(4, 399)] == [plain.piece(i) for i in range(395)]
    text = " ".join(texts[:3])
    assert tokenizer.encode(text) == [i + 4 for i in plain.encode(text)]
    assert tokenizer.encode(text, special=True) == [0, *tokenizer.encode(text), 2]
    assert tokenizer.decode(tokenizer.encode("漢字 \x00 ☃", special=True)) == "漢字 \x00 ☃"
    assert tokenizer.encode("ab <mask>") == [*tokenizer.encode("ab"), 399], "the space before a mask is its own"
    pair = tokenizer.pipeline.encode("ab", "cd").ids
    assert pair == [0, *tokenizer.encode("ab"), 2, 2, *tokenizer.encode("cd"), 2]
    assert tokenizer.encode_batch(["<mask> </s>"])[0].min() > 3, "a corpus cannot name special tokens"


def test_more_special_tokens_stand_before_the_mask(texts: list[str]) -> None:
    tokenizer = bytebpe.ByteBpe(size=300, order="roberta", special=("<a>", "<b>")).train(texts)
    assert [tokenizer.piece(i) for i in (297, 298, 299)] == ["<a>", "<b>", "<mask>"]
    assert tokenizer.special == {0, 1, 2, 3, 297, 298, 299}
    assert tokenizer.encode("<b>") == [298]


@pytest.mark.parametrize("order", ["gpt2", "roberta"])
def test_transformers_reads_what_is_saved(order: Any, texts: list[str], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = bytebpe.ByteBpe(size=400, order=order).train(texts)
    tokenizer.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*texts[:20], "", " a  b", "Blåbær <mask> på tur", "a</s>b"]:
        assert theirs(text)["input_ids"] == tokenizer.encode(text, special=True)
    assert len(theirs) == 400
    ids = (theirs.pad_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id, theirs.eos_token_id)
    assert ids == (tokenizer.pad, tokenizer.start, tokenizer.stop, tokenizer.mask, tokenizer.end)
    if order == "roberta":
        assert (theirs.bos_token_id, theirs.unk_token_id) == (0, 3)
        assert theirs("ab", "cd")["input_ids"] == tokenizer.pipeline.encode("ab", "cd").ids
        assert Tokenizer.load(tmp_path).roles == tokenizer.roles


@pytest.mark.long
@pytest.mark.parametrize(
    "names", [["roberta/roberta-base-tokenizer.json"], ["roberta/dict.txt", "gpt2/encoder.json", "gpt2/vocab.bpe"]]
)
def test_the_vocabulary_of_roberta_itself(names: list[str], shared_data: Path) -> None:
    tokenizer = bytebpe.ByteBpe(file=[str(shared_data / "vocab" / name) for name in names]).load()
    assert tokenizer is not None
    assert tokenizer.encode("Hello world", special=True) == [0, 31414, 232, 2]
    assert tokenizer.encode(" world", special=True) == [0, 232, 2]
    assert tokenizer.encode("world", special=True) == [0, 8331, 2]
    assert tokenizer.encode("Hello world!", special=True) == [0, 31414, 232, 328, 2]
    assert tokenizer.pipeline.encode("Hello world", "world").ids == [0, 31414, 232, 2, 2, 8331, 2]
    assert (tokenizer.start, tokenizer.pad, tokenizer.stop, tokenizer.unknown) == (0, 1, 2, 3)
    assert tokenizer.mask == tokenizer.vocabulary - 1


@pytest.mark.parametrize("kind", [wordpiece, bytebpe])
def test_read_where_the_user_has_it(kind: object, texts: list[str], tmp_path: Path) -> None:
    made = choice(kind)(size=300).train(texts)  # type: ignore[attr-defined]
    made.save(tmp_path)
    assert choice(kind)().load() is None  # type: ignore[attr-defined]
    assert choice(kind)(file=str(tmp_path)).load().fingerprint == made.fingerprint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        (wordpiece, {"size": 3}, "size: found 3; wanted at least"),
        (wordpiece, {"least": 0}, "least: found 0; wanted at least 1"),
        (wordpiece, {"alphabet": 0}, "alphabet: found 0"),
        (bytebpe, {"size": 100}, "size: found 100; wanted at least 257"),
        (bytebpe, {"special": ("<|endoftext|>",)}, "special: found"),
        (bytebpe, {"special": ("<mask>",), "order": "roberta"}, "special: found"),
        (bytebpe, {"special": ("<a>", "<a>")}, "special: found"),
        (bytebpe, {"size": 260, "order": "roberta"}, "size: found 260; wanted at least 261"),
        (bytebpe, {"prefix_space": True, "order": "roberta"}, "prefix_space: found true; wanted false"),
    ],
)
def test_settings_that_cannot_be_are_refused(kind: object, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        choice(kind)(**wrong)  # type: ignore[attr-defined]


def test_the_smallest_settings_that_can_be() -> None:
    assert wordpiece.WordPiece(size=6, least=1, alphabet=1).train(["a a"]).vocabulary == 6
    assert wordpiece.WordPiece(size=8, unused=2).size == 8
    assert (bytebpe.ByteBpe(size=257).size, bytebpe.ByteBpe(size=261, order="roberta").size) == (257, 261)
    for kind, wrong, least in (
        (wordpiece, {"size": 5}, 6),
        (wordpiece, {"size": 7, "unused": 2}, 8),
        (wordpiece, {"unused": -1}, 0),
        (bytebpe, {"size": 256}, 257),
        (bytebpe, {"size": 258, "special": ("<a>", "<b>")}, 259),
        (bytebpe, {"least": 0}, 1),
    ):
        with pytest.raises(ValueError, match=rf"found -?\d+; wanted at least {least}\b"):
            choice(kind)(**wrong)  # type: ignore[attr-defined]


def test_which_characters_stand_inside_words() -> None:
    """As the library cuts: at white space, at every punctuation mark, and around each Chinese character."""
    able = wordpiece._able()
    chinese = [0x4E00, 0x9FFF, 0x3400, 0x4DBF, 0x20000, 0x2A6DF, 0x2F800, 0x2FA1D, 0xF900, 0xFAD9]
    letters = [*map(ord, "aZ9åß٣你"[:6]), 0x3042, 0x30A2, 0xAC00, 0x0301, 0xA000, 0xFB00]
    assert not able[[*chinese, *map(ord, " .,-_\n$+«")]].any()
    assert able[letters].all()
    tokenizer = wordpiece.WordPiece(size=200, least=1, lowercase=False).train(["a你b aあb a.b x-y e\u0301"])
    inner = {tokenizer.piece(n) for n in range(tokenizer.vocabulary) if tokenizer.piece(n).startswith("##")}
    assert inner >= {"##あ", "##b", "##\u0301"}
    assert not inner & {"##你", "##.", "##-", "##y", "##x"}


@pytest.mark.long
def test_blocks_of_texts_do_not_show(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wordpiece.WordPiece(size=300).train(texts).fingerprint
    for size in (1, 500):
        monkeypatch.setattr(wordpiece, "BLOCK", size)
        assert wordpiece.WordPiece(size=300).train(iter(texts)).fingerprint == whole


def test_frequent_characters_are_counted_as_they_are_normalized() -> None:
    """Å counts for a, in its two spellings; of equally frequent ones the first in the order of code is kept."""
    made = wordpiece.WordPiece(size=60, alphabet=2, least=1).train(["Å a\u030a A b b c c"])
    assert [made.piece(n) for n in range(5, made.vocabulary)][:2] == ["a", "b"]
    kept = wordpiece.WordPiece(size=60, alphabet=1, least=1, lowercase=False).train(["b a a b"])
    assert [kept.piece(n) for n in range(5, kept.vocabulary)] == ["a"]


def test_the_settings_tell_how_a_file_is_read(tmp_path: Path) -> None:
    wordpiece.WordPiece(size=60, lowercase=False).train(["Blå blå"] * 3).save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    read = {
        given: wordpiece.WordPiece(file=str(tmp_path / "vocab.txt"), lowercase=given).load() for given in (None, True)
    }
    assert [found and found.lowercase for found in read.values()] == [False, True]
    kept = wordpiece.WordPiece(file=str(tmp_path), lowercase=True, strip_accents=False).load()
    assert kept is not None
    assert kept.decode(kept.encode("BLÅ")) == "blå"


def test_bytebpe_joins_nothing_over_a_space() -> None:
    learned = {}
    for spaced in (False, True):
        made = bytebpe.ByteBpe(size=300, least=1, prefix_space=spaced).train(["newts ran", "newts ran far"])
        learned[spaced] = {made.piece(n) for n in range(256, made.vocabulary - 1)}
        assert "Ġran" in learned[spaced]
        assert not [piece for piece in learned[spaced] if "Ġ" in piece[1:] or " " in piece]
    assert "newts" in learned[False]
    assert "Ġnewts" not in learned[False]
    assert "Ġnewts" in learned[True], "where every text begins with a space its first word is as any other"
    assert not [p for p in bytebpe.ByteBpe(size=300, least=3).train(["newts ran"] * 2).model["merges"]]
