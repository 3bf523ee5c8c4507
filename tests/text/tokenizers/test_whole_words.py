"""Word vocabularies: counted right, cut right in every script, in the reference's files in and out, refused by line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ordsmed.base.errors import DataError
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers.words import WordList

SIGNS = ["<S>", "</S>", "<UNK>"]
TEXTS = ["the newts ran up\nthe hill", "the newts won , they  said", "<S> the hill </S> <UNK>"]


def listed(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.piece(n) for n in range(tokenizer.vocabulary)]


def written(path: Path, lines: list[str]) -> Path:
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_the_frequent_first_and_ties_in_the_order_of_letters() -> None:
    made = WordList(least=2, split="spaces").train(iter(TEXTS))
    assert listed(made) == [*SIGNS, "the", "hill", "newts"]
    assert made.counts == [0, 0, 9, 4, 2, 2], "what is left out counts at <UNK>, signs in the text too"
    assert (made.kind, made.roles) == ("wordlevel", {"start": 0, "stop": 1, "unknown": 2})
    assert made.special == {0, 1, 2}
    assert listed(WordList(least=1, size=5, split="spaces").train(TEXTS)) == [*SIGNS, "the", "hill"]
    assert listed(WordList(least=2, lowercase=True).train(["The THE newt"])) == [*SIGNS, "the"]


def test_there_and_back() -> None:
    made = WordList(least=1).train(["the newts ran up"])
    assert made.encode("newts ran away", special=True) == [0, *made.encode("newts ran"), 2, 1]
    assert made.decode(made.encode("the  newts\nran", special=True)) == "the newts ran"
    assert made.encode("the <S>")[-1] == 0
    assert made.encode_batch(["the <S> </S>"])[0].tolist()[1:] == [2] * 7
    reference = WordList(least=1, split="spaces").train(["the newts ran up"])
    assert reference.encode_batch(["the <S> </S> <UNK>"])[0].tolist()[1:] == [2, 2, 2], "in a corpus no word is a sign"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't pay 3.5, it's well-known!", "Don't|pay|3.5|,|it's|well-known|!"),
        ("the U.S. (1,000.50 of them) -- they said ...", "the|U.S|.|(|1,000.50|of|them|)|--|they|said|..."),
        ("'tis rock’n’roll, snake_case x=-1 <S>", "'|tis|rock’n’roll|,|snake_case|x|=|-|1|<|S|>"),
        ("हिन्दी में क्षि।", "हिन्दी|में|क्षि|।"),
        ("e\u0301te\u0301 \u0301x a\u0301-b", "e\u0301te\u0301|\u0301x|a\u0301-b"),
        ("می\u200cخواهم، بله", "می\u200cخواهم|،|بله"),
        ("צה״ל col·lecció", "צה״ל|col·lecció"),
        ("ក\u200bខ ไทย 漢字。", "ក|ខ|ไทย|漢字|。"),
        ("❤\ufe0f 1\ufe0f\u20e3 =\u0338b", "❤\ufe0f|1\ufe0f\u20e3|=\u0338|b"),
        ("a\u00a0b\tc\u2028d", "a|b|c|d"),
        ("\u200b \n", ""),
    ],
)
def test_signs_are_cut_off_words(text: str, words: str) -> None:
    made = WordList().train([])
    assert made.words(text) == [word for word in words.split("|") if word]
    assert WordList(split="spaces").train([]).words(text) == text.split()


def test_nothing_but_white_space_is_lost() -> None:
    made = WordList().train([])
    for first in range(0, 0x20000, 0x400):
        text = "".join(chr(code) for code in range(first, first + 0x400) if not 0xD800 <= code < 0xE000)
        gone = set(text) - set("".join(made.words(text)))
        assert all(letter.isspace() or letter == "\u200b" for letter in gone)


@pytest.mark.parametrize("name", ["vocab.txt", "vocab.txt.gz"])
def test_a_list_is_read(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, ["</S>", "<S>", "<UNK>", "the", "newts.", "##ts"])
    for found in (Tokenizer.load(path), Tokenizer.load(tmp_path), WordList(file=str(path)).load()):
        assert found is not None
        assert found.roles == {"start": 1, "stop": 0, "unknown": 2}
        assert found.encode("the newts. won") == [3, 4, 2]
        assert found.counts is None
        assert not found.continues(np.asarray([3, 5, 4])).any(), "every entry is a word of its own"
    other = WordList(file=str(path.rename(tmp_path / "words-2026"))).load() if path.suffix == ".txt" else None
    assert other is None or other.vocabulary == 6, "a list that is named may end as it likes"
    path = path if other is None else tmp_path / "words-2026"
    cut = WordList(file=str(path), split="words", lowercase=True).load()
    assert cut is not None
    assert cut.words("The newts.") == ["the", "newts", "."]


def test_counts_behind_tabs(tmp_path: Path) -> None:
    lines = ["<S>\t0", "</S>\t0", "<UNK>\t3", "the\t12", "newts\t2"]
    found = Tokenizer.load(written(tmp_path / "vocab.txt", lines))
    assert found.counts == [0, 0, 3, 12, 2]
    assert listed(found) == [*SIGNS, "the", "newts"]


def test_saved_and_loaded(tmp_path: Path) -> None:
    made = WordList(least=1, lowercase=True).train([*TEXTS, "blåbær e\u0301"])
    made.save(tmp_path)
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n") == [*listed(made), ""]
    again = Tokenizer.load(tmp_path)
    assert (again.fingerprint, again.roles, again.counts) == (made.fingerprint, made.roles, made.counts)
    assert WordList(file=str(tmp_path / "tokenizer.json")).load().counts == made.counts  # type: ignore[union-attr]
    assert again.words("The Newts, ran") == ["the", "newts", ",", "ran"]
    plain = Tokenizer.load(tmp_path / "vocab.txt")
    assert listed(plain) == listed(made)
    plain.save(tmp_path)
    assert Tokenizer.load(tmp_path).counts is None, "counts of another vocabulary do not stay"


def test_counts_of_other_words_are_refused(tmp_path: Path) -> None:
    WordList(least=1).train(TEXTS).save(tmp_path)
    written(tmp_path / "vocab-counts.tsv", ["<S>\t0", "</S>\t0", "<UNK>\t3", "newts\t2"])
    with pytest.raises(DataError, match=r"vocab-counts\.tsv: lists other words"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["<S>", "</S>", "the"], r"vocab\.txt: <UNK> not among .*first, then words by descending frequency"),
        (["<S>", "</S>", *"abcdefgh", "<UNK>"], "<UNK> not among"),
        ([*SIGNS, "the", "newts", "the"], r"vocab\.txt:6: 'the' is also on line 4"),
        ([*SIGNS, "the", "", "newts"], r"vocab\.txt:5: is empty"),
        ([*SIGNS, "the 12"], r"vocab\.txt:4: found 'the 12'"),
        ([*SIGNS, "the\tmany"], r"vocab\.txt:4: found 'the\\tmany'"),
        ([*SIGNS, "the\t12"], "1 counts for 4 words"),
    ],
)
def test_what_is_no_word_vocabulary_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    path = written(tmp_path / "vocab.txt", lines)
    for load in (WordList(file=str(path)).load, lambda: Tokenizer.load(tmp_path)):
        with pytest.raises(DataError, match=said):
            load()


def test_lists_without_signs_are_of_pieces_unless_words_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "vocab.txt", ["the", "newts"])
    with pytest.raises(DataError, match=r"has no \[UNK\]"):
        Tokenizer.load(path)
    with pytest.raises(DataError, match="<S>, </S>, <UNK> not among its first 10 lines"):
        WordList(file=str(path)).load()


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\n</S>\n<UNK>\nthe\nn\xffwts\n")
    with pytest.raises(DataError, match=r"vocab\.txt:5: is not UTF-8"):
        Tokenizer.load(path)
    short = tmp_path / "words.txt.gz"
    short.write_bytes(gzip.compress(b"<S>\n</S>\n<UNK>\n" + bytes(range(48, 122)) * 40)[:-12])
    with pytest.raises(DataError, match=r"words\.txt\.gz: cannot be read"):
        Tokenizer.load(short)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    from ordsmed.text.tokenizers import wordpiece

    wordpiece.WordPiece(size=60).train(TEXTS).save(tmp_path)
    with pytest.raises(DataError, match="is a wordpiece tokenizer; wanted whole words"):
        WordList(file=str(tmp_path)).load()
    assert WordList().load() is None


def test_lines_that_are_no_words_and_other_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SIGNS, "!!!MAXTERMID", "the", "new\u00a0ts", ""]).encode())
    assert listed(Tokenizer.load(path)) == [*SIGNS, "the", "new\u00a0ts"]


@pytest.mark.parametrize(
    ("name", "size", "roles"),
    [
        ("train/vocab.txt", 32, {"start": 0, "stop": 1, "unknown": 2}),
        ("data/vocab_test.txt", 100, {"start": 1, "stop": 0, "unknown": 2}),
    ],
)
def test_real_vocabularies(shared_data: Path, tmp_path: Path, name: str, size: int, roles: dict[str, int]) -> None:
    path = shared_data / "elmo" / name
    found = Tokenizer.load(path)
    assert (found.vocabulary, found.roles) == (size, roles)
    found.save(tmp_path)
    assert (tmp_path / "vocab.txt").read_text().split() == path.read_text().split()
    with pytest.raises(DataError, match="<S>, </S>, <UNK> not among"):
        WordList(file=str(shared_data / "elmo/model/vocab_test.txt")).load()


@pytest.mark.parametrize(
    ("wrong", "said"), [({"size": 3}, "size: found 3; wanted at least 4"), ({"least": 0}, "least: found 0")]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WordList(**wrong)  # type: ignore[arg-type]


def test_signs_in_a_text_are_no_words_however_often() -> None:
    made = WordList(least=1, split="spaces").train(["<S> the </S> <UNK> <S>"])
    assert (listed(made), made.counts) == ([*SIGNS, "the"], [0, 0, 4, 1])
