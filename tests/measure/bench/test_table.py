"""Tables: cells, rows, and what follows from made-up measurements by the definitions of others' tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.measurements import measurement
from ordsmed.base import measurements, run, settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.measurements import Measurement
from ordsmed.measure.bench import bench as benches
from ordsmed.measure.bench import published_figures, table
from ordsmed.measure.bench.bench import Bench, bench
from ordsmed.measure.bench.table import Axes, CellResult


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rate(sequences: float, **changes: Any) -> Measurement:
    """So many rows a second."""
    batch = changes.get("batch", 16)
    seconds = batch / sequences
    return measurement(
        sequences_per_second=sequences,
        step_seconds=seconds,
        step_seconds_least=seconds / 2,
        step_seconds_most=seconds * 2,
        **changes,
    )


LIKE_THEIRS = {"family": "electra", "width": 768, "layers": 12}


def cells(name: str, *words: str) -> list[tuple[str, ...]]:
    recipe = settings.decode(
        Bench, settings.override(run.read_table(run.find_recipe(name, "bench"), "bench"), words), name
    )
    return list(table.cells_of(name, words, recipe))


def test_every_combination_is_a_cell() -> None:
    axes = "table={lengths=[64, 128], precisions=['fp32', 'bf16'], compile=[true], layouts=['1x2x1'], devices=[2]}"
    assert cells("bert-mini", axes, "batch=3") == [
        (
            f"length={length}",
            f"layout.precision={precision}",
            "layout.compile=true",
            "layout.replicate=1",
            "layout.shard=2",
            "layout.tensor=1",
            "devices=2",
            "batch=6",
        )
        for length in (64, 128)
        for precision in ("fp32", "bf16")
    ]
    assert cells("bert-mini", "table={}") == [()]


def test_weak_scaling_gives_each_device_its_rows_and_strong_shares_them() -> None:
    axes = "table={batches=[4, 8], devices=[1, 4]}"
    assert cells("bert-mini", axes) == [
        ("batch=4", "devices=1"),
        ("devices=4", "batch=16"),
        ("batch=8", "devices=1"),
        ("devices=4", "batch=32"),
    ]
    assert cells("bert-mini", axes, "table.scaling=strong")[1] == ("batch=4", "devices=4")


def test_nvidias_benchmark_has_its_arithmetic() -> None:
    """88 amp xla 8 true 2 12 4 base: rows at a time x accumulation x GPUs."""
    words = [set(cell) for cell in cells("electra-nvidia")]
    assert words == [
        {"length=128", "layout.micro=88", "devices=8", f"batch={88 * 2 * 8}"},
        {"length=512", "layout.micro=12", "devices=8", f"batch={12 * 4 * 8}"},
    ]
    assert [set(cell) for cell in cells("squad-train-nvidia")] == [{"devices=8", f"batch={16 * 8}"}]
    assert cells("squad-eval-nvidia") == [()]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["table={precisions=['fp8']}"], r"layout\.precision: found 'fp8'; wanted one of fp32, tf32"),
        (["table={devices=[0]}"], r"table\.devices: found 0; wanted 1 or more"),
        (["table={layouts=['2x2']}"], r"table\.layouts: found 2x2; wanted replicate x shard x tensor"),
        (["table={layouts=['0x1x1']}"], r"table\.layouts: found 0x1x1; wanted replicate x shard x tensor"),
        (
            ["table={layouts=['1x2x1'], devices=[1, 4]}"],
            r"layouts: found 1x2x1 with devices \[1, 4\]; wanted 2 among them",
        ),
        (["table={train=[[128, -5]]}"], r"table\.train: found \[\[128, -5\]\]; wanted pairs of a length and rows"),
        (["table={cells=[]}"], r"table\.cells: found none; wanted one or more"),
        (["table={published='ours'}"], r"table\.published: found ours; wanted one of nvidia-electra"),
        (["table={cells=[['lenght=3']]}"], r"lenght: unknown setting; did you mean `length`"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_before_any_is_measured(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_run", lambda *_: pytest.fail("was measured"))
    with pytest.raises(RecipeError, match=why):
        bench("bert-mini", words)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["table={}"], "table: found one with measure loader; wanted training, finetune, predict"),
        (["profile=2"], "profile: found 2 with measure loader; wanted training"),
        (["profile=-1"], "profile: found -1; wanted 0 or more"),
        (["beside=transformers"], "beside: found transformers with measure loader"),
        (["rounds=0"], "rounds: found 0; wanted 1 or more"),
        (["devices=2"], "devices: found 2 with measure loader"),
    ],
)
def test_what_only_trainings_have(words: list[str], why: str) -> None:
    with pytest.raises(RecipeError, match=why):
        bench("loader", words)


def test_speed_up_is_beside_fp32_or_tf32_of_the_same_work() -> None:
    """NVIDIA's, of one A100: 955 over 533 is 1.79, though half of the rows fit in TF32."""
    whole, mixed = rate(533, precision="tf32", batch=88), rate(955, precision="bf16", batch=176)
    every = [whole, mixed, rate(90, precision="tf32", length=512), rate(1, precision="fp32", compile=True)]
    assert table.speed_up(mixed, every) == 1.79
    assert table.speed_up(whole, every) is None
    assert table.speed_up(rate(171, precision="bf16", length=512), every) == 1.9
    assert table.speed_up(rate(171, precision="bf16", length=256), every) is None
    asked = [rate(2, measure="predict", batch=1), rate(8, measure="predict", batch=256)]
    assert table.speed_up(rate(16, measure="predict", batch=256, precision="bf16"), asked) == 2.0


