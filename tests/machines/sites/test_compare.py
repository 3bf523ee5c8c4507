"""`sites check`: what a machine says of a site's file, on a Slurm and modules that stand in for the site's."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import standin_slurm
from ordsmed.base.launch import site
from ordsmed.cli import main
from ordsmed.machines.sites import compare, new_site

HERE = platform.machine()
MINE = f"""
source = "its handbook"
checked = "2026-11"
scheduler = "slurm"
account = "required"
pip_torch = "allowed"
offline = false
use = ["true"]
modules = ["NRIS/GPU", "PyTorch/2.8.0"]
cpu = "cpu"
[[partition]]
name = "gpu"
arch = "{HERE}"
gpu = "A100"
gpus = 4
cores = 64
memory = 500
ask_memory = "required"
hours = 48
nodes = 8
constraint = "fast"
[[partition]]
name = "cpu"
arch = "{HERE}"
cores = 40
memory = 178.5
memory_flag = "--mem-per-cpu"
ask_memory = "optional"
hours = 168
[[quality]]
name = "devel"
hours = 2
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The report on mine.toml, where the machine is as the file says but for what a test changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "slurm"))
    path = os.environ["PATH"]
    (tmp_path / "mine.toml").write_text(MINE)

    def checked(change: Callable[[dict[str, Any]], None] = lambda _: None, account: str = "x") -> dict[str, Any]:
        facts = standin_slurm.facts_of(site.Site.read("mine.toml"))
        change(facts)
        commands = standin_slurm.install(tmp_path / "slurm", facts)
        monkeypatch.setenv("PATH", f"{commands}:{path}")
        return compare.compare("mine.toml", account)

    return checked


def told(report: dict[str, Any], key: str = "differs") -> list[str]:
    return [compare.SiteFact(**fact).line for fact in report[key]]


def test_a_machine_that_is_as_the_file_says(machine: Any) -> None:
    report = machine()
    assert told(report) == []
    same = told(report, "same")
    assert {
        "partition gpu: hours 48",
        "partition gpu: cores 64",
        "partition gpu: memory 500",
        "partition gpu: nodes 8",
        "partition gpu: gpus 4",
        "partition cpu: memory 178.5",
        "a job for gpu: sbatch accepts it",
        "qos devel: is there",
        "memory of gpu: must be requested",
        "memory of cpu: need not be requested",
        "account: x",
        "modules of gpu: NRIS/GPU loads",
        "modules of gpu: PyTorch/2.8.0 loads",
    } <= set(same)
    assert told(report, "not_asked") == [
        "network: whether the nodes of jobs reach the internet; run `ordsmed doctor` in a job"
    ]
    assert report["unknown"] == []
    assert not any(line.startswith("correct a copy of ") for line in compare.lines(report))
    report["differs"] = report["same"]
    assert [*compare.lines(report)][-1] == "correct a copy of mine.toml, and name it with --site"


