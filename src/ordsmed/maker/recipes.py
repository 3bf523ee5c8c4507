"""The recipes of a plan, as tables and as files that users may change and run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ordsmed.base import files, menu, run, settings
from ordsmed.corpus.folder import parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.maker.learning import Learning, Scope
from ordsmed.maker.networks import SMALLEST_STEP, Table
from ordsmed.maker.request import SEARCH, MakeRequest
from ordsmed.maker.runner import Stage
from ordsmed.maker.texts import InputTexts, TextSurvey

ABOVE = 1.5  # multiple of the steps expected to fit: a run with a deadline may train fewer, never more
BATCH_TOKENS, STEPS = ((SMALLEST_STEP, 2**19), 20_000)  # least and most tokens of a step; steps of a long run
PAIR_LENGTH, PAIR_TOKENS, PAIR_RATE = 128, 150, 0.2  # most per text; usual per pair; share of the usual rate
PATIENCE = 5  # validations (a quarter of the steps) without a lower loss, after which the run stops
MINED = 3  # wrong answers per question, found by BM25
WORDS_HELD_OUT = 20_000
HELD_OUT = 20  # if fewer documents would be held out, long ones are split
PART = (500, 8_000)  # least and most characters of such a part
HEADS = {
    "corpus": "Cleaned text, each document once, some of it held out",
    "tokenizer": "A tokenizer learned from that corpus",
    "data": "The corpus as token ids",
    "dense": "Vectors of texts, learned from pairs of the corpus; `ordsmed finetune` this file",
    "cross": "Scores of question and passage read together, to rerank; `ordsmed finetune` this file",
    "model": "The network and its training; change what you like, then `ordsmed pretrain` this file",
}


def recipes_of(
    request: MakeRequest, inputs: InputTexts, survey: TextSurvey, learning: Learning, scope: Scope, portion: float
) -> dict[str, Table]:
    out, tokenizer = Path(request.out), learning.tokenizer
    corpus = inputs.corpus or str(out / "corpus.toml")
    recipes = {} if inputs.corpus else {"corpus": _corpus(request, inputs, survey, portion)}
    if isinstance(tokenizer, dict):
        recipes["tokenizer"] = {"corpus": corpus, "tokenizer": tokenizer, "out": str(out / "tokenizer")}
        tokenizer = str(out / "tokenizer.toml")
    recipes["data"] = {"corpus": corpus, "tokenizer": tokenizer, "out": str(out / "data")}
    recipes["model"] = training_recipe(out, learning, scope)
    if request.purpose == SEARCH:
        recipes |= _of_search(out, learning, scope, held_out=not inputs.corpus or _is_held_out(Path(inputs.corpus)))
    return recipes


def recipe_stages(folder: Path) -> Iterator[Stage]:
    """Yield the stages up to token ids that have a recipe in the folder; each checks the inputs of its own folder."""

    def obtain(name: str, recipe: type[Corpus | TokenizerTraining | Encoding]) -> None:
        run.obtain(recipe, str(folder / f"{name}.toml"))

    for name, recipe in (("corpus", Corpus), ("tokenizer", TokenizerTraining), ("data", Encoding)):
        if (folder / f"{name}.toml").exists():
            yield Stage(name, partial(obtain, name, recipe), [folder / name])


def _is_held_out(corpus: Path) -> bool:
    return all(parts(corpus, split) for split in ("validation", "test"))


def _of_search(out: Path, learning: Learning, scope: Scope, *, held_out: bool) -> dict[str, Table]:
    """Return the recipes trained on pairs. Batches are as large as possible, because pairs in a batch are compared."""
    length = min(PAIR_LENGTH, learning.network.model.longest() // 2)
    batch = max(16, min(256, 2 ** int(math.log2(max(scope.unique / PAIR_TOKENS / 16, 1)))))
    dense = {"kind": "pairs", "train": str(out / "pairs/train.jsonl"), "length": length}
    cross = {"kind": "rerank", "train": str(out / "pairs/cross.jsonl"), "length": 2 * length, "mine": MINED}
    common = {"learning_rate": PAIR_RATE * learning.learning_rate, "warmup": 0.1, "features": str(out / "features")}
    if held_out:
        dense["dev"] = cross["dev"] = str(out / "pairs/dev.jsonl")
    return {  # the cross-encoder starts from the dense model
        "dense": {
            "init": str(out / "model"),
            "epochs": 20,
            "batch": batch,
            **common,
            "out": str(out / "dense"),
            "task": dense,
        },
        "cross": {
            "init": str(out / "dense"),
            "epochs": 5,
            "batch": 32,
            **common,
            "out": str(out / "cross"),
            "task": cross,
        },
    }


def _corpus(request: MakeRequest, inputs: InputTexts, survey: TextSurvey, portion: float) -> Table:
    held_out = min(0.05, max(0.005, WORDS_HELD_OUT / max(survey.words * portion, 1)))
    table: Table = {"source": list(inputs.sources), "clean": inputs.clean, "validation": float(f"{held_out:.2g}")}
    if request.purpose == SEARCH:
        table["test"] = table["validation"]
    if survey.documents * portion * held_out < HELD_OUT and not inputs.marked_up:
        table["longest"] = max(PART[0], min(PART[1], int(survey.characters * portion * held_out / HELD_OUT)))
    if portion < 1:
        table["portion"] = portion
    table["title"] = request.texts_title
    if language := request.language or survey.language:
        table["language"] = language
    if request.licence:
        table["licence"] = request.licence
    return {**table, "broken": "skip", "out": str(Path(request.out) / "corpus")}


def training_recipe(out: Path, learning: Learning, scope: Scope) -> Table:
    tokens, length = learning.network.tokens, learning.length
    batch = _batch(tokens, length)
    most = learning.passes * scope.unique  # tokens
    steps = max(10, math.ceil(min(tokens * ABOVE, most) / (batch * length)))
    phase = {"steps": steps, "length": length, "batch": batch, "learning_rate": learning.learning_rate, "warmup": 0.06}
    network = {} if "init" in learning.more else {"model": learning.network.table}
    learned = {**network, "objective": learning.objective, "optimizer": learning.family.optimizer, "phase": [phase]}
    saved = {"save": 0.1, "validate": 0.05, "keep": 2, "validation_rows": 512}
    if getattr(menu.load("objectives", learning.objective["kind"]), "COMPARABLE", True):
        saved["patience"] = PATIENCE
    return {"data": str(out / "data.toml"), **learning.more, **saved, "out": str(out / "model"), **learned}


def _batch(tokens: float, length: int) -> int:
    """Return the rows of a step: a power of two, small enough for many steps."""
    tokens_of_step = min(BATCH_TOKENS[1], max(BATCH_TOKENS[0], tokens / STEPS))
    return max(1, int(2 ** round(math.log2(tokens_of_step / length))))


def write(recipes: dict[str, Table], folder: Path) -> list[Path]:
    """Write the recipes with a comment on top; existing files are the user's and are not changed."""
    paths = [folder / f"{name}.toml" for name in recipes]
    for path in paths:
        if not path.exists():
            files.write_text(path, "\n".join([f"# {HEADS[path.stem]}", *settings.lines(recipes[path.stem]), ""]))
    return paths
