"""What is worth knowing of a GPU, by one command of less than nine minutes, on a machine that has torch and no more.

    python3 tests/measure/gpu_once.py FOLDER                     # what is found stands in FOLDER, as it comes
    python3 tests/measure/gpu_once.py FOLDER --only kernels flash   # these alone
    python3 tests/measure/gpu_once.py FOLDER --dry               # the same ways on a CPU, with tiny sizes
    python3 tests/measure/gpu_once.py --fetch 3.12               # beforehand, with a network: wheels/ for that Python

Each step is a process group of its own with its limit; one that fails, hangs or lacks something costs no other. FOLDER
gets results.jsonl, a line as each step ends; output.txt, all that they print, as they print it; tests.xml; clocks.txt,
clocks and power beside them; summary.txt. What was finished when the machine went away is there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CLOCK = 530  # seconds for everything
LEAST = 8  # seconds below which no step is begun
PATIENCE = 20  # times a step's seconds that a CPU may take for it
WHEELS = (
    "msgspec",
    "tomli-w",
    "zstandard",
    "tokenizers",
    "safetensors",
    "filelock",
    "rich",
    "markdown-it-py",
    "mdurl",
    "pygments",
    "pytest",
    "pytest-xdist",
    "execnet",
    "pluggy",
    "iniconfig",
    "packaging",
    "nvidia-ml-py",
)
ELECTRA = ["electra-small", "model.size=base", "objective.generator={width=256}", "layout.micro=512", "batch=512"]
ROW512 = ["length=512", "layout.micro=128", "batch=128"]
LARGE = ["bert-base", "model.size=large", *ROW512]
GPT2 = ["gpt2-mini", "model.size=345M", "vocabulary=50257", "length=1024", "layout.micro=64", "batch=64"]
TINY = [
    "model.width=64",
    "model.layers=1",
    "vocabulary=500",
    "tokens=20000",
    "batch=4",
    "layout.micro=2",
    "length=16",
    "steps=1",
    "rounds=1",
]


@dataclass(frozen=True)
class Step:
    """One thing to find out: its name, the seconds it may take, the command, and the command on a CPU."""

    name: str
    seconds: int
    command: tuple[str, ...]
    dry: tuple[str, ...]


@dataclass
class Result:
    """How a step ended; "skipped": no time was left."""

    name: str
    state: str
    seconds: float = 0.0
    status: int | None = None
    last: str = ""


def script(name: str, seconds: int, file: str, *words: str) -> Step:
    command = (str(HERE / file), *words)
    return Step(name, seconds, command, (*command, "--small"))


def bench(name: str, seconds: int, words: Sequence[str]) -> Step:
    more = [each for each in words[1:] if not each.startswith(("model.", "objective."))]
    sizes = ["model.cells=64", "objective.samples=64"] if words[0].startswith("elmo") else ["model.heads=1"]
    start = ("-m", "ordsmed", "bench", words[0], "--json")
    kinds = () if any(each.startswith("layout.precision") for each in words) else ("layout.precision=bf16",)
    dry = (*start, *more, *TINY, *sizes, "layout.device=cpu", "layout.precision=fp32")
    return Step(name, seconds, (*start, *words[1:], *kinds, "steps=20", "profile=2"), dry)


STEPS = [
    script("environment", 20, "gpu_checks.py", "environment"),
    script("kernels", 60, "gpu_checks.py", "kernels"),
    script("flash", 30, "gpu_checks.py", "attention"),
    Step("tests", 150, ("-m", "pytest", "tests/gpu"), ("-m", "pytest", "tests/gpu")),
    bench("electra at 128", 45, ELECTRA),
    bench("electra at 512", 35, [*ELECTRA, *ROW512]),
    bench("bert-large at 512", 35, LARGE),
    bench("gpt2-345m at 1024", 35, GPT2),
    bench("elmo", 40, ["elmo-original"]),
    script("parts", 40, "gpu_parts.py"),
    script("sweep", 40, "gpu_sweep.py"),
    bench("electra at 128, plain kernels", 30, [*ELECTRA, "layout.kernels=plain"]),
    bench("electra at 128, compiled", 40, [*ELECTRA, "layout.compile=true"]),
    script("times of kernels", 40, "gpu_kernels.py"),
]


class Run:
    """The steps one after the other, by one clock."""

    def __init__(self, folder: Path, clock: float, *, dry: bool) -> None:
        self.folder, self.dry, self.end = folder, dry, time.monotonic() + clock
        self.scratch = Path(tempfile.mkdtemp(prefix="gpu-once-"))
        self.results: list[Result] = []
        self.child: subprocess.Popen[bytes] | None = None
        paths = [str(self.scratch / "site"), str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONUNBUFFERED": "1",
            "XDG_CACHE_HOME": str(self.scratch / "cache"),
        }

    def perform(self, step: Step) -> None:
        """One step, if time is left for it; its line is written as it ends."""
        left = self.end - time.monotonic()
        if left < LEAST:
            return self.note(Result(step.name, "skipped", last=f"{max(left, 0):.0f} s were left"))
        words = [*(step.dry if self.dry else step.command)]
        if "pytest" in words:
            words += self.of_pytest()
        began, limit = time.monotonic(), min(step.seconds * (PATIENCE if self.dry else 1), left)
        output = self.folder / "output.txt"
        with output.open("ab") as file:
            file.write(f"\n=== {step.name} (at most {limit:.0f} s): {' '.join(words)}\n".encode())
            file.flush()
            begin = file.tell()
            state, status = self.within(limit, words, file)
        result = Result(step.name, state, round(time.monotonic() - began, 1), status, last_line(output, begin))
        return self.note(result)

    def within(self, limit: float, words: list[str], file: Any) -> tuple[str, int | None]:
        """How a process ends; it is ended at its limit, with all that it started."""
        self.child = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT if "pytest" in words else self.scratch,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = self.child.wait(limit)
            return ("failed" if status else "done"), status
        except subprocess.TimeoutExpired:
            return "too long", None
        finally:
            end_group(self.child)
            self.child = None

    def of_pytest(self) -> list[str]:
        has_xdist = importlib.util.find_spec("xdist") or list(self.scratch.glob("site/xdist"))
        more = ["-n", "6"] if has_xdist and not self.dry else []
        return [*more, "-q", "-W", "default", "-p", "no:cacheprovider", f"--junitxml={self.folder / 'tests.xml'}"]

    def note(self, result: Result) -> None:
        """Onto the disk, so that it is there whatever comes."""
        self.results.append(result)
        with (self.folder / "results.jsonl").open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(spoken(result), flush=True)

    def install(self) -> None:
        """Wheels of what this Python lacks, into a folder that goes away."""
        wheels = [wheel for wheel in sorted((ROOT / "wheels").glob("*.whl")) if not is_there(wheel)]
        if not wheels:
            return self.note(Result("wheels", "done", last="nothing to install"))
        words = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target"]
        step = ("wheels", 60, (*words, str(self.scratch / "site"), *map(str, wheels)))
        return self.perform(Step(*step, step[2]))

    def close(self, why: str = "") -> None:
        """The summary, and the scratch folder away."""
        lines = [*([why] if why else []), *map(spoken, self.results)]
        (self.folder / "summary.txt").write_text("\n".join(lines[:60]) + "\n")
        shutil.rmtree(self.scratch, ignore_errors=True)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """A process and all that it started; those that it left behind too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_line(output: Path, begin: int) -> str:
    """The last that a step said."""
    with output.open("rb") as file:
        file.seek(max(begin, output.stat().st_size - 20_000))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:8_000] if lines else ""


