"""What one sees who types `ordsmed`, or `ordsmed help`: first steps, and the verbs in their groups."""

from __future__ import annotations

import sys

from ordsmed import __version__
from ordsmed.base.screen import columns, table
from ordsmed.cli import verb

TITLE = f"ordsmed {__version__}: from raw text to a language model that Hugging Face loads."
FIRST_STEPS = (
    ("ordsmed make TEXTS OUT", "a model from your texts, in an hour; --hours: in another time; --for: what it is for"),
    ("ordsmed quickstart", "a small BERT on Python's documentation, in a few minutes"),
    ("ordsmed recipes", "the built-in recipes; with a name: its text, to begin your own with"),
    ("ordsmed pretrain tiny/bert", "a recipe's corpus, tokenizer, store and run; --dry-run: only tell"),
    ("ordsmed help pretrain", "the words, flags and settings of a verb"),
)


def first_steps() -> list[str]:
    """How one begins, and the verbs by name."""
    rows = [(group, " · ".join(entry.name for entry in verbs)) for group, verbs in _grouped()]
    steps = table(FIRST_STEPS)
    if 0 < columns(sys.stdout) < max(map(len, steps)):  # what a command does stands below it
        steps = [line for words, does in FIRST_STEPS for line in (f"  {words}", f"      {does}")]
    head = "Verbs (`ordsmed help` tells what each does, `ordsmed help VERB` its flags and settings):"
    return [TITLE, "", "First steps:", *steps, "", head, *table(rows)]


def verbs_in_groups() -> list[str]:
    rows = [(entry.name, entry.headline) for entry in verb.every()]
    lines_of = dict(zip([name for name, _ in rows], table(rows), strict=True))
    lines = [TITLE]
    for group, verbs in _grouped():
        lines += ["", f"{group}:", *(lines_of[entry.name] for entry in verbs)]
    last = (
        "`ordsmed help VERB` prints its flags and settings; `ordsmed help WORD` what a word of the field (EMA) is here."
    )
    return [*lines, "", last]


def _grouped() -> list[tuple[str, list[verb.Verb]]]:
    verbs = verb.every()
    return [(group, [entry for entry in verbs if entry.group == group]) for group in verb.GROUPS]
