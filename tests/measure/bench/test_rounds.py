"""Rounds, energy and profiles: what is made of clocks, counters and operations that are given."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.base.machine import host, memory
from ordsmed.measure.bench import energy, profile, rounds
from ordsmed.measure.bench.profile import Profile, VocabularySizes, kind_of, seconds_by_kind
from ordsmed.measure.bench.rounds import Rounds, RowWaits, Spread
from ordsmed.nn.loss import sampled_loss

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    def wind(times: Iterable[float]) -> None:
        moments = iter(times)
        monkeypatch.setattr(rounds, "now", lambda device: next(moments))

    return wind


def test_the_clock_is_read_between_rounds_alone(clock: Any) -> None:
    """7 steps in 3 rounds, of 2, 2 and 3; two warm up. Energy is that of the rounds."""
    clock([10.0, 14.0, 15.0, 21.0])
    joules = itertools.accumulate([100.0, 5.0, 6.0, 7.0])
    measured = Rounds(CPU, 7, 3, 2, lambda: next(joules))
    for step in range(1, 10):
        measured.end_of_step(step)
    assert measured.seconds == [2.0, 0.5, 2.0]
    assert measured.energy == 18 / 7
    assert Spread.of(measured.seconds) == Spread(2.0, 0.5, 2.0)


def test_a_round_in_which_something_was_compiled_is_left_out_where_others_stand(clock: Any) -> None:
    counts = iter([8, 8, 8, 10, 10, 10, 10])  # warm; then at the end of each round, and when the next begins
    clock([0.0, 1.0, 21.0, 23.0])
    measured = Rounds(CPU, 3, 3, 1, float, graphs=counts.__next__)
    for step in range(1, 5):
        measured.end_of_step(step)
    assert (measured.seconds, measured.compiled) == ([1.0, 20.0, 2.0], [False, True, False])
    assert measured.steady(measured.seconds) == [1.0, 2.0]
    assert measured.steady([5.0, 6.0, 7.0]) == [5.0, 7.0]
    measured.energies = [6.0, 99.0, 8.0]
    assert measured.energy == 7.0
    measured.compiled = [True] * 3
    assert measured.steady(measured.seconds) == [1.0, 20.0, 2.0]


def test_there_are_no_more_rounds_than_steps(clock: Any) -> None:
    clock([0.0, 1.0, 3.0])
    measured = Rounds(CPU, 2, 5, 1, float)
    for step in range(1, 4):
        measured.end_of_step(step)
    assert measured.seconds == [1.0, 2.0]


def test_what_is_measured_beside_has_its_turn_before_each_round(clock: Any) -> None:
    """It warms up first; neither's time is in the other's."""
    asked = list[int]()
    clock([0.0, 100.0, 106.0, 110.0, 114.0, 120.0])  # begin, warm, its 2 steps, our 2, its 2, our 2
    measured = Rounds(CPU, 4, 2, 3, float, asked.append)
    for step in range(1, 8):
        measured.end_of_step(step)
    assert asked == [3, 2, 2]
    assert measured.reference_seconds == [3.0, 2.0]
    assert measured.seconds == [2.0, 3.0]


def test_rows_that_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1.0, 1.5])
    watch = RowWaits(SimpleNamespace(store=None), 60.0)  # type: ignore[arg-type]
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    watch.at(1, "making rows")
    watch.since = 0.5
    watch.at(1, "learning")  # 1.0 - 0.5
    watch.at(2, "making rows")
    watch.since = 1.25
    watch.at(2, "learning")  # 1.5 - 1.25
    assert watch.waited == 0.75


def event(name: str, *, cpu: float = 0, cuda: float = 0, shapes: Any = (), parent: Any = None) -> Any:
    return SimpleNamespace(
        name=name,
        self_cpu_time_total=cpu,
        self_device_time_total=cuda,
        input_shapes=shapes,
        cpu_parent=parent,
        device_type=torch.autograd.DeviceType.CPU,
        is_user_annotation=False,
    )


WIDE = VocabularySizes({30_522})
DRAWN = event("_SampledLoss")
STEP = event("Optimizer.step#AdamW.step")
MATH = event("aten::_scaled_dot_product_attention_math")


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (event("aten::addmm", shapes=[[768], [64, 768], [768, 768]]), "products"),
        (event("aten::mm", shapes=[[64, 768], [768, 30_592]]), "head"),
        (event("aten::_log_softmax", shapes=[[64, 30_522]]), "head"),
        (event("aten::mm", shapes=[[64, 768], [768, 30_650]]), "products"),
        (event("aten::embedding", shapes=[[30_522, 768], [64]]), "other"),
        (event("aten::index_select", shapes=[[30_522, 768], [64]]), "other"),
        (event("aten::mm", shapes=[[64, 512], [512, 8_192]], parent=DRAWN), "head"),
        (event("aten::mm", shapes=[[64, 512], [512, 8_192]]), "products"),
        (event("aten::mul", parent=event("_SampledLossBackward")), "head"),
        (event("aten::_fused_adamw_", shapes=[[[30_522, 768], [768]]]), "optimizer"),
        (event("aten::mul", parent=STEP), "optimizer"),
        (event("aten::_foreach_norm"), "optimizer"),
        (event("aten::_foreach_copy_"), "other"),
        (event("aten::_fused_sdp_choice", parent=MATH), "attention"),
        (event("aten::bmm", parent=event("aten::matmul", parent=MATH)), "attention"),
        (event("aten::bmm"), "attention"),
        (event("aten::_scaled_dot_product_flash_attention_for_cpu_backward"), "attention"),
        (event("aten::gelu"), "other"),
    ],
)
def test_every_operation_has_a_kind(one: Any, kind: str) -> None:
    assert kind_of(one, WIDE, attends=True) == kind


def test_products_of_networks_without_attention_are_products() -> None:
    assert kind_of(event("aten::bmm"), WIDE, attends=False) == "products"


def test_times_are_those_of_the_device() -> None:
    events = [event("aten::mm", cpu=2e6, cuda=5e6), event("aten::mm", cpu=1e6, cuda=1e6), event("aten::gelu", cpu=3e6)]
    kernel = event("ampere_gemm", cuda=9e6)
    kernel.device_type = torch.autograd.DeviceType.CUDA  # counted by the operation that started it
    on_cpu = seconds_by_kind([*events, kernel], WIDE, cuda=False, attends=True)
    assert on_cpu == {"products": 3, "attention": 0, "head": 0, "optimizer": 0, "other": 3}
    on_gpu = {"products": 6, "attention": 0, "head": 0, "optimizer": 3, "other": 0}  # 3 s no operation has started
    assert seconds_by_kind([*events, kernel], WIDE, cuda=True, attends=True) == on_gpu
    kernel.is_user_annotation = True
    assert seconds_by_kind([*events, kernel], WIDE, cuda=True, attends=True) == {**on_gpu, "optimizer": 0}


def test_scores_of_drawn_words_are_the_heads_and_a_layer_as_wide_is_not() -> None:
    hidden, table = torch.randn(8, 16, requires_grad=True), torch.randn(64, 16, requires_grad=True)
    bias, words, targets = torch.zeros(64), torch.arange(64), torch.zeros(8, dtype=torch.long)
    drawn = hidden, (hidden, bias[:8]), (table, bias), targets, bias[:8], words
    seconds = []
    for makes in (lambda: hidden @ table.T, lambda: sampled_loss(*drawn)):
        seen = Profile(CPU, VocabularySizes({5_000}), attends=False)
        seen.begin()
        makes().sum().backward()
        seen.end(0.0)
        seconds.append(seen.seconds)
    assert seconds[0]["head"] == 0 < seconds[0]["products"]
    assert seconds[1]["head"] > 0
    assert seconds[1]["products"] == 0


@pytest.mark.long
def test_a_profile_of_real_operations_makes_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps take ten seconds, two of them waiting for rows; the head is far wider than the layers."""
    moments = iter([0.0, 10.0])
    monkeypatch.setattr(profile, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    head, x = torch.nn.Linear(64, 5_000), torch.randn(64, 64)
    seen = Profile(CPU, VocabularySizes({5_000}), attends=True)
    seen.begin()
    head(x).sum().backward()
    seen.end(2.0)
    shares = seen.shares()
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)
    assert shares["waiting"] == 0.2
    assert seen.seconds["head"] > 0
    assert seen.seconds["attention"] == seen.seconds["optimizer"] == 0


