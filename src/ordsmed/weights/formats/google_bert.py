"""Google's BERT: bert_config.json, vocab.txt, and a TensorFlow checkpoint: pretrained, fine-tuned, or a body alone.

Names, of TensorFlow 1 and 2: weights/google.py. Its `gelu` is the tanh form, which others call gelu_new. The
optimizer's slots are left out. run_classifier's head goes in and out with its classes by number, run_squad's with an
idle pooler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base import settings as tables
from ordsmed.base.binary import bundle
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.learn.head_transfer import unscaled
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, google, renaming
from ordsmed.weights.foreign import Imported
from ordsmed.weights.renaming import LazyTensors

CONFIG, PREFIX, VOCABULARY = "bert_config.json", "bert_model.ckpt", "vocab.txt"
WORDS = "bert/embeddings/word_embeddings"
HEADS = ("cls/predictions/", "cls/seq_relationship/")
CLASSES, SPAN = "output_weights", "cls/squad/output_weights"  # of run_classifier.py, of run_squad.py
POOLER = "bert/pooler/"  # used only by heads that read a complete text
WRITTEN = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)


@dataclass(frozen=True)
class GoogleBert(Choice):
    """Read with the heads of pretraining, of a classifier, of SQuAD, or none; written with any of these."""

    wanted: ClassVar[str] = "a folder with bert_config.json, vocab.txt and a TensorFlow checkpoint (*.index, *.data-*)"
    readers: ClassVar[str] = "bert_config.json, bert_model.ckpt, vocab.txt: google-research/bert and TensorFlow open it"
    families: ClassVar[tuple[str, ...]] = ("bert",)

    def recognises(self, path: Path) -> bool:
        folder = path if path.is_dir() else path.parent
        prefix = bundle.find(path)
        return prefix is not None and ((folder / CONFIG).is_file() or WORDS in bundle.names(prefix))

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        folder = path if path.is_dir() else path.parent
        source = bundle.opened(path)
        stored = google.without_slots(google.of_scopes(LazyTensors(source.shapes(), source.read)))
        target = folder / CONFIG
        config = files.read_table(target)
        known = config.get("hidden_act")
        if known not in google.ACTIVATIONS:
            raise DataError(target, f"hidden_act: found {known}", " or ".join(google.ACTIVATIONS))
        network = foreign.meant("bert", config | {"hidden_act": google.ACTIVATIONS[known]}, target)
        learned, idle, notes = _learned(stored, network.longest(), path)
        stored = stored.renamed(lambda name: None if idle and re.match(idle, name) else name)
        table = {"model": tables.plain(network), **learned}
        networks = foreign.decoded(tables.override(table, overrides), folder / CONFIG)
        lists = sorted(folder.glob("*vocab*.txt"))
        if len(lists) != 1:
            wrong = f"holds {' and '.join(p.name for p in lists)}" if lists else "holds no vocab.txt"
            raise DataError(folder, wrong, "the one vocabulary that its numbers mean", "put it there as vocab.txt")
        tokenizer = Tokenizer.load(lists[0])
        padding_notes = renaming.rows_behind(stored, WORDS, tokenizer, path)
        bare = "objective" in learned and not any(name.startswith(HEADS[0]) for name in stored)
        only = r"model\.|pair\.dense\." if bare else ""
        tensors = renaming.import_tensors(networks, tokenizer, stored, google.spelled, path, only=only)
        return Imported(networks, tokenizer, tensors, (*padding_notes, *(f"{path}: {note}" for note in notes)), bare)

    def write(self, trained: Any, folder: Path) -> None:
        network = trained.objective.networks()[""]
        if trained.tokenizer.kind != "wordpiece":
            raise RecipeError(trained.folder, f"has a tokenizer of the kind {trained.tokenizer.kind}", "wordpiece")
        heads = [role for role in network.modules if role != "model"]
        learned = heads in (["classify"], ["span"])
        if (heads not in (["head"], ["head", "pair"]) and not learned) or not (network.settings.tied or learned):
            wrong = f"has the heads {', '.join(heads) or 'none'}, {'' if network.settings.tied else 'not '}tied"
            wanted = "what BERT's pretraining leaves, tied: mlm or mlm_nsp; or a head of classes or of SQuAD's spans"
            raise RecipeError(trained.folder, wrong, wanted)
        described = network.settings.hugging_face(trained.tokenizer.vocabulary, trained.tokenizer)
        activations = {there: here for here, there in google.ACTIVATIONS.items()} | {"gelu": "gelu"}
        settings, activation = network.settings, described["hidden_act"]
        if activation not in activations or settings.epsilon != 1e-12 or not settings.types:
            wrong = f"has {settings.activation}, epsilon {settings.epsilon}, types {settings.types}"
            remedy = "`ordsmed export` without --to writes it as it is"
            raise RecipeError(
                trained.folder, wrong, "what google-research/bert computes: gelu, 1e-12, 1 or more", remedy
            )
        if activation == "gelu":
            say("its gelu is the exact one: google-research/bert computes the tanh form, and differs by up to 1e-3")
        config = {"vocab_size": trained.tokenizer.vocabulary, "hidden_act": activations[activation]}
        files.write_json(folder / CONFIG, config | {key: described[key] for key in WRITTEN})
        bundle.write(folder / PREFIX, _given(trained, heads))
        files.write_text(folder / VOCABULARY, trained.tokenizer.listed())
        if network.labels:
            say(f"its classes bear numbers there: {', '.join(f'{n} {name}' for n, name in enumerate(network.labels))}")


def _given(trained: Any, heads: list[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors to write. run_squad.py also requires a pooler, which it does not use: it is zero."""
    instead = unscaled(trained.objective, trained.learned) if heads == ["classify"] else {}
    yield from renaming.export_tensors(trained.objective, google.spelled, instead=instead)
    if heads == ["span"]:
        width = trained.settings.width
        yield f"{POOLER}dense/kernel", torch.zeros(width, width)
        yield f"{POOLER}dense/bias", torch.zeros(width)


