"""Self-attention: one projection for query, key and value, and the fastest kernel for the device.

B batch, T tokens, D width, H heads, d = D / H. The rows of the fused projection are ordered by head, [H, 3, d], so that
a split of the rows is a split by heads. `visible` says which tokens attend to each other. Padding attends to padding,
so that no row of the mask is empty. On a CPU, rows with several texts are computed text by text where this is cheaper
than a mask over the row. On a GPU in 16 bits they use the kernels for texts of variable length (nn/varlen.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.cpu_attention import QUERIES, BackByBlocks, HeadByHead
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.rotary import Turn, split_rotated
from ordsmed.nn.varlen import MAX_TEXTS, EndToEnd, Texts, bounds, why_not

SPARE = 64  # positions that a cache allocates in advance
CALL_COST = 40_000  # scores that a CPU computes in the time of one more kernel call
MIN_RATIO = 8  # of row length and reach from which a CPU uses `Neighbors`


@dataclass(frozen=True)
class Runs:
    """Sizes of consecutive texts, with all rows end to end; a token attends only to tokens of the same text."""

    sizes: tuple[int, ...]
    reach: int | None = None  # tokens visible to either side; None: the complete text

    def seen(self, size: int, *, causal: bool) -> Tensor | None:
        """Return the additive mask of a text with `size` tokens (0 or minus infinity), or None if it needs no mask."""
        if self.reach is not None and size > self.reach + 1:
            within = near(size, self.reach, torch.device("cpu"))
            return as_scores(within & lower(size, within.device) if causal else within)
        return as_scores(lower(size, torch.device("cpu"))) if causal else None


@dataclass(frozen=True)
class Neighbors:
    """Local attention on a CPU: each block of 2 x `reach` tokens attends to 4 x `reach` tokens.

    A row of T tokens then has T x 4 reach scores instead of T x T.
    """

    reach: int
    scores: Tensor  # [B * blocks, 1, 2 reach, 4 reach]: 0 for visible tokens, else minus infinity

    @staticmethod
    def of(visible: Tensor | Runs | None, reach: int, shape: tuple[int, int], *, causal: bool) -> Neighbors:
        """Build the blocks of rows [B, T]. `causal`: without a mask, a token sees only itself and earlier tokens."""
        (batch, length), size = shape, 2 * reach
        count = -(-length // size)
        at = torch.arange(count * size).view(count, size, 1)
        near = (torch.arange(count)[:, None] * size + torch.arange(-reach, size + reach)).unsqueeze(1)
        seen = ((at - near).abs() <= reach) & (near >= 0) & (near < length)
        if causal and not isinstance(visible, Tensor):
            seen &= at >= near
        inside = near.clamp(0, length - 1)
        if isinstance(visible, Tensor):
            seen = seen & visible[:, 0, at.clamp(max=length - 1), inside]
        elif isinstance(visible, Runs):
            texts = torch.arange(len(visible.sizes)).repeat_interleave(torch.tensor(visible.sizes)).view(batch, length)
            seen = seen & (texts[:, at.clamp(max=length - 1)] == texts[:, inside])
        seen = (seen | (at >= length)).expand(batch, count, size, 2 * size)  # padding attends to all: no empty rows
        return Neighbors(reach, torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf).flatten(0, 1).unsqueeze(1))

    def queries(self, x: Tensor) -> Tensor:
        size, rows = 2 * self.reach, x.transpose(1, 2)
        rows = F.pad(rows, (0, 0, 0, 0, 0, -rows.shape[1] % size))
        blocks: Tensor = rows.unflatten(1, (-1, size)).flatten(0, 1).transpose(1, 2)
        return blocks

    def context(self, x: Tensor) -> Tensor:
        """Return the keys or values that each block attends to: [B, H, T, d] -> [B * blocks, H, 4 reach, d]."""
        size, rows = 2 * self.reach, x.transpose(1, 2)
        rows = F.pad(rows, (0, 0, 0, 0, self.reach, self.reach + -rows.shape[1] % size)).unflatten(1, (-1, size))
        return torch.cat([rows[:, :-1], rows[:, 1:]], 2).flatten(0, 1).transpose(1, 2)

    def rows(self, mixed: Tensor, length: int) -> Tensor:
        count = -(-length // (2 * self.reach))
        blocks: Tensor = mixed.transpose(1, 2).unflatten(0, (-1, count))
        return blocks.flatten(1, 2)[:, :length].transpose(1, 2)


# a boolean or additive mask, texts on a CPU, local attention on a CPU, texts on a GPU; None: all tokens are visible
Visible = Tensor | Runs | Neighbors | EndToEnd | None


class KeyValueCache:
    """Keys and values of the tokens that one layer has read, so that a causal network need not read them again."""

    def __init__(self) -> None:
        self.length = 0
        self.buffer: Tensor | None = None  # [2, B, H, capacity, d]: keys and values, allocated beyond `length`

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens and return those of all tokens, [B, H, T, d]."""
        before, self.length = self.length, self.length + key.shape[2]
        if self.buffer is None or self.buffer.shape[3] < self.length:
            batch, heads, _, width = key.shape
            larger = key.new_empty(2, batch, heads, max(self.length + SPARE, 3 * self.length // 2), width)
            if self.buffer is not None:
                larger[:, :, :, :before] = self.buffer[:, :, :, :before]
            self.buffer = larger
        self.buffer[0, :, :, before : self.length] = key
        self.buffer[1, :, :, before : self.length] = value
        return self.buffer[0, :, :, : self.length], self.buffer[1, :, :, : self.length]

    def select(self, rows: Tensor) -> None:
        if self.buffer is not None:
            self.buffer = self.buffer.index_select(1, rows)

    def drop(self, count: int) -> None:
        self.buffer = None if self.buffer is None else self.buffer[:, :, :, count:]
        self.length -= count

    def join(self, newer: KeyValueCache) -> None:
        """Append the rows of `newer` to the batch; the shorter cache is padded with zeros on the left."""
        length = max(self.length, newer.length)
        self.buffer = torch.cat([self._as_long_as(length), newer._as_long_as(length)], 1)
        self.length = length

    def _as_long_as(self, length: int) -> Tensor:
        assert self.buffer is not None
        return F.pad(self.buffer[:, :, :, : self.length], (0, 0, length - self.length, 0))


class Cache:
    """The tokens that a causal network has read: keys and values of each layer, and each token's document."""

    def __init__(self, layers: int) -> None:
        self.layers = [KeyValueCache() for _ in range(layers)]
        self.documents: Tensor | None = None
        self.length = 0

    def visible(self, new: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
        """Append `new` tokens and return the mask over all tokens, [1 or B, 1, new, all]; None: no mask is needed."""
        if self.length and (documents is None) != (self.documents is None):
            raise ValueError("cache: found documents for some tokens; wanted them for all tokens or for none")
        if documents is not None:
            before = [] if self.documents is None else [self.documents]
            self.documents = torch.cat([*before, documents], 1)
        self.length += new
        seen = lower(self.length, device)[-new:]
        if documents is None or self.documents is None:
            return None if new in (1, self.length) else seen[None, None]
        return (documents[:, None, :, None] == self.documents[:, None, None, :]) & seen

    def select(self, rows: Tensor) -> None:
        for layer in self.layers:
            layer.select(rows)
        self.documents = None if self.documents is None else self.documents.index_select(0, rows)

    def join(self, newer: Cache) -> None:
        """Append the rows of `newer` to the batch; shorter rows are padded on the left with document 0."""
        for cache in (self, newer):
            cache._trim()
        length = max(self.length, newer.length)
        if self.documents is not None or newer.documents is not None or self.length != newer.length:
            parts = [F.pad(cache._texts(), (length - cache.length, 0)) for cache in (self, newer)]
            self.documents = torch.cat(parts)
        self.length = length
        for layer, more in zip(self.layers, newer.layers, strict=True):
            layer.join(more)

    def _texts(self) -> Tensor:
        """Return the document of each token, [B, T]; all ones if documents were not given."""
        buffer = self.layers[0].buffer
        assert buffer is not None
        ones = torch.ones(buffer.shape[1], self.length, dtype=torch.int64, device=buffer.device)
        return ones if self.documents is None else self.documents

    def _trim(self) -> None:
        if self.documents is None:
            return
        lead = int((self.documents == 0).all(0).long().cumprod(0).sum())
        if lead:
            self.documents, self.length = self.documents[:, lead:], self.length - lead
            for layer in self.layers:
                layer.drop(lead)

    def nearby(self, visible: Tensor | None, new: int, reach: int, device: torch.device) -> Tensor | None:
        """Restrict `visible` to tokens at most `reach` positions back; return it unchanged if the cache is shorter."""
        if self.length <= reach + 1:
            return visible
        within = near(self.length, reach, device)[-new:]
        return (within & lower(self.length, device)[-new:])[None, None] if visible is None else visible & within


class SelfAttention(nn.Module):
    """Scaled dot-product attention of every token over the tokens that are visible to it."""

    def __init__(
        self, width: int, heads: int, dropout: float, *, causal: bool, bias: bool = True, scale: float | None = None
    ) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(width // heads) if scale is None else scale
        self.heads, self.head, self.causal = heads, width // heads, causal
        self.gather = nn.Linear(width, 3 * width, bias=bias)
        self.mix = nn.Linear(width, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        visible: Visible,
        *,
        turn: Turn | None = None,
        cache: KeyValueCache | None = None,
        mix: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Attend over x [B, T, D].

        Args:
            visible: which tokens attend to each other.
            turn: cosine and sine of the rotary angles of every position, [B, T, d].
            cache: keys and values of earlier tokens.
            mix: replaces the output projection, for blocks that fuse it.
        """
        output = self.mix if mix is None else mix  # torch 2.11's compiler cannot evaluate `mix or self.mix`
        fused = self.gather(x).unflatten(-1, (-1, 3, self.head))  # [B, T, H, 3, d]; H is the number of local heads
        if turn is None and cache is None and (visible is None or isinstance(visible, Tensor)) and self._drops(fused):
            by_head: Tensor = output(self._attend_by_head(fused, visible).flatten(2))
            return by_head
        parts = fused.unbind(3) if turn is None else split_rotated(fused, turn)
        query, key, value = (part.transpose(1, 2) for part in parts)  # each [B, H, T, d]
        if cache is not None:
            key, value = cache.extend(key, value)
        if isinstance(visible, EndToEnd):
            rate = self.dropout.rate if self.training else 0.0
            mixed = visible.attend(query, key, value, causal=self.causal, scale=self.scale, rate=rate)
        elif isinstance(visible, Runs):
            mixed = self._attend_by_run(query, key, value, visible)
        elif isinstance(visible, Neighbors):
            blocks = visible.queries(query), visible.context(key), visible.context(value)
            mixed = visible.rows(self._attend(*blocks, visible.scores, causal=False), query.shape[2])
        else:
            mixed = self._attend(query, key, value, visible, causal=self.causal or cache is not None)
        out: Tensor = output(mixed.transpose(1, 2).flatten(2))
        return out

    def _drops(self, fused: Tensor) -> bool:
        """Return whether this is an uncompiled training step with dropout on a CPU in fp32."""
        if not self.training or not self.dropout.rate or fused.device.type != "cpu" or fused.dtype != torch.float32:
            return False
        return not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()

    def _attend_by_head(self, fused: Tensor, visible: Tensor | None) -> Tensor:
        batch, length, heads = fused.shape[:3]
        if visible is None and self.causal:
            visible = lower(length, fused.device)[None, None]
        drawn = self.dropout.draw(torch.Size([batch, heads, length, length]))
        out: Tensor = HeadByHead.apply(fused, self.scale, _added(visible), *drawn)  # type: ignore[no-untyped-call]
        return out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, *, causal: bool) -> Tensor:
        rate = self.dropout.rate if self.training else 0.0
        causal = causal and visible is None and query.shape[2] > 1
        if rate == 0 and _trains_in_bf16(query, causal):
            return self._attend_by_blocks(query, key, value, visible, causal=causal)
        if rate == 0 or query.device.type != "cpu":
            return F.scaled_dot_product_attention(
                query, key, value, visible, dropout_p=rate, is_causal=causal, scale=self.scale
            )
        # with dropout, torch's CPU kernel draws a random number per element; random bytes are cheaper
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()  # matmul would copy more slowly
        scores = torch.matmul(query * self.scale, key.transpose(-1, -2))
        if causal:
            visible = as_scores(lower(scores.shape[-1], scores.device))
        if visible is not None:
            scores = scores.masked_fill(~visible, -torch.inf) if visible.dtype == torch.bool else scores + visible
        return torch.matmul(self.dropout(scores.softmax(-1)), value)

    def _attend_by_blocks(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        half = [None if x is None else x.to(torch.bfloat16) for x in (query, key, value, _added(visible))]
        out: Tensor = BackByBlocks.apply(*half, causal, self.scale)  # type: ignore[no-untyped-call]
        return out

    def _attend_by_run(self, query: Tensor, key: Tensor, value: Tensor, runs: Runs) -> Tensor:
        """Attend text by text: no scores between texts are computed, and the scores of a text stay in the cache."""
        batch, heads, length, _ = query.shape
        apart = [x.transpose(0, 1).flatten(1, 2).split(runs.sizes, 1) for x in (query, key, value)]  # [H, run, d] each
        masks = self._masks(heads, runs.sizes)
        mixed = []
        for size, mask, run_query, run_key, run_value in zip(runs.sizes, masks, *apart, strict=True):
            seen = runs.seen(size, causal=self.causal)
            if mask is None and _trains_in_bf16(run_query):
                see = None if seen is None else seen[None, None]
                answer = self._attend_by_blocks(run_query[None], run_key[None], run_value[None], see)[0]
            elif mask is None:
                answer = F.scaled_dot_product_attention(
                    run_query[None], run_key[None], run_value[None], seen, scale=self.scale
                )[0]
            else:
                scores = torch.matmul(run_query * self.scale, run_key.transpose(-1, -2))
                scores = scores if seen is None else scores + seen
                answer = torch.matmul(scores.softmax(-1) * mask, run_value)
            mixed.append(answer.transpose(0, 1))
        out: Tensor = torch.cat(mixed).unflatten(0, (batch, length)).transpose(1, 2)
        return out

    def _masks(self, heads: int, sizes: tuple[int, ...]) -> list[Tensor] | list[None]:
        if not self.training or not self.dropout.rate:
            return [None] * len(sizes)
        counts = [heads * size * size for size in sizes]
        drawn = self.dropout.mask(torch.Size([sum(counts)]), torch.float32).split(counts)
        return [mask.view(heads, size, size) for mask, size in zip(drawn, sizes, strict=True)]


def _added(visible: Tensor | None) -> Tensor | None:
    return visible if visible is None or visible.dtype != torch.bool else as_scores(visible)


def _trains_in_bf16(query: Tensor, causal: bool = False) -> bool:
    """Return whether this is a training step in bf16 on a CPU, where torch's backward kernel is slow."""
    if query.device.type != "cpu" or not query.requires_grad or not torch.is_grad_enabled():
        return False
    # torch's causal kernel skips half of the scores
    if torch.compiler.is_compiling() or (causal and query.shape[2] > QUERIES):
        return False
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


@overload
def as_scores(visible: Tensor) -> Tensor: ...
@overload
def as_scores(visible: Visible) -> Visible: ...
def as_scores(visible: Visible) -> Visible:
    """Return the additive form of a mask: 0 for visible tokens, minus infinity for all others.

    Build it once for all layers. On a GPU it has autocast's data type, so that the layers need not cast it.
    """
    if not isinstance(visible, Tensor):
        return visible
    kind, dtype = visible.device.type, torch.float32
    if kind != "cpu" and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)


def lower(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def near(length: int, reach: int, device: torch.device) -> Tensor:
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions).abs() <= reach


def nearby(
    visible: Visible, reach: int, tokens: Tensor, *, causal: bool = False, blocks: nn.ModuleList | None = None
) -> Visible:
    """Restrict `visible` to tokens at most `reach` positions away; return it unchanged if rows are not longer.

    Args:
        causal: if `visible` is None, a token attends only to itself and earlier tokens.
        blocks: the network's blocks. With them, the result may be `EndToEnd` on a GPU, and `Neighbors` on a CPU for
            long rows.
    """
    batch, length = tokens.shape
    if length <= reach + 1:
        return visible
    assert not isinstance(visible, Neighbors)
    if isinstance(visible, EndToEnd):
        return replace(visible, reach=reach)
    if visible is None and (packed := _end_to_end(blocks, EndToEnd.rows(batch, length, reach, tokens.device))):
        return packed
    if tokens.device.type == "cpu" and _accept_runs(blocks) and 0 < MIN_RATIO * reach <= length:
        scored = batch * length * 4 * reach
        if not isinstance(visible, Runs) or sum(size**2 for size in visible.sizes) > scored:
            return Neighbors.of(visible, reach, (batch, length), causal=causal)
    if isinstance(visible, Runs):
        return replace(visible, reach=reach)
    within = near(length, reach, tokens.device)
    if visible is None:
        return (within & lower(length, tokens.device) if causal else within)[None, None]
    return visible & within


def _accept_runs(blocks: nn.ModuleList | None) -> bool:
    """Return whether these blocks accept `Runs` and `Neighbors` in addition to masks; compiled blocks do not."""
    first: Any = blocks[0] if blocks is not None else None
    return first is not None and not first.compiled


def _end_to_end(blocks: nn.ModuleList | None, packed: EndToEnd) -> EndToEnd | None:
    """Return `packed` if the variable-length kernels can run in these blocks, else None."""
    if blocks is None or len(packed.bounds) > MAX_TEXTS:
        return None
    first: Any = blocks[0]
    device, attention = packed.bounds.device, first.attention
    half = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if half else next(attention.parameters()).dtype
    if why_not(device, dtype, attention.head):
        return None
    if first.compiled:  # the number of texts differs between batches
        torch._dynamo.maybe_mark_dynamic(packed.bounds, 0)
    return packed


def visibility(
    documents: Tensor | Texts | None, *, causal: bool, rows: Tensor | None = None, blocks: nn.ModuleList | None = None
) -> Visible:
    """Return which tokens see each other: a mask [B, 1, T, T], True where a token sees another; None: no mask.

    `rows` [B] marks causal rows, for networks that support both kinds in one batch. `blocks` are the network's blocks.
    If they are given, the result may be `EndToEnd` on a GPU, and `Runs` on a CPU where this is cheaper.
    """
    if documents is None:
        if rows is not None:
            raise ValueError("documents: missing; causal and bidirectional rows in a batch need them")
        return None
    if isinstance(documents, Texts):
        packed = _end_to_end(blocks, EndToEnd(documents.bounds, documents.documents.shape[1]))
        if packed and rows is None:
            return packed
        documents = documents.documents
    first: Any = blocks[0] if blocks is not None else None
    if _accept_runs(blocks) and rows is None and (runs := _runs(documents, first.attention.heads)):
        return runs
    same = documents[:, None, :, None] == documents[:, None, None, :]
    if rows is not None:
        return same & (lower(documents.shape[1], documents.device) | ~rows[:, None, None, None])
    return same & lower(documents.shape[1], documents.device) if causal else same


def _runs(documents: Tensor, heads: int) -> Runs | None:
    """Return the documents as `Runs` if they are contiguous and this is cheaper than a mask over rows, else None."""
    if documents.device.type != "cpu" or not (documents > 1).any():  # rows of one text use a mask
        return None
    if (cuts := bounds(documents)) is None:
        return None
    batch, length = documents.shape
    sizes = cuts.diff().tolist()
    saved = heads * (batch * length**2 - sum(size**2 for size in sizes))
    return Runs(tuple(sizes)) if saved > CALL_COST * len(sizes) else None
