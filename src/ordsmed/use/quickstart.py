"""Quickstart: the whole way once, on text that every machine has, told as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ordsmed.base.run import Run
from ordsmed.base.say import duration, say
from ordsmed.base.screen import command, table
from ordsmed.learn.score.metrics import below
from ordsmed.use.fill import fill
from ordsmed.weights.trained import opened

EXAMPLES = (
    "return a [MASK] of the object.",
    "if the file does [MASK] exist, an error is raised.",
    "the [MASK] is called with two arguments.",
    "returns true if the two values are [MASK].",
)


def quickstart(pretrain: Callable[[str], Path]) -> None:
    """Corpus, tokenizer, encoding, pretraining of a small BERT; its guesses; and what to try next."""
    began = time.time()
    say("quickstart: corpus -> tokenizer -> encode -> pretrain, on the documentation of this Python")
    folder = pretrain("quickstart")
    facts = Run(folder).status
    print(f"\nvalidation loss at masked places: {facts['validation']:.4f}")
    print(f"guessing by frequency: {facts['unigram']:.4f}")
    print(f"the model is {below(facts['validation'], facts['unigram']):.1%} below guessing\n")
    model = opened(folder, device="cpu")
    for text in EXAMPLES:
        print("\n".join(fill(model, text, 4).lines))
    print(f"\npicture of the loss: {folder / 'loss.svg'}")
    print(f"all of it took {duration(time.time() - began)}; try next:")
    for line in table(
        [
            (f'{command("fill", folder)} "the default [MASK] is used."', "# ask the model"),
            (command("export", folder, "my-bert"), "# a folder for Hugging Face's transformers"),
            (command("show", folder), "# how the run stands"),
            ("ordsmed pretrain tiny/gpt2", "# the same with a GPT-2"),
            ("ordsmed recipes", "# all built-in recipes"),
        ]
    ):
        print(line)
