"""Templates: what is asked of a row of data, as lm-evaluation-harness writes it: the name of a field, or Jinja.

{"goal": "To swim,", "sol1": "jump", "sol2": "sit"}  +  "{{goal}}\\nAnswer:"  ->  "To swim,\\nAnswer:"
                                                     +  "{{[sol1, sol2]}}"    ->  ["jump", "sit"]

Jinja comes with PyTorch; its sandbox keeps templates from all but the row.
"""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING, Any

from ordsmed.base.errors import DataError, RecipeError

if TYPE_CHECKING:
    import jinja2

Row = dict[str, Any]
Template = str | int | tuple[str, ...] | None


def rendered(template: Template, row: Row, place: str) -> object:
    """A field as it is, where one has the template's name; else the text that Jinja makes."""
    if not isinstance(template, str):
        return template
    if template in row:
        return row[template]
    try:
        return _compiled(template).render(row)
    except Exception as error:  # whatever a template does with a row
        keys = ", ".join(list(row)[:12]) or "none"
        raise DataError(place, f"`{_short(template)}`: {error}", f"fields of the row ({keys})") from None


def text(template: str | None, row: Row, place: str) -> str:
    """A text; of no template nothing."""
    result = rendered(template or "", row, place)
    if not isinstance(result, str):
        raise DataError(place, f"`{template}` is {_short(repr(result))}", "a text")
    return result


def texts(template: Template, row: Row, place: str) -> list[str]:
    """A list of texts, two or more."""
    result = rendered(template, row, place)
    if isinstance(result, str):
        result = _literal(result)
    if not isinstance(result, list | tuple) or len(result) < 2 or not all(isinstance(x, str) and x for x in result):
        raise DataError(place, f"`{_short(str(template))}` is {_short(repr(result))}", "two or more texts")
    return list(result)


def numbers(template: Template, choices: list[str], row: Row, place: str) -> list[int]:
    """Which of the choices: by number from 0, several of them, or the text of one."""
    result = rendered(template, row, place)
    if isinstance(result, str) and result not in choices:
        result = _literal(result)
    result = [choices.index(result)] if isinstance(result, str) and result in choices else result
    several = list(result) if isinstance(result, list | tuple) else [result]
    right = [int(number) for number in several if isinstance(number, int) and 0 <= number < len(choices)]
    if not right or len(right) < len(several):
        wrong = ", ".join(map(repr, several)) or "nothing"
        wanted = f"a number from 0 to {len(choices) - 1}, or the text of a choice"
        raise DataError(place, f"`{_short(str(template))}` is {_short(wrong)}", wanted)
    return right


def check(template: Template, place: str) -> None:
    import jinja2

    try:
        _compiled(template if isinstance(template, str) else "")
    except jinja2.TemplateError as error:
        wanted = "a field's name, or Jinja such as `{{question}}`"
        raise RecipeError(place, f"`{_short(str(template))}`: {error}", wanted) from None


def _literal(value: str) -> object:
    """A list or a number that is written out; else the text."""
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


@functools.cache
def _compiled(template: str) -> jinja2.Template:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Missing(jinja2.StrictUndefined):
        __slots__ = ()
        __repr__ = jinja2.StrictUndefined.__str__  # within a list too a field that is missing is refused

    environment = ImmutableSandboxedEnvironment(undefined=Missing, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _replaced
    return environment.from_string(template)


def _replaced(value: str, pattern: str, replacement: str = "", count: int = 0) -> str:
    return re.sub(pattern, replacement, value, count=count)


def _short(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}..."
