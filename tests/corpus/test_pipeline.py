"""The deed `corpus`: what it writes, what it drops, on which side a document falls, and what it says of bad input."""

from __future__ import annotations

import contextlib
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import filelock
import pytest

from ordsmed.base import menu, run, settings
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError
from ordsmed.base.run import Run, load, obtain
from ordsmed.corpus import folder as folders
from ordsmed.corpus import pipeline, sources
from ordsmed.corpus.corpora import text as text_files
from ordsmed.corpus.decontamination import Decontaminate
from ordsmed.corpus.folder import SPLITS, documents, parts
from ordsmed.corpus.pipeline import Corpus, partly
from ordsmed.corpus.signatures import Near
from ordsmed.text.clean import tidy
from ordsmed.text.document import Document
from ordsmed.text.read import stamp
from ordsmed.text.text_hashes import SeenTexts


@dataclass(frozen=True)
class Given:
    """Documents out of a list, as any corpus gives them."""

    texts: list[str] = field(default_factory=list)

    def documents(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts, 1):
            yield Document(text, id=f"given:{number}", meta={"number": number})

    def stamp(self) -> Any:
        return self.texts

    def size(self) -> int:
        return 0


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    def made(texts: list[str], **settings: Any) -> tuple[Path, dict[str, Any]]:
        folder = tmp_path / "corpus"
        folder.mkdir(exist_ok=True)
        return folder, Corpus(Given(texts), **settings).perform(Run(folder))

    return made


def read(folder: Path, split: str) -> list[Document]:
    return [document for path in parts(folder, split) for document in documents(path)]


TEXTS = [f"Document number {i}. It has two sentences.\nAnd a line." for i in range(300)]


def test_encodings_are_counted_in_the_report(tmp_path: Path) -> None:
    made = {
        "a.txt": "blåbær på øya".encode("cp1252"),
        "b.txt": "ærlig talt, så klart".encode("utf-16"),
        "c.txt": "så klart".encode(),
    }
    (tmp_path / "in").mkdir()
    for name, data in made.items():
        (tmp_path / "in" / name).write_bytes(data)
    source = text_files.TextFiles(path=str(tmp_path / "in"), encoding="auto")
    folder = tmp_path / "corpus"
    folder.mkdir()
    facts = Corpus(source, validation=0.0).perform(Run(folder))
    assert facts["encodings"] == {"cp1252": 1, "utf-16": 1}
    assert "Files that are not in UTF-8: 1 in cp1252, 1 in utf-16." in (folder / "report.md").read_text()


def test_what_is_written(make: Any) -> None:
    folder, facts = make(["One.  Two!\r\n\r\nThree\x00 "], validation=0.0, language="en")
    assert parts(folder, "train") == [folder / "train" / "00000.jsonl"]
    line = json.loads((folder / "train" / "00000.jsonl").read_text())
    assert line == {"text": "One. Two!\nThree", "ends": [4, 9, 15], "id": "given:1", "meta": {"number": 1}}
    counts = facts["train"]
    assert (counts["documents"], counts["sentences"], counts["words"], counts["characters"]) == (1, 3, 3, 15)
    assert counts["parts"] == {"00000.jsonl": 1}
    assert facts["language"] == "en"
    assert facts["held_out"] is None


def test_parts_are_filled_and_counted(make: Any) -> None:
    folder, facts = make(TEXTS, shard=5000)
    paths = parts(folder, "train")
    assert len(paths) > 3
    assert all(path.stat().st_size <= 5000 for path in paths)
    assert [sum(1 for _ in documents(path)) for path in paths] == list(facts["train"]["parts"].values())
    assert not list(folder.rglob("*.part"))


def test_every_document_is_somewhere_once_and_in_order(make: Any) -> None:
    folder, facts = make(TEXTS, validation=0.1)
    found = {split: [d.meta["number"] for d in read(folder, split)] for split in SPLITS}
    assert sorted(found["train"] + found["validation"]) == list(range(1, 301))
    assert 10 < facts["validation"]["documents"] < 60
    assert found["validation"] == sorted(found["validation"])


