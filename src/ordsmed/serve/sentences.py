"""Vectors of texts for the protocols, and truncation of long texts."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ordsmed.base.errors import OrdsmedError
from ordsmed.learn.task import Embedding, LateInteraction, reader
from ordsmed.serve.call import ServedCall
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import Refusal
from ordsmed.use.embed import Form, reader_of
from ordsmed.use.readers import blank_texts

Vectors = NDArray[np.float32]
PROMPTS = {None: "", "query": "query", "passage": "passage", "document": "passage"}  # names in requests -> prompts


class Truncation(Struct, forbid_unknown_fields=True, kw_only=True):
    """Parameters of a request: truncation of long texts, and the prompt before each text."""

    truncate: bool | None = None  # None: the default of the path
    truncation_direction: Literal["Left", "Right", "left", "right"] = "Right"
    prompt_name: Literal["query", "passage", "document"] | None = None

    @property
    def left(self) -> bool:
        return self.truncation_direction.lower() == "left"

    @property
    def prompt(self) -> str:
        return PROMPTS[self.prompt_name]


async def sentence_vectors(
    call: ServedCall,
    served: ServedModel,
    texts: Sequence[str],
    *,
    unit: bool,
    dimensions: int | None = None,
    truncation: Truncation | None = None,
) -> Vectors:
    """Return a vector for each text [N, D].

    Args:
        unit: scale the vectors to length 1.
        dimensions: keep only the first ones, before scaling.
        truncation: truncation and prompt.
    """
    truncation = truncation or Truncation()
    width = served.model.trained.settings.width * (2 if served.model.trained.settings.capabilities.state else 1)
    if dimensions is not None and not call.service.pool and is_sparse(served):
        problem = f"found {dimensions:,} with a model of sparse vectors, which have a number for each token"
        raise Refusal("invalid", problem, "a request without it", place="dimensions")
    if dimensions is not None and not 1 <= dimensions <= width:
        raise Refusal("invalid", f"found {dimensions:,}", f"1 to {width:,}, the model's width", place="dimensions")
    refuse_blank(served, texts)
    call.check_size([(text,) for text in texts])
    items = [(text,) for text in fit_texts(call, served, texts, truncation)]
    prompt = {"prompt": truncation.prompt} if truncation.prompt else {}
    options = {"of": "sentences", "layers": top_layer(served), "pool": call.service.pool, **prompt}
    embedded = await call.compute(served, "embed", items, **options)
    vectors: Vectors = np.stack([result.vectors for result in embedded])[:, :dimensions]
    return units(vectors) if unit else vectors


def refuse_blank(served: ServedModel, texts: Sequence[str]) -> None:
    """Refuse texts without tokens: their vectors would be meaningless."""
    if blank := blank_texts(served.model.trained, texts):
        raise Refusal("invalid", f"text {blank[0] + 1} has no token that the model can read", "a text", place="input")


def is_sparse(served: ServedModel) -> bool:
    objective = served.model.trained.objective
    return isinstance(objective, Embedding) and objective.vectors.sparse


def top_layer(served: ServedModel) -> str:
    """Return the default of `layers`: the last layer, or the mean of all layers of an ELMo."""
    return "mean" if served.model.trained.settings.capabilities.state else "top"


def units(vectors: Vectors) -> Vectors:
    """Scale vectors to length 1. A zero vector is unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def cosines(first: Vectors, others: Vectors) -> list[float]:
    similarities: list[float] = (units(others) @ units(first)).tolist()
    return similarities


def packed(vector: Vectors) -> str:
    """Return the numbers of a vector as little-endian bytes in base64."""
    return base64.b64encode(np.ascontiguousarray(vector, vector.dtype.newbyteorder("<")).tobytes()).decode()


