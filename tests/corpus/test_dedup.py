"""Duplicates of a corpus are reported and dropped, the others are written to splits, progress bars reach the end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.base.run import Run, obtain
from ordsmed.base.say import Progress
from ordsmed.corpus import chunks, near, pipeline
from ordsmed.corpus.folder import SPLITS, documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.corpus.signatures import Near
from ordsmed.text.document import Document


@dataclass(frozen=True)
class Given:
    """Documents out of a list."""

    texts: list[str] = field(default_factory=list)
    name: str = "a"

    def documents(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            yield Document(text, id=f"{self.name}:{number}")

    def stamp(self) -> Any:
        return self.texts

    def size(self) -> int:
        return 0


def invented(count: int, seed: int, words: int = 40) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(f"word{chance.randint(0, 10**6)}" for _ in range(words)) + "." for _ in range(count)]


def changed(text: str, more: int = 0) -> str:
    """One word of forty another one, and so many words more."""
    return text.replace(text.split()[20], "another") + " more" * more


def perform(folder: Path, source: Any, **settings: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return Corpus(source, **{"validation": 0.0, **settings}).perform(Run(folder))


def ids(folder: Path, split: str = "train") -> list[str]:
    return [document.id for path in parts(folder, split) for document in documents(path)]


def test_duplicates_are_dropped_across_chunks_and_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of one or two documents, with an empty source between two others."""
    monkeypatch.setattr(chunks, "CHUNK", 1000)
    one, two, three, four, five = invented(5, seed=1)
    source = Given([one, two, one, three, changed(two)]), Given([], "b"), Given([four, three, changed(one), five], "c")
    facts = perform(tmp_path / "out", source, near=Near(keep="first"))
    assert ids(tmp_path / "out") == ["a:0", "a:1", "a:3", "c:0", "c:3"]
    assert facts["dropped"] == {"duplicates": 2, "near": 2}
    told = facts["duplicates"]
    assert (told["exact"], told["near"]) == (2, 2)
    assert [(group["kept"], group["size"]) for group in told["groups"]] == [("a:0", 3), ("a:1", 2), ("a:3", 2)]
    (less, alike), (same, one_whole) = told["groups"][0]["members"]
    assert (less, same, one_whole) == ("c:2", "a:2", 1.0)
    assert 0.7 <= alike < 1
    assert alike == round(alike, 3)
    assert told["groups"][0]["excerpt"] == one[:160].strip()


def test_the_twenty_largest_groups_are_told_in_a_line_each(tmp_path: Path) -> None:
    texts = [text.replace(" ", "\n") for text in invented(25, seed=2)]
    facts = perform(tmp_path / "out", Given([text for n, text in enumerate(texts) for _ in range(1 + n)]))
    groups = facts["duplicates"]["groups"]
    assert [group["size"] for group in groups] == list(range(25, 5, -1))
    assert groups[0]["excerpt"] == " ".join(texts[24][:160].split())
    assert facts["dropped"] == {"duplicates": sum(range(25))}


@pytest.mark.parametrize(("keep", "kept"), [("longest", ["a:1", "a:2"]), ("first", ["a:0", "a:2"])])
def test_of_near_duplicates_the_longer_or_the_first_is_kept(tmp_path: Path, keep: Any, kept: list[str]) -> None:
    one, two = invented(2, seed=3)
    perform(tmp_path / "out", Given([one, changed(one, more=3), two, changed(two)]), near=Near(keep=keep))
    assert ids(tmp_path / "out") == kept


def test_shares_are_of_what_is_left_to_be_split(tmp_path: Path) -> None:
    """Neither duplicates nor texts that are given for a split count."""
    texts = invented(200, seed=4, words=5)
    given = pipeline.GivenSplits(test=Given(invented(100, seed=5, words=5), "given"))
    facts = perform(tmp_path / "out", Given(texts + texts), given=given, validation=0.15, exact=True)
    assert [facts[split]["documents"] for split in SPLITS] == [170, 30, 100]
    facts = perform(tmp_path / "more", Given(texts), validation=0.15, test=0.1, exact=True)
    assert [facts[split]["documents"] for split in SPLITS] == [150, 30, 20]


