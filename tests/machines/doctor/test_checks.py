"""Each check of the doctor on a made-up machine: a sound one is ok, each fault is named with its remedy."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from ordsmed.base.errors import RunError
from ordsmed.base.launch.site import Destination
from ordsmed.base.machine.devices import gpus_of
from ordsmed.machines.doctor import disks, job, network, software, speed
from ordsmed.machines.doctor.doctor import CHECKS, Check, examine
from ordsmed.machines.doctor.host import Card, Host, Torch, bind, fabric_of, ranges, this_host, within
from ordsmed.machines.doctor.outcome import Outcome, worst

SINFO = "gpu|up|4|idle\ngpu|up|2|down*\nold|inact|1|idle\n"
SITE = """
source = "its handbook"
checked = "2026-11"
scheduler = "slurm"
state = "running"
account = "required"
[[partition]]
name = "gpu"
gpu = "A100"
gpus = 4
arch = "x86_64"
"""
A100 = Torch(
    "2.11.0+cu128",
    cuda="12.8",
    codes=("sm_70", "sm_80", "compute_90"),
    driver="12.9",
    cards=(Card("NVIDIA A100-SXM4-40GB", "8.0", 39.4),),
)
ACCOUNTS = "nn1234k\nnn9999k\n"


@pytest.fixture
def sound(tmp_path: Path) -> Host:
    """A node of a cluster that lacks nothing."""
    file = tmp_path / "hamn.toml"
    file.write_text(SITE)
    answers = {"sinfo": SINFO, "sacctmgr": ACCOUNTS, "quota": "/dev/a  10 100 120 0 5 50 60 0\n"}
    (tmp_path / "shared").mkdir()
    caches = {name: "/elsewhere/caches" for name in disks.CACHES}
    return dataclasses.replace(
        this_host(Destination.find(str(file))),
        env={"MASTER_ADDR": "n1", **caches},
        python="3.12.1",
        arch="x86_64",
        name="n1",
        hostname="n1",
        user="me",
        home=Path("/my/home"),
        shared=tmp_path / "shared",
        torch=A100,
        wanted={"Python": ">=3.11", "torch": ">=2.9,<3"},
        gpus="NVIDIA",
        interfaces=("eth0", "hsn0", "lo"),
        fabric="Ethernet",
        cores=8,
        bound=tuple(range(8)),
        available=8,
        temporary=tmp_path,
        ask=lambda words: answers.get(words[0]),
        space=lambda path: (10**12, 10**13),
        address=lambda name: "10.0.0.1",
        bind=lambda port: "",
        account="nn1234k",
    )


def asked(check: Check, host: Host) -> Outcome:
    """The worst that a check says."""
    outcomes = list(check(host))
    state = worst(outcomes)
    return next(one for one in outcomes if one.state == state)


def site(host: Host, **changes: Any) -> Destination:
    assert host.place
    own = {key: changes.pop(key) for key in ("arch", "gpu", "precision") if key in changes}
    part = dataclasses.replace(host.place.partition, **own)
    return dataclasses.replace(host.place, site=dataclasses.replace(host.place.site, **changes), partition=part)


def cards(*names: tuple[str, str], **more: Any) -> Torch:
    return dataclasses.replace(A100, cards=tuple(Card(*one, 16.0) for one in names), **more)


def test_where_the_gpu_of_a_site_is_not_known_none_lacks_a_precision(sound: Host) -> None:
    host = dataclasses.replace(sound, place=site(sound, gpu="unknown"), torch=cards(("Tesla P100", "6.0")))
    assert asked(software.precision, host).state == "ok"


def test_a_sound_machine_lacks_nothing(sound: Host) -> None:
    slow = (speed.products, speed.memory)
    outcomes = list(examine(sound, tuple(one for one in CHECKS if one not in slow)))
    assert [one for one in outcomes if one.state != "ok"] == []
    assert {one.check for one in outcomes} == {one.__name__ for one in CHECKS if one not in slow}


BAD: list[tuple[Check, str, dict[str, Any], str]] = [
    (software.python, "error", {"python": "3.9.2"}, "3.9.2, not in the range >=3.11; make an environment with"),
    (software.python, "warning", {"wanted": {}}, "the required range is unknown"),
    (software.torch, "error", {"torch": Torch(reason="no libcuda")}, "no libcuda; `pip install 'torch>=2.9,<3'`"),
    (software.torch, "error", {"torch": Torch("2.8.0")}, "2.8.0, not in the range >=2.9,<3"),
    (software.torch, "error", {"torch": Torch("3.0.1")}, "3.0.1, not in the range"),
    (software.wheel, "error", {"torch": Torch("2.9.1+cpu")}, "for CPUs only on a machine with NVIDIA's GPUs"),
    (software.wheel, "error", {"gpus": "AMD"}, "torch for CUDA 12.8 on a machine with AMD's GPUs"),
    (software.wheel, "error", {"arch": "aarch64"}, "this machine is aarch64, gpu of .* is x86_64; start it on a node"),
    (software.gpus, "error", {"torch": cards()}, "sees none of NVIDIA's GPUs; check `nvidia-smi`"),
    (software.gpus, "error", {"torch": cards(), "env": {"CUDA_VISIBLE_DEVICES": ""}}, "unset CUDA_VISIBLE_DEVICES"),
    (
        software.gpus,
        "error",
        {"torch": cards(), "gpus": "none", "env": {"SLURM_JOB_ID": "7"}},
        "no GPU here; request some",
    ),
    (
        software.gpus,
        "error",
        {"torch": cards(("Tesla P100-PCIE-16GB", "6.0"))},
        r"no code for Tesla P100-PCIE-16GB \(6.0\): it has sm_70 sm_80 compute_90; install a wheel of torch for cu126,",
    ),
    (
        software.gpus,
        "warning",
        {"torch": cards(("NVIDIA A100", "8.0"), ("Tesla V100", "7.0"))},
        "different models in one machine",
    ),
    (software.driver, "error", {"torch": cards(driver="11.4")}, "runs CUDA up to 11.4, torch was built with 12.8"),
    (software.driver, "error", {"torch": cards(driver="")}, "no driver answers, but CUDA 12.8 needs one"),
    (software.driver, "warning", {"torch": cards(driver="12.4")}, "runs CUDA up to 12.4"),
    (software.precision, "error", {"torch": cards(("Tesla P100", "6.0"))}, "bf16 on Tesla P100, which has no units"),
    (
        software.switches,
        "warning",
        {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
        "the CPU waits for every kernel; unset CUDA_L",
    ),
    (software.switches, "warning", {"env": {"OMP_NUM_THREADS": "9"}}, "OMP_NUM_THREADS=9 with 8 cores; set it to 8"),
    (job.partition, "error", {"ask": lambda words: None}, "Slurm does not answer"),
    (job.partition, "error", {"ask": lambda words: "gpus|up|4|idle\n"}, "has none called gpu; did you mean `gpus`"),
    (job.partition, "error", {"ask": lambda words: "gpu|down|4|idle\n"}, "gpu is down; ask the site's support"),
    (job.account, "error", {"account": ""}, "no account is named, but .* requires one; `--account nn1234k`"),
    (job.account, "error", {"account": "nn1234"}, "nn1234 is not one of your accounts; did you mean `nn1234k`"),
    (job.account, "warning", {"ask": lambda words: None}, "nn1234k, which Slurm's accounting does not list"),
    (
        job.cores,
        "warning",
        {"cores": 1, "env": {"SLURM_CPUS_PER_TASK": "16"}},
        "^1 for this process, 16 by its job: .*; `srun --cpus-per-task=16`, or `export SRUN_CPUS_PER_TASK=16`",
    ),
    (
        job.cores,
        "warning",
        {
            "cores": 15,
            "env": {
                "SLURM_JOB_CPUS_PER_NODE": "64(x2)",
                "SLURM_STEP_NUM_TASKS": "8",
                "SLURM_PROCID": "0",
                "SLURM_LOCALID": "0",
                "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
            },
        },
        "^15 for this process, 16 by its job",
    ),
    (disks.room, "error", {"space": lambda path: (5 * 10**7, 10**9)}, "home .*: 50 MB free of 1 GB; free some space"),
    (
        disks.room,
        "warning",
        {"space": lambda path: (5 * 10**8 if path.name == "home" else 10**12, 10**9)},
        "home .*: 500 MB free of 1 GB; free some space",
    ),
    (
        disks.temporary,
        "error",
        {"temporary": Path("/no/such/place")},
        "^temporary files /no/such/place: No such file or directory; free some space there, or `export TMPDIR=FOLDER`",
    ),
    (disks.temporary, "warning", {"space": lambda path: (5 * 10**7, 10**9)}, "temporary files .*: 50 MB free; free"),
    (
        job.cores,
        "warning",
        {"place": None, "env": {}, "bound": (3,), "available": 8},
        "^bound to 1 core of 8, which 1 process uses; start it unbound",
    ),
    (
        job.cores,
        "warning",
        {"place": None, "bound": (3,), "available": 8, "env": {"RANK": "1", "WORLD_SIZE": "4"}},
        "^bound to 1 core of 8, which 4 processes use; start it unbound .`mpirun --bind-to none`",
    ),
    (network.interfaces, "warning", {"interfaces": ("lo",)}, "^no network: only processes of this machine can connect"),
    (
        network.interfaces,
        "error",
        {"interfaces": ("lo",), "env": {"SLURM_JOB_NUM_NODES": "2"}},
        "^n1 has no network, so it cannot connect to other machines; ask the site's support, or exclude this machine",
    ),
    (
        disks.quotas,
        "error",
        {"ask": lambda words: " /cluster 1200* 1000 1200 7d 5 50 60 -\n"},
        "120% of your quota of bytes is used",
    ),
    (
        disks.quotas,
        "warning",
        {"ask": lambda words: " /cluster 12 1000 1200 7d 47 50 60 -\n"},
        "94% of your quota of files is used",
    ),
    (
        disks.caches,
        "warning",
        {"env": {}},
        "^TRITON_CACHE_DIR, XDG_CACHE_HOME, APPTAINER_CACHEDIR are in /my/home, .*XDG_CACHE_HOME=.*shared",
    ),
    (network.names, "error", {"address": lambda name: ""}, "n1 cannot be resolved; have it added to DNS"),
    (
        network.names,
        "error",
        {"env": {"MASTER_ADDR": "n7"}, "address": lambda name: "" if name == "n7" else "10.0.0.1"},
        "n7, where processes connect, cannot be resolved; set MASTER_ADDR",
    ),
    (
        network.names,
        "warning",
        {"env": {"SLURM_JOB_NUM_NODES": "2"}, "address": lambda name: "127.0.0.1"},
        "127.0.0.1, which other machines cannot reach",
    ),
    (network.port, "error", {"env": {"MASTER_PORT": "80"}, "bind": lambda port: f"{port} is taken"}, "80 is taken; "),
    (network.interfaces, "error", {"env": {"NCCL_SOCKET_IFNAME": "hsn,ib0"}}, "ib0 is not here; there are: eth0, hsn0"),
    (network.interfaces, "error", {"env": {"GLOO_SOCKET_IFNAME": "=hsn"}}, "hsn is not here"),
    (
        network.collectives,
        "warning",
        {"env": {"NCCL_P2P_DISABLE": "1"}},
        "GPUs of one machine communicate through host memory;",
    ),
    (
        network.collectives,
        "error",
        {"fabric": "Slingshot"},
        "FI_MR_CACHE_MONITOR, .*: sums between nodes can be silently",
    ),
    (network.collectives, "warning", {"fabric": "Slingshot", "env": {"NCCL_PROTO": "^LL128"}}, "avoids the worst"),
    (network.collectives, "error", {"fabric": "Slingshot", "env": {"NCCL_PROTO": "LL128"}}, "can be silently wrong"),
]


@pytest.mark.parametrize(("check", "state", "changes", "text"), BAD, ids=[f"{one[0].__name__}-{one[3]}" for one in BAD])
def test_a_fault_is_named(check: Check, state: str, changes: dict[str, Any], text: str, sound: Host) -> None:
    one = asked(check, dataclasses.replace(sound, **changes))
    assert one.state == state, one
    assert re.search(text, one.words), one.words
    assert one.remedy


@pytest.mark.parametrize(
    ("check", "state", "changes", "text"),
    [
        (
            job.site,
            "error",
            {"state": "retired", "until": "2026-07", "successor": "roihu"},
            "since 2026-07; take roihu",
        ),
        (job.site, "warning", {"state": "stopping", "until": "2026-08"}, "stops 2026-08; look for another"),
        (
            software.torch,
            "warning",
            {"torch": "2.10"},
            r"2.11.0\+cu128, where the modules or the image of .* have 2.10",
        ),
        (software.wheel, "error", {"gpu": "MI250X"}, "but gpu has MI250X; install the wheel for rocm"),
        (disks.offline, "warning", {"offline": True}, "no internet; `export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1"),
    ],
)
def test_what_a_site_says(check: Check, state: str, changes: dict[str, Any], text: str, sound: Host) -> None:
    one = asked(check, dataclasses.replace(sound, place=site(sound, **changes)))
    assert one.state == state
    assert re.search(text, one.words), one.words


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"SLURM_CPUS_PER_TASK": "8"},
        {"SLURM_CPUS_PER_TASK": "8", "SLURM_JOB_CPUS_PER_NODE": "64"},
        {"SLURM_JOB_CPUS_PER_NODE": "16", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        {"SLURM_JOB_CPUS_PER_NODE": "8,4"},
    ],
)
def test_a_process_that_has_the_cores_of_its_job(env: dict[str, str], sound: Host) -> None:
    one = asked(job.cores, dataclasses.replace(sound, env=env, cores=8))
    assert (one.state, one.words) == ("ok", "8 for this process")


def test_a_broken_safetensors_is_an_error(sound: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that does not work, a run does not start with it either."""
    assert asked(software.checkpoints, sound).state == "ok"
    for name, broken in (("save", lambda tensors: b"half"), ("save_file", None), ("load", lambda data: {})):
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr(safetensors.torch, name, broken)
            else:
                patch.delattr(safetensors.torch, name)
            found = asked(software.checkpoints, sound)
            assert (found.state, "safetensors cannot write checkpoints: " in found.text) == ("error", True)
            assert "pip install --force-reinstall" in found.remedy


