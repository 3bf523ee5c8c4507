"""A type for the context object that torch passes to the forward and backward of an autograd.Function."""

from typing import Any, Protocol

from torch import Tensor


class Context(Protocol):
    """The tensors that torch saves, and any other attributes."""

    saved_tensors: tuple[Any, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors (or None) for the backward pass."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare that no gradient flows through these outputs."""

    def set_materialize_grads(self, value: bool) -> None:
        """Choose whether the gradient of an unused output is passed as zeros or as None."""

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: object) -> None: ...
