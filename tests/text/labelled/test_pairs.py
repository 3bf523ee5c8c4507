"""Files of pairs: columns by name or by their order, several negatives, scores; what is empty, repeated or wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.text.labelled.pairs import PairRow, read_pairs


def jsonl(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"document": "d", "positive": "b", "anchor": " a "}, PairRow(1, "a", "b")),
        ({"anchor": "a", "positive": "b", "negative": "c", "score": 0.5}, PairRow(1, "a", "b", ("c",), (0.5,))),
        ({"anchor": "a", "positive": "b", "negatives": ["c", "", "d"]}, PairRow(1, "a", "b", ("c", "d"))),
        ({"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": None}, PairRow(1, "a", "b", ("c",))),
        ({"anchor": "a", "positive": "b", "negative": "c", "scores": [1, 2]}, PairRow(1, "a", "b", ("c",), (1.0, 2.0))),
        ({"anchor": "a", "positive": "b", "title": "no text of it"}, PairRow(1, "a", "b")),
        ({"query": "a", "answer": "b"}, PairRow(1, "a", "b")),
        ({"source": "s", "sentence1": "a", "sentence2": "b", "label": 1}, PairRow(1, "a", "b", (), (1.0,))),
        ({"query": "a", "passage": "b", "other": "c", "more": ["d"]}, PairRow(1, "a", "b", ("c", "d"))),
        ({"anchor": "a", "positive": "b", "score": None}, PairRow(1, "a", "b")),
    ],
)
def test_columns_go_by_their_names_else_by_their_order(tmp_path: Path, row: dict[str, Any], wanted: PairRow) -> None:
    assert read_pairs(jsonl(tmp_path, row)) == [wanted]


SQUAD = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Rain falls. Newts swim.",
                    "qas": [
                        {"id": "1", "question": " What falls?", "answers": [{"text": "Rain", "answer_start": 0}]},
                        {"id": "2", "question": "What flies?", "answers": [], "is_impossible": True},
                        {"id": "3", "question": "What swims?", "answers": [{"text": "Newts", "answer_start": 12}]},
                    ],
                },
                {
                    "context": "",
                    "qas": [{"id": "4", "question": "What?", "answers": [{"text": "x", "answer_start": 0}]}],
                },
            ],
        }
    ]
}


def test_squads_questions_are_pairs_with_their_contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nested, or a record per question with columns in any order; unanswerable questions are left out and reported."""
    nested = tmp_path / "squad.json"
    nested.write_text(json.dumps(SQUAD, indent=1))
    wanted = [("What falls?", "Rain falls. Newts swim."), ("What swims?", "Rain falls. Newts swim.")]
    assert [(pair.anchor, pair.positive) for pair in read_pairs(nested)] == wanted
    assert [pair.line for pair in read_pairs(nested)] == [1, 3]
    told = "".join(capsys.readouterr())
    assert "1 question left out: empty question or context (4)" in told
    assert "left out 1 of 3 questions that their contexts do not answer" in told
    context = "Rain falls. Newts swim."
    rows = [
        {"id": str(n), "title": "t", "context": context, "question": question, "answers": {"text": texts}}
        for n, (question, texts) in enumerate([("What falls?", ["Rain"]), ("What flies?", []), ("What swims?", ["x"])])
    ]
    assert read_pairs(jsonl(tmp_path, *rows)) == [PairRow(1, *wanted[0]), PairRow(3, *wanted[1])]
    assert "left out 1 of 3 questions" in "".join(capsys.readouterr())
    nested.write_text(
        json.dumps(
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "a",
                                "qas": [{"id": "1", "question": "b", "answers": [], "is_impossible": True}],
                            }
                        ]
                    }
                ]
            }
        )
    )
    with pytest.raises(DataError, match="no question that a context answers"):
        read_pairs(nested)
    plain = tmp_path / "list.json"
    plain.write_text('[{"question": "a", "context": "b"}]')
    assert read_pairs(plain) == [PairRow(1, "a", "b")]


def test_an_object_may_have_what_the_first_one_lacks(tmp_path: Path) -> None:
    rows = [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d", "negatives": ["e"], "score": 1}]
    assert read_pairs(jsonl(tmp_path, *rows)) == [PairRow(1, "a", "b"), PairRow(2, "c", "d", ("e",), (1.0,))]


def test_tables_of_other_forms_hold_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t0.5\n")
    (tmp_path / "b.tsv").write_text("a\tb\tc\n")
    (tmp_path / "c.csv").write_text('anchor,positive\n"a, b",c\n')
    assert read_pairs(tmp_path / "a.tsv") == [PairRow(2, "a", "b", (), (0.5,))]
    assert read_pairs(tmp_path / "b.tsv", header=False) == [PairRow(1, "a", "b", ("c",))]
    assert read_pairs(tmp_path / "c.csv") == [PairRow(2, "a, b", "c")]
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e .[dev]")
    import pyarrow.parquet

    table = arrow.table({"anchor": ["a"], "positive": ["b"], "negatives": [["c", "d"]], "score": [0.25]})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    assert read_pairs(tmp_path / "d.parquet") == [PairRow(1, "a", "b", ("c", "d"), (0.25,))]


def test_empty_sides_are_left_out_and_repeated_pairs_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"anchor": "a", "positive": " "},
        *[{"anchor": "a", "positive": "b"}] * 1000,
        {"anchor": "", "positive": "c"},
    ]
    path = jsonl(tmp_path, *rows)
    assert len(read_pairs(path)) == 1000
    told = "".join(capsys.readouterr())
    assert f"{path}: left out 2 of 1,002 pairs with an empty side; the first: line 1" in told
    assert "1 pair occurs 10 times or more, 999 rows too many; the pair of line 2 occurs 1,000 times" in told


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"anchor": "a"}], r"has `anchor`; wanted `anchor` and `positive`, or two columns of text"),
        ([{"anchor": "a", "positive": ""}], r"an empty side in every pair \(1\); wanted at least one pair"),
        ([{"anchor": "a", "positive": 3}], r"jsonl:1: `positive` is int 3; wanted a text"),
        ([{"anchor": "a", "positive": "b", "score": "high"}], r":1: `score` is high; wanted a number"),
        ([{"anchor": "a", "positive": "b", "score": float("nan")}], r":1: "),
        ([{"anchor": "a", "positive": "b", "negative": "c", "score": [1, 2, 3]}], r"3 scores; wanted one, or 2"),
        ([{"data": []}], r"a list under `data`"),
        ([], r"no pairs"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(jsonl(tmp_path, *rows))


def test_names_of_columns_stand_once(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\ttext\na\tb\n")
    with pytest.raises(DataError, match="2 columns are called `text`"):
        read_pairs(tmp_path / "a.tsv")


def test_rows_that_break_off_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("anchor\tpositive\n" + "a\tb\n" * 40 + "a\n")
    assert len(read_pairs(tmp_path / "a.tsv")) == 40
    assert "left out 1 of 41 rows; the first: line 42 has 1 column, not 2" in capsys.readouterr().err
