"""ModernBERT-base beside transformers' on a CPU: a training step of masked prediction, in turn, at one length.

    python tests/measure/modern_hf.py [--length 1024] [--rows 1] [--layers 22] [--steps 3]
                                      [--precision fp32|bf16] [--theirs fp32|bf16]

Both have the same shapes, no dropout, the same rows (one text, full), 30 % of the tokens predicted and AdamW; theirs
attends by torch's scaled_dot_product_attention. Each goes in a process of its own, set up as its training sets one up.
bf16 is autocast's, with fp32 weights, in both. Prints seconds a step (medians) and their ratio. With fewer layers one
in three still sees all. Needs transformers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

from ordsmed.base.ranks import prepare
from ordsmed.data.batch import Batch
from ordsmed.learn.objectives import mlm
from ordsmed.nn import products
from ordsmed.nn.models import modern
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import autocast, return_half

WORDS = 50_368
STEP: Callable[[], None]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("length", 1024), ("rows", 1), ("layers", 22), ("steps", 3)):
        reader.add_argument(f"--{name}", type=int, default=usual)
    for name in ("precision", "theirs"):
        reader.add_argument(f"--{name}", choices=("fp32", "bf16"), default="fp32")
    asked = reader.parse_args()
    apart = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as held:
        sides = [
            held.enter_context(ProcessPoolExecutor(1, mp_context=apart, initializer=begin, initargs=(side, asked)))
            for side in ("ours", "theirs")
        ]
        # the first step warms up
        spent = [[side.submit(once).result() for side in sides] for _ in range(asked.steps + 1)][1:]
    one, other = (float(np.median(own)) for own in zip(*spent, strict=True))
    facts = {**vars(asked), "threads": torch.get_num_threads(), "ours_s": round(one, 3), "theirs_s": round(other, 3)}
    print(json.dumps({**facts, "ratio": round(other / one, 2)}))


def begin(side: str, asked: Any) -> None:
    """Make a side ready in a process of its own, set up as its training's is."""
    global STEP
    if side == "ours":
        prepare("cpu")
    torch.manual_seed(0)
    shape = (asked.rows, asked.length)
    tokens, count = torch.randint(10, WORDS, shape), int(0.3 * asked.length)
    places = torch.stack([torch.randperm(asked.length)[:count].sort().values for _ in range(asked.rows)])
    STEP = (ours if side == "ours" else theirs)(asked, tokens, places)


def once() -> float:
    began = time.perf_counter()
    STEP()
    return time.perf_counter() - began


def ours(asked: Any, tokens: torch.Tensor, places: torch.Tensor) -> Callable[[], None]:
    settings = modern.ModernBert(**modern.ModernBert.SIZES["base"] | {"layers": asked.layers})
    signs: Any = SimpleNamespace(vocabulary=WORDS)
    network = mlm.Mlm().build(settings, signs).train()
    layout = Layout(precision=asked.precision)
    return_half(network, layout)
    products.take(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    positions = torch.arange(asked.length).expand_as(tokens).contiguous()
    targets = tokens.gather(1, places)
    batch = Batch(torch.arange(asked.rows), tokens, positions, targets, torch.ones(targets.shape), places)

    def step() -> None:
        with autocast(layout, torch.device("cpu")):
            loss = sum(network(batch).values(), torch.zeros(())) / targets.numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def theirs(asked: Any, tokens: torch.Tensor, places: torch.Tensor) -> Callable[[], None]:
    config = transformers.ModernBertConfig(vocab_size=WORDS, num_hidden_layers=asked.layers, pad_token_id=0)
    config._attn_implementation = "sdpa"
    network = transformers.ModernBertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    labels = torch.full_like(tokens, -100).scatter_(1, places, tokens.gather(1, places))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=asked.theirs == "bf16"):
            loss = network(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
