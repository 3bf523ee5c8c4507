"""Run a vector probe on a model: all processes embed blocks of texts, and the first one compares the vectors.

groups of texts -> blocks of 1,024 -> rows of VectorFiles, each block stored -> records, stored -> Finding

The vector files stay next to the stored chunks until the records exist, so that an interrupted evaluation resumes after
the last block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from ordsmed.base.ranks import Ranks, barrier, on_rank0
from ordsmed.base.say import Progress, say
from ordsmed.data.pieces import Ints
from ordsmed.data.unknown import MOST, UnknownTokens
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.measure.evaluation.score_cache import ScoreCache
from ordsmed.measure.likelihood.probe import Finding, read_records
from ordsmed.measure.vectors.probe import VectorProbe
from ordsmed.measure.vectors.reading import Floats, VectorFile
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder

BLOCK = 1 << 10  # texts
LOOKED_AT = 1 << 12  # texts per group in which unknown tokens are counted


@dataclass(frozen=True)
class TextBlock:
    number: int
    group: str
    begin: int
    texts: Sequence[str]


@dataclass(frozen=True)
class VectorProbeRun:
    probe: VectorProbe
    encoder: TextEncoder | TokenEncoder
    ranks: Ranks
    cache: ScoreCache
    max_unknown: float = MOST

    @cached_property
    def groups(self) -> dict[str, Sequence[str]]:
        return self.probe.groups()

    def run(self, title: str, *, anew: bool) -> tuple[Finding, list[Any]] | None:
        done = on_rank0(self.ranks, lambda: self._begin(anew=anew))
        blocks = self._blocks()
        if len(blocks) not in done:
            self._read(title, [block for block in blocks if block.number not in done], len(blocks))
            barrier(self.ranks)
        if not self.ranks.first:
            return None
        if len(blocks) not in done:
            self.cache.add(len(blocks), self.probe.records(self._vectors()))
        for file in self._files.values():
            file.path.unlink(missing_ok=True)
        records = read_records(self.probe, self.cache.chunks()[len(blocks)])
        return self.probe.finding(records), records

    def _begin(self, *, anew: bool) -> list[int]:
        """Check the texts and return the numbers of the stored blocks.

        The records are stored under the number after the last block. Blocks are computed again if a vector file is
        missing.
        """
        count = len(self._blocks())
        self._check()
        if anew:
            self.cache.clear()
        done = [*self.cache.chunks()]
        if count not in done and not (done and all(file.path.exists() for file in self._files.values())):
            self.cache.clear()
            width = self.encoder.width
            for name, file in self._files.items():
                file.make(int(self._starts[name][-1]), width)
            return []
        return done

    def _check(self) -> None:
        unknown, tokenizer = UnknownTokens(), self.encoder.trained.tokenizer
        for texts in self.groups.values():
            sample = list(islice(texts, 0, None, -(-len(texts) // LOOKED_AT)))
            for encoding in tokenizer.plain.encode_batch_fast(sample, add_special_tokens=False):
                unknown.count(np.asarray(encoding.ids), tokenizer)
            unknown.look(sample, tokenizer)
        unknown.check(", ".join(self.probe.files), self.max_unknown, "--max-unknown ")

    def _blocks(self) -> list[TextBlock]:
        parts = [
            (group, begin, texts[begin : begin + BLOCK])
            for group, texts in self.groups.items()
            for begin in range(0, len(texts), BLOCK)
        ]
        return [TextBlock(number, *part) for number, part in enumerate(parts)]

    @cached_property
    def _starts(self) -> dict[str, Ints]:
        """First row of each text in the vector file of its group."""
        return {name: self.encoder.starts(texts, name) for name, texts in self.groups.items()}

    def _vectors(self) -> dict[str, Floats | TokenRows]:
        return {name: self.encoder.opened(file.read(), self._starts[name]) for name, file in self._files.items()}

    @cached_property
    def _files(self) -> dict[str, VectorFile]:
        folder, key = self.cache.folder, self.cache.key
        return {name: VectorFile(folder / f"{key}.{name or 'text'}.npy") for name in self.groups}

    def _read(self, title: str, remaining: Sequence[TextBlock], total: int) -> None:
        if 0 < len(remaining) < total:
            say(f"{title}: resumes after {1 - len(remaining) / total:.0%} that are stored")
        blocks_of_rank = remaining[self.ranks.data_rank :: self.ranks.data_world]
        with Progress(title, sum(len(block.texts) for block in blocks_of_rank), "texts", every=30) as shown:
            for block in blocks_of_rank:
                vectors = np.concatenate([*self.encoder.vectors(block.texts, block.group, rows=BLOCK)])
                if self.ranks.tensor_rank == 0:
                    self._files[block.group].write(int(self._starts[block.group][block.begin]), vectors)
                    self.cache.add(block.number, [])
                shown.add(len(block.texts))
