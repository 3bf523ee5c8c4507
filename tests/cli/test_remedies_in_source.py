"""The advice of every error in the source, whether a test raises it or not: its commands, options, settings exist."""

from __future__ import annotations

import ast

from kit import remedies
from kit.sources import FILES, nodes
from ordsmed.base import menu

OF_OTHERS = ("others", "dialects")  # advice there is about options of other programs


def advice(call: ast.Call) -> str:
    """What an error wants and advises, with X for what is filled in."""
    parts = [*call.args[2:4], *(word.value for word in call.keywords if word.arg in ("wanted", "remedy"))]
    return " ".join(_text(part) for part in parts)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


ADVICE = {
    f"{path.relative_to(menu.PACKAGE_ROOT)}:{node.lineno}": advice(node)
    for path in FILES
    if path.relative_to(menu.PACKAGE_ROOT).parts[0] not in OF_OTHERS
    for node in nodes(path)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error")
}


def test_the_advice_in_the_source_is_valid() -> None:
    texts = {place: text for place, text in ADVICE.items() if "`" in text or "--" in text}
    assert len(texts) > 150
    wrong = {place: found for place, text in texts.items() if (found := list(remedies.faults("", text)))}
    assert wrong == {}