def test_a_search_is_done_once_and_stands_whole_on_the_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[tuple[str, str]]
) -> None:
    one, two = invented(2, seed=6)
    texts = [one, two, one, changed(two)]
    first = perform(tmp_path / "out", Given(texts), near=Near())
    names = [(what, Path(place).name) for what, place in synced]
    at = names.index(("rename", "matched.json"))
    assert ("sync", "dropped.npy") in names[:at]
    inner = near.find
    found: list[Any] = []
    monkeypatch.setattr(near, "find", lambda *told, **more: (found.append(told), inner(*told, **more))[1])
    again = perform(tmp_path / "out", Given(texts), near=Near(), shard=10_000)
    assert found == []
    assert again == first
    assert perform(tmp_path / "out", Given(texts), near=Near(threshold=1.0))["dropped"] == {"duplicates": 1, "near": 0}
    assert perform(tmp_path / "out", Given([*texts, one]), near=Near())["dropped"] == {"duplicates": 2, "near": 1}
    assert perform(tmp_path / "out", Given(texts))["dropped"] == {"duplicates": 1}
    assert len(found) == 3


def test_parts_of_the_same_writing_stand_and_those_of_another_go(tmp_path: Path) -> None:
    texts = invented(300, seed=7, words=10)
    folder = tmp_path / "out"

    def made(more: list[str] | None = None, **settings: Any) -> tuple[dict[str, Any], dict[str, int], list[str]]:
        facts = perform(folder, Given(texts + (more or [])), **{"shard": 5000, "validation": 0.2, **settings})
        found = [path for split in SPLITS for path in parts(folder, split)]
        return facts, {str(path): path.stat().st_mtime_ns for path in found}, ids(folder)

    facts, times, train = made()
    assert len(times) > 6
    again = made()
    assert again == (facts, times, train)
    for change in ({"shard": 6000}, {"validation": 0.1}, {"duplicates": "keep", "more": texts[:9]}):
        other = made(**change)  # type: ignore[arg-type]
        assert not set(other[1].values()) & set(times.values()), change
        assert sorted(ids(folder) + ids(folder, "validation")) == sorted(set(ids(folder) + ids(folder, "validation")))
        assert sum(other[0][split]["documents"] for split in SPLITS) == 300 + 9 * ("more" in change)
        assert made()[0] == facts


@pytest.mark.parametrize("damage", ["cut", "longer", "broken"])
def test_a_chunk_that_does_not_hold_what_its_index_tells_is_refused(tmp_path: Path, damage: str) -> None:
    texts = invented(9, seed=8)
    perform(tmp_path / "out", Given(texts))
    (path,) = tmp_path.glob("out/steps/read-*/*.jsonl")
    whole = path.read_bytes()
    at = {"cut": whole.index(b'"a:8"'), "longer": whole.index(b'"a:3"'), "broken": whole.index(b'"a:3"')}[damage]
    start = whole.rindex(b"\n", 0, at) + 1
    changed = {
        "cut": whole[:-1],
        "longer": whole[:at] + b" " + whole[at:],
        "broken": whole[:at] + b"\n" + whole[at + 1 :],
    }
    path.write_bytes(changed[damage])
    with pytest.raises(DataError, match=f"no document at byte {start:,}; wanted a whole chunk; remove the folder"):
        perform(tmp_path / "out", Given(texts), shard=1000)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, float]]:
    """Of every bar that was shown to its end: how far it came, and how far it was to come."""
    told = dict[str, tuple[float, float]]()

    def ended(
        self: Progress, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        told[self.title] = (self.done, self.total)

    monkeypatch.setattr(Progress, "__exit__", ended)
    return told


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_every_bar_comes_to_its_end(tmp_path: Path, bars: dict[str, tuple[float, float]], processes: int) -> None:
    (tmp_path / "texts").mkdir()
    for name, count in (("a", 40), ("b", 3), ("c", 3)):
        (tmp_path / "texts" / f"{name}.txt").write_text("\n\n".join(invented(count, seed=ord(name))))
    (tmp_path / "a.toml").write_text(
        f'out = "{tmp_path}/out"\nkeep_steps = true\nprocesses = {processes}\n[near]\n'
        f'[source]\nkind = "text"\npath = "{tmp_path}/texts"\n'
    )
    for _ in range(2):  # of the second time all chunks stand
        folder = obtain(Corpus, str(tmp_path / "a.toml"), anew=True)
        size = sum(path.stat().st_size for path in (tmp_path / "texts").iterdir()) / 1e6
        assert bars["read"] == pytest.approx((size, size))
        written = sum(path.stat().st_size for split in SPLITS for path in parts(folder, split)) / 1e6
        assert bars["write"] == pytest.approx((written, written))
    assert bars["match"] == (25, 25)
    assert json.loads((folder / "status.json").read_text())["read"] == 46