def test_the_split_is_a_matter_of_text_and_seed(make: Any) -> None:
    held = lambda **s: {d.text for d in read(make(**s)[0], "validation")}  # noqa: E731
    some = held(texts=TEXTS, validation=0.1)
    assert held(texts=TEXTS[::-1], validation=0.1) == some
    assert held(texts=TEXTS, validation=0.1, seed=1) != some
    assert held(texts=TEXTS[:150], validation=0.1) == some & set(map(tidy, TEXTS[:150]))
    assert some <= held(texts=TEXTS, validation=0.2)


def test_duplicates_are_dropped_or_fall_on_one_side(make: Any) -> None:
    spaced = [text.replace(" ", "\n ") for text in TEXTS]
    folder, facts = make(TEXTS + spaced, validation=0.1)
    assert facts["dropped"] == {"duplicates": 300}
    folder, facts = make(TEXTS + spaced, validation=0.1, duplicates="keep")
    assert facts["train"]["documents"] + facts["validation"]["documents"] == 600
    sides = [{" ".join(d.text.split()) for d in read(folder, split)} for split in SPLITS]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize("duplicates", ["drop", "keep"])
def test_a_small_corpus_has_validation_too(make: Any, count: int, duplicates: str) -> None:
    for seed in range(5):
        _, facts = make(TEXTS[:count] * 2, validation=1e-6, seed=seed, duplicates=duplicates)
        assert facts["validation"]["documents"] == (1 if duplicates == "drop" else 2)
        assert facts["train"]["documents"] == (count - 1) * (1 if duplicates == "drop" else 2)


def test_one_document_is_trained_on(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, facts = make(TEXTS[:1] * 3, duplicates="keep", validation=0.01)
    assert (facts["train"]["documents"], facts["validation"]["documents"]) == (3, 0)
    assert "validation: empty" in capsys.readouterr().err


def test_no_validation_if_none_is_wanted(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder, facts = make(TEXTS, validation=0.0)
    assert "validation" not in capsys.readouterr().err
    assert facts["validation"]["documents"] == 0
    assert [d.meta["number"] for d in read(folder, "train")] == list(range(1, 301))


def test_short_ones_are_dropped(make: Any) -> None:
    _, facts = make(["abc", "abcdef", " \n ", "abcdefgh"], shortest=5)
    assert facts["left_out"] == {"short documents": 2}


def test_why_there_are_no_documents_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no book")
    (tmp_path / "a.toml").write_text(f'out = "{tmp_path}/out"\n[source]\nkind = "books"\npath = "{tmp_path}/a.jpg"\n')
    with pytest.raises(
        DataError, match=r"books .*a\.jpg: no documents at all; left out: 1 files that are no books; wanted"
    ):
        obtain(Corpus, str(tmp_path / "a.toml"))


def test_no_documents_is_an_error(make: Any) -> None:
    with pytest.raises(DataError, match="no documents at all"):
        make([])
    with pytest.raises(DataError, match="none of 2 documents is left"):
        make(["a", "b"], shortest=10)


def test_what_a_killed_run_left_is_removed(make: Any, tmp_path: Path) -> None:
    for name in ("00000.jsonl", "00007.jsonl", "00008.jsonl.part"):
        (tmp_path / "corpus" / "train").mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpus" / "train" / name).write_text("old")
    folder, _ = make(TEXTS)
    assert [p.name for p in (folder / "train").iterdir()] == ["00000.jsonl"]


def test_a_full_disk_is_one_line(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "sync", full)
    with pytest.raises(RunError, match="cannot write: No space left on device"):
        make(TEXTS)


def test_a_cut_off_part_is_named(make: Any) -> None:
    folder, _ = make(TEXTS, validation=0.0)
    (path,) = parts(folder, "train")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"00000.jsonl:300: the last line is cut off"):
        list(documents(path))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("validation=1.0", "validation: found 1.0"),
        ("sentences=ruls", "did you mean `rules`"),
        ("shard=0", "shard: found 0"),
        ("source.path=absent.txt", "absent.txt: no such file"),
        ("source.kind=txt", "did you mean `text`"),
        ("source.errors=ignore", "errors: found 'ignore'"),
        ("lenguage=en", "did you mean `language`"),
    ],
)
def test_bad_recipes_are_one_line(tmp_path: Path, word: str, said: str) -> None:
    (tmp_path / "a.txt").write_text("Hello there. And more.")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'out = "{tmp_path}/out"\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    with pytest.raises(OrdsmedError) as caught:
        obtain(Corpus, str(recipe), [word])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("apart", "wanted"), [("blank", ["One.", "Two.\nThree.", "Four."]), ("file", ["One.\nTwo.\nThree.", "Four."])]
)
def test_what_a_document_of_a_text_is(tmp_path: Path, apart: Literal["blank", "file"], wanted: list[str]) -> None:
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\nThree.\n\n")
    (tmp_path / "b.txt").write_text("Four.")
    assert [each.text for each in text_files.TextFiles(str(tmp_path), apart=apart).documents()] == wanted


