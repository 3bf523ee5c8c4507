"""Encoding: a corpus folder becomes stores that hold every sentence's ids, in order, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.clocks import set_time
from ordsmed.base import run
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.run import Run
from ordsmed.data import encode
from ordsmed.data.encode import Encoding, read_store
from ordsmed.data.tokenizer_training import TokenizerTraining, learned_from, read_tokenizer
from ordsmed.text.tokenizer import Tokenizer

TEXT = "the newts ran up a hill and won 42 prizes , they said ; nobody knew why it was so"
WORDS = TEXT.split()


def corpus(folder: Path, documents: dict[str, list[list[str]]]) -> Path:
    """A corpus folder as `ordsmed corpus` leaves it; every document a list of sentences."""
    for split, found in documents.items():
        (folder / split).mkdir(parents=True)
        half = (len(found) + 1) // 2
        for part, some in enumerate([found[:half], found[half:]]):
            lines = [json.dumps({"text": "".join(s), "ends": np.cumsum([len(x) for x in s]).tolist()}) for s in some]
            (folder / split / f"{part:05d}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    facts = {
        "verb": "corpus",
        "state": "done",
        "fingerprint": "c0",
        "language": "en",
        "title": "Newts",
        "licence": None,
    }
    (folder / "status.json").write_text(json.dumps(facts))
    return folder


def made_up(count: int, seed: int = 0) -> list[list[str]]:
    draw = np.random.default_rng(seed)
    sentence = lambda first: ("" if first else " ") + " ".join(draw.choice(WORDS, draw.integers(1, 12))) + "."  # noqa: E731
    return [[sentence(i == 0) for i in range(draw.integers(1, 9))] for _ in range(count)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a corpus and a recipe for a tokenizer."""
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path / "novels", {"train": made_up(60), "validation": made_up(5, 1)})
    (tmp_path / "pieces.toml").write_text('corpus = "novels"\n[tokenizer]\nkind = "wordpiece"\nsize = 90\n')
    (tmp_path / "bytes.toml").write_text('corpus = "novels"\n[tokenizer]\nkind = "bytebpe"\nsize = 300\n')
    return tmp_path


def obtained(**settings: object) -> encode.Encoded:
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    Path("recipe.toml").write_text(text)
    return read_store("recipe.toml")


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["pieces", "bytes"])
@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("processes", [1, 2])
def test_every_sentence_in_order(place: Path, recipe: str, sentences: bool, processes: int) -> None:
    found = obtained(corpus="novels", tokenizer=f"{recipe}.toml", sentences=sentences, processes=processes)
    tokenizer = found.tokenizer
    for store, documents in ((found.train, made_up(60)), (found.validation, made_up(5, 1))):
        assert store is not None
        wanted = [d if sentences else ["".join(d)] for d in documents]
        ids = [tokenizer.encode(s) for d in wanted for s in d]
        assert [a.tolist() for a in np.split(store.tokens, store.starts[1:-1])] == ids
        assert store.documents.tolist() == [0, *np.cumsum([len(d) for d in wanted]).tolist()]
        assert store.fingerprint == tokenizer.fingerprint
        assert store.counts.sum() == store.token_count
        assert store.words is not None
        assert store.words.tolist() == [len(s.split()) for d in wanted for s in d]
        assert len(store.counts) == tokenizer.vocabulary


def test_what_is_told(place: Path) -> None:
    found = obtained(corpus="novels", tokenizer="pieces.toml")
    facts, text = found.facts, "".join(s for d in made_up(60) for s in d)
    assert (facts["state"], facts["language"], facts["title"], facts["kind"]) == ("done", "en", "Newts", "wordpiece")
    assert "licence" not in facts
    assert facts["tokenizer"] == found.tokenizer.fingerprint
    assert facts["vocabulary"] == found.tokenizer.vocabulary
    train = facts["train"]
    assert (train["documents"], train["sequences"]) == (60, sum(map(len, made_up(60))))
    assert train["bytes_a_token"] == pytest.approx(len(text) / train["tokens"], abs=1e-3)
    assert train["unknown"] == 0
    assert facts["validation"]["documents"] == 5


