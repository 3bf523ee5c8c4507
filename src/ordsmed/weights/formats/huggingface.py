"""Hugging Face's folders, as transformers saves and loads them: config.json, weights, tokenizer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import WEIGHTS
from ordsmed.base.menu import Choice, load
from ordsmed.learn.head_transfer import rescalable
from ordsmed.learn.objective import Objective
from ordsmed.learn.task import Files, Task
from ordsmed.nn.config import short
from ordsmed.nn.model import ModelSettings, own_tensors
from ordsmed.weights import foreign, sentence_modules, weights
from ordsmed.weights.foreign import Imported
from ordsmed.weights.hub_files import config, rescaled_head, tensors, write_tokenizer
from ordsmed.weights.renaming import LazyTensors
from ordsmed.weights.trained_model import Trained

KEPT = "ordsmed"  # key in config.json with settings of a task or hybrid that transformers does not know
LEFT_OUT = ("train", "dev", "top", "class_weights")  # settings of a task that are useless after training


@dataclass(frozen=True)
class HuggingFace(Choice):
    """Read and write Hugging Face folders, for every model family that transformers knows."""

    wanted: ClassVar[str] = "a folder with config.json, weights and a tokenizer"
    readers: ClassVar[str] = "transformers' AutoModel, AutoTokenizer and pipeline load it"
    families: ClassVar[tuple[str, ...]] = ()

    start: bool = True
    """the written tokenizer of a causal model puts the start token before each text"""

    def recognises(self, path: Path) -> bool:
        return (path / "config.json").is_file()

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        family = foreign.settings(path)
        learned = self.learned(path, family)
        if _detects(path, family):
            if not foreign.has_generator(path):
                remedy = "embed, export and `init` accept the folder; to import it, put the generator in `generator/`"
                raise RecipeError(path, "has a discriminator without its generator", "", remedy)
            learned = settings.decode(load("objectives", "rtd"), foreign.generator_table(path), f"{path}/generator")
        kind = "task" if isinstance(learned, Files) else "objective"
        table = {"model": settings.plain(family), kind: settings.plain(learned)}
        networks = foreign.decoded(settings.override(table, overrides), path / "config.json")
        tokenizer = foreign.tokenizer(path)
        foreign.fits(networks.model, tokenizer, path)
        objective = networks.learned.build(networks.model, tokenizer)
        foreign.load_into(objective, path, tokenizer)
        self.to_learned(objective, learned)
        return Imported(networks, tokenizer, own_tensors(objective))

    def learned(self, folder: Path, model: ModelSettings) -> Any:
        """Return the settings of what the network learned, inferred from modules, classes and heads of the folder."""
        if vectors := sentence_modules.vectors_of(folder, model.longest()):
            return settings.decode(load("tasks", "pairs"), vectors, f"{folder}/{sentence_modules.MODULES}")
        if task := self.task(folder):
            return task
        if self.is_shifted(folder):
            table = {name: value for name, value in foreign.read_config(folder)[KEPT].items() if name != "kind"}
            return settings.decode(load("objectives", "hybrid"), table, f"{folder}/config.json: {KEPT}")
        if _detects(folder, model):
            return load("objectives", "rtd")()
        if model.capabilities.causal:
            return load("objectives", "clm")()
        return load("objectives", "mlm_nsp" if _tells_pairs(folder, model) else "mlm")()

    def is_shifted(self, folder: Path) -> bool:
        """Return whether it is a hybrid, which predicts a masked token at the position before it."""
        kept = foreign.read_config(folder).get(KEPT)
        return isinstance(kept, dict) and kept.get("kind") == "hybrid" and not foreign.task_of(folder)

    def task(self, folder: Path) -> Any:
        if not (head := foreign.task_of(folder)):
            return None
        role, labels, number = head
        config, model = foreign.read_config(folder), foreign.settings(folder)
        kept, longest = config.get(KEPT), model.longest()
        kind, table = foreign.task_with(role, labels, number, longest)
        if role == "classify":
            table |= _pooling(folder, config, model)
        choice = load("tasks", kind)
        if isinstance(kept, dict) and kept.get("kind") == kind and _same_labels(kept, table):
            table = {name: value for name, value in kept.items() if name != "kind"}
        table["length"] = min(table.get("length", choice.length), longest)
        return settings.decode(choice, table, f"{folder}/config.json: {KEPT}")

    def to_learned(self, objective: Objective, learned: Any) -> None:
        """Rescale a regression head to [0, 1], as it was trained; a folder has it on the original scale."""
        if scale := rescalable(objective, learned):
            tensors = objective.networks()[""].tensors()
            with torch.no_grad():
                for name, value in rescaled_head(tensors, scale, back=True).items():
                    tensors[name].copy_(value)

    def write_bare(self, imported: Imported, folder: Path) -> None:
        """Write a network without heads under AutoModel's class, with few tensors in memory at a time."""
        family, names = imported.networks.model, imported.networks.model.names()
        described = {"architectures": [family.architectures[""]], "model_type": family.model_type, "dtype": "float32"}
        described |= family.hugging_face(imported.tokenizer.vocabulary, imported.tokenizer)
        files.write_json(folder / "config.json", described)
        sources: dict[str, tuple[str, int]] = {}
        shapes = {name: tuple(shape) for name, shape in names.zeros.items()}
        for name, tensor in imported.tensors.items():
            hf_name = names.table[name]
            for number, part in enumerate(weights.foreign_layout(name, tensor, names)):
                new = hf_name if isinstance(hf_name, str) else hf_name[number]
                sources[new], shapes[new] = (name, number), tuple(part.shape)

        @functools.lru_cache(maxsize=1)  # a query is followed by its key and value
        def parts(name: str) -> list[torch.Tensor]:
            return weights.foreign_layout(name, imported.tensors[name], names)

        def read(new: str) -> torch.Tensor:
            name, number = sources.get(new, ("", 0))
            return parts(name)[number].contiguous() if name else torch.zeros(shapes[new])

        weights.write_each(folder / WEIGHTS, shapes, LazyTensors(shapes, read))
        write_tokenizer(imported.tokenizer, family, folder)

    def write(self, trained: Trained, folder: Path) -> None:
        """Write the exported network, and further ones (ELECTRA's generator) in subfolders."""
        scale = rescalable(trained.objective, trained.learned)
        fine_tuned = isinstance(trained.objective, Task)
        kept = _own_settings(trained.learned) if fine_tuned or trained.objective.shifted else {}
        for inner, network in trained.objective.exported().items():
            (folder / inner).mkdir(exist_ok=True)
            described = config(network, trained.tokenizer) | kept
            if fine_tuned and (pool := getattr(trained.objective, "pool", "")) in network.settings.poolings:
                described["classifier_pooling"] = pool
            causal = network.settings.capabilities.causal and not fine_tuned
            if causal:
                described["bos_token_id"] = trained.opening
            files.write_json(folder / inner / "config.json", described)
            weights.write(folder / inner / WEIGHTS, tensors(network, scale))
            opening = trained.opening if causal else None
            write_tokenizer(
                trained.tokenizer, trained.settings, folder / inner, continues=causal, start=self.start, opening=opening
            )
            if causal:
                ends = {k: described.get(k) for k in ("bos_token_id", "eos_token_id")}
                usual = {**ends, "pad_token_id": ends["eos_token_id"]}
                files.write_json(folder / inner / "generation_config.json", usual)


