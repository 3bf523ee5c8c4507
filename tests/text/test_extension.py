"""An extended tokenizer: what is added saves most, old pieces keep their numbers, other text is cut as before."""

from __future__ import annotations

import random

import pytest

from kit.tokenizers_of_pieces import LETTERS, MERGES, byte_pieces, gpt2, ltg, roberta, unigram, wordpiece
from ordsmed.base.errors import DataError
from ordsmed.text import extension, vocabulary
from ordsmed.text.extension import extended
from ordsmed.text.tokenizer import Tokenizer

PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS), "newt", "##ing", ",", "-"]
DOMAIN = ["the hemoglobin, hemoglobin and globin"] * 8 + ["newting hemo hemo-globin"] * 5 + ["once"] * 2


def by_wordpiece() -> Tokenizer:
    return wordpiece(*PIECES)


def by_unigram() -> Tokenizer:
    """Its special token comes after the model's pieces."""
    own = unigram("▁newt", "ing", "▁", *LETTERS, ",", "-")
    own.pipeline.add_special_tokens(["<mask>"])
    return Tokenizer(own.pipeline)


def added(old: Tokenizer, new: Tokenizer) -> list[str]:
    assert [new.piece(n) for n in range(old.vocabulary)] == [old.piece(n) for n in range(old.vocabulary)]
    return [new.piece(n) for n in range(old.vocabulary, new.vocabulary)]


def test_whole_words_come_first() -> None:
    """hemoglobin: 16 x 9 tokens saved; globin 8 x 5, and 5 x 5 behind the hyphen; the 8 x 2; and 8 x 2..."""
    old = by_wordpiece()
    new = extended(old, DOMAIN, 3, 5)
    assert added(old, new) == ["hemoglobin", "globin", "hemo"]
    assert [new.piece(n) for n in new.encode("Hemoglobin-globin, newts")] == [
        "hemoglobin",
        "-",
        "globin",
        ",",
        "newt",
        "##s",
    ]
    assert added(old, extended(old, DOMAIN, 100, 5)) == ["hemoglobin", "globin", "hemo", "and", "the", "newting"]
    assert "once" in added(old, extended(old, DOMAIN, 100, 2))


def test_a_piece_counts_by_the_tokens_that_it_saves() -> None:
    """Two for each `abc`, one for each `xy`."""
    old = by_wordpiece()
    texts = ["abc"] * 10 + ["xy"] * 16
    assert added(old, extended(old, texts, 1, 1)) == ["abc"]
    assert added(old, extended(old, texts + ["xy"] * 5, 1, 1)) == ["xy"]


def test_where_a_piece_stands_no_more_it_does_not_count() -> None:
    """After `abc` became one piece, `ab` occurs only in `abx`."""
    old = by_wordpiece()
    assert added(old, extended(old, ["abc"] * 5 + ["abx"] * 2, 9, 5)) == ["abc"]


def test_letters_are_lacking_only_where_no_longer_piece_holds_them() -> None:
    old = wordpiece("a", "ab", "##c", lowercase=False)
    assert added(old, extended(old, ["abc"] * 5, 9, 5)) == ["abc"]


def test_what_a_piece_replaces_is_what_stood_there_most_often() -> None:
    """In the texts, not in most words."""
    cut = [extension.Cut(["a", "bc"], 1), extension.Cut(["x", "a", "bc"], 1), extension.Cut(["ab", "c"], 9)]
    assert extension.Chooser(False, "", set(), cut).next(1) == (extension.Candidate("abc"), ["ab", "c"])


def test_merges_are_those_of_training_on() -> None:
    old = gpt2()
    new = extended(old, ["ab ab ab ab abc abc"], 3, 2)
    assert added(old, new) == ["ab", "Ġab", "Ġabc"]
    assert new.merges() == [*old.merges(), "a b", "Ġ ab", "Ġab c"]
    assert [new.piece(n) for n in new.encode(" ab xa abc")] == ["Ġab", "Ġ", "x", "a", "Ġabc"]


