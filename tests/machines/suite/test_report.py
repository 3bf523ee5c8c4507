"""Reports of the list: written in three ways, two of them compared, and what ReFrame reads."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
import subprocess
import sys
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.launch.site import Destination
from ordsmed.cli import main
from ordsmed.machines.suite import reframe, report


def row(case: str, state: str = "ok", text: str = "fine", **figures: float) -> dict[str, Any]:
    return {
        "item": "steps",
        "case": case,
        "state": state,
        "text": text,
        "remedy": "",
        "figures": figures,
        "seconds": 1.5,
        "node": "n2" if state == "error" else "",
    }


REPORT = {
    "host": "n1",
    "site": "",
    "made": "2026-11-23 08:00:00",
    "facts": {"torch": "2.11.0"},
    "items": [row("a"), row("b", "error", 'loss "3" is <nan>'), row("c", "absent"), row("d", **{"steps/s": 10.0})],
}


def test_all_three_say_the_same(tmp_path: Path) -> None:
    report.write(tmp_path, REPORT)
    assert report.read(str(tmp_path)) == REPORT == report.read(str(tmp_path / "report.json"))
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped", "time")} == {
        "tests": "4",
        "failures": "1",
        "skipped": "1",
        "time": "6.000",
    }
    failure = suite.find("testcase[@name='b']/failure")
    assert failure is not None
    assert failure.get("message") == 'n2 loss "3" is <nan>'
    assert suite.find("testcase[@name='c']/skipped") is not None
    page = (tmp_path / "report.md").read_text()
    assert "2 ok, 1 wrong, 1 absent" in page
    assert "10 steps/s" in page
    assert "n2: loss" in page


def changed(**cases: dict[str, Any] | None) -> dict[str, Any]:
    new = copy.deepcopy(REPORT)
    items: list[dict[str, Any]] = new["items"]  # type: ignore[assignment]
    new["items"] = [cases.get(one["case"], one) for one in items if cases.get(one["case"], one)]
    return new


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (changed(), []),
        (changed(a=row("a", "error", "loss 2 is 7")), ["steps, a: was ok, is error: loss 2 is 7"]),
        (changed(a=row("a", "absent", "not installed")), ["steps, a: was ok, is absent: not installed"]),
        (changed(a=None), ["steps, a: was ok, is missing"]),
        (changed(b=row("b")), []),
        (changed(b=None), []),
        (changed(d=row("d", **{"steps/s": 7.9})), ["steps, d: 10 steps/s before, 7.9 now, 21% slower"]),
        (changed(d=row("d", **{"steps/s": 8.1})), []),
        (changed(d=row("d")), []),
    ],
)
def test_a_regression_is_named(new: dict[str, Any], lines: list[str]) -> None:
    assert report.regressions(REPORT, new) == lines


def test_compared_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = changed(d=row("d", **{"steps/s": 9.0}))
    new["facts"] = {"torch": "2.12.0"}
    report.write(tmp_path / "old", REPORT)
    report.write(tmp_path / "new", new)
    folders = [str(tmp_path / "old"), str(tmp_path / "new")]
    for flags, status, last in (([], 0, "0 worse, of 4 cases"), (["--slower", "5"], 1, "1 worse, of 4 cases")):
        with pytest.raises(SystemExit) as end:
            main(["validate", "--compare", *folders, *flags])
        assert end.value.code == status
        lines = capsys.readouterr().out.splitlines()
        assert (lines[0], lines[-1]) == ("differs  torch: 2.11.0 before, 2.12.0 now", last)
    with pytest.raises(SystemExit):
        main(["validate", "--compare", *folders, "--slower", "5", "--json"])
    assert json.loads(capsys.readouterr().out)["regressions"] == ["steps, d: 10 steps/s before, 9 now, 10% slower"]


def test_what_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such report; wanted a folder of `ordsmed validate`"):
        report.read(str(tmp_path))
    for text in ("{}", '{"items": [{}]}', '{"items": [1]}'):
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(DataError, match="is not a report"):
            report.read(str(tmp_path))


def loaded(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_site_as_reframe_reads_it(tmp_path: Path) -> None:
    here = [Destination.find("saga:a100")]
    unkept = reframe.configuration(here, tmp_path, lambda words: None if words[0] == "sacct" else "slurm 22")
    assert "'squeue'" in unkept
    configuration, test = reframe.write(tmp_path, here, lambda words: None)
    assert "'squeue'" not in configuration.read_text()
    (system,) = loaded(configuration).site_configuration["systems"]
    assert system["hostnames"] == [".*"]
    parts = {one["name"]: one for one in system["partitions"]}
    assert parts["a100"]["access"] == ["--partition=a100", "--mem-per-gpu=250G"]
    assert parts["normal"]["access"] == ["--mem-per-cpu=4569M"], "Slurm's usual one is named by none"
    assert parts["a100"]["launcher"] == "srun"
    assert parts["a100"]["resources"] == [{"name": "gpus", "options": ["--gpus={total}"]}]
    assert parts["a100"]["extras"] == {"gpus": 4, "cores": 32, "nodes": 7, "site": "saga:a100"}
    assert parts["a100"]["prepare_cmds"] == ["module --force swap StdEnv Zen2Env"]
    assert sys.executable in test.read_text()
    compile(test.read_text(), "test", "exec")
    (system,) = loaded(reframe.write(tmp_path, [])[0]).site_configuration["systems"]
    assert [one["scheduler"] for one in system["partitions"]] == ["local"]
    assert "site" not in system["partitions"][0]["extras"]


def test_several_systems_in_one_configuration(tmp_path: Path) -> None:
    """Each by its name, with a command of its own; results of all are kept in one file."""
    configuration, test = reframe.write(
        tmp_path, [Destination.find("saga"), Destination.find("lumi")], lambda words: None
    )
    table = loaded(configuration).site_configuration
    assert [(one["name"], one["hostnames"]) for one in table["systems"]] == [("saga", [".*saga"]), ("lumi", [".*lumi"])]
    commands = {part["extras"]["executable"] for system in table["systems"] for part in system["partitions"]}
    assert commands == {"ordsmed"}
    assert table["storage"] == [{"enable": True, "backend": "sqlite", "sqlite_db_file": str(tmp_path / "results.db")}]
    assert sys.executable not in test.read_text()
    with pytest.raises(RecipeError, match="found saga twice; wanted each system once"):
        reframe.write(tmp_path, [Destination.find("saga:a100"), Destination.find("saga:accel")])


def local_site(path: Path, name: str) -> str:
    """A machine without Slurm, as a site of that name."""
    file = path / f"{name}.toml"
    file.write_text(f'title = "{name}"\n[layout]\ndevice = "cpu"\n')
    return str(file)


def test_reframe_reads_and_runs_both(tmp_path: Path) -> None:
    """Where it is installed (`pip install reframe-hpc`): two systems, one run each, their speeds side by side."""
    if not (program := shutil.which("reframe")):
        pytest.skip("needs `reframe`")
    sites = [local_site(tmp_path, name) for name in ("a", "b")]
    main(["validate", "--reframe", str(tmp_path), "--site", sites[0], "--site", sites[1]])
    configuration, test = tmp_path / reframe.CONFIGURATION, tmp_path / reframe.TEST
    fake = tmp_path / "ordsmed"
    kept = f"import json, os; os.mkdir('validate'); json.dump({REPORT!r}, open('validate/report.json', 'w'))"
    fake.write_text(f"#!{sys.executable}\n{kept}\nprint('2 ok, 0 wrong, 1 absent')\n")
    fake.chmod(0o755)
    text = configuration.read_text().replace("'executable': 'ordsmed'", f"'executable': '{fake}'")
    configuration.write_text(text)

    def answer(*words: str) -> str:
        command = [program, "-C", str(configuration), "-c", str(test), "--prefix", str(tmp_path / "kept")]
        done = subprocess.run([*command, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
        return done.stdout + done.stderr

    assert "Found 4 check(s)" in answer("--system", "a", "-l")
    for system in ("a", "b"):
        assert "Ran 1/1 test case(s)" in (said := answer("--system", system, "-t", "1_node$", "-r")), said
    stored = answer("--system", "a", "--list-stored-testcases", "now-1d:now/last:/+system")
    assert "steps_d" in stored
    with pytest.raises(SystemExit) as end:
        main(["validate", "--collect", str(tmp_path / "kept"), "--json"])
    assert end.value.code == 0


def test_what_is_slower_by_less_than_the_share_is_not_told() -> None:
    slower = lambda now: list(report._slower({"steps/s": 100.0, "seconds": 1.0}, {"steps/s": now, "seconds": 0.1}, 0.2))  # noqa: E731
    assert slower(80.0) == slower(99.0) == []
    assert slower(79.0) == ["100 steps/s before, 79 now, 21% slower"]
