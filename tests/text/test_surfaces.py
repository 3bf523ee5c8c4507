"""Pieces of one tokenizer in another: same surface, spelled by several, or written by none; special ones by role."""

from __future__ import annotations

import json

import pytest

from kit.tokenizers_of_pieces import LETTERS, gpt2, ltg, roberta, unigram, wordpiece
from ordsmed.text import vocabulary
from ordsmed.text.surfaces import Descent, Surface, Writer, descent, surfaces
from ordsmed.text.tokenizer import Tokenizer


def lines(old: Tokenizer, new: Tokenizer) -> dict[str, list[str] | str]:
    """The descent in pieces instead of numbers."""
    moved = descent(old, new)
    assert sorted([*moved.kept, *moved.spelled, *moved.new]) == list(range(new.vocabulary)), "each piece once"
    kept: dict[str, list[str] | str] = {new.piece(n): old.piece(m) for n, m in moved.kept.items()}
    return kept | {new.piece(n): [old.piece(m) for m in pieces] for n, pieces in moved.spelled.items()}


def test_what_pieces_of_each_kind_write() -> None:
    own = wordpiece("newt", "##s", ",", "##,", "[unused1]")
    assert [surface for _, surface in surfaces(own)] == [
        (True, b"newt"),
        (False, b"s"),
        (None, b","),
        (None, b"\0##,"),
        (None, b"\0[unused1]"),
    ]
    theirs = dict(surfaces(gpt2()))
    at = gpt2().pipeline.token_to_id
    assert [theirs[at(p)] for p in ("Ġnewt", "ing", "Ġ", ",")] == [
        (True, b"newt"),
        (False, b"ing"),
        (True, b""),
        (False, b","),
    ]
    assert dict(surfaces(unigram("▁newt", "s", "▁", "<0x0A>"))) == {
        3: (True, b"newt"),
        4: (False, b"s"),
        5: (True, b""),
        6: (False, b"\n"),
    }


def test_within_one_kind() -> None:
    old = wordpiece("newt", "new", "##s", "##t", "pond", ",", *LETTERS)
    new = wordpiece("[unused1]", "##s", "newts", "pond", ",", "ponds", "##ts", "##pond", "ø", "##,")
    assert lines(old, new) == {
        **{sign: sign for sign in vocabulary.BERT},
        "##s": "##s",
        "newts": ["newt", "##s"],
        "pond": "pond",
        ",": ",",
        "ponds": ["pond", "##s"],
        "##ts": ["##t", "##s"],
    }
    assert [new.piece(n) for n in descent(old, new).new] == ["[unused1]", "##pond", "ø", "##,"]
    assert lines(new, new).keys() == new.pipeline.get_vocab().keys(), "of the same nothing is lost, unused ones neither"


def test_between_kinds_words_begin_where_they_began() -> None:
    old = wordpiece("newt", "##newt", "##ing", "in", "##g", ",", "the", "##a", "a")
    into = lines(old, gpt2())
    assert (into["Ġnewt"], into["ing"], into[","], into["a"]) == ("newt", "##ing", ",", "##a")
    assert into[vocabulary.END] == "[SEP]"
    assert "Ġ" not in into, "no word stands for a blank"
    back = lines(gpt2(), wordpiece("newt", "##ing", "##newt", "newting", ",", "##é"))
    assert back["newt"] == "Ġnewt"
    assert back["##newt"] == ["n", "ew", "t"]
    assert back["newting"] == ["Ġnewt", "ing"]
    assert (back["##ing"], back[","], back["##é"]) == ("ing", ",", ["Ã", "©"])
    assert back["[CLS]"] == back["[SEP]"] == vocabulary.END
    assert "[MASK]" not in back, "what has no part there begins anew"
    assert "[PAD]" not in back


def test_signs_inside_a_piece() -> None:
    """What one tokenizer joins, the other cuts at signs: behind them words begin."""
    own = unigram("n't", "'s", "s", "<0x74>", "t")
    into = lines(wordpiece("n", "##n", "'", "t", "##t", "s", "##s"), own)
    assert (into["n't"], into["'s"], into["s"]) == (["##n", "'", "t"], ["'", "s"], "##s")
    assert lines(own, wordpiece("##t"))["##t"] == "t", "its piece, not its byte"


