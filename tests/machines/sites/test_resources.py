"""What a job asks for beside nodes: cores, memory as its site wants it, and options of sbatch of one's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.launch import gpus
from ordsmed.base.launch.site import Destination, Partition, Site
from ordsmed.cli import main
from ordsmed.machines.cluster.submit import JobRequest, prepare
from ordsmed.machines.sites import resources, slurm


def place(**facts: Any) -> Destination:
    return Destination("mine", Site(), Partition("p", **facts))


GPUS = {"gpu": "A100", "gpus": 4, "cores": 64, "memory": 500.0}
CPUS = {"cores": 40, "memory": 178.5}


@pytest.mark.parametrize(
    ("facts", "gpus", "cores", "wanted", "flag"),
    [
        (GPUS, 2, 32, "", "--mem=250G"),
        ({**GPUS, "memory_per_gpu": 100.0}, 2, 32, "", "--mem=200G"),
        ({**GPUS, "memory_flag": "--mem-per-gpu"}, 2, 32, "", "--mem-per-gpu=125G"),
        ({**GPUS, "memory_flag": "--mem-per-gpu"}, 2, 32, "100G", "--mem-per-gpu=50G"),
        ({**GPUS, "memory_flag": "--mem-per-cpu"}, 4, 64, "", "--mem-per-cpu=8000M"),
        ({**GPUS, "memory": None}, 2, 32, "", ""),
        (CPUS, 0, 40, "", "--mem=178G"),
        (CPUS, 0, 20, "", "--mem=89G"),
        ({"cores": 10, "memory": 99.9}, 0, 10, "", "--mem=99G"),
        ({**CPUS, "memory_flag": "--mem-per-cpu"}, 0, 40, "", "--mem-per-cpu=4569M"),
        ({**CPUS, "memory_per_core": 2.0}, 0, 40, "", "--mem=80G"),
        ({**CPUS, "whole_nodes": True}, 0, 40, "", ""),
        ({**CPUS, "whole_nodes": True, "ask_memory": "required"}, 0, 40, "", "--mem=178G"),
        ({**CPUS, "whole_nodes": True}, 0, 40, "100G", "--mem=100G"),
        ({**CPUS, "ask_memory": "fixed"}, 0, 40, "", ""),
        (CPUS, 0, 40, "1500m", "--mem=1500M"),
        (CPUS, 0, 40, "0.1TiB", "--mem=102G"),
        (CPUS, 0, 40, "1.5GB", "--mem=1536M"),
        ({}, 0, 0, "100G", "--mem=100G"),
    ],
)
def test_memory_as_the_site_wants_it(facts: dict[str, Any], gpus: int, cores: int, wanted: str, flag: str) -> None:
    assert resources.memory_flag(place(**facts), gpus, cores, wanted) == flag


@pytest.mark.parametrize(
    ("facts", "wanted", "complaint"),
    [
        (CPUS, "200G", r"--mem: found 200G; wanted at most 178.5G on p of mine"),
        (CPUS, "many", r"--mem: found 'many'; wanted memory per node: 100G, 1500M or 1.5T"),
        (CPUS, "0G", r"--mem: found '0G'"),
        (CPUS, "100", r"--mem: found '100'"),
        (
            {**CPUS, "ask_memory": "fixed"},
            "1G",
            r"--mem: found 1G; on p of mine memory comes with nodes, cores or GPUs",
        ),
        (
            {"ask_memory": "required"},
            "",
            r"--mem: missing, but p of mine requires it; the memory of a node is unknown; w",
        ),
    ],
)
def test_memory_that_cannot_be_is_refused(facts: dict[str, Any], wanted: str, complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        resources.memory_flag(place(**facts), 0, 40, wanted)
    if not wanted:
        assert resources.memory_flag(place(**facts), 0, 40, must=False) == ""


def test_cores() -> None:
    assert resources.cores_of(place(**GPUS), 4, 4) == 16
    assert resources.cores_of(place(**GPUS), 1, 1) == 16
    assert resources.cores_of(place(**GPUS, cores_per_gpu=10), 2, 1) == 20
    assert resources.cores_of(place(**GPUS), 0, 2) == 32, "without its GPUs all of the node"
    assert resources.cores_of(place(**CPUS), 0, 1) == 40
    assert resources.cores_of(place(**CPUS), 0, 1, 8) == 8
    assert resources.cores_of(place(), 0, 1) == 0
    with pytest.raises(
        RecipeError, match=r"--cpus-per-task: found 30 for each of 2 processes; wanted at most 20 on p of"
    ):
        resources.cores_of(place(**CPUS), 0, 2, 30)


def test_what_is_not_known_is_told() -> None:
    unknown = list(resources.notes(place(gpu="A100", gpus=4), 4, 0, ""))
    assert [line.partition(":")[0] for line in unknown] == ["memory", "cores"]
    assert unknown[0].endswith("so none is requested; `--mem 100G` requests some")
    assert list(resources.notes(place(**GPUS), 4, 16, "--mem=1G")) == []
    assert list(resources.notes(place(**GPUS, ask_memory="fixed"), 4, 16, "")) == []
    assert list(resources.notes(place(**GPUS, whole_nodes=True), 1, 16, "")) == [
        "p of mine allocates whole nodes: 1 of 4 GPUs are used, all are charged"
    ]


# --- options of sbatch


def test_options_of_one_s_own() -> None:
    words = ["--exclude=n12", "--reservation", "x y", "--comment=a 'b'", "-x", "n3", "--gres=nvme:100", "--exclusive"]
    assert resources.options(words[:4] + words[6:], place()) == (
        "--exclude=n12",
        "--reservation 'x y'",
        "'--comment=a '\"'\"'b'\"'\"''",
        "--gres=nvme:100",
        "--exclusive",
    )
    assert resources.options(words[4:6], place()) == ("-x n3",)
    assert resources.options([], place()) == ()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--partition=b"], "name it with `--site SITE:PARTITION`"),
        (["-p", "b"], "name it with `--site SITE:PARTITION`"),
        (["-N2"], "write `--nodes`"),
        (["--mem=3G"], "write `--mem`"),
        (["--mem-per-cpu=3G"], "write `--mem`"),
        (["--time", "3"], "write `--time`"),
        (["-A", "me"], "write `--account`"),
        (["--qos=q"], "write `--qos`"),
        (["--gres=gpu:2"], "write `--gpus`"),
        (["--gres", "gpu:2"], "write `--gpus`"),
        (["-G2"], "write `--gpus`"),
        (["-c", "2"], "write `--cpus-per-task`"),
        (["-n2"], "write `--tasks`"),
        (["--array=1-3"], "write `--parts`"),
        (["--signal=USR1@3"], "write `--save`"),
        (["--no-requeue"], "`--chain`"),
        (["--dependency=afterok:1"], "`--ch"),
        (["--output=x"], "`--status` lists"),
        (["--wrap=ls"], "the script has the command"),
        (["-J", "x"], "follows from the rec"),
        (["--exclude=a", "-x", "b"], "Slurm uses only the last"),
        (["n12"], "--exclude=n12 --reservation=x"),
        (["--exclude=a", "b"], "--exclude=n12 --reservation=x"),
        (["--comment=a\nb"], "each in one line"),
        (["--constraint=c"], "write your own site file to change it"),
        (["--exclusive"], "write your own site file"),
    ],
)
def test_options_that_contradict_the_script_are_refused(words: list[str], remedy: str) -> None:
    with pytest.raises(RecipeError, match=r"contradicts|found") as refused:
        resources.options(words, place(constraint="a", also=("--exclusive=user",)))
    assert remedy in str(refused.value)
    if words[0] in ("--constraint=c", "--exclusive"):
        assert resources.options(words, place()) == tuple(words), "where the site says nothing of it"


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags and options of one's own are lines of the script; what sbatch reads of them is one word each."""
    monkeypatch.chdir(tmp_path)
    words = ["submit", "tiny/bert", "out=x", "--site", "saga:a100", "--account", "me", "--mem", "200G", "--gpus", "2"]
    main([*words, "--cpus-per-task", "4", "--time", "1h", "--", "--exclude=n12", "--reservation=x y"])
    shown = capsys.readouterr().out
    [path] = Path("work/jobs").glob("pretrain-*.sh")
    script = path.read_text()
    for line in ("--mem-per-gpu=100G", "--cpus-per-task=4", "--exclude=n12  # ", "'--reservation=x y'  # "):
        assert f"\n#SBATCH {line}" in script
    assert " --exclude" not in script.partition("\nsrun")[2], "they are sbatch's, not the verb's"
    assert shown.splitlines()[-1].startswith("    ordsmed submit tiny/bert out=x --site saga:a100")
    assert " --time 1h --yes -- --exclude=n12 '--reservation=x y'" in shown
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-"], input=script, text=True, check=True)
    with pytest.raises(SystemExit) as end:
        main([*words, "--", "--mem=3G"])
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "ordsmed: -- --mem=3G: contradicts an option of the script; wanted another option; write `--mem`\n"
    )
    with pytest.raises(SystemExit):
        main([*words, "--exclude=n12"])
    assert "--exclude=n12: no such flag; after `--` it is passed on: `-- --exclude`" in capsys.readouterr().err


