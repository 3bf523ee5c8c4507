"""Hugging Face's folders, as transformers saves and loads them: config.json, weights, tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError
from ordsmed.learn.objective import Network
from ordsmed.nn import foreign, weights
from ordsmed.nn.foreign import Imported
from ordsmed.nn.model import TASK_CLASSES
from ordsmed.text.tokenizer import Tokenizer

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class Settings:
    """Read and written, for every family that transformers knows."""

    wanted: ClassVar[str] = "a folder with config.json, weights and a tokenizer"
    readers: ClassVar[str] = "transformers' AutoModel, AutoTokenizer and pipeline load it"

    def recognises(self, path: Path) -> bool:
        return (path / "config.json").is_file()

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        found = foreign.settings(path)
        if "ForPreTraining" in str(foreign.read_config(path).get("architectures")) and found.capabilities.detects:
            remedy = "embed, export and `init` take the folder as it is"
            raise RecipeError(path, "holds a network that tells fakes, without the one that made them", "", remedy)
        table = {"model": settings.plain(found), "objective": "clm" if found.capabilities.causal else "mlm"}
        networks = foreign.decoded(settings.override(table, overrides), path / "config.json")
        tokenizer = Tokenizer.load(path)
        objective = networks.objective.build(networks.model, tokenizer)
        foreign.load_into(objective, path, tokenizer)
        return Imported(networks, tokenizer, weights.own_tensors(objective))

    def write(self, trained: Any, folder: Path) -> None:
        """The network that is kept, and in folders inside it the others (ELECTRA's generator)."""
        for inner, network in trained.objective.networks().items():
            (folder / inner).mkdir(exist_ok=True)
            described = config(network, trained.tokenizer)
            files.write_json(folder / inner / "config.json", described)
            weights.write(folder / inner / "model.safetensors", tensors(network))
            _write_tokenizer(trained, folder / inner)
        if trained.causal:
            ends = {k: described.get(k) for k in ("bos_token_id", "eos_token_id")}
            files.write_json(folder / "generation_config.json", {**ends, "pad_token_id": ends["eos_token_id"]})


def config(network: Network, tokenizer: Any) -> dict[str, Any]:
    """What config.json says."""
    settings = network.settings
    heads = " ".join(role for role in network.modules if role != "model")
    return {
        "architectures": [settings.architectures[heads]], "model_type": settings.model_type,
        **settings.hugging_face(tokenizer.vocabulary, tokenizer), "dtype": "float32",
        **(_task(heads, network, tokenizer) if heads in TASK_CLASSES else {}),
    }  # fmt: skip


def _task(kind: str, network: Network, tokenizer: Any) -> dict[str, Any]:
    """What a class with a task's head is told beside: its labels, and what is padding, as a GPT-2 must know."""
    labels = network.labels or (("LABEL_0",) if network.number else ())
    told: dict[str, Any] = {} if tokenizer.pad is None else {"pad_token_id": tokenizer.pad}
    if labels:
        told |= {"id2label": {str(n): label for n, label in enumerate(labels)}, "num_labels": len(labels)}
        told |= {"label2id": {label: n for n, label in enumerate(labels)}}
    if kind == "classify":
        told |= {"problem_type": "regression" if network.number else "single_label_classification"}
    return told


def tensors(network: Network) -> weights.Tensors:
    """The weights under Hugging Face's names, in fp32, each once."""
    found = weights.to_foreign(network.tensors(), network.settings.names())
    return {k: v.detach().to(torch.float32) for k, v in found.items()}


def _write_tokenizer(trained: Any, folder: Path) -> None:
    """As the tokenizer saves itself, with the longest row the network takes."""
    trained.tokenizer.save(folder)
    described = files.read_json(folder / "tokenizer_config.json")
    described["model_max_length"] = trained.settings.longest()
    files.write_json(folder / "tokenizer_config.json", described)
    files.write_json(folder / "special_tokens_map.json", {k: described[k] for k in SPECIAL if described.get(k)})
