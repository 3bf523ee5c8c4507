"""WikiText and LAMBADA as Megatron's scripts count them, by a plain loop over a model of transformers."""

from __future__ import annotations

import math
import re
from typing import Any

import torch


def detokenized(string: str) -> str:
    """Megatron's `wikitext_detokenizer`, transcribed."""
    string = string.replace("s '", "s'")
    string = re.sub(r"/' [0-9]/", r"/'[0-9]/", string)
    string = string.replace(" @-@ ", "-")
    string = string.replace(" @,@ ", ",")
    string = string.replace(" @.@ ", ".")
    string = string.replace(" : ", ": ")
    string = string.replace(" ; ", "; ")
    string = string.replace(" . ", ". ")
    string = string.replace(" ! ", "! ")
    string = string.replace(" ? ", "? ")
    string = string.replace(" , ", ", ")
    string = re.sub(r"\(\s*([^\)]*?)\s*\)", r"(\1)", string)
    string = re.sub(r"\[\s*([^\]]*?)\s*\]", r"[\1]", string)
    string = re.sub(r"{\s*([^}]*?)\s*}", r"{\1}", string)
    string = re.sub(r"\"\s*([^\"]*?)\s*\"", r'"\1"', string)
    string = re.sub(r"'\s*([^']*?)\s*'", r"'\1'", string)
    string = string.replace("= = = =", "====")
    string = string.replace("= = =", "===")
    string = string.replace("= =", "==")
    string = string.replace(" " + chr(176) + " ", chr(176))
    string = string.replace(" \n", "\n")
    string = string.replace("\n ", "\n")
    string = string.replace(" N ", " 1 ")
    return string.replace(" 's", "'s")


@torch.no_grad()
def perplexity(
    model: Any, tokenizer: Any, raw: str, length: int, overlap: int, batch: int, cached: bool = False
) -> dict[str, float]:
    """Its dataset of overlapping windows, padded, with a mask of what is scored; `cached`: in two halves."""
    original = len(raw.strip().split(" "))
    tokens = tokenizer(detokenized(raw), add_special_tokens=False)["input_ids"]
    overlap = overlap or length
    count = max(math.ceil(max(len(tokens) - 1 - overlap, 0) / overlap) + 1, 1)
    rows, masks = [], []
    for n in range(count):
        own = tokens[n * overlap : n * overlap + length + 1]
        mask = [1] * len(own) + [0] * (length + 1 - len(own))
        own = own + [0] * (length + 1 - len(own))
        mask = mask[1:]
        if overlap != length and n:
            mask[:-overlap] = [0] * (length - overlap)
        rows.append(own)
        masks.append(mask)
    total, scored = 0.0, 0
    for at in range(0, count, batch):
        row, mask = torch.tensor(rows[at : at + batch]), torch.tensor(masks[at : at + batch])
        if cached:
            first = model(input_ids=row[:, : length // 2], use_cache=True)
            second = model(input_ids=row[:, length // 2 : -1], past_key_values=first.past_key_values)
            logits = torch.cat([first.logits, second.logits], 1)
        else:
            logits = model(input_ids=row[:, :-1], use_cache=False).logits
        losses = -logits.log_softmax(-1).gather(2, row[:, 1:, None]).squeeze(2)
        total += float((losses.double() * mask).sum())
        scored += int(mask.sum())
    loss, ratio = total / (len(tokens) - 1), (len(tokens) - 1) / (original - 1)
    return {
        "perplexity": math.exp(min(20, loss)),
        "adjusted_perplexity": math.exp(min(20, loss * ratio)),
        "tokens": len(tokens),
        "original_tokens": original,
        "scored": scored,
    }


@torch.no_grad()
def lambada(model: Any, tokenizer: Any, text: str) -> tuple[bool, bool]:
    """Is the last token right; are all of the last word's, its context cut by itself?"""

    def right(before: list[int], word: list[int]) -> bool:
        best = model(input_ids=torch.tensor([[*before, *word][:-1]])).logits[0].argmax(-1).tolist()
        return best[len(before) - 1 :] == word

    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    last = text.split()[-1]
    before = tokenizer(text[: text.rfind(last)].strip(), add_special_tokens=False)["input_ids"]
    return right(ids[:-1], ids[-1:]), right(before, tokenizer(" " + last, add_special_tokens=False)["input_ids"])
