"""A transferred head gives the same scores for shared labels; new labels and other heads are random."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from kit.families import shaken
from kit.makers import SPECIAL
from ordsmed.base.menu import choice, load
from ordsmed.learn.head_transfer import transfer_head
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.learn.upper_layers import Top
from ordsmed.text.tokenizer import Tokenizer

SHAPE = {"width": 16, "layers": 2, "heads": 2, "inner": 16, "positions": 32}
MNLI, RTE = ("contradiction", "entailment", "neutral"), ("entailment", "not_entailment")
TOP = Top(mix=True, recurrent=4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("kept") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, "a", "b"]) + "\n")
    return Tokenizer.load(path)


def learned(settings: Any, tokenizer: Tokenizer, family: str = "bert", seed: int = 1) -> Any:
    return shaken(fresh(settings, load("models", family)(**SHAPE), tokenizer, seed), 0.5)


def head(task: Any) -> dict[str, torch.Tensor]:
    found = task.networks()[""].tensors()
    return {name: tensor.detach().clone() for name, tensor in found.items() if not name.startswith("model.")}


def labelled(kind: str, labels: tuple[str, ...], **how: Any) -> Any:
    return choice(tag if kind == "tag" else classify)(labels=labels, **how)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "gpt2", "modern"])
@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_labels_go_by_their_names(kind: str, family: str, tokenizer: Tokenizer) -> None:
    """The scores of those that both have are the same numbers; the others' rows are as they were."""
    before, task = (learned(labelled(kind, labels), tokenizer, family, seed) for seed, labels in enumerate((MNLI, RTE)))
    was = head(task)
    found = transfer_head(task, before)
    assert found.labels == ("entailment",)
    assert found.note == f"and its {kind} head with 1 of 2 labels (entailment); fresh: not_entailment"
    now, theirs = head(task), head(before)
    for name, tensor in now.items():
        if name.startswith(f"{kind}.out."):
            assert torch.equal(tensor[0], theirs[name][1])
            assert torch.equal(tensor[1], was[name][1])
            assert not torch.equal(tensor[1], theirs[name][0])
        else:
            assert torch.equal(tensor, theirs[name])
    state = torch.randn(5, SHAPE["width"])
    task.eval(), before.eval()
    said, told = (one.get_submodule(kind)(state) for one in (task, before))
    assert torch.allclose(said[:, 0], told[:, 1])


@pytest.mark.parametrize(
    ("labels", "theirs", "rows"),
    [
        (("a", "b"), ("b", "a"), {"a": 1, "b": 0}),
        (("Entailment", "other"), ("NEUTRAL", "ENTAILMENT"), {"Entailment": 1}),
        (("0", "1"), ("LABEL_0", "LABEL_1"), {"0": 0, "1": 1}),
        (("b", "B"), ("B", "x"), {"B": 0}),  # of two that differ by case alone none stands for the other
        (("b", "x"), ("b", "B"), {"b": 0}),
        (("O", "B-PER", "B-LOC"), ("B-LOC", "B-ORG", "O"), {"O": 2, "B-LOC": 0}),
    ],
)
def test_which_labels_are_the_same(labels: Any, theirs: Any, rows: dict[str, int], tokenizer: Tokenizer) -> None:
    task, before = (learned(labelled("tag", own), tokenizer, seed=seed) for seed, own in enumerate((labels, theirs)))
    assert transfer_head(task, before).labels == tuple(rows)
    now, old = head(task)["tag.out.weight"], head(before)["tag.out.weight"]
    same = {
        label: number for label, row in rows.items() for number in [labels.index(label)] if now[number].equal(old[row])
    }
    assert same.keys() == rows.keys()


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("kind", ["independent", "joint"])
def test_heads_of_questions(kind: Any, version: Any, tokenizer: Tokenizer) -> None:
    before = learned(squad.Squad(head=kind, length=16), tokenizer, seed=1)
    task = learned(squad.Squad(head=kind, version=version, length=16), tokenizer, seed=2)
    was, found, now, theirs = head(task), transfer_head(task, before), head(task), head(before)
    new = {name for name in now if name.startswith("joint.none.")}
    assert bool(new) == ((kind, version) == ("joint", "2.0"))
    assert found.names == now.keys() - new
    assert all(torch.equal(now[name], theirs[name]) for name in found.names)
    assert all(torch.equal(now[name], was[name]) for name in new)
    assert found.note == f"and its {task_role(kind)} head" + (", with a random score for no answer" if new else "")