def test_a_module_is_the_remedy_where_a_site_has_one(sound: Host) -> None:
    for changes, remedy in (
        ({"modules": ("PyTorch/2.9",)}, "`module load PyTorch/2.9`"),
        ({"pip_torch": "forbidden"}, "pip is not allowed for it there"),
    ):
        one = asked(software.torch, dataclasses.replace(sound, torch=Torch(), place=site(sound, **changes)))
        assert remedy in one.remedy


def test_a_disk_that_does_not_lock(sound: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: object, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    assert "has none: Function not implemented; keep runs on a disk with locks" in asked(disks.locks, sound).words
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    assert "gives the same lock to two writers" in asked(disks.locks, sound).text
    assert list(sound.shared.iterdir()) == []


def test_a_disk_that_does_not_replace(sound: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.base import files

    monkeypatch.setattr(files, "write_text", lambda path, text: path.exists() or path.write_text(text))
    assert asked(disks.renames, sound).state == "error"


def test_a_disk_that_is_full(sound: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> str:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(disks.tempfile, "mkdtemp", full)
    outcomes = list(examine(sound, (disks.disk, software.python)))
    assert [one.state for one in outcomes] == ["error", "ok"]
    assert "quota" in outcomes[0].text


@pytest.mark.parametrize(("off", "state"), [(0.0, "ok"), (20.0, "warning"), (3600.0, "error"), (-3600.0, "error")])
def test_a_clock_that_is_off(off: float, state: str, sound: Host) -> None:
    one = asked(disks.clock, dataclasses.replace(sound, clock=lambda: sound.clock() + off))
    assert one.state == state
    if state == "error":
        assert one.words.startswith(("1 h off the shared disk's", "59 min 59 s")), one.words


def test_what_is_slow_is_told() -> None:
    assert disks.speed_of(Path("x"), 1e7).state == "warning"
    assert disks.speed_of(Path("x"), 1e9).state == "ok"
    assert speed.products_of("bf16", 50e12, 312).state == "warning"
    assert speed.products_of("bf16", 200e12, 312) == Outcome(
        "ok", "200 TFLOP/s in bf16, 64% of its vendor's figure", figures={"bf16 TFLOP/s": 200.0}
    )


def test_what_is_measured_here(sound: Host) -> None:
    here = dataclasses.replace(sound, torch=Torch("2.11"))
    for check, figure in ((speed.products, "fp32 TFLOP/s"), (speed.memory, "memory GB/s"), (disks.disk, "disk MB/s")):
        assert asked(check, here).figures[figure] > 0


@pytest.mark.parametrize(
    ("version", "wanted", "is_in"),
    [
        ("2.11.0+cu128", ">=2.11", True),
        ("2.9.1", ">=2.11", False),
        ("2.10", ">=2.9,<3", True),
        ("3.0", "<3", False),
        ("2.8.0", "==2.8.*", True),
        ("2.9.0", "==2.8.*", False),
        ("2.8", "==2.8.0", True),
        ("2.8.1", "!=2.8.1", False),
        ("3.12.1", "~=3.11", True),
        ("4.0", "~=3.11", False),
        ("2.14.0a0+git", ">2.13", True),
        ("2.7", "<=2.7", True),
    ],
)
def test_a_range_of_versions(version: str, wanted: str, is_in: bool) -> None:
    assert within(version, wanted) is is_in


def test_the_range_in_force_is_the_library_s() -> None:
    own = ranges()
    assert within("3.12", own["Python"])
    assert not within("2.0", own["torch"])
    with pytest.raises(ValueError, match="is not a range"):
        within("1", "about 2")


def test_a_failing_check_is_an_error_and_the_others_are_asked(sound: Host) -> None:
    def broken(host: Host) -> Iterator[Outcome]:
        raise RunError("here", "is wrong")
        yield

    outcomes = list(examine(sound, (broken, software.python)))
    assert outcomes[0] == Outcome("error", "here: is wrong", "find out why, then run this again", check="broken")
    assert [one.state for one in outcomes] == ["error", "ok"]


def test_what_the_system_knows(tmp_path: Path) -> None:
    assert (gpus_of(tmp_path), fabric_of(tmp_path)) == ("none", "Ethernet")
    for path in ("dev/kfd", "sys/class/infiniband/mlx5_0", "sys/class/cxi/cxi0"):
        (tmp_path / path).mkdir(parents=True)
    assert (gpus_of(tmp_path), fabric_of(tmp_path)) == ("AMD", "Slingshot")
    (tmp_path / "dev/nvidia0").touch()
    assert gpus_of(tmp_path) == "NVIDIA"


def test_a_port_in_use() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        assert bind(other.getsockname()[1]) == "Address already in use"
    assert bind(70_000)


def test_quotas_as_both_commands_write_them() -> None:
    text = "Disk quotas for user me (uid 7):\n  Filesystem blocks quota limit grace files quota limit grace\n"
    text += "/dev/vda 500 0 1000 0 10 0 0 0\n/scratch 7* 5 6 7days 1 2 3 -\n"
    assert disks.quota_rows(text) == [
        ("/dev/vda", "bytes", 0.5),
        ("/scratch", "bytes", 1.4),
        ("/scratch", "files", 0.5),
    ]
