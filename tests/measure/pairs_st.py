"""Learning from pairs beside sentence-transformers' trainer: the same weights, batches, loss and optimizer, in turn.

    python tests/measure/pairs_st.py SQUAD.json --vocabulary bert-base-uncased-vocab.txt --size mini --steps 20

Pairs are questions and the contexts that answer them. After each step of SentenceTransformerTrainer comes ours on the
same pairs. Theirs is timed twice: the step alone, and with the batch's texts becoming tokens, which ours are before.
Losses are compared where `--dropout 0` makes them comparable.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import TrainerCallback

from ordsmed.base import run
from ordsmed.base.ranks import prepare
from ordsmed.learn.embedding.inputs import RecordRows
from ordsmed.train import loop
from ordsmed.train.finetune.examples import TaskData
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.job import Job
from ordsmed.weights.formats.sentence_transformers import SentenceTransformers
from ordsmed.weights.trained_model import Trained

WARM = 3
RECIPE = """
tokenizer = "{vocabulary}"
steps = {steps}
batch = {batch}
learning_rate = {rate}
warmup = 0
features = ""
schedule.kind = "constant"
optimizer = {{ kind = "adamw", decay = 0.01, betas = [0.9, 0.999], epsilon = 1e-6 }}
layout = {{ device = "cpu", threads = {threads}, precision = "fp32", micro = {micro} }}
[model]
kind = "bert"
{model}
dropout = {dropout}
attention_dropout = {dropout}
[task]
kind = "pairs"
length = {length}
train = "{train}"
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--vocabulary", type=Path, required=True)
    options.add_argument("--size", default="mini")
    options.add_argument("--length", type=int, default=256)
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--micro", type=int, default=0, help="ours in such parts; 0: in one, as theirs")
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--rate", type=float, default=3e-4)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--dropout", type=float, default=0.1)
    options.add_argument("--cpu-time", action="store_true", help="count the processor's time: on a busy machine")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), asked), indent=1))


def measured(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    pairs = squad_pairs(asked.file)
    lines = "".join(json.dumps({"anchor": a, "positive": b}) + "\n" for a, b in pairs)
    (folder / "train.jsonl").write_text(lines)
    text = RECIPE.format(
        **{**vars(asked), "micro": asked.micro or asked.batch},
        train=folder / "train.jsonl",
        model=f'size = "{asked.size}"',
    )
    job = job_of(folder, text)
    theirs = their_model(job, folder / "st")
    torch.manual_seed(0)
    clock = time.process_time if asked.cpu_time else time.perf_counter
    beside = Beside(job, clock)
    train_theirs(theirs, pairs, job, asked, beside, folder)
    ours, alone, whole = (np.array(times[WARM:]) for times in (beside.ours, beside.alone, beside.whole))
    facts: dict[str, Any] = {
        "ours_seconds": statistics.median(ours),
        "theirs_seconds": statistics.median(alone),
        "with_tokens": statistics.median(whole),
        "ratio": statistics.median(alone / ours),
        "ratio_with_tokens": statistics.median(whole / ours),
        "steps": len(ours),
        "clock": clock.__name__,
    }
    if not asked.dropout:
        facts["losses"] = list(zip(beside.our_losses, beside.their_losses, strict=True))
        facts["difference_of_ten"] = float(np.abs(np.diff(facts["losses"][:10])).max())
    return facts


def squad_pairs(path: Path) -> list[tuple[str, str]]:
    """Each context once, with its first question."""
    paragraphs = [p for article in json.loads(path.read_text())["data"] for p in article["paragraphs"] if p["qas"]]
    return [(p["qas"][0]["question"].strip(), p["context"].strip()) for p in paragraphs]


def job_of(folder: Path, text: str) -> Job:
    (folder / "pairs.toml").write_text(text)
    recipe, _ = run.load(Finetuning, str(folder / "pairs.toml"), [])
    ranks = prepare("cpu", recipe.layout.threads)
    return FinetuningPlan.of(recipe, ranks).completed(make=True).build()


def their_model(job: Job, folder: Path) -> SentenceTransformer:
    """The same weights as theirs."""
    folder.mkdir()
    settings = job.objective.model_settings
    assert isinstance(job.data, TaskData)
    trained = Trained(job.objective, job.data.tokenizer, settings, folder, learned=job.data.task)
    SentenceTransformers().write(trained, folder)
    return SentenceTransformer(str(folder), device="cpu")


class Beside(TrainerCallback):
    """Our step after each of theirs, on the same pairs; the time of both."""

    def __init__(self, job: Job, clock: Any) -> None:
        self.job, self.clock = job, clock
        self.ready = loop.load(job.rows(0), job.share(0), 0, job.phases[0].steps, workers=0, device=job.ranks.device)
        self.ours: list[float] = []
        self.alone: list[float] = []
        self.whole: list[float] = []
        self.our_losses: list[float] = []
        self.their_losses: list[float] = []
        self.rested = self.began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **how: Any) -> None:
        self.rested = self.clock()

    def on_step_begin(self, args: Any, state: Any, control: Any, **how: Any) -> None:
        self.began = self.clock()

    def on_step_end(self, args: Any, state: Any, control: Any, **how: Any) -> None:
        now, step, job = self.clock(), len(self.ours), self.job
        self.alone.append(now - self.began)
        self.whole.append(now - self.rested)
        began = self.clock()
        seen, _, _ = loop.train_step(job, next(self.ready), job.phases[0].rate_at(step), 0, step, step=step + 1)
        self.ours.append(self.clock() - began)
        self.our_losses.append(float(seen["pairs"]))
        self.rested = self.clock()


def train_theirs(
    model: SentenceTransformer,
    pairs: list[tuple[str, str]],
    job: Job,
    asked: argparse.Namespace,
    beside: Beside,
    folder: Path,
) -> None:
    """Their trainer, on pairs in the order in which ours reads them."""
    rows = job.rows(0)
    assert isinstance(rows, RecordRows)
    order = rows._chosen(np.arange(asked.steps * asked.batch))
    data = Dataset.from_dict({"anchor": [pairs[n][0] for n in order], "positive": [pairs[n][1] for n in order]})
    loss = MultipleNegativesRankingLoss(model)
    forward = loss.forward

    def told(*given: Any, **how: Any) -> torch.Tensor:
        value = forward(*given, **how)
        beside.their_losses.append(float(value.detach()))
        return value

    loss.forward = told
    how = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=asked.batch,
        max_steps=asked.steps,
        learning_rate=asked.rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.01,
        adam_epsilon=1e-6,
        max_grad_norm=1.0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = InOrder(model=model, args=how, train_dataset=data, loss=loss, callbacks=[beside])
    trainer.train()


class InOrder(SentenceTransformerTrainer):
    """Their trainer without a shuffle."""

    def get_batch_sampler(self, dataset: Any, batch_size: int, drop_last: bool, **how: Any) -> Any:
        return torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(dataset), batch_size, drop_last)


if __name__ == "__main__":
    main()