def task_role(kind: str) -> str:
    return "joint" if kind == "joint" else "span"


@pytest.mark.parametrize("scale", [(0.0, 5.0), (1.0, 3.0)])
def test_a_number_is_told_as_before_on_any_scale(scale: tuple[float, float], tokenizer: Tokenizer) -> None:
    own = (1.0, 3.0)
    before, task = (
        learned(classify.Classify(number=True, scale=s), tokenizer, seed=n) for n, s in enumerate((own, scale))
    )
    found = transfer_head(task, before, (own, scale))
    assert found.note == "and its head for a number"
    state = torch.randn(5, SHAPE["width"])
    task.eval(), before.eval()
    said, told = (
        low + one.get_submodule("classify")(state) * (high - low) for one, (low, high) in ((task, scale), (before, own))
    )
    assert torch.allclose(said, told, atol=1e-5)


def test_a_head_without_a_bias_tells_another_scale_where_it_can(tokenizer: Tokenizer) -> None:
    scales = [(0.0, 5.0), (0.0, 10.0), (1.0, 5.0)]
    before, wider, moved = (learned(classify.Classify(number=True, scale=s), tokenizer, "gpt2") for s in scales)
    assert transfer_head(wider, before, (scales[0], scales[1])).names
    assert torch.allclose(head(wider)["classify.out.weight"] * 2, head(before)["classify.out.weight"])
    was = head(moved)
    found = transfer_head(moved, before, (scales[0], scales[2]))
    assert (found.names, found.note) == (
        frozenset(),
        "its head has no bias, so it cannot be rescaled to this task.scale",
    )
    assert all(torch.equal(was[name], tensor) for name, tensor in head(moved).items())


def test_what_stands_under_the_head_goes_on_with_it(tokenizer: Tokenizer) -> None:
    """A mix of layers and an LSTM, as an ELMo's."""
    before, task = (learned(tag.Tag(labels=("O", "X"), top=TOP), tokenizer, seed=seed) for seed in (1, 2))
    found = transfer_head(task, before)
    assert any(name.startswith("top.recurrent") for name in found.names)
    assert "top.mix.weights" in found.names or any(name.startswith("top.mix") for name in found.names)
    theirs = head(before)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in head(task).items())


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (classify.Classify(labels=MNLI), tag.Tag(labels=MNLI), "its tag head is of another kind"),
        (
            classify.Classify(labels=MNLI),
            classify.Classify(number=True, scale=(0, 1)),
            "its head for a number is of another kind",
        ),
        (squad.Squad(length=16), squad.Squad(head="joint", length=16), "its joint head is of another kind"),
        (
            squad.Squad(head="joint", form="google", length=16),
            squad.Squad(head="joint", length=16),
            "its joint head has another shape",
        ),
        (
            classify.Classify(labels=("a", "b")),
            classify.Classify(labels=MNLI),
            r"none of its labels \(contradiction, .*\) is a label of this task \(a, b\)",
        ),
        (tag.Tag(labels=("O", "X"), top=TOP), tag.Tag(labels=("O", "X")), r"under its head \(task\.top\) differ"),
        (
            tag.Tag(labels=("O", "X"), top=TOP),
            tag.Tag(labels=("O", "X"), top=Top(mix=True, recurrent=5)),
            r"under its head \(task\.top\) differ",
        ),
    ],
)
def test_what_is_of_another_kind_stays_behind(one: Any, other: Any, said: str, tokenizer: Tokenizer) -> None:
    task, before = learned(one, tokenizer, seed=1), learned(other, tokenizer, seed=2)
    was = head(task)
    found = transfer_head(task, before)
    assert (found.names, found.labels) == (frozenset(), ())
    assert re.search(said, found.note), found.note
    assert all(torch.equal(was[name], tensor) for name, tensor in head(task).items())
