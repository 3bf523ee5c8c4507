"""Self-attention: one projection for query, key and value, and the kernel that fits the device.

B batch, T tokens, D width, H heads, d = D / H. The fused rows stand head by head, [H, 3, d]: a split of the rows is a
split of whole heads. `visible` says which tokens see each other; padding sees padding, so that no row is empty. On a
CPU rows that hold several texts are looked at text by text where that is cheaper than a mask over all of them; on a GPU
in 16 bits by kernels for texts of any length (nn/varlen.py).
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
from ordsmed.nn.rotary import Turn, parted
from ordsmed.nn.varlen import MOST, EndToEnd, Texts, bounds, why_not

ROOM = 64  # places that a cache makes ahead
CALL = 40_000  # scores that a CPU makes in the time that another call of its kernels takes
FAR = 8  # times a reach that rows must be long for a CPU to look at neighbors alone


@dataclass(frozen=True)
class Runs:
    """Tokens that see each other and nobody else: so many, and so many, end to end through all rows."""

    sizes: tuple[int, ...]
    reach: int | None = None  # how far to either side they see; None: as far as the run goes

    def seen(self, size: int, *, causal: bool) -> Tensor | None:
        """What is added to the scores of a run of this size: minus infinity where a token does not see another."""
        if self.reach is not None and size > self.reach + 1:
            within = near(size, self.reach, torch.device("cpu"))
            return as_scores(within & lower(size, within.device) if causal else within)
        return as_scores(lower(size, torch.device("cpu"))) if causal else None


@dataclass(frozen=True)
class Neighbors:
    """Tokens that see no further than `reach`: rows are cut into blocks twice as long, which look at two such lengths.

    So a row of T tokens is T x 4 reach scores, and never T x T.
    """

    reach: int
    scores: Tensor  # [B * blocks, 1, 2 reach, 4 reach]: 0 where a token sees another, else minus infinity

    @staticmethod
    def of(visible: Tensor | Runs | None, reach: int, shape: tuple[int, int], *, causal: bool) -> Neighbors:
        """Of rows [B, T]. `causal`: where no mask tells it, a token sees only what stands before it."""
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
        seen = (seen | (at >= length)).expand(batch, count, size, 2 * size)  # who is not there must see something
        return Neighbors(reach, torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf).flatten(0, 1).unsqueeze(1))

    def queries(self, x: Tensor) -> Tensor:
        """[B, H, T, d] -> [B * blocks, H, 2 reach, d]."""
        size, rows = 2 * self.reach, x.transpose(1, 2)
        rows = F.pad(rows, (0, 0, 0, 0, 0, -rows.shape[1] % size))
        blocks: Tensor = rows.unflatten(1, (-1, size)).flatten(0, 1).transpose(1, 2)
        return blocks

    def looked_at(self, x: Tensor) -> Tensor:
        """[B, H, T, d] -> [B * blocks, H, 4 reach, d]: of each block what it looks at."""
        size, rows = 2 * self.reach, x.transpose(1, 2)
        rows = F.pad(rows, (0, 0, 0, 0, self.reach, self.reach + -rows.shape[1] % size)).unflatten(1, (-1, size))
        return torch.cat([rows[:, :-1], rows[:, 1:]], 2).flatten(0, 1).transpose(1, 2)

    def rows(self, mixed: Tensor, length: int) -> Tensor:
        """[B * blocks, H, 2 reach, d] -> [B, H, T, d]."""
        count = -(-length // (2 * self.reach))
        blocks: Tensor = mixed.transpose(1, 2).unflatten(0, (-1, count))
        return blocks.flatten(1, 2)[:, :length].transpose(1, 2)


# a mask (True, or 0 among scores, where a token sees another), runs, neighbors, texts end to end; None: all see all
Visible = Tensor | Runs | Neighbors | EndToEnd | None


class KeyValueCache:
    """The keys and values that a layer has seen: what lets a causal network go on without reading anew."""

    def __init__(self) -> None:
        self.length = 0
        self.room: Tensor | None = None  # [2, B, H, room, d]: with places for what is to come

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, with these behind; [B, H, T, d]."""
        before, self.length = self.length, self.length + key.shape[2]
        if self.room is None or self.room.shape[3] < self.length:
            batch, heads, _, width = key.shape
            larger = key.new_empty(2, batch, heads, max(self.length + ROOM, 3 * self.length // 2), width)
            if self.room is not None:
                larger[:, :, :, :before] = self.room[:, :, :, :before]
            self.room = larger
        self.room[0, :, :, before : self.length] = key
        self.room[1, :, :, before : self.length] = value
        return self.room[0, :, :, : self.length], self.room[1, :, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep these rows alone."""
        if self.room is not None:
            self.room = self.room.index_select(1, rows)

    def drop(self, count: int) -> None:
        """Forget the first tokens of all rows."""
        self.room = None if self.room is None else self.room[:, :, :, count:]
        self.length -= count

    def join(self, newer: KeyValueCache) -> None:
        """The rows of another one behind these; what is shorter gets zeros in front."""
        length = max(self.length, newer.length)
        self.room = torch.cat([self._as_long_as(length), newer._as_long_as(length)], 1)
        self.length = length

    def _as_long_as(self, length: int) -> Tensor:
        assert self.room is not None
        return F.pad(self.room[:, :, :, : self.length], (0, 0, length - self.length, 0))


class Cache:
    """What a causal network has read of some rows: keys and values a layer, and which document each token is of."""

    def __init__(self, layers: int) -> None:
        self.layers = [KeyValueCache() for _ in range(layers)]
        self.documents: Tensor | None = None
        self.length = 0

    def visible(self, new: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
        """What `new` tokens behind those that were read may see of all; [1 or B, 1, new, all]."""
        if self.length and (documents is None) != (self.documents is None):
            raise ValueError("documents are told of all tokens of a cache, or of none")
        if documents is not None:
            before = [] if self.documents is None else [self.documents]
            self.documents = torch.cat([*before, documents], 1)
        self.length += new
        seen = lower(self.length, device)[-new:]
        if documents is None or self.documents is None:
            return None if new in (1, self.length) else seen[None, None]
        return (documents[:, None, :, None] == self.documents[:, None, None, :]) & seen

    def select(self, rows: Tensor) -> None:
        """Keep these rows alone: the others have ended."""
        for layer in self.layers:
            layer.select(rows)
        self.documents = None if self.documents is None else self.documents.index_select(0, rows)

    def join(self, newer: Cache) -> None:
        """Rows that another cache has read, behind these; who is shorter stands behind padding, which nobody sees."""
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
        """Which document each token is of, where that was not told: all of one."""
        room = self.layers[0].room
        assert room is not None
        ones = torch.ones(room.shape[1], self.length, dtype=torch.int64, device=room.device)
        return ones if self.documents is None else self.documents

    def _trim(self) -> None:
        """Without padding that stands before all rows."""
        if self.documents is None:
            return
        lead = int((self.documents == 0).all(0).long().cumprod(0).sum())
        if lead:
            self.documents, self.length = self.documents[:, lead:], self.length - lead
            for layer in self.layers:
                layer.drop(lead)

    def nearby(self, visible: Tensor | None, new: int, reach: int, device: torch.device) -> Tensor | None:
        """What of it is no further than `reach` before; None: that is all."""
        if self.length <= reach + 1:
            return visible
        within = near(self.length, reach, device)[-new:]
        return (within & lower(self.length, device)[-new:])[None, None] if visible is None else visible & within


class SelfAttention(nn.Module):
    """Scaled dot-product attention over the tokens that may see each other."""

    def __init__(
        self, width: int, heads: int, dropout: float, *, causal: bool, bias: bool = True, scale: float | None = None
    ) -> None:
        """`scale`: what products of queries and keys are multiplied by; None: 1 / sqrt(d)."""
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
        kept: KeyValueCache | None = None,
        mix: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """`turn`: cosine and sine of every place's angles, [B, T, d]; `kept`: what was read before; `mix`: the last
        product, where a block makes it otherwise."""
        output = self.mix if mix is None else mix  # `or` is a question that torch 2.11's compiler cannot put to methods
        fused = self.gather(x).unflatten(-1, (-1, 3, self.head))  # [B, T, H, 3, d]; heads follow the local width
        if turn is None and kept is None and (visible is None or isinstance(visible, Tensor)) and self._drops(fused):
            by_head: Tensor = output(self._attend_by_head(fused, visible).flatten(2))
            return by_head
        parts = fused.unbind(3) if turn is None else parted(fused, turn)
        query, key, value = (part.transpose(1, 2) for part in parts)  # each [B, H, T, d]
        if kept is not None:
            key, value = kept.extend(key, value)
        if isinstance(visible, EndToEnd):
            rate = self.dropout.rate if self.training else 0.0
            mixed = visible.attend(query, key, value, causal=self.causal, scale=self.scale, rate=rate)
        elif isinstance(visible, Runs):
            mixed = self._attend_by_run(query, key, value, visible)
        elif isinstance(visible, Neighbors):
            blocks = visible.queries(query), visible.looked_at(key), visible.looked_at(value)
            mixed = visible.rows(self._attend(*blocks, visible.scores, causal=False), query.shape[2])
        else:
            mixed = self._attend(query, key, value, visible, causal=self.causal or kept is not None)
        out: Tensor = output(mixed.transpose(1, 2).flatten(2))
        return out

    def _drops(self, fused: Tensor) -> bool:
        """Is this a step with dropout on a CPU, all in fp32?"""
        if not self.training or not self.dropout.rate or fused.device.type != "cpu" or fused.dtype != torch.float32:
            return False
        return not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()

    def _attend_by_head(self, fused: Tensor, visible: Tensor | None) -> Tensor:
        """[B, T, H, 3, d] -> [B, T, H, d]."""
        batch, length, heads = fused.shape[:3]
        if visible is None and self.causal:
            visible = lower(length, fused.device)[None, None]
        drawn = self.dropout.draw(torch.Size([batch, heads, length, length]))
        out: Tensor = HeadByHead.apply(fused, self.scale, _added(visible), *drawn)  # type: ignore[no-untyped-call]
        return out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, *, causal: bool) -> Tensor:
        rate = self.dropout.rate if self.training else 0.0
        causal = causal and visible is None and query.shape[2] > 1
        if rate == 0 and _learns_in_half(query, causal):
            return self._attend_by_blocks(query, key, value, visible, causal=causal)
        if rate == 0 or query.device.type != "cpu":
            return F.scaled_dot_product_attention(
                query, key, value, visible, dropout_p=rate, is_causal=causal, scale=self.scale
            )
        # with dropout torch's CPU kernel falls back to one that draws a number an element: by hand, with bytes
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()  # matmul would, at greater length
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
        """No token is compared with those that it does not see, and what is made of a run stays in the cache."""
        batch, heads, length, _ = query.shape
        apart = [x.transpose(0, 1).flatten(1, 2).split(runs.sizes, 1) for x in (query, key, value)]  # [H, run, d] each
        masks = self._masks(heads, runs.sizes)
        mixed = []
        for size, kept, own_query, own_key, own_value in zip(runs.sizes, masks, *apart, strict=True):
            seen = runs.seen(size, causal=self.causal)
            if kept is None and _learns_in_half(own_query):
                see = None if seen is None else seen[None, None]
                answer = self._attend_by_blocks(own_query[None], own_key[None], own_value[None], see)[0]
            elif kept is None:
                answer = F.scaled_dot_product_attention(
                    own_query[None], own_key[None], own_value[None], seen, scale=self.scale
                )[0]
            else:
                scores = torch.matmul(own_query * self.scale, own_key.transpose(-1, -2))
                scores = scores if seen is None else scores + seen
                answer = torch.matmul(scores.softmax(-1) * kept, own_value)
            mixed.append(answer.transpose(0, 1))
        out: Tensor = torch.cat(mixed).unflatten(0, (batch, length)).transpose(1, 2)
        return out

    def _masks(self, heads: int, sizes: tuple[int, ...]) -> list[Tensor] | list[None]:
        """Dropout's, of the scores of each run: cut from one draw."""
        if not self.training or not self.dropout.rate:
            return [None] * len(sizes)
        counts = [heads * size * size for size in sizes]
        drawn = self.dropout.mask(torch.Size([sum(counts)]), torch.float32).split(counts)
        return [mask.view(heads, size, size) for mask, size in zip(drawn, sizes, strict=True)]


def _added(visible: Tensor | None) -> Tensor | None:
    """A mask as scores, which it may be already."""
    return visible if visible is None or visible.dtype != torch.bool else as_scores(visible)


def _learns_in_half(query: Tensor, causal: bool = False) -> bool:
    """Is this a step in bf16 on a CPU, in which torch's kernel is slower than products?"""
    if query.device.type != "cpu" or not query.requires_grad or not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling() or (causal and query.shape[2] > QUERIES):  # that kernel leaves half of it out
        return False
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


@overload
def as_scores(visible: Tensor) -> Tensor: ...
@overload
def as_scores(visible: Visible) -> Visible: ...
def as_scores(visible: Visible) -> Visible:
    """0 where a token sees another, minus infinity elsewhere: what the kernels want, made once for all layers.

    On a GPU in the precision of the products: it would be made so in every layer.
    """
    if not isinstance(visible, Tensor):
        return visible
    kind, dtype = visible.device.type, torch.float32
    if kind != "cpu" and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)


def lower(length: int, device: torch.device) -> Tensor:
    """[T, T]: a token sees itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def near(length: int, reach: int, device: torch.device) -> Tensor:
    """[T, T]: a token sees no further than `reach` to either side."""
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions).abs() <= reach


def nearby(
    visible: Visible, reach: int, tokens: Tensor, *, causal: bool = False, blocks: nn.ModuleList | None = None
) -> Visible:
    """What is visible and no further than `reach` to either side; of masks [1 or B, 1, T, T]; None: that is all.

    `causal`: where nothing is told, a token sees only what stands before it. `blocks` are those that will look: they
    may be told texts end to end on a GPU, and on a CPU neighbors, where rows are long.
    """
    batch, length = tokens.shape
    if length <= reach + 1:
        return visible
    assert not isinstance(visible, Neighbors)
    if isinstance(visible, EndToEnd):
        return replace(visible, reach=reach)
    if visible is None and (packed := _end_to_end(blocks, EndToEnd.rows(batch, length, reach, tokens.device))):
        return packed
    if tokens.device.type == "cpu" and _can_be_told(blocks) and 0 < FAR * reach <= length:
        scored = batch * length * 4 * reach
        if not isinstance(visible, Runs) or sum(size**2 for size in visible.sizes) > scored:
            return Neighbors.of(visible, reach, (batch, length), causal=causal)
    if isinstance(visible, Runs):
        return replace(visible, reach=reach)
    within = near(length, reach, tokens.device)
    if visible is None:
        return (within & lower(length, tokens.device) if causal else within)[None, None]
    return visible & within


def _can_be_told(blocks: nn.ModuleList | None) -> bool:
    """Do these blocks look at more than masks, on a CPU?"""
    first: Any = blocks[0] if blocks is not None else None
    return first is not None and not first.compiled


def _end_to_end(blocks: nn.ModuleList | None, packed: EndToEnd) -> EndToEnd | None:
    """The same, where these blocks can look at texts end to end."""
    if blocks is None or len(packed.bounds) > MOST:
        return None
    first: Any = blocks[0]
    device, attention = packed.bounds.device, first.attention
    half = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if half else next(attention.parameters()).dtype
    if why_not(device, dtype, attention.head):
        return None
    if first.compiled:  # every batch has another number of texts
        torch._dynamo.maybe_mark_dynamic(packed.bounds, 0)
    return packed


def visibility(
    documents: Tensor | Texts | None, *, causal: bool, rows: Tensor | None = None, blocks: nn.ModuleList | None = None
) -> Visible:
    """[B, 1, T, T] True where a token may see another; None where the kernel needs no mask.

    `rows`, [B], says which rows see only what stands before, in a network that can do both. `blocks` are those that
    will look: they may be told texts end to end on a GPU, and on a CPU runs, where that is cheaper.
    """
    if documents is None:
        if rows is not None:
            raise ValueError("rows of both kinds need their documents")
        return None
    if isinstance(documents, Texts):
        packed = _end_to_end(blocks, EndToEnd(documents.bounds, documents.documents.shape[1]))
        if packed and rows is None:
            return packed
        documents = documents.documents
    first: Any = blocks[0] if blocks is not None else None
    if _can_be_told(blocks) and rows is None and (runs := _runs(documents, first.attention.heads)):
        return runs
    same = documents[:, None, :, None] == documents[:, None, None, :]
    if rows is not None:
        return same & (lower(documents.shape[1], documents.device) | ~rows[:, None, None, None])
    return same & lower(documents.shape[1], documents.device) if causal else same


def _runs(documents: Tensor, heads: int) -> Runs | None:
    """The documents as runs, where that is cheaper than a mask over rows; each must stand in one piece."""
    if documents.device.type != "cpu" or not (documents > 1).any():  # rows of one text: a mask
        return None
    if (cuts := bounds(documents)) is None:
        return None
    batch, length = documents.shape
    sizes = cuts.diff().tolist()
    saved = heads * (batch * length**2 - sum(size**2 for size in sizes))
    return Runs(tuple(sizes)) if saved > CALL * len(sizes) else None
