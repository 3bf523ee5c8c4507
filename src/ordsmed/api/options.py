"""Options of models as Python keywords, checked; for local and remote models."""

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
    step: int | None  # step of the checkpoint, instead of the last
    device: str  # auto, cpu or cuda
    precision: str  # of matrix products: fp32, bf16, fp16 or int8
    threads: int | None  # CPU threads


class EmbedOptions(TypedDict, total=False):
    of: Literal["words", "sentences", "tokens"]
    layers: str | int | Sequence[int]  # top, all, mean, or numbers: 0 for the embeddings, -1 for the last layer
    mix: str | Path  # a JSON file with the weights of all layers
    pieces: Literal["mean", "first", "last"]  # how the tokens of a word are combined
    pool: Literal["mean", "words", "first", "last", "tokens"]  # of a sentence; default: the learned pool, or the mean
    prompt: Literal["query", "passage"]  # the learned prompt to put before a text
    dtype: Literal["float32", "float16"]
    batch: int  # texts per batch
    carry: bool  # ELMo: continue the states of the previous text
    cut: bool  # ELMo: separate words by its tokenizer


class WritingOptions(TypedDict, total=False):
    tokens: int  # most new tokens; default 40
    temperature: float  # 0: always the likeliest token; default 1
    best: int  # top-k: draw among the k likeliest tokens; 0: all
    share: float  # top-p: draw among the likeliest tokens whose probabilities sum to this; default 1
    typical: float  # typical-p: draw among the most typical tokens whose probabilities sum to this; default 1
    seed: int  # of the random draws
    penalty: float  # repetition penalty of tokens that the text already has; 1: none
    stop: tuple[str, ...]  # a text ends before the first of these strings
    samples: int  # texts per prompt; default 1
    together: int  # masked models: tokens decided per pass; default 1
    order: Literal["certain", "chance"]  # masked models: which tokens are decided first
    max_new_tokens: int  # transformers' names of tokens, best, share, typical, penalty and samples: this and the next
    top_k: int
    top_p: float
    typical_p: float
    repetition_penalty: float
    num_return_sequences: int
    start: bool  # causal models: put the document separator before a prompt; default True


def embed_form(options: EmbedOptions) -> Form:
    layers = options.get("layers", "")
    if not isinstance(layers, str):
        layers = ",".join(map(str, [layers] if isinstance(layers, int) else layers))
    return Form(**{**options, "mix": str(options.get("mix", "")), "layers": layers})  # type: ignore[arg-type]


NAMES = {  # transformers' names of options -> names in SamplingOptions
    "max_new_tokens": "tokens",
    "top_k": "best",
    "top_p": "share",
    "typical_p": "typical",
    "repetition_penalty": "penalty",
    "num_return_sequences": "samples",
}


def sampling_options(options: WritingOptions) -> SamplingOptions:
    """Return the checked options of `generate` and `stream`, which may have transformers' names."""
    known = [option.name for option in fields(SamplingOptions)]
    for name in options:
        if name not in (*known, *NAMES):
            raise RecipeError("generate", f"no option `{name}`", ", ".join(known), nearest(name, [*known, *NAMES]))
        if NAMES.get(name) in options:
            raise RecipeError("generate", f"`{name}` and `{NAMES[name]}` are the same option", "one of them")
    return SamplingOptions(**{NAMES.get(name, name): value for name, value in options.items()})  # type: ignore[arg-type]


def texts_of(method: str, value: object) -> list[str]:
    """Return one or several texts as a list."""
    texts: list[Any] = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise RecipeError(method, f"found {type(wrong[0]).__name__} {wrong[0]!r:.40}", "a text, or a list of texts")
    return texts


def text_of(method: str, value: object) -> str:
    """Return the text given to a method that takes a single text, or raise an error."""
    texts = texts_of(method, value)
    if len(texts) != 1:
        raise RecipeError(method, f"found {many(len(texts), 'text')}", "one text", "call it once per text")
    return texts[0]
