"""Precision: the number format of products, the operations that stay in fp32, and the loss scaling of fp16.

With 16 bits, torch's autocast casts the inputs of products; weights, gradients and moments are always fp32.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from ordsmed.base.errors import RecipeError, Trouble
from ordsmed.base.machine.devices import Accelerator, card_of, has_tf32, lacks_fp8
from ordsmed.nn.residual import exact_norm, half_norm
from ordsmed.train.mesh.layout import Layout

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
UNITS = {"AMX": "_is_amx_tile_supported", "AVX512_BF16": "_is_avx512_bf16_supported"}  # for bf16: torch.cpu names
HALVES = (7, 0)  # least compute capability of NVIDIA GPUs with 16-bit product units
LEAST_SCALE = 1.0


def autocast(layout: Layout, device: torch.device) -> contextlib.AbstractContextManager[object]:
    return torch.autocast(device.type, DTYPES[layout.precision]) if layout.half else contextlib.nullcontext()


def set_up(layout: Layout, device: torch.device) -> str:
    """Set TF32, and describe the precision in a line; raise if the device does not support it."""
    assert layout.precision != "auto", "a precision is chosen before anything is built"
    cuda = device.type == "cuda"
    arch = torch.cuda.get_device_capability(device) if cuda else (0, 0)
    name = torch.cuda.get_device_name(device) if cuda else "a CPU"
    if layout.precision == "tf32" and not has_tf32(arch):
        raise RecipeError("layout.precision", f"found tf32, which {name} does not have", "", "use fp32 or fp16")
    if layout.precision == "bf16" and cuda and arch < (8, 0):
        raise RecipeError("layout.precision", f"found bf16, which {name} does not have", "", "use fp16")
    if layout.fp8 and (lacks := lacks_fp8(device)):
        raise RecipeError("layout.fp8", f"found true, which {lacks}", "false")
    with warnings.catch_warnings():
        # torch 2.9 and later prefer `fp32_precision`; if only that is set, code that reads `allow_tf32` fails
        warnings.simplefilter("ignore", UserWarning)
        torch.backends.cuda.matmul.allow_tf32 = layout.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = layout.precision == "tf32"
    return _describe(layout, cuda, arch, name)


def fastest_format(device: torch.device, card: Accelerator | None = None) -> str:
    """Return bf16 or fp16 if a GPU has units for it, else fp32. `card` is the GPU of a planned site.

    If no GPU is known, a recent one is assumed.
    """
    card = card or card_of(device)
    return "bf16" if card is None or card.capability >= (8, 0) else "fp16" if card.capability >= HALVES else "fp32"


def expected_layout(layout: Layout, device: torch.device, card: Accelerator | None = None) -> Layout:
    """Return the layout with the precision that `auto` is expected to choose. `card` is the GPU of a planned site."""
    return layout.with_precision("fp32" if device.type != "cuda" else fastest_format(device, card))


def _describe(layout: Layout, cuda: bool, arch: tuple[int, int], name: str) -> str:
    less = ", of 8 bits in the blocks' linear layers" if layout.fp8 else ""
    fixed = "" if layout.scale_window else " throughout"
    text = {
        "fp32": "fp32",
        "tf32": "TF32 products, all else fp32",
        "bf16": f"bf16 products{less}, fp32 weights",
        "fp16": f"fp16 products, fp32 weights, loss scaled by {layout.scale:,.0f}{fixed}",
    }[layout.precision]
    if layout.half:
        exact = [w for w in ("embeddings", "norms", "types") if w in layout.exact]
        text += f"; fp32 kept for {', '.join(exact)}" if exact else "; outputs of embeddings and norms in 16 bits"
    if cuda and layout.precision == "fp32" and arch < HALVES:
        return f"precision: {text} ({name} has no 16-bit units)"
    if cuda and layout.precision == "fp32":
        faster = "bf16 or tf32" if has_tf32(arch) else "bf16" if arch >= (8, 0) else "fp16"
        return f"precision: {text} (set by the recipe; {faster} is faster on {name})"
    if cuda and layout.precision == "tf32":
        return f"precision: {text} (set by the recipe; bf16 is faster on {name})"
    if cuda and layout.precision == "fp16" and arch >= (8, 0):
        return f"precision: {text} (bf16 is as fast on {name} and needs no scaling)"
    if not cuda and layout.precision == "fp32":
        units = next((name for name, attribute in UNITS.items() if getattr(torch.cpu, attribute, bool)()), "")
        reason = (
            f"set by the recipe, or bf16 was less than a fifth faster on this CPU with {units}"
            if units
            else "16 bits are slower on most CPUs"
        )
        return f"precision: {text} ({reason})"
    return f"precision: {text}"


def return_half(objective: nn.Module, layout: Layout) -> None:
    """Let embeddings and norms return 16 bits, unless `layout.exact` names them."""
    if not layout.half:
        return
    dtype = DTYPES[layout.precision]
    for name, module in objective.named_modules():
        if isinstance(module, nn.Embedding):
            use = "types" if name.rpartition(".")[2] == "types" else "embeddings"
            if use not in layout.exact:
                module.register_forward_hook(lambda _, __, out: out.to(dtype))
        elif isinstance(module, nn.LayerNorm):
            module.forward = types.MethodType(exact_norm if "norms" in layout.exact else half_norm, module)  # type: ignore[method-assign]


class _InHalf(torch.autograd.Function):
    """Cast many weights to 16 bits by one kernel, and their gradients to fp32 by one kernel."""

    @staticmethod
    def forward(ctx: FunctionCtx, dtype: torch.dtype, *whole: Tensor) -> tuple[Tensor, ...]:
        halves = [torch.empty_like(weight, dtype=dtype) for weight in whole]
        torch._foreach_copy_(halves, list(whole))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(half for half, weight in zip(halves, whole, strict=True) if not weight.requires_grad)
        )
        return tuple(halves)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        there = [gradient for gradient in gradients if gradient is not None]
        exact = [torch.empty_like(gradient, dtype=torch.float32) for gradient in there]
        if there:
            torch._foreach_copy_(exact, there)
        whole = iter(exact)
        return None, *(None if gradient is None else next(whole) for gradient in gradients)


def cast_at_once(block: nn.Module, dtype: torch.dtype, *, norms: bool) -> None:
    """Let a block cast all its weights together; autocast would start two kernels for each of them."""
    layers = [m for m in block.modules() if type(m) is nn.Linear or (norms and type(m) is nn.LayerNorm)]
    places = [(layer, name) for layer in layers for name, weight in layer._parameters.items() if weight is not None]
    inner: Callable[..., Tensor] = block.forward

    def forward(*inputs: object, **more: object) -> Tensor:
        whole = [layer._parameters[name] for layer, name in places]
        if not torch.is_autocast_enabled(whole[0].device.type):  # type: ignore[union-attr]
            return inner(*inputs, **more)
        halves = _InHalf.apply(dtype, *whole)  # type: ignore[no-untyped-call]
        try:
            for (layer, name), half in zip(places, halves, strict=True):
                layer._parameters[name] = half
            return inner(*inputs, **more)
        finally:
            for (layer, name), weight in zip(places, whole, strict=True):
                layer._parameters[name] = weight

    if places:
        block.forward = forward


@dataclass
class Scaler:
    """The loss scale of fp16. Overflow halves it and skips the step; `window` good steps double it."""

    factor: float = 1.0
    window: int = -1  # 0: the factor is fixed; -1: no scaling
    good: int = 0

    @staticmethod
    def of(layout: Layout) -> Scaler:
        return Scaler(layout.scale, layout.scale_window) if layout.precision == "fp16" else Scaler()

    def accept(self, norm: Tensor, location: str) -> bool:
        """Return whether the gradient is finite, and adjust the scale; raise `Trouble` if it cannot get smaller."""
        if self.window < 0:
            return True
        if torch.isfinite(norm):
            self.good += 1
            if self.window and self.good % self.window == 0:
                self.factor *= 2
            return True
        if not self.window:
            problem = f"gradients contain NaN or Inf at the fixed scale {self.factor:g}"
            raise Trouble(location, problem, "finite ones", "a smaller `layout.scale`, or `layout.scale_window=1000`")
        if self.factor <= LEAST_SCALE:
            raise Trouble(location, "gradients contain NaN or Inf at the smallest scale", "finite ones")
        self.factor, self.good = max(self.factor / 2, LEAST_SCALE), 0
        return False

    def describe(self) -> dict[str, float]:
        return {"scale": self.factor} if self.window >= 0 else {}

    def state(self) -> dict[str, float]:
        return {"factor": self.factor, "good": self.good} if self.window >= 0 else {}

    def restore(self, state: dict[str, float]) -> None:
        if self.window > 0 and state:
            self.factor, self.good = float(state["factor"]), int(state["good"])
