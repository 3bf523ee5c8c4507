"""Golden defaults: what every setting is where a recipe says nothing, as defaults.json has them.

A change of these is a change for everybody who left them out: name it, and its reason, in the commit.
New settings are written into the file, and those that are gone taken out, by `python tests/golden/test_defaults.py`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

GOLDEN = Path(__file__).with_name("defaults.json")
HOUSE = Path(__file__).parents[2] / "src" / "ordsmed"


def defaults() -> dict[str, dict[str, str]]:
    """Of every class whose fields are explained below them: settings. As they stand in its source."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and (own := _settings(node)):
                found[f"{path.relative_to(HOUSE).with_suffix('').as_posix()}:{node.name}"] = own
    return found


def _settings(node: ast.ClassDef) -> dict[str, str]:
    own = {}
    for this, after in zip(node.body, node.body[1:], strict=False):
        explained = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if explained and isinstance(this, ast.AnnAssign) and isinstance(this.target, ast.Name) and this.value:
            own[this.target.id] = ast.unparse(this.value)
    return own


def test_defaults_are_as_they_were() -> None:
    """A new one is nobody's change; one that is gone, or has moved, is written anew (above)."""
    golden, now = json.loads(GOLDEN.read_text(encoding="utf-8")), defaults()
    assert len(golden) > 40
    changed = {
        f"{place}.{name}": (was, now.get(place, {}).get(name))
        for place, settings in golden.items()
        for name, was in settings.items()
        if now.get(place, {}).get(name) != was
    }
    assert not changed, "a setting, as it was and as it is"


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(defaults(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
