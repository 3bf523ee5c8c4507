"""The steps of a corpus: equal bytes for any processes, resumed steps, and separate held-out and given texts."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ordsmed.base import files
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.run import Run, obtain
from ordsmed.corpus import chunks, cleaning, write
from ordsmed.corpus import sources as corpus_sources
from ordsmed.corpus.folder import SPLITS, PartWriter, documents, parts
from ordsmed.corpus.pipeline import Corpus, partly

pytestmark = pytest.mark.long

WORDS = [f"{a}{b}" for a in ("river", "stone", "garden", "letter") for b in ("house", "light", "man", "side")]


def invented(count: int, seed: int, words: int = 60) -> list[str]:
    chance = random.Random(seed)
    return [
        " ".join(chance.choice(WORDS) + str(chance.randint(0, 99)) for _ in range(words)) + "." for _ in range(count)
    ]


def changed(text: str, share: float, seed: int) -> str:
    """So many of the words replaced."""
    chance = random.Random(seed)
    words = text.split()
    for place in chance.sample(range(len(words)), round(share * len(words))):
        words[place] = f"other{chance.randint(0, 9999)}"
    return " ".join(words)


def bits(folder: Path) -> dict[str, str]:
    """Every part file by its hash, and what the report says."""
    found = [*(p for split in SPLITS for p in parts(folder, split)), folder / "report.md"]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


def ids(folder: Path, *splits: str) -> list[str]:
    return [d.id.split("/")[-1] for split in splits or SPLITS for path in parts(folder, split) for d in documents(path)]


def recipe(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.toml"
    path.write_text(f'out = "{folder}/{name}"\ntitle = "Invented"\n{text}')
    return str(path)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Four files, one much larger than the others, with near duplicates among and within them."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, count in (("a", 20), ("b", 150), ("c", 10), ("d", 10)):
        texts = invented(count, seed=ord(name), words=300)
        texts += [changed(text, 0.05, n) for n, text in enumerate(texts[::5])]
        (folder / f"{name}.txt").write_text("\n\n".join(texts))
    return folder


SETTINGS = """
split = "8,1,1"
clean = ["punctuation"]
[near]
[source]
kind = "text"
path = "{}"
"""


def test_the_same_bits_whoever_works(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 20_000)
    alone = obtain(Corpus, recipe(tmp_path, "one", SETTINGS.format(sources)), ["processes=1"])
    assert Run(alone).status["duplicates"]["near"] == 38
    assert not (alone / "steps").exists()
    monkeypatch.setattr(corpus_sources, "BUNDLE", 1)  # every file by itself
    three = recipe(tmp_path, "three", SETTINGS.format(sources))
    for part in ("3/3", "1/3", "2/3", "2/3"):
        partly(three, [], part=part, until=None)
    assert bits(obtain(Corpus, three)) == bits(alone)


@pytest.mark.parametrize("more", ["", "max_words = 30000\n"])
def test_the_same_bits_on_two_processes_and_on_an_engine(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """Here chunks have their real size, for processes of their own know of no other. None is written by this one."""
    distributed = pytest.importorskip("distributed")
    text = more + "shard = 20000\n" + SETTINGS.format(sources)
    alone = obtain(Corpus, recipe(tmp_path, "one", text), ["processes=1"])
    assert len(list((alone / "train").iterdir())) > 5
    monkeypatch.setattr(PartWriter, "write", None)
    two = obtain(Corpus, recipe(tmp_path, "two", text), ["processes=2"])
    assert bits(two) == bits(alone)
    assert Run(two).status["train"] == Run(alone).status["train"]
    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**how) as cluster:
        engine = f'engine="{cluster.scheduler_address}"'
        many = obtain(Corpus, recipe(tmp_path, "many", text), [engine])
    assert bits(many) == bits(alone)


KILLED = """
import os, signal, sys
from ordsmed.base.run import obtain
from ordsmed.corpus import chunks, near, folder, pipeline
chunks.CHUNK = 20_000
place, left = sys.argv[2], int(sys.argv[3])
module = {"make": chunks, "save": chunks, "find": near, "close": folder.PartWriter}[place]
name = {"make": "_make", "save": "_save", "find": "find", "close": "close"}[place]
inner = getattr(module, name)
def killed(*args, **how):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(*args, **how)
setattr(module, name, killed)
obtain(pipeline.Corpus, sys.argv[1], ["processes=1"])
"""


@pytest.mark.parametrize(("place", "left"), [("make", 0), ("make", 3), ("save", 5), ("find", 0), ("close", 1)])
def test_a_killed_step_goes_on(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, left: int
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 20_000)
    alone = obtain(Corpus, recipe(tmp_path, "one", SETTINGS.format(sources)), ["processes=1"])
    name = recipe(tmp_path, "killed", SETTINGS.format(sources))
    done = subprocess.run([sys.executable, "-c", KILLED, name, place, str(left)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "killed" / "steps").glob("read-*/*.json")}
    assert bool(made) == (left > 0 or place == "find")
    partly(name, [], part=None, until="read")
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert bits(obtain(Corpus, name, ["processes=1"])) == bits(alone)


def test_parts_that_are_written_stand_when_writing_is_killed(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = obtain(Corpus, recipe(tmp_path, "one", "shard = 50000\n" + SETTINGS.format(sources)), ["processes=1"])
    name = recipe(tmp_path, "killed", "shard = 50000\n" + SETTINGS.format(sources))
    done = subprocess.run([sys.executable, "-c", KILLED, name, "close", "7"], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "killed").glob("*/0*.jsonl")}
    assert len(made) > 3
    folder = obtain(Corpus, name, ["processes=1"])
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert bits(folder) == bits(alone)
    told = [{split: Run(f).status[split] for split in SPLITS} for f in (folder, alone)]
    assert told[0] == told[1]
    for split in SPLITS:
        assert told[0][split]["checksums"] == {path.name: files.checksum(path) for path in parts(folder, split)}


def test_what_another_writing_left_is_no_part_of_this_one(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "shard = 50000\nkeep_steps = true\n" + SETTINGS.format(sources)
    name = recipe(tmp_path, "one", text)
    subprocess.run([sys.executable, "-c", KILLED, name, "close", "7"], capture_output=True, check=False)
    part = next((tmp_path / "one" / "train").glob("0*.jsonl"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(
        DataError, match=r"00000.jsonl: [\d,]+ bytes; wanted [\d,]+; remove this file, and run the command again"
    ):
        obtain(Corpus, name, ["processes=1"])
    part.unlink()
    folder = obtain(Corpus, name, ["processes=1"])
    assert bits(folder) == bits(obtain(Corpus, recipe(tmp_path, "two", text), ["processes=1"]))
    assert not write._resumes(folder, ["anything else"], np.zeros(0))
    assert not list(folder.glob("*/0*.jsonl"))


KILLED_OFTEN = """
import os, signal, sys
from ordsmed.base.run import obtain
from ordsmed.corpus import cleaning, pipeline
cleaning.KEPT = 0.0
left, inner = int(sys.argv[2]), cleaning._clean
def killed(*args):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(*args)
cleaning._clean = killed
obtain(pipeline.Corpus, sys.argv[1], ["processes=1"])
"""


def test_slow_cleaning_goes_on_within_a_chunk(sources: Path, tmp_path: Path) -> None:
    """Killed over and over after 50 documents, of which a chunk has 228, it comes to its end with the same bits."""
    text = SETTINGS.replace('["punctuation"]', '["punctuation", {{kind = "length", min_words = 200}}]')
    (tmp_path / "held.txt").write_text(" ".join(invented(1, seed=ord("b"), words=300)[0].split()[40:60]))
    text = text.format(sources) + f'[held_out]\npaths = "{tmp_path}/held.txt"\n'
    alone = obtain(Corpus, recipe(tmp_path, "one", text), ["processes=1"])
    name, lives = recipe(tmp_path, "killed", text), 0
    while True:
        done = subprocess.run([sys.executable, "-c", KILLED_OFTEN, name, "50"], capture_output=True, check=False)
        lives += 1
        if done.returncode != -signal.SIGKILL:
            break
        assert lives < 10
    assert (done.returncode, lives) == (0, 5)
    assert bits(tmp_path / "killed") == bits(alone)
    left, wanted = (
        {k: v for k, v in Run(f).status.items() if k not in ("began", "seconds", "folder")}
        for f in (tmp_path / "killed", alone)
    )
    assert left | {"fingerprint": 0} == wanted | {"fingerprint": 0}
    assert wanted["left_out"]["held-out text"] >= 1


def test_what_is_kept_of_a_chunk_goes_with_it_and_damage_is_no_loss(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = obtain(Corpus, recipe(tmp_path, "one", SETTINGS.format(sources)), ["processes=1"])
    name = recipe(tmp_path, "kept", "keep_steps = true\n" + SETTINGS.format(sources))
    subprocess.run([sys.executable, "-c", KILLED_OFTEN, name, "50"], capture_output=True, check=False)
    (kept,) = tmp_path.glob("kept/steps/read-*/.00000-00000")
    assert sum(1 for _ in kept.iterdir()) == 50
    (kept / "30-31").write_bytes(b"{")
    seen = []
    clean = cleaning._clean
    monkeypatch.setattr(cleaning, "_clean", lambda *args: (seen.append(args[0].id), clean(*args))[1])
    folder = obtain(Corpus, name, ["processes=1"])
    assert len(seen) == 228 - 30
    assert not kept.exists()
    assert bits(folder) == bits(alone)


def test_another_threshold_reads_nothing_again(sources: Path, tmp_path: Path) -> None:
    name = recipe(tmp_path, "kept", "keep_steps = true\n" + SETTINGS.format(sources))
    folder = obtain(Corpus, name, ["processes=1"])
    made = {p: p.stat().st_mtime_ns for p in folder.glob("steps/read-*/*")}
    assert made
    matched = [p.stat().st_mtime_ns for p in folder.glob("steps/match-*/matched.json")]
    obtain(Corpus, name, ["processes=1", 'split="9,1"'], anew=True)
    assert [p.stat().st_mtime_ns for p in folder.glob("steps/match-*/matched.json")] == matched
    obtain(Corpus, name, ["processes=1", "near.threshold=0.999"], anew=True)
    assert Run(folder).status["duplicates"]["near"] == 0
    assert {p: p.stat().st_mtime_ns for p in folder.glob("steps/read-*/*")} == made


def test_near_duplicates_within_and_across_corpora(tmp_path: Path) -> None:
    texts = invented(30, seed=1)
    (tmp_path / "a.txt").write_text("\n\n".join([*texts, changed(texts[3], 0.05, 1), changed(texts[4], 0.5, 2)]))
    first = recipe(tmp_path, "a", f'validation = 0\n[near]\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    found = obtain(Corpus, first)
    assert Run(found).status["duplicates"]["near"] == 1
    assert len(ids(found)) == 31
    assert "a.txt:32" in ids(found)
    more = [*invented(5, seed=2), changed(texts[7], 0.05, 3), changed(texts[8], 0.5, 4), texts[9]]
    (tmp_path / "b.txt").write_text("\n\n".join(more))
    second = f'validation = 0\nagainst = ["{first}"]\n[near]\n[source]\nkind = "text"\npath = "{tmp_path}/b.txt"\n'
    other = obtain(Corpus, recipe(tmp_path, "b", second))
    assert ids(other) == [f"b.txt:{n}" for n in (1, 2, 3, 4, 5, 7)]
    status = Run(other).status
    assert (status["duplicates"]["near"], status["duplicates"]["exact"]) == (1, 1)
    assert {group["kept"].split("/")[-1] for group in status["duplicates"]["groups"]} == {"a.txt:8", "a.txt:10"}
    assert "a.txt:8" in (other / "report.md").read_text()


def test_given_texts_are_as_they_are_and_nothing_like_them_is_learned_from(tmp_path: Path) -> None:
    texts, held = invented(20, seed=1), invented(4, seed=2)
    (tmp_path / "a.txt").write_text("\n\n".join([*texts, changed(held[1], 0.05, 1), held[2]]))
    (tmp_path / "held.txt").write_text("\n\n".join([*held, texts[5]]))
    text = f"""split = "8,1,1"\n[near]\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"
    [given.test]\nkind = "text"\npath = "{tmp_path}/held.txt"\n"""
    folder = obtain(Corpus, recipe(tmp_path, "c", text))
    assert ids(folder, "test") == [f"held.txt:{n}" for n in range(1, 6)]
    assert len(ids(folder, "train", "validation")) == 19
    assert not {"a.txt:6", "a.txt:21", "a.txt:22"} & set(ids(folder))


def test_held_out_text_is_dropped(tmp_path: Path) -> None:
    texts = invented(20, seed=1)
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    (tmp_path / "questions.json").write_text('{"data": [{"context": "' + " ".join(texts[3].split()[10:40]) + '"}]}')
    text = f"""[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n[held_out]\npaths = "{tmp_path}/questions.json"\n"""
    folder = obtain(Corpus, recipe(tmp_path, "c", text))
    status = Run(folder).status
    assert status["left_out"] == {"held-out text": 1}
    assert "a.txt:4" in status["held_out"][0]
    assert "a.txt:4" not in ids(folder)


def test_several_sources_and_names_for_them(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("\n\n".join(invented(10, seed=ord(name))))
    (tmp_path / "names.toml").write_text(
        f'[one]\nkind = "text"\npath = "{tmp_path}/a.txt"\n[two]\nkind = "text"\npath = "{tmp_path}/b.txt"\n'
    )
    listed = recipe(
        tmp_path, "listed", "".join(f'[[source]]\nkind = "text"\npath = "{tmp_path}/{n}.txt"\n' for n in "ab")
    )
    names = 'names = ["one", "two"]'
    named = recipe(tmp_path, "named", f'[source]\nkind = "named"\n{names}\nfile = "{tmp_path}/names.toml"\n')
    assert len(ids(obtain(Corpus, listed))) == 20
    assert bits(obtain(Corpus, named)) == bits(obtain(Corpus, listed))
    told = (tmp_path / "names.toml").read_text()
    (tmp_path / "names.toml").write_text(told.replace('kind = "text"', 'kind = "text"\nerrors = "replace"'))
    with pytest.raises(OrdsmedError, match="its inputs have changed"):
        obtain(Corpus, named)
    with pytest.raises(OrdsmedError, match=r"names.toml: tow: no such name; did you mean `two`"):
        obtain(Corpus, named, ['source.names="tow"', f'out="{tmp_path}/x"'])


def test_a_finished_corpus_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"It is {t} And so on." for t in invented(10, seed=1)))
    first = recipe(tmp_path, "a", f'[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    again = recipe(tmp_path, "b", f'sentences = "given"\n[source]\nkind = "corpus"\nname = "{first}"\n')
    folder = obtain(Corpus, again)
    told = [Run(f).status for f in (tmp_path / "a", folder)]
    assert sum(told[1][s]["sentences"] for s in SPLITS) == sum(told[0][s]["sentences"] for s in SPLITS) == 20
    assert sorted(ids(folder)) == sorted(ids(tmp_path / "a"))


def test_sentences_that_no_source_gives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two.")
    name = recipe(tmp_path, "a", f'sentences = "given"\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    with pytest.raises(DataError, match="its source gives no sentences"):
        obtain(Corpus, name)


def test_a_damaged_chunk_is_named(sources: Path, tmp_path: Path) -> None:
    name = recipe(tmp_path, "one", SETTINGS.format(sources))
    partly(name, [], part=None, until="read")
    (index,) = (tmp_path / "one" / "steps").glob("read-*/00000-00000.npy")
    index.write_bytes(index.read_bytes()[:200])
    with pytest.raises(
        DataError,
        match=r"00000-00000.npy: truncated, or not a .npy file: .*; remove the folder `steps`, and run the command",
    ):
        obtain(Corpus, name)


def test_a_second_process_waits_and_finds_it_made(sources: Path, tmp_path: Path) -> None:
    name = recipe(tmp_path, "one", SETTINGS.format(sources))
    command = [sys.executable, "-m", "ordsmed", "corpus", name]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=480)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("exists, reused" in " ".join(text.split()) for text in said) == 1  # wrapped where the path is long


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (['clean=["mojibak"]'], "clean[1].kind: `mojibak` is not in cleaners; did you mean `mojibake`"),
        (["near.threshold=2"], "near.threshold: found 2"),
        (['split="a"'], "split: found 'a'"),
        (['duplicates="keep"', "near.seed=1"], 'duplicates: found "keep"; wanted "drop"'),
        (["source=[]"], "source: found an empty list"),
        (["processes=0"], "processes: found 0"),
        (["validation=0.5", "test=0.5"], "validation: found 0.5 and test 0.5"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    name = recipe(tmp_path, "a", f'[source]\nkind = "text"\npath = "{tmp_path}"\n')
    with pytest.raises(OrdsmedError) as caught:
        obtain(Corpus, name, words)
    assert said in str(caught.value)


def test_two_steps_of_a_kind_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(["word " * n for n in (2, 3, 10, 30, 31, 32)]))
    text = f"""clean = [{{kind = "length", min_words = 5}}, {{kind = "length", max_words = 20}}]
    [source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n"""
    status = Run(obtain(Corpus, recipe(tmp_path, "a", text))).status
    assert status["dropped"] == {"length": 2, "length 2": 3, "duplicates": 0}
    assert [step["reasons"] for step in status["steps"]] == [{"few words": 2}, {"many words": 3}, {}]
    assert status["left_out"] == {}


def test_a_source_without_a_file_is_counted_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(invented(3, seed=1)))
    first = recipe(tmp_path, "a", f'validation = 0\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    text = f"""[[source]]\nkind = "text"\npath = "{tmp_path}/a.txt"
    [[source]]\nkind = "corpus"\nname = "{first}"\nsplits = ["test"]\n"""
    status = Run(obtain(Corpus, recipe(tmp_path, "b", text))).status
    assert [source["documents"] for source in status["sources"]] == [3, 0]


def test_empty_files_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name, text in (("a", ""), ("b", "\ufeff"), ("c", "One."), ("d", "")):
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    text = f'validation = 0\n[source]\nkind = "text"\npath = "{tmp_path}/texts"\n'
    assert ids(obtain(Corpus, recipe(tmp_path, "a", text))) == ["c.txt:1"]
    (tmp_path / "texts" / "c.txt").unlink()
    with pytest.raises(DataError, match="no documents at all"):
        obtain(Corpus, recipe(tmp_path, "b", text))


def test_what_is_made_from_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.")
    text = f'against = ["{tmp_path}/a.toml"]\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n'
    with pytest.raises(OrdsmedError, match=r"is made from itself, by .*a\.toml; wanted another input"):
        obtain(Corpus, recipe(tmp_path, "a", text))


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    Path(os.fsdecode(bytes(tmp_path / "texts") + b"/a\xff.txt")).write_text("One.")
    text = f'validation = 0\n[source]\nkind = "text"\npath = "{tmp_path}/texts"\n'
    assert ids(obtain(Corpus, recipe(tmp_path, "a", text))) == ["a\ufffd.txt:1"]


def test_what_code_of_others_raises_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab_of_tests").mkdir()
    head = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Settings:\n"
    feed = "    def documents(self):\n        yield from ()\n        raise ValueError('broken feed')\n"
    rest = "    def stamp(self): return 1\n    def size(self): return 0\n"
    (tmp_path / "lab_of_tests" / "feed.py").write_text(head + feed + rest)
    (tmp_path / "lab_of_tests" / "step.py").write_text(head + "    def clean(self, text, meta): return text + 1\n")
    (tmp_path / "a.txt").write_text("One.")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match=r"lab_of_tests\.feed: documents: ValueError: broken feed; fix"):
        obtain(Corpus, recipe(tmp_path, "a", '[source]\nkind = "lab_of_tests.feed"\n'))
    text = f'clean = ["lab_of_tests.step"]\n[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n'
    with pytest.raises(DataError, match=r"lab_of_tests.step: .*a\.txt:1: TypeError: "):
        obtain(Corpus, recipe(tmp_path, "b", text))


MANY = """
import resource, sys
from ordsmed.base.run import obtain
from ordsmed.corpus import pipeline, sources
sources.BUNDLE = 1
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
obtain(pipeline.Corpus, sys.argv[1], ["processes=1"])
"""


def test_more_chunks_than_files_may_be_open(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(invented(120, seed=1)):
        (tmp_path / "texts" / f"{number:03}.txt").write_text(text)
    name = recipe(tmp_path, "a", f'[near]\n[source]\nkind = "text"\npath = "{tmp_path}/texts"\n')
    subprocess.run([sys.executable, "-c", MANY, name], check=True, capture_output=True)
    assert len(ids(tmp_path / "a")) == 120


def test_what_stands_beside_a_text_counts_for_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 20_000)
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{n}", "raw": "{"x" * 5000}"}}\n' for n in range(20)))
    name = recipe(tmp_path, "a", f'[source]\nkind = "jsonl"\npath = "{tmp_path}/a.jsonl"\n')
    partly(name, [], part=None, until="read")
    assert len(list((tmp_path / "a" / "steps").glob("read-*/*.jsonl"))) >= 5


def test_a_part_of_another_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(invented(3, seed=1)))
    name = recipe(tmp_path, "a", f'[source]\nkind = "text"\npath = "{tmp_path}/a.txt"\n')
    obtain(Corpus, name)
    assert partly(name, [], part="1/2", until=None)[0].endswith("exists")
    with pytest.raises(OrdsmedError, match="was made from another recipe"):
        partly(name, ["seed=5"], part="1/2", until=None)


def test_bad_parts_are_one_line(tmp_path: Path) -> None:
    name = recipe(tmp_path, "a", f'[source]\nkind = "text"\npath = "{tmp_path}"\n')
    for part in ("0/2", "3/2", "1", "a/b"):
        with pytest.raises(OrdsmedError, match=r"--part: found .*; wanted I/N"):
            partly(name, [], part=part, until=None)
    with pytest.raises(OrdsmedError, match="--until: found write; wanted read or match"):
        partly(name, [], part=None, until="write")
