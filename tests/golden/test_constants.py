"""Golden constants: numbers and names at the heads of modules that shape what users get, as constants.json has them.

Bounds, shares, epsilons, factors, uses of chance, versions, names of files and signs. A change of these is a change for
everybody: name it, and its reason, in the commit. New ones are written into the file, and those that are gone taken
out, by `python tests/golden/test_constants.py`.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path

GOLDEN = Path(__file__).with_name("constants.json")
HOUSE = Path(__file__).parents[2] / "src" / "ordsmed"
FREE = """
    use/answer: AROUND | use/typed_texts: AT_ONCE | use/elmo_reader: WINDOW WORDS | use/embed: BUFFER_LINES BUFFER_BYTES
    use/readers: TOKENS | use/vectors: GROUP | base/errors: MAX_LISTED | web/http: BLOCK
    use/generate: BATCH | use/generation/continuing: HELD | use/generation/network: ROWS | nn/attention: SPARE MIN_RATIO
    base/machine/speed: PATIENCE SHORT LEAST LARGEST | base/machine/threads: LOOK
    corpus/corpora/parquet: PART BATCH
    data/encode: BLOCK EVERY SHARE | data/features: FULL | data/pieces: AT_ONCE | data/store: BLOCK FIRST
    data/windows: BLOCK | data/words: FULL LONG | base/launch/local: GRACE LOOK | learn/score/answers: BLOCK
    learn/inference: TOKENS | learn/head_transfer: MAX_LISTED | nn/attention: CALL_COST
    nn/characters: CHUNK DEVICE_CHUNK | nn/loss: CHUNK_SCORES DEVICE_SCORES ALIGNMENT | train/mesh/compiler: LIMIT
    learn/question_answering/outputs: BLOCK | learn/tagging/inputs: AT_ONCE | corpus/chunks: OVERHEAD
    corpus/sources: BUNDLE | corpus/cleaning: KEPT SEARCHED EXAMPLES
    web/crawl: WAITING IDLE_HOSTS | text/markup/dump: PART BITE | corpus/decontamination: BLOCK GATHER
    base/chart: WIDTH HEIGHT LEFT TOP RIGHT BOTTOM LONGEST PANEL PANEL_BOTTOM
    corpus/signatures: BATCH | corpus/buckets: RUN PART
    corpus/similar: PAIRS | web/pages: BATCH | corpus/dedup: GROUPS EXCERPT
    corpus/pipeline: SHARE | text/read: BLOCK | corpus/shards: HELD | tell/show/stats: BLOCK TOP
    web/warc: _LINE _PACKED | text/tokenizers/wordpiece: BLOCK
    train/mesh/replicas: BUCKET_BYTES | train/saving: SLOW
    train/trials: SHOWN | tell/show/state: LAST
    train/run_group: LOOK | train/trial_results: SHOWN | train/watch: BEAT ANSWER
"""  # anybody's to change: sizes of buffers and pieces, times of waiting, how much is shown, how pictures look
MAKES_NUMBERS = ("np.uint64", "range", "timedelta")


@functools.cache
def constants() -> dict[str, dict[str, str]]:
    """Of every module: names in capitals that stand for numbers or names, as these stand in its source."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(HOUSE.rglob("*.py")):
        if path.parent.name == "verbs":
            continue  # where a verb stands in a list
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                own = _named(target, node.value)
                if own:
                    found.setdefault(path.relative_to(HOUSE).with_suffix("").as_posix(), {}).update(own)
    return found


def _named(target: ast.expr, value: ast.expr) -> dict[str, str]:
    if isinstance(target, ast.Name):
        told = target.id.isupper() and not (target.id.startswith("_") and _is_text(value)) and _plain(value)
        return {target.id: ast.unparse(value)} if told else {}
    names = target.elts if isinstance(target, ast.Tuple) else []
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "range":
        values: list[ast.expr] = [ast.Constant(n) for n in range(len(names))]
    else:
        values = value.elts if isinstance(value, ast.Tuple) else []
    pairs = [_named(*pair) for pair in zip(names, values, strict=False)]
    return {name: told for pair in pairs for name, told in pair.items()}


def _plain(value: ast.expr) -> bool:
    """Numbers, rows and tables of them, or one name; words and what is looked for in texts are their rooms'."""
    if _is_text(value):
        return re.fullmatch(r"b?'[^\s]+'", ast.unparse(value)) is not None
    leaves = list(ast.walk(value))
    held = [leaf.value for leaf in leaves if isinstance(leaf, ast.Constant)]
    called = [ast.unparse(leaf.func) for leaf in leaves if isinstance(leaf, ast.Call)]
    named = [leaf for leaf in leaves if isinstance(leaf, ast.Name | ast.Attribute)]
    return (
        any(isinstance(one, int | float) and not isinstance(one, bool) for one in held)
        and not any(isinstance(one, str) and " " in one for one in held)
        and all(name in MAKES_NUMBERS for name in called)
        and len(named) == sum(1 + name.count(".") for name in called)
        and not any(isinstance(leaf, ast.Lambda | ast.Subscript | ast.comprehension) for leaf in leaves)
    )


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str | bytes)


def free() -> set[tuple[str, str]]:
    """The constants that anybody may change: (module, name)."""
    places = [place.split(":") for line in FREE.split("\n") for place in line.split("|") if place.strip()]
    return {(place.strip(), name) for place, names in places for name in names.split()}


def kept() -> dict[str, dict[str, str]]:
    """All constants but the free ones."""
    without = free()
    of_places = {
        place: {n: v for n, v in own.items() if (place, n) not in without} for place, own in constants().items()
    }
    return {place: own for place, own in of_places.items() if own}


def test_constants_are_as_they_were() -> None:
    """A new one is nobody's change; one that is gone, or has moved, is written anew (above)."""
    golden, now = json.loads(GOLDEN.read_text(encoding="utf-8")), kept()
    assert sum(map(len, golden.values())) > 150
    changed = {
        f"{place}.{name}": (was, now.get(place, {}).get(name))
        for place, own in golden.items()
        for name, was in own.items()
        if now.get(place, {}).get(name) != was
    }
    assert not changed, "a constant, as it was and as it is"


def test_the_free_ones_exist() -> None:
    there = {(place, name) for place, own in constants().items() for name in own}
    assert free() <= there, "no longer there"


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(kept(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
