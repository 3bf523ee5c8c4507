"""`--layout auto` without real steps: which way is taken of given speeds, and what counts as no room."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.clocks import set_time
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.ranks import ProcessInfo, Ranks
from ordsmed.learn.phases import Phase
from ordsmed.train import auto
from ordsmed.train.mesh.layout import Layout

CPU, GPU = Ranks(torch.device("cpu")), Ranks(torch.device("cuda"))


@dataclass(frozen=True)
class Recipe:
    """As much of a training as is looked at."""

    phases: tuple[Phase, ...]
    layout: Layout = field(default_factory=lambda: Layout(micro=3, threads=2))


def phases(*batches: int) -> tuple[Phase, ...]:
    return tuple(Phase(steps=1, length=16, batch=batch, learning_rate=1.0) for batch in batches)


def planned(recipe: Any, ranks: Ranks, build: Callable[[], Any] | None = None) -> Any:
    """As much of a plan as is asked."""
    return SimpleNamespace(
        recipe=recipe,
        ranks=ranks,
        build=build or (lambda: Job(recipe, ranks)),
        by=lambda recipe: planned(recipe, ranks, build),
        on=lambda ranks: planned(recipe, ranks, build),
    )


@dataclass(frozen=True)
class Job:
    """As much of a job as is tried."""

    recipe: Any
    ranks: Ranks = CPU

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.recipe.phases  # type: ignore[no-any-return]


free = auto.free_memory


@pytest.mark.long
@pytest.mark.parametrize("ranks", [CPU, GPU])
def test_a_gpu_lets_go_of_what_was_tried(monkeypatch: pytest.MonkeyPatch, ranks: Ranks) -> None:
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("memory"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: done.append(f"peak of {device}"))
    free(ranks)
    assert done == (["memory", "peak of cuda"] if ranks is GPU else [])


@pytest.fixture(autouse=True)
def _nothing_to_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "free_memory", lambda ranks: None)


def test_micro_batches_about_double() -> None:
    assert [auto.divisors(n) for n in (1, 2, 7, 12, 24, 30, 64)] == [
        [1],
        [1, 2],
        [1, 7],
        [1, 2, 4, 12],
        [1, 2, 4, 8, 24],
        [1, 2, 5, 10, 30],
        [1, 2, 4, 8, 16, 32, 64],
    ]


@pytest.mark.parametrize(
    ("ranks", "speeds", "micro"),
    [
        (CPU, {1: 10.0, 2: 10.3, 4: 10.4, 8: 99.0}, 2),  # a CPU: until the next is hardly faster
        (CPU, {1: 10.0, 2: 10.2, 4: 10.404, 8: 10.6}, 4),
        (CPU, {1: 10.0, 2: 0.0, 4: 99.0, 8: 99.0}, 1),
        (GPU, {1: 10.0, 2: 9.0, 4: 8.0, 8: 0.0}, 4),  # a GPU: as long as there is room
        (GPU, {1: 10.0, 2: 9.0, 4: 8.0, 8: 7.0}, 8),
    ],
)
def test_the_largest_that_pays(
    monkeypatch: pytest.MonkeyPatch, ranks: Ranks, speeds: dict[int, float], micro: int
) -> None:
    monkeypatch.setattr(auto, "_time_micro_batch", lambda job, index, micro, ranks, times=1: speeds[micro])
    found, seconds = auto.largest_micro_batches(planned(Recipe(phases(8)), ranks))
    assert found == Layout(micro=(micro,), threads=2)
    assert seconds == pytest.approx(8 / speeds[micro])


def test_every_phase_has_its_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the rows of one rank; each phase is tried with a job that is made for it."""
    tried: list[tuple[int, int]] = []
    built: list[Any] = []
    monkeypatch.setattr(
        auto, "_time_micro_batch", lambda job, index, micro, ranks, **_: tried.append((index, micro)) or 1234.56
    )
    monkeypatch.setattr(auto, "_has_memory", lambda times, ranks: True)
    two = Ranks(torch.device("cuda"), world=2, shape=(2, 1, 1))
    plan = planned(Recipe(phases(8, 4)), two)
    plan.by = lambda recipe: planned(recipe, two, lambda: built.append(recipe) or Job(recipe, two))
    assert auto.largest_micro_batches(plan)[0].micro == (4, 2)
    assert tried == [(0, 1), (0, 2), (0, 4), (1, 1), (1, 2)]
    assert [made.layout for made in built] == [Layout(micro=0, threads=2)] * 2
    said = capsys.readouterr().err
    assert "auto: phase 2, micro 2: 1,234.6 rows/s a rank" in said
    assert "auto: layout.micro = [4, 2]" in said


