"""Vocabulary files: which of them belong together, what the pipelines over them do, and how they name what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, words

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "newt", "##s", "é", "e"]
TEXTS = ["the newts ran, the newts won"] * 5
WORDS = ["<S>", "</S>", "<UNK>", "the", "newts"]


def listed(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def halves(tmp_path: Path) -> tuple[Tokenizer, Path]:
    """A byte-level vocabulary in two files, as GPT-2's are."""
    made = bytebpe.ByteBpe(size=280).train(TEXTS)
    made.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    return made, tmp_path


@pytest.mark.parametrize(
    "names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"), ("encoder.json", "merges.txt")]
)
def test_the_halves_of_a_byte_level_vocabulary_find_each_other(
    halves: tuple[Tokenizer, Path], names: tuple[str, str]
) -> None:
    made, folder = halves
    pieces, merges = (
        (folder / "vocab.json").rename(folder / names[0]),
        (folder / "merges.txt").rename(folder / names[1]),
    )
    for paths in (folder, pieces, merges, [pieces, merges], [merges, pieces]):
        found = Tokenizer.load(paths)  # type: ignore[arg-type]
        assert found.encode("the newts") == made.encode("the newts")
        assert found.special == {made.end}
        assert found.decode(found.encode("the newts<|endoftext|>")) == "the newts"
        assert (found.roles, found.vocabulary) == ({"end": made.end}, made.vocabulary)
    (folder / "other").mkdir()
    moved = merges.rename(folder / "other" / "joined.dat")
    assert Tokenizer.load([moved, pieces]).encode("the newts") == made.encode("the newts"), "by its first line"
    with pytest.raises(
        DataError, match=r"is half of a byte-level .*; wanted vocab\.json or encoder\.json and merges\.txt or"
    ):
        Tokenizer.load(pieces)
    with pytest.raises(DataError, match=r"joined\.dat: is half of a byte-level"):
        Tokenizer.load(moved)
    (folder / "other" / "merges.txt").write_text("#version: 0.2\nno merge\n")
    with pytest.raises(DataError, match="do not make a vocabulary"):
        Tokenizer.load([pieces, folder / "other" / "merges.txt"])


def test_a_list_of_fairseq_orders_the_pieces_anew(halves: tuple[Tokenizer, Path]) -> None:
    made, folder = halves
    assert made.vocabulary == 271
    order = [267, 5, 269, *(n for n in range(270) if n not in (5, 267, 269))]
    path = listed(folder / "dict.txt", [*(f"{n} {900 - at}" for at, n in enumerate(order)), "madeupword0000 0"])
    for paths in (folder, path, [path, folder / "vocab.json", folder / "merges.txt"]):
        found = Tokenizer.load(paths)  # type: ignore[arg-type]
        assert [found.piece(n) for n in (0, 1, 2, 3)] == ["<s>", "<pad>", "</s>", "<unk>"]
        assert [found.piece(n + 4) for n in range(270)] == [made.piece(n) for n in order]
        assert [found.piece(n) for n in (274, 275)] == ["madeupword0000", "<mask>"]
        assert found.encode("the newts", special=True) == [
            0,
            *(4 + order.index(n) for n in made.encode("the newts")),
            2,
        ]
        assert found.vocabulary == 276
    for line in ("x 5", "7 many", "7", "9999 5"):
        listed(path, ["7 5", line])
        with pytest.raises(DataError, match=rf"dict\.txt:2: found '{line}'; wanted a GPT-2 id and its frequency"):
            Tokenizer.load(folder)


def test_offsets_and_pairs_are_those_of_the_models() -> None:
    gpt2 = bytebpe.ByteBpe(size=270).train(TEXTS)
    assert gpt2.pipeline.encode("ab  ab").offsets[:4] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [gpt2.pipeline.encode("a the").offsets[n] for n in (0, 1)] == [(0, 1), (1, 5)], "a piece holds its space"
    roberta = bytebpe.ByteBpe(size=275, order="roberta").train(TEXTS)
    assert roberta.pipeline.encode("a the").offsets == [(0, 0), (0, 1), (2, 5), (0, 0)], "and here it does not"
    bert = Tokenizer(vocabulary.wordpiece({p: n for n, p in enumerate(PIECES)}, lowercase=True))
    pair = bert.pipeline.encode("the", "newts")
    assert (pair.ids, pair.type_ids) == ([2, 5, 3, 6, 7, 3], [0, 0, 0, 1, 1, 1])
    assert pair.offsets == [(0, 0), (0, 3), (0, 0), (0, 4), (4, 5), (0, 0)]


def test_bert_gives_up_words_of_more_than_100_letters() -> None:
    bert = Tokenizer(vocabulary.wordpiece({p: n for n, p in enumerate([*PIECES, "x", "##x"])}, lowercase=True))
    assert bert.encode("x" * 100) == [10, *[11] * 99]
    assert bert.encode("x" * 101) == [1]


@pytest.mark.parametrize(
    ("pieces", "config", "how", "lowercase", "accents"),
    [
        (PIECES, None, {}, True, False),
        ([*PIECES, "The"], None, {}, False, True),
        ([*PIECES, "[unused1]", "[Q]"], None, {}, True, False),
        ([*PIECES, "[Q"], None, {}, False, True),
        ([*PIECES, "The"], {"do_lower_case": True}, {}, True, False),
        (PIECES, {"do_lower_case": False}, {}, False, True),
        (PIECES, {"do_lower_case": "no"}, {}, True, False),
        (PIECES, {"do_lower_case": False}, {"lowercase": True}, True, False),
        (PIECES, None, {"strip_accents": False}, True, True),
        (PIECES, None, {"lowercase": False, "strip_accents": True}, False, False),
    ],
)
def test_capitals_and_accents(
    tmp_path: Path, pieces: list[str], config: Any, how: dict[str, bool], lowercase: bool, accents: bool
) -> None:
    path = listed(tmp_path / "vocab.txt", pieces)
    if config:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for given in (path, tmp_path):
        found = Tokenizer.load(given, **how)
        assert found.lowercase == lowercase
        assert found.encode("THE") == ([5] if lowercase else [1])
        assert found.encode("é") == ([8] if accents else [9])


