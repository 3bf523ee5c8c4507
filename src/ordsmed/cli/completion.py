"""Shell completion: scripts for bash, zsh and fish with all words that the parsers of the verbs accept.

The words are grouped by the place where they are completed: "" for verbs; `VERB -` for flags; `VERB --flag` for the
value of a flag; `VERB 2` for the second positional argument, `VERB +` for all later ones; `=` for a setting's value.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

from ordsmed.base.arguments import FILES, Parser
from ordsmed.cli import verb

Offers = dict[str, dict[str, str]]  # place -> word -> description
SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    text = Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")
    cases = [_case(shell, key, words) for key, words in offers().items()]
    return text.replace("@CASES@", "\n".join(cases))


def offers() -> Offers:
    verbs = verb.every()
    offers_of: Offers = {"": {entry.name: entry.headline for entry in verbs if " " not in entry.name}, "=": {FILES: ""}}
    for entry in verbs:
        parser = entry.parser()
        values: Offers = {f"{entry.name} -": {}}
        position = 0
        for action in parser._actions:
            for word in action.option_strings:
                values[f"{entry.name} -"][word] = action.help or ""
            if not action.option_strings:
                position += 1
                numbers = {"*": "+", "+": f"{position}+"}.get(str(action.nargs), str(position))
                values |= {f"{entry.name} {number}": _values(parser, action) for number in numbers}
            elif action.nargs is None:
                values |= {f"{entry.name} {word}": _values(parser, action) for word in action.option_strings}
        offers_of |= values
    for entry in verbs:
        first, _, second = entry.name.partition(" ")
        if second:  # the second word of a verb competes with the first argument of a one-word verb
            offers_of[f"{first} 1"][second] = entry.headline
    return offers_of


def _values(parser: Parser, action: argparse.Action) -> dict[str, str]:
    """Return the completions of an argument: those it lists, or its choices, or files; none for a number."""
    if action.dest in parser.offers:
        pairs = [offer.partition("\t") for offer in parser.offers[action.dest]()]
        return {word: meaning for word, _, meaning in pairs}
    if action.choices:
        return {str(word): "" for word in action.choices}
    listed = str(action.metavar).split("|")
    words = {word: "" for word in listed if re.fullmatch("[a-z][a-z0-9]*", word)}
    return words or ({} if action.type else {FILES: ""})


def _case(shell: str, key: str, words: dict[str, str]) -> str:
    pairs = [f"{_quoted(shell, word)} {_quoted(shell, ' '.join(text.split()))}" for word, text in words.items()]
    print_all = " \\\n        ".join([r"printf '%s\t%s\n'", *pairs]) if pairs else "true"
    if shell == "fish":
        return f"        case {_quoted(shell, key)}\n            {print_all}"
    return f"    {_quoted(shell, key)}) {print_all} ;;"


def _quoted(shell: str, text: str) -> str:
    if shell == "fish":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shlex.quote(text)