def test_longest_pieces_over_bytes() -> None:
    own = ltg("Ġnewt", "s", "ing", "Ġ", "Ã", "¥", "n", "e", "w", ",")
    assert (own.prefix, own.joins(5), own.joins(6)) == ("", False, True)
    into = lines(own, wordpiece("newt", "##s", "##new", "ings", ",", "å", "##å", lowercase=False))
    assert (into["newt"], into["##s"], into[","]) == ("Ġnewt", "s", ",")
    assert (into["##new"], into["ings"]) == (["n", "e", "w"], ["Ġ", "ing", "s"])
    assert (into["å"], into["##å"]) == (["Ġ", "Ã", "¥"], ["Ã", "¥"])
    assert lines(gpt2(), own)["Ġnewt"] == "Ġnewt"
    assert lines(wordpiece("newt", "##s"), own)["s"] == "##s"


def test_sentencepiece() -> None:
    own = unigram("▁newt", "s", "▁n", "e", "w", "t", "▁", ",")
    into = lines(own, wordpiece("newt", "##s", "newts", "new", ",", "xyz"))
    assert (into["newt"], into["##s"], into["newts"], into[","]) == ("▁newt", "s", ["▁newt", "s"], ",")
    assert into["new"] == ["▁n", "e", "w"]
    assert "xyz" not in into
    assert (into["[UNK]"], into["[CLS]"], into["[SEP]"]) == ("<unk>", "<s>", "</s>")
    back = lines(wordpiece("newt", "##s", ","), own)
    assert (back["▁newt"], back["s"], back[","], back["<s>"]) == ("newt", "##s", ",", "[CLS]")
    assert "▁" not in back
    assert lines(gpt2(), own)["▁newt"] == "Ġnewt"
    assert lines(gpt2(), own)["▁"] == "Ġ"


def test_special_tokens_go_by_what_they_do() -> None:
    into = lines(wordpiece("a"), roberta())
    assert {into[sign] for sign in ("<s>", "</s>", "<pad>", "<unk>", "<mask>")} == {*vocabulary.BERT}
    assert (into["<mask>"], into["<s>"]) == ("[MASK]", "[CLS]")
    assert lines(roberta(), wordpiece("a"))["[MASK]"] == "<mask>"
    extra = wordpiece("a")
    extra.pipeline.add_special_tokens(["[TITLE]"])
    with_title = Tokenizer(extra.pipeline)
    assert lines(with_title, with_title)["[TITLE]"] == "[TITLE]"
    assert "[TITLE]" not in lines(wordpiece("a"), with_title)


def test_capitals_and_accents() -> None:
    uncased, cased = wordpiece("oslo", "##er", "fjord", "a"), wordpiece("Oslo", "##er", "a", lowercase=False)
    assert lines(uncased, cased)["Oslo"] == ["oslo"]
    assert lines(cased, uncased)["oslo"] == ["Oslo"]
    assert lines(uncased, wordpiece("fjørd", "fjórd", lowercase=False))["fjórd"] == ["fjord"]
    lettered = wordpiece("Oslo", "o", "##s", "##l", "##o", lowercase=False)
    assert lines(lettered, uncased)["oslo"] == ["Oslo"], "the shortest way, and not o ##s ##l ##o"
    assert "Fjord" not in lines(cased, wordpiece("Fjord", lowercase=False)), "what cannot be spelled is drawn"


def test_added_words_and_odd_numbers() -> None:
    own = gpt2()
    own.pipeline.add_tokens(["newting blue"])
    added = Tokenizer(own.pipeline)
    moved = descent(gpt2(), added)
    number = added.pipeline.token_to_id("newting blue")
    assert [gpt2().piece(n) for n in moved.spelled[number]] == ["n", "ew", "t", "ing", "Ġ", *"blue"]
    about = json.loads(gpt2().pipeline.to_str())
    assert Writer(Tokenizer(gpt2().pipeline.from_str(json.dumps(about)))).spell(Surface(False, b"\xff")) == [
        gpt2().pipeline.token_to_id("ÿ")
    ]


@pytest.mark.parametrize(("old", "new"), [(gpt2, roberta), (roberta, gpt2), (gpt2, gpt2)])
def test_byte_pieces_are_all_kept(old: object, new: object) -> None:
    moved = descent(old(), new())  # type: ignore[operator]
    assert not moved.spelled
    assert len(moved.kept) >= 262


def test_what_is_told() -> None:
    moved = Descent({0: 1, 1: 1}, {2: [1, 2], 3: [1, 2], 4: [1], 5: [1] * 7}, [6])
    assert moved.counts() == {"kept": 2, "mean of 1": 1, "mean of 2": 2, "mean of 7": 1, "new": 1}
    assert moved.describe() == (
        "2 pieces kept, 4 start as the mean of the old pieces that spell them (1: 1, 2: 2, 5 and more: 1), "
        "1 start from the statistics of the old pieces"
    )