def test_from_a_recipe_to_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"Bad \xff byte. More.\n\nAnother one.\n"))
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        f'out = "{tmp_path}/out"\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt.xz"\nerrors = "replace"\n'
    )
    folder = obtain(Corpus, str(recipe))
    assert Run(folder).status["replaced"] == 1
    assert "1 sequence replaced" in capsys.readouterr().err
    made = (folder / "train" / "00000.jsonl").stat().st_mtime_ns
    assert obtain(Corpus, str(recipe)) == folder
    assert (folder / "train" / "00000.jsonl").stat().st_mtime_ns == made
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"Other text.\n\nAnother one.\n"))
    with pytest.raises(RecipeError, match="inputs have changed"):
        obtain(Corpus, str(recipe))


@pytest.mark.parametrize("name", [p.stem for p in sorted((menu.PACKAGE_ROOT / "recipes" / "corpus").glob("*.toml"))])
def test_shipped_recipes_decode(name: str) -> None:
    from ordsmed.base.run import load

    deed, title = load(Corpus, name)
    assert title == name
    assert deed.verb == "corpus"


def test_tidy_keeps_words_and_lines() -> None:
    assert tidy("\ufeff  a\tb\u00a0\u00a0c \r\n\n\n d\x0ce\x00f\u2028g  ") == "a b c\nd\ne" + "f\ng"
    assert tidy("A\u030a") == "Å"
    assert tidy("A\u030a", "none") == "A\u030a"


@pytest.mark.long
def test_seen_is_a_set_that_grows() -> None:
    seen, known = SeenTexts(4), set()
    for i in range(20_000):
        number = (i * 0x9E3779B97F4A7C15) % (1 << 64) if i % 3 else (1 << 64) - 1 - i // 5
        assert seen.add(number) == (number not in known)
        known.add(number)
    assert seen.count == len(known)


@pytest.mark.parametrize("licence", ["CC0-1.0", None])
def test_the_report_tells_the_licence_that_the_status_tells(tmp_path: Path, licence: str | None) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"Text number {n} of some." for n in range(9)))
    told = f'licence = "{licence}"\nlanguage = "en"\n' if licence else ""
    (tmp_path / "x.toml").write_text(
        f'out = "{tmp_path}/x"\n{told}[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n'
    )
    found = obtain(Corpus, str(tmp_path / "x.toml"))
    assert Run(found).status.get("licence") == licence
    page = (found / "report.md").read_text()
    assert f"Language: {'en' if licence else 'not specified'}. License: {licence or 'not specified'}." in page
    assert f"| text | all | {licence or 'not specified'} |" in page


