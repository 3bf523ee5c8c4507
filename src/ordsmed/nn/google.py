"""How Google's code calls the variables of BERT and ELECTRA, and what stands beside them in its checkpoints.

Hugging Face's name                       Google's
bert.encoder.layer.0.output.dense.weight  bert/encoder/layer_0/output/dense/kernel   [in, out]
....LayerNorm.weight, .bias               .../LayerNorm/gamma, beta
bert.embeddings.word_embeddings.weight    bert/embeddings/word_embeddings
cls.seq_relationship.weight               cls/seq_relationship/output_weights
"""

from __future__ import annotations

import re

from ordsmed.nn.renaming import Held, Lies

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh"}  # BERT's -> Hugging Face's name of the same
SLOTS = re.compile(r"/(adam_[mv]|Adam(_1)?|Adagrad|Momentum|LAMB\w*|lamb_[mv]|m|v)$|^global_step$|^beta[12]_power$")


def without_slots(held: Held) -> Held:
    """Without what an optimizer keeps, and the step."""
    return held.renamed(lambda name: None if SLOTS.search(name) else name)


def spelled(_: str, name: str) -> tuple[str, Lies]:
    """How Google calls what Hugging Face calls so, and how it lies there."""
    module, _, end = name.rpartition(".")
    scope = re.sub(r"layer\.(\d+)", r"layer_\1", module).replace(".", "/")
    if module.endswith("_embeddings"):
        return scope, "alike"
    if module.endswith("LayerNorm"):
        return f"{scope}/{'gamma' if end == 'weight' else 'beta'}", "alike"
    if module in ("cls.predictions", "cls.seq_relationship"):
        return f"{scope}/output_{'weights' if end == 'weight' else 'bias'}", "alike"
    return f"{scope}/{'kernel' if end == 'weight' else 'bias'}", "turned" if end == "weight" else "alike"