def test_a_phase_without_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_time_micro_batch", lambda job, index, micro, ranks, **_: 1.0 - index)
    with pytest.raises(
        RecipeError, match=r"^phase\[2\]: one row of 16 tokens does not fit in memory; use layout.shard"
    ):
        auto.largest_micro_batches(planned(Recipe(phases(8, 4)), CPU))


CPU_FULL = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), MemoryError(), CPU_FULL])
def test_where_weights_have_no_room_there_is_no_speed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_: object, **__: object) -> Any:
        raise error

    recipe: Any = Recipe(phases(8))
    assert auto._build(planned(recipe, CPU, full)) is None
    assert auto._time_micro_batch(None, 0, 1, GPU) == 0.0
    job: Any = Job(recipe)
    monkeypatch.setattr(auto, "speed_of", full)
    assert auto._time_micro_batch(job, 0, 1, GPU) == 0.0
    error = RuntimeError("shapes do not fit")
    for act in (lambda: auto._build(planned(recipe, CPU, full)), lambda: auto._time_micro_batch(job, 0, 1, GPU)):
        with pytest.raises(RuntimeError, match="shapes"):
            act()


def test_a_micro_batch_is_tried_in_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU only where memory is left: there is no error to wait for."""
    asked: list[Any] = []
    monkeypatch.setattr(auto, "speed_of", lambda job, index, times: asked.append((job.recipe.layout, index)) or 7.5)
    job: Any = Job(Recipe(phases(8, 8)))
    for room, ranks, speed in ((True, CPU, 7.5), (False, CPU, 0.0), (False, GPU, 7.5)):
        monkeypatch.setattr(auto, "_has_cpu_memory", lambda room=room: room)
        assert auto._time_micro_batch(job, 1, 4, ranks) == speed
    assert asked == [(Layout(micro=4, threads=2), 1)] * 2


@pytest.mark.parametrize(("free", "room"), [(11, True), (9, False)])
def test_nine_tenths_of_memory_may_be_filled(monkeypatch: pytest.MonkeyPatch, free: int, room: bool) -> None:
    text = f"MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  {free * 10} kB\nno colon\n"
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert auto._has_cpu_memory() is room


@pytest.mark.parametrize(("kind", "filled", "speed"), [("cpu", 0, 8.0), ("cuda", 90, 8.0), ("cuda", 91, 0.0)])
def test_the_second_micro_batch_is_timed(monkeypatch: pytest.MonkeyPatch, kind: str, filled: int, speed: float) -> None:
    """Nothing is learned meanwhile, and no more rows are read than one micro-batch a rank."""
    times = iter([0.0, 9.0, 10.0, 10.5])
    taken: list[Any] = []
    share = Layout(micro=4).share(phases(8)[0], 1, "cpu", 0, 2)
    job: Any = SimpleNamespace(
        share=lambda index: share,
        rows=lambda index: "rows",
        phases=phases(8),
        ranks=SimpleNamespace(device=torch.device(kind), world=1),
        objective=SimpleNamespace(begin=lambda row, micro: taken.append(("begin", row, micro))),
    )
    set_time(monkeypatch, auto, **{"thread_time" if kind == "cpu" else "perf_counter": lambda: next(times)})
    load = lambda rows, cut, first, stop, workers, device: iter([(cut.batch, cut.micro, first, stop, workers)])  # noqa: E731
    monkeypatch.setattr(auto, "load", load)
    update = lambda job, batches, rate, index, step: taken.append((batches, rate, index, step)) or ({}, 0.0, "")  # noqa: E731
    monkeypatch.setattr(auto.loop, "train_step", update)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=100))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: filled)
    assert auto.speed_of(job, 0) == speed
    assert [one for one in taken if one[0] != "begin"] == [((8, 4, 0, 1, 0), 0.0, 0, 0), ((8, 4, 1, 2, 0), 0.0, 0, 1)]
    assert [one for one in taken if one[0] == "begin"] == [("begin", 0, 4)] * 2


FOUR = Ranks(torch.device("cuda"), world=4, shape=(4, 1, 1), process=ProcessInfo(0, 4, 0, 2))
Way = tuple[int, bool]  # shard, recompute


@pytest.mark.parametrize(
    ("ranks", "layout", "micros", "seconds", "tried", "taken"),
    [
        # a GPU: all are tried, the fastest is taken; where all rows fit at once, recomputing is not tried
        (FOUR, {}, {}, {(2, False): 3.0}, [(1, False), (2, False), (4, False)], (2, False)),
        (FOUR, {}, {(1, False): 1}, {(1, True): 2.0}, [(1, False), (1, True), (2, False), (4, False)], (1, True)),
        (
            FOUR,
            {},
            {(1, False): 0, (1, True): 0, (2, False): 1},
            {(2, False): 2.0},
            [(1, False), (1, True), (2, False), (2, True), (4, False)],
            (2, False),
        ),
        # what a recipe says stays
        (FOUR, {"replicate": 4}, {}, {}, [(1, False)], (1, False)),
        (FOUR, {"shard": 2}, {}, {}, [(2, False)], (2, False)),
        (FOUR, {"recompute": True}, {}, {}, [(1, True), (2, True), (4, True)], (1, True)),
        # a CPU: the first that has room
        (CPU, {}, {}, {}, [(1, False)], (1, False)),
        (CPU, {}, {(1, False): 1}, {}, [(1, False)], (1, False)),
        (CPU, {}, {(1, False): 0}, {}, [(1, False), (1, True)], (1, True)),
    ],
)
def test_the_way_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    ranks: Ranks,
    layout: dict[str, Any],
    micros: dict[Way, int],
    seconds: dict[Way, float],
    tried: list[Way],
    taken: Way,
) -> None:
    """`micros`: rows that fit at a time, all where nothing is said, 0: none; `seconds`: of the run, 9 where nothing."""
    asked: list[Way] = []

    def largest_micro_batches(candidate: Any) -> tuple[Layout, float]:
        own = candidate.recipe.layout
        key = (own.shard, own.recompute)
        asked.append(key)
        assert own.shape(ranks.world) == candidate.ranks.shape
        if micros.get(key) == 0:
            raise RecipeError("phase[1]", "one row does not fit")
        return replace(own, micro=(micros.get(key, 8 // candidate.ranks.data_world),)), seconds.get(key, 9.0)

    monkeypatch.setattr(auto, "largest_micro_batches", largest_micro_batches)
    monkeypatch.setattr(auto, "init_mesh", lambda ranks, shape: replace(ranks, shape=shape))
    start = Layout(micro=3, threads=2, **layout)
    found = auto.choose_layout(planned(Recipe(phases(8), start), replace(ranks, shape=start.shape(ranks.world))))
    assert asked == tried
    own = found.recipe.layout
    assert (own.shard, own.recompute, found.ranks.shape[1]) == (*taken, taken[0])


def test_where_nothing_fits_the_first_way_is_complained_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest_micro_batches(candidate: Any) -> Any:
        raise RecipeError("phase[1]", f"recompute {candidate.recipe.layout.recompute}")

    monkeypatch.setattr(auto, "largest_micro_batches", largest_micro_batches)
    with pytest.raises(RecipeError, match="recompute False"):
        auto.choose_layout(planned(Recipe(phases(8)), CPU))


def test_of_a_refused_way_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two networks at once may be more than memory holds."""
    built: list[weakref.ref[Job]] = []
    alive: list[list[bool]] = []
    recipe = Recipe(phases(2))

    def build() -> Job:
        alive.append([job() is not None for job in built])
        job = Job(recipe)
        object.__setattr__(job, "own", job)  # as networks hold themselves
        built.append(weakref.ref(job))
        return job

    speeds = iter([0.0, 5.0, 9.0])
    monkeypatch.setattr(auto, "free_memory", free)
    monkeypatch.setattr(auto, "_time_micro_batch", lambda job, index, micro, ranks, **_: next(speeds))
    assert auto.choose_layout(planned(recipe, CPU, build)).recipe.layout.recompute
    assert alive == [[], [False]]


