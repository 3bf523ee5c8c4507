"""Machine: devices that are there, threads that are free, memory that may be had, speeds that are measured shortly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kit.clocks import set_time
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.machine import devices, host, memory, speed, threads
from ordsmed.base.machine.devices import device_of, has_code
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.machine.speed import measured_peak, slowdown_in
from ordsmed.base.machine.threads import threads_of

CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def have(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: [])

    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return have


@pytest.mark.parametrize(
    ("env", "hip", "wanted"),
    [
        ({}, None, "expandable_segments:True"),
        ({}, "6.4", None),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, None, "max_split_size_mb:64"),
        ({"PYTORCH_CUDA_ALLOC_CONF": ""}, None, ""),
        ({"PYTORCH_ALLOC_CONF": "backend:native"}, None, None),
        ({"PYTORCH_HIP_ALLOC_CONF": "x"}, None, None),
    ],
)
def test_segments_grow_unless_a_user_says_how_memory_is_held(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], hip: str | None, wanted: str | None
) -> None:
    for name in devices.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.version, "hip", hip)
    devices.use_expandable_segments()
    assert os.environ.get("PYTORCH_CUDA_ALLOC_CONF") == wanted
    assert set(devices.ALLOCATOR) & set(os.environ) == {*env, *(["PYTORCH_CUDA_ALLOC_CONF"] if wanted else [])}


@pytest.mark.parametrize(
    ("count", "asked", "place", "device"),
    [
        (0, "auto", (), "cpu"),
        (0, "cpu", (), "cpu"),
        (2, "cpu", (), "cpu"),
        (1, "auto", (), "cuda:0"),
        (1, "cuda", (), "cuda:0"),
        (1, "cuda:0", (), "cuda:0"),
        (2, "auto", (), "cuda:0"),
        (2, "cuda", (), "cuda:0"),
        (2, "cuda:1", (), "cuda:1"),
        (2, "auto", (1, 2, 2), "cuda:1"),
        (2, "cuda", (0, 2, 2), "cuda:0"),
        (2, "cuda", (1, 2, 4), "cuda:1"),
        (1, "cuda", (0, 1, 4), "cuda:0"),
        (2, "cuda", (1, 1, 1), "cuda:1"),
        (0, "auto", (1, 2, 2), "cpu"),
        (1, "cpu", (1, 2, 2), "cpu"),
    ],
)
def test_a_device_has_its_number(
    gpus: Callable[[int], None], count: int, asked: str, place: tuple[int, ...], device: str
) -> None:
    gpus(count)
    assert device_of(asked, *place) == device


@pytest.mark.parametrize(
    ("count", "asked", "place", "said"),
    [
        (0, "cuda", (), "layout.device: found cuda, but torch sees no GPU; name `cpu` or `auto`"),
        (0, "cuda:1", (), "layout.device: found cuda:1, but torch sees no GPU; name `cpu` or `auto`"),
        (1, "cuda:1", (), "layout.device: found cuda:1; wanted cuda:0"),
        (3, "cuda:7", (), "layout.device: found cuda:7; wanted cuda:0 to cuda:2"),
        (
            2,
            "cuda:1",
            (0, 2, 2),
            "layout.device: found cuda:1 for 2 processes; wanted cuda, which gives each process its own GPU",
        ),
        (1, "gpu", (), "layout.device: found gpu; wanted auto, cpu or cuda"),
        (1, "cuda:x", (), "layout.device: found cuda:x; wanted auto, cpu or cuda"),
    ],
)
def test_a_device_that_is_not_there(
    gpus: Callable[[int], None], count: int, asked: str, place: tuple[int, ...], said: str
) -> None:
    gpus(count)
    with pytest.raises(RecipeError) as caught:
        device_of(asked, *place)
    assert str(caught.value) == said


def test_more_processes_than_gpus(gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(1)
    with pytest.raises(RecipeError, match=r"^--devices: found 2 processes on \S+; wanted at most its 1 GPU$"):
        device_of("auto", 1, 2, 2)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")  # srun --gpus-per-task: each sees one, which is its own
    assert device_of("auto", 1, 2, 2) == "cuda:0"


def test_gpus_that_are_hidden_are_named_as_such(gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device_of("auto") == "cpu"
    with pytest.raises(RecipeError, match=r"^--device: found cuda, which CUDA_VISIBLE_DEVICES hides; name"):
        device_of("cuda", place="--device")


@pytest.mark.parametrize(
    ("capability", "codes", "runs"),
    [
        ("8.0", "sm_80", True),
        ("8.6", "sm_80", True),
        ("8.0", "sm_86", False),
        ("9.0", "sm_80", False),
        ("9.0", "compute_80", True),
        ("7.0", "compute_80", False),
        ("9.0", "sm_90a", True),
        ("9.1", "sm_90a", False),
        ("12.0", "sm_120", True),
        ("10.0", "sm_120", False),
        ("gfx90a", "gfx90a", True),
        ("gfx942", "gfx90a", False),
    ],
)
def test_code_for_a_gpu(capability: str, codes: str, runs: bool) -> None:
    assert has_code(capability, (codes,)) is runs


class H100:
    name, major, minor = "NVIDIA H100", 9, 0


@pytest.mark.parametrize(("codes", "device"), [(["sm_80"], ""), (["sm_80", "sm_90"], "cuda:0"), ([], "cuda:0")])
def test_a_gpu_that_torch_was_not_built_for(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, codes: list[str], device: str
) -> None:
    gpus(1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: codes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: H100)
    for asked in ("auto", "cuda", "cuda:0"):
        if device:
            assert device_of(asked) == device
            continue
        with pytest.raises(RecipeError, match=r"^--device: found NVIDIA H100 \(9.0\).* no code; wanted one of sm_80;"):
            device_of(asked, place="--device")
    assert device_of("cpu") == "cpu"


@pytest.mark.parametrize(("maker", "hidden"), [("NVIDIA", False), ("NVIDIA", True), ("none", False)])
def test_gpus_that_torch_does_not_see_are_told_of_once(
    gpus: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    maker: str,
    hidden: bool,
) -> None:
    gpus(0)
    devices._warn_of_unused_gpus.cache_clear()
    monkeypatch.setattr(devices, "gpus_of", lambda root: maker)
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [device_of(asked) for asked in ("cpu", "auto", "auto")] == ["cpu"] * 3
    told = capsys.readouterr().err
    assert told.count("does not see the NVIDIA GPUs of this machine; `ordsmed doctor` says why") == (
        maker == "NVIDIA" and not hidden
    )
    devices._warn_of_unused_gpus.cache_clear()


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine of eight idle cores; its /proc and /sys."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.setattr(threads, "LOOK", 0.0)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def put(root: Path, **said: str) -> None:
    for name, text in said.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_threads_are_the_cores_shared_by_the_ranks(eight: Path) -> None:
    assert [threads_of(local_world=n) for n in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]
    assert threads_of(5, local_world=8) == 5


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "3,2"}, 3),
        ({"MKL_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "6", "MKL_NUM_THREADS": "4"}, 4),
        ({"OMP_NUM_THREADS": "64"}, 8),
        ({"OMP_NUM_THREADS": ""}, 8),
        ({"OMP_NUM_THREADS": " 2 "}, 2),
    ],
)
def test_threads_follow_the_environment(
    eight: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], count: int
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert threads_of() == count
    assert threads_of(kept=5) == (count if any(env.values()) else 5)
    assert threads_of(7) == 7
    assert threads_of(local_world=4) == min(count, 2)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
@pytest.mark.parametrize("value", ["0", "-1", "abc", "1.5", ",2", "²"])
def test_an_environment_that_is_no_number(eight: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(RecipeError, match=f"^{name}: found {value}; wanted 1 or more; unset it"):
        threads_of()


@pytest.mark.parametrize("asked", [0, -1, 1025])
def test_threads_that_cannot_be(eight: Path, asked: int) -> None:
    with pytest.raises(RecipeError, match=rf"^--threads: found {asked}; wanted 1 to 1024$"):
        threads_of(asked, place="--threads")


@pytest.mark.parametrize(
    ("said", "cores"),
    [
        ({"sys__fs__cgroup__cpu_dot_max": "max 100000"}, 8),
        ({"sys__fs__cgroup__cpu_dot_max": "300000 100000"}, 3),
        ({"sys__fs__cgroup__cpu_dot_max": "50000 100000"}, 1),
        ({"sys__fs__cgroup__cpu_dot_max": "9900000 100000"}, 8),
        ({"sys__fs__cgroup__cpu_dot_max": "nonsense"}, 8),
        (
            {
                "proc__self__cgroup": "0::/a/b",
                "sys__fs__cgroup__a__b__cpu_dot_max": "600000 100000",
                "sys__fs__cgroup__a__cpu_dot_max": "250000 100000",
            },
            2,
        ),
        ({"proc__self__cgroup": "0::/a/b", "sys__fs__cgroup__cpu_dot_max": "400000 100000"}, 4),  # a container's own
        (
            {
                "proc__self__cgroup": "4:cpu,cpuacct:/x\n0::/",
                "sys__fs__cgroup__cpu__x__cpu_dot_cfs_quota_us": "500000",
                "sys__fs__cgroup__cpu__x__cpu_dot_cfs_period_us": "100000",
                "sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us": "-1",
                "sys__fs__cgroup__cpu__cpu_dot_cfs_period_us": "100000",
            },
            5,
        ),
    ],
)
def test_threads_follow_the_cgroup(eight: Path, said: dict[str, str], cores: int) -> None:
    put(eight, **said)
    assert host.cores() == cores
    assert threads_of() == cores


def ticks(worked: int, idle: int, waiting: int = 7) -> str:
    """Of eight cores; `waiting`: for disks, which is no work."""
    lines = [f"cpu{n} {worked} 0 0 {idle} {waiting} 0 0 0 0 0" for n in range(8)]
    return "\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "cpu8 999 0 0 0 0 0 0 0 0 0", "intr 1"])


@pytest.mark.parametrize(("busy", "count"), [(0, 8), (5, 8), (25, 6), (50, 4), (90, 2), (100, 2)])
def test_threads_leave_others_their_cores(
    eight: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], busy: int, count: int
) -> None:
    """The ninth core, which this process may not use, does not count; a quarter of the cores is taken all the same."""
    put(eight, proc__stat=ticks(1000, 1000))
    left = 100 - busy
    after = ticks(1000 + busy, 1000 + left - left // 2, 7 + left // 2)
    set_time(monkeypatch, threads, sleep=lambda _: put(eight, proc__stat=after), process_time=lambda: 0.0)
    assert threads_of() == count
    said = capsys.readouterr().err
    assert (f"threads: {count} of 8, because {8 * busy / 100:.1f} cores are busy" in said) == (count < 8)
    assert threads_of(local_world=2) == 4  # the other rank is one of those that are busy


def test_a_run_keeps_its_threads_where_they_fit(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(eight, proc__stat=ticks(1000, 1000))
    set_time(monkeypatch, threads, sleep=lambda _: pytest.fail("the load does not matter"))
    assert threads_of(kept=8) == 8
    assert threads_of(kept=3) == 3
    assert threads_of(kept=3, local_world=2) == 3
    assert threads_of(kept=6, local_world=2) == 4
    put(eight, sys__fs__cgroup__cpu_dot_max="100000 100000")
    assert threads_of(kept=6) == 1


def test_memory_is_the_least_of_what_limits_it(eight: Path) -> None:
    assert memory.memory_limit() is None
    put(eight, proc__meminfo="MemTotal:        4096 kB\nMemFree: 1 kB")
    assert memory.memory_limit() == 4 << 20
    put(
        eight,
        proc__self__cgroup="0::/a",
        sys__fs__cgroup__a__memory_dot_max="max",
        sys__fs__cgroup__memory_dot_max="3000000",
    )
    assert memory.memory_limit() == 3_000_000
    put(
        eight,
        proc__self__cgroup="3:memory:/m\n0::/",
        sys__fs__cgroup__memory__m__memory_dot_limit_in_bytes="2000000",
        sys__fs__cgroup__memory__memory_dot_limit_in_bytes="9223372036854771712",
    )
    assert memory.memory_limit() == 2_000_000


SHOWN = """
import resource
import torch
from ordsmed.base.machine import memory

