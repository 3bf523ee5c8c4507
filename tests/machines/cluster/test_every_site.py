"""Every shipped site: what is written for it is bash that shellcheck passes and that its Slurm would take.

A stand-in knows the partitions of each site's file and refuses as sbatch does (kit/standin_slurm.py).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kit import standin_slurm
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import site
from ordsmed.base.launch.site import Destination
from ordsmed.machines.cluster import checks
from ordsmed.machines.cluster.submit import JobRequest, prepare
from ordsmed.machines.install import make
from ordsmed.machines.install.plan import InstallWish, decide

PLACES = [f"{name}:{one.name}" for name in site.Site.names() for one in site.Site.read(name).partition]
FOUND = [(place, Destination.find(place).site) for place in PLACES]
RUNNING = [place for place, one in FOUND if one.scheduler == "slurm" and one.state == "running"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_bash(path: Path) -> None:
    """Shellcheck too, where it is."""
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", path], check=True)


def sbatch(place: str, folder: Path, *words: str | Path) -> str:
    """What the stand-in says against a script; empty: it takes it."""
    commands = standin_slurm.install(folder / "slurm", standin_slurm.facts_of(Destination.find(place).site))
    done = subprocess.run([commands / "sbatch", "--test-only", *words], capture_output=True, text=True, check=False)
    assert done.returncode == bool("error" in done.stderr)
    return done.stderr if done.returncode else ""


def wish_of(place: str, **more: object) -> JobRequest:
    part = Destination.find(place).partition
    gpus = 0 if part.gpu == "none" else part.gpus or 1
    return JobRequest(site=place, account="x", gpus=gpus, nodes=part.min_nodes or 1, time="10m", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [place for place in PLACES if Destination.find(place).site.state == "retired"])
def test_nothing_is_sent_to_a_machine_that_is_no_more(place: str) -> None:
    with pytest.raises(RecipeError, match=r"which is retired since 2026-0.-31; use roihu"):
        prepare("tiny/bert", [], wish_of(place))


@pytest.mark.parametrize("name", dict.fromkeys(place.partition(":")[0] for place in RUNNING))
def test_its_slurm_takes_what_is_trained_and_made(name: str, folder: Path) -> None:
    """A training on the usual partition, a corpus on that without GPUs."""
    place = Destination.find(name)
    nodes = place.partition.min_nodes or 1
    wish = JobRequest(name, account="x", gpus=place.partition.gpus, nodes=nodes, time="10m")
    scripts = [prepare("tiny/bert", [], wish).path]
    if place.site.without_gpus:
        scripts.append(prepare("corpus/stdlib", [], JobRequest(name, account="x", time="10m", parts=3)).path)
    for path in scripts:
        is_bash(path)
        assert sbatch(name, folder, path) == ""


@pytest.mark.parametrize("place", RUNNING)
def test_its_slurm_takes_doctor_and_validate(place: str, folder: Path) -> None:
    """On all GPUs of a node, or all its cores."""
    for verb in checks.VERBS:
        path = checks.prepare(verb, [], wish_of(place)).path
        is_bash(path)
        assert f" -m ordsmed {verb} --site {place} " in path.read_text(), "it looks at the partition it is in"
        assert sbatch(place, folder, path) == ""


@pytest.mark.parametrize("place", RUNNING)
def test_its_slurm_takes_run_sub(place: str, folder: Path) -> None:
    """`install --by docker` writes a script for Enroot and Pyxis."""
    work = decide(InstallWish(place, "docker", image="nvcr.io/x:1", prefix=str(folder / "soft")))
    (folder / "run.sub").write_text(make.WRITERS["docker"](work)["run.sub"])
    is_bash(folder / "run.sub")
    nodes = Destination.find(place).partition.min_nodes or 1
    assert sbatch(place, folder, "--account=x", f"--nodes={nodes}", "--time=00:10:00", folder / "run.sub") == ""


def test_the_stand_in_refuses_as_slurm_does(folder: Path) -> None:
    """Else the tests above could not fail."""
    script = folder / "job.sh"

    def refused(place: str, *lines: str) -> str:
        script.write_text("\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "true"]))
        return sbatch(place, folder, script)

    fine = ("--partition=accel", "--account=x", "--gpus=4", "--mem-per-gpu=91G", "--time=1-00:00:00")
    assert refused("saga:accel", *fine) == ""
    for change, complaint in (
        ("--partition=excel", "Invalid partition name"),
        ("--account=y", "Invalid account"),
        ("--gpus=5", "node configuration"),
        ("--mem-per-gpu=92G", "Memory specification can not"),
        ("--time=15-00:00:00", "time limit is invalid"),
        ("--qos=devil", "Invalid qos"),
        ("--constraint=fast", "Invalid feature"),
        ("--nodes=8", "Node count"),
        ("--cpus-per-task=25", "CPU count"),
        ("--mem=10G", "mutually exclusive"),
        ("--gres=gpu:v100:1", "generic resource"),
        ("--gpu=4", "unrecognized"),
    ):
        assert complaint in refused("saga:accel", *fine, change), change
    assert "must specify how much memory" in refused("saga:accel", *fine[:3])
    assert "Invalid account" in refused("saga:accel", "--partition=accel", "--mem=1G")
    assert "memory is not to be specified" in refused("roihu:gputest", "--partition=gputest", "--account=x", "--mem=1G")
    assert refused("roihu:gputest", "--partition=gputest", "--account=x", "--gres=gpu:gh200:4") == ""


def test_without_gpus_a_corpus_goes_where_there_are_none(folder: Path) -> None:
    """In a partition of its own if the site has one, and that is told."""
    for wish in (JobRequest("saga", account="x"), JobRequest("saga", account="x", gpus=0)):
        written = prepare("corpus/stdlib", [], wish)
        script = written.path.read_text()
        assert "--partition" not in script, "Saga's usual one is asked for by none"
        assert "#SBATCH --cpus-per-task=40\n#SBATCH --mem-per-cpu=4569M\n" in script
        assert "no GPUs: it goes to normal of saga" in written.lines
        assert sbatch("saga", folder, written.path) == ""
    trained = prepare("tiny/bert", [], JobRequest("saga", account="x", gpus=0)).path.read_text()
    assert "--site saga:normal" in trained
    told = prepare("corpus/stdlib", [], JobRequest("jupiter", gpus=0)).lines
    assert (
        "booster of jupiter has GPUs, which this job does not use: no partition of jupiter without GPUs is known"
        in told
    )
    told = prepare("corpus/stdlib", [], JobRequest("saga:accel", account="x", gpus=0)).lines
    assert "accel of saga has GPUs, which this job does not use: normal has none" in told
