"""What rows of several dialects make of a value, for `by` of a flag."""

from __future__ import annotations

CPU = {True: "cpu"}
FP16 = {True: "fp16", False: "fp32"}
SQUAD_VERSION = {True: "2.0", False: "1.1"}
JOINT_HEAD = {True: "joint", False: "independent"}


def listed(text: str) -> list[str]:
    """The parts between commas."""
    return text.split(",")


def positive(value: float) -> float | None:
    """A number above 0; else nothing is said."""
    return value if value > 0 else None


def unless_empty(value: object) -> object | None:
    """What is neither empty, 0 nor off; else nothing is said."""
    return value or None
