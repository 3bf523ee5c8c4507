"""A reader for networks that learned vectors of texts: lines to vectors, read and pooled as they were in training."""

from __future__ import annotations

import numpy as np
import torch

from ordsmed.data.examples import cut_examples
from ordsmed.learn.task import Embedding, packing, reader
from ordsmed.use.readers import Read
from ordsmed.weights.trained import Trained

LEARNED = ""  # the pool of who names none, of a network that learned one


class VectorReader:
    """A vector a line, behind the prompt of what it is; short lines share rows."""

    layers = 1
    pools: tuple[str, ...] = (LEARNED,)

    def __init__(self, trained: Trained, prompt: str = "") -> None:
        task = trained.objective
        assert isinstance(task, Embedding)
        self.task, self.how, self.device = task, task.vectors, trained.device
        self.prompt = self.how.prompts[prompt] if prompt else ""
        self.packing = packing(trained.tokenizer, trained.settings)
        self.reader = reader(trained.tokenizer, trained.settings)
        self.width = task.vector_width

    @torch.inference_mode()
    def read(self, lines: list[str]) -> list[Read]:
        features, cut = cut_examples([[self.prompt + line.strip() for line in lines]], self.how.length, self.reader)
        numbers = np.arange(len(lines))
        batch = self.packing.batch(features, numbers, numbers).to(self.device)
        vectors = self.task.embed(batch).float().cpu().numpy()
        none = np.zeros((1, 0, self.width), np.float32)
        read = zip(lines, vectors, cut.tolist(), strict=True)
        return [Read(line.split(), none, vector[None], windows=1 + is_cut) for line, vector, is_cut in read]
