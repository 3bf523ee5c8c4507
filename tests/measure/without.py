"""All tests, or some, as if optional packages were not installed: they are skipped, none fails.

    python tests/measure/without.py all -m "not long" tests/learn/tasks       # all of them hidden at once
    python tests/measure/without.py each -m "not long" tests/learn/tasks      # a run for each
    python tests/measure/without.py ftfy,h5py -m "not long" tests/learn/tasks

They are hidden in processes that tests start, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HIDE = """
import importlib.machinery
HIDDEN, plain = {names!r}, importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.partition(".")[0] in HIDDEN else plain(name, path, target)
)
"""


def run(names: list[str], words: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(HIDE.format(names=names))
        paths = [folder, str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        print(f"without {', '.join(names)}:", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-r", "fE", "--tb=line", *words]
        return subprocess.run(command, cwd=ROOT, env=environment).returncode


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    sys.path.insert(0, str(ROOT / "src"))
    from kit.absent import OPTIONAL

    which, *words = sys.argv[1:]
    sets = {"all": [list(OPTIONAL)], "each": [[name] for name in OPTIONAL]}.get(which, [which.split(",")])
    sys.exit(max([run(names, words) for names in sets]))


if __name__ == "__main__":
    main()