def test_the_tokenizer_is_learned_once_and_measured(place: Path) -> None:
    folder = run.obtain(TokenizerTraining, "pieces.toml")
    facts = Run(folder).status
    tokenizer = read_tokenizer("pieces.toml")
    assert (facts["tokenizer"], facts["vocabulary"]) == (tokenizer.fingerprint, tokenizer.vocabulary)
    text = "".join(s for d in made_up(5, 1) for s in d)
    joined = ["".join(d) for d in made_up(5, 1)]
    pieces = sum(len(tokenizer.encode(d)) for d in joined)
    assert facts["bytes_a_piece"] == pytest.approx(len(text) / pieces, abs=1e-3)
    assert facts["fertility"] == pytest.approx(pieces / sum(len(d.split()) for d in joined), abs=1e-3)
    assert read_tokenizer(str(folder)).fingerprint == tokenizer.fingerprint
    assert read_tokenizer(str(folder / "vocab.txt")).fingerprint == tokenizer.fingerprint
    assert (
        read_tokenizer(str(obtained(corpus="novels", tokenizer="pieces.toml").folder)).fingerprint == facts["tokenizer"]
    )


def test_a_sample_is_spread_evenly(place: Path) -> None:
    from ordsmed.data.tokenizer_training import TrainingTexts

    everything = list(TrainingTexts(place / "novels", None))
    assert everything == ["".join(d) for d in made_up(60)]
    some = list(TrainingTexts(place / "novels", 3000))
    assert some == list(TrainingTexts(place / "novels", 3000))
    assert sum(map(len, some)) <= 3000
    at = [everything.index(text) for text in some[:-1]]
    assert at[-1] > 40
    assert len(set(np.diff(at))) == 1


def test_a_file_of_the_user_needs_no_corpus(place: Path) -> None:
    read_tokenizer("pieces.toml").save(place / "theirs")
    (place / "mine.toml").write_text('[tokenizer]\nkind = "wordpiece"\nfile = "theirs/vocab.txt"\n')
    assert read_tokenizer("mine.toml").fingerprint == read_tokenizer("pieces.toml").fingerprint
    assert "fertility" not in Run(Path("work/tokenizer/mine")).status
    (place / "wrong.toml").write_text('[tokenizer]\nkind = "wordpiece"\n')
    with pytest.raises(OrdsmedError, match=r"corpus: missing; wanted a folder or recipe"):
        read_tokenizer("wrong.toml")


def test_sentences_and_documents_without_ids_are_left_out(place: Path) -> None:
    corpus(place / "gaps", {"train": [["the hill.", " ", "\n"], ["  "], [" newts."]]})
    found = obtained(corpus="gaps", tokenizer="pieces.toml")
    assert found.train.document_count == 2
    assert found.train.sequence_count == 2
    assert found.validation is None


