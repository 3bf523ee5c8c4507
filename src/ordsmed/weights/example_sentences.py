"""Held-out sentences of a run's data, shown as examples on the model card and in reports."""

from __future__ import annotations

from collections.abc import Iterator

from ordsmed.base.errors import OrdsmedError
from ordsmed.data.encode import Encoded
from ordsmed.learn.task import Task
from ordsmed.learn.usage import MASKED, PROMPT, TEXT
from ordsmed.weights.origin import Origin, sources, standing
from ordsmed.weights.trained_model import Trained

WORDS = range(6, 21)  # allowed in a sentence
MASK = "[MASK]"


def sentences(origin: Origin, trained: Trained, count: int) -> Iterator[dict[str, str]]:
    """Yield up to `count` sentences from across the validation text: `text` has a word masked, `right` is that word.

    For a model that generates text, `text` is the first half of a sentence and `right` the second.
    """
    with origin.at_home() as here:
        store = Encoded(standing(sources(here.recipe())[0])).validation
        if store is None:
            return
        total = len(store.lengths)
        for part in range(count):
            for number in range(part * total // count, (part + 1) * total // count):
                start = store.starts[number]
                words = trained.tokenizer.decode(store.tokens[start : start + store.lengths[number]]).split()
                if len(words) in WORDS and (sentence := _with_gap(words, trained)):
                    yield sentence
                    break


def _with_gap(words: list[str], trained: Trained) -> dict[str, str] | None:
    """Mask a word in the middle that is a single token. For a model that generates text, split it into halves."""
    if trained.continues:
        half = len(words) // 2
        return {"text": " ".join(words[:half]), "right": " ".join(words[half:])}
    middle = sorted(range(1, len(words) - 1), key=lambda at: abs(at - len(words) // 2))
    for at in middle:
        if len(words[at]) > 2 and words[at].isalpha() and len(trained.tokenizer.encode(words[at])) == 1:
            return {"text": " ".join([*words[:at], MASK, *words[at + 1 :]]), "right": words[at]}
    return None


def examples(trained: Trained) -> dict[str, str]:
    """Return texts of the model's data for the code on its card, by the placeholder texts they replace.

    They are validation sentences of a pretraining, or dev examples of a fine-tuning; empty if those are missing.
    """
    try:
        if isinstance(trained.objective, Task):
            return _task_examples(trained)
        return _of_pretraining(trained) if trained.recipe else {}
    except (OrdsmedError, OSError):
        return {}


def _of_pretraining(trained: Trained) -> dict[str, str]:
    rows = list(sentences(Origin.of(trained.folder), trained, 1))
    if not rows:
        return {}
    row = rows[0]
    if trained.continues:
        return {PROMPT: row["text"], TEXT: f"{row['text']} {row['right']}"}
    tokenizer = trained.tokenizer
    mask = tokenizer.piece(tokenizer.mask) if tokenizer.mask is not None else MASK
    whole = row["text"].replace(MASK, row["right"])
    begun = " ".join(whole.split()[:3])
    return {MASKED.format(mask=mask): row["text"].replace(MASK, mask), TEXT: whole, PROMPT: begun}


def _task_examples(trained: Trained) -> dict[str, str]:
    learned = trained.learned
    if not hasattr(learned, "card_examples") or not (paths := learned.paths("dev")):
        return {}
    with Origin.of(trained.folder).at_home():
        texts: dict[str, str] = learned.card_examples(learned.records(paths))
        return texts
