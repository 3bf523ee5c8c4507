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
    "open": "api.model", "OpenModel": "api.model", "pretrain": "api.training", "finetune": "api.training",
    "Filled": "use.fill", "Guess": "use.fill", "Generated": "use.generation.options", "Embedded": "use.embed",
    "Answered": "learn.score.answers",
    "Classified": "use.predict", "Tagged": "use.predict", "Predicted": "use.predict",
    "Evaluated": "use.predict", "TrainingRun": "api.run",
    "make": "maker.make", "MadeModel": "maker.make", "Stopped": "base.ending",
    "OrdsmedError": "base.errors", "RecipeError": "base.errors", "DataError": "base.errors", "RunError": "base.errors",
}  # fmt: skip
__all__ = ["__version__", *FACE]


class _FormerNames:
    """Finds modules by the names they had, before others find the same file again under that name."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if not name.startswith("ordsmed.") or name in ("ordsmed.base", "ordsmed.base.moved"):
            return None
        return import_module("ordsmed.base.moved").spec(name)


sys.meta_path.insert(0, _FormerNames)  # type: ignore[arg-type]


def __getattr__(name: str) -> object:
    if name in FACE:
        return getattr(import_module(f"ordsmed.{FACE[name]}"), name)
    raise AttributeError(f"module 'ordsmed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
