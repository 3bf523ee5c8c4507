"""What a step does on a device, counted operation by operation: launches, bytes, and where the host waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FREE = frozenset(  # views and rooms: no kernel runs
    {
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "as_strided",
        "alias",
        "detach",
        "split",
        "unbind",
        "split_with_sizes",
        "unfold",
        "_reshape_alias",
        "reshape",
        "empty",
        "empty_like",
        "new_empty",
        "empty_strided",
        "new_empty_strided",
        "lift_fresh",
        "set_",
        "is_same_size",
        "is_pinned",
        "device",
    }
)
LOOKED_UP = frozenset(
    {"embedding", "index", "index_select", "gather", "nll_loss_forward"}
)  # which read as much as they write
SCATTERED = frozenset({"scatter_", "scatter_add_", "index_add_"})  # which touch as much as they are given
WRITTEN = frozenset({"zero_", "fill_", "copy_", "_foreach_copy_", "bernoulli_"})
WAITS = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "equal"})
COPIES = frozenset({"_to_copy", "copy_"})  # between host and device they wait, where they are not asked to go on
PRODUCTS = frozenset(
    {
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "attention",
        "attention_backward",
        "_varlen_attn",
        "_varlen_attn_backward",
        "_flash_attention_forward",
        "_flash_attention_backward",
    }
)


class Ledger(TorchDispatchMode):
    """Counts what runs on the device; what the host would wait for is answered with ones."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_device = any(tensor.device.type == "cuda" for tensor in given)
        if name in WAITS and (on_device or name == "_local_scalar_dense"):
            self.waits += [name] if on_device else []
            return self._answer(name, given[0])
        out = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if name in COPIES and _crosses([*given, *made]):  # `copy_` is asked by its third argument
            self.waits += [] if (kwargs or {}).get("non_blocking", args[2:3] == (True,)) else [name]
        if name not in FREE and (on_device or any(tensor.device.type == "cuda" for tensor in made)):
            self.launches[name] += 1
            changed = _changed(func, args, kwargs or {})
            over = changed if name in WRITTEN or "out" in (kwargs or {}) else []  # what was there is not read
            read = made if name in LOOKED_UP else _apart(given, over)
            if name in SCATTERED:
                read, changed, made = given[1:], given[-1:], []
            self.bytes[name] += sum(map(size, read)) + sum(map(size, [*changed, *_apart(made, changed)]))
        return out

    @staticmethod
    def _answer(name: str, asked: Tensor) -> Any:
        if name == "_local_scalar_dense":
            return True if asked.dtype == torch.bool else 1.0 if asked.is_floating_point() else 1
        if name == "nonzero":
            return torch.zeros(asked.numel(), asked.ndim, dtype=torch.int64, device=asked.device)
        raise AssertionError(f"{name}: nothing asks it so far")

    def told(self) -> dict[str, Any]:
        """Launches, waits and gigabytes: of products and attention, and of all else."""
        products = sum(count for name, count in self.bytes.items() if name in PRODUCTS)
        return {
            "launches": sum(self.launches.values()),
            "waits": self.waits,
            "products": products / 1e9,
            "names": sorted(self.launches),
            "traffic": (sum(self.bytes.values()) - products) / 1e9,
            "most": [[name, self.launches[name], round(count / 1e9, 2)] for name, count in self.bytes.most_common(12)],
        }


def _crosses(tensors: list[Tensor]) -> bool:
    """Do they lie on several devices?"""
    return len({tensor.device.type for tensor in tensors}) > 1


def _changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """What an operator writes into, of what it is given."""
    named = [*zip(func._schema.arguments, args, strict=False)]
    named += [(one, kwargs[one.name]) for one in func._schema.arguments if one.name in kwargs]
    written = [value for one, value in named if one.alias_info is not None and one.alias_info.is_write]
    return [leaf for leaf in tree_leaves(written) if isinstance(leaf, Tensor)]


def _apart(tensors: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Those that are none of the others."""
    return [tensor for tensor in tensors if not any(tensor is other for other in others)]


def size(tensor: Tensor) -> int:
    """Bytes that a kernel touches: what is only repeated counts once."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= length if stride else 1
    return count * tensor.element_size()


_library = torch.library.Library("ordsmed_ledger", "FRAGMENT")
_library.define("attention(Tensor q, Tensor k, Tensor v, Tensor? seen) -> Tensor")
_library.define(
    "attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor? seen)"
    " -> (Tensor, Tensor, Tensor)"
)


def _laid(query: Tensor) -> Tensor:
    batch, heads, length, width = query.shape
    return query.new_empty(batch, length, heads, width).transpose(1, 2)


_library.impl("attention", lambda q, k, v, seen: _laid(q), "Meta")
_library.impl("attention_backward", lambda gradient, q, k, v, out, seen: (_laid(q), _laid(q), _laid(q)), "Meta")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
        out: Tensor = torch.ops.ordsmed_ledger.attention(query, key, value, seen)
        ctx.save_for_backward(query, key, value, out, *([] if seen is None else [seen]))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *saved, out = ctx.saved_tensors[:3], ctx.saved_tensors[3]
        seen = ctx.saved_tensors[4] if len(ctx.saved_tensors) > 4 else None
        return (*torch.ops.ordsmed_ledger.attention_backward(gradient, *saved[0], out, seen), None)


@contextmanager
def one_kernel_of_attention() -> Iterator[None]:
    """As on a GPU, where a fake device would take the plain way; a bool mask is made one of scores, as torch does."""
    before = F.scaled_dot_product_attention

    def attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None = None, **how: Any) -> Tensor:
        if seen is not None and seen.dtype == torch.bool:
            seen = torch.where(seen, 0.0, -torch.inf).to(query.dtype)
        out: Tensor = _Attention.apply(query, key, value, seen)  # type: ignore[no-untyped-call]
        return out

    F.scaled_dot_product_attention = attend  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = before  # type: ignore[assignment]
