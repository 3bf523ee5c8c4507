"""What may not stand in any file: places of one machine, and anything unpickled."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from kit.sources import nodes, offenders

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


def unpickles(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return bool({a.name.split(".")[0] for a in node.names} & UNPICKLERS)
    if isinstance(node, ast.ImportFrom):
        names = {alias.name for alias in node.names} - {"UnpicklingError"}  # what torch.load raises
        return bool(names) and (node.module or "").split(".")[0] in UNPICKLERS
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        given = {k.arg: ast.unparse(k.value) for k in node.keywords}
        loose = called == "torch.load" and given.get("weights_only") != "True"
        return loose or given.get("allow_pickle", "False") != "False" or called in {"eval", "exec", "torch.save"}
    return False


def test_nothing_is_unpickled() -> None:
    """But for one writer, as others read, and a reader whose every way to a class or a call is its own."""
    wrong = offenders(lambda path: [ast.unparse(node) for node in nodes(path) if unpickles(node)])
    assert wrong == {"base/binary/pickle_reader.py": ["import pickle", "torch.save(value, path)"]}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from marshal import loads",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "eval(x)",
        "np.load(f, allow_pickle=True)",
        "torch.save(x, f)",
    ],
)
def test_what_unpickles_is_seen(line: str) -> None:
    assert any(map(unpickles, ast.walk(ast.parse(line))))