TWO = Ranks(torch.device("cuda"), rank=1, world=2, shape=(2, 1, 1))


@pytest.mark.parametrize(
    ("ranks", "most", "micro"),
    [
        (TWO, 20, 8),  # 10 are held, and 10 a micro-batch of any size takes: twice as many are thought to take 30
        (TWO, 50, 8),
        (TWO, 51, 1),
        (GPU, 99, 8),  # a process that is alone tries
    ],
)
def test_of_several_gpus_none_runs_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ranks: Ranks, most: int, micro: int
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 10)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: most)
    monkeypatch.setattr(auto, "slowest", lambda speed, ranks: speed)
    monkeypatch.setattr(auto, "_time_micro_batch", lambda *_, **__: 5.0)
    assert auto.largest_micro_batches(planned(Recipe(phases(8 * ranks.world)), ranks))[0].micro == (micro,)
    assert ("phase 1, micro 2: skipped" in capsys.readouterr().err) is (micro == 1)


def test_one_that_has_not_so_much_as_a_network_keeps_the_others_from_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "slowest", lambda speed, ranks: 0.0)
    monkeypatch.setattr(auto, "speed_of", lambda *_, **__: pytest.fail("it would wait for the other one"))
    job: Any = Job(Recipe(phases(8)), TWO)
    assert auto._time_micro_batch(job, 0, 1, TWO) == 0.0


