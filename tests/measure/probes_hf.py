"""Measure probes beside plain loops of transformers on the same weights: decisions, scores and seconds, side by side.

    python tests/measure/probes_hf.py WAY MODEL FILE... [--threads N] [--most PAIRS] [--clock cpu]

WAY is causal, masked or detect. The loop is the usual one: sentences in their order, 32 a batch, padded, scores of all
places; of a masked model one row for each hidden token, a sentence a batch (as minicons). Both run in this process, one
after the other, on the same threads; loading is not counted. `--most` is of each file; `--clock cpu` counts a process's
own time, where others work too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import torch

from ordsmed.base.ranks import prepare
from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.probe import Record
from ordsmed.measure.probes.minimal_pairs import MinimalPairs
from ordsmed.weights.trained_model import open_model

KEYS = ("sentence_good", "sentence_bad")
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def chosen(files: list[str], most: int, folder: str) -> tuple[str, list[str]]:
    """The first pairs of each file in one, and their good and bad sentences in turn."""
    from ordsmed.text import read

    rows = [json.loads(line) for path in read.files(files) for line in islice(read.lines(path), most or None)]
    path = Path(folder) / "pairs.jsonl"
    path.write_text("".join(json.dumps({key: row[key] for key in KEYS}) + "\n" for row in rows), encoding="utf-8")
    return str(path), [row[key] for row in rows for key in KEYS]


@torch.inference_mode()
def causal(model, tokenizer, texts: list[str]) -> list[float]:
    """A start sign before each; padded to the longest of 32."""
    found = []
    for at in range(0, len(texts), 32):
        rows = [
            [tokenizer.eos_token_id or tokenizer.sep_token_id, *ids]
            for ids in tokenizer(texts[at : at + 32], add_special_tokens=False)["input_ids"]
        ]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        logs = model(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)
        own = logs[:, :-1].gather(2, ids[:, 1:, None]).squeeze(2) * mask[:, 1:]
        found += own.double().sum(1).tolist()
    return found


@torch.inference_mode()
def masked(model, tokenizer, texts: list[str]) -> list[float]:
    """A sentence a batch, a row for each token hidden, scores of all places of all rows."""
    found = []
    for text in texts:
        ids = torch.tensor(tokenizer(text)["input_ids"])
        places = torch.arange(1, len(ids) - 1)
        rows = ids.repeat(len(places), 1)
        rows[torch.arange(len(places)), places] = tokenizer.mask_token_id
        logs = model(input_ids=rows).logits.log_softmax(-1)
        found.append(float(logs[torch.arange(len(places)), places, ids[places]].double().sum()))
    return found


@torch.inference_mode()
def detect(model, tokenizer, texts: list[str]) -> list[float]:
    """The logarithm of how real each token looks, signs left out."""
    found = []
    for at in range(0, len(texts), 32):
        given = tokenizer(texts[at : at + 32], padding=True, return_tensors="pt")
        logs = torch.nn.functional.logsigmoid(-model(**given).logits)
        inner = given["attention_mask"].clone()
        inner[:, 0] = 0
        inner[torch.arange(len(inner)), given["attention_mask"].sum(1) - 1] = 0
        found += (logs * inner).double().sum(1).tolist()
    return found


def timed(way: str, folder: str, texts: list[str], threads: int, clock: str) -> tuple[list[float], float]:
    """In a process of its own: how we keep memory is not theirs."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

    kind = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "detect": AutoModelForPreTraining}[way]
    torch.set_num_threads(threads)
    model, tokenizer = kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    loop = {"causal": causal, "masked": masked, "detect": detect}[way]
    loop(model, tokenizer, texts[:64])
    began = CLOCKS[clock]()
    found = loop(model, tokenizer, texts)
    return found, CLOCKS[clock]() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["causal", "masked", "detect"])
    parser.add_argument("model")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=int, default=0, help="pairs of each file")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--bf16", action="store_true", help="ours as with --precision bf16")
    asked = parser.parse_args()
    prepare("cpu", asked.threads)
    scorer = ways.scorer(open_model(asked.model), asked.way)
    seconds = {"theirs": [], "ours": []}
    with tempfile.TemporaryDirectory() as place:
        file, texts = chosen(asked.files, asked.most, place)
        for _ in range(asked.turns):  # in turn: a busy machine is busy for both
            with multiprocessing.get_context("spawn").Pool(1) as apart:
                plain, took = apart.apply(timed, (asked.way, asked.model, texts, asked.threads, asked.clock))
            seconds["theirs"].append(took)
            began = CLOCKS[asked.clock]()
            with torch.autocast("cpu", torch.bfloat16) if asked.bf16 else nullcontext():
                own = scored(scorer, file)
            seconds["ours"].append(CLOCKS[asked.clock]() - began)
    far = max(abs(a - b) for a, b in zip(plain, own, strict=True))
    pairs = list(zip(plain[::2], plain[1::2], own[::2], own[1::2], strict=True))
    same = sum((a > b) == (c > d) for a, b, c, d in pairs)
    best = {who: min(of) for who, of in seconds.items()}
    print(
        f"{Path(asked.model).name} {asked.way}: {len(pairs):,} pairs, {same:,} decided alike; furthest apart {far:.2g}"
    )
    print(f"theirs {best['theirs']:.2f} s, ours {best['ours']:.2f} s: {best['theirs'] / best['ours']:.2f} x")


def scored(scorer, file: str) -> list[float]:
    """As the evaluation does: in chunks of examples."""
    from ordsmed.measure.evaluation.evaluate import COST

    probe, held, cost, found = MinimalPairs(files=(file,)), [], 0, list[Record]()

    def free_memory() -> None:
        scores = iter(scorer.scores([item for example in held for item in example.items]))
        found.extend(probe.record(one, [next(scores) for _ in one.items]) for one in held)
        held.clear()

    for example in probe.examples(scorer):
        held.append(example)
        cost += sum(scorer.cost(item) for item in example.items)
        if cost >= COST:
            free_memory()
            cost = 0
    free_memory()
    return [
        record.scores[0] if score is None else score for record in found for score in record.scores
    ]  # None: equal sentences


if __name__ == "__main__":
    main()
