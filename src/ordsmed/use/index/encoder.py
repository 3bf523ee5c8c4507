"""What an index asks of the model that makes its vectors: which one it may be, and how long texts are to it."""

from __future__ import annotations

from dataclasses import replace

from ordsmed.base.errors import RecipeError
from ordsmed.learn.task import LateInteraction
from ordsmed.use.index.passages import InTokens, Measure, in_words
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder, token_encoder
from ordsmed.weights.trained import Trained

NO_PROMPTS = {"query": "", "passage": ""}


def index_encoder(trained: Trained, pool: str = "", batch: int = TextEncoder.batch) -> TextEncoder | TokenEncoder:
    """For passages and questions; a pool that is named reads no prompts, and vectors are of length 1."""
    if isinstance(trained.objective, LateInteraction):
        return token_encoder(trained, pool, batch=batch)
    encoder = TextEncoder(trained, pool, batch=batch)
    if pool:
        encoder = replace(encoder, similarity="cosine", prompts=NO_PROMPTS)
    if encoder.as_learned and encoder.as_learned.sparse:
        problem = "gives sparse vectors, a number for each piece of the vocabulary"
        raise RecipeError(trained.folder, problem, "dense ones, which an index holds", "task.head=dense learns them")
    return encoder


def measure_of(encoder: TextEncoder | TokenEncoder) -> Measure:
    """How long texts are to it: an ELMo reads whole words."""
    trained = encoder.trained
    return in_words if trained.settings.capabilities.state else InTokens(trained.tokenizer)


def longest_of(encoder: TextEncoder | TokenEncoder) -> int:
    """Tokens that it reads at once, signs left out."""
    learned = encoder.as_learned
    longest = int(encoder.trained.settings.longest())
    return max(1, (min(longest, learned.length) if learned else longest) - 2)
