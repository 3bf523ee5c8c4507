"""Golden numbers of the validation suite: the expected rows, losses and tokens, in files of this folder.

tokenizers.json  kind -> settings, the ids of a few texts
rows.json        objective -> settings, a checksum of its rows
losses.json      recipe -> its first ten losses on a store drawn from a seed

A change in these files means that results change for all users: name the change and its reason in the commit.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ordsmed.base import files, menu, run, settings
from ordsmed.base.ranks import Ranks, init_mesh, on_rank0
from ordsmed.data.batch import Batch
from ordsmed.data.encode import Encoded
from ordsmed.data.store import Store, StoreWriter
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.sampling import Draw, keys
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.pretrain.random_data import (
    PAD_SECOND,
    SPECIAL,
    build,
    learned,
    make_store,
    make_words,
    synthetic_text,
)
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.request import read

FOLDER = Path(__file__).parent
TEXTS = ("A red fox sees the iron gate.", "My sister forgets two copper kettles: déjà vu, 1789!", "Blåbær og smør\n")
DRAWS = "draws of a generator"


def read_table(name: str) -> dict[str, Any]:
    return files.read_table(FOLDER / f"{name}.json")


def tokens(kind: str, table: dict[str, Any]) -> list[list[int]]:
    """Train a tokenizer on generated text, and return the token ids of a few texts."""
    learner = settings.decode(menu.load("tokenizers", kind), table, kind)
    tokenizer: Tokenizer = learner.train(synthetic_text(200).split("\n\n"))
    return [ids.tolist() for ids in tokenizer.encode_batch(list(TEXTS))]


def rows(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and a checksum of each case, over its first rows and some later ones."""
    tokenizer, both = _stores(folder)
    words = Encoded(make_words(folder / "words"))
    for name, case in read_table("rows").items():
        if "kind" not in case:
            continue
        objective = settings.decode(menu.load("objectives", case["kind"]), case["settings"], name)
        if case.get("words"):
            phase = Phase(steps=4, length=9, batch=4, learning_rate=1e-3)
            carried = objective.rows([words.train], [1.0], words.tokenizer, phase, 7, 0, stretch=Stretch(0.0, 1.0, 1))
            yield name, digest([carried.batch(np.arange(n * 4, n * 4 + 4)) for n in (0, 1, 30)])
            continue
        phase = Phase(steps=4, length=40, batch=8, learning_rate=1e-3, pack=case.get("pack", True))
        weights, stretch = case.get("weights", [1.0]), Stretch(*case["stretch"]) if "stretch" in case else OVER
        drawn_rows = objective.rows(both[: len(weights)], weights, tokenizer, phase, 7, 0, stretch=stretch)
        numbers = np.arange(32)
        yield name, digest([drawn_rows.batch(numbers), drawn_rows.batch(numbers[:5] + 3 * len(drawn_rows) + 1)])
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(40))), 25, 900, temperature=1.0)
    shares = ((torch.arange(900) * 7 % 13).float() + 1)[None].expand(1000, 900)
    drawn = draw.word(shares, draw.block(draw.sums(shares), slice(0, 1000)), slice(0, 1000))[1]
    yield DRAWS, f"{zlib.crc32(drawn.numpy().tobytes()):08x}"


CHECKSUM_NAMES = {"predicted_positions": "places", "characters": "letters"}  # names used in the checksums


def digest(batches: list[Batch]) -> str:
    crc = 0
    for batch in batches:
        for field in fields(batch):
            value = getattr(batch, field.name)
            if value is not None:
                name = CHECKSUM_NAMES.get(field.name, field.name)
                crc = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), crc)
                crc = zlib.crc32(np.ascontiguousarray(value.numpy()).tobytes(), crc)
    return f"{crc:08x}"


def _stores(folder: Path) -> tuple[Tokenizer, list[Store]]:
    names = [*SPECIAL, *(f"{mark}{n}" for mark in ("w", "##p") for n in range(60))]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    tokenizer, both = Tokenizer.load(folder / "vocab.txt"), []
    for seed in (1, 2):
        draw = random.Random(seed)
        with StoreWriter(folder / f"store{seed}", tokenizer.vocabulary) as writer:
            for _ in range(60):
                sentences = [
                    [6 + int(draw.random() * 120) for _ in range(2 + int(draw.random() * 20))]
                    for _ in range(1 + int(draw.random() * 5))
                ]
                for ids in sentences:
                    ids[0] = 6 + ids[0] % 60
                writer.add(sentences)
        both.append(Store.open(folder / f"store{seed}", vocabulary=tokenizer.vocabulary))
    return tokenizer, both


def store_of(case: dict[str, Any], folder: Path) -> Path:
    """Return the store for a recipe's losses; create it if the folder does not have it."""
    path = folder / str(case.get("store", "pieces"))
    if not path.exists():
        if case.get("store") == "words":
            make_words(path)
        else:
            make_store(path, specials=PAD_SECOND if case.get("store") == "pad_second" else SPECIAL)
    return path


def losses(
    name: str, folder: Path, steps: int, *, device: str = "cpu", precision: str = "fp32"
) -> tuple[list[float], float]:
    """Return the first losses of a recipe, computed in this process only, and the seconds that took."""
    case = read_table("losses")[name]
    words = [
        f'data="{store_of(case, folder)}"',
        "layout.threads=1",
        f'layout.device="{device}"',
        f'layout.precision="{precision}"',
        *case.get("words", []),
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = Ranks(torch.device(device))  # a single process, even if this is one of several ranks
        job = build(read(Pretraining, str(run.find_recipe(name, "")), words), alone)
        began = time.perf_counter()
        losses_of_steps = [loss for loss, _ in learned(job, steps, rate=None)]
        return losses_of_steps, time.perf_counter() - began
    finally:
        torch.set_num_threads(threads)


def losses_over(ranks: Ranks, name: str, folder: Path, begin: Callable[[], None]) -> tuple[int, list[float]]:
    """Return the batch of a recipe and its first losses, if the batch is divided among all ranks.

    There are no losses if the batch does not divide. `begin` is called before the first step.
    """
    store = on_rank0(ranks, lambda: str(store_of(read_table("losses")[name], folder)))
    words = [f'data="{store}"', f'layout.device="{ranks.device.type}"', "layout.threads=1"]
    recipe = read(Pretraining, str(run.find_recipe(name, "")), words)
    batch = recipe.phase[0].batch
    if batch % ranks.world:
        return batch, []
    begin()
    job = build(recipe, init_mesh(ranks, (ranks.world, 1, 1)))
    return batch, [loss for loss, _ in learned(job, rate=None)]
