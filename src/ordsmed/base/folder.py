"""Detect the kind of a folder: output of a verb, imported weights, Hugging Face folder, or something else."""

import enum
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError

STATUS, RECIPE = "status.json", "recipe.toml"  # in every output folder of a verb
EXAMPLES = "examples"  # in a run's folder: files of examples passed from Python, written before the run starts
TRIALS = "trials.toml"  # marks a folder with several trials of a recipe
STATUS_TYPES: dict[str, type] = {  # types of the values in status.json that other verbs read
    "verb": str,
    "stood_in": str,
    "folder": str,
    "layouts": list,
    "request": dict,
}
SETTINGS, WEIGHTS, TOKENIZER = "settings.toml", "model.safetensors", "tokenizer"  # of an import or a run's `weights/`
CONFIG = "config.json"  # Hugging Face's


class FolderKind(enum.Enum):
    """The kind of a path. For the output of a verb, the value is the verb's name."""

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
    OTHER_VERB = "the output of an unknown verb"
    IMPORT = "a folder of imported weights"
    HUGGING_FACE = "a Hugging Face folder"
    FOREIGN = "a folder of another kind"

    @property
    def made(self) -> bool:
        """Return whether it is the output of a verb and has a status."""
        return self in (*VERBS.values(), FolderKind.TRIALS, FolderKind.OTHER_VERB)

    @property
    def run(self) -> bool:
        return self in (FolderKind.PRETRAINING, FolderKind.FINETUNING, FolderKind.TRIALS)

    @property
    def model(self) -> bool:
        return self.run or self in (FolderKind.IMPORT, FolderKind.HUGGING_FACE)


NOT_BY_A_VERB = ("ABSENT", "FILE", "TRIALS", "OTHER_VERB", "IMPORT", "HUGGING_FACE", "FOREIGN")
VERBS = {kind.value: kind for kind in FolderKind if kind.name not in NOT_BY_A_VERB}


def kind_of_folder(path: str | Path) -> FolderKind:
    """Return the kind of a path. Published names must be resolved first (base/hub.py)."""
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
    """Return the contents of `status.json`, empty if there is none."""
    path = folder / STATUS
    status = files.read_table(path) if path.exists() else {}
    for key, kind in STATUS_TYPES.items():
        if not isinstance(status.get(key, kind()), kind):
            raise DataError(path, f"{key}: found {status[key]}", "", "the file is damaged")
    counts = [layout.get("processes") if isinstance(layout, dict) else None for layout in status.get("layouts", [])]
    if not all(type(count) is int and count > 0 for count in counts):
        raise DataError(path, "layouts: found one without a number of processes", "", "the file is damaged")
    return status
