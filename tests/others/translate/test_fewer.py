"""The first examples of files of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordsmed.others.translate.fewer import first

QUESTIONS = {
    "data": [
        {"paragraphs": [{"context": "a", "qas": [{"id": "1"}, {"id": "2"}]}, {"context": "b", "qas": [{"id": "3"}]}]},
        {"paragraphs": [{"context": "c", "qas": [{"id": "4"}]}]},
    ]
}


def cut(folder: Path, name: str, text: str, count: int, *, header: bool = True) -> str:
    (folder / name).write_bytes(text.encode())
    target = folder / "cut" / name
    first(folder / name, target, count, header=header)
    return target.read_bytes().decode()


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("t.tsv", 'a\tb\n1\t"x\n2\ty"\n3\tz\n', 'a\tb\n1\t"x\n2\ty"\n'),
        ("t.csv", 'a,b\r\n1,"x\r\ny"\r\n2,z\r\n3,z\r\n', 'a,b\r\n1,"x\r\ny"\r\n2,z\r\n'),
        ("t.json", '{"a": 1}\n\n{"a": 2}\n{"a": 3}\n', '{"a": 1}\n{"a": 2}\n'),
        ("t.jsonl", '[{"a": 1}, {"a": "æ"}, {"a": 3}]', '[{"a": 1}, {"a": "æ"}]'),
        ("t.json", '{"data": [{"id": 1}, {"id": 2}, {"id": 3}]}', '{"data": [{"id": 1}, {"id": 2}]}'),
        ("t.json", '{"a": 1}\n', '{"a": 1}\n'),
        ("t.json", '\ufeff[{"a": 1},\n{"a": 2},\n{"a": 3}]', '[{"a": 1}, {"a": 2}]'),
        ("t.conll", "a\tO\n\n\n# x\nb\tO\nc\tO\n\nd\tO\n", "a\tO\n\n\n# x\nb\tO\nc\tO\n\n"),
        ("t.conll", "a\tO\n\nb\tO", "a\tO\n\nb\tO"),
        ("t.tsv", "a\tb\n", "a\tb\n"),
    ],
)
def test_the_first_two(tmp_path: Path, name: str, text: str, wanted: str) -> None:
    assert cut(tmp_path, name, text, 2) == wanted


def test_rows_without_a_header(tmp_path: Path) -> None:
    assert cut(tmp_path, "t.tsv", "1\n2\n3\n", 2, header=False) == "1\n2\n"


def test_questions_are_counted_over_paragraphs(tmp_path: Path) -> None:
    for count, wanted in ((1, "1"), (3, "123"), (9, "1234")):
        tree = json.loads(cut(tmp_path, "q.json", json.dumps(QUESTIONS), count))
        asked = [one["id"] for entry in tree["data"] for own in entry["paragraphs"] for one in own["qas"]]
        assert "".join(asked) == wanted


def test_halves_of_characters_stay_for_who_reads_them(tmp_path: Path) -> None:
    for value in ([{"text": "é\ud800"}] * 3, {"data": [{"text": "é\ud800"}] * 3}):
        left = json.loads(cut(tmp_path, "h.json", json.dumps(value), 2))
        assert (left if isinstance(left, list) else left["data"]) == [{"text": "é\ud800"}] * 2


def test_what_stands_is_left(tmp_path: Path) -> None:
    cut(tmp_path, "t.tsv", "a\n1\n2\n", 1)
    target = tmp_path / "cut" / "t.tsv"
    before = target.stat().st_mtime_ns
    first(tmp_path / "t.tsv", target, 1)
    assert target.stat().st_mtime_ns == before, "features of it go on to fit"
