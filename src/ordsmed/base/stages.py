"""Stages: the folders in a folder of `make`, which stand for it wherever one of them is wanted.

my-model/ corpus/ tokenizer/ data/ model/     of `make --for search` also dense/ (vectors), cross/ (reranker), index/
"""

from __future__ import annotations

import os
from pathlib import Path

from ordsmed.base.folder import FolderKind, kind_of_folder, read_status
from ordsmed.base.screen import command, shell_command

MODEL, CORPUS, INDEX = "model", "corpus", "index"
VECTORS, RERANKER = ("dense", MODEL), "cross"
STAGES = {  # folder: what it holds
    CORPUS: "the cleaned texts", "tokenizer": "the vocabulary", "data": "the texts as token ids",
    MODEL: "the language model", "dense": "the model that makes vectors of texts",
    RERANKER: "the model that scores a question with a passage", INDEX: "the search index",
}  # fmt: skip
BY_VERB = {"corpus": CORPUS, "tokenizer": "tokenizer", "encode": "data", "pretrain": MODEL, "index": INDEX}
FLAGS = {"purpose": "--for", "start": "--from"}  # keys of the request whose flags are called otherwise


def stage(path: str | os.PathLike[str], *names: str) -> str:
    """Return the first of these folders that stands in a folder of `make`; of any other path the path itself."""
    if os.path.isdir(path) and kind_of_folder(os.fspath(path)) is FolderKind.MAKE:
        path = next((inner for name in names if (inner := Path(path) / name).is_dir()), path)
    return os.fspath(path)


def continuing(folder: Path) -> str:
    """Return the command that continues what `make` began in this folder."""
    status = read_status(folder)
    request = dict(status.get("request", {}))
    words = ["make", *request.pop("texts", ()), request.pop("out", folder)]
    for key, value in request.items():
        words += [FLAGS.get(key, f"--{key}"), value] if value else []
    there = status.get("stood_in") or os.getcwd()
    change = "" if Path(there).resolve() == Path.cwd().resolve() else f"{shell_command('cd', there)} && "
    return change + command(*words)
