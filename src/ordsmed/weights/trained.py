"""Trained models: an origin -> network, tokenizer and settings, ready to be asked.

work/pretrain/x/ checkpoints/step-...  | weights/      ->  Trained(objective, tokenizer, settings, ...)
hub-folder/      config.json, model.safetensors        ->
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from ordsmed.base import settings, snapshots
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.folder import TOKENIZER, WEIGHTS, FolderKind
from ordsmed.base.machine.speed import slower_in
from ordsmed.base.menu import kind_of, load
from ordsmed.base.ranks import Ranks, prepare
from ordsmed.base.say import many, say
from ordsmed.learn.objective import Objective, fresh
from ordsmed.learn.task import Task
from ordsmed.nn import products
from ordsmed.nn.adapters import Adapters, merged
from ordsmed.nn.model import own_tensors
from ordsmed.nn.packed import CastWeights, SmallWeights, lacks_int8, layers_of
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import boxes, foreign, weights
from ordsmed.weights.foreign import Networks
from ordsmed.weights.origin import Origin, WeightsSource
from ordsmed.weights.transplant import begin

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("fp32", *HALVES, "int8")


@dataclass(frozen=True)
class Trained:
    """A model that has learned, not learning any more; on the CPU, unless it was opened for another device."""

    objective: Objective
    tokenizer: Tokenizer
    settings: Any  # the network's
    folder: Path
    recipe: dict[str, Any] | None = None  # of the run, as a table; None: not a run of ours
    step: int | None = None
    learned: Any = None  # the settings of what it learned: of its objective or task
    bare: bool = False  # has its folder no heads for that?
    bos: int | None = None  # the token before texts, where a folder of others names one
    ranks: Ranks = field(default_factory=lambda: Ranks(torch.device("cpu")))  # where it stands
    precision: str = "fp32"  # of products
    cast: CastWeights = field(default_factory=CastWeights, compare=False, repr=False)  # with 16 bits
    small: SmallWeights = field(default_factory=SmallWeights, compare=False, repr=False)  # with 8

    def __post_init__(self) -> None:
        products.take(self.objective)

    @property
    def kind(self) -> str:
        """The family: bert, gpt2..."""
        return kind_of(self.settings)

    @property
    def causal(self) -> bool:
        """Does a token see only what stands before it?"""
        return bool(self.settings.capabilities.causal)

    @property
    def continues(self) -> bool:
        """Can it go on with a text token by token?"""
        return bool(self.settings.capabilities.cached and (self.causal or self.objective.shifted))

    @property
    def opening(self) -> int | None:
        """The token before the first one of a text that is continued; None: there is none.

        Rows of our own trainings have the sign between documents there, whatever other signs the tokenizer knows.
        """
        return self.tokenizer.separator if self.bos is None else self.bos

    @property
    def device(self) -> torch.device:
        return self.ranks.device

    def within(self) -> contextlib.AbstractContextManager[None]:
        """In which numbers products are made."""
        if self.precision == "int8":
            return self.small.within(self.objective)
        if self.precision not in HALVES:
            return contextlib.nullcontext()
        if self.ranks.shape[2] > 1:  # parts of layers, which torch casts for itself
            half: contextlib.AbstractContextManager[None] = torch.autocast(self.device.type, HALVES[self.precision])
        else:
            half = self.cast.within(self.objective, self.device, HALVES[self.precision])
        return _without_plans(half) if self.device.type == "cuda" else half

    def check_heads(self) -> None:
        """Refuse a folder of a network alone, which `embed` and `init` can do with."""
        if self.bare:
            raise foreign.no_heads(self.folder)


@contextlib.contextmanager
def _without_plans(numbers: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """In these numbers, but not by cuDNN's attention, which torch takes first on newer GPUs (9.0, 10.0): it plans anew
    for every length of keys, and a text that is written has a new one with every token."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with numbers:
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def opened(
    origin: Trained | Origin | str | Path, *, step: int | None = None, device: str = "auto", precision: str = "fp32",
    threads: int | None = None,
) -> Trained:  # fmt: skip
    """A model on the device that is asked for, ready to be asked, or one that is open already; its heads may lack."""
    if isinstance(origin, Trained):
        return origin
    known(precision)
    trained = open_model(origin, step, body=True)
    ranks = prepare(device, threads, flags=True)
    can_multiply(trained, precision, ranks.device)
    trained.objective.to(ranks.device).eval()
    if times := slower_in(precision, ranks.device):
        say(f"--precision: products in {precision} take {times:.3g} times as long as in fp32 here")
    return dataclasses.replace(trained, ranks=ranks, precision=precision)


def at_steps(
    origin: Origin | str | Path,
    steps: Literal["all"] | Sequence[int] = "all",
    *,
    device: str = "auto",
    precision: str = "fp32",
    threads: int | None = None,
    key: str = "--step",
) -> Iterator[Trained]:
    """A run as it was at its kept checkpoints, opened one after the other, as `opened` does."""
    origin = (origin if isinstance(origin, Origin) else Origin.of(origin)).owner
    for step in origin.chosen_steps(steps, key):
        try:
            yield opened(origin, step=step, device=device, precision=precision, threads=threads)
        except DataError as error:  # the weights it began with, of data that are gone
            if step or steps != "all":
                raise
            say(f"step 0 is left out: {error}")


def known(precision: str) -> None:
    """Refuse another than there are."""
    if precision not in PRECISIONS:
        raise RecipeError("--precision", f"found {precision}", " or ".join(PRECISIONS), meant(precision, PRECISIONS))


