"""WikiText, LAMBADA, bits and perplexity: as plain loops of transformers say on the same weights, and by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit import megatron
from kit.language_models import SENTENCES, elmo_made, made, opened
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import choice
from ordsmed.learn.score.paired_tests import clustered
from ordsmed.measure.likelihood import documents, sampled_windows, ways, windows
from ordsmed.measure.likelihood.detokenizers import BY_SET
from ordsmed.measure.likelihood.items import Item, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, read_records
from ordsmed.measure.likelihood.running import TextWindow
from ordsmed.measure.likelihood.transformers import Causal
from ordsmed.measure.likelihood.windows import Cutting
from ordsmed.measure.probes import (
    babylm,
    bits,
    cloze,
    minimal_pairs,
    perplexity,
    perplexity_bound,
    positions,
    pseudo_perplexity,
    wikitext,
)
from ordsmed.text import read
from ordsmed.weights.trained_model import open_model

TEXT = " \n = The newts = \n \n the old newt , a red @-@ old cat ( it sat ) and ' the dog ' ran : \" on it \" . \n " * 9


def asked(trained: Any, probe: Any) -> tuple[list[Any], Finding]:
    scorer = ways.scorer(trained, probe.way, probe.prefers)
    probe.fits(scorer, "model")
    examples = list(probe.examples(scorer))
    scores = iter(scorer.scores([item for one in examples for item in one.items], best=probe.best))
    records = [probe.record(one, [next(scores) for _ in one.items]) for one in examples]
    return records, probe.finding(records)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return opened("gpt2", tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def theirs(gpt2: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(gpt2.folder).eval(), AutoTokenizer.from_pretrained(gpt2.folder)


@pytest.mark.long
@pytest.mark.parametrize(("overlap", "batch", "cached"), [(0, 1, False), (0, 16, True), (5, 1, True), (5, 16, False)])
def test_wikitext_is_megatrons(overlap: int, batch: int, cached: bool, gpt2: Any, theirs: Any, tmp_path: Path) -> None:
    """Whatever the batch, with keys and values kept or not."""
    path = tmp_path / "wiki.test.tokens"
    path.write_text(TEXT, encoding="utf-8")
    wanted = megatron.perplexity(*theirs, TEXT, 32, overlap, batch, cached)
    _, finding = asked(gpt2, wikitext.Wikitext(files=(str(path),), overlap=overlap))
    facts = finding.facts
    for key in ("perplexity", "adjusted_perplexity"):
        assert facts[key] == pytest.approx(wanted[key], rel=1e-5)
    assert [facts[key] for key in ("tokens", "original_tokens")] == [wanted["tokens"], wanted["original_tokens"]]
    assert facts["scored"] == wanted["scored"] == wanted["tokens"] - 1


@pytest.mark.long
def test_lambada_decides_as_theirs(gpt2: Any, theirs: Any, tmp_path: Path) -> None:
    """On passages of which some are guessed: the model's own likeliest words are put behind them."""
    texts = [f"{text} {word}" for text in SENTENCES for word in ("newts", "cat", "xyz", "the")]
    model, cutter = theirs
    import torch

    for text in SENTENCES:
        ids = torch.tensor([cutter(text, add_special_tokens=False)["input_ids"]])
        texts.append(f"{text} {cutter.decode(model(input_ids=ids).logits[0, -1].argmax())}".replace(" ##", ""))
    texts = [text for text in texts if text.split()[-1][0] != "["]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    records, finding = asked(gpt2, cloze.Cloze(files=(str(path),)))
    wanted = [megatron.lambada(model, cutter, text) for text in texts]
    assert [(row.last_token, row.word) for row in records] == wanted
    assert 0 < sum(last for last, _ in wanted) < len(wanted)
    assert sum(word for _, word in wanted) > 0
    assert finding.facts["last_token"] == pytest.approx(100 * sum(last for last, _ in wanted) / len(wanted))
    assert finding.facts["word"] == pytest.approx(100 * sum(word for _, word in wanted) / len(wanted))
    assert finding.facts["examples"] == len(texts)


def test_a_last_word_of_one_token_is_asked_without_a_sign_too(gpt2: Any, tmp_path: Path) -> None:
    """Its tokenizer needs no start token: the text before the word is enough."""
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "the newt sat on the cat"}) + "\n")
    probe, signed = cloze.Cloze(files=(str(tmp_path / "x.jsonl"),)), ways.scorer(gpt2)
    bare = Causal(gpt2, signed.network, signed.head, [], [])
    logs = []
    for scorer in (signed, bare):
        [example] = probe.examples(scorer)
        assert [item.scored_count for item in example.items] == [1, 1]
        logs.append([score.logs.tolist() for score in scorer.scores([*example.items])])
    assert logs[0] == logs[1]


