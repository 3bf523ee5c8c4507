"""Names that modules had before 0.2: `import ordsmed.tasks.classify` goes on, with a line that says where it is now."""

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

NOW = {  # before -> now, below ordsmed; parts of them likewise, the longest name that fits
    "apply": "use", "binary": "base.binary", "launch": "base.launch",
    "labelled": "text.labelled", "markup": "text.markup", "tokenizers": "text.tokenizers", "text.web": "web",
    "cleaners": "corpus.cleaners", "corpora": "corpus.corpora", "models": "nn.models",
    "objectives": "learn.objectives", "optimizers": "learn.optimizers", "score": "learn.score", "tasks": "learn.tasks",
    "formats": "weights.formats", "nn.boxes": "weights.boxes", "nn.foreign": "weights.foreign",
    "nn.google": "weights.google", "nn.renaming": "weights.renaming", "nn.weights": "weights.weights",
    "apply.card": "weights.card", "apply.export": "weights.export", "apply.importing": "weights.importing",
    "apply.origin": "weights.origin", "apply.probed": "weights.probed", "apply.seen": "weights.seen",
    "apply.taken_over": "weights.taken_over", "apply.trained": "weights.trained",
    "apply.transplant": "weights.transplant", "mesh": "train.mesh",
    "bench": "measure.bench", "evaluation": "measure.evaluation", "likelihood": "measure.likelihood",
    "probes": "measure.probes", "report": "tell.report", "show": "tell.show", "stability": "tell.stability",
    "trackers": "tell.trackers", "cluster": "machines.cluster", "doctor": "machines.doctor",
    "install": "machines.install", "suite": "machines.suite", "dialects": "others.dialects",
    "translate": "others.translate", "command": "cli", "verbs": "cli.verbs",
    "corpus.corpora.web": "web.corpora.web", "corpora.web": "web.corpora.web",
}  # fmt: skip
CALLED = ("pretrain", "finetune")  # functions of `ordsmed`, which a module of that name would hide


def now(name: str) -> str:
    """The module that a name from before 0.2 means; empty where it means none."""
    house, _, before = name.partition(".")
    inner = ""
    while house == "ordsmed" and before:
        if before in NOW:
            return f"ordsmed.{NOW[before]}{inner}"
        before, _, last = before.rpartition(".")
        inner = f".{last}{inner}"
    return ""


def spec(name: str) -> ModuleSpec | None:
    """How Python loads a module by the name it had; nothing for other names."""
    if name.startswith(tuple(f"ordsmed.{called}" for called in CALLED)):
        raise ModuleNotFoundError(f"{name} is {name.replace('.', '.train.', 1)} since 0.2", name=name)
    return ModuleSpec(name, cast(Any, Moved()), is_package=True) if now(name) else None


class Moved:
    """Loads the module that a name means now."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Python makes an empty one, which is replaced."""

    def exec_module(self, module: ModuleType) -> None:
        name, place = module.__name__, now(module.__name__)
        sys.modules[name] = importlib.import_module(place)
        if not hasattr(sys.modules[name], "__path__"):  # packages are imported on the way to what is meant
            warnings.warn(f"{name} is {place} since 0.2", DeprecationWarning, stacklevel=2)