def gpu(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda facts: facts["partitions"][0].update(values)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (gpu(queue="gpus"), "partition gpu: Slurm has no partition gpu; did you mean `gpus`?"),
        (gpu(up="down"), "partition gpu: is down; ask the site's support, or use another"),
        (gpu(hours=24), "partition gpu: hours 48 in the file, 24 here; write `hours = 24`"),
        (gpu(cores=32), "partition gpu: cores 64 in the file, 32 here; write `cores = 32`"),
        (gpu(memory=250), "partition gpu: memory 500 in the file, 250 here; write `memory = 250`"),
        (gpu(memory=900), "partition gpu: memory 500 in the file, 900 here; write `memory = 900`"),
        (gpu(nodes=4), "partition gpu: nodes 8 in the file, 4 here; write `nodes = 4`"),
        (gpu(gpus=2), "partition gpu: gpus 4 in the file, 2 here; write `gpus = 2`"),
        (gpu(gpu="h100"), 'partition gpu: gpu "A100" in the file, "H100" here; write `gpu = "H100"`'),
        (gpu(whole=True), ""),
        (gpu(features=["faster"]), "partition gpu: no node has the feature fast; did you mean `faster`?"),
        (
            gpu(ask_memory="optional"),
            'memory of gpu: sbatch accepts a job that requests none; write `ask_memory = "opt',
        ),
        (lambda facts: facts["partitions"][1].update(ask_memory="required"), "memory of cpu: a job must request it"),
        (lambda facts: facts["accounts"].remove("x"), "account: x is not one of your accounts"),
        (
            lambda facts: facts["qualities"].pop("devel"),
            "qos devel: Slurm has no such quality of service; there are: normal",
        ),
        (lambda facts: facts["qualities"]["devel"].update(hours=1), "qos devel: hours 2 in the file, 1 here; write `h"),
        (
            lambda facts: facts.update(modules=["NRIS/GPU", "PyTorch/2.9.1"]),
            "modules of gpu: PyTorch/2.8.0 does not load; there are PyTorch/2.9.1",
        ),
        (
            lambda facts: facts.update(modules=["PyTorch/2.8.0"]),
            "modules of gpu: NRIS/GPU does not load; there is none called NRIS",
        ),
    ],
)
def test_what_differs_is_told_with_the_line_to_write(machine: Any, change: Any, line: str) -> None:
    lines = told(machine(change))
    assert [text for text in lines if text.startswith(line)] if line else lines == []


def test_a_partition_that_is_not_in_the_file_is_named(machine: Any) -> None:
    def more(facts: dict[str, Any]) -> None:
        facts["partitions"].append({**facts["partitions"][0], "name": "h100", "queue": "h100"})

    assert "partitions: also in Slurm: h100; `ordsmed sites new` reads them" in told(machine(more), "not_asked")