async def word_vectors(call: ServedCall, served: ServedModel, texts: Sequence[str], **options: object) -> list[Any]:
    """Return the results of `embed` for the texts. Refuse them if the vectors would exceed the limit of numbers."""
    trained = served.model.trained
    recurrent = trained.settings.capabilities.state
    layers = trained.settings.layers + 1 if options.get("layers") in ("all", "") or recurrent else 1
    words = len(texts) if options.get("of") == "sentences" else sum(len(text.split()) for text in texts)
    numbers = words * trained.settings.width * layers * (2 if recurrent else 1)
    if options.get("of") == "tokens" and isinstance(trained.objective, LateInteraction):
        numbers = len(texts) * trained.objective.tokens.length * trained.objective.tokens.width
    if options.get("of") == "sentences":
        refuse_blank(served, texts)
    if numbers > call.service.limits.numbers:
        wanted = f"at most {call.service.limits.numbers:,}"
        raise Refusal("large", f"found {numbers:,} numbers in the vectors", wanted, "send fewer texts")
    return await call.compute(served, "embed", [(text,) for text in texts], **options)


def fit_pairs(
    call: ServedCall,
    served: ServedModel,
    items: Sequence[tuple[str, ...]],
    truncation: Truncation,
    remedy: str = "truncate=true truncates them",
) -> list[tuple[str, ...]]:
    """Return texts or pairs, truncated at the left if the request says so, and report those that are too long.

    Refuse long inputs unless the request allows truncation. The model itself truncates at the right.
    """
    trained = served.model.trained
    text_reader, limit = reader(trained.tokenizer, trained.settings), trained.learned.length
    columns = [text_reader.pieces(column) for column in zip(*items, strict=True)]
    sizes = [np.diff(pieces.starts) for pieces in columns]
    separate = isinstance(trained.objective, LateInteraction)  # each text is encoded alone
    available = limit - text_reader.frame.joint(two=len(columns) == 2 and not separate)  # without special tokens
    total = np.max(sizes, 0) if separate else sum(sizes)
    too_long = np.flatnonzero(total > available).tolist()
    if too_long and not truncation.truncate:
        problem = f"found {int(np.max(total)) + limit - available:,} tokens in text {int(np.argmax(total)) + 1}"
        raise Refusal("invalid", problem, f"at most {limit:,}, as in the model's training", remedy, "inputs")
    call.report_truncated(too_long)
    fitted = [*items]
    for number in too_long if truncation.left else ():
        counts = [size[number : number + 1] for size in sizes]
        second = counts[-1] * (len(counts) - 1)
        limits = [available] * len(counts) if separate else text_reader.longest_first(counts[0], second, available)
        begins = [pieces.left[pieces.of(number)] for pieces in columns]
        texts = zip(items[number], begins, limits, strict=False)
        fitted[number] = tuple(_last_tokens(text, starts.tolist(), int(np.max(n))) for text, starts, n in texts)
    return fitted


def fit_texts(call: ServedCall, served: ServedModel, texts: Sequence[str], truncation: Truncation) -> list[str]:
    """Return texts to embed, truncated at the left if the request says so, and report those that are too long.

    Refuse long texts if the request forbids truncation. The model itself truncates at the right.
    """
    form = Form(of="sentences", layers=top_layer(served), pool=call.service.pool, prompt=truncation.prompt)
    try:
        text_reader = reader_of(served.model.trained, form.for_model(served.model.trained))
    except OrdsmedError as error:
        raise Refusal.of(error, served.hidden) from None
    limit = getattr(text_reader, "room", None)
    if limit is None or form.pool == "words":  # the complete text is read, in windows
        return [*texts]
    encode, fitted, too_long = served.model.trained.tokenizer.plain.encode, [*texts], []
    for number, text in enumerate(texts):
        if len(text) * 4 > limit and len(offsets := encode(text, add_special_tokens=False).offsets) > limit:
            too_long.append(number)
            if truncation.truncate is False:
                problem = f"found {len(offsets):,} tokens in text {number + 1}"
                raise Refusal("invalid", problem, f"at most {limit:,}", "truncate=true truncates them", "inputs")
            if truncation.left:
                fitted[number] = _last_tokens(text, [begin for begin, _ in offsets], limit)
    call.report_truncated(too_long)
    return fitted


def _last_tokens(text: str, begins: Sequence[int], count: int) -> str:
    """Return the last `count` tokens of a text, from the start of a word. `begins`: character offsets of the tokens."""
    if len(begins) <= count:
        return text
    ending = text[begins[-count] if count else len(text) :]
    blank = re.search(r"\s", ending)
    inside_word = text[: len(text) - len(ending)][-1:].strip() and ending[:1].strip()
    return ending[blank.start() :] if inside_word and blank and ending[blank.start() :].strip() else ending
