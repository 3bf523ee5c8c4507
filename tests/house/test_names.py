"""Names of the house: a class name means one thing, and a name says what its value is, in the field's own words."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from kit.sources import FILES, nodes, text
from ordsmed.base import menu

# names of variables and parameters that say nothing of their value
THIN = {
    "asked",
    "beside",
    "each",
    "found",
    "given",
    "held",
    "made",
    "one",
    "other",
    "others",
    "ours",
    "own",
    "said",
    "that",
    "theirs",
    "this",
    "told",
    "what",
    "who",
    "why",
}
# functions named after what has become of something, which says neither what they do nor what they return
PARTICIPLES = {"agreed", "begun", "settled", "shown", "stands", "taken", "told"}
# parts of names, for which the field has a word: gradient, positions, initializer std, characters, learning curve ...
UNUSUAL = {"slope", "slopes", "places", "spread", "spreads", "letters", "signs", "course", "courses", "judged", "judge"}
MOST = {  # names of a wing that are thin, participles, unusual, and layouts by hand; these may only become fewer
    "api": (0, 0, 0, 0),
    "base": (1, 0, 0, 0),
    "cli": (0, 0, 0, 0),
    "corpus": (1, 0, 2, 0),
    "data": (0, 0, 1, 0),
    "learn": (0, 0, 1, 0),
    "machines": (0, 0, 0, 0),
    "maker": (0, 0, 0, 0),
    "measure": (4, 0, 0, 0),
    "nn": (1, 0, 0, 0),
    "others": (2, 0, 0, 0),
    "serve": (6, 0, 0, 0),
    "tell": (5, 0, 3, 0),
    "text": (1, 0, 0, 0),
    "train": (11, 0, 12, 0),
    "use": (1, 0, 2, 0),
    "web": (0, 0, 0, 0),
    "weights": (1, 0, 10, 0),
}


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(menu.PACKAGE_ROOT).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def names(path: Path) -> Iterator[str]:
    """What a file calls its variables, parameters and fields."""
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def functions(path: Path) -> Iterator[str]:
    return (node.name for node in nodes(path) if isinstance(node, ast.FunctionDef))


def counts() -> dict[str, tuple[int, int, int, int]]:
    """Of each wing, what there is of each kind."""
    found = defaultdict(lambda: [0, 0, 0, 0])
    for path in FILES:
        if path.parent == menu.PACKAGE_ROOT:
            continue
        count = found[path.relative_to(menu.PACKAGE_ROOT).parts[0]]
        called, deeds = list(names(path)), list(functions(path))
        count[0] += sum(name.strip("_") in THIN for name in called)
        count[1] += sum(name.strip("_") in PARTICIPLES for name in deeds)
        count[2] += sum(bool(UNUSUAL & set(name.split("_"))) for name in (*called, *deeds))
        count[3] += text(path).count("# fmt: skip")
    return {wing: (a, b, c, d) for wing, (a, b, c, d) in sorted(found.items())}


def test_names_that_say_little_become_fewer() -> None:
    now = counts()
    assert now.keys() == MOST.keys()
    more = {
        wing: (now[wing], MOST[wing]) for wing in MOST if any(a > b for a, b in zip(now[wing], MOST[wing], strict=True))
    }
    assert more == {}, "a name says what its value is; lower MOST, never raise it"


if __name__ == "__main__":
    for wing, numbers in counts().items():
        print(f'    "{wing}": {numbers},')