def can_multiply(trained: Trained, precision: str, device: torch.device, tensor: int = 1) -> None:
    """Refuse 8 bits where this device or network cannot; a line says what is computed in them."""
    if precision != "int8":
        return
    count, remedy = len(layers_of(trained.objective.model, "int8")), "use fp32 or bf16"
    if lacks := lacks_int8(device):
        problem, remedy = f"int8, which {lacks}", "use bf16" if device.type == "cuda" else remedy
    elif tensor > 1:
        problem = f"int8 with layers split over {many(tensor, 'process')}"
    elif trained.settings.capabilities.state or not count:
        problem = f"int8, but {trained.folder} ({trained.kind}) is not made of blocks of linear layers"
    else:
        tiles = getattr(torch.cpu, "_is_amx_tile_supported", bool)()
        hint = "; this CPU has AMX: bf16 is about as fast and nearer to fp32" if tiles else ""
        say(f"--precision: {count} layers of the blocks multiply in 8 bits, all else in fp32{hint}")
        return
    raise RecipeError("--precision", f"found {problem}", "", remedy)


def open_model(origin: Origin | str | Path, step: int | None = None, *, body: bool = False) -> Trained:
    """The newest model of a run, the one of a kept step, or that of a Hugging Face folder; `body`: heads may lack."""
    chosen = (origin if isinstance(origin, Origin) else Origin.of(origin)).owner
    chosen.one_step(step)
    if chosen.kind is FolderKind.IMPORT:
        networks = foreign.networks(chosen.folder)
        tokenizer = Tokenizer.load(chosen.folder / TOKENIZER)
        objective = _filled(networks, tokenizer, weights.read(chosen.folder / WEIGHTS), chosen.folder / WEIGHTS)
        return Trained(objective, tokenizer, networks.model, chosen.folder, learned=networks.learned)
    if chosen.kind is FolderKind.HUGGING_FACE:
        return _foreign(chosen.folder, body=body)
    with chosen.at_home() as here:
        return dataclasses.replace(_of_run(here, step), folder=chosen.folder)


def _of_run(origin: Origin, step: int | None) -> Trained:
    folder, recipe = origin.folder, origin.recipe()
    if step == 0 and 0 not in snapshots.steps(folder / "checkpoints"):
        return _before_the_first_step(origin)
    source = origin.source(step)
    if step is None and (left := origin.unfinished(source.step)):
        say(left)
    networks = origin.networks(source.step)
    tokenizer = origin.tokenizer(source.state.get("tokenizer"))
    tensors = boxes.read_weights(source.folder)
    if recipe.get("adapters") and source.state:  # what stands in weights/ is merged
        tensors = merged(tensors, settings.decode(Adapters, recipe["adapters"], f"{folder}/recipe.toml: adapters"))
    objective = _filled(networks, tokenizer, tensors, source.folder)
    learned = _task_as_left(folder, source, networks)
    return Trained(objective, tokenizer, networks.model, folder, recipe, source.step, learned)


def _before_the_first_step(origin: Origin) -> Trained:
    """The weights a run began with, made anew from its seed (and `init`), and held against what it noted of them."""
    folder, recipe, status = origin.folder, origin.recipe(), origin.status
    if status["verb"] != "pretrain":
        raise RecipeError("--step", f"found 0, of a `{status['verb']}`", "a step that it kept")
    networks, tokenizer = origin.networks(0), origin.tokenizer()
    objective = fresh(networks.learned, networks.model, tokenizer, int(recipe.get("seed", 0)))
    if recipe.get("init"):
        try:
            start, vocabulary = Origin.of(recipe["init"], key="init"), recipe.get("vocabulary", "same")
            begin(objective, start, networks.learned, networks.model, tokenizer, vocabulary, int(recipe.get("seed", 0)))
        except RecipeError as error:  # gone, or another one since: no recipe is at fault now
            raise DataError(f"{folder}: {error.place}", error.found, error.wanted, error.remedy) from None
    digest = weights.digest(own_tensors(objective))
    if status.get("began_with") != digest:
        wanted = f"{status.get('began_with', 'none noted')}, with which it began"
        remedy = "they come again only with the same version of torch, the same seed and the same `init`"
        raise DataError(f"{folder}: step 0", f"weights {digest}", wanted, remedy)
    return Trained(objective.eval(), tokenizer, networks.model, folder, recipe, 0, networks.learned)


def _foreign(folder: Path, *, body: bool) -> Trained:
    model = foreign.settings(folder)
    tokenizer = foreign.tokenizer(folder)
    foreign.fits(model, tokenizer, folder)
    form = load("formats", foreign.FORMAT)()
    learned = form.learned(folder, model)
    alone = getattr(learned, "alone", learned.build)  # a detector without the network that makes its fakes
    objective = alone(model, tokenizer)
    whole = foreign.load_into(objective, folder, tokenizer, body=body)
    form.to_learned(objective, learned)
    # exported hybrids and fine-tuned models may name a `bos_token` too, but their rows begin with the separator
    writes = model.capabilities.causal and not objective.shifted and not isinstance(objective, Task)
    bos = tokenizer.named("bos_token") if writes else None
    return Trained(objective.eval(), tokenizer, model, folder, learned=learned, bare=not whole, bos=bos)


def _task_as_left(folder: Path, source: WeightsSource, networks: Networks) -> Any:
    """What it learned; of a finished fine-tuning with what was chosen on the dev set."""
    left = folder / "weights"
    if networks.task is not None and source.folder == left:
        return foreign.networks(left).learned
    return networks.learned


def _filled(networks: Networks, tokenizer: Tokenizer, tensors: weights.Tensors, place: Path) -> Objective:
    objective: Objective = networks.learned.build(networks.model, tokenizer)
    weights.load_into(objective, tensors, place)
    return objective.eval()
