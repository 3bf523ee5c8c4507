"""Export: a trained model as a folder that Hugging Face loads without a line of our code, with a model card.

run -> Trained -> .out.part/ config.json, model.safetensors, tokenizer.json ..., README.md -> renamed to out/
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

import ordsmed
from ordsmed.apply import card
from ordsmed.apply.trained import Trained, kept, open_model
from ordsmed.base import files, hub
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.learn.objective import Network
from ordsmed.nn import weights

MARK = "ordsmed.json"  # says that the folder is an export, and of what
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def export_all(path: str | Path, out: str | Path, *, anew: bool = False, licence: str | None = None) -> list[Path]:
    """Every step of a run whose weights stand, and step 0, each as a folder in `out`: to see how a model learns."""
    folder = hub.folder(path)
    if Run(folder).status.get("verb") != "pretrain":
        raise RecipeError("--step", f"found all, but {path} is no run", "a run's folder")
    if Path(out).exists() and Path(out).resolve() in (folder.resolve(), *folder.resolve().parents):
        raise RecipeError(out, "is, or holds, the run that is exported", "another folder")
    made = []
    for step in kept(folder):
        try:
            made.append(export(folder, Path(out) / f"step-{step}", step, anew=anew, licence=licence))
        except DataError as error:
            if step:
                raise
            say(f"step 0 is left out: {error}")
    return made


def export(
    path: str | Path, out: str | Path, step: int | None = None, *, anew: bool = False, licence: str | None = None
) -> Path:
    """Write a Hugging Face folder of a run or of another such folder, whole or not at all; replaces an earlier one."""
    target = Path(out)
    _check_target(target, Path(path), anew=anew)
    trained = open_model(path, step)
    beside = target.with_name(f".{target.name}.part")
    with files.survive_disk(target):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
    try:
        _write(trained, beside, target.name, licence)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    with files.survive_disk(target):
        _replace(target, beside)
    return target


def config(network: Network, tokenizer: Any) -> dict[str, Any]:
    """What config.json says."""
    settings = network.settings
    heads = " ".join(role for role in network.modules if role != "model")
    return {
        "architectures": [settings.architectures[heads]], "model_type": settings.model_type,
        **settings.hugging_face(tokenizer.vocabulary, tokenizer), "dtype": "float32",
    }  # fmt: skip


def tensors(network: Network) -> weights.Tensors:
    """The weights under Hugging Face's names, in fp32, each once."""
    found = weights.to_foreign(network.tensors(), network.settings.names())
    return {k: v.detach().to(torch.float32) for k, v in found.items()}


def _write(trained: Trained, folder: Path, name: str, licence: str | None) -> None:
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
    files.write_text(folder / "README.md", card.write(trained, name, licence))
    files.write_json(folder / MARK, {"ordsmed": ordsmed.__version__, "of": str(trained.folder), "step": trained.step})


def _write_tokenizer(trained: Trained, folder: Path) -> None:
    """As the tokenizer saves itself, with the longest row the network takes."""
    trained.tokenizer.save(folder)
    described = files.read_json(folder / "tokenizer_config.json")
    described["model_max_length"] = trained.settings.longest()
    files.write_json(folder / "tokenizer_config.json", described)
    files.write_json(folder / "special_tokens_map.json", {k: described[k] for k in SPECIAL if described.get(k)})


def _check_target(target: Path, source: Path, *, anew: bool) -> None:
    """Refuse to write over anything that is not an earlier export."""
    if target.exists() and source.exists() and target.resolve() in (source.resolve(), *source.resolve().parents):
        raise RecipeError(target, "is, or holds, the model that is exported", "another folder")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not target.is_dir():
        raise RecipeError(target, "is a file", "a folder to write")
    if Run(target).status:
        raise RecipeError(target, f"is the folder of a `{Run(target).status.get('verb')}`", "another folder")
    if not (target / MARK).exists() and not anew:
        raise RecipeError(
            target, "stands, and is no earlier export", "a new folder", "name another, or add --anew to replace it"
        )


def _replace(target: Path, beside: Path) -> None:
    """Rename the new folder into place; the old one goes once the new one stands."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        say(f"{target}: the earlier export is replaced")
        target.rename(old)
    beside.rename(target)
    files.sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)
