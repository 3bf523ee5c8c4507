"""Promise 1: equal layouts are equal: losses of the first ten steps and the first gradient norm, to 1e-5; dropout off.

One start of two processes and one of four work through all cases. CI takes a selection for two processes in which every
two of family, mesh and switches meet, and a few cases of four; ORDSMED_GRID=full (make test-all) takes every family on
every mesh with every option.

Promise 2: a run that goes on from a checkpoint in new processes goes on exactly, on every mesh.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.language_models import hub_folder
from kit.makers import PAD_SECOND, make_store, make_words
from kit.once import once
from ordsmed.base import menu

AtWork = Callable[[Path, int, list[dict[str, Any]]], list[dict[str, Any]]]
FULL = os.environ.get("ORDSMED_GRID") == "full"
pytestmark = pytest.mark.long

Case = tuple[str, tuple[int, ...], str]  # family, mesh, and its switches or option: "recomputed+ragged"


TRANSFORMER = ("heads = 4", "positions = 64", "attention_dropout = 0.0")


@dataclass(frozen=True)
class Family:
    """What a recipe says beyond the kinds of its model and objective, as TOML lines."""

    model: tuple[str, ...] = ()
    body: tuple[str, ...] = TRANSFORMER
    objective: tuple[str, ...] = ()
    phase: tuple[str, ...] = ()
    top: tuple[str, ...] = ()


# kind of model, kind of objective, and a word more where two entries share both
FAMILIES = {
    "bert mlm": Family(),
    "gpt2 clm": Family(),
    "roberta mlm": Family(),
    "modern mlm": Family(  # with whatever may be asked of one: biases, and a table of its own for the scores
        model=(
            "window = 8",
            "tied = false",
            "norm_bias = true",
            "attention_bias = true",
            "inner_bias = true",
            'activation = "silu"',
        )
    ),
    "megatron_bert mlm_nsp": Family(phase=("pack = false",)),
    "electra rtd": Family(model=("embedding = 16",), objective=("generator = { width = 16, heads = 4 }",)),
    "gpt2 hybrid": Family(),
    "modern hybrid": Family(model=("window = 8",)),
    "modern diffusion": Family(model=("window = 8",)),
    "elmo bilm": Family(
        body=("cells = 48", "highways = 1", "filters = [[1, 8], [2, 8], [3, 16]]"), objective=("samples = 40",)
    ),
}
WORDY = {"elmo bilm"}  # they learn from whole words, carry a state, and have no plan for layers that are split
# in CI two processes hold copies only where something of theirs is no copy (carried states, a second network);
# `make test-all` takes every family everywhere
COPIED = {"bert mlm", "electra rtd", "elmo bilm"}
LEFT_OUT: dict[str, set[str]] = {"models": set(), "objectives": set()}  # on the menu, and not among the families
SHAPES = {2: [(2, 1, 1), (1, 2, 1), (1, 1, 2)], 4: [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)]}
MOVED = {2: [(1, 2, 1), (1, 1, 2)], 4: [(1, 2, 2)]}  # meshes on which a vocabulary is moved
OPTIONS: dict[str, list[str]] = {
    "plain": [],
    "accumulated": ["layout.micro=1"],
    "at-once": ["layout.overlap=false"],
    "kept-whole": ["layout.reshard=false"],
    "no-sequence": ["layout.sequence=false"],
    "recomputed": ["layout.recompute=true"],
    "compiled": ["layout.compile=true"],
    "ragged": ["phase.pack=false"],
    "many": [
        "layout.micro=1",
        "layout.recompute=true",
        "layout.overlap=false",
        "layout.sequence=false",
        "phase.pack=false",
    ],
}
SWITCHES = [option for option, words in OPTIONS.items() if len(words) == 1]
MEASURED: list[Case] = [  # memory is asked about in these
    ("bert mlm", (1, 2, 1), "plain"),
    ("bert mlm", (1, 4, 1), "plain"),
    ("bert mlm", (2, 2, 1), "plain"),
    ("bert mlm", (1, 1, 2), "plain"),
    ("bert mlm", (1, 1, 2), "recomputed"),
]


SMOKE: list[Case] = [  # of four processes, in CI; hand-overs and going on meet the other meshes
    *(case for case in MEASURED if case[1] in SHAPES[4]),
    ("bert mlm", (1, 2, 2), "kept-whole"),
    ("electra rtd", (2, 1, 2), "plain"),
    ("elmo bilm", (2, 2, 1), "plain"),
]
COMBINED = {"gpt2 hybrid", "modern hybrid", "modern diffusion"}  # of networks that meet all switches, in CI without any
CHEAP = {"bert mlm"}  # to compile: once for each length of ragged rows


def cannot_be(family: str, shape: tuple[int, ...], option: str) -> bool:
    """What is refused: the compiler under tensor parallelism; both, and rows that are not packed, for ELMo."""
    if family in WORDY:
        return option in ("compiled", "ragged", "many") or shape[2] > 1
    return option == "compiled" and shape[2] > 1


def means_something(family: str, shape: tuple[int, ...], switch: str) -> bool:
    """Is there anything for this switch to change, and is it allowed?"""
    copies, shards, tensor = shape
    without = {
        "at-once": copies == 1 or shards > 1 or tensor > 1,
        "kept-whole": shards == 1,
        "no-sequence": tensor == 1,
        "ragged": "pack = false" in FAMILIES[family].phase,
    }
    return not without.get(switch, False) and not cannot_be(family, shape, switch)


def meetings(case: Case) -> set[tuple[tuple[str, Any], ...]]:
    """Every two values that meet in a case: ("family", "bert mlm") and ("ragged", True), ..."""
    family, shape, option = case
    switches = [switch for switch in SWITCHES if means_something(family, shape, switch)]
    values = [("family", family), ("mesh", shape), *((switch, switch in option.split("+")) for switch in switches)]
    return set(itertools.combinations(values, 2))


def every_mesh() -> list[tuple[str, tuple[int, ...]]]:
    """Each family with the meshes of two processes that CI takes it to."""
    return [
        (family, shape)
        for family, shape in itertools.product(FAMILIES, SHAPES[2])
        if (family in COPIED or shape != (2, 1, 1)) and not cannot_be(family, shape, "plain")
    ]


@functools.cache
def possible() -> dict[Case, set[tuple[tuple[str, Any], ...]]]:
    """Every family on its meshes with all switches that mean something there; and what meets."""
    found = {}
    for family, shape in every_mesh():
        switches = [s for s in SWITCHES if means_something(family, shape, s) and family not in COMBINED]
        for on in itertools.product((False, True), repeat=len(switches)):
            case = (family, shape, "+".join(itertools.compress(switches, on)) or "plain")
            if family in CHEAP or not {"compiled", "ragged"} <= {*case[2].split("+")}:
                found[case] = meetings(case)
    return found


def cost(case: Case) -> float:
    """Seconds of a case, about: compiling takes longest, and split layers plan every new shape of rows anew."""
    family, shape, option = case
    compiled, other_shapes = "compiled" in option, "ragged" in option or "accumulated" in option
    split = 0.3 + 3 * other_shapes if shape[2] > 1 else 0
    return 0.3 + split + (6 if family == "electra rtd" else 2) * compiled + 0.3 * ("accumulated" in option)


@functools.cache
def selection() -> list[Case]:
    """Few cases in which all meet that can.

    The rarest meeting that is missing comes next, in the case that brings most others for its cost.
    """
    every, chosen = possible(), [case for case in MEASURED if case[1] in SHAPES[2]]
    often = Counter(itertools.chain(*every.values()))
    missing = sorted(often, key=lambda two: (often[two], str(two)))
    met = set().union(*(every[case] for case in chosen))
    while missing := [two for two in missing if two not in met]:
        useful = [case for case in every if missing[0] in every[case]]
        chosen.append(max(useful, key=lambda case: len(every[case] - met) / cost(case)))
        met |= every[chosen[-1]]
    return chosen


def cases(world: int) -> list[Case]:
    """Family, mesh and option of every case."""
    if FULL:
        every = itertools.product(FAMILIES, SHAPES[world], OPTIONS)
        return [case for case in every if not cannot_be(*case)]
    return selection() if world == 2 else SMOKE


def overrides(option: str) -> list[str]:
    return [word for part in option.split("+") for word in OPTIONS[part]]


def name_of(family: str, shape: tuple[int, ...], option: str) -> str:
    return f"{family} {'x'.join(map(str, shape))} {option}"


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A recipe of each family, over one small store."""
    return once(tmp_path_factory, "layouts-recipes", make_recipes)  # type: ignore[no-any-return]


