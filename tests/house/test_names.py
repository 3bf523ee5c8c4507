"""Names of the house: a class name means one thing, and words that say little become fewer."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict

from kit.sources import FILES, nodes
from ordsmed.base import menu

THIN = ("found", "told", "said", "made")
MOST = {"found": 190, "told": 19, "said": 11, "made": 12}  # variables called so; these may only become fewer


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(menu.HOUSE).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_words_that_say_little_become_fewer() -> None:
    names = (node.id for path in FILES for node in nodes(path)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))  # fmt: skip
    count = Counter(name for name in names if name in THIN)
    assert all(count[name] <= MOST[name] for name in THIN), f"{dict(count)}; lower MOST, never raise it"
