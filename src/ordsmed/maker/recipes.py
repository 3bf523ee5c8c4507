"""The recipes of a plan: tables, and files that anybody may change and run."""

from __future__ import annotations

import math
from pathlib import Path

from ordsmed.base import files, settings
from ordsmed.maker.learning import Learning, Scope
from ordsmed.maker.networks import Table
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.texts import InputTexts, TextSurvey

ABOVE = 1.5  # times the steps that are expected to fit: a run with a deadline may make fewer, never more
BATCH_TOKENS, STEPS = (2**10, 2**19), 20_000  # of a step, at least and at most: of a long training a part of all
WORDS_HELD_OUT = 20_000
HELD_OUT = 20  # documents: where fewer would be held out, long ones are cut, so that it comes from all over them
PART = (500, 8_000)  # characters of such a part, at least and at most
HEADS = {
    "corpus": "Cleaned text, each document once, some of it held out",
    "tokenizer": "A tokenizer learned from that corpus",
    "data": "The corpus as token ids",
    "model": "The network and its training; change what you like, then `ordsmed pretrain` this file",
}


def recipes_of(
    request: MakeRequest, inputs: InputTexts, survey: TextSurvey, learning: Learning, scope: Scope, portion: float
) -> dict[str, Table]:
    """The recipes by which it is made, by the names of their files."""
    out, tokenizer = Path(request.out), learning.tokenizer
    corpus = inputs.corpus or str(out / "corpus.toml")
    recipes = {} if inputs.corpus else {"corpus": _corpus(out, inputs, survey, portion)}
    if isinstance(tokenizer, dict):
        recipes["tokenizer"] = {"corpus": corpus, "tokenizer": tokenizer, "out": str(out / "tokenizer")}
        tokenizer = str(out / "tokenizer.toml")
    recipes["data"] = {"corpus": corpus, "tokenizer": tokenizer, "out": str(out / "data")}
    recipes["model"] = _model(out, learning, scope)
    return recipes


def _corpus(out: Path, inputs: InputTexts, survey: TextSurvey, portion: float) -> Table:
    held_out = min(0.05, max(0.005, WORDS_HELD_OUT / max(survey.words * portion, 1)))
    table: Table = {"source": list(inputs.sources), "clean": inputs.clean, "validation": float(f"{held_out:.2g}")}
    if survey.documents * portion * held_out < HELD_OUT and not inputs.marked_up:
        table["longest"] = max(PART[0], min(PART[1], int(survey.characters * portion * held_out / HELD_OUT)))
    if portion < 1:
        table["portion"] = portion
    table["title"] = out.resolve().name
    if survey.language:
        table["language"] = survey.language
    return {**table, "broken": "skip", "out": str(out / "corpus")}


def _model(out: Path, learning: Learning, scope: Scope) -> Table:
    tokens, length = learning.rung.tokens, learning.length
    batch = _batch(tokens, length)
    most = learning.family.passes * scope.unique  # tokens
    steps = max(10, math.ceil(min(tokens * ABOVE, most) / (batch * length)))
    phase = {"steps": steps, "length": length, "batch": batch, "rate": learning.rate, "warmup": 0.06}
    network = {} if "init" in learning.more else {"model": learning.rung.table}
    learned = {**network, "objective": learning.objective, "optimizer": learning.family.optimizer, "phase": [phase]}
    saved = {"save": 0.1, "validate": 0.1, "keep": 2, "validation_rows": 512}
    return {"data": str(out / "data.toml"), **learning.more, **saved, "out": str(out / "model"), **learned}


def _batch(tokens: float, length: int) -> int:
    """Rows of a step: a power of two, small enough for many steps."""
    tokens_of_step = min(BATCH_TOKENS[1], max(BATCH_TOKENS[0], tokens / STEPS))
    return max(1, int(2 ** round(math.log2(tokens_of_step / length))))


def write(recipes: dict[str, Table], folder: Path) -> list[Path]:
    """The recipes as files, with what they are for; what is there already is the user's and stays."""
    paths = [folder / f"{name}.toml" for name in recipes]
    for path in paths:
        if not path.exists():
            files.write_text(path, "\n".join([f"# {HEADS[path.stem]}", *settings.lines(recipes[path.stem]), ""]))
    return paths
