"""Existing models: find the run for a checkpoint path of another code, and the flags for its evaluation.

OUT/model.ckpt-343, OUT/checkpoint-343  ->  OUT: its weights of step 343, or of its last step if that is the nearest
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
    """Return the run of a checkpoint, and the step if it is not the last one. Other paths are returned unchanged."""
    folder = Path(path)
    run = folder.parent
    named = CHECKPOINT.fullmatch(folder.name)
    if not named or not kind_of_folder(run).run or folder.exists() or bundle.find(folder):
        return path, None
    stored = snapshots.steps(run / "checkpoints")
    done = (run / "weights").is_dir()  # the training is complete
    last = int(read_status(run).get("step") or 0) if done else max(stored, default=0)
    digits = folder.name.rpartition("-")[2]
    wanted = int(digits) if digits.isdigit() else last
    nearest = min({*stored, last}, key=lambda step: abs(step - wanted))
    if nearest not in (wanted, last):
        kept = ", ".join(map(str, sorted({*stored, last})))
        raise UsageError(path, "no such checkpoint", f"{named[1]}-N with N one of {kept}", f"{run} keeps these")
    if wanted != last and nearest == last:
        call.notes.append(f"{path}: the last weights of {run}, of step {last:,}")
    return str(run), None if nearest == last else nearest


def put_start(call: Call, path: str) -> None:
    """Start a training from the weights only, without a run's optimizer state, as other codes read a checkpoint."""
    run, step = run_of(path, call)
    within = Path(run) / "weights"
    if step is None:
        call.put("init", str(within) if kind_of_folder(run).run and within.is_dir() else run)
        return
    if call.verb != "finetune":
        export = command("export", run, f"{run}-{step}", "--step", str(step))
        raise UsageError(path, "is not of the last step", f"`{export}`, and {run}-{step} in its place")
    call.put("init", run)
    call.put("step", step)


def check_tokenizer(call: Call, model: str, vocabulary: str | None, lowercase: bool | None = None) -> None:
    """Before the run, raise an error if the model was trained with another vocabulary than the named one."""
    if vocabulary is None and lowercase is None:
        return
    call.notes.append(f"vocabulary and case: not needed here: {model} has its own tokenizer")
    call.before.append(lambda: _compare(model, vocabulary, lowercase))


def _compare(model: str, vocabulary: str | None, lowercase: bool | None) -> None:
    if not is_tokenizer(model) and not (Path(model) / "tokenizer").is_dir():  # an unfinished run has one, too
        return  # a TensorFlow checkpoint, or missing: reported when the model is opened
    known = read_tokenizer(model)
    if vocabulary is not None and Path(vocabulary).is_file():
        listed = Tokenizer.load(vocabulary, lowercase=known.lowercase)
        if listed.model["vocab"] != known.model["vocab"]:
            remedy = f"leave it out, or name the vocabulary that {model} was trained with"
            raise UsageError("--vocab_file", f"{vocabulary} lists other pieces than {model} has", "", remedy)
    if lowercase is not None and lowercase is not known.lowercase:
        raise UsageError("--do_lower_case", f"found {lowercase}; {model} has learned otherwise", str(known.lowercase))


def asked_by(task: Table, *learned: str) -> list[str]:
    """Return the settings of a task that can still change after training, as arguments.

    `learned` names settings that cannot change; they are included so that a different value is refused.
    """
    changeable = {*menu.load("tasks", task["kind"]).LATER, *learned}
    kept = {key: value for key, value in task.items() if key in changeable and key not in OF_TRAINING}
    return [f"task.{key}={settings.literal(value)}" for key, value in kept.items()]