@pytest.mark.parametrize("start", [False, True])
def test_a_passage_longer_than_the_model_loses_its_beginning(start: bool, gpt2: Any, tmp_path: Path) -> None:
    """The cut is reported; the rest fills the window without a start token, and other passages are unchanged."""
    path, room = tmp_path / "x.jsonl", 32 if start else 33
    full = " ".join(["it ran"] * 14 + ["newt"] * (room - 31) + ["the newts"])  # three pieces, the last two of its word
    rows = ["the newt sat on the cat", "a dog ran " * 20 + "on the newts", full, f"it {full}"]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    records, finding = asked(gpt2, cloze.Cloze(files=(str(path),), start=start))
    assert [row.dropped for row in records] == [0, 64 - 33, 0, room + 1 - 33]
    many = "1 passage of 4" if start else "2 passages of 4"
    left_out = f"their beginning was left out, {31 if start else 32} tokens in total"
    assert finding.note == f"{many} longer than the model's window: {left_out}"
    for row, record in zip(rows, records, strict=True):
        ids = gpt2.tokenizer.encode(row)
        ids = [gpt2.opening, *ids] if start else ids
        size = len(gpt2.tokenizer.encode(row.split()[-1]))
        read = torch.tensor([ids[-33:-1]])
        with torch.no_grad():
            states = gpt2.objective.model(read, torch.arange(read.shape[1])[None])
            logs = gpt2.objective.head(states)[0].log_softmax(-1)
        wanted = sum(float(logs[-size + n, token]) for n, token in enumerate(ids[-size:]))
        assert record.log == pytest.approx(wanted, abs=1e-5)
    few = path.with_name("few.jsonl")
    few.write_text(json.dumps({"text": rows[0]}) + "\n")
    assert asked(gpt2, cloze.Cloze(files=(str(few),)))[1].note == ""


def test_a_masked_model_reads_the_end_of_a_long_passage(tmp_path: Path) -> None:
    """Start and end tokens are around the rest."""
    path, bert = tmp_path / "x.jsonl", made("bert", tmp_path)
    path.write_text(json.dumps({"text": "a dog ran " * 20 + "on the newts"}) + "\n")
    [record], finding = asked(bert, cloze.Cloze(files=(str(path),)))
    assert record.dropped == 64 - 30
    short = ("a dog ran " * 20).split()[-(30 - 4) :]
    path.write_text(json.dumps({"text": " ".join([*short, "on the newts"])}) + "\n")
    assert asked(bert, cloze.Cloze(files=(str(path),)))[0][0].log == pytest.approx(record.log, abs=1e-5)
    assert "34 tokens in total" in finding.note


@pytest.mark.parametrize(("best", "word"), [([1, 1], True), ([1, 0], False), ([0, 1], False), ([0, 0], False)])
def test_a_word_is_guessed_with_all_its_pieces(best: list[int], word: bool) -> None:
    """The last token of the passage is asked by itself."""
    example = Example((), ["x.jsonl:1", 0])
    for last in (True, False):
        probe_key = [Scores(np.zeros(1), np.asarray([last])), Scores(np.asarray([-1.0, -2.5]), np.asarray(best, bool))]
        assert cloze.Cloze().record(example, probe_key).to_list() == ["x.jsonl:1", last, word, -3.5, 0]


def test_models_are_compared_by_passages_and_windows() -> None:
    """In per cent, each passage by itself; nats of a window, weighted by its tokens."""
    rows = [["x:1", True, False, -1.0, 0], ["x:2", False, False, -2.0, 0], ["x:3", True, True, -3.0, 4]]
    judged = cloze.Cloze().compared(read_records(cloze.Cloze(), rows))
    assert [(one.key, one.group) for one in judged] == [("x:1", ""), ("x:2", ""), ("x:3", "")]
    assert [one.values for one in judged] == [
        {"last_token": last, "word": word} for last, word in ((100, 0), (0, 0), (100, 100))
    ]
    for probe in (bits.Bits(), pseudo_perplexity.PseudoPerplexity()):
        [one, other] = probe.compared([TextWindow(1, 5, 1, 9, nats=7.5, targets=3), TextWindow(nats=2.5, targets=2)])
        assert (one.values, one.weight) == ({"nats_per_token": 7.5}, 3)
        assert (other.values, other.weight) == ({"nats_per_token": 2.5}, 2)
        assert one.key != other.key


