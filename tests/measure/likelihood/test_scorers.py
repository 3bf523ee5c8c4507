"""How likely texts are: as a plain loop over single texts says, whatever they are packed with; and who can be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from kit.families import shaken
from kit.language_models import SENTENCES, elmo_made, made, opened
from ordsmed.base.errors import RecipeError
from ordsmed.measure.likelihood import rows, ways
from ordsmed.measure.likelihood.items import Item, Scores
from ordsmed.measure.likelihood.transformers import WordAware
from ordsmed.nn.models import bert, megatron_bert
from ordsmed.text.tokenizers import bytebpe

WAYS = [
    ("gpt2", "causal"),
    ("bert", "masked"),
    ("bert", "word"),
    ("modern", "masked"),
    ("electra", "detect"),
    ("electra", "masked"),
    ("electra", "word"),
    ("hybrid", "causal"),
    ("hybrid", "masked"),
    ("hybrid", "word"),
    ("hybrid-modern", "causal"),
    ("hybrid-modern", "masked"),
]


def scored(trained: Any, way: str, texts: list[str]) -> list[Scores]:
    scorer = ways.scorer(trained, way)
    return scorer.scores(scorer.cut(texts), best=True)


@torch.no_grad()
def slowly(trained: Any, way: str, ids: list[int]) -> list[float]:
    """Each token by itself, from a row of one text."""
    networks, cutter = trained.objective.networks(), trained.tokenizer
    parts = networks["generator"].modules if way != "detect" and "generator" in networks else networks[""].modules
    shifted, found = trained.objective.shifted, []

    def states(row: list[int], causal: bool) -> Any:
        more = {"causal": torch.tensor([causal]), "documents": torch.ones(1, len(row))} if shifted else {}
        return parts["model"](torch.tensor([row]), torch.arange(len(row))[None], **more)[0]

    if way == "causal":
        hidden = states([cutter.end, *ids], True)
        return [float(parts["head"](hidden[n]).log_softmax(-1)[one]) for n, one in enumerate(ids)]
    before, after = (cutter.end, cutter.end) if shifted else (cutter.start, cutter.stop)
    if way == "detect":
        fake = parts["detect"](states([before, *ids, after], False))[1:-1]
        return torch.log(1 - torch.sigmoid(fake)).tolist()
    continues = cutter.continues(np.asarray(ids))
    for n, one in enumerate(ids):
        shown, last = list(ids), n + 1
        while way == "word" and last < len(ids) and continues[last]:
            last += 1
        shown[n:last] = [cutter.mask] * (last - n)
        state = states([before, *shown, after], False)[n + (0 if shifted else 1)]
        found.append(float(parts["head"](state).log_softmax(-1)[one]))
    return found


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_every_token_is_as_likely_as_by_itself(family: str, way: str, tmp_path: Path) -> None:
    """Packed with texts of other lengths, as alone."""
    trained = made(family, tmp_path)
    found = scored(trained, way, SENTENCES)
    for text, own in zip(SENTENCES, found, strict=True):
        assert own.logs == pytest.approx(slowly(trained, way, trained.tokenizer.encode(text)), abs=1e-5), text


def test_word_aware_scores_hide_the_rest_of_the_word(tmp_path: Path) -> None:
    """Only of words of several pieces do they differ, and of their last piece they do not."""
    trained = made("bert", tmp_path)
    pieces = trained.tokenizer.encode("the newts ran")
    assert [trained.tokenizer.piece(n) for n in pieces] == ["the", "newt", "##s", "ran"]
    [plain], [aware] = (scored(trained, way, ["the newts ran"]) for way in ("masked", "word"))
    assert [*(plain.logs == pytest.approx(aware.logs, abs=1e-6),)] == [False]
    assert np.abs(plain.logs - aware.logs)[[0, 2, 3]] == pytest.approx(0, abs=1e-6)
    assert abs(plain.logs[1] - aware.logs[1]) > 1e-3


def test_a_blank_by_itself_hides_its_word() -> None:
    cutter = bytebpe.ByteBpe(size=257).train(["a"])
    scorer = cast(WordAware, SimpleNamespace(tokenizer=cutter))
    hidden = WordAware.hidden(scorer, np.asarray(cutter.encode("a to")))
    assert np.flatnonzero(hidden[1]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("family", "way"), [("gpt2", "causal"), ("bert", "masked"), ("modern", "masked")])
def test_packing_changes_no_score(family: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one length, several texts in a row (by runs and by masks), and each alone."""
    trained, found = made(family, tmp_path), []
    for tokens, runs in ((1, 0), (1 << 12, 0), (1 << 12, 1 << 40), (64, 0)):
        monkeypatch.setitem(rows.TOKENS, "cpu", tokens)
        monkeypatch.setattr("ordsmed.nn.attention.CALL_COST", runs)
        found.append(scored(trained, way, SENTENCES * 3))
    for other in found[1:]:
        for one, own in zip(found[0], other, strict=True):
            assert own.logs == pytest.approx(one.logs, abs=1e-5)
            assert (own.best == one.best).all()


