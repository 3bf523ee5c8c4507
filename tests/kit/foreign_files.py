"""Folders as other frameworks leave them: real TensorFlow checkpoints with vocabularies, torch's files made here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

REAL = Path(__file__).parents[1] / "binary" / "tensorflow"  # made by tests/measure/tensorflow_files.py
SIGNS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 40


def wordpieces(folder: Path, count: int = WORDS) -> Path:
    """vocab.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [*SIGNS, *(f"w{n}" for n in range(count - len(SIGNS)))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def byte_pieces(folder: Path, count: int = WORDS) -> Path:
    """encoder.json and vocab.bpe: letters, two merges, signs that no text has, the end."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "ab", "abc"]
    pieces = [*letters, *(f"¤{n}" for n in range(count - len(letters) - 1)), "<|endoftext|>"]
    (folder / "encoder.json").write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\na b\nab c\n")
    return folder


def google_bert(folder: Path) -> Path:
    """A BERT of 2 layers of width 8 with both heads, an optimizer's slots and the step."""
    wordpieces(folder)
    for path in REAL.glob("bert_*"):
        shutil.copy(path, folder)
    return folder


def electra(folder: Path, kind: str = "electra") -> Path:
    """An ELECTRA of one layer of width 8 and its generator of width 4; `kind`: "electra" is Google's, or "nvidia"."""
    wordpieces(folder)
    for path in (REAL / kind).iterdir():
        shutil.copy(path, folder)
    return folder


def openai_gpt2(folder: Path) -> Path:
    """A GPT-2 of 2 layers of width 8."""
    byte_pieces(folder)
    for path in (REAL / "gpt2").iterdir():
        shutil.copy(path, folder)
    sizes = {"n_vocab": WORDS, "n_ctx": 12, "n_embd": 8, "n_head": 2, "n_layer": 2}
    (folder / "hparams.json").write_text(json.dumps(sizes))
    return folder