def test_speed_up_is_beside_as_large_batches_where_those_were_measured() -> None:
    whole = [rate(100, batch=8), rate(200, batch=16)]
    assert table.speed_up(rate(400, batch=16, precision="bf16"), whole) == 2.0
    assert table.speed_up(rate(400, batch=32, precision="bf16"), whole) == 2.0  # the fastest of others
    assert (
        table.speed_up(
            rate(400, measure="predict", batch=32, precision="bf16"), [rate(100, measure="predict", batch=8)]
        )
        is None
    )


@pytest.mark.parametrize(
    "change", [{"dropout": 0.0}, {"width": 768}, {"optimizer": "lamb"}, {"recompute": True}, {"parameters": 5}]
)
def test_what_does_other_work_is_not_compared(change: dict[str, Any]) -> None:
    other = rate(10, **change)
    assert table.speed_up(rate(20, precision="bf16"), [other]) is None
    assert table.scaling(rate(20, processes=2, batch=32), [other], "weak") is None
    lines = table.hours_by_way([rate(10), rate(10, length=512), other, rate(1, length=512, **change)], ((128, 3600),))
    assert [line["hours"] for line in lines] == [0.1, 0.1]
    assert len(table.hours_by_way([rate(10), rate(10, length=512, **change)], ((128, 1), (512, 1)))) == 0


def test_a_length_that_was_not_measured_leaves_no_hours_and_is_told() -> None:
    shown = table.summary("some", Axes(train=((128, 10), (512, 10))), [CellResult((), (rate(1),))])
    assert (shown["time_to_train"], shown["not_measured"]) == ([], [512])
    assert "time to train: unknown, because length 512 was not measured" in table.markdown(shown)


def test_settings_that_no_column_tells_stand_in_their_own() -> None:
    words = ("model.size=small", "batch=8", "layout.micro=4", "dropout=0.0")
    rows = table.summary("some", Axes(), [CellResult(words, (rate(1),)), CellResult(("batch=9",), (rate(2),))])["rows"]
    assert [row.get("settings") for row in rows] == ["model.size=small dropout=0.0", None]


@pytest.mark.parametrize(
    ("facts", "ratio"),
    [
        ({"ratio": 1.5}, 1.5),
        ({"ratio": 1.5, "median_ratio": 1.25}, 1.25),
        ({"batch_16": {"ratio": 3.0}}, 3.0),
        ({}, 2.0),
    ],
)
def test_a_ratio_is_the_median_of_pairs_as_its_measurement_tells_it(facts: dict[str, Any], ratio: float) -> None:
    both = (rate(10), rate(5, software="padded"))
    full = {name: {"latency_ms": {}} | each for name, each in facts.items() if isinstance(each, dict)}
    more = {f"{name}_padded": {"nvidia_examples_per_second": 1, "nvidia_latency_ms": {}} for name in full}
    [row] = table.summary("some", Axes(), [CellResult((), both, facts | full | more)])["rows"]
    assert row["ratio"] == ratio


