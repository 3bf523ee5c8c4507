"""CoNLL files: words and tags come out, and the file comes back with nothing changed but its tags."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.text.labelled import conll

TREE = """# sent_id = 1
# text = Vi så  # no word
1\tVi\tvi\tPRON\t_\tCase=Nom|Number=Plur\t2\tnsubj\t_\tname=O
2-3\tså'n\t_\t_\t_\t_\t_\t_\t_\t_
2\tså\tse\tVERB\tV\tTense=Past\t0\troot\t_\tSpaceAfter=No|name=B-X
3\tNew York\t_\tPROPN\tP\t_\t2\tobj\t_\tname=I-X|Note=a=b
3.1\tunsaid\t_\tX\tX\t_\t_\t_\t_\t_

0.1\tunsaid\t_\tX\tX\t_\t_\t_\t_\t_
1\tTo\tto\t_\tN\tnumber=No\t0\troot\t_\tSpaceAfter=No
"""
NAMES = "-DOCSTART- -X- O\n\nOslo NNP  B-LOC\nis VBZ O\n \t\n\n#1 CD O \n-DOCSTART- -X- O\nOh UH _\n"


def found(path: Path, text: str | bytes, column: str | int, **settings: Any) -> conll.TaggedSentences:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return conll.read(str(path), column, **settings)


def written(sentences: conll.TaggedSentences, predictions: list[list[str]]) -> str:
    [text] = conll.texts(sentences, predictions)
    return text


def complaint(path: Path, text: str, column: str | int, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        found(path, text, column, **settings)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("upos", [["PRON", "VERB", "PROPN"], [None]]),
        (4, [["PRON", "VERB", "PROPN"], [None]]),
        ("XPOS", [[None, "V", "P"], ["N"]]),
        ("deprel", [["nsubj", "root", "obj"], ["root"]]),
        ("lemma", [["vi", "se", None], ["to"]]),
        ("feats", [["Case=Nom|Number=Plur", "Tense=Past", "_"], ["number=No"]]),
        (-5, [["Case=Nom|Number=Plur", "Tense=Past", "_"], ["number=No"]]),
        ("feats:Number", [["Plur", "_", "_"], ["_"]]),
        ("misc:name", [["O", "B-X", "I-X"], [None]]),
        ("misc:Note", [[None, None, "a=b"], [None]]),
    ],
)
def test_columns_of_conllu(tmp_path: Path, column: str | int, tags: list[list[str | None]]) -> None:
    sentences = found(tmp_path / "a.txt", TREE, column)
    assert sentences.words == [["Vi", "så", "New York"], ["To"]]
    assert sentences.tags == tags
    assert sentences.starts == [f"{tmp_path}/a.txt:3", f"{tmp_path}/a.txt:10"]


@pytest.mark.parametrize(
    ("column", "tags", "changed"),
    [
        ("upos", ["A", "B", "C", "D"], {2: ("PRON", "A"), 4: ("VERB", "B"), 5: ("PROPN", "C"), 9: ("to\t_", "to\tD")}),
        ("feats:Mood", ["_", "Ind", "_", "Z"], {4: ("Tense", "Mood=Ind|Tense"), 9: ("number", "Mood=Z|number")}),
        ("feats:Voice", ["_", "_", "_", "Z"], {9: ("number=No", "number=No|Voice=Z")}),
        ("feats:Case", ["_", "_", "Nom", "_"], {2: ("Case=Nom|", ""), 5: ("_\t2", "Case=Nom\t2")}),
        ("feats:number", ["_", "_", "_", "_"], {9: ("number=No", "_")}),
        ("misc:name", ["O", "O", "B-Y", "O"], {4: ("B-X", "O"), 5: ("I-X", "B-Y"), 9: ("After=No", "After=No|name=O")}),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_predictions_take_the_place_of_tags(
    tmp_path: Path, column: str, tags: list[str], changed: dict[int, tuple[str, str]], end: str
) -> None:
    lines = TREE.rstrip("\n").split("\n")  # no end behind the last line
    sentences = found(tmp_path / "a.conllu", ("\ufeff" + end.join(lines)).encode(), column)
    for number, (old, new) in changed.items():
        assert lines[number].count(old) == 1
        lines[number] = lines[number].replace(old, new)
    assert written(sentences, [tags[:3], tags[3:]]) == "\ufeff" + end.join(lines)


def test_columns_parted_by_blanks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = found(tmp_path / "a.txt", NAMES, -1)
    assert sentences.words == [["Oslo", "is"], ["#1"], ["Oh"]]
    assert sentences.tags == [["B-LOC", "O"], ["O"], [None]]
    assert capsys.readouterr().err == f"{tmp_path}/a.txt: 1 of 4 words have no tag in column -1\n"
    assert found(tmp_path / "a.txt", NAMES, 2).tags[0] == ["NNP", "VBZ"]
    assert found(tmp_path / "a.txt", NAMES, 1, word=-2).words[0] == ["NNP", "VBZ"]
    changed = NAMES.replace("B-LOC", "O").replace("CD O", "CD B-X").replace("UH _", "UH O")
    assert written(sentences, [["O", "O"], ["B-X"], ["O"]]) == changed


def test_columns_parted_by_tabs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# id 1\tx\ty\n#a b\tB\n\tI\nc\t\n\t\n# id 2\n#\tO\n"
    sentences = found(tmp_path / "a.txt", "x\tO\n\n" + text, 2)
    assert sentences.words == [["x"], ["#a b", "", "c"], ["#"]]
    assert sentences.tags == [["O"], ["B", "I", None], ["O"]]
    said = capsys.readouterr().err
    for line in ("2 lines beginning with # taken for comments", "1 of 5 words are empty", "1 of 5 words have no tag"):
        assert line in said


def test_files_without_tags_get_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert written(found(path, "Oslo\nis\n\nOh", -1, tagged=False), [["B", "O"], ["O"]]) == "Oslo\tB\nis\tO\n\nOh\tO"
    assert written(found(path, "Oslo\n", "upos", tagged=False), [["PROPN"]]) == "Oslo\tPROPN\n"
    assert written(found(path, "Oslo NNP\r\n", 3, tagged=False), [["B"]]) == "Oslo NNP B\r\n"
    assert written(found(path, "Oslo NNP\n", -1, tagged=False), [["B"]]) == "Oslo B\n"
    bare = found(path, "1\tOslo" + "\t_" * 8 + "\n", "misc:name", tagged=False)
    assert bare.tags == [[None]]
    assert written(bare, [["B"]]) == "1\tOslo" + "\t_" * 7 + "\tname=B\n"
    with pytest.raises(ValueError, match="predictions: found other numbers of tags than of words"):
        written(bare, [["B", "O"]])


def test_several_files_stay_apart(tmp_path: Path) -> None:
    for name, text in (("a", "\ufeffa O"), ("b", "\ufeffb O\r\n"), ("c", "c O\n\n"), ("d", "d O\n")):
        (tmp_path / f"{name}.xz").write_bytes(lzma.compress(text.encode()))
    sentences = conll.read(str(tmp_path), 2)
    assert sentences.words == [["a"], ["b"], ["c"], ["d"]]
    texts = conll.texts(sentences, [["1"], ["2"], ["3"], ["4"]])
    assert texts == ["\ufeffa 1", "\ufeffb 2\r\n", "c 3\n\n", "d 4\n"]


def test_sentences_without_a_blank_line_between(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = "\t{}" + "\t_" * 8 + "\n"
    rows = ["1", "1.1", "2", "1-2", "1", "2", "# sent_id = 3", "3", "# text = of no other sentence", "4"]
    text = "".join(n + "\n" if n[0] == "#" else n + row.format(f"w{at}") for at, n in enumerate(rows))
    sentences = found(tmp_path / "a.conllu", text, "upos", tagged=False)
    assert sentences.words == [["w0", "w2"], ["w4", "w5"], ["w7", "w9"]]
    assert "2 sentences begin without a blank line before them, the first in line 4" in capsys.readouterr().err


def test_long_sentences_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = found(tmp_path / "a.txt", "x O\n" * 100_000, -1)
    assert list(map(len, sentences.words)) == [100_000]
    assert "a sentence of 100,000 words ends in line 100,000" in capsys.readouterr().err
    found(tmp_path / "a.txt", "x O\n\n" * 1000, -1)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("x O\nis\n", -1, ":2: 1 column; wanted 2 as in line 1; fix"),
        ("x O\nis VBZ O\n", -1, ":2: 3 columns; wanted 2"),
        ("x O\n# a b\n", -1, ":2: 3 columns; wanted 2"),
        ("\nx O\n", 3, ":2: 2 columns, the words in column 1; wanted column 3, that of the tags"),
        ("x\n", -1, ":1: 1 column, the words in column 1; wanted column -1, that of the tags, next to it"),
        ("x O\n", "upos", ":1: 2 columns; wanted CoNLL-U for upos; or name a column by its number"),
        ("x _\n", 2, ": no word has a tag in column 2"),
        ("# a\n\n", 2, ": no words"),
        (TREE, "misc:nam", ": no word has a tag in column misc:nam"),
        (TREE, 11, ": 10 columns of CoNLL-U; wanted column 11"),
        (TREE.replace("3\tNew", "three\tNew"), "upos", ":6: a word numbered 'three'"),
        (TREE.replace("\troot\t_", "\troot"), "upos", ":5: 9 columns; wanted ten of CoNLL-U"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, column: str | int, said: str) -> None:
    assert complaint(tmp_path / "a.txt", text, column).startswith(said)


def test_other_places_are_refused(tmp_path: Path) -> None:
    for column in (0, "", "ner", "misc", "upos:x", "misc:", "1.5"):
        with pytest.raises(ValueError, match=r"column: found .*; wanted lemma, upos"):
            conll.Column.of(column)
    assert complaint(tmp_path / "a.txt", "x O\n", 2, word=3).startswith(
        ":1: 2 columns; wanted column 3, that of the words"
    )
    assert "2 columns; wanted ten" in complaint(tmp_path / "a.conllu", "x\tO\n", 2)
    with pytest.raises(DataError, match="invalid UTF-8"):
        found(tmp_path / "a.txt", b"\xff O\n", 2)
    assert found(tmp_path / "a.txt", b"\xff O\n", 2, errors="replace").words == [["\ufffd"]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "column", "sentences", "words", "tags"),
    [
        ("ud/English-EWT/en_ewt-ud-dev.conllu", "upos", 2001, 25147, 17),
        ("ner/norne/no_bokmaal-ud-dev.conllu", "misc:name", 2410, 36369, 17),
        ("ner/norne/nob-train-ndt.conll.xz", "misc:name", 15813, 245727, 19),
        ("ner/wnut17/wnut17train.conll", -1, 3394, 62730, 13),
        ("ner/wnut17/emerging.dev.conll", -1, 1009, 15733, 13),
    ],
)
def test_real_files(shared_data: Path, name: str, column: str | int, sentences: int, words: int, tags: int) -> None:
    path = shared_data / name
    read = conll.read(str(path), column)
    assert (len(read.words), sum(map(len, read.words))) == (sentences, words)
    labels = {tag for sentence in read.tags for tag in sentence}
    assert (len(labels), None in labels) == (tags, False)
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    assert written(read, [[str(tag) for tag in sentence] for sentence in read.tags]).encode() == data


def test_where_a_word_stands(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x O\n\n\ny O\nz O\n")
    (tmp_path / "b").write_bytes(b"-DOCSTART- O\r\n\r\nv O\rw O\n")
    sentences = conll.read(str(tmp_path), 2)
    assert sentences.words == [["x"], ["y", "z"], ["v", "w"]]
    places = [sentences.place(n, word) for n, words in enumerate(sentences.words) for word in range(len(words))]
    assert places == [f"{tmp_path}/{at}" for at in ("a:1", "a:4", "a:5", "b:3", "b:4")]
    assert [source.width for source in sentences.sources] == [2, 2]


def test_sentences_without_a_tag_teach_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = found(tmp_path / "a.txt", "x _\n\ny B\nz _\n\nw _\n", 2)
    kept = sentences.to_learn()
    assert (kept.words, kept.tags, kept.sources, len(kept)) == ([["y", "z"]], [["B", None]], [], 1)
    assert kept.place(0, 1) == f"{tmp_path}/a.txt:3"
    assert f"{tmp_path}/a.txt: 2 of 3 sentences have no tag: left out" in capsys.readouterr().err
    kept.to_learn()
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv.txt", "x,O\n", ": commas between its columns, by its name; wanted a word and its tag per line"),
        ("a.txt", ' \ufeff\n{"data": []}\n', ": JSON; wanted a word and its tag per line"),
        ("a.txt", '{"text": "a"}\n{"text": "b"}\n', ": JSON"),
        ("a.txt", '[\n{"text": "a"}]', ": JSON"),
        ("a.txt", "It rains.\tO\nIt is wet.\tO\nSun\tO\n", ": 2 of 3 words are several words, as `It rains.`"),
    ],
)
def test_files_of_other_tasks_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert complaint(tmp_path / name, text.replace(" \ufeff", "\ufeff "), 2).startswith(said)


@pytest.mark.parametrize("text", ["[ O\nx O\n", "{ O\n", "[]\tO\n", "[1]\tO\n", "New York\tB\nis\tO\n"])
def test_words_that_look_like_them_are_not(tmp_path: Path, text: str) -> None:
    assert found(tmp_path / "a.txt", text, 2).words[0][0] in ("[", "{", "[]", "[1]", "New York")


def test_what_is_told_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(text: str, column: str | int, **settings: Any) -> str:
        found(tmp_path / "a.txt", text.encode(errors="surrogateescape"), column, **settings)
        return capsys.readouterr().err.replace(f"{tmp_path}/a.txt: ", "")

    assert not said("y O\n\n" + "x O\n" * 500, 2)
    assert "a sentence of 501 words ends in line 503" in said("y O\n\n" + "x O\n" * 501 + "\nz O\n" * 3, 2)
    assert "2 columns, none of them 3: the correct tags are unknown" in said("x O\n", 3, tagged=False)
    assert not said("x\n", 2, tagged=False)
    assert not said("x _\n", 2, tagged=False), "what is to be told needs no tags"
    one = "1\tx" + "\t_" * 8 + "\n"
    assert "1 sentence begins without a blank line" in said(one * 2, "upos", tagged=False)
    assert not said(f"{one}\n{one}", "upos", tagged=False)
    assert "1 line beginning with # taken" in said("x O\n\n# a b\ny O\n", 2)
    assert "1 sequences of invalid UTF-8 replaced" in said("\udcff O\n", 2, errors="replace")
