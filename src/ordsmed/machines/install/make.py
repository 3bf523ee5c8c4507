"""Write the files of an installation and, on request, run its script."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.errors import RunError
from ordsmed.machines.install import containers, easybuild, overlay, venv
from ordsmed.machines.install.default import variables
from ordsmed.machines.install.plan import Installation

WRITERS: dict[str, Callable[[Installation], dict[str, str]]] = {
    "venv": venv.files,
    "module": venv.files,
    "eessi": venv.files,
    "overlay": overlay.files,
    "tykky": containers.tykky,
    "apptainer": containers.apptainer,
    "docker": containers.docker,
    "easybuild": easybuild.files,
}
SCRIPT = "install.sh"


def write(work: Installation) -> list[Path]:
    texts = WRITERS[work.flavor](work)
    with files.survive_disk(work.folder):
        work.folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        files.write_text(work.folder / name, text)
    return [work.folder / name for name in texts]


def run_script(work: Installation) -> str:
    """Run the script and return its last line. Raise an error with that line if the script fails."""
    script = work.folder / SCRIPT
    last = ""
    with subprocess.Popen(
        ["bash", script], env=variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    if process.returncode:
        problem = last.removeprefix("install: ") or f"ended with status {process.returncode}"
        raise RunError(script, problem, "", "nothing was installed")
    return last


def lines(work: Installation) -> list[str]:
    torch = {
        "modules": f"from {', '.join(work.modules) or 'EasyBuild'}",
        "image": f"from {work.image}",
        "wheels": f"by pip from {work.bundle or work.index}",
        "source": "built from source: there are no wheels",
    }
    text = [
        f"{work.title}: {work.flavor}; PyTorch {torch[work.torch]}",
        f"the software is installed in {work.prefix}",
        f"written: {', '.join(sorted(WRITERS[work.flavor](work)))} in {work.folder}",
    ]
    if work.torch == "wheels" and work.place.site.pip_torch == "unknown" and work.flavor == "venv":
        text.insert(1, "it is unknown whether the site allows PyTorch by pip; --module NAME uses the site's PyTorch")
    return text
