"""Held-out text: what quotes evaluation data is told with its words, whatever form the data have."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from ordsmed.base.errors import DataError
from ordsmed.corpus import held_out
from ordsmed.corpus.held_out import Decontaminate, HeldOut, Hit, grams

LONG = "The grey heron stood by the old mill until the evening train had passed, and then it flew home."
SHORT = "Nine copper kettles were mended before the market opened."  # 9 words
CHINESE = "那只灰色的苍鹭站在旧磨坊旁边一直到傍晚的火车开过"


def held(folder: Path, name: str, text: str, **settings: int) -> HeldOut:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return grams(str(path), **settings)


def test_a_run_of_words_is_found_wherever_it_stands(tmp_path: Path) -> None:
    found = held(tmp_path, "a.txt", LONG)
    words = LONG.split()
    assert len(found.hashes) == len(words) - 12
    for first in range(len(words) - 12):
        run = " ".join(words[first : first + 13])
        hit = found.hits(f"It was said: «{run.upper()}»")
        assert hit is not None
        assert (hit.words, hit.number) == (run.casefold().rstrip(",."), 3)
        assert found.hits(" ".join(words[first : first + 12])) is None
    assert found.hits(LONG.replace("train", "bus")) is None


def test_only_letters_and_digits_count(tmp_path: Path) -> None:
    found = held(tmp_path, "a.txt", LONG)
    assert found.hits("…".join(LONG.split())) == Hit("…".join(LONG.casefold().split()[:13]), 0)
    assert found.hits("\0\n".join(LONG.upper().split()))
    assert not found.hits("".join(LONG.split()))


def test_short_entries_are_matched_as_a_whole_and_shorter_ones_counted(tmp_path: Path) -> None:
    lines = ["a name", "one two three four five", SHORT, LONG]
    found = held(tmp_path, "a.txt", "\n".join(lines))
    assert (found.entries, found.short) == (3, 1)
    assert found.hits(f"First. {SHORT} Then more.") == Hit(SHORT.casefold().rstrip("."), 1)
    assert not found.hits(" ".join(SHORT.split()[:8]))
    assert not found.hits("a name, one two three four five")
    assert held(tmp_path, "a.txt", "\n".join(lines), n=5, shortest=5).hits("No: one two three four five")


def test_entries_are_not_run_together(tmp_path: Path) -> None:
    first, second = " ".join(LONG.split()[:7]), " ".join(LONG.split()[7:])
    assert not held(tmp_path, "a.txt", f"{first}\n{second}", shortest=13).hits(LONG)
    found = held(tmp_path, "a.txt", LONG)
    assert found.search([first, second]) == [None, None]
    assert found.search(["", LONG, "x", f"one {LONG}", ""]) == [
        None,
        found.hits(LONG),
        None,
        found.hits(f"one {LONG}"),
        None,
    ]


def test_ideographs_are_words(tmp_path: Path) -> None:
    found = held(tmp_path, "a.txt", CHINESE)
    assert found.hits(f"他说：{CHINESE[3:16]}。") == Hit(CHINESE[3:16], 2)
    assert not found.hits(f"他说：{CHINESE[3:15]}。")
    assert held(tmp_path, "a.txt", "𠀀" * 7 + "𠀁" * 6).hits("𠀀" * 9 + "𠀁" * 6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"data": [{"paragraphs": [{"context": LONG, "qas": [{"question": SHORT, "id": 7}]}]}]})),
        ("b.json", json.dumps([LONG, [SHORT]], ensure_ascii=True, indent=1)),
        ("c.json", f'{json.dumps({"a": LONG})}\n{json.dumps({"a": SHORT})}\n'),
        ("a.jsonl", f'{json.dumps({"a": [None, 1.5, LONG]})}\n\n{json.dumps(SHORT)}'),
        ("a.tsv", f'id\t{LONG}\t1\n"\t{SHORT}'),
        ("a.csv", f'x,"{LONG}"\r\n"{SHORT.replace("copper ", "copper" + chr(10))}",3\n'),
        ("a.conllu", f"# sent_id = 1\n# text = {LONG}\n1\tThe\tthe\tDET\t_\n\n# text = {SHORT}\n1\tNine"),
        ("a.conll", "\n".join(f"{word}\tO" for word in LONG.split()) + "\n\n" + "\n".join(SHORT.split())),
        ("b.conllu", "\n\n".join("\n".join(f"1\t{w}" + "\t_" * 8 for w in t.split()) for t in (LONG, SHORT))),
        ("README", f"{LONG}\n\n{SHORT}\n"),
    ],
)  # fmt: skip
def test_files_of_any_usual_form(name: str, text: str, tmp_path: Path) -> None:
    found = held(tmp_path, name, text)
    assert (found.entries, found.short) == (2, 0)
    assert found.hits(LONG)
    assert found.hits(SHORT)
    packed = tmp_path / "packed" / f"{name}.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(text.encode()))
    assert (grams(str(packed.parent)).hashes == found.hashes).all()


def test_spaces_between_forms_follow_the_file(tmp_path: Path) -> None:
    forms = [("1", "Nine", "_"), ("2", "-", "SpaceAfter=No"), ("3", "teen", "_")]
    rows = "\n".join(f"{n}\t{form}" + "\t_" * 7 + f"\t{misc}" for n, form, misc in forms)
    assert list(held_out._conll(write(tmp_path / "a.conllu", rows))) == ["Nine -teen "]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"a": "cut', "a.json: bad JSON"),
        ("a.json", '{"a": 1}\n{"b": ', "a.json:2: bad JSON"),
        ("a.jsonl", '{"a": 1}\n{"b": ', "a.jsonl:2: bad JSON"),
        ("a.json", "[" * 200_000, "a.json: bad JSON"),
        ("a.parquet", "PAR1", "is an archive or no plain text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        held(tmp_path, name, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_field_of_a_table_is_held_out_but_no_endless_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert held(tmp_path, "a.csv", f'"{"x " * 100_000}{LONG}"').hits(LONG)
    monkeypatch.setattr(held_out, "LONGEST_FIELD", 1_000)
    with pytest.raises(DataError, match=r"a\.csv:1: bad CSV"):
        held(tmp_path, "a.csv", f'"{"x " * 1_000}{LONG}"')


def test_nothing_held_out_and_nothing_to_look_at(tmp_path: Path) -> None:
    nothing = held(tmp_path, "a.txt", "")
    assert (len(nothing.hashes), nothing.entries) == (0, 0)
    assert nothing.hits(LONG) is None
    found = held(tmp_path, "a.txt", LONG)
    assert [found.hits(text) for text in ("", " \n", "one", "\0", "\ud800 lone", "...")] == [None] * 6
    assert found.search([]) == []
    assert found.hits("4 MB on one line " * 250_000 + LONG)


def test_long_texts_are_cut_where_words_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdeåø", k=chance.randint(1, 9))) for _ in range(300)]
    whole = held(tmp_path, "a.txt", " ".join(words))
    monkeypatch.setattr(held_out, "BLOCK", 50)
    assert (held(tmp_path, "a.txt", " ".join(words)).hashes == whole.hashes).all()
    assert whole.hits("\n".join(words[100:113])) == Hit("\n".join(words[100:113]), 0)


def test_saved_and_sent_it_is_the_same(tmp_path: Path) -> None:
    found = held(tmp_path, "a.txt", f"{LONG}\n{SHORT}\n1 2 3 4 5")
    found.hits(LONG)
    found.save(tmp_path / "held.npy")
    for other in (HeldOut.load(tmp_path / "held.npy"), pickle.loads(pickle.dumps(found))):
        assert (other.hashes == found.hashes).all()
        assert (other.words, other.shortest, other.entries, other.short) == (13, 8, 3, 1)
        assert other.hits(f"x {LONG}") == found.hits(f"x {LONG}")
    assert len(pickle.dumps(found)) < 1000


@pytest.mark.parametrize(("kind", "said"), [("cut", "cut off"), ("other", "other numbers"), ("gone", "no such file")])
def test_a_damaged_file_is_named(kind: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "held.npy"
    held(tmp_path, "a.txt", LONG).save(path)
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif kind == "other":
        np.save(path, np.load(path)[1:])
    else:
        path.unlink()
    with pytest.raises(DataError) as caught:
        HeldOut.load(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_the_hashes_are_those_of_every_machine(tmp_path: Path) -> None:
    found = held(tmp_path, "a.txt", "Over hekken står en 短い heire", n=6, shortest=6)
    assert found.hashes.dtype.str == "<u8"
    assert found.hashes.tolist() == [7102578131998674781, 9946285467456285660]


def test_settings_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LONG)
    found = Decontaminate(str(tmp_path), words=10, shortest=10).grams()
    assert found.hits(" ".join(LONG.split()[3:13]))
    for wrong in ({"words": 0}, {"shortest": 14}, {"paths": []}):
        with pytest.raises(ValueError, match="wanted"):
            Decontaminate(**{"paths": "x", **wrong})  # type: ignore[arg-type]


@pytest.mark.long
def test_a_quoted_squad_context_is_dropped_and_novels_stay(shared_data: Path) -> None:
    path = shared_data / "squad" / "squad-v1.1-dev-part.json"
    found = grams(str(path))
    context = json.loads(path.read_text(encoding="utf-8"))["data"][0]["paragraphs"][0]["context"]
    with lzma.open(shared_data / "corpus/english-novels-100.txt.xz", "rt") as file:
        novel = file.read(8_000_000)
    assert found.hits(context)
    assert found.hits(novel[:100_000] + context[20:300] + novel[-100_000:])
    dropped = [hit.words for hit in found.search(novel.split("\n\n")) if hit]
    assert len(dropped) <= 2, dropped


@pytest.mark.parametrize("short_first", [True, False])
def test_the_first_of_several_hits_is_told(tmp_path: Path, short_first: bool) -> None:
    """Runs of each length are looked for in turn; the one that stands first in the text counts."""
    long = [f"long{n}" for n in range(13)]
    short = [f"short{n}" for n in range(8)]
    (tmp_path / "a.txt").write_text(" ".join(long) + "\n" + " ".join(short) + "\n")
    held = grams(str(tmp_path / "a.txt"))
    one, other = (short, long) if short_first else (long, short)
    hit = held.hits(" ".join(["x"] * 5 + one + ["y"] * 9 + other + one))
    assert hit is not None
    assert (hit.words, hit.number) == (" ".join(one), 5)
