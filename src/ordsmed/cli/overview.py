"""The output of `ordsmed` and `ordsmed help`: first steps, and the verbs in groups."""

from __future__ import annotations

import sys

from ordsmed import __version__
from ordsmed.base.screen import columns, table
from ordsmed.cli import verb

TITLE = f"ordsmed {__version__}: from raw text to a language model that Hugging Face loads."
FIRST_STEPS = (
    ("ordsmed make TEXTS OUT", "make a model from your texts, in an hour or in --hours; --for chooses its purpose"),
    ("ordsmed quickstart", "train a small BERT on Python's documentation in a few minutes"),
    ("ordsmed recipes", "list the built-in recipes; with a name: print it, to start your own from"),
    ("ordsmed pretrain tiny/bert", "make a recipe's corpus, tokenizer, store and run; --dry-run: only check"),
    ("ordsmed help pretrain", "print the words, flags and settings of a verb"),
)


def first_steps() -> list[str]:
    rows = [(group, " · ".join(entry.name for entry in verbs)) for group, verbs in _grouped()]
    steps = table(FIRST_STEPS)
    if 0 < columns(sys.stdout) < max(map(len, steps)):  # put descriptions below the commands
        steps = [line for words, does in FIRST_STEPS for line in (f"  {words}", f"      {does}")]
    head = "Verbs (`ordsmed help` describes them, `ordsmed help VERB` prints flags and settings):"
    return [TITLE, "", "First steps:", *steps, "", head, *table(rows)]


def verbs_in_groups() -> list[str]:
    rows = [(entry.name, entry.headline) for entry in verb.every()]
    lines_of = dict(zip([name for name, _ in rows], table(rows), strict=True))
    lines = [TITLE]
    for group, verbs in _grouped():
        lines += ["", f"{group}:", *(lines_of[entry.name] for entry in verbs)]
    words = "`ordsmed help WORD` prints what a term of the field (EMA) is called here."
    return [*lines, "", f"`ordsmed help VERB` prints its flags and settings; {words}"]


def _grouped() -> list[tuple[str, list[verb.Verb]]]:
    verbs = verb.every()
    return [(group, [entry for entry in verbs if entry.group == group]) for group in verb.GROUPS]
