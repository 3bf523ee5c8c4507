"""Layout: how machines run a training: mesh, micro-batches, precision, recomputing, compiling.

Without dropout, the layout changes results only by rounding. Impossible layouts are refused.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine.threads import MAX_THREADS
from ordsmed.base.say import many
from ordsmed.base.settings import as_toml
from ordsmed.data.loader import Share
from ordsmed.learn.phases import Phase
from ordsmed.nn.model import ModelSettings

MOST_WORKERS = 1024
TOKENS_HELD = {"cpu": 8_192, "cuda": 65_536}  # a micro-batch that keeps the device busy without filling its memory


@dataclass(frozen=True)
class Layout:
    """How the machine runs a training. Without dropout, results depend on it only by rounding."""

    replicate: int = 0
    """ranks that each hold a copy of the weights (DDP); 0: all ranks that shard and tensor do not use"""
    shard: int = 1
    """ranks over which weights, gradients and moments are split (FSDP2); 1: not split"""
    tensor: int = 1
    """ranks that split every layer (tensor parallelism), best on one machine; 1: not split; elsewhere
    tensor_model_parallel_size"""
    micro: int | tuple[int, ...] = 0
    """rows of a micro-batch on each device, one number or one for each phase; 0: as many as `tokens` allows; elsewhere
    per_device_train_batch_size, micro_batch_size, gradient_accumulation_steps"""
    tokens: int = 0
    """tokens of a micro-batch if `micro` is 0; 0: about 8 thousand on a CPU, 64 thousand on a GPU"""
    precision: Literal["fp32", "tf32", "bf16", "fp16", "auto"] = "auto"
    """number format of products: fp32, TF32 (NVIDIA since Ampere), bf16, or fp16 with loss scaling; weights are always
    fp32; auto: the 16-bit format that the GPU has units for; on a CPU bf16 if a measurement finds steps at least a
    fifth faster, else fp32; a run keeps the choice; elsewhere fp16, bf16, amp, mixed_precision"""
    exact: tuple[Literal["embeddings", "norms", "types"], ...] = ()
    """with bf16 or fp16: parts that are still computed in fp32"""
    fp8: bool = False
    """with bf16: 8-bit products in the blocks' linear layers, on Ada, Hopper and later GPUs; not measured on any yet"""
    reduce: Literal["fp32", "bf16", "fp16"] = "fp32"
    """number format in which gradients are summed over ranks"""
    overlap: bool = True
    """sum gradients of copies during the backward pass; false: after it"""
    reshard: bool = True
    """free gathered weights after a block's forward pass and gather them again for its backward pass; false: keep them
    until then"""
    sequence: bool = True
    """tensor parallelism: also split norms and dropout, along the sequence"""
    divisible: int = 128
    """tensor parallelism: the vocabulary is split into parts of a multiple of this many rows"""
    recompute: bool = False
    """keep only the inputs of blocks, and compute their activations again in the backward pass; elsewhere
    gradient_checkpointing"""
    compile: bool = False
    """compile each block by torch.compile; elsewhere torch_compile"""
    kernels: Literal["auto", "plain"] = "auto"
    """auto: this project's kernels on a GPU where results equal torch's (dropout draws other numbers), and oneDNN's
    fp32 products on AMD CPUs since Zen 5; plain: torch's kernels only"""
    scale: float = 65_536.0
    """fp16: initial factor of the loss; halved when gradients overflow; elsewhere loss_scale"""
    scale_window: int = 1_000
    """fp16: good steps after which the factor is doubled; 0: the factor is fixed, and overflow is trouble"""
    device: str = "auto"
    """cpu, cuda, or auto: a GPU if there is one; elsewhere no_cuda, use_cpu"""
    threads: int = 0
    """CPU threads of a process; 0: as OMP_NUM_THREADS says, else its share of the idle cores"""
    workers: int = -1
    """processes that prepare batches in advance; -1: none on a CPU, some on a GPU; elsewhere num_workers,
    dataloader_num_workers"""
    deterministic: bool = False
    """on a GPU: use only kernels with the same bits every time; slower"""
    patience: float = 600.0
    """seconds without a step after which a rank counts as hanging"""
    background: bool = True
    """write checkpoints while training continues, from a copy of the tensors"""
    unsaved: bool = False
    """continue if the first checkpoint of a run cannot be written; false: the run stops"""
    writers: int = 0
    """of ranks that hold the same tensors, the number that write them, each a share; a writer keeps a copy of its share
    in memory; 0: at most 16, so that hundreds of ranks write few files"""

    def __post_init__(self) -> None:
        counts = {"replicate": 0, "shard": 1, "tensor": 1, "divisible": 1, "threads": 0, "tokens": 0, "workers": -1}
        for name, low in {**counts, "writers": 0, "scale": 1, "scale_window": 0}.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted {low} or more")
        for name, most in (
            ("threads", MAX_THREADS),
            ("workers", MOST_WORKERS),
            ("divisible", 1 << 20),
            ("patience", 1e8),
        ):
            if getattr(self, name) > most:
                raise ValueError(f"{name}: found {getattr(self, name):,}; wanted at most {most:,.0f}")
        micros = self.micro if isinstance(self.micro, tuple) else (self.micro,)
        if not micros or min(micros) < 0:
            raise ValueError(f"micro: found {as_toml(self.micro)}; wanted 0 or more, or a list of those")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ValueError(f"device: found {self.device}; wanted auto, cpu or cuda")
        if not 1 <= self.patience < float("inf"):
            raise ValueError(f"patience: found {self.patience}; wanted 1 or more seconds")
        if self.tensor > 1 and self.compile:
            raise ValueError(
                f"compile: found true with tensor {self.tensor}; wanted one of the two: torch's compiler gave other "
                "gradients under tensor parallelism in our trials, silently"
            )
        if self.fp8 and self.precision not in ("bf16", "auto"):
            raise ValueError(f"fp8: found true with {self.precision}; wanted bf16, the format of all other products")
        if self.fp8 and self.tensor > 1:
            raise ValueError(f"fp8: found true with tensor {self.tensor}; wanted one of the two")
        if self.exact and self.precision not in ("bf16", "fp16", "auto"):
            raise ValueError(f"exact: found {as_toml(self.exact)} with {self.precision}; wanted bf16 or fp16")

    @property
    def half(self) -> bool:
        return self.precision in ("bf16", "fp16")

    def with_precision(self, precision: str) -> Layout:
        """Return the layout with the chosen precision if it was open; `exact` is dropped in fp32."""
        if self.precision != "auto":
            return self
        precision = "bf16" if self.fp8 else precision
        exact = self.exact if precision in ("bf16", "fp16") else ()
        return dataclasses.replace(self, precision=precision, exact=exact)  # type: ignore[arg-type]

    def shape(self, world: int) -> tuple[int, int, int]:
        """Return replicate, shard and tensor for `world` processes; raise if they do not divide it."""
        split = self.shard * self.tensor
        if self.replicate:
            if self.replicate * split != world:
                problem = f"found {self.replicate} x {self.shard} x {self.tensor} = {self.replicate * split}"
                raise RecipeError("layout.replicate", problem, f"{world}, as many as there are processes", _more(split))
            return self.replicate, self.shard, self.tensor
        if world % split:
            key = "layout.shard" if self.shard > 1 else "layout.tensor"
            problem = f"found shard {self.shard} x tensor {self.tensor} = {split}"
            does_not = f"{problem}, which does not divide {many(world, 'process')}"
            raise RecipeError(key, does_not, "", f"{_sizes(world)}; {_more(split)}")
        return world // split, self.shard, self.tensor

    def micro_of(self, number: int) -> int:
        """Return the micro-batch set for a phase (1 is the first); 0: not set."""
        if not isinstance(self.micro, tuple):
            return self.micro
        if number > len(self.micro):
            raise RecipeError("layout.micro", f"found {many(len(self.micro), 'number')}", f"{number} or more")
        return self.micro[number - 1]

    def share(self, phase: Phase, number: int, device: str, rank: int = 0, world: int = 1) -> Share:
        """Return how a phase's batch is split over ranks with different rows; raise if it is not divisible.

        If the batch grows, every size is a multiple of its unit, which must be divisible.
        """
        location, problem, unit = f"phase[{number}].batch", f"found {phase.batch}", phase.unit
        if phase.batch_ramp:
            location, problem = f"{location}_ramp", f"found batches of multiples of {unit}"
        if unit % world:
            wanted = f"a multiple of the {many(world, 'device')}"
            if self.tensor > 1:  # the devices of a tensor group see the same rows
                wanted = f"a multiple of {world}, for {many(world * self.tensor, 'device')} in groups of {self.tensor}"
            fewer = _divisor(unit, world - 1)
            raise RecipeError(
                location, problem, wanted, f"use {_near(unit, world)}, or {many(fewer * self.tensor, 'device')}"
            )
        rows, asked = unit // world, self.micro_of(number)
        most = asked or max(1, (self.tokens or TOKENS_HELD.get(device, 8_192)) // phase.length)
        if asked and rows % asked:
            product = f"micro {asked} x {many(world, 'device')} = {asked * world}"
            fits = _divisor(rows, asked - 1)
            remedy = f"use {_near(unit, asked * world)}, or layout.micro={fits}"
            raise RecipeError(location, f"{problem}, not a multiple of {product}", "", remedy)
        micro = asked or _divisor(rows, most)
        return Share(phase.batch, micro, rank, world, phase.sizes if phase.steps else None)

    def check(self, settings: ModelSettings, lengths: list[int], world: int, *, whose: str = "model") -> None:
        self.shape(world)
        kind = type(settings).__module__.rpartition(".")[2]
        if self.compile and not settings.capabilities.compiled:
            problem = f"found true, but the gradients of {kind}'s layers are written by hand and cannot be compiled"
            raise RecipeError("layout.compile", problem, "false")
        if self.tensor > 1:
            if not settings.capabilities.tensor:
                raise RecipeError("layout.tensor", f"found {self.tensor}, but {kind} cannot be split", "1", "use shard")
            for name in ("heads", "inner"):
                if (count := getattr(settings, name, 0)) % self.tensor:
                    size = many(count, "head") if name == "heads" else f"{count:,} {name}"
                    problem = f"found {self.tensor}, which does not divide the {whose}'s {size}"
                    raise RecipeError("layout.tensor", problem, "", _sizes(count))
            odd = [length for length in lengths if length % self.tensor]
            if self.sequence and odd:
                problem = f"found true, but rows of {odd[0]} are no multiple of tensor {self.tensor}"
                raise RecipeError("layout.sequence", problem, "", "use `layout.sequence=false` or another length")

    def meant(self) -> int:
        """Return the smallest number of processes that the layout needs."""
        return (self.replicate or 1) * self.shard * self.tensor

    def fitted(
        self, phases: Sequence[Phase], world: int, before: Sequence[Mapping[str, Any]] = (), *, asked: set[str]
    ) -> tuple[Layout, str]:
        """Return the layout changed to fit `world` processes, and the changes as text.

        `before` lists the meshes that the run has used; the last one for as many processes is used again. Settings in
        `asked` are not changed; if they are impossible, later checks raise.
        """
        fits = self.meant() == world if self.replicate else world % self.meant() == 0
        shard, tensor = self.shard, self.tensor
        if not fits and asked & {"replicate", "shard", "tensor"}:
            return self, ""
        known = [entry["mesh"] for entry in before if entry["processes"] == world]
        if known and before[-1]["processes"] != world and not asked & {"replicate", "shard", "tensor"}:
            _, shard, tensor = known[-1]
            fits = fits and (shard, tensor) == (self.shard, self.tensor)
        if not fits:
            tensor = math.gcd(tensor, world)
            shard = math.gcd(shard, world // tensor)
        laid = self if fits else dataclasses.replace(self, replicate=0, shard=shard, tensor=tensor)
        data_world, micro = world // laid.tensor, []
        for number, phase in enumerate(phases, 1):
            own, rows = phase.unit // data_world, self.micro_of(number)
            fits_not = rows and own % rows and "micro" not in asked
            micro.append(next(n for n in range(min(rows, own) or 1, 0, -1) if own % n == 0) if fits_not else rows)
        if micro != [self.micro_of(number) for number in range(1, len(phases) + 1)]:
            laid = dataclasses.replace(laid, micro=micro[0] if len(micro) == 1 else tuple(micro))
        if laid == self:
            return self, ""
        told = [] if fits else [f"{self._mesh()} became {' x '.join(map(str, laid.shape(world)))}"]
        told += [f"micro {list(micro)}"] if laid.micro != self.micro else []
        return laid, f"its layout on {many(world, 'process')}: {', '.join(told)}"

    def _mesh(self) -> str:
        return f"{self.replicate or 'any'} x {self.shard} x {self.tensor}"

    def describe(self, world: int) -> str:
        replicate, shard, tensor = self.shape(world)
        parts = [f"{replicate} x {shard} x {tensor} (replicate x shard x tensor)"]
        if replicate > 1 and shard == 1:
            parts.append(
                "copies sum gradients " + ("during" if self.overlap and tensor == 1 else "after") + " the backward pass"
            )
        if shard > 1:
            parts.append(
                "weights split"
                + (", over copies" if replicate > 1 else "")
                + ("" if self.reshard else ", kept between forward and backward")
            )
        if tensor > 1:
            parts.append("layers split" + (", rows between them too" if self.sequence else ""))
        parts += [name for name in ("recompute", "compile") if getattr(self, name)]
        if world > 1 and self.reduce != "fp32":
            parts.append(f"gradients travel in {self.reduce}")
        return "; ".join(parts)


def arithmetic(phase: Phase, number: int, share: Share) -> str:
    """Return a phase's batch as micro x accumulation x devices, as text."""
    long = many(phase.steps, "step") if phase.steps else many(phase.epochs, "epoch")
    long += f" or {many(phase.max_steps, 'step')}, whichever is less," if phase.max_steps else ""
    return (
        f"phase {number}: {long} of {_rows(phase)} x {many(phase.length, 'token')}; batch = micro "
        f"{share.micro} x accumulation {share.accumulation} x devices {share.world}"
    )


def _rows(phase: Phase) -> str:
    """Return the rows of a step as text; if the batch grows, its first and last size."""
    if not (ramp := phase.batch_ramp) or ramp.start == phase.batch:
        return many(phase.batch, "row")
    if not phase.steps:
        return f"{ramp.start:,} to {many(phase.batch, 'row')}"
    last = phase.rows_of(phase.steps - 1)[1]
    if last < phase.batch:
        return f"{ramp.start:,} to {many(last, 'row')} (it ends before the batch reaches {phase.batch:,})"
    return f"{ramp.start:,} to {many(last, 'row')} (from step {phase.ramp_steps + 1:,} on)"


def parse(text: str, layout: Layout) -> Layout:
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
    if not match:
        raise RecipeError("--layout", f"found {text}", "auto, or replicate x shard x tensor as in 2x4x1")
    replicate, shard, tensor = map(int, match.groups())
    return dataclasses.replace(layout, replicate=replicate, shard=shard, tensor=tensor)


SEARCHED = 1_000_000  # limit of the search for divisors


def _divisor(rows: int, most: int) -> int:
    return next(n for n in range(min(most, rows, SEARCHED), 0, -1) if rows % n == 0)


def _near(batch: int, unit: int) -> str:
    below = batch // unit * unit
    return f"{below} or {below + unit}" if below else f"{unit}"


def _more(split: int) -> str:
    return f"or start a multiple of {many(split, 'process')} (--devices)" if split > 1 else "or leave it out"


def _sizes(number: int) -> str:
    return "it can be " + ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
