"""Optional packages that are not here: a test that ends for want of one is skipped, whoever wanted it.

python tests/measure/without.py ftfy h5py ...   # all tests as if these were not installed: none may fail
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ordsmed.base.errors import RecipeError

OPTIONAL = (
    "blingfire",
    "bm25s",
    "dask",
    "distributed",
    "faiss",
    "ftfy",
    "furo",
    "google_crc32c",
    "h5py",
    "hatchling",
    "httpx",
    "lm_eval",
    "lxml",
    "lxml_html_clean",
    "minicons",
    "mwparserfromhell",
    "myst_parser",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openai",
    "protego",
    "py3langid",
    "pyarrow",
    "pypdf",
    "pytrec_eval",
    "schemathesis",
    "scipy",
    "sentence_transformers",
    "sentencepiece",
    "seqeval",
    "sklearn",
    "sphinx",
    "starlette",
    "tenacity",
    "tensorboard",
    "trafilatura",
    "transformers",
    "triton",
    "uvicorn",
    "yaml",
)
ADD_ONS = [name for name in ("machines", "others", "serve", "web") if find_spec(f"ordsmed.{name}") is None]
ABSENT = frozenset([*(name for name in OPTIONAL if find_spec(name) is None), *ADD_ONS])
OF_ADD_ONS = re.compile(rf"\bordsmed(\.| import .*\b)({'|'.join(ADD_ONS)})\b|\bkit(\.| import )(dialects|served)\b")
SAID = re.compile(r"`?\b(\w+)`?,?(?: which)? (?:is not installed|cannot be imported)")


def of_missing_add_on(path: Path) -> bool:
    """Return whether a file of tests, or a folder of them, needs an add-on that is not installed (`make core`)."""
    if not ADD_ONS or path.suffix != ".py":
        return path.name in ADD_ONS
    return bool(OF_ADD_ONS.search(path.read_text(encoding="utf-8")))


class Lazy:
    """A module that is imported by whoever uses something of it."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.module), name)


def wanted(error: BaseException) -> str:
    """The optional package for want of which this was raised; "" where it is another error, or the package is here."""
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").removeprefix("ordsmed.").partition(".")[0]
    else:
        said = SAID.search(str(error)) if isinstance(error, RecipeError) else None
        name = said[1] if said else ""
    return name if name in ABSENT else ""