@pytest.mark.parametrize("other", [True, False])
def test_one_that_alone_has_no_room_ends(monkeypatch: pytest.MonkeyPatch, other: bool) -> None:
    """The others wait for it in their step; where none has room the next way is tried."""
    ranks = replace(TWO, store=torch.distributed.HashStore())

    def full(*_: object, **__: object) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(auto, "WAIT", 0.1)
    monkeypatch.setattr(auto, "speed_of", full)
    monkeypatch.setattr(auto, "slowest", lambda speed, ranks: speed)
    job: Any = Job(Recipe(phases(8)), ranks)
    if other:
        ranks.store.set(f"full/{auto._trials + 1}/0", "")
        assert auto._time_micro_batch(job, 0, 4, ranks) == 0.0
    else:
        with pytest.raises(RunError, match=r"^rank 1: ran out of memory alone, for phase 1, micro 4; name a smaller"):
            auto._time_micro_batch(job, 0, 4, ranks)


@pytest.mark.parametrize(("two", "seconds"), [(4.0, 2.0), (2.0, 5.0), (0.0, 2.0), (9.0, 0.5)])
def test_a_step_is_an_update_and_its_micro_batches(monkeypatch: pytest.MonkeyPatch, two: float, seconds: float) -> None:
    monkeypatch.setattr(auto, "_time_micro_batch", lambda job, index, micro, ranks, times: two)
    job: Any = Job(Recipe(phases(8)))
    assert auto._step_seconds(job, 0, 2, 4.0, GPU) == seconds
    assert auto._step_seconds(job, 0, 2, 4.0, CPU) == 2.0
