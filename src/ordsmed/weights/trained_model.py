"""Opened models: networks with their weights, tokenizer and settings.

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
from ordsmed.base.machine.speed import slowdown_in
from ordsmed.base.menu import kind_of, load
from ordsmed.base.ranks import Ranks, prepare
from ordsmed.base.say import many, say
from ordsmed.learn.objective import Objective, fresh
from ordsmed.learn.task import Task
from ordsmed.nn import products
from ordsmed.nn.adapters import Adapters, merged
from ordsmed.nn.model import own_tensors
from ordsmed.nn.packed_layers import CastWeights, SmallWeights, lacks_int8, layers_of
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import boxes, foreign, weights
from ordsmed.weights.foreign import Networks
from ordsmed.weights.origin import Origin, WeightsSource
from ordsmed.weights.transplant import begin

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("fp32", *HALVES, "int8")


@dataclass(frozen=True)
class Trained:
    """A model opened for inference, on the CPU unless it was opened for another device."""

    objective: Objective
    tokenizer: Tokenizer
    settings: Any  # of the network
    folder: Path
    recipe: dict[str, Any] | None = None  # of the run; None: not a run
    step: int | None = None
    learned: Any = None  # settings of its objective or task
    bare: bool = False  # is the network without the heads of its objective?
    bos: int | None = None  # the token before texts, if a Hugging Face folder names one
    ranks: Ranks = field(default_factory=lambda: Ranks(torch.device("cpu")))  # the device and the processes it is on
    precision: str = "fp32"  # of matrix products
    cast: CastWeights = field(default_factory=CastWeights, compare=False, repr=False)  # weights in 16 bits
    small: SmallWeights = field(default_factory=SmallWeights, compare=False, repr=False)  # weights in 8 bits

    def __post_init__(self) -> None:
        products.take(self.objective)

    @property
    def kind(self) -> str:
        return kind_of(self.settings)

    @property
    def causal(self) -> bool:
        """Return whether each token attends only to the tokens before it."""
        return bool(self.settings.capabilities.causal)

    @property
    def continues(self) -> bool:
        """Return whether it can generate text token by token."""
        return bool(self.settings.capabilities.cached and (self.causal or self.objective.shifted))

    @property
    def opening(self) -> int | None:
        """Return the token before the first one of a text to be continued; None if there is none.

        In rows of this library's trainings it is the document separator, whatever other special tokens exist.
        """
        return self.tokenizer.separator if self.bos is None else self.bos

    @property
    def device(self) -> torch.device:
        return self.ranks.device

    def within(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which products are computed in the model's precision."""
        if self.precision == "int8":
            return self.small.within(self.objective)
        if self.precision not in HALVES:
            return contextlib.nullcontext()
        if self.ranks.shape[2] > 1:  # layers split over ranks, which torch casts itself
            half: contextlib.AbstractContextManager[None] = torch.autocast(self.device.type, HALVES[self.precision])
        else:
            half = self.cast.within(self.objective, self.device, HALVES[self.precision])
        return _without_plans(half) if self.device.type == "cuda" else half

    def check_heads(self) -> None:
        if self.bare:
            raise foreign.no_heads(self.folder)


