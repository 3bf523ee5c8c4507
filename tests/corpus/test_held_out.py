"""Held-out text: documents that quote evaluation data of any format are found, with the common words."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base.errors import DataError
from ordsmed.corpus import decontamination
from ordsmed.corpus.decontamination import Decontaminate, HeldOut, Hit, grams

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
        ("c.json", f"{json.dumps({'a': LONG})}\n{json.dumps({'a': SHORT})}\n"),
        ("a.jsonl", f"{json.dumps({'a': [None, 1.5, LONG]})}\n\n{json.dumps(SHORT)}"),
        ("a.tsv", f'id\t{LONG}\t1\n"\t{SHORT}'),
        ("a.csv", f'x,"{LONG}"\r\n"{SHORT.replace("copper ", "copper" + chr(10))}",3\n'),
        ("a.conllu", f"# sent_id = 1\n# text = {LONG}\n1\tThe\tthe\tDET\t_\n\n# text = {SHORT}\n1\tNine"),
        ("a.conll", "\n".join(f"{word}\tO" for word in LONG.split()) + "\n\n" + "\n".join(SHORT.split())),
        ("b.conllu", "\n\n".join("\n".join(f"1\t{w}" + "\t_" * 8 for w in t.split()) for t in (LONG, SHORT))),
        ("README", f"{LONG}\n\n{SHORT}\n"),
    ],
)
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
    assert list(decontamination._conll(write(tmp_path / "a.conllu", rows))) == ["Nine -teen "]
    eleven = "\n".join(f"{word}\t{n}" + "\t_" * 9 for n, word in enumerate(("Nine", "teen")))
    assert list(decontamination._conll(write(tmp_path / "b.conll", eleven))) == ["Nine teen "], (
        "eleven columns are no CoNLL-U"
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"a": "cut', "a.json:1: column 7: the file stops in the middle"),
        ("a.json", '{"a": 1}\n{"b": ', "a.json:2: column 7: the file stops"),
        ("a.jsonl", '{"a": 1}\n{"b": ', "a.jsonl:2: column 7: the file stops"),
        ("a.json", "[" * 200_000, "a.json:1: bad JSON"),
        ("a.parquet", "PAR1", "is an archive or not plain text"),
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
    monkeypatch.setattr(decontamination, "LONGEST_FIELD", 1_000)
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
    monkeypatch.setattr(decontamination, "BLOCK", 50)
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


@pytest.mark.parametrize(("kind", "said"), [("cut", "truncated"), ("other", "other numbers"), ("gone", "no such file")])
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
    found.save(tmp_path / "held.npy")
    assert np.load(tmp_path / "held.npy").tolist() == [478660555569, 6, 6, 1, 0, *found.hashes.tolist()]


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
    """Runs of each length are searched in turn; the first one in the text counts."""
    long = [f"long{n}" for n in range(13)]
    short = [f"short{n}" for n in range(8)]
    (tmp_path / "a.txt").write_text(" ".join(long) + "\n" + " ".join(short) + "\n")
    held = grams(str(tmp_path / "a.txt"))
    one, other = (short, long) if short_first else (long, short)
    hit = held.hits(" ".join(["x"] * 5 + one + ["y"] * 9 + other + one))
    assert hit is not None
    assert (hit.words, hit.number) == (" ".join(one), 5)


def test_entries_are_counted_from_five_words_on(tmp_path: Path) -> None:
    """Seven words are too few to be looked for, eight are not; what has four is a name or a label."""
    words = [f"word{n}" for n in range(10)]
    found = held(tmp_path, "a.txt", "\n".join(" ".join(words[:n]) for n in range(1, 10)))
    assert (found.entries, found.short, len(found.hashes)) == (5, 3, 2)
    assert found.hits(" ".join(words[:8]))
    assert not found.hits(" ".join(words[:7]))
    assert Decontaminate("x", words=255, shortest=1)
    for wrong in ({"words": 256}, {"shortest": 0}, {"words": 7}):
        with pytest.raises(ValueError, match="wanted 1 <= shortest <= words <= 255"):
            Decontaminate("x", **wrong)


@pytest.mark.parametrize("gather", [1, 40, 1 << 20])
def test_many_entries_are_held_however_little_is_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gather: int
) -> None:
    lines = [" ".join(f"w{(n * 31 + k * 7) % 97}" for k in range(20)) for n in range(50)]
    monkeypatch.setattr(decontamination, "BLOCK", 200)
    monkeypatch.setattr(decontamination, "GATHER", gather)
    found = held(tmp_path, "a.txt", "\n".join(lines))
    assert (found.entries, found.short) == (50, 0)
    assert len(found.hashes) == len({tuple(line.split()[n : n + 13]) for line in lines for n in range(8)})
    assert (found.hashes[1:] > found.hashes[:-1]).all()
    assert all(found.hits(line) for line in lines)


def test_documents_of_conll_and_json_are_cut_as_their_files_say(tmp_path: Path) -> None:
    rows = "-DOCSTART- O\n\n# comment\nNine O\nkettles O\n \n# text = One text\n1\tOne\n\nlast\tO"
    assert list(decontamination._conll(write(tmp_path / "a.conll", rows))) == ["Nine kettles ", " One text", "last "]
    told = write(tmp_path / "a.conllu", "# text = One\n\n# text = Two")
    assert list(decontamination._conll(told)) == [" One", " Two"]
    assert list(decontamination._strings({"a": ["x", {"b": "y"}, 3], "c": "z"})) == ["x", "y", "z"]
    assert list(decontamination._json(write(tmp_path / "b.json", '"one"\n\n["two"]\n'))) == ["one", "two"]
    with pytest.raises(DataError, match=r"c\.json:3: column 2: the file stops"):
        held(tmp_path, "c.json", "{\n}\n{")


def test_words_of_every_plane_are_told_apart(tmp_path: Path) -> None:
    for one, other in (
        ("𐍈𐍉 a", "𐍉𐍈 a"),
        ("東京 b", "東西 b"),
        ("\u3007 c", "\u3008 c"),
        ("ｦ d", "ﾠ d"),
        ("𠀀𠀁", "𠀁𠀀"),
    ):
        found = held(tmp_path, "a.txt", one, n=2, shortest=2)
        assert found.hits(f"x {one} y"), one
        assert not found.hits(f"x {other} y"), other
    words = "々〇〡〩ぁヿㇰㇿ㐀䶿一鿿豈ｦﾟ𠀀𪚥"  # the first and the last of each range
    counts = {sign * 2: 2 for sign in words} | {sign * 2: 1 for sign in "ﾠꀀ〪ㄅa"}
    counts |= {"⺀⻳": 0, "㈀": 0, "〈": 0, "一a鿿": 3, "a-b_c": 3, "\U0001fffe\U0001ffff": 0}
    assert {text: len(decontamination._words(text)[0]) for text in counts} == counts


@given(st.lists(st.sampled_from(["a", "b", "c", "東", "dd"]), max_size=40), st.data())
def test_what_is_found_is_what_a_slow_reader_finds(words: list[str], data: st.DataObject) -> None:
    """In several texts at once, runs of three words and entries of two."""
    entries = data.draw(st.lists(st.lists(st.sampled_from(["a", "b", "c", "東", "dd"]), max_size=5), max_size=3))
    sizes, found = decontamination._gathered([" ".join(entry) for entry in entries], 3, 2)
    assert sizes.tolist() == [len(entry) for entry in entries]
    known = HeldOut(np.unique(np.concatenate([np.empty(0, "<u8"), *found])), 3, 2)
    runs = {tuple(e[n : n + 3]) for e in entries for n in range(len(e) - 2)} | {
        tuple(e) for e in entries if len(e) == 2
    }
    at = data.draw(st.integers(0, len(words)))
    texts = [words[:at], words[at:]]
    hits = known.search([" ".join(text) for text in texts])
    for text, hit in zip(texts, hits, strict=True):
        first = next((n for n in range(len(text)) if {tuple(text[n : n + 2]), tuple(text[n : n + 3])} & runs), None)
        assert (hit and hit.number) == first
        if hit:
            assert tuple(hit.words.split()) in runs
