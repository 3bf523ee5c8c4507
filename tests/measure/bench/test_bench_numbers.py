"""What a bench makes of times that are given, and what its made-up text is."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kit.clocks import set_time
from kit.makers import synthetic_text
from ordsmed.base import measurements
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import choice
from ordsmed.corpus.folder import documents, parts
from ordsmed.data.encode import Encoded
from ordsmed.learn.objectives import clm, mlm
from ordsmed.learn.tasks import squad
from ordsmed.measure.bench import bench as benches
from ordsmed.measure.bench import rounds as bench_rounds
from ordsmed.measure.bench import synthetic as made_up
from ordsmed.measure.bench import tasks as bench_tasks
from ordsmed.measure.bench import training
from ordsmed.measure.bench.bench import Bench, bench
from ordsmed.nn.models import bert
from ordsmed.train.callbacks import Callback

BERT = [
    "model.width=32",
    "model.layers=1",
    "model.heads=2",
    "vocabulary=300",
    "tokens=5000",
    "length=16",
    "batch=4",
    "layout.device=cpu",
    "layout.threads=1",
]
ELMO = [
    "model.width=8",
    "model.cells=12",
    "vocabulary=400",
    "tokens=4000",
    "length=5",
    "batch=4",
    "steps=4",
    "model.filters=[[1,6],[2,6]]",
    "objective.samples=50",
    "layout.device=cpu",
    "layout.threads=1",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def measured(*words: str) -> dict[str, Any]:
    (line,) = bench(words[0], words[1:], json_line=True)
    return dict(json.loads(line))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[float]], None]:
    """A clock that advances by the next of these seconds each time it is read."""

    def wind(spent: Iterable[float]) -> None:
        times = itertools.accumulate(spent)
        for module in (benches, bench_tasks, bench_rounds):
            monkeypatch.setattr(module, "now", lambda device: next(times))

    return wind


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Replace the loop by calls of its callbacks; return the number of steps and the peak of each call."""
    told: list[tuple[int, float]] = []

    def train(
        job: Any, folder: Path, first: int, peak: float, *, callbacks: Sequence[Callback], watch: object = None
    ) -> None:
        assert (folder.is_dir(), first) == (True, 0)
        steps = sum(phase.steps for phase in job.phases)
        told.append((steps, peak))
        for step in range(1, steps + 1):
            for callback in callbacks:
                callback.after_step(SimpleNamespace(step=step))  # type: ignore[arg-type]

    monkeypatch.setattr("ordsmed.train.loop.train", train)
    return told


