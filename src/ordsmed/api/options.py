"""Options and texts as Python gives them to a model, here or far away: by keywords, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.say import many
from ordsmed.use.embed import Form
from ordsmed.use.generation.options import SamplingOptions

Texts = list[str] | tuple[str, ...]


class OpeningOptions(TypedDict, total=False):
    """How models are opened."""

    step: int | None  # of this checkpoint, not the last
    device: str  # auto, cpu or cuda
    precision: str  # of products
    threads: int | None  # of the CPU


class EmbedOptions(TypedDict, total=False):
    """What may be asked of vectors."""

    of: Literal["words", "sentences", "tokens"]
    layers: str | int | Sequence[int]  # top, all, mean, or numbers: 0 the embeddings, -1 the last
    mix: str | Path  # a JSON file with the weights of all layers
    pieces: Literal["mean", "first", "last"]  # of a word
    pool: Literal["mean", "words", "first", "last", "tokens"]  # of a sentence; left out: as learned, else the mean
    prompt: Literal["query", "passage"]  # of a model that learned vectors: what is written before a text
    dtype: Literal["float32", "float16"]
    batch: int  # texts the network reads at once
    carry: bool  # an ELMo goes on from the text before
    cut: bool  # an ELMo's words are those of its tokenizer


class WritingOptions(TypedDict, total=False):
    """How texts are written."""

    tokens: int  # at most so many new ones; 40
    temperature: float  # 0: always the likeliest; 1
    best: int  # draw among so many of the likeliest; 0: all
    share: float  # draw among the likeliest that have this share together; 1
    typical: float  # draw among the most typical ones that have this share together; 1
    seed: int  # of the draws
    penalty: float  # what was there is less likely; 1: no
    stop: tuple[str, ...]  # a text ends before one of these
    samples: int  # texts a prompt; 1
    together: int  # of masked models: tokens that are decided in one pass; 1
    order: Literal["certain", "chance"]  # of the same: which of them
    max_new_tokens: int  # transformers' names of tokens, best, share, typical, penalty and samples
    top_k: int
    top_p: float
    typical_p: float
    repetition_penalty: float
    num_return_sequences: int
    start: bool  # of causal models: does the sign between documents stand before a prompt? True


def embed_form(how: EmbedOptions) -> Form:
    """The options of `embed`, checked."""
    layers = how.get("layers", "")
    if not isinstance(layers, str):
        layers = ",".join(map(str, [layers] if isinstance(layers, int) else layers))
    return Form(**{**how, "mix": str(how.get("mix", "")), "layers": layers})  # type: ignore[arg-type]


NAMES = {  # transformers' names of options -> ours
    "max_new_tokens": "tokens",
    "top_k": "best",
    "top_p": "share",
    "typical_p": "typical",
    "repetition_penalty": "penalty",
    "num_return_sequences": "samples",
}


def sampling_options(how: WritingOptions) -> SamplingOptions:
    """The options of `generate` and `stream`, by our names or by those of transformers."""
    known = [option.name for option in fields(SamplingOptions)]
    for name in how:
        if name not in (*known, *NAMES):
            raise RecipeError("generate", f"no option `{name}`", ", ".join(known), nearest(name, [*known, *NAMES]))
        if NAMES.get(name) in how:
            raise RecipeError("generate", f"`{name}` and `{NAMES[name]}` are one option", "one of them")
    return SamplingOptions(**{NAMES.get(name, name): value for name, value in how.items()})  # type: ignore[arg-type]


def texts_of(method: str, value: object) -> list[str]:
    """A text, or several, as a list."""
    texts: list[Any] = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if odd := [text for text in texts if not isinstance(text, str)]:
        raise RecipeError(method, f"found {type(odd[0]).__name__} {odd[0]!r:.40}", "a text, or a list of texts")
    return texts


def text_of(method: str, value: object) -> str:
    """The one text of what is asked for one alone."""
    texts = texts_of(method, value)
    if len(texts) != 1:
        raise RecipeError(method, f"found {many(len(texts), 'text')}", "one text", "call it for each")
    return texts[0]
