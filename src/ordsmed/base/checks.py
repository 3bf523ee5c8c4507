"""Checks that settings make of themselves in `__post_init__`."""

import re
from collections.abc import Iterable


def at_least(settings: object, wanted: str = "at least {}", **least: float) -> None:
    """Raise a ValueError if a setting is below its limit. None is accepted."""
    for name, limit in least.items():
        if (value := getattr(settings, name)) is not None and value < limit:
            raise ValueError(f"{name}: found {value}; wanted {wanted.format(limit)}")


def or_more(settings: object, **least: float) -> None:
    """Do the same as `at_least`, but write "0 or more" in the error instead of "at least 0"."""
    at_least(settings, "{} or more", **least)


def regular(name: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{name}: found {pattern!r} ({error}); wanted a regular expression") from None
