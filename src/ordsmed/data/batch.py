"""Batch: the tensors that the data pipeline passes to an objective, with their shapes.

B rows, T tokens per row, P predicted positions per row (P = T if every token is predicted). For a store of words,
tokens are indices into the batch's list of U different words, whose characters are in the batch. For a task, E examples
are in the rows; short examples share a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.nn.varlen import Texts, bounds


@dataclass(frozen=True)
class Batch:
    """The input of the network and the targets of the objective."""

    numbers: Tensor  # int64 [B] or [E]  number of each row (example), the key of its random draws
    tokens: Tensor  # int64 [B, T]   ids, after corruption
    positions: Tensor  # int64 [B, T]   from 0 within each document
    targets: Tensor  # int64 [B, P]   target ids
    weights: Tensor  # float32 [B, P]  1 where a prediction counts, 0 where a slot is unused
    predicted_positions: Tensor | None = None  # int64 [B, P]  positions in the row; None: every token, P = T
    documents: Tensor | None = None  # int32 [B, T]  tokens see each other where equal, 0 = padding; None: all do
    types: Tensor | None = None  # int64 [B, T]   token types (first or second segment)
    pairs: Tensor | None = None  # int64 [B]      0: the second segment follows the first; 1: it does not
    keys: Tensor | None = None  # int64 [B]       keys of each row's random draws on the device
    causal: Tensor | None = None  # bool [B]       rows with causal attention; None: as the network
    streams: Tensor | None = None  # int64 [B]    the stream that a row continues, for recurrent networks
    characters: Tensor | None = None  # uint8 [L]    bytes of the batch's words, end to end
    words: Tensor | None = None  # int64 [U + 1]  start of each word in `characters`; the first two are <S> and </S>
    candidates: Tensor | None = None  # int64 [S]  candidate words of a sampled softmax
    tries: Tensor | None = None  # int64 []       number of draws until there were S different candidates
    spans: Tensor | None = None  # int64 [E, 2]    start (rows end to end) and size of each example
    counting: Tensor | None = None  # int64 [N]    counted slots, rows end to end; set by `to`
    bounds: Tensor | None = None  # int32 [N + 1]  starts of texts, rows end to end; set by `to`
    labels: Tensor | None = None  # int64 or float32 [E] or [E, K]  target of each example
    longest: int | None = None  # tokens of the longest example; set by `to`

    def __post_init__(self) -> None:
        rows, tokens = self.tokens.shape
        examples = rows if self.spans is None else len(self.spans)
        wanted: dict[str, tuple[int, ...]] = {
            "positions": (rows, tokens),
            "documents": (rows, tokens),
            "types": (rows, tokens),
        }
        wanted |= {"numbers": (examples,), "spans": (examples, 2), "pairs": (rows,), "keys": (rows,)}
        wanted |= {"causal": (rows,), "streams": (rows,)}
        predicted = tuple(self.targets.shape)
        wanted |= {"weights": predicted, "predicted_positions": predicted}
        for name, shape in wanted.items():
            value = getattr(self, name)
            assert value is None or tuple(value.shape) == shape, f"Batch.{name}: {tuple(value.shape)} is not {shape}"
        assert self.labels is None or len(self.labels) == examples, f"Batch.labels: {len(self.labels)} of {examples}"
        assert self.predicted_positions is not None or predicted == (rows, tokens), (
            "without predicted positions every token is predicted"
        )

    @property
    def places(self) -> Tensor | None:
        return self.predicted_positions

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device, with lists of the counted tokens and of the starts of texts.

        The lists and the longest example's length are computed on the CPU, because reading their sizes from the device
        would synchronize with it.
        """
        if device.type == "cpu":
            return self
        lists: dict[str, Tensor | None] = {}
        if self.predicted_positions is None and self.counting is None and not self.weights.all():
            lists["counting"] = self.weights.flatten().nonzero().squeeze(1)
        if self.documents is not None and self.bounds is None:
            lists["bounds"] = bounds(self.documents)
        if self.tokens.is_pinned():
            lists = {name: None if value is None else value.pin_memory() for name, value in lists.items()}
        longest = self.longest if self.spans is None else self.examples()[2]
        batch = dataclasses.replace(self, **lists, longest=longest)  # type: ignore[arg-type]
        return batch._map(lambda t: t.to(device, non_blocking=True))

    def texts(self, model: nn.Module) -> Tensor | Texts | None:
        """Return the text of each token, with the starts of texts if they are known and the model supports them."""
        if self.documents is None or self.bounds is None or not getattr(model, "takes_texts", False):
            return self.documents
        return Texts(self.documents, self.bounds)

    def examples(self) -> tuple[Tensor, Tensor, int]:
        """Return start (rows end to end) and size of each example, [E, 1] each, and the largest size."""
        assert self.spans is not None
        begin, size = self.spans.split(1, 1)
        return begin, size, int(size.max()) if self.longest is None else self.longest

    def pin_memory(self) -> Batch:
        return self._map(lambda t: t.pin_memory())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Batch(**{k: change(v) if isinstance(v, Tensor) else v for k, v in fields.items()})  # type: ignore[arg-type]


def batch_of(**arrays: np.ndarray | None) -> Batch:
    """Build a batch from numpy arrays; `places` is the former name of `predicted_positions`."""
    if "places" in arrays:
        arrays["predicted_positions"] = arrays.pop("places")
    return Batch(**{k: None if v is None else torch.from_numpy(v) for k, v in arrays.items()})  # type: ignore[arg-type]