def make_recipes(folder: Path) -> dict[str, str]:
    store, words = make_store(folder / "store", specials=PAD_SECOND), make_words(folder / "words")
    (folder / "theirs").mkdir()
    hub_folder("bert", folder / "theirs")
    found = {}
    for name, more in FAMILIES.items():
        model, objective = name.split()[:2]
        path = folder / f"{name.replace(' ', '-')}.toml"
        data = words if name in WORDY else store
        lines = [
            f'data = "{data}"',
            f'out = "{path.with_suffix("")}"',
            *more.top,
            "[layout]",
            'device = "cpu"',
            "threads = 1",
            "divisible = 8",
            "[model]",
            f'kind = "{model}"',
            "width = 32",
            "layers = 2",
            "dropout = 0.0",
            *more.body,
            *more.model,
            "[objective]",
            f'kind = "{objective}"',
            *more.objective,
            "[[phase]]",
            "steps = 40",
            "length = 32",
            "batch = 8",
            "learning_rate = 2e-3",
            "warmup = 2",
            *more.phase,
        ]
        path.write_text("\n".join(lines) + "\n")
        found[name] = str(path)
    return found


def moved_case(recipes: dict[str, str], shape: tuple[int, ...]) -> dict[str, Any]:
    """A model of somebody's under the vocabulary of the store."""
    folder = Path(recipes["bert mlm"]).with_name("theirs")
    words = [f'init="{folder}"', 'vocabulary="transplant"', "model.heads=2", "model.positions=32"]
    return {
        "name": name_of("moved", shape, "plain"),
        "recipe": recipes["bert mlm"],
        "shape": shape,
        "steps": 2,
        "overrides": words,
    }