def _pooling(folder: Path, config: dict[str, Any], model: ModelSettings) -> dict[str, Any]:
    """Return the `pool` setting of a classifier if config.json says that it reads other states than the first."""
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in ("cls", *model.poolings):
        problem = f"classifier_pooling: found {short(pooling)}"
        raise DataError(folder / "config.json", problem, " or ".join(["cls", *model.poolings]))
    return {} if pooling == "cls" else {"pool": pooling}


def _detects(folder: Path, model: ModelSettings) -> bool:
    return bool(model.capabilities.detects) and any("ForPreTraining" in name for name in foreign.classes(folder))


def _tells_pairs(folder: Path, model: Any) -> bool:
    """Return whether a folder has the head for pairs of segments, whatever class its config.json names."""
    if not model.capabilities.pairs or model.types < 2:
        return False
    names, stored = model.names(), weights.foreign_names(folder)
    wanted = [hf_names for own_name, hf_names in names.table.items() if own_name.startswith("pair.")]
    return all(not stored.isdisjoint((name, str(name).removeprefix(names.prefix))) for name in wanted)


def _own_settings(learned: Any) -> dict[str, Any]:
    """Return the config.json entry with the settings that only this library reads, such as the input columns."""
    return {KEPT: {name: value for name, value in settings.plain(learned).items() if name not in LEFT_OUT}}


def _same_labels(kept: dict[str, Any], table: dict[str, Any]) -> bool:
    """Return whether the saved settings are still valid: someone may have fine-tuned the folder for other labels."""
    return all(kept.get(name, usual) == table.get(name, usual) for name, usual in (("labels", []), ("number", False)))
