"""Chunks: counts of both halves of reading add up, and files are on the disk before they get their names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.base.run import obtain
from ordsmed.base.workers import worker_pool
from ordsmed.corpus import chunks, cleaning, sources
from ordsmed.corpus.chunks import Reading
from ordsmed.corpus.cleaners import length
from ordsmed.corpus.cleaning import Work
from ordsmed.corpus.decontamination import grams
from ordsmed.corpus.folder import documents, parts
from ordsmed.corpus.pipeline import Corpus, partly
from ordsmed.corpus.signatures import Near
from ordsmed.corpus.sources import CorpusSource
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece


@dataclass(frozen=True)
class Counting:
    """Documents of which both halves of the reading count something."""

    texts: list[str] = field(default_factory=list)

    def documents(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            tally = read.tally()
            tally.left_out["redirects"] += 2
            tally.replaced += 1
            tally.cut += number % 2
            yield Document(text, id=str(number))
        read.tally().left_out["behind the last"] += 1

    def refine(self, document: Document) -> Document | None:
        read.tally().replaced += 10
        read.tally().cut += 100
        if int(document.id) % 3:
            return document
        read.tally().left_out["empty pages"] += 1
        return None

    def stamp(self) -> Any:
        return self.texts

    def size(self) -> int:
        return 0


def facts(folder: Path, *, shortest: int = 1) -> cleaning.Facts:
    reading = Reading(folder, [CorpusSource(Counting(["text"] * 30))], Work(shortest=shortest))
    with worker_pool() as spread:
        reading.run(spread, 1)
    found = cleaning.Facts()
    for chunk in reading.chunks():
        found.add(chunk.facts)
    return found


@pytest.mark.parametrize("size", [1, 2500, 8_000_000])
def test_what_both_halves_count_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(chunks, "CHUNK", size)
    found = facts(tmp_path)
    assert (found.read, found.documents, found.replaced, found.cut) == (30, 20, 30 + 300, 15 + 3000)
    assert found.left_out == {"redirects": 60, "empty pages": 10, "behind the last": 1}
    assert found.steps == [[20, 0, 0, 80, 80]]
    short = facts(tmp_path, shortest=5)
    assert (short.documents, short.left_out["short documents"]) == (0, 20)


def test_a_chunk_stands_on_the_disk_before_it_has_a_name(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    reading = Reading(tmp_path, [CorpusSource(Counting(["some text"] * 4))], Work(near=Near()))
    with worker_pool() as spread:
        reading.run(spread, 1)
    renamed = [place for what, place in synced if what == "rename"]
    assert [Path(place).name.partition(".")[2] for place in renamed] == ["jsonl", "npy", "near.npy", "json", "whole"]
    for place in renamed:
        before = synced[synced.index(("rename", place)) - 1]
        assert before[0] == "sync"
        assert Path(before[1]).name.startswith(f".{Path(place).name}.")


def test_a_file_that_is_changed_in_place_is_read_again(tmp_path: Path) -> None:
    """Its size need not change: its time does."""
    path, recipe = tmp_path / "a.txt", tmp_path / "a.toml"
    path.write_text("One text.\n\nAnother one.")
    recipe.write_text(f'out = "{tmp_path}/c"\nvalidation = 0\n[source]\nkind = "text"\npath = "{path}"\n')
    partly(str(recipe), [], part=None, until="read")
    path.write_text("New text.\n\nAnother one.")
    os.utime(path, ns=(1, 1))
    folder = obtain(Corpus, str(recipe))
    assert [d.text for part in parts(folder, "train") for d in documents(part)] == ["New text.", "Another one."]


def test_documents_without_text_fill_a_chunk_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are objects all the same: a chunk of them alone would have no end."""
    monkeypatch.setattr(chunks, "CHUNK", 4 * 500)
    with read.tallied() as tally:
        found = list(chunks._batches((Document("", id=f"{n}", meta={}) for n in range(9)), tally))
    assert [len(batch.documents) for batch in found] == [4, 4, 1]