def test_what_a_recipe_says_can_be_taken_back(tmp_path: Path) -> None:
    text = '[held_out]\npaths = "b"\n[given.test]\nkind = "text"\npath = "c"\n[source]\nkind = "text"\npath = "a"\n'
    (tmp_path / "a.toml").write_text("processes = 2\n[near]\n" + text)
    words = ["near=none", "held_out=none", "given.test=none", "processes=none", "language=none"]
    deed, _ = load(Corpus, str(tmp_path / "a.toml"), words)
    assert (deed.near, deed.held_out, deed.given.test, deed.processes) == (None, None, None, None)
    assert deed.language == "none"  # a word
    with pytest.raises(RecipeError, match="seed: found 'none'; wanted"):
        load(Corpus, str(tmp_path / "a.toml"), ["seed=none"])


@dataclass(frozen=True)
class Sized(Given):
    """A source with a size, a license and a time of preparation."""

    bytes: int = 0
    LICENCE: str = ""
    prepared: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        self.prepared.append("once")

    def size(self) -> int:
        return self.bytes


def test_a_step_of_cleaning_may_be_named_without_a_list() -> None:
    table = {"source": {"kind": "text", "path": "x"}}
    alone, listed = (settings.decode(Corpus, {**table, "clean": clean}, "r") for clean in ("length", ["length"]))
    assert alone == listed
    assert len(alone.clean) == 1


def test_settings_reach_to_their_bounds() -> None:
    Corpus(Given(["a"]), shortest=0, shard=1, processes=1)
    for name, value, least in (("shortest", -1, 0), ("shard", 0, 1), ("processes", 0, 1)):
        with pytest.raises(ValueError, match=f"{name}: found {value}; wanted at least {least}"):
            Corpus(Given(["a"]), **{name: value})
    for beside in ({"near": Near()}, {"against": ("other",)}):
        with pytest.raises(ValueError, match='duplicates: found "keep"; wanted "drop" with `near` or `against`'):
            Corpus(Given(["a"]), duplicates="keep", **beside)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="source: found an empty list"):
        Corpus(())


@pytest.mark.parametrize(
    ("sizes", "processes", "wanted"),
    [
        ([0], None, 1),
        ([999_999], None, 1),
        ([2_999_999], None, 2),
        ([10**6, 2 * 10**6], None, 3),
        ([10**9], None, 8),
        ([10**9], 3, 3),
        ([0], 3, 3),
    ],
)
def test_a_small_corpus_has_few_processes(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], processes: int | None, wanted: int
) -> None:
    monkeypatch.setattr(pipeline, "cores", lambda: 8)
    sources = tuple(Sized([], size) for size in sizes)
    assert Corpus(sources, processes=processes)._workers() == wanted
    assert Corpus(sources[:1], processes=processes, given=pipeline.GivenSplits(test=Sized([], 0)))._workers() <= wanted


