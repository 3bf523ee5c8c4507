"""What a job's script does when a run ends: what was lost is tried again elsewhere, an error of the recipe never."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from ordsmed.base.launch import site
from ordsmed.machines.sites import slurm

KILLED = "srun: error: n2: task 1: Killed"
EXITED = "srun: error: n1: task 0: Exited with exit code 1"
ECHO = "srun: error: n1: task 0: Exited with exit code 75"
NAMED = "ordsmed: processes: lost or hanging: rank 1 (n2, process 5) at step 4, learning; wanted a step"


class Cluster:
    """Slurm's commands as files: what `srun` says and ends with, one after the other; what is asked of the others."""

    def __init__(self, folder: Path, *, parts: int = 0, nodes: int = 2, **job: object) -> None:
        self.folder, self.nodes = folder, f"n[1-{nodes + int(job.get('spares', 0))}]"
        (folder / "bin").mkdir()
        (folder / "site.toml").write_text(
            'source = "x"\nchecked = "2026-11"\nscheduler = "slurm"\n[[partition]]\nname = "main"\n'
        )
        place = site.Destination.find(str(folder / "site.toml"))
        self.record = folder / "a.tries"
        self.job = slurm.BatchJob(
            words=("pretrain", "x"),
            place=place,
            title="x",
            folder=folder,
            log=folder / "log",
            hours=24,
            nodes=nodes,
            record=self.record,
            saves=folder,
            **job,
        )
        self.command(
            "srun",
            """case "$*" in *" -c "*) exit ;; esac  # what is imported is asked first
n=$(cat turn 2>/dev/null || echo 1); echo "$@" >>ran; echo $((n + 1)) >turn; . "./srun.$n\"""",
        )
        self.command(
            "scontrol",
            r"""case "$1 $2" in
"show job") echo "   ExcNodeList=${EXCLUDED:-(null)}" ;;
"show hostnames") sed -E 's/^n\[1-2\]$/n1,n2/; s/^n\[1-3\]$/n1,n2,n3/' <<<"$3" | tr , '\n' ;;
*) echo "$@" >>asked ;;
esac""",
        )
        self.command("sinfo", 'case "$*" in *down*) cat down 2>/dev/null;; esac')
        self.command("squeue", "true")
        self.command("scancel", "true")
        self.command("sbatch", 'echo "sbatch $1 $2" >>asked; [ -z "$FULL" ]')

    def command(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, *ends: tuple[int, str], **environment: str) -> int:
        """Run the script; `srun` ends so, one after the other, and well at last."""
        for number, (status, line) in enumerate([*ends, (0, "done")], 1):
            (self.folder / f"srun.{number}").write_text(f"printf '%b\\n' {line!r} >&2\nexit {status}\n")
        path = self.folder / "job.sh"
        path.write_text(slurm.script(self.job))
        more = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": self.nodes,
            **environment,
        }
        with (self.folder / "log").open("ab") as log:
            done = subprocess.run(["bash", path], env=os.environ | more, stdout=log, stderr=log, check=False)
        return done.returncode

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def asked(self) -> list[str]:
        return [line for line in self.lines("asked") if not line.startswith("sbatch")]

    def lost(self) -> list[str]:
        return [line.split()[3] for line in self.lines("a.tries") if line.split()[1] == "lost"]


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (137, KILLED),
        (75, NAMED),
        (75, f"{KILLED}\n{ECHO}"),
        (139, KILLED),
        (253, KILLED),
        (137, f"{KILLED}\nsrun: First task exited 120s ago\nsrun: error: n1: task 0: Killed"),
    ],
)
def test_what_was_lost_is_sent_in_again_without_its_node(tmp_path: Path, status: int, line: str) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.run((status, line)) == status
    assert cluster.lost() == ["n2"]
    assert cluster.asked() == ["requeue 7", "update jobid=7 excnodelist=n2"]
    assert len(cluster.lines("ran")) == 1


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (1, EXITED),
        (2, "ordsmed: submit: no such flag"),
        (75, EXITED),
        (137, f"{EXITED}\n{KILLED}"),
        (143, EXITED),
        (130, ""),
        (127, "python: not found"),
        (75, f"{EXITED}\nsrun: First task exited 120s ago\n{KILLED}"),
    ],
)
def test_an_error_of_its_own_ends_the_job(tmp_path: Path, status: int, line: str) -> None:
    cluster = Cluster(tmp_path, spares=1)
    assert cluster.run((status, line)) == status
    assert (cluster.lost(), cluster.asked(), len(cluster.lines("ran"))) == ([], [], 1)


@pytest.mark.parametrize(("status", "again"), [(143, True), (138, True), (129, True), (130, False), (141, False)])
def test_a_run_that_was_told_to_save_is_sent_in_again(tmp_path: Path, status: int, again: bool) -> None:
    """By SIGTERM, SIGUSR1 or SIGHUP; Ctrl-C and a reader that went away end it."""
    cluster = Cluster(tmp_path)
    assert cluster.run((status, "")) == status
    assert (cluster.asked(), cluster.lost()) == (["requeue 7"] if again else [], [])