def test_a_quality_that_the_partition_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MareNostrum 5's partitions are reached by theirs; what a person names goes before it, with its own limits."""
    monkeypatch.chdir(tmp_path)
    script = prepare("tiny/bert", [], JobRequest("marenostrum5", account="x", gpus=1)).path.read_text()
    assert "#SBATCH --qos=acc_ehpc\n" in script
    assert "--partition" not in script
    assert "--mem" not in script
    assert "export NCCL_NET=IB\n" in script, "the partition's environment"
    script = prepare(
        "tiny/bert", [], JobRequest("marenostrum5", account="x", quality="acc_debug", time="2h")
    ).path.read_text()
    assert "#SBATCH --qos=acc_debug\n" in script
    with pytest.raises(OrdsmedError, match="--time: found 3 hours; wanted at most 2 on qos acc_debug"):
        prepare("tiny/bert", [], JobRequest("marenostrum5", account="x", quality="acc_debug", time="3h"))
    with pytest.raises(
        OrdsmedError, match="--nodes: found 9; wanted at most 8 on acc of marenostrum5 with qos acc_deb"
    ):
        prepare("tiny/bert", [], JobRequest("marenostrum5", account="x", quality="acc_debug", time="1h", nodes=9))
    assert (
        "#SBATCH --constraint=v100-32g\n" in prepare("tiny/bert", [], JobRequest("jean-zay:v100-32g")).path.read_text()
    )
    assert "#SBATCH --partition=gpu_p13\n" in prepare("tiny/bert", [], JobRequest("jean-zay:v100-32g")).path.read_text()


