"""What stands at a path: the folder of a verb, weights taken over, a Hugging Face folder, or nothing of that kind.

Asked here alone; verbs and machines differ only in what they do about the answer.
"""

import enum
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError

STATUS, RECIPE = "status.json", "recipe.toml"  # of what a verb made
EXAMPLES = "examples"  # in a run's folder: files of what a program gave to learn from, written before the run begins
TRIALS = "trials.toml"  # of several trainings of one recipe side by side
STATED: dict[str, type] = {
    "verb": str,
    "stood_in": str,
    "folder": str,
    "layouts": list,
    "request": dict,
}  # what every verb may read
SETTINGS, WEIGHTS, TOKENIZER = "settings.toml", "model.safetensors", "tokenizer"  # of an import, a run's `weights/`
CONFIG = "config.json"  # Hugging Face's


class FolderKind(enum.Enum):
    """What stands at a path; of what a verb made, the verb."""

    ABSENT = "no such folder"
    FILE = "a file"
    CORPUS = "corpus"
    TOKENIZER = "tokenizer"
    STORE = "encode"
    PRETRAINING = "pretrain"
    FINETUNING = "finetune"
    TRIALS = "trials of a training"
    BENCH = "bench"
    STABILITY = "stability"
    JUDGE = "corpus judge"
    INDEX = "index"
    MAKE = "make"
    OTHER_VERB = "made by a verb that is not known here"
    IMPORT = "weights and settings of ours, of no run"
    HUGGING_FACE = "a Hugging Face folder"
    FOREIGN = "a folder of something else"

    @property
    def made(self) -> bool:
        """By a verb, with a status?"""
        return self in (*VERBS.values(), FolderKind.TRIALS, FolderKind.OTHER_VERB)

    @property
    def run(self) -> bool:
        """Of a training, whose weights can be opened once they stand?"""
        return self in (FolderKind.PRETRAINING, FolderKind.FINETUNING, FolderKind.TRIALS)

    @property
    def model(self) -> bool:
        """Can weights be opened from it?"""
        return self.run or self in (FolderKind.IMPORT, FolderKind.HUGGING_FACE)


MADE = (FolderKind.CORPUS, FolderKind.TOKENIZER, FolderKind.STORE, FolderKind.PRETRAINING, FolderKind.FINETUNING,
        FolderKind.BENCH, FolderKind.STABILITY, FolderKind.JUDGE,
        FolderKind.INDEX, FolderKind.MAKE)  # fmt: skip
VERBS = {kind.value: kind for kind in MADE}


def kind_of_folder(path: str | Path) -> FolderKind:
    """What stands there; a name that only leads to a folder (base/hub.py) is looked up before."""
    path = Path(path)
    if not path.is_dir():
        return FolderKind.FILE if path.exists() else FolderKind.ABSENT
    if status := read_status(path):
        kind = VERBS.get(str(status.get("verb")), FolderKind.OTHER_VERB)
        trained = kind in (FolderKind.PRETRAINING, FolderKind.FINETUNING)
        return FolderKind.TRIALS if trained and (path / TRIALS).exists() else kind
    if (path / SETTINGS).exists() and (path / WEIGHTS).exists():
        return FolderKind.IMPORT
    return FolderKind.HUGGING_FACE if (path / CONFIG).exists() else FolderKind.FOREIGN


def read_status(folder: Path) -> dict[str, Any]:
    """What its `status.json` says; empty where there is none."""
    path = folder / STATUS
    status = files.read_table(path) if path.exists() else {}
    for key, kind in STATED.items():
        if not isinstance(status.get(key, kind()), kind):
            raise DataError(path, f"{key}: found {status[key]}", "", "the file is damaged")
    counts = [layout.get("processes") if isinstance(layout, dict) else None for layout in status.get("layouts", [])]
    if not all(type(count) is int and count > 0 for count in counts):
        raise DataError(path, "layouts: found one without its processes", "", "the file is damaged")
    return status