def test_what_ended_well_is_done(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.run() == 0
    assert cluster.asked() == []
    assert [line.split()[1] for line in cluster.lines("a.tries")] == ["run", "over"]


@pytest.mark.parametrize("line", ["Node failure on n2", "Timed out waiting for job step to complete"])
def test_srun_may_end_well_where_a_node_did_not(tmp_path: Path, line: str) -> None:
    """A run that is done says so when it is started once more."""
    cluster = Cluster(tmp_path)
    assert cluster.run((0, f"srun: error: {line}"), FULL="yes") == 0
    assert len(cluster.lines("ran")) == 2


def test_without_other_nodes_it_goes_on_here_and_not_for_ever(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, retries=2)
    assert cluster.run((137, KILLED), (75, NAMED), (137, KILLED), FULL="yes") == 137
    assert cluster.asked() == []
    assert cluster.lost() == ["n2", "n2", "n2"]
    assert len(cluster.lines("ran")) == 3
    assert "lost 3 times (n2), so it is not restarted again; see" in cluster.lines("log")[-1]
    assert cluster.lines("log").count("ordsmed: there are no nodes without n2") == 2


def test_losses_are_counted_over_submissions_of_the_same_job(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, retries=1)
    cluster.record.write_text("6 lost now n1\n6 lost now n1\n7 run now n1,n3 0\n7 over now 137\n7 lost now n3\n")
    assert cluster.run((137, KILLED), SLURM_RESTART_COUNT="1") == 137
    assert cluster.asked() == []
    assert cluster.lost() == ["n1", "n1", "n3", "n2"]


def test_what_is_avoided_grows(tmp_path: Path) -> None:
    """By what was lost before, and what a person left out."""
    cluster = Cluster(tmp_path)
    cluster.record.write_text("7 lost now n3\n")
    cluster.run((137, KILLED), EXCLUDED="n1")
    assert cluster.asked() == ["requeue 7", "update jobid=7 excnodelist=n1,n2,n3"]


def test_a_bad_node_that_came_back_is_not_begun_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.record.write_text("7 lost now n2\n")
    cluster.run(SLURM_RESTART_COUNT="1")
    assert cluster.asked() == ["requeue 7", "update jobid=7 excnodelist=n2"]
    assert cluster.lines("ran") == []


def test_a_node_that_ended_an_attempt_is_counted(tmp_path: Path) -> None:
    """Slurm sends such a job in again itself; one that was only preempted lost nothing."""
    cluster = Cluster(tmp_path, retries=0)
    cluster.record.write_text("7 run now n1,n2 0\n")
    assert cluster.run(SLURM_RESTART_COUNT="1") == 0
    cluster.record.write_text("7 run now n1,n2 0\n")
    (tmp_path / "log").write_text("slurmstepd: *** JOB 7 ON n1 CANCELLED AT now DUE TO NODE FAILURE, SEE LOG ***\n")
    assert cluster.run(SLURM_RESTART_COUNT="2") == 75
    assert cluster.lost() == ["-"]
    cluster.record.write_text("7 run now n1,n2 0\n")
    (tmp_path / "down").write_text("n2\n")
    assert cluster.run(SLURM_RESTART_COUNT="2") == 75
    assert cluster.lost() == ["n2"]
    assert len(cluster.lines("ran")) == 1


def test_a_spare_node_takes_the_place_of_a_lost_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, spares=1)
    assert cluster.run((75, NAMED)) == 0
    first, second = cluster.lines("ran")
    assert {"#SBATCH --nodes=3", "#SBATCH --no-kill  # a lost node does not end the job"} <= set(
        cluster.lines("job.sh")
    )
    assert "--nodelist=n2,n3 --nodes=2 --ntasks=2" in first
    assert "--nodelist=n3,n1 --nodes=2" in second
    assert cluster.asked() == []


def test_where_spares_are_used_up_the_job_is_sent_in_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, spares=1)
    assert cluster.run((75, NAMED), (75, NAMED.replace("n2", "n3"))) == 75
    assert cluster.asked() == ["requeue 7", "update jobid=7 excnodelist=n2,n3"]


def test_all_of_several_nodes_are_none_of_them(tmp_path: Path) -> None:
    """What ends every process, as a lost srun does, is no node's fault."""
    cluster = Cluster(tmp_path)
    assert cluster.run((137, "srun: error: n[1-2]: tasks 0-1: Killed")) == 0
    assert (cluster.lost(), cluster.asked()) == (["-"], [])


@pytest.mark.parametrize(("code", "lost"), [("-9", ["-"]), ("75", ["-"]), ("1", []), ("-15", [])])
def test_torchrun_says_in_its_report_how_processes_ended(tmp_path: Path, code: str, lost: list[str]) -> None:
    cluster = Cluster(tmp_path, torchrun=True)
    assert cluster.run((1, f"  exitcode  : {code} (pid: 5)\n{EXITED}")) == (0 if lost else 1)
    assert cluster.lost() == lost
