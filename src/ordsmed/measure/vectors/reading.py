"""Reading: a model that gives texts vectors, by the code of `ordsmed embed --of sentences`; and a file of them.

texts -> Embedder -> rows -> VectorFile (.npy), written by blocks in any order, by several processes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.learn.task import Embedding, Task, TextVectors
from ordsmed.use.embed import Embedder, Form
from ordsmed.weights.trained import Trained

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TextEncoder:
    """An opened model, and how it makes the vector of a text."""

    trained: Trained
    pool: str = ""
    similarity: str = ""
    prompts: dict[str, str] = field(default_factory=dict)  # in the place of those that it learned
    batch: int = 64

    def __post_init__(self) -> None:
        trained = self.trained
        if isinstance(trained.objective, Task) and getattr(trained.learned, "pairs", False):
            problem = "scores two texts together: one text has no vector"
            raise RecipeError(trained.folder, problem, "a model that embeds")

    @property
    def way(self) -> str:
        """How a text becomes a vector, in a word."""
        return self.pool or ("as trained" if self.learned else "mean")

    @property
    def unit(self) -> bool:
        """Are vectors compared by their cosine?"""
        return (self.similarity or (self.learned.similarity if self.learned else "cosine")) == "cosine"

    @property
    def learned(self) -> TextVectors | None:
        """How it was trained to make vectors of texts, if it was."""
        objective = self.trained.objective
        return objective.vectors if isinstance(objective, Embedding) else None

    def _before(self, group: str) -> str:
        """What is written before texts of a group here: another pool than the trained one knows no prompts."""
        learned = self.learned.prompts.get(group, "") if self.learned and self.pool else ""
        return self.prompts.get(group, learned)

    def embedder(self, group: str = "") -> Embedder:
        """For texts of a group. Of an ELMo it is the mean of all layers, of others the last one."""
        layers = "mean" if self.trained.settings.capabilities.state else ""
        prompt = group if self.learned and not self.pool and group not in self.prompts else ""
        form = Form(of="sentences", layers=layers, pool=self.pool, prompt=prompt, batch=self.batch)
        return Embedder.of(self.trained, form)

    def vectors(self, texts: Iterable[str], group: str) -> Iterator[Floats]:
        """In their order."""
        before = self._before(group)
        with torch.inference_mode(), self.trained.within():
            for _, finish in self.embedder(group).entries(f"{before}{text}" for text in texts):
                vector = finish().astype(np.float32)
                yield vector / (np.linalg.norm(vector) or 1) if self.unit else vector


@dataclass(frozen=True)
class VectorFile:
    """Vectors on disk."""

    path: Path

    def make(self, count: int, width: int) -> None:
        """Of zeros, in the place of one that stands."""
        with files.survive_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(self.path, "w+", np.dtype("<f4"), (count, width)).flush()

    def write(self, begin: int, vectors: Floats) -> None:
        """Some rows, on the disk when this ends."""
        offset = np.load(self.path, mmap_mode="r").offset
        with files.survive_disk(self.path), self.path.open("r+b") as file:
            file.seek(offset + begin * vectors.shape[1] * 4)
            file.write(vectors.astype("<f4").tobytes())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Floats:
        """All of them, from the file as they are needed."""
        return np.load(self.path, mmap_mode="c")
