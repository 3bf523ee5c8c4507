"""Learning rates computed by the originals' functions, compared with those of the translated command lines.

rates.json names the originals' files, and has the learning rate of every step.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.dialects import called
from ordsmed.base import settings
from ordsmed.learn import masking
from ordsmed.learn.objectives import mlm_nsp
from ordsmed.learn.phases import Phase
from ordsmed.train.finetune.recipe import Finetuning

RATES = json.loads(Path(__file__).with_name("rates.json").read_text(encoding="utf-8"))
LEAST = {
    "megatron": ["pretrain_bert.py", "--train-data", "a.json", "--lr", "1e-3"],
    "fairseq": [
        "fairseq-train",
        "data",
        "--task=masked_lm",
        "--criterion=masked_lm",
        "--arch=roberta_base",
        "--optimizer=adam",
        "--batch-size=1",
        "--tokens-per-sample=8",
        "--lr=1e-3",
    ],
}
COURSES = [(code, words, rates) for code, table in RATES.items() for words, rates in table.get("courses", ())]


@pytest.mark.parametrize(("code", "words", "rates"), COURSES, ids=[words for _, words, _ in COURSES])
def test_rates_are_theirs(
    code: str, words: str, rates: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare every step (in the warmup the next one); where the original becomes negative or rises, ordsmed has 0."""
    monkeypatch.chdir(tmp_path)
    call = called(code, *LEAST[code], *words.split())
    phase = settings.decode(Phase, call.recipes["pretrain"]["phase"][0], "phase")
    ours, rise = [phase.rate_at(step) for step in range(len(rates))], int(phase.warmup)
    end = next(
        (step for step, (now, after) in enumerate(itertools.pairwise(rates)) if step > rise and now == 0 != after),
        len(rates),
    )
    rates = [*rates[:end], *[0.0] * (len(rates) - end)]
    assert phase.steps == len(rates)
    assert ours[rise:] == pytest.approx(rates[rise:], rel=1e-5, abs=1e-9)
    ahead = 0 if "fixed" in words else 1  # the original starts at a learning rate of 0
    both = max(min(rise, len(rates)) - ahead, 0)
    assert ours[:both] == pytest.approx(rates[ahead : ahead + both], rel=1e-5)
    assert any("the learning rate stays 0" in note for note in call.notes) is (end < len(rates))


@pytest.mark.parametrize(
    ("most", "counts"),
    [
        (None, [1, 2, 4, 8, 19, 20, 21, 45, 76, 77]),
        (20, [1, 2, 4, 8, 19, 20, 20, 20, 20, 20]),
        (76, [1, 2, 4, 8, 19, 20, 21, 45, 76, 76]),
        (80, [1, 2, 4, 8, 19, 20, 21, 45, 76, 77]),
        (1, [1] * 10),
    ],
)
def test_megatron_hides_as_many_words_as_theirs(most: int | None, counts: list[int]) -> None:
    """Compare with create_masked_lm_predictions (data_utils/datasets.py, abe36e2e5f) for pairs of these lengths."""
    words = [] if most is None else ["--max-preds-per-seq", str(most)]
    recipe = called("megatron", *LEAST["megatron"], *words).recipes["pretrain"]
    table: dict[str, Any] = {key: value for key, value in recipe["objective"].items() if key != "kind"}
    how = settings.decode(mlm_nsp.MlmNsp, table, "objective")
    lengths = np.array([5, 10, 30, 50, 127, 133, 140, 300, 510, 512])
    row = np.arange(512) < lengths[:, None]
    inner = row & (np.arange(512) < lengths[:, None] - 3)
    assert masking.amounts(inner, how.mask_prob, how.slots(512), of=row).tolist() == counts


STEPS = RATES["transformers"]["steps"]


@pytest.mark.parametrize(("examples", "rows", "world", "passes", "epochs", "warmup", "steps", "rise"), STEPS)
def test_transformers_counts_whole_steps_of_epochs(
    examples: int, rows: int, world: int, passes: int, epochs: float, warmup: float, steps: int, rise: int
) -> None:
    """The last step of an epoch is a full batch here and a smaller one in the original; both count it."""
    words = [
        "--do_train",
        "--train_file=t.json",
        "--model_name_or_path=b",
        f"--per_device_train_batch_size={rows}",
        f"--gradient_accumulation_steps={passes}",
        f"--num_train_epochs={epochs}",
        f"--warmup_ratio={warmup}",
    ]
    table = called("huggingface", "run_qa.py", *words, world=world).recipes["finetune"]
    recipe = settings.decode(Finetuning, {**table, "out": "o"}, "finetune")
    full = dataclasses.replace(recipe, examples=examples)
    assert (full.updates, full.phases[0].warmup) == (steps, rise)
    assert full.validates(full.updates) or epochs % 1
    bound = dataclasses.replace(full, steps=7, warmup=0.3)
    assert (bound.updates, bound.phases[0].warmup) == (7, 3.0)
