r"""Templates of questions about a row of data, as lm-evaluation-harness writes them: a field's name, or Jinja.

{"goal": "To swim,", "sol1": "jump", "sol2": "sit"}  +  "{{goal}}\\nAnswer:"  ->  "To swim,\\nAnswer:"
                                                     +  "{{[sol1, sol2]}}"    ->  ["jump", "sit"]

Jinja is installed with PyTorch. Its sandbox restricts templates to the row.
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


def rendered(template: Template, row: Row, location: str) -> object:
    """Return the field that the template names, or else the rendered Jinja template."""
    if not isinstance(template, str):
        return template
    if template in row:
        return row[template]
    try:
        return _compiled(template).render(row)
    except Exception as error:  # a template can raise anything
        keys = ", ".join(list(row)[:12]) or "none"
        raise DataError(location, f"`{_short(template)}`: {error}", f"fields of the row ({keys})") from None


def text(template: str | None, row: Row, location: str) -> str:
    """Return the text that a template gives for a row, or an empty text if the template is None."""
    result = rendered(template or "", row, location)
    if not isinstance(result, str):
        raise DataError(location, f"`{template}` is {_short(repr(result))}", "a text")
    return result


def texts(template: Template, row: Row, location: str) -> list[str]:
    """Render a template to a list of two or more texts."""
    result = rendered(template, row, location)
    if isinstance(result, str):
        result = _literal(result)
    if not isinstance(result, list | tuple) or len(result) < 2 or not all(isinstance(x, str) and x for x in result):
        raise DataError(location, f"`{_short(str(template))}` is {_short(repr(result))}", "two or more texts")
    return list(result)


def numbers(template: Template, choices: list[str], row: Row, location: str) -> list[int]:
    """Render a template to the numbers of the right choices: from a number, several numbers, or a choice's text."""
    result = rendered(template, row, location)
    if isinstance(result, str) and result not in choices:
        result = _literal(result)
    result = [choices.index(result)] if isinstance(result, str) and result in choices else result
    several = list(result) if isinstance(result, list | tuple) else [result]
    right = [int(number) for number in several if isinstance(number, int) and 0 <= number < len(choices)]
    if not right or len(right) < len(several):
        wrong = ", ".join(map(repr, several)) or "nothing"
        wanted = f"a number from 0 to {len(choices) - 1}, or the text of a choice"
        raise DataError(location, f"`{_short(str(template))}` is {_short(wrong)}", wanted)
    return right


def check(template: Template, location: str) -> None:
    import jinja2

    try:
        _compiled(template if isinstance(template, str) else "")
    except jinja2.TemplateError as error:
        wanted = "a field's name, or Jinja such as `{{question}}`"
        raise RecipeError(location, f"`{_short(str(template))}`: {error}", wanted) from None


def _literal(value: str) -> object:
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
        __repr__ = jinja2.StrictUndefined.__str__  # a missing field within a list is an error, too

    environment = ImmutableSandboxedEnvironment(undefined=Missing, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _replaced
    return environment.from_string(template)


def _replaced(value: str, pattern: str, replacement: str = "", count: int = 0) -> str:
    return re.sub(pattern, replacement, value, count=count)


def _short(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}..."
