"""Packages that are called as the verb whose name they bear: `ordsmed.pretrain(...)`, whatever was imported before."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class CalledRoom(ModuleType):
    """A package that is called as the function of its name in `api/training.py`.

    Importing `ordsmed.pretrain.plan` makes the package an attribute of `ordsmed`; so the package must be the function.
    """

    def __call__(self, *given: Any, **how: Any) -> Any:
        return getattr(import_module("ordsmed.api.training"), self.__name__.rpartition(".")[2])(*given, **how)
