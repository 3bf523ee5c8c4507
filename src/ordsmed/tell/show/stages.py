"""Lines that `show` prints for a folder of `make`: its request, its stages, and the next command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordsmed.base.folder import kind_of_folder, read_status
from ordsmed.base.run import is_locked
from ordsmed.base.say import duration, in_words
from ordsmed.base.screen import command, command_lines, table
from ordsmed.base.stages import STAGES, TITLES, resume_command
from ordsmed.tell.show import state

FACTS = {  # stage -> paths of the most important numbers in its status
    "corpus": (("train", "documents"), ("train", "words")),
    "tokenizer": (("vocabulary",),),
    "data": (("train", "tokens"),),
    "index": (("documents",), ("passages",)),
}
OTHERS = {
    "hugging-face": "for transformers",
    "sentence-transformers": "for SentenceTransformer",
    "cross-encoder": "for CrossEncoder",
    "report.html": "the page",
}  # other outputs of `make`


def lines(folder: Path) -> list[str]:
    status, done = state.sound(folder), read_status(folder).get("state") == "done"
    request = {key: value for key, value in status.get("request", {}).items() if value}
    rows = [(name, _progress(folder / name), TITLES.get(name, "")) for name in STAGES if _is_stage(folder, name)]
    rows += [(name, "done", title) for name, title in OTHERS.items() if (folder / name).exists()]
    options = "done" if done else "another process is working on it" if is_locked(folder) else "not finished"
    took = f"; took {duration(status['seconds'])} so far" if "seconds" in status else ""
    shown = [
        f"state: {options}{took.removesuffix(' so far') if done else took}",
        *(f"  {key}: {in_words(value)}" for key, value in request.items()),
        *table([(f"{name} ({title})" if title else name, progress) for name, progress, title in rows]),
    ]
    if done:
        return [*shown, *command_lines("more of a stage", command("show", folder / "model"))]
    return [*shown, *command_lines("to continue", resume_command(folder))]


def _is_stage(folder: Path, name: str) -> bool:
    return (folder / f"{name}.toml").exists() or (folder / name).is_dir()


def _progress(folder: Path) -> str:
    if not kind_of_folder(folder).made:
        return "not started"
    status = state.sound(folder)
    facts = ((keys[-1], _at(status, *keys)) for keys in FACTS.get(folder.name, ()))
    parts = [f"{key} {value:,}" for key, value in facts if isinstance(value, int)]
    if kind_of_folder(folder).run:
        parts = state.lines(folder)[1:2]
    if "validation" in status and "unigram" in status:
        parts += [f"loss {status['validation']:.4f} on held-out text (guessing {status['unigram']:.4f})"]
    return ", ".join([*([] if status.get("state") == "done" else [str(status.get("state"))]), *parts])


def _at(status: Mapping[str, Any], *keys: str) -> object:
    value: object = status
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
