"""Tags: each word is predicted once, at its first token; scores and output files."""

from __future__ import annotations

import dataclasses
import lzma
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.families import shaken
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.data.pieces import TextReader
from ordsmed.learn.inference import predict_all
from ordsmed.learn.objective import fresh
from ordsmed.learn.tagging.outputs import TagPredictions
from ordsmed.learn.task import packing, reader
from ordsmed.learn.tasks.tag import Tag
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.models import bert, elmo, gpt2, modern
from ordsmed.text.labelled import conll
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.tokenizers import bytebpe, words
from ordsmed.use.score import score

RANKS = Ranks(torch.device("cpu"))
SHAPE: dict[str, Any] = {
    "width": 32,
    "layers": 1,
    "heads": 2,
    "inner": 64,
    "positions": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "initializer_std": 0.2,
}
ELMO = elmo.Elmo(
    width=16,
    cells=16,
    layers=1,
    highways=1,
    filters=((1, 16),),
    longest_word=5,
    dropout=0.0,
    cell_clip=0.0,
    projection_clip=0.0,
    lstm="fast",
)
TOP = Top(recurrent=16, dropout=0.0)
LETTERS = [chr(n) for n in range(ord("a"), ord("z") + 1)]
NAMES = """# newdoc
1\tOslo\t_\tPROPN\t_\t_\t0\troot\t_\tname=B-LOC
2-3\tisn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tis\t_\tAUX\t_\t_\t1\tcop\t_\tSpaceAfter=No|name=O
3\tn't\t_\tPART\t_\t_\t1\tadv\t_\tname=O

1\tNew York\t_\tPROPN\t_\t_\t0\troot\t_\tname=B-LOC
2\tCity\t_\tPROPN\t_\t_\t1\tflat\t_\tname=I-LOC
"""


