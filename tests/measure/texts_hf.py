"""WikiText and LAMBADA as Megatron counts them, beside plain loops of transformers on the same weights.

PYTHONPATH=tests python tests/measure/texts_hf.py GPT2_FOLDER wiki.valid.tokens lambada.jsonl [--overlaps 32 0]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kit import megatron
from ordsmed.measure.evaluation.evaluate import ComputeOptions, evaluate
from ordsmed.measure.probes import cloze, wikitext


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("wikitext", type=Path)
    parser.add_argument("lambada", type=Path)
    parser.add_argument("--characters", type=int, default=0, help="of WikiText; 0: all")
    parser.add_argument("--overlaps", type=int, nargs="+", default=[32, 0])
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    theirs = AutoModelForCausalLM.from_pretrained(asked.model).eval(), AutoTokenizer.from_pretrained(asked.model)
    raw = asked.wikitext.read_text(encoding="utf-8")[: asked.characters or None]
    with tempfile.TemporaryDirectory() as folder:
        part, means = Path(folder) / "part", ComputeOptions(threads=asked.threads)
        part.write_text(raw, encoding="utf-8")
        for overlap, (batch, cached) in product(asked.overlaps, ((16, False), (1, True))):
            probe = wikitext.Wikitext(files=(str(part),), overlap=overlap, window=asked.window)
            [ours] = evaluate([asked.model], [probe], means=means, out=folder)
            wanted = megatron.perplexity(*theirs, raw, asked.window, overlap, batch, cached)
            far = max(abs(ours.finding.facts[key] / wanted[key] - 1) for key in ("perplexity", "adjusted_perplexity"))
            print(
                f"overlap {overlap}, their batch {batch}, cached {cached}: {wanted['tokens']:,} tokens, {far:.1e} apart"
            )
        [ours] = evaluate([asked.model], [cloze.Cloze(files=(str(asked.lambada),))], means=means, out=folder)
    texts = [json.loads(line)["text"] for line in asked.lambada.read_text(encoding="utf-8").splitlines()]
    same = sum(
        megatron.lambada(*theirs, text) == tuple(row[1:3]) for text, row in zip(texts, ours.records, strict=True)
    )
    print(f"LAMBADA: {same:,} of {len(texts):,} decided alike; {ours.finding.facts}")


if __name__ == "__main__":
    main()