# --- slices


def test_a_slice_is_not_the_whole_gpu(tmp_path: Path) -> None:
    whole, part = gpus.GPUS["A100"], Partition("p", gpu="A100", gpus=7, mig="1g.5gb")
    assert part.model is not None
    assert (part.model.memory, part.model.capability) == (5, "8.0")
    assert part.model.teraflops == pytest.approx(whole.teraflops / 7)
    assert part.layout == {"device": "cuda", "precision": "bf16", "tokens": 4096}
    assert Partition("p", gpu="A100", gpu_memory=64.0).layout["tokens"] == 52_224
    assert gpus.named("NVIDIA A100-SXM4-40GB MIG 3g.20gb") == "A100 MIG 3g.20gb"
    assert gpus.named("NVIDIA A100-SXM4-80GB") == "A100-80"
    sliced = gpus.known("NVIDIA A100-SXM4-40GB MIG 3g.20gb")
    assert sliced is not None
    assert (sliced.memory, sliced.teraflops) == (20, pytest.approx(whole.teraflops * 3 / 7))
    assert gpus.known("NVIDIA A100-SXM4-40GB") is whole
    assert gpus.known("A100 MIG 3g.20gb") == sliced
    assert gpus.known("Quadro 1") is None


def test_environment_and_modules_of_a_partition_follow_the_site_s() -> None:
    where = Destination(
        "x",
        Site(modules=("a",), environment={"A": "1", "B": "1"}),
        Partition("p", modules=("b",), environment={"B": "2"}),
    )
    assert where.modules == ("a", "b")
    assert where.environment == {"A": "1", "B": "2"}
    assert slurm._expanded("/tmp/${USER}-a b") == "/tmp/\"${USER}\"'-a b'"
    assert [slurm._expanded(text) for text in ("", "$USER", "`ls`", "${a b}")] == [
        "''",
        "'$USER'",
        "'`ls`'",
        "'${a b}'",
    ]
    assert Destination.find("olivia:small").modules == (), "the GPUs' modules are another processor's"
