"""Are the remedies of error messages valid? Commands parse, recipes decode, options and settings exist."""

from __future__ import annotations

import functools
import importlib
import re
import shlex
from collections.abc import Iterator

from ordsmed.base import menu
from ordsmed.base.arguments import Parser, UsageError
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.run import BUILT_IN, table_of
from ordsmed.base.settings import decode, override
from ordsmed.cli import flags, verb

CODE, OPTION = re.compile(r"`([^`]+)`"), re.compile(r"(?<![\w./-])--[a-z][a-z0-9-]*")
SETTING = re.compile(r"([a-z_]+(?:\[\d+\])?(?:\.[a-z_]+)*)=")
VALUES = {"N": "2", "H": "1", "X": "1", "SECONDS": "1", "SHARE": "0.5"}  # for the placeholders of options
KINDS = {
    "model": "models",
    "objective": "objectives",
    "optimizer": "optimizers",
    "task": "tasks",
    "tokenizer": "tokenizers",
    "source": "corpora",
}
INVENTED = {"act", "deed", "another", "outer"}  # verbs of tests
OTHERS = {"--ckpt-format", "--account", "--constraint", "--exclude"}  # options of other programs


@functools.cache
def parsers() -> dict[str, Parser]:
    return {entry.name: entry.parser() for entry in verb.every()}


@functools.cache
def settings() -> set[str]:
    """The paths of all settings of all recipes, those of a menu's kinds too."""
    paths = {line.partition("=")[0] for name in verb.of_recipes() for line in flags.settings_of(name)}
    for key, name in KINDS.items():
        for kind in menu.entries(name):
            module = menu.module_of(name, kind)
            paths |= {f"{key}.{line.name}" for line in menu.lines(module)} | {f"{key}.kind"}
            for table in menu.nested(module):
                paths |= {f"{key}.{table.key}.{line.name}" for line in menu.lines(table.module, table.name)}
    return paths


@functools.cache
def of_error(place: str, wanted: str, remedy: str) -> list[str]:
    """What is invalid in what an error wants and advises."""
    return list(faults(place, f"{wanted} {remedy}"))


def faults(place: str, text: str) -> Iterator[str]:
    """What is invalid in the advice of an error of `place`, which may be a verb."""
    if place in INVENTED:
        return
    for code in CODE.findall(text):
        if code.startswith("ordsmed "):
            yield from command_faults(code)
        elif (setting := SETTING.match(code)) and not known(setting[1]):
            yield f"no setting `{setting[1]}`"
    plain = CODE.sub(lambda code: "" if code[1].startswith(("ordsmed ", "-- ", "... -- ", "pip ")) else code[1], text)
    here = place in parsers() and not re.search("is a flag of|behind", text)
    able = [parsers()[place]] if here else parsers().values()
    for option in set(OPTION.findall(plain)) - OTHERS:
        if not any(option in parser.flags() for parser in able):
            yield f"no option {option} of {place if here else 'any verb'}"
    if "--anew" in text.partition("did you mean")[2]:
        yield "--anew for a misspelled word"


def known(path: str) -> bool:
    """Is there a setting of this path, or a table?"""
    path = re.sub(r"\[\d+\]", "", path)
    return any(one == path or one.startswith(f"{path}.") for one in settings())


def command_faults(code: str) -> Iterator[str]:
    """What is wrong with a command; of one that is only named, or that stands as a form with `[...]`, only its verb."""
    words = shlex.split(code)[1:]
    if (name := verb.named(words)) in {"VERB", "X", *INVENTED}:
        return
    if name not in parsers():
        yield f"no such verb: `{code}`"
        return
    rest, parser = words[len(name.split()) :], parsers()[name]
    if not rest or any(mark in code for mark in ("[", "...", "|", "<")):
        return
    try:
        parsed = parser.read(_filled(parser, rest))
    except UsageError as error:
        if not re.search("found '[A-Z]+'", str(error)):  # a placeholder of a word with choices
            yield f"`{code}`: {error}"
        return
    place, recipe, words = verb.find(name).recipe, str(getattr(parsed, "name", "")), getattr(parsed, "overrides", [])
    if place and any((BUILT_IN / f"{folder}{recipe}.toml").is_file() for folder in ("", f"{name}/")):
        try:
            cls = getattr(importlib.import_module(place[0]), place[1])
            decode(cls, override(table_of(recipe, name), words), recipe)
        except OrdsmedError as error:
            yield f"`{code}`: {error}"
    elif place and (unknown := [word for word in words if not known(word.partition("=")[0])]):
        yield f"`{code}`: unknown setting {unknown[0]}"


def _filled(parser: Parser, words: list[str]) -> list[str]:
    """The words, with values for the placeholders of options."""
    options = [parser._option_string_actions.get(before) for before in ["", *words[:-1]]]
    return [
        str(next(iter(option.choices or [VALUES.get(word, word)]))) if option and word.isupper() else word
        for option, word in zip(options, words, strict=True)
    ]