def test_every_input_is_in_the_stamp_and_what_is_not_said_leaves_it_as_it_was(tmp_path: Path) -> None:
    """Old corpora stay valid while their stamp is unchanged; for a single source it is the stamp of the source."""
    (path := tmp_path / "held.txt").write_text("one two three four five six seven eight")
    first = tmp_path / "first.toml"
    (tmp_path / "a.txt").write_text("One.\n\nTwo.")
    first.write_text(f'out = "{tmp_path}/first"\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    mark = Run(obtain(Corpus, str(first))).status["fingerprint"]
    assert Corpus(Given(["a"])).stamp() == ["a"]
    assert Corpus((Given(["a"]), Given(["b"]))).stamp() == [["a"], ["b"]]
    given = pipeline.GivenSplits(validation=Given(["v"]), test=Given(["t"]))
    assert Corpus(Given(["a"]), given=given).stamp() == [["a"], [["v"], ["t"]]]
    assert Corpus(Given(["a"]), against=(str(tmp_path / "first"),)).stamp() == [["a"], [mark]]
    assert Corpus(Given(["a"]), held_out=Decontaminate(str(path))).stamp() == [["a"], stamp([path])]


def test_given_texts_alone_are_no_corpus(tmp_path: Path) -> None:
    given = pipeline.GivenSplits(validation=Given(["One text."]))
    with pytest.raises(DataError, match="no documents at all; wanted at least one text; check `source`"):
        Corpus(Given([]), given=given).perform(Run(tmp_path))


def test_what_is_given_stands_where_it_was_given_for_and_first(tmp_path: Path) -> None:
    """A text that several sources hold is kept where it was given: for validation, for the test, in another corpus."""
    (tmp_path / "a.txt").write_text("Text 4.\n\nText 9.")
    (tmp_path / "a.toml").write_text(
        f'out = "{tmp_path}/a"\nvalidation = 0\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n'
    )
    (folder := tmp_path / "c").mkdir()
    first, second = Sized([f"Text {n}." for n in range(4)]), Sized([f"Text {n}." for n in range(2, 8)])
    given = pipeline.GivenSplits(validation=Sized(["Text 1.", "Held one."]), test=Sized(["Held two.", "Text 6."]))
    facts = Corpus((first, second), given=given, against=(str(tmp_path / "a.toml"),)).perform(Run(folder))
    found = {split: [d.text for d in read(folder, split)] for split in SPLITS}
    assert found == {
        "train": [f"Text {n}." for n in (0, 2, 3, 5, 7)],
        "validation": ["Text 1.", "Held one."],
        "test": ["Held two.", "Text 6."],
    }
    assert [(s["purpose"], s["read"], s["documents"]) for s in facts["sources"]] == [
        ("validation", 2, 2),
        ("test", 2, 2),
        ("against", 2, 2),
        ("", 4, 4),
        ("", 6, 6),
    ]
    assert (facts["read"], facts["dropped"]) == (14, {"duplicates": 5})
    assert [s.prepared for s in (first, second, given.validation, given.test)] == [["once"]] * 4


def test_the_licences_of_what_is_learned_from_are_named_once_each(tmp_path: Path) -> None:
    sources = tuple(Sized([f"Text {n}."], LICENCE=name) for n, name in enumerate(["X", "", "Y", "X"]))
    given = pipeline.GivenSplits(validation=Sized(["Held."], LICENCE="Z"))
    facts = Corpus(sources, given=given).perform(Run(tmp_path))
    assert (facts["licence"], facts["language"], facts["title"]) == ("X; Y", None, None)
    assert (tmp_path / "report.md").read_text().startswith(f"# {tmp_path.name}\n")
    facts = Corpus(sources, given=given, licence="own", title="Mine").perform(Run(tmp_path))
    assert (facts["licence"], facts["title"]) == ("own", "Mine")
    assert (tmp_path / "report.md").read_text().startswith("# Mine\n")


def test_held_out_text_is_hashed_once_and_anew_where_it_changed(make: Any, tmp_path: Path) -> None:
    words = "one two three four five six seven eight nine"
    (path := tmp_path / "held.txt").write_text(words)
    texts = ["Some other text.", f"Say {words} again."]
    folder, facts = make(texts, held_out=Decontaminate(str(path)))
    assert facts["left_out"] == {"held-out text": 1}
    assert facts["held_out"] == [f"given:2: '{words}'"]
    (grams,) = (folder / "steps").glob("*.npy")
    made = grams.stat().st_mtime_ns
    make(texts, held_out=Decontaminate(str(path)))
    assert grams.stat().st_mtime_ns == made
    _, facts = make(texts, held_out=Decontaminate(str(path), words=20, shortest=10))
    assert facts["left_out"] == {}
    path.write_text("other words stand here now and these are eight")
    _, facts = make(texts, held_out=Decontaminate(str(path)))
    assert facts["left_out"] == {}
    assert len(list((folder / "steps").glob("*.npy"))) == 3
    assert not [p for p in (folder / "steps").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("keep", [False, True])
def test_steps_go_when_all_stands_unless_they_are_kept(tmp_path: Path, keep: bool) -> None:
    (tmp_path / "steps").mkdir()
    Corpus(Given(["a"]), keep_steps=keep).tidy(Run(tmp_path))
    assert (tmp_path / "steps").exists() == keep


@pytest.fixture
def plain_recipe(tmp_path: Path) -> str:
    (tmp_path / "texts").mkdir()
    for name in "abcd":
        (tmp_path / "texts" / f"{name}.txt").write_text(f"Text {name}.\n\nText of all.")
    path = tmp_path / "plain.toml"
    path.write_text(f'out = "{tmp_path}/out"\nvalidation = 0\n[source]\nkind = "text"\npath = "{tmp_path}/texts"\n')
    return str(path)


def test_a_corpus_is_made_step_by_step(plain_recipe: str, tmp_path: Path) -> None:
    told = partly(plain_recipe, [], part=None, until="read")
    assert told == [
        f"{tmp_path}/out: 1 chunk with 8 documents are finished",
        "next:",
        f"    ordsmed corpus {plain_recipe}",
    ]
    steps = tmp_path / "out" / "steps"
    assert not list(steps.glob("match-*"))
    assert Run(tmp_path / "out").status["state"] == "running"
    partly(plain_recipe, [], part=None, until="match")
    (matched,) = steps.glob("match-*/matched.json")
    made = {path: path.stat().st_mtime_ns for path in [matched, *steps.glob("read-*/*")]}
    seen: list[dict[Path, int]] = []
    tidied = Corpus.tidy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Corpus,
            "tidy",
            lambda self, place: (seen.append({path: path.stat().st_mtime_ns for path in made}), tidied(self, place)),
        )
        folder = obtain(Corpus, plain_recipe)
    assert seen == [made], "what stood was made again"
    assert [d.text for d in read(folder, "train")] == ["Text a.", "Text of all.", "Text b.", "Text c.", "Text d."]
    assert Run(folder).status["duplicates"]["exact"] == 3
    assert partly(plain_recipe, [], part=None, until="match") == [f"{folder}: exists"]


def test_parts_are_read_side_by_side_and_other_steps_alone(
    plain_recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BUNDLE", 1)
    free: list[bool] = []
    inner = Corpus.read

    def looked(self: Corpus, place: Run, *args: Any) -> Any:
        lock = filelock.FileLock(tmp_path / ".out.lock")  # another process would open it like this
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=0)
        free.append(lock.is_locked)
        lock.release()
        return inner(self, place, *args)

    monkeypatch.setattr(Corpus, "read", looked)
    told = [partly(plain_recipe, [], part=f"{n}/3", until=None)[0] for n in (2, 1, 3)]
    assert [line.partition(": ")[2] for line in told] == [
        f"{n} chunks with {2 * n} documents are finished" for n in (2, 3, 4)
    ]
    partly(plain_recipe, [], part=None, until="match")
    assert free == [True, True, True, False]


def test_what_another_recipe_began_is_begun_anew(plain_recipe: str, tmp_path: Path) -> None:
    partly(plain_recipe, [], part=None, until="read")
    (tmp_path / "out" / "stats.json").write_text("of another corpus")
    partly(plain_recipe, [], part=None, until="read")
    assert (tmp_path / "out" / "stats.json").exists(), "the same recipe goes on"
    partly(plain_recipe, ["seed=5"], part=None, until="read")
    assert not (tmp_path / "out" / "stats.json").exists()
    assert "seed = 5" in (tmp_path / "out" / "recipe.toml").read_text()
    obtain(Corpus, plain_recipe, ["seed=5"])
    with pytest.raises(OrdsmedError, match="was made from another recipe"):
        partly(plain_recipe, [], part=None, until="read")


def test_parts_and_steps_that_cannot_be(plain_recipe: str) -> None:
    for part in ("0/2", "3/2", "1", "a/b", "1/2/3", " 1/2"):
        with pytest.raises(RecipeError, match=f"--part: found {part}; wanted I/N"):
            partly(plain_recipe, [], part=part, until=None)
    assert [run.parse_part(text) for text in (None, "1/16", "3/16", "16/16")] == [(0, 1), (0, 16), (2, 16), (15, 16)]
    with pytest.raises(RecipeError, match="--until: found write; wanted read or match"):
        partly(plain_recipe, [], part=None, until="write")
    with pytest.raises(RecipeError, match="--until: match, with --part; wanted --part alone"):
        partly(plain_recipe, [], part="1/2", until="match")


def test_what_one_source_alone_has_goes(tmp_path: Path) -> None:
    """Two of three have it, nearly: the best of them stays. Copies within one source do not count."""
    words = [f"word{n} of some text" for n in range(80)]
    shared, alone = " ".join(words), " ".join(f"{n * 7919:x} other" for n in range(200))
    crawls = [[shared, alone], [shared + " and more"], [alone[::-1], alone[::-1] + " twice"]]
    found = {}
    for least in (1, 2):
        folder = tmp_path / str(least)
        folder.mkdir()
        corpus = Corpus(tuple(map(Given, crawls)), near=Near(sources=least), validation=0.0)
        facts = corpus.perform(Run(folder))
        found[least] = [document.text for document in read(folder, "train")]
        assert facts["duplicates"]["sources"] == {"1": 2, "2": 1}
        assert facts["dropped"].get("in too few sources", 0) == (2 if least == 2 else 0)
    assert found == {1: [alone, crawls[1][0], crawls[2][1]], 2: [crawls[1][0]]}
    assert "| 2 | 1 |" in (tmp_path / "1/report.md").read_text()
    with pytest.raises(ValueError, match=r"near\.sources: found 4, so that nothing is kept; wanted at most 3"):
        Corpus(tuple(map(Given, crawls)), near=Near(sources=4))


def test_a_sample_hangs_on_the_texts_alone(make: Any) -> None:
    """On no order of files; a smaller one is the beginning of a larger; what is left out is counted."""
    folder, facts = make(TEXTS, validation=0.1, max_words=600)
    found = {split: [document.text for document in read(folder, split)] for split in SPLITS}
    assert 590 < facts["train"]["words"] <= 600
    assert 40 < facts["validation"]["words"] <= 60
    left = 300 - sum(map(len, found.values()))
    assert facts["beyond"] == {"documents": left, "words": 10 * left}
    assert facts["left_out"]["beyond max_words"] == left
    folder, _ = make(TEXTS[::-1], validation=0.1, max_words=600)
    assert {split: [document.text for document in read(folder, split)] for split in SPLITS} == found
    folder, _ = make(TEXTS, validation=0.1, max_words=200)
    fewer = {split: [document.text for document in read(folder, split)] for split in SPLITS}
    assert all(fewer[split] == found[split][: len(fewer[split])] for split in SPLITS)
    assert found["train"] != sorted(found["train"])
    folder, facts = make(TEXTS, validation=0.1, max_words=10**6)
    assert facts["beyond"]["documents"] == 0
    assert "beyond max_words" not in facts["left_out"]
    assert sum(len(read(folder, split)) for split in SPLITS) == 300


def test_how_many_sources_have_a_document_stays_with_it(tmp_path: Path) -> None:
    """Not with given text; a writing that was killed resumes to the same parts, a sample has it too; no name, none."""
    crawls = [["One text that two have.", "One alone."], ["One text that two have."], ["And another alone."]]
    made = {}
    for into, words in (("", 0), ("crawls", 0), ("crawls", 10**6)):
        folder = tmp_path / f"{into}{words}"
        folder.mkdir()
        splits = pipeline.GivenSplits(validation=Given(["And another alone."]))
        corpus = Corpus(tuple(map(Given, crawls)), near=Near(into=into), given=splits, shard=1, max_words=words)
        for _ in range(2):
            corpus.perform(Run(folder))
            for part in sorted((folder / "train").iterdir())[1:]:
                part.unlink()
        corpus.perform(Run(folder))
        made[into, words] = {
            d.text: d.meta.get("crawls") for name in ("train", "validation") for d in read(folder, name)
        }
    assert set(made["", 0].values()) == {None}
    assert made["crawls", 0] == {"One text that two have.": 2, "One alone.": 1, "And another alone.": None}
    assert made["crawls", 10**6] == made["crawls", 0]
