"""Tokens a second of `generate` beside transformers', on the same weights with the same settings; texts compared.

python tests/measure/generate_hf.py [--threads N] [--tokens N] [--vocabulary N] [--rounds N] [--clock cpu]

A GPT-2 of BERT-mini's shape (256 wide, 4 layers, 4 heads) with weights drawn from a seed; prompts of four to fifteen
words. Rounds take turns, the best of each counts; `--clock cpu` counts this process's time, where others work too.
Greedy texts must be equal, of a batch as well.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from ordsmed.learn.objectives import clm
from ordsmed.nn.models import gpt2
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.generate import generate_all
from ordsmed.use.generation.network import writing
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights.formats.huggingface import HuggingFace
from ordsmed.weights.trained_model import Trained

WAYS = {
    "greedy": {"do_sample": False},
    "top-k 40": {"do_sample": True, "top_k": 40},
    "top-p 0.9": {"do_sample": True, "top_p": 0.9, "top_k": 0},
}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
OURS = {"greedy": {"temperature": 0.0}, "top-k 40": {"best": 40}, "top-p 0.9": {"share": 0.9}}


def made(folder: Path, words: int) -> Trained:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>", *(f"w{n}" for n in range(words - 6))]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    tokenizer, settings = Tokenizer.load(folder / "vocab.txt"), gpt2.Gpt2(width=256, layers=4, heads=4)
    torch.manual_seed(0)
    learned = clm.Clm()
    objective = learned.build(settings, tokenizer).eval()
    with torch.no_grad():
        for weight in objective.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
        objective.model.words.weight[:6] -= 2.0  # texts that go on: no end sign is likely
    return Trained(objective, tokenizer, settings, folder, learned=learned)


def best_of(rounds: int, clock: str, *acts: Callable[[], Any]) -> tuple[list[float], list[Any]]:
    """The shortest time of each, taking turns."""
    least, last = [float("inf")] * len(acts), [None] * len(acts)
    for _ in range(rounds):
        for number, act in enumerate(acts):
            began = CLOCKS[clock]()
            last[number] = act()
            least[number] = min(least[number], CLOCKS[clock]() - began)
    return least, last


def texts_of(*given: Any, **how: Any) -> list[Any]:
    return list(generate_all(*given, **how))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, usual in (("threads", 1), ("tokens", 100), ("vocabulary", 30_522), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    transformers.logging.set_verbosity_error()
    draw = random.Random(1)
    prompts = [" ".join(f"w{draw.randrange(20_000)}" for _ in range(draw.randint(4, 15))) for _ in range(16)]
    with tempfile.TemporaryDirectory() as name:
        trained = made(Path(name), asked.vocabulary)
        HuggingFace().write(trained, Path(name))
        theirs = transformers.AutoModelForCausalLM.from_pretrained(name).eval()
        end, tokenizer, network = trained.tokenizer.end, trained.tokenizer, writing(trained)
        for batch in (1, 16):
            ids = [[end, *tokenizer.encode(prompt)] for prompt in prompts[:batch]]
            most = max(map(len, ids))
            tokens = torch.tensor([[0] * (most - len(row)) + row for row in ids])
            kept = torch.tensor([[0] * (most - len(row)) + [1] * len(row) for row in ids])
            for way, settings in WAYS.items():
                how = SamplingOptions(tokens=asked.tokens, **OURS[way])
                common = {"max_new_tokens": asked.tokens, "pad_token_id": 0, "eos_token_id": end}
                with torch.inference_mode():
                    seconds, texts = best_of(
                        asked.rounds,
                        asked.clock,
                        partial(texts_of, network, prompts[:batch], how, batch=batch),
                        partial(theirs.generate, tokens, attention_mask=kept, **common, **settings),
                    )
                counts = [
                    sum(one.tokens for one in texts[0]),
                    int(((texts[1][:, most:] != 0) & (texts[1][:, most:] != end)).sum()),
                ]
                ours, hf = (count / time for count, time in zip(counts, seconds, strict=True))
                same = ""
                if way == "greedy":
                    rows = [row[most:] for row in texts[1].tolist()]
                    there = [tokenizer.decode([n for n in row if n not in (0, end)]) for row in rows]
                    equal = sum(a.continuation.strip() == b.strip() for a, b in zip(texts[0], there, strict=True))
                    same = f"; {equal} of {batch} texts equal"
                print(
                    f"batch {batch:2} {way:10} {ours:8,.0f} tokens/s, transformers {hf:8,.0f}: {ours / hf:.2f} x{same}"
                )


main()
