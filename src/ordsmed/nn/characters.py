"""Word vectors from characters: UTF-8 bytes -> rows of symbols -> convolutions and highway layers -> word vectors.

    "cat" -> BOW c a t EOW PAD PAD ...                         [U, 50]
          -> windows of 1..7 characters, the maximum of each filter over all windows              [U, 2048]
          -> highways -> projection                            [U, P]

All windows inside a word's padding are equal, so only one of them is computed: a dozen windows for most words instead
of fifty. Filters of all widths are computed as one product.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ordsmed.nn.context import Context
from ordsmed.nn.model import Block

START, STOP, BEGIN, END, PAD = 256, 257, 258, 259, 260  # sentence start and end, word start and end, padding
SYMBOLS = 261
CHUNK = {"cpu": 64}  # words computed together, so that intermediate results stay in a CPU's cache
DEVICE_CHUNK = 1024  # words computed together on other devices
SPECIAL = 2  # the first words of a list, sentence start and end, which have no characters


def symbols(characters: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Return rows of symbols, [U, longest], for the uint8 bytes of concatenated words and their offsets, [U + 1].

    The first two words are the start and the end of a sentence. Only the first bytes of a word that is too long are
    used.
    """
    begin = starts[:-1, None]
    size = (starts[1:, None] - begin).clamp(max=longest - 2)
    position = torch.arange(-1, longest - 1, device=characters.device)[None]
    inside = (position >= 0) & (position < size)
    if len(characters):
        table = characters[(begin + position).clamp(0, len(characters) - 1)].long()
    else:
        table = torch.zeros_like(inside, dtype=torch.long)
    table = torch.where(inside, table, PAD)
    table[:, 0] = BEGIN
    table.scatter_(1, size + 1, END)
    special = torch.full((SPECIAL, longest), PAD, device=characters.device)
    # slices, because an assignment to a single element synchronizes the GPU
    special[:, 0], special[:1, 1], special[1:, 1], special[:, 2] = BEGIN, START, STOP, END
    table[:SPECIAL] = special
    return table


def listed(words: Sequence[bytes]) -> tuple[Tensor, Tensor]:
    """Return the arguments of `symbols` for these words, with the two special words before them."""
    starts = [0] * (SPECIAL + 1)
    for word in words:
        starts.append(starts[-1] + len(word))
    return torch.tensor(list(b"".join(words)), dtype=torch.uint8), torch.tensor(starts)