def test_lines_that_are_not_empty() -> None:
    """Whatever blocks they come in."""
    assert list(documents.lines(["a b\n\n", " \nc", " d\n\t\n", "e"])) == ["a b", "c d", "e"]
    assert list(documents.lines(["\n \n"])) == []


def test_a_drawn_window_of_one_asked_token_is_kept(gpt2: Any, tmp_path: Path) -> None:
    """However many tokens are left for the last window, each is asked once."""
    counts = []
    for size in range(4, 9):
        path = tmp_path / f"{size}.jsonl"
        path.write_text(json.dumps({"text": "the " * size}) + "\n")
        items = sampled_windows.items(ways.scorer(gpt2), [str(path)], "text", 4, None, 0)
        counts.append(sum(item.scored_count for item in items))
    assert np.diff(counts).tolist() == [1] * 4


def test_old_records_have_no_count_of_dropped_tokens() -> None:
    rows = read_records(cloze.Cloze(), [["x.jsonl:1", True, True, -1.0], ["x.jsonl:2", True, False, -2.0]])
    assert cloze.Cloze().finding(rows).note == ""
    finding = cloze.Cloze().finding(rows)
    assert finding.facts["word"] == 50.0
    assert finding.facts["word_perplexity"] == pytest.approx(math.exp(1.5))
    assert finding.errors["word_perplexity"] == pytest.approx(math.exp(1.5) * 0.5)  # deviation 0.5 ** 0.5 of two


def test_errors_are_those_of_a_ratio_over_windows() -> None:
    """Of perplexities by the rule of small changes, e^x times the error of x; of words and bytes by their counts."""
    chance = np.random.default_rng(3)
    targets = chance.integers(8, 30, 400)
    nats = targets * 3 + chance.normal(0, 9, 400)
    records = [TextWindow(4, 20, 1, 50, nats=float(a), targets=int(b)) for a, b in zip(nats, targets, strict=True)]
    finding, count = bits.Bits().finding(records), int(targets.sum())
    error = clustered(nats.tolist(), targets.tolist(), [""] * 400).error
    assert finding.errors["perplexity"] == pytest.approx(finding.facts["perplexity"] * error, rel=0.1)
    assert finding.errors["bits_per_byte"] == pytest.approx(error * count / math.log(2) / 8_000, rel=0.1)
    word = finding.facts["word_perplexity"] * error * count / 1_600
    assert finding.errors["word_perplexity"] == pytest.approx(word, rel=0.1)
    assert finding.guessing["bits_per_byte"] == pytest.approx(math.log2(50) * count / 8_000 * 1)


def test_perplexities_are_not_cut_off() -> None:
    """Beyond e^20, and beyond what a number can be."""
    assert cloze.Cloze().finding([cloze.ClozeRecord("x:1", False, False, -30.0)]).facts[
        "word_perplexity"
    ] == pytest.approx(math.exp(30))
    assert bits.Bits().finding([TextWindow(9, 40, 1, 50, nats=300.0, targets=10)]).facts["perplexity"] == pytest.approx(
        math.exp(30)
    )
    assert cloze.Cloze().finding([cloze.ClozeRecord("x:1", False, False, -800.0)]).facts["word_perplexity"] == math.inf


class Even:
    """Gives every token the same share of eight."""

    way, chained, max_tokens, start_tokens, by_line = "causal", True, 33, np.asarray([0]), False

    class tokenizer:
        vocabulary, unknown = 8, None

    def cut(self, texts: list[str]) -> list[Item]:
        return [Item(np.arange(len(text.split()))) for text in texts]

    def scores(self, items: list[Item], *, best: bool = False) -> list[Scores]:
        return [Scores(np.full(item.scored_count, -math.log(8)), np.zeros(item.scored_count, bool)) for item in items]


def by_hand(probe: Any) -> Any:
    scorer: Any = Even()
    examples = list(probe.examples(scorer))
    return probe.finding([probe.record(one, scorer.scores([*one.items])) for one in examples]).facts


def test_perplexity_of_a_word_by_hand(tmp_path: Path) -> None:
    """Five tokens, and eight pieces between single spaces: L = log 8, R = 4 / 7."""
    path = tmp_path / "x"
    path.write_text("a  b\nc d  e \n")
    facts = by_hand(wikitext.Wikitext(files=(str(path),)))
    assert [facts[key] for key in ("tokens", "original_tokens", "words", "bytes")] == [5, 6, 5, 13]
    assert facts["perplexity"] == pytest.approx(8)
    assert facts["adjusted_perplexity"] == pytest.approx(math.exp(math.log(8) * 4 / 5))
    assert facts["word_perplexity"] == pytest.approx(math.exp(4 * math.log(8) / 5))
    assert facts["bits_per_byte"] == pytest.approx(4 * 3 / 13)


