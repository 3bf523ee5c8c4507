"""Small language models with random weights, as Hugging Face folders and opened, and sentences that they can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from kit.families import shaken
from ordsmed.learn.objectives import bilm, clm, diffusion, hybrid, mlm, rtd
from ordsmed.nn.models import bert, electra, elmo, gpt2, modern
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights
from ordsmed.weights.hub_files import config, tensors
from ordsmed.weights.trained_model import Trained, open_model

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
WORDS = [
    *["the", "a", "newt", "cat", "dog", "sat", "ran", "swam"],
    *["on", "under", "mat", "pond", "red", "old", "and", "it"],
]
SIZE = {"width": 32, "layers": 2, "heads": 2, "positions": 32}
LEARNED: dict[str, tuple[Any, Any]] = {
    "gpt2": (gpt2.Gpt2(**SIZE), clm.Clm()),
    "bert": (bert.Bert(**SIZE), mlm.Mlm()),
    "modern": (modern.ModernBert(**SIZE, inner=48, window=8), mlm.Mlm()),
    "electra": (electra.Electra(**SIZE, embedding=16), rtd.Rtd()),
    "hybrid": (gpt2.Gpt2(**SIZE), hybrid.Hybrid()),
    "hybrid-modern": (modern.ModernBert(**SIZE, inner=48, window=8), hybrid.Hybrid()),
    "diffusion": (bert.Bert(**SIZE), diffusion.Diffusion()),
}
SENTENCES = [
    "the newt swam under it",
    "the newts swam under it",
    "a red cat sat on the mat .",
    "it ran",
    "a dog ran and ran",
    "the old cats and the dogs sat under a mat",
    "newts",
    "cat",
    "the cat ran on the old red mat and the dog sat on it",
]


def tokenizer(folder: Path) -> Tokenizer:
    """Words, an ending and single letters."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [*PIECES, *WORDS, "##s", ".", *(x for x in letters if x not in WORDS), *(f"##{x}" for x in letters[:18])]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    return Tokenizer.load(folder / "vocab.txt")


def made(family: str, folder: Path, seed: int = 3) -> Trained:
    """A model of this family in memory, no weight of it as it begins."""
    settings, learned = LEARNED[family]
    cutter = tokenizer(folder)
    torch.manual_seed(seed)
    return Trained(shaken(learned.build(settings, cutter)).eval(), cutter, settings, folder, learned=learned)


def elmo_made(folder: Path, filters: Any = ((1, 4), (2, 8))) -> Trained:
    """An ELMo that knows some words."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS]) + "\n")
    words = Tokenizer.load(folder / "vocab.txt")
    settings = elmo.Elmo(width=16, cells=24, layers=2, highways=1, filters=filters, letter=4)
    torch.manual_seed(3)
    objective = shaken(bilm.BiLm(samples=0).build(settings, words))
    return Trained(objective.eval(), words, settings, folder, learned=bilm.BiLm(samples=0))


def hub_folder(family: str, folder: Path, seed: int = 3) -> Path:
    """The same as a Hugging Face folder, its tokenizer with it."""
    trained = made(family, folder, seed)
    network = trained.objective.networks()[""]
    (folder / "config.json").write_text(json.dumps(config(network, trained.tokenizer)))
    weights.write(folder / "model.safetensors", tensors(network))
    trained.tokenizer.save(folder)
    return folder


def opened(family: str, folder: Path) -> Trained:
    """Written and opened again."""
    return open_model(hub_folder(family, folder))


def pairs_file(path: Path, pairs: list[tuple[str, str]], **more: Any) -> Path:
    """As BLiMP writes them."""
    rows = ({"sentence_good": good, "sentence_bad": bad, **more} for good, bad in pairs)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
