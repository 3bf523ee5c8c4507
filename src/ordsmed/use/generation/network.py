"""Network: what of a trained model writes: scores of the next token, or of gaps; in one process or split over some."""

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
from ordsmed.weights.trained import HALVES, Trained, can_multiply

PATIENCE = 600.0  # seconds in which processes meet
ROWS = 16  # for how many a word table is laid out


@dataclass(frozen=True)
class WritingNetwork:
    """A network and its token head, ready to be asked."""

    trained: Trained
    model: Any
    head: Any
    notes: dict[str, bool] = field(default_factory=dict)  # what is to be told, and was it not yet?
    kept: dict[str, Tensor] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return self.trained.device

    @property
    def ranks(self) -> Ranks:
        """One process, or those that each hold a part of every layer."""
        return self.trained.ranks

    @property
    def end(self) -> int | None:
        """The sign that ends a text."""
        return self.trained.tokenizer.separator

    @property
    def opening(self) -> int | None:
        """The sign before a text."""
        return self.trained.opening

    @property
    def longest(self) -> int:
        """How many tokens it sees at once."""
        return int(self.trained.settings.longest())

    def note_it_slides(self) -> None:
        """A text is longer than what is seen at once; `tell` says so when no line is half written."""
        self.notes.setdefault("slides", True)

    def note_the_start(self) -> None:
        """The sign before a prompt is one that a folder of others does not speak of."""
        foreign = (self.trained.folder / "config.json").is_file()
        if foreign and "add_bos_token" not in self.trained.tokenizer.config:
            self.notes.setdefault("start", True)

    def tell(self) -> None:
        """What was noted while texts were written; once, however often it happens."""
        if self.notes.get("start"):
            self.notes["start"] = False
            sign = self.trained.tokenizer.piece(self.opening or 0)
            say(f"{sign} is put before each prompt, which its folder does not ask for; --no-start leaves it out")
        if self.notes.get("slides"):
            self.notes["slides"] = False
            say(f"a text is longer than the model's window of {self.longest:,} tokens: the window slides along")

    @torch.inference_mode()
    def next_scores(self, tokens: Tensor, positions: Tensor, documents: Tensor | None, cache: Cache) -> Tensor:
        """Of what may follow each row, [R, T] -> [R, V]."""
        return self.scores(self.states(tokens, positions, documents, cache)[:, -1])

    @torch.inference_mode()
    def states(self, tokens: Tensor, positions: Tensor, documents: Tensor | None, cache: Cache) -> Tensor:
        """Of each token, [R, T] -> [R, T, D]."""
        with self.trained.within():
            hidden: Tensor = self.model(tokens, positions, documents, cache=cache)
            return hidden

    @torch.inference_mode()
    def scores(self, states: Tensor) -> Tensor:
        """Of what may follow tokens with these states, [S, D] -> [S, V]."""
        with self.trained.within():
            return self._scores(states)

    @torch.inference_mode()
    def gap_scores(self, ids: Sequence[int], gaps: Sequence[int]) -> Tensor:
        """Of what may stand in some gaps of one row, [T] -> [G, V]; a hybrid is asked at the place before each."""
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
        """The word table; with 16 bits as it was cast once."""
        words: Tensor = self.head.words.weight
        if self.trained.precision not in HALVES or self.ranks.world > 1:
            return words
        if "words" not in self.kept:
            self.kept["words"] = words.detach().to(HALVES[self.trained.precision])
        return self.kept["words"]

    def _packed(self) -> Tensor | None:
        """The word table as a CPU's library lays it out for its products, made once; None: it is used as it stands.

        For a few rows laying it out anew, as a plain product does, takes longer than the product.
        """
        able = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and torch.backends.mkldnn.is_available()
        if not able or self.device.type != "cpu" or self.ranks.world > 1 or self.trained.precision in HALVES:
            return None
        if "words" not in self.kept:
            self.kept["words"] = torch.ops.mkldnn._reorder_linear_weight(self.head.words.weight.detach(), ROWS)
        return self.kept["words"]


def writing(trained: Trained) -> WritingNetwork:
    """The network of a model that writes: token by token, or by filling; an ELECTRA's generator."""
    check(trained)
    networks = (network.modules for network in trained.objective.networks().values() if "head" in network.modules)
    modules = next(networks)
    return WritingNetwork(trained, modules["model"], modules["head"])


def fills(trained: Trained) -> bool:
    """Does it write by filling gaps, and not token by token?"""
    return not trained.continues


def check(trained: Trained) -> None:
    """Refuse a model that writes no text, with what can be asked of it."""
    trained.check_heads()
    if trained.settings.capabilities.state:
        remedy = "`ordsmed embed` takes it"
        raise RecipeError(trained.folder, "is an ELMo: it writes no texts", "a causal or a masked model", remedy)
    if not any("head" in network.modules for network in trained.objective.networks().values()):
        inner = trained.folder / "generator"
        remedy = f"`{command('generate', inner)}` asks its generator" if inner.is_dir() else ""
        wanted = "a model trained with clm, hybrid, mlm or diffusion"
        raise RecipeError(trained.folder, "has no head that predicts tokens", wanted, remedy)
    if fills(trained) and trained.tokenizer.mask is None:
        raise RecipeError(trained.folder, "its tokenizer has no mask to be filled", "[MASK] or <mask> among its pieces")


@contextlib.contextmanager
def together(trained: Trained) -> Iterator[WritingNetwork]:
    """The network of a model; of several processes each holds a part of every layer (tensor parallelism)."""
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
        error.echo = not ranks.first  # who ended says why, or had nobody to tell
        raise
    except RuntimeError as error:
        if world == 1:
            raise
        lost = RunError(f"rank {ranks.rank}", f"lost the others: {str(error).splitlines()[0][:120]}", "all of them")
        lost.echo = not ranks.first
        raise lost from None
    finally:
        disconnect(ranks, well=well)
