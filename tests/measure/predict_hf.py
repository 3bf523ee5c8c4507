"""Asking a BERT about SQuAD beside transformers: the same weights, the same windows, in turn.

    python tests/measure/predict_hf.py squad-dev.json --vocabulary bert-base-uncased-vocab.txt --threads 2

(a) One window at a time: the time of each, ours and theirs one after the other. (b) All windows: ours by length,
several in a row, as `ordsmed predict` asks; theirs in batches of 32 in the file's order, padded to the longest of each
batch, and padded to the greatest length, as NVIDIA's and Google's scripts do. Weights are random: they change no speed.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering

from ordsmed.base import files
from ordsmed.base.menu import load
from ordsmed.base.ranks import prepare
from ordsmed.data.features import Features
from ordsmed.learn.inference import predict_all
from ordsmed.learn.objective import fresh
from ordsmed.learn.task import Task, packing, reader
from ordsmed.measure.bench.tasks import latencies, part, ratios
from ordsmed.nn.packed_layers import CastWeights
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights
from ordsmed.weights.hub_files import config, tensors

THEIR_BATCH = 32


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--vocabulary", type=Path, required=True)
    options.add_argument("--size", default="base")
    options.add_argument("--length", type=int, default=384)
    options.add_argument("--windows", type=int, default=320, help="of (b), in blocks from all over the file; 0: all")
    options.add_argument("--single", type=int, default=60, help="windows of (a)")
    options.add_argument("--rounds", type=int, default=2, help="of (b); 0: (a) alone")
    options.add_argument("--threads", type=int, default=0)
    options.add_argument("--precision", default="fp32", help="of our products: fp32 or bf16")
    options.add_argument("--cpu-time", action="store_true", help="count the processor's time: on a busy machine")
    measure(options.parse_args())


def measure(asked: argparse.Namespace) -> None:
    ranks = prepare("cpu", asked.threads or None)
    settings = load("tasks", "squad")(length=asked.length)
    bert = load("models", "bert")
    network, tokenizer = bert(**bert.SIZES[asked.size]), Tokenizer.load(asked.vocabulary)
    task = fresh(settings, network, tokenizer, 0)
    assert isinstance(task, Task)
    features = settings.features(settings.records([str(asked.file)]), reader(tokenizer, network))
    features = part(features, spread_blocks(len(features), asked.windows))
    theirs, how = their_network(task, tokenizer), packing(tokenizer, network)
    clock = time.process_time if asked.cpu_time else time.perf_counter

    cast = CastWeights()

    def within() -> Any:
        half = asked.precision == "bf16"
        return cast.within(task, torch.device("cpu"), torch.bfloat16) if half else contextlib.nullcontext()

    def ours(examples: Features) -> list[np.ndarray]:
        said, _ = predict_all(task, examples, how, ranks, within=within)
        return [said["start"], said["end"]]

    def timed(way, *given) -> float:
        began = clock()
        way(*given)
        return clock() - began

    print(f"{asked.size}, {len(features):,} windows of {features.sizes.mean():.0f} tokens, {ranks.threads} threads")
    apart = {"fp32": 1e-3, "bf16": 3e-2}[asked.precision]
    same(ours(features), by_batches(theirs, features, THEIR_BATCH, 0), features, apart)
    places = np.random.default_rng(0).integers(0, len(features), asked.single + 3)
    singles = [part(features, np.array([place])) for place in places]
    half = their_network(task, tokenizer).bfloat16()
    alone = [
        lambda one: timed(ours, one),
        lambda one: timed(by_batches, theirs, one, 1, 0),
        lambda one: timed(by_batches, half, one, 1, 0),
    ]
    own, other, in_half = in_turn(alone, singles)
    told("(a) one window at a time, theirs in fp32", own[3:], other[3:])
    told("(a) one window at a time, theirs in bf16", own[3:], in_half[3:])
    if not asked.rounds:
        return
    ways = [
        lambda all_: timed(ours, all_),
        lambda all_: timed(by_batches, theirs, all_, THEIR_BATCH, 0),
        lambda all_: timed(by_batches, theirs, all_, THEIR_BATCH, asked.length),
    ]
    own, longest, greatest = in_turn(ways, [features] * asked.rounds)
    told(f"(b) all, theirs in batches of {THEIR_BATCH} as long as the longest", own, longest)
    told(f"(b) all, theirs in batches of {THEIR_BATCH} of {asked.length} tokens", own, greatest)


def in_turn(ways, given) -> list[list[float]]:
    """What each way takes for each thing given; who comes first changes every time."""
    found: list[list[float]] = [[] for _ in ways]
    for turn, thing in enumerate(given):
        for way in list(range(len(ways)))[:: -1 if turn % 2 else 1]:
            found[way].append(ways[way](thing))
    return found


def spread_blocks(count: int, wanted: int) -> np.ndarray:
    """Batches of theirs that lie evenly over the file."""
    blocks = -(-(wanted or count) // THEIR_BATCH)
    starts = np.linspace(0, max(0, count - THEIR_BATCH), blocks).astype(np.int64)
    return np.unique(np.concatenate([np.arange(start, min(start + THEIR_BATCH, count)) for start in starts]))


def told(what: str, own: list[float], other: list[float]) -> None:
    found = ratios(own, other)
    print(f"{what}: transformers take {found['ratio']:.2f} times as long as ours (median {found['median_ratio']:.2f})")
    print(f"    ours {latencies(own)['mean']:,.1f} ms, transformers {latencies(other)['mean']:,.1f} ms")


def their_network(task: Task, tokenizer: Tokenizer) -> torch.nn.Module:
    """Ours as `ordsmed export` writes it, as transformers reads it."""
    with tempfile.TemporaryDirectory() as folder:
        files.write_json(Path(folder) / "config.json", config(task.networks()[""], tokenizer))
        weights.write(Path(folder) / "model.safetensors", tensors(task.networks()[""]))
        return AutoModelForQuestionAnswering.from_pretrained(folder).eval()


def by_batches(network: torch.nn.Module, features: Features, batch: int, length: int) -> list[np.ndarray]:
    """What their network tells of all windows in their order; padded to `length`, 0: to the longest of a batch."""
    found: list[list[np.ndarray]] = [[], []]
    widest = int(features.sizes.max())
    for first in range(0, len(features), batch):
        last = min(first + batch, len(features))
        sizes = features.sizes[first:last]
        ids, types, seen = (torch.zeros((last - first, length or int(sizes.max())), dtype=torch.int64) for _ in "its")
        for row, (begin, size) in enumerate(zip(features.starts[first:last].tolist(), sizes.tolist(), strict=True)):
            ids[row, :size] = torch.from_numpy(features.ids[begin : begin + size])
            types[row, :size] = torch.from_numpy(features.types[begin : begin + size])
            seen[row, :size] = 1
        with torch.inference_mode():
            said = network(input_ids=ids, token_type_ids=types, attention_mask=None if bool(seen.all()) else seen)
        for held, scores in zip(found, (said.start_logits, said.end_logits), strict=True):
            held += [np.pad(scores[:, :widest].float().numpy(), ((0, 0), (0, max(0, widest - scores.shape[1]))))]
    return [np.concatenate(held) for held in found]


def same(own: list[np.ndarray], other: list[np.ndarray], features: Features, least: float) -> None:
    """Otherwise the comparison would mean nothing; we tell scores of the context and of the first token alone."""
    asked = np.arange(int(features.sizes.max())) == np.zeros((len(features), 1))
    for e, (begin, end) in enumerate(zip(features.starts[:-1], features.starts[1:], strict=True)):
        asked[e, : end - begin] |= features.marks[begin:end] >= 0
    apart = max(float(np.abs(a - b)[asked].max()) for a, b in zip(own, other, strict=True))
    assert apart < least, f"scores differ by {apart}"
    print(f"scores agree within {apart:.1e}")


if __name__ == "__main__":
    main()