def test_what_was_measured_beside_stands_beside_its_own_batch() -> None:
    """Each batch of a cell has its own reference; a reference of another length or batch is not shown."""
    of_both = [(4, 10, 5), (8, 16, 4)]
    measured = [
        *(rate(own, batch=batch) for batch, own, _ in of_both),
        *(rate(other, batch=batch, software="padded") for batch, _, other in of_both),
        rate(1, batch=4, length=64, software="padded"),
    ]
    rows = table.summary("some", Axes(), [CellResult((), tuple(measured))])["rows"]
    assert [(row["batch"], row["sequences_per_second"], row["padded"], row["ratio"]) for row in rows] == [
        (4, 10, 5, 2.0),
        (8, 16, 4, 4.0),
    ]


def test_layouts_say_how_many_processes_they_need() -> None:
    mesh = ("layout.replicate=1", "layout.shard=2", "layout.tensor=1", "devices=2", "batch=32")
    one = ("layout.replicate=1", "layout.shard=1", "layout.tensor=1", "devices=1")
    assert cells("bert-mini", "table={layouts=['1x1x1', '1x2x1']}") == [one, mesh]
    assert cells("bert-mini", "table={layouts=['1x1x1', '1x2x1'], devices=[1, 2]}") == [one, mesh]


def test_weak_scaling_is_the_rate_of_n_over_that_of_one_with_as_many_rows_each() -> None:
    """NVIDIA's, of eight A100: 7512 over 955 is 7.87."""
    one, eight = rate(955, batch=176), rate(7512, batch=1408, processes=8)
    assert table.scaling(eight, [one, eight], "weak") == 7.87
    assert table.scaling(one, [one, eight], "weak") == 1.0
    assert table.scaling(eight, [one, eight], "strong") is None
    assert table.scaling(eight, [rate(955, batch=88)], "weak") is None


@pytest.mark.parametrize(
    ("length", "whole", "mixed", "scalings", "speed_ups"),
    [
        (128, {1: 116, 8: 920}, {1: 444, 8: 3475}, {8: (7.93, 7.83)}, (3.83, 3.77)),
        (512, {1: 24, 8: 190}, {1: 84, 8: 656}, {8: (7.92, 7.81)}, (3.50, 3.45)),
        (
            128,
            {1: 128, 8: 1011, 16: 2018},
            {1: 500, 8: 3916, 16: 7773},
            {8: (7.9, 7.83), 16: (15.77, 15.55)},
            (3.91, 3.87, 3.85),
        ),
        (
            512,
            {1: 27, 8: 213, 16: 426},
            {1: 96, 8: 754, 16: 1506},
            {8: (7.89, 7.85), 16: (15.78, 15.69)},
            (3.55, 3.54, 3.54),
        ),
    ],
)
def test_nvidia_s_columns_come_out_of_its_rates(
    length: int,
    whole: dict[int, int],
    mixed: dict[int, int],
    scalings: dict[int, tuple[float, float]],
    speed_ups: tuple[float, ...],
) -> None:
    """Of a DGX-1 and a DGX-2: weak scaling in fp32 and mixed, and how many times as fast mixed precision is."""
    rows = [
        rate(rates[count], precision=precision, length=length, batch=16 * count, processes=count)
        for precision, rates in (("fp32", whole), ("fp16", mixed))
        for count in rates
    ]
    summary = table.summary("x", table.Axes(), [table.CellResult((), (row,)) for row in rows])
    found = {(row["precision"], row["devices"]): row for row in summary["rows"]}
    for (count, both), faster in zip({1: (1.0, 1.0), **scalings}.items(), speed_ups, strict=True):
        assert (found["fp32", count]["weak"], found["fp16", count]["weak"]) == both
        assert found["fp16", count]["speed_up"] == pytest.approx(faster, abs=0.0101)  # some of theirs are cut off
        assert found["fp32", count]["speed_up"] is None


def test_hours_need_every_length_and_take_the_fastest_batch() -> None:
    """Rows over rates: 3,600 rows at 1 a second and 7,200 at 4 are 1.5 hours; at twice the rates half of that."""
    ours = [
        rate(0.25, length=512, precision="fp32"),
        rate(1, length=512, precision="fp32"),
        rate(0.5, length=512, precision="fp32"),
        rate(4, length=128, precision="fp32"),
        rate(8, length=128, precision="fp16"),
        rate(2, length=512, precision="fp16"),
        rate(99, length=128, precision="bf16"),
    ]
    found = table.hours_by_way(ours, ((512, 3600), (128, 7200)))
    assert [(row["precision"], row["hours"], row["speed_up"]) for row in found] == [
        ("fp32", 1.5, None),
        ("fp16", 0.75, 2.0),
    ]


