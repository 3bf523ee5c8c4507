"""Tables: columns by name or number with their lines, from every format; what is broken is counted or refused; GLUE."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kit.makers import digest_of
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.text import read
from ordsmed.text.labelled import glue, tables
from ordsmed.text.labelled.tables import Table, table

TWO = ("sentence1", "sentence2")
BOTH = {"text": "sentence", "label": "label"}


def made(folder: Path, name: str, content: str | bytes, columns: Any = BOTH, **how: Any) -> Table:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return table(path, columns, **how)


def complaint(folder: Path, name: str, content: str | bytes, columns: Any = BOTH, **how: Any) -> str:
    with pytest.raises(OrdsmedError) as caught:
        made(folder, name, content, columns, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}/")


def test_tsv_has_no_quotes_and_a_row_keeps_its_line(tmp_path: Path) -> None:
    found = made(tmp_path, "a.tsv", '\ufefflabel\tsentence\r\n1\t"Oh, he said \r\n0\tso "it" is"\r\n\r\n\r\n')
    assert found.columns == {"text": ['"Oh, he said ', 'so "it" is"'], "label": ["1", "0"]}
    assert found.lines == [2, 3]
    assert found.place(1) == f"{tmp_path}/a.tsv:3"
    assert list(found.columns) == ["text", "label"]


def test_columns_by_number_where_nothing_names_them(tmp_path: Path) -> None:
    found = made(tmp_path, "a.tsv", "x\t1\t\tOne.\nx\t0\t*\tTwo.\n", {"text": 4, "label": 2}, header=False)
    assert (found.columns, found.lines) == ({"text": ["One.", "Two."], "label": ["1", "0"]}, [1, 2])
    assert made(tmp_path, "a.tsv", "a\ta\nb\tc\n", {"text": 2}).columns == {"text": ["c"]}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_packed(tmp_path: Path, pack: Any) -> None:
    ending = {"gzip": "gz", "bz2": "bz2", "lzma": "xz"}.get(pack.__module__, "zst")
    assert made(tmp_path, f"a.tsv.{ending}", pack(b"sentence\tlabel\nOne.\t1\n")).columns["text"] == ["One."]


@given(rows=st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\0")), st.integers())))
def test_csv_gives_back_what_was_written(rows: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence", "label"), *rows, ("last", 1)])
    found = table(path, BOTH)
    assert found.columns == {"text": [*(t for t, _ in rows), "last"], "label": [*(str(n) for _, n in rows), "1"]}
    begun = [2 + sum(t.count("\n") + 1 for t, _ in rows[:n]) for n in range(len(rows) + 1)]
    assert found.lines == begun


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ('"good,1\nbad,0\nfine",1\n', "line 2 to 4"),
        ('a,1\n"good,1\nfine",1\n', "line 3 to 4"),
        ('good,"1\nbad,0\nfine,"\n', "line 2 to 4"),
        ('"two\nlines, of text",1\n', ""),
        ('"Dear all,\nwrite",1\n"two\nlines, of text",1\n', ""),
        ('"a,\nb,\nc,",1\n', ""),
        ('"She said ""yes"",\nand left",1\n', ""),
        ('"yes, or\nno",1\n' * 5, ""),
        ('a,1\n"good,1\nfine",1\n"good,1\nfine",1\n' + "a,1\n" * 9, "line 3 to 4"),
    ],
)
def test_rows_between_two_quotes_are_told(
    rows: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "a.csv", f"sentence,label\n{rows}")
    said = capsys.readouterr().err
    assert (f"the first goes from {told}: check it for an extra quote" in said) if told else not said


def test_csv_parted_by_semicolons(tmp_path: Path) -> None:
    found = made(tmp_path, "a.csv", 'sentence;label\n"Ja; nei";1,5\n')
    assert found.columns == {"text": ["Ja; nei"], "label": ["1,5"]}


def test_long_texts_stay_whole(tmp_path: Path) -> None:
    long = "word, " * 200_000
    assert made(tmp_path, "a.csv", f'sentence,label\n"{long}",1\n').columns["text"] == [long]


@pytest.mark.parametrize(
    ("rows", "read_to"),
    [
        ('1,"never closed\n0,fine\n', 4),  # up to the end of the file
        ('1,"not closed\n0,"begun here",\n', 4),  # what follows a closing quote is no comma
        ('1,"not closed\n0,fine\n1,said ",odd\n', 5),  # it closes well, but the record is too wide
        ('1,"back \\"slashes\\" here"\n', 3),
    ],
)
def test_a_quote_that_swallows_lines_is_refused_where_it_begins(tmp_path: Path, rows: str, read_to: int) -> None:
    said = complaint(tmp_path, "a.csv", "label,sentence\n1,good\n" + rows)
    assert said.startswith("a.csv:3: a quoted field does not end as it should (read up to line ")
    assert int(said.split("line ")[1].split(")")[0]) <= read_to
    assert 'set format = "tsv"' in said


def test_json_lines_and_a_list(tmp_path: Path) -> None:
    records = [{"sentence": "Én.", "label": 1, "more": [2]}, {"label": 2.5, "sentence": "To."}]
    wanted = {"text": ["Én.", "To."], "label": ["1", "2.5"]}
    lines = "\n\n".join(json.dumps(r) for r in records)
    for name, content, places in (("a.jsonl", lines, [1, 3]), ("a.json", lines, [1, 3])):
        found = made(tmp_path, name, content)
        assert (found.columns, found.lines) == (wanted, places)
    found = made(tmp_path, "a.json", json.dumps(records, indent=1))
    assert (found.columns, found.lines) == (wanted, [1, 2])
    assert made(tmp_path, "a.jsonl", '{"x": true}\n{"x": null}\n', {"x": "x"}).columns == {"x": ["true", ""]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"sentence": "a", "label": 1}\n{"sentence"', "a.jsonl:2: bad JSON"),
        ('{"sentence": 1,,}', "a.jsonl:1: bad JSON: JSON is malformed"),
        ('["a"]', "a.jsonl:1: JSON, but a list; wanted an object"),
        ('{"sentence": ["a"], "label": 1}', "a.jsonl:1: a list in a column"),
        ('{"sentence": "\\ud800", "label": 1}', "a.jsonl:1: bad JSON"),
    ],
)
def test_json_that_cannot_be(tmp_path: Path, content: str, said: str) -> None:
    assert complaint(tmp_path, "a.jsonl", content).startswith(said)


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    classes = pa.array(["pos", "neg", ""]).dictionary_encode()
    pq.write_table(pa.table({"n": [1, 2, 3], "sentence": ["Å.", None, "c"], "label": classes}), path, row_group_size=2)
    found = table(path, {**BOTH, "n": 1})
    assert found.columns == {"text": ["Å.", "", "c"], "label": ["pos", "neg", ""], "n": ["1", "2", "3"]}
    assert found.lines == [1, 2, 3]
    raw = pa.array([b"fine", b"a\xffb"], pa.binary())
    pq.write_table(pa.table({"sentence": pa.Array.from_buffers(pa.string(), 2, raw.buffers())}), path)
    with pytest.raises(DataError, match=r"a.parquet:2: byte 1: invalid UTF-8"):
        table(path, {"text": "sentence"})
    assert table(path, {"text": "sentence"}, errors="replace").columns["text"] == ["fine", "a\ufffdb"]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        table(path, {"text": "sentence"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RecipeError, match=r"pip install 'ordsmed\[parquet\]'"):
        table(path, BOTH)


def test_a_few_broken_rows_are_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"text {n}\t{n}" for n in range(40)]
    rows[7], rows[30] = "a stray\ttab\t7", ""
    found = made(tmp_path, "a.tsv", "\n".join(["sentence\tlabel", *rows]))
    assert found.columns["label"] == [str(n) for n in range(40) if n not in (7, 30)]
    assert found.lines == [n + 2 for n in range(40) if n not in (7, 30)]
    assert "left out 2 of 40 rows; the first: line 9 has 3 columns, not 2" in capsys.readouterr().err
    rows[8] = "alone"
    said = complaint(tmp_path, "a.tsv", "\n".join(["sentence\tlabel", *rows]))
    assert said.startswith("a.tsv:9: 3 columns, not 2; 3 of 40 rows are wrong")
    objects = [json.dumps({"sentence": "a", "label": 1})] * 30 + ['{"sentence": "b"}']
    assert len(made(tmp_path, "a.jsonl", "\n".join(objects))) == 30
    assert "line 31 has no `label`" in capsys.readouterr().err


def test_an_empty_text_stays_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, "a.tsv", "sentence\tlabel\n \t1\nb\t0\n").columns["text"] == [" ", "b"]
    assert "a.tsv:2: `sentence` is empty, in 1 of 2 rows; they are kept" in capsys.readouterr().err
    assert made(tmp_path, "b.tsv", "sentence\na\n\nb\n\n", {"text": "sentence"}).columns["text"] == ["a", "", "b"]


@pytest.mark.parametrize(
    ("columns", "how", "said"),
    [
        ({"t": "labl"}, {}, "no column `labl`; wanted one of sentence, label; did you mean `label`?"),
        ({"t": "x"}, {}, "no column `x`; wanted one of sentence, label; set header = false, and number the columns"),
        ({"t": 3}, {}, "no column 3; wanted a number from 1 to 2"),
        ({"t": 0}, {}, "no column 0; wanted a number from 1 to 2"),
        ({"t": "label"}, {"header": False}, "column `label` of a file without a header; wanted a number from 1 to 2"),
        ({"t": "label"}, {"format": "csv"}, "no column `label`; wanted one of sentence\tlabel"),
    ],
)
def test_a_column_that_is_not_there(tmp_path: Path, columns: Any, how: Any, said: str) -> None:
    assert complaint(tmp_path, "a.tsv", "sentence\tlabel\nOne.\t1\n", columns, **how).startswith(f"a.tsv: {said}")


def test_files_that_hold_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(tmp_path, "a.tsv", "") == "a.tsv: no rows; wanted at least one"
    assert complaint(tmp_path, "a.tsv", "sentence\tlabel\n\n") == "a.tsv: no rows; wanted at least one"
    assert complaint(tmp_path, "a.csv", "label,label\n1,2\n", {"t": "label"}).startswith(
        "a.csv: 2 columns are called `label`"
    )
    assert complaint(tmp_path, "a.txt", "x").startswith(
        "a.txt: a name without a known suffix; wanted one that ends in .tsv"
    )
    assert "byte 18: invalid UTF-8" in complaint(tmp_path, "a.tsv", b"sentence\tlabel\nok \xff\t1\n")
    with read.tallied() as tally:
        assert made(tmp_path, "a.tsv", b"sentence\tlabel\nok \xff\t1\n", errors="replace").columns["text"] == [
            "ok \ufffd"
        ]
    assert tally.replaced == 1
    made(tmp_path, "a.csv", b"sentence,label\nok \xff,1\n", errors="replace")
    made(tmp_path, "a.json", b'[{"sentence": "ok \xff", "label": 1}]', errors="replace")
    said = capsys.readouterr().err
    assert [
        said.count(f"a.{kind}: 1 sequences of invalid UTF-8 replaced by U+FFFD") for kind in ("tsv", "csv", "json")
    ] == [1] * 3
    with pytest.raises(DataError, match="no such file"):
        table(tmp_path / "none.csv", BOTH)


def test_values_as_numbers_and_labels(tmp_path: Path) -> None:
    found = made(tmp_path, "a.tsv", "sentence\tlabel\na\t0.5\nb\t 5\nc\tno\nd\tinf\n")
    first = found.where("text", "b")
    assert (first.numbers("label", (0, 5)), first.lines) == ([5.0], [3])
    with pytest.raises(DataError, match=r"a.tsv:4: `label` is `no`; wanted a number$"):
        found.numbers("label")
    with pytest.raises(DataError, match=r"a.tsv:5: `label` is `inf`"):
        found.where("text", "d").numbers("label")
    with pytest.raises(DataError, match=r"a.tsv:3: `label` is ` 5`; wanted a number from 0 to 4"):
        first.numbers("label", (0, 4))
    with pytest.raises(DataError, match="no row whose `sentence` is `x`; wanted one of a, b, c, d"):
        found.where("text", "x")


# as the files of the benchmark begin, in words of our own
OFFICIAL = {
    "CoLA": ("x\t1\t\tIt rains.\nx\t0\t*\tRains it the.\n", "index\tsentence\n0\tIt rains.\n"),
    "SST-2": ("sentence\tlabel\na fine film \t1\ndull \t0\n", "index\tsentence\n0\ta fine film \n"),
    "MRPC": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        '1\t7\t8\tIt rains.\tRain falls.\n0\t7\t9\tIt rains.\t"Sun.\n',
        "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tIt rains.\tRain falls.\n",
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tg\tf\t2012\t1\tnone\tnone\tIt rains.\tRain falls.\t4.800\n",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
        "0\tg\tf\t2012\t1\tnone\tnone\tIt rains.\tRain falls.\n",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n5\t1\t2\tDoes it rain?\tIs there rain?\t1\n",
        "id\tquestion1\tquestion2\n0\tDoes it rain?\tIs there rain?\n",
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel\n0\tDoes it rain?\tIt does.\tentailment\n1\tWhy?\tIt does.\tnot_entailment\n",
        "index\tquestion\tsentence\n0\tDoes it rain?\tIt does.\n",
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n1\tA.\tSun.\tnot_entailment\n",
        "index\tsentence1\tsentence2\n0\tIt rains.\tIt is wet.\n",
    ),
    "WNLI": (
        "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\t0\n",
        "index\tsentence1\tsentence2\n0\tIt rains.\tIt is wet.\n",
    ),
}
FIRST = {
    "cola": ["It rains."],
    "sst-2": ["a fine film "],
    "mrpc": ["It rains.", "Rain falls."],
    "sts-b": ["It rains.", "Rain falls."],
    "qqp": ["Does it rain?", "Is there rain?"],
    "mnli": ["It rains.", "Sun."],
    "qnli": ["Does it rain?", "It does."],
    "rte": ["It rains.", "It is wet."],
    "wnli": ["It rains.", "It is wet."],
}
MNLI = "index\tpromptID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\t3\tg\tIt rains.\tSun.\tx\tcontradiction\n"


@pytest.fixture
def official(tmp_path: Path) -> Path:
    for name, (learned, test) in OFFICIAL.items():
        (tmp_path / name).mkdir()
        for split, content in (("train", learned), ("dev", learned), ("test", test)):
            (tmp_path / name / f"{split}.tsv").write_text(content, encoding="utf-8")
    (tmp_path / "MNLI").mkdir()
    for split in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        (tmp_path / "MNLI" / f"{split}.tsv").write_text(MNLI, encoding="utf-8")
    (tmp_path / "MNLI" / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tIt rains.\tSun.\n")
    return tmp_path


@pytest.mark.parametrize("name", glue.TASKS)
def test_every_task_reads_the_official_files(official: Path, name: str) -> None:
    task = glue.named(name)
    paths = glue.find(official, task)
    assert paths == glue.find(official / task.folder, task)
    assert set(paths) == set(task.files) == set(task.rows)
    for split, path in paths.items():
        found, own = glue.read(task, path)
        assert own == split
        assert [found.columns[role][0] for role in ("text", "second") if role in found.columns] == FIRST[name]
        if split.startswith("test"):
            assert found.columns["index"] == ["0"]
            assert ("label" in found.columns) == (name == "mnli" and split != "test_diagnostic"), "where the file has"
        elif task.range:
            assert found.numbers("label", task.range) == [4.8]
        else:
            assert {task.plain(label) for label in found.columns["label"]} <= set(task.labels)


@pytest.fixture
def entailed(tmp_path: Path) -> Path:
    """XNLI's files as they are published, with a row of each of two languages; a training file a language."""
    names = ["language", "gold_label", "a", "b", "c", "d", "sentence1", "sentence2", "promptID"]
    rows = [
        "\t".join([language, gold, *"abcd", f"{language} rain", f"{language} wet", "7"])
        for language, gold in (("de", "neutral"), ("en", "contradiction"))
    ]
    (tmp_path / "XNLI-1.0").mkdir()
    (tmp_path / "XNLI-MT-1.0/multinli").mkdir(parents=True)
    for split in ("dev", "test"):
        (tmp_path / f"XNLI-1.0/xnli.{split}.tsv").write_text("\n".join(["\t".join(names), *rows, ""]))
    for language in ("de", "en"):
        text = f"premise\thypo\tlabel\n{language} rain\t{language} sun\tcontradictory\n"
        (tmp_path / f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv").write_text(text)
    return tmp_path


def test_xnli_by_its_languages(entailed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = glue.named("XNLI")
    assert glue.find(entailed, task)["train"].name == "multinli.train.en.tsv"
    paths = glue.find(entailed, task, "de")
    assert [paths[split].name for split in paths] == ["multinli.train.de.tsv", "xnli.dev.tsv", "xnli.test.tsv"]
    assert glue.find(entailed / "XNLI-MT-1.0/multinli", task, "de") == {"train": paths["train"]}
    for split, gold, second in (("train", "contradictory", "de sun"), ("dev", "neutral", "de wet")):
        found, own = glue.read(task, paths[split], language="de")
        assert (own, found.columns["text"], found.columns["second"]) == (split, ["de rain"], [second])
        assert found.columns["label"] == [gold]
        assert task.plain(gold) in task.labels
    assert "1 row of XNLI dev, 2,490 in XNLI" in capsys.readouterr().err
    assert glue.read(task, paths["test"])[0].columns["language"] == ["de", "en"]
    assert "2 rows of XNLI test, 75,150 in XNLI" in capsys.readouterr().err
    glue.read(task, paths["train"])
    assert "1 row of XNLI train, 392,702 in XNLI" in capsys.readouterr().err
    with pytest.raises(DataError, match="no row whose `language` is `sw`; wanted one of de, en"):
        glue.read(task, paths["dev"], language="sw")
    with pytest.raises(DataError, match=r"multinli.train.*`ordsmed fetch xnli` gets them"):
        glue.find(entailed / "XNLI-1.0" / "nothing", task)


def test_labels_of_the_hub_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"premise": "a", "hypothesis": "b", "label": 2}\n')
    found, split = glue.read(glue.named("xnli"), tmp_path / "test.jsonl", language="de")
    assert (found.columns["text"], found.columns["second"], split) == (["a"], ["b"], "")
    assert glue.named("xnli").plain(found.columns["label"][0]) == "contradiction"


def test_labels_are_numbered_as_officially(official: Path) -> None:
    def numbers(name: str) -> list[int]:
        task = glue.named(name)
        found, _ = glue.read(task, glue.find(official, task)["dev"])
        return [task.labels.index(task.plain(label)) for label in found.columns["label"]]

    assert numbers("CoLA") == [1, 0]
    assert numbers("mrpc") == [1, 0]
    assert numbers("RTE") == numbers("qnli") == [0, 1]
    assert numbers("mnli") == [0]
    (official / "RTE/dev.tsv").write_text("sentence1\tsentence2\tlabel\tidx\nIt rains.\tIt is wet.\t0\t0\nb\tc\t1\t1\n")
    assert numbers("rte") == [0, 1]


def test_mrpc_as_it_was_published(tmp_path: Path) -> None:
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = '1\t7\t8\tIt rains.\tRain falls.\n0\t7\t9\tIt rains.\t"Sun.\n'
    (tmp_path / "MRPC").mkdir()
    for name in ("train", "test"):
        (tmp_path / f"MRPC/msr_paraphrase_{name}.txt").write_text(head + rows, encoding="utf-8")
    (tmp_path / "MRPC/dev_ids.tsv").write_text("7\t9\n3\t4\n")
    task = glue.named("mrpc")
    paths = glue.find(tmp_path, task)
    found = {split: glue.read(task, path)[0].columns for split, path in paths.items()}
    assert (found["train"]["second"], found["train"]["label"]) == (["Rain falls."], ["1"])
    assert (found["dev"]["second"], found["dev"]["label"]) == (['"Sun.'], ["0"])
    assert (found["test"]["second"], found["test"]["index"]) == (["Rain falls.", '"Sun.'], ["0", "1"])
    assert found["test"]["label"] == ["1", "0"], "it is published with its labels"
    (tmp_path / "MRPC/dev_ids.tsv").unlink()
    assert len(glue.read(task, tmp_path / "MRPC/msr_paraphrase_train.txt")[0]) == 2
    packed = tmp_path / "MRPC/msr_paraphrase_test.txt.gz"
    packed.write_bytes(gzip.compress((head + rows).encode()))
    assert glue.read(task, packed)[0].columns["label"] == ["1", "0"]


def test_sts_as_it_was_published(tmp_path: Path) -> None:
    """Tabs under the name of commas, no header, rows with sources behind them; and in GLUE's folder original/."""
    rows = 'news\tf\t2012\t1\t4.800\tIt rains.\tRain, falls.\nforum\tf\t2014\t2\t0\t"Sun.\tA;B\thttp://a\thttp://b\n'
    (tmp_path / "STS-B/original").mkdir(parents=True)
    task = glue.named("sts-b")
    for name in ("sts-train.csv", "sts-dev.csv", "sts-test.csv", "original/sts-test.tsv"):
        (tmp_path / "STS-B" / name).write_text(rows)
        found, split = glue.read(task, tmp_path / "STS-B" / name)
        assert split == name.split("-")[1].partition(".")[0]
        assert found.numbers("label", task.range) == [4.8, 0]
        assert found.columns["text"] == ["It rains.", '"Sun.']
        assert found.columns["second"] == ["Rain, falls.", "A;B"]
    assert glue.find(tmp_path, task)["train"].name == "sts-train.csv"
    (tmp_path / "own.tsv").write_text(rows.replace("4.800", "much"))
    with pytest.raises(tables.NoColumn, match=r"own.tsv: no column `sentence1`"):
        glue.read(task, tmp_path / "own.tsv")


@pytest.mark.parametrize("name", glue.TASKS)
def test_labels_decide_what_is_known_not_names(official: Path, name: str) -> None:
    """A test file with labels is a labelled one, and what is called train may have none."""
    task = glue.named(name)
    paths = glue.find(official, task)
    paths["test"].write_text(paths["dev"].read_text())
    found, split = glue.read(task, paths["test"])
    assert split == "test"
    assert all(map(task.understands, found.columns["label"]))
    texts = [role for role in task.columns if role != "label"]
    lines = ["\t".join(task.columns[role][0] for role in texts), "\t".join(FIRST[name])]  # type: ignore[misc]
    paths["train"].write_text("\n".join(lines) + "\n")
    assert list(glue.read(task, paths["train"])[0].columns) == texts


@pytest.mark.parametrize("name", glue.TASKS)
def test_copies_with_other_names_for_columns(tmp_path: Path, name: str) -> None:
    """As Hugging Face's: withheld labels are -1."""
    task = glue.named(name)
    names = {"mrpc": TWO, "mnli": ("premise", "hypothesis"), "qqp": ("question1", "question2")}
    texts = names.get(name, ("question", "sentence") if name == "qnli" else TWO)[: len(FIRST[name])]
    texts = ("sentence",) if len(FIRST[name]) == 1 else texts
    (tmp_path / "test.jsonl").write_text(json.dumps(dict(zip(texts, FIRST[name], strict=True), label=-1, idx=7)) + "\n")
    found, split = glue.read(task, tmp_path / "test.jsonl")
    assert ([found.columns[role][0] for role in task.columns if role != "label"], split) == (FIRST[name], "")
    assert task.plain(found.columns["label"][0]) == ""


def test_the_full_diagnostics_tell_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "diagnostic-full.tsv").write_text(
        "Lexical Semantics\tLogic\tDomain\tPremise\tHypothesis\tLabel\n\tx\tNews\tIt rains.\tSun.\tneutral\n"
    )
    found, split = glue.read(glue.named("mnli"), tmp_path / "diagnostic-full.tsv")
    assert (split, found.columns) == (
        "test_diagnostic",
        {"text": ["It rains."], "second": ["Sun."], "label": ["neutral"]},
    )