@pytest.mark.parametrize("name", ["tokenizer.json", ""])
@pytest.mark.parametrize(
    ("how", "refused"),
    [
        ({"lowercase": False}, "with lowercase = true; wanted lowercase = false; leave tokenizer.lowercase out"),
        ({"strip_accents": False}, "with strip_accents = true; wanted strip_accents = false; leave tokenizer.strip_"),
        ({"lowercase": True, "strip_accents": True}, ""),
        ({}, ""),
    ],
)
def test_a_whole_pipeline_keeps_its_case_and_says_so(
    tmp_path: Path, name: str, how: dict[str, bool], refused: str
) -> None:
    Tokenizer(vocabulary.wordpiece({p: n for n, p in enumerate(PIECES)}, lowercase=True)).save(tmp_path)
    if refused:
        with pytest.raises(DataError, match=rf"tokenizer\.json: is a whole pipeline {refused}"):
            Tokenizer.load(tmp_path / name, **how)
    else:
        assert Tokenizer.load(tmp_path / name, **how).lowercase


def test_which_list_is_of_what(tmp_path: Path) -> None:
    signs = [*WORDS[:2], *"abcdefg", "<UNK>", "the"]  # in line 10: the last that may
    assert Tokenizer.load(listed(tmp_path / "a.txt", signs)).unknown == 9
    with pytest.raises(DataError, match="<UNK> not among its first 10 lines"):
        Tokenizer.load(listed(tmp_path / "a.txt", [*signs[:9], "h", "<UNK>"]))
    assert Tokenizer.load(listed(tmp_path / "a.tsv", [f"{w}\t{n}" for n, w in enumerate(WORDS)])).counts == [
        0,
        1,
        2,
        3,
        4,
    ]
    with pytest.raises(DataError, match=r"a\.txt: is a list of frequencies"):
        Tokenizer.load(listed(tmp_path / "a.txt", [f"{n} 8" for n in range(10)]))
    with pytest.raises(DataError, match=r"dict\.txt: is a list of frequencies"):
        Tokenizer.load(listed(tmp_path / "dict.txt", ["a b c"]))
    with pytest.raises(DataError, match=r"has no \[UNK\]"):
        Tokenizer.load(listed(tmp_path / "a.txt", ["13 8", "262", *["1 1"] * 9]))
    with pytest.raises(DataError, match=r"has no \[UNK\]"):
        Tokenizer.load(listed(tmp_path / "a.txt", ["two words"] * 10))
    for missing in (1, 2, 3):
        with pytest.raises(DataError, match=rf"has no \{PIECES[missing]}"):
            Tokenizer.load(listed(tmp_path / "a.txt", [p for p in PIECES if p != PIECES[missing]]))
    assert Tokenizer.load(listed(tmp_path / "a.txt", [p for p in PIECES if p not in ("[PAD]", "[MASK]")])).roles == {
        "unknown": 0,
        "start": 1,
        "stop": 2,
    }
    with pytest.raises(DataError, match=r"none\.txt: no such file or folder"):
        Tokenizer.load([tmp_path / "a.txt", tmp_path / "none.txt"])


def test_which_json_is_of_what(tmp_path: Path) -> None:
    whole = words.WordList(least=1).train(TEXTS)
    whole.save(tmp_path)
    copy = tmp_path / "mine.json"
    copy.write_bytes((tmp_path / "tokenizer.json").read_bytes())
    assert Tokenizer.load(copy).fingerprint == Tokenizer.load([copy, copy]).fingerprint == whole.fingerprint
    listed(tmp_path / "vocab.txt", PIECES)
    assert Tokenizer.load([tmp_path / "vocab.txt", copy]).kind == "wordpiece"
    for content, said in (
        ("[1]", "is JSON but not a table"),
        ("[" * 100_000, "is nested too deeply"),
        ("{", "not JSON"),
    ):
        copy.write_text(content)
        with pytest.raises(DataError, match=rf"mine\.json: {said}"):
            Tokenizer.load(copy)


def test_counts_belong_to_their_vocabulary(tmp_path: Path) -> None:
    made = words.WordList(least=1).train(TEXTS)
    made.save(tmp_path)
    counts = tmp_path / vocabulary.COUNTS
    assert counts.name == "vocab-counts.tsv"
    told = [f"{made.piece(n)}\t{count}" for n, count in enumerate(made.counts or [])]
    assert counts.read_text().splitlines() == told
    assert Tokenizer.load(tmp_path / "vocab.txt").counts is None, "a plain list has none of its own"
    for wrong in (told[:-1], [*told, "more\t1"], [*told[:-2], told[-1], told[-2]]):
        listed(counts, wrong)
        for path in (tmp_path, tmp_path / "tokenizer.json"):
            with pytest.raises(DataError, match=r"vocab-counts\.tsv: lists other words than the tokenizer"):
                Tokenizer.load(path)


def test_a_list_with_counts_for_some_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<S>\t3\n</S>\t3\n<UNK>\t0\nnewt\t2\nsmith\n")
    with pytest.raises(DataError, match="4 counts for 5 words; wanted a count for every word, or for none"):
        Tokenizer.load(tmp_path / "vocab.txt")