def zone(root: Path, name: str, count: int) -> Path:
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "max_energy_range_uj").write_text("10000000\n")
    (folder / "energy_uj").write_text(f"{count}\n")
    return folder


def test_packages_tell_their_energy_and_begin_anew_when_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "ROOT", tmp_path)
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        zone(tmp_path, name, 9_000_000)
    with energy.meter(CPU) as (source, joules):
        assert (source, joules()) == ("RAPL", 0)
        zone(tmp_path, "intel-rapl:0", 9_500_000)
        zone(tmp_path, "intel-rapl:0:0", 9_400_000)  # a part of the first
        assert joules() == 0.5
        zone(tmp_path, "intel-rapl:1", 1_000_000)
        assert joules() == 2.5


@pytest.mark.parametrize("readable", [True, False])
def test_a_machine_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: bool) -> None:
    monkeypatch.setattr(energy, "ROOT", tmp_path)
    if not readable:
        (zone(tmp_path, "intel-rapl:0", 1) / "energy_uj").unlink()
    with energy.meter(CPU) as (source, joules):
        assert (source, joules()) == ("", 0)


def test_a_gpu_that_counts_tells_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """In millijoules since it was started, not what it drew in the last second."""
    counts = iter([7_000_000, 7_250_000, 9_500_000])
    nvml = SimpleNamespace(nvmlDeviceGetTotalEnergyConsumption=lambda gpu: next(counts) if gpu == "GPU 1" else 0)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "_get_pynvml_handler", lambda device: f"GPU {device.index}")
    monkeypatch.setattr(torch.cuda, "power_draw", lambda device: pytest.fail("was asked"))
    with energy.meter(torch.device("cuda:1")) as (source, joules):
        assert (source, joules(), joules()) == ("NVML", 250, 2_500)


def test_what_an_older_gpu_draws_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 watts, looked at after each second of a clock, for 3 seconds; it counts nothing."""
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "_get_pynvml_handler", str)
    moments = iter(range(10))
    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    monkeypatch.setattr(torch.cuda, "power_draw", lambda device: 200_000)
    waits = iter([False, False, False, True])
    monkeypatch.setattr(energy, "Event", lambda: SimpleNamespace(wait=lambda _: next(waits), set=lambda: None))
    with energy.meter(torch.device("cuda")) as (source, joules):
        pass
    assert (source, joules()) == ("NVML", 600)


def test_a_gpu_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(device: object) -> int:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "power_draw", lacks)
    with energy.meter(torch.device("cuda")) as (source, joules):
        assert (source, joules()) == ("", 0)


def test_what_a_process_held_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ROOT", tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tx\nVmHWM:\t    2048 kB\n")
    memory.reset_peak_memory(CPU)
    assert (tmp_path / "proc/self/clear_refs").read_text() == "5"
    assert memory.peak_memory(CPU) == 2 << 20
    (tmp_path / "proc/self/status").unlink()
    assert memory.peak_memory(CPU) > 1 << 20
