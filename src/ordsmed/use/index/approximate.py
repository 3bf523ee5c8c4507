"""Approximate nearest-neighbour search with faiss, for indexes too large to compare every vector.

    vectors.npy -> HNSW (a graph) or, for many passages, IVF (cells) -> vectors.faiss

The search effort is doubled until RECALL of the exact results are found. Results are returned with exact scores.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import say
from ordsmed.use.index.nearest import Best, nearest

NAME = "vectors.faiss"
# From this number of passages on, the index has cells (IVF), which need less memory and time to build than a graph.
MANY = 500_000
LINKS = 32  # links per passage in the graph
BLOCK = 1 << 14  # vectors added at once
LEARNED = 64  # training vectors per cell
SAMPLE, BEST = 200, 10  # passages that recall is measured with, and nearest passages of each
RECALL = 0.98
DEPTH = 128  # initial search effort of a graph: number of candidates
Vectors = NDArray[Any]
Floats = NDArray[np.float32]


class FaissIndex(Protocol):
    """The methods of a faiss index that are used here."""

    ntotal: int

    def search(self, questions: Floats, most: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return scores and row numbers [Q, K], with number -1 where fewer rows are found."""


def faiss_here(location: object) -> ModuleType:
    """Import and return faiss, or raise an error if it is not installed."""
    try:
        import faiss
    except ImportError:
        raise RecipeError(location, "`faiss` is not installed", "", "pip install 'ordsmed[faiss]'") from None
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


class NearVectors:
    """A faiss index over the vectors of a folder, with its search effort."""

    def __init__(self, index: FaissIndex, vectors: Vectors, effort: int) -> None:
        self.index, self.vectors, self.effort = index, vectors, effort
        self.cells: int = getattr(index, "nlist", 0)
        self.parameters = faiss_here("nearest").ParameterSpace()

    @staticmethod
    def made(folder: Path, vectors: Vectors) -> dict[str, float]:
        """Build and write the index of a folder. Return its search effort and recall."""
        faiss, cells = faiss_here("nearest"), _cells(len(vectors))
        kind = f"IVF{cells},SQfp16" if cells else f"HNSW{LINKS},SQfp16"
        index = faiss.index_factory(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(_wide(vectors[_evenly(len(vectors), max(LEARNED * cells, BLOCK))]))
        for begin in range(0, len(vectors), BLOCK):
            index.add(_wide(vectors[begin : begin + BLOCK]))
        with files.writing(folder / NAME) as file:
            file.write(faiss.serialize_index(index).tobytes())
        near = NearVectors(faiss.downcast_index(index), vectors, 1 if cells else DEPTH)
        recall = near.fit()
        say(f"{kind}: {recall:.1%} of the {BEST} nearest passages are found, of {min(SAMPLE, len(vectors))} passages")
        return {"effort": near.effort, "recall": recall}

    @staticmethod
    def of(folder: Path, vectors: Vectors, effort: int) -> NearVectors:
        faiss, path = faiss_here(folder), folder / NAME
        try:
            index = faiss.read_index(str(path))
        except RuntimeError:
            raise DataError(path, "cannot be read", "a faiss index", "make the index again") from None
        if index.ntotal != len(vectors):
            raise DataError(path, f"{index.ntotal:,} passages", f"{len(vectors):,}", "make the index again")
        return NearVectors(index, vectors, effort)

    def search(self, questions: torch.Tensor, most: int) -> Best:
        """Return the exact scores and numbers of the rows found for questions [Q, D], best first.

        Of rows with equal scores, the one with the lower number comes first. Numbers are -1 where the searched cells
        have too few rows.
        """
        name, reach = ("nprobe", self.effort) if self.cells else ("efSearch", max(self.effort, 2 * most))
        self.parameters.set_index_parameter(self.index, name, reach)
        _, numbers = self.index.search(_wide(questions.numpy()), min(most, len(self.vectors)))
        rows = torch.from_numpy(np.sort(numbers, 1))
        known = torch.from_numpy(_wide(self.vectors[rows.clamp(min=0).numpy()]))
        scores = torch.einsum("qd,qkd->qk", questions.float(), known).masked_fill(rows < 0, -torch.inf)
        order = scores.sort(dim=1, descending=True, stable=True).indices
        return scores.gather(1, order), rows.gather(1, order)

    def fit(self) -> float:
        """Increase the effort until RECALL is reached, and return the measured recall."""
        questions = torch.from_numpy(_wide(self.vectors[_evenly(len(self.vectors), SAMPLE)]))
        best = min(BEST, len(self.vectors))
        least = nearest(self.vectors, questions, best)[0][:, -1:]
        most = self.cells or len(self.vectors)
        while True:  # rows with equal scores count equally
            recall = float((self.search(questions, best)[0] >= least - 1e-6).float().mean())
            if recall >= RECALL or self.effort >= most:
                return recall
            self.effort = min(2 * self.effort, most)


def _cells(count: int) -> int:
    return round(4 * math.sqrt(count)) if count >= MANY else 0


def _evenly(count: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def _wide(vectors: Vectors) -> Floats:
    return np.ascontiguousarray(vectors, np.float32)
