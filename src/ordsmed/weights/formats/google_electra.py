"""ELECTRA's TensorFlow checkpoints, Google's and NVIDIA's, with discriminator and generator.

    Google's                                     NVIDIA's, after model/discriminator/ or model/generator/
    electra/embeddings/word_embeddings           electra/embeddings/weight
    electra/encoder/layer_N/attention/self/      electra/encoder/layer/N/attention/self_attention/
    generator/encoder/layer_N/output/dense       electra/encoder/layer/N/bert_output/dense
    discriminator_predictions/dense_1            discriminator_predictions/dense_prediction
    generator_predictions/output_bias            generator_lm_head/bias

The files have no sizes, so these are read from the tensors. The number of attention heads assumes a width of 64 per
head unless `model.heads` is given. Google's names are written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ordsmed.base import files
from ordsmed.base import settings as tables
from ordsmed.base.binary import bundle
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, google, renaming
from ordsmed.weights.foreign import Imported
from ordsmed.weights.renaming import LazyTensors, TensorLayout
from ordsmed.weights.trained_model import Trained

PREFIX, VOCABULARY = "model.ckpt", "vocab.txt"
OBJECT, VALUE = "model/discriminator/electra/", "/.ATTRIBUTES/VARIABLE_VALUE"
WORDS = "electra/embeddings/word_embeddings"
HEAD = 64  # width of an attention head in the published models
NVIDIA = (  # NVIDIA's -> Google's
    (r"/self_attention/", "/self/"),
    (r"/dense_output/", "/output/"),
    (r"/bert_output/", "/output/"),
    (r"/layer/(\d+)/", r"/layer_\1/"),
    (r"/dense_prediction/", "/dense_1/"),
    (r"_embeddings/embeddings$", "_embeddings"),
    (r"embeddings/(weight|word_embeddings)$", "embeddings/word_embeddings"),
    (r"^generator_lm_head/bias$", "generator_predictions/output_bias"),
)


@dataclass(frozen=True)
class GoogleElectra(Choice):
    """Read and write both networks. A checkpoint without a generator cannot be trained further."""

    wanted: ClassVar[str] = "a folder with an ELECTRA's TensorFlow checkpoint (*.index, *.data-*) and vocab.txt"
    readers: ClassVar[str] = "model.ckpt, vocab.txt: google-research/electra and TensorFlow open it"
    families: ClassVar[tuple[str, ...]] = ("electra",)
    beside: ClassVar[str] = foreign.GENERATOR  # the second network in a Hugging Face folder, which is written too

    def recognises(self, path: Path) -> bool:
        prefix = bundle.find(path)
        names = bundle.names(prefix) if prefix else frozenset()
        return any(name.startswith(("electra/embeddings/", OBJECT)) for name in names)

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        folder = path if path.is_dir() else path.parent
        source = bundle.opened(path)
        stored = google.without_slots(LazyTensors(source.shapes(), source.read))
        stored, shared = _googles(stored) if any(name.endswith(VALUE) for name in stored) else (stored, None)
        table, notes = _table(stored, shared or _shared(stored), path, overrides)
        networks = foreign.decoded(tables.override(table, overrides), path)
        tokenizer = Tokenizer.load(folder / VOCABULARY)
        notes += renaming.padding_note(stored, WORDS, tokenizer, path)
        spell = speller(networks.objective.share)
        return Imported(
            networks, tokenizer, renaming.import_tensors(networks, tokenizer, stored, spell, path), tuple(notes)
        )

    def write(self, trained: Trained, folder: Path) -> None:
        objective, learned = _both_networks(trained)
        share, settings = getattr(learned, "share", None), trained.settings
        if share not in ("embeddings", "all", "none"):
            wrong = f"shares {share} between its two networks" if share else "has no generator"
            raise RecipeError(trained.folder, wrong, "two networks that share embeddings, everything or nothing")
        if (settings.activation, settings.epsilon, settings.tied) != ("gelu", 1e-12, True) or not settings.types:
            wrong = f"has {settings.activation}, epsilon {settings.epsilon}, types {settings.types}"
            remedy = "`ordsmed export` without --to keeps it unchanged"
            raise RecipeError(
                trained.folder, wrong, "the settings of google-research/electra: gelu, 1e-12, tied", remedy
            )
        if trained.tokenizer.kind != "wordpiece":
            raise RecipeError(trained.folder, f"has a {trained.tokenizer.kind} tokenizer", "wordpiece")
        bundle.write(folder / PREFIX, renaming.export_tensors(objective, speller(share)))
        files.write_text(folder / VOCABULARY, trained.tokenizer.listed())


def _both_networks(trained: Trained) -> tuple[Any, Any]:
    """Return an objective with both networks and its settings; for a Hugging Face folder, load its generator too."""
    learned = trained.learned
    if "generator" in trained.objective.networks() or not hasattr(learned, "generator"):
        return trained.objective, learned
    table = foreign.generator_table(trained.folder)
    learned = replace(learned, generator=replace(learned.generator, **table["generator"]), share=table["share"])
    objective = learned.build(trained.settings, trained.tokenizer)
    foreign.load_into(objective, trained.folder, trained.tokenizer)
    return objective, learned


def speller(share: str) -> renaming.Spell:
    """Return the function from Hugging Face's names to Google's; `share` is what the two networks share."""

    def spell(inner: str, name: str) -> tuple[str, TensorLayout]:
        name = name.replace("generator_lm_head.bias", "generator_predictions.output_bias")
        if name == "generator_predictions.output_bias":
            return "generator_predictions/output_bias", "alike"
        name = name.replace("dense_prediction", "dense_1")
        stored_name, lies = google.spelled(inner, name)
        separate = inner == "generator" and share != "all"
        if (
            separate
            and stored_name.startswith("electra/")
            and not (share == "embeddings" and "/embeddings/" in stored_name)
        ):
            stored_name = "generator/" + stored_name.removeprefix("electra/")
        return stored_name, lies

    return spell


def _googles(tensors: LazyTensors) -> tuple[LazyTensors, str]:
    """Return NVIDIA's tensors under Google's names, and what the two networks share, by comparing the tables."""

    def rename(name: str) -> str | None:
        if not name.endswith(VALUE) or not name.startswith("model/") or ".OPTIMIZER_SLOT" in name:
            return None
        _, network, name = name.removesuffix(VALUE).split("/", 2)
        for pattern, new in NVIDIA:
            name = re.sub(pattern, new, name)
        return name.replace("electra/", "generator/", 1) if network == "generator" else name

    tensors = tensors.renamed(rename)
    for name in [n for n in tensors if n.startswith("generator/embeddings/")]:  # saved once, under the first network
        shared_name = name.replace("generator/", "electra/", 1)
        if shared_name not in tensors:
            tensors = tensors.also(shared_name, name)
    embeddings = [name for name in tensors if name.startswith("generator/embeddings/")]
    alike = all(tensors[name].equal(tensors[name.replace("generator/", "electra/", 1)]) for name in embeddings)
    if alike or not embeddings:
        return tensors.renamed(lambda name: None if name in embeddings else name), "embeddings"
    for name in [n for n in tensors if n.startswith("electra/embeddings/")]:
        shared_name = name.replace("electra/", "generator/", 1)
        if shared_name not in tensors:
            tensors = tensors.also(shared_name, name)
    words = "generator/embeddings/word_embeddings"
    if tensors[words].equal(tensors[WORDS]):
        return tensors.renamed(lambda name: None if name == words else name), "words"
    return tensors, "none"


def _shared(tensors: LazyTensors) -> str:
    if any(name.startswith("generator/embeddings/") for name in tensors):
        return "none"
    return "embeddings" if any(name.startswith("generator/") for name in tensors) else "all"


def _table(tensors: LazyTensors, share: str, path: Path, overrides: Sequence[str]) -> tuple[tables.Table, list[str]]:
    """Return the recipe of networks with these shapes, and notes for the user."""

    def shape(name: str) -> tuple[int, ...]:
        if name not in tensors:
            raise DataError(path, f"lacks {name}", "ELECTRA's two networks")
        return tensors.shapes[name]

    if "generator_predictions/output_bias" not in tensors:
        raise DataError(
            path, "has no generator", "both networks of the pretraining", "use the checkpoint of the pretraining"
        )
    notes: list[str] = []
    overridden = tables.override({}, overrides)
    asked_heads = overridden.get("model", {}).get("heads")

    def sizes(scope: str, name: str, key: str, heads: object) -> tables.Table:
        width, inner = shape(f"{scope}/encoder/layer_0/intermediate/dense/kernel")
        usual = {} if width % HEAD else {"heads": width // HEAD}
        if heads is None and not usual:
            raise RecipeError(
                path,
                f"a {name} of width {width}; the files do not say how many heads it has",
                "their number",
                f"add {key}=N",
            )
        if heads is None:
            notes.append(
                f"{path}: {width // HEAD} heads in the {name}: {HEAD} numbers each, as in the published models; "
                f"{key}=N after `ordsmed import` changes it"
            )
        return {
            "width": width,
            "inner": inner,
            "layers": renaming.layers(tensors, f"{scope}/encoder/layer_N/"),
            **usual,
        }

    places, types = (shape(f"electra/embeddings/{name}_embeddings")[0] for name in ("position", "token_type"))
    model = {"kind": "electra", "positions": places, "types": types, "embedding": shape(WORDS)[1]}
    model |= sizes("electra", "discriminator", "model.heads", asked_heads)
    objective: tables.Table = {"kind": "rtd", "share": share}
    if share != "all":
        of_its_own = overridden.get("objective", {}).get("generator", {}).get("heads")
        known = asked_heads if of_its_own is None else of_its_own
        generator_table = objective["generator"] = sizes("generator", "generator", "objective.generator.heads", known)
        if (
            of_its_own is None and isinstance(asked_heads, int) and asked_heads > 0
        ):  # of the same width as the other network's
            generator_table["heads"] = max(1, generator_table["width"] * asked_heads // model["width"])
            notes.append(
                f"{path}: {generator_table['heads']} heads in the generator, as wide as the discriminator's; "
                "objective.generator.heads=N after `ordsmed import` changes it"
            )
    return {"model": model, "objective": objective}, notes