def test_bits_by_hand(tmp_path: Path) -> None:
    """Every token counts, the first behind the sign: three bits each; bytes, not letters."""
    (tmp_path / "a.txt").write_text("å b c", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "d e"}\n\n{"text": "f"}\n')
    facts = by_hand(bits.Bits(files=(str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl"))))
    assert facts["bits_per_byte"] == pytest.approx(6 * 3 / (6 + 3 + 1))
    assert [facts[key] for key in ("documents", "words", "bytes", "scored", "windows")] == [3, 6, 10, 6, 3]
    facts = by_hand(perplexity.Perplexity(files=(str(tmp_path / "b.jsonl"),)))
    assert facts["perplexity"] == pytest.approx(8)
    assert facts["documents"] == 2


@pytest.mark.parametrize("count", [2, 5, 8, 9, 10, 30, 33, 100])
@pytest.mark.parametrize(("window", "overlap"), [(8, 0), (8, 8), (8, 3), (8, 1), (32, 5)])
def test_every_token_is_scored_once(count: int, window: int, overlap: int) -> None:
    """With as much before it as there is, or as the window has room for."""
    scorer: Any = Even()
    cutting = Cutting.of(scorer, window, overlap, "x")
    seen: list[int] = []
    whole, parts = (list(cutting.items(blocks)) for blocks in ([np.arange(count)], np.split(np.arange(count), [1, 20])))
    assert [(item.first, *item.pieces) for item in whole] == [(item.first, *item.pieces) for item in parts]
    for item in whole:
        assert len(item) <= window + 1
        scored = item.pieces[item.first :].tolist()
        if item.pieces[0] > 0 and overlap:
            assert item.first == window - overlap + 1
        seen += scored
    assert seen == list(range(1, count))


@pytest.mark.parametrize(
    ("word_level", "text"),
    [
        ("the boys ' cat", "the boys' cat"),
        ("red @-@ old", "red-old"),
        ("1 @,@ 000 @.@ 5", "1,000.5"),
        ("a : b ; c . d ! e ? f , g", "a: b; c. d! e? f, g"),
        ("( 24 in )", "(24 in)"),
        ("[ a ] { b }", "[a] {b}"),
        ('" a b "', '"a b"'),
        (" = = = Title = = = ", " === Title === "),
        ("24 ° C", "24°C"),
        ("a \n b", "a\nb"),
        ("N a N b", "N a 1 b"),
        ("it 's", "it's"),
    ],
)
def test_word_level_text_is_put_together_again(word_level: str, text: str) -> None:
    assert BY_SET["wikitext"](word_level) == text
    assert BY_SET["wikitext"](TEXT) == megatron.detokenized(TEXT)


def test_other_sets_have_other_rules() -> None:
    assert BY_SET["ptb"]("it 's N years , do n't pay $ N a \n now # N b") == "it's1 years , don't pay $1 a\nnow #1 b"
    assert BY_SET["lambada"](TEXT) == BY_SET["none"](TEXT) == TEXT


def test_a_text_too_short_for_the_draws_is_told(gpt2: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "the cat ran"}\n')
    for batch in (1, 3, 3):
        list(perplexity.Perplexity(files=(str(path),), iterations=1, batch=batch).examples(ways.scorer(gpt2)))
    told = f"{path}: 1 window for the 3 to sample: some are scored repeatedly\n"
    assert capsys.readouterr().err.endswith(told)
    assert capsys.readouterr().err == ""


def test_drawn_windows_are_always_the_same(gpt2: Any, tmp_path: Path) -> None:
    """Of running text with a sign between documents; another seed draws others; it stops after so many."""
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in SENTENCES * 20))
    how = {"files": (str(path),), "iterations": 2, "batch": 3, "window": 16}
    one, again, other = (asked(gpt2, perplexity.Perplexity(**how, seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert one[0] != other[0]
    assert one[1].facts["windows"] == 6
    assert one[1].facts["scored"] == 6 * 16
    [example] = list(perplexity.Perplexity(**how, seed=1).examples(ways.scorer(gpt2)))[:1]
    assert gpt2.tokenizer.end in example.items[0].pieces


def test_a_window_sees_what_it_overlaps(gpt2: Any, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(" ".join(SENTENCES * 5))
    losses = [asked(gpt2, bits.Bits(files=(str(tmp_path / "x.txt"),), window=16, overlap=step))[1] for step in (0, 4)]
    assert losses[0].facts["scored"] == losses[1].facts["scored"]
    assert losses[0].facts["bits_per_byte"] != losses[1].facts["bits_per_byte"]
    facts, guessed, size = losses[0].facts, losses[0].guessing, (tmp_path / "x.txt").stat().st_size
    assert guessed["perplexity"] == gpt2.tokenizer.vocabulary
    assert guessed["bits_per_byte"] == pytest.approx(facts["scored"] * math.log2(gpt2.tokenizer.vocabulary) / size)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  \n ", "is empty"),
        ("newt", "has one word; wanted two or more"),
        ("the cat ran", None),
        ('{"text": "a b"}\n', "holds JSON; .*perplexity` reads JSON lines"),
        ("the cat @-@ dog , ran . " * 500, "is raw WikiText: it has no <unk>"),
        ("the cat, the dog. " * 600, "has punctuation attached to words"),
    ],
)
def test_files_that_are_no_word_level_text(text: str, said: str | None, gpt2: Any, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    examples = wikitext.Wikitext(files=(str(path),)).examples(ways.scorer(gpt2))
    if said is None:
        assert len(list(examples)) == 1
        return
    with pytest.raises(DataError, match=said):
        list(examples)
    if len(text) > 99:
        assert list(wikitext.Wikitext(files=(str(path),), set="none").examples(ways.scorer(gpt2)))


LONG_WORD = json.dumps({"text": f"newt {'##'.join('xyz' * 15)}"})  # nothing of what is before it fits


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"word": "a"}', "x.jsonl:1: has no key `text` .keys: word."),
        ('{"text": "newt"}', "is one word"),
        ('{"text": " "}', "`text` is empty"),
        ("a b c", "not JSON"),
        (LONG_WORD, "has .* tokens; wanted at most 33"),
    ],
)
def test_passages_that_cannot_be_asked(row: str, said: str, gpt2: Any, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(row + "\n")
    with pytest.raises(DataError, match=said):
        list(cloze.Cloze(files=(str(tmp_path / "x.jsonl"),)).examples(ways.scorer(gpt2)))


def test_who_cannot_be_asked(tmp_path: Path) -> None:
    """A masked model's scores are of no text; of a whole word it is shown no piece right of the one it is asked."""
    bert = made("bert", tmp_path / "bert")
    for probe in (wikitext, bits, perplexity):
        with pytest.raises(RecipeError, match="is read the way `masked`, whose scores do not multiply"):
            asked(bert, choice(probe)(files=("x",)))
    with pytest.raises(RecipeError, match="is read the way `detect`, which ranks no words"):
        asked(opened("electra", tmp_path / "electra"), cloze.Cloze(files=("x",)))
    (tmp_path / "x.jsonl").write_text('{"text": "the cat sat on newts"}\n')
    [record], _ = asked(bert, cloze.Cloze(files=(str(tmp_path / "x.jsonl"),)))
    scorer = ways.scorer(bert, "word")
    item = scorer.cut(["the cat sat on newts"])[0]
    assert record.log == pytest.approx(scorer.scores([item])[0].logs[-2:].sum(), abs=1e-5)
    gpt2 = made("gpt2", tmp_path / "gpt2")
    with pytest.raises(RecipeError, match=r"model\.window: found 40; wanted at most 32"):
        asked(gpt2, bits.Bits(files=("x",), window=40))
    with pytest.raises(RecipeError, match=r"model\.overlap: found 20; wanted at most the window, 16"):
        asked(gpt2, bits.Bits(files=("x",), window=16, overlap=20))
    assert str(windows.Cutting(16, 4)) == "windows of 16 tokens, each 4 tokens further"


@pytest.mark.parametrize("way", ["mean", "forward", "backward"])
def test_an_elmo_is_asked_of_the_words_of_every_line(way: str, tmp_path: Path) -> None:
    """Unknown words are reported, and count with all their bytes in scores per word and byte."""
    elmo = elmo_made(tmp_path / "elmo")
    (tmp_path / "x").write_text("the newt ran under it\n\na gnu sat\n" * 3)
    records, finding = asked(elmo, perplexity.Perplexity(files=(str(tmp_path / "x"),), way=way, window=4))
    scorer = ways.scorer(elmo, way)
    lines = [scorer.cut([line])[0] for line in ("the newt ran under", "it", "a gnu sat")]
    nats = -3 * sum(scores.total for scores in scorer.scores(lines))
    facts = finding.facts
    assert [record.targets for record in records] == [5, 8, 8, 3], "lines until there are as many words as in a window"
    assert [facts[key] for key in ("scored", "unknown_tokens", "words", "bytes")] == [24, 3, 24, 3 * 30]
    assert facts["unknown"] == pytest.approx(100 / 8)
    assert facts["perplexity"] == pytest.approx(math.exp(nats / 24), rel=1e-5)
    bits_of = (nats / math.log(2) + 3 * 3 * 8) / 90
    assert facts["bits_per_byte"] == pytest.approx(bits_of, rel=1e-5)
    assert facts["word_perplexity"] == pytest.approx(math.exp((nats + 9 * math.log(256)) / 24), rel=1e-5)
    _, other = asked(elmo, bits.Bits(files=(str(tmp_path / "x"),), way=way, window=4))
    assert next(iter(other.facts.items())) == ("bits_per_byte", pytest.approx(bits_of, rel=1e-5))


def test_what_an_elmo_cannot_be_asked(tmp_path: Path) -> None:
    elmo = elmo_made(tmp_path)
    for probe, said in (
        (wikitext.Wikitext(files=("x",)), "so that there are no tokens of running text; wanted a causal model"),
        (perplexity.Perplexity(files=("x",), iterations=1), "line by line, so that no windows can be sampled"),
        (bits.Bits(files=("x",), overlap=2), r"model.overlap: found 2; wanted 0, as `mean` reads every line"),
        (pseudo_perplexity.PseudoPerplexity(files=("x",)), "which fills no masks; wanted masked or word; use `perpl"),
        (cloze.Cloze(files=("x",), way="forward"), "`forward`, whose unknown words are all `<UNK>`, so"),
    ):
        with pytest.raises(RecipeError, match=said):
            asked(elmo, probe)


def test_pieces_that_are_unknown_are_spelled(tmp_path: Path) -> None:
    """They would cost nothing but a sign."""
    gpt2 = made("gpt2", tmp_path / "gpt2")
    results = []
    for name, text in (("a", "the newt ran"), ("b", "the n\u00f6\u00f6t ran")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        results.append(asked(gpt2, bits.Bits(files=(str(tmp_path / name),)))[1].facts)
    plain, unknown = results
    assert "unknown" not in plain
    assert unknown["unknown_tokens"] == 1
    total = unknown["scored"] * math.log2(unknown["perplexity"])
    assert unknown["bits_per_byte"] * unknown["bytes"] == pytest.approx(total + 6 * 8)


@pytest.mark.parametrize("way", ["masked", "word"])
def test_pseudo_perplexity_is_of_all_tokens(way: str, tmp_path: Path) -> None:
    """Each once; the last window of a text is as long as others; no name by which it might be taken for perplexity."""
    bert = made("bert", tmp_path / "bert")
    (tmp_path / "x").write_text("the newts swam under it and the old dogs ran")
    records, finding = asked(bert, pseudo_perplexity.PseudoPerplexity(files=(str(tmp_path / "x"),), way=way, window=5))
    scorer = ways.scorer(bert, way)
    ids = scorer.cut(["the newts swam under it and the old dogs ran"])[0].pieces
    assert len(ids) == 12
    windows = [Item(ids[:5]), Item(ids[5:10]), Item(ids[7:], first=3)]
    nats = -sum(scores.total for scores in scorer.scores(windows))
    assert [record.targets for record in records] == [5, 5, 2]
    assert finding.facts["pseudo_perplexity"] == pytest.approx(math.exp(nats / 12), rel=1e-5)
    assert finding.facts["pseudo_bits_per_byte"] == pytest.approx(nats / math.log(2) / 44, rel=1e-5)
    assert not {"perplexity", "word_perplexity", "bits_per_byte"} & set(finding.facts)
    assert set(finding.errors) == {"pseudo_perplexity", "pseudo_word_perplexity", "pseudo_bits_per_byte"}


@pytest.mark.parametrize("family", ["bert", "hybrid"])
def test_the_bound_is_the_mean_over_draws(family: str, tmp_path: Path) -> None:
    """Of a window of two tokens: one of them hidden counts twice, both together once."""
    model = made(family, tmp_path / family)
    (tmp_path / "x").write_text("the newt")
    scorer = ways.scorer(model, "masked")
    ids = scorer.cut(["the newt"])[0].pieces
    hidden = [Item(ids, hidden=np.asarray(places)) for places in ([0], [1], [0, 1])]
    one, other, both = (-scores.total for scores in scorer.scores(hidden))
    assert one != pytest.approx(other)
    seen = set()
    for seed in range(8):
        probe = perplexity_bound.PerplexityBound(files=(str(tmp_path / "x"),), draws=2, seed=seed)
        [record], finding = asked(model, probe)
        seen.add(round(record.nats, 4))
        assert finding.facts["perplexity_bound"] == pytest.approx(math.exp(record.nats / 2), rel=1e-5)
    assert seen == {round((2 * single + both) / 2, 4) for single in (one, other)}


def test_one_draw_of_many_windows_hides_all_shares(tmp_path: Path) -> None:
    """Each window begins elsewhere: of one token to all as many, and each place as often; the same for a seed."""
    (tmp_path / "x").write_text("a the on it " * 2_000)
    scorer = ways.scorer(made("bert", tmp_path / "bert"), "masked")

    def hidden(seed: int, draws: int) -> list[list[Any]]:
        probe = perplexity_bound.PerplexityBound(files=(str(tmp_path / "x"),), window=8, draws=draws, seed=seed)
        return [[item.hidden for item in example.items] for example in probe.examples(scorer)]

    once = [places for [places] in hidden(0, 1)]
    amounts = np.bincount([len(places) for places in once], minlength=9)
    assert amounts[0] == 0
    assert ((amounts[1:] - 125) ** 2 / 125).sum() < 24.3  # chi-square of 7 degrees of freedom, p 0.001
    places = np.bincount(np.concatenate([one for one in once if len(one) == 1]), minlength=8)
    assert ((places - places.mean()) ** 2 / places.mean()).sum() < 24.3
    assert [one.tolist() for one in once] == [one.tolist() for [one] in hidden(0, 1)]
    assert [one.tolist() for one in once] != [one.tolist() for [one] in hidden(1, 1)]
    for four in hidden(0, 4):  # a quarter of the shares each, in their order
        assert [(len(one) - 1) // 2 for one in four] == [0, 1, 2, 3]


def test_the_bound_is_what_diffusion_learns(tmp_path: Path) -> None:
    """It is close to the mean of validation losses over as many draws of masks on the same tokens."""
    bert = made("bert", tmp_path / "bert")
    text = "the newts swam under it and the old dogs ran on the red mat ."
    (tmp_path / "x").write_text(text)
    [record], _ = asked(bert, perplexity_bound.PerplexityBound(files=(str(tmp_path / "x"),), draws=400))
    ids = bert.tokenizer.encode(text)
    shown = np.asarray([bert.tokenizer.start, *ids, bert.tokenizer.stop])
    chance, costs = np.random.default_rng(1), []
    for _ in range(400):
        amount = int(chance.integers(len(ids))) + 1
        places = np.sort(chance.permutation(len(ids))[:amount]) + 1
        row = torch.tensor(np.where(np.isin(np.arange(len(shown)), places), bert.tokenizer.mask, shown))[None]
        with torch.no_grad():
            logs = bert.objective.head(bert.objective.model(row, torch.arange(len(shown))[None]))[0].log_softmax(-1)
        costs.append(-float(logs[places, shown[places]].sum()) * len(ids) / amount)
    spread = np.std(costs) / 20
    assert abs(record.nats - np.mean(costs)) < 5 * spread


@pytest.mark.parametrize("family", ["gpt2", "electra"])
def test_who_fills_no_masks(family: str, tmp_path: Path) -> None:
    model = opened(family, tmp_path / family)
    for probe in (pseudo_perplexity, perplexity_bound):
        with pytest.raises(RecipeError, match="which fills no masks; wanted masked"):
            asked(model, choice(probe)(files=("x",)))
    with pytest.raises(RecipeError, match=r"model\.window: found 31; wanted at most 30"):
        asked(made("bert", tmp_path / "bert"), pseudo_perplexity.PseudoPerplexity(files=("x",), window=31))


@pytest.mark.parametrize("kind", ["wordpiece", "bytebpe", "elmo"])
def test_a_long_text_is_read_in_parts(
    kind: str, gpt2: Any, tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which no more is held than a few; the same tokens, counts and windows."""
    elmo = {"elmo": lambda: elmo_made(tmp_path / "elmo"), "bytebpe": lambda: open_model(tiny_run.gpt2)}
    model = elmo.get(kind, lambda: gpt2)()
    scorer: Any = ways.scorer(model)
    text = (
        "".join(f"the newts  sat on\tit ,\n\n the {'old ' * (n % 7)} cat ( and \u00e5 )\r\n" for n in range(60))
        + " \n" * 300
    )
    (tmp_path / "x").write_bytes(text.encode())
    probe = perplexity.Perplexity(files=(str(tmp_path / "x"),))
    wanted = asked(model, probe)
    sizes: list[int] = []
    cut = scorer.cut
    monkeypatch.setattr(type(scorer), "cut", lambda self, texts: sizes.extend(map(len, texts)) or cut(texts))
    monkeypatch.setattr(documents, "PART", 200)
    monkeypatch.setattr(documents, "BESIDE", 20)
    monkeypatch.setattr(read, "BLOCK", 128)
    found = asked(model, probe)
    assert max(sizes) <= 200
    assert found[1].facts == wanted[1].facts
    assert [(row.nats, row.targets) for row in found[0]] == [
        pytest.approx((row.nats, row.targets)) for row in wanted[0]
    ]
    if kind == "wordpiece":
        examples = list(perplexity.Perplexity(files=probe.files, window=1).examples(scorer))
        size = len(text.replace("\r\n", "\n").encode())
        assert sum(one.about.bytes for one in examples) == size, "blank parts behind the last window too"


def test_a_text_that_cannot_be_cut_is_held_whole(gpt2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without white space, every position may be inside a word."""
    monkeypatch.setattr(documents, "PART", 20)
    monkeypatch.setattr(documents, "BESIDE", 5)
    scorer = ways.scorer(gpt2)
    assert list(documents.text_parts(scorer, ["newts" * 3] * 4, "x")) == ["newts" * 12]
    parts = list(documents.text_parts(scorer, ["newts " * 3] * 4, "x"))
    assert "".join(parts) == "newts " * 12
    assert max(map(len, parts)) <= 25
    assert len(parts) == 4


class Pairs(Even):
    """Makes one token of two line ends."""

    def cut(self, texts: list[str]) -> list[Item]:
        return [Item(np.asarray([*text.replace("\n\n", "N").encode()])) for text in texts]


def test_a_part_ends_where_tokens_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not between two line ends that are one token."""
    monkeypatch.setattr(documents, "PART", 20)
    monkeypatch.setattr(documents, "BESIDE", 4)
    scorer: Any = Pairs()
    text = "abcdefg abcd abcd\n\nabcdef" * 5
    parts = list(documents.text_parts(scorer, [text], "x"))
    assert "".join(parts) == text
    assert len(parts) > 4
    assert [*scorer.cut([text])[0].pieces] == [token for part in parts for token in scorer.cut([part])[0].pieces]
    assert any(part.startswith("\n\n") for part in parts)


def test_windows_are_drawn_of_a_text_in_parts(gpt2: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the whole, one document after the other."""
    (tmp_path / "a").write_text("the old newt sat on it .\n" * 30 + "\n" * 300)
    (tmp_path / "b").write_text("a red cat ran " * 3)
    probe = perplexity.Perplexity(files=(str(tmp_path / "a"), str(tmp_path / "b")), iterations=4, batch=2)
    scorer = ways.scorer(gpt2)
    wanted = [example.items[0].pieces.tolist() for example in probe.examples(scorer)]
    sampled_windows._temporary_store.cache_clear()
    monkeypatch.setattr(documents, "PART", 100)
    monkeypatch.setattr(documents, "BESIDE", 20)
    assert [example.items[0].pieces.tolist() for example in probe.examples(scorer)] == wanted
    assert sum(row.count(scorer.tokenizer.end) for row in wanted) >= 2
    sampled_windows._temporary_store.cache_clear()


@pytest.mark.parametrize(
    ("probe", "row"),
    [
        (cloze.Cloze(), ["x:1", True, False, -2.5, 3]),
        (minimal_pairs.MinimalPairs(), ["a", "x:1", -4.0, None]),
        (minimal_pairs.MinimalPairs(scoring="babylm"), ["a", "x:1", -4.0, -4.8, [-2.0, -1.2]]),
        (bits.Bits(), [4, 20, 1, 50, 2, 7, 30.5, 10]),
        (wikitext.Wikitext(), [9, 8, 7, 40, 1, 50, 30.5, 10]),
        (positions.Positions(), [40, 10, 1, 3.5, 2, 30.5, 8, 1.5, 1]),
        (babylm.BabyLmSuite(), ["blimp", "a", "x:1", 0, 0, [[-1.0, 1], [-2.0, 1]]]),
        (babylm.BabyLmSuite(), ["reading", "", "x:1", [1.0, None]]),
        (babylm.BabyLmSuite(), ["aoa", "newt", "x:1", 5.5, 9.1]),
    ],
)
def test_stored_records_are_read_and_written_unchanged(probe: Any, row: list[Any]) -> None:
    [record] = read_records(probe, [row])
    assert isinstance(record, probe.RECORD)
    assert record.to_list() == row