def test_what_cannot_be_asked_is_told(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No account is named, Slurm keeps none, no sacctmgr, no modules here, another processor."""
    lines = told(machine(account=""), "not_asked")
    assert "jobs: the site requires an account; `--account NAME` tests jobs with it" in lines
    lines = told(machine(lambda facts: facts.update(keeps_accounts=False)), "not_asked")
    assert [line for line in lines if line.startswith("account: sacctmgr: ") and "accounting_storage" in line]
    assert [line for line in lines if line.startswith("qualities of service: sacctmgr: ")]
    monkeypatch.setattr(compare.platform, "machine", lambda: "riscv64")
    wrong = f"modules of gpu: they are for {HERE}, but this machine is riscv64"
    assert wrong in told(machine(), "not_asked")
    which = shutil.which
    monkeypatch.setattr(compare.shutil, "which", lambda name: None if name in ("sacctmgr", "sbatch") else which(name))
    lines = told(machine(), "not_asked")
    assert {"account: sacctmgr is not installed here", "jobs: sbatch is not installed here"} <= set(lines)


def test_images_and_what_runs_them(machine: Any, tmp_path: Path) -> None:
    image = tmp_path / "images/torch-2.9.sif"
    image.parent.mkdir()
    for number in range(8):
        (tmp_path / f"images/torch-2.1{number}.sif").touch()
    (tmp_path / "images/zlib.txt").touch()
    (tmp_path / "mine.toml").write_text(f'container = "{image}"\nruntime = "apptainer"\n{MINE}')
    (tmp_path / "slurm/bin").mkdir(parents=True)
    (tmp_path / "slurm/bin/singularity").touch(0o755)
    lines = told(machine())
    named = ", ".join(f"torch-2.1{number}.sif" for number in range(2, 8))
    assert f"container: {image} does not exist; there are {named}" in lines
    if not shutil.which("apptainer"):
        assert 'runtime: apptainer in the file, singularity here; write `runtime = "singularity"`' in lines
    image.touch()
    assert f"container: {image} is there" in told(machine(), "same")
    for path in image.parent.iterdir():
        path.unlink()
    assert f"container: {image} does not exist; {image.parent} has no image" in told(machine())


def test_the_command_line(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """1 where anything differs, as a table too; 0 where all is as the file says."""
    machine()
    with pytest.raises(SystemExit) as end:
        main(["sites", "check", "mine.toml", "--account", "x"])
    shown = capsys.readouterr().out.splitlines()
    count = len(machine()["same"])
    assert shown[0] == f"mine.toml: {count} as in the file, 0 different, 1 not checked; the file is from 2026-11"
    assert end.value.code == 0
    machine(gpu(hours=24))
    with pytest.raises(SystemExit) as end:
        main(["sites", "check", "mine.toml", "--account", "x", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (end.value.code, [fact["about"] for fact in report["differs"]]) == (1, ["partition gpu"])
    with pytest.raises(SystemExit):
        main(["sites", "check", "mine.toml"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "  differs    partition gpu: hours 48 in the file, 24 here; write `hours = 24`"
    assert shown[-1].startswith("correct a copy of mine.toml")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("saga", "sinfo: is not on this machine; wanted Slurm, on a login node of saga; log in there"),
        ("puhti", "--site: found puhti, which is retired since 2026-07-31; use roihu"),
        ("sagga", "NAME: found sagga; did you mean `saga`?"),
        ("gone.toml", "NAME: found gone.toml, and there is no such file"),
        ("typo.toml", "typo.toml: partition[1].hour: unknown setting; did you mean `partition.hours`?"),
        ("other.toml", "other.toml: systems: unknown setting"),
        ("list.toml", "list.toml: partition[1]: found 'gpu'; wanted a table of name, slurm, arch"),
        ("config.yaml", "config.yaml: not TOML"),
        ("none.toml", "none.toml: has no [layout] and no [[partition]]; wanted the settings of a machine"),
    ],
)
def test_what_is_no_site_is_one_line(
    name: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No Slurm at all, a machine that is no more, another program's configuration, a slip of the pen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare.shutil, "which", lambda _: None)
    Path("typo.toml").write_text(MINE.replace("hours = 48", "hour = 48"))
    Path("other.toml").write_text('[[systems]]\nname = "daint"\n')
    Path("list.toml").write_text('source = "x"\npartition = ["gpu"]\n')
    Path("config.yaml").write_text("site_configuration:\n  systems: []\n")
    Path("none.toml").write_text('title = "x"\n')
    with pytest.raises(SystemExit) as end:
        main(["sites", "check", name])
    line = capsys.readouterr().err
    assert (end.value.code, line.count("\n")) == (1, 1)
    assert complaint in line


def test_a_machine_without_slurm_that_has_one_by_now(machine: Any, tmp_path: Path) -> None:
    machine()
    (tmp_path / "mine.toml").write_text(MINE.replace('"slurm"', '"none"').replace('"required"', '"none"', 1))
    assert 'scheduler: none in the file, Slurm here; write `scheduler = "slurm"`' in told(compare.compare("mine.toml"))


def test_what_a_new_site_says_is_what_is_there(machine: Any, tmp_path: Path) -> None:
    """Of a file that `sites new` wrote `check` knows better alone what only sbatch can tell."""
    machine(lambda facts: facts["partitions"][0].update(features=[], usual=True))
    path = str(new_site.write("frost"))
    table = site.Site.read(path)
    assert (table.partition[0].nodes, table.partition[1].memory, table.quality[0].hours) == (8, 178, 2)
    [line] = told(compare.compare(path, "x"))
    assert line.startswith("memory of gpu: a job must request it (sbatch: you must specify how much memory")
    assert line.endswith('unknown in the file; write `ask_memory = "required"`')
    of_account = [line for line in told(compare.compare(path)) if line.startswith("a job for ")]
    assert len(of_account) == 2
    assert all(line.endswith('combination specified; write `account = "required"`') for line in of_account)
