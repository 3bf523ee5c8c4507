"""OpenAI's GPT-2: hparams.json, encoder.json, vocab.bpe, and a TensorFlow checkpoint.

in the checkpoint                        here
model/wte, model/wpe                     model.words.weight, model.places.weight
model/hN/attn/c_attn/w  [1, in, out]     model.blocks.N.attention.gather.weight  [out, in], head by head
model/hN/ln_1/g, b                       model.blocks.N.attention_norm.weight, bias
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

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

SIZES, PREFIX, PIECES, MERGES = "hparams.json", "model.ckpt", "encoder.json", "vocab.bpe"
KEYS = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd", "n_head": "n_head", "n_layer": "n_layer"}
WORDS = "model/wte"


@dataclass(frozen=True)
class OpenAiGpt2(Choice):
    """Read and write OpenAI's files, which have no task heads."""

    wanted: ClassVar[str] = "a folder with hparams.json, encoder.json, vocab.bpe and a TensorFlow checkpoint"
    readers: ClassVar[str] = "hparams.json, model.ckpt, encoder.json, vocab.bpe: openai/gpt-2 and TensorFlow open it"
    families: ClassVar[tuple[str, ...]] = ("gpt2",)

    def recognises(self, path: Path) -> bool:
        prefix = bundle.find(path)
        return prefix is not None and WORDS in bundle.names(prefix)

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        folder = path if path.is_dir() else path.parent
        source = bundle.opened(path)
        stored = google.without_slots(LazyTensors(source.shapes(), source.read))
        sizes = files.read_table(folder / SIZES)
        if lacks := [key for key in KEYS if key not in sizes]:
            raise DataError(folder / SIZES, f"has no {', '.join(lacks)}", "the sizes of a GPT-2")
        described = {key: sizes[name] for name, key in KEYS.items()}
        model = foreign.meant("gpt2", described, folder / SIZES)
        table = {"model": tables.plain(model), "objective": {"kind": "clm"}}
        networks = foreign.decoded(tables.override(table, overrides), folder / SIZES)
        if lacks := [name for name in (PIECES, MERGES) if not (folder / name).is_file()]:
            raise DataError(folder, f"has no {' and no '.join(lacks)}", "the vocabulary of its ids")
        tokenizer = Tokenizer.load([folder / PIECES, folder / MERGES])
        notes = renaming.padding_note(stored, WORDS, tokenizer, path)
        return Imported(
            networks, tokenizer, renaming.import_tensors(networks, tokenizer, stored, spelled, path), tuple(notes)
        )

    def write(self, trained: Trained, folder: Path) -> None:
        network = trained.objective.networks()[""]
        described = network.settings.hugging_face(trained.tokenizer.vocabulary, trained.tokenizer)
        usual = {
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "n_inner": 4 * network.settings.width,
        }
        heads = [role for role in network.modules if role not in ("model", "head")]
        unlike = [f"{key} {described[key]}" for key in usual if described[key] != usual[key]]
        if unlike or heads or not trained.tokenizer.byte_level:
            wrong = ", ".join([*unlike, *(f"a {role} head" for role in heads)]) or f"{trained.tokenizer.kind} pieces"
            remedy = "`ordsmed export` without --to keeps it unchanged"
            raise RecipeError(
                trained.folder, f"has {wrong}", "the settings of openai/gpt-2, with byte-level BPE", remedy
            )
        files.write_json(folder / SIZES, {name: described[key] for name, key in KEYS.items()})
        bundle.write(folder / PREFIX, renaming.export_tensors(trained.objective, spelled))
        trained.tokenizer.save_byte_level(folder / PIECES, folder / MERGES)


def spelled(_: str, name: str) -> tuple[str, TensorLayout]:
    """Return OpenAI's name for a Hugging Face name, and the layout of the tensor in the checkpoint."""
    scope = re.sub(r"\bh\.(\d+)", r"h\1", name.removeprefix("transformer.")).replace(".", "/")
    scope, _, end = f"model/{scope}".rpartition("/")
    if scope.endswith(("wte", "wpe")):
        return scope, "alike"
    if "/ln_" in scope:
        return f"{scope}/{'g' if end == 'weight' else 'b'}", "alike"
    return (f"{scope}/w", "lifted") if end == "weight" else (f"{scope}/b", "alike")
