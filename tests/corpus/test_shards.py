"""Shards: every training document once, even loads, all corpora in each, the same bytes twice; read again the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ordsmed.base import run
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.corpus import shards as deed
from ordsmed.corpus.corpora import text
from ordsmed.corpus.folder import PartWriter
from ordsmed.corpus.shards import shards
from ordsmed.text.document import Document
from ordsmed.text.sentences import by_lines


def corpus(folder: Path, name: str, documents: Iterator[Document]) -> str:
    """A finished corpus folder, with a held-out document."""
    for split, found in (("train", documents), ("validation", [Document("Held out.", [9])])):
        with PartWriter(folder / name / split, 4000) as writer:
            for document in found:
                writer.write(msgspec.json.encode(document) + b"\n", 1, 1, 1)
    run.Run(folder / name).set(verb="corpus", state="done", fingerprint=name)
    return str(folder / name)


def invented(name: str, count: int, longest: int) -> Iterator[Document]:
    """Documents of 1 to `longest` sentences, a paragraph after every third."""
    for number in range(count):
        lines = [f"{name} {number}: sentence {n}." for n in range(1 + number * 7919 % longest)]
        ends = [sum(map(len, lines[: n + 1])) + n for n in range(len(lines))]
        text = "".join(line + ("\n" if n % 3 == 2 else " ") for n, line in enumerate(lines))
        yield Document(text[: ends[-1]], ends, f"{name}:{number}")


@pytest.fixture
def corpora(tmp_path: Path) -> list[str]:
    return [corpus(tmp_path, "a", invented("a", 300, 9)), corpus(tmp_path, "b", invented("b", 60, 30))]


def held(out: Path, pattern: str = "*.txt") -> dict[str, list[list[str]]]:
    """The documents of each file as lists of lines."""
    files = sorted(out.glob(pattern))
    return {p.name: [d.splitlines() for d in p.read_text(encoding="utf-8").split("\n\n")] for p in files}


def wanted(*made: Iterator[Document]) -> list[list[str]]:
    return sorted([s.strip() for s in d.sentences()] for documents in made for d in documents)


def test_every_document_stands_once_and_whole(corpora: list[str], tmp_path: Path) -> None:
    told = shards(corpora, str(tmp_path / "out"), train=6, test=2, fraction=0.2)
    found = held(tmp_path / "out")
    assert sorted(found) == [f"test-0000{n}-of-00002.txt" for n in (0, 1)] + [
        f"train-0000{n}-of-00006.txt" for n in range(6)
    ]
    assert sorted(d for documents in found.values() for d in documents) == wanted(
        invented("a", 300, 9), invented("b", 60, 30)
    )
    for kind, share in (("train", 0.8), ("test", 0.2)):
        loads = [sum(map(len, documents)) for name, documents in found.items() if name.startswith(kind)]
        assert max(loads) <= 1.05 * min(loads)
        assert sum(loads) == pytest.approx(share * sum(len(d) for ds in found.values() for d in ds), rel=0.02)
    assert told[0].startswith(f"{tmp_path}/out/train-*.txt: 6 files, ")


def test_which_splits_are_taken_is_told_and_chosen(tmp_path: Path) -> None:
    names = [corpus(tmp_path, name, invented(name, 20, 3)) for name in "ab"]
    run.Run(Path(names[0])).set(validation={"documents": 1})  # the other one tells nothing: it is counted
    told = shards(names, str(tmp_path / "out"), train=2, test=0)
    assert told[-1] == ("of the corpora's splits: train; left out: validation (2 documents); --splits all takes them")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"] == ["train"]
    for chosen, count in (("all", 42), ("validation, train", 42), ("validation", 2)):
        told = shards(names, str(tmp_path / chosen), train=2, test=0, splits=chosen)
        found = [d for documents in held(tmp_path / chosen).values() for d in documents]
        assert len(found) == count
        assert found.count(["Held out."]) == 2
        assert ("left out" in told[-1]) == (chosen == "validation")
    told = shards(names, str(tmp_path / "x"), train=2, test=0, splits="train,test")
    assert (
        told[-1] == "of the corpora's splits: train, test; left out: validation (2 documents); --splits all takes them"
    )
    for wrong in ("tests", "", "train,,test"):
        with pytest.raises(RecipeError, match=f"--splits: found {wrong}; wanted some of train,validation,test, or all"):
            shards(names, str(tmp_path / "y"), train=2, test=0, splits=wrong)


def test_every_shard_has_documents_of_every_corpus_side_by_side(corpora: list[str], tmp_path: Path) -> None:
    shards(corpora, str(tmp_path / "out"), train=6, test=2)
    for name, documents in held(tmp_path / "out").items():
        letters = "".join(document[0][0] for document in documents)
        assert set(letters) == {"a", "b"}, name
        if name.startswith("train"):
            assert "b" in letters[: len(letters) // 2]
            assert "b" in letters[len(letters) // 2 :]


def test_the_manifest_tells_of_files_and_sources(corpora: list[str], tmp_path: Path) -> None:
    shards(corpora, str(tmp_path / "out"), train=3, test=0)
    told = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [(s["folder"], s["fingerprint"], s["documents"]) for s in told["sources"]] == [
        (corpora[0], "a", 300),
        (corpora[1], "b", 60),
    ]
    for name, documents in held(tmp_path / "out").items():
        size = (tmp_path / "out" / name).stat().st_size
        counts = {"documents": len(documents), "sentences": sum(map(len, documents)), "bytes": size}
        assert told["shards"][name] == counts


def test_the_same_corpora_give_the_same_bytes_however_little_is_held(
    corpora: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(corpora, str(tmp_path / "one"), train=5, test=3)
    monkeypatch.setattr(deed, "HELD", 100)
    inner, waiting = deed._empty, list[int]()
    monkeypatch.setattr(
        deed, "_empty", lambda made, held, found: (waiting.append(sum(map(len, held))), inner(made, held, found))
    )
    shards(corpora, str(tmp_path / "two"), train=5, test=3)
    assert len(waiting) > 100
    assert max(waiting) < 2000, "a document more than is held"
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_many_files_need_few_handles(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, soft), hard))
    try:
        shards([corpus(tmp_path, "a", invented("a", 600, 5))], str(tmp_path / "out"), train=200, test=200, fraction=0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(held(tmp_path / "out")) == 400


def test_read_again_as_lines_they_are_the_same_sentences(tmp_path: Path) -> None:
    odd = [
        Document("One.\nwith a break. Two.", [18, 23]),
        Document("一。二！", [2, 4]),
        Document("a\u2028b\r\nc d", [8]),
    ]
    shards([corpus(tmp_path, "odd", iter(odd))], str(tmp_path / "out"), train=1, test=0)
    found = list(text.TextFiles(str(tmp_path / "out" / "train-*.txt")).documents())
    cut = [[s.strip() for s in Document(d.text, by_lines(d.text)).sentences()] for d in found]
    assert cut == [["One. with a break.", "Two."], ["一。", "二！"], ["a b c d"]]


def test_no_file_is_empty_where_documents_are_few(tmp_path: Path) -> None:
    name = corpus(tmp_path, "few", invented("few", 8, 40))
    shards([name], str(tmp_path / "out"), train=5, test=3, fraction=0.01)
    assert [len(documents) for documents in held(tmp_path / "out").values()] == [1] * 8
    with pytest.raises(DataError, match="8 documents for 9 shards; wanted at least one document per shard"):
        shards([name], str(tmp_path / "other"), train=5, test=4)
    assert not list(tmp_path.glob("*other*"))


def test_one_document_too_large_for_its_share_leaves_the_others_even(tmp_path: Path) -> None:
    made = [*invented("a", 100, 3), *(d for d in invented("huge", 400, 400) if len(d.ends) == 400)]
    shards([corpus(tmp_path, "a", iter(made))], str(tmp_path / "out"), train=4, test=0)
    loads = sorted(sum(map(len, documents)) for documents in held(tmp_path / "out").values())
    assert loads[-1] == 400
    assert loads[2] <= 1.05 * loads[0]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"train": 0, "test": 1}, "--train 0"),
        ({"train": 1, "test": -1}, "--test -1"),
        ({"train": 70_000, "test": 0}, "1 to 65,536 files"),
        ({"train": 1, "test": 1, "fraction": 1.0}, "--fraction: 1.0"),
        ({"train": 1, "test": 1, "fraction": 0.0}, "--fraction: 0.0"),
    ],
)
def test_what_cannot_be_is_one_line(corpora: list[str], tmp_path: Path, how: dict[str, float], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        shards(corpora, str(tmp_path / "out"), **how)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_lost_document_or_a_full_disk_is_noticed(
    corpora: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = deed._texts, []

    def changed(source: Path, splits: list[str], doing: str) -> Iterator[list[str]]:
        found = list(whole(source, splits, doing))
        calls.append(doing)
        return iter(found[: -1 if doing == "write" else None])

    monkeypatch.setattr(deed, "_texts", changed)
    with pytest.raises(RunError, match="changed while they were read"):
        shards(corpora, str(tmp_path / "out"), train=2, test=0)
    assert "write" in calls
    monkeypatch.undo()

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(deed.files, "sync", full)
    with pytest.raises(RunError, match="cannot write: No space left on device"):
        shards(corpora, str(tmp_path / "out"), train=2, test=0)
    assert not list(tmp_path.glob("*out*"))


def test_documents_go_to_the_emptiest_shard_the_longest_first() -> None:
    """Sizes of two corpora by hand: the one with the longest document goes first."""
    sizes = [np.array([2, 1, 1, 3], np.uint32), np.array([5, 4], np.uint32)]
    places = deed._assign(sizes, [(3, 1.0), (0, 0.1)], Path("out"))
    # 5 -> 0, 4 -> 1; then 3 -> 2, 2 -> 2 (5), 1 -> 1 (5), 1 -> 0
    assert [found.tolist() for found in places] == [[2, 1, 0, 2], [0, 1]]
    # by what each side may hold: two of 0.8 together, one of 0.2
    places = deed._assign([np.array([1] * 10, np.uint32)], [(2, 0.8), (1, 0.2)], Path("out"))
    assert [places[0].tolist().count(shard) for shard in range(3)] == [4, 4, 2]
    # as many documents as shards: each has one, however long they are
    places = deed._assign([np.array([9, 1, 1], np.uint32)], [(1, 0.9), (2, 0.1)], Path("out"))
    assert sorted(places[0].tolist()) == [0, 1, 2]
    assert list(deed._longest_first(np.array([3, 9, 3, 0], np.uint32))) == [(1, 9), (0, 3), (2, 3), (3, 0)]


def test_many_documents_are_put_in_order_in_pieces() -> None:
    sizes = np.arange(70_000, dtype=np.uint32) % 7
    found = list(deed._longest_first(sizes))
    assert found == sorted(((n, int(size)) for n, size in enumerate(sizes)), key=lambda pair: (-pair[1], pair[0]))


def test_all_that_is_told_of_shards(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    names = [corpus(tmp_path, "a", invented("a", 12, 4)), corpus(tmp_path, "b", invented("b", 1, 1))]
    before = len(synced)
    told = shards(names, str(tmp_path / "out"), train=2, test=1, fraction=0.25)
    documents = held(tmp_path / "out")
    for line, kind in zip(told, ("train", "test"), strict=False):
        found = {name: some for name, some in documents.items() if name.startswith(kind)}
        loads = [sum(map(len, some)) for some in found.values()]
        count = sum(map(len, found.values()))
        files = "2 files" if kind == "train" else "1 file"
        assert line == (
            f"{tmp_path}/out/{kind}-*.txt: {files}, {count} documents, {sum(loads)} sentences, "
            f"{min(loads)} to {max(loads)} sentences each"
        )
    assert told[-1].endswith("left out: validation (2 documents); --splits all takes them")
    assert {Path(path).name for what, path in synced[before:] if what == "sync"} >= set(documents)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    sentences = [
        sum(map(len, wanted(invented(name, count, longest)))) for name, count, longest in (("a", 12, 4), ("b", 1, 1))
    ]
    assert [source["sentences"] for source in manifest["sources"]] == sentences


def test_a_document_more_or_a_file_that_is_shorter_is_noticed(
    corpora: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = deed._texts

    def more(source: Path, splits: list[str], doing: str) -> Iterator[list[str]]:
        yield from whole(source, splits, doing)
        if doing == "write":
            yield ["One more."]

    monkeypatch.setattr(deed, "_texts", more)
    with pytest.raises(RunError, match="changed while they were read"):
        shards(corpora, str(tmp_path / "out"), train=2, test=0)
    monkeypatch.undo()

    def longer(source: Path, splits: list[str], doing: str) -> Iterator[list[str]]:
        for sentences in whole(source, splits, doing):
            yield sentences + (["One more."] if doing == "write" else [])

    monkeypatch.setattr(deed, "_texts", longer)
    with pytest.raises(RunError, match="changed while they were read"):
        shards(corpora, str(tmp_path / "out"), train=2, test=0)
    monkeypatch.undo()
    (tmp_path / "a.txt").write_text("short")
    found = [deed.Shard("a.txt", 1, 1, 6)]
    with pytest.raises(RunError, match=r"a\.txt: is shorter than the data written to it"):
        deed._compare(tmp_path, [np.array([1], np.uint32)], found)


def test_bounds_of_what_can_be_asked_for(tmp_path: Path) -> None:
    deed._check(1, 0, 5.0)
    deed._check(65_536, 0, 0.1)
    deed._check(65_535, 1, 0.99)
    for train, test, fraction in ((65_536, 1, 0.1), (0, 0, 0.1), (1, 1, -0.1)):
        with pytest.raises(RecipeError):
            deed._check(train, test, fraction)
