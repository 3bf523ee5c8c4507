"""Conditions on the fields of documents that a search may return: `year>=1990`, `lang=no`, `author.name!=Ibsen`.

A condition is KEY OPERATOR VALUE with one of = != < <= > >=, and all given conditions must hold. A key is a field of
the record, `id`, `title` or `url`, or a path into nested fields. Values are compared as numbers if both are numbers,
else as text, so dates such as 2024-05-01 sort correctly. A list fits if any element does; `!=` fits if no element is
equal. A missing field fits only `!=`.
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
    key: str
    operator: str
    value: str

    @staticmethod
    def of(text: str) -> Condition:
        if not (match := FORM.fullmatch(text)):
            raise RecipeError("--where", f"found {text}", "KEY=VALUE, or with != < <= > >=, such as year>=1990")
        return Condition(*match.groups())

    def fits(self, value: object) -> bool:
        if isinstance(value, list):
            return (all if self.operator == "!=" else any)(map(self.fits, value))
        if value is None or isinstance(value, Mapping):
            return self.operator == "!="
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if NUMBER.fullmatch(text) and NUMBER.fullmatch(self.value):
            return bool(COMPARED[self.operator](float(text), float(self.value)))
        if isinstance(value, int | float):  # numbers and texts have no common order
            return self.operator == "!=" or (self.operator == "=" and text == self.value)
        return bool(COMPARED[self.operator](text, self.value))


def fitting(conditions: Sequence[str], records: Iterable[Mapping[str, Any]]) -> NDArray[np.bool_]:
    """Return which records meet all conditions, or raise an error if no record has a key."""
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
    if key in record:
        return record[key]
    head, dot, rest = key.partition(".")
    inner = record.get(head)
    return _field(inner, rest) if dot and isinstance(inner, Mapping) else None
