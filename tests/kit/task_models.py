"""Small networks for each task, with random weights: what they say is at random, and always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.families import shaken
from kit.language_models import elmo_made, hub_folder, made
from kit.task_files import LABELS
from ordsmed.base import files, settings
from ordsmed.base.folder import SETTINGS, WEIGHTS
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights
from ordsmed.weights.foreign import Networks


def task_models(data: Path) -> dict[str, Path]:
    """A folder for each, next to the files that `task_files` made."""
    tokenizer = Tokenizer.load(data / "vocab.txt")
    model = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=64)
    kinds: dict[str, Any] = {
        "classify": classify.Classify(labels=LABELS, length=40),
        "pairs": classify.Classify(labels=LABELS, length=40, second="other"),
        "number": classify.Classify(number=True, scale=(-2.0, 3.0), length=40),
        "fits": classify.Classify(number=True, scale=(0.0, 1.0), length=40, second="other"),
        "tag": tag.Tag(labels=("B-HIGH", "I-HIGH", "O"), file_scheme="IOB2", length=40),
        "answer": squad.Squad(version="2.0", threshold=1e6, length=48, stride=16),
    }
    for name, task in kinds.items():
        objective = shaken(fresh(task, model, tokenizer, 3), 0.5)
        write_model(data / name, own_tensors(objective), Networks(model=model, task=task), tokenizer)
    return {name: data / name for name in kinds}


def language_models(folder: Path) -> dict[str, Path]:
    """A model of each kind that reads or writes texts."""
    found = {name: hub_folder(name, folder / name) for name in ("bert", "gpt2", "electra")}
    for name, trained in {
        "elmo": elmo_made(folder / "words"),
        "hybrid": made("hybrid", folder / "pieces"),
        "diffusion": made("diffusion", folder / "pieces"),
    }.items():
        networks = Networks(model=trained.settings, objective=trained.learned)
        write_model(folder / name, own_tensors(trained.objective), networks, trained.tokenizer)
        found[name] = folder / name
    return found


def write_model(folder: Path, tensors: Any, networks: Networks, tokenizer: Tokenizer) -> None:
    folder.mkdir()
    weights.write(folder / WEIGHTS, tensors)
    files.write_text(folder / SETTINGS, settings.write(networks))
    tokenizer.save(folder / "tokenizer")
