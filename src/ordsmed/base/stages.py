"""Stages: the folders in an output folder of `make`. A verb that is given the output folder uses the stage it needs.

my-model/ corpus/ tokenizer/ data/ model/     with `make --for search` also dense/ (vectors), cross/ (reranker), index/
"""

from __future__ import annotations

import os
from pathlib import Path

from ordsmed.base.folder import FolderKind, kind_of_folder, read_status
from ordsmed.base.screen import command, shell_command

MODEL, CORPUS, INDEX = "model", "corpus", "index"
VECTORS, RERANKER = ("dense", MODEL), "cross"
TITLES = {"data": "token ids", "dense": "vectors", RERANKER: "reranker"}  # of stages with unclear names
STAGES = (CORPUS, "tokenizer", "data", MODEL, "dense", RERANKER, INDEX)
BY_VERB = {"corpus": CORPUS, "tokenizer": "tokenizer", "encode": "data", "pretrain": MODEL, "index": INDEX}
FLAGS = {"purpose": "--for", "start": "--from"}  # keys of the request whose flags have other names


def stage(path: str | os.PathLike[str], *names: str) -> str:
    """Return the first of the stages `names` that exists in a folder of `make`; return any other path unchanged."""
    if os.path.isdir(path) and kind_of_folder(os.fspath(path)) is FolderKind.MAKE:
        path = next((inner for name in names if (inner := Path(path) / name).is_dir()), path)
    return os.fspath(path)


def continuing(folder: Path) -> str:
    """Return the command that resumes the `make` of this folder, with a `cd` if it was started elsewhere."""
    status = read_status(folder)
    request = dict(status.get("request", {}))
    words = ["make", *request.pop("texts", ()), request.pop("out", folder)]
    for key, value in request.items():
        words += [FLAGS.get(key, f"--{key}"), value] if value else []
    started_in, named = status.get("stood_in") or os.getcwd(), Path(status.get("folder", folder))
    # a folder with an absolute path may be opened from anywhere (`run.at_home` changes the current folder)
    at_home = os.path.realpath(started_in) == os.getcwd() and named.is_absolute() == folder.is_absolute()
    return command(*words) if at_home else f"{shell_command('cd', started_in)} && {command(*words)}"