def test_finding_is_tolerant_and_other_sizes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2/dev.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\nfine\t1\n"))
    task = glue.named("SST2")
    paths = glue.find(tmp_path, task)
    assert paths == {"dev": tmp_path / "sst2/dev.tsv.gz"}
    glue.read(task, paths["dev"])
    assert "1 row of SST-2 dev, 872 in GLUE" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"no files of CoLA; wanted train.tsv or in_domain_train.tsv or dev.tsv"):
        glue.find(tmp_path, glue.named("cola"))
    with pytest.raises(RecipeError, match=r"did you mean `sts-b`\?"):
        glue.named("STS")


def test_what_is_handed_in(tmp_path: Path) -> None:
    path = glue.hand_in(tmp_path, glue.named("mnli"), "test_mismatched", ["0", "7"], [2, 0])
    assert path.name == "MNLI-mm.tsv"
    assert path.read_text() == "index\tprediction\n0\tneutral\n7\tcontradiction\n"
    path = glue.hand_in(tmp_path, glue.named("sts-b"), "test", ["0", "1"], [5.25, 1.5])
    assert path.name == "STS-B.tsv"
    assert path.read_text() == "index\tprediction\n0\t5.000000\n1\t1.500000\n"


@pytest.mark.parametrize(("name", "train", "dev"), [("cola", 8551, 527), ("rte", 2490, 277), ("sts-b", 5749, 1500)])
def test_real_files(shared_data: Path, name: str, train: int, dev: int) -> None:
    task = glue.named(name)
    paths = glue.find(shared_data / "glue", task)
    found = {split: glue.read(task, path)[0] for split, path in paths.items()}
    assert {split: len(rows) for split, rows in found.items()} == {"train": train, "dev": dev}
    for rows in found.values():
        if task.range:
            assert max(rows.numbers("label", task.range)) == 5
        else:
            assert {task.plain(label) for label in rows.columns["label"]} == set(task.labels)


