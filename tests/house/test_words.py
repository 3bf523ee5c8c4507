"""What may not stand in any file: places of one machine, and anything unpickled."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from ordsmed.base import menu

ROOT = Path(__file__).parents[2]
TEXT = {".py", ".toml", ".md", ".txt", ".cfg", ".yml", ".yaml", ".json", ""}
UNPICKLERS = {"pickle", "dill", "joblib", "shelve", "marshal"}
# folders where somebody's files lie; written apart, so that this file does not hold what it looks for
PLACES = re.compile(
    "|".join(rf"(?<![\w.~-])/{name}/[\w.-]+" for name in ("home", "Users", "root", "work", "mnt", "scratch"))
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [p for p in paths if p.suffix in TEXT and p.is_file()]


def test_no_places_of_one_machine() -> None:
    found = []
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if PLACES.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_the_pattern_finds_them() -> None:
    for line in ("cd /" + "home/me/x", "'/" + "work/main'", "(/" + "mnt/disk)"):
        assert PLACES.search(line)
    for line in ("work/pretrain/bert", "../work/x", "$folder/work/x", "https://x.org/home/page"):
        assert not PLACES.search(line)


@pytest.mark.parametrize("path", sorted(menu.HOUSE.rglob("*.py")), ids=lambda p: str(p.relative_to(menu.HOUSE)))
def test_nothing_is_unpickled(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {a.name.split(".")[0] for a in node.names} & UNPICKLERS
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} - {"UnpicklingError"}  # what torch.load raises
            assert not names or (node.module or "").split(".")[0] not in UNPICKLERS
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if called == "torch.load":
                assert given.get("weights_only") == "True"
            assert given.get("allow_pickle", "False") == "False"
            assert called not in {"eval", "exec", "torch.save"}
