"""What command lines of other codes become, read by the house and laid flat, for comparing with tables by hand."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import settings
from ordsmed.base.ranks import ProcessInfo
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.measure.bench.bench import Bench
from ordsmed.measure.evaluation.recipe import Evaluation
from ordsmed.others.translate import install, perform
from ordsmed.others.translate.program import Call, Program, find
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.recipe import Pretraining

CLASSES = {
    "corpus": Corpus,
    "encode": Encoding,
    "tokenizer": TokenizerTraining,
    "pretrain": Pretraining,
    "evaluate": Evaluation,
    "finetune": Finetuning,
    "bench": Bench,
}


def called(code: str, name: str, *words: str, world: int = 1, **environment: str) -> Call:
    """The call that words mean in one of so many processes."""
    program = find(code, name)
    return program.translated(program.read(words, ProcessInfo(0, world), environment))


def flat(program: Program, call: Call, overrides: Sequence[str] = (), by: Any = settings.plain) -> dict[str, Any]:
    """Every recipe of a call as the house reads it, flat."""
    found = dict[str, Any]()
    for path, text in perform.recipes(program, call, overrides).items():
        recipe = settings.decode(CLASSES[path.stem], tomllib.loads(text), path.stem)
        found |= {f"{path.stem}: {key}": value for key, value in settings.flat(by(recipe)).items()}
    return found


def resolved(code: str, name: str, *words: str, world: int = 1, by: Any = settings.plain) -> dict[str, Any]:
    """Every recipe of what words mean, flat."""
    program = find(code, name)
    values = program.read(words, ProcessInfo(0, world), {})
    return flat(program, program.translated(values), values.overrides, by)


def changes(code: str, name: str, least: list[str], *words: str, world: int = 1) -> dict[str, Any]:
    """What words change beside the least that must be said, of what differs from the house's defaults."""
    how = settings.without_defaults
    before = resolved(code, name, *least, by=how)
    after = resolved(code, name, *least, *words, world=world, by=how)
    new = {key: value for key, value in after.items() if before.get(key) != value and value is not None}
    return {key: value for key, value in new.items() if not str(value).startswith("work/as/")}


def differences(code: str, name: str, before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
    """What some words mean otherwise than others, of all settings."""
    known = resolved(code, name, *before)
    new = {key: value for key, value in resolved(code, name, *after).items() if known.get(key) != value}
    return {key: value for key, value in new.items() if not str(value).startswith("work/as/")}


def installed(place: Path, code: str) -> Path:
    """Files of a code's names, with a `python` and a `torchrun` that print their words."""
    install.install(code, str(place))
    (place / "bin").mkdir()
    for name in ("python", "torchrun"):
        script = place / "bin" / name
        script.write_text('#!/usr/bin/env bash\necho "$(basename "$0")" "$@"\n')
        script.chmod(0o755)
    return place


def words_of(place: Path, command: str, **environment: str) -> list[str]:
    """The words of what a script of theirs calls, in such a folder."""
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["bash", "-c", command], cwd=place, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
