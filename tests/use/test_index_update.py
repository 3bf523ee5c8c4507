"""Metadata, conditions, updates and damage of an index."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ordsmed
from kit.language_models import WORDS, hub_folder
from kit.task_models import write_model
from ordsmed import cli
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.base.run import Run
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks.pairs import TextPairs
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.use.index import checksums, store, update
from ordsmed.use.index.conditions import Condition, fitting
from ordsmed.use.index.open_index import OpenIndex
from ordsmed.use.vector_reader import VectorReader
from ordsmed.weights.foreign import Networks
from ordsmed.weights.trained_model import Trained, open_model

QUESTIONS = ("the old newt", "a red dog", "cat")
KINDS = ("both", "dense", "words")


def records() -> list[dict[str, Any]]:
    draw = np.random.default_rng(8)
    rows = []
    for number in range(30):
        text = " ".join(" ".join(draw.choice(WORDS, 7)).capitalize() + "." for _ in range(4))
        meta = {"year": 1990 + number % 10, "lang": ["no", "en"][number % 2], "tags": ["a", f"t{number % 3}"]}
        rows.append({"_id": f"d{number}", "title": f"Mat {number}", "text": text, **meta, "by": {"name": f"n{number}"}})
    return rows


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, one that gives each token a vector, and an index by each."""
    folder = tmp_path_factory.mktemp("updates")
    hub_folder("bert", folder / "bert")
    cutter = open_model(folder / "bert").tokenizer
    task = TextPairs(head="multi-vector", token_width=8, length=20)
    model = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=32)
    write_model(folder / "tokens", own_tensors(fresh(task, model, cutter, 3)), Networks(model=model, task=task), cutter)
    written(folder / "texts.jsonl", records())
    for name in ("bert", "tokens"):
        ordsmed.index(folder / name, folder / "texts.jsonl", folder / f"of-{name}", length=18, weight=0.5)
    ordsmed.index(None, folder / "texts.jsonl", folder / "of-words", length=18)
    return folder


def hits_of(index: OpenIndex, kind: str, where: tuple[str, ...] = (), k: int = 8) -> list[Any]:
    every = index.search_all(QUESTIONS, k, kind=kind, where=where)
    return [(hit.passage.id, hit.passage.text, pytest.approx(hit.score, abs=2e-3)) for hits in every for hit in hits]


@pytest.mark.parametrize(
    ("condition", "value", "fits"),
    [
        ("year>=1990", 1990, True),
        ("year>1990", "1990", False),
        ("year=1990", 1990.0, True),
        ("year<1e4", 9_999, True),
        ("lang=no", "no", True),
        ("lang!=no", ["en", "no"], False),
        ("lang!=no", None, True),
        ("lang=no", None, False),
        ("tags=a", ["b", "a"], True),
        ("day>=2024-02-01", "2024-10-01", True),
        ("free=true", True, True),
        ("free=1", True, False),
        ("year>x", 5, False),
        ("name=", "", True),
        ("title = a = b", "a = b", True),
        ("by=x", {"x": 1}, False),
    ],
)
def test_conditions(condition: str, value: object, fits: bool) -> None:
    assert Condition.of(condition).fits(value) is fits


def test_conditions_that_say_nothing_are_refused() -> None:
    for text in ("year", "=3", ""):
        with pytest.raises(RecipeError, match=r"--where: found .*; wanted KEY=VALUE"):
            Condition.of(text)
    with pytest.raises(RecipeError, match=r"no document has `yaer`.*did you mean `year`"):
        fitting(["yaer>3"], [{"year": 3}])
    assert fitting(["by.name=x", "year>2"], [{"by": {"name": "x"}, "year": 3}, {"year": 1}]).tolist() == [True, False]