@pytest.mark.parametrize(
    ("name", "label", "known"),
    [
        ("sts-b", "0", True),
        ("sts-b", "5", True),
        ("sts-b", "5.1", False),
        ("sts-b", "-0.1", False),
        ("sts-b", "x", False),
        ("rte", "1", True),
        ("rte", "not_entailment", True),
        ("rte", "2", False),
        ("mnli", "2", True),
    ],
)
def test_labels_of_a_task_are_known(name: str, label: str, known: bool) -> None:
    assert glue.named(name).understands(label) == known


def test_tasks_whose_texts_may_change_places() -> None:
    """ELECTRA trains on both orders of these, and of no others."""
    assert {name for name, task in glue.TASKS.items() if task.unordered} == {"mrpc", "sts-b"}


def test_tasks_have_their_scores_and_numbers_of_labels() -> None:
    """The first score is that of record; numbers of labels are those of the copies on Hugging Face."""
    first = {name: task.metrics[0] for name, task in glue.TASKS.items()}
    assert {name: score for name, score in first.items() if score != "accuracy"} == {
        "cola": "matthews",
        "sts-b": "spearman",
    }
    assert [glue.TASKS["mnli"].plain(n) for n in "012"] == ["entailment", "neutral", "contradiction"]
    for name in ("qnli", "rte"):
        assert [glue.TASKS[name].plain(n) for n in "01"] == ["entailment", "not_entailment"]
    assert glue.TASKS["mnli"].handed_in == {"test": "MNLI-m", "test_mismatched": "MNLI-mm", "test_diagnostic": "AX"}
    assert glue.TASKS["cola"].bare == {"text": 4, "label": 2}


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("sts-b", 5.25, "5.000000"),
        ("sts-b", -0.5, "0.000000"),
        ("sts-b", 3.5, "3.500000"),
        ("rte", 1.0, "not_entailment"),
    ],
)
def test_what_is_handed_in_is_a_label_or_a_score_in_range(
    tmp_path: Path, name: str, value: float, written: str
) -> None:
    path = glue.hand_in(tmp_path, glue.named(name), "test", ["7"], [value])
    assert path.read_text() == f"index\tprediction\n7\t{written}\n"