def faults():
    torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

memory.keep_freed_memory(), memory.keep_freed_memory()
told, at = False, torch.ones(1 << 24).data_ptr() + (1 << 25)  # the middle: it begins where the heap ended before
for line in open("/proc/self/smaps"):
    first, dash, last = line.partition(" ")[0].partition("-")
    if dash:
        here = int(first, 16) <= at < int(last, 16)
    elif here and line.startswith("VmFlags"):
        told = "hg" in line.split()
counts = [faults() for _ in range(40)]  # the heap grows at first, whatever is kept: from 1 to 8 of them are fresh
assert counts[-1] - counts[-11] < 200, f"fresh memory is handed out: {counts}"  # 10 x 32 pages of 2 MB, 16,384 small
print(told, bool(memory._free_addresses()))
"""


def test_memory_is_kept_on_large_pages() -> None:
    """Where the kernel has them and addresses cost nothing; what was freed is given out again."""
    told = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True).stdout.split()
    large = Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    assert told == [str(large and told[1] == "True"), told[1]]


@pytest.mark.parametrize(
    ("strict", "limit", "linux", "share"),
    [
        ("0", -1, "5.2.0", 0.5),
        ("1", -1, "6.18.44-fc", 0.5),
        ("2", -1, "6.1", 0),
        ("0", 1 << 40, "6.1", 0),
        ("0", -1, "4.18.0-553.el8_10.x86_64", 0),
        ("0", -1, "5.1.9", 0),
    ],
)
def test_addresses_are_taken_where_they_cost_nothing(
    eight: Path, monkeypatch: pytest.MonkeyPatch, strict: str, limit: int, linux: str, share: float
) -> None:
    """Not where the kernel counts them, always or when a process is copied, nor under a ulimit."""
    monkeypatch.setattr(host.platform, "release", lambda: linux)
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (limit, limit))
    put(eight, **{"proc/meminfo": "MemTotal: 1000 kB\n", "proc/sys/vm/overcommit_memory": f"{strict}\n"})
    assert memory._free_addresses() == share * 1000 * 1024


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Which precisions were measured, not kept; nothing is known at first."""
    found: list[str] = []

    def measure(device: torch.device, precision: str) -> tuple[float, bool]:
        found.append(precision)
        return {"fp32": 60e9, "bf16": 1e9}.get(precision, 50e9), True

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(speed, "_known", {})
    monkeypatch.setattr(speed, "_measure", measure)
    return found


