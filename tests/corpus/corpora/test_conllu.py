"""CoNLL-U: the words of a treebank become running text, and its sentences are kept."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.corpus.corpora import conllu
from ordsmed.text import read
from ordsmed.text.document import Document


def words(*forms: str) -> str:
    """A sentence of ten columns; a form that ends in "+" has no blank behind it."""
    rows = (
        f"{n}\t{f.rstrip('+')}\t" + "_\t" * 7 + ("SpaceAfter=No" if "+" in f else "_") for n, f in enumerate(forms, 1)
    )
    return "\n".join(rows) + "\n\n"


def documents(path: Path, text: str | bytes, **settings: Any) -> list[Document]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(conllu.Conllu(str(path), **settings).documents())


def complaint(path: Path, text: str | bytes) -> str:
    with pytest.raises(DataError) as caught:
        documents(path, text)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}")


def test_documents_paragraphs_and_sentences(tmp_path: Path) -> None:
    text = (
        "# newdoc id = one\n# newpar\n# text = It rains.\n"
        + words("It", "rains+", ".")
        + words("So", "what+", "?")
        + "# newpar id = p2\n# sent_id = 3\n"
        + words("Go+", "!")
        + "# newdoc\n"
        + words("Two")
    )
    one, two = documents(tmp_path / "a.conllu", text)
    assert (one.text, one.id) == ("It rains. So what?\nGo!", "one")
    assert one.sentences() == ["It rains.", " So what?", "\nGo!"]
    assert (two.text, two.ends) == ("Two", [3])
    assert two.id.startswith(f"{tmp_path}/a.conllu:")


def test_text_is_put_together_from_forms(tmp_path: Path) -> None:
    blank = "\t" + "_\t" * 7
    rows = [
        f"1-2\tdel{blank}_",
        f"1\tde{blank}_",
        f"2\tel{blank}_",
        f"2.1\tunsaid{blank}_",
        f"3\tmar{blank}X=1|SpaceAfter=No",
        f"4\t.{blank}SpaceAfter=No",
    ]
    (found,) = documents(tmp_path / "a.conllu", "\n".join(rows) + "\n\n" + words("Sí"))
    assert found.sentences() == ["del mar.", "Sí"]
    assert found.text == "del mar.Sí"


def test_without_marks_a_document_is_so_many_sentences(tmp_path: Path) -> None:
    text = "".join(words(f"s{n}") for n in range(5))
    path = tmp_path / "a.conllu.xz"
    path.write_bytes(lzma.compress(text.encode()))
    two = conllu.Conllu(str(path), every=2)
    assert [d.text for d in two.documents()] == ["s0 s1", "s2 s3", "s4"]
    assert [d.text for d in conllu.Conllu(str(path), every=0).documents()] == ["s0 s1 s2 s3 s4"]
    with pytest.raises(ValueError, match="every: found -1; wanted at least 0"):
        conllu.Conllu("x", every=-1)


def test_marked_documents_are_never_cut_by_number(tmp_path: Path) -> None:
    text = "# newdoc\n" + words("a") + words("b") + words("c")
    assert [d.text for d in documents(tmp_path / "a.conllu", text, every=1)] == ["a b c"]


def test_long_documents_are_cut_at_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conllu, "LONGEST", 10)
    with read.tallied() as tally:
        found = documents(tmp_path / "a.conllu", "# newdoc\n" + words("abcd") * 5)
    assert [d.text for d in found] == ["abcd abcd", "abcd abcd", "abcd"]
    assert tally.cut == 2


def test_sentences_stay_true_when_the_text_is_odd(tmp_path: Path) -> None:
    text = "\ufeff# text = a\x00  b\tc \r\n" + words("x").replace("\n", "\r\n") + "# text =\n" + words("d") + "\n\n"
    (found,) = documents(tmp_path / "a.conllu", text)
    assert found.sentences() == ["a b c", " d"]
    (long,) = documents(tmp_path / "a.conllu", "# text = " + "w " * 2_000_000 + "\n" + words("x"))
    assert len(long.text) == 3_999_999


def test_comments_alone_are_no_documents(tmp_path: Path) -> None:
    assert documents(tmp_path / "a.conllu", "") == []
    assert documents(tmp_path / "a.conllu", "# newdoc id = lost\n\n# global.columns = ID\n\n") == []
    (found,) = documents(tmp_path / "a.conllu", "# newdoc id = kept\n\n" + words("a"))
    assert found.id == "kept"


def test_bad_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    assert complaint(path, words("a") + "1\tb\n").startswith(":3: 2 columns; wanted ten of CoNLL-U")
    assert complaint(path, words("a", "b")[:-8]).startswith(":2: ")
    assert complaint(path, words("a").replace("1\t", "one\t")).startswith(":1: a word numbered 'one'; wanted a number")
    assert "invalid UTF-8" in complaint(path, b"# text = a\xff\n")
    with read.tallied() as tally:
        (found,) = documents(path, b"# text = a\xff\n" + words("a").encode(), errors="replace")
    assert (found.text, tally.replaced) == ("a\ufffd", 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "sentences", "marked"),
    [
        ("ud/English-EWT/en_ewt-ud-dev.conllu", 2001, 318),
        ("ud/English-EWT/en_ewt-ud-train.conllu.xz", 12544, 540),
        ("ner/norne/no_bokmaal-ud-dev.conllu", 2410, 25),
        ("ner/norne/nob-train-ndt.conll.xz", 15813, 159),
    ],
)
def test_real_treebanks(shared_data: Path, name: str, sentences: int, marked: int) -> None:
    found = list(conllu.Conllu(str(shared_data / name)).documents())
    assert sum(len(d.ends) for d in found) == sentences
    assert len(found) == marked
    assert all("".join(d.sentences()) == d.text for d in found)


def test_columns_of_another_format_are_refused(shared_data: Path) -> None:
    with pytest.raises(DataError, match=r"emerging.dev.conll:1: 2 columns; wanted ten"):
        list(conllu.Conllu(str(shared_data / "ner/wnut17/emerging.dev.conll")).documents())


@pytest.mark.parametrize(("longest", "texts"), [(9, ["abcd abcd", "abcd"]), (8, ["abcd", "abcd", "abcd"])])
def test_a_document_is_as_long_as_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int, texts: list[str]
) -> None:
    """A blank before a sentence is its own; a sentence that is too long by itself is counted, and whole."""
    monkeypatch.setattr(conllu, "LONGEST", longest - 1)
    with read.tallied() as tally:
        found = documents(tmp_path / "a.conllu", "# newdoc\n" + words("abcd") * 3)
    assert [d.text for d in found] == texts
    assert tally.cut == len(texts) - 1


@pytest.mark.parametrize("over", [0, 1])
def test_a_document_of_eight_million_characters_is_one(tmp_path: Path, over: int) -> None:
    """With the blanks between its sentences."""
    sizes = [(1 << 20) - 1] * 7 + [(1 << 20) + 1 + over]
    text = "# newdoc\n" + "".join(f"# text = {'x' * size}\n{words('x')}" for size in sizes)
    assert [len(d.ends) for d in documents(tmp_path / "a.conllu", text)] == ([7, 1] if over else [8])


def test_marks_names_and_gaps(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    text = (
        words("a+")
        + words("b")
        + "# newpar\n"
        + words("c")
        + "# newdoc = x\n"
        + words("d")
        + "# newdoc id = y = z\n#text=E f\n"
        + words("e+", "f")
        + "# newpar id\n# sent_id = 9\n"
        + words("g")
    )
    found = documents(path, text)
    assert [(d.text, d.id, d.ends) for d in found] == [
        ("ab\nc", f"{path}:1", [1, 2, 4]),
        ("d", "x", [1]),
        ("E f\ng", "y = z", [3, 5]),
    ]
    with_number = words("a") * 3 + "# newdoc\n" + words("b") * 3
    assert [d.text for d in documents(path, with_number, every=2)] == ["a a", "a", "b b b"]
    found = documents(path, words("a") * 5, every=2)
    assert [d.id for d in found] == [f"{path}:{line}" for line in (1, 5, 9)], "the line at which each begins"
    hundred = documents(path, words("a") * 201)
    assert [len(d.ends) for d in hundred] == [100, 100, 1]


def test_empty_nodes_and_ranges_hold_words_once(tmp_path: Path) -> None:
    blank = "\t" + "_\t" * 7
    told = [
        ("1-2", "au", "_"),
        ("1", "à", "_"),
        ("2", "le", "_"),
        ("2.1", "vide", "_"),
        ("3-4", "du", "SpaceAfter=No|X=1"),
        ("3", "de", "_"),
        ("4", "le", "_"),
        ("5", "lac", "A=SpaceAfter=No"),
    ]
    rows = [f"{number}\t{form}{blank}{more}" for number, form, more in told]
    (found,) = documents(tmp_path / "a.conllu", "\n".join(rows) + "\n\n" + "1\tb" + blank + "_\n2\tc" + blank + "_\n")
    assert found.text == "au dulac b c"
