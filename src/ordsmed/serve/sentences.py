"""Sentences: vectors of texts as protocols want them, of unit length or as they are, shortened, compared; lengths."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.learn.task import Embedding, LateInteraction, reader
from ordsmed.serve.call import ServedCall
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import Refusal
from ordsmed.use.readers import blank_texts

Vectors = NDArray[np.float32]


async def sentence_vectors(
    call: ServedCall, served: ServedModel, texts: Sequence[str], *, unit: bool, dimensions: int | None = None
) -> Vectors:
    """A vector a text [N, D]; `dimensions`: the first of them; `unit`: of length 1 then."""
    width = served.model.trained.settings.width * (2 if served.model.trained.settings.capabilities.state else 1)
    if dimensions is not None and not call.service.pool and is_sparse(served):
        problem = f"found {dimensions:,} of a model whose vectors are sparse, a number for each piece of its vocabulary"
        raise Refusal("invalid", problem, "a request without it", place="dimensions")
    if dimensions is not None and not 1 <= dimensions <= width:
        raise Refusal("invalid", f"found {dimensions:,}", f"1 to {width:,}, the model's width", place="dimensions")
    refuse_blank(served, texts)
    embedded = await call.compute(
        served, "embed", [(text,) for text in texts], of="sentences", layers=top_layer(served), pool=call.service.pool
    )
    vectors: Vectors = np.stack([result.vectors for result in embedded])[:, :dimensions]
    return units(vectors) if unit else vectors


def refuse_blank(served: ServedModel, texts: Sequence[str]) -> None:
    """Refuse texts without a token: their vectors would mean nothing."""
    if blank := blank_texts(served.model.trained, texts):
        raise Refusal("invalid", f"text {blank[0] + 1} holds nothing that the model reads", "a text", place="input")


def is_sparse(served: ServedModel) -> bool:
    """Did it learn a weight for each piece of the vocabulary?"""
    objective = served.model.trained.objective
    return isinstance(objective, Embedding) and objective.vectors.sparse


def top_layer(served: ServedModel) -> str:
    """What gives one vector a word: the last layer, of an ELMo the mean of all."""
    return "mean" if served.model.trained.settings.capabilities.state else "top"


def units(vectors: Vectors) -> Vectors:
    """Of length 1; a vector of zeros, which has no direction, stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def cosines(first: Vectors, rest: Vectors) -> list[float]:
    """How alike a vector is to each of others."""
    alike: list[float] = (units(rest) @ units(first)).tolist()
    return alike


def packed(vector: Vectors) -> str:
    """Its numbers as they are, little-endian, in base64."""
    return base64.b64encode(np.ascontiguousarray(vector, vector.dtype.newbyteorder("<")).tobytes()).decode()


async def word_vectors(call: ServedCall, served: ServedModel, texts: Sequence[str], **options: object) -> list[Any]:
    """What `embed` makes of each text, unless that is more numbers than an answer may hold."""
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
        most = call.service.limits.numbers
        raise Refusal("large", f"found {numbers:,} numbers of vectors", f"at most {most:,}", "send fewer texts")
    return await call.compute(served, "embed", [(text,) for text in texts], **options)


def refuse_long(served: ServedModel, items: Sequence[tuple[object, ...]], remedy: str = "truncate=true cuts") -> None:
    """Refuse texts, or pairs of them, that a classifier would cut off: only who asks for that is to have it."""
    trained = served.model.trained
    text_reader, longest = reader(trained.tokenizer, trained.settings), trained.learned.length
    columns = [text_reader.pieces([str(text) for text in column]) for column in zip(*items, strict=True)]
    joined = [np.diff(pieces.starts) for pieces in columns]
    if isinstance(trained.objective, LateInteraction):  # each text is read by itself
        sizes = np.max(joined, 0) + text_reader.frame.joint(two=False)
    else:
        sizes = sum(joined) + text_reader.frame.joint(two=len(columns) == 2)
    if items and (most := int(np.max(sizes))) > longest:
        problem = f"found {most:,} tokens, of text {int(np.argmax(sizes)) + 1}"
        raise Refusal("invalid", problem, f"at most {longest:,}, which the model learned", remedy, "inputs")
