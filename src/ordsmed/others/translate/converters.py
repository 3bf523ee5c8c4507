"""Conversions of flag values that several dialects share, for the field `by` of a flag."""

from __future__ import annotations

CPU = {True: "cpu"}
FP16 = {True: "fp16", False: "fp32"}
SQUAD_VERSION = {True: "2.0", False: "1.1"}
JOINT_HEAD = {True: "joint", False: "independent"}


def listed(text: str) -> list[str]:
    return text.split(",")


def positive(value: float) -> float | None:
    """Return the number if it is above 0, else None."""
    return value if value > 0 else None


def unless_empty(value: object) -> object | None:
    """Return the value if it is not empty, 0 or false, else None."""
    return value or None
