"""Readers for networks that learned vectors of texts or of tokens: they embed lines as in training."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.data.examples import cut_examples
from ordsmed.learn.embedding.tokens import token_features
from ordsmed.learn.task import Embedding, LateInteraction, packing, reader
from ordsmed.use.readers import Read, blank_texts
from ordsmed.weights.trained_model import Trained

LEARNED = ""  # the pool that the network learned, used if none is named


class VectorReader:
    """One vector per line, read after the prompt of its group. Short lines share rows."""

    layers = 1
    pools: tuple[str, ...] = (LEARNED,)

    def __init__(self, trained: Trained, prompt: str = "") -> None:
        task = trained.objective
        assert isinstance(task, Embedding)
        self.trained, self.task, self.how, self.device = trained, task, task.vectors, trained.device
        self.prompt = self.how.prompts[prompt] if prompt else ""
        self.packing = packing(trained.tokenizer, trained.settings)
        self.reader = reader(trained.tokenizer, trained.settings)
        self.width = task.vector_width
        special = self.reader.frame.joint(two=False) + len(trained.tokenizer.encode(self.prompt))
        self.room = self.how.length - special  # tokens of a text

    @torch.inference_mode()
    def read(self, lines: list[str]) -> list[Read]:
        features, cut = cut_examples([[self.prompt + line.strip() for line in lines]], self.how.length, self.reader)
        numbers = np.arange(len(lines))
        batch = self.packing.batch(features, numbers, numbers).to(self.device)
        vectors = self.task.embed(batch).float().cpu().numpy()
        no_words = np.zeros((1, 0, self.width), np.float32)
        blank = blank_texts(self.trained, lines)
        return [
            Read(words := line.split(), no_words, vector[None], bare=len(words) * (number in blank), windows=1 + is_cut)
            for number, (line, vector, is_cut) in enumerate(zip(lines, vectors, cut.tolist(), strict=True))
        ]


class TokenReader:
    """One vector for each token of a line that counts, special tokens included."""

    layers = 1
    pools: tuple[str, ...] = (LEARNED,)

    def __init__(self, trained: Trained, prompt: str = "") -> None:
        task = trained.objective
        assert isinstance(task, LateInteraction)
        self.task, self.device, self.prompt, self.width = task, trained.device, prompt, task.tokens.width
        self.packing = packing(trained.tokenizer, trained.settings)
        self.reader = reader(trained.tokenizer, trained.settings)

    @torch.inference_mode()
    def read(self, lines: list[str]) -> list[Read]:
        features, cut = token_features([line.strip() for line in lines], self.prompt, self.reader, self.task.tokens)
        numbers = np.arange(len(lines))
        batch = self.packing.batch(features, numbers, numbers).to(self.device)
        vectors = self.task.token_vectors(batch).float().cpu().numpy()
        ids = np.split(features.ids, features.starts[1:-1])
        return [self._read(*line) for line in zip(ids, vectors, cut.tolist(), strict=True)]

    def _read(self, ids: NDArray[np.int32], vectors: NDArray[np.float32], is_cut: bool) -> Read:
        counted = vectors[: len(ids)].any(-1)
        pipeline = self.reader.tokenizer.pipeline
        tokens = [str(pipeline.id_to_token(number)) for number in ids[counted].tolist()]
        return Read(tokens, vectors[: len(ids)][counted][None], windows=1 + is_cut)