def test_a_corpus_that_gives_nothing_is_refused(place: Path) -> None:
    corpus(place / "empty", {"train": [["  "]]})
    with pytest.raises(DataError, match="has no tokens to train on"):
        obtained(corpus="empty", tokenizer="pieces.toml")


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_a_damaged_line_is_named(place: Path, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "EVERY", 600.0)  # a slow machine would have written checkpoints
    part = place / "novels/train/00001.jsonl"
    part.write_bytes(part.read_bytes()[:-20])
    lines = len(part.read_bytes().splitlines())
    (place / "theirs").mkdir()
    (place / "theirs/vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    with pytest.raises(DataError, match=rf"00001\.jsonl:{lines}: "):
        obtained(corpus="novels", tokenizer="theirs", processes=processes)
    assert not list(place.glob("work/encode/*/train.*"))


def test_a_changed_tokenizer_in_the_folder_is_noticed(place: Path) -> None:
    found = obtained(corpus="novels", tokenizer="pieces.toml")
    read_tokenizer("bytes.toml").save(found.folder / "tokenizer")
    with pytest.raises(DataError, match="the store's; encode again"):
        _ = encode.Encoded(found.folder).tokenizer


def test_blocks_do_not_show(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = obtained(corpus="novels", tokenizer="pieces.toml", out="whole")
    monkeypatch.setattr(encode, "BLOCK", 700)
    monkeypatch.setattr("ordsmed.data.words.FULL", 20)
    small = obtained(corpus="novels", tokenizer="pieces.toml", out="small")
    for name in ("train.bin", "train.idx", "validation.bin", "validation.idx"):
        assert (small.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
def test_the_same_bytes_on_an_engine(place: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    distributed = pytest.importorskip("distributed")
    (place / "some.toml").write_text(f'corpus = "novels"\n[tokenizer]\nkind = "{kind}"\nsize = 90\n')
    monkeypatch.setattr(encode, "BLOCK", 700)
    alone = obtained(corpus="novels", tokenizer="some.toml", out="alone", processes=1)
    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**how) as cluster:
        monkeypatch.setattr(encode, "_encoder", None)
        many = obtained(corpus="novels", tokenizer="some.toml", out="many", engine=cluster.scheduler_address)
    found, wanted = (
        {path.name: path.read_bytes() for path in stored.folder.iterdir() if path.suffix in (".bin", ".idx", ".npy")}
        for stored in (many, alone)
    )
    assert found == wanted
    assert {"train.bin", "validation.idx"} < set(wanted)
    assert Run(many.folder).status["fingerprint"] == Run(alone.folder).status["fingerprint"]


def test_a_line_that_is_no_document_is_named_by_its_number(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "BLOCK", 100)
    path = place / "novels/train/00001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"nonsense\n", *lines[6:]]))
    with pytest.raises(DataError, match=r"novels/train/00001\.jsonl:6: .*; wanted one document per line"):
        obtained(corpus="novels", tokenizer="pieces.toml", out="x", processes=1)


KILLED = """
import time
from pathlib import Path
from ordsmed.data import encode
make, blocks = encode.LineEncoder.__call__, []
def slow(self, block):
    blocks.append(block)
    if len(blocks) == 4:
        Path("here").touch()
        time.sleep(3600)
    return make(self, block)
encode.LineEncoder.__call__, encode.BLOCK = slow, 700
encode.read_store("recipe.toml")
"""


@pytest.mark.long
def test_killed_and_begun_again(place: Path) -> None:
    whole = obtained(corpus="novels", tokenizer="pieces.toml", out="whole")
    (place / "recipe.toml").write_text('corpus = "novels"\ntokenizer = "pieces.toml"\nout = "killed"\n')
    process = subprocess.Popen([sys.executable, "-c", KILLED], stderr=subprocess.DEVNULL)
    part = place / "killed/train.bin.part"
    while not (place / "here").exists():
        time.sleep(0.05)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert part.exists()
    assert not (place / "killed/train.idx").exists()
    assert Run(place / "killed").status["state"] == "running"
    again = read_store("recipe.toml")
    assert (again.folder / "train.bin").read_bytes() == (whole.folder / "train.bin").read_bytes()
    assert not list(again.folder.glob("*.part"))


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="processes: found 0"):
        Encoding(corpus="a", tokenizer="b", processes=0)


@pytest.mark.long
def test_novels_take_few_bytes_a_token(shared_data: Path, place: Path) -> None:
    import lzma

    from ordsmed.corpus.pipeline import Corpus

    with lzma.open(shared_data / "corpus/english-novels-100.txt.xz") as file:
        (place / "novels.txt").write_bytes(file.read(3_000_000).rpartition(b"\n")[0])
    (place / "text.toml").write_text('[source]\nkind = "text"\npath = "novels.txt"\n')
    run.obtain(Corpus, "text.toml")
    vocabulary = str(shared_data / "vocab/bert-base-uncased-vocab.txt")
    for sentences, limit in ((True, 2.8), (False, 2.2)):
        found = obtained(corpus="text.toml", tokenizer=vocabulary, sentences=sentences, out=f"store-{sentences}")
        assert found.facts["train"]["stored_a_token"] <= limit
        assert Tokenizer.load(vocabulary).fingerprint == found.facts["tokenizer"]


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
def test_an_encoding_that_is_killed_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    size = {"wordpiece": 90, "words": 12}[kind]
    (place / "some.toml").write_text(f'corpus = "novels"\n[tokenizer]\nkind = "{kind}"\nsize = {size}\n')
    monkeypatch.setattr(encode, "BLOCK", 700)
    words = ['corpus="novels"', "processes=1"]
    (place / "a.toml").write_text('corpus = "novels"\ntokenizer = "some"\n'.replace("some", "some.toml"))
    whole = run.obtain(Encoding, "a.toml", ["out=whole", *words])
    monkeypatch.setattr(encode, "EVERY", 0.0)
    inner, seen, left = encode._encode, list[tuple[str, int]](), 0

    def stopped(how: encode.How, block: encode.PartLines) -> encode.EncodedLines:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        seen.append((str(block.path), block.start))
        return inner(how, block)

    monkeypatch.setattr(encode, "_encode", stopped)
    lives = 0
    while True:
        left, lives = 2, lives + 1
        try:
            folder = run.obtain(Encoding, "a.toml", ["out=again", *words])
            break
        except KeyboardInterrupt:
            assert lives < 50
            assert not (place / "again" / "validation.idx").exists()
            stranger = place / "again" / "lexicon.kept"
            if stranger.exists():  # words of lines behind what was kept
                stranger.write_bytes(stranger.read_bytes() + b"behind\n")
    assert lives > 4
    assert len(seen) == len(set(seen))
    made = {path.name: path.read_bytes() for path in whole.iterdir() if path.suffix in (".bin", ".idx", ".npy")}
    assert {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".idx", ".npy")
    } == made
    assert ("lexicon.bin" in made) == (kind == "words")
    left_out = ("began", "seconds", "fingerprint", "folder")
    told = [{k: v for k, v in Run(f).status.items() if k not in left_out} for f in (whole, folder)]
    assert told[0] == told[1]
    assert not [*folder.glob("*.kept*"), *folder.glob("*.part")]


def test_what_was_kept_of_another_encoding_or_is_cut_off_is_not_gone_on_from(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "BLOCK", 2000)
    monkeypatch.setattr(encode, "EVERY", 0.0)
    inner, left = encode._encode, 3

    def stopped(how: encode.How, block: encode.PartLines) -> encode.EncodedLines:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return inner(how, block)

    (place / "a.toml").write_text('corpus = "novels"\ntokenizer = "pieces.toml"\nprocesses = 1\n')
    whole = run.obtain(Encoding, "a.toml", ["out=whole"])
    for change in ("sentences", "cut"):
        left = 3
        monkeypatch.setattr(encode, "_encode", stopped)
        other = ["sentences=false"] if change == "sentences" else []
        with pytest.raises(KeyboardInterrupt):
            run.obtain(Encoding, "a.toml", ["out=again", *other])
        monkeypatch.setattr(encode, "_encode", inner)
        assert (place / "again" / "train.kept").exists()
        if change == "cut":
            path = place / "again" / "train.bin.part"
            path.write_bytes(path.read_bytes()[:-2])
        folder = run.obtain(Encoding, "a.toml", ["out=again"])
        for name in ("train.bin", "train.idx", "validation.bin", "train.counts.npy"):
            assert (folder / name).read_bytes() == (whole / name).read_bytes()
        shutil.rmtree(folder)


def test_a_store_is_held_against_its_checksums(place: Path) -> None:
    (place / "a.toml").write_text('corpus = "novels"\ntokenizer = "pieces.toml"\nprocesses = 1\n')
    made = read_store("a.toml")
    assert sorted(made.facts["checksums"]) == ["train.bin", "train.idx", "validation.bin", "validation.idx"]
    made.check()
    for name in made.facts["checksums"]:
        data = bytearray((made.folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        kept = (made.folder / name).read_bytes()
        (made.folder / name).write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}: is damaged: checksum \w+; wanted \w+, the recorded one; copy"):
            made.check()
        (made.folder / name).write_bytes(kept)
    Run(made.folder).set(checksums=None)  # an older one
    encode.Encoded(made.folder).check()


def test_figures_and_what_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus(place / "few", {"train": [["Blåbær ran.", " the ☃."], ["newts ran"], ["the"]], "validation": [["☃"]]})
    found = obtained(corpus="few", tokenizer="pieces.toml", max_unknown=1)
    store = found.train
    unknown = sum(found.tokenizer.piece(n) == "[UNK]" for n in store.tokens.tolist())
    size = len("Blåbær ran. the ☃.newts ranthe".encode())
    stored = sum((found.folder / f"train.{end}").stat().st_size for end in ("bin", "idx"))
    assert unknown > 0
    assert all(n / store.token_count != round(n / store.token_count, 4) for n in (size, stored)), "digits are lost"
    assert found.facts["train"] == {
        "documents": 3,
        "sequences": 4,
        "tokens": len(store.tokens),
        "bytes_a_token": round(size / len(store.tokens), 4),
        "stored_a_token": round(stored / store.token_count, 4),
        "unknown": round(unknown / store.token_count, 6),
    }
    said = " ".join(capsys.readouterr().err.split())
    each = f"{size / store.token_count:.2f} bytes of text per token, {unknown / store.token_count:.3%} unknown"
    assert f"train: 3 documents, 4 sequences, {store.token_count} tokens, {each}" in said
    assert "validation: 1 document, 1 sequence, 1 token, 3.00 bytes of text per token, 100.000% unknown" in said


def test_what_is_shown_on_the_way(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[Any]] = []

    class Bar(encode.Progress):
        def __init__(self, name: str, total: float, unit: str, *, done: float = 0) -> None:
            shown.append([name, total, unit, done, 0])
            super().__init__(name, total, unit, done=done)

        def add(self, amount: float, *numbers: str, notes: Sequence[str] = ()) -> None:
            shown[-1][4] += amount
            assert (numbers, notes) == ((), ["(kept every 7 s)"])
            super().add(amount, notes=notes)

    monkeypatch.setattr(encode, "Progress", Bar)
    monkeypatch.setattr(encode, "EVERY", 7.0)
    monkeypatch.setattr(encode, "BLOCK", 900)
    obtained(corpus="novels", tokenizer="pieces.toml", processes=1)
    for split, (name, total, unit, done, added) in zip(("train", "validation"), shown, strict=True):
        size = sum(path.stat().st_size for path in (place / "novels" / split).iterdir()) / 1e6
        assert (name, total, unit, done) == (split, size, "MB", 0)
        assert added == pytest.approx(size)


def test_how_many_processes_a_corpus_is_worth(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = encode.worker_pool
    monkeypatch.setattr(encode, "worker_pool", lambda processes, engine: asked.append(processes) or real(1))
    monkeypatch.setattr(encode, "cores", lambda: 6)
    size = sum(path.stat().st_size for path in (place / "novels/train").iterdir())
    for number, share in enumerate((size + 1, size // 4, 100)):
        monkeypatch.setattr(encode, "SHARE", share)
        obtained(corpus="novels", tokenizer="pieces.toml", out=f"not-said-{number}")
        obtained(corpus="novels", tokenizer="pieces.toml", out=f"said-{number}", processes=9)
    assert asked[::2] == [1, 9, 4, 9, 6, 9]


def test_it_is_kept_every_few_seconds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    set_time(monkeypatch, encode, monotonic=lambda: now)
    monkeypatch.setattr(encode, "EVERY", 5.0)
    kept: list[float] = []

    class Store:
        def keep(self, **note: Any) -> None:
            assert note == {"at": {"file": "a", "byte": 7}, "text": 9, "words": 0}
            kept.append(now)

    one = encode.EncodingState(place, "key", None)
    for now in (101.0, 105.0, 105.5, 110.0, 110.5, 110.6, 120.0):  # noqa: B007
        one.save_periodically(Store(), encode.LinePosition("a", 7), 9)  # type: ignore[arg-type]
    assert kept == [105.5, 110.6, 120.0]


def test_other_processes_are_no_other_result_and_lost_words_are_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "some.toml").write_text('corpus = "novels"\n[tokenizer]\nkind = "words"\nsize = 12\n')
    monkeypatch.setattr(encode, "BLOCK", 700)
    monkeypatch.setattr(encode, "EVERY", 0.0)
    inner, left = encode._encode, 3

    def stopped(how: encode.How, block: encode.PartLines) -> encode.EncodedLines:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return inner(how, block)

    with monkeypatch.context() as patch:
        patch.setattr(encode, "_encode", stopped)
        with pytest.raises(KeyboardInterrupt):
            obtained(corpus="novels", tokenizer="some.toml", out="x", processes=1)
    strangers = place / "x/lexicon.kept"
    whole = strangers.read_bytes()
    strangers.write_bytes(whole[:-9])
    with pytest.raises(
        DataError, match=r"lexicon\.kept: words are missing; wanted those of the store; encode with --anew"
    ):
        obtained(corpus="novels", tokenizer="some.toml", out="x", processes=1)
    strangers.write_bytes(whole)
    made = obtained(corpus="novels", tokenizer="some.toml", out="x", processes=1)
    began = Run(made.folder).status["began"]
    assert Run(obtained(corpus="novels", tokenizer="some.toml", out="x", processes=2).folder).status["began"] == began


def test_a_recipe_of_anybodys_texts_learns_from_the_corpus_of_the_store(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus(place / "work/corpus/eng", {"train": made_up(9)})
    corpus(place / "work/corpus/rus", {"train": [["тритоны бежали вверх по холму."]] * 3})
    corpus(place / "elsewhere/rus", {"train": [["newts"]] * 3})
    for name in ("eng", "rus"):
        stored = obtained(corpus=f"work/corpus/{name}", tokenizer="folder-wordpiece", out=f"work/encode/{name}")
        made = Path(f"work/tokenizer/folder-wordpiece-{name}")
        assert f"pieces, trained on work/corpus/{name}" in " ".join(capsys.readouterr().err.split())
        assert stored.facts["train"]["unknown"] == 0
        assert stored.tokenizer.fingerprint == Tokenizer.load(made).fingerprint
    again = obtained(corpus=str(place / "work/corpus/rus"), tokenizer="folder-wordpiece", out="work/encode/rus-again")
    assert again.tokenizer.fingerprint == stored.tokenizer.fingerprint, "however its corpus is spelled"
    named = obtained(
        corpus="work/corpus/rus",
        tokenizer="work/tokenizer/folder-wordpiece-eng",
        out="work/encode/named",
        max_unknown=1,
    )
    assert named.tokenizer.fingerprint == Tokenizer.load(Path("work/tokenizer/folder-wordpiece-eng")).fingerprint
    with pytest.raises(OrdsmedError, match=r"folder-wordpiece-rus: was made from another recipe; .*make it again with"):
        obtained(corpus="elsewhere/rus", tokenizer="folder-wordpiece", out="work/encode/third")


def test_a_tokenizer_recipe_of_its_own_corpus_keeps_it(place: Path) -> None:
    corpus(place / "other", {"train": made_up(9, 3)})
    other = obtained(corpus="other", tokenizer="pieces.toml", out="work/encode/other")
    assert other.tokenizer.fingerprint == read_tokenizer("pieces.toml").fingerprint
    assert learned_from("folder-wordpiece", "folder") == []
    Path("my-texts.toml").write_text('source.kind = "stdlib"\n')
    said = ['corpus="my-texts.toml"', "out=work/tokenizer/folder-words-my-texts"]
    assert learned_from("folder-words", "my-texts.toml") == said
    assert learned_from(str(place / "other"), "other") == []


def test_a_corpus_that_the_tokenizer_does_not_know_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(place / "rus", {"train": [["the newts ran"], ["тритоны бежали"]]})
    strange = {"corpus": "rus", "tokenizer": "pieces.toml", "out": "store"}
    with pytest.raises(DataError, match=r"rus: train: 40\.0% .* \(тритоны, бежали\); .* `max_unknown=0\.4` allows it"):
        obtained(**strange)
    monkeypatch.setattr(encode, "EARLY", 0)
    with pytest.raises(DataError, match=r"rus: train: 40\.0%"):
        obtained(**strange | {"out": "other"})
    assert not Path("other/train.idx").exists(), "it is not encoded to the end"
    made = Path("store/train.idx").stat().st_mtime_ns
    store = obtained(**strange, max_unknown=0.4)
    assert Path("store/train.idx").stat().st_mtime_ns == made, "what stands is not encoded again"
    assert store.facts["train"]["unknown"] == 0.4
    said = " ".join(capsys.readouterr().err.split())
    assert "rus: train: 40.0% of its tokens are unknown to the tokenizer (тритоны, бежали); a tokenizer" in said
    store.check_unknown(0.1)  # it was let pass
    assert "store: 40.0% of its tokens are unknown" in " ".join(capsys.readouterr().err.split())
    recipe = (store.folder / "recipe.toml").read_text().replace("max_unknown = 0.4", "")
    (store.folder / "recipe.toml").write_text(recipe)
    with pytest.raises(DataError, match=r"store: 40\.0% .* `max_unknown=0\.4` allows it"):
        store.check_unknown(0.1)
    corpus(place / "held-out", {"train": made_up(30), "validation": [["тритоны бежали"]]})
    assert obtained(corpus="held-out", tokenizer="pieces.toml", out="third").facts["validation"]["unknown"] == 1


def test_whole_words_are_never_refused(place: Path) -> None:
    (place / "words.toml").write_text('corpus = "novels"\n[tokenizer]\nkind = "words"\n')
    corpus(place / "rus", {"train": [["тритоны бежали"]]})
    assert obtained(corpus="rus", tokenizer="words.toml").facts["train"]["unknown"] == 1
