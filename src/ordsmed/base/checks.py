"""What settings check of themselves when they are made: numbers that are large enough, patterns that are such."""

import re
from collections.abc import Iterable


def at_least(settings: object, wanted: str = "at least {}", **least: float) -> None:
    """Refuse numbers below these; a setting that is None is none."""
    for name, limit in least.items():
        if (value := getattr(settings, name)) is not None and value < limit:
            raise ValueError(f"{name}: found {value}; wanted {wanted.format(limit)}")


def or_more(settings: object, **least: float) -> None:
    """The same, said in the other way."""
    at_least(settings, "{} or more", **least)


def regular(name: str, patterns: Iterable[str]) -> None:
    """Refuse what is no regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{name}: found {pattern!r} ({error}); wanted a regular expression") from None
