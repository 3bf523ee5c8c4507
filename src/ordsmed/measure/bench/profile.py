"""Profile of training steps with torch's profiler: products, attention, head, optimizer, other, waiting.

Every operation is classified by its name, its shapes and its callers. On a GPU its time is that of the kernels it
started, on a CPU its own time. The rest of a step is the time between operations: Python, or an idle GPU.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

KINDS = ("products", "attention", "head", "optimizer", "other", "waiting", "between")
PRODUCTS = ("::mm", "::addmm", "::bmm", "::baddbmm", "::matmul", "::linear", "::_addmm", "mkldnn")
ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention", "attention_for_cpu", "cudnn_attention")
OPTIMIZER = (
    "Optimizer.",
    "_fused_adam",
    "_fused_adagrad",
    "_fused_sgd",
    *(f"_foreach_{word}" for word in ("norm", "mul", "add", "sqrt", "div", "lerp", "pow", "neg", "sub", "maximum")),
)
BATCHED = ("aten::bmm", "aten::baddbmm", "aten::_softmax", "aten::_softmax_backward_data")  # attention, not fused
SAMPLED = "_SampledLoss"  # scores of sampled words, whose number may equal another width
LOOKED_UP = ("embedding", "index", "gather")  # table lookups are not scores


@dataclass(frozen=True)
class VocabularySizes:
    """Widths of vocabulary scores; tables may be padded to round sizes, by up to `room`."""

    sizes: Set[int]
    room: int = 128

    def __contains__(self, size: int) -> bool:
        return any(whole <= size < whole + self.room for whole in self.sizes)


@dataclass
class Profile:
    device: torch.device
    wide: VocabularySizes
    attends: bool  # does the network have attention?
    seconds: dict[str, float] = field(default_factory=dict)
    began: float = 0.0

    def begin(self) -> None:
        cuda = self.device.type == "cuda"
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # otherwise it prints to stderr
        self.profiler = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])], record_shapes=True
        )
        self.profiler.__enter__()
        self.began = time.perf_counter()

    def end(self, waiting: float) -> None:
        """Stop the profiler; `waiting` is the number of seconds in which the steps waited for rows."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        total = time.perf_counter() - self.began
        self.profiler.__exit__(None, None, None)
        cuda = self.device.type == "cuda"
        busy = seconds_by_kind(self.profiler.events() or (), self.wide, cuda=cuda, attends=self.attends)
        self.seconds = {**busy, "waiting": waiting, "between": max(0.0, total - waiting - sum(busy.values()))}

    def shares(self) -> dict[str, float]:
        total = sum(self.seconds.values())
        return {kind: round(self.seconds[kind] / total, 4) for kind in KINDS}


def seconds_by_kind(
    events: Iterable[FunctionEvent], vocabulary_sizes: VocabularySizes, *, cuda: bool, attends: bool
) -> dict[str, float]:
    """Return the seconds of operations by kind: of their kernels on a GPU, their own on a CPU.

    Kernels that no operation started belong to the optimizer, because it may use custom kernels.
    """
    seconds_of_kind, kernels = collections.Counter[str](), 0.0
    for event in events:
        if event.device_type != torch.autograd.DeviceType.CPU:
            kernels += 0 if event.is_user_annotation else event.self_device_time_total / 1e6
            continue
        microseconds = event.self_device_time_total if cuda else event.self_cpu_time_total
        if microseconds > 0:
            seconds_of_kind[kind_of(event, vocabulary_sizes, attends=attends)] += microseconds / 1e6
    seconds = {kind: float(seconds_of_kind[kind]) for kind in KINDS[:5]}
    seconds["optimizer"] += max(0.0, kernels - sum(seconds.values())) if cuda else 0.0
    return seconds


def kind_of(event: FunctionEvent, vocabulary_sizes: VocabularySizes, *, attends: bool) -> str:
    names = [event.name, *(caller.name for caller in _callers(event))]
    if any(word in name for name in names for word in OPTIMIZER):
        return "optimizer"
    if attends and (any(word in name for name in names for word in ATTENTION) or event.name in BATCHED):
        return "attention"
    if any(SAMPLED in name for name in names):
        return "head"
    sizes = {size for shape in event.input_shapes or () for size in _sizes(shape)}
    if any(size in vocabulary_sizes for size in sizes) and not any(word in event.name for word in LOOKED_UP):
        return "head"
    return "products" if any(word in event.name for word in PRODUCTS) else "other"


def _callers(event: FunctionEvent) -> Iterator[FunctionEvent]:
    caller = event.cpu_parent
    while caller is not None:
        yield caller
        caller = caller.cpu_parent


def _sizes(shape: Any) -> Iterator[int]:
    for size in shape:
        if isinstance(size, int):
            yield size
        else:
            yield from _sizes(size)
