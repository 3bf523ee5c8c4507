"""Conditions: which documents a search may find, by their fields: `year>=1990`, `lang=no`, `author.name!=Ibsen`.

A condition is KEY OPERATOR VALUE, with = != < <= > or >=; all that are given have to hold. A key is a field of the
record, `id`, `title` or `url`, or a path into nested fields. What reads as a number is compared as a number, anything
else as text, so dates as 2024-05-01 have their order. Of a list any element may fit; `!=` holds where none is equal. A
missing field fits `!=` alone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import RecipeError, meant

FORM = re.compile(r"\s*([^=!<>]+?)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """What a field has to be."""

    key: str
    operator: str
    value: str

    @staticmethod
    def of(text: str) -> Condition:
        if not (match := FORM.fullmatch(text)):
            raise RecipeError("--where", f"found {text}", "KEY=VALUE, or with != < <= > >=, as year>=1990")
        return Condition(*match.groups())

    def fits(self, value: object) -> bool:
        """Does a field's value fit?"""
        if isinstance(value, list):
            return (all if self.operator == "!=" else any)(map(self.fits, value))
        if value is None or isinstance(value, Mapping):
            return self.operator == "!="
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if NUMBER.fullmatch(text) and NUMBER.fullmatch(self.value):
            return bool(COMPARED[self.operator](float(text), float(self.value)))
        if isinstance(value, int | float):  # a number has no order among texts
            return self.operator == "!=" or (self.operator == "=" and text == self.value)
        return bool(COMPARED[self.operator](text, self.value))


def fitting(conditions: Sequence[str], records: Iterable[Mapping[str, Any]]) -> NDArray[np.bool_]:
    """Return of each record whether all conditions hold; a key that no record has is refused."""
    wanted = [Condition.of(text) for text in conditions]
    known, unseen, result = dict[str, None](), {condition.key for condition in wanted}, list[bool]()
    for record in records:
        known |= dict.fromkeys(record)
        values = [_field(record, condition.key) for condition in wanted]
        unseen -= {condition.key for condition, value in zip(wanted, values, strict=True) if value is not None}
        result.append(all(condition.fits(value) for condition, value in zip(wanted, values, strict=True)))
    if unseen:
        key = min(unseen)
        raise RecipeError("--where", f"no document has `{key}`", f"one of {', '.join(known)}", meant(key, known))
    return np.array(result, bool)


def _field(record: Mapping[str, Any], key: str) -> object:
    """The value of a field, or what a path of fields leads to; None: there is none."""
    if key in record:
        return record[key]
    head, dot, rest = key.partition(".")
    inner = record.get(head)
    return _field(inner, rest) if dot and isinstance(inner, Mapping) else None