@contextlib.contextmanager
def _without_plans(numbers: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Enter `numbers` with cuDNN's attention disabled.

    On newer GPUs (9.0, 10.0) torch prefers it, but it plans again for every new number of keys, and in generation every
    token has a new one.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with numbers:
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def opened(
    origin: Trained | Origin | str | Path,
    *,
    step: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    threads: int | None = None,
) -> Trained:
    """Return a model opened on a device, or the model itself if it is open already.

    Its folder may hold a network without heads; see `Trained.check_heads`.
    """
    if isinstance(origin, Trained):
        return origin
    known(precision)
    trained = open_model(origin, step, body=True)
    ranks = prepare(device, threads, flags=True)
    can_multiply(trained, precision, ranks.device)
    trained.objective.to(ranks.device).eval()
    if times := slowdown_in(precision, ranks.device):
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
    """Yield a run as it was at its saved checkpoints, opened one after the other as `opened` does."""
    origin = (origin if isinstance(origin, Origin) else Origin.of(origin)).owner
    for step in origin.chosen_steps(steps, key):
        try:
            yield opened(origin, step=step, device=device, precision=precision, threads=threads)
        except DataError as error:  # the initial weights cannot be recomputed
            if step or steps != "all":
                raise
            say(f"step 0 is skipped: {error}")


def known(precision: str) -> None:
    if precision not in PRECISIONS:
        raise RecipeError("--precision", f"found {precision}", " or ".join(PRECISIONS), meant(precision, PRECISIONS))


def can_multiply(trained: Trained, precision: str, device: torch.device, tensor: int = 1) -> None:
    """Raise RecipeError if the device or network cannot compute in int8. Say how many layers will."""
    if precision != "int8":
        return
    count, remedy = len(layers_of(trained.objective.model, "int8")), "use fp32 or bf16"
    if lacks := lacks_int8(device):
        problem, remedy = f"int8, which {lacks}", "use bf16" if device.type == "cuda" else remedy
    elif tensor > 1:
        problem = f"int8 with layers split over {many(tensor, 'process')}"
    elif trained.settings.capabilities.state or not count:
        problem = f"int8, but {trained.folder} ({trained.kind}) is not made of linear layers"
    else:
        tiles = getattr(torch.cpu, "_is_amx_tile_supported", bool)()
        hint = "; this CPU has AMX: bf16 is about as fast and closer to fp32" if tiles else ""
        say(f"--precision: {count} linear layers are computed in int8, the rest in fp32{hint}")
        return
    raise RecipeError("--precision", f"found {problem}", "", remedy)


def open_model(origin: Origin | str | Path, step: int | None = None, *, body: bool = False) -> Trained:
    """Open the newest weights of a run, those of a saved step, or those of a folder.

    With `body`, a Hugging Face folder with a network without heads is accepted.
    """
    chosen = (origin if isinstance(origin, Origin) else Origin.of(origin)).owner
    chosen.check_one_step(step)
    if chosen.kind is FolderKind.IMPORT:
        networks = foreign.networks(chosen.folder)
        tokenizer = Tokenizer.load(chosen.folder / TOKENIZER)
        objective = _filled(networks, tokenizer, weights.read(chosen.folder / WEIGHTS), chosen.folder / WEIGHTS)
        return Trained(objective, tokenizer, networks.model, chosen.folder, learned=networks.learned)
    if chosen.kind is FolderKind.HUGGING_FACE:
        return _foreign(chosen.folder, body=body)
    with chosen.at_home() as here:
        return dataclasses.replace(_trained_of_run(here, step), folder=chosen.folder)


def _trained_of_run(origin: Origin, step: int | None) -> Trained:
    folder, recipe = origin.folder, origin.recipe()
    if step == 0 and 0 not in snapshots.steps(folder / "checkpoints"):
        return _before_the_first_step(origin)
    source = origin.source(step)
    if step is None and (left := origin.unfinished(source.step)):
        say(left)
    networks = origin.networks(source.step)
    tokenizer = origin.tokenizer(source.state.get("tokenizer"))
    tensors = boxes.read_weights(source.folder)
    if recipe.get("adapters") and source.state:  # weights/ is merged already
        tensors = merged(tensors, settings.decode(Adapters, recipe["adapters"], f"{folder}/recipe.toml: adapters"))
    objective = _filled(networks, tokenizer, tensors, source.folder)
    learned = _task_as_left(folder, source, networks)
    return Trained(objective, tokenizer, networks.model, folder, recipe, source.step, learned)


def _before_the_first_step(origin: Origin) -> Trained:
    """Recompute a run's initial weights from its seed and `init`, and compare them with its checksum."""
    folder, recipe, status = origin.folder, origin.recipe(), origin.status
    if status["verb"] != "pretrain":
        raise RecipeError("--step", f"found 0, of a `{status['verb']}`", "a step with a checkpoint")
    networks, tokenizer = origin.networks(0), origin.tokenizer()
    objective = fresh(networks.learned, networks.model, tokenizer, int(recipe.get("seed", 0)))
    if recipe.get("init"):
        try:
            start, vocabulary = Origin.of(recipe["init"], key="init"), recipe.get("vocabulary", "same")
            begin(objective, start, networks.learned, networks.model, tokenizer, vocabulary, int(recipe.get("seed", 0)))
        except RecipeError as error:  # missing or changed since: not an error of the recipe
            raise DataError(f"{folder}: {error.place}", error.found, error.wanted, error.remedy) from None
    digest = weights.digest(own_tensors(objective))
    if status.get("began_with") != digest:
        wanted = f"{status.get('began_with', 'none noted')}, those the run began with"
        remedy = "they can only be recomputed with the same version of torch, seed and `init`"
        raise DataError(f"{folder}: step 0", f"weights {digest}", wanted, remedy)
    return Trained(objective.eval(), tokenizer, networks.model, folder, recipe, 0, networks.learned)


def _foreign(folder: Path, *, body: bool) -> Trained:
    model = foreign.settings(folder)
    tokenizer = foreign.tokenizer(folder)
    foreign.fits(model, tokenizer, folder)
    form = load("formats", foreign.FORMAT)()
    learned = form.learned(folder, model)
    alone = getattr(learned, "alone", learned.build)  # a discriminator without its generator
    objective = alone(model, tokenizer)
    whole = foreign.load_into(objective, folder, tokenizer, body=body)
    form.to_learned(objective, learned)
    # exported hybrids and fine-tuned models may name a `bos_token` too, but their rows begin with the separator
    writes = model.capabilities.causal and not objective.shifted and not isinstance(objective, Task)
    bos = tokenizer.named("bos_token") if writes else None
    return Trained(objective.eval(), tokenizer, model, folder, learned=learned, bare=not whole, bos=bos)


def _task_as_left(folder: Path, source: WeightsSource, networks: Networks) -> Any:
    """Return the settings of the objective or task; after a fine-tuning, with those chosen on the dev set."""
    left = folder / "weights"
    if networks.task is not None and source.folder == left:
        return foreign.networks(left).learned
    return networks.learned


def _filled(networks: Networks, tokenizer: Tokenizer, tensors: weights.Tensors, path: Path) -> Objective:
    objective: Objective = networks.learned.build(networks.model, tokenizer)
    weights.load_into(objective, tensors, path)
    return objective.eval()
