"""A stand-in for `docker build` and `docker run`: executes a Dockerfile in FOLDER/image, where /opt/ordsmed is.

    run_dockerfile.py FOLDER build --tag NAME .
    run_dockerfile.py FOLDER run --rm NAME WORD...

The image that a Dockerfile starts from is the `python3` of FOLDER/bin; nothing else of this environment is passed on.
"""

import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

AT = "/opt/ordsmed"
SILENT = ("FROM", "WORKDIR", "CMD")  # which change no file


def build(folder: Path, root: Path) -> dict[str, str]:
    """Execute the steps of ./Dockerfile; returns the environment that the image has."""
    environment = {"PATH": f"{folder}/bin:{os.defpath}", "HOME": str(root), "PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1"}
    for line in Path("Dockerfile").read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        word, _, rest = line.replace(AT, f"{root}{AT}").partition(" ")
        if word == "COPY":
            *patterns, target = rest.split()
            Path(target).mkdir(parents=True)
            for pattern in patterns:
                for name in glob.glob(pattern) or sys.exit(f"COPY: no {pattern}"):
                    shutil.copy(name, target)
        elif word == "RUN":
            subprocess.run(["/bin/sh", "-c", rest], env=environment, cwd=root, check=True)
        elif word == "ENV":
            for name, _, value in (part.partition("=") for part in shlex.split(rest)):
                environment[name] = value.replace("$PATH", environment["PATH"])
        elif word not in SILENT and not word.startswith("#"):
            sys.exit(f"Dockerfile: {line}")
    return environment


def main() -> int:
    folder, verb, *words = Path(sys.argv[1]), *sys.argv[2:]
    root = folder / "image"
    kept = root / "environment.json"
    if verb == "build":
        root.mkdir()
        kept.write_text(json.dumps(build(folder, root)))
        return 0
    environment = json.loads(kept.read_text())
    program = shutil.which(words[2], path=environment["PATH"])
    return subprocess.run([program or words[2], *words[3:]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