def test_strong_scaling_is_of_the_same_rows() -> None:
    one, four = rate(100, batch=64), rate(350, batch=64, processes=4)
    assert table.scaling(four, [one, four], "strong") == 3.5
    assert table.scaling(four, [rate(70, batch=64), one, four], "strong") == 3.5, "the latest counts"
    assert table.scaling(four, [one, four], "weak") is None


def test_time_to_train_is_rows_over_rates_of_all_lengths() -> None:
    """NVIDIA's, of one DGX A100: 10,000 steps of 67,584 rows at 128, then 930 of 27,648 at 512."""
    eight = {"processes": 8, "device": "A100"}
    ours = [
        rate(7512, precision="bf16", **eight),
        rate(1347, precision="bf16", length=512, **eight),
        rate(4202, precision="tf32", **eight),
        rate(716, precision="tf32", length=512, **eight),
        rate(9000, precision="fp16", **eight),
    ]
    found = table.hours_by_way(ours, ((128, 675_840_000), (512, 25_712_640)))
    hours = {line["precision"]: (line["hours"], line["speed_up"]) for line in found}
    assert hours == {"bf16": (30.29, 1.8), "tf32": (54.65, None)}  # theirs: 30.47 and 54.84, 1.8
    assert found[0]["devices"] == 8


def test_rows_say_what_their_measurements_say() -> None:
    ours = rate(64, energy=32.0, energy_of="RAPL", memory=3 << 29, batch=8)
    theirs = rate(16, software="transformers", batch=8)
    failed = CellResult(("length=512",), why="no memory is left")
    shown = table.summary("some", Axes(), [CellResult((), (ours, theirs)), failed])
    [row] = shown["rows"]
    assert (row["sequences_per_second"], row["slowest"], row["fastest"]) == (64, 32, 128)
    assert (row["joules_a_sequence"], row["memory_gib"]) == (4, 1.5)
    assert (row["transformers"], row["ratio"]) == (16, 4)
    assert "weak" not in row  # there is but one device
    two = CellResult((), (rate(96, processes=2, batch=16),))
    assert [row["weak"] for row in table.summary("some", Axes(), [CellResult((), (ours,)), two])["rows"]] == [1, 1.5]
    lines = table.markdown(shown)
    assert lines[0].startswith("some on Some CPU, torch 2.10, ordsmed 0.1.0, 2026-01-31T12:00:00Z")
    names, _, values = (line.strip("| ").split(" | ") for line in lines[2:5])
    cells_by_name = dict(zip(names, values, strict=True))
    assert cells_by_name["sequences per second"] == "64"
    assert "speed up" not in names  # nothing is known of it
    assert "not measured: length=512: no memory is left" in lines


def test_latencies_stand_in_both_ways() -> None:
    facts = {
        "batch_16": {"latency_ms": {"mean": 3}},
        "batch_16_padded": {"nvidia_latency_ms": {"mean": 5}, "nvidia_examples_per_second": 7},
    }
    asked = rate(10, measure="predict", length=384)
    [row] = table.summary("some", Axes(), [CellResult((), (asked, rate(5, software="padded")), facts)])["rows"]
    assert row["latency_ms"] == {"mean": 3}
    assert (row["nvidia_latency_ms"], row["nvidia_sequences_per_second"]) == ({"mean": 5}, 7)


