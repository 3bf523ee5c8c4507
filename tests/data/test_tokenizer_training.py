"""The deed that learns a tokenizer: what it learns from and measures, what makes it another, where it is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import run
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.base.run import Run
from ordsmed.data import tokenizer_training as module
from ordsmed.data.mix import Mix
from ordsmed.data.tokenizer_training import TokenizerTraining, TrainingTexts, is_tokenizer, measure, read_tokenizer
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, words

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "newt", "##s", "å"]


def corpus(folder: Path, **splits: list[str]) -> Path:
    for split, texts in splits.items():
        (folder / split).mkdir(parents=True)
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        (folder / split / "00000.jsonl").write_text("".join(lines), encoding="utf-8")
    Run(folder).set(verb="corpus", state="done", fingerprint="c0")
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCABULARY), encoding="utf-8")
    return Tokenizer.load(tmp_path / "vocab.txt", strip_accents=False)


def test_what_is_measured(tmp_path: Path, own: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    place = corpus(tmp_path / "c", train=["the x"], validation=["the newts", "å x the\nnewt"])
    assert measure(own, place) == {"fertility": round(7 / 6, 4), "bytes_a_piece": 3.1429, "unknown": round(1 / 7, 6)}
    said = " ".join(capsys.readouterr().err.split())
    assert said == "1.17 tokens per word, 3.14 bytes per token, 14.286% unknown (on the corpus's validation documents)"
    assert measure(own, corpus(tmp_path / "d", train=["the x"])) == {
        "fertility": 1.0,
        "bytes_a_piece": 2.5,
        "unknown": 0.5,
    }
    assert "(on the corpus's train documents)" in capsys.readouterr().err
    gpt2 = bytebpe.ByteBpe(size=257).train(["a"])
    assert measure(gpt2, place)["unknown"] == 0.0
    assert measure(own, corpus(tmp_path / "e", train=[" "])) == {"fertility": 0.0, "bytes_a_piece": 1.0, "unknown": 0.0}


def test_only_so_much_is_measured(tmp_path: Path, own: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    place = corpus(tmp_path / "c", train=["the the", "the x x x", "x x"])
    for letters, unknown in ((7, 0.0), (11, 0.0), (13, 0.25), (100, 0.625)):
        monkeypatch.setattr(module, "MEASURED", letters)
        assert measure(own, place)["unknown"] == unknown


def test_what_is_learned_from(tmp_path: Path) -> None:
    texts = [f"{n:02d}" + "x" * 88 for n in range(40)]  # 103 bytes a line of JSON
    place = corpus(tmp_path / "c", train=texts)
    every = TrainingTexts(place, None)
    assert (list(every), every.step, every.bytes) == (texts, 1, sum(p.stat().st_size for p in every.files))
    some = TrainingTexts(place, every.bytes // 4)
    assert some.step == 4
    assert list(some) == list(some) == texts[::4]
    assert list(TrainingTexts(place, 100)) == [texts[0]]
    cut = TrainingTexts(place, 95)
    assert [len(text) for text in cut] == [90]
    assert [len(text) for text in TrainingTexts(place, 45)] == [45], "the last is cut"
    with pytest.raises(DataError, match=r"has no training documents; wanted train/00000\.jsonl"):
        TrainingTexts(corpus(tmp_path / "d", train=[]), None)


def test_a_large_corpus_is_learned_from_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = corpus(tmp_path / "c", train=[f"{word} " * 20 for word in ("ab", "cd", "ef", "gh")])
    monkeypatch.setattr(module, "_corpus", lambda _: place)
    learning = TokenizerTraining(words.WordList(least=1), corpus=str(place))
    assert learning._train({"c": place}).vocabulary == 7
    assert "training on" not in capsys.readouterr().err
    monkeypatch.setattr(module, "MOST", 120)
    assert sorted(learning._train({"c": place}).model["vocab"])[3:] == ["ab", "ef"]
    assert "training on 120 characters of" in " ".join(capsys.readouterr().err.split())


def recipe(folder: Path, name: str, **settings: Any) -> str:
    path = folder / f"{name}.toml"
    kind = settings.pop("tokenizer")
    top = {"out": str(folder / name), **settings}
    lines = [f"{key} = {json.dumps(value)}" for key, value in top.items()]
    path.write_text("\n".join([*lines, "[tokenizer]", *(f"{k} = {json.dumps(v)}" for k, v in kind.items())]))
    return str(path)


def test_what_is_told_and_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = corpus(tmp_path / "c", train=["the newts ran up", "a hill"] * 3)
    name = recipe(tmp_path, "t", corpus=str(place), tokenizer={"kind": "wordpiece", "size": 900})
    folder = run.obtain(TokenizerTraining, name)
    found, said = Run(folder).status, " ".join(capsys.readouterr().err.split())
    made = Tokenizer.load(folder)
    assert (found["kind"], found["vocabulary"], found["tokenizer"]) == ("wordpiece", made.vocabulary, made.fingerprint)
    assert f"tokenizer: wordpiece, {made.vocabulary} pieces" in said
    assert "the corpus has no more; 900 were requested" in said
    full = recipe(tmp_path, "u", corpus=str(place), tokenizer={"kind": "wordpiece", "size": 30})
    run.obtain(TokenizerTraining, full)
    assert "gives no more" not in capsys.readouterr().err
    for known in (name, str(folder), str(folder / "vocab.txt"), str(folder / "tokenizer.json")):
        assert read_tokenizer(known).fingerprint == made.fingerprint


def test_a_file_is_taken_as_it_is(tmp_path: Path, own: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    place = corpus(tmp_path / "c", train=["the newts"])
    theirs = {"kind": "wordpiece", "file": str(tmp_path / "vocab.txt"), "strip_accents": False}
    with_corpus = run.obtain(TokenizerTraining, recipe(tmp_path, "t", corpus=str(place), tokenizer=theirs))
    assert Run(with_corpus).status["fertility"] == 1.5, "it is measured where there is a corpus"
    bare = run.obtain(TokenizerTraining, recipe(tmp_path, "u", tokenizer=theirs))
    assert "fertility" not in Run(bare).status
    assert Tokenizer.load(bare).fingerprint == own.fingerprint
    assert "gives no more" not in capsys.readouterr().err
    (tmp_path / "plain").mkdir()
    own.save(tmp_path / "plain")
    assert read_tokenizer(str(tmp_path / "plain")).fingerprint == own.fingerprint, "a folder of anybody's"
    (tmp_path / "store/tokenizer").mkdir(parents=True)
    own.save(tmp_path / "store/tokenizer")
    Run(tmp_path / "store").set(verb="encode", state="done")
    assert read_tokenizer(str(tmp_path / "store")).fingerprint == own.fingerprint, "that of a store"


def test_what_makes_another_of_it(tmp_path: Path, own: Tokenizer) -> None:
    def stamp(file: Any, **more: Any) -> Any:
        return TokenizerTraining(tokenizer=bytebpe.ByteBpe(file=file), **more).stamp()

    path = tmp_path / "vocab.txt"
    before = stamp(str(path))
    assert before[0] is None
    assert [len(digest) for digest in before[1]] == [16]
    assert stamp([str(path), str(path)])[1] == before[1] * 2
    (tmp_path / "notes.md").write_text("no vocabulary")
    assert stamp(str(tmp_path))[1] == before[1], "of a folder its vocabularies"
    for name in ("a.json", "b.bpe", "c.tsv", "d.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert len(stamp(str(tmp_path))[1]) == 5
    path.write_text(path.read_text() + "more\n")
    assert stamp(str(path))[1] != before[1]
    place = corpus(tmp_path / "c", train=["a"])
    assert TokenizerTraining(tokenizer=words.WordList(), corpus=str(place)).stamp() == ["c0", []]


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, said in (({"sample": 0}, "sample: found 0; wanted at least 1"), ({"corpus": None}, "corpus: missing")):
        with pytest.raises(ValueError, match=said):
            TokenizerTraining(**{"tokenizer": words.WordList(), "corpus": "c", **wrong})
    assert TokenizerTraining(tokenizer=words.WordList(), corpus="c", sample=1).sample == 1
    monkeypatch.chdir(tmp_path)
    for name in ("no/vocab.txt", "no/x.json", "no/x.bpe", "no/x.gz"):
        with pytest.raises(RecipeError, match="no such file; wanted a tokenizer's folder, file or recipe"):
            read_tokenizer(name)
    with pytest.raises(OrdsmedError, match="no-recipe"):
        read_tokenizer("no-recipe")
    asked: list[Any] = []
    monkeypatch.setattr(module, "check_fits_memory", lambda *found: asked.append(found))
    place = corpus(tmp_path / "c", train=["a b"])
    run.obtain(TokenizerTraining, recipe(tmp_path, "t", corpus=str(place), tokenizer={"kind": "words", "least": 1}))
    assert asked == [("tokenizer.size", 793_471, 256)], "before memory is taken for it"


def test_what_counts_as_a_tokenizer_that_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there", "half", "done"):
        Path(name).mkdir()
    Run(Path("half")).set(state="running")
    Run(Path("done")).set(state="done")
    for name in ("vocab.txt", "wordpiece.toml"):
        Path(name).write_text("")
    names = ("there", "half", "done", "vocab.txt", "wordpiece.toml", "nowhere")
    assert [is_tokenizer(name) for name in names] == [True, False, True, True, False, False]


def test_published_vocabularies_lead_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs-vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    (tmp_path / "models.toml").write_text('[names]\n"bert-large-uncased" = "theirs-vocab.txt"\n')
    monkeypatch.chdir(tmp_path)
    for name in ("bert-large-uncased", "google-bert/bert-large-uncased"):
        assert is_tokenizer(name)
        assert read_tokenizer(name).vocabulary == 6
    assert not is_tokenizer("bert-large-cased")


def test_a_vocabulary_is_extended_for_a_corpus(
    tmp_path: Path, own: Tokenizer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own.save(tmp_path / "theirs" / "tokenizer")
    place = corpus(tmp_path / "c", train=["thenewts thenewts å"] * 3)
    words = [f'corpus="{place}"', f'tokenizer.base="{tmp_path}/theirs"', "tokenizer.least=6"]
    monkeypatch.chdir(tmp_path)
    asked, _ = run.load(TokenizerTraining, "extend", words)
    assert (asked.tokenizer.size, asked.tokenizer.pieces) == (len(VOCABULARY) + 2000, 2000)
    folder = run.obtain(
        TokenizerTraining,
        recipe(
            tmp_path,
            "t",
            corpus=str(place),
            tokenizer={"kind": "extended", "base": str(tmp_path / "theirs"), "pieces": 7, "least": 6},
        ),
    )
    larger = read_tokenizer(str(folder))
    assert larger.listed().split() == [*VOCABULARY, "##e", "##n", "##t", "##w", "thenewts"]
    told = capsys.readouterr().err
    assert "5 pieces added, 4 of them letters" in told
    assert "the corpus has no more; 16 were requested" in told
    assert asked.stamp() == ["c0", [], own.fingerprint]
    with pytest.raises(RecipeError, match=r"tokenizer\.pieces: found 0; wanted at least 1"):
        run.load(TokenizerTraining, "extend", ["tokenizer.pieces=0"])
    gone, _ = run.load(TokenizerTraining, "extend", ['tokenizer.base="nowhere/at-all"'])
    with pytest.raises(OrdsmedError, match=r"nowhere/at-all"):
        gone.tokenizer.old()


def test_a_mixture_is_learned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = corpus(tmp_path / "long", train=[f"{n:02d}" + "x" * 88 for n in range(80)])
    short = corpus(tmp_path / "short", train=[f"{n:02d}" + "y" * 88 for n in range(5)])
    texts: list[str] = []

    class Learner(bytebpe.ByteBpe):
        def train(self, all_texts: Any) -> Tokenizer:
            texts[:] = all_texts
            return super().train(all_texts)

    def learned(**how: Any) -> list[int]:
        recipe = TokenizerTraining(tokenizer=Learner(size=270), corpus=(str(long), str(short)), **how)
        facts = recipe.perform(Run(tmp_path / "t"))
        assert facts["by_corpus"].keys() == {str(long), str(short)}
        return [sum(sign in text for text in texts) for sign in "xy"]

    (tmp_path / "t").mkdir()
    x, y = learned(mix=Mix(temperature=0.5))
    assert y / (x + y) == pytest.approx(1 / (1 + 4), abs=0.03), "four to one, as the roots of sixteen to one"
    assert y > 5, "its texts come again"
    assert f"{short}: 0.2 of the training text, 3.4 times its text" in capsys.readouterr().err
    weighted = TokenizerTraining(tokenizer=Learner(size=270), corpus={str(long): 1.0, str(short): 1.0}, sample=1_000)
    weighted.perform(Run(tmp_path / "t"))
    assert 0.7 < sum("x" in text for text in texts) / sum("y" in text for text in texts) < 1.4
    with pytest.raises(ValueError, match="mix: found with a single corpus; wanted a list of corpora"):
        TokenizerTraining(tokenizer=Learner(), corpus="a", mix=Mix(unimax=2))
    with pytest.raises(ValueError, match="mix: found together with weights of data"):
        TokenizerTraining(tokenizer=Learner(), corpus={"a": 1.0, "b": 2.0}, mix=Mix(unimax=2))