def test_training_is_told_by_its_median_step(
    clock: Any, stepped: list[tuple[int, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that warm up do not count; rates and the share of the peak follow from the median."""
    monkeypatch.setattr("ordsmed.measure.bench.training.measured_peak", lambda *_: 5e8)
    clock([9.0, 0.5, 0.1, 0.4])  # the clock is read when the second, which warms up as the first does, is done
    found = measured("bench/bert-mini", *BERT, "steps=3")
    assert stepped == [(5, 5e8)]
    assert {
        "step_seconds": 0.4,
        "sequences_per_second": 10.0,
        "tokens_per_second": 160.0,
        "steps": 3,
        "peak_gflops": 0.5,
        "micro": 4,
        "threads": 1,
        "device": "cpu",
        "model": "bert",
        "width": 32,
        "layers": 1,
        "objective": "mlm",
    }.items() <= found.items()
    [kept] = measurements.read(measurements.DEFAULT_PATH)
    assert (kept.bench, kept.measure, kept.software, kept.task) == ("bench/bert-mini", "training", "ordsmed", "mlm")
    assert (kept.step_seconds, kept.step_seconds_least, kept.step_seconds_most) == pytest.approx((0.4, 0.1, 0.5))
    assert (kept.steps, kept.rounds, kept.peak) == (3, 3, 5e8)
    assert kept.share_of_peak == pytest.approx(kept.flops_per_second / 5e8)
    more = measured("bench/bert-mini", *BERT, "steps=3", "batch=8") if not clock([1.0] * 4) else {}
    assert more["share_of_peak"] == pytest.approx(2 * 0.4 * found["share_of_peak"], rel=0.02)
    assert 0.01 < found["share_of_peak"] < 0.2  # 4 rows of 16 tokens through some 20,000 numbers, forward and back
    assert 5000 <= Encoded(Path("work/bench/random-300-5000")).train.token_count < 7000


def test_kernels_and_attention_stand_beside_what_they_make(
    clock: Any, stepped: list[tuple[int, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run says them, in the facts and in what is kept; what there is nothing of has no fact."""
    ways = "kernels: ours for lstm", "attention: torch's kernel"
    monkeypatch.setattr("ordsmed.train.job._choose_kernels", lambda *given: ways[0])
    monkeypatch.setattr("ordsmed.train.plan.attention_lines", lambda *_, **how: [ways[1]])
    clock([1.0] * 8)
    found = measured("bench/bert-mini", *BERT, "steps=3")
    assert (found["kernels"], found["attention"]) == ("ours for lstm", "torch's kernel")
    [kept] = measurements.read(measurements.DEFAULT_PATH)
    assert (kept.kernels, kept.attention) == (found["kernels"], found["attention"])
    assert training.reference_measurement(kept, bench_rounds.Spread(1.0, 1.0, 1.0)).kernels == ""
    monkeypatch.setattr("ordsmed.train.job._choose_kernels", lambda *given: "")
    monkeypatch.setattr("ordsmed.train.plan.attention_lines", lambda *_, **how: [])
    assert not {"kernels", "attention"} & measured("bench/bert-mini", *BERT, "steps=3").keys()


def test_the_loop_is_told_beside_its_arithmetic(clock: Any, stepped: list[tuple[int, float]]) -> None:
    """Pairs of steps, one of the loop and one bare; the median of differences, not the difference of medians."""
    loops, bares = (8.0, 8.0, 0.010, 0.020, 0.030), (7.0, 7.0, 0.008, 0.007, 0.009)
    clock([spent for pair in zip(loops, bares, strict=True) for spent in pair])
    found = measured("overhead", *BERT, "steps=3")
    assert (found["loop_ms"], found["arithmetic_ms"], found["overhead_ms"]) == (20.0, 8.0, 13.0)
    assert (found["batch"], found["length"], found["micro"], found["threads"], found["steps"]) == (4, 16, 4, 1, 3)


def test_an_elmo_is_told_beside_a_plain_script(clock: Any, stepped: list[tuple[int, float]]) -> None:
    loops, plains = (8.0, 8.0, 0.2, 0.5, 0.4, 0.4), (9.0, 9.0, 0.5, 0.6, 0.68, 0.8)
    clock([spent for loop, plain in zip(loops, plains, strict=True) for spent in (loop, 0.05, plain)])
    found = measured("elmo-small", *ELMO)
    assert found["words_per_second"] == 50
    assert found["plain_words_per_second"] == 31
    assert (found["ratio"], found["min_ratio"]) == (1.6, 1.2)
    assert (found["words_a_step"], found["batch"], found["length"], found["steps"]) == (20, 4, 5, 4)
    assert len(found["different_words_a_step"]) == 3
    assert all(10 < count < 2 * 20 for count in found["different_words_a_step"])
    assert found["cells"] == 12


@pytest.mark.parametrize("name", ["finetune-sst2"])
def test_learning_is_told_by_what_passed_after_warming_up(clock: Any, name: str) -> None:
    ours, theirs = (9.0, 9.0, 0.1, 0.3), (7.0, 7.0, 0.4, 0.8)
    clock([part for pair in zip(ours, theirs, strict=True) for spent in pair for part in (0.01, spent)])
    words = [word for word in BERT if not word.startswith(("length", "tokens"))]
    found = measured(name, *words, "steps=2", "task.length=32", "sizes=[[0,20],[100,20]]")
    assert found["examples_per_second"] == 20.0
    assert found["nvidia_examples_per_second"] == round((40 + 4 / 0.3) / 2, 3)
    assert found["padded"]["examples_per_second"] == round(8 / 1.2, 3)
    assert (found["ratio"], found["median_ratio"]) == (3.0, round((4 + 8 / 3) / 2, 3))
    assert found["tokens_an_example"] == 20
    assert found["ratio_of_places"] == pytest.approx(32 / 20 * found["filled"], abs=2e-3)
    assert (found["length"], found["batch"], found["micro"], found["steps"]) == (32, 4, 4, 2)
    assert (found["task"], found["examples_made_up"], found["model"], found["width"]) == ("classify", True, "bert", 32)


@pytest.mark.long
def test_asking_is_told_without_its_first_turn(clock: Any) -> None:
    turns = [(5.0, 6.0), (0.1, 0.2), (0.3, 0.9), (4.0, 4.0), (0.5, 0.25)]  # two of one example, then one of three
    clock([part for pair in turns for spent in pair for part in (0.01, spent)])
    words = [word for word in BERT if not word.startswith(("length", "tokens"))]
    found = measured("predict", *words, "task.length=32", "sizes=[[0,20],[100,20]]", "batches=[[1,2],[3,1]]")
    assert found["batch_1"]["times"] == 2
    assert found["batch_1"]["examples_per_second"] == 5.0
    assert found["batch_1"]["latency_ms"] == {"mean": 200.0, "90%": 300.0, "95%": 300.0, "99%": 300.0}
    assert (found["batch_1"]["ratio"], found["batch_1"]["median_ratio"]) == (2.75, 2.5)
    assert found["batch_1_padded"]["latency_ms"]["mean"] == 550.0
    assert (found["batch_3"]["examples_per_second"], found["batch_3"]["ratio"]) == (6.0, 0.5)
    assert found["batch_3_padded"]["examples_per_second"] == 12.0
    assert found["length"] == 32


@pytest.mark.long
def test_an_example_that_is_asked_is_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch takes the examples behind the one before; the padded way asks the same ones, each in a row alone."""
    asked: list[Any] = []

    def ask(task: Any, examples: Any, packing: Any, ranks: Any, *, within: Any) -> None:
        asked.append((len(examples.sizes), examples.ids[: examples.sizes[0]].tolist(), packing.alone, packing.length))

    monkeypatch.setattr("ordsmed.learn.inference.predict_all", ask)
    words = [word for word in BERT if not word.startswith(("length", "tokens"))]
    measured("predict", *words, "task.length=32", "sizes=[[0,9],[100,20]]", "batches=[[2,2]]")
    packed, padded = asked[::2], asked[1::2]
    assert [count for count, *_ in asked] == [2] * 6
    assert [ids for _, ids, *_ in packed] == [ids for _, ids, *_ in padded]
    assert len({tuple(ids) for _, ids, *_ in packed}) == 3
    assert {(alone, length) for *_, alone, length in padded} == {(True, 32)}
    assert {alone for *_, alone, _ in packed} == {False}


def test_made_up_text(tmp_path: Path) -> None:
    """Documents of 20 to 2,000 tokens, any id behind the signs as often as any other; made once."""
    folder = made_up.random_store(40, 60_000)
    train = Encoded(folder).train
    lengths = np.diff(train.document_starts)
    assert lengths.min() >= 20
    assert lengths.max() < 2_000
    assert 60_000 <= train.token_count < 62_000
    counts = np.bincount(np.asarray(train.tokens), minlength=40)
    assert counts[: len(made_up.SPECIAL)].sum() == 0
    expected = train.token_count / (40 - len(made_up.SPECIAL))
    assert (np.abs(counts[len(made_up.SPECIAL) :] - expected) < 5 * expected**0.5).all()
    before = (folder / "train.bin").stat().st_mtime_ns
    assert made_up.random_store(40, 60_000) == folder
    assert (folder / "train.bin").stat().st_mtime_ns == before
    status = json.loads((folder / "status.json").read_text())
    assert (status["verb"], status["state"], status["vocabulary"]) == ("encode", "done", 40)


def test_made_up_words() -> None:
    """Sentences of 5 to 45 words; the word of rank r as often as (r + 2.7)^-1.2 says, and frequent ones shorter."""
    folder = made_up.word_store(500, 50_000)
    train = Encoded(folder).train
    lengths = np.diff(np.asarray(train.starts))
    assert (len(lengths), lengths.min(), lengths.max()) == (2_000, 5, 45)
    assert len(train.document_starts) == 2_001
    spelled = (folder / "vocab.txt").read_text().split()
    assert spelled[:3] == ["<S>", "</S>", "<UNK>"]
    assert len(set(spelled)) == len(spelled) > 300
    shares = (np.arange(len(spelled) - 3) + 2.7) ** -1.2
    shares /= shares.sum()
    found = np.bincount(np.asarray(train.tokens), minlength=len(spelled))
    assert found[:3].sum() == 0
    expected = shares * train.token_count
    assert (np.abs(found[3:] - expected) < 5 * expected**0.5 + 3).all()
    sizes = [len(word) for word in spelled[3:]]
    assert max(sizes) <= 24
    assert np.mean(sizes[:20]) + 1 < np.mean(sizes[-100:])
    drawn = list(made_up._made_up_words(3000, np.random.default_rng(1)))
    assert np.mean([len(w) for w in drawn[-500:]]) == pytest.approx(1 + 0.55 * np.log(2750), abs=0.3)


def test_pairs_of_a_large_store() -> None:
    found = measured("pairs", "sentences=20000", "batch=16", "length=64")
    assert {"style": "next", "sentences": 20_000, "length": 64, "batch": 16}.items() <= found.items()
    source = benches._skewed_source(20_000)
    assert found["documents"] == len(source.document_starts) - 1
    assert found["rows"] > found["documents"]
    assert found["groups"] >= 1
    assert min(found["first_batch_seconds"], found["batch_ms"]) > 0
    rate = found["rows"] / max(found["epoch_seconds"] - 0.006, 1e-3)
    assert found["examples_per_second"] <= rate


def test_the_documents_of_a_skewed_store() -> None:
    """Half of the sentences are in long documents; the first document has 50,000."""
    source = benches._skewed_source(400_000)
    sizes = np.diff(np.searchsorted(source.starts, source.document_starts))
    assert (sizes[0], sizes.sum()) == (50_000, 400_000)
    assert sizes.min() >= 1
    assert 0.4 < sizes[sizes > 70].sum() / 400_000 < 0.6
    lengths = np.diff(source.starts)
    assert (lengths.min(), lengths.max()) == (5, 44)
    assert len(source.tokens) == source.starts[-1] == source.document_starts[-1]


def test_encoding_beside_the_library() -> None:
    Path("a.txt").write_text(synthetic_text(400))
    Path("c.toml").write_text('validation = 0.1\nout = "c"\n[source]\nkind = "text"\npath = "a.txt"\n')
    Path("t.toml").write_text('corpus = "c.toml"\nout = "t"\n[tokenizer]\nkind = "wordpiece"\nsize = 120\n')
    found = measured("encode", "corpus=c.toml", "tokenizer=t.toml")
    told = [s for part in parts(Path("c"), "train") for document in documents(part) for s in document.sentences()]
    assert found["megabytes"] == round(sum(len(sentence.encode()) for sentence in told) / 1e6, 2) > 0
    assert found["ratio"] == pytest.approx(found["encode_mb_per_second"] / found["library_mb_per_second"], rel=0.5)
    assert found["cores"] >= 1
    assert found["peak_memory_mb"] > 30
    assert not Path("work/encode").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["loader", "tokens=1000000000000000"], "loader: tokens: found 1,000,000,000,000,000, which need "),
        (["windows", "sentences=1000000000000000"], "windows: sentences: found 1,000,000,000,000,000, which need "),
        (["loader", "vocabulary=1000000000000000"], "loader: vocabulary: found 1,000,000,000,000,000, which need "),
        (["loader", "batch=100000000000"], "loader: batch: found 12,800,000,000,000, which need "),
        (["loader", "length=0"], "loader: length: found 0; wanted 1 or more"),
        (["loader", "sentences=0"], "loader: sentences: found 0; wanted 1 or more"),
        (["loader", "tokens=-1"], "loader: tokens: found -1; wanted 0 or more"),
        (["loader", "batches=[]"], "loader: batches: found []; wanted pairs of 1 or more"),
        (["loader", "batches=[[1,0]]"], "loader: batches: found [[1, 0]]; wanted pairs of 1 or more"),
        (
            ["loader", "sizes=[[1,3],[100,9]]"],
            "loader: sizes: found [[1, 3], [100, 9]]; wanted increasing pairs from 0 to 100",
        ),
        (["loader", "sizes=[[0,3],[60,4],[50,5],[100,9]]"], "loader: sizes: found "),
        (["loader", "sizes=[[0,9],[100,3]]"], "loader: sizes: found "),
        (["loader", "measure=plain"], "loader: model: missing; wanted a [model] to measure"),
        (["loader", "measure=predict"], "loader: task: missing; wanted a [task] to measure"),
        (["overhead", "measure=finetune"], "overhead: task: missing; wanted a [task] to measure"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_made(words: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        measured(*words)
    assert str(error.value).startswith(said)
    assert not Path("work").exists()


def test_numbers_are_told_with_their_names() -> None:
    assert benches._figure(3.5) == "3.5"
    assert benches._figure({"a": 1, "b": {"c": 2, "d": 3}}) == "a 1, b (c 2, d 3)"


def test_dropout_everywhere_or_the_network_s_own() -> None:
    from ordsmed.nn.models import bert, elmo

    own = bert.Bert(dropout=0.3, attention_dropout=0.4)
    assert bench_tasks.with_dropout(own, None) == own
    changed = bench_tasks.with_dropout(own, 0.0)
    assert (changed.dropout, changed.attention_dropout) == (0.0, 0.0)
    assert bench_tasks.with_dropout(elmo.Elmo(), 0.2).dropout == 0.2


@pytest.mark.parametrize("kind", [mlm, clm])
def test_the_loader_counts_real_tokens(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Those of documents, not padding, over the time of all batches but the first; on one core."""
    times, seen, cores = itertools.count(100.0, 2.0), list[int](), list[Any]()
    set_time(monkeypatch, benches, perf_counter=lambda: next(times))
    monkeypatch.setattr(benches.os, "sched_setaffinity", lambda pid, which: cores.append(which))
    inner, padded = choice(kind).rows, list[bool]()

    def rows(self: Any, *given: Any, **how: Any) -> Any:
        own = inner(self, *given, **how)

        def batch(numbers: Any) -> Any:
            made = own.batch(numbers)
            seen.append(made.tokens.numel() if made.documents is None else int((made.documents > 0).sum()))
            padded.append(made.documents is not None)
            return made

        return SimpleNamespace(batch=batch)

    monkeypatch.setattr(choice(kind), "rows", rows)
    found = measured(
        "loader",
        f"objective={kind.__name__.rpartition('.')[2]}",
        "tokens=20000",
        "vocabulary=300",
        "steps=1",
        "batch=4",
        "lengths=[64]",
    )
    assert len(seen) == 1 + 20
    assert found["real_tokens_per_second_64"] == round(sum(seen[1:]) / 2)
    assert 0.5 * 20 * 4 * 64 < sum(seen[1:]) <= 20 * 4 * 64
    assert set(padded) == {False, True}, "rows without padding say nothing of documents"
    assert cores[0] == {min(os.sched_getaffinity(0))}
    assert cores[1] == os.sched_getaffinity(0)


def test_what_a_measurement_needs() -> None:
    """A network, or what it starts from."""
    task = squad.Squad(train="train.json")
    assert Bench(measure="finetune", task=task, init="somewhere").vocabulary == 30_522
    assert Bench(measure="predict", task=task, model=bert.Bert()).init is None
    for how in ({"task": task}, {"init": "somewhere"}):
        with pytest.raises(ValueError, match=r"^(model|task): missing; wanted a "):
            Bench(measure="finetune", **how)
    for measure in ("training", "plain", "overhead"):
        with pytest.raises(ValueError, match=r"^objective: missing; wanted a \[objective\] to measure"):
            Bench(measure=measure, model=bert.Bert())


def test_documents_of_made_up_text_are_of_every_length() -> None:
    lengths = [len(document) for document in made_up._random_documents(40, 20_000_000)]
    assert (min(lengths), max(lengths)) == (20, 1_999)
    assert sum(lengths) - lengths[-1] < 20_000_000 <= sum(lengths)
