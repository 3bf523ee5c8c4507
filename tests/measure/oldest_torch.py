"""The tests on the oldest PyTorch that is promised: a venv of its own, made once, and pytest in it.

    python tests/measure/oldest_torch.py FOLDER [--torch 2.7.1] [--index URL] [-- pytest's words]

Takes PyTorch's CPU build from its own index (--index). Where only PyPI is reached, `--index ""` takes the build with
CUDA from there without NVIDIA's 2 GB of libraries: in their place stand libraries made here (`cc`, `nm`, `readelf`)
whose functions all answer that there is no GPU. What runs on a CPU is the wheel's own code in both.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
CPU = "https://download.pytorch.org/whl/cpu"
NO_DEVICE = 100  # cudaErrorNoDevice
LIBRARY = r"lib(cu|nccl|nv)"
FUNCTION = r"(__cuda|cu[a-zA-Z]|nccl|nvrtc|nvml)"


def answer(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def stand_in(folder: Path) -> list[str]:
    """Libraries that torch's own want and that are not there, made of functions that find no GPU."""
    there = {path.name for path in folder.iterdir()}
    wanted: set[str] = set()
    versions, functions = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    defined = set[str]()
    for path in sorted(folder.glob("*.so*")):
        wanted |= set(re.findall(r"NEEDED.*\[(.+?)\]", answer("readelf", "-d", str(path))))
        file = ""
        for line in answer("readelf", "-V", "--wide", str(path)).splitlines():
            if match := re.search(r"File: (\S+)", line):
                file = match[1]
            elif (match := re.search(r"Name: (\S+)", line)) and file:
                versions[file].add(match[1])
        for line in answer("nm", "-D", str(path)).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@")
            if kind != "U":
                defined.add(name)
            elif re.match(FUNCTION, name):
                functions[version.strip("@")].add(name)
    missing = sorted(name for name in wanted - there if re.match(LIBRARY, name))
    for number, name in enumerate(missing):
        own = set().union(*(functions[version] for version in versions[name]), set() if number else functions[""])
        make(folder / name, own - defined, versions[name])
    return missing


def make(path: Path, functions: set[str], versions: set[str]) -> None:
    """A library whose functions answer a number, or words where they are asked what an error means."""
    with tempfile.TemporaryDirectory() as scratch:
        source, names = Path(scratch, "none.c"), Path(scratch, "none.map")
        lines = ["int none_at_all;"]
        for name in sorted(functions):
            words = "String" in name or name.endswith("ErrorName")
            lines.append(
                f'const char *{name}(void) {{ return "no GPU"; }}'
                if words
                else f"long {name}(void) {{ return {NO_DEVICE}; }}"
            )
        source.write_text("\n".join(lines) + "\n")
        names.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions))
        link = [f"-Wl,-soname,{path.name}", *([f"-Wl,--version-script={names}"] if versions else [])]
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", path, source, *link], check=True)


def install(folder: Path, version: str, index: str) -> Path:
    """A venv with this PyTorch and all else that the tests want; its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words = ["--index-url", index] if index else ["--no-deps"]
    subprocess.run([*pip, *words, f"torch=={version}"], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    if not index:
        wanted += ["sympy", "networkx", "jinja2", "fsspec", "typing_extensions"]
        site = next((folder / "lib").glob("python*")) / "site-packages"
        print("instead of NVIDIA's:", *stand_in(site / "torch/lib"))
    pins = folder / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    pins.write_text("".join(line for line in lines if not line.startswith("torch==")), encoding="utf-8")
    subprocess.run([*pip, "-c", pins, *(name for name in wanted if not name.startswith("torch>"))], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", default="2.7.1")
    parser.add_argument("--index", default=CPU)
    asked, words = parser.parse_known_args()
    whole = asked.folder / "whole"
    python = asked.folder / "bin/python"
    if not whole.exists():
        python = install(asked.folder, asked.torch, asked.index)
        whole.touch()
    subprocess.run([python, "-c", "import torch; print('torch', torch.__version__)"], check=True)
    python = python.absolute()
    places = {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    words = [word for word in words if word != "--"] or ["-q", "-n", "2", "--dist", "worksteal", "-m", "not long"]
    done = subprocess.run([python, "-m", "pytest", *words], cwd=ROOT, env=os.environ | places, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
