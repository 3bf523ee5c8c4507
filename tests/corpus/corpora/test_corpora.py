"""The corpora: every choice gives documents, stamps its inputs, and names file and line of what it cannot take."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import menu
from ordsmed.base.errors import DataError
from ordsmed.base.menu import choice
from ordsmed.corpus.corpora import conllu, csv, jsonl, stdlib, text
from ordsmed.text import read


@pytest.mark.parametrize("kind", menu.entries("corpora"))
def test_every_corpus_offers_the_seam(kind: str) -> None:
    settings = menu.load("corpora", kind)
    assert all(callable(getattr(settings, name)) for name in ("documents", "stamp", "size"))
    assert settings.__doc__
    assert all(line.doc for line in menu.lines(f"ordsmed.corpus.corpora.{kind}"))


def test_text_documents_are_told_apart_by_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("\n\n one\ntwo\n \t\n\nthree")
    (tmp_path / "a.txt").write_text("zero\n")
    found = [(d.id.removeprefix(f"{tmp_path}/"), d.text) for d in text.TextFiles(str(tmp_path)).documents()]
    assert found == [("a.txt:1", "zero"), ("b.txt:1", " one\ntwo"), ("b.txt:2", "three")]


def test_a_document_too_long_is_cut_at_a_line_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST", 100)
    (tmp_path / "a.txt").write_text("a line of words\n" * 50)
    with read.tallied() as tally:
        found = list(text.TextFiles(str(tmp_path / "a.txt")).documents())
    assert all(len(d.text) <= 100 for d in found)
    assert "\n".join(d.text for d in found) == "\n".join(["a line of words"] * 50)
    assert tally.cut == len(found) - 1


def test_the_stamp_follows_the_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    corpus = text.TextFiles(str(tmp_path))
    before = corpus.stamp()
    assert before == [[str(path), 3, path.stat().st_mtime_ns]]
    assert corpus.size() == 3
    path.write_text("one two")
    assert corpus.stamp() != before


def lines(path: Path, *written: str, **settings: Any) -> list[Any]:
    path.write_text("\n".join(written), encoding="utf-8")
    return list(jsonl.Jsonl(str(path), **settings).documents())


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    one, two = lines(path, '{"text": "One. Å", "n": 1}', "", '{"n": 2, "text": "Two"}')
    assert (one.text, one.id, one.meta) == ("One. Å", f"{path}:1", {"n": 1})
    assert (two.text, two.id, two.meta) == ("Two", f"{path}:3", {"n": 2})
    (one,) = lines(path, '{"body": "b", "name": 7}', text_key="body", id_key="name")
    assert (one.text, one.id, one.meta) == ("b", "7", {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "cut', "bad JSON"),
        ('{"text": 1,,}', "bad JSON: JSON is malformed"),
        ('["text"]', "a list; wanted an object"),
        ('{"text": ' + "[" * 100_000, "bad JSON"),
        ('{"body": "x", "id": 3}', "no `text`; keys: body, id; wanted a string under `text`; set `text_key`"),
        ('{"text": 3}', "`text` holds an int"),
        ('{"text": "\\ud800"}', "lone surrogates"),
    ],
)
def test_bad_json_names_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        lines(tmp_path / "a.jsonl", '{"text": "fine"}', line)
    assert str(caught.value).startswith(f"{tmp_path}/a.jsonl:2: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lone_surrogates_can_be_replaced(tmp_path: Path) -> None:
    with read.tallied() as tally:
        (one,) = lines(tmp_path / "a.jsonl", '{"text": "a \\ud800 b"}', errors="replace")
    assert one.text == "a \ufffd b"
    assert tally.replaced == 1


@pytest.fixture(scope="module")
def prose() -> list[Any]:
    return list(stdlib.Stdlib().documents())


@pytest.mark.long
def test_the_stdlib_is_much_prose(prose: list[Any]) -> None:
    assert sum(len(d.text.split()) for d in prose) > 160_000
    assert len({d.id for d in prose}) == len(prose) > 300


@pytest.mark.long
def test_the_stdlib_is_the_same_twice(prose: list[Any]) -> None:
    assert list(stdlib.Stdlib().documents()) == prose


@pytest.mark.long
def test_the_stdlib_reads_as_english(prose: list[Any]) -> None:
    paragraphs = [p for d in prose for p in d.text.split("\n")]
    words = " ".join(paragraphs).split()
    assert len(set(paragraphs)) == len(paragraphs)
    assert not [p for p in paragraphs if ">>>" in p or "::=" in p or "``" in p]
    assert sum(w.lower() == "the" for w in words) > 0.04 * len(words)
    assert sum(bool(re.fullmatch(r"\W*[A-Za-z][a-z'’-]*\W*", w)) for w in words) > 0.85 * len(words)


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        ("Return the :class:`~a.b.Thing` of ``x`` and *y* [1]_.", ["Return the Thing of x and y."]),
        ("f(x) -> int\n\nReturn the sum of the two\nnumbers.\n\n>>> f(1)\n3", ["Return the sum of the two numbers."]),
        ("* The first one is\n  it.\n* The second one is there.", ["The first one is it.", "The second one is there."]),
        ("name   type    what\nx      int     the first of the two.", []),
        ("x = {1: 2}; y = [z for z in x if z.a == (1, 2)].", []),
        ("key -- The name of the key in question.", ["The name of the key in question."]),
    ],
)
def test_paragraphs(doc: str, found: list[str]) -> None:
    assert list(stdlib.paragraphs(doc)) == found


def test_json_lines_in_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "blåbær på øya"}\r\n{"text": "ærlig"}\r\n'.encode("utf-16"))
    with pytest.raises(DataError, match='is UTF-16; wanted text in UTF-8; convert it, or set encoding = "utf-16"'):
        list(jsonl.Jsonl(path=str(path)).documents())
    for encoding in ("auto", "utf-16"):
        found = jsonl.Jsonl(path=str(path), encoding=encoding).documents()
        assert [document.text for document in found] == ["blåbær på øya", "ærlig"]
    for kind in (jsonl, text, conllu):
        with pytest.raises(ValueError, match="encoding: found 'base64'"):
            choice(kind)(path=str(path), encoding="base64")
        with pytest.raises(ValueError, match="densest: found -1"):
            choice(kind)(path=str(path), densest=-1)


@pytest.mark.parametrize("over", [0, 1])
def test_a_text_of_eight_million_characters_is_one_document(over: int) -> None:
    """With its line ends, after any text."""
    written = iter(["z", "", *["x" * ((1 << 20) - 1)] * 7, "y" * ((1 << 20) + over)])
    with read.tallied() as tally:
        found = list(text._documents(Path("a.txt"), written))[1:]
    assert [(d.id, len(d.text)) for d in found] == (
        [("a.txt:2", (7 << 20) - 1), ("a.txt:3", (1 << 20) + 1)] if over else [("a.txt:2", 8 << 20)]
    )
    assert tally.cut == over


def test_names_of_json_lines_follow_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    found = lines(path, '{"text": "a", "id": null}', "  ", '{"text": "b", "id": ""}', '{"text": "c"}', id_key="id")
    assert [(d.id, d.meta) for d in found] == [(f"{path}:1", {}), ("", {}), (f"{path}:4", {})]
    (found,) = lines(path, '{"text": "a", "id": 3, "score": NaN}')
    assert (found.id, found.meta["id"]) == (f"{path}:1", 3)
    assert found.meta["score"] != found.meta["score"]
    with pytest.raises(DataError, match=r"no `text`; keys: " + ", ".join(f"k{n}" for n in range(8)) + ";"):
        lines(path, "{" + ", ".join(f'"k{n}": 0' for n in range(9)) + "}")
    with pytest.raises(DataError, match="no `text`; keys: none;"):
        lines(path, "{}")
    with read.tallied() as tally:
        (found,) = lines(path, '{"text": "\\ud800 \\udfff", "a": "\\udc00"}', errors="replace")
    assert (found.text, found.meta, tally.replaced) == ("\ufffd \ufffd", {"a": "\ufffd"}, 3)


@pytest.mark.parametrize(
    ("words", "prose"),
    [
        ("One is of the four.", True),
        ("It is a house.", False),  # five words or more
        ("it is one of the words of a list.", True),
        ("is one of the words of it.", False),  # small: eight
        ("It is one of the words here", False),
        ("It is one of the words here:", True),
        ("Good men and a1 b2 there.", False),
        ("Good men and very a1 b2 now too.", True),  # plain: three of four
        ("Ten long words stand here, alone that is good enough today.", True),
        ("Ten long words stand here, alone; nobody holds them together now.", False),
        ("It is the end of (x) and there is more to tell than before, as was said at length here.", True),
        ("It is the end of (x) and there is more.", False),  # few signs of code: three of a hundred characters
    ],
)
def test_what_reads_like_prose(words: str, prose: bool) -> None:
    assert stdlib._reads_like_prose(words) == prose


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        (
            "(1) The first of the two is it.\n2. The second of the two is it.\n[3] The third of them is it.",
            ["The first of the two is it.", "The second of the two is it.", "The third of them is it."],
        ),
        (
            "Head.\n\nThe first line of it is one.\n  The next of the lines\n  is indented here.",
            ["The first line of it is one.", "The next of the lines is indented here."],
        ),
        (
            "- The first line of it\n  and the next one of it.\n- That is all of it.",
            ["The first line of it and the next one of it.", "That is all of it."],
        ),
        (
            "See ``x`` and `name <url>`_ of the *word* or **words** in it::",
            ["See x and name of the word or words in it:"],
        ),
        (":param x: The name of the thing in it.", ["The name of the thing in it."]),
        (
            ".. note:: It is one of the words.\r\n\r\n@param x: It is one of the words.",
            ["It is one of the words.", "It is one of the words."],
        ),
        ("The sign ``a'' is one of those in it.", ['The sign "a" is one of those in it.']),
    ],
)
def test_paragraphs_and_items_of_docstrings(doc: str, found: list[str]) -> None:
    assert list(stdlib.paragraphs(doc)) == found


def test_docstrings_are_taken_in_their_order_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "a.py").write_text(
        '"""The module is one of the words."""\nclass A:\n    """The class is one of the words."""\n'
        '    def f(self):\n        """The method is one of the words."""\n        def g():\n'
        '            """The inner one is one of the words."""\n'
        'async def h():\n    """The module is one of the words."""\nx = """The value is no docstring of it."""\n'
    )
    (tmp_path / "b.py").write_text('"""The class is one of the words.\n\nThis is new in the file b."""')
    (tmp_path / "c.py").write_text("def broken(:")
    (tmp_path / "test" / "d.py").write_text('"""A test is one of the words."""')
    monkeypatch.setattr(stdlib, "_root", lambda: tmp_path)
    with pytest.raises(DataError, match="3 modules of the standard library as source"):
        stdlib.Stdlib().size()
    for n in range(97):
        (tmp_path / f"z{n}.py").write_text("")
    monkeypatch.setattr(stdlib, "_topics", lambda: iter([("topic X", ["A topic is one of the words."])]))
    monkeypatch.setattr(stdlib, "_BUILT", "no_such_module without_words zlib")
    monkeypatch.setitem(sys.modules, "without_words", types.ModuleType("without_words"))
    size = sum(path.stat().st_size for path in tmp_path.glob("*.py"))
    assert stdlib.Stdlib().size() == size
    with read.tallied() as tally:
        topic, a, b, zlib = stdlib.Stdlib().documents()
    assert tally.bytes == size
    assert (topic.id, topic.text) == ("topic X", "A topic is one of the words.")
    assert (a.id, a.text.split("\n")) == (
        "a.py",
        [f"The {what} is one of the words." for what in ("module", "class", "method", "inner one")],
    )
    assert (b.id, b.text) == ("b.py", "This is new in the file b.")
    assert zlib.id == "zlib"
    assert "The functions in this module allow compression" in zlib.text
    assert "Return the compressed" in zlib.text or "compress" in zlib.text.split("\n")[-1]


def test_a_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n \n\nthree")
    documents = list(text.TextFiles(str(path), apart="line").documents())
    assert [(one.text, one.id) for one in documents] == [
        ("one", f"{path}:1"),
        ("two", f"{path}:2"),
        ("three", f"{path}:5"),
    ]


def test_rows_of_a_table(tmp_path: Path) -> None:
    """Of quoted fields too, by a column's name or number; a row without text is no document."""
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"One, two.\nThree."\n2,\n3,four\n')
    documents = list(csv.Csv(str(path)).documents())
    assert [(one.text, one.id) for one in documents] == [("One, two.\nThree.", f"{path}:2"), ("four", f"{path}:5")]
    assert [one.text for one in csv.Csv(str(path), text_key=1, header=False).documents()] == ["id", "1", "2", "3"]
    with pytest.raises(DataError, match="no column `body`"):
        list(csv.Csv(str(path), text_key="body").documents())
