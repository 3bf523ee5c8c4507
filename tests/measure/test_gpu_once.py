"""The command for a GPU machine: steps have limits, one clock; what is finished stays; a CPU goes its ways."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("gpu_once", HERE / "gpu_once.py")
assert SPEC
assert SPEC.loader
gpu_once: Any = importlib.util.module_from_spec(SPEC)
sys.modules["gpu_once"] = gpu_once
SPEC.loader.exec_module(gpu_once)


def step(name: str, code: str, seconds: int = 300) -> Any:
    return gpu_once.Step(name, seconds, ("-c", code), ("-c", f"print('dry'); {code}"))


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def is_running(number: int) -> bool:
    """A process that has ended and waits for its parent does not count as running."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ended(number: int) -> bool:
    for _ in range(600):
        if not is_running(number):
            return True
        time.sleep(0.05)
    return False


LEAVES = "import subprocess; print(subprocess.Popen(['sleep', '900']).pid, flush=True)"


def test_a_step_that_fails_hangs_or_leaves_something_costs_no_other(tmp_path: Path) -> None:
    run = gpu_once.Run(tmp_path, 1_000, dry=False)
    run.perform(step("fails", "print('oh'); raise SystemExit(3)"))
    run.perform(step("hangs", f"{LEAVES}; import time; time.sleep(900)", 10))
    run.perform(step("leaves", LEAVES))
    run.perform(step("works", "import os; print(os.getcwd()); print('well')"))
    told = results(tmp_path)
    assert [(each["name"], each["state"], each["status"]) for each in told] == [
        ("fails", "failed", 3),
        ("hangs", "too long", None),
        ("leaves", "done", 0),
        ("works", "done", 0),
    ]
    assert [told[0]["last"], told[3]["last"]] == ["oh", "well"]
    assert ended(int(told[2]["last"]))
    assert ended(int(told[1]["last"])), "a step is ended with all that it started"
    assert "=== works" in (tmp_path / "output.txt").read_text()
    assert str(run.scratch) in (tmp_path / "output.txt").read_text(), "nothing is left in the checkout"
    run.close()
    assert (tmp_path / "summary.txt").read_text().count("\n") == 4
    assert not run.scratch.exists()


def test_what_no_time_is_left_for_is_skipped_and_said(tmp_path: Path) -> None:
    run = gpu_once.Run(tmp_path, gpu_once.LEAST - 1, dry=True)
    run.perform(step("late", "print('never')"))
    assert results(tmp_path)[0]["state"] == "skipped"
    assert "s were left" in results(tmp_path)[0]["last"]
    assert not (tmp_path / "output.txt").exists()
    run.end = time.monotonic() + 12
    run.perform(step("cut", "import time; time.sleep(900)"))
    assert results(tmp_path)[1]["state"] == "too long", "the clock ends a step whose own limit is later"
    run.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_finished_is_there_when_it_is_cut_off(tmp_path: Path, how: signal.Signals) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import gpu_once\n"
        "one = gpu_once.Step('one', 99, ('-c', 'print(1)'), ('-c', 'print(1)'))\n"
        f"two = gpu_once.Step('two', 99, ('-c', {LEAVES + '; import time; time.sleep(900)'!r}), ())\n"
        "gpu_once.STEPS[:] = [one, two]; gpu_once.clocks = lambda folder: None; gpu_once.main()\n"
    )
    child = subprocess.Popen([sys.executable, driver, tmp_path / "found"], stdout=subprocess.DEVNULL)
    output = tmp_path / "found" / "output.txt"
    try:
        for _ in range(1_200):
            lines = output.read_text().splitlines() if output.exists() else []
            if lines and lines[-1].isdigit() and "=== two" in "".join(lines):
                break
            time.sleep(0.05)
        left = int(lines[-1])
        child.send_signal(how)
        status = child.wait(60)
    finally:
        child.kill()
    assert [(each["name"], each["state"]) for each in results(tmp_path / "found")] == [
        ("wheels", "done"),
        ("one", "done"),
    ]
    if how == signal.SIGTERM:
        assert status == 143
        assert (tmp_path / "found" / "summary.txt").read_text().startswith("cut off")
        assert ended(left)
    elif is_running(left):
        os.kill(left, signal.SIGKILL)


def test_its_status_says_whether_all_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_once, "signal", SimpleNamespace(**{**vars(signal), "signal": lambda *_: None}))
    monkeypatch.setattr(gpu_once, "clocks", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["gpu_once", str(tmp_path)])
    monkeypatch.setattr(gpu_once, "STEPS", [step("works", "")])
    gpu_once.main()
    monkeypatch.setattr(gpu_once, "STEPS", [step("fails", "raise SystemExit(3)"), step("works", "")])
    with pytest.raises(SystemExit, match=r"not done: fails$"):
        gpu_once.main()
    assert [result["state"] for result in results(tmp_path) if result["name"] != "wheels"] == ["done", "failed", "done"]


def test_a_wheel_of_what_is_there_is_not_installed() -> None:
    assert gpu_once.is_there(Path("pytest-0.0.1-py3-none-any.whl"))
    assert gpu_once.is_there(Path("tomli_w-9.9-py3-none-any.whl"))
    assert not gpu_once.is_there(Path("no_such_package-1.0-py3-none-any.whl"))


def test_a_bare_python_reads_it() -> None:
    """Nothing but the standard library is needed to begin."""
    words = [sys.executable, "-S", "-I", str(HERE / "gpu_once.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(each.seconds for each in gpu_once.STEPS[:5]) < gpu_once.CLOCK, "what decides is not skipped"


@pytest.mark.long
def test_tests_of_a_gpu_are_collected_without_hypothesis(tmp_path: Path) -> None:
    (tmp_path / "blocked.py").write_text("import sys; sys.modules['hypothesis'] = None\n")
    paths = [str(tmp_path), str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
    words = [
        "-p",
        "blocked",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:schemathesis",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        "tests/gpu",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "72 tests collected" in done.stdout


@pytest.mark.long
def test_a_cpu_goes_the_same_ways(tmp_path: Path) -> None:
    """Checks that need a GPU report that it is missing and exit with status 0; the others run."""
    like = {"electra at 512", "bert-large at 512", "electra at 128, plain kernels", "electra at 128, compiled"}
    long = {"kernels", "times of kernels"} if importlib.util.find_spec("triton") else set()  # by its interpreter
    names = [each.name for each in gpu_once.STEPS if each.name not in like | long]  # like those go the same ways
    words = [sys.executable, str(HERE / "gpu_once.py"), str(tmp_path), "--dry", "--clock", "3000", "--only", *names]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = {each["name"]: each for each in results(tmp_path)}
    assert list(told) == ["wheels", *names]
    assert {name: each["last"] for name, each in told.items() if each["state"] != "done"} == {}
    assert "skipped" in told["tests"]["last"]
    assert all(json.loads(told[name]["last"])["bench"] for name in told if name.startswith(("electra", "gpt2", "elmo")))
    assert len(list(tmp_path.iterdir())) <= 8, "more files do not come back from every machine"
