"""Scores of the models of an entry: the likelihood of held-out text, and minimal pairs as in BabyLM's evaluation.

A causal model predicts each next token. A masked model predicts each token from all others, and also a share of tokens
masked together.
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

LOWER = ("bits_per_byte", "pseudo_bits_per_byte")  # scores that rank models; lower is better
MASKED_LOSS = "masked_loss"
BLIMP = "blimp"


def held_out(corpus: Path, path: Path, words: int) -> None:
    """Write the first `words` held-out words of the sample as documents; an existing file is kept."""
    texts, left = list[str](), words
    for part in parts(corpus, "validation"):
        for document in documents(part):
            if left > 0:
                texts.append(" ".join(document.text.split(" ")[:left]))
                left -= len(document.text.split())
    if not path.exists():
        files.write_text(path, "\n\n".join(" ".join(text.split()) for text in texts) + "\n")


def scores(model: Path, texts: Mapping[str, Path], blimp: str) -> dict[str, float]:
    """Return the scores of a trained model.

    `texts` are held-out: "all" is that of the corpus; "few" is a part, for probes that run the network once per token.
    """
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
    """Return whether a model only predicts tokens from both sides."""
    return "fill" in model.can and not model.trained.continues


def ranked_by(scored: Mapping[str, float]) -> str:
    return next(name for name in LOWER if name in scored)


def sample_mark(corpus: Path) -> dict[str, Any]:
    """Return a checksum of the sample's texts in order, and its sizes."""
    digest, status = hashlib.sha256(), Run(corpus).status
    for split in ("train", "validation"):
        for path in parts(corpus, split):
            for document in documents(path):
                digest.update(f"{split}\n{document.text}\0".encode())
    counts = {split: {key: status[split][key] for key in ("documents", "words")} for split in ("train", "validation")}
    return {"sha256": digest.hexdigest(), **counts, "beyond": status.get("beyond", {"documents": 0, "words": 0})}


def file_mark(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