def test_a_speed_is_measured_once_and_kept(measured: list[str], tmp_path: Path) -> None:
    assert [measured_peak(CPU, "fp32") for _ in range(3)] == [60e9] * 3
    speed._known.clear()  # another process
    assert measured_peak(CPU, "fp32") == 60e9
    assert measured_peak(CPU, "bf16") == 1e9
    assert measured == ["fp32", "bf16"]
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        measured_peak(CPU, "fp32")
    finally:
        torch.set_num_threads(threads)
    assert measured == ["fp32", "bf16", "fp32"]
    assert sorted(json.loads((tmp_path / "ordsmed" / "speed.json").read_text()).values()) == [1e9, 60e9, 60e9]


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "null", "\xff", '{"a": -1, "b": "c", "d": NaN}'])
def test_what_is_kept_may_be_damaged(measured: list[str], tmp_path: Path, text: str) -> None:
    (tmp_path / "ordsmed").mkdir()
    (tmp_path / "ordsmed" / "speed.json").write_bytes(text.encode("latin-1"))
    assert measured_peak(CPU, "fp32") == 60e9
    assert json.loads((tmp_path / "ordsmed" / "speed.json").read_text()) == {speed.key_of(CPU, "fp32"): 60e9}


def test_a_cache_that_cannot_be_written_is_done_without(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ordsmed").write_text("a file where the folder would be")
    assert measured_peak(CPU, "fp32") == 60e9
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    speed._known.clear()
    assert measured_peak(CPU, "fp32") == 60e9


def test_a_speed_found_on_a_busy_machine_is_not_kept(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "_measure", lambda *_: (1e9, False))
    assert measured_peak(CPU, "fp32") == 1e9
    assert not (tmp_path / "ordsmed").exists()
    monkeypatch.setattr(speed, "_measure", lambda *_: (60e9, False))
    assert measured_peak(CPU, "fp32") == 60e9
    speeds = {"fp32": 60e9, "bf16": 1e9}
    for kept in speeds:
        speed._known.clear()
        (tmp_path / "ordsmed" / "speed.json").unlink(missing_ok=True)
        monkeypatch.setattr(speed, "_measure", lambda device, which, kept=kept: (speeds[which], which == kept))
        assert slowdown_in("bf16", CPU) == 0.0, "one of the two may be wrong"


def test_16_bits_are_told_where_they_are_slower(measured: list[str]) -> None:
    assert slowdown_in("bf16", CPU) == 60.0
    assert [slowdown_in(precision, CPU) for precision in ("fp32", "tf32", "fp16")] == [0.0, 0.0, 0.0]
    assert slowdown_in("bf16", torch.device("cuda", 0)) == 0.0


class Slow:
    """A clock by which a product of matrices takes as long as on a machine of so many FLOP/s."""

    def __init__(self, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rate, self.now, self.sizes = rate, 0.0, []
        real = torch.Tensor.__matmul__

        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            self.sizes.append(len(a))
            self.now += 2 * len(a) ** 3 / self.rate
            return real(a[:1], b[:, :1])

        monkeypatch.setattr(torch.Tensor, "__matmul__", product)
        set_time(monkeypatch, speed, perf_counter=lambda: self.now, thread_time=lambda: self.now)


@pytest.mark.parametrize("rate", [1e7, 0.9e9, 55e9, 2e12])
def test_measuring_is_short_on_any_machine(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """A CPU without 16-bit units took two minutes: the first product waked, one more at least is timed."""
    clock = Slow(rate, monkeypatch)
    found, _ = speed._measure(CPU, "bf16")
    assert found == pytest.approx(rate, rel=0.01)
    least = 2 * 2 * 128**3 / rate  # what cannot be less
    assert clock.now <= max(2.2 * speed.PATIENCE, least)
    assert clock.sizes[0] == 128
    assert (max(clock.sizes) > 512) == (rate > 1e10)


def test_the_best_speed_counts_though_it_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that gets warm, or that others come to."""
    clock = Slow(1e9, monkeypatch)
    real = torch.Tensor.__matmul__

    def slower(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        clock.rate *= 0.8
        return real(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", slower)
    found, _ = speed._measure(CPU, "bf16")
    assert len(clock.sizes) > 3
    assert found == pytest.approx(1e9 * 0.8**2, rel=0.01), "of the first that was timed"


def test_measuring_draws_from_nobodys_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a figure is kept or measured must not move a run's draws."""
    before = torch.get_rng_state()
    found, _ = speed._measure(CPU, "fp32")
    assert found > 0
    assert torch.equal(torch.get_rng_state(), before)


def test_no_test_reads_or_writes_the_users_cache() -> None:
    assert not speed._cache().is_relative_to(Path.home() / ".cache")
    assert os.environ["OMP_NUM_THREADS"]


def test_as_many_threads_as_may_be_asked_for() -> None:
    assert threads.threads_of(threads.MAX_THREADS) == threads.MAX_THREADS
    with pytest.raises(RecipeError, match="found 1025"):
        threads.threads_of(threads.MAX_THREADS + 1)


def test_speeds_that_make_no_sense_are_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(speed, "_cache", lambda: tmp_path / "speed.json")
    (tmp_path / "speed.json").write_text('{"a": 0, "b": -1, "c": 2.5, "d": "x", "e": 1e999}')
    assert speed._read_cache() == {"c": 2.5}
    speed.cache_figure("f", 3.0)
    assert speed._read_cache() == {"c": 2.5, "f": 3.0}


@pytest.mark.parametrize(
    ("packages", "local", "world", "count", "cores"),
    [
        ("00001111", 0, 2, 4, {0, 1, 2, 3}),
        ("00001111", 1, 2, 4, {4, 5, 6, 7}),
        ("01010101", 1, 2, 4, {1, 3, 5, 7}),
        ("00001111", 1, 4, 2, {0, 1, 2, 3}),
        ("00001111", 2, 4, 2, {4, 5, 6, 7}),
        ("00001111", 0, 1, 8, None),  # one process has all cores
        ("00001111", 0, 3, 2, None),  # three processes on two sockets
        ("00001111", 0, 2, 5, None),  # more threads than a socket has cores
        ("00001111", 0, 4, 3, None),
        ("00000111", 0, 2, 3, None),
        ("00000000", 0, 2, 4, None),
        ("", 0, 2, 4, None),  # nothing is told
    ],
)
def test_processes_stay_on_sockets(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    packages: str,
    local: int,
    world: int,
    count: int,
    cores: set[int] | None,
) -> None:
    bound: list[set[int]] = []
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, own: bound.append(own))
    for name in threads.BINDING:
        monkeypatch.delenv(name, raising=False)
    for core, package in enumerate(packages):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
    threads.stay_on_socket(local, world, count)
    assert bound == ([cores] if cores else [])
    assert ("stays on one of 2 sockets" in capsys.readouterr().err) == bool(cores)
    monkeypatch.setenv("OMP_PLACES", "cores")
    threads.stay_on_socket(local, world, count)
    assert len(bound) == (1 if cores else 0), "who binds threads to cores knows best"


ACCELERATOR = getattr(torch, "AcceleratorError", RuntimeError)  # torch 2.7 has none


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (ACCELERATOR("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (ACCELERATOR("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), False),
        (RuntimeError("Triton Error [CUDA]: device kernel image is invalid"), False),
        (RuntimeError("out of resource: shared memory, Required: 9, Hardware limit: 8"), False),
        (RuntimeError("HIP error: out of memory"), True),
        (RuntimeError("Triton Error [HIP]:  Code: 2, Messsage: out of memory"), True),
        (RuntimeError("HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"), True),
        (RuntimeError("rocblas_status_memory_error"), True),
        (RuntimeError("miopenStatusAllocFailed"), True),
        (RuntimeError("NCCL error: unhandled cuda error\nCuda failure 2 'out of memory'"), True),
        (RuntimeError("HIP error: invalid device function"), False),
        (RuntimeError("Triton Error [HIP]:  Code: 1, Messsage: out of range"), False),
        (RunError("rank 1, step 3", "CUDA error: out of memory"), False),  # told of already
    ],
)
def test_memory_runs_out_in_many_words(error: Exception, short: bool) -> None:
    assert is_out_of_memory(error) is short


def test_what_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: 10_000)
    memory.check_fits_memory("here", 9, 1000.0)
    with pytest.raises(RecipeError, match=r"here: found 10, which need 10 kB of memory; .*at most 10"):
        memory.check_fits_memory("here", 10, 1000.0)
    monkeypatch.setattr(memory, "memory_limit", lambda: None)
    memory.check_fits_memory("here", 10**9, 1000.0)


@pytest.mark.parametrize(("uptime", "age"), [("100.0 5.0", 70.0), ("10.0 5.0", 3.0), ("", 3.0)])
def test_the_age_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uptime: str, age: float) -> None:
    """By when the system says it began; else, and in containers whose two clocks disagree, the seconds it computed."""
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/stat").write_text(f"7 (a b) S {' '.join(['0'] * 18)} {30 * ticks} 0")
    (tmp_path / "proc/uptime").write_text(uptime)
    monkeypatch.setattr(host, "ROOT", tmp_path)
    set_time(monkeypatch, host, process_time=lambda: 3.0)
    assert host.age() == age
