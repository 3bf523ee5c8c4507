"""Check a user's module against the interface of its menu, before it is used."""

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

# the methods (with their arguments) and other attributes that every choice of a menu must have
REQUIRED: dict[str, tuple[str, ...]] = {
    "corpora": ("documents()", "stamp()", "size()"),
    "cleaners": ("clean(text, meta)",),
    "tokenizers": ("train(texts)", "load()"),
    "models": (
        "capabilities",
        "architectures",
        "build(vocabulary)",
        "token_head(model)",
        "longest()",
        "flops(length)",
        "head_flops(vocabulary)",
        "fits(tokenizer)",
        "tuning()",
        "task_head(kind, outputs)",
    ),
    "objectives": ("rows(stores, weights, tokenizer, phase, *key, stretch)", "build(model, tokenizer)"),
    "tasks": (
        "record",
        "role",
        "length",
        "paths(split)",
        "records(paths, learning)",
        "complete(records)",
        "features(records, reader)",
        "build(model, tokenizer)",
        "predictions(records, features, answers)",
        "score(records, predictions)",
        "fitted(records, features, answers)",
        "guesses(train, records)",
        "write(folder, records, predictions)",
        "read(path, records)",
        "details(records, predictions)",
    ),
    "optimizers": ("moments", "build(groups)"),
    "formats": ("wanted", "recognises(path)", "read(path, overrides)"),
    "probes": (
        "way",
        "files",
        "best",
        "prefers",
        "fits(scorer, place)",
        "examples(scorer)",
        "record(example, scores)",
        "finding(records)",
        "as_line(record)",
    ),
    "judges": ("run", "rises", "recognises(path)", "labels()", "span(label)", "stamp()", "score(text, label)"),
    "trackers": ("LATER", "Tracker(sending)"),  # in this menu and those below, the module itself has the names
    "dialects": ("PROGRAMS",),
    "verbs": ("PLACE", "arguments(parser)", "run(args)"),
    "protocols": ("ENDPOINTS", "failure(refusal)"),
}
ALTERNATIVES: dict[str, dict[str, tuple[str, ...]]] = {  # required instead, if a choice has the attribute in the key
    "probes": {"groups": ("files", "groups()", "records(vectors)", "finding(records)", "as_line(record)")}
}
FORMER = {"tasks": {"settled": "complete"}}  # former -> present names of methods
PAGES = {"corpora": "corpus", "cleaners": "cleaning-step"}  # in docs/add-a/; default: the menu's name in the singular
KEYWORD_ARGUMENTS = {"stretch", "learning"}  # keyword arguments


def import_module(kind: str, location: str) -> ModuleType:
    """Import a user's module. Raise a RecipeError if that fails."""
    try:
        return importlib.import_module(kind)
    except ModuleNotFoundError as error:
        if error.name and (kind == error.name or kind.startswith(f"{error.name}.")):
            wanted = "a module that Python finds"
            raise RecipeError(location, f"`{kind}`: {error}", wanted, _import_remedy(kind, error.name)) from None
        problem = f"`{kind}` cannot be imported: {error_line(error)}"
        raise RecipeError(location, problem, "", "correct or install that module") from None
    except Exception as error:  # a user's module may raise anything
        raise RecipeError(
            location, f"`{kind}` cannot be imported: {error_line(error)}", "", "correct that line"
        ) from None


def _import_remedy(kind: str, missing: str) -> str:
    """Return a remedy for a module that is not found: a similar name in its package, or a change of PYTHONPATH."""
    if Path(*kind.split(".")).with_suffix(".py").exists():
        return "`export PYTHONPATH=$PWD`"
    package, _, name = missing.rpartition(".")
    if folders := getattr(sys.modules.get(package), "__path__", None):
        names = [module.name for module in pkgutil.iter_modules(folders)]
        return f"`{package}` is found; {nearest(name, names) if names else 'it has no modules'}"
    return "put the folder above it on PYTHONPATH"


def page(menu: str) -> str:
    return f"docs/add-a/{PAGES.get(menu, menu.removesuffix('s'))}.md shows one"


def check(menu: str, kind: str, settings: type, location: str) -> None:
    """Raise an error if a choice does not fit its menu."""
    choice = getattr(settings, "__name__", str(settings))
    if not (inspect.isclass(settings) and dataclasses.is_dataclass(settings)):
        raise RecipeError(location, f"`{kind}`: {choice} is not a dataclass", "@dataclass(frozen=True) above the class")
    if not settings.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise RecipeError(location, f"`{kind}`: {choice} is not frozen", "@dataclass(frozen=True) above the class")
    # define a renamed method under both names in every class, so that a subclass may override either
    for cls in settings.__mro__[:-1]:
        for former, name in FORMER.get(menu, {}).items():
            for missing, present in ((name, former), (former, name)):
                if present in vars(cls) and missing not in vars(cls):
                    setattr(cls, missing, vars(cls)[present])
    check_names(menu, settings, f"`{kind}`: {choice}", location)
    check_finished(menu, settings, f"`{kind}`: {choice}", location)


def check_names(menu: str, owner: type | ModuleType, named: str, location: str) -> None:
    """Raise an error if a choice or a module does not have the attributes and methods that its menu requires."""
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    sorts = ALTERNATIVES.get(menu, {})
    for form in next((sorts[name] for name in sorts if hasattr(owner, name)), REQUIRED[menu]):
        name = form.partition("(")[0]
        if not hasattr(owner, name) and name not in fields:
            raise RecipeError(location, f"{named} has no `{name}`", f"`{form}`", page(menu))
        if "(" in form and (reason := _uncallable(owner, name, form)):
            raise RecipeError(location, f"{named}.{name} {reason}", f"`{form}`", page(menu))


def check_finished(menu: str, cls: type, named: str, location: str) -> None:
    """Raise an error if a class does not implement an abstract method of its base class."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name, None)
        if inspect.isfunction(method) and method.__code__.co_names == ("NotImplementedError",):
            form = f"{name}{inspect.signature(method)}"
            raise RecipeError(location, f"{named} has no `{name}`", f"`{form}`".replace("(self, ", "("), page(menu))


def _uncallable(owner: type | ModuleType, name: str, form: str) -> str:
    """Return the reason why a method cannot be called with the arguments of its menu; "" if it can."""
    method = inspect.getattr_static(owner, name)
    bound = inspect.ismodule(owner) or isinstance(method, staticmethod | classmethod)
    if not (bound and callable(getattr(owner, name))) and not inspect.isfunction(method):
        return "is not a method"
    parameters = [word.lstrip("*") for word in re.findall(r"[*\w]+", form.partition("(")[2])]
    plain = [] if bound else [None]
    by_name = {word: None for word in parameters if word in KEYWORD_ARGUMENTS}
    try:
        inspect.signature(getattr(owner, name)).bind(
            *plain, *[None for word in parameters if word not in KEYWORD_ARGUMENTS], **by_name
        )
    except TypeError as error:
        return f"has other parameters ({error})"
    return ""


def error_line(error: Exception) -> str:
    """Return an error as one line, with the file and line number in which it was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames[1:] else ""
    return f"{type(error).__name__}: {error}{where}".replace("\n", " ")