def test_rows_are_numbered_in_test_files_alone(tmp_path: Path) -> None:
    for split in ("dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("index\tsentence\tlabel\n7\tfine\t1\n")
        found, _ = glue.read(glue.named("sst-2"), tmp_path / f"{split}.tsv")
        assert ("index" in found.columns) == (split == "test")


def test_of_several_columns_for_a_role_the_first_that_is_there(tmp_path: Path) -> None:
    columns = {"text": ("review", "sentence"), "label": (4, "label", 1), "index": ("id", 9)}
    found = made(tmp_path, "a.tsv", "label\tsentence\n1\tOne.\n", columns, lacking=("index",))
    assert found.columns == {"text": ["One."], "label": ["1"]}
    assert (found.name("text"), found.name("index")) == ("`sentence`", "`index`")
    assert "no column `id`" in complaint(tmp_path, "a.tsv", "label\tsentence\n1\tOne.\n", columns)
    bare = made(tmp_path, "a.tsv", "1\tOne.\n", {"text": ("review", 2), "label": (3, 1)}, header=False)
    assert bare.columns == {"text": ["One."], "label": ["1"]}
    assert (bare.name("text"), bare.name("label")) == ("column 2", "column 1")
    nameless = made(tmp_path, "a.tsv", "\tb\n1\t2\n", {"text": 1, "label": 2})
    assert (nameless.name("text"), nameless.name("label")) == ("column 1", "`b`")


def test_rows_may_go_on_behind_what_is_asked_for(tmp_path: Path) -> None:
    text = "a\tb\tc\n" + "1\t2\t3\n" * 30 + "4\t5\n6\t7\t8\t9\n"
    assert made(tmp_path, "a.tsv", text, {"x": 2}, more=True).columns["x"] == ["2"] * 30 + ["5", "7"]
    assert len(made(tmp_path, "a.tsv", text + "1\t2\t3\n" * 30, {"x": 2})) == 60
    assert len(made(tmp_path, "a.tsv", text, {"x": 3}, more=True)) == 31, "the short row is left out"


def test_some_rows(tmp_path: Path) -> None:
    found = made(tmp_path, "a.tsv", "x\tlabel\tsentence\n" + "".join(f"-\t{n % 2}\ts{n}\n" for n in range(6)))
    some = found.only([4, 1]).where("label", "1")
    assert (some.columns, some.lines, len(some)) == ({"text": ["s1"], "label": ["1"]}, [3], 1)
    assert (some.name("text"), some.place(0), some.path) == ("`sentence`", f"{tmp_path}/a.tsv:3", found.path)
    long = made(tmp_path, "a.tsv", "sentence\n" + "".join(f"{n:02d}{'x' * n}\n" for n in range(22, 50)), {"text": 1})
    with pytest.raises(DataError) as caught:
        long.where("text", "none")
    there = str(caught.value).partition("one of ")[2].split(", ")
    assert len(there) == 20
    assert (there[6], there[7]) == (f"28{'x' * 28}", f"29{'x' * 27}…")


def test_numbers_are_within_their_bounds(tmp_path: Path) -> None:
    found = made(tmp_path, "a.tsv", "n\n0\n5\n-1e3\nnan\n", {"n": "n"})
    assert found.only([0, 1, 2]).numbers("n") == [0.0, 5.0, -1000.0]
    assert found.only([0, 1]).numbers("n", (0, 5)) == [0.0, 5.0]
    for row, said in ((2, "`n` is `-1e3`; wanted a number from 0 to 5"), (3, "`n` is `nan`")):
        with pytest.raises(DataError, match=said):
            found.only([row]).numbers("n", (0, 5))
    with pytest.raises(DataError, match=r"a.tsv:5: `n` is `nan`; wanted a number$"):
        found.numbers("n")


def test_csv_of_all_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, "a.csv", "sentence\na\n\nb;c\n\n\n", {"text": 1}).columns == {"text": ["a", "", "b;c"]}
    assert made(tmp_path, "a.csv", "a;b,c\n1;2,3\n", {"x": 1}).columns == {"x": ["1;2"]}
    assert "`sentence` is empty, in 1 of 3 rows" in capsys.readouterr().err
    two = '"x,1\ny",1\n'
    made(tmp_path, "a.csv", f"sentence,label\n{two}{two}")
    said = " ".join(capsys.readouterr().err.split())
    assert "2 rows seem to contain other rows between two quotes; the first goes from line 2 to 3: check it for" in said
    assert len(made(tmp_path, "a.csv", f'sentence,label\n{two}"a\nb",1\n')) == 2
    assert not capsys.readouterr().err, "where other texts have several lines too"
    rows = "sentence,label\n" + "a,1\n" * 30 + "b\n"
    assert len(made(tmp_path, "a.csv", rows)) == 30
    assert "line 32 has 1 column, not 2" in capsys.readouterr().err


