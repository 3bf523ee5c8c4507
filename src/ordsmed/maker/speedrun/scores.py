"""Scores of the models of an entry: how likely held-out text is, and minimal pairs as BabyLM's evaluation counts them.

Both go by what a model can do: one that goes on with texts is asked for the next token, one that fills gaps for each
token from all others, and for a share of them hidden at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordsmed.api.model import OpenModel
from ordsmed.api.model import open as open_model
from ordsmed.base import files
from ordsmed.base.run import Run
from ordsmed.corpus.folder import documents, parts
from ordsmed.maker.speedrun.masked_loss import masked_loss
from ordsmed.train import checkpoint

LOWER = ("bits_per_byte", "pseudo_bits_per_byte")  # what models are ranked by, and less of which is better
MASKED_LOSS = "masked_loss"
BLIMP = "blimp"


def held_out(corpus: Path, path: Path, words: int) -> None:
    """The first so many held-out words, in the order of the sample, as a file of documents; what stands stays."""
    texts, left = list[str](), words
    for part in parts(corpus, "validation"):
        for document in documents(part):
            if left > 0:
                texts.append(" ".join(document.text.split(" ")[:left]))
                left -= len(document.text.split())
    if not path.exists():
        files.write_text(path, "\n\n".join(" ".join(text.split()) for text in texts) + "\n")


def scores(model: Path, texts: Mapping[str, Path], blimp: str) -> dict[str, float]:
    """What a trained model scores; `texts`: held-out ones, all (of a corpus) and the few on which each token is asked
    by itself."""
    opened = open_model(model, threads=checkpoint.threads_kept(model))
    result = {"validation": float(Run(model).status.get("validation") or float("nan"))}
    masked = is_masked(opened)
    probe = "pseudo_perplexity" if masked else "perplexity"
    facts = opened.evaluate(str(texts["few" if masked else "all"]), probe=probe).scores
    result |= {name: float(facts[name]) for name in (*LOWER, probe) if name in facts}
    if masked and (loss := masked_loss(opened.trained, texts["all"].parent)) is not None:
        result[MASKED_LOSS] = loss
    if blimp:
        paths = [str(Path(blimp) / "*.jsonl*")] if Path(blimp).is_dir() else [blimp]
        pairs = opened.evaluate(paths, probe="minimal_pairs", scoring="babylm").scores
        result[BLIMP] = float(pairs["babylm"])
    return result


def is_masked(model: OpenModel) -> bool:
    """Does it guess from both sides alone?"""
    return "fill" in model.can and not model.trained.continues


def ranked_by(scored: Mapping[str, float]) -> str:
    """The score by which entries are compared."""
    return next(name for name in LOWER if name in scored)


def sample_mark(corpus: Path) -> dict[str, Any]:
    """What the sample is: a checksum of its texts in their order, and its sizes."""
    digest, status = hashlib.sha256(), Run(corpus).status
    for split in ("train", "validation"):
        for path in parts(corpus, split):
            for document in documents(path):
                digest.update(f"{split}\n{document.text}\0".encode())
    counts = {split: {key: status[split][key] for key in ("documents", "words")} for split in ("train", "validation")}
    return {"sha256": digest.hexdigest(), **counts, "beyond": status.get("beyond", {"documents": 0, "words": 0})}


def file_mark(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
