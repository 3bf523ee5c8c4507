"""Stages: the folders in an output folder of `make`. Other verbs accept the output folder and use the stage they need.

my-model/ corpus/ tokenizer/ data/ model/     with `make --for search` also dense/ (vectors), cross/ (reranker), index/
"""

from __future__ import annotations

import os
from pathlib import Path

from ordsmed.base.folder import FolderKind, kind_of_folder, read_status
from ordsmed.base.screen import command, shell_command

MODEL, CORPUS, INDEX = "model", "corpus", "index"
VECTORS, RERANKER = ("dense", MODEL), "cross"
TITLES = {"data": "token ids", "dense": "vectors", RERANKER: "reranker"}  # titles of stages, if not the folder's name
STAGES = (CORPUS, "tokenizer", "data", MODEL, "dense", RERANKER, INDEX)
BY_VERB = {"corpus": CORPUS, "tokenizer": "tokenizer", "encode": "data", "pretrain": MODEL, "index": INDEX}
FLAGS = {"purpose": "--for", "start": "--from"}  # keys of the request whose flags have other names


def stage(path: str | os.PathLike[str], *names: str) -> str:
    """Return the first stage in `names` that exists in a folder of `make`. Return any other path unchanged."""
    if os.path.isdir(path) and kind_of_folder(os.fspath(path)) is FolderKind.MAKE:
        path = next((inner for name in names if (inner := Path(path) / name).is_dir()), path)
    return os.fspath(path)


def resume_command(folder: Path) -> str:
    """Return the command that resumes the `make` of this folder, after a `cd` if it was started in another folder."""
    status = read_status(folder)
    request = dict(status.get("request", {}))
    words = ["make", *request.pop("texts", ()), request.pop("out", folder)]
    for key, value in request.items():
        words += [FLAGS.get(key, f"--{key}"), value] if value else []
    started_in, named = status.get("stood_in") or os.getcwd(), Path(status.get("folder", folder))
    # a folder with an absolute path may be opened from anywhere (`run.in_start_folder` changes the current folder)
    at_home = os.path.realpath(started_in) == os.getcwd() and named.is_absolute() == folder.is_absolute()
    return command(*words) if at_home else f"{shell_command('cd', started_in)} && {command(*words)}"