def test_how_long_a_field_may_be(tmp_path: Path) -> None:
    for size, good in ((1 << 24, True), ((1 << 24) + 1, False)):
        text = f'a\n"{"x" * size}"\n'
        if good:
            assert len(made(tmp_path, "a.csv", text, {"a": "a"}).columns["a"][0]) == size
        else:
            assert "a.csv:2: a quoted field does not end" in complaint(tmp_path, "a.csv", text, {"a": "a"})


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", ' \n[{"a": 1}, 2]', "a.json:2: JSON, but an int; wanted an object"),
        ("a.json", '{"version": 1, "data": [1]}', "a.json:1: an object with a list under `data`, as SQuAD's"),
        ("a.jsonl", '{"a": 1}\n\n{"a": {}}', "a.jsonl:3: a dict in a column; wanted text or a number"),
        ("a.json", "[1, 2", "a.json: bad JSON: "),
        ("a.jsonl", '{"b": 1}', "a.jsonl: no column `a`; wanted one of b"),
        ("a.json", "[]", "a.json: no rows"),
    ],
)
def test_json_of_other_shapes_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    assert complaint(tmp_path, name, content, {"a": "a"}).startswith(said)
    assert made(tmp_path, "b.jsonl", '{"a": 1, "data": 2}\n{"a": 2, "data": [1]}', {"a": 1}).columns == {
        "a": ["1", "2"]
    }


