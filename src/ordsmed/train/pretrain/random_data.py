"""Data for the validation suite: stores and texts drawn from seeds, jobs of recipes, and their first steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ordsmed.base.run import Run
from ordsmed.data.lexicon import LexiconWriter
from ordsmed.data.store import StoreWriter
from ordsmed.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ordsmed.base.ranks import Ranks
    from ordsmed.train.job import Job
    from ordsmed.train.pretrain.recipe import Pretraining

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
PAD_SECOND = ["[UNK]", "[PAD]", *SPECIAL[2:]]  # padding has id 1, as RoBERTa requires
WORDS = 120


def make_store(folder: Path, seed: int = 0, documents: int = 60, specials: Sequence[str] = SPECIAL) -> Path:
    """Write a store whose words mostly have a fixed next word, so that a model can learn something."""
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*specials, *(f"w{n}" for n in range(WORDS))]) + "\n")
    tokenizer = Tokenizer.load(vocabulary)
    tokenizer.save(folder / "tokenizer")
    chance = np.random.default_rng(seed)
    follower = chance.permutation(WORDS)
    for split, count in (("train", documents), ("validation", 8)):
        with StoreWriter(folder / split, tokenizer.vocabulary) as writer:
            for _ in range(count):
                word, text = int(chance.integers(WORDS)), []
                for _ in range(int(chance.integers(5, 120))):
                    text.append(word + len(SPECIAL))
                    word = int(follower[word]) if chance.random() < 0.8 else int(chance.integers(WORDS))
                writer.add([text[at : at + 9] for at in range(0, len(text), 9)])  # sentences of nine words
    counts = {"documents": 1, "tokens": 1}
    facts = {"vocabulary": tokenizer.vocabulary, "train": counts, "validation": counts}
    Run(folder).set(verb="encode", state="done", fingerprint=f"seed {seed}", tokenizer=tokenizer.fingerprint, **facts)
    return folder


def make_words(folder: Path, seed: int = 0, documents: int = 60) -> Path:
    """Write such a store for words of one to nine characters, some of which are not in the vocabulary."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(seed)
    spelled = list({"".join(chance.choice(list("abcdeæø"), chance.integers(1, 10))) for _ in range(3 * WORDS)})
    spelled = sorted(spelled)[: WORDS + 30]
    chance.shuffle(spelled)
    known, strangers = ["<S>", "</S>", "<UNK>", *spelled[:WORDS]], spelled[WORDS:]
    (folder / "vocab.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    tokenizer.save(folder / "tokenizer")
    follower = chance.permutation(len(spelled))
    with LexiconWriter(folder, known, 2) as lexicon:
        numbers = lexicon.number(np.arange(len(known) + len(strangers)), strangers)
        for split, count in (("train", documents), ("validation", 8)):
            with StoreWriter(folder / split, len(known), 2) as writer:
                for _ in range(count):
                    word, text = int(chance.integers(len(spelled))), []
                    for _ in range(int(chance.integers(5, 120))):
                        text.append(int(numbers[word + 3]))
                        word = int(follower[word]) if chance.random() < 0.8 else int(chance.integers(len(spelled)))
                    writer.add([text[at : at + 9] for at in range(0, len(text), 9)])
    counts = {"documents": 1, "tokens": 1}
    facts = {"vocabulary": len(known), "train": counts, "validation": counts}
    Run(folder).set(verb="encode", state="done", fingerprint=f"words {seed}", tokenizer=tokenizer.fingerprint, **facts)
    return folder


def job_of(path: Path, *overrides: str, device: str = "cpu") -> Job:
    from ordsmed.base.ranks import prepare
    from ordsmed.train.pretrain.recipe import Pretraining
    from ordsmed.train.request import read

    return build(read(Pretraining, str(path), overrides), prepare(device, 1))


def build(recipe: Pretraining, ranks: Ranks) -> Job:
    """Return the job of a pretraining recipe, and make missing data.

    The precision is fp32 if the recipe names none, since its results are compared with known numbers.
    """
    from ordsmed.train.pretrain.plan import PretrainingPlan

    recipe = replace(recipe, layout=recipe.layout.with_precision("fp32"))
    return PretrainingPlan.of(recipe, ranks).completed(make=True).build()


def learned(job: Job, steps: int = 10, *, first: int = 0, rate: float | None = 1e-3) -> list[tuple[float, float]]:
    """Return the loss over all ranks and the gradient norm of some steps of the first phase.

    If `rate` is None, use the phase's learning rate.
    """
    import torch

    from ordsmed.data.loader import load
    from ordsmed.train import loop

    losses_and_norms, phase = list[tuple[float, float]](), job.phases[0]
    if not first:
        job.carry(0)
    ready = load(job.rows(0), job.share(0), first, first + steps, workers=0, device=job.ranks.device)
    for inner, batches in enumerate(ready, first):
        sums, norm, trouble = loop.train_step(job, batches, phase.rate_at(inner) if rate is None else rate, 0, inner)
        assert not trouble
        losses = job.ranks.total(torch.stack(list(sums.values())).double())
        losses_and_norms.append((float(losses.sum()), float(norm)))
    return losses_and_norms


def synthetic_text(documents: int, seed: int = 7) -> str:
    """Return documents of short sentences from a small grammar, determined by the seed."""
    import random

    chance = random.Random(seed)
    subjects, verbs = (
        ["a red fox", "the old smith", "my sister", " ".join(("one", "grey", "heron"))],
        ["sees", "mends", "carries", "forgets"],
    )
    things = ["the iron gate", "a small boat", "two copper kettles", "the long road", "a bell"]

    def sentence() -> str:
        return f"{chance.choice(subjects)} {chance.choice(verbs)} {chance.choice(things)}."

    documents_of = (" ".join(sentence().capitalize() for _ in range(chance.randint(3, 9))) for _ in range(documents))
    return "\n\n".join(documents_of) + "\n"
