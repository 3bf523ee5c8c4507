"""Attention for training on a CPU, where torch's kernel has no dropout or has a slow backward pass in 16 bits.

With dropout in fp32, attention is computed head by head. Separate torch operators would copy queries, keys, values and
their gradients into contiguous tensors. In bf16 without dropout, the gradients of torch's kernel take two to four times
as long as explicit products, so they are computed block by block. In both cases the scores of a head or block stay in
the cache.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordsmed.nn.context import Context
from ordsmed.nn.dropout import factors

HEAD_SCORES = 1 << 17  # scores per thread that `HeadByHead` computes at a time: half a MB
BLOCK_SCORES = 1 << 20  # scores that `BackByBlocks` computes at a time
QUERIES = 512  # queries per block of `BackByBlocks`: smaller products are slow


class HeadByHead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, fused: Tensor, scale: float, seen: Tensor | None, drawn: Tensor, factor: float) -> Tensor:
        """Attend with `seen`, [1 or B, 1, T, T], added to the scores.

        Attention weights are kept where `drawn`, [B, H, T, T], is 1, and multiplied by `factor`.
        """
        batch, length, heads = fused.shape[:3]
        shares = fused.new_empty(heads, batch, length, length)
        out = torch.empty_like(fused[:, :, :, 0], memory_format=torch.contiguous_format)
        for head, rows in _parts(shares):
            query, key, value = fused[rows, :, head].unbind(2)
            share = shares[head, rows]
            torch.bmm(query * scale, key.transpose(1, 2), out=share)
            if seen is not None:
                share += seen[rows if len(seen) > 1 else slice(None), 0]
            torch.softmax(share, -1, out=share)
            torch.bmm(factors(drawn[rows, head], factor, share.dtype).mul_(share), value, out=out[rows, :, head])
        ctx.save_for_backward(fused, shares, drawn)
        ctx.scale, ctx.factor = scale, factor
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        fused, shares, drawn = ctx.saved_tensors
        gradient, gradients = gradient.contiguous(), torch.empty_like(fused, memory_format=torch.contiguous_format)
        for head, rows in _parts(shares):
            query, key, value = fused[rows, :, head].unbind(2)
            to_query, to_key, to_value = gradients[rows, :, head].unbind(2)
            share, above = shares[head, rows], gradient[rows, :, head]
            mask = factors(drawn[rows, head], ctx.factor, share.dtype)
            to_scores = torch.bmm(above, value.transpose(1, 2)).mul_(mask)
            torch.bmm(mask.mul_(share).transpose(1, 2), above, out=to_value)
            torch.ops.aten._softmax_backward_data.out(to_scores, share, -1, share.dtype, grad_input=to_scores)
            torch.bmm(to_scores, key, out=to_query)
            to_query *= ctx.scale
            torch.bmm(to_scores.transpose(1, 2), query * ctx.scale, out=to_key)
        return gradients, None, None, None, None


class BackByBlocks(torch.autograd.Function):
    """torch's flash kernel on [B, H, T, d], with a backward pass that recomputes the attention weights by products."""

    @staticmethod
    def forward(
        ctx: Context, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        out, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=causal, attn_mask=seen, scale=scale
        )
        ctx.save_for_backward(query, key, value, seen)
        ctx.causal, ctx.scale = causal, scale
        return out  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        query, key, value, seen = ctx.saved_tensors
        query, gradient = (query * ctx.scale).contiguous(), gradient.contiguous()
        key, value = key.contiguous(), value.contiguous()  # 16-bit products of strided tensors are slow
        if ctx.causal:
            seen = query.new_full((1, 1, query.shape[2], key.shape[2]), -torch.inf).triu_(1)
        to_query, to_key, to_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        for part in _chunks(query.shape, key.shape[2]):
            part_key, part_value = key[part].flatten(0, 1), value[part].flatten(0, 1)
            of_key, of_value = (torch.zeros_like(part_key, dtype=torch.float32) for _ in range(2))
            for first in range(0, query.shape[2], QUERIES):
                queries = slice(first, first + QUERIES)
                block_query, above = (x[part][:, :, queries].flatten(0, 1) for x in (query, gradient))
                shares = torch.bmm(block_query, part_key.transpose(1, 2))
                if seen is not None:
                    by_row = shares.view(-1, query[part].shape[1], *shares.shape[1:])
                    by_row += seen[part[0] if len(seen) > 1 else slice(None), :, queries]
                shares = shares.softmax(-1)
                to_scores = torch.bmm(above, part_value.transpose(1, 2))
                of_value += torch.bmm(shares.transpose(1, 2), above)
                to_scores = torch.ops.aten._softmax_backward_data(to_scores, shares, -1, shares.dtype)
                of_query = torch.bmm(to_scores, part_key).mul_(ctx.scale)
                to_query[part][:, :, queries] = of_query.view_as(to_query[part][:, :, queries])
                of_key += torch.bmm(to_scores.transpose(1, 2), block_query)
            to_key[part] = of_key.view_as(to_key[part])
            to_value[part] = of_value.view_as(to_value[part])
        return to_query, to_key, to_value, None, None, None


def _parts(shares: Tensor) -> Iterator[tuple[int, slice]]:
    heads, batch, length, _ = shares.shape
    rows = max(1, HEAD_SCORES * torch.get_num_threads() // length**2)
    for head in range(heads):
        yield from ((head, slice(first, first + rows)) for first in range(0, batch, rows))


def _chunks(shape: torch.Size, keys: int) -> Iterator[tuple[slice, slice]]:
    batch, heads, length, _ = shape
    fit = max(1, BLOCK_SCORES // (min(length, QUERIES) * keys))
    rows, some = max(1, fit // heads), min(fit, heads)
    for first in range(0, batch, rows):
        yield from ((slice(first, first + rows), slice(head, head + some)) for head in range(0, heads, some))
