"""Existing models: find the run for a checkpoint path of another code, and the arguments to evaluate it.

OUT/model.ckpt-343, OUT/checkpoint-343  ->  OUT and step 343, or its last step if that is the nearest
--doc_stride=64                         ->  task.stride=64, an argument of `ordsmed predict`
"""

from __future__ import annotations

import re
from pathlib import Path

from ordsmed.base import menu, settings, snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.binary import bundle
from ordsmed.base.folder import kind_of_folder, read_status
from ordsmed.base.screen import command
from ordsmed.data.tokenizer_training import is_tokenizer, read_tokenizer
from ordsmed.others.translate.program import Call, Table
from ordsmed.text.tokenizer import Tokenizer

OF_TRAINING = ("train", "dev")
CHECKPOINT = re.compile(r"(model\.ckpt|checkpoint)(-\d+)?")


def run_of(path: str, call: Call) -> tuple[str, int | None]:
    """Return the run of a checkpoint path, and the step if it is not the last one. Return other paths unchanged."""
    folder = Path(path)
    run = folder.parent
    match = CHECKPOINT.fullmatch(folder.name)
    if not match or not kind_of_folder(run).run or folder.exists() or bundle.find(folder):
        return path, None
    stored = snapshots.steps(run / "checkpoints")
    done = (run / "weights").is_dir()  # the training is complete
    last = int(read_status(run).get("step") or 0) if done else max(stored, default=0)
    digits = folder.name.rpartition("-")[2]
    wanted = int(digits) if digits.isdigit() else last
    nearest = min({*stored, last}, key=lambda step: abs(step - wanted))
    if nearest not in (wanted, last):
        steps = ", ".join(map(str, sorted({*stored, last})))
        raise UsageError(path, "no such checkpoint", f"{match[1]}-N with N one of {steps}")
    if wanted != last and nearest == last:
        call.notes.append(f"{path}: uses the last weights of {run}, of step {last:,}")
    return str(run), None if nearest == last else nearest


def put_start(call: Call, path: str) -> None:
    """Start a training from the weights of a model, without the optimizer state, as the other codes do."""
    run, step = run_of(path, call)
    within = Path(run) / "weights"
    if step is None:
        call.put("init", str(within) if kind_of_folder(run).run and within.is_dir() else run)
        return
    if call.verb != "finetune":
        export = command("export", run, f"{run}-{step}", "--step", str(step))
        raise UsageError(path, "is not of the last step", f"`{export}`, and {run}-{step} instead of it")
    call.put("init", run)
    call.put("step", step)


def check_tokenizer(call: Call, model: str, vocabulary: str | None, lowercase: bool | None = None) -> None:
    """Add a step before the run that raises an error if `model` has another vocabulary or case than the flags say."""
    if vocabulary is None and lowercase is None:
        return
    call.notes.append(f"vocabulary and case: not needed here: {model} has a tokenizer")
    call.before.append(lambda: _compare(model, vocabulary, lowercase))


def _compare(model: str, vocabulary: str | None, lowercase: bool | None) -> None:
    if not is_tokenizer(model) and not (Path(model) / "tokenizer").is_dir():  # an unfinished run has the latter
        return  # a TensorFlow checkpoint, or no model: opening it reports that
    known = read_tokenizer(model)
    if vocabulary is not None and Path(vocabulary).is_file():
        given = Tokenizer.load(vocabulary, lowercase=known.lowercase)
        if given.model["vocab"] != known.model["vocab"]:
            remedy = f"leave it out, or give the vocabulary that {model} was trained with"
            raise UsageError("--vocab_file", f"{vocabulary} lists other tokens than {model} has", "", remedy)
    if lowercase is not None and lowercase is not known.lowercase:
        raise UsageError("--do_lower_case", f"found {lowercase}; {model} was trained otherwise", str(known.lowercase))


def task_arguments(task: Table, *fixed: str) -> list[str]:
    """Return, as arguments, the settings of a task that may change after training.

    Include the settings named in `fixed`, which may not change, so that `ordsmed predict` refuses another value.
    """
    names = {*menu.load("tasks", task["kind"]).LATER, *fixed} - {*OF_TRAINING}
    return [f"task.{key}={settings.literal(value)}" for key, value in task.items() if key in names]
