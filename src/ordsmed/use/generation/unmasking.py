"""Generation by models that see both sides: fill masks in several passes, those the model is surest of first.

    the [MASK] sat on the [MASK]  ->  the cat sat on the [MASK]  ->  the cat sat on the mat

Each pass scores the remaining masks again, so that the words agree with each other. To write a text, masks are appended
to the prompt, one per wanted token, inside the special tokens that rows had in training. A random order with
temperature 1 samples from the distribution that masked diffusion learned. The surest first is the method of LLaDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.fill import MASK, check, framed, text_of_token
from ordsmed.use.generation.choosing import choose, penalized
from ordsmed.use.generation.network import WritingNetwork, writing
from ordsmed.use.generation.options import Generated, SamplingOptions
from ordsmed.weights.trained_model import Trained

SUREST = SamplingOptions(temperature=0)


def fill_all(trained: Trained, text: str, options: SamplingOptions = SUREST) -> str:
    check(trained, 1)
    network, tokenizer = writing(trained), trained.tokenizer
    ids = framed(tokenizer, text, ends=trained.objective.shifted)
    gaps = [position for position, number in enumerate(ids) if number == tokenizer.mask]
    if not gaps:
        raise RecipeError(repr(text[:40]), "has no mask", "one or more [MASK]")
    if len(ids) > network.longest:
        wanted = f"at most {network.longest:,}"
        raise RecipeError(repr(text[:40]), f"found {many(len(ids), 'token')}", wanted, "shorten it")
    row = unmasked(network, ids, gaps, options, options.key(text, 0))
    return put_in(tokenizer, text, [row[gap] for gap in gaps])


def put_in(tokenizer: Tokenizer, text: str, words: Sequence[int | None]) -> str:
    """Return a text with its masks replaced by tokens, and nothing else changed. None keeps a mask.

    A token that continues a word is joined to it.
    """
    mask = tokenizer.piece(tokenizer.mask or 0)
    whole, *parts = text.replace(MASK, mask).split(mask)
    for word, part in zip(words, parts, strict=True):
        if word is None:
            whole += mask + part
            continue
        before = whole.removesuffix(" ") if tokenizer.joins(word) else whole
        whole = before + text_of_token(tokenizer, word) + part
    return whole


def filled(network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int) -> Iterator[list[int]]:
    """Yield, after each pass, the ids of the prompt and of the text after it up to the first unfilled mask.

    The last ids have exactly the requested number of new tokens.
    """
    if not options.start:
        raise RecipeError("--no-start", f"found with {network.trained.folder}, which fills masks", "a causal model")
    tokenizer, shifted = network.trained.tokenizer, network.trained.objective.shifted
    whole = framed(tokenizer, "", ends=shifted)
    before, after = whole[: (len(whole) + 1) // 2], whole[(len(whole) + 1) // 2 :]
    ids = tokenizer.encode(prompt)
    prompt_length, room, key = len(ids), network.longest - len(whole), options.key(prompt, sample)
    if prompt_length + options.tokens > room:
        network.note_it_slides()
    while (left := prompt_length + options.tokens - len(ids)) > 0:
        block = left if len(ids) + left <= room else min(left, max(room // 2, 1))
        seen = ids[max(len(ids) - (room - block), 0) :]
        masked = [*before, *seen, *[tokenizer.mask or 0] * block, *after]
        first = len(before) + len(seen)
        for row, gaps in passes(
            network, masked, range(first, first + block), options, chance.key("block", key, len(ids))
        ):
            yield [*ids, *row[first : min(gaps, default=first + block)]]
        ids = [*ids, *row[first : first + block]]


def written(network: WritingNetwork, prompt: str, options: SamplingOptions, sample: int) -> Generated:
    *_, ids = filled(network, prompt, options, sample)
    text = behind(network, prompt, ids)
    if (short := options.stopped(text)) is not None:
        return Generated(prompt, short, sample, options.tokens, "stop")
    return Generated(prompt, text, sample, options.tokens, "tokens")


def behind(network: WritingNetwork, prompt: str, ids: Sequence[int]) -> str:
    """Return the text after the prompt, from the ids of both."""
    tokenizer = network.trained.tokenizer
    return tokenizer.decode([*ids]).removeprefix(tokenizer.decode([*ids[: len(tokenizer.encode(prompt))]]))


def unmasked(
    network: WritingNetwork, ids: Sequence[int], gaps: Sequence[int], options: SamplingOptions, key: int
) -> list[int]:
    *_, (row, _) = passes(network, ids, gaps, options, key)
    return row


def passes(
    network: WritingNetwork, ids: Sequence[int], gaps: Sequence[int], options: SamplingOptions, key: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the row and its remaining gaps after every pass. No gap is filled with a special token."""
    row, left, pass_number = list(ids), list(gaps), 0
    special = torch.tensor(sorted(network.trained.tokenizer.special), device=network.device, dtype=torch.int64)
    while left:
        scores = network.gap_scores(row, left).index_fill(1, special, -torch.inf)
        if options.penalty != 1:
            seen = torch.zeros_like(scores, dtype=torch.bool)
            seen[:, [number for location, number in enumerate(row) if location not in left]] = True
            scores = penalized(scores, seen, options.penalty)
        keys = chance.bits(chance.key("pass", key, pass_number), np.asarray(left))
        words = choose(scores, options, keys, np.asarray(left))
        if options.order == "chance":
            priority = torch.from_numpy(chance.unit(keys, 1))
        else:
            priority = scores.softmax(1).gather(1, words[:, None])[:, 0]
        chosen: list[int] = priority.topk(min(options.together, len(priority))).indices.tolist()
        for number in chosen:
            row[left[number]] = int(words[number])
        left, pass_number = [gap for gap in left if row[gap] == network.trained.tokenizer.mask], pass_number + 1
        yield row, left
