"""Batch: the one type that travels from the data to an objective, every tensor named with its shape.

B rows, T tokens a row, P positions that are predicted in a row (P = T where every token is). Of a word store tokens are
positions in the batch's own list of U different words, of which it holds the characters. Of a task E examples lie in
the rows, several in one where they are short.
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
    """Rows as the network sees them, and what is asked of it."""

    numbers: Tensor  # int64 [B] or [E]  the running number of each row (example): the key of all its chance
    tokens: Tensor  # int64 [B, T]   ids, after corruption
    positions: Tensor  # int64 [B, T]   0.. within each document
    targets: Tensor  # int64 [B, P]   the right ids
    weights: Tensor  # float32 [B, P]  1 where a prediction counts, 0 where a slot is unused
    predicted_positions: Tensor | None = None  # int64 [B, P]  where in the row; None: every token, P = T
    documents: Tensor | None = None  # int32 [B, T]  tokens see each other where equal, 0 = padding; None: all do
    types: Tensor | None = None  # int64 [B, T]   token types (first or second segment)
    pairs: Tensor | None = None  # int64 [B]      0: the second segment follows the first; 1: it does not
    keys: Tensor | None = None  # int64 [B]       what each row's draws on the device are hashed from
    causal: Tensor | None = None  # bool [B]       rows whose tokens see only what stands before; None: as the network
    streams: Tensor | None = None  # int64 [B]    which stream of the batch a row goes on with, where text is carried
    characters: Tensor | None = None  # uint8 [L]    the bytes of the batch's words, end to end
    words: Tensor | None = None  # int64 [U + 1]  where each of them begins; the first two are <S> and </S>
    candidates: Tensor | None = None  # int64 [S]  words that stand for all others in a sampled softmax
    tries: Tensor | None = None  # int64 []       how many draws it took to find so many different ones
    spans: Tensor | None = None  # int64 [E, 2]    where an example begins, rows laid end to end, and its tokens' number
    counting: Tensor | None = None  # int64 [N]    slots that count, rows laid end to end; made on the way to a device
    bounds: Tensor | None = None  # int32 [N + 1]  where texts begin, rows laid end to end; made on the way to a device
    labels: Tensor | None = None  # int64 or float32 [E] or [E, K]  what is right for each example
    longest: int | None = None  # the most tokens of an example; counted on the way to a device

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
        """`predicted_positions` by the name that objectives of users may know."""
        return self.predicted_positions

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device, with a list of the tokens that count, where not all do, and of where texts begin;
        and with the longest example's length.

        The device could make them, but who wants to know how long they are must wait for all that it has to do.
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
        """Which text each token is of; with where texts begin, if that is known and the network takes it."""
        if self.documents is None or self.bounds is None or not getattr(model, "takes_texts", False):
            return self.documents
        return Texts(self.documents, self.bounds)

    def examples(self) -> tuple[Tensor, Tensor, int]:
        """Where each begins, rows laid end to end, and how many tokens it has, [E, 1]; and how many the longest."""
        assert self.spans is not None
        begin, size = self.spans.split(1, 1)
        return begin, size, int(size.max()) if self.longest is None else self.longest

    def pin_memory(self) -> Batch:
        """The same batch in pinned memory, as the loader's workers ask."""
        return self._map(lambda t: t.pin_memory())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Batch(**{k: change(v) if isinstance(v, Tensor) else v for k, v in fields.items()})  # type: ignore[arg-type]


def batch_of(**arrays: np.ndarray | None) -> Batch:
    """A batch from numpy arrays; `places` is the former name of `predicted_positions`."""
    if "places" in arrays:
        arrays["predicted_positions"] = arrays.pop("places")
    return Batch(**{k: None if v is None else torch.from_numpy(v) for k, v in arrays.items()})  # type: ignore[arg-type]
