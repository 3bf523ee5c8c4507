"""Networks that learn vectors of texts, with a loss over a complete step.

    batch -> states [B, T, D] -> pool -> vectors [E, D], not normalized -> losses of all texts of the step

A step of one micro-batch computes this loss directly. A larger step first computes all vectors (`view`) and the
gradient of each (`compare`); each micro-batch then computes its vectors again and backpropagates their gradients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.data.batch import Batch
from ordsmed.learn.embedding.inputs import ANCHOR
from ordsmed.learn.embedding.losses import Comparison, losses
from ordsmed.learn.objective import Comparing
from ordsmed.learn.pool import pooled
from ordsmed.learn.task import Embedding, Task, TextVectors
from ordsmed.learn.upper_layers import Top, width
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

TERM = "pairs"


class PairComparing(Task, Comparing):
    """A network whose texts are compared over a complete step, by the `vectors` of `scores`: [E, D], or [E, L, W]."""

    def __init__(self, model: ModelSettings, vocabulary: int, comparison: Comparison) -> None:
        super().__init__(Top(mix=False, recurrent=0), model, vocabulary)
        self.comparison, self.weights = comparison, {TERM: 1.0}
        self.pending: deque[tuple[Tensor, Tensor]] = deque()  # gradient and loss of each remaining micro-batch

    def count(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.labels is not None
        return {TERM: (batch.labels[:, 0] == ANCHOR).sum(dtype=torch.float64)}

    def view(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.labels is not None
        return {**self.scores(batch), "labels": batch.labels}

    def step_losses(self, views: dict[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        return losses(self.comparison, views["vectors"], views["labels"])

    def compare(self, views: dict[str, Tensor], micro_batches: Sequence[slice]) -> None:
        leaf = views["vectors"].detach().requires_grad_()
        is_anchor = views["labels"][:, 0] == ANCHOR
        of_anchor = leaf.new_zeros(int(is_anchor.sum()))
        with torch.enable_grad():
            for numbers, lost in self.step_losses({**views, "vectors": leaf}):
                lost.sum().backward()
                of_anchor[numbers] += lost.detach()
        of_text = leaf.new_zeros(len(leaf)).masked_scatter(is_anchor, of_anchor)
        assert leaf.grad is not None
        self.pending = deque((leaf.grad[part], of_text[part].sum()) for part in micro_batches)

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        if not self.pending:
            assert batch.labels is not None
            views = {**scores, "labels": batch.labels}
            return {TERM: torch.stack([lost.sum() for _, lost in self.step_losses(views)]).sum()}
        gradient, lost = self.pending.popleft()
        vectors = scores["vectors"]
        linear = (vectors * gradient[:, : vectors.shape[1]]).sum()  # its gradient is `gradient`, cut to fewer tokens
        return {TERM: lost + linear - linear.detach()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the answers without a loss: `Files.losses` computes it from all texts."""
        return self.answers(self.scores(batch), batch)


class PairEncoder(PairComparing, Embedding):
    def __init__(self, model: ModelSettings, vocabulary: int, vectors: TextVectors, comparison: Comparison) -> None:
        super().__init__(model, vocabulary, comparison)
        self.vectors, self.vector_width = vectors, width(model)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        return {"vectors": pooled(self.states(batch), batch, self.vectors.pool).float()}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        vectors = scores["vectors"]
        return {"vector": F.normalize(vectors, dim=-1) if self.vectors.normalize else vectors}

    def embed(self, batch: Batch) -> Tensor:
        return self.validate(batch)["vector"]

    def usage(self, name: str, tokenizer: Tokenizer, learned: object) -> Usage:
        does = f"computes a vector of {self.vector_width:,} numbers for a text"
        return self.usage_as(does, (), "SentenceTransformer", name)

    def usage_as(self, does: str, tags: tuple[str, ...], opened_by: str, name: str) -> Usage:
        """Return the usage; `opened_by` is the class of sentence-transformers for an export."""
        code = (
            f"import ordsmed\n\nmodel = ordsmed.open({name!r})\n"
            'question = model.embed("What is old?", of="sentences", prompt="query").vectors\n'
            'text = model.embed("The bridge is old.", of="sentences", prompt="passage").vectors\n'
            "print(question @ text)\n"
        )
        note = f"`ordsmed export RUN OUT --to sentence-transformers` writes it for {opened_by}."
        options = f"{in_python(name, code)}\n\n{note}"
        return Usage("sentence-similarity", does, options, tags=("feature-extraction", *tags))