@pytest.mark.parametrize("kind", [bert.Bert, megatron_bert.MegatronBert])
def test_the_last_block_gives_the_states_that_are_wanted(kind: Any) -> None:
    """Of some places of rows end to end: those that all have there."""
    torch.manual_seed(0)
    network = shaken(kind(width=16, layers=2, heads=2, positions=12).build(20)).eval()
    tokens, positions = torch.randint(20, (3, 8)), torch.arange(8).expand(3, -1)
    documents = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 3 + [2] * 5])
    at, made = torch.tensor([17, 3, 12, 0]), list[torch.Size]()
    network.blocks[-1].up.register_forward_hook(lambda layer, inputs, out: made.append(out.shape))
    for seen in (None, documents):
        every = network(tokens, positions, seen)
        some = network(tokens, positions, seen, at=at)
        assert some.shape == (1, 4, 16)
        torch.testing.assert_close(some[0], every.flatten(0, 1)[at], atol=1e-6, rtol=0)
    assert made == [(3, 8, 64), (1, 4, 64)] * 2


def test_every_row_is_in_one_batch() -> None:
    chance = np.random.default_rng(0)
    sizes = np.concatenate([chance.integers(1, 40, 300), np.full(100, 7)])
    batches = rows.group_rows(sizes, 128)
    assert sorted(np.concatenate(batches).tolist()) == list(range(400))
    assert all(len(batch) * sizes[batch].max() <= 128 for batch in batches)
    even = [batch for batch in batches if len(set(sizes[batch])) == 1 and len(batch) > 1]
    assert sum(len(batch) for batch in even if sizes[batch[0]] == 7) >= 100
    assert rows.group_rows(np.zeros(0, np.int64), 128) == []


def test_a_part_of_a_text_is_asked(tmp_path: Path) -> None:
    """After its context, with or without a start token."""
    trained = made("gpt2", tmp_path)
    scorer = ways.scorer(trained)
    ids = np.asarray(trained.tokenizer.encode("the newt sat on the mat"))
    whole, part, bare = scorer.scores([Item(ids), Item(ids, first=4), Item(ids, first=2, sign=False)], best=True)
    assert part.logs == pytest.approx(whole.logs[4:], abs=1e-5)
    assert len(bare.logs) == 4
    hidden = trained.objective.model(torch.from_numpy(ids[None, :-1]), torch.arange(5)[None])
    logs = trained.objective.head(hidden)[0].log_softmax(-1)
    assert bare.logs == pytest.approx([float(logs[n - 1, ids[n]].detach()) for n in range(2, 6)], abs=1e-5)
    assert bare.best.tolist() == [bool(logs[n - 1].argmax() == ids[n]) for n in range(2, 6)]


@torch.no_grad()
def test_an_elmo_reads_in_both_directions(tmp_path: Path) -> None:
    trained: Any = elmo_made(tmp_path)
    texts = ["the newt sat", "a dog ran under the old mat and it sat", "newt", "the unheard newt"]
    objective, known = trained.objective, trained.tokenizer.model["vocab"]
    from ordsmed.nn.characters import listed, symbols

    for text, forward, backward, mean in zip(
        texts, *(scored(trained, way, texts) for way in ("forward", "backward", "mean")), strict=True
    ):
        words = text.split()
        ids = [known.get(word, trained.tokenizer.unknown) for word in words]
        letters = symbols(*listed([word.encode() for word in words]), trained.settings.longest_word)
        own = torch.arange(2, 2 + len(words))
        rows_ = [torch.cat([torch.tensor([0]), own])[None], torch.cat([torch.tensor([1]), own.flip(0)])[None]]
        tops = objective.model(letters, *rows_, *objective.model.silence(1))[0][-1]
        logs = [(top[:-1, 0] @ objective.head.table.weight.T + objective.head.bias).log_softmax(-1) for top in tops]
        ahead = [float(logs[0][n, one]) for n, one in enumerate(ids)]
        back = [float(logs[1][n, one]) for n, one in enumerate(reversed(ids))][::-1]
        assert forward.logs == pytest.approx(ahead, abs=1e-5)
        assert backward.logs == pytest.approx(back, abs=1e-5)
        assert mean.logs == pytest.approx((np.asarray(ahead) + back) / 2, abs=1e-5)


def test_who_can_be_asked_how(tmp_path: Path) -> None:
    offered = {"gpt2": "causal", "bert": "masked word", "hybrid": "causal masked word", "electra": "detect masked word"}
    for family, ways_ in offered.items():
        assert ways.of(made(family, tmp_path / family)) == ways_.split()
    assert ways.of(elmo_made(tmp_path / "elmo")) == ["mean", "forward", "backward"]
    with pytest.raises(RecipeError, match="is a bert, which cannot be read the way `causal`; wanted masked or word"):
        ways.scorer(made("bert", tmp_path / "b"), "causal")
    with pytest.raises(RecipeError, match=r"way: found maskd; wanted causal or .*did you mean `masked`"):
        ways.scorer(made("bert", tmp_path / "c"), "maskd")
    bare = made("bert", tmp_path / "d")
    bare.tokenizer.mask = None
    with pytest.raises(RecipeError, match=r"its tokenizer has no mask; wanted \[MASK\]"):
        ways.scorer(bare)
    alone = opened("electra", tmp_path / "e")
    assert ways.of(alone) == ["detect"]
    del alone.objective.detect
    with pytest.raises(RecipeError, match="has no head that predicts tokens"):
        ways.scorer(replace(alone))
