"""Products of layers in fp32 on this CPU: GFLOP/s of torch's library and of oneDNN's, forward, back and of weights.

    python tests/measure/cpu_products.py [--threads 1]

Which CPUs take oneDNN's (`base/machine/speed.py`, WIDE) is by these figures; a second thread shows how both scale.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from ordsmed.base.machine import host
from ordsmed.nn import products

LAYERS = ((256, 1_024), (1_024, 256), (256, 256), (768, 3_072), (3_072, 768), (256, 30_522))  # in, out


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--threads", type=int, default=1)
    reader.add_argument("--rows", type=int, default=2_048)
    asked = reader.parse_args()
    torch.set_num_threads(asked.threads)
    maker, family = host.cpu_make()
    print(f"{maker}, family {family}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}")
    print("| in, out | forward | oneDNN | back | oneDNN | weights | oneDNN |\n|---|---|---|---|---|---|---|")
    for size, outputs in LAYERS:
        x, weight = torch.randn(asked.rows, size), torch.randn(outputs, size)
        gradient, work = torch.randn(asked.rows, outputs), 2e-9 * asked.rows * size * outputs
        ways: tuple[Callable[[], torch.Tensor], ...] = (
            lambda x=x, weight=weight: x @ weight.T,
            lambda x=x, weight=weight: products.times(x, weight),
            lambda gradient=gradient, weight=weight: gradient @ weight,
            lambda gradient=gradient, weight=weight: products.times(gradient, weight.T),
            lambda gradient=gradient, x=x: gradient.T @ x,
            lambda gradient=gradient, x=x: products.across(gradient, x).contiguous(),
        )
        print(f"| {size}, {outputs} | {' | '.join(f'{work / seconds(way):.0f}' for way in ways)} |")


def seconds(way: Callable[[], torch.Tensor], most: float = 0.5) -> float:
    """The shortest time of one."""
    times: list[float] = []
    while sum(times) < most:
        start = time.perf_counter()
        way()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
