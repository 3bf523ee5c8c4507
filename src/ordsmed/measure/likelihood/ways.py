"""Ways to score texts that each model family offers, and the default one.

gpt2: causal    bert: masked, word    electra: detect (its generator: masked, word)    hybrid: causal, masked, word
elmo: forward, backward, mean
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordsmed.base.errors import RecipeError, meant
from ordsmed.learn.task import Task
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.transformers import Causal, Detecting, Masked, TransformerScorer, WordAware
from ordsmed.weights.trained_model import Trained

CLASSES: dict[str, type[TransformerScorer]] = {
    "causal": Causal,
    "masked": Masked,
    "word": WordAware,
    "detect": Detecting,
}
DIRECTIONS = ("mean", "forward", "backward")
ALL = (*CLASSES, *DIRECTIONS)


def of(trained: Trained) -> list[str]:
    """Return the ways in which a model can score texts, the default one first."""
    modules = _parts(trained)
    if trained.settings.capabilities.state:
        return [*DIRECTIONS] if "head" in modules else []
    result = ["causal"] if "head" in modules and (trained.causal or trained.objective.shifted) else []
    if "detect" in modules:
        result.append("detect")
    masks = _guesser(trained) and (trained.objective.shifted or not trained.causal)
    return [*result, *(("masked", "word") if masks and trained.tokenizer.mask is not None else ())]


def scorer(trained: Trained, way: str = "", prefers: Sequence[str] = ()) -> Scorer:
    """Return an object that scores texts with the model in the way `way`.

    If `way` is empty, the first way in `prefers` that the model offers is used, or else the model's default way.
    """
    offered = of(trained)
    if way and way not in ALL:
        raise RecipeError("way", f"found {way}", " or ".join(ALL), meant(way, ALL))
    if not offered:
        raise RecipeError(trained.folder, *_no_way(trained))
    if way and way not in offered:
        result = f"is a {trained.kind}, which cannot be read the way `{way}`"
        raise RecipeError(trained.folder, result, " or ".join(offered))
    chosen = way or next((preferred for preferred in prefers if preferred in offered), offered[0])
    if trained.settings.capabilities.state:
        from ordsmed.measure.likelihood.bilm import BiScorer

        return BiScorer(trained, chosen)
    modules: Any = _parts(trained) if chosen in ("causal", "detect") else _guesser(trained)
    head = modules["detect" if chosen == "detect" else "head"]
    return CLASSES[chosen](trained, modules["model"], head, *_frame(trained, chosen))


def _parts(trained: Trained) -> dict[str, Any]:
    return {} if isinstance(trained.objective, Task) else dict(trained.objective.networks()[""].modules)


def _guesser(trained: Trained) -> dict[str, Any] | None:
    """Return the modules of the network that predicts tokens; in an ELECTRA run it is the generator."""
    result = () if isinstance(trained.objective, Task) else trained.objective.networks().values()
    return next((dict(network.modules) for network in result if "head" in network.modules), None)


def _frame(trained: Trained, way: str) -> tuple[list[int], list[int]]:
    tokenizer = trained.tokenizer
    end = tokenizer.separator
    if way == "causal":
        return [n for n in (trained.opening,) if n is not None], []
    frame = (end, end) if trained.objective.shifted else (tokenizer.start, tokenizer.stop)
    before, after = ([n] if n is not None else [] for n in frame)
    return before, after


def _no_way(trained: Trained) -> tuple[str, str, str]:
    wanted = "a language model with its head"
    if isinstance(trained.objective, Task):
        return "was fine-tuned: its head answers a task", wanted, "`ordsmed evaluate RUN` scores it on its task"
    if trained.settings.capabilities.state:
        return "is an ELMo without its softmax over words", wanted, "`ordsmed embed` computes vectors"
    if _guesser(trained):
        return "its tokenizer has no mask", "[MASK] or <mask> in its vocabulary", ""
    return "has no head that predicts tokens", wanted, "`ordsmed embed` computes vectors"