def test_published_figures_are_marked_where_the_hardware_is_other() -> None:
    ours = rate(600, **LIKE_THEIRS, precision="bf16", device="NVIDIA A100-SXM4-40GB", processes=1)
    figures = published_figures.comparable("nvidia-electra", ours)
    assert [(each["device"], each["sequences_per_second"], each["other_hardware"]) for each in figures] == [
        ("A100", 955, False),
        ("V100 16 GB", 444, True),
        ("V100 32 GB", 500, True),
    ]
    lines = table.markdown(table.summary("x", Axes(published="nvidia-electra"), [CellResult((), (ours,))]))
    assert "1 A100: 955; 1 V100 16 GB: 444 (other hardware); 1 V100 32 GB: 500 (other hardware)" in lines[4]
    assert lines[-1].startswith("Published: NVIDIA, DeepLearningExamples")
    eight = rate(1, **LIKE_THEIRS, precision="fp32", length=512, processes=8, device="Some CPU")
    assert {each["sequences_per_second"] for each in published_figures.comparable("nvidia-electra", eight)} == {
        716,
        190,
        213,
    }
    asked = rate(1, **LIKE_THEIRS, measure="predict", length=384, batch=256, precision="fp16", device="T4")
    t4 = next(each for each in published_figures.comparable("nvidia-electra", asked) if each["device"] == "T4")
    assert (t4["sequences_per_second"], t4["latency_ms"], t4["other_hardware"]) == (
        169,
        [1451.396, 1445.07, 1447.654, 1450.141],
        False,
    )
    other_batch = rate(1, **LIKE_THEIRS, measure="predict", length=384, batch=3)
    assert published_figures.comparable("nvidia-electra", other_batch) == []
    assert (
        published_figures.comparable("nvidia-electra", rate(600, **LIKE_THEIRS | {"width": 256})) == []
    )  # of electra-small


@pytest.mark.parametrize(
    ("device", "same"),
    [
        ("Tesla V100-SXM2-16GB", ["V100 16 GB"]),
        ("Tesla V100-SXM3-32GB", ["V100 32 GB"]),
        ("NVIDIA A100-SXM4-80GB", ["A100"]),
        ("NVIDIA A1000", []),
        ("Some CPU", []),
    ],
)
def test_hardware_is_the_same_where_chip_and_memory_are(device: str, same: list[str]) -> None:
    figures = published_figures.comparable("nvidia-electra", rate(1, **LIKE_THEIRS, precision="fp16", device=device))
    assert [each["device"] for each in figures if not each["other_hardware"]] == same


def test_cells_that_fail_do_not_stop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def measured(name: str, words: list[str]) -> CellResult:
        given.append(words)
        if "length=64" in words:
            return CellResult(tuple(words), why="no memory is left")
        return CellResult(tuple(words), (rate(32),))

    monkeypatch.setattr(table, "_run", measured)
    (line,) = bench("bert-mini", ["table={lengths=[64, 128]}", "keep=there.jsonl"], json_line=True)
    found = json.loads(line)
    assert [each["cell"] for each in found["failed"]] == ["length=64"]
    assert [row["sequences_per_second"] for row in found["rows"]] == [32]
    assert measurements.read(Path("there.jsonl")) == [rate(32)]
    assert all(words[2] == "table=none" for words in given)
    assert json.loads(Path("work/bench/bert-mini.json").read_text()) == found
    assert Path("work/bench/bert-mini.md").read_text().splitlines() == table.markdown(found)


def test_where_every_cell_fails_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_run", lambda *_: CellResult((), why="no memory is left"))
    with pytest.raises(RunError, match=r"bert-mini: nothing was measured; no memory is left \(2 in total\)"):
        bench("bert-mini", ["table={lengths=[64, 128]}", "keep="])
    assert not Path("work").exists()


def test_a_kill_in_a_later_cell_leaves_the_table_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([CellResult((), (rate(32),))])
    monkeypatch.setattr(table, "_run", lambda *_: next(results))
    with pytest.raises(StopIteration):
        bench("bert-mini", ["table={lengths=[64, 128]}"])
    assert len(json.loads(Path("work/bench/bert-mini.json").read_text())["rows"]) == 1


def test_a_table_that_was_broken_off_goes_on_with_the_same_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    fails: list[str] = ["length=64"]

    def measured(name: str, words: list[str]) -> CellResult:
        given.append(words[-1])
        if words[-1] == "length=256":
            raise KeyboardInterrupt
        if words[-1] in fails:
            return CellResult((), why="no memory is left")
        return CellResult((), (rate(len(given)),), {"profile": {"products": 0.5}})

    monkeypatch.setattr(table, "_run", measured)
    axes = "table={lengths=[128, 64, 256]}"
    with pytest.raises(KeyboardInterrupt):
        bench("bert-mini", [axes])
    monkeypatch.setattr(table, "_run", lambda name, words: measured(name, [words[-1].replace("256", "32")]))
    fails.clear()
    found = json.loads(bench("bert-mini", [axes], json_line=True)[0])
    assert given == ["length=128", "length=64", "length=256", "length=64", "length=32"]  # what failed is tried again
    assert [row["sequences_per_second"] for row in found["rows"]] == [1, 4, 5]
    assert found["rows"][0]["profile"] == {"products": 0.5}
    assert [one.sequences_per_second for one in measurements.read(measurements.DEFAULT_PATH)] == [1, 4, 5]  # each once
    assert not Path("work/bench/bert-mini.part").exists()
    bench("bert-mini", [axes])
    assert len(given) == 8  # a complete table is measured again


