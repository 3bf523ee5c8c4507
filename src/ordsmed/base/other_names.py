"""Names that users of other tools type, and the names to use here instead (other_names.toml)."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ordsmed.base.errors import same_name
from ordsmed.base.screen import command

# names of published models before they were moved to organizations
MOVED = {
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "bert-base-cased": "google-bert/bert-base-cased",
    "bert-large-uncased": "google-bert/bert-large-uncased",
    "bert-large-cased": "google-bert/bert-large-cased",
    "bert-base-multilingual-cased": "google-bert/bert-base-multilingual-cased",
    "roberta-base": "FacebookAI/roberta-base",
    "roberta-large": "FacebookAI/roberta-large",
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
}
PUBLISHED = re.compile(
    r"(distil|xlm-|camembert|albert|deberta|electra-(small|base|large)-|bert-.*cased)", re.IGNORECASE
)


def answers(table: str, word: str, groups: Iterable[str] = ()) -> Iterator[str]:
    """Yield what to use instead of `word`, from the rows of a table, or from its `groups` in this order."""
    rows: Mapping[str, Any] = _tables()[table]
    for group in (rows.get(group, {}) for group in groups) if groups else [rows]:
        yield from (answer for names, answer in group.items() if any(same_name(word, n) for n in names.split(", ")))


def looks_published(name: str) -> bool:
    """Return whether this is the name of a known model, or has the form `owner/name` and is not a folder."""
    name = name.partition("@")[0]
    parts = name.split("/")
    is_repository = len(parts) == 2 and all(re.fullmatch(r"[A-Za-z0-9][\w.-]*", part) for part in parts)
    return name in MOVED or (is_repository and not Path(parts[0]).exists())


def recipe_instead(verb: str, name: str) -> str:
    """Return a suggestion for a user who gave `name` as a recipe of `verb`; "" if there is none."""
    if name in MOVED or PUBLISHED.match(name):
        if verb not in ("pretrain", "finetune"):
            return ""
        trained = command(verb, "RECIPE" if verb == "pretrain" else "glue", f"init={name}")
        make = command("make", "TEXTS", "OUT", "--from", name)
        return f"a published model is given as `init`: `{trained}`, or on texts `{make}`"
    return next(answers("recipes", name, [verb] if verb else ["any", "pretrain", "finetune"]), "")


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parents[1] / "other_names.toml").read_text(encoding="utf-8"))
