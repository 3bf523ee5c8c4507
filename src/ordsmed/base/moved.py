"""Module names before 0.2: `import ordsmed.tasks.classify` still works and warns with the new name."""

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

NOW = {  # old -> new name below `ordsmed`, also for submodules; the longest matching name counts
    "apply": "use",
    "binary": "base.binary",
    "launch": "base.launch",
    "labelled": "text.labelled",
    "markup": "text.markup",
    "tokenizers": "text.tokenizers",
    "text.web": "web",
    "cleaners": "corpus.cleaners",
    "corpora": "corpus.corpora",
    "models": "nn.models",
    "objectives": "learn.objectives",
    "optimizers": "learn.optimizers",
    "score": "learn.score",
    "tasks": "learn.tasks",
    "formats": "weights.formats",
    "nn.boxes": "weights.boxes",
    "nn.foreign": "weights.foreign",
    "nn.google": "weights.google",
    "nn.renaming": "weights.renaming",
    "nn.weights": "weights.weights",
    "apply.card": "weights.card",
    "apply.export": "weights.export",
    "apply.importing": "weights.importing",
    "apply.origin": "weights.origin",
    "apply.probed": "weights.probed",
    "apply.seen": "weights.seen",
    "apply.taken_over": "weights.taken_over",
    "apply.trained": "weights.trained",
    "apply.transplant": "weights.transplant",
    "mesh": "train.mesh",
    "bench": "measure.bench",
    "evaluation": "measure.evaluation",
    "likelihood": "measure.likelihood",
    "probes": "measure.probes",
    "report": "tell.report",
    "show": "tell.show",
    "stability": "tell.stability",
    "trackers": "tell.trackers",
    "cluster": "machines.cluster",
    "doctor": "machines.doctor",
    "install": "machines.install",
    "suite": "machines.suite",
    "dialects": "others.dialects",
    "translate": "others.translate",
    "command": "cli",
    "verbs": "cli.verbs",
    "corpus.corpora.web": "web.corpora.web",
    "corpora.web": "web.corpora.web",
}
CALLED = ("pretrain", "finetune")  # functions of `ordsmed`, which a module of the same name would hide


def now(name: str) -> str:
    """Return the new name of a module that was renamed in 0.2, or an empty string."""
    root, _, old = name.partition(".")
    inner = ""
    while root == "ordsmed" and old:
        if old in NOW:
            return f"ordsmed.{NOW[old]}{inner}"
        old, _, last = old.rpartition(".")
        inner = f".{last}{inner}"
    return ""


def spec(name: str) -> ModuleSpec | None:
    """Return the import spec of a renamed module, or None for other names."""
    if name.startswith(tuple(f"ordsmed.{called}" for called in CALLED)):
        raise ModuleNotFoundError(f"{name} is {name.replace('.', '.train.', 1)} since 0.2", name=name)
    return ModuleSpec(name, cast(Any, Moved()), is_package=True) if now(name) else None


class Moved:
    """A module loader that loads the renamed module."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python makes an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name, place = module.__name__, now(module.__name__)
        sys.modules[name] = importlib.import_module(place)
        if not hasattr(sys.modules[name], "__path__"):  # parent packages are imported without a warning
            warnings.warn(f"{name} is {place} since 0.2", DeprecationWarning, stacklevel=2)
