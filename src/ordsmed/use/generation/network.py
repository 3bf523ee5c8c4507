"""The network that generates: scores of the next token or of masks, in one process or split over several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.ranks import Ranks, disconnect, join
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.nn.attention import Cache
from ordsmed.nn.loss import token_scores
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.parallel import split_layers
from ordsmed.weights.trained_model import HALVES, Trained, can_multiply

PATIENCE = 600.0  # seconds to wait until all processes have joined
ROWS = 16  # rows that the packed embedding matrix is optimized for


@dataclass(frozen=True)
class WritingNetwork:
    trained: Trained
    model: Any
    head: Any
    notes: dict[str, bool] = field(default_factory=dict)  # notes by name, and whether they are still to be printed
    kept: dict[str, Tensor] = field(default_factory=dict)  # cached tensors by name

    @property
    def device(self) -> torch.device:
        return self.trained.device

    @property
    def ranks(self) -> Ranks:
        """Return this process's ranks: a single process, or several with a part of every layer each."""
        return self.trained.ranks

    @property
    def end(self) -> int | None:
        """Return the token that ends a text."""
        return self.trained.tokenizer.separator

    @property
    def opening(self) -> int | None:
        """Return the token before a text."""
        return self.trained.opening

    @property
    def longest(self) -> int:
        """Return how many tokens the network sees at once."""
        return int(self.trained.settings.longest())

    def note_it_slides(self) -> None:
        """Note that a text exceeds the window; `tell` prints it later, after the current line of output."""
        self.notes.setdefault("slides", True)

    def note_the_start(self) -> None:
        """Note that prompts get a start token that a Hugging Face folder does not mention."""
        foreign = (self.trained.folder / "config.json").is_file()
        if foreign and "add_bos_token" not in self.trained.tokenizer.config:
            self.notes.setdefault("start", True)

    def tell(self) -> None:
        """Print each note that arose during generation once."""
        if self.notes.get("start"):
            self.notes["start"] = False
            sign = self.trained.tokenizer.piece(self.opening or 0)
            say(f"{sign} is put before each prompt, although the folder does not require it; --no-start omits it")
        if self.notes.get("slides"):
            self.notes["slides"] = False
            say(f"a text is longer than the model's window of {self.longest:,} tokens: the window slides along")

    @torch.inference_mode()
    def next_scores(self, tokens: Tensor, positions: Tensor, documents: Tensor | None, cache: Cache) -> Tensor:
        """Return the scores of each row's next token, [R, T] -> [R, V]."""
        return self.scores(self.states(tokens, positions, documents, cache)[:, -1])

    @torch.inference_mode()
    def states(self, tokens: Tensor, positions: Tensor, documents: Tensor | None, cache: Cache) -> Tensor:
        """Return the hidden states of all tokens, [R, T] -> [R, T, D]."""
        with self.trained.within():
            hidden: Tensor = self.model(tokens, positions, documents, cache=cache)
            return hidden

    @torch.inference_mode()
    def scores(self, states: Tensor) -> Tensor:
        """Return the scores of the tokens that follow these states, [S, D] -> [S, V]."""
        with self.trained.within():
            return self._scores(states)

    @torch.inference_mode()
    def gap_scores(self, ids: Sequence[int], gaps: Sequence[int]) -> Tensor:
        """Return the scores of tokens for the gaps of a row, [T] -> [G, V].

        A hybrid model predicts a gap from the position before it.
        """
        tokens, shifted = torch.tensor([ids], device=self.device), self.trained.objective.shifted
        both = {"documents": torch.ones_like(tokens), "causal": torch.zeros(1, dtype=torch.bool)} if shifted else {}
        both = {name: value.to(self.device) for name, value in both.items()}
        with self.trained.within():
            hidden = self.model(tokens, torch.arange(len(ids), device=self.device)[None], **both)[0]
            return self._scores(hidden[[gap - shifted for gap in gaps]])

    def _scores(self, hidden: Tensor) -> Tensor:
        head, vocabulary = self.head, self.trained.tokenizer.vocabulary
        states = head.transform(hidden)
        if len(states) > 1 and (packed := self._packed()) is not None:
            scores: Tensor = torch.ops.mkldnn._linear_pointwise(states, packed, head.bias, "none", [], "")
            return scores[:, :vocabulary]
        return token_scores(states, self._words(), head.bias, vocabulary)

    def _words(self) -> Tensor:
        """Return the embedding matrix, cast once and cached if the precision is 16 bits."""
        words: Tensor = self.head.words.weight
        if self.trained.precision not in HALVES or self.ranks.world > 1:
            return words
        if "words" not in self.kept:
            self.kept["words"] = words.detach().to(HALVES[self.trained.precision])
        return self.kept["words"]

    def _packed(self) -> Tensor | None:
        """Return the embedding matrix in oneDNN's packed layout, or None if it cannot be used.

        It is packed once, because for a few rows packing takes longer than the product itself.
        """
        able = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and torch.backends.mkldnn.is_available()
        if not able or self.device.type != "cpu" or self.ranks.world > 1 or self.trained.precision in HALVES:
            return None
        if "words" not in self.kept:
            self.kept["words"] = torch.ops.mkldnn._reorder_linear_weight(self.head.words.weight.detach(), ROWS)
        return self.kept["words"]


def writing(trained: Trained) -> WritingNetwork:
    """Return the generating network of a model; for an ELECTRA, the network of its generator."""
    check(trained)
    networks = (network.modules for network in trained.objective.networks().values() if "head" in network.modules)
    modules = next(networks)
    return WritingNetwork(trained, modules["model"], modules["head"])


def fills(trained: Trained) -> bool:
    """Return whether the model generates by filling masks, not token by token."""
    return not trained.continues


def check(trained: Trained) -> None:
    """Raise an error if the model cannot generate, with a remedy that fits the model."""
    trained.check_heads()
    if trained.settings.capabilities.state:
        remedy = "`ordsmed embed` makes vectors with it"
        raise RecipeError(trained.folder, "is an ELMo, which cannot generate", "a causal or a masked model", remedy)
    if not any("head" in network.modules for network in trained.objective.networks().values()):
        inner = trained.folder / "generator"
        remedy = f"use its generator: `{command('generate', inner)}`" if inner.is_dir() else ""
        wanted = "a model trained with clm, hybrid, mlm or diffusion"
        raise RecipeError(trained.folder, "has no head that predicts tokens", wanted, remedy)
    if fills(trained) and trained.tokenizer.mask is None:
        raise RecipeError(trained.folder, "its tokenizer has no mask token", "[MASK] or <mask> in its vocabulary")


@contextlib.contextmanager
def together(trained: Trained) -> Iterator[WritingNetwork]:
    """Yield the generating network. Of several processes, each gets a part of every layer (tensor parallelism)."""
    network, world = writing(trained), trained.ranks.world
    if world > 1:
        can_multiply(trained, trained.precision, trained.device, world)
    ranks, well = join(trained.ranks, (1, 1, world), PATIENCE), False
    try:
        if world > 1:
            layout = Layout(tensor=world, sequence=False)
            layout.check(trained.settings, [], world)
            split_layers(trained.objective, layout, ranks)
        yield replace(network, trained=replace(trained, ranks=ranks))
        well = True
    except RunError as error:
        error.echo = not ranks.first  # the first rank reports the error
        raise
    except RuntimeError as error:
        if world == 1:
            raise
        problem = f"lost the connection to the others: {str(error).splitlines()[0][:120]}"
        lost = RunError(f"rank {ranks.rank}", problem, "all ranks")
        lost.echo = not ranks.first
        raise lost from None
    finally:
        disconnect(ranks, well=well)
