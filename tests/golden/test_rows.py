"""Golden rows: what objectives make of a small store drawn from a seed, as sums of all their numbers in rows.json.

Rows are functions of seed and number, so that a run goes on as it began, with another version too. A change of these is
a change for everybody's runs: name it, and its reason, in the commit. `python tests/golden/test_rows.py` writes them.
"""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import make_words
from ordsmed.data.encode import Encoded
from ordsmed.data.store import Store, StoreWriter
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.sampling import Draw, keys
from ordsmed.learn.schedules import Ramp
from ordsmed.objectives import bilm, clm, diffusion, hybrid, mlm, mlm_nsp, rtd
from ordsmed.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).with_name("rows.json")
HALF = Stretch(0.25, 0.75, 64)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {  # settings, and what a phase or the call has beside the usual
    "mlm": (mlm.Settings(), {}),
    "mlm unpacked, any length": (mlm.Settings(cut="sentence"), {"pack": False}),
    "mlm words": (mlm.Settings(unit="word", hide=0.3, over="row"), {}),
    "mlm spans": (mlm.Settings(unit="span", hide=0.3), {}),
    "mlm as RoBERTa": (
        mlm.Settings(cut="full_sentences", over="row", rounding="chance", signs=True, swap_from="all"), {},
    ),
    "mlm words with signs": (mlm.Settings(cut="doc_sentences", unit="word", signs=True), {}),
    "mlm ramp": (mlm.Settings(hide=Ramp(0.4, 0.1)), {"stretch": HALF}),
    "mlm two sources": (mlm.Settings(), {"weights": [0.75, 0.25]}),
    "clm": (clm.Settings(), {}),
    "clm one text": (clm.Settings(separate=False), {}),
    "clm unpacked": (clm.Settings(), {"pack": False}),
    "hybrid": (hybrid.Settings(masked=0.7, swap=0.3), {"stretch": HALF}),
    "hybrid ramps": (hybrid.Settings(masked=Ramp(0.9, 0.1), hide=Ramp(0.3, 0.2)), {"stretch": HALF}),
    "hybrid judged": (hybrid.Settings(masked=0.9), {}),
    "hybrid judged, one way": (hybrid.Settings(masked=1.0), {}),
    "diffusion": (diffusion.Settings(), {}),
    "diffusion sentences": (diffusion.Settings(cut="sentence"), {}),
    "mlm_nsp": (mlm_nsp.Settings(), {"pack": False}),
    "mlm_nsp words, order": (mlm_nsp.Settings(unit="word", pairs="order", short=0.5), {"pack": False}),
    "rtd": (rtd.Settings(), {}),
    "rtd pairs": (rtd.Settings(single=0.3, short=0.3, hide=0.3), {"pack": False}),
    "rtd duplicates": (rtd.Settings(reference_duplicates=True, hide=0.4), {}),
}  # fmt: skip


def stores(folder: Path) -> tuple[Tokenizer, list[Store]]:
    """Sixty whole words and as many pieces inside words, in two stores of documents of sentences."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
    names += [f"{mark}{n}" for mark in ("w", "##p") for n in range(60)]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    tokenizer, made = Tokenizer.load(folder / "vocab.txt"), []
    for seed in (1, 2):
        draw = random.Random(seed)
        with StoreWriter(folder / f"store{seed}", tokenizer.vocabulary) as writer:
            for _ in range(60):
                sentences = [[6 + int(draw.random() * 120) for _ in range(2 + int(draw.random() * 20))]
                             for _ in range(1 + int(draw.random() * 5))]  # fmt: skip
                for ids in sentences:
                    ids[0] = 6 + ids[0] % 60
                writer.add(sentences)
        made.append(Store.open(folder / f"store{seed}", vocabulary=tokenizer.vocabulary))
    return tokenizer, made


def digest(batches: list[Any]) -> str:
    """One sum over all tensors of all batches, with their names, kinds and shapes."""
    crc = 0
    for batch in batches:
        for field in fields(batch):
            value = getattr(batch, field.name)
            if value is not None:
                crc = zlib.crc32(f"{field.name} {value.dtype} {tuple(value.shape)}".encode(), crc)
                crc = zlib.crc32(np.ascontiguousarray(value.numpy()).tobytes(), crc)
    return f"{crc:08x}"


def made(folder: Path) -> dict[str, str]:
    """What each case gives, first rows and some far on."""
    tokenizer, both = stores(folder)
    found = {}
    for name, (settings, how) in CASES.items():
        phase = Phase(steps=4, length=40, batch=8, rate=1e-3, pack=how.get("pack", True))
        weights = how.get("weights", [1.0])
        rows = settings.rows(both[: len(weights)], weights, tokenizer, phase, 7, 0, stretch=how.get("stretch", OVER))
        numbers = np.arange(32)
        found[name] = digest([rows.batch(numbers), rows.batch(numbers[:5] + 3 * len(rows) + 1)])
    words = Encoded(make_words(folder / "words"))
    for name, bi in (("bilm", bilm.Settings(samples=20)), ("bilm each its own", bilm.Settings(0, together=False))):
        phase = Phase(steps=4, length=9, batch=4, rate=1e-3)
        carried = bi.rows([words.train], [1.0], words.tokenizer, phase, 7, 0, stretch=Stretch(0.0, 1.0, 1))
        found[name] = digest([carried.batch(np.arange(n * 4, n * 4 + 4)) for n in (0, 1, 30)])
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(40))), 25, 900, temperature=1.0)
    shares = ((torch.arange(900) * 7 % 13).float() + 1)[None].expand(1000, 900)
    drawn = draw.word(shares, draw.block(draw.sums(shares), slice(0, 1000)), slice(0, 1000))[1]
    found["draws of a generator"] = f"{zlib.crc32(drawn.numpy().tobytes()):08x}"
    return found


def test_rows_are_as_they_were(tmp_path: Path) -> None:
    assert made(tmp_path) == json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["mlm", "clm", "hybrid", "diffusion", "rtd", "bilm"])
def test_no_two_cases_are_alike(name: str) -> None:
    """Every setting that is tried here changes what rows hold."""
    sums = [value for case, value in json.loads(GOLDEN.read_text(encoding="utf-8")).items() if case.startswith(name)]
    assert len(set(sums)) == len(sums) > 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(json.dumps(made(Path(folder)), indent=1) + "\n", encoding="utf-8")
