"""Dropout whose mask is a function of (seed, step, micro-batch, rank, layer), so that no random state is saved.

On a CPU the mask is made from random bytes, eight per draw, and kept elements are scaled by the actual keep rate. This
is several times faster than one random number per element. On other devices torch's kernels draw the mask, or a kernel
that hashes such bytes itself (nn/kernels/residual_norm.py). Ranks that share a layer draw different masks where its
activations are split between them (`stream`), and the same mask elsewhere.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.base import chance


class _Key:
    value: int = 0
    shared: bool = False  # whether other ranks share the layers of this micro-batch


def begin_micro_batch(*parts: object, stream: int = 0) -> None:
    """Seed every dropout layer for one micro-batch.

    Args:
        parts: seed, step, micro-batch and rank.
        stream: number of this rank, from 1, among the ranks that share its layers; 0: no other rank does.
    """
    _Key.value, _Key.shared = chance.key("dropout", *parts), stream > 0
    seed = (chance.key(_Key.value, stream) if stream else _Key.value) & ((1 << 63) - 1)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds every kind of device, 0.2 ms per call
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


@dataclass(frozen=True)
class Drop:
    """Arguments of a kernel that makes its own dropout mask: the key of the noise, and the dropped 256ths."""

    key: int = 0
    dropped: int = 0

    @property
    def state(self) -> int:
        return int(chance.bits(self.key).view(np.int64))


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.place = 0  # number of this layer within the objective; set by `number_layers`
        self.stream = 0  # above 0: number of this rank, in a layer whose activations are split over ranks

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return self._drop(x)
        return x * self.mask(x.shape, x.dtype)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return residual + x
        if x.device.type != "cpu":
            return residual + self._drop(x)
        return torch.addcmul(residual, x, self.mask(x.shape, x.dtype))

    def mask(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        return factors(*self.draw(shape), dtype)

    def draw(self, shape: torch.Size) -> tuple[Tensor, float]:
        """Return one byte per element, 0 if it is dropped and else 1, and the factor of the kept elements."""
        return drawn_bytes(shape, self.rate, *self._key())

    def drop(self) -> Drop:
        """Return the arguments of a kernel that makes its own mask."""
        if not self.training or self.rate == 0:
            return Drop()
        return Drop(chance.key(*self._key()), _of_256(self.rate))

    def _key(self) -> tuple[int, ...]:
        return (_Key.value, self.place, *((self.stream,) if self.stream else ()))

    def _drop(self, x: Tensor) -> Tensor:
        """Apply dropout on a GPU; ranks that hold the same activations draw the same mask."""
        if self.stream or not _Key.shared:
            return nn.functional.dropout(x, self.rate)
        generator = torch.Generator(x.device).manual_seed(chance.key(_Key.value, self.place) >> 1)
        return x * torch.empty_like(x).bernoulli_(1 - self.rate, generator=generator).div_(1 - self.rate)

    def extra_repr(self) -> str:
        return f"{self.rate}"


def drawn_bytes(shape: torch.Size, rate: float, *key: int) -> tuple[Tensor, float]:
    """Return bytes that are 0 with probability `rate` (in 256ths) and else 1, and the factor of kept elements."""
    count = shape.numel()
    dropped = _of_256(rate)
    source = np.random.SFC64(list(key)).random_raw(-(-count // 8)).view(np.uint8)[:count]
    kept = (source >= dropped).view(np.uint8)  # numpy, because torch compares and casts booleans slowly
    return torch.from_numpy(kept).view(shape), 256 / (256 - dropped)


def factors(drawn: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
    return drawn.to(dtype).mul_(factor)


def _of_256(rate: float) -> int:
    return min(max(round(rate * 256), 1), 255)


def number_layers(module: nn.Module) -> None:
    """Number the dropout layers of a module. Call it after all networks of an objective are built."""
    for position, layer in enumerate(m for m in module.modules() if isinstance(m, Dropout)):
        layer.place = position
