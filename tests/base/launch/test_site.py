"""Sites: what cannot be is refused, what is unknown is told as that, and a new one comes from what Slurm says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.launch import site
from ordsmed.base.launch.gpus import GPUS
from ordsmed.base.launch.site import Destination, Partition, Site, absolute
from ordsmed.cli import main
from ordsmed.machines.sites import describe, new_site

PLAIN = """
source = "its handbook"
checked = "2026-11"
scheduler = "slurm"
[[partition]]
name = "gpu"
gpu = "V100"
arch = "x86_64"
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], str]:
    """A site's file in which one text stands for another."""

    def write(this: str = "", that: str = "") -> str:
        path = tmp_path / "mine.toml"
        assert this in PLAIN
        path.write_text(PLAIN.replace(this, that, 1) if this else PLAIN + that)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("this", "that", "complaint"),
    [
        ("V100", "V1000", r"partition\[1\].gpu: found V1000; wanted unknown, none, or one that is k"),
        ('"gpu"', '"g pu"', r"partition\[1\].name: found 'g pu'; wanted one word"),
        ("", "gpus = 0", r"partition\[1\].gpus: found 0; wanted more than 0"),
        ("", 'mig = "1g"', r"partition\[1\].mig: found 1g; wanted a slice as NVIDIA writes it: 1g.12gb"),
        ("", "min_nodes = 4\nnodes = 2", r"min_nodes: found 4, above `nodes` of 2; wanted at most that"),
        ("", "min_gpus = 4\nmost_gpus = 2", r"min_gpus: found 4, above `max_gpus` of 2"),
        ('gpu = "V100"', 'memory_flag = "--mem-per-gpu"', r"memory_flag: found --mem-per-gpu where `gpu` is none"),
        ("", 'ask_memory = "yes"', r"ask_memory: found 'yes'; wanted one of"),
        ("", "memory_per_core = -1.0", r"memory_per_core: found -1.0; wanted more than 0"),
        ('"slurm"', '"slurm"\ncpu = "gpu"', r"cpu: found gpu, which has GPUs; wanted a partition whose `gpu` is none"),
        ('"slurm"', '"slurm"\ncpu = "other"', r"cpu: found other; there are: gpu"),
        ("", '[[quality]]\nname = "q"\npartitions = ["gpus"]', r"quality: q is of gpus; did you mean `gpu`"),
        ("", "gpus = 2.5", r"partition\[1\].gpus: found 2.5; wanted a whole number"),
        ("", 'precision = "bf16"', r"partition\[1\].precision: found bf16, which V100 does not support"),
        ('gpu = "V100"', "gpus = 4", r"partition\[1\].gpus: found 4 where `gpu` is none"),
        ('gpu = "V100"', 'precision = "fp16"', r"partition\[1\].precision: found fp16 where no GPU is known"),
        ('"V100"', '"GH200"', r"partition\[1\].arch: found x86_64 with GH200; wanted aarch64"),
        ("", 'ask = "--gres=gpu:4"', r"partition\[1\].ask: found --gres=gpu:4; wanted a flag of sbatch with \{gpus\}"),
        ("", '[[partition]]\nname = "gpu"', r"partition: found gpu twice"),
        ('"slurm"', '"slurm"\ndefault = "gpus"', r"default: found gpus; did you mean `gpu`"),
        ('"slurm"', '"slurm"\nstate = "running"\nsuccessor = "saga"', r"successor: found saga of a site"),
        ("2026-11", "2026-13", r"checked: found 2026-13; wanted a month or a day"),
        ('source = "its handbook"', "", r"source: missing; wanted the source of the facts"),
        ('"slurm"', '"slum"', r"scheduler: found 'slum'; wanted one of"),
        ('"slurm"', '"slurm"\nmoduls = []', r"moduls: unknown setting; did you mean `modules`"),
    ],
)
def test_what_cannot_be_is_refused(file: Any, this: str, that: str, complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        Site.read(file(this, that))


def test_a_scheduler_has_partitions() -> None:
    with pytest.raises(RecipeError, match="partition: missing; wanted one or more"):
        settings.decode(Site, {"scheduler": "slurm"}, "x")
    power = {"name": "p", "arch": "ppc64le", "gpu": "V100"}
    with pytest.raises(RecipeError, match="pip_torch: found allowed on ppc64le with GPUs"):
        settings.decode(Site, {"source": "x", "pip_torch": "allowed", "partition": [power]}, "x")


def test_precision_and_tokens_follow_from_the_gpu(file: Any) -> None:
    place = Destination.find(file())
    assert place.layout == {"device": "cuda", "precision": "fp16", "tokens": 12_288}
    assert Partition("x").layout == {"device": "cpu"}, "what it is best at is measured there"
    assert Partition("x", gpu="unknown").layout == {"device": "cuda"}
    assert Partition("x", precision="fp32").layout == {"device": "cpu", "precision": "fp32"}
    assert Partition("x", gpu="A100-80", precision="tf32").layout["precision"] == "tf32"
    assert {name: gpu.precision for name, gpu in GPUS.items() if gpu.precision != "bf16"} == {
        "P100": "fp32",
        "V100": "fp16",
        "V100-32": "fp16",
        "T4": "fp16",
    }
    assert [name for name, gpu in GPUS.items() if not gpu.tensor_cores] == ["P100"]
    assert GPUS["V100"].wheels == "cu126"
    assert (GPUS["T4"].wheels, GPUS["MI250X"].wheels) == ("cu126 or newer", "rocm")
    assert "tf32" not in GPUS["MI250X"].able


def test_a_site_s_own_layout_has_the_last_word(file: Any) -> None:
    layout = Destination.find(file("", "[layout]\ntokens = 4096\n")).layout
    assert layout == {"device": "cuda", "precision": "fp16", "tokens": 4096}


def test_a_file_is_found_from_every_folder(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(file())
    monkeypatch.chdir(path.parent)
    assert absolute("mine.toml:gpu") == f"{path}:gpu"
    assert absolute("mine.toml") == str(path)
    assert (absolute("saga:a100"), absolute("")) == ("saga:a100", "")


# --- in words


def test_all_are_listed() -> None:
    lines = describe.overview()
    told = [line.split()[0] for line in lines[1:]]
    off = [name for name in Site.names() if Site.read(name).state == "retired"]
    assert {"mahti", "puhti"} <= set(off)
    assert told == [*(name for name in Site.names() if name not in off), *off]
    assert any(line.split()[0] == "puhti" and "out of service since 2026-07-31, see roihu" in line for line in lines)


@pytest.mark.parametrize(
    ("state", "until", "today", "told"),
    [
        ("stopping", "2026-08-31", "2026-08-31", "stopping 2026-08-31"),
        ("stopping", "2026-08-31", "2026-09-01", "should have stopped 2026-08-31"),
        ("stopping", "2026-08", "2026-08-31", "stopping 2026-08"),
        ("stopping", "2026-08", "2026-09-01", "should have stopped 2026-08"),
        ("stopping", "", "2026-09-01", "stopping"),
        ("running", "", "2026-09-01", "running"),
        ("retired", "", "2026-09-01", "out of service"),
    ],
)
def test_what_is_out_of_service(
    file: Any, monkeypatch: pytest.MonkeyPatch, state: Any, until: str, today: str, told: str
) -> None:
    monkeypatch.setattr(describe, "_today", lambda: today)
    assert describe._state(Site(state=state, until=until)) == told


def test_a_file_that_cannot_be_read_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(site.BUILT_IN, tmp_path / "sites")
    (tmp_path / "sites" / "broken.toml").write_text('title = "x"\nstate = "gone"\n')
    (tmp_path / "sites" / "half.toml").write_text("title = ")
    (tmp_path / "sites" / "number.toml").write_text("[layout]\ndevice = 3\n")
    (tmp_path / "sites" / "folder.toml").mkdir()
    (tmp_path / "sites" / "gone.toml").symlink_to("nowhere")
    monkeypatch.setattr(site, "BUILT_IN", tmp_path / "sites")
    lines = describe.overview()
    assert [line.split()[0] for line in lines[1:-2]].count("saga") == 1
    assert any(line.split() == ["number", "unknown", "3"] for line in lines)
    assert lines[-2].startswith("  broken: ")
    assert "broken.toml" in lines[-2]
    assert "found 'gone'" in lines[-2]
    assert "half.toml" in lines[-1]
    main(["sites", "--json"])
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert "found 'gone'" in told["broken"]["error"]
    assert told["saga"]["account"] == "required"
    assert site.Destination.find("saga").site.account == "required"


def test_one_is_told_whole() -> None:
    lines = "\n".join(describe.lines("saga"))
    assert "account required" in lines
    assert "a100       A100-80  4       x86_64  32     1000   336 hours  bf16\n" in lines
    assert "normal     none     -       x86_64  40     178.5  168 hours  auto\n" in lines
    assert "  memory of normal, bigmem must be requested with --mem-per-cpu\n" in lines
    assert "  partition for jobs without GPUs: normal\n" in lines
    assert "  unknown: pip_torch; runtime; modules" in lines
    assert "  gpularge: at most 10 nodes; at least 4 GPUs; python-pytorch/2.10 (torch 2.10)" in describe.lines("roihu")
    assert "  acc: Slurm partition chosen by Slurm; --qos=acc_ehpc; NCCL_NET=IB" in "\n".join(
        describe.lines("marenostrum5")
    )
    assert "  v100-32g: Slurm partition gpu_p13; --constraint=v100-32g" in describe.lines("jean-zay")
    assert "  GPUs are requested with --gpus={total}\n" in lines
    assert "  GPUs are requested with --gpus-per-node={gpus}" in describe.lines("lumi")
    assert all(len(line) <= 80 for line in describe.lines("lumi") if line.startswith("  GPUs") or "-g  " in line)
    assert "--qos=optimist: may be requeued at any time" in lines


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sites", "olivia", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["torch"], told["partition"][0]["gpu"]) == ("olivia", "2.8.0", "GH200")
    main(["sites", "--json"])
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == Site.names()
    with pytest.raises(SystemExit):
        main(["sites", "olivja"])
    assert "did you mean `olivia`" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["sites", "my_lab/cluster.toml"])
    assert "--site: found my_lab/cluster.toml, and there is no such file; wanted a TOML" in capsys.readouterr().err


def test_what_is_unknown_is_what_a_job_may_need() -> None:
    """Memory is known where its share is, or where it comes with the rest; a machine without Slurm asks for none."""
    known = {"arch": "x86_64", "cores": 8, "hours": 1.0, "ask_memory": "optional"}

    def missing(scheduler: Any = "slurm", **facts: Any) -> list[str]:
        part = Partition("p", **{**known, **facts})
        about = {"account": "none", "pip_torch": "allowed", "offline": False, "source": "x", "scheduler": scheduler}
        return describe.unknown(Site(partition=(part, Partition("q", **{**known, "memory": 9.0})), **about))

    assert missing(memory=9.0) == missing(memory_per_core=1.0) == missing(ask_memory="fixed") == []
    assert missing(gpu="A100", gpus=4, memory_per_gpu=10.0) == []
    assert missing() == ["p: memory"]
    assert missing(whole_nodes=True) == []
    assert missing(gpu="unknown", memory=9.0) == ["p: gpu"]
    assert missing(gpu="A100", memory=9.0, hours=None, quality="q") == ["p: gpus"]
    assert missing("none") == []
    assert describe.unknown(Site(layout={"device": "cpu"})) == []


# --- a new one

PARTITIONS = """\
PartitionName=long AllowGroups=ALL Default=NO MaxNodes=4 MaxTime=14-00:00:00 Nodes=g[1-2] State=UP
PartitionName=short Default=YES MaxNodes=UNLIMITED MaxTime=02:30:00 State=UP
PartitionName=mixed MaxTime=UNLIMITED
PartitionName=slices MinNodes=2 MaxNodes=8 OverSubscribe=EXCLUSIVE DefMemPerCPU=2000 MaxTime=30:00
"""
NODES = """\
NodeName=g1 Arch=aarch64 CPUTot=72 RealMemory=131072 Gres=gpu:nvidia_a100_80gb:4(S:0-1) Partitions=long
NodeName=g2 Arch=aarch64 CPUTot=64 RealMemory=131072 Gres=gpu:nvidia_a100_80gb:4(S:0-1) Partitions=long,mixed
NodeName=c1 Arch=x86_64 CPUTot=24 RealMemory=64000 Gres=(null) Partitions=short,mixed
NodeName=s1 Arch=x86_64 CPUTot=24 RealMemory=64000 Gres=gpu:a100_1g.5gb:7(S:0) Partitions=slices
"""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    told = {
        "partition": PARTITIONS,
        "node": NODES,
        "bash": "foo/1\nPyTorch/2.9.1-foss\npytorch/2.7\n",
        "sacctmgr": "normal|\nshort|02:00:00\nidle|\n",
    }
    monkeypatch.setattr(new_site.shutil, "which", lambda name: name if name != "apptainer" else None)
    monkeypatch.setattr(new_site, "_answer", lambda words: told[words[2] if words[0] == "scontrol" else words[0]])
    return told


def test_a_new_site_comes_from_what_slurm_says(slurm: dict[str, str], tmp_path: Path) -> None:
    site = Site.read(str(new_site.write("frost", tmp_path)))
    long, short, mixed, slices = site.partition
    assert (long.gpu, long.gpus, long.cores, long.memory, long.arch) == ("A100-80", 4, 64, 128, "aarch64")
    assert (long.hours, long.nodes, long.ask) == (336, 4, "--gres=gpu:nvidia_a100_80gb:{gpus}")
    assert (short.gpu, short.hours, short.nodes, site.default) == ("none", 2.5, None, "short")
    assert (mixed.gpu, mixed.arch, mixed.hours) == ("unknown", "unknown", None)
    assert "nodes of several kinds" in mixed.note
    assert (slices.gpu, slices.mig, slices.gpus, slices.ask) == ("A100", "1g.5gb", 7, "--gres=gpu:a100_1g.5gb:{gpus}")
    assert (slices.whole_nodes, slices.min_nodes, slices.nodes, slices.hours) == (True, 2, 8, 0.5)
    assert (slices.ask_memory, long.ask_memory, site.runtime) == ("optional", "unknown", "singularity")
    assert [(one.name, one.hours) for one in site.quality] == [("short", 2), ("idle", None)]
    assert site.without_gpus is short
    assert "PyTorch/2.9.1-foss, pytorch/2.7" in site.note
    first = (tmp_path / "frost.toml").read_text().splitlines()[0]
    assert first.startswith(
        "# frost: written by `ordsmed sites new`, please check it: account; pip_torch; offline; long: ask_memory; "
    )
    assert "mixed: arch, gpu, " in first


@pytest.mark.parametrize(
    ("kind", "gpu"),
    [
        ("v100", "V100"),
        ("gh200", "GH200"),
        ("nvidia_h100_80gb_hbm3", "H100"),
        ("p100", "P100"),
        ("v100-32g", "V100-32"),
        ("mi250x", "MI250X"),
        ("a100", "A100"),
        ("nvidia_a100_80gb_pcie", "A100-80"),
        ("k80", "unknown"),
        ("", "unknown"),
    ],
)
def test_gpus_by_slurm_s_words(kind: str, gpu: str) -> None:
    assert new_site._named(kind) == gpu


def test_what_stands_is_not_written_over(slurm: dict[str, str], tmp_path: Path) -> None:
    new_site.write("frost", tmp_path)
    with pytest.raises(RecipeError, match=r"frost.toml: exists; wanted a new file"):
        new_site.write("frost", tmp_path)
    with pytest.raises(RecipeError, match="NAME: found saga, which is shipped"):
        new_site.write("saga", tmp_path)
    with pytest.raises(RecipeError, match="NAME: found 'a/b'; wanted one word"):
        new_site.write("a/b", tmp_path)
    slurm["partition"] = ""
    with pytest.raises(RunError, match="scontrol show partition: lists no partition"):
        new_site.write("other", tmp_path)


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_site.shutil, "which", lambda _: None)
    site = Site.read(str(new_site.write("desk", tmp_path)))
    assert (site.scheduler, site.partition[0].name, site.partition[0].gpu) == ("none", "this", "none")


def test_a_slurm_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(words: Sequence[str]) -> str:
        return new_site._answer(words)

    with pytest.raises(RunError, match="false: no word; wanted an answer of Slurm; run this on a login node"):
        ask(["false"])
    with pytest.raises(RunError, match="no-such-program"):
        ask(["no-such-program"])
