"""Settings of kernels that only a GPU can choose between: each tried at a real size, its time and what it moves.

python tests/measure/gpu_sweep.py [--small]
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
from gpu_parts import DEVICE, SMALL, made, tell

if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported


def sweep(module: Any, act: Any, moved: float, **settings: tuple[int, ...]) -> None:
    """One setting after the other, the rest as it stands."""
    for name, values in settings.items():
        usual = getattr(module, name)
        for value in values[:1] if SMALL else values:
            setattr(module, name, value)
            mark = " (now)" if value == usual else ""
            tell(f"{module.__name__.rpartition('.')[2]}, {name} {value}{mark}", act, moved=moved)
        setattr(module, name, usual)


def main() -> None:
    if importlib.util.find_spec("triton") is None:
        print("Triton is not installed")
        return
    from ordsmed.nn.dropout import Drop
    from ordsmed.nn.kernels import gelu, residual_norm

    rows, drop = 8 if SMALL else 65_536, Drop(7, 26)
    for width in (24,) if SMALL else (768, 1_024):
        x, scale = made(rows, width), torch.ones(width, device=DEVICE)
        stats = torch.zeros(rows, 2, device=DEVICE)
        kinds = x.dtype, x.dtype
        print(f"width {width}", flush=True)
        sweep(
            residual_norm,
            lambda x=x, s=scale, t=stats, k=kinds: residual_norm._launch_back(
                x, x, None, x, t, s, drop.state, drop.dropped, True, *k
            ),
            5.0 * x.numel() * x.element_size(),
            WARPS=(2_048, 4_096, 8_192, 16_384),
            GROUP=(16, 8, 32),
        )
        z = made(rows, 4 * width)
        sweep(
            gelu,
            lambda z=z: gelu._launch(z, z, False),
            3.0 * z.numel() * z.element_size(),
            ROWS=(128, 64, 256),
            STEP=(8, 4, 16),
            COLUMNS=(256, 128, 512),
        )


if __name__ == "__main__":
    main()