def test_a_merge_never_leads_to_an_old_piece() -> None:
    """`new` may be in the vocabulary already: a new merge that gives it would change how old text is split."""
    names = byte_pieces("Ġab")
    old = Tokenizer(vocabulary.byte_level(names, MERGES, prefix_space=False, special=[vocabulary.END]))
    new = extended(old, [" ab" * 9], 9, 2)
    assert added(old, new) == ["ab"], "and not Ġab by Ġ ab"


def over_bytes() -> Tokenizer:
    return ltg("Ġ", *LETTERS, ",", "-", "Ġnewt", "ing")


@pytest.mark.parametrize("kind", [by_wordpiece, by_unigram, over_bytes, gpt2, roberta])
def test_text_without_new_pieces_is_cut_as_before(kind: object) -> None:
    """For any text: either its tokens include a new piece, or nothing has changed."""
    old: Tokenizer = kind()  # type: ignore[operator]
    new = extended(old, DOMAIN, 8, 3)
    assert len(added(old, new)) >= 5
    draw, same = random.Random(1), 0
    for _ in range(2000):
        parts = ["hem", "o", "globin", "hemo", "newt", "ing", "b", "the", "and"]
        text = " ".join("".join(draw.choice(parts) for _ in range(draw.randint(1, 3))) for _ in range(2))
        before, after = old.encode(text), new.encode(text)
        assert before == after or max(after) >= old.vocabulary, text
        same += before == after
    assert 100 < same < 1900
    assert sum(map(len, map(new.encode, DOMAIN))) < 0.7 * sum(map(len, map(old.encode, DOMAIN)))
    assert (new.roles, new.special) == (old.roles, old.special)
    assert new.encode("newt", special=True)[:1] == old.encode("newt", special=True)[:1]
    assert [new.decode(new.encode(text)) for text in DOMAIN] == [old.decode(old.encode(text)) for text in DOMAIN]


def test_letters_that_were_not_known_come_with_it() -> None:
    old = wordpiece("a", "##b", "s", "##k", "whole", lowercase=False)
    texts = ["skøb whole"] * 6 + ["øa"] * 5
    new = extended(old, texts, 10, 5)
    assert old.encode("skøb") == [old.unknown]
    assert added(old, new) == ["##ø", "##a", "ø", "skøb", "øa"]
    assert [new.piece(n) for n in new.encode("skøb bøa")] == ["skøb", "[UNK]"], "b begins no word here"
    assert added(old, extended(old, texts, 2, 5)) == ["##ø", "##a"]
    assert added(old, extended(old, texts, 10, 7)) == []


def test_signs_behind_the_pieces_keep_their_numbers() -> None:
    own = gpt2()
    own.pipeline.add_special_tokens(["<x>", "<y>"])
    old = Tokenizer(own.pipeline)
    new = extended(old, DOMAIN, 5, 3)
    assert len(added(old, new)) == 5
    assert new.encode("a<x>b<y>") == old.encode("a<x>b<y>")


def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "MOST", 4)
    rare = [f"rare{n}" for n in range(50)]
    words = extension._counted(gpt2(), ["often often often", *rare, "often"])
    assert words["Ġoften"] == 4
    assert len(words) < 10
    monkeypatch.setattr(extension, "WORDS", 1)
    assert added(by_wordpiece(), extended(by_wordpiece(), DOMAIN, 9, 2)) == ["hemoglobin"]


def test_what_is_not_extended() -> None:
    whole = Tokenizer(vocabulary.words({"<S>": 0, "</S>": 1, "<UNK>": 2, "a": 3}, split="spaces", lowercase=False))
    with pytest.raises(
        DataError, match="a wordlevel model cannot be extended; wanted WordPiece, byte-level BPE or a unig"
    ):
        extended(whole, ["a"], 1, 1)
    own = gpt2()
    own.about["pre_tokenizer"] = None
    with pytest.raises(DataError, match="a bpe model without words cannot be extended"):
        extended(own, ["a"], 1, 1)