def tokenizer_of(kind: str) -> Tokenizer:
    """Tokenizers that write the letters a to z as pieces; of whole words they are words."""
    if kind == "bytes":
        return bytebpe.ByteBpe(size=260).train(["to be"] * 9)
    if kind == "words":
        return words.WordList(least=1, split="spaces").train([" ".join(LETTERS)])
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import models, normalizers, pre_tokenizers, processors

    signs = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    spelled = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    made = Pipeline(models.WordPiece(signs | {piece: n for n, piece in enumerate(spelled, 4)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(list(signs))
    return Tokenizer(made)


def sentences_of(words: list[list[str]]) -> conll.TaggedSentences:
    """All tagged alike."""
    return conll.TaggedSentences(words, [["A" for _ in one] for one in words], ["f:1"] * len(words))


def columns(path: Path, sentences: list[list[tuple[str, str]]]) -> str:
    """A file of two columns."""
    path.write_text("\n\n".join("\n".join(f"{w}\t{t}" for w, t in one) for one in sentences) + "\n", encoding="utf-8")
    return str(path)


def planted(path: Path, count: int = 400, seed: int = 0) -> str:
    chance, sentences = random.Random(seed), []
    for _ in range(count):
        drawn = chance.choices(LETTERS[:12], k=chance.randint(1, 12))
        titles = [word if word in "ab" else "" for word in drawn]
        inside = [
            f"I-{before}" if before and word < "h" else "O"
            for before, word in zip(["", *titles[:-1]], drawn, strict=True)
        ]
        sentences.append([(w, f"B-{t}" if t else i) for w, t, i in zip(drawn, titles, inside, strict=True)])
    return columns(path, sentences)


def read_of(settings: Tag, path: str, tokenizer: Tokenizer) -> tuple[Tag, conll.TaggedSentences, Features]:
    records = settings.records([path], learning=True)
    settings = settings.complete(records)
    return settings, records, settings.features(records, TextReader(tokenizer, types=True))


def right_answers(features: Features) -> dict[str, Any]:
    """Return the answers of a network that predicts every tag."""
    assert features.marks is not None
    found = np.zeros((len(features), int(features.sizes.max())), np.int32)
    for number, (begin, end) in enumerate(zip(features.starts, features.starts[1:], strict=False)):
        found[number, : end - begin] = features.marks[begin:end]
    return {"tag": found, "probability": np.full(found.shape, 0.5, np.float32)}


ODD = [["", "to", "ab c", "\u200b", "be"], ["be", " "], ["", "", ""], ["\ufeff\u00ad", "æ", "x" * 30, ""]]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("pieces", ["?", "t", "a", "?", "b", "b", "?", "?", "?", "?", "?", "?", "x", "?"]),
        ("bytes", ["?", "to", "a", "â", "Ġbe", "be", "Ġ", "?", "?", "?", "ï", "Ã", "x", "?"]),
        ("bytes, causal", ["?", "to", "c", "ĭ", "Ġbe", "be", "Ġ", "?", "?", "?", "Ń", "¦", "x", "?"]),
        ("words", ["", "to", "ab", "\u200b", "be", "be", " ", "", "", "", "\ufeff\u00ad", "æ", "x" * 30, ""]),
    ],
)
def test_every_word_is_asked_about_at_its_first_piece(kind: str, wanted: list[str]) -> None:
    kind, _, causal = kind.partition(", ")
    tokenizer = tokenizer_of(kind)
    own = TextReader(tokenizer, types=True, causal=bool(causal))
    features = Tag(column=2, labels=("A", "B")).features(sentences_of(ODD), own)
    listed = [b"<S>", b"</S>", *own.words]
    at = features.starts[features.more["example"]] + features.more["place"]
    named = [listed[n].decode() if kind == "words" else tokenizer.piece(n) for n in features.ids[at]]
    assert ["?" if name in ("[UNK]", "<|endoftext|>") else name for name in named] == wanted
    assert features.marks is not None
    assert np.flatnonzero(features.marks >= 0).tolist() == at.tolist(), "nothing else is asked, and no word twice"
    assert len(features.ids) == features.starts[-1]


def test_long_sentences_are_read_in_windows(tmp_path: Path) -> None:
    chance = random.Random(1)
    sentences = [chance.choices([*LETTERS, "abc", "to be"], k=k) for k in (400, 3, 1, 60, 8)]
    gold = [[word[0].upper() for word in one] for one in sentences]
    records = conll.TaggedSentences(sentences, [list(tags) for tags in gold], ["f:1"] * 5)
    settings = Tag(column=2, labels=tuple(map(str.upper, LETTERS)), length=14, stride=4)
    tokenizer = tokenizer_of("pieces")
    features = settings.features(records, TextReader(tokenizer, types=True))
    assert features.sizes.max() == 14
    assert len(features) > 400 / 4
    assert features.marks is not None
    assert (features.marks >= 0).sum() == 472
    place, size = features.more["place"], features.sizes[features.more["example"]]
    assert (np.minimum(place, size - 1 - place)[20:380] > 4).all(), "far from both ends of its window"
    usual = dataclasses.replace(settings, stride=None).features(records, TextReader(tokenizer, types=True))
    place_of, size_of = usual.more["place"], usual.sizes[usual.more["example"]]
    context = np.minimum(place_of, size_of - 1 - place_of)[20:380]
    assert (context.min(), context.max()) == (4, 6), "windows that begin half a window apart"
    features.save(tmp_path / "features")
    opened = Features.open(tmp_path / "features")
    assert settings.predictions(records, opened, right_answers(opened)).tags == gold
    begins = opened.ids[opened.starts[opened.more["example"]] + place]
    assert [tokenizer.piece(n).upper() for n in begins] == [tag for tags in gold for tag in tags]
    with pytest.raises(RecipeError, match=r"length: 2, of which 2 are special tokens; wanted 3 or more"):
        dataclasses.replace(settings, length=2).features(records, TextReader(tokenizer, types=True))


@pytest.mark.parametrize(
    ("model", "kind", "how", "rate", "steps"),
    [
        (bert.Bert(**SHAPE), "pieces", {}, 1e-2, 150),
        pytest.param(
            bert.Bert(**SHAPE),
            "bytes",
            {"scheme": "IOBES", "class_weights": "balanced", "top": TOP},
            1e-2,
            150,
            marks=pytest.mark.long,
        ),
        pytest.param(gpt2.Gpt2(**SHAPE), "bytes", {"repair_tags": False}, 1e-2, 300, marks=pytest.mark.long),
        pytest.param(modern.ModernBert(**SHAPE, window=4), "pieces", {"length": 12}, 1e-2, 150, marks=pytest.mark.long),
        pytest.param(ELMO, "words", {"top": TOP}, 3e-2, 400, marks=pytest.mark.long),
    ],
    ids=["bert", "bert-iobes-balanced", "gpt2", "modern-windows", "elmo"],
)
def test_a_planted_rule_is_learned(
    tmp_path: Path, model: Any, kind: str, how: dict[str, Any], rate: float, steps: int
) -> None:
    torch.set_num_threads(1)
    tokenizer = tokenizer_of(kind)
    settings = Tag(column=2, train=planted(tmp_path / "train"), dev=planted(tmp_path / "dev", 60, 1), **how)
    train = settings.records(settings.paths("train"), learning=True)
    settings = settings.complete(train)
    assert settings.complete(train) == settings
    own, packed = reader(tokenizer, model), packing(tokenizer, model)
    task: Any = fresh(settings, model, tokenizer, 3)  # type: ignore[arg-type]
    rows = ExampleRows(settings.features(train, own), packed, "train")
    optimizer = torch.optim.AdamW(task.parameters(), rate)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for step in range(steps):
        batch = rows.batch(np.arange(32 * step, 32 * step + 32))
        [lost], [count] = task(batch).values(), task.count(batch).values()
        (lost / count).backward()
        optimizer.step()
        optimizer.zero_grad()
        slower.step()
    dev = settings.records(settings.paths("dev"))
    features = settings.features(dev, own)
    answers, means = predict_all(task, features, packed, RANKS)
    predictions = settings.predictions(dev, features, answers)
    scores, guessed = settings.score(dev, predictions), settings.score(dev, settings.guesses(train, dev))
    assert scores["f1"] > 95 > guessed["f1"] + 10
    assert scores["accuracy"] > 95
    assert means["tag"] < 0.3
    assert predictions.probability is not None
    assert 0.8 < predictions.probability.mean() <= 1
    assert task.networks()[""].labels == settings.labels
    assert settings.fitted(dev, features, answers) == settings


def test_losses_and_answers_are_those_of_each_example_alone(tmp_path: Path) -> None:
    settings, records, features = read_of(
        Tag(column=2, class_weights={"O": 0.25}, length=12), planted(tmp_path / "a", 40), tokenizer_of("pieces")
    )
    torch.manual_seed(2)
    task = shaken(settings.build(bert.Bert(**SHAPE), tokenizer_of("pieces")))
    everything = np.arange(len(features))
    batches = [Packing(0, alone=alone).batch(features, everything, everything) for alone in (False, True)]
    assert len(batches[0].tokens) < len(batches[1].tokens) == len(features)
    found = [(task.scores(batch), batch) for batch in batches]
    losses = [task.losses(*one)["tag"] for one in found]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
    one, other = (task.answers(*each) for each in found)
    assert set(one) == set(other) == set(task.by_token)
    assert torch.equal(one["tag"], other["tag"])
    torch.testing.assert_close(one["probability"], other["probability"], rtol=1e-5, atol=1e-6)

    scores, batch = found[1]
    assert features.marks is not None
    gold = features.marks[features.marks >= 0]
    logs = scores["tag"].log_softmax(-1)[batch.weights > 0].detach().numpy()
    weight = np.where(np.array(settings.labels)[gold] == "O", 0.25, 1.0)
    assert losses[0].item() == pytest.approx((-logs[np.arange(len(gold)), gold] * weight).sum(), rel=1e-5)
    assert task.count(batch)["tag"].item() == pytest.approx(weight.sum())
    assert len(gold) == sum(map(len, records.words))


def test_words_without_a_tag_are_neither_learned_nor_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = [[("a", "X"), ("b", "_"), ("c", "Y")], [("d", "_")], [("e", "Z")]]
    settings = Tag(column=2, labels=("X", "Y", "W"))
    path = columns(tmp_path / "a", text)
    learned = settings.records([path], learning=True)
    assert learned.words == [["a", "b", "c"], ["e"]]
    assert "1 of 3 sentences have no tag: left out" in capsys.readouterr().err
    records = settings.records([path])
    assert len(records) == 3
    features = settings.features(records, TextReader(tokenizer_of("pieces"), types=True))
    assert f"{path}:1: 1 word has tags that are not learned: Z (1)" in capsys.readouterr().err
    many = columns(tmp_path / "many", [[(f"w{n}", tag) for n, tag in enumerate(["X", *"ABCDEFG", "G"])]])
    settings.features(settings.records([many]), TextReader(tokenizer_of("pieces"), types=True))
    said = "8 words have tags that are not learned: G (2), A (1), B (1), C (1), D (1) and 2 others"
    assert f"{many}:1: {said}" in capsys.readouterr().err
    assert features.marks is not None
    assert features.marks[features.marks >= 0].tolist() == [0, 1]
    scores = settings.score(records, TagPredictions([["X", "W", "X"], ["W"], ["X"]]))
    assert scores == {"accuracy": pytest.approx(100 / 3), "macro_f1": pytest.approx(100 * (1 / 2) / 3)}
    bare = settings.records([columns(tmp_path / "b", [[("a", "_")]])])
    assert settings.score(bare, TagPredictions([["X"]])) == {}
    assert settings.features(bare, TextReader(tokenizer_of("pieces"), types=True)).marks is None
    assert [path.name for path in settings.write(tmp_path, bare, TagPredictions([["X"]]))] == ["b"]
    assert (tmp_path / "b").read_text() == "a\tX\n"


def test_spans_are_learned_in_a_scheme_and_told_as_the_files_write_them(tmp_path: Path) -> None:
    tags = [["I-A", "I-A", "B-A", "O", "I-B"], ["O"]]
    path = columns(tmp_path / "a", [[("w", tag) for tag in one] for one in tags])
    settings, records, features = read_of(Tag(column=-1, scheme="IOBES"), path, tokenizer_of("pieces"))
    assert settings.labels == ("B-A", "E-A", "O", "S-A", "S-B")
    assert (settings.file_scheme, settings.record) == ("IOB1", "f1")
    assert features.marks is not None
    assert [settings.labels[n] for n in features.marks if n >= 0] == ["B-A", "E-A", "S-A", "O", "S-B", "O"]
    told = settings.predictions(records, features, right_answers(features))
    assert told.tags == tags
    assert settings.score(records, told)["f1"] == 100

    malformed = right_answers(features)
    malformed["tag"][0, 1:6] = [settings.labels.index(label) for label in ("E-A", "E-A", "O", "B-A", "S-B")]
    assert settings.predictions(records, features, malformed).tags[0] == ["I-A", "B-A", "O", "I-A", "I-B"]
    plain, _, features = read_of(Tag(column=-1, repair_tags=False), path, tokenizer_of("pieces"))
    lone = right_answers(features)
    lone["tag"][0, 1:6] = [plain.labels.index(label) for label in ("B-A", "O", "O", "B-A", "O")]
    raw = plain.predictions(records, features, lone)
    mended = dataclasses.replace(plain, repair_tags=True).predictions(records, features, lone)
    assert (raw.tags[0], mended.tags[0]) == (["B-A", "O", "O", "B-A", "O"], ["I-A", "O", "O", "I-A", "O"])
    one, other = plain.score(records, raw), plain.score(records, mended)
    assert one["f1"] == other["f1"] == 0
    assert (one["accuracy"], other["accuracy"]) == (pytest.approx(100 / 6), pytest.approx(100 / 3))


def test_scores_guesses_and_tables(tmp_path: Path) -> None:
    train = [[("the", "D"), ("run", "N"), ("run", "V")], [("run", "V"), ("home", "N"), ("it", "N")]]
    settings = Tag(column=2)
    learned = settings.records([columns(tmp_path / "a", train)], learning=True)
    settings = settings.complete(learned)
    assert (settings.labels, settings.record, settings.file_scheme) == (("D", "N", "V"), "accuracy", None)
    dev = settings.records([columns(tmp_path / "b", [[("the", "D"), ("run", "N"), ("newts", "N"), ("the", "X")]])])
    guesses = settings.guesses(learned, dev)
    assert guesses == TagPredictions([["D", "V", "N", "D"]])
    assert settings.score(dev, guesses) == {"accuracy": 50.0, "macro_f1": pytest.approx(100 * (2 / 3 + 2 / 3) / 4)}
    [(title, head, rows)] = settings.details(dev, guesses)
    assert title == "scores by tag"
    assert head == ["tag", "gold", "predicted", "right", "precision", "recall", "f1"]
    assert rows[:2] == [["N", 2, 1, 1, 100.0, 50.0, 66.67], ["D", 1, 2, 1, 50.0, 100.0, 66.67]]
    settings = Tag(column=2, labels=("B-A", "I-A", "O"))
    dev = settings.records([columns(tmp_path / "c", [[("x", "B-A"), ("y", "I-A"), ("z", "B-B"), ("z", "O")]])])
    said = TagPredictions([["B-A", "I-A", "B-A", "O"]])
    rates = {"f1": 50.0, "precision": 50.0, "recall": 50.0}
    strict = {f"strict_{name}": value for name, value in rates.items()}
    assert settings.score(dev, said) == {**rates, "accuracy": 75.0, **strict}
    assert list(settings.score(dev, said))[:4] == [*rates, "accuracy"], "what a check tells in a line"
    assert settings.details(dev, said)[0][2] == [["A", 1, 2, 1, 50.0, 100.0, 66.67], ["B", 1, 0, 0, 0.0, 0.0, 0.0]]


def test_files_come_back_with_what_is_said_in_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.conllu", tmp_path / "b" / "a.conllu.xz"]
    paths[1].parent.mkdir()
    paths[0].write_bytes(NAMES.encode())
    paths[1].write_bytes(lzma.compress(NAMES.replace("\n", "\r\n").encode()))
    settings = Tag(column="misc:name", labels=("B-LOC", "I-LOC", "O"))
    records = settings.records(list(map(str, paths)))
    out = tmp_path / "out"
    out.mkdir()
    gold = TagPredictions([[tag or "O" for tag in tags] for tags in records.tags], np.full(10, 0.5, np.float32))
    written = settings.write(out, records, gold)
    assert [path.name for path in written] == ["a.conllu", "2-a.conllu", "conlleval.txt"]
    assert [path.read_bytes() for path in written[:2]] == [NAMES.encode(), NAMES.replace("\n", "\r\n").encode()]
    table = written[2].read_text().split("\n\n")
    assert table[1] == "New_York 0.5000 B-LOC B-LOC\nCity 0.5000 I-LOC I-LOC"

    first = settings.records([str(paths[0])])
    said = TagPredictions([["O", "B-LOC", "O"], ["B-LOC", "O"]])
    for path in settings.write(out, first, said):
        assert settings.read(path, first) == said
    said_so = capsys.readouterr().err
    assert "a.conllu: reading tags from column misc:name" in said_so
    assert "conlleval.txt: reading tags from column -1" in said_so
    assert (out / "conlleval.txt").read_text().startswith("Oslo B-LOC O\nis O B-LOC\n")
    for old, new, complaint in (
        ("\tCity", "\tTown", "out/a.conllu:8: the word Town; wanted City as in .*a.conllu:8; predict"),
        ("name=B-LOC\n2\tCity", "name=LOC\n2\tCity", "out/a.conllu:7: the tag LOC; wanted O, or a tag such as B-PER"),
        ("\tname=B-LOC\n2\tCity", "\t_\n2\tCity", "out/a.conllu:7: no tag; wanted one for each word"),
        ("1\tNew York", "\n1\tNew York", ""),
        ("\n\n1\tNew York", "\n3\tNew York", "a.conllu:2: a sentence of 5 words; wanted 3 words as in .*a.conllu:2"),
        (NAMES[NAMES.index("\n1\tNew") :], "", "a.conllu: 1 sentence; wanted 2 as in"),
        (NAMES[NAMES.index("\n1\tNew") :], 2 * NAMES[NAMES.index("\n1\tNew") :], "3 sentences; wanted 2 as in"),
    ):
        assert old in NAMES
        (out / "a.conllu").write_text(NAMES.replace(old, new))
        if complaint:
            with pytest.raises(DataError, match=complaint):
                settings.read(out / "a.conllu", first)
        else:
            settings.read(out / "a.conllu", first)


def test_what_cannot_be_learned_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def settled(tags: str, **how: Any) -> Tag:
        path = columns(tmp_path / "a", [[("w", tag) for tag in tags.split()]])
        settings = Tag(column=2, **how)
        return settings.complete(settings.records([path], learning=True))

    for tags, how, complaint in (
        ("X X", {}, "a:1: the words have the only tag X; wanted at least two different tags"),
        ("X Y", {"labels": ("A", "B")}, "a:1: the words have none of the labels"),
        ("B-X O X", {"labels": ("B-X", "O")}, "a:1: the tag X; wanted O, or a tag such as B-PER"),
        (
            "B-X O X",
            {"scheme": "IOB2"},
            "task.scheme: IOB2, but .*a:1 has the tag X next to B-X; wanted O and tags such as B-PER",
        ),
        (
            "O B I-X",
            {"scheme": "IOB2"},
            "task.scheme: IOB2, but .*a:1 has the tag B next to I-X; wanted O and tags such as B-PER",
        ),
        ("O O", {"scheme": "IOB2"}, r"a:1: the only tag O; wanted spans .* such as B-PER; name the column of the"),
        ("X Y", {"class_weights": {"XX": 2.0}}, "task.class_weights: found `XX`; wanted labels; there are: X, Y"),
    ):
        with pytest.raises((DataError, RecipeError), match=complaint.replace("?", r"\?")):
            settled(tags, **how)
    assert settled("B-X O X").record == "accuracy"
    assert "a:1: tags such as X are not spans, so the tags of words are scored" in capsys.readouterr().err
    assert settled("X X X Y", class_weights="balanced").class_weights == {"X": pytest.approx(2 / 3), "Y": 2.0}
    for how, complaint in (
        ({"column": "ner"}, "column: found 'ner'"),
        ({"column": 1, "word": 0}, "word: found 0"),
        ({"column": 1, "labels": ("X", "X")}, "labels: found"),
        ({"column": 1, "labels": ("X", "Y"), "scheme": "IOB2"}, "scheme: found IOB2 with labels"),
        ({"column": 1, "length": 0}, "length: found 0"),
        ({"column": 1, "class_weights": {"X": 0.0}}, "class_weights: found"),
    ):
        with pytest.raises(ValueError, match=complaint):
            Tag(**how)


@pytest.mark.long
@pytest.mark.parametrize(
    ("train", "dev", "column", "labels", "record", "guessed"),
    [
        ("ner/norne/nob-train-ndt.conll.xz", "ner/norne/no_bokmaal-ud-dev.conllu", "misc:name", 19, "f1", 58.16),
        ("ner/wnut17/wnut17train.conll", "ner/wnut17/emerging.dev.conll", -1, 13, "f1", 9.64),
        (
            "ud/English-EWT/en_ewt-ud-train.conllu.xz",
            "ud/English-EWT/en_ewt-ud-dev.conllu",
            "upos",
            17,
            "accuracy",
            86.13,
        ),
    ],
)
def test_real_files(
    shared_data: Path, tmp_path: Path, train: str, dev: str, column: str | int, labels: int, record: str, guessed: float
) -> None:
    settings = Tag(column=column, train=str(shared_data / train), dev=str(shared_data / dev))
    learned = settings.records(settings.paths("train"), learning=True)
    settings = settings.complete(learned)
    assert (len(settings.labels), settings.record) == (labels, record)
    records = settings.records(settings.paths("dev"))
    assert settings.score(records, settings.guesses(learned, records))[record] == pytest.approx(guessed, abs=0.005)
    gold = TagPredictions([[str(tag) for tag in tags] for tags in records.tags])
    written = settings.write(tmp_path, records, gold)
    assert written[0].read_bytes() == (shared_data / dev).read_bytes()
    assert [settings.read(path, records) for path in written] == [gold, gold]
    assert settings.score(records, gold)[record] == 100


def test_pairs_of_conllu_are_no_tags(tmp_path: Path) -> None:
    """Where no column is named; as the tenth they are taken, and what has no pairs may be meant."""
    path = tmp_path / "a.conllu"
    path.write_text(NAMES)
    kept = "upos, deprel, misc:name, misc:SpaceAfter"
    wanted = f"whose last column is MISC: pairs, not tags; wanted one of {kept}; name it, as in `task.column=upos`"
    for start in (lambda: Tag().records([str(path)]), lambda: score("tag", [str(path)], path)):
        with pytest.raises(DataError, match=re.escape(wanted)):
            start()
    assert score("tag", [str(path)], path, ["task.column=misc:name"])["f1"] == 100
    assert any("|" in str(tag) or "=" in str(tag) for tag in Tag(column=10).records([str(path)]).tags[0])
    path.write_text("1\tOslo" + "\t_" * 7 + "\tB-GPE\n")
    assert Tag().records([str(path)]).tags == [["B-GPE"]]