@pytest.mark.long
def test_large_parquet_keeps_its_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path, count = tmp_path / "a.parquet", 66_000
    raw = pa.array([b"x"] * (count - 1) + [b"\xff"], pa.large_binary())
    pq.write_table(pa.table({"n": range(count), "s": raw, "t": ["a", "b"] * (count // 2)}), path)
    with read.tallied() as tally:
        found = table(path, {"n": "n", "t": 3, "again": "n"})
    assert tally.bytes == path.stat().st_size
    assert found.lines == list(range(1, count + 1))
    assert found.columns["n"] == found.columns["again"] == [str(n) for n in range(count)]
    with pytest.raises(DataError, match=rf"a\.parquet:{count}: byte 0: invalid UTF-8"):
        table(path, {"s": "s"})
    with pytest.raises(DataError, match="no such file"):
        table(tmp_path / "none.parquet", {"s": "s"})


def test_formats_by_name_and_as_told(tmp_path: Path) -> None:
    kinds = {".tab": bytes, ".TSV": bytes, ".tsv.XZ": lzma.compress, ".Tsv.bz2": bz2.compress}
    for ending, pack in kinds.items():
        assert made(tmp_path, f"a{ending}", pack(b"a\tb\n1\t2\n"), {"x": 2}).columns == {"x": ["2"]}
    assert made(tmp_path, "a.ndjson", '{"a": 1.0}', {"x": "a"}).columns == {"x": ["1.0"]}
    assert made(tmp_path, "a.txt", "a,b\n1,2\n", {"x": "b"}, format="csv").columns == {"x": ["2"]}


def test_the_tasks_are_as_the_benchmark_has_them() -> None:
    """Rows, columns, labels, files, scores: who changes one says so in the change log, and the digest here."""
    assert digest_of(glue, "TASKS BESIDE INDEX UNKNOWN MRPC STS") == "3d090926"
    assert {name: sum(task.rows.values()) for name, task in glue.TASKS.items()} == {
        "cola": 10657,
        "sst-2": 70042,
        "mrpc": 5801,
        "sts-b": 8628,
        "qqp": 795241,
        "mnli": 433096,
        "qnli": 115669,
        "rte": 5767,
        "wnli": 852,
    }
    assert digest_of(tables, "ENDINGS PACKED") == "04804bde"