@pytest.mark.parametrize("turned", [False, True])
def test_of_what_two_kept_the_longer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    stem, work = str(tmp_path / "00000-00000"), Work()
    for raw in (3, 5):
        chunks._keep(stem, cleaning.CleanedBatch(work.nothing(), raw), 0)
    listed = sorted(chunks._beside(stem).iterdir(), reverse=turned)
    assert len(listed) == 2
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(listed))
    assert chunks._kept(stem, work).raw == 5


def test_a_chunk_goes_on_behind_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(chunks, "_kept", lambda stem, work: cleaning.CleanedBatch(work.nothing(), 2))
    monkeypatch.setattr(chunks, "refined", lambda documents, *_: seen.extend(d.id for d in documents) or [])
    batch = chunks.RawBatch([Document("text", id=f"{n}") for n in range(4)], 0, 0, Counter(), Counter())
    chunks._make(tmp_path, Work(), CorpusSource(Counting()), 0, 0, batch)
    assert seen == ["2", "3"]


def test_an_entry_counts_words_characters_and_bytes() -> None:
    made = [Document("blåbær i 東京", id="a", ends=[5, 11]), Document("plain", id="b")]
    index = cleaning._indexed(made, [b"12345", b"67"], 3)
    told = [tuple(int(entry[key]) for key in ("at", "sentences", "words", "characters", "bytes")) for entry in index]
    assert told == [(0, 2, 4, 11, 17), (5, 0, 1, 5, 5)]
    assert len({int(entry[key]) for entry in index for key in ("key", "draw")}) == 4


def test_of_two_cleaners_of_a_kind_the_second_has_a_number() -> None:
    assert Work(clean=(length.Length(), length.Length(), length.Length())).names() == [
        "length",
        "length 2",
        "length 3",
        "tidy",
    ]


def test_large_bundles_are_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those above a fourth of what each of the workers has; of small ones a part of an array takes its own."""
    reading = Reading(tmp_path, [], Work())
    sizes = {"a": 101, "b": 100, "c": 30, "": 900}
    reading.sources = [SimpleNamespace(size=lambda what: sizes[what])]  # type: ignore[list-item]
    reading.bundles = [(0, what) for what in sizes]  # type: ignore[misc]
    monkeypatch.setattr(Reading, "_large", lambda self, piece, source, what, part, shown: iter([f"large {what}"]))
    kinds = [task if isinstance(task, str) else task.bundle for task in reading._tasks(800, 2, (0, 1), None)]  # type: ignore[arg-type]
    assert kinds == ["large a", "b", "c", "large "]
    kinds = [task if isinstance(task, str) else task.bundle for task in reading._tasks(1600, 2, (1, 2), None)]  # type: ignore[arg-type]
    assert kinds == ["large a", "b", "large "]


def test_a_chunk_that_stands_is_kept_nowhere_else_and_whole(tmp_path: Path) -> None:
    batch = chunks.RawBatch([Document("text", id="1")], 0, 0, Counter(), Counter())
    stem = str(tmp_path / "00000-00000")
    chunks._keep(stem, cleaning.CleanedBatch(Work().nothing(), 1), 7)
    assert chunks._beside(stem).is_dir()
    chunks._make(tmp_path, Work(), CorpusSource(Counting()), 0, 0, batch)
    assert not chunks._beside(stem).exists()
    made = chunks.Chunk(stem, 0, cleaning.Facts(documents=1))
    assert len(made.index) == 1
    made.facts.documents = 2
    with pytest.raises(
        DataError, match=r"00000-00000.npy: 1 entries; wanted 2; remove the folder `steps`, and run the command again"
    ):
        _ = made.index


@dataclass(frozen=True)
class Files:
    """A source of files with known sizes."""

    sizes: dict[str, int]

    def pieces(self) -> list[Piece]:
        return [Piece(Path(name), bytes=size) for name, size in self.sizes.items()]

    def size(self) -> int:
        return sum(self.sizes.values())


def test_small_files_are_read_together_in_their_order() -> None:
    """Up to eight million bytes together; a source that names no files is read as a whole."""
    source = CorpusSource(
        Files({"a": 4_000_000, "b": 4_000_000, "c": 1, "d": 8_000_000, "e": 9_000_000, "f": 0, "g": 7})
    )
    bundles = [[str(piece.path) for piece in bundle] for bundle in source.bundles()]
    assert bundles == [["a", "b"], ["c"], ["d"], ["e"], ["f", "g"]]
    assert [source.size(bundle) for bundle in source.bundles()] == [8_000_000, 1, 8_000_000, 9_000_000, 7]
    assert CorpusSource(Counting([])).bundles() == [()]
    assert CorpusSource(Files({"a": 5})).size(()) == 5
    assert sources._size(Piece(Path("a"), start=30, stop=70)) == 40


@pytest.mark.parametrize(("less", "sizes"), [(0, [2, 1]), (1, [3, 0])])
def test_a_chunk_is_eight_million_characters_with_what_stands_beside(less: int, sizes: list[int]) -> None:
    """Each document counts 500 characters in addition to its text and the strings of its metadata."""
    made = [
        Document("x" * 3_999_000, id="a", meta={"raw": "y" * 500, "n": 10**9}),
        Document("x" * (3_999_500 - less), id="b"),
        Document("", id="c"),
    ]
    with read.tallied() as tally:
        assert [len(batch.documents) for batch in chunks._batches(iter(made), tally)] == sizes


@dataclass(frozen=True)
class Halving:
    """A step that drops every other document and reports the reason."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if int(text.split()[-1]) % 2:
            read.tally().left_out["halving: odd"] += 1
            return None
        return f"{text}!" if "4" in text else text


