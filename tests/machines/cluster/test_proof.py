"""The first line of a job's log: which ordsmed is imported there; another one ends the job before the GPUs wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.base.identity import identity
from ordsmed.machines.cluster.submit import JobRequest, prepare

LINE = f"ordsmed {identity()}, code {identity().digest}"
SITE = """
source = "x"
checked = "2026-11"
scheduler = "slurm"
[[partition]]
name = "main"
"""
SRUN = """#!/bin/bash
# runs its command as many times as there are nodes, where nothing else is asked for
while [ "${1#-}" != "$1" ]; do shift; done
case $* in *import*) times=$SLURM_JOB_NUM_NODES ;; *) times=1; touch started ;; esac
for SLURM_NODEID in $(seq "$times"); do export SLURM_NODEID; "$@"; done
"""
RUNTIME = """#!/bin/bash
# an image in which Python is found by the name that the test says
while [ "${1%.sif}" = "$1" ]; do echo "$1" >>asked; shift; done
echo "$(basename "$0")" >ran
shift
exec $INSIDE "${@:2}"
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def bash(script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "here.toml").write_text(SITE)
    (tmp_path / "contained.toml").write_text(f'container = "torch.sif"\n{SITE}')
    for name, body in (("srun", SRUN), ("singularity", RUNTIME)):
        (tmp_path / "bin" / name).write_text(body)
        (tmp_path / "bin" / name).chmod(0o755)
    other = tmp_path / "other/ordsmed"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(
        'import os, sys\n__version__ = "0.1.0"\n'
        'if os.environ["SLURM_NODEID"] == "1":\n    print(os.environ["LINE"])\n    os._exit(0)\n'
    )

    def script(site: str = "here.toml", nodes: int = 1, **wish: object) -> subprocess.CompletedProcess[str]:
        path = prepare("tiny/bert", [], JobRequest(site=site, nodes=nodes, **wish)).path  # type: ignore[arg-type]
        more = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": str(nodes), "LINE": LINE}
        return bash(path, {"INSIDE": sys.executable} | os.environ | more)

    return script


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training itself is not wanted: its words are those of another command."""
    from ordsmed.machines.sites import slurm

    monkeypatch.setattr(slurm, "_command", lambda job: iter(["touch started"]))


@pytest.mark.usefixtures("no_run")
def test_the_first_line_says_which_ordsmed_it_is(run: Run) -> None:
    done = run(nodes=4)
    assert done.stdout == f"{LINE}\n", "once, of four nodes"
    assert done.returncode == 0
    assert Path("started").exists()


@pytest.mark.usefixtures("no_run")
def test_another_ordsmed_on_one_node_ends_the_job(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/other")
    done = run(nodes=2)
    assert done.stdout == f"ordsmed 0.1.0 No module named 'ordsmed.base'\n{LINE}\n"
    assert done.stderr == (
        f"ordsmed: the line above was found; wanted {LINE}; submit it again to use the present code\n"
    )
    assert done.returncode == 1
    assert not Path("started").exists()


@pytest.mark.usefixtures("no_run")
def test_an_image_without_ordsmed_ends_the_job(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSIDE", f"{sys.executable} -S -E")
    done = run("contained.toml")
    assert done.stdout == "ordsmed is not here: No module named 'ordsmed'\n"
    remedy = "make an image or an overlay with it by:  ordsmed install --site contained.toml"
    assert done.stderr.endswith(f"ordsmed: the line above was found; wanted {LINE}; {remedy}\n")
    assert (done.returncode, Path("started").exists()) == (1, False)


@pytest.mark.usefixtures("no_run")
def test_the_runtime_that_is_there_is_taken_and_an_overlay_laid_over(run: Run, tmp_path: Path) -> None:
    Path("ordsmed-1f2e.sqsh").touch()
    Path("ordsmed.sqsh").symlink_to("ordsmed-1f2e.sqsh")
    done = run("contained.toml", overlay="ordsmed.sqsh")
    assert (done.stdout, done.returncode) == (f"{LINE}\n", 0)
    assert Path("ran").read_text() == "singularity\n", "for apptainer is not here"
    asked = Path("asked").read_text()
    assert f"--bind\n{tmp_path}/ordsmed-1f2e.sqsh:/user-software:image-src=/\n" in asked, "the file, not the link"
    assert all("/user-software/bin/python -c" in path.read_text() for path in Path("work/jobs").glob("*.sh"))
    Path("ordsmed-1f2e.sqsh.image").write_text("/images/of-then.sif\n")
    run("contained.toml", overlay="ordsmed.sqsh")
    assert "/images/of-then.sif" in "".join(path.read_text() for path in Path("work/jobs").glob("*.sh"))


@pytest.mark.usefixtures("no_run")
def test_no_runtime_and_no_overlay_are_told(run: Run) -> None:
    Path("bin/singularity").unlink()
    done = run("contained.toml")
    assert done.stderr == "ordsmed: apptainer or singularity: not on this node; load its module\n"
    assert done.returncode == 1
    Path("bin/singularity").write_text(RUNTIME)
    Path("bin/singularity").chmod(0o755)
    Path("x.sqsh").touch()
    script = prepare("tiny/bert", [], JobRequest(site="contained.toml", overlay="x.sqsh")).path
    Path("x.sqsh").unlink()
    done = bash(script, os.environ | {"PATH": f"bin:{os.environ['PATH']}"})
    assert done.stderr.startswith(f"ordsmed: {Path.cwd()}/x.sqsh: no such file; make an image or an overlay")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (
            {"site": "contained.toml", "overlay": "y.sqsh"},
            "--overlay: found y.sqsh, and there is no such file; "
            "`ordsmed install --site contained.toml --by overlay --yes`",
        ),
        ({"site": "here.toml", "overlay": "here.toml"}, "--overlay: found, but here.toml has no container; wanted an"),
        ({"site": "contained.toml", "overlay": "here.toml", "enroot": True}, "--overlay: found with --enroot; wanted"),
    ],
)
@pytest.mark.usefixtures("run")
def test_overlays_that_cannot_be(wish: dict[str, str], message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        prepare("tiny/bert", [], JobRequest(**wish))  # type: ignore[arg-type]
    assert message in str(refused.value)


@pytest.mark.usefixtures("run")
def test_a_site_s_own_image_is_told_of_before() -> None:
    told = prepare("tiny/bert", [], JobRequest(site="contained.toml")).lines
    assert any(
        "it is unknown whether torch.sif contains this ordsmed; the job checks it first" in line for line in told
    )
    assert not any(
        "torch.sif" in line for line in prepare("tiny/bert", [], JobRequest("contained.toml", container="y")).lines
    )


@pytest.mark.usefixtures("run")
def test_a_job_loads_what_its_installation_was_made_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As EESSI's modules, which do not go together with the site's."""
    (tmp_path / "soft/installed").mkdir(parents=True)
    (tmp_path / "soft/.ordsmed-1.x7").mkdir()
    (tmp_path / "soft/ordsmed-1").symlink_to(".ordsmed-1.x7")
    record = {"identity": "1", "target": "ordsmed-1", "before": ["module --force purge", "module load EESSI/2025.06"]}
    (tmp_path / "soft/installed/1.json").write_text(json.dumps(record))
    Path("here.toml").write_text(f'modules = ["torch/2"]\n{SITE}')
    before = prepare("tiny/bert", [], JobRequest("here.toml")).path.read_text()
    assert "module load torch/2" in before
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "soft/ordsmed-1"))
    script = prepare("tiny/bert", [], JobRequest("here.toml")).path.read_text()
    assert "\nmodule --force purge\nmodule load EESSI/2025.06\n" in script
    assert "torch/2" not in script
