"""Unmasking: who sees both sides writes by filling masks, those it is surest of first.

the [MASK] sat on the [MASK]  ->  the cat sat on the [MASK]  ->  the cat sat on the mat

After each pass the gaps that are left are asked anew, so that words agree with each other. To write a text, as many
masks as tokens are wanted are put behind the prompt, between the signs that rows had in training. In an order by chance
(and with a temperature of 1) that draws from what masked diffusion has learned; the surest first is LLaDA's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.fill import MASK, check, framed, written_as
from ordsmed.use.generation.choosing import choose, penalized
from ordsmed.use.generation.network import WritingNetwork, writing
from ordsmed.use.generation.options import Generated, SamplingOptions
from ordsmed.weights.trained import Trained

SUREST = SamplingOptions(temperature=0)


def fill_all(trained: Trained, text: str, how: SamplingOptions = SUREST) -> str:
    """A text with all its masks filled."""
    check(trained, 1)
    network, tokenizer = writing(trained), trained.tokenizer
    ids = framed(tokenizer, text, ends=trained.objective.shifted)
    gaps = [place for place, number in enumerate(ids) if number == tokenizer.mask]
    if not gaps:
        raise RecipeError(repr(text[:40]), "no mask in the text", "one or more [MASK]")
    if len(ids) > network.longest:
        wanted = f"at most {network.longest:,}"
        raise RecipeError(repr(text[:40]), f"found {many(len(ids), 'token')}", wanted, "shorten it")
    row = unmasked(network, ids, gaps, how, how.key(text, 0))
    return put_in(tokenizer, text, [row[gap] for gap in gaps])


def put_in(tokenizer: Tokenizer, text: str, words: Sequence[int | None]) -> str:
    """A text with pieces in the place of its masks, else as it was; a piece that goes on with a word joins it.

    None: this mask stays.
    """
    mask = tokenizer.piece(tokenizer.mask or 0)
    whole, *parts = text.replace(MASK, mask).split(mask)
    for word, part in zip(words, parts, strict=True):
        if word is None:
            whole += mask + part
            continue
        before = whole.removesuffix(" ") if tokenizer.joins(word) else whole
        whole = before + written_as(tokenizer, word) + part
    return whole


def filled(network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int) -> Iterator[list[int]]:
    """The ids of a prompt and of what a model that fills gaps writes behind it, up to the first gap, after each pass.

    At last exactly as many are new as are asked for.
    """
    if not how.start:
        raise RecipeError("--no-start", f"found with {network.trained.folder}, which fills masks", "a causal model")
    tokenizer, shifted = network.trained.tokenizer, network.trained.objective.shifted
    whole = framed(tokenizer, "", ends=shifted)
    before, after = whole[: (len(whole) + 1) // 2], whole[(len(whole) + 1) // 2 :]
    ids = tokenizer.encode(prompt)
    prompt_length, room, key = len(ids), network.longest - len(whole), how.key(prompt, sample)
    if prompt_length + how.tokens > room:
        network.note_it_slides()
    while (left := prompt_length + how.tokens - len(ids)) > 0:
        block = left if len(ids) + left <= room else min(left, max(room // 2, 1))
        seen = ids[max(len(ids) - (room - block), 0) :]
        masked = [*before, *seen, *[tokenizer.mask or 0] * block, *after]
        first = len(before) + len(seen)
        for row, gaps in passes(network, masked, range(first, first + block), how, chance.key("block", key, len(ids))):
            yield [*ids, *row[first : min(gaps, default=first + block)]]
        ids = [*ids, *row[first : first + block]]


def written(network: WritingNetwork, prompt: str, how: SamplingOptions, sample: int) -> Generated:
    """A prompt and the whole of what follows it."""
    *_, ids = filled(network, prompt, how, sample)
    text = behind(network, prompt, ids)
    if (short := how.stopped(text)) is not None:
        return Generated(prompt, short, sample, how.tokens, "stop")
    return Generated(prompt, text, sample, how.tokens, "tokens")


def behind(network: WritingNetwork, prompt: str, ids: Sequence[int]) -> str:
    """What stands behind a prompt, of the ids of both."""
    tokenizer = network.trained.tokenizer
    return tokenizer.decode([*ids]).removeprefix(tokenizer.decode([*ids[: len(tokenizer.encode(prompt))]]))


def unmasked(
    network: WritingNetwork, ids: Sequence[int], gaps: Sequence[int], how: SamplingOptions, key: int
) -> list[int]:
    """A row whose gaps are filled."""
    *_, (row, _) = passes(network, ids, gaps, how, key)
    return row


def passes(
    network: WritingNetwork, ids: Sequence[int], gaps: Sequence[int], how: SamplingOptions, key: int
) -> Iterator[tuple[list[int], list[int]]]:
    """A row after every pass, in which so many gaps are filled, and those that are left; no sign is put into one."""
    row, left, turn = list(ids), list(gaps), 0
    signs = torch.tensor(sorted(network.trained.tokenizer.special), device=network.device, dtype=torch.int64)
    while left:
        scores = network.gap_scores(row, left).index_fill(1, signs, -torch.inf)
        if how.penalty != 1:
            seen = torch.zeros_like(scores, dtype=torch.bool)
            seen[:, [number for place, number in enumerate(row) if place not in left]] = True
            scores = penalized(scores, seen, how.penalty)
        keys = chance.bits(chance.key("pass", key, turn), np.asarray(left))
        words = choose(scores, how, keys, np.asarray(left))
        if how.order == "chance":
            height = torch.from_numpy(chance.unit(keys, 1))
        else:
            height = scores.softmax(1).gather(1, words[:, None])[:, 0]
        chosen: list[int] = height.topk(min(how.together, len(height))).indices.tolist()
        for number in chosen:
            row[left[number]] = int(words[number])
        left, turn = [gap for gap in left if row[gap] == network.trained.tokenizer.mask], turn + 1
        yield row, left