@pytest.mark.parametrize("change", ["words", "version", "machine", "damaged"])
def test_what_another_command_has_measured_is_measured_again(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([CellResult((), (rate(1),))])
    monkeypatch.setattr(table, "_run", lambda *_: next(results))
    with pytest.raises(StopIteration):
        bench("bert-mini", ["table={lengths=[128, 64]}"])
    if change == "version":
        monkeypatch.setattr("ordsmed.__version__", "0.0")
    if change == "machine":
        monkeypatch.setattr("platform.node", lambda: "elsewhere")
    if change == "damaged":
        Path("work/bench/bert-mini.part").write_text('{"of"')
    results = iter([CellResult((), (rate(2),)), CellResult((), (rate(3),))])
    words = ["table={lengths=[128, 64]}", *(["batch=4"] if change == "words" else [])]
    found = json.loads(bench("bert-mini", words, json_line=True)[0])
    assert [row["sequences_per_second"] for row in found["rows"]] == [2, 3]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL: the system ran out of memory, or a user killed it"),
        ("raise SystemExit(137)", "ended by SIGKILL: the system ran out of memory, or a user killed it"),
        (
            "import sys; print('a\\nbert: no memory is left\\n', file=sys.stderr); sys.exit(2)",
            "bert: no memory is left",
        ),
        ("import sys; print('ordsmed: bert-mini: no memory', file=sys.stderr); sys.exit(2)", "no memory"),
        ("import sys; print('x\\nordsmed: one\\nordsmed: its 2 processes', file=sys.stderr); sys.exit(1)", "one"),
        ("raise SystemExit(3)", "ended with status 3"),
        ("print('{}')", "wrote no measurement"),
    ],
)
def test_why_a_cell_failed(monkeypatch: pytest.MonkeyPatch, code: str, why: str) -> None:
    real = table.subprocess.run
    monkeypatch.setattr(table.subprocess, "run", lambda *_, **more: real([sys.executable, "-c", code], **more))
    assert table._run("bert-mini", []).why == why


def test_no_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(recipe: Bench) -> Any:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setitem(benches.KEPT, "training", full)
    why = r"bert-mini: no memory is left: length 128, batch 16, micro auto; use a smaller layout\.micro, or layout\.rec"
    with pytest.raises(Exception, match=why):
        bench("bert-mini")
    monkeypatch.setitem(benches.KEPT, "training", lambda recipe: [][0])
    with pytest.raises(IndexError):
        bench("bert-mini")


SMALL = [
    "model.width=32",
    "model.layers=1",
    "model.heads=2",
    "model.inner=64",
    "vocabulary=300",
    "tokens=5000",
    "length=16",
    "batch=4",
    "steps=4",
    "layout.device=cpu",
    "layout.threads=1",
]


@pytest.mark.long
def test_a_table_of_real_cells() -> None:
    """Two processes have twice the rows of one; a CPU has no tf32, so its cell fails and the other is reported."""
    axes = "table={cells=[['layout.precision=tf32'], ['devices=2']]}"
    found = json.loads(bench("bert-mini", [*SMALL, axes], json_line=True)[0])
    assert [(row["devices"], row["batch"], row["weak"]) for row in found["rows"]] == [(2, 8, None)]
    [failed] = found["failed"]
    assert failed["why"] == "layout.precision: found tf32, which a CPU does not have; use fp32 or fp16"
    [kept] = measurements.read(measurements.DEFAULT_PATH)
    assert (kept.bench, kept.processes, kept.layout, kept.batch, kept.micro) == ("bert-mini", 2, "2x1x1", 8, 4)
    assert kept.memory > 0
    assert found["rows"][0]["sequences_per_second"] == float(f"{kept.sequences_per_second:.4g}")
