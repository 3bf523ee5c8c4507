"""The encoder of an index: check that a model can make its vectors, and measure texts as that model reads them."""

from __future__ import annotations

from dataclasses import replace

from ordsmed.base.errors import RecipeError
from ordsmed.learn.task import LateInteraction
from ordsmed.use.index.passages import InTokens, Measure, in_words
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder, token_encoder
from ordsmed.weights.trained_model import Trained

NO_PROMPTS = {"query": "", "passage": ""}


def index_encoder(trained: Trained, pool: str = "", batch: int = TextEncoder.batch) -> TextEncoder | TokenEncoder:
    """Return the encoder for passages and questions, or raise an error if the model cannot make dense vectors.

    A named `pool` disables the learned prompts, and its vectors are scaled to length 1.
    """
    if isinstance(trained.objective, LateInteraction):
        return token_encoder(trained, pool, batch=batch)
    encoder = TextEncoder(trained, pool, batch=batch)
    if pool:
        encoder = replace(encoder, similarity="cosine", prompts=NO_PROMPTS)
    if encoder.as_learned and encoder.as_learned.sparse:
        problem = "makes sparse vectors, with a number for each token of the vocabulary"
        raise RecipeError(trained.folder, problem, "dense vectors for an index", "fine-tune with task.head=dense")
    return encoder


def measure_of(encoder: TextEncoder | TokenEncoder) -> Measure:
    """Return how to measure texts for this encoder: in tokens, or in words for an ELMo, which reads whole words."""
    trained = encoder.trained
    return in_words if trained.settings.capabilities.state else InTokens(trained.tokenizer)


def longest_of(encoder: TextEncoder | TokenEncoder) -> int:
    """Return how many tokens the encoder reads at once, without special tokens."""
    learned = encoder.as_learned
    longest = int(encoder.trained.settings.longest())
    return max(1, (min(longest, learned.length) if learned else longest) - 2)
