"""Dropout whose zeros are a function of (seed, step, micro-batch, rank, layer), so that no random state is saved.

On a CPU the mask is made from random bytes, eight to a draw, and what is kept is scaled by its real keep rate:
several times cheaper than a random number for every element. On other devices torch's own kernels draw, or one of ours
that makes its mask of such bytes itself (nn/kernels/residual_norm.py).
Ranks that share a layer draw apart where its activations are split between them (`stream`), and alike where not.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.base import chance


class _Key:
    """The micro-batch that all dropout layers of this process are in."""

    value: int = 0
    shared: bool = False  # do other ranks share this micro-batch's layers?


def begin_micro_batch(*parts: object, stream: int = 0) -> None:
    """Seed every dropout layer for one micro-batch: (seed, step, micro, rank), and a stream for each rank of those that
    share its layers (0: nobody shares them)."""
    _Key.value, _Key.shared = chance.key("dropout", *parts), stream > 0
    seed = (chance.key(_Key.value, stream) if stream else _Key.value) & ((1 << 63) - 1)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed asks every kind of device, 0.2 ms a time
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


@dataclass(frozen=True)
class Drop:
    """How a kernel drops that makes its mask itself: noise's key, and how many of 256; 0: nothing."""

    key: int = 0
    dropped: int = 0

    @property
    def state(self) -> int:
        """The key mixed as chance.bits does, as a signed number."""
        return int(chance.bits(self.key).view(np.int64))


class Dropout(nn.Module):
    """Set a share of the elements to zero while training and scale the rest."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.place = 0  # which dropout layer of the objective this is; `number_layers` says
        self.stream = 0  # above 0: this rank's own draws, in a layer whose activations are split over ranks

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return self._drop(x)
        return x * self.mask(x.shape, x.dtype)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """`residual + dropout(x)`."""
        if not self.training or self.rate == 0:
            return residual + x
        if x.device.type != "cpu":
            return residual + self._drop(x)
        return torch.addcmul(residual, x, self.mask(x.shape, x.dtype))

    def mask(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """0 where dropped, 1 / (real keep rate) elsewhere."""
        return factors(*self.draw(shape), dtype)

    def draw(self, shape: torch.Size) -> tuple[Tensor, float]:
        """A byte of each element, 0 where it is dropped, else 1; and what those that are left are multiplied by."""
        return drawn_bytes(shape, self.rate, *self._key())

    def drop(self) -> Drop:
        """The same for a kernel."""
        if not self.training or self.rate == 0:
            return Drop()
        return Drop(chance.key(*self._key()), _of_256(self.rate))

    def _key(self) -> tuple[int, ...]:
        return (_Key.value, self.place, *((self.stream,) if self.stream else ()))

    def _drop(self, x: Tensor) -> Tensor:
        """torch's kernel; where other ranks hold the same activations, from a generator seeded as theirs."""
        if self.stream or not _Key.shared:
            return nn.functional.dropout(x, self.rate)
        generator = torch.Generator(x.device).manual_seed(chance.key(_Key.value, self.place) >> 1)
        return x * torch.empty_like(x).bernoulli_(1 - self.rate, generator=generator).div_(1 - self.rate)

    def extra_repr(self) -> str:
        return f"{self.rate}"


def drawn_bytes(shape: torch.Size, rate: float, *key: int) -> tuple[Tensor, float]:
    """0 at `rate`, to the nearest 256th, else 1; and the scale with which the mean of what is left stays."""
    count = shape.numel()
    dropped = _of_256(rate)
    source = np.random.SFC64(list(key)).random_raw(-(-count // 8)).view(np.uint8)[:count]
    kept = (source >= dropped).view(np.uint8)  # torch compares, and casts bools, slowly
    return torch.from_numpy(kept).view(shape), 256 / (256 - dropped)


def factors(drawn: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
    """Bytes of 0 and 1 as 0 and the factor."""
    return drawn.to(dtype).mul_(factor)


def _of_256(rate: float) -> int:
    return min(max(round(rate * 256), 1), 255)


def number_layers(module: nn.Module) -> None:
    """Give every dropout layer its place, once the networks of an objective are built."""
    for place, layer in enumerate(m for m in module.modules() if isinstance(m, Dropout)):
        layer.place = place