def test_all_fields_of_a_record_are_kept_and_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hit = ordsmed.search(place / "of-words", "mat 7", 1)[0]
    wanted = {key: value for key, value in records()[7].items() if key not in ("_id", "title", "text")}
    assert (hit.passage.id, hit.passage.meta) == ("d7", wanted)
    cli.main(["search", str(place / "of-words"), "mat 7", "-k", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["hits"][0]["meta"] == wanted


@pytest.mark.parametrize("name", ["of-bert", "of-tokens", "of-words"])
def test_a_search_with_conditions_finds_what_an_index_of_these_documents_ranks_first(
    name: str, place: Path, tmp_path: Path
) -> None:
    index, where = ordsmed.open_index(place / name), ("lang=no", "year>=1994", "tags=t1")
    right = {row["_id"] for row in records() if row["lang"] == "no" and row["year"] >= 1994 and "t1" in row["tags"]}
    assert 2 <= len(right) < 6
    for kind in ("dense", "words") if index.recipe.kind == "both" else ("words",):
        every = [hit for hit in hits_of(index, kind, k=len(index)) if hit[0] in right]
        assert hits_of(index, kind, where, k=len(index)) == every
        assert {hit[0] for hit in every} == right
    if index.recipe.kind == "both":
        assert {hit[0] for hit in hits_of(index, "both", where)} == right
    assert hits_of(index, index.recipe.kind, ("year>3000",)) == []
    with pytest.raises(RecipeError, match="no document has `languag`"):
        index.search("cat", where=["languag=no"])


def changed() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Documents to add (two of them replace), those that are then there, in their order, and ids to delete."""
    old = records()
    new = [{**old[n], "_id": name, "text": "The newt ran. " + old[n]["text"]} for n, name in ((3, "d3"), (9, "d9"))]
    new.append({"_id": "new", "title": "Mat new", "text": "A red newt sat. " * 4, "year": 2000})
    gone = ["d0", "d29"]
    return new, [row for row in old if row["_id"] not in ("d3", "d9", *gone)] + new, gone


@pytest.mark.parametrize("name", ["of-bert", "of-tokens", "of-words"])
def test_an_updated_index_is_searched_as_one_made_again(name: str, place: Path, tmp_path: Path) -> None:
    new, wanted, gone = changed()
    shutil.copytree(place / name, tmp_path / "index")
    model = place / name.removeprefix("of-") if name != "of-words" else ""
    before = ordsmed.open_index(tmp_path / "index")
    found = hits_of(before, before.recipe.kind)
    index = ordsmed.update_index(tmp_path / "index", written(tmp_path / "new.jsonl", new), gone, model=model)
    weight = None if name == "of-words" else 0.5
    again = ordsmed.index(
        model or None, written(tmp_path / "all.jsonl", wanted), tmp_path / "again", length=18, weight=weight
    )
    assert (len(index), index.facts["documents"]) == (len(again), len(wanted))
    for kind in KINDS if index.recipe.kind == "both" else ("words",):
        assert hits_of(index, kind) == hits_of(again, kind)
    assert hits_of(before, before.recipe.kind) == found  # one that is open stays as it was
    index = ordsmed.update_index(tmp_path / "index", delete=["new"], model=model)
    assert (index.facts["updates"], index.facts["documents"]) == (2, len(wanted) - 1)
    assert index.search("cat", 99)
    left = {path.name for path in (tmp_path / "index").iterdir()}
    assert "update-2" in left
    assert not left & {"update-1", "texts.bin", "vectors.npy", "words"}


def test_an_update_is_whole_or_not_at_all(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, _, gone = changed()
    added = written(tmp_path / "new.jsonl", new)
    for step in ("PassageWriter", "StoredPassages", "Bm25", "GrowingRows", "checksums", "Run"):
        folder = tmp_path / step
        shutil.copytree(place / "of-bert", folder)
        found = hits_of(ordsmed.open_index(folder, place / "bert"), "both")
        with monkeypatch.context() as patched:
            patched.setattr(update, step, None)
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # as where a process is killed
            with pytest.raises((TypeError, AttributeError)):
                ordsmed.update_index(folder, added, gone, model=place / "bert")
        assert (folder / "update-1").exists()
        assert hits_of(ordsmed.open_index(folder, place / "bert"), "both") == found
        assert ordsmed.update_index(folder, added, gone, model=place / "bert").facts["documents"] == 29
    with monkeypatch.context() as patched:  # killed before the old files are gone
        patched.setattr(update, "_clean", lambda *_: None)
        assert ordsmed.update_index(folder, delete=["d5"], model=place / "bert").facts["documents"] == 28
    assert {path.name for path in folder.glob("update-*")} == {"update-1", "update-2"}
    ordsmed.update_index(folder, delete=["d6"], model=place / "bert")
    assert {path.name for path in folder.glob("update-*")} == {"update-3"}


def test_the_commands(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, _, gone = changed()
    added, index = written(tmp_path / "new.jsonl", new), str(tmp_path / "index")
    shutil.copytree(place / "of-words", index)
    cli.main(["index", index, "--add", str(added), "--delete", *gone])
    assert "3 documents added, 4 deleted or replaced" in capsys.readouterr().err
    cli.main(["search", index, "newt", "--where", "year>=1999", "--where", "lang!=en", "--json"])
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert [hit["id"] for hit in hits] == ["new"] * len(hits)
    cli.main(["index", index, "--check"])
    assert "all files are intact" in capsys.readouterr().out
    for words, problem in (
        (["--delete", "d99"], "--delete: found d99, but no document has this id"),
        (["--delete", *(f"d{n}" for n in range(1, 29)), "new"], "would have no passages left"),
        (["--add", str(tmp_path / "none.jsonl")], "none.jsonl"),
        (["--choose"], "found an index of kind words"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["index", index, *words])
        assert problem in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["index", str(added), str(tmp_path / "other"), "--add", str(added)])
    assert "--add: found with" in capsys.readouterr().err


DAMAGED = ("recipe.toml", "status.json", *checksums.DATA)


@pytest.mark.parametrize("small", [True, False])
def test_damage_is_found_before_a_search(
    small: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 KB of random bytes in any file, or an end that is missing."""
    monkeypatch.setattr(checksums, "SMALL", 1 << 30 if small else 0)
    ordsmed.open_index(place / "of-tokens")
    bytes_ = np.random.default_rng(2).bytes(4_096)
    for name in (name for name in DAMAGED if (place / "of-tokens" / name).exists()):
        for ways in ("random", "short"):
            folder = tmp_path / f"{name.replace('/', '-')}-{ways}"
            shutil.copytree(place / "of-tokens", folder)
            path = folder / name
            if ways == "random":
                with path.open("r+b") as file:
                    file.write(bytes_[: max(path.stat().st_size, 10)])
            else:
                os.truncate(path, path.stat().st_size // 2)
            with pytest.raises(OrdsmedError) as refused:
                ordsmed.open_index(folder)
            assert "\n" not in str(refused.value)
            assert path.name in str(refused.value)


def test_a_former_index_that_is_cut_off_is_found(place: Path, tmp_path: Path) -> None:
    for name in ("texts.bin", "documents.jsonl"):
        shutil.copytree(place / "of-words", tmp_path / name)
        Run(tmp_path / name).set(checksums=None)
        ordsmed.open_index(tmp_path / name)
        os.truncate(tmp_path / name / name, (tmp_path / name / name).stat().st_size - 9)
        with pytest.raises(DataError, match=name):
            ordsmed.open_index(tmp_path / name)


def test_all_files_are_read_on_demand(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(place / "of-words", tmp_path / "index")
    monkeypatch.setattr(checksums, "SMALL", 0)
    path = tmp_path / "index/texts.bin"
    stat = path.stat()
    with path.open("r+b") as file:
        file.write(b"\0")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    index = ordsmed.open_index(tmp_path / "index")
    with pytest.raises(DataError, match=r"texts.bin: is damaged: checksum"):
        index.check(whole=True)


def test_a_few_answers_to_conditions_are_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = ordsmed.open_index(place / "of-words").passages
    monkeypatch.setattr(store, "MASKS", 2)
    kept = [(passages.allowed((f"year!={1990 + n}",)), len(passages.masks))[1] for n in range(5)]
    assert kept == [1, 2, 1, 2, 1]
    assert passages.allowed(("year!=1994",)) is passages.masks["year!=1994",]


@pytest.mark.parametrize("data", ["update-1", None])
def test_an_index_that_changes_while_it_is_opened_is_opened_again(
    data: str | None, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is damaged is not."""
    folder = shutil.copytree(place / "of-words", tmp_path / "index")
    seen: list[object] = []

    def check(index: OpenIndex) -> None:
        seen.append(index.facts.get("data"))
        if len(seen) == 1:
            Run(folder).set(data=data)
            raise DataError(folder, "is damaged")

    monkeypatch.setattr(OpenIndex, "check", check)
    if data:
        assert OpenIndex.of(folder).facts["data"] == data
    else:
        with pytest.raises(DataError, match="is damaged"):
            OpenIndex.of(folder)
    assert seen == ([None, data] if data else [None])


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["index"], "index: found only index; wanted CORPUS OUT, or INDEX and --add, --delete, --choose, --rerank"),
        (["index", "--choose", "--weight", "0.3"], "--choose: found with --weight 0.3; wanted one of the two"),
        (["a", "b", "--check"], "--check: found with a b; wanted one INDEX; give these options to an index"),
        (["a", "b", "c", "--model", "m"], "--model: found with a b c; wanted one INDEX"),
        (["a", "b", "c", "d"], "index: found 4 words; wanted MODEL CORPUS OUT, or CORPUS OUT"),
    ],
)
def test_words_that_are_no_command_of_an_index(
    words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["index", *words])
    assert wrong in capsys.readouterr().err


def test_a_text_that_is_cut_is_counted_as_two_windows(place: Path) -> None:
    task = TextPairs(length=8)
    cutter, network = open_model(place / "bert").tokenizer, bert.Bert(width=16, layers=1, heads=2, positions=32)
    trained = Trained(fresh(task, network, cutter, 3).eval(), cutter, network, place, learned=task)
    read = VectorReader(trained).read(["a dog", "a dog " * 9, ""])
    assert [line.windows for line in read] == [1, 2, 1]
    assert [[*line.words] for line in read] == [["a", "dog"], ["a", "dog"] * 9, []]