@pytest.fixture(scope="module")
def alone(at_work: AtWork, recipes: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same by one process; the option that changes what is learned from (ragged rows) has its own."""
    todo = [
        {
            "name": f"{family} {option}",
            "recipe": recipes[family],
            "shape": [1, 1, 1],
            "judge": 40,
            "overrides": overrides(option),
            "measure": family == "bert mlm",
        }
        for family in FAMILIES
        for option in ("plain", "ragged")
        if not cannot_be(family, (1, 1, 1), option)
    ] + [moved_case(recipes, (1, 1, 1))]
    return once(tmp_path_factory, "layouts-1", lambda folder: at_work(folder, 1, todo))[0]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def found(
    at_work: AtWork, recipes: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    """What two and four processes found in all their cases."""
    made = {}
    for world in SHAPES:
        todo = [
            {
                "name": name_of(*case),
                "recipe": recipes[case[0]],
                "shape": case[1],
                "overrides": overrides(case[2]),
                "judge": 40,
                "measure": case in MEASURED,
            }
            for case in cases(world)
        ]
        todo += [moved_case(recipes, shape) for shape in MOVED[world]]
        made[world] = once(tmp_path_factory, f"layouts-{world}", lambda folder, w=world, t=todo: at_work(folder, w, t))
    return made


def test_every_two_options_meet() -> None:
    """Whatever can meet; and nothing on the menu is forgotten."""
    met = set().union(*map(meetings, selection()))
    assert met == set().union(*possible().values())
    for family, shape in every_mesh():
        assert (("family", family), ("mesh", shape)) in met
    for name, kinds in zip(LEFT_OUT, zip(*map(str.split, FAMILIES), strict=False), strict=False):
        assert set(menu.entries(name)) - LEFT_OUT[name] == set(kinds) - LEFT_OUT[name] == set(kinds)


@pytest.mark.parametrize(
    ("world", "family", "shape", "option"),
    [(world, *case) for world in SHAPES for case in cases(world)],
    ids=lambda x: "x".join(map(str, x)) if isinstance(x, tuple) else str(x),
)
def test_equal_layouts_are_equal(
    found: Any, alone: Any, world: int, family: str, shape: tuple[int, ...], option: str
) -> None:
    ranks = [rank[name_of(family, shape, option)] for rank in found[world]]
    one = alone[f"{family} {'ragged' if 'phase.pack=false' in overrides(option) else 'plain'}"]
    for rank in ranks:
        losses, norms = np.asarray(rank["lines"]).T
        assert np.allclose(losses, np.asarray(one["lines"])[:, 0], rtol=1e-5, atol=0)
        assert norms[0] == pytest.approx(one["lines"][0][1], rel=1e-5)
        assert rank["judged"] == pytest.approx(one["judged"], rel=1e-5)


@pytest.mark.parametrize(("world", "shape"), [(world, shape) for world in MOVED for shape in MOVED[world]])
def test_a_moved_vocabulary_is_the_same_on_every_mesh(found: Any, alone: Any, world: int, shape: Any) -> None:
    """Its losses before the first step, moved and from random numbers, and those of the first steps."""
    one = alone[name_of("moved", (1, 1, 1), "plain")]
    assert one["initial_facts"]["vocabulary"]["kept"] == 6
    assert (
        one["initial_facts"]["vocabulary"]["validation"] != one["initial_facts"]["vocabulary"]["validation_of_random"]
    )
    for rank in found[world]:
        own = rank[name_of("moved", shape, "plain")]
        assert own["initial_facts"]["vocabulary"] == pytest.approx(one["initial_facts"]["vocabulary"], rel=1e-5)
        assert np.allclose(np.asarray(own["lines"])[:, 0], np.asarray(one["lines"])[:, 0], rtol=1e-5, atol=0)


@pytest.mark.parametrize("world", SHAPES)
def test_the_same_rows_reach_a_step(found: Any, alone: Any, world: int) -> None:
    """The global batch is a function of the recipe alone."""
    wanted = alone["bert mlm plain"]["rows"]
    assert wanted == list(range(24, 32))
    for name in found[world][0]:
        rows = {rank[name]["data_rank"]: rank[name]["rows"] for rank in found[world]}
        assert sorted(row for some in rows.values() for row in some) == wanted
        assert len({len(some) for some in rows.values()}) == 1


@pytest.mark.parametrize(("world", "shape"), [(2, (1, 2, 1)), (4, (1, 4, 1)), (4, (2, 2, 1))])
def test_split_weights_take_their_share_of_memory(found: Any, alone: Any, world: int, shape: tuple[int, ...]) -> None:
    """A rank holds 1/n of weights, gradients and moments; uneven first dimensions cost a little."""
    one, ranks = alone["bert mlm plain"], [rank[name_of("bert mlm", shape, "plain")] for rank in found[world]]
    n = shape[1]
    for held in ("weights", "gradients", "moments"):
        assert max(rank[held] for rank in ranks) <= one[held] / n * 1.05
        assert sum(rank[held] for rank in ranks) == one[held] * shape[0]
    kept = one["weights"] + one["moments"]  # gradients are gone after a step
    assert one["live"] - max(rank["live"] for rank in ranks) > 0.9 * (1 - 1 / n) * kept


@pytest.mark.parametrize("option", ["plain", "recomputed"])
def test_layers_split_take_less(found: Any, alone: Any, option: str) -> None:
    """Under tensor parallelism tables and layers are halved; norms, places and the head's dense are not."""
    one, ranks = alone["bert mlm plain"], [rank[name_of("bert mlm", (1, 1, 2), option)] for rank in found[2]]
    assert all(rank["weights"] < 0.65 * one["weights"] for rank in ranks)


@pytest.mark.parametrize("family", ["bert mlm", "elmo bilm"])
def test_layouts_hand_over_to_each_other(at_work: AtWork, recipes: dict[str, str], tmp_path: Path, family: str) -> None:
    case = {"recipe": recipes[family], "judge": 8}
    whole = at_work(tmp_path / "a", 1, [{**case, "name": "whole", "shape": [1, 1, 1], "steps": 16}])[0]["whole"]
    way = [  # processes, mesh, and where it starts from
        (4, (1, 2, 2), None),
        (2, (2, 1, 1), 0),
        (2, (1, 2, 1), 1),
        (4, (2, 1, 2), 2),
        (1, (1, 1, 1), 3),
        (2, (1, 1, 2), 4),
        (4, (1, 4, 1), 5),
        (4, (2, 2, 1), 6),
    ]
    if family in WORDY:
        way = [(4, (2, 2, 1), None), (2, (2, 1, 1), 0), (1, (1, 1, 1), 1), (4, (1, 4, 1), 2), (2, (1, 2, 1), 3)]
    for leg, (world, shape, before) in enumerate(way):
        todo = {**case, "name": "leg", "shape": shape, "steps": 2, "save": str(tmp_path / f"run{leg}")}
        if before is not None:
            todo["restore"] = str(tmp_path / f"run{before}")
        ranks = at_work(tmp_path / f"leg{leg}", world, [todo])
        for rank in ranks:
            losses = [line[0] for line in rank["leg"]["lines"]]
            wanted = [line[0] for line in whole["lines"][2 * leg : 2 * leg + 2]]
            assert np.allclose(losses, wanted, rtol=2e-5, atol=0), (leg, shape)
            # a checkpoint written in the background is at most one copy of what this rank holds
            assert rank["leg"]["copied"] <= 1.02 * (rank["leg"]["weights"] + rank["leg"]["moments"]) + 1024


@pytest.mark.parametrize("family", ["bert mlm", "gpt2 clm"])
def test_sixteen_bits_learn_almost_the_same(at_work: AtWork, recipes: Any, tmp_path: Path, family: str) -> None:
    options = {
        "bf16": ['layout.precision="bf16"'],
        "bf16 exact": ['layout.precision="bf16"', 'layout.exact=["embeddings", "norms", "types"]'],
        "fp16": ['layout.precision="fp16"', 'layout.reduce="fp16"', "layout.recompute=true"],
    }
    todo = [
        {"name": f"{shape} {name}", "recipe": recipes[family], "shape": shape, "overrides": words, "steps": 4}
        for shape in SHAPES[2]
        for name, words in options.items()
    ]
    one = {"name": "one", "recipe": recipes[family], "shape": [1, 1, 1], "steps": 4}
    exact = np.asarray(at_work(tmp_path / "one", 1, [one])[0]["one"]["lines"])
    for name, made in at_work(tmp_path / "two", 2, todo)[0].items():
        assert np.allclose(made["lines"], exact, rtol=1e-2), name
        assert not np.allclose(made["lines"], exact, rtol=1e-6), name


@pytest.mark.parametrize("family", ["bert mlm", "elmo bilm"])
@pytest.mark.parametrize("world", SHAPES)
def test_goes_on_exactly_on_every_mesh(
    at_work: AtWork, recipes: dict[str, str], tmp_path: Path, world: int, family: str
) -> None:
    """Six steps, or three, a checkpoint, and three in new processes: the same losses and norms, dropout on."""
    words = ["model.dropout=0.1", *(() if family in WORDY else ("model.attention_dropout=0.1",))]
    meshes = [shape for shape in SHAPES[world] if not cannot_be(family, shape, "plain")]
    first, then = [], []
    for shape in meshes:
        case = {"recipe": recipes[family], "shape": shape, "overrides": words}
        saved = str(tmp_path / f"run {shape}")
        first += [
            {**case, "name": f"{shape} whole", "steps": 6},
            {**case, "name": f"{shape} half", "steps": 3, "save": saved},
        ]
        then.append({**case, "name": f"{shape} on", "steps": 3, "restore": saved})
    before, after = at_work(tmp_path / "first", world, first), at_work(tmp_path / "then", world, then)
    for shape, rank in itertools.product(meshes, range(world)):
        whole = before[rank][f"{shape} whole"]["lines"]
        assert before[rank][f"{shape} half"]["lines"] == whole[:3], (shape, rank)
        assert after[rank][f"{shape} on"]["lines"] == whole[3:], (shape, rank)


OPTIMIZERS = ["adamw", '{ kind = "adamw", variant = "bert" }', "lamb", "muon", "stableadamw", "adagrad"]


def test_every_optimizer_on_every_mesh(at_work: AtWork, recipes: dict[str, str], tmp_path: Path) -> None:
    """Split weights, split layers with a padded vocabulary, and a checkpoint from one to the other."""
    words = {kind: [f"optimizer={kind}" if "{" in kind else f'optimizer="{kind}"'] for kind in OPTIMIZERS}
    words = {
        kind: [*some, "phase.learning_rate=0.02"] if kind in ("lamb", "adagrad") else some
        for kind, some in words.items()
    }
    case = {"recipe": recipes["gpt2 clm"], "steps": 6}
    one = [
        {**case, "name": kind, "shape": [1, 1, 1], "overrides": words[kind], "save": str(tmp_path / kind)}
        for kind in OPTIMIZERS
    ]
    one += [
        {**{k: v for k, v in first.items() if k != "save"}, "name": f"{first['name']} on", "restore": first["save"]}
        for first in one
    ]
    alone = at_work(tmp_path / "one", 1, one)[0]
    two = [
        {
            **case,
            "name": f"{kind} {shape}{' on' if restore else ''}",
            "shape": shape,
            "overrides": words[kind],
            **({"restore": str(tmp_path / kind)} if restore else {}),
        }
        for kind in OPTIMIZERS
        for shape in ((1, 2, 1), (1, 1, 2))
        for restore in (False, True)
    ]
    together = at_work(tmp_path / "two", 2, two)[0]
    for name, made in together.items():
        kind = next(k for k in sorted(OPTIMIZERS, key=len, reverse=True) if name.startswith(k))
        wanted = np.asarray(alone[f"{kind} on" if name.endswith(" on") else kind]["lines"])
        # Muon turns matrices in bf16: a gradient that differs in its last bit may come out a 256th away
        assert np.allclose(made["lines"], wanted, rtol=1e-3 if kind == "muon" else 2e-5), name


def test_the_real_compiler(at_work: AtWork, recipes: dict[str, str], alone: Any, tmp_path: Path) -> None:
    """What CI compiles elsewhere goes through the compiler's front half only."""
    if os.environ.get("ATEN_CPU_CAPABILITY") == "default":
        pytest.skip("torch's compiler writes vectors that this switch takes away from its own headers")
    case = {"name": "compiled", "recipe": recipes["bert mlm"], "shape": [1, 1, 1], "overrides": OPTIONS["compiled"]}
    found = at_work(tmp_path, 1, [{**case, "backend": "inductor"}])[0]
    assert np.allclose(found["compiled"]["lines"], alone["bert mlm plain"]["lines"], rtol=1e-5)


def test_dropout_on_every_mesh(at_work: AtWork, recipes: dict[str, str], tmp_path: Path) -> None:
    """Other draws on other layouts, the same every time; recompute restores them."""
    words = ["model.dropout=0.2", "model.attention_dropout=0.2"]
    todo = [
        {
            "name": f"{shape} {recompute} {turn}",
            "recipe": recipes["bert mlm"],
            "shape": shape,
            "steps": 3,
            "overrides": [*words, f"layout.recompute={recompute}"],
        }
        for shape in SHAPES[2]
        for recompute, turn in (("false", 1), ("false", 2), ("true", 1))
    ]
    found = at_work(tmp_path, 2, todo)[0]
    for shape in SHAPES[2]:
        plain = found[f"{shape} false 1"]["lines"]
        assert found[f"{shape} false 2"]["lines"] == plain
        assert np.allclose(found[f"{shape} true 1"]["lines"], plain, rtol=1e-6)


def test_half_precision_gradients_travel(at_work: AtWork, recipes: dict[str, str], tmp_path: Path) -> None:
    """16-bit all-reduce: almost the same losses, and not quite."""
    case = {"recipe": recipes["bert mlm"]}
    todo = [
        {**case, "name": f"{shape} {how}", "shape": shape, "overrides": [f'layout.reduce="{how}"']}
        for shape in ([2, 1, 1], [1, 2, 1])
        for how in ("fp32", "bf16", "fp16")
    ]
    found = at_work(tmp_path, 2, todo)[0]
    for shape in ([2, 1, 1], [1, 2, 1]):
        exact = np.asarray(found[f"{shape} fp32"]["lines"])[:, 0]
        for how in ("bf16", "fp16"):
            rough = np.asarray(found[f"{shape} {how}"]["lines"])[:, 0]
            assert not np.array_equal(rough, exact)
            assert np.allclose(rough, exact, rtol=1e-3)
