"""The joint head: compared with concatenated states, and with all pairs of start and end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kit.families import close, shaken
from ordsmed.learn.joint import GOOGLE_WIDTH, NEVER, Form, JointHead
from ordsmed.learn.score.answers import Decoding, beams

EXAMPLES, LENGTH, WIDTH = 3, 7, 6
FORMS = pytest.mark.parametrize("form", ["nvidia", "google"])


def made(form: Form) -> tuple[JointHead, Tensor, Tensor]:
    """A head with every number random, states, and which tokens may be chosen."""
    torch.manual_seed(5)
    head: JointHead = shaken(JointHead(WIDTH, form, refuse=True), 0.5)
    allowed = torch.rand(EXAMPLES, LENGTH) < 0.6
    allowed[:, :2] = True
    return head, torch.randn(EXAMPLES, LENGTH, WIDTH), allowed


def dense(pair: nn.Module, both: Tensor, form: Form) -> Tensor:
    """The layers over two states side by side."""
    inner = F.linear(both, *pair.dense.parameters())
    return pair.out(pair.norm(inner.tanh() if form == "nvidia" else F.gelu(inner))).squeeze(-1)


def ends_of(head: JointHead, form: Form, states: Tensor, start: int) -> Tensor:
    """Scores of all ends of one example, given where it starts."""
    one = states[start].expand_as(states)
    return dense(head.end, torch.cat([states, one] if form == "nvidia" else [one, states], -1), form)


@FORMS
@torch.no_grad()
def test_a_beam_as_wide_as_the_window_is_a_search_of_all_pairs(form: Form) -> None:
    head, states, allowed = made(form)
    starts = head.starts(states, allowed)
    told = {name: value.numpy() for name, value in head.beams(states, allowed, starts, LENGTH).items()}
    may = allowed.clone()
    may[:, 0] = False  # the sign
    decoding = Decoding(n_best=LENGTH**2, longest=3)
    found = beams(**told, may_start=may.numpy(), may_end=may.numpy(), decoding=decoding)
    for row in range(EXAMPLES):
        pairs = []
        begin = F.linear(states[row], *head.start.parameters()).squeeze(-1)
        begin = begin.masked_fill(~allowed[row], -np.inf).log_softmax(-1)
        for start in may[row].nonzero().flatten().tolist():
            end = ends_of(head, form, states[row], start).masked_fill(~allowed[row], -np.inf).log_softmax(-1)
            pairs += [
                (float(begin[start] + end[e]), start, e) for e in range(start, min(start + 3, LENGTH)) if may[row, e]
            ]
        pairs.sort(reverse=True)
        used = np.isfinite(found.start_score[row])
        assert list(zip(found.start[row][used], found.end[row][used], strict=True)) == [pair[1:] for pair in pairs]
        assert found.start_score[row][used] + found.end_score[row][used] == pytest.approx(
            [pair[0] for pair in pairs], rel=1e-5
        )


@FORMS
@torch.no_grad()
def test_a_narrow_beam_is_the_head_of_a_wide_one(form: Form) -> None:
    head, states, allowed = made(form)
    starts = head.starts(states, allowed)
    wide, narrow, spare = (head.beams(states, allowed, starts, beam) for beam in (LENGTH, 2, LENGTH + 3))
    for name, value in narrow.items():
        cut = (slice(None), *[slice(2)] * (value.ndim - 1))
        assert torch.equal(wide[name][cut], value), name
    for name, value in wide.items():  # a beam wider than the window: what is not used scores as if it could not be
        cut = (slice(None), *[slice(LENGTH)] * (value.ndim - 1))
        assert torch.equal(spare[name][cut], value)
        assert spare[name].shape == (EXAMPLES, *[LENGTH + 3] * (value.ndim - 1))
        assert (spare[name][..., LENGTH:] == (NEVER if value.is_floating_point() else 0)).all()


@FORMS
@torch.no_grad()
def test_no_answer_is_told_from_the_first_token_and_the_start(form: Form) -> None:
    """While NVIDIA's form learns, the start is the right one; else each start counts by its probability."""
    head, states, allowed = made(form)
    scores, right = head.starts(states, allowed), torch.tensor([0, 1, 1])
    expected = (scores.softmax(-1)[..., None] * states).sum(1)
    told = states[torch.arange(EXAMPLES), right]
    sign = states[:, 0]
    for given, start in ((None, expected), (right, told if form == "nvidia" else expected)):
        wanted = dense(head.none, torch.cat([start, sign] if form == "nvidia" else [sign, start], -1), form)
        assert close(head.unanswerable(states, scores, given), wanted, 1e-5)


def test_the_layers_of_both_forms() -> None:
    nvidia, google = (dict(JointHead(WIDTH, form, refuse=True).named_parameters()) for form in ("nvidia", "google"))  # type: ignore[arg-type]
    assert nvidia["end.dense.weight"].shape == (WIDTH, 2 * WIDTH)
    assert google["end.dense.weight"].shape == google["none.dense.weight"].shape == (GOOGLE_WIDTH, 2 * WIDTH)
    assert JointHead(WIDTH, "nvidia", refuse=True).end.norm.eps == 1e-12
    assert nvidia.keys() - google.keys() == {"end.norm.weight", "end.norm.bias"}
    assert google.keys() - nvidia.keys() == {"none.out.bias"}
    assert not any(name.startswith("none") for name, _ in JointHead(WIDTH, "nvidia", refuse=False).named_parameters())
