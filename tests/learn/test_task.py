"""What tasks share: labels that can be, how much each counts, an example's tokens, costs, and how a family reads."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.families import Signs
from kit.makers import SPECIAL
from ordsmed.base import menu
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import choice
from ordsmed.data.batch import Batch
from ordsmed.learn.objective import Objective, at_positions, built, fresh, need
from ordsmed.learn.objectives import bilm, clm, mlm, mlm_nsp, rtd
from ordsmed.learn.task import (
    INITIALIZER_STD,
    Files,
    LabelWeights,
    Task,
    by_example,
    check_labels,
    label_weights,
    packing,
    reader,
)
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.models import bert, electra, elmo, gpt2, roberta
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights.weights import digest, own_tensors

BERT = bert.Bert(width=16, layers=2, heads=2, positions=32)
ELMO = elmo.Elmo(width=4, cells=4, highways=1, filters=((1, 4),))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("task") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, "a", "b"]) + "\n")
    return Tokenizer.load(path)


@pytest.mark.parametrize("labels", [("a",), ("a", "a"), ("a", "b", "a")])
def test_labels_that_cannot_be(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"labels: found .*; wanted two or more different ones"):
        check_labels(labels, None)
    check_labels((), None)
    check_labels(("a", "b"), None)


def test_weights_of_labels_that_cannot_be() -> None:
    for wrong in ({"a": 0.0}, {"a": 1.0, "b": -1.0}, {}):
        with pytest.raises(ValueError, match=r"class_weights: found .*; wanted numbers above 0"):
            check_labels(("a", "b"), wrong)
    for right in ({"a": 1e-9}, "balanced", None):
        check_labels(("a", "b"), right)


def test_how_much_a_label_counts() -> None:
    """Balanced: each label's examples together count as much as any other's, and all of them as many as they are."""
    seen = Counter({"a": 6, "b": 3, "c": 1, "d": 0})
    found = label_weights("balanced", ("a", "b", "c", "d"), seen)
    assert found == {"a": pytest.approx(10 / 18), "b": pytest.approx(10 / 9), "c": pytest.approx(10 / 3)}
    assert label_weights(None, ("a", "b"), seen) is None
    assert label_weights({"a": 2.0}, ("a", "b"), seen) == {"a": 2.0}
    with pytest.raises(RecipeError, match=r"task\.class_weights: found `ab`; wanted labels"):
        label_weights({"ab": 2.0}, ("a", "b"), seen)


def examples(*spans: tuple[int, int]) -> Batch:
    tokens = torch.zeros(2, 6, dtype=torch.int64)
    return Batch(torch.arange(len(spans)), tokens, tokens, tokens, tokens.float(), spans=torch.tensor(spans))


def test_weights_of_labels_are_made_once_a_device() -> None:
    weights, cpu, other = LabelWeights({"b": 2.0}, ("a", "b")), torch.device("cpu"), torch.device("meta")
    assert weights.on(cpu).tolist() == [1.0, 2.0]
    assert weights.on(cpu) is weights.on(cpu)
    assert weights.on(other) is weights.on(other)
    assert weights.on(other).device == other


def test_an_examples_tokens() -> None:
    values = torch.arange(12.0).view(2, 6) + 1
    batch = examples((0, 2), (2, 4), (8, 3))
    assert by_example(values, batch).tolist() == [[1, 2, 0, 0], [3, 4, 5, 6], [9, 10, 11, 0]]
    assert by_example(values, examples((0, 2)), fill=-9.0).tolist() == [[1, 2]]
    wide = torch.stack([values, values * 10], 2)
    assert by_example(wide, batch, fill=-1.0)[2].tolist() == [[9, 90], [10, 100], [11, 110], [-1, -1]]


def test_what_a_task_costs(tokenizer: Tokenizer) -> None:
    """Forward and twice that backward; of a frozen network forward alone."""
    task = Task(Top(), BERT, tokenizer.vocabulary)
    assert task.flops(7, 20) == 3 * 7 * 20 * BERT.flops(20)
    assert all(weight.requires_grad for weight in task.model.parameters())
    task.freeze()
    assert task.flops(7, 20) == 7 * 20 * BERT.flops(20)
    assert not any(weight.requires_grad for weight in task.model.parameters())
    assert not task.train().model.training


def test_what_masked_prediction_of_pairs_guesses_and_costs(tokenizer: Tokenizer) -> None:
    """Who knows only how often pairs follow each other says the more frequent, with that share."""
    made: Any = mlm_nsp.MlmNsp().build(BERT, tokenizer)
    told = made.guessing({"apart": 0.25}, 5.0, 0.1)
    assert told == {
        "mlm": 5.0,
        "mlm_right": 0.1,
        "pair_right": 0.75,
        "pair": pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))),
    }
    one: Any = mlm.Mlm().build(BERT, tokenizer)
    assert one.guessing({}, 5.0, 0.1) == {"validation": 5.0, "mlm": 5.0, "mlm_right": 0.1}


def test_a_head_on_a_top_is_a_plain_one() -> None:
    task = Task(Top(mix=True), BERT, 9)
    torch.manual_seed(0)
    task.add_head("classify", 500)
    [(name, head)] = [(name, part) for name, part in task.named_children() if name not in ("model", "top")]
    assert name == "classify"
    weights = dict(head.named_parameters())
    assert weights["out.weight"].shape == (500, 16)
    assert float(weights["out.weight"].detach().std()) == pytest.approx(INITIALIZER_STD, rel=0.05)
    assert not weights["out.bias"].any()
    places = [m.place for m in task.modules() if isinstance(m, Dropout)]
    assert sorted(places) == list(range(len(places)))


def test_files_are_one_or_several() -> None:
    files = Files(train="one.tsv", dev=("two.tsv", "three.tsv"))
    assert (files.paths("train"), files.paths("dev")) == (("one.tsv",), ("two.tsv", "three.tsv"))
    assert Files().paths("dev") == ()


def test_how_families_read(tokenizer: Tokenizer) -> None:
    """Types where there are two, signs at the end where it reads one way, an ELMo one example a row."""
    found = [reader(tokenizer, family) for family in (BERT, roberta.Roberta(), gpt2.Gpt2(), ELMO)]
    assert [(one.types, one.causal) for one in found] == [(True, False), (False, False), (False, True), (False, False)]
    assert not reader(tokenizer, bert.Bert(types=1)).types
    assert [packing(tokenizer, family).alone for family in (BERT, ELMO)] == [False, True]
    assert packing(tokenizer, BERT).pad == tokenizer.pad == 0


def test_fresh_networks_are_those_of_their_seed(tokenizer: Tokenizer) -> None:
    sums = [digest(own_tensors(fresh(mlm.Mlm(), BERT, tokenizer, seed))) for seed in (1, 1, 2)]
    assert sums[0] == sums[1] != sums[2]


def test_what_is_no_objective_is_refused() -> None:
    class Made:
        def build(self, model: Any, tokenizer: Any) -> Any:
            return self.gives

        gives: Any = None

    Made.__module__ = "ordsmed.learn.objectives.made"
    settings = Made()
    settings.gives = torch.nn.Linear(1, 1)
    with pytest.raises(RecipeError, match=r"build\(\) returns a Linear; wanted an ordsmed.learn.objective.Objective"):
        built(settings, None, Signs())  # type: ignore[arg-type]

    class Half(Objective):
        def count(self, batch: Any) -> dict[str, torch.Tensor]:
            return {}

        def forward(self, batch: Any) -> dict[str, torch.Tensor]:
            return {}

    for name, value in (("model", torch.nn.Linear(1, 1)), ("model_settings", BERT), ("weights", {"half": 1.0})):
        settings.gives = settings.gives if isinstance(settings.gives, Half) else Half()
        with pytest.raises(RecipeError, match=rf"Half has no `self\.{name}`; wanted one set in __init__"):
            built(settings, None, Signs())  # type: ignore[arg-type]
        setattr(settings.gives, name, value)
    assert built(settings, None, Signs()) is settings.gives  # type: ignore[arg-type]
    for old, now in (("judge", "validate"), ("told", "describe"), ("heed", "update_settings")):
        settings.gives = type("Old", (Half,), {old: lambda self, batch: {}})()
        with pytest.raises(RecipeError, match=f"Old has `{old}`; wanted its new name `{now}`"):
            built(settings, None, Signs())  # type: ignore[arg-type]


def test_tokens_that_are_needed_are_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    need(tokenizer, "start", "stop", "mask", by="mlm")
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\na\n")
    with pytest.raises(RecipeError, match=r"tokenizer: has no mask token; wanted \[SEP\] \[MASK\], as mlm needs"):
        need(Tokenizer.load(tmp_path / "vocab.txt"), "stop", "mask", by="mlm")


def test_states_of_places() -> None:
    hidden = torch.arange(24.0).view(2, 4, 3)
    batch: Any = type("Asked", (), {"predicted_positions": torch.tensor([[3, 0], [1, 1]])})
    assert at_positions(hidden, batch)[:, 0].tolist() == [9, 0, 15, 15]


@pytest.mark.parametrize(
    ("settings", "role"),
    [
        (classify.Classify(labels=("a", "b")), "classify"),
        (tag.Tag(labels=("O", "X")), "tag"),
        (squad.Squad(length=32), "span"),
    ],
)
def test_networks_of_tasks_tell_what_they_are(settings: Any, role: str, tokenizer: Tokenizer) -> None:
    [(name, network)] = settings.build(BERT, tokenizer).networks().items()
    assert (name, list(network.modules), network.number) == ("", ["model", role], False)
    assert network.labels == tuple(getattr(settings, "labels", ()))


TAKEN: list[tuple[Any, dict[str, Any]]] = [
    (mlm.Mlm, {"mask_prob": 0.999, "keep": 0.5, "swap": 0.5}),
    (mlm.Mlm, {"mask_prob": 0.001, "keep": 0.0, "swap": 0.0}),
    (mlm_nsp.MlmNsp, {"mask_prob": 0.999, "keep": 1.0, "swap": 0.0, "short": 1.0}),
    (mlm_nsp.MlmNsp, {"mask_prob": 0.001, "keep": 0.0, "swap": 1.0, "short": 0.0}),
    (rtd.Rtd, {"mask_prob": 0.999, "single": 1.0, "short": 0.0, "detect_weight": 0.0, "temperature": 1e-9}),
    (rtd.Rtd, {"mask_prob": 0.001, "single": 0.0, "short": 1.0, "guess_weight": 0.0, "temperature": 1e9}),
    (bilm.BiLm, {"samples": 0, "scale": 1e-9}),
    (bilm.BiLm, {"samples": 1, "scale": 1e9}),
]
REFUSED: list[tuple[Any, dict[str, Any]]] = [
    *(
        (choice(one), wrong)
        for one in (mlm, mlm_nsp)
        for wrong in ({"keep": -0.1}, {"keep": 0.1, "swap": -0.1}, {"keep": 0.6, "swap": 0.5})
    ),
    *((choice(one), {"mask_prob": value}) for one in (mlm, mlm_nsp, rtd) for value in (0.0, 1.0, -1.0, 2.0)),
    *((mlm_nsp.MlmNsp, {"short": value}) for value in (-0.1, 1.1)),
    *((rtd.Rtd, {name: value}) for name in ("single", "short") for value in (-0.1, 1.1)),
    *((rtd.Rtd, {name: value}) for name in ("guess_weight", "detect_weight") for value in (-0.1, math.inf)),
    *((rtd.Rtd, {"temperature": value}) for value in (0.0, -1.0, math.nan)),
    (bilm.BiLm, {"samples": -1}),
    *((bilm.BiLm, {"scale": value}) for value in (0.0, math.inf, math.nan)),
]


@pytest.mark.parametrize(("settings", "how"), TAKEN)
def test_the_last_values_that_can_be_are_taken(settings: Any, how: dict[str, Any]) -> None:
    made = settings(**how)
    assert {name: getattr(made, name) for name in how} == how


@pytest.mark.parametrize(("settings", "how"), REFUSED)
def test_what_cannot_be_is_refused(settings: Any, how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(how))}: found .*; wanted "):
        settings(**how)


def test_objectives_and_families_that_do_not_go_together(tokenizer: Tokenizer) -> None:
    causal = gpt2.Gpt2(width=16, layers=1, heads=2)
    for settings, family, said in (
        (mlm.Mlm(), causal, "mlm with a causal model"),
        (clm.Clm(), BERT, "clm with a bidirectional model"),
        (bilm.BiLm(samples=0), BERT, "bilm with a model without a carried state"),
        (rtd.Rtd(), BERT, "rtd with a model without a detection head"),
        (mlm_nsp.MlmNsp(), bert.Bert(width=16, heads=2, types=1), r"model\.types: found 1; wanted 2 or more"),
        (rtd.Rtd(), electra.Electra(width=16, heads=2, types=1), r"model\.types: found 1; wanted 2 or more"),
        (bilm.BiLm(samples=5), ELMO, r"objective\.samples: found 5, more than half of the 8 words"),
    ):
        with pytest.raises(RecipeError, match=said):
            settings.build(family, tokenizer)  # type: ignore[attr-defined]
    assert bilm.BiLm(samples=4).build(ELMO, tokenizer).settings.samples == 4
    assert mlm_nsp.MlmNsp().build(bert.Bert(width=16, heads=2, layers=1), tokenizer)
    assert rtd.Rtd().build(electra.Electra(width=16, heads=2, layers=1), tokenizer)


@pytest.mark.parametrize(
    ("role", "labels", "number", "known"),
    [
        ("classify", ("a", "b"), False, {"classify": {"labels": ["a", "b"]}}),
        ("classify", (), True, {"classify": {"number": True, "scale": [0.0, 1.0]}}),
        ("classify", (), False, {"classify": {}}),
        ("tag", ("NOUN", "VERB"), False, {"tag": {"labels": ["NOUN", "VERB"], "column": -1}}),
        (
            "tag",
            ("O", "B-X", "I-X"),
            False,
            {"tag": {"labels": ["O", "B-X", "I-X"], "column": -1, "file_scheme": "IOB2"}},
        ),
        ("span", (), False, {"squad": {}}),
        ("joint", (), False, {}),
    ],
)
def test_a_head_of_others_is_of_one_task(
    role: str, labels: tuple[str, ...], number: bool, known: dict[str, Any]
) -> None:
    asked = {kind: menu.load("tasks", kind).of_others(role, labels, number) for kind in menu.entries("tasks")}
    assert {kind: table for kind, table in asked.items() if table is not None} == known


def test_a_data_set_is_known_by_its_name() -> None:
    asked = lambda name: {kind: menu.load("tasks", kind).named(name) for kind in menu.entries("tasks")}  # noqa: E731
    assert asked("squad-2.0") == {
        "classify": None,
        "pairs": None,
        "rerank": None,
        "squad": {"version": "2.0"},
        "tag": None,
    }
    assert asked("CoLA") == {"classify": {"name": "CoLA"}, "pairs": None, "rerank": None, "squad": None, "tag": None}
    assert not any(asked("squad-3.0").values())


def test_a_task_of_ones_own_has_a_card_too() -> None:
    """What is said where a task says nothing."""
    usage = Task.usage(object.__new__(Task), "x", None, classify.Classify())  # type: ignore[arg-type]
    assert (usage.pipeline, usage.does) == ("text-classification", "was fine-tuned")
