"""Jobs of a cluster: what a script says, what is refused before anything is queued, what was sent in."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base.errors import OrdsmedError, RecipeError, RunError
from ordsmed.base.identity import identity
from ordsmed.base.launch import site
from ordsmed.cli import main
from ordsmed.machines.cluster import sent, submit
from ordsmed.machines.cluster.estimate import estimate
from ordsmed.machines.cluster.submit import JobRequest, prepare
from ordsmed.machines.sites import slurm
from ordsmed.nn import varlen
from ordsmed.tell.show.show import read
from ordsmed.train.plan import layout_lines

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cluster(folder: Path) -> str:
    """A site with two CPU partitions."""
    (folder / "here.toml").write_text("""
source = "x"
checked = "2026-11"
scheduler = "slurm"
environment = { MASTER_ADDR = "n 1" }
use = ["module use /here"]
modules = ["torch/2"]
[[partition]]
name = "main"
cores = 8
hours = 48
nodes = 4
before = ["module purge"]
also = ["--exclusive"]
[[quality]]
name = "devel"
hours = 2
""")
    text = 'source = "x"\nchecked = "2026-11"\nscheduler = "slurm"\n[[partition]]\nname = "g"\ngpu = "A100"\n'
    (folder / "gpus.toml").write_text(text)
    return "here.toml"


def text(name: str = "tiny/bert", *overrides: str, **wish: Any) -> str:
    return prepare(name, overrides, JobRequest(**wish)).path.read_text()


def directives(script: str) -> list[str]:
    return [
        line.split("  # ")[0].removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")
    ]


def test_a_script_says_all_that_the_site_asks_for() -> None:
    """Saga counts the GPUs of a job, and swaps its modules for the processors of A100."""
    script = text(site="saga:a100", nodes=2, account="nn1", time="3h")
    assert {
        "--partition=a100",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--gpus=8",
        "--cpus-per-task=8",
        "--time=03:00:00",
        "--account=nn1",
        "--requeue",
        "--signal=TERM@300",
    } <= set(directives(script))
    assert "module --force swap StdEnv Zen2Env" in script
    assert 'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"' in script
    assert "ordsmed pretrain tiny/bert --site saga:a100" in script


def test_each_part_of_the_site_has_its_line(cluster: str, folder: Path) -> None:
    script = text(site=cluster, nodes=4, tasks=2, quality="devel", time="90m", save=30)
    lines = script.splitlines()
    assert directives(script) == [
        "--job-name=pretrain-tiny-bert",
        "--partition=main",
        "--nodes=4",
        "--ntasks-per-node=2",
        "--cpus-per-task=4",
        "--time=01:30:00",
        "--qos=devel",
        "--exclusive",
        "--signal=TERM@30",
        "--requeue",
        "--open-mode=append",
        f"--output={folder / submit.JOBS}/pretrain-tiny-bert-1-%j.log",
    ]
    begin = lines.index(f"cd {folder} || exit 1")
    assert lines[begin + 1 : begin + 5] == [
        "module purge",
        "module use /here",
        "module load torch/2",
        "export MASTER_ADDR='n 1'",
    ]
    srun = lines[lines.index("run() {") + 1].strip()
    assert srun.startswith("srun --kill-on-bad-exit=0 --wait=120 ")
    assert srun.endswith(f" -m ordsmed pretrain tiny/bert --site {folder}/here.toml")
    assert f"record={folder / submit.JOBS}/pretrain-tiny-bert-1.tries" in lines
    assert "times=3 wanted=4 requeue=yes" in lines
    assert '        scontrol requeue "$SLURM_JOB_ID"' in lines


def test_containers_and_torchrun(cluster: str) -> None:
    assert ' "$runtime" exec --rocm --bind ' in text(site="lumi", account="p", time="1h")
    assert "lumi-multitorch-latest.sif python3 -m ordsmed pretrain" in text(site="lumi", account="p", time="1h")
    enroot = text(site="saga", account="p", container="a/b:1", enroot=True)
    assert "--container-image=a/b:1 --container-mounts=" in enroot
    assert '"$runtime" exec --nv --bind' in text(site="saga", account="p", container="x.sif")
    by = text(site=cluster, tasks=4, nodes=2, torchrun=True)
    assert "--ntasks-per-node=1" in directives(by)
    assert "by=torchrun late=86040" in by  # a day less 300 and 60 seconds
    assert "by=srun" in text(site=cluster)
    assert "-m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d" in by
    assert "export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=300" in by
    assert {"--cpus-per-task=8"} <= set(directives(by)), "torchrun has the cores of all its processes"
    gpus = text(site="gpus.toml", gpus=2)
    assert not {"SRUN_CPUS", "--cpus-per-task"} & set(gpus.replace("=", " ").replace("_PER", " ").split()), "not known"
    assert "TORCH_ELASTIC" not in text(site=cluster)
    assert "first=${MASTER_ADDR:-${nodes%%,*}}" in by


def test_one_torchrun_a_node_asks_for_the_cores_of_all_its_processes() -> None:
    wish = {"site": "saga:a100", "account": "nn1", "time": "3h"}
    assert "--cpus-per-task=8" in directives(text(**wish))
    assert {"--ntasks-per-node=1", "--cpus-per-task=32"} <= set(directives(text(**wish, torchrun=True)))


def test_nvidia_s_run_on_48_machines_as_the_docs_have_it(folder: Path) -> None:
    """One process a GPU, in a container by Pyxis; batches and accumulation are those of its environment variables."""
    page = (ROOT / "docs/clusters.md").read_text().partition("NVIDIA's run of ELECTRA")[2]
    (folder / "dgx.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    words = shlex.split(page.partition("    ordsmed ")[2].partition("\n\n")[0].replace("\\\n", " "))
    main(words)
    script = (folder / "work/jobs/pretrain-electra-base-lamb-1.sh").read_text()
    assert {"--nodes=48", "--ntasks-per-node=8", "--gpus-per-node=8", "--time=02:00:00"} <= set(directives(script))
    srun = next(line for line in script.splitlines() if "srun --kill" in line)
    assert f"--container-image='nvcr.io#mine/ordsmed:1' --container-mounts={folder}:{folder}" in srun
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    plan = " ".join(
        submit.checked_plan(
            words[1], words[2:3], "pretrain", site.Destination.find("dgx.toml"), "dgx.toml", 384
        ).lines()
    )
    assert "10,000 steps of 67,584 rows x 128 tokens; batch = micro 176 x accumulation 1 x devices 384" in plan
    assert "930 steps of 27,648 rows x 512 tokens; batch = micro 24 x accumulation 3 x devices 384" in plan
    run = read("pretrain/electra-base-lamb")[0]
    assert [(phase.learning_rate, phase.warmup, phase.schedule.power) for phase in run.phase] == [
        (6e-3, 2000, 0.5),
        (4e-3, 200, 0.5),
    ]
    assert (run.optimizer.betas, run.optimizer.adapt) == ((0.878, 0.974), "matrices")


def test_a_corpus_in_parts_is_an_array(cluster: str) -> None:
    script = text("corpus/stdlib", site=cluster, parts=5)
    assert "--array=1-5" in directives(script)
    assert 'ordsmed corpus corpus/stdlib --part "$SLURM_ARRAY_TASK_ID/5"' in script
    assert "--site" not in script
    with pytest.raises(
        RecipeError, match="--parts: found 2 for a pretrain that is one run; wanted none; only a corpus"
    ):
        text(site=cluster, parts=2)
    with pytest.raises(RecipeError, match="--nodes: found 2 processes for a corpus; wanted 1"):
        text("corpus/stdlib", site=cluster, nodes=2)


def trials_of(folder: Path, *more: str) -> tuple[str, ...]:
    """A fine-tuning of four trials that needs no data to be planned."""
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (folder / "recipe.toml").write_text("""
tokenizer = "vocab.txt"
seeds = [1, 2]
grid = { learning_rate = [1e-4, 1e-3] }
[model]
kind = "bert"
[task]
kind = "classify"
train = "none.tsv"
""")
    return ("recipe.toml", *more)


def test_trials_in_parts_are_an_array(cluster: str, folder: Path) -> None:
    name = trials_of(folder)
    written = prepare(*name, [], JobRequest(site=cluster, parts=4))
    script = written.path.read_text()
    assert "--array=1-4" in directives(script)
    assert f'ordsmed finetune {folder}/recipe.toml --site {folder}/here.toml --part "$SLURM_ARRAY_TASK_ID/4"' in script
    assert written.lines[0] == "trials: 4, in 4 jobs"
    assert "saved() { find work/finetune/recipe/ -path '*/checkpoints/*' -type f" in script
    with pytest.raises(RecipeError, match="--parts: found 5, of 4 trials; wanted at most 4"):
        text(*name, site=cluster, parts=5)
    with pytest.raises(
        RecipeError, match="--nodes: found 2 processes, with several trials; wanted 1; `--parts N` submits"
    ):
        text(*name, site=cluster, nodes=2)


def test_trials_ask_for_no_more_gpus_than_they_use_at_a_time(folder: Path) -> None:
    name, place = trials_of(folder), {"site": "saga:a100", "account": "x"}
    for parts, gpus in ((0, 4), (2, 2), (4, 1)):
        asked = directives(text(*name, parts=parts, **place))
        assert f"--gpus={gpus}" in asked, parts
        assert "--ntasks-per-node=1" in asked


def test_a_job_that_saves_nothing_is_not_sent_in_for_ever(cluster: str, sbatch: Any, folder: Path) -> None:
    """The first time, and whenever something was saved; not when nothing was since it was sent in again."""
    script = prepare("tiny/bert", ["out=of run"], JobRequest(site=cluster)).path
    for name in ("module",):
        sbatch(name, "true")
    sbatch("scontrol", '[ "$1" = show ] || echo "$@" >> again')
    sbatch(
        "srun",
        f'case $* in *import*) echo "ordsmed 1, code {identity().digest}"; exit ;; esac\n'
        '[ -z "$SAVES" ] || { mkdir -p "of run/checkpoints/$SAVES"; touch "of run/checkpoints/$SAVES/x"; }\n'
        'touch "of run/log.txt"; exit ${ENDS:-143}',
    )
    (folder / "of run").mkdir()

    def sent_again(count: str, saves: str = "", ends: str = "143") -> bool:
        (folder / "again").unlink(missing_ok=True)
        more = {"SLURM_RESTART_COUNT": count, "SAVES": saves, "ENDS": ends, "SLURM_JOB_ID": "7"}
        done = subprocess.run(["bash", script], env=os.environ | more, capture_output=True, text=True, check=False)
        assert done.returncode == int(ends)
        again = (folder / "again").exists()
        assert again or ends != "143" or "no step was saved" in done.stderr or count == "100"
        return again

    assert sent_again("0")
    assert not sent_again("1")
    assert sent_again("1", saves="step-1")
    assert not sent_again("2", saves="step-1")
    assert not sent_again("3", saves="step-2", ends="1")
    assert not sent_again("100", saves="step-3")
    (folder / "of run/checkpoints/step-1/x").unlink()  # only the newest are kept
    assert sent_again("3", saves="step-4")


def test_what_is_quoted_stays_one_word(cluster: str, folder: Path) -> None:
    """A name with a line end is no second command."""
    script = text("tiny/bert", "out=a b\nrm -rf x", site=cluster)
    assert not [line for line in script.splitlines() if line.startswith("rm") and "'" not in line]
    if shutil.which("bash"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"site": "saga"}, "--account: missing, but saga requires one; wanted the account of your project"),
        ({"site": "saga", "account": "x", "gpus": 5}, "--gpus: found 5 per node; wanted at most 4 on accel of saga"),
        ({"site": "saga", "account": "x", "time": "15d"}, "--time: found 360 hours; wanted at most 336 on accel"),
        ({"site": "saga", "account": "x", "quality": "devel", "time": "3h"}, "at most 2 on qos devel of saga"),
        ({"site": "saga", "account": "x", "quality": "devil"}, "--qos: found devil; did you mean `devel`"),
        ({"site": "saga", "account": "x", "time": "soon"}, "--time: 'soon' is not a time"),
        ({"site": "saga:a200", "account": "x"}, "--site: found partition a200; did you mean `a100`"),
        ({"site": "olivia", "account": "x", "nodes": 9}, "--gpus: found 36 in all; wanted at most 32 on accel of"),
        (
            {"site": "roihu:gpularge", "account": "x", "gpus": 2},
            "--gpus: found 2 in all; wanted at least 4 on gpularge",
        ),
        ({"site": "betzy:normal", "account": "x"}, "--nodes: found 1; wanted at least 4 on normal of betzy"),
        ({"site": "leonardo", "account": "x", "nodes": 65}, "--nodes: found 65; wanted at most 64 on boost_usr_prod"),
        ({"site": "leonardo", "account": "x", "nodes": 4, "quality": "boost_qos_lprod"}, "at most 3 on boost_usr_prod"),
        (
            {"site": "olivia", "account": "x", "nodes": 5, "quality": "devel", "time": "1h"},
            "found 20 in all; wanted at",
        ),
        (
            {"site": "marenostrum5:gp", "account": "x", "quality": "acc_ehpc", "gpus": 0},
            "found acc_ehpc, which is not of",
        ),
        ({"site": "laptop"}, "--site: found laptop, which has no Slurm"),
        ({"site": "gpus.toml", "account": "x"}, "--gpus: missing; the number per node of gpus.toml is unknown"),
        ({"site": "here.toml", "gpus": 1}, "--gpus: found 1, where main of here.toml has none"),
        ({"site": "here.toml", "time": "1m", "save": 60}, "--save: found 60 s before a limit of 60 s"),
        ({"site": "here.toml", "nodes": 3}, r"phase\[1\].batch"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_written(
    cluster: str, folder: Path, wish: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(OrdsmedError, match=complaint):
        text(**wish)
    assert not (folder / "work").exists()


def test_a_precision_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"layout.precision: found bf16, which P100 has no units for; wanted fp32 or"):
        text("tiny/bert", "layout.precision=bf16", site="saga", account="x")
    assert "layout.precision=auto" in text("tiny/bert", "layout.precision=auto", site="saga", account="x")
    with pytest.raises(RecipeError, match=r"layout.fp8: found true, which A100-80 has no units for"):
        text("tiny/bert", "layout.precision=auto", "layout.fp8=true", site="saga:a100", account="x")


@pytest.mark.parametrize(
    ("where", "precision", "wanted"),
    [
        ("saga:accel", "fp32", "need bf16 or fp16 (here: fp32)"),
        ("power9", "fp16", "need compute capability 8.0 (V100: 7.0)"),
        ("ex3:dgx2q", "fp16", "need compute capability 8.0 (V100-32: 7.0)"),
        ("lumi", "bf16", "need an NVIDIA GPU"),
        ("saga:a100", "bf16", "attention: flash kernels for texts of any length"),
    ],
)
def test_auto_is_planned_for_the_card_of_the_site(
    where: str, precision: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "has_windows", lambda: True)
    place = site.Destination.find(where)
    plan = submit.checked_plan("tiny/bert", ["layout.precision=auto"], "pretrain", place, where, 1)
    lines = layout_lines(plan)
    assert f"layout.precision: auto, which chooses {precision}" in lines
    assert any(wanted in line for line in lines if line.startswith("attention: "))
    assert estimate("tiny/bert", ["layout.precision=auto"], site=where, per_node=1).precision == precision


def test_an_elmo_is_planned_in_the_precision_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 1)
    words = ["layout.precision=auto", "model.lstm=fast"]
    for where, lacks in ("saga:a100", True), ("power9", False):
        plan = submit.checked_plan("tiny/elmo", words, "pretrain", site.Destination.find(where), where, 1)
        lines = layout_lines(plan)
        assert ("NVIDIA's kernel supports bf16 with torch" in " ".join(lines)) == lacks, lines


def test_a_model_that_no_gpu_of_the_site_holds_is_refused() -> None:
    big = ("model.width=12288", "model.heads=96", "model.layers=40")
    with pytest.raises(RecipeError, match="per GPU without activations; wanted less than the 16 GiB of P100; split"):
        text("tiny/bert", *big, site="saga", account="x")


def test_a_recipe_with_a_mistake_is_refused(cluster: str) -> None:
    with pytest.raises(RecipeError, match=r"phase\[1\].rat: unknown setting"):
        text("tiny/bert", "phase.rat=1", site=cluster)


# --- handed in


@pytest.fixture
def sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Commands of Slurm that answer what the test says."""
    (folder / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{folder}/bin{os.pathsep}{os.environ['PATH']}")

    def answers(name: str, body: str) -> None:
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    for name in ("squeue", "sinfo"):  # those of a Slurm without a controller would wait for it
        answers(name, "exit 1")
    return answers


NEXT = 'echo "$@" >> asked; n=$(wc -l < asked); echo $((40 + n))'


def test_a_job_is_handed_in_and_told_of(
    cluster: str, sbatch: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sbatch("sbatch", NEXT)
    sbatch("squeue", 'echo "41|RUNNING|None"')
    sbatch("sacct", 'echo "42|COMPLETED"')
    main(["submit", "tiny/bert", "--site", cluster, "--yes", "--data-inside"])
    assert "submitted: 41" in capsys.readouterr().out
    main(["submit", "tiny/bert", "--site", cluster, "--yes", "--json", "--data-inside"])
    assert json.loads(capsys.readouterr().out)["jobs"] == ["42"]
    main(["submit", "--status", "--json"])
    jobs = json.loads(capsys.readouterr().out)
    assert [(job["job"], job["state"], job["title"]) for job in jobs] == [
        ("41", "RUNNING", "pretrain-tiny-bert"),
        ("42", "COMPLETED", "pretrain-tiny-bert"),
    ]
    main(["submit", "--status"])
    assert "41   RUNNING    pretrain-tiny-bert" in capsys.readouterr().out


def test_data_that_are_missing_are_made_first_without_gpus(
    cluster: str, sbatch: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sbatch("sbatch", NEXT)
    main(["submit", "tiny/bert", "--site", cluster, "--yes", "--json", "--chain", "2"])
    facts = json.loads(capsys.readouterr().out)
    assert (facts["jobs"], facts["data"]) == (["42", "43"], ["work/jobs/encode-stdlib-wordpiece-1.sh"])
    first, second, third = (folder / "asked").read_text().splitlines()
    assert first == "--parsable work/jobs/encode-stdlib-wordpiece-1.sh"
    assert second == "--parsable --dependency=afterok:41 --kill-on-invalid-dep=yes work/jobs/pretrain-tiny-bert-1.sh"
    assert third == "--parsable --dependency=afterany:42 work/jobs/pretrain-tiny-bert-1.sh"
    script = (folder / facts["data"][0]).read_text()
    assert script.count("-m ordsmed encode stdlib-wordpiece") == 1
    assert "--site" not in script.partition("run() {")[2]
    assert prepare("tiny/bert", [], JobRequest(site=cluster, data_inside=True)).data == ()
    several = prepare("tiny/bert", ["seed=5"], JobRequest(site=cluster))
    sent.queue(replace(several, data=several.data * 2))
    assert "--dependency=afterok:44 --kill-on-invalid-dep=yes" in (folder / "asked").read_text().splitlines()[4]


def test_data_go_to_the_partition_without_gpus(folder: Path) -> None:
    """In its own time and quality, which may not be had there."""
    written = prepare("tiny/bert", [], JobRequest(site="saga:a100", account="x", nodes=2, time="3h"))
    assert "--partition=a100" in directives(written.path.read_text())
    script = directives(written.data[0].path.read_text())
    assert {"--nodes=1", "--account=x", "--ntasks-per-node=1", "--cpus-per-task=40"} <= set(script)
    assert not [line for line in script if line.startswith(("--gpus", "--partition"))], "that of Saga has no name"
    line = "work/jobs/encode-stdlib-wordpiece-1.sh: written; it makes the data first, on normal without GPUs"
    assert line in written.lines


def test_data_are_made_inside_where_no_node_without_gpus_has_such_a_processor(folder: Path) -> None:
    written = prepare("tiny/bert", [], JobRequest(site="olivia", account="x"))
    assert written.data == ()
    [line] = [line for line in written.lines if line.startswith("the job makes its data itself")]
    assert "small has x86_64 processors, but accel aarch64" in line


def test_every_submission_has_a_script_of_its_own(cluster: str, sbatch: Any, folder: Path) -> None:
    """One that was not sent in yet is taken again, word for word; what was, is never changed."""
    sbatch("sbatch", NEXT)
    first = prepare("tiny/bert", ["seed=1"], JobRequest(site=cluster))
    assert prepare("tiny/bert", ["seed=1"], JobRequest(site=cluster)).path == first.path
    other = prepare("tiny/bert", ["seed=2"], JobRequest(site=cluster))
    assert [written.path.name for written in (first, other)] == ["pretrain-tiny-bert-1.sh", "pretrain-tiny-bert-2.sh"]
    text = other.path.read_text()
    sent.queue(replace(other, data=()))
    again = prepare("tiny/bert", ["seed=2"], JobRequest(site=cluster))
    assert again.path.name == "pretrain-tiny-bert-3.sh"
    assert (again.job.log.name, again.job.record.name) == ("pretrain-tiny-bert-3-%j.log", "pretrain-tiny-bert-3.tries")
    assert "seed=1" in first.path.read_text()
    assert other.path.read_text() == text
    named = prepare("tiny/bert", ["seed=3"], JobRequest(site=cluster), out="mine/x.sh")
    assert (named.path, named.job.log.name) == (Path("mine/x.sh"), "x-%j.log")


def test_what_slurm_knows_no_more_is_told_by_the_run_s_folder(
    cluster: str, sbatch: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without accounting, with logs that are there, and what was lost."""
    sbatch("sbatch", NEXT)
    sbatch("squeue", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    sbatch("sacct", 'echo "Slurm accounting storage is disabled" >&2; exit 1')
    written = prepare("tiny/bert", ["out=work/x"], JobRequest(site=cluster))
    assert sent.queue(replace(written, data=())) == ["41"]
    (folder / "work/x").mkdir()
    (folder / "work/x/status.json").write_text('{"state": "done", "verb": "pretrain"}')
    (folder / "work/jobs/pretrain-tiny-bert-1-41.log").write_text("")
    (folder / "work/jobs/pretrain-tiny-bert-1.tries").write_text("41 run now n1 0\n41 lost now n1\n40 lost now n2\n")
    main(["submit", "--status", "--json"])
    (job,) = json.loads(capsys.readouterr().out)
    assert (job["state"], job["lost"]) == ("left the queue; work/x is done", ["n1"])
    assert job["logs"] == [job["log"]] == [str(folder / "work/jobs/pretrain-tiny-bert-1-41.log")]
    main(["submit", "--status"])
    shown = capsys.readouterr().out
    assert "left the queue; work/x is done; lost n1 (1 of 3 tries)" in shown
    assert (
        "sacct: Slurm accounting storage is disabled: the state of a job that left the queue is that of its folder"
        in shown
    )


def test_what_a_job_waits_for_or_ended_by_is_shown(
    cluster: str, sbatch: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line of its log, behind which Slurm may say more; one that trains on writes others."""
    sbatch("sbatch", NEXT)
    sbatch("squeue", 'printf "41|FAILED|None\\n42|RUNNING|None\\n43|RUNNING|None\\n44|COMPLETED|None\\n"')
    written = replace(prepare("tiny/bert", ["out=work/x"], JobRequest(site=cluster)), data=())
    waits = "ordsmed: rank 0: waiting for n2 (rank 1) (60 of 600 s)"
    logs = {
        "41": "ordsmed: MASTER_ADDR: found n1, which\nsrun: error: n2: task 1: Exited with exit code 1\n",
        "42": f"on cpu\n{waits}\n",
        "43": f"{waits}\nstep 5\n",
        "44": f"{waits}\n",
    }
    for number, log in logs.items():
        assert sent.queue(written) == [number]
        (folder / f"work/jobs/pretrain-tiny-bert-1-{number}.log").write_text(log)
    assert [job["last"] for job in sent.submitted_jobs()[0]] == ["MASTER_ADDR: found n1, which", waits[9:], "", ""]
    main(["submit", "--status"])
    assert f"41: MASTER_ADDR: found n1, which\n42: {waits[9:]}\n" in capsys.readouterr().out


def test_tasks_of_an_array_are_counted(sbatch: Any) -> None:
    sbatch("squeue", 'printf "41|RUNNING|None\n41|RUNNING|None\n41|PENDING|Resources\n"')
    sbatch("sacct", 'printf "42_1|COMPLETED\n42_2|FAILED\n"')
    assert slurm.states(["41", "42"])[0] == {"41": "RUNNING 2, PENDING (Resources) 1", "42": "COMPLETED 1, FAILED 1"}


def test_a_state_is_its_first_word(sbatch: Any) -> None:
    """Slurm's accounts tell by whom a job was cancelled; one that waits tells why, where it does."""
    sbatch("squeue", 'printf "41|PENDING|Priority\\n45|PENDING|None\\n"')
    sbatch("sacct", 'printf "42|CANCELLED by 1000\\n43|TIMEOUT\\n"')
    assert slurm.states(["41", "42", "43", "44", "45"]) == (
        {"41": "PENDING (Priority)", "42": "CANCELLED", "43": "TIMEOUT", "45": "PENDING"},
        "",
    )
    assert {"CANCELLED", "TIMEOUT"} <= set(slurm.OVER)


def test_a_chain_waits_one_for_the_other(cluster: str, sbatch: Any, folder: Path) -> None:
    sbatch("sbatch", NEXT)
    written = prepare("tiny/bert", [], JobRequest(site=cluster, requeue=False))
    assert "--no-requeue" in directives(written.path.read_text())
    assert "requeue=no" in written.path.read_text()
    assert sent.queue(replace(written, data=()), chain=3) == ["41", "42", "43"]
    asked = (folder / "asked").read_text().splitlines()
    assert asked[0].startswith("--parsable work")
    assert asked[2].startswith("--parsable --dependency=afterany:42 work")


def test_what_slurm_refuses_is_told_in_its_words(cluster: str, sbatch: Any, folder: Path) -> None:
    sbatch("sbatch", 'echo "sbatch: error: Invalid account" >&2; exit 1')
    written = prepare("tiny/bert", [], JobRequest(site=cluster))
    with pytest.raises(RunError, match="sbatch: error: Invalid account; nothing was queued by this call"):
        sent.queue(written)
    with pytest.raises(OrdsmedError, match="no job was submitted from this folder"):
        sent.submitted_jobs()
    sbatch("sbatch", "echo what")
    with pytest.raises(RunError, match="sbatch: answered 'what'; wanted a job's number"):
        sent.queue(written)


def test_a_chain_that_breaks_keeps_what_was_sent(cluster: str, sbatch: Any, folder: Path) -> None:
    sbatch("sbatch", f"[ -e asked ] && exit 1; {NEXT}")
    for name in ("squeue", "sacct"):  # else a machine with Slurm asks its own
        sbatch(name, "exit 1")
    with pytest.raises(RunError):
        sent.queue(prepare("tiny/bert", [], JobRequest(site=cluster)), chain=2)
    assert [job["job"] for job in sent.submitted_jobs()[0]] == ["41"]


def test_no_slurm_here(cluster: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = prepare("tiny/bert", [], JobRequest(site=cluster))
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)
    with pytest.raises(RunError, match="sbatch: is not on this machine; wanted a login node of the cluster; leave out"):
        sent.queue(written)


def test_a_job_is_called_by_verb_and_recipe_once(cluster: str) -> None:
    titles = {
        name: prepare(name, [], JobRequest(site=cluster)).job.title for name in ("pretrain/bert-base", "tiny/bert")
    }
    assert titles == {"pretrain/bert-base": "pretrain-bert-base", "tiny/bert": "pretrain-tiny-bert"}


@pytest.mark.parametrize(
    ("said", "hours"), [("12h", 12), ("90m", 1.5), ("2d", 48), ("1-12:30:00", 36.5), ("02:30:00", 2.5), ("00:45", 0.75)]
)
def test_times(said: str, hours: float) -> None:
    assert slurm.hours(said) == hours
    assert slurm.hours(slurm.time(hours)) == hours


def test_no_recipe_and_no_site(capsys: pytest.CaptureFixture[str]) -> None:
    for words, missing in (([], "RECIPE"), (["tiny/bert"], "--site")):
        with pytest.raises(SystemExit):
            main(["submit", *words])
        assert f"no {missing}" in capsys.readouterr().err


def test_modules_of_the_user_s_are_found_in_the_job(
    cluster: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever shell the script is sent in from; what `like` or a list names, a callback's too."""
    lab = folder / "the lab"
    (lab / "lab_of_jobs").mkdir(parents=True)
    (lab / "lab_of_jobs/__init__.py").touch()
    (lab / "lab_of_jobs/loud.py").write_text(
        "from dataclasses import dataclass\nfrom ordsmed.base.menu import Choice\n"
        "@dataclass(frozen=True)\nclass Loud(Choice):\n    def clean(self, text, meta):\n        return text.upper()\n"
    )
    (lab / "lab_of_jobs/bell.py").write_text("def after_step(state):\n    pass\n")
    monkeypatch.syspath_prepend(lab)
    (folder / "c.toml").write_text('clean = ["lab_of_jobs.loud"]\n[source]\nkind = "text"\npath = "x.txt"\n')
    line = f"export PYTHONPATH='{lab}'\"${{PYTHONPATH:+:$PYTHONPATH}}\"  # modules that the recipe names"
    assert line in text("c.toml", site=cluster).splitlines()
    assert line in text("tiny/bert", 'callbacks=["lab_of_jobs.bell"]', site=cluster).splitlines()
    assert "PYTHONPATH" not in text(site=cluster)
    words = ("tiny/bert", 'callbacks=["lab_of_jobs.bell"]')
    (folder / "jobs").mkdir()
    monkeypatch.chdir(folder / "jobs")
    place = str(folder / "here.toml")
    assert f" --bind {folder}/jobs --bind '{lab}' x.sif " in text(*words, site=place, container="x.sif")
    mounts = f"--container-mounts={folder}/jobs:{folder}/jobs,'{lab}':'{lab}' "
    assert mounts in text(*words, site=place, container="x", enroot=True)
    made = subprocess.run(
        ["bash", "-c", f'{line}\necho "$PYTHONPATH"'],
        env={"PYTHONPATH": "a:b"},
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    assert made == f"{lab}:a:b\n"
