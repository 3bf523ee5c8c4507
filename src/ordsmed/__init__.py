"""Ordsmed makes contextual language models: from raw text to a folder that Hugging Face loads.

    import ordsmed
    run = ordsmed.pretrain("tiny/bert")                   # recipe -> run, as `ordsmed pretrain tiny/bert`
    ordsmed.open(run.folder).fill("it is [MASK].")        # any run, import, Hugging Face folder or published name

What stands behind these names is imported when it is first asked for; docs/python.md shows them.
"""

from __future__ import annotations

import sys
from importlib import import_module

__version__ = "0.2.0"

FACE = {  # a name -> where it stands
    "open": "api.model",
    "OpenModel": "api.model",
    "pretrain": "api.training",
    "finetune": "api.training",
    "corpus": "api.making",
    "tokenizer": "api.making",
    "encode": "api.making",
    "export": "api.making",
    "report": "api.making",
    "evaluate": "api.measuring",
    "compare": "api.measuring",
    "index": "api.searching",
    "open_index": "api.searching",
    "search": "api.searching",
    "update_index": "api.searching",
    "OpenIndex": "use.index.open_index",
    "SearchHit": "use.index.open_index",
    "Made": "api.verb_result",
    "Filled": "use.fill",
    "Guess": "use.fill",
    "Generated": "use.generation.options",
    "Embedded": "use.embed",
    "Answered": "learn.score.answers",
    "Scored": "measure.likelihood.surprisal",
    "Classified": "use.predict",
    "Tagged": "use.predict",
    "Predicted": "use.predict",
    "Evaluated": "use.predict",
    "TrainingRun": "api.run",
    "make": "maker.make",
    "MadeModel": "maker.make",
    "Stopped": "base.ending",
    "speedrun": "maker.speedrun.speedrun",
    "Speedrun": "maker.speedrun.speedrun",
    "speedrun_check": "maker.speedrun.reproduction",
    "OrdsmedError": "base.errors",
    "RecipeError": "base.errors",
    "DataError": "base.errors",
    "RunError": "base.errors",
}
__all__ = ["__version__", *FACE]


class _FormerNames:
    """Finds modules by the names they had, before others find the same file again under that name."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if not name.startswith("ordsmed.") or name in ("ordsmed.base", "ordsmed.base.former_modules"):
            return None
        return import_module("ordsmed.base.former_modules").spec(name)


sys.meta_path.insert(0, _FormerNames)  # type: ignore[arg-type]


class _CalledPackage(type(sys)):
    """A package that has the name of a function of the face, as `ordsmed.corpus`: called, it is that function."""

    @property
    def __signature__(self) -> object:
        from inspect import signature

        return signature(_offered(self.__name__.rpartition(".")[2]))

    def __call__(self, *args: object, **settings: object) -> object:
        return _offered(self.__name__.rpartition(".")[2])(*args, **settings)


class _Face(type(sys)):
    """This module: an import of a package binds it here, where a function of that name would be hidden."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in FACE and isinstance(value, type(sys)):
            value.__class__ = _CalledPackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def _offered(name: str):
    return getattr(import_module(f"ordsmed.{FACE[name]}"), name)


def __getattr__(name: str) -> object:
    if name in FACE:
        offered = _offered(name)
        return globals().get(name, offered)  # a package of that name that was imported on the way
    raise AttributeError(f"module 'ordsmed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