def is_there(wheel: Path) -> bool:
    """Does this Python have the package, in whatever version?"""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(wheel.name.split("-")[0])
    except PackageNotFoundError:
        return False
    return True


def spoken(result: Result) -> str:
    return f"{result.name:30s} {result.state:9s} {result.seconds:6.1f} s  {result.last[:150]}"


def fetch(python: str) -> None:
    """Wheels for a Linux machine with this Python, into wheels/."""
    tags = ("2_28", "2_27", "2_24", "2_17", "2014", "1")
    platforms = [f"--platform=manylinux{'_' if '_' in tag else ''}{tag}_x86_64" for tag in tags]
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    where = [f"--python-version={python}", "--implementation=cp", "-d", str(ROOT / "wheels")]
    subprocess.run([*words, *where, *platforms, *WHEELS], check=True)


def clocks(folder: Path) -> subprocess.Popen[bytes] | None:
    """Clocks, power and heat, a line a second, as long as all goes on."""
    if not shutil.which("nvidia-smi"):
        return None
    with (folder / "clocks.txt").open("ab") as file:
        return subprocess.Popen(
            ["nvidia-smi", "dmon", "-s", "pucm", "-d", "1"], stdout=file, stderr=file, start_new_session=True
        )


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("folder", type=Path, nargs="?")
    reader.add_argument("--only", nargs="+", choices=[step.name for step in STEPS], metavar="NAME")
    reader.add_argument("--clock", type=float, default=CLOCK, help=f"seconds for everything ({CLOCK})")
    reader.add_argument("--dry", action="store_true")
    reader.add_argument("--fetch", metavar="PYTHON")
    asked = reader.parse_args()
    if asked.fetch:
        fetch(asked.fetch)
    if not asked.folder:
        return None if asked.fetch else reader.error("found no folder; wanted one for what is found")
    folder = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder, asked.clock, dry=asked.dry)
    beside = None if asked.dry else clocks(folder)

    def cut_off(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, cut_off)
    why = "cut off"
    try:
        run.install()
        for step in STEPS:
            if not asked.only or step.name in asked.only:
                run.perform(step)
        why = ""
    finally:
        if beside:
            end_group(beside)
        run.close(why)
    bad = [result.name for result in run.results if result.state in ("failed", "too long")]
    if bad:
        raise SystemExit(f"not done: {', '.join(bad)}")
    return None


if __name__ == "__main__":
    main()