def _learned(tensors: LazyTensors, longest: int, path: Path) -> tuple[tables.Table, str, list[str]]:
    """Return the recipe's table of what a checkpoint learned, a pattern of unused tensors, and notes for the user."""
    masks, pairs = (any(name.startswith(scope) for name in tensors) for scope in HEADS)
    idle, notes = ("", [])
    if CLASSES in tensors or SPAN in tensors:
        labels = tuple(f"LABEL_{n}" for n in range(tensors.shapes[CLASSES][0])) if CLASSES in tensors else ()
        number = len(labels) == 1
        role = "classify" if labels else "span"
        kind, table = foreign.task_with(role, () if number else labels, number, longest)
        if len(labels) > 1:
            notes.append(f"its classes bear no names: {', '.join(labels)}; task.labels=[...] names them")
        if masks or pairs:
            notes.append("the heads of pretraining are left out")
        return {"task": {"kind": kind, **table}}, "|".join([*HEADS, *([] if labels else [POOLER])]), notes
    if pairs and not masks:
        theirs_are = ", ".join(sorted({name.split("/")[0] for name in tensors}))
        raise DataError(
            path,
            f"holds no head for masked words (scopes: {theirs_are})",
            "cls/predictions/...",
            "take the checkpoint that pretraining left",
        )
    if masks and not pairs:
        idle, notes = POOLER, ["no head for pairs: the pooler, which it is for, is left out"]
    if not masks:
        notes.append("a network without heads: a Hugging Face folder, for embed and for init of a fine-tuning")
    pooled = any(name.startswith(POOLER) for name in tensors)
    return {"objective": {"kind": "mlm_nsp" if pooled and not idle else "mlm"}}, idle, notes