class CharacterCnn(Block):
    def __init__(
        self,
        *,
        width: int,
        size: int,
        filters: Sequence[tuple[int, int]],
        highways: int,
        activation: Literal["relu", "tanh"],
    ) -> None:
        super().__init__()
        self.filters = tuple(filters)
        features = sum(count for _, count in filters)
        self.table = nn.Embedding(SYMBOLS, size)
        self.windows = nn.ModuleList(nn.Conv1d(size, count, reach) for reach, count in filters)
        self.highways = nn.ModuleList(Highway(features) for _ in range(highways))
        self.project = nn.Linear(features, width) if features != width else None
        self.activation = torch.relu if activation == "relu" else torch.tanh
        nn.init.uniform_(self.table.weight, -1, 1)
        for window in self.windows:
            assert isinstance(window, nn.Conv1d)
            if activation == "relu":
                nn.init.uniform_(window.weight, -0.05, 0.05)
            else:
                nn.init.normal_(window.weight, std=math.sqrt(1 / (window.kernel_size[0] * size)))
            nn.init.zeros_(window.bias)  # type: ignore[arg-type]
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=math.sqrt(1 / features))
            nn.init.zeros_(self.project.bias)

    def forward(self, symbols: Tensor) -> Tensor:
        reach = max(width for width, _ in self.filters)
        padded = nn.functional.pad(symbols, (0, reach - 1), value=PAD)
        kernels = [nn.functional.pad(w.weight, (0, reach - width)) for w, (width, _) in self._windows()]
        kernel = torch.cat(kernels).transpose(1, 2).flatten(1)  # [features, reach * size]
        if torch.is_autocast_enabled(symbols.device.type):
            kernel = kernel.to(torch.get_autocast_dtype(symbols.device.type))
        characters = self.table(padded).to(kernel.dtype)
        counts = self._counts(symbols)
        best = _MaxOverWindows.apply(characters, kernel, counts, self.filters, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
        out = self.activation(best + torch.cat([w.bias for w, _ in self._windows()]))
        for highway in self.highways:
            out = highway(out)
        return out if self.project is None else self.project(out)

    def _windows(self) -> list[tuple[Any, tuple[int, int]]]:
        return list(zip(self.windows, self.filters, strict=True))

    @staticmethod
    def _counts(symbols: Tensor) -> tuple[int, ...]:
        longest = symbols.shape[1]
        size = _chunk(symbols)
        if symbols.device.type != "cpu":
            return (longest,) * -(-len(symbols) // size)
        sizes = (symbols != PAD).sum(1)
        return tuple(min(int(chunk.max()) + 1, longest) for chunk in sizes.split(size))


class Highway(nn.Module):
    """A highway layer: gate * relu(change) + (1 - gate) * x.

    The bias of the gate starts at -2, so that the layer starts near the identity.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.both = nn.Linear(features, 2 * features)  # rows of the gate, then rows of the change
        nn.init.normal_(self.both.weight, std=math.sqrt(1 / features))
        nn.init.zeros_(self.both.bias)
        with torch.no_grad():
            self.both.bias[:features] = -2.0

    def forward(self, x: Tensor) -> Tensor:
        gate, change = self.both(x).chunk(2, -1)
        return torch.lerp(x, change.relu().to(x.dtype), gate.sigmoid().to(x.dtype))


class _MaxOverWindows(torch.autograd.Function):
    """The maximum of each filter over a word's windows, [U, L, E] x [F, reach * E] -> [U, F]."""

    @staticmethod
    def forward(
        ctx: Context,
        characters: Tensor,
        kernel: Tensor,
        counts: tuple[int, ...],
        filters: tuple[tuple[int, int], ...],
        learns: bool,
    ) -> Tensor:
        best = characters.new_empty(len(characters), len(kernel))
        hits = []
        for at, count in enumerate(counts):
            words = _words(characters, at)
            products = _columns(characters[words], kernel, count) @ kernel.T
            _mask_beyond_end(products, characters.shape[1], kernel.shape[1] // characters.shape[2], filters)
            torch.amax(products, 1, out=best[words])
            if learns:
                hits.append(products == best[words, None])
        ctx.save_for_backward(characters, kernel, *hits)
        return best.float()

    @staticmethod
    def backward(ctx: Context, above: Tensor) -> tuple[Tensor | None, ...]:
        characters, kernel, *hits = ctx.saved_tensors
        to_characters, to_kernel = torch.zeros_like(characters), torch.zeros_like(kernel, dtype=torch.float32)
        size = characters.shape[2]
        for at, hit in enumerate(hits):
            words = _words(characters, at)
            # equal maxima share the gradient; windows with equal characters get the same sum
            share = above[words] / hit.sum(1)
            gradients = torch.where(hit, share[:, None], 0.0).to(kernel.dtype)
            to_kernel += gradients.flatten(0, 1).T @ _columns(characters[words], kernel, hit.shape[1]).flatten(0, 1)
            to_columns = gradients @ kernel
            for position in range(kernel.shape[1] // size):
                to_characters[words, position : position + hit.shape[1]] += to_columns[
                    ..., position * size : (position + 1) * size
                ]
        return to_characters, to_kernel.to(kernel.dtype), None, None, None


def _chunk(like: Tensor) -> int:
    return CHUNK.get(like.device.type, DEVICE_CHUNK)


def _words(characters: Tensor, at: int) -> slice:
    return slice(at * _chunk(characters), (at + 1) * _chunk(characters))


def _columns(characters: Tensor, kernel: Tensor, count: int) -> Tensor:
    reach = kernel.shape[1] // characters.shape[2]
    return torch.cat([characters[:, position : position + count] for position in range(reach)], 2)


def _mask_beyond_end(products: Tensor, padded: int, reach: int, filters: tuple[tuple[int, int], ...]) -> None:
    """Set windows that extend beyond a word's row to minus infinity, in place."""
    longest, first = padded - reach + 1, 0
    for width, count in filters:
        products[:, longest - width + 1 :, first : first + count] = -torch.inf
        first += count
