"""Module names before 0.2: `import ordsmed.tasks.classify` still works and warns with the new name."""

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

NEW_NAMES = {  # old -> new name below `ordsmed`; also applies to submodules, and the longest matching name is used
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
    "apply.probed": "weights.probe_results",
    "apply.seen": "weights.text_amount",
    "apply.taken_over": "weights.import_folder",
    "apply.trained": "weights.trained_model",
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
    "api.made": "api.verb_result",
    "base.binary.pickled": "base.binary.pickle_reader",
    "base.launch.packed": "machines.sites.python_archive",
    "base.moved": "base.former_modules",
    "corpus.held_out": "corpus.decontamination",
    "corpus.opened": "corpus.corpus_reader",
    "corpus.published": "corpus.published_rules",
    "corpus.loose": "corpus.jsonl_files",
    "corpus.judging": "corpus.judge_training",
    "data.carried": "data.stream_rows",
    "data.given": "data.record_rows",
    "data.words_seen": "data.word_counts",
    "learn.kept": "learn.head_transfer",
    "learn.score.paired": "learn.score.paired_tests",
    "machines.suite.drawn": "train.pretrain.random_data",
    "maker.session": "maker.runner",
    "maker.speedrun.again": "maker.speedrun.reproduction",
    "measure.bench.measured": "measure.bench.measurement",
    "measure.bench.published": "measure.bench.published_figures",
    "measure.evaluation.compared": "measure.evaluation.comparison",
    "measure.evaluation.kept": "measure.evaluation.score_cache",
    "measure.likelihood.drawn": "measure.likelihood.sampled_windows",
    "measure.likelihood.scored": "measure.likelihood.surprisal",
    "nn.packed": "nn.packed_layers",
    "nn.unfilled": "nn.weight_shapes",
    "others.translate.tagged": "others.translate.tagged_words",
    "serve.shared": "serve.shared_memory",
    "text.markup.wrapped": "text.markup.line_wrapping",
    "text.markup.zipped": "text.markup.zip_archive",
    "text.seen": "text.text_hashes",
    "train.compared": "train.trial_results",
    "train.fastest": "train.precision_trial",
    "train.room": "train.memory",
    "train.several": "train.run_group",
    "train.start": "train.init_check",
    "train.finetune.compared": "train.finetune.summary",
    "train.finetune.start": "train.finetune.initialization",
    "train.pretrain.compared": "train.pretrain.initial_loss",
    "use.index.appended": "use.index.growing_files",
    "use.index.opened": "use.index.open_index",
    "use.index.stored": "use.index.store",
    "use.index.told": "use.index.search_output",
    "machines.suite.random_data": "train.pretrain.random_data",
    "machines.suite.golden": "train.pretrain.golden",
    "tell.show.survey": "machines.cluster.survey",
    "base.launch.compare": "machines.sites.compare",
    "base.launch.describe": "machines.sites.describe",
    "base.launch.new_site": "machines.sites.new_site",
    "base.launch.resources": "machines.sites.resources",
    "base.launch.slurm": "machines.sites.slurm",
    "base.launch.python_archive": "machines.sites.python_archive",
    "cli.verbs.sites": "machines.verbs.sites",
    "cli.verbs.sites_new": "machines.verbs.sites_new",
    "cli.verbs.sites_check": "machines.verbs.sites_check",
    "text.markup.html": "web.html",
    "text.markup.warc": "web.warc",
    "weights.held_out": "weights.example_sentences",
    "weights.probed": "weights.probe_results",
    "weights.seen": "weights.text_amount",
    "weights.taken_over": "weights.import_folder",
    "weights.trained": "weights.trained_model",
}
FUNCTIONS = ("pretrain", "finetune")  # functions in `ordsmed`; a module with such a name would replace them


def new_name(name: str) -> str:
    """Return the new name of a module that was renamed in 0.2, or an empty string."""
    root, _, old = name.partition(".")
    inner = ""
    while root == "ordsmed" and old:
        if old in NEW_NAMES:
            return f"ordsmed.{NEW_NAMES[old]}{inner}"
        old, _, last = old.rpartition(".")
        inner = f".{last}{inner}"
    return ""


def spec(name: str) -> ModuleSpec | None:
    """Return the import spec of a renamed module, or None for other names."""
    if name.startswith(tuple(f"ordsmed.{called}" for called in FUNCTIONS)):
        raise ModuleNotFoundError(f"{name} is {name.replace('.', '.train.', 1)} since 0.2", name=name)
    return ModuleSpec(name, cast(Any, Moved()), is_package=True) if new_name(name) else None


class Moved:
    """A module loader that loads the renamed module."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python makes an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name, location = module.__name__, new_name(module.__name__)
        sys.modules[name] = importlib.import_module(location)
        if not hasattr(sys.modules[name], "__path__"):  # parent packages are imported without a warning
            warnings.warn(f"{name} is {location} since 0.2", DeprecationWarning, stacklevel=2)
