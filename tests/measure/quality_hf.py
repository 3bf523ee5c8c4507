"""What a user of transformers alone would train on the same words for the same FLOPs, and how good any folder is.

    python tests/measure/quality_hf.py train masked|causal CORPUS TOKENIZER OUT --flops 1.5e14
        [--width 256 --layers 4 --heads 4] [--length 512] [--batch 8] [--rate 5e-5] [--warmup 0] [--seed 0]
        [--modern] [--nanogpt] [--bf16] [--gpu] [--threads 2]
    python tests/measure/quality_hf.py score masked|causal CORPUS FOLDER... [--length 128]

`train` does what transformers' run_mlm.py (a BERT) and run_clm.py (a GPT-2) do of a model from scratch with nothing
said but its size: texts of CORPUS (a folder that `ordsmed corpus` made) one after another cut into rows of `--length`,
Trainer with its settings (AdamW, 5e-5, a line to 0, 8 rows a step, 15 % masked), TOKENIZER a Hugging Face folder.
`--nanogpt` has what nanoGPT's train.py trains with: betas 0.9 and 0.95, weight decay 0.1, a cosine to a tenth. FLOPs
are those of its products, backwards twice as many; it scores all places, so that all are counted.
`score` opens folders by transformers alone: the loss at 15 % masked places, the same of every folder with this
tokenizer, or bits a byte of whole rows; both of two halves of the validation documents. Needs transformers, accelerate.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    Trainer,
    TrainingArguments,
)

MASKED = 0.15
ROWS = 500  # of each half that masked places are scored in


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = reader.add_subparsers(dest="verb", required=True)
    train, score = verbs.add_parser("train"), verbs.add_parser("score")
    for verb in (train, score):
        verb.add_argument("kind", choices=("masked", "causal"))
        verb.add_argument("corpus", type=Path)
        verb.add_argument("--threads", type=int, default=2)
    train.add_argument("tokenizer")
    train.add_argument("out")
    train.add_argument("--flops", type=float, default=1.5e14)
    for name, usual in (("width", 256), ("layers", 4), ("heads", 4), ("length", 512), ("batch", 8), ("seed", 0)):
        train.add_argument(f"--{name}", type=int, default=usual)
    train.add_argument("--rate", type=float, default=5e-5)
    train.add_argument("--warmup", type=float, default=0.0, help="share of the steps")
    train.add_argument("--modern", action="store_true", help="a ModernBERT in place of the BERT")
    train.add_argument("--nanogpt", action="store_true", help="its optimizer and schedule, no dropout")
    train.add_argument("--bf16", action="store_true")
    train.add_argument("--gpu", action="store_true")
    score.add_argument("folders", nargs="+")
    score.add_argument("--length", type=int, default=128)
    given = reader.parse_args()
    if given.verb == "train" and (given.modern if given.kind == "causal" else given.nanogpt):
        reader.error("--modern goes with masked, --nanogpt with causal")
    torch.set_num_threads(given.threads)
    if given.verb == "train":
        trained(given)
        return
    for folder in given.folders:
        print(json.dumps({"folder": folder, **scores(given.kind, given.corpus, folder, given.length)}), flush=True)


def texts(corpus: Path, part: str) -> Iterator[str]:
    for path in sorted((corpus / part).glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line)["text"] for line in lines)


def flops_a_token(width: int, layers: int, length: int, vocabulary: int, masked: bool, modern: bool) -> float:
    """Of a training step: three times the forward one's products; a causal mask is computed whole, a local one too."""
    blocks = layers * ((8.5 if modern else 12) * width**2 + 2 * length * width)
    return 6.0 * (blocks + width * vocabulary + masked * width**2)


