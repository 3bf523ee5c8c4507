"""What a file of somebody's own offers, held against what its menu asks for, before any of it is used."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ordsmed.base.errors import RecipeError, nearest

WANTED: dict[str, tuple[str, ...]] = {  # what a menu's choice has: methods as they are called, and plain names
    "corpora": ("documents()", "stamp()", "size()"),
    "cleaners": ("clean(text, meta)",),
    "tokenizers": ("train(texts)", "load()"),
    "models": ("capabilities", "architectures", "build(vocabulary)", "token_head(model)", "longest()", "flops(length)",
               "head_flops(vocabulary)", "fits(tokenizer)", "tuning()", "task_head(kind, outputs)"),
    "objectives": ("rows(stores, weights, tokenizer, phase, *key, stretch)", "build(model, tokenizer)"),
    "tasks": ("record", "role", "length", "paths(split)", "records(paths, learning)", "complete(records)",
              "features(records, reader)", "build(model, tokenizer)", "predictions(records, features, answers)",
              "score(records, predictions)", "fitted(records, features, answers)", "guesses(train, records)",
              "write(folder, records, predictions)", "read(path, records)", "details(records, predictions)"),
    "optimizers": ("moments", "build(groups)"),
    "formats": ("wanted", "recognises(path)", "read(path, overrides)"),
    "probes": ("way", "files", "best", "prefers", "fits(scorer, place)", "examples(scorer)", "record(example, scores)",
               "finding(records)", "as_line(record)"),
    "judges": ("run", "rises", "recognises(path)", "labels()", "span(label)", "stamp()", "score(text, label)"),
    "trackers": ("LATER", "Tracker(sending)"),  # of this menu and those below modules offer it, without a choice
    "dialects": ("PROGRAMS",),
    "verbs": ("PLACE", "arguments(parser)", "run(asked)"),
    "protocols": ("ENDPOINTS", "failure(refusal)"),
}  # fmt: skip
INSTEAD: dict[str, dict[str, tuple[str, ...]]] = {  # of a menu, by what those of another sort have: all they have
    "probes": {"groups": ("files", "groups()", "records(vectors)", "finding(records)", "as_line(record)")}
}
FORMER = {"tasks": {"settled": "complete"}}  # what methods were called -> what they are called
PAGES = {"corpora": "corpus", "cleaners": "cleaning-step"}  # below docs/add-a/; others: the menu's name in the singular
NAMED = {"stretch", "learning"}  # arguments that are given by their names


def imported(kind: str, place: str) -> ModuleType:
    """A module by its name; that it is not there, or what is wrong in it, is one line."""
    try:
        return importlib.import_module(kind)
    except ModuleNotFoundError as error:
        if error.name and (kind == error.name or kind.startswith(f"{error.name}.")):
            wanted = "a module that Python finds"
            raise RecipeError(place, f"`{kind}`: {error}", wanted, _where(kind, error.name)) from None
        problem = f"`{kind}` cannot be imported: {error_line(error)}"
        raise RecipeError(place, problem, "", "mend or install that") from None
    except Exception as error:  # whatever a file of somebody's own does
        raise RecipeError(place, f"`{kind}` cannot be imported: {error_line(error)}", "", "mend that line") from None


def _where(kind: str, missing: str) -> str:
    """What to do about a module that Python does not find: the nearest in its package, if that is found, or a path."""
    if Path(*kind.split(".")).with_suffix(".py").exists():
        return "`export PYTHONPATH=$PWD`"
    package, _, name = missing.rpartition(".")
    if folders := getattr(sys.modules.get(package), "__path__", None):
        names = [module.name for module in pkgutil.iter_modules(folders)]
        return f"`{package}` is found; {nearest(name, names) if names else 'it has no modules'}"
    return "put the folder above it on PYTHONPATH"


def page(menu: str) -> str:
    """Where documentation shows one of a menu."""
    return f"docs/add-a/{PAGES.get(menu, menu.removesuffix('s'))}.md shows one"


def check(menu: str, kind: str, settings: type, place: str) -> None:
    """Refuse a choice that is not what its menu asks for."""
    choice = getattr(settings, "__name__", str(settings))
    if not (inspect.isclass(settings) and dataclasses.is_dataclass(settings)):
        raise RecipeError(place, f"`{kind}`: {choice} is no dataclass", "@dataclass(frozen=True) above the class")
    if not settings.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise RecipeError(place, f"`{kind}`: {choice} can be changed", "@dataclass(frozen=True) above the class")
    # methods under both their names, in every class that has one of them: what overrides one overrides the other
    for cls in settings.__mro__[:-1]:
        for former, name in FORMER.get(menu, {}).items():
            for missing, present in ((name, former), (former, name)):
                if present in vars(cls) and missing not in vars(cls):
                    setattr(cls, missing, vars(cls)[present])
    check_names(menu, settings, f"`{kind}`: {choice}", place)
    check_finished(menu, settings, f"`{kind}`: {choice}", place)


def check_names(menu: str, owner: type | ModuleType, named: str, place: str) -> None:
    """Refuse what does not have all that its menu asks for: a choice, or the module of an entry without one."""
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    sorts = INSTEAD.get(menu, {})
    for form in next((sorts[name] for name in sorts if hasattr(owner, name)), WANTED[menu]):
        name = form.partition("(")[0]
        if not hasattr(owner, name) and name not in fields:
            raise RecipeError(place, f"{named} has no `{name}`", f"`{form}`", page(menu))
        if "(" in form and (reason := _uncallable(owner, name, form)):
            raise RecipeError(place, f"{named}.{name} {reason}", f"`{form}`", page(menu))


def check_finished(menu: str, cls: type, named: str, place: str) -> None:
    """Refuse a class that has not said all that its base class leaves to it."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name, None)
        if inspect.isfunction(method) and method.__code__.co_names == ("NotImplementedError",):
            form = f"{name}{inspect.signature(method)}"
            raise RecipeError(place, f"{named} has no `{name}`", f"`{form}`".replace("(self, ", "("), page(menu))


def _uncallable(owner: type | ModuleType, name: str, form: str) -> str:
    """Why a method cannot be called as it will be; empty where it can."""
    method = inspect.getattr_static(owner, name)
    bound = inspect.ismodule(owner) or isinstance(method, staticmethod | classmethod)
    if not (bound and callable(getattr(owner, name))) and not inspect.isfunction(method):
        return "is no method"
    parameters = [word.lstrip("*") for word in re.findall(r"[*\w]+", form.partition("(")[2])]
    plain = [] if bound else [None]
    by_name = {word: None for word in parameters if word in NAMED}
    try:
        inspect.signature(getattr(owner, name)).bind(
            *plain, *[None for word in parameters if word not in NAMED], **by_name
        )
    except TypeError as error:
        return f"cannot be called as it is needed ({error})"
    return ""


def error_line(error: Exception) -> str:
    """An error with the line it comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames[1:] else ""
    return f"{type(error).__name__}: {error}{where}".replace("\n", " ")