def test_what_each_step_did_is_counted(tmp_path: Path) -> None:
    source = Plain([f"text {n}" for n in range(10)] + ["text  12"])
    reading = Reading(tmp_path, [CorpusSource(source)], Work(clean=(Halving(),)))
    with worker_pool() as spread:
        reading.run(spread, 1)
    (chunk,) = reading.chunks()
    assert chunk.facts.steps == [[11, 1, 5, 6 * 10 + 8, 6 * 5 + 1 + 8], [6, 1, 0, 39, 38]]
    assert (chunk.facts.read, chunk.facts.documents) == (11, 6)
    assert chunk.facts.left_out == {f"{Work(clean=(Halving(),)).names()[0]}: odd": 5}


@dataclass(frozen=True)
class Plain:
    """Documents out of a list."""

    texts: list[str]

    def documents(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            yield Document(text, id=str(number))

    def stamp(self) -> Any:
        return self.texts

    def size(self) -> int:
        return 0


def test_another_reading_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Whatever a chunk depends on names it: sources, what they are for, settings, but not the threshold."""
    source = CorpusSource(Plain(["a"]))

    def name(sources: list[CorpusSource], **work: Any) -> str:
        return Reading(tmp_path, sources, Work(**work)).folder.name

    plain, signed = name([source]), name([source], near=Near())
    others = [
        name([CorpusSource(Plain(["b"]))]),
        name([source, source]),
        name([CorpusSource(Plain(["a"]), "test")]),
        name([source], seed=1),
        name([source], clean=(length.Length(),)),
        name([source], normalise="none"),
        name([source], shortest=2),
        name([source], sentences="lines"),
        name([source], held_out="x/one.npy"),
        name([source], held_out="x/two.npy"),
        signed,
        name([source], near=Near(shingle=5)),
        name([source], near=Near(permutations=64)),
        name([source], near=Near(seed=1)),
    ]
    assert len({plain, *others}) == 15
    assert name([source], near=Near(threshold=0.9, keep="first")) == signed
    assert name([source], held_out="elsewhere/one.npy") == name([source], held_out="x/one.npy")


def test_facts_of_several_chunks_add_up() -> None:
    one = cleaning.Facts(1, 2, 3, 4, Counter(a=1), [[1, 2, 3, 4, 5]], Counter(x=1), [f"a{n}" for n in range(15)])
    whole = cleaning.Facts()
    for other in (cleaning.Facts(), one, one):
        whole.add(other)
    assert (whole.read, whole.documents, whole.replaced, whole.cut) == (2, 4, 6, 8)
    assert (whole.left_out, whole.encodings, whole.steps) == ({"a": 2}, {"x": 2}, [[2, 4, 6, 8, 10]])
    assert whole.held_out == [*one.held_out, *one.held_out[:5]]
    assert one.steps == [[1, 2, 3, 4, 5]]


def test_a_hash_of_words_tells_texts_and_a_seed_draws_anew() -> None:
    one = cleaning.digest("One text, 東京", 3)
    assert one == cleaning.digest(" One\ntext,  東京 ", 3)
    assert one[2] == 4
    assert one[0] != one[1]
    for other in (
        cleaning.digest("One text 東京", 3),
        cleaning.digest("One text, 東京", 4),
        cleaning.digest("One text, 東京", -3),
    ):
        assert not {other[0], other[1]} & {one[0], one[1]}
    assert cleaning.digest("", 0) == (12492701897661843127, 2930596301863861566, 0)  # on every machine


@pytest.mark.parametrize("size", [30, 100_000])
def test_documents_that_quote_held_out_text_are_told_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cleaning, "SEARCHED", size)
    (tmp_path / "held.txt").write_text("one two three four five six seven eight")
    grams(str(tmp_path / "held.txt")).save(tmp_path / "held.npy")
    texts = [f"{n}: one two three four five six seven eight." if n % 2 else f"Other text {n}." for n in range(60)]
    reading = Reading(tmp_path, [CorpusSource(Plain(texts))], Work(held_out=str(tmp_path / "held.npy")))
    with worker_pool() as spread:
        reading.run(spread, 1)
    (chunk,) = reading.chunks()
    assert chunk.facts.left_out == {"held-out text": 30}
    assert chunk.facts.held_out == [f"{n}: 'one two three four five six seven eight'" for n in range(1, 41, 2)]
    assert [line.count(b"Other text") for line in Path(f"{chunk.stem}.jsonl").read_bytes().splitlines()] == [1] * 30


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "documents: TypeError: gives 5, an int; wanted an ordsmed.text.document.Document"),
        (Document(3), "gives a Document whose text is 3; wanted a str"),  # type: ignore[arg-type]
        (Document("a", id=4), "gives a Document whose id is 4; wanted a str"),  # type: ignore[arg-type]
        (Document("a", meta=[]), r"gives a Document whose meta is \[\]; wanted a dict"),  # type: ignore[arg-type]
        (ValueError("broken feed"), "documents: ValueError: broken feed; fix the source or step"),
    ],
)
def test_what_a_source_gives_that_is_no_document_is_named(given: Any, said: str) -> None:
    class Feed:
        def documents(self) -> Iterator[Any]:
            yield Document("fine")
            if isinstance(given, Exception):
                raise given
            yield given

        def refine(self, document: Document) -> Any:
            return 7

    with pytest.raises(DataError, match=said):
        list(CorpusSource(Feed()).read(()))
    with pytest.raises(DataError, match="a:1: TypeError: gives 7, an int"):
        CorpusSource(Feed()).refine(Document("x", id="a:1"))


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), DataError("a", "b", "c", "d")])
def test_errors_that_tell_their_place_are_left_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, sources.naming("x"):
        raise error
    assert caught.value is error


def test_a_step_gives_a_text_or_none(tmp_path: Path) -> None:
    class Wrong:
        def clean(self, text: str, meta: dict[str, Any]) -> Any:
            return len(text)

    with pytest.raises(DataError, match="id 1: TypeError: gives 4, an int; wanted the cleaned text, or None"):
        cleaning._clean(
            Document("text", id="id 1"), Work(clean=(Wrong(),)), ["wrong", "tidy"], cleaning.Facts(steps=[[0] * 5] * 2)
        )


def test_entries_of_several_batches_are_counted_from_the_first_line() -> None:
    whole = cleaning.CleanedBatch(Work().nothing())
    for texts in (["one", "two two"], ["three"]):
        documents = [Document(text, [len(text)]) for text in texts]
        lines = [f"{text}\n".encode() for text in texts]
        batch = cleaning.CleanedBatch(Work().nothing(), len(texts), [b"".join(lines)])
        batch.index = [cleaning._indexed(documents, lines, 0)]
        whole.add(batch)
    assert whole.entries()["at"].tolist() == [0, 4, 12]
