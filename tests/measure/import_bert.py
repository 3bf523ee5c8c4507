"""Time and memory of `ordsmed import` of a BERT of base size in Google's files, invented here.

python tests/measure/import_bert.py FOLDER    # 440 MB in FOLDER/theirs, imported into FOLDER/ours
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from ordsmed.base.binary import bundle

V, D, L, INNER = 30522, 768, 12, 3072


def variables() -> dict[str, tuple[int, ...]]:
    own: dict[str, tuple[int, ...]] = {}

    def dense(name: str, here: int, there: int) -> None:
        own.update({f"{name}/kernel": (here, there), f"{name}/bias": (there,)})

    def norm(name: str) -> None:
        own.update({f"{name}/LayerNorm/gamma": (D,), f"{name}/LayerNorm/beta": (D,)})

    rows = {"word_embeddings": V, "position_embeddings": 512, "token_type_embeddings": 2}
    own.update({f"bert/embeddings/{name}": (count, D) for name, count in rows.items()})
    norm("bert/embeddings")
    for n in range(L):
        at = f"bert/encoder/layer_{n}"
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            dense(f"{at}/attention/{part}", D, D)
        norm(f"{at}/attention/output")
        dense(f"{at}/intermediate/dense", D, INNER)
        dense(f"{at}/output/dense", INNER, D)
        norm(f"{at}/output")
    dense("bert/pooler/dense", D, D)
    dense("cls/predictions/transform/dense", D, D)
    norm("cls/predictions/transform")
    own.update({"cls/predictions/output_bias": (V,), "cls/seq_relationship/output_weights": (2, D)})
    return own | {"cls/seq_relationship/output_bias": (2,)}


def main(folder: Path) -> None:
    theirs = folder / "theirs"
    theirs.mkdir(parents=True, exist_ok=True)
    chance = torch.Generator().manual_seed(0)
    bundle.write(theirs / "bert_model.ckpt", ((n, torch.randn(s, generator=chance)) for n, s in variables().items()))
    config = {
        "vocab_size": V,
        "hidden_size": D,
        "num_hidden_layers": L,
        "num_attention_heads": 12,
        "hidden_act": "gelu",
        "intermediate_size": INNER,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }
    (theirs / "bert_config.json").write_text(json.dumps(config))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(V - 5))]
    (theirs / "vocab.txt").write_text("\n".join(pieces) + "\n")
    held = sum(path.stat().st_size for path in theirs.glob("*.data-*"))
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ordsmed", "import", theirs, folder / "ours", "--anew"], check=True)
    seconds, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    print(f"{held / 1e6:.0f} MB: {seconds:.1f} s, {cpu:.1f} of a CPU, peak {peak / 1e6:.0f} MB, {peak / held:.2f} x")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
