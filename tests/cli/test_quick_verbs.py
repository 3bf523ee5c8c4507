"""Verbs that ask no network answer at once: nothing of what is slow to import is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("torch", "numpy", "transformers", "tokenizers", "rich", "scipy", "pandas")
ASK = """
import sys
from ordsmed.cli import main
try:
    main(sys.argv[1:])
finally:
    print("\\nimported:", *(name for name in {slow} if name in sys.modules))
"""


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "help",
        "help pretrain",
        "help EMA",
        "--version",
        "recipes",
        "recipes tiny",
        "recipes tiny/bert",
        "sites",
        "menus",
        "menus objectives",
        "completion bash",
        "survey",
    ],
)
def test_nothing_slow_is_imported(line: str) -> None:
    command = [sys.executable, "-c", ASK.format(slow=SLOW), *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "imported:"
