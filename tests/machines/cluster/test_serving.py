"""A server as a job: its script, its token, what is refused before anything is queued, and how it is reached."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from kit.language_models import hub_folder
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.cli import main
from ordsmed.cli.verb import find
from ordsmed.machines.cluster.serving import prepare
from ordsmed.machines.cluster.submit import JobRequest
from ordsmed.serve.server import tunnel

SITE = 'source = "x"\nchecked = "2026-11"\nscheduler = "slurm"\n[[partition]]\nname = "main"\ncores = 8\nhours = 48\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.toml").write_text(SITE)
    (tmp_path / "gpus.toml").write_text(SITE + 'gpu = "A100"\n')
    hub_folder("gpt2", tmp_path / "small")
    return tmp_path


def test_the_script_serves_to_who_knows_the_token(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["submit", "serve", "small", "de=small", "--site", "here.toml", "--time", "4h"])
    lines = capsys.readouterr().out.splitlines()
    script = (folder / "work/jobs/serve-small-1.sh").read_text()
    token = folder / "work/jobs/serve-small.token"
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    command = next(line for line in script.splitlines() if "srun --kill" in line)
    assert shlex.split(command)[-10:] == [
        "ordsmed",
        "serve",
        str(folder / "small"),
        f"de={folder / 'small'}",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--token-file",
        str(token),
    ]
    assert {"--nodes=1", "--ntasks-per-node=1", "--time=04:00:00", "--signal=TERM@60", "--no-requeue"} <= {
        line.split("  #")[0].removeprefix("#SBATCH ") for line in script.splitlines()
    }
    assert (token.stat().st_mode & 0o777, len(token.read_text().strip()) > 40) == (0o600, True)
    assert any(f"{folder / 'work/jobs/serve-small-1-%j.log'}: the log" in line for line in lines)
    before = token.read_text()
    assert "--gpus" in prepare("serve", ["small"], JobRequest("gpus.toml")).path.read_text()
    assert token.read_text() == before
    (folder / "mine").write_text("a-token-of-my-own\n")
    assert (
        f"--token-file {folder}/mine"
        in prepare("serve", ["small"], JobRequest("here.toml", token="mine")).path.read_text()
    )


def test_flags_of_the_server_are_handed_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "texts.txt").write_text("A newt swam.\n\nA cat sat.\n")
    for name in ("b", "c"):
        ordsmed.index(None, folder / "texts.txt", folder / name)
    own = [
        "--index",
        "a=b",
        "--index",
        "c",
        "--workers",
        "2",
        "--queue",
        "7",
        "--timeout",
        "9.5",
        "--checkpoints",
        "--step",
        "0",
    ]
    own += ["--precision", "bf16", "--threads", "2"]
    main(["submit", "serve", "small", "--site", "here.toml", *own])
    script = (folder / "work/jobs/serve-small-1.sh").read_text()
    command = shlex.split(next(line for line in script.splitlines() if "srun --kill" in line))
    handed = command[command.index("--token-file") + 2 :]
    args, wanted = (find("serve").parser().read(["small", *words]) for words in (handed, own))
    assert (args, len(handed)) == (wanted, len(own))
    assert shlex.join(own) in capsys.readouterr().out  # of the line that hands it to Slurm
    for words in (["--checkpoints"], ["--queue", "7"]):
        with pytest.raises(SystemExit):
            main(["submit", "tiny/bert", "--site", "here.toml", *words])
        assert f"{words[0]}: found with tiny/bert; wanted `submit serve`" in capsys.readouterr().err


@pytest.mark.parametrize("submitted", [True, False])
def test_wrong_flags_are_refused_before_a_job_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], *, submitted: bool
) -> None:
    """In the same words as `serve` refuses them."""
    (folder / "short").write_text("abc\n")
    for words, message in (
        (["--timeout", "0"], "--timeout: found 0; wanted more than 0"),
        (["--workers", "0"], "--workers: found 0; wanted a whole number, 1 to 256"),
        (["--precision", "bf17"], "--precision: found bf17; wanted fp32 or bf16 or fp16 or int8; did you mean `bf16`?"),
        (["--device", "gpu"], "--device: found gpu; wanted auto, cpu or cuda"),
        (["--index", "x=small"], "--index x=small: is not an index, but "),
        (["--token-file", "short"], "short: has no token; wanted 8 or more"),
    ):
        with pytest.raises(SystemExit):
            main(
                ["submit", "serve", "small", "--site", "here.toml", *words] if submitted else ["serve", "small", *words]
            )
        assert message in capsys.readouterr().err
    assert not (folder / "work").exists()


def test_what_cannot_be_served_is_refused(folder: Path) -> None:
    for words, wish, message in (
        ([], {}, "names no model"),
        (["nothing"], {}, "no such folder"),
        (["x=nothing"], {}, "no such folder"),
        (["small"], {"nodes": 2}, "--nodes: found with serve, which is one process"),
        (["small"], {"gpus": 2}, "--gpus: found with serve"),
        (["small"], {"requeue": False}, "--chain: found with serve"),
    ):
        with pytest.raises(OrdsmedError, match=message):
            prepare("serve", words, JobRequest("here.toml", **dict[str, Any](wish)))
    assert not (folder / "work/jobs/serve-small.token").exists()
    path = prepare("serve", ["small"], JobRequest("here.toml")).path.parent / "serve-small.token"
    os.chmod(path, 0o644)
    with pytest.raises(RecipeError, match=r"can be read by other users; .*chmod 600 "):
        prepare("serve", ["small"], JobRequest("here.toml"))
    with pytest.raises(SystemExit):
        main(["submit", "tiny/bert", "--site", "here.toml", "--token-file", "x"])


def test_a_job_says_how_it_is_reached() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n12", "SLURM_SUBMIT_HOST": "login3", "USER": "me"}
    assert "ssh -N -L 8000:n12:43211 me@login3;" in tunnel(43211, job)
    assert tunnel(43211, {}) == ""
