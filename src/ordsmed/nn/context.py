"""What an autograd.Function's forward leaves for its backward, as torch gives it to both."""

from typing import Any, Protocol

from torch import Tensor


class Context(Protocol):
    """Tensors that torch keeps, and whatever else is set on it."""

    saved_tensors: tuple[Any, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors, whole or None."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say through which results nothing is learned."""

    def set_materialize_grads(self, value: bool) -> None:
        """Whether a gradient that nobody gave is zeros, or None."""

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: object) -> None: ...