def trained(given: argparse.Namespace) -> None:
    torch.manual_seed(given.seed)  # weights are drawn before Trainer sets its own
    tokenizer, masked = AutoTokenizer.from_pretrained(given.tokenizer), given.kind == "masked"
    if masked:
        sizes = {"hidden_size": given.width, "num_hidden_layers": given.layers, "num_attention_heads": given.heads}
        sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": max(given.length, 512)}
        signs = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
        signs |= {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
        model: Any = (
            ModernBertForMaskedLM(ModernBertConfig(**sizes, **signs, intermediate_size=3 * given.width // 2))
            if given.modern
            else BertForMaskedLM(BertConfig(**sizes, intermediate_size=4 * given.width))
        )
    else:
        sizes = {"n_embd": given.width, "n_layer": given.layers, "n_head": given.heads, "vocab_size": len(tokenizer)}
        sizes |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0) if given.nanogpt else {}
        model = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=max(given.length, 1024)))
    ids: list[int] = []
    for text in texts(given.corpus, "train"):
        ids += tokenizer(text, return_special_tokens_mask=False, verbose=False)["input_ids"]
    rows = [{"input_ids": ids[at : at + given.length]} for at in range(0, len(ids) - given.length + 1, given.length)]
    a_token = flops_a_token(given.width, given.layers, given.length, len(tokenizer), masked, given.modern)
    steps = int(given.flops / (a_token * given.length * given.batch))
    schedule: dict[str, Any] = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}}
    nanogpt: dict[str, Any] = {"weight_decay": 0.1, "adam_beta2": 0.95, **schedule} if given.nanogpt else {}
    arguments = TrainingArguments(
        given.out,
        max_steps=steps,
        per_device_train_batch_size=given.batch,
        learning_rate=given.rate,
        seed=given.seed,
        warmup_steps=int(given.warmup * steps),
        bf16=given.bf16,
        use_cpu=not given.gpu,
        report_to=[],
        save_strategy="no",
        logging_steps=max(1, steps // 10),
        disable_tqdm=True,
        **nanogpt,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=masked, mlm_probability=MASKED)
    began = time.perf_counter()
    Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator).train()
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    told = {"steps": steps, "tokens": steps * given.length * given.batch, "seconds": time.perf_counter() - began}
    print(json.dumps({"out": given.out, **told, "passes": told["tokens"] / len(ids)}), flush=True)


def scores(kind: str, corpus: Path, folder: str, length: int) -> dict[str, float]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    opened = AutoModelForMaskedLM if kind == "masked" else AutoModelForCausalLM
    model = opened.from_pretrained(folder, dtype=torch.float32).eval()
    documents = list(texts(corpus, "validation"))
    of_part = masked_loss if kind == "masked" else bits_a_byte
    return {
        part: round(of_part(model, tokenizer, documents[first::2], length), 4)
        for first, part in enumerate(("first half", "second half"))
    }


def cut(tokenizer: Any, documents: list[str], length: int) -> Iterator[tuple[list[int], int]]:
    """Rows of so many tokens without special ones, and how many bytes of text each is."""
    for text in documents:
        found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids, offsets = found["input_ids"], found["offset_mapping"]
        for at in range(0, len(ids) - length + 1, length):
            end = offsets[at + length][0] if at + length < len(ids) else len(text)
            yield ids[at : at + length], len(text[offsets[at][0] : end].encode())


@torch.no_grad()
def masked_loss(model: Any, tokenizer: Any, documents: list[str], length: int) -> float:
    drawn, total, count = random.Random(1), 0.0, 0
    rows = [row for row, _ in cut(tokenizer, documents, length - 2)][:ROWS]
    for at in range(0, len(rows), 25):
        ids = torch.tensor([[tokenizer.cls_token_id, *row, tokenizer.sep_token_id] for row in rows[at : at + 25]])
        chosen = torch.zeros_like(ids, dtype=torch.bool)
        for place in chosen:
            place[drawn.sample(range(1, length - 1), round(MASKED * (length - 2)))] = True
        logits = model(input_ids=ids.masked_fill(chosen, tokenizer.mask_token_id)).logits[chosen]
        total, count = total + loss_of(logits, ids[chosen]), count + int(chosen.sum())
    return total / count


@torch.no_grad()
def bits_a_byte(model: Any, tokenizer: Any, documents: list[str], length: int) -> float:
    signs = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
    start = next(sign for sign in signs if sign is not None)
    rows, total = list(cut(tokenizer, documents, length - 1)), 0.0
    for at in range(0, len(rows), 25):
        ids = torch.tensor([[start, *row] for row, _ in rows[at : at + 25]])
        total += loss_of(model(input_ids=ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return total / math.log(2) / sum(size for _, size in rows)


def loss_of(logits: Tensor, wanted: Tensor) -> float:
    return float(torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum"))


if __name__ == "__main__":
    main()
